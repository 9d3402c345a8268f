"""Methods of modules outside their classes: train, eval, to, parameters, state_dict and their like."""

from __future__ import annotations

import ast

from ...read.facts import ClassFacts
from ..plan import Plan, Whole
from ..writer import Writer
from .loops import fresh

SWITCHES = ("train", "eval")
PLACES = ("to", "cuda", "cpu")
LIBRARY = {"named_parameters": "named_parameters", "named_buffers": "named_buffers", "state_dict": "state_dict"}
MODULE = "torch.nn.Module."


def plan_methods(plan: Plan) -> None:
    """Decide the module methods that other passes have not taken."""
    for node in list(plan.unit.tree.parents):
        if isinstance(node, ast.Call) and node not in plan.taken and isinstance(node.func, ast.Attribute):
            if node.func.attr in (
                *SWITCHES,
                *PLACES,
                *LIBRARY,
                "parameters",
                "buffers",
                "load_state_dict",
                "requires_grad_",
            ):
                if is_module(plan, node.func.value) and not _own_method(plan, node.func):
                    _method(plan, node, node.func)


def is_module(plan: Plan, node: ast.expr) -> bool:
    """A module by kind, or by use when its kind is not known."""
    from .roles import is_model

    kind = plan.unit.kind(node)
    if kind.known:
        return kind.tag == "Module" and kind.name not in ("plain", "super")
    return is_model(plan.unit, node) and _used_only_so(plan, node)


def _used_only_so(plan: Plan, node: ast.expr) -> bool:
    """Only modules have `parameters()`; `train` and `eval` alone are shared with other libraries' models."""
    from .roles import function_of

    text = ast.unparse(node)
    where = function_of(plan.unit, node)
    names = {n.attr for n in ast.walk(where) if isinstance(n, ast.Attribute) and ast.unparse(n.value) == text}
    called = any(isinstance(n, ast.Call) and ast.unparse(n.func) == text for n in ast.walk(where))
    return bool(names & {"parameters", "named_parameters", "state_dict", "zero_grad"}) or (
        called and bool(names & set(SWITCHES))
    )


def _own_method(plan: Plan, func: ast.Attribute) -> bool:
    facts = plan.unit.kind(func.value).facts
    return isinstance(facts, ClassFacts) and facts.method(func.attr) is not None


def _method(plan: Plan, node: ast.Call, func: ast.Attribute) -> None:
    name = func.attr
    if name in SWITCHES or name in PLACES:
        _chain(plan, node)
    elif name in LIBRARY and not node.args and not node.keywords:
        _library(plan, node, func, LIBRARY[name], "{}")
    elif name in ("parameters", "buffers") and not node.args and not node.keywords:
        _parameters(plan, node, func)
    elif name == "load_state_dict":
        _load(plan, node, func)
    else:
        why = (
            "only some parameters are trained"
            if name == "requires_grad_"
            else f"{name} is not called in its plain form"
        )
        _refuse(plan, node, "JM208" if name == "requires_grad_" else "JM203", MODULE + name, why)


def _refuse(plan: Plan, node: ast.Call, code: str, dotted: str, why: str) -> None:
    plan.taken |= {node, node.func}
    advice = {
        MODULE + "requires_grad_": "Give nnx.Optimizer and nnx.grad a filter of the parameters to train (wrt=…)."
    }.get(dotted, "Write it as a statement of its own.")
    plan.found(code, node, dotted, why, advice=advice)


# -- train, eval, to ------------------------------------------------------------------------------------------------


def _chain(plan: Plan, node: ast.Call) -> None:
    """`Net().to(device).eval()`: the module, then one statement for each link; torch's methods return the module, NNX's do not."""
    tree = plan.unit.tree
    links = [node]
    base = node.func.value  # type: ignore[attr-defined]
    while (
        isinstance(base, ast.Call) and isinstance(base.func, ast.Attribute) and base.func.attr in (*SWITCHES, *PLACES)
    ):
        if not is_module(plan, base.func.value) or _own_method(plan, base.func):
            break
        links.insert(0, base)
        base = base.func.value
    stmt = tree.parents[node]
    unclear = next((link for link in links if _line(plan, link, "") is None), None)
    if unclear is not None:
        for link in links:
            _refuse(
                plan, link, "JM203", MODULE + link.func.attr, f"`{ast.unparse(unclear)[-60:]}`: nothing shows a device"
            )  # type: ignore[attr-defined]
        return
    if any(isinstance(a, ast.Starred) for link in links for a in link.args) or tree.comments_in(
        tree.end(base), tree.end(node)
    ):
        for link in links:
            _refuse(plan, link, "JM203", MODULE + link.func.attr, "the arguments are starred or hold a comment")  # type: ignore[attr-defined]
        return
    target = _target(plan, stmt, node)
    plain = isinstance(base, (ast.Name, ast.Attribute))
    if isinstance(stmt, ast.Expr) and plain:
        _statements(plan, stmt, links, ast.unparse(base), remove=True)
    elif target and plain and ast.unparse(base) == target:
        _statements(plan, stmt, links, target, remove=True)  # type: ignore[arg-type]
    elif target:
        plan.whole[node] = Whole(lambda w: w.text(base), _level(base), (base,))
        _statements(plan, stmt, links, target, remove=False)  # type: ignore[arg-type]
    elif isinstance(stmt, ast.Return) and plan.alone(stmt):
        _returned(plan, stmt, node, base, links)
    elif plain and _simple(plan, node) and all(link.func.attr in SWITCHES for link in links):  # type: ignore[attr-defined]
        _embedded(plan, node, base, links)
    elif all(link.func.attr in PLACES for link in links):  # type: ignore[attr-defined]
        _dropped(plan, node, base, links)
    else:
        for link in links:
            _refuse(plan, link, "JM203", MODULE + link.func.attr, "NNX's train() and eval() return nothing")  # type: ignore[attr-defined]


