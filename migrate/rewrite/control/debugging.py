"""torch's anomaly detection becomes JAX's search for NaN."""

from __future__ import annotations

import ast

from ..plan import Plan

SETTERS = frozenset(("torch.autograd.set_detect_anomaly", "torch.autograd.detect_anomaly"))
SETTING = "jax_debug_nans"


def plan_nan_checks(plan: Plan) -> None:
    """`set_detect_anomaly(True)` alone on a line, and both names as contexts."""
    unit = plan.unit
    for node in unit.tree.all(ast.Call):
        dotted = unit.resolve(node.func) or ""
        if dotted not in SETTERS or any(k.arg not in ("mode", "check_nan") for k in node.keywords):
            continue
        up = unit.tree.parents.get(node)
        mode = _mode(node, dotted)
        if mode is None or not isinstance(up, (ast.Expr, ast.withitem)):
            continue  # the row reports it
        if isinstance(up, ast.withitem) and up.optional_vars is None:
            plan.replace(node, f"jax.debug_nans({mode})")
        elif isinstance(up, ast.Expr) and dotted.endswith("set_detect_anomaly"):
            plan.replace(node, f'jax.config.update("{SETTING}", {mode})')
        else:
            continue
        plan.taken.add(node.func)
        plan.found(
            "JM101", node, dotted, "torch looks for NaN in backward passes, JAX in every result: it raises earlier",
            rule="NaN debugging",
        )  # fmt: skip


def _mode(node: ast.Call, dotted: str) -> str | None:
    """What is switched on or off, as text; None when it is not written plainly, or NaN are not looked for."""
    given = dict(zip(("mode", "check_nan"), node.args, strict=False)) | {k.arg or "": k.value for k in node.keywords}
    if dotted.endswith(".detect_anomaly"):
        given.pop("mode", None)
        return "True" if not node.args and not given else None
    value = given.get("mode")
    if "check_nan" in given or not isinstance(value, (ast.Constant, ast.Name, ast.Attribute)):
        return None
    return ast.unparse(value)
