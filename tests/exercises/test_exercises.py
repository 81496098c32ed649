"""The checks of the book's coding exercises let right solutions pass, and no others.

The solutions stand in `chNN.py`; `harness.py` says how they are run.
"""

import os
from functools import cache

import harness
import pytest
from harness import BOOK, Exercise, Outcome

CHAPTERS = sorted(path.name.split("_")[0] for path in harness.NOTEBOOKS.glob("*.ipynb"))
LISTED = [(number, entry) for number in CHAPTERS for entry in harness.listed(number)]

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")


def candidates(kind: str) -> pytest.MarkDecorator:
    """Parametrize over all wrong, or all right, candidates of the book."""
    return pytest.mark.parametrize(
        ("number", "exercise", "name"),
        [
            pytest.param(number, exercise, name, id=f"{exercise.cell}: {name}")
            for number, exercise in LISTED
            for name in getattr(exercise, kind)
        ],
    )


@cache
def outcomes(number: str, cell: str) -> dict[str, Outcome]:
    """All candidates of an exercise are run at once, when the first is asked for."""
    (exercise,) = (e for e in harness.listed(number) if e.cell == cell)
    return harness.outcomes(number, exercise)


@pytest.mark.slow
@needs_fork
@candidates("wrong")
def test_wrong_solution_is_refused(number: str, exercise: Exercise, name: str) -> None:
    """Fails when a check accepts a wrong solution, or the solution is misspelled."""
    outcome = outcomes(number, exercise.cell)[name]
    assert not outcome.broken, f"never came to the check: {outcome}"
    assert outcome.refused, f"{exercise.cell} accepts a solution that {name}"


@pytest.mark.slow
@needs_fork
@candidates("right")
def test_right_solution_passes(number: str, exercise: Exercise, name: str) -> None:
    """Fails when a check asks for the book's own code, and not for its result."""
    outcome = outcomes(number, exercise.cell)[name]
    assert not outcome.error, f"{exercise.cell} refuses a right solution: {outcome}"


@pytest.mark.slow
@needs_fork
@pytest.mark.parametrize(
    ("number", "exercise"),
    [pytest.param(*entry, id=entry[1].cell) for entry in LISTED],
)
def test_the_books_solution_passes(number: str, exercise: Exercise) -> None:
    """Fails when the slice lacks something, or the book's own solution is wrong."""
    outcome = outcomes(number, exercise.cell)[BOOK]
    assert not outcome.error, f"{exercise.cell}: {outcome}"


@pytest.mark.parametrize("number", CHAPTERS)
def test_every_exercise_is_listed(number: str) -> None:
    """Fails when an exercise has too few candidates, or a listed one is gone."""
    cells = [exercise.cell for exercise in harness.listed(number)]
    assert sorted(cells) == sorted(harness.coding_exercises(number))
    for exercise in harness.listed(number):
        assert len(exercise.wrong) >= 3, f"{exercise.cell}: fewer than three wrong"
        assert exercise.right, f"{exercise.cell}: no second right solution"
        names = {BOOK, "slice", *exercise.wrong, *exercise.right}
        assert len(names) == 2 + len(exercise.wrong) + len(exercise.right)


@pytest.mark.parametrize("number", CHAPTERS)
def test_check_follows_its_solution(number: str) -> None:
    """Fails when text, or nothing, stands between a solution and its check."""
    for cell in harness.coding_exercises(number):
        checks = harness.check_cells(number, cell)
        assert any("assert" in check["source"] for check in checks), cell
