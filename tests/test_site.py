"""The site's own machinery: the checker, what the reader sees of a cell, what a run
depends on, the generated pages.

Every check here has a case where it fails: each broken page below is a good page with
one thing broken.
"""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import nbformat
import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "book" / "_ext")]

import build_book  # noqa: E402
import check_pages  # noqa: E402
import check_site  # noqa: E402
import stamp  # noqa: E402
import student  # noqa: E402
from annotated_book import cells, finish, pages, picture, runs, services  # noqa: E402

GOOD = """<html><head><link rel="stylesheet" href="style.css"></head><body>
<h1 id="top">Title</h1><img src="a.png" alt="a dot">
<a href="other.html#here">other</a><a href="#top">up</a>
<a href="https://example.org/">elsewhere</a>
<div class="output text_plain">1</div></body></html>"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A small site without a fault."""
    (tmp_path / "index.html").write_text(GOOD)
    (tmp_path / "other.html").write_text('<p id="here">text</p>')
    (tmp_path / "style.css").write_text(
        "/* url(https://example.org/comment.png) */ p { background: url(a.png) }"
    )
    (tmp_path / "a.png").write_bytes(b"")
    return tmp_path


# The checker --------------------------------------------------------------------------


def test_a_good_site_has_no_fault(site: Path) -> None:
    """Nothing to find, and everything was looked at (fails when the checker sees faults
    that are not there)."""
    faults, counts = check_site.check(site)
    assert faults == []
    assert counts == {"pages": 2, "links": 2, "images": 1, "loads": 3}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("other.html#here", "missing.html", "broken link: missing.html"),
        ("other.html#here", "other.html#gone", "broken anchor: other.html#gone"),
        ("#top", "#bottom", "broken anchor: #bottom"),
        (' alt="a dot"', "", "image without alt text: a.png"),
        ('alt="a dot"', 'alt=" "', "image without alt text: a.png"),
        ('src="a.png"', 'src="b.png"', "a file that is not there: b.png"),
        (
            'src="a.png"',
            'src="https://example.org/a.png"',
            "another host: https://example.org/a.png",
        ),
        (
            'src="a.png"',
            'src="a.png" srcset="//example.org/b.png 2x"',
            "another host: //example.org/b.png",
        ),
        (
            "</head>",
            '<script src="https://cdn.example.org/x.js"></script></head>',
            "another host: https://cdn",
        ),
        (
            "</head>",
            '<link rel="preconnect" href="https://fonts.example.org"></head>',
            "another host: https://fonts",
        ),
        (
            "</head>",
            "<style>@import 'https://example.org/x.css';</style></head>",
            "another host: https://example.org/x",
        ),
        (
            "<h1 ",
            '<h1 style="background: url(//example.org/x.png)" ',
            "another host: //example.org/x.png",
        ),
        ("output text_plain", "output traceback", "1 cell(s) show an error"),
        ("output text_plain", "output error", "1 cell(s) show an error"),
    ],
)
def test_a_broken_page_is_caught(site: Path, old: str, new: str, expected: str) -> None:
    """One thing broken gives exactly one fault that names it."""
    page = site / "index.html"
    assert old in page.read_text()
    page.write_text(page.read_text().replace(old, new))
    faults, _ = check_site.check(site)
    assert len(faults) == 1, faults
    assert faults[0].startswith("index.html: ") and expected in faults[0]


def test_a_style_sheet_that_loads_from_elsewhere_is_caught(site: Path) -> None:
    """Fonts and images of style sheets count as well."""
    (site / "style.css").write_text(
        "@font-face { src: url('https://fonts.example.org/a.woff2') }"
    )
    assert any("fonts.example.org" in fault for fault in check_site.check(site)[0])


