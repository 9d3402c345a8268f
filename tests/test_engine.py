"""One file through the engine: bytes, encodings, comments, f-strings, residue, second runs."""

# ruff: noqa: E501 (one program a line)
from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter

import pytest

from jaxmigrate.config import Settings
from jaxmigrate.files import decode
from jaxmigrate.project import convert_files
from jaxmigrate.read.source import Source, Tree
from jaxmigrate.report.findings import Outcome, fate
from jaxmigrate.rulebook import load_rules

HEAD = "import torch\nfrom torch import nn\n\n\n"
FULL = Settings(todo=True)


def convert(text: str, **fields: object) -> Outcome:
    return convert_files([Source("m.py", text, **fields)], load_rules(), FULL).outcomes[0]  # type: ignore[arg-type]


def codes(outcome: Outcome) -> list[str]:
    return [f.code for f in outcome.findings]


PROGRAMS = {
    "one-line suites": "def f(a, x: torch.Tensor):\n    if a: x = torch.relu(x)\n    else: x = x.sum(dim=1)\n    return x\n",
    "one-line class": "class A(nn.Module): pass\n",
    "one-line forward": "class A(nn.Module):\n    def forward(self, x): return torch.tanh(x)  # why\n",
    "semicolons": "def f(x: torch.Tensor):\n    y = x.sum(); z = torch.relu(y); return y, z\n",
    "import and more": "import torch; import os\n\n\ndef f(x: torch.Tensor):\n    return torch.relu(x), os.sep\n",
    "decorators": "@torch.no_grad()\ndef f(x: torch.Tensor):\n    return torch.relu(x)\n",
    "walrus": "def f(x: torch.Tensor):\n    if (y := torch.relu(x)).sum() > 0: return y\n    return x\n",
    "match": "def f(x: torch.Tensor, k):\n    match k:\n        case 'a': return torch.relu(x)\n        case _: return x\n",
    "async": "async def f(x: torch.Tensor):\n    return torch.relu(await g(x))\n\n\nasync def g(x): return x\n",
    "lambda defaults": "f = lambda x, y=torch.zeros(3): torch.relu(x) + y\n",
    "conditional import": "try:\n    import torch\nexcept ImportError:\n    torch = None\n\n\ndef f():\n    return torch.ones(3)\n",
    "inner import": "def f():\n    import torch\n    import torch.nn.functional as F\n    return F.relu(torch.ones(3))\n",
    "future": '"""Doc."""\n\nfrom __future__ import annotations\n\nimport torch\n\nx = torch.ones(3)\n',
    "type checking": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\n\n\ndef f(x: 'torch.Tensor'): return x\n",
    "elif draws": "def f(x: torch.Tensor):\n    if x is None:\n        return 0\n    elif torch.rand(3).sum() > 1:\n        return 1\n",
    "comments in a list that is opened": "y = torch.ones(2, 3).sum([  # a\n    0,  # b\n])\n",
    "comments in lists": "a = torch.arange(3)\ng = torch.meshgrid([\n    a,  # a\n    a,\n], indexing='ij')\n",
    "comments": "x = torch.cat([  # a\n    torch.ones(3),  # b\n    # c\n    torch.zeros(3),\n], dim=0)  # d\n",
    "backslash": "x = torch.ones(3) + \\\n    torch.zeros(3)\n",
    "string tower": 'x = torch.ones(3)\ny = ("a"  # not # one\n     "b#c")\n',
    "starred": "def f(xs, x: torch.Tensor):\n    return torch.meshgrid(*(torch.arange(n) for n in xs), indexing='ij')\n",
    "new and init": "class A(nn.Module):\n    def __new__(cls, n):\n        nn.Linear(n, n)\n        return super().__new__(cls)\n"
    "    def __init__(self, n):\n        super().__init__()\n        self.a = nn.Linear(n, n)\n",
    "device stays": "def f(x: torch.Tensor):\n    device = x.device\n    return torch.FloatTensor((3, 1), device=device).uniform_()\n",
    "global": "total = torch.zeros(3)\n\n\ndef f():\n    global total\n    total = total + torch.ones(3)\n",
    "del": "def f():\n    x = torch.ones(3)\n    del x\n",
    "deep": "x = " + "(" * 60 + "torch.ones(3)" + ")" * 60 + "\n",
    "long chain": "x = torch.ones(3)" + " + 1" * 400 + "\n",
    "empty args": "def f(): return torch.rand(3)\n\n\ndef g(): return f()\n",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_any_program_gives_python_and_a_second_run_changes_nothing(name: str) -> None:
    program = PROGRAMS[name]
    text = program if "import torch" in program else HEAD + program
    first = convert(text)
    assert not [f for f in first.findings if f.code.startswith("JM9")], first.findings
    assert first.status == "changed"
    compile(first.after, "m.py", "exec")
    lost = comments(text) - comments(first.after)
    gained = [c for c in comments(first.after) - comments(text) if not c.startswith("# TODO(jaxmigrate ")]
    assert not lost
    assert not gained
    assert convert(first.after).after == first.after


def comments(text: str) -> Counter[str]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return Counter(t.string for t in tokens if t.type == tokenize.COMMENT)


ODD = "import torch\n\n\ndef f( x:torch.Tensor ) :\n\ty=x .sum ( )  ;  z = {1:2 ,3 : 4}\n\treturn   y,z   # end  \n\x0c\n\n\nX   =  [1,\n2]"


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_what_is_not_touched_keeps_its_bytes(newline: str) -> None:
    text = ODD.replace("\n", newline)
    after = convert(text).after
    assert (
        f"z = {{1:2 ,3 : 4}}{newline}\treturn   y,z   # end  {newline}\x0c{newline}{newline}{newline}X   =  [1,{newline}2]"
        in after
    )
    assert after.endswith("2]")
    if newline != "\n":
        assert "\n" not in after.replace("\r\n", "")


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_encodings_and_byte_order_marks_survive(encoding: str, mark: bytes) -> None:
    if mark and encoding != "utf-8":
        pytest.skip("a BOM means UTF-8")
    text = f"# -*- coding: {encoding} -*-\r\n# Größe é\r\nimport torch\r\nx = torch.ones(3)  # ß\r\n"
    data = mark + text.encode(encoding)
    outcome = convert_files([decode("m.py", data)], load_rules(), FULL).outcomes[0]
    assert outcome.status == "changed"
    written = outcome.encoded()
    assert written.startswith(mark)
    assert "# Größe é\r\n".encode(encoding) in written
    assert "jnp.ones((3,))  # ß\r\n".encode(encoding) in written


def test_files_without_torch_are_skipped() -> None:
    for text in (
        '"""Only a docstring."""\n',
        "",
        "x = 1",
        "# TODO(jaxmigrate JM301): torch.x has no counterpart\nx = 1\n",
    ):
        outcome = convert(text)
        assert (outcome.status, outcome.after) == ("skipped", text)


def test_the_layer_file_is_no_input() -> None:
    source = Source("out/nnx_layers.py", "import torch\nx = torch.ones(3)\n")
    assert convert_files([source], load_rules()).outcomes[0].status == "skipped"


def test_source_that_does_not_parse_is_jm901() -> None:
    outcome = convert("import torch\nx = (\n")
    assert codes(outcome) == ["JM901"]
    assert outcome.after == outcome.before


RESIDUE = {
    "unknown name": ("x = torch.no_such_name\n", "JM302"),
    "deleted": ("del torch\n", "JM304"),
    "written to": ("torch.foo = 3\n", "JM3"),
    "by string": ("__all__ = ['torch']\n", "JM304"),
    "assigned twice": ("def f(a):\n    if a:\n        import numpy as torch\n    return torch.ones(3)\n", ""),
}


@pytest.mark.parametrize("name", RESIDUE)
def test_torch_that_is_left_is_reported(name: str) -> None:
    text, code = RESIDUE[name]
    outcome = convert("import torch\n" + text)
    left = "import torch" in outcome.after
    told = [c for c in codes(outcome) if fate(c) in ("left", "unmapped")]
    assert not [c for c in codes(outcome) if c.startswith("JM9")]
    assert bool(told) == left
    assert not told or told[0].startswith(code)


FSTRINGS = [
    ('f"{torch.relu(x)}"', 'f"{jax.nn.relu(x)}"'),
    ("f'{x.sum(dim=1):>{w}} {{x}} {x!r}'", "f'{jnp.sum(x, axis=1):>{w}} {{x}} {x!r}'"),
    ('f"""{torch.relu(\n    x)}""" f\'{torch.tanh(x)}\'', 'f"""{jax.nn.relu(\n    x)}""" f\'{jnp.tanh(x)}\''),
    ("rf'\\d{torch.relu(x)}'", "rf'\\d{jax.nn.relu(x)}'"),
    ("f'é{torch.relu(x)} ü {torch.tanh(x)}'", "f'é{jax.nn.relu(x)} ü {jnp.tanh(x)}'"),
    ("""f"{'/'.join(f'{torch.relu(v)}' for v in [x])}\"""", """f"{'/'.join(f'{jax.nn.relu(v)}' for v in [x])}\""""),
    ("f\"{torch.device('cpu')}\"", "f\"{jax.devices('cpu')[0]}\""),
    ("f'{torch.device(\"cpu\")}'", "f'{jax.devices(\"cpu\")[0]}'"),
]


@pytest.mark.parametrize(("before", "after"), FSTRINGS)
def test_expressions_in_fstrings(before: str, after: str) -> None:
    outcome = convert(f"import torch\n\n\ndef f(x: torch.Tensor, w):\n    return {before}\n")
    assert outcome.after.endswith(f"    return {after}\n"), outcome.after


@pytest.mark.parametrize("text", ["f'{torch.sum(x)=}'", "f'{x.sum() = :.3f}'", 'f"{torch.device(\'cpu\')}" "x"'])
def test_fstrings_that_cannot_be_edited_are_left_and_reported(text: str) -> None:
    outcome = convert(f"import torch\n\n\ndef f(x: torch.Tensor):\n    return {text}\n")
    assert f"    return {text}\n" in outcome.after
    assert "JM203" in codes(outcome)


def test_positions_inside_fstrings_are_true() -> None:
    text = 'x = f\'é {a + b!r:>{w}} {c("d")}\' f"{e}"\n'
    tree = Tree(text)
    names = {n.id: tree.segment(n) for n in tree.all(ast.Name) if n.id in "abce"}
    assert names == {"a": "a", "b": "b", "c": "c", "e": "e"}


def test_comments_are_found_with_and_without_tokens() -> None:
    text = "a = '#'  # one\nb = \"\"\"\n# no\n\"\"\"  # two\nc = ('x'  # three\n     '#y')\n#four"
    assert [text[a:b] for a, b in Tree(text).comments] == ["# one", "# two", "# three", "#four"]
    plain = "a = '#'  # one\r\n#two\r\nb = f'{a}#'#three"
    assert [plain[a:b] for a, b in Tree(plain).comments] == ["# one", "#two", "#three"]


def test_one_comment_a_finding_and_none_the_second_time() -> None:
    text = "import torch\n\n\ndef f(x: torch.Tensor):\n    return torch.no_such_name(x)\n"
    first = convert(text)
    assert first.after.count("# TODO(jaxmigrate JM302)") == 1
    second = convert(first.after)
    assert second.after == first.after
    assert "JM302" in codes(second)


def test_keywords_are_not_given_twice() -> None:
    text = HEAD + (
        "class A(nn.Module):\n    def __init__(self, layer):\n        super().__init__()\n        self.a = nn.Linear(3, 3)\n"
        "        self.b = layer(3)\n        torch.no_such_name(3)\n"
    )
    first = convert(text)
    assert convert(first.after).after == first.after


def test_a_file_without_torch_that_is_handed_tensors_is_converted() -> None:
    sources = [
        Source("p/__init__.py", ""),
        Source("p/a.py", "import torch\nfrom .b import tail\n\ny = tail(torch.ones(2, 3, 4))\n"),
        Source("p/b.py", "def tail(x):\n    return x.view(x.size(0), -1)\n"),
        Source("p/c.py", "def tail(x):\n    return x.view(x.size(0), -1)\n"),
    ]
    outcomes = {o.path: o for o in convert_files(sources, load_rules()).outcomes}
    assert outcomes["p/b.py"].after == "def tail(x):\n    return x.reshape(x.shape[0], -1)\n"
    assert outcomes["p/c.py"].status == "skipped"


def test_the_same_model_for_another_framework_is_skipped() -> None:
    cell = "class Cell:\n    def step(self):\n        return self.state.std(0)\n"
    sources = [
        Source("p/__init__.py", ""),
        Source("p/torch_cell.py", "import torch\n\n" + cell),
        Source("p/tf_cell.py", "import tensorflow as tf\n\n" + cell),
        Source("p/paddle_cell.py", "from paddle import nn\n\n" + cell),
        Source("p/cell.py", "import numpy as np\n\n" + cell),
    ]
    outcomes = {o.path: o for o in convert_files(sources, load_rules()).outcomes}
    assert {f.code for name in ("cell", "torch_cell") for f in outcomes[f"p/{name}.py"].findings} == {"JM201"}
    assert outcomes["p/cell.py"].findings
    assert {outcomes[f"p/{name}_cell.py"].status for name in ("tf", "paddle")} == {"skipped"}


WIDE = """import numpy as np
import torch


def f(x: torch.Tensor):
    return x.double() + torch.from_numpy(np.eye(3)) + torch.iinfo(torch.int64).max + x.long() * 6364136223846793005
"""


def test_64_bit_types_that_nothing_switches_on_are_stated() -> None:
    """`--x64 on` says that they are on: a program switches them on, of other files the report says what counts on it."""
    settings = Settings(x64="on")
    (alone,) = convert_files([Source("a.py", WIDE)], load_rules(), settings).outcomes
    assert "x.astype(jnp.int64)" in alone.after and "jax_enable_x64" not in alone.after
    stated = {f.name: f.message for f in alone.findings if f.code == "JM111"}
    assert set(stated) == {"torch.Tensor.double", "torch.from_numpy", "torch.iinfo", "torch.int64"}
    assert all("which no program in this run switches on" in m for m in stated.values())
    assert "JAX copies" in stated["torch.from_numpy"]
    program = Source("main.py", "import torch\nfrom a import f\n\nif __name__ == '__main__':\n    f(torch.ones(3))\n")
    both = convert_files([Source("a.py", WIDE), program], load_rules(), settings).outcomes
    assert "jax_enable_x64" in both[1].after
    assert not [f for f in both[0].findings if "switches on" in f.message]
