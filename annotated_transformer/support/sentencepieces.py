"""What stands around SentencePiece: its errors said in words, and files."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import sentencepiece

SPECIAL_IDS = [0, 1, 2, 3]
"""The ids of padding, begin, end and unknown, which every model of the book has."""


def read_model(model: bytes) -> sentencepiece.SentencePieceProcessor:
    """A serialized SentencePiece model, ready to use.

    Raises ValueError where it is none, or was trained with other special ids than ours.
    """
    try:
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    except RuntimeError as error:
        raise ValueError(
            f"these {len(model)} bytes are not a SentencePiece model: train one with "
            "train_subwords"
        ) from error
    names = ("pad_id", "bos_id", "eos_id", "unk_id")
    ids = [getattr(processor, name)() for name in names]
    if ids != SPECIAL_IDS:
        raise ValueError(
            f"pad, begin, end, unknown have the ids {ids}, expected {SPECIAL_IDS}: use "
            "train_subwords"
        )
    return processor


def read_model_file(path: Path | str) -> bytes:
    """The bytes of a vocabulary's file. Raises FileNotFoundError for none."""
    if not Path(path).exists():
        raise FileNotFoundError(
            f"{path} is not there: expected a vocabulary that Subwords.save, or "
            "prepare, wrote"
        )
    return Path(path).read_bytes()


def check_some_text(sentences: Sequence[str]) -> None:
    """Raise ValueError where there is no sentence to learn from."""
    if not sentences:
        raise ValueError("no sentence with text in it was given: expected at least one")


@contextmanager
def size_that_fits(vocabulary_size: int) -> Iterator[None]:
    """Say as ValueError, with the bound, that a size does not fit the text."""
    try:
        yield
    except RuntimeError as error:
        bound = re.search(r"(<=|vs) (\d+)", str(error))
        if not bound:
            raise
        size = f"{'at most' if bound[1] == '<=' else 'at least'} {bound[2]}"
        raise ValueError(
            f"vocabulary_size {vocabulary_size} does not fit this text: expected {size}"
        ) from error
