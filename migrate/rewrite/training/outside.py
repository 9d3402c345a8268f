"""Values from outside that a traced function reads: jit takes what they are when it traces, and never looks again."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from ...read.scopes import Binding, Scope
from ...read.unit import Unit
from ..plan import Plan
from .flow import GROWING, root_name

_MUTATORS = frozenset(
    """
    appendleft pop popleft popitem clear remove discard add setdefault sort reverse
    """.split()  # noqa: SIM905
)
_GIVEN = ("def", "class", "import", "from")


def unsettled(plan: Plan, unit: Unit, function: ast.AST, top: ast.stmt | None) -> tuple[ast.Name, str] | None:
    """A name that a function reads from outside of it and that may not always hold the same value: where, and why.
    What happens before the statement `top`, and in the same function, happens before the first call."""
    for node in ast.walk(function):
        if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load):
            continue
        scope = unit.scope(node).lookup(node.id)
        if scope is None or scope.kind == "class" or scope.node is function:
            continue
        if function in unit.tree.ancestors(scope.node):
            continue
        bindings = scope.bindings.get(node.id, [])
        if all(b.kind in _GIVEN for b in bindings):
            continue
        if not _once(unit, scope, [b for b in bindings if not before(unit, b.node, top)]):
            return node, "is assigned more than once"
        if changes(plan, unit, node.id, scope, top):
            return node, "is changed in place"
    return None


def changes(plan: Plan, unit: Unit, name: str, scope: Scope, top: ast.stmt | None) -> bool:
    """Whether what a variable holds is changed in place, other than before `top`. A parameter of the same name in
    other code counts as the same."""
    for node in _sites(plan, unit).get(name, ()):
        other = unit.scope(node).lookup(name)
        same = other is scope or (other is not None and any(b.kind == "param" for b in other.bindings.get(name, ())))
        if same and not before(unit, node, top):
            return True
    return False


def _sites(plan: Plan, unit: Unit) -> dict[str, list[ast.AST]]:
    """Where objects are changed in place, by the name that leads to them; found once for each file."""
    cached: dict[Unit, dict[str, list[ast.AST]]] = plan.__dict__.setdefault("_changed_sites", {})
    if unit not in cached:
        cached[unit] = {}
        for name, node in _changed(unit):
            cached[unit].setdefault(name, []).append(node)
    return cached[unit]


def _changed(unit: Unit) -> Iterator[tuple[str, ast.AST]]:
    for node in unit.tree.both(ast.Attribute, ast.Subscript):
        if not isinstance(node.ctx, ast.Load) and (name := root_name(node)):
            yield name, node
    for call in unit.tree.all(ast.Call):
        if isinstance(call.func, ast.Attribute) and (name := root_name(call.func)):
            attr = call.func.attr
            if attr in GROWING or attr in _MUTATORS or (attr.endswith("_") and not attr.endswith("__")):
                yield name, call


def before(unit: Unit, node: ast.AST, top: ast.stmt | None) -> bool:
    """Whether `node` stands above `top` in the same function, or both in the script."""
    tree = unit.tree
    if top is None or top not in tree.parents or not hasattr(node, "lineno"):
        return False
    return tree.function(node) is tree.function(top) and tree.start(node) < tree.start(top)


def _once(unit: Unit, scope: Scope, bindings: Sequence[Binding]) -> bool:
    """Whether a name gets its value in one statement of its scope that no loop repeats, as `if … else …`."""
    homes = {_home(unit, scope, b.node) for b in bindings}
    return len(homes) < 2 and None not in homes


def _home(unit: Unit, scope: Scope, node: ast.AST) -> ast.AST | None:
    """The statement in the body of the scope that a binding stands in, None when a loop or function stands between."""
    inner = node
    for up in unit.tree.ancestors(node):
        if up is scope.node:
            return None if isinstance(inner, (ast.For, ast.AsyncFor, ast.While)) else inner
        if isinstance(up, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return None
        inner = up
    return None
