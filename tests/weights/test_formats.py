"""Checkpoints through every format and back: the same bytes, types and ties, as torch itself reads them."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file, save_model
from torch import nn

from jaxmigrate.cli import main

Tensors = dict[str, torch.Tensor]
FORMATS = ("a.safetensors", "a.npz", "a.orbax", "a.pt", "folder")


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(5, 3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.emb.weight
        self.norm = nn.BatchNorm1d(3)


@pytest.fixture
def tensors() -> Tensors:
    torch.manual_seed(0)
    special = torch.tensor([float("nan"), -0.0, float("inf"), 1e-40])
    return {
        "f32": torch.randn(3, 4),
        "bf16": torch.randn(2, 3, 4).bfloat16(),
        "special.bf16": special.bfloat16(),
        "half": torch.randn(5).half(),
        "f64": torch.randn(2, dtype=torch.float64),
        "count": torch.tensor(2**40),
        "mask": torch.tensor([True, False]),
        "complex": torch.randn(2, dtype=torch.complex64),
        "file": special,  # a name that np.savez cannot take
        "turned": torch.randn(3, 4).T,
        "one.bf16": torch.tensor(1.5).bfloat16(),
        "u16": torch.tensor([65535], dtype=torch.uint16),
    }


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    """Run `weights` in a folder of its own; check the exit code; the lines on standard error."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str, code: int = 0) -> list[str]:
        found = main(["weights", *arguments])
        lines = capfd.readouterr().err.splitlines()
        assert found == code, lines
        return lines

    return call


Run = Callable[..., list[str]]


def bits(tensor: torch.Tensor) -> tuple[object, ...]:
    raw = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return tensor.dtype, tuple(tensor.shape), raw


def assert_equal(ours: Tensors, theirs: Tensors) -> None:
    assert ours.keys() == theirs.keys()
    for name in theirs:
        assert bits(ours[name]) == bits(theirs[name]), name


@pytest.mark.parametrize("middle", FORMATS)
def test_a_round_trip_keeps_every_byte(tensors: Tensors, run: Run, middle: str) -> None:
    torch.save(tensors, "in.pt")
    run("in.pt", "-o", middle)
    run(middle, "-o", "out.pt")
    assert_equal(torch.load("out.pt", weights_only=True), tensors)


@pytest.mark.parametrize("middle", FORMATS)
def test_tied_weights_stay_tied(run: Run, middle: str) -> None:
    torch.save(Tied().state_dict(), "in.pt")
    run("in.pt", "-o", middle)
    run(middle, "-o", "out.pt")
    back = torch.load("out.pt", weights_only=True)
    assert back["emb.weight"].data_ptr() == back["head.weight"].data_ptr()
    assert back["emb.weight"].data_ptr() != back["norm.weight"].data_ptr()


def test_what_safetensors_leaves_out_of_a_tie_comes_back(run: Run) -> None:
    model = Tied()
    save_model(model, "in.safetensors")
    assert len(load_file("in.safetensors")) < len(model.state_dict())
    run("in.safetensors", "-o", "out.pt")
    assert_equal(torch.load("out.pt", weights_only=True), model.state_dict())


def test_eight_bit_floats(run: Run) -> None:
    tensors = {"a": torch.randn(4).to(torch.float8_e4m3fn), "b": torch.randn(4).to(torch.float8_e5m2)}
    save_file(tensors, "in.safetensors")
    run("in.safetensors", "-o", "middle.orbax")
    run("middle.orbax", "-o", "out.pt")
    assert_equal(torch.load("out.pt", weights_only=True), tensors)
    assert "write safetensors" in run("in.safetensors", "-o", "no.npz", code=2)[0]


def test_safetensors_and_npz_as_others_read_them(tensors: Tensors, run: Run) -> None:
    torch.save(tensors, "in.pt")
    run("in.pt", "-o", "a.safetensors")
    assert_equal(load_file("a.safetensors"), tensors)
    run("in.pt", "-o", "a.npz")
    import ml_dtypes

    with np.load("a.npz") as file:
        assert set(file.files) == tensors.keys()
        np.testing.assert_array_equal(file["turned"], tensors["turned"].numpy())
        read = file["bf16"].view(ml_dtypes.bfloat16).astype(np.float32)  # as docs/weights.md says
        np.testing.assert_array_equal(read, tensors["bf16"].float().numpy())


@pytest.mark.parametrize("kind", ["bin", "safetensors"])
def test_shards(tensors: Tensors, run: Run, kind: str) -> None:
    index, save = {"bin": ("pytorch_model.bin", torch.save), "safetensors": ("model.safetensors", save_file)}[kind]
    names = list(tensors)
    table: dict[str, str] = {}
    for number in range(2):
        part = {n: tensors[n].contiguous() for n in names[number::2]}
        file = f"part-{number}.{kind}"
        save(part, file)
        table |= dict.fromkeys(part, file)
    Path(f"{index}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": table}))
    run(f"{index}.index.json", "-o", "out.pt")
    assert_equal(torch.load("out.pt", weights_only=True), tensors)
    run(".", "-o", "same.pt")
    Path(f"part-1.{kind}").unlink()
    assert f"part-1.{kind}: no such file" in run(f"{index}.index.json", "-o", "no.pt", code=2)[0]
    assert not Path("no.pt").exists()


