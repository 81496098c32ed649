"""Chapter 7: the layers of table 1 and the instruments that measure them."""

import math

import pytest
import torch
from conftest import sizes
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from annotated_transformer.attention import scaled_dot_product_attention
from annotated_transformer.complexity import (
    CausalConvolution,
    connections,
    count_multiplications,
    gradient_receptive_field,
    path_length,
    peak_activations,
    receptive_field,
    restricted_attention,
    sequential_depth,
    table_1_multiplications,
)

lengths = st.integers(1, 9)
odd = st.integers(0, 4).map(lambda side: 2 * side + 1)


@given(batch=sizes, n=lengths, width=odd)
def test_restricted_attention_is_full_attention_under_a_band(
    batch: int, n: int, width: int
) -> None:
    """Fails when what hangs over an end is attended to, and when the neighborhood is
    off its center."""
    query, key, value = (
        torch.randn(batch, n, 4),
        torch.randn(batch, n, 4),
        torch.randn(batch, n, 3),
    )
    band = connections(n, range(-(width // 2), width // 2 + 1))
    assert_close(
        restricted_attention(query, key, value, width),
        scaled_dot_product_attention(query, key, value, band)[0],
    )


@pytest.mark.parametrize("width", [0, 2, -1])
def test_a_neighborhood_has_a_center(width: int) -> None:
    """Fails when an even width is rounded in silence."""
    with pytest.raises(ValueError, match=f"width is {width}, expected an odd number"):
        restricted_attention(*torch.randn(3, 1, 5, 4), width)


def test_restricted_attention_wants_one_sequence() -> None:
    """Fails when keys of another length are taken for neighbors."""
    with pytest.raises(ValueError, match="lengths 5, 6 and 6, expected one sequence"):
        restricted_attention(
            torch.randn(1, 5, 4), torch.randn(1, 6, 4), torch.randn(1, 6, 4), 3
        )


@given(n=lengths, width=st.integers(1, 4), dilation=st.integers(1, 3))
def test_convolution_is_its_sum(n: int, width: int, dilation: int) -> None:
    """Fails when the kernel is turned around, looks right, or skips other than
    ``dilation`` positions."""
    layer, x = CausalConvolution(3, width, dilation), torch.randn(2, n, 3)
    expected = torch.zeros_like(x)
    for t in range(n):
        for back in range(width):
            if t - back * dilation >= 0:
                expected[:, t] += (
                    x[:, t - back * dilation]
                    @ layer.kernel.weight[:, :, width - 1 - back].T
                )
    assert_close(layer(x), expected)


def test_separable_convolution_is_one_of_a_product_kernel() -> None:
    """Fails when the channels are mixed in the first part, or positions in the
    second."""
    separable, full = (
        CausalConvolution(4, 3, dilation=2, separable=True),
        CausalConvolution(4, 3, dilation=2),
    )
    per_channel, mixing = (part.weight.detach() for part in separable.kernel)
    full.kernel.weight.data = mixing * per_channel.transpose(0, 1)
    x = torch.randn(2, 9, 4)
    assert_close(separable(x), full(x))


def test_convolution_refuses_sizes_below_one() -> None:
    """Fails when a width of 0 makes a layer."""
    with pytest.raises(ValueError, match="width is 0, expected .* at least 1"):
        CausalConvolution(4, 0)


@pytest.mark.slow
@given(n=lengths, d=sizes, k=sizes, side=st.integers(0, 3))
def test_programs_take_the_multiplications_of_table_1(
    n: int, d: int, k: int, side: int
) -> None:
    """Fails when a formula of table 1 or a layer changes, and when a layer computes
    what it throws away."""
    x, r = torch.randn(1, n, d), 2 * side + 1
    programs = {
        "self-attention": lambda x: scaled_dot_product_attention(x, x, x),
        "recurrent": nn.RNN(d, d, bias=False, batch_first=True),
        "convolution": CausalConvolution(d, k),
        "dilated convolution": CausalConvolution(d, k, dilation=k),
        "separable convolution": CausalConvolution(d, k, separable=True),
        "restricted self-attention": lambda x: restricted_attention(x, x, x, r),
    }
    assert {
        name: count_multiplications(f, x) for name, f in programs.items()
    } == table_1_multiplications(n, d, k, r)


@given(n=st.integers(2, 12))
def test_sequential_depth_is_that_counted_by_hand(n: int) -> None:
    """Fails when moves are counted, and when branches are added up instead of the
    longest taken."""
    x, rnn = torch.randn(1, n, 3), nn.RNN(3, 3, bias=False, batch_first=True)
    assert sequential_depth(lambda x: scaled_dot_product_attention(x, x, x)[0], x) == 4
    assert sequential_depth(lambda x: rnn(x)[0], x) == 3 * n
    assert sequential_depth(lambda x: x.mT.exp().sin() + x.exp().mT, x) == 3


def test_sequential_depth_goes_deeper_than_pythons_stack() -> None:
    """Fails when the graph is walked by recursion."""

    def deep(x):
        for _ in range(3000):
            x = x + 1
        return x

    assert sequential_depth(deep, torch.randn(2)) == 3000


def test_connections_point_to_the_inputs() -> None:
    """Fails when inputs and outputs are exchanged."""
    assert connections(3, (0, -1)).tolist() == [
        [True, False, False],
        [True, True, False],
        [False, True, True],
    ]


@given(n=st.integers(2, 12), depth=st.integers(1, 3), width=st.integers(2, 3))
def test_receptive_field_is_what_gradients_say(n: int, depth: int, width: int) -> None:
    """Fails when stages are multiplied in the wrong order, and when a layer looks where
    it should not."""
    layers = [
        CausalConvolution(3, width, dilation=1 + i).double() for i in range(depth)
    ]
    paper = [
        connections(n, range(-(width - 1) * (1 + i), 1, 1 + i)) for i in range(depth)
    ]
    assert gradient_receptive_field(
        nn.Sequential(*layers), torch.randn(1, n, 3, dtype=torch.float64)
    ).equal(receptive_field(paper))


def test_receptive_field_keeps_the_order_of_the_stages() -> None:
    """Fails when the first stage is taken for the last."""
    first, second = connections(4, (-1,)), torch.zeros(4, 4, dtype=torch.bool)
    second[3, 2] = True
    assert receptive_field([first, second]).nonzero().tolist() == [[3, 1]]


@given(n=st.integers(2, 40), k=st.integers(2, 4))
def test_path_length_is_the_formula(n: int, k: int) -> None:
    """Fails when the count of layers is off by one."""
    left = connections(n, range(-n, 1))
    contiguous = path_length(lambda i: connections(n, range(1 - k, 1)), left)
    dilated = path_length(
        lambda i: connections(n, range(-(k - 1) * k**i, 1, k**i)), left
    )
    assert contiguous == math.ceil((n - 1) / (k - 1))
    assert k ** (dilated - 1) < n <= k**dilated


def test_path_length_says_where_a_stack_has_a_gap() -> None:
    """Fails when a stack that never connects all is given a length, or searched without
    end."""
    with pytest.raises(
        ValueError,
        match=r"of 16 wanted pairs are not connected after 4 stages, expected all",
    ):
        path_length(
            lambda i: connections(4, (-2, 0, 2)), torch.ones(4, 4, dtype=torch.bool)
        )


def test_peak_counts_what_is_alive_together() -> None:
    """Fails when freed results are counted, and when inputs or parameters are."""
    n, d = 16, 8
    assert (
        peak_activations(scaled_dot_product_attention, *torch.randn(3, n, d))
        == 2 * n**2 + n * d
    )
    assert (
        peak_activations(
            nn.Sequential(*[nn.Linear(d, d, bias=False)] * 5), torch.randn(n, d)
        )
        == 2 * n * d
    )
