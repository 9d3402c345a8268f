"""Values with a graph that another function keeps in a list until the loss is computed: what REINFORCE does."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from ...read.unit import Unit
from ..plan import Plan
from .callees import own_nodes
from .cuts import cuts
from .flow import uses
from .roles import NotPlain, modules_called


def check_stored(plan: Plan, function: ast.AST, losses: Iterable[ast.expr]) -> None:
    """Raise NotPlain where a loss reads what another function computed with a module and keeps in an attribute, or in
    a list that is one: a gradient would not pass. The text says which line keeps it."""
    read = set(_attributes(function, losses))
    unit = plan.unit
    for node in (*unit.tree.all(ast.Call), *unit.tree.all(ast.Assign)) if read else ():
        kept = _kept(node)
        holder = unit.tree.function(node)
        if kept is None or kept[0].attr not in read or holder is None or holder is function:
            continue
        target, value = kept
        if isinstance(node, ast.Assign) and (holder.name == "__init__" or _of_module(unit, node)):
            continue
        kind = unit.kind(value)
        plain = kind.known and not kind.is_tensor and kind.tag not in ("tuple", "list", "dict")
        if not plain and not cuts(value) and modules_called(plan, holder, [value]):
            line, _ = unit.tree.position(unit.tree.start(node))
            raise NotPlain(
                f"`{ast.unparse(target)}` holds what {holder.name} computed with the model (line {line}): let the loss "
                "function compute it"
            )


def _kept(node: ast.AST) -> tuple[ast.Attribute, ast.expr] | None:
    """The attribute that gets a value, and the value: of `x.a = v` and `x.a.append(v)`."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Attribute):
        return node.targets[0], node.value
    func = node.func if isinstance(node, ast.Call) else None
    if isinstance(node, ast.Call) and isinstance(func, ast.Attribute) and func.attr == "append" and len(node.args) == 1:
        return (func.value, node.args[0]) if isinstance(func.value, ast.Attribute) else None
    return None


def _of_module(unit: Unit, node: ast.AST) -> bool:
    """Whether code stands in a module's class: what its forward pass keeps is made again in the loss function."""
    cls = unit.tree.class_of(node)
    facts = unit.classes.get(cls) if cls is not None else None
    return facts is not None and facts.is_module


def _attributes(function: ast.AST, losses: Iterable[ast.expr]) -> Iterator[str]:
    """The names of attributes that the way to the losses reads, also by a name for them."""
    nodes = list(own_nodes(function))
    stmts = [n for n in nodes if isinstance(n, (ast.Assign, ast.AugAssign, ast.For, ast.Expr))]
    names: set[str] = set()
    parts: list[ast.AST] = list(losses)
    seen: set[ast.AST] = set()
    while parts:
        part = parts.pop()
        names |= uses(part).reads
        yield from (n.attr for n in ast.walk(part) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load))
        for stmt in stmts:
            made = uses(stmt).writes | uses(stmt).changes
            if stmt not in seen and made & names:
                seen.add(stmt)
                parts.append(stmt)
