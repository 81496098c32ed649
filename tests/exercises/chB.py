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
]
