"""Names that are chosen at run time from a set that the source shows: `getattr(nn, name)`."""

from __future__ import annotations

import ast
import re

from .project import Project
from .unit import Unit

LOOKED_INTO = ("torch", "torch.nn", "torch.nn.functional", "torch.nn.init")
ANY_INITIALISER = "torch.nn.init.*"
ANY_FUNCTION = "torch.nn.functional.*"


def looked_up(unit: Unit, node: ast.AST) -> str:
    """The torch module that `getattr(module, name)` looks into, "" for any other expression."""
    if not isinstance(node, ast.Call) or len(node.args) != 2 or node.keywords:
        return ""
    if unit.resolve(node.func) != "builtins.getattr":
        return ""
    module = unit.resolve(node.args[0]) or ""
    return module if module in LOOKED_INTO else ""


def is_initialiser(name: str) -> bool:
    """Whether the torch name of a function is that of an initialiser, or stands for any of them."""
    return name == ANY_INITIALISER or (name.startswith("torch.nn.init.") and name.endswith("_"))


class Choices:
    """The strings that an expression may be, as far as the project shows: None when it shows none.

    What is found need not be all (`closed` says whether it is): whoever looks another name up must fail loudly.
    """

    def __init__(self, project: Project, unit: Unit) -> None:
        self.project, self.unit = project, unit
        self.closed = True
        self._open: set[ast.AST] = set()

    def of(self, node: ast.expr, unit: Unit | None = None) -> set[str] | None:
        unit = unit or self.unit
        if node in self._open:
            return set()
        self._open.add(node)
        found = self._of(node, unit)
        self._open.discard(node)
        self.closed &= found is not None
        return found

    def _of(self, node: ast.expr, unit: Unit) -> set[str] | None:
        if isinstance(node, ast.Constant):
            return {node.value} if isinstance(node.value, str) else set() if node.value is None else None
        if isinstance(node, ast.IfExp):
            return _union([self.of(node.body, unit), self.of(node.orelse, unit)])
        if isinstance(node, ast.BoolOp):
            return _union([self.of(v, unit) for v in node.values])
        if isinstance(node, ast.Subscript):
            return self._entries(node.value, unit)
        if isinstance(node, ast.Name):
            return self._name(node, unit)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, unit)
        return None

    def _entries(self, node: ast.expr, unit: Unit) -> set[str] | None:
        """The values of a dict or list that is written out and bound to one name."""
        if isinstance(node, ast.Name):
            scope = unit.scope(node).lookup(node.id)
            bound = [unit.tree.parents.get(b.node) for b in scope.bindings[node.id]] if scope is not None else []
            values = [b.value for b in bound if isinstance(b, ast.Assign)]
            return self._entries(values[0], unit) if len(values) == len(bound) == 1 else None
        if isinstance(node, ast.Dict):
            return _union([self.of(v, unit) for v in node.values])
        if isinstance(node, (ast.List, ast.Tuple)):
            return _union([self.of(v, unit) for v in node.elts])
        return None

    def _attribute(self, node: ast.Attribute, unit: Unit) -> set[str] | None:
        facts = unit.kind(node.value).facts
        found: list[set[str] | None] = []
        for cls in getattr(facts, "lineage", list)():
            found += [self.of(value, cls.unit) for value in cls.assigned.get(node.attr, [])]
        return _union(found)

    def _name(self, node: ast.Name, unit: Unit) -> set[str] | None:
        scope = unit.scope(node).lookup(node.id)
        found: list[set[str] | None] = []
        for binding in scope.bindings[node.id] if scope is not None else []:
            up = unit.tree.parents.get(binding.node)
            if binding.kind == "param" and isinstance(binding.node, ast.arg):
                found.append(self._parameter(binding.node, unit))
            elif isinstance(up, ast.Assign) and binding.node in up.targets:
                found.append(self.of(up.value, unit))
            elif isinstance(up, (ast.For, ast.comprehension)) and up.target is binding.node:
                found.append(self._entries(up.iter, unit))
            else:
                found.append(None)
        return _union(found)

    def _parameter(self, arg: ast.arg, unit: Unit) -> set[str] | None:
        """A parameter: its default, `Literal[…]`, what calls pass, what the function compares it with."""
        function = unit.tree.parents.get(unit.tree.parents[arg])
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return None
        found = _literals(arg.annotation)
        self.closed &= bool(found)
        spec = function.args
        names = [a.arg for a in [*spec.posonlyargs, *spec.args]]
        defaults = dict(zip(names[::-1], spec.defaults[::-1], strict=False))
        defaults |= {a.arg: d for a, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if d is not None}
        if arg.arg in defaults:
            found |= self.of(defaults[arg.arg], unit) or set()
        facts = unit.functions.get(function)
        owner = facts.owner if facts is not None else None
        called = owner.name if owner is not None and function.name == "__init__" else function.name
        at = names.index(arg.arg) - (owner is not None) if arg.arg in names else -1
        for where, call in self.project.calls.get(called, []):
            given = next((k.value for k in call.keywords if k.arg == arg.arg), None)
            if given is None and 0 <= at < len(call.args) and not isinstance(call.args[at], ast.Starred):
                given = call.args[at]
            found |= (self.of(given, where) or set()) if given is not None else set()
        for compare in (n for n in ast.walk(function) if isinstance(n, ast.Compare)):
            if isinstance(compare.left, ast.Name) and compare.left.id == arg.arg:
                found |= _strings(compare)
        return found or None


def _literals(annotation: ast.expr | None) -> set[str]:
    """The strings of `Literal["a", "b"]`, also inside Optional and unions."""
    found: set[str] = set()
    for node in ast.walk(annotation) if annotation is not None else ():
        if isinstance(node, ast.Subscript) and ast.unparse(node.value).rpartition(".")[2] == "Literal":
            found |= _strings(node.slice)
    return found


def _strings(node: ast.AST) -> set[str]:
    return {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)}


def pattern(node: ast.expr) -> str:
    """The regular expression of `f"Conv{dim}d"`, `"Conv%dd" % dim`, `"Conv{}d".format(dim)`, else ""."""
    if isinstance(node, ast.JoinedStr):
        parts = [re.escape(str(v.value)) if isinstance(v, ast.Constant) else r"\w+" for v in node.values]
        return "".join(parts) if any(isinstance(v, ast.Constant) for v in node.values) else ""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and isinstance(node.left, ast.Constant):
        return re.sub(r"%[ds]", r"\\w+", re.escape(str(node.left.value)).replace(r"\%", "%"))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = (pattern(n) or _plain(n) for n in (node.left, node.right))
        return (left or r"\w+") + (right or r"\w+") if left or right else ""
    call = node.func if isinstance(node, ast.Call) else None
    if isinstance(call, ast.Attribute) and call.attr == "format" and isinstance(call.value, ast.Constant):
        return re.sub(r"\\\{\\?\}", r"\\w+", re.escape(str(call.value.value)))
    return ""


def _plain(node: ast.expr) -> str:
    return re.escape(node.value) if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _union(parts: list[set[str] | None]) -> set[str] | None:
    known = [p for p in parts if p is not None]
    return set().union(*known) if known and any(known) else None
