"""Functions of the standard library that write to what they are given: `operator.iadd(x, 1)`."""

from __future__ import annotations

import ast

from .context import Context

_WRITING = frozenset(
    f"operator.{name}"
    for name in """iadd isub imul itruediv ifloordiv imod ipow imatmul iand ior ixor ilshift irshift setitem
    delitem""".split()  # noqa: SIM905
)


def writing_function(context: Context, node: ast.Call) -> None:
    """Leave a call that lets such a function write to a tensor, itself or as what is handed on (`reduce(iadd, xs)`)."""
    unit = context.unit
    name = unit.resolve(node.func) or ""
    handed = next((d for a in node.args if (d := unit.resolve(a) or "") in _WRITING), "")
    if name not in _WRITING and not handed:
        return
    if any(unit.kind(a).is_tensor or unit.kind(a).element().is_tensor for a in node.args):
        context.refuse(node, name if name in _WRITING else handed, "it writes to its first argument, which JAX cannot")
