"""Devices: `.to(device)`, `.cuda()`, `torch.device`, `x.device`.

Placing arrays changes no numbers. A device that the program chooses stays a choice among `jax.devices()`; the device of
another array is nowhere needed, and under jit or grad an array has none, so such arguments go.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from ..read.source import hidden
from .arraydevices import plan_array_devices, uses_of
from .placement import DEFAULT, DROPPED, device_of, is_default_choice, is_device_position, is_dropped, may_be_name
from .plan import Plan, Whole
from .writer import Writer

GONE = frozenset(
    f"torch.cuda.{n}"
    for n in (
        "empty_cache",
        "set_device",
        "ipc_collect",
        "init",
        "reset_peak_memory_stats",
        "reset_max_memory_allocated",
    )
) | {"torch.mps.empty_cache", "torch.xpu.empty_cache", "torch.accelerator.set_device_index"}
WAITS = frozenset(("torch.cuda.synchronize", "torch.mps.synchronize", "torch.accelerator.synchronize"))
SETTINGS = ("torch.backends.cudnn.", "torch.backends.cuda.matmul")


def plan_devices(plan: Plan) -> None:
    """Decide every device that the file names, chooses, asks for or passes on."""
    _string_names(plan)
    plan_array_devices(plan)
    for node in list(plan.unit.tree.parents):
        if hidden(node):
            continue
        if isinstance(node, ast.Call) and node not in plan.taken:
            _call(plan, node)
        elif isinstance(node, (ast.Attribute, ast.Name)) and node not in plan.taken:
            _annotation(plan, node)
            if isinstance(node, ast.Attribute) and node.attr in ("type", "index"):
                _part(plan, node)
        if isinstance(node, ast.Assign):
            _setting(plan, node)


def _call(plan: Plan, node: ast.Call) -> None:
    dotted = plan.unit.resolve(node.func) or ""
    stmt = plan.unit.tree.parents[node]
    if dotted == "torch.device":
        _device(plan, node)
    elif dotted == "torch.set_default_device" and len(node.args) == 1 and not node.keywords:
        _default_device(plan, node)
    elif dotted in GONE and isinstance(stmt, ast.Expr):
        _gone(plan, node, stmt, dotted, "JM001", "JAX manages this itself")
    elif dotted in WAITS and isinstance(stmt, ast.Expr):
        _gone(
            plan, node, stmt, dotted, "JM101", "gone: call jax.block_until_ready on the result before reading the clock"
        )


def _default_device(plan: Plan, node: ast.Call) -> None:
    """`torch.set_default_device(d)`; a device that is not understood is left to the rules, which report it."""
    found = device_of(plan, node.args[0])
    if found is None:
        return
    build, note = found
    plan.taken |= {node, node.func}
    if is_default_choice(plan.unit, node.args[0]):
        plan.taken |= set(ast.walk(node.args[0]))
    plan.whole[node] = Whole(lambda w: f'jax.config.update("jax_default_device", {build(w)})', 15, (node.args[0],))
    plan.found(
        "JM101" if note else "JM001", node, "torch.set_default_device",
        f"torch.set_default_device -> jax.config.update{': ' + note if note else ''}",
    )  # fmt: skip


def _gone(plan: Plan, node: ast.AST, stmt: ast.stmt, dotted: str, code: str, message: str) -> None:
    plan.lines[stmt] = lambda _: []
    plan.taken |= set(ast.walk(node))
    plan.found(code, node, dotted, message)


def _setting(plan: Plan, stmt: ast.Assign) -> None:
    """`torch.backends.cudnn.benchmark = True`."""
    target = stmt.targets[0]
    dotted = plan.unit.resolve(target) or ""
    if len(stmt.targets) == 1 and dotted.startswith(SETTINGS) and isinstance(stmt.value, ast.Constant):
        precise = "tf32" in dotted or "matmul" in dotted
        text = (
            "gone: jax.config.update('jax_default_matmul_precision', …) sets the precision of products"
            if precise
            else ("gone: XLA chooses its algorithms")
        )
        _gone(plan, target, stmt, dotted, "JM101", text)


def _device(plan: Plan, node: ast.Call) -> None:
    """`torch.device(…)` becomes an element of `jax.devices()`."""
    plan.taken |= {node, node.func}
    values = [*node.args, *(k.value for k in node.keywords if k.arg in ("device", "type", "index"))]
    index = values[1] if len(values) == 2 else None
    found = (
        device_of(plan, values[0], index)
        if 0 < len(values) < 3 and len(values) == len(node.args) + len(node.keywords)
        else None
    )
    if found is None:
        plan.found(
            "JM203",
            node,
            "torch.device",
            "the name of the device is not understood",
            advice="Write jax.devices()[0], or jax.devices('gpu')[n].",
        )
        return
    build, note = found
    if is_default_choice(plan.unit, values[0]):
        plan.taken |= set(ast.walk(values[0]))
    plan.whole[node] = Whole(build, 15, (node,))
    plan.found(
        "JM101" if note else "JM001", node, "torch.device", f"torch.device -> jax.devices{': ' + note if note else ''}"
    )


def _annotation(plan: Plan, node: ast.Attribute | ast.Name) -> None:
    """`device: torch.device`."""
    if plan.unit.resolve(node) != "torch.device":
        return
    parent = plan.unit.tree.parents.get(node)
    if isinstance(parent, ast.Call) and parent.func is node:
        return
    plan.replace(node, "jax.Device")
    plan.found("JM001", node, "torch.device", "torch.device -> jax.Device")


PLATFORMS = {"cuda": "gpu", "xpu": "gpu", "mps": "METAL"}  # as `jax.Device.platform` says it


def _part(plan: Plan, node: ast.Attribute) -> None:
    """`device.type == "cuda"` becomes `device.platform == "gpu"`; a platform that is shown reads otherwise in JAX."""
    unit = plan.unit
    kind = unit.kind(node.value)
    if kind.tag != "device" or kind.name == "tensor" or not isinstance(node.ctx, ast.Load):
        return
    plan.taken.add(node)
    end = unit.tree.end(node)
    name = "platform" if node.attr == "type" else "id"
    plan.point(node, end - len(node.attr), end, name)
    others = _compared(unit.tree.parents.get(node), node) if node.attr == "type" else None
    for other in others or ():
        start, end = unit.tree.start(other) + 1, unit.tree.end(other) - 1
        if other.value in PLATFORMS:
            plan.point(other, start, end, PLATFORMS[other.value])
    if node.attr == "index":
        text = "a number where torch says None for a device without one"
    else:
        text = "" if others else "it says gpu where torch says cuda"
    plan.found(
        "JM101" if text else "JM001", node, f"torch.device.{node.attr}",
        f".{node.attr} -> .{name}" + (f": {text}" if text else ""),
    )  # fmt: skip


def _compared(parent: ast.AST | None, node: ast.expr) -> list[ast.Constant] | None:
    """The literal names of platforms that `node` is compared with; None when that is not all that is done with it."""
    if not isinstance(parent, ast.Compare) or len(parent.ops) != 1:
        return None
    other = parent.comparators[0] if parent.left is node else parent.left
    if isinstance(parent.ops[0], (ast.In, ast.NotIn)) and isinstance(other, (ast.Tuple, ast.List, ast.Set)):
        names = other.elts
    elif isinstance(parent.ops[0], (ast.Eq, ast.NotEq)):
        names = [other]
    else:
        return None
    literal = [n for n in names if isinstance(n, ast.Constant) and n.value in (*PLATFORMS, "cpu")]
    return literal if len(literal) == len(names) else None


# -- strings that name a device ---------------------------------------------------------------------------------------


def _string_names(plan: Plan) -> None:
    """`device = "cuda" if torch.cuda.is_available() else "cpu"`: a JAX device, if the name is used only so."""
    unit = plan.unit
    for stmt in unit.tree.all(ast.Assign):
        target = stmt.targets[0]
        if len(stmt.targets) != 1 or not isinstance(target, ast.Name):
            continue
        found = (
            device_of(plan, stmt.value) if isinstance(stmt.value, (ast.IfExp, ast.Constant, ast.JoinedStr)) else None
        )
        if found is None:
            continue
        scope = unit.scope(target).lookup(target.id)
        uses = list(uses_of(plan, target))
        places = [u for u in uses if is_device_position(unit, u)]
        if not places:
            continue
        single = scope is not None and len(scope.bindings[target.id]) == 1
        if single and all(u in places or _shown(plan, u) for u in uses):
            plan.whole[stmt.value] = Whole(found[0], 15, (stmt.value,))
            if is_default_choice(unit, stmt.value):
                plan.taken |= set(ast.walk(stmt.value))
            shown = any(u not in places for u in uses)
            plan.found(
                "JM101" if shown else "JM001", stmt.value, "torch.device",
                f"the name of a device -> jax.devices{': it prints otherwise' if shown else ''}",
            )  # fmt: skip
            for place in places:
                _becomes_device(plan, place)
        else:
            for place in places:
                unit.kinds[place] = DROPPED


def _becomes_device(plan: Plan, place: ast.expr) -> None:
    """A use of a name that now is a device: `torch.device(name)` is the name itself."""
    from ..read.kinds import DEVICE

    plan.unit.kinds[place] = DEVICE


def _shown(plan: Plan, node: ast.Name) -> bool:
    """A use in a printed text."""
    parent = plan.unit.tree.parents.get(node)
    if isinstance(parent, ast.FormattedValue):
        return True
    return isinstance(parent, ast.Call) and plan.unit.resolve(parent.func) in ("builtins.print", "builtins.str")


def device_text(plan: Plan, link: ast.Call) -> Callable[[Writer], str] | None:
    """The device of `module.to(…)`, `.cuda()` or `.cpu()`: "" where nothing moves, None when not understood."""
    attr = link.func.attr  # type: ignore[attr-defined]
    values = [
        a
        for a in [*link.args, *(k.value for k in link.keywords if k.arg == "device")]
        if not isinstance(a, ast.Constant) or a.value not in (True, False)
    ]
    names = {k.arg for k in link.keywords} - {"device", "non_blocking"}
    if names or len(values) > 1:
        return None
    if attr in ("cuda", "cpu"):
        return (lambda _: "") if attr == "cuda" else (lambda _: 'jax.devices("cpu")[0]')
    if not values:
        return None
    value = values[0]
    if plan.unit.kind(value).tag in ("dtype", "Tensor", "Variable"):
        return None
    plain = isinstance(value, (ast.Name, ast.Attribute)) and not may_be_name(plan.unit, value)
    found = None if plain else device_of(plan, value)

    def build(writer: Writer) -> str:
        if is_dropped(plan.unit, value):
            return ""
        text = found[0](writer) if found is not None else writer.at_level(value, 1)
        return "" if text == DEFAULT else text

    return build


__all__ = ["device_text", "is_dropped", "plan_devices"]
