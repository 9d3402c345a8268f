"""The command line, from arguments to output and exit code, on real files."""

from __future__ import annotations

import json
import os
import pty
import re
import resource
import stat
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jsonschema
import pytest

from jaxmigrate import __version__
from jaxmigrate.cli import main
from jaxmigrate.report.findings import CODES
from jaxmigrate.syntax import version_hint

CLEAN = """import torch
import torch.nn as nn


class Net(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.fc = nn.Linear(3, width)

    def forward(self, x):
        return torch.cat([self.fc(x), self.fc(x)], dim=1)  # twice
"""
UNMAPPED = "import torch\n\n\ndef f(x):\n    return torch.no_such_function(x)\n"
PLAIN = "x = 1\n"


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str


Run = Callable[..., Answer]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command line in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> Answer:
        code = main([str(a) for a in arguments])
        captured = capfd.readouterr()
        return Answer(code, captured.out, captured.err)

    return call


def process(
    *arguments: object, cwd: Path, stdin: bytes = b"", under: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[bytes]:
    """Run the command line in a process of its own, started by the command `under`."""
    command = [*under, sys.executable, "-m", "jaxmigrate.cli", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, input=stdin, capture_output=True, check=False)


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def write_no_notebook(path: Path) -> None:
    """JSON that is also a Python expression, and no notebook."""
    path.write_text(json.dumps({"cells": [], "metadata": {}}), encoding="utf-8")


def listing(folder: Path) -> dict[str, str]:
    return {
        p.relative_to(folder).as_posix(): p.read_text(encoding="utf-8")
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }


def error_line(answer: Answer) -> str:
    """The one line on standard error, without the program's name."""
    assert answer.out == ""
    (line,) = answer.err.splitlines()
    assert line.startswith("jaxmigrate: error: ")
    return line.removeprefix("jaxmigrate: error: ")


# Convert: showing


def test_the_diff_is_shown_and_nothing_is_written(run: Run, tmp_path: Path) -> None:
    write(tmp_path, m=CLEAN)
    before = listing(tmp_path)
    answer = run("convert", "m.py")
    assert answer.code == 0
    assert answer.out.startswith("--- a/m.py\n+++ b/m.py\n@@ -")
    assert "-import torch\n" in answer.out
    assert re.search(r"^@@ .* @@ .*torch\.cat -> jnp\.concatenate\(.*\) \[JM001\]", answer.out, re.MULTILINE)
    assert "1 file: 1 changed" in answer.err
    assert "nnx_layers.py holds the layers in use: Linear; -o or -w writes it" in answer.err
    assert listing(tmp_path) == before


def test_the_shown_diff_applied_by_git_is_the_written_file(run: Run, tmp_path: Path) -> None:
    write(tmp_path, m=CLEAN)
    subprocess.run(["git", "init", "-q"], check=True)
    patch = run("convert", "m.py").out
    assert run("convert", "m.py", "-o", "out.py").code == 0
    subprocess.run(["git", "apply", "-"], input=patch.encode(), check=True)
    assert (tmp_path / "m.py").read_bytes() == (tmp_path / "out.py").read_bytes()


def test_a_file_without_torch_is_left_alone(run: Run, tmp_path: Path) -> None:
    write(tmp_path, m=PLAIN)
    answer = run("convert", "m.py")
    assert (answer.code, answer.out) == (0, "")
    assert "1 file: 1 skipped" in answer.err


def test_an_empty_file(run: Run, tmp_path: Path) -> None:
    write(tmp_path, m="")
    assert run("convert", "m.py").code == 0
    assert run("convert", "m.py", "-o", "out.py").code == 0
    assert (tmp_path / "out.py").read_bytes() == b""


def test_findings_are_lines_with_a_place(run: Run, tmp_path: Path) -> None:
    write(tmp_path, m=UNMAPPED)
    answer = run("convert", "m.py")
    assert answer.code == 1
    assert re.search(r"^m\.py:5:12: JM302 torch\.no_such_function: .", answer.err, re.MULTILINE)
    assert "unmapped: torch.no_such_function (1)" in answer.err


def test_the_example_of_the_readme_is_true(run: Run, tmp_path: Path) -> None:
    readme = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
    before, after = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    (tmp_path / "head.py").write_text(before, encoding="utf-8")
    assert run("convert", "head.py", "-o", "head_jax.py").code == 0
    assert (tmp_path / "head_jax.py").read_text(encoding="utf-8") == after


# Convert: writing


def test_a_file_to_a_file_with_its_layers_beside_it(run: Run, tmp_path: Path) -> None:
    write(tmp_path, m=CLEAN)
    answer = run("convert", "m.py", "-o", "new/m_jax.py")
    assert (answer.code, answer.out) == (0, "")
    assert set(listing(tmp_path)) == {"m.py", "new/m_jax.py", "new/nnx_layers.py"}
    assert "from nnx_layers import" in (tmp_path / "new/m_jax.py").read_text(encoding="utf-8")
    assert "wrote new/m_jax.py" in answer.err
    assert "wrote new/nnx_layers.py" in answer.err


def test_a_folder_to_a_folder(run: Run, tmp_path: Path) -> None:
    write(tmp_path, src__a=CLEAN, src__pkg__b=PLAIN, src__build__c=CLEAN)
    (tmp_path / "src/data.txt").write_text("torch", encoding="utf-8")
    assert run("convert", "src", "-o", "out").code == 0
    assert set(listing(tmp_path / "out")) == {"a.py", "pkg/b.py", "nnx_layers.py"}
    assert (tmp_path / "out/pkg/b.py").read_text(encoding="utf-8") == PLAIN


def test_an_output_folder_inside_the_input_is_not_converted_again(run: Run, tmp_path: Path) -> None:
    write(tmp_path, a=CLEAN)
    assert run("convert", ".", "-o", "out").code == 0
    first = listing(tmp_path)
    assert run("convert", ".", "-o", "out").code == 0
    assert listing(tmp_path) == first


def test_in_place(run: Run, tmp_path: Path) -> None:
    write(tmp_path, m=CLEAN, plain=PLAIN)
    (tmp_path / "m.py").chmod(0o750)
    answer = run("convert", ".", "-w")
    assert (answer.code, answer.err.splitlines()[:2]) == (0, ["wrote m.py", "wrote nnx_layers.py"])
    assert stat.S_IMODE((tmp_path / "m.py").stat().st_mode) == 0o750
    assert set(listing(tmp_path)) == {"m.py", "plain.py", "nnx_layers.py"}
    assert "torch" not in (tmp_path / "m.py").read_text(encoding="utf-8")
    second = listing(tmp_path)
    assert run("convert", ".", "-w").code == 0
    assert listing(tmp_path) == second


def git(*arguments: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", *identity, *arguments], check=True, capture_output=True)


def test_in_place_refuses_what_git_could_not_give_back(run: Run, tmp_path: Path) -> None:
    write(tmp_path, m=CLEAN, plain=PLAIN)
    git("init", "-q")
    before = listing(tmp_path / ".")
    answer = run("convert", ".", "-w")
    assert answer.code == 2
    assert error_line(answer) == f"{tmp_path}/m.py: not committed in git; commit first, or use --force"
    assert (tmp_path / "m.py").read_text(encoding="utf-8") == CLEAN
    assert before.keys() == listing(tmp_path).keys()
    git("add", "m.py")
    git("commit", "-qm", "x")  # plain.py stays untracked: it would not change, so it does not matter
    assert run("convert", ".", "-w").code == 0


def test_force_writes_over_uncommitted_changes(run: Run, tmp_path: Path) -> None:
    write(tmp_path, m=CLEAN)
    git("init", "-q")
    assert run("convert", "m.py", "-w", "--force").code == 0
    assert (tmp_path / "m.py").read_text(encoding="utf-8") != CLEAN


def test_an_edited_layer_file_stops_the_whole_write(run: Run, tmp_path: Path) -> None:
    write(tmp_path, m=CLEAN, out__nnx_layers="class LayerNorm:\n    mine = 1\n")
    before = listing(tmp_path)
    answer = run("convert", "m.py", "-o", "out/")
    assert answer.code == 2
    assert error_line(answer).startswith("out/nnx_layers.py: lacks Linear and was edited;")
    assert listing(tmp_path) == before
    assert run("convert", "m.py", "-o", "out/", "--force").code == 0
    assert "class Linear" in listing(tmp_path)["out/nnx_layers.py"]


def test_two_runs_into_one_folder_share_the_layer_file(run: Run, tmp_path: Path) -> None:
    write(tmp_path, a=CLEAN, b=CLEAN.replace("nn.Linear(3, width)", "nn.Conv2d(3, width, 3)"))
    assert run("convert", "a.py", "-o", "out/").code == 0
    assert run("convert", "b.py", "-o", "out/").code == 0
    layers = listing(tmp_path)["out/nnx_layers.py"]
    assert "class Linear" in layers
    assert "class Conv2d" in layers


def test_line_ends_and_encoding_survive(run: Run, tmp_path: Path) -> None:
    source = ("# -*- coding: latin-1 -*-\n# Gr\xf6\xdfe\n" + CLEAN).replace("\n", "\r\n").encode("latin-1")
    (tmp_path / "m.py").write_bytes(source)
    assert run("convert", "m.py", "-o", "out.py").code == 0
    result = (tmp_path / "out.py").read_bytes()
    assert "# Gr\xf6\xdfe\r\n".encode("latin-1") in result
    assert result.count(b"\n") == result.count(b"\r\n")


def test_todo_comments_unless_told_not_to(run: Run, tmp_path: Path) -> None:
    write(tmp_path, m=UNMAPPED)
    run("convert", "m.py", "-o", "with.py")
    run("convert", "m.py", "-o", "without.py", "--no-todo")
    assert "# TODO(jaxmigrate JM302)" in (tmp_path / "with.py").read_text(encoding="utf-8")
    assert (tmp_path / "without.py").read_text(encoding="utf-8") == UNMAPPED
    (tmp_path / "pyproject.toml").write_text("[tool.jaxmigrate]\ntodo = false\n", encoding="utf-8")
    run("convert", "m.py", "-o", "settings.py")
    run("convert", "m.py", "-o", "over.py", "--todo")
    assert (tmp_path / "settings.py").read_text(encoding="utf-8") == UNMAPPED
    assert "TODO" in (tmp_path / "over.py").read_text(encoding="utf-8")


# Convert: not writing


@pytest.mark.parametrize("how", [["-w"], ["-o", "out"], ["--check"], ["-w", "--force"], ["-o", "out", "--report", "r"]])
def test_a_dry_run_writes_nothing(run: Run, tmp_path: Path, how: list[str]) -> None:
    write(tmp_path, m=CLEAN)
    before = listing(tmp_path)
    answer = run("convert", ".", *how, "--dry-run")
    assert listing(tmp_path) == before
    if "--check" not in how:
        assert answer.code == 0
        assert answer.out.startswith("--- a/m.py\n")
        assert re.search(r"would write .*m\.py", answer.err)
        assert "wrote" not in answer.err


def test_check_tells_what_would_change(run: Run, tmp_path: Path) -> None:
    write(tmp_path, m=CLEAN, plain=PLAIN)
    answer = run("convert", ".", "--check")
    assert (answer.code, answer.out) == (1, "")
    assert "would change m.py" in answer.err
    assert "plain.py" not in answer.err
    assert run("convert", ".", "--check", "--exit-zero").code == 0
    assert run("convert", "plain.py", "--check").code == 0
    assert run("convert", "m.py", "--check", "--diff").out.startswith("--- a/m.py\n")


# Standard input


def test_standard_input_to_standard_output(tmp_path: Path) -> None:
    write(tmp_path, m=CLEAN)
    assert process("convert", "m.py", "-o", "out.py", cwd=tmp_path).returncode == 0
    piped = process("convert", "-", cwd=tmp_path, stdin=CLEAN.encode())
    assert piped.returncode == 0
    assert piped.stdout == (tmp_path / "out.py").read_bytes()
    assert b"1 file: 1 changed" in piped.stderr
    assert process("convert", "-", "--diff", cwd=tmp_path, stdin=CLEAN.encode()).stdout.startswith(b"--- a/<stdin>")
    assert process("convert", "-", "-o", "piped.py", cwd=tmp_path, stdin=CLEAN.encode()).stdout == b""
    assert (tmp_path / "piped.py").read_bytes() == (tmp_path / "out.py").read_bytes()
    plain = process("convert", "-", cwd=tmp_path, stdin=PLAIN.encode())
    assert (plain.returncode, plain.stdout) == (0, PLAIN.encode())


@pytest.mark.parametrize(
    ("arguments", "stdin", "code", "message"),
    [
        (["-", "-w"], b"", 2, b"standard input cannot be converted in place"),
        (["-", "m.py"], b"", 2, b"- reads standard input and stands alone"),
        (["-"], b"\0\1", 2, b"<stdin>: a binary file, not Python source"),
        (["-"], b"x = '\xff'\n", 3, b"<stdin>:1:6: JM901: byte 0xff is not utf-8"),
        (["-"], b"import torch\nx = (\n", 3, b"<stdin>:2:5: JM901"),
    ],
)
def test_standard_input_that_cannot_be_converted(
    tmp_path: Path, arguments: list[str], stdin: bytes, code: int, message: bytes
) -> None:
    done = process("convert", *arguments, cwd=tmp_path, stdin=stdin)
    assert (done.returncode, done.stdout) == (code, b"")
    assert message in done.stderr


# Reports and exit codes


def schema() -> dict[str, object]:
    from importlib import resources

    return json.loads((resources.files("jaxmigrate.report") / "report.schema.json").read_bytes())  # type: ignore[no-any-return]


def test_the_report_of_a_real_run_follows_the_schema(run: Run, tmp_path: Path) -> None:
    write(tmp_path, a=CLEAN, b=UNMAPPED, c=PLAIN, d="import torch\nx = (\n")
    (tmp_path / "pyproject.toml").write_text("[tool.jaxmigrate]\ntodo = false\n", encoding="utf-8")
    assert run("convert", ".", "--report", "out/report.json").code == 3
    report = json.loads((tmp_path / "out/report.json").read_bytes())
    jsonschema.validate(report, schema())
    assert [f["status"] for f in report["files"]] == ["changed", "unchanged", "skipped", "failed"]
    assert [f["torch_free"] for f in report["files"]][:2] == [True, False]
    shown = run("check", ".", "--format", "json")
    assert shown.code == 3
    assert json.loads(shown.out) == report
    counted = report["summary"]["constructs"]
    assert sum(counted.values()) == report["summary"]["rate"]["of"] > 0
    for finding in report["findings"]:
        lines = (tmp_path / finding["path"]).read_text(encoding="utf-8").splitlines()
        assert 1 <= finding["range"]["start"][0] <= len(lines)


@pytest.mark.parametrize("command", ["convert", "check"])
def test_fail_on(run: Run, tmp_path: Path, command: str) -> None:
    write(tmp_path, clean=CLEAN, unmapped=UNMAPPED, random="import torch\n\nx = torch.rand(2, 3)\n")
    codes = {
        (name, level): run(command, f"{name}.py", "--fail-on", level).code
        for name in ("clean", "random", "unmapped")
        for level in ("note", "warning", "error", "never")
    }
    assert codes == {
        ("clean", "note"): 1, ("clean", "warning"): 0, ("clean", "error"): 0, ("clean", "never"): 0,
        ("random", "note"): 1, ("random", "warning"): 1, ("random", "error"): 0, ("random", "never"): 0,
        ("unmapped", "note"): 1, ("unmapped", "warning"): 1, ("unmapped", "error"): 1, ("unmapped", "never"): 0,
    }  # fmt: skip
    assert run(command, "unmapped.py").code == 1
    assert run(command, "unmapped.py", "--exit-zero").code == 0
    (tmp_path / "pyproject.toml").write_text('[tool.jaxmigrate]\nfail-on = "never"\n', encoding="utf-8")
    assert run(command, "unmapped.py").code == 0
    assert run(command, "unmapped.py", "--fail-on", "error").code == 1


def test_a_fault_is_not_hidden_by_exit_zero(run: Run, tmp_path: Path) -> None:
    write(tmp_path, m="import torch\nx = (\n")
    assert run("check", "m.py", "--exit-zero", "--fail-on", "never").code == 3


def test_check_shows_findings_and_writes_nothing(run: Run, tmp_path: Path) -> None:
    write(tmp_path, a=CLEAN, b=UNMAPPED)
    before = listing(tmp_path)
    answer = run("check", ".")
    assert answer.code == 1
    assert [line.split()[1] for line in answer.out.splitlines()] == ["JM302"]
    assert "2 files: 2 changed" in answer.err
    assert any(" JM001 " in line for line in run("check", ".", "--fail-on", "note").out.splitlines())
    assert listing(tmp_path) == before
    assert run("check", ".", "--report", "r.json", "--dry-run").code == 1
    assert listing(tmp_path) == before


# Bad input: one line and the right code


@pytest.mark.parametrize("command", ["convert", "check"])
def test_bad_input(run: Run, tmp_path: Path, command: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "model.pt").write_bytes(b"PK\x03\x04\x00\x00")
    write_no_notebook(tmp_path / "n.ipynb")
    (tmp_path / "wide.py").write_bytes("import torch\n".encode("utf-16"))
    os.mkfifo(tmp_path / "pipe")
    for path, message in {
        "gone.py": "gone.py: no such file or directory",
        "empty": "empty: no Python file in this folder",
        "model.pt": "model.pt: a binary file, not Python source",
        "wide.py": "wide.py: UTF-16 text, which Python does not read; save it as UTF-8",
        "pipe": "pipe: neither a file nor a folder",
        "n.ipynb": "n.ipynb: not a notebook: its JSON has no nbformat",
    }.items():
        answer = run(command, path)
        assert (answer.code, error_line(answer)) == (2, message)


@pytest.mark.parametrize(
    ("source", "place", "hint"),
    [
        (b"import torch\nx = (\n", "2:5", ""),
        (b"import torch\nprint 'x'\n", "2:1", "Python 2"),
        (b"import torch\nexec 'x'\n", "2:1", "Python 2"),
        (b"import torch\nraise E, 'x'\n", "2:8", "Python 2"),
        (b"import torch\nx = 0777\n", "2:5", "Python 2"),
        (b"import torch\nif x:\n        a\n\tb\n", "4:1", "Python 2"),
        (b"import torch\nx = a <> b\n", "2:7", "Python 2"),
    ],
)
def test_source_that_does_not_parse(run: Run, tmp_path: Path, source: bytes, place: str, hint: str) -> None:
    (tmp_path / "m.py").write_bytes(source)
    answer = run("convert", "m.py", "-o", "out.py")
    assert (answer.code, answer.out) == (3, "")
    (line,) = [text for text in answer.err.splitlines() if "JM901" in text]
    assert line.startswith(f"m.py:{place}: JM901: ")
    assert hint in line
    assert not (tmp_path / "out.py").exists()


@pytest.mark.parametrize(
    ("line", "message", "running", "hint"),
    [
        ("    except E, e:", "multiple exception types must be parenthesized", (3, 11), "This is Python 2 (or 3.14)"),
        ("print >>f, x", "Missing parentheses in call to 'print'", (3, 13), "This is Python 2"),
        ("x = 10L", "invalid decimal literal", (3, 13), "This is Python 2"),
        (
            "type Pair = tuple[int, int]",
            "invalid syntax",
            (3, 11),
            "This needs Python 3.12 or newer; jaxmigrate runs on 3.11",
        ),
        ("def first[T](xs: list[T]) -> T:", "expected '('", (3, 11), "This needs Python 3.12 or newer"),
        ("x = f'{a['b']}'", "f-string: expecting '}'", (3, 11), "This needs Python 3.12 or newer"),
        ("x = t'{y}'", "invalid syntax", (3, 13), "This needs Python 3.14 or newer"),
        ("type Pair = = int", "invalid syntax", (3, 12), ""),
        ("x = (", "'(' was never closed", (3, 11), ""),
        ("print = 3 +", "invalid syntax", (3, 11), ""),
        ("x = 10 if y else", "expected expression", (3, 11), ""),
        ("x = 1e05 0.05 +", "invalid syntax", (3, 11), ""),
    ],
)
def test_which_python_could_read_it(line: str, message: str, running: tuple[int, int], hint: str) -> None:
    found = version_hint(line, message, running)
    assert found.startswith(hint)
    assert bool(found) is bool(hint)


def test_undecodable_source(run: Run, tmp_path: Path) -> None:
    (tmp_path / "m.py").write_bytes(b"import torch\nx = '\xff'\n")
    answer = run("convert", "m.py")
    assert (answer.code, answer.out) == (3, "")
    assert "m.py:2:6: JM901: byte 0xff is not utf-8" in answer.err


def test_one_bad_file_does_not_stop_the_others(run: Run, tmp_path: Path) -> None:
    write(tmp_path, a=CLEAN, b="import torch\nx = (\n", d=PLAIN)
    (tmp_path / "c.py").write_bytes(b"\0")
    answer = run("convert", ".", "-o", "out")
    assert answer.code == 3
    assert set(listing(tmp_path / "out")) == {"a.py", "d.py", "nnx_layers.py"}
    assert "4 files: 1 changed, 1 skipped, 2 failed" in answer.err


# root may read and write everything: take that right away for the process that is tested.
BOUND = ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--") if os.geteuid() == 0 else ()


def test_permission_denied(tmp_path: Path) -> None:
    write(tmp_path, secret=CLEAN, open=CLEAN)
    (tmp_path / "secret.py").chmod(0o000)
    (tmp_path / "shut").mkdir(mode=0o555)
    unreadable = process("convert", "secret.py", cwd=tmp_path, under=BOUND)
    assert (unreadable.returncode, unreadable.stdout) == (2, b"")
    assert unreadable.stderr == b"jaxmigrate: error: secret.py: permission denied\n"
    unwritable = process("convert", "open.py", "-o", "shut/out.py", cwd=tmp_path, under=BOUND)
    assert unwritable.returncode == 2
    assert b"error: shut/out.py: permission denied" in unwritable.stderr
    folder = process("check", ".", cwd=tmp_path, under=BOUND)
    assert folder.returncode == 3
    assert b"secret.py:1:1: JM901: permission denied" in folder.stdout


def test_outputs_that_cannot_be(run: Run, tmp_path: Path) -> None:
    write(tmp_path, src__a=CLEAN, file=PLAIN)
    (tmp_path / "r").mkdir()
    for arguments, message in {
        ("src", "-o", "file.py"): "file.py: a file, but the output of a folder needs a folder",
        ("src/a.py", "-o", "src/a.py"): "src/a.py: would overwrite an input; use --write to convert in place",
        ("src/a.py", "-o", "file.py/x.py"): "file.py/x.py: file.py is a file, not a folder",
        ("src/a.py", "--report", "r"): "r: a folder, not a file",
        ("src", "-o", "out", "--report", "r"): "r: a folder, not a file",
        ("src", "-o", "out", "-w"): "Invalid value: --write and --output exclude each other",
        ("src", "--check", "-w"): "Invalid value: --check writes nothing: it excludes --write and --output",
    }.items():
        before = listing(tmp_path)
        answer = run("convert", *arguments)
        assert (answer.code, error_line(answer)) == (2, message)
        assert listing(tmp_path) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["convert"], "Missing argument 'PATH...'"),
        (["convert", "m.py", "--fail-on", "sometimes"], "Invalid value for '--fail-on': 'sometimes' is not one of"),
        (["check", "m.py", "--format", "xml"], "Invalid value for '--format': 'xml' is not one of"),
        (["convert", "m.py", "--no-such-option"], "No such option: --no-such-option"),
        (["transmogrify"], "No such command 'transmogrify'"),
    ],
)
def test_usage_errors(run: Run, arguments: list[str], message: str) -> None:
    answer = run(*arguments)
    assert answer.code == 2
    assert error_line(answer).startswith(message)


