"""The order in which a function sets gradients to zero, adds to them and uses them: a small flow graph.

A node is a statement that does one of these; `joins` are where ways meet. A statement may be left by `break`,
`continue`, `return`; exceptions are not followed out of a `try`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

CLEAN, FULL = "clean", "full"  # no gradient yet; a gradient is there


@dataclass(eq=False)
class Node:
    """`kind`: "zero", "backward", "step", "join", "entry", "exit". `owners` are the texts of what it is called on."""

    kind: str
    stmt: ast.stmt | None = None
    owners: tuple[str, ...] = ()
    after: list[Node] = field(default_factory=list)

    @property
    def call(self) -> ast.Call:
        """The call of the statement."""
        assert isinstance(self.stmt, ast.Expr) and isinstance(self.stmt.value, ast.Call)
        return self.stmt.value

    @property
    def on(self) -> ast.expr:
        """What the method is called on."""
        assert isinstance(self.call.func, ast.Attribute)
        return self.call.func.value


Reader = Callable[[ast.stmt], "tuple[str, tuple[str, ...]] | None"]


@dataclass
class _Exits:
    breaks: list[Node]
    continues: list[Node]


class Events:
    """The graph of one function. `read` says what a statement is: (kind, owners), or None."""

    def __init__(self, body: Sequence[ast.stmt], read: Reader) -> None:
        self.read = read
        self.entry, self.exit = Node("entry"), Node("exit")
        self.nodes: list[Node] = [self.entry, self.exit]
        self._link(self._block(body, [self.entry], None), self.exit)

    def of(self, kind: str) -> list[Node]:
        return [n for n in self.nodes if n.kind == kind]

    def run(self, node: Node, kind: str) -> list[Node]:
        """The nodes of a kind that stand right before or after one of that kind, on every way."""
        found, at = [], node
        while len(at.after) == 1 and at.after[0].kind == kind and at.after[0] not in found:
            at = at.after[0]
            found.append(at)
        at = node
        while True:
            before = [n for n in self.nodes if at in n.after]
            if len(before) != 1 or before[0].kind != kind or before[0] in found:
                return found
            at = before[0]
            found.append(at)

    def _link(self, sources: Iterable[Node], target: Node) -> None:
        for source in sources:
            if target not in source.after:
                source.after.append(target)

    def _node(
        self, kind: str, incoming: list[Node], stmt: ast.stmt | None = None, owners: tuple[str, ...] = ()
    ) -> Node:
        node = Node(kind, stmt, owners)
        self.nodes.append(node)
        self._link(incoming, node)
        return node

    def _block(self, body: Sequence[ast.stmt], incoming: list[Node], exits: _Exits | None) -> list[Node]:
        for stmt in body:
            incoming = list(dict.fromkeys(self._statement(stmt, incoming, exits)))  # each once: `if`s would double it
        return incoming

    def _statement(self, stmt: ast.stmt, incoming: list[Node], exits: _Exits | None) -> list[Node]:
        found = self.read(stmt)
        if found is not None:
            return [self._node(found[0], incoming, stmt, found[1])]
        if isinstance(stmt, ast.If):
            return self._block(stmt.body, incoming, exits) + self._block(stmt.orelse, incoming, exits)
        if isinstance(stmt, (ast.For, ast.AsyncFor, ast.While)):
            return self._loop(stmt, incoming, exits)
        if isinstance(stmt, (ast.With, ast.AsyncWith)):
            return self._block(stmt.body, incoming, exits)
        if isinstance(stmt, ast.Try):
            ended = self._block(stmt.body, incoming, exits)
            caught = [n for h in stmt.handlers for n in self._block(h.body, [*incoming, *ended], exits)]
            return self._block(stmt.finalbody, self._block(stmt.orelse, ended, exits) + caught, exits)
        if isinstance(stmt, ast.Match):
            return incoming + [n for case in stmt.cases for n in self._block(case.body, incoming, exits)]
        if isinstance(stmt, ast.Return):
            self._link(incoming, self.exit)
            return []
        if isinstance(stmt, ast.Raise):
            return []
        if exits is not None and isinstance(stmt, (ast.Break, ast.Continue)):
            (exits.breaks if isinstance(stmt, ast.Break) else exits.continues).extend(incoming)
            return []
        return incoming

    def _loop(self, stmt: ast.For | ast.AsyncFor | ast.While, incoming: list[Node], exits: _Exits | None) -> list[Node]:
        head = self._node("join", incoming)
        inside = _Exits([], [])
        self._link([*self._block(stmt.body, [head], inside), *inside.continues], head)
        endless = isinstance(stmt, ast.While) and isinstance(stmt.test, ast.Constant) and bool(stmt.test.value)
        return self._block(stmt.orelse, [] if endless else [head], exits) + inside.breaks


@dataclass(frozen=True)
class Unit:
    """One gradient: what sets it to zero, adds to it and uses it, as nodes of the graph."""

    zeros: frozenset[Node]
    adds: frozenset[Node]
    steps: frozenset[Node]

    def live(self, node: Node) -> bool:
        """Whether what `node` adds reaches a step before it is set to zero."""
        return any(n in self.steps for n in self.reached(node, self.zeros))

    def reached(self, node: Node, stops: Iterable[Node]) -> set[Node]:
        """The nodes that follow `node`, and not beyond a node of `stops`."""
        ends = set(stops)
        seen: set[Node] = set()
        todo = list(node.after)
        while todo:
            at = todo.pop()
            if at in seen:
                continue
            seen.add(at)
            if at not in ends:
                todo += at.after
        return seen

    def states(self, events: Events, entry: str) -> dict[Node, frozenset[str]]:
        """What the gradient may be just before each node, when it is `entry` as the function begins."""
        before: dict[Node, set[str]] = {n: set() for n in events.nodes}
        todo = [(events.entry, entry)]
        while todo:
            node, state = todo.pop()
            if state in before[node]:
                continue
            before[node].add(state)
            if node in self.zeros:
                state = CLEAN
            elif node in self.adds:
                state = FULL
            todo += [(n, state) for n in node.after]
        return {n: frozenset(s) for n, s in before.items()}
