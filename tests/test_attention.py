"""Chapter 2: masks and scaled dot-product attention."""

import math

import pytest
import torch
import torch.nn.functional as F
from conftest import gradients, random_mask, sizes
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from annotated_transformer.attention import (
    causal_mask,
    padding_mask,
    scaled_dot_product_attention,
)

tokens = st.integers(0, 3)


def inputs(
    *leading: int, n_q: int = 3, n_k: int = 4, d_k: int = 5, d_v: int = 2
) -> list[torch.Tensor]:
    """Random query, key and value in double precision, ready for gradients."""
    shapes = (n_q, d_k), (n_k, d_k), (n_k, d_v)
    return [
        torch.randn(*leading, *shape, dtype=torch.float64, requires_grad=True)
        for shape in shapes
    ]


def test_equals_the_sum_over_keys() -> None:
    """Fails when the scale is left out, and when the softmax runs over the queries."""
    query, key, value = (tensor.detach() for tensor in inputs())
    output, weights = scaled_dot_product_attention(query, key, value)
    for i in range(len(query)):
        scores = [
            math.exp(float(query[i] @ key[j]) / math.sqrt(5)) for j in range(len(key))
        ]
        expected = torch.tensor(scores, dtype=torch.float64) / sum(scores)
        assert_close(weights[i], expected)
        assert_close(output[i], sum(expected[j] * value[j] for j in range(len(key))))


@given(
    batch=sizes,
    heads=sizes,
    n_q=sizes,
    n_k=sizes,
    d_k=sizes,
    d_v=sizes,
    masked=st.booleans(),
)
def test_equals_pytorch(
    batch: int, heads: int, n_q: int, n_k: int, d_k: int, d_v: int, masked: bool
) -> None:
    """Values and gradients, rows that may attend to nothing included. Fails when the
    mask is inverted."""
    mask = random_mask(batch, 1, n_q, n_k) if masked else None
    tensors = inputs(batch, heads, n_q=n_q, n_k=n_k, d_k=d_k, d_v=d_v)
    ours = scaled_dot_product_attention(*tensors, mask)[0]
    theirs = F.scaled_dot_product_attention(*tensors, attn_mask=mask)
    assert ours.shape == (batch, heads, n_q, d_v)
    assert_close(ours, theirs)
    assert_close(gradients(ours, *tensors), gradients(theirs, *tensors))


@given(batch=sizes, n_q=sizes, n_k=sizes)
def test_weights_are_a_distribution_over_what_the_mask_allows(
    batch: int, n_q: int, n_k: int
) -> None:
    """Fails when masked scores are set to zero in place of minus infinity."""
    mask = random_mask(batch, n_q, n_k)
    weights = scaled_dot_product_attention(*inputs(batch, n_q=n_q, n_k=n_k), mask)[1]
    assert weights.shape == mask.shape
    assert (weights[~mask] == 0).all() and (weights[mask] > 0).all()
    assert_close(weights.sum(dim=-1), mask.any(dim=-1).double())


def test_a_row_that_may_attend_to_nothing_is_zero_and_never_nan() -> None:
    """Fails when such a row goes through the softmax with nothing but minus
    infinity."""
    tensors = inputs()
    mask = torch.ones(3, 4, dtype=torch.bool)
    mask[1] = False
    output, weights = scaled_dot_product_attention(*tensors, mask)
    assert (output[1] == 0).all() and (weights[1] == 0).all() and (output[0] != 0).all()
    for_query, *others = gradients(output, *tensors)
    assert (for_query[1] == 0).all()
    assert all(gradient.isfinite().all() for gradient in (for_query, *others))


@given(n_q=sizes, n_k=sizes)
def test_order_of_keys_is_nothing_and_order_of_queries_is_kept(
    n_q: int, n_k: int
) -> None:
    """Fails when a causal mask is applied unasked."""
    query, key, value = inputs(n_q=n_q, n_k=n_k)
    keys, queries = torch.randperm(n_k), torch.randperm(n_q)
    output, weights = scaled_dot_product_attention(query, key, value)
    moved_output, moved_weights = scaled_dot_product_attention(
        query[queries], key[keys], value[keys]
    )
    assert_close(moved_output, output[queries])
    assert_close(moved_weights, weights[queries][:, keys])


