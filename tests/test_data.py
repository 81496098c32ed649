"""Chapter 9: the corpora, their download and the batches."""

import errno
import gzip
import hashlib
import os
import random
import threading
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
    CorpusUnavailable,
    encode_pairs,
    fetch_multi30k,
    load_corpus,
    load_multi30k,
    make_batch,
    miniature_corpus,
    token_batches,
)
from annotated_transformer.subwords import BOS_ID, EOS_ID, PAD_ID, Subwords

NAME = "train.en.gz"
LINES = {"en": ["A dog\u2028runs.", "Two cats."], "de": ["Ein Hund\u2028läuft.", "Zwei Katzen."]}

# The miniature corpus ------------------------------------------------------------------------------------------------


def test_the_same_seed_makes_the_same_miniature_corpus() -> None:
    """Fails when the generator is left without its seed, and when the seed is ignored."""
    assert miniature_corpus(50, 5, seed=1) == miniature_corpus(50, 5, seed=1)
    assert miniature_corpus(50, 5, seed=1).train != miniature_corpus(50, 5, seed=2).train


def test_no_sentence_stands_in_two_parts() -> None:
    """Fails when the parts overlap by a pair, and when a sentence may come twice."""
    corpus = miniature_corpus(4000, 200)
    assert [len(part) for part in (corpus.train, corpus.validation, corpus.test)] == [4000, 200, 200]
    english = [pair[0] for part in (corpus.train, corpus.validation, corpus.test) for pair in part]
    assert len(set(english)) == len(english)


def test_german_verbs_stand_where_german_wants_them() -> None:
    """Fails when a subordinate clause keeps the English order."""
    finite, infinitives = {verb[3] for verb in data.VERBS}, {verb[2] for verb in data.VERBS}
    seen = Counter()
    for english, german in miniature_corpus(300, 0).train:
        words = german.rstrip(".").split()
        if " that " in english:
            seen["subordinate"] += words[-1] in finite and ", dass " in german
        elif " can " in english:
            seen["modal"] += words[-1] in infinitives and "kann" in words
        elif english.split()[0].lower() in dict(data.ADVERBS):
            seen["inverted"] += words[1] in finite
        else:
            seen["plain"] += words[0].lower() in {"der", "die", "das", "ein", "eine"} and words[-1] not in finite
    assert seen.total() == 300 and len(seen) == 4


def test_articles_and_endings_agree() -> None:
    """Case, gender and article of every phrase. Fails when "the" takes the endings of "a"."""
    rng, genders = random.Random(0), {german: gender for _, german, gender in data.NOUNS}
    endings = Counter()
    for _ in range(300):
        article, *adjective, noun = data.noun_phrase(rng, "accusative")[1].split()
        definite, indefinite, strong = data.ARTICLES["accusative"][genders[noun]]
        assert article in (definite, indefinite)
        weak = "en" if genders[noun] == "m" else "e"
        for word in adjective:
            ending = weak if article == definite else strong
            assert word in {stem + ending for _, stem in data.ADJECTIVES}
            endings[article, ending] += 1
    assert len(endings) == 6


# Multi30k ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with a Multi30k of two pairs a part; the package takes its checksums for the right ones."""
    folder, checksums = tmp_path / "data" / "multi30k", {}
    folder.mkdir(parents=True)
    for part in ("train", "val", "test_2016_flickr"):
        for language, lines in LINES.items():
            body = gzip.compress("".join(f"{line}\n" for line in lines).encode())
            (folder / f"{part}.{language}.gz").write_bytes(body)
            checksums[f"{part}.{language}.gz"] = hashlib.sha256(body).hexdigest()
    monkeypatch.setattr(data, "MULTI30K_SHA256", checksums)
    monkeypatch.setenv("ANNOTATED_TRANSFORMER_DATA", str(folder.parent))
    return folder


def test_pairs_are_read_line_by_line(files: Path) -> None:
    """Fails when lines are split at every Unicode separator, and when source and target are swapped."""
    corpus = load_multi30k("de", "en")
    assert corpus.train == corpus.validation == corpus.test == list(zip(LINES["de"], LINES["en"], strict=True))
    assert corpus.languages == ("de", "en")


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda path: path.unlink(), "is not there: ANNOTATED_TRANSFORMER_DATA names the folder"),
        (lambda path: path.write_bytes(path.read_bytes()[:-9]), "is damaged or of another version.*SHA-256 is not"),
        (lambda path: path.write_bytes(gzip.compress(b"Other text.")), "is damaged or of another version"),
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
    """Fails when the reason is swallowed, and when the loader pretends."""
    assert load_corpus().name == "Multi30k" and "2 sentence pairs" in capsys.readouterr().out
    (files / NAME).unlink()
    assert load_corpus().name == "miniature"
    [line] = capsys.readouterr().out.splitlines()
    assert "Multi30k is not at hand" in line and str(files / NAME) in line


