"""Sentences of our own in which it is known which words belong together, for chapter
17: grammatical relations in English, and word alignments of English and German.

Both are put together from parts, so that what is known is known by construction. This
module imports no chapter.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from .miniature import Pair

# Grammatical relations in English captions --------------------------------------------

PEOPLE = "man woman boy girl dog child".split()
LOOKS = "young old tall small".split()
THINGS = "ball guitar stick book bag cup hat bike".split()
COLORS = "red blue black white large".split()
ACTIONS = "holding carrying throwing cleaning painting watching".split()
CLOTHES = "shirt jacket dress coat".split()
PLACES = {"park": "in", "street": "on", "beach": "on", "kitchen": "in", "field": "in"}


@dataclass(frozen=True)
class RelatedWords:
    """An English caption, and which of its words belong together."""

    words: list[str]
    """Without the period."""
    relations: list[tuple[str, int, int]]
    """The name of a relation, such as "object → verb", and the numbers of the two
    words."""

    @property
    def text(self) -> str:
        """The caption as text."""
        return " ".join(self.words).capitalize() + "."


def related_sentence(rng: random.Random) -> RelatedWords:
    """A caption of a person or animal who does something to a thing, with up to two
    adjectives before each noun, so that related words stand at several distances."""
    words: list[str] = []
    relations: list[tuple[str, int, int]] = []

    def relate(first: str, second: str, i: int, j: int) -> None:
        relations.append((f"{first} → {second}", i, j))
        relations.append((f"{second} → {first}", j, i))

    def add(word: str) -> int:
        words.append(word)
        return len(words) - 1

    def noun_phrase(article: str, adjectives: list[str], noun: str) -> int:
        first = add(article)
        described = [add(adjective) for adjective in adjectives]
        last = add(noun)
        relations.append(("article → noun", first, last))
        relations.extend(("adjective → noun", i, last) for i in described)
        return last

    def prepositional_phrase(preposition: str, article: str, noun: str) -> None:
        first = add(preposition)
        adjectives = rng.sample(COLORS, rng.randrange(3))
        relate("preposition", "noun", first, noun_phrase(article, adjectives, noun))

    looks = rng.sample(LOOKS, rng.randrange(3))
    subject = noun_phrase(rng.choice(["a", "the"]), looks, rng.choice(PEOPLE))
    if rng.random() < 0.5:
        prepositional_phrase("in", "a", rng.choice(CLOTHES))
    add("is")
    verb = add(rng.choice(ACTIONS))
    colors = rng.sample(COLORS, rng.randrange(3))
    thing = noun_phrase("a", colors, rng.choice(THINGS))
    relate("subject", "verb", subject, verb)
    relate("object", "verb", thing, verb)
    if rng.random() < 0.7:
        place = rng.choice(list(PLACES))
        prepositional_phrase(PLACES[place], "the", place)
    return RelatedWords(words, relations)


def related_sentences(number: int = 200, seed: int = 0) -> list[RelatedWords]:
    """``number`` different captions with their relations; the same seed makes the
    same."""
    rng, found = random.Random(seed), {}
    while len(found) < number:
        sentence = related_sentence(rng)
        found.setdefault(sentence.text, sentence)
    return list(found.values())


def distance_accuracy(
    choose: Sequence[RelatedWords], judge: Sequence[RelatedWords], relation: str
) -> float:
    """How often the distance ``j - i`` that is the most frequent one of a relation in
    ``choose`` is right in ``judge``."""
    distances = [
        [j - i for s in part for name, i, j in s.relations if name == relation]
        for part in (choose, judge)
    ]
    fixed = max(set(distances[0]), key=distances[0].count)
    return distances[1].count(fixed) / len(distances[1])


def far_objects(distance: int, number: int = 8, seed: int = 0) -> list[RelatedWords]:
    """Captions in which an object stands ``distance`` words (2 to 9) behind its verb,
    with adjectives between."""
    rng, found = random.Random(f"{seed} {distance}"), []
    between = "small old red wooden round heavy shiny".split()
    for _ in range(number):
        verb, thing = rng.choice(ACTIONS), rng.choice(THINGS)
        adjectives = rng.sample(between, distance - 2)
        begin, end = "a man in a blue shirt is".split(), "in the park".split()
        words = [*begin, verb, "a", *adjectives, thing, *end]
        at = len(begin)
        found.append(RelatedWords(words, [("object → verb", at + distance, at)]))
    return found


# Pronouns -----------------------------------------------------------------------------

ANIMALS = {
    "dog": "Ein Hund",
    "horse": "Ein Pferd",
    "sheep": "Ein Schaf",
    "cat": "Eine Katze",
    "cow": "Eine Kuh",
    "goat": "Eine Ziege",
}
"""English and German; "its" is *sein* for the first three and *ihr* for the others."""


def its_sentences() -> list[Pair]:
    """For each of ``ANIMALS`` an English caption with *its*, and two German ones: with
    *seinem* and then with *ihrem*."""
    return [
        (
            f"A {animal} is holding a stick in its mouth.",
            f"{german} hält einen Stock in {pronoun} Maul.",
        )
        for animal, german in ANIMALS.items()
        for pronoun in ("seinem", "ihrem")
    ]


# Word alignments of English and German ------------------------------------------------


@dataclass(frozen=True)
class Caption:
    """A caption in both languages, with the words that stand for each other."""

    source: list[str]
    """The words in English, without the period."""
    target: list[str]
    """The words in German."""
    links: set[tuple[int, int]]
    """Numbers from 0, German first: the target word and a source word that it stands
    for."""

    @property
    def link_matrix(self) -> Tensor:
        """The links as booleans ``(target words, source words)``."""
        links = torch.zeros(len(self.target), len(self.source), dtype=torch.bool)
        links[tuple(zip(*self.links, strict=True))] = True
        return links

    @property
    def pair(self) -> Pair:
        """The two sentences as text."""
        return tuple(
            f"{words[0].capitalize()} {' '.join(words[1:])}."
            for words in (self.source, self.target)
        )


def make_caption(chunks: Sequence[str], order: Iterable[int]) -> Caption:
    """A caption from chunks "english:german" in English order; ``order`` is that of
    their numbers in German.

    Underscores stand between the words of a chunk, and each of its words in German
    stands for all of them in English.
    """
    caption, positions = Caption([], [], set()), {}
    for number, chunk in enumerate(chunks):
        words = chunk.split(":")[0].split("_")
        begin = len(caption.source)
        positions[number] = range(begin, begin + len(words))
        caption.source.extend(words)
    for number in order:
        for word in chunks[number].split(":")[1].split("_"):
            here = len(caption.target)
            caption.links.update((here, position) for position in positions[number])
            caption.target.append(word)
    return caption


SUBJECTS = [
    "a:ein man:Mann",
    "a:eine woman:Frau",
    "a:ein young:junger boy:Junge",
    "an:ein old:alter man:Mann",
    "a:eine woman:Frau in:in a:einem red:roten dress:Kleid",
    "a:ein man:Mann with:mit a:einem hat:Hut",
]
PREDICATES = [
    "is_holding:hält a:einen ball:Ball",
    "is_throwing:wirft a:einen stick:Stock",
    "is_eating:isst an:einen apple:Apfel",
    "is_playing:spielt guitar:Gitarre",
    "is_reading:liest a:ein book:Buch",
    "is_riding:fährt a:ein bicycle:Fahrrad",
]
WHERE = [
    "on:auf the:der street:Straße",
    "in_the:im park:Park",
    "at_the:am beach:Strand",
    "in:in a:einer kitchen:Küche",
    "in_front_of:vor a:einem building:Gebäude",
]


def aligned_captions() -> list[Caption]:
    """All captions of ``SUBJECTS``, ``PREDICATES`` and ``WHERE``, each in two German
    orders.

    One is the English order. The other begins with the place, and then the verb stands
    before the subject.
    """
    captions = []
    for phrases in product(SUBJECTS, PREDICATES, WHERE):
        subject, (verb, *thing), place = (phrase.split() for phrase in phrases)
        chunks = [*subject, verb, *thing, *place]
        numbers = list(range(len(chunks)))
        first, verb_at = numbers[len(chunks) - len(place) :], len(subject)
        rest = [n for n in numbers if n not in first and n != verb_at]
        captions.append(make_caption(chunks, numbers))
        captions.append(make_caption(chunks, [*first, verb_at, *rest]))
    return captions