def _level(node: ast.expr) -> int:
    from ...rulebook.precedence import level_of

    return level_of(node)


def _target(plan: Plan, stmt: ast.AST, node: ast.Call) -> str:
    """The one name or attribute that the chain is assigned to."""
    if isinstance(stmt, ast.Assign) and stmt.value is node and len(stmt.targets) == 1 and plan.alone(stmt):
        target = stmt.targets[0]
        if isinstance(target, ast.Name) or (isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name)):
            return ast.unparse(target)
    return ""


def _statements(plan: Plan, stmt: ast.stmt, links: list[ast.Call], name: str, *, remove: bool) -> None:
    if remove and len(links) == 1 and _kept(links[0]):
        _note(plan, links[0], "the same in NNX")
        return
    builds = [_line(plan, link, name) for link in links]

    def lines(writer: Writer) -> list[str]:
        return [text for build in builds if (text := build(writer))]

    plan.lines[stmt] = lines if remove else lambda writer: [writer.text(stmt), *lines(writer)]
    for link in links:
        _note(plan, link, _what(link))


def _kept(link: ast.Call) -> bool:
    """`model.train()` and `model.eval()` as they stand."""
    return link.func.attr in SWITCHES and not link.args and not link.keywords  # type: ignore[attr-defined]


def _what(link: ast.Call) -> str:
    if link.func.attr in SWITCHES:  # type: ignore[attr-defined]
        return "a statement of its own: NNX's train() and eval() return nothing"
    return "the module's state is placed; its class does not change"


def _note(plan: Plan, link: ast.Call, message: str, code: str = "JM001") -> None:
    plan.taken |= {link, link.func}
    plan.found(code, link, MODULE + link.func.attr, message)  # type: ignore[attr-defined]


def _line(plan: Plan, link: ast.Call, name: str):  # type: ignore[no-untyped-def]
    """Builds the statement for one link of a chain, "" when nothing is left to do; None when it is not understood."""
    attr = link.func.attr  # type: ignore[attr-defined]
    argument = link.args[0] if link.args else link.keywords[0].value if link.keywords else None
    if attr == "eval" or (attr == "train" and argument is None):
        return lambda _: f"{name}.{attr}()"
    if attr == "train":
        if isinstance(argument, ast.Constant):
            return lambda _: f"{name}.{'train' if argument.value else 'eval'}()"
        return lambda writer: f"{name}.train() if {writer.at_level(argument, 2)} else {name}.eval()"
    from ..devices import device_text

    place = device_text(plan, link)
    if place is None:
        return None

    def build(writer: Writer) -> str:
        device = place(writer)
        return f"nnx.update({name}, jax.device_put(nnx.state({name}), {device}))" if device else ""

    return build


def _returned(plan: Plan, stmt: ast.Return, node: ast.Call, base: ast.expr, links: list[ast.Call]) -> None:
    if isinstance(base, (ast.Name, ast.Attribute)):
        name = ast.unparse(base)
        first = None
    else:
        name = fresh(plan, stmt, ("model", "module", "net"))
        first = base
    builds = [_line(plan, link, name) for link in links]

    def lines(writer: Writer) -> list[str]:
        made = [f"{name} = {writer.at_level(first, 1, False)}"] if first is not None else []
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


def _embedded(plan: Plan, node: ast.Call, base: ast.expr, links: list[ast.Call]) -> None:
    """`m.eval()(x)` becomes `m.eval()` and `m(x)`."""
    stmt = plan.unit.tree.statement(node)
    plain = Writer(plan)
    lines = [_line(plan, link, ast.unparse(base))(plain) for link in links]
    plan.before.setdefault(stmt, []).extend(line for line in lines if line)
    plan.whole[node] = Whole(lambda w: w.text(base), 15, (base,))
    for link in links:
        _note(plan, link, _what(link))


def _dropped(plan: Plan, node: ast.Call, base: ast.expr, links: list[ast.Call]) -> None:
    plan.whole[node] = Whole(lambda w: w.text(base), _level(base), (base,))
    for link in links:
        _note(plan, link, "the module stays on JAX's default device", "JM101")
        for part in [*link.args, *(k.value for k in link.keywords)]:
            plan.taken |= set(ast.walk(part))


