"""The whole Multi30k test set, from text to text, against the clock: the search, and
the command from its start to its end."""

from pathlib import Path
from statistics import median
from time import perf_counter

import click
import torch
from contest import (
    median_ratio,
    record_option,
    rounds_option,
    show,
    summary,
    take_turns,
    threads_option,
    time_process,
    write_record,
)

from annotated_transformer.support.corpora import load_multi30k
from annotated_transformer.translator import PRETRAINED, Translator


class Contest:
    """The same lines, translated in this process and by the command."""

    def __init__(self, model: Path, lines: list[str], beam: int, threads: int) -> None:
        start = perf_counter()
        self.translator = Translator.load(model)
        self.loading = perf_counter() - start
        self.lines, self.beam = lines, beam
        self.words = ["-m", "annotated_transformer", "translate", "--model", model]
        self.words += ["--beam", beam, "--threads", threads, "--device", "cpu"]
        self.written: list[str] = []

    def search(self) -> float:
        """Seconds to translate all lines here, with a model that is loaded."""
        start = perf_counter()
        found = list(self.translator.translate(self.lines, self.beam))
        seconds = perf_counter() - start
        self.written = [translation.text for translation in found]
        return seconds

    def command(self) -> float:
        """Seconds of the command ``translate``, from its start to its end.

        ClickException where it writes other lines than ``search`` before it.
        """
        text = "".join(f"{line}\n" for line in self.lines)
        seconds, lines = time_process(self.words, text)
        if lines != self.written:
            raise click.ClickException("the command wrote other lines than the search")
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
@click.option(
    "--command-at-most",
    default=1.5,
    show_default=True,
    help="Times the search; a command that takes longer ends with exit code 1.",
)
@threads_option
@rounds_option
@record_option
def main(
    model: Path,
    beam: int,
    at_most: float,
    command_at_most: float,
    threads: int,
    rounds: int,
    record: bool,
) -> None:
    """Translate the English side of Multi30k's test_2016_flickr, 1,000 sentences, here
    and by the command, and print the seconds."""
    torch.set_num_threads(threads)
    lines = [english for english, _ in load_multi30k().test]
    contest = Contest(model, lines, beam, threads)
    seconds = take_turns(
        {"search": contest.search, "command": contest.command}, rounds, warm_up=False
    )
    ratio = median_ratio(seconds["command"], seconds["search"])
    show(
        f"seconds for {len(lines):,} sentences, beam {beam}, {threads} threads",
        seconds,
    )
    click.echo(
        f"the model was loaded in {contest.loading:.2f} s; the command took "
        f"{ratio:.2f} times as long as the search"
    )
    if record:
        facts = {
            "sentences": len(lines),
            "beam": beam,
            "seconds": summary(seconds["search"]),
            "at_most": at_most,
            "command_seconds": summary(seconds["command"]),
            "command_ratio": round(ratio, 3),
            "command_at_most": command_at_most,
        }
        facts |= {
            "loading_seconds": round(contest.loading, 3),
            "model": contest.translator.facts["model"],
        }
        write_record("test_2016", facts, seed=0)
    if median(seconds["search"]) > at_most:
        raise click.ClickException(
            f"the median is {median(seconds['search']):.1f} s, expected at most "
            f"{at_most} s"
        )
    if ratio > command_at_most:
        raise click.ClickException(
            f"the command takes {ratio:.2f} times as long as the search, expected at "
            f"most {command_at_most}"
        )


if __name__ == "__main__":
    main()
