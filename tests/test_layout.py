"""What goes where: chapters teach, `support` makes robust.

CONTRIBUTING.md says it in five lines; the tests here hold it.
"""

import ast
import json
import re
import tomllib
from pathlib import Path

import pytest
import torch

from annotated_transformer.descendants import FULL_SIZE, full_size
from annotated_transformer.transformer import Transformer, TransformerConfig

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "annotated_transformer"
SUPPORT = PACKAGE / "support"
CHAPTERS = [
    json.loads(path.read_text(encoding="utf-8"))["metadata"]["chapter"]
    for path in sorted((ROOT / "notebooks").glob("*.ipynb"))
]
MODULES = [chapter["module"] for chapter in CHAPTERS if chapter.get("module")]
# What the chapters themselves stand on; it must not stand on them.
FOUNDATION = (
    *("checks", "files", "checkpoints", "corpora", "miniature", "paper"),
    *("test_set", "treebanks", "grading", "sentencepieces"),
)
# Errors that are a chapter's subject: where each is taught.
TAUGHT = {
    "complexity": "a path that does not exist: dilations that leave a gap",
}


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def raises_in(tree: ast.Module) -> int:
    return sum(isinstance(node, ast.Raise) for node in ast.walk(tree))


@pytest.mark.parametrize("module", MODULES)
def test_chapters_leave_the_checking_of_values_to_support(module):
    """Fails when a chapter's module raises an error that is not its subject: such a
    check is a function of `support`, and a call of it in the chapter."""
    found = raises_in(tree_of(PACKAGE / f"{module}.py"))
    assert found <= (2 if module in TAUGHT else 0)


def test_support_does_raise():
    """Fails when the test above could not see an error."""
    assert raises_in(tree_of(SUPPORT / "checks.py")) > 10


@pytest.mark.parametrize("name", FOUNDATION)
def test_what_chapters_stand_on_imports_no_chapter(name):
    """Fails when a foundation imports a chapter: the two would import each other."""
    text = (SUPPORT / f"{name}.py").read_text(encoding="utf-8")
    imported = re.findall(r"^\s*from (?:annotated_transformer\.|\.\.)(\w+)", text, re.M)
    assert set(imported).isdisjoint(MODULES)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_forward_pass_reads_no_number_back(norm):
    """Fails when a forward pass asks for a number: on a GPU it would wait for it. On
    the meta device there are shapes and no numbers, so that asking raises."""
    config = TransformerConfig.tiny(50)
    config = TransformerConfig(**{**vars(config), "norm": norm})
    with torch.device("meta"):
        model = Transformer(config)
        source = torch.ones(2, 7, dtype=torch.long)
        target = torch.ones(2, 5, dtype=torch.long)
    assert model(source, target).shape == (2, 5, 50)


@pytest.mark.parametrize("name", FULL_SIZE)
def test_later_models_read_no_number_back(name):
    """Fails as above, for the models of chapter 19."""
    model = full_size(name)
    tokens = torch.ones(1, 5, dtype=torch.long, device="meta")
    if name.startswith("ViT"):
        arguments = [torch.ones(1, 3, 224, 224, device="meta")]
    else:
        arguments = [tokens, tokens] if name.startswith("T5") else [tokens]
    output = model(*arguments)
    first = output[0] if isinstance(output, tuple) else output
    assert first.is_meta and first.size(0) == 1


def test_one_width_for_all_code():
    """Fails when lines may be longer than the page shows, anywhere."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    ruff = settings["tool"]["ruff"]
    assert ruff["line-length"] == 88 and "E" in ruff["lint"]["select"]
    assert "E501" not in ruff["lint"].get("ignore", [])
    places = [name for name, codes in ruff["lint"]["per-file-ignores"].items()
              if "E501" in codes]  # fmt: skip
    assert all(place.startswith("annotated_transformer/{") for place in places)


@pytest.mark.parametrize("module", MODULES)
def test_exported_lines_fit_the_page(module):
    """Fails when a chapter exports a line of over 88 columns; nbdev's own lines, which
    name the notebook and list `__all__`, do not count."""
    text = (PACKAGE / f"{module}.py").read_text(encoding="utf-8")
    body = text.split("# %% ../notebooks", 1)[1]
    wide = [line for line in body.splitlines() if len(line) > 88]
    assert [line for line in wide if not line.startswith("# %%")] == []
