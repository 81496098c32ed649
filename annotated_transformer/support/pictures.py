"""Drawings of chapter 6: a grid of words, and parameter counts over vocabularies."""

from collections.abc import Callable, Sequence

import altair as alt
import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes


def word_grid(
    words: Sequence[Sequence[str]],
    values: Sequence[Sequence[float]],
    row_names: Sequence[str],
) -> Axes:
    """One row of ``words`` above the other, the first at the bottom; each cell is the
    darker the larger its value, from 0 to 1."""
    _, axis = plt.subplots(figsize=(6.4, 0.52 * len(words)))
    image = axis.imshow(
        values, vmin=0, vmax=1, cmap="Blues", aspect="auto", origin="lower"
    )
    for height, row in enumerate(words):
        for i, word in enumerate(row):
            color = "white" if values[height][i] > 0.6 else "black"
            text = word.replace("▁", "")  # SentencePiece's mark of a space
            axis.text(i, height, text, ha="center", va="center", color=color, size=9)
    axis.set_yticks(range(len(words)), row_names)
    axis.set_xticks(range(len(words[0])))
    axis.grid(False)
    axis.figure.colorbar(image, label="probability")
    return axis


def vocabulary_chart(
    error: Callable[[str, int], float],
    fits: dict[int, list[str]],
    widths: dict[str, int],
) -> alt.LayerChart:
    """Table 3's rows against the vocabulary: ``error(row, V)``, our count minus the
    paper's in millions, and on touch the rows that fit there.

    ``fits`` has the rows that fit for each vocabulary, ``widths`` d_model of each row.
    """
    smallest, largest = min(fits), max(fits)
    counts = pd.DataFrame(
        {"vocabulary": fits.keys(), "rows": map(" ".join, fits.values())}
    )
    counts["text"] = [
        f"{V:,} tokens: {len(rows)} of {len(widths)} rows fit"
        for V, rows in fits.items()
    ]
    ends = pd.DataFrame(
        {
            "row": row,
            "vocabulary": V,
            "error": error(row, V),
            "d_model": f"{width} (big)" if row == "big" else str(width),
        }
        for row, width in widths.items()
        for V in (smallest, largest)
    )
    ticks = alt.Axis(values=list(range(33_000, largest, 2_000)), format="~s")
    domain = alt.Scale(domain=[smallest, largest], nice=False)
    across = alt.X("vocabulary:Q", title="vocabulary size V", scale=domain, axis=ticks)
    title = "our count minus the paper's, in millions"
    up = alt.Y("error:Q", title=title, scale=alt.Scale(domain=[-6, 6]))
    palette = alt.Scale(
        domain=["256", "512", "1024", "1024 (big)"],
        range=["#009E73", "#0072B2", "#E69F00", "#D55E00"],
    )
    legend = alt.Legend(orient="bottom")
    color = alt.Color("d_model:N", scale=palette, title="d_model", legend=legend)
    here = alt.selection_point(
        fields=["vocabulary"],
        nearest=True,
        on="pointerover",
        empty=False,
        clear=False,
        value=[{"vocabulary": 37_000}],
    )
    band = alt.Chart(pd.DataFrame({"low": [-0.5], "high": [0.5]}))
    band = band.mark_rect(color="gray", opacity=0.3).encode(y="low:Q", y2="high:Q")
    lines = alt.Chart(ends).mark_line(strokeWidth=1.3, clip=True)
    lines = lines.encode(x=across, y=up, color=color, detail="row", tooltip="row")
    touch = alt.Chart(counts).mark_rule(strokeWidth=20, opacity=0.001)
    touch = touch.encode(x=across, tooltip=["text", "rows"]).add_params(here)
    rule = alt.Chart(counts).mark_rule(color="gray").encode(x=across)
    text = alt.Chart(counts).mark_text(
        align="left", fontSize=14, fontWeight="bold", color="gray"
    )
    text = text.encode(x=alt.value(0), y=alt.value(-12), text="text")
    chart = band + touch + rule.transform_filter(here) + lines
    chart += text.transform_filter(here)
    return chart.properties(
        width="container",
        height=320,
        description="Lines that rise with the vocabulary, one for each row of table 3; "
        "ten of them cross the band of half a million near 41,000 tokens, the row of "
        "the big model near 36,000",
    )
