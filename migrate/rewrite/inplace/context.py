"""What the parts of the in-place pass share: the plan, the aliases, and how a write is refused or recorded."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from functools import cached_property

from ...read.alias import Holder
from ...read.project import Project
from ..indexing import adds_axis_order
from ..plan import Plan
from ..writer import Writer
from .chains import Chain, is_basic
from .mutators import Mutators, scope_problem
from .places import Place
from .returns import hands_back

NARROW = re.compile(r"\.(half|byte|short|char)\(|b?float16|\bu?int8|\bint16|autocast")
CLONE = "Write to a clone, or return the tensor and bind the result where the function is called."


class Context:
    """One file's in-place pass."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.unit = plan, plan.unit
        self.mutators = mutators_of(plan.project)
        self.locator = self.mutators.locator(plan.unit)
        self.aliases = self.locator.aliases
        self.walked: dict[ast.For, None] = {}
        self.rewritten: set[ast.AST] = set()
        self.served: dict[Chain, None] = {}

    @cached_property
    def narrow(self) -> bool:
        """Whether the file uses types that JAX promotes where torch keeps the receiver's."""
        return bool(NARROW.search(self.unit.source.text))

    def place(self, target: ast.expr, stmt: ast.stmt) -> Place:
        """The place that a write of `stmt` to `target` changes."""
        return self.locator.find(target, stmt)

    def kept(self, stmt: ast.stmt) -> frozenset[str]:
        """The parameters that the function around `stmt` hands back."""
        return self.locator.kept(self.aliases.flow(stmt).owner)

    def problem(self, place: Place, stmt: ast.stmt) -> str:
        """Why the base of a place cannot be bound again, or who else would see the write; "" when all is well."""
        if place.problem:
            return place.problem
        for step in place.steps[:-1]:
            if step.name == "index" and not is_basic(step.parts, self.unit):
                return "torch writes to a copy here when the index before it is a tensor or a list"
        for step in place.steps:
            if step.name == "index" and adds_axis_order(step.parts, self.unit) in ("unknown", "other"):
                return "torch applies integer indices before tensor indices, JAX together with them"
        renewed = frozenset((place.within, *(name for name, _ in place.renewed)))
        held = self.aliases.holders(stmt, place.base, kept=self.kept(stmt), renewed=renewed)
        problem = scope_problem(self.locator, place.base) or self.text(held)
        if problem.startswith("the caller sees"):
            function = self.unit.tree.function(stmt)
            facts = self.unit.functions.get(function) if function is not None else None
            mutator = self.mutators.found.get(facts) if facts is not None else None
            quiet = self.mutators.quiet.found.get(facts) if facts is not None else None
            why = mutator.problem if mutator is not None else quiet.problem if quiet is not None else ""
            problem += f" ({why})" if why else ""
        return problem

    def hands_back(self, stmt: ast.stmt, target: ast.Name) -> bool:
        """Whether a write to a parameter of unknown kind reaches only a caller who is given the parameter back.

        Nothing in the project may name the function: a call would have to bind what it returns.
        """
        function = self.unit.tree.function(stmt)
        facts = self.unit.functions.get(function) if function is not None else None
        if facts is None or self.aliases.holders(stmt, target, kept=frozenset({target.id})):
            return False
        if facts.name == "forward" or facts.name.startswith("__"):  # called by other names
            return False
        return hands_back(facts, target.id) and not self.mutators.is_named(facts.name)

    def settle(self, place: Place) -> None:
        """Note that the write to this place is converted."""
        self.walked.update(dict.fromkeys(place.loops))
        self.rewritten.update(place.nodes)
        self.served.update(dict.fromkeys(place.through))

    def renew(self, place: Place, writer: Writer) -> list[str]:
        """The lines that bind the other names for what was written again, where something reads them."""
        text = self.base_text(place)
        return [
            f"{name} = {own.view(text, writer)}" for name, own in place.renewed if self.is_read(root(place.base), name)
        ]

    def is_read(self, where: ast.AST, name: str) -> bool:
        """Whether anything reads a name other than the writes that are done to another name now."""
        owner = self.aliases.flow(self.unit.tree.statement(where)).owner
        return any(
            isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load) and n not in self.rewritten
            for n in self.unit.tree.walk(owner)
        )

    @staticmethod
    def text(holders: Iterable[Holder]) -> str:
        return "; ".join(list(dict.fromkeys(h.text for h in holders))[:3])

    def basic(self, parts: Iterable[ast.expr]) -> bool:
        """Whether indexing with these parts gives a view: integers, slices, None, Ellipsis."""
        return is_basic(parts, self.unit)

    def refuse(self, node: ast.AST, name: str, message: str, code: str = "JM206", advice: str = CLONE) -> None:
        self.plan.found(code, node, name, message, rule="in-place", advice=advice)

    def converted(self, node: ast.AST, name: str, message: str, code: str = "JM001") -> None:
        self.plan.found(code, node, name, message, rule="in-place", evidence="no alias is read later")

    def lines(self, stmt: ast.stmt, build: Callable[[Writer], list[str]]) -> None:
        self.plan.lines[stmt] = build
        self.plan.taken.add(stmt)

    def take(self, nodes: Iterable[ast.AST]) -> None:
        self.plan.taken.update(nodes)

    def lost_comment(self, stmt: ast.stmt, kept: Iterable[ast.AST]) -> str:
        """The first comment inside `stmt` that lies in none of `kept`."""
        tree = self.unit.tree
        spans = [(tree.start(k), tree.end(k)) for k in kept if hasattr(k, "lineno") or hasattr(k, "_start")]
        for start, end in tree.comments_in(tree.start(stmt), tree.end(stmt)):
            if not any(a <= start and end <= b for a, b in spans):
                return tree.text[start:end]
        return ""

    def base_text(self, place: Place) -> str:
        """How the base's array is read and written: a Variable by `[...]`. Nothing rewrites a dotted name."""
        text = self.unit.tree.segment(place.base) if hasattr(place.base, "lineno") else ast.unparse(place.base)
        return f"{text}[...]" if self.is_variable(place.base) else text

    def is_variable(self, base: ast.expr) -> bool:
        return self.aliases.modules.is_variable(base)

    def on_own_lines(self, stmt: ast.stmt) -> bool:
        return self.plan.alone(stmt) and self.plan.alone_to_end(stmt)

    def fresh_names(self, count: int) -> list[str]:
        """Names that nothing in the file uses."""
        used = {n.id for n in self.unit.tree.parents if isinstance(n, ast.Name)}
        used |= {n.arg for n in self.unit.tree.parents if isinstance(n, ast.arg)}
        words = ["value"] if count == 1 else ["first", "second", "third", "fourth", "fifth", "sixth"]
        words += [f"value_{i}" for i in range(1, count + len(used) + 2)]
        return [w for w in words if w not in used][:count]


def root(node: ast.expr) -> ast.expr:
    """The name that a dotted or subscripted name starts with."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node


def mutators_of(project: Project) -> Mutators:
    """The functions of a project that write to their arguments, found once."""
    found = project.__dict__.get("_mutators")
    if found is None:
        found = project.__dict__["_mutators"] = Mutators(project)
    assert isinstance(found, Mutators)
    return found
