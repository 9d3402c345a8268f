"""Functions that write to their argument: they hand it back, and the calls bind it."""

from __future__ import annotations

import ast

from ..plan import Plan
from ..writer import Writer
from .chains import walk
from .context import Context
from .hoist import bind_call, rest_of
from .mutators import Call, Mutator, own_calls
from .places import Place
from .quiet import Quiet
from .returns import own_returns, reaches_end

NAME = "torch.Tensor.__setitem__"
USE = "Use what it returns: JAX arrays cannot be changed."


def hand_back(context: Context) -> None:
    """The definitions and calls of this file's mutators."""
    for mutator in context.mutators.found.values():
        if not mutator.problem and mutator.facts.unit is context.unit:
            _definition(context, mutator)
    for mutator, call in own_calls(context.mutators, context.unit):
        _call(context, mutator, call)
    for quiet in context.mutators.quiet.stated():
        if quiet.facts.unit is context.unit:
            _called_from_outside(context, quiet)


def _called_from_outside(context: Context, quiet: Quiet) -> None:
    """State what the caller of a forward method, which no file of the project is, would notice."""
    spec = quiet.facts.node.args
    written = [a for a in [*spec.posonlyargs, *spec.args, *spec.kwonlyargs] if a.arg in quiet.params]
    names = " and ".join(f"`{a.arg}`" for a in written)
    text = f"`{quiet.facts.name}` writes to the memory of {names} in torch; in JAX the caller's arrays stay as they are"
    context.plan.found("JM161", written[0], NAME, text, rule="in-place", advice="Do not read them after the call.")


def _definition(context: Context, mutator: Mutator) -> None:
    plan, node = context.plan, mutator.facts.node
    names = ", ".join(mutator.params)
    if mutator.gives != "argument":
        for stmt in own_returns(mutator.facts):
            _return(context, mutator, stmt, names)
        if reaches_end(node.body):
            plan.after.setdefault(node.body[-1], []).append(f"return {names}")
        _annotation(context, mutator)
    spec = node.args
    arg = next(a for a in [*spec.posonlyargs, *spec.args, *spec.kwonlyargs] if a.arg == mutator.params[0])
    if mutator.calls:
        plan.found("JM002", arg, NAME, f"`{node.name}` returns {names}, which its calls bind", rule="in-place")
    else:
        text = f"`{node.name}` changes its argument `{names}` in torch; in JAX it returns the new value"
        plan.found("JM161", arg, NAME, text, rule="in-place", advice=USE)


def _return(context: Context, mutator: Mutator, stmt: ast.Return, names: str) -> None:
    tree, plan = context.unit.tree, context.plan
    if mutator.gives == "nothing":
        context.lines(stmt, lambda _: [f"return {names}"])
        return
    value = stmt.value
    assert value is not None
    start, end = tree.start(value), tree.end(value)
    loose = isinstance(value, ast.Tuple) and tree.text[start] != "("
    if loose:
        plan.point(stmt, start, start, "(")
    while tree.text[end : end + 1] == ")" and end < tree.end(stmt):
        end += 1
    plan.point(stmt, end, end, f"{')' if loose else ''}, {names}")


def _annotation(context: Context, mutator: Mutator) -> None:
    """The annotation of what is returned now."""
    tree, node = context.unit.tree, mutator.facts.node
    if node.returns is None:
        return
    arrays = ", ".join(["jax.Array"] * len(mutator.params))
    if mutator.gives == "nothing":
        context.plan.replace(node.returns, arrays if len(mutator.params) == 1 else f"tuple[{arrays}]")
        return
    start, end = tree.start(node.returns), tree.end(node.returns)
    context.plan.point(node, start, start, "tuple[")
    context.plan.point(node, end, end, f", {arrays}]")


