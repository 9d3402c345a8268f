"""A backward pass without an optimizer, whose gradients are read as `x.grad`: they get names."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ...read.unit import Unit
from ..plan import Plan, Whole
from .callees import is_backward
from .clips import read_clip
from .flow import block_of, certain, uses
from .functional_text import operator, unmark
from .held import check_held
from .leaves import Leaves, find_leaves, made_here
from .loops import fresh, pass_names, plan_clip, write_pass
from .marking import backward_before, clears, gradient_nodes, keeps_tensors, zeroes
from .optimizers import known_elsewhere
from .roles import NotPlain, function_of, is_model, method_call
from .separate import separate
from .slices import Place, depends, find_region
from .sources import Source
from .steps import Pass, Routine, backward_arguments, method_owner
from .walks import changing, check_uses, grad_uses, place_of, plan_uses, walk_of

_LOOPS = (ast.For, ast.While, ast.AsyncFor)
_SIGNS = {"sub_": "-=", "add_": "+=", "mul_": "*=", "div_": "/=", "copy_": "="}


def plan_gradient(plan: Plan, call: ast.Call) -> Routine:
    """Convert `loss.backward()` with the reads of `.grad` that follow, and give it as training code without an update.
    Raises NotPlain when it is not of that form."""
    unit = plan.unit
    assert isinstance(call.func, ast.Attribute)
    stmt = unit.tree.parents[call]
    if not isinstance(stmt, ast.Expr):
        raise NotPlain("the value of backward() is used")
    backward_arguments(call)
    function = function_of(unit, stmt)
    block = block_of(stmt, unit.tree.parents)
    others = [n for n in ast.walk(function) if is_backward(n) and n is not call]
    nodes = list(gradient_nodes(unit, function))
    bases = [n.value for n in nodes]
    if not bases:
        raise NotPlain("no optimizer.step() follows in the same block")
    own = [n for n in nodes if backward_before(unit, n) in (stmt, None)]
    plain = bool(own) and all(isinstance(n.value, ast.Name) and not is_model(unit, n.value) for n in own)
    if plain and not any(walk_of(unit, n) is not None for n in own):
        _apart(plan, stmt, block, function, others, {ast.unparse(n.value) for n in own})
        one = _of_leaves(plan, call, stmt, block, function)
    else:
        if others:
            raise NotPlain("several backward passes in one function")
        one = _of_model(plan, call, stmt, block, function)
    return Routine(function, (one,), (), {}, ())


def _apart(
    plan: Plan, stmt: ast.Expr, block: Sequence[ast.stmt], function: ast.AST, others: Sequence[ast.AST], names: set[str]
) -> None:
    """Raise NotPlain when another backward pass may add to the gradients of the names: each must be made anew after the
    passes before it."""
    unit = plan.unit
    if others and (any(isinstance(u, _LOOPS) for u in _around(unit, stmt, function)) or block != _body(function)):
        raise NotPlain("several backward passes in one function")
    at = block.index(stmt)
    places = [place_of(unit, o, block) for o in others]
    last = max((p for p in places if p < at), default=-1)
    made = {n for s in block[last + 1 : at] for n in certain(s)}
    if last >= 0 and names - made:
        raise NotPlain(f"several backward passes may add to the gradient of `{min(names - made)}`")


def _body(function: ast.AST) -> list[ast.stmt]:
    return function.body if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)) else []


def _of_leaves(plan: Plan, call: ast.Call, stmt: ast.Expr, block: Sequence[ast.stmt], function: ast.AST) -> Pass:
    """The gradients of single tensors."""
    unit = plan.unit
    assert isinstance(call.func, ast.Attribute)
    found = find_leaves(plan, function, block, stmt)
    steps = any(method_call(n, "step") is not None for n in ast.walk(function))
    zeros = [] if steps else _module_zeros(plan, function)
    source = Source((), found.names)
    region = find_region(plan, Place(function, block, stmt, 0, (*found.gone, *zeros)), [call.func.value], source)
    if steps and region.others:
        raise NotPlain("no optimizer.step() follows in the same block")
    _plain_arguments(plan, region.stmts, found, stmt)
    clips = [c for s in block[block.index(stmt) + 1 :] if (c := read_clip(unit, s, source)) is not None]
    later = [
        n
        for n in ast.walk(function)
        if is_backward(n) and unit.tree.start(n) > unit.tree.end(stmt) and depends(plan, function, n.func.value, source)  # type: ignore[attr-defined]
    ]
    check_held(unit, found.reads, [*later, *(s for s in found.gone if zeroes(s)), *(c.stmt for c in clips)])
    each = {leaf: fresh(plan, stmt, (f"{leaf}_grad", f"grad_of_{leaf}")) for leaf in found.names}
    grads = ", ".join(each.values()) if len(each) == 1 else f"({', '.join(each.values())})"
    units = {source.units[0]: grads}
    one = Pass((stmt,), (call.func.value,), source, region, dict.fromkeys(source.units, "first"))
    write_pass(plan, one, pass_names(plan, one, units))
    for clip in clips:
        plan_clip(plan, clip, units)
    unmark(plan, function, found.names)
    _remove_zeros(plan, (*found.gone, *zeros))
    _plan_data(plan, function, found.names)
    for read in found.reads:
        assert isinstance(read.value, ast.Name)
        variable = "[...]" if unit.kind(read.value).tag == "Variable" else ""
        _replace(plan, read, each[read.value.id] + variable)
    _report(plan, stmt, source, found.before)
    return one


def _no_step(function: ast.AST) -> None:
    """Raise NotPlain when the function steps an optimizer."""
    for node in ast.walk(function):
        if method_call(node, "step") is not None:
            raise NotPlain("no optimizer.step() follows in the same block")


def _module_zeros(plan: Plan, function: ast.AST) -> list[ast.stmt]:
    """The statements `model.zero_grad()`: the model's own gradients are not used here."""
    found: list[ast.stmt] = []
    for node in ast.walk(function):
        call = method_call(node, "zero_grad")
        if call is not None and isinstance(call.func, ast.Attribute) and isinstance(node, ast.stmt):
            if not is_model(plan.unit, call.func.value) or not plan.alone(node):
                raise NotPlain("no optimizer.step() follows in the same block")
            found.append(node)
    return found


