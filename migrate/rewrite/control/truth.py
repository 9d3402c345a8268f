"""Which expressions Python asks for a truth value, and which of those hold a tensor.

`bool(t)` reads the value of an array: it works eagerly and fails while `jax.jit` traces.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...read.unit import Unit

MASK_METHODS = frozenset(
    """
    bool isnan isinf isfinite isposinf isneginf isclose isin eq ne lt le gt ge
    logical_and logical_or logical_not logical_xor
    """.split()  # noqa: SIM905
)

ASSUMED = "parameter of forward"  # the evidence of `read/parameters.py` for parameters that nothing else shows


def tested(unit: Unit, node: ast.expr) -> Iterator[ast.expr]:
    """The parts of `node`, used as a condition, whose truth value is a tensor's."""
    if isinstance(node, ast.BoolOp):
        for value in node.values:
            yield from tested(unit, value)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield from tested(unit, node.operand)
    elif isinstance(node, ast.NamedExpr):
        yield from tested(unit, node.value)
    elif isinstance(node, ast.Call) and unit.resolve(node.func) == "builtins.bool" and len(node.args) == 1:
        yield from tested(unit, node.args[0])
    elif asks_itself(unit, node) or is_surely_tensor(unit, node):
        yield node


def is_surely_tensor(unit: Unit, node: ast.expr) -> bool:
    """Whether an expression is a tensor by more than the guess that what a forward is given is one: flags and weights
    are given to it too (`if causal`, `if self.weight != 0`)."""
    kind = unit.kind(node)
    if not kind.is_tensor:
        return False
    if isinstance(node, ast.Compare):
        return any(is_surely_tensor(unit, o) for o in (node.left, *node.comparators))
    if isinstance(node, ast.BinOp):
        return is_surely_tensor(unit, node.left) or is_surely_tensor(unit, node.right)
    if isinstance(node, ast.UnaryOp):
        return is_surely_tensor(unit, node.operand)
    if isinstance(node, ast.Attribute):
        return kind.tag == "Variable" or is_surely_tensor(unit, node.value)
    if isinstance(node, ast.Name) or (isinstance(node, ast.Call) and unit.kind(node.func).tag == "Function"):
        return kind.why != ASSUMED
    return True


def asks_itself(unit: Unit, node: ast.expr) -> str:
    """How an expression asks for truth values while it is computed: "in", "chain", the name of a builtin, or ""."""
    if isinstance(node, ast.Compare):
        operands = [node.left, *node.comparators]
        if any(isinstance(op, (ast.In, ast.NotIn)) for op in node.ops):
            return "in" if any(_tensors(unit, o) for o in operands[-2:]) else ""
        return "chain" if len(node.ops) > 1 and any(is_surely_tensor(unit, o) for o in operands) else ""
    if not isinstance(node, ast.Call) or not node.args:
        return ""
    name = (unit.resolve(node.func) or "").removeprefix("builtins.")
    if name in ("max", "min"):
        several = len(node.args) > 1
        found = any(is_surely_tensor(unit, a) if several else _tensors(unit, a) for a in node.args)
        return name if found else ""
    if name in ("sorted", "any", "all"):
        return name if _tensors(unit, node.args[0]) and not any(k.arg == "key" for k in node.keywords) else ""
    return ""


def is_mask(unit: Unit, node: ast.expr, depth: int = 0) -> bool:
    """Whether an expression is certainly a tensor of booleans."""
    if depth > 4:
        return False
    if isinstance(node, ast.Compare):
        return unit.kind(node).is_tensor
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        return is_mask(unit, node.operand, depth + 1)
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.BitAnd, ast.BitOr, ast.BitXor)):
        return is_mask(unit, node.left, depth + 1) or is_mask(unit, node.right, depth + 1)
    if isinstance(node, ast.Call):
        return gives_mask(unit, node)
    if isinstance(node, ast.Name):
        value = only_value(unit, node)
        return value is not None and is_mask(unit, value, depth + 1)
    return False


def gives_mask(unit: Unit, node: ast.Call) -> bool:
    """Whether a call gives a tensor of booleans: by its name, or by the dtype it is given."""
    if any(unit.resolve(a) == "torch.bool" for a in [*node.args, *(k.value for k in node.keywords)]):
        return True
    name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    return name in MASK_METHODS and unit.kind(node).is_tensor


def only_value(unit: Unit, name: ast.Name) -> ast.expr | None:
    """What the one assignment to a name gives it; None when there are several, or it is no plain assignment."""
    scope = unit.scope(name).lookup(name.id)
    bindings = scope.bindings[name.id] if scope is not None else []
    if len(bindings) != 1 or bindings[0].kind != "assign":
        return None
    up = unit.tree.parents.get(bindings[0].node)
    return up.value if isinstance(up, ast.Assign) and bindings[0].node in up.targets else None


def _tensors(unit: Unit, node: ast.expr) -> bool:
    """Whether a value is a tensor, or holds some."""
    kind = unit.kind(node)
    return kind.is_tensor or (kind.tag in ("list", "tuple") and any(i.is_tensor for i in kind.items))
