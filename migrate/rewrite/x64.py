"""64-bit types: JAX makes 32-bit ones of them unless `jax_enable_x64` is on.

A program whose numbers need them switches them on: one that sets float64 as its default, one with integers beyond
int32 on tensors, one that uses float64 and has no layers (layers would become float64 too, which torch's are not).
In all other files the uses are reported with where to switch.
"""

from __future__ import annotations

import ast

from ..read.unit import Unit
from ..read.wide import INT64, Wide, is_script, sets_default
from .plan import Build, Plan, Whole
from .writer import Writer

SWITCH = 'jax.config.update("jax_enable_x64", True)'
DEFAULT_TYPED = frozenset(("torch.get_default_dtype", "torch.scalar_tensor", "torch.nn.init.constant_"))
ADVICE = f"Where the program starts: {SWITCH}."


def plan_x64(plan: Plan) -> None:
    """Decide before the rows run what their numbers are computed in."""
    _defaults(plan)
    reason = _reason(plan)
    if reason is None or plan.unit in _switched(plan):
        return
    anchor = _last_import(plan.unit)
    if anchor is None or not plan.alone_to_end(anchor):
        plan.found("JM203", plan.unit.tree.root.body[0], "torch.float64", "there is no place to switch 64-bit types on",
                   advice=ADVICE)  # fmt: skip
        return
    plan.after.setdefault(anchor, []).extend(["", SWITCH])
    where = "" if reason.node not in plan.unit.tree.parents else f" at line {_line(plan.unit, reason.node)}"
    plan.found(
        "JM111", anchor, "torch.float64" if reason.what != "int" else "torch.int64",
        f"64-bit types are switched on, for `{reason.text}`{where}: what is made without a dtype is float64 then, "
        "where torch makes float32", advice=f"--x64 off leaves the line out: {reason.text} is 32 bits wide then.",
    )  # fmt: skip


def plan_wide_results(plan: Plan) -> None:
    """After the rows: what they wrote for 64-bit types is right, or said not to be."""
    on = is_on(plan)
    for use in plan.project.wide.get(plan.unit, []):
        if use.what == "int":
            _large(plan, use, on)
        elif use.what == "limits":
            _limits(plan, use, on)
        elif use.what == "numpy" and not on:
            _array(plan, use)
        elif use.what == "float64":
            _float64(plan, use, on)
    if on:
        _int64(plan)
    if plan.settings.x64 == "on" and not (any(map(is_script, plan.project.units)) or _switched(plan)):
        _taken_for_granted(plan)
    if on and _switched(plan):
        _typed_by_default(plan)


def is_on(plan: Plan) -> bool:
    """Whether the run switches 64-bit types on."""
    if plan.settings.x64 != "auto":
        return plan.settings.x64 == "on"
    return bool(plan.project.wide_programs or _switched(plan))


def _switched(plan: Plan) -> set[Unit]:
    """The units that make float64 the default where they stand."""
    return {unit for unit, uses in plan.project.wide.items() if any(u.what == "default" for u in uses)}


def _reason(plan: Plan) -> Wide | None:
    """Why this file switches 64-bit types on, if it does."""
    if plan.settings.x64 == "off" or not is_script(plan.unit):
        return None
    needs = plan.project.needs_wide(plan.unit)
    if needs is None and plan.settings.x64 == "on":
        return Wide(plan.unit.tree.root, "float64", "--x64 on")
    return needs


def _defaults(plan: Plan) -> None:
    """`torch.set_default_dtype(torch.float64)` is the switch; float32 is what JAX has."""
    unit = plan.unit
    for node in unit.tree.all(ast.Call):
        kind = sets_default(unit, node)
        stmt = unit.tree.parents.get(node)
        if kind not in ("float64", "float32") or not isinstance(stmt, ast.Expr):
            continue
        others = {sets_default(u, n) for u in plan.project.units for n in u.tree.all(ast.Call)} - {"", kind}
        if others or plan.settings.x64 == "off":
            continue  # the row says that there is no such setting
        plan.taken |= {node, node.func, *ast.walk(node.args[0])}
        name = unit.resolve(node.func) or ""
        if kind == "float64":
            plan.lines[stmt] = lambda _: [SWITCH]
            plan.found("JM002", node, name, "the default types are 64 bits wide, as torch's are then")
        else:
            plan.lines[stmt] = lambda _: []
            plan.found("JM002", node, name, "gone: float32 is the default of JAX too")


