"""In-place methods and functions, `out=`, `inplace=True`."""

from __future__ import annotations

import ast

from ...read.facts import ClassFacts
from ...read.views import may_be_inplace
from ...rulebook.precedence import ATOM
from ...rulebook.rows import Row
from ..calls import apply
from ..layercalls import remove_argument
from ..plan import Whole
from ..writer import Writer
from .apart import apart
from .context import Context
from .hoist import bind_call, hoist
from .mutators import runs_once
from .places import Place
from .writes import Written, inplace_written

AT = {"add_": "add", "sub_": "subtract", "mul_": "multiply", "div_": "divide"}
SYMBOLS = {"add_": "+", "sub_": "-", "mul_": "*", "div_": "/"}
SETTING = {"zero_", "fill_", "copy_"}
# These change how one tensor sees its memory: nothing of it is written, and no other view of it sees the change.
SHAPES = {"unsqueeze_", "squeeze_", "t_", "transpose_", "swapaxes_", "swapdims_", "as_strided_"}


def inplace_call(context: Context, node: ast.Call) -> None:
    """A chain of in-place calls: `x.mul_(a).add_(b)` as a statement, or its value."""
    last = inplace_written(context.unit, node)
    if last is None:
        return
    chain = [last]
    while (inner := inplace_written(context.unit, chain[0].receiver)) is not None:
        chain.insert(0, inner)
    tree = context.unit.tree
    stmt = tree.statement(node)
    place = context.place(chain[0].receiver, stmt)
    if isinstance(stmt, ast.Expr) and stmt.value is node:
        if context.aliases.is_temporary(stmt, chain[0].receiver) and place.problem:
            _refuse(context, chain, f"the write goes to a new tensor that nothing keeps: {place.problem}")
            return
        _statement(context, stmt, chain, place)
    elif context.aliases.is_temporary(stmt, chain[0].receiver):
        _apply(context, chain)
    else:
        _value(context, stmt, chain, place)


def _refuse(context: Context, chain: list[Written], message: str, code: str = "JM206") -> None:
    for written in chain:
        context.take([written.call, written.call.func])
    advice = "Put the in-place call on a line of its own." if code == "JM205" else ""
    if advice:
        context.refuse(chain[-1].call, chain[-1].dotted, message, code, advice)
    else:
        context.refuse(chain[-1].call, chain[-1].dotted, message, code)


def _apply(context: Context, chain: list[Written]) -> bool:
    """Replace each call by the value its row gives. Returns whether all could be."""
    plan = context.plan
    for written in chain:
        plain = Row(written.row.name, written.row.path, {k: v for k, v in written.row.data.items() if k != "effect"})
        receiver = written.receiver if written.method else None
        context.take([written.call, written.call.func])
        if not apply(plan, plain, written.call, written.dotted, receiver, "no alias is read later"):
            for done in chain:
                context.take([done.call, done.call.func])
                plan.whole.pop(done.call, None)
            return False
    return True


def _statement(context: Context, stmt: ast.Expr, chain: list[Written], place: Place) -> None:
    problem = _later_arguments(context, stmt, chain, place) or context.problem(place, stmt)
    last = place.steps[-1] if place.steps else None
    if not problem and last is not None and last.name == "index" and not context.basic(last.parts):
        problem = "torch writes to a copy here, which nothing keeps"
    problem = problem or _shape_problem(context, chain, place)
    if problem:
        _refuse(context, chain, problem)
        return
    if len(chain) == 1 and _short(context, stmt, chain[0], place):
        return
    if not _apply(context, chain):
        return
    variable = context.is_variable(place.base)
    receiver, outer = chain[0].receiver, chain[-1].call
    context.settle(place)
    if place.nodes or variable:
        context.take(place.nodes)
        context.take([receiver])
        context.plan.whole[receiver] = Whole(lambda w: place.view(context.base_text(place), w), ATOM)
    narrow = context.narrow and not variable and not (place.steps and place.steps[-1].name == "index")

    def build(writer: Writer) -> list[str]:
        text = context.base_text(place)
        enclosed = bool(place.steps) and place.steps[-1].name == "index"
        new = writer.at_level(outer, 1 if enclosed else ATOM if place.steps or narrow else -1, enclosed)
        if narrow:
            new = f"{new}.astype({text}.dtype)"
        return [f"{text} = {place.written(text, new, writer)}", *context.renew(place, writer)]

    context.lines(stmt, build)


def _shape_problem(context: Context, chain: list[Written], place: Place) -> str:
    """Why a call that changes the shape of a tensor cannot bind its name again; "" when it can, or there is none."""
    name = next((n for w in chain if (n := w.dotted.rpartition(".")[2]) in SHAPES), "")
    if not name or not (place.steps or place.renewed or context.is_variable(place.base)):
        return ""
    return f"{name}() changes the shape of one tensor, not of what shares its memory: write `y = y.{name[:-1]}(…)`"


