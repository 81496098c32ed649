"""Pictures of parse trees with matplotlib, for chapter 16."""

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .treebanks import TOP, Tree, walk


def depth(tree: Tree) -> int:
    """How many constituents stand above each other, ``TOP`` included."""
    levels = [0]
    for kind, _ in walk(tree):
        levels.append(levels[-1] + {"open": 1, "tag": 0, "close": -1}[kind])
    return max(levels)


def draw_tree(tree: Tree, axes: Axes, color: str = "C0") -> None:
    """Draw a tree below its ``TOP``, without tags: words in a row, a constituent one
    step above its highest child."""
    below, x = [[]], 0.0  # the children's points, for each open constituent
    for kind, node in walk(tree):
        if kind == "open":
            below.append([])
        elif kind == "tag":
            word = node.children[0]
            width = 0.75 + 0.24 * len(word)
            axes.text(x + width / 2, 0, word, ha="center", va="center", fontsize=9)
            below[-1].append((x + width / 2, 0))
            x += width
        else:
            points = below.pop()
            here = (
                (points[0][0] + points[-1][0]) / 2,
                max(y for _, y in points) + 1,
            )
            below[-1].append(here)
            if node.label != TOP:
                draw_node(node.label, here, points, axes, color)
    axes.set(xlim=(0, x), ylim=(-0.6, max(1, here[1]) - 0.3))
    axes.axis("off")


def draw_node(
    label: str,
    here: tuple[float, float],
    points: list[tuple[float, float]],
    axes: Axes,
    color: str,
) -> None:
    """One label at ``here``, with lines to the ``points`` of its children."""
    line = {"color": "0.6", "linewidth": 0.8, "zorder": 1}
    axes.plot((points[0][0], points[-1][0]), (here[1], here[1]), **line)
    for x, y in points:
        axes.plot((x, x), (here[1], y or 0.35), **line)
    box = {"boxstyle": "round,pad=0.15", "facecolor": "0.93", "edgecolor": "none"}
    text = {"ha": "center", "va": "center", "fontsize": 9, "color": color, "bbox": box}
    axes.text(*here, label, **text)


def draw_trees(trees: dict[str, Tree]) -> Figure:
    """The trees one above the other, each under its name (none where that is empty)."""
    heights = [depth(tree) for tree in trees.values()]
    size = (6.4, 0.36 * sum(heights) + 0.4 * len(heights))
    figure, panels = plt.subplots(
        len(trees), 1, figsize=size, height_ratios=heights, squeeze=False
    )
    for number, (name, tree) in enumerate(trees.items()):
        draw_tree(tree, panels[number, 0], f"C{number}")
        panels[number, 0].set_title(name, color=f"C{number}")
    return figure
