"""The last hand at each page's HTML, after everything else has written it: what a style
sheet cannot do, and what a screen reader needs. Plain text in, plain text out."""

import itertools
import re
from pathlib import Path

from sphinx.application import Sphinx

from . import cells, services

# What Pygments wrote: code in any language, but no output of a cell.
CODE = re.compile(
    r'(<div class="highlight-(?!myst-ansi|none|text|default)[\w+-]+ notranslate">'
    r'<div class="highlight"><pre><span></span>)(.*?)(</pre>)',
    re.S,
)
EXERCISE = re.compile(r'(<span class="caption-number">Exercise )\d+ <')
# Authors and year in the text, for those who read in Colab, and the same once more as a
# link: `Rei et al. (2020) [Rei et al., 2020]`.
CITED = re.compile(
    r"(?P<who>(?P<first>[A-Z][\w'-]+)(?: and [A-Z][\w'-]+| et al\.)?) "
    r"(?P<open>\(?)(?P<year>\d{4})(?P<close>\)?) "
    r'(?P<span><span class="bibtex-citation" id="[^"]*">)\[(?P<link><a [^>]*>)'
    r"(?P<label>(?P=first)[^\[\]]*(?P=year)\w?)</a>\]</span>"
)
TAG = re.compile(r"<[^>]*>")
# What a screen reader stumbles over. Names that say less than the text they stand for
# (a voice command would not find them), and entries of a list that do not call
# themselves so.
REPAIRS = [
    (
        re.compile(r'(<div class="citation"[^>]*) role="doc-biblioentry"'),
        r'\1 role="listitem"',
    ),
    (re.compile(r'(<a [^>]*?) aria-label="([^"]*)"(>\s*<title>\2</title>)'), r"\1\3"),
    (re.compile(r'(<summary)[^>]* aria-label="Toggle hidden content"'), r"\1"),
    (
        re.compile(r'(<p class="\w+ admonition-title">\w+ the) source</p>'),
        r"\1 code</p>",
    ),
    (
        re.compile(r'(<button class="[^"]*search-button-field[^>]*) aria-label="\w*"'),
        r"\1",
    ),
]


def in_lines(code: str) -> str:
    """Highlighted code with a box around each line that knows how far it is indented,
    so that on a narrow page it can break and go on further in.

    Pygments closes and opens its own boxes at the end of each line, so each stands
    alone.
    """
    made = []
    for line in code.split("\n")[:-1]:
        text = TAG.sub("", line)
        deep = len(text) - len(text.lstrip(" "))
        looks = f' style="--deep:{deep}"' if deep else ""
        made.append(f'<span class="line"{looks}>{line}\n</span>')
    return "".join(made)


def cited_once(found: re.Match) -> str:
    """Authors and year as the link that stood behind them."""
    part = found.groupdict()
    inside = part["close"] if part["open"] else ""
    words = f"{part['who']} {part['open']}{part['year']}{inside}"
    after = part["close"].removeprefix(inside)
    return f"{part['span']}{part['link']}{words}</a></span>{after}"


def finished(html: str, chapter: str = "") -> str:
    """A page as it is shipped, with the exercises of a chapter counted in the chapter.
    A page that is finished already stays as it is."""
    numbers = itertools.count(1)
    prefix = f"{chapter}." if chapter else ""
    html = EXERCISE.sub(lambda found: f"{found[1]}{prefix}{next(numbers)} <", html)
    html = CITED.sub(cited_once, html)
    for pattern, new in REPAIRS:
        html = pattern.sub(new, html)
    return CODE.sub(
        lambda found: (
            found[0]
            if found[2].startswith('<span class="line"')
            else found[1] + in_lines(found[2]) + found[3]
        ),
        html,
    )


def finish_pages(app: Sphinx, exception: Exception | None) -> None:
    """Finish every page of the site."""
    if exception is not None or app.builder.format != "html":
        return
    for path in Path(app.outdir).rglob("*.html"):
        name = path.relative_to(app.outdir)
        if "_static" in name.parts:
            continue
        chapter = cells.chapter_of(app, name.with_suffix("").as_posix()) or {}
        before = path.read_text(encoding="utf-8")
        after = finished(before, chapter.get("number", "").lstrip("0"))
        if chapter:
            after = services.served(after, chapter, app)
        if after != before:
            path.write_text(after, encoding="utf-8")
