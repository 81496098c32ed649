"""Records of real runs, and the provenance that each of them names."""

import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
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


STATISTICS = (
    *("ref_len", "hyp_len"),
    *("total_1", "total_2", "total_3", "total_4"),
    *("match_1", "match_2", "match_3", "match_4"),
)
"""The order of the numbers in a row of ``sentence_statistics``.

The words of the reference and of the hypothesis, the n-grams of the hypothesis for n
from 1 to 4, and how many of these the reference has too, each at most as often.
"""


def sentence_statistics(
    hypotheses: Sequence[str],
    references: Sequence[str | Sequence[str]],
    lowercase: bool = False,
) -> list[list[int]]:
    """What BLEU needs to know of each sentence, without its text: ``STATISTICS``.

    Integers, ``(sentences, 10)``. Words are those of sacreBLEU's tokenizer 13a, after
    ``str.lower`` where ``lowercase`` is set. Summed over the sentences they give the
    BLEU of the corpus; resampled, its interval and its paired tests (chapter 13).
    Raises ValueError for no sentences, or not as many references as hypotheses.
    """
    from ..evaluation import bleu_counts  # here: reading a record needs no sacreBLEU

    if lowercase:
        hypotheses = [line.lower() for line in hypotheses]
        references = [
            line.lower() if isinstance(line, str) else [each.lower() for each in line]
            for line in references
        ]
    counts = bleu_counts(hypotheses, references).tolist()  # (sentences, 4, 3)
    return [
        [orders[0][1], orders[0][0], *(n[0] for n in orders), *(n[2] for n in orders)]
        for orders in counts
    ]


def recorded_counts(record: dict[str, Any], kind: str = "bleu") -> np.ndarray:
    """The ``sentence_statistics`` of a record as ``evaluation.bleu_counts`` has them.

    Integers, ``(sentences, 4, 3)``; of the references' n-grams, only their words are
    known, which is all that BLEU asks. ``kind`` is "bleu" or "bleu_lower_case".
    """
    rows = np.array(record["sentence_statistics"][kind])  # (sentences, 10)
    counts = np.zeros((len(rows), 4, 3), dtype=int)
    counts[:, 0, 1] = rows[:, 0]
    counts[:, :, 0], counts[:, :, 2] = rows[:, 2:6], rows[:, 6:]
    return counts


def record_json(record: dict[str, Any]) -> str:
    """``record`` as JSON for people: indented, with each list of numbers on one line.

    Non-finite numbers raise ValueError, for JSON has none.
    """
    text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)
    number_list = r"\[\n\s*(-?\d[^\]\[{\"]*?)\s*\]"  # strings hold no line feed
    return re.sub(number_list, lambda m: f"[{' '.join(m[1].split())}]", text)


def current_commit() -> str | None:
    """The commit that last changed this package, where it stands in a git checkout."""
    if not shutil.which("git"):
        return None
    folder = str(Path(annotated_transformer.__file__).parent)
    command = ["git", "-C", folder, "log", "-1", "--format=%H", "--", "."]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


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
