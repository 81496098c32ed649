"""The Sphinx extension of this book. Its parts:

- `runs`: what a notebook's run depends on, so that outputs are kept exactly as long as
  they are true;
- `cells`: what the reader sees of a notebook's cells, quotations and header;
- `pages`: the pages made from other files (paper map, glossary, instructors, API,
  timing);
- `picture`: the paper as a picture, for the paper map;
- `assets`: scripts and fonts, all from the site itself;
- `services`: when a page last changed, how to cite it, where to discuss it;
- `finish`: the last hand at each page's HTML.
"""

import json
import sys
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from . import assets, cells, finish, glossary, pages, runs, services

__all__ = ["setup"]


def read_source(app: Sphinx, docname: str, source: list[str]) -> None:
    """Before a page is read: name a notebook's cache, or fill in the generated part of
    another page."""
    path, root = Path(app.env.doc2path(docname)), Path(app.srcdir)
    if path.suffix != ".ipynb":
        source[0] = pages.filled(source[0], docname, root, app.env)
        return
    notebook = json.loads(source[0])
    folder = runs.cache_folder(path, root)
    notebook["metadata"].setdefault("mystnb", {})["execution_cache_path"] = str(folder)
    source[0] = json.dumps(notebook)
    app.env.book_runs = getattr(app.env, "book_runs", {}) | {docname: folder.name}
    chapter = notebook["metadata"].get("chapter")
    app.env.book_chapters = getattr(app.env, "book_chapters", {}) | {docname: chapter}


def find_outdated(
    app: Sphinx, env: BuildEnvironment, added: set, changed: set, removed: set
) -> list[str]:
    """The pages to read again although their own file is unchanged: what they depend on
    has changed."""
    if added or removed:  # links are looked up when a page is read
        return sorted(env.found_docs - added)
    known, root = getattr(env, "book_runs", {}), Path(app.srcdir)
    there = [docname for docname in known if docname in env.found_docs]
    moved = [
        name
        for name in there
        if runs.cache_folder(Path(env.doc2path(name)), root).name != known[name]
    ]
    terms, env.book_terms = getattr(env, "book_terms", None), glossary.entries(root)
    if terms != env.book_terms:  # the chapters carry the anchors of the terms
        moved = there
    return moved + pages.outdated(env, root)


def setup(app: Sphinx) -> dict:
    """Connect the parts to Sphinx."""
    # The package beside the book is the one that the API page documents.
    sys.path.insert(0, str(app.srcdir))
    app.connect("source-read", read_source)
    app.connect("env-get-outdated", find_outdated)
    # Before Sphinx collects titles and labels.
    app.connect("doctree-read", cells.rework, priority=100)
    app.connect("doctree-read", glossary.anchor_terms, priority=200)
    app.connect("doctree-read", assets.find_charts)
    app.connect("builder-inited", assets.copy_mathjax)
    app.connect("builder-inited", assets.write_charts_bundle)
    app.connect("doctree-resolved", assets.drop_thebe, priority=900)
    # After thebe and the theme.
    app.connect("html-page-context", assets.tend_scripts, priority=900)
    app.connect("html-page-context", services.tell_the_day, priority=900)
    app.connect("doctree-resolved", pages.fill_times)
    app.connect("doctree-resolved", pages.fill_picture)
    app.connect("env-updated", pages.times_page)
    app.connect("build-finished", assets.drop_icon_script)
    app.connect("build-finished", finish.finish_pages)
    app.connect("autodoc-process-docstring", pages.lead_back)
    app.add_node(pages.ChapterTimes)
    app.add_directive("chapter-times", pages.ChapterTimesDirective)
    app.add_node(pages.PaperPicture)
    app.add_directive("paper-picture", pages.PaperPictureDirective)
    return {"version": "1", "parallel_read_safe": False, "parallel_write_safe": True}
