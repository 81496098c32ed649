"""The ledger: every part of the paper has an entry, and every entry leads somewhere."""

import importlib
import re
from pathlib import Path

import nbformat
import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
LEDGER = yaml.safe_load((ROOT / "book" / "ledger.yml").read_text(encoding="utf-8"))
ENTRIES = [entry for part in LEDGER.values() for entry in part]
STATUSES = {"implemented", "measured", "deviates", "prose only", "planned"}
PAPER = [
    *[
        "abstract",
        "section 1",
        "section 2",
        "section 3",
        "section 3.1",
        "section 3.2",
        "section 3.2.1",
        "section 3.2.2",
    ],
    *["section 3.2.3", "section 3.3", "section 3.4", "section 3.5", "section 4", "section 5", "section 5.1"],
    *[
        "section 5.2",
        "section 5.3",
        "section 5.4",
        "section 6",
        "section 6.1",
        "section 6.2",
        "section 6.3",
        "section 7",
    ],
    *[f"equation {n}" for n in range(1, 4)],
    *[f"table {n}" for n in range(1, 5)],
    *[f"figure {n}" for n in range(1, 6)],
    *["footnote to section 3.2.1", "footnote to section 6.1", "appendix"],
]


def named(entry: dict) -> str:
    return f"{entry['paper']}: {entry['title']}"


def test_every_part_of_the_paper_has_an_entry():
    """Fails when an entry is taken out, or stands for something that the paper does not have."""
    assert {entry["paper"] for entry in ENTRIES} == set(PAPER)


@pytest.mark.parametrize("entry", ENTRIES, ids=named)
def test_entry_is_complete(entry):
    """Fails for an unknown status, a deviation without its reason, or a claim without code and test."""
    assert entry["status"] in STATUSES
    if entry["status"] in ("implemented", "measured", "deviates"):
        assert {"notebook", "heading", "symbol", "test"} <= set(entry)
    if entry["status"] in ("deviates", "prose only", "planned"):
        assert entry["note"]


@pytest.mark.parametrize("entry", [e for e in ENTRIES if "notebook" in e], ids=named)
def test_entry_leads_to_a_paragraph(entry):
    """Fails when a notebook or one of its headings is renamed."""
    notebook = nbformat.read(ROOT / "notebooks" / f"{entry['notebook']}.ipynb", as_version=4)
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    if "heading" in entry:
        assert entry["heading"] in re.findall(r"^##+ (.+)$", text, re.M)


@pytest.mark.parametrize("entry", [e for e in ENTRIES if "symbol" in e], ids=named)
def test_entry_leads_to_code_and_test(entry):
    """Fails when a symbol or a test is renamed, or the test file does not import the symbol's module."""
    module, name = entry["symbol"].rsplit(".", 1)
    assert hasattr(importlib.import_module(module), name)
    path, _, test = entry["test"].partition("::")
    source = (ROOT / path).read_text(encoding="utf-8")
    assert module in source and name.split(".")[0] in source, f"{path} does not speak of {entry['symbol']}"
    assert not test or f"def {test}(" in source
