"""Write the package's modules from the notebooks: ``tools/export.py [NOTEBOOK ...]``.

Without a name, every notebook whose `chapter` metadata names a module.
"""

import json
import sys
from pathlib import Path

from nbdev.export import nb_export

ROOT = Path(__file__).resolve().parent.parent


def main(paths: list[str]) -> None:
    """Export the notebooks at ``paths``, or all of them."""
    found = [Path(path) for path in paths]
    for path in found or sorted((ROOT / "notebooks").glob("*.ipynb")):
        chapter = json.loads(path.read_text(encoding="utf-8"))["metadata"]["chapter"]
        if chapter.get("module"):
            nb_export(path, lib_path=ROOT / "annotated_transformer")


if __name__ == "__main__":
    main(sys.argv[1:])
