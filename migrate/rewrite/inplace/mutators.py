"""Functions of the project that write to their argument, and whether they can hand the new value back instead.

`def f(x): x[0] = 1` binds x again in JAX, so it must return it and each call must bind it. That works when every call
is known and what it passes can be bound. The set of such functions is a greatest fixed point: a call inside another one
counts as a write to *its* parameter.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from ...read.alias import Aliases
from ...read.facts import ClassFacts, FunctionFacts
from ...read.project import Project
from ...read.scopes import COMPREHENSIONS, parameters
from ...read.unit import Unit
from .apart import apart
from .locate import Locator
from .over import argument_is_over, place_of
from .places import Place, find_place
from .quiet import QuietOnes, is_forward
from .returns import arguments, own_returns, reaches_end, steady
from .writes import first_receiver, inplace_written, writes

Gives = Literal["argument", "nothing", "beside"]
HARMLESS_DECORATORS = frozenset(
    ("torch.no_grad", "torch.inference_mode", "torch.enable_grad", "builtins.staticmethod", "torch.jit.script")
)


@dataclass(frozen=True)
class Call:
    """A call of a mutator: the arguments that are written to, by parameter."""

    unit: Unit
    node: ast.Call
    given: tuple[tuple[str, ast.expr], ...]

    @property
    def stmt(self) -> ast.stmt:
        return self.unit.tree.statement(self.node)


@dataclass
class Mutator:
    """A function, the parameters that it writes to in order, what its `return`s give, and its calls."""

    facts: FunctionFacts
    params: tuple[str, ...] = ()
    gives: Gives = "nothing"
    calls: list[Call] = field(default_factory=list)
    problem: str = ""


class Mutators:
    """All functions of a project that write to their arguments."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._locators: dict[Unit, Locator] = {}
        self._written: dict[FunctionFacts, set[str]] = {}
        self._lost: dict[FunctionFacts, str] = {}
        self.found: dict[FunctionFacts, Mutator] = {}
        self.quiet = QuietOnes(project, self._argument_is_over, self._parameters_reached)
        self._named: set[str] | None = None
        self._building = True
        self._find_writes()
        self._building = False
        for facts in self._lost:  # the new value cannot be handed back: its callers must not need it
            self.quiet.note(facts, self._written.pop(facts, set()), None)
        for facts, names in self._written.items():
            self.quiet.found.pop(facts, None)
            order = [a.arg for a in parameters(facts.node)]
            self.found[facts] = Mutator(facts, tuple(n for n in order if n in names))
        self.quiet.check(self._written)
        if self.found:
            self._find_calls()
            self._check_all()

    def locator(self, unit: Unit) -> Locator:
        if unit not in self._locators:
            aliases = Aliases(unit, lambda node: self.quiet.unseen(unit.functions.get(node)))
            self._locators[unit] = Locator(unit, aliases, lambda node: self.kept(unit, node))
        return self._locators[unit]

    def _argument_is_over(self, unit: Unit, node: ast.Call, value: ast.expr) -> bool:
        return argument_is_over(self.locator(unit), unit.tree.statement(node), node, value)

    def _parameters_reached(self, unit: Unit, node: ast.Call, value: ast.expr) -> set[str]:
        sites = self.locator(unit).aliases.reached(unit.tree.statement(node), value)
        return {s.removeprefix("param ") for s in sites if s.startswith("param ")}

    def kept(self, unit: Unit, node: ast.AST) -> frozenset[str]:
        """The parameters of the function `node` that it hands back."""
        facts = unit.functions.get(node)
        if facts is None or facts in self.quiet.found:
            return frozenset()
        if self._building:
            return steady(facts)
        mutator = self.found.get(facts)
        return frozenset(mutator.params) if mutator is not None and not mutator.problem else frozenset()

    def of(self, unit: Unit, call: ast.Call) -> Mutator | None:
        """The mutator that is called, when it hands its argument back."""
        facts = self._callee(unit, call)
        mutator = self.found.get(facts) if facts is not None else None
        return mutator if mutator is not None and not mutator.problem else None

    def is_named(self, name: str) -> bool:
        """Whether anything in the project reads a name or an attribute of this name, to call it or to pass it on."""
        if self._named is None:
            loads = (n for u in self.project.units for n in u.tree.nodes if isinstance(n, (ast.Name, ast.Attribute)))
            self._named = {n.id if isinstance(n, ast.Name) else n.attr for n in loads if isinstance(n.ctx, ast.Load)}
        return name in self._named

    # -- what is written -----------------------------------------------------------------------------------------

    def _find_writes(self) -> None:
        todo: list[tuple[Unit, ast.stmt, ast.expr, FunctionFacts | None]]
        todo = [(unit, stmt, target, None) for unit in self.project.units for stmt, target in writes(unit)]
        calls = [(unit, node) for unit in self.project.units for node in unit.tree.all(ast.Call)]
        while todo:
            grown = False
            for unit, stmt, target, through in todo:
                grown |= self._write(unit, stmt, target, through)
            todo = []
            if grown:
                known = {f: frozenset(names) for f, names in self._written.items()}
                known |= {f: frozenset(q.params) for f, q in self.quiet.found.items() if f not in known}
                for unit, node in calls:
                    facts = self._callee(unit, node)
                    if facts is not None and facts in known:
                        given, names = arguments(facts, node), known[facts]
                        quiet = facts if facts in self.quiet.found else None
                        todo += [(unit, unit.tree.statement(node), v, quiet) for n, v in given or [] if n in names]

    def _write(self, unit: Unit, stmt: ast.stmt, target: ast.expr, through: FunctionFacts | None) -> bool:
        """Note a write to a parameter. `through` is the function called for it whose callers bind nothing."""
        function = unit.tree.function(stmt)
        facts = unit.functions.get(function) if function is not None else None
        if facts is None or (unit.tree.class_of(stmt) is not None and facts.owner is None and _in_class(unit, stmt)):
            return False
        locator = self.locator(unit)
        place = place_of(locator, target, stmt)
        if locator.aliases.modules.is_variable(place.base):  # an object: whoever passes it sees its new value
            return False
        reached = {s for s in locator.aliases.reached(stmt, place.base) if s.startswith("param ")}
        if not reached:
            return False
        names = {s.removeprefix("param ") for s in reached}
        if is_forward(facts) or (through is not None and facts not in self._written):
            return self.quiet.note(facts, names, through)
        before = len(self._written.setdefault(facts, set()))
        if not (isinstance(place.base, ast.Name) and names == {place.base.id} and place.base.id in steady(facts)):
            text = f"`{ast.unparse(target)[:40]}` (line {stmt.lineno}) may be the parameter `{sorted(names)[0]}`"
            self._lost.setdefault(facts, text)
            return self.quiet.note(facts, names, None)
        self._written[facts].add(place.base.id)
        return len(self._written[facts]) > before

    # -- calls ---------------------------------------------------------------------------------------------------

    def _callee(self, unit: Unit, node: ast.Call) -> FunctionFacts | None:
        kind = unit.kind(node.func)
        if isinstance(kind.facts, FunctionFacts):
            return kind.facts
        if kind.tag == "Module" and isinstance(kind.facts, ClassFacts):
            return kind.facts.method("forward")
        return None

    def _find_calls(self) -> None:
        names = {f.name for f in self.found}
        for unit in self.project.units:
            for node in unit.tree.nodes:
                if isinstance(node, ast.Call):
                    self._call(unit, node, names)
                elif isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
                    self._mention(unit, node, names)
        for facts, mutator in self.found.items():
            twice = [f for u in self.project.units for f in u.functions.values() if f.name == facts.name]
            if facts.owner is not None and len(twice) > 1:
                mutator.problem = mutator.problem or f"several methods are called {facts.name}"

    def _call(self, unit: Unit, node: ast.Call, names: set[str]) -> None:
        facts = self._callee(unit, node)
        if facts is not None:
            if facts in self.found:
                mutator = self.found[facts]
                given = arguments(facts, node)
                if given is None:
                    mutator.problem = mutator.problem or f"the call in line {node.lineno} unpacks its arguments"
                    return
                written = tuple((n, v) for n, v in given if n in mutator.params)
                mutator.calls.append(Call(unit, node, written))
            return
        kind = unit.kind(node.func)
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name not in names or unit.resolve(node.func) or isinstance(kind.facts, ClassFacts):
            return
        if isinstance(node.func, ast.Attribute) and unit.kind(node.func.value).tag not in (
            "unknown",
            "Module",
            "other",
        ):
            return
        for facts in [f for f in self.found if f.name == name]:
            mutator = self.found[facts]
            mutator.problem = (
                mutator.problem or f"`{ast.unparse(node.func)[:40]}` in line {node.lineno} may be this one"
            )

    def _mention(self, unit: Unit, node: ast.Name | ast.Attribute, names: set[str]) -> None:
        """A function that is passed as a value may be called from anywhere."""
        up = unit.tree.parents.get(node)
        if isinstance(up, ast.Call) and up.func is node:
            return
        short = node.id if isinstance(node, ast.Name) else node.attr
        facts = unit.kind(node).facts
        if short not in names and not isinstance(facts, FunctionFacts):
            return
        if isinstance(node, ast.Attribute) and unit.kind(node.value).is_tensor:
            return
        for found in [facts] if isinstance(facts, FunctionFacts) else [f for f in self.found if f.name == short]:
            plain = isinstance(node, ast.Name) and not isinstance(facts, FunctionFacts)
            if found not in self.found or (
                plain and unit.scope(node).lookup(short) is not None and not _imports(unit, node)
            ):
                continue
            mutator = self.found[found]
            mutator.problem = mutator.problem or f"`{short}` is passed as a value in line {node.lineno}"

    # -- what stands against it ----------------------------------------------------------------------------------

    def _check_all(self) -> None:
        for mutator in self.found.values():
            if not mutator.problem:
                mutator.problem = _definition_problem(mutator)
        sound = [m for m in self.found.values() if not m.problem]
        before: list[Gives] = []
        while before != (now := [m.gives for m in sound]):
            before = now
            for mutator in sound:
                self._returns_problem(mutator)
        while [m for m in self.found.values() if not m.problem and self._fails(m)]:
            pass

    def _fails(self, mutator: Mutator) -> bool:
        mutator.problem = self._returns_problem(mutator) or self._calls_problem(mutator) or self._rests_on(mutator)
        return bool(mutator.problem)

    def _returns_problem(self, mutator: Mutator) -> str:
        returns = own_returns(mutator.facts)
        valued = [r for r in returns if r.value is not None and not _is_none(r.value)]
        ends = reaches_end(mutator.facts.node.body)
        if not valued:
            mutator.gives = "nothing"
            return ""
        same = [r for r in valued if self.is_argument(mutator, r)]
        if len(same) == len(valued) and len(mutator.params) == 1:
            mutator.gives = "argument"
            return "it returns its argument only sometimes" if ends or len(valued) != len(returns) else ""
        mutator.gives = "beside"
        if not mutator.calls:
            return "it returns something else, and nothing here calls it"
        return "it returns something only sometimes" if ends or len(valued) != len(returns) else ""

    def is_argument(self, mutator: Mutator, stmt: ast.Return) -> bool:
        """Whether a `return` gives the parameter that is written to."""
        assert stmt.value is not None
        unit = mutator.facts.unit
        value = first_receiver(unit, stmt.value)
        if isinstance(value, ast.Call):
            inner = self.of(unit, value)
            given = dict(arguments(inner.facts, value) or []) if inner is not None else {}
            if inner is None or inner.gives != "argument":
                return False
            value = given.get(inner.params[0], value)
        place = self.locator(unit).find(value, stmt)
        if isinstance(value, ast.Name) and value.id == mutator.params[0]:
            return True
        views = self.locator(unit).chains(stmt).before.get(stmt, {})
        while isinstance(value, ast.Name) and value.id in views and not views[value.id].steps:
            value = views[value.id].base
        return isinstance(value, ast.Name) and value.id == mutator.params[0] and not place.steps

    def _calls_problem(self, mutator: Mutator) -> str:
        for call in mutator.calls:
            problem = self.call_problem(mutator, call)
            if problem:
                where = "" if call.unit is mutator.facts.unit else f"{call.unit.source.path} "
                return f"{problem} ({where}line {call.node.lineno})"
        return ""

    def _rests_on(self, mutator: Mutator) -> str:
        """A call inside the function that hands nothing back, though it writes to the parameter."""
        unit, node = mutator.facts.unit, mutator.facts.node
        for other in (m for m in self.found.values() if m.problem):
            for call in (c for c in other.calls if c.unit is unit and unit.tree.function(c.node) is node):
                for _, value in call.given:
                    base = place_of(self.locator(unit), value, call.stmt).base
                    if isinstance(base, ast.Name) and base.id in mutator.params:
                        return f"{other.facts.name}() in line {call.node.lineno} is left: {other.problem}"
        return ""

    def call_problem(self, mutator: Mutator, call: Call) -> str:
        """Why a call cannot bind what the function hands back; "" when it can, or need not."""
        locator, stmt = self.locator(call.unit), call.stmt
        if not runs_once(call.unit, call.node, stmt):
            return "it is called inside an expression that runs several times or perhaps not at all"
        named = dict(call.given)
        if set(named) != set(mutator.params):
            return "a default is written to"
        for _, value in call.given:
            for other in [*call.node.args, *(k.value for k in call.node.keywords)]:
                if other is not value and locator.aliases.reached(stmt, value) & locator.aliases.reached(stmt, other):
                    return f"`{ast.unparse(value)[:40]}` and `{ast.unparse(other)[:40]}` share memory"
            problem = self._argument_problem(locator, stmt, value)
            if problem:
                return problem
        return self._use_problem(mutator, call)

    def _argument_problem(self, locator: Locator, stmt: ast.stmt, value: ast.expr) -> str:
        if locator.aliases.is_temporary(stmt, value):
            return ""
        place = place_of(locator, value, stmt)
        return place_problem(locator, place, stmt)

    def _use_problem(self, mutator: Mutator, call: Call) -> str:
        """Whether the value of the call goes where the argument can be bound as well."""
        stmt = call.stmt
        if isinstance(stmt, ast.Expr) and stmt.value is call.node:
            return ""
        if mutator.gives == "nothing":
            return "the value of the call is used"
        if mutator.gives == "argument" and self.is_over(mutator, call):
            return ""
        if isinstance(stmt, ast.Assign) and stmt.value is call.node and len(stmt.targets) == 1:
            parts = [n for n in ast.walk(stmt.targets[0]) if isinstance(n, (ast.Subscript, ast.Attribute))]
            stored = any(isinstance(n.ctx, ast.Store) and call.unit.kind(n.value).is_tensor for n in parts)
            return "its value is written to a tensor" if stored else ""
        locator = self.locator(call.unit)
        if all(apart(locator, stmt, call.node, place_of(locator, value, stmt)) for _, value in call.given):
            return ""
        return "its value is used inside an expression"

    def is_over(self, mutator: Mutator, call: Call) -> bool:
        """Whether nobody reads what was passed once the call is done, other than through its value."""
        locator, stmt = self.locator(call.unit), call.stmt
        return all(argument_is_over(locator, stmt, call.node, value) for _, value in call.given)


