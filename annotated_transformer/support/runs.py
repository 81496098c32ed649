"""A training run that survives an interruption, on one worker or on several; appendix
C tells how."""

import ctypes
import json
import math
import os
import random
import signal
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist

# Before there is a group of workers: imported later, it would keep that group alive.
import torch.distributed.nn
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from tqdm.auto import tqdm

from ..data import Batch
from ..optimization import transformer_optimizer
from ..speed import FastTraining, packed_loss
from ..training import (
    LossFunction,
    StepReport,
    TrainingConfig,
    batch_loss,
    perplexity,
    step_gradient,
    sum_over_workers,
)
from ..transformer import Transformer
from .checkpoints import (
    find_checkpoints,
    load_tensors,
    remove_old,
    restore_tensors,
    save_tensors,
    tidy_folder,
    training_tensors,
)
from .checks import check_enough_batches, check_finite_step
from .files import naming

# What a step depends on


def seed_step(seed: int, step: int, rank: int) -> None:
    """Seed PyTorch for one step of one worker.

    What dropout draws depends on these three numbers and on nothing before.
    """
    torch.manual_seed(random.Random(f"{seed} {step} {rank}").getrandbits(63))


def step_batches(
    batches: Iterable[Batch], steps: int, accumulate: int = 1, done: int = 0
) -> Iterator[list[Batch]]:
    """The batches of step ``done + 1``, of the next, and so on to ``steps``.

    Each step takes ``accumulate`` of them, and ``batches`` begin with those of step 1.
    Raises ValueError where they end too early.
    """
    batches = islice(batches, done * accumulate, None)
    for step in range(done, steps):
        group = list(islice(batches, accumulate))
        if len(group) < accumulate:
            check_enough_batches(step, steps)
        yield group


# A run in its folder


class SavedRun:
    """A model and its optimizer in training, with a log and checkpoints in ``folder``.

    ``facts``, what JSON can hold, go into each checkpoint. Within ``workers`` this is
    the run of one of them; the first one, rank 0, writes.
    """

    def __init__(
        self,
        model: nn.Module,
        config: TrainingConfig,
        folder: Path | str,
        facts: dict | None = None,
    ) -> None:
        self.model, self.config = model, config
        self.folder, self.facts = Path(folder), facts or {}
        self.optimizer = transformer_optimizer(model, fused=True)
        self.device = next(model.parameters()).device
        self.step, self.tokens, self.seconds, self.cpu_seconds = 0, 0, 0.0, 0.0
        self.rank, self.workers = 0, 1
        if dist.is_initialized():
            self.rank, self.workers = dist.get_rank(), dist.get_world_size()

    def log(self, **entry: float) -> None:
        """Add a line of JSON to ``log.jsonl``."""
        log = self.folder / "log.jsonl"
        with naming(log), log.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": self.step, **entry}) + "\n")

    def save(self) -> None:
        """Write a checkpoint of this step, and remove those that are too old.

        Raises OSError where it cannot be written.
        """
        progress = {
            "training": asdict(self.config),
            "workers": self.workers,
            "step": self.step,
            "tokens": self.tokens,
            "seconds": round(self.seconds, 1),
            "cpu_seconds": round(self.cpu_seconds, 1),
        }
        path = self.folder / f"step-{self.step:08}"
        tensors = training_tensors(self.model, self.optimizer)
        save_tensors(path, tensors, self.facts | progress)
        remove_old(self.folder, self.config.keep)

    def resume(self) -> None:
        """Go back to the newest checkpoint; where there is none, stay at step 0.

        Raises ValueError where this run would read other batches or draw other dropout
        masks than the run of the checkpoint, and what reading it raises.
        """
        if not (checkpoints := find_checkpoints(self.folder)):
            return
        tensors, facts = load_tensors(checkpoints[-1])
        self.check_same_run(facts, checkpoints[-1])
        restore_tensors(self.model, self.optimizer, tensors, checkpoints[-1])
        self.step, self.tokens = facts["step"], facts["tokens"]
        self.seconds, self.cpu_seconds = facts["seconds"], facts["cpu_seconds"]

    def check_same_run(self, facts: dict, name: Path) -> None:
        """Raise ValueError unless the checkpoint ``name`` is of a run like this one.

        What decides which batches and which dropout masks come next must be equal.
        """
        old = facts.get("training", {}) | {"workers": facts.get("workers")}
        own = asdict(self.config) | {"workers": self.workers}
        for key in ("seed", "accumulate", "max_tokens", "workers"):
            if old.get(key) is not None and old[key] != own[key]:
                raise ValueError(
                    f"{key} is {own[key]} in this run, expected {old[key]} as in "
                    f"{name}: go on with the same, or begin anew in another folder"
                )

    def record(
        self, report: StepReport, validation: Sequence[Batch], last: bool
    ) -> None:
        """Write what is due after a step.

        That is a line of the log, or a checkpoint with its held-out perplexity.
        """
        if self.step % self.config.log_every == 0:
            self.log(
                loss=report.loss,
                gradient_norm=report.gradient_norm,
                tokens=self.tokens,
                seconds=round(self.seconds, 1),
            )
        if last or self.step % self.config.save_every == 0:
            self.log(validation_perplexity=perplexity(self.model, validation))
            self.save()


