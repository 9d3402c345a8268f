"""Whether an argument is over once its call is done: nobody reads its memory again, so nobody notices a write to it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import takewhile

from ...read.turns import Comprehension, turns_around
from .locate import Locator
from .places import Place
from .writes import first_receiver


def place_of(locator: Locator, target: ast.expr, stmt: ast.stmt) -> Place:
    """The place that a write to `target` changes, `x.data` being x."""
    if isinstance(target, ast.Attribute) and target.attr == "data":
        return locator.find(target.value, stmt)
    return locator.find(target, stmt)


def argument_is_over(locator: Locator, stmt: ast.stmt, node: ast.expr, value: ast.expr) -> bool:
    """Whether nothing reads the memory of an argument after the statement, nor the statement beside the call."""
    if any(isinstance(up, ast.Lambda) for up in _within(locator, node)):  # it runs at any time, and again
        return False
    around = turns_around(locator.unit, node)
    if around:
        return _over_each_turn(locator, stmt, *around[0], value)
    if locator.aliases.is_temporary(stmt, value):
        return True
    place = place_of(locator, value, stmt)
    if not isinstance(place.base, ast.Name) or place.problem or place.loops:
        return False
    kept = locator.kept(locator.aliases.flow(stmt).owner)
    returned = isinstance(stmt, ast.Return) and not place.steps and place.base.id in kept
    if isinstance(stmt, ast.Return) and returned and first_receiver(locator.unit, stmt.value or value) is node:
        others = locator.aliases.holders(stmt, place.base, itself=False, kept=frozenset({place.base.id}))
    else:
        others = locator.aliases.holders(stmt, place.base, itself=True, kept=kept)
    if others or (place.base.id in kept and not returned):
        return False
    inside = {id(n) for n in ast.walk(value)}
    head: ast.AST = stmt.test if isinstance(stmt, (ast.If, ast.While)) else stmt
    target = stmt.targets[0] if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 else None
    inside |= {id(target)} if isinstance(target, ast.Name) else set()  # it is bound, not read
    return not any(isinstance(n, ast.Name) and n.id == place.base.id and id(n) not in inside for n in ast.walk(head))


def _within(locator: Locator, node: ast.expr) -> Iterator[ast.AST]:
    """What is around a node in its statement."""
    return takewhile(lambda up: not isinstance(up, ast.stmt), locator.unit.tree.ancestors(node))


def _over_each_turn(locator: Locator, stmt: ast.stmt, turns: Comprehension, depth: int, value: ast.expr) -> bool:
    """Whether an argument of a call in a comprehension is over: made anew in each turn, or of the turn's element, where
    nothing else reads that, nor what is walked over. `depth`: how many `for … in` of it are around the call."""
    reached = locator.aliases.reached(stmt, value)
    if reached and locator.aliases.is_temporary(stmt, value) and not isinstance(value, ast.IfExp):
        return True
    walk = turns.generators[depth - 1]
    if not isinstance(walk.target, ast.Name):
        return False
    mentions = {n for n in ast.walk(turns) if isinstance(n, ast.Name) and n.id == walk.target.id}
    element = mentions & set(ast.walk(value))
    if not element or mentions - element - {walk.target}:
        return False
    if not locator.aliases.is_temporary(stmt, value, locator.aliases.reached(stmt, element.pop())):
        return False
    if depth == 1:
        return _are_distinct(locator, walk.iter) and argument_is_over(locator, stmt, turns, walk.iter)
    return _over_each_turn(locator, stmt, turns, depth - 1, walk.iter)


def _are_distinct(locator: Locator, container: ast.expr) -> bool:
    """Whether what is walked over holds no memory twice, as far as names go: the aliases know of other expressions."""
    if not isinstance(container, ast.Name) or locator.unit.kind(container).is_tensor:
        return True
    return locator.elements.are_distinct(container)
