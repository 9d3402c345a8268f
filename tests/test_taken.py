"""Calls that are rewritten though nothing shows what their receiver is: what they become raises on all but arrays."""

from __future__ import annotations

import ast
import collections.abc
import datetime
import decimal
import fractions
import sys
from functools import cache
from pathlib import Path
from typing import Any

import converted
import numpy as np
import pytest
import rule_env

from jaxmigrate.read.owners import methods_of
from jaxmigrate.read.taken import BY_ATTRIBUTE, TAKEN

# One call of each name at least, on the variables of the rules' cases (rule_env.py).
CALLS = """
x.abs() x.add(y) x.add(y,alpha=2) x.angle() x.arccos() x.arccosh() x.arcsin() x.arcsinh() x.arctan() x.arctanh()
x.ceil() spd.cholesky() sq.cholesky_solve(spd) x.chunk(2) x.clone() x.cos() x.cosh() x.count_nonzero() x.cov()
b3.cross(c3) x.cummax(0) x.cummin(1) x.deg2rad() sq.det() x.detach() v.diag() x.diff() x.dist(y) x.div(y)
x.divide(y) x.div(y,rounding_mode='floor') x.div(y,rounding_mode='trunc') x.eq(y) x.exp() v.expand(3,4)
x.expm1() x.flip(0) x.flip((0,1)) x.floor() a.gcd(b) x.ge(y) x.gt(y) p.histogram(4) v.inner(w) sq.inverse()
a.lcm(b) x.le(y) x.less(y) p.log() p.log10() p.log1p() x.logical_and(y) x.logical_or(y) x.logical_xor(y) x.lt(y)
sq.lu() x.matmul(v) x.maximum(y) x.median() x.median(0) x.minimum(y) a.mode() x.mul(y) x.multiply(y)
x.nanmedian() x.ne(y) x.neg() x.negative() x.norm() x.norm(1) v.outer(w) x3.permute((1,0,2)) p.pow(2) p.pow(y)
sq.qr() x.quantile(0.5) x.rad2deg() x.remainder(p) x.roll(1) x.rot90() x.scatter(0,a%3,y) x.sign() x.sin()
x.sinh() p.sqrt() x.square() x.sub(y) x.sub(y,alpha=2) x.subtract(y) sq.svd() x.tan() x.tanh() x.trunc()
x.unbind() x.where(m,y) x.adjoint() sq.lu_solve(LU,PIV) x.bfloat16() x.bool() x.float() x.half() x.int()
x.size()
""".split()  # noqa: SIM905
LATER = frozenset({"double"})  # float64 needs x64: tests/oracle has it


# A file with such a class is not judged this way; a tensor's shape is its shape; numpy.size() lacks its argument.
APART = ("like anything", "tensor of torch", "NumPy itself")


def _parameters(text: str) -> list[str]:
    used = [n.id for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name)]
    return list(dict.fromkeys([text.partition(".")[0], *used]))


def _functions() -> tuple[str, list[str]]:
    """One function a call, all its names unannotated parameters, the receiver's first."""
    lines, names = ["import torch", ""], []
    for number, text in enumerate(CALLS):
        lines += [f"def call_{number}({', '.join(_parameters(text))}):", f"    return {text}", ""]
        names.append(text)
    return "\n".join(lines), names


SOURCE, NAMES = _functions()


class Labelled:
    """A class of another library: like a pandas Series it has a shape, items, operators and becomes a NumPy array."""

    shape, dtype, ndim, size = (3,), np.dtype("float32"), 1, 3
    __hash__ = None  # type: ignore[assignment]

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.ones(3, np.float32)

    def __add__(self, other: object) -> str:
        return "added"

    __radd__ = __mul__ = __sub__ = __rsub__ = __truediv__ = __pow__ = __lt__ = __gt__ = __matmul__ = __add__
    __eq__ = __add__  # type: ignore[assignment]

    def __neg__(self) -> str:
        return "negative"

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: object) -> float:
        return 1.0

    def __float__(self) -> float:
        return 1.0


class Number:
    """Something that becomes a number when asked."""

    def __float__(self) -> float:
        return 2.0

    def __index__(self) -> int:
        return 2


