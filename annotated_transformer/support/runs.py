"""A training run that survives an interruption, in one process or in several; appendix
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
from ..training import (
    TrainingConfig,
    perplexity,
    step_batches,
    sum_over_workers,
    update,
)
from .checkpoints import (
    find_checkpoints,
    load_tensors,
    remove_old,
    restore_tensors,
    save_tensors,
    tidy_folder,
    training_tensors,
)
from .files import naming


def seed_step(seed: int, step: int, rank: int) -> None:
    """Seed PyTorch for one step of one worker: what is dropped depends on these three
    numbers and on nothing before."""
    torch.manual_seed(random.Random(f"{seed} {step} {rank}").getrandbits(63))


class SavedRun:
    """A model and its optimizer in training, with a log and checkpoints in ``folder``;
    ``facts`` go into each."""

    def __init__(
        self,
        model: nn.Module,
        config: TrainingConfig,
        folder: Path | str,
        facts: dict | None = None,
    ) -> None:
        self.model, self.config = model, config
        self.folder, self.facts = Path(folder), facts or {}
        self.optimizer = transformer_optimizer(model)
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

        Raises OSError where it cannot.
        """
        progress = {"step": self.step, "tokens": self.tokens}
        progress |= {
            "seconds": round(self.seconds, 1),
            "cpu_seconds": round(self.cpu_seconds, 1),
        }
        tensors = training_tensors(self.model, self.optimizer)
        save_tensors(
            self.folder / f"step-{self.step:08}", tensors, self.facts | progress
        )
        remove_old(self.folder, self.config.keep)

    def resume(self) -> None:
        """Go back to the newest checkpoint; where there is none, stay.

        Raises what reading it raises.
        """
        if checkpoints := find_checkpoints(self.folder):
            tensors, facts = load_tensors(checkpoints[-1])
            restore_tensors(self.model, self.optimizer, tensors, checkpoints[-1])
            self.step, self.tokens = facts["step"], facts["tokens"]
            self.seconds, self.cpu_seconds = facts["seconds"], facts["cpu_seconds"]

    def record(self, loss: float, validation: Sequence[Batch], last: bool) -> None:
        """Write what is due after a step: a line of the log, and a checkpoint with its
        held-out perplexity."""
        if self.step % self.config.log_every == 0:
            self.log(loss=loss, tokens=self.tokens, seconds=round(self.seconds, 1))
        if last or self.step % self.config.save_every == 0:
            self.log(validation_perplexity=perplexity(self.model, validation))
            self.save()


@contextmanager
def interruptible() -> Iterator[list[int]]:
    """Within the block, Ctrl-C and a request to end (SIGINT, SIGTERM) land in the list
    yielded and stop nothing.

    Signals reach the main thread alone: in another thread the list stays empty.
    """
    received: list[int] = []
    in_main_thread = threading.current_thread() is threading.main_thread()
    signals = (signal.SIGINT, signal.SIGTERM) if in_main_thread else ()
    before = [
        signal.signal(number, lambda number, frame: received.append(number))
        for number in signals
    ]
    try:
        yield received
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)


def guarded_update(
    model: nn.Module, optimizer: torch.optim.Optimizer, batches: Sequence[Batch], step: int, config: TrainingConfig,
    path: Path,
) -> float:  # fmt: skip
    """``update``; where the loss is no number, batches and weights are saved as
    ``path``, and the error says so.

    Field ``name`` of batch ``i`` is saved as ``i.name``, weight ``name`` as
    ``model.name``.
    """
    try:
        return update(model, optimizer, batches, step, config)
    except FloatingPointError as error:
        tensors = {
            f"model.{name}": tensor
            for name, tensor in getattr(model, "module", model).state_dict().items()
        }
        tensors |= {
            f"{i}.{name}": tensor
            for i, batch in enumerate(batches)
            for name, tensor in vars(batch).items()
        }
        save_tensors(path, tensors, {"step": step, "error": str(error)})
        raise FloatingPointError(
            f"{error}; the batch was saved as {path}.safetensors"
        ) from error


