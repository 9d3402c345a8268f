"""Questions for what a value is whose answer would be another in JAX, without an error.

A tensor's type is torch.Tensor, an array's is a class below jax.Array; a parameter is a tensor, an nnx.Param holds an
array; a dtype of torch is one object, JAX has jnp.float32 and NumPy's dtype, which are equal and not identical; and
`str(x.dtype)` is `float32`, not `torch.float32`.
"""

from __future__ import annotations

import ast

from ..read.kinds import IN_STATE
from ..read.source import hidden
from ..rulebook.precedence import ATOM, NOT
from .plan import Plan, Whole
from .writer import Writer

_TENSOR = "torch.Tensor"
_SAME = {ast.Is: "==", ast.IsNot: "!="}


def plan_identity(plan: Plan) -> None:
    """Rewrite comparisons of types and dtypes, and ask for what an nnx.Variable is where it is one."""
    for node in plan.unit.tree.both(ast.Compare, ast.Call):
        if hidden(node) or node in plan.taken:
            continue
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            _compared(plan, node)
        elif isinstance(node, ast.Call):
            _called(plan, node)
    for keyed in plan.unit.tree.both(ast.Dict, ast.Set):
        if not hidden(keyed):
            _keyed(plan, keyed)


def _keyed(plan: Plan, node: ast.Dict | ast.Set) -> None:
    """A dict or set of dtypes: jnp.float32 and the dtype of an array are equal and have other hashes."""
    keys = node.keys if isinstance(node, ast.Dict) else node.elts
    key = next((k for k in keys if k is not None and _is_dtype(plan, k)), None)
    if key is not None:
        text = ast.unparse(key)
        message = f"`{text}` is a key: jnp.{text.rpartition('.')[2]} and the dtype of an array have different hashes"
        plan.found("JM203", node, "torch.dtype", message, advice="Make every key an np.dtype(…).")


def _compared(plan: Plan, node: ast.Compare) -> None:
    unit, left, right = plan.unit, node.left, node.comparators[0]
    value, other = (_typed(plan, left), right) if _typed(plan, left) is not None else (_typed(plan, right), left)
    if value is not None and isinstance(node.ops[0], (ast.Is, ast.IsNot, ast.Eq, ast.NotEq)):
        if unit.resolve(other) == _TENSOR:
            _instance(plan, node, value, other, isinstance(node.ops[0], (ast.IsNot, ast.NotEq)))
    elif value is not None and isinstance(other, (ast.Tuple, ast.List, ast.Set)):
        for tensor in (e for e in other.elts if unit.resolve(e) == _TENSOR):
            plan.taken.add(tensor)
            plan.found("JM304", tensor, _TENSOR, "the type of an array is a class of its own below jax.Array",
                       advice="Ask isinstance(x, jax.Array).")  # fmt: skip
    elif type(node.ops[0]) in _SAME and any(unit.kind(n).tag == "dtype" or _is_dtype(plan, n) for n in (left, right)):
        if not any(isinstance(n, ast.Constant) for n in (left, right)):
            _equal(plan, node)


def _typed(plan: Plan, node: ast.expr) -> ast.expr | None:
    """The `x` of `type(x)` and `x.__class__`."""
    if isinstance(node, ast.Call) and len(node.args) == 1 and plan.unit.resolve(node.func) == "builtins.type":
        return node.args[0]
    return node.value if isinstance(node, ast.Attribute) and node.attr == "__class__" else None


def _instance(plan: Plan, node: ast.Compare, value: ast.expr, tensor: ast.expr, negated: bool) -> None:
    plan.taken.add(tensor)
    tree = plan.unit.tree
    if comments := tree.comments_in(tree.start(node), tree.end(node)):
        text = tree.text[slice(*comments[0])]
        plan.found("JM204", node, _TENSOR, f"rewriting would lose the comment {text!r}")
        return

    def build(writer: Writer) -> str:
        asked = f"isinstance({writer.at_level(value, 1)}, jax.Array)"
        return f"not {asked}" if negated else asked

    plan.whole[node] = Whole(build, NOT if negated else ATOM, (value,))
    plan.found("JM001", node, _TENSOR, "the type of an array is a class of its own below jax.Array", rule=_TENSOR)


def _is_dtype(plan: Plan, node: ast.expr) -> bool:
    row = plan.unit.book.find(plan.unit.resolve(node) or "")
    return row is not None and row.get("gives") == "dtype"


def _equal(plan: Plan, node: ast.Compare) -> None:
    """`x.dtype is torch.float32` with `==`."""
    tree = plan.unit.tree
    start, end = tree.end(node.left), tree.start(node.comparators[0])
    between = tree.text[start:end]
    words = "is not" if isinstance(node.ops[0], ast.IsNot) else "is"
    if between.split() != words.split():  # a comment or a bracket stands between
        plan.found("JM203", node, "torch.dtype", "dtypes are equal in JAX and not identical", advice="Compare with ==.")
        return
    plan.point(node, start, end, f" {_SAME[type(node.ops[0])]} ")
    plan.found("JM001", node, "torch.dtype", "dtypes are equal in JAX and not identical", rule="torch.dtype")


def _called(plan: Plan, node: ast.Call) -> None:
    name = plan.unit.resolve(node.func)
    if name == "builtins.str" and len(node.args) == 1 and plan.unit.kind(node.args[0]).tag == "dtype":
        plan.found("JM101", node, "torch.dtype", "the text is `float32` in JAX, `torch.float32` in torch",
                   advice="Compare dtypes, not their texts.")  # fmt: skip
    elif name == "builtins.isinstance" and len(node.args) == 2 and (text := _holders(plan, node.args[0])):
        asked = node.args[1]
        for tensor in asked.elts if isinstance(asked, ast.Tuple) else [asked]:
            if plan.unit.resolve(tensor) == _TENSOR:
                plan.replace(tensor, text if tensor is asked else text.strip("()"))
                plan.found("JM001", tensor, _TENSOR, f"torch.Tensor -> {text}, which it is here", rule=_TENSOR)


def _holders(plan: Plan, value: ast.expr) -> str:
    """What a tensor is an instance of: a Variable, or either where a module's attribute may hold one, an array of NumPy
    in a state_dict; "" elsewhere."""
    kind = plan.unit.kind(value)
    if kind.tag == "Variable":
        return "nnx.Variable"
    if kind.why == IN_STATE:
        return "np.ndarray"
    if isinstance(value, ast.Attribute) and plan.unit.kind(value.value).tag == "Module":
        return "(jax.Array, nnx.Variable)"
    return ""
