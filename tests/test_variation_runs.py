"""The runs of table 3 in miniature: their plan, their command and their record."""

import json
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from annotated_transformer.data import token_batches
from annotated_transformer.support import variation_runs
from annotated_transformer.support.corpora import miniature_corpus
from annotated_transformer.support.records import read_record
from annotated_transformer.support.variation_runs import (
    PLANS,
    collect,
    main,
    make_trainer,
    missing_runs,
    planned_runs,
    prepare_text,
    run_all,
)
from annotated_transformer.transformer import (
    Transformer,
    TransformerConfig,
    count_parameters,
)
from annotated_transformer.variations import ROWS, miniature_row

CPU = torch.device("cpu")
TINY = replace(PLANS["miniature"], vocabulary_size=340, steps=4, max_tokens=64)


@pytest.fixture(autouse=True)
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """A corpus of some sentences, and models that are far smaller than the
    miniature."""
    few = miniature_corpus(120, 3)
    monkeypatch.setattr(variation_runs, "miniature_corpus", lambda: few)
    monkeypatch.setitem(PLANS, "miniature", TINY)

    def smaller(row: str, vocabulary_size: int) -> TransformerConfig:
        size = {"num_layers": 1, "d_model": 16, "d_ff": 32, "num_heads": 2}
        return TransformerConfig(vocabulary_size, **size, dropout=0.1, max_length=64)

    monkeypatch.setattr(variation_runs, "miniature_row", smaller)


def test_the_whole_table_is_43_runs_seed_by_seed() -> None:
    """Fails when a row has fewer than two seeds, base fewer than five, or one row is
    finished before others begin."""
    runs = planned_runs()
    assert len(runs) == len(set(runs)) == 43
    assert [seed for _, seed in runs] == sorted(seed for _, seed in runs)
    assert {row for row, seed in runs if seed == 1} == set(ROWS) and runs[-1] == (
        "base",
        4,
    )
    assert planned_runs(["E", "C1"], seeds=1) == [("E", 0), ("C1", 0)]


def test_a_row_that_is_named_twice_is_run_once() -> None:
    """Fails when ``--row E --row E`` trains the same run a second time."""
    assert planned_runs(["E", "C1", "E"], seeds=2) == [
        ("E", 0),
        ("C1", 0),
        ("E", 1),
        ("C1", 1),
    ]


def test_all_rows_read_the_same_batches_and_seeds_differ(tmp_path: Path) -> None:
    """Fails when the weights do not depend on the seed (set too late), or a row has its
    own data order or plan."""
    text = prepare_text(TINY)
    runs = (("base", 0), ("base", 1), ("D3", 0))
    trainers = [
        make_trainer(row, seed, TINY, text, tmp_path, CPU) for row, seed in runs
    ]
    first, other_seed, other_row = (
        trainer.model.embedding.weight for trainer in trainers
    )
    assert not torch.equal(first, other_seed) and torch.equal(first, other_row)
    configs = [trainer.config for trainer in trainers]
    assert (
        replace(configs[2], smoothing=0.1) == configs[0] and configs[2].smoothing == 0.0
    )
    assert replace(configs[1], seed=0) == configs[0]


def test_a_finished_run_is_skipped_and_a_record_holds_all(tmp_path: Path) -> None:
    """Fails when a run is made twice, a result is lost, checkpoints stay, or provenance
    is missing."""
    first = list(run_all([("base", 0)], TINY, tmp_path, CPU))
    again = list(run_all([("base", 0), ("E", 0)], TINY, tmp_path, CPU))
    assert [run[:2] for run in first] == [("base", 0)] and [
        run[:2] for run in again
    ] == [("E", 0)]
    assert not list(tmp_path.glob("*/*.safetensors"))
    record = collect(tmp_path)
    assert [(run["row"], run["seed"]) for run in record["runs"]] == [
        ("base", 0),
        ("E", 0),
    ]
    assert record["plan"] == asdict(TINY) and len(record["made_by"]) == 1
    assert record["made_by"][0].keys() == {
        "command",
        "commit",
        "versions",
        "hardware",
        "date",
        "signature",
    }
    for run in record["runs"]:
        assert [step for step, _ in run["history"]] == [1, 2, 3, 4]
        assert (
            run["perplexity"] == pytest.approx(run["history"][-1][1])
            and run["training_perplexity"] > 1
        )
        assert run["cpu_seconds"] >= 0 and 0 < run["passes"] < 1


def test_a_table_has_one_plan(tmp_path: Path) -> None:
    """Fails when runs of different lengths land in one table."""
    list(run_all([("base", 0)], TINY, tmp_path, CPU))
    with pytest.raises(
        ValueError, match="holds runs with steps 4, not 5: a table has one plan"
    ):
        list(run_all([("base", 1)], replace(TINY, steps=5), tmp_path, CPU))


