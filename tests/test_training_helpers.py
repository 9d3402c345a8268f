"""Functions that set gradients to zero for the training loop that calls them: followed, or the loop is left."""

from __future__ import annotations

import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

sys.path.insert(0, str(Path(__file__).parent))
from converted import arrays, convert, under_jax, under_torch

from jaxmigrate.layers.library.base import load_state_dict, state_dict

PROGRAM = """
import torch
from torch import nn, optim
import torch.nn.functional as F

{before}

class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.layer(x))


def fit(net: Part, gen: Part, xs: torch.Tensor):
    opt = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    opt_g = optim.Adam(gen.parameters(), lr=0.1)
    both = optim.SGD([*net.parameters(), *gen.parameters()], lr=0.1)
    {inside}
    losses = []
    for i, x in enumerate(xs):
        loss = ({output} ** 2).sum()
        {zero}
        loss.backward()
        {step}
        losses.append(loss.item())
    return losses
"""
BOTH = "opt.step()\n        opt_g.step()"
# what stands before the class, before the loop, in the place of zero_grad(), in that of step()
FOLLOWED = {
    "a function": ("", "def clear():\n        opt.zero_grad()\n        opt_g.zero_grad()", "clear()", BOTH),
    "it calls another": (
        "",
        "def first():\n        opt.zero_grad()\n\n    def clear():\n        first()\n        opt_g.zero_grad()",
        "clear()",
        BOTH,
    ),
    "a lambda": ("", "clear = lambda: opt.zero_grad()", "clear()", "opt.step()"),
    "an argument": ("def clear(one, other=None):\n    one.zero_grad()\n", "", "clear(opt)", "opt.step()"),
    "the module": ("def clear(m):\n    m.zero_grad()\n", "", "clear(m=net)", "opt.step()"),
    "each module": ("", "", "net.zero_grad()\n        gen.zero_grad()", "both.step()"),
    "a loop": ("", "opts = [opt, opt_g]", "for o in opts:\n            o.zero_grad()", BOTH),
    "a comprehension": ("", "", "[o.zero_grad() for o in (opt, opt_g)]", BOTH),
}
LEFT = {
    "handed on": ("def run(f):\n    f()\n", "", "run(opt.zero_grad)", "opt.step()"),
    "another name": ("", "zero = opt.zero_grad", "zero()", "opt.step()"),
    "sometimes": ("def clear(o, i):\n    if i % 2:\n        o.zero_grad()\n", "", "clear(opt, i)", "opt.step()"),
    "not a statement": ("", "", "i % 2 and opt.zero_grad()", "opt.step()"),
    "one of two modules": ("", "", "net.zero_grad()", "both.step()"),
    "by the gradients": (
        "def clear(m):\n    for p in m.parameters():\n        p.grad = None\n", "", "clear(net)", "opt.step()",
    ),
    "not known": ("from other import clear\n", "", "clear(opt)", "opt.step()"),
    "more backward": (
        "def clear(m, o):\n    o.zero_grad()\n    (m.layer.weight ** 2).sum().backward()\n", "", "clear(net, opt)",
        "opt.step()",
    ),
    "not all known": ("", "opts = [opt]\n    opts.append(opt_g)", "for o in opts:\n            o.zero_grad()", BOTH),
}  # fmt: skip


def program(parts: tuple[str, str, str, str]) -> str:
    output = "net(x)" if parts[3] == "opt.step()" else "net(gen(x))"
    return PROGRAM.format(output=output, **dict(zip(("before", "inside", "zero", "step"), parts, strict=True)))


@pytest.mark.parametrize("form", FOLLOWED)
def test_a_helper_is_followed(form: str, tmp_path: Path) -> None:
    source = program(FOLLOWED[form])
    converted = convert(source)
    assert not converted.left and "zero_grad" not in converted.text and "clear" not in converted.text
    theirs, ours = under_torch(source), under_jax(converted, tmp_path)
    torch.manual_seed(0)
    models = [theirs.Part(), theirs.Part()]
    twins = [ours.Part(rngs=nnx.Rngs(0)) for _ in models]
    for twin, model in zip(twins, models, strict=True):
        load_state_dict(twin, arrays(model.state_dict()))
    xs = np.random.default_rng(0).normal(size=(5, 4, 3)).astype(np.float32)
    want = theirs.fit(*models, torch.tensor(xs))
    np.testing.assert_allclose(ours.fit(*twins, jnp.asarray(xs)), want, rtol=2e-5)
    for twin, model in zip(twins, models, strict=True):
        for name, value in state_dict(twin).items():
            np.testing.assert_allclose(value, arrays(model.state_dict())[name], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("form", LEFT)
def test_a_loop_is_left_when_its_zeros_are_not_all_known(form: str) -> None:
    converted = convert(program(LEFT[form]))
    left = [f for f in converted.findings if f.code == "JM208" and f.name == "torch.Tensor.backward"]
    assert left and "loss.backward()" in converted.text and "value_and_grad" not in converted.text


TRAINER = """
import torch
from torch import nn, optim


class Trainer:
    def __init__(self):
        self.net = nn.Linear(3, 2)
        self.opt = optim.SGD(self.net.parameters(), lr=0.1)

    def reset(self):
        self.opt.zero_grad()

    def fit(self, xs: torch.Tensor):
        losses = []
        for x in xs:
            self.reset()
            loss = (self.net(x) ** 2).sum()
            loss.backward()
            self.opt.step()
            losses.append(loss.item())
        return losses
"""


def test_a_method_is_followed(tmp_path: Path) -> None:
    converted = convert(TRAINER)
    assert not converted.left
    theirs, ours = under_torch(TRAINER).Trainer(), under_jax(converted, tmp_path).Trainer()
    load_state_dict(ours.net, arrays(theirs.net.state_dict()))
    xs = np.random.default_rng(0).normal(size=(5, 4, 3)).astype(np.float32)
    np.testing.assert_allclose(ours.fit(jnp.asarray(xs)), theirs.fit(torch.tensor(xs)), rtol=2e-5)
