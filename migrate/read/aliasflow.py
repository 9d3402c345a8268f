"""Follow memory through one function: which names may reach which allocation before each statement.

An abstract interpretation with allocation sites and recency (Balakrishnan and Reps, "Recency-abstraction for heap-allocated
storage", SAS 2006): a site that runs again renames its earlier memory to "old", so that a tensor made in each turn of a loop
is not taken for the one of the turn before.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from .facts import ClassFacts, FunctionFacts
from .kinds import CONTAINERS
from .liveness import Liveness
from .scopes import parameters
from .unit import STANDARD_LIBRARY
from .views import VIEW_ATTRIBUTES, is_view, may_be_inplace

if TYPE_CHECKING:
    from .alias import Aliases

Sites = frozenset[str]
Env = dict[str, Sites]
NONE: Sites = frozenset()
HEAP: Sites = frozenset({"heap"})
CALLER, KEPT = "<caller>", "<kept>"
FLAT = frozenset(
    ["int", "float", "bool", "str", "None", "shape", "dtype", "device", "Class", "torch", "Generator", "Function"]
)
HOLDERS = frozenset(
    [
        "zip",
        "enumerate",
        "reversed",
        "list",
        "tuple",
        "sorted",
        "iter",
        "next",
        "map",
        "filter",
        "dict",
        "set",
        "max",
        "min",
    ]
)
STORING = frozenset(
    ["append", "extend", "insert", "add", "update", "setdefault", "appendleft", "put", "push", "register_buffer"]
)


class Flow:
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
        elif kind.is_tensor or self.unit.kind(stmt.value).is_tensor:
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
        torch = dotted.startswith("torch.") or dotted == "einops.pack" or method
        return site if torch and site == _site(value) else ""

    def _assign_attribute(self, target: ast.Attribute, sites: Sites, env: Env) -> None:
        key = ast.unparse(target)
        if self.unit.kind(target.value).is_tensor:
            return
        self.stored[key] = self.stored.get(key, NONE) | sites
        env[key] = sites
        self._keep(target.value, sites, env, to_self=False)

    def _keep(self, holder: ast.expr, sites: Sites, env: Env, to_self: bool = True) -> None:
        """`holder` (a container or an object) now holds `sites` too."""
        root = holder
        while isinstance(root, (ast.Attribute, ast.Subscript, ast.Call)):
            root = root.func if isinstance(root, ast.Call) else root.value
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

    # -- expressions -------------------------------------------------------------------------------------------

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
        site = _site(node)
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
        parts = self._parts(node, env)
        kind = self.unit.kind(node)
        if kind.is_tensor:
            return self._fresh(node, env)
        return parts | self._fresh(node, env)

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

    def _comprehension(self, node: ast.AST, parts: list[ast.expr], env: Env) -> Sites:
        inner = dict(env)
        for generator in node.generators:  # type: ignore[attr-defined]
            self._assign(generator.target, self.views(self.sites(generator.iter, inner)), inner, None)
            for test in generator.ifs:
                self.sites(test, inner)
        found = frozenset().union(*(self.sites(p, inner) for p in parts))
        env[KEPT] |= inner[KEPT]
        return found

    def _ListComp(self, node: ast.ListComp, env: Env) -> Sites:
        return self._comprehension(node, [node.elt], env)

    def _SetComp(self, node: ast.SetComp, env: Env) -> Sites:
        return self._comprehension(node, [node.elt], env)

    def _GeneratorExp(self, node: ast.GeneratorExp, env: Env) -> Sites:
        return self._comprehension(node, [node.elt], env)

    def _DictComp(self, node: ast.DictComp, env: Env) -> Sites:
        return self._comprehension(node, [node.key, node.value], env)

    # -- calls -------------------------------------------------------------------------------------------------

    def _Call(self, node: ast.Call, env: Env) -> Sites:
        func = node.func
        receiver = self.sites(func.value, env) if isinstance(func, ast.Attribute) else NONE
        values = [*node.args, *(k.value for k in node.keywords)]
        each = [self.sites(v, env) for v in values]
        given = frozenset().union(*each)
        dotted = self.unit.resolve(func)
        kind = self.unit.kind(func)
        if dotted and dotted.startswith("builtins."):
            return self._builtin(dotted[9:], node, given, env)
        if dotted and not isinstance(kind.facts, (FunctionFacts, ClassFacts)):
            return self._imported(dotted, node, given, env)
        if isinstance(kind.facts, FunctionFacts):
            return self._project(kind.facts, node, env)
        if kind.tag == "Class" and isinstance(kind.facts, ClassFacts):
            self._refresh(env)
            return given
        if isinstance(func, ast.Attribute):
            found = self._method(node, func, receiver, given, env)
            if found is not None:
                return found
        if kind.tag == "Module":
            return self._module(node, given, env)
        if not isinstance(func, ast.Attribute):
            receiver |= self.sites(func, env)
        env[KEPT] |= given
        self._refresh(env)
        return given | receiver | HEAP

    def _builtin(self, name: str, node: ast.Call, given: Sites, env: Env) -> Sites:
        if name in HOLDERS:
            return given
        if name == "getattr":
            return given | HEAP
        if name == "setattr":
            env[KEPT] |= given
            return NONE
        return self._fresh(node, env) if name in ("sum", "abs") else NONE

    def _imported(self, dotted: str, node: ast.Call, given: Sites, env: Env) -> Sites:
        short = dotted.rpartition(".")[2]
        top = dotted.partition(".")[0]
        if dotted in ("copy.deepcopy", "einops.pack"):
            return self._fresh(node, env)
        if top == "torch":
            return self._torch(dotted, short, node, given, env)
        if top in ("einops", "numpy") or top in STANDARD_LIBRARY:
            return self.views(given)
        env[KEPT] |= given
        return given | HEAP

    def _torch(self, dotted: str, short: str, node: ast.Call, given: Sites, env: Env) -> Sites:
        out = next((k.value for k in node.keywords if k.arg == "out"), None)
        if out is not None:
            return self.sites(out, env)
        if self.unit.book.find(dotted) is None or dotted.startswith("torch.utils."):
            return self.views(given)
        if is_view(short) or dotted.startswith("torch.nn.init.") or may_be_inplace(node):
            return self.views(given)
        if self.unit.kind(node).tag not in ("Module", "Optimizer", "Scheduler", "Loader"):
            return self._fresh(node, env)
        if dotted.startswith("torch.nn.") and dotted not in CONTAINERS:  # sizes and flags, or a tensor to start from
            values = [*node.args, *(k.value for k in node.keywords)]
            return NONE.union(*(self.sites(v, env) for v in values if self.unit.kind(v).is_tensor))
        return given

    def _method(self, node: ast.Call, func: ast.Attribute, receiver: Sites, given: Sites, env: Env) -> Sites | None:
        """A method of a tensor, container or module; None when the value itself is called (`self.fc(x)`)."""
        base = self.unit.kind(func.value)
        if base.is_tensor:
            known = self.unit.book.find(f"torch.Tensor.{func.attr}") is not None
            if is_view(func.attr):
                return self.views(receiver)
            return self._fresh(node, env) if known else self.views(receiver | given)
        if base.tag in ("list", "dict", "tuple", "Loader"):
            if func.attr in STORING:
                self._keep(func.value, given, env)
            return receiver | given if func.attr in ("get", "setdefault", "pop") else receiver
        if base.tag in ("str", "Optimizer", "Scheduler", "Generator", *FLAT):
            return NONE
        if base.tag == "Module" and self.unit.kind(func).tag != "Module":
            return self._module_method(node, func, given, env)
        return None

    def _module_method(self, node: ast.Call, func: ast.Attribute, given: Sites, env: Env) -> Sites | None:
        if func.attr in ("register_buffer", "register_parameter") and node.args:
            name = node.args[0].value if isinstance(node.args[0], ast.Constant) else "?"
            key = f"{ast.unparse(func.value)}.{name}"
            self.stored[key] = self.stored.get(key, NONE) | given
            return NONE
        if func.attr in (
            "train",
            "eval",
            "to",
            "cuda",
            "cpu",
            "float",
            "half",
            "double",
            "requires_grad_",
            "apply",
            "zero_grad",
        ):
            return NONE
        if func.attr == "forward":
            return self._module(node, given, env)
        return None

    def _module(self, node: ast.Call, given: Sites, env: Env) -> Sites:
        func = node.func
        if isinstance(func, ast.Attribute) and func.attr == "forward":
            func = func.value
        facts = self.unit.kind(func).facts
        forward = (facts.method("forward") or facts.method("__call__")) if isinstance(facts, ClassFacts) else None
        if forward is not None:
            return self._project(forward, node, env)
        if self.aliases.modules.passes(func):
            return self.views(given) | self._fresh(node, env)
        return self._fresh(node, env)

    def _project(self, callee: FunctionFacts, node: ast.Call, env: Env) -> Sites:
        """A function of the project: what its own flow says it returns and keeps."""
        summary = self.aliases.summary(callee)
        spec = callee.node.args
        names = [a.arg for a in [*spec.posonlyargs, *spec.args]]
        if callee.owner is not None and names and not _is_static(callee.node):
            names = names[1:]
        found, kept = NONE, NONE
        starred = any(isinstance(a, ast.Starred) for a in node.args) or len(node.args) > len(names)
        pairs = [*zip(names, node.args, strict=False), *((k.arg or "", k.value) for k in node.keywords)]
        if starred:
            pairs = [("", a) for a in node.args] + [(k.arg or "", k.value) for k in node.keywords]
        for name, value in pairs:
            sites = self.sites(value, env)
            if not name or name in summary.returned or name not in names:
                found |= sites
            if not name or name in summary.kept or name not in names:
                kept |= sites
        env[KEPT] |= kept
        self._refresh(env)
        return found | self._fresh(node, env) | (HEAP if summary.heap else NONE)

    def _refresh(self, env: Env) -> None:
        """Code that we did not follow ran: attributes may have been bound again."""
        for key in [k for k in env if "." in k]:
            env[key] = env[key] | {f"attr {key}"}


def _site(node: ast.AST) -> str:
    return f"new {node.lineno}:{node.col_offset}:{type(node).__name__}"  # type: ignore[attr-defined]


def _is_path(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _is_static(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in node.decorator_list)


def _joined(a: Env, b: Env) -> Env:
    """What either may be; an attribute that one side never touched keeps its first meaning there."""
    return {k: a.get(k, _untouched(k)) | b.get(k, _untouched(k)) for k in {**a, **b}}


def _untouched(key: str) -> Sites:
    return frozenset({f"attr {key}"}) if "." in key else NONE


def _become(env: Env, other: Env) -> None:
    env.clear()
    env.update(other)
