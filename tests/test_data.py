"""Chapter 9: the corpora, their download and the batches."""

import errno
import gzip
import hashlib
import os
import random
import subprocess
import sys
import threading
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from conftest import pairs
from hypothesis import given
from hypothesis import strategies as st

from annotated_transformer import data
from annotated_transformer.data import (
    Batch,
    Overlap,
    count_overlap,
    encode_pairs,
    encode_stream,
    make_batch,
    shard,
    stream_batches,
    token_batches,
)
from annotated_transformer.subwords import BOS_ID, EOS_ID, PAD_ID, Subwords
from annotated_transformer.support import corpora, miniature
from annotated_transformer.support.corpora import (
    CorpusUnavailable,
    Download,
    ParallelFiles,
    fetch_file,
    fetch_multi30k,
    fetch_treebank,
    load_corpus,
    load_multi30k,
    miniature_corpus,
)

NAME = "train.en.gz"
LINES = {
    "en": ["A dog\u2028runs.", "Two cats."],
    "de": ["Ein Hund\u2028läuft.", "Zwei Katzen."],
}

# The miniature corpus -----------------------------------------------------------------


def test_the_same_seed_makes_the_same_miniature_corpus() -> None:
    """Fails when the generator is left without its seed, and when the seed is
    ignored."""
    assert miniature_corpus(50, 5, seed=1) == miniature_corpus(50, 5, seed=1)
    assert (
        miniature_corpus(50, 5, seed=1).train != miniature_corpus(50, 5, seed=2).train
    )


def test_no_sentence_stands_in_two_parts() -> None:
    """Fails when the parts overlap by a pair, and when a sentence may come twice."""
    corpus = miniature_corpus(4000, 200)
    assert [len(part) for part in (corpus.train, corpus.validation, corpus.test)] == [
        4000,
        200,
        200,
    ]
    english = [
        pair[0]
        for part in (corpus.train, corpus.validation, corpus.test)
        for pair in part
    ]
    assert len(set(english)) == len(english)


def test_german_verbs_stand_where_german_wants_them() -> None:
    """Fails when a subordinate clause keeps the English order."""
    finite, infinitives = (
        {verb[3] for verb in miniature.VERBS},
        {verb[2] for verb in miniature.VERBS},
    )
    seen = Counter()
    for english, german in miniature_corpus(300, 0).train:
        words = german.rstrip(".").split()
        if " that " in english:
            seen["subordinate"] += words[-1] in finite and ", dass " in german
        elif " can " in english:
            seen["modal"] += words[-1] in infinitives and "kann" in words
        elif english.split()[0].lower() in dict(miniature.ADVERBS):
            seen["inverted"] += words[1] in finite
        else:
            seen["plain"] += (
                words[0].lower() in {"der", "die", "das", "ein", "eine"}
                and words[-1] not in finite
            )
    assert seen.total() == 300 and len(seen) == 4


def test_articles_and_endings_agree() -> None:
    """Case, gender and article of every phrase. Fails when "the" takes the endings of
    "a"."""
    rng, genders = (
        random.Random(0),
        {german: gender for _, german, gender in miniature.NOUNS},
    )
    endings = Counter()
    for _ in range(300):
        article, *adjective, noun = miniature.noun_phrase(rng, "accusative")[1].split()
        definite, indefinite, strong = miniature.ARTICLES["accusative"][genders[noun]]
        assert article in (definite, indefinite)
        weak = "en" if genders[noun] == "m" else "e"
        for word in adjective:
            ending = weak if article == definite else strong
            assert word in {stem + ending for _, stem in miniature.ADJECTIVES}
            endings[article, ending] += 1
    assert len(endings) == 6


