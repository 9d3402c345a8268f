"""What memory the value of an expression may reach: the expressions of the alias analysis."""

from __future__ import annotations

import ast

from .aliascalls import CALLER, FLAT, HEAP, KEPT, NONE, Calls, Env, Sites
from .repeats import repeated, repeats_of_items
from .views import VIEW_ATTRIBUTES

SEVERAL = ("list", "tuple")
# Operators whose result is new, whatever the operands are: containers have none of them.
ARITHMETIC = (ast.Div, ast.FloorDiv, ast.Pow, ast.MatMult, ast.LShift, ast.RShift)


class Values(Calls):
    """Evaluates expressions of one body to sites, noting in `env` who keeps what."""

    owner: ast.AST
    params: list[str]
    returned: Sites

    def _assign(self, target: ast.expr, sites: Sites, env: Env, value: ast.expr | None) -> None:
        raise NotImplementedError

    def sites(self, node: ast.expr, env: Env) -> Sites:
        """The memory that the value of `node` may reach."""
        method = getattr(self, f"_{type(node).__name__}", None)
        found: Sites = method(node, env) if method else self._parts(node, env)
        return NONE if self.unit.kind(node).tag in FLAT else found

    def _parts(self, node: ast.AST, env: Env) -> Sites:
        found = NONE
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                found |= self.sites(child, env)
            elif isinstance(child, ast.keyword):
                found |= self.sites(child.value, env)
        return found

    def views(self, sites: Sites) -> Sites:
        """What a view of `sites` reaches: a view of a Variable is no longer the Variable itself."""
        return frozenset(f"view {s}" if s.startswith("var ") else s for s in sites)

    def _fresh(self, node: ast.AST, env: Env) -> Sites:
        site = site_of(node)
        for key, held in env.items():
            earlier = {s for s in held if s.partition("#")[0] == site}
            if earlier:
                env[key] = (held - earlier) | {f"old {s}" for s in earlier}
        return frozenset({site})

    def _Constant(self, node: ast.Constant, env: Env) -> Sites:
        return NONE

    def _JoinedStr(self, node: ast.JoinedStr, env: Env) -> Sites:
        return NONE

    def _Lambda(self, node: ast.Lambda, env: Env) -> Sites:
        return NONE

    def _Name(self, node: ast.Name, env: Env) -> Sites:
        if node.id in env:
            return env[node.id]
        if self._is_own(node) or self.unit.resolve(node) or self.unit.local(node):
            return NONE
        env[CALLER] |= {f"outer {node.id}"}
        return frozenset({f"outer {node.id}"})

    def _Attribute(self, node: ast.Attribute, env: Env) -> Sites:
        if self.unit.resolve(node):
            return NONE
        base = self.sites(node.value, env)
        kind = self.unit.kind(node.value)
        if kind.is_tensor:
            if node.attr in VIEW_ATTRIBUTES:
                return self.views(base)
            return HEAP if node.attr == "grad" else NONE
        if not _is_path(node):
            return base | HEAP
        key = ast.unparse(node)
        if key not in env:
            env[key] = self.initial(node)
        return env[key] | base

    def initial(self, node: ast.Attribute) -> Sites:
        """What an attribute reaches before this body writes to it."""
        kind = "var" if self.unit.kind(node).tag == "Variable" else "attr"
        return frozenset({f"{kind} {ast.unparse(node)}"})

    def _Subscript(self, node: ast.Subscript, env: Env) -> Sites:
        base = self.sites(node.value, env)
        self.sites(node.slice, env)
        if self.unit.kind(node.value).is_tensor:
            return self._fresh(node, env) if self.copies(node.slice) else self.views(base)
        return base

    def copies(self, index: ast.expr) -> bool:
        """Whether indexing a tensor with this makes new memory: a list or a tensor is in it."""
        parts = index.elts if isinstance(index, ast.Tuple) else [index]
        return any(
            isinstance(p, (ast.List, ast.ListComp)) or self.unit.kind(p).tag in ("Tensor", "Variable", "list", "numpy")
            for p in parts
        )

    def _BinOp(self, node: ast.BinOp, env: Env) -> Sites:
        parts = [self.sites(node.left, env), self.sites(node.right, env)]
        if self.unit.kind(node).is_tensor or isinstance(node.op, ARITHMETIC):
            return self._fresh(node, env)
        again = NONE
        if any(self.unit.kind(p).tag in SEVERAL for p in (node.left, node.right)):
            times = isinstance(node.op, ast.Mult) and any(parts)
            again = repeated("a list times a number", node) if times else repeats_of_items(parts, node)
        return NONE.union(*parts, again, self._fresh(node, env))

    def _List(self, node: ast.List, env: Env) -> Sites:
        items = [self.sites(e, env) for e in node.elts]
        return NONE.union(*items, repeats_of_items(items, node))

    def _UnaryOp(self, node: ast.UnaryOp, env: Env) -> Sites:
        parts = self._parts(node, env)
        return parts if isinstance(node.op, ast.UAdd) else self._fresh(node, env)

    def _Compare(self, node: ast.Compare, env: Env) -> Sites:
        self._parts(node, env)
        return self._fresh(node, env)

    def _IfExp(self, node: ast.IfExp, env: Env) -> Sites:
        self.sites(node.test, env)
        return self.sites(node.body, env) | self.sites(node.orelse, env)

    def _NamedExpr(self, node: ast.NamedExpr, env: Env) -> Sites:
        sites = self.sites(node.value, env)
        self._assign(node.target, sites, env, node.value)
        return sites

    def _Yield(self, node: ast.Yield, env: Env) -> Sites:
        if node.value is not None:
            sites = self.sites(node.value, env)
            env[KEPT] |= sites
            self.returned |= sites
        return HEAP

    def _YieldFrom(self, node: ast.YieldFrom, env: Env) -> Sites:
        env[KEPT] |= self.sites(node.value, env)
        return HEAP

    def _comprehension(self, node: ast.expr, parts: list[ast.expr], env: Env) -> Sites:
        inner, last = dict(env), NONE
        for generator in node.generators:  # type: ignore[attr-defined]
            last = self.walk_over(generator, inner)
            for test in generator.ifs:
                self.sites(test, inner)
        found = NONE.union(*(self.sites(p, inner) for p in parts))
        env[KEPT] |= inner[KEPT]
        again = found & NONE.union(*inner.values()) - last  # no turn makes or takes these anew
        return found | (repeated("a tensor held twice", node) if again else NONE)

    def walk_over(self, generator: ast.comprehension, env: Env) -> Sites:
        """Bind the target of a `for … in` of a comprehension. Returns what it may reach."""
        sites = self.views(self.sites(generator.iter, env))
        self._assign(generator.target, sites, env, None)
        return sites

    def _ListComp(self, node: ast.ListComp, env: Env) -> Sites:
        return self._comprehension(node, [node.elt], env)

    def _SetComp(self, node: ast.SetComp, env: Env) -> Sites:
        return self._comprehension(node, [node.elt], env)

    def _GeneratorExp(self, node: ast.GeneratorExp, env: Env) -> Sites:
        return self._comprehension(node, [node.elt], env)

    def _DictComp(self, node: ast.DictComp, env: Env) -> Sites:
        return self._comprehension(node, [node.key, node.value], env)

    def _keep(self, holder: ast.expr, sites: Sites, env: Env, to_self: bool = True) -> None:
        """`holder` (a container or an object) now holds `sites` too."""
        root = holder
        while isinstance(root, (ast.Attribute, ast.Subscript, ast.Call)):
            root = root.func if isinstance(root, ast.Call) else root.value
        if isinstance(holder, ast.Attribute) and self.params and ast.unparse(holder.value) == self.params[0]:
            key = ast.unparse(holder)
            self.stored[key] = self.stored.get(key, NONE) | sites
        if not isinstance(root, ast.Name):
            env[KEPT] |= sites
        elif self.unit.kind(root).tag == "Module" and self.params and root.id == self.params[0]:
            if to_self:
                env[KEPT] |= sites
        elif self._is_own(root):
            env[root.id] = env.get(root.id, NONE) | sites
            if any(s.startswith(("param", "outer", "heap")) for s in env[root.id]):
                env[KEPT] |= sites
        else:
            env[KEPT] |= sites

    def _is_own(self, node: ast.Name) -> bool:
        """Whether the name belongs to the body that this flow runs (or to a comprehension in it)."""
        scope = self.unit.scope(node).lookup(node.id)
        while scope is not None and scope.kind == "comprehension":
            scope = scope.parent
        return scope is not None and scope.node is self.owner


def site_of(node: ast.AST) -> str:
    """The name of the memory that `node` makes."""
    return f"new {node.lineno}:{node.col_offset}:{type(node).__name__}"  # type: ignore[attr-defined]


def _is_path(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)
