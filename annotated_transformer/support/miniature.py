"""A small grammar of English and German sentences: text to train on where no corpus can
be had."""

import random

Pair = tuple[str, str]


NOUNS = [
    ("man", "Mann", "m"),
    ("woman", "Frau", "f"),
    ("child", "Kind", "n"),
    ("dog", "Hund", "m"),
    ("cat", "Katze", "f"),
    ("horse", "Pferd", "n"),
    ("teacher", "Lehrer", "m"),
    ("goat", "Ziege", "f"),
    ("pig", "Schwein", "n"),
    ("bird", "Vogel", "m"),
    ("duck", "Ente", "f"),
    ("sheep", "Schaf", "n"),
]
ADJECTIVES = [
    ("old", "alt"),
    ("small", "klein"),
    ("young", "jung"),
    ("quiet", "still"),
    ("clever", "klug"),
    ("wild", "wild"),
]
VERBS = [
    ("see", "sees", "sehen", "sieht"),
    ("find", "finds", "finden", "findet"),
    ("hear", "hears", "hören", "hört"),
    ("love", "loves", "lieben", "liebt"),
    ("know", "knows", "kennen", "kennt"),
    ("look for", "looks for", "suchen", "sucht"),
]
REPORTS = [("says", "sagt"), ("believes", "glaubt"), ("thinks", "denkt")]
ADVERBS = [("today", "heute"), ("here", "hier"), ("now", "jetzt")]
# By case and gender: both articles, the adjective's ending after the indefinite one.
ARTICLES = {
    "nominative": {
        "m": ("der", "ein", "er"),
        "f": ("die", "eine", "e"),
        "n": ("das", "ein", "es"),
    },
    "accusative": {
        "m": ("den", "einen", "en"),
        "f": ("die", "eine", "e"),
        "n": ("das", "ein", "es"),
    },
    "dative": {
        "m": ("dem", "einem", "en"),
        "f": ("der", "einer", "en"),
        "n": ("dem", "einem", "en"),
    },
}


def noun_phrase(rng: random.Random, case: str, nested: bool = False) -> Pair:
    """One noun phrase in both languages, the German one in ``case``; ``nested`` allows
    "with ..." behind the noun."""
    english, german, gender = rng.choice(NOUNS)
    definite, indefinite, ending = ARTICLES[case][gender]
    if rng.random() < 0.6:
        article, partner = "the", definite
        ending = (
            "en" if case == "dative" or (case, gender) == ("accusative", "m") else "e"
        )
    else:
        article, partner = "a", indefinite
    if rng.random() < 0.5:
        adjective, stem = rng.choice(ADJECTIVES)
        article = "an" if article == "a" and adjective[0] in "aeio" else article
        english, german = f"{adjective} {english}", f"{stem}{ending} {german}"
    english, german = f"{article} {english}", f"{partner} {german}"
    if nested and rng.random() < 0.4:
        behind = noun_phrase(rng, "dative")
        english, german = f"{english} with {behind[0]}", f"{german} mit {behind[1]}"
    return english, german


def miniature_sentence(rng: random.Random) -> Pair:
    """One sentence pair of the miniature grammar, English first: plain, inverted,
    subordinate or with a modal verb."""
    kind = rng.choice(["plain", "inverted", "subordinate", "modal"])
    subject = noun_phrase(rng, "nominative")
    object_ = noun_phrase(rng, "accusative", nested=kind != "subordinate")
    infinitive, verb, verb_infinitive, finite = rng.choice(VERBS)
    if kind == "plain":
        pair = (
            f"{subject[0]} {verb} {object_[0]}",
            f"{subject[1]} {finite} {object_[1]}",
        )
    elif kind == "inverted":
        adverb = rng.choice(ADVERBS)
        pair = (
            f"{adverb[0]} {subject[0]} {verb} {object_[0]}",
            f"{adverb[1]} {finite} {subject[1]} {object_[1]}",
        )
    elif kind == "modal":
        pair = (
            f"{subject[0]} can {infinitive} {object_[0]}",
            f"{subject[1]} kann {object_[1]} {verb_infinitive}",
        )
    else:
        speaker, report = noun_phrase(rng, "nominative"), rng.choice(REPORTS)
        pair = (
            f"{speaker[0]} {report[0]} that {subject[0]} {verb} {object_[0]}",
            f"{speaker[1]} {report[1]}, dass {subject[1]} {object_[1]} {finite}",
        )
    return tuple(side[0].upper() + side[1:] + "." for side in pair)
