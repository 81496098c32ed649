"""What the reader sees of a notebook's cells: marks for machines taken out, marks for
people put in.

All of it happens on the document tree, after the notebook has been read, so the code
that runs is never touched.
"""

import ast
import re

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

MACHINE_LINE = re.compile(
    r"^\s*(#\|.*|#\s*NBVAL_\w+.*|#\s*@title\b.*"
    r"|### (BEGIN|END) (SOLUTION|HIDDEN TESTS))\s*$"
)
# What stands in front of a folded cell, by its tag; for others see `_config.yml`.
PROMPTS = {"solution": "Solution", "chapter-setup": "Setup: find the package"}
ATTRIBUTION = re.compile(
    r"\s*(?:--|\u2013|\u2014)\s*((?:abstract|section|table|figure|footnote|appendix|equation)\b.*)$",
    re.I,
)


def is_hidden(code: str) -> bool:
    """Is this a cell that nbdev hides (`#| hide`)?"""
    return re.search(r"^#\|\s*hide\s*$", code, re.M) is not None


def is_exported(code: str) -> bool:
    """Does nbdev export this cell to the package?"""
    return re.search(r"^#\|\s*exporti?\s*$", code, re.M) is not None


def is_private(code: str) -> bool:
    """Does nbdev export this cell, but leave its names out of `__all__`?"""
    return re.search(r"^#\|\s*exporti\s*$", code, re.M) is not None


def default_module(code: str) -> str | None:
    """The module named by `#| default_exp`, if this cell names one."""
    found = re.search(r"^#\|\s*default_exp\s+(\S+)", code, re.M)
    return found and found[1]


def stripped(code: str) -> str:
    """The code without the lines that speak to nbdev, nbval, Colab or nbgrader, and
    without ruff's `# noqa`."""
    lines = [line for line in code.split("\n") if not MACHINE_LINE.match(line)]
    return "\n".join(
        re.sub(r"\s*# noqa(: [A-Z0-9, ]+)?$", "", line) for line in lines
    ).strip("\n")


def definitions(code: str) -> list[str]:
    """The public names that an exported cell defines: functions, classes and plain
    constants, not tables of data."""
    try:
        body = ast.parse(code).body
    except SyntaxError:  # a magic command; nothing of it can be exported
        return []
    names = [
        node.name for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))
    ]
    for node in body:
        if isinstance(node, ast.Assign) and _is_plain(node.value):
            found = [
                name.id
                for target in node.targets
                for name in ast.walk(target)
                if isinstance(name, ast.Name)
            ]
            names += [name for name in found if name.isupper()]
    return [name for name in names if not name.startswith("_")]


def _is_plain(value: ast.expr) -> bool:
    """Is this a number, a string, or a tuple of them?"""
    return isinstance(value, ast.Constant) or (
        isinstance(value, ast.Tuple) and all(map(_is_plain, value.elts))
    )


def label_of(module: str, name: str) -> str:
    """The label of the paragraph that explains a definition, as the API page refers to
    it."""
    return f"explains-{module}-{name}".lower().replace("_", "-")


def _cell_code(container: nodes.container) -> nodes.literal_block | None:
    """The block of source code of a code cell."""
    sources = (
        child
        for child in container.children
        if child.get("nb_element") == "cell_code_source"
    )
    return next(
        (block for source in sources for block in source.findall(nodes.literal_block)),
        None,
    )


def _explaining(container: nodes.container) -> nodes.Element:
    """The paragraph that stands above a cell; the cell itself where another cell stands
    directly above."""
    siblings = container.parent.children
    for node in reversed(siblings[: siblings.index(container)]):
        if isinstance(
            node, (nodes.paragraph, nodes.bullet_list, nodes.enumerated_list)
        ):
            return node
        if isinstance(node, (nodes.container, nodes.title)):
            break
    return container