class Trainer(SavedRun):
    """A run that can be interrupted at any moment, in one process or as one of several
    workers (section 5.2)."""

    def train_step(self, model: nn.Module, batches: list[Batch]) -> float:
        """One step on ``batches``; ``model`` is the run's own, or wrapped for several
        workers.

        Returns the loss.
        """
        self.model.train()
        seed_step(self.config.seed, self.step, self.rank)
        path = self.folder / f"bad-batch-{self.rank}"
        loss = guarded_update(
            model, self.optimizer, batches, self.step + 1, self.config, path
        )
        self.step += 1
        tokens = torch.tensor(
            sum(batch.tokens for batch in batches), device=self.device
        )
        self.tokens += int(sum_over_workers(tokens))
        return loss

    def run(
        self,
        batches: Iterable[Batch],
        validation: Sequence[Batch],
        minutes: float = math.inf,
    ) -> bool:
        """Train until ``config.steps`` are done (True), or a signal comes or
        ``minutes`` of training are over (False).

        ``batches`` begin with those of step 1, whatever step the run has come to. Every
        ``save_every`` steps, and at the end, the held-out perplexity is logged and a
        checkpoint written. Raises ValueError where the batches end too early, and what
        ``guarded_update`` raises.
        """
        if self.rank == 0:
            tidy_folder(self.folder, self.step)
        model = DistributedDataParallel(self.model) if self.workers > 1 else self.model
        steps = step_batches(
            batches, self.config.steps, self.config.accumulate, self.step
        )
        before, clocks = (
            (self.seconds, self.cpu_seconds),
            (time.perf_counter(), time.process_time()),
        )
        # None: no bar where nobody watches a terminal
        bar = {
            "total": self.config.steps,
            "initial": self.step,
            "unit": "step",
            "disable": self.rank > 0 or None,
        }
        with (
            tqdm(steps, mininterval=1.0, **bar) as progress,
            interruptible() as received,
        ):
            for group in progress:
                loss = self.train_step(model, group)
                progress.set_postfix(loss=f"{loss:.3f}", refresh=False)
                self.seconds = before[0] + time.perf_counter() - clocks[0]
                asked, spent = (
                    bool(received) or self.seconds >= 60 * minutes,
                    time.process_time() - clocks[1],
                )
                stop, spent = sum_over_workers(
                    torch.tensor([asked, spent], device=self.device)
                ).tolist()
                self.cpu_seconds = before[1] + spent
                if self.rank == 0:
                    self.record(
                        loss, validation, last=stop or self.step == self.config.steps
                    )
                if stop:
                    break
        return self.step >= self.config.steps


def choose_device(name: str = "auto") -> torch.device:
    """The device called ``name``: "cpu", "cuda", "mps", or "auto" for the best there
    is.

    ValueError where it is not.
    """
    found = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if name == "auto":
        name = next(device for device, there in found.items() if there)
    if not found.get(name):
        there = ", ".join(device for device, there in found.items() if there)
        raise ValueError(
            f"device {name!r} is not available here: expected one of auto, {there}"
        )
    return (
        torch.device(name, int(os.environ.get("LOCAL_RANK", 0)))
        if name == "cuda"
        else torch.device(name)
    )


def keep_memory() -> None:
    """Have this process keep the memory that it frees, for its next step; without
    effect where there is no glibc."""
    with suppress(AttributeError, TypeError):  # other systems have no mallopt
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(
            -4, 0
        )  # M_MMAP_MAX: no tensor in pages of its own, which would go back with it
        mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD: nor does the end of the heap go back


@contextmanager
def workers(device: torch.device) -> Iterator[tuple[int, int]]:
    """Join the other processes where ``torchrun`` started this one; yields its rank and
    their number, else (0, 1)."""
    if "WORLD_SIZE" not in os.environ:
        yield 0, 1
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield dist.get_rank(), dist.get_world_size()
    finally:
        dist.destroy_process_group()  # with its threads, which could abort a process that is about to leave