def test_wrong_settings(run: Run, tmp_path: Path) -> None:
    write(tmp_path, m=CLEAN)
    (tmp_path / "pyproject.toml").write_text("[tool.jaxmigrate]\nrule = []\n", encoding="utf-8")
    answer = run("convert", "m.py")
    assert answer.code == 2
    assert "has no key 'rule'; did you mean 'rules'?" in error_line(answer)


# Rules of one's own


RULE = '["torch.no_such_function"]\nsig = "input"\nto = "jnp.tanh({input})"\ncases = [["torch.no_such_function(x)", "jnp.tanh(x)"]]\nnumeric = false\nwhy = "made up"\n'  # noqa: E501


def test_a_rule_file_of_ones_own(run: Run, tmp_path: Path) -> None:
    write(tmp_path, m=UNMAPPED)
    (tmp_path / "my.toml").write_text(RULE, encoding="utf-8")
    answer = run("convert", "m.py", "--rules", "my.toml")
    assert answer.code == 0
    assert "+    return jnp.tanh(x)\n" in answer.out
    assert "jnp.tanh" in run("explain", "torch.no_such_function", "--rules", "my.toml").out
    (tmp_path / "pyproject.toml").write_text('[tool.jaxmigrate]\nrules = ["my.toml"]\n', encoding="utf-8")
    assert run("convert", "m.py").code == 0
    assert "torch.no_such_function" in run("rules").out


