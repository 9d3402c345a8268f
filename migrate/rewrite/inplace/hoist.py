"""Calls that write and whose value is used: the write on a line of its own, in front of what uses the value."""

from __future__ import annotations

import ast

from ...rulebook.precedence import ATOM
from ..plan import Whole
from ..writer import Writer
from .apart import apart
from .context import Context
from .places import Place


def hoist(context: Context, stmt: ast.stmt, call: ast.Call, place: Place) -> None:
    """Write `base = <call>` in front of the statement, and the place in the place of the call."""
    context.plan.points.setdefault(call, [])  # so that the writer looks into the statement

    def lines(writer: Writer) -> list[str]:
        text = context.base_text(place)
        first = [_binding(context, place, call, writer), *context.renew(place, writer)]
        return [*first, rest_of(context, stmt, call, place.view(text, writer), writer)]

    context.lines(stmt, lines)


def rest_of(context: Context, stmt: ast.stmt, call: ast.Call, text: str, writer: Writer) -> str:
    """The statement with `text` in place of the call."""
    plan, tree = context.plan, context.unit.tree
    own = plan.whole.get(call)
    plan.whole[call] = Whole(lambda _: text, ATOM)
    found = writer.splice_range(stmt, tree.start(stmt), tree.end(stmt), list(plan.points.get(stmt, ())))
    if own is None:
        del plan.whole[call]
    else:
        plan.whole[call] = own
    return found


def _binding(context: Context, place: Place, call: ast.Call, writer: Writer) -> str:
    text = context.base_text(place)
    enclosed = bool(place.steps) and place.steps[-1].name == "index"
    new = writer.at_level(call, 1 if enclosed else ATOM if place.steps else -1, enclosed)
    return f"{text} = {place.written(text, new, writer)}"


def bind_call(context: Context, stmt: ast.stmt, call: ast.Call, place: Place) -> bool:
    """Bind the value of `call`, which is what `place` holds afterwards, where it is and where its value is used."""
    target = stmt.targets[0] if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 else None
    alone = isinstance(stmt, ast.Expr) and stmt.value is call
    named = isinstance(target, ast.Name) and isinstance(stmt, ast.Assign) and stmt.value is call
    if stmt in context.plan.lines or context.lost_comment(stmt, [call]):
        return False
    if named and isinstance(target, ast.Name) and target.id == ast.unparse(place.base) and not place.steps:
        return not place.renewed and not place.loops
    if not alone and not apart(context.locator, stmt, call, place):
        return False
    context.settle(Place(place.base, loops=place.loops))
    if not alone and not named:
        hoist(context, stmt, call, place)
        return True

    def build(writer: Writer) -> list[str]:
        text = context.base_text(place)
        found = [_binding(context, place, call, writer), *context.renew(place, writer)]
        return [*found, f"{target.id} = {place.view(text, writer)}"] if isinstance(target, ast.Name) else found

    context.lines(stmt, build)
    return True
