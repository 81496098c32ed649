"""Chapter 4: the feed-forward network and the residual connection."""

import pytest
import torch
import torch.nn.functional as F
from conftest import sizes
from hypothesis import given
from torch import Tensor
from torch.testing import assert_close

from annotated_transformer.sublayers import PositionwiseFeedForward, ResidualConnection


@given(batch=sizes, n=sizes, d_model=sizes, d_ff=sizes)
def test_feed_forward_is_equation_2_at_each_position(
    batch: int, n: int, d_model: int, d_ff: int
) -> None:
    """Fails without the ReLU, and when positions are mixed."""
    network, x = PositionwiseFeedForward(d_model, d_ff), torch.randn(batch, n, d_model)
    output = network(x)
    assert output.shape == x.shape
    for position in range(n):
        hidden = torch.clamp(
            x[:, position] @ network.expand.weight.T + network.expand.bias, min=0
        )
        assert_close(
            output[:, position],
            hidden @ network.contract.weight.T + network.contract.bias,
        )


def test_feed_forward_gradients_are_those_of_finite_differences() -> None:
    """Fails when the hidden units are detached."""
    x = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(PositionwiseFeedForward(3, 4).double(), x)


@given(batch=sizes, n=sizes)
def test_post_norm_norms_the_sum(batch: int, n: int) -> None:
    """Fails when x is left out of the sum, and when the norm stands before it."""
    connection, x = ResidualConnection(8, dropout=0.0), torch.randn(batch, n, 8)
    output = connection(x, torch.sin)
    assert_close(output, F.layer_norm(x + x.sin(), (8,)))
    assert_close(output.mean(dim=-1), torch.zeros(batch, n), atol=1e-5, rtol=0)


@given(batch=sizes, n=sizes)
def test_pre_norm_norms_what_the_sublayer_sees(batch: int, n: int) -> None:
    """Fails when ``norm`` is ignored."""
    connection, x = (
        ResidualConnection(8, dropout=0.0, norm="pre"),
        torch.randn(batch, n, 8),
    )
    assert_close(connection(x, torch.sin), x + F.layer_norm(x, (8,)).sin())
    assert torch.equal(connection(x, torch.zeros_like), x)


def test_dropout_falls_on_the_sublayer_only_and_in_training_only() -> None:
    """Fails when x itself is dropped, and when what is left is not scaled up."""
    connection, x = (
        ResidualConnection(1000, dropout=0.25, norm="pre"),
        torch.full((1, 1000), 5.0),
    )
    added = connection(x, torch.ones_like) - x
    assert_close(added.unique(), torch.tensor([0.0, 4 / 3]), atol=1e-5, rtol=0)
    assert 0.15 < (added == 0).float().mean() < 0.35
    assert torch.equal(connection.eval()(x, torch.ones_like), x + 1)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_gradients_reach_the_input_and_the_norm(norm: str) -> None:
    """Fails when the path around the sub-layer is detached."""
    connection = ResidualConnection(4, 0.0, norm).double()
    x = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: connection(x, torch.tanh), x)
    connection(x, torch.tanh).square().sum().backward()
    assert connection.layer_norm.weight.grad.abs().min() > 0


def feed(*shape: int) -> Tensor:
    """A feed-forward network of width 4 run on an input of another shape."""
    return PositionwiseFeedForward(4, 8)(torch.randn(shape))


def connect(width: int, result: object) -> Tensor:
    """A residual connection of width 4 around a sub-layer that returns ``result``."""
    return ResidualConnection(4, 0.1)(torch.zeros(2, width), lambda x: result)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: PositionwiseFeedForward(0, 4), ValueError, "d_model is 0.*at least 1"),
        (lambda: PositionwiseFeedForward(4, -1), ValueError, "d_ff is -1.*at least 1"),
        (lambda: feed(2, 3), ValueError, r"\(2, 3\), expected \(..., 4\)"),
        (
            lambda: ResidualConnection(4, 0.1, "middle"),
            ValueError,
            "'middle', expected one of 'post', 'pre'",
        ),
        (
            lambda: ResidualConnection(4, 1.0),
            ValueError,
            "dropout is 1.0, expected a share from 0",
        ),
        (
            lambda: ResidualConnection(4, -0.1),
            ValueError,
            "dropout is -0.1, expected a share from 0",
        ),
        (lambda: connect(3, torch.zeros(2, 3)), RuntimeError, r"\[4\].*\[2, 3\]"),
        (lambda: connect(4, torch.zeros(2, 1)), ValueError, r"\(2, 4\) into \(2, 1\)"),
        (
            lambda: connect(4, (torch.zeros(2, 4), None)),
            TypeError,
            "tuple, expected a Tensor.*take its first",
        ),
    ],
)
def test_bad_input_is_named(call: object, error: type[Exception], message: str) -> None:
    """Fails, for each row of the table, when its check is taken out."""
    with pytest.raises(error, match=message):
        call()
