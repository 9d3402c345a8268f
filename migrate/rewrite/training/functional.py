"""`torch.autograd.grad(y, x)` becomes `jax.grad` of the statements that make y of x, as a function.

Which statements those are is the backward slice of y in the straight line of code that leads to the call, cut where the
inputs are made. Inputs of all calls in the same line are arguments of each function, so that gradients of gradients
(`u_xx` of `u_x` of `u`) are functions that call functions.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..plan import Plan
from .flow import block_of, certain, entry_reads, uses
from .gradcalls import GradCall, bound_once, is_ones
from .marking import marks
from .roles import NotPlain, function_of
from .steady import drifting

_LOOPS = (ast.For, ast.AsyncFor, ast.While)


@dataclass(eq=False)
class Made:
    """A value as a function: `name = …` of the line, the statements that make it, its arguments.

    `folds`: the statements serve nothing else and go into the function. `kept`: the value itself is read too. `text` is
    the function's spelling where it is called; `users` are the calls that need it, `modules` its further arguments.
    """

    name: str
    stmts: tuple[ast.stmt, ...]
    params: tuple[str, ...]
    inner: tuple[Made, ...]
    folds: bool = False
    kept: bool = True
    spelled: str = ""
    users: list[GradCall] = field(default_factory=list)
    modules: tuple[str, ...] = ()

    @property
    def last(self) -> ast.Assign | ast.AugAssign:
        stmt = self.stmts[-1]
        assert isinstance(stmt, (ast.Assign, ast.AugAssign))
        return stmt

    @property
    def is_expression(self) -> bool:
        """Whether one expression says it all."""
        last = self.last
        return len(self.stmts) == 1 and isinstance(last, ast.Assign) and isinstance(last.targets[0], ast.Name)


@dataclass(frozen=True)
class Ready:
    """A call with the functions of the names in its output that are made of the inputs, and its arguments."""

    call: GradCall
    made: Mapping[ast.Name, Made]
    params: tuple[str, ...]
    modules: tuple[str, ...] = ()


class Line:
    """The calls of one function body, with the statements that lead to them. Raises NotPlain."""

    def __init__(self, plan: Plan, calls: Sequence[GradCall]) -> None:
        self.plan, self.unit, self.calls = plan, plan.unit, calls
        self.tree = plan.unit.tree
        self.inputs = self._inputs()
        self.nodes = {n for c in calls for n in ast.walk(c.node)}
        self.made: dict[tuple[str, ast.stmt], Made] = {}
        self.ones = list(dict.fromkeys(self._ones()))
        self.ready: list[Ready] = []
        for call in calls:
            self.ready.append(self._ready(call))
        self._check()
        self._fold()

    def _inputs(self) -> tuple[str, ...]:
        """The names of all inputs, in the order in which the function has them."""
        names = {n.id for c in self.calls for n in c.inputs}
        body = function_of(self.unit, self.calls[0].stmt)
        places: dict[str, int] = {}
        for node in ast.walk(body):
            name = node.arg if isinstance(node, ast.arg) else node.id if isinstance(node, ast.Name) else ""
            if name in names:
                places[name] = min(places.get(name, 1 << 60), self.tree.start(node))
        return tuple(sorted(names, key=lambda n: places[n]))

    def _ones(self) -> Iterator[ast.Assign]:
        """The statements that make nothing but the ones of grad_outputs."""
        inside = {n for c in self.calls if c.ones for n in ast.walk(c.call)}
        for node in [n for n in inside if isinstance(n, ast.Name)]:
            value = bound_once(self.unit, node)
            stmt, scope = self.tree.statement(value), self.unit.scope(node)
            if value is node or not isinstance(stmt, ast.Assign) or not is_ones(self.unit, value):
                continue
            reads = [n for n in self.tree.all(ast.Name) if n.id == node.id and isinstance(n.ctx, ast.Load)]
            if all(n in inside for n in reads if self.unit.scope(n).lookup(n.id) is scope):
                yield stmt

    def path(self, call: GradCall) -> list[ast.stmt]:
        """The statements that have run before the call's, in its block and those around it, from the innermost loop or
        function on."""
        found: list[ast.stmt] = []
        at: ast.AST = call.stmt
        while isinstance(at, ast.stmt):
            block = block_of(at, self.tree.parents)
            found = [*self._plain(block[: block.index(at)]), *found]
            at = self.tree.parents[at]
            if isinstance(at, (*_LOOPS, ast.Try, ast.Match, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                break
        return found

    def _plain(self, stmts: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Statements in order, those of `with torch.enable_grad():` in its place."""
        found: list[ast.stmt] = []
        for stmt in stmts:
            enables = isinstance(stmt, ast.With) and all(
                isinstance(i.context_expr, ast.Call)
                and self.unit.resolve(i.context_expr.func) == "torch.enable_grad"
                and i.optional_vars is None
                for i in stmt.items
            )
            found += self._plain(stmt.body) if enables and isinstance(stmt, ast.With) else [stmt]
        return found

    def _ready(self, call: GradCall) -> Ready:
        before = self.path(call)
        start = self._start(before, call)
        names = [n for n in ast.walk(call.output) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
        tainted = self._tainted(before[start:])
        made = {
            n: self._make(n.id, before[start:], tainted) for n in names if n.id in tainted and n.id not in self.inputs
        }
        direct = {n.id for n in names if n.id in self.inputs}
        params = tuple(i for i in self.inputs if i in direct or any(i in m.params for m in made.values()))
        for item in call.inputs:
            if item.id not in params:
                raise NotPlain(f"nothing in the same block makes `{ast.unparse(call.output)[:50]}` of `{item.id}`")
        for one in made.values():
            one.users.append(call)
        return Ready(call, made, params, self._modules(call, made))

    def _start(self, before: Sequence[ast.stmt], call: GradCall) -> int:
        """The index after the last statement that makes an input anew."""
        start = 0
        for i, stmt in enumerate(before):
            if uses(stmt).writes & set(self.inputs):
                start = i + 1
        for stmt in before[:start]:
            written = uses(stmt).writes & set(self.inputs)
            if written and (uses(stmt).reads - written) & set(self.inputs):
                raise NotPlain(f"`{min(written)}` is made of another input")
        own = {n.id for n in call.inputs}
        if any(uses(s).changes & own and not marks(s) for s in before[start:]):
            raise NotPlain(f"`{min(own)}` is changed in place")
        return start

    def _reads(self, stmt: ast.stmt) -> set[str]:
        """What a statement reads; a gradient in it reads the inputs of its function, or nothing when it is cut off."""
        inside = [r for r in self.ready if r.call.stmt is stmt]
        if not inside:
            return uses(stmt).reads
        names = (n for n in ast.walk(stmt) if isinstance(n, ast.Name) and n not in self.nodes)
        return {n.id for n in names if isinstance(n.ctx, ast.Load)} | {
            i for r in inside if not r.call.cut for i in r.params
        }

    def _tainted(self, stmts: Sequence[ast.stmt]) -> set[str]:
        found = set(self.inputs)
        for stmt in stmts:
            if self._reads(stmt) & found and not marks(stmt):
                found |= uses(stmt).writes
            else:
                found -= certain(stmt) - set(self.inputs)
        return found

    def _make(self, name: str, stmts: Sequence[ast.stmt], tainted: set[str]) -> Made:
        """The function of a name at the end of `stmts`. Raises NotPlain."""
        needed, chosen = {name}, []
        for i in range(len(stmts) - 1, -1, -1):
            stmt = stmts[i]
            found = uses(stmt)
            if marks(stmt) or not (found.writes | found.changes) & needed:
                continue
            here = self._tainted(stmts[:i])
            if not self._reads(stmt) & here:
                needed -= certain(stmt)
                continue
            _check_plain(stmt, needed)
            chosen.append(stmt)
            needed -= certain(stmt)
            needed |= {n for n in self._reads(stmt) & here if n not in self.inputs}
        chosen.reverse()
        if not chosen:
            raise NotPlain(f"nothing in the same block shows what `{name}` is made of")
        known = self.made.get((name, chosen[-1]))
        if known is not None:
            return known
        lost = (entry_reads(chosen) & uses(chosen).writes) - set(self.inputs)
        if lost or name not in uses(chosen[-1]).writes:
            raise NotPlain(f"`{min(lost or {name})}` is changed on the way")
        inner = tuple(m for s in chosen for r in self.ready if r.call.stmt is s for m in r.made.values())
        read = {n for s in chosen for n in self._reads(s)}
        params = tuple(i for i in self.inputs if i in read)
        self.made[name, chosen[-1]] = made = Made(name, tuple(chosen), params, inner)
        return made

    def _modules(self, call: GradCall, made: Mapping[ast.Name, Made]) -> tuple[str, ...]:
        """Modules that must be arguments, as they may keep something when they are called."""
        stmts = [s for m in made.values() for s in m.stmts]
        code: list[ast.AST] = [n for s in stmts for n in self._outside(s)]
        return drifting(self.plan, [*code, call.output])

    def _outside(self, stmt: ast.stmt) -> list[ast.AST]:
        """The parts of a statement without the gradients in it."""
        assert isinstance(stmt, (ast.Assign, ast.AugAssign))
        if not any(r.call.stmt is stmt for r in self.ready):
            return [stmt.value]
        return [n for n in ast.walk(stmt.value) if isinstance(n, ast.Call) and n not in self.nodes]

    def _check(self) -> None:
        """Nothing between the statements and the last call that uses them changes what they read."""
        for made in self.made.values():
            users = [r.call for r in self.ready if made in r.made.values()]
            users += [r.call for r in self.ready for m in r.made.values() if made in m.inner]
            last = max(users, key=lambda c: self.tree.start(c.call))
            path = [*self.path(last), last.stmt]
            if made.stmts[0] not in path:
                raise NotPlain(f"`{made.name}` is made in another block")
            self._unchanged(made, path[: path.index(last.stmt)])
        for ready in self.ready:
            if ready.modules and (len(self.ready) > 1 or len(ready.made) > 1 or ready.call.helper):
                raise NotPlain(f"nothing shows what class `{ready.modules[0]}` is of: annotate it")

    def _unchanged(self, made: Made, path: Sequence[ast.stmt]) -> None:
        """Raise NotPlain when what a statement of the function reads is another by the end of `path`."""
        own: set[str] = set()
        for part in made.stmts:
            free = (self._reads(part) - own) | set(made.params)
            own |= uses(part).writes
            for stmt in path[path.index(part) + 1 :]:
                if stmt in made.stmts or marks(stmt):
                    continue
                found, text = uses(stmt), ast.unparse(stmt).splitlines()[0][:60]
                if (found.writes | found.changes) & free:
                    raise NotPlain(f"`{text}` changes what `{made.name}` is made of")
                if _acts(stmt):
                    raise NotPlain(f"`{text}` may change what `{made.name}` is made of")

    def _fold(self) -> None:
        """Say which statements go into a function and which values are read besides."""
        body = function_of(self.unit, self.calls[0].stmt)
        reads = [n for n in ast.walk(body) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
        gone = {n for r in self.ready for n in r.made} | self._weights()
        for made in self.made.values():
            inside = {n for s in made.stmts for n in ast.walk(s)}
            others = {n.id for n in reads if n not in inside and n not in gone}
            within = {n for s in made.stmts for n in uses(s).writes} - {made.name}
            last = made.last
            single = isinstance(last, ast.AugAssign) or isinstance(last.targets[0], ast.Name)
            shared = any(s in m.stmts for m in self.made.values() if m is not made for s in made.stmts)
            alone = all((self.plan.alone(s) and self.plan.alone_to_end(s)) or s is last for s in made.stmts)
            made.kept = made.name in others or self._global({made.name})
            single = single or not made.kept
            made.folds = not within & others and single and not shared and alone and not self._global(within)
        for ready in self.ready:
            if ready.modules and any(m.kept or not m.folds for m in ready.made.values()):
                raise NotPlain(f"nothing shows what class `{ready.modules[0]}` is of: annotate it")
            for made in ready.made.values():
                made.modules = ready.modules

    def _weights(self) -> set[ast.AST]:
        """What stands in calls and is not written: their grad_outputs that are ones."""
        kept = {n for c in self.calls for part in (c.output, c.weights) if part is not None for n in ast.walk(part)}
        dropped = {n for s in self.ones for n in ast.walk(s)}
        return {n for c in self.calls for n in ast.walk(c.call) if n not in kept} | dropped

    def _global(self, names: set[str]) -> bool:
        """Whether other functions may read names of this body."""
        body = function_of(self.unit, self.calls[0].stmt)
        if not isinstance(body, ast.Module):
            inner = [n for n in ast.walk(body) if isinstance(n, (ast.FunctionDef, ast.Lambda)) and n is not body]
            return bool({n for f in inner for n in uses(f).reads} & names)
        return any(n.id in names and self.tree.function(n) is not None for n in self.tree.all(ast.Name))


def _check_plain(stmt: ast.stmt, needed: set[str]) -> None:
    """Raise NotPlain when a statement cannot become part of a function."""
    what = ast.unparse(stmt).splitlines()[0][:60]
    if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1:
        target = stmt.targets[0]
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        if all(isinstance(n, ast.Name) for n in names):
            return
    if isinstance(stmt, ast.AugAssign) and isinstance(stmt.target, ast.Name):
        return
    raise NotPlain(f"`{what}` makes `{min(needed)}`, and is no plain assignment")


def _acts(stmt: ast.stmt) -> bool:
    """Whether a statement calls something for its effect."""
    if not isinstance(stmt, ast.Expr) or isinstance(stmt.value, ast.Constant):
        return False
    call = stmt.value
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "print":
        return False
    return not (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in ("append", "zero_grad", "info", "debug")
    )
