"""Run solutions of the book's coding exercises, right and wrong, against their checks.

A file `chNN.py` beside this one (`ch02.py`, `chA.py`) lists, for each coding exercise
of its notebook, wrong solutions with the mistake that each makes, and right ones that
differ from the book's:

    EXERCISES = [
        Exercise(
            cell="02-6670e89d",
            wrong={"looks one key too far": '''return (a - b).abs() <= width + 1'''},
            right={"from a band": '''...'''},
        ),
    ]

The text replaces what stands between the solution's marks, at their indentation. A
text that defines a top-level name of the cell once more replaces the whole cell.

    python tests/exercises/harness.py 02             # try all candidates of chapter 2
    python tests/exercises/harness.py 02 02-6670e89d # of one exercise, with its slice

For each exercise, a process of its own runs the earlier statements that are needed
(`slicing.py` finds them), without a network and without a corpus, in an empty folder.
Every candidate then runs in a fork of it, so that none can spoil another: the cell,
then the code cells that follow it up to the next text. A wrong solution is refused by
any error of its check, and by running out of time; never by a misspelled name.
"""

import ast
import importlib
import json
import linecache
import os
import signal
import sys
import tempfile
import textwrap
import time
import types
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from slicing import Statement, needed, statements, without_magics

HERE = Path(__file__).resolve().parent
NOTEBOOKS = HERE.parent.parent / "notebooks"
BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
BOOK = "the book's own"
BROKEN = ("NameError", "SyntaxError", "IndentationError", "ModuleNotFoundError")


@dataclass(frozen=True)
class Exercise:
    """One coding exercise, and solutions of it that were not written by the book."""

    cell: str
    """The id of the solution's cell."""
    wrong: dict[str, str]
    """At least three: the mistake in a line, and the code that makes it."""
    right: dict[str, str]
    """At least one: its idea, and code that differs from the book's."""
    needs: tuple[str, ...] = ()
    """Ids of earlier cells that have to run whole, where the slice misses them."""
    seconds: int = 60
    """The time for the slice, and again for each candidate."""


@dataclass(frozen=True)
class Outcome:
    """How a solution fared. ``error`` is empty if it passed its check."""

    error: str
    message: str
    seconds: float

    @property
    def refused(self) -> bool:
        """Whether the check told that the solution is wrong."""
        return bool(self.error) and not self.broken

    @property
    def broken(self) -> bool:
        """Whether it never came to a check: the candidate's (or the slice's) fault."""
        return self.error in BROKEN or self.error.startswith("Slice")

    def __str__(self) -> str:
        line = (self.message.strip().splitlines() or [""])[0][:90]
        return f"{self.error}: {line}" if self.error else "passed"


def notebook(number: str) -> Path:
    """The notebook of a chapter: 02 is ``notebooks/02_attention.ipynb``."""
    (path,) = NOTEBOOKS.glob(f"{number}_*.ipynb")
    return path


@cache
def cells(number: str) -> list[dict]:
    """The cells of a chapter's notebook; each source is one string."""
    loaded = json.loads(notebook(number).read_text(encoding="utf-8"))["cells"]
    return [{**cell, "source": "".join(cell["source"])} for cell in loaded]


def coding_exercises(number: str) -> list[str]:
    """The ids of a chapter's solution cells."""
    return [cell["id"] for cell in cells(number) if BEGIN in cell["source"]]


def listed(number: str) -> list[Exercise]:
    """The exercises that ``chNN.py`` lists; none if there is no such file."""
    if not (HERE / f"ch{number}.py").is_file():
        return []
    return importlib.import_module(f"ch{number}").EXERCISES


def check_cells(number: str, cell: str) -> list[dict]:
    """The code cells that follow a solution directly, up to the next text."""
    found = []
    at = [c["id"] for c in cells(number)].index(cell)
    for following in cells(number)[at + 1 :]:
        if following["cell_type"] != "code" or BEGIN in following["source"]:
            break
        found.append(following)
    return found


def replaced(source: str, candidate: str) -> str:
    """The solution's cell with a candidate in place of the book's solution."""
    candidate = textwrap.dedent(candidate).strip("\n")
    if _defined(source) & _defined(candidate):
        return candidate
    before, rest = source.split(BEGIN, 1)
    _, after = rest.split(END, 1)
    before, indent = before.rstrip(" "), before[len(before.rstrip(" ")) :]
    return before + textwrap.indent(candidate, indent) + after


def _defined(source: str) -> set[str]:
    """The top-level functions and classes that a source defines."""
    try:
        body = ast.parse(source).body
    except SyntaxError:
        return set()
    return {n.name for n in body if isinstance(n, ast.FunctionDef | ast.ClassDef)}


