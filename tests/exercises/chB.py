"""Solutions of the exercises of appendix B, right and wrong."""

from harness import Exercise

EXERCISES = [
    Exercise(
        cell="B-ddab8884",
        wrong={
            "lines the shapes up on the left": """
                size = max(len(a), len(b))
                a, b = a + (1,) * (size - len(a)), b + (1,) * (size - len(b))
                if any(x != y and 1 not in (x, y) for x, y in zip(a, b)):
                    raise ValueError("no")
                return tuple(max(x, y) for x, y in zip(a, b))
            """,
            "never raises": """
                size = max(len(a), len(b))
                a, b = (1,) * (size - len(a)) + a, (1,) * (size - len(b)) + b
                return tuple(max(x, y) for x, y in zip(a, b))
            """,
            "takes the larger length, even of 0 and 1": """
                size = max(len(a), len(b))
                a, b = (1,) * (size - len(a)) + a, (1,) * (size - len(b)) + b
                if any(x != y and 1 not in (x, y) for x, y in zip(a, b)):
                    raise ValueError("no")
                return tuple(max(x, y) for x, y in zip(a, b))
            """,
            "asks torch": """
                try:
                    return tuple(torch.broadcast_shapes(a, b))
                except RuntimeError:
                    raise ValueError("no") from None
            """,
            "asks torch for a sum of empty tensors": """
                try:
                    return tuple((torch.empty(a) + torch.empty(b)).shape)
                except RuntimeError:
                    raise ValueError("no") from None
            """,
            "takes any multiple for a fit": """
                size = max(len(a), len(b))
                a, b = (1,) * (size - len(a)) + a, (1,) * (size - len(b)) + b
                for x, y in zip(a, b):
                    if min(x, y) == 0 and 1 not in (x, y) and x != y:
                        raise ValueError("no")
                    if x and y and max(x, y) % min(x, y):
                        raise ValueError("no")
                return tuple(y if x == 1 else x for x, y in zip(a, b))
            """,
            "fills up only the first shape": """
                a = (1,) * (len(b) - len(a)) + a
                if any(x != y and 1 not in (x, y) for x, y in zip(a, b)):
                    raise ValueError("no")
                return tuple(y if x == 1 else x for x, y in zip(a, b))
            """,
            "returns the first shape where lengths of 1 are in the second only": """
                size = max(len(a), len(b))
                a, b = (1,) * (size - len(a)) + a, (1,) * (size - len(b)) + b
                if any(x != y and y != 1 for x, y in zip(a, b)):
                    raise ValueError("no")
                return a
            """,
            "lets a length of 0 fit any other": """
                size = max(len(a), len(b))
                a, b = (1,) * (size - len(a)) + a, (1,) * (size - len(b)) + b
                if any(x != y and x > 1 and y > 1 for x, y in zip(a, b)):
                    raise ValueError("no")
                return tuple(y if x == 1 else x for x, y in zip(a, b))
            """,
            "takes 0 for no length at all": """
                size = max(len(a), len(b))
                a, b = (1,) * (size - len(a)) + a, (1,) * (size - len(b)) + b
                if any(x != y and 1 not in (x, y) for x, y in zip(a, b)):
                    raise ValueError("no")
                return tuple((x > 1 and x) or y for x, y in zip(a, b))
            """,
            "counts from the right and returns it so": """
                result = []
                for k in range(1, max(len(a), len(b)) + 1):
                    x = a[-k] if k <= len(a) else 1
                    y = b[-k] if k <= len(b) else 1
                    if x != y and 1 not in (x, y):
                        raise ValueError("no")
                    result.append(y if x == 1 else x)
                return tuple(result)
            """,
            "asks torch for a sum of random numbers": """
                try:
                    return tuple((torch.rand(a) + torch.rand(b)).shape)
                except RuntimeError:
                    raise ValueError("no") from None
            """,
            "asks NumPy for a sum": """
                import numpy as np
                try:
                    return (np.zeros(a) + np.zeros(b)).shape
                except ValueError:
                    raise ValueError("no") from None
            """,
            "drops the axes that only one shape has": """
                pairs = list(zip(a[::-1], b[::-1]))
                if any(x != y and 1 not in (x, y) for x, y in pairs):
                    raise ValueError("no")
                return tuple(y if x == 1 else x for x, y in pairs)[::-1]
            """,
        },
        right={
            "from the right, one axis at a time": """
                from itertools import zip_longest
                result = []
                for x, y in zip_longest(reversed(a), reversed(b), fillvalue=1):
                    if x == y or y == 1:
                        result.append(x)
                    elif x == 1:
                        result.append(y)
                    else:
                        raise ValueError(f"{x} stands above {y}")
                return tuple(reversed(result))
            """,
        },
    ),
    Exercise(
        cell="B-19a33528",
        wrong={
            "skips NaN, not padding": """
                return states.nanmean(dim=1)
            """,
            "divides by the full length": """
                return states.masked_fill(~mask[..., None], 0).mean(dim=1)
            """,
            "multiplies by zero": """
                kept = states * mask[..., None]
                return kept.sum(dim=1) / mask.sum(dim=1, keepdim=True)
            """,
            "turns every NaN into zero": """
                kept = states.nan_to_num() * mask[..., None]
                return kept.sum(dim=1) / mask.sum(dim=1, keepdim=True)
            """,
            "puts NaN on the padding and skips it": """
                return states.masked_fill(~mask[..., None], math.nan).nanmean(dim=1)
            """,
            "counts the numbers that are not zero": """
                kept = torch.where(mask[..., None], states, 0)
                return kept.sum(dim=1) / (kept != 0).sum(dim=1)
            """,
            "hides infinities, in words too": """
                kept = mask[..., None] & ~states.isinf()
                clean = torch.where(kept, states, 0)
                return clean.sum(dim=1) / mask.sum(dim=1, keepdim=True)
            """,
            "skips NaN in the sum": """
                kept = states.masked_fill(~mask[..., None], math.nan)
                return kept.nansum(dim=1) / mask.sum(dim=1, keepdim=True)
            """,
            "lets one bug spoil every sentence": """
                total = states.masked_fill(~mask[..., None], 0).sum(dim=1)
                return total / mask.sum(dim=1, keepdim=True) + 0 * states[mask].sum()
            """,
            "drops every axis of length one": """
                weights = mask / mask.sum(dim=1, keepdim=True)
                clean = torch.where(mask[..., None], states, 0)
                return (weights[:, None] @ clean).squeeze()
            """,
            "takes as many tokens as there are words, from the front": """
                lengths = mask.sum(dim=1).tolist()
                rows = zip(states, lengths, strict=True)
                return torch.stack([s[:n].mean(dim=0) for s, n in rows])
            """,
            "clears the padding in place": """
                states[~mask] = 0
                return states.sum(dim=1) / mask.sum(dim=1, keepdim=True)
            """,
            "divides by the words of the batch": """
                total = states.masked_fill(~mask[..., None], 0).sum(dim=1)
                return total / mask.sum() * len(mask)
            """,
            "divides by the words of the first sentence": """
                total = states.masked_fill(~mask[..., None], 0).sum(dim=1)
                return total / mask[0].sum()
            """,
            "one mean for the whole batch": """
                return states[mask].mean(dim=0).expand(len(states), -1)
            """,
        },
        right={
            "one sentence at a time": """
                rows = zip(states, mask, strict=True)
                return torch.stack([s[m].mean(dim=0) for s, m in rows])
            """,
            "a product with weights": """
                weights = mask / mask.sum(dim=1, keepdim=True)
                clean = torch.where(mask[..., None], states, 0)
                return (weights[:, None] @ clean).squeeze(1)
            """,
        },
    ),
    Exercise(
        cell="B-0fe61b93",
        wrong={
            "takes the logarithm of a softmax by hand": """
                e = (scores - scores.amax(dim=dim, keepdim=True)).exp()
                return (e / e.sum(dim=dim, keepdim=True)).log()
            """,
            "does not pull out the largest entry": """
                return scores - scores.exp().sum(dim=dim, keepdim=True).log()
            """,
            "pulls out the largest entry of the whole tensor": """
                shifted = scores - scores.max()
                return shifted - shifted.exp().sum(dim=dim, keepdim=True).log()
            """,
            "always takes the last axis": """
                shifted = scores - scores.amax(dim=-1, keepdim=True)
                return shifted - shifted.exp().sum(dim=-1, keepdim=True).log()
            """,
            "asks torch for the softmax": """
                return scores.log_softmax(dim)
            """,
            "asks torch for the log-sum-exp": """
                return scores - torch.logsumexp(scores, dim, keepdim=True)
            """,
            "subtracts the mean in place of the largest entry": """
                shifted = scores - scores.mean(dim=dim, keepdim=True)
                return shifted - shifted.exp().sum(dim=dim, keepdim=True).log()
            """,
            "forgets keepdim": """
                shifted = scores - scores.amax(dim=dim, keepdim=True)
                return shifted - shifted.exp().sum(dim=dim).log()
            """,
            "shifts in place": """
                scores -= scores.amax(dim=dim, keepdim=True)
                return scores - scores.exp().sum(dim=dim, keepdim=True).log()
            """,
            "clamps what would overflow": """
                scores = scores.clamp(-700, 700)
                return scores - scores.exp().sum(dim=dim, keepdim=True).log()
            """,
            "asks torch for the cumulated log-sum-exp": """
                lse = scores.logcumsumexp(dim).select(dim, -1)
                return scores - lse.unsqueeze(dim)
            """,
            "asks torch under another name": """
                return torch.special.log_softmax(scores, dim)
            """,
            "forgets to add the largest entry again": """
                largest = scores.amax(dim=dim, keepdim=True)
                shifted = scores - largest
                return scores - shifted.exp().sum(dim=dim, keepdim=True).log()
            """,
            "pulls out the smallest entry": """
                shifted = scores - scores.amin(dim=dim, keepdim=True)
                return shifted - shifted.exp().sum(dim=dim, keepdim=True).log()
            """,
            "sums over the whole tensor": """
                shifted = scores - scores.amax(dim=dim, keepdim=True)
                return shifted - shifted.exp().sum().log()
            """,
            "computes in 64 bits, as written": """
                wide = scores.double()
                lse = wide.exp().sum(dim=dim, keepdim=True).log()
                return (wide - lse).to(scores.dtype)
            """,
            "replaces minus infinity by zero": """
                clean = scores.masked_fill(scores.isinf(), 0)
                shifted = clean - clean.amax(dim=dim, keepdim=True)
                return shifted - shifted.exp().sum(dim=dim, keepdim=True).log()
            """,
            "forgets the logarithm": """
                shifted = scores - scores.amax(dim=dim, keepdim=True)
                return shifted - shifted.exp().sum(dim=dim, keepdim=True)
            """,
        },
        right={
            "the log-sum-exp first, and moved axes": """
                s = scores.movedim(dim, -1)
                a = s.max(dim=-1, keepdim=True).values
                lse = a + torch.log(torch.exp(s - a).sum(-1, keepdim=True))
                return (s - lse).movedim(-1, dim)
            """,
            "one entry at a time": """
                lse = None
                for row in scores.unbind(dim):
                    if lse is None:
                        lse = row
                    else:
                        top = torch.maximum(lse, row)
                        both = (lse - top).exp() + (row - top).exp()
                        lse = torch.where(top.isinf(), top, top + both.log())
                return scores - lse.unsqueeze(dim)
            """,
        },
    ),
]