# The loop


@contextmanager
def interruptible() -> Iterator[list[int]]:
    """Within the block, SIGINT (Ctrl-C) and SIGTERM stop nothing: they land in a list.

    Yields that list. Python hands signals to its main thread alone: in another thread
    the list stays empty.
    """
    received: list[int] = []
    in_main_thread = threading.current_thread() is threading.main_thread()
    signals = (signal.SIGINT, signal.SIGTERM) if in_main_thread else ()

    def note(number: int, frame: object) -> None:
        received.append(number)

    before = [signal.signal(number, note) for number in signals]
    try:
        yield received
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)


class Unread(NamedTuple):
    """A step that was taken, and of which nothing has been read back."""

    batches: list[Batch]
    measured: tuple[Tensor, Tensor, Tensor]
    """Loss, tokens and gradient norm, on the device."""


class Trainer(SavedRun):
    """A run that can be interrupted at any moment, alone or as one of several workers.

    Section 5.2. All workers have the model and the optimizer whole; each reads its own
    shard of the batches.

    Whoever reads a number back from a GPU waits until it has done all that it was
    given, and it then waits for more. So what a step measures is read back every
    ``read_every`` steps: each step on a CPU, where nobody waits, and otherwise
    ``log_every`` steps, before each checkpoint, and at the end.
    """

    def __init__(
        self,
        model: nn.Module,
        config: TrainingConfig,
        folder: Path | str,
        facts: dict | None = None,
    ) -> None:
        super().__init__(model, config, folder, facts)
        self.read_every = 1 if self.device.type == "cpu" else config.log_every
        self.unread: list[Unread] = []
        self.broken = torch.zeros((), device=self.device)  # 1 from a bad step on

    def training_model(self) -> tuple[nn.Module, LossFunction]:
        """What computes the loss, and the function that asks it for one.

        A ``Transformer`` takes the fast way of appendix D; several workers add up their
        gradients.
        """
        fast = type(self.model) is Transformer
        model = FastTraining(self.model) if fast else self.model
        if self.workers > 1:  # the only buffers are constant: nothing to send for them
            with warnings.catch_warnings():  # newer versions have another name for it
                warnings.simplefilter("ignore", FutureWarning)
                model = DistributedDataParallel(model, broadcast_buffers=False)
        return model, packed_loss if fast else batch_loss

    def train_step(
        self, model: nn.Module, loss_of: LossFunction, batches: list[Batch]
    ) -> None:
        """One step on ``batches``, with what ``training_model`` returned.

        It reads no number back. From the first step on whose loss or gradient norm is
        not finite, the weights stay as they are: the fused Adam looks at ``found_inf``
        where the weights are, as it does for PyTorch's ``GradScaler``.
        """
        model.train()
        seed_step(self.config.seed, self.step, self.rank)
        step, optimizer = self.step + 1, self.optimizer
        measured = step_gradient(model, optimizer, batches, step, self.config, loss_of)
        loss, _, norm = measured
        self.broken = self.broken.where(loss.isfinite() & norm.isfinite(), 1.0)
        optimizer.found_inf = self.broken
        optimizer.step()
        self.step = step
        self.unread.append(Unread(batches, measured))

    def read_back(self) -> StepReport:
        """What the newest step measured, after a check of all that are unread.

        There must be one. Where a loss or a gradient norm is not finite, the batches of
        that step are saved, and FloatingPointError is raised: the run is then back at
        the step before.
        """
        unread, self.unread = self.unread, []
        measured = zip(*(step.measured for step in unread), strict=True)
        losses, tokens, norms = (torch.stack(values).tolist() for values in measured)
        before = self.step - len(unread)
        for number, report in enumerate(map(StepReport, losses, tokens, norms)):
            step, loss, norm = before + number + 1, report.loss, report.gradient_norm
            try:
                check_finite_step(step, loss=loss, gradient_norm=norm)
            except FloatingPointError as error:
                self.step, self.broken = step - 1, torch.zeros_like(self.broken)
                path = self.save_bad_batches(unread[number].batches, error)
                raise FloatingPointError(
                    f"{error}; the batch was saved as {path}.safetensors"
                ) from error
            self.tokens += report.tokens
        return report

    def save_bad_batches(self, batches: list[Batch], error: Exception) -> Path:
        """Save the batches of the step that is not finite; the path.

        Field ``name`` of batch ``i`` is ``i.name`` there, and the weights that met
        them are ``model.NAME``.
        """
        path = self.folder / f"bad-batch-{self.rank}"
        weights = self.model.state_dict()
        tensors = {f"model.{name}": tensor for name, tensor in weights.items()}
        for i, batch in enumerate(batches):
            for name, tensor in vars(batch).items():
                tensors[f"{i}.{name}"] = tensor
        save_tensors(path, tensors, {"step": self.step + 1, "error": str(error)})
        return path

    def reads_back(self, stop: bool) -> bool:
        """Whether this is a step to read back after.

        All workers must find the same. So one of several cannot ``stop`` at once: it
        says so at the next step that all read back after.
        """
        config, step = self.config, self.step
        every = self.read_every, config.log_every, config.save_every
        due = step == config.steps or any(step % number == 0 for number in every)
        return due or (stop and self.workers == 1)

    def run(
        self,
        batches: Iterable[Batch],
        validation: Sequence[Batch],
        minutes: float = math.inf,
    ) -> bool:
        """Train until ``config.steps`` are done (True), or until a signal comes or
        ``minutes`` of training are over (False).

        ``batches`` begin with those of step 1, whatever step the run has come to. Every
        ``save_every`` steps, and at the end, the held-out perplexity is logged and a
        checkpoint written. Raises ValueError where the batches end too early, and what
        ``read_back`` raises.
        """
        if self.rank == 0:
            tidy_folder(self.folder, self.step)
        model, loss_of = self.training_model()
        config = self.config
        groups = step_batches(batches, config.steps, config.accumulate, self.step)
        wall = time.perf_counter() - self.seconds
        cpu_before, cpu = self.cpu_seconds, time.process_time()
        with self.progress(groups) as bar, interruptible() as received:
            for group in bar:
                self.train_step(model, loss_of, group)
                stop = bool(received) or time.perf_counter() - wall >= 60 * minutes
                if not self.reads_back(stop):
                    continue
                report = self.read_back()
                bar.set_postfix(loss=f"{report.loss:.3f}", refresh=False)
                self.seconds = time.perf_counter() - wall
                stop, spent = self.agree(stop, time.process_time() - cpu)
                self.cpu_seconds = cpu_before + spent
                if self.rank == 0:
                    self.record(report, validation, stop or self.step == config.steps)
                if stop:
                    break
        return self.step >= config.steps

    def progress(self, groups: Iterable[list[Batch]]) -> tqdm:
        """A bar over the steps that are left, where somebody watches a terminal."""
        return tqdm(
            groups,
            total=self.config.steps,
            initial=self.step,
            unit="step",
            mininterval=1.0,
            disable=self.rank > 0 or None,  # None: no bar where there is no terminal
        )

    def agree(self, stop: bool, cpu_seconds: float) -> tuple[bool, float]:
        """Whether any worker wants to stop, and the CPU seconds of all together.

        All have to stop at the same step, or one would wait for the others forever.
        """
        own = torch.tensor([stop, cpu_seconds], device=self.device)
        asked, spent = sum_over_workers(own).tolist()
        return asked > 0, spent


