"""`verify --script`: whole training scripts, run under torch and without it."""

from __future__ import annotations

import textwrap
from pathlib import Path

import numpy as np
import pytest

from jaxmigrate.cli import main
from jaxmigrate.verify import VerifyOptions, verify_script
from jaxmigrate.verify.mirror import mirror

MODEL = """
    import torch.nn as nn

    class Net(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(4, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.25))
            self.head = nn.Linear(width, 1)

        def forward(self, x):
            return self.head(self.layers(x))
"""
TRAIN = """
    import argparse
    import numpy as np
    import torch
    import torch.nn.functional as F
    from torch.utils.data import DataLoader, TensorDataset
    from nets.net import Net

    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(7)
    x = torch.from_numpy(np.load("../data/x.npy"))
    data = TensorDataset(x, x.sum(1, keepdim=True))
    model = Net(args.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(2):
        for a, b in DataLoader(data, batch_size=8, shuffle=True):
            optimizer.zero_grad()
            loss = F.mse_loss(model(a + 0.01 * torch.randn(8, 4)), b)
            loss.backward()
            optimizer.step()
        torch.save(model.state_dict(), "model.pt")
    raise SystemExit(0)
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "repo" / "train"
    (folder / "nets").mkdir(parents=True)
    (tmp_path / "repo" / "data").mkdir()
    np.save(tmp_path / "repo" / "data" / "x.npy", np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32))
    (folder / "nets" / "__init__.py").write_text("")
    (folder / "nets" / "net.py").write_text(textwrap.dedent(MODEL))
    (folder / "train.py").write_text(textwrap.dedent(TRAIN))
    (folder / "model.pt").write_text("an older one")
    monkeypatch.chdir(folder)
    return folder


def test_a_script_with_its_package_arguments_data_and_noise_is_equal(
    project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Shuffling, dropout inside a compiled step and noise are torch's draws; what it writes is lost."""
    code = main(["verify", "train.py", "--script", "--args", "--width 6"])
    shown = capfd.readouterr().out
    assert code == 0, shown
    rows = {tuple(line.split()[:3]) for line in shown.splitlines()}
    assert {("losses", "eager", "equal"), ("losses", "jit", "equal"), ("draws", "eager", "holds")} <= rows
    assert "8 losses of 8 optimizer steps" in shown
    assert (project / "model.pt").read_text() == "an older one"


def test_another_learning_rate_is_different_from_the_second_loss_on(tmp_path: Path) -> None:
    script = """
        import torch

        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x = torch.ones(2, 3)
        for step in range(4):
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """
    original, converted = tmp_path / "a.py", tmp_path / "out" / "a.py"
    converted.parent.mkdir()
    original.write_text(textwrap.dedent(script))
    main(["convert", str(original), "-o", str(converted.parent)])
    converted.write_text(converted.read_text().replace("0.1)", "0.11)"))
    report = verify_script(original, converted, (), VerifyOptions(steps=3, jit=False))
    assert not report.ok
    stage = report.cases[0].stage("losses", "eager")
    assert stage.verdict == "different"
    assert stage.compared == "3 losses of 3 optimizer steps"
    assert stage.worst.startswith("loss 3: ")
    curves = dict(report.cases[0].curves)
    assert curves["torch"][0] == pytest.approx(curves["JAX, eager"][0], rel=1e-6)
    assert curves["torch"][1] != pytest.approx(curves["JAX, eager"][1], rel=1e-4)


def test_scripts_that_fail_say_where(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("import torch\nx = torch.ones(2)\nx.no_such_method()\n")
    good = tmp_path / "good.py"
    good.write_text("print('nothing to train')\n")
    [stage] = verify_script(bad, good).cases[0].stages
    assert stage.verdict == "failed"
    assert "torch side: AttributeError" in stage.detail
    assert "(bad.py:3)" in stage.detail


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--args", "--epochs 1"], "--args is for --script"),
        (["--script", "--build", "Net(8)"], "--script runs the whole file: --build says nothing to it"),
        (["--script", "--bench"], "--script runs the whole file: --bench says nothing to it"),
    ],
)
def test_options_that_do_not_go_together(
    arguments: list[str], says: str, project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", "train.py", *arguments]) == 2
    assert says in " ".join(capfd.readouterr().err.split())


def test_what_would_run(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "train.py", "--script", "--args", "--width 6", "--dry-run"]) == 0
    assert capfd.readouterr().out == "would run python train.py --width 6\n"


def test_the_mirror_can_be_written_without_touching_what_it_shows(project: Path, tmp_path: Path) -> None:
    inside = mirror(project, tmp_path / "scratch")
    (inside / "model.pt").write_text("new")
    (inside / "nets" / "more.txt").write_text("new")
    assert (inside / ".." / "data" / "x.npy").is_file()
    assert (project / "model.pt").read_text() == "an older one"
    assert sorted(p.name for p in (project / "nets").iterdir()) == ["__init__.py", "net.py"]
