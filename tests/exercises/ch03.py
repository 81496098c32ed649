"""Solutions of the exercises of chapter 3, right and wrong."""

from harness import Exercise

PRUNE = """
    keep = [i for i in range(attention.num_heads) if i != head]
    d_k, d_v = attention.d_k, attention.d_v
    pruned = MultiHeadAttention(attention.d_model, len(keep), d_k, d_v)
    for name, projection in attention.named_children():
        axis = int(name == "output_projection")
        blocks = projection.weight.chunk(attention.num_heads, dim=axis)
        with torch.no_grad():
            kept = torch.cat([blocks[i] for i in keep], dim=axis)
            pruned.get_submodule(name).weight.copy_(kept)
    return pruned
"""
SHARED = """
    query = split_heads(x @ w_query, num_heads)
    key, value = (x @ w_key).unsqueeze(1), (x @ w_value).unsqueeze(1)
    heads, _ = scaled_dot_product_attention(query, key, value)
    return merge_heads(heads) @ w_output, key, value
"""

EXERCISES = [
    Exercise(
        cell="03-34f68ef8",
        wrong={
            "always takes out the last head": PRUNE.replace(
                "if i != head", "if i != attention.num_heads - 1"
            ),
            "counts the heads from one": PRUNE.replace("i != head", "i != head - 1"),
            "cuts W^O with the size of the keys": """
                first, last = head * attention.d_k, (head + 1) * attention.d_k
                pruned = deepcopy(attention)
                pruned.output_projection.weight.data[:, first:last] = 0
                return pruned
            """,
            "sets the head's part of W^O to zero and keeps the size": """
                pruned, size = deepcopy(attention), attention.d_v
                part = slice(head * size, (head + 1) * size)
                pruned.output_projection.weight.data[:, part] = 0
                return pruned
            """,
            "changes the layer that it was given": """
                size = attention.d_v
                part = slice(head * size, (head + 1) * size)
                attention.output_projection.weight.data[:, part] = 0
            """
            + PRUNE.replace("\n    ", "\n                "),
            "leaves the widths to d_model": PRUNE.replace(
                "len(keep), d_k, d_v", "len(keep)"
            ),
            "cuts all four along the rows": PRUNE.replace(
                'int(name == "output_projection")', "0"
            ),
            "puts the heads in another order for W^O": PRUNE.replace(
                "[blocks[i] for i in keep]",
                "[blocks[i] for i in (keep[::-1] if axis else keep)]",
            ),
            "reverses all the heads that stay": PRUNE.replace(
                "if i != head]", "if i != head][::-1]"
            ),
            "takes the width of the model from the example": PRUNE.replace(
                "MultiHeadAttention(attention.d_model", "MultiHeadAttention(32"
            ),
            "makes up for the missing head by a larger W^O": PRUNE.replace(
                "    return pruned",
                "    more = attention.num_heads / len(keep)\n"
                "    pruned.output_projection.weight.data *= more\n"
                "    return pruned",
            ),
            "cuts every h-th row, as if the heads were interleaved": PRUNE.replace(
                "blocks = projection.weight.chunk(attention.num_heads, dim=axis)",
                "h = attention.num_heads\n"
                "        order = torch.arange(projection.weight.size(axis))\n"
                "        order = order.view(-1, h).T.flatten()\n"
                "        mixed = projection.weight.index_select(axis, order)\n"
                "        blocks = mixed.chunk(h, dim=axis)",
            ),
            "gives the old layer new weights and returns it": """
                keep = [i for i in range(attention.num_heads) if i != head]
                for name, projection in attention.named_children():
                    axis = int(name == "output_projection")
                    blocks = projection.weight.chunk(attention.num_heads, dim=axis)
                    kept = torch.cat([blocks[i] for i in keep], dim=axis)
                    projection.weight = nn.Parameter(kept.detach())
                attention.num_heads = len(keep)
                return attention
            """,
            "shares its weights with the old layer where it can": PRUNE.replace(
                "        with torch.no_grad():\n"
                "            kept = torch.cat([blocks[i] for i in keep], dim=axis)\n"
                "            pruned.get_submodule(name).weight.copy_(kept)",
                "        kept = torch.cat([blocks[i] for i in keep], axis).detach()\n"
                "        if head == 0:\n"
                "            size = blocks[0].size(axis)\n"
                "            kept = projection.weight.detach().narrow(\n"
                "                axis, size, kept.size(axis)\n"
                "            )\n"
                "        pruned.get_submodule(name).weight = nn.Parameter(kept)",
            ),
            "forgets the values": PRUNE.replace(
                "        with torch",
                '        if name == "value_projection":\n            continue\n'
                "        with torch",
            ),
        },
        right={
            "by index_select": """
                layer = attention
                rest = torch.tensor([i for i in range(layer.num_heads) if i != head])
                small = MultiHeadAttention(
                    layer.d_model, layer.num_heads - 1, d_k=layer.d_k, d_v=layer.d_v
                )
                new = {}
                for name, w in layer.state_dict().items():
                    if name.startswith("output"):
                        cut = w.unflatten(1, (layer.num_heads, -1))
                        new[name] = cut.index_select(1, rest).flatten(1)
                    else:
                        cut = w.unflatten(0, (layer.num_heads, -1))
                        new[name] = cut.index_select(0, rest).flatten(0, 1)
                small.load_state_dict(new)
                return small
            """
        },
    ),
    Exercise(
        cell="03-3ff702d2",
        wrong={
            "tiles keys and values for the heads": """
                query = split_heads(x @ w_query, num_heads)
                key = (x @ w_key).unsqueeze(1).repeat(1, num_heads, 1, 1)
                value = (x @ w_value).unsqueeze(1).repeat(1, num_heads, 1, 1)
                heads, _ = scaled_dot_product_attention(query, key, value)
                return merge_heads(heads) @ w_output, key, value
            """,
            "tiles them behind the cache": """
                query = split_heads(x @ w_query, num_heads)
                key, value = (x @ w_key).unsqueeze(1), (x @ w_value).unsqueeze(1)
                keys = key.expand(-1, num_heads, -1, -1)
                values = value.expand(-1, num_heads, -1, -1)
                heads, _ = scaled_dot_product_attention(query, keys, values)
                return merge_heads(heads) @ w_output, key, value
            """,
            "tiles the weights": """
                query = split_heads(x @ w_query, num_heads)
                key = split_heads(x @ w_key.repeat(1, num_heads), num_heads)
                value = split_heads(x @ w_value.repeat(1, num_heads), num_heads)
                heads, _ = scaled_dot_product_attention(query, key, value)
                return merge_heads(heads) @ w_output, key[:, :1], value[:, :1]
            """,
            "splits the query by a reshape": SHARED.replace(
                "split_heads(x @ w_query, num_heads)",
                "(x @ w_query).reshape(len(x), num_heads, x.size(1), -1)",
            ),
            "merges by a reshape": SHARED.replace(
                "merge_heads(heads)", "heads.reshape(len(x), x.size(1), -1)"
            ),
            "has keys without a head axis": SHARED.replace(
                "x @ w_key).unsqueeze(1)", "x @ w_key)"
            ),
            "puts the head axis in front": SHARED.replace(
                "unsqueeze(1)", "unsqueeze(0)"
            ),
            "does not scale the scores": """
                query = split_heads(x @ w_query, num_heads)
                key, value = (x @ w_key).unsqueeze(1), (x @ w_value).unsqueeze(1)
                heads = (query @ key.mT).softmax(-1) @ value
                return merge_heads(heads) @ w_output, key, value
            """,
            "scales by the model's width": """
                query = split_heads(x @ w_query, num_heads)
                key, value = (x @ w_key).unsqueeze(1), (x @ w_value).unsqueeze(1)
                heads = (query @ key.mT / x.size(-1) ** 0.5).softmax(-1) @ value
                return merge_heads(heads) @ w_output, key, value
            """,
            "loops over the heads and adds what each writes": """
                key, value = (x @ w_key).unsqueeze(1), (x @ w_value).unsqueeze(1)
                output = 0
                cuts = zip(w_query.chunk(num_heads, 1), w_output.chunk(num_heads))
                for w_q, w_o in cuts:
                    found, _ = scaled_dot_product_attention(
                        x @ w_q, key[:, 0], value[:, 0]
                    )
                    output = output + found @ w_o
                return output, key, value
            """,
            "cuts the queries into heads of eight": SHARED.replace(
                "split_heads(x @ w_query, num_heads)",
                "(x @ w_query).unflatten(-1, (-1, 8)).transpose(1, 2)",
            ),
            "forbids the future": SHARED.replace(
                "(query, key, value)", "(query, key, value, causal_mask(x.size(1)))"
            ),
            "takes the softmax over the queries": """
                query = split_heads(x @ w_query, num_heads)
                key, value = (x @ w_key).unsqueeze(1), (x @ w_value).unsqueeze(1)
                heads = (query @ key.mT / key.size(-1) ** 0.5).softmax(-2) @ value
                return merge_heads(heads) @ w_output, key, value
            """,
            "adds the input": SHARED.replace("@ w_output,", "@ w_output + x,"),
        },
        right={
            "with einsum": """
                q = (x @ w_query).unflatten(-1, (num_heads, -1))
                k, v = x @ w_key, x @ w_value
                scores = torch.einsum("bihd,bjd->bhij", q, k) / k.size(-1) ** 0.5
                found = torch.einsum("bhij,bjd->bihd", scores.softmax(-1), v)
                return found.flatten(-2) @ w_output, k[:, None], v[:, None]
            """
        },
    ),
]
