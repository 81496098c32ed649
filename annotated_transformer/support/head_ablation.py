"""BLEU of the book's translator with each of its heads switched off, and the command
that records it: ``python -m annotated_transformer.support.head_ablation``."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click
import torch
from tqdm import tqdm

from ..evaluation import bleu, paired_bootstrap
from ..translator import Translator
from ..visualization import Head, heads_of, switched_off
from .corpora import Pair, load_multi30k
from .files import write_atomically
from .records import describe_run

PROGRAM = ["python", "-m", "annotated_transformer.support.head_ablation"]


def head_ablation(
    translator: Translator,
    pairs: Sequence[Pair],
    heads: Iterable[Head],
    beam_size: int = 4,
) -> dict[str, Any]:
    """BLEU on ``pairs`` with all heads, and with each of ``heads`` switched off, one at
    a time (section 6.1).

    ``p`` is that of a paired bootstrap against all heads. Raises ValueError as
    ``switched_off`` and ``bleu`` do.
    """
    sources, references = zip(*pairs, strict=True)

    def translated() -> list[str]:
        found = translator.translate(sources, beam_size)
        return [translation.text for translation in found]

    whole, rows = translated(), []
    # None: no bar where nobody watches
    for head in tqdm(list(heads), unit="head", disable=None):
        with switched_off(translator.model, [head]):
            without = translated()
        p = paired_bootstrap(whole, without, references).p
        score = {"bleu": round(bleu(without, references), 2), "p": round(p, 4)}
        rows.append({"attention": head.module, "head": head.number, **score})
    score = round(bleu(whole, references), 2)
    return {"sentences": len(pairs), "beam": beam_size, "bleu": score, "heads": rows}


@click.command()
@click.option(
    "--sentences", type=click.IntRange(1), help="Only the first of the test set."
)
@click.option("--beam", type=click.IntRange(1), default=4, show_default=True)
@click.argument("record", type=click.Path(path_type=Path, dir_okay=False))
def main(record: Path, sentences: int | None, beam: int) -> None:
    """Switch off each head of the book's translator, score the test set of Multi30k,
    and write a RECORD in JSON."""
    translator = Translator.load()
    pairs = load_multi30k().test[:sentences]
    found = head_ablation(translator, pairs, heads_of(translator.model), beam)
    names = ("commit", "date", "step", "seconds")
    made = {"translator": {name: translator.facts[name] for name in names}}
    facts = found | made | describe_run(PROGRAM, torch.device("cpu"))
    write_atomically(record, (json.dumps(facts, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
