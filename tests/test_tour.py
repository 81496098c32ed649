"""The tour's map of the book names every notebook, by its number and title."""

import json
from pathlib import Path

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"


def read(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


def test_map_names_every_notebook():
    """Fails when a notebook is added or renamed, and the map stays as it was."""
    tour = "\n".join(
        "".join(cell["source"]) for cell in read(NOTEBOOKS / "00_tour.ipynb")["cells"]
    )
    table = tour.split("## The map of the book")[1].split("\n## ")[0]
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        chapter = read(path)["metadata"]["chapter"]
        name = f"{chapter['number'].lstrip('0')} {chapter['title']}"
        assert path.stem == "00_tour" or f"| [{name}]({path.name}) |" in table, name
