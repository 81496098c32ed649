"""Runs that are interrupted, damaged, killed and shared by several workers."""

import io
import math
import os
import platform
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count, cycle, repeat
from pathlib import Path

import pytest
import torch
from conftest import VOCABULARY_SIZE
from small_runs import (
    LONG,
    SHORT,
    WHOLE,
    assert_equal,
    finished,
    log_of,
    small_run,
    tiny,
)
from torch.testing import assert_close

from annotated_transformer.data import Batch
from annotated_transformer.support import precision
from annotated_transformer.support.checkpoints import (
    find_checkpoints,
    load_tensors,
    load_weights,
    training_tensors,
    weights_of,
)
from annotated_transformer.support.runs import Trainer, choose_device, workers
from annotated_transformer.training import TrainingConfig, batch_loss
from annotated_transformer.transformer import Transformer, TransformerConfig


def test_a_resumed_run_is_the_same_run(tmp_path: Path) -> None:
    """Weights, optimizer, log and count of tokens. Fails when Adam's state, the dropout
    or the position in the data is not brought back."""
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


@pytest.mark.slow
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


@pytest.mark.slow
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


ALONE = {
    "WORLD_SIZE": "1",
    "RANK": "0",
    "MASTER_ADDR": "localhost",
    "MASTER_PORT": "0",
}
"""What ``torchrun`` tells a single worker."""


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
@pytest.mark.parametrize("read_every", [1, 50])
def test_a_signal_saves_and_stops(
    tmp_path: Path, number: signal.Signals, read_every: int
) -> None:
    """After the step that it came in. Fails when the signal ends the process, waits for
    the next line of the log, or is forgotten afterwards."""
    before = signal.getsignal(number)

    def interrupting() -> Iterator[Batch]:
        for step, batch in enumerate(cycle([SHORT, LONG]), start=1):
            if step == 3:
                os.kill(os.getpid(), number)
            yield batch

    trainer = small_run(tmp_path, save_every=100)
    trainer.read_every = read_every
    assert trainer.run(interrupting(), [SHORT]) is False
    assert trainer.step == 3 and [path.name for path in find_checkpoints(tmp_path)] == [
        "step-00000003"
    ]
    assert signal.getsignal(number) is before
    resumed = small_run(tmp_path)
    resumed.resume()
    assert_equal(finished(resumed), finished(small_run(tmp_path / "straight")))


@pytest.mark.slow
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


def spoilable() -> Transformer:
    """A model that ``LONG`` alone can spoil: it reaches the fifth position."""
    torch.manual_seed(5)
    shape = TransformerConfig(VOCABULARY_SIZE, 1, 16, 32, 2, positions="learned")
    return Transformer(replace(shape, max_length=8, dropout=0.3))


@pytest.mark.parametrize("read_every", [1, 2, 4, 100])
def test_a_loss_that_is_not_finite_leaves_its_batch(
    tmp_path: Path, read_every: int
) -> None:
    """And the weights that met it: loaded into a fresh model, they give it again. Fails
    when either is not saved, when it is the batch of another step, and when a step
    after it, which is read back no sooner, moves a weight or one of Adam's moments."""
    model, config = spoilable(), TrainingConfig(4, 256, warmup_steps=4, log_every=100)
    with torch.no_grad():
        model.positions.table[4] = math.inf  # which only LONG reaches
    trainer = Trainer(model, config, tmp_path)
    trainer.read_every = read_every
    with pytest.raises(
        FloatingPointError,
        match="the loss of step 3 is nan: .*; the batch was saved as .*bad-batch-0",
    ):
        trainer.run([SHORT, SHORT, LONG, SHORT], [SHORT])
    assert trainer.step == 2 and trainer.tokens == 2 * SHORT.tokens
    tensors, facts = load_tensors(tmp_path / "bad-batch-0")
    batch = Batch(
        *(tensors[f"0.{name}"] for name in ("source", "target_input", "target_output"))
    )
    assert facts["step"] == 3 and torch.equal(batch.source, LONG.source)
    fresh = spoilable()
    assert math.isfinite(batch_loss(fresh, batch, 0.1)[0].item())
    load_weights(fresh, weights_of(tensors), "bad-batch-0")
    assert math.isnan(batch_loss(fresh, batch, 0.1)[0].item())
    assert_equal(trainer.model.state_dict(), fresh.state_dict())

    never = Trainer(spoilable(), replace(config, steps=2), tmp_path / "never")
    never.model.positions.table.data[4] = math.inf
    never.run([SHORT, SHORT], [SHORT])
    assert_equal(*(training_tensors(t.model, t.optimizer) for t in (trainer, never)))


