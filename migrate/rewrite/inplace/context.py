"""What the parts of the in-place pass share: the plan, the aliases, and how a write is refused or recorded."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from functools import cached_property

from ...read.alias import Aliases, Holder
from ..indexing import adds_axis_order
from ..plan import Plan
from ..writer import Writer
from .places import Place

NARROW = re.compile(r"\.(half|byte|short|char)\(|b?float16|\bu?int8|\bint16|autocast")
CLONE = "Write to a clone, or return the tensor and bind the result where the function is called."


class Context:
    """One file's in-place pass."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.unit = plan, plan.unit
        self.aliases = Aliases(plan.unit)

    @cached_property
    def narrow(self) -> bool:
        """Whether the file uses types that JAX promotes where torch keeps the receiver's."""
        return bool(NARROW.search(self.unit.source.text))

    def problem(self, place: Place, stmt: ast.stmt) -> str:
        """Why the base of a place cannot be bound again, or who else would see the write; "" when all is well."""
        if place.problem:
            return place.problem
        for step in place.steps[:-1]:
            if step.name == "index" and not self.basic(step.parts):
                return "torch writes to a copy here when the index before it is a tensor or a list"
        for step in place.steps:
            if step.name == "index" and adds_axis_order(step.parts, self.unit) in ("unknown", "other"):
                return "torch applies integer indices before tensor indices, JAX together with them"
        return self.scope_problem(place.base) or self.text(self.aliases.holders(stmt, place.base))

    def scope_problem(self, base: ast.expr) -> str:
        if not isinstance(base, ast.Name):
            return ""
        here = self.unit.scope(base)
        while here.kind == "comprehension" and here.parent is not None:
            here = here.parent
        declared = base.id in here.globals or base.id in here.nonlocals
        if not self.is_variable(base) and not declared and here.lookup(base.id) is not here:
            return f"`{base.id}` belongs to the code around this function: binding it here would make it local"
        return ""

    @staticmethod
    def text(holders: Iterable[Holder]) -> str:
        return "; ".join(list(dict.fromkeys(h.text for h in holders))[:3])

    def basic(self, parts: Iterable[ast.expr]) -> bool:
        """Whether indexing with these parts gives a view: integers, slices, None, Ellipsis."""
        return all(
            isinstance(p, ast.Slice)
            or (isinstance(p, ast.Constant) and (p.value is None or p.value is ...))
            or self.unit.kind(p).tag == "int"
            for p in parts
        )

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
        spans = [(tree.start(k), tree.end(k)) for k in kept]
        for start, end in tree.comments_in(tree.start(stmt), tree.end(stmt)):
            if not any(a <= start and end <= b for a, b in spans):
                return tree.text[start:end]
        return ""

    def base_text(self, place: Place) -> str:
        """How the base's array is read and written: a Variable by `[...]`. Nothing rewrites a dotted name."""
        text = self.unit.tree.segment(place.base)
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
