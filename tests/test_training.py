"""Chapter 11: the loop, how good the model is, and runs that are interrupted, damaged
and shared."""

import io
import json
import math
import os
import pickle
import platform
import random
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count, cycle, repeat
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from conftest import VOCABULARY_SIZE
from torch import Tensor
from torch.testing import assert_close

from annotated_transformer.support.cli import main
from annotated_transformer.data import Batch, make_batch
from annotated_transformer.optimization import (
    transformer_learning_rate,
    transformer_optimizer,
)
from annotated_transformer.support.checkpoints import (
    digest_of,
    find_checkpoints,
    load_tensors,
    load_weights,
    save_tensors,
)
from annotated_transformer.support.runs import Trainer, choose_device
from annotated_transformer.training import (
    TrainingConfig,
    batch_loss,
    perplexity,
    train,
    update,
)
from annotated_transformer.transformer import Transformer, TransformerConfig

SHORT = make_batch([([5, 6], [7, 8]), ([9], [10])])
LONG = make_batch([([6, 5, 9, 11], [8, 7, 10, 12]), ([12], [11, 4]), ([4, 4], [5])])


def tiny(dropout: float = 0.0) -> Transformer:
    """A model that learns a batch by heart within a second."""
    return Transformer(
        TransformerConfig(VOCABULARY_SIZE, 1, 16, 32, 2, dropout=dropout, max_length=8)
    )


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


def test_one_batch_is_learned_by_heart() -> None:
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


def test_a_loss_that_is_no_number_stops_the_run() -> None:
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


def test_a_gradient_that_is_no_number_stops_the_run() -> None:
    """Under a loss that is one. Fails when the loss alone is looked at: the weights
    would be lost a step before it."""
    model = tiny()
    model.encoder.layers[0].feed_forward.contract.bias.register_hook(
        lambda gradient: gradient * math.inf
    )
    before = [parameter.clone() for parameter in model.parameters()]
    with pytest.raises(
        FloatingPointError,
        match="the gradient's length of step 1 is (inf|nan): lower factor",
    ):
        train(model, repeat(SHORT), 5, warmup_steps=2)
    for parameter, old in zip(model.parameters(), before, strict=True):
        assert_close(parameter, old, atol=0, rtol=0)


@pytest.mark.parametrize("scale", [1e5, math.nan])
def test_a_perplexity_that_is_no_number_is_an_error(scale: float) -> None:
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
    with pytest.raises(ValueError, match="no target tokens to judge the model by"):
        perplexity(tiny(), [])


# Several batches, one step


def small_run(
    folder: Path,
    steps: int = 6,
    save_every: int = 2,
    dropout: float = 0.3,
    **choices: float,
) -> Trainer:
    """A trainer of a small model that always starts from the same weights."""
    torch.manual_seed(5)
    return Trainer(
        tiny(dropout),
        TrainingConfig(steps, 256, warmup_steps=4, save_every=save_every, **choices),
        folder,
    )


def finished(trainer: Trainer) -> dict[str, Tensor]:
    """The weights of a run that has been brought to its end on the two batches, in
    turn."""
    assert trainer.run(cycle([SHORT, LONG]), [SHORT])
    return trainer.model.state_dict()


def assert_equal(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    """Assert that two sets of tensors are the same, bit for bit."""
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []


def log_of(folder: Path) -> list[dict]:
    """The entries of a run's log."""
    return [
        json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()
    ]


WHOLE = make_batch(
    [
        ([5, 6], [7, 8]),
        ([9], [10]),
        ([6, 5, 9, 11], [8, 7, 10, 12]),
        ([12], [11, 4]),
        ([4, 4], [5]),
    ]
)
"""The pairs of ``SHORT`` and ``LONG`` in one batch."""


def test_accumulated_batches_are_the_large_batch() -> None:
    """In double precision, weights too. Fails when each batch is divided by its own
    tokens."""
    results = []
    for batches in ([SHORT, LONG], [WHOLE]):
        torch.manual_seed(1)
        model = tiny().double()
        optimizer, config = transformer_optimizer(model), TrainingConfig(warmup_steps=4)
        losses = [update(model, optimizer, batches, step, config) for step in (1, 2, 3)]
        results.append((losses, model.state_dict()))
    assert SHORT.tokens != LONG.tokens and results[0][0] == pytest.approx(
        results[1][0], rel=1e-6
    )
    for name, ours in results[0][1].items():
        assert_close(ours, results[1][1][name], atol=1e-9, rtol=0)


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
            update(model, optimizer, [WHOLE], step, config) for step in range(1, 31)
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
    ],
)
def test_choices_that_make_no_run_are_refused(choice: dict) -> None:
    """With the value in the message. Fails when one of the checks is taken out."""
    ((name, value),) = choice.items()
    with pytest.raises(ValueError, match=f"{name} is {value!r}, expected"):
        TrainingConfig(**choice)