def _call(context: Context, mutator: Mutator, call: Call) -> None:
    """Bind what the function hands back."""
    stmt, node, plan = call.stmt, call.node, context.plan
    bound = [(v, context.place(v, stmt)) for _, v in call.given if not context.aliases.is_temporary(stmt, v)]
    whole = isinstance(stmt, ast.Expr) and stmt.value is node
    if mutator.gives != "beside" and context.mutators.is_over(mutator, call) and not (whole and bound):
        return
    if whole and not bound:
        return
    if stmt in plan.lines or context.lost_comment(stmt, [node]):
        _refused(context, mutator, call, "the line with the call is rewritten for another reason")
        return
    problem = next((p for _, place in bound if (p := context.problem(place, stmt))), "")
    if problem:
        _refused(context, mutator, call, problem)
        return
    for _, place in bound:
        context.settle(Place(place.base, loops=place.loops))
    if whole or mutator.gives == "beside":
        _whole_statement(context, mutator, call, [p for _, p in bound])
    elif not bind_call(context, stmt, node, bound[0][1]):
        _refused(context, mutator, call, "the value of the call is used where the argument is read too")
        return
    plan.found("JM002", node, NAME, f"what {mutator.facts.name}() hands back is bound", rule="in-place")


def _refused(context: Context, mutator: Mutator, call: Call, why: str) -> None:
    context.refuse(call.node, NAME, f"{mutator.facts.name}() writes to its argument: {why}")


def _whole_statement(context: Context, mutator: Mutator, call: Call, places: list[Place]) -> None:
    """`f(y)` and `z = f(y)`: all that the function returns is bound, then written where it belongs."""
    stmt, node = call.stmt, call.node
    by_param = dict(zip((n for n, v in call.given if not context.aliases.is_temporary(stmt, v)), places, strict=True))
    target = stmt.targets[0] if isinstance(stmt, ast.Assign) else None
    stored = {n.id for n in ast.walk(target) if isinstance(n, ast.Name)} if target is not None else set()
    used = not (isinstance(stmt, (ast.Expr, ast.Assign)) and stmt.value is node)
    stepped = [p for p in by_param.values() if p.steps]
    *fresh, result = context.fresh_names(len(stepped) + 1) if stepped else context.fresh_names(1)
    if used:
        context.plan.points.setdefault(node, [])

    def build(writer: Writer) -> list[str]:
        names, later = [], []
        for param in mutator.params:
            place = by_param.get(param)
            key = ast.unparse(place.base) if place is not None else ""
            if place is None or key in stored:
                names.append("_")
                continue
            text = context.base_text(place)
            if not place.steps:
                names.append(text)
            elif len(mutator.params) == 1 and mutator.gives != "beside":
                return [f"{text} = {place.written(text, writer.text(node), writer)}", *context.renew(place, writer)]
            else:
                name = fresh[stepped.index(place)]
                names.append(name)
                later.append(f"{text} = {place.written(text, name, writer)}")
            later += context.renew(place, writer)
        if used:
            names.insert(0, result)
            later.append(rest_of(context, stmt, node, result, writer))
        elif mutator.gives == "beside":
            own = writer.text(target) if target is not None else "_"
            loose = isinstance(target, ast.Tuple) and not own.startswith("(")
            names.insert(0, f"({own})" if loose else own)
        return [f"{', '.join(names)} = {writer.text(node)}", *later]

    context.lines(stmt, build)


def finish(context: Context, plan: Plan) -> None:
    """Loops over a tensor that is written to count its rows; names that only served a write go."""
    tree = context.unit.tree
    for chain in sorted(context.served, key=lambda c: c.stmt.lineno, reverse=True):
        stmt = chain.stmt
        target = stmt.targets[0] if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 else None
        if not isinstance(target, ast.Name) or stmt in plan.lines or tree.function(stmt) is None or chain.loop:
            continue
        span = (tree.start(stmt), tree.line_starts[min(stmt.end_lineno or 0, len(tree.line_starts) - 1)])
        if not context.is_read(stmt, target.id) and context.on_own_lines(stmt) and not tree.comments_in(*span):
            plan.lines[stmt] = lambda _: []
            plan.taken.update(tree.walk(stmt))
            context.rewritten.update(tree.walk(stmt))
    for loop in context.walked:
        parts = walk(loop, context.unit)
        assert parts is not None
        item, source, _ = parts
        counter = context.locator.chains(loop).counters[loop].id
        plan.point(loop, tree.start(loop.target), tree.end(loop.iter), f"{counter} in range(len({source.id}))")
        plan.taken.update([*tree.walk(loop.target), *tree.walk(loop.iter)])
        if context.is_read(loop, item.id):
            plan.before.setdefault(loop.body[0], []).insert(0, f"{item.id} = {source.id}[{counter}]")
        message = f"the loop counts the rows of {source.id}"
        plan.found("JM002", loop.target, "torch.Tensor.__iter__", message, rule="in-place")
