"""The training step, written: a loss function, its gradient, the update."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..plan import Plan, Point, Whole
from ..writer import Writer
from .clips import Clip
from .flow import behind, uses
from .roles import function_of
from .slices import Region, Split
from .sources import Source
from .steps import Pass, Routine, Update
from .text import indented
from .walks import plan_uses

_COMPOUND = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match)
_WIDTH = 120
_SPLIT = " = jax.random.split("


def fresh(plan: Plan, near: ast.AST, candidates: Sequence[str]) -> str:
    """The first of `candidates` that nothing in the function around `near`, or in the module, calls itself by."""
    taken = {n.id for n in ast.walk(function_of(plan.unit, near)) if isinstance(n, ast.Name)}
    taken |= set(plan.unit.scopes.module.bindings)
    taken |= {a.arg for a in ast.walk(function_of(plan.unit, near)) if isinstance(a, ast.arg)}
    return next((c for c in candidates if c not in taken), f"{candidates[0]}_")


@dataclass(frozen=True)
class Names:
    """The new names of one backward pass: its loss function, the variable of each unit's gradient, what the modules are
    called inside the loss function."""

    loss_fn: str
    grads: Mapping[str, str]
    modules: Mapping[str, str]


def plan_routine(
    plan: Plan,
    routine: Routine,
    explicit: Mapping[ast.Expr, tuple[str, str] | None],
    jits: Mapping[ast.stmt, str],
) -> None:
    """Write the training code of one function.

    `explicit` gives for each step statement the names of the transformation and its state where no nnx.Optimizer is
    used; `jits` the jitted function that it is in, or ":" and why it is in none.
    """
    grads = gradient_names(plan, routine)
    splits = {s.stmt: s for p in routine.passes for s in p.region.splits}
    for statement, units in routine.zeros.items():
        plan.lines[statement] = lambda _, units=units: [f"{grads[u]} = None" for u in units]  # type: ignore[misc]
        text = "gradients are values: nothing to set to zero" if not units else "no gradient yet"
        for call in routine.cleared[statement].calls if not routine.cleared[statement].helpers else ():
            plan.taken |= {call, call.func}
            plan.found("JM002", call, "torch.optim.Optimizer.zero_grad", text)
    _plan_empty(plan, {s for s, units in routine.zeros.items() if not units})
    for split in splits.values():
        _plan_split(plan, split)
    several = len(routine.passes) > 1
    for one in routine.passes:
        write_pass(plan, one, pass_names(plan, one, grads, several=several))
        _report_pass(plan, one)
    plan_uses(plan, routine.reads, grads)
    for clip in routine.clips:
        plan_clip(plan, clip, grads)
    for update in routine.updates:
        _plan_update(plan, update, grads, explicit.get(update.stmt), jits.get(update.stmt, ":"))
    if routine.fresh:
        first = min((p.stmt for p in routine.passes), key=plan.unit.tree.start)
        outer = [u for u in plan.unit.tree.ancestors(first) if isinstance(u, ast.stmt) and u is not routine.function]
        inside = [u for u in outer if plan.unit.tree.function(u) is plan.unit.tree.function(first)]
        target = inside[-1] if inside else first
        plan.before.setdefault(target, []).extend(f"{grads[u]} = None" for u in routine.fresh)


def _plan_empty(plan: Plan, gone: set[ast.stmt]) -> None:
    """An `if` that only chooses which gradients to set to zero goes with them."""
    parents = plan.unit.tree.parents
    for up in dict.fromkeys(parents[s] for s in gone):
        if not isinstance(up, ast.If) or up in plan.lines or not set(up.body) | set(up.orelse) <= gone:
            continue
        nested = up in getattr(parents[up], "orelse", ())
        if not nested and not any(isinstance(n, (ast.Call, ast.NamedExpr)) for n in ast.walk(up.test)):
            plan.lines[up] = lambda _: []


def gradient_names(plan: Plan, routine: Routine) -> dict[str, str]:
    """The variable of each unit's gradient: `grads`, or `netD_grads` where there are several."""
    near = routine.passes[0].stmt
    units = routine.units
    if len(units) == 1 and not _others_here(plan, routine):
        return {units[0]: fresh(plan, near, ("grads", "gradients", "grads_of_batch"))}
    short = {u: u.rpartition(".")[2].replace(",", "_") for u in units}
    return {u: fresh(plan, near, (f"{short[u]}_grads", f"grads_of_{short[u]}")) for u in units}


