"""Functions that read a trained module by themselves get it as a parameter: `self.compute_loss(x)` that calls
`self.net`, `loss_of(batch)` that calls a global `model`. A loss function can then hand them the module that it is
differentiated by.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ...read.unit import Unit
from ..layercalls import add_argument
from ..plan import Plan, Whole
from ..signature_edit import add_keyword_parameter
from .callees import called, is_backward, own_nodes
from .flow import mark_behind, uses
from .helpers import acts
from .optimizers import Optimizers
from .sources import Source
from .steps import backward_calls


@dataclass(frozen=True)
class Module:
    """A trained module: as it is spelled, in the methods of one class (`self.net`) or as a global name."""

    text: str
    cls: ast.ClassDef | None

    @property
    def short(self) -> str:
        return self.text.rpartition(".")[2]


@dataclass
class Threads:
    """The functions that get modules as parameters, and their calls with the spelling of each module there."""

    functions: dict[ast.FunctionDef, dict[str, Module]] = field(default_factory=dict)
    calls: dict[ast.Call, dict[str, str]] = field(default_factory=dict)


def find_threads(plan: Plan, optimizers: Optimizers) -> Threads:
    """The functions that the losses of training code call and that read a trained module, as far as all their uses can
    be changed. Their calls are marked with what they read behind."""
    unit = plan.unit
    threads = Threads()
    for module in dict.fromkeys(_trained(unit, optimizers)):
        readers = _readers(unit, module)
        needed = _needed(unit, readers)
        if needed and all(_open(plan, f, module) for f in needed):
            _thread(unit, module, needed, threads)
    for call, given in threads.calls.items():
        mark_behind(call, tuple(given))
    return threads


def _trained(unit: Unit, optimizers: Optimizers) -> Iterator[Module]:
    for made in optimizers.calls:
        for text in made.source.models:
            cls = unit.tree.class_of(made.call) if text.startswith("self.") else None
            if cls is not None and text.count(".") == 1 and not _is_module(unit, cls):
                yield Module(text, cls)
            elif text.isidentifier() and text in unit.scopes.module.bindings:
                yield Module(text, None)


def _is_module(unit: Unit, cls: ast.ClassDef) -> bool:
    facts = unit.classes.get(cls)
    return facts is None or facts.is_module


def _places(unit: Unit, function: ast.AST, module: Module) -> list[ast.expr]:
    """Where a function reads the module."""
    found = [n for n in Source((module.text,)).places(function) if isinstance(n, ast.expr)]
    if module.cls is not None:
        return found if unit.tree.class_of(function) is module.cls else []
    return [n for n in found if unit.scope(n).lookup(module.text) is unit.scopes.module]


def _readers(unit: Unit, module: Module) -> dict[ast.FunctionDef, list[ast.Call]]:
    """The functions that read the module, themselves or by what they call, each with those calls."""
    functions = [f for f in unit.functions if isinstance(f, ast.FunctionDef) and unit.tree.function(f) is None]
    edges: dict[ast.FunctionDef, list[tuple[ast.Call, ast.FunctionDef]]] = {}
    for function in functions:
        calls = [n for n in ast.walk(function) if isinstance(n, ast.Call)]
        pairs = ((c, called(unit, c)) for c in calls)
        edges[function] = [(c, f[0]) for c, f in pairs if f is not None and isinstance(f[0], ast.FunctionDef)]
    found = {f for f in functions if _places(unit, f, module)}
    while True:
        more = {f for f in functions if f not in found and any(g in found for _, g in edges[f])}
        if not more:
            return {f: [c for c, g in edges[f] if g in found] for f in functions if f in found}
        found |= more


def _needed(unit: Unit, readers: dict[ast.FunctionDef, list[ast.Call]]) -> list[ast.FunctionDef]:
    """The readers that losses call, and those that these call."""
    needed: dict[ast.FunctionDef, None] = {}
    todo = [f for call in backward_calls(unit) for f in _of_loss(unit, call, readers)]
    while todo:
        function = todo.pop()
        if function in needed:
            continue
        needed[function] = None
        todo += [f[0] for c in readers[function] if (f := called(unit, c)) is not None]  # type: ignore[misc]
    return list(needed)


def _of_loss(unit: Unit, backward: ast.Call, readers: dict[ast.FunctionDef, list[ast.Call]]) -> list[ast.FunctionDef]:
    """The readers that are called on the way to a loss."""
    assert isinstance(backward.func, ast.Attribute)
    function = unit.tree.function(backward) or unit.tree.root
    stmts = [n for n in own_nodes(function) if isinstance(n, (ast.Assign, ast.AnnAssign, ast.AugAssign))]
    parts: list[ast.AST] = [backward.func.value]
    names: set[str] = set()
    seen: set[ast.AST] = set()
    found: list[ast.FunctionDef] = []
    while parts:
        part = parts.pop()
        names |= uses(part).reads
        for node in ast.walk(part):
            target = called(unit, node) if isinstance(node, ast.Call) else None
            if target is not None and target[0] in readers:
                found.append(target[0])
        more = [s for s in stmts if s not in seen and uses(s).writes & names]
        seen.update(more)
        parts += more
    return found


def _open(plan: Plan, function: ast.FunctionDef, module: Module) -> bool:
    """Whether the function can be given the module: it is only called, here, and keeps nothing."""
    unit = plan.unit
    spec = function.args
    own = {a.arg for a in ast.walk(spec) if isinstance(a, ast.arg)} | uses(function.body).writes
    if function.decorator_list or module.short in own or function.name.startswith("__") or acts(unit, function):
        return False
    if uses(function.body).changes - own or any(_acts_outside(n) for n in ast.walk(function)):
        return False
    if module.cls is None and unit.tree.class_of(function) is not None:
        return False
    if module.cls is not None and unit.tree.class_of(function) is not module.cls:
        return False
    if any(u is not unit and function.name in u.tree.text for u in plan.project.units):
        return False
    return not _overridden(unit, function, module) and _only_called(unit, function, module)


def _overridden(unit: Unit, function: ast.FunctionDef, module: Module) -> bool:
    """Whether a class above or below has a method of the same name."""
    own = unit.classes.get(module.cls) if module.cls is not None else None
    if own is None:
        return False
    related = [c for c in unit.classes.values() if own in c.lineage() or c in own.lineage()]
    return any(c is not own and function.name in c.methods for c in related)


def _acts_outside(node: ast.AST) -> bool:
    stored = isinstance(node, ast.Attribute) and isinstance(node.ctx, (ast.Store, ast.Del))
    return (
        stored or isinstance(node, (ast.Global, ast.Nonlocal, ast.Yield, ast.YieldFrom, ast.Await)) or is_backward(node)
    )


def _only_called(unit: Unit, function: ast.FunctionDef, module: Module) -> bool:
    """Whether each use of the function's name is a call in which the module can be spelled."""
    for node in unit.tree.parents:
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        if name != function.name:
            continue
        call = unit.tree.parents[node]
        if not isinstance(call, ast.Call) or call.func is not node:
            return False
        target = called(unit, call)
        if target is None or target[0] is not function or any(k.arg is None for k in call.keywords):
            return False
        if module.cls is None:
            if unit.scope(call).lookup(module.text) is not unit.scopes.module:
                return False
        elif not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)):
            return False
    return True