# Multi30k -----------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with a Multi30k of two pairs a part; the package takes its
    checksums for the right ones."""
    folder, checksums = tmp_path / "data" / "multi30k", {}
    folder.mkdir(parents=True)
    for part in ("train", "val", "test_2016_flickr"):
        for language, lines in LINES.items():
            body = gzip.compress("".join(f"{line}\n" for line in lines).encode())
            (folder / f"{part}.{language}.gz").write_bytes(body)
            checksums[f"{part}.{language}.gz"] = hashlib.sha256(body).hexdigest()
    monkeypatch.setitem(
        corpora.CORPORA, "multi30k", Download(corpora.MULTI30K, checksums)
    )
    monkeypatch.setenv("ANNOTATED_TRANSFORMER_DATA", str(folder.parent))
    return folder


def test_pairs_are_read_line_by_line(files: Path) -> None:
    """Fails when lines are split at every Unicode separator, and when source and target
    are swapped."""
    corpus = load_multi30k("de", "en")
    assert (
        corpus.train
        == corpus.validation
        == corpus.test
        == list(zip(LINES["de"], LINES["en"], strict=True))
    )
    assert corpus.languages == ("de", "en")


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (
            lambda path: path.unlink(),
            "is not there: ANNOTATED_TRANSFORMER_DATA names the folder",
        ),
        (
            lambda path: path.write_bytes(path.read_bytes()[:-9]),
            "is damaged or of another version.*SHA-256 is not",
        ),
        (
            lambda path: path.write_bytes(gzip.compress(b"Other text.")),
            "is damaged or of another version",
        ),
    ],
)
def test_a_file_of_the_data_folder_that_is_not_right_is_named(
    files: Path, harm: Callable[[Path], object], message: str
) -> None:
    """Missing, truncated, another. Fails when the checksum is not compared."""
    harm(files / NAME)
    with pytest.raises(CorpusUnavailable, match=f"{NAME} {message}"):
        load_multi30k()


def test_without_multi30k_the_miniature_corpus_says_so_in_one_line(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fails when the line holds a path or an error, and when the loader pretends."""
    assert (
        load_corpus().name == "Multi30k"
        and "2 sentence pairs" in capsys.readouterr().out
    )
    (files / NAME).unlink()
    assert load_corpus().name == "miniature"
    line = "Multi30k is not at hand, so this is the miniature corpus."
    assert capsys.readouterr().out.splitlines() == [line]


def test_other_languages_are_named() -> None:
    """Fails when the check is taken out."""
    with pytest.raises(
        ValueError,
        match="language 'it' is not in Multi30k: expected 'en', 'de' or 'fr'",
    ):
        load_multi30k("en", "it")


@pytest.mark.slow
@pytest.mark.skipif(
    not (
        Path(os.environ.get("ANNOTATED_TRANSFORMER_DATA", "")) / "multi30k" / NAME
    ).is_file(),
    reason=(
        "ANNOTATED_TRANSFORMER_DATA names no folder with Multi30k: its real pairs and"
        " checksums are not looked at"
    ),
)
@pytest.mark.parametrize("target", ["de", "fr"])
def test_the_real_multi30k(target: str) -> None:
    """Fails when a checksum in the package is wrong."""
    corpus = load_multi30k("en", target)
    assert (
        len(corpus.train) == 29_000
        and len(corpus.validation) > 1000
        and len(corpus.test) == 1000
    )
    assert all(
        source and target
        for part in (corpus.train, corpus.validation, corpus.test)
        for source, target in part
    )


# Parallel files -----------------------------------------------------------------------


def parallel(
    folder: Path, source: bytes, target: bytes, ending: str = ""
) -> ParallelFiles:
    """Two files of these bytes."""
    paths = folder / f"source.txt{ending}", folder / f"target.txt{ending}"
    for path, body in zip(paths, (source, target), strict=True):
        path.write_bytes(gzip.compress(body) if ending else body)
    return ParallelFiles(*paths)


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", [True, False], ids=["closed", "open"])
def test_lines_of_every_kind_of_file(
    tmp_path: Path, ending: str, end: str, last: bool
) -> None:
    """LF and CRLF, plain and packed, with and without the last line end. Fails when
    U+2028 splits a line, when an empty line is skipped, when a carriage return stays,
    and when the byte order mark does."""
    lines = ["A dog\u2028runs.\x85", "", " zwei\tdrei ", "Übung"]
    body = end.join(lines) + end * last
    files = parallel(tmp_path, ("\ufeff" + body).encode(), body.encode(), ending)
    expected = [line.strip() for line in lines]
    assert (
        list(files) == list(files) == list(zip(expected, expected, strict=True))
    )  # each time anew
    assert files.count_pairs() == 4


def test_an_empty_file_has_no_lines(tmp_path: Path) -> None:
    """Fails when an empty file is one empty line."""
    assert list(parallel(tmp_path, b"", b"")) == []


