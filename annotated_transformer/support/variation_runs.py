"""Run table 3 in miniature: ``python -m annotated_transformer.support.variation_runs``.

Chapter 15 holds what is compared and how; this is the machinery around it. One command
makes any of the runs, skips what is finished, goes on where it was killed, and collects
a record.
"""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import click
import torch

from ..data import Batch, encode_pairs, token_batches
from ..evaluation import score
from ..subwords import Subwords, train_subwords
from ..training import TrainingConfig, perplexity
from ..transformer import Transformer, count_parameters
from ..translator import translate_lines
from ..variations import ROWS, miniature_row, row_smoothing
from .checkpoints import find_checkpoints
from .corpora import Corpus, load_multi30k, miniature_corpus
from .files import write_atomically
from .records import describe_run
from .runs import Trainer, choose_device

PROGRAM = ("python", "-m", "annotated_transformer.support.variation_runs")
FILE = {"dir_okay": False, "path_type": Path}


@dataclass(frozen=True)
class Plan:
    """What all runs of the table have in common, so that only the row differs (section
    6.2)."""

    corpus: Literal["multi30k", "miniature"]
    vocabulary_size: int
    steps: int
    max_tokens: int
    """Of a batch, on each side, padding counted."""
    warmup_steps: int
    factor: float
    """Of the learning rate of equation 3."""


PLANS = {
    "multi30k": Plan("multi30k", 4000, 2200, 512, warmup_steps=400, factor=0.9),
    "miniature": Plan("miniature", 400, 200, 256, warmup_steps=60, factor=0.2),
}


def planned_runs(
    rows: Sequence[str] = ROWS, seeds: int = 2, base_seeds: int = 5
) -> list[tuple[str, int]]:
    """The runs of the table as pairs of row and seed, seed by seed: a table that was
    stopped half-way has one run of each row, and not two of the first ten."""
    counts = {row: base_seeds if row == "base" else seeds for row in rows}
    seeds_there = range(max(counts.values()))
    return [(row, seed) for seed in seeds_there for row in counts if seed < counts[row]]


def missing_runs(record: dict[str, Any]) -> list[tuple[str, int]]:
    """The runs of the whole table, two seeds a row and five for the base row, that a
    record lacks."""
    there = {(run["row"], run["seed"]) for run in record["runs"]}
    return [run for run in planned_runs() if run not in there]


@dataclass(frozen=True)
class Text:
    """A corpus made ready for all runs of a plan."""

    corpus: Corpus
    subwords: Subwords
    train: list[tuple[list[int], list[int]]]
    validation: list[Batch]
    sample: list[Batch]
    """The first training pairs, as many as there are to validate."""


def prepare_text(plan: Plan) -> Text:
    """The text of a plan. Raises CorpusUnavailable where the corpus cannot be had."""
    corpus = load_multi30k() if plan.corpus == "multi30k" else miniature_corpus()
    sides = (side for pair in corpus.train for side in pair)
    subwords = train_subwords(sides, plan.vocabulary_size)
    train = encode_pairs(corpus.train, subwords)
    held_out = encode_pairs(corpus.validation, subwords)
    validation, sample = (
        list(token_batches(pairs, 2048, epochs=1))
        for pairs in (held_out, train[: len(held_out)])
    )
    return Text(corpus, subwords, train, validation, sample)


