"""Lists and dicts of tensors whose items are different tensors: writing to an item can bind the item again."""

from __future__ import annotations

import ast

from ...read.alias import Aliases
from ...read.aliascalls import NONE, Sites
from ...read.unit import Unit

ELEMENT = "what is written to is an element of a container"
READING = frozenset(
    """len zip enumerate reversed range print sum max min isinstance sorted any all""".split()  # noqa: SIM905
)


def element(node: ast.expr, unit: Unit) -> bool:
    """Whether `node` is an item of a container that has a name, taken by a plain index: `xs[0]`, `d["a"]`."""
    return (
        isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and unit.kind(node.value).tag in ("list", "dict")
        and not isinstance(node.slice, (ast.Slice, ast.Tuple))
        and all(
            isinstance(n, (ast.Constant, ast.Name, ast.UnaryOp, ast.BinOp, ast.operator, ast.unaryop, ast.expr_context))
            for n in ast.walk(node.slice)
        )
    )


class Elements:
    """Which containers of a body hold different tensors in all their items."""

    def __init__(self, unit: Unit, aliases: Aliases) -> None:
        self.unit, self.aliases = unit, aliases
        self._known: dict[tuple[ast.AST, str], bool] = {}

    def are_distinct(self, name: ast.Name) -> bool:
        """Whether no two items of the container can share memory, wherever its function stands."""
        scope = self.unit.scope(name).lookup(name.id)
        here = self.unit.scope(name)
        while here.kind == "comprehension" and here.parent is not None:
            here = here.parent
        if scope is None or scope is not here or scope.kind != "function":
            return False
        key = (scope.node, name.id)
        if key not in self._known:
            self._known[key] = True  # a use that asks again stands on the others
            self._known[key] = all(
                self._use(n) for n in self.unit.tree.walk(scope.node) if isinstance(n, ast.Name) and n.id == name.id
            )
        return self._known[key] and not any(b.kind == "param" for b in scope.bindings[name.id])

    def _use(self, node: ast.Name) -> bool:
        """Whether one mention of the container leaves its items different."""
        tree = self.unit.tree
        up = tree.parents[node]
        if isinstance(node.ctx, ast.Store):
            value = up.value if isinstance(up, (ast.Assign, ast.AnnAssign)) else None
            return value is not None and self._makes_distinct(value)
        if isinstance(up, ast.Subscript) and up.value is node:
            return self._item(up)
        if isinstance(up, (ast.For, ast.comprehension, ast.Return)):
            return True
        if isinstance(up, ast.Tuple):
            return isinstance(tree.parents[up], ast.Return)
        if isinstance(up, ast.Call):
            dotted = self.unit.resolve(up.func) or ""
            known = dotted.startswith("torch.") and self.unit.book.find(dotted) is not None
            return known or dotted.removeprefix("builtins.") in READING
        if isinstance(up, ast.Attribute):
            call = tree.parents[up]
            if isinstance(call, ast.Call) and up.attr == "append" and len(call.args) == 1:
                return self._joins(call.args[0], node)
            return isinstance(call, ast.Call) and up.attr in ("items", "keys", "values")
        return False

    def _item(self, node: ast.Subscript) -> bool:
        """An item that is read is followed by the aliases; one that is set must be new."""
        if isinstance(node.ctx, ast.Load):
            return not isinstance(node.slice, ast.Slice)
        up = self.unit.tree.parents[node]
        if isinstance(up, ast.AugAssign):
            return True
        assert isinstance(node.value, ast.Name)
        return isinstance(up, ast.Assign) and len(up.targets) == 1 and self._joins(up.value, node.value)

    def _joins(self, value: ast.expr, container: ast.Name) -> bool:
        """Whether a value that goes into the container shares nothing with what is there."""
        stmt = self.unit.tree.statement(value)
        sites = self.aliases.reached(stmt, value)
        return _new(sites) and not sites & self.aliases.reached(stmt, container)

    def _makes_distinct(self, value: ast.expr) -> bool:
        if isinstance(value, (ast.List, ast.Dict)):
            items = value.elts if isinstance(value, ast.List) else value.values
            stmt, seen = self.unit.tree.statement(value), NONE
            for item in items:
                sites = self.aliases.reached(stmt, item)
                if isinstance(item, ast.Starred) or not _new(sites) or sites & seen:
                    return False
                seen |= sites
            return not isinstance(value, ast.Dict) or None not in value.keys
        if isinstance(value, ast.ListComp):
            return self._is_new(value.elt)
        return isinstance(value, ast.DictComp) and self._is_new(value.value)

    def _is_new(self, node: ast.expr) -> bool:
        """Whether an expression makes a tensor each time that it is evaluated."""
        if not isinstance(node, (ast.Call, ast.BinOp)) or not self.unit.kind(node).is_tensor:
            return False
        sites = self.aliases.reached(self.unit.tree.statement(node), node)
        return sites == {f"new {node.lineno}:{node.col_offset}:{type(node).__name__}"}


def _new(sites: Sites) -> bool:
    return bool(sites) and all(s.startswith("new") for s in sites)
