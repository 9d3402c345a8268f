"""Scopes and bindings: which binding a name leads to, as Python's own rules say."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from .source import below

ScopeKind = Literal["module", "class", "function", "comprehension"]
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True)
class Binding:
    """One place where a name gets a value. `node` is the statement, definition, argument or target."""

    name: str
    kind: Literal["import", "from", "star", "assign", "param", "def", "class", "for", "with", "except", "other"]
    node: ast.AST
    target: str = ""  # of an import: the dotted name it stands for


@dataclass
class Scope:
    kind: ScopeKind
    node: ast.AST
    parent: Scope | None
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    globals: set[str] = field(default_factory=set)
    nonlocals: set[str] = field(default_factory=set)
    stars: list[str] = field(default_factory=list)

    def bind(self, binding: Binding) -> None:
        if binding.name in self.globals:
            self.module().bindings.setdefault(binding.name, []).append(binding)
        elif binding.name in self.nonlocals and self.parent is not None:
            self.parent.bind_upwards(binding)
        else:
            self.bindings.setdefault(binding.name, []).append(binding)

    def bind_upwards(self, binding: Binding) -> None:
        scope: Scope | None = self
        while scope is not None and scope.parent is not None:
            if scope.kind == "function" and binding.name in scope.bindings:
                break
            scope = scope.parent
        (scope or self).bindings.setdefault(binding.name, []).append(binding)

    def module(self) -> Scope:
        scope = self
        while scope.parent is not None:
            scope = scope.parent
        return scope

    def lookup(self, name: str) -> Scope | None:
        """The scope that binds `name` as seen from here, or None (a builtin or undefined)."""
        scope: Scope | None = self
        first = True
        if name in self.globals:
            return self.module() if name in self.module().bindings else None
        while scope is not None:
            if name in scope.bindings and (first or scope.kind != "class"):
                return scope
            if scope.kind != "comprehension":
                first = False
            scope = scope.parent
        return None


class Scopes:
    """All scopes of a file. `package` is the dotted package of the file, for relative imports ("" when unknown).

    `homes` are the scopes in which names stand. `replaced` are classes that take the place of an import of their name,
    which at most their bases read (`class Dataset(Dataset)`), with what they replace.
    """

    def __init__(self, root: ast.Module, package: str = "") -> None:
        self.package = package
        self.of: dict[ast.AST, Scope] = {}
        self.homes: dict[ast.Name, Scope] = {}
        self.module = self._open("module", root, None)
        self._body(root.body, self.module)
        self.replaced = {c: b for c in root.body if isinstance(c, ast.ClassDef) if (b := self._replaced(c))}
        for cls in self.replaced:
            self.module.bindings[cls.name] = [b for b in self.module.bindings[cls.name] if b.node is cls]

    def scope_of(self, node: ast.AST, parents: dict[ast.AST, ast.AST]) -> Scope:
        """The scope in which the expression or statement `node` is evaluated."""
        if isinstance(node, ast.Name) and node in self.homes:
            return self.homes[node]
        below, child, up = node, node, parents.get(node)
        while up is not None:
            if up in self.of and not _outside(below, child, up):
                return self.of[up]
            below, child, up = child, up, parents.get(up)
        return self.module

    def _replaced(self, cls: ast.ClassDef) -> list[Binding]:
        bindings = self.module.bindings[cls.name]
        others = [b for b in bindings if b.node is not cls]
        if not others or any(b.kind not in ("import", "from") or b.node.lineno >= cls.lineno for b in others):  # type: ignore[attr-defined]
            return []
        reads = (n for n in self.homes if n.id == cls.name and n not in cls.bases)
        return others if all(n.lineno > cls.lineno for n in reads) else []

    def base_of(self, node: ast.AST, owner: ast.AST | None) -> list[Binding]:
        """What a base of `owner` leads to that has its name, [] for any other name."""
        cls = owner if isinstance(owner, ast.ClassDef) else None
        own = cls is not None and isinstance(node, ast.Name) and node.id == cls.name and node in cls.bases
        return self.replaced.get(cls, []) if own and cls is not None else []

    def _open(self, kind: ScopeKind, node: ast.AST, parent: Scope | None) -> Scope:
        scope = Scope(kind, node, parent)
        self.of[node] = scope
        return scope

    def _body(self, body: Iterable[ast.stmt], scope: Scope) -> None:
        body = list(body)
        for stmt in _own_statements(body):
            if isinstance(stmt, ast.Global):
                scope.globals.update(stmt.names)
            elif isinstance(stmt, ast.Nonlocal):
                scope.nonlocals.update(stmt.names)
        for stmt in body:
            self._visit(stmt, scope)

    def _visit(self, node: ast.AST, scope: Scope) -> None:
        how = _VISITS.get(node.__class__)
        if how is not None:
            how(self, node, scope)
            return
        for child in below(node):
            self._visit(child, scope)

    def _name(self, node: ast.Name, scope: Scope) -> None:
        self.homes[node] = scope
        if not isinstance(node.ctx, ast.Load):
            scope.bind(Binding(node.id, "assign", node))

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> None:
        scope.bind(Binding(node.name, "def", node))
        self._outer(node, scope)
        inner = self._open("function", node, scope)
        self._params(node.args, inner)
        self._body(node.body, inner)

    def _lambda(self, node: ast.Lambda, scope: Scope) -> None:
        self._defaults(node.args, scope)
        inner = self._open("function", node, scope)
        self._params(node.args, inner)
        self._visit(node.body, inner)

    def _class(self, node: ast.ClassDef, scope: Scope) -> None:
        scope.bind(Binding(node.name, "class", node))
        for part in [*node.decorator_list, *node.bases, *(k.value for k in node.keywords)]:
            self._visit(part, scope)
        self._body(node.body, self._open("class", node, scope))

    def _named(self, node: ast.NamedExpr, scope: Scope) -> None:
        holder = scope
        while holder.kind == "comprehension" and holder.parent is not None:
            holder = holder.parent
        holder.bind(Binding(node.target.id, "assign", node))
        self.homes[node.target] = holder
        self._visit(node.value, scope)

    def _captured(self, node: ast.ExceptHandler | ast.MatchAs | ast.MatchStar | ast.MatchMapping, scope: Scope) -> None:
        name = node.rest if isinstance(node, ast.MatchMapping) else node.name
        if name:
            scope.bind(Binding(name, "except" if isinstance(node, ast.ExceptHandler) else "other", node))
        for child in below(node):
            self._visit(child, scope)

    def free(self) -> Iterator[ast.Name]:
        """Names that are read and that nothing binds: builtins, what a star import may bring, undefined ones."""
        known: dict[tuple[int, str], bool] = {}
        for node, scope in self.homes.items():
            if isinstance(node.ctx, ast.Load):
                key = (id(scope), node.id)
                if key not in known:
                    known[key] = scope.lookup(node.id) is None
                if known[key]:
                    yield node

    def _outer(self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> None:
        for part in node.decorator_list:
            self._visit(part, scope)
        self._defaults(node.args, scope)
        for arg in _all_args(node.args):
            if arg.annotation is not None:
                self._visit(arg.annotation, scope)
        if node.returns is not None:
            self._visit(node.returns, scope)

    def _defaults(self, args: ast.arguments, scope: Scope) -> None:
        for default in [*args.defaults, *args.kw_defaults]:
            if default is not None:
                self._visit(default, scope)

    def _params(self, args: ast.arguments, scope: Scope) -> None:
        for arg in _all_args(args):
            scope.bind(Binding(arg.arg, "param", arg))

    def _comprehension(self, node: ast.AST, scope: Scope) -> None:
        generators: list[ast.comprehension] = node.generators  # type: ignore[attr-defined]
        self._visit(generators[0].iter, scope)
        inner = self._open("comprehension", node, scope)
        for number, generator in enumerate(generators):
            self._visit(generator.target, inner)
            if number:
                self._visit(generator.iter, inner)
            for test in generator.ifs:
                self._visit(test, inner)
        if isinstance(node, ast.DictComp):
            self._visit(node.key, inner)
            self._visit(node.value, inner)
        else:
            self._visit(node.elt, inner)  # type: ignore[attr-defined]

    def _import(self, node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname:
                    scope.bind(Binding(alias.asname, "import", node, alias.name))
                else:
                    top = alias.name.split(".")[0]
                    scope.bind(Binding(top, "import", node, top))
            return
        base = self.absolute(node)
        for alias in node.names:
            if alias.name == "*":
                scope.stars.append(base)
            else:
                dot = "" if not base or base.endswith(".") else "."
                scope.bind(Binding(alias.asname or alias.name, "from", node, f"{base}{dot}{alias.name}"))

    def absolute(self, node: ast.ImportFrom) -> str:
        """The dotted module of a `from … import`; relative ones start with the package, or with dots when unknown."""
        if not node.level:
            return node.module or ""
        parts = self.package.split(".") if self.package else []
        if len(parts) >= node.level:
            head = ".".join(parts[: len(parts) - node.level + 1])
            return f"{head}.{node.module}" if node.module else head
        return "." * node.level + (node.module or "")


def _outside(below: ast.AST, child: ast.AST, owner: ast.AST) -> bool:
    """Whether `child`, directly below a scope's node, is evaluated in the scope around it (we come from `below`)."""
    if isinstance(owner, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return child in owner.decorator_list or child is owner.returns or isinstance(child, ast.arguments)
    if isinstance(owner, ast.Lambda):
        return isinstance(child, ast.arguments)
    if isinstance(owner, ast.ClassDef):
        return child not in owner.body
    if isinstance(owner, COMPREHENSIONS):
        first = owner.generators[0]
        return child is first and below is first.iter
    return False


def _all_args(args: ast.arguments) -> Iterator[ast.arg]:
    yield from args.posonlyargs
    yield from args.args
    if args.vararg:
        yield args.vararg
    yield from args.kwonlyargs
    if args.kwarg:
        yield args.kwarg


def _own_statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """All statements of a scope, nested blocks included, inner functions and classes not entered."""
    for stmt in body:
        yield stmt
        if isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            for sub in getattr(stmt, name, []):
                yield from _own_statements([sub] if isinstance(sub, ast.stmt) else sub.body)


def parameters(node: FunctionNode) -> list[ast.arg]:
    """All parameters of a function, in order."""
    return list(_all_args(node.args))


_VISITS: Mapping[type, Callable[[Scopes, Any, Scope], None]] = {
    ast.Name: Scopes._name,
    ast.Import: Scopes._import,
    ast.ImportFrom: Scopes._import,
    ast.FunctionDef: Scopes._function,
    ast.AsyncFunctionDef: Scopes._function,
    ast.Lambda: Scopes._lambda,
    ast.ClassDef: Scopes._class,
    ast.NamedExpr: Scopes._named,
    ast.ExceptHandler: Scopes._captured,
    ast.MatchAs: Scopes._captured,
    ast.MatchStar: Scopes._captured,
    ast.MatchMapping: Scopes._captured,
    **dict.fromkeys(COMPREHENSIONS, Scopes._comprehension),
}
