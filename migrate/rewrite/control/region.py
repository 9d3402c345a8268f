"""Statements that can become the body of a function for `lax`: assignments to names, of expressions that are proved."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from ...read.unit import Unit
from ...report.findings import fate
from ..plan import Plan
from ..training.text import indented
from ..writer import Writer
from .terms import Prover, Term


@dataclass
class Body:
    """What a block does: the terms of the names that it assigns, in order, and which it reads before it writes."""

    assigned: dict[str, Term] = field(default_factory=dict)
    reads: set[str] = field(default_factory=set)


def follow(prover: Prover, stmts: Sequence[ast.stmt], env: dict[str, Term]) -> Body | None:
    """The block, interpreted; None when it does anything but assign proved expressions to names."""
    body, env = Body(), dict(env)
    for stmt in stmts:
        name, value = _assignment(stmt)
        if name is None or value is None:
            return None
        term = prover.term(value, env)
        body.reads |= {n.id for n in ast.walk(value) if isinstance(n, ast.Name)} - set(body.assigned)
        if isinstance(stmt, ast.AugAssign):
            if name not in body.assigned:
                body.reads.add(name)
            held = env.get(name) or prover.term(_load(stmt), env)
            term = prover.binary(stmt.op, held, term, value) if held is not None and term is not None else None
        if term is None:
            return None
        env[name] = body.assigned[name] = term
    return body


def text_of(writer: Writer, stmt: ast.stmt) -> str:
    """An assignment that `follow` understood, as it is written."""
    name, value = _assignment(stmt)
    assert value is not None
    if isinstance(stmt, ast.AugAssign):
        sign = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}[type(stmt.op)]
        return f"{name} = {name} {sign} {writer.at_level(value, 13)}"
    return f"{name} = {writer.at_level(value, 0, False)}"


def value_of(writer: Writer, stmt: ast.stmt) -> str:
    """The right side of `text_of`."""
    return text_of(writer, stmt).partition(" = ")[2]


def function(name: str, params: Sequence[str], lines: Sequence[str], result: str, unit: str) -> list[str]:
    """The lines of a local function."""
    return [f"def {name}({', '.join(params)}):", *(indented(line, unit) for line in lines), f"{unit}return {result}"]


def joined(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else ", ".join(names)


def packed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"({', '.join(names)})"


def stored_names(stmts: Sequence[ast.stmt]) -> set[str]:
    """The names that statements assign."""
    found = (n for s in stmts for n in ast.walk(s))
    return {n.id for n in found if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def space_above(plan: Plan, stmt: ast.stmt, gone: ast.stmt | None = None) -> None:
    """A blank line before a function that is to stand below other code; `gone` is code that will not stand there."""
    tree = plan.unit.tree
    owner = tree.parents[stmt]
    block = next(b for n in ("body", "orelse", "finalbody") if stmt in (b := getattr(owner, n, None) or []))
    line = tree.position(tree.start(stmt))[0] - 1
    above = tree.text[tree.line_starts[line - 1] : tree.line_starts[line]] if line else ""
    if next(s for s in block if s is not gone) is not stmt and above.strip():
        plan.point(owner, tree.line_starts[line], tree.line_starts[line], tree.newline)


def read_after(plan: Plan, stmt: ast.stmt, names: set[str]) -> set[str]:
    """Those of `names` that something outside of the statement reads: after it, or before it in a loop around."""
    tree = plan.unit.tree
    home = tree.function(stmt) or tree.root
    inside = set(tree.walk(stmt))
    looped = any(isinstance(up, (ast.For, ast.While, ast.AsyncFor)) for up in tree.ancestors(stmt))
    return {
        n.id
        for n in tree.walk(home)
        if isinstance(n, ast.Name) and n.id in names and isinstance(n.ctx, ast.Load) and n not in inside
        if looped or tree.rank(n) > tree.rank(stmt)
    }


def free_to_rewrite(plan: Plan, stmt: ast.stmt, last: ast.stmt | None = None) -> bool:
    """Whether a statement stands alone on its lines, in a function, with no comment and nothing left inside it."""
    tree = plan.unit.tree
    start, end = tree.start(stmt), tree.end(last or stmt)
    if tree.function(stmt) is None or not plan.alone(stmt) or not plan.alone_to_end(last or stmt):
        return False
    if tree.comments_in(start, end):
        return False
    inside = [n for n in tree.walk(stmt) if n is not stmt]
    if any(n in plan.before or n in plan.after or n in plan.hoisted for n in inside if isinstance(n, ast.stmt)):
        return False
    return not any(fate(f.code) in ("left", "unmapped") for about, f in plan.nodes if start <= tree.start(about) < end)


def known_before(plan: Plan, prover: Prover, stmt: ast.stmt, name: str) -> Term | None:
    """The term of a name at a statement: it is a parameter, or assigned before on the way to it. None if not sure."""
    tree, unit = plan.unit.tree, plan.unit
    home = tree.function(stmt)
    scope = unit.scopes.of.get(home) if home is not None else None
    if home is None or scope is None or name not in scope.bindings:
        return None
    if name in scope.globals | scope.nonlocals:
        return None
    is_param = any(b.kind == "param" for b in scope.bindings[name])
    if not is_param and not any(name in _targets(s) for s in _on_the_way(unit, stmt)):
        return None
    seen = [n for n in tree.own(home) if isinstance(n, ast.Name) and n.id == name and tree.rank(n) < tree.rank(stmt)]
    kinds = [unit.kind(n) for n in seen[-1:]] or [unit.kind(n) for n in tree.walk(stmt) if _loads(n, name)][:1]
    if not kinds:
        return None
    if kinds[0].tag in ("int", "float"):
        return Term((), kinds[0].tag)
    if not kinds[0].is_tensor:
        return None
    value = _last_value(unit, stmt, name)
    made = prover.term(value, {}) if isinstance(value, ast.Call) else None
    return replace(made, safe=True) if made is not None and not made.number else prover.named(name)


def _loads(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)


def _on_the_way(unit: Unit, stmt: ast.stmt) -> Iterator[ast.stmt]:
    """The statements that have certainly run before `stmt`: those above it in its block and in the blocks around."""
    tree = unit.tree
    here: ast.AST = stmt
    while not isinstance(here, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)):
        up = tree.parents[here]
        for block in (getattr(up, "body", None), getattr(up, "orelse", None), getattr(up, "finalbody", None)):
            if isinstance(block, list) and here in block:
                yield from reversed(block[: block.index(here)])
        here = up


def _last_value(unit: Unit, stmt: ast.stmt, name: str) -> ast.expr | None:
    """What a statement above, in the same block, gave a name, when none between changes it or what it was made of."""
    changed: set[str] = set()
    for before in _on_the_way(unit, stmt):
        if unit.tree.parents[before] is not unit.tree.parents[stmt]:
            return None
        if isinstance(before, ast.Assign) and len(before.targets) == 1 and name in _targets(before):
            made = {n.id for n in ast.walk(before.value) if isinstance(n, ast.Name)}
            return before.value if isinstance(before.targets[0], ast.Name) and not made & changed else None
        changed |= stored_names([before])
        if name in changed:
            return None
    return None


def _targets(stmt: ast.stmt) -> set[str]:
    if isinstance(stmt, ast.Assign):
        return {n.id for t in stmt.targets for n in ast.walk(t) if isinstance(n, ast.Name)}
    if isinstance(stmt, (ast.AnnAssign, ast.AugAssign)) and isinstance(stmt.target, ast.Name):
        return {stmt.target.id} if stmt.value is not None else set()
    return set()


def _assignment(stmt: ast.stmt) -> tuple[str | None, ast.expr | None]:
    if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 and isinstance(stmt.targets[0], ast.Name):
        return stmt.targets[0].id, stmt.value
    if isinstance(stmt, ast.AugAssign) and isinstance(stmt.target, ast.Name):
        return stmt.target.id, stmt.value
    return None, None


def _load(stmt: ast.AugAssign) -> ast.expr:
    return stmt.target
