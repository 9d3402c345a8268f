"""Functions that only code outside the project calls: it knows their parameters, and can give them no `rngs`."""

from __future__ import annotations

import ast
from collections.abc import Container

from .facts import FunctionFacts
from .project import Project
from .unit import STANDARD_LIBRARY, Unit

# Their wrappers hand every argument on.
_TRANSPARENT = frozenset({"beartype", "typeguard", "jaxtyping", "flax", "jax", "torch", "numpy", "einops"})


def find_registered(project: Project, called: Container[FunctionFacts]) -> set[FunctionFacts]:
    """Functions that a decorator or a call of another package takes (`@option(Configs.layer, 'default')`), and that
    nothing in the project calls (`called`) or uses otherwise."""
    found: set[FunctionFacts] = set()
    used: set[FunctionFacts] = set()
    for unit in project.units:
        for facts in unit.functions.values():
            if facts.owner is None and any(_foreign(project, unit, d) for d in facts.node.decorator_list):
                found.add(facts)
        for name in unit.tree.all(ast.Name):
            held = unit.kind(name).facts
            if isinstance(name.ctx, ast.Load) and isinstance(held, FunctionFacts) and held.owner is None:
                (found if _handed_out(project, unit, name) else used).add(held)
    return {f for f in found - used if f not in called}


def _handed_out(project: Project, unit: Unit, name: ast.Name) -> bool:
    parent = unit.tree.parents.get(name)
    return isinstance(parent, ast.Call) and name in parent.args and _foreign(project, unit, parent.func)


def _foreign(project: Project, unit: Unit, node: ast.expr) -> bool:
    """Whether a function or decorator comes from a package that nothing is known of."""
    dotted = unit.resolve(node.func if isinstance(node, ast.Call) else node) or ""
    top = dotted.partition(".")[0]
    known = top in STANDARD_LIBRARY or top in _TRANSPARENT or top == "builtins"
    return bool(top) and not known and not project.owns(top)
