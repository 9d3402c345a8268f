"""What is known of the project's own classes and functions."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .kinds import UNKNOWN, Kind, join

if TYPE_CHECKING:
    from .unit import Unit


@dataclass(eq=False)
class FunctionFacts:
    """A function or method. `owner` is its class.

    `params` holds what the call sites of the last round pass, `seen` those of this one.
    """

    node: ast.FunctionDef | ast.AsyncFunctionDef
    unit: Unit
    owner: ClassFacts | None = None
    params: dict[str, Kind] = field(default_factory=dict)
    seen: dict[str, Kind] = field(default_factory=dict)
    returns: Kind = UNKNOWN

    @property
    def name(self) -> str:
        return self.node.name

    def saw(self, param: str, kind: Kind) -> None:
        """A call site of this round passes a value of `kind`."""
        self.seen[param] = join(self.seen[param], kind) if param in self.seen else kind

    def next_round(self) -> None:
        """What the last round's call sites passed is what this round starts from."""
        self.params, self.seen = self.seen, {}


@dataclass(eq=False)
class ClassFacts:
    """A class. `bases` are ClassFacts for the project's own classes, torch names or "" (unknown) for others."""

    node: ast.ClassDef
    unit: Unit
    bases: list[ClassFacts | str] = field(default_factory=list)
    methods: dict[str, FunctionFacts] = field(default_factory=dict)
    attributes: dict[str, Kind] = field(default_factory=dict)
    before: dict[str, Kind] = field(default_factory=dict)

    def next_round(self) -> None:
        """Attributes are found anew each round; until then the last round's count."""
        self.attributes, self.before = {}, self.attributes

    @property
    def name(self) -> str:
        return self.node.name

    def lineage(self) -> list[ClassFacts]:
        """This class and its project bases, nearest first."""
        found: list[ClassFacts] = []
        todo: list[ClassFacts | str] = [self]
        while todo:
            item = todo.pop(0)
            if isinstance(item, ClassFacts) and item not in found:
                found.append(item)
                todo += item.bases
        return found

    def torch_bases(self) -> list[str]:
        """The torch classes it derives from, directly or not."""
        return [b for c in self.lineage() for b in c.bases if isinstance(b, str) and b.startswith("torch.")]

    @property
    def is_module(self) -> bool:
        return any(b.startswith("torch.nn.") and b != "torch.nn.Parameter" for b in self.torch_bases())

    @property
    def layer_base(self) -> str:
        """The torch layer that it extends (`torch.nn.Conv2d`), "" when only nn.Module."""
        return next((b for b in self.torch_bases() if b.startswith("torch.nn.") and b != "torch.nn.Module"), "")

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
        """The join of what any class of the hierarchy assigns to `self.name`."""
        kinds = [found for c in self.lineage() if (found := c.held(name)) is not None]
        if not kinds:
            return None
        result = kinds[0]
        for kind in kinds[1:]:
            result = join(result, kind)
        return result
