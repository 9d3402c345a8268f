"""The evidence for what a value is. Unknown stays unknown."""

# ruff: noqa: E501 (one program a line)
from __future__ import annotations

import ast
import itertools

import pytest

from jaxmigrate.read.infer import infer
from jaxmigrate.read.kinds import (
    BOOL,
    FLOAT,
    INT,
    NONE,
    NUMPY,
    OTHER,
    SHAPE,
    STR,
    TENSOR,
    UNKNOWN,
    VARIABLE,
    Kind,
    join,
)
from jaxmigrate.read.project import open_project
from jaxmigrate.read.source import Source
from jaxmigrate.rulebook import load_rules

KINDS = [
    UNKNOWN,
    TENSOR,
    VARIABLE,
    INT,
    FLOAT,
    BOOL,
    STR,
    NONE,
    OTHER,
    SHAPE,
    NUMPY,
    Kind("list", "", (TENSOR,)),
    Kind("dict"),
]
PAIRS = list(itertools.product(KINDS, KINDS))


@pytest.mark.parametrize(("a", "b"), PAIRS, ids=lambda k: k.tag)
def test_join_is_symmetric_and_keeps_what_is_equal(a: Kind, b: Kind) -> None:
    assert join(a, b).tag == join(b, a).tag
    assert join(a, a) == a


@pytest.mark.parametrize("kind", [k for k in KINDS if k.tag != "None"], ids=lambda k: k.tag)
def test_unknown_on_one_path_is_unknown(kind: Kind) -> None:
    assert join(kind, UNKNOWN) == UNKNOWN
    assert join(UNKNOWN, kind) == UNKNOWN


def test_none_on_one_path_is_optional() -> None:
    assert join(NONE, TENSOR) == TENSOR
    assert join(NONE, TENSOR).optional
    assert not TENSOR.optional


def tags(text: str) -> list[str]:
    """The kinds of the first arguments of `see()`."""
    project, errors = open_project([Source("m.py", text)], load_rules())
    assert not errors
    infer(project)
    unit = project.units[0]
    assert not unit.fault
    calls = [n for n in unit.tree.all(ast.Call) if isinstance(n.func, ast.Name) and n.func.id == "see"]
    return [unit.kind(call.args[0]).tag for call in calls]


