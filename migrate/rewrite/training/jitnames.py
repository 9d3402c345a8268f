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
from .outside import before, changes
from .roles import has_parameters, is_model, is_optimizer

LOOPS = (ast.For, ast.AsyncFor, ast.While)
HELD = ("int", "bool", "str", "None", "list", "dict", "device", "dtype", "shape", "other", "tuple", "Class")
_NUMBERS = ("float",)
_SMALL = 1_000_000  # sums and shares with such a number stay in the range of int32


@dataclass(frozen=True)
class Segment:
    """The statements `block[first : last + 1]` that become a function. `late` are those of them that follow its call;
    `top` is the statement before which the function is written, `nested` says that it is one of the same function.
    `carried` are variables of gradients that the function gives when it sets them, `dropped` those that nothing reads.
    `models` are what the updates write into.
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
    carried: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    bound: tuple[str, ...] = ()
    cached: ast.stmt | None = None

    @property
    def stmts(self) -> list[ast.stmt]:
        return [s for s in self.block[self.first : self.last + 1] if s not in self.late]


def class_of(plan: Plan, segment: Segment, name: str, node: ast.Name | None = None) -> str:
    """What a name is to the function: "free" (it may simply be read), "array" (an argument), "parts" (numbers that it
    holds are arguments), "host" (none of these)."""
    unit = plan.unit
    scope = unit.scope(segment.block[segment.first]).lookup(name)
    if scope is None:
        return "free"
    if name in segment.models:
        return "array"
    node = node or first_read(segment, name)
    kind = unit.kind(node) if node is not None else Kind("unknown")
    bindings = scope.bindings.get(name, [])
    if all(b.kind in ("def", "class", "import", "from") for b in bindings):
        return "free"
    if node is not None and is_optimizer(unit, node):
        return "array"
    varies = _varies(unit, segment, bindings) or changes(plan, unit, name, scope, segment.top)
    module = kind.tag == "Module" and kind.name not in ("plain", "super")
    if module and segment.nested and not varies and node is not None and not has_parameters(unit, node):
        return "free"
    if module or (node is not None and is_model(unit, node)) or kind.is_tensor:
        return "array"
    if kind.tag in ("tuple", "list") and kind.items and all(k.is_tensor for k in kind.items):
        return "host" if changes(plan, unit, name, scope, None) else "array"
    called = node is not None and _is_called(unit.tree.parents, node)
    if segment.nested or scope.kind == "module":
        if not varies:
            return "free"
    if kind.tag == "int" and _only_counts(unit, segment, name):
        return "array"
    if called and _only_counts(unit, segment, name, parts=True):
        return "parts"
    if segment.nested or scope.kind == "module":
        return "host" if kind.tag in HELD or called else "array"
    if kind.tag in HELD or kind.tag in ("Function", "torch") or called:
        return "host"
    looped = any(isinstance(unit.tree.parents.get(b.node), (*LOOPS, ast.Tuple, ast.Assign)) for b in bindings)
    given = all(b.kind == "param" for b in bindings) and _fed(unit, segment, name)
    return "array" if kind.tag in _NUMBERS or looped or given else "host"


def _only_counts(unit: Unit, segment: Segment, name: str, *, parts: bool = False) -> bool:
    """Whether a number, or with `parts` each attribute that is read of a name, is only used as `counts` has it."""
    found = False
    for stmt in segment.stmts:
        for node in ast.walk(stmt):
            if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
                found = True
                up = unit.tree.parents[node]
                if parts and not (isinstance(up, ast.Attribute) and isinstance(up.ctx, ast.Load)):
                    return False
                if not counts(unit, up if parts else node):  # type: ignore[arg-type]
                    return False
    return found


def counts(unit: Unit, node: ast.expr) -> bool:
    """Whether a number is part of arithmetic that ends in a tensor, where a traced number gives the same: divided,
    added, multiplied by a float or a tensor, the exponent of a float."""
    while True:
        up = unit.tree.parents[node]
        if isinstance(up, ast.UnaryOp) and isinstance(up.op, (ast.USub, ast.UAdd)):
            node = up
            continue
        if not isinstance(up, ast.BinOp):
            return False
        other = up.right if up.left is node else up.left
        if unit.kind(up).is_tensor:
            return isinstance(up.op, (ast.Add, ast.Sub, ast.Mult, ast.Div))
        small = isinstance(other, ast.Constant) and isinstance(other.value, int) and 0 <= other.value <= _SMALL
        floating = isinstance(other, ast.Constant) and isinstance(other.value, float)
        power = isinstance(up.op, ast.Pow) and up.right is node and floating
        plain = isinstance(up.op, (ast.Add, ast.Sub)) and (small or floating)
        times = isinstance(up.op, ast.Mult) and floating
        divided = isinstance(up.op, ast.Div) and (small or floating)
        if not (power or plain or times or divided):
            return False
        node = up


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
    """Whether a name may hold another value in another turn of the loop. What is bound before the function that is
    written stays while that runs."""
    loop = segment.top if isinstance(segment.top, LOOPS) else None
    if all(before(unit, b.node, segment.top) for b in bindings):
        return False
    return len(bindings) != 1 or (loop is not None and any(loop in unit.tree.ancestors(b.node) for b in bindings))


def _around(segment: Segment) -> list[ast.stmt]:
    """The code that may change what a name holds: the function, or the script."""
    function = segment.function
    return function.body if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)) else []


def _is_called(parents: Mapping[ast.AST, ast.AST], node: ast.Name) -> bool:
    up = parents.get(node)
    return (isinstance(up, ast.Call) and up.func is node) or isinstance(up, ast.Attribute)


def first_read(segment: Segment, name: str) -> ast.Name | None:
    return next((n for s in segment.stmts for n in ast.walk(s) if isinstance(n, ast.Name) and n.id == name), None)


def live_after(plan: Plan, segment: Segment) -> set[str]:
    """Names that are read after the step, also by what follows it at once."""
    live = set(Liveness(_around(segment)).after.get(segment.block[segment.last], frozenset()))
    return live | {n for s in segment.late for n in uses(s).reads}