def _remove_zeros(plan: Plan, stmts: Sequence[ast.stmt]) -> None:
    for gone in stmts:
        if gone not in plan.lines:
            plan.taken |= set(ast.walk(gone))
            plan.lines[gone] = lambda _: []
            plan.found("JM002", gone, "torch.Tensor.grad", "gradients are values: nothing to set to zero")


def _plain_arguments(plan: Plan, stmts: Sequence[ast.stmt], found: Leaves, stmt: ast.Expr) -> None:
    """Raise NotPlain when one of the tensors is made in the forward pass of another."""
    made = uses(stmts).writes & set(found.names)
    if made:
        raise NotPlain(f"`{min(made)}` is made between another tensor and the loss")


def _replace(plan: Plan, read: ast.Attribute, text: str) -> None:
    up = plan.unit.tree.parents[read]
    while isinstance(up, ast.Attribute) and up.attr == "data":
        read, up = up, plan.unit.tree.parents[up]
    plan.whole[read] = Whole(lambda _: text, 15)
    plan.taken |= set(ast.walk(read))
    plan.found("JM002", read, "torch.Tensor.grad", "the gradient by its name")


def _plan_data(plan: Plan, function: ast.AST, names: Sequence[str]) -> None:
    """`x.data -= …` and `x.data.sub_(…)` of a tensor that nothing else holds bind its name anew."""
    for node in ast.walk(function):
        if not isinstance(node, ast.Attribute) or node.attr != "data" or not isinstance(node.value, ast.Name):
            continue
        name, stmt = node.value.id, plan.unit.tree.statement(node)
        if name not in names or known_elsewhere(plan.unit, node.value, name) or not plan.alone(stmt):
            continue
        if isinstance(stmt, (ast.Assign, ast.AugAssign)) and isinstance(node.ctx, ast.Store):
            sign = f"{operator(stmt)}=" if isinstance(stmt, ast.AugAssign) else "="
            value = stmt.value
            plan.taken |= {node, node.value, stmt}
            plan.lines[stmt] = lambda w, n=name, s=sign, v=value: [f"{n} {s} {w.at_level(v, 1, False)}"]  # type: ignore[misc]
            plan.found("JM002", node, "torch.Tensor.data", f"{name} is bound to its new value")
            continue
        func = plan.unit.tree.parents[node]
        call = plan.unit.tree.parents[func]
        other = _SIGNS.get(func.attr) if isinstance(func, ast.Attribute) else None
        if other is None or not isinstance(call, ast.Call) or not isinstance(stmt, ast.Expr) or stmt.value is not call:
            continue
        if len(call.args) == 1 and not call.keywords and (other != "=" or _is_alike(call.args[0], name)):
            value = call.args[0]
            plan.taken |= {call, func, node, node.value}
            plan.lines[stmt] = lambda w, n=name, s=other, v=value: [f"{n} {s} {w.at_level(v, 1, False)}"]  # type: ignore[misc]
            plan.found("JM002", call, "torch.Tensor.data", f"{name} is bound to its new value")


