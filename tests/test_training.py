"""Chapter 11: the loop, what a step measures, and how good the model is."""

import json
import math
import re
import shlex
from itertools import repeat
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from conftest import VOCABULARY_SIZE
from small_runs import LONG, SHORT, WHOLE, tiny
from torch import Tensor
from torch.testing import assert_close

from annotated_transformer.data import Batch
from annotated_transformer.optimization import (
    transformer_learning_rate,
    transformer_optimizer,
)
from annotated_transformer.support.cli import main
from annotated_transformer.training import (
    TrainingConfig,
    batch_loss,
    perplexity,
    train,
    update,
)
from annotated_transformer.transformer import Transformer


def cross_entropy(
    model: Transformer, batch: Batch, smoothing: float, reduction: str
) -> Tensor:
    """PyTorch's loss of the target tokens of a batch, padding aside."""
    logits, targets = (
        model(batch.source, batch.target_input).flatten(0, 1),
        batch.target_output.flatten(),
    )
    return F.cross_entropy(
        logits, targets, ignore_index=0, label_smoothing=smoothing, reduction=reduction
    )


def test_a_single_batch_can_be_overfitted() -> None:
    """Fails when the gradients are not taken back to zero, and when the weights are
    never stepped."""
    model = tiny()
    losses = train(
        model, repeat(LONG), steps=80, warmup_steps=40, factor=0.5, smoothing=0.0
    )
    assert losses[0] > math.log(VOCABULARY_SIZE) / 2 > 0.1 > losses[-1]
    predicted = model.eval()(LONG.source, LONG.target_input).argmax(dim=-1)
    assert torch.equal(
        predicted[LONG.target_output != 0], LONG.target_output[LONG.target_output != 0]
    )


def test_the_loop_is_adam_on_the_mean_loss_of_a_token() -> None:
    """Step by step against the loop by hand. Fails when the loss is not divided by the
    tokens, and when steps count from 2."""
    model, twin = tiny(), tiny()
    twin.load_state_dict(model.state_dict())
    optimizer, expected = (
        torch.optim.Adam(twin.parameters(), betas=(0.9, 0.98), eps=1e-9),
        [],
    )
    for step, batch in enumerate([SHORT, LONG, SHORT], start=1):
        optimizer.param_groups[0]["lr"] = transformer_learning_rate(step, 16, 2, 0.5)
        optimizer.zero_grad()
        loss = cross_entropy(twin, batch, 0.1, "mean")
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    assert train(
        model, [SHORT, LONG, SHORT], 3, warmup_steps=2, factor=0.5
    ) == pytest.approx(expected, rel=1e-5)
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
    """Fails when the loop takes one batch too many, which an endless iterator would not
    show."""
    batches = iter([SHORT, LONG, SHORT])
    assert len(train(tiny(), batches, 2, warmup_steps=2)) == 2
    assert list(batches) == [SHORT]


def test_a_loss_that_is_not_finite_stops_the_run() -> None:
    """Before it reaches the weights. Fails when the check is taken out, and when it
    comes after the step."""
    model = tiny()
    with torch.no_grad():
        model.decoder.layers[0].feed_forward.contract.bias[0] = float("nan")
    before = [parameter.clone() for parameter in model.parameters()]
    with pytest.raises(
        FloatingPointError,
        match="the loss of step 1 is nan: lower factor, or raise warmup_steps",
    ):
        train(model, repeat(SHORT), 5, warmup_steps=2)
    for parameter, old in zip(model.parameters(), before, strict=True):
        assert_close(parameter, old, atol=0, rtol=0, equal_nan=True)


def test_a_gradient_that_is_not_finite_stops_the_run() -> None:
    """Under a loss that is finite. Fails when the loss alone is looked at: the weights
    would be lost a step before it."""
    model = tiny()
    model.encoder.layers[0].feed_forward.contract.bias.register_hook(
        lambda gradient: gradient * math.inf
    )
    before = [parameter.clone() for parameter in model.parameters()]
    with pytest.raises(
        FloatingPointError,
        match="the gradient norm of step 1 is (inf|nan): lower factor",
    ):
        train(model, repeat(SHORT), 5, warmup_steps=2)
    for parameter, old in zip(model.parameters(), before, strict=True):
        assert_close(parameter, old, atol=0, rtol=0)


