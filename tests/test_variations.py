"""Chapter 15: table 3 in miniature, its statistics and its verdicts."""

import math

import numpy as np
import pytest

from annotated_transformer.support.records import read_record
from annotated_transformer.transformer import TransformerConfig
from annotated_transformer.variations import (
    AGAINST_BASE,
    CLAIMS,
    CONFIRMED,
    CONTRADICTED,
    FAMILY,
    METRICS,
    NOT_RUN,
    ROWS,
    UNDECIDED,
    Difference,
    alike_within,
    compare,
    judge,
    judge_alike,
    judge_better,
    miniature_row,
    quality_table,
    row_smoothing,
    seed_deviation,
    simultaneous_quantile,
)

ALONE = AGAINST_BASE[:1]


def record_of(scores: dict[str, list[float]]) -> dict:
    """A record of rows with their scores in BLEU, by seed."""
    return {
        "runs": [
            {"row": row, "seed": seed, "bleu": value}
            for row, values in scores.items()
            for seed, value in enumerate(values)
        ]
    }


BY_HAND = {"base": [20.0, 20.6], "A1": [19.0, 19.8], "E": [20.1, 20.5]}


@pytest.mark.parametrize("row", ROWS)
def test_a_row_is_divided_by_four_and_halved(row: str) -> None:
    """Fails when a width is not divided, a depth not halved, or something else of a row
    changes on the way."""
    full, mini = TransformerConfig.table_3(row), miniature_row(row, 4000)

    def widths(c: TransformerConfig) -> list[int]:
        head = c.d_model // c.num_heads
        return [c.d_model, c.d_ff, c.d_k or head, c.d_v or head]

    assert [4 * width for width in widths(mini)] == widths(full)
    assert 2 * mini.num_layers == full.num_layers
    for name in ("num_heads", "dropout", "positions"):
        assert getattr(mini, name) == getattr(full, name)
    assert mini.norm == "pre" and mini.vocabulary_size == 4000
    assert row_smoothing(row) == {"D3": 0.0, "D4": 0.2}.get(row, 0.1)


def test_an_unknown_row_is_named() -> None:
    """Fails when a misspelled row gives a model."""
    with pytest.raises(ValueError, match=r"row is 'F', expected one of base, A1"):
        miniature_row("F", 100)


def dunnett(others: int, freedom: int, d: float) -> float:
    """The probability that ``others`` means all stay within d standard errors of the
    difference from one control, by numerical integration."""
    z, t = np.linspace(-8, 8, 401), np.linspace(0.02, 4, 200)
    weight = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) * (z[1] - z[0])
    phi = np.vectorize(lambda x: math.erfc(-x / math.sqrt(2)) / 2)
    up, down = phi(z[:, None] + math.sqrt(2) * d * t), phi(z[:, None] - 2**0.5 * d * t)
    within = (weight[:, None] * (up - down) ** others).sum(axis=0)
    x = np.linspace(1e-6, 120, 4001)  # chi-squared
    log_density = (freedom / 2 - 1) * np.log(x) - x / 2 - math.lgamma(freedom / 2)
    density = np.exp(log_density - freedom / 2 * math.log(2)) * (x[1] - x[0])
    return float((density * np.interp(np.sqrt(x / freedom), t, within)).sum())


@pytest.mark.parametrize(("others", "freedom"), [(1, 19), (2, 20), (9, 20), (19, 19)])
def test_quantiles_are_dunnetts(others: int, freedom: int) -> None:
    """Fails when the simulation draws the wrong spread, forgets that all rows share a
    control, or takes one side only."""
    found = simultaneous_quantile(AGAINST_BASE[:others], freedom)
    assert dunnett(others, freedom, found) == pytest.approx(0.95, abs=0.003)


def test_a_single_pair_is_students() -> None:
    """Fails when one comparison pays for others, or an unknown deviation is taken for a
    known one."""
    for freedom, printed in {2: 4.303, 10: 2.228, 23: 2.069, 120: 1.980}.items():
        found = simultaneous_quantile(ALONE, freedom)
        assert found == pytest.approx(printed, rel=0.02)
    assert simultaneous_quantile(ALONE, 10, 0.99) == pytest.approx(3.169, rel=0.02)
    assert simultaneous_quantile(ALONE, 0) == math.inf


def test_what_rows_and_seeds_explain_is_no_chance() -> None:
    """Fails when a lucky seed, or a good row, widens the margin."""
    values = np.random.default_rng(1).normal(size=(6, 3))
    deviation, freedom = seed_deviation(values)
    shifted = values + np.arange(6)[:, None] ** 2 + np.array([0, 50, -7])
    assert seed_deviation(shifted) == (pytest.approx(deviation), 10) and freedom == 10
    assert seed_deviation(values[:, :1]) == (math.inf, 0)
    many = np.random.default_rng(2).normal(scale=3, size=(200, 50))
    assert seed_deviation(many)[0] == pytest.approx(3, rel=0.03)


def test_only_seeds_that_all_rows_share_are_compared() -> None:
    """Fails when a row's mean is taken over seeds that the other rows lack."""
    record = record_of({"base": [1.0, 2.0, 90.0], "E": [3.0, 5.0]})
    rows, values = quality_table(record, "BLEU")
    assert rows == ["base", "E"] and values.tolist() == [[1, 2], [3, 5]]
    record["runs"].reverse()
    assert quality_table(record, "BLEU")[1].tolist() == [[1, 2], [3, 5]]
    assert compare(record, "E", "base", "BLEU").mean == 2.5


