"""Charts in which every mark is one attention head, for chapter 17."""

from typing import TYPE_CHECKING

from matplotlib.axes import Axes

from .attention_view import KINDS

if TYPE_CHECKING:
    from ..visualization import Head

LEGEND = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "ncols": 3}


def bars_of_heads(axes: Axes, values: "dict[Head, float]") -> None:
    """A bar for each head, by kind and layer."""
    heads = list(values)
    for kind, title in KINDS.items():
        here = [i for i, head in enumerate(heads) if head.kind == kind]
        axes.bar(here, [values[heads[i]] for i in here], label=title)
    first = [i for i, head in enumerate(heads) if head.number == 0]
    axes.set_xticks(first, [heads[i].layer + 1 for i in first])
    axes.axhline(0, color="0.5", linewidth=0.8)
    axes.set_xlabel("layer, with a bar for each head")
    axes.legend(**LEGEND, columnspacing=1)


def points_of_heads(axes: Axes, points: "dict[Head, tuple[float, float]]") -> None:
    """A mark for each head at its point, one sort of mark for each kind."""
    for (kind, title), marker in zip(KINDS.items(), "o^s", strict=True):
        x, y = zip(*[p for head, p in points.items() if head.kind == kind], strict=True)
        axes.plot(x, y, marker, alpha=0.8, label=title)
    axes.legend(**LEGEND, columnspacing=1, handletextpad=0.2)
