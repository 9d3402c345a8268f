"""What a module holds: containers, parameters, buffers, plain lists and tensors as attributes."""

from __future__ import annotations

import ast

from ...read.facts import ClassFacts, FunctionFacts
from ...read.kinds import Kind
from ...read.needs import is_reset
from ...rulebook.precedence import NOT
from ..layercalls import fit_held, remove_argument
from ..plan import Plan, Whole
from .named import names_looked_up

LIBRARY = ("ModuleDict", "Sequential", "ParameterDict")


def plan_members(plan: Plan) -> None:
    """Decide constructions and registrations of module members, and every call that rngs must reach."""
    for node in plan.unit.tree.all(ast.Call):
        if node not in plan.taken:
            _construction(plan, node)
            _registration(plan, node)
            _layout_call(plan, node)
            _reset(plan, node)
    for value in plan.unit.tree.both(ast.Name, ast.Attribute):
        if isinstance(value.ctx, ast.Load):
            _container_value(plan, value)
    for stmt in plan.unit.tree.all(ast.Assign):
        _attribute(plan, stmt)


def _construction(plan: Plan, node: ast.Call) -> None:
    dotted = plan.unit.resolve(node.func)
    if dotted in ("torch.nn.ModuleList", "torch.nn.ParameterList"):
        _list(plan, node, dotted)
    elif dotted in ("torch.nn.Sequential", "torch.nn.ModuleDict", "torch.nn.ParameterDict"):
        _rename(plan, node, dotted, plan.layer(dotted.rpartition(".")[2]))
    elif node in plan.needs.copies:
        tree = plan.unit.tree
        plan.point(node, tree.start(node.func), tree.end(node.func), plan.layer("clone_module"))
        plan.taken.update((node, node.func))
        plan.rngs_calls.append(node)
        plan.found("JM002", node, dotted or "", "a copy of a module gets random streams of its own")
    elif dotted == "torch.nn.Module" and not node.args and not node.keywords:
        _rename(plan, node, dotted, "nnx.Module")
    elif dotted in ("torch.nn.Parameter", "torch.nn.Buffer"):
        _parameter(plan, node, dotted)
    else:
        _own_call(plan, node)


def _own_call(plan: Plan, node: ast.Call) -> None:
    """A class or function of the project that takes rngs, or a layer class whose name is not known."""
    kind = plan.unit.kind(node.func)
    if kind.tag == "Class":
        if isinstance(kind.facts, ClassFacts):
            if kind.facts.is_module and plan.needs.takes_rngs(kind.facts):
                _reach(plan, node, kind.facts.name)
            return
        if plan.unit.resolve(node.func) is None and not _is_misfit(plan, node, kind):
            _reach(plan, node, kind.name or ast.unparse(node.func))
    elif isinstance(kind.facts, FunctionFacts) and kind.facts in plan.needs.rngs:
        if kind.facts.name != "__init__":
            _reach(plan, node, kind.facts.name)


def _is_misfit(plan: Plan, node: ast.Call, kind: Kind) -> bool:
    """Report what the call of a class that is chosen elsewhere gives and the layer library's versions do not take."""
    held = [k.name for k in kind.items or (kind,)]
    rows = [plan.unit.book.find(name) for name in held if name]
    if not rows:
        rows = [plan.unit.book.find(f"torch.nn.{name}") for name in names_looked_up(plan, node.func)]
    known = [row for row in rows if row is not None]
    if known and len(known) >= len(held):
        problem = fit_held(plan, known, node)
    else:
        inplace = any(k.arg == "inplace" for k in node.keywords)
        problem = "the layers of the layer library have no inplace" if inplace else ""
    if problem:
        name = kind.name or ast.unparse(node.func)
        plan.found("JM202", node, name, problem, advice="Leave it out, or name the class here.")
    return bool(problem)


def _reach(plan: Plan, node: ast.Call, name: str) -> None:
    plan.rngs_calls.append(node)
    plan.found("JM002", node, name, f"{name} is built with rngs", evidence=plan.unit.kind(node.func).why)


def _rename(plan: Plan, node: ast.Call, dotted: str, text: str) -> None:
    tree = plan.unit.tree
    plan.point(node, tree.start(node.func), tree.end(node.func), text)
    plan.taken.update((node, node.func))
    plan.found("JM001", node, dotted, f"{dotted} -> {text}")


