"""Statements that stay as they are: no pass sees what is in them, and each of their constructs is reported as kept."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..read.unit import Unit
from ..report.findings import Finding, Position, fate
from .plan import Plan


@dataclass(frozen=True)
class Stay:
    """One statement, text[start:end]: why it stays, whether somebody asked for this one, and the findings it would have
    had otherwise."""

    start: int
    end: int
    reason: str
    asked: bool
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class Stays:
    """Those of one file. `excused` are constructs that are left anyway: place and code of the finding, and why."""

    regions: tuple[Stay, ...] = ()
    excused: Mapping[tuple[Position, Position, str], str] = field(default_factory=dict)


def hide(unit: Unit, stays: Stays) -> None:
    """Make the statements opaque: their names lead nowhere and their values are unknown. Before `infer`."""
    tree = unit.tree
    for stay in stays.regions:
        top = next(
            n for n in tree.nodes if isinstance(n, ast.stmt) and (tree.start(n), tree.end(n)) == (stay.start, stay.end)
        )
        unit.hide(tree.walk(top))


def keep_statements(plan: Plan, stays: Stays) -> None:
    """After all passes: drop what was decided about kept statements, and report their constructs."""
    unit, tree = plan.unit, plan.unit.tree
    if unit.opaque:
        decisions: tuple[dict[Any, Any], ...] = (plan.whole, plan.points, plan.lines, plan.before, plan.after)
        for decided in decisions:
            for node in [n for n in decided if n in unit.opaque]:
                del decided[node]
        gone = {id(f) for n, f in plan.nodes if n in unit.opaque}
        plan.nodes[:] = [(n, f) for n, f in plan.nodes if id(f) not in gone]
        plan.findings[:] = [f for f in plan.findings if id(f) not in gone]
    for stay in stays.regions:
        top = next(
            n for n in tree.nodes if isinstance(n, ast.stmt) and (tree.start(n), tree.end(n)) == (stay.start, stay.end)
        )
        for finding in stay.findings:
            message = f"{finding.name or 'this'} stays as it is: {stay.reason}"
            _add(plan, top, replace(finding, code="JM221", message=message, advice="", after=None))
        if stay.asked and any(fate(f.code) in ("exact", "stated") for f in stay.findings):
            name = next((f.name for f in stay.findings if f.name), "")
            plan.found("JM402", top, name, "this statement stays torch: what it takes and gives must be torch's")
    for at, (node, finding) in enumerate(plan.nodes):
        why = stays.excused.get((finding.start, finding.end, finding.code))
        if why is not None:
            new = replace(finding, code="JM221", message=f"{finding.message} (kept: {why})")
            plan.nodes[at] = (node, new)
            plan.findings[plan.findings.index(finding)] = new


def _add(plan: Plan, node: ast.AST, finding: Finding) -> None:
    plan.findings.append(finding)
    plan.nodes.append((node, finding))
