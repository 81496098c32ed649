"""Chapter 13: BLEU and chrF, scores with signatures, the paired bootstrap, averaged
checkpoints."""

import gzip
import math
import os
from pathlib import Path

import numpy as np
import pytest
import sacrebleu
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from sacrebleu.significance import PairedTest

from annotated_transformer.evaluation import (
    average_checkpoints,
    bleu,
    bleu_counts,
    bleu_from_counts,
    bootstrap_differences,
    bootstrap_p,
    chrf,
    moses_lower_case,
    ngram_counts,
    paired_bootstrap,
    score,
    split_compounds,
)
from annotated_transformer.support.checkpoints import save_tensors
from annotated_transformer.support.records import recorded_counts, sentence_statistics

MULTI30K = Path(os.environ.get("ANNOTATED_TRANSFORMER_DATA", "")) / "multi30k"

snippets = st.sampled_from(
    [
        "der ",
        "Hund ",
        "3,50",
        "7-",
        "&quot;",
        "&amp;",
        " .",
        "'",
        "\u00a0",
        "-\n",
        "<skipped>",
    ]
)
lines = st.lists(
    snippets | st.sampled_from("ab ") | st.text(max_size=2), max_size=12
).map("".join)
corpora = st.lists(st.tuples(lines, lines), min_size=1, max_size=4)


def some_lines(seed: int, number: int = 60) -> tuple[list[str], list[str], list[str]]:
    """References and two systems that have most words right, the second system a few
    more."""
    rng = np.random.default_rng(seed)
    words = np.array(
        "der die das ein Hund Katze Mann Frau sieht hört kleine alte und , .".split()
    )
    references = words[rng.integers(len(words), size=(number, 12))]
    first, second = (
        np.where(rng.random(references.shape) < share, words[3], references)
        for share in (0.3, 0.25)
    )
    return tuple(
        [" ".join(line) for line in text] for text in (references, first, second)
    )


def test_ngrams_are_clipped() -> None:
    """Fails when a word of the reference can be matched twice, or an order is off by
    one."""
    hypothesis, reference = (
        "der kleine Hund sieht der Hund".split(),
        "der kleine Hund sieht die Katze".split(),
    )
    assert ngram_counts(hypothesis, [reference], 4).tolist() == [
        [6, 6, 4],
        [5, 5, 3],
        [4, 4, 2],
        [3, 3, 1],
    ]
    assert ngram_counts("aaa", ["a"], 2).tolist() == [[3, 1, 1], [2, 0, 0]]


def test_bleu_by_hand() -> None:
    """Fails when the mean is not geometric, the brevity penalty is missing, or long
    output is punished too."""
    reference = ["der kleine Hund sieht die Katze"]
    assert math.isclose(
        bleu(["der kleine Hund sieht der Hund"], reference), 100 * (1 / 15) ** 0.25
    )
    assert math.isclose(
        bleu(["der kleine Hund sieht"], reference), 100 * math.exp(-0.5)
    )
    longer = 100 * (6 / 7 * 5 / 6 * 4 / 5 * 3 / 4) ** 0.25
    assert math.isclose(
        bleu(["der kleine Hund sieht die Katze heute"], reference), longer
    )


def test_orders_without_a_match_count_half_and_a_quarter() -> None:
    """Fails when smoothing starts at one, or does not go on halving; nothing at all
    stays zero."""
    counts = np.array([[5, 5, 2], [4, 4, 1], [3, 3, 0], [2, 2, 0]])
    assert math.isclose(
        bleu_from_counts(counts), 100 * (2 / 5 * 1 / 4 * 1 / 6 * 1 / 8) ** 0.25
    )
    assert bleu_from_counts(counts * [1, 1, 0]) == 0
    assert bleu(["zu kurz hier"], ["zu kurz hier"]) == 0  # no 4-gram at all


@pytest.mark.slow
@given(corpus=corpora)
@example(corpus=[("", "")])
@example(corpus=[("a b c d\n-\n", "a b c d -")])
def test_bleu_is_that_of_sacrebleu(corpus: list[tuple[str, str]]) -> None:
    """Fails when tokens, clipping, smoothing or lengths differ from sacreBLEU's default
    on any text."""
    hypotheses, references = (list(side) for side in zip(*corpus, strict=True))
    assert (
        abs(
            bleu(hypotheses, references)
            - sacrebleu.corpus_bleu(hypotheses, [references]).score
        )
        < 1e-9
    )