# Checkpoints


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A small checkpoint."""
    save_tensors(
        tmp_path / "small",
        {"a": torch.arange(6.0).view(2, 3), "b": torch.ones(1)},
        {"step": 7, "é": "ü"},
    )
    return tmp_path / "small"


def test_a_checkpoint_comes_back_as_it_was(checkpoint: Path) -> None:
    """Fails when a tensor or a fact is lost, and when the seal is left among the
    facts."""
    tensors, facts = load_tensors(checkpoint)
    assert_equal(tensors, {"a": torch.arange(6.0).view(2, 3), "b": torch.ones(1)})
    assert facts == {"step": 7, "é": "ü"}
    assert sorted(path.name for path in checkpoint.parent.iterdir()) == [
        "small.json",
        "small.safetensors",
    ]


@pytest.mark.parametrize("ending", ["safetensors", "json"])
def test_every_flipped_bit_is_found(checkpoint: Path, ending: str) -> None:
    """In the header, the tensors and the JSON. Fails when the digest leaves out any
    byte, or the facts."""
    file = checkpoint.with_name(f"small.{ending}")
    content = file.read_bytes()
    for place in range(len(content)):
        for bit in (0, 5, 7):
            file.write_bytes(
                content[:place]
                + bytes([content[place] ^ 1 << bit])
                + content[place + 1 :]
            )
            with pytest.raises(
                ValueError,
                match="damaged.*remove the two files, and take another checkpoint",
            ):
                load_tensors(checkpoint)


@pytest.mark.parametrize("ending", ["safetensors", "json"])
def test_a_file_that_breaks_off_is_found(checkpoint: Path, ending: str) -> None:
    """At each of its lengths. Fails when the digest is not compared."""
    file = checkpoint.with_name(f"small.{ending}")
    content = file.read_bytes()
    for length in range(len(content)):
        file.write_bytes(content[:length])
        with pytest.raises(ValueError, match="damaged"):
            load_tensors(checkpoint)


@pytest.mark.parametrize("seal", ["[1]", '"text"', "7", "null", "{}"])
def test_json_of_another_kind_is_found(checkpoint: Path, seal: str) -> None:
    """Fails with a TypeError or an AttributeError when only broken JSON is expected."""
    checkpoint.with_name("small.json").write_text(seal)
    with pytest.raises(ValueError, match="expected JSON with a sha256"):
        load_tensors(checkpoint)


@pytest.mark.parametrize("ending", ["safetensors", "json"])
def test_a_missing_half_is_named(checkpoint: Path, ending: str) -> None:
    """Fails when a file without its seal is read."""
    checkpoint.with_name(f"small.{ending}").unlink()
    with pytest.raises(
        FileNotFoundError,
        match=f"small.{ending} is not there: expected small.safetensors and",
    ):
        load_tensors(checkpoint)


class Trap:
    """An object whose pickle, when it is read, creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return Path.touch, (self.path,)


@pytest.mark.parametrize(
    "dump", [lambda trap, path: path.write_bytes(pickle.dumps(trap)), torch.save]
)
def test_a_pickle_is_never_executed(checkpoint: Path, dump: Callable) -> None:
    """Not even under a valid seal. Fails when files are read by ``pickle`` or by
    ``torch.load`` of old."""
    file, executed = (
        checkpoint.with_name("small.safetensors"),
        checkpoint.with_name("executed"),
    )
    dump(Trap(executed), file)
    sealed = {"sha256": digest_of(file.read_bytes(), {"step": 7}), "step": 7}
    checkpoint.with_name("small.json").write_text(json.dumps(sealed))
    with pytest.raises(
        ValueError, match="holds no safetensors .* pickles are never loaded"
    ):
        load_tensors(checkpoint)
    assert not executed.exists()
    if dump is not torch.save:
        pickle.loads(file.read_bytes())
        assert executed.exists(), "the trap is none"