def test_an_empty_folder_is_no_site(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """Nothing built is a failure, not a success with zero faults."""
    assert check_site.main([str(tmp_path)]) == 1
    assert "no page found" in capsys.readouterr().err


# What the reader sees of a cell -------------------------------------------------------


def test_lines_for_machines_are_stripped() -> None:
    """nbdev, nbval, Colab, nbgrader and ruff marks go, ordinary comments and code
    stay."""
    code = (
        '#| export\n# @title Solution { display-mode: "form" }\n'
        "# NBVAL_SKIP\ndef f():\n    ### BEGIN SOLUTION\n"
    )
    code += "    return 1  # (n, n)  # noqa: E731\n    ### END SOLUTION\n    # why\n"
    assert cells.stripped(code) == "def f():\n    return 1  # (n, n)\n    # why"


def test_hidden_exported_and_defining_cells_are_recognized() -> None:
    """The marks count at the start of a line only, and only public names are
    definitions."""
    assert (
        cells.is_hidden("#| hide\nx = 1")
        and not cells.is_hidden('x = "#| hide"')
        and not cells.is_hidden("#| hide_x")
    )
    assert cells.is_exported("#| export\nx = 1") and not cells.is_exported("# export")
    assert cells.default_module("#| default_exp attention\nimport sys") == "attention"
    code = (
        "PAD_ID, BOS_ID = 0, 1\nTABLE = [1]\nlower = 2\n"
        "def f(): pass\nclass G: pass\ndef _private(): pass"
    )
    assert cells.definitions(code) == ["f", "G", "PAD_ID", "BOS_ID"]
    assert cells.definitions("%pip install x") == []


# The last hand at a page --------------------------------------------------------------


def code_block(code: str, language: str = "ipython3") -> str:
    """A block of code as Sphinx writes it."""
    return (
        f'<div class="highlight-{language} notranslate"><div class="highlight">'
        f"<pre><span></span>{code}</pre></div></div>"
    )


def test_each_line_of_code_stands_alone_and_nothing_is_lost() -> None:
    """Each line is a box that knows its indentation; the text stays the same to the
    last blank, and what a cell has printed is left alone."""
    code = '<span class="k">def</span> f():\n\n    <span class="k">pass</span>  \n'
    page = code_block(code)
    after = finish.finished(page)
    assert finish.TAG.sub("", after) == finish.TAG.sub("", page)
    assert after.count('<span class="line"') == 3
    assert '<span class="line" style="--deep:4">    <span class="k">pass' in after
    assert finish.finished(after) == after
    printed = code_block("a\n    b\n", "myst-ansi")
    assert finish.finished(printed) == printed


def test_names_hold_the_text_that_they_stand_for() -> None:
    """Fails when the theme's labels hide a text from a screen reader again, or when the
    exercises of a chapter are counted through the whole book."""
    fold = '<summary aria-label="Toggle hidden content">\n<p class="collapsed '
    fold += 'admonition-title">Show the source</p></summary>'
    assert finish.finished(fold) == (
        '<summary>\n<p class="collapsed admonition-title">Show the code</p></summary>'
    )
    entry = '<div class="citation" id="id6" role="doc-biblioentry">'
    assert finish.finished(entry).endswith('role="listitem">')
    number = '<span class="caption-number">Exercise {} </span>'
    page = finish.finished(number.format(56) + number.format(57), "13")
    assert page == number.format("13.1") + number.format("13.2")
    assert finish.finished(page, "13") == page


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Rei et al. (2020) [L]", "LRei et al. (2020)/"),
        ("(Rei et al. 2020) [L].", "(LRei et al. 2020/)."),
        ("(Rei et al. 2020 [L])", "(LRei et al. 2020/)"),
        ("Rei et al. (2021) [L]", None),  # another year
        ("Fan et al. (2020) [L]", None),  # another name
        ("as learned metrics do [L]", None),
    ],
)
def test_a_source_is_named_once(before: str, after: str | None) -> None:
    """Authors and year become the link, where they are those of the link."""
    link = '<span class="bibtex-citation" id="id1">{}<a href="#id2">'
    label = link.format("[") + "Rei <em>et al.</em>, 2020</a>]</span>"
    page = before.replace("[L]", label)
    wanted = page
    if after:
        wanted = after.replace("L", link.format("")).replace("/", "</a></span>")
    assert finish.finished(page) == wanted


# What stands beside a page ------------------------------------------------------------