def _mark_exported(
    app: Sphinx,
    container: nodes.container,
    block: nodes.literal_block,
    module: str,
    code: str,
    private: bool,
) -> None:
    """Label an exported cell, link its names to the API page, and anchor the paragraph
    that explains them."""
    env, names = app.env, [] if private else definitions(code)
    container["classes"].append("exported")
    label = nodes.paragraph("", "exported to ", classes=["exported-label"])
    target = f"annotated_transformer.{module}"
    links = (
        [(name, f"{target}.{name}") for name in names] if names else [(target, target)]
    )
    if names:
        label += [nodes.literal("", target), nodes.Text(": ")]
    for position, (text, reference) in enumerate(links):
        options = {
            "refdomain": "py",
            "reftype": "obj",
            "reftarget": reference,
            "refexplicit": True,
            "refwarn": True,
        }
        link = addnodes.pending_xref(
            "", nodes.literal("", text), refdoc=env.docname, **options
        )
        label += [nodes.Text(", "), link] if position else [link]
    block.parent.insert(block.parent.index(block), label)
    place = _explaining(container)
    standard = env.get_domain("std")
    for name in names:
        anchor = label_of(module, name)
        place["ids"].append(anchor)
        standard.anonlabels[anchor] = env.docname, anchor
        standard.labels[anchor] = env.docname, anchor, name


def rework_cells(app: Sphinx, doctree: nodes.document) -> None:
    """Strip, hide and mark the code cells of a notebook."""
    module = None
    for container in list(doctree.findall(nodes.container)):
        if container.get("nb_element") != "cell_code":
            continue
        block = _cell_code(container)
        code = block.astext() if block else ""
        module = default_module(code) or module
        if is_hidden(code):
            container.parent.remove(container)
            continue
        if block is None:
            continue
        shown, tags = stripped(code), container.get("cell_metadata", {}).get("tags", [])
        block.rawsource, block.children = shown, []
        block += nodes.Text(shown)
        if not shown:
            block.parent.parent.remove(block.parent)
        elif module and is_exported(code):
            _mark_exported(app, container, block, module, shown, is_private(code))
        for tag in PROMPTS.keys() & set(tags):
            container["prompt_show"] = container["prompt_hide"] = PROMPTS[tag]


def rework_quotes(app: Sphinx, doctree: nodes.document) -> None:
    """Set the paper's words apart: a block quote that ends in `-- section ...` gets a
    class and an attribution."""
    for quote in list(doctree.findall(nodes.block_quote)):
        last = quote.children[-1] if quote.children else None
        text = (
            last.children[-1]
            if isinstance(last, nodes.paragraph) and last.children
            else None
        )
        found = (
            ATTRIBUTION.search(text.astext()) if isinstance(text, nodes.Text) else None
        )
        if not found:
            continue
        quote["classes"].append("paper")
        rest = text.astext()[: found.start()]
        last.replace(text, nodes.Text(rest)) if rest else last.remove(text)
        quote += nodes.attribution("", found[1])


def rework_header(app: Sphinx, doctree: nodes.document) -> None:
    """Number the chapter's title, and set its promise and its line of facts apart."""
    chapter = chapter_of(app, app.env.docname)
    title = next(doctree.findall(nodes.title), None)
    if not chapter or title is None:
        return
    number = chapter["number"].lstrip("0")
    if number:
        title.insert(0, nodes.Text(f"{number}. "))
    following = title.parent.children[title.parent.index(title) + 1 :]
    for node, kind in zip(following, ["promise", "chapter-facts"], strict=False):
        node["classes"].append(kind)


def rework_tables(app: Sphinx, doctree: nodes.document) -> None:
    """A table whose first column has no heading has rows with a name each: say so, so
    that a screen reader reads the name with every cell."""
    for group in doctree.findall(nodes.tgroup):
        head = next(group.findall(nodes.thead), None)
        if head is not None and not head.next_node(nodes.entry).astext().strip():
            group.next_node(nodes.colspec)["stub"] = 1


def chapter_of(app: Sphinx, docname: str) -> dict | None:
    """The `chapter` metadata of a notebook; None for any other page."""
    return getattr(app.env, "book_chapters", {}).get(docname)


def rework(app: Sphinx, doctree: nodes.document) -> None:
    """All of the above, in order."""
    rework_header(app, doctree)
    rework_cells(app, doctree)
    rework_quotes(app, doctree)
    rework_tables(app, doctree)