@given(
    corpus=st.lists(
        st.tuples(lines, lines, st.none() | lines.filter(str.strip)),
        min_size=1,
        max_size=4,
    )
)
@example(corpus=[("a b", "a b c", "a"), ("b b a", "b", "b b")])
def test_bleu_of_several_references_is_that_of_sacrebleu(
    corpus: list[tuple[str, str, str | None]],
) -> None:
    """Fails when matches are added over references, or the length is not that of the
    closest reference, the shorter of two as close."""
    hypotheses, first, second = (list(side) for side in zip(*corpus, strict=True))
    first = [line if line.strip() else "a" for line in first]  # it drops empty ones
    several = [[x] if y is None else [x, y] for x, y in zip(first, second, strict=True)]
    theirs = sacrebleu.corpus_bleu(hypotheses, [first, second]).score
    assert abs(bleu(hypotheses, several) - theirs) < 1e-9
    assert abs(score(hypotheses, several)["bleu"]["score"] - theirs) < 0.006


def test_matches_and_length_of_several_references() -> None:
    """Fails when an n-gram may be matched once for each reference, or the longer of two
    references that are as close is taken."""
    counts = ngram_counts("aab", ["ab", "aac", "bbbb"], 1)
    assert counts.tolist() == [[3, 3, 3]]
    assert ngram_counts("aaa", ["aa", "aaaa"], 2).tolist() == [[3, 2, 3], [2, 1, 2]]
    assert ngram_counts("aab", ["a", "a"], 1).tolist() == [[3, 1, 1]]


@given(corpus=corpora)
@example(corpus=[("", "")])
@example(corpus=[("Hundehütte", "ab"), ("ab", "Hundehütte")])
def test_chrf_is_that_of_sacrebleu(corpus: list[tuple[str, str]]) -> None:
    """Fails when spaces count, an order is wrong, or n-grams count where the reference
    is too short for any."""
    hypotheses, references = (list(side) for side in zip(*corpus, strict=True))
    assert (
        abs(
            chrf(hypotheses, references)
            - sacrebleu.corpus_chrf(hypotheses, [references]).score
        )
        < 1e-9
    )


def test_chrf_by_hand() -> None:
    """Fails when precision and recall are exchanged: the chapter's example would get
    another score."""
    assert math.isclose(chrf(["Hund"], ["Hut"]), 100 * 5 * (35 / 324) / (27 / 18))
    assert chrf(["Hu"], ["Hund"]) < chrf(
        ["Hund"], ["Hu"]
    )  # what is missing costs more than what is too much


@pytest.mark.parametrize("measure", [bleu, chrf, score])
def test_lists_that_do_not_belong_together_are_refused(measure) -> None:
    """Fails when the longer list is cut, or no lines at all get a score."""
    with pytest.raises(ValueError, match="2 hypotheses and 1 references"):
        measure(["a", "b"], ["a"])
    with pytest.raises(ValueError, match="at least one"):
        measure([], [])


def test_scores_carry_their_signatures() -> None:
    """Fails when a score is made with other settings than its name says, or differs
    from the definitions."""
    references, _, hypotheses = some_lines(1)
    scores = score(hypotheses, references, moses_lower_case(references, "de"))
    assert scores["bleu"]["score"] == round(bleu(hypotheses, references), 2)
    assert scores["chrf"]["score"] == round(chrf(hypotheses, references), 2)
    small = [[line.lower() for line in text] for text in (hypotheses, references)]
    assert scores["bleu_lower_case"]["score"] == round(bleu(*small), 2)
    assert (
        "case:mixed" in scores["bleu"]["signature"]
        and "tok:13a" in scores["bleu"]["signature"]
    )
    assert "case:lc" in scores["bleu_lower_case"]["signature"]
    assert "tok:none" in scores["bleu_moses_lower_case"]["signature"]
    assert set(score(hypotheses, references)) == {"bleu", "bleu_lower_case", "chrf"}
    with pytest.raises(ValueError, match="60 hypotheses and 59 references"):
        score(hypotheses, references, references[1:])