def _last_import(unit: Unit) -> ast.stmt | None:
    """The last import of those at the head of a file."""
    found = None
    for stmt in unit.tree.root.body:
        if isinstance(stmt, (ast.Import, ast.ImportFrom)):
            found = stmt
        elif not (isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Constant)):
            break
    return found


def _line(unit: Unit, node: ast.AST) -> int:
    return unit.tree.position(unit.tree.start(node))[0]


def _large(plan: Plan, use: Wide, on: bool) -> None:
    if on and -(2**63) <= use.value < 2**63:
        return
    width = "int64" if on else "int32, which is what JAX computes with"
    plan.found("JM203", use.node, "torch.int64", f"{use.value} does not fit {width}", advice="" if on else ADVICE)


def _limits(plan: Plan, use: Wide, on: bool) -> None:
    """`jnp.iinfo(jnp.int64)` has torch's limits, with and without 64-bit types."""
    assert isinstance(use.node, ast.Call)
    inner = plan.whole.get(use.node.args[0])
    if use.node in plan.whole and inner is not None:
        plan.whole[use.node.args[0]] = Whole(lambda _: "jnp.int64", inner.level)
    if not on:
        plan.restate(
            use.node, "JM111", "the limits of int64: without x64 arrays are int32 and cannot hold them", ADVICE
        )


def _array(plan: Plan, use: Wide) -> None:
    said = next((f.message for about, f in plan.nodes if about is use.node), "")
    more = f"`{use.text}` is float64 in NumPy and torch, float32 in JAX without x64"
    plan.restate(use.node, "JM111", f"{said}; {more}" if said else more, ADVICE)


def _float64(plan: Plan, use: Wide, on: bool) -> None:
    for about, finding in plan.nodes:
        if about is use.node and finding.code == "JM111":
            if on:
                plan.restate(about, "JM001", f"{finding.name}: 64-bit types are switched on")
            else:
                plan.restate(about, "JM111", finding.message, ADVICE)
            return


def _taken_for_granted(plan: Plan) -> None:
    """Say where 64-bit types count in files that no program of the run switches them on for."""
    for use in plan.project.wide.get(plan.unit, []):
        text = f"`{use.text}`: written for 64-bit types, which no program in this run switches on"
        name = "torch.int64" if use.what in ("int", "limits") else "torch.float64"
        said = [f for about, f in plan.nodes if about is use.node]
        if not said:
            plan.found("JM111", use.node, name, text, advice=ADVICE)
        for finding in said:
            other = "" if finding.code in ("JM001", "JM111") else f"{finding.message}; "
            plan.restate(use.node, "JM111", other + text, ADVICE)


def _int64(plan: Plan) -> None:
    """Where 64-bit types are on, torch.int64 is jnp.int64 and `.long()` casts to it."""
    for node, whole in list(plan.whole.items()):
        if isinstance(node, (ast.Name, ast.Attribute)) and plan.unit.resolve(node) in INT64:
            plan.whole[node] = Whole(lambda _: "jnp.int64", whole.level)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "long":
            plan.whole[node] = Whole(_ends_wide(whole), whole.level, whole.kept)


def _typed_by_default(plan: Plan) -> None:
    """Rows that write out torch's default type, which is float64 in this run."""
    for node, whole in list(plan.whole.items()):
        called = node.func if isinstance(node, ast.Call) else node
        if plan.unit.resolve(called) in DEFAULT_TYPED:
            plan.whole[node] = Whole(_wide(whole), whole.level, whole.kept)
            if any(about is node and f.code == "JM101" for about, f in plan.nodes):
                plan.restate(node, "JM001", "the default type is float64")


def _wide(whole: Whole) -> Build:
    return lambda writer: whole.build(writer).replace("jnp.float32", "jnp.float64")


def _ends_wide(whole: Whole) -> Build:
    def build(writer: Writer) -> str:
        text, end = whole.build(writer), ".astype(jnp.int32)"
        return f"{text.removesuffix(end)}.astype(jnp.int64)" if text.endswith(end) else text

    return build
