"""The pages that are made from other files, so that no list in the book is kept by
hand.

A page holds a comment such as `<!-- book: paper-map -->`; when Sphinx reads the page,
the comment is replaced by Markdown made from the ledger, from the notebooks' metadata
or from the package's modules.
"""

import ast
import hashlib
import json
import platform
import re
from collections import Counter
from importlib.metadata import version
from pathlib import Path

import yaml
from docutils import nodes
from myst_nb.sphinx_ import NbMetadataCollector
from myst_parser.mdit_to_docutils.base import default_slugify
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective

from . import cells, glossary, picture

PLACE = re.compile(r"<!-- book: ([\w-]+) -->")
STATUSES = {
    "implemented": "built in the package, and tested",
    "measured": "recomputed or measured by a cell",
    "deviates": "the book does otherwise; the reason is given",
    "prose only": "told; there is nothing to run",
}


# Notebooks ----------------------------------------------------------------------------


def parts_of(root: Path) -> list[tuple[str, list[Path]]]:
    """The book's parts in order, each with its notebooks, as `_toc.yml` lists them."""
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    parts = [
        (part.get("caption", ""), part["chapters"])
        for part in toc.get("parts", [{"chapters": toc.get("chapters", [])}])
    ]
    found = [
        (name, [root / f"{entry['file']}.ipynb" for entry in chapters])
        for name, chapters in parts
    ]
    return [(name, [path for path in paths if path.is_file()]) for name, paths in found]


def chapters_of(root: Path) -> list[tuple[Path, dict]]:
    """Every chapter's notebook with its `chapter` metadata, in the book's order."""
    paths = [path for _, paths in parts_of(root) for path in paths]
    return [(path, read(path)["metadata"]["chapter"]) for path in paths]


def read(notebook: Path) -> dict:
    """A notebook, as JSON."""
    return json.loads(notebook.read_text(encoding="utf-8"))


def sources(notebook: Path, kind: str) -> list[str]:
    """The sources of all cells of one kind."""
    return [
        "".join(cell["source"])
        for cell in read(notebook)["cells"]
        if cell["cell_type"] == kind
    ]


def headings(notebook: Path) -> list[str]:
    """The headings of a notebook below its title."""
    text = "\n\n".join(sources(notebook, "markdown"))
    return [found.strip() for found in re.findall(r"^##+ (.+)$", text, re.M)]


def numbered(chapter: dict) -> str:
    """The chapter's title with its number, as the table of contents shows it."""
    number = chapter["number"].lstrip("0")
    return f"{number}. {chapter['title']}" if number else chapter["title"]


def slug(heading: str) -> str:
    """The anchor that MyST gives to a heading; formulas do not count."""
    return default_slugify(re.sub(r"\$[^$]*\$|[`*]", "", heading))


# The landing page ---------------------------------------------------------------------


def chapter_map(root: Path) -> str:
    """One card for each chapter: number, title, promise, time."""
    blocks = []
    for name, paths in parts_of(root):
        if not paths:
            continue
        blocks += [
            f"## {name}",
            "",
            ":::::{grid} 1 1 2 2",
            ":gutter: 2",
            ":class-container: chapter-map",
            "",
        ]
        for path in paths:
            chapter = read(path)["metadata"]["chapter"]
            blocks += [
                f"::::{{grid-item-card}} {numbered(chapter)}",
                f":link: /notebooks/{path.stem}",
                ":link-type: doc",
            ]
            blocks += ["", chapter["promise"], ""]
            blocks += [
                ":::{card-footer}",
                times_of(chapter),
                ":::",
                "::::",
            ]
        blocks += [":::::", ""]
    return "\n".join(blocks)


def times_of(chapter: dict) -> str:
    """How long a chapter takes, for its card."""
    reading, work = (chapter.get(f"{kind}_minutes") for kind in ("reading", "exercise"))
    return f"{reading} minutes" + (f", {work} more for the exercises" if work else "")


# For instructors ----------------------------------------------------------------------


def exercises_in(notebook: Path) -> tuple[int, int]:
    """How many exercises a notebook has, and how many of them are graded by a check
    cell."""
    exercises = sum(
        len(re.findall(r"^:::+\{exercise\}", text, re.M))
        for text in sources(notebook, "markdown")
    )
    return exercises, sum(
        "### BEGIN SOLUTION" in text for text in sources(notebook, "code")
    )


