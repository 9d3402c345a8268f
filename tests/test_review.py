"""The review: answers in the terminal, decisions that last, the page in a real browser, patches that git takes."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from jaxmigrate.cli import main
from jaxmigrate.report.findings import Finding, Outcome
from jaxmigrate.report.shown import Shown
from jaxmigrate.review.hunks import hunks_of
from jaxmigrate.review.page import page_data, render_page
from jaxmigrate.work import Options, convert_paths

PROGRAM = """import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(3, width)

    def forward(self, x):
        return torch.relu(self.fc(x)).sum(dim=1)


def exps(x: torch.Tensor):
    return torch.exp(x)




def tail(x: torch.Tensor):
    y = torch.sin(x)



    z = torch.exp(y)



    return torch.no_such(z)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "m.py").write_text(PROGRAM, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@dataclass(frozen=True)
class Reviewer:
    """Runs `jaxmigrate review m.py`, with answers on standard input."""

    patch: pytest.MonkeyPatch
    capture: pytest.CaptureFixture[str]

    def __call__(self, answers: str, *options: str) -> tuple[int, str, str]:
        self.patch.setattr(sys, "stdin", io.StringIO(answers))
        code = main(["review", "m.py", *options])
        captured = self.capture.readouterr()
        return code, captured.out, captured.err


@pytest.fixture
def review(folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Reviewer:
    return Reviewer(monkeypatch, capfd)


def test_accepting_all_is_the_conversion(folder: Path, review: Reviewer) -> None:
    code, out, err = review("y\na\n", "-o", "out/m.py")
    assert code == 1, "torch.no_such is an error, as it is for convert"
    assert "wrote out/m.py" in err
    main(["convert", "m.py", "-o", "straight.py"])
    assert (folder / "out/m.py").read_bytes() == (folder / "straight.py").read_bytes()
    assert out.count("Convert this [") == 2


def test_each_hunk_says_rule_reason_evidence_and_fidelity(folder: Path, review: Reviewer) -> None:
    _, out, _ = review("q\n")
    assert "m.py:" in out
    assert "JM001 exact  torch.nn.Linear -> Linear" in out
    assert "-class Net(nn.Module):" in out
    assert "+class Net(nnx.Module):" in out
    _, out, _ = review("y\ny\ny\ny\ny\ny\n")
    assert "rule torch.Tensor.exp" in out
    assert re.search(r"since Tensor", out)
    assert "JM302 unmapped" in out


def test_stopping_and_going_on(folder: Path, review: Reviewer) -> None:
    code, _, err = review("y\nq\n")
    assert code == 0
    assert "goes on" in err
    assert json.loads((folder / ".jaxmigrate-review.json").read_bytes())["accepted"]
    again = review("a\n")[1]
    assert "class Net" not in again, "what was decided is not asked again"
    assert "class Net" in review("q\n", "--restart")[1]


def test_refusing_takes_what_depends_on_it_and_writes_it_so(folder: Path, review: Reviewer) -> None:
    hunk = next(i for i, h in enumerate(asked(folder)) if any("torch.sin" in line for line in h.before))
    _, out, _ = review("y\n" * hunk + "n\na\n", "-o", "out.py")
    text = (folder / "out.py").read_text(encoding="utf-8")
    assert "y = torch.sin(x)" in text
    assert "z = torch.exp(y)" in text, "it reads what the refused line gives"
    assert "changed or gone with it: " in out
    assert "return jnp.exp(x)" in text
    assert "import torch" in text
    before = text
    assert main(["convert", "m.py", "--decisions", ".jaxmigrate-review.json", "-o", "again.py"]) in (0, 1)
    assert (folder / "again.py").read_text(encoding="utf-8") == before


def asked(folder: Path) -> list[Any]:
    (outcome,) = convert_paths([str(folder / "m.py")], Options()).run.outcomes
    return [h for h in hunks_of(outcome) if h.decidable]


def test_all_of_a_rule(folder: Path, review: Reviewer) -> None:
    first = review("r\n" * 20)[1]
    assert first.count("Convert this [") <= len(asked(folder))
    code, _, _ = review("R\n" * 20, "--restart", "-o", "kept.py")
    assert (folder / "kept.py").read_text(encoding="utf-8") == PROGRAM
    assert code in (0, 1)


def test_editing(folder: Path, review: Reviewer, monkeypatch: pytest.MonkeyPatch) -> None:
    script = folder / "editor.py"
    script.write_text(
        "import sys, pathlib\np = pathlib.Path(sys.argv[1])\n"
        "p.write_text(p.read_text().replace('jnp.exp(x)', 'jnp.exp(x) + 0'))\n"
    )
    monkeypatch.setenv("VISUAL", f"{sys.executable} {script}")
    at = next(i for i, h in enumerate(asked(folder)) if any("return torch.exp(x)" in line for line in h.before))
    review("y\n" * at + "e\na\n", "-o", "out.py")
    assert "return jnp.exp(x) + 0\n" in (folder / "out.py").read_text(encoding="utf-8")
    script.write_text("import sys, pathlib\npathlib.Path(sys.argv[1]).write_text('def (')\n")
    out = review("e\nq\n", "--restart")[1]
    assert "the file would not parse" in out


def test_a_dry_run_keeps_nothing(folder: Path, review: Reviewer) -> None:
    review("a\n", "-o", "out.py", "--dry-run")
    assert sorted(p.name for p in folder.iterdir()) == ["m.py"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-"], "review needs files"),
        (["m.py", "--html", "p.html", "--split-by", "rule"], "--html and --split-by exclude each other"),
        (["m.py", "--split-by", "rule"], "--split-by writes patches into a folder"),
        (["m.py", "--split-by", "rule", "-o", "full"], "full: not empty"),
        (["m.py", "--decisions", "bad.json"], "bad.json: not the decisions of a review"),
        (["m.py", "--html", "full"], "full: a folder, not a file"),
        (["m.py", "--write", "--html", "p.html"], "Invalid value: --write is for the review in the terminal"),
    ],
)
def test_wrong_uses(folder: Path, capfd: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    (folder / "full").mkdir()
    (folder / "full/x").touch()
    (folder / "bad.json").write_text("{}", encoding="utf-8")
    assert main(["review", *arguments]) == 2
    assert capfd.readouterr().err.startswith(f"jaxmigrate: error: {message}")


@pytest.mark.parametrize("by", ["rule", "file"])
def test_patches_applied_in_order_are_the_conversion(folder: Path, by: str) -> None:
    source = folder / "src"
    (source / "pkg").mkdir(parents=True)
    (source / "pkg/a b.py").write_bytes(PROGRAM.replace("\n", "\r\n").encode())
    (source / "latin.py").write_bytes(("# coding: latin-1\n# \xe9\n" + PROGRAM).encode("latin-1"))
    (source / "end.py").write_text("import torch\nx = torch.rand(3)", encoding="utf-8")
    assert main(["review", "src", "--split-by", by, "-o", "patches"]) == 0
    main(["convert", "src", "-o", "straight", "--fail-on", "never"])
    subprocess.run(["git", "init", "-q", "."], check=True)
    patches = sorted((folder / "patches").iterdir())
    assert len(patches) >= 4
    for patch in patches:
        subprocess.run(["git", "apply", str(patch)], check=True)
    for path in (p for p in (folder / "straight").rglob("*") if p.is_file()):
        assert (source / path.relative_to(folder / "straight")).read_bytes() == path.read_bytes(), path


# The page


def test_the_page_holds_every_finding_once_and_every_change(folder: Path) -> None:
    work = convert_paths(["m.py"], Options())
    (file,) = page_data(work.shown)["files"]
    (outcome,) = work.run.outcomes
    assert sorted(n for b in file["blocks"] for n in b["findings"]) == list(range(len(outcome.findings)))
    rows = [r for b in file["blocks"] for r in b["rows"]]
    new = [r[4] for r in rows if r[0] in "+~"]
    old = [r[2] for r in rows if r[0] in "-~"]
    before, after = outcome.before.splitlines(), outcome.after.splitlines()
    assert set(after) - set(before) <= set(new) <= set(after)
    assert set(before) - set(after) <= set(old) <= set(before)
    assert all(before[r[1] - 1] == r[2] for r in rows if r[1])


def chromium() -> str | None:
    return next((p for n in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(n))), None)


@pytest.fixture
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        path = chromium()
        try:
            page = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        except playwright.Error as error:
            pytest.skip(f"no browser: {str(error).splitlines()[0]}")
        yield page
        page.close()


def test_the_page_in_a_browser(folder: Path, browser: Any) -> None:
    """Thousands of changes: only those near the window are drawn; filters and keys work; nothing is fetched."""
    old = [f"    return torch.exp({n})" if n % 10 == 0 else f"    y = {n}" for n in range(30_000)]
    new = [line.replace("torch", "jnp") for line in old]
    codes = {10: "JM302", 4000: "JM302", 8000: "JM121"}
    findings = tuple(
        Finding("big.py", (n + 1, 5), (n + 1, 9), codes.get(n, "JM001"), "torch.exp", "torch.exp", f"number {n}")
        for n in range(0, 30_000, 10)
    )
    big = Outcome("big.py", "changed", "\n".join(old), "\n".join(new), findings)
    run = convert_paths(["m.py"], Options()).run
    shown = Shown(replace(run, outcomes=(big, *run.outcomes)))
    (folder / "page.html").write_text(render_page(shown), encoding="utf-8")
    page = browser.new_page(viewport={"width": 1300, "height": 800})
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("request", lambda request: faults.append(request.url) if not request.url.startswith("file:") else None)
    page.goto((folder / "page.html").as_uri())
    page.wait_for_selector("table tr td.new")
    assert page.locator(".block").count() > 3000
    assert page.locator("section table").count() < 200
    figures = page.inner_text("#figures")
    assert "2 files" in re.sub(r"\s+", " ", figures)

    page.keyboard.press("u")
    assert page.inner_text("#count") == "3 changes in 2 files"
    page.keyboard.press("Escape")
    page.click("[data-code=JM302]")
    assert page.inner_text("#count") == "3 changes in 2 files"
    page.click("#clear")
    page.keyboard.press("/")
    page.keyboard.type("number 12340")
    assert page.inner_text("#count").endswith("in 1 file")
    page.keyboard.press("Escape")

    for _ in range(3):
        page.keyboard.press("j")
    chosen = page.locator(".block.on")
    assert chosen.count() == 1
    assert chosen.is_visible()
    page.keyboard.press("n")
    assert "m.py" in page.inner_text("nav a.on")
    page.keyboard.press("o")
    assert page.locator("section.shut").count() == 1
    page.keyboard.press("?")
    assert page.locator("dialog[open]").count() == 1
    assert faults == []


def test_the_page_shows_source_that_looks_like_html(folder: Path, browser: Any) -> None:
    (folder / "odd.py").write_text(
        'import torch\nx = torch.exp(torch.zeros(1)), "</script><b id=hacked>"\n', encoding="utf-8"
    )
    assert main(["review", "odd.py", "--html", "page.html"]) == 0
    page = browser.new_page()
    page.goto((folder / "page.html").as_uri())
    page.wait_for_selector("td.new")
    assert page.locator("#hacked").count() == 0
    assert "</script><b id=hacked>" in page.inner_text("td.new >> nth=-1")
