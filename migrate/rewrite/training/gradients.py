"""A backward pass without an optimizer, whose gradients are read as `x.grad`: they get names."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ..plan import Plan, Whole
from .clips import read_clip
from .flow import block_of, root_name
from .loops import fresh, pass_names, plan_clip, write_pass
from .optimizers import leaf_problem, unmark_leaf
from .roles import NotPlain, function_of, is_model
from .slices import Place, find_region
from .sources import Source
from .steps import Pass, backward_arguments, is_backward


def plan_gradient(plan: Plan, call: ast.Call) -> None:
    """Convert `loss.backward()` with the reads of `.grad` that follow. Raises NotPlain when it is not of that form."""
    unit = plan.unit
    assert isinstance(call.func, ast.Attribute)
    stmt = unit.tree.parents[call]
    if not isinstance(stmt, ast.Expr):
        raise NotPlain("the value of backward() is used")
    backward_arguments(call)
    function = function_of(unit, stmt)
    block = block_of(stmt, unit.tree.parents)
    reads = _reads(plan, function, block, stmt)
    bases = {ast.unparse(r.value): r.value for r in reads}
    model, leaves = _sources(plan, list(bases.values()), block, stmt, function)
    source = Source((model,) if model else (), leaves)
    region = find_region(plan, Place(function, block, stmt), [call.func.value], source)
    if region.others:
        raise NotPlain(f"several modules take part: {region.others[0]}")
    clips = [c for s in block[block.index(stmt) + 1 :] if (c := read_clip(unit, s, source)) is not None]
    grads = fresh(plan, stmt, ("grads", "gradients", "grads_of_batch"))
    if leaves:
        each = {leaf: fresh(plan, stmt, (f"{leaf}_grad", f"grad_of_{leaf}")) for leaf in leaves}
        grads = ", ".join(each.values()) if len(each) == 1 else f"({', '.join(each.values())})"
    units = {source.units[0]: grads}
    one = Pass((stmt,), (call.func.value,), source, region, dict.fromkeys(source.units, "first"))
    write_pass(plan, one, pass_names(plan, one, units))
    for clip in clips:
        plan_clip(plan, clip, units)
    for leaf in leaves:
        unmark_leaf(plan, stmt, leaf)
    for read in reads:
        variable = "[...]" if unit.kind(read.value).tag == "Variable" else ""
        text = each[ast.unparse(read.value)] + variable if leaves else _path(read.value, grads)
        plan.whole[read] = Whole(lambda _, text=text: text, 15)  # type: ignore[misc]
        plan.taken |= set(ast.walk(read))
        plan.found("JM002", read, "torch.Tensor.grad", "the gradient by its name")
    plan.found(
        "JM002",
        stmt,
        "torch.Tensor.backward",
        f"the gradient of the loss function with respect to {source.named}",
    )


def _reads(plan: Plan, function: ast.AST, block: Sequence[ast.stmt], stmt: ast.Expr) -> list[ast.Attribute]:
    """All `x.grad` of the function, when they follow in the same block and nothing else makes gradients."""
    unit = plan.unit
    after = {n for s in block[block.index(stmt) + 1 :] for n in ast.walk(s)}
    reads = []
    for node in ast.walk(function):
        if is_backward(node) and node is not stmt.value:
            raise NotPlain("several backward passes in one function")
        if not isinstance(node, ast.Attribute) or unit.resolve(node) is not None:
            continue
        if node.attr in ("zero_grad", "step"):
            raise NotPlain("no optimizer.step() follows in the same block")
        if node.attr == "grad":
            above = unit.tree.parents[node]
            changed = isinstance(above, ast.Attribute) and above.attr.endswith("_")
            if node not in after or not isinstance(node.ctx, ast.Load) or changed:
                raise NotPlain(f"`{ast.unparse(node)}` is read or written: in JAX gradients are values")
            reads.append(node)
    if not reads:
        raise NotPlain("no optimizer.step() follows in the same block")
    return reads


def _sources(
    plan: Plan, bases: Sequence[ast.expr], block: Sequence[ast.stmt], stmt: ast.Expr, function: ast.AST
) -> tuple[str, tuple[str, ...]]:
    """The model or the leaf tensors whose gradients are read."""
    unit = plan.unit
    looped = any(
        isinstance(u, (ast.For, ast.While, ast.AsyncFor)) for u in unit.tree.ancestors(stmt) if u is not function
    )
    if all(isinstance(b, ast.Name) for b in bases) and not any(is_model(unit, b) for b in bases):
        names = tuple(b.id for b in bases if isinstance(b, ast.Name))
        for name, base in zip(names, bases, strict=True):
            scope = unit.scope(base).lookup(name)
            made = [b.node for b in scope.bindings[name]] if scope is not None else []
            if problem := leaf_problem(unit, base, name, changes=False):
                raise NotPlain(problem)
            if looped and not any(m in set(ast.walk(s)) for m in made for s in block):
                raise NotPlain(f"the gradients of `{name}` accumulate over the loop")
        return "", names
    roots = {root_name(b) for b in bases}
    model = next(iter(roots)) if len(roots) == 1 else ""
    nodes = [n for b in bases for n in ast.walk(b) if isinstance(n, ast.Name)]
    if not model or looped or not all(is_model(unit, n) for n in nodes) or not all(_is_path(b) for b in bases):
        raise NotPlain(f"`{ast.unparse(bases[0])}.grad` is read or written: in JAX gradients are values")
    holder = unit.scope(nodes[0]).lookup(model)
    if holder is None or holder.node is not function:
        raise NotPlain(f"the gradients of `{model}` may have been accumulated before")
    return model, ()


def _is_path(node: ast.expr) -> bool:
    """`model.layer.weight`: attributes only."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _path(node: ast.expr, grads: str) -> str:
    """`grads.layer.weight[...]` for `model.layer.weight`."""
    return f"{grads}.{ast.unparse(node).partition('.')[2]}[...]"
