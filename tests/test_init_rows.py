"""The in-place initialisers without randomness: torch's values and those of the target text.

torch runs them outside of the graph, so that the general test of the rules, which compares gradients too, cannot.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from jaxmigrate.layers.library.init import dirac

FILE = Path(__file__).parent.parent / "rules" / "nn" / "init.toml"
NAMES = ("zeros_", "ones_", "constant_", "eye_", "dirac_")
CASES = [
    (before, after)
    for name, row in tomllib.loads(FILE.read_text(encoding="utf-8")).items()
    if name.rpartition(".")[2] in NAMES
    for before, after in row["cases"]
]


@pytest.mark.parametrize(("before", "after"), CASES)
def test_same_values(before: str, after: str) -> None:
    tensors = {"x": torch.full((3, 4), 7.0), "x3": torch.full((4, 3, 5), 7.0), "n": 2, "nn": torch.nn}
    arrays = {k: jnp.asarray(v.numpy()) for k, v in tensors.items() if isinstance(v, torch.Tensor)}
    name, _, value = after.partition(" = ")
    eval(before, tensors)
    got = eval(value, {"jnp": jnp, "dirac": dirac, "n": 2, **arrays})
    wanted = tensors[name]
    assert isinstance(wanted, torch.Tensor)
    np.testing.assert_array_equal(np.asarray(got), wanted.numpy())
    assert got.dtype == jnp.float32