def _later_arguments(context: Context, stmt: ast.stmt, chain: list[Written], place: Place) -> str:
    """Arguments of later calls of a chain are read after the earlier writes: they must not see them."""
    memory = context.aliases.reached(stmt, place.base)
    for written in chain[1:]:
        for value in [*written.call.args, *(k.value for k in written.call.keywords)]:
            if value is not written.receiver and context.aliases.reached(stmt, value) & memory:
                return "an argument of the chain reads what the chain writes"
    return ""


def _short(context: Context, stmt: ast.Expr, written: Written, place: Place) -> bool:
    """The forms that read better than the row: `x.at[i].add(v)`, `x.at[i].set(v)`, `w[...] += v`, `w[...] = v`."""
    name, call = written.dotted.rpartition(".")[2], written.call
    variable = context.is_variable(place.base)
    indexed = bool(place.steps) and place.steps[-1].name == "index"
    plain = [k for k in call.keywords if k.arg != "non_blocking"] == [] and not any(
        isinstance(a, ast.Starred) for a in call.args
    )
    counted = len(call.args) == (0 if name == "zero_" else 1) or (name == "copy_" and len(call.args) == 2)
    if not (plain and counted and written.method and (indexed or (variable and not place.steps))) or name not in (
        *AT,
        *SETTING,
    ):
        return False
    kept = [*call.args[:1], *(p for s in place.steps for p in s.parts)]
    if context.lost_comment(stmt, kept):
        return False
    context.take([*place.nodes, call, call.func])
    context.settle(place)

    def build(writer: Writer) -> list[str]:
        text = context.base_text(place)
        value = "0" if name == "zero_" else writer.at_level(call.args[0], 1, enclosed=False)
        if not place.steps:
            return [f"{text} {SYMBOLS.get(name, '')}= {value}", *context.renew(place, writer)]
        if name in SETTING:
            if variable and len(place.steps) == 1:
                line = f"{writer.tree.segment(place.base)}[{place.steps[0].inside(writer)}] = {value}"
            else:
                line = f"{text} = {place.written(text, value, writer)}"
            return [line, *context.renew(place, writer)]
        before = place.view(text, writer, len(place.steps) - 1)
        new = f"{before}.at[{place.steps[-1].inside(writer)}].{AT[name]}({value})"
        for index in reversed(range(len(place.steps) - 1)):
            new = place.steps[index].back(new, place.view(text, writer, index), writer)
        return [f"{text} = {new}", *context.renew(place, writer)]

    context.lines(stmt, build)
    context.converted(call, written.dotted, f"{ast.unparse(call)[:60]} -> {ast.unparse(place.base)} = …")
    return True


def _value(context: Context, stmt: ast.stmt, chain: list[Written], place: Place) -> None:
    """The value of an in-place call is used: `x = x.add_(1)`, `return x.add_(y)`, `y = x.add_(1)`."""
    base, call = place.base, chain[-1].call
    usable = isinstance(base, ast.Name) and not place.steps and not place.moved and not context.is_variable(base)
    if place.problem or not runs_once(context.unit, call, stmt):
        _refuse(context, chain, f"the value of {chain[-1].dotted} is used", "JM205")
        return
    problem = _later_arguments(context, stmt, chain, place) or context.problem(place, stmt)
    problem = problem or _shape_problem(context, chain, place)
    if problem:
        _refuse(context, chain, problem)
        return
    target = stmt.targets[0] if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 and stmt.value is call else None
    if usable and isinstance(base, ast.Name) and not place.renewed and not place.loops:
        same = isinstance(target, ast.Name) and target.id == base.id
        if same or (_is_over(context, stmt, base) and not _read_again(stmt, chain, base)):
            _apply(context, chain)
            return
    first = chain[0].receiver
    last = place.steps[-1] if place.steps else None
    if (
        (last is not None and last.name == "index" and not context.basic(last.parts))
        or not context.on_own_lines(stmt)
        or context.lost_comment(stmt, [call])
        or not apart(context.locator, stmt, call, place)
    ):
        _refuse(
            context, chain, f"the value of {chain[-1].dotted} is used and `{ast.unparse(base)}` is read later", "JM205"
        )
    elif _apply(context, chain):
        context.settle(place)
        if place.steps or place.moved or context.is_variable(base):
            context.take([*place.nodes, first])
            context.plan.whole[first] = Whole(lambda w: place.view(context.base_text(place), w), ATOM)
        hoist(context, stmt, call, place)


def _is_over(context: Context, stmt: ast.stmt, base: ast.Name) -> bool:
    """Whether nobody reads the memory of `base` after the statement, other than through its value."""
    kept = context.kept(stmt)
    if isinstance(stmt, ast.Return):  # what the function hands back is this value
        return not context.aliases.holders(stmt, base, kept=kept)
    return not context.aliases.holders(stmt, base, itself=True, kept=kept)