def place_problem(locator: Locator, place: Place, stmt: ast.stmt) -> str:
    """Why the base of a place cannot be bound again, or who else would see the write; "" when all is well."""
    if place.problem:
        return place.problem
    problem = scope_problem(locator, place.base)
    if problem:
        return problem
    kept = locator.kept(locator.aliases.flow(stmt).owner)
    renewed = frozenset((place.within, *(name for name, _ in place.renewed)))
    holders = locator.aliases.holders(stmt, place.base, kept=kept, renewed=renewed)
    return "; ".join(list(dict.fromkeys(h.text for h in holders))[:3])


def scope_problem(locator: Locator, base: ast.expr) -> str:
    """Whether binding a name here would make another variable of it."""
    if not isinstance(base, ast.Name):
        return ""
    here = locator.unit.scope(base)
    while here.kind == "comprehension" and here.parent is not None:
        here = here.parent
    declared = base.id in here.globals or base.id in here.nonlocals
    if not locator.aliases.modules.is_variable(base) and not declared and here.lookup(base.id) is not here:
        return f"`{base.id}` belongs to the code around this function: binding it here would make it local"
    return ""


def runs_once(unit: Unit, node: ast.AST, stmt: ast.stmt) -> bool:
    """Whether `node` is evaluated exactly once when its statement runs."""
    for up in unit.tree.ancestors(node):
        if up is stmt:
            return not isinstance(
                stmt, (ast.While, ast.For, ast.AsyncFor, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
            )
        if isinstance(up, (*COMPREHENSIONS, ast.Lambda, ast.IfExp, ast.BoolOp)):
            return False
    return False


def _definition_problem(mutator: Mutator) -> str:
    facts = mutator.facts
    node, unit = facts.node, facts.unit
    if isinstance(node, ast.AsyncFunctionDef) or unit.usage(node).yields:
        return "it is a generator or a coroutine"
    for decorator in node.decorator_list:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        if (unit.resolve(target) or "") not in HARMLESS_DECORATORS:
            return f"it is decorated with `{ast.unparse(decorator)[:40]}`"
    if facts.name.startswith("__") and facts.name != "__call__":
        return f"{facts.name} is called by Python itself"
    return ""


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _imports(unit: Unit, node: ast.expr) -> bool:
    if not isinstance(node, ast.Name):
        return False
    scope = unit.scope(node).lookup(node.id)
    return scope is not None and any(b.kind == "from" for b in scope.bindings[node.id])


def _in_class(unit: Unit, stmt: ast.stmt) -> bool:
    return isinstance(unit.tree.parents.get(stmt), ast.ClassDef)


def own_calls(mutators: Mutators, unit: Unit) -> Iterator[tuple[Mutator, Call]]:
    """The calls of a file that must bind what a mutator hands back."""
    for mutator in mutators.found.values():
        if not mutator.problem:
            yield from ((mutator, call) for call in mutator.calls if call.unit is unit)


__all__ = ["Call", "Mutator", "Mutators", "find_place", "inplace_written", "own_calls"]