def test_masked_keys_and_values_leave_no_trace() -> None:
    """Fails when the mask is applied after the softmax only, so that the hidden keys
    share in the denominator."""
    query, key, value = inputs()
    mask = torch.tensor([True, False, True, False])
    expected = scaled_dot_product_attention(query, key[mask], value[mask])[0]
    with torch.no_grad():
        key[~mask], value[~mask] = 0, 1e6
    assert_close(scaled_dot_product_attention(query, key, value, mask)[0], expected)


def test_large_scores_do_not_overflow() -> None:
    """Fails when the softmax is exp / sum without subtracting the maximum."""
    query, key, value = inputs()
    output, weights = scaled_dot_product_attention(1e4 * query, 1e4 * key, value)
    assert output.isfinite().all()
    assert_close(weights.sum(dim=-1), torch.ones(3, dtype=torch.float64))


def test_gradients_are_those_of_finite_differences() -> None:
    """Fails when the weights are detached before they meet the values."""
    mask = random_mask(3, 4)
    assert torch.autograd.gradcheck(
        lambda *tensors: scaled_dot_product_attention(*tensors, mask), inputs(2)
    )


@given(
    rows=st.lists(
        st.lists(st.integers(0, 3), min_size=4, max_size=4), min_size=1, max_size=3
    ),
    pad=st.integers(0, 3),
)
def test_padding_mask_is_false_on_padding_only(rows: list[list[int]], pad: int) -> None:
    """Fails when ``pad_id`` is ignored, and when the axis of the queries is missing."""
    mask = padding_mask(torch.tensor(rows), pad)
    assert mask.dtype == torch.bool
    assert mask.tolist() == [[[token != pad for token in row]] for row in rows]


@given(length=sizes)
def test_causal_mask_shows_the_past_and_the_present(length: int) -> None:
    """Fails when the diagonal is hidden."""
    mask = causal_mask(length)
    assert mask.dtype == torch.bool
    assert mask.tolist() == [
        [key <= query for key in range(length)] for query in range(length)
    ]
    assert causal_mask(length, device="meta").is_meta


SHAPES = (2, 3, 5), (2, 4, 5), (2, 4, 2)


@pytest.mark.parametrize(
    ("shapes", "mask", "error", "message"),
    [
        (((5,), (4, 5), (4, 2)), None, ValueError, r"query \(5,\).*unsqueeze"),
        (
            ((2, 3, 5), (2, 4, 6), (2, 4, 2)),
            None,
            ValueError,
            r"\(2, 3, 5\).*\(2, 4, 6\).*same size d_k",
        ),
        (
            ((2, 3, 5), (2, 4, 5), (2, 6, 2)),
            None,
            ValueError,
            r"\(2, 4, 5\).*\(2, 6, 2\).*one value for each key",
        ),
        (
            ((2, 3, 5), (3, 4, 5), (3, 4, 2)),
            None,
            ValueError,
            r"\(2, 3, 5\).*\(3, 4, 5\).*batch sizes",
        ),
        (SHAPES, torch.ones(3, 4), TypeError, r"torch.float32.*torch.bool.*mask != 0"),
        (
            SHAPES,
            torch.ones(3, 4, dtype=torch.long),
            TypeError,
            r"torch.int64.*torch.bool",
        ),
        (
            SHAPES,
            torch.ones(4, 3, dtype=torch.bool),
            ValueError,
            r"mask \(4, 3\).*scores \(2, 3, 4\)",
        ),
        (
            SHAPES,
            torch.ones(7, 2, 3, 4, dtype=torch.bool),
            ValueError,
            r"mask \(7, 2, 3, 4\).*scores \(2, 3, 4\)",
        ),
    ],
)
def test_bad_input_is_named(
    shapes: tuple, mask: torch.Tensor | None, error: type[Exception], message: str
) -> None:
    """Fails, for each row of the table, when its check is taken out."""
    with pytest.raises(error, match=message):
        scaled_dot_product_attention(*(torch.randn(shape) for shape in shapes), mask)
