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
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from itertools import islice
from pathlib import Path

import torch
import torch.distributed as dist

# Before there is a group of workers: imported later, it would keep that group alive.
import torch.distributed.nn
from torch import nn
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
    sum_over_workers,
    update,
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
from .checks import check_enough_batches
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


class Trainer(SavedRun):
    """A run that can be interrupted at any moment, alone or as one of several workers.

    Section 5.2. All workers have the model and the optimizer whole; each reads its own
    shard of the batches.
    """

    def training_model(self) -> tuple[nn.Module, LossFunction]:
        """What computes the loss, and the function that asks it for one.

        A ``Transformer`` takes the fast way of appendix D; several workers add up their
        gradients.
        """
        fast = type(self.model) is Transformer
        model = FastTraining(self.model) if fast else self.model
        if self.workers > 1:  # the only buffers are constant: nothing to send for them
            model = DistributedDataParallel(model, broadcast_buffers=False)
        return model, packed_loss if fast else batch_loss

    def train_step(
        self, model: nn.Module, loss_of: LossFunction, batches: list[Batch]
    ) -> StepReport:
        """One step on ``batches``, with what ``training_model`` returned.

        Where the loss is not finite, the batches are saved: field ``name`` of batch
        ``i`` as ``i.name``, with the weights that met them, ``name`` as ``model.name``.
        Then FloatingPointError.
        """
        model.train()
        seed_step(self.config.seed, self.step, self.rank)
        step, optimizer = self.step + 1, self.optimizer
        try:
            report = update(model, optimizer, batches, step, self.config, loss_of)
        except FloatingPointError as error:
            path = self.folder / f"bad-batch-{self.rank}"
            weights = self.model.state_dict()
            tensors = {f"model.{name}": tensor for name, tensor in weights.items()}
            for i, batch in enumerate(batches):
                for name, tensor in vars(batch).items():
                    tensors[f"{i}.{name}"] = tensor
            save_tensors(path, tensors, {"step": step, "error": str(error)})
            raise FloatingPointError(
                f"{error}; the batch was saved as {path}.safetensors"
            ) from error
        self.step = step
        self.tokens += report.tokens
        return report

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
        ``train_step`` raises.
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
                report = self.train_step(model, loss_of, group)
                bar.set_postfix(loss=f"{report.loss:.3f}", refresh=False)
                self.seconds = time.perf_counter() - wall
                stop = bool(received) or self.seconds >= 60 * minutes
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
    """Have this process keep the memory that it frees, for its next step.

    Without effect where the C library is not glibc.
    """
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
