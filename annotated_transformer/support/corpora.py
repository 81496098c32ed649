"""The corpora of the book: where they come from, how their files are read, and what
stands in for them offline."""

import gzip
import os
import random
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

from .miniature import Pair, miniature_sentence


@dataclass(frozen=True)
class Corpus:
    """Sentence pairs, source first, in three parts for three purposes: train,
    validation and test (section 5.1)."""

    name: str
    languages: tuple[str, str]
    train: list[Pair]
    validation: list[Pair]
    test: list[Pair]
    """A source on several lines has several references."""


class CorpusUnavailable(RuntimeError):
    """A corpus that could not be read or downloaded; the message says why, and the way
    out."""


MULTI30K = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/"
MULTI30K_SHA256 = {
    "train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "train.de.gz": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    "train.fr.gz": "622e75069e9f4c577425c4f277116ce66e63a2401c0a2312d90073cb12379a3c",
    "val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
    "val.de.gz": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    "val.fr.gz": "ca3106f1a72390591d25f6c45cb4cd39dec4cd3f123e099748a3ce5256c160e9",
    "test_2016_flickr.en.gz": (
        "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9"
    ),
    "test_2016_flickr.de.gz": (
        "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8"
    ),
    "test_2016_flickr.fr.gz": (
        "6d326e188d259fb1d04ac19eae3af956559b3a0b93d7635e56c90987c40c8b90"
    ),
    "test_2017_flickr.en.gz": (
        "76a444ee25172e72695cddb13ae4a3bda59430617be88e0bb46b60504f054074"
    ),
    "test_2017_flickr.de.gz": (
        "a2c89666db00c495cd8513b9d708d5a3acc205d7de312ef2bf5fb7ebc1540aee"
    ),
    "test_2017_flickr.fr.gz": (
        "3ba671ceb2299f3304ffafefea7a833d08632fbaf0ba18546f8a2ec2391af496"
    ),
    "test_2017_mscoco.en.gz": (
        "aab300bfb4427697987e02cd0aacd44bfe8aa50456231b6474c08038bbed2b58"
    ),
    "test_2017_mscoco.de.gz": (
        "799e4854c25d601cb6cb6be29eabe5667734c61ace2f495e03e429031a0bc338"
    ),
    "test_2017_mscoco.fr.gz": (
        "754f3072ba9f124569ba5258b32730fc1d214bbf8e0c6dfb2b74401676220db0"
    ),
}
LATER_TESTS = ("test_2017_flickr", "test_2017_mscoco")
"""The test sets of Multi30k that came after ``test_2016_flickr``."""
TREEBANK = "https://raw.githubusercontent.com/nltk/nltk_data/gh-pages/packages/corpora/"
TREEBANK_SHA256 = {
    "treebank.zip": "9da92d76c3666cfb6cddeaed0f7e86b344cce0f0928a286d439e555f19c37399"
}
TATOEBA = "https://raw.githubusercontent.com/"
TATOEBA_SHA256 = {
    "deu-eng.zip": "b7688f84f99fa33c17397c14d8bd9cef1fdeb2ee0bf50074767023aee8926e28",
    "vie-eng.zip": "a5021312e128d7ad42489b313624ab0b4f1616eafe5c40b48d83f155242c8994",
}
TATOEBA_FOLDERS = {  # copies of the archives that manythings.org/anki had in 2018, 2024
    "deu-eng.zip": "rioyshky/translation/de48b7027f7318d77010a6e08ed928c10748c23d/",
    "vie-eng.zip": (
        "chimsedibui/Machine-Translation2/6e5030b9910c5b1fcd1fb2c863b36d8b33debdfe/"
    ),
}


@dataclass(frozen=True)
class Download:
    """A public folder on the web, and the SHA-256 of each of its files that we know, by
    name."""

    address: str
    sha256: dict[str, str]
    folders: dict[str, str] = field(default_factory=dict)
    """Of files that lie deeper."""

    def url(self, name: str) -> str:
        """The address of a file."""
        return f"{self.address}{self.folders.get(name, '')}{name}"


CORPORA = {
    "multi30k": Download(MULTI30K, MULTI30K_SHA256),
    "tatoeba": Download(TATOEBA, TATOEBA_SHA256, TATOEBA_FOLDERS),
    "treebank": Download(TREEBANK, TREEBANK_SHA256),
}