def test_the_example_of_the_contributing_guide_is_true(run: Run, tmp_path: Path) -> None:
    guide = (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"```toml\n(.*?)```", guide, re.DOTALL)
    (tmp_path / "my.toml").write_text(row, encoding="utf-8")
    for before, after in tomllib.loads(row)["torch.constant_pad_nd"]["cases"]:
        write(tmp_path, m=f"import torch\n\n\ndef f(x: torch.Tensor):\n    return {before}\n")
        assert f"+    return {after}\n" in run("convert", "m.py", "--rules", "my.toml").out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[torch", "my.toml: not TOML: "),
        (RULE.replace("cases", "cassess"), "my.toml: [torch.no_such_function]: unknown key 'cassess'"),
        (RULE.replace("{input}", "{inputt}"), "my.toml: [torch.no_such_function]: "),
        (None, "my.toml: cannot be read: No such file or directory"),
    ],
)
def test_a_rule_file_with_an_error(run: Run, tmp_path: Path, text: str | None, message: str) -> None:
    write(tmp_path, m=CLEAN)
    if text is not None:
        (tmp_path / "my.toml").write_text(text, encoding="utf-8")
    answer = run("convert", "m.py", "--rules", "my.toml")
    assert answer.code == 2
    assert error_line(answer).startswith(message)


