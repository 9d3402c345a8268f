"""Tensors of integers, as far as the text shows them, and what may make numbers beyond 32 bits of them.

torch's integers are 64 bits wide, JAX's 32 without x64: a product, power or sum beyond 2^31 wraps around there, and
nothing is said. Sizes of arrays and places in them stay far below; sums of those need not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from .scopes import Binding
from .unit import TENSOR_TYPES, Unit
from .wide import LARGEST, constant_int

# How large the integers are: truth values; counts of elements; places in an array; any.
BOOL, COUNT, PLACE, ANY = 1, 2, 3, 4
_DTYPES = frozenset(f"torch.{n}" for n in ("int64", "long", "int32", "int", "int16", "short", "uint8", "int8"))
_PLACES = frozenset("argmax argmin argsort nonzero argwhere randperm searchsorted bucketize".split())  # noqa: SIM905
_FILLED = frozenset(
    """zeros ones full empty zeros_like ones_like full_like empty_like new_zeros new_ones new_full new_empty
    """.split()  # noqa: SIM905
)
_SAME = frozenset(
    """view reshape flatten ravel unsqueeze squeeze expand expand_as repeat t permute transpose clone detach cpu cuda
    contiguous clamp gather index_select flip roll abs neg max min amax amin select narrow masked_select take
    """.split()  # noqa: SIM905
)
_TRUTHS = frozenset("eq ne lt le gt ge isnan isinf isfinite any all logical_and logical_or logical_not".split())  # noqa: SIM905
_GROWING = frozenset("sum cumsum prod cumprod dot matmul mm bmm mv pow mul multiply square".split())  # noqa: SIM905
_SMALL = 16  # no array has so many elements that a small multiple of them passes 2^31


class Integers:
    """The integer tensors of a file."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self._known: dict[ast.AST, int] = {}
        self._names: dict[tuple[int, str], int] = {}

    def growing(self) -> Iterator[ast.expr]:
        """The expressions that may pass 32 bits, in the order of the text."""
        for node in self.unit.tree.both(ast.BinOp, ast.Call):
            if isinstance(node, ast.BinOp):
                if self._grows(node):
                    yield node
            elif self._name(node) in _GROWING and self._sums(node):
                yield node

    def of(self, node: ast.AST) -> int:
        """How large the integers of a tensor are: BOOL, COUNT, PLACE, ANY; 0 where nothing shows integers."""
        if node not in self._known:
            self._known[node] = BOOL  # while it is looked at: a name that is computed from itself, and from others
            self._known[node] = self._of(node)
        return self._known[node]

    def _of(self, node: ast.AST) -> int:
        if isinstance(node, ast.Name):
            return self._bound(node)
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.Subscript):
            return self.of(node.value)
        if isinstance(node, ast.Compare):
            return BOOL if self.unit.kind(node).is_tensor else 0
        if isinstance(node, ast.UnaryOp):
            return self.of(node.operand)
        if isinstance(node, ast.IfExp):
            return self._join([node.body, node.orelse])
        return self._operation(node) if isinstance(node, ast.BinOp) else 0

    def _join(self, nodes: list[ast.expr]) -> int:
        found = [self.of(n) for n in nodes]
        return max(found) if found and all(found) else 0

    def _bound(self, node: ast.Name) -> int:
        """What all that binds the name gives; what is computed from the name itself is as large as that makes it."""
        scope = self.unit.scope(node).lookup(node.id)
        if scope is None:
            return 0
        key = (id(scope), node.id)
        if key not in self._names:
            values = self._values(scope.bindings[node.id])
            first = [v for v in values or () if node.id not in {n.id for n in ast.walk(v) if isinstance(n, ast.Name)}]
            self._names[key] = self._join(first)
            if self._names[key]:
                self._names[key] = self._join(values or [])
        return self._names[key]

    def _values(self, bindings: list[Binding]) -> list[ast.expr] | None:
        """What is bound to a name, where all of it is in sight: assigned, or the elements of what is walked over."""
        values: list[ast.expr] = []
        for binding in bindings:
            up = self.unit.tree.parents.get(binding.node)
            if isinstance(up, (ast.For, ast.comprehension)) and up.target is binding.node:
                values.append(up.iter)
            elif isinstance(up, (ast.Assign, ast.AnnAssign)) and up.value is not None:
                values.append(up.value)
            elif (one := self._one_of_several(binding.node, up)) is not None:
                values.append(one)
            elif not isinstance(up, ast.AugAssign):
                return None
        return values

    def _one_of_several(self, node: ast.AST, up: ast.AST | None) -> ast.expr | None:
        """What `a` gets of `a, b = x, y`."""
        stmt = self.unit.tree.parents.get(up) if isinstance(up, ast.Tuple) else None
        if not isinstance(up, ast.Tuple) or not isinstance(stmt, ast.Assign) or not isinstance(stmt.value, ast.Tuple):
            return None
        values = stmt.value.elts
        return values[up.elts.index(node)] if len(values) == len(up.elts) and node in up.elts else None

    def _operation(self, node: ast.BinOp) -> int:
        left, right = self.of(node.left), self.of(node.right)
        if isinstance(node.op, ast.Div) or not (left or right):
            return 0
        if not (left and right) and not self._is_int(node.right if left else node.left):
            return 0
        if isinstance(node.op, (ast.FloorDiv, ast.Mod)):
            return left or ANY
        return ANY if isinstance(node.op, (ast.Mult, ast.Pow, ast.LShift, ast.MatMult)) else max(left, right)

    def _call(self, node: ast.Call) -> int:
        name, dtype = self._name(node), self._dtype(node)
        inner = self._receiver(node)
        if name == "arange":
            return PLACE if dtype or (dtype is None and all(map(self._is_int, node.args))) else 0
        if name in ("tensor", "as_tensor", "scalar_tensor"):
            return ANY if node.args and (dtype or (dtype is None and self._is_int(node.args[0]))) else 0
        if name in _FILLED:
            return (COUNT if "zeros" in name or "ones" in name else ANY) if dtype else 0
        if name == "bincount":
            return COUNT
        if name in _PLACES:
            return PLACE
        if name == "randint":
            return ANY
        if name in _TRUTHS:
            return BOOL
        if name in ("long", "int", "short") or (name in ("to", "type") and self._is_dtype(node.args)):
            return max(COUNT, self.of(inner)) if inner is not None and self.of(inner) else ANY
        if inner is None or name in ("float", "double", "half", "mean", "to", "type"):
            return self.of(inner) if inner is not None and name == "to" and not self._is_type(node.args) else 0
        if name in ("sum", "cumsum"):
            return max(COUNT, self.of(inner)) if self.of(inner) else 0
        return self.of(inner) if name in _SAME else 0

    def _grows(self, node: ast.BinOp) -> bool:
        left, right = self.of(node.left), self.of(node.right)
        if isinstance(node.op, ast.Mult):
            if left and right:
                return min(left, right) > BOOL
            return max(left, right) > BOOL and self._factor(node.right if left else node.left)
        if isinstance(node.op, (ast.Pow, ast.LShift)):
            whole = (left and (right or self._is_int(node.right))) or (right and self._is_int(node.left))
            return bool(whole) and max(left, right) > BOOL
        return isinstance(node.op, ast.MatMult) and min(left, right) > BOOL

    def _factor(self, node: ast.expr) -> bool:
        """Whether what a tensor is multiplied with is an integer: no small one, and no large one (wide.py tells)."""
        value = constant_int(node)
        return _SMALL < abs(value) <= LARGEST if value is not None else self._is_int(node)

    def _sums(self, node: ast.Call) -> bool:
        """Whether a call adds or multiplies integers that are more than counts of elements."""
        inner, name = self._receiver(node), self._name(node)
        if inner is None or self._dtype(node) is False or not self.of(inner):
            return False
        if name in ("mul", "multiply", "dot", "matmul", "mm", "bmm", "mv"):
            other = node.args[-1] if node.args else inner
            return self.of(inner) > BOOL and (self.of(other) > BOOL or self._factor(other))
        return self.of(inner) > (COUNT if "sum" in name else BOOL)

    def _name(self, node: ast.Call) -> str:
        """The short name of a torch function or a tensor's method; "" for everything else."""
        dotted = self.unit.resolve(node.func) or ""
        if dotted in TENSOR_TYPES:
            return "long" if "Long" in dotted or "Int" in dotted else ""
        if dotted.startswith("torch."):
            return dotted.rpartition(".")[2]
        method = isinstance(node.func, ast.Attribute) and self.unit.kind(node.func.value).is_tensor
        return node.func.attr if method and isinstance(node.func, ast.Attribute) else ""

    def _receiver(self, node: ast.Call) -> ast.expr | None:
        """What a function of torch is given first, or whose method is called."""
        if (self.unit.resolve(node.func) or "").startswith("torch."):
            return node.args[0] if node.args else None
        return node.func.value if isinstance(node.func, ast.Attribute) else None

    def _dtype(self, node: ast.Call) -> bool | None:
        """Whether `dtype=` names a type of integers; None where it is not given."""
        given = next((k.value for k in node.keywords if k.arg == "dtype"), None)
        return None if given is None else self.unit.resolve(given) in _DTYPES

    def _is_dtype(self, args: list[ast.expr]) -> bool:
        return any(self.unit.resolve(a) in _DTYPES or self.unit.resolve(a) == "torch.LongTensor" for a in args)

    def _is_type(self, args: list[ast.expr]) -> bool:
        return any(self.unit.kind(a).tag == "dtype" or (self.unit.resolve(a) or "").startswith("torch.") for a in args)

    def _is_int(self, node: ast.expr) -> bool:
        """Whether a value is an integer of Python, or a list of such."""
        if isinstance(node, (ast.List, ast.Tuple)):
            return bool(node.elts) and all(map(self._is_int, node.elts))
        return constant_int(node) is not None or self.unit.kind(node).tag == "int"