def test_names(run: Run) -> None:
    state = Tied().state_dict()
    torch.save({"epoch": 3, "model": {f"module.{k}": v for k, v in state.items()}, "ema": state}, "in.pt")
    run("in.pt", "--strip", "module.", "-o", "a.pt")
    assert_equal(torch.load("a.pt", weights_only=True), state)
    run("in.pt", "--key", "ema", "--prefix", "=net.", "--prefix", "net.head=net.out", "-o", "b.pt")
    assert "net.out.weight" in torch.load("b.pt", weights_only=True)
    assert "no name begins with 'foo'" in run("in.pt", "--strip", "foo", code=2)[0]
    assert "two names become 'emb.weight'" in run("a.pt", "--prefix", "head=emb", code=2)[0]


def _damage(name: str) -> None:
    state = Tied().state_dict()
    if name == "whole.pt":
        torch.save(nn.Linear(2, 2), name)
    elif name == "optimizer.pt":
        torch.save(torch.optim.Adam(Tied().parameters()).state_dict(), name)
    elif name == "numbers.pt":
        torch.save({"epoch": 3}, name)
    elif name == "list.pt":
        torch.save([torch.ones(2)], name)
    elif name == "two.pt":
        torch.save({"model": state, "state_dict": state}, name)
    elif name == "other.pt":
        torch.save({"generator": state, "critic": state}, name)
    elif name == "script.pt":
        torch.jit.save(torch.jit.trace(nn.Linear(2, 2), torch.ones(1, 2)), name)
    elif name.startswith("cut."):
        run = {"pt": torch.save, "safetensors": lambda s, f: save_file({"a": s["emb.weight"]}, f)}
        run.get(Path(name).suffix[1:], lambda s, f: np.savez(f, a=s["emb.weight"].numpy()))(state, name)
        Path(name).write_bytes(Path(name).read_bytes()[:-9])
    elif name == "objects.npz":
        np.savez(name, a=np.array([{}], dtype=object))
    elif name != "absent.pt":
        Path(name).write_bytes(b"" if name.startswith("empty") else b"no checkpoint at all")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent.pt", "no such file"),
        ("whole.pt", "holds more than arrays (torch.nn.modules.linear.Linear)"),
        ("optimizer.pt", "the state of an optimizer"),
        ("numbers.pt", "holds no arrays, but epoch"),
        ("list.pt", "holds a list"),
        ("two.pt", "--key state_dict or --key model"),
        ("other.pt", "--key generator or --key critic"),
        ("script.pt", "TorchScript"),
        ("cut.pt", "damaged"),
        ("cut.safetensors", "truncated"),
        ("cut.npz", "damaged"),
        ("empty.pt", "not a PyTorch checkpoint"),
        ("empty.safetensors", "not a safetensors file"),
        ("empty.npz", "not an .npz file"),
        ("junk.pt", "not a PyTorch checkpoint"),
        ("junk.safetensors", "not a safetensors file"),
        ("junk.npz", "not an .npz file"),
        ("objects.npz", "not an .npz file of plain arrays"),
        ("junk.index.json", "not an index"),
    ],
)
def test_bad_input_gets_one_line(run: Run, name: str, message: str) -> None:
    _damage(name)
    (line,) = run(name, "-o", "out.safetensors", code=2)
    assert line.startswith("jaxmigrate: error: ") and name in line and message in line
    assert not Path("out.safetensors").exists()


def test_places_that_cannot_be_written(tensors: Tensors, run: Run) -> None:
    torch.save(tensors, "in.pt")
    Path("taken").mkdir()
    assert "no known suffix" in run("in.pt", "-o", "a.foo", code=2)[0]
    assert "no folder" in run("in.pt", "-o", "none/a.npz", code=2)[0]
    assert "a folder that is no orbax checkpoint" in run("in.pt", "-o", "taken", code=2)[0]
    run("in.pt", "-o", "a.npz")
    assert "--key is for .pt files" in run("a.npz", "--key", "x", code=2)[0]


@pytest.mark.parametrize("out", ["a.pt", "a.npz", "a.safetensors"])
def test_a_full_disk_leaves_the_old_file(run: Run, tmp_path: Path, out: str) -> None:
    torch.save({"a": torch.ones(2)}, "small.pt")
    torch.save({"a": torch.ones(100_000)}, "large.pt")
    run("small.pt", "-o", out)
    before = Path(out).read_bytes()
    command = shlex.join([sys.executable, "-m", "jaxmigrate.cli", "weights", "large.pt", "-o", out])
    limited = f"ulimit -f 50; exec {command}"  # kilobytes
    answer = subprocess.run(["bash", "-c", limited], capture_output=True, text=True)
    assert answer.returncode == 2 and "cannot be written" in answer.stderr
    assert answer.stderr.count("\n") == 1
    assert Path(out).read_bytes() == before and not list(tmp_path.glob(".*.part"))