# Explain and rules


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("torch.nn.Linear", "torch.nn.Linear"),
        ("nn.Linear", "torch.nn.Linear"),
        ("F.softmax", "torch.nn.functional.softmax"),
        ("x.view", "torch.Tensor.view"),
        ("view", "torch.Tensor.view"),
        ("Linear", "torch.nn.Linear"),
        ("torch.cat", "torch.cat"),
        ("torch.cat()", "torch.cat"),
    ],
)
def test_explain_takes_the_usual_spellings(run: Run, name: str, found: str) -> None:
    answer = run("explain", name)
    assert answer.code == 0
    assert re.search(rf"^{re.escape(found)}  |^  also .*\b{re.escape(found)}\b", answer.out, re.MULTILINE)


def test_explain_knows_packages_built_on_torch(run: Run) -> None:
    answer = run("explain", "timm")
    assert answer.code == 0
    assert answer.out.startswith("timm  package built on torch (JM303)\n  advice ")


def test_explain_shows_what_a_rule_does(run: Run) -> None:
    out = run("explain", "torch.cat").out
    assert "signature" in out
    assert "becomes    jnp.concatenate(" in out
    assert "case " in out


@pytest.mark.parametrize("code", sorted(CODES))
def test_explain_every_code(run: Run, code: str) -> None:
    answer = run("explain", code.lower())
    assert answer.code == 0
    assert CODES[code].summary in answer.out
    assert CODES[code].help in answer.out


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nn.Linaer", "no rule for nn.Linaer; did you mean torch.nn.Linear"),
        ("torch.concatt", "no rule for torch.concatt; did you mean torch.concat"),
        ("JM2O6", "no rule for JM2O6"),
        ("JM296", "no code JM296; did you mean "),
        ("qqqqqqqq", "no rule for qqqqqqqq"),
    ],
)
def test_explain_suggests(run: Run, name: str, message: str) -> None:
    answer = run("explain", name)
    assert answer.code == 2
    assert error_line(answer).startswith(message)


