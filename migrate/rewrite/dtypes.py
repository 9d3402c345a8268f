"""Types where JAX's rules give another result: 0-dim tensors beside half types, sums of small integers."""

from __future__ import annotations

import ast
import re

from ..read.source import hidden
from ..rulebook.precedence import ATOM
from .match import SMALL_INTS
from .plan import Plan, Whole
from .writer import Writer

HALF = frozenset({"torch.float16", "torch.bfloat16", "torch.half"})
SMALL = re.compile(r"\buint8\b|\bint8\b|\bint16\b|\bshort\b|\.byte\(|\.char\(|ByteTensor|CharTensor|ShortTensor")
SUMS = frozenset({"sum", "cumsum", "prod", "cumprod"})
ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow)


def plan_dtypes(plan: Plan) -> None:
    """Guard 0-dim operands in files that use half types, and sums in files that use small integers."""
    if SMALL.search(plan.unit.source.text):
        _sums_of_small_integers(plan)
    if not _uses_half(plan):
        return
    for node in plan.unit.tree.all(ast.BinOp):
        if isinstance(node.op, ARITHMETIC) and not hidden(node):
            _scalar_operand(plan, node)


def _sums_of_small_integers(plan: Plan) -> None:
    """torch adds up integers as int64; JAX keeps the type in running sums, and adds up uint8 as uint32."""
    unit, doubtful = plan.unit, []
    for node in unit.tree.all(ast.Call):
        dotted = unit.resolve(node.func) or ""
        method = isinstance(node.func, ast.Attribute) and unit.kind(node.func.value).is_tensor
        name = node.func.attr if isinstance(node.func, ast.Attribute) else dotted.rpartition(".")[2]
        if name not in SUMS or hidden(node) or any(k.arg == "dtype" for k in node.keywords):
            continue
        if not method and not (dotted.startswith("torch.") and node.args):
            continue
        summed = node.func.value if method and isinstance(node.func, ast.Attribute) else node.args[0]
        if _is_small(summed, plan):
            plan.whole[summed] = _around(plan, summed, "{}.astype(int)")
        elif isinstance(summed, (ast.Name, ast.Attribute)):
            doubtful.append(node)
    if doubtful:
        plan.found("JM111", doubtful[0], "torch.Tensor.sum",
                   "of 8- and 16-bit integers torch's sums are int64; JAX keeps the type in cumsum and cumprod, "
                   "and sums uint8 as uint32", advice="If this may be such a tensor, give dtype=int.")  # fmt: skip


def _is_small(node: ast.expr, plan: Plan) -> bool:
    """Whether an expression is certainly an 8- or 16-bit integer tensor: a cast to it, or a name bound once to one."""
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("byte", "char", "short"):
            return plan.unit.kind(node.func.value).is_tensor
        return any(plan.unit.resolve(a) in SMALL_INTS for a in [*node.args, *(k.value for k in node.keywords)])
    if isinstance(node, ast.Name):
        scope = plan.unit.scope(node).lookup(node.id)
        ups = [plan.unit.tree.parents.get(b.node) for b in scope.bindings[node.id]] if scope else []
        return (
            len(ups) == 1
            and isinstance(ups[0], ast.Assign)
            and isinstance(ups[0].value, ast.Call)
            and _is_small(ups[0].value, plan)
        )
    return False


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
        if (
            kind.tag != "Tensor"
            or not (kind.name == "scalar" or _element(plan, scalar))
            or not beside.is_tensor
            or beside.name == "scalar"
        ):
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
    name, inner = plan.spelling("scalar_beside"), _around(plan, scalar, "{}", 0)
    return Whole(lambda writer: f"{name}({inner.build(writer)}, {writer.text(other)})", ATOM, (scalar,))


def _around(plan: Plan, node: ast.expr, form: str, level: int = ATOM) -> Whole:
    """`form` around whatever was decided for `node`, in parentheses if that binds less tightly than `level`."""
    inner = plan.whole.get(node)

    def build(writer: Writer) -> str:
        if inner is not None:
            text = inner.build(writer) if inner.level >= level else f"({inner.build(writer)})"
        else:
            points = plan.points.get(node, [])
            text = writer.splice_range(node, writer.tree.start(node), writer.tree.end(node), points)
            tight = isinstance(node, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
            text = text if tight or not level else f"({text})"
        return form.format(text)

    return Whole(build, ATOM, (node,))


def _element(plan: Plan, node: ast.expr) -> bool:
    """`x[0, 1]`: perhaps a 0-dim tensor."""
    parts = node.slice.elts if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple) else []
    parts = [node.slice] if isinstance(node, ast.Subscript) and not parts else parts
    return bool(parts) and all(plan.unit.kind(p).tag == "int" for p in parts)


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