def fetch_file(corpus: str, name: str) -> Path:
    """The path of one file of ``CORPORA``, from the data folder or downloaded into a
    cache.

    ``ANNOTATED_TRANSFORMER_DATA`` names a folder that holds a folder for each corpus;
    nothing is downloaded then. Raises CorpusUnavailable where the file is missing,
    damaged, or cannot be downloaded or stored, ValueError for another corpus or name.
    """
    import pooch  # here, because translate needs no corpus and starts sooner

    if corpus not in CORPORA:
        raise ValueError(
            f"{corpus!r} is no corpus that we know: expected one of "
            f"{', '.join(CORPORA)}"
        )
    download = CORPORA[corpus]
    address, sha256 = download.address, download.sha256
    if name not in sha256:
        raise ValueError(
            f"{name!r} is no file of {corpus} that we know: expected one of "
            f"{', '.join(sha256)}"
        )
    way_out = (
        "check the network and the free space, or put the files into "
        f"$ANNOTATED_TRANSFORMER_DATA/{corpus}"
    )
    if data_folder := os.environ.get("ANNOTATED_TRANSFORMER_DATA"):
        path = Path(data_folder) / corpus / name
        if not path.is_file():
            raise CorpusUnavailable(
                f"{path} is not there: ANNOTATED_TRANSFORMER_DATA names the folder; "
                f"{way_out}"
            )
        if pooch.file_hash(str(path)) != sha256[name]:
            raise CorpusUnavailable(
                f"{path} is damaged or of another version: its SHA-256 is not "
                f"{sha256[name]}"
            )
        return path
    cache = pooch.os_cache("annotated-transformer") / corpus
    try:
        urls = {each: download.url(each) for each in sha256}
        store = pooch.create(
            cache, address, registry=sha256, urls=urls, retry_if_failed=2
        )
        return Path(store.fetch(name, progressbar=True))
    except (OSError, ValueError) as error:
        # no network, no space, no permission; or a wrong checksum
        raise CorpusUnavailable(
            f"{download.url(name)} could not be stored in {cache}: {error}; {way_out}"
        ) from error


def read_lines(path: Path | str) -> Iterator[str]:
    """The lines of a plain-text or ``.gz`` file in UTF-8, one at a time, without the
    white space at both ends.

    A line ends at a line feed, with or without a carriage return before it (CRLF), and
    at no other character; a byte order mark in front is dropped. Raises OSError where
    the file cannot be opened, ValueError with the number of the line where it is not
    UTF-8 or the compressed file breaks off.
    """
    path, number = Path(path), 0
    with gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb") as file:
        try:
            for number, line in enumerate(file, start=1):
                yield line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
        except UnicodeDecodeError as error:
            byte = error.object[error.start]
            raise ValueError(
                f"{path}, line {number:,}, is not UTF-8 (byte {byte:#04x}): convert "
                "the file"
            ) from error
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(
                f"{path} is damaged after line {number:,}: {error}; fetch it again"
            ) from error


@dataclass(frozen=True)
class ParallelFiles:
    """The sentence pairs of two files, plain text or ``.gz``, read anew and line by
    line each time they are asked for.

    One pair at a time is held in memory. Raises FileNotFoundError when made, where a
    file is missing. While reading, it raises ValueError where the files differ in their
    number of lines, and what ``read_lines`` raises.
    """

    source: Path | str
    target: Path | str

    def __post_init__(self) -> None:
        for path in (self.source, self.target):
            if not Path(path).is_file():
                raise FileNotFoundError(
                    f"{path} is not there, or no file: expected two text files, a "
                    "sentence a line"
                )

    def __iter__(self) -> Iterator[Pair]:
        sides = read_lines(self.source), read_lines(self.target)
        for number, pair in enumerate(zip_longest(*sides)):
            if None in pair:  # one side has ended; count what is left of the other
                counts = [
                    number + (line is not None) + sum(1 for _ in side)
                    for line, side in zip(pair, sides, strict=True)
                ]
                raise ValueError(
                    f"{self.source} has {counts[0]:,} lines and {self.target} has "
                    f"{counts[1]:,}: expected as many, "
                    "each the translation of the other"
                )
            yield pair

    def count_pairs(self) -> int:
        """The number of pairs.

        It reads both files to the end, so whatever is wrong with them comes out here.
        """
        return sum(1 for _ in self)


