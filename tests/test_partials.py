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


@pytest.mark.parametrize(
    ("held", "call", "left"),
    [
        ("torch.mean if flag else torch.sum", "held(x, dim=1)", True),
        ("torch.mean if flag else torch.sum", "held(x, 1, True)", True),
        ("torch.mean if flag else torch.sum", "held(x, 1)", False),
        ("torch.unique", "held(x, True, True)", True),
        ("torch.flatten", "held(x, start_dim=1)", True),
        ("torch.max", "held(x, other=x)", True),
        ("getattr(F, 'relu' if flag else 'elu')", "held(x, inplace=True)", True),
        ("getattr(F, 'relu' if flag else 'elu')", "held(x)", False),
        ("getattr(F, f'adaptive_avg_pool{flag}d')", "held(x, output_size=2)", False),
        ("getattr(F, f'adaptive_avg_pool{flag}d')", "held(x, size=2)", True),
    ],
)
def test_what_the_counterpart_of_a_held_function_would_take_otherwise(held: str, call: str, left: bool) -> None:
    head = "import torch\nimport torch.nn.functional as F\n\n"
    program = f"{head}def f(x: torch.Tensor, flag):\n    held = {held}\n    return {call}\n"
    assert [message[:5] for message in convert(program).left] == ["JM203"] * left


def test_largest_and_smallest_as_values(tmp_path: Path) -> None:
    """What a later call gives decides what torch.max returns."""
    source = """
from functools import reduce
import torch

def f(x: torch.Tensor, which):
    pick, other = torch.max, {"min": torch.min, "sum": torch.sum}[which]
    first = [pick(x), other(x), pick(x, 1)[1], other(x, 0)[1], pick(x, dim=0)[0], reduce(torch.max, [x, 1 - x])]
    return [*first, pick(x, 1, True)[0], torch.stack([*map(torch.min, [x, 1 - x])])]
"""
    converted = convert(source)
    assert not converted.left, converted.left
    x = np.linspace(-2, 3, 12, dtype=np.float32).reshape(3, 4)
    ours = under_jax(converted, tmp_path).f(jnp.asarray(x), "min")
    for one, other in zip(ours, under_torch(source).f(torch.tensor(x), "min"), strict=True):
        np.testing.assert_array_equal(one, other.numpy())
