"""The statements of a step that becomes a function, and what the names in it are to that function."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...read.kinds import Kind
from ...read.liveness import Liveness
from ...read.scopes import Binding
from ...read.unit import Unit
from ..plan import Plan
from .flow import uses
from .roles import has_parameters, is_model, is_optimizer

LOOPS = (ast.For, ast.AsyncFor, ast.While)
HELD = ("int", "bool", "str", "None", "list", "dict", "device", "dtype", "shape", "other", "tuple", "Class")
_NUMBERS = ("float",)


@dataclass(frozen=True)
class Segment:
    """The statements `block[first : last + 1]` that become a function. `late` are those of them that follow its call;
    `top` is the statement before which the function is written, `nested` says that it is one of the same function.
    `numbers` are the names of `x = ….item()`: the function gives the array, the number is read after its call.
    `cached` is the loop before which the function is bound to its modules and optimizers, of which `bound` are the
    texts."""

    function: ast.AST
    block: Sequence[ast.stmt]
    first: int
    last: int
    late: tuple[ast.stmt, ...]
    top: ast.stmt
    nested: bool
    numbers: tuple[str, ...] = ()
    bound: tuple[str, ...] = ()
    cached: ast.stmt | None = None

    @property
    def stmts(self) -> list[ast.stmt]:
        return [s for s in self.block[self.first : self.last + 1] if s not in self.late]


def class_of(plan: Plan, segment: Segment, name: str, node: ast.Name | None = None) -> str:
    """What a name is to the function: "free" (it may simply be read), "array" (an argument), "host" (neither)."""
    unit = plan.unit
    scope = unit.scope(segment.block[segment.first]).lookup(name)
    if scope is None:
        return "free"
    node = node or first_read(segment, name)
    kind = unit.kind(node) if node is not None else Kind("unknown")
    bindings = scope.bindings.get(name, [])
    if all(b.kind in ("def", "class", "import", "from") for b in bindings):
        return "free"
    if node is not None and is_optimizer(unit, node):
        return "array"
    varies = _varies(unit, segment, bindings)
    if kind.tag == "Module" and segment.nested and not varies and node is not None and not has_parameters(unit, node):
        return "free"
    if kind.tag == "Module" or (node is not None and is_model(unit, node)) or kind.is_tensor:
        return "array"
    called = node is not None and _is_called(unit.tree.parents, node)
    if segment.nested or scope.kind == "module":
        if not varies:
            return "free"
        return "host" if kind.tag in HELD or called else "array"
    if kind.tag in HELD or kind.tag in ("Function", "torch") or called:
        return "host"
    looped = any(isinstance(unit.tree.parents.get(b.node), (*LOOPS, ast.Tuple, ast.Assign)) for b in bindings)
    given = all(b.kind == "param" for b in bindings) and _fed(unit, segment, name)
    return "array" if kind.tag in _NUMBERS or looped or given else "host"


def _fed(unit: Unit, segment: Segment, name: str) -> bool:
    """Whether a parameter of unknown kind only goes into modules and torch's functions, or is asked for its shape."""
    for stmt in segment.stmts:
        for node in ast.walk(stmt):
            if not isinstance(node, ast.Name) or node.id != name or not isinstance(node.ctx, ast.Load):
                continue
            up = unit.tree.parents[node]
            if not isinstance(up, ast.Call) or up.func is node:
                return False
            torchs = (unit.resolve(up.func) or "").startswith("torch.nn.functional.")
            if not torchs and unit.kind(up.func).tag != "Module" and not is_model(unit, up.func):
                return False
    return True


def _varies(unit: Unit, segment: Segment, bindings: Sequence[Binding]) -> bool:
    """Whether a name may hold another value in another turn of the loop."""
    loop = segment.top if isinstance(segment.top, LOOPS) else None
    return len(bindings) != 1 or (loop is not None and any(loop in unit.tree.ancestors(b.node) for b in bindings))


def _is_called(parents: Mapping[ast.AST, ast.AST], node: ast.Name) -> bool:
    up = parents.get(node)
    return (isinstance(up, ast.Call) and up.func is node) or isinstance(up, ast.Attribute)


def first_read(segment: Segment, name: str) -> ast.Name | None:
    return next((n for s in segment.stmts for n in ast.walk(s) if isinstance(n, ast.Name) and n.id == name), None)


def live_after(plan: Plan, segment: Segment) -> set[str]:
    """Names that are read after the step, also by what follows it at once."""
    function = segment.function
    body = function.body if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)) else []
    live = set(Liveness(body).after.get(segment.block[segment.last], frozenset()))
    return live | {n for s in segment.late for n in uses(s).reads}
