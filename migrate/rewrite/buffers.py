"""NumPy arrays that are written again after a tensor was made of them.

torch.tensor has its copy when it returns. JAX copies from NumPy in the background: in jaxlib 0.10.2 on the CPU, a write
right after `jnp.array(a)` was seen in the array in some of the calls from about 200 kB on (jax#37830 tells of the same
for jax.device_put). `jnp.array(a.copy())` has nothing to race with.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..read.unit import TENSOR_TYPES, Unit
from .plan import Plan
from .streams import LOOPS

_SHARING = frozenset({"torch.from_numpy", "torch.as_tensor", "torch.asarray", "torch.Tensor", *TENSOR_TYPES})
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_WRITING = frozenset({"fill", "sort", "put", "partition", "itemset"})


def plan_buffers(plan: Plan) -> None:
    """Where a write to an array of NumPy may follow the call that makes a tensor of it: copy it for torch.tensor, leave
    the calls of which the tensor shares the array's memory."""
    unit = plan.unit
    for call in unit.tree.all(ast.Call):
        dotted = unit.resolve(call.func)
        if not call.args or (dotted != "torch.tensor" and dotted not in _SHARING):
            continue
        write = _write_behind(unit, call.args[0])
        if write is None:
            continue
        if dotted == "torch.tensor":
            end = unit.tree.end(call.args[0])
            plan.point(call.args[0], end, end, ".copy()")
        elif call not in plan.taken:
            plan.taken.add(call)
            plan.found(
                "JM206",
                call,
                dotted,
                f"torch shares memory with `{_root(call.args[0])}`, which line {write.lineno} writes to; JAX copies",
                advice="Make the array anew in place of writing to it, or copy it where it is meant to stay.",
            )


def _write_behind(unit: Unit, argument: ast.expr) -> ast.expr | None:
    """A write to an array of NumPy that may run after the call that is given the array."""
    root = _root(argument)
    if not root or unit.kind(argument).tag != "numpy":
        return None
    return next((w for w in _writes(unit, argument, root) if _may_follow(unit, argument, w, root)), None)


def _root(node: ast.expr) -> str:
    """`a` of `a[1:]`, `self.a` of `self.a[0].T`: the name whose memory an expression shows."""
    while isinstance(node, ast.Subscript) or isinstance(getattr(node, "value", None), ast.Subscript):
        node = node.value  # type: ignore[attr-defined]
    return ast.unparse(node) if isinstance(node, (ast.Name, ast.Attribute)) else ""


def _writes(unit: Unit, argument: ast.expr, root: str) -> Iterator[ast.expr]:
    """The places of the same function that write to the memory, of the same class where it is an attribute's."""
    tree = unit.tree
    kinds = ast.ClassDef if "." in root else _FUNCTIONS
    home = next((up for up in tree.ancestors(argument) if isinstance(up, kinds)), None)
    for node in tree.walk(home) if home is not None else tree.nodes:
        if isinstance(node, (ast.Subscript, ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            augmented = isinstance(tree.parents.get(node), ast.AugAssign)
            if (isinstance(node, ast.Subscript) or augmented) and _root(node) == root:
                yield node
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in _WRITING and _root(node.func.value) == root:
                yield node
            yield from (k.value for k in node.keywords if k.arg == "out" and _root(k.value) == root)


def _may_follow(unit: Unit, argument: ast.expr, write: ast.expr, root: str) -> bool:
    """Whether a write may run after the call while the array is still the same."""
    tree = unit.tree
    if tree.start(write) > tree.end(argument):
        return True
    functions = [next((up for up in tree.ancestors(n) if isinstance(up, _FUNCTIONS)), None) for n in (argument, write)]
    if functions[0] is not functions[1]:
        return getattr(functions[1], "name", "") != "__init__"
    around = set(tree.ancestors(write))
    loops = [up for up in tree.ancestors(argument) if isinstance(up, LOOPS) and up in around]
    return any(not _is_bound_anew(loop, root) for loop in loops[:1])


def _is_bound_anew(loop: ast.AST, root: str) -> bool:
    """Whether each turn of a loop begins with another array."""
    return any(
        isinstance(stmt, ast.Assign) and any(ast.unparse(t) == root for t in stmt.targets)
        for stmt in getattr(loop, "body", [])
    )
