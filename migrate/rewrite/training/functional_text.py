"""The functions and gradients that stand in the place of `torch.autograd.grad`, written."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping, Sequence

from ...rulebook.precedence import level_of
from ..plan import Plan, Whole
from ..writer import Writer
from .flow import block_of
from .functional import Line, Made, Ready
from .gradcalls import GRAD, GradCall, is_scalar
from .loops import fresh, indent_unit
from .marking import is_mark, marks, marks_true
from .steps import backward_calls
from .text import indented

VARIABLE = "torch.autograd.Variable"
_INLINE = 60  # longer expressions get a function with a name
_FACTOR = 12  # how tightly an operand of `*` binds


def write_line(line: Line) -> None:
    """Write the functions of one line of code and the gradients in it."""
    inline = {m for m in line.made.values() if _short(line, m)}
    _name(line, inline)
    for made in line.made.values():
        if made not in inline:
            _write_function(line.plan, made)
        else:
            _remove(line.plan, made.last)
    for ready in line.ready:
        for name, made in ready.made.items():
            _substitute(line.plan, name, made, made in inline)
        _write_gradient(line, ready)
    body = line.unit.tree.function(line.calls[0].stmt) or line.tree.root
    unmark(line.plan, body, line.inputs)
    _drop_ones(line)


def _short(line: Line, made: Made) -> bool:
    """Whether a function is written where it is used: one short expression, used once."""
    used = sum(1 for r in line.ready for m in r.made.values() if m is made)
    value = made.last.value
    return (
        made.is_expression
        and made.folds
        and not made.kept
        and used == 1
        and len(ast.unparse(value)) <= _INLINE
        and not any(r.call.stmt is made.last for r in line.ready)
    )


def _name(line: Line, inline: set[Made]) -> None:
    used: set[str] = set()
    for made in line.made.values():
        if made in inline:
            continue
        first = f"{made.name}_fn"
        wanted = [c for c in (first, f"compute_{made.name}", *(f"{first}{i}" for i in range(2, 9))) if c not in used]
        made.spelled = fresh(line.plan, made.last, wanted)
        used.add(made.spelled)


def _substitute(plan: Plan, node: ast.Name, made: Made, inline: bool) -> None:
    """In the output of a gradient a name is the value of its function."""
    value = made.last.value
    if inline:
        plan.whole[node] = Whole(lambda w: w.text(value), level_of(value), (value,))
    else:
        plan.whole[node] = Whole(lambda _: _called(made), 15)
    plan.taken.add(node)


def _called(made: Made) -> str:
    return f"{made.spelled}({', '.join((*made.params, *made.modules))})"


def _remove(plan: Plan, stmt: ast.stmt) -> None:
    """Take a statement out, and a `with torch.enable_grad():` that would be left empty."""
    plan.lines[stmt] = lambda _: []
    around = plan.unit.tree.parents[stmt]
    if not isinstance(around, ast.With) or not all(s in plan.lines and s not in plan.before for s in around.body):
        return
    heads = {i.context_expr: plan.unit.resolve(getattr(i.context_expr, "func", i.context_expr)) for i in around.items}
    if set(heads.values()) == {"torch.enable_grad"} and not any(s is not stmt for s in around.body):
        plan.taken |= {n for head in heads for n in ast.walk(head)}
        plan.lines[around] = lambda _: []
        for head in heads:
            plan.found("JM002", head, "torch.enable_grad", "JAX differentiates what jax.grad is asked for")


def _write_function(plan: Plan, made: Made) -> None:
    """The function in the place of the last statement that makes its value, or behind it."""
    last = made.last
    for stmt in made.stmts[:-1] if made.folds else ():
        _remove(plan, stmt)
    follows = _follows(plan, last)
    if made.folds:
        kept = [f"{made.name} = {_called(made)}"] if made.kept else []
        if not _opens(plan, made.stmts[0]):
            _blank_line(plan, last)
        plan.lines[last] = lambda w: [_function(plan, made, w, kept, follows)]
        return
    tree = plan.unit.tree
    owner, at = tree.parents[last], tree.end(last)
    gap = tree.newline * 2 + tree.indent(last)
    plan.point(owner, at, at, lambda w: gap + _function(plan, made, w, [], follows))


def _function(plan: Plan, made: Made, writer: Writer, more: Sequence[str], follows: bool) -> str:
    """`def u_fn(x, t): …`, a blank line, and what comes after it."""
    tree = plan.unit.tree
    newline, indent, unit = tree.newline, tree.indent(made.last), indent_unit(plan, made.last)
    if made.is_expression:
        body = [f"return {writer.at_level(made.last.value, 1, False)}"]
    else:
        body = [*(_statement(s, writer) for s in made.stmts), f"return {made.name}"]
    inner = indented("".join(f"{indent}{b}{newline}" for b in body), unit).rstrip()
    text = f"def {_called(made)}:{newline}{inner}"
    gap = newline * 2 + indent
    if more:
        return text + gap + (newline + indent).join(more)
    return text + (newline if follows else "")


def _statement(stmt: ast.stmt, writer: Writer) -> str:
    """A statement's text, without what was decided for the statement as a whole."""
    assert isinstance(stmt, (ast.Assign, ast.AugAssign))
    target = stmt.targets[0] if isinstance(stmt, ast.Assign) else stmt.target
    sign = "=" if isinstance(stmt, ast.Assign) else f"{operator(stmt)}="
    return f"{ast.unparse(target).removeprefix('(').removesuffix(')')} {sign} {writer.at_level(stmt.value, 0, False)}"