def test_a_full_disk_keeps_the_checkpoint_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails when what was half-written stays, or counts as a checkpoint."""
    trainer = small_run(tmp_path, steps=2)
    finished(trainer)

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    trainer.step = 3
    with pytest.raises(OSError, match="No space left"):
        trainer.save()
    assert [path.name for path in find_checkpoints(tmp_path)] == ["step-00000002"]
    assert list(tmp_path.glob("*.partial")) == [] and load_tensors(
        find_checkpoints(tmp_path)[0]
    )


@pytest.mark.parametrize(
    "change",
    [
        {"d_model": 32},
        {"num_layers": 2},
        {"vocabulary_size": 30},
        {"positions": "learned"},
    ],
)
def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path, change: dict) -> None:
    """Before any weight changes. Fails when only names are compared, or only shapes."""
    finished(small_run(tmp_path))
    choices = {
        "vocabulary_size": VOCABULARY_SIZE,
        "num_layers": 1,
        "d_model": 16,
        "d_ff": 32,
        "num_heads": 2,
    } | change
    trainer = Trainer(
        Transformer(TransformerConfig(**choices, max_length=8)),
        TrainingConfig(),
        tmp_path,
    )
    before = {
        name: tensor.clone() for name, tensor in trainer.model.state_dict().items()
    }
    with pytest.raises(
        ValueError,
        match="step-00000006 does not fit: .* use the configuration and the vocabulary",
    ):
        trainer.resume()
    assert_equal(trainer.model.state_dict(), before)


# A run in a folder


def test_a_resumed_run_is_the_same_run(tmp_path: Path) -> None:
    """Weights, optimizer, log and count of tokens. Fails when Adam's state, the dropout
    or the place in the data is not brought back."""
    straight, broken = (
        small_run(tmp_path / "a", log_every=1),
        small_run(tmp_path / "b", log_every=1),
    )
    finished(straight)
    assert (
        broken.run(cycle([SHORT, LONG]), [SHORT], minutes=0) is False
        and broken.step == 1
    )
    for _ in range(5):  # a step at a time
        torch.manual_seed(99)
        broken = Trainer(tiny(0.3), broken.config, tmp_path / "b")
        broken.resume()
        done = broken.run(cycle([SHORT, LONG]), [SHORT], minutes=0)
    assert (
        done
        and broken.step == 6
        and broken.tokens == straight.tokens == 3 * (SHORT.tokens + LONG.tokens)
    )
    newest = [load_tensors(find_checkpoints(tmp_path / name)[-1])[0] for name in "ab"]
    assert_equal(*newest)
    losses = [
        [entry["loss"] for entry in log_of(tmp_path / name) if "loss" in entry]
        for name in "ab"
    ]
    assert losses[0] == losses[1] and len(losses[0]) == 6


FETCHING = """
import resource

import torch

from annotated_transformer.support.runs import keep_memory


def fetched():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(40):  # the first few may still make the heap grow
        torch.ones(2**24)  # 64 MiB: above 32, glibc never keeps memory by itself
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