def make_trainer(
    row: str,
    seed: int,
    plan: Plan,
    text: Text,
    folder: Path | str,
    device: torch.device,
) -> Trainer:
    """The run of one row with one seed, with log and checkpoints in ``folder``, where
    it stood when it was stopped.

    The seed decides the initialization, what dropout erases and the order of the
    batches, which does not depend on the row.
    """
    torch.manual_seed(seed)
    model = Transformer(miniature_row(row, len(text.subwords))).to(device)
    config = TrainingConfig(
        plan.steps,
        plan.max_tokens,
        warmup_steps=plan.warmup_steps,
        factor=plan.factor,
        smoothing=row_smoothing(row),
        seed=seed,
        save_every=max(1, plan.steps // 5),
        keep=1,
    )
    facts = {"row": row, "seed": seed, "plan": asdict(plan)}
    trainer = Trainer(model, config, folder, facts)
    trainer.resume()
    return trainer


def measure(model: Transformer, text: Text) -> dict[str, Any]:
    """The columns of table 3 on the validation part: perplexity of a token, BLEU by the
    search of section 6.1, without averaged checkpoints.

    Beside them the perplexity of as many training pairs, chrF, and BLEU's signature.
    """
    sources, references = zip(*text.corpus.validation, strict=True)
    found = translate_lines(model, text.subwords, sources)
    scores = score([translation.text for translation in found], references)
    return {
        "perplexity": perplexity(model, text.validation),
        "training_perplexity": perplexity(model, text.sample),
        "bleu": scores["bleu"]["score"],
        "chrf": scores["chrf"]["score"],
        "signature": scores["bleu"]["signature"],
    }


def learning_curve(folder: Path) -> list[list[float]]:
    """Steps and validation perplexities of the run in ``folder``, from its log."""
    log = (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return [
        [entry["step"], entry["validation_perplexity"]]
        for entry in map(json.loads, log)
        if "validation_perplexity" in entry
    ]


def run_row(
    row: str, seed: int, plan: Plan, text: Text, folder: Path, device: torch.device
) -> dict[str, Any] | None:
    """Train and measure one row with one seed; the result is written to
    ``folder/result.json`` and returned. Its checkpoints go.

    Goes on from the newest checkpoint in ``folder``. Returns None where a signal
    stopped the training, which is then saved. Raises what ``Trainer.run`` raises.
    """
    trainer = make_trainer(row, seed, plan, text, folder, device)
    batches = token_batches(text.train, plan.max_tokens, seed)
    if not trainer.run(batches, text.validation):
        return None
    tokens = sum(len(target) + 1 for _, target in text.train)
    result = {"row": row, "seed": seed, "parameters": count_parameters(trainer.model)}
    result |= measure(trainer.model, text)
    result |= {
        "history": learning_curve(folder),
        "passes": round(trainer.tokens / tokens, 2),
        "seconds": round(trainer.seconds, 1),
        "cpu_seconds": round(trainer.cpu_seconds, 1),
        "made_by": describe_run(PROGRAM, device),
    }
    write_atomically(folder / "result.json", json.dumps(result, indent=1).encode())
    for checkpoint in find_checkpoints(folder):
        checkpoint.with_suffix(".json").unlink()
        checkpoint.with_suffix(".safetensors").unlink()
    return result


def keep_plan(plan: Plan, folder: Path) -> None:
    """Write ``plan`` into ``folder``, or raise ValueError where runs of another plan
    lie there already."""
    path = folder / "plan.json"
    if path.exists():
        old = json.loads(path.read_bytes())
        for name, value in asdict(plan).items():
            if old.get(name) != value:
                raise ValueError(
                    f"{folder} holds runs with {name} {old.get(name)}, not {value}: a "
                    "table has one plan; name another folder, or ask for the same"
                )
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(asdict(plan), indent=1).encode())


def run_all(
    runs: Sequence[tuple[str, int]], plan: Plan, folder: Path, device: torch.device
) -> Iterator[tuple[str, int, dict[str, Any] | None]]:
    """Make each of ``runs`` that has no result yet in ``folder``; yields row, seed and
    result.

    Ends early, with None for a result, where a signal stopped a run. Raises ValueError
    as ``keep_plan``, CorpusUnavailable where the corpus cannot be had.
    """
    keep_plan(plan, folder)
    folders = {run: folder / f"{run[0]}-{run[1]}" for run in runs}
    open_runs = [run for run in runs if not (folders[run] / "result.json").exists()]
    text = prepare_text(plan) if open_runs else None
    for row, seed in open_runs:
        result = run_row(row, seed, plan, text, folders[row, seed], device)
        yield row, seed, result
        if result is None:
            return


def collect(folder: Path) -> dict[str, Any]:
    """The record of all finished runs in ``folder``: their plan, what made them, and
    the runs themselves.

    A run's ``made_by`` is an index into the list ``made_by``, for most runs share their
    origin. Raises ValueError where ``folder`` holds no finished run.
    """
    paths = sorted(folder.glob("*-*/result.json"))
    runs = [json.loads(path.read_bytes()) for path in paths]
    if not runs:
        raise ValueError(
            f"{folder} holds no finished run: expected folders such as base-0 with a "
            "result.json"
        )
    origins: list[dict[str, Any]] = []
    for run in runs:
        origin = run["made_by"] | {"signature": run.pop("signature")}
        if origin not in origins:
            origins.append(origin)
        run["made_by"] = origins.index(origin)
    runs.sort(key=lambda run: (ROWS.index(run["row"]), run["seed"]))
    plan = json.loads((folder / "plan.json").read_bytes())
    return {"plan": plan, "made_by": origins, "runs": runs}


def write_record(folder: Path, path: Path) -> None:
    """Write the record of ``folder`` to ``path``, a line for each run."""
    record = collect(folder)
    runs = ",\n".join(f"  {json.dumps(run)}" for run in record.pop("runs"))
    head = json.dumps(record, indent=1).removesuffix("\n}")
    write_atomically(path, f'{head},\n "runs": [\n{runs}\n ]\n}}\n'.encode())


def make_table(
    wanted: Sequence[tuple[str, int]],
    plan: Plan,
    folder: Path,
    record: Path | None,
    device: str,
) -> bool:
    """Make the runs that are not finished, and write the record where one is asked for;
    False where a signal came.

    Each run is a line on standard error. What the user can fix is raised as a
    ``ClickException`` with exit code 2.
    """
    try:
        for row, seed, result in run_all(wanted, plan, folder, choose_device(device)):
            if result is None:
                return False
            click.echo(
                f"{row}, seed {seed}: perplexity {result['perplexity']:.2f}, "
                f"BLEU {result['bleu']:.2f}, "
                f"{result['cpu_seconds']:.0f} s of processor time",
                err=True,
            )
        if record:
            write_record(folder, record)
    except (OSError, ValueError, RuntimeError, FloatingPointError) as error:
        failure = click.ClickException(" ".join(str(error).split()))
        failure.exit_code = 2
        raise failure from error
    return True


@click.command(
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True}
)
@click.argument("runs", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--row",
    "rows",
    type=click.Choice(ROWS),
    multiple=True,
    help="Any number of times.  [default: all rows]",
)
@click.option("--seeds", type=click.IntRange(0), default=2, help="Runs of each row.")
@click.option(
    "--base-seeds", type=click.IntRange(0), default=5, help="Runs of the base row."
)
@click.option(
    "--corpus",
    type=click.Choice(list(PLANS)),
    default="multi30k",
    help="Which text, with its plan.",
)
@click.option(
    "--steps", type=click.IntRange(1), help="Steps of every run.  [default: the plan's]"
)
@click.option(
    "--data",
    type=click.Path(),
    envvar="ANNOTATED_TRANSFORMER_DATA",
    help="A folder that has the corpus.",
)
@click.option(
    "--record", type=click.Path(**FILE), help="Collect all finished runs here."
)
@click.option(
    "--device", default="cpu", help="Where to compute: cpu, cuda, mps or auto."
)
@click.option("--threads", type=click.IntRange(1), help="Threads of the processor.")
def main(
    runs: Path,
    rows: tuple[str, ...],
    seeds: int,
    base_seeds: int,
    corpus: str,
    steps: int | None,
    data: str | None,
    record: Path | None,
    device: str,
    threads: int | None,
) -> None:
    """Train and score rows of table 3 in miniature, each in a folder of RUNS; the same
    command goes on.

    Ctrl-C saves the run that is under way and ends with exit code 130, an error that
    you can fix with 2.
    """
    if data:
        os.environ["ANNOTATED_TRANSFORMER_DATA"] = data
    if threads:
        torch.set_num_threads(threads)
    plan = replace(PLANS[corpus], steps=steps or PLANS[corpus].steps)
    wanted = planned_runs(rows or ROWS, seeds, base_seeds)
    if not make_table(wanted, plan, runs, record, device):
        click.echo("stopped and saved; the same command goes on", err=True)
        click.get_current_context().exit(130)


if __name__ == "__main__":
    main()
