"""The page of bugs by symptom against the chapters: every bug has its row, and every
row its bug."""

import json
import re
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"


def prose(name: str) -> str:
    """All Markdown of a notebook, with a blank line between its cells."""
    cells = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8"))[
        "cells"
    ]
    return "\n\n".join(
        "".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"
    )


def bugs_of(text: str) -> list[str]:
    """Titles under "Where people go wrong": its headings, or else the bold sentences
    that open a paragraph."""
    section = re.search(
        r"^## Where people go wrong$(.*?)(?=^## |\Z)", text, re.M | re.S
    )
    if not section:
        return []
    return re.findall(r"^### (.+)$", section[1], re.M) or re.findall(
        r"^\*\*([^*]+)\.\*\*", section[1], re.M
    )


def index_rows() -> list[list[str]]:
    """The cells of each row of the page: symptom, bug, check, and the notebook it
    links to."""
    table = (NOTEBOOKS.parent / "book" / "bugs.md").read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in re.findall(r"^\|.*\|$", table, re.M)[2:]
    ]
    link = re.compile(r"^\[.+\]\(\.\./notebooks/(\w+)\.ipynb\)$")
    return [[*row[:-1], link.sub(r"\1", row[-1])] for row in rows]


CHAPTERS = sorted(
    path.stem for path in NOTEBOOKS.glob("*.ipynb") if bugs_of(prose(path.stem))
)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_bug_of_a_chapter_is_in_the_index(chapter):
    """Fails when a chapter's section "Where people go wrong" gains or renames a bug and
    the index does not."""
    listed = [row[1] for row in index_rows() if row[-1] == chapter]
    missing = [bug for bug in bugs_of(prose(chapter)) if bug not in listed]
    lines = "\n".join(
        f"| SYMPTOM | {bug} | CHECK | [chapter](../notebooks/{chapter}.ipynb) |"
        for bug in missing
    )
    assert not missing, f"add to the table of book/bugs.md:\n{lines}"


def test_every_row_of_the_index_leads_to_a_bug():
    """Fails when a row names a bug that its chapter does not have, leaves a cell empty,
    or stands there twice."""
    rows = index_rows()
    assert all(len(row) == 4 and all(row) for row in rows), (
        "a row needs four cells: symptom, bug, check, link"
    )
    astray = [
        row[1]
        for row in rows
        if row[-1] not in CHAPTERS or row[1] not in bugs_of(prose(row[-1]))
    ]
    assert not astray, f"no such bug where the index points: {astray}"
    bugs = [(row[1], row[-1]) for row in rows]
    assert len(bugs) == len(set(bugs))


def test_bugs_are_found_in_both_forms():
    """Fails when the search for titles no longer finds headings or bold sentences, or
    reads past the section."""
    form = (
        "## Where people go wrong\n\n{}\n\n**The symptom.** Something.\n\n"
        "## Exercises\n\n### Not a bug\n"
    )
    assert bugs_of(form.format("### A bug\n\nText.")) == ["A bug"]
    assert bugs_of(
        "## Where people go wrong\n\n**A bug.** Or **two. Not.**\n\n**Before:** guess."
    ) == ["A bug"]
    assert bugs_of("## Summary\n\n### Nothing") == []