def instructors(root: Path) -> str:
    """A table of chapters for planning a course, then each chapter's objectives."""
    chapters = chapters_of(root)
    rows = [
        "| chapter | needs | reading | exercises | in code | points | running |",
        "|---|---|---:|---:|---:|---:|---|",
    ]
    goals = [
        "## Objectives",
        "",
        "After each chapter, students are able to do the following.",
    ]
    for path, chapter in chapters:
        link = f"[{numbered(chapter)}](../notebooks/{path.name})"
        needs = ", ".join(
            f"[{name.split('_')[0].lstrip('0') or '0'}](../notebooks/{name}.ipynb)"
            for name in chapter["prerequisites"]
        )
        exercises, graded = exercises_in(path)
        rows.append(
            f"| {link} | {needs or 'none'} | {chapter['reading_minutes']} min "
            f"| {exercises}: {chapter.get('exercise_minutes', 0)} min | {graded} "
            f"| {points_of(exercises, graded)} | {chapter['running_minutes']} |"
        )
        goals += [
            "",
            f"### {numbered(chapter)}",
            "",
            *(f"- {goal}" for goal in chapter["objectives"]),
        ]
    reading, work = (
        sum(chapter.get(f"{kind}_minutes", 0) for _, chapter in chapters) / 60
        for kind in ("reading", "exercise")
    )
    rows += [
        "",
        f"Reading everything takes about {round(reading)} hours, all the exercises "
        f"about {round(work)} more.",
    ]
    return "\n".join([*rows, "", *goals])


def points_of(exercises: int, graded: int) -> int:
    """The points of a chapter: two for an exercise in words, four for one in code."""
    return 2 * max(exercises - graded, 0) + 4 * graded


# Twelve weeks, by the chapters' numbers.
WEEKS = ["00 B 01", "02 03", "04 05", "06", "07 08", "09 10", "11"]
WEEKS += ["12 13", "14", "15 16", "17 18", "19"]


def weeks(root: Path) -> str:
    """A course of twelve weeks, with the hours that each asks for."""
    chapters = {
        chapter["number"]: (path, chapter) for path, chapter in chapters_of(root)
    }
    lines = ["| week | chapters | hours at home |", "|---:|---|---:|"]
    for week, numbers in enumerate(WEEKS, 1):
        found = [chapters[number] for number in numbers.split()]
        links = [f"[{numbered(c)}](../notebooks/{path.name})" for path, c in found]
        minutes = sum(
            chapter["reading_minutes"] + chapter.get("exercise_minutes", 0)
            for _, chapter in found
        )
        lines.append(f"| {week} | {', '.join(links)} | {round(minutes / 30) / 2} |")
    return "\n".join(lines)


# The paper map ------------------------------------------------------------------------


class PaperPicture(nodes.General, nodes.Element):
    """Stands where the picture of the paper goes, until all notebooks have been read
    and their headings are known."""


class PaperPictureDirective(SphinxDirective):
    """Marks the place of that picture."""

    def run(self) -> list[nodes.Node]:
        """Leave the mark."""
        return [PaperPicture()]


def ledger_of(root: Path) -> dict[str, list[dict]]:
    """The ledger: entries by kind."""
    return yaml.safe_load((root / "book" / "ledger.yml").read_text(encoding="utf-8"))


def address_of(entry: dict, app: Sphinx, docname: str) -> str:
    """The address of a ledger entry's place in the book, seen from a page."""
    target = f"notebooks/{entry['notebook']}"
    _, anchor, _ = app.env.metadata[target]["myst_slugs"][slug(entry["heading"])]
    return f"{app.builder.get_relative_uri(docname, target)}#{anchor}"


