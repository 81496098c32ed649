"""Checkpoints: safetensors with a JSON file that holds their SHA-256; appendix C tells
why."""

import hashlib
import json
from contextlib import suppress
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor, nn

from .files import write_atomically, write_together


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
    """Write ``PATH.safetensors`` and, when that is whole, ``PATH.json`` with the facts
    and the digest of both.

    The second file seals the first: without it there is no checkpoint. ``facts`` is what JSON can hold, ``beside`` the
    other files that belong to it, by name. Raises OSError where one cannot be written, and leaves what was there.
    """
    path = Path(path)
    facts = json.loads(json.dumps(facts))  # as it will be read
    content = safetensors.torch.save(
        {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}
    )
    sealed = json.dumps(
        {"sha256": digest_of(content, facts)} | facts, indent=1, ensure_ascii=False
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    own = {
        f"{path.name}.safetensors": content,
        f"{path.name}.json": sealed.encode(errors="surrogatepass"),
    }
    write_together(
        {
            path.with_name(name): content
            for name, content in ((beside or {}) | own).items()
        }
    )


def load_tensors(path: Path | str) -> tuple[dict[str, Tensor], dict]:
    """The tensors and the facts that ``save_tensors`` wrote to ``path``.

    Nothing in the files is executed.     Raises FileNotFoundError where one of the two
    files is missing, ValueError where one is damaged.
    """
    path = Path(path)
    files = [
        path.with_name(f"{path.name}.{ending}") for ending in ("safetensors", "json")
    ]
    for file in files:
        if not file.is_file():
            raise FileNotFoundError(
                f"{file} is not there: expected {files[0].name} and {files[1].name} side by side"
            )
    content = files[0].read_bytes()
    way_out = "remove the two files, and take another checkpoint"
    try:
        facts = json.loads(files[1].read_bytes())
        digest = facts.pop("sha256")
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        raise ValueError(
            f"{files[1]} is damaged: expected JSON with a sha256; {way_out}"
        ) from error
    if digest_of(content, facts) != digest:
        raise ValueError(
            f"{files[0]} or its .json is damaged: their SHA-256 is not {digest}; {way_out}"
        )
    try:
        return safetensors.torch.load(content), facts
    except safetensors.SafetensorError as error:
        raise ValueError(
            f"{files[0]} holds no safetensors ({error}); pickles are never loaded"
        ) from error


def find_checkpoints(folder: Path | str) -> list[Path]:
    """The checkpoints of a run, without their endings, oldest first; half-written ones
    are not among them."""
    return sorted(path.with_suffix("") for path in Path(folder).glob("step-*.json"))


def load_weights(
    model: nn.Module, tensors: dict[str, Tensor], name: Path | str
) -> None:
    """Put ``tensors``, as read from ``name``, into ``model``; ValueError where they are
    those of another model."""
    own = {key: tuple(tensor.shape) for key, tensor in model.state_dict().items()}
    given = {key: tuple(tensor.shape) for key, tensor in tensors.items()}
    if own != given:
        key = min(
            key for key in own.keys() | given.keys() if own.get(key) != given.get(key)
        )
        raise ValueError(
            f"{name} does not fit: {key} is {given.get(key, 'missing')} there, {own.get(key, 'missing')} in the model; "
            "use the configuration and the vocabulary that the checkpoint was trained with"
        )
    model.load_state_dict(tensors)


def training_tensors(
    model: nn.Module, optimizer: torch.optim.Optimizer
) -> dict[str, Tensor]:
    """The weights as ``model.NAME``, and what the optimizer keeps of each parameter as
    ``optimizer.NUMBER.NAME``."""
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for number, state in optimizer.state_dict()["state"].items():
        tensors |= {
            f"optimizer.{number}.{name}": tensor for name, tensor in state.items()
        }
    return tensors


def restore_tensors(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    tensors: dict[str, Tensor],
    name: Path | str,
) -> None:
    """Put back what ``training_tensors`` took; ValueError where ``tensors``, read from
    ``name``, do not fit."""
    weights = {
        key.removeprefix("model."): tensor
        for key, tensor in tensors.items()
        if key.startswith("model.")
    }
    load_weights(model, weights, name)
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        if key.startswith("optimizer."):
            _, number, part = key.split(".")
            state.setdefault(int(number), {})[part] = tensor
    optimizer.load_state_dict(
        {"state": state, "param_groups": optimizer.state_dict()["param_groups"]}
    )


def read_log(folder: Path) -> list[dict]:
    """The lines of a run's ``log.jsonl``, without those that a killed writer cut short;
    none where there is no log."""
    log, entries = folder / "log.jsonl", []
    for line in (
        log.read_text(encoding="utf-8", errors="replace").splitlines()
        if log.exists()
        else ()
    ):
        with suppress(ValueError):
            entries.append(json.loads(line))
    return [
        entry
        for entry in entries
        if isinstance(entry, dict) and isinstance(entry.get("step"), int)
    ]


def tidy_folder(folder: Path, step: int) -> None:
    """Make ``folder`` that of a run at ``step``: no log of later steps, no broken line,
    no checkpoint without seal.

    Raises ValueError, and touches nothing, where it holds the checkpoint of a later
    step.
    """
    if (later := find_checkpoints(folder)[-1:]) and int(
        later[0].name.removeprefix("step-")
    ) > step:
        raise ValueError(
            f"{later[0]} is of a later step than {step}: call resume first, or name another folder"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for path in [*folder.glob("step-*.safetensors"), *folder.glob("*.partial")]:
        if path.suffix == ".partial" or not path.with_suffix(".json").exists():
            path.unlink()
    kept = [
        f"{json.dumps(entry)}\n" for entry in read_log(folder) if entry["step"] <= step
    ]
    write_atomically(folder / "log.jsonl", "".join(kept).encode())


def remove_old(folder: Path, keep: int) -> None:
    """Remove all but the newest ``keep`` checkpoints of a run."""
    for path in find_checkpoints(folder)[:-keep]:
        path.with_suffix(".json").unlink()  # the seal first
        path.with_suffix(".safetensors").unlink()
