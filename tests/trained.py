"""The networks of training programs, and a program beside its conversion with equal weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch
from converted import Converted, arrays, convert, under_jax, under_torch
from flax import nnx

from jaxmigrate.layers.library.base import load_state_dict, state_dict

torch.set_num_threads(1)
TOLERANCE = 2e-5

NORMED = """
import torch
from torch import nn, optim
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 5, bias=False)
        self.norm = nn.BatchNorm1d(5)
        self.last = nn.Linear(5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.norm(self.first(x))))

"""
PLAIN = """import torch
import torch.nn as nn
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(4, 8)
        self.fc2 = nn.Linear(8, 3)

    def forward(self, x):
        return self.fc2(torch.tanh(self.fc1(x)))


"""


def data(steps: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """Batches for NORMED."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(steps, 8, 3)).astype(np.float32), rng.integers(0, 2, (steps, 8))


def batch(*shape: int) -> tuple[np.ndarray, np.ndarray]:
    """Samples and classes for PLAIN."""
    rng = np.random.default_rng(5)
    return rng.random((*shape, 4), np.float32), rng.integers(0, 3, shape)


def close(ours: Any, theirs: Any) -> None:
    np.testing.assert_allclose(
        np.asarray(ours, np.float64), np.asarray(theirs, np.float64), rtol=TOLERANCE, atol=TOLERANCE
    )


def load(twin: Any, model: Any) -> None:
    """Give our model the values of torch's; ours counts no batches."""
    state = arrays(model.state_dict())
    kept = {k: v for k, v in state.items() if "num_batches" not in k}
    load_state_dict(twin, kept, strict=len(kept) == len(state))


def both(source: str, folder: Path) -> tuple[Converted, Any, Any, Any, Any]:
    """(conversion, torch program, JAX program, torch model, JAX model) with equal weights."""
    converted = convert(source)
    assert converted.status == "changed" and not converted.left, converted.left
    theirs, ours = under_torch(source), under_jax(converted, folder)
    torch.manual_seed(0)
    model, twin = theirs.Net(), ours.Net(rngs=nnx.Rngs(0))
    load(twin, model)
    return converted, theirs, ours, model, twin


def same_weights(
    twin: Any,
    model: Any,
    start: dict[str, np.ndarray] | None = None,
    *,
    rtol: float = TOLERANCE,
    atol: float = TOLERANCE,
) -> None:
    """Parameters and buffers agree; where `start` is given, training has moved them."""
    ours, theirs = state_dict(twin), arrays(model.state_dict())
    names = [n for n in theirs if "num_batches" not in n]
    if start is not None:
        assert max(float(np.abs(theirs[n] - start[n]).max()) for n in names if "running" not in n) > 1e-3
    for name in names:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=rtol, atol=atol, err_msg=name)


def trains_alike(source: str, folder: Path, name: str, shape: tuple[int, ...], *, atol: float = 0.0) -> str:
    """Run `name(model, x, y)` of a program with PLAIN in both forms: equal results and weights. Gives the text."""
    converted, theirs, ours, model, twin = both(source, folder)
    x, y = batch(*shape)
    want = getattr(theirs, name)(model, torch.tensor(x), torch.tensor(y))
    got = getattr(ours, name)(twin, jnp.array(x), jnp.array(y))
    want = want.detach().numpy() if isinstance(want, torch.Tensor) else want
    np.testing.assert_allclose(np.asarray(got), want, rtol=2e-5, atol=atol)
    same_weights(twin, model, rtol=2e-4, atol=2e-6)
    return converted.text
