"""From a folder of text to a translator that is scored, one command a step."""

import json
import math
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, fields, replace
from functools import partial
from itertools import chain, islice, repeat
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, get_args, get_origin, get_type_hints

import click
import torch

import annotated_transformer
from annotated_transformer.data import encode_stream, stream_batches, token_batches
from annotated_transformer.evaluation import average_checkpoints, score
from annotated_transformer.subwords import Subwords, train_subwords
from annotated_transformer.support.checkpoints import (
    find_checkpoints,
    load_weights,
    read_log,
)
from annotated_transformer.support.corpora import (
    Corpus,
    Pair,
    ParallelFiles,
    load_multi30k,
    miniature_corpus,
    read_lines,
)
from annotated_transformer.support.files import naming, write_atomically, write_together
from annotated_transformer.support.records import describe_run, typed
from annotated_transformer.support.runs import (
    Trainer,
    choose_device,
    keep_memory,
    workers,
)
from annotated_transformer.training import TrainingConfig
from annotated_transformer.transformer import (
    Transformer,
    TransformerConfig,
    count_parameters,
)
from annotated_transformer.translator import (
    PRETRAINED,
    Translator,
    attention_of,
    scores_by_length,
)


class Failure(click.ClickException):
    """An error that the user can mend: one line on standard error, exit code 2."""

    exit_code = 2


class Commands(click.Group):
    """Commands, listed in the order of use, that turn the library's errors into a
    ``Failure``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands as they were defined."""
        return list(self.commands)

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the command line; ends the process."""
        try:
            return super().main(*args, **extra)
        except (OSError, ValueError, RuntimeError, ArithmeticError) as error:
            try:
                sys.stdout.flush()
            except (
                OSError,
                AttributeError,
            ):  # a full disk, or no stream: nothing to be flushed when Python ends
                sys.stdout = None
            failure = Failure(" ".join(str(error).split()))
            failure.show()
            sys.exit(failure.exit_code)


START = """\b
Example, from nothing to a scored translator:
  annotated-transformer prepare data
  annotated-transformer train data run --minutes 20
  annotated-transformer average run translator
  annotated-transformer evaluate data --model translator
  echo "Two dogs play in the snow." | annotated-transformer translate --model translator

