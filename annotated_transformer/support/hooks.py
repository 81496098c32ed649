"""Hooks on a model's modules that are gone when a block ends, whatever happened in
it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from torch import Tensor, nn


@contextmanager
def input_hook(module: nn.Module, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Within the block the first input of ``module`` is what ``change`` makes of it."""
    handle = module.register_forward_pre_hook(lambda _, args: (change(args[0]),))
    try:
        yield
    finally:
        handle.remove()


def _keep(
    found: dict, name: str, module: nn.Module, args: tuple, output: Tensor
) -> None:
    """Keep a module's output under ``name``."""
    found[name] = output.detach()


@contextmanager
def record_values(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Within the block, forward passes leave the value vectors of each attention in the
    dictionary, under the attention's name in the model: ``(batch, n_k, num_heads *
    d_v)``."""
    found: dict[str, Tensor] = {}
    handles = []
    for name, module in model.named_modules():
        if name.endswith("value_projection"):
            keep = partial(_keep, found, name.rpartition(".")[0])
            handles.append(module.register_forward_hook(keep))
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()