def test_the_list_of_rules(run: Run) -> None:
    data = json.loads(run("rules", "--json").out)
    rows = {row["name"]: row for row in data["rows"]}
    assert sum(data["counts"].values()) == len(rows) >= 150
    assert rows["torch.cat"]["target"].startswith("jnp.concatenate")
    assert all(row["fidelity"] in {"exact", "stated", "partial", "unmapped"} for row in rows.values())
    table = run("rules").out.splitlines()
    assert len(table) == len(rows) + 2
    assert table[-1].startswith(f"{len(rows)} rules for ")
    assert not any("\x1b" in line for line in table)


# The program itself


def test_version(run: Run) -> None:
    answer = run("--version")
    assert (answer.code, answer.out) == (0, f"jaxmigrate {__version__}\n")


def test_help_answers_at_once(tmp_path: Path) -> None:
    """In seconds of processor time: what else the machine does must not count."""
    took = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert process("--help", cwd=tmp_path).returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(took) < 0.3


def test_a_run_without_a_hit_loads_no_engine(tmp_path: Path) -> None:
    write(tmp_path, m=PLAIN)
    script = (
        "import sys, jaxmigrate.cli\n"
        "code = jaxmigrate.cli.main(['convert', 'm.py'])\n"
        "sys.exit(code or ', '.join({'libcst', 'jaxmigrate.project', 'jaxmigrate.rulebook'} & sys.modules.keys()) or 0)"
    )
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)


