"""`x[i] = v`, `x[i] += v`, `x += v`, `w.data = v`."""

from __future__ import annotations

import ast
from collections.abc import Callable

from ...rulebook.precedence import ARITH, ATOM, level_of
from ..writer import Writer
from .context import Context
from .masks import is_mask, selects
from .places import Place
from .several import SET, several_targets
from .unknown import AUGMENTED, unknown_augmented

METHODS = {ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide"}
SYMBOLS = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.MatMult: "@", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>",
}  # fmt: skip
STRANGE = (ast.Tuple, ast.List, ast.Yield, ast.YieldFrom, ast.NamedExpr, ast.Lambda, ast.Starred)


def assignment(context: Context, stmt: ast.Assign) -> None:
    """An assignment with a tensor subscript or `.data` among its targets."""
    targets = [t for target in stmt.targets for t in _flat(target)]
    writes = [t for t in targets if _is_write(context, t)]
    if not writes:
        for target in targets:
            _unknown_target(context, target, stmt)
            _rebound_variable(context, target, stmt)
        return
    if len(targets) == 1:
        target = targets[0]
        if isinstance(target, ast.Attribute):
            _data(context, stmt, target)
        else:
            assert isinstance(target, ast.Subscript)
            _one(context, stmt, target)
        return
    several_targets(context, stmt, targets, writes)


def _flat(target: ast.expr) -> list[ast.expr]:
    if isinstance(target, (ast.Tuple, ast.List)):
        return [t for e in target.elts for t in _flat(e)]
    return [target]


def _is_write(context: Context, target: ast.expr) -> bool:
    if isinstance(target, ast.Subscript):
        return context.unit.kind(target.value).is_tensor
    return isinstance(target, ast.Attribute) and target.attr == "data" and context.unit.kind(target.value).is_tensor


def _unknown_target(context: Context, target: ast.expr, stmt: ast.Assign | ast.AugAssign) -> bool:
    """Refuse a subscript write to something unknown that is written as to a tensor. Returns whether it is one."""
    if (
        not isinstance(target, ast.Subscript)
        or context.unit.kind(target.value).known
        or context.unit.resolve(target.value)
    ):
        return False
    parts = target.slice.elts if isinstance(target.slice, ast.Tuple) else [target.slice]
    kinds = [context.unit.kind(p) for p in parts]
    like_a_tensor = any(isinstance(p, ast.Slice) or k.is_tensor for p, k in zip(parts, kinds, strict=True)) or (
        all(k.tag == "int" for k in kinds)
    )
    if like_a_tensor:
        context.refuse(
            target, SET, f"nothing shows what `{ast.unparse(target.value)[:60]}` is: JAX arrays cannot be written to",
            "JM201", "Annotate the value (x: torch.Tensor) or convert by hand.",
        )  # fmt: skip
    return like_a_tensor


def _rebound_variable(context: Context, target: ast.expr, stmt: ast.Assign) -> None:
    """`self.buf = v` writes into the Variable: a name that holds it would see that, and does not in torch."""
    if (
        isinstance(target, ast.Attribute)
        and context.unit.kind(target).tag == "Variable"
        and stmt in context.plan.points
    ):
        holders = context.aliases.same_object(stmt, target)
        if holders:
            context.refuse(
                stmt, "torch.nn.Module.__setattr__", context.text(holders), advice="Clone the old value first."
            )


def _one(context: Context, stmt: ast.Assign, target: ast.Subscript) -> None:
    place = context.place(target, stmt)
    if isinstance(stmt.value, STRANGE):
        context.refuse(
            stmt, SET, "the value written is not one tensor or number", "JM205", "Bind the value to a name first."
        )
        return
    build = _new_value(context, stmt, place)
    _write(context, stmt, place, build)


def _write(
    context: Context, stmt: ast.Assign | ast.AugAssign, place: Place, build: Callable[[Writer], str], name: str = SET
) -> None:
    """Put `base = <new value>` in place of the statement, or say why not."""
    problem = context.problem(place, stmt)
    if problem:
        context.refuse(stmt, name, problem)
        return
    if (
        context.is_variable(place.base)
        and len(place.steps) == 1
        and place.steps[0].name == "index"
        and len(place.nodes) == 1
        and not place.moved
        and not place.renewed
    ):
        context.converted(stmt, name, "a Variable takes item assignment")
        return
    kept = [p for s in place.steps for p in s.parts]
    lost = context.lost_comment(stmt, [*kept, stmt.value, *_value_span(context, stmt)])
    if lost:
        context.refuse(stmt, name, f"rewriting would lose the comment {lost!r}", "JM204", "")
        return
    if (
        isinstance(stmt, ast.AugAssign)
        and "Call" in {type(n).__name__ for p in kept for n in ast.walk(p)}
        and not _twice_is_fine(context, kept)
    ):
        context.refuse(stmt, name, "the index would be evaluated twice", "JM205", "Bind the index to a name first.")
        return
    context.take(place.nodes)
    context.settle(place)
    context.lines(stmt, lambda w: [f"{context.base_text(place)} = {build(w)}", *context.renew(place, w)])
    message = f"{ast.unparse(stmt)[:60]} -> {ast.unparse(place.base)} = …"
    eager = any(is_mask(p, context.unit) for p in kept) and not _selects(context, stmt, place)
    context.converted(
        stmt,
        name,
        message + (": a mask as index works without jit only" if eager else ""),
        "JM141" if eager else "JM001",
    )


