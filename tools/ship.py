"""Put a translator into the package and write its model card: ``tools/ship.py
TRANSLATOR RECORD``.

TRANSLATOR is a folder that ``annotated-transformer average --half`` wrote, RECORD the
JSON that ``evaluate`` printed for the same run. Every number in the card comes from the
record.
"""

import json
import shutil
import sys
from pathlib import Path

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

Multi30k test_2016_flickr (1,000 sentences, not used for training or choosing), beam
{beam}, alpha {alpha}, the average of {averaged} checkpoints, in the 16 bits a weight
that lie here.

| score | | signature |
|---|---|---|
{rows}

`bleu_moses_lower_case` compares with published scores on lower-case, tokenized text;
`bleu` is sacreBLEU's default.

## Training

{step:,} steps, {minutes:.0f} minutes by the clock ({cpu_minutes:.0f} of processor
time), {workers} process(es) of {threads} thread(s) on {cpu}, seed {seed}, {date}; first
in both directions, then in one:

    {commands}

## Use and limits

Short English sentences that could stand below a photograph: people, animals, clothes,
streets, sports, in the present tense. Anything else it translates too, wrongly,
sometimes in fluent German, and does not say so. German genders of people come from what
the captions show, not from what the text says. Not for any use in which a wrong
translation does harm.

## Files

`model.safetensors` (weights), `model.json` (configuration, provenance, checksum),
`subwords.model` (SentencePiece).
"""


def main(translator: str, record: str) -> None:
    """Copy the translator, check that the record is of the same run, and write the
    card."""
    loaded, facts = (
        Translator.load(translator),
        json.loads(Path(record).read_text(encoding="utf-8")),
    )
    for name in ("command", "commit", "step", "averaged"):
        if loaded.facts[name] != facts[name]:
            sys.exit(
                f"{name} is {loaded.facts[name]!r} in {translator}, "
                f"{facts[name]!r} in {record}: not the same run"
            )
    # The corpus of the second phase.
    one_way = facts["resumed"][0].split(" train ")[1].split()[0]
    sides = [f"{one_way}/train.{language}" for language in facts["languages"]]
    commands = [
        f"annotated-transformer prepare {one_way}",
        f"cat {' '.join(sides)} > both.1",
        f"cat {' '.join(reversed(sides))} > both.2",
        *(
            facts["prepare_command"],
            facts["command"],
            *facts["resumed"],
            facts["average_command"],
        ),
    ]
    shutil.rmtree(PRETRAINED, ignore_errors=True)
    shutil.copytree(translator, PRETRAINED)
    rows = [
        f"| {name} | {score['score']:.2f} | `{score['signature'].replace('|', ', ')}` |"
        for name, score in facts["scores"].items()
    ]
    card = CARD.format(
        rows="\n".join(rows),
        averaged=len(facts["averaged"]),
        commands="\n    ".join(commands),
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
    (PRETRAINED / "README.md").write_text(card, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
