"""Why statements cannot be traced by jit: what in them, or in the functions and modules they call, needs values."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable

from ...read.facts import ClassFacts, FunctionFacts
from ...read.kinds import Kind
from ...read.unit import STANDARD_LIBRARY, Unit
from ..control.truth import asks_itself, is_mask, tested
from ..indexing import index_parts
from ..inplace.masks import selects
from ..plan import Plan
from .flow import behind
from .outside import unsettled
from .roles import is_model

_VALUES = frozenset(("item", "tolist", "numpy", "nonzero", "unique", "masked_select", "unique_consecutive", "cpu"))
_SHAPES = ("torch.nonzero", "torch.unique", "torch.masked_select", "torch.unique_consecutive", "torch.argwhere")
_BUILTINS = frozenset(
    """
    len range zip enumerate isinstance issubclass tuple list dict set reversed hasattr getattr super type sum abs map
    max min sorted any all callable slice repr str format
    """.split()  # noqa: SIM905
)
_HOLDERS = ("torch.nn.Sequential", "torch.nn.ModuleList", "torch.nn.ModuleDict")
_LIBRARIES = ("math.", "einops.", "functools.", "itertools.", "operator.", "typing.", "collections.", "copy.")


class Tracer:
    """Looks for what cannot be traced; functions are looked at once. `top` is the statement before which the traced
    function is written."""

    def __init__(self, plan: Plan, top: ast.stmt | None = None) -> None:
        self.plan, self.unit, self.top = plan, plan.unit, top
        self.seen: set[ast.AST] = set()

    def statements(self, stmts: Iterable[ast.stmt], arguments: Collection[str]) -> str:
        """Why statements of this file cannot be traced, "" when they can. `arguments` are names that hold arrays."""
        for stmt in stmts:
            if problem := self._code(self.unit, stmt, set(arguments)):
                return problem
        return ""

    def _code(self, unit: Unit, code: ast.AST, arrays: set[str]) -> str:
        for node in ast.walk(code):
            what = self._problem(unit, node, arrays)
            if what:
                line, _ = unit.tree.position(unit.tree.start(node))
                where = "" if unit is self.unit else f" of {unit.source.path}"
                return f"line {line}{where}: {what}"
            if isinstance(node, ast.Call) and (problem := self._called(unit, node)):
                return problem
        return ""

    def _problem(self, unit: Unit, node: ast.AST, arrays: set[str]) -> str:
        """What one node does that jit cannot."""
        if isinstance(node, (ast.If, ast.While, ast.Assert, ast.IfExp)):
            if any(True for _ in tested(unit, node.test)) or _asks(node.test, arrays):
                return f"`{ast.unparse(node.test)[:50]}` reads a value"
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            return f"`{ast.unparse(node)}` changes a name outside"
        if isinstance(node, (ast.Try, ast.Await, ast.Yield, ast.YieldFrom, ast.Delete, ast.Import, ast.ImportFrom)):
            return f"`{type(node).__name__.lower()}` is not traced"
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            if any(is_mask(unit, part) or _compares(part) for part in index_parts(node.slice)):
                return "a boolean mask decides a shape"
        if isinstance(node, (ast.Assign, ast.AugAssign)) and _writes_by_mask(unit, node):
            return "a boolean mask says where to write"
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            return f"`{ast.unparse(node)}` is written"
        if isinstance(node, (ast.Compare, ast.Call)) and asks_itself(unit, node):
            return f"`{ast.unparse(node)[:50]}` reads a value"
        return self._call(unit, node) if isinstance(node, ast.Call) else ""

    def _call(self, unit: Unit, node: ast.Call) -> str:
        """What is wrong with a call by its name alone."""
        text = f"`{ast.unparse(node)[:50]}`"
        dotted = unit.resolve(node.func)
        if dotted is not None and dotted.startswith("builtins."):
            name = dotted.removeprefix("builtins.")
            if name in ("float", "int", "bool", "round"):
                return "" if _of_shape(node) else f"{text} reads a value"
            return "" if name in _BUILTINS else f"{text} acts outside"
        if dotted is not None:
            if dotted.startswith("torch."):
                short = dotted.startswith("torch.where") and len(node.args) == 1
                return f"{text} decides a shape" if dotted in _SHAPES or short else ""
            return "" if dotted.startswith(_LIBRARIES) else f"{text} is not traced" if self._foreign(dotted) else ""
        if isinstance(node.func, ast.Attribute) and node.func.attr in _VALUES:
            return f"{text} reads a value"
        return ""

    def _foreign(self, dotted: str) -> bool:
        """A function of another package; the project's own are followed."""
        return dotted.partition(".")[0] in STANDARD_LIBRARY or not dotted.startswith("jax")

    def _called(self, unit: Unit, node: ast.Call) -> str:
        """Look into the project's own function or module that a call runs."""
        if given := behind(node):
            return f"`{ast.unparse(node.func)[:40]}` is handed {', '.join(given)}"
        if unit.resolve(node.func) is not None and not isinstance(
            unit.kind(node.func).facts, (FunctionFacts, ClassFacts)
        ):
            return ""
        kind = unit.kind(node.func)
        facts = kind.facts or unit.local(node.func)
        if isinstance(facts, FunctionFacts):
            return self._function(facts)
        if isinstance(facts, ClassFacts):
            return self._module(facts) if kind.tag == "Module" else f"`{facts.name}(…)` makes an object"
        if kind.tag == "Module" or is_model(unit, node.func):
            return (
                "" if kind.name.startswith("torch.nn.") and kind.name.count(".") == 2 else self._any_module(unit, node)
            )
        if isinstance(node.func, ast.Attribute):
            return self._method(unit, node, node.func)
        if kind.tag == "torch":
            return ""
        return f"nothing shows what `{ast.unparse(node.func)[:40]}` does"

    def _method(self, unit: Unit, node: ast.Call, func: ast.Attribute) -> str:
        owner = unit.kind(func.value)
        if isinstance(owner.facts, ClassFacts):
            method = owner.facts.method(func.attr)
            return self._function(method) if method is not None else ""
        if owner.is_tensor or owner.tag in ("list", "tuple", "dict", "shape", "str", "torch", "Module", "numpy"):
            return "" if owner.tag != "numpy" else f"`{ast.unparse(node)[:50]}` is NumPy's"
        if unit.tree.class_of(func) is not None and ast.unparse(func.value) == "self":
            facts = unit.classes.get(unit.tree.class_of(func))  # type: ignore[arg-type]
            method = facts.method(func.attr) if facts is not None else None
            return self._function(method) if method is not None else ""
        return f"nothing shows what `{ast.unparse(func)[:40]}` does"

    def _any_module(self, unit: Unit, node: ast.Call) -> str:
        """A module of unknown class: each module class of the file must do, and there must be one."""
        kind: Kind = unit.kind(node.func)
        if kind.name in _HOLDERS:
            inner = [k.facts for k in kind.items if isinstance(k.facts, ClassFacts)]
            return next((p for f in inner if (p := self._module(f))), "")
        classes = [c for c in unit.classes.values() if c.is_module]
        if not classes or not kind.known:
            return f"nothing shows which class `{ast.unparse(node.func)[:40]}` is of"
        return next((p for c in classes if (p := self._module(c))), "")

    def _module(self, facts: ClassFacts) -> str:
        forward = facts.method("forward") or facts.method("__call__")
        return self._function(forward) if forward is not None else ""

    def _function(self, facts: FunctionFacts) -> str:
        if facts.node in self.seen:
            return ""
        self.seen.add(facts.node)
        if found := unsettled(self.plan, facts.unit, facts.node, self.top):
            line = facts.unit.tree.position(facts.unit.tree.start(found[0]))[0]
            return f"line {line}: `{found[0].id}` of outside {found[1]}, which a compiled `{facts.name}` would not see"
        for stmt in facts.node.body:
            if problem := self._code(facts.unit, stmt, set()):
                return problem
        return ""


