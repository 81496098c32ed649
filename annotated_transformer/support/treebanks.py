"""Parse trees for chapter 16: their notation, the usual normalization, a public sample
of the Penn Treebank, and a treebank that a grammar of ours makes.

This module imports no chapter. No function that takes a tree calls itself once per
level, so that a tree may be thousands of nodes deep.
"""

import random
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .corpora import CorpusUnavailable, fetch_treebank

TOP = "TOP"
"""The label of the root: every tree has it, and no score counts it."""


def escape_brackets(word: str) -> str:
    """A word as treebanks write it: ``(`` becomes ``-LRB-``, ``)`` becomes ``-RRB-``,
    for left and right round bracket."""
    return word.replace("(", "-LRB-").replace(")", "-RRB-")


def check_symbol(symbol: str) -> None:
    """Raise ValueError for a label or word that would break the notation: empty, or
    with a space or a parenthesis."""
    if not symbol or re.search(r"[\s()]", symbol):
        raise ValueError(
            f"{symbol!r} cannot stand in a tree: expected text without spaces and "
            "parentheses; escape_brackets writes those as -LRB- and -RRB-"
        )


@dataclass(frozen=True, eq=False, repr=False)
class Tree:
    """A node of a parse tree (section 6.3), immutable.

    A constituent has other nodes as its children; a preterminal has a part of speech as
    its label and one word as its only child. ``str`` writes the notation of the Penn
    Treebank, and two trees are equal when they are written the same. Raises ValueError
    for no children, for a word beside other children, and for a label or word that
    ``check_symbol`` refuses.
    """

    label: str
    children: tuple["Tree | str", ...]

    def __post_init__(self) -> None:
        words = [child for child in self.children if isinstance(child, str)]
        for symbol in [self.label, *words]:
            check_symbol(symbol)
        if not self.children or (words and len(self.children) > 1):
            raise ValueError(
                f"{self.label} has the children {self.children}: expected one word, or "
                "other nodes alone"
            )

    @property
    def is_preterminal(self) -> bool:
        """Whether this is a part of speech, with one word below it."""
        return isinstance(self.children[0], str)

    def __str__(self) -> str:
        forms = {
            "open": " ({0.label}",
            "tag": " ({0.label} {0.children[0]})",
            "close": ")",
        }
        return "".join(forms[kind].format(node) for kind, node in walk(self)).strip()

    def __repr__(self) -> str:
        return f"Tree({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tree) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


def walk(tree: Tree) -> Iterator[tuple[str, Tree]]:
    """What a reader of the tree meets, left to right: ``("open", constituent)``,
    ``("tag", preterminal)`` and ``("close", constituent)``."""
    stack = [("open", tree)]
    while stack:
        kind, node = stack.pop()
        if kind == "open" and node.is_preterminal:
            kind = "tag"
        elif kind == "open":
            stack.append(("close", node))
            stack += [("open", child) for child in reversed(node.children)]
        yield kind, node


def preterminals(tree: Tree) -> list[Tree]:
    """The nodes with one word below them, left to right: tags and words."""
    return [node for kind, node in walk(tree) if kind == "tag"]


def leaves(tree: Tree) -> list[str]:
    """The words of a tree, left to right: the sentence."""
    return [node.children[0] for node in preterminals(tree)]


def read_trees(text: str) -> list[Tree]:
    """The trees that ``text`` holds in the notation of the Penn Treebank; a bracket
    without a label becomes ``TOP``.

    Raises ValueError where brackets are not paired, where a word stands outside of
    them, and as ``Tree`` does.
    """
    stack: list[list[Tree | str]] = [[]]
    for token in re.findall(r"[()]|[^\s()]+", text):
        if token == "(":
            stack.append([])
        elif token == ")" and len(stack) > 1:
            parts = stack.pop()
            label = parts.pop(0) if parts and isinstance(parts[0], str) else TOP
            stack[-1].append(Tree(label, tuple(parts)))
        elif token == ")" or len(stack) == 1:
            raise ValueError(
                f"{token!r} stands outside of every tree: expected '('; count the "
                "brackets before it"
            )
        else:
            stack[-1].append(token)
    if len(stack) > 1:
        raise ValueError(
            f"the text ends with {len(stack) - 1} brackets open: expected ')'; is the "
            "file cut off?"
        )
    return stack[0]


def plain_label(label: str) -> str:
    """A label without its functions and indices: ``NP-SBJ-1`` becomes ``NP``, ``-LRB-``
    stays."""
    return label if label.startswith("-") else re.split("[-=|]", label, maxsplit=1)[0]


