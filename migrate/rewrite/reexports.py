"""Names of torch that a package hands on: `from torch.nn import Linear` in `__init__.py`, or in `__all__`."""

from __future__ import annotations

import ast
from pathlib import PurePath

from ..read.reexports import exported
from .imports import binds, leads_to_torch
from .plan import Plan


def plan_reexports(plan: Plan) -> None:
    """Hand on the layer library's class or function of that name; what has none is no longer handed on, which is
    said."""
    tree = plan.unit.tree
    package = PurePath(plan.unit.source.path).name == "__init__.py"
    public = exported(tree.root)
    read = {n.id for n in tree.all(ast.Name) if isinstance(n.ctx, ast.Load)}
    for stmt in tree.both(ast.Import, ast.ImportFrom):
        if not isinstance(tree.parents.get(stmt), ast.Module):
            continue
        for alias in stmt.names:
            name = binds(stmt, alias)
            if alias.name == "*" or not leads_to_torch(stmt, alias) or name in read:
                continue
            if name in (public or ()):
                _hand_on(plan, stmt, alias, name)
            elif package and public is None and not name.startswith("_"):
                if not _hand_on(plan, stmt, alias, name):
                    dotted = alias.name if isinstance(stmt, ast.Import) else f"{stmt.module}.{alias.name}"
                    message = f"`{name}` is not handed on any more: importing it from this package fails"
                    plan.found("JM101", alias, dotted, message)


def _hand_on(plan: Plan, stmt: ast.Import | ast.ImportFrom, alias: ast.alias, name: str) -> bool:
    if isinstance(stmt, ast.Import):
        return False
    row = plan.unit.book.find(f"{stmt.module}.{alias.name}")
    layer = str(row.get("layer") or "") if row is not None else ""
    if layer not in plan.catalogue:
        return False
    plan.layers.add(layer)
    plan.reexports[name] = layer
    plan.found("JM001", alias, f"{stmt.module}.{alias.name}", f"{stmt.module}.{alias.name} -> {layer}")
    return True
