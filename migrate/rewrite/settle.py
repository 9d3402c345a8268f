"""How a row's application ends: a replacement or a refusal, and the finding that says so."""

from __future__ import annotations

import ast

from ..read.kinds import Kind
from ..rulebook.rows import Row
from .match import Match, Refusal
from .plan import Plan, Whole


def of_module(plan: Plan, dotted: str) -> Row | None:
    """The unmapped row of the nearest module above a name (`torch.distributed` for `torch.distributed.all_reduce`)."""
    while dotted.count(".") > 1:
        dotted = dotted.rpartition(".")[0]
        row = plan.unit.book.find(dotted)
        if row is not None:
            return row if row.get("unmapped") else None
    return None


def settle(
    plan: Plan,
    row: Row,
    node: ast.expr,
    dotted: str,
    result: Whole | Refusal,
    evidence: str,
    found: Match | None = None,
) -> bool:
    if isinstance(result, Refusal):
        plan.found(result.code, node, dotted, result.message, rule=row.name, advice=result.advice, evidence=evidence)
        return False
    lost = comments_lost(plan, node, result)
    if lost:
        plan.found("JM204", node, dotted, f"rewriting would lose the comment {lost!r}", rule=row.name)
        return False
    plan.whole[node] = result
    notes = [n for n in (found.notes if found is not None else row.notes) if n.code.startswith("JM1")]
    message = f"{dotted} -> {_target(row, found)}"
    if notes:
        plan.found(notes[0].code, node, dotted, f"{message}: {notes[0].text}", rule=row.name, evidence=evidence)
    elif row.get("pass") == "randomness" or (found is not None and found.wants_key):
        plan.found(
            "JM121", node, dotted, f"{message}: other numbers than torch's generator", rule=row.name, evidence=evidence
        )
    else:
        plan.found("JM001", node, dotted, message, rule=row.name, evidence=evidence)
    return True


def _target(row: Row, found: Match | None) -> str:
    if found is not None:
        return "".join(p if isinstance(p, str) else "…" for p in found.form.pieces)
    return str(row.get("layer") or row.get("handler") or "")


def comments_lost(plan: Plan, node: ast.AST, result: Whole) -> str:
    """The first comment inside `node` that the replacement would not carry over."""
    tree = plan.unit.tree
    if node in plan.points:
        return ""
    for start, end in tree.comments_in(tree.start(node), tree.end(node)):
        if not any(tree.start(k) <= start and end <= tree.end(k) for k in result.kept):
            return tree.text[start:end]
    return ""


def why(kind: Kind) -> str:
    return f"{kind.tag}: {kind.why}" if kind.why else kind.tag