def _list(plan: Plan, node: ast.Call, dotted: str) -> None:
    """nnx.List, or the library's ModuleList where the file slices or adds module lists."""
    library = dotted == "torch.nn.ModuleList" and _slices_lists(plan)
    target = plan.layer("ModuleList") if library else "nnx.List"
    _rename(plan, node, dotted, target)
    if len(node.args) == 1 and isinstance(node.args[0], ast.GeneratorExp) and not library:
        return
    if not node.args and node.keywords and node.keywords[0].arg in ("modules", "parameters"):
        keyword = node.keywords[0]
        plan.point(node, plan.unit.tree.start(keyword), plan.unit.tree.start(keyword.value), "")


def _slices_lists(plan: Plan) -> bool:
    cached = plan.__dict__.get("_slices")
    if cached is None:
        cached = plan.__dict__["_slices"] = any(
            isinstance(n, ast.Subscript)
            and isinstance(n.slice, ast.Slice)
            and plan.unit.kind(n.value).name == "torch.nn.ModuleList"
            for n in plan.unit.tree.parents
        )
    return bool(cached)


NNX_CLASSES = {
    "torch.nn.Module": "nnx.Module", "torch.nn.ModuleList": "nnx.List", "torch.nn.ParameterList": "nnx.List",
    "torch.nn.Parameter": "nnx.Param",
}  # fmt: skip


def _container_value(plan: Plan, node: ast.Name | ast.Attribute) -> None:
    """`isinstance(m, nn.Sequential)`, `nn.Module` in an annotation: the class itself as a value."""
    if node in plan.taken:
        return
    dotted = plan.unit.resolve(node)
    parent = plan.unit.tree.parents.get(node)
    if isinstance(parent, ast.Call) and parent.func is node:
        return
    if isinstance(parent, ast.ClassDef) or (isinstance(parent, ast.Attribute) and plan.unit.resolve(parent)):
        return
    target = NNX_CLASSES.get(dotted or "")
    if dotted in ("torch.nn.Sequential", "torch.nn.ModuleDict", "torch.nn.ParameterDict"):
        target = plan.layer(dotted.rpartition(".")[2])
    if dotted and target:
        plan.replace(node, target)
        plan.found("JM001", node, dotted, f"{dotted} -> {target}")


def _parameter(plan: Plan, node: ast.Call, dotted: str) -> None:
    """`nn.Parameter(t)` becomes `nnx.Param(t)`; one that needs no gradient becomes a Buffer."""
    frozen = [k for k in node.keywords if k.arg == "requires_grad"]
    flag = frozen[0].value if frozen else node.args[1] if len(node.args) > 1 and dotted.endswith("Parameter") else None
    keep = dotted.endswith("Parameter")
    code, text = "JM001", "nnx.Param"
    if flag is not None:
        if not isinstance(flag, ast.Constant) or not isinstance(flag.value, bool):
            _chosen_parameter(plan, node, dotted, flag)
            return
        remove_argument(plan, node, flag)
        keep = flag.value
    persistent = next((k.value for k in node.keywords if k.arg == "persistent"), None)
    if not keep:
        lasting = not (isinstance(persistent, ast.Constant) and persistent.value is False)
        text = plan.layer("Buffer" if lasting else "NonPersistentBuffer")
        code = "JM101" if dotted.endswith("Parameter") else "JM001"
        if persistent is not None:
            remove_argument(plan, node, persistent)
    if not node.args and node.keywords and node.keywords[0].arg == "data":
        keyword = node.keywords[0]
        plan.point(node, plan.unit.tree.start(keyword), plan.unit.tree.start(keyword.value), "")
    tree = plan.unit.tree
    plan.point(node, tree.start(node.func), tree.end(node.func), text)
    plan.taken.update((node, node.func))
    why = ": it needs no gradient, so it is a buffer and not among named_parameters()" if code == "JM101" else ""
    plan.found(code, node, dotted, f"{dotted} -> {text}{why}")


