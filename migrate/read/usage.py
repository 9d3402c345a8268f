"""How a function uses its names, as its text alone says: asked often, found once."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from .caught import is_caught
from .shared_names import may_give_number, shown_beside, shown_by_index
from .tensor_only import TENSOR_ATTRIBUTES, may_show_tensor, shows_tensor

if TYPE_CHECKING:
    from .unit import Unit

_NO_TENSOR_HAS = frozenset(
    ("append", "keys", "items", "values", "get", "pop", "extend", "update", "format", "lower", "startswith", "copy")
)
_TENSOR_PARAMETERS = frozenset(
    {"self", "input", "mat1", "mat2", "batch1", "batch2", "target", "vec", "vec1", "vec2", "query", "x1", "x2"}
)

_CASTS = frozenset({"to", "type", "float", "double", "half", "bfloat16", "int", "long", "bool", "cpu", "cuda", "clone"})


class Usage:
    """What the body of `owner` (a function, a lambda, a class or a module) shows of its names."""

    def __init__(self, unit: Unit, owner: ast.AST) -> None:
        self.unit, self.owner = unit, owner

    @cached_property
    def tensors(self) -> dict[str, str]:
        """Names used as only a tensor can be used, with how: a method that only tensors have, an argument of a torch
        function that takes a tensor there."""
        called = {name: why for _, name, why in reversed(self._called)}
        given = {name: why for _, name, why in reversed(self._given)}
        proven = self._placed() | given | called
        self._prove_together(proven)
        return proven

    @cached_property
    def _called(self) -> list[tuple[ast.AST, str, str]]:
        """Where a method or an attribute that only tensors have is read from a name: the place, the name, and how."""
        found: list[tuple[ast.AST, str, str]] = []
        for node in self.unit.tree.own(self.owner):
            if isinstance(node, ast.Attribute) and node.attr in TENSOR_ATTRIBUTES and isinstance(node.value, ast.Name):
                found.append((node, node.value.id, f"`.{node.attr}` is read from it"))
            elif isinstance(node, ast.Call) and isinstance(func := node.func, ast.Attribute):
                if isinstance(func.value, ast.Name) and (why := shows_tensor(node, self.unit)):
                    found.append((node, func.value.id, why))
        return found

    @cached_property
    def _given(self) -> list[tuple[ast.AST, str, str]]:
        """Where a torch function is given a name for a tensor: the place, the name, and how."""
        return [
            (node, name, f"it is an argument of {dotted}")
            for node in self.unit.tree.own(self.owner)
            if isinstance(node, ast.Call)
            for name, dotted in self._tensor_arguments(node)
        ]

    def shown_before(self, name: str, stmt: ast.stmt) -> bool:
        """Whether a use before `stmt` shows a tensor: what is one after `x += noise` may have been a number."""
        start = self.unit.tree.start(stmt)
        return any(n == name and self.unit.tree.start(node) < start for node, n, _ in [*self._called, *self._given])

    def _placed(self) -> dict[str, str]:
        """Names of which a device and a shape are read: arrays, and no other library's is about."""
        read: dict[str, set[str]] = {}
        for node in self.unit.tree.own(self.owner):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and isinstance(node.ctx, ast.Load):
                read.setdefault(node.value.id, set()).add(node.attr)
        around = self.unit.around
        if around.arrays or around.methods & {"shape", "ndim"}:
            return {}
        return {
            name: "`.device` and its shape are read from it"
            for name, attributes in read.items()
            if "device" in attributes and attributes & {"shape", "ndim"}
        }

    def _prove_together(self, proven: dict[str, str]) -> None:
        """Add the names on which methods are called that other types have too, where something beside the call shows
        that it is a tensor's."""
        weak = [
            (node.func.value.id, node)
            for node in self.unit.tree.own(self.owner)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and may_show_tensor(node, self.unit)
        ]
        if not weak:
            return
        read: dict[str, set[str]] = {}
        for node in self.unit.tree.own(self.owner):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                read.setdefault(node.value.id, set()).add(node.attr)
        inputs, results = self._inputs(), self._results()
        known = proven | dict.fromkeys(self._made(), "made by torch")
        while True:
            new = {}
            for name, node in weak:
                if name not in proven and (why := self._beside(name, node, read, known, inputs, results)):
                    method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
                    new[name] = f"`.{method}` is called on it, and {why}"
            if not new:
                return
            proven.update(new)
            known.update(new)

    def _beside(
        self,
        name: str,
        node: ast.Call,
        read: dict[str, set[str]],
        proven: dict[str, str],
        inputs: frozenset[str],
        results: dict[str, set[str]],
    ) -> str:
        """What beside the weak call `node` on `name` shows a tensor, or ""."""
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        around = self.unit.around
        for other in sorted(read.get(name, ())):
            if shown_beside(other, method, around):
                return f"`.{other}` too"
        if method == "detach" and name in self._counted:
            return "it is calculated with"
        if shown_by_index(method, around) and name in self._indexed:
            return "it is indexed"
        if (result := self._kept_as(node, name)) and (
            result in proven
            or (shown_by_index(method, around) and result in self._indexed)
            or any(shown_beside(other, method, around) for other in read.get(result, ()))
        ):
            return f"its result `{result}` is used as a tensor"
        if name in inputs:
            return "it is an input of a module"
        given = {a.id for a in [*node.args, *(k.value for k in node.keywords)] if isinstance(a, ast.Name)}
        if other := next(iter(sorted(given & proven.keys())), ""):
            return f"`{other}` is given to it"
        made = results.get(name, set()) if method not in ("transpose", "squeeze") else set()  # `f(x)` may be NumPy's
        if other := next(iter(sorted(made & proven.keys())), ""):
            return f"it is computed from `{other}`"
        return self.of_result(node, method, proven)

    def of_result(self, node: ast.Call, method: str, proven: dict[str, str]) -> str:
        """What is done with the result, and only with a tensor."""
        up = self.unit.tree.parents.get(node)
        if isinstance(up, ast.BinOp) and not may_give_number(method, self.unit.around):
            other = up.right if up.left is node else up.left
            if isinstance(other, ast.Name) and other.id in proven:
                return f"its result is combined with `{other.id}`"
        if isinstance(up, ast.Attribute):
            outer = self.unit.tree.parents.get(up)
            if shown_beside(up.attr, method, self.unit.around):
                return f"`.{up.attr}` of its result is used"
            if isinstance(outer, ast.Call) and outer.func is up and shows_tensor(outer, self.unit):
                return f"`.{up.attr}` is called on its result"
        if isinstance(up, ast.Call) and node in up.args and self.takes_tensor(up, node):
            return f"its result goes into {self.unit.resolve(up.func)}"
        return ""

    def _kept_as(self, node: ast.Call, name: str) -> str:
        """The name that only ever holds the result of `node`, or "". The receiver's own may."""
        up = self.unit.tree.parents.get(node)
        if not isinstance(up, ast.Assign) or len(up.targets) != 1 or not isinstance(up.targets[0], ast.Name):
            return ""
        result = up.targets[0].id
        return result if result == name or self._stores[result] == 1 else ""

    @cached_property
    def _stores(self) -> Counter[str]:
        """How often each name is bound."""
        names = (n for n in self.unit.tree.own(self.owner) if isinstance(n, ast.Name))
        return Counter(n.id for n in names if not isinstance(n.ctx, ast.Load))

    @cached_property
    def _indexed(self) -> frozenset[str]:
        """Names that are indexed, and not by a string."""
        return frozenset(
            node.value.id
            for node in self.unit.tree.own(self.owner)
            if isinstance(node, ast.Subscript)
            and isinstance(node.value, ast.Name)
            and not (isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str))
        )

    def takes_tensor(self, call: ast.Call, arg: ast.expr) -> bool:
        dotted = self.unit.resolve(call.func) or ""
        row = self.unit.book.find(dotted) if dotted.startswith("torch.") else None
        if row is None or row.signature is None:
            return False
        params = dict(zip(map(id, call.args), row.signature.params, strict=False))
        return id(arg) in params and params[id(arg)].name in _TENSOR_PARAMETERS

    @cached_property
    def _counted(self) -> frozenset[str]:
        """Names that are operands or are indexed."""
        found: set[str] = set()
        for node in self.unit.tree.own(self.owner):
            parts = [node.left, node.right] if isinstance(node, ast.BinOp) else []
            parts += [node.value] if isinstance(node, ast.Subscript) else []
            found.update(p.id for p in parts if isinstance(p, ast.Name))
        return frozenset(found)

    def _made(self) -> set[str]:
        """Names that are only ever assigned what a torch function gives, where that is a tensor."""
        made: dict[str, bool] = {}
        for node in self.unit.tree.own(self.owner):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                up = self.unit.tree.parents.get(node)
                value = up.value if isinstance(up, ast.Assign) and node in up.targets else None
                dotted = (self.unit.resolve(value.func) or "") if isinstance(value, ast.Call) else ""
                row = self.unit.book.find(dotted) if dotted.startswith("torch.") else None
                made[node.id] = made.get(node.id, True) and row is not None and row.gives == "Tensor"
        return {name for name, always in made.items() if always}

    def _inputs(self) -> frozenset[str]:
        """The parameters of a module's `forward`, or of an autograd function's methods, without self."""
        owner = self.owner
        if not isinstance(owner, ast.FunctionDef) or owner.name not in ("forward", "backward"):
            return frozenset()
        cls = self.unit.tree.parents.get(owner)
        facts = self.unit.classes.get(cls) if isinstance(cls, ast.ClassDef) else None
        bases = [self.unit.resolve(b) or "" for b in cls.bases] if isinstance(cls, ast.ClassDef) else []
        if (facts is None or not facts.is_module) and "torch.autograd.Function" not in bases:
            return frozenset()
        return frozenset(a.arg for a in [*owner.args.posonlyargs, *owner.args.args, *owner.args.kwonlyargs][1:])

    def _results(self) -> dict[str, set[str]]:
        """By name: the names that go into the calls, operators and subscripts that it is always assigned from."""
        found: dict[str, set[str]] = {}
        for node in self.unit.tree.own(self.owner):
            if isinstance(node, ast.Assign) and isinstance(node.value, (ast.Call, ast.BinOp)):
                value = node.value
                parts = [value.left, value.right] if isinstance(value, ast.BinOp) else value.args
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        names = {p.id for p in parts if isinstance(p, ast.Name)}
                        found[target.id] = found[target.id] & names if target.id in found else names
        return found

    def _tensor_arguments(self, node: ast.Call) -> Iterator[tuple[str, str]]:
        """Names (or names subscripted) that a torch function is given where it takes a tensor."""
        dotted = self.unit.resolve(node.func) or ""
        if isinstance(node.func, ast.Attribute) and node.func.attr == "register_buffer" and len(node.args) > 1:
            buffer = node.args[1]
            if isinstance(buffer, ast.Call) and isinstance(buffer.func, ast.Attribute) and buffer.func.attr in _CASTS:
                buffer = buffer.func.value  # what is cast to a tensor was one: a module's `to` gives a module
            if isinstance(buffer, ast.Name):
                yield buffer.id, "register_buffer"
        if not dotted.startswith("torch.") or not node.args:
            return
        row = self.unit.book.find(dotted)
        if row is None or row.signature is None or is_caught(node, self.unit):
            return
        for arg, param in zip(node.args, row.signature.params, strict=False):
            if param.name not in _TENSOR_PARAMETERS or param.kind != "normal":
                continue
            while isinstance(arg, ast.Subscript) and _is_of_array(arg.slice):
                arg = arg.value
            if isinstance(arg, ast.Name):
                yield arg.id, dotted

    @cached_property
    def unlike_tensor(self) -> frozenset[str]:
        """Names used as no tensor is: looped over, starred, called, keyed by a string …"""
        return frozenset(
            found.id
            for node in self.unit.tree.walk(self.owner)
            for found in _unlike(node)
            if isinstance(found, ast.Name)
        )

    @cached_property
    def asked(self) -> frozenset[str]:
        """Names whose own truth, or that of a comparison with them, is asked: an error for most tensors."""
        tests: list[ast.expr] = []
        for node in self.unit.tree.walk(self.owner):
            if isinstance(node, (ast.If, ast.While, ast.IfExp, ast.Assert)):
                tests.append(node.test)
            elif isinstance(node, ast.BoolOp):
                tests += node.values[:-1]
        return frozenset(a.id for test in tests for a in _asked(test) if isinstance(a, ast.Name))

    @cached_property
    def written(self) -> frozenset[str]:
        """Names through which the body writes in place: these stay the Variable itself."""
        found = set()
        for node in self.unit.tree.walk(self.owner):
            target = _written(node)
            while isinstance(target, (ast.Attribute, ast.Subscript)):
                target = target.value
            if isinstance(target, ast.Name):
                found.add(target.id)
        return frozenset(found)

    @cached_property
    def yields(self) -> bool:
        """Whether there is a `yield` anywhere in it."""
        return any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in self.unit.tree.walk(self.owner))

    @cached_property
    def returned(self) -> list[ast.expr]:
        """The values that it returns, those of conditional expressions one by one."""
        stmts = [n for n in self.unit.tree.walk(self.owner) if isinstance(n, ast.Return) and n.value is not None]
        return [a for stmt in stmts if stmt.value is not None for a in _alternatives(stmt.value)]


