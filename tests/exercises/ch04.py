"""Solutions of the exercises of chapter 4, right and wrong."""

from harness import Exercise


def smaller(alive: str) -> str:
    """The book's removal of units with another choice of those that stay."""
    return f"""
        alive = {alive}
        smaller = PositionwiseFeedForward(x.size(-1), int(alive.sum()))
        with torch.no_grad():
            smaller.expand.weight.copy_(feed_forward.expand.weight[alive])
            smaller.expand.bias.copy_(feed_forward.expand.bias[alive])
            smaller.contract.weight.copy_(feed_forward.contract.weight[:, alive])
            smaller.contract.bias.copy_(feed_forward.contract.bias)
        return smaller
    """


ACTIVE = "(feed_forward.expand(x) > 0).flatten(0, -2)"

EXERCISES = [
    Exercise(
        cell="04-6916b5c0",
        wrong={
            "looks at the first sentence only": smaller(
                "(feed_forward.expand(x if x.dim() < 3 else x[0]) > 0).any(0)"
            ),
            "keeps what is active at over 5 % of the positions": smaller(
                f"{ACTIVE}.float().mean(0) > 0.05"
            ),
            "keeps what is active at more than one position": smaller(
                f"{ACTIVE}.sum(0) > 1"
            ),
            "goes by the biases": smaller("feed_forward.expand.bias > -50"),
            "goes by the mean of the units": smaller(
                "feed_forward.expand(x).flatten(0, -2).mean(0) > 0"
            ),
            "looks at the last position only": smaller(
                "feed_forward.expand(x)[..., -1:, :].flatten(0, -2).amax(0) > 0"
            ),
            "keeps every unit": """
                return feed_forward
            """,
            "leaves the output's bias as it was drawn": smaller(
                f"{ACTIVE}.any(0)"
            ).replace(
                "smaller.contract.bias.copy_(feed_forward.contract.bias)", "pass"
            ),
            "changes the network that it was given": """
                alive = (feed_forward.expand(x) > 0).flatten(0, -2).any(0)
                feed_forward.contract.weight.data[:, ~alive] = 0
                return feed_forward
            """,
            "counts a unit of exactly zero as active": smaller(
                "(feed_forward.expand(x) >= 0).flatten(0, -2).any(0)"
            ),
            "counts only what is larger than a thousandth": smaller(
                "feed_forward.expand(x).flatten(0, -2).amax(0) > 1e-3"
            ),
            "takes the widths from the example": smaller(
                "(feed_forward.expand(x) > 0).view(-1, 64).any(0)"
            ).replace("x.size(-1)", "16"),
            "orders the units by how often they are active": smaller(
                f"{ACTIVE}.sum(0).argsort(descending=True)"
                f"[: int({ACTIVE}.any(0).sum())]"
            ).replace("int(alive.sum())", "len(alive)"),
            "forgets the biases when it decides": smaller(
                "(x @ feed_forward.expand.weight.T > 0).flatten(0, -2).any(0)"
            ),
            "keeps what is active at all positions": smaller(f"{ACTIVE}.all(0)"),
        },
        right={
            "by the maximum over the positions": """
                inputs = x.reshape(-1, x.size(-1))
                kept = feed_forward.expand(inputs).amax(0).gt(0).nonzero().squeeze(1)
                small = PositionwiseFeedForward(x.shape[-1], len(kept))
                small.expand.weight.data = feed_forward.expand.weight.data[kept].clone()
                small.expand.bias.data = feed_forward.expand.bias.data[kept].clone()
                rows = feed_forward.contract.weight.data[:, kept]
                small.contract.weight.data = rows.clone()
                small.contract.bias.data = feed_forward.contract.bias.data.clone()
                return small
            """
        },
    ),
    Exercise(
        cell="04-fd2ee7f3",
        wrong={
            "subtracts the mean first": """
                return gain * (x - x.mean(-1, keepdim=True)) / (
                    x.var(-1, correction=0, keepdim=True) + eps
                ).sqrt()
            """,
            "divides by the standard deviation": """
                return gain * x / (x.var(-1, correction=0, keepdim=True) + eps).sqrt()
            """,
            "divides by the norm": """
                return gain * x / (x.square().sum(-1, keepdim=True) + eps).sqrt()
            """,
            "averages over the positions": """
                return gain * x / (x.square().mean(0, keepdim=True) + eps).sqrt()
            """,
            "averages over everything": """
                return gain * x / (x.square().mean() + eps).sqrt()
            """,
            "adds epsilon after the root": """
                return gain * x / (x.square().mean(-1, keepdim=True).sqrt() + eps)
            """,
            "a fixed epsilon": """
                return gain * x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()
            """,
            "takes the width from the example": """
                return gain * x / (x.square().sum(-1, keepdim=True) / 16 + eps).sqrt()
            """,
            "multiplies by the gain first": """
                x = gain * x
                return x / (x.square().mean(-1, keepdim=True) + eps).sqrt()
            """,
            "lets epsilon be the smallest divisor": """
                rms = x.square().mean(-1, keepdim=True).sqrt()
                return gain * x / rms.clamp(min=eps)
            """,
            "divides by d - 1": """
                size = x.square().sum(-1, keepdim=True) / (x.size(-1) - 1)
                return gain * x / (size + eps).sqrt()
            """,
            "forgets the gain": """
                return x / (x.square().mean(-1, keepdim=True) + eps).sqrt()
            """,
            "asks PyTorch": """
                return F.rms_norm(x, (x.size(-1),), eps=eps) * gain
            """,
            "changes its input": """
                x /= (x.square().mean(-1, keepdim=True) + eps).sqrt()
                return gain * x
            """,
        },
        right={
            "by the norm": """
                size = x.norm(dim=-1, keepdim=True) ** 2 / x.shape[-1]
                return x * torch.rsqrt(size + eps) * gain
            """
        },
    ),
]
