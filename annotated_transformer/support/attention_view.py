"""The view of chapter 17: every attention weight of a sentence as a piece of HTML that
answers to mouse, finger and keyboard."""

import json
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..visualization import AttentionMaps, Head

KINDS = {
    "encoder": "Encoder self-attention",
    "decoder": "Decoder self-attention",
    "cross": "Cross-attention",
}
ENDS = {"<s>": "begin", "</s>": "end"}


def percentages(
    maps: "AttentionMaps", kind: str, labels: dict["Head", str]
) -> dict[str, Any]:
    """One of ``KINDS`` as the page needs it: its words, its weights in whole percent,
    the labels of its heads."""
    queries, keys = maps.sides(kind)
    weights = maps.of(kind)
    layers, heads = weights.shape[:2]
    return {
        "name": KINDS[kind],
        "queries": [ENDS.get(word, word) for word in queries],
        "keys": [ENDS.get(word, word) for word in keys],
        "writes": kind != "encoder",
        "weights": (100 * weights).round().int().tolist(),
        "labels": [
            [labels.get((kind, layer, head), "") for head in range(heads)]
            for layer in range(layers)
        ],
    }


def table_of(kind: dict[str, Any]) -> str:
    """The same as a table: for each word and layer, where the heads look most, on
    average."""
    names = "".join(f"<th>layer {i + 1}</th>" for i in range(len(kind["weights"])))
    rows = [f"<tr><th>word</th>{names}</tr>"]
    for i, query in enumerate(kind["queries"]):
        cells = ""
        for heads in kind["weights"]:
            columns = zip(*[head[i] for head in heads], strict=True)
            mean = [sum(column) / len(heads) for column in columns]
            most = max(range(len(mean)), key=mean.__getitem__)
            cells += f"<td>{escape(kind['keys'][most])} {mean[most]:.0f} %</td>"
        rows.append(f"<tr><th>{escape(query)}</th>{cells}</tr>")
    return f"<table><caption>{kind['name']}</caption>{''.join(rows)}</table>"


def check_start(maps: "AttentionMaps", start: "Head", word: int) -> None:
    """Raise ValueError for a head or a word that is not there."""
    kind, layer, number = start
    if kind not in KINDS:
        raise ValueError(f"there is no {kind!r}: expected one of {', '.join(KINDS)}")
    layers, heads, words, _ = maps.of(kind).shape
    if not (0 <= layer < layers and 0 <= number < heads):
        raise ValueError(
            f"there is no head {tuple(start)}: expected a layer below {layers} and a "
            f"number below {heads}, both from 0"
        )
    if not 0 <= word < words:
        raise ValueError(f"there is no word {word}: expected 0 to {words - 1}")


def attention_view(
    maps: "AttentionMaps",
    start: "Head | None" = None,
    word: int = 0,
    labels: dict["Head", str] | None = None,
) -> str:
    """The attention weights of one sentence as HTML (appendix of the paper).

    The view opens at the head ``start``, by default the first one of the last
    cross-attention, and at the query number ``word``; ``labels`` names heads. It brings
    its own style and script and asks nobody for anything; without scripts it is a
    table. Raises ValueError for a head or word that is not there.
    """
    kind, layer, head = start or ("cross", len(maps.cross) - 1, 0)
    check_start(maps, (kind, layer, head), word)
    kinds = [percentages(maps, name, labels or {}) for name in KINDS]
    at = {"kind": [*KINDS].index(kind), "layer": layer, "head": head, "word": word}
    data = json.dumps(
        {"kinds": kinds, "start": at}, ensure_ascii=False, separators=(",", ":")
    )
    sides = " → ".join(" ".join(kind["queries"]) for kind in kinds[:2])
    said = escape(f"Attention weights: {sides}")
    path = files("annotated_transformer").joinpath("figures/attention_view.html")
    code = path.read_text(encoding="utf-8")
    tables = "".join(map(table_of, kinds))
    return f"""<div class="attention-view" role="group" aria-label="{said}"
 data-attention="{escape(data)}" data-lm-suppress-shortcuts="true">
<div class="stage">The view needs JavaScript; the tables hold a summary of it.</div>
<details><summary>As tables: where the heads of each layer look most, on average
</summary><div class="tables" tabindex="0">{tables}</div></details></div>{code}"""
