"""How a function uses its names, as its text alone says: asked often, found once."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from .tensor_only import TENSOR_ATTRIBUTES, shows_tensor

if TYPE_CHECKING:
    from .unit import Unit

_NO_TENSOR_HAS = frozenset(
    ("append", "keys", "items", "values", "get", "pop", "extend", "update", "format", "lower", "startswith", "copy")
)
_TENSOR_PARAMETERS = frozenset(
    {"self", "input", "mat1", "mat2", "batch1", "batch2", "target", "vec", "vec1", "vec2", "query", "x1", "x2"}
)


class Usage:
    """What the body of `owner` (a function, a lambda, a class or a module) shows of its names."""

    def __init__(self, unit: Unit, owner: ast.AST) -> None:
        self.unit, self.owner = unit, owner

    @cached_property
    def tensors(self) -> dict[str, str]:
        """Names used as only a tensor can be used, with how: a method that only tensors have, an argument of a torch
        function that takes a tensor there."""
        called: dict[str, str] = {}
        given: dict[str, str] = {}
        for node in self.unit.tree.own(self.owner):
            if isinstance(node, ast.Attribute) and node.attr in TENSOR_ATTRIBUTES and isinstance(node.value, ast.Name):
                called.setdefault(node.value.id, f"`.{node.attr}` is read from it")
            if not isinstance(node, ast.Call):
                continue
            func = node.func
            if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name):
                if func.value.id not in called and (why := shows_tensor(node, self.unit)):
                    called[func.value.id] = why
            for name, dotted in self._tensor_arguments(node):
                given.setdefault(name, f"it is an argument of {dotted}")
        return given | called

    def _tensor_arguments(self, node: ast.Call) -> Iterator[tuple[str, str]]:
        """Names (or names subscripted) that a torch function is given where it takes a tensor."""
        dotted = self.unit.resolve(node.func) or ""
        if not dotted.startswith("torch.") or not node.args:
            return
        row = self.unit.book.find(dotted)
        if row is None or row.signature is None:
            return
        for arg, param in zip(node.args, row.signature.params, strict=False):
            if param.name not in _TENSOR_PARAMETERS or param.kind != "normal":
                continue
            while isinstance(arg, ast.Subscript):
                arg = arg.value
            if isinstance(arg, ast.Name):
                yield arg.id, dotted

    @cached_property
    def unlike_tensor(self) -> frozenset[str]:
        """Names used as no tensor is: looped over, starred, called, keyed by a string …"""
        return frozenset(
            found.id
            for node in self.unit.tree.walk(self.owner)
            for found in _unlike(node)
            if isinstance(found, ast.Name)
        )

    @cached_property
    def written(self) -> frozenset[str]:
        """Names through which the body writes in place: these stay the Variable itself."""
        found = set()
        for node in self.unit.tree.walk(self.owner):
            target = _written(node)
            while isinstance(target, (ast.Attribute, ast.Subscript)):
                target = target.value
            if isinstance(target, ast.Name):
                found.add(target.id)
        return frozenset(found)

    @cached_property
    def yields(self) -> bool:
        """Whether there is a `yield` anywhere in it."""
        return any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in self.unit.tree.walk(self.owner))

    @cached_property
    def returned(self) -> list[ast.expr]:
        """The values that it returns, those of conditional expressions one by one."""
        stmts = [n for n in self.unit.tree.walk(self.owner) if isinstance(n, ast.Return) and n.value is not None]
        return [a for stmt in stmts if stmt.value is not None for a in _alternatives(stmt.value)]


def _unlike(node: ast.AST) -> list[ast.expr]:
    """The expressions that `node` uses as no tensor is used."""
    if isinstance(node, (ast.For, ast.comprehension)):
        looped = node.iter
        if isinstance(looped, ast.Call) and isinstance(looped.func, ast.Name):
            return looped.args if looped.func.id in ("enumerate", "zip", "reversed") else []
        return [looped]
    if isinstance(node, ast.Call):
        asked = isinstance(node.func, ast.Name) and node.func.id == "isinstance"
        return [node.func, *(node.args[:1] if asked else [])]
    if isinstance(node, ast.Starred):
        return [node.value]
    if isinstance(node, ast.Subscript):
        return [node.value] if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str) else []
    if isinstance(node, ast.Compare):
        texts = any(isinstance(c, ast.Constant) and isinstance(c.value, str) for c in node.comparators)
        return [node.left] if texts else []
    if isinstance(node, ast.Attribute):
        return [node.value] if node.attr in _NO_TENSOR_HAS else []
    return []


def _written(node: ast.AST) -> ast.AST | None:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.endswith("_"):
        owner = node.func.value
        if node.args and isinstance(owner, (ast.Name, ast.Attribute)) and ast.unparse(owner).endswith("init"):
            return node.args[0]
        return owner
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        return node.value
    if isinstance(node, ast.AugAssign):
        return node.target
    return node if isinstance(node, ast.Attribute) and node.attr == "data" else None


def _alternatives(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.IfExp):
        return _alternatives(node.body) + _alternatives(node.orelse)
    if isinstance(node, ast.BoolOp):
        return [a for v in node.values for a in _alternatives(v)]
    return [node]
