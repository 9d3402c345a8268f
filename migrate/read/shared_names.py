"""Methods that tensors share with other types: when a call of one still shows a tensor, and when it need not be known.

Three kinds of evidence, each of which a finding states:

* the *form* of the call fits no other owner of the name (`x.split(2)`: strings split at strings; `y = x.sort()`: lists
  sort in place and give None);
* nothing in *sight* but torch has the name: no builtin, no type of the standard library, no NumPy array; and the file
  imports nothing beyond these that could bring such a type;
* the call means the *same* for a NumPy array and for a tensor: it stays as it is where JAX arrays have that method, or
  takes the JAX form where nothing else in sight has the name. This says nothing of what the receiver is.

None of them holds when a class of the project has a method of that name; what stays as it is needs no proof.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Surroundings:
    """What else could own a method. `methods`: names that the project's classes define. `closed`: the file imports
    torch, NumPy, the standard library and files of the project for which the same is true, and nothing else."""

    methods: frozenset[str] = frozenset()
    closed: bool = False


# Neither builtins, nor the standard library, nor NumPy's arrays, nor torch's modules have these; pandas, polars,
# SQLAlchemy, matplotlib do.
_ONLY_TORCH_IN_SIGHT = frozenset(
    """
    abs absolute add sub subtract mul multiply div divide pow eq ne ge gt le lt ceil floor sign cov diff mode median
    nanmedian quantile where scatter equal cummax cummin int bool lu
    """.split()  # noqa: SIM905
)

# Modules whose types have none of these methods.
_WITHOUT_SUCH_TYPES = frozenset(
    ["torch", "numpy", "einops", "tqdm", "math", "typing_extensions", "jaxtyping", "torchvision"]
)


def _is_int(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    return isinstance(node, ast.Constant) and type(node.value) is int


def _sizes(node: ast.expr) -> bool:
    """An int, or a tuple or list that holds at least one or nothing at all."""
    if isinstance(node, (ast.Tuple, ast.List)):
        return not node.elts or any(_is_int(e) for e in node.elts)
    return _is_int(node)


def _true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, bool)


# What no other owner accepts: NumPy views as types, repeats along one axis, flattens in an order ("C"), sorts by kind,
# reduces into an array or a type (never into True); strings split at strings; modules move with a device, a type and
# one flag; generators draw with probabilities.
_FORMS: Mapping[str, Callable[[list[ast.expr]], bool]] = {
    "view": lambda a: any(map(_sizes, a)) and (len(a) > 1 or not isinstance(a[0], ast.Constant)),
    "split": lambda a: len(a) <= 2 and _sizes(a[0]),
    "flatten": lambda a: all(map(_is_int, a)),
    "select": lambda a: len(a) == 2 and _is_int(a[0]),
    "repeat": lambda a: len(a) > 2,
    "max": lambda a: len(a) == 2 and _is_int(a[0]) and _true(a[1]),
    "min": lambda a: len(a) == 2 and _is_int(a[0]) and _true(a[1]),
    "std": lambda a: _true(a[0]) or (len(a) > 1 and _true(a[1])),
    "var": lambda a: _true(a[0]) or (len(a) > 1 and _true(a[1])),
    "argsort": lambda a: len(a) == 2 and _true(a[1]),
    "multinomial": lambda a: _is_int(a[0]) and (len(a) == 1 or _true(a[1])),
    "to": lambda a: len(a) > 3 or (len(a) == 3 and _true(a[1])),
}
# Elsewhere these write in place and give None: lists and NumPy arrays sort and put, sets add.
_FORMS_WITH_A_VALUE = frozenset({"sort", "put"})

_NO_ARGUMENT = frozenset(
    """
    all any argmax argmin argsort conj diagonal flatten max mean min prod ravel round squeeze sum trace
    """.split()  # noqa: SIM905
)
_ONE_INT = frozenset({"all", "any", "argmax", "argmin", "argsort", "cumprod", "cumsum", "mean", "prod", "sum"})
_TWO = frozenset({"transpose", "swapaxes"})  # two axes of a matrix; NumPy's transpose takes all or none


def form_shows_tensor(node: ast.Call, used: bool, around: Surroundings) -> str:
    """Why the form of `value.name(…)` excludes every other owner of the name, or ""."""
    assert isinstance(node.func, ast.Attribute)
    name = node.func.attr
    if name in around.methods:
        return ""
    plain = not node.keywords or name == "to"
    if name in _FORMS and node.args and plain and _FORMS[name](node.args):
        return f"`.{name}()` takes such arguments only on a tensor"
    if name in _FORMS_WITH_A_VALUE and used:
        return f"`.{name}()` gives a value only on a tensor"
    return ""


def only_torch_in_sight(node: ast.Call, used: bool, around: Surroundings) -> str:
    """Why no type in sight but the tensor has the method, or ""."""
    assert isinstance(node.func, ast.Attribute)
    name = node.func.attr
    if name in _ONLY_TORCH_IN_SIGHT and used and around.closed and name not in around.methods:
        return f"of the types in sight only tensors have `.{name}()`"
    return ""


def same_for_arrays(node: ast.Call) -> bool:
    """Whether `value.name(…)`, as it stands, is a method of JAX's and NumPy's arrays with torch's meaning."""
    if not isinstance(node.func, ast.Attribute):
        return False
    name, args = node.func.attr, node.args
    if node.keywords:
        return name == "round" and not args and [k.arg for k in node.keywords] == ["decimals"]
    if not args:
        return name in _NO_ARGUMENT
    return len(args) == 1 and (name in ("dot", "take") or (name in _ONE_INT and _is_int(args[0])))


def either_array(node: ast.Call, used: bool, around: Surroundings) -> bool:
    """Whether the JAX form of `value.name(…)` is right for a NumPy array too; nothing else in sight has the name."""
    if not isinstance(node.func, ast.Attribute) or node.keywords or not used or not around.closed:
        return False
    name, args = node.func.attr, node.args
    if name in around.methods:
        return False
    return (name in _TWO and len(args) == 2) or (name == "squeeze" and len(args) == 1 and _sizes(args[0]))


def without_such_types(module: str, standard: frozenset[str]) -> bool:
    """Whether importing the top-level `module` brings no type that owns a shared name."""
    return module in _WITHOUT_SUCH_TYPES or (
        module in standard and module not in ("decimal", "fractions", "statistics")
    )
