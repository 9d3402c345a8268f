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

    A file that has such comments from an earlier run keeps those and gets no more: of a file that is half converted
    less is known than was known then.
    """
    if TODO in plan.unit.tree.text:
        return
    seen: set[tuple[ast.stmt, str]] = set()
    for node, finding in nodes:
        if fate(finding.code) not in ("left", "unmapped") or finding.code == "JM221":
            continue
        stmt = _statement(plan, node)
        text = " ".join(f"{TODO}{finding.code}): {finding.message}".split())
        text = text if len(text) <= LIMIT else text[: LIMIT - 1] + "…"
        if stmt is None or (stmt, text) in seen:
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
