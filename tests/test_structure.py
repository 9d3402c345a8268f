"""Models that hold and name their parts in every usual way: the same numbers as torch, and the same state_dict."""

from __future__ import annotations

import inspect
import sys
import types
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from converted import arrays, convert, with_layers
from flax import nnx
from structures import EQUAL, HEAD, INPUTS, REPORTED

INITIALISED = ("isinstance_init", "apply_fn", "classname_init")


def original(source: str) -> types.ModuleType:
    """The program as a module, which dataclasses look up by its name."""
    module = sys.modules["original"] = types.ModuleType("original")
    exec(compile(source, "original.py", "exec"), module.__dict__)
    return module


def build(program: types.ModuleType) -> Any:
    takes = "rngs" in inspect.signature(program.Net.__init__).parameters
    return program.Net(rngs=nnx.Rngs(0)) if takes else program.Net()


@pytest.mark.parametrize("name", EQUAL)
def test_equal(name: str, tmp_path: Path) -> None:
    source = HEAD + EQUAL[name]
    converted = convert(source)
    assert not converted.left
    torch.manual_seed(0)
    program = original(source)
    net = program.Net()
    x = eval(INPUTS.get(name, "torch.randn(2, 4)"), {"torch": torch})
    if name not in INITIALISED:
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.add_(0.1 * torch.randn(parameter.shape))
    state = arrays(net.state_dict())
    written, layers = with_layers(converted, tmp_path)
    model = build(written)
    if name in INITIALISED:
        given = {n: np.asarray(v[...]) for n, v in layers.named_variables(model)}
        fixed = [n for n in state if "weight" in n and state[n].size and np.ptp(state[n]) == 0]
        assert fixed
        for key in fixed:
            np.testing.assert_allclose(given[key], state[key])
    layers.load_state_dict(model, state)
    for mode in ("eval", "train"):
        getattr(net, mode)()
        getattr(model, mode)()
        expected = net(x).detach().numpy()
        np.testing.assert_allclose(np.asarray(model(jnp.asarray(x.numpy()))), expected, rtol=1e-5, atol=1e-5)
    after = arrays(net.state_dict())
    assert sorted(dict(layers.named_variables(model))) >= sorted(after)


@pytest.mark.parametrize("name", REPORTED)
def test_reported(name: str) -> None:
    code, source = REPORTED[name]
    assert code in [entry.partition(" ")[0] for entry in convert(HEAD + source).left]
