"""Chapter 1: additive attention and the recurrent translator."""

import pytest
import torch
from conftest import (
    VOCABULARY_SIZE,
    assert_causal,
    assert_padding_invariant,
    gradients,
    pairs,
    random_mask,
    rectangle,
    sentences,
    sizes,
)
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from annotated_transformer.recurrence import (
    AdditiveAttention,
    RecurrentTranslator,
    _flip,
)


def lookup(
    batch: int = 2, m: int = 3, n: int = 4
) -> tuple[AdditiveAttention, list[Tensor]]:
    """An additive attention in double precision with a query, keys and values for
    it."""
    shapes = (batch, m, 2), (batch, n, 3), (batch, n, 5)
    tensors = [
        torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes
    ]
    return AdditiveAttention(query_size=2, key_size=3, hidden_size=4).double(), tensors


def translator(**changes: object) -> RecurrentTranslator:
    """A small translator as it stands in evaluation, which ends some sentences soon."""
    model = RecurrentTranslator(VOCABULARY_SIZE, 8, **changes).eval()
    with torch.no_grad():
        model.decoder.output_projection.bias[2] += 0.5
    return model


@given(m=sizes, n=sizes, masked=st.booleans())
def test_additive_attention_is_its_formula(m: int, n: int, masked: bool) -> None:
    """Score by score. Fails without the tanh, and when the mask is inverted."""
    attention, [query, keys, values] = lookup(1, m, n)
    mask = torch.ones(1, m, n, dtype=torch.bool)
    if masked:
        mask = random_mask(1, m, n)
    output, weights = attention(query, keys, values, mask if masked else None)
    w, u, v = (
        attention.query_projection.weight,
        attention.key_projection.weight,
        attention.score.weight[0],
    )
    for i in range(m):
        scores = (
            torch.stack(
                [v @ torch.tanh(w @ query[0, i] + u @ keys[0, j]) for j in range(n)]
            ).exp()
            * mask[0, i]
        )
        expected = scores / scores.sum().clamp(min=1e-300)
        assert_close(weights[0, i], expected)
        assert_close(output[0, i], expected @ values[0])


def test_a_query_that_may_attend_to_nothing_gets_zero_and_never_nan() -> None:
    """Fails when such a row keeps equal weights, and when it goes through the softmax
    with minus infinity only."""
    attention, tensors = lookup()
    output, weights = attention(*tensors, random_mask(2, 3, 4))
    assert (
        (output[0, 0] == 0).all()
        and (weights[0, 0] == 0).all()
        and (output[1, 0] != 0).any()
    )
    assert all(
        gradient.isfinite().all()
        for gradient in gradients(output, *tensors, *attention.parameters())
    )


@given(n=sizes)
def test_additive_attention_is_blind_to_the_order_of_keys(n: int) -> None:
    """Fails when keys are projected in place but values stay behind."""
    attention, [query, keys, values] = lookup(n=n)
    order = torch.randperm(n)
    output, weights = attention(query, keys, values)
    assert_close(
        attention(query, keys[:, order], values[:, order]),
        (output, weights[..., order]),
    )


def test_gradients_are_those_of_finite_differences() -> None:
    """Fails when the keys are detached."""
    attention, tensors = lookup(1, 2, 3)
    mask = random_mask(2, 3)
    assert torch.autograd.gradcheck(lambda *tensors: attention(*tensors, mask), tensors)


@given(pairs=pairs)
def test_logits_for_each_target_position(pairs: list) -> None:
    """Fails when ``forward`` swaps source and target."""
    source, target = (rectangle(side) for side in zip(*pairs, strict=True))
    model = translator()
    logits = model(source, target)
    assert logits.shape == (*target.shape, VOCABULARY_SIZE)
    assert_close(logits, model.decode(target, model.encode(source), source))


@given(pairs=pairs, extra=st.tuples(st.integers(0, 3), st.integers(0, 3)))
def test_padding_changes_nothing(pairs: list, extra: tuple[int, int]) -> None:
    """Fails when the backward direction of the encoder reads the padding first."""
    assert_padding_invariant(translator(), pairs, extra)


@given(source=sentences, target=sentences, data=st.data())
def test_the_future_cannot_be_seen(
    source: list[int], target: list[int], data: st.DataObject
) -> None:
    """Fails when the decoder reads one word ahead."""
    assert_causal(
        translator(), source, target, data.draw(st.integers(0, len(target) - 1))
    )


def test_a_source_of_nothing_but_padding_gives_numbers() -> None:
    """Fails when attention divides by the zero weight of such a row."""
    model, source = translator(), rectangle([[5, 6], [0]])
    logits = model(source, torch.tensor([[1, 5], [1, 5]]))
    logits.sum().backward()
    assert (model.encode(source)[1] == 0).all() and logits.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def test_the_encoder_reads_both_ways() -> None:
    """Fails when the network is not bidirectional: the last word could not change the
    first vector."""
    model = translator()
    first, last = (
        model.encode(torch.tensor([[5, 6, 7]]))[0],
        model.encode(torch.tensor([[5, 6, 8]]))[0],
    )
    assert (first[0] != last[0]).any() and (first[0] == last[0]).any()


def test_dropout_in_training_and_not_in_evaluation() -> None:
    """Fails when dropout is on in evaluation."""
    model, source, target = (
        translator(dropout=0.5),
        torch.tensor([[5, 6]]),
        torch.tensor([[1, 7]]),
    )
    assert torch.equal(model(source, target), model(source, target))
    model.train()
    assert not torch.equal(model(source, target), model(source, target))


