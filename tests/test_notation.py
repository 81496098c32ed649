"""The tables of appendix B against the paper's values and the package's names."""

import json
import re
from pathlib import Path

import pytest

import annotated_transformer
from annotated_transformer.support.paper import paper_facts
from annotated_transformer.transformer import TransformerConfig

ROOT = Path(annotated_transformer.__file__).resolve().parent.parent
NOTEBOOK = ROOT / "notebooks" / "B_notation.ipynb"


def symbols() -> dict[str, list[str]]:
    """The rows of the first table: by the name in our code, or the paper's symbol."""
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    prose = "\n".join(
        "".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"
    )
    table = prose.split("**Sizes and settings**")[1].split("**Tensors and")[0]
    rows = [
        [field.strip() for field in line.strip("|").split("|")]
        for line in re.findall(r"^\|.*\|$", table, re.M)[2:]
    ]
    return {
        name.strip("`") if name.startswith("`") else symbol: [symbol, name, what, value]
        for symbol, name, what, value in rows
    }


BASE, FACTS = paper_facts()["base"], paper_facts()
VALUES = {
    "d_model": BASE["d_model"],
    "d_ff": BASE["d_ff"],
    "num_heads": BASE["heads"],
    "d_k": BASE["d_k"],
    "d_v": BASE["d_v"],
    "num_layers": BASE["layers"],
    "dropout": BASE["dropout"],
    "vocabulary_size": f"about {FACTS['data']['wmt14_en_de']['shared_vocabulary']:,}",
    r"$\epsilon_{ls}$": BASE["label_smoothing"],
    "warmup_steps": FACTS["optimizer"]["warmup_steps"],
    r"$\alpha$": FACTS["inference"]["length_penalty_alpha"],
    r"$\beta_1, \beta_2, \epsilon$": (
        f"{FACTS['optimizer']['beta1']}, {FACTS['optimizer']['beta2']}, $10^{{-9}}$"
    ),
}


@pytest.mark.parametrize("name", VALUES)
def test_value_is_the_papers(name):
    """Fails when a value of the table is not the paper's."""
    assert symbols()[name][-1] == str(VALUES[name])


def test_epsilon_is_a_power_of_ten():
    """Fails when the paper's epsilon is not the one that the table writes."""
    assert FACTS["optimizer"]["eps"] == 1e-9


def test_every_value_is_checked():
    """Fails when a row is added whose value nobody compares."""
    assert set(symbols()) - set(VALUES) == {"n`, `m` in shapes"}


def test_configuration_has_the_names_of_the_table():
    """Fails when an argument of the model is renamed, and not in the table."""
    ours = {"d_model", "d_ff", "num_heads", "d_k", "d_v", "num_layers", "dropout"}
    assert ours <= set(TransformerConfig.__dataclass_fields__)