# -- parameters and state_dict --------------------------------------------------------------------------------------


def _library(plan: Plan, node: ast.Call, func: ast.Attribute, function: str, form: str) -> None:
    spelled = plan.layer(function)
    plan.taken |= {node, func}
    plan.whole[node] = Whole(lambda w: form.format(f"{spelled}({w.at_level(func.value, 1)})"), 15, (func.value,))
    plan.found("JM001", node, MODULE + func.attr, f"{func.attr} -> {function}")


def _parameters(plan: Plan, node: ast.Call, func: ast.Attribute) -> None:
    """Counting takes the state's leaves; a loop takes `named_parameters` without the names."""
    tree = plan.unit.tree
    counted = _counted(plan, node)
    function = f"named_{func.attr}"
    parent = tree.parents[node]
    if counted is not None and func.attr == "parameters":
        plan.taken |= set(ast.walk(counted)) - set(ast.walk(func.value))
        name = counted.generators[0].target.id  # type: ignore[attr-defined]
        plan.whole[counted] = Whole(
            lambda w: f"{name}.size for {name} in jax.tree.leaves(nnx.state({w.at_level(func.value, 1)}, nnx.Param))",
            15, (func.value,),
        )  # fmt: skip
        if not _wrapped_by_call(plan, counted):
            inner = plan.whole[counted]
            plan.whole[counted] = Whole(lambda w: f"({inner.build(w)})", 15, inner.kept)
        plan.found("JM001", node, MODULE + "parameters", "parameters -> the leaves of nnx.state(model, nnx.Param)")
    elif (
        isinstance(parent, (ast.For, ast.comprehension)) and parent.iter is node and isinstance(parent.target, ast.Name)
    ):
        target = parent.target
        plan.whole[target] = Whole(lambda _: f"_, {target.id}", 15)
        _library(plan, node, func, function, "{}")
    else:
        item = "p" if func.attr == "parameters" else "b"
        _library(plan, node, func, function, f"[{item} for _, {item} in {{}}]")


def _counted(plan: Plan, node: ast.Call) -> ast.GeneratorExp | ast.ListComp | None:
    """The comprehension of `sum(p.numel() for p in model.parameters())`, also with `if p.requires_grad`."""
    tree = plan.unit.tree
    generator = tree.parents[node]
    made = tree.parents.get(generator)
    if not isinstance(generator, ast.comprehension) or not isinstance(made, (ast.GeneratorExp, ast.ListComp)):
        return None
    target, element = generator.target, made.elt
    if len(made.generators) != 1 or not isinstance(target, ast.Name):
        return None
    counts = (
        isinstance(element, ast.Call)
        and isinstance(element.func, ast.Attribute)
        and element.func.attr in ("numel", "nelement")
        and isinstance(element.func.value, ast.Name)
        and element.func.value.id == target.id
    )
    filters = [ast.unparse(t) for t in generator.ifs]
    trainable = filters == [f"{target.id}.requires_grad"] and not _freezes(plan)
    return made if counts and (not filters or trainable) else None


def _freezes(plan: Plan) -> bool:
    """Whether the file switches requires_grad of anything."""
    return any(
        isinstance(n, ast.Attribute)
        and (n.attr == "requires_grad_" or (n.attr == "requires_grad" and isinstance(n.ctx, ast.Store)))
        for n in plan.unit.tree.parents
    )


def _wrapped_by_call(plan: Plan, made: ast.AST) -> bool:
    """A generator that is a call's only argument shares its parentheses with it."""
    tree = plan.unit.tree
    return isinstance(made, ast.ListComp) is False and tree.text[tree.start(made)] != "("


def _load(plan: Plan, node: ast.Call, func: ast.Attribute) -> None:
    """`model.load_state_dict(d)` becomes `load_state_dict(model, d)`."""
    dotted = MODULE + "load_state_dict"
    stmt = plan.unit.tree.parents[node]
    names = [k.arg for k in node.keywords]
    unpacked = isinstance(stmt, ast.Assign) and isinstance(stmt.targets[0], ast.Tuple)
    if (
        not (isinstance(stmt, ast.Expr) or unpacked)
        or any(n not in ("strict", "state_dict") for n in names)
        or len(node.args) > 2
    ):
        _refuse(plan, node, "JM203", dotted, "load_state_dict is not called in its plain form")
        return
    tree = plan.unit.tree
    spelled = plan.layer("load_state_dict")
    plan.taken |= {node, func}
    open_at = tree.text.index("(", tree.end(func))

    def build(writer: Writer) -> str:
        rest = writer.splice_range(node, open_at + 1, tree.end(node), plan.points.get(node, []))
        return f"{spelled}({writer.at_level(func.value, 1)}, {rest}"

    plan.whole[node] = Whole(build, 15, (node,))
    plan.found("JM001", node, dotted, "load_state_dict -> the layer library's")