@pytest.mark.parametrize("missing", ["source.txt", "target.txt"])
def test_a_missing_file_is_named_at_once(tmp_path: Path, missing: str) -> None:
    """Fails when the files are looked for at the first pair only."""
    parallel(tmp_path, b"", b"")
    (tmp_path / missing).unlink()
    with pytest.raises(FileNotFoundError, match=f"{missing} is not there"):
        ParallelFiles(tmp_path / "source.txt", str(tmp_path / "target.txt"))


@pytest.mark.parametrize("lines", [(3, 5), (5, 3), (0, 1), (2, 1)])
def test_unequal_files_are_counted(tmp_path: Path, lines: tuple[int, int]) -> None:
    """Fails when the longer file is cut in silence, and when a count is off by one."""
    files = parallel(tmp_path, *[b"line\n" * number for number in lines])
    with pytest.raises(
        ValueError,
        match=(
            f"source.txt has {lines[0]} lines and .*target.txt has {lines[1]}: expected"
        ),
    ):
        files.count_pairs()


@pytest.mark.parametrize("number", [1, 3])
def test_a_line_that_is_not_utf8_is_numbered(tmp_path: Path, number: int) -> None:
    """Fails when UnicodeDecodeError comes through, when bytes are replaced, and when
    the number counts from zero."""
    body = [b"eins", b"zwei", b"drei"]
    body[number - 1] = "zwölf".encode("latin-1")
    files = parallel(tmp_path, b"1\n2\n3\n", b"\n".join(body))
    with pytest.raises(
        ValueError, match=f"target.txt, line {number}, is not UTF-8 .byte 0xf6."
    ):
        files.count_pairs()


@pytest.mark.parametrize(
    "harm",
    [
        lambda body: body[:-9],
        lambda body: b"no archive",
        lambda body: body[:12] + b"\xff\xff" + body[14:],
    ],
    ids=["truncated", "no archive", "another byte"],
)
def test_a_damaged_archive_is_named(
    tmp_path: Path, harm: Callable[[bytes], bytes]
) -> None:
    """Fails when EOFError, BadGzipFile or zlib.error comes through."""
    files = parallel(tmp_path, b"line\n" * 99, b"line\n" * 99, ".gz")
    files.target.write_bytes(harm(files.target.read_bytes()))
    with pytest.raises(
        ValueError, match="target.txt.gz is damaged after line [0-9]+: .*fetch it again"
    ):
        files.count_pairs()


@pytest.mark.slow
def test_a_stream_needs_no_memory_for_the_corpus(tmp_path: Path) -> None:
    """Four times as many lines, the same memory. Fails when the files are read
    whole."""
    peaks = []
    for lines in (20_000, 80_000):
        files = parallel(
            tmp_path,
            b"the dog sees a cat\n" * lines,
            b"der Hund sieht eine Katze\n" * lines,
        )
        tracemalloc.start()
        assert files.count_pairs() == lines
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 2 * peaks[0] and peaks[1] < 500_000


# The download -------------------------------------------------------------------------


@dataclass
class Mirror:
    """A web server of one file, what it answers, and the cache that the file goes
    to."""

    body: bytes
    cache: Path
    server: ThreadingHTTPServer | None = None
    answers: list[tuple[int, bytes]] = field(default_factory=list)
    """Status and body of the next requests; after them, the file as it should be."""
    requests: int = 0

    def listing(self) -> list[str]:
        """The files below the cache folder."""
        return sorted(path.name for path in self.cache.rglob("*") if path.is_file())

    def stop(self) -> None:
        """Take the server off the network."""
        if self.server:
            self.server.shutdown()
            self.server.server_close()
            self.server = None


