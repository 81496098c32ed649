"""The whole Multi30k test set, from text to text, against the clock."""

from pathlib import Path
from statistics import median
from time import perf_counter

import click
import torch
from contest import (
    record_option,
    rounds_option,
    show,
    summary,
    threads_option,
    write_record,
)

from annotated_transformer.support.corpora import load_multi30k
from annotated_transformer.translator import PRETRAINED, Translator


def measure(translator: Translator, lines: list[str], beam: int) -> float:
    """Seconds to translate all lines."""
    start = perf_counter()
    translations = list(translator.translate(lines, beam))
    seconds = perf_counter() - start
    if len(translations) != len(lines):
        raise click.ClickException(
            f"{len(translations)} translations of {len(lines)} lines"
        )
    return seconds


@click.command(epilog="Example: python benchmarks/test_2016.py --record")
@click.option(
    "--model",
    type=click.Path(path_type=Path),
    default=PRETRAINED,
    help="A folder; else the book's own.",
)
@click.option("--beam", default=4, show_default=True)
@click.option(
    "--at-most",
    default=10.0,
    show_default=True,
    help="Seconds; a median above ends with exit code 1.",
)
@threads_option
@rounds_option
@record_option
def main(
    model: Path, beam: int, at_most: float, threads: int, rounds: int, record: bool
) -> None:
    """Translate the English side of Multi30k's test_2016_flickr, 1,000 sentences, and
    print the seconds."""
    torch.set_num_threads(threads)
    lines = [english for english, _ in load_multi30k().test]
    start = perf_counter()
    translator = Translator.load(model)
    loading = perf_counter() - start
    seconds = [measure(translator, lines, beam) for _ in range(rounds)]
    show(
        f"seconds for {len(lines):,} sentences, beam {beam}, {threads} threads",
        {"translate": seconds},
    )
    click.echo(f"the model was loaded in {loading:.2f} s")
    if record:
        facts = {
            "sentences": len(lines),
            "beam": beam,
            "seconds": summary(seconds),
            "at_most": at_most,
        }
        facts |= {
            "loading_seconds": round(loading, 3),
            "model": translator.facts["model"],
        }
        write_record("test_2016", facts, seed=0)
    if median(seconds) > at_most:
        raise click.ClickException(
            f"the median is {median(seconds):.1f} s, expected at most {at_most} s"
        )


if __name__ == "__main__":
    main()
