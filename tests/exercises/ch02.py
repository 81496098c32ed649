"""Solutions of the exercises of chapter 2, right and wrong."""

from harness import Exercise

EXERCISES = [
    Exercise(
        cell="02-6670e89d",
        wrong={
            "looks one position too far": """
                positions = torch.arange(length)
                return (positions.unsqueeze(1) - positions).abs() <= radius + 1
            """,
            "leaves the edge of the window out": """
                positions = torch.arange(length)
                return (positions.unsqueeze(1) - positions).abs() < max(radius, 1)
            """,
            "looks back only": """
                positions = torch.arange(length)
                distance = positions.unsqueeze(1) - positions
                return (distance >= 0) & (distance <= radius)
            """,
            "forgets the absolute value": """
                positions = torch.arange(length)
                return positions.unsqueeze(1) - positions <= radius
            """,
            "returns numbers, not a mask": """
                positions = torch.arange(length)
                return ((positions.unsqueeze(1) - positions).abs() <= radius).float()
            """,
            "True means hidden": """
                positions = torch.arange(length)
                return (positions.unsqueeze(1) - positions).abs() > radius
            """,
            "takes the radius as the width of the window": """
                positions = torch.arange(length)
                return 2 * (positions.unsqueeze(1) - positions).abs() <= radius
            """,
            "wraps around at the ends": """
                positions = torch.arange(length)
                away = (positions.unsqueeze(1) - positions).abs()
                return torch.minimum(away, length - away) <= radius
            """,
            "always shows as many keys, at the ends too": """
                most = max(length - 2 * radius - 1, 0)
                start = (torch.arange(length) - radius).clamp(0, most).unsqueeze(1)
                away = torch.arange(length) - start
                return (away >= 0) & (away <= 2 * radius)
            """,
            "cuts the sentence into blocks": """
                block = torch.arange(length) // (radius + 1)
                return block.unsqueeze(1) == block
            """,
            "leaves the position itself out": """
                positions = torch.arange(length)
                away = (positions.unsqueeze(1) - positions).abs()
                return (away <= radius) & ((away > 0) | (radius == 0))
            """,
        },
        right={
            "a band, cut from above and below": """
                full = torch.ones(length, length, dtype=torch.bool)
                return full.tril(radius).triu(-radius)
            """,
            "pair by pair": """
                rows = range(length)
                return torch.tensor([[abs(i - j) <= radius for j in rows]
                                     for i in rows])
            """,
        },
    ),
    Exercise(
        cell="02-399f9b8e",
        wrong={
            "lines the triangle up with the first positions": """
                return causal_mask(n_k)[:n_q]
            """,
            "cuts columns, not rows, and pads": """
                return torch.ones(n_q, n_k, dtype=torch.bool).tril()
            """,
            "the newest words see everything": """
                return torch.ones(n_q, n_k, dtype=torch.bool)
            """,
            "is right for one query and for all": """
                if n_q == 1:
                    return torch.ones(1, n_k, dtype=torch.bool)
                return causal_mask(n_k)[:n_q]
            """,
            "is right for two queries only": """
                return causal_mask(n_k)[max(n_k - 2, 0):]
            """,
            "leaves the word itself out": """
                return torch.ones(n_q, n_k, dtype=torch.bool).tril(n_k - n_q - 1)
            """,
            "one position too generous": """
                return torch.ones(n_q, n_k, dtype=torch.bool).tril(n_k - n_q + 1)
            """,
            "hides the past of the newest words": """
                mask = torch.zeros(n_q, n_k, dtype=torch.bool)
                mask[:, n_k - n_q:] = causal_mask(n_q)
                return mask
            """,
            "the last one right, the others from the start": """
                mask = torch.ones(n_q, n_k, dtype=torch.bool)
                mask[:-1] = causal_mask(n_k)[: n_q - 1]
                return mask
            """,
            "one row too early": """
                end = max(n_k - 1, n_q)
                return causal_mask(n_k)[end - n_q : end]
            """,
            "the triangle of the future": """
                return torch.ones(n_q, n_k, dtype=torch.bool).triu(n_k - n_q)
            """,
        },
        right={
            "a triangle moved to the right": """
                return torch.ones(n_q, n_k, dtype=torch.bool).tril(n_k - n_q)
            """,
            "by comparing positions": """
                queries = torch.arange(n_k - n_q, n_k).unsqueeze(1)
                return torch.arange(n_k) <= queries
            """,
        },
    ),
    Exercise(
        cell="02-4e23268d",
        wrong={
            "forgets the root": """
                _, weights = scaled_dot_product_attention(query, key, value)
                g = gradient @ value.T
                s = weights * (g - (g * weights).sum(dim=-1, keepdim=True))
                return s @ key, s.T @ query, weights.T @ gradient
            """,
            "divides by d_k": """
                _, weights = scaled_dot_product_attention(query, key, value)
                g = gradient @ value.T
                s = weights * (g - (g * weights).sum(dim=-1, keepdim=True))
                s = s / query.size(-1)
                return s @ key, s.T @ query, weights.T @ gradient
            """,
            "takes the root of the width of the values": """
                _, weights = scaled_dot_product_attention(query, key, value)
                g = gradient @ value.T
                s = weights * (g - (g * weights).sum(dim=-1, keepdim=True))
                s = s / math.sqrt(value.size(-1))
                return s @ key, s.T @ query, weights.T @ gradient
            """,
            "divides for the query only": """
                root = math.sqrt(query.size(-1))
                _, weights = scaled_dot_product_attention(query, key, value)
                g = gradient @ value.T
                s = weights * (g - (g * weights).sum(dim=-1, keepdim=True))
                return s @ key / root, s.T @ query, weights.T @ gradient
            """,
            "treats the softmax as if its weights were independent": """
                root = math.sqrt(query.size(-1))
                _, weights = scaled_dot_product_attention(query, key, value)
                s = weights * (1 - weights) * (gradient @ value.T) / root
                return s @ key, s.T @ query, weights.T @ gradient
            """,
            "sums over the queries": """
                root = math.sqrt(query.size(-1))
                _, weights = scaled_dot_product_attention(query, key, value)
                g = gradient @ value.T
                s = weights * (g - (g * weights).sum(dim=0, keepdim=True)) / root
                return s @ key, s.T @ query, weights.T @ gradient
            """,
            "returns key before query": """
                root = math.sqrt(query.size(-1))
                _, weights = scaled_dot_product_attention(query, key, value)
                g = gradient @ value.T
                s = weights * (g - (g * weights).sum(dim=-1, keepdim=True)) / root
                return s.T @ query, s @ key, weights.T @ gradient
            """,
            "asks autograd": """
                leaves = [x.clone().requires_grad_() for x in (query, key, value)]
                output, _ = scaled_dot_product_attention(*leaves)
                return torch.autograd.grad(output, leaves, gradient)
            """,
            "asks autograd by another door": """
                function = lambda *x: scaled_dot_product_attention(*x)[0]
                _, back = torch.func.vjp(function, query, key, value)
                return back(gradient)
            """,
            "computes in single precision": """
                query, key = query.float(), key.float()
                value, gradient = value.float(), gradient.float()
                root = math.sqrt(query.size(-1))
                _, weights = scaled_dot_product_attention(query, key, value)
                g = gradient @ value.T
                s = weights * (g - (g * weights).sum(dim=-1, keepdim=True)) / root
                return ((s @ key).double(), (s.T @ query).double(),
                        (weights.T @ gradient).double())
            """,
            "changes the gradient in place": """
                root = math.sqrt(query.size(-1))
                _, weights = scaled_dot_product_attention(query, key, value)
                g = gradient @ value.T
                s = weights * (g - (g * weights).sum(dim=-1, keepdim=True)) / root
                for_value = weights.T @ gradient
                gradient.zero_()
                return s @ key, s.T @ query, for_value
            """,
            "finite differences": """
                inputs, found = [query, key, value], []
                for n, x in enumerate(inputs):
                    slope = torch.zeros_like(x)
                    for i in range(x.numel()):
                        sums = []
                        for h in (1e-3, -1e-3):
                            moved = [y.clone() for y in inputs]
                            moved[n].view(-1)[i] += h
                            output, _ = scaled_dot_product_attention(*moved)
                            sums.append((output * gradient).sum())
                        slope.view(-1)[i] = (sums[0] - sums[1]) / 2e-3
                    found.append(slope)
                return found
            """,
            "subtracts the plain mean": """
                root = math.sqrt(query.size(-1))
                _, weights = scaled_dot_product_attention(query, key, value)
                g = gradient @ value.T
                s = weights * (g - g.mean(dim=-1, keepdim=True)) / root
                return s @ key, s.T @ query, weights.T @ gradient
            """,
            "forgets the weight in front": """
                root = math.sqrt(query.size(-1))
                _, weights = scaled_dot_product_attention(query, key, value)
                g = gradient @ value.T
                s = (g - (g * weights).sum(dim=-1, keepdim=True)) / root
                return s @ key, s.T @ query, weights.T @ gradient
            """,
        },
        right={
            "with the Jacobian written out": """
                weights = (query @ key.T / math.sqrt(query.size(-1))).softmax(dim=-1)
                jacobian = softmax_jacobian(weights)  # (n_q, n_k, n_k)
                g = torch.einsum("qv,kv->qk", gradient, value)
                s = torch.einsum("qij,qi->qj", jacobian, g) / query.size(-1) ** 0.5
                return s @ key, s.mT @ query, weights.mT @ gradient
            """,
            "one query at a time": """
                for_query, for_key = torch.zeros_like(query), torch.zeros_like(key)
                for_value = torch.zeros_like(value)
                scale = query.size(-1) ** -0.5
                for i, q in enumerate(query):
                    a = (key @ q * scale).softmax(dim=0)
                    g = value @ gradient[i]
                    s = a * (g - g @ a) * scale
                    for_query[i] = s @ key
                    for_key += s[:, None] * q
                    for_value += a[:, None] * gradient[i]
                return for_query, for_key, for_value
            """,
        },
    ),
]