@pytest.fixture
def mirror(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Mirror]:
    """A mirror of the small Multi30k on this machine, an empty cache, and no waiting
    between tries."""
    mirror = Mirror((files / NAME).read_bytes(), tmp_path / "cache")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            mirror.requests += 1
            status, body = (
                mirror.answers.pop(0) if mirror.answers else (200, mirror.body)
            )
            self.send_response(status)
            self.send_header("Content-Length", str(len(mirror.body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    mirror.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(
        target=mirror.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
    ).start()
    for corpus, download in corpora.CORPORA.items():
        address = f"http://127.0.0.1:{mirror.server.server_port}/"
        monkeypatch.setitem(corpora.CORPORA, corpus, Download(address, download.sha256))
    monkeypatch.setattr("pooch.os_cache", lambda project: mirror.cache / project)
    monkeypatch.setattr("pooch.core.time.sleep", lambda seconds: None)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("ANNOTATED_TRANSFORMER_DATA")
    yield mirror
    mirror.stop()


def test_a_download_is_kept(mirror: Mirror) -> None:
    """Fails when every call downloads again, and when anything else stays in the
    cache."""
    path = fetch_multi30k(NAME)
    assert path.read_bytes() == mirror.body
    mirror.stop()
    assert (
        fetch_multi30k(NAME) == path
        and mirror.requests == 1
        and mirror.listing() == [NAME]
    )


def test_a_broken_download_is_tried_again(mirror: Mirror) -> None:
    """Truncated, then another text, then right. Fails without retries."""
    mirror.answers = [(200, mirror.body[:10]), (200, bytes(len(mirror.body)))]
    assert fetch_multi30k(NAME).read_bytes() == mirror.body
    assert mirror.requests == 3 and mirror.listing() == [NAME]


def test_a_damaged_file_in_the_cache_is_replaced(mirror: Mirror) -> None:
    """Fails when the checksum of a file in the cache is not compared."""
    path = fetch_multi30k(NAME)
    path.write_bytes(mirror.body[:10])
    assert fetch_multi30k(NAME).read_bytes() == mirror.body and mirror.listing() == [
        NAME
    ]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda body: (200, body[: len(body) // 2]), "IncompleteRead"),
        (lambda body: (200, bytes(len(body))), "hash"),
        (lambda body: (404, bytes(len(body))), "404"),
    ],
    ids=["truncated", "corrupt", "not found"],
)
def test_a_failed_download_leaves_nothing_behind(
    mirror: Mirror, answer: Callable[[bytes], tuple[int, bytes]], reason: str
) -> None:
    """Fails when the file is written in place, without a checksum, and when another
    error is raised."""
    mirror.answers = [answer(mirror.body) for _ in range(3)]
    with pytest.raises(CorpusUnavailable, match=reason) as caught:
        fetch_multi30k(NAME)
    for part in (
        corpora.CORPORA["multi30k"].address + NAME,
        str(mirror.cache),
        "check the network",
        "$ANNOTATED_TRANSFORMER_DATA/multi30k",
    ):
        assert part in str(caught.value)
    assert mirror.requests == 3 and mirror.listing() == []


def test_no_network(mirror: Mirror) -> None:
    """Fails when the error of the connection is let through."""
    mirror.stop()
    with pytest.raises(
        CorpusUnavailable,
        match=f"{NAME} could not be stored.*Connection refused.*check the network",
    ):
        fetch_multi30k(NAME)
    assert mirror.listing() == []


def test_no_disk_space(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full half-way. Fails when OSError is let through."""

    def fill_the_disk(url: str, path: str, pooch: object) -> None:
        Path(path).write_bytes(mirror.body[:10])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    monkeypatch.setattr(
        "pooch.core.choose_downloader", lambda *args, **kwargs: fill_the_disk
    )
    with pytest.raises(
        CorpusUnavailable,
        match=f"{NAME} could not be stored.*{os.strerror(errno.ENOSPC)}.*free space",
    ):
        fetch_multi30k(NAME)
    assert mirror.listing() == []


def test_a_cache_that_cannot_be_made(mirror: Mirror) -> None:
    """A file is in the way. Fails when the folder is made outside the guarded part."""
    mirror.cache.write_text("in the way")
    with pytest.raises(
        CorpusUnavailable, match=f"could not be stored in {mirror.cache}"
    ):
        fetch_multi30k(NAME)
    assert mirror.cache.read_text() == "in the way" and mirror.requests == 0


def test_every_corpus_is_fetched_the_same_way(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails when the treebank is stored among the files of Multi30k, or its checksum is
    not compared."""
    with pytest.raises(
        CorpusUnavailable, match="treebank.zip could not be stored.*hash"
    ):
        fetch_treebank()
    checksum = hashlib.sha256(mirror.body).hexdigest()
    address = corpora.CORPORA["treebank"].address
    monkeypatch.setitem(
        corpora.CORPORA, "treebank", Download(address, {"treebank.zip": checksum})
    )
    path = fetch_treebank()
    assert (
        path.read_bytes() == mirror.body
        and path.parent.name == "treebank"
        and mirror.listing() == ["treebank.zip"]
    )
    monkeypatch.setenv("ANNOTATED_TRANSFORMER_DATA", str(path.parent.parent))
    assert fetch_treebank() == path
    path.write_bytes(b"half")
    with pytest.raises(CorpusUnavailable, match="damaged or of another version"):
        fetch_treebank()


def test_what_the_registry_does_not_hold_is_named() -> None:
    """Fails, for corpus and file, when KeyError is raised."""
    with pytest.raises(
        ValueError,
        match=(
            "'wmt14' is no corpus that we know: expected one of multi30k, tatoeba,"
            " treebank"
        ),
    ):
        fetch_file("wmt14", "train.en.gz")
    with pytest.raises(
        ValueError,
        match=(
            "'train.it.gz' is no file of multi30k that we know: expected one of"
            " train.en.gz"
        ),
    ):
        fetch_multi30k("train.it.gz")


@pytest.mark.skipif(
    not (
        Path(os.environ.get("ANNOTATED_TRANSFORMER_DATA", ""))
        / "treebank"
        / "treebank.zip"
    ).is_file(),
    reason=(
        "ANNOTATED_TRANSFORMER_DATA names no folder with the treebank: its checksum is"
        " not looked at"
    ),
)
def test_the_real_treebank() -> None:
    """Fails when the checksum in the package is wrong."""
    assert fetch_treebank().stat().st_size > 10**6


# Batches ------------------------------------------------------------------------------


def content(batch: Batch) -> list[tuple[tuple[int, ...], ...]]:
    """The encoded pairs that a batch was made of."""
    rows = zip(batch.source.tolist(), batch.target_output.tolist(), strict=True)
    return [
        tuple(
            tuple(token for token in row if token not in (PAD_ID, EOS_ID))
            for row in pair
        )
        for pair in rows
    ]


@given(pairs=pairs)
def test_a_batch_holds_the_pairs_and_the_shift_by_one(pairs: list) -> None:
    """Fails when the target is not shifted, when the end token is missing, and when
    padding stands in front."""
    batch = make_batch(pairs)
    for i, (source, target) in enumerate(pairs):
        rows = [
            side[i].tolist()
            for side in (batch.source, batch.target_input, batch.target_output)
        ]
        for row, expected in zip(
            rows, ([*source, EOS_ID], [BOS_ID, *target], [*target, EOS_ID]), strict=True
        ):
            assert row == expected + [PAD_ID] * (len(row) - len(expected))
    assert batch.target_input.shape == batch.target_output.shape
    assert batch.source.size(1) == max(len(source) for source, _ in pairs) + 1
    assert batch.tokens == sum(len(target) + 1 for _, target in pairs)


many_pairs = st.lists(
    st.tuples(*2 * [st.lists(st.integers(4, 9), min_size=1, max_size=9)]),
    min_size=1,
    max_size=30,
)


@given(pairs=many_pairs, max_tokens=st.integers(10, 40), seed=st.integers(0, 3))
def test_each_epoch_holds_each_pair_once_within_the_budget(
    pairs: list, max_tokens: int, seed: int
) -> None:
    """Fails when the last group is dropped, and when padding does not count."""
    batches = list(token_batches(pairs, max_tokens, seed, epochs=2))
    found = Counter(pair for batch in batches for pair in content(batch))
    assert found == Counter(
        2 * [(tuple(source), tuple(target)) for source, target in pairs]
    )
    assert all(
        max(batch.source.numel(), batch.target_input.numel()) <= max_tokens
        for batch in batches
    )


LADDER = [([4] * n, [5] * n) for n in range(1, 40)]


def test_pairs_of_like_length_stand_together() -> None:
    """Fails when pairs are not sorted: then a third of a batch is padding."""
    batches = list(token_batches(LADDER, 100, epochs=1))
    padding = sum(int((batch.source == PAD_ID).sum()) for batch in batches)
    assert padding / sum(batch.source.numel() for batch in batches) < 0.15
    lengths = [batch.source.size(1) for batch in batches]
    assert lengths != sorted(lengths)  # short sentences do not always come first


def test_order_depends_on_seed_and_epoch_alone() -> None:
    """Fails when all epochs are alike, when the seed is ignored, and when the global
    generator is asked."""

    def orders(seed: int) -> list:
        random.seed()  # whatever the global generator says
        batches = [
            content(batch) for batch in token_batches(LADDER, 60, seed, epochs=2)
        ]
        return [batches[: len(batches) // 2], batches[len(batches) // 2 :]]

    first, second = orders(seed=0)
    assert [first, second] == orders(seed=0)
    assert first != second and first != orders(seed=1)[0]


def test_batches_have_no_end_unless_asked() -> None:
    """Fails when ``epochs=None`` means one."""
    batches = token_batches(LADDER, 60)
    assert sum(
        batch.source.size(0) for batch, _ in zip(batches, range(100), strict=False)
    ) > len(LADDER)


@given(
    pairs=many_pairs,
    world_size=st.integers(1, 5),
    epochs=st.integers(1, 3),
    seed=st.integers(0, 3),
)
def test_batches_are_dealt_like_cards(
    pairs: list, world_size: int, epochs: int, seed: int
) -> None:
    """Taken in turn, the workers' batches are one worker's. Fails when an epoch's
    remainder is dropped or repeated, when the dealing starts anew each epoch, and when
    the order depends on the rank."""
    alone = [content(batch) for batch in token_batches(pairs, 20, seed, epochs)]
    ranks = [
        [
            content(b)
            for b in token_batches(
                pairs, 20, seed, epochs, rank=rank, world_size=world_size
            )
        ]
        for rank in range(world_size)
    ]
    assert [ranks[k % world_size][k // world_size] for k in range(len(alone))] == alone
    assert sum(map(len, ranks)) == len(alone)


def test_a_worker_makes_its_own_batches_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails when a worker makes the tensors of all, and throws most away."""
    made = []
    monkeypatch.setattr(data, "make_batch", made.append)
    total = len(list(token_batches(LADDER, 60, epochs=1)))
    made.clear()
    list(token_batches(LADDER, 60, epochs=1, rank=1, world_size=4))
    assert 0 < len(made) <= total / 4 + 1


@pytest.mark.slow
def test_the_order_is_the_same_in_every_process() -> None:
    """Fails when the seed goes through ``hash``, which differs from process to
    process."""
    program = (
        "from annotated_transformer.data import token_batches\n"
        "pairs = [([4] * n, [5] * n) for n in range(1, 40)]\n"
        "batches = token_batches(pairs, 60, seed=3, epochs=2)\n"
        "print([batch.source.shape[1] for batch in batches])"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": hash_seed, "OMP_NUM_THREADS": "1"},
            cwd=Path(data.__file__).parent.parent,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    here = [
        batch.source.shape[1] for batch in token_batches(LADDER, 60, seed=3, epochs=2)
    ]
    assert runs == 2 * [f"{here}\n"]


TEXTS = miniature_corpus(120, 0).train


def streamed(*args: object, **kwargs: object) -> list:
    """The contents of the batches of a stream."""
    return [content(batch) for batch in stream_batches(*args, **kwargs)]


def test_a_buffer_of_everything_gives_the_batches_of_the_list(
    subwords: Subwords,
) -> None:
    """Fails when the two ways draw their random numbers differently, or the budget is
    another."""
    expected = [
        content(batch)
        for batch in token_batches(encode_pairs(TEXTS, subwords), 100, 5, 2)
    ]
    assert streamed(TEXTS, subwords, 100, 5, 2) == expected


@given(
    buffer_size=st.integers(1, 150),
    world_size=st.integers(1, 5),
    seed=st.integers(0, 3),
)
def test_a_stream_gives_each_pair_to_one_worker_once_an_epoch(
    subwords: Subwords, buffer_size: int, world_size: int, seed: int
) -> None:
    """Fails when the last buffer is dropped, when all workers read the same, and when
    the order does not repeat."""
    epochs, everything = 2, encode_pairs(TEXTS, subwords)
    for rank in range(world_size):
        arguments = {
            "epochs": epochs,
            "buffer_size": buffer_size,
            "rank": rank,
            "world_size": world_size,
        }
        batches = streamed(TEXTS, subwords, 100, seed, **arguments)
        expected = Counter(
            (tuple(source), tuple(target))
            for source, target in epochs * everything[rank::world_size]
        )
        assert Counter(pair for batch in batches for pair in batch) == expected
        assert streamed(TEXTS, subwords, 100, seed, **arguments) == batches


def test_a_stream_holds_the_budget_and_groups_by_length(subwords: Subwords) -> None:
    """Fails when the buffer is not grouped: then far more is padding, and when it comes
    out in the order of length."""
    batches = list(stream_batches(TEXTS, subwords, 150, epochs=1, buffer_size=60))
    assert all(
        max(batch.source.numel(), batch.target_input.numel()) <= 150
        for batch in batches
    )
    padding = sum(int((batch.target_output == PAD_ID).sum()) for batch in batches)
    assert padding / sum(batch.target_output.numel() for batch in batches) < 0.15
    widths = [batch.source.size(1) for batch in batches]
    assert widths != sorted(widths)


def test_a_stream_reads_no_further_than_its_buffer(subwords: Subwords) -> None:
    """Fails when the whole corpus is read before the first batch."""
    read = []

    class Watched:
        def __iter__(self) -> Iterator[tuple[str, str]]:
            for pair in TEXTS:
                read.append(pair)
                yield pair

    next(stream_batches(Watched(), subwords, 100, buffer_size=10))
    assert len(read) == 10


def test_a_stream_has_no_end_unless_asked_and_reads_files_anew(
    tmp_path: Path, subwords: Subwords
) -> None:
    """Fails when the second epoch finds its files exhausted."""
    files = parallel(
        tmp_path, *["\n".join(side).encode() for side in zip(*TEXTS[:10], strict=True)]
    )
    batches = stream_batches(files, subwords, 100, buffer_size=4)
    assert (
        sum(batch.source.size(0) for batch, _ in zip(batches, range(40), strict=False))
        > 30
    )


def test_pairs_that_are_empty_or_too_long_are_left_out_of_a_stream(
    subwords: Subwords,
) -> None:
    """Fails when the end token is not counted, and when ``max_length`` looks at one
    side."""
    texts = [("", "Hund"), ("The dog", " "), *TEXTS[:20]]
    lengths = [max(map(len, pair)) + 1 for pair in encode_pairs(texts, subwords)]
    limit = sorted(lengths)[10]
    assert len(lengths) == 20 and len(list(encode_stream(texts, subwords))) == 20
    kept = list(encode_stream(texts, subwords, max_length=limit))
    assert len(kept) == sum(length <= limit for length in lengths) < 20
    assert sum(
        map(len, streamed(texts, subwords, limit, epochs=1, max_length=limit))
    ) == len(kept)


@pytest.mark.parametrize("world_size", [1, 3])
def test_a_pair_longer_than_a_batch_stops_no_run(
    subwords: Subwords, world_size: int
) -> None:
    """It is left out and counted. Fails when one long pair raises, in mid-run and on
    one rank only, when the others are lost with it, and when the count is wrong."""
    long = " ".join(["The dog sees a cat."] * 50), "Der Hund sieht eine Katze."
    texts = [*TEXTS[:10], long, ("", "Hund"), *TEXTS[10:40]]
    left_out, seen = Counter(), Counter()
    for rank in range(world_size):
        options = {"epochs": 1, "buffer_size": 7, "left_out": left_out}
        for batch in streamed(
            texts, subwords, 100, rank=rank, world_size=world_size, **options
        ):
            seen.update(batch)
    expected = encode_pairs(TEXTS[:40], subwords)
    assert seen == Counter((tuple(s), tuple(t)) for s, t in expected)
    assert left_out == {"too long": 1, "empty": 1}
    sizes = [max(map(len, pair)) + 1 for pair in expected]  # 100 and more: none is left
    unlimited = streamed(texts, subwords, 100, epochs=1, max_length=10**6)
    assert sum(map(len, unlimited)) == len(sizes)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"pairs": iter(TEXTS)}, "an iterator can be read once: expected epochs=1"),
        ({"buffer_size": 0}, "buffer_size is 0, expected a whole number of at least 1"),
        (
            {"rank": 2, "world_size": 2},
            "rank 2 of world_size 2: expected a rank from 0",
        ),
        ({"rank": -1}, "rank -1 of world_size 1"),
        ({"max_length": 0}, "max_length is 0, expected a whole number of at least 1"),
    ],
)
def test_a_stream_that_cannot_be_is_refused_at_once(
    subwords: Subwords, arguments: dict, message: str
) -> None:
    """Fails, for each row of the table, when its check is taken out, or waits for the
    first batch."""
    with pytest.raises(ValueError, match=message):
        stream_batches(
            **{"pairs": TEXTS, "subwords": subwords, "max_tokens": 100} | arguments
        )


@pytest.mark.parametrize(
    ("texts", "arguments", "message"),
    [
        ([], {}, "no pairs for rank 0 of world_size 1"),
        ([("", "")], {}, "no pairs for rank 0 of world_size 1"),
        (
            TEXTS[:2],
            {"rank": 2, "world_size": 3},
            "no pairs for rank 2 of world_size 3",
        ),
        (
            TEXTS,
            {"max_tokens": 5},
            "no pairs for rank 0 .* no more tokens than allowed",
        ),
    ],
)
def test_a_stream_without_pairs_ends_with_an_error(
    subwords: Subwords, texts: list, arguments: dict, message: str
) -> None:
    """Fails when an endless stream of nothing runs forever, also where every pair is
    longer than the budget."""
    with pytest.raises(ValueError, match=message):
        next(stream_batches(texts, subwords, **{"max_tokens": 100} | arguments))


def test_an_iterator_will_do_for_one_epoch(subwords: Subwords) -> None:
    """Fails when iterators are refused altogether."""
    assert sum(map(len, streamed(iter(TEXTS), subwords, 100, epochs=1))) == len(TEXTS)


@given(number=st.integers(0, 20), world_size=st.integers(1, 6))
def test_shards_are_disjoint_and_complete(number: int, world_size: int) -> None:
    """Fails when a remainder is dropped, and when shards are blocks of unequal size."""
    shards = [
        list(shard(range(number), rank, world_size)) for rank in range(world_size)
    ]
    assert sorted(item for items in shards for item in items) == list(range(number))
    sizes = [len(items) for items in shards]
    assert sizes == sorted(sizes, reverse=True) and max(sizes) - min(sizes) <= 1


# What test and training share ---------------------------------------------------------


def test_overlap_is_counted_by_side_and_by_pair() -> None:
    """Fails when two halves of different training pairs count as one, and when case or
    punctuation tell apart."""
    train = [("A dog.", "Ein Hund."), ("Two cats.", "Zwei Katzen."), ("...", "-")]
    held_out = [
        ("a  dog", "EIN HUND"),
        ("a dog", "Ein Hund!"),
        ("A dog", "Zwei Katzen"),
        ("Two cats", "Zwei Kater"),
        ("", "?"),
    ]
    assert count_overlap(iter(train), held_out) == Overlap(
        total=5, source=4, target=3, both=2
    )
    assert count_overlap([], held_out) == Overlap(5, 0, 0, 0)
    assert count_overlap(train, []) == Overlap(0, 0, 0, 0)


def test_the_miniature_test_set_is_new() -> None:
    """Fails when a sentence stands in two parts but for its punctuation."""
    corpus = miniature_corpus(2000, 100)
    assert count_overlap(corpus.train, corpus.test) == Overlap(100, 0, 0, 0)
    assert count_overlap(corpus.train, corpus.train[:50]) == Overlap(50, 50, 50, 50)


def test_a_batch_on_another_device() -> None:
    """Fails when one of its tensors stays behind."""
    moved = make_batch(LADDER[:2]).to("meta")
    assert (
        moved.source.is_meta
        and moved.target_input.is_meta
        and moved.target_output.is_meta
    )


def test_pairs_with_an_empty_side_are_left_out(subwords: Subwords) -> None:
    """Fails when they are kept: a source of the end token alone says nothing."""
    [(source, target)] = encode_pairs(
        [("", "Der Hund"), ("The dog", " "), ("The dog", "Der Hund")], subwords
    )
    assert (subwords.decode(source), subwords.decode(target)) == ("The dog", "Der Hund")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make_batch([]), "no pairs .* expected at least one"),
        (lambda: next(token_batches([], 100)), "no pairs .* expected at least one"),
        (
            lambda: token_batches([([4], [4])], 10, rank=1),
            "rank 1 of world_size 1: expected a rank",
        ),
        (
            lambda: next(token_batches([([4], [4] * 10)], 10)),
            "a pair of 11 tokens.*max_tokens 10: leave it out .* or raise max_tokens",
        ),
    ],
)
def test_batches_that_cannot_be_made_are_named(
    call: Callable[[], object], message: str
) -> None:
    """Fails, for each row of the table, when its check is taken out."""
    with pytest.raises(ValueError, match=message):
        call()
