"""Memory of ``annotated-transformer translate`` against the number of lines that it is
given."""

import random
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import BinaryIO

import click
import torch
from contest import peak_memory, record_option, write_record

from annotated_transformer.subwords import train_subwords
from annotated_transformer.support.corpora import miniature_corpus
from annotated_transformer.transformer import Transformer, TransformerConfig
from annotated_transformer.translator import Translator

BUFFER = 1000
"""The lines that ``translate`` holds at a time."""


def save_tiny_translator(folder: Path, seed: int) -> list[str]:
    """An untrained model of one narrow layer, and the sentences that its vocabulary was
    learned from."""
    torch.manual_seed(seed)
    sentences = [english for english, _ in miniature_corpus(1000, 0, seed).train]
    subwords = train_subwords(sentences, 500)
    config = TransformerConfig(
        len(subwords), num_layers=1, d_model=16, d_ff=32, num_heads=2, max_length=16
    )
    Translator(Transformer(config), subwords).save(folder)
    return sentences


def write_lines(file: BinaryIO, sentences: list[str], lines: int, seed: int) -> None:
    """Write ``lines`` lines of a few words each to ``file``, which stays open."""
    rng = random.Random(seed)
    for _ in range(lines):
        file.write(
            " ".join(rng.choice(sentences).split()[: rng.randint(1, 4)]).encode()
            + b"\n"
        )
    file.flush()


def measure(folder: Path, sentences: list[str], lines: int, seed: int) -> float:
    """The peak memory of ``translate`` in MiB, read while it waits for more after its
    last line."""
    command = [
        sys.executable,
        "-m",
        "annotated_transformer",
        "translate",
        "--model",
        folder,
    ]
    command += ["--beam", "1", "--device", "cpu", "--threads", "1"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        feeder = threading.Thread(
            target=write_lines, args=(process.stdin, sentences, lines, seed)
        )
        feeder.start()
        for number in range(lines):
            if not process.stdout.readline():
                raise click.ClickException(
                    f"translate ended after {number:,} of {lines:,} lines"
                )
        feeder.join()
        memory = peak_memory(process.pid)
        process.stdin.close()
        if process.stdout.read():
            raise click.ClickException("translate wrote more lines than it was given")
    return memory


@click.command(epilog="Example: python benchmarks/memory.py --record")
@click.option(
    "--lines",
    type=click.IntRange(1),
    multiple=True,
    default=(1_000, 10_000, 100_000),
    show_default=True,
    help=(
        f"A multiple of {BUFFER:,}, so that the last one comes while the input is still"
        " open; give several."
    ),
)
@click.option(
    "--at-most",
    default=16.0,
    show_default=True,
    help="MiB of growth; more ends with exit code 1.",
)
@record_option
def main(lines: tuple[int, ...], at_most: float, record: bool) -> None:
    """Translate more and more lines by the command line, with a tiny model and beam 1,
    and print the peak memory."""
    seed = 0
    if any(number % BUFFER for number in lines):
        raise click.UsageError(f"--lines is {lines}, expected multiples of {BUFFER:,}")
    with tempfile.TemporaryDirectory() as folder:
        sentences = save_tiny_translator(Path(folder), seed)
        peaks = {}
        click.echo(f"{'lines':>10}  {'peak MiB':>8}  {'more than the first':>20}")
        for number in lines:
            peaks[number] = measure(Path(folder), sentences, number, seed)
            click.echo(
                f"{number:10,}  {peaks[number]:8.1f} "
                f" {peaks[number] - peaks[lines[0]]:20.1f}"
            )
    grown = peaks[max(lines)] - peaks[min(lines)]
    if record:
        facts = {
            "peak_mebibytes": {
                str(number): round(peak, 1) for number, peak in peaks.items()
            },
            "at_most": at_most,
        }
        write_record("memory", facts, seed)
    if grown > at_most:
        raise click.ClickException(
            f"the memory grew by {grown:.1f} MiB, expected at most {at_most}"
        )


if __name__ == "__main__":
    main()
