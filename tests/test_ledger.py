"""The ledger: every part of the paper has an entry, and every entry leads somewhere."""

import importlib
import re
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "book" / "_ext"))

from annotated_book import pages, picture  # noqa: E402

LEDGER = pages.ledger_of(ROOT)
ENTRIES = [entry for part in LEDGER.values() for entry in part]
STATUSES = {"implemented", "measured", "deviates", "prose only"}
FIELDS = {"paper", "title", "status", "notebook", "heading", "symbol", "test", "note"}
SECTIONS = (
    "1 2 3 3.1 3.2 3.2.1 3.2.2 3.2.3 3.3 3.4 3.5 4 5 5.1 5.2 5.3 5.4 6 6.1 6.2 6.3 7"
).split()
PAPER = [
    *["abstract", *(f"section {number}" for number in SECTIONS), "appendix"],
    *[f"equation {n}" for n in range(1, 4)],
    *[f"table {n}" for n in range(1, 5)],
    *[f"figure {n}" for n in range(1, 6)],
    *[
        "footnote to section 3.2.1",
        "footnote to section 6.1",
    ],  # the others name authors and affiliations
]


def named(entry: dict) -> str:
    return f"{entry['paper']}: {entry['title']}"


def test_every_part_of_the_paper_has_an_entry():
    """Fails when an entry is taken out, or stands for something that the paper does not
    have."""
    assert {entry["paper"] for entry in ENTRIES} == set(PAPER)


def test_the_picture_has_a_place_for_every_part():
    """Fails when a part is missing in the picture's outline or stands there twice, or
    sections, equations, tables or figures do not come in their order."""
    drawn = [part for parts in picture.OUTLINE.values() for part in parts]
    assert sorted(drawn) == sorted(PAPER)
    for kind in ("section", "equation", "table", "figure"):
        assert [part for part in drawn if part.startswith(kind)] == [
            part for part in PAPER if part.startswith(kind)
        ]


@pytest.mark.parametrize(
    "entry",
    [e for e in ENTRIES if not e["paper"].startswith(("abstract", "section"))],
    ids=named,
)
def test_what_can_be_run_is_run(entry):
    """Fails when an equation, table, figure or footnote is only told."""
    assert entry["status"] != "prose only"


@pytest.mark.parametrize("entry", ENTRIES, ids=named)
def test_entry_is_complete(entry):
    """Fails for an unknown field or status, an entry without a place in the book, a
    deviation or mere prose without its reason, or a claim without code and test."""
    assert set(entry) <= FIELDS
    assert entry["status"] in STATUSES
    assert {"notebook", "heading"} <= set(entry)
    assert entry["status"] == "prose only" or {"symbol", "test"} <= set(entry)
    if entry["status"] in ("deviates", "prose only"):
        assert entry["note"]


@pytest.mark.parametrize("entry", ENTRIES, ids=named)
def test_entry_leads_to_a_paragraph(entry):
    """Fails when a notebook or one of its headings is renamed."""
    notebook = nbformat.read(
        ROOT / "notebooks" / f"{entry['notebook']}.ipynb", as_version=4
    )
    text = "\n".join(
        cell.source for cell in notebook.cells if cell.cell_type == "markdown"
    )
    assert entry["heading"] in re.findall(r"^##+ (.+)$", text, re.M)


@pytest.mark.parametrize("entry", [e for e in ENTRIES if "symbol" in e], ids=named)
def test_entry_leads_to_code_and_test(entry):
    """Fails when a symbol or a test is renamed, or the test file does not import the
    symbol's module."""
    module, name = entry["symbol"].rsplit(".", 1)
    assert hasattr(importlib.import_module(module), name)
    path, _, test = entry["test"].partition("::")
    source = (ROOT / path).read_text(encoding="utf-8")
    assert module in source and name.split(".")[0] in source, (
        f"{path} does not speak of {entry['symbol']}"
    )
    assert not test or f"def {test}(" in source
