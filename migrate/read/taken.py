"""Calls whose receiver nothing shows, and which can be rewritten all the same.

`def f(x): return x.sqrt()` becomes `jnp.sqrt(x)`: NumPy's arrays and Python's own types have no method `sqrt`, so in
torch `x` was a tensor or something of a type that is in sight nowhere; and `jnp.sqrt` raises on whatever is no array.
The rewrite is right or it is loud. It says nothing of `x` before the call; after it, `x` was an array.

A name is in this list when every type that has it is a tensor or named in owners.py, NumPy has no method of that name,
and what the row writes raises on all but arrays: tests/test_taken.py measures both. Rows whose plain target is an
operator (`x + y` asks `x` what it means) have a second one, `strict`.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from ..rulebook.signature import Mismatch, bind
from .caught import is_caught

if TYPE_CHECKING:
    from ..rulebook.rows import Row
    from .unit import Unit

TAKEN = frozenset(
    """
    abs add adjoint angle arccos arccosh arcsin arcsinh arctan arctanh ceil cholesky cholesky_solve chunk clone
    cos cosh count_nonzero cov cross cummax cummin deg2rad det detach diag diff dist div divide eq exp expand expm1 flip
    floor gcd ge gt histogram inner inverse lcm le less log log10 log1p logical_and logical_or logical_xor lt lu
    lu_solve matmul maximum median minimum mode mul multiply nanmedian ne neg negative norm outer permute pow qr
    quantile rad2deg remainder roll rot90 scatter sign sin sinh sqrt square sub subtract svd tan tanh trunc unbind where
    """.split()  # noqa: SIM905
)
# Their targets read an attribute (`x.astype(…)`, `x.shape`) that no other type with the method has.
BY_ATTRIBUTE = frozenset({"bfloat16", "bool", "double", "float", "half", "int", "size"})

_ALSO_LAYERS = frozenset({"norm", "expand"})  # `block.norm(x)`, `match.expand(form)`: the argument must be known
_TENSORS = frozenset(
    """
    other exponent vec2 mat2 tensor2 index src value condition weight q fweights aweights prepend append L B LU_data
    LU_pivots
    """.split()  # noqa: SIM905
)


def taken(node: ast.Call, unit: Unit) -> str:
    """Why `value.name(…)` may be rewritten though nothing shows what `value` is, or ""."""
    if not isinstance(node.func, ast.Attribute) or node.func.attr not in TAKEN | BY_ATTRIBUTE:
        return ""
    name = node.func.attr
    owned = unit.around.owned
    if owned is None or name in owned or isinstance(unit.tree.parents.get(node), ast.Expr):
        return ""
    row = unit.book.find(f"torch.Tensor.{name}")
    if (
        row is None
        or not row.options
        or not _fits(node, row, unit)
        or is_caught(node, unit, general=True)
        or _unlike(node, unit)
    ):
        return ""
    what = _rejecting(row)
    if name in BY_ATTRIBUTE:
        return f"taken as it comes: nothing else with a method `.{name}` has {what}"
    return f"taken as it comes: {what} raises on anything but arrays"


def _unlike(node: ast.Call, unit: Unit) -> bool:
    """Whether the code around uses the receiver, or the name of the result, as no tensor is used."""
    assert isinstance(node.func, ast.Attribute)
    names = {n.id for n in (node.func.value, *_targets(node, unit)) if isinstance(n, ast.Name)}
    owner = unit.tree.function(node) or unit.tree.root
    return not names.isdisjoint(unit.usage(owner).unlike_tensor)


def _targets(node: ast.Call, unit: Unit) -> list[ast.expr]:
    up = unit.tree.parents.get(node)
    return up.targets if isinstance(up, ast.Assign) else []


def _fits(node: ast.Call, row: Row, unit: Unit) -> bool:
    """Whether the arguments are such as torch's method takes: tensors where it takes them, and nowhere else."""
    assert isinstance(node.func, ast.Attribute)
    if row.signature is None or any(isinstance(a, ast.Starred) for a in node.args):
        return False
    bound = bind(row.signature, node, node.func.value)
    if isinstance(bound, Mismatch):
        return False
    varargs = any(p.kind == "varargs" for p in row.signature.params)
    if varargs and not node.args and not node.keywords:
        return False
    given = [v for n, v in bound.named.items() if v is not node.func.value and n not in _TENSORS]
    if any(unit.kind(v).is_tensor for v in given):
        return False  # `block.norm(x)` calls a layer
    if row.short in _ALSO_LAYERS and any(not unit.kind(v).known for v in [*given, *bound.rest]):
        return False
    return not any(isinstance(a, ast.Constant) and isinstance(a.value, str) for a in node.args) or row.short == "norm"


def _rejecting(row: Row) -> str:
    """What of the row's target the receiver goes into, for people."""
    options = row.strict.options if row.strict is not None else row.options
    text = options[0].template.text
    found = re.search(r"([\w.]+)\((?:[^()]*, )?\{(?:self|input|A|b)\}", text)
    if found:
        return found.group(1)
    found = re.match(r"\{\w+\}(\.\w+)", text)
    return f"`{found.group(1)}`" if found else "its target"