@pytest.mark.parametrize("scale", [1e5, math.nan])
def test_a_perplexity_that_is_not_finite_is_an_error(scale: float) -> None:
    """Fails when the exponential overflows in a traceback, and when NaN goes into the
    log, where JSON has none."""
    model = tiny()
    with torch.no_grad():
        model.embedding.weight *= scale
    with pytest.raises(
        FloatingPointError,
        match="the held-out loss is .*: lower factor, or raise warmup_steps",
    ):
        perplexity(model, [SHORT])


def test_a_rate_that_is_too_high_is_named_with_its_step() -> None:
    """Fails when steps are counted from zero."""
    with pytest.raises(FloatingPointError, match="the loss of step 2 is nan"):
        train(tiny(), repeat(SHORT), 5, warmup_steps=2, factor=1e38)


@pytest.mark.parametrize("batches", [[], [SHORT, LONG]])
def test_too_few_batches_are_named(batches: list[Batch]) -> None:
    """Fails when the run ends early without a word."""
    with pytest.raises(
        ValueError,
        match=f"the batches ended after {len(batches)} of 3 steps: leave out epochs",
    ):
        train(tiny(), batches, 3, warmup_steps=2)


def test_perplexity_is_the_exponential_of_the_mean_loss_of_a_token() -> None:
    """Over batches of different sizes. Fails when the means of batches are averaged,
    and when padding counts."""
    model = tiny(dropout=0.5)
    value = perplexity(model, iter([SHORT, LONG]))
    total = sum(
        float(cross_entropy(model, batch, 0.0, "sum").detach())
        for batch in (SHORT, LONG)
    )
    assert not model.training
    assert value == pytest.approx(
        math.exp(total / (SHORT.tokens + LONG.tokens)), rel=1e-5
    )


def test_a_model_that_knows_nothing_chooses_among_the_whole_vocabulary() -> None:
    """Fails when the loss is smoothed or not in nats."""
    model = tiny()
    torch.nn.init.zeros_(model.embedding.weight)
    assert perplexity(model, [LONG]) == pytest.approx(VOCABULARY_SIZE, rel=1e-4)


def test_perplexity_of_nothing_is_named() -> None:
    """Fails when the division is left to Python."""
    with pytest.raises(ValueError, match="no target tokens to evaluate on"):
        perplexity(tiny(), [])


def test_accumulated_batches_are_the_large_batch() -> None:
    """In double precision, weights too. Fails when each batch is divided by its own
    tokens."""
    results = []
    for batches in ([SHORT, LONG], [WHOLE]):
        torch.manual_seed(1)
        model = tiny().double()
        optimizer, config = transformer_optimizer(model), TrainingConfig(warmup_steps=4)
        reports = [
            update(model, optimizer, batches, step, config) for step in (1, 2, 3)
        ]
        losses = [report.loss for report in reports]
        assert reports[0].tokens == WHOLE.tokens
        results.append((losses, model.state_dict()))
    assert SHORT.tokens != LONG.tokens and results[0][0] == pytest.approx(
        results[1][0], rel=1e-6
    )
    for name, ours in results[0][1].items():
        assert_close(ours, results[1][1][name], atol=1e-9, rtol=0)


def test_a_step_reports_the_norm_of_the_whole_gradient() -> None:
    """Fails when the norm is that of one tensor, or is taken after the clipping."""
    model, reports = tiny(), []
    for clip_norm in (None, 1e-3):
        twin = tiny()
        twin.load_state_dict(model.state_dict())
        config = TrainingConfig(warmup_steps=4, clip_norm=clip_norm)
        reports.append(update(twin, transformer_optimizer(twin), [WHOLE], 1, config))
    cross_entropy(model, WHOLE, 0.1, "mean").backward()
    expected = torch.cat([w.grad.flatten() for w in model.parameters()]).norm().item()
    assert [report.gradient_norm for report in reports] == pytest.approx([expected] * 2)


def test_clipping_shortens_the_gradient_and_keeps_its_direction() -> None:
    """Fails when each tensor is clipped by its own norm, and when a gradient below the
    threshold changes."""
    found = []
    for clip_norm in (None, 1e6, 0.5):
        torch.manual_seed(1)
        model = tiny()
        config = TrainingConfig(warmup_steps=4, clip_norm=clip_norm)
        update(model, transformer_optimizer(model), [WHOLE], 1, config)
        found.append(torch.cat([w.grad.flatten() for w in model.parameters()]))
    assert torch.equal(found[0], found[1]) and found[0].norm() > 0.6
    assert_close(found[2], found[0] * 0.5 / found[0].norm())


