"""The paper's own numbers: hyperparameters and tables 1 to 4, from ``paper/facts.json``
in the package."""

import json
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def paper_facts() -> dict[str, Any]:
    """The paper's hyperparameters and its tables 1 to 4, as ``paper/facts.json`` in the
    package holds them.

    ``paper_facts()["table3"]`` is a list with one dictionary for each row. It is loaded
    once: read it, do not change it.
    """
    return json.loads(
        files("annotated_transformer")
        .joinpath("paper/facts.json")
        .read_text(encoding="utf-8")
    )


def table_3_choices(row: str) -> dict[str, Any]:
    """The arguments of ``TransformerConfig`` for one row of table 3: "base", "A1" to
    "E", or "big".

    A row inherits from the base row what it does not name. Label smoothing and steps
    belong to training and are left out. Raises ValueError, with the names of the rows,
    for any other row.
    """
    rows = {entry["row"]: entry for entry in paper_facts()["table3"]}
    if row not in rows:
        raise ValueError(f"row is {row!r}, expected one of {', '.join(rows)}")
    values = rows["base"] | rows[row]
    names = {
        "num_layers": "N",
        "d_model": "d_model",
        "d_ff": "d_ff",
        "num_heads": "h",
        "dropout": "dropout",
    }
    choices = {ours: values[theirs] for ours, theirs in names.items()}
    for name in ("d_k", "d_v"):
        if (
            values[name] != values["d_model"] // values["h"]
        ):  # otherwise it is the default
            choices[name] = values[name]
    if "positions" in values:
        choices["positions"] = "learned"
    return choices
