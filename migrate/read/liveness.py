"""Which names may still be read after each statement of a body: backward liveness, the textbook kind.

Source: Aho, Lam, Sethi, Ullman, "Compilers", section 9.2.5, on the statement tree instead of a flow graph. Exceptions
are taken to happen anywhere in a `try`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass

Names = frozenset[str]
NOTHING: Names = frozenset()
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


@dataclass(frozen=True)
class _Exits:
    """What is live where `break`, `continue`, `return` and exceptions lead."""

    on_break: Names
    on_continue: Names
    on_return: Names
    on_raise: Names


class Liveness:
    """`after[stmt]`: the names that may be read once `stmt` has run. `at_exit` are live when the body ends."""

    def __init__(self, body: list[ast.stmt], at_exit: Names = NOTHING) -> None:
        self.after: dict[ast.stmt, Names] = {}
        self.captured = captured(body)
        at_exit |= self.captured
        self._block(body, at_exit, _Exits(at_exit, at_exit, at_exit, at_exit))

    def _block(self, body: list[ast.stmt], after: Names, exits: _Exits) -> Names:
        for stmt in reversed(body):
            after |= exits.on_raise
            self.after[stmt] = self.after.get(stmt, NOTHING) | after
            after = self._before(stmt, after, exits)
        return after

    def _before(self, stmt: ast.stmt, after: Names, exits: _Exits) -> Names:
        if isinstance(stmt, ast.Return):
            return exits.on_return | reads(stmt)
        if isinstance(stmt, ast.Raise):
            return exits.on_raise | reads(stmt)
        if isinstance(stmt, ast.Break):
            return exits.on_break
        if isinstance(stmt, ast.Continue):
            return exits.on_continue
        if isinstance(stmt, ast.If):
            return reads(stmt.test) | self._block(stmt.body, after, exits) | self._block(stmt.orelse, after, exits)
        if isinstance(stmt, (ast.For, ast.AsyncFor, ast.While)):
            return self._loop(stmt, after, exits)
        if isinstance(stmt, (ast.With, ast.AsyncWith)):
            return self._block(stmt.body, after, exits) | frozenset().union(*(reads(i) for i in stmt.items))
        if isinstance(stmt, ast.Try):
            return self._try(stmt, after, exits)
        if isinstance(stmt, ast.Match):
            ends = [self._block(c.body, after, exits) | reads(c.pattern) for c in stmt.cases]
            return after.union(reads(stmt.subject), *ends)
        if isinstance(stmt, _FUNCTIONS):
            return after | self.captured
        return (after - stores(stmt)) | reads(stmt)

    def _loop(self, stmt: ast.For | ast.AsyncFor | ast.While, after: Names, exits: _Exits) -> Names:
        # The iterator keeps what it walks over, so that is live for as long as the loop runs.
        head = reads(stmt.test if isinstance(stmt, ast.While) else stmt.iter)
        ended = self._block(stmt.orelse, after, exits)
        live = head | ended
        target = ast.Pass() if isinstance(stmt, ast.While) else stmt.target
        bound = {n.id for n in ast.walk(target) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        while True:
            inside = _Exits(after, live, exits.on_return, exits.on_raise)
            grown = live | (self._block(stmt.body, live, inside) - bound)  # each turn binds the target first
            if grown == live:
                return live
            live = grown

    def _try(self, stmt: ast.Try, after: Names, exits: _Exits) -> Names:
        final = self._block(stmt.finalbody, after, exits) if stmt.finalbody else after
        handled = final
        for handler in stmt.handlers:
            handled |= self._block(handler.body, final, exits)
        inside = _Exits(
            exits.on_break | handled, exits.on_continue | handled, exits.on_return | handled, exits.on_raise | handled
        )
        return self._block(stmt.body, self._block(stmt.orelse, final, exits), inside)


def reads(node: ast.AST) -> Names:
    """Names read anywhere in `node`, functions and comprehensions inside it included; `x += 1` reads x."""
    found = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        found.add(node.target.id)
    return frozenset(found)


def stores(node: ast.AST) -> Names:
    """Names that the statement certainly rebinds."""
    targets: list[ast.AST] = list(getattr(node, "targets", [getattr(node, "target", None)]))
    return frozenset(
        n.id
        for t in targets
        if t is not None
        for n in ast.walk(t)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    )


def captured(body: Iterable[ast.stmt]) -> Names:
    """Names that functions defined inside `body` read: they may run at any time."""
    found: Names = NOTHING
    for stmt in body:
        for node in ast.walk(stmt):
            if isinstance(node, _FUNCTIONS):
                found |= reads(node)
    return found