def test_every_parameter_group_gets_the_rate() -> None:
    """Fails when the rate of the first group alone is set: the base rate is zero, so
    the others would never be trained."""
    model = tiny()
    parameters = list(model.parameters())
    optimizer = transformer_optimizer(model)
    optimizer.param_groups[0]["params"] = parameters[:3]
    optimizer.add_param_group({"params": parameters[3:]})
    before = [parameter.clone() for parameter in parameters]
    update(model, optimizer, [WHOLE], 1, TrainingConfig(warmup_steps=4))
    moved = [not torch.equal(*pair) for pair in zip(before, parameters, strict=True)]
    assert all(moved)


def test_workers_are_asked_for_their_tokens_once_a_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fails when a step sends more over the network than its tokens and its loss."""
    sums = []

    def counted(value: Tensor) -> Tensor:
        sums.append(value)
        return value

    monkeypatch.setattr("annotated_transformer.training.sum_over_workers", counted)
    model = tiny()
    optimizer, config = transformer_optimizer(model), TrainingConfig(warmup_steps=4)
    report = update(model, optimizer, [SHORT, LONG], 1, config)
    assert len(sums) == 2 and report.tokens == SHORT.tokens + LONG.tokens


def test_mixed_precision_stays_near_and_its_loss_has_32_bits() -> None:
    """Fails when the option is ignored, and when the softmax of the loss is taken in 16
    bits."""
    losses = {}
    for precision in ("fp32", "bf16"):
        torch.manual_seed(2)
        model = tiny()
        optimizer = transformer_optimizer(model)
        config = TrainingConfig(warmup_steps=20, factor=0.2, precision=precision)
        losses[precision] = [
            update(model, optimizer, [WHOLE], step, config).loss
            for step in range(1, 31)
        ]
        assert all(parameter.dtype == torch.float32 for parameter in model.parameters())
    apart = max(abs(a - b) for a, b in zip(*losses.values(), strict=True))
    assert 0 < apart < 0.1 and losses["bf16"][-1] < losses["bf16"][0] - 0.5
    with torch.autocast("cpu", torch.bfloat16):
        assert batch_loss(model, WHOLE, 0.1)[0].dtype == torch.float32


@pytest.mark.parametrize(
    "choice",
    [
        {"steps": 0},
        {"accumulate": 0},
        {"accumulate": 2**31},
        {"smoothing": 1.0},
        {"factor": 0.0},
        {"factor": math.inf},
        {"factor": math.nan},
        {"seed": -1},
        {"seed": 2**63},
        {"precision": "fp8"},
        {"clip_norm": 0.0},
        {"clip_norm": math.nan},
    ],
)
def test_choices_that_make_no_run_are_refused(choice: dict) -> None:
    """With the value in the message. Fails when one of the checks is taken out."""
    ((name, value),) = choice.items()
    with pytest.raises(ValueError, match=f"{name} is {value!r}, expected"):
        TrainingConfig(**choice)


def test_the_chapters_commands_are_those_of_the_command_line() -> None:
    """Fails when the chapter names a command or an option that the command line does
    not have."""
    notebook = json.loads(
        (
            Path(__file__).resolve().parent.parent / "notebooks" / "11_training.ipynb"
        ).read_text()
    )
    prose = "\n".join(
        "".join(cell["source"])
        for cell in notebook["cells"]
        if cell["cell_type"] == "markdown"
    )
    prose = re.sub(r" *\\\n +", " ", prose)
    found = re.findall(
        r"(?:^    |`)(?:torchrun .* -m annotated_transformer|annotated-transformer)"
        r" ([^`\n]+)",
        prose,
        re.M,
    )
    assert {line.split()[0] for line in found} == {
        "prepare",
        "train",
        "average",
        "evaluate",
    }
    for line in found:
        name, *arguments = shlex.split(line)
        context = main.commands[name].make_context(name, arguments)
        if name == "train":
            assert (
                context.params["max_tokens"] * 8 == 25_000
                and context.params["config"] == "base"
            )
