"""torch.autograd.Function: values and gradients of the converted functions are torch's, eager and under jit."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from converted import convert, under_jax, under_torch

HEAD = "import torch\nfrom torch.autograd import Function\n"
PROGRAMS = {
    "straight_through": """
class Round(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.round(x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * (x.abs() < 1).float()

def run(x, y):
    return Round.apply(x) * y
""",
    "kept_values_and_none": """
class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor, axis):
        ctx.factor, ctx.axis = factor, axis
        ctx.shape = x.shape
        return x.sum(axis) * factor

    @staticmethod
    def backward(ctx, gradient):
        return gradient.unsqueeze(ctx.axis).expand(ctx.shape) * ctx.factor * 3, None, None

scale = Scale.apply

def run(x, y):
    return scale(x, 2.5, 1) + y[:, 0]
""",
    "written_gradient": """
class Relu(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, grad_output):
        x, = ctx.saved_tensors
        grad_input = grad_output.clone()
        grad_input.mul_((x > 0).float() + 0.25)
        return grad_input

def run(x, y):
    return Relu.apply(x) * Relu.apply(y)
""",
    "two_outputs": """
class Split(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y, x + y

    @staticmethod
    def backward(ctx, first, second):
        x, y = ctx.saved_tensors
        return first * y * 2 + second, first * x + second

def run(x, y):
    a, b = Split.apply(x, y)
    return a * b
""",
    "setup_context": """
class Square(Function):
    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, = inputs
        ctx.save_for_backward(x, output)

    @staticmethod
    def backward(ctx, gradient):
        x, output = ctx.saved_tensors
        return gradient * (2 * x + output)

def run(x, y):
    return Square.apply(x) - y
""",
    "integers": """
class Pick(Function):
    @staticmethod
    def forward(ctx, x, index):
        ctx.save_for_backward(index)
        ctx.size = x.shape[0]
        return x[index]

    @staticmethod
    def backward(ctx, gradient):
        index, = ctx.saved_tensors
        out = torch.zeros(ctx.size, gradient.shape[1])
        return out.index_add(0, index, gradient) * 2, None

def run(x, y):
    return Pick.apply(x, torch.tensor([0, 0, 1])) + y[:1]
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_gradients(name: str, tmp_path: Path) -> None:
    converted = convert(HEAD + PROGRAMS[name])
    assert not converted.left
    rng = np.random.default_rng(0)
    given = [rng.normal(size=(2, 3)).astype(np.float32) for _ in range(2)]
    tensors = [torch.tensor(a, requires_grad=True) for a in given]
    out = under_torch(HEAD + PROGRAMS[name]).run(*tensors)
    weights = np.cos(np.arange(out.numel(), dtype=np.float32)).reshape(out.shape)
    expected = torch.autograd.grad((out * torch.from_numpy(weights)).sum(), tensors)
    run = under_jax(converted, tmp_path).run

    def loss(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        value = run(x, y)
        return (value * weights).sum(), value

    step = jax.grad(loss, argnums=(0, 1), has_aux=True)
    for function in (step, jax.jit(step)):
        gradients, value = function(*map(jnp.asarray, given))
        np.testing.assert_allclose(value, out.detach().numpy(), rtol=1e-6)
        for own, theirs in zip(gradients, expected, strict=True):
            np.testing.assert_allclose(own, theirs.numpy(), rtol=1e-6, atol=1e-6)
