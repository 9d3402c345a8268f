"""Marks for TorchScript, torch.fx and torch.compile go."""

from __future__ import annotations

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
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
        torch._C._log_api_usage_once("net")
        torch._assert(x.ndim == 2, f"two, not {x.ndim}")
        torch._assert(message="none is far", condition=(x < 9)
                      .all())
        return rectify(self.first(x)) + self.second(x)
"""


def test_marks_go_with_their_lines(tmp_path: Path) -> None:
    converted = convert(SOURCE)
    assert not converted.left
    gone = [f.name for f in converted.findings if f.code == "JM002" and f.message.startswith("gone")]
    assert sorted(gone) == [
        "torch._C._log_api_usage_once",
        "torch.compiler.disable",
        "torch.fx.wrap",
        "torch.jit.script",
        "torch.jit.unused",
    ]
    assert "    width: int\n" in converted.text
    assert 'assert x.ndim == 2, f"two' in converted.text
    assert 'assert jnp.all(x < 9), "none is far"' in converted.text
    model = under_torch(SOURCE.replace("@torch.jit.script", "@torch.jit.ignore")).Net()  # script reads source files
    module = under_jax(converted, tmp_path)
    twin = module.Net(rngs=module.nnx.Rngs(0))
    load_state_dict(twin, {k: v.numpy() for k, v in model.state_dict().items()})
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_allclose(twin(jnp.asarray(x)), model(torch.tensor(x)).detach().numpy(), atol=1e-6)


def test_comments_of_marks_stay() -> None:
    body = "def f(x: torch.Tensor, n: BroadcastingList2[int]):\n    return x.cos()\n"
    head = "import torch\nfrom torch.jit.annotations import BroadcastingList2\n\n"
    converted = convert(f"{head}@torch.jit.ignore  # eagerly\n{body}")
    assert not converted.left
    assert "\n# eagerly\ndef f(x: jax.Array, n: int | list[int]):\n" in converted.text
    converted = convert(f"{head}@torch.compiler.disable(  # eagerly\n)\n{body}")
    assert [f.code for f in converted.findings if f.name == "torch.compiler.disable"] == ["JM204"]


@pytest.mark.parametrize("name", ["compile", "xpu", "compiler"])
def test_names_that_torch_is_asked_for(name: str, tmp_path: Path) -> None:
    source = f"import torch\n\ndef f(x: torch.Tensor):\n    return x.sin() if hasattr(torch, '{name}') else x.cos()\n"
    converted = convert(source)
    assert hasattr(torch, name) and not converted.left and "if True else" in converted.text, converted.text
    unknown = convert(source.replace(name, "no_such_name"))
    assert [f.code for f in unknown.findings if f.severity == "error"] == ["JM304"]


def test_torch_home_is_where_torch_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "import torch\n\ndef homes():\n    return torch.hub._get_torch_home(), torch.hub.get_dir()\n"
    theirs, ours = under_torch(source), under_jax(convert(source), tmp_path)
    assert ours.homes() == theirs.homes()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert ours.homes() == theirs.homes() == (str(tmp_path / "torch"), str(tmp_path / "torch" / "hub"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    assert ours.homes() == theirs.homes() == (str(tmp_path / "home"), str(tmp_path / "home" / "hub"))
