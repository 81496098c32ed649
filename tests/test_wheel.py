"""The wheel works on its own: no notebook, no checkout."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import annotated_transformer

ROOT = Path(__file__).resolve().parent.parent

FORWARD = """
import torch
from annotated_transformer.transformer import Transformer, TransformerConfig
import annotated_transformer as package
source, target = (torch.ones(2, n, dtype=torch.long) for n in (3, 4))
logits = Transformer(TransformerConfig.tiny(50))(source, target)
print(package.__file__, package.__version__, *logits.shape)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel, built from a copy so that nothing is left in the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.splitlines():
        if name.startswith("annotated_transformer/") or name in (
            "pyproject.toml",
            "README.md",
            "LICENSE",
        ):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    pip = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        folder,
        source,
    ]
    subprocess.run(pip, check=True)
    return next(folder.glob("*.whl"))


@pytest.mark.slow
def test_wheel_holds_modules_and_data(wheel):
    """Fails when package data is left out of the wheel."""
    names = zipfile.ZipFile(wheel).namelist()
    for name in (
        "attention.py",
        "transformer.py",
        "paper/excerpts.json",
        "paper/facts.json",
        "book.mplstyle",
        "py.typed",
        "pretrained/multi30k-en-de/README.md",
        "records/multi30k_en_de.json",
        "support/test_set.py",
        "test_set/captions.jsonl",
        "test_set/everyday.jsonl",
        "test_set/README.md",
    ):
        assert f"annotated_transformer/{name}" in names
    assert not [name for name in names if name.endswith(".ipynb") or "tests/" in name]


@pytest.fixture(scope="module")
def site(wheel, tmp_path_factory) -> Path:
    """A folder into which the wheel alone was installed."""
    folder = tmp_path_factory.mktemp("site")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        folder,
        wheel,
    ]
    subprocess.run(pip, check=True)
    return folder


def run_with(site: Path, folder: Path, *arguments: str, stdin: str = "") -> str:
    """What Python prints in an empty ``folder``, with nothing of the checkout in
    sight."""
    command = [sys.executable, *arguments]
    environment = {"PYTHONPATH": str(site)}
    run = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        input=stdin,
        capture_output=True,
        text=True,
        check=True,
        encoding="utf-8",
    )
    return run.stdout


@pytest.mark.slow
def test_wheel_runs_a_forward_pass_alone(site, tmp_path):
    """Fails when a module needs a file that only the checkout has."""
    path, version, *shape = run_with(site, tmp_path, "-c", FORWARD).split()
    assert Path(path).is_relative_to(site)
    assert version == annotated_transformer.__version__ and shape == ["2", "4", "50"]


@pytest.mark.slow
def test_wheel_holds_the_test_set(site, tmp_path):
    """Fails when the book's own sentences are left out of the wheel."""
    code = (
        "from annotated_transformer.support.test_set import book_sentences\n"
        "print(len(book_sentences()))"
    )
    assert run_with(site, tmp_path, "-c", code).strip() == "600"


@pytest.mark.slow
def test_wheel_translates_alone(site, tmp_path):
    """Fails when the trained translator is left out of the wheel, or looks for
    something beside it."""
    text = run_with(
        site,
        tmp_path,
        "-m",
        "annotated_transformer",
        "translate",
        stdin="Two dogs play.\n\nA man sleeps.\n",
    )
    first, empty, last = text.splitlines()
    assert (
        first.startswith("Zwei Hunde")
        and empty == ""
        and last.startswith("Ein Mann schläft")
    )
