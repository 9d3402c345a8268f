"""Names that are views of another name for certain, so that a write through one can be done to the other.

A forward must-analysis on the statement tree: `row = x[0]` makes `row` a view of `x` until either is bound again.
In-place writes bind nothing: they change what both show.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ...read.kinds import INT
from ...read.unit import Unit
from .elements import ELEMENT, element
from .parts import literal, pieces
from .places import NAMELESS, Place, Step, find_place
from .returns import handed_on

PURE_CALLS = frozenset(("size", "dim", "len", "min", "max", "int", "numel"))
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True, eq=False)
class Chain:
    """A name is a view of `base`, which `steps` lead to. `reads` are the names that those steps read.

    `stmt` is the statement that says so; `loop` the loop over `base` whose target the name is.
    """

    base: ast.expr
    key: str
    steps: tuple[Step, ...]
    reads: frozenset[str]
    stmt: ast.stmt
    loop: ast.For | None = None


Views = dict[str, Chain]


class Chains:
    """`before[stmt]`: the views that certainly hold in front of each statement of one body."""

    def __init__(self, unit: Unit, owner: ast.AST) -> None:
        self.unit, self.owner = unit, owner
        self.before: dict[ast.stmt, Views] = {}
        self.counters: dict[ast.For, ast.Name] = {}
        self._items: dict[ast.For, ast.Subscript] = {}
        self._shared = _shared_names(unit, owner)
        body: list[ast.stmt] = owner.body  # type: ignore[attr-defined]
        self._block(body, {})

    def _block(self, body: list[ast.stmt], views: Views) -> Views:
        for stmt in body:
            seen = self.before.get(stmt)
            self.before[stmt] = dict(views) if seen is None else _both(seen, views)
            views = self._statement(stmt, dict(views))
        return views

    def _statement(self, stmt: ast.stmt, views: Views) -> Views:
        if isinstance(stmt, ast.If):
            self._forget(stmt.test, views)
            return _both(self._block(stmt.body, dict(views)), self._block(stmt.orelse, dict(views)), stmt)
        if isinstance(stmt, (ast.For, ast.AsyncFor, ast.While)):
            return self._loop(stmt, views)
        if isinstance(stmt, (ast.With, ast.AsyncWith)):
            for item in stmt.items:
                self._forget(item, views)
            return self._block(stmt.body, views)
        if isinstance(stmt, (ast.Try, ast.Match, *_FUNCTIONS)):
            self._forget(stmt, views)
            for body in _bodies(stmt) if not isinstance(stmt, _FUNCTIONS) else ():
                self._block(body, dict(views))
            return views
        found = self._defined(stmt, views)
        self._forget(stmt, views)
        stored = _stored(stmt, self.unit)
        for name, chain in found.items():
            if not (chain.reads | {chain.key.partition("[")[0].partition(".")[0]}) & stored:
                views[name] = chain
        return views

    def _loop(self, stmt: ast.For | ast.AsyncFor | ast.While, views: Views) -> Views:
        if not isinstance(stmt, ast.While):
            self._forget(stmt.iter, views)
        while True:
            start = dict(views)
            inside = dict(views)
            if isinstance(stmt, ast.While):
                self._forget(stmt.test, inside)
            else:
                self._forget(stmt.target, inside)
                inside |= self._walked(stmt, inside)
            for inner in ast.walk(stmt):
                if isinstance(inner, ast.stmt) and inner is not stmt:
                    self.before.pop(inner, None)
            ended = self._block(stmt.body, inside)
            for jump in (n for n in ast.walk(stmt) if isinstance(n, (ast.Break, ast.Continue))):
                ended = _both(ended, self.before.get(jump, ended))
            if not isinstance(stmt, ast.While):
                ended = {k: c for k, c in ended.items() if c.loop is not stmt}
            views = _both(start, ended)
            if views == start:
                return self._block(stmt.orelse, views)

    def _walked(self, stmt: ast.For | ast.AsyncFor, views: Views) -> Views:
        """`for row in x`: row is x[i] in turn i."""
        parts = walk(stmt, self.unit) if isinstance(stmt, ast.For) else None
        if parts is None or not isinstance(stmt, ast.For):
            return {}
        name, source, number = parts
        kind = self.unit.kind(source)
        tensors = kind.is_tensor or (kind.tag == "list" and kind.element().is_tensor)
        stored = _stored(stmt, self.unit)
        if not tensors or name.id == source.id or source.id in stored:
            return {}
        if not all(self._tracked(n) for n in (name.id, source.id)):
            return {}
        if stmt not in self.counters:
            if number is not None and any(number.id in _stored(s, self.unit) for s in stmt.body):
                return {}
            fresh = number.id if number is not None else _fresh_counter(self.unit, len(self.counters))
            self.counters[stmt] = ast.Name(fresh, ast.Load())
            self.unit.kinds[self.counters[stmt]] = INT
        if kind.is_tensor:
            step = Step("index", (self.counters[stmt],))
            return {name.id: Chain(source, source.id, (step,), frozenset(), stmt, stmt)}
        item = self._items.setdefault(stmt, ast.Subscript(source, self.counters[stmt], ast.Load()))
        self.unit.kinds[item] = kind.element()
        return {name.id: Chain(item, ast.unparse(item), (), frozenset(), stmt, stmt)}

    def _defined(self, stmt: ast.stmt, views: Views) -> Views:
        """The views that an assignment makes."""
        if isinstance(stmt, ast.Assign):
            pairs = [(t, stmt.value) for t in stmt.targets]
        elif isinstance(stmt, ast.AnnAssign) and stmt.value is not None:
            pairs = [(stmt.target, stmt.value)]
        else:
            return {}
        found: Views = {}
        for target, value in pairs:
            for name, part, steps in self._parts(target, value):
                chain = self._chain(part, steps, stmt)
                if chain is not None and self._tracked(name):
                    found[name] = chain
        return found

    def _parts(self, target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr, tuple[Step, ...]]]:
        if isinstance(target, ast.Name):
            yield target.id, value, ()
        elif isinstance(target, (ast.Tuple, ast.List)) and all(isinstance(e, ast.Name) for e in target.elts):
            if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
                for sub, part in zip(target.elts, value.elts, strict=True):
                    yield sub.id, part, ()  # type: ignore[attr-defined]
            elif self.unit.kind(value).is_tensor:
                for number, sub in enumerate(target.elts):
                    yield sub.id, value, (Step("index", (literal(number, self.unit),)),)  # type: ignore[attr-defined]
            else:
                source, found = pieces(value, len(target.elts), self.unit)
                for sub, index in zip(target.elts, found, strict=False):
                    yield sub.id, source, (Step("index", index),)  # type: ignore[attr-defined]

    def _chain(self, value: ast.expr, steps: tuple[Step, ...], stmt: ast.stmt) -> Chain | None:
        if not self.unit.kind(value).is_tensor:
            return None
        place = find_place(value, self.unit)
        while place.problem in ("", NAMELESS) and (given := handed_on(self.unit, place.base)) is not None:
            inner = find_place(given, self.unit)
            place = Place(inner.base, (*inner.steps, *place.steps), problem=inner.problem)
        item = place.problem == ELEMENT and element(place.base, self.unit)
        if (place.problem and not item) or not self._is_base(place.base):
            return None
        all_steps = (*place.steps, *steps)
        parts = [p for s in all_steps for p in s.parts]
        if not all(s.name != "index" or is_basic(s.parts, self.unit) for s in all_steps) or not all(map(_pure, parts)):
            return None
        if item:
            parts.append(place.base.slice)  # type: ignore[attr-defined]
        reads = frozenset(n.id for p in parts for n in ast.walk(p) if isinstance(n, ast.Name))
        if any(not self._tracked(n) for n in reads):
            return None
        return Chain(place.base, ast.unparse(place.base), all_steps, reads, stmt)

    def _is_base(self, base: ast.expr) -> bool:
        root = base
        while isinstance(root, (ast.Attribute, ast.Subscript)):
            root = root.value
        return isinstance(root, ast.Name) and self._tracked(root.id)

    def _tracked(self, name: str) -> bool:
        """Whether only this body binds the name."""
        scope = self.unit.scopes.of[self.owner]
        return name in scope.bindings and name not in self._shared

    def _forget(self, node: ast.AST, views: Views) -> None:
        """Drop the views that `node` may end."""
        stored = _stored(node, self.unit)
        attributes = {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
        unknown = any(isinstance(n, ast.Call) and not self._harmless(n) for n in ast.walk(node))
        containers = {n.value.id for n in ast.walk(node) if self._changes(n)}  # type: ignore[attr-defined]
        for name, chain in list(views.items()):
            root, _, path = chain.key.partition("[")[0].partition(".")
            moved = bool(path) and (unknown or bool(attributes & set(path.split("."))))
            moved = moved or ("[" in chain.key and root in containers)
            if name in stored or root in stored or chain.reads & stored or moved:
                del views[name]

    def _changes(self, node: ast.AST) -> bool:
        """Whether an expression may put another item into a container: `xs[0] = …`, `xs.pop`."""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            return self.unit.kind(node.value).tag in ("list", "dict") and node.attr not in ("items", "keys", "values")
        if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name):
            return False
        up = self.unit.tree.parents.get(node)
        return isinstance(node.ctx, (ast.Store, ast.Del)) and not isinstance(up, ast.AugAssign)

    def _harmless(self, node: ast.Call) -> bool:
        """Whether a call binds no attribute of an object."""
        dotted = self.unit.resolve(node.func) or ""
        if dotted.startswith(("torch.", "math.")):
            return True
        if dotted.startswith("builtins."):
            return dotted != "builtins.setattr"
        return isinstance(node.func, ast.Attribute) and self.unit.kind(node.func.value).tag in (
            "Tensor", "Variable", "list", "dict", "shape", "str", "tuple",
        )  # fmt: skip


def walk(stmt: ast.For, unit: Unit) -> tuple[ast.Name, ast.Name, ast.Name | None] | None:
    """The item, what is walked over and the number of `for row in x` and `for i, row in enumerate(x)`."""
    target, source = stmt.target, stmt.iter
    number: ast.expr | None = None
    if isinstance(source, ast.Call) and unit.resolve(source.func) == "builtins.enumerate" and not source.keywords:
        if not (len(source.args) == 1 and isinstance(target, ast.Tuple) and len(target.elts) == 2):
            return None
        number, target = target.elts
        source = source.args[0]
    if not isinstance(target, ast.Name) or not isinstance(source, ast.Name) or not isinstance(number, ast.Name | None):
        return None
    return target, source, number


def is_basic(parts: Iterable[ast.expr], unit: Unit) -> bool:
    """Whether indexing with these parts gives a view: integers, slices, None, Ellipsis."""
    return all(
        isinstance(p, ast.Slice)
        or (isinstance(p, ast.Constant) and (p.value is None or p.value is ...))
        or unit.kind(p).tag == "int"
        for p in parts
    )


def _pure(node: ast.AST) -> bool:
    """Whether evaluating an index again gives the same while its names stay bound: sizes may be asked, values not."""
    for part in ast.walk(node):
        if isinstance(part, ast.Call):
            name = part.func.attr if isinstance(part.func, ast.Attribute) else getattr(part.func, "id", "")
            if name not in PURE_CALLS:
                return False
        elif (
            (
                isinstance(part, ast.Subscript)
                and not (isinstance(part.value, ast.Attribute) and part.value.attr == "shape")
            )
            or (isinstance(part, ast.Attribute) and part.attr not in PURE_CALLS | {"shape", "ndim"})
            or isinstance(part, (ast.Lambda, ast.NamedExpr, ast.Await, ast.Yield, ast.IfExp, ast.List, ast.ListComp))
        ):
            return False
    return True


def _stored(node: ast.AST, unit: Unit) -> frozenset[str]:
    """Names that `node` binds. `x += v` on a tensor is a write and binds nothing."""
    found = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and isinstance(part.ctx, (ast.Store, ast.Del)):
            up = unit.tree.parents.get(part)
            if not (isinstance(up, ast.AugAssign) and up.target is part and unit.kind(part).is_tensor):
                found.add(part.id)
        elif isinstance(part, (*_FUNCTIONS, ast.MatchAs, ast.MatchStar, ast.ExceptHandler)):
            found.add(part.name or "")
        elif isinstance(part, ast.alias):
            found.add((part.asname or part.name).partition(".")[0])
    return frozenset(found)


def _shared_names(unit: Unit, owner: ast.AST) -> frozenset[str]:
    """Names that functions inside `owner` may bind, or that belong to a scope around it."""
    found: set[str] = set()
    for node in unit.tree.walk(owner):
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            found |= set(node.names)
    return frozenset(found)


def _both(a: Mapping[str, Chain], b: Mapping[str, Chain], stmt: ast.stmt | None = None) -> Views:
    """What holds on both paths; a path that left (`return`, `break`) does not count."""
    if isinstance(stmt, ast.If):
        if _leaves(stmt.body):
            return dict(b)
        if _leaves(stmt.orelse):
            return dict(a)
    return {name: chain for name, chain in a.items() if _same(b.get(name), chain)}


def _same(a: Chain | None, b: Chain) -> bool:
    if a is None or a.key != b.key or a.loop is not b.loop:
        return False
    return a.steps == b.steps or [_shown(s) for s in a.steps] == [_shown(s) for s in b.steps]


def _shown(step: Step) -> str:
    return f"{step.name} {', '.join(ast.unparse(p) for p in step.parts)}"


def _leaves(body: list[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], (ast.Return, ast.Raise, ast.Break, ast.Continue))


def _bodies(stmt: ast.stmt) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        yield getattr(stmt, name, [])
    for part in [*getattr(stmt, "handlers", []), *getattr(stmt, "cases", [])]:
        yield part.body


def _fresh_counter(unit: Unit, number: int) -> str:
    used = {n.id for n in unit.tree.all(ast.Name)} | {n.arg for n in unit.tree.all(ast.arg)}
    free = [w for w in ("i", "j", "k", "n", "row_index", *(f"index_{i}" for i in range(100))) if w not in used]
    return free[number]
