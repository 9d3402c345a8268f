"""Which binding a name leads to, and which torch name an expression."""

from __future__ import annotations

import ast
import builtins
import symtable
from pathlib import Path

import pytest

from jaxmigrate.read.scopes import Scopes
from jaxmigrate.read.source import Source, Tree
from jaxmigrate.read.unit import open_unit
from jaxmigrate.rulebook import load_rules

ROOT = Path(__file__).resolve().parents[1]


def resolved(text: str) -> list[str | None]:
    """What the names and attributes called `HERE…` in the text lead to: those that stand as arguments of `see()`."""
    unit = open_unit(Source("m.py", text), load_rules())
    calls = [n for n in unit.tree.all(ast.Call) if isinstance(n.func, ast.Name) and n.func.id == "see"]
    return [unit.resolve(call.args[0]) for call in calls]


LEADS = {
    "plain": ("import torch\nsee(torch.nn.Linear)", ["torch.nn.Linear"]),
    "as": ("import torch.nn as n\nsee(n.Linear)", ["torch.nn.Linear"]),
    "dotted": ("import torch.nn.functional\nsee(torch.nn.functional.relu)", ["torch.nn.functional.relu"]),
    "from": ("from torch.nn import Linear as L\nsee(L)", ["torch.nn.Linear"]),
    "alias": ("import torch\nfn = torch.relu\nsee(fn)", ["torch.relu"]),
    "canonical": ("import torch\nsee(torch.nn.modules.linear.Linear)", ["torch.nn.Linear"]),
    "star": ("from torch.nn import *\nsee(Linear)", ["torch.nn.Linear"]),
    "fallback": ("try:\n    import torch\nexcept ImportError:\n    torch = None\nsee(torch.relu)", ["torch.relu"]),
    "parameter": ("import torch\ndef f(torch):\n    see(torch.relu)\nsee(torch.relu)", [None, "torch.relu"]),
    "default": ("import torch\ndef f(torch=see(torch.relu)): pass", ["torch.relu"]),
    "lambda": ("import torch\nf = lambda torch: see(torch.relu)", [None]),
    "local": ("import torch\ndef f():\n    torch = g()\n    see(torch.relu)", [None]),
    "after use": ("import torch\ndef f():\n    see(torch.relu)\n    torch = g()", [None]),
    "global": ("import torch\ndef f():\n    global torch\n    torch = g()\nsee(torch.relu)", [None]),
    "nonlocal": (
        "import torch\ndef f():\n    x = torch\n    def g():\n        nonlocal x\n        x = 3\n    see(x.relu)",
        [None],
    ),
    "comprehension": ("import torch\ny = [see(torch.relu) for torch in z]\nsee(torch.relu)", [None, "torch.relu"]),
    "its first iterable": ("import torch\ny = [torch for torch in see(torch.relu)]", ["torch.relu"]),
    "class attribute": (
        "import torch\nclass A:\n    torch = 3\n    see(torch.relu)\n    def f(self):\n        see(torch.relu)",
        [None, "torch.relu"],
    ),
    "walrus": ("import torch\nif (torch := 3):\n    see(torch.relu)", [None]),
    "for": ("import torch\nfor torch in z:\n    see(torch.relu)", [None]),
    "with": ("import torch\nwith z as torch:\n    see(torch.relu)", [None]),
    "except": ("import torch\ntry: pass\nexcept E as torch:\n    see(torch.relu)", [None]),
    "match": ("import torch\nmatch z:\n    case [torch, *_]: see(torch.relu)", [None]),
    "del": ("import torch\ndel torch\nsee(torch.relu)", [None]),
    "inner import": ("def f():\n    import torch\n    see(torch.relu)\nsee(torch.relu)", ["torch.relu", None]),
    "two imports": ("if a:\n    import torch\nelse:\n    import numpy as torch\nsee(torch.relu)", [None]),
    "builtin": ("see(len)", ["builtins.len"]),
    "attribute of self": ("class A:\n    def f(self):\n        see(self.torch.relu)", [None]),
    "relative": ("from . import torch\nsee(torch.relu)", [".torch.relu"]),
}


@pytest.mark.parametrize("name", LEADS)
def test_names_lead_where_python_leads_them(name: str) -> None:
    text, expected = LEADS[name]
    assert resolved(text) == expected


FILES = sorted([*(ROOT / "migrate").rglob("*.py"), *(ROOT / "tests/golden").rglob("torch_in.py")])


@pytest.mark.parametrize("path", FILES[::6], ids=lambda p: p.name)
def test_free_names_are_those_of_pythons_own_symbol_tables(path: Path) -> None:
    text = path.read_text(encoding="utf-8").replace("from __future__ import annotations", "")
    scopes = Scopes(Tree(text).root)
    bound = set(scopes.module.bindings)
    unbound = {n.id for n in scopes.free()}
    tables = [symtable.symtable(text, str(path), "exec")]
    free: set[str] = set()
    while tables:
        table = tables.pop()
        tables += table.get_children()
        for symbol in table.get_symbols():
            if symbol.is_referenced() and symbol.is_global() and symbol.get_name() not in bound:
                free.add(symbol.get_name())
            if table.get_type() == "module" and symbol.is_referenced() and not symbol.is_assigned():
                free |= {symbol.get_name()} - bound
    assert unbound == free
    assert unbound <= set(dir(builtins)) | {"__file__", "__name__", "__package__"}


def test_nodes_stand_in_the_order_of_the_text() -> None:
    text = "@d(1)\nclass A(B, m=C):\n    @e\n    def f(self, a=1) -> int:\n        return x if y else z\n"
    tree = Tree(text)
    starts = [tree.start(n) for n in tree.nodes if isinstance(n, (ast.Name, ast.Constant, ast.arg))]
    assert starts == sorted(starts)
    assert list(tree.parents) == tree.nodes[1:]


def test_a_subtree_is_what_ast_walk_gives() -> None:
    tree = Tree(FILES[0].read_text(encoding="utf-8"))
    skipped = (ast.expr_context, ast.operator, ast.boolop, ast.unaryop, ast.cmpop)
    for node in tree.nodes[::17]:
        assert set(tree.walk(node)) == {n for n in ast.walk(node) if not isinstance(n, skipped)}
