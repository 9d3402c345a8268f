"""The training step, written: a loss function, its gradient, the update."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

from ..plan import Plan, Whole
from ..writer import Writer
from .flow import uses
from .movable import Source
from .roles import function_of
from .slices import Region
from .steps import CLIPS, Step, clip_call, clip_limit
from .text import indented

_COMPOUND = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match)
_SPLIT = " = jax.random.split("


def fresh(plan: Plan, near: ast.AST, candidates: Sequence[str]) -> str:
    """The first of `candidates` that nothing in the function around `near`, or in the module, calls itself by."""
    taken = {n.id for n in ast.walk(function_of(plan.unit, near)) if isinstance(n, ast.Name)}
    taken |= set(plan.unit.scopes.module.bindings)
    taken |= {a.arg for a in ast.walk(function_of(plan.unit, near)) if isinstance(a, ast.arg)}
    return next((c for c in candidates if c not in taken), f"{candidates[0]}_")


def plan_step(plan: Plan, step: Step, explicit: tuple[str, str] | None) -> None:
    """Write one step. `explicit` are the names of the transformation and its state where no nnx.Optimizer is used."""
    names = Names(plan, step)
    for statement in step.zero:
        plan.lines[statement] = lambda _: []
        _take(plan, statement)
    write_gradient(plan, step, names)
    plan.lines[step.step] = lambda _: update_lines(step, names, explicit)
    _take(plan, step.step)
    _report(plan, step, explicit)


def write_gradient(plan: Plan, step: Step, names: Names) -> None:
    """Write the loss function and its gradient, and clip it where the source does."""
    if not step.region.whole:
        plan.lines[step.backward] = lambda _: []
    _take(plan, step.backward)
    if not any(isinstance(s, _COMPOUND) for s in step.region.stmts):
        for statement in (*step.region.stmts, *((step.backward,) if step.region.whole else ())):
            plan.hoisted[statement] = _first(step)
    _write(plan, step, names)
    _model_name(plan, step, names)
    _clips(plan, step, names)


class Names:
    """The new names of a step and how its model is spelled."""

    def __init__(self, plan: Plan, step: Step) -> None:
        self.loss_fn = fresh(plan, step.backward, ("loss_fn", "compute_loss", "loss_of_batch"))
        self.grads = fresh(plan, step.backward, ("grads", "gradients", "grads_of_batch"))
        short = step.model.rpartition(".")[2]
        used = uses([*step.region.stmts, step.loss])
        clash = "." in step.model and short in used.reads | used.writes
        self.parameter = "module" if clash else short
        self.params = (self.parameter,) if step.model else step.arrays
        self.given = (step.model,) if step.model else step.arrays


def _take(plan: Plan, stmt: ast.Expr) -> None:
    """The rows have nothing to say about the call of a statement that goes."""
    call = stmt.value
    assert isinstance(call, ast.Call)
    plan.taken |= {call, call.func}


def _write(plan: Plan, step: Step, names: Names) -> None:
    """Put the loss function and its gradient where the last statement of the forward pass stands."""
    tree = plan.unit.tree
    stmts = step.region.stmts
    first = _first(step)
    owner = tree.parents[first]
    start = _line_start(plan, first)
    body_end = _line_start(plan, step.backward) if step.region.whole else _line_end(plan, tree.end(stmts[-1]))
    stop = tree.end(step.backward) if step.region.whole else body_end

    def build(writer: Writer) -> str:
        indent, newline = tree.indent(first), tree.newline
        unit = indent_unit(plan, first)
        key_lines, inner_key = _keys(plan, step)
        whole = replace(step, region=_with_key(step.region, inner_key)) if inner_key else step
        others = [p for p in plan.points.get(owner, []) if p.text is not build]
        body = indented(writer.splice_range(owner, start, body_end, others), unit)
        for line in key_lines:  # keys are split outside: a name that a function assigns is its own
            body = body.replace(f"{indent}{unit}{line}{newline}", "", 1)
        if body and not body.endswith("\n"):
            body += newline
        if step.region.whole and stmts:
            body += "".join(f"{indent}{unit}{line}{newline}" for line in plan.before.get(step.backward, ()))
        above = "".join(f"{indent}{line}{newline}" for line in key_lines)
        result = writer.at_level(step.loss, 0, False) if step.region.whole else writer.text(step.loss)
        space = newline if key_lines or _needs_space(plan, step, start) else ""
        head = f"{indent}def {names.loss_fn}({', '.join((*names.params, *whole.region.carried))}):{newline}"
        tail = f"{indent}{unit}return {result}{_returned(whole)}{newline}{newline}"
        return above + space + head + body + tail + indent + _gradient(whole, names)

    plan.point(owner, start, stop, build)


def _first(step: Step) -> ast.stmt:
    """The statement in whose place the loss function begins."""
    return step.region.stmts[0] if step.region.stmts else step.backward


def _keys(plan: Plan, step: Step) -> tuple[list[str], str]:
    """Lines that split keys before the loss function, and the name of a key that is split inside it (in loops)."""
    first = _first(step)
    compound = any(isinstance(s, _COMPOUND) for s in step.region.stmts)
    inside = {s for r in (*step.region.stmts, step.backward) for s in ast.walk(r) if isinstance(s, ast.stmt)}
    split = [line for s in inside for line in plan.before.get(s, ()) if _SPLIT in line]
    if not compound:
        return [line for line in plan.before.get(first, ()) if _SPLIT in line], ""
    return [], split[0].partition(",")[0].strip() if split else ""


def _with_key(region: Region, key: str) -> Region:
    """The region with a key that goes in and comes out."""
    return replace(region, carried=(*region.carried, key), aux=(*region.aux, key))


def _needs_space(plan: Plan, step: Step, at: int) -> bool:
    """Whether code stands right above: a function inside a function has a blank line before it."""
    tree = plan.unit.tree
    gone = {tree.position(tree.start(s))[0] for s in step.zero}
    line = tree.position(at)[0] - 1
    while line in gone:
        line -= 1
    if line < 1:
        return False
    text = tree.text[tree.line_starts[line - 1] : tree.line_starts[line]].strip()
    return bool(text) and not text.endswith(":") and not text.startswith("#")


def indent_unit(plan: Plan, stmt: ast.stmt) -> str:
    """One step of indentation as the code around `stmt` has it."""
    tree = plan.unit.tree
    owner = tree.parents[stmt]
    if isinstance(owner, ast.Module):
        return "    "
    while not hasattr(owner, "lineno"):
        owner = tree.parents[owner]
    return tree.indent(stmt).removeprefix(tree.indent(owner)) or "    "


def _line_start(plan: Plan, stmt: ast.stmt) -> int:
    tree = plan.unit.tree
    return tree.line_starts[tree.position(tree.start(stmt))[0] - 1]


def _line_end(plan: Plan, at: int) -> int:
    text = plan.unit.tree.text
    while at < len(text) and text[at] not in "\r\n":
        at += 1
    return at


def _tuple(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"({', '.join(names)})"


def _returned(step: Step) -> str:
    return f", {_tuple(step.region.aux)}" if step.region.aux else ""


def _gradient(step: Step, names: Names) -> str:
    """`(loss, aux), grads = nnx.value_and_grad(loss_fn, has_aux=True)(model)` in the form that this step needs."""
    space = "nnx" if step.model else "jax"
    options = ", ".join(
        [names.loss_fn]
        + ([f"argnums=({', '.join(map(str, range(len(step.arrays))))})"] if len(step.arrays) > 1 else [])
        + (["has_aux=True"] if step.region.aux else [])
    )
    given = ", ".join((*names.given, *step.region.carried))
    aux = _tuple(step.region.aux) if step.region.aux else ""
    if step.region.whole:
        target = f"{names.grads}, {aux}" if aux else names.grads
        return f"{target} = {space}.grad({options})({given})"
    loss = step.loss.id if isinstance(step.loss, ast.Name) else "loss"
    target = f"({loss}, {aux}), {names.grads}" if aux else f"{loss}, {names.grads}"
    return f"{target} = {space}.value_and_grad({options})({given})"


def update_lines(step: Step, names: Names, explicit: tuple[str, str] | None) -> list[str]:
    """The update in place of `optimizer.step()`."""
    if explicit is None:
        return [f"{ast.unparse(step.optimizer)}.update({step.model}, {names.grads})"]
    tx, state = explicit
    params = f"nnx.state({step.model}, nnx.Param)" if step.model else _tuple(step.arrays)
    first = f"updates, {state} = {tx}.update({names.grads}, {state}, {params})"
    if step.model:
        return [first, f"nnx.update({step.model}, optax.apply_updates({params}, updates))"]
    return [first, f"{', '.join(step.arrays)} = optax.apply_updates({params}, updates)"]


def _model_name(plan: Plan, step: Step, names: Names) -> None:
    """Inside the loss function `self.model` is its argument."""
    if names.parameter == step.model or not step.model:
        return
    source = Source(step.model, ())
    for part in [*step.region.stmts, step.loss]:
        for node in list(source.places(part)):
            plan.whole[node] = Whole(lambda _: names.parameter, 15)
            plan.taken |= set(ast.walk(node))


def _clips(plan: Plan, step: Step, names: Names) -> None:
    unit = plan.unit
    for stmt in step.clips:
        call = clip_call(unit, stmt)
        assert call is not None
        dotted = unit.resolve(call.func) or ""
        plan.taken |= {call, call.func} | {n for a in _parameters(call) for n in ast.walk(a)}
        limit = clip_limit(call)
        target = ast.unparse(stmt.targets[0]) if isinstance(stmt, ast.Assign) else ""
        by_norm = CLIPS[dotted] == "norm"
        norm = target or fresh(plan, stmt, ("norm", "grad_norm", "norm_of_grads"))
        plan.lines[stmt] = _clip_lines(names.grads, norm, limit, by_norm)
        plan.found("JM002", call, dotted, "the gradients are clipped as torch does", rule=dotted)


def _parameters(call: ast.Call) -> list[ast.expr]:
    return [*call.args[:1], *(k.value for k in call.keywords if k.arg == "parameters")]


def _clip_lines(grads: str, norm: str, limit: ast.expr, by_norm: bool):  # type: ignore[no-untyped-def]
    def build(writer: Writer) -> list[str]:
        text = writer.at_level(limit, 11)
        if not by_norm:
            return [f"{grads} = jax.tree.map(lambda g: jnp.clip(g, -{text}, {text}), {grads})"]
        return [
            f"{norm} = optax.tree.norm({grads})",
            f"{grads} = jax.tree.map(lambda g: g * jnp.minimum(1.0, {text} / ({norm} + 1e-6)), {grads})",
        ]

    return build


def _report(plan: Plan, step: Step, explicit: tuple[str, str] | None) -> None:
    for stmt in step.zero:
        plan.found("JM002", stmt, "torch.optim.Optimizer.zero_grad", "gradients are values: nothing to set to zero")
    plan.found(
        "JM002",
        step.backward,
        "torch.Tensor.backward",
        f"the gradient of the loss function with respect to {step.model or _tuple(step.arrays)}",
    )
    how = "tx.update and optax.apply_updates" if explicit else "nnx.Optimizer.update"
    plan.found(
        "JM141", step.step, "torch.optim.Optimizer.step", f"{how}; the step runs eagerly",
        advice="Put the step into a function of its own and decorate it with @nnx.jit.",
    )  # fmt: skip