@given(rows=st.lists(sentences, min_size=1, max_size=3), max_length=sizes)
@example(rows=[[5, 6, 7], [4]], max_length=4)
def test_greedy_reads_its_own_words(rows: list[list[int]], max_length: int) -> None:
    """Fed what it said, the model says it again. Fails when each step reads the begin
    token or words follow the end."""
    model, source = translator(), rectangle(rows)
    tokens, weights = model.greedy(source, max_length)
    assert tokens.shape[1] <= max_length and weights.shape == (
        *tokens.shape,
        source.shape[1],
    )
    said = model(
        source,
        torch.cat([torch.ones(len(rows), 1, dtype=torch.long), tokens[:, :-1]], dim=1),
    ).argmax(dim=-1)
    for i, row in enumerate(tokens.tolist()):
        end = row.index(2) + 1 if 2 in row else len(row)
        assert row[:end] == said[i, :end].tolist() and set(row[end:]) <= {0}
        assert (
            row[:end]
            == model.greedy(rectangle(rows[i : i + 1]), max_length)[0][0].tolist()[:end]
        )


def test_greedy_ends_when_every_sentence_has_ended() -> None:
    """Fails when it always runs to ``max_length``."""
    model = translator()
    with torch.no_grad():
        model.decoder.output_projection.bias[2] = 100.0
    assert model.greedy(rectangle([[5, 6], [7]]), 9)[0].tolist() == [[2], [2]]


@pytest.mark.parametrize("training", [False, True])
def test_greedy_leaves_the_model_as_it_was(training: bool) -> None:
    """Fails when the model stays in evaluation mode, and when dropout is on while it
    writes."""
    model, source = translator(dropout=0.9).train(training), torch.tensor([[5, 6, 7]])
    once, again = (model.greedy(source, 5)[0] for _ in range(2))
    assert model.training == training and torch.equal(once, again)


def test_greedy_leaves_the_model_as_it_was_when_it_raises() -> None:
    """Fails when the mode is changed before an error and not changed back."""
    model = translator().train()
    for source in (torch.ones(2, 0, dtype=torch.long), torch.tensor([[99]])):
        with pytest.raises((ValueError, IndexError)):
            model.greedy(source, 5)
        assert model.training


def test_no_number_is_read_back_to_the_host() -> None:
    """Fails when a forward pass asks for a number: on the meta device there is none."""
    with torch.device("meta"):
        model, ids = RecurrentTranslator(9, 8), torch.ones(2, 5, dtype=torch.long)
    assert model(ids, ids[:, :3]).shape == (2, 3, 9)


def test_a_row_turned_around_twice_is_as_before() -> None:
    """Fails when padding is turned around with the words."""
    source = rectangle([[5, 6, 7], [8], [0]])
    real = source != 0
    x = torch.arange(9.0).view(3, 3, 1)
    flipped = _flip(x, real)
    assert flipped[..., 0].tolist() == [[2, 1, 0], [3, 5, 4], [8, 7, 6]]
    assert torch.equal(_flip(flipped, real), x)


IDS = torch.tensor([[5, 6, 7]])


def attend(*shapes: tuple, mask: Tensor | None = None) -> object:
    """An additive attention of sizes 2 and 3 run on random vectors of ``shapes``."""
    return AdditiveAttention(2, 3, 4)(*(torch.randn(shape) for shape in shapes), mask)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: AdditiveAttention(2, 0, 4), ValueError, "key_size is 0"),
        (
            lambda: attend((1, 2), (4, 3), (5, 5)),
            ValueError,
            "one value for each key",
        ),
        (
            lambda: attend((2, 1, 2), (3, 4, 3), (3, 4, 5)),
            ValueError,
            "compare the batch sizes",
        ),
        (
            lambda: attend((1, 2), (4, 3), (4, 5), mask=torch.ones(1, 4)),
            TypeError,
            r"torch.float32.*mask != 0",
        ),
        (
            lambda: attend((1, 2), (4, 3), (4, 5), mask=torch.ones(5) == 1),
            ValueError,
            r"mask \(5,\) does not broadcast",
        ),
        (
            lambda: RecurrentTranslator(9, 7),
            ValueError,
            "d_model is 7, expected an even number",
        ),
        (
            lambda: translator()(IDS[0], IDS),
            ValueError,
            r"source has shape \(3,\).*unsqueeze",
        ),
        (
            lambda: translator()(IDS[:0], IDS[:0]),
            ValueError,
            r"source has shape \(0, 3\).*empty batches",
        ),
        (
            lambda: translator()(IDS, IDS[:, :0]),
            ValueError,
            r"target has shape \(1, 0\)",
        ),
        (
            lambda: translator()(IDS.float(), IDS),
            TypeError,
            "source has dtype torch.float32, expected torch.int64",
        ),
        (lambda: translator()(IDS + 13, IDS), IndexError, "out of range"),
        (lambda: translator()(IDS, IDS - 6), IndexError, "out of range"),
        (
            lambda: translator()(IDS, IDS.expand(2, -1)),
            ValueError,
            "source, memory and target hold 1, 1 and 2 sentences",
        ),
        (
            lambda: translator().greedy(IDS, 0),
            ValueError,
            "max_length is 0, expected a whole number of at least 1",
        ),
    ],
)
def test_bad_input_is_named(call: object, error: type[Exception], message: str) -> None:
    """Fails, for each row of the table, when its check is taken out."""
    with pytest.raises(error, match=message):
        call()
