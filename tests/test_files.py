"""Files: written whole or not at all, and those that belong together all or none."""

import errno
import os
from pathlib import Path

import pytest

from annotated_transformer.support.files import write_atomically, write_together


def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch) -> None:
    """Fails when a file is written to its final place at once, or its partial file
    stays."""
    path = tmp_path / "subwords.model"
    path.write_bytes(b"the old one")

    def half(self: Path, content: bytes) -> None:
        with self.open("wb") as file:
            file.write(content[: len(content) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"a new vocabulary")
    assert [file.name for file in tmp_path.iterdir()] == ["subwords.model"]
    assert path.read_bytes() == b"the old one"


def test_of_files_that_belong_together_all_are_written_or_none(
    tmp_path, monkeypatch
) -> None:
    """Fails when the first file takes its place before the last one is on the disk, and
    when the commit marker outlives what it vouches for: a process killed between the
    two must leave no marker."""
    weights, marker = tmp_path / "weights", tmp_path / "marker"
    write_together({weights: b"old", marker: b"old"})
    write_bytes, replace = Path.write_bytes, Path.replace

    def full_at_the_marker(self: Path, content: bytes) -> int:
        if self.name.startswith("marker"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write_bytes(self, content)

    def killed(self: Path, path: Path) -> None:
        assert not marker.exists()
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_bytes", full_at_the_marker)
    with pytest.raises(OSError, match="No space left on device: .*marker"):
        write_together({weights: b"new", marker: b"new"})
    assert (
        weights.read_bytes() == marker.read_bytes() == b"old"
        and len(list(tmp_path.iterdir())) == 2
    )
    monkeypatch.setattr(Path, "write_bytes", write_bytes)
    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        write_together({weights: b"new", marker: b"new"})
    monkeypatch.setattr(Path, "replace", replace)
    assert [file.name for file in tmp_path.iterdir()] == ["weights"]


def test_what_is_no_regular_file_is_written_and_not_replaced(tmp_path) -> None:
    """Fails when a pipe or a link gives way to a new file of its name."""
    pipe, link, file = tmp_path / "pipe", tmp_path / "link", tmp_path / "file"
    os.mkfifo(pipe)
    file.write_bytes(b"old")
    link.symlink_to(file)
    descriptor = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_atomically(pipe, b"through the pipe")
    assert os.read(descriptor, 100) == b"through the pipe" and pipe.is_fifo()
    os.close(descriptor)
    write_atomically(link, b"new")
    assert link.is_symlink() and file.read_bytes() == b"new"
    with pytest.raises(IsADirectoryError, match=tmp_path.name):
        write_atomically(tmp_path, b"new")


def test_a_file_is_on_the_disk_before_it_takes_its_place(tmp_path, monkeypatch) -> None:
    """Fails without ``fsync``: after a power failure the name could stand for an empty
    file."""
    path = tmp_path / "subwords.model"
    path.write_bytes(b"the old one")
    synced = []
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        fsync(descriptor)
        synced.append((os.fstat(descriptor).st_size, path.read_bytes()))

    monkeypatch.setattr(os, "fsync", watched)
    write_atomically(path, b"a new vocabulary")
    assert synced == [(len(b"a new vocabulary"), b"the old one")]
    assert [file.name for file in tmp_path.iterdir()] == ["subwords.model"]
    assert path.read_bytes() == b"a new vocabulary"
