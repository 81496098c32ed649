"""The book's own test set: what it promises of its sentences, and how it is read."""

import gzip
import json
import lzma
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest

from annotated_transformer.support.test_set import TestSentence, book_sentences

FOLDER = files("annotated_transformer").joinpath("test_set")
DATA = Path(os.environ.get("ANNOTATED_TRANSFORMER_DATA", ""))
KINDS = {
    "caption": 300,
    "question": 40,
    "negation": 38,
    "past": 40,
    "future": 36,
    "politeness": 36,
    "number": 38,
    "name": 36,
    "statement": 36,
}
LENGTHS = {"3 to 6": range(3, 7), "7 to 14": range(7, 15), "15 to 25": range(15, 26)}
RUN = 8
"""So many words in a row are no coincidence."""

ENGLISH = re.compile(r"[A-Za-zéüö0-9 ,.:;?!'\"-]+")
GERMAN = re.compile(r"[A-Za-zÄÖÜäöüßé0-9 ,.:;?!'„“-]+")

SENTENCES = book_sentences()


def texts(sentence: TestSentence) -> tuple[str, ...]:
    """Source and references."""
    return (sentence.source, *sentence.references)


def words(text: str) -> tuple[str, ...]:
    """The words of a text, without case and punctuation."""
    return tuple(re.findall(r"\w+", unicodedata.normalize("NFC", text).casefold()))


def runs(text: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Every ``RUN`` words in a row."""
    return (text[i : i + RUN] for i in range(len(text) - RUN + 1))


def length_class(sentence: TestSentence) -> str:
    """The length class of a sentence's source, in words."""
    length = len(sentence.source.split())
    return next(name for name, class_ in LENGTHS.items() if length in class_)


def test_there_are_600_sentences_captions_first():
    """Fails when a line is lost, doubled, or of a kind that nobody counts."""
    assert len(SENTENCES) == 600
    assert Counter(sentence.kind for sentence in SENTENCES) == KINDS
    assert all(sentence.kind == "caption" for sentence in SENTENCES[:300])
    assert len({sentence.id for sentence in SENTENCES}) == 600


def test_lines_have_four_keys():
    """Fails when a line holds something that the loader would not show."""
    for name in ("captions.jsonl", "everyday.jsonl"):
        lines = FOLDER.joinpath(name).read_text(encoding="utf-8").splitlines()
        assert len(lines) == 300
        for line in lines:
            sentence = json.loads(line)
            assert list(sentence) == ["id", "kind", "en", "de"]
            assert line == json.dumps(sentence, ensure_ascii=False)


def test_no_sentence_stands_twice():
    """Fails when two lines ask the same, or have the same answer."""
    sources = Counter(words(sentence.source) for sentence in SENTENCES)
    assert [source for source, times in sources.items() if times > 1] == []
    references = Counter(words(text) for s in SENTENCES for text in s.references)
    assert [reference for reference, times in references.items() if times > 1] == []


@pytest.mark.parametrize("half", ["caption", "everyday"])
def test_lengths_are_spread(half):
    """Fails when a length class of a half is too small to be looked at alone."""
    sentences = book_sentences(half)
    lengths = [len(sentence.source.split()) for sentence in sentences]
    assert min(lengths) == 3 and max(lengths) <= 25
    classes = Counter(map(length_class, sentences))
    assert classes["3 to 6"] >= 40 and classes["15 to 25"] >= 50
    assert sum(length >= 20 for length in lengths) >= 10


def test_sentences_are_well_formed():
    """Fails on a stray character or space, or a translation that asks where the source
    tells."""
    for sentence in SENTENCES:
        assert len(sentence.references) in (1, 2), sentence
        for text in texts(sentence):
            assert text == unicodedata.normalize("NFC", text), sentence
            assert text == " ".join(text.split()) and text[0].isupper(), sentence
            assert text[-1] in ".?!" and text[-1] == sentence.source[-1], sentence
        assert ENGLISH.fullmatch(sentence.source), sentence
        assert all(map(GERMAN.fullmatch, sentence.references)), sentence


def test_translations_have_the_length_of_their_sources():
    """Fails when a part of a sentence is missing in a translation."""
    for sentence in SENTENCES:
        length = len(sentence.source)
        for reference in sentence.references:
            assert 0.6 * length - 3 <= len(reference) <= 1.7 * length + 8, sentence


def test_figures_are_kept():
    """Fails when a translation has another number in figures than its source."""
    for sentence in SENTENCES:
        if figures := sorted(re.findall(r"\d+", sentence.source)):
            for reference in sentence.references:
                assert sorted(re.findall(r"\d+", reference)) == figures, sentence


@pytest.mark.parametrize("half", ["caption", "everyday"])
def test_second_references_stand_where_they_are_worth_it(half):
    """Fails when the second reference is never there, or the rule."""
    doubled = sum(len(s.references) == 2 for s in book_sentences(half))
    assert 60 <= doubled <= 150


def corpus_texts(corpus: str) -> Iterator[str]:
    """Every line of each language of a corpus's files."""
    folder = DATA / corpus
    for path in sorted(folder.glob("*.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            yield from lines
    for path in sorted(folder.glob("*/*.tsv.xz")):
        with lzma.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                yield from line.split("\t")


@pytest.mark.slow
@pytest.mark.parametrize("corpus", ["multi30k", "tatoeba"])
def test_no_sentence_is_from_a_corpus(corpus):
    """Fails when a sentence is one of a corpus, or shares eight words in a row."""
    if not (DATA / corpus).is_dir() or not DATA.name:
        pytest.skip(
            f"ANNOTATED_TRANSFORMER_DATA names no folder with {corpus}/: the test set "
            "is not compared with it"
        )
    whole = {words(text): text for s in SENTENCES for text in texts(s)}
    ours = {run: text for source, text in whole.items() for run in runs(source)}
    compared = 0
    for line in corpus_texts(corpus):
        compared += 1
        theirs = words(line)
        assert theirs not in whole, f"{line!r} is in {corpus}"
        for run in runs(theirs):
            assert run not in ours, f"{ours[run]!r} shares {run} with {corpus}"
    assert compared > 1000


def test_a_copied_sentence_would_be_found():
    """Fails when case, punctuation or one more word hides a copy."""
    assert words("Two dogs play.") == words("two dogs PLAY")
    long = words("A man in a red hat sells hot chestnuts in front of a church.")
    assert set(runs(long)) & set(runs(("yesterday", *long)))


def test_kinds_select():
    """Fails when a kind misses a sentence or lets in another."""
    assert [s for s in SENTENCES if s.kind == "name"] == book_sentences("name")
    assert book_sentences("caption") + book_sentences("everyday") == SENTENCES


def test_unknown_kind_is_refused():
    """Fails when a mistyped kind gives no sentences, and no reason."""
    with pytest.raises(ValueError, match="'captions' is no kind.*caption, .*everyday"):
        book_sentences("captions")


def test_a_changed_list_changes_nothing():
    """Fails when one caller can spoil the sentences of the next."""
    book_sentences().clear()
    assert len(book_sentences()) == 600


def test_readme_counts():
    """Fails when the tables in the README are not the files' own counts."""
    readme = FOLDER.joinpath("README.md").read_text(encoding="utf-8")
    for kind, count in KINDS.items():
        doubled = sum(len(s.references) == 2 for s in book_sentences(kind))
        assert f"| {kind} | {count} | {doubled} |" in readme
    captions = Counter(map(length_class, book_sentences("caption")))
    everyday = Counter(map(length_class, book_sentences("everyday")))
    for name in LENGTHS:
        assert f"| {name} | {captions[name]} | {everyday[name]} |" in readme