def _chosen_parameter(plan: Plan, node: ast.Call, dotted: str, flag: ast.expr) -> None:
    """`nn.Parameter(t, requires_grad=learned)` becomes `(nnx.Param if learned else Buffer)(t)`."""
    tree = plan.unit.tree
    plan.taken.update((node, node.func))
    if plan.unit.kind(flag).is_tensor or ".requires_grad" in ast.unparse(flag):
        message = "requires_grad is that of another tensor"
        plan.found("JM202", node, dotted, message, advice="Choose nnx.Param or Buffer by hand.")
        return
    buffer = plan.layer("Buffer")
    remove_argument(plan, node, flag)
    plan.taken.difference_update(tree.walk(flag))
    plan.point(
        node,
        tree.start(node.func),
        tree.end(node.func),
        lambda writer: f"(nnx.Param if {writer.at_level(flag, NOT)} else {buffer})",
    )
    why = "where it needs no gradient it is a buffer and not among named_parameters()"
    plan.found("JM101", node, dotted, f"{dotted} -> nnx.Param or {buffer}: {why}")


def _registration(plan: Plan, node: ast.Call) -> None:
    """register_buffer, register_parameter, add_module: an assignment to the attribute they create."""
    func, tree = node.func, plan.unit.tree
    if not isinstance(func, ast.Attribute) or func.attr not in (
        "register_buffer",
        "register_parameter",
        "add_module",
        "register_module",
    ):
        return
    owner = plan.unit.kind(func.value)
    if owner.tag != "Module" or owner.name == "plain":
        return
    name = _argument(node, 0, "name")
    value = _argument(node, 1, {"register_buffer": "tensor", "register_parameter": "param"}.get(func.attr, "module"))
    stmt = tree.parents.get(node)
    dotted = f"torch.nn.Module.{func.attr}"
    plan.taken.update((node, func))
    plain = isinstance(stmt, (ast.Expr, ast.Lambda))
    if name is None or not plain or any(isinstance(a, ast.Starred) for a in node.args):
        plan.found("JM203", node, dotted, f"{func.attr} is not called in its plain form")
        return
    wrapper = ""
    if func.attr == "register_buffer" and not (isinstance(value, ast.Constant) and value.value is None):
        persistent = _argument(node, 2, "persistent")
        if persistent is not None and not isinstance(persistent, ast.Constant):
            plan.found(
                "JM202",
                node,
                dotted,
                "persistent is not a literal",
                advice="Choose Buffer or NonPersistentBuffer by hand.",
            )
            return
        lasting = persistent is None or bool(persistent.value)
        wrapper = plan.layer("Buffer" if lasting else "NonPersistentBuffer")
    assert stmt is not None
    _assign(plan, node, stmt, func.value, name, value, wrapper)
    plan.found("JM001", node, dotted, f"{func.attr} -> an attribute{f' ({wrapper})' if wrapper else ''}")


def _layout_call(plan: Plan, node: ast.Call) -> None:
    """`self.lstm.flatten_parameters()` arranges memory for cuDNN: XLA has its own layout."""
    func, stmt = node.func, plan.unit.tree.parents.get(node)
    if not isinstance(func, ast.Attribute) or func.attr != "flatten_parameters" or not isinstance(stmt, ast.Expr):
        return
    if plan.unit.kind(func.value).tag == "Module":
        plan.taken.update((node, func))
        plan.lines[stmt] = lambda _: []
        plan.found(
            "JM001",
            node,
            "torch.nn.RNNBase.flatten_parameters",
            "gone: XLA lays memory out",
        )


def _reset(plan: Plan, node: ast.Call) -> None:
    """`self.fc.reset_parameters()` draws the layer's parameters again."""
    if not is_reset(plan.unit, node) or not isinstance(node.func, ast.Attribute):
        return
    receiver, spelled = node.func.value, plan.layer("reset_parameters")
    plan.taken.update((node, node.func))
    plan.applied[node] = ""
    plan.whole[node] = Whole(
        lambda writer: f"{spelled}({writer.at_level(receiver, 1)}, rngs={plan.applied[node]})", 15, (receiver,)
    )
    plan.found("JM121", node, "torch.nn.Module.reset_parameters", "drawn again: other numbers than torch's generator")


def _argument(node: ast.Call, index: int, name: str) -> ast.expr | None:
    if len(node.args) > index:
        return node.args[index]
    return next((k.value for k in node.keywords if k.arg == name), None)