def an_app(root: Path) -> SimpleNamespace:
    """As much of a Sphinx application as the services ask for."""
    (root / "CITATION.cff").write_text(
        "title: A book\nversion: 1.0\nrepository-code: https://example.org/book\n"
        "authors: [{name: Ada and Co.}]\n"
    )
    options = {"repository_url": "https://example.org/book"}
    config = SimpleNamespace(html_theme_options=options, copyright="2026")
    return SimpleNamespace(config=config, srcdir=str(root))


FIFTH = {"number": "05", "title": "Where & how"}


def test_a_chapter_tells_how_to_cite_it_and_where_to_discuss_it(tmp_path: Path) -> None:
    """Fails when a heading's signs break the address, when a page that is finished
    already gets everything twice, or when the entry is no BibTeX."""
    page = (
        '<h2>A &amp; <em>B</em>?<a class="headerlink" href="#a-b" title="Link">#</a>'
        f'</h2><p>Text.</p>{services.BEFORE}">'
    )
    app = an_app(tmp_path)
    after = services.served(page, FIFTH, app)
    assert 'issues/new?title=05%2C+A+%26+B%3F%3A+"' in after
    assert 'aria-label="Discuss: A &amp; B?"' in after
    assert after.index('class="cite"') < after.index(services.BEFORE)
    assert services.served(after, FIFTH, app) == after
    entry = services.citation(tmp_path, FIFTH, "2026")
    assert entry.count("{") == entry.count("}")
    assert "title = {{Where & how}}" in entry and "Chapter 5 of A book" in entry


def test_a_page_tells_when_its_text_last_changed(tmp_path: Path) -> None:
    """Fails when the day of the build is told, or a page without a commit ends in an
    error."""
    page = tmp_path / "page.md"
    page.write_text("Text.")
    assert services.changed_on(page) is None
    for words in (
        ["init", "-q"],
        ["add", "page.md"],
        ["-c", "user.name=A", "-c", "user.email=a@example.org", "commit", "-qm", "A"],
    ):
        day = {"GIT_COMMITTER_DATE": "2024-02-29T12:00:00+0000"}
        subprocess.run(["git", *words], cwd=tmp_path, check=True, env=os.environ | day)
    assert services.changed_on(page) == "February 29, 2024"


def test_the_copy_to_take_along_holds_the_site_once(site: Path) -> None:
    """Fails when a second build packs the first one's archive, or a file is missing."""
    for _ in range(2):
        archive = build_book.zip_site(site)
    names = set(zipfile.ZipFile(archive).namelist())
    there = {path for path in site.rglob("*") if path.is_file() and path != archive}
    assert names == {f"annotated-transformer/{p.relative_to(site)}" for p in there}


# The pages in a browser ---------------------------------------------------------------

