"""Module classes: bases, `forward`, constructors that take rngs, the training flag."""

from __future__ import annotations

import ast

from ...read.facts import ClassFacts, FunctionFacts
from ...read.kinds import Kind
from ...rulebook.precedence import ATOM, NOT
from ..plan import Plan, Whole
from ..signature_edit import add_keyword_parameter

BASES = {"torch.nn.Module": "nnx.Module", "torch.nn.ModuleList": "nnx.List", "torch.nn.ParameterList": "nnx.List"}
RNGS = "rngs: nnx.Rngs"


def plan_classes(plan: Plan) -> None:
    """Rewrite every module class of the file."""
    for node, facts in plan.unit.classes.items():
        if facts in plan.project.mixins:
            _forward(plan, facts)
        if not facts.is_module:
            continue
        _bases(plan, node)
        _forward(plan, facts)
        _super_calls(plan, facts)
        _training_flag(plan, facts)
        _reserved(plan, facts)
    for function in plan.needs.rngs:
        if function.unit is plan.unit:
            add_keyword_parameter(plan, function.node, RNGS)
            plan.found(
                "JM002",
                _header(function.node),
                function.name,
                f"{function.name} takes rngs: it builds or initialises modules",
            )
    for node, facts in plan.unit.classes.items():
        if facts in plan.needs.classes and facts.is_module:
            _constructor(plan, node, facts)
    _forward_calls(plan)
    _flags_elsewhere(plan)


# What NNX's own Module defines: a method of that name takes its place, and NNX does not call it for child modules.
RESERVED = frozenset({"train", "eval", "sow", "perturb", "set_attributes", "iter_modules", "iter_children"})


def _reserved(plan: Plan, facts: ClassFacts) -> None:
    """Methods whose names NNX uses with another meaning or signature."""
    for name, method in facts.methods.items():
        if name in RESERVED:
            plan.found(
                "JM203",
                _header(method.node),
                f"torch.nn.Module.{name}",
                f"{name}() is overridden: NNX has its own, "
                "with another signature, and does not call this one for child modules",
                advice="Give the method another name and call it where train() or eval() was called.",
            )


def _flags_elsewhere(plan: Plan) -> None:
    """`m.training` outside the class that reads its own flag: NNX modules have none unless they use it."""
    for node in plan.unit.tree.all(ast.Attribute):
        if node.attr != "training" or node in plan.taken:
            continue
        kind = plan.unit.kind(node.value)
        if kind.tag == "Module" and kind.name != "plain":
            _flag_of(plan, node)


def _flag_of(plan: Plan, node: ast.Attribute) -> None:
    """`self.bn.training`: the flag that the layer itself looks at; other layers have none."""
    kind = plan.unit.kind(node.value)
    facts = kind.facts
    own = isinstance(facts, ClassFacts) and any(_uses_training(c) for c in facts.lineage())
    layer = (kind.name or (facts.layer_base if isinstance(facts, ClassFacts) else "")).rpartition(".")[2]
    plan.taken.add(node)
    if isinstance(node.ctx, ast.Load) and (
        own or "Dropout" in layer or layer.startswith(("BatchNorm", "InstanceNorm"))
    ):
        spelled = plan.layer("is_training")
        plan.whole[node] = Whole(lambda w: f"{spelled}({w.text(node.value)})", ATOM, (node.value,))
        plan.found("JM001", node, "torch.nn.Module.training", f"training -> {spelled}", evidence=kind.why)
        return
    plan.found(
        "JM203",
        node,
        "torch.nn.Module.training",
        "NNX modules have no training flag of their own",
        advice="Ask a layer that switches: `not m.deterministic`.",
    )


