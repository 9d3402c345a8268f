"""One `rngs` for all modules that a script or function builds: a new `nnx.Rngs(0)` for each would give them all the
same numbers."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ..read.scopes import COMPREHENSIONS
from .plan import Plan

NEW = "nnx.Rngs(0)"
LOOPS = (ast.For, ast.AsyncFor, ast.While)


def share_streams(plan: Plan, calls: Iterable[ast.Call]) -> dict[ast.Call, str]:
    """The text of `rngs=` for calls that have no rngs or key in reach.

    A single construction makes its own, `nnx.Rngs(0)`; several, or one that is repeated, share a variable that is made
    before them.
    """
    groups: dict[ast.AST, list[ast.Call]] = {}
    for call in calls:
        groups.setdefault(plan.unit.tree.function(call) or plan.unit.tree.root, []).append(call)
    found: dict[ast.Call, str] = {}
    for holder, group in groups.items():
        group.sort(key=plan.unit.tree.rank)
        chains = [_statements(plan, call, holder) for call in group]
        name = _name(plan, holder)
        anchor = _anchor(chains)
        if (len(group) == 1 and not _repeated(plan, group[0], holder)) or not name or not plan.alone(anchor):
            found |= dict.fromkeys(group, NEW)
            continue
        plan.before.setdefault(anchor, []).insert(0, f"{name} = {NEW}")
        found |= dict.fromkeys(group, name)
    return found


def _name(plan: Plan, holder: ast.AST) -> str:
    """A name for the variable that nothing else in the file has."""
    used = {n.id for n in plan.unit.tree.all(ast.Name)} | {a.arg for a in plan.unit.tree.all(ast.arg)}
    return next((n for n in ("rngs", "init_rngs", "model_rngs") if n not in used), "")


def _statements(plan: Plan, call: ast.Call, holder: ast.AST) -> list[ast.stmt]:
    """The statements around a call, from the outermost in `holder` to the innermost."""
    chain: list[ast.stmt] = []
    for up in plan.unit.tree.ancestors(call):
        if up is holder:
            break
        if isinstance(up, ast.stmt):
            chain.append(up)
    return chain[::-1]


def _repeated(plan: Plan, call: ast.Call, holder: ast.AST) -> bool:
    for up in plan.unit.tree.ancestors(call):
        if up is holder:
            return False
        if isinstance(up, (*LOOPS, *COMPREHENSIONS, ast.Lambda)):
            return True
    return False


def _anchor(chains: list[list[ast.stmt]]) -> ast.stmt:
    """The first statement of the innermost block that holds all chains and is not run in a loop."""
    depth = 0
    while all(len(chain) > depth + 1 for chain in chains):
        above = {chain[depth] for chain in chains}
        below = [chain[depth + 1] for chain in chains]
        (outer, *others) = above
        if others or isinstance(outer, LOOPS) or not _one_block(outer, below):
            break
        depth += 1
    return chains[0][depth]


def _one_block(outer: ast.stmt, statements: list[ast.stmt]) -> bool:
    blocks = [b for _, b in ast.iter_fields(outer) if isinstance(b, list)]
    return any(all(s in block for s in statements) for block in blocks)
