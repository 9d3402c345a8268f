"""What can be proved of a tensor expression without running it: that two have the same shape and the same type.

An expression is proved by the operations that it is made of: all of them are known here, none has a side effect, draws
random numbers or depends on more than its operands. What is not known has no signature, and is left as it is.

One thing is taken for granted where `lax.cond` compares the types again: that a tensor which is multiplied by an
integer holds no booleans. If it does, `lax.cond` raises a TypeError; it never gives another value.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ...read.unit import Unit
from .truth import only_value

Shape = tuple[object, ...] | str
SCALAR: Shape = ()
WHOLE = "whole "


@dataclass(frozen=True)
class Term:
    """shape: dimensions when they are literals, else a text that is equal for equal shapes. dtype: likewise ("whole …"
    for one that holds no booleans); "int" and "float" are numbers of Python. safe: the gradient is finite wherever the
    operands are, so that `jnp.where` may compute it in vain. counter: made of the counter of a loop."""

    shape: Shape
    dtype: str
    safe: bool = True
    counter: bool = False

    @property
    def number(self) -> bool:
        return self.dtype in ("int", "float")

    def same(self, other: Term) -> bool:
        return (self.shape, self.dtype.removeprefix(WHOLE)) == (other.shape, other.dtype.removeprefix(WHOLE))


SAME = frozenset(("clone", "detach", "contiguous", "relu", "zeros_like", "ones_like", "abs", "neg", "sign"))
SMOOTH = frozenset(("sigmoid", "tanh", "sin", "cos", "softplus", "gelu", "silu", "elu", "logsigmoid"))
STEEP = frozenset(
    ("exp", "log", "log1p", "sqrt", "rsqrt", "reciprocal", "expm1", "log2", "log10", "asin", "acos", "tan")
)
TOTALS = frozenset(("sum", "mean", "max", "min", "amax", "amin", "norm", "std", "var", "any", "all", "prod"))
NEEDS_FLOAT = frozenset(("mean", "norm", "std", "var", "softmax", "log_softmax"))
CELLS = frozenset(("torch.nn.GRUCell", "torch.nn.RNNCell"))
LAYERS: Mapping[str, bool] = {
    "torch.nn.ReLU": True,
    "torch.nn.Tanh": True,
    "torch.nn.Sigmoid": True,
    "torch.nn.Identity": True,
}
FLOATS = frozenset(("float32", "bfloat16", "float16", "float64"))


class Prover:
    """Terms of the expressions of one file. `floats` are names whose values are known to be floating point."""

    def __init__(self, unit: Unit, floats: frozenset[str] = frozenset()) -> None:
        self.unit, self.floats = unit, floats

    def term(self, node: ast.expr, env: Mapping[str, Term]) -> Term | None:
        method = getattr(self, f"_{type(node).__name__}", None)
        result: Term | None = method(node, env) if method is not None else None
        return result

    def named(self, name: str) -> Term:
        """The value that a name has where nothing else is known of it."""
        return Term(f"shape of {name}", f"{'float' if name in self.floats else 'type'} of {name}")

    def _Constant(self, node: ast.Constant, env: Mapping[str, Term]) -> Term | None:
        kind = type(node.value)
        return Term(SCALAR, kind.__name__) if kind in (int, float) else None

    def _Name(self, node: ast.Name, env: Mapping[str, Term]) -> Term | None:
        if node.id in env:
            return env[node.id]
        kind = self.unit.kind(node)
        if kind.tag in ("int", "float"):
            return Term(SCALAR, kind.tag)
        if not kind.is_tensor:
            return None
        made = only_value(self.unit, node)
        found = self.term(made, {}) if isinstance(made, ast.Call) and self._fixed(made) else None
        return found or self.named(node.id)

    def _fixed(self, node: ast.Call) -> bool:
        """Whether a call reads only names that have one value for good: what it gives can be said at any place."""
        for name in (n for n in ast.walk(node) if isinstance(n, ast.Name)):
            scope = self.unit.scope(name).lookup(name.id)
            if scope is not None and len(scope.bindings[name.id]) != 1:
                return False
        return True

    def _Attribute(self, node: ast.Attribute, env: Mapping[str, Term]) -> Term | None:
        if self.unit.kind(node).is_tensor and isinstance(node.value, ast.Name) and node.attr not in ("T", "mT", "H"):
            return self.named(ast.unparse(node))
        return None

    def _UnaryOp(self, node: ast.UnaryOp, env: Mapping[str, Term]) -> Term | None:
        term = self.term(node.operand, env) if isinstance(node.op, ast.USub) else None
        return term if term is None or term.number else replace(term, dtype=self._with_number(term.dtype, "int"))

    def _BinOp(self, node: ast.BinOp, env: Mapping[str, Term]) -> Term | None:
        left, right = self.term(node.left, env), self.term(node.right, env)
        if left is None or right is None:
            return None
        return self.binary(node.op, left, right, node.right)

    def binary(self, op: ast.operator, left: Term, right: Term, divisor: ast.expr) -> Term | None:
        """The term of `left op right`."""
        both = self._joined(left, right)
        if both is None or not isinstance(op, (ast.Add, ast.Sub, ast.Mult, ast.Div)):
            return None
        if isinstance(op, ast.Div):
            plain = isinstance(divisor, ast.Constant) and bool(divisor.value)
            if both.number:
                return None if both.counter else replace(both, dtype="float")
            return replace(both, dtype=self._with_number(both.dtype, "float"), safe=both.safe and plain)
        if isinstance(op, ast.Mult) and not (left.number or right.number):
            return replace(both, safe=False)  # the gradient is the other factor, which may be infinite
        return both

    def _joined(self, left: Term, right: Term) -> Term | None:
        """Two operands, broadcast and promoted."""
        shape = left.shape if right.shape == SCALAR else right.shape if left.shape == SCALAR else None
        if shape is None:
            shape = left.shape if left.shape == right.shape else None
        dtype = self._promoted(left.dtype, right.dtype)
        counter = left.counter or right.counter
        if shape is None or not dtype or (counter and dtype == "float"):
            return None
        return Term(shape, dtype, left.safe and right.safe, counter and dtype == "int")

    def _promoted(self, left: str, right: str) -> str:
        if left.removeprefix(WHOLE) == right.removeprefix(WHOLE):
            return max(left, right, key=len)
        if left in ("int", "float") and right in ("int", "float"):
            return "float"
        if left in ("int", "float"):
            return self._with_number(right, left)
        if right in ("int", "float"):
            return self._with_number(left, right)
        if {left, right} <= {"float32", "int32", "bool"}:
            return "float32" if "float32" in (left, right) else "int32"
        return ""

    def _with_number(self, dtype: str, number: str) -> str:
        """The type of a tensor beside a number of Python."""
        plain = dtype.removeprefix(WHOLE)
        if plain in FLOATS or plain == "int32" or plain.startswith(("float of", "real ")):
            return "float32" if plain == "int32" and number == "float" else plain
        if dtype == "bool":
            return "int32" if number == "int" else "float32"
        return f"{WHOLE}{plain}" if number == "int" else f"real {plain}"

    def _Compare(self, node: ast.Compare, env: Mapping[str, Term]) -> Term | None:
        if len(node.ops) != 1 or isinstance(node.ops[0], (ast.In, ast.NotIn, ast.Is, ast.IsNot)):
            return None
        left, right = self.term(node.left, env), self.term(node.comparators[0], env)
        shapes = {t.shape for t in (left, right) if t is not None and t.shape != SCALAR}
        if left is None or right is None or len(shapes) > 1 or (left.number and right.number):
            return None
        return Term(shapes.pop() if shapes else SCALAR, "bool")

    def _Subscript(self, node: ast.Subscript, env: Mapping[str, Term]) -> Term | None:
        base = self.term(node.value, env)
        if base is None or not self.unit.kind(node.value).is_tensor:
            return None
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        pattern = []
        for part in parts:
            if isinstance(part, ast.Slice) and not (part.lower or part.upper or part.step):
                pattern.append(":")
                continue
            index = self.term(part, env)
            if index is None or index.dtype != "int":
                return None
            pattern.append("i")
        if isinstance(base.shape, tuple):
            if len(pattern) > len(base.shape):
                return None
            kept = tuple(d for d, p in zip(base.shape, [*pattern, *":" * len(base.shape)], strict=False) if p == ":")
            return replace(base, shape=kept)
        return replace(base, shape=f"{base.shape}[{','.join(pattern)}]")

    def _Call(self, node: ast.Call, env: Mapping[str, Term]) -> Term | None:
        kind = self.unit.kind(node.func)
        if kind.tag == "Module":
            return self._module(node, kind.name, env)
        dotted = self.unit.resolve(node.func) or ""
        arguments = list(node.args)
        if dotted.startswith("torch."):
            name = dotted.rpartition(".")[2]
        elif isinstance(node.func, ast.Attribute) and self.unit.kind(node.func.value).is_tensor:
            name, arguments = node.func.attr, [node.func.value, *arguments]
        else:
            return None
        if name in ("zeros", "ones", "tensor") and dotted:
            return self._made(name, node)
        terms = [self.term(a, env) for a in arguments]
        if node.keywords or not terms or any(t is None for t in terms):
            return None
        return self._operation(name, [t for t in terms if t is not None])

    def _operation(self, name: str, terms: list[Term]) -> Term | None:
        first = terms[0]
        if first.number:
            return None
        real = self._with_number(first.dtype, "float")
        if len(terms) == 1:
            if name == "relu":  # JAX makes integers of booleans
                return replace(first, dtype=self._with_number(first.dtype, "int"))
            if name in SAME:
                return first
            if name in SMOOTH | STEEP:
                return replace(first, dtype=real, safe=first.safe and name in SMOOTH)
            if name in TOTALS:
                return self._reduced(name, first)
            if name == "float":
                return replace(first, dtype="float32")
        if name == "full_like" and len(terms) == 2 and terms[1].number:
            return first if terms[1].dtype == "int" or real == first.dtype else None
        if name in ("maximum", "minimum") and len(terms) == 2:
            return self._joined(*terms)
        if name in ("clamp", "clip") and all(t.number for t in terms[1:]):
            whole = all(t.dtype == "int" for t in terms[1:])
            return replace(first, dtype=self._with_number(first.dtype, "int")) if whole or real == first.dtype else None
        if name == "where" and len(terms) == 3:
            both = self._joined(terms[1], terms[2])
            fits = both is not None and not both.number and terms[0].shape in (SCALAR, both.shape)
            return both if fits else None
        return None

    def _reduced(self, name: str, first: Term) -> Term:
        if name in ("any", "all"):
            return Term(SCALAR, "bool")
        safe = first.safe and name in ("sum", "mean", "max", "min", "amax", "amin")
        if name in NEEDS_FLOAT:
            return Term(SCALAR, self._with_number(first.dtype, "float"), safe)
        if name in ("sum", "prod") and not (first.dtype in FLOATS or first.dtype.startswith("float of")):
            return Term(SCALAR, f"sum of {first.dtype}", safe)
        return Term(SCALAR, first.dtype, safe)

    def _made(self, name: str, node: ast.Call) -> Term | None:
        """`torch.zeros(3, 4)`, `torch.tensor(0.5)`: made of literals, of the default type."""
        if node.keywords:
            return None
        given = node.args
        if len(given) == 1 and isinstance(given[0], (ast.Tuple, ast.List)) and name != "tensor":
            given = given[0].elts
        values = [a.value if isinstance(a, ast.Constant) else None for a in given]
        if name == "tensor":
            kind = type(values[0]).__name__ if len(values) == 1 else ""
            dtype = {"float": "float32", "int": "int32", "bool": "bool"}.get(kind)
            return Term(SCALAR, dtype) if dtype else None
        if not all(type(v) is int for v in values):
            return None
        return Term(tuple(values), "float32")

    def _module(self, node: ast.Call, name: str, env: Mapping[str, Term]) -> Term | None:
        terms = [self.term(a, env) for a in node.args]
        if node.keywords or any(t is None for t in terms):
            return None
        if name in LAYERS and len(terms) == 1:
            return terms[0]
        if name in CELLS and len(terms) == 2 and terms[1] is not None:
            return replace(terms[1], safe=False)
        return None


def float_names(unit: Unit, test: ast.expr) -> frozenset[str]:
    """Names that a condition uses as only floating point tensors can be used: torch raises for others."""
    found = set()
    for node in ast.walk(test):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Attribute) and node.func.attr in NEEDS_FLOAT:
            given = (
                node.args[0] if (unit.resolve(node.func) or "").startswith("torch.") and node.args else node.func.value
            )
            if isinstance(given, ast.Name):
                found.add(given.id)
    return frozenset(found)
