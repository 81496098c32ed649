"""Write into every notebook what is decided elsewhere: the repository's address, and
the chapter's own metadata.

    python tools/stamp.py [NOTEBOOK ...]

Without a name: every notebook, and the files that name the repository. The address
comes from `pyproject.toml`. The first two cells of a notebook are written from it and
from the notebook's `chapter` metadata: the header that readers see, and the cell that
makes the package importable wherever the notebook is opened. The minutes in the header
are counted. A test calls `stamped` and compares, so nothing can be out of step.
"""

import json
import math
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
FILES = [ROOT / name for name in ("_config.yml", "README.md", "CITATION.cff")]

WORDS_A_MINUTE, LINES_A_MINUTE = 150, 10
CODING_MINUTES, WORD_MINUTES = 10, 5
DIRECTIVE = re.compile(
    r"^(?P<fence>:{3,})\{(exercise|dropdown)\}.*?^(?P=fence)\s*$", re.M | re.S
)

SETUP = """\
{default_exp}import importlib.util
import sys
from pathlib import Path

# Where the package is not installed, look for the checkout, then for Colab.
if importlib.util.find_spec("annotated_transformer") is None:
    above = Path.cwd().resolve().parents
    folders = [path for path in above if (path / "annotated_transformer").is_dir()]
    if folders:
        sys.path.insert(0, str(folders[0]))
    elif "google.colab" in sys.modules:
        %pip install -q "git+{repository}"
    else:
        way_out = "pip install git+{repository}"
        raise ModuleNotFoundError(f"annotated_transformer is missing: {{way_out}}")
"""


def repository() -> str:
    """The repository's address, as `pyproject.toml` holds it."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]["urls"]["Repository"]


def words_of(markdown: str) -> int:
    """The words of prose in a Markdown cell: no exercises, answers, formulas, tables or
    addresses of links."""
    text = DIRECTIVE.sub("", markdown)
    text = re.sub(r"\$\$.*?\$\$", "", text, flags=re.S)
    text = re.sub(r"^\|.*$|^:::.*$|\]\([^)]*\)", "", text, flags=re.M)
    return sum(any(map(str.isalnum, word)) for word in text.split())


def code_lines_of(cell: dict) -> int:
    """The lines of code that a reader of the page reads: none of a folded cell, no
    blank line and no mark for a machine."""
    if {"hide-input", "hide-cell"} & set(cell["metadata"].get("tags", [])):
        return 0
    lines = [line.strip() for line in "".join(cell["source"]).splitlines()]
    return sum(1 for line in lines if line and not line.startswith("#|"))


def minutes(cells: list[dict]) -> tuple[int, int]:
    """How long a chapter takes: minutes to read it, and minutes for its exercises.

    The rule: 150 words or 10 lines of code a minute; 10 minutes for an exercise in code
    and 5 for one in words. Both are rounded up to the next 5.
    """
    prose = ["".join(c["source"]) for c in cells if c["cell_type"] == "markdown"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    reading = sum(map(words_of, prose)) / WORDS_A_MINUTE
    reading += sum(map(code_lines_of, code)) / LINES_A_MINUTE
    exercises = sum(len(re.findall(r"^:+\{exercise\}", text, re.M)) for text in prose)
    coding = sum("### BEGIN SOLUTION" in "".join(cell["source"]) for cell in code)
    work = CODING_MINUTES * coding + WORD_MINUTES * max(exercises - coding, 0)
    return 5 * math.ceil(reading / 5), 5 * math.ceil(work / 5)


def header(chapter: dict) -> str:
    """The Markdown that opens a chapter: title, promise, what it asks of the reader,
    what it gives."""
    needs = [
        f"[{name.split('_')[0].lstrip('0') or '0'}]({name}.ipynb)"
        for name in chapter["prerequisites"]
    ]
    facts = [
        f"**Paper:** {chapter['paper']}",
        "**Before this:** " + (", ".join(needs) or "nothing but PyTorch basics"),
        f"**Reading:** {chapter['reading_minutes']} minutes",
        f"**Exercises:** {chapter['exercise_minutes']} minutes",
        f"**Running:** {chapter['running_minutes']} on two CPU cores",
    ]
    goals = "\n".join(f"- {goal}" for goal in chapter["objectives"])
    opening = f"# {chapter['title']}\n\n> {chapter['promise']}\n\n{' · '.join(facts)}"
    return f"{opening}\n\nYou will be able to:\n\n{goals}"


def stamped(notebook: dict, address: str) -> dict:
    """The same notebook with its header and its setup cell written anew."""
    number = notebook["metadata"]["chapter"]["number"]
    own = {f"{number}-header", f"{number}-setup"}
    rest = [cell for cell in notebook["cells"] if cell["id"] not in own]
    reading, work = minutes(rest)
    chapter = notebook["metadata"]["chapter"] | {
        "reading_minutes": reading,
        "exercise_minutes": work,
    }
    module = chapter.get("module")
    setup = SETUP.format(
        repository=address, default_exp=f"#| default_exp {module}\n" if module else ""
    ).rstrip("\n")
    cells = [
        {
            "cell_type": "markdown",
            "id": f"{number}-header",
            "metadata": {"tags": ["chapter-header"]},
        },
        {"cell_type": "code", "execution_count": None, "id": f"{number}-setup"}
        | {"metadata": {"tags": ["chapter-setup", "hide-cell"]}, "outputs": []},
    ]
    for cell, text in zip(cells, [header(chapter), setup], strict=True):
        cell["source"] = text.splitlines(keepends=True)
    metadata = notebook["metadata"] | {"chapter": dict(sorted(chapter.items()))}
    return notebook | {"cells": cells + rest, "metadata": metadata}


def stamped_config(text: str, address: str) -> str:
    """`_config.yml` with the repository's address in its place."""
    return re.sub(r"^(  url: ).*$", rf"\g<1>{address}", text, count=1, flags=re.M)


def stamped_files(address: str) -> dict[Path, str]:
    """The files that name the repository, with the address in place of the one that
    `_config.yml` holds now."""
    texts = {path: path.read_text(encoding="utf-8") for path in FILES}
    config = ROOT / "_config.yml"
    before = re.search(r"^  url: (.*)$", texts[config], flags=re.M)[1]
    return {path: text.replace(before, address) for path, text in texts.items()} | {
        config: stamped_config(texts[config], address)
    }


def main(paths: list[str]) -> None:
    """Stamp the notebooks named, or all of them and the files that name the
    repository."""
    address = repository()
    for path in [Path(p) for p in paths] or sorted(NOTEBOOKS.glob("*.ipynb")):
        notebook = stamped(json.loads(path.read_text(encoding="utf-8")), address)
        path.write_text(
            json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )
    if not paths:
        for path, text in stamped_files(address).items():
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
