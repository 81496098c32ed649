"""Tatoeba: how its archives are read, and that its split leaks nothing."""

import hashlib
import json
import lzma
import os
import random
import unicodedata
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from annotated_transformer.data import count_overlap
from annotated_transformer.support import corpora
from annotated_transformer.support.cli import main
from annotated_transformer.support.corpora import Download, load_tatoeba
from annotated_transformer.support.miniature import Pair
from annotated_transformer.support.run_folders import with_references
from annotated_transformer.support.tatoeba import (
    HELD_OUT_WORDS,
    group_translations,
    read_zip,
    split_by_group,
)

FOLDER = Path(os.environ.get("ANNOTATED_TRANSFORMER_DATA", "")) / "tatoeba"


def archive(path: Path, text: str, member: str = "deu.txt") -> Path:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(member, text)
    return path


# Reading ------------------------------------------------------------------------------


def test_lines_are_normalized_and_each_pair_is_read_once(tmp_path: Path) -> None:
    """Fails when the authors count as text, when a letter and its dots stay two
    characters, and when a pair is kept twice."""
    two = unicodedata.normalize("NFD", "Grüß  Gott!")
    text = f"Hi.\tHallo!\nHi.\t{two}\tCC-BY 2.0 (France)\r\n\nHi.\tHallo!\n"
    pairs = read_zip(archive(tmp_path / "a.zip", text), "deu.txt")
    assert pairs == [("Hi.", "Hallo!"), ("Hi.", "Grüß Gott!")]


@pytest.mark.parametrize(
    ("text", "member", "message"),
    [
        ("Hi.\tHallo!\n", "other.txt", "holds no deu.txt"),
        ("Hi.\tHallo!\nHello\n", "deu.txt", "deu.txt, line 2, has no tab: 'Hello'"),
    ],
)
def test_an_archive_that_is_something_else_is_named(
    tmp_path: Path, text: str, member: str, message: str
) -> None:
    """Fails when such a file ends in a KeyError or gives half a pair."""
    with pytest.raises(ValueError, match=message):
        read_zip(archive(tmp_path / "a.zip", text, member), "deu.txt")


# Groups -------------------------------------------------------------------------------


def test_a_chain_of_translations_is_one_group() -> None:
    """Fails when only sentences that stand on the same line are put together, or
    sentences that differ in a full stop are kept apart."""
    chain = [
        ("Run!", "Lauf!"),
        ("Run.", "Renn!"),
        ("Sprint!", "Renn."),
        ("Go.", "Geh!"),
    ]
    groups = group_translations(chain)
    assert groups == [chain[:3], chain[3:]]


def test_the_same_words_in_both_languages_are_two_sentences() -> None:
    """Fails when an English sentence is joined to a German one that looks the same."""
    pairs = [("Name?", "Wie heißt du?"), ("What is it called?", "Name?")]
    assert len(group_translations(pairs)) == 2


def tangled(number: int, seed: int) -> list[Pair]:
    """Pairs that share sentences on both sides, by chance."""
    rng = random.Random(seed)
    return [
        (
            f"This is sentence number {rng.randrange(number)}.",
            f"Satz {rng.randrange(number)}",
        )
        for _ in range(number)
    ]


def leaks(train: list[Pair], *held_out: list[Pair]) -> int:
    """Sentences of a part that stand in another, on either side."""
    overlaps = [count_overlap(train, part) for part in held_out]
    overlaps.append(count_overlap(held_out[0], held_out[1]))
    return sum(overlap.source + overlap.target for overlap in overlaps)


def test_no_sentence_of_one_part_stands_in_another() -> None:
    """Fails when pairs, or single sentences, and not whole groups, decide."""
    pairs = tangled(3000, seed=0)
    train, validation, test = split_by_group(pairs, 10)
    assert min(map(len, (train, validation, test))) > 20
    assert leaks(train, validation, test) == 0
    by_sentence: list[list[Pair]] = [[], [], []]
    for pair in pairs:
        number = hashlib.sha256(pair[0].encode()).digest()[0] % 10
        by_sentence[min(number, 2)].append(pair)
    assert leaks(by_sentence[2], *by_sentence[:2]) > 0  # what the test must see


def test_the_order_of_the_pairs_changes_nothing() -> None:
    """Fails when a group's place depends on which of its pairs comes first."""
    pairs = tangled(500, seed=1)
    assert split_by_group(pairs, 10) == split_by_group(pairs[::-1], 10)


def test_very_short_sentences_are_not_held_out() -> None:
    """Fails when "Run!" stands in a test set, and when it moves to the training set
    from a group that is held out."""
    pairs = [(f"Word{i} runs.", f"Wort{i} läuft.") for i in range(500)]
    train, validation, test = split_by_group(pairs, 10)
    assert not validation and not test and 350 < len(train) < 450