def _others_here(plan: Plan, routine: Routine) -> bool:
    """Whether the function trains something else too."""
    calls = {n.func.value for n in ast.walk(routine.function) if _is_step(n)}  # type: ignore[attr-defined]
    mine = {ast.unparse(u.optimizer) for u in routine.updates}
    return any(plan.unit.kind(c).tag == "Optimizer" and ast.unparse(c) not in mine for c in calls)


def _is_step(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "step"


def pass_names(plan: Plan, one: Pass, grads: Mapping[str, str], *, several: bool = False) -> Names:
    loss = one.losses[0]
    own = f"{loss.id}_fn" if several and isinstance(loss, ast.Name) else "loss_fn"
    near = one.stmt
    modules: dict[str, str] = {}
    used = uses([*one.region.stmts, *one.losses])
    for text in (*one.source.models, *one.region.others):
        short = text.rpartition(".")[2]
        clash = "." in text and short in used.reads | used.writes | set(modules.values())
        modules[text] = ("module" if len(one.source.models) == 1 else text.replace(".", "_")) if clash else short
    return Names(fresh(plan, near, (own, "compute_loss", "loss_of_batch")), grads, modules)


def write_pass(plan: Plan, one: Pass, names: Names) -> None:
    """Write the loss function and its gradient in the place of the backward statement."""
    for stmt in one.stmts:
        if not one.region.whole:
            plan.lines[stmt] = lambda _: []
        _take(plan, stmt)
    if not one.region.stmts and not one.region.whole:
        _, sums = _targets(plan, one, names, [])
        plan.lines[one.stmt] = lambda _: sums
        return
    if not any(isinstance(s, _COMPOUND) for s in one.region.stmts):
        for statement in (*one.region.stmts, *((one.stmt,) if one.region.whole else ())):
            plan.hoisted[statement] = _first(one)
    _write(plan, one, names)
    _module_names(plan, one, names)
    thread(plan, [*one.region.stmts, *one.losses], names.modules)


def _take(plan: Plan, stmt: ast.Expr) -> None:
    """The rows have nothing to say about the call of a statement that goes."""
    call = stmt.value
    assert isinstance(call, ast.Call)
    plan.taken |= {call, call.func}


def _write(plan: Plan, step: Pass, names: Names) -> None:
    """Put the loss function and its gradient where the last statement of the forward pass stands."""
    tree = plan.unit.tree
    stmts = step.region.stmts
    first = _first(step)
    owner = tree.parents[first]
    start = _line_start(plan, first)
    body_end = _line_start(plan, step.stmt) if step.region.whole else _line_end(plan, tree.end(stmts[-1]))
    stop = tree.end(step.stmt) if step.region.whole else body_end

    def build(writer: Writer) -> str:
        indent, newline = tree.indent(first), tree.newline
        unit = indent_unit(plan, first)
        key_lines, inner_key = _keys(plan, step)
        whole = replace(step, region=_with_key(step.region, inner_key)) if inner_key else step
        inside = (p for p in plan.points.get(owner, []) if start <= p.start and p.end <= stop)
        others = [p for p in inside if p.text is not build] + [Point(*_lines_of(plan, s), "") for s in step.region.late]
        body = indented(writer.splice_range(owner, start, body_end, others), unit)
        for line in key_lines:  # keys are split outside: a name that a function assigns is its own
            body = body.replace(f"{indent}{unit}{line}{newline}", "", 1)
        if body and not body.endswith("\n"):
            body += newline
        if step.region.whole and stmts:
            body += "".join(f"{indent}{unit}{line}{newline}" for line in plan.before.get(step.stmt, ()))
        above = "".join(f"{indent}{line}{newline}" for line in key_lines)
        result = " + ".join(writer.at_level(loss, 0, not step.region.whole) for loss in step.losses)
        space = newline if key_lines or _needs_space(plan, start) else ""
        head = f"{indent}def {names.loss_fn}({', '.join(_given(whole, names.modules))}):{newline}"
        tail = f"{indent}{unit}return {result}{_returned(whole)}{newline}{newline}"
        lines = [*asked_lines(plan, whole, names, writer), *(_text(writer, s) for s in step.region.late)]
        return above + space + head + body + tail + indent + (newline + indent).join(lines)

    plan.point(owner, start, stop, build)


def _lines_of(plan: Plan, stmt: ast.stmt) -> tuple[int, int]:
    """The lines of a statement, with their ends."""
    tree = plan.unit.tree
    last = tree.position(tree.end(stmt))[0]
    stop = tree.line_starts[last] if last < len(tree.line_starts) else len(tree.text)
    return _line_start(plan, stmt), stop


def _text(writer: Writer, stmt: ast.stmt) -> str:
    """A statement with what stands before and after it, and the comment behind it."""
    tree = writer.tree
    comment = tree.text[tree.end(stmt) : _line_end(writer.plan, tree.end(stmt))].rstrip()
    if stmt not in writer.touched:
        return writer.text(stmt) + comment
    return "".join(text for _, _, text in writer.statement(stmt)) + comment


def _first(step: Pass) -> ast.stmt:
    """The statement in whose place the loss function begins."""
    return step.region.stmts[0] if step.region.stmts else step.stmt


def _keys(plan: Plan, step: Pass) -> tuple[list[str], str]:
    """Lines that split keys before the loss function, and the name of a key that is split inside it (in loops)."""
    first = _first(step)
    compound = any(isinstance(s, _COMPOUND) for s in step.region.stmts)
    inside = {s for r in (*step.region.stmts, step.stmt) for s in ast.walk(r) if isinstance(s, ast.stmt)}
    split = [line for s in inside for line in plan.before.get(s, ()) if _SPLIT in line]
    if not compound:
        return [line for line in plan.before.get(first, ()) if _SPLIT in line], ""
    return [], split[0].partition(",")[0].strip() if split else ""


def _with_key(region: Region, key: str) -> Region:
    """The region with a key that goes in and comes out."""
    return replace(region, carried=(*region.carried, key), aux=(*region.aux, key))


def _needs_space(plan: Plan, at: int) -> bool:
    """Whether code stands right above: a function inside a function has a blank line before it."""
    tree = plan.unit.tree
    gone = {tree.position(tree.start(s))[0] for s in plan.lines if _is_zero(s)}
    line = tree.position(at)[0] - 1
    while line in gone:
        line -= 1
    if line < 1:
        return False
    text = tree.text[tree.line_starts[line - 1] : tree.line_starts[line]].strip()
    return bool(text) and not text.endswith(":") and not text.startswith("#")


def _is_zero(stmt: ast.stmt) -> bool:
    call = stmt.value if isinstance(stmt, ast.Expr) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "zero_grad"


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


def _returned(step: Pass) -> str:
    return f", {_tuple(step.region.aux)}" if step.region.aux else ""


def _given(one: Pass, modules: Mapping[str, str]) -> list[str]:
    """The parameters of the loss function (or, with the modules' own texts, its arguments): first what it is
    differentiated by."""
    first = [*_differentiated(one), *one.region.others]
    return [*(modules.get(n, n) for n in first), *one.region.carried]


def _differentiated(one: Pass) -> list[str]:
    """The modules that the loss function calls itself, values that earlier calls gave, leaf tensors."""
    region = one.region
    direct = [m for m in one.source.models if _is_direct(one, m)]
    return [*direct, *(s.name for s in region.splits), *one.source.arrays]


def _is_direct(one: Pass, model: str) -> bool:
    source = Source((model,))
    return any(source.read_by(p) for p in [*one.region.stmts, *one.losses])


def gradient_lines(plan: Plan, one: Pass, names: Names) -> list[str]:
    """`(loss, aux), grads = nnx.value_and_grad(loss_fn, has_aux=True)(model)` in the form that this pass needs, and the
    sums with gradients that are there already."""
    first = _differentiated(one)
    space = "nnx" if one.source.models or one.region.others else "jax"
    options = [names.loss_fn]
    if len(first) > 1:
        options.append(f"argnums=({', '.join(map(str, range(len(first))))})")
    if one.region.aux:
        options.append("has_aux=True")
    targets, sums = _targets(plan, one, names, first)
    given = ", ".join(_given(one, {}))
    aux = _tuple(one.region.aux) if one.region.aux else ""
    grads = _tuple(targets)
    if one.region.whole:
        target = f"{grads}, {aux}" if aux else grads
        return [f"{target} = {space}.grad({', '.join(options)})({given})", *sums]
    name = one.losses[0]
    loss = name.id if isinstance(name, ast.Name) else "loss"
    if len(one.losses) > 1:
        loss = fresh(plan, one.stmt, ("total_loss", "sum_of_losses", "loss_in_all"))
    target = f"({loss}, {aux}), {grads}" if aux else f"{loss}, {grads}"
    function = f"{space}.value_and_grad({', '.join(options)})"
    line = f"{target} = {function}({given})"
    if len(line) + len(plan.unit.tree.indent(one.stmt)) <= _WIDTH:
        return [line, *sums]
    short = fresh(plan, one.stmt, ("grad_fn", "value_and_grad_fn"))
    return [f"{short} = {function}", f"{target} = {short}({given})", *sums]


def asked_lines(plan: Plan, one: Pass, names: Names, writer: Writer) -> list[str]:
    """The lines of the gradient; where it is taken under a question only, the loss alone otherwise."""
    lines = gradient_lines(plan, one, names)
    if one.under is None:
        return lines
    unit = indent_unit(plan, one.under)
    loss = one.losses[0]
    assert isinstance(loss, ast.Name)
    alone = f"{loss.id}{_returned(one)} = {names.loss_fn}({', '.join(_given(one, {}))})"
    return [f"if {writer.text(one.under.test)}:", *(unit + line for line in lines), "else:", unit + alone]


def _targets(plan: Plan, one: Pass, names: Names, first: Sequence[str]) -> tuple[list[str], list[str]]:
    """The names that the gradients get, and the lines that make each unit's gradient of them."""
    if one.source.arrays:
        return [names.grads[one.source.units[0]]], []
    targets, sums = [], []
    for model in one.source.models:
        parts = []
        grads = names.grads[model]
        splits = [s for s in one.region.splits if s.model == model]
        plain = one.adds[model] == "first" and not splits
        if model in first:
            name = grads if plain else fresh(plan, one.stmt, (f"new_{grads}", f"more_{grads}"))
            targets.append(name)
            parts.append(name)
        parts += [f"{s.name}_vjp({f'{s.name}_grad' if first else f'jnp.ones_like({s.name})'})" for s in splits]
        if plain:
            continue
        new = parts[0]
        for part in parts[1:]:
            new = f"jax.tree.map(jnp.add, {new}, {part})"
        summed = f"jax.tree.map(jnp.add, {grads}, {new})"
        text = {"first": new, "more": summed, "either": f"{new} if {grads} is None else {summed}"}[one.adds[model]]
        sums.append(f"{grads} = {text}")
    targets += [f"{s.name}_grad" for s in one.region.splits]
    return targets, sums


def _plan_split(plan: Plan, split: Split) -> None:
    """`fake = netG(noise)` becomes `fake, fake_vjp = module_vjp(lambda netG: netG(noise), netG)`."""
    spelled = plan.layer("module_vjp")
    short = split.model.rpartition(".")[2]
    value = split.stmt.value
    for node in list(Source((split.model,)).places(value)):
        if short != split.model:
            plan.whole[node] = Whole(lambda _: short, 15)
            plan.taken |= set(ast.walk(node))

    def lines(writer: Writer) -> list[str]:
        text = writer.at_level(value, 1)
        return [f"{split.name}, {split.name}_vjp = {spelled}(lambda {short}: {text}, {split.model})"]

    plan.lines[split.stmt] = lines


def _plan_update(
    plan: Plan, update: Update, grads: Mapping[str, str], explicit: tuple[str, str] | None, jit: str
) -> None:
    lines = update_lines(update, grads, explicit)
    if update.guarded:
        absent = " and ".join(f"{grads[u]} is not None" for u in update.source.units)
        unit = indent_unit(plan, update.stmt)
        lines = [f"if {absent}:", *(unit + line for line in lines)]
    plan.lines[update.stmt] = lambda _: lines
    _take(plan, update.stmt)
    how = "tx.update and optax.apply_updates" if explicit else "nnx.Optimizer.update"
    name = "torch.optim.Optimizer.step"
    if not jit.startswith(":"):
        plan.found("JM002", update.stmt, name, f"{how}, in {jit} under nnx.jit")
        return
    plan.found(
        "JM141", update.stmt, name, f"{how}; the step runs eagerly: {jit[1:]}",
        advice="Put the step into a function of its own and decorate it with @nnx.jit.",
    )  # fmt: skip


def update_lines(update: Update, grads: Mapping[str, str], explicit: tuple[str, str] | None) -> list[str]:
    """The update in place of `optimizer.step()`."""
    source = update.source
    given = _tuple([grads[u] for u in source.units])
    if explicit is None:
        return [f"{ast.unparse(update.optimizer)}.update({_tuple(source.models)}, {given})"]
    tx, state = explicit
    params = parameters_text(source)
    if len(source.models) > 1:
        new = [f"{m.rpartition('.')[2]}_updates" for m in source.models]
        each = [
            f"nnx.update({m}, optax.apply_updates(nnx.state({m}, nnx.Param), {n}))"
            for m, n in zip(source.models, new, strict=True)
        ]
        return [f"({', '.join(new)}), {state} = {tx}.update({given}, {state}, {params})", *each]
    first = f"updates, {state} = {tx}.update({given}, {state}, {params})"
    if source.models and len(first) > 100:
        first = f"updates, {state} = {tx}.update({given}, {state}, params)"
        last = f"nnx.update({source.models[0]}, optax.apply_updates(params, updates))"
        return [f"params = {params}", first, last]
    if source.models:
        return [first, f"nnx.update({source.models[0]}, optax.apply_updates({params}, updates))"]
    return [first, f"{', '.join(source.arrays)} = optax.apply_updates({params}, updates)"]


def parameters_text(source: Source) -> str:
    """The parameters as optax takes them."""
    return _tuple([*(f"nnx.state({m}, nnx.Param)" for m in source.models), *source.arrays])


def _module_names(plan: Plan, one: Pass, names: Names) -> None:
    """Inside the loss function `self.model` is its argument."""
    for text, name in names.modules.items():
        if name == text:
            continue
        for part in [*one.region.stmts, *one.losses]:
            for node in list(Source((text,)).places(part)):
                plan.whole[node] = Whole(lambda _, name=name: name, 15)  # type: ignore[misc]
                plan.taken |= set(ast.walk(node))


def thread(plan: Plan, code: Sequence[ast.AST], modules: Mapping[str, str]) -> None:
    """Functions that get a module as an argument get the one of the loss function that `code` goes into."""
    for call in (n for part in code for n in ast.walk(part) if behind(n)):
        assert isinstance(call, ast.Call)
        plan.threaded[call] = {text: modules.get(text, text) for text in behind(call)}


def plan_clip(plan: Plan, clip: Clip, grads: Mapping[str, str]) -> None:
    """Write a clip_grad_ statement."""
    params = [*clip.call.args[:1], *(k.value for k in clip.call.keywords if k.arg == "parameters")]
    plan.taken |= {clip.call, clip.call.func} | {n for a in params for n in ast.walk(a)}
    target = ast.unparse(clip.stmt.targets[0]) if isinstance(clip.stmt, ast.Assign) else ""
    norm = target or fresh(plan, clip.stmt, ("norm", "grad_norm", "norm_of_grads"))
    names = _tuple([grads[u] for u in clip.units])
    order = f", ord={clip.order}" if clip.order else ""

    def build(writer: Writer) -> list[str]:
        text = writer.at_level(clip.limit, 11)
        if not clip.by_norm:
            return [f"{names} = jax.tree.map(lambda g: jnp.clip(g, -{text}, {text}), {names})"]
        return [
            f"{norm} = optax.tree.norm({names}{order})",
            f"{names} = jax.tree.map(lambda g: g * jnp.minimum(1.0, {text} / ({norm} + 1e-6)), {names})",
        ]

    plan.lines[clip.stmt] = build
    plan.found("JM002", clip.call, clip.dotted, "the gradients are clipped as torch does", rule=clip.dotted)


def _report_pass(plan: Plan, one: Pass) -> None:
    for stmt in one.stmts:
        text = f"the gradient of the loss function with respect to {one.source.named}"
        plan.found("JM002", stmt, "torch.Tensor.backward", text)
    for split in one.region.splits:
        plan.found("JM002", split.stmt, "torch.Tensor.backward", f"{split.name} is differentiated through later")
