"""Methods that tensors share with other types: when a call of one still shows a tensor, and when it need not be known.

Three kinds of evidence, each of which a finding states:

* the *form* of the call fits no other owner of the name (`x.split(2)`: strings split at strings; `y = x.sort()`: lists
  sort in place and give None);
* something *beside* the call excludes the other owners: an attribute that they lack, a value that is a tensor and goes
  into the call, what is done with the result;
* the call means the *same* for a NumPy array and for a tensor: it stays as it is where JAX arrays have that method.
  This says nothing of what the receiver is.

None of them holds when a class of the project has a method of that name; what stays as it is needs no proof.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Surroundings:
    """What else could own a method.

    `methods`: names that the project's classes define. `closed`: the file imports torch, NumPy, the standard library
    and files of the project for which the same is true, and nothing else. `arrays`: the project imports a library with
    arrays or matrices of its own, `named_axes`: one whose axes have names. `owned`: names that something within reach
    of the file's values has as an attribute, a class of the project or of a library; None when that cannot be told.
    """

    methods: frozenset[str] = frozenset()
    closed: bool = False
    arrays: bool = False
    named_axes: bool = False
    owned: frozenset[str] | None = None


# Names of tensors' methods that other types have too, by which: they prove nothing alone (`proven_together` does).
_OWNED_ELSEWHERE: Mapping[str, str] = {
    "turtles, lib2to3's nodes, e-mail policies, Decimal, files, matches, tkinter, curses": """
        backward clone detach exp log log10 sqrt expand gather logical_and logical_or logical_xor remainder unbind
        is_signed dist less
    """,
    "SymPy, networkx, PIL": """
        adjoint angle cholesky cholesky_solve cross det diag flip gcd histogram inner inverse lcm lu_solve matmul
        norm outer permute qr rot90 square svd to_dense to_sparse
    """,
    "SciPy's sparse matrices, polars, xarray": """
        arccos arccosh arcsin arcsinh arctan arctanh chunk cos cosh count_nonzero deg2rad expm1 log1p maximum minimum
        neg negative rad2deg roll sin sinh tan tanh trunc
    """,
    "pandas, polars, SQLAlchemy, matplotlib, paths, mailboxes": """
        abs absolute add sub subtract mul multiply div divide pow eq ne ge gt le lt ceil floor sign cov diff mode median
        nanmedian quantile where scatter equal cummax cummin int bool lu
    """,
    "NumPy's arrays, with another meaning": "transpose squeeze",
}
_WEAK = frozenset(name for names in _OWNED_ELSEWHERE.values() for name in names.split())

# Libraries whose objects have a shape, a type of elements and some of these methods.
_ARRAY_LIBRARIES = frozenset(
    "sympy mpmath scipy polars pandas xarray dask cupy tensorflow paddle h5py zarr datasets".split()  # noqa: SIM905
)
# What no other owner of such a name has, read or called; and what arrays of other libraries have too.
_BESIDE = frozenset({"device", "requires_grad", "grad", "is_cuda", "cpu", "cuda", "requires_grad_", "retain_grad"})
_BESIDE_ARRAYS = frozenset({"shape", "dtype", "ndim", "size", "item"})

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


def _axis(node: ast.expr) -> object:
    return ast.literal_eval(node)


def _true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, bool)


# What no other owner accepts: NumPy views as a type and a class, repeats along one axis, flattens in an order ("C"),
# sorts by kind, reduces into an array or a type (never into True) and transposes by all axes, two of them only where
# there are two; its arrays have a number for a size, graphs count with a string; strings split at strings; modules move
# with a device, a type and one flag; generators draw with probabilities.
_FORMS: Mapping[str, Callable[[list[ast.expr]], bool]] = {
    "view": lambda a: len(a) > 2 or (any(map(_sizes, a)) and (len(a) > 1 or not isinstance(a[0], ast.Constant))),
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
    "size": lambda a: len(a) == 1 and _is_int(a[0]),
    "transpose": lambda a: len(a) == 2 and all(map(_is_int, a)) and any(_axis(e) not in (-2, -1, 0, 1) for e in a),
}
# Elsewhere these write in place and give None: lists and NumPy arrays sort and put, sets add.
_FORMS_WITH_A_VALUE = frozenset({"sort", "put"})

_NO_ARGUMENT = frozenset(
    """
    all any argmax argmin argsort conj diagonal flatten max mean min prod ravel round squeeze sum trace
    """.split()  # noqa: SIM905
)
_SAME_KEYWORDS = frozenset({("round", "decimals"), ("diagonal", "offset")})
_ONE_INT = frozenset(
    {"all", "any", "argmax", "argmin", "argsort", "cumprod", "cumsum", "diagonal", "mean", "prod", "sum"}
)


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


def is_weak(node: ast.Call, around: Surroundings) -> bool:
    """Whether types other than the tensor have the method that is called, so that the call proves nothing alone."""
    assert isinstance(node.func, ast.Attribute)
    name, args = node.func.attr, node.args
    if name in around.methods:
        return True
    if name not in _WEAK:
        return False
    ints = [_is_int(a) for a in args]
    if name == "backward":
        return bool(args)  # turtles go a distance
    if name == "expand":  # a match takes one template
        return len(args) < 2 and not any(isinstance(a, ast.Starred) or _sizes(a) for a in args)
    if name == "unbind":  # widgets unbind an event
        return not all(ints)
    if name == "gather":
        return not (ints and ints[0])
    if name in ("norm", "chunk", "roll"):
        return len(args) < 2
    if name == "permute":
        return len(args) < 2 or not all(ints)
    return True


def fits_weak(node: ast.Call) -> bool:
    """Whether the form of the call is torch's: `transpose` with two axes, `squeeze` with an axis, others any."""
    assert isinstance(node.func, ast.Attribute)
    if node.func.attr == "transpose":
        return len(node.args) == 2
    if node.func.attr == "squeeze":
        return len(node.args) == 1 and _sizes(node.args[0])
    return True


