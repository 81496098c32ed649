"""Everyday sentences from Tatoeba, and how they are split without a leak.

The files are those that manythings.org/anki makes from tatoeba.org, under CC BY 2.0: a
line is an English sentence, a tab, its translation, and in newer files a tab and the
authors. A sentence with several translations stands on several lines.
"""

import hashlib
import unicodedata
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..data import _words
from .miniature import Pair

HELD_OUT_WORDS = range(4, 31)
"""English words of a held-out sentence: "Run!" tells nothing of a translator."""


def read_zip(path: Path, member: str) -> list[Pair]:
    """The pairs of the file ``member`` in an archive: in NFC, single spaces, each once.

    Raises ValueError where the archive lacks that file, or a line has no tab.
    """
    with zipfile.ZipFile(path) as archive:
        if member not in archive.namelist():
            raise ValueError(
                f"{path} holds no {member}: expected the archive of manythings.org/anki"
            )
        text = archive.read(member).decode("utf-8-sig")
    pairs: dict[Pair, None] = {}  # in order, each once
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        source, tab, rest = unicodedata.normalize("NFC", line).partition("\t")
        if not tab:
            raise ValueError(f"{member}, line {number:,}, has no tab: {line!r}")
        target = rest.partition("\t")[0]
        pairs[" ".join(source.split()), " ".join(target.split())] = None
    return list(pairs)


def group_translations(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """The pairs in groups: two pairs that share a sentence are in one group, and so is
    whatever shares a sentence with one of them.

    Sentences are the same where their words are, case and punctuation aside. So no
    sentence of one group stands in another, in either language.
    """
    parent: dict[tuple[str, int], tuple[str, int]] = {}

    def root(node: tuple[str, int]) -> tuple[str, int]:
        while (above := parent.setdefault(node, node)) != node:
            parent[node] = node = parent[above]  # halve the way for the next one
        return node

    nodes = [[(_words(text), side) for side, text in enumerate(pair)] for pair in pairs]
    for source, target in nodes:
        parent[root(target)] = root(source)
    groups = defaultdict(list)
    for pair, (source, _) in zip(pairs, nodes, strict=True):
        groups[root(source)].append(pair)
    return list(groups.values())


def split_by_group(
    pairs: Iterable[Pair], share: int
) -> tuple[list[Pair], list[Pair], list[Pair]]:
    """What to train on, to validate and to test: whole groups of translations.

    The SHA-256 of a group's first words in the alphabet decides where it goes: one of
    ``share`` groups to each of the last two. Of those, sentences with a number of words
    outside ``HELD_OUT_WORDS`` are dropped. The same pairs make the same split, in
    whatever order they come.
    """
    parts: dict[int, list[Pair]] = defaultdict(list)
    for group in group_translations(sorted(pairs)):
        name = min(_words(source) for source, _ in group)
        digest = hashlib.sha256(name.encode()).digest()
        parts[min(int.from_bytes(digest[:8]) % share, 2)] += group
    validation, test, train = (parts[i] for i in range(3))
    held_out = (
        [pair for pair in part if len(pair[0].split()) in HELD_OUT_WORDS]
        for part in (validation, test)
    )
    return train, *held_out
