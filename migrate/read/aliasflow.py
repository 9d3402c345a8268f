"""Follow memory through one function: which names may reach which allocation before each statement.

An abstract interpretation with allocation sites and recency (Balakrishnan and Reps, "Recency-abstraction for
heap-allocated storage", SAS 2006): a site that runs again renames its earlier memory to "old", so that a tensor made in
each turn of a loop is not taken for the one of the turn before.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from .aliascalls import CALLER, FLAT, HEAP, KEPT, NONE, Env, Sites
from .aliasvalues import Values, site_of
from .facts import FunctionFacts
from .liveness import Liveness
from .scopes import parameters

if TYPE_CHECKING:
    from .alias import Aliases


class Flow(Values):
    """Runs one body. `before` holds the environment in front of each statement, over all turns of loops."""

    def __init__(self, aliases: Aliases, owner: ast.AST) -> None:
        self.aliases, self.unit, self.owner = aliases, aliases.unit, owner
        self.before: dict[ast.stmt, Env] = {}
        self.returned: Sites = NONE
        self.stored: dict[str, Sites] = {}
        self.ends: list[Env] = []
        body: list[ast.stmt] = owner.body  # type: ignore[attr-defined]
        env: Env = {CALLER: HEAP, KEPT: NONE}
        self.params: list[str] = []
        whole_scope: frozenset[str] = frozenset()
        if isinstance(owner, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self.params = [a.arg for a in parameters(owner)]
            facts = self.unit.functions[owner]
            own = self.params[0] if facts.owner is not None and self.params else None
            for name in self.params:
                env[name] = NONE if name == own else frozenset({f"param {name}"})
                env[CALLER] |= env[name]
        else:
            whole_scope = frozenset(self.unit.scopes.of[owner].bindings)
        self.live = Liveness(body, whole_scope)
        self._block(body, env)
        self.ends.append(env)

    # -- statements --------------------------------------------------------------------------------------------

    def _block(self, body: list[ast.stmt], env: Env) -> None:
        for stmt in body:
            seen = self.before.get(stmt)
            self.before[stmt] = dict(env) if seen is None else _joined(seen, env)
            self._statement(stmt, env)

    def _statement(self, stmt: ast.stmt, env: Env) -> None:
        if isinstance(stmt, ast.Assign):
            sites = self.sites(stmt.value, env)
            for target in stmt.targets:
                self._assign(target, sites, env, stmt.value)
        elif isinstance(stmt, ast.AnnAssign):
            if stmt.value is not None:
                self._assign(stmt.target, self.sites(stmt.value, env), env, stmt.value)
        elif isinstance(stmt, ast.AugAssign):
            self._augmented(stmt, env)
        elif isinstance(stmt, ast.Return):
            if stmt.value is not None:
                self.returned |= self.sites(stmt.value, env)
            self.ends.append(dict(env))
        elif isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            env[stmt.name] = NONE
        else:
            self._compound(stmt, env)

    def _compound(self, stmt: ast.stmt, env: Env) -> None:
        if isinstance(stmt, ast.If):
            self.sites(stmt.test, env)
            other = dict(env)
            self._block(stmt.body, env)
            self._block(stmt.orelse, other)
            _become(env, _joined(env, other))
        elif isinstance(stmt, (ast.For, ast.AsyncFor, ast.While)):
            self._loop(stmt, env)
        elif isinstance(stmt, (ast.With, ast.AsyncWith)):
            for item in stmt.items:
                sites = self.sites(item.context_expr, env)
                if item.optional_vars is not None:
                    self._assign(item.optional_vars, sites, env, item.context_expr)
            self._block(stmt.body, env)
        elif isinstance(stmt, ast.Try):
            start = dict(env)
            self._block(stmt.body, env)
            for handler in stmt.handlers:
                other = _joined(start, env)
                self._block(handler.body, other)
                _become(env, _joined(env, other))
            self._block(stmt.orelse, env)
            self._block(stmt.finalbody, env)
        elif isinstance(stmt, ast.Match):
            sites = self.sites(stmt.subject, env)
            for case in stmt.cases:
                other = dict(env)
                for node in ast.walk(case.pattern):
                    if isinstance(node, (ast.MatchAs, ast.MatchStar)) and node.name:
                        other[node.name] = sites
                self._block(case.body, other)
                _become(env, _joined(env, other))
        else:
            for child in ast.iter_child_nodes(stmt):
                if isinstance(child, ast.expr):
                    self.sites(child, env)

    def _loop(self, stmt: ast.For | ast.AsyncFor | ast.While, env: Env) -> None:
        sites = self.sites(stmt.iter, env) if not isinstance(stmt, ast.While) else NONE
        for _ in range(12):
            start = dict(env)
            if isinstance(stmt, ast.While):
                self.sites(stmt.test, env)
            else:
                self._assign(stmt.target, self.views(sites), env, None)
            self._block(stmt.body, env)
            _become(env, _joined(start, env))
            if env == start:
                break
        self._block(stmt.orelse, env)

    def _augmented(self, stmt: ast.AugAssign, env: Env) -> None:
        value = self.sites(stmt.value, env)
        if not isinstance(stmt.target, ast.Name):
            self.sites(stmt.target, env)
            if isinstance(stmt.target, ast.Subscript) and not self.unit.kind(stmt.target.value).is_tensor:
                self._keep(stmt.target.value, value, env)
            return
        name = stmt.target.id
        kind = self.unit.kind(stmt.target)
        if kind.tag in FLAT:
            env[name] = NONE
        elif kind.is_tensor or self.unit.kind(stmt.value).is_tensor or not _like_a_list(self.owner, name):
            env[name] = env.get(name, NONE) | self._fresh(stmt, env)
        else:
            env[name] = env.get(name, NONE) | value | self._fresh(stmt, env)

    def _assign(self, target: ast.expr, sites: Sites, env: Env, value: ast.expr | None) -> None:
        if isinstance(target, ast.Name):
            if self.unit.kind(target).tag in FLAT:
                sites = NONE
            if not self._is_own(target):
                env[KEPT] |= sites
            env[target.id] = sites
            for key in [k for k in env if k.startswith(f"{target.id}.")]:
                del env[key]
        elif isinstance(target, (ast.Tuple, ast.List)):
            parts = (
                value.elts if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts) else None
            )
            if parts is not None and not any(isinstance(e, ast.Starred) for e in [*target.elts, *parts]):
                each = [self.sites(p, env) for p in parts]
                for sub, own in zip(target.elts, each, strict=True):
                    self._assign(sub, own, env, None)
            else:
                apart = self._apart(value, sites)
                for number, sub in enumerate(target.elts):
                    self._assign(sub, frozenset({f"{apart}#{number}"}) if apart else self.views(sites), env, None)
        elif isinstance(target, ast.Starred):
            self._assign(target.value, sites, env, None)
        elif isinstance(target, ast.Attribute):
            self._assign_attribute(target, sites, env)
        elif isinstance(target, ast.Subscript):
            self.sites(target.slice, env)
            if not self.unit.kind(target.value).is_tensor:
                self._keep(target.value, sites, env)

    def _apart(self, value: ast.expr | None, sites: Sites) -> str:
        """The site of a torch call that makes several tensors at once (`topk`): no two of them share memory."""
        if not isinstance(value, ast.Call) or len(sites) != 1:
            return ""
        site = next(iter(sites))
        dotted = self.unit.resolve(value.func) or ""
        method = isinstance(value.func, ast.Attribute) and self.unit.kind(value.func.value).is_tensor
        torch = _makes_several(dotted) or method or self._hands_on(self.unit.kind(value.func).facts)
        return site if torch and site == site_of(value) else ""

    def _hands_on(self, facts: object) -> bool:
        """Whether a function of the project does nothing but return what such a call gives."""
        if not isinstance(facts, FunctionFacts):
            return False
        returns = [n.value for n in ast.walk(facts.node) if isinstance(n, ast.Return)]
        return bool(returns) and all(
            isinstance(r, ast.Call) and _makes_several(facts.unit.resolve(r.func) or "") for r in returns
        )

    def _assign_attribute(self, target: ast.Attribute, sites: Sites, env: Env) -> None:
        key = ast.unparse(target)
        if self.unit.kind(target.value).is_tensor:  # `w.data = t`: w shares t's memory from here on
            self.sites(target.value, env)
            env[KEPT] |= sites
            return
        self.stored[key] = self.stored.get(key, NONE) | sites
        env[key] = sites
        self._keep(target.value, sites, env, to_self=False)


def _like_a_list(owner: ast.AST, name: str) -> bool:
    """Whether a body loops over a name, indexes, unpacks or extends it."""
    for node in ast.walk(owner):
        if isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
            part: ast.AST = node.iter
        elif isinstance(node, (ast.Subscript, ast.Starred, ast.Attribute)):
            part = node.value
        else:
            continue
        if isinstance(part, ast.Name) and part.id == name:
            if not isinstance(node, ast.Attribute) or node.attr in ("append", "extend", "insert", "pop"):
                return True
    return False


def _joined(a: Env, b: Env) -> Env:
    """What either may be; an attribute that one side never touched keeps its first meaning there."""
    return {k: a.get(k, _untouched(k)) | b.get(k, _untouched(k)) for k in {**a, **b}}


def _untouched(key: str) -> Sites:
    return frozenset({f"attr {key}"}) if "." in key else NONE


def _become(env: Env, other: Env) -> None:
    env.clear()
    env.update(other)


def _makes_several(dotted: str) -> bool:
    return dotted.startswith("torch.") or dotted == "einops.pack"
