"""Whether statements can become the body of a loss function: nothing in them may act on the world or hide the model."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ...read.facts import ClassFacts, FunctionFacts
from ...read.unit import Unit
from ..plan import Plan
from .callees import called
from .flow import GROWING, behind, root_name, uses
from .roles import NotPlain, has_parameters, is_model
from .sources import Source

AUTOCAST = ("torch.autocast", "torch.amp.autocast", "torch.cuda.amp.autocast", "torch.cpu.amp.autocast")
_HOST = frozenset(("numpy", "tolist"))  # methods that fail on a value under differentiation
_HOST_CALLS = frozenset(("builtins.float", "builtins.int"))


def check_movable(
    plan: Plan,
    stmts: Sequence[ast.stmt],
    backward: ast.stmt,
    loss: ast.expr,
    function: ast.AST,
    source: Source,
    tainted: set[str],
) -> tuple[str, ...]:
    """The other modules that take part. Raises NotPlain when the statements cannot become a function's body."""
    local: set[str] = set()
    shared = {n for s in ast.walk(function) if isinstance(s, (ast.Global, ast.Nonlocal)) for n in s.names}
    for stmt in [*stmts, backward]:
        if not plan.alone(stmt) or not ends_its_line(plan, stmt):
            raise NotPlain("several statements on one line")
    for stmt in stmts:
        problem = effect(plan, stmt, local)
        if problem:
            raise NotPlain(f"`{ast.unparse(stmt).splitlines()[0][:70]}` stands between forward and backward {problem}")
        if uses(stmt).writes & shared:
            raise NotPlain("the forward pass assigns a global name")
        local |= uses(stmt).writes
    others: dict[str, None] = {}
    for node in (n for s in [*stmts, loss] for n in ast.walk(s)):
        if isinstance(node, (ast.Await, ast.Yield, ast.YieldFrom)):
            raise NotPlain("await or yield in the forward pass")
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
            if _takes_part(plan, node, source, local):
                others[ast.unparse(node)] = None
        if isinstance(node, ast.Call):
            others |= dict.fromkeys(m for m in behind(node) if m not in source.models)
            _call(plan, node, source, tainted | local)
    return tuple(m for m in others if not any(m.startswith(f"{other}.") for other in others))


def _takes_part(plan: Plan, node: ast.Name | ast.Attribute, source: Source, local: set[str]) -> bool:
    """Whether an expression is a module of its own, beside those that are differentiated."""
    text = ast.unparse(node)
    if text in (*source.models, "self") or any(text.startswith(f"{m}.") for m in source.models):
        return False
    kind = plan.unit.kind(node)
    called = plan.unit.tree.parents[node]
    if kind.known:
        module = kind.tag == "Module" and kind.name not in ("plain", "super") and has_parameters(plan.unit, node)
    else:
        module = isinstance(called, ast.Call) and called.func is node and is_model(plan.unit, node)
    if module and root_name(node) in local:
        raise NotPlain(f"the module {text} is chosen between forward and backward")
    return module and text.replace(".", "").isidentifier()


def check_whole(stmts: Sequence[ast.stmt], loss: ast.expr, source: Source) -> None:
    """Raise NotPlain for an optimizer of a part of a module (`model.head`) whose whole takes part in the loss too."""
    for model in source.models:
        parts = model.split(".")
        wholes = {".".join(parts[:i]) for i in range(1, len(parts))} - {"self"}
        for part in [*stmts, loss] if wholes else ():
            inside = {n for place in source.places(part) for n in ast.walk(place)}
            for node in ast.walk(part):
                if isinstance(node, (ast.Name, ast.Attribute)) and node not in inside and ast.unparse(node) in wholes:
                    raise NotPlain(f"{ast.unparse(node)} takes part in the loss, but only {model} is trained")


def ends_its_line(plan: Plan, stmt: ast.stmt) -> bool:
    """Whether nothing but a comment follows on the statement's last line."""
    tree = plan.unit.tree
    rest = tree.text[tree.end(stmt) :].partition("\n")[0].strip()
    return not rest or rest.startswith("#")


def _call(plan: Plan, node: ast.Call, source: Source, carrying: set[str]) -> None:
    """Refuse calls that read the model behind the loss function's back, or that need concrete values."""
    unit = plan.unit
    func = node.func
    dotted = unit.resolve(func) or ""
    if dotted in _HOST_CALLS or dotted.startswith("math."):
        if uses(list(node.args)).reads & carrying and not _concrete(node):
            raise NotPlain(f"`{ast.unparse(node)[:60]}` needs a number inside the differentiated part")
    if isinstance(func, ast.Attribute) and func.attr in _HOST and uses(func.value).reads & carrying:
        raise NotPlain(f"`{ast.unparse(node)[:60]}` leaves the differentiated part")
    target = _run_by(unit, node)
    for name in source.arrays:
        if target is not None and _reads_behind(target, name, set()):
            raise NotPlain(f"`{ast.unparse(func)}` reads {name} by itself: pass it as an argument")
    made = called(unit, node)
    if target is None and made is not None and isinstance(made[0], ast.Lambda):
        if lost := uses(made[0]).reads & {m.partition(".")[0] for m in (*source.models, *source.arrays)}:
            raise NotPlain(f"`{ast.unparse(func)[:40]}` reads {min(lost)} by itself: pass it as an argument")
    for model in source.models:
        if model in behind(node):
            continue
        if target is not None and _reads_behind(target, model.partition(".")[0], set()):
            raise NotPlain(f"`{ast.unparse(func)}` reads {model} by itself: pass it as an argument")
        if model.startswith("self.") and isinstance(func, ast.Attribute) and root_name(func) == "self":
            if ast.unparse(func) != model and not ast.unparse(func).startswith(f"{model}."):
                cls = unit.tree.class_of(node)
                facts = unit.classes.get(cls) if cls is not None else None
                method = facts.method(func.attr) if facts is not None else None
                if facts is None or (method is not None and _may_read(method, model, set())):
                    raise NotPlain(f"`{ast.unparse(func)}` may read {model} by itself")


