"""Functions that another package calls keep their parameters; imports of torch that only functions need move there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from converted import convert, under_jax, under_torch

from jaxmigrate.layers.library.base import load_state_dict
from jaxmigrate.project import convert_files
from jaxmigrate.read.source import Source
from jaxmigrate.rulebook import load_rules

REGISTRY = """
import inspect

ENTRIES = {}

def option(name):
    def add(function):
        assert list(inspect.signature(function).parameters) == ["width"], "the registry calls it with one argument"
        ENTRIES[name] = function
        return function
    return add

def calculate(name, function):
    option(name)(function)
"""

PROGRAM = """
import torch
from torch import nn
from registry_of_parts import calculate, option

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, width)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(torch.tanh(self.fc(x)))

@option("two")
def _two(width):
    return nn.Sequential(Block(width), Block(width))

def _one(width):
    return Block(width)

calculate("one", _one)

@option("noise")
def _noise(width):
    return torch.randn(width)
"""


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "registry_of_parts.py").write_text(REGISTRY, encoding="utf-8")
    sys.path.insert(0, str(tmp_path))
    yield tmp_path
    sys.path.remove(str(tmp_path))
    sys.modules.pop("registry_of_parts", None)


def test_functions_that_another_package_calls_keep_their_parameters(registry: Path) -> None:
    converted = convert(PROGRAM)
    said = [
        f
        for f in converted.findings
        if f.code == "JM121" and ("each call starts" in f.message or "each call draws" in f.message)
    ]
    assert {f.message.partition(" ")[0] for f in said} == {"_two", "_one", "another"}, said
    model = under_torch(PROGRAM)._two(3).eval()
    module = under_jax(converted, registry)
    import registry_of_parts

    twin = registry_of_parts.ENTRIES["two"](3)
    twin.eval()
    assert not np.allclose(twin[0].fc.weight[...], twin[1].fc.weight[...])
    load_state_dict(twin, {k: v.numpy() for k, v in model.state_dict().items()})
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_allclose(twin(jnp.asarray(x)), model(torch.tensor(x)).detach().numpy(), atol=1e-6)
    assert module._noise(3).shape == (3,)


LEFT = """
import torch
import torch.nn as nn
import torch.distributed as dist

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 4)

    def forward(self, x):
        return torch.relu(self.fc(x))

    def gather(self, x):
        \"\"\"From all processes.\"\"\"
        y = x + 1
        # the sum of all
        dist.all_reduce(y)
        return torch.cuda.get_device_properties(0), y

def limits():
    def inner(index):
        return torch.cuda.get_device_properties(index)
    return inner
"""


def test_imports_that_only_functions_need_move_into_them(tmp_path: Path) -> None:
    converted = convert(LEFT)
    assert [f.name for f in converted.findings if f.code == "JM301"] == [
        "torch.distributed.all_reduce",
        "torch.cuda.get_device_properties",
        "torch.cuda.get_device_properties",
    ]
    top = [line for line in converted.text.splitlines() if line.startswith(("import", "from"))]
    assert not any("torch" in line for line in top), top
    assert "        y = x + 1\n        import torch.distributed as dist\n        # the sum of all\n" in converted.text
    assert "    def inner(index):\n        import torch\n" in converted.text
    model = under_torch(LEFT).Net()
    module = under_jax(converted, tmp_path)
    assert not hasattr(module, "torch")
    twin = module.Net(rngs=module.nnx.Rngs(0))
    load_state_dict(twin, {k: v.numpy() for k, v in model.state_dict().items()})
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_allclose(twin(jnp.asarray(x)), model(torch.tensor(x)).detach().numpy(), atol=1e-6)
    assert convert(converted.text).text == converted.text


@pytest.mark.parametrize(
    "needed",
    [
        "LIMIT = torch.cuda.get_device_properties(0)",
        "def other(properties=torch.cuda.get_device_properties(0)):\n    return properties",
        "class Other:\n    properties = torch.cuda.get_device_properties(0)",
        "def other():\n    global torch\n    torch = None",
        "__all__ = ['torch']",
        "def short(): return torch.cuda.get_device_properties(1)",
    ],
)
def test_imports_that_the_module_needs_stay(needed: str) -> None:
    text = convert(f"{LEFT}\n{needed}\n").text
    assert "\nimport torch\n" in text and "\n        import torch" not in text, text


def test_a_star_import_takes_only_what_is_public(tmp_path: Path) -> None:
    files = [Source("pkg/__init__.py", "from .a import *\n"), Source("pkg/a.py", f"__all__ = ['Net']\n{LEFT}")]
    outcomes = {o.path: o.after for o in convert_files(files, load_rules()).outcomes}
    assert "\nimport torch\n" not in outcomes["pkg/a.py"]
    files[1] = Source("pkg/a.py", LEFT)
    outcomes = {o.path: o.after for o in convert_files(files, load_rules()).outcomes}
    assert "\nimport torch\n" in outcomes["pkg/a.py"]