def _header(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> ast.AST:
    """A small node to point at: the first argument, decorator or statement of a definition."""
    if not isinstance(node, ast.ClassDef) and node.args.args:
        return node.args.args[0]
    return node.body[0]


def _bases(plan: Plan, node: ast.ClassDef) -> None:
    for base in node.bases:
        dotted = plan.unit.resolve(base)
        if dotted in BASES:
            plan.replace(base, BASES[dotted])
            plan.found("JM002", base, dotted, f"{dotted} -> {BASES[dotted]}")
        elif dotted in ("torch.nn.Sequential", "torch.nn.ModuleDict", "torch.nn.ParameterDict"):
            plan.replace(base, plan.layer(dotted.rpartition(".")[2]))
            plan.found("JM002", base, dotted, f"{dotted} -> {dotted.rpartition('.')[2]}")


def _forward(plan: Plan, facts: ClassFacts) -> None:
    method = facts.methods.get("forward")
    if method is None:
        return
    tree = plan.unit.tree
    at = tree.text.index("forward", tree.text.index("def", tree.start(method.node)))
    plan.point(method.node, at, at + len("forward"), "__call__")
    plan.found("JM002", _header(method.node), "torch.nn.Module.forward", "forward -> __call__")


def _forward_calls(plan: Plan) -> None:
    """`m.forward(x)` becomes `m(x)`; `super().forward(x)` becomes `super().__call__(x)`."""
    tree = plan.unit.tree
    for node in tree.all(ast.Attribute):
        if node.attr != "forward":
            continue
        kind = plan.unit.kind(node.value)
        if _in_mixin(plan, node.value):
            kind = Kind("Module", "super" if isinstance(node.value, ast.Call) else "", why="a mixin of modules")
        elif kind.tag not in ("Module", "Class") or (kind.name == "plain" and not _of_mixin(plan, kind)):
            continue
        end = tree.end(node)
        called = isinstance(tree.parents.get(node), ast.Call) and tree.parents[node].func is node  # type: ignore[attr-defined]
        if called and kind.name != "super" and kind.tag == "Module":
            plan.point(node, tree.end(node.value), end, "")
        else:
            plan.point(node, end - len("forward"), end, "__call__")
        plan.taken.add(node)
        if called:
            plan.taken.add(tree.parents[node])
        plan.found("JM002", node, "torch.nn.Module.forward", "forward -> __call__", evidence=kind.why)


def _in_mixin(plan: Plan, receiver: ast.expr) -> bool:
    """Whether this is `self` or `super()` in a class that modules are made of."""
    cls = plan.unit.tree.class_of(receiver)
    if cls is None or plan.unit.classes[cls] not in plan.project.mixins:
        return False
    if isinstance(receiver, ast.Call):
        return plan.unit.resolve(receiver.func) == "builtins.super"
    function = plan.unit.tree.function(receiver)
    first = function.args.args[:1] if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) else []
    return isinstance(receiver, ast.Name) and [a.arg for a in first] == [receiver.id]


def _of_mixin(plan: Plan, kind: Kind) -> bool:
    """Whether this is an object of the project whose `forward` is that of such a class."""
    forward = kind.facts.method("forward") if isinstance(kind.facts, ClassFacts) else None
    return forward is not None and forward.owner in plan.project.mixins


def _super_calls(plan: Plan, facts: ClassFacts) -> None:
    """`super().__init__()` goes when the base is nnx.Module; else it hands rngs on."""
    init = facts.methods.get("__init__")
    if init is None:
        return
    parents = [c for c in facts.lineage()[1:] if c in plan.needs.classes]
    layer = plan.unit.book.find(facts.layer_base) if facts.layer_base else None
    entry = plan.catalogue.get(str(layer.get("layer"))) if layer is not None else None
    for stmt in ast.walk(init.node):
        if not (isinstance(stmt, ast.Expr) and _is_super_init(plan, stmt.value, facts)):
            continue
        call = stmt.value
        assert isinstance(call, ast.Call)
        for sub in ast.walk(call.func):
            plan.taken.add(sub)
        plan.taken.add(call)
        plain = not facts.layer_base and not any(c.is_module for c in facts.lineage()[1:])
        if (
            plain
            and not call.args
            and not call.keywords
            and _removable(plan, stmt)
            and len(facts.torch_bases()) == len(_all_bases(facts))
        ):
            plan.lines[stmt] = lambda _: []
        elif parents or (entry is not None and entry.needs_rngs):
            plan.rngs_calls.append(call)


def _all_bases(facts: ClassFacts) -> list[object]:
    return [b for c in facts.lineage() for b in c.bases if not isinstance(b, ClassFacts)]


def _is_super_init(plan: Plan, node: ast.expr, facts: ClassFacts) -> bool:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "__init__"):
        return False
    owner = node.func.value
    if isinstance(owner, ast.Call) and isinstance(owner.func, ast.Name) and owner.func.id == "super":
        return True
    return plan.unit.resolve(owner) == "torch.nn.Module" or plan.unit.local(owner) in facts.lineage()[1:]


