"""The glossary: enough terms, all four languages, and every entry leads to the heading
that defines it."""

import re
import sys
import unicodedata
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "book" / "_ext"))

from annotated_book import glossary, pages  # noqa: E402

TERMS = yaml.safe_load((ROOT / "book" / "glossary.yml").read_text(encoding="utf-8"))
FIELDS = ["term", "vi", "ko", "zh", "definition", "notebook", "heading"]
# Letters that a form may be made of besides Latin ones: Hangul, or the unified Chinese
# characters.
SCRIPTS = {"vi": "LATIN", "ko": "LATIN|HANGUL", "zh": "LATIN|CJK UNIFIED"}


def term(entry: dict) -> str:
    return entry["term"]


def test_there_are_sixty_terms_and_more():
    """Fails when terms are taken out until fewer than 60 are left."""
    assert len(TERMS) >= 60


def test_terms_are_sorted_and_stand_once():
    """Fails for a term at the wrong place, or the same term twice, in capitals or
    not."""
    names = [entry["term"].casefold() for entry in TERMS]
    assert names == sorted(names)
    assert len(set(names)) == len(names)


def test_no_definition_stands_twice():
    """Fails when an entry was copied and only its term was changed."""
    assert len({entry["definition"] for entry in TERMS}) == len(TERMS)


@pytest.mark.parametrize("entry", TERMS, ids=term)
def test_entry_is_complete(entry):
    """Fails for a field that is missing, empty or unknown, or a definition that is no
    short sentence."""
    assert list(entry) in (FIELDS, [*FIELDS, "also"])
    texts = [*(entry[field] for field in FIELDS), *entry.get("also", [])]
    assert all(isinstance(text, str) and text == text.strip() != "" for text in texts)
    assert entry["definition"].endswith(".") and len(entry["definition"].split()) <= 30


@pytest.mark.parametrize("language", SCRIPTS)
@pytest.mark.parametrize("entry", TERMS, ids=term)
def test_form_is_written_in_the_script_of_its_language(entry, language):
    """Fails when two languages change places, or letters are decomposed, so that a
    search in the page misses them."""
    form = entry[language]
    assert unicodedata.is_normalized("NFC", form)
    names = [unicodedata.name(letter) for letter in form if letter.isalpha()]
    assert all(re.match(SCRIPTS[language], name) for name in names), form


@pytest.mark.parametrize("language", ["ko", "zh"])
def test_most_forms_are_native(language):
    """Fails when English words were put in place of a language: only a few names, BLEU
    among them, stay Latin."""
    latin = [entry["term"] for entry in TERMS if entry[language].isascii()]
    assert len(latin) <= 6, latin


@pytest.mark.parametrize("entry", TERMS, ids=term)
def test_entry_leads_to_a_heading(entry):
    """Fails when a notebook or one of its headings is renamed, or when a heading is not
    the only one of its name."""
    notebook = ROOT / "notebooks" / f"{entry['notebook']}.ipynb"
    assert notebook.is_file()
    assert pages.headings(notebook).count(entry["heading"]) == 1


@pytest.mark.parametrize("entry", TERMS, ids=term)
def test_term_is_used_where_it_is_defined(entry):
    """Fails when the section that an entry names never uses the term."""
    assert glossary.is_defined(ROOT, entry), (
        f"{entry['notebook']}, section {entry['heading']!r}, does not use "
        f"{entry['term']!r}: use it there, or name its other form under `also`"
    )


def test_a_term_that_is_not_used_is_found_out():
    """Fails when the test above takes any text for a use of the term."""
    entry = {**TERMS[0], "term": "flux capacitor", "also": []}
    assert not glossary.is_defined(ROOT, entry)
    assert glossary.pattern({"term": "layer norm"}).search("Layer-norms differ")
    assert not glossary.pattern({"term": "key"}).search("a monkey, the keyboard")


def test_no_two_terms_share_an_anchor():
    """Fails when two terms lead to one label."""
    labels = [glossary.label(entry) for entry in TERMS]
    assert len(set(labels)) == len(labels)


def test_the_page_shows_every_form_in_its_language():
    """Fails when a term, a form or the mark of its language is missing on the page, or
    a place has no link."""
    page = glossary.page(ROOT)
    for entry in TERMS:
        assert f"\n{entry['term']}\n  {entry['definition']}\n" in page
        assert all(
            f'<span lang="{tag}">{entry[key]}</span>' in page
            for key, (_, tag) in glossary.LANGUAGES.items()
        )
    assert page.count("Defined in {ref}`") == len(TERMS)
