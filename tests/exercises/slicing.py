"""The part of a notebook that one cell depends on, found without running anything.

`needed(before, last)` walks the statements `before` from the last to the first and
keeps those that bind or change a name that is still wanted. The rules, in words:

- Imports and seeds are always kept; magics are dropped.
- A statement that binds a wanted name is kept, and wants what it reads. A plain
  assignment ends the want of the older value.
- A function wants the globals of its body from where it is used, not from where it
  is defined.
- `x[0] = ...`, `x.y = ...` and `x.append(...)` change `x`. So does a call whose value
  nobody keeps, as in `train(model)`, or whose name says that it trains or loads.
- What changes an optimizer or a trainer changes what it was made with.
- Printing, asserting and plotting change nothing.
"""

import ast
import builtins
import re
import symtable
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

TRAINS = re.compile(r"train|fit|learn|update|step|load|init|shuffle|reset|seed", re.I)
CHANGES = re.compile(
    r".*_$|append|extend|insert|pop|clear|sort|reverse|remove|discard|add|setdefault"
    r"|update|load_state_dict|train|eval|step|backward|zero_grad|register_\w+|to|apply"
)
HOLDS = re.compile(r"optim|adam|sgd|trainer|schedul", re.I)
HARMLESS = re.compile(r"print|display|len|isinstance|(assert|check|show|plot|draw)\w*")
COMPREHENSIONS = {"listcomp", "setcomp", "dictcomp", "genexpr"}


@dataclass
class Statement:
    """One top-level statement: what it reads, binds and changes."""

    node: ast.stmt
    cell: str = ""
    reads: set[str] = field(default_factory=set)
    """Names that are read when the statement runs."""
    later: set[str] = field(default_factory=set)
    """Names that are read when something that it defines is called."""
    binds: set[str] = field(default_factory=set)
    changes: set[str] = field(default_factory=set)
    """Names whose objects it changes when it runs."""
    changes_later: set[str] = field(default_factory=set)
    """Names whose objects change when something that it defines is called."""

    @property
    def always(self) -> bool:
        """Whether it is kept whatever is wanted: an import, or a seed."""
        if isinstance(self.node, ast.Import | ast.ImportFrom):
            return True
        call = self.node.value if isinstance(self.node, ast.Expr) else None
        return isinstance(call, ast.Call) and "seed" in _name(call.func)

    @property
    def replaces(self) -> set[str]:
        """The names whose older values nobody can see after the statement."""
        kinds = (ast.Assign, ast.AnnAssign, ast.FunctionDef, ast.ClassDef)
        return self.binds if isinstance(self.node, kinds) else set()


def without_magics(source: str) -> str:
    """The source with IPython's lines blanked, so that the line numbers stay."""
    if re.match(r"\s*%%(?!time|capture)", source):
        return ""
    return re.sub(r"(?m)^(\s*)[%!].*$", r"\1pass", source)


def statements(source: str, cell: str = "") -> list[Statement]:
    """The top-level statements of a cell."""
    return [_statement(node, cell) for node in ast.parse(without_magics(source)).body]


def needed(
    before: Sequence[Statement], last: Sequence[Sequence[Sequence[Statement]]]
) -> list[Statement]:
    """The statements of ``before`` that ``last`` depends on, in their order.

    ``last`` is a sequence of stages that all run (a solution, then its check); each
    stage is a sequence of versions (the candidates), each a sequence of statements.
    """
    everything = [*before, *(s for stage in last for v in stage for s in v)]
    _note_changes(everything)
    later, changes_later = _reach(everything)

    def reads(statement: Statement) -> set[str]:
        names = set(statement.reads)
        return names.union(*(later.get(name, set()) for name in names))

    def step(wanted: set[str], statement: Statement) -> set[str]:
        return (wanted - statement.replaces) | reads(statement)

    wanted: set[str] = set()
    for stage in reversed(last):
        versions = []
        for version in stage:
            own = set(wanted)
            for statement in reversed(version):
                own = step(own, statement)
            versions.append(own)
        wanted = set().union(*versions)
    kept = []
    for statement in reversed(before):
        called = reads(statement)
        changed = statement.changes.union(*(changes_later.get(n, ()) for n in called))
        if statement.always or wanted & (statement.binds | changed):
            kept.append(statement)
            wanted = step(wanted, statement)
    return kept[::-1]


def _statement(node: ast.stmt, cell: str) -> Statement:
    statement = Statement(node, cell)
    statement.reads, statement.later, statement.binds = _scan(node)
    if not isinstance(node, ast.FunctionDef | ast.ClassDef):
        statement.reads |= statement.later  # a lambda may be called at once
    return statement


