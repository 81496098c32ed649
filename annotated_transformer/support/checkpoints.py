"""Checkpoints: safetensors beside JSON with a SHA-256; appendix C tells why.

A checkpoint PATH is two files. ``PATH.safetensors`` holds the tensors. ``PATH.json``
holds the facts and a digest of both, and is the commit marker: without it there is no
checkpoint. Nothing that is read is ever executed.
"""

import hashlib
import json
from contextlib import suppress
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor, nn

from .files import write_atomically, write_together

# One checkpoint


def digest_of(content: bytes, facts: dict) -> str:
    """SHA-256 of a file's bytes and of the facts beside it."""
    return hashlib.sha256(
        content + json.dumps(facts, sort_keys=True).encode()
    ).hexdigest()


def save_tensors(
    path: Path | str,
    tensors: dict[str, Tensor],
    facts: dict,
    beside: dict[str, bytes] | None = None,
) -> None:
    """Write ``PATH.safetensors`` and then its commit marker, ``PATH.json``.

    ``facts`` is what JSON can hold; ``beside`` are other files that belong to the
    checkpoint, by name, and are whole where it is. Raises OSError where one of the
    files cannot be written, and then leaves what was there before.
    """
    path = Path(path)
    facts = json.loads(json.dumps(facts))  # as they will be read
    content = safetensors.torch.save(
        {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}
    )
    marker = {"sha256": digest_of(content, facts)} | facts
    written = json.dumps(marker, indent=1, ensure_ascii=False)
    files = (beside or {}) | {
        f"{path.name}.safetensors": content,
        f"{path.name}.json": written.encode(errors="surrogatepass"),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_together({path.with_name(name): content for name, content in files.items()})


def load_tensors(path: Path | str) -> tuple[dict[str, Tensor], dict]:
    """The tensors and the facts that ``save_tensors`` wrote to ``path``.

    Raises FileNotFoundError where one of the two files is missing, ValueError where one
    of them is damaged.
    """
    path = Path(path)
    tensor_file = path.with_name(f"{path.name}.safetensors")
    marker = path.with_name(f"{path.name}.json")
    for file in (tensor_file, marker):
        if not file.is_file():
            raise FileNotFoundError(
                f"{file} is not there: expected {tensor_file.name} and {marker.name} "
                "side by side"
            )
    content = tensor_file.read_bytes()
    way_out = "remove the two files, and take another checkpoint"
    try:
        facts = json.loads(marker.read_bytes())
        digest = facts.pop("sha256")
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        raise ValueError(
            f"{marker} is damaged: expected JSON with a sha256; {way_out}"
        ) from error
    if digest_of(content, facts) != digest:
        raise ValueError(
            f"{tensor_file} or its .json is damaged: their SHA-256 is not {digest}; "
            f"{way_out}"
        )
    try:
        return safetensors.torch.load(content), facts
    except safetensors.SafetensorError as error:
        raise ValueError(
            f"{tensor_file} holds no safetensors ({error}); pickles are never loaded"
        ) from error


# A model and its optimizer, under flat names


def load_weights(
    model: nn.Module, tensors: dict[str, Tensor], name: Path | str
) -> None:
    """Put ``tensors``, as read from ``name``, into ``model``.

    Raises ValueError, and changes nothing, where they are those of another model.
    """
    own = {key: tuple(tensor.shape) for key, tensor in model.state_dict().items()}
    given = {key: tuple(tensor.shape) for key, tensor in tensors.items()}
    if different := [
        k for k in own.keys() | given.keys() if own.get(k) != given.get(k)
    ]:
        key = min(different)
        raise ValueError(
            f"{name} does not fit: {key} is {given.get(key, 'missing')} there, "
            f"{own.get(key, 'missing')} in the model; use the configuration and the "
            "vocabulary that the checkpoint was trained with"
        )
    model.load_state_dict(tensors)


def training_tensors(
    model: nn.Module, optimizer: torch.optim.Optimizer
) -> dict[str, Tensor]:
    """All tensors of a training run.

    The weights are ``model.NAME``; what the optimizer keeps of each parameter is
    ``optimizer.NUMBER.NAME``.
    """
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for number, state in optimizer.state_dict()["state"].items():
        for name, tensor in state.items():
            tensors[f"optimizer.{number}.{name}"] = tensor
    return tensors


def weights_of(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights among the ``training_tensors``, under their own names."""
    return {
        key.removeprefix("model."): tensor
        for key, tensor in tensors.items()
        if key.startswith("model.")
    }


def restore_tensors(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    tensors: dict[str, Tensor],
    name: Path | str,
) -> None:
    """Put back what ``training_tensors`` took, as read from ``name``.

    Raises ValueError, and changes nothing, where the weights are those of another model
    or the state of the optimizer is missing.
    """
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        if key.startswith("optimizer."):
            _, number, part = key.split(".")
            state.setdefault(int(number), {})[part] = tensor
    if not state:
        raise ValueError(
            f"{name} holds no state of the optimizer, expected tensors named "
            "optimizer.NUMBER.NAME: go on from a checkpoint of a run, or call "
            "load_weights and begin at step 1"
        )
    load_weights(model, weights_of(tensors), name)
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


# The folder of a run


def find_checkpoints(folder: Path | str) -> list[Path]:
    """The checkpoints of a run, without their endings, oldest first.

    Half-written ones, which have no commit marker, are not among them.
    """
    return sorted(path.with_suffix("") for path in Path(folder).glob("step-*.json"))


def read_log(folder: Path) -> list[dict]:
    """The entries of a run's ``log.jsonl``; none where there is no log.

    A line that a killed writer cut short is left out.
    """
    log, entries = folder / "log.jsonl", []
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    for line in text.splitlines():
        with suppress(ValueError):
            entry = json.loads(line)
            if isinstance(entry, dict) and isinstance(entry.get("step"), int):
                entries.append(entry)
    return entries


def tidy_folder(folder: Path, step: int) -> None:
    """Make ``folder`` that of a run at ``step``.

    Removes half-written files and half-written checkpoints, lines of the log that are
    broken, and those of later steps. Raises ValueError, and touches nothing, where the
    folder holds the checkpoint of a later step.
    """
    newest = find_checkpoints(folder)[-1:]
    if newest and int(newest[0].name.removeprefix("step-")) > step:
        raise ValueError(
            f"{newest[0]} is of a later step than {step}: call resume first, or name "
            "another folder"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.partial"):
        path.unlink()
    for path in folder.glob("step-*.safetensors"):
        if not path.with_suffix(".json").exists():
            path.unlink()
    kept = [entry for entry in read_log(folder) if entry["step"] <= step]
    lines = "".join(f"{json.dumps(entry)}\n" for entry in kept)
    write_atomically(folder / "log.jsonl", lines.encode())


def remove_old(folder: Path, keep: int) -> None:
    """Remove all but the newest ``keep`` checkpoints of a run, commit marker first."""
    for path in find_checkpoints(folder)[:-keep]:
        path.with_suffix(".json").unlink()
        path.with_suffix(".safetensors").unlink()