def test_a_stopped_run_goes_on_to_the_same_result(tmp_path: Path) -> None:
    """Fails when a run that was stopped half-way ends with other numbers than one that
    was not."""
    (whole,) = run_all([("base", 0)], TINY, tmp_path / "whole", CPU)
    text, folder = prepare_text(TINY), tmp_path / "killed" / "base-0"
    trainer = make_trainer("base", 0, TINY, text, folder, CPU)
    with pytest.raises(ValueError, match="the batches ended after 2 of 4 steps"):
        trainer.run(
            list(token_batches(text.train, TINY.max_tokens, 0, epochs=1))[:2],
            text.validation,
        )
    assert make_trainer("base", 0, TINY, text, folder, CPU).step == 2
    (resumed,) = run_all([("base", 0)], TINY, tmp_path / "killed", CPU)
    for name in (
        "perplexity",
        "training_perplexity",
        "bleu",
        "chrf",
        "history",
        "passes",
    ):
        assert resumed[2][name] == whole[2][name], name


@pytest.mark.slow
def test_the_command_survives_sigkill(tmp_path: Path) -> None:
    """Fails when a killed command cannot be run again, or does not finish what was
    asked for."""
    command = [
        sys.executable,
        "-m",
        "annotated_transformer.support.variation_runs",
        "runs",
        "--corpus",
        "miniature",
    ]
    command += [
        "--steps",
        "5",
        "--row",
        "C4",
        "--seeds",
        "1",
        "--record",
        "record.json",
        "--threads",
        "1",
    ]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL)
    while process.poll() is None and not list(tmp_path.glob("runs/C4-0/step-*.json")):
        time.sleep(0.02)
    process.kill()
    process.wait()
    assert not (tmp_path / "record.json").exists()
    result = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "C4, seed 0: perplexity" in result.stderr
    record = json.loads((tmp_path / "record.json").read_text())
    (run,) = record["runs"]
    assert run["parameters"] == count_parameters(
        Transformer(miniature_row("C4", record["plan"]["vocabulary_size"]))
    )
    assert [step for step, _ in run["history"]] == [1, 2, 3, 4, 5]
    assert record["made_by"][0]["command"].startswith(
        "python -m annotated_transformer.support.variation_runs runs --corpus"
    )


def test_the_command_says_what_to_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails when a missing corpus or another plan ends in a traceback, or with exit
    code 0."""
    monkeypatch.chdir(tmp_path)
    missing = CliRunner().invoke(
        main, ["runs", "--row", "E", "--data", str(tmp_path / "nowhere")]
    )
    assert (
        missing.exit_code == 2
        and "train.en.gz is not there" in missing.stderr
        and missing.stderr.count("\n") == 1
    )
    asked = [
        "--corpus",
        "miniature",
        "--row",
        "E",
        "--seeds",
        "1",
        "--record",
        "r.json",
    ]
    done = CliRunner().invoke(main, ["others", *asked])
    assert (
        done.exit_code == 0 and len(json.loads(Path("r.json").read_text())["runs"]) == 1
    )
    other = CliRunner().invoke(main, ["others", *asked, "--steps", "9"])
    assert other.exit_code == 2 and "holds runs with steps 4, not 9" in other.stderr
    assert CliRunner().invoke(main, ["others", "--row", "F"]).exit_code == 2


def test_a_stopped_command_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails when an interrupted table looks finished: exit code 0, or a record as if
    all were there."""
    monkeypatch.setattr(variation_runs, "run_row", lambda *run: None)
    asked = [
        str(tmp_path / "runs"),
        "--corpus",
        "miniature",
        "--row",
        "E",
        "--record",
        str(tmp_path / "r.json"),
    ]
    stopped = CliRunner().invoke(main, asked)
    assert stopped.exit_code == 130 and "the same command goes on" in stopped.stderr
    assert not (tmp_path / "r.json").exists()


def test_the_record_of_the_package_can_be_made_again() -> None:
    """Fails when a run of the record lacks its provenance, its parameters or its last
    step."""
    record = read_record("variations")
    assert (
        len(missing_runs(record))
        + len({(run["row"], run["seed"]) for run in record["runs"]})
        >= 43
    )
    assert len({(run["row"], run["seed"]) for run in record["runs"]}) == len(
        record["runs"]
    )
    for run in record["runs"]:
        origin = record["made_by"][run["made_by"]]
        assert (
            origin["command"].startswith("python -m annotated_transformer.")
            and origin["commit"]
        )
        assert (
            origin["signature"].startswith("nrefs:1|")
            and origin["hardware"]["cpu"]
            and origin["versions"]["torch"]
        )
        model = Transformer(
            miniature_row(run["row"], record["plan"]["vocabulary_size"])
        )
        assert (
            run["parameters"] == count_parameters(model)
            and run["history"][-1][0] == record["plan"]["steps"]
        )
        assert (
            run["cpu_seconds"] > 0 and run["perplexity"] > 1 and 0 <= run["bleu"] <= 100
        )
