"""Chapter 3: multi-head attention."""

import pytest
import torch
from conftest import gradients, random_mask, sizes
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from annotated_transformer.attention import scaled_dot_product_attention
from annotated_transformer.multi_head import (
    MultiHeadAttention,
    merge_heads,
    split_heads,
)


def states(batch: int = 2, n: int = 3, d_model: int = 8) -> Tensor:
    """Random vectors in double precision."""
    return torch.randn(batch, n, d_model, dtype=torch.float64, requires_grad=True)


@given(batch=sizes, n=sizes, heads=sizes, size=sizes)
def test_heads_are_columns_side_by_side(
    batch: int, n: int, heads: int, size: int
) -> None:
    """Fails when the heads are cut by ``view`` without the transpose: positions and
    heads mix."""
    x = states(batch, n, heads * size)
    split = split_heads(x, heads)
    assert split.shape == (batch, heads, n, size)
    for i in range(heads):
        assert_close(split[:, i], x[..., i * size : (i + 1) * size])
    assert_close(merge_heads(split), x)


@given(
    n_q=sizes,
    n_k=sizes,
    heads=sizes,
    d_k=sizes,
    d_v=sizes,
    mask_axes=st.sampled_from([None, "causal", "keys", "both"]),
)
def test_with_and_without_weights_are_one(
    n_q: int, n_k: int, heads: int, d_k: int, d_v: int, mask_axes: str | None
) -> None:
    """Values and gradients, rows that may attend to nothing included. Fails when one of
    the paths drops the mask."""
    attention = MultiHeadAttention(6, heads, d_k, d_v).double()
    query, key, value = states(2, n_q, 6), states(2, n_k, 6), states(2, n_k, 6)
    shape = {
        None: None,
        "causal": (n_q, n_k),
        "keys": (2, 1, n_k),
        "both": (2, n_q, n_k),
    }[mask_axes]
    mask = None if shape is None else random_mask(*shape)
    fused, nothing = attention(query, key, value, mask)
    written, weights = attention(query, key, value, mask, need_weights=True)
    assert nothing is None
    assert fused.shape == (2, n_q, 6) and weights.shape == (2, heads, n_q, n_k)
    assert_close(fused, written)
    tensors = [query, key, value, *attention.parameters()]
    assert_close(gradients(fused, *tensors), gradients(written, *tensors))


@pytest.mark.parametrize("need_weights", [False, True])
def test_a_query_that_may_attend_to_nothing_gets_zero_and_never_nan(
    need_weights: bool,
) -> None:
    """Fails when the fused path is replaced by a plain softmax, and when the output has
    a bias."""
    attention, x = MultiHeadAttention(8, 2).double(), states()
    mask = torch.ones(2, 3, 3, dtype=torch.bool)
    mask[0, 1] = False
    output = attention(x, x, x, mask, need_weights)[0]
    assert (output[0, 1] == 0).all() and (output[1] != 0).all()
    for gradient in gradients(output, x, *attention.parameters()):
        assert gradient.isfinite().all()


@given(heads=st.sampled_from([1, 2, 4]), n=sizes)
def test_equals_pytorch_with_the_same_weights(heads: int, n: int) -> None:
    """Outputs, weights and gradients. Fails when query and key projections are
    swapped."""
    ours = MultiHeadAttention(8, heads).double()
    theirs = nn.MultiheadAttention(
        8, heads, bias=False, batch_first=True, dtype=torch.float64
    )
    projections = ours.query_projection, ours.key_projection, ours.value_projection
    with torch.no_grad():
        theirs.in_proj_weight.copy_(
            torch.cat([projection.weight for projection in projections])
        )
        theirs.out_proj.weight.copy_(ours.output_projection.weight)
    query, memory = states(2, n), states(2, n)
    mask = random_mask(2, n, n) | torch.eye(n, dtype=torch.bool)
    output, weights = ours(query, memory, memory, mask, need_weights=True)
    hidden = ~mask.repeat_interleave(heads, dim=0)
    expected = theirs(
        query, memory, memory, attn_mask=hidden, average_attn_weights=False
    )
    assert_close((output, weights), expected)
    assert_close(
        gradients(output, query, memory), gradients(expected[0], query, memory)
    )


def test_each_head_attends_by_itself() -> None:
    """With d_k and d_v apart. Fails when the heads are joined before the softmax."""
    attention, x = MultiHeadAttention(8, num_heads=3, d_k=2, d_v=5).double(), states()
    heads = []
    for i in range(3):
        keys, values = slice(2 * i, 2 * i + 2), slice(5 * i, 5 * i + 5)
        query, key = (
            x @ attention.query_projection.weight[keys].T,
            x @ attention.key_projection.weight[keys].T,
        )
        value = x @ attention.value_projection.weight[values].T
        heads.append(scaled_dot_product_attention(query, key, value)[0])
    assert_close(
        attention(x, x, x)[0],
        torch.cat(heads, dim=-1) @ attention.output_projection.weight.T,
    )


