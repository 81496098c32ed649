"""What the checks of the exercises use: a way can be forbidden, and inputs watched.

with unchanged(scores, mask), without("softmax"):
    weights = my_softmax(scores, mask)
no_loops(my_softmax)
"""

import ast
import copy
import inspect
import pkgutil
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

AUTOGRAD = ("torch.autograd.grad", "torch.autograd.backward")
"""For ``without``: every way to a gradient that PyTorch takes for you ends in these."""

LOOPS = (ast.For, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
LOOPING_CALLS = {"map", "filter", "reduce", "vmap", "vectorize"}


class _Blocked(TorchFunctionMode):
    """Raise where a torch function of one of these names is called."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def __torch_function__(self, func, types, args=(), kwargs=None):  # noqa: ANN001, ANN204
        name = getattr(func, "__name__", "")
        if name.strip("_") in self.names:
            raise _not_allowed(name)
        return func(*args, **(kwargs or {}))


def _not_allowed(name: str) -> AssertionError:
    return AssertionError(f"{name} is not allowed in this exercise")


@contextmanager
def without(*names: str) -> Iterator[None]:
    """Make what the exercise forbids raise ``AssertionError`` while the block runs.

    A plain name is a function of PyTorch in every spelling: ``"softmax"`` covers
    ``torch.softmax``, ``F.softmax``, ``x.softmax`` and ``nn.Softmax``, ``"matmul"``
    also ``@`` (``log_softmax`` and ``einsum`` are functions of their own). A name with
    dots is that attribute: ``"annotated_transformer.attention.causal_mask"``. The
    notebook and the package no longer find it under any name that they imported.
    A name that does not exist raises ``AttributeError``.
    """
    plain = {name for name in names if "." not in name}
    found = [name for name in names if "." in name]
    for name in plain:
        spellings = [f"{m.__name__}.{name}" for m in (torch, F) if hasattr(m, name)]
        if not spellings and not hasattr(Tensor, name):
            raise AttributeError(f"PyTorch has no function {name}")
        found += spellings
    with ExitStack() as stack:
        for name in found:
            owner, _, attribute = name.rpartition(".")
            original = getattr(pkgutil.resolve_name(owner), attribute)
            raising = mock.Mock(side_effect=_not_allowed(name))
            stack.enter_context(mock.patch(name, raising))
            for space, alias in _aliases(original):
                stack.callback(space.__setitem__, alias, original)
                space[alias] = raising  # patch.dict would undo new names as well
        stack.enter_context(_Blocked(plain))  # methods and operators
        yield


def _aliases(value: Any) -> list[tuple[dict[str, Any], str]]:
    """Where the notebook and this package hold ``value`` under a global name."""
    package = __name__.partition(".")[0]
    spaces = [
        vars(module)
        for name, module in list(sys.modules.items())
        if name == "__main__" or name.partition(".")[0] == package
    ]
    return [(space, k) for space in spaces for k, v in space.items() if v is value]


@contextmanager
def unchanged(*inputs: Any) -> Iterator[None]:
    """Raise ``AssertionError`` if the block changes one of the inputs in place.

    Inputs are tensors, or plain values without tensors; of a model, its parameters.
    """
    before = [
        x.detach().clone() if isinstance(x, Tensor) else copy.deepcopy(x)
        for x in inputs
    ]
    yield
    for i, (old, new) in enumerate(zip(before, inputs, strict=True)):
        if isinstance(new, Tensor):
            exact = {"rtol": 0, "atol": 0, "equal_nan": True}
            message = f"input {i} was changed in place"
            torch.testing.assert_close(new.detach(), old, **exact, msg=message)
        else:
            assert old == new, f"input {i} was changed in place"


def no_loops(function: Callable) -> None:
    """Raise ``AssertionError`` if the source of ``function`` holds a loop.

    Loops are ``for``, ``while``, comprehensions and calls of ``map``, ``filter``,
    ``reduce``, ``vmap`` or ``vectorize``. What it calls elsewhere is not looked at.
    """
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    for node in ast.walk(tree):
        called = node.func if isinstance(node, ast.Call) else None
        name = getattr(called, "attr", getattr(called, "id", ""))
        if isinstance(node, LOOPS) or name in LOOPING_CALLS:
            raise AssertionError(f"a loop in {function.__name__}: {ast.unparse(node)}")