# The machine


def choose_device(name: str = "auto") -> torch.device:
    """The device called "cpu", "cuda" or "mps"; "auto" is the best that is there.

    Each worker on a machine takes the GPU of its own number. Raises ValueError for a
    device that is not there.
    """
    available = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    found = [device for device, is_there in available.items() if is_there]
    if name == "auto":
        name = found[0]
    if name not in found:
        raise ValueError(
            f"device {name!r} is not available here: expected one of auto, "
            f"{', '.join(found)}"
        )
    if name == "cuda":
        return torch.device(name, int(os.environ.get("LOCAL_RANK", 0)))
    return torch.device(name)


def keep_memory() -> None:
    """Have this process keep the memory that it frees, for its next step; and have
    oneDNN, which multiplies in bfloat16, keep the code of fewer shapes.

    It generates code for each shape, and each batch has one of its own: a thousand of
    them, its default, take gigabytes. The first has no effect where the C library is
    not glibc, the second after the first product.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "32")
    m_trim_threshold, m_mmap_max = -1, -4  # the numbers of malloc.h
    with suppress(AttributeError, TypeError):  # other systems have no mallopt
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(m_mmap_max, 0)  # no block in pages of its own, which go back with it
        mallopt(m_trim_threshold, 2**31 - 1)  # nor does the end of the heap go back


@contextmanager
def workers(device: torch.device) -> Iterator[tuple[int, int]]:
    """Join the other processes where ``torchrun`` started this one.

    Yields its rank and the world size; outside of ``torchrun`` that is (0, 1).
    """
    if "WORLD_SIZE" not in os.environ:
        yield 0, 1
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield dist.get_rank(), dist.get_world_size()
    finally:  # with its threads, which could abort a process that is about to leave
        dist.destroy_process_group()
