"""Chapter 5: the shared embedding and the positions."""

import math

import pytest
import torch
from conftest import VOCABULARY_SIZE, gradients, rectangle, sentences
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from annotated_transformer.embeddings import (
    LearnedPositionalEmbedding,
    SharedEmbedding,
    SinusoidalPositionalEncoding,
)

BOTH = pytest.mark.parametrize(
    "kind", [SinusoidalPositionalEncoding, LearnedPositionalEmbedding]
)


def positions(kind: type[nn.Module], d_model: int, length: int) -> Tensor:
    """What is added at each position, ``(length, d_model)``, in double precision."""
    return (
        kind(d_model, length)
        .double()(torch.zeros(length, d_model, dtype=torch.float64))
        .detach()
    )


@given(rows=st.lists(sentences, min_size=1, max_size=3))
def test_words_are_rows_times_the_root_of_d_model(rows: list[list[int]]) -> None:
    """Fails when the scale is left out."""
    embedding, tokens = SharedEmbedding(VOCABULARY_SIZE, 9), rectangle(rows)
    assert_close(
        embedding(tokens), torch.stack([embedding.weight[row] * 3 for row in tokens])
    )


def test_one_matrix_serves_both_ends() -> None:
    """Fails when the logits have a matrix of their own, and when they are scaled as
    well."""
    embedding, tokens = SharedEmbedding(5, 4), torch.tensor([[3, 1]])
    states = torch.randn(1, 2, 4)
    assert [tuple(parameter.shape) for parameter in embedding.parameters()] == [(5, 4)]
    assert_close(embedding.logits(states), states @ embedding.weight.T)
    [only_words] = gradients(embedding(tokens), embedding.weight)
    [only_logits] = gradients(embedding.logits(states), embedding.weight)
    assert (only_words[[0, 2, 4]] == 0).all() and (only_words[[3, 1]] != 0).all()
    assert (only_logits != 0).all()


def test_words_and_logits_start_with_unit_variance() -> None:
    """Fails with the start of ``nn.Embedding`` (variance one: logits of variance
    d_model) and with Xavier's."""
    embedding = SharedEmbedding(2000, 64)
    assert 0.9 < embedding(torch.arange(2000)).var() < 1.1
    assert 0.9 < embedding.logits(torch.randn(50, 64)).var() < 1.1


@given(d_model=st.sampled_from([2, 6, 8]), length=st.integers(1, 40))
def test_sinusoids_are_the_formula(d_model: int, length: int) -> None:
    """Fails when sines and cosines stand in two halves, and when the exponent lacks its
    factor of two."""
    table = SinusoidalPositionalEncoding(d_model, length)(torch.zeros(length, d_model))
    for pos in range(length):
        for i in range(d_model // 2):
            angle = pos / 10000 ** (2 * i / d_model)
            assert table[pos, 2 * i] == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[pos, 2 * i + 1] == pytest.approx(math.cos(angle), abs=1e-6)


@given(pos=st.integers(0, 30), k=st.integers(0, 30))
def test_a_rotation_that_depends_on_k_alone_carries_pos_to_pos_plus_k(
    pos: int, k: int
) -> None:
    """With cos + i sin for each pair of channels, it is a product. Fails for the
    learned table."""
    table = positions(SinusoidalPositionalEncoding, 8, 61)
    rotations = torch.complex(table[:, 1::2], table[:, 0::2])  # (length, d_model / 2)
    assert_close(rotations[pos + k], rotations[pos] * rotations[k])
    assert_close(rotations.abs(), torch.ones_like(table[:, 1::2]))


def test_dot_products_of_sinusoids_know_the_distance_only() -> None:
    """Fails when a channel pair loses its cosine."""
    table = positions(SinusoidalPositionalEncoding, 16, 30)
    products = table @ table.T
    for distance in range(30):
        diagonal = products.diagonal(distance)
        assert_close(diagonal, diagonal[:1].expand_as(diagonal))
    assert (products.diagonal() > products[0, 1:].max()).all()


@BOTH
@pytest.mark.parametrize("n", [1, 3, 7])
def test_positions_are_added_and_do_not_depend_on_the_length(
    kind: type[nn.Module], n: int
) -> None:
    """Fails when the last rows of the table are taken in place of the first."""
    module, x = kind(4, 7), torch.randn(2, n, 4)
    table = module(torch.zeros(1, 7, 4))[0]
    assert_close(module(x), x + table[:n])
    assert (table[1:] - table[:-1]).abs().amax(
        dim=-1
    ).min() > 1e-3  # no two neighbors alike


def test_only_the_learned_table_is_learned() -> None:
    """Fails when the sinusoids become parameters, or part of what is saved."""
    assert not SinusoidalPositionalEncoding(4, 7).state_dict()
    learned = LearnedPositionalEmbedding(4, 7)
    assert [tuple(parameter.shape) for parameter in learned.parameters()] == [(7, 4)]
    [gradient] = gradients(learned(torch.zeros(2, 5, 4)), *learned.parameters())
    assert (gradient[:5] != 0).all() and (gradient[5:] == 0).all()


def test_learned_positions_start_as_large_as_the_sinusoids() -> None:
    """Fails when they start with variance one."""
    learned, fixed = (
        positions(kind, 64, 200)
        for kind in (LearnedPositionalEmbedding, SinusoidalPositionalEncoding)
    )
    assert float(learned.square().mean()) == pytest.approx(
        float(fixed.square().mean()), rel=0.05
    )


@BOTH
@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((2, 8, 4), "8 tokens is longer than max_length 7: cut it"),
        ((2, 3, 6), r"x has shape \(2, 3, 6\), expected \(\.\.\., 4\)"),
    ],
)
def test_sequences_that_do_not_fit_are_named(
    kind: type[nn.Module], shape: tuple, message: str
) -> None:
    """Fails, for each row of the table, when its check is taken out."""
    with pytest.raises(ValueError, match=message):
        kind(4, 7)(torch.zeros(shape))


@pytest.mark.parametrize("d_model", [0, 7])
def test_sinusoids_need_pairs_of_channels(d_model: int) -> None:
    """Fails when the check is taken out."""
    with pytest.raises(
        ValueError, match=f"d_model is {d_model}, expected an even number"
    ):
        SinusoidalPositionalEncoding(d_model, 7)


@BOTH
def test_a_sequence_may_start_later(kind: type[nn.Module]) -> None:
    """Fails when ``start`` moves nothing, or does not count against the table."""
    module, x = kind(4, 7), torch.randn(2, 7, 4)
    assert_close(module(x[:, 3:], start=3), module(x)[:, 3:])
    with pytest.raises(ValueError, match="8 tokens is longer than max_length 7"):
        module(x[:, :3], start=5)


def test_the_scale_can_be_chosen() -> None:
    """Fails when a scale of 1 is taken for none."""
    embedding, tokens = SharedEmbedding(5, 4, scale=1.0), torch.tensor([[3, 1]])
    assert_close(embedding(tokens), embedding.weight[tokens])
