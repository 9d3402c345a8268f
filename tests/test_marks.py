"""Marks for TorchScript, torch.fx and torch.compile go."""

from __future__ import annotations

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import torch
from converted import convert, under_jax, under_torch

from jaxmigrate.layers.library.base import load_state_dict

SOURCE = """
import torch
import torch.nn as nn

torch.fx.wrap("rectify")

@torch.jit.script
def rectify(x):
    return torch.clamp(x, min=0.)

class Net(nn.Module):
    width: torch.jit.Final[int]

    def __init__(self):
        super().__init__()
        self.width = 3
        self.fc = nn.Linear(3, 3)

    @torch.jit.unused
    def first(self, x: torch.Tensor):
        return self.fc(x)

    @staticmethod
    @torch.compiler.disable()
    def second(x: torch.Tensor):
        return x.cos()

    def forward(self, x):
        return rectify(self.first(x)) + self.second(x)
"""


def test_marks_go_with_their_lines(tmp_path: Path) -> None:
    converted = convert(SOURCE)
    assert not converted.left
    gone = [f.name for f in converted.findings if f.code == "JM002" and f.message.startswith("gone")]
    assert sorted(gone) == ["torch.compiler.disable", "torch.fx.wrap", "torch.jit.script", "torch.jit.unused"]
    assert "    width: int\n" in converted.text
    model = under_torch(SOURCE.replace("@torch.jit.script", "@torch.jit.ignore")).Net()  # script reads source files
    module = under_jax(converted, tmp_path)
    twin = module.Net(rngs=module.nnx.Rngs(0))
    load_state_dict(twin, {k: v.numpy() for k, v in model.state_dict().items()})
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_allclose(twin(jnp.asarray(x)), model(torch.tensor(x)).detach().numpy(), atol=1e-6)


def test_a_mark_with_a_comment_stays() -> None:
    converted = convert("import torch\n\n@torch.jit.ignore  # eagerly\ndef f(x: torch.Tensor):\n    return x.cos()\n")
    assert [f.code for f in converted.findings if f.name == "torch.jit.ignore"] == ["JM204"]
    assert "@torch.jit.ignore  # eagerly" in converted.text