def _run_by(unit: Unit, call: ast.Call) -> FunctionFacts | None:
    """The function of the project that a call runs: that itself, a module's forward, what makes an object."""
    kind = unit.kind(call.func)
    facts = kind.facts or unit.local(call.func)
    if isinstance(facts, ClassFacts):
        if unit.local(call.func) is facts:
            return facts.method("__init__")
        return facts.method("forward") or facts.method("__call__")
    return facts


def _reads_behind(facts: FunctionFacts, root: str, seen: set[FunctionFacts]) -> bool:
    """Whether a function of the project, or one that it calls, reads a name that is not its own."""
    if facts in seen:
        return False
    seen.add(facts)
    node, unit = facts.node, facts.unit
    found = uses(node.body)
    own = {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)} | found.writes
    if root in found.reads - own:
        return True
    called = [_run_by(unit, n) for n in ast.walk(node) if isinstance(n, ast.Call)]
    return any(c is not None and _reads_behind(c, root, seen) for c in called)


def _may_read(facts: FunctionFacts, model: str, seen: set[FunctionFacts]) -> bool:
    """Whether a method, or one of its object's that it calls, reads `self.model`, or hands the object on."""
    seen.add(facts)
    parents = facts.unit.tree.parents
    for node in ast.walk(facts.node):
        if isinstance(node, ast.Attribute) and ast.unparse(node) == model:
            return True
        if isinstance(node, ast.Name) and node.id == "self" and not isinstance(parents[node], ast.Attribute):
            return True
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, ast.Attribute) and ast.unparse(called.value) == "self" and facts.owner is not None:
            method = facts.owner.method(called.attr)
            if method is not None and method not in seen and _may_read(method, model, seen):
                return True
    return False


def _concrete(node: ast.Call) -> bool:
    """`float(x.size(0))`, `int(len(x))`: of a shape, or of an `.item()`."""
    arg = node.args[0] if node.args else node
    if isinstance(arg, ast.Call) and isinstance(arg.func, ast.Attribute):
        return arg.func.attr in ("item", "size", "numel", "dim")
    return any(isinstance(n, ast.Attribute) and n.attr in ("shape", "ndim") for n in ast.walk(arg)) or (
        isinstance(arg, ast.Call) and isinstance(arg.func, ast.Name) and arg.func.id == "len"
    )


def effect(plan: Plan, stmt: ast.stmt, local: set[str]) -> str:
    """Why a statement cannot be moved into a function; "" when it can."""
    if isinstance(stmt, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        if uses(stmt).changes - local:
            return "and changes an object in place"
        targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]
        plain = all(
            isinstance(n, (ast.Name, ast.Tuple, ast.List, ast.Starred, ast.expr_context))
            for t in targets
            for n in ast.walk(t)
        )
        return "" if plain or not uses(stmt).changes - local else "and writes to an object"
    if isinstance(stmt, (ast.Pass, ast.Assert)):
        return ""
    if isinstance(stmt, ast.Expr):
        call = stmt.value
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in GROWING:
            if isinstance(call.func.value, ast.Name) and call.func.value.id in local:
                return ""
        return "" if isinstance(call, ast.Constant) else "and has effects"
    if isinstance(stmt, ast.If):
        return _effects(plan, [*stmt.body, *stmt.orelse], local)
    if isinstance(stmt, ast.For):
        return _effects(plan, [*stmt.body, *stmt.orelse], local | uses(stmt.target).writes)
    if isinstance(stmt, ast.With):
        for item in stmt.items:
            func = item.context_expr.func if isinstance(item.context_expr, ast.Call) else item.context_expr
            dotted = plan.unit.resolve(func) or ast.unparse(func)
            if dotted not in ("torch.no_grad", "torch.enable_grad", "torch.inference_mode", *AUTOCAST):
                return f"under {dotted}"
        return _effects(plan, stmt.body, local)
    return "and is no plain statement"


def _effects(plan: Plan, body: Sequence[ast.stmt], local: set[str]) -> str:
    seen = set(local)
    for stmt in body:
        if problem := effect(plan, stmt, seen):
            return problem
        seen |= uses(stmt).writes
    return ""
