"""Whether code can run once more, or inside another function, and give the same: it draws nothing and keeps nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ...layers import catalogue
from ...read.facts import ClassFacts, FunctionFacts
from ...read.kinds import Kind
from ...read.needs import draws
from ...read.unit import Unit
from ..plan import Plan
from .callees import called
from .flow import uses
from .roles import NotPlain, is_model

_WEIGHTED = frozenset(  # torch.nn classes whose random numbers are drawn when they are built, and none later
    """
    Linear Bilinear Embedding EmbeddingBag Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d PReLU
    """.split()  # noqa: SIM905
)
_HOLDERS = ("torch.nn.Sequential", "torch.nn.ModuleList", "torch.nn.ModuleDict")
_ACTING = frozenset(("setattr", "next", "input", "exec", "eval", "open", "delattr"))
_HOST = ("numpy", "tolist")


def drifting(plan: Plan, code: Iterable[ast.AST]) -> tuple[str, ...]:
    """The modules that the code calls by a name, and that nothing shows to keep no running values and to draw nothing.

    Raises NotPlain where anything else that it runs may.
    """
    look = _Look(plan)
    for node in code:
        if problem := look.at(plan.unit, node, outermost=True):
            raise NotPlain(problem)
    return tuple(look.modules)


def is_given_model(unit: Unit, node: ast.expr) -> bool:
    """Whether a parameter of a function is a module at each call of it in the file."""
    function = unit.tree.function(node)
    facts = unit.functions.get(function) if function is not None else None
    if not isinstance(node, ast.Name) or not isinstance(facts, FunctionFacts) or unit.kind(node).known:
        return False
    names = [a.arg for a in (*facts.node.args.posonlyargs, *facts.node.args.args)]
    if node.id not in names or any(n.id == node.id and isinstance(n.ctx, ast.Store) for n in _names(facts.node)):
        return False
    at, given = names.index(node.id), []
    for call in unit.tree.all(ast.Call):
        found = called(unit, call)
        if found is not None and found[0] is facts.node:
            place = at - int(facts.owner is not None)
            named = [k.value for k in call.keywords if k.arg == node.id]
            given += named or call.args[place : place + 1] or [ast.Constant(None)]
    return bool(given) and all(is_model(unit, g) for g in given)


def _names(code: ast.AST) -> Iterable[ast.Name]:
    return (n for n in ast.walk(code) if isinstance(n, ast.Name))


class _Look:
    """Looks at each function once. `modules` are those that it cannot see into."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.catalogue = catalogue(plan.native.layers)
        self.seen: set[ast.AST] = set()
        self.modules: dict[str, None] = {}

    def at(self, unit: Unit, code: ast.AST, *, outermost: bool = False) -> str:
        """Why the code is not steady; "" when it is."""
        for node in ast.walk(code):
            if isinstance(node, (ast.Global, ast.Nonlocal, ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)):
                return self._says(unit, node, "acts outside")
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, (ast.Store, ast.Del)):
                return self._says(unit, node, "is written")
            if isinstance(node, ast.Call) and (problem := self._call(unit, node, outermost)):
                return problem
        return ""

    def _says(self, unit: Unit, node: ast.AST, what: str) -> str:
        line, _ = unit.tree.position(unit.tree.start(node))
        return f"`{ast.unparse(node).splitlines()[0][:60]}` (line {line}) {what}"

    def _call(self, unit: Unit, node: ast.Call, outermost: bool) -> str:
        found = called(unit, node)
        kind = unit.kind(node.func)
        if kind.tag == "Module" or (found is None and (is_model(unit, node.func) or is_given_model(unit, node.func))):
            if not (problem := self._module(unit, kind)):
                return ""
            if outermost and isinstance(node.func, ast.Name):
                self.modules[node.func.id] = None
                return ""
            return self._says(unit, node, problem)
        if found is not None:
            return self._function(*found)
        dotted = unit.resolve(node.func)
        if dotted is not None:
            return self._named(unit, node, dotted)
        if isinstance(node.func, ast.Attribute):
            return self._method(unit, node, node.func)
        return self._says(unit, node, "is not known")

    def _named(self, unit: Unit, node: ast.Call, dotted: str) -> str:
        head, _, name = dotted.partition(".")
        if (head == "builtins" and name in _ACTING) or dotted.startswith(("numpy.random", "random.")):
            return self._says(unit, node, "acts outside")
        if head not in ("torch", "builtins", "math", "numpy", "itertools", "functools", "einops"):
            return self._says(unit, node, "is not known")
        if head != "torch":
            return ""
        row = self.plan.unit.book.find(dotted)
        if draws(row, self.catalogue, node):
            return self._says(unit, node, "draws random numbers")
        if "batch_norm" in dotted or "instance_norm" in dotted:
            return self._says(unit, node, "may move running values")
        return ""

    def _method(self, unit: Unit, node: ast.Call, func: ast.Attribute) -> str:
        row = self.plan.unit.book.find(f"torch.Tensor.{func.attr}")
        owner = unit.kind(func.value)
        if func.attr in _HOST:
            return self._says(unit, node, "leaves the differentiated part")
        if owner.tag in ("list", "tuple", "dict", "shape", "str"):
            return ""
        if row is None or (owner.known and not owner.is_tensor):
            return self._says(unit, node, "is not known")
        if draws(row, self.catalogue, node):
            return self._says(unit, node, "draws random numbers")
        return ""

    def _function(self, function: ast.AST, unit: Unit) -> str:
        if function in self.seen:
            return ""
        self.seen.add(function)
        if isinstance(function, ast.Lambda):
            return self.at(unit, function.body)
        assert isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        own = {n for s in function.body for n in uses(s).writes}
        if changed := uses(function.body).changes - own:
            return self._says(unit, function, f"changes `{min(changed)}`").replace("def ", "", 1)
        return next((p for s in function.body if (p := self.at(unit, s))), "")

    def _module(self, unit: Unit, kind: Kind) -> str:
        """Why a module is not steady: it keeps running values, draws, or nothing shows what it is."""
        facts = kind.facts
        if isinstance(facts, ClassFacts):
            forward = facts.method("forward") or facts.method("__call__")
            if facts.layer_base and facts.layer_base not in _HOLDERS:
                return "may keep running values"
            if forward is None:
                return self._holder(unit, kind)
            return "is not known" if self._function(forward.node, forward.unit) else ""
        if kind.name in _HOLDERS:
            return self._holder(unit, kind)
        short = kind.name.removeprefix("torch.nn.")
        row = self.plan.unit.book.find(kind.name)
        entry = self.catalogue.get(str(row.get("layer"))) if row is not None and row.get("layer") else None
        if row is None or entry is None or row.get("buffers"):
            return "may keep running values"
        return "may draw random numbers" if entry.needs_rngs and short not in _WEIGHTED else ""

    def _holder(self, unit: Unit, kind: Kind) -> str:
        if not kind.items:
            return "is not known"
        return next((p for item in kind.items if (p := self._module(unit, item))), "")
