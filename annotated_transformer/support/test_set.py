"""The book's own test set: English sentences with German translations, for evaluation
where no corpus is at hand.

Written for this book, before any translation model was asked, and taken from no corpus;
CC BY 4.0. ``annotated_transformer/test_set/README.md`` says how, and by whom.
"""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

FILES = ("captions.jsonl", "everyday.jsonl")
CAPTION, EVERYDAY = "caption", "everyday"


@dataclass(frozen=True)
class TestSentence:
    """An English sentence and its German references, one or two equally good ones.

    ``kind`` is "caption" for the caption of a photograph, or what an everyday sentence
    tests: "question", "negation", "past", "future", "politeness", "number", "name" or
    "statement".
    """

    __test__ = False  # no class of tests, whatever its name tells pytest

    id: str
    kind: str
    source: str
    references: tuple[str, ...]


@cache
def read_sentences() -> tuple[TestSentence, ...]:
    """All sentences of the files in the package, read once."""
    folder = files("annotated_transformer").joinpath("test_set")
    lines = (
        json.loads(line)
        for name in FILES
        for line in folder.joinpath(name).read_text(encoding="utf-8").splitlines()
    )
    return tuple(
        TestSentence(line["id"], line["kind"], line["en"], tuple(line["de"]))
        for line in lines
    )


def book_sentences(kind: str | None = None) -> list[TestSentence]:
    """The 600 sentences of the book's test set, captions first, or those of one
    ``kind``: "caption", "everyday" for all the others, or one kind of
    ``TestSentence``.

    Source: written for this book, before any translation model was asked; CC BY 4.0, to
    be cited as CITATION.cff says. Raises ValueError, with the kinds there are,
    for another.
    """
    sentences = read_sentences()
    if kind is None:
        return list(sentences)
    kinds = [*dict.fromkeys(sentence.kind for sentence in sentences), EVERYDAY]
    if kind not in kinds:
        raise ValueError(f"{kind!r} is no kind: expected one of {', '.join(kinds)}")
    if kind == EVERYDAY:
        return [sentence for sentence in sentences if sentence.kind != CAPTION]
    return [sentence for sentence in sentences if sentence.kind == kind]
