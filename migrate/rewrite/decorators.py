"""Taking a decorator off a function or class."""

from __future__ import annotations

import ast

from .plan import Plan

Decorated = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def remove_decorator(plan: Plan, owner: Decorated, node: ast.expr) -> bool:
    """Remove one decorator with its line; a comment behind it stays on that line. False when that would lose a
    comment, one inside the decorator."""
    tree = plan.unit.tree
    following = owner.decorator_list[owner.decorator_list.index(node) + 1 :]
    start = tree.text.rindex("@", 0, tree.start(node))
    end = tree.text.rindex("@", 0, tree.start(following[0])) if following else tree.start(owner)
    if tree.comments_in(start, tree.end(node)):
        return False
    comments = tree.comments_in(tree.end(node), end)
    plan.point(owner, start, comments[0][0] if comments else end, "")
    return True
