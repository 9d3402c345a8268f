"""Where the layer file goes in a project, and how files of every depth import it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from jaxmigrate.cli import main

LAYER = """import torch.nn as nn
{imports}

class {name}(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.part = {part}

    def forward(self, x):
        return self.part(x)
"""
PROJECT = {
    "net/__init__.py": "",
    "net/model.py": LAYER.format(imports="from net.blocks.block import Block\n", name="Net", part="Block(d)"),
    "net/blocks/__init__.py": "",
    "net/blocks/block.py": LAYER.format(imports="from .deep import Deep\n", name="Block", part="Deep(d)"),
    "net/blocks/deep/__init__.py": "from .part import Deep\n",
    "net/blocks/deep/part.py": LAYER.format(imports="", name="Deep", part="nn.LayerNorm(d)"),
}
SCRIPT = """import torch
from torch import nn
from net.model import Net

print(nn.Linear(4, 2)(Net(4)(torch.ones(3, 4))).shape)
"""


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def imports(folder: Path) -> dict[str, str]:
    """How each file imports the layer file."""
    found = {}
    for path in sorted(folder.rglob("*.py")):
        if match := re.search(r"^from (\S*)\bnnx_layers import", path.read_text(), re.MULTILINE):
            found[path.relative_to(folder).as_posix()] = match[1]
    return found


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def layer_files(folder: Path) -> list[str]:
    return [p.relative_to(folder).as_posix() for p in folder.rglob("nnx_layers.py")]


def test_a_package_keeps_the_layer_file_inside(here: Path) -> None:
    write(here / "src", PROJECT | {"train.py": SCRIPT, "tests/__init__.py": "", "tests/test_net.py": SCRIPT})
    assert main(["convert", "src", "-o", "out", "--fail-on", "never"]) == 0
    assert layer_files(here / "out") == ["net/nnx_layers.py"]
    assert imports(here / "out") == {
        "net/blocks/deep/part.py": "...",
        "train.py": "net.",
        "tests/test_net.py": "net.",
    }
    env = {**os.environ, "PYTHONPATH": ""}
    done = subprocess.run([sys.executable, "train.py"], cwd=here / "out", env=env, capture_output=True, text=True)
    assert done.stdout == "(3, 2)\n", done.stderr


def test_a_package_below_another_folder(here: Path) -> None:
    write(here / "repo" / "src", PROJECT)
    assert main(["convert", "repo", "-w", "--force"]) == 0
    assert layer_files(here) == ["repo/src/net/nnx_layers.py"]
    assert imports(here) == {"repo/src/net/blocks/deep/part.py": "..."}


def test_the_package_itself_as_input(here: Path) -> None:
    write(here, PROJECT)
    assert main(["convert", "net/blocks", "-o", "out"]) == 0
    assert layer_files(here) == ["out/nnx_layers.py"]
    assert imports(here) == {"out/deep/part.py": ".."}


def test_two_packages_share_one_beside_them(here: Path) -> None:
    write(here / "src", PROJECT | {"other/__init__.py": "", "other/m.py": PROJECT["net/blocks/deep/part.py"]})
    assert main(["convert", "src", "-o", "out"]) == 0
    assert layer_files(here) == ["out/nnx_layers.py"]
    assert imports(here) == {"out/net/blocks/deep/part.py": "", "out/other/m.py": ""}
