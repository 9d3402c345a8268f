"""Checkpoints against the converted model: what fits, what does not, and the mapping file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from converted import convert, under_jax, under_torch

from jaxmigrate.cli import main

PROGRAM = """
import torch
import torch.nn as nn


class Net(nn.Module):
    def __init__(self, n=7, d=4):
        super().__init__()
        self.emb = nn.Embedding(n, d)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(d, d), nn.LayerNorm(d)) for _ in range(2)])
        self.bn = nn.BatchNorm1d(d)
        self.register_buffer("mask", torch.ones(d))
        self.register_buffer("scratch", torch.ones(2), persistent=False)
        self.head = nn.Linear(d, n, bias=False)
        self.head.weight = self.emb.weight

    def forward(self, i):
        x = self.emb(i)
        for block in self.blocks:
            x = x + block(x)
        return self.head(self.bn(x * self.mask))
"""
MODEL = "program.py:Net()"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    """Run `weights` in a folder with the converted program; check the exit code; the lines on standard error."""
    monkeypatch.chdir(tmp_path)
    made = convert(PROGRAM)
    Path("program.py").write_text(made.text)
    Path("nnx_layers.py").write_text(made.layers)

    def call(*arguments: str, code: int = 0) -> list[str]:
        found = main(["weights", *arguments])
        lines = capfd.readouterr().err.splitlines()
        assert found == code, lines
        return lines

    return call


Run = Callable[..., list[str]]


@pytest.fixture
def state() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return under_torch(PROGRAM).Net().eval().state_dict()


def test_the_converted_model_loads_what_was_written(run: Run, state: dict[str, torch.Tensor], tmp_path: Path) -> None:
    torch.save(state, "in.pt")
    run("in.pt", "--model", MODEL, "-o", "w.npz")
    program = under_jax(convert(PROGRAM), tmp_path)
    from flax import nnx

    model = program.Net(rngs=nnx.Rngs(1))
    load_state_dict = type(model.bn).__init__.__globals__.get("load_state_dict")
    load_state_dict(model, np.load("w.npz"))
    assert model.head.weight is model.emb.weight
    model.eval()
    original = under_torch(PROGRAM).Net().eval()
    original.load_state_dict(state)
    ids = np.array([[0, 3, 6]])
    expected = original(torch.tensor(ids[0])).detach().numpy()
    np.testing.assert_allclose(model(ids[0]), expected, rtol=2e-5, atol=2e-5)


def test_what_does_not_fit_is_listed_and_nothing_written(run: Run, state: dict[str, torch.Tensor]) -> None:
    torch.save({**{k: v for k, v in state.items() if k != "bn.bias"}, "more": torch.ones(2)}, "in.pt")
    lines = run("in.pt", "--model", MODEL, "-o", "w.npz", code=1)
    assert lines == ["missing: bn.bias", "unexpected: more", "nothing written"]
    assert not Path("w.npz").exists()
    lines = run("in.pt", "--model", MODEL, "-o", "w.npz", "--no-strict")
    assert lines[:2] == ["missing: bn.bias", "unexpected: more"]
    with np.load("w.npz") as file:
        assert set(file.files) == state.keys() - {"bn.bias"}
    lines = run("in.pt", "--model", "program.py:Net(9)", "-o", "w.npz", "--no-strict", code=1)
    assert "shape: emb.weight: (7, 4) given, (9, 4) needed" in lines


def test_names_tied_in_the_model_must_agree(run: Run, state: dict[str, torch.Tensor]) -> None:
    torch.save({**state, "head.weight": state["head.weight"] + 1}, "in.pt")
    assert run("in.pt", "--model", MODEL, code=1)[0].startswith("shape: head.weight: tied to emb.weight")
    torch.save({k: v for k, v in state.items() if k != "head.weight"}, "in.pt")
    run("in.pt", "--model", MODEL, "-o", "out.pt")
    back = torch.load("out.pt", weights_only=True)
    assert back["head.weight"].data_ptr() == back["emb.weight"].data_ptr()


@pytest.mark.parametrize("name", ["m.toml", "m.json"])
def test_a_mapping_is_written_applied_and_inverted(run: Run, state: dict[str, torch.Tensor], name: str) -> None:
    torch.save(state, "in.pt")
    run("in.pt", "--model", MODEL, "--write-map", name)
    text = Path(name).read_text()
    file = Path(name)
    if name == "m.toml":
        text = text.replace('nnx = "blocks.0.0.weight"', 'nnx = "first.kernel"\naxes = [1, 0]')
    else:
        text = text.replace('"nnx": "blocks.0.0.weight"', '"nnx": "first.kernel", "axes": [1, 0]')
    file.write_text(text)
    run("in.pt", "--map", name, "-o", "w.safetensors")
    from safetensors.numpy import load_file

    written = load_file("w.safetensors")
    np.testing.assert_array_equal(written["first.kernel"], state["blocks.0.0.weight"].numpy().T)
    assert "blocks.0.0.weight" not in written
    run("w.safetensors", "--map", name, "--invert", "-o", "out.pt")
    back = torch.load("out.pt", weights_only=True)
    assert list(back) and back.keys() == state.keys()
    assert all(torch.equal(back[k], v) for k, v in state.items())
    assert back["head.weight"].data_ptr() == back["emb.weight"].data_ptr()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "no [[weight]] tables"),
        ("x = ", "m.toml: "),
        ('[[weight]]\ntorch = "a"', "weight 1: needs torch and nnx"),
        ('[[weight]]\ntorch = "a"\nnnx = "b"\naxis = [1]', "unknown key 'axis'"),
        ('[[weight]]\ntorch = "a"\nnnx = "b"\naxes = [1, 1]', "axes must be an order"),
        ('[[weight]]\ntorch = "a"\nnnx = "b"\n[[weight]]\ntorch = "a"\nnnx = "c"', "torch = 'a' stands there twice"),
    ],
)
def test_a_bad_mapping_gets_one_line(run: Run, state: dict[str, torch.Tensor], text: str, message: str) -> None:
    torch.save(state, "in.pt")
    Path("m.toml").write_text(text)
    (line,) = run("in.pt", "--map", "m.toml", code=2)
    assert message in line


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("program.py", "give it as FILE.py:Net(arguments)"),
        ("absent.py:Net()", "absent.py: no such file"),
        ("program.py:Other()", "NameError"),
        ("program.py:Net(", "SyntaxError"),
        ("program.py:Net(-1)", "Error"),
        ("program.py:int()", "gives a int, not an nnx.Module"),
    ],
)
def test_a_model_that_cannot_be_built_gets_one_line(
    run: Run, state: dict[str, torch.Tensor], model: str, message: str
) -> None:
    torch.save(state, "in.pt")
    (line,) = run("in.pt", "--model", model, code=2)
    assert message in line
    assert "--invert needs" in run("in.pt", "--invert", code=2)[0]


def test_loading_copies(run: Run, tmp_path: Path) -> None:
    """torch's buffers change in place; NumPy's view of them must not be the model's own memory."""
    from flax import nnx

    theirs = under_torch(PROGRAM).Net()
    model = under_jax(convert(PROGRAM), tmp_path).Net(rngs=nnx.Rngs(1))
    load_state_dict = type(model.bn).__init__.__globals__["load_state_dict"]
    load_state_dict(model, {k: v.detach().numpy() for k, v in theirs.state_dict().items()})
    theirs(torch.tensor([0, 3, 6]))
    assert theirs.bn.running_mean.abs().max() > 0
    np.testing.assert_array_equal(model.bn.running_mean[...], np.zeros(4))