# The corpus ---------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with a small Tatoeba; the package takes its checksums for the right
    ones."""
    folder, checksums = tmp_path / "tatoeba", {}
    folder.mkdir()
    # Letters, not numbers, so that a vocabulary can be learned.
    letters = ["".join(random.Random(i).sample("abcdefghijkl", 5)) for i in range(600)]
    lines = [f"We saw {x} there.\tWir sahen {x}{end}" for x in letters for end in ".!"]
    for name, member, _ in corpora.TATOEBA_FILES.values():
        path = archive(folder / name, "\n".join(lines), member)
        checksums[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setitem(
        corpora.CORPORA, "tatoeba", Download(corpora.TATOEBA, checksums)
    )
    monkeypatch.setenv("ANNOTATED_TRANSFORMER_DATA", str(tmp_path))
    return folder


def test_the_corpus_in_both_directions(files: Path) -> None:
    """Fails when the other direction is split anew, and so learns what it is tested
    on."""
    there, back = load_tatoeba("en", "de"), load_tatoeba("de", "en")
    assert there.languages == ("en", "de") and back.languages == ("de", "en")
    for part in ("train", "validation", "test"):
        pairs = getattr(there, part)
        assert pairs and getattr(back, part) == [pair[::-1] for pair in pairs]


@pytest.mark.parametrize("languages", [("en", "fr"), ("de", "vi"), ("en", "en")])
def test_other_languages_are_named(languages: tuple[str, str]) -> None:
    """Fails with a KeyError when the check is taken out."""
    with pytest.raises(ValueError, match="expected English .'en'. and one of de, vi"):
        load_tatoeba(*languages)


def test_prepare_writes_it_and_evaluate_takes_all_its_references(
    files: Path, tmp_path: Path
) -> None:
    """Fails when each reference of a sentence is scored as a sentence."""

    def run(*words: object) -> str:
        done = CliRunner().invoke(main, [str(word) for word in words])
        assert done.exit_code == 0, done.output
        return done.stdout

    data, folder = tmp_path / "data", tmp_path / "run"
    run("prepare", data, "--corpus", "tatoeba", "--vocabulary-size", 300)
    shape = ["--d-model", 8, "--d-ff", 8, "--num-heads", 1, "--num-layers", 1]
    run("train", data, folder, *shape, "--steps", 1, "--precision", "fp32")
    run("average", folder, tmp_path / "translator", "--last", 1)
    found = json.loads(
        run("evaluate", data, "--model", tmp_path / "translator", "--beam", 1)
    )
    test = load_tatoeba().test
    assert found["evaluation"]["references"] == len(test)
    assert found["evaluation"]["sentences"] == len(test) / 2
    assert "nrefs:2" in found["scores"]["bleu"]["signature"]


def test_references_stand_with_their_source() -> None:
    """Fails when lines of one source that do not follow each other are kept apart."""
    pairs = [("Hi.", "Hallo!"), ("Go.", "Geh!"), ("Hi.", "Servus!")]
    assert with_references(pairs) == {"Hi.": ["Hallo!", "Servus!"], "Go.": ["Geh!"]}


# Real sentences -----------------------------------------------------------------------


def real_pairs() -> list[Pair]:
    """The pairs of the archive, or of the same corpus as lines of text."""
    if (path := FOLDER / "deu-eng.zip").is_file():
        return read_zip(path, "deu.txt")
    parts = sorted((FOLDER / "en-de").glob("*.tsv.xz"))
    lines = [line for part in parts for line in lzma.open(part, "rt", encoding="utf-8")]
    return [tuple(line.rstrip("\n").split("\t")) for line in lines]


@pytest.mark.slow
@pytest.mark.skipif(
    not (FOLDER / "deu-eng.zip").is_file() and not (FOLDER / "en-de").is_dir(),
    reason=(
        "ANNOTATED_TRANSFORMER_DATA names no folder with Tatoeba: its real groups and"
        " its split are not looked at"
    ),
)
def test_the_real_tatoeba() -> None:
    """Fails when the split of the real sentences leaks, or holds out too little to
    measure by."""
    pairs = real_pairs()
    train, validation, test = split_by_group(pairs, 100)
    assert len(train) > 160_000 and leaks(train, validation, test) == 0
    for part in (validation, test):
        sources = {source for source, _ in part}
        assert 1000 < len(sources) < 1500
        assert all(len(source.split()) in HELD_OUT_WORDS for source in sources)


@pytest.mark.skipif(
    not (FOLDER / "deu-eng.zip").is_file(),
    reason=(
        "ANNOTATED_TRANSFORMER_DATA names no folder with Tatoeba's archives: their"
        " checksums are not looked at"
    ),
)
@pytest.mark.parametrize(
    ("target", "train", "sentences"), [("de", 166_425, 1283), ("vi", 8491, 352)]
)
def test_the_real_archives(target: str, train: int, sentences: int) -> None:
    """Fails when a checksum or a number in the package is wrong."""
    corpus = load_tatoeba("en", target)
    assert len(corpus.train) == train
    assert len(with_references(corpus.test)) == sentences
