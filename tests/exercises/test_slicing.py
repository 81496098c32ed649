"""The slice before an exercise holds what the exercise needs, and little else."""

import ast

import pytest
from slicing import needed, statements

CASES = {
    "what is read is kept, and what that reads": (
        ["a = 1", "b = a + 1", "c = 3"],
        "b",
        ["a = 1", "b = a + 1"],
    ),
    "an older value is not": (["a = f()", "a = 2"], "a", ["a = 2"]),
    "imports and seeds are always kept": (
        ["import math", "torch.manual_seed(0)", "b = 1"],
        "2",
        ["import math", "torch.manual_seed(0)"],
    ),
    "a change is kept": (
        ["a = []", "a.append(1)", "a[0] = 2", "print(a)", "assert a"],
        "a",
        ["a = []", "a.append(1)", "a[0] = 2"],
    ),
    "training is kept, drawing is not": (
        ["model = M()", "losses = train(model, 3)", "axes.plot(losses, model)"],
        "model",
        ["model = M()", "losses = train(model, 3)"],
    ),
    "an optimizer changes its model": (
        ["model = M()", "adam = Adam(model.parameters())", "adam.step()", "x = 1"],
        "model",
        ["model = M()", "adam = Adam(model.parameters())", "adam.step()"],
    ),
    "a function wants its globals where it is used": (
        ["def f():\n    return a", "a = 1", "b = f()", "a = 2"],
        "b",
        ["def f():\n    return a", "a = 1", "b = f()"],
    ),
    "a function may change a global": (
        ["seen = {}", "def note(x):\n    seen[x] = 1\n    return x", "b = note(2)"],
        "seen",
        ["seen = {}", "def note(x):\n    seen[x] = 1\n    return x", "b = note(2)"],
    ),
    "its own names are not wanted": (
        ["x = slow()", "row = slow()", "i = slow()"],
        "def f(x):\n    row = [i for i in x]\n    return row\nfor i in f(2):\n    i",
        [],
    ),
    "magics are dropped": (["%matplotlib inline", "a = 1"], "a", ["a = 1"]),
}


@pytest.mark.parametrize("name", CASES)
def test_slice(name):
    """Fails when a statement that is needed is lost, or one that is not is run."""
    before, last, kept = CASES[name]
    found = needed(
        [s for source in before for s in statements(source)], [[statements(last)]]
    )
    assert [ast.unparse(statement.node) for statement in found] == kept
