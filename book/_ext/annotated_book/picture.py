"""The paper as a picture: its parts in the paper's order, one box for each entry of the
ledger, and each box marked by what became of it. Plain SVG text; nothing of Sphinx in
this module.
"""

import textwrap
from collections.abc import Callable
from html import escape

# The paper's parts in its own order, under the headings that the picture shows.
OUTLINE = {
    "Abstract, 1 Introduction, 2 Background": ["abstract", "section 1", "section 2"],
    "3 Model architecture": [
        *["section 3", "figure 1", "section 3.1", "section 3.2", "figure 2"],
        *[
            "section 3.2.1",
            "equation 1",
            "footnote to section 3.2.1",
            "section 3.2.2",
            "section 3.2.3",
        ],
        *["section 3.3", "equation 2", "section 3.4", "section 3.5"],
    ],
    "4 Why self-attention": ["section 4", "table 1"],
    "5 Training": [
        "section 5",
        "section 5.1",
        "section 5.2",
        "section 5.3",
        "equation 3",
        "section 5.4",
    ],
    "6 Results": [
        *["section 6", "section 6.1", "table 2", "footnote to section 6.1"],
        *["section 6.2", "table 3", "section 6.3", "table 4"],
    ],
    "7 Conclusion, and the appendix": [
        "section 7",
        "appendix",
        "figure 3",
        "figure 4",
        "figure 5",
    ],
}

# One sign for each status, drawn in a square of 14: a tick, bars, an unequal sign,
# lines of text.
SIGNS = {
    "implemented": "M2 8 L5.5 11.5 L12 3",
    "measured": "M3 12 V8 M7 12 V5 M11 12 V2",
    "deviates": "M2 5 H12 M2 9.5 H12 M10 1.5 L4 13",
    "prose only": "M2 3 H12 M2 7 H12 M2 11 H8",
}

BOX, GAP, LINE = (
    180,
    8,
    15,
)  # width of a box, space between two, height of a line of text
LETTERS = 24  # that fit into a line


def sign(status: str) -> str:
    """The sign of a status by itself, for the legend."""
    path = f'<path class="sign" d="{SIGNS[status]}"/>'
    looks = f'class="paper-sign {css_class(status)}" viewBox="0 0 14 14"'
    return f'<svg {looks} aria-hidden="true">{path}</svg>'


def css_class(status: str) -> str:
    """The class that gives a status its color."""
    return f"status-{status.replace(' ', '-')}"


def in_order(ledger: dict[str, list[dict]]) -> dict[str, list[dict]]:
    """The ledger's entries under the headings of `OUTLINE`, in the paper's order."""
    entries = [entry for group in ledger.values() for entry in group]
    return {
        heading: [
            entry for part in parts for entry in entries if entry["paper"] == part
        ]
        for heading, parts in OUTLINE.items()
    }


def short(part: str) -> str:
    """What a box says on top: `section 3.2` becomes `§ 3.2`."""
    return (
        (part[:1].upper() + part[1:])
        .replace("Section", "§")
        .replace("to section", "to §")
    )


def box(entry: dict, x: int, y: int, height: int, address: str) -> str:
    """One entry as a box, a link to its address."""
    part, status = short(entry["paper"]), entry["status"]
    title = f"{entry['paper'].capitalize()}, {entry['title']}: {status}"
    round_ = 3 if entry["paper"].startswith(("section", "abstract", "appendix")) else 14
    lines = [
        f'<text x="{x + 11}" y="{y + 37 + LINE * place}">{escape(line)}</text>'
        for place, line in enumerate(textwrap.wrap(entry["title"], LETTERS))
    ]
    return "".join(
        [
            f'<a href="{escape(address)}" class="{css_class(status)}">',
            f"<title>{escape(title)}</title>",
            f'<rect x="{x + 1}" y="{y + 1}" width="{BOX - 2}" height="{height - 2}"',
            f' rx="{round_}"/>',
            f'<text class="part" x="{x + 11}" y="{y + 20}">{escape(part)}</text>',
            f'<path class="sign" transform="translate({x + BOX - 25} {y + 9})"',
            f' d="{SIGNS[status]}"/>',
            *lines,
            "</a>",
        ]
    )


def picture(
    ledger: dict[str, list[dict]], columns: int, address_of: Callable[[dict], str]
) -> str:
    """The whole paper as an SVG with so many boxes side by side; `address_of` says
    where an entry's box leads."""
    drawn, y = [], 0
    for heading, entries in in_order(ledger).items():
        drawn.append(
            f'<text class="heading" x="1" y="{y + 18}">{escape(heading)}</text>'
        )
        y += 30
        for start in range(0, len(entries), columns):
            row = entries[start : start + columns]
            height = 34 + LINE * max(
                len(textwrap.wrap(entry["title"], LETTERS)) for entry in row
            )
            drawn += [
                box(entry, (BOX + GAP) * n, y, height, address_of(entry))
                for n, entry in enumerate(row)
            ]
            y += height + GAP
        y += GAP
    width = (BOX + GAP) * columns - GAP
    words = "The paper, part by part, each a link to its place in this book"
    label = f'role="group" aria-label="{words}"'
    return f'<svg {label} viewBox="0 0 {width} {y - 2 * GAP}">{"".join(drawn)}</svg>'
