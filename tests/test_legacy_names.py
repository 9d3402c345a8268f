"""What torch took before 1.0 and still takes: reductions by `size_average` and `reduce`, casts by tensor types."""

from __future__ import annotations

import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from converted import convert, under_jax, under_torch

HEAD = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n\n\n"
LOSSES = [
    "F.binary_cross_entropy(x, y, size_average=False)",
    "F.binary_cross_entropy(x, y, size_average=True, reduce=None)",
    "F.mse_loss(x, y, False)",
    "F.mse_loss(x, y, None, None, 'sum')",
    "F.mse_loss(x, y, reduce=False, size_average=True)",
    "F.l1_loss(x, y, size_average=True, reduction='sum')",
    "F.l1_loss(x, y, reduce=True, size_average=False, reduction='none')",
    "F.mse_loss(x, y, size_average=0)",
    "F.l1_loss(x, y, size_average=1, reduce=0)",
    "nn.BCELoss(size_average=False)(x, y)",
    "nn.MSELoss(reduce=False)(x, y)",
    "nn.SmoothL1Loss(size_average=True)(x, y)",
    "nn.SmoothL1Loss(None, None, 'sum', 2.0)(x, y)",
    "nn.MSELoss(reduce=None, reduction='sum', size_average=None)(x, y)",
]


@pytest.mark.filterwarnings("ignore:size_average and reduce args")
@pytest.mark.parametrize("call", LOSSES)
def test_reductions(call: str, tmp_path: Path) -> None:
    source = f"{HEAD}def f(x: torch.Tensor, y: torch.Tensor):\n    return {call}\n"
    converted = convert(source)
    assert not converted.left and "size_average" not in converted.text and "reduce=" not in converted.text
    x, y = np.random.default_rng(0).uniform(0.1, 0.9, (2, 3, 4)).astype(np.float32)
    want = under_torch(source).f(torch.tensor(x), torch.tensor(y))
    np.testing.assert_allclose(under_jax(converted, tmp_path).f(jnp.asarray(x), jnp.asarray(y)), want, rtol=1e-5)


def test_a_reduction_that_is_computed_is_left() -> None:
    source = f"{HEAD}def f(x: torch.Tensor, y: torch.Tensor, flag):\n    return F.l1_loss(x, y, size_average=flag)\n"
    assert [f.code for f in convert(source).findings if f.code.startswith("JM2")] == ["JM202"]


@pytest.mark.parametrize("kind", ["Float", "Long", "Int", "Byte", "Half", "Bool"])
def test_casts(kind: str, tmp_path: Path) -> None:
    source = f"{HEAD}def f(x: torch.Tensor):\n    return x.type(torch.{kind}Tensor)\n"
    converted = convert(source)
    assert not converted.left
    x = np.array([-1.5, 0.0, 1.0, 2.75, 258.0], np.float32)
    want = under_torch(source).f(torch.tensor(x)).numpy()
    ours = np.asarray(under_jax(converted, tmp_path).f(jnp.asarray(x)))
    assert ours.dtype == (np.int32 if kind == "Long" else want.dtype)
    np.testing.assert_array_equal(ours, want)


TENSOR_TYPES = """
import numpy as np
import torch
from torch import Tensor as Plain
from torch.autograd import Variable

cuda = torch.cuda.is_available()
Tensor = torch.cuda.FloatTensor if cuda else torch.FloatTensor
if cuda:
    Long = torch.cuda.LongTensor
else:
    Long = torch.LongTensor


def main():
    Default = torch.cuda.FloatTensor if cuda else torch.Tensor
    tail = (1, 2)
    ones = Variable(Tensor(2, *tail).fill_(1.0), requires_grad=False)
    noise = Variable(Tensor(np.arange(6).reshape(2, 3)))
    labels = Long(np.array([1.7, 2.2]))
    cast = labels.type(Tensor) / 2
    given = Default([[1, 2], [3, 4]]) + Plain(2, 2).fill_(3)
    return ones, noise, labels, cast, given, torch.Tensor([1.5]).type(Long)


images = Tensor(2, 3).fill_(0)
for batch in [images]:
    batch = batch.type(Tensor)
"""