def test_a_reader_that_goes_away_is_no_fault(tmp_path: Path) -> None:
    write(tmp_path, m=CLEAN)
    command = f"{sys.executable} -m jaxmigrate.cli rules | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == "0"


@pytest.mark.parametrize(
    ("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_colour_is_for_terminals(tmp_path: Path, environment: dict[str, str], coloured: bool) -> None:
    write(tmp_path, m=UNMAPPED)
    ours, theirs = pty.openpty()
    clean = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "TERM")}
    command = [sys.executable, "-m", "jaxmigrate.cli", "check", "m.py"]
    subprocess.run(
        command, cwd=tmp_path, stdout=theirs, stderr=subprocess.DEVNULL, check=False,
        env={**clean, "TERM": "xterm", **environment},
    )  # fmt: skip
    os.close(theirs)
    shown = os.read(ours, 4096)
    os.close(ours)
    assert b"JM302" in shown
    assert (b"\x1b[" in shown) is coloured
    assert b"\x1b[" not in process("check", "m.py", cwd=tmp_path).stdout


def test_a_fault_of_the_tool_is_one_line_and_code_3(tmp_path: Path) -> None:
    """A working directory that is gone is something no command foresees."""
    gone = tmp_path / "gone"
    gone.mkdir()
    script = f"cd {gone} && rmdir {gone} && {sys.executable} -m jaxmigrate.cli rules"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    assert line.startswith("jaxmigrate: error: internal fault, please report it: FileNotFoundError")


