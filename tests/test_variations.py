"""Chapter 15: table 3 in miniature, its command, its statistics and its verdicts."""

import json
import math
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from annotated_transformer import variations
from annotated_transformer.data import token_batches
from annotated_transformer.support.corpora import miniature_corpus
from annotated_transformer.transformer import (
    Transformer,
    TransformerConfig,
    count_parameters,
)
from annotated_transformer.support.records import read_record
from annotated_transformer.variations import (
    CLAIMS,
    CONFIRMED,
    CONTRADICTED,
    METRICS,
    NOT_RUN,
    PLANS,
    ROWS,
    TOO_SMALL,
    Difference,
    alike_within,
    collect,
    compare,
    judge,
    judge_alike,
    judge_better,
    main,
    make_trainer,
    miniature_row,
    missing_runs,
    planned_runs,
    prepare_text,
    row_smoothing,
    run_all,
    seed_deviation,
    t_quantile,
)

CPU = torch.device("cpu")
TINY = replace(PLANS["miniature"], vocabulary_size=340, steps=4, max_tokens=64)


@pytest.fixture(autouse=True)
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """A corpus of some sentences, and models that are far smaller than the
    miniature."""
    monkeypatch.setattr(
        variations, "miniature_corpus", lambda: miniature_corpus(120, 3)
    )
    monkeypatch.setitem(PLANS, "miniature", TINY)

    def smaller(row: str, vocabulary_size: int) -> TransformerConfig:
        return TransformerConfig(
            vocabulary_size, 1, 16, 32, 2, dropout=0.1, max_length=64
        )

    monkeypatch.setattr(variations, "miniature_row", smaller)


def record_of(scores: dict[str, list[float]]) -> dict:
    """A record of rows with their scores in BLEU."""
    return {
        "runs": [
            {"row": row, "bleu": value}
            for row, values in scores.items()
            for value in values
        ]
    }


@pytest.mark.parametrize("row", ROWS)
def test_a_row_is_divided_by_four_and_halved(row: str) -> None:
    """Fails when a width is not divided, a depth not halved, or something else of a row
    changes on the way."""
    full, mini = TransformerConfig.table_3(row), miniature_row(row, 4000)

    def widths(c: TransformerConfig) -> list[int]:
        return [
            c.d_model,
            c.d_ff,
            c.d_k or c.d_model // c.num_heads,
            c.d_v or c.d_model // c.num_heads,
        ]

    assert [4 * width for width in widths(mini)] == widths(
        full
    ) and 2 * mini.num_layers == full.num_layers
    assert (mini.num_heads, mini.dropout, mini.positions) == (
        full.num_heads,
        full.dropout,
        full.positions,
    )
    assert mini.norm == "pre" and mini.vocabulary_size == 4000
    assert row_smoothing(row) == {"D3": 0.0, "D4": 0.2}.get(row, 0.1)


def test_an_unknown_row_is_named() -> None:
    """Fails when a misspelled row gives a model."""
    with pytest.raises(ValueError, match=r"row is 'F', expected one of base, A1"):
        miniature_row("F", 100)


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


def test_the_command_survives_sigkill(tmp_path: Path) -> None:
    """Fails when a killed command cannot be run again, or does not finish what was
    asked for."""
    command = [
        sys.executable,
        "-m",
        "annotated_transformer.variations",
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
        "python -m annotated_transformer.variations runs --corpus"
    )


