"""What an f-string allows inside its braces: before Python 3.12 no quote of its own, no backslash, no comment."""

from __future__ import annotations

import ast

from ..read.source import hidden
from ..report.findings import fate
from .plan import Plan, Whole
from .writer import Writer

OTHER = {'"': "'", "'": '"'}


def plan_fstrings(plan: Plan) -> None:
    """Write new text inside f-strings with other quotes where it must be; what cannot stand there is left (JM203)."""
    tree = plan.unit.tree
    for node in tree.all(ast.JoinedStr):
        if hidden(node):
            continue
        for value in node.values:
            if isinstance(value, ast.FormattedValue) and not hidden(value) and _decided(plan, value):
                _field(plan, node, value)


def _decided(plan: Plan, value: ast.FormattedValue) -> bool:
    return any(n in plan.whole or n in plan.points for n in plan.unit.tree.walk(value))


def _field(plan: Plan, node: ast.JoinedStr, value: ast.FormattedValue) -> None:
    tree, expression = plan.unit.tree, value.value
    writer = Writer(plan)
    old, new = tree.segment(expression), writer.text(expression)
    if new == old:
        return
    barred = [b for b in (*_quotes(tree.segment(node)), "\\", "#", "\n") if b in new and b not in old]
    if not barred:
        return
    quotes = set(barred) & set(OTHER)
    fixed = new
    if barred == list(quotes) and len(quotes) == 1 and OTHER[barred[0]] not in new:
        fixed = new.replace(barred[0], OTHER[barred[0]])
        if OTHER[barred[0]] not in _quotes(tree.segment(node)):
            level = writer.level(expression)
            plan.whole[expression] = Whole(lambda _: fixed, level, (expression,))
            return
    _leave(plan, value)


def _quotes(text: str) -> tuple[str, ...]:
    """What must not stand in a replacement field: the f-string's own quotes, both kinds when it has several parts."""
    body = text.lstrip("rRbBfFuU")
    quote = body[:3] if body[:3] in ('"""', "'''") else body[:1]
    inner = body[len(quote) : -len(quote)]
    if not body.endswith(quote) or quote in inner:
        return ('"', "'")
    return (quote,)


def _leave(plan: Plan, value: ast.FormattedValue) -> None:
    inside = set(plan.unit.tree.walk(value))
    for node in inside:
        plan.whole.pop(node, None)
        plan.points.pop(node, None)
    for node, finding in list(plan.nodes):
        if node in inside and fate(finding.code) in ("exact", "stated"):
            plan.restate(node, "JM203", f"{finding.name}: its JAX form does not fit into this f-string")
