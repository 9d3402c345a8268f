"""Every write to a tensor that a file holds, by what it looks like: before anything is decided."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from ...read.facts import ClassFacts
from ...read.unit import Unit
from ...read.views import Modules, may_be_inplace
from ...rulebook.rows import Row


@dataclass(frozen=True)
class Written:
    """One in-place call: its row, the name of what it calls, and the tensor that it writes to."""

    call: ast.Call
    row: Row
    dotted: str
    receiver: ast.expr

    @property
    def method(self) -> bool:
        return self.dotted.startswith("torch.Tensor.")


def inplace_written(unit: Unit, node: ast.expr) -> Written | None:
    """The in-place call that `node` is, None when it is none. `torch.nn.init` belongs to the modules pass."""
    if not isinstance(node, ast.Call):
        return None
    dotted = unit.resolve(node.func)
    if dotted:
        row = (
            unit.book.find(dotted) if dotted.startswith("torch.") and not dotted.startswith("torch.nn.init.") else None
        )
        if row is not None and row.get("effect") == "inplace" and node.args:
            return Written(node, row, dotted, node.args[0])
        return None
    if isinstance(node.func, ast.Attribute) and unit.kind(node.func.value).is_tensor:
        dotted = f"torch.Tensor.{node.func.attr}"
        row = unit.book.find(dotted)
        if row is not None and row.get("effect") == "inplace":
            return Written(node, row, dotted, node.func.value)
    return None


def first_receiver(unit: Unit, node: ast.expr) -> ast.expr:
    """What a chain of in-place calls writes to: x of `x.mul_(a).add_(b)`."""
    while (written := inplace_written(unit, node)) is not None:
        node = written.receiver
    return node


def writes(unit: Unit) -> Iterator[tuple[ast.stmt, ast.expr]]:
    """The statements of a file that write to a tensor, each with the tensor as it is written there."""
    for node in unit.tree.nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from ((node, t) for t in _flat(target) if _is_write(unit, t))
        elif isinstance(node, ast.AugAssign):
            target = node.target
            if isinstance(target, ast.Subscript):
                if unit.kind(target.value).is_tensor:
                    yield node, target
            elif unit.kind(target).is_tensor:
                yield node, target
        elif isinstance(node, ast.Call):
            yield from ((unit.tree.statement(node), t) for t in _call_writes(unit, node))


def _call_writes(unit: Unit, node: ast.Call) -> Iterator[ast.expr]:
    if inplace_written(unit, node) is not None:
        yield first_receiver(unit, node)
        return
    dotted = unit.resolve(node.func) or ""
    if dotted.startswith("torch."):
        yield from (k.value for k in node.keywords if k.arg == "out")
        if node.args and (dotted.startswith("torch.nn.init.") or may_be_inplace(node)):
            if unit.kind(node).tag != "Module":
                yield node.args[0]
    elif unit.kind(node.func).tag == "Module" and node.args and not isinstance(unit.kind(node.func).facts, ClassFacts):
        if Modules(unit).overwrites(node.func):
            yield node.args[0]


def _flat(target: ast.expr) -> list[ast.expr]:
    if isinstance(target, (ast.Tuple, ast.List)):
        return [t for e in target.elts for t in _flat(e)]
    return [target]


def _is_write(unit: Unit, target: ast.expr) -> bool:
    if isinstance(target, ast.Subscript):
        return unit.kind(target.value).is_tensor
    return isinstance(target, ast.Attribute) and target.attr == "data" and unit.kind(target.value).is_tensor
