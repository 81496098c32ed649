"""Chapter 11: the loop, and how good the model is."""

import math
from itertools import repeat

import pytest
import torch
import torch.nn.functional as F
from conftest import VOCABULARY_SIZE
from torch import Tensor
from torch.testing import assert_close

from annotated_transformer.data import Batch, make_batch
from annotated_transformer.optimization import transformer_learning_rate
from annotated_transformer.training import perplexity, train
from annotated_transformer.transformer import Transformer, TransformerConfig

SHORT = make_batch([([5, 6], [7, 8]), ([9], [10])])
LONG = make_batch([([6, 5, 9, 11], [8, 7, 10, 12]), ([12], [11, 4]), ([4, 4], [5])])


def tiny(dropout: float = 0.0) -> Transformer:
    """A model that learns a batch by heart within a second."""
    return Transformer(TransformerConfig(VOCABULARY_SIZE, 1, 16, 32, 2, dropout=dropout, max_length=8))


def cross_entropy(model: Transformer, batch: Batch, smoothing: float, reduction: str) -> Tensor:
    """PyTorch's loss of the target tokens of a batch, padding aside."""
    logits, targets = model(batch.source, batch.target_input).flatten(0, 1), batch.target_output.flatten()
    return F.cross_entropy(logits, targets, ignore_index=0, label_smoothing=smoothing, reduction=reduction)


def test_one_batch_is_learned_by_heart() -> None:
    """Fails when the gradients are not taken back to zero, and when the weights are never stepped."""
    model = tiny()
    losses = train(model, repeat(LONG), steps=80, warmup_steps=40, factor=0.5, smoothing=0.0)
    assert losses[0] > math.log(VOCABULARY_SIZE) / 2 > 0.1 > losses[-1]
    predicted = model.eval()(LONG.source, LONG.target_input).argmax(dim=-1)
    assert torch.equal(predicted[LONG.target_output != 0], LONG.target_output[LONG.target_output != 0])


def test_the_loop_is_adam_on_the_mean_loss_of_a_token() -> None:
    """Step by step against the loop by hand. Fails when the loss is not divided by the tokens, and when steps count
    from 2."""
    model, twin = tiny(), tiny()
    twin.load_state_dict(model.state_dict())
    optimizer, expected = torch.optim.Adam(twin.parameters(), betas=(0.9, 0.98), eps=1e-9), []
    for step, batch in enumerate([SHORT, LONG, SHORT], start=1):
        optimizer.param_groups[0]["lr"] = transformer_learning_rate(step, 16, 2, 0.5)
        optimizer.zero_grad()
        loss = cross_entropy(twin, batch, 0.1, "mean")
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    assert train(model, [SHORT, LONG, SHORT], 3, warmup_steps=2, factor=0.5) == pytest.approx(expected, rel=1e-5)
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


def test_dropout_is_on_in_training() -> None:
    """Fails when the loop leaves a model in evaluation mode."""
    model, twin = tiny(dropout=0.5).eval(), tiny(dropout=0.0)
    twin.load_state_dict(model.state_dict())
    losses = [train(each, [SHORT], 1, warmup_steps=2)[0] for each in (model, twin)]
    assert model.training and losses[0] != pytest.approx(losses[1], rel=1e-3)


def test_the_same_seed_gives_the_same_run() -> None:
    """Fails when anything is drawn from a generator without a seed."""
    runs = []
    for _ in range(2):
        torch.manual_seed(3)
        runs.append(train(tiny(dropout=0.1), [SHORT, LONG], 2, warmup_steps=2))
    assert runs[0] == runs[1]


def test_no_more_batches_are_taken_than_steps() -> None:
    """Fails when the loop takes one batch too many, which an endless iterator would not show."""
    batches = iter([SHORT, LONG, SHORT])
    assert len(train(tiny(), batches, 2, warmup_steps=2)) == 2
    assert list(batches) == [SHORT]


def test_a_loss_that_is_no_number_stops_the_run() -> None:
    """Before it reaches the weights. Fails when the check is taken out, and when it comes after the step."""
    model = tiny()
    with torch.no_grad():
        model.decoder.layers[0].feed_forward.contract.bias[0] = float("nan")
    before = [parameter.clone() for parameter in model.parameters()]
    with pytest.raises(FloatingPointError, match="the loss of step 1 is nan: lower factor, or raise warmup_steps"):
        train(model, repeat(SHORT), 5, warmup_steps=2)
    for parameter, old in zip(model.parameters(), before, strict=True):
        assert_close(parameter, old, atol=0, rtol=0, equal_nan=True)


def test_a_rate_that_is_too_high_is_named_with_its_step() -> None:
    """Fails when steps are counted from zero."""
    with pytest.raises(FloatingPointError, match="the loss of step 2 is nan"):
        train(tiny(), repeat(SHORT), 5, warmup_steps=2, factor=1e38)


@pytest.mark.parametrize("batches", [[], [SHORT, LONG]])
def test_too_few_batches_are_named(batches: list[Batch]) -> None:
    """Fails when the run ends early without a word."""
    with pytest.raises(ValueError, match=f"the batches ended after {len(batches)} of 3 steps: leave out epochs"):
        train(tiny(), batches, 3, warmup_steps=2)


def test_perplexity_is_the_exponential_of_the_mean_loss_of_a_token() -> None:
    """Over batches of different sizes. Fails when the means of batches are averaged, and when padding counts."""
    model = tiny(dropout=0.5)
    value = perplexity(model, iter([SHORT, LONG]))
    total = sum(float(cross_entropy(model, batch, 0.0, "sum").detach()) for batch in (SHORT, LONG))
    assert not model.training
    assert value == pytest.approx(math.exp(total / (SHORT.tokens + LONG.tokens)), rel=1e-5)


def test_a_model_that_knows_nothing_chooses_among_the_whole_vocabulary() -> None:
    """Fails when the loss is smoothed or not in nats."""
    model = tiny()
    torch.nn.init.zeros_(model.embedding.weight)
    assert perplexity(model, [LONG]) == pytest.approx(VOCABULARY_SIZE, rel=1e-4)


def test_perplexity_of_nothing_is_named() -> None:
    """Fails when the division is left to Python."""
    with pytest.raises(ValueError, match="no target tokens to judge the model by"):
        perplexity(tiny(), [])