@pytest.mark.parametrize("read_every", [1, 3])
def test_a_run_can_go_on_after_a_step_that_is_not_finite(
    tmp_path: Path, read_every: int
) -> None:
    """Under a loss that is finite, with other batches. Fails when a gradient is not
    looked at, and when the flag of the bad step stays."""
    straight = small_run(tmp_path / "straight", steps=4, dropout=0.3)
    straight.run(repeat(SHORT), [SHORT])
    trainer = small_run(tmp_path / "again", steps=4, save_every=100)
    trainer.read_every = read_every
    bias = trainer.model.encoder.layers[0].feed_forward.contract.bias
    hook = bias.register_hook(lambda g: g * (math.inf if trainer.step == 1 else 1))
    with pytest.raises(FloatingPointError, match="the gradient norm of step 2 is"):
        trainer.run(repeat(SHORT), [SHORT])
    hook.remove()
    assert trainer.step == 1 and trainer.run(repeat(SHORT), [SHORT])
    assert trainer.tokens == straight.tokens
    assert_equal(*(training_tensors(t.model, t.optimizer) for t in (trainer, straight)))


@pytest.mark.parametrize("read_every", [2, 3, 100])
def test_a_run_does_not_depend_on_when_it_is_read_back(
    tmp_path: Path, read_every: int
) -> None:
    """Interrupted or not: weights, Adam's state, log and tokens. Fails when a step is
    counted twice or not at all, or logs the loss of another one."""
    often, seldom = (
        small_run(tmp_path / name, steps=8, save_every=5, log_every=4)
        for name in ("often", "seldom")
    )
    finished(often)
    seldom.read_every = read_every
    assert seldom.run(cycle([SHORT, LONG]), [SHORT], minutes=0) is False
    assert seldom.step == 1 and seldom.unread == []
    seldom = small_run(tmp_path / "seldom", steps=8, save_every=5, log_every=4)
    seldom.read_every = read_every
    seldom.resume()
    finished(seldom)
    assert seldom.tokens == often.tokens
    assert_equal(*(training_tensors(t.model, t.optimizer) for t in (often, seldom)))
    logs = [
        [
            {name: entry[name] for name in entry if name != "seconds"}
            for entry in log_of(tmp_path / name)
            if "loss" in entry
        ]
        for name in ("often", "seldom")
    ]
    assert logs[0] == logs[1] and [entry["step"] for entry in logs[0]] == [4, 8]


class Plain(torch.optim.Adam):
    """Adam as the meta device has it, which does not know the flag."""

    def step(self) -> None:
        assert self.found_inf.is_meta
        del self.found_inf
        super().step()


@pytest.mark.parametrize("clip_norm", [None, 1.0])
def test_steps_read_no_number_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clip_norm: float | None
) -> None:
    """On the meta device, which has none. Fails when a GPU would be waited for between
    two lines of the log."""
    monkeypatch.setattr(
        "annotated_transformer.support.runs.transformer_optimizer",
        lambda model, fused: Plain(model.parameters()),
    )
    config = TrainingConfig(6, 256, accumulate=2, clip_norm=clip_norm, log_every=4)
    trainer = Trainer(tiny(0.3).to("meta"), config, tmp_path)
    model, loss_of = trainer.training_model()
    assert trainer.read_every == 4
    for _ in range(3):
        trainer.train_step(model, loss_of, [SHORT, LONG])
    assert trainer.step == len(trainer.unread) == 3
    with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
        trainer.read_back()


def test_workers_read_back_after_the_same_steps(tmp_path: Path) -> None:
    """Fails when one of several workers stops by itself, while the others go on and
    wait for it."""
    trainer = small_run(tmp_path, steps=11, save_every=5, log_every=4)
    trainer.read_every = 4
    for number, stop, expected in (
        (1, False, [4, 5, 8, 10, 11]),
        (2, False, [4, 5, 8, 10, 11]),
        (2, True, [4, 5, 8, 10, 11]),
        (1, True, [*range(1, 12)]),
    ):
        trainer.workers, found = number, []
        for trainer.step in range(1, 12):
            found += [trainer.step] if trainer.reads_back(stop) else []
        assert found == expected


