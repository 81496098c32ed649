"""Checkpoints: what is saved comes back, and damage of every kind is named."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from conftest import VOCABULARY_SIZE
from small_runs import assert_equal, finished, small_run

from annotated_transformer.support.checkpoints import (
    digest_of,
    find_checkpoints,
    load_tensors,
    save_tensors,
)
from annotated_transformer.support.runs import Trainer
from annotated_transformer.training import TrainingConfig
from annotated_transformer.transformer import Transformer, TransformerConfig


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A small checkpoint."""
    save_tensors(
        tmp_path / "small",
        {"a": torch.arange(6.0).view(2, 3), "b": torch.ones(1)},
        {"step": 7, "é": "ü"},
    )
    return tmp_path / "small"


def test_a_checkpoint_comes_back_as_it_was(checkpoint: Path) -> None:
    """Fails when a tensor or a fact is lost, and when the digest is left among
    the facts."""
    tensors, facts = load_tensors(checkpoint)
    assert_equal(tensors, {"a": torch.arange(6.0).view(2, 3), "b": torch.ones(1)})
    assert facts == {"step": 7, "é": "ü"}
    assert sorted(path.name for path in checkpoint.parent.iterdir()) == [
        "small.json",
        "small.safetensors",
    ]


@pytest.mark.parametrize("ending", ["safetensors", "json"])
def test_every_flipped_bit_is_found(checkpoint: Path, ending: str) -> None:
    """In the header, the tensors and the JSON. Fails when the digest leaves out any
    byte, or the facts."""
    file = checkpoint.with_name(f"small.{ending}")
    content = file.read_bytes()
    for place in range(len(content)):
        for bit in (0, 5, 7):
            file.write_bytes(
                content[:place]
                + bytes([content[place] ^ 1 << bit])
                + content[place + 1 :]
            )
            with pytest.raises(
                ValueError,
                match="damaged.*remove the two files, and take another checkpoint",
            ):
                load_tensors(checkpoint)


@pytest.mark.parametrize("ending", ["safetensors", "json"])
def test_a_file_that_breaks_off_is_found(checkpoint: Path, ending: str) -> None:
    """At each of its lengths. Fails when the digest is not compared."""
    file = checkpoint.with_name(f"small.{ending}")
    content = file.read_bytes()
    for length in range(len(content)):
        file.write_bytes(content[:length])
        with pytest.raises(ValueError, match="damaged"):
            load_tensors(checkpoint)


@pytest.mark.parametrize("marker", ["[1]", '"text"', "7", "null", "{}"])
def test_json_of_another_kind_is_found(checkpoint: Path, marker: str) -> None:
    """Fails with a TypeError or an AttributeError when only broken JSON is expected."""
    checkpoint.with_name("small.json").write_text(marker)
    with pytest.raises(ValueError, match="expected JSON with a sha256"):
        load_tensors(checkpoint)


@pytest.mark.parametrize("ending", ["safetensors", "json"])
def test_a_missing_half_is_named(checkpoint: Path, ending: str) -> None:
    """Fails when a file without its commit marker is read."""
    checkpoint.with_name(f"small.{ending}").unlink()
    with pytest.raises(
        FileNotFoundError,
        match=f"small.{ending} is not there: expected small.safetensors and",
    ):
        load_tensors(checkpoint)


class Trap:
    """An object whose pickle, when it is read, creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return Path.touch, (self.path,)


@pytest.mark.parametrize(
    "dump", [lambda trap, path: path.write_bytes(pickle.dumps(trap)), torch.save]
)
def test_a_pickle_is_never_executed(checkpoint: Path, dump: Callable) -> None:
    """Not even under a valid digest. Fails when files are read by ``pickle`` or by
    ``torch.load`` of old."""
    file, executed = (
        checkpoint.with_name("small.safetensors"),
        checkpoint.with_name("executed"),
    )
    dump(Trap(executed), file)
    marker = {"sha256": digest_of(file.read_bytes(), {"step": 7}), "step": 7}
    checkpoint.with_name("small.json").write_text(json.dumps(marker))
    with pytest.raises(
        ValueError, match="holds no safetensors .* pickles are never loaded"
    ):
        load_tensors(checkpoint)
    assert not executed.exists()
    if dump is not torch.save:
        pickle.loads(file.read_bytes())
        assert executed.exists(), "the trap is none"


def test_a_matrix_that_two_modules_share_is_saved(tmp_path: Path) -> None:
    """Fails when shared memory, as in the recurrent translator, cannot be written."""
    matrix = torch.randn(2, 3)
    save_tensors(tmp_path / "shared", {"a": matrix, "b": matrix}, {})
    tensors, _ = load_tensors(tmp_path / "shared")
    assert torch.equal(tensors["a"], matrix) and torch.equal(tensors["b"], matrix)


@pytest.mark.parametrize(
    "change",
    [
        {"d_model": 32},
        {"num_layers": 2},
        {"vocabulary_size": 30},
        {"positions": "learned"},
    ],
)
def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path, change: dict) -> None:
    """Before any weight changes. Fails when only names are compared, or only shapes."""
    finished(small_run(tmp_path))
    choices = {
        "vocabulary_size": VOCABULARY_SIZE,
        "num_layers": 1,
        "d_model": 16,
        "d_ff": 32,
        "num_heads": 2,
    } | change
    trainer = Trainer(
        Transformer(TransformerConfig(**choices, max_length=8)),
        TrainingConfig(max_tokens=256),
        tmp_path,
    )
    before = {
        name: tensor.clone() for name, tensor in trainer.model.state_dict().items()
    }
    with pytest.raises(
        ValueError,
        match="step-00000006 does not fit: .* use the configuration and the vocabulary",
    ):
        trainer.resume()
    assert_equal(trainer.model.state_dict(), before)


def test_a_full_disk_keeps_the_checkpoint_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails when what was half-written stays, or counts as a checkpoint."""
    trainer = small_run(tmp_path, steps=2)
    finished(trainer)

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    trainer.step = 3
    with pytest.raises(OSError, match="No space left"):
        trainer.save()
    assert [path.name for path in find_checkpoints(tmp_path)] == ["step-00000002"]
    assert list(tmp_path.glob("*.partial")) == [] and load_tensors(
        find_checkpoints(tmp_path)[0]
    )


def test_weights_alone_are_no_checkpoint_of_a_run(tmp_path: Path) -> None:
    """Fails when Adam would begin anew in the middle of a run without a word."""
    trainer = small_run(tmp_path, steps=2)
    finished(trainer)
    newest = find_checkpoints(tmp_path)[-1]
    tensors, facts = load_tensors(newest)
    weights = {name: t for name, t in tensors.items() if name.startswith("model.")}
    save_tensors(newest, weights, facts)
    again = small_run(tmp_path, steps=4)
    before = {name: t.clone() for name, t in again.model.state_dict().items()}
    with pytest.raises(
        ValueError,
        match="step-00000002 holds no state of the optimizer, expected .*load_weights",
    ):
        again.resume()
    assert_equal(again.model.state_dict(), before)
    assert again.step == 0