def normalize(tree: Tree) -> Tree | None:
    """The tree without function tags, without traces (``-NONE-``) and without the
    constituents that they leave empty.

    None where nothing is left, because the sentence held nothing but traces.
    """
    kept: list[list[Tree]] = [[]]
    for kind, node in walk(tree):
        if kind == "open":
            kept.append([])
        elif kind == "tag":
            if node.label != "-NONE-":
                kept[-1].append(Tree(plain_label(node.label), node.children))
        elif children := kept.pop():
            kept[-1].append(Tree(plain_label(node.label), tuple(children)))
    return kept[0][0] if kept[0] else None


# What chapter 16 asks of its inputs ---------------------------------------------------


def check_root(tree: Tree) -> None:
    """Raise ValueError unless ``tree`` is a constituent ``TOP``."""
    if tree.label != TOP or tree.is_preterminal:
        raise ValueError(
            f"the root is {tree.label}, expected a constituent {TOP}: read_trees gives "
            "it to '( (S ...) )'"
        )


def check_sentences(sentences: Sequence[Sequence[Any]]) -> None:
    """Raise ValueError for a sentence of no words: it has no tree."""
    for number, sentence in enumerate(sentences):
        if not sentence:
            raise ValueError(
                f"sentence {number} has no words: expected at least one; leave it out"
            )


def check_no_repairs(repairs: Counter[str], words: int) -> None:
    """Raise ValueError where a line of brackets over ``words`` words needed repairs."""
    if repairs:
        found = ", ".join(f"{count} {kind}" for kind, count in repairs.items())
        raise ValueError(
            f"these brackets are no tree over {words} words ({found}): expected none; "
            "repair fixes them"
        )


def check_comparable(gold: Sequence[Tree], predicted: Sequence[Tree]) -> None:
    """Raise ValueError where there is nothing to score, the numbers of trees differ, or
    a pair has different words."""
    if not gold or len(gold) != len(predicted):
        raise ValueError(
            f"{len(gold)} gold trees and {len(predicted)} predicted: expected as many, "
            "and at least one"
        )
    for number, (right, guess) in enumerate(zip(gold, predicted, strict=True)):
        if leaves(right) != leaves(guess):
            raise ValueError(
                f"tree {number} has other words than the gold tree: expected the same; "
                "repair keeps them"
            )


# Treebanks ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Treebank:
    """Normalized trees in three parts with three purposes: train, validation and test
    (section 6.3)."""

    name: str
    train: list[Tree]
    validation: list[Tree]
    test: list[Tree]

    @property
    def trees(self) -> list[Tree]:
        """All trees of the three parts."""
        return self.train + self.validation + self.test


def load_penn_sample() -> Treebank:
    """The Penn Treebank sample of NLTK, normalized (section 6.3).

    Files 1 to 169 are to train on, 170 to 184 to validate, 185 to 199 to test; empty
    sentences are left out. Raises CorpusUnavailable where the file cannot be had.
    """
    parts: tuple[list[Tree], ...] = ([], [], [])
    with zipfile.ZipFile(fetch_treebank()) as archive:
        for name in sorted(n for n in archive.namelist() if n.endswith(".mrg")):
            number = int(re.findall(r"\d+", name)[-1])
            trees = map(normalize, read_trees(archive.read(name).decode("utf-8")))
            part = parts[(number > 169) + (number > 184)]
            part.extend(tree for tree in trees if tree)
    return Treebank("Penn Treebank sample", *parts)


GRAMMAR = {
    "TOP": ["S"],
    "S": [
        "NP-SBJ VP .",
        "NP-SBJ VP .",
        "PP-LOC , NP-SBJ VP .",
        "ADVP-TMP , NP-SBJ VP .",
    ],
    "S-SUB": ["NP-SBJ VP"],
    "NP-SBJ": ["DT NN", "DT JJ NN", "NP-HEAD PP-PART", "NNP", "NP SBAR-REL", "NP PRN"],
    "NP": ["DT NN", "DT JJ NN", "NP-HEAD PP-PART", "NNP"],
    "NP-HEAD": ["DT NN", "DT JJ NN"],
    "PRN": ["-LRB- NP-HEAD -RRB-"],
    "SBAR-REL": ["WHNP-1 S-REL"],
    "WHNP-1": ["WDT"],
    "S-REL": ["NP-SBJ-1 VP-ONE"],
    "NP-SBJ-1": ["-NONE-"],
    "VP": [
        "VBD NP",
        "VBD NP PP-TOOL",
        "VBD-GO PP-LOC",
        "VP-ONE CC VP-ONE",
        "VBD-SAY SBAR-THAT",
    ],
    "VP-ONE": ["VBD NP", "VBD NP PP-TOOL", "VBD-GO", "VBD-GO PP-LOC"],
    "SBAR-THAT": ["IN-THAT S-SUB"],
    "PP-PART": ["IN-WITH NP-PART"],
    "NP-PART": ["DT NN-PART", "DT JJ NN-PART"],
    "PP-TOOL": ["IN-WITH NP-TOOL"],
    "NP-TOOL": ["DT NN-TOOL"],
    "PP-LOC": ["IN-LOC NP-LOC"],
    "NP-LOC": ["DT NN-LOC"],
    "ADVP-TMP": ["RB"],
}
"""What each label may expand to; each of its lines is as likely as the others."""