def _thread(unit: Unit, module: Module, needed: Sequence[ast.FunctionDef], threads: Threads) -> None:
    for function in needed:
        threads.functions.setdefault(function, {})[module.text] = module
    for call in unit.tree.all(ast.Call):
        found = called(unit, call)
        if found is None or found[0] not in needed:
            continue
        inside = unit.tree.function(call) in needed
        owner = call.func.value.id if isinstance(call.func, ast.Attribute) else ""  # type: ignore[attr-defined]
        text = module.text if not owner else f"{owner}.{module.short}"
        threads.calls.setdefault(call, {})[text] = module.short if inside else text


def plan_threads(plan: Plan, threads: Threads) -> None:
    """Write the parameters and the arguments, where a loss function hands a module on."""
    if not plan.threaded:
        return
    for function, modules in threads.functions.items():
        for module in modules.values():
            add_keyword_parameter(plan, function, module.short)
            for node in _places(plan.unit, function, module):
                if module.text != module.short:
                    plan.whole[node] = Whole(lambda _, name=module.short: name, 15)  # type: ignore[misc]
                    plan.taken |= set(ast.walk(node))
            plan.found(
                "JM002", function, "torch.nn.Module",
                f"{function.name} gets {module.text} as an argument: a loss function is differentiated by it",
            )  # fmt: skip
    for call, given in threads.calls.items():
        for text, spelled in given.items():
            name = text.rpartition(".")[2]
            add_argument(plan, call, f"{name}={plan.threaded.get(call, {}).get(text, spelled)}")
