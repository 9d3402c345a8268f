"""A comment where something was left: `# TODO(jaxmigrate JM301): …`."""

from __future__ import annotations

import ast

from ..report.findings import fate
from .plan import Plan

LIMIT = 110


def mark_left(plan: Plan) -> None:
    """Put one comment a finding before the statement that holds it; a comment that is there already is not put again."""
    tree = plan.unit.tree
    seen: set[tuple[ast.stmt, str]] = set()
    for node, finding in plan.nodes:
        if fate(finding.code) not in ("left", "unmapped"):
            continue
        stmt = _statement(plan, node)
        text = f"# TODO(jaxmigrate {finding.code}): {finding.message}"
        text = " ".join(text.split())
        text = text if len(text) <= LIMIT else text[: LIMIT - 1] + "…"
        if stmt is None or (stmt, text) in seen or text in _above(plan, stmt):
            continue
        seen.add((stmt, text))
        plan.before.setdefault(stmt, []).append(text)
    _ = tree


def _statement(plan: Plan, node: ast.AST) -> ast.stmt | None:
    """The statement to comment on: one that starts its line and is written at its place."""
    stmt = plan.unit.tree.statement(node)
    while not plan.alone(stmt) or (plan.lines.get(stmt) is not None and stmt in plan.hoisted):
        up = plan.unit.tree.parents.get(stmt)
        if up is None or isinstance(up, ast.Module):
            return None
        stmt = plan.unit.tree.statement(up)
    return stmt


def _above(plan: Plan, stmt: ast.stmt) -> str:
    """The comment lines just above a statement."""
    tree = plan.unit.tree
    at = stmt.decorator_list[0] if getattr(stmt, "decorator_list", None) else stmt  # type: ignore[attr-defined]
    line = tree.position(tree.start(at))[0] - 1
    lines = []
    while line > 0:
        row = tree.text[tree.line_starts[line - 1] : tree.line_starts[line]].strip()
        if not row.startswith("#"):
            break
        lines.append(row)
        line -= 1
    return "\n".join(lines)
