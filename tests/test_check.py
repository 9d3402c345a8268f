"""The command `check`: baselines, limits and the readiness view, on real files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from jaxmigrate.cli import main

UNMAPPED = "import torch\n\n\ndef f(x: torch.Tensor):\n    return torch.no_such(x)\n"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def check(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["check", *arguments])
    captured = capfd.readouterr()
    return code, captured.out, captured.err


def test_a_baseline_lets_only_new_findings_fail(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.py").write_text(UNMAPPED, encoding="utf-8")
    assert check(capfd, "m.py", "--write-baseline", "known.json")[0] == 1
    assert check(capfd, "m.py", "--baseline", "known.json")[:2] == (0, "")
    (tmp_path / "m.py").write_text(f"# moved\n\n\n{UNMAPPED.replace('no_such(x)', 'no_such( x )')}", encoding="utf-8")
    assert check(capfd, "m.py", "--baseline", "known.json")[:2] == (0, ""), "moved lines and blanks do not matter"
    (tmp_path / "m.py").write_text(UNMAPPED + "\n\ny = torch.no_such(x)\nz = torch.no_such(x)\n", encoding="utf-8")
    code, out, err = check(capfd, "m.py", "--baseline", "known.json")
    assert (code, [line.split(":")[1] for line in out.splitlines()]) == (1, ["8", "9"]), "each further one is new"
    assert "against the baseline: 2 new, 1 known" in err
    (tmp_path / "m.py").write_text("import torch\n", encoding="utf-8")
    assert "1 finding of it no longer occur" in check(capfd, "m.py", "--baseline", "known.json")[2]


def test_a_baseline_is_the_same_from_any_folder(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/m.py").write_text(UNMAPPED, encoding="utf-8")
    check(capfd, "src", "--write-baseline", "known.json")
    (tmp_path / "pyproject.toml").write_text('[tool.jaxmigrate]\nbaseline = "known.json"\n', encoding="utf-8")
    assert check(capfd, str(tmp_path / "src/m.py"))[0] == 0
    monkeypatch.chdir(tmp_path / "src")
    assert check(capfd, "m.py")[0] == 0
    assert check(capfd, "m.py", "--baseline", "../known.json")[0] == 0


def test_known_findings_are_marked_in_reports(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.py").write_text(UNMAPPED + "\n\nx = torch.rand(3)  # jaxmigrate: accept[JM121]\n", encoding="utf-8")
    check(capfd, "m.py", "--write-baseline", "known.json")
    report = json.loads(check(capfd, "m.py", "--baseline", "known.json", "--format", "json")[1])
    schema = Path(__file__).parent.parent / "migrate/report/report.schema.json"
    jsonschema.validate(report, json.loads(schema.read_bytes()))
    states = {f["code"]: f.get("state") for f in report["findings"]}
    assert states["JM302"] == "known"
    assert states["JM121"] == "accepted"
    log = json.loads(check(capfd, "m.py", "--baseline", "known.json", "--format", "sarif")[1])
    found = {r["ruleId"]: (r.get("baselineState"), "suppressions" in r) for r in log["runs"][0]["results"]}
    assert found["JM302"] == ("unchanged", False)
    assert found["JM121"] == (None, True)


def test_accepted_codes_do_not_fail(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.py").write_text(UNMAPPED, encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text('[tool.jaxmigrate]\naccept = ["JM302"]\n', encoding="utf-8")
    code, out, err = check(capfd, "m.py")
    assert (code, out) == (0, "")
    assert "accepted by settings or comments: 1 finding" in err


@pytest.mark.parametrize(("least", "code"), [("50", 0), ("67", 1), ("100", 1), ("0", 0)])
def test_fail_under(tmp_path: Path, capfd: pytest.CaptureFixture[str], least: str, code: int) -> None:
    (tmp_path / "m.py").write_text(UNMAPPED, encoding="utf-8")  # 1 of 2 constructs, 50 %
    found, _, err = check(capfd, "m.py", "--fail-on", "never", "--fail-under", least)
    assert found == code
    assert ("is less than --fail-under" in err) is bool(code)
    assert check(capfd, "m.py", "--fail-on", "never", "--fail-under", least, "--exit-zero")[0] == 0
    (tmp_path / "pyproject.toml").write_text(f"[tool.jaxmigrate]\nfail-under = {least}\n", encoding="utf-8")
    assert check(capfd, "m.py", "--fail-on", "never")[0] == code


def test_a_dry_run_writes_no_baseline(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.py").write_text(UNMAPPED, encoding="utf-8")
    assert "would write known.json" in check(capfd, "m.py", "--write-baseline", "known.json", "--dry-run")[2]
    assert not (tmp_path / "known.json").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--baseline", "gone.json"], "gone.json: no such file or directory"),
        (["--baseline", "m.py"], "m.py: not a baseline: "),
        (["--baseline", "old.json"], "old.json: not a baseline of this version: 'x'"),
        (["--baseline", "odd.json"], "odd.json: not a baseline; write one with --write-baseline"),
        (["--write-baseline", "folder"], "folder: a folder, not a file"),
        (["--readiness", "--format", "sarif"], "--readiness has the formats text, markdown, json, not sarif"),
        (["--readiness", "--baseline", "x"], "--readiness looks at all findings"),
        (["--fail-under", "101"], "Invalid value for '--fail-under'"),
    ],
)
def test_wrong_uses(tmp_path: Path, capfd: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    (tmp_path / "m.py").write_text(UNMAPPED, encoding="utf-8")
    (tmp_path / "old.json").write_text('{"schema": "x"}', encoding="utf-8")
    (tmp_path / "odd.json").write_text('{"schema": "jaxmigrate-baseline/1", "findings": 3}', encoding="utf-8")
    (tmp_path / "folder").mkdir()
    code, out, err = check(capfd, "m.py", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"jaxmigrate: error: {message}")


def test_readiness_of_a_real_project(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    files = {
        "whole.py": "import torch\n\nx = torch.zeros(3)\n",
        "serve.py": "import torch\nfrom ts.torch_handler.base_handler import BaseHandler\n\n\n"
        "class H(BaseHandler):\n    x = torch.zeros(3)\n",
        "own.py": "import torch.fx\n\na = torch.zeros(1)\nb = torch.ones(1)\ng = torch.fx.symbolic_trace(print)\n",
        "csrc/k.cu": "__global__ void k() {}\n",
        "csrc/ext.cpp": "#include <torch/extension.h>\n",
        "csrc/plain.cpp": "int main() {}\n",
        "none.py": "x = 1\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    code, out, _ = check(capfd, ".", "--readiness", "--format", "json")
    assert code == 0, "a view, not a gate"
    data = json.loads(out)
    by_path = {f["path"]: f for f in data["files"]}
    assert {n: f["advice"] for n, f in by_path.items()} == {
        "none.py": "nothing to do", "own.py": "in part", "serve.py": "not yet", "whole.py": "now",
    }  # fmt: skip
    assert by_path["serve.py"]["ties"] == ["TorchServe"]
    assert by_path["own.py"]["ties"] == ["TorchScript or fx"]
    assert data["extensions"] == ["csrc/ext.cpp", "csrc/k.cu"]
    assert data["advice"] == "in part"
    table = check(capfd, ".", "--readiness")[1]
    assert [line.split()[0] for line in table.splitlines()[1:4]] == ["whole.py", "own.py", "serve.py"]
    assert check(capfd, ".", "--readiness", "--fail-under", "100")[0] == 1


def test_the_workflow_commands_of_the_docs_run(tmp_path: Path) -> None:
    """The hooks file names commands that exist and that do what they say."""
    import yaml

    hooks = yaml.safe_load((Path(__file__).parent.parent / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    (tmp_path / "m.py").write_text("import torch\n\nx = torch.zeros(3)\n", encoding="utf-8")
    for hook in hooks:
        program, *words = hook["entry"].split()
        command = [str(Path(sys.executable).with_name(program)), *words, *hook.get("args", ()), "m.py"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == (1 if "--check" in command else 0), done.stderr
