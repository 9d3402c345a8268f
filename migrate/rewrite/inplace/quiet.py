"""Forward methods that write to their argument: `x += self.pos`.

JAX binds the name again and the caller's array stays as it was. That is equal where no caller reads what it passed
once the call is done. A method that nothing of the project calls is called from outside: the difference is stated.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ...read.facts import ClassFacts, FunctionFacts
from ...read.kinds import WRAPPERS, Kind
from ...read.project import Project
from ...read.unit import Unit
from .reach import contents, is_followed, is_looked_up, is_store, may_be_any, may_be_method, may_be_tensor, run_by
from .returns import arguments

IsOver = Callable[[Unit, ast.Call, ast.expr], bool]
Reached = Callable[[Unit, ast.Call, ast.expr], set[str]]


@dataclass(eq=False)
class Quiet:
    """A function, the parameters whose memory it writes to, whether the project calls it, why a caller might notice.

    `through` are the functions that do the writing, itself (None) included. `maybe`: only a call that does not show
    what it calls leads to a write. `exposed`: such a call may hand it what comes from outside, or code outside the
    project is given the module to call it.
    """

    facts: FunctionFacts
    params: set[str] = field(default_factory=set)
    through: set[FunctionFacts | None] = field(default_factory=set)
    maybe: bool = False
    called: bool = False
    exposed: bool = False
    problem: str = ""

    @property
    def classes(self) -> list[ClassFacts]:
        """The class that owns the method, and its bases: a call of one of them may reach the method."""
        return self.facts.owner.lineage() if self.facts.owner is not None else []

    def may_serve(self, kind: Kind) -> bool:
        """Whether calling a module of this kind may run the method."""
        if kind.tag != "Module" or not isinstance(kind.facts, ClassFacts) or not is_forward(self.facts):
            return False
        return kind.facts.method(self.facts.name) is self.facts or kind.facts in self.classes


@dataclass(frozen=True)
class _Call:
    """A call that reaches, or (`maybe`) may reach `quiet`, with the arguments that it writes to; None: unpacked."""

    quiet: Quiet
    unit: Unit
    node: ast.Call
    values: tuple[ast.expr, ...] | None
    maybe: bool = False


def is_forward(facts: FunctionFacts) -> bool:
    return facts.owner is not None and facts.owner.is_module and facts.name in ("forward", "__call__")


class QuietOnes:
    """All such functions of a project.

    `is_over` says whether nothing reads an argument once its call is done, `reached` the parameters of the function
    around a call whose memory an argument may be.
    """

    def __init__(self, project: Project, is_over: IsOver, reached: Reached) -> None:
        self.project, self.is_over, self.reached = project, is_over, reached
        self.found: dict[FunctionFacts, Quiet] = {}

    def note(self, facts: FunctionFacts, names: set[str], through: FunctionFacts | None) -> bool:
        """A write to the memory of these parameters. Returns whether that is news."""
        quiet = self.found.setdefault(facts, Quiet(facts))
        quiet.through.add(through)
        spec = facts.node.args
        if starred := names - {a.arg for a in [*spec.posonlyargs, *spec.args, *spec.kwonlyargs]}:
            quiet.problem = f"it may be given through `{min(starred)}`, which holds any arguments"
        before = len(quiet.params)
        quiet.params |= names
        return len(quiet.params) > before

    def unseen(self, facts: FunctionFacts | None) -> frozenset[str]:
        """The parameters that the function may write to without anyone noticing, or with a word in the report."""
        quiet = self.found.get(facts) if facts is not None else None
        return frozenset(quiet.params) if quiet is not None and not quiet.problem else frozenset()

    def stated(self) -> Iterator[Quiet]:
        """Those that code outside the project calls, and whose writes are converted."""
        for quiet in self.found.values():
            own = any(f is None or not self.found[f].problem for f in quiet.through if f is not quiet.facts)
            if own and not quiet.problem and not quiet.maybe and (quiet.exposed or not quiet.called):
                yield quiet

    def check(self, others: Collection[FunctionFacts]) -> None:
        """Decide all of them: the calls of one may stand in another, so what fails is found round by round.

        `others` are functions that hand back what they write to.
        """
        if not self.found:
            return
        calls = self._all_calls(others)
        self._mentions()
        for call in calls:
            call.quiet.called = True
        changed = True
        while changed:
            changed = False
            for call in calls:
                if not call.quiet.problem and (problem := self._problem(call)):
                    call.quiet.problem = problem
                    changed = True

    def _all_calls(self, others: Collection[FunctionFacts]) -> list[_Call]:
        """Every call that leads to one of them; a forward method with a call that may lead there is one of them too."""
        lost = self._lost()
        while True:
            calls = list(self._calls(lost))
            grown = False
            for call in (c for c in calls if c.maybe):
                function = call.unit.tree.function(call.node)
                facts = call.unit.functions.get(function) if function is not None else None
                names = {n for v in call.values or () for n in self.reached(call.unit, call.node, v)}
                call.quiet.exposed |= bool(names)
                if facts is not None and names and facts not in others:
                    new = facts not in self.found
                    grown |= self.note(facts, names, call.quiet.facts)
                    self.found[facts].maybe |= new
            if not grown:
                return calls

    def _calls(self, lost: Mapping[ClassFacts, set[Unit]]) -> Iterator[_Call]:
        vague = {q: u for f, q in self.found.items() if is_forward(f) and (u := _near(f, lost))}
        named = {f.name: q for f, q in self.found.items() if not is_forward(f)}
        attributes = {a for u in self.project.units for c in u.classes.values() for a in (*c.attributes, *c.assigned)}
        for unit in self.project.units:
            for node in unit.tree.all(ast.Call):
                known = list(self._reaches(unit, node))
                for quiet in known:
                    given = arguments(quiet.facts, node)
                    values = None if given is None else tuple(v for n, v in given if n in quiet.params)
                    yield _Call(quiet, unit, node, values)
                if known:
                    continue
                tensors = tuple(v for v in [*node.args, *(k.value for k in node.keywords)] if may_be_tensor(unit, v))
                short = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                if short in named and may_be_method(unit, node):
                    yield _Call(named[short], unit, node, tensors, True)
                if tensors and (is_looked_up(unit, node.func) or self._is_imported(unit, node.func)):
                    yield from (_Call(q, unit, node, tensors, True) for f, q in self.found.items() if is_forward(f))
                    continue
                if not vague or not tensors or not may_be_any(unit, node, attributes):
                    continue
                held = contents(unit, node.func)
                for quiet, near in vague.items():
                    if unit in near and (held is None or any(c.method(quiet.facts.name) is quiet.facts for c in held)):
                        yield _Call(quiet, unit, node, tensors, True)

    def _is_imported(self, unit: Unit, func: ast.expr) -> bool:
        """Whether what is called is an object that another file of the project holds."""
        dotted = unit.resolve(func)
        if not dotted or unit.kind(func).facts is not None:
            return False
        return self.project.owns(dotted.partition(".")[0]) and self.project.find(dotted) is None

    def _mentions(self) -> None:
        """A function that is passed as a value may be called from anywhere; a module, by the code that is given it."""
        for unit in self.project.units:
            for node in unit.tree.both(ast.Name, ast.Attribute):
                up = unit.tree.parents.get(node)
                if not isinstance(node.ctx, ast.Load) or getattr(up, "func", None) is node:
                    continue
                for quiet in self._meant(unit, node):
                    quiet.problem = quiet.problem or f"it is passed as a value in line {node.lineno}"
            for call in unit.tree.all(ast.Call):
                for kind in run_by(unit, call):
                    for quiet in self.found.values():
                        quiet.exposed |= quiet.may_serve(kind)

    def _meant(self, unit: Unit, node: ast.Name | ast.Attribute) -> list[Quiet]:
        """Those that a name stands for: by itself, or as the `__call__` of a module that may run the method."""
        if isinstance(node, ast.Attribute) and node.attr == "__call__":
            return [quiet for quiet in self.found.values() if quiet.may_serve(unit.kind(node.value))]
        facts = unit.kind(node).facts
        return [self.found[facts]] if isinstance(facts, FunctionFacts) and facts in self.found else []

    def _reaches(self, unit: Unit, node: ast.Call) -> Iterator[Quiet]:
        kind = unit.kind(node.func)
        if kind.name in WRAPPERS and kind.items:
            kind = kind.items[0]
        if kind.facts is not None:
            yield from (q for f, q in self.found.items() if kind.facts is f or q.may_serve(kind))

    def _problem(self, call: _Call) -> str:
        same = call.unit is call.quiet.facts.unit
        where = f"line {call.node.lineno}" if same else f"{call.unit.source.path} line {call.node.lineno}"
        if call.values is None:
            return f"the call in {where} unpacks its arguments"
        for value in call.values:
            if isinstance(value, ast.Starred) or not self.is_over(call.unit, call.node, value):
                may = ", which may lead here" if call.maybe else ""
                return f"`{ast.unparse(value)[:40]}` is read after the call in {where}{may}"
        return ""

    def _lost(self) -> dict[ClassFacts, set[Unit]]:
        """The classes whose objects go where nothing shows what they are, with the files that may get them there."""
        places: dict[ClassFacts, set[Unit]] = {}
        for unit in self.project.units:
            for node in unit.tree.nodes:
                if isinstance(node, (ast.Name, ast.Attribute, ast.Call)) and not is_store(node):
                    facts = unit.kind(node).facts
                    if isinstance(facts, ClassFacts) and facts.is_module and unit not in places.get(facts, ()):
                        if not is_followed(unit, node, {facts}):
                            places.setdefault(facts, set()).add(unit)
        imports = {u: set(self._imports(u)) for u in self.project.units} if places else {}
        importers = {u: {v for v, seen in imports.items() if u in seen} for u in imports}
        near = {u: _connected(u, (imports, importers)) for u in set().union(*places.values())}
        return {f: {n for u in units for n in near[u]} for f, units in places.items()}

    def _imports(self, unit: Unit) -> Iterator[Unit]:
        """The files whose classes, functions or modules a file imports. A package's `__init__` only hands them on."""
        targets = {b.target for s in unit.scopes.of.values() for bs in s.bindings.values() for b in bs if b.target}
        for dotted in targets:
            found = self.project.find(dotted)
            module = found.unit if found is not None else self.project.by_module.get(dotted)
            if module is not None and not module.source.path.endswith("__init__.py"):
                yield module
        for star in {star for s in unit.scopes.of.values() for star in s.stars} & self.project.by_module.keys():
            yield self.project.by_module[star]


def _near(facts: FunctionFacts, lost: Mapping[ClassFacts, set[Unit]]) -> set[Unit]:
    """The files in which something may be an object with this method."""
    return {u for c, units in lost.items() if c.method(facts.name) is facts for u in units}


def _connected(start: Unit, ways_on: Iterable[Mapping[Unit, set[Unit]]]) -> set[Unit]:
    """The files that one leads to in each of these directions, directly or not."""
    found: set[Unit] = set()
    for ways in ways_on:
        todo, done = [start], set()
        while todo:
            now = todo.pop()
            if now not in done:
                done.add(now)
                todo += ways[now]
        found |= done
    return found
