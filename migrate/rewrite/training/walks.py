"""`p.grad` of a model's parameters after its backward pass: by the layer's name, or in a walk over the parameters."""

from __future__ import annotations

import ast
import copy
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...read.unit import Unit
from ..plan import Plan, Whole
from .flow import uses
from .marking import backward_before, clears, gradient_nodes, zeroes
from .roles import NotPlain, is_model
from .sweeps import written

_SHARED = ("data",)
_GRAD = "torch.Tensor.grad"


@dataclass(frozen=True)
class Walk:
    """A loop or comprehension over the parameters of a module: `for name, p in model.named_parameters()`."""

    node: ast.For | ast.comprehension
    model: ast.expr
    name: str
    parameter: str

    @property
    def call(self) -> ast.Call:
        assert isinstance(self.node.iter, ast.Call)
        return self.node.iter


@dataclass(frozen=True)
class GradUse:
    """One `x.grad`, the model that x is of, the walk that x comes from (None: it is spelled `model.layer.weight`), and
    the statement of the function's own block that holds it."""

    node: ast.Attribute
    model: str
    walk: Walk | None


def grad_uses(
    unit: Unit, function: ast.AST, models: Collection[str], mine: Collection[ast.stmt | None]
) -> list[GradUse]:
    """All `x.grad` of a function, but for tensors' that are of other backward statements than `mine`. Raises NotPlain
    for one that is of no known model, or is not followed."""
    found = []
    for node in gradient_nodes(unit, function):
        walk = walk_of(unit, node)
        model = ast.unparse(walk.model) if walk is not None else _owner(unit, node.value, models)
        before = backward_before(unit, node)
        if not model and isinstance(node.value, ast.Name) and before is not None and before not in mine:
            continue
        if not model:
            raise NotPlain(f"`{ast.unparse(node)}` is read or written: in JAX gradients are values")
        use = GradUse(node, model, walk)
        if walk is None and not _is_read(unit, node):
            raise NotPlain(f"`{ast.unparse(node)}` is written: in JAX gradients are values")
        found.append(use)
    return found


def walk_of(unit: Unit, node: ast.AST) -> Walk | None:
    """The walk over parameters whose variable an `x.grad`, or a statement that clears one, is about."""
    owner = clears(node) if isinstance(node, ast.stmt) else node.value if isinstance(node, ast.Attribute) else None
    if not isinstance(owner, ast.Name):
        return None
    for up in unit.tree.ancestors(node):
        generators = getattr(up, "generators", [up] if isinstance(up, ast.For) else [])
        for generator in generators:
            found = _over(unit, generator)
            if found is not None and found.parameter == owner.id:
                return found
    return None


def _over(unit: Unit, node: ast.AST) -> Walk | None:
    if not isinstance(node, (ast.For, ast.comprehension)):
        return None
    call, target = node.iter, node.target
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.args or call.keywords:
        return None
    if not is_model(unit, call.func.value):
        return None
    if call.func.attr == "parameters" and isinstance(target, ast.Name):
        return Walk(node, call.func.value, "", target.id)
    if call.func.attr == "named_parameters" and isinstance(target, ast.Tuple) and len(target.elts) == 2:
        first, second = target.elts
        if isinstance(first, ast.Name) and isinstance(second, ast.Name):
            return Walk(node, call.func.value, first.id, second.id)
    return None


def _owner(unit: Unit, node: ast.expr, models: Collection[str]) -> str:
    """The model of `model.layer.weight`, which must be one of `models`."""
    text, at = ast.unparse(node), node
    while isinstance(at, ast.Attribute):
        at = at.value
        if ast.unparse(at) in models and text.replace(".", "").isidentifier():
            return ast.unparse(at)
    return ""


def _is_read(unit: Unit, node: ast.Attribute) -> bool:
    up = unit.tree.parents[node]
    while isinstance(up, ast.Attribute) and up.attr in _SHARED:
        up = unit.tree.parents[up]
    changed = isinstance(up, ast.Attribute) and up.attr.endswith("_") and not up.attr.startswith("_")
    return isinstance(node.ctx, ast.Load) and not changed


