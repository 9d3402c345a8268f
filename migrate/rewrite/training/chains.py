"""`train`, `eval`, `to`, `cuda`, `cpu` of a module: statements, where torch lets them be chained."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from ...rulebook.precedence import ATOM, NONE, level_of
from ..devices import device_text
from ..plan import Build, Plan, Whole
from ..writer import Writer
from .loops import fresh
from .roles import MODULE, SWITCHES, has_own, is_module, refuse

PLACES = ("to", "cuda", "cpu")


@dataclass(frozen=True)
class Link:
    """One call of a chain and the name of its method."""

    call: ast.Call
    name: str


def plan_chain(plan: Plan, node: ast.Call) -> None:
    """`Net().to(device).eval()`: the module, then a statement for each link: NNX's methods return nothing."""
    tree = plan.unit.tree
    links, base = _links(plan, node)
    stmt = tree.parents[node]
    problem = _problem(plan, links, base)
    if problem:
        for link in links:
            refuse(plan, link.call, "JM203", MODULE + link.name, problem)
        return
    target = _target(plan, stmt, node)
    plain = isinstance(base, (ast.Name, ast.Attribute))
    if isinstance(stmt, ast.Expr) and plain:
        _statements(plan, stmt, links, ast.unparse(base), remove=True)
    elif isinstance(stmt, ast.Assign) and target:
        same = plain and ast.unparse(base) == target
        if not same:
            plan.whole[node] = Whole(lambda w: w.text(base), level_of(base), (base,))
        _statements(plan, stmt, links, target, remove=same)
    elif isinstance(stmt, ast.Return) and plan.alone(stmt):
        _returned(plan, stmt, base, links)
    elif plain and _simple(plan, node) and all(link.name in SWITCHES for link in links):
        _embedded(plan, node, base, links)
    elif len(links) == 1 and _kept(links[0]) and _unused(plan, node):
        _note(plan, links[0], "the same in NNX")
    elif all(link.name in PLACES for link in links):
        _dropped(plan, node, base, links)
    else:
        _as_value(plan, node, base, links)


def _links(plan: Plan, node: ast.Call) -> tuple[list[Link], ast.expr]:
    """The calls of a chain, first to last, and what they are called on."""
    links: list[Link] = []
    base: ast.expr = node
    while (
        isinstance(base, ast.Call) and isinstance(base.func, ast.Attribute) and base.func.attr in (*SWITCHES, *PLACES)
    ):
        if not is_module(plan, base.func.value) or has_own(plan, base.func):
            break
        links.insert(0, Link(base, base.func.attr))
        base = base.func.value
    return links, base


def _problem(plan: Plan, links: list[Link], base: ast.expr) -> str:
    tree = plan.unit.tree
    if any(isinstance(a, ast.Starred) for link in links for a in link.call.args):
        return "the arguments are starred"
    if tree.comments_in(tree.end(base), tree.end(links[-1].call)):
        return "a comment stands in the chain"
    unclear = next((link for link in links if _line(plan, link, "") is None), None)
    return (
        f"`.{unclear.name}({ast.unparse(unclear.call).rpartition('(')[2]}`: nothing shows a device" if unclear else ""
    )


def _unused(plan: Plan, node: ast.expr) -> bool:
    """Whether the call is a branch of `a() if c else b()` on a line of its own: nobody reads what it gives."""
    up: ast.AST = node
    parent = plan.unit.tree.parents[up]
    while isinstance(parent, ast.IfExp) and up is not parent.test:
        up, parent = parent, plan.unit.tree.parents[parent]
    return isinstance(parent, ast.Expr)


def _as_value(plan: Plan, node: ast.Call, base: ast.expr, links: list[Link]) -> None:
    """`m.eval()(x)` inside a larger expression: the library's functions switch and give the module back."""
    kept = [link for link in links if link.name in SWITCHES]
    for link in kept:
        plan.layers.add(f"{link.name}_mode")

    def build(writer: Writer) -> str:
        text = writer.at_level(base, ATOM if not kept else NONE)
        for link in kept:
            mode = "".join(
                f", {writer.at_level(a, NONE)}" for a in [*link.call.args, *(k.value for k in link.call.keywords)]
            )
            text = f"{plan.spelling(f'{link.name}_mode')}({text}{mode})"
        return text

    plan.whole[node] = Whole(build, ATOM, (base,))
    for link in links:
        _note(plan, link, f"{link.name}_mode(…)" if link in kept else _what(link))