def _is_alike(value: ast.expr, name: str) -> bool:
    """Whether a value is arithmetic with the tensor of a name or its gradient, so of its shape and type: copy_ would
    broadcast and convert any other."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Add, ast.Sub, ast.Mult, ast.Div)):
        return _is_alike(value.left, name) or _is_alike(value.right, name)
    while isinstance(value, ast.Attribute) and value.attr in ("data", "grad"):
        value = value.value
    return isinstance(value, ast.Name) and value.id == name


def _report(plan: Plan, stmt: ast.Expr, source: Source, before: Sequence[str] = ()) -> None:
    text = f"the gradient of the loss function with respect to {source.named}"
    code = "JM002"
    if before:
        code, text = "JM101", f"{text}; a gradient that {before[0]} has from before would be added to in torch"
    plan.found(code, stmt, "torch.Tensor.backward", text)


def _of_model(plan: Plan, call: ast.Call, stmt: ast.Expr, block: Sequence[ast.stmt], function: ast.AST) -> Pass:
    """The gradients of one model's parameters, by the names of its layers or in walks over them."""
    unit = plan.unit
    assert isinstance(call.func, ast.Attribute)
    _no_step(function)
    reads = grad_uses(unit, function, _roots(unit, function), [stmt])
    model = reads[0].model
    for use in reads:
        if use.model != model:
            raise NotPlain(f"`{ast.unparse(use.node)}` and `{ast.unparse(reads[0].node)}` are of several modules")
        if place_of(unit, use.node, block) <= block.index(stmt):
            raise NotPlain(f"`{ast.unparse(use.node)}` is read or written where its gradient has no name")
    check_uses(plan, reads)
    zeros = _module_zeros(plan, function)
    before = _from_before(plan, function, block, stmt, model, zeros)
    source = Source((model,))
    region = find_region(plan, Place(function, block, stmt, 0, tuple(zeros)), [call.func.value], source)
    for other in region.others:
        if not separate(unit, stmt, model, other, [model]):
            raise NotPlain(f"several modules take part: {other} may be a part of {model}")
    clips = [c for s in block[block.index(stmt) + 1 :] if (c := read_clip(unit, s, source)) is not None]
    changes = [s for s in ast.walk(function) if isinstance(s, ast.stmt) and clears(s) is not None and zeroes(s)]
    changes += [*changing(reads), *(c.stmt for c in clips), *(z for z in zeros if keeps_tensors(z))]
    check_held(unit, [r.node for r in reads], changes)
    grads = fresh(plan, stmt, ("grads", "gradients", "grads_of_batch"))
    units = {model: grads}
    one = Pass((stmt,), (call.func.value,), source, region, {model: "first"})
    write_pass(plan, one, pass_names(plan, one, units))
    for clip in clips:
        plan_clip(plan, clip, units)
    _remove_zeros(plan, zeros)
    plan_uses(plan, reads, units)
    _report(plan, stmt, source, [model] if before else [])
    return one


def _roots(unit: Unit, function: ast.AST) -> set[str]:
    """The models by whose layers gradients are spelled."""
    names = (n for g in gradient_nodes(unit, function) for n in ast.walk(g.value) if isinstance(n, ast.Name))
    return {n.id for n in names if is_model(unit, n)}


def _from_before(
    plan: Plan, function: ast.AST, block: Sequence[ast.stmt], stmt: ast.Expr, model: str, zeros: Sequence[ast.stmt]
) -> bool:
    """Whether gradients from before the function may be in those of the pass. Raises NotPlain when those of an earlier
    turn of its loop may."""
    unit, at = plan.unit, block.index(stmt)
    owners = {s: ast.unparse(method_owner(s)) for s in zeros}
    if any(s in zeros and owners[s] == model for s in block[:at]):
        return False
    ends = [s for s in zeros if owners[s] == model and s in block[at:]]
    after = {s for part in block[at:] for s in ast.walk(part) if isinstance(s, ast.stmt) and clears(s) is not None}
    cleared = {id(w.node) for s in after for w in [walk_of(unit, s)] if w is not None and ast.unparse(w.model) == model}
    looped = any(isinstance(u, (ast.For, ast.While, ast.AsyncFor)) for u in _around(unit, stmt, function))
    leaves = any(isinstance(n, ast.Continue) for s in block[at:] for n in ast.walk(s))
    if looped and (leaves or not (ends or cleared)):
        raise NotPlain(f"the gradients of `{model}` accumulate over the loop")
    return not made_here(unit, function, model)


def _around(unit: Unit, node: ast.AST, function: ast.AST) -> list[ast.AST]:
    found = []
    for up in unit.tree.ancestors(node):
        if up is function:
            break
        found.append(up)
    return found
