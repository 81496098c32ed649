"""From a folder of text to a translator that is scored, one command a step; appendix A
runs every one of them.

What only one command needs, and what takes long to import, is imported in that command:
whoever translates a line does not wait for the libraries that compute scores.
"""

import json
import math
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain, repeat
from pathlib import Path
from time import perf_counter
from typing import Any

import click
import torch

import annotated_transformer

from ..subwords import Subwords
from ..training import sum_over_workers
from ..transformer import Transformer, count_parameters
from ..translator import PRETRAINED, Translator, attention_of, scores_by_length
from .checkpoints import find_checkpoints, load_weights, read_log
from .cli_options import (
    EXAMPLES,
    NEW_FILE,
    PRESETS,
    SETTINGS,
    START,
    TWO_FILES,
    Commands,
    SectionedCommand,
    field_options,
    machine_options,
    search_options,
)
from .corpora import ParallelFiles, read_lines
from .files import naming, write_atomically, write_together
from .precision import choose_precision
from .records import (
    STATISTICS,
    describe_run,
    record_json,
    sentence_statistics,
    typed,
)
from .run_folders import (
    PARTS,
    batches_of,
    begun_run,
    configs_of,
    count_all,
    learn_subwords,
    load_named,
    pairs_of,
    read_corpus,
    resumed_run,
    save_run,
    with_references,
    write_corpus,
)
from .runs import Trainer, choose_device, keep_memory, workers
from .test_set import book_sentences
from .translators import transfer_weights

FOLDER = click.Path(path_type=Path)


@click.group(cls=Commands, context_settings=SETTINGS, epilog=START)
@click.version_option(annotated_transformer.__version__)
def main() -> None:
    """Train the Transformer of "Attention Is All You Need" on parallel text, and
    translate with it.

    COMMAND --help tells more of each command.
    """


def say(message: str) -> None:
    """A line on standard error, where it does not mix with translations or scores."""
    click.echo(message, err=True)


def use_machine(device: str, threads: int | None) -> torch.device:
    """Set the number of threads where one is given, and choose the device."""
    if threads:
        torch.set_num_threads(threads)
    return choose_device(device)


# prepare