def slice_of(number: str, exercise: Exercise) -> list[Statement]:
    """The statements that have to run before the exercise, in their order."""
    found = cells(number)
    at = [cell["id"] for cell in found].index(exercise.cell)
    before = [
        statement
        for cell in found[:at]
        if cell["cell_type"] == "code"
        for statement in statements(cell["source"], cell["id"])
        if "chapter-setup" not in cell["metadata"].get("tags", []) or statement.always
    ]
    versions = [statements(found[at]["source"])]
    for candidate in [*exercise.wrong.values(), *exercise.right.values()]:
        try:
            versions.append(statements(replaced(found[at]["source"], candidate)))
        except SyntaxError:
            continue  # running it will say so
    check = [
        s for c in check_cells(number, exercise.cell) for s in statements(c["source"])
    ]
    forced = [[s] for s in before if s.cell in exercise.needs]
    kept = {id(s) for s in needed(before, [*([f] for f in forced), versions, [check]])}
    return [s for s in before if id(s) in kept or s.cell in exercise.needs]


def outcomes(number: str, exercise: Exercise) -> dict[str, Outcome]:
    """Try the book's solution and all candidates: outcome by name; "slice" is first."""
    found = {cell["id"]: cell["source"] for cell in cells(number)}
    own = found[exercise.cell]
    sources = {BOOK: own}
    for name, candidate in (exercise.wrong | exercise.right).items():
        sources[name] = replaced(own, candidate)
    checks = [(c["id"], c["source"]) for c in check_cells(number, exercise.cell)]
    before = slice_of(number, exercise)

    def everything() -> dict:
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        main.display = lambda *args, **kwargs: None
        start = time.perf_counter()
        for cell in dict.fromkeys(s.cell for s in before):
            body = [s.node for s in before if s.cell == cell]
            _execute(main, cell, found[cell], body)
        results = {"slice": {"error": "", "seconds": time.perf_counter() - start}}
        for name, source in sources.items():

            def candidate(source: str = source) -> dict:
                for cell, text in [(exercise.cell, source), *checks]:
                    _execute(main, cell, text)
                return {"error": ""}

            results[name] = _in_fork(candidate, exercise.seconds)
        return {"error": "", "results": results}

    _import_what_notebooks_share()
    whole = _in_fork(everything, exercise.seconds * (len(sources) + 1))
    failed = whole | {"error": f"Slice failed, {whole['error']}"}
    results = whole.get("results", dict.fromkeys(["slice", *sources], failed))
    return {
        name: Outcome(r["error"], r.get("message", ""), r["seconds"])
        for name, r in results.items()
    }


def _execute(
    main: types.ModuleType, cell: str, source: str, body: list[ast.stmt] | None = None
) -> None:
    """Run a cell, or some statements of it, so that ``inspect`` finds its source."""
    source = without_magics(source)
    name = f"<{cell}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    tree = ast.parse(source, name) if body is None else ast.Module(body, [])
    exec(compile(tree, name, "exec"), main.__dict__)  # noqa: S102


def _in_fork(function: Callable[[], dict], seconds: int) -> dict:
    """What a function returns or raises in a forked process, quietly, in good time."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "answer.json")
        process = os.fork()
        if process == 0:
            _answer(function, seconds, answer)
        _, status = os.waitpid(process, 0)
        if answer.is_file():
            result = json.loads(answer.read_text())
        elif os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM:
            result = {"error": "Timeout", "message": f"not done after {seconds} s"}
        else:
            result = {"error": "Crash", "message": f"the process ended: {status}"}
    return {"seconds": time.perf_counter() - start} | result


def _answer(function: Callable[[], dict], seconds: int, answer: Path) -> None:
    """The forked process: leave the function's result in a file, and end."""
    try:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(seconds)
        empty = Path(answer.parent, "empty")
        empty.mkdir()
        os.chdir(empty)
        os.environ["ANNOTATED_TRANSFORMER_DATA"] = str(empty)
        result = function()
    except BaseException as error:  # a candidate may raise anything
        result = {"error": type(error).__name__, "message": str(error)}
    try:
        part = answer.with_suffix(".part")
        part.write_text(json.dumps(result))
        part.rename(answer)
    finally:
        os._exit(0)


@cache
def _import_what_notebooks_share() -> None:
    """Import once what every fork would import again."""
    os.environ.setdefault("MPLBACKEND", "agg")
    warnings.simplefilter("ignore")
    for name in ("altair", "matplotlib.pyplot", "pandas", "sentencepiece", "torch.nn"):
        importlib.import_module(name)
    torch = importlib.import_module("torch")
    torch.set_num_threads(1)
    torch.testing.assert_close(torch.ones(1), torch.ones(1))  # these two import more
    torch.broadcast_shapes((1,), (1,))


def main(arguments: list[str]) -> int:
    """Print how each candidate fares; return how many did not as they should."""
    number, *wanted = arguments
    amiss = 0
    for exercise in listed(number):
        if wanted and exercise.cell not in wanted:
            continue
        if wanted:
            for statement in slice_of(number, exercise):
                line = ast.unparse(statement.node).splitlines()[0]
                print(f"    {statement.cell}  {line[:90]}")
        for name, outcome in outcomes(number, exercise).items():
            good = outcome.refused if name in exercise.wrong else not outcome.error
            kind = "wrong" if name in exercise.wrong else "right"
            kind = "" if name in ("slice", BOOK) else kind
            amiss += not good
            mark = "ok " if good else "BAD"
            print(f"{mark} {exercise.cell} {outcome.seconds:5.1f} s  {kind:5} {name}")
            if str(outcome) != "passed":
                print(f"{'':14}{outcome}")
    return amiss


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) > 0)
