"""Annotations in quotes: `x: "torch.Tensor"` becomes `x: jax.Array`, where all names in them are imported anyway."""

from __future__ import annotations

import ast

from ..read.kinds import TYPED_TENSORS
from ..read.source import hidden
from .imports import quoted_annotations
from .modules.members import NNX_CLASSES
from .nativecalls import native_class
from .plan import Plan
from .settle import of_module
from .values import fixed_text

AT_HAND = ("builtins.", "typing.", "collections.")


def plan_quoted(plan: Plan) -> None:
    """Convert the torch types in quoted annotations. One that also names something of the file stays as it is: that may
    be defined below."""
    for node in quoted_annotations(plan.unit.tree):
        if not hidden(node):
            _unquote(plan, node, str(node.value))


def _unquote(plan: Plan, node: ast.Constant, text: str) -> None:
    try:
        types = _Types(plan, node)
        tree = types.visit(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, LookupError):
        return
    if types.found:
        plan.replace(node, ast.unparse(tree))
        name = types.found[0]
        plan.found("JM001", node, name, f"{name} -> {ast.unparse(tree)}")
        for layer in types.layers:
            plan.layer(layer)


class _Types(ast.NodeTransformer):
    """Puts types of JAX for those of torch. Raises LookupError at a name that is neither torch's nor always there."""

    def __init__(self, plan: Plan, place: ast.Constant) -> None:
        self.plan, self.place = plan, place
        self.found: list[str] = []
        self.layers: list[str] = []

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._type(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        return self._type(node)

    def _type(self, node: ast.Name | ast.Attribute) -> ast.expr:
        dotted = self.plan.unit.resolve(node) or ""
        if dotted.startswith(AT_HAND) and self._is_imported(node):
            return node
        if not dotted.startswith("torch."):
            raise LookupError(dotted)
        self.found.append(dotted)
        return ast.parse(self._text(dotted), mode="eval").body

    def _text(self, dotted: str) -> str:
        if dotted in TYPED_TENSORS or dotted in NNX_CLASSES:
            return NNX_CLASSES.get(dotted, "jax.Array")
        row = self.plan.unit.book.find(dotted) or of_module(self.plan, dotted)
        if row is not None and (name := str(row.get("layer", ""))):
            if native := native_class(self.plan, self.place, name):
                return native
            self.layers.append(name)
            return self.plan.spelling(name)
        fixed = fixed_text(row) if row is not None else None
        if fixed is None:
            raise LookupError(dotted)
        return fixed[0]

    def _is_imported(self, node: ast.Name | ast.Attribute) -> bool:
        """Whether the name is there when the annotation is evaluated: it may be imported for type checkers only."""
        root: ast.expr = node
        while isinstance(root, ast.Attribute):
            root = root.value
        bindings = self.plan.unit.scopes.module.bindings.get(root.id, []) if isinstance(root, ast.Name) else []
        parents = self.plan.unit.tree.parents
        return all(isinstance(parents.get(b.node), ast.Module) for b in bindings)