def _assign(
    plan: Plan, node: ast.Call, stmt: ast.AST, owner: ast.expr, name: ast.expr, value: ast.expr | None, wrapper: str
) -> None:
    tree = plan.unit.tree
    facts = plan.unit.kind(owner).facts
    kept = tuple(n for n in (owner, name, value) if n is not None)
    nothing = "None"
    if isinstance(value, ast.Constant) and value.value is None and isinstance(name, ast.Constant):
        held = facts.attribute(str(name.value)) if isinstance(facts, ClassFacts) else None
        nothing = "nnx.data(None)" if held is not None and _is_data(held) else "None"
    lost = [
        s
        for s in tree.comments_in(tree.start(stmt), tree.end(stmt))
        if not any(tree.start(k) <= s[0] < tree.end(k) for k in kept)
    ]
    named = isinstance(name, ast.Constant) and isinstance(name.value, str) and name.value.isidentifier()
    if named and isinstance(stmt, ast.Expr) and not lost:
        plain = name.value  # type: ignore[attr-defined]

        def build(writer) -> str:  # type: ignore[no-untyped-def]
            inner = writer.at_level(value, 1) if value is not None and nothing == "None" else nothing
            if "\n" in inner and not wrapper:
                inner = f"({inner})" if writer.level(value) < 15 else inner
            return f"{writer.text(owner)}.{plain} = {f'{wrapper}({inner})' if wrapper else inner}"

        plan.lines[stmt] = lambda writer: [build(writer)]
        return

    def call(writer) -> str:  # type: ignore[no-untyped-def]
        inner = writer.at_level(value, 1) if value is not None else "None"
        return (
            f"setattr({writer.text(owner)}, {writer.at_level(name, 1)}, {f'{wrapper}({inner})' if wrapper else inner})"
        )

    plan.whole[node] = Whole(call, 15, kept)


def _attribute(plan: Plan, stmt: ast.Assign) -> None:
    """Attributes that NNX would take for static values: a None that is set later, a plain list of modules or arrays."""
    if len(stmt.targets) != 1 or not isinstance(stmt.targets[0], ast.Attribute):
        return
    target = stmt.targets[0]
    owner = plan.unit.kind(target.value)
    if owner.tag != "Module" or not isinstance(owner.facts, ClassFacts) or not owner.facts.is_module:
        return
    held = owner.facts.attribute(target.attr)
    if held is None:
        return
    if isinstance(stmt.value, ast.Constant) and stmt.value.value is None:
        if _is_data(held) and _set_elsewhere(plan, stmt, target, owner.facts):
            plan.replace(stmt.value, "nnx.data(None)")
            plan.found("JM002", stmt, "torch.nn.Module", f"self.{target.attr} holds data later: nnx must know")
        return
    if held.tag in ("list", "dict", "tuple") and any(_is_data(k) for k in held.items):
        value_kind = plan.unit.kind(stmt.value)
        if value_kind.tag in ("list", "dict", "tuple", "unknown") and not _is_container(plan, stmt.value):
            tree = plan.unit.tree
            start, end = tree.start(stmt.value), tree.end(stmt.value)
            if tree.text[start - 1] == "(":
                return
            plan.point(stmt, start, start, "nnx.data(")
            plan.point(stmt, end, end, ")")
            plan.found(
                "JM101",
                stmt,
                "torch.nn.Module",
                f"self.{target.attr}: NNX sees what a plain {held.tag} holds, torch does not",
            )


def _is_data(kind: Kind) -> bool:
    return (
        kind.is_tensor
        or kind.tag == "Module"
        or (kind.tag in ("list", "tuple", "dict") and any(map(_is_data, kind.items)))
    )


def _is_container(plan: Plan, node: ast.expr) -> bool:
    return plan.unit.kind(node).tag == "Module"


def _set_elsewhere(plan: Plan, stmt: ast.Assign, target: ast.Attribute, facts: ClassFacts) -> bool:
    """Whether another assignment to the attribute can follow this one on the same object."""
    tree = plan.unit.tree
    for cls in facts.lineage():
        for node in ast.walk(cls.node):
            if (
                not isinstance(node, ast.Attribute)
                or node.attr != target.attr
                or node is target
                or not isinstance(node.ctx, ast.Store)
            ):
                continue
            if cls.unit is not plan.unit:
                return True
            if not _exclusive(tree.ancestors(stmt), tree.ancestors(node), stmt, node):
                return True
    return False


def _exclusive(ours, theirs, stmt: ast.AST, other: ast.AST) -> bool:  # type: ignore[no-untyped-def]
    """Whether the two stand in different branches of one `if`."""
    mine = [stmt, *ours]
    others = [other, *theirs]
    for index, node in enumerate(mine):
        if isinstance(node, ast.If) and node in others:
            below, beyond = mine[index - 1], others[others.index(node) - 1]
            return (below in node.body) != (beyond in node.body)
    return False