def place_of(unit: Unit, node: ast.AST, block: Sequence[ast.stmt]) -> int:
    """The index of the statement of a block that holds a node, -1 when there is none."""
    for up in [node, *unit.tree.ancestors(node)]:
        if isinstance(up, ast.stmt) and up in block:
            return block.index(up)
    return -1


def check_uses(plan: Plan, uses: Sequence[GradUse]) -> None:
    """Raise NotPlain when a walk does more with gradients than is understood."""
    for group in _by_walk(uses):
        _check(plan, group)


def changing(reads: Sequence[GradUse]) -> list[ast.stmt]:
    """The statements of walks that change gradients in place."""
    walks = [g[0].walk for g in _by_walk(reads) if g[0].walk is not None]
    return [s for w in walks for s in _statements(w) if _changed(w, s) or (clears(s) is not None and zeroes(s))]


def _by_walk(uses: Sequence[GradUse]) -> list[list[GradUse]]:
    walks: dict[ast.AST, list[GradUse]] = {}
    for use in uses:
        if use.walk is not None:
            walks.setdefault(use.walk.node, []).append(use)
    return list(walks.values())


def plan_uses(plan: Plan, reads: Sequence[GradUse], grads: Mapping[str, str]) -> None:
    """Write the reads and the walks, once they are checked; `grads` is the name of each model's gradient."""
    for use in reads:
        if use.walk is None:
            path = ast.unparse(use.node.value).removeprefix(f"{use.model}.")
            _replace(plan, use.node, f"{grads[use.model]}.{path}[...]")
    for group in _by_walk(reads):
        _write_walk(plan, group, grads[group[0].model])


def _replace(plan: Plan, node: ast.Attribute, text: str) -> None:
    plan.whole[node] = Whole(lambda _: text, 15)
    plan.taken |= set(ast.walk(node))
    plan.found("JM002", node, _GRAD, "the gradient by its name")


def _statements(walk: Walk) -> list[ast.stmt]:
    """The statements of a loop, also those under a question whether there is a gradient."""
    return list(_inner(walk.node.body, walk.parameter)) if isinstance(walk.node, ast.For) else []


def _inner(body: Sequence[ast.stmt], name: str) -> Iterator[ast.stmt]:
    for stmt in body:
        asked = isinstance(stmt, ast.If) and ast.unparse(stmt.test) == f"{name}.grad is not None"
        if isinstance(stmt, ast.If) and asked and not stmt.orelse and clears(stmt) is None:
            yield from _inner(stmt.body, name)
        else:
            yield stmt


def _changed(walk: Walk, stmt: ast.stmt) -> str:
    """The new gradient `g` where a statement changes p.grad and nothing else; "" when it does not."""
    marked = _renamed(stmt, walk.parameter, "g")
    found = written(marked, ["g"]) if marked is not None else None
    return found[1].replace("g[...]", "g") if found and walk.parameter not in _names(ast.parse(found[1])) else ""


def _moved(walk: Walk, stmt: ast.stmt) -> tuple[str, str] | None:
    """(parameter, its new value) where a statement changes the parameter by its gradient."""
    marked = _renamed(stmt, walk.parameter, f"{walk.parameter}_grad")
    return written(marked, [walk.parameter]) if marked is not None else None


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _renamed(stmt: ast.stmt, name: str, to: str) -> ast.stmt | None:
    """The statement with `name.grad` and `name.grad.data` as a name; None when it has none of them."""
    seen: list[ast.AST] = []

    class Names(ast.NodeTransformer):
        def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
            base = node.value if node.attr in _SHARED else node
            if isinstance(base, ast.Attribute) and base.attr == "grad" and ast.unparse(base.value) == name:
                seen.append(node)
                return ast.Name(to, node.ctx)
            return self.generic_visit(node)

    result = Names().visit(copy.deepcopy(stmt))
    return result if seen else None


def _check(plan: Plan, uses: Sequence[GradUse]) -> None:
    """Raise NotPlain when a walk writes a gradient in another way than by a statement that is understood."""
    walk = uses[0].walk
    assert walk is not None
    stmts = _statements(walk)
    changing = [s for s in stmts if _changed(walk, s)]
    if changing and len(stmts) > 1:
        raise NotPlain(f"`{ast.unparse(changing[0])[:60]}` is not alone in its loop")
    known = {n for s in stmts if clears(s) is not None or _changed(walk, s) or _moved(walk, s) for n in ast.walk(s)}
    for use in uses:
        if use.node not in known and not _is_read(plan.unit, use.node):
            raise NotPlain(f"`{ast.unparse(plan.unit.tree.statement(use.node))[:60]}` changes a gradient")