def _target(plan: Plan, stmt: ast.AST, node: ast.Call) -> str:
    """The one name or attribute that the chain is assigned to."""
    if isinstance(stmt, ast.Assign) and stmt.value is node and len(stmt.targets) == 1 and plan.alone(stmt):
        target = stmt.targets[0]
        if isinstance(target, ast.Name) or (isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name)):
            return ast.unparse(target)
    return ""


def _statements(plan: Plan, stmt: ast.stmt, links: list[Link], name: str, *, remove: bool) -> None:
    if remove and len(links) == 1 and _kept(links[0]):
        _note(plan, links[0], "the same in NNX")
        return
    builds = [b for link in links if (b := _line(plan, link, name)) is not None]

    def lines(writer: Writer) -> list[str]:
        return [text for build in builds if (text := build(writer))]

    plan.lines[stmt] = lines if remove else lambda writer: [writer.text(stmt), *lines(writer)]
    for link in links:
        _note(plan, link, _what(link))


def _kept(link: Link) -> bool:
    """`model.train()` and `model.eval()` as they stand."""
    return link.name in SWITCHES and not link.call.args and not link.call.keywords


def _what(link: Link) -> str:
    if link.name in SWITCHES:
        return "a statement of its own: NNX's train() and eval() return nothing"
    return "the module's state is placed; its class does not change"


def _note(plan: Plan, link: Link, message: str, code: str = "JM001") -> None:
    plan.taken |= {link.call, link.call.func}
    plan.found(code, link.call, MODULE + link.name, message)


def _line(plan: Plan, link: Link, name: str) -> Build | None:
    """Builds the statement for one link of a chain, "" when nothing is left to do; None when it is not understood."""
    attr = link.name
    argument = link.call.args[0] if link.call.args else link.call.keywords[0].value if link.call.keywords else None
    if attr in SWITCHES and (attr == "eval" or argument is None):
        return lambda _: f"{name}.{attr}()"
    if attr == "train" and argument is not None:
        if isinstance(argument, ast.Constant):
            return lambda _: f"{name}.{'train' if argument.value else 'eval'}()"
        return lambda writer: f"{name}.train() if {writer.at_level(argument, 2)} else {name}.eval()"
    place = device_text(plan, link.call)
    if place is None:
        return None

    def build(writer: Writer) -> str:
        device = place(writer)
        return f"nnx.update({name}, jax.device_put(nnx.state({name}), {device}))" if device else ""

    return build


def _returned(plan: Plan, stmt: ast.Return, base: ast.expr, links: list[Link]) -> None:
    plain = isinstance(base, (ast.Name, ast.Attribute))
    name = ast.unparse(base) if plain else fresh(plan, stmt, ("model", "module", "net"))
    builds = [b for link in links if (b := _line(plan, link, name)) is not None]

    def lines(writer: Writer) -> list[str]:
        made = [] if plain else [f"{name} = {writer.at_level(base, 1, False)}"]
        return [*made, *(text for build in builds if (text := build(writer))), f"return {name}"]

    plan.lines[stmt] = lines
    for link in links:
        _note(plan, link, _what(link))


def _simple(plan: Plan, node: ast.AST) -> bool:
    """Whether the chain runs once, before anything else of its statement that could see the difference."""
    tree = plan.unit.tree
    stmt = tree.statement(node)
    inside = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.IfExp, ast.BoolOp)
    if not isinstance(stmt, (ast.Expr, ast.Assign, ast.Return, ast.AugAssign)) or not plan.alone(stmt):
        return False
    if any(isinstance(up, inside) for up in tree.ancestors(node) if not isinstance(up, ast.stmt)):
        return False
    calls = [n for n in ast.walk(stmt) if isinstance(n, ast.Call) and tree.end(n) <= tree.start(node)]
    return not calls


def _embedded(plan: Plan, node: ast.Call, base: ast.expr, links: list[Link]) -> None:
    """`m.eval()(x)` becomes `m.eval()` and `m(x)`."""
    stmt = plan.unit.tree.statement(node)
    plain = Writer(plan)
    lines = [b(plain) for link in links if (b := _line(plan, link, ast.unparse(base))) is not None]
    plan.before.setdefault(stmt, []).extend(line for line in lines if line)
    plan.whole[node] = Whole(lambda w: w.text(base), 15, (base,))
    for link in links:
        _note(plan, link, _what(link))


def _dropped(plan: Plan, node: ast.Call, base: ast.expr, links: list[Link]) -> None:
    plan.whole[node] = Whole(lambda w: w.text(base), level_of(base), (base,))
    for link in links:
        _note(plan, link, "the module stays on JAX's default device", "JM101")
        for part in [*link.call.args, *(k.value for k in link.call.keywords)]:
            plan.taken |= set(ast.walk(part))
