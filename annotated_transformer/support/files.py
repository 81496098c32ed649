"""Files that are written whole or not at all; appendix C tells why."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Within the block, an OSError names the file ``path``."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_synced(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path`` and wait until the disk has it (``fsync``)."""
    path.write_bytes(content)
    with path.open("r+b") as file:
        os.fsync(file.fileno())


def write_together(contents: dict[Path, bytes]) -> None:
    """Write each of ``contents`` to its path: all, or none where one cannot be written.

    The last file is the commit marker: where it is, the others are whole. So it is
    removed before the first of them changes, and comes back when the last has changed.
    Raises OSError, which names the file, and then leaves what was there before.
    """
    partials = {path: path.with_name(f"{path.name}.partial") for path in contents}
    try:
        for path, content in contents.items():
            with naming(path):
                write_synced(partials[path], content)
        *others, marker = contents
        if others:
            marker.unlink(missing_ok=True)
        for path, partial in partials.items():
            partial.replace(path)
    finally:
        for partial in partials.values():
            partial.unlink(missing_ok=True)


def write_atomically(path: Path | str, content: bytes) -> None:
    """Write ``content`` to ``path``, whole or not at all (OSError).

    A pipe or a device, which has no old content to keep, gets it as it is.
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        path.write_bytes(content)
    else:
        write_together({path.resolve(): content})