def _write_walk(plan: Plan, uses: Sequence[GradUse], grads: str) -> None:
    walk = uses[0].walk
    assert walk is not None
    stmts = _statements(walk)
    changed = [_changed(walk, s) for s in stmts]
    if isinstance(walk.node, ast.For) and len(stmts) == 1 and (new := changed[0]):
        plan.taken |= set(ast.walk(walk.node))
        plan.lines[walk.node] = lambda _: [f"{grads} = jax.tree.map(lambda g: {new}, {grads})"]
        plan.found("JM002", walk.node, _GRAD, "each gradient gets its new value")
        return
    gone = [s for s in stmts if clears(s) is not None]
    for stmt in gone:
        plan.taken |= set(ast.walk(stmt))
        plan.lines[stmt] = lambda _: []
        plan.found("JM002", stmt, _GRAD, "gradients are values: nothing to set to zero")
    if isinstance(walk.node, ast.For) and len(gone) == len(stmts):
        plan.taken |= set(ast.walk(walk.node))
        plan.lines[walk.node] = lambda _: []
        return
    for stmt in stmts:
        if stmt not in gone and (found := _moved(walk, stmt)):
            plan.taken |= set(ast.walk(stmt))
            plan.lines[stmt] = lambda _, f=found: [f"{f[0]}[...] = {f[1]}"]  # type: ignore[misc]
            plan.found("JM002", stmt, "torch.Tensor.data", "the variable gets its new value")
    _head(plan, walk, grads)
    for use in uses:
        if use.node not in plan.taken:
            _replace(plan, use.node, f"{walk.parameter}_grad")


def _head(plan: Plan, walk: Walk, grads: str) -> None:
    """`for name, p, p_grad in named_gradients(model, grads)`, with `_` for what is not read."""
    tree, call = plan.unit.tree, walk.call
    scope = walk.node if isinstance(walk.node, ast.For) else tree.parents[walk.node]
    inside = {n for n in ast.walk(scope) if isinstance(n, ast.Name)} - {*ast.walk(walk.node.target)}
    inside -= {n for u in gradient_nodes(plan.unit, scope) for n in ast.walk(u)}
    read = {n.id for n in inside} | ({walk.name, walk.parameter} if _read_later(plan, walk) else set())
    target = ", ".join(
        [*(n if n and n in read else "_" for n in (walk.name, walk.parameter)), f"{walk.parameter}_grad"]
    )
    plan.whole[walk.node.target] = Whole(lambda _: target, 15)
    plan.taken |= {call, call.func, *ast.walk(walk.node.target)}
    spelled, model = plan.layer("named_gradients"), walk.model
    plan.whole[call] = Whole(lambda w: f"{spelled}({w.at_level(model, 1)}, {grads})", 15, (model,))
    asks = any(isinstance(n, ast.Compare) and ast.unparse(n.left) == f"{walk.parameter}.grad" for n in ast.walk(scope))
    text = "the parameters with their gradients"
    if asks:
        text += "; that of a parameter without influence is zero, torch's is None"
    plan.found("JM101" if asks else "JM002", call, "torch.nn.Module.parameters", text)


def _read_later(plan: Plan, walk: Walk) -> bool:
    """Whether the variables of a loop are read outside of it."""
    if not isinstance(walk.node, ast.For):
        return False
    tree, names = plan.unit.tree, {walk.name, walk.parameter}
    for node in tree.all(ast.Name):
        if node.id in names and isinstance(node.ctx, ast.Load) and tree.function(node) is tree.function(walk.node):
            loops = [u for u in tree.ancestors(node) if isinstance(u, ast.For) and node.id in uses(u.target).writes]
            made = [g for u in tree.ancestors(node) for g in getattr(u, "generators", ())]
            if not loops and not any(node.id in uses(g.target).writes for g in made):
                return True
    return False
