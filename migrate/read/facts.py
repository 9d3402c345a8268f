"""What is known of the project's own classes and functions."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from .kinds import UNKNOWN, Kind, join, join_all

if TYPE_CHECKING:
    from .unit import Unit


@dataclass(eq=False)
class FunctionFacts:
    """A function or method. `owner` is its class.

    `params` holds what the call sites of the last round pass, `seen` those of this one, by the unit they stand in.
    """

    node: ast.FunctionDef | ast.AsyncFunctionDef
    unit: Unit
    owner: ClassFacts | None = None
    params: dict[str, Kind] = field(default_factory=dict)
    seen: dict[Unit, dict[str, Kind]] = field(default_factory=dict)
    returns: Kind = UNKNOWN

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def of_class(self) -> bool:
        """Whether it is called through the class: a static method or a class method."""
        names = {d.id for d in self.node.decorator_list if isinstance(d, ast.Name)}
        return self.owner is not None and not names.isdisjoint(("staticmethod", "classmethod"))

    def saw(self, param: str, kind: Kind, where: Unit) -> None:
        """A call site in `where` passes a value of `kind`."""
        seen = self.seen.setdefault(where, {})
        seen[param] = join(seen[param], kind) if param in seen else kind

    def next_round(self, stale: Set[Unit]) -> None:
        """What the last round's call sites passed is what this round starts from; `stale` ones are looked at anew."""
        params: dict[str, Kind] = {}
        for seen in self.seen.values():
            for name, kind in seen.items():
                params[name] = join(params[name], kind) if name in params else kind
        self.params = params
        self.seen = {unit: seen for unit, seen in self.seen.items() if unit not in stale}

    def units_passed(self) -> Iterator[Unit]:
        """The units whose classes and functions are handed to this function."""
        todo = [kind for seen in self.seen.values() for kind in seen.values()]
        while todo:
            kind = todo.pop()
            if kind.facts is not None:
                yield kind.facts.unit
            todo += kind.items


@dataclass(eq=False)
class ClassFacts:
    """A class. `bases` are ClassFacts for the project's own classes, torch names or "" (unknown) for others.

    `heirs` are the project's classes that derive from it, directly or not.
    """

    node: ast.ClassDef
    unit: Unit
    bases: list[ClassFacts | str] = field(default_factory=list)
    heirs: list[ClassFacts] = field(default_factory=list)
    methods: dict[str, FunctionFacts] = field(default_factory=dict)
    attributes: dict[str, Kind] = field(default_factory=dict)
    before: dict[str, Kind] = field(default_factory=dict)

    def next_round(self, stale: bool) -> None:
        """Attributes of a stale unit are found anew; until then the last round's count."""
        self.before = self.attributes
        if stale:
            self.attributes = {}

    @property
    def name(self) -> str:
        return self.node.name

    def lineage(self) -> list[ClassFacts]:
        """This class and its project bases, nearest first. Asked for once the bases of all classes are known."""
        return self._lineage

    @cached_property
    def _lineage(self) -> list[ClassFacts]:
        found: list[ClassFacts] = []
        todo: list[ClassFacts | str] = [self]
        while todo:
            item = todo.pop(0)
            if isinstance(item, ClassFacts) and item not in found:
                found.append(item)
                todo += item.bases
        return found

    @cached_property
    def family(self) -> list[ClassFacts]:
        """The classes whose methods the project may run on an object that has this class's: its lineage, its heirs and
        what these derive from beside it."""
        return list(dict.fromkeys(c for start in (self, *self.heirs) for c in start.lineage()))

    def torch_bases(self) -> list[str]:
        """The torch classes it derives from, directly or not."""
        return self._torch_bases

    @cached_property
    def _torch_bases(self) -> list[str]:
        return [b for c in self.lineage() for b in c.bases if isinstance(b, str) and b.startswith("torch.")]

    @cached_property
    def is_module(self) -> bool:
        return any(b.startswith("torch.nn.") and b != "torch.nn.Parameter" for b in self.torch_bases())

    @cached_property
    def layer_base(self) -> str:
        """The torch layer that it extends (`torch.nn.Conv2d`), "" when only nn.Module."""
        return next((b for b in self.torch_bases() if b.startswith("torch.nn.") and b != "torch.nn.Module"), "")

    @property
    def is_function(self) -> bool:
        """Whether this is a torch.autograd.Function."""
        return any(b.startswith("torch.autograd.") and b.endswith(".Function") for b in self.torch_bases())

    @cached_property
    def assigned(self) -> dict[str, list[ast.expr]]:
        """By attribute, what the methods of this class assign to it."""
        found: dict[str, list[ast.expr]] = {}
        for node in self.unit.tree.walk(self.node):
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
                        found.setdefault(target.attr, []).append(node.value)
        return found

    def shared(self, name: str) -> bool:
        """Whether objects of the class have an attribute in common, which a class body binds, until one is set anew."""
        lineage = self.lineage()
        start = self.method("__init__")
        if any(
            isinstance(s, (ast.Assign, ast.AnnAssign)) and _sets(s, name) for s in (start.node.body if start else ())
        ):
            return False
        return any(_binds(s, name) for c in lineage for s in c.node.body)

    def method(self, name: str) -> FunctionFacts | None:
        for cls in self.lineage():
            if name in cls.methods:
                return cls.methods[name]
        return None

    def held(self, name: str) -> Kind | None:
        """What this class itself assigns to `self.name`, as far as this round and the last one know."""
        now, then = self.attributes.get(name), self.before.get(name)
        if now is None or then is None or not then.known:
            return now or then
        return join(now, then) if now.known else then

    def attribute(self, name: str) -> Kind | None:
        """The join of what any class of the hierarchy assigns to `self.name`; where that is nothing, or None, also of
        what the rest of the family does."""
        kinds = [found for c in self.lineage() if (found := c.held(name)) is not None]
        if all(kind.tag == "None" for kind in kinds):
            kinds += [found for c in self.family[len(self.lineage()) :] if (found := c.held(name)) is not None]
        return join_all(kinds) if kinds else None

    def heirs_method(self, name: str) -> FunctionFacts | None:
        """The method that this class leaves to its heirs, when they all have the same."""
        found = {method for heir in self.heirs if (method := heir.method(name)) is not None}
        return found.pop() if len(found) == 1 else None


def _sets(stmt: ast.Assign | ast.AnnAssign, name: str) -> bool:
    """Whether a statement of a method binds an attribute of its object."""
    targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]
    return any(isinstance(t, ast.Attribute) and t.attr == name and isinstance(t.value, ast.Name) for t in targets)


def _binds(stmt: ast.stmt, name: str) -> bool:
    """Whether a statement of a class body binds a name to something other than a literal or a dataclass's `field()`."""
    if not isinstance(stmt, (ast.Assign, ast.AnnAssign)) or stmt.value is None:
        return False
    targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]
    made = stmt.value.func if isinstance(stmt.value, ast.Call) else None
    plain = isinstance(stmt.value, ast.Constant) or (made is not None and ast.unparse(made).endswith("field"))
    return not plain and any(isinstance(t, ast.Name) and t.id == name for t in targets)