\b
Exit codes:
  0    done
  1    aborted
  2    an error that you can mend: one line on standard error says how
  130  training was interrupted, and saved"""


SETTINGS = {
    "help_option_names": ["-h", "--help"],
    "show_default": True,
    "max_content_width": 100,
}


@click.group(cls=Commands, context_settings=SETTINGS, epilog=START)
@click.version_option(annotated_transformer.__version__)
def main() -> None:
    """Train the Transformer of "Attention Is All You Need" on parallel text, and
    translate with it.

    COMMAND --help tells more of each command.
    """

EXAMPLES = {
    "prepare":\
               """\b
    Examples:
      annotated-transformer prepare data
      annotated-transformer prepare data --source en --target fr --vocabulary-size 10000
      annotated-transformer prepare data --corpus files --train train.en.gz train.de.gz \\
          --validation dev.en dev.de --test test.en test.de --vocabulary-size 37000"""

                                                                                      ,
    "train":\
             """\b
    Examples:
      annotated-transformer train data run --minutes 20
      annotated-transformer train data run --config small --dropout 0.2 --device cuda
      annotated-transformer train data run --resume
    \b
    The paper's base model, on eight GPUs of one machine:
      torchrun --nproc-per-node 8 -m annotated_transformer train data run \\
          --config base --max-tokens 3125 --stream --save-every 1500""",
    "average":\
               """\b
    Example:
      annotated-transformer average run translator --last 8"""

                                                              ,
    "translate":\
                 """\b
    Examples:
      echo "A man sleeps." | annotated-transformer translate
      annotated-transformer translate --model translator --attention attention.json < text.en > text.de""",
    "evaluate":\
                """\b
    Example:
      annotated-transformer evaluate data --model translator > record.json"""

                                                                             ,
}


PARTS = ("train", "validation", "test")


def write_corpus(corpus: Corpus, data: Path) -> dict[str, list[str]]:
    """Write each part of a corpus into the folder ``data``, a file a language; returns
    the names of the files."""
    names = {
        part: [f"{part}.{language}" for language in corpus.languages] for part in PARTS
    }
    (data / "corpus.json").unlink(
        missing_ok=True
    )  # until all is written, ``data`` is no corpus
    for part in PARTS:
        for name, side in zip(
            names[part], zip(*getattr(corpus, part), strict=True), strict=True
        ):
            write_atomically(
                data / name, "".join(f"{line}\n" for line in side).encode()
            )
    return names


def load_named(corpus: str, source: str, target: str) -> Corpus:
    """The corpus of that name; ValueError where it has not these two languages."""
    if corpus == "multi30k":
        return load_multi30k(source, target)
    if (source, target) != (miniature := miniature_corpus()).languages:
        raise ValueError(
            f"the miniature corpus goes from en to de, not {source} to {target}: leave the options out"
        )
    return miniature


def learn_subwords(
    pairs: Iterable[Pair], count: int, vocabulary_size: int, sample: int
) -> Subwords:
    """A vocabulary from at most ``sample`` of ``count`` pairs, spread evenly over them
    (section 5.1)."""
    spread = islice(pairs, 0, None, math.ceil(count / sample))
    return train_subwords((text for pair in spread for text in pair), vocabulary_size)


def count_all(text: dict[str, Iterable[Pair]]) -> dict[str, int]:
    """The pairs of each part.

    Reads everything once: missing, unequal, damaged or empty files come out here.
    """
    counts = {part: sum(1 for _ in pairs) for part, pairs in text.items()}
    for part, pairs in text.items():
        if not any(source.strip() and target.strip() for source, target in pairs):
            raise ValueError(
                f"--{part} holds no pair with text on both sides: expected at least one"
            )
    return counts


TWO_FILES: dict[str, Any] = {
    "nargs": 2,
    "type": click.Path(path_type=Path),
    "metavar": "SOURCE TARGET",
}


@main.command(
    epilog=EXAMPLES["prepare"], short_help="Write corpus and vocabulary into a folder."
)
@click.argument("data", type=click.Path(path_type=Path))
@click.option(
    "--corpus",
    type=click.Choice(["multi30k", "miniature", "files"]),
    default="multi30k",
    help="Which text.",
)
@click.option("--source", default="en", help="Language to translate from.")
@click.option("--target", default="de", help="Language to translate into.")
@click.option(
    "--vocabulary-size",
    type=click.IntRange(1),
    help="Subwords in all.  [default: 8000, miniature 600]",
)
@click.option(
    "--sample",
    type=click.IntRange(1),
    default=1_000_000,
    help="Most pairs to learn the subwords from.",
)
@click.option("--train", help="With --corpus files: the text to train on.", **TWO_FILES)
@click.option(
    "--validation",
    help="With --corpus files: text held out while training.",
    **TWO_FILES,
)
@click.option("--test", help="With --corpus files: text for evaluate.", **TWO_FILES)
def prepare(
    data: Path,
    corpus: str,
    source: str,
    target: str,
    vocabulary_size: int | None,
    sample: int,
    **given: Any,
) -> None:
    """Write corpus and vocabulary into the folder DATA.

    Multi30k is downloaded, or read from the folder that ANNOTATED_TRANSFORMER_DATA
    names. With --corpus files, text (plain or .gz, UTF-8, a sentence a line) stays
    where it is; give --train, --validation and --test.
    """
    if {corpus == "files"} != {paths is not None for paths in given.values()}:
        raise click.UsageError(
            "--corpus files goes with --train, --validation and --test, two files each"
        )
    if source == target:
        raise ValueError(
            f"--source and --target are both {source!r}: expected two languages"
        )
    named = corpus != "files" and load_named(corpus, source, target)
    text = {
        part: getattr(named, part) if named else ParallelFiles(*given[part])
        for part in PARTS
    }
    counts, size = (
        count_all(text),
        vocabulary_size or (600 if corpus == "miniature" else 8000),
    )
    subwords = learn_subwords(text["train"], counts["train"], size, sample)
    own = {
        part: [str(path.resolve()) for path in paths]
        for part, paths in given.items()
        if paths
    }
    data.mkdir(parents=True, exist_ok=True)
    files = own or write_corpus(named, data)
    facts = {
        "corpus": corpus,
        "languages": [source, target],
        "files": files,
        "pairs": counts,
        "command": typed(),
    }
    seal = json.dumps(facts, indent=1).encode()
    write_together(
        {data / "subwords.model": subwords.model, data / "corpus.json": seal}
    )
    click.echo(
        f"{data}: {counts['train']:,} training pairs, {size:,} subwords", err=True
    )


def read_facts(path: Path, made_by: str, *names: str) -> dict:
    """The JSON object of ``path``; ValueError where it cannot be read or lacks one of
    ``names``."""
    try:
        facts = json.loads(path.read_bytes())
        missing = [name for name in names if name not in facts]
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(
            f"{path} cannot be read ({error}): run annotated-transformer {made_by} first"
        ) from error
    if missing:
        raise ValueError(
            f"{path} has no {missing[0]!r}: it is not what annotated-transformer {made_by} writes"
        )
    return facts


def read_corpus(data: Path) -> dict:
    """What ``prepare`` noted of the folder ``data``: languages, files and counts."""
    facts = read_facts(data / "corpus.json", "prepare", "languages", "files")
    files = facts["files"] if isinstance(facts["files"], dict) else {}
    for two in (facts["languages"], *(files.get(part) for part in PARTS)):
        if not isinstance(two, list) or [type(name) for name in two] != [str, str]:
            raise ValueError(
                f"{data / 'corpus.json'} is damaged: expected two names, found {two}; run prepare again"
            )
    return facts


def pairs_of(data: Path, part: str) -> ParallelFiles:
    """One part of a prepared corpus: "train", "validation" or "test"."""
    return ParallelFiles(*(data / name for name in read_corpus(data)["files"][part]))


SMALL = partial(
    TransformerConfig, num_layers=4, d_model=256, d_ff=1024, num_heads=4, max_length=256
)
PRESETS = {
    "tiny": (
        TransformerConfig.tiny,
        TrainingConfig(6000, 2048, warmup_steps=800, save_every=250),
    ),
    "small": (SMALL, TrainingConfig(20_000, 4096, warmup_steps=2000, save_every=500)),
    "base": (TransformerConfig.base, TrainingConfig()),
    "big": (TransformerConfig.big, TrainingConfig(300_000)),
}


FIELD_HELP = {
    "num_layers": "Layers of the encoder, and of the decoder (the paper's N).",
    "d_model": "Length of the vector that stands for one token.",
    "d_ff": "Length of that vector inside the feed-forward network.",
    "num_heads": "Heads of each attention layer (the paper's h).",
    "d_k": "Length of a head's queries and keys; else d_model / num_heads.",
    "d_v": "Length of a head's values; else d_model / num_heads.",
    "dropout": "Probability that dropout sets a number to zero.",
    "norm": "Layer norm after each sum, as in the paper, or before each sublayer.",
    "positions": "Positions as sines of the paper, or learned.",
    "max_length": "Most tokens of a sentence; longer pairs are left out.",
    "steps": "Steps of the optimizer.",
    "max_tokens": "Most tokens of a batch on each side, padding counted, in one process.",
    "accumulate": "Batches of one process whose gradients make one step.",
    "warmup_steps": "Steps during which the learning rate rises (equation 3).",
    "factor": "Multiplies the learning rate of equation 3.",
    "smoothing": "Label smoothing: the share of probability given to all tokens alike.",
    "precision": "bf16 computes matrix products in bfloat16; weights stay in 32 bits.",
    "seed": "Of the first weights, the order of the batches, and dropout.",
    "save_every": "Steps from one checkpoint to the next; validation comes with it.",
    "keep": "Newest checkpoints to keep.",
    "log_every": "Steps from one line of the log to the next.",
}


def preset_values(config: type, name: str) -> str:
    """What each preset has for a field of ``config``, for its help: one value where all
    agree, nothing for none."""
    made = {
        preset: (make(8000), training) for preset, (make, training) in PRESETS.items()
    }
    values = {
        preset: getattr(pair[config is TrainingConfig], name)
        for preset, pair in made.items()
    }
    if len(set(values.values())) > 1:
        return (
            f" [{', '.join(f'{preset} {value}' for preset, value in values.items())}]"
        )
    return "" if None in values.values() else f" [default: {values['base']}]"


class FieldOption(click.Option):
    """The option of one field of a configuration; ``section`` is the heading of its
    place in the help."""

    def __init__(self, config: type, name: str) -> None:
        hint = get_type_hints(config)[name]
        choice = get_origin(hint) is Literal
        kind = (
            click.Choice(get_args(hint))
            if choice
            else next(k for k in (int, float) if k in (hint, *get_args(hint)))
        )
        described = FIELD_HELP[name] + preset_values(config, name)
        super().__init__(["--" + name.replace("_", "-")], type=kind, help=described)
        self.section = "The model" if config is TransformerConfig else "Training"


class SectionedCommand(click.Command):
    """A command whose help shows the options of each section under a heading."""

    def format_options(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """Write the options, those without a section first."""
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        for parameter in self.get_params(ctx):
            if isinstance(parameter, click.Option) and (
                record := parameter.get_help_record(ctx)
            ):
                sections.setdefault(
                    getattr(parameter, "section", "Options"), []
                ).append(record)
        for name, records in sections.items():
            with formatter.section(name):
                formatter.write_dl(records)


def field_options(command: Callable) -> Callable:
    """Give a command one option for each field of both configurations that a user may
    choose."""
    decided = ("vocabulary_size", "pad_id")  # by the vocabulary
    later = ("activation", "attention_bias", "norm_eps")  # of models after the paper
    options = [
        FieldOption(config, field.name)
        for config in (TransformerConfig, TrainingConfig)
        for field in fields(config)
        if field.name not in decided + later
    ]
    command.__click_params__ = options[::-1] + getattr(command, "__click_params__", [])
    return command


def machine_options(command: Callable) -> Callable:
    """The options of each command that computes."""
    command = click.option(
        "--threads", type=click.IntRange(1, 1024), help="CPU threads; else all cores."
    )(command)
    return click.option("--device", default="auto", help="auto, cpu, cuda or mps.")(
        command
    )


def use_machine(device: str, threads: int | None) -> torch.device:
    """Set the number of threads where one is given, and choose the device."""
    if threads:
        torch.set_num_threads(threads)
    return choose_device(device)


def chosen(config: Any, options: dict[str, Any]) -> Any:
    """``config`` with those of its fields replaced that ``options`` gives."""
    given = {field.name: options.get(field.name) for field in fields(config)}
    return replace(
        config, **{name: value for name, value in given.items() if value is not None}
    )


def configs_of(facts: dict) -> tuple[TransformerConfig, TrainingConfig]:
    """The configurations among the facts of a run; ValueError where they are
    damaged."""
    try:
        return TransformerConfig(**facts["model"]), TrainingConfig(**facts["training"])
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"these choices make no run ({error}): expected those that train wrote to run.json"
        ) from error


def begun_run(
    data: Path, run: Path, asked: dict[str, Any], options: dict[str, Any]
) -> dict:
    """The choices of a new run; ValueError where the folder ``run`` holds one
    already."""
    if find_checkpoints(run):
        raise ValueError(
            f"{run} holds a run already: add --resume to go on with it, or name another folder"
        )
    make_model, training = PRESETS[asked["config"] or "tiny"]
    model = chosen(make_model(len(Subwords.load(data / "subwords.model"))), options)
    facts = {
        "config": asked["config"] or "tiny",
        "stream": bool(asked["stream"]),
        "workers": asked["workers"],
    }
    facts |= {"model": asdict(model), "training": asdict(chosen(training, options))}
    corpus = read_corpus(data)
    return facts | {
        "languages": corpus["languages"],
        "prepare_command": corpus.get("command"),
    }


def resumed_run(
    data: Path, run: Path, asked: dict[str, Any], options: dict[str, Any]
) -> dict:
    """The choices of the run in the folder ``run``; ValueError where others are asked
    for, or other data."""
    facts = read_facts(run / "run.json", "train", "model", "training")
    model, training = configs_of(facts)
    if (
        Subwords.load(run / "subwords.model").model
        != Subwords.load(data / "subwords.model").model
    ):
        raise ValueError(
            f"the vocabulary of {data} is not that of {run}: use the data that the run began with"
        )
    if (languages := read_corpus(data)["languages"]) != facts.get("languages"):
        raise ValueError(
            f"{data} has {' to '.join(languages)}, not {facts.get('languages')}: use the data of {run}"
        )
    old = facts | asdict(model) | asdict(training)
    for name, value in (asked | options).items():
        if value is not None and name != "steps" and value != old.get(name):
            raise ValueError(
                f"{name} is {old.get(name)} in {run}, not {value}: go on with the same, or start a new run"
            )
    if options["steps"]:
        facts["training"]["steps"] = options["steps"]
    return facts


def say_left_out(data: Path, part: str, kept: int, longest: int) -> None:
    """Say on standard error how many pairs of ``part`` are not among the ``kept`` ones,
    and why; nothing for none."""
    total = sum(1 for _ in pairs_of(data, part))
    if kept < total:
        why = f"a side without text, or of more than {longest} tokens, the end token counted"
        click.echo(
            f"{total - kept:,} of {total:,} {part} pairs are left out: {why}", err=True
        )


def batches_of(
    data: Path,
    subwords: Subwords,
    max_length: int,
    training: TrainingConfig,
    stream: bool,
    rank: int,
    world_size: int,
) -> tuple[Iterable, list]:
    """The training batches of one worker, and all of validation; pairs longer than
    ``max_length`` are left out."""
    part = {"rank": rank, "world_size": world_size}
    longest = min(max_length, training.max_tokens)
    held_out = list(encode_stream(pairs_of(data, "validation"), subwords, longest))
    fits = encode_stream(pairs_of(data, "train"), subwords, longest)
    if not held_out or not next(fits, None):
        raise ValueError(
            f"no pairs in {data} for training or for validation have text and fewer than {longest} tokens on both "
            "sides: raise --max-length and --max-tokens"
        )
    if stream:
        batches = stream_batches(
            pairs_of(data, "train"),
            subwords,
            training.max_tokens,
            training.seed,
            max_length=longest,
            **part,
        )
    else:
        pairs = list(encode_stream(pairs_of(data, "train"), subwords, longest))
        if rank == 0:
            say_left_out(data, "train", len(pairs), longest)
        batches = token_batches(pairs, training.max_tokens, training.seed, **part)
    return batches, list(token_batches(held_out, max(2048, longest), epochs=1))


def program(world_size: int) -> list[str]:
    """The words that start so many processes of this program, on as many machines as
    now."""
    here = int(os.environ.get("LOCAL_WORLD_SIZE", world_size))
    machines = ["--nnodes", str(world_size // here)] if here < world_size else []
    torchrun = [
        "torchrun",
        *machines,
        "--nproc-per-node",
        str(here),
        "-m",
        "annotated_transformer",
    ]
    return torchrun if world_size > 1 else ["annotated-transformer"]


def way_on(
    data: Path, run: Path, device: str, threads: int | None, world_size: int
) -> str:
    """The command that goes on with a run."""
    machine = ["--device", device] if device != "auto" else []
    machine += ["--threads", str(threads)] if threads else []
    return shlex.join(
        [*program(world_size), "train", str(data), str(run), "--resume", *machine]
    )


def say_what_next(trainer: Trainer, finished: bool, go_on: str) -> None:
    """How far the run has come and what to type now, on standard error."""
    if finished:
        average = shlex.join(
            ["annotated-transformer", "average", str(trainer.folder), "translator"]
        )
        click.echo(
            f"{trainer.folder}: {trainer.step:,} steps are done; next: {average}",
            err=True,
        )
    else:
        click.echo(
            f"stopped and saved after step {trainer.step:,}; to go on: {go_on}",
            err=True,
        )


def save_run(run: Path, subwords: Subwords, facts: dict) -> None:
    """Write the vocabulary and the choices of a run into its folder."""
    run.mkdir(parents=True, exist_ok=True)
    subwords.save(run / "subwords.model")
    write_atomically(run / "run.json", json.dumps(facts, indent=1).encode())


def train_worker(
    data: Path,
    run: Path,
    facts: dict,
    device: torch.device,
    minutes: float,
    rank: int,
    world_size: int,
) -> tuple[Trainer, bool]:
    """Train from the newest checkpoint of ``run``, or from the start; says also whether
    all steps are done."""
    if math.isnan(minutes):
        raise ValueError("--minutes is nan: expected a number above 0")
    subwords, (model_config, training) = (
        Subwords.load(data / "subwords.model"),
        configs_of(facts),
    )
    torch.manual_seed(training.seed)
    model = Transformer(model_config).to(device)
    facts = facts | {"parameters": count_parameters(model)}
    if rank == 0:
        save_run(run, subwords, facts)
    trainer = Trainer(model, training, run, facts)
    trainer.resume()
    stream = bool(facts.get("stream"))
    batches = batches_of(
        data, subwords, model.config.max_length, training, stream, rank, world_size
    )
    try:
        return trainer, trainer.run(*batches, minutes)
    except OSError as error:
        raise OSError(
            f"{error}; checkpoints written before are whole: mend that, and go on with --resume"
        ) from error


@main.command(
    cls=SectionedCommand,
    epilog=EXAMPLES["train"],
    short_help="Train a model; interrupt it and go on with it.",
)
@click.argument("data", type=click.Path(path_type=Path))
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--config",
    type=click.Choice(list(PRESETS)),
    help="The preset to start from.  [default: tiny]",
)
@click.option(
    "--resume",
    is_flag=True,
    help="Go on with RUN, with its own choices; only --steps may change.",
)
@click.option(
    "--minutes",
    type=click.FloatRange(0, min_open=True),
    help="Save and stop after so much training in all.",
)
@click.option(
    "--stream",
    is_flag=True,
    help="Read the text while training: for what does not fit in memory.",
)
@machine_options
@field_options
def train(
    data: Path, run: Path, config: str | None, resume: bool, minutes: float | None, stream: bool, device: str,
    threads: int | None, **options: Any,
) -> None:  # fmt: skip
    """Train a model on DATA, a folder that prepare wrote; log and checkpoints go into
    the folder RUN.

    Ctrl-C saves a checkpoint and stops; so does the end of --minutes. Under torchrun each process takes its share of
    the batches: --max-tokens is that of one process.
    """
    chosen_device, limit = use_machine(device, threads), minutes or math.inf
    read_corpus(data)
    keep_memory()
    with workers(chosen_device) as (rank, world_size):
        asked = {"config": config, "stream": stream or None, "workers": world_size}
        facts = (resumed_run if resume else begun_run)(data, run, asked, options)
        if resume:
            facts["resumed"] = [*facts.get("resumed", []), typed(program(world_size))]
        else:
            facts |= describe_run(program(world_size), chosen_device) | {
                "seed": facts["training"]["seed"]
            }
        trainer, finished = train_worker(
            data, run, facts, chosen_device, limit, rank, world_size
        )
    if rank == 0:
        say_what_next(trainer, finished, way_on(data, run, device, threads, world_size))
    if not finished and trainer.seconds < 60 * limit:
        click.get_current_context().exit(130)  # as shells have it for Ctrl-C


@main.command(
    epilog=EXAMPLES["average"],
    short_help="Average the newest checkpoints into a translator.",
)
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("translator", type=click.Path(path_type=Path))
@click.option(
    "--last",
    type=click.IntRange(1),
    default=5,
    help="How many of the newest checkpoints.",
)
@click.option("--half", is_flag=True, help="Keep 16 bits of each weight instead of 32.")
def average(run: Path, translator: Path, last: int, half: bool) -> None:
    """Average the newest checkpoints of RUN into a folder TRANSLATOR, for translate and
    evaluate."""
    paths = find_checkpoints(run)
    if not run.is_dir():
        raise FileNotFoundError(
            f"{run} is not there: expected a folder that train wrote"
        )
    if len(paths) < last:
        raise ValueError(
            f"{run} holds {len(paths)} checkpoints, not {last}: train longer, or ask for fewer with --last"
        )
    weights, facts = average_checkpoints(paths[-last:])
    model = Transformer(configs_of(facts)[0])
    load_weights(model, weights, run)
    judged = [
        entry
        for entry in read_log(run)
        if "validation_perplexity" in entry and entry["step"] <= facts["step"]
    ]
    facts |= {
        "average_command": typed(),
        "averaged": [path.name for path in paths[-last:]],
        "history": judged,
    }
    Translator(model, Subwords.load(run / "subwords.model"), facts).save(
        translator, half
    )
    click.echo(
        f"{translator}: the average of {last} checkpoints, up to step {facts['step']:,}",
        err=True,
    )


def decoded_lines(lines: Iterable[bytes]) -> Iterator[str]:
    """Each line as text; bytes that are no UTF-8 are replaced, and said on standard
    error."""
    for number, line in enumerate(lines, start=1):
        try:
            yield line.decode()
        except UnicodeDecodeError as error:
            click.echo(
                f"line {number:,}: byte {line[error.start]:#04x} is no UTF-8 and was replaced",
                err=True,
            )
            yield line.decode(errors="replace")


def search_options(command: Callable) -> Callable:
    """The options of each command that searches."""
    for option in (
        click.option(
            "--alpha",
            type=click.FloatRange(0),
            default=0.6,
            help="Exponent of the length penalty.",
        ),
        click.option(
            "--beam",
            type=click.IntRange(1),
            default=4,
            help="Hypotheses kept at each step; 1 is greedy.",
        ),
        click.option(
            "--model",
            type=click.Path(path_type=Path),
            help="A folder that average wrote; else the book's own.",
        ),
    ):
        command = option(command)
    return machine_options(command)


def load_translator(model: Path | None, device: str, threads: int | None) -> Translator:
    """The translator of the folder ``model``, or the book's own, on a device."""
    chosen_device = use_machine(device, threads)
    if model and (model / "run.json").exists():
        raise ValueError(
            f"{model} is a run: annotated-transformer average {model} translator makes a translator of it"
        )
    translator = Translator.load(model or PRETRAINED)
    translator.model.to(chosen_device)
    return translator


