"""A comment where something was left: `# TODO(jaxmigrate JM301): …`."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ..gate import TODO
from ..report.findings import Finding, fate
from .plan import Plan

LIMIT = 110


def mark_left(plan: Plan, nodes: Sequence[tuple[ast.AST, Finding]]) -> None:
    """Put one comment for each finding in `nodes` before the statement that holds it.

    A statement that has such comments from an earlier run keeps those and gets no more: what is known of it now that
    half of it is converted is less than what was known then.
    """
    seen: set[tuple[ast.stmt, str]] = set()
    for node, finding in nodes:
        if fate(finding.code) not in ("left", "unmapped"):
            continue
        stmt = _statement(plan, node)
        text = " ".join(f"{TODO}{finding.code}): {finding.message}".split())
        text = text if len(text) <= LIMIT else text[: LIMIT - 1] + "…"
        if stmt is None or (stmt, text) in seen or _marked(plan, stmt):
            continue
        seen.add((stmt, text))
        plan.before.setdefault(stmt, []).append(text)


def _statement(plan: Plan, node: ast.AST) -> ast.stmt | None:
    """The statement to comment on: one that starts its line and is written at its place."""
    tree = plan.unit.tree
    if isinstance(node, ast.Module):
        return None
    stmt = tree.statement(node)
    while not plan.alone(stmt) or (plan.lines.get(stmt) is not None and stmt in plan.hoisted):
        up = tree.parents.get(stmt)
        if up is None or isinstance(up, ast.Module):
            return None
        stmt = tree.statement(up)
    return stmt


def _marked(plan: Plan, stmt: ast.stmt) -> bool:
    """Whether a comment of an earlier run stands among the comment lines just above a statement."""
    tree = plan.unit.tree
    at = stmt.decorator_list[0] if getattr(stmt, "decorator_list", None) else stmt  # type: ignore[attr-defined]
    line = tree.position(tree.start(at))[0] - 1
    while line > 0:
        row = tree.text[tree.line_starts[line - 1] : tree.line_starts[line]].strip()
        if not row.startswith("#"):
            return False
        if row.startswith(TODO):
            return True
        line -= 1
    return False