def test_moses_lower_case() -> None:
    """Fails when case, punctuation or spaces stay as they were, or an entity is not
    written as Moses does."""
    assert moses_lower_case(["„Geht's?“, fragt Ida  ."], "de") == [
        "&quot; geht &apos; s ? &quot; , fragt ida ."
    ]


@pytest.mark.parametrize(("language", "allowed"), [("de", 0), ("fr", 1)])
def test_moses_lower_case_is_how_multi30k_was_made(language: str, allowed: int) -> None:
    """Fails when our preparation is not that of the published references (one French
    line has a space more there)."""
    plain = MULTI30K / f"test_2016_flickr.{language}.gz"
    published = MULTI30K / f"test_2016_flickr.lc.norm.tok.{language}"
    if not (plain.is_file() and published.is_file()):
        pytest.skip(
            f"{plain.name} and {published.name} are not in"
            " $ANNOTATED_TRANSFORMER_DATA/multi30k"
        )
    with gzip.open(plain, "rt", encoding="utf-8") as file:
        ours = moses_lower_case(file.read().splitlines(), language)
    theirs = published.read_text(encoding="utf-8").splitlines()
    assert len(ours) == len(theirs) == 1000
    assert sum(a != b for a, b in zip(ours, theirs, strict=True)) == allowed


def test_compounds_are_split_at_hyphens_inside_words() -> None:
    """Fails when a dash between spaces is taken for a hyphen, or a second hyphen of a
    word is left."""
    assert split_compounds("rich-text format") == "rich ##AT##-##AT## text format"
    assert split_compounds("U-Bahn-Netz") == "U ##AT##-##AT## Bahn ##AT##-##AT## Netz"
    untouched = "er - und sie -5 7-"
    assert split_compounds(untouched) == untouched


def test_bootstrap_repeats_itself_and_knows_its_seed() -> None:
    """Fails when the draws depend on anything but the seed."""
    references, first, second = some_lines(2)
    result, again = (
        paired_bootstrap(first, second, references, samples=200) for _ in range(2)
    )
    assert result == again and np.array_equal(result.differences, again.differences)
    assert not np.array_equal(
        result.differences,
        paired_bootstrap(first, second, references, 200, 1).differences,
    )


def test_bootstrap_fields() -> None:
    """Fails when a field does not hold what its name says, or the systems are
    exchanged."""
    references, first, second = some_lines(3)
    result = paired_bootstrap(first, second, references, samples=400)
    assert math.isclose(
        result.difference, bleu(second, references) - bleu(first, references)
    )
    assert (
        math.isclose(result.mean, result.differences.mean())
        and len(result.differences) == 400
    )
    assert (
        abs(result.mean - result.difference)
        < (result.high - result.low) / 4
        < abs(result.difference)
    )
    inside = (result.differences >= result.low) & (result.differences <= result.high)
    assert abs(inside.mean() - 0.95) < 0.01
    assert result.wins == (result.differences > 0).mean()
    turned = paired_bootstrap(second, first, references, samples=400)
    np.testing.assert_allclose(turned.differences, -result.differences)
    assert math.isclose(turned.p, result.p)


def test_counts_compare_as_their_texts_do() -> None:
    """Fails when a comparison needs the text, or a record loses what BLEU needs."""
    references, first, second = some_lines(7)
    texts = paired_bootstrap(first, second, references, samples=100)
    counts = [bleu_counts(lines, references) for lines in (first, second)]
    assert paired_bootstrap(*counts, samples=100) == texts
    records = [
        {"sentence_statistics": {"bleu": sentence_statistics(lines, references)}}
        for lines in (first, second)
    ]
    kept = [recorded_counts(record) for record in records]
    assert paired_bootstrap(*kept, samples=100) == texts
    with pytest.raises(ValueError, match="59 hypotheses and 60 references"):
        paired_bootstrap(counts[0][1:], counts[1])


def test_bootstrap_draws_as_sacrebleu_does() -> None:
    """Fails when the resamples, or the scores on them, are not sacreBLEU's for the same
    seed."""
    references, first, second = some_lines(4)
    ours = paired_bootstrap(first, second, references)
    named, metrics = (
        [("first", first), ("second", second)],
        {"BLEU": sacrebleu.BLEU(force=True)},
    )
    before, after = PairedTest(
        named, metrics, [references], test_type="bs", n_samples=1000
    )()[1]["BLEU"]
    assert abs(ours.mean - (after.mean - before.mean)) < 1e-3
    sizes = np.abs(ours.differences)  # sacreBLEU's rule for p, from our differences
    extreme = (sizes - sizes.mean() > abs(ours.difference)).sum()
    assert abs((1 + extreme) / 1001 - after.p_value) < 0.005