def _twice_is_fine(context: Context, parts: list[ast.expr]) -> bool:
    """Whether every call in the index is a torch function or a tensor's method, which can be evaluated again."""
    for node in (n for p in parts for n in ast.walk(p)):
        if isinstance(node, ast.Call):
            dotted = context.unit.resolve(node.func) or ""
            tensor = isinstance(node.func, ast.Attribute) and context.unit.kind(node.func.value).is_tensor
            if not (dotted.startswith(("torch.", "builtins.")) or tensor):
                return False
    return True


def _value_span(context: Context, stmt: ast.Assign | ast.AugAssign) -> list[ast.AST]:
    """A stand-in node for the text from the value to the statement's end, parentheses included."""
    start, end = _span(context, stmt)
    node = ast.Pass()
    node._start, node._end = start, end  # type: ignore[attr-defined]
    return [node]


def _span(context: Context, stmt: ast.Assign | ast.AugAssign) -> tuple[int, int]:
    """Where the value's text starts and ends, with parentheses around it."""
    tree = context.unit.tree
    last = stmt.targets[-1] if isinstance(stmt, ast.Assign) else stmt.target
    at = tree.text.index("=", tree.end(last)) + 1
    while tree.text[at] in " \t\\\r\n":
        at += 1
    return at, tree.end(stmt)


def _value(context: Context, stmt: ast.Assign | ast.AugAssign, writer: Writer, level: int) -> str:
    """The value's text as it stands after the `=`, bound at least as tightly as asked."""
    start, end = _span(context, stmt)
    if start < writer.tree.start(stmt.value):  # in parentheses already
        return writer.splice_range(stmt, start, end, [])
    return writer.at_level(stmt.value, level)


def _selects(context: Context, stmt: ast.Assign | ast.AugAssign, place: Place) -> bool:
    """Whether the write is of one step, and jnp.where says it."""
    last = place.steps[-1] if place.steps else None
    if len(place.steps) != 1 or last is None or last.name != "index":
        return False
    return selects(stmt, place.base, last.parts, context.unit)


def _infinite(node: ast.expr) -> bool:
    text = ast.unparse(node).lower().replace('"', "'")
    return any(
        word in text
        for word in ("float('inf')", "float('-inf')", "float('nan')", "math.inf", "torch.inf", "math.nan", "torch.nan")
    )


def _new_value(context: Context, stmt: ast.Assign, place: Place) -> Callable[[Writer], str]:
    def build(writer: Writer) -> str:
        text = context.base_text(place)
        if _selects(context, stmt, place):
            where = f"jnp.where({place.steps[0].inside(writer)}, {_value(context, stmt, writer, 1)}, {text})"
            return where if _infinite(stmt.value) else f"{where}.astype({text}.dtype)"
        return place.written(text, _value(context, stmt, writer, 1), writer)

    return build


def augmented(context: Context, stmt: ast.AugAssign) -> None:
    """`x[i] += v` and `x += v`."""
    target, unit = stmt.target, context.unit
    if isinstance(target, ast.Subscript):
        if unit.kind(target.value).is_tensor:
            place = context.place(target, stmt)
            _write(context, stmt, place, lambda w: _augmented_value(context, stmt, place, w), AUGMENTED)
        elif unit.kind(target).is_tensor and not unit.resolve(target.value):
            _whole(context, stmt, context.place(target, stmt))
        elif not _unknown_target(context, target, stmt):
            unknown_augmented(context, stmt)
        return
    if isinstance(target, ast.Attribute) and target.attr == "data" and unit.kind(target.value).is_tensor:
        _whole(context, stmt, context.place(target, stmt))
    elif unit.kind(target).is_tensor:
        if not (isinstance(target, ast.Attribute) and unit.kind(target.value).is_tensor):
            _whole(context, stmt, context.locator.carried(Place(target), stmt))
    else:
        unknown_augmented(context, stmt)