# Verify


EXAMPLE = "# jaxmigrate: example Net(4)(f32[2, 3])\n"


def test_verify_converts_and_compares(tmp_path: Path) -> None:
    write(tmp_path, m=CLEAN + EXAMPLE)
    done = process("verify", "m.py", "--json", "--steps", "1", cwd=tmp_path)
    report = json.loads(done.stdout)
    assert done.returncode == 0, report
    assert report["ok"]
    assert {(s["name"], s["verdict"]) for s in report["cases"][0]["stages"]} >= {
        ("forward train", "equal"),
        ("forward eval", "equal"),
        ("gradient train", "equal"),
    }
    assert set(listing(tmp_path)) == {"m.py"}


@pytest.mark.parametrize("imports", ["", "from . import other\n", "from .. import other\n"])
def test_verify_runs_a_file_of_a_package(tmp_path: Path, imports: str) -> None:
    program = "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    program += "        self.drop = nn.Dropout(0.25)\n    def forward(self, x):\n        return self.drop(x)\n"
    name = "pack__sub__m" if ".." in imports else "pack__m"
    write(tmp_path, pack__other="", **{name: f"from torch import nn\n{imports}{program}"})
    file = tmp_path / f"{name.replace('__', '/')}.py"
    (file.parent / "__init__.py").write_text("from .m import Net\n", encoding="utf-8")
    (tmp_path / "pack/__init__.py").touch()
    pair = [str(file)]
    if ".." in imports:
        assert process("convert", "pack", "-o", "out/pack", cwd=tmp_path).returncode == 0
        pair.append("out/pack/sub/m.py")
    done = process("verify", *pair, "--example", "Net()(f32[2, 3])", "--json", "--steps", "0", cwd=tmp_path)
    report = json.loads(done.stdout)
    assert done.returncode == 0, report
    seen = {s["name"]: s["detail"] for s in report["cases"][0]["stages"]}
    assert seen["dropout"] == "drop rates seen: torch [0.25], JAX [0.25]"