def fill_picture(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Put the picture of the paper in its place: once wide, once for a phone; the style
    sheet shows one of them."""
    for node in list(doctree.findall(PaperPicture)):
        ledger = ledger_of(Path(app.srcdir))
        drawn = [
            picture.picture(
                ledger, columns, lambda entry: address_of(entry, app, docname)
            )
            for columns in (4, 2)
        ]
        node.replace_self(
            nodes.raw(
                "", f'<div class="paper-picture">{"".join(drawn)}</div>', format="html"
            )
        )


def paper_map(root: Path) -> str:
    """The ledger as a picture and as tables: what the paper says, where the book takes
    it up, and what became of it."""
    ledger = ledger_of(root)
    counts = Counter(
        entry["status"] for entries in ledger.values() for entry in entries
    )
    lines = ["| status | meaning | entries |", "|---|---|---:|"]
    lines += [
        f"| {picture.sign(name)} {badge(name)} | {meaning} | {counts[name]} |"
        for name, meaning in STATUSES.items()
        if counts[name]
    ]
    lines += ["", ":::{paper-picture}", ":::"]
    for kind, entries in ledger.items():
        lines += [
            "",
            f"## {kind.capitalize()}",
            "",
            "| paper | in the book |",
            "|---|---|",
        ]
        for entry in entries:
            name = entry["paper"][:1].upper() + entry["paper"][1:]
            lines.append(
                f"| **{name}** {entry['title']}<br>{badge(entry['status'])} "
                f"| {place(entry, root)} |"
            )
    return "\n".join(lines)


def badge(status: str) -> str:
    """A status as a small label."""
    looks = {"implemented": "success", "measured": "primary", "deviates": "warning"}
    return f"{{bdg-{looks.get(status, 'primary-line')}}}`{status}`"


def place(entry: dict, root: Path) -> str:
    """The place of a ledger entry in the book: heading, symbol, note."""
    parts = []
    path = root / "notebooks" / f"{entry.get('notebook')}.ipynb"
    if path.is_file():
        chapter, heading = read(path)["metadata"]["chapter"], entry.get("heading")
        anchor = f"#{slug(heading)}" if heading in headings(path) else ""
        number = chapter["number"].lstrip("0") or "Tour"
        parts.append(
            f"[{number} · {heading or chapter['title']}]"
            f"(../notebooks/{path.name}{anchor})"
        )
    symbol = entry.get("symbol")
    if symbol:
        parts.append(f"{{py:obj}}`{symbol.split('.', 2)[-1]} <{symbol}>`")
    if entry.get("note"):
        parts.append(entry["note"].replace("|", "\\|").strip())
    return "<br>".join(parts) or "-"


# The API page -------------------------------------------------------------------------


def exported_by(notebook: Path) -> list[str]:
    """The names that a notebook exports to the package, in its order."""
    names = []
    for code in sources(notebook, "code"):
        if cells.is_exported(code) and not cells.is_private(code):
            names += cells.definitions(cells.stripped(code))
    return list(dict.fromkeys(names))


def api(root: Path) -> str:
    """Every module of the package with its public definitions, as directives for
    autodoc."""
    lines = []
    for path, chapter in chapters_of(root):
        module = chapter.get("module")
        file = root / "annotated_transformer" / f"{module}.py"
        if not module or not file.is_file():
            continue
        classes = set(
            re.findall(r"^class (\w+)", file.read_text(encoding="utf-8"), re.M)
        )  # BERT is one, too
        full = f"annotated_transformer.{module}"
        lines += [
            f"## {module}",
            "",
            f"From [{numbered(chapter)}](../notebooks/{path.name}). "
            f"{chapter['promise']}",
            "",
        ]
        lines += ["```{eval-rst}", f".. py:module:: {full}", ""]
        for name in exported_by(path):
            kind = (
                "autoclass"
                if name in classes
                else "autodata"
                if name.isupper()
                else "autofunction"
            )
            options = ["   :members:"] if kind == "autoclass" else []
            lines += [f".. {kind}:: {full}.{name}", *options, ""]
        lines += ["```", ""]
    return "\n".join(lines) or "The package has no module yet."


def public_names(code: str) -> dict[str, str]:
    """What a hand-written module offers, with the directive of autodoc for each: all
    public functions and classes, and the data that has a docstring."""
    found, body = {}, ast.parse(code).body
    for node, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.FunctionDef):
            found[node.name] = "autofunction"
        elif isinstance(node, ast.ClassDef):
            found[node.name] = "autoclass"
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            value = following.value if isinstance(following, ast.Expr) else None
            if isinstance(target, ast.Name) and isinstance(value, ast.Constant):
                found[target.id] = "autodata"
    return {name: kind for name, kind in found.items() if not name.startswith("_")}


def support(root: Path) -> str:
    """The hand-written modules, each with what it is for and what it offers."""
    lines = []
    for file in sorted((root / "annotated_transformer" / "support").glob("[!_]*.py")):
        code = file.read_text(encoding="utf-8")
        full = f"annotated_transformer.support.{file.stem}"
        about = (ast.get_docstring(ast.parse(code)) or "").partition("\n\n")[0]
        lines += [f"## {file.stem}", "", "```{eval-rst}", f".. py:module:: {full}", ""]
        lines += [about, ""]
        for name, kind in public_names(code).items():
            options = ["   :members:"] if kind == "autoclass" else []
            lines += [f".. {kind}:: {full}.{name}", *options, ""]
        lines += ["```", ""]
    return "\n".join(lines) or "There is nothing yet."


def lead_back(
    app: Sphinx, what: str, name: str, thing: object, options: dict, lines: list[str]
) -> None:
    """End the docstring of each exported definition with a link to the paragraph that
    explains it."""
    module, _, own_name = name.removeprefix("annotated_transformer.").partition(".")
    for path, chapter in chapters_of(Path(app.srcdir)):
        if chapter.get("module") == module and own_name in exported_by(path):
            label = cells.label_of(module, own_name)
            lines += ["", f"Explained in :ref:`{numbered(chapter)} <{label}>`.", ""]


# Build and timing ---------------------------------------------------------------------


class ChapterTimes(nodes.General, nodes.Element):
    """Stands where the table of seconds per chapter goes, until all notebooks have been
    read."""


class ChapterTimesDirective(SphinxDirective):
    """Marks the place of that table."""

    def run(self) -> list[nodes.Node]:
        """Leave the mark."""
        return [ChapterTimes()]


def versions(root: Path) -> str:
    """What the book was built with."""
    names = [
        "torch",
        "numpy",
        "sentencepiece",
        "matplotlib",
        "altair",
        "jupyter-book",
        "sphinx",
        "myst-nb",
        "nbdev",
    ]
    rows = [f"| {name} | {version(name)} |" for name in names]
    return "\n".join(
        [
            "| package | version |",
            "|---|---|",
            f"| Python | {platform.python_version()} |",
            *rows,
        ]
    )


def seconds_of(env: BuildEnvironment) -> dict[str, float]:
    """How long each notebook ran, for all that have been run."""
    found = {
        name: data.get("exec_data")
        for name, data in NbMetadataCollector.get_doc_data(env).items()
    }
    return {
        name: data["runtime"]
        for name, data in found.items()
        if data and data.get("runtime")
    }


def fill_times(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Put the table of seconds per chapter in its place."""
    for node in list(doctree.findall(ChapterTimes)):
        seconds = seconds_of(app.env)
        rows = []
        for path, chapter in chapters_of(Path(app.srcdir)):
            name = f"notebooks/{path.stem}"
            if name in seconds:
                uri = app.builder.get_relative_uri(docname, name)
                link = nodes.reference("", numbered(chapter), refuri=uri, internal=True)
                rows.append(
                    (
                        [link],
                        [nodes.Text(f"{seconds[name]:.1f}")],
                        [nodes.Text(chapter["running_minutes"])],
                    )
                )
        total = nodes.Text(f"{sum(seconds.values()):.1f}")
        rows.append(([nodes.strong("", "Together")], [total], [nodes.Text("")]))
        node.replace_self(table(["chapter", "seconds in this build", "promised"], rows))


def table(heads: list[str], rows: list[tuple]) -> nodes.table:
    """A plain docutils table."""
    result, group = nodes.table(classes=["table"]), nodes.tgroup(cols=len(heads))
    group += [nodes.colspec(colwidth=1) for _ in heads]
    lines = [[[nodes.Text(head)] for head in heads], *rows]
    made = [
        nodes.row(
            "", *(nodes.entry("", nodes.paragraph("", "", *cell)) for cell in line)
        )
        for line in lines
    ]
    group += [nodes.thead("", made[0]), nodes.tbody("", *made[1:])]
    result += group
    return result


def times_page(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Write the timing page again when a notebook has been run again."""
    changed = getattr(env, "book_seconds", None) != seconds_of(env)
    env.book_seconds = seconds_of(env)
    return [page for page in ["book/build"] if changed and page in env.found_docs]


# Filling in ---------------------------------------------------------------------------

MAKERS = {
    "chapter-map": chapter_map,
    "instructors": instructors,
    "weeks": weeks,
    "paper-map": paper_map,
    "glossary": lambda root: glossary.page(root),
    "api": api,
    "support": support,
    "versions": versions,
}


def filled(text: str, docname: str, root: Path, env: BuildEnvironment) -> str:
    """A page's source with its generated parts filled in; `env` remembers what was
    filled in."""
    kinds = PLACE.findall(text)
    if not kinds:
        return text
    text = PLACE.sub(lambda found: MAKERS[found[1]](root), text)
    env.book_pages = getattr(env, "book_pages", {}) | {
        docname: (kinds, _digest(kinds, root))
    }
    return text


def _digest(kinds: list[str], root: Path) -> str:
    """A hash of what is filled in, and of the docstrings behind the API page."""
    parts = [MAKERS[kind](root) for kind in kinds]
    if {"api", "support"} & set(kinds):
        parts += [
            path.read_text(encoding="utf-8")
            for path in sorted((root / "annotated_transformer").rglob("*.py"))
        ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def outdated(env: BuildEnvironment, root: Path) -> list[str]:
    """The pages whose generated parts would come out otherwise now."""
    known = {
        name: page
        for name, page in getattr(env, "book_pages", {}).items()
        if name in env.found_docs
    }
    return [
        name
        for name, (kinds, digest) in known.items()
        if _digest(kinds, root) != digest
    ]