def test_buffers_are_not_broadcast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails when each step sends the table of sines and cosines to all workers."""
    for name, value in ALONE.items():
        monkeypatch.setenv(name, value)
    with workers(torch.device("cpu")):
        trainer = small_run(tmp_path)
        trainer.workers = 2
        model, _ = trainer.training_model()
        assert [*model.buffers()] and not model.will_sync_module_buffers()


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


@pytest.mark.slow
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
        whole = {
            f"{path.name}.{ending}"
            for path in find_checkpoints(folder)
            for ending in ("safetensors", "json")
        }
        assert left == whole | {"log.jsonl"}, "half a checkpoint was left"
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
        "annotated_transformer.support.runs.time.process_time", lambda: next(seconds)
    )
    monkeypatch.setattr(
        "annotated_transformer.support.runs.sum_over_workers", lambda value: 2 * value
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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
    again = start(tmp_path, 6, 1, 0.0, -1, launcher=TORCHRUN)
    _, errors = again.communicate(timeout=120)
    assert again.returncode == 0, errors
    assert find_checkpoints(tmp_path)[-1].name == "step-00000006"


@pytest.mark.parametrize(
    "name, value, old",
    [("seed", 1, 0), ("accumulate", 2, 1), ("max_tokens", 512, 256)],
)
def test_a_run_with_other_batches_or_masks_is_refused(
    tmp_path: Path, name: str, value: int, old: int
) -> None:
    """With value, expectation and way out. Fails when half a run reads other batches,
    or draws other dropout masks, than the other half."""
    finished(small_run(tmp_path))
    config = {"steps": 8, "max_tokens": 256, "warmup_steps": 4} | {name: value}
    trainer = Trainer(tiny(), TrainingConfig(**config), tmp_path)
    with pytest.raises(
        ValueError,
        match=f"{name} is {value} in this run, expected {old} as in .*step-00000006: "
        "go on with the same, or begin anew in another folder",
    ):
        trainer.resume()
    assert trainer.step == 0


def test_a_run_of_other_workers_is_refused(tmp_path: Path) -> None:
    """Fails when one process goes on with the shards of two."""
    finished(small_run(tmp_path))
    trainer = small_run(tmp_path)
    trainer.workers = 2
    with pytest.raises(ValueError, match="workers is 2 in this run, expected 1 as in"):
        trainer.resume()


GROUP = """
import weakref
from torch import device, distributed, nn
from annotated_transformer.support.runs import workers
with workers(device("cpu")):
    group = weakref.ref(distributed.group.WORLD)
    nn.parallel.DistributedDataParallel(nn.Linear(2, 2))
assert group() is None, "the group is still there"
"""


@pytest.mark.slow
def test_the_group_of_the_workers_ends_with_them() -> None:
    """A process of its own, which has imported nothing else. Fails when something holds
    the group for longer: its threads then meet the end of the interpreter, which can
    abort a worker that has done all its work."""
    ended = subprocess.run(
        [sys.executable, "-c", GROUP],
        env=os.environ | ALONE,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr


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


@pytest.mark.parametrize(
    ("asked", "speed", "chosen", "says"),
    [
        ("auto", 4.0, "bf16", "precision bf16: bfloat16 products are 4.0 times"),
        (None, 0.1, "fp32", "precision fp32: bfloat16 products are 0.1 times"),
        ("auto", 1.5, "fp32", "precision fp32"),
        ("bf16", 0.1, "bf16", "0.1 times as fast as fp32's here: fp32 trains faster"),
        ("bf16", 4.0, "bf16", ""),
        ("fp32", 4.0, "fp32", ""),
    ],
)
def test_precision_chooses_itself(monkeypatch, asked, speed, chosen, says):
    """Fails when a CPU that is slow in 16 bits gets them, when one that is fast does
    not, or when a slow choice goes by without a word."""
    monkeypatch.setattr(precision, "bf16_speed", lambda device: speed)
    found, why = precision.choose_precision(asked, torch.device("cpu"))
    assert found == chosen and says in why and bool(why) == bool(says)


def test_precision_is_measured():
    """Fails when the measurement gives no ratio of times."""
    speed = precision.bf16_speed(torch.device("cpu"), size=64, tries=3)
    assert 0 < speed < 1000
