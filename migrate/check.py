"""Check a written file before anyone sees it."""

from __future__ import annotations

import ast
import builtins

from .read.scopes import Scopes
from .read.source import Tree
from .read.unit import Unit
from .report.findings import fate
from .rewrite.plan import Plan

_IMPLICIT = frozenset(dir(builtins)) | {"__file__", "__name__", "__doc__", "__class__", "__path__", "__spec__", "__package__", "__loader__"}


def check_output(unit: Unit, plan: Plan, text: str) -> list[str]:
    """What is wrong with the output: undefined names that the source did not have, torch that nobody reported."""
    before = undefined(unit.tree, unit.scopes)
    after_tree = Tree(text)
    after = undefined(after_tree, Scopes(after_tree.root))
    problems = [f"the output uses {name!r}, which nothing defines (line {line})" for name, line in sorted(after.items()) if name not in before]
    reported = any(fate(f.code) in ("left", "unmapped") for f in plan.findings)
    if not reported and not problems:
        residue = leftover(after_tree)
        if residue:
            problems.append(f"{residue} is left in the output and nothing reports it")
    return problems


def undefined(tree: Tree, scopes: Scopes) -> dict[str, int]:
    """Names that are read but bound nowhere, with a line. Files with star imports of unknown modules have none."""
    if scopes.module.stars:
        return {}
    found: dict[str, int] = {}
    for node in tree.parents:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in _IMPLICIT:
            if scopes.scope_of(node, tree.parents).lookup(node.id) is None:
                found.setdefault(node.id, node.lineno)
    return found


def leftover(tree: Tree) -> str:
    """An import of torch that is still there, as text; "" when there is none."""
    for node in tree.parents:
        if isinstance(node, ast.Import) and any(a.name.split(".")[0] == "torch" for a in node.names):
            return "`import torch`"
        if isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] == "torch":
            return f"`from {node.module} import …`"
    return ""
