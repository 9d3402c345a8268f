"""Finds PRNG keys that a program consumes twice: the dataflow of every function of a text, path by path."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

MAKERS = ("jax.random.key", "jax.random.PRNGKey", "jax.random.split", "jax.random.fold_in", "jax.random.clone")
PARAMETERS = ("key", "rng_key", "subkey")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
State = dict[str, int | None]  # the line on which a key was consumed, None while it is fresh


@dataclass
class KeyUses:
    """`reused` has a line for each second use. A path that has left its block is None."""

    names: set[str]
    reused: list[str] = field(default_factory=list)

    def block(self, stmts: Iterable[ast.stmt], state: State | None) -> State | None:
        for stmt in stmts:
            if state is None:
                return None
            state = self.statement(stmt, state)
        return state

    def statement(self, stmt: ast.stmt, state: State) -> State | None:
        if isinstance(stmt, ast.If):
            self.expression(stmt.test, state)
            return joined(self.block(stmt.body, dict(state)), self.block(stmt.orelse, dict(state)))
        if isinstance(stmt, (ast.For, ast.AsyncFor, ast.While)):
            return self.loop(stmt, state)
        if isinstance(stmt, (ast.With, ast.AsyncWith)):
            for item in stmt.items:
                self.expression(item.context_expr, state)
            return self.block(stmt.body, state)
        if isinstance(stmt, ast.Try):
            tried = self.block(stmt.body, dict(state))
            ends = [self.block(h.body, dict(joined(state, tried) or state)) for h in stmt.handlers]
            ends.append(self.block(stmt.orelse, tried))
            end = ends[0]
            for other in ends[1:]:
                end = joined(end, other)
            return self.block(stmt.finalbody, end)
        if isinstance(stmt, (*FUNCTIONS, ast.ClassDef)):
            self.definition(stmt, state)
            return state
        for node in ast.iter_child_nodes(stmt):
            if isinstance(node, ast.expr):
                self.expression(node, state)
        for node in ast.walk(stmt):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in self.names:
                state[node.id] = None
        leaves = isinstance(stmt, (ast.Return, ast.Raise, ast.Break, ast.Continue))
        return None if leaves else state

    def loop(self, stmt: ast.For | ast.AsyncFor | ast.While, state: State) -> State | None:
        """Two turns: the second finds what the first has consumed."""
        if not isinstance(stmt, ast.While):
            self.expression(stmt.iter, state)
        end: State | None = state
        for _ in range(2):
            turn = dict(end or state)
            if isinstance(stmt, ast.While):
                self.expression(stmt.test, turn)
            else:
                self.bind(stmt.target, turn)
            end = joined(end, self.block(stmt.body, turn))
        return self.block(stmt.orelse, end)

    def bind(self, target: ast.expr, state: State) -> None:
        for node in ast.walk(target):
            if isinstance(node, ast.Name) and node.id in self.names:
                state[node.id] = None

    def definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, state: State) -> None:
        """An inner function is run once for each time that it is defined: a loss function. What it takes from outside
        is consumed there, what is its own is looked at on its own."""
        if isinstance(node, ast.ClassDef):
            for stmt in node.body:
                if isinstance(stmt, FUNCTIONS):
                    self.definition(stmt, {})
            return
        arguments = [a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)]
        own = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        inner: State = {n: v for n, v in state.items() if n not in own}
        inner |= dict.fromkeys((n for n in arguments if n in self.names), None)
        self.block(node.body, inner)
        for name in set(loaded(node)) & set(state) - own - set(arguments):
            state[name] = state[name] or node.lineno

    def expression(self, node: ast.expr, state: State) -> None:
        if isinstance(node, COMPREHENSIONS):
            self.comprehension(node, state)
            return
        if isinstance(node, ast.Lambda):
            given = {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)}
            self.expression(node.body, {n: v for n, v in state.items() if n not in given})
            for name in set(loaded(node.body)) & set(state) - given:
                state[name] = state[name] or node.lineno
            return
        if isinstance(node, ast.IfExp):
            self.expression(node.test, state)
            one, other = dict(state), dict(state)
            self.expression(node.body, one)
            self.expression(node.orelse, other)
            state |= joined(one, other) or {}
            return
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in state:
            if state[node.id] is not None:
                self.reused.append(f"line {node.lineno}: {node.id} was consumed on line {state[node.id]}")
            state[node.id] = node.lineno
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.expression(child, state)
            elif isinstance(child, ast.keyword):
                self.expression(child.value, state)

    def comprehension(self, node: ast.expr, state: State) -> None:
        generators: list[ast.comprehension] = node.generators  # type: ignore[attr-defined]
        self.expression(generators[0].iter, state)
        parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]  # type: ignore[attr-defined]
        own = {n.id for g in generators for n in ast.walk(g.target) if isinstance(n, ast.Name)}
        inner = dict(state)
        for _ in range(2):
            for one in generators:
                self.bind(one.target, inner)
            for part in parts:
                self.expression(part, inner)
        state |= {name: line for name, line in inner.items() if name not in own}


def joined(one: State | None, other: State | None) -> State | None:
    """What may have been consumed on either path."""
    if one is None or other is None:
        return other if one is None else one
    return {n: one.get(n) or other.get(n) for n in one.keys() | other.keys()}


def loaded(node: ast.AST) -> list[str]:
    return [n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]


def key_names(tree: ast.Module) -> set[str]:
    """Names that hold keys: parameters of the usual names, and what is made or split from keys."""
    found = {a.arg for a in ast.walk(tree) if isinstance(a, ast.arg) and a.arg in PARAMETERS}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            if ast.unparse(node.value.func) in MAKERS:
                found |= {n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)}
    return found | {re.sub(r"s\d*$", "", n) for n in found if re.search(r"keys\d*$", n)}


def keys_used_twice(text: str) -> list[str]:
    """A line for each key that some path through the program consumes a second time."""
    tree = ast.parse(text)
    uses = KeyUses(key_names(tree))
    uses.block(tree.body, {})
    return uses.reused
