"""Types where JAX's rules give another result: 0-dim tensors beside half types, integers beyond 32 bits."""

from __future__ import annotations

import ast

from ..read.source import hidden
from ..rulebook.precedence import ATOM
from .plan import Plan, Whole
from .writer import Writer

HALF = frozenset({"torch.float16", "torch.bfloat16", "torch.half"})
ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow)
LARGEST = 2**31 - 1


def plan_dtypes(plan: Plan) -> None:
    """Guard 0-dim operands in files that use half types; report integers that int32 cannot hold."""
    half = _uses_half(plan)
    for node in list(plan.unit.tree.parents):
        if hidden(node):
            continue
        if half and isinstance(node, ast.BinOp) and isinstance(node.op, ARITHMETIC):
            _scalar_operand(plan, node)
        elif isinstance(node, ast.Constant) and type(node.value) is int and abs(node.value) > LARGEST:
            _large(plan, node, node.value)


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


def _large(plan: Plan, node: ast.Constant, value: int) -> None:
    """A literal that meets a tensor: int64 in torch, an OverflowError or a wrapped value in JAX without x64."""
    tree = plan.unit.tree
    for up in tree.ancestors(node):
        if isinstance(up, ast.stmt):
            return
        tensor_op = isinstance(up, (ast.BinOp, ast.Compare)) and plan.unit.kind(up).is_tensor
        torch_call = isinstance(up, ast.Call) and (plan.unit.resolve(up.func) or "").startswith("torch.")
        if torch_call and (plan.unit.resolve(up.func) or "").endswith("manual_seed"):  # type: ignore[attr-defined]
            return
        if tensor_op or torch_call:
            plan.found("JM203", node, "torch.int64", f"{value} does not fit int32, which is what JAX computes with",
                       advice='Switch on 64-bit types: jax.config.update("jax_enable_x64", True).')  # fmt: skip
            return