def operator(stmt: ast.AugAssign) -> str:
    """`+` of `x += y`."""
    return ast.unparse(ast.BinOp(ast.Name("a"), stmt.op, ast.Name("b"))).removeprefix("a").removesuffix("b").strip()


def _opens(plan: Plan, stmt: ast.stmt) -> bool:
    """Whether nothing but a blank line or a comment stands right above."""
    tree = plan.unit.tree
    line = tree.position(tree.start(stmt))[0] - 1
    text = tree.text[tree.line_starts[line - 1] : tree.line_starts[line]].strip() if line else ""
    return not text or text.startswith("#") or block_of(stmt, tree.parents)[0] is stmt


def _blank_line(plan: Plan, stmt: ast.stmt) -> None:
    tree = plan.unit.tree
    at = tree.line_starts[tree.position(tree.start(stmt))[0] - 1]
    plan.point(tree.parents[stmt], at, at, tree.newline)


def _follows(plan: Plan, stmt: ast.stmt) -> bool:
    """Whether a statement stands on the next line: a blank line must come between."""
    tree = plan.unit.tree
    block = block_of(stmt, tree.parents)
    index = block.index(stmt) + 1
    if index == len(block):
        return False
    return tree.position(tree.start(block[index]))[0] == tree.position(tree.end(stmt))[0] + 1


def _write_gradient(line: Line, ready: Ready) -> None:
    plan, call = line.plan, ready.call
    kept = {n for part in (call.output, call.weights) if part is not None for n in ast.walk(part)}
    plan.taken |= {n for n in ast.walk(call.node) if n not in kept}
    alone = plan.unit.tree.function(call.call) is None and not any(True for _ in backward_calls(plan.unit))
    stop = call.cut and not (alone and all(c.cut for c in line.calls))  # what calls the function may differentiate it
    plan.whole[call.node] = Whole(lambda w: _stopped(_gradient(line, ready, w), stop), 15, tuple(kept))
    names = ", ".join(n.id for n in call.inputs)
    space = "nnx" if ready.modules else "jax"
    if call.helper is not None:
        plan.found("JM002", call.call, GRAD, f"{space}.grad by {names}, as {call.helper.name} takes it")
        return
    code, text = "JM002", f"{space}.grad by {names}"
    if call.unused:
        code, text = "JM101", f"{text}; where the output does not depend on it the gradient is zero, torch's is None"
    plan.found(code, call.call, GRAD, text)


def _stopped(text: str, stop: bool) -> str:
    return f"jax.lax.stop_gradient({text})" if stop else text


