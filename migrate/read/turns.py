"""The comprehensions around an expression, which evaluate it once for each turn."""

from __future__ import annotations

import ast

from .scopes import COMPREHENSIONS
from .unit import Unit

Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def turns_around(unit: Unit, node: ast.expr) -> list[tuple[Comprehension, int]]:
    """The comprehensions around `node` within its statement, the innermost first, with how many of their `for … in`
    have bound something when it is evaluated."""
    found: list[tuple[Comprehension, int]] = []
    inside: set[ast.AST] = {node}
    for up in unit.tree.ancestors(node):
        if isinstance(up, ast.stmt):
            break
        if isinstance(up, COMPREHENSIONS):
            if depth := _depth(up, inside):
                found.append((up, depth))
        inside.add(up)
    return found


def _depth(comprehension: Comprehension, inside: set[ast.AST]) -> int:
    for place, generator in enumerate(comprehension.generators):
        if generator.iter in inside or generator.target in inside:
            return place
        if not inside.isdisjoint(generator.ifs):
            return place + 1
    return len(comprehension.generators)