def test_names_for_tensor_types(tmp_path: Path) -> None:
    """They are read where they are called and cast to, and go when nothing else needs them."""
    converted = convert(TENSOR_TYPES)
    assert not converted.left, converted.left
    assert "Tensor" not in converted.text
    wants, ours = under_torch(TENSOR_TYPES).main(), under_jax(converted, tmp_path).main()
    for want, our in zip(wants, ours, strict=True):
        np.testing.assert_array_equal(np.asarray(our), want.numpy())
        assert np.asarray(our).dtype.kind == want.numpy().dtype.kind


@pytest.mark.parametrize("use", ["isinstance(x, Tensor)", "make(Tensor)", "Tensor.__name__", "{'type': Tensor}"])
def test_a_tensor_type_with_another_use_is_left(use: str) -> None:
    source = f"import torch\n\nTensor = torch.FloatTensor\n\n\ndef f(x: torch.Tensor, make):\n    return {use}\n"
    assert convert(source).left


@pytest.mark.parametrize("kind", ["Byte", "Char", "Short", "Int", "Half", "BFloat16", "Bool"])
def test_tensors_of_a_type(kind: str, tmp_path: Path) -> None:
    source = (
        f"{HEAD}def f(x: torch.Tensor):\n    return torch.{kind}Tensor(2, *x.shape).shape, torch.{kind}Tensor([1, 0])\n"
    )
    converted = convert(source)
    assert not converted.left
    shape, want = under_torch(source).f(torch.zeros(3, 1))
    our_shape, ours = under_jax(converted, tmp_path).f(jnp.zeros((3, 1)))
    assert our_shape == tuple(shape)
    assert str(ours.dtype) == str(want.dtype).removeprefix("torch.")
    np.testing.assert_array_equal(np.asarray(ours, np.float32), want.float().numpy())


def test_a_choice_that_reads_the_name_that_it_binds() -> None:
    source = f"{HEAD}def f(x: torch.Tensor, layers):\n    for layer in layers:\n        x = x if layer else x.relu()\n"
    source += "    kind = torch.FloatTensor if layers else kind.half\n    return x\n"
    assert convert(source).findings


ANNOTATED = """
from collections import OrderedDict

import torch
from torch import Tensor, nn
from typing import Literal, Optional, cast

Mask = torch.BoolTensor


class Net(nn.Module):
    inner: "nn.Linear"

    def __init__(self, scale: "Tensor", like: "Net | None" = None):
        super().__init__()
        self.scale, self.like = scale, like

    def forward(self, x: torch.LongTensor, mask: Optional[Mask] = None) -> "Optional[torch.cuda.FloatTensor]":
        y: "list[Tensor]" = [x.sum(0), cast(torch.FloatTensor, self.scale)]
        mode: Literal["torch.Tensor"] = "torch.Tensor"
        return y[0] * y[1] if mask is None else torch.where(mask, x, 0)


def total(parts: "OrderedDict[str, torch.Tensor]") -> Tensor:
    return sum(parts.values())


def apply(net: "nn.Module", x: torch.FloatTensor | None) -> Tensor:
    return net(x, x > 1)


def main():
    return apply(Net(torch.ones(2)), torch.arange(4).reshape(2, 2)), Net(torch.ones(2))(torch.ones(2, 2))
"""


def test_types_in_annotations(tmp_path: Path) -> None:
    """What only says a type becomes `jax.Array`, also in quotes; quotes stay around names of the file."""
    converted = convert(ANNOTATED)
    assert not converted.left, converted.left
    for text in (
        "inner: Linear", 'scale: jax.Array, like: "Net | None"', "x: jax.Array, mask: Optional[jax.Array] = None",
        ") -> Optional[jax.Array]:", "y: list[jax.Array] =", 'mode: Literal["torch.Tensor"] = "torch.Tensor"',
        "parts: OrderedDict[str, jax.Array]", "cast(jax.Array, ", "net: nnx.Module, x: jax.Array | None) -> jax.Array",
    ):  # fmt: skip
        assert text in converted.text
    wants, ours = under_torch(ANNOTATED).main(), under_jax(converted, tmp_path).main()
    for want, our in zip(wants, ours, strict=True):
        np.testing.assert_array_equal(np.asarray(our), want.detach().numpy())


@pytest.mark.parametrize("use", ["isinstance(x, torch.LongTensor)", "type(x) is torch.LongTensor", "x.type() == T"])
def test_a_tensor_type_that_is_asked_for_is_left(use: str) -> None:
    assert convert(f"import torch\n\n\ndef f(x: torch.LongTensor, T=torch.LongTensor):\n    return {use}\n").left
