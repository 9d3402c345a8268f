"""`module.half()` and its like: the types of all floating-point variables, and what the layers then compute."""

from __future__ import annotations

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from converted import arrays, convert, under_jax, under_torch
from flax import nnx

from jaxmigrate.layers.library.base import load_state_dict, state_dict

SOURCE = """import torch
import torch.nn as nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(3, 4, 3)
        self.norm = nn.BatchNorm1d(4)
        self.last = nn.Linear(6, 2)

    def forward(self, x):
        return self.last(torch.relu(self.norm(self.conv(x))))


def run(net: Net, x: torch.Tensor):
    net.CAST()
    net.eval()
    return net(x)
"""


@pytest.mark.parametrize(("cast", "dtype", "close"), [("half", "float16", 5e-3), ("bfloat16", "bfloat16", 4e-2)])
def test_a_module_in_another_type(cast: str, dtype: str, close: float, tmp_path: Path) -> None:
    source = SOURCE.replace("CAST", cast)
    converted = convert(source)
    assert converted.left == []
    theirs, ours = under_torch(source), under_jax(converted, tmp_path)
    torch.manual_seed(0)
    net, twin = theirs.Net(), ours.Net(rngs=nnx.Rngs(0))
    load_state_dict(twin, {k: v for k, v in arrays(net.state_dict()).items() if "num_batches" not in k}, strict=False)
    x = np.random.default_rng(0).standard_normal((2, 3, 8)).astype(np.float32)
    want = theirs.run(net, torch.tensor(x).to(getattr(torch, dtype)))
    got = ours.run(twin, jnp.asarray(x, dtype))
    assert {str(v.dtype) for k, v in state_dict(twin).items() if "num_batches" not in k} == {dtype}
    assert str(got.dtype) == dtype == str(want.dtype).removeprefix("torch.")
    np.testing.assert_allclose(np.asarray(got, np.float32), want.detach().float().numpy(), atol=close, rtol=close)
