"""Types where JAX's rules give another result: 0-dim tensors beside half types."""

from __future__ import annotations

import ast

from ..read.source import hidden
from ..rulebook.precedence import ATOM
from .plan import Plan, Whole
from .writer import Writer

HALF = frozenset({"torch.float16", "torch.bfloat16", "torch.half"})
ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow)


def plan_dtypes(plan: Plan) -> None:
    """Guard 0-dim operands in files that use half types."""
    if not _uses_half(plan):
        return
    for node in plan.unit.tree.all(ast.BinOp):
        if isinstance(node.op, ARITHMETIC) and not hidden(node):
            _scalar_operand(plan, node)


def _uses_half(plan: Plan) -> bool:
    for node in plan.unit.tree.parents:
        if isinstance(node, (ast.Attribute, ast.Name)) and plan.unit.resolve(node) in HALF:
            return True
        if (
            isinstance(node, ast.Attribute)
            and node.attr in ("half", "bfloat16")
            and plan.unit.kind(node.value).tag in ("Tensor", "Module")
        ):
            return True
    return False


def _scalar_operand(plan: Plan, node: ast.BinOp) -> None:
    """torch lets a 0-dim tensor never widen the other operand; JAX promotes it as any array."""
    for scalar, other in ((node.left, node.right), (node.right, node.left)):
        kind, beside = plan.unit.kind(scalar), plan.unit.kind(other)
        if kind.tag != "Tensor" or kind.name != "scalar" or not beside.is_tensor or beside.name == "scalar":
            continue
        if _default_float(plan, other):
            return
        if not isinstance(other, (ast.Name, ast.Attribute)):
            plan.found("JM203", node, "torch.result_type", "beside half types torch keeps the other operand's type",
                       advice="Bind the other operand to a name.")  # fmt: skip
            return
        plan.layers.add("scalar_beside")
        plan.whole[scalar] = _beside(plan, scalar, other)
        return


def _beside(plan: Plan, scalar: ast.expr, other: ast.expr) -> Whole:
    """`scalar_beside(scalar, other)`, around whatever was decided for the scalar."""
    name, inner = plan.spelling("scalar_beside"), plan.whole.get(scalar)

    def build(writer: Writer) -> str:
        if inner is not None:
            text = inner.build(writer)
        else:
            points = plan.points.get(scalar, [])
            text = writer.splice_range(scalar, writer.tree.start(scalar), writer.tree.end(scalar), points)
        return f"{name}({text}, {writer.text(other)})"

    return Whole(build, ATOM, (scalar,))


def _default_float(plan: Plan, node: ast.expr) -> bool:
    """`torch.ones(2)`: float32, which no 0-dim float in these files is wider than."""
    made = isinstance(node, ast.Call) and (plan.unit.resolve(node.func) or "").rpartition(".")[2] in (
        "ones",
        "zeros",
        "rand",
        "randn",
        "eye",
    )
    return made and not any(k.arg == "dtype" for k in node.keywords)  # type: ignore[attr-defined]