print(fetched())
keep_memory()
fetched()
print(fetched())
"""


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="only glibc is told to keep memory"
)
def test_memory_that_is_freed_is_kept() -> None:
    """Fails when each large tensor of a training is fetched from the system anew."""
    ended = subprocess.run(
        [sys.executable, "-c", FETCHING], capture_output=True, text=True, check=True
    )
    fetched, kept = map(int, ended.stdout.split())
    assert kept < fetched / 10


def test_accumulation_survives_a_resume(tmp_path: Path) -> None:
    """Fails when a resumed run skips as many batches as steps, and not ``accumulate``
    times as many."""
    batches = [SHORT, LONG, LONG, WHOLE, SHORT, SHORT, LONG, WHOLE]
    weights = []
    for parts in (1, 2):
        folder = tmp_path / str(parts)
        for _ in range(parts):
            trainer = small_run(folder, steps=4, accumulate=2)
            trainer.resume()
            trainer.run(
                batches,
                [SHORT],
                minutes=0 if parts == 2 and trainer.step == 0 else math.inf,
            )
        weights.append(trainer.model.state_dict())
    assert_equal(*weights)


def test_a_run_that_is_done_stays_as_it_is(tmp_path: Path) -> None:
    """Fails when a resumed run at its end trains, logs or saves; more steps bring it
    further."""
    finished(small_run(tmp_path, log_every=1))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    again = small_run(tmp_path, log_every=1)
    again.resume()
    finished(again)
    assert (
        again.step == 6
        and {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    )
    further = small_run(tmp_path, steps=8)
    further.resume()
    assert_equal(finished(further), finished(small_run(tmp_path / "straight", steps=8)))


def test_the_log_and_the_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    """Fails when validation is not logged with each checkpoint, when a line is no JSON,
    or when too many stay."""
    finished(small_run(tmp_path, save_every=1, keep=2, log_every=2))
    assert [path.name for path in find_checkpoints(tmp_path)] == [
        "step-00000005",
        "step-00000006",
    ]
    assert len(list(tmp_path.glob("step-*"))) == 4
    entries = log_of(tmp_path)
    assert [entry["step"] for entry in entries if "loss" in entry] == [2, 4, 6]
    assert [entry["step"] for entry in entries if "validation_perplexity" in entry] == [
        1,
        2,
        3,
        4,
        5,
        6,
    ]
    assert entries[-1]["validation_perplexity"] < entries[0]["validation_perplexity"]


def test_what_a_killed_writer_left_is_cleared_away(tmp_path: Path) -> None:
    """Fails when a broken line of the log stops the run, when later steps stay in it,
    or leftovers fill the disk."""
    finished(small_run(tmp_path, log_every=1))
    (tmp_path / "step-00000007.safetensors").write_bytes(b"half")
    (tmp_path / "step-00000008.json.partial").write_bytes(b"{")
    with (tmp_path / "log.jsonl").open("ab") as file:
        file.write(
            b'{"step": 7, "loss": 1.0}\n'
            b'{"step": 8, "lo{"step": 3}\n[3]\n\xff\n{"step": 2'
        )
    trainer = small_run(tmp_path, steps=7, log_every=1)
    trainer.resume()
    finished(trainer)
    assert list(tmp_path.glob("*.partial")) == []
    assert [entry["step"] for entry in log_of(tmp_path) if "loss" in entry] == [
        1,
        2,
        3,
        4,
        5,
        6,
        7,
    ]
    assert load_tensors(tmp_path / "step-00000007")[1]["step"] == 7


def test_a_new_run_does_not_continue_an_old_log(tmp_path: Path) -> None:
    """Of a run that was killed before its first checkpoint. Fails when the log is not
    begun anew."""
    (tmp_path / "log.jsonl").write_text('{"step": 1, "loss": 99.0}\n')
    finished(small_run(tmp_path, log_every=1))
    assert [entry["step"] for entry in log_of(tmp_path) if "loss" in entry] == [
        1,
        2,
        3,
        4,
        5,
        6,
    ]


def test_a_folder_with_a_later_step_is_refused(tmp_path: Path) -> None:
    """And left alone. Fails when a run that was not resumed clears the log and the
    checkpoints of the one before."""
    finished(small_run(tmp_path))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(
        ValueError, match=r"step-00000006 is of a later step than 0: call resume first"
    ):
        small_run(tmp_path).run(cycle([SHORT, LONG]), [SHORT])
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_matrix_that_two_modules_share_is_saved(tmp_path: Path) -> None:
    """Fails when shared memory, as in the recurrent translator, cannot be written."""
    matrix = torch.randn(2, 3)
    save_tensors(tmp_path / "shared", {"a": matrix, "b": matrix}, {})
    tensors, _ = load_tensors(tmp_path / "shared")
    assert torch.equal(tensors["a"], matrix) and torch.equal(tensors["b"], matrix)


class Terminal(io.StringIO):
    """Standard error as a terminal."""

    def isatty(self) -> bool:
        return True


def test_the_progress_bar_shows_steps_and_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is somebody to look. Fails when the bar is not made, or begins at
    zero after a resume."""
    for steps, expected in ((4, "4/4"), (6, "6/6")):
        monkeypatch.setattr("sys.stderr", Terminal())
        trainer = small_run(tmp_path, steps=steps)
        trainer.resume()
        finished(trainer)
        assert expected in sys.stderr.getvalue() and "loss=" in sys.stderr.getvalue()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_stops(tmp_path: Path, number: signal.Signals) -> None:
    """After the step that it came in. Fails when the signal ends the process, or is
    forgotten afterwards."""
    before = signal.getsignal(number)

    def interrupting() -> Iterator[Batch]:
        for step, batch in enumerate(cycle([SHORT, LONG]), start=1):
            if step == 3:
                os.kill(os.getpid(), number)
            yield batch

    trainer = small_run(tmp_path, save_every=100)
    assert trainer.run(interrupting(), [SHORT]) is False
    assert trainer.step == 3 and [path.name for path in find_checkpoints(tmp_path)] == [
        "step-00000003"
    ]
    assert signal.getsignal(number) is before
    resumed = small_run(tmp_path)
    resumed.resume()
    assert_equal(finished(resumed), finished(small_run(tmp_path / "straight")))