WORDS = "word " * 60
PAGE = """<!doctype html><html lang="en"><head><title>A page</title><style>
pre {{ margin: 0; overflow-x: auto; color: {ink}; background: white; }}
</style></head><body><main><h1>Title</h1>
<div class="cell_input"><div><pre tabindex="0">{code}</pre></div></div>
{more}</main></body></html>"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, None),
        ({"code": WORDS}, "code cell scrolls sideways: 'word word"),
        ({"ink": "#ccc"}, "serious: color-contrast (1)"),
        ({"more": '<ul role="list"><p>x</p></ul>'}, "aria-required-children"),
        ({"more": '<button aria-label="go">Stop</button>'}, "label-content-name"),
        ({"more": "<script>nothing.at_all</script>"}, "script: "),
        ({"more": '<img src="gone.png" alt="x">'}, "answer 404: /gone.png"),
        ({"more": '<img src="http://example.org/a.png" alt="x">'}, "another host"),
        ({"more": '<p style="width: 2000px">x</p>'}, "the page scrolls sideways"),
    ],
)
def test_a_page_in_a_browser(
    tmp_path: Path, change: dict, expected: str | None
) -> None:
    """Nothing to find on a good page; one thing broken is found, and named."""
    browser = check_pages.find_browser()
    if browser is None:
        pytest.skip("no Chromium or Chrome found: the check of pages is not tried")
    text = PAGE.format(**{"ink": "#222", "code": "x = 1", "more": ""} | change)
    (tmp_path / "index.html").write_text(text)
    (tmp_path / "favicon.ico").write_bytes(b"")
    faults, counts = check_pages.check(tmp_path, browser)
    assert counts == {"pages": 1, "code cells": 1}
    if expected is None:
        assert faults == []
    else:
        assert faults and all(fault.startswith("index.html (") for fault in faults)
        assert any(expected in fault for fault in faults), faults


def test_no_browser_is_said_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    """Fails when a machine without a browser cannot build the book, or is not told."""
    monkeypatch.setenv("BOOK_BROWSER", str(tmp_path / "no-such-browser"))
    assert check_pages.main([str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert said.count("\n") == 1 and "Not checked in a browser" in said
    assert check_pages.main([str(tmp_path), "--require"]) == 2


# What a run depends on ----------------------------------------------------------------


def write_notebook(path: Path, *sources: str, chapter: dict | None = None) -> Path:
    """A notebook of code cells; a source that starts with `%%md` becomes a Markdown
    cell, one that prints folds what it prints."""
    markdown, code = nbformat.v4.new_markdown_cell, nbformat.v4.new_code_cell
    made = [
        markdown(text[4:].strip()) if text.startswith("%%md") else code(text)
        for text in sources
    ]
    for cell in made:
        if cell.cell_type == "code" and cell.source.startswith("print("):
            cell.metadata["tags"] = ["hide-output"]
    notebook = nbformat.v4.new_notebook(cells=made)
    notebook.metadata |= {
        "kernelspec": {
            "name": "python3",
            "display_name": "Python 3",
            "language": "python",
        }
    }
    notebook.metadata |= {"chapter": chapter} if chapter else {}
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, path)
    return path


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of three modules (b imports a, and through it a module of a folder that
    reads data; c stands alone), data, pins, and a notebook that imports b."""
    package = tmp_path / "annotated_transformer"
    (package / "paper").mkdir(parents=True)
    (package / "support").mkdir()
    for name, text in {
        "__init__": "",
        "__main__": "from . import c",
        "a": "from .support.d import x",
        "b": "from annotated_transformer.a import x",
        "c": "",
        "support/__init__": "",
        "support/d": "# ANNOTATED_TRANSFORMER_DATA",
        "support/e": "from ..b import y",
    }.items():
        (package / f"{name}.py").write_text(text)
    (package / "paper" / "facts.json").write_text("{}")
    (tmp_path / "requirements.txt").write_text("torch")
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("ANNOTATED_TRANSFORMER_DATA", str(tmp_path / "data"))
    write_notebook(
        tmp_path / "notebooks" / "01_x.ipynb", "from annotated_transformer.b import y"
    )
    return tmp_path


@pytest.mark.parametrize(
    ("file", "matters"),
    [
        ("annotated_transformer/b.py", True),
        ("annotated_transformer/a.py", True),  # through b
        ("annotated_transformer/support/d.py", True),  # through b and a
        ("annotated_transformer/support/__init__.py", True),
        ("annotated_transformer/__init__.py", True),
        ("annotated_transformer/paper/facts.json", True),
        ("requirements.txt", True),
        ("data/train.en", True),
        ("annotated_transformer/c.py", False),
        ("annotated_transformer/support/e.py", False),
        ("README.md", False),
    ],
)
def test_the_cache_key_follows_what_a_run_depends_on(
    project: Path, file: str, matters: bool
) -> None:
    """A change of a module, of data or of a pin changes the key; a change of something
    else does not."""
    notebook = project / "notebooks" / "01_x.ipynb"
    before = runs.run_key(notebook, project)
    assert before == runs.run_key(notebook, project)
    (project / file).write_text("# changed")
    assert (runs.run_key(notebook, project) != before) == matters


def test_corpora_matter_only_to_those_who_read_them(project: Path) -> None:
    """A download by one chapter does not make the others run again."""
    notebook = write_notebook(
        project / "notebooks" / "02_y.ipynb", "from annotated_transformer.c import z"
    )
    before = runs.run_key(notebook, project)
    (project / "data" / "train.en").write_text("A dog.")
    assert runs.run_key(notebook, project) == before


