"""Records of runs: what BLEU needs of each sentence, and JSON that people can read."""

import json

import pytest
from sacrebleu import BLEU

from annotated_transformer.support.records import (
    STATISTICS,
    read_record,
    record_json,
    sentence_statistics,
)

HYPOTHESES = ['A dog, sees "it".', "the Man", "", "x y z w v", "THE man runs off."]
REFERENCES = ["A dog sees it.", "The man runs", "so", "x y z w u", "the man runs off."]


@pytest.mark.parametrize("lowercase", [False, True])
def test_statistics_are_those_of_sacrebleu(lowercase: bool) -> None:
    """Fails when two columns change places, when case is folded in the wrong one, and
    when the order that is written down is not that of the rows."""
    rows = sentence_statistics(HYPOTHESES, REFERENCES, lowercase)
    metric = BLEU(lowercase=lowercase)
    for row, ours, theirs in zip(rows, HYPOTHESES, REFERENCES, strict=True):
        named = dict(zip(STATISTICS, row, strict=True))
        expected = metric.corpus_score([ours], [[theirs]])
        assert [named[f"match_{n}"] for n in range(1, 5)] == expected.counts
        assert [named[f"total_{n}"] for n in range(1, 5)] == expected.totals
        assert (named["hyp_len"], named["ref_len"]) == (
            expected.sys_len,
            expected.ref_len,
        )
    assert all(type(number) is int for row in rows for number in row)


def test_statistics_of_nothing_are_refused() -> None:
    """Fails when sentences without references are counted."""
    with pytest.raises(ValueError, match="expected"):
        sentence_statistics(HYPOTHESES, REFERENCES[1:])


def test_a_record_comes_back_with_a_row_of_numbers_a_line() -> None:
    """Fails when text that looks like a list is changed, and when the rows of a
    thousand sentences take ten thousand lines."""
    record = {"rows": [[1, 2, -3], [4.5, 1e-09, 0]], "text": "[\n 1,\n 2]", "none": []}
    record |= {"words": ["a", "b"], "mixed": [None, {"x": [1, 2]}]}
    text = record_json(record)
    assert json.loads(text) == record
    assert "[1, 2, -3],\n" in text and "[4.5, 1e-09, 0]\n" in text
    with pytest.raises(ValueError):
        record_json({"loss": float("nan")})


def test_a_record_that_is_not_there_is_named() -> None:
    """Fails when the names that there are do not stand in the message."""
    with pytest.raises(
        ValueError, match="'nothing' is no record: expected one of .*pars"
    ):
        read_record("nothing")