def test_a_run_outside_of_the_main_thread(tmp_path: Path) -> None:
    """Fails with a ValueError when signals are caught where Python does not let them
    be."""
    results = []
    thread = threading.Thread(
        target=lambda: results.append(
            small_run(tmp_path).run(cycle([SHORT, LONG]), [SHORT])
        )
    )
    thread.start()
    thread.join()
    assert results == [True]


def test_batches_that_end_too_early_are_named_with_the_step(tmp_path: Path) -> None:
    """Fails when an incomplete step is taken."""
    with pytest.raises(ValueError, match="the batches ended after 1 of 6 steps"):
        small_run(tmp_path, accumulate=2).run([SHORT, LONG, SHORT], [SHORT])


def test_a_loss_that_is_no_number_leaves_its_batch(tmp_path: Path) -> None:
    """And the weights that met it: loaded into a fresh model, they give it again. Fails
    when either is not saved, or when it is the batch of another step."""
    model = Transformer(
        TransformerConfig(
            VOCABULARY_SIZE, 1, 16, 32, 2, positions="learned", max_length=8
        )
    )
    with torch.no_grad():
        model.positions.table[4] = math.inf  # which only LONG reaches
    trainer = Trainer(model, TrainingConfig(6, 256, warmup_steps=4), tmp_path)
    with pytest.raises(
        FloatingPointError,
        match="the loss of step 3 is nan: .*; the batch was saved as .*bad-batch-0",
    ):
        trainer.run([SHORT, SHORT, LONG, SHORT], [SHORT])
    assert trainer.step == 2
    tensors, facts = load_tensors(tmp_path / "bad-batch-0")
    batch = Batch(
        *(tensors[f"0.{name}"] for name in ("source", "target_input", "target_output"))
    )
    assert facts["step"] == 3 and torch.equal(batch.source, LONG.source)
    fresh = Transformer(
        TransformerConfig(
            VOCABULARY_SIZE, 1, 16, 32, 2, positions="learned", max_length=8
        )
    )
    assert math.isfinite(batch_loss(fresh, batch, 0.1)[0].item())
    weights = {
        name.removeprefix("model."): t
        for name, t in tensors.items()
        if name.startswith("model.")
    }
    load_weights(fresh, weights, "bad-batch-0")
    assert math.isnan(batch_loss(fresh, batch, 0.1)[0].item())
    assert_equal(trainer.model.state_dict(), fresh.state_dict())


# Killed at any moment