@pytest.mark.parametrize(
    "line",
    [
        "import annotated_transformer.b",
        "from annotated_transformer.b import y",
        "from annotated_transformer import (\n    c,\n    b,\n)",
        "def later():\n    from annotated_transformer.b import y",
        "%pip install x\nfrom annotated_transformer.support import e",
        "!ls\nx = (\n    7\n    % 2\n    != 1\n)\nimport annotated_transformer.b",
        "script = 'from annotated_transformer.support.e import y'",
    ],
)
def test_every_way_to_import_is_seen(project: Path, line: str) -> None:
    """The module behind the import is found, and what it imports in turn."""
    assert {path.stem for path in runs.modules_used(line, project)} >= {"a", "b", "d"}


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('run("annotated-transformer train x")', True),
        ('run([python, "-m", "annotated_transformer", "train"])', True),
        ('%pip install "annotated-transformer @ git+https://example.org"', False),
        ("annotated_transformer = 1", False),
    ],
)
def test_a_chapter_that_runs_a_command_depends_on_it(
    project: Path, line: str, found: bool
) -> None:
    """Fails when a change of the command line leaves the outputs of its chapter old."""
    names = {path.stem for path in runs.modules_used(line, project)}
    assert names == ({"__main__", "c"} if found else set())


def test_every_module_that_a_chapter_imports_is_seen() -> None:
    """In the real book: the package modules that Python loads for the transformer are
    among those that the key follows, and not all are."""
    code = "import annotated_transformer.transformer"
    paths = [path.relative_to(ROOT) for path in runs.modules_used(code, ROOT)]
    found = {
        ".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in paths
    }
    script = (
        "import sys, annotated_transformer.transformer\n"
        "print(*[m for m in sys.modules if m.startswith('annotated_')])"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    ).stdout
    assert found >= set(loaded.split()) - {"annotated_transformer"}
    assert "annotated_transformer.visualization" not in found


# Pages made from other files ----------------------------------------------------------

CHAPTER = {
    "number": "02",
    "title": "Attention",
    "promise": "A promise.",
    "module": None,
    "paper": "section 3.2",
    "prerequisites": [],
    "reading_minutes": 60,
    "exercise_minutes": 30,
    "running_minutes": "a minute",
    "objectives": ["explain attention"],
}


def test_the_table_of_contents_lists_every_notebook_once() -> None:
    """A notebook that is not in `_toc.yml` would be neither run nor rendered."""
    listed = [path.name for _, paths in pages.parts_of(ROOT) for path in paths]
    assert sorted(listed) == sorted(
        path.name for path in (ROOT / "notebooks").glob("*.ipynb")
    )
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    files = [entry["file"] for part in toc["parts"] for entry in part["chapters"]]
    assert all(
        (ROOT / f"{name}.ipynb").is_file() or (ROOT / f"{name}.md").is_file()
        for name in files
    )


def test_one_address_everywhere() -> None:
    """The repository's address of `pyproject.toml` is the one in every file that `make
    stamp` writes."""
    assert stamp.stamped_files(stamp.repository()) == {
        path: path.read_text(encoding="utf-8") for path in stamp.FILES
    }
    assert all(
        stamp.repository() in path.read_text(encoding="utf-8") for path in stamp.FILES
    )


def test_exercises_are_counted(tmp_path: Path) -> None:
    """Exercises in Markdown, and those with a solution between nbgrader's marks."""
    exercise = "%%md\n:::{exercise} One\n:label: ex-1\ntext\n:::"
    path = write_notebook(
        tmp_path / "x.ipynb",
        exercise,
        exercise.replace("1", "2"),
        "### BEGIN SOLUTION\nx = 1",
    )
    assert pages.exercises_in(path) == (2, 1)


def test_what_a_hand_written_module_offers() -> None:
    """Functions, classes and documented data; nothing private, no import."""
    code = 'import os\nA = 1\n"""A."""\nB = 2\n_C = 3\n"""C."""\n'
    code += "def f(): pass\nclass D: pass\ndef _g(): pass\n"
    kinds = {"A": "autodata", "f": "autofunction", "D": "autoclass"}
    assert pages.public_names(code) == kinds