def test_other_languages_are_named() -> None:
    """Fails when the check is taken out."""
    with pytest.raises(ValueError, match="language 'it' is not in Multi30k: expected 'en', 'de' or 'fr'"):
        load_multi30k("en", "it")


@pytest.mark.skipif(
    not (Path(os.environ.get("ANNOTATED_TRANSFORMER_DATA", "")) / "multi30k" / NAME).is_file(),
    reason="ANNOTATED_TRANSFORMER_DATA names no folder with Multi30k: its real pairs and checksums are not looked at",
)
@pytest.mark.parametrize("target", ["de", "fr"])
def test_the_real_multi30k(target: str) -> None:
    """Fails when a checksum in the package is wrong."""
    corpus = load_multi30k("en", target)
    assert len(corpus.train) == 29_000 and len(corpus.validation) > 1000 and len(corpus.test) == 1000
    assert all(source and target for part in (corpus.train, corpus.validation, corpus.test) for source, target in part)


# The download --------------------------------------------------------------------------------------------------------


@dataclass
class Mirror:
    """A web server of one file, what it answers, and the cache that the file goes to."""

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
def mirror(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    """A mirror of the small Multi30k on this machine, an empty cache, and no waiting between tries."""
    mirror = Mirror((files / NAME).read_bytes(), tmp_path / "cache")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            mirror.requests += 1
            status, body = mirror.answers.pop(0) if mirror.answers else (200, mirror.body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(mirror.body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    mirror.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=mirror.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    monkeypatch.setattr(data, "MULTI30K", f"http://127.0.0.1:{mirror.server.server_port}/")
    monkeypatch.setattr(data.pooch, "os_cache", lambda project: mirror.cache / project)
    monkeypatch.setattr("pooch.core.time.sleep", lambda seconds: None)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("ANNOTATED_TRANSFORMER_DATA")
    yield mirror
    mirror.stop()


def test_a_download_is_kept(mirror: Mirror) -> None:
    """Fails when every call downloads again, and when anything else stays in the cache."""
    path = fetch_multi30k(NAME)
    assert path.read_bytes() == mirror.body
    mirror.stop()
    assert fetch_multi30k(NAME) == path and mirror.requests == 1 and mirror.listing() == [NAME]


def test_a_broken_download_is_tried_again(mirror: Mirror) -> None:
    """Truncated, then another text, then right. Fails without retries."""
    mirror.answers = [(200, mirror.body[:10]), (200, bytes(len(mirror.body)))]
    assert fetch_multi30k(NAME).read_bytes() == mirror.body
    assert mirror.requests == 3 and mirror.listing() == [NAME]


def test_a_damaged_file_in_the_cache_is_replaced(mirror: Mirror) -> None:
    """Fails when the checksum of a file in the cache is not compared."""
    path = fetch_multi30k(NAME)
    path.write_bytes(mirror.body[:10])
    assert fetch_multi30k(NAME).read_bytes() == mirror.body and mirror.listing() == [NAME]


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
    """Fails when the file is written in place, without a checksum, and when another error is raised."""
    mirror.answers = [answer(mirror.body) for _ in range(3)]
    with pytest.raises(CorpusUnavailable, match=reason) as caught:
        fetch_multi30k(NAME)
    for part in (data.MULTI30K + NAME, str(mirror.cache), "check the network", "$ANNOTATED_TRANSFORMER_DATA/multi30k"):
        assert part in str(caught.value)
    assert mirror.requests == 3 and mirror.listing() == []


def test_no_network(mirror: Mirror) -> None:
    """Fails when the error of the connection is let through."""
    mirror.stop()
    with pytest.raises(CorpusUnavailable, match=f"{NAME} could not be stored.*Connection refused.*check the network"):
        fetch_multi30k(NAME)
    assert mirror.listing() == []


def test_no_disk_space(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full half-way. Fails when OSError is let through."""

    def fill_the_disk(url: str, path: str, pooch: object) -> None:
        Path(path).write_bytes(mirror.body[:10])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    monkeypatch.setattr("pooch.core.choose_downloader", lambda *args, **kwargs: fill_the_disk)
    with pytest.raises(CorpusUnavailable, match=f"{NAME} could not be stored.*{os.strerror(errno.ENOSPC)}.*free space"):
        fetch_multi30k(NAME)
    assert mirror.listing() == []


def test_a_cache_that_cannot_be_made(mirror: Mirror) -> None:
    """A file is in the way. Fails when the folder is made outside the guarded part."""
    mirror.cache.write_text("in the way")
    with pytest.raises(CorpusUnavailable, match=f"could not be stored in {mirror.cache}"):
        fetch_multi30k(NAME)
    assert mirror.cache.read_text() == "in the way" and mirror.requests == 0


# Batches -------------------------------------------------------------------------------------------------------------


def content(batch: Batch) -> list[tuple[tuple[int, ...], ...]]:
    """The encoded pairs that a batch was made of."""
    rows = zip(batch.source.tolist(), batch.target_output.tolist(), strict=True)
    return [tuple(tuple(token for token in row if token not in (PAD_ID, EOS_ID)) for row in pair) for pair in rows]


@given(pairs=pairs)
def test_a_batch_holds_the_pairs_and_the_shift_by_one(pairs: list) -> None:
    """Fails when the target is not shifted, when the end token is missing, and when padding stands in front."""
    batch = make_batch(pairs)
    for i, (source, target) in enumerate(pairs):
        rows = [side[i].tolist() for side in (batch.source, batch.target_input, batch.target_output)]
        for row, expected in zip(rows, ([*source, EOS_ID], [BOS_ID, *target], [*target, EOS_ID]), strict=True):
            assert row == expected + [PAD_ID] * (len(row) - len(expected))
    assert batch.target_input.shape == batch.target_output.shape
    assert batch.source.size(1) == max(len(source) for source, _ in pairs) + 1
    assert batch.tokens == sum(len(target) + 1 for _, target in pairs)


many_pairs = st.lists(st.tuples(*2 * [st.lists(st.integers(4, 9), min_size=1, max_size=9)]), min_size=1, max_size=30)


@given(pairs=many_pairs, max_tokens=st.integers(10, 40), seed=st.integers(0, 3))
def test_each_epoch_holds_each_pair_once_within_the_budget(pairs: list, max_tokens: int, seed: int) -> None:
    """Fails when the last group is dropped, and when padding does not count."""
    batches = list(token_batches(pairs, max_tokens, seed, epochs=2))
    found = Counter(pair for batch in batches for pair in content(batch))
    assert found == Counter(2 * [(tuple(source), tuple(target)) for source, target in pairs])
    assert all(max(batch.source.numel(), batch.target_input.numel()) <= max_tokens for batch in batches)


LADDER = [([4] * n, [5] * n) for n in range(1, 40)]


def test_pairs_of_like_length_stand_together() -> None:
    """Fails when pairs are not sorted: then a third of a batch is padding."""
    batches = list(token_batches(LADDER, 100, epochs=1))
    padding = sum(int((batch.source == PAD_ID).sum()) for batch in batches)
    assert padding / sum(batch.source.numel() for batch in batches) < 0.15
    lengths = [batch.source.size(1) for batch in batches]
    assert lengths != sorted(lengths)  # short sentences do not always come first


def test_order_depends_on_seed_and_epoch_alone() -> None:
    """Fails when all epochs are alike, when the seed is ignored, and when the global generator is asked."""

    def orders(seed: int) -> list:
        random.seed()  # whatever the global generator says
        batches = [content(batch) for batch in token_batches(LADDER, 60, seed, epochs=2)]
        return [batches[: len(batches) // 2], batches[len(batches) // 2 :]]

    first, second = orders(seed=0)
    assert [first, second] == orders(seed=0)
    assert first != second and first != orders(seed=1)[0]


def test_batches_have_no_end_unless_asked() -> None:
    """Fails when ``epochs=None`` means one."""
    batches = token_batches(LADDER, 60)
    assert sum(batch.source.size(0) for batch, _ in zip(batches, range(100), strict=False)) > len(LADDER)


def test_a_batch_on_another_device() -> None:
    """Fails when one of its tensors stays behind."""
    moved = make_batch(LADDER[:2]).to("meta")
    assert moved.source.is_meta and moved.target_input.is_meta and moved.target_output.is_meta


def test_pairs_with_an_empty_side_are_left_out(subwords: Subwords) -> None:
    """Fails when they are kept: a source of the end token alone says nothing."""
    [(source, target)] = encode_pairs([("", "Der Hund"), ("The dog", " "), ("The dog", "Der Hund")], subwords)
    assert (subwords.decode(source), subwords.decode(target)) == ("The dog", "Der Hund")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make_batch([]), "a batch of no sentence pairs: expected at least one"),
        (lambda: next(token_batches([], 100)), "no pairs, expected at least one pair"),
        (lambda: next(token_batches([([4], [4] * 10)], 10)), "a pair of 11 tokens.*max_tokens 10: cut it or raise it"),
    ],
)
def test_batches_that_cannot_be_made_are_named(call: Callable[[], object], message: str) -> None:
    """Fails, for each row of the table, when its check is taken out."""
    with pytest.raises(ValueError, match=message):
        call()