def test_verify_tells_two_programs_apart(tmp_path: Path) -> None:
    write(tmp_path, m=CLEAN + EXAMPLE)
    assert process("convert", "m.py", "-o", "out/", cwd=tmp_path).returncode == 0
    wrong = (tmp_path / "out/m.py").read_text(encoding="utf-8").replace("self.fc(x)]", "-self.fc(x)]")
    (tmp_path / "out/m.py").write_text(wrong, encoding="utf-8")
    done = process("verify", "m.py", "out/m.py", "--steps", "1", cwd=tmp_path)
    assert done.returncode == 1
    assert b"different" in done.stdout
    assert b"not equal: 1 of 1 cases" in done.stdout


def test_verify_shows_what_it_would_run(run: Run, tmp_path: Path) -> None:
    write(tmp_path, m=CLEAN + EXAMPLE)
    (tmp_path / "cases.toml").write_text('[[verify]]\nexample = "Net(7)(f32[1, 3])"\n', encoding="utf-8")
    for options, text in [
        ([], "Net(4)(f32[2, 3])"),
        (["--build", "Net(5)", "--input", "f32[8, 3]"], "Net(5)(f32[8, 3])"),
        (["--example", "Net(6)(f32[1, 3])"], "Net(6)(f32[1, 3])"),
        (["--case", "cases.toml"], "Net(7)(f32[1, 3])"),
    ]:
        answer = run("verify", "m.py", *options, "--dry-run")
        assert (answer.code, answer.out) == (0, f"would verify {text}\n")
    two = run("verify", "m.py", "--example", "Net(6)(f32[1, 3])", "--example", "Net(2)(f32[1, 3])", "--dry-run")
    assert two.out == "would verify Net(6)(f32[1, 3])\nwould verify Net(2)(f32[1, 3])\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gone.py"], "gone.py: no such file or directory"),
        (["m.py", "gone.py"], "gone.py: no such file or directory"),
        (["m.py"], "m.py: nothing says what to run; write `# jaxmigrate: example Net(8)(f32[4, 8])` into m.py, give"),
        (["m.py", "--example", "Net(4"], "example `Net(4`: not an expression"),
        (["m.py", "--case", "gone.toml"], "gone.toml: no such file or directory"),
        (["m.py", "--input", "f32[2]"], "Invalid value: say what to run in one way"),
        (["m.py", "--example", "a()()", "--build", "b"], "Invalid value: say what to run in one way"),
        (["m.py", "--device", "tpu"], "Invalid value for '--device': 'tpu' is not one of"),
        (["m.py", "--steps", "-1"], "Invalid value for '--steps'"),
        (["m.py", "--write-test", "t.py"], "Invalid value: --write-test needs CONVERTED"),
    ],
)
def test_verify_usage(run: Run, tmp_path: Path, arguments: list[str], message: str) -> None:
    write(tmp_path, m=CLEAN)
    answer = run("verify", *arguments)
    assert answer.code == 2
    assert error_line(answer).startswith(message)


def test_verify_of_a_source_that_does_not_parse(run: Run, tmp_path: Path) -> None:
    write(tmp_path, m="import torch\nx = (\n" + EXAMPLE)
    answer = run("verify", "m.py", "--example", "f(f32[2])")
    assert answer.code == 3
    assert "m.py:2:5: JM901" in answer.err
