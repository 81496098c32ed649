"""The glossary: its page, and an anchor at the paragraph that defines each term.

`book/glossary.yml` names the notebook and the heading of each term. The paragraph is
the first below that heading in which the term stands in so many words, or in the words
of the entry's `also`, a list of other forms that the chapter uses.
"""

import re
from pathlib import Path

import yaml
from docutils import nodes
from sphinx.application import Sphinx

from . import pages

LANGUAGES = {
    "vi": ("Vietnamese", "vi"),
    "ko": ("Korean", "ko"),
    "zh": ("Chinese", "zh-Hans"),
}
TEXT_NODES = (nodes.paragraph, nodes.math_block, nodes.table, nodes.term)


def entries(root: Path) -> list[dict]:
    """The entries of `book/glossary.yml`, in their order."""
    text = (root / "book" / "glossary.yml").read_text(encoding="utf-8")
    return yaml.safe_load(text)


def pattern(entry: dict) -> re.Pattern:
    """What a paragraph must hold to use the term: it or another form of it.

    An ending of up to three letters may follow (plural, -ing), and any white space or
    a hyphen stands for a space.
    """
    forms = [entry["term"], *entry.get("also", [])]
    words = "|".join(
        r"[\s-]+".join(map(re.escape, re.split(r"[\s-]+", form))) for form in forms
    )
    return re.compile(rf"(?<![\w-])(?:{words})\w{{0,3}}(?!\w)", re.I)


def label(entry: dict) -> str:
    """The label of the paragraph that defines a term."""
    return "term-" + re.sub(r"[^a-z0-9]+", "-", entry["term"].lower()).strip("-")


def section_text(root: Path, entry: dict) -> str:
    """The Markdown below an entry's heading, up to the next heading of its rank."""
    text = "\n\n".join(
        pages.sources(root / "notebooks" / f"{entry['notebook']}.ipynb", "markdown")
    )
    heading = re.search(rf"^(##+) {re.escape(entry['heading'])}$", text, re.M)
    if not heading:
        return ""
    rest = text[heading.end() :]
    following = re.search(rf"^#{{2,{len(heading[1])}}} ", rest, re.M)
    return rest[: following.start()] if following else rest


def is_defined(root: Path, entry: dict) -> bool:
    """Whether the term is used where the entry says that it is defined."""
    own = [
        line
        for line in section_text(root, entry).splitlines()
        if not line.startswith(">")  # the paper's words are not our definition
    ]
    plain = re.sub(r"[*_`]", "", "\n".join(own))
    return pattern(entry).search(plain) is not None


def same(heading: str, title: str) -> bool:
    """Whether a heading of the source is a title of the document tree."""
    return re.sub(r"\W", "", heading).lower() == re.sub(r"\W", "", title).lower()


def defining_node(doctree: nodes.document, entry: dict) -> nodes.Element | None:
    """The first paragraph below the entry's heading that uses the term."""
    for section in doctree.findall(nodes.section):
        title = section.next_node(nodes.title)
        if title is None or not same(entry["heading"], title.astext()):
            continue
        for node in section.findall(nodes.Element):
            quoted = isinstance(node.parent, nodes.block_quote)
            if isinstance(node, TEXT_NODES) and not quoted:
                if pattern(entry).search(node.astext()):
                    return node
    return None


def anchor_terms(app: Sphinx, doctree: nodes.document) -> None:
    """Give each paragraph that defines a term an anchor, for the glossary's links."""
    env, standard = app.env, app.env.get_domain("std")
    for entry in entries(Path(app.srcdir)):
        if env.docname != f"notebooks/{entry['notebook']}":
            continue
        node = defining_node(doctree, entry)
        if node is not None:  # else the link of the page is reported as broken
            anchor = label(entry)
            node["ids"].append(anchor)
            standard.anonlabels[anchor] = env.docname, anchor
            standard.labels[anchor] = env.docname, anchor, entry["term"]


def page(root: Path) -> str:
    """The terms as a glossary of Sphinx: definition, other languages, place."""
    lines = [":::::{glossary}"]
    for entry in entries(root):
        lines += ["", entry["term"], f"  {entry['definition']}", ""]
        lines += [
            f'  - <span class="language">{name}</span> '
            f'<span lang="{tag}">{entry[key]}</span>'
            for key, (name, tag) in LANGUAGES.items()
        ]
        path = root / "notebooks" / f"{entry['notebook']}.ipynb"
        number = pages.read(path)["metadata"]["chapter"]["number"].lstrip("0")
        where = f"{number or 'Tour'} · {entry['heading']}"
        where = re.sub(r"[`<>]", "", where)
        lines += ["", f"  Defined in {{ref}}`{where} <{label(entry)}>`"]
    filter_script = '<script src="../_static/glossary.js" defer></script>'
    return "\n".join([*lines, ":::::", "", filter_script])
