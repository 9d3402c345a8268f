"""Devices: `.to(device)`, `.cuda()`, `torch.device`, `x.device`.

Placing arrays changes no numbers. A device that the program chooses stays a choice among `jax.devices()`; the device of
another array is nowhere needed, and under jit or grad an array has none, so such arguments go.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from ..read.source import hidden
from .placement import DEFAULT, DROPPED, device_of, is_default_choice, is_device_position, is_dropped
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
) | {"torch.mps.empty_cache", "torch.xpu.empty_cache"}
WAITS = frozenset(("torch.cuda.synchronize", "torch.mps.synchronize", "torch.accelerator.synchronize"))
SETTINGS = ("torch.backends.cudnn.", "torch.backends.cuda.matmul")


def plan_devices(plan: Plan) -> None:
    """Decide every device that the file names, chooses, asks for or passes on."""
    _string_names(plan)
    _array_devices(plan)
    for node in list(plan.unit.tree.parents):
        if hidden(node):
            continue
        if isinstance(node, ast.Call) and node not in plan.taken:
            _call(plan, node)
        elif isinstance(node, (ast.Attribute, ast.Name)) and node not in plan.taken:
            _annotation(plan, node)
        if isinstance(node, ast.Assign):
            _setting(plan, node)


def _call(plan: Plan, node: ast.Call) -> None:
    dotted = plan.unit.resolve(node.func) or ""
    stmt = plan.unit.tree.parents[node]
    if dotted == "torch.device":
        _device(plan, node)
    elif dotted in GONE and isinstance(stmt, ast.Expr):
        _gone(plan, node, stmt, dotted, "JM001", "JAX manages this itself")
    elif dotted in WAITS and isinstance(stmt, ast.Expr):
        _gone(
            plan, node, stmt, dotted, "JM101", "gone: call jax.block_until_ready on the result before reading the clock"
        )


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


# -- strings that name a device ---------------------------------------------------------------------------------------


def _string_names(plan: Plan) -> None:
    """`device = "cuda" if torch.cuda.is_available() else "cpu"`: a JAX device, when the name is used only as a device."""
    unit = plan.unit
    for stmt in [n for n in unit.tree.parents if isinstance(n, ast.Assign)]:
        target = stmt.targets[0]
        if len(stmt.targets) != 1 or not isinstance(target, ast.Name):
            continue
        found = (
            device_of(plan, stmt.value) if isinstance(stmt.value, (ast.IfExp, ast.Constant, ast.JoinedStr)) else None
        )
        if found is None:
            continue
        scope = unit.scope(target).lookup(target.id)
        uses = list(_uses(plan, target))
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


def _uses(plan: Plan, target: ast.Name) -> Iterator[ast.Name]:
    unit = plan.unit
    scope = unit.scope(target).lookup(target.id)
    for node in unit.tree.parents:
        if isinstance(node, ast.Name) and node.id == target.id and isinstance(node.ctx, ast.Load):
            if unit.scope(node).lookup(node.id) is scope:
                yield node


def _shown(plan: Plan, node: ast.Name) -> bool:
    """A use in a printed text."""
    parent = plan.unit.tree.parents.get(node)
    if isinstance(parent, ast.FormattedValue):
        return True
    return isinstance(parent, ast.Call) and plan.unit.resolve(parent.func) in ("builtins.print", "builtins.str")


# -- devices of arrays --------------------------------------------------------------------------------------------------


def _array_devices(plan: Plan) -> None:
    """`x.device`: gone where a device is wanted; a question about its type asks JAX; else None."""
    unit = plan.unit
    reads = [
        n for n in unit.tree.parents
        if isinstance(n, ast.Attribute) and n.attr == "device" and isinstance(n.ctx, ast.Load) and unit.kind(n.value).is_tensor
    ]  # fmt: skip
    for node in reads:
        if node in plan.taken or hidden(node):
            continue
        unit.kinds[node] = DROPPED
        stmt = unit.tree.statement(node)
        plan.taken.add(node)
        if isinstance(stmt, ast.Assign) and _assigned(plan, stmt, node):
            continue
        _read(plan, node)


def _assigned(plan: Plan, stmt: ast.Assign, node: ast.Attribute) -> bool:
    """`device = x.device`, also as a member of a tuple: gone when every use of the name goes, else None."""
    unit = plan.unit
    target = stmt.targets[0]
    if len(stmt.targets) != 1:
        return False
    if stmt.value is node and isinstance(target, ast.Name):
        name: ast.Name | None = target
        place = None
    elif isinstance(stmt.value, ast.Tuple) and isinstance(target, ast.Tuple) and node in stmt.value.elts:
        place = stmt.value.elts.index(node) - len(stmt.value.elts)
        if any(isinstance(e, ast.Starred) for e in stmt.value.elts[place:]) or len(target.elts) < -place:
            return False
        chosen = target.elts[place]
        name = chosen if isinstance(chosen, ast.Name) else None
    else:
        return False
    if name is None:
        return False
    scope = unit.scope(name).lookup(name.id)
    uses = list(_uses(plan, name))
    single = scope is not None and all(_from_array(plan, b.node) for b in scope.bindings[name.id])
    goes = single and all(is_device_position(unit, u) for u in uses)
    if single:
        for use in uses:
            unit.kinds[use] = DROPPED
            if not is_device_position(unit, use):
                _read(plan, use)
    if goes and place is None:
        plan.lines[stmt] = lambda _: []
    elif goes:
        assert isinstance(target, ast.Tuple) and isinstance(stmt.value, ast.Tuple)
        _without(plan, target, target.elts[place])
        rest = [e for e in stmt.value.elts if e is not node]
        if len(rest) == 1 and isinstance(rest[0], ast.Starred) and len(target.elts) > 2:
            unpacked = rest[0].value  # `*x.shape, x.device` leaves `x.shape`
            plan.whole[stmt.value] = Whole(lambda w: w.text(unpacked), 15, (unpacked,))
        else:
            _without(plan, stmt.value, node)
    else:
        plan.replace(node, "None")
    plan.found(
        "JM001" if goes else "JM101", node, "torch.Tensor.device",
        "gone: JAX places new arrays beside the others" if goes else "None, the default device: under jit and grad an array has none",
    )  # fmt: skip
    return True


def _from_array(plan: Plan, target: ast.AST) -> bool:
    """Whether a binding's value is the device of an array (the last of `*x.shape, x.device` too)."""
    up = plan.unit.tree.parents.get(target)
    value: ast.expr | None = None
    if isinstance(up, ast.Assign):
        value = up.value
    elif (
        isinstance(up, ast.Tuple)
        and isinstance(stmt := plan.unit.tree.parents.get(up), ast.Assign)
        and isinstance(stmt.value, ast.Tuple)
    ):
        place = up.elts.index(target) - len(up.elts)  # type: ignore[arg-type]
        value = stmt.value.elts[place] if len(stmt.value.elts) >= -place else None
    return isinstance(value, ast.Attribute) and value.attr == "device" and plan.unit.kind(value.value).is_tensor


