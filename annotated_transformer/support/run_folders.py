"""The folders of the command line: DATA, which ``prepare`` writes, and RUN.

Each command leaves plain files, and the next one reads nothing else. Whoever reads such
a file checks it, for somebody may have edited it.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields, replace
from itertools import islice
from pathlib import Path
from typing import Any

import click

from ..data import encode_stream, token_batches
from ..subwords import Subwords, train_subwords
from ..training import TrainingConfig
from ..transformer import TransformerConfig
from .checkpoints import find_checkpoints
from .cli_options import PRESETS
from .corpora import (
    LATER_TESTS,
    Corpus,
    ParallelFiles,
    load_multi30k,
    load_tatoeba,
    miniature_corpus,
    read_multi30k,
)
from .files import write_atomically
from .miniature import Pair
from .token_files import FileBatches, load_batches, shared_token_file

PARTS = ("train", "validation", "test")

# DATA, as it is written


def parts_of(corpus: Corpus) -> dict[str, list[Pair]]:
    """The three parts of a corpus by name."""
    return {part: getattr(corpus, part) for part in PARTS}


def load_named(corpus: str, source: str, target: str) -> dict[str, list[Pair]]:
    """The parts of the corpus of that name, by name: the three of ``PARTS`` and, of
    Multi30k, the later test sets.

    Raises ValueError where it has not these two languages.
    """
    if corpus == "multi30k":
        later = {part: read_multi30k(part, source, target) for part in LATER_TESTS}
        return parts_of(load_multi30k(source, target)) | later
    if corpus == "tatoeba":
        return parts_of(load_tatoeba(source, target))
    miniature = miniature_corpus()
    if (source, target) != miniature.languages:
        raise ValueError(
            f"the miniature corpus goes from en to de, not {source} to {target}: leave "
            "the options out"
        )
    return parts_of(miniature)


def count_all(text: dict[str, Iterable[Pair]]) -> dict[str, int]:
    """The pairs of each part, each read once from end to end.

    So a missing line in row two million is found now, and not at night: what reading
    raises, and ValueError for a part without text.
    """
    counts = {part: sum(1 for _ in pairs) for part, pairs in text.items()}
    for part, pairs in text.items():
        if not any(source.strip() and target.strip() for source, target in pairs):
            raise ValueError(
                f"--{part} holds no pair with text on both sides: expected at least one"
            )
    return counts


def learn_subwords(
    pairs: Iterable[Pair], count: int, vocabulary_size: int, sample: int
) -> Subwords:
    """A vocabulary from at most ``sample`` of ``count`` pairs (section 5.1).

    They are spread evenly over all pairs, for many corpora are several stuck together.
    """
    spread = islice(pairs, 0, None, math.ceil(count / sample))
    return train_subwords((text for pair in spread for text in pair), vocabulary_size)


def write_corpus(
    parts: dict[str, list[Pair]], languages: Sequence[str], data: Path
) -> dict[str, list[str]]:
    """Write each part into the folder ``data``, a file a language; their names."""
    names = {part: [f"{part}.{language}" for language in languages] for part in parts}
    (data / "corpus.json").unlink(missing_ok=True)  # the commit marker of the folder
    for part, pairs in parts.items():
        for name, side in zip(names[part], zip(*pairs, strict=True), strict=True):
            lines = "".join(f"{line}\n" for line in side)
            write_atomically(data / name, lines.encode())
    return names


# DATA, as it is read


def read_facts(path: Path, made_by: str, *names: str) -> dict:
    """The JSON object of ``path``, which ``made_by`` writes.

    Raises ValueError where it cannot be read or lacks one of ``names``.
    """
    program = f"annotated-transformer {made_by}"
    try:
        facts = json.loads(path.read_bytes())
        missing = [name for name in names if name not in facts]
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(
            f"{path} cannot be read ({error}): run {program} first"
        ) from error
    if missing:
        raise ValueError(
            f"{path} has no {missing[0]!r}: it is not what {program} writes"
        )
    return facts


def read_corpus(data: Path) -> dict:
    """What ``prepare`` noted of the folder ``data``: languages, files and counts."""
    path = data / "corpus.json"
    facts = read_facts(path, "prepare", "languages", "files")
    files = facts["files"] if isinstance(facts["files"], dict) else {}
    parts = [files.get(part) for part in dict.fromkeys([*PARTS, *files])]
    for two in (facts["languages"], *parts):
        if not isinstance(two, list) or [type(name) for name in two] != [str, str]:
            raise ValueError(
                f"{path} is damaged: expected two names, found {two}; run prepare again"
            )
    return facts


def pairs_of(data: Path, part: str) -> ParallelFiles:
    """One part of a prepared corpus: "train", "validation", "test", or another one that
    it has; ValueError for one that it has not."""
    files = read_corpus(data)["files"]
    if part not in files:
        raise ValueError(
            f"{data} has no part {part!r}: expected one of {', '.join(files)}"
        )
    return ParallelFiles(*(data / name for name in files[part]))


def with_references(pairs: Iterable[Pair]) -> dict[str, list[str]]:
    """Each source, once, and its references: the targets of all its lines."""
    references: dict[str, list[str]] = {}
    for source, target in pairs:
        references.setdefault(source, []).append(target)
    return references


def say_left_out(part: str, left_out: int, total: int, longest: int) -> None:
    """Say on standard error how many pairs of ``part`` are left out, if any."""
    if left_out:
        click.echo(
            f"{left_out:,} of {total:,} {part} pairs are left out: a side without "
            f"text, or of more than {longest} tokens, the end token counted",
            err=True,
        )


def batches_of(
    data: Path,
    subwords: Subwords,
    max_length: int,
    training: TrainingConfig,
    stream: bool,
    rank: int,
    world_size: int,
    loaders: int = 0,
) -> tuple[Iterable, list]:
    """The endless training batches of one worker, and a list of those of validation.

    Pairs longer than ``max_length`` are left out, and counted on standard error. A run
    that streams reads token ids from a file in ``data``, which the first such run
    writes, by as many ``loaders``, processes that make batches ahead of time. Raises
    ValueError where no pairs are left, OSError where the file cannot be written.
    """
    longest = min(max_length, training.max_tokens)
    held_out = list(encode_stream(pairs_of(data, "validation"), subwords, longest))
    fits = encode_stream(pairs_of(data, "train"), subwords, longest)
    if not held_out or not next(fits, None):
        raise ValueError(
            f"no pairs in {data} for training or for validation have text and fewer "
            f"than {longest} tokens on both sides: raise --max-length and --max-tokens"
        )
    sharded = {"rank": rank, "world_size": world_size}
    most, seed = training.max_tokens, training.seed
    if stream:
        text, path = pairs_of(data, "train"), data / "train.tokens"
        tokens = shared_token_file(path, text, subwords)
        left_out, total = tokens.left_out(longest).total(), len(tokens)
        batches = load_batches(
            FileBatches(tokens, most, seed, longest, **sharded), loaders
        )
    else:
        counted: Counter[str] = Counter()
        pairs = list(encode_stream(pairs_of(data, "train"), subwords, longest, counted))
        left_out, total = counted.total(), counted.total() + len(pairs)
        batches = token_batches(pairs, most, seed, **sharded)
    if rank == 0:
        say_left_out("train", left_out, total, longest)
    return batches, list(token_batches(held_out, max(2048, longest), epochs=1))


# RUN: every choice of a run stands in run.json, and in each of its checkpoints


def configs_of(facts: dict) -> tuple[TransformerConfig, TrainingConfig]:
    """The configurations among the facts of a run; ValueError for damaged ones."""
    try:
        return TransformerConfig(**facts["model"]), TrainingConfig(**facts["training"])
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"these choices make no run ({error}): expected those that train wrote to "
            "run.json"
        ) from error


def chosen(config: Any, options: dict[str, Any]) -> Any:
    """``config`` with those of its fields replaced that ``options`` gives."""
    names = [field.name for field in fields(config)]
    given = {name: options[name] for name in names if options.get(name) is not None}
    return replace(config, **given)


def begun_run(
    data: Path, run: Path, asked: dict[str, Any], options: dict[str, Any]
) -> dict:
    """The choices of a new run; ValueError where ``run`` holds one already."""
    if find_checkpoints(run):
        raise ValueError(
            f"{run} holds a run already: add --resume to go on with it, or name "
            "another folder"
        )
    preset = asked["config"] or "tiny"
    make_model, training = PRESETS[preset]
    model = chosen(make_model(len(Subwords.load(data / "subwords.model"))), options)
    corpus = read_corpus(data)
    return {
        "config": preset,
        "stream": bool(asked["stream"]),
        "workers": asked["workers"],
        "model": asdict(model),
        "training": asdict(chosen(training, options)),
        "languages": corpus["languages"],
        "prepare_command": corpus.get("command"),
    }


def resumed_run(
    data: Path, run: Path, asked: dict[str, Any], options: dict[str, Any]
) -> dict:
    """The choices of the run in the folder ``run``.

    Raises ValueError where others are asked for, or other data: half a run with one
    dropout and half with another is neither. Only ``steps`` may change, because it
    changes nothing that has happened.
    """
    facts = read_facts(run / "run.json", "train", "model", "training")
    model, training = configs_of(facts)
    vocabularies = [
        Subwords.load(path / "subwords.model").model for path in (run, data)
    ]
    if vocabularies[0] != vocabularies[1]:
        raise ValueError(
            f"the vocabulary of {data} is not that of {run}: use the data that the run "
            "began with"
        )
    if (languages := read_corpus(data)["languages"]) != facts.get("languages"):
        raise ValueError(
            f"{data} has {' to '.join(languages)}, not {facts.get('languages')}: use "
            f"the data of {run}"
        )
    old = facts | asdict(model) | asdict(training)
    for name, value in (asked | options).items():
        if value is not None and name != "steps" and value != old.get(name):
            raise ValueError(
                f"{name} is {old.get(name)} in {run}, not {value}: go on with the "
                "same, or start a new run"
            )
    if options["steps"]:
        facts["training"]["steps"] = options["steps"]
    return facts


def save_run(run: Path, subwords: Subwords, facts: dict) -> None:
    """Write the vocabulary and the choices of a run into its folder."""
    run.mkdir(parents=True, exist_ok=True)
    subwords.save(run / "subwords.model")
    write_atomically(run / "run.json", json.dumps(facts, indent=1).encode())