def test_the_course_has_each_chapter_once() -> None:
    """Fails when the weekly plan forgets a chapter on the paper, or names one twice."""
    planned = " ".join(pages.WEEKS).split()
    numbers = {chapter["number"] for _, chapter in pages.chapters_of(ROOT)}
    assert len(planned) == len(set(planned)) and set(planned) <= numbers
    assert {f"{number:02d}" for number in range(20)} <= set(planned)
    assert pages.weeks(ROOT).count("ipynb") == len(planned)
    assert pages.points_of(5, 3) == 16


def test_the_ledger_fills_the_paper_map() -> None:
    """Each entry of the ledger is a row, and each status in use is one that the page
    explains, with its sign."""
    entries = [entry for group in pages.ledger_of(ROOT).values() for entry in group]
    used = {entry["status"] for entry in entries}
    page = pages.paper_map(ROOT)
    assert used <= set(pages.STATUSES) == set(picture.SIGNS)
    assert page.count("{bdg-") == len(entries) + len(used)
    assert page.count("<svg ") == len(used)


@pytest.mark.parametrize("columns", [2, 4])
def test_the_picture_of_the_paper(columns: int) -> None:
    """One box for each entry, with the sign of its status and a link; no box on top of
    another or outside of the picture, and no line of text wider than its box."""
    entries = [entry for group in pages.ledger_of(ROOT).values() for entry in group]
    svg = ElementTree.fromstring(
        picture.picture(pages.ledger_of(ROOT), columns, lambda entry: entry["notebook"])
    )
    boxes = svg.findall("a")
    assert sorted(box.get("href") for box in boxes) == sorted(
        entry["notebook"] for entry in entries
    )
    shown = sorted((box.get("class"), box.find("path").get("d")) for box in boxes)
    assert shown == sorted(
        (picture.css_class(e["status"]), picture.SIGNS[e["status"]]) for e in entries
    )
    width, height = map(int, svg.get("viewBox").split()[2:])
    corners = [
        tuple(int(box.find("rect").get(side)) for side in ("x", "y", "width", "height"))
        for box in boxes
    ]
    assert all(
        x >= 0 and y >= 0 and x + w <= width and y + h <= height
        for x, y, w, h in corners
    )
    for number, (x, y, w, h) in enumerate(corners):
        assert all(
            x + w <= a or a + c <= x or y + h <= b or b + d <= y
            for a, b, c, d in corners[:number]
        )
    assert all(
        len(line.text) <= picture.LETTERS
        for box in boxes
        for line in box.findall("text")
    )


# A student's copy ---------------------------------------------------------------------


def test_a_students_copy_has_no_solution(tmp_path: Path) -> None:
    """Solutions and answers go, the rest stays, and the copy fails where the student
    has to work."""
    solution = (
        "# @title Solution\ndef f():\n"
        "    ### BEGIN SOLUTION\n    return 42\n    ### END SOLUTION"
    )
    answer = "%%md\nWhy?\n\n:::{dropdown} Answer\nBecause of 42.\n:::\n\nMore."
    path = write_notebook(tmp_path / "x.ipynb", answer, solution, "assert f() == 42")
    copy = student.student_copy(nbformat.read(path, 4))
    assert [cell.source for cell in copy.cells[:1]] == ["Why?\n\n\nMore."]
    assert (
        "return 42" not in copy.cells[1].source
        and "NotImplementedError" in copy.cells[1].source
    )
    assert (
        "SOLUTION" not in json.dumps(copy)
        and copy.cells[2].source == "assert f() == 42"
    )


def test_no_solution_is_left_in_any_chapters_copy() -> None:
    """The real notebooks: no mark, no answer."""
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        text = json.dumps(student.student_copy(nbformat.read(path, 4)))
        assert "BEGIN SOLUTION" not in text and "{dropdown} Answer" not in text, (
            path.name
        )


# A tiny book, built for real ----------------------------------------------------------