def _scan(node: ast.stmt) -> tuple[set[str], set[str], set[str]]:
    """The names that a statement reads from before it, reads later, and binds."""
    if isinstance(node, ast.For):
        return _scan_all([_assign(node.target, node.iter), *node.body], node.orelse)
    if isinstance(node, ast.With):
        opened = [_assign(i.optional_vars, i.context_expr) for i in node.items]
        return _scan_all([*opened, *node.body])
    if isinstance(node, ast.If | ast.While):
        test = _assign(None, node.test)
        return _scan_all([test, *node.body], [test, *node.orelse])
    table = symtable.symtable(ast.unparse(node), "cell", "exec")
    symbols = table.get_symbols()
    reads = {s.get_name() for s in symbols if s.is_referenced()}
    binds = {s.get_name() for s in symbols if s.is_assigned() or s.is_imported()}
    later: set[str] = set()
    for child in table.get_children():
        child_now, child_later = _inner(child)
        reads |= child_now
        later |= child_later
    return reads, later, binds


def _scan_all(*branches: list[ast.stmt]) -> tuple[set[str], set[str], set[str]]:
    """``_scan`` of branches of statements: what one of them binds first, it does not
    read from before."""
    all_reads, all_later, all_binds = set(), set(), set()
    for branch in branches:
        bound: set[str] = set()
        for node in branch:
            reads, later, binds = _scan(node)
            all_reads |= reads - bound
            all_later |= later
            bound |= binds
        all_binds |= bound
    return all_reads, all_later, all_binds


def _assign(target: ast.expr | None, value: ast.expr) -> ast.stmt:
    """A statement that binds ``target``, if there is one, to ``value``."""
    return ast.Assign([target], value, lineno=0) if target else ast.Expr(value)


def _inner(table: symtable.SymbolTable) -> tuple[set[str], set[str]]:
    """The globals that an inner scope reads at once, and when it is called."""
    names = {
        s.get_name() for s in table.get_symbols() if s.is_global() and s.is_referenced()
    }
    at_once = table.get_type() == "class" or table.get_name() in COMPREHENSIONS
    now, later = (names, set()) if at_once else (set(), names)
    for child in table.get_children():
        inner_now, inner_later = _inner(child)
        now |= inner_now if at_once else set()
        later |= inner_later | (set() if at_once else inner_now)
    return now, later


def _note_changes(everything: list[Statement]) -> None:
    """Say of each statement what it changes, now that all names are known.

    What is called with axes changes nothing else, and no call changes a module, a
    function or a class.
    """
    kinds = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)
    fixed = set(dir(builtins))
    for statement in everything:
        if isinstance(statement.node, kinds):
            fixed |= statement.binds
    plots = {"plt", "alt", "ax", "axes", "fig", "figure"}
    for statement in everything:
        value = getattr(statement.node, "value", None)
        if isinstance(value, ast.Call) and _root(value) in {"plt", "alt"}:
            plots |= statement.binds
    held: dict[str, set[str]] = {}
    for statement in everything:
        changes = _changes(statement.node, plots) - fixed
        defines = isinstance(statement.node, ast.FunctionDef | ast.ClassDef)
        statement.changes = set() if defines else changes & statement.reads
        statement.changes_later = changes & statement.later
        value = getattr(statement.node, "value", None)
        if isinstance(value, ast.Call) and HOLDS.search(_name(value.func)):
            roots = {_root(part) for part in ast.walk(value)} - fixed - {""}
            held.update(dict.fromkeys(statement.binds, roots))
        for name in statement.changes & held.keys():
            statement.changes |= held[name]


def _reach(
    everything: Iterable[Statement],
) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """For each name, the globals that calling it may read, and may change."""
    reads: dict[str, set[str]] = {}
    changes: dict[str, set[str]] = {}
    for statement in everything:
        for name in statement.binds:
            reads.setdefault(name, set()).update(statement.later)
            changes.setdefault(name, set()).update(statement.changes_later)
    growing = True
    while growing:
        growing = False
        for reach in (reads, changes):
            for name, names in reads.items():
                more = set().union(*(reach.get(other, ()) for other in names))
                if not more <= reach[name]:
                    reach[name] |= more
                    growing = True
    return reads, changes


def _changes(node: ast.AST, plots: set[str]) -> set[str]:
    """The names whose objects a statement may change without binding them."""
    changed = set()
    dropped = {id(n.value) for n in ast.walk(node) if isinstance(n, ast.Expr)}
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute | ast.Subscript):
            if not isinstance(part.ctx, ast.Load):
                changed.add(_root(part))
        elif isinstance(part, ast.Call) and not HARMLESS.fullmatch(_name(part.func)):
            given = [*part.args, *(word.value for word in part.keywords)]
            roots = {_root(argument) for argument in given}
            owner = _root(part.func) if isinstance(part.func, ast.Attribute) else ""
            if plots & (roots | {owner}):
                continue
            unused = id(part) in dropped
            if unused or CHANGES.fullmatch(_name(part.func)):
                changed.add(owner)
            if unused or TRAINS.search(_name(part.func)):
                changed |= roots
    return changed - {""}


def _root(node: ast.AST) -> str:
    """``x`` for ``x``, ``x.y[0]``, ``x.f()`` and ``*x``; the empty string otherwise."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Starred | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _name(node: ast.AST) -> str:
    """The last part of a called name: ``f`` for ``f`` and ``a.b.f``."""
    return getattr(node, "attr", getattr(node, "id", ""))