def _without(plan: Plan, owner: ast.Tuple, element: ast.expr) -> None:
    """Take an element out of a tuple with its comma; one that is left alone keeps a comma (or loses the tuple)."""
    tree = plan.unit.tree
    index = owner.elts.index(element)
    if index:
        start, end = tree.end(owner.elts[index - 1]), tree.end(element)
    else:
        start, end = tree.start(element), tree.start(owner.elts[1])
    alone = len(owner.elts) == 2
    plan.point(owner, start, end, "," if alone and index else "")
    if alone and not index:
        plan.point(owner, tree.end(owner.elts[1]), tree.end(owner.elts[1]), ",")


def _read(plan: Plan, node: ast.Attribute | ast.Name) -> None:
    """A read of an array's device that is not an assignment's value."""
    unit = plan.unit
    parent = unit.tree.parents.get(node)
    if is_device_position(unit, node):
        plan.found("JM001", node, "torch.Tensor.device", "gone: JAX places new arrays beside the others")
    elif isinstance(parent, ast.Attribute) and parent.attr == "type":
        _type(plan, parent)
    elif isinstance(parent, ast.Compare) and len(parent.ops) == 1 and isinstance(parent.ops[0], (ast.Eq, ast.NotEq)):
        plan.replace(parent, "True" if isinstance(parent.ops[0], ast.Eq) else "False")
        plan.taken |= set(ast.walk(parent))
        plan.found("JM101", parent, "torch.Tensor.device", "arrays of one program are taken to lie on one device")
    elif isinstance(parent, ast.Attribute):
        plan.found("JM203", parent, "torch.Tensor.device", f"the device's {parent.attr} is asked for")
    else:
        plan.replace(node, "None")
        plan.found(
            "JM101", node, "torch.Tensor.device", "None, the default device: under jit and grad an array has none"
        )


def _type(plan: Plan, node: ast.Attribute) -> None:
    """`x.device.type == "cuda"` asks which backend JAX runs on."""
    parent = plan.unit.tree.parents.get(node)
    plan.taken.add(node)
    if (
        isinstance(parent, ast.Compare)
        and len(parent.comparators) == 1
        and isinstance(parent.comparators[0], ast.Constant)
    ):
        name = {"cuda": "gpu"}.get(str(parent.comparators[0].value), str(parent.comparators[0].value))
        sign = {"Eq": "==", "NotEq": "!="}.get(type(parent.ops[0]).__name__)
        if sign and parent.left is node:
            plan.replace(parent, f'jax.default_backend() {sign} "{name}"', 5)
            plan.found("JM101", parent, "torch.Tensor.device", "asks the default backend, not where this array lies")
            return
    plan.replace(node, "jax.default_backend()")
    plan.found("JM101", node, "torch.Tensor.device", "the default backend: it says gpu where torch says cuda")


# -- modules ------------------------------------------------------------------------------------------------------------


def device_text(plan: Plan, link: ast.Call) -> Callable[[Writer], str] | None:
    """The device of `module.to(…)`, `.cuda()` or `.cpu()` as JAX has it, "" where nothing moves; None when not understood."""
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
    found = None if isinstance(value, (ast.Name, ast.Attribute)) else device_of(plan, value)

    def build(writer: Writer) -> str:
        if is_dropped(plan.unit, value):
            return ""
        text = found[0](writer) if found is not None else writer.at_level(value, 1)
        return "" if text == DEFAULT else text

    return build


__all__ = ["device_text", "is_dropped", "plan_devices"]
