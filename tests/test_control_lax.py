"""`--control-flow lax`: what it rewrites returns what torch returns, also under jit; the rest stays."""

from __future__ import annotations

import re
import textwrap
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from jaxmigrate.config import Settings
from jaxmigrate.layers import emit
from jaxmigrate.project import convert_files
from jaxmigrate.read.source import Source
from jaxmigrate.report.findings import Outcome
from jaxmigrate.rulebook import load_rules

HEAD = "import torch\nfrom torch import nn\n\n\n"
INPUTS = (np.array([[1.0, -2.0], [3.0, 0.5]], np.float32), np.array([[-4.0, 1.0], [0.0, 2.0]], np.float32))


def convert(body: str) -> Outcome:
    (outcome,) = convert_files([Source("m.py", HEAD + body)], load_rules(), Settings(control_flow="lax")).outcomes
    assert outcome.status == "changed", outcome.findings
    return outcome


def function(body: str, params: str = "x: torch.Tensor, y: torch.Tensor") -> str:
    return f"def f({params}):\n{textwrap.indent(textwrap.dedent(body), '    ')}\n"


def load(text: str) -> types.SimpleNamespace:
    names: dict[str, object] = {"__name__": "m"}
    exec(compile(text, "m.py", "exec"), names)
    return types.SimpleNamespace(**names)