LEXICON = {
    "DT": "the a every no",
    "JJ": "old small young quiet clever wild",
    "CC": "and but",
    "RB": "today here later",
    "NN": "man woman child dog cat horse teacher goat bird fox",
    "NN-PART": "tail hat beard coat scarf crown",
    "NN-TOOL": "net camera rope hook ladder lamp",
    "NN-LOC": "garden barn forest river village",
    "NNP": "Ada Noam Grace Alan",
    "VBD": "saw found heard followed caught painted",
    "VBD-SAY": "said thought knew",
    "VBD-GO": "slept waited sang left",
    "IN-WITH": "with",
    "IN-LOC": "in near behind",
    "IN-THAT": "that",
    "WDT": "that",
    "-NONE-": "*T*-1",
    "-LRB-": "-LRB-",
    "-RRB-": "-RRB-",
    ",": ",",
    ".": ".",
}
"""The words that each tag may have."""


def grow(label: str, rng: random.Random) -> Tree:
    """A random tree of the grammar below ``label``, with function tags and traces still
    in it."""
    if label in LEXICON:
        return Tree(label, (rng.choice(LEXICON[label].split()),))
    parts = rng.choice(GRAMMAR[label]).split()
    return Tree(label, tuple(grow(part, rng) for part in parts))


def generated_treebank(
    trees: int = 2000, held_out: int = 60, seed: int = 0
) -> Treebank:
    """``trees`` normalized trees of the grammar to train on, and ``held_out`` more each
    to validate and test.

    No sentence comes twice. The same seed makes the same treebank.
    """
    rng, found = random.Random(seed), {}
    while len(found) < trees + 2 * held_out:
        tree = normalize(grow(TOP, rng))
        found.setdefault(" ".join(leaves(tree)), tree)
    everything = list(found.values())
    train, rest = everything[:trees], everything[trees:]
    return Treebank("generated treebank", train, rest[:held_out], rest[held_out:])


def load_treebank() -> Treebank:
    """The Penn Treebank sample, or the generated treebank where it cannot be had; a
    printed line says which."""
    try:
        treebank = load_penn_sample()
    except CorpusUnavailable:
        treebank = generated_treebank()
        print("The Penn Treebank sample is not at hand: this is the generated one.")
    else:
        print(f"{treebank.name}: {len(treebank.train):,} trees to train on.")
    return treebank


OWN_TREES = """
( (S (NP (DT The) (NN company)) (VP (VBD said) (SBAR (S (NP (NNS profits)) (VP
  (VBD rose) (NP (CD 12) (NN %)) (NP (JJ last) (NN year)))))) (. .)) )
( (S (NP (NP (NNS Investors)) (SBAR (WHNP (WP who)) (S (VP (VBD bought) (NP (DT the)
  (NN stock)))))) (VP (VBP have) (VP (VBN lost) (NP (NN money)))) (. .)) )
( (S (NP (PRP She)) (VP (VBD saw) (NP (DT the) (NN man)) (PP (IN with) (NP (DT the)
  (NN telescope)))) (. .)) )
( (S (NP (NP (NNP Ms.) (NNP Lovelace)) (, ,) (NP (NP (DT the) (NN chairman)) (PP
  (IN of) (NP (DT the) (NN bank)))) (, ,)) (VP (VBD resigned)) (. .)) )
( (S (NP (NNS Prices)) (VP (VBD fell) (PRN (-LRB- -LRB-) (ADVP (RB slightly))
  (-RRB- -RRB-))) (. .)) )
"""
"""Five sentences of our own with gold trees of our own, in the style of the Penn
Treebank."""