def _removable(plan: Plan, stmt: ast.stmt) -> bool:
    return plan.alone(stmt) and plan.alone_to_end(stmt)


def _constructor(plan: Plan, node: ast.ClassDef, facts: ClassFacts) -> None:
    """Give the class the constructor it needs: a stream for forward-time draws, or one that takes rngs at all."""
    init = facts.methods.get("__init__")
    stream = facts in plan.needs.streams and not any(c in plan.needs.streams for c in facts.lineage()[1:])
    if init is not None:
        if init not in plan.needs.rngs:
            add_keyword_parameter(plan, init.node, RNGS)
        if stream:
            _first_lines(plan, init, ["self.rngs = rngs.noise.fork()"])
        return
    inherited = any("__init__" in c.methods for c in facts.lineage()[1:])
    if (inherited or facts.layer_base) and not stream:
        return
    if inherited or facts.layer_base:
        body = ["super().__init__(*args, rngs=rngs, **kwargs)"]
        head = "def __init__(self, *args, rngs: nnx.Rngs, **kwargs):"
    else:
        body, head = [], "def __init__(self, *, rngs: nnx.Rngs):"
    if stream:
        body.append("self.rngs = rngs.noise.fork()")
    _class_lines(plan, node, [head, *(f"    {line}" for line in body or ["pass"]), ""])
    plan.found("JM002", node.body[0], facts.name, f"{facts.name} takes rngs")


def _first_lines(plan: Plan, init: FunctionFacts, lines: list[str]) -> None:
    """Put lines after the docstring and the super().__init__() call of a constructor."""
    body = [s for s in init.node.body if not _is_docstring(s)]
    anchor = body[0] if body else init.node.body[-1]
    for stmt in body:
        if (
            isinstance(stmt, ast.Expr)
            and isinstance(stmt.value, ast.Call)
            and ast.unparse(stmt.value.func).endswith("__init__")
        ):
            anchor = stmt
            break
    plan.after.setdefault(anchor, [])[:0] = lines


def _class_lines(plan: Plan, node: ast.ClassDef, lines: list[str]) -> None:
    """Put lines before the first statement of the class body that is not its docstring."""
    body = [s for s in node.body if not _is_docstring(s)]
    if not body:
        plan.after.setdefault(node.body[-1], []).extend(lines)
    elif plan.alone(body[0]):
        plan.before.setdefault(body[0], []).extend(lines)
    else:
        plan.found(
            "JM203", node.body[0], node.name, "the class body stands on its header's line: give it lines of its own"
        )


def _is_docstring(stmt: ast.stmt) -> bool:
    return isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Constant) and isinstance(stmt.value.value, str)


def _training_flag(plan: Plan, facts: ClassFacts) -> None:
    """`self.training` becomes `not self.deterministic`, an attribute that NNX's own train() and eval() flip."""
    uses = [
        n
        for n in facts.unit.tree.walk(facts.node)
        if isinstance(n, ast.Attribute) and n.attr == "training" and plan.unit.kind(n.value).tag == "Module"
    ]
    if not uses:
        return
    own = [n for n in uses if isinstance(n.value, ast.Name) and plan.unit.kind(n.value).facts in facts.lineage()]
    for use in uses:
        if isinstance(use.ctx, ast.Store):
            plan.found(
                "JM203",
                use,
                "torch.nn.Module.training",
                "the training flag is set by hand",
                advice="Call train() or eval().",
            )
            plan.taken.add(use)
            continue
        if use not in own:
            _flag_of(plan, use)
            continue
        plan.whole[use] = Whole(lambda w, u=use: f"not {w.at_level(u.value, 15)}.deterministic", NOT, (use.value,))  # type: ignore[misc]
        plan.taken.add(use)
        plan.found("JM001", use, "torch.nn.Module.training", "training -> not deterministic")
    if own and not any(_uses_training(c) for c in facts.lineage()[1:]):
        init = facts.methods.get("__init__")
        if init is not None:
            _first_lines(plan, init, ["self.deterministic = False"])
        else:
            _class_lines(plan, facts.node, ["deterministic = False", ""])


def _uses_training(facts: ClassFacts) -> bool:
    return any(isinstance(n, ast.Attribute) and n.attr == "training" for n in facts.unit.tree.walk(facts.node))
