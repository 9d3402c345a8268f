"""What statements read, write and change."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
GROWING = frozenset(("append", "extend", "insert", "update"))


def mark_behind(call: ast.Call, modules: Sequence[str]) -> None:
    """Note that the function which a call runs reads modules by itself, as they are spelled where the call stands."""
    call._behind = tuple(modules)  # type: ignore[attr-defined]


def behind(node: ast.AST) -> tuple[str, ...]:
    """The modules that a call reads by the function that it runs."""
    found: tuple[str, ...] = node.__dict__.get("_behind", ())
    return found


def mark_cut(call: ast.Call, cut: bool = True) -> None:
    """Note that a call gives values that are cut off from the graph, or take that back."""
    call._cut = cut  # type: ignore[attr-defined]


def is_cut(node: ast.AST) -> bool:
    """Whether a call is known to give values that are cut off from the graph."""
    return bool(node.__dict__.get("_cut"))


@dataclass
class Uses:
    """Names that a piece of code reads and writes, and names of objects that it changes in place."""

    reads: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)
    changes: set[str] = field(default_factory=set)


def uses(nodes: ast.AST | Iterable[ast.AST]) -> Uses:
    """The uses of some nodes together. Variables of comprehensions, lambdas and inner functions are their own."""
    found = Uses()
    for node in [nodes] if isinstance(nodes, ast.AST) else nodes:
        _collect(node, found)
    return found


def _collect(node: ast.AST, found: Uses) -> None:
    if isinstance(node, ast.Name):
        (found.reads if isinstance(node.ctx, ast.Load) else found.writes).add(node.id)
        return
    if isinstance(node, (*_FUNCTIONS, *_COMPREHENSIONS)):
        _nested(node, found)
        return
    if isinstance(node, ast.ClassDef):
        found.writes.add(node.name)
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        found.reads.add(node.target.id)
    if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, (ast.Store, ast.Del)):
        found.changes |= {root} if (root := root_name(node)) else set()
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        name = node.func.attr
        if name in GROWING or (name.endswith("_") and not name.endswith("__")):
            found.changes |= {root} if (root := root_name(node.func)) else set()
    if isinstance(node, ast.Call):
        found.reads |= {text.partition(".")[0] for text in behind(node)}
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        found.writes |= {(a.asname or a.name).partition(".")[0] for a in node.names}
    if isinstance(node, ast.ExceptHandler) and node.name:
        found.writes.add(node.name)
    for child in ast.iter_child_nodes(node):
        _collect(child, found)


def _nested(node: ast.AST, found: Uses) -> None:
    inner = Uses()
    for child in ast.iter_child_nodes(node):
        _collect(child, inner)
    own = set(inner.writes)
    if isinstance(node, _FUNCTIONS):
        own |= {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)}
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        found.writes.add(node.name)
    walrus = (
        {n.target.id for n in ast.walk(node) if isinstance(n, ast.NamedExpr)}
        if isinstance(node, _COMPREHENSIONS)
        else set()
    )
    found.reads |= inner.reads - own
    found.writes |= walrus
    found.changes |= inner.changes - own


def root_name(node: ast.AST) -> str:
    """`x` of `x.a[0].b`; "" when it is no plain name."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def certain(stmt: ast.stmt) -> set[str]:
    """Names that the statement assigns on every path through it."""
    if isinstance(stmt, ast.If):
        return _certain(stmt.body) & _certain(stmt.orelse)
    if isinstance(stmt, (ast.With, ast.AsyncWith)):
        return _certain(stmt.body) | {n for i in stmt.items if i.optional_vars for n in uses(i.optional_vars).writes}
    if isinstance(stmt, (ast.For, ast.AsyncFor, ast.While, ast.Try, ast.Match)):
        return set()
    return uses(stmt).writes


def _certain(body: Sequence[ast.stmt]) -> set[str]:
    return {n for s in body for n in certain(s)}


def entry_reads(stmts: Iterable[ast.stmt]) -> set[str]:
    """Names whose value from before is read by `stmts` run in order."""
    return _body_reads(list(stmts), set())


def _early_reads(stmt: ast.stmt, known: set[str]) -> set[str]:
    if isinstance(stmt, ast.If):
        return uses(stmt.test).reads - known | _body_reads(stmt.body, known) | _body_reads(stmt.orelse, known)
    if isinstance(stmt, (ast.For, ast.AsyncFor)):
        inner = known | uses(stmt.target).writes
        return uses(stmt.iter).reads - known | _body_reads(stmt.body, inner) | _body_reads(stmt.orelse, known)
    if isinstance(stmt, ast.While):
        return uses(stmt.test).reads - known | _body_reads(stmt.body, known)
    if isinstance(stmt, (ast.With, ast.AsyncWith)):
        heads = uses([i.context_expr for i in stmt.items]).reads - known
        names = {n for i in stmt.items if i.optional_vars for n in uses(i.optional_vars).writes}
        return heads | _body_reads(stmt.body, known | names)
    return uses(stmt).reads - known


def _body_reads(body: Sequence[ast.stmt], known: set[str]) -> set[str]:
    needed, inner = set(), set(known)
    for stmt in body:
        needed |= _early_reads(stmt, inner)
        inner |= certain(stmt)
    return needed


def block_of(stmt: ast.stmt, parents: dict[ast.AST, ast.AST]) -> list[ast.stmt]:
    """The list of statements that holds `stmt`."""
    owner = parents[stmt]
    for name in ("body", "orelse", "finalbody"):
        block = getattr(owner, name, None)
        if isinstance(block, list) and stmt in block:
            return block
    return [stmt]