def test_the_margin_is_the_one_by_hand() -> None:
    """Fails when the freedom counts runs instead of what is left of them, or the error
    is that of one mean."""
    record = record_of(BY_HAND)
    deviation, freedom = seed_deviation(quality_table(record, "BLEU")[1])
    assert freedom == 2 and deviation == pytest.approx(math.sqrt(0.02))
    found = compare(record, "base", "A1", "BLEU", ALONE)
    assert found.mean == pytest.approx(0.9)
    assert found.margin == pytest.approx(4.303 * math.sqrt(0.02), rel=0.02)
    assert compare(record, "A1", "base", "BLEU", ALONE).mean == -found.mean
    assert compare(record, "A1", "base", "BLEU").margin > found.margin
    assert compare(record, "base", "C1", "BLEU") is None
    one = record_of({"base": [20.0], "A1": [10.0]})
    assert compare(one, "base", "A1", "BLEU").margin == math.inf


def test_equal_rows_are_told_apart_in_one_table_of_twenty() -> None:
    """Fails when the margin is too narrow or too wide for whole tables in which no row
    differs but all share the luck of a seed."""
    rng, wrong, trials = np.random.default_rng(3), 0, 2000
    for _ in range(trials):
        values = rng.normal(size=(len(ROWS), 2)) + 5 * rng.normal(size=2)
        deviation, freedom = seed_deviation(values)
        margin = simultaneous_quantile(AGAINST_BASE, freedom) * deviation
        wrong += (np.abs(values[1:].mean(1) - values[0].mean()) > margin).any()
    assert wrong / trials == pytest.approx(0.05, abs=0.013)


def test_better_is_more_in_every_metric() -> None:
    """Fails when a lower perplexity or a smaller gap counts as worse."""
    good = {"bleu": 20.0, "perplexity": 8.0, "training_perplexity": 7.5}
    bad = {"bleu": 19.0, "perplexity": 9.0, "training_perplexity": 5.0}
    assert all(quality(good) > quality(bad) for quality in METRICS.values())


def test_verdicts_on_one_difference() -> None:
    """Fails when a difference within its margin is believed, or "no difference found"
    counts as "no difference"."""
    better = [judge_better(Difference(mean, 0.5)) for mean in (0.6, -0.6, 0.4)]
    assert better == [CONFIRMED, CONTRADICTED, UNDECIDED]
    alike = [
        judge_alike(Difference(mean, margin), 0.9)
        for mean, margin in ((-0.3, 0.5), (-1.5, 0.5), (0.0, 1.0), (1.1, 0.5))
    ]
    assert alike == [CONFIRMED, CONTRADICTED, UNDECIDED, UNDECIDED]
    assert alike_within("BLEU") == pytest.approx(0.9)
    assert alike_within("perplexity") == pytest.approx(0.0725, abs=1e-3)


def test_verdicts_on_several_differences() -> None:
    """Fails when one contradicted step is outvoted, an unclear one is ignored, or a
    missing row is judged."""
    layers = next(claim for claim in CLAIMS if claim.pairs[0] == ("C2", "C1"))

    def verdict(*means: float) -> str:
        rows = dict(zip(("C1", "C2", "base", "C3"), means, strict=False))
        noise = {"C1": 0.04, "C2": -0.04}
        values = {r: [m, m + 7 + noise.get(r, 0)] for r, m in rows.items()}
        return judge(record_of(values), layers, "BLEU")

    assert verdict(1, 2, 3, 4) == CONFIRMED
    assert verdict(1, 2, 3, 2) == CONTRADICTED
    assert verdict(1, 2, 3, 3.01) == UNDECIDED
    assert verdict(1, 2, 3) == NOT_RUN


def test_claims_name_rows_of_the_table() -> None:
    """Fails when a claim has a row that the table lacks, the same row twice, or a pair
    that the family's margin does not hold for."""
    assert len(set(FAMILY)) == len(FAMILY) == len(ROWS)
    for claim in CLAIMS:
        assert claim.pairs and set(claim.metrics) <= METRICS.keys()
        for pair in claim.pairs:
            assert set(pair) <= set(ROWS) and len(set(pair)) == 2
            assert pair in FAMILY or pair[::-1] in FAMILY


def test_what_chapter_15_says_of_the_record() -> None:
    """Fails when another record makes the chapter's words untrue: that the order of the
    rows repeats itself, that runs end while they learn, what is undecided."""
    record = read_record("variations")
    _, values = quality_table(record, "perplexity")
    assert values.shape == (len(ROWS), 2)
    ranks = values.argsort(axis=0).argsort(axis=0)
    assert np.corrcoef(ranks.T)[0, 1] > 0.9
    assert all(run["passes"] < 3 for run in record["runs"])
    assert all(
        run["history"][-1][1] < 0.9 * run["history"][-2][1] for run in record["runs"]
    )
    verdicts = {(c.text, m): judge(record, c, m) for c in CLAIMS for m in c.metrics}
    assert NOT_RUN not in verdicts.values()
    assert verdicts["learned positions do as well", "BLEU"] == UNDECIDED
    assert verdicts["dropout helps", "perplexity"] == CONTRADICTED
    assert verdicts["dropout helps", "gap"] == CONFIRMED
    runs = {(run["row"], run["seed"]): run for run in record["runs"]}
    for name in ("perplexity", "training_perplexity"):
        for seed in (0, 1):
            assert runs["D1", seed][name] < runs["base", seed][name]
