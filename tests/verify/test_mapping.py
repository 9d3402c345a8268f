"""Hand-written ports: names and layouts are inferred, what is open is said, a wrong port is told from a right one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jaxmigrate.verify import CaseError, CaseReport, VerifyOptions, parse_case
from jaxmigrate.verify.mapping import NameMap, from_plain, infer, read_map
from jaxmigrate.verify.run import compare_case, run_converted, run_original

TORCH = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 4, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(4)
        self.fc = nn.Linear(4, 4)
        self.head = nn.Linear(4, 2)
    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x))).mean((2, 3))
        return self.head(torch.tanh(self.fc(x)))
"""
NNX = """
import jax
import jax.numpy as jnp
from flax import nnx
class Model(nnx.Module):
    def __init__(self, *, rngs):
        self.conv1 = nnx.Conv(3, 4, (3, 3), rngs=rngs)
        self.bn1 = nnx.BatchNorm(4, momentum=0.9, epsilon=1e-5, rngs=rngs)
        self.hidden = nnx.Linear(4, 4, rngs=rngs)
        self.out = nnx.Linear(4, 2, rngs=rngs)
    def __call__(self, x):
        x = nnx.relu(self.bn1(self.conv1(x))).mean((1, 2))
        return self.out(jnp.tanh(self.hidden(x)))
Net = Model
"""
LINEN = """
import jax.numpy as jnp
from flax import linen as nn
class Net(nn.Module):
    @nn.compact
    def __call__(self, x, train: bool):
        x = nn.Conv(4, (3, 3), name="conv1")(x)
        x = nn.relu(nn.BatchNorm(use_running_average=not train, momentum=0.9, epsilon=1e-5, name="bn1")(x))
        return nn.Dense(2)(jnp.tanh(nn.Dense(4)(x.mean((1, 2)))))
"""
WRONG = NNX.replace("epsilon=1e-5", "epsilon=1e-2")
EXAMPLE = "Net()(f32[8, 3, 5, 5])"


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CaseReport]:
    root = tmp_path_factory.mktemp("mapped")
    options = VerifyOptions(steps=1, precisions=(), jit=False)
    case = parse_case(EXAMPLE)
    (root / "net.py").write_text(TORCH)
    [torch] = run_original([(root / "net.py", case)], options, root / "torch")
    mapped = replace(options, map={"inputs": {"0": [0, 2, 3, 1]}})
    programs = []
    for name, text in (("nnx", NNX), ("linen", LINEN), ("wrong", WRONG)):
        (root / name).mkdir()
        (root / name / "port.py").write_text(text)
        programs.append((root / name / "port.py", case, root / "torch" / "0"))
    found = run_converted(programs, mapped, root / "jax")
    return {n: compare_case(case, torch, r, mapped) for n, r in zip(("nnx", "linen", "wrong"), found, strict=True)}


@pytest.mark.parametrize("name", ["nnx", "linen"])
def test_a_hand_written_port_is_equal(name: str, reports: dict[str, CaseReport]) -> None:
    report = reports[name]
    for stage in ("interface", "forward eval", "gradient eval", "forward train", "gradient train"):
        assert report.stage(stage).verdict == "equal", report.stage(stage)
    buffers = report.stage("buffers train")
    assert buffers.verdict == "different" and "bn1.running_var" in buffers.worst + buffers.detail  # Flax's is biased


def test_renamed_state_and_guesses_are_said(reports: dict[str, CaseReport]) -> None:
    notes = " ".join(reports["nnx"].notes)
    assert "conv1.weight = conv1.kernel" in notes and "fc.weight = hidden.kernel" in notes


def test_a_wrong_port_is_different(reports: dict[str, CaseReport]) -> None:
    assert reports["wrong"].stage("forward eval").verdict == "different"


def test_inference() -> None:
    torch = {"a.weight": (4, 4), "b.weight": (4, 4), "c.weight": (2, 4), "n.num_batches_tracked": ()}
    found = infer(torch, {"x.kernel": (4, 4), "y.kernel": (4, 4), "c.kernel": (4, 2)}, NameMap())
    assert found.names == {"c.weight": "c.kernel", "a.weight": "x.kernel", "b.weight": "y.kernel"}
    assert set(found.orders.values()) == {(1, 0)}
    assert found.guessed == ("paired in order of definition: a.weight = x.kernel, b.weight = y.kernel",)
    assert (found.missing, found.extra) == ((), ())
    said = infer(torch, {"x.kernel": (4, 4), "y.kernel": (4, 4), "c.kernel": (4, 2)}, NameMap({"a.weight": "y.kernel"}))
    assert said.names["b.weight"] == "x.kernel" and said.guessed == ()


def test_what_has_no_partner_and_what_fits_twice() -> None:
    found = infer({"a.weight": (4, 2), "p": (3, 3)}, {"a.kernel": (3, 2), "p": (3, 3)}, NameMap())
    assert (found.missing, found.extra) == (("a.weight",), ("a.kernel",))
    assert found.names == {"p": "p"} and found.guessed == ("several orders of axes fit p: taken [0, 1]",)


def test_map_files(tmp_path: Path) -> None:
    file = tmp_path / "names.toml"
    file.write_text(
        '[names]\n"fc.weight" = "Dense_0.kernel"\n[orders]\n"fc.weight" = [1, 0]\n[inputs]\n0 = [0, 2, 1]\n'
    )
    found = read_map(file)
    assert found == NameMap({"fc.weight": "Dense_0.kernel"}, {"fc.weight": (1, 0)}, {"0": (0, 2, 1)}, {})
    assert from_plain(found.plain()) == found
    for text, said in (
        ("[name]\n", "unknown table"),
        ("[orders]\na = [1, 1]\n", "expected an order"),
        ("x", "names.toml"),
    ):
        file.write_text(text)
        with pytest.raises(CaseError, match=said):
            read_map(file)