def die_before(moment: int, folder: Path) -> None:
    """From now on, let this process kill itself before file operation number ``moment``
    in ``folder``."""
    count = 0

    def hook(event: str, arguments: tuple) -> None:
        nonlocal count
        if event in ("open", "os.rename", "os.remove") and str(folder) in str(
            arguments[0]
        ):
            count += 1
            if count == moment:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_killed_before_any_file_operation(tmp_path: Path) -> None:
    """A child process kills itself (SIGKILL) before its first, second, third ...
    opened, renamed or removed file, of a run that saves at every step. Fails when any
    of these moments leaves a folder that does not lead to the same run."""
    straight = finished(small_run(tmp_path / "straight", steps=3, save_every=1, keep=1))
    moment, killed = 0, True
    while killed:
        moment += 1
        folder = tmp_path / str(moment)
        child = os.fork()
        if child == 0:
            try:
                die_before(moment, folder)
                finished(small_run(folder, steps=3, save_every=1, keep=1))
            finally:
                os._exit(0)
        killed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        trainer = small_run(folder, steps=3, save_every=1, keep=1)
        trainer.resume()
        assert_equal(finished(trainer), straight)
        left = {path.name for path in folder.iterdir()}
        sealed = {
            f"{path.name}.{ending}"
            for path in find_checkpoints(folder)
            for ending in ("safetensors", "json")
        }
        assert left == sealed | {"log.jsonl"}, "half a checkpoint was left"
    assert moment > 30


SCRIPT = """
import os, signal, sys
from itertools import cycle
import torch
from annotated_transformer.data import make_batch
from annotated_transformer.support.runs import Trainer, workers
from annotated_transformer.training import TrainingConfig
from annotated_transformer.transformer import Transformer, TransformerConfig

folder, steps, accumulate, dropout, dies_at = sys.argv[1], *map(float, sys.argv[2:])
torch.set_num_threads(1)
pairs = [([5 + i % 7] * (1 + i % 3), [5 + i % 11] * (1 + i % 5)) for i in range(40)]

def batches(rank, world_size):
    for number, start in enumerate(cycle(range(0, 40, 4))):
        if number % world_size == rank:
            if rank == 1 and number == dies_at:
                os.kill(os.getpid(), signal.SIGKILL)
            yield make_batch(pairs[start : start + 4])

with workers(torch.device("cpu")) as (rank, world_size):
    torch.manual_seed(0)
    shape = TransformerConfig(20, 1, 16, 32, 2, dropout=dropout, max_length=8)
    model = Transformer(shape)
    config = TrainingConfig(
        int(steps), 256, int(accumulate), warmup_steps=10,
        save_every=2, keep=1000, log_every=1,
    )
    trainer = Trainer(model, config, folder)
    trainer.resume()
    trainer.run(batches(rank, world_size), [next(batches(0, 1))])
"""