def _gradient(line: Line, ready: Ready, writer: Writer) -> str:
    """`jax.grad(lambda x: u_fn(x, t).sum())(x)`."""
    call = ready.call
    names = [n.id for n in call.inputs]
    several = (
        f", argnums=({', '.join(map(str, range(len(names))))}{',' * (len(names) == 1)})" if not call.single else ""
    )
    space = "nnx" if ready.modules else "jax"
    given = ", ".join([*names, *ready.modules])
    function = _whole(call, ready.made, given) if _scalar(line, ready) and call.weights is None else ""
    if not function:
        function = f"lambda {given}: {_summed(line, ready, writer)}"
    return f"{space}.grad({function}{several})({given})"


def _whole(call: GradCall, made: Mapping[ast.Name, Made], given: str) -> str:
    """The function itself, where the output is nothing else and takes only what is differentiated."""
    one = made.get(call.output) if isinstance(call.output, ast.Name) else None
    return one.spelled if one is not None and ", ".join((*one.params, *one.modules)) == given else ""


def _summed(line: Line, ready: Ready, writer: Writer) -> str:
    """The output as a number: the sum over it, with the weights of grad_outputs."""
    call = ready.call
    if call.weights is not None:
        return f"({writer.at_level(call.output, _FACTOR)} * {writer.at_level(call.weights, _FACTOR)}).sum()"
    if _scalar(line, ready):
        return writer.at_level(call.output, 1)
    return f"{writer.at_level(call.output, 15)}.sum()"


def _scalar(line: Line, ready: Ready) -> bool:
    """Whether the output is known to be one number."""
    call, unit = ready.call, line.unit
    made = ready.made.get(call.output) if isinstance(call.output, ast.Name) else None
    value = made.last.value if made is not None and made.is_expression else call.output
    return is_scalar(unit, value) or unit.kind(call.output).name == "scalar"


def unmark(plan: Plan, body: ast.AST, names: Collection[str]) -> None:
    """`x.requires_grad_()` goes: the gradient says by what it is taken."""
    text = "the gradient function says what is differentiated"
    for stmt in [n for n in ast.walk(body) if isinstance(n, (ast.Expr, ast.Assign)) and n not in plan.lines]:
        if marks(stmt) in names:
            plan.taken |= set(ast.walk(stmt))
            plan.lines[stmt] = lambda _: []
            plan.found("JM002", stmt, "torch.Tensor.requires_grad_", text)
            continue
        value = stmt.value
        target = stmt.targets[0] if isinstance(stmt, ast.Assign) else None
        if not isinstance(value, ast.Call) or not isinstance(target, ast.Name) or target.id not in names:
            continue
        if is_mark(value.func) and marks_true(value):
            assert isinstance(value.func, ast.Attribute)
            owner = value.func.value
            plan.taken |= {value, value.func}
            plan.whole[value] = Whole(lambda w, o=owner: w.text(o), level_of(owner), (owner,))  # type: ignore[misc]
            plan.found("JM002", value, "torch.Tensor.requires_grad_", text)
        elif plan.unit.resolve(value.func) == VARIABLE and value.args:
            owner = value.args[0]
            if isinstance(owner, ast.Name) and owner.id == target.id:
                plan.lines[stmt] = lambda _: []  # `x = Variable(x, requires_grad=True)`
            plan.taken |= {value, value.func, *(n for k in value.keywords for n in ast.walk(k))}
            plan.whole[value] = Whole(lambda w, o=owner: w.text(o), level_of(owner), (owner,))  # type: ignore[misc]
            plan.found("JM002", value, VARIABLE, text)


def _drop_ones(line: Line) -> None:
    """`ones = torch.ones(…)` that serves as grad_outputs only goes."""
    for stmt in line.ones:
        line.plan.taken |= set(ast.walk(stmt))
        line.plan.lines[stmt] = lambda _: []
        text = "the sum of the output has its gradient with this weight"
        line.plan.found("JM002", stmt.value, "torch.ones", text)