def shown_beside(name: str, method: str, around: Surroundings) -> bool:
    """Whether a value with a weak `method` is a tensor since the same code reads or calls `name` of it."""
    if name in around.methods:
        return False
    if name in _BESIDE:
        return True
    if method == "detach" or name == "detach":  # streams and finalizers detach, and have none of the others
        return name != method and (name in _WEAK or name in _BESIDE_ARRAYS)
    return name in _BESIDE_ARRAYS and not around.arrays and method not in ("transpose", "squeeze")


def shown_by_index(method: str, around: Surroundings) -> bool:
    """Whether no other owner of `method` is indexed by a number, a slice or a mask: nodes, policies, turtles, streams
    and numbers are not, matches and widgets are."""
    return method in ("clone", "detach", "exp", "log", "log10", "sqrt") and not around.arrays


def may_give_number(method: str, around: Surroundings) -> bool:
    """Whether something within reach, of a library with arrays of its own, may have the method: what it gives is
    perhaps a number (`series.median()`), and those are combined with tensors."""
    return around.arrays and (around.owned is None or method in around.owned)


def same_for_arrays(node: ast.Call) -> bool:
    """Whether `value.name(…)`, as it stands, is a method of JAX's and NumPy's arrays with torch's meaning."""
    if not isinstance(node.func, ast.Attribute):
        return False
    name, args = node.func.attr, node.args
    if node.keywords:
        return (name, *(k.arg for k in node.keywords)) in _SAME_KEYWORDS and not args
    if not args:
        return name in _NO_ARGUMENT
    return len(args) == 1 and (name in ("dot", "take") or (name in _ONE_INT and _is_int(args[0])))


def swaps_two(node: ast.Call) -> bool:
    """Whether `value.transpose(a, b)` swaps the axes a and b of tensors and of NumPy's arrays alike: those take all
    axes in order, two where there are two, and (1, 0) is the order that swaps them."""
    ints = len(node.args) == 2 and not node.keywords and all(map(_is_int, node.args))
    return ints and [_axis(a) in (1, -1) for a in node.args] == [True, False] and _axis(node.args[1]) in (0, -2)


def with_arrays(module: str) -> bool:
    """Whether the top-level `module` has arrays or matrices of its own, besides NumPy's and torch's."""
    return module in _ARRAY_LIBRARIES


def without_such_types(module: str, standard: frozenset[str]) -> bool:
    """Whether importing the top-level `module` brings no type that owns a shared name."""
    return module in _WITHOUT_SUCH_TYPES or (
        module in standard and module not in ("decimal", "fractions", "statistics")
    )
