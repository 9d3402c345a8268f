"""What no pass has decided: a torch name that is still in the written text and that no finding speaks of."""

from __future__ import annotations

import ast
import re

from ..read.source import hidden
from ..read.unit import Unit
from ..report.findings import Finding, fate
from .imports import Written, binds, leads_to_torch, of_torch
from .plan import Plan


def report_rest(plan: Plan, written: Written) -> list[tuple[ast.AST, Finding]]:
    """Report every torch name and import that is left in `written` and in no finding yet. Returns the new findings."""
    before = len(plan.nodes)
    _shown(plan)
    if written.left:
        _names(plan, written)
        _imports(plan, written)
    return plan.nodes[before:]


def _names(plan: Plan, written: Written) -> None:
    tree = plan.unit.tree
    rest = {dotted for node in written.names if (dotted := _torch(written.unit, node))}
    covered = [(tree.start(n), tree.end(n)) for n, f in plan.nodes if fate(f.code) in ("left", "unmapped")]
    exact = {n for n, f in plan.nodes if fate(f.code) in ("exact", "stated")}
    for node in tree.both(ast.Name, ast.Attribute):
        dotted = _torch(plan.unit, node)
        if dotted in rest and not plan.project.holds(dotted) and not _settled(plan, node, exact, covered):
            if _by_name(plan, node):
                plan.found("JM304", node, dotted, f"which name of {dotted} this is shows only at run time")
            else:
                plan.found("JM302", node, dotted, f"{dotted} is not converted here")


def _by_name(plan: Plan, node: ast.AST) -> bool:
    """Whether the node is what `getattr(…, name)` or `vars(…)` looks into."""
    parent = plan.unit.tree.parents.get(node)
    looked = parent.args[:1] if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name) else []
    return node in looked and parent.func.id in ("getattr", "hasattr", "setattr", "vars", "dir")  # type: ignore[union-attr]


def _shown(plan: Plan) -> None:
    """Torch names and methods of tensors inside f-strings where nothing may be edited."""
    tree, unit = plan.unit.tree, plan.unit
    told: set[ast.AST] = set()
    for node in tree.all(ast.FormattedValue):
        if not hidden(node):
            continue
        home = next(up for up in tree.ancestors(node) if not hidden(up))
        names = [n for n in tree.walk(node) if isinstance(n, (ast.Name, ast.Attribute))]
        found = [dotted for n in names if (dotted := _torch(unit, n))]
        found += [
            f"torch.Tensor.{n.attr}" for n in names if isinstance(n, ast.Attribute) and unit.kind(n.value).is_tensor
        ]
        if found and home not in told:
            told.add(home)
            message = f"{found[0]} in an f-string: its text is shown, or its place is not known"
            plan.found("JM203", home, found[0], message, advice="Compute it before the f-string.")


def _torch(unit: Unit, node: ast.Name | ast.Attribute) -> str:
    """The torch name of a node that is not part of a longer one, else ""."""
    dotted = unit.resolve(node)
    if not dotted or not of_torch(dotted):
        return ""
    up = unit.tree.parents.get(node)
    if isinstance(up, ast.Attribute) and of_torch(unit.resolve(up) or ""):
        return ""
    return dotted


def _settled(plan: Plan, node: ast.expr, exact: set[ast.AST], covered: list[tuple[int, int]]) -> bool:
    tree = plan.unit.tree
    if node in plan.taken or node in plan.whole or node in exact or tree.parents.get(node) in exact:
        return True
    if hidden(node):
        return True
    start, end = tree.start(node), tree.end(node)
    return any(first <= start and end <= last for first, last in covered)


def _imports(plan: Plan, written: Written) -> None:
    """Imports that stay though no finding speaks of a name that they bind."""
    told = "\n".join(f.before for f in plan.findings if fate(f.code) in ("left", "unmapped"))
    words = set(re.findall(r"\w+", told)) | {n.id for n in plan.unit.opaque if isinstance(n, ast.Name)}
    for stmt in plan.unit.tree.both(ast.Import, ast.ImportFrom):
        for alias in stmt.names:
            name = binds(stmt, alias)
            if not leads_to_torch(stmt, alias) or name in words or (name, alias.name) not in written.kept:
                continue
            if isinstance(stmt, ast.ImportFrom) and plan.project.holds(f"{stmt.module}.{alias.name}"):
                continue
            if alias.name == "*":
                message = "a star import: the names it brings are not seen"
                plan.found("JM304", stmt, "torch", message, advice="Import the names that are used.")
            else:
                plan.found("JM304", stmt, alias.name, f"the import stays: how `{name}` is used is not understood")