@main.command(
    epilog=EXAMPLES["prepare"], short_help="Write corpus and vocabulary into a folder."
)
@click.argument("data", type=FOLDER)
@click.option(
    "--corpus",
    type=click.Choice(["multi30k", "tatoeba", "miniature", "files"]),
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

    Multi30k (captions of photographs) and Tatoeba (everyday sentences) are downloaded,
    or read from the folder that ANNOTATED_TRANSFORMER_DATA names. With --corpus files,
    text (plain or .gz, UTF-8, a sentence a line) stays where it is; give --train,
    --validation and --test.
    """
    if {corpus == "files"} != {paths is not None for paths in given.values()}:
        raise click.UsageError(
            "--corpus files goes with --train, --validation and --test, two files each"
        )
    if source == target:
        raise ValueError(
            f"--source and --target are both {source!r}: expected two languages"
        )
    # Everything is read and checked before anything is written.
    named = {} if corpus == "files" else load_named(corpus, source, target)
    text = named or {part: ParallelFiles(*given[part]) for part in PARTS}
    counts = count_all(text)
    size = vocabulary_size or (600 if corpus == "miniature" else 8000)
    subwords = learn_subwords(text["train"], counts["train"], size, sample)
    data.mkdir(parents=True, exist_ok=True)
    if named:
        files = write_corpus(named, [source, target], data)
    else:
        files = {part: [str(path.resolve()) for path in given[part]] for part in PARTS}
    facts = {
        "corpus": corpus,
        "languages": [source, target],
        "files": files,
        "pairs": counts,
        "command": typed(),
    }
    write_together(
        {
            data / "subwords.model": subwords.model,
            data / "corpus.json": json.dumps(facts, indent=1).encode(),
        }
    )
    say(f"{data}: {counts['train']:,} training pairs, {size:,} subwords")


# train


def of_first_worker(precision: str, rank: int, device: torch.device) -> str:
    """What the worker of rank 0 chose: each measures for itself, and a run that goes on
    has one precision for all."""
    chosen = torch.tensor(float(rank == 0 and precision == "bf16"), device=device)
    return "bf16" if sum_over_workers(chosen).item() else "fp32"


def keep_threads(facts: dict, threads: int | None) -> None:
    """Compute with the number of threads that a run began with, unless another one was
    asked for: then say what that changes."""
    before = facts.get("hardware", {}).get("threads")
    if before and threads is None:
        torch.set_num_threads(before)
    elif before and threads != before:
        say(
            f"--threads is {threads}, and was {before}: sums are added up in another "
            "order, so that the last bits will differ"
        )


def program(world_size: int) -> list[str]:
    """The words that start so many processes of this program, on as many machines as
    now."""
    if world_size == 1:
        return ["annotated-transformer"]
    here = int(os.environ.get("LOCAL_WORLD_SIZE", world_size))
    machines = ["--nnodes", str(world_size // here)] if here < world_size else []
    processes = ["--nproc-per-node", str(here)]
    return ["torchrun", *machines, *processes, "-m", "annotated_transformer"]


def way_on(
    data: Path, run: Path, device: str, threads: int | None, world_size: int
) -> str:
    """The command that goes on with a run."""
    machine = ["--device", device] if device != "auto" else []
    machine += ["--threads", str(threads)] if threads else []
    command = [*program(world_size), "train", str(data), str(run), "--resume"]
    return shlex.join(command + machine)


def say_what_next(trainer: Trainer, finished: bool, go_on: str) -> None:
    """How far the run has come and what to type now, on standard error."""
    if finished:
        words = ["annotated-transformer", "average", str(trainer.folder), "translator"]
        say(
            f"{trainer.folder}: {trainer.step:,} steps are done; "
            f"next: {shlex.join(words)}"
        )
    else:
        say(f"stopped and saved after step {trainer.step:,}; to go on: {go_on}")


def train_worker(
    data: Path,
    run: Path,
    facts: dict,
    device: torch.device,
    minutes: float,
    rank: int,
    world_size: int,
) -> tuple[Trainer, bool]:
    """Train from the newest checkpoint of ``run``, or from the start.

    Returns also whether all steps are done.
    """
    if math.isnan(minutes):
        raise ValueError("--minutes is nan: expected a number above 0")
    subwords = Subwords.load(data / "subwords.model")
    model_config, training = configs_of(facts)
    torch.manual_seed(training.seed)
    model = Transformer(model_config).to(device)
    facts = facts | {"parameters": count_parameters(model)}
    if (start := facts.get("start")) and not find_checkpoints(run):
        facts["start"] = transfer_weights(model, subwords, start["translator"])
    if rank == 0:
        save_run(run, subwords, facts)
    trainer = Trainer(model, training, run, facts)
    trainer.resume()
    longest, stream = model.config.max_length, bool(facts.get("stream"))
    loaders = 2 if device.type == "cuda" else 0  # a CPU has its hands full
    batches, validation = batches_of(
        data, subwords, longest, training, stream, rank, world_size, loaders
    )
    try:
        return trainer, trainer.run(batches, validation, minutes)
    except OSError as error:
        raise OSError(
            f"{error}; checkpoints written before are whole: fix that, and go on with "
            "--resume"
        ) from error


@main.command(
    cls=SectionedCommand,
    epilog=EXAMPLES["train"],
    short_help="Train a model; interrupt it and go on with it.",
)
@click.argument("data", type=FOLDER)
@click.argument("run", type=FOLDER)
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
    "--start",
    type=FOLDER,
    help="Begin with the weights of this translator, not with random ones.",
)
@click.option(
    "--minutes",
    type=click.FloatRange(0, min_open=True),
    help="Save and stop after so much training in all.",
)
@click.option(
    "--stream",
    is_flag=True,
    help="Keep the token ids in a file of DATA: for what does not fit in memory.",
)
@machine_options
@field_options
def train(
    data: Path,
    run: Path,
    config: str | None,
    resume: bool,
    start: Path | None,
    minutes: float | None,
    stream: bool,
    device: str,
    threads: int | None,
    **options: Any,
) -> None:
    """Train a model on DATA, a folder that prepare wrote; log and checkpoints go into
    the folder RUN.

    Ctrl-C saves a checkpoint and stops; so does the end of --minutes. Under torchrun
    each process takes its share of the batches: --max-tokens is that of one process.
    """
    chosen_device, limit = use_machine(device, threads), minutes or math.inf
    read_corpus(data)
    keep_memory()
    with workers(chosen_device) as (rank, world_size):
        # The number of workers is a choice, too: it decides who reads which batch.
        asked = {"config": config, "stream": stream or None, "workers": world_size}
        words = program(world_size)
        if resume:
            if start:
                raise ValueError("--start begins a run, --resume goes on with it")
            if options["precision"] == "auto":
                options["precision"] = None
            facts = resumed_run(data, run, asked, options)
            keep_threads(facts, threads)
            facts["resumed"] = [*facts.get("resumed", []), typed(words)]
        else:
            found, why = choose_precision(options["precision"], chosen_device)
            options["precision"] = of_first_worker(found, rank, chosen_device)
            facts = begun_run(data, run, asked, options)
            if why and rank == 0:
                say(why)
            seed = {"seed": facts["training"]["seed"]}
            facts |= describe_run(words, chosen_device) | seed
            if start:
                facts["start"] = {"translator": str(start.resolve())}
        trainer, finished = train_worker(
            data, run, facts, chosen_device, limit, rank, world_size
        )
    if rank == 0:
        say_what_next(trainer, finished, way_on(data, run, device, threads, world_size))
    if not finished and trainer.seconds < 60 * limit:
        # As shells have it for Ctrl-C: `train ... && average ...` must not average what
        # somebody stopped. A run whose minutes are over did what was asked.
        click.get_current_context().exit(130)


# average


@main.command(
    epilog=EXAMPLES["average"],
    short_help="Average the newest checkpoints into a translator.",
)
@click.argument("run", type=FOLDER)
@click.argument("translator", type=FOLDER)
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
    from ..evaluation import average_checkpoints  # with it comes sacreBLEU

    paths = find_checkpoints(run)
    if not run.is_dir():
        raise FileNotFoundError(
            f"{run} is not there: expected a folder that train wrote"
        )
    if len(paths) < last:
        raise ValueError(
            f"{run} holds {len(paths)} checkpoints, not {last}: train longer, or ask "
            "for fewer with --last"
        )
    weights, facts = average_checkpoints(paths[-last:])
    model = Transformer(configs_of(facts)[0])
    load_weights(model, weights, run)
    facts |= {
        "average_command": typed(),
        "averaged": [path.name for path in paths[-last:]],
        "history": [
            entry
            for entry in read_log(run)
            if "validation_perplexity" in entry and entry["step"] <= facts["step"]
        ],
    }
    subwords = Subwords.load(run / "subwords.model")
    Translator(model, subwords, facts).save(translator, half)
    say(
        f"{translator}: the average of {last} checkpoints, up to step {facts['step']:,}"
    )


# translate


def load_translator(model: Path | None, device: str, threads: int | None) -> Translator:
    """The translator of the folder ``model``, or the book's own, on a device."""
    chosen_device = use_machine(device, threads)
    if model and (model / "run.json").exists():
        raise ValueError(
            f"{model} is a run: annotated-transformer average {model} translator makes "
            "a translator of it"
        )
    translator = Translator.load(model or PRETRAINED)
    translator.model.to(chosen_device)
    return translator


def decoded_lines(lines: Iterable[bytes]) -> Iterator[str]:
    """Each line as text; bytes that are no UTF-8 are replaced, and that is said."""
    for number, line in enumerate(lines, start=1):
        try:
            yield line.decode()
        except UnicodeDecodeError as error:
            byte = line[error.start]
            say(f"line {number:,}: byte {byte:#04x} is no UTF-8 and was replaced")
            yield line.decode(errors="replace")


@contextmanager
def json_list(path: Path | None) -> Iterator[Callable[[dict], None]]:
    """A function that adds an entry to the JSON list in ``path``.

    The list is there, whole, when the block is done: it takes its name with its last
    bracket, so that Ctrl-C leaves the old file or none. A pipe or a device gets each
    entry at once. Without a path the function does nothing.
    """
    if path is None:
        yield lambda entry: None
        return
    special, whole = path.exists() and not path.is_file(), path.resolve()
    partial = path if special else whole.with_name(f"{whole.name}.partial")
    with naming(path):
        file = partial.open("w", encoding="utf-8")

    def put(text: str) -> None:
        with naming(path):
            file.write(text)
            file.flush()

    try:
        put("[")
        before = chain(["\n"], repeat(",\n"))
        yield lambda entry: put(next(before) + json.dumps(entry, ensure_ascii=False))
        put("\n]\n")
        file.close()
        if not special:
            partial.replace(whole)
    finally:
        with suppress(OSError):
            file.close()  # once more after a full disk, which has been reported
        if not special:
            partial.unlink(missing_ok=True)


@main.command(
    epilog=EXAMPLES["translate"],
    short_help="Translate line by line, from standard input to standard output.",
)
@click.option(
    "--attention",
    type=NEW_FILE,
    help="Write the attention weights of each translation into this file, as JSON.",
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
            "standard input or output is closed: expected lines to read, and a stream "
            "to write to"
        )
    translator = load_translator(model, device, threads)
    stdin = sys.stdin.buffer
    at_once = 1 if stdin.isatty() else 1000  # who types wants each answer at once
    translations = translator.translate(
        decoded_lines(stdin), beam, alpha, buffer_size=at_once
    )
    with json_list(attention) as add:
        for number, translation in enumerate(translations, start=1):
            click.echo(translation.text.encode())
            if translation.note:
                say(f"line {number:,}: {translation.note}")
            if attention:
                text = {"translation": translation.text}
                add(text | attention_of(translator, translation))


# evaluate


def check_languages(translator: Translator, languages: list[str]) -> None:
    """ValueError where the translator is known to go from or to other languages."""
    own = translator.facts.get("languages", languages)
    if own != languages:
        raise ValueError(
            f"the languages of the translator are {own}, those of the text {languages}"
        )


def texts_of(
    data: Path, part: str, languages: list[str]
) -> tuple[dict[str, list[str]], dict[str, list[int]]]:
    """The sources of a part with their references, and the rows of each kind.

    The part "book" is the test set of the package, captions and everyday sentences; the
    others have no kinds. Raises ValueError for a part that is not there.
    """
    if part != "book":
        return with_references(pairs_of(data, part)), {}
    if languages != ["en", "de"]:
        raise ValueError(
            "the book's own sentences are English and German, the languages of "
            f"{data} are {languages}"
        )
    sentences = book_sentences()
    kinds: dict[str, list[int]] = {"captions": [], "everyday": []}
    for row, sentence in enumerate(sentences):
        kinds["captions" if sentence.kind == "caption" else "everyday"].append(row)
    return {s.source: list(s.references) for s in sentences}, kinds


def moses_references(path: Path | None, count: int) -> list[str] | None:
    """The ``count`` lines of a file of references; ValueError where they are more or
    fewer."""
    lines = list(read_lines(path)) if path else None
    if lines is not None and len(lines) != count:
        raise ValueError(
            f"{path} has {len(lines):,} lines, expected {count:,}, one for each "
            "sentence"
        )
    return lines


def all_statistics(
    hypotheses: list[str], references: list[list[str]]
) -> dict[str, list]:
    """The ``sentence_statistics`` behind both BLEU scores, and the order of a row."""
    return {
        "order": list(STATISTICS),
        "bleu": sentence_statistics(hypotheses, references),
        "bleu_lower_case": sentence_statistics(hypotheses, references, lowercase=True),
    }


@main.command(
    epilog=EXAMPLES["evaluate"],
    short_help="Translate a part of the corpus and print the scores.",
)
@click.argument("data", type=FOLDER)
@click.option(
    "--part",
    default="test",
    help="Which part of DATA to translate; book: the sentences of the package.",
)
@click.option(
    "--moses-reference", type=FOLDER, help="Lower-case, Moses-tokenized references."
)
@click.option("--output", type=NEW_FILE, help="Also write the translations to a file.")
@search_options
def evaluate(
    data: Path,
    part: str,
    moses_reference: Path | None,
    output: Path | None,
    model: Path | None,
    beam: int,
    alpha: float,
    device: str,
    threads: int | None,
) -> None:
    """Translate a part of DATA, a folder that prepare wrote, and print the scores with
    their signatures as JSON.

    A source that stands on several lines has several references. With the scores come
    statistics of each sentence (and no text), from which intervals and paired tests can
    be computed later.
    """
    from ..evaluation import score  # with it comes sacreBLEU

    if sys.stdout is None:
        raise ValueError("standard output is closed: expected a stream for the scores")
    translator = load_translator(model, device, threads)
    languages = read_corpus(data)["languages"]
    check_languages(translator, languages)
    pairs, kinds = texts_of(data, part, languages)
    sources, references = list(pairs), list(pairs.values())
    moses = moses_references(moses_reference, len(pairs))  # before the search
    start = perf_counter()
    found = translator.translate(sources, beam, alpha)
    hypotheses = [translation.text for translation in found]
    seconds = round(perf_counter() - start, 1)
    if output:
        write_atomically(output, "".join(f"{line}\n" for line in hypotheses).encode())
    by_kind = {
        kind: score([hypotheses[i] for i in rows], [references[i] for i in rows])
        for kind, rows in kinds.items()
    }
    record = {
        "scores": score(hypotheses, references, moses, languages[1]),
        **({"scores_by_kind": by_kind} if by_kind else {}),
        "scores_by_length": scores_by_length(sources, hypotheses, references),
        "evaluation": {
            "command": typed(),
            "part": part,
            "sentences": len(sources),
            "references": sum(map(len, references)),
            "beam": beam,
            "alpha": alpha,
            "decoding_seconds": seconds,
        },
    }
    statistics = {"sentence_statistics": all_statistics(hypotheses, references)}
    click.echo(record_json(record | translator.facts | statistics))
