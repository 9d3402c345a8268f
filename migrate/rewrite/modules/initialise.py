"""Initialisation: `nn.init.*`, loops over `self.modules()`, `self.apply(fn)`."""

from __future__ import annotations

import ast

from ...read.facts import FunctionFacts
from ...rulebook.precedence import ATOM
from ..holes import whole
from ..match import Match, Refusal, match
from ..nativecalls import native_weight
from ..plan import Build, Plan, Whole
from ..writer import Writer

WALKS = {"modules": "nnx.iter_modules({})", "children": "nnx.iter_children({})",
         "named_modules": "", "named_children": ""}  # fmt: skip


def plan_initialisation(plan: Plan) -> None:
    """Decide every initialiser call and every walk over modules."""
    for node in plan.unit.tree.all(ast.Call):
        if node in plan.taken:
            continue
        dotted = plan.unit.resolve(node.func) or ""
        if dotted.startswith("torch.nn.init.") and dotted.endswith("_"):
            _initialiser(plan, node, dotted)
        elif isinstance(node.func, ast.Attribute) and plan.unit.kind(node.func.value).tag == "Module":
            if plan.unit.kind(node.func.value).name == "plain":
                continue
            if node.func.attr == "apply":
                _apply(plan, node, node.func)
            elif node.func.attr in WALKS:
                _walk(plan, node, node.func)


def _initialiser(plan: Plan, node: ast.Call, dotted: str) -> None:
    row = plan.unit.book.find(dotted)
    tree = plan.unit.tree
    plan.taken.update((node, node.func))
    if row is None or row.get("unmapped"):
        plan.found("JM301" if row else "JM302", node, dotted, f"no rule for {dotted}", advice=row.advice if row else "")
        return
    found = match(row, node, None, plan.unit)
    if isinstance(found, Refusal):
        plan.found(found.code, node, dotted, found.message, rule=row.name, advice=found.advice)
        return
    for option in row.options:
        for name in option.template.free_names:
            if name in plan.catalogue and any(name in p for p in found.form.pieces if isinstance(p, str)):
                plan.layers.add(name)
    if found.wants_key:
        plan.keyed.setdefault(node, "")
    native = native_weight(plan, node.args[0], dotted) if node.args else None
    if native:
        plan.replace(node.args[0], native.read)
    value = whole(found, plan.unit, lambda: plan.keyed.get(node) or "key")
    if isinstance(value, Refusal):
        plan.found(value.code, node, dotted, value.message, rule=row.name)
        return
    tensor = found.arguments.named.get("tensor")
    stmt = tree.parents.get(node)
    code = "JM121" if found.wants_key else "JM001"
    if tensor is None:
        plan.found("JM203", node, dotted, "the tensor is not given plainly", rule=row.name)
    elif isinstance(stmt, ast.Expr):
        _statement(plan, node, stmt, tensor, value.build, dotted, code, found)
    elif isinstance(_root(tensor), ast.Call) and plan.unit.kind(tensor).tag != "Variable":
        plan.whole[node] = value
        plan.found(code, node, dotted, f"{dotted}: the new values", rule=row.name)
    else:
        plan.found("JM205", node, dotted, f"the value of {dotted} is used", rule=row.name)


def _statement(
    plan: Plan, node: ast.Call, stmt: ast.Expr, tensor: ast.expr, build: Build, dotted: str, code: str, found: Match
) -> None:
    """The call on a line of its own: an assignment of new values."""
    tree = plan.unit.tree
    target = _without_data(tensor)
    if tree.comments_in(tree.start(stmt), tree.end(stmt)):
        plan.found("JM204", node, dotted, "rewriting would lose a comment")
        return
    plan.taken.update(ast.walk(tensor))
    if target is not tensor:
        plan.whole[tensor] = Whole(lambda writer: writer.text(target), ATOM, (target,))
    suffix = _suffix(plan, target)
    if suffix is None:
        known = plan.unit.kind(target).known
        text = f"`{ast.unparse(tensor)}`"
        message = f"{text} is a view: the write must reach what it views" if known else f"nothing shows what {text} is"
        plan.found("JM206" if known else "JM201", node, dotted, message)
        return
    native = native_weight(plan, target, dotted)
    written, order = (native.target, native.order) if native else (tree.segment(target), "")
    plan.lines[stmt] = lambda writer: [f"{written}{suffix} = {build(writer)}{order}"]
    evidence = plan.unit.kind(target).why
    drawn = ": same distribution, other numbers" if code == "JM121" else ""
    plan.found(code, node, dotted, f"{dotted} -> new values assigned{drawn}", rule=found.row.name, evidence=evidence)


def _suffix(plan: Plan, target: ast.expr) -> str | None:
    """How the target is written to: a Variable by `[...]`, a plain tensor by rebinding, None when neither is shown."""
    kind = plan.unit.kind(target)
    if isinstance(target, ast.Subscript):
        return "" if plan.unit.kind(target.value).tag == "Variable" else None
    if not isinstance(target, (ast.Name, ast.Attribute)):
        return None
    if kind.tag == "Tensor":
        return ""
    held = isinstance(target, ast.Attribute) and target.attr in ("weight", "bias")
    return "[...]" if kind.tag == "Variable" or (not kind.known and held) else None


