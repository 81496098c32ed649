"""What readers expect beside a page: when it last changed, how to cite it, and where to
discuss a section."""

import re
import shutil
import subprocess
from datetime import date
from html import escape, unescape
from pathlib import Path
from urllib.parse import urlencode

import yaml
from docutils import nodes
from sphinx.application import Sphinx

HEADING = re.compile(r'(<h2>)(.*?)(<a class="headerlink"[^>]*>#</a>)(</h2>)', re.S)
TAG = re.compile(r"<[^>]*>")
BEFORE = '<footer class="prev-next-footer'


def changed_on(path: Path) -> str | None:
    """The day of the last commit that changed a file; None where there is no git, or
    the file is in no commit."""
    if not shutil.which("git"):
        return None
    command = ["git", "log", "-1", "--format=%cs", "--", path.name]
    done = subprocess.run(
        command, cwd=path.parent, capture_output=True, text=True, check=False
    )
    day = done.stdout.strip()
    return f"{date.fromisoformat(day):%B %d, %Y}" if day else None


def tell_the_day(
    app: Sphinx,
    pagename: str,
    templatename: str,
    context: dict,
    doctree: nodes.document | None,
) -> None:
    """Below each page: the day on which its text last changed, not that of the
    build."""
    if "last_updated" in context:
        known = pagename in app.env.found_docs
        context["last_updated"] = (
            changed_on(Path(app.env.doc2path(pagename))) if known else None
        )


def citation(root: Path, chapter: dict, year: str) -> str:
    """A BibTeX entry for a chapter, from CITATION.cff."""
    facts = yaml.safe_load((root / "CITATION.cff").read_text(encoding="utf-8"))
    number = chapter["number"].lstrip("0")
    place = "The tour" if not number else f"Chapter {number}"
    place = place if number[:1].isdigit() or not number else f"Appendix {number}"
    fields = {
        "title": f"{{{chapter['title']}}}",
        "author": "{" + " and ".join(a["name"] for a in facts["authors"]) + "}",
        "howpublished": f"{place} of {facts['title']}, version {facts['version']}",
        "year": year,
        "url": facts["repository-code"],
    }
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items()]
    key = f"annotated-transformer-{chapter['number']}"
    return "\n".join([f"@misc{{{key},", *lines, "}"])


def served(html: str, chapter: dict, app: Sphinx) -> str:
    """The page of a chapter with a link to discuss each section, and what to cite at
    its end. A page that has both stays as it is."""
    if 'class="cite"' in html:
        return html
    repository = app.config.html_theme_options["repository_url"]

    def with_link(found: re.Match) -> str:
        section = unescape(TAG.sub("", found[2])).strip()
        query = urlencode({"title": f"{chapter['number']}, {section}: "})
        link = (
            f'<a class="discuss" href="{escape(repository)}/issues/new?{query}" '
            f'title="Discuss this section" aria-label="Discuss: {escape(section)}">'
            '<i class="fa-regular fa-comment" aria-hidden="true"></i></a>'
        )
        return found[1] + found[2] + found[3] + link + found[4]

    html = HEADING.sub(with_link, html)
    entry = escape(citation(Path(app.srcdir), chapter, app.config.copyright))
    cite = (
        '<details class="cite"><summary>Cite this chapter</summary>'
        f'<pre tabindex="0">{entry}</pre></details>\n'
    )
    return html.replace(BEFORE, cite + BEFORE, 1)
