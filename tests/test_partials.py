"""`functools.partial` of torch's functions: what is given in advance is translated too."""

from __future__ import annotations

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from converted import convert, under_jax, under_torch

SOURCE = """
from functools import partial
import torch
import torch.nn.functional as F

def parts(x: torch.Tensor, d: int):
    return [
        partial(torch.cat, dim=-2)((x, x)),
        partial(F.softmax, dim=-1)(x),
        partial(F.leaky_relu, negative_slope=0.1)(x),
        partial(torch.clamp, min=0.)(x),
        partial(F.normalize, dim=d)(x),
        partial(torch.add, x)(x),
        partial(F.gelu, approximate="tanh")(x),
        partial(partial(F.softmax, dim=0), dtype=torch.float32)(x),
        *map(partial(torch.sum, dim=1, keepdim=True), [x, x + 1]),
    ]
"""


def test_arguments_of_partials_are_translated(tmp_path: Path) -> None:
    converted = convert(SOURCE)
    assert not converted.left, converted.left
    for text in ("partial(jnp.concatenate, axis=-2)", "partial(jnp.sum, axis=1, keepdims=True)"):
        assert text in converted.text
    x = np.linspace(-2, 3, 12, dtype=np.float32).reshape(3, 4)
    ours = under_jax(converted, tmp_path).parts(jnp.asarray(x), 1)
    for one, other in zip(ours, under_torch(SOURCE).parts(torch.tensor(x), 1), strict=True):
        np.testing.assert_allclose(one, other.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ("partial(F.relu, inplace=True)", "JM206"),
        ("partial(F.dropout, p=0.5)", "JM203"),
        ("partial(torch.cat, dim=x.dim() - 1)", "JM203"),
        ("partial(torch.cat, **options)", "JM207"),
        ("partial(torch.sum, dim=1, out=x)", "JM202"),
    ],
)
def test_partials_that_cannot_be_said_are_left(call: str, code: str) -> None:
    head = "from functools import partial\nimport torch\nimport torch.nn.functional as F\n\n"
    converted = convert(f"{head}def f(x: torch.Tensor, options):\n    return {call}\n")
    assert code in [f.code for f in converted.findings], converted.findings
    assert call.partition(",")[0] in converted.text


def test_arguments_for_a_function_that_a_variable_holds() -> None:
    head = "import torch\nimport torch.nn.functional as F\n\n"
    program = head + "def f(x: torch.Tensor, flag):\n    join = torch.cat\n    return join((x, x), dim=1)\n"
    found = [f for f in convert(program).findings if f.code == "JM203"]
    assert ["dim=" in f.message for f in found] == [True], found
    program = head + "def f(x: torch.Tensor, flag):\n    act = F.leaky_relu\n    return act(x, negative_slope=0.2)\n"
    assert not convert(program).left
