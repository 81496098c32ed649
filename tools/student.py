"""Make a student's copy of the notebooks: the same text and checks, without the
solutions and the answers.

    python tools/student.py [FOLDER]     default: _build/student

What stands between nbgrader's marks in a coding exercise becomes `raise
NotImplementedError()`; the closed answers to questions in words are taken out.
"""

import re
import sys
from pathlib import Path

import nbformat
from nbgrader.preprocessors import ClearSolutions

ROOT = Path(__file__).resolve().parent.parent
ANSWER = re.compile(r"^(:{3,})\{dropdown\} Answer.*?^\1$\n?", re.M | re.S)


def student_copy(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The notebook without its solutions, its answers and any output."""
    clear = ClearSolutions(
        enforce_metadata=False,
        code_stub={"python": "# Your code here.\nraise NotImplementedError()"},
    )
    notebook, _ = clear.preprocess(notebook, {})
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = ANSWER.sub("", cell.source).rstrip()
        else:
            cell.outputs, cell.execution_count = [], None
        tags = cell.metadata.get("tags", [])
        if "solution" in tags:  # no longer a secret, so no longer folded
            cell.metadata.tags = [
                tag for tag in tags if tag not in ("solution", "hide-input")
            ]
            cell.source = re.sub(r"^# @title.*\n", "", cell.source, flags=re.M)
    notebook.cells = [cell for cell in notebook.cells if cell.source.strip()]
    return notebook


def main(arguments: list[str]) -> None:
    """Write the copies."""
    folder = Path(arguments[0]) if arguments else ROOT / "_build" / "student"
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        nbformat.write(student_copy(nbformat.read(path, 4)), folder / path.name)
        print(f"  {folder / path.name}")


if __name__ == "__main__":
    main(sys.argv[1:])
