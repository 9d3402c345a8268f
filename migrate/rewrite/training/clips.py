"""Clipping of gradients between backward and step."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from ...read.unit import Unit
from .optimizers import bound, whole_modules
from .roles import NotPlain
from .sources import Source

CLIPS = {
    "torch.nn.utils.clip_grad_norm_": "norm",
    "torch.nn.utils.clip_grad_value_": "value",
}


@dataclass(frozen=True)
class Clip:
    """One clip_grad_ statement: what it clips, its bound, the order of the norm ("" for 2 and for values)."""

    stmt: ast.Expr | ast.Assign
    call: ast.Call
    dotted: str
    units: tuple[str, ...]
    limit: ast.expr
    order: str

    @property
    def by_norm(self) -> bool:
        return CLIPS[self.dotted] == "norm"


def clip_call(unit: Unit, stmt: ast.stmt) -> ast.Call | None:
    """The clip_grad_ call of a statement of its own or of an assignment to one name."""
    value = stmt.value if isinstance(stmt, (ast.Expr, ast.Assign)) else None
    if isinstance(value, ast.Call) and unit.resolve(value.func) in CLIPS:
        return value
    return None


def read_clip(unit: Unit, stmt: ast.stmt, source: Source) -> Clip | None:
    """The clipping that a statement does to gradients of `source`; None when it does none. Raises NotPlain."""
    call = clip_call(unit, stmt)
    if call is None or not isinstance(stmt, (ast.Expr, ast.Assign)):
        return None
    given = dict(zip(("parameters", "limit", "norm_type"), call.args, strict=False))
    for keyword in call.keywords:
        name = "limit" if keyword.arg in ("max_norm", "clip_value") else keyword.arg or "**"
        given[name] = keyword.value
    extra = set(given) - {"parameters", "limit", "norm_type", "foreach", "error_if_nonfinite"}
    finite = given.get("error_if_nonfinite")
    if extra or "limit" not in given or "parameters" not in given or len(call.args) > 3:
        raise NotPlain("the arguments of the clipping are not understood")
    if finite is not None and not (isinstance(finite, ast.Constant) and finite.value is False):
        raise NotPlain("the clipping raises on gradients that are not finite")
    units = _clipped(unit, given["parameters"], source)
    if not units:
        raise NotPlain(f"`{ast.unparse(call)[:60]}` clips other gradients than those of the step")
    return Clip(stmt, call, unit.resolve(call.func) or "", units, given["limit"], _order(unit, given.get("norm_type")))


def _clipped(unit: Unit, params: ast.expr, source: Source) -> tuple[str, ...]:
    listed = bound(unit, params)
    if source.arrays:
        if isinstance(listed, (ast.List, ast.Tuple)) and [ast.unparse(e) for e in listed.elts] == list(source.arrays):
            return source.units
        return ()
    models = whole_modules(unit, params)
    return models if models is not None and set(models) <= set(source.models) else ()


def _order(unit: Unit, norm: ast.expr | None) -> str:
    """The `ord` of optax.tree.norm for a norm_type. Raises NotPlain."""
    if norm is None or (isinstance(norm, ast.Constant) and norm.value == 2):
        return ""
    if isinstance(norm, ast.Constant) and norm.value == 1:
        return "1"
    text = ast.unparse(norm)
    infinite = isinstance(norm, ast.Constant) and norm.value == "inf"
    if infinite or text in ("float('inf')", "math.inf", "torch.inf", "np.inf") or unit.resolve(norm) == "torch.inf":
        return "jnp.inf"
    raise NotPlain("the gradients are clipped by another norm than 1, 2 or inf")
