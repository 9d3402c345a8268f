"""Side effects in functions that are traced: under `jax.jit` they happen once, while tracing, with no values yet."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...read.facts import ClassFacts, FunctionFacts
from ...read.frame import FunctionDef
from ...read.scopes import Scope
from ...read.unit import Unit
from ..plan import Plan

COMPILERS = frozenset(("torch.compile", "torch.jit.script", "torch.jit.trace", "torch.jit.script_method"))
JITS = frozenset(("jax.jit", "flax.nnx.jit", "nnx.jit"))
MUTATORS = frozenset(
    ("append", "extend", "insert", "pop", "remove", "clear", "update", "setdefault", "add", "discard", "popitem")
)
PRINT = 'jax.debug.print("{x}", x=x) prints the values in each call.'


def plan_purity(plan: Plan) -> None:
    """Report prints of tensors and writes to self, globals and outer containers in functions that jit will trace."""
    for function, why in _traced(plan.unit).items():
        for node, what, advice in _effects(plan.unit, function):
            plan.found(
                "JM142", node, what, f"{_said(what)} in {why}: under jit it happens once, while tracing",
                advice=advice, rule="purity",
            )  # fmt: skip


def _traced(unit: Unit) -> dict[FunctionDef, str]:
    """The functions that are compiled, or are a module's forward, with how that is known."""
    found: dict[FunctionDef, str] = {}
    for function, facts in unit.functions.items():
        assert isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        if any(_compiles(unit, d) for d in function.decorator_list):
            found[function] = f"`{facts.name}`, which is compiled"
        elif facts.owner is not None and facts.owner.is_module and facts.name == "forward":
            found[function] = f"the forward of {facts.owner.name}"
    for call in unit.tree.all(ast.Call):
        if call.args and unit.resolve(call.func) in COMPILERS | JITS:
            target = unit.kind(call.args[0]).facts or unit.local(call.args[0])
            if isinstance(target, FunctionFacts) and target.unit is unit:
                found.setdefault(target.node, f"`{target.name}`, which is compiled")
    return found


def _compiles(unit: Unit, decorator: ast.expr) -> bool:
    """`@torch.compile`, `@torch.compile(…)`, `@partial(torch.compile, …)`."""
    names = [decorator]
    if isinstance(decorator, ast.Call):
        names = [decorator.func, *decorator.args]
    return any(unit.resolve(n) in COMPILERS | JITS for n in names)


def _effects(unit: Unit, function: FunctionDef) -> Iterator[tuple[ast.AST, str, str]]:
    """The side effects of a function: the node, what it is, what to do."""
    scope = unit.scopes.of[function]
    owner = unit.functions[function].owner
    for node in unit.tree.own(function):
        if isinstance(node, ast.Call):
            yield from _calls(unit, node, scope)
        elif isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) and isinstance(node.ctx, (ast.Store, ast.Del)):
            yield from _stores(unit, node, scope, owner)


def _calls(unit: Unit, node: ast.Call, scope: Scope) -> Iterator[tuple[ast.AST, str, str]]:
    if unit.resolve(node.func) == "builtins.print":
        if any(_shows(unit, a) for a in node.args):
            yield node, "print", PRINT
    elif isinstance(node.func, ast.Attribute) and node.func.attr in MUTATORS:
        held = node.func.value
        if unit.kind(held).tag not in ("list", "dict", "unknown", "other") or unit.resolve(held):
            return
        if not any(_holds_tensor(unit, a) for a in node.args):
            return
        if _outer(unit, held, scope):
            yield node, f"{ast.unparse(held)}.{node.func.attr}", "Return the value and collect it outside."
        elif _of_self(unit, held, scope):
            yield node, f"{ast.unparse(held)}.{node.func.attr}", "Return the value, or keep it with self.sow()."


def _stores(
    unit: Unit, node: ast.Name | ast.Attribute | ast.Subscript, scope: Scope, owner: ClassFacts | None
) -> Iterator[tuple[ast.AST, str, str]]:
    if isinstance(node, ast.Name):
        if node.id in scope.globals | scope.nonlocals:
            where = "global" if node.id in scope.globals else "nonlocal"
            yield node, f"{where} {node.id}", "Pass the value in and return it."
    elif isinstance(node, ast.Attribute):
        if owner is None or not isinstance(node.value, ast.Name) or not _is_self(node.value, scope):
            return
        held = owner.attribute(node.attr)
        if held is None or held.tag not in ("Variable", "Module"):
            yield node, f"self.{node.attr}", "Keep state in an nnx.Variable, or return the value."
    elif _outer(unit, node.value, scope) and not unit.kind(node.value).is_tensor:
        yield node, ast.unparse(node.value), "Return the value and store it outside."


def _outer(unit: Unit, node: ast.expr, scope: Scope) -> bool:
    """Whether a name belongs to a scope around the function."""
    if not isinstance(node, ast.Name):
        return False
    home = unit.scope(node).lookup(node.id)
    return home is not None and home.kind in ("module", "function") and home is not scope and _around(home, scope)


def _around(home: Scope, scope: Scope) -> bool:
    up = scope.parent
    while up is not None and up is not home:
        up = up.parent
    return up is home


def _of_self(unit: Unit, node: ast.expr, scope: Scope) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and _is_self(node.value, scope)


def _is_self(node: ast.Name, scope: Scope) -> bool:
    args = scope.node.args  # type: ignore[attr-defined]
    first = [*args.posonlyargs, *args.args][:1]
    return bool(first) and first[0].arg == node.id


def _shows(unit: Unit, node: ast.expr) -> bool:
    """Whether printing an expression shows the value of a tensor."""
    if isinstance(node, ast.JoinedStr):
        return any(isinstance(v, ast.FormattedValue) and _shows(unit, v.value) for v in node.values)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("item", "tolist"):
        return unit.kind(node.func.value).is_tensor
    return _holds_tensor(unit, node)


def _holds_tensor(unit: Unit, node: ast.expr) -> bool:
    kind = unit.kind(node)
    return kind.is_tensor or (kind.tag in ("list", "tuple", "dict") and any(i.is_tensor for i in kind.items))


def _said(what: str) -> str:
    if what == "print":
        return "print of a tensor"
    return f"`{what}` is changed" if what[:6] in ("global", "nonloc") else f"`{what}` changes state"
