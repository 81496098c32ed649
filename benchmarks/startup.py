"""How soon a single line is translated: the command, beside a process that imports
PyTorch and nothing else."""

from statistics import median

import click
import torch
from contest import (
    record_option,
    rounds_option,
    show,
    summary,
    take_turns,
    threads_option,
    time_process,
    write_record,
)

LINE = "Two dogs play in the snow.\n"


def import_torch() -> float:
    """Seconds of a process that imports PyTorch, from its start to its end."""
    return time_process(["-c", "import torch"])[0]


def translate(threads: int) -> float:
    """Seconds of a process that translates one line, from its start to its end."""
    words = ["-m", "annotated_transformer", "translate", "--device", "cpu"]
    seconds, lines = time_process([*words, "--threads", threads], LINE)
    if len(lines) != 1 or not lines[0]:
        raise click.ClickException(f"{lines} is no translation of one line")
    return seconds


@click.command(epilog="Example: python benchmarks/startup.py --record")
@click.option(
    "--at-most",
    default=0.6,
    show_default=True,
    help="Seconds on top of `import torch`; more ends with exit code 1.",
)
@threads_option
@rounds_option
@record_option
def main(at_most: float, threads: int, rounds: int, record: bool) -> None:
    """Start processes in turn, one that imports PyTorch and one that translates a line
    with the book's translator, and print the seconds of each."""
    results = take_turns(
        {"import torch": import_torch, "translate": lambda: translate(threads)}, rounds
    )
    results["difference"] = [
        whole - part
        for whole, part in zip(
            results["translate"], results["import torch"], strict=True
        )
    ]
    show(f"seconds from start to end, {threads} threads", results)
    if record:
        torch.set_num_threads(threads)  # as in the processes; the record asks for it
        facts = {
            "seconds": {name: summary(values) for name, values in results.items()},
            "at_most": at_most,
        }
        write_record("startup", facts, seed=0)
    longer = median(results["difference"])
    if longer > at_most:
        raise click.ClickException(
            f"the median of the differences is {longer:.2f} s, expected at most "
            f"{at_most} s"
        )


if __name__ == "__main__":
    main()