def fetch_multi30k(name: str) -> Path:
    """The path of one Multi30k file, say ``train.en.gz``; otherwise as
    ``fetch_file``."""
    return fetch_file("multi30k", name)


def fetch_treebank() -> Path:
    """The path of ``treebank.zip``, the Penn Treebank sample of NLTK (section 6.3);
    otherwise as ``fetch_file``."""
    return fetch_file("treebank", "treebank.zip")


def read_multi30k(part: str, source: str = "en", target: str = "de") -> list[Pair]:
    """One part of Multi30k: "train", "val", "test_2016_flickr" or one of
    ``LATER_TESTS``; otherwise as ``load_multi30k``."""
    for language in (source, target):
        if language not in ("en", "de", "fr"):
            raise ValueError(
                f"language {language!r} is not in Multi30k: expected 'en', 'de' or 'fr'"
            )
    sides = (fetch_multi30k(f"{part}.{language}.gz") for language in (source, target))
    return list(ParallelFiles(*sides))


def load_multi30k(source: str = "en", target: str = "de") -> Corpus:
    """Multi30k, by Elliott et al., 29,000 pairs to train on: English and German from
    2016, French from 2017. The test set is test_2016_flickr.

    Raises CorpusUnavailable where the files cannot be had, ValueError for other
    languages.
    """
    train, validation, test = (
        read_multi30k(part, source, target)
        for part in ("train", "val", "test_2016_flickr")
    )
    return Corpus("Multi30k", (source, target), train, validation, test)


TATOEBA_FILES = {
    "de": ("deu-eng.zip", "deu.txt", 100),
    "vi": ("vie-eng.zip", "vie.txt", 20),
}
"""By language: the archive, the file in it, and the ``share`` of ``split_by_group``."""


def load_tatoeba(source: str = "en", target: str = "de") -> Corpus:
    """Everyday sentences by the volunteers of tatoeba.org, under CC BY 2.0: English and
    German, 166,425 pairs to train on, or English and Vietnamese, 8,491 pairs.

    No sentence of one part, in either language, stands in another. Raises
    CorpusUnavailable where the file cannot be had, ValueError for other languages.
    """
    other = target if source == "en" else source
    if "en" not in (source, target) or other not in TATOEBA_FILES:
        raise ValueError(
            f"Tatoeba from {source!r} to {target!r} is not known here: expected "
            f"English ('en') and one of {', '.join(TATOEBA_FILES)}"
        )
    from .tatoeba import read_zip, split_by_group  # stands on chapter 9, which on this

    archive, member, share = TATOEBA_FILES[other]
    parts = split_by_group(read_zip(fetch_file("tatoeba", archive), member), share)
    if target == "en":
        parts = [[pair[::-1] for pair in part] for part in parts]
    return Corpus("Tatoeba", (source, target), *parts)


def miniature_corpus(pairs: int = 8000, held_out: int = 200, seed: int = 0) -> Corpus:
    """``pairs`` different pairs of a small English-German grammar, and ``held_out``
    more each to validate and test.

    No sentence stands in two parts. The same seed makes the same corpus.
    """
    rng, sentences = random.Random(seed), {}
    while len(sentences) < pairs + 2 * held_out:
        sentences.setdefault(*miniature_sentence(rng))
    everything = list(sentences.items())
    train, rest = everything[:pairs], everything[pairs:]
    return Corpus("miniature", ("en", "de"), train, rest[:held_out], rest[held_out:])


def load_corpus() -> Corpus:
    """Multi30k, English to German, or the miniature corpus where it cannot be had; a
    printed line says which.

    To get Multi30k, run once with a network: the files are then kept in a cache. Or put
    them into a folder ``multi30k`` and name the folder above it by
    ``ANNOTATED_TRANSFORMER_DATA``. ``load_multi30k()`` raises the reason why it cannot
    be had.
    """
    try:
        corpus = load_multi30k()
    except CorpusUnavailable:
        corpus = miniature_corpus()
        print("Multi30k is not at hand, so this is the miniature corpus.")
    else:
        print(f"Multi30k: {len(corpus.train):,} sentence pairs to train on.")
    return corpus
