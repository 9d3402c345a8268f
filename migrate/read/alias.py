"""Who else can see a write to a tensor: aliases that are still read when the write has happened."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass

from .aliascalls import CALLER, KEPT, NONE, Env, Sites
from .aliasflow import Flow
from .facts import ClassFacts, FunctionFacts
from .liveness import stores
from .repeats import repeats, told
from .turns import turns_around
from .unit import Unit
from .views import VIEW_ATTRIBUTES, Modules, is_view

SETUP = re.compile(r"__init__|_*(re)?(set|init)|_*load|from_")


@dataclass(frozen=True)
class Holder:
    """Someone who would see a write: `text` says who, for people; `named` when it is a name that is read later."""

    text: str
    named: bool = False


@dataclass(frozen=True)
class Summary:
    """What a function does with its parameters: names of those that its result may reach, of those that it keeps, and
    whether its result may reach other memory that outlives the call, or memory more than once."""

    returned: frozenset[str]
    kept: frozenset[str]
    heap: bool
    repeated: Sites


class Aliases:
    """Alias questions about one file, answered from flows that are run when first asked for.

    `unseen` names the parameters of a function whose callers do not notice a write.
    """

    def __init__(self, unit: Unit, unseen: Callable[[ast.AST], Sites] = lambda _: NONE) -> None:
        self.unit, self.unseen = unit, unseen
        self.modules = Modules(unit)
        self._flows: dict[ast.AST, Flow] = {}
        self._summaries: dict[FunctionFacts, Summary | None] = {}
        self._others: dict[int, Aliases] = {id(unit): self}

    def flow(self, node: ast.AST) -> Flow:
        """The flow of the function, class body or module that runs `node`."""
        owner: ast.AST = self.unit.tree.root
        for up in self.unit.tree.ancestors(node):
            if isinstance(up, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                owner = up
                break
        return self._flow(owner)

    def _flow(self, owner: ast.AST) -> Flow:
        if owner not in self._flows:
            self._flows[owner] = Flow(self, owner)
        return self._flows[owner]

    def summary(self, callee: FunctionFacts) -> Summary:
        """What `callee` does with its parameters. A function that leads back to itself is taken to do everything."""
        if callee.unit is not self.unit:
            return self._of(callee.unit).summary(callee)
        if callee in self._summaries:
            return self._summaries[callee] or self._everything(callee)
        self._summaries[callee] = None
        flow = self._flow(callee.node)
        kept = frozenset().union(*(e[KEPT] for e in flow.ends), *flow.stored.values())
        heap = any(s == "heap" or s.startswith(("outer", "attr", "var", "view")) for s in flow.returned)
        found = Summary(_parameters(flow.returned), _parameters(kept), heap, repeats(flow.returned))
        self._summaries[callee] = found
        return found

    def _of(self, unit: Unit) -> Aliases:
        other = self._others.get(id(unit))
        if other is None:
            other = self._others[id(unit)] = Aliases(unit)
            other._others, other._summaries = self._others, self._summaries
        return other

    def _everything(self, callee: FunctionFacts) -> Summary:
        spec = callee.node.args
        names = frozenset(a.arg for a in [*spec.posonlyargs, *spec.args, *spec.kwonlyargs])
        return Summary(names, names, True, NONE)

    def reached(self, stmt: ast.stmt, expr: ast.expr) -> Sites:
        """The memory that `expr` may reach in front of `stmt`."""
        return self.flow(stmt).sites(expr, self._at(stmt, expr))

    def _before(self, stmt: ast.stmt) -> Env:
        """A copy of the environment in front of a statement; that of code which is never reached is empty."""
        return dict(self.flow(stmt).before.get(stmt, {CALLER: NONE, KEPT: NONE}))

    def _at(self, stmt: ast.stmt, expr: ast.expr) -> Env:
        """The environment in front of a statement, with what the comprehensions around `expr` have bound."""
        env, flow = self._before(stmt), self.flow(stmt)
        for comprehension, depth in reversed(turns_around(self.unit, expr)):
            for generator in comprehension.generators[:depth]:
                flow.walk_over(generator, env)
        return env

    def is_temporary(self, stmt: ast.stmt, expr: ast.expr, beside: Sites = NONE) -> bool:
        """Whether nothing but `expr` itself reaches its memory, that of `beside` set aside."""
        env = self._at(stmt, expr)
        sites = self.flow(stmt).sites(expr, env) - beside
        return all(s.startswith("new") for s in sites) and not any(sites & held for held in env.values())

    def holders(
        self,
        stmt: ast.stmt,
        base: ast.expr,
        itself: bool = False,
        kept: frozenset[str] = NONE,
        renewed: frozenset[str] = NONE,
    ) -> list[Holder]:
        """Who else sees a write that `stmt` does to the memory of `base` (a name or an attribute).

        With `itself`, `base` too counts when it is read after the statement. `kept` are parameters that the function
        hands back, `renewed` are names that are bound again after the write: they do not count.
        """
        env = self._before(stmt)
        key = ast.unparse(base)
        variable = self.modules.is_variable(base)
        written, names = self._names(stmt, base, env, itself, kept)
        found = [self._name(h, base, stmt) for h in names if h not in renewed]
        if variable:
            found += self._handed_out(written, stmt) + self._repeated(base)
        else:
            found += self._outside(written, env, key, kept | self.unseen(self.flow(stmt).owner))
        if isinstance(base, ast.Attribute) and not variable:
            found += self._shared_attribute(base, stmt)
        return found

    def sharing(self, stmt: ast.stmt, base: ast.expr, kept: frozenset[str] = NONE) -> set[str]:
        """The names and attributes, read after `stmt`, that may share memory with `base`; those that it views too."""
        written, names = self._names(stmt, base, self._before(stmt), False, kept)
        return {*names, *(s.removeprefix("view var ") for s in written if s.startswith("view var "))}

    def live_after(self, stmt: ast.stmt, kept: frozenset[str] = NONE) -> frozenset[str]:
        """The names that may be read once `stmt` has run and that it does not bind."""
        return (self.flow(stmt).live.after.get(stmt, NONE) | kept) - _rebound(stmt)

    def _names(
        self, stmt: ast.stmt, base: ast.expr, env: Env, itself: bool, kept: frozenset[str]
    ) -> tuple[Sites, list[str]]:
        """What is written, and the names that see it."""
        flow = self.flow(stmt)
        written = flow.sites(base, env)
        key = ast.unparse(base)
        variable = self.modules.is_variable(base)
        itself_held: Sites = NONE
        if variable:  # who holds the Variable itself sees its new value; who holds a view of it does not
            itself_held = written
            written = flow.views(written)
            if "heap" in written:  # any Variable, so a view of any
                written |= {s for held in env.values() for s in held if s.startswith("view var ")}
        live = self.live_after(stmt, kept)
        names = [h for h in env if (h != key or itself) and self._sees(h, env, written, live)]
        names += [h for h in env if h != key and h in live and env[h] & itself_held and self._is_array(h, stmt)]
        owner = key.partition(".")[0] if isinstance(base, ast.Attribute) else ""
        names = [h for h in names if h != owner]  # the object holds what is bound to its attribute
        if variable:  # a module that holds the Variable sees its new value
            names = [h for h in names if not self._is_module(h, stmt)]
        return written, [h for h in names if h not in _rebound(stmt)]

    def _is_array(self, name: str, stmt: ast.stmt) -> bool:
        """Whether a name that is bound to a Variable takes its array (some binding of it is a plain tensor)."""
        nodes = (n for n in ast.walk(self.flow(stmt).owner) if isinstance(n, ast.Name) and n.id == name)
        return any(isinstance(n.ctx, ast.Store) and not self.modules.is_variable(n) for n in nodes)

    def _sees(self, holder: str, env: Env, written: Sites, live: frozenset[str]) -> bool:
        if holder in (CALLER, KEPT) or not env[holder] & written:
            return False
        return holder in live or "." in holder

    def _is_module(self, name: str, stmt: ast.stmt) -> bool:
        """Whether a name of the function, or an attribute anywhere in the class, is a module wherever it is bound."""
        place = self.flow(stmt).owner
        if last := name.rpartition(".")[2] if "." in name else "":
            place = self.unit.tree.class_of(stmt) or place
        kinds: set[str] = set()
        for n in ast.walk(place):
            if (
                (isinstance(n, ast.Name) and n.id == name)
                or (isinstance(n, ast.arg) and n.arg == name)
                or (isinstance(n, ast.Attribute) and n.attr == last and ast.unparse(n) == name)
            ):
                unsure = isinstance(getattr(n, "ctx", None), ast.Store) and not self.unit.kind(n).known
                kinds.add("other" if unsure else self.unit.kind(n).tag)
        return kinds - {"unknown"} == {"Module"}

    def _name(self, holder: str, base: ast.expr, stmt: ast.stmt) -> Holder:
        line = self._bound_at(holder, stmt)
        where = f"`{holder}` (line {line})" if line else f"`{holder}`"
        text = ast.unparse(base)
        return Holder(
            f"{where} is read later" if holder == text else f"{where} shares memory with `{text}`", named=True
        )

    def _bound_at(self, key: str, stmt: ast.stmt) -> int:
        flow = self.flow(stmt)
        lines = [0]
        for node in ast.walk(flow.owner):
            if (
                isinstance(node, (ast.Name, ast.Attribute))
                and isinstance(node.ctx, ast.Store)
                and ast.unparse(node) == key
            ):
                lines.append(node.lineno)
        before = [n for n in lines if n < stmt.lineno]
        return max(before) or max(lines)

    def _outside(self, written: Sites, env: Env, key: str, kept: frozenset[str]) -> list[Holder]:
        found = [Holder(f"parts of `{key}` may be the same memory ({told(written)})")] if repeats(written) else []
        for site in sorted(written & env[CALLER]):
            tag, _, name = site.partition(" ")
            if tag == "param" and name in kept:
                continue
            if tag == "param":
                found.append(Holder(f"the caller sees this write through the parameter `{name}`"))
            elif tag == "outer":
                found.append(Holder(f"`{name}` belongs to the code around this function"))
            else:
                found.append(Holder(f"nothing shows where the memory of `{key}` comes from"))
        for site in sorted(written - env[CALLER]):
            if site in env[KEPT]:
                found.append(Holder(f"a reference to the memory of `{key}` was kept elsewhere"))
            elif site.startswith("view var"):
                name = site.removeprefix("view var ")
                if name != key:
                    found.append(Holder(f"`{name}` shares memory with `{key}`"))
        return found[:2]

    def same_object(self, stmt: ast.stmt, base: ast.Attribute) -> list[Holder]:
        """Names, read later, that hold the Variable `base` itself: they must not see a value that torch binds anew."""
        flow = self.flow(stmt)
        env = self._before(stmt)
        held = frozenset(s for s in flow.sites(base, env) if s.startswith("var "))
        live = flow.live.after.get(stmt, frozenset())
        return [self._name(h, base, stmt) for h in env if h != ast.unparse(base) and h in live and env[h] & held]

    def _handed_out(self, written: Sites, stmt: ast.stmt) -> list[Holder]:
        """Whether a method returns a view of the Variable, which its caller may hold when a later call writes to it."""
        method = self.unit.tree.function(stmt)
        facts = self.unit.functions.get(method) if method is not None else None
        if facts is None or facts.owner is None or SETUP.match(facts.name):
            return []
        for other in (m for c in facts.owner.family if c.unit is self.unit for m in c.methods.values()):
            flow = self._flow(other.node)
            given = flow.returned | (flow.views(flow.returned) if other.name in ("forward", "__call__") else NONE)
            for site in sorted(given & written):
                if site.startswith("view var "):
                    return [Holder(f"{other.name}() hands out `{site.removeprefix('view var ')}`")]
        return []

    def _repeated(self, base: ast.expr) -> list[Holder]:
        """Whether the Variable was made of memory that stands in several of its parts."""
        facts = self.unit.kind(base.value).facts if isinstance(base, ast.Attribute) else None
        for method in (m for c in facts.lineage() for m in c.methods.values()) if isinstance(facts, ClassFacts) else ():
            for key, sites in self._of(method.unit)._flow(method.node).stored.items():
                if key.partition(".")[2] == base.attr and repeats(sites):  # type: ignore[attr-defined]
                    return [Holder(f"parts of `{key}` may be the same memory ({told(sites)})")]
        return []

    def _shared_attribute(self, base: ast.Attribute, stmt: ast.stmt) -> list[Holder]:
        """Whether a plain tensor attribute may be reached from outside: given in, handed out, or stored twice."""
        facts = self.unit.kind(base.value).facts
        text = f"`{ast.unparse(base)}` may be held elsewhere"
        if not isinstance(facts, ClassFacts) or not isinstance(base.value, ast.Name):
            return [Holder(text)]
        if self.unit.kind(base.value).tag != "Class" and facts.shared(base.attr):
            return [Holder(f"`{base.attr}` is bound in the class: all its objects see the write")]
        for cls in facts.family:
            if cls.unit is not self.unit:
                return [Holder(text)]
            for method in cls.methods.values():
                reason = self._leaks(method, base.attr)
                if reason:
                    return [Holder(reason)]
        if any(self._read_elsewhere(n, base.attr) for n in self.unit.tree.parents):
            return [Holder(f"`.{base.attr}` is read from outside its class")]
        return []

    def _leaks(self, method: FunctionFacts, attr: str) -> str:
        flow = self._flow(method.node)
        own = flow.params[0] if flow.params else ""
        key = f"{own}.{attr}"
        mine = {f"attr {key}"}
        for stored, sites in flow.stored.items():
            given = {s for s in sites if s.startswith("param ") and self._only_given_new(method, s[6:])}
            if stored == key and any(not s.startswith(("new", "old", f"attr {key}")) for s in sites - given):
                return f"`{key}` is set in {method.name}() to memory that others may hold"
            if stored == key:
                mine |= sites
        for stored, sites in flow.stored.items():
            if stored != key and mine & sites:
                return f"`{stored}` shares memory with `{key}` ({method.name}())"
        ends = frozenset().union(*(e[KEPT] for e in flow.ends))
        if mine & (flow.returned | ends):
            return f"{method.name}() hands out `{key}`"
        return ""

    def _only_given_new(self, method: FunctionFacts, name: str) -> bool:
        """Whether every call of a method passes memory for this parameter that nobody else holds.

        For `__init__` these are the calls of the class. The file must be the whole program as far as its calls go: a
        method that nothing here calls may be given anything.
        """
        unit = self.unit
        calls = [n for n in unit.tree.all(ast.Call) if self._may_call(n, method)]
        spec = method.node.args
        names = [a.arg for a in [*spec.posonlyargs, *spec.args]][1:]
        for call in calls:
            given = dict(zip(names, call.args, strict=False)) | {k.arg or "": k.value for k in call.keywords}
            starred = "" in given or any(isinstance(a, ast.Starred) for a in call.args)
            if starred or name not in given or not self.is_temporary(unit.tree.statement(call), given[name]):
                return False
        return bool(calls)

    def _may_call(self, node: ast.Call, method: FunctionFacts) -> bool:
        kind = self.unit.kind(node.func)
        if method.name == "__init__":
            return isinstance(kind.facts, ClassFacts) and kind.facts.method("__init__") is method
        return kind.facts is method or (
            isinstance(node.func, ast.Attribute) and node.func.attr == method.name and not kind.facts
        )

    def _read_elsewhere(self, node: ast.AST, attr: str) -> bool:
        """Whether the attribute is read outside its class in a way that may keep its memory."""
        if not isinstance(node, ast.Attribute) or node.attr != attr or not isinstance(node.ctx, ast.Load):
            return False
        if (isinstance(node.value, ast.Name) and node.value.id == "self") or self.unit.resolve(node):
            return False
        return self._is_held(node)

    def _is_held(self, node: ast.expr) -> bool:
        """Whether what uses an expression may keep (a view of) it."""
        unit = self.unit
        up = unit.tree.parents.get(node)
        if isinstance(up, (ast.BinOp, ast.Compare, ast.UnaryOp)):
            return not unit.kind(up).is_tensor
        if isinstance(up, ast.Subscript) and up.value is node:
            return isinstance(up.ctx, ast.Load) and self._is_held(up)
        if isinstance(up, ast.Subscript):
            return False
        if isinstance(up, ast.Attribute):
            call = unit.tree.parents.get(up)
            if not isinstance(call, ast.Call) or call.func is not up:
                return up.attr in VIEW_ATTRIBUTES and self._is_held(up)
            known = unit.kind(node).is_tensor and unit.book.find(f"torch.Tensor.{up.attr}") is not None
            return not known or (is_view(up.attr) and self._is_held(call))
        if isinstance(up, ast.Call):
            dotted = unit.resolve(up.func) or ""
            fresh = dotted.startswith("torch.") and unit.book.find(dotted) is not None
            return not fresh or is_view(dotted.rpartition(".")[2])
        return not isinstance(up, (ast.Expr, ast.AugAssign))


def _rebound(stmt: ast.stmt) -> frozenset[str]:
    """Names and attributes that the statement binds again after its value is computed."""
    targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target] if isinstance(stmt, ast.AnnAssign) else []
    return frozenset(ast.unparse(t) for t in targets if isinstance(t, (ast.Name, ast.Attribute))) | (
        stores(stmt) if targets else frozenset()
    )


def _parameters(sites: Sites) -> frozenset[str]:
    return frozenset(s.removeprefix("param ") for s in sites if s.startswith("param "))
