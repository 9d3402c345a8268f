"""The whole way: two cases of one pair of files, one of them wrong deep inside; and the two forms of the report."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from jaxmigrate.verify import CaseError, VerifyOptions, VerifyReport, parse_case, render_table, report_json, verify_pair

from .programs import JAX, LINEAR, TORCH

BEFORE = (
    TORCH
    + """
class Act(nn.Module):
    def forward(self, x, k=1.0):
        return torch.tanh(x) * k
class Block(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.fc = nn.Linear(n, n)
        self.act = Act()
    def forward(self, x):
        return x + self.act(self.fc(x), k=0.5)
class Net(nn.Module):
    def __init__(self, n, wrong):
        super().__init__()
        self.body = nn.Sequential(*[Block(n) for _ in range(3)])
        self.head = nn.Linear(n, 2)
    def forward(self, x):
        return self.head(self.body(x))
"""
)
AFTER = (
    JAX
    + LINEAR
    + """
class Act(nnx.Module):
    def __init__(self, wrong):
        self.wrong = wrong
    def __call__(self, x, k=1.0):
        return jnp.tanh(x) * k + self.wrong
class Block(nnx.Module):
    def __init__(self, n, wrong, *, rngs):
        self.fc = Linear(n, n, rngs=rngs)
        self.act = Act(wrong)
    def __call__(self, x):
        return x + self.act(self.fc(x), k=0.5)
class Sequential(nnx.List):
    def __call__(self, x):
        for layer in self:
            x = layer(x)
        return x
class Net(nnx.Module):
    def __init__(self, n, wrong, *, rngs):
        self.body = Sequential([Block(n, 0.01 * (wrong and i > 0), rngs=rngs) for i in range(3)])
        self.head = Linear(n, 2, rngs=rngs)
    def __call__(self, x):
        return self.head(self.body(x))
"""
)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> VerifyReport:
    folder = tmp_path_factory.mktemp("pair")
    (folder / "net.py").write_text(BEFORE)
    (folder / "net_jax.py").write_text(AFTER)
    cases = [parse_case("Net(4, False)(f32[3, 4])"), parse_case("Net(4, True)(f32[3, 4])")]
    return verify_pair(folder / "net.py", folder / "net_jax.py", cases, VerifyOptions(steps=1))


def test_verdicts(report: VerifyReport) -> None:
    right, wrong = report.cases
    assert right.ok and right.divergence is None
    assert not wrong.ok and not report.ok
    assert report.exit_code == 1
    assert report.versions.keys() >= {"python", "torch", "jax", "flax"}
    assert report.device.lower().startswith(("cpu", "tfrt_cpu"))


def test_first_divergence_is_the_innermost(report: VerifyReport) -> None:
    found = report.cases[1].divergence
    assert found is not None
    assert (found.path, found.kind, found.call, found.mode) == ("body.1.act", "Act", 0, "eval")
    assert found.error == pytest.approx(0.01, rel=1e-4)
    assert found.text.startswith("body.1.act (Act), eval mode: its inputs agree and its output differs")


def test_first_statement_is_named_with_both_lines(report: VerifyReport) -> None:
    found = report.cases[1].statement
    assert found is not None and report.cases[0].statement is None
    line = next(n for n, text in enumerate(AFTER.splitlines(), 1) if "+ self.wrong" in text)
    assert (found.function, found.name, found.jax) == ("Act.__call__", "return", f"net_jax.py:{line}")
    assert "Act.__call__, call 2: return of net.py:6" in found.text


def test_errors_of_the_tree_and_curves(report: VerifyReport) -> None:
    errors = {h.path: h for h in report.cases[1].heat}
    assert errors["body.0"].made is not None and errors["body.0"].made <= errors["body.0"].tolerance
    assert errors["body.1.act"].made == pytest.approx(0.01, rel=0.1)
    assert [name for name, _ in report.cases[1].curves] == ["torch", "JAX, eager", "JAX, jit"]


def test_json(report: VerifyReport) -> None:
    data = json.loads(json.dumps(report_json(report), allow_nan=False))
    assert data["schema"] == "jaxmigrate-verify/1"
    assert data["ok"] is False
    assert [c["ok"] for c in data["cases"]] == [True, False]
    stage = data["cases"][0]["stages"][1]
    assert stage["name"] == "forward eval" and stage["how"] == "eager" and stage["verdict"] == "equal"
    assert stage["max_rel"] <= stage["tolerance"] == 2e-5
    assert data["cases"][1]["divergence"]["path"] == "body.1.act"


def test_table(report: VerifyReport) -> None:
    console = Console(file=io.StringIO(), width=160)
    render_table(report, console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "forward eval" in text and "2.0e-05" in text
    assert "first divergence: body.1.act (Act)" in text
    assert "not equal: 1 of 2 cases" in text


def test_no_case_and_no_file(tmp_path: Path) -> None:
    with pytest.raises(CaseError, match="nothing says what to run"):
        verify_pair(tmp_path / "a.py", tmp_path / "b.py", [])
    with pytest.raises(FileNotFoundError, match=r"a\.py: no such file"):
        verify_pair(tmp_path / "a.py", tmp_path / "b.py", [parse_case("fn(f32[3])")])