def _without_data(node: ast.expr) -> ast.expr:
    return node.value if isinstance(node, ast.Attribute) and node.attr == "data" else node


def _root(node: ast.expr) -> ast.expr:
    """What a chain of attributes, subscripts and method calls starts from."""
    while True:
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Call)
        ):
            node = node.func.value
        elif isinstance(node, (ast.Attribute, ast.Subscript)):
            node = node.value
        else:
            return node


def _apply(plan: Plan, node: ast.Call, func: ast.Attribute) -> None:
    """`self.apply(fn)` becomes a loop over the module and its parts."""
    tree = plan.unit.tree
    stmt = tree.parents.get(node)
    plan.taken.update((node, func))
    if not isinstance(stmt, ast.Expr) or len(node.args) != 1 or node.keywords:
        plan.found("JM205", node, "torch.nn.Module.apply", "apply() is not a statement of its own")
        return
    fn = node.args[0]
    facts = plan.unit.kind(fn).facts
    takes = isinstance(facts, FunctionFacts) and facts in plan.needs.rngs
    initialiser = (plan.unit.resolve(fn) or "").startswith("torch.nn.init.")
    if initialiser or isinstance(fn, ast.Lambda):
        plan.found(
            "JM203",
            node,
            "torch.nn.Module.apply",
            "the applied function is not a plain one",
            advice="Write a named function.",
        )
        return

    if takes:
        plan.applied[node] = ""

    def lines(writer: Writer) -> list[str]:
        stream = plan.applied.get(node, "")
        name = (
            stream if stream.isidentifier() else "init_rngs"
        )  # one stream: no two modules start from the same numbers
        return [
            *([f"{name} = {stream}"] if stream != name and stream else []),
            f"for _, module in nnx.iter_modules({writer.text(func.value)}):",
            f"    {writer.at_level(fn, 15)}(module{f', rngs={name}' if takes else ''})",
        ]

    plan.lines[stmt] = lines
    plan.found("JM001", node, "torch.nn.Module.apply", "apply -> a loop over nnx.iter_modules")


def _walk(plan: Plan, node: ast.Call, func: ast.Attribute) -> None:
    """`for m in self.modules():` becomes `for _, m in nnx.iter_modules(self):`."""
    tree = plan.unit.tree
    parent = tree.parents.get(node)
    name = f"torch.nn.Module.{func.attr}"
    plan.taken.update((node, func))
    named = func.attr.startswith("named_")
    if named:
        spelled = plan.layer(func.attr)
        plan.whole[node] = Whole(lambda w: f"{spelled}({w.text(func.value)})", 15, (func.value,))
        plan.found("JM001", node, name, f"{func.attr} -> {spelled}")
        return
    if (
        isinstance(parent, (ast.For, ast.comprehension))
        and parent.iter is node
        and isinstance(parent.target, ast.Name)
        and not node.args
    ):
        target = parent.target
        form = WALKS[func.attr]
        if not _any_order(plan, parent):
            form = plan.layer("named_modules" if func.attr == "modules" else "named_children") + "({})"
        plan.whole[node] = Whole(lambda w: form.format(w.text(func.value)), 15, (func.value,))
        plan.whole[target] = Whole(lambda _: f"_, {target.id}", 15)
        plan.found("JM001", node, name, f"{func.attr} -> {form.format('…')}")
        return
    function = "named_modules" if func.attr == "modules" else "named_children"
    spelled = plan.layer(function)
    plan.whole[node] = Whole(lambda w: f"[module for _, module in {spelled}({w.text(func.value)})]", 15, (func.value,))
    plan.found("JM001", node, name, f"{func.attr} -> {spelled}")


def _any_order(plan: Plan, loop: ast.For | ast.comprehension) -> bool:
    """Whether a loop over modules gives the same in NNX's order: it only looks at layers that hold no others."""
    if not isinstance(loop, ast.For) or not isinstance(loop.target, ast.Name) or loop.orelse:
        return False
    return all(_about_leaves(plan, stmt, loop.target.id) for stmt in loop.body)


def _about_leaves(plan: Plan, stmt: ast.stmt, name: str) -> bool:
    """`if isinstance(m, nn.Linear): …`, for layers of torch that are no containers."""
    if not isinstance(stmt, ast.If):
        return False
    test = stmt.test
    if not (
        isinstance(test, ast.Call) and len(test.args) == 2 and plan.unit.resolve(test.func) == "builtins.isinstance"
    ):
        return False
    classes = test.args[1].elts if isinstance(test.args[1], ast.Tuple) else [test.args[1]]
    leaves = all((plan.unit.resolve(c) or "").startswith("torch.nn.") and not _holds_others(plan, c) for c in classes)
    about = isinstance(test.args[0], ast.Name) and test.args[0].id == name
    return about and leaves and all(_about_leaves(plan, s, name) for s in stmt.orelse)


def _holds_others(plan: Plan, cls: ast.expr) -> bool:
    name = (plan.unit.resolve(cls) or "").rpartition(".")[2]
    return name in ("Module", "Sequential", "ModuleList", "ModuleDict", "MultiheadAttention") or "Transformer" in name
