"""What the run of a notebook depends on, and where its outputs are kept.

A notebook's outputs stay valid as long as nothing that its run depends on has changed:
its own code, which jupyter-cache compares, and the rest, which is hashed here: the
package modules that it imports, the package's data, the pinned versions, and the
corpora at hand for those that read them. Each notebook has a cache folder named after
that hash, so a change runs again what it touches and nothing else. No Sphinx in this
module: `tools/build_book.py` uses it to run the notebooks in parallel.
"""

import ast
import hashlib
import json
import os
import re
import sys
from pathlib import Path

PACKAGE = "annotated_transformer"
DATA_VARIABLE = "ANNOTATED_TRANSFORMER_DATA"
CACHES = Path("_build/.jupyter_cache")
MAGIC = re.compile(r"^(\s*)(%+[a-z]|!(?!=)).*$", re.M)  # what only Jupyter understands
COMMAND = re.compile(rf"{PACKAGE.replace('_', '-')} |-m\W+{PACKAGE}\b")


def code_of(notebook: Path) -> str:
    """The source of a notebook's code cells."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return "\n".join(
        "".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"
    )


def modules_used(code: str, root: Path) -> set[Path]:
    """The package modules that this code imports, and those that they import, and so
    on; those of folders inside the package, such as `support`, included."""
    found: set[Path] = set()
    waiting = imports_of(code, [])
    while waiting:
        for path in files_of(waiting.pop(), root) - found:
            found.add(path)
            inside = list(path.relative_to(root).parent.parts)
            waiting += imports_of(path.read_text(encoding="utf-8"), inside)
    return found - {root / PACKAGE / "__init__.py"}


def imports_of(code: str, inside: list[str]) -> list[list[str]]:
    """What this code may import, as names split at the dots: of `from a.b import c`
    both `a.b` and `a.b.c`. `inside` is the package that the code belongs to.

    Code in strings counts as well, since a chapter may run it in another process, and
    so does a chapter's use of the command line.
    """
    code = code if inside else MAGIC.sub(r"\1pass", code)
    command = not inside and COMMAND.search(code)
    names, tree = [[PACKAGE, "__main__"]] if command else [], ast.parse(code)
    texts = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    for text in texts:
        if isinstance(text, str) and f"{PACKAGE}." in text:
            names += [found.split(".") for found in re.findall(r"[\w.]+", text)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = inside[: len(inside) + 1 - node.level] if node.level else []
            base = above + (node.module.split(".") if node.module else [])
            names += [base, *([*base, alias.name] for alias in node.names)]
    return [name for name in names if name[:1] == [PACKAGE]]


def files_of(name: list[str], root: Path) -> set[Path]:
    """The files that Python reads when it imports a name of the package: the module's
    own, and the `__init__.py` of every folder on the way."""
    folders = [root.joinpath(*name[:depth]) for depth in range(1, len(name) + 1)]
    paths = [folder / "__init__.py" for folder in folders]
    paths.append(root.joinpath(*name).with_suffix(".py"))
    return {path for path in paths if path.is_file()}


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
