"""What a check forbids is refused in every spelling, and allowed again after."""

import math
import subprocess
import sys
from functools import reduce

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from annotated_transformer import attention
from annotated_transformer.attention import scaled_dot_product_attention
from annotated_transformer.multi_head import MultiHeadAttention
from annotated_transformer.support.grading import (
    AUTOGRAD,
    no_loops,
    unchanged,
    without,
)

X = torch.arange(6.0).reshape(2, 3)

SOFTMAXES = {
    "function": lambda: torch.softmax(X, -1),
    "functional": lambda: F.softmax(X, dim=-1),
    "method": lambda: X.softmax(-1),
    "layer": lambda: nn.Softmax(-1)(X),
}


@pytest.mark.parametrize("way", SOFTMAXES)
def test_a_torch_function_is_blocked_in_every_spelling(way):
    """Fails when one spelling of softmax stays open, or does so ever after."""
    with without("softmax"), pytest.raises(AssertionError, match="not allowed"):
        SOFTMAXES[way]()
    assert SOFTMAXES[way]().shape == X.shape


def test_a_function_without_tensors_is_blocked():
    """Fails when a function that PyTorch does not dispatch stays open."""
    with without("broadcast_shapes"), pytest.raises(AssertionError, match="not allow"):
        torch.broadcast_shapes((1,), (2,))
    assert torch.broadcast_shapes((1,), (2,)) == (2,)


def test_other_functions_stay_open():
    """Fails when too much is blocked."""
    with without("softmax", "matmul"):
        weights = X.exp() / X.exp().sum(-1, keepdim=True)
        X.log_softmax(-1)
    torch.testing.assert_close(weights, X.softmax(-1))


def test_operators_are_blocked():
    """Fails when `@` passes where the product is forbidden."""
    for product in (lambda: X @ X.T, lambda: X.matmul(X.T), lambda: torch.matmul(X, X)):
        with without("matmul"), pytest.raises(AssertionError, match="not allowed"):
            product()


def backward(x):
    (x**2).sum().backward()


@pytest.mark.parametrize(
    "way",
    [
        backward,
        lambda x: torch.autograd.grad((x**2).sum(), x),
        lambda x: torch.autograd.backward((x**2).sum()),
        lambda x: torch.autograd.functional.jacobian(lambda y: y**2, x),
        lambda x: torch.func.grad(lambda y: (y**2).sum())(x.detach()),
        lambda x: torch.func.jacrev(lambda y: y**2)(x.detach()),
    ],
)
def test_autograd_is_blocked(way):
    """Fails when PyTorch still gives a gradient away."""
    x = X.clone().requires_grad_()
    with without(*AUTOGRAD), pytest.raises(AssertionError, match="not allowed"):
        way(x)
    way(x)


def test_a_function_of_the_package_is_blocked_under_all_its_names():
    """Fails when a name that was imported before stays open."""
    name = "annotated_transformer.attention.scaled_dot_product_attention"
    heads = MultiHeadAttention(4, 2)
    q = torch.randn(2, 3, 4)
    sys.modules["__main__"].imported_before = scaled_dot_product_attention
    ways = [
        lambda: attention.scaled_dot_product_attention(q, q, q),
        lambda: sys.modules["__main__"].imported_before(q, q, q),
        lambda: heads(q, q, q, need_weights=True),
    ]
    for way in ways:
        with without(name), pytest.raises(AssertionError, match="not allowed"):
            way()
        way()
    assert attention.scaled_dot_product_attention is scaled_dot_product_attention
    del sys.modules["__main__"].imported_before


@pytest.mark.parametrize("name", ["annotated_transformer.attention.no", "sofmax"])
def test_a_misspelled_name_is_an_error(name):
    """Fails when a check would forbid nothing and not notice."""
    with pytest.raises(AttributeError), without(name):
        pass


def test_changed_inputs_are_noticed():
    """Fails when a change in place passes, or an input left alone is refused."""
    x, words = torch.tensor([1.0, math.nan]), ["a", "b"]
    with unchanged(x, words):
        x * 2 + len(words)
    with pytest.raises(AssertionError, match="input 0"), unchanged(x, words):
        x.mul_(2)
    with pytest.raises(AssertionError, match="input 1"), unchanged(x, words):
        words.append("c")


def _for(x):
    for row in x:
        return row


def _while(x):
    while x:
        x = x[1:]


def _list(x):
    return [row for row in x]


def _sum(x):
    return sum(row for row in x)


def _map(x):
    return list(map(abs, x))


def _reduce(x):
    return reduce(max, x)


def _none(x):
    """No loop for this; `map` stands here as a word."""
    return x.sum()


@pytest.mark.parametrize("function", [_for, _while, _list, _sum, _map, _reduce])
def test_loops_are_found(function):
    """Fails when a kind of loop passes."""
    with pytest.raises(AssertionError, match="a loop in"):
        no_loops(function)


def test_code_without_loops_passes():
    """Fails when something else is taken for a loop."""
    no_loops(_none)


def test_names_made_inside_the_block_stay():
    """Fails when leaving the block also undoes what a check cell assigned in it."""
    source = (
        "from annotated_transformer.evaluation import bleu\n"
        "from annotated_transformer.support.grading import without\n"
        "with without('annotated_transformer.evaluation.bleu'):\n"
        "    made = 1\n"
        "assert made == 1 and bleu(['a b c d'], ['a b c d']) > 99\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