def _is_of_array(index: ast.expr) -> bool:
    """Whether what `x[index]` gives can be a tensor only where `x` is one: lists and dicts hold tensors, but a slice of
    a list is a list, and none of them takes slices among others."""
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    return any(isinstance(p, ast.Slice) or (isinstance(p, ast.Constant) and p.value in (None, ...)) for p in parts)


def _unlike(node: ast.AST) -> list[ast.expr]:
    """The expressions that `node` uses as no tensor is used."""
    if isinstance(node, (ast.For, ast.comprehension)):
        looped = node.iter
        if isinstance(looped, ast.Call) and isinstance(looped.func, ast.Name):
            return looped.args if looped.func.id in ("enumerate", "zip", "reversed") else []
        return [looped]
    if isinstance(node, ast.Call):
        asked = isinstance(node.func, ast.Name) and node.func.id == "isinstance"
        return [node.func, *(node.args[:1] if asked else [])]
    if isinstance(node, ast.Starred):
        return [node.value]
    if isinstance(node, ast.Subscript):
        return [node.value] if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str) else []
    if isinstance(node, ast.Compare):
        texts = any(isinstance(c, ast.Constant) and isinstance(c.value, str) for c in node.comparators)
        return [node.left] if texts else []
    if isinstance(node, ast.Attribute):
        return [node.value] if node.attr in _NO_TENSOR_HAS else []
    return []


def _asked(test: ast.expr) -> list[ast.expr]:
    """What `test` asks the truth of, and what it compares for that."""
    if isinstance(test, ast.BoolOp):
        return [a for v in test.values for a in _asked(v)]
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _asked(test.operand)
    if isinstance(test, ast.Compare):
        same = any(isinstance(op, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for op in test.ops)
        return [] if same else [test.left, *test.comparators]
    return [test]


def _written(node: ast.AST) -> ast.AST | None:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.endswith("_"):
        owner = node.func.value
        if node.args and isinstance(owner, (ast.Name, ast.Attribute)) and ast.unparse(owner).endswith("init"):
            return node.args[0]
        return owner
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        return node.value
    if isinstance(node, ast.AugAssign):
        return node.target
    return node if isinstance(node, ast.Attribute) and node.attr == "data" else None


def _alternatives(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.IfExp):
        return _alternatives(node.body) + _alternatives(node.orelse)
    if isinstance(node, ast.BoolOp):
        return [a for v in node.values for a in _alternatives(v)]
    return [node]