class Anything:
    """Answers to every name but has no meaning as an array (a file that sees such a class is not judged this way)."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: self


@cache
def others() -> dict[str, Any]:
    """Values of types that are no arrays, each of which may have some of the methods."""
    import networkx
    import scipy.sparse
    import sympy
    import torch

    return {
        "Decimal": decimal.Decimal(2), "Fraction": fractions.Fraction(1, 2), "date": datetime.date(2020, 1, 1),
        "path": Path(), "string": "abc", "bytes": b"abc", "object": object(), "function": len, "class": Number,
        "like a Series": Labelled(), "like a number": Number(), "like anything": Anything(),
        "sympy number": sympy.Float(2.0), "symbol": sympy.Symbol("x"), "sympy matrix": sympy.Matrix([[1, 2], [3, 4]]),
        "graph": networkx.path_graph(3), "sparse": scipy.sparse.csr_matrix(np.eye(3)),
        "torch module": torch.nn.Linear(2, 2), "distribution": torch.distributions.Normal(0.0, 1.0),
        "tensor of torch": torch.ones(3), "NumPy itself": np,
    }  # fmt: skip


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """The converted functions, and the variables of both frameworks."""
    import torch

    done = converted.convert(SOURCE)
    assert not done.left
    values = dict(rule_env.variables())
    values["spd"] = values["sq"] @ values["sq"].T
    values["LU"], values["PIV"] = (t.numpy() for t in torch.linalg.lu_factor(torch.from_numpy(values["sq"])))
    of_torch, of_jax = rule_env.torch_names(values), rule_env.jax_names(values)
    return converted.under_jax(done, tmp_path_factory.mktemp("taken")), of_torch, of_jax


@pytest.mark.parametrize("number", range(len(NAMES)), ids=NAMES)
def test_what_a_call_becomes_equals_torch_and_raises_on_all_else(number: int, program: Any) -> None:
    module, of_torch, of_jax = program
    text = NAMES[number]
    function = getattr(module, f"call_{number}")
    params = _parameters(text)
    wanted, got = eval(text, dict(of_torch)), function(*(of_jax[p] for p in params))
    assert not rule_env.differences(wanted, got)
    rest = [of_jax[p] for p in params[1:]]
    name = text.partition(".")[2].partition("(")[0]
    for what, value in others().items():
        if name in BY_ATTRIBUTE and (what in APART or not callable(getattr(value, name, None))):
            continue  # what an attribute is read of is wrong only for a type that has both names
        with pytest.raises(Exception):  # noqa: B017 (each library has its own)
            pytest.fail(f"{text} of {what} gave {function(value, *rest)!r}")


def test_every_name_is_called_above() -> None:
    called = {text.partition("(")[0].partition(".")[2] for text in CALLS}
    assert called | LATER == TAKEN | BY_ATTRIBUTE


def test_numpy_and_python_have_none_of_the_names() -> None:
    builtin = (int, float, complex, str, bytes, bytearray, list, tuple, dict, set, frozenset, slice, range, memoryview)
    arrays = (np.ndarray, np.matrix, np.ma.MaskedArray, np.recarray, *np.ScalarType)
    owned = {
        (t.__name__, n)
        for t in (*builtin, *arrays, np.random.Generator, np.random.RandomState)
        for n in (TAKEN | BY_ATTRIBUTE) & set(dir(t))
        if callable(getattr(t, n))
    }
    assert owned == {("set", "add")}
    assert set().add(1) is None  # so its value is used nowhere


def test_the_table_of_owners_names_every_type_that_is_loaded() -> None:
    """Of all classes in sight here: the standard library's, and those of the libraries that the tests load."""
    others()
    ours = TAKEN | BY_ATTRIBUTE
    missing = set()
    for name, module in list(sys.modules.items()):
        top = name.partition(".")[0]
        listed = methods_of([top], modules=False)
        if listed is None or top in ("torch", "torchvision", "numpy") or top.startswith("_"):
            continue
        for cls in [c for c in vars(module).values() if isinstance(c, type) and c.__module__.partition(".")[0] == top]:
            found = {n for n in ours & set(vars(cls)) if callable(getattr(cls, n, None))}
            found -= {"add"} if issubclass(cls, collections.abc.Set) else set()
            missing |= {f"{cls.__module__}.{cls.__qualname__}.{n}" for n in found - listed}
    assert not missing


def test_an_unknown_library_may_own_anything() -> None:
    assert methods_of(["torch", "geometry_kit"], modules=False) is None
    assert methods_of(["torch", "unittest"], modules=False) is None


AROUND = "import torch\nfrom PIL import Image\n\n\ndef f(x, n):\n    {}\n    return torch.ones(3)\n"
OTHERS = """
x.sort(key=len); x.sort(reverse=True); x = x.resize((2, 3), Image.BICUBIC); a, b, c = x.step(1); x.split(","); x.split()
"""


@pytest.mark.parametrize("line", [t.strip() for t in OTHERS.replace("\n", " ").split(";")])
def test_a_call_that_no_torch_method_fits_is_no_construct(line: str) -> None:
    done = converted.convert(
        f"import torch\nfrom PIL import Image\n\n\ndef f(x):\n    {line}\n    return torch.ones(3)\n"
    )
    assert not done.left
    assert line in done.text


@pytest.mark.parametrize("line", ["x = x.resize(2, 3)", "x.step(1)", "x.split(n)"])
def test_a_call_that_may_be_torchs_is_reported(line: str) -> None:
    done = converted.convert(
        f"import torch\nfrom PIL import Image\n\n\ndef f(x, n):\n    {line}\n    return torch.ones(3)\n"
    )
    assert [text[:5] for text in done.left] == ["JM201"]
