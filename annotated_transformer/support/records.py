"""Records of real runs, and the provenance that each of them names."""

import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch

import annotated_transformer


def read_record(name: str) -> dict[str, Any]:
    """The record of a run, ``records/NAME.json`` in the package; ValueError, with the
    names there are, for another."""
    folder = files("annotated_transformer").joinpath("records")
    names = sorted(
        path.name.removesuffix(".json")
        for path in folder.iterdir()
        if path.name.endswith(".json")
    )
    if name not in names:
        raise ValueError(f"{name!r} is no record: expected one of {', '.join(names)}")
    return json.loads(folder.joinpath(f"{name}.json").read_text(encoding="utf-8"))


def current_commit() -> str | None:
    """The commit that last changed this package, where it stands in a git checkout."""
    if not shutil.which("git"):
        return None
    command = [
        "git",
        "-C",
        Path(annotated_transformer.__file__).parent,
        "log",
        "-1",
        "--format=%H",
        "--",
        ".",
    ]
    return (
        subprocess.run(
            command, capture_output=True, text=True, check=False
        ).stdout.strip()
        or None
    )


def cpu_name() -> str:
    """The name of the processor, as far as the system tells it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = (line.split(": ", 1)[1] for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def typed(program: Sequence[str] = ("annotated-transformer",)) -> str:
    """The command that runs now; ``program`` are its words before the arguments, which
    are taken as they were typed."""
    return shlex.join([*program, *sys.argv[1:]])


def describe_run(program: Sequence[str], device: torch.device) -> dict[str, Any]:
    """The provenance of a run: command, commit, versions, hardware and date.

    ``program`` are the words of the command before its arguments, such as
    ``["annotated-transformer"]``.
    """
    return {
        "command": typed(program),
        "commit": current_commit(),
        "versions": {
            "annotated_transformer": annotated_transformer.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        "hardware": {
            "device": torch.cuda.get_device_name(device)
            if device.type == "cuda"
            else device.type,
            "cpu": cpu_name(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
        },
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
    }
