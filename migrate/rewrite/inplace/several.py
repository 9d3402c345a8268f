"""`x[0], x[1] = a, b` and `x[0] = y[1] = v`: one line a write."""

from __future__ import annotations

import ast

from ..writer import Writer
from .context import Context
from .places import Place, find_place

SET = "torch.Tensor.__setitem__"


def several_targets(context: Context, stmt: ast.Assign, targets: list[ast.expr], writes: list[ast.expr]) -> None:
    """Several targets: the right side first, then one line a write."""
    nested = len(stmt.targets) > 1 and any(isinstance(t, (ast.Tuple, ast.List)) for t in stmt.targets)
    if nested or any(isinstance(t, ast.Starred) or (isinstance(t, ast.Attribute) and t in writes) for t in targets):
        context.refuse(stmt, SET, "several targets of mixed form", "JM205", "Write one assignment a line.")
        return
    places = {t: context.locator.plain(t, stmt) for t in writes}
    problems = [p for place in places.values() if (p := context.problem(place, stmt))]
    if problems:
        context.refuse(stmt, SET, problems[0])
        return
    if not context.on_own_lines(stmt) or context.lost_comment(stmt, [stmt.value]):
        context.refuse(
            stmt, SET, "several targets on a shared or commented line", "JM205", "Write one assignment a line."
        )
        return
    values = _paired(stmt)
    late = [v for v in values or () if _reads_late(context, v)]
    early = [v for v in values or (stmt.value,) if v not in late]
    bound = [v for t, v in zip(targets, values or (), strict=False) if t not in places]
    written = {ast.unparse(p.base) for p in places.values()}
    aliased = [v for v in late if ast.unparse(find_place(v, context.unit).base) not in written]
    if any(_shares(context, stmt, v, places) for v in [*early, *bound, *aliased]):
        context.refuse(stmt, SET, "a value shares memory with what is written", advice="Clone the values first.")
        return
    for place in places.values():
        context.take([*place.nodes, place.base])
    if values is not None and late:
        _in_turn(context, stmt, list(zip(targets, values, strict=True)), places, late)
    else:
        _with_names(context, stmt, targets, places)
    context.converted(stmt, SET, "one line a write, the right side first")


def _paired(stmt: ast.Assign) -> list[ast.expr] | None:
    target = stmt.targets[0]
    if len(stmt.targets) == 1 and isinstance(target, ast.Tuple) and isinstance(stmt.value, ast.Tuple):
        if len(target.elts) == len(stmt.value.elts) and not any(
            isinstance(e, (ast.Tuple, ast.List, ast.Starred)) for e in (*target.elts, *stmt.value.elts)
        ):
            return list(stmt.value.elts)
    return None


def _shares(context: Context, stmt: ast.Assign, value: ast.expr, places: dict[ast.expr, Place]) -> bool:
    memory = context.aliases.reached(stmt, value)
    return any(memory & context.aliases.reached(stmt, p.base) for p in places.values())


def _reads_late(context: Context, value: ast.expr) -> bool:
    """Whether a value is a plain view: torch reads its elements when it is written, after the writes before it."""
    place = find_place(value, context.unit)
    return (
        bool(place.steps)
        and not place.problem
        and all(s.name != "index" or context.basic(s.parts) for s in place.steps)
    )


def _in_turn(
    context: Context,
    stmt: ast.Assign,
    pairs: list[tuple[ast.expr, ast.expr]],
    places: dict[ast.expr, Place],
    late: list[ast.expr],
) -> None:
    """Values that are no views first, under names; then each write, reading its view as it goes."""
    early = [v for _, v in pairs if v not in late and not isinstance(v, ast.Constant)]
    names = dict(zip(early, context.fresh_names(len(early)), strict=False))

    def build(writer: Writer) -> list[str]:
        lines = [f"{name} = {writer.at_level(value, 1)}" for value, name in names.items()]
        for target, value in pairs:
            lines.append(_line(context, target, names.get(value) or writer.at_level(value, 1), places, writer))
        return lines

    context.lines(stmt, build)


def _line(context: Context, target: ast.expr, value: str, places: dict[ast.expr, Place], writer: Writer) -> str:
    place = places.get(target)
    if place is None:
        return f"{writer.text(target)} = {value}"
    text = context.base_text(place)
    return f"{text} = {place.written(text, value, writer)}"


def _with_names(context: Context, stmt: ast.Assign, targets: list[ast.expr], places: dict[ast.expr, Place]) -> None:
    chained = len(stmt.targets) > 1
    words = context.fresh_names(1 if chained else len(places))
    names = dict(zip(places, words * len(places) if chained else words, strict=False))

    def build(writer: Writer) -> list[str]:
        value = writer.text(stmt.value)
        if chained:
            return [f"{words[0]} = {value}", *(_line(context, t, words[0], places, writer) for t in targets)]
        tree = writer.tree
        left = tree.text[tree.start(stmt.targets[0]) : tree.end(stmt.targets[0])]
        offset = tree.start(stmt.targets[0])
        for target in sorted(places, key=tree.start, reverse=True):
            left = left[: tree.start(target) - offset] + names[target] + left[tree.end(target) - offset :]
        return [f"{left} = {value}", *(_line(context, t, names[t], places, writer) for t in targets if t in places)]

    context.lines(stmt, build)
