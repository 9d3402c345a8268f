"""The walk: statement by statement through one body, deferred bodies last."""

from __future__ import annotations

import ast
from dataclasses import replace

from .assignments import Assignments
from .evaluate import Env, Evaluator
from .facts import FunctionFacts
from .frame import Frame
from .kinds import (
    NONE,
    NUMBERS,
    OTHER,
    TENSOR,
    UNKNOWN,
    Kind,
    join,
    join_all,
    kind_of_annotation,
)
from .narrowing import Narrowing
from .parameters import Parameters
from .project import Project
from .unit import Unit


class Flow(Assignments, Narrowing, Parameters):
    """Walks the body of one function (or module), keeping the environment of local kinds."""

    def __init__(self, unit: Unit, project: Project, owner: ast.AST, outer: Frame | None = None) -> None:
        super().__init__(unit, project, owner, outer)
        self.evaluate = Evaluator(self)

    def run_module(self) -> None:
        assert isinstance(self.owner, ast.Module)
        deferred = self.run(self.owner.body, self.env)
        self._run_deferred(deferred)

    def run_function(self, facts: FunctionFacts) -> None:
        self.env = self._parameters(facts)
        for default in [*facts.node.args.defaults, *facts.node.args.kw_defaults]:
            if default is not None:
                self.evaluate(default, dict(self.outer.env) if self.outer else {})
        deferred = self.run(facts.node.body, self.env)
        self._run_deferred(deferred)
        annotated = kind_of_annotation(facts.node.returns, self.unit.resolve)
        facts.returns = annotated if annotated.known else join_all(self.returns) if self.returns else NONE
        if self.unit.usage(facts.node).yields:
            facts.returns = Kind("list", "", (join_all(self.returns),)) if self.returns else Kind("list")

    def _run_deferred(self, deferred: list[ast.stmt]) -> None:
        for stmt in deferred:
            if isinstance(stmt, ast.ClassDef):
                self._run_class(stmt)
            elif isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef)):
                Flow(self.unit, self.project, stmt, self).run_function(self.unit.functions[stmt])

    def _run_class(self, node: ast.ClassDef) -> None:
        facts = self.unit.classes[node]
        inner = Flow(self.unit, self.project, node, self)
        deferred = inner.run(node.body, inner.env)
        for name, kind in inner.env.items():
            if kind.known:
                facts.attributes[name] = kind
        order = sorted(deferred, key=lambda s: getattr(s, "name", "") != "__init__")
        for stmt in order:
            if isinstance(stmt, ast.ClassDef):
                inner._run_class(stmt)
            else:
                Flow(self.unit, self.project, stmt, self).run_function(self.unit.functions[stmt])

    def run(self, body: list[ast.stmt], env: Env) -> list[ast.stmt]:
        """Interpret statements in order; definitions are returned, to be run when the whole body is known."""
        deferred: list[ast.stmt] = []
        for stmt in body:
            deferred += self._statement(stmt, env)
        return deferred

    def _statement(self, stmt: ast.stmt, env: Env) -> list[ast.stmt]:
        if isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            for decorator in stmt.decorator_list:
                self.evaluate(decorator, env)
            if isinstance(stmt, ast.ClassDef):
                for base in [*stmt.bases, *(k.value for k in stmt.keywords)]:
                    self.evaluate(base, env)
            env.pop(stmt.name, None)
            return [stmt]
        if isinstance(stmt, ast.Assign):
            kind = self.evaluate(stmt.value, env)
            for target in stmt.targets:
                self.assign(target, kind, env, stmt.value)
        elif isinstance(stmt, ast.AnnAssign):
            kind = kind_of_annotation(stmt.annotation, self.unit.resolve)
            value = self.evaluate(stmt.value, env) if stmt.value else UNKNOWN
            self.assign(stmt.target, value if value.known and value.tag != "None" else kind, env)
        elif isinstance(stmt, ast.AugAssign):
            self._augment(stmt, env)
        elif isinstance(stmt, ast.Return):
            self.returns.append(self.evaluate(stmt.value, env) if stmt.value else NONE)
        elif isinstance(stmt, (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match)):
            return self._compound(stmt, env)
        else:
            for child in ast.iter_child_nodes(stmt):
                if isinstance(child, ast.expr):
                    kind = self.evaluate(child, env)
                    if isinstance(child, (ast.Yield,)):
                        self.returns.append(kind)
            if isinstance(stmt, ast.Assert):
                self.narrow(stmt.test, env, True)
            self._registrations(stmt, env)
        return []

    def _augment(self, stmt: ast.AugAssign, env: Env) -> None:
        value = self.evaluate(stmt.value, env)
        load = self._before(stmt, env)
        self.unit.kinds[stmt.target] = load
        if load.is_tensor or value.is_tensor:
            result = load if load.is_tensor else TENSOR
        elif load.tag in ("list", "tuple") and value.tag in ("list", "tuple"):
            result = Kind("list", "", (join_all([*load.items, *value.items]),)) if load.items or value.items else load
        else:
            result = join(load, value)
        if isinstance(stmt.target, ast.Name):
            env[stmt.target.id] = result
        elif isinstance(stmt.target, ast.Subscript):
            held = self.evaluate(stmt.target.value, env)
            self.evaluate(stmt.target.slice, env)
            if held.tag in ("list", "dict") and load.tag in NUMBERS and result.tag not in NUMBERS:
                self.assign(stmt.target.value, replace(held, items=(result,)), env)

    def _before(self, stmt: ast.AugAssign, env: Env) -> Kind:
        """The kind of the target as the statement finds it: uses behind it say only what it leaves."""
        kind, name = self.evaluate(stmt.target, env), stmt.target
        if not isinstance(name, ast.Name) or env.get(name.id, UNKNOWN).known or self.captured(name).known:
            return kind
        return kind if self.unit.usage(self.owner).shown_before(name.id, stmt) else UNKNOWN

    def _compound(self, stmt: ast.stmt, env: Env) -> list[ast.stmt]:
        if isinstance(stmt, ast.If):
            self.evaluate(stmt.test, env)
            yes, no = dict(env), dict(env)
            self.narrow(stmt.test, yes, True)
            self.narrow(stmt.test, no, False)
            deferred = self.run(stmt.body, yes) + self.run(stmt.orelse, no)
            _merge(env, [e for e, body in ((yes, stmt.body), (no, stmt.orelse)) if not _leaves(body)] or [yes])
            return deferred
        if isinstance(stmt, (ast.For, ast.AsyncFor)):
            element = self.iterate(stmt.iter, env)
            return self._loop(stmt, env, element)
        if isinstance(stmt, ast.While):
            self.evaluate(stmt.test, env)
            return self._loop(stmt, env, None)
        if isinstance(stmt, (ast.With, ast.AsyncWith)):
            for item in stmt.items:
                kind = self.evaluate(item.context_expr, env)
                if item.optional_vars is not None:
                    self.assign(item.optional_vars, kind, env)
            return self.run(stmt.body, env)
        if isinstance(stmt, ast.Try):
            before = dict(env)
            deferred = self.run(stmt.body, env)
            ends = [env]
            for handler in stmt.handlers:
                other = dict(before)
                if handler.type is not None:
                    self.evaluate(handler.type, other)
                if handler.name:
                    other[handler.name] = OTHER
                deferred += self.run(handler.body, other)
                if not _leaves(handler.body):
                    ends.append(other)
            deferred += self.run(stmt.orelse, env)
            _merge(env, [dict(e) for e in ends])
            return deferred + self.run(stmt.finalbody, env)
        deferred = []
        if isinstance(stmt, ast.Match):
            self.evaluate(stmt.subject, env)
            for case in stmt.cases:
                deferred += self.run(case.body, env)
        return deferred

    def _loop(self, stmt: ast.For | ast.AsyncFor | ast.While, env: Env, element: Kind | None) -> list[ast.stmt]:
        deferred: list[ast.stmt] = []
        for _ in range(2):
            inner = dict(env)
            if isinstance(stmt, (ast.For, ast.AsyncFor)):
                self.assign(stmt.target, element or UNKNOWN, inner)
            else:
                self.narrow(stmt.test, inner, True)
            deferred = self.run(stmt.body, inner)
            _merge(env, [dict(env), inner])
        return deferred + self.run(stmt.orelse, env)


def _leaves(body: list[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], (ast.Return, ast.Raise, ast.Continue, ast.Break))


def _merge(env: Env, ends: list[Env]) -> None:
    """`env` becomes what is known after any of `ends`."""
    names = {n for e in ends for n in e}
    merged = {n: join_all([e[n] for e in ends if n in e]) for n in names if "." not in n or all(n in e for e in ends)}
    env.clear()
    env.update(merged)
