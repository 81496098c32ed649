"""The token ids of a corpus: computed once, kept in a file, mapped into memory.

A token file PATH holds the ids of all pairs, source and target in turn, and then where
each side ends. ``PATH.json`` is its commit marker, with a digest of text and
vocabulary: where one of them has changed, the file is made anew.
"""

import hashlib
import json
import os
import random
import signal
from array import array
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from itertools import count, islice
from pathlib import Path

import numpy
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from ..data import (
    Batch,
    EncodedPair,
    _buffers,
    _pair_sizes,
    group_by_length,
    make_batch,
)
from ..subwords import Subwords
from .corpora import ParallelFiles
from .files import naming, write_atomically

# The file


def digest_of_text(text: ParallelFiles, subwords: Subwords) -> str:
    """SHA-256 of both files, as they lie on the disk, and of the vocabulary."""
    digest = hashlib.sha256(hashlib.sha256(subwords.model).digest())
    for path in (text.source, text.target):
        with naming(Path(path)), open(path, "rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def marker_of(path: Path) -> dict:
    """The facts beside the token file ``path``; empty where there are none."""
    marker, facts = path.with_name(f"{path.name}.json"), None
    with suppress(OSError, ValueError):
        facts = json.loads(marker.read_bytes())
    return facts if isinstance(facts, dict) else {}


def write_token_file(path: Path, text: ParallelFiles, subwords: Subwords) -> None:
    """Write the ids of all pairs of ``text`` to ``path``, one pair at a time.

    Without effect where the file is there already. Raises what reading the text raises,
    OSError where the file cannot be written, and then leaves no marker.
    """
    digest = digest_of_text(text, subwords)
    facts, ends = marker_of(path), array("q", [0])
    if facts.get("digest") == digest and path.is_file():
        if path.stat().st_size == facts.get("bytes"):
            return
    kind = "H" if len(subwords) <= 2**16 else "i"  # two bytes an id, or four
    marker = path.with_name(f"{path.name}.json")
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")  # runs may meet here
    marker.unlink(missing_ok=True)
    try:
        with naming(partial), partial.open("wb") as file:
            for pair in text:
                for ids in map(subwords.encode, pair):
                    array(kind, ids).tofile(file)
                    ends.append(ends[-1] + len(ids))
            file.write(bytes(-file.tell() % ends.itemsize))
            ends.tofile(file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    size = path.stat().st_size
    facts = {"digest": digest, "kind": kind, "ends": len(ends), "bytes": size}
    write_atomically(marker, json.dumps(facts).encode())


class TokenFile:
    """The pairs of a token file as token ids, read where they lie.

    Iterating gives two arrays a pair, and starts anew each time. Nothing is held in
    memory but what is looked at; all processes of a machine share that.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.facts = path, marker_of(path)

    def __getstate__(self) -> dict:
        """What another process gets: it maps the file by itself."""
        return {"path": self.path, "facts": self.facts}

    @cached_property
    def ids(self) -> numpy.ndarray:
        """All ids, one after the other."""
        return numpy.memmap(self.path, self.facts["kind"], "r")

    @cached_property
    def ends(self) -> numpy.ndarray:
        """``(2 * pairs + 1,)``, where each side begins, and the last one ends."""
        start = self.facts["bytes"] - 8 * self.facts["ends"]
        return numpy.memmap(self.path, "q", "r", start)

    def __len__(self) -> int:
        return len(self.ends) // 2

    def __iter__(self) -> Iterator[tuple[numpy.ndarray, numpy.ndarray]]:
        for first in range(0, len(self.ends) - 1, 2):
            begin, middle, end = self.ends[first : first + 3].tolist()
            yield self.ids[begin:middle], self.ids[middle:end]

    def left_out(self, longest: int) -> Counter[str]:
        """How many pairs ``encode_stream`` leaves out, and why."""
        sides = numpy.diff(self.ends).reshape(-1, 2)
        empty = (sides == 0).any(axis=1)
        long = ~empty & (sides >= longest).any(axis=1)
        return +Counter({"empty": int(empty.sum()), "too long": int(long.sum())})


def shared_token_file(path: Path, text: ParallelFiles, subwords: Subwords) -> TokenFile:
    """As ``write_token_file``, by one worker of each machine; the others wait."""
    if int(os.environ.get("LOCAL_RANK", 0)) == 0:
        write_token_file(path, text, subwords)
    if dist.is_initialized():
        dist.barrier()
    return TokenFile(path)


# Its batches


class Ready:
    """Stands for the vocabulary where the text is token ids already."""

    def encode(self, ids: numpy.ndarray) -> list[int]:
        """The ids as a list."""
        return ids.tolist()


class FileBatches(IterableDataset):
    """The endless batches that ``stream_batches`` makes of the same text, in its order.

    Several processes of a loader share the work of one rank: each makes every n-th
    batch, and the loader asks them in turn.
    """

    def __init__(
        self,
        pairs: TokenFile,
        max_tokens: int,
        seed: int,
        max_length: int,
        rank: int = 0,
        world_size: int = 1,
        buffer_size: int = 50_000,
    ) -> None:
        self.pairs, self.max_tokens, self.seed = pairs, max_tokens, seed
        longest = min(max_length, max_tokens)
        self.choices = buffer_size, longest, rank, world_size

    def groups(self) -> Iterator[list[EncodedPair]]:
        """The pairs of each batch."""
        for epoch in count():
            rng = random.Random(f"{self.seed} {epoch}")
            for buffer in _buffers(self.pairs, Ready(), *self.choices, None):
                sizes = _pair_sizes(buffer, self.max_tokens)
                for group in group_by_length(sizes, self.max_tokens, rng):
                    yield [buffer[i] for i in group]

    def __iter__(self) -> Iterator[Batch]:
        info = get_worker_info()
        number, workers = (info.id, info.num_workers) if info else (0, 1)
        return map(make_batch, islice(self.groups(), number, None, workers))


def ignore_interrupts(worker: int) -> None:
    """Let Ctrl-C, which reaches all processes, stop the run and not its loaders."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def load_batches(batches: FileBatches, workers: int) -> DataLoader:
    """``batches``, made ahead of time by ``workers`` processes; 0: by this one.

    Their order does not depend on ``workers``.
    """
    return DataLoader(
        batches,
        batch_size=None,
        num_workers=workers,
        worker_init_fn=ignore_interrupts,
        generator=torch.Generator(),  # leave PyTorch's own as it is
    )