def build(folder: Path) -> tuple[int, str]:
    """Build the book in a folder with warnings as errors; returns the exit code and
    what was said."""
    command = [
        str(Path(sys.executable).parent / "jupyter-book"),
        "build",
        ".",
        "-W",
        "-n",
        "--keep-going",
    ]
    environment = os.environ | {"PYTHONPATH": str(folder), "NO_COLOR": "1"}
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_a_tiny_book(tmp_path: Path) -> None:
    """A notebook through the whole chain: quotation, marks, links to the API page and
    back, a hidden cell, a chart that loads from the site itself, a folded output; then
    with a failing cell, which must fail the build."""
    (tmp_path / "book").mkdir()
    for name in [
        "_config.yml",
        "CITATION.cff",
        "book/_ext",
        "book/_static",
        "book/references.bib",
        "book/api.md",
        "book/support.md",
        "book/glossary.yml",
    ]:
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "requirements.txt").write_text("")
    (tmp_path / "annotated_transformer").mkdir()
    (tmp_path / "annotated_transformer" / "__init__.py").write_text("")
    (tmp_path / "annotated_transformer" / "support").mkdir()
    (tmp_path / "annotated_transformer" / "support" / "checks.py").write_text(
        '"""Checks.\n\nMore."""\ndef check(x: int) -> None:\n    """Check ``x``."""\n'
    )
    function = (
        'def twice(x: int) -> int:\n    """Two times ``x``."""\n    return 2 * x\n'
    )
    (tmp_path / "annotated_transformer" / "tiny.py").write_text(
        f"__all__ = ['twice']\n{function}"
    )
    names = ["notebooks/02_x", "book/api", "book/support"]
    files = [{"file": name} for name in names]
    toc = {
        "format": "jb-book",
        "root": "index",
        "parts": [{"caption": "Part", "chapters": files}],
    }
    (tmp_path / "_toc.yml").write_text(yaml.safe_dump(toc))
    (tmp_path / "index.md").write_text("# Book\n\n<!-- book: chapter-map -->\n")
    chart = "{'text/html': '<div id=\"x\"></div><script>vegaEmbed</script>'}"
    sources = [
        "%%md\n# Attention\n\n> A promise.\n\nFacts.\n\n"
        '> "Some words." -- section 3.2.1',
        "#| default_exp tiny\nimport sys",
        "%%md\nWhat twice means.",
        f"# NBVAL_SKIP\n#| export\n{function}",
        "#| hide\nhidden_name = 2",
        f"from IPython.display import display\ndisplay({chart}, raw=True)",
        "### BEGIN SOLUTION\nanswer = hidden_name\n### END SOLUTION",
        "print('the answer is', 6 * 7)",
    ]
    notebook = write_notebook(
        tmp_path / "notebooks" / "02_x.ipynb",
        *sources,
        chapter=CHAPTER | {"module": "tiny"},
    )
    code, said = build(tmp_path)
    assert code == 0, said
    html = (tmp_path / "_build" / "html" / "notebooks" / "02_x.html").read_text()
    assert (
        '<blockquote class="paper">' in html
        and '<p class="attribution">' in html
        and "2. Attention" in html
    )
    assert 'id="explains-tiny-twice">What twice means.' in html
    assert 'href="../book/api.html#annotated_transformer.tiny.twice"' in html
    folded = html.partition("Show the output")[2].partition("</details>")[0]
    assert "the answer is 42" in folded  # a prediction's answer, until asked for
    assert '<details class="admonition hide below-input">' in html
    assert html.count("hidden_name") == 1  # in the solution; the hidden cell is gone
    assert not any(mark in html for mark in ("NBVAL", "#| ", "BEGIN SOLUTION", "thebe"))
    assert (
        "_static/charts-" in html
        and (tmp_path / "_build/html/_static/mathjax/tex-mml-chtml.js").is_file()
    )
    api = (tmp_path / "_build" / "html" / "book" / "api.html").read_text()
    assert (
        'href="../notebooks/02_x.html#explains-tiny-twice"' in api
        and "_static/charts-" not in api
    )
    support = (tmp_path / "_build" / "html" / "book" / "support.html").read_text()
    assert 'id="annotated_transformer.support.checks.check"' in support
    assert check_site.check(tmp_path / "_build" / "html")[0] == []

    write_notebook(
        notebook,
        *sources,
        "assert hidden_name == 3",
        chapter=CHAPTER | {"module": "tiny"},
    )
    code, said = build(tmp_path)
    assert code != 0 and "AssertionError" in said
