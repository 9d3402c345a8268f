"""Which indices are certainly boolean masks, and which of them have the rank of the tensor they index."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ...read.unit import Unit
from ..control.truth import MASK_METHODS, gives_mask

SHAPELY = (MASK_METHODS - {"isin"}) | {"abs", "neg", "clone", "detach", "float", "long", "int", "sigmoid", "exp", "log"}


def is_mask(node: ast.expr, unit: Unit) -> bool:
    """Whether an index is a boolean tensor for certain."""
    if isinstance(node, ast.Compare):
        return unit.kind(node).is_tensor and not any(
            isinstance(op, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for op in node.ops
        )
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        return is_mask(node.operand, unit)
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.BitAnd, ast.BitOr, ast.BitXor)):
        return is_mask(node.left, unit) and is_mask(node.right, unit)
    if isinstance(node, ast.Call):
        return gives_mask(unit, node)
    value = _only_value(node, unit)
    return value is not None and is_mask(value, unit)


def selects(stmt: ast.stmt, base: ast.expr, parts: Sequence[ast.expr], unit: Unit) -> bool:
    """Whether a statement is `base[mask] = number` with a mask of the shape of `base`: jnp.where says it, under jit
    too."""
    if not isinstance(stmt, ast.Assign) or len(parts) != 1:
        return False
    return unit.kind(stmt.value).tag in ("int", "float", "bool") and same_rank(parts[0], base, stmt, unit)


def same_rank(mask: ast.expr, base: ast.expr, stmt: ast.stmt, unit: Unit) -> bool:
    """Whether the mask is computed elementwise from `base`, so that it has its rank (torch asks that shapes agree).

    A mask by name counts when it is bound once, in the block that holds `stmt`, and `base` is not bound in between.
    """
    if is_mask(mask, unit) and _elementwise(mask, ast.unparse(base)):
        return True
    value = _only_value(mask, unit)
    if value is None or not is_mask(value, unit) or not _elementwise(value, ast.unparse(base)):
        return False
    bound = unit.tree.statement(value)
    block = unit.tree.parents[bound]
    outer: ast.AST = stmt
    while unit.tree.parents.get(outer) is not block and outer in unit.tree.parents:
        outer = unit.tree.parents[outer]
    if unit.tree.parents.get(outer) is not block or bound.lineno >= stmt.lineno:
        return False
    name = ast.unparse(base)
    for node in unit.tree.parents:
        if (
            isinstance(node, (ast.Name, ast.Attribute))
            and isinstance(node.ctx, ast.Store)
            and ast.unparse(node) == name
        ):
            if bound.lineno < node.lineno <= (outer.end_lineno or 0):  # type: ignore[attr-defined]
                return False
    return True


def _only_value(node: ast.expr, unit: Unit) -> ast.expr | None:
    """What a name is bound to when it is bound once, by a plain assignment."""
    if not isinstance(node, ast.Name):
        return None
    scope = unit.scope(node).lookup(node.id)
    bindings = scope.bindings[node.id] if scope is not None else []
    up = unit.tree.parents.get(bindings[0].node) if len(bindings) == 1 else None
    return up.value if isinstance(up, ast.Assign) and bindings[0].node in up.targets else None


def _elementwise(node: ast.expr, base: str) -> bool:
    """Whether `base` itself is an operand of the elementwise expression `node`."""
    if ast.unparse(node) == base:
        return True
    if isinstance(node, ast.Compare):
        return any(_elementwise(n, base) for n in (node.left, *node.comparators))
    if isinstance(node, ast.BinOp):
        return not isinstance(node.op, ast.MatMult) and (
            _elementwise(node.left, base) or _elementwise(node.right, base)
        )
    if isinstance(node, ast.UnaryOp):
        return _elementwise(node.operand, base)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in SHAPELY:
        return _elementwise(node.func.value, base) or any(_elementwise(a, base) for a in node.args)
    return False
