"""What the benchmarks share: contestants take turns, a small table, a record that says
where its numbers come from."""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter

import click
import torch

import annotated_transformer
from annotated_transformer.support.records import describe_run
from annotated_transformer.translator import Translator

RECORDS = Path(annotated_transformer.__file__).with_name("records")

threads_option = click.option(
    "--threads",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    help="CPU threads.",
)
rounds_option = click.option(
    "--rounds",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    help="Turns of each.",
)
SHIPPED = Translator.load().model.config
SHAPES = {
    name: getattr(SHIPPED, name)
    for name in ("vocabulary_size", "num_layers", "d_model", "d_ff", "num_heads")
}
"""Those of the book's translator."""


def shape_options(command: Callable) -> Callable:
    """One option for each of ``SHAPES``."""
    for name, value in reversed(SHAPES.items()):
        command = click.option(
            "--" + name.replace("_", "-"), default=value, show_default=True
        )(command)
    return command


at_least_option = click.option(
    "--at-least",
    default=1.0,
    show_default=True,
    help="Times as fast; a lower ratio ends with exit code 1.",
)
record_option = click.option(
    "--record",
    is_flag=True,
    help=f"Write {RECORDS.name}/benchmark_NAME.json of the package.",
)


def take_turns(
    contestants: dict[str, Callable[[], float]], rounds: int, warm_up: bool = True
) -> dict[str, list[float]]:
    """What each contestant measures, ``rounds`` times, in turn: A B C A B C ...

    In turn, because a machine that other work slows down for a while then slows them
    all. With ``warm_up``, a round before the first is not counted.
    """
    if warm_up:
        for measure in contestants.values():
            measure()
    results: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, measure in contestants.items():
            results[name].append(measure())
    return results


def time_process(words: Sequence[object], text: str = "") -> tuple[float, list[str]]:
    """Seconds of a new process of Python, from its start to its end, and the lines that
    it writes; ``text`` is its input. ClickException where it fails."""
    start = perf_counter()
    ended = subprocess.run(
        [sys.executable, *map(str, words)],
        input=text,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        check=False,
    )
    seconds = perf_counter() - start
    if ended.returncode:
        raise click.ClickException(f"a process ended with code {ended.returncode}")
    return seconds, ended.stdout.splitlines()


def median_ratio(values: Sequence[float], others: Sequence[float]) -> float:
    """The median, over the rounds, of one contestant's value divided by another's in
    the same round."""
    return statistics.median(
        value / other for value, other in zip(values, others, strict=True)
    )


def demand(ratio: float, at_least: float) -> None:
    """ClickException, and so exit code 1, where ``ratio`` is below ``at_least``."""
    if ratio < at_least:
        raise click.ClickException(
            f"{ratio:.3f} times as fast, expected at least {at_least}"
        )


def show_mark(what: str, ratio: float, mark: float, lower: bool = False) -> None:
    """Print a ratio and whether it reaches the mark that we aim at; ``lower`` is better
    for memory."""
    reached = "reached" if (ratio <= mark if lower else ratio >= mark) else "missed"
    click.echo(f"{what}: {ratio:.3f}, mark {mark}: {reached} ({cpu_kind()})")


def summary(values: Sequence[float]) -> dict:
    """Median and spread of the rounds."""
    rounded = [float(f"{value:.4g}") for value in values]
    return {
        "median": statistics.median(rounded),
        "lowest": min(rounded),
        "highest": max(rounded),
        "rounds": rounded,
    }


def show(unit: str, results: dict[str, list[float]]) -> None:
    """Print a table: a row for each contestant, median and spread over the rounds."""
    width = max(len(name) for name in results)
    click.echo(
        f"{'':{width}}  {'median':>10}  {'lowest':>10}  {'highest':>10}   {unit}"
    )
    for name, values in results.items():
        click.echo(
            f"{name:{width}}  {statistics.median(values):10,.5g}  {min(values):10,.5g} "
            f" {max(values):10,.5g}"
        )


LIMITS = (
    "ATEN_CPU_CAPABILITY",
    "ONEDNN_MAX_CPU_ISA",
    "MKL_ENABLE_INSTRUCTIONS",
    "CT2_FORCE_CPU_ISA",
)
"""Variables by which libraries leave instructions alone that a CPU has."""


def cpu_kind() -> str:
    """The widest instructions that PyTorch computes with here, such as AVX512."""
    return torch.backends.cpu.get_cpu_capability()


def write_record(
    name: str, facts: dict, seed: int, device: torch.device | str = "cpu"
) -> None:
    """Write ``facts`` and their provenance to ``records/benchmark_NAME.json`` of the
    package; to ``benchmark_NAME_avx2.json`` where the CPU has AVX2 at most, or is
    limited to it."""
    program = ["python", f"benchmarks/{Path(sys.argv[0]).name}"]
    load = [
        round(number, 2) for number in os.getloadavg()
    ]  # of 1, 5 and 15 minutes: was the machine quiet?
    provenance = describe_run(program, torch.device(device)) | {
        "seed": seed,
        "load_average": load,
    }
    provenance["hardware"]["instructions"] = cpu_kind()
    provenance["limits"] = {x: os.environ[x] for x in LIMITS if x in os.environ}
    kind = "_avx2" if device == "cpu" and cpu_kind() != "AVX512" else ""
    path = RECORDS / f"benchmark_{name}{kind}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(facts | provenance, indent=1) + "\n", encoding="utf-8")
    click.echo(f"wrote {path}", err=True)


def peak_memory(process: int | str = "self") -> float:
    """The most memory that a process has held at once since it started its program, in
    MiB (Linux only)."""
    status = Path(f"/proc/{process}/status").read_text()
    return next(
        int(line.split()[1]) / 1024
        for line in status.splitlines()
        if line.startswith("VmHWM")
    )