# The body of f(x, y), and a line of the output.
REWRITTEN = {
    "where": (
        "if x.sum() > 3:\n    z = x * 2\nelse:\n    z = -x\nreturn z",
        "z = jnp.where(jnp.sum(x) > 3, x * 2, -x)",
    ),
    "one branch": (
        "z = torch.zeros_like(x)\nif (x > 0.7).any():\n    z = x + 1\nreturn z",
        "z = jax.lax.cond(jnp.any(x > 0.7), lambda: x + 1, lambda: z)",
    ),
    "not": ("z = x.clone()\nif not (x > 0).all():\n    z = x\nreturn z", "z = jnp.where(jnp.all(x > 0), z, x)"),
    "no where where a gradient can be infinite": (
        "if x.min() > 0:\n    z = torch.sqrt(x)\nelse:\n    z = torch.tanh(x)\nreturn z",
        "z = jax.lax.cond(jnp.min(x) > 0, lambda: jnp.sqrt(x), lambda: jnp.tanh(x))",
    ),
    "functions": (
        "if x.mean() > 0:\n    t = x * 2.0\n    x = t + 1\n    n = x - 1\nelse:\n    x = x / 3\n    n = x\nreturn x, n",
        "x, n = jax.lax.cond(jnp.mean(x) > 0, if_true, if_false, x)",
    ),
    "another name in the other branch": (
        "if x.sum() > 3:\n    x = x * 2\nelse:\n    t = y\nreturn x",
        "x = jax.lax.cond(jnp.sum(x) > 3, if_true, if_false, x)",
    ),
    "return": ("if x.sum() > 0:\n    return x * 2\nreturn -x", "return jnp.where(jnp.sum(x) > 0, x * 2, -x)"),
    "return and else": (
        "if x.sum() > 0:\n    return torch.exp(x)\nelse:\n    return torch.sin(x)",
        "return jax.lax.cond(jnp.sum(x) > 0, lambda: jnp.exp(x), lambda: jnp.sin(x))",
    ),
    "ternary": (
        "return x if (x > 0).all() else torch.zeros_like(x)",
        "jnp.where(jnp.all(x > 0), x, jnp.zeros_like(x))",
    ),
    "while": ("while x.norm() > 1:\n    x = x / 2\nreturn x", "lambda x: x / 2, x)"),
    "while with a state": (
        "n = torch.tensor(0)\nwhile x.abs().max() > 1:\n    x = x - x.sign()\n    n = n + 1\nreturn x, n",
        "x, n = jax.lax.while_loop(keep_going, body, (x, n))",
    ),
    "fori": (
        "z = torch.ones_like(x)\nfor i in range(3):\n    z = z * x\nreturn z",
        "z = jax.lax.fori_loop(0, 3, lambda i, z: z * x, z)",
    ),
    "fori with a state": (
        "v = torch.zeros_like(x)\nfor i in range(1, 4):\n    v = v - x\n    x = x + v\nreturn x",
        "v, x = jax.lax.fori_loop(1, 4, body, (v, x))",
    ),
    "fori over rows": (
        "z = torch.zeros_like(x[0])\nfor i in range(len(x)):\n    z += x[i] + x[i - 1]\nreturn z",
        "z = jax.lax.fori_loop(0, len(x), lambda i, z: z + (x[i] + x[i - 1]), z)",
    ),
    "scan": (
        "h = torch.zeros_like(x[0])\nout = []\nfor t in range(x.shape[0]):\n    h = h + x[t]\n    out.append(h * 2)\n"
        "return torch.stack(out, dim=1), h",
        "h, out = jax.lax.scan(body, h, jnp.arange(x.shape[0]))",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REWRITTEN)
def test_what_is_rewritten_returns_what_torch_returns_also_under_jit(name: str) -> None:
    body, holds = REWRITTEN[name]
    outcome = convert(function(body))
    assert holds in outcome.after
    assert not [f for f in outcome.findings if f.code in ("JM141", "JM143", "JM206")]
    assert "\n    \n" not in outcome.after
    ours = load(
        re.sub("^from nnx_layers import .*$", lambda _: emit(outcome.layers), outcome.after, flags=re.MULTILINE)
    ).f
    for given in INPUTS:
        with np.errstate(all="ignore"):
            wanted = load(HEAD + function(body)).f(torch.tensor(given), torch.tensor(given))
        for run in (ours, jax.jit(ours)):
            got = run(jnp.asarray(given), jnp.asarray(given))
            for a, b in zip(*(v if isinstance(v, tuple) else (v,) for v in (wanted, got)), strict=True):
                np.testing.assert_allclose(b, a.numpy(), rtol=1e-6, atol=1e-6)
                assert b.dtype.kind == a.numpy().dtype.kind


def test_a_gradient_through_a_branch_is_finite() -> None:
    body, _ = REWRITTEN["no where where a gradient can be infinite"]
    grads = jax.grad(lambda x: load(convert(function(body)).after).f(x, x).sum())(jnp.zeros(2))
    assert np.isfinite(grads).all()


REFUSED = {
    "other shapes": "if x.sum() > 0:\n    z = x @ y\nelse:\n    z = x\nreturn z",
    "other types": "if x.sum() > 0:\n    z = x * 0.5\nelse:\n    z = x\nreturn z",
    "a reduction": "if x.sum() > 0:\n    z = x.sum()\nelse:\n    z = x\nreturn z",
    "a condition with dimensions": "if x[0] > 0:\n    z = x * 2\nelse:\n    z = -x\nreturn z",
    "a side effect": "if x.sum() > 0:\n    print('yes')\nreturn x",
    "random numbers": "if x.sum() > 0:\n    z = torch.rand_like(x)\nelse:\n    z = x\nreturn z",
    "a name that was not there": "if x.sum() > 0:\n    z = x * 2\nreturn z",
    "a name that was made of another": (
        "z = torch.zeros_like(x)\nx = x[0]\nif x.sum() > 0:\n    w = z\nelse:\n    w = x\nreturn w"
    ),
    "a parameter changed in place": "if x.sum() > 0:\n    x += 1\nreturn x",
    "a comment": "if x.sum() > 0:  # why\n    z = x * 2\nelse:\n    z = -x\nreturn z",
    "a growing state": "while x.norm() > 1:\n    x = torch.stack([x, x])\nreturn x",
    "an integer state that becomes a float": "while x.sum() > 1:\n    x = x / 2\nreturn x",
    "a Python number of the state": "n = 0\nwhile x.norm() > 1:\n    x = x / 2\n    n += 1\nreturn x, n",
    "elif": "if x.sum() > 0:\n    z = x\nelif x.sum() < -1:\n    z = -x\nelse:\n    z = x * 2\nreturn z",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_proved_stays_and_is_reported(name: str) -> None:
    outcome = convert(function(REFUSED[name]))
    assert "jax.lax" not in outcome.after
    assert "jnp.where" not in outcome.after
    assert any(f.code == "JM141" for f in outcome.findings)


def test_booleans_do_not_become_integers() -> None:
    """jnp.where would make int32 of a boolean branch beside relu, without a word; lax.cond compares the types."""
    after = convert(function("if (x > 0).any():\n    z = x\nelse:\n    z = torch.relu(x)\nreturn z")).after
    assert "jnp.where" not in after
    with pytest.raises(TypeError):
        load(after).f(jnp.array([True]), jnp.array([True]))


def test_a_while_loop_that_is_differentiated_stays() -> None:
    body = function("while x.norm() > 1:\n    x = x / 2\nreturn x")
    outcome = convert(body + "\n\ndef g(x: torch.Tensor):\n    f(x, x).sum().backward()\n")
    assert "while_loop" not in outcome.after


def test_without_the_option_nothing_of_it_happens() -> None:
    (outcome,) = convert_files([Source("m.py", HEAD + function(REWRITTEN["where"][0]))], load_rules()).outcomes
    assert "if jnp.sum(x) > 3:" in outcome.after


CELL = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(2, 3)

    def forward(self, x, h):
        outs = []
        for t in range(x.shape[0]):
            h = self.cell(x[t], h)
            outs.append(h)
        return torch.stack(outs), h
"""


def test_a_recurrent_cell_is_scanned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from flax import nnx

    run = convert_files([Source("m.py", HEAD + CELL)], load_rules(), Settings(control_flow="lax"))
    (tmp_path / "nnx_layers.py").write_text(run.layer_file, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "nnx_layers", raising=False)
    assert "h, outs = jax.lax.scan(body, h, jnp.arange(x.shape[0]))" in run.outcomes[0].after
    theirs = load(HEAD + CELL).Net()
    ours = load(run.outcomes[0].after).Net(rngs=nnx.Rngs(0))
    for name, value in theirs.cell.named_parameters():
        getattr(ours.cell, name)[...] = jnp.asarray(value.detach().numpy())
    x, h = torch.randn(4, 5, 2), torch.randn(5, 3)
    wanted = theirs(x, h)
    jitted = nnx.jit(lambda model, x, h: model(x, h))
    for call in (ours, lambda x, h: jitted(ours, x, h)):
        got = call(jnp.asarray(x.numpy()), jnp.asarray(h.numpy()))
        for a, b in zip(wanted, got, strict=True):
            np.testing.assert_allclose(b, a.detach().numpy(), rtol=1e-5, atol=1e-5)