def test_the_command_says_what_to_mend(
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
    monkeypatch.setattr(variations, "run_row", lambda *run: None)
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


def test_quantiles_are_those_of_the_tables() -> None:
    """Fails when the density, its substitution or the side of the interval is wrong."""
    for freedom, printed in {
        1: 12.706,
        2: 4.303,
        4: 2.776,
        10: 2.228,
        23: 2.069,
        120: 1.980,
    }.items():
        assert t_quantile(freedom) == pytest.approx(printed, abs=1.5e-3)
    assert (
        t_quantile(10, 0.99) == pytest.approx(3.169, abs=1.5e-3)
        and t_quantile(0) == math.inf
    )


def test_the_margin_is_the_one_by_hand() -> None:
    """Fails when runs are pooled over the wrong mean, or the freedom counts runs
    instead of what is left of them."""
    record = record_of({"base": [20.0, 20.4, 20.2, 20.6, 19.8], "A1": [19.0, 19.6]})
    deviation, freedom = seed_deviation(record, "BLEU")
    assert freedom == 5 and deviation == pytest.approx(math.sqrt(0.58 / 5))
    found = compare(record, "base", "A1", "BLEU")
    assert found.mean == pytest.approx(0.9)
    assert found.margin == pytest.approx(2.5706 * math.sqrt(0.116 * 0.7), rel=1e-3)
    assert compare(record, "A1", "base", "BLEU").mean == -found.mean
    assert (
        compare(record_of({"base": [20.0], "A1": [10.0]}), "base", "A1", "BLEU").margin
        == math.inf
    )


def test_equal_rows_are_told_apart_one_time_in_twenty() -> None:
    """Fails when the margin is too narrow or too wide for tables in which no row
    differs."""
    rng, verdicts = np.random.default_rng(0), []
    for _ in range(400):
        record = record_of(
            {row: rng.normal(size=5 if row == "base" else 2).tolist() for row in ROWS}
        )
        verdicts += [
            judge_better(compare(record, row, "base", "BLEU"))
            for row in ("A1", "C5", "E")
        ]
    assert (
        0.03 < sum(verdict != TOO_SMALL for verdict in verdicts) / len(verdicts) < 0.07
    )


def test_better_is_more_in_every_metric() -> None:
    """Fails when a lower perplexity or a smaller gap counts as worse."""
    good = {"bleu": 20.0, "perplexity": 8.0, "training_perplexity": 7.5}
    bad = {"bleu": 19.0, "perplexity": 9.0, "training_perplexity": 5.0}
    assert all(quality(good) > quality(bad) for quality in METRICS.values())


def test_verdicts_on_one_difference() -> None:
    """Fails when a difference within its margin is believed, or "no difference found"
    counts as "no difference"."""
    assert [judge_better(Difference(mean, 0.5)) for mean in (0.6, -0.6, 0.4)] == [
        CONFIRMED,
        CONTRADICTED,
        TOO_SMALL,
    ]
    alike = [
        judge_alike(Difference(mean, margin), 0.9)
        for mean, margin in ((-0.3, 0.5), (-1.5, 0.5), (0.0, 1.0))
    ]
    assert alike == [CONFIRMED, CONTRADICTED, TOO_SMALL]
    assert alike_within("BLEU") == pytest.approx(0.9) and alike_within(
        "perplexity"
    ) == pytest.approx(0.0725, abs=1e-3)


def test_verdicts_on_several_differences() -> None:
    """Fails when one contradicted step is outvoted, an unclear one is ignored, or a
    missing row is judged."""
    layers = next(claim for claim in CLAIMS if claim.pairs[0] == ("C2", "C1"))

    def verdict(*means: float) -> str:
        rows = dict(zip(("C1", "C2", "base", "C3"), means, strict=False))
        return judge(
            record_of({row: [mean - 0.1, mean + 0.1] for row, mean in rows.items()}),
            layers,
            "BLEU",
        )

    assert verdict(1, 2, 3, 4) == CONFIRMED and verdict(1, 2, 3, 2) == CONTRADICTED
    assert verdict(1, 2, 3, 3.1) == TOO_SMALL and verdict(1, 2, 3) == NOT_RUN


def test_claims_name_rows_of_the_table() -> None:
    """Fails when a claim has a row that the table lacks, or the same row twice."""
    for claim in CLAIMS:
        assert claim.pairs and set(claim.metrics) <= METRICS.keys()
        for pair in claim.pairs:
            assert set(pair) <= set(ROWS) and len(set(pair)) == 2


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
            origin["command"].startswith("python -m annotated_transformer.variations")
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
