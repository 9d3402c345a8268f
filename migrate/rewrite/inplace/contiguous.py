"""Whether a tensor is contiguous for certain, so that `reshape` and `flatten` give views of it."""

from __future__ import annotations

import ast

from ...read.unit import Unit

MAKING = frozenset(
    """torch.zeros torch.ones torch.full torch.empty torch.arange torch.linspace torch.rand torch.randn torch.randint
    torch.eye torch.tensor torch.randperm torch.tril_indices torch.bincount""".split()  # noqa: SIM905
)
KEEPING = frozenset(
    """clone view reshape flatten ravel contiguous detach relu exp log abs sqrt sigmoid tanh clamp add sub mul div neg
    unsqueeze square""".split()  # noqa: SIM905
)
ELEMENTWISE = frozenset(f"torch.{n}" for n in KEEPING)


def is_contiguous(node: ast.expr, unit: Unit, seen: frozenset[str] = frozenset()) -> bool:
    """Whether everything that `node` may be bound to is made contiguous; parameters may be anything.

    Elementwise operations keep the layout of their operands when all of them have it.
    """
    kind = unit.kind(node)
    if kind.tag in ("int", "float", "bool"):
        return True
    if isinstance(node, ast.Name):
        return _bound_so(node, unit, seen)
    if isinstance(node, ast.BinOp) and not isinstance(node.op, ast.MatMult):
        return is_contiguous(node.left, unit, seen) and is_contiguous(node.right, unit, seen)
    if isinstance(node, ast.UnaryOp):
        return is_contiguous(node.operand, unit, seen)
    if isinstance(node, ast.Subscript):  # an integer takes the first axis away
        return unit.kind(node.slice).tag == "int" and is_contiguous(node.value, unit, seen)
    if not isinstance(node, ast.Call) or any(isinstance(a, ast.Starred) for a in node.args):
        return False
    dotted = unit.resolve(node.func) or ""
    if dotted in MAKING:
        return not any(k.arg in ("memory_format", "layout", "out") for k in node.keywords)
    given = [a for a in node.args if unit.kind(a).is_tensor or not unit.kind(a).known]
    if isinstance(node.func, ast.Attribute) and unit.kind(node.func.value).is_tensor:
        if node.func.attr == "contiguous" and not node.keywords:
            return True
        return node.func.attr in KEEPING and all(is_contiguous(a, unit, seen) for a in (node.func.value, *given))
    return dotted in ELEMENTWISE and bool(given) and all(is_contiguous(a, unit, seen) for a in given)


def _bound_so(node: ast.Name, unit: Unit, seen: frozenset[str]) -> bool:
    if node.id in seen:
        return True
    scope = unit.scope(node).lookup(node.id)
    if scope is None or not scope.bindings[node.id]:
        return False
    for binding in scope.bindings[node.id]:
        up = unit.tree.parents.get(binding.node)
        if isinstance(up, ast.AugAssign) and unit.kind(up.target).is_tensor:
            continue
        if not isinstance(up, ast.Assign) or binding.node not in up.targets:
            return False
        if not is_contiguous(up.value, unit, seen | {node.id}):
            return False
    return True
