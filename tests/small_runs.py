"""Runs of a small model that the tests of training and of its storage share."""

import json
from itertools import cycle
from pathlib import Path

import torch
from conftest import VOCABULARY_SIZE
from torch import Tensor

from annotated_transformer.data import make_batch
from annotated_transformer.support.runs import Trainer
from annotated_transformer.training import TrainingConfig
from annotated_transformer.transformer import Transformer, TransformerConfig

SHORT = make_batch([([5, 6], [7, 8]), ([9], [10])])


LONG = make_batch([([6, 5, 9, 11], [8, 7, 10, 12]), ([12], [11, 4]), ([4, 4], [5])])


WHOLE = make_batch(
    [
        ([5, 6], [7, 8]),
        ([9], [10]),
        ([6, 5, 9, 11], [8, 7, 10, 12]),
        ([12], [11, 4]),
        ([4, 4], [5]),
    ]
)
"""The pairs of ``SHORT`` and ``LONG`` in one batch."""


def tiny(dropout: float = 0.0) -> Transformer:
    """A model that overfits a single batch within a second."""
    return Transformer(
        TransformerConfig(VOCABULARY_SIZE, 1, 16, 32, 2, dropout=dropout, max_length=8)
    )


def small_run(
    folder: Path,
    steps: int = 6,
    save_every: int = 2,
    dropout: float = 0.3,
    **choices: float,
) -> Trainer:
    """A trainer of a small model that always starts from the same weights."""
    torch.manual_seed(5)
    return Trainer(
        tiny(dropout),
        TrainingConfig(steps, 256, warmup_steps=4, save_every=save_every, **choices),
        folder,
    )


def finished(trainer: Trainer) -> dict[str, Tensor]:
    """The weights of a run that has been brought to its end on the two batches, in
    turn."""
    assert trainer.run(cycle([SHORT, LONG]), [SHORT])
    return trainer.model.state_dict()


def assert_equal(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    """Assert that two sets of tensors are the same, bit for bit."""
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []


def log_of(folder: Path) -> list[dict]:
    """The entries of a run's log."""
    return [
        json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()
    ]