def test_p_is_two_sided_and_never_zero() -> None:
    """Fails when one tail is left out, differences are not centered, or a system
    differs from itself."""
    differences = np.array([1.0, 2.0, 3.0, 4.0, 5.0])  # centered: -2 to 2
    assert [bootstrap_p(d, differences) for d in (3.0, 2.0, -2.0, 1.0)] == [
        1 / 6,
        3 / 6,
        3 / 6,
        5 / 6,
    ]
    references, first, _ = some_lines(5)
    same = paired_bootstrap(first, first, references, samples=50)
    assert same.p == 1 and same.difference == 0 and same.wins == 0


def test_type_i_errors_are_as_rare_as_p_says() -> None:
    """Fails when ``p < 0.05`` comes up far more or far less often than that between
    systems that are equally good."""
    references, first, second = some_lines(8, number=100)
    pair, rng = (
        np.stack([bleu_counts(text, references) for text in (first, second)]),
        np.random.default_rng(0),
    )
    errors = []
    for trial in range(
        300
    ):  # a coin decides, sentence by sentence, which system gets which translation
        coin, rows = rng.integers(2, size=100), range(100)
        a, b = pair[coin, rows], pair[1 - coin, rows]
        difference = bleu_from_counts(b.sum(axis=0)) - bleu_from_counts(a.sum(axis=0))
        errors.append(
            bootstrap_p(
                difference, bootstrap_differences(a, b, samples=200, seed=trial)
            )
            < 0.05
        )
    assert 0.01 < np.mean(errors) < 0.07


def test_bootstrap_refuses_what_makes_no_comparison() -> None:
    """Fails when no resamples, or lists of unequal length, get a result."""
    with pytest.raises(ValueError, match="samples is 0"):
        paired_bootstrap(["a"], ["a"], ["a"], samples=0)
    with pytest.raises(ValueError, match="1 hypotheses and 2 references"):
        paired_bootstrap(["a", "b"], ["a"], ["a", "b"])


def checkpoint(path: Path, value: float, step: int, rows: int = 2) -> Path:
    """A checkpoint as the trainer writes it, every weight ``value``."""
    weights = {
        "model.weight": torch.full((rows, 3), value),
        "model.bias": torch.full((1,), -value),
    }
    save_tensors(
        path, weights | {"optimizer.0.exp_avg": torch.ones(rows, 3)}, {"step": step}
    )
    return path


def test_average_is_the_mean_of_the_weights_alone(tmp_path: Path) -> None:
    """Fails when the optimizer's state slips in, the sum is not divided, or the facts
    are not the last one's."""
    paths = [
        checkpoint(tmp_path / str(step), value, step)
        for step, value in ((10, 1.0), (20, 2.0), (30, 6.0))
    ]
    weights, facts = average_checkpoints(paths)
    torch.testing.assert_close(
        weights, {"weight": torch.full((2, 3), 3.0), "bias": torch.full((1,), -3.0)}
    )
    assert facts == {"step": 30}
    torch.testing.assert_close(
        average_checkpoints(paths[1:2])[0]["bias"],
        torch.full((1,), -2.0),
        rtol=0,
        atol=0,
    )


def test_average_refuses_what_has_no_mean(tmp_path: Path) -> None:
    """Fails when no checkpoints, those of another model, or damaged ones are
    averaged."""
    one, other = (
        checkpoint(tmp_path / "one", 1.0, 1),
        checkpoint(tmp_path / "other", 1.0, 1, rows=3),
    )
    with pytest.raises(
        ValueError, match="checkpoints is 0, expected a whole number of at least 1"
    ):
        average_checkpoints([])
    with pytest.raises(ValueError, match="another model"):
        average_checkpoints([one, other])
    file = other.with_suffix(".safetensors")
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ValueError, match="damaged"):
        average_checkpoints([one, other])
    with pytest.raises(FileNotFoundError, match="is not there"):
        average_checkpoints([one, tmp_path / "none"])
