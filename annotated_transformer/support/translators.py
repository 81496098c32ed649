"""A translator in a folder: weights, their description, the vocabulary; written whole,
and compared by checksum when they are read."""

import hashlib
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch

from ..subwords import Subwords
from ..transformer import Transformer, TransformerConfig
from .checkpoints import load_tensors, load_weights, save_tensors
from .checks import check_same_vocabulary, check_translator_facts, check_weights


def write_translator(
    folder: Path | str,
    model: Transformer,
    subwords: Subwords,
    facts: dict[str, Any],
    half: bool = False,
) -> None:
    """Write ``model.safetensors``, ``model.json`` (``facts``, the configuration, the
    SHA-256 of the vocabulary) and ``subwords.model``; ``half`` keeps 16 bits a weight.

    Raises ValueError where a weight has no finite value, or none in 16 bits.
    """
    tensors = model.state_dict()
    if half:
        tensors = {name: tensor.half() for name, tensor in tensors.items()}
    check_weights(tensors)
    digest = hashlib.sha256(subwords.model).hexdigest()
    own = {"model": asdict(model.config), "subwords_sha256": digest}
    files = {"subwords.model": subwords.model}
    save_tensors(Path(folder) / "model", tensors, facts | own, files)


def read_translator(
    folder: Path | str,
) -> tuple[Transformer, Subwords, dict[str, Any]]:
    """Model, vocabulary and facts, as ``write_translator`` wrote them.

    Raises FileNotFoundError for a missing file, ValueError for a damaged one, for facts
    that describe no translator, and for a vocabulary other than the model's own.
    """
    path = Path(folder) / "model"
    tensors, facts = load_tensors(path)
    known = [field.name for field in fields(TransformerConfig)]
    check_translator_facts(facts, known, folder)
    model = Transformer(TransformerConfig(**facts["model"]))
    subwords = Subwords.load(Path(folder) / "subwords.model")
    load_weights(model, {name: t.float() for name, t in tensors.items()}, path)
    digest = hashlib.sha256(subwords.model).hexdigest()
    check_same_vocabulary(digest, facts["subwords_sha256"], folder)
    return model, subwords, facts


def pieces_of(subwords: Subwords) -> list[str]:
    """The pieces of a vocabulary in the order of their ids."""
    return subwords.processor.id_to_piece(list(range(len(subwords))))


@torch.no_grad()
def transfer_weights(
    model: Transformer, subwords: Subwords, folder: Path | str
) -> dict[str, Any]:
    """Give ``model`` the weights of the translator in ``folder``: all layers, and the
    embeddings of the pieces that both vocabularies have; the others keep theirs.

    Returns where the weights come from. Raises ValueError where the two models differ
    in more than vocabulary and dropout, and what ``read_translator`` raises.
    """
    parent, known, _ = read_translator(folder)
    free = ("vocabulary_size", "dropout", "pad_id")
    for name, own in asdict(model.config).items():
        found = getattr(parent.config, name)
        if name not in free and own != found:
            raise ValueError(
                f"{name} is {own} in this run and {found} in {folder}: weights go from "
                "one model to another of the same shape"
            )
    ids = {piece: i for i, piece in enumerate(pieces_of(known))}
    shared = [(i, ids[p]) for i, p in enumerate(pieces_of(subwords)) if p in ids]
    own_ids, parent_ids = map(list, zip(*shared, strict=True))
    embeddings = model.embedding.weight.clone()
    embeddings[own_ids] = parent.embedding.weight[parent_ids]
    model.load_state_dict(parent.state_dict() | {"embedding.weight": embeddings})
    digest = hashlib.sha256((Path(folder) / "model.safetensors").read_bytes())
    return {
        "translator": str(folder),
        "sha256": digest.hexdigest(),
        "shared_pieces": len(shared),
    }
