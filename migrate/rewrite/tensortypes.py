"""Names for torch's old tensor types: `Tensor = torch.cuda.FloatTensor if cuda else torch.FloatTensor`.

A type of tensors says two things, a type of numbers and a device. JAX puts arrays on the accelerator by itself, so what
is left is the type of numbers. Such a name is read as torch's type where it is called (`Tensor(3, 4)`) and as a dtype
in a cast (`x.type(Tensor)`); it goes when nothing else needs it. In an annotation such a type is any array.
"""

from __future__ import annotations

import ast

from ..read.kinds import TYPED_TENSORS
from ..read.source import hidden
from ..read.unit import TENSOR_TYPES
from .imports import in_annotation
from .plan import Plan
from .writer import Writer


def plan_tensor_types(plan: Plan) -> None:
    """Drop the assignments whose names are only called and used in casts; the others are left to the rows. Annotate
    with `jax.Array`."""
    for node in plan.unit.tree.both(ast.Name, ast.Attribute):
        dotted = plan.unit.resolve(node)
        if dotted in TYPED_TENSORS and node not in plan.taken and _says_type(plan, node):
            plan.replace(node, "jax.Array")
            plan.found("JM001", node, dotted, f"{dotted} -> jax.Array")
    for stmt in plan.unit.tree.all(ast.Assign):
        if hidden(stmt) or stmt in plan.taken or stmt in plan.lines:
            continue
        dotted = plan.unit.tensor_type(stmt.value)
        target = stmt.targets[0]
        if dotted is None or len(stmt.targets) != 1 or not isinstance(target, ast.Name):
            continue
        uses = _uses(plan, target)
        if uses is None or _is_imported(plan, target) or not plan.alone(stmt):
            continue
        _drop(plan, stmt, target, uses, dotted)


def _says_type(plan: Plan, node: ast.expr) -> bool:
    """Whether a type is named only to say what a value is: nothing is made or asked with it."""
    up = plan.unit.tree.parents.get(node)
    cast = isinstance(up, ast.Call) and up.args[:1] == [node] and plan.unit.resolve(up.func) == "typing.cast"
    return cast or in_annotation(plan.unit.tree, node)


def _uses(plan: Plan, target: ast.Name) -> list[ast.Call] | None:
    """The calls of the name and the casts to it; None when it has another use, or may be another type."""
    unit = plan.unit
    home = unit.scope(target).lookup(target.id)
    found: list[ast.Call] = []
    for node in unit.tree.all(ast.Name):
        if node.id != target.id or isinstance(node.ctx, ast.Store) or unit.scope(node).lookup(node.id) is not home:
            continue
        if _says_type(plan, node):
            continue
        call = unit.tree.parents.get(node)
        if not isinstance(call, ast.Call) or unit.resolve(node) is None:
            return None
        called = call.func is node
        cast = isinstance(call.func, ast.Attribute) and call.func.attr == "type" and call.args == [node]
        if not called and not cast:
            return None
        found.append(call)
    return found


def _is_imported(plan: Plan, target: ast.Name) -> bool:
    """Whether another file of the project may import the name, which would then find a type of numbers there."""
    if plan.unit.scope(target) is not plan.unit.scopes.module:
        return False
    others = (unit for unit in plan.project.units if unit is not plan.unit and target.id in unit.source.text)
    return any(plan.unit in plan.project.imported_by(unit) for unit in others)


def _drop(plan: Plan, stmt: ast.Assign, target: ast.Name, uses: list[ast.Call], dotted: str) -> None:
    row = plan.unit.book.find(TENSOR_TYPES[dotted])
    assert row is not None
    dtype = str(row.get("to"))

    def lines(writer: Writer) -> list[str]:
        if all(call in plan.whole for call in uses):
            return []
        return [f"{target.id} = {dtype}"]

    plan.lines[stmt] = lines
    plan.taken |= set(ast.walk(stmt))
    plan.found("JM001", stmt, dotted, f"gone: its uses say {dtype}; JAX puts arrays on the accelerator by itself")