def _writes_by_mask(unit: Unit, stmt: ast.Assign | ast.AugAssign) -> bool:
    """`x[mask] = y`, other than where it becomes jnp.where."""
    targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]
    for target in (t for t in targets if isinstance(t, ast.Subscript)):
        parts = index_parts(target.slice)
        if any(is_mask(unit, p) or _compares(p) for p in parts) and not selects(stmt, target.value, parts, unit):
            return True
    return False


def _compares(part: ast.expr) -> bool:
    """`x[y > 0]`, `x[~m]`, `x[a & b]`: whatever the operands are, it is no index."""
    if isinstance(part, ast.BinOp):
        return isinstance(part.op, (ast.BitAnd, ast.BitOr, ast.BitXor))
    return isinstance(part, ast.Compare) or (isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.Invert))


def _asks(test: ast.expr, arrays: set[str]) -> bool:
    """Whether a condition reads one of the names other than by `is None` or its shape."""
    if isinstance(test, ast.Compare) and all(isinstance(op, (ast.Is, ast.IsNot)) for op in test.ops):
        return False
    if isinstance(test, (ast.BoolOp, ast.UnaryOp)):
        return any(_asks(v, arrays) for v in (test.values if isinstance(test, ast.BoolOp) else [test.operand]))
    return any(isinstance(n, ast.Name) and n.id in arrays for n in ast.walk(test)) and not _of_shape(test)


def _of_shape(node: ast.AST) -> bool:
    """Whether an expression asks for a shape, a length, or a plain number."""
    arg = node.args[0] if isinstance(node, ast.Call) and node.args else node
    if isinstance(arg, ast.Constant):
        return True
    attributes = {n.attr for n in ast.walk(arg) if isinstance(n, ast.Attribute)}
    calls = {n.func.id for n in ast.walk(arg) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    return bool(attributes & {"shape", "size", "dim", "ndim", "numel"} or calls & {"len"})