def test_processor_time_is_that_of_all_workers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Fails when a run of several processes counts the time of its first one alone.
    Each look at the clock is 1 s."""
    seconds = count()
    monkeypatch.setattr(
        "annotated_transformer.training.time.process_time", lambda: next(seconds)
    )
    monkeypatch.setattr(
        "annotated_transformer.training.sum_over_workers", lambda value: 2 * value
    )  # a twin elsewhere
    trainer = Trainer(tiny(), TrainingConfig(3, 256, warmup_steps=4), tmp_path)
    assert trainer.run(repeat(LONG), [SHORT]) and trainer.cpu_seconds == 2 * 3


TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., subprocess.Popen]:
    """Start ``SCRIPT``; its arguments are a folder, steps, accumulate, dropout and the
    batch at which rank 1 dies."""
    script = tmp_path_factory.mktemp("script") / "worker.py"
    script.write_text(SCRIPT)
    root = str(Path(__file__).resolve().parent.parent)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    }

    def started(
        folder: Path, *arguments: float, launcher: Sequence[str] = ()
    ) -> subprocess.Popen:
        command = [
            sys.executable,
            *launcher,
            str(script),
            str(folder),
            *map(str, arguments),
        ]
        return subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return started


def test_killed_at_random_moments(tmp_path: Path, start: Callable) -> None:
    """A process with dropout and a checkpoint every other step, killed (SIGKILL) again
    and again, and the run without interruption. Fails when anything but the number of
    the step decides how it goes on."""
    straight = start(tmp_path / "straight", 120, 1, 0.3, -1)
    rng, kills = random.Random(0), 0
    for _ in range(4):
        known = len(find_checkpoints(tmp_path / "killed"))
        process = start(tmp_path / "killed", 120, 1, 0.3, -1)
        while (
            len(find_checkpoints(tmp_path / "killed")) <= known
            and process.poll() is None
        ):
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.1))
        process.kill()
        process.communicate()
        kills += process.returncode == -signal.SIGKILL
    assert kills >= 1
    process = start(tmp_path / "killed", 120, 1, 0.3, -1)
    for each in (straight, process):
        _, errors = each.communicate(timeout=120)
        assert each.returncode == 0, errors
    runs = [
        load_tensors(tmp_path / name / "step-00000120")
        for name in ("straight", "killed")
    ]
    assert_equal(runs[0][0], runs[1][0])
    losses = [
        [entry["loss"] for entry in log_of(tmp_path / n) if "loss" in entry]
        for n in ("straight", "killed")
    ]
    assert losses[0] == losses[1] and len(losses[0]) == 120


# Several processes


def test_two_workers_are_one_with_two_batches(tmp_path: Path, start: Callable) -> None:
    """The same losses, weights and tokens. Fails when the gradients are averaged over
    the workers but the loss is not divided by all their tokens, and when a worker's
    batches are not its own."""
    alone = start(tmp_path / "alone", 12, 2, 0.0, -1)
    together = start(tmp_path / "together", 12, 1, 0.0, -1, launcher=TORCHRUN)
    for process in (alone, together):
        _, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors
    (ours, our_facts), (theirs, their_facts) = (
        load_tensors(tmp_path / name / "step-00000012")
        for name in ("alone", "together")
    )
    for name in ours:
        assert_close(ours[name], theirs[name], atol=1e-5, rtol=0)
    logs = [
        [entry["loss"] for entry in log_of(tmp_path / name) if "loss" in entry]
        for name in ("alone", "together")
    ]
    assert logs[0] == pytest.approx(logs[1], abs=1e-5) and len(logs[0]) == 12
    assert our_facts["tokens"] == their_facts["tokens"]


def test_a_worker_that_dies_ends_the_run(tmp_path: Path, start: Callable) -> None:
    """With an error code, and a checkpoint to go on from. Fails (by its time limit)
    when the other worker waits for ever, and when the end is taken for a good one."""
    process = start(
        tmp_path, 1000, 1, 0.0, 9, launcher=TORCHRUN
    )  # rank 1 dies before its fifth step
    _, errors = process.communicate(timeout=120)
    assert process.returncode > 0 and ("SIGKILL" in errors or "-9" in errors)
    newest = find_checkpoints(tmp_path)[-1]
    assert newest.name == "step-00000004"
    trainer = Trainer(
        Transformer(TransformerConfig(20, 1, 16, 32, 2, max_length=8)),
        TrainingConfig(5, save_every=9),
        tmp_path,
    )
    trainer.resume()
    assert trainer.step == 4 and trainer.run(cycle([SHORT]), [SHORT])


GROUP = """
import weakref
from torch import device, distributed, nn
from annotated_transformer.support.runs import workers
with workers(device("cpu")):
    group = weakref.ref(distributed.group.WORLD)
    nn.parallel.DistributedDataParallel(nn.Linear(2, 2))
assert group() is None, "the group is still there"
"""


def test_the_group_of_the_workers_ends_with_them() -> None:
    """A process of its own, which has imported nothing else. Fails when something holds
    the group for longer: its threads then meet the end of the interpreter, which can
    abort a worker that has done all its work."""
    lone = {
        "WORLD_SIZE": "1",
        "RANK": "0",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": "0",
    }
    ended = subprocess.run(
        [sys.executable, "-c", GROUP],
        env=os.environ | lone,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr


# Devices and commands


def test_a_device_that_is_not_there_is_named() -> None:
    """Fails when torch is left to complain in its own words, or another device is taken
    than the one named."""
    assert choose_device("cpu") == torch.device("cpu")
    with pytest.raises(
        ValueError,
        match="device 'tpu' is not available here: expected one of auto, .*cpu",
    ):
        choose_device("tpu")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="device 'cuda' is not available here"):
            choose_device("cuda")


@pytest.mark.parametrize(
    "there, best",
    [
        (("cuda", "mps"), "cuda:1"),
        (("cuda",), "cuda:1"),
        (("mps",), "mps"),
        ((), "cpu"),
    ],
)
def test_auto_takes_the_best_device_and_the_workers_own_gpu(
    there: tuple[str, ...], best: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails when a slower device goes before a faster one, and when two workers share
    the first GPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: "cuda" in there)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: "mps" in there)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert choose_device() == torch.device(best)
    assert choose_device("cpu") == torch.device("cpu")


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
