"""Long runs of chapter 16 on the Penn Treebank sample, their baselines, and the command
that records both: ``python -m annotated_transformer.support.parsing_runs``."""

import json
import random
import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

import click
import torch

from ..data import token_batches
from ..parsing import (
    SEARCH,
    ParsingVocabulary,
    evaluate_by_length,
    evaluate_parses,
    flat_tree,
    linearize,
    parse,
    parsing_config,
    right_branching,
    score_trees,
)
from ..training import TrainingConfig
from ..transformer import Transformer, count_parameters
from .corpora import CorpusUnavailable
from .files import write_atomically
from .records import describe_run
from .runs import Trainer
from .treebanks import (
    OWN_TREES,
    Tree,
    Treebank,
    leaves,
    load_penn_sample,
    preterminals,
    read_trees,
)

PROGRAM = ["python", "-m", "annotated_transformer.support.parsing_runs"]
RECORDS = Path(str(files("annotated_transformer").joinpath("records")))
BASELINES = {"right-branching": right_branching, "flat": flat_tree}


def check_settings(folder: Path, settings: dict[str, Any]) -> None:
    """Write ``settings`` into a run's folder, or compare with those there: ValueError
    where they differ."""
    path, settings = folder / "settings.json", json.loads(json.dumps(settings))
    if path.exists():
        found = json.loads(path.read_text(encoding="utf-8"))
        if found != settings:
            raise ValueError(
                f"{folder} was begun with {found}, not {settings}: name another "
                "folder, or the same settings"
            )
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(settings, indent=1).encode())


def train_parser(
    trees: Sequence[Tree],
    validation: Sequence[Tree],
    folder: Path,
    training: TrainingConfig,
) -> tuple[Trainer, ParsingVocabulary, bool]:
    """Train a parser on ``trees`` (section 6.3), from the newest checkpoint in
    ``folder`` on.

    Vocabulary, model and batches come from nothing but the trees and the settings, so
    that a second call builds the same. Returns the run, its vocabulary, and whether all
    steps are done (False: it was interrupted). Raises ValueError where the folder was
    begun with other settings, and what ``Trainer.run`` raises.
    """
    vocabulary = ParsingVocabulary(trees)
    config = parsing_config(len(vocabulary))
    settings = {"trees": len(trees), "model": asdict(config)}
    check_settings(folder, settings | {"training": asdict(training)})
    torch.manual_seed(training.seed)
    trainer = Trainer(Transformer(config), training, folder)
    trainer.resume()
    pairs = [vocabulary.encode_pair(tree) for tree in trees]
    batches = token_batches(pairs, training.max_tokens, training.seed)
    held_out = [vocabulary.encode_pair(tree) for tree in validation]
    held_out = list(token_batches(held_out, training.max_tokens, epochs=1))
    finished = trainer.step >= training.steps or trainer.run(batches, held_out)
    return trainer, vocabulary, finished


def run_size(
    treebank: Treebank, size: int, folder: Path, training: TrainingConfig
) -> dict[str, Any] | None:
    """Train on ``size`` trees of the treebank and evaluate the parser on its test part;
    None where it was interrupted. A finished report is kept in ``folder``."""
    shuffled = random.Random(0).sample(treebank.train, len(treebank.train))
    trees = shuffled[:size]
    trainer, vocabulary, finished = train_parser(
        trees, treebank.validation, folder, training
    )
    report = folder / "report.json"
    if finished and not report.exists():
        own = [leaves(tree) for tree in read_trees(OWN_TREES)]
        sentences = [leaves(tree) for tree in treebank.test]
        begun = time.process_time()
        parses = parse(trainer.model, vocabulary, sentences + own)
        of_test = parses[: len(sentences)]
        searched = time.process_time() - begun
        greedy = parse(trainer.model, vocabulary, sentences, SEARCH | {"beam_size": 1})
        facts = {
            "trees": size,
            "words": sum(len(leaves(tree)) for tree in trees),
            "vocabulary_size": len(vocabulary),
            "parameters": count_parameters(trainer.model),
            **evaluate_parses(treebank.test, of_test),
            "by_length": evaluate_by_length(treebank.test, of_test),
            "greedy": evaluate_parses(treebank.test, greedy),
            "own": [str(tree) for tree, _ in parses[len(sentences) :]],
            "training_cpu_seconds": round(trainer.cpu_seconds, 1),
            "search_cpu_seconds": round(searched, 1),
        }
        write_atomically(report, json.dumps(facts, indent=1).encode())
    return json.loads(report.read_text(encoding="utf-8")) if finished else None


