"""A backward pass under a question, after its forward pass: `if phase == "train": loss.backward()`."""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence

from ...read.unit import Unit
from .flow import block_of, uses
from .roles import NotPlain
from .slices import Region

_PLAIN = (
    ast.Name, ast.Attribute, ast.Constant, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.cmpop, ast.boolop, ast.unaryop,
    ast.expr_context,
)  # fmt: skip


def question(unit: Unit, stmt: ast.Expr, losses: Sequence[ast.expr], gone: Collection[ast.stmt]) -> ast.If | None:
    """The `if` around a backward statement whose loss is made before the `if`; None when it is made beside it."""
    up = unit.tree.parents[stmt]
    loss = losses[0]
    if not isinstance(up, ast.If) or stmt not in up.body or len(losses) > 1 or not isinstance(loss, ast.Name):
        return None
    if not all(isinstance(n, _PLAIN) for n in ast.walk(up.test)):
        return None
    before = [s for s in up.body[: up.body.index(stmt)] if s not in gone]
    if any(loss.id in uses(s).writes | uses(s).changes for s in before):
        return None
    outer = block_of(up, unit.tree.parents)
    made = [s for s in outer[: outer.index(up)] if loss.id in uses(s).writes]
    return up if made else None


def forward_block(unit: Unit, under: ast.If, loss: str) -> list[ast.stmt]:
    """The block of the forward pass: that of the question, or `with torch.set_grad_enabled(train):` before it."""
    outer = block_of(under, unit.tree.parents)
    made = [s for s in outer[: outer.index(under)] if loss in uses(s).writes]
    last = made[-1] if made else None
    if isinstance(last, ast.With) and len(made) == 1 and all(_enables(unit, i, under) for i in last.items):
        return last.body
    return outer


def _enables(unit: Unit, item: ast.withitem, under: ast.If) -> bool:
    call = item.context_expr
    if not isinstance(call, ast.Call) or item.optional_vars is not None:
        return False
    given = [*call.args, *(k.value for k in call.keywords)]
    same = len(given) == 1 and ast.unparse(given[0]) == ast.unparse(under.test)
    return same and unit.resolve(call.func) == "torch.set_grad_enabled"


def check_question(under: ast.If, block: Sequence[ast.stmt], region: Region, parents: dict[ast.AST, ast.AST]) -> None:
    """Raise NotPlain when the answer may be another at the end of the forward pass."""
    if not region.stmts:
        raise NotPlain("the loss is made outside this block")
    asked = uses(under.test).reads
    outer = block_of(under, parents)
    around = next(s for s in outer if s is region.stmts[0] or region.stmts[0] in ast.walk(s))
    for stmt in [*block[block.index(region.stmts[0]) :], *outer[outer.index(around) + 1 :]]:
        if stmt is under:
            break
        if asked & (uses(stmt).writes | uses(stmt).changes):
            raise NotPlain(f"`{ast.unparse(under.test)[:50]}` may change between forward and backward")