class NewFile(click.Path):
    """A file to be written, in a folder that is there."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Path:
        """The path; a usage error where it is a folder, or its folder is missing."""
        path = Path(super().convert(value, param, ctx))
        if not path.parent.is_dir():
            self.fail(
                f"{str(path.parent)!r} is not there: expected a folder to write {path.name} into",
                param,
                ctx,
            )
        return path


NEW_FILE = NewFile(dir_okay=False, writable=True, path_type=Path)


@contextmanager
def json_list(path: Path | None) -> Iterator[Callable[[dict], None]]:
    """A function that adds an entry to the JSON list in ``path``, which is there,
    whole, when the block is done.

    A pipe or a device gets each entry at once. Without a path the function does
    nothing.
    """
    if path is None:
        yield lambda entry: None
        return
    special = path.exists() and not path.is_file()
    goal = (
        path if special else path.resolve().with_name(f"{path.resolve().name}.partial")
    )
    with naming(path):
        file = goal.open("w", encoding="utf-8")

    def put(text: str) -> None:
        with naming(path):
            file.write(text)
            file.flush()

    try:
        put("[")
        separators = chain(["\n"], repeat(",\n"))
        yield lambda entry: put(
            next(separators) + json.dumps(entry, ensure_ascii=False)
        )
        put("\n]\n")
        file.close()
        if not special:
            goal.replace(path.resolve())
    finally:
        with suppress(OSError):
            file.close()  # once more after a full disk, which has been reported
        if not special:
            goal.unlink(missing_ok=True)


@main.command(
    epilog=EXAMPLES["translate"],
    short_help="Translate line by line, from standard input to standard output.",
)
@click.option(
    "--attention", type=NEW_FILE, help="Write who looked where into this file, as JSON."
)
@search_options
def translate(
    attention: Path | None,
    model: Path | None,
    beam: int,
    alpha: float,
    device: str,
    threads: int | None,
) -> None:
    """Translate standard input to standard output: one line out for each line in, in
    order.

    What had to be cut or replaced is said on standard error, with the number of its
    line.
    """
    if sys.stdin is None or sys.stdout is None:
        raise ValueError(
            "standard input or output is closed: expected lines to read, and a place to write"
        )
    translator = load_translator(model, device, threads)
    stdin = sys.stdin.buffer
    at_once = 1 if stdin.isatty() else 1000
    translations = translator.translate(
        decoded_lines(stdin), beam, alpha, buffer_size=at_once
    )
    with json_list(attention) as add:
        for number, translation in enumerate(translations, start=1):
            click.echo(translation.text.encode())
            if translation.note:
                click.echo(f"line {number:,}: {translation.note}", err=True)
            if attention:
                add(
                    {"translation": translation.text}
                    | attention_of(translator, translation)
                )


def check_languages(translator: Translator, languages: list[str]) -> None:
    """ValueError where the translator is known to go from or to other languages than
    the corpus."""
    own = translator.facts.get("languages", languages)
    if own != languages:
        raise ValueError(
            f"the languages of the translator are {own}, those of the text {languages}"
        )


def moses_references(path: Path | None, count: int) -> list[str] | None:
    """The ``count`` lines of a file of references; ValueError where they are not as
    many."""
    lines = list(read_lines(path)) if path else None
    if lines is not None and len(lines) != count:
        raise ValueError(
            f"{path} has {len(lines):,} lines, expected {count:,}, one for each sentence"
        )
    return lines


@main.command(
    epilog=EXAMPLES["evaluate"],
    short_help="Translate a part of the corpus and print the scores.",
)
@click.argument("data", type=click.Path(path_type=Path))
@click.option(
    "--part",
    type=click.Choice(PARTS),
    default="test",
    help="Which part of DATA to translate.",
)
@click.option(
    "--moses-reference",
    type=click.Path(path_type=Path),
    help="Lower-case, Moses-tokenized references.",
)
@click.option("--output", type=NEW_FILE, help="Also write the translations to a file.")
@search_options
def evaluate(
    data: Path, part: str, moses_reference: Path | None, output: Path | None, model: Path | None, beam: int,
    alpha: float, device: str, threads: int | None,
) -> None:  # fmt: skip
    """Translate a part of DATA, a folder that prepare wrote, and print the scores with
    their signatures as JSON."""
    if sys.stdout is None:
        raise ValueError("standard output is closed: expected a place for the scores")
    translator, languages = (
        load_translator(model, device, threads),
        read_corpus(data)["languages"],
    )
    check_languages(translator, languages)
    pairs = list(pairs_of(data, part))
    moses = moses_references(moses_reference, len(pairs))
    start = perf_counter()
    hypotheses = [
        found.text
        for found in translator.translate((source for source, _ in pairs), beam, alpha)
    ]
    seconds = round(perf_counter() - start, 1)
    if output:
        write_atomically(output, "".join(f"{line}\n" for line in hypotheses).encode())
    scores = score(
        hypotheses, [reference for _, reference in pairs], moses, languages[1]
    )
    evaluation = {"command": typed(), "part": part}
    evaluation |= {
        "sentences": len(pairs),
        "beam": beam,
        "alpha": alpha,
        "decoding_seconds": seconds,
    }
    by_length = scores_by_length(
        [source for source, _ in pairs],
        hypotheses,
        [reference for _, reference in pairs],
    )
    record = {
        "scores": scores,
        "scores_by_length": by_length,
        "evaluation": evaluation,
    } | translator.facts
    click.echo(json.dumps(record, indent=1, ensure_ascii=False))
