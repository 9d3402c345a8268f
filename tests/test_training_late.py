"""What prints, counts or leaves the loop between forward and backward follows the gradient, or the step is left."""

from __future__ import annotations

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from converted import arrays, convert, under_jax, under_torch
from flax import nnx

from jaxmigrate.layers.library.base import load_state_dict

SOURCE = """import torch
import torch.nn as nn
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(4, 8)
        self.fc2 = nn.Linear(8, 3)

    def forward(self, x):
        return F.log_softmax(self.fc2(torch.tanh(self.fc1(x))), dim=1)


def train(model: Net, x: torch.Tensor, y: torch.Tensor):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(5):
        optimizer.zero_grad()
        output = model(x)
        BETWEEN
        loss = F.nll_loss(output, y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
"""
FOLLOWS = {
    "prints": "print(step, output.shape)  # the shape",
    "collects": "losses.append(output.mean().item())",
    "goes on": "if step == 2:\n            losses.append(output.max().item())\n            continue",
    "leaves": "hit = (output.argmax(1) == y).sum()\n        if hit.item() > 5:\n            break",
}
LEFT = {
    "changes the model": "model.eval()",
    "is not known": "look(output)",
    "changes what the loss reads": "y.add_(1) if step else None",
    "leaves before another module runs": "if step == 2:\n            continue\n        output = output + model(x)",
}


@pytest.mark.parametrize("name", FOLLOWS)
def test_it_follows_the_gradient(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = SOURCE.replace("BETWEEN", FOLLOWS[name])
    converted = convert(source)
    assert converted.left == []
    assert "# the shape" in converted.text or name != "prints"
    original, ours = under_torch(source), under_jax(converted, tmp_path)
    model, twin = original.Net(), ours.Net(rngs=nnx.Rngs(0))
    load_state_dict(twin, arrays(model.state_dict()))
    rng = np.random.default_rng(5)
    x, y = rng.random((6, 4), np.float32), rng.integers(0, 3, 6)
    want = original.train(model, torch.tensor(x), torch.tensor(y))
    said = capsys.readouterr().out
    np.testing.assert_allclose(ours.train(twin, jnp.array(x), jnp.array(y)), want, rtol=2e-5)
    assert capsys.readouterr().out == said.replace("torch.Size([6, 3])", "(6, 3)")


@pytest.mark.parametrize("name", LEFT)
def test_the_step_is_left(name: str) -> None:
    converted = convert(SOURCE.replace("BETWEEN", LEFT[name]))
    assert any("JM208 training step left" in line for line in converted.left)