def _read_again(stmt: ast.stmt, chain: list[Written], base: ast.Name) -> bool:
    """Whether the statement reads the name outside the chain of calls that writes to it."""
    inside = {id(n) for n in ast.walk(chain[-1].call)}
    head = stmt.test if isinstance(stmt, (ast.If, ast.While)) else stmt
    return any(isinstance(n, ast.Name) and n.id == base.id and id(n) not in inside for n in ast.walk(head))


def out_argument(context: Context, node: ast.Call) -> None:
    """`torch.sum(a, out=c)` as a statement binds c."""
    unit, plan = context.unit, context.plan
    dotted = unit.resolve(node.func) or ""
    out = next((k for k in node.keywords if k.arg == "out"), None)
    row = unit.book.find(dotted) if out is not None and dotted.startswith("torch.") else None
    stmt = unit.tree.statement(node)
    if out is None or row is None or not (isinstance(stmt, ast.Expr) and stmt.value is node):
        return
    place = context.place(out.value, stmt)
    plain = isinstance(out.value, (ast.Name, ast.Attribute)) and "\n" not in unit.tree.segment(node)
    problem = context.problem(place, stmt) if plain else "the result goes to something that has no name"
    if problem:
        context.take([node, node.func])
        context.refuse(node, dotted, problem)
        return
    bare = ast.copy_location(ast.Call(node.func, node.args, [k for k in node.keywords if k is not out]), node)
    context.take([node, node.func])
    if not apply(plan, row, bare, dotted, None, "no alias is read later"):
        return
    if bare in plan.whole:
        plan.whole[node] = plan.whole.pop(bare)
    else:
        plan.points[node] = plan.points.pop(bare, [])
    if bare in plan.keyed:
        plan.keyed[node] = plan.keyed.pop(bare)
    if node not in plan.whole:
        remove_argument(plan, node, out.value)
    context.take(ast.walk(out.value))
    context.settle(place)
    context.lines(
        stmt,
        lambda w: [
            f"{context.base_text(place)} = {place.written(context.base_text(place), w.text(node), w)}",
            *context.renew(place, w),
        ],
    )


def inplace_argument(context: Context, node: ast.Call) -> None:
    """`F.relu(x, inplace=True)`: the argument is written to as well."""
    unit = context.unit
    dotted = unit.resolve(node.func) or ""
    row = unit.book.find(dotted) if dotted.startswith("torch.nn.functional.") and node.args else None
    if row is not None and row.get("effect") != "inplace" and may_be_inplace(node):
        problem, code = _overwritten(context, node)
        if problem:
            context.take([node, node.func])
            context.refuse(node, dotted, problem, code)


def inplace_module(context: Context, node: ast.Call) -> None:
    """`self.relu(x)` with a layer built with `inplace=True`: torch writes over x, JAX does not."""
    unit = context.unit
    kind = unit.kind(node.func)
    if kind.tag != "Module" or not node.args or isinstance(kind.facts, ClassFacts):
        return
    layer = context.aliases.modules.overwrites(node.func)
    if not layer:
        return
    built = context.aliases.modules.constructions(node.func)
    single = all(isinstance(b, ast.Call) and unit.resolve(b.func) == layer for b in built)
    problem, _ = _overwritten(context, node, single)
    if problem:
        context.refuse(node, layer, f"{layer}(inplace=True) writes over its input: {problem}")


def _overwritten(context: Context, node: ast.Call, whole: bool = True) -> tuple[str, str]:
    """Bind the first argument of `node` to its value. Returns what stands against it, with the code for it.

    `whole` says that the value of the call is what it leaves in its argument.
    """
    stmt, argument = context.unit.tree.statement(node), node.args[0]
    alone = isinstance(stmt, ast.Expr) and stmt.value is node
    if context.aliases.is_temporary(stmt, argument):
        return "", ""
    problem = _seen_later(context, stmt, node, context.locator.plain(argument, stmt))
    if not problem:
        return "", ""
    if not whole:
        return problem, "JM206"
    place = context.place(argument, stmt)
    against = context.problem(place, stmt)
    if against:
        return against, "JM206"
    if not bind_call(context, stmt, node, place):
        return problem, "JM206" if not alone else "JM205"
    return "", ""


def _seen_later(context: Context, stmt: ast.stmt, node: ast.Call, place: Place) -> str:
    """Who sees that the first argument of `node` is overwritten, its own name included."""
    if place.problem:
        return place.problem
    kept = context.kept(stmt)
    base = place.base
    if not isinstance(base, ast.Name):
        return context.text(context.aliases.holders(stmt, base, itself=True, kept=kept))
    handed = isinstance(stmt, ast.Return) and stmt.value is node and not place.steps
    found = context.aliases.holders(stmt, base, itself=not handed, kept=kept)
    inside = {id(n) for n in ast.walk(node)}
    again = any(
        isinstance(n, ast.Name) and n.id == base.id and isinstance(n.ctx, ast.Load) and id(n) not in inside
        for n in ast.walk(stmt)
    )
    if isinstance(stmt, (ast.If, ast.While, ast.For, ast.With, ast.Try)):
        again = False
    return context.text(found) or (f"`{base.id}` is read again in the same statement" if again else "")