def score_baselines(treebank: Treebank) -> dict[str, Any]:
    """What parsers score that know next to nothing, by name: F1, precision and recall
    on the treebank's test part, in per cent."""
    found = {}
    for name, build in BASELINES.items():
        guesses = [build(preterminals(tree)) for tree in treebank.test]
        score = score_trees(treebank.test, guesses)
        rates = ("f1", "precision", "recall")
        found[name] = {rate: round(getattr(score, rate), 2) for rate in rates}
    return found


def describe_lines(treebank: Treebank) -> dict[str, Any]:
    """How long the lines of brackets of a treebank are: tokens per word, and how many
    of its trees have more tokens than input length + 50 and + 300 allow, the end tokens
    of both sides counted (section 6.3)."""
    lengths = [(len(leaves(tree)), len(linearize(tree))) for tree in treebank.trees]
    tokens, words = sum(m for _, m in lengths), sum(n for n, _ in lengths)
    return {
        "trees": len(lengths),
        "tokens_per_word": round(tokens / words, 3),
        "cut_off": {
            str(extra): sum(m + 1 > n + 1 + extra for n, m in lengths)
            for extra in (50, 300)
        },
    }


def parts_of(treebank: Treebank) -> dict[str, int]:
    """The number of trees in each part."""
    names = ("train", "validation", "test")
    return {name: len(getattr(treebank, name)) for name in names}


def parsing_record(
    treebank: Treebank, runs: list[dict[str, Any]], training: TrainingConfig
) -> dict[str, Any]:
    """The record of some runs on one treebank, with their settings and provenance."""
    return {
        "treebank": treebank.name,
        "parts": parts_of(treebank),
        "runs": runs,
        "search": SEARCH,
        "model": asdict(parsing_config(runs[-1]["vocabulary_size"])),
        "training": asdict(training),
        **describe_run(PROGRAM, torch.device("cpu")),
        "seed": training.seed,
    }


def write_record(path: Path, record: dict[str, Any]) -> None:
    """Write a record as JSON, whole or not at all."""
    write_atomically(path, (json.dumps(record, indent=1) + "\n").encode())


@click.group()
def main() -> None:
    """Parsers of chapter 16 on the Penn Treebank sample."""
    torch.set_num_threads(1)


def record_option(name: str):  # noqa: ANN201
    """The option ``--record``, by default the record called ``name``."""
    kind = click.Path(path_type=Path, dir_okay=False)
    help = "Where to write the record."
    return click.option("--record", type=kind, default=RECORDS / name, help=help)


@main.command("train")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--size",
    "sizes",
    type=click.IntRange(1),
    multiple=True,
    help="Trees.  [default: 400 800 1600, all]",
)
@click.option("--steps", type=click.IntRange(1), default=1000, show_default=True)
@click.option("--warmup-steps", type=click.IntRange(1), default=300, show_default=True)
@click.option("--max-tokens", type=click.IntRange(1), default=2000, show_default=True)
@record_option("parsing.json")
def train_command(
    folder: Path,
    sizes: tuple[int, ...],
    steps: int,
    warmup_steps: int,
    max_tokens: int,
    record: Path,
) -> None:
    """Train and evaluate parsers, one for each size, with checkpoints in FOLDER.

    Interrupted, the same command goes on. The record is written when all sizes are
    done.
    """
    training = TrainingConfig(
        steps, max_tokens, warmup_steps=warmup_steps, save_every=100, keep=1
    )
    try:
        treebank, runs = load_penn_sample(), []
        for size in sorted(sizes or (400, 800, 1600, len(treebank.train))):
            if size > len(treebank.train):
                raise ValueError(
                    f"--size {size} is more than the {len(treebank.train):,} training "
                    "trees: lower it"
                )
            run = run_size(treebank, size, folder / str(size), training)
            if run is None:
                saved = folder / str(size)
                click.echo(
                    f"stopped and saved in {saved}; the same command goes on", err=True
                )
                click.get_current_context().exit(130)
            well = f"{run['well_formed']} of {run['sentences']} well-formed"
            click.echo(f"{size:,} trees: F1 {run['f1']:.2f}, {well}")
            runs.append(run)
    except (CorpusUnavailable, ValueError, OSError) as error:
        raise click.ClickException(str(error)) from error
    write_record(record, parsing_record(treebank, runs, training))


@main.command("baselines")
@record_option("parsing_baselines.json")
def baselines_command(record: Path) -> None:
    """Score the baselines, and count the lines that do not fit a limit."""
    try:
        treebank = load_penn_sample()
    except CorpusUnavailable as error:
        raise click.ClickException(str(error)) from error
    found = {"treebank": treebank.name, "parts": parts_of(treebank)}
    found |= {"baselines": score_baselines(treebank), **describe_lines(treebank)}
    write_record(record, found | describe_run(PROGRAM, torch.device("cpu")))


if __name__ == "__main__":
    main()
