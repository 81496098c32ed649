"""Put a translator into the package and write its model card: ``tools/ship.py
TRANSLATOR RECORD``.

TRANSLATOR is a folder that ``annotated-transformer average --half`` wrote, RECORD the
JSON that ``evaluate`` printed for the same run. Every number in the card comes from the
record, from the other records of the package, or from the translator itself, which
translates the book's own test set.
"""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import sacrebleu

from annotated_transformer.evaluation import bleu_from_counts
from annotated_transformer.support.test_set import book_sentences
from annotated_transformer.translator import PRETRAINED, Translator

CARD = """# English to German, for captions of photographs

The translator of the book: the Transformer of Vaswani et al. (2017), {parameters:,}
parameters, {num_layers} layers a side, d_model {d_model}, {norm}-norm,
{vocabulary_size:,} subwords. `annotated-transformer translate` uses it where no other
model is named; chapter 14 shows what it can do and where it fails.

## Data

Trained on the 29,000 English-German pairs of Multi30k (Elliott et al. 2016), in the
raw, cased text, and judged while training on its 1,014 validation pairs. The captions
come from Flickr30k. The corpus is for research and education, not for commercial use,
and what was learned from it should be used in the same way.

## Scores

Multi30k test_2016_flickr (1,000 sentences), beam {beam}, alpha {alpha}, the average of
{averaged} checkpoints, in the 16 bits a weight that lie here.

| score | | signature |
|---|---|---|
{rows}

`bleu` is sacreBLEU's default; its 95 % bootstrap interval, over the choice of the
sentences, goes from {low:.1f} to {high:.1f}. `bleu_moses_lower_case` compares with
published scores on lower-case, tokenized text.

No training saw these sentences, and no checkpoint was chosen by them. But {looks}
trained models of this language pair were scored on them, one after the other, and the
best one is this: its score is a little too good.

On sentences from elsewhere it is far lower. On the book's own test set, with two
references where two are equally good: {elsewhere}.

## Training

{step:,} steps, {minutes:.0f} minutes by the clock ({cpu_minutes:.0f} of processor
time), {workers} process(es) of {threads} thread(s) on {cpu}, seed {seed}, {date}; first
in both directions, then in one:

    {commands}

## Use and limits

Short English sentences that could stand below a photograph: people, animals, clothes,
streets, sports, in the present tense, in the words of Multi30k. Anything else it
translates too, wrongly, sometimes in fluent German, and does not say so. German genders
of people come from what the captions show, not from what the text says. Not for any use
in which a wrong translation does harm.

## Files

`model.safetensors` (weights), `model.json` (configuration, provenance, checksum),
`subwords.model` (SentencePiece).
"""


def bleu_interval(record: dict) -> tuple[float, float]:
    """The 95 % bootstrap interval of BLEU, from the record's sentence statistics."""
    rows = np.array(record["sentence_statistics"]["bleu"])
    counts = np.stack([rows[:, 2:6], rows[:, [0] * 4], rows[:, 6:]], axis=-1)
    share = np.full(len(counts), 1 / len(counts))
    drawn = np.random.default_rng(0).multinomial(len(counts), share, size=1000)
    sums = np.tensordot(drawn, counts, axes=1)
    low, high = np.quantile([bleu_from_counts(each) for each in sums], [0.025, 0.975])
    return low, high


def times_scored(languages: list[str]) -> int:
    """How many trained models of a language pair the package's records have scores of,
    on the test part."""
    records = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in (PRETRAINED.parent.parent / "records").glob("multi30k_*.json")
    ]
    return len(
        {
            (record["command"], record["date"], record["step"])
            for record in records
            if record["languages"] == languages
            and record["evaluation"]["part"] == "test"
        }
    )


def bleu_elsewhere(translator: Translator) -> str:
    """BLEU on both kinds of the book's own sentences, in words."""
    said = []
    for kind, name in (("caption", "captions"), ("everyday", "everyday sentences")):
        chosen = book_sentences(kind)
        found = translator.translate(sentence.source for sentence in chosen)
        streams = [
            [sentence.references[0] for sentence in chosen],
            [(*sentence.references, None)[1] for sentence in chosen],
        ]
        score = sacrebleu.corpus_bleu([each.text for each in found], streams).score
        said.append(f"BLEU {score:.1f} on {len(chosen)} {name}")
    return ",\n".join(said)


def commands_of(facts: dict) -> list[str]:
    """What to type to make the run again."""
    # The corpus of the second phase.
    one_way = facts["resumed"][0].split(" train ")[1].split()[0]
    sides = [f"{one_way}/train.{language}" for language in facts["languages"]]
    return [
        f"annotated-transformer prepare {one_way}",
        f"cat {' '.join(sides)} > both.1",
        f"cat {' '.join(reversed(sides))} > both.2",
        facts["prepare_command"],
        facts["command"],
        *facts["resumed"],
        facts["average_command"],
    ]


def main(translator: str, record: str) -> None:
    """Copy the translator, check that the record is of the same run, and write the
    card."""
    loaded = Translator.load(translator)
    facts = json.loads(Path(record).read_text(encoding="utf-8"))
    for name in ("command", "commit", "step", "averaged"):
        if loaded.facts[name] != facts[name]:
            sys.exit(
                f"{name} is {loaded.facts[name]!r} in {translator}, "
                f"{facts[name]!r} in {record}: not the same run"
            )
    rows = [
        f"| {name} | {score['score']:.2f} | `{score['signature'].replace('|', ', ')}` |"
        for name, score in facts["scores"].items()
    ]
    low, high = bleu_interval(facts)
    card = CARD.format(
        rows="\n".join(rows),
        low=low,
        high=high,
        looks=times_scored(facts["languages"]),
        elsewhere=bleu_elsewhere(loaded),
        averaged=len(facts["averaged"]),
        commands="\n    ".join(commands_of(facts)),
        workers=facts["workers"],
        threads=facts["hardware"]["threads"],
        minutes=facts["seconds"] / 60,
        cpu_minutes=facts["cpu_seconds"] / 60,
        cpu=facts["hardware"]["cpu"],
        **{
            name: facts["model"][name]
            for name in ("num_layers", "d_model", "norm", "vocabulary_size")
        },
        **{name: facts["evaluation"][name] for name in ("beam", "alpha")},
        **{name: facts[name] for name in ("parameters", "step", "seed", "date")},
    )
    shutil.rmtree(PRETRAINED, ignore_errors=True)
    shutil.copytree(translator, PRETRAINED)
    (PRETRAINED / "README.md").write_text(card, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
