"""Where a program needs 64-bit types, which JAX has only when they are switched on (jax_enable_x64)."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from .fstrings import hidden
from .unit import Unit

FLOAT64 = frozenset(("torch.float64", "torch.double", "torch.complex128", "torch.cdouble"))
INT64 = frozenset(("torch.int64", "torch.long"))
DEFAULTS = frozenset(("torch.set_default_dtype", "torch.set_default_tensor_type"))
LARGEST = 2**31 - 1  # of int32
SMALLEST = -(2**31)
_MAKE_FLOATS = frozenset(
    f"numpy.{name}"
    for name in (
        *("eye", "linspace", "logspace", "random.rand", "random.randn", "random.random"),
        *("random.normal", "random.uniform", "random.standard_normal"),
    )
)
_FROM_NUMPY = frozenset(("torch.from_numpy", "torch.tensor", "torch.as_tensor"))
_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.LShift: operator.lshift,
    ast.Pow: operator.pow,
}


@dataclass(frozen=True)
class Wide:
    """A use of a 64-bit type at `node`. what: "default" (float64 becomes the default), "float64", "numpy" (a float64
    array of NumPy), "int" (a number beyond int32 that meets a tensor), "limits" (torch.iinfo of int64)."""

    node: ast.AST
    what: str
    text: str
    value: int = 0


_ASKED = frozenset((ast.Attribute, ast.Name, ast.Call, ast.Constant, ast.BinOp, ast.UnaryOp))


def wide_uses(unit: Unit) -> list[Wide]:
    """The uses in a file, in the order of the text."""
    nodes = (n for n in unit.tree.nodes if n.__class__ in _ASKED and not hidden(n))
    return [use for node in nodes for use in _uses(unit, node)]


def sets_default(unit: Unit, node: ast.AST) -> str:
    """The type that `torch.set_default_dtype(…)` sets: "float64", "float32", "other"; "" for everything else."""
    if not isinstance(node, ast.Call) or unit.resolve(node.func) not in DEFAULTS or len(node.args) != 1:
        return ""
    given = node.args[0]
    name = unit.resolve(given) or (given.value if isinstance(given, ast.Constant) else "")
    return {
        "torch.float64": "float64",
        "torch.double": "float64",
        "torch.DoubleTensor": "float64",
        "torch.float32": "float32",
        "torch.float": "float32",
        "torch.FloatTensor": "float32",
    }.get(str(name), "other")


def is_script(unit: Unit) -> bool:
    """Whether a file is a program: it has `if __name__ == "__main__":`."""
    return any(isinstance(s, ast.If) and "__name__" in ast.dump(s.test) for s in unit.tree.root.body)


def has_layers(unit: Unit) -> bool:
    """Whether modules are defined or built in a file."""
    return any(c.is_module for c in unit.classes.values()) or any(
        (unit.resolve(n.func) or "").startswith("torch.nn.") and unit.kind(n).tag == "Module"
        for n in unit.tree.all(ast.Call)
    )


def constant_int(node: ast.AST) -> int | None:
    """The value of an integer expression without names: `2**40`, `-(1 << 35)`."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = constant_int(node.operand)
        return None if value is None else -value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = constant_int(node.left), constant_int(node.right)
        if left is None or right is None or (isinstance(node.op, (ast.Pow, ast.LShift)) and not 0 <= right <= 128):
            return None
        return _OPERATORS[type(node.op)](left, right)
    return None


def _uses(unit: Unit, node: ast.AST) -> Iterator[Wide]:
    if isinstance(node, (ast.Attribute, ast.Name)):
        up = unit.tree.parents.get(node)
        if unit.resolve(node) in FLOAT64 and not sets_default(unit, up if up is not None else node):
            yield Wide(node, "float64", ast.unparse(node))
    elif isinstance(node, ast.Call):
        yield from _calls(unit, node)
    if isinstance(node, (ast.Constant, ast.BinOp, ast.UnaryOp)):
        value = constant_int(node)
        if value is not None and not SMALLEST <= value <= LARGEST and _meets_tensor(unit, node):
            yield Wide(node, "int", ast.unparse(node), value)


def _calls(unit: Unit, node: ast.Call) -> Iterator[Wide]:
    dotted = unit.resolve(node.func) or ""
    if sets_default(unit, node) == "float64":
        yield Wide(node, "default", ast.unparse(node))
    elif dotted == "torch.iinfo" and node.args and unit.resolve(node.args[0]) in INT64:
        yield Wide(node, "limits", ast.unparse(node))
    elif isinstance(node.func, ast.Attribute) and node.func.attr in ("double", "cdouble") and not node.args:
        kind = unit.kind(node.func.value)
        if kind.is_tensor or kind.tag == "Module":
            yield Wide(node, "float64", f".{node.func.attr}()")
    elif dotted in _FROM_NUMPY and node.args and not _cast(unit, node) and _makes_floats(unit, node.args[0]):
        yield Wide(node, "numpy", ast.unparse(node.args[0]))


def _meets_tensor(unit: Unit, node: ast.AST) -> bool:
    """Whether a number is the whole operand of a tensor, or an argument of a torch function (no seed)."""
    for up in unit.tree.ancestors(node):
        if isinstance(up, ast.stmt) or (isinstance(up, (ast.BinOp, ast.UnaryOp)) and constant_int(up) is not None):
            return False
        if isinstance(up, (ast.BinOp, ast.Compare)) and unit.kind(up).is_tensor:
            return True
        if isinstance(up, ast.Call):
            dotted = unit.resolve(up.func) or ""
            method = isinstance(up.func, ast.Attribute) and unit.kind(up.func.value).is_tensor
            if dotted.startswith("torch.") or method:
                return not dotted.endswith(("manual_seed", "manual_seed_all"))
    return False


def _cast(unit: Unit, node: ast.Call) -> bool:
    """`from_numpy(a).float()`, `tensor(a, dtype=…)`."""
    if any(k.arg == "dtype" for k in node.keywords):
        return True
    up = unit.tree.parents.get(node)
    return isinstance(up, ast.Attribute) and up.attr in (
        "float",
        "to",
        "type",
        "long",
        "int",
        "half",
        "bfloat16",
        "bool",
    )


def _makes_floats(unit: Unit, node: ast.expr) -> bool:
    """Whether an expression is certainly a float64 array of NumPy."""
    if isinstance(node, ast.Name):
        scope = unit.scope(node).lookup(node.id)
        bindings = scope.bindings[node.id] if scope is not None else []
        up = unit.tree.parents.get(bindings[0].node) if len(bindings) == 1 else None
        return isinstance(up, ast.Assign) and isinstance(up.value, ast.Call) and _makes_floats(unit, up.value)
    if not isinstance(node, ast.Call):
        return False
    dtype = next((k.value for k in node.keywords if k.arg == "dtype"), None)
    if dtype is not None:
        return unit.resolve(dtype) in ("numpy.float64", "numpy.double", "builtins.float")
    dotted = unit.resolve(node.func) or ""
    if dotted in ("numpy.array", "numpy.asarray") and len(node.args) == 1:
        return any(isinstance(n, ast.Constant) and isinstance(n.value, float) for n in ast.walk(node.args[0]))
    if dotted in ("numpy.zeros", "numpy.ones", "numpy.empty"):
        return len(node.args) == 1
    return dotted in _MAKE_FLOATS