def _augmented_value(context: Context, stmt: ast.AugAssign, place: Place, writer: Writer) -> str:
    """`x.at[i].add(v)` where no element comes twice, else `x.at[i].set(x[i] + v)`: torch adds once per element."""
    text = context.base_text(place)
    last = place.steps[-1]
    method = METHODS.get(type(stmt.op))
    before = place.view(text, writer, len(place.steps) - 1)
    if last.name == "index" and method and (context.basic(last.parts) or _is_one_mask(context, last.parts)):
        new = f"{before}.at[{last.inside(writer)}].{method}({_value(context, stmt, writer, 1)})"
        for index in reversed(range(len(place.steps) - 1)):
            new = place.steps[index].back(new, place.view(text, writer, index), writer)
        return new
    new = _operation(context, stmt, place.view(text, writer), writer)
    return place.written(text, new if last.name == "index" else f"({new})", writer)


def _is_one_mask(context: Context, parts: tuple[ast.expr, ...]) -> bool:
    return len(parts) == 1 and is_mask(parts[0], context.unit)


def _operation(context: Context, stmt: ast.AugAssign, left: str, writer: Writer) -> str:
    level = level_of(ast.BinOp(stmt.value, stmt.op, stmt.value))
    return f"{left} {SYMBOLS[type(stmt.op)]} {_value(context, stmt, writer, level + 1 if level >= ARITH else ATOM)}"


def _whole(context: Context, stmt: ast.AugAssign, place: Place) -> None:
    """`x += v`: the text is legal JAX and binds the name again, which is equal when no alias is read later."""
    variable = context.is_variable(place.base)
    problem = context.problem(place, stmt)
    if problem:
        context.refuse(stmt, AUGMENTED, problem)
        return
    tree = context.unit.tree
    if place.moved or place.renewed or place.loops:
        _moved(context, stmt, place)
        return
    if variable and stmt in context.plan.points:
        return  # the modules pass has written `[...]`
    if variable:
        context.plan.point(stmt, tree.end(place.base), tree.end(stmt.target), "[...]")
        context.take([stmt.target])
        context.converted(stmt, AUGMENTED, f"{ast.unparse(stmt.target)} -> {ast.unparse(place.base)}[...]")
    elif context.narrow:
        context.converted(
            stmt, AUGMENTED, "torch keeps the type of the left side, JAX promotes: equal when both types are", "JM111"
        )
    else:
        context.converted(stmt, AUGMENTED, f"`{ast.unparse(stmt.target)}` is bound again instead of written to")


def _moved(context: Context, stmt: ast.AugAssign, place: Place) -> None:
    """`row += v` where row is a view of x: x is bound again, and row where it is read."""
    lost = context.lost_comment(stmt, [stmt.value, *_value_span(context, stmt)])
    if lost or stmt in context.plan.points:
        context.refuse(stmt, AUGMENTED, f"rewriting would lose the comment {lost!r}", "JM204", "")
        return
    context.settle(place)
    context.take([*place.nodes, stmt.target])

    def build(writer: Writer) -> list[str]:
        text = context.base_text(place)
        if place.steps:
            new = _augmented_value(context, stmt, place, writer)
        else:
            new = _operation(context, stmt, text, writer)
            if context.narrow:
                new = f"({new}).astype({text}.dtype)"
        return [f"{text} = {new}", *context.renew(place, writer)]

    context.lines(stmt, build)
    names = ", ".join(n for n, _ in place.renewed)
    context.converted(
        stmt, AUGMENTED, f"`{ast.unparse(place.base)}` is bound again" + (f", and {names}" if names else "")
    )


def _data(context: Context, stmt: ast.Assign, target: ast.Attribute) -> None:
    """`self.w.data = v` gives a Variable a new array."""
    if not context.is_variable(target.value):
        context.refuse(stmt, "torch.Tensor.data", f"`{ast.unparse(target)}` is given new memory")
        return
    problem = context.text(context.aliases.holders(stmt, target.value))
    if not problem and not context.aliases.is_temporary(stmt, stmt.value):
        problem = f"`{ast.unparse(target.value)}` would share memory with `{ast.unparse(stmt.value)[:60]}`"
    if problem:
        context.refuse(stmt, "torch.Tensor.data", problem)
        return
    lost = context.lost_comment(stmt, [stmt.value, *_value_span(context, stmt)])
    if lost:
        context.refuse(stmt, "torch.Tensor.data", f"rewriting would lose the comment {lost!r}", "JM204", "")
        return
    context.take([target])
    context.lines(stmt, lambda w: [f"{w.text(target.value)}.set_value({_value(context, stmt, w, 1)})"])
    context.converted(
        stmt, "torch.Tensor.data", f"{ast.unparse(target)} = … -> {ast.unparse(target.value)}.set_value(…)"
    )
