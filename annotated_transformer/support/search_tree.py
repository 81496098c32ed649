"""The tree of a beam search as HTML: nested lists that open and close at a touch.

Chapter 12 grows the tree. A node has ``ids``, ``log_p``, ``fate`` ("live", "pruned" or
"finished"), ``children`` and ``score(alpha)``.
"""

import math
from collections.abc import Callable
from html import escape
from typing import Any

KEY = (
    "<b>bold</b>: on the way to the best, open from the start<br>"
    "live: among the best of its step; touch it to see what extends it<br>"
    "\u2702 pruned: others of its step were more likely; it ends here<br>"
    "\u2713 finished: has its end token, and so a score<br>"
    "live at the stop: could no longer win"
)
BAR = (
    '<svg width="30" height="8" aria-hidden="true">'
    '<rect width="30" height="8" fill="currentColor" opacity="0.15"/>'
    '<rect width="{:.1f}" height="8" fill="currentColor" opacity="0.7"/></svg>'
)


def draw_search_tree(
    root: Any, winner: Any, piece_of: Callable[[Any], str], alpha: float, shown: int = 3
) -> str:
    """The tree under ``root`` with the key to read it.

    ``winner`` is the best hypothesis, ``piece_of`` writes a token as text. Of the
    pruned children of a node, the ``shown`` most likely are listed.
    """
    tree = _children_of(root, winner, piece_of, alpha, shown)
    return f'<p style="font-size: 0.95rem;">{KEY}</p>{tree}'


def _line_of(
    node: Any, parent: Any, piece_of: Callable[[Any], str], alpha: float
) -> str:
    """One hypothesis: its newest word, the probability of that, what became of it."""
    p = math.exp(node.log_p - parent.log_p)
    fate = {
        "live": "live" if node.children else "live at the stop",
        "pruned": "\u2702 pruned",
        "finished": f"\u2713 finished, score {node.score(alpha):.2f}",
    }[node.fate]
    word, bar = escape(piece_of(node.ids[-1])), BAR.format(30 * p)
    return f"{word} {bar} {p:.0%} {fate}, log P {node.log_p:.1f}"


def _children_of(
    node: Any, winner: Any, piece_of: Callable[[Any], str], alpha: float, shown: int
) -> str:
    """What extends ``node``, as nested lists."""
    ranked = sorted(node.children, key=lambda child: -child.log_p)
    pruned = [child for child in ranked if child.fate == "pruned"]
    hidden = {id(child) for child in pruned[shown:]}
    parts = []
    for child in (child for child in ranked if id(child) not in hidden):
        line = _line_of(child, node, piece_of, alpha)
        wins = winner.ids[: len(child.ids)] == child.ids
        style = (
            "margin-left: 0.6em; line-height: 1.7; font-size: 0.95rem; "
            f"font-weight: {'bold' if wins else 'normal'};"
        )
        if child.fate == "pruned":  # paler, and dark enough to read
            style += " color: color-mix(in srgb, currentColor 75%, transparent);"
        if child.children:
            inside = _children_of(child, winner, piece_of, alpha, shown)
            opened = " open" if wins else ""
            parts.append(
                f'<details{opened} style="{style}"><summary>{line}</summary>'
                f"{inside}</details>"
            )
        else:
            parts.append(f'<div style="{style} padding-left: 1em;">{line}</div>')
    return "".join(parts)
