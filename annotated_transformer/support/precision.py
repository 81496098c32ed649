"""Which precision trains fastest on this machine: measured, not guessed."""

from time import perf_counter

import torch

WORTH_IT = 2.0
"""Products must be this much faster in bfloat16: every layer also converts numbers."""


def bf16_speed(device: torch.device, size: int = 512, tries: int = 7) -> float:
    """How many times as fast as in 32 bits a matrix product is in bfloat16.

    The best of ``tries`` products of two ``(size, size)`` matrices each, in turn.
    """
    best: dict[torch.dtype, float] = {}
    for _ in range(tries):
        for kind in (torch.float32, torch.bfloat16):
            matrix = torch.ones(size, size, dtype=kind, device=device)
            start = perf_counter()
            (matrix @ matrix).sum().item()  # on a GPU: wait for it
            took = perf_counter() - start
            best[kind] = min(took, best.get(kind, took))
    return best[torch.float32] / best[torch.bfloat16]


def choose_precision(asked: str | None, device: torch.device) -> tuple[str, str]:
    """The precision to train in, and a line that says why; an empty one where somebody
    chose it and nothing speaks against it.

    ``asked`` is "fp32", "bf16", or "auto" (or None): bf16 where it is fast.
    """
    if asked == "fp32":
        return asked, ""
    if device.type == "mps":
        return (asked, "") if asked == "bf16" else ("fp32", "precision fp32")
    speed = bf16_speed(device)
    digits = 1 if speed >= 0.1 else 3
    measured = f"bfloat16 products are {speed:.{digits}f} times as fast as fp32's here"
    if asked == "bf16":
        return asked, "" if speed >= 1 else f"{measured}: fp32 trains faster"
    precision = "bf16" if speed >= WORTH_IT else "fp32"
    return precision, f"precision {precision}: {measured}"