HEAD = "import torch\nimport numpy as np\nfrom torch import nn\n"
SEEN = {
    "constructor": ("see(torch.ones(3))", "Tensor"),
    "arithmetic": ("see(torch.ones(3) + 1)", "Tensor"),
    "comparison": ("see(torch.ones(3) > 1)", "Tensor"),
    "identity is a bool": ("see(torch.ones(3) is None)", "bool"),
    "shape": ("see(torch.ones(3).shape)", "shape"),
    "size": ("see(torch.ones(3).shape[0])", "int"),
    "annotated": ("def f(x: torch.Tensor): see(x)", "Tensor"),
    "optional": ("from typing import Optional\ndef f(x: Optional[torch.Tensor]): see(x)", "Tensor"),
    "in words": ("def f(x: 'torch.Tensor'): see(x)", "Tensor"),
    "or none": ("def f(x: torch.Tensor | None = None): see(x)", "Tensor"),
    "not annotated": ("def f(x): see(x)", "unknown"),
    "forward": ("class A(nn.Module):\n    def forward(self, x): see(x)", "Tensor"),
    "forward of no module": ("class A:\n    def forward(self, x): see(x)", "unknown"),
    "forward over a list": ("class A(nn.Module):\n    def forward(self, x):\n        for i in x: pass\n        see(x)", "unknown"),
    "forward with a string": ("class A(nn.Module):\n    def forward(self, x):\n        if x == 'a': pass\n        see(x)", "unknown"),
    "viewed by several sizes": ("def f(x, a, b):\n    y = x.view(a, b, a * b)\n    see(x)", "Tensor"),
    "viewed as a type": ("def f(x, a, b):\n    y = x.view(a, b)\n    see(x)", "unknown"),
    "its size unpacked": ("import PIL\ndef f(x):\n    b, c = x.size()\n    see(x)", "Tensor"),
    "called with": ("def f(x): see(x)\nf(torch.ones(3))", "Tensor"),
    "called with two kinds": ("def f(x): see(x)\nf(torch.ones(3))\nf('a')", "unknown"),
    "returned": ("def f(): return torch.ones(3)\nsee(f())", "Tensor"),
    "returned on one path": ("def f(a):\n    if a: return torch.ones(3)\n    return g()\nsee(f(1))", "unknown"),
    "branches": ("if a:\n    x = torch.ones(3)\nelse:\n    x = 'a'\nsee(x)", "unknown"),
    "rebound": ("x = torch.ones(3)\nx = 'a'\nsee(x)", "str"),
    "narrowed": ("def f(x: torch.Tensor | str):\n    if isinstance(x, torch.Tensor): see(x)", "Tensor"),
    "only tensors have it": ("def f(x):\n    x.unsqueeze(0)\n    see(x)", "Tensor"),
    "others have it": ("def f(x):\n    x.split(',')\n    see(x)", "unknown"),
    "split at a number": ("def f(x):\n    y = x.split(2)\n    see(x)", "Tensor"),
    "sorted for its value": ("def f(x):\n    y = x.sort()\n    see(x)", "Tensor"),
    "sorted in place": ("def f(x):\n    x.sort()\n    see(x)", "unknown"),
    "flattened from a dimension": ("def f(x):\n    y = x.flatten(1)\n    see(x)", "Tensor"),
    "flattened in an order": ("def f(x):\n    y = x.flatten('F')\n    see(x)", "unknown"),
    "viewed as a shape": ("def f(x):\n    y = x.view(-1, 3)\n    see(x)", "Tensor"),
    "viewed as something": ("def f(x):\n    y = x.view(3)\n    see(x)", "unknown"),
    "given a type of torch": ("def f(x):\n    y = x.cumsum(0, dtype=torch.float32)\n    see(x)", "Tensor"),
    "moved to a type": ("def f(x):\n    y = x.to(torch.float32)\n    see(x)", "unknown"),
    "paths have it too": ("def f(x):\n    y = x.absolute()\n    see(x)", "unknown"),
    "nodes have it too": ("import lib2to3\ndef f(x):\n    y = x.clone()\n    see(x)", "unknown"),
    "numbers have it too": ("import decimal\ndef f(x):\n    y = x.sqrt() + 1\n    see(x)", "unknown"),
    "called through the class": ("class A:\n    @staticmethod\n    def s(x):\n        see(x)\nA.s(torch.ones(2))", "Tensor"),
    "called through its own class": ("class A:\n    @staticmethod\n    def s(x):\n        see(x)\n    @classmethod\n    def c(cls, y):\n        cls.s(y)\nA.c(torch.ones(2))", "Tensor"),
    "calls itself": ("def f(x, n):\n    see(x)\n    if n:\n        f(-x[1:] * n, n - 1)\nf(torch.ones(2), 1)", "Tensor"),
    "calls itself with something else": ("def f(x, n):\n    see(x)\n    if n:\n        f(load(x), n - 1)\nf(torch.ones(2), 1)", "unknown"),
    "calls itself with another's": ("def f(x, y):\n    see(x)\n    f(y, x)\nf(torch.ones(2), load())", "unknown"),
    "calls itself with what it became": ("def f(x, n):\n    see(x)\n    x = load(x)\n    f(x, n)\nf(torch.ones(2), 1)", "unknown"),
    "a pair": ("def f(x):\n    y = x.max(1).indices\n    see(x)", "Tensor"),
    "a frame's values": ("import pandas\ndef f(x):\n    y = x.max(1).values\n    see(x)", "unknown"),
    "an array's maximum": ("def f(x):\n    y = x.max(1)\n    see(x)", "unknown"),
    "the values of a dict": ("def f(x):\n    y = x.max(1).values()\n    see(x)", "unknown"),
    "jnp.sqrt has not raised": ("def f(x):\n    y = x.sqrt() + 1\n    see(x)", "Tensor"),
    "jnp.sqrt has not run yet": ("def f(x):\n    see(x)\n    y = x.sqrt() + 1", "unknown"),
    "jnp.sqrt has run perhaps": ("def f(x, b):\n    if b:\n        y = x.sqrt()\n    see(x)", "unknown"),
    "jnp.sqrt has run in no round perhaps": ("def f(x, b):\n    while b:\n        y = x.sqrt()\n    see(x)", "unknown"),
    "jnp.sqrt may have been caught": ("def f(x):\n    try:\n        y = x.sqrt()\n    except Exception:\n        pass\n    see(x)", "unknown"),
    "jnp.sqrt took what it was before": ("def f(x, z):\n    y = x.sqrt()\n    x = z\n    see(x)", "unknown"),
    "matches have it too": ("def f(x, t):\n    y = x.expand(t)\n    see(x)", "unknown"),
    "expanded to sizes": ("def f(x):\n    y = x.expand(-1, 3)\n    see(x)", "Tensor"),
    "turtles go back": ("def f(x):\n    x.backward(100)\n    see(x)", "unknown"),
    "arrays transpose too": ("def f(x):\n    y = x.transpose(0, 1) + x.shape[0]\n    see(x)", "unknown"),
    "an operator's method": ("def f(x, y):\n    z = x.add(y)\n    see(x)", "Tensor"),
    "an operator's method, SymPy in sight": ("import sympy\ndef f(x, y):\n    z = x.add(y)\n    see(x)", "unknown"),
    "with a tensor": ("def f(x, y):\n    z = x.add(y.unsqueeze(0))\n    see(x)", "Tensor"),
    "and a shape": ("def f(x):\n    y = x.clone()\n    n = x.shape[0]\n    see(x)", "Tensor"),
    "and a shape, SymPy in sight": ("import sympy\ndef f(x):\n    y = x.det()\n    n = x.shape\n    see(x)", "unknown"),
    "and a device": ("def f(x):\n    y = x.clone()\n    d = x.device\n    see(x)", "Tensor"),
    "cloned and written to": ("def f(x):\n    y = x.clone()\n    y[:, 0] = 1\n    see(x)", "Tensor"),
    "cloned by its own name": ("def f(x):\n    x = x.clone()\n    x[0] = 1\n    see(x)", "Tensor"),
    "cloned, keyed by a string": ("def f(x):\n    y = x.clone()\n    y['a'] = 1\n    see(x)", "unknown"),
    "detached and cloned": ("def f(x):\n    y = x.detach().clone()\n    see(x)", "Tensor"),
    "combined with a tensor": ("def f(x):\n    y = torch.ones(3) * x.sqrt()\n    see(x)", "Tensor"),
    "handed to torch": ("def f(x):\n    y = torch.relu(x.sqrt())\n    see(x)", "Tensor"),
    "an input of a module": ("class A(nn.Module):\n    def forward(self, x, *r):\n        y = x.clone()\n        for i in x: pass\n"
                             "        see(x)", "Tensor"),
    "a set's method": ("def f(x, y):\n    x.add(y)\n    see(x)", "unknown"),
    "pandas in sight": ("import pandas as pd\ndef f(x):\n    y = x.abs()\n    see(x)", "unknown"),
    "an own class in sight": ("class A:\n    def abs(self): return 3\ndef f(x):\n    y = x.abs()\n    see(x)", "unknown"),
    "the same of any array": ("def f(x):\n    y = x.sum(0)\n    see(x)", "unknown"),
    "adjoint": ("def f(x):\n    y = x.mH\n    see(x)", "Tensor"),
    "numpy": ("see(np.ones(3))", "numpy"),
    "numpy method": ("see(np.ones(3).sum())", "numpy"),
    "string": ("see('a'.split('b'))", "list"),
    "list of": ("xs = [torch.ones(3)]\nsee(xs[0])", "Tensor"),
    "mixed list": ("xs = [torch.ones(3), 'a']\nsee(xs[0])", "unknown"),
    "dict of": ("d = {'a': torch.ones(3)}\nsee(d['a'])", "Tensor"),
    "unpacked": ("a, b = torch.ones(3), 3\nsee(b)", "int"),
    "attribute": ("class A(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.a = nn.Linear(3, 3)\n"
                  "    def forward(self, x): see(self.a)", "Module"),
    "parameter": ("class A(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.a = nn.Parameter(torch.ones(3))\n"
                  "    def forward(self, x): see(self.a)", "Variable"),
    "unknown import": ("import pandas as pd\nsee(pd.read_csv('a').mean())", "unknown"),
    "unknown call": ("see(g())", "unknown"),
    "own name": ("def f(torch): see(torch.ones(3))", "unknown"),
    "jax": ("import jax.numpy as jnp\nsee(jnp.ones(3))", "numpy"),
}  # fmt: skip


@pytest.mark.parametrize("name", SEEN)
def test_kinds_have_evidence_or_are_unknown(name: str) -> None:
    text, tag = SEEN[name]
    assert tags(HEAD + text + "\n") == [tag]


def test_kinds_travel_between_files() -> None:
    sources = [
        Source("a.py", "import torch\nfrom b import g\n\n\ndef f():\n    return g(torch.ones(3))\n"),
        Source("b.py", "def g(x):\n    return x\n\n\ndef h(x):\n    return x\n"),
        Source("c.py", "from a import f\n\ny = f()\n"),
    ]
    project, _ = open_project(sources, load_rules())
    infer(project)
    of = {(u.source.path, n.id): u.kind(n).tag for u in project.units for n in u.tree.all(ast.Name)}
    assert of["c.py", "y"] == "Tensor"
    functions = {f.name: f for u in project.units for f in u.functions.values()}
    assert functions["g"].params["x"].tag == "Tensor"
    assert "x" not in functions["h"].params


def test_a_list_that_holds_itself_does_not_hang() -> None:
    assert tags("import torch\nx = [torch.ones(3)]\nfor i in range(9):\n    x = [x, [x]]\nsee(x)\n") == ["list"]
