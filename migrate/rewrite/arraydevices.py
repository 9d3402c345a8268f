"""`x.device`: the device of an array, which an array has only outside jit and grad."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from ..read.source import hidden
from .placement import DROPPED, is_device_position
from .plan import Plan, Whole

GONE = "gone: JAX places new arrays beside the others"
NONE = "None, the default device: under jit and grad an array has none"


def uses_of(plan: Plan, target: ast.Name) -> Iterator[ast.Name]:
    """Reads of the variable that `target` binds."""
    unit = plan.unit
    scope = unit.scope(target).lookup(target.id)
    for node in unit.tree.all(ast.Name):
        if node.id == target.id and isinstance(node.ctx, ast.Load):
            if unit.scope(node).lookup(node.id) is scope:
                yield node


def plan_array_devices(plan: Plan) -> None:
    """`x.device`: gone where a device is wanted; a question about its type asks JAX; else None."""
    unit = plan.unit
    reads = [
        n for n in unit.tree.all(ast.Attribute)
        if n.attr == "device"
        and isinstance(n.ctx, ast.Load)
        and unit.kind(n.value).is_tensor
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
    uses = list(uses_of(plan, name))
    single = scope is not None and all(_from_array(plan, b.node) for b in scope.bindings[name.id])
    goes = single and all(is_device_position(unit, u) for u in uses)
    if single:
        for use in uses:
            unit.kinds[use] = DROPPED
            if not is_device_position(unit, use):
                _read(plan, use)
    if goes:
        plan.removed.setdefault(name.id, []).append(_restore(plan, stmt, node))
    if goes and place is None:
        plan.lines[stmt] = lambda _: []
    elif goes:
        assert place is not None and isinstance(target, ast.Tuple) and isinstance(stmt.value, ast.Tuple)
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
        GONE if goes else NONE,
    )  # fmt: skip
    return True


def _restore(plan: Plan, stmt: ast.Assign, node: ast.Attribute) -> Callable[[], None]:
    """How to bring the assignment back as `device = None`, for a use in a call that a later pass leaves as it is."""

    def restore() -> None:
        plan.lines.pop(stmt, None)
        plan.whole.pop(stmt.value, None)
        for owner in (stmt.value, stmt.targets[0]):
            plan.points.pop(owner, None)
        plan.replace(node, "None")
        plan.restate(node, "JM101", NONE)

    return restore


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
        plan.found("JM001", node, "torch.Tensor.device", GONE)
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
        plan.found("JM101", node, "torch.Tensor.device", NONE)


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
