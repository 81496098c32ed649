"""What the run of a notebook depends on, and where its outputs are kept.

A notebook's outputs stay valid as long as nothing that its run depends on has changed:
its own code, which jupyter-cache compares, and the rest, which is hashed here: the
package modules that it imports, the package's data, the pinned versions, and the
corpora at hand for those that read them. Each notebook has a cache folder named after
that hash, so a change runs again what it touches and nothing else. No Sphinx in this
module: `tools/build_book.py` uses it to run the notebooks in parallel.
"""

import hashlib
import json
import os
import re
import sys
from pathlib import Path

PACKAGE = "annotated_transformer"
DATA_VARIABLE = "ANNOTATED_TRANSFORMER_DATA"
CACHES = Path("_build/.jupyter_cache")
IMPORTS = re.compile(
    rf"(?:{PACKAGE}|(?:from|import) +)\.(\w+)"
    rf"|from +(?:{PACKAGE}|\.) +import +\(?([\w ,\n]+)"
)


def code_of(notebook: Path) -> str:
    """The source of a notebook's code cells."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return "\n".join(
        "".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"
    )


def modules_used(code: str, root: Path) -> set[Path]:
    """The package modules that this code imports, and those that they import, and so
    on."""
    found: set[Path] = set()
    waiting = [code]
    while waiting:
        for module, names in IMPORTS.findall(waiting.pop()):
            for name in [module] if module else re.findall(r"\w+", names):
                path = root / PACKAGE / f"{name}.py"
                if path.is_file() and path not in found:
                    found.add(path)
                    waiting.append(path.read_text(encoding="utf-8"))
    return found


def data_folder() -> Path:
    """The folder that holds the corpora: `ANNOTATED_TRANSFORMER_DATA`, or the package's
    cache of downloads."""
    named = os.environ.get(DATA_VARIABLE)
    if named:
        return Path(named)
    import pooch

    return Path(pooch.os_cache("annotated-transformer"))


def run_key(notebook: Path, root: Path) -> str:
    """A hash of everything outside the notebook that its run depends on."""
    digest = hashlib.sha256(sys.version.encode())
    package_data = [
        path
        for path in (root / PACKAGE).rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    ]
    files = {root / "requirements.txt", root / PACKAGE / "__init__.py", *package_data}
    code = code_of(notebook)
    modules = modules_used(code, root)
    for path in sorted(path for path in files | modules if path.is_file()):
        digest.update(f"\n{path.relative_to(root)}\n".encode())
        digest.update(path.read_bytes())
    reads_data = DATA_VARIABLE in code or any(
        DATA_VARIABLE in path.read_text(encoding="utf-8") for path in modules
    )
    folder = data_folder()
    for path in sorted(folder.rglob("*")) if reads_data and folder.is_dir() else []:
        if path.is_file():
            digest.update(
                f"\n{path.relative_to(folder)} {path.stat().st_size}".encode()
            )
    return digest.hexdigest()[:16]


def cache_folder(notebook: Path, root: Path) -> Path:
    """Where the outputs of this notebook's run are kept."""
    return root / CACHES / f"{notebook.stem}-{run_key(notebook, root)}"