@given(n=sizes)
def test_self_attention_is_blind_to_order(n: int) -> None:
    """Permuted words give permuted outputs. Fails when a causal mask is applied
    unasked."""
    attention, x, order = (
        MultiHeadAttention(8, 2).double(),
        states(2, n),
        torch.randperm(n),
    )
    moved = x[:, order]
    assert_close(attention(moved, moved, moved)[0], attention(x, x, x)[0][:, order])


@pytest.mark.parametrize("need_weights", [False, True])
def test_a_batch_of_one_stands_for_any_batch(need_weights: bool) -> None:
    """Fails when the check asks for equal batches."""
    attention, query, memory = (
        MultiHeadAttention(8, 2).double(),
        states(3, 2),
        states(1, 4),
    )
    repeated = memory.expand(3, -1, -1)
    expected = attention(query, repeated, repeated)[0]
    assert_close(attention(query, memory, memory, None, need_weights)[0], expected)


@given(heads=st.sampled_from([1, 2, 3, 4, 6, 12]))
def test_many_heads_cost_as_much_as_one(heads: int) -> None:
    """Four square matrices and no bias. Fails when each head is as wide as the
    model."""
    shapes = [
        tuple(parameter.shape)
        for parameter in MultiHeadAttention(12, heads).parameters()
    ]
    assert shapes == 4 * [(12, 12)]


def test_gradients_are_those_of_finite_differences() -> None:
    """Fails when the keys are detached."""
    attention, mask = (
        MultiHeadAttention(4, 2).double(),
        torch.tensor([[False, False, False], [True, False, True]]),
    )
    query, memory = states(1, 2, 4), states(1, 3, 4)
    assert torch.autograd.gradcheck(
        lambda q, m: attention(q, m, m, mask)[0], (query, memory)
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((10, 3), "d_model 10 is not divisible by num_heads 3.*give d_k and d_v"),
        ((10, 3, 4), "d_model 10 is not divisible by num_heads 3"),
        ((0, 1), "d_model is 0, .* at least 1"),
        ((8, 0), "num_heads is 0, .* at least 1"),
        ((8, 2, 0), "d_k is 0, .* at least 1"),
        ((8, 2, 4, -1), "d_v is -1, .* at least 1"),
    ],
)
def test_sizes_that_do_not_fit_are_named(arguments: tuple, message: str) -> None:
    """Fails, for each row of the table, when its check is taken out."""
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(*arguments)


@pytest.mark.parametrize(
    ("shapes", "mask", "error", "message"),
    [
        (
            ((3, 8), (3, 8), (3, 8)),
            None,
            ValueError,
            r"query \(3, 8\).*d_model 8.*unsqueeze",
        ),
        (
            ((2, 3, 8), (2, 3, 6), (2, 3, 8)),
            None,
            ValueError,
            r"key \(2, 3, 6\).*d_model 8",
        ),
        (
            ((2, 3, 8), (3, 3, 8), (3, 3, 8)),
            None,
            ValueError,
            r"query \(2, .*key \(3, .*compare the batch sizes",
        ),
        (((2, 3, 8), (2, 4, 8), (2, 5, 8)), None, ValueError, "one value for each key"),
        (3 * [(2, 3, 8)], torch.ones(3, 3), TypeError, "torch.float32.*torch.bool"),
        (
            3 * [(2, 3, 8)],
            torch.ones(3, dtype=torch.bool),
            ValueError,
            r"mask \(3,\).*padding_mask and causal_mask",
        ),
        (
            3 * [(2, 3, 8)],
            torch.ones(2, 2, 3, 3, dtype=torch.bool),
            ValueError,
            r"mask \(2, 2, 3, 3\): expected",
        ),
        (
            3 * [(2, 3, 8)],
            torch.ones(4, 3, 3, dtype=torch.bool),
            ValueError,
            r"mask \(4, 1, 3, 3\) does not broadcast",
        ),
    ],
)
@pytest.mark.parametrize("need_weights", [False, True])
def test_bad_input_is_named(
    shapes: list,
    mask: Tensor | None,
    error: type[Exception],
    message: str,
    need_weights: bool,
) -> None:
    """Fails, for each row of the table, when its check is taken out."""
    with pytest.raises(error, match=message):
        MultiHeadAttention(8, 2)(
            *(torch.randn(shape) for shape in shapes), mask, need_weights
        )
