"""The reports, on outcomes made by hand: what each format says about the one list of findings."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
from dataclasses import replace
from importlib import resources
from pathlib import Path

import jsonschema
import pytest

from jaxmigrate.report import json as machine
from jaxmigrate.report import text
from jaxmigrate.report.diff import diff_bytes, opcodes, reasons
from jaxmigrate.report.findings import CODES, Finding, Outcome, Run
from jaxmigrate.report.style import Style


def finding(code: str, name: str, line: int = 1, path: str = "a.py", **more: object) -> Finding:
    values: dict[str, object] = {"rule": name, "message": CODES[code].summary, **more}
    return Finding(path, (line, 5), (line, 9), code, name, **values)  # type: ignore[arg-type]


CAT = finding("JM001", "torch.cat", 2, message="torch.cat -> jnp.concatenate(…)")
CLASS = Finding("a.py", (1, 1), (40, 1), "JM002", "torch.nn.Module", "module", "becomes an nnx.Module")
RAND = finding("JM121", "torch.rand", 3)
VIEW = finding("JM201", "torch.Tensor.view", 4, message="the receiver is unknown.", advice="Annotate `x`.")
COMPILE = finding("JM301", "torch.compile", 9, advice="use nnx.jit")
BROKEN = finding("JM901", "", 1, "b.py", message="invalid syntax")

RUN = Run(
    (
        Outcome("a.py", "changed", "1\n", "2\n", (CAT, RAND, VIEW, COMPILE, COMPILE), torch_free=False),
        Outcome("b.py", "failed", "", "", (BROKEN,)),
        Outcome("c.py", "skipped", "", ""),
    ),
    rules="sha256:0123456789abcdef",
)


# JSON


def test_the_report_follows_its_schema() -> None:
    schema = json.loads((resources.files("jaxmigrate.report") / "report.schema.json").read_bytes())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    validator.validate(json.loads(machine.render(RUN)))
    validator.validate(json.loads(machine.render(Run(()))))
    for breach in ({"schema": "other"}, {"more": 1}, {"rules": "md5:1"}, {"files": [{"path": "a.py"}]}):
        assert not validator.is_valid({**machine.report(RUN), **breach})


def test_the_summary_adds_up() -> None:
    assert machine.report(RUN)["summary"] == {
        "files": 3,
        "changed": 1,
        "skipped": 1,
        "failed": 1,
        "constructs": {"exact": 1, "stated": 1, "left": 1, "unmapped": 2},
        "rate": {"converted": 2, "of": 5},
        "by_code": {"JM001": 1, "JM121": 1, "JM201": 1, "JM301": 2, "JM901": 1},
        "top_unmapped": [{"name": "torch.compile", "count": 2}],
    }


def test_a_finding_in_full() -> None:
    (entry,) = [f for f in machine.report(RUN)["findings"] if f["code"] == "JM201"]
    assert entry == {
        "code": "JM201",
        "severity": "warning",
        "rule": "torch.Tensor.view",
        "name": "torch.Tensor.view",
        "path": "a.py",
        "range": {"start": [4, 5], "end": [4, 9]},
        "message": "the receiver is unknown.",
        "advice": "Annotate `x`.",
        "evidence": "",
        "before": "",
        "after": None,
        "fingerprint": VIEW.fingerprint,
    }


def test_unmapped_names_come_by_count_then_name() -> None:
    names = ["torch.b", "torch.a", "torch.c", "torch.c"]
    run = Run((Outcome("a.py", "unchanged", "", "", tuple(finding("JM302", n) for n in names)),))
    assert machine.top_unmapped(run) == [("torch.c", 2), ("torch.a", 1), ("torch.b", 1)]
    assert machine.top_unmapped(run, limit=1) == [("torch.c", 2)]


# Text


def test_a_line_for_a_finding() -> None:
    line = text.finding_line(VIEW)
    assert line == "a.py:4:5: JM201 torch.Tensor.view: the receiver is unknown. Annotate `x`."
    assert text.finding_line(replace(RAND, message="torch.rand -> x: y")) == "a.py:3:5: JM121 torch.rand -> x: y"
    assert text.finding_line(BROKEN) == "b.py:1:5: JM901: invalid syntax"
    assert text.finding_line(replace(VIEW, message="two\nlines", advice="")).endswith(": two lines")


def test_colour_only_when_asked() -> None:
    assert "\x1b" not in "".join(text.summary_lines(RUN) + text.finding_lines(RUN.findings))
    assert "\x1b[31mJM301\x1b[0m" in text.finding_line(COMPILE, Style(True))


def test_severities() -> None:
    assert [f.code for f in text.at_or_above(RUN.findings, "error")] == ["JM301", "JM301", "JM901"]
    assert len(text.at_or_above(RUN.findings, "warning")) == 5
    assert len(text.at_or_above(RUN.findings, "note")) == 6


def test_a_limit_keeps_the_errors_and_says_what_is_missing() -> None:
    findings = [finding("JM201", "torch.Tensor.view", n) for n in range(1, 6)] + [COMPILE]
    lines = text.finding_lines(findings, limit=2)
    assert [line.split()[1] for line in lines[:2]] == ["JM201", "JM301"]
    assert lines[2:] == ["... and 4 more; `jaxmigrate check` shows them all"]
    assert len(text.finding_lines(findings, limit=6)) == 6


def test_the_summary_for_people() -> None:
    assert text.summary_lines(RUN) == [
        "3 files: 1 changed, 1 skipped, 1 failed",
        "5 constructs: 1 exact, 1 with a stated difference, 1 left, 2 unmapped; converted 2 of 5 (40.0 %)",
        "still need torch: a.py",
        "unmapped: torch.compile (2)",
    ]
    bound = tuple(Outcome(f"{n}.py", "changed", "", "x", torch_free=False) for n in range(5))
    assert text.summary_lines(Run(bound))[2] == "still need torch: 0.py, 1.py, 2.py and 2 more"


def test_all_but_one_is_never_shown_as_all() -> None:
    codes = ["JM001"] * 2999 + ["JM301"]
    run = Run((Outcome("a.py", "changed", "", "x", tuple(finding(c, "torch.cat") for c in codes)),))
    assert "converted 2999 of 3000 (99.9 %)" in text.summary_lines(run)[1]


# Diff

LINES = [f"line {n}\n" for n in range(1, 31)]


def outcome(before: str, after: str, *findings: Finding, **more: object) -> Outcome:
    return Outcome("a.py", "changed", before, after, findings, **more)  # type: ignore[arg-type]


def edited(lines: list[str], *numbers: int) -> str:
    return "".join(f"new {n}\n" if n in numbers else line for n, line in enumerate(lines, 1))


def test_each_hunk_is_headed_by_rule_and_reason() -> None:
    twice = replace(CAT, start=(3, 1), end=(3, 4))
    after = edited(LINES, 2, 3, 20)
    lines = diff_bytes(outcome("".join(LINES), after, CAT, twice, replace(RAND, start=(20, 1), end=(20, 2)), CLASS))
    heads = [line for line in lines.decode().splitlines() if line.startswith("@@")]
    assert heads == [
        "@@ -1,4 +1,4 @@ torch.cat -> jnp.concatenate(…) [JM001] (x2)",
        "@@ -19,3 +19,3 @@ torch.rand: random numbers come from another stream [JM121]",
    ]


def test_a_hunk_that_only_a_class_explains_names_the_class() -> None:
    text_after = edited(LINES, 2)
    assert b"@@ torch.nn.Module: becomes an nnx.Module [JM002]" in diff_bytes(
        outcome("".join(LINES), text_after, CLASS)
    )


def test_a_long_heading_drops_plain_conversions_first() -> None:
    many = [finding("JM001", f"torch.f{n}", message=f"torch.f{n} -> g") for n in range(10)]
    assert reasons([*many, RAND, VIEW], most=4) == [
        "torch.f0 -> g [JM001]",
        "torch.f1 -> g [JM001]",
        "torch.rand: random numbers come from another stream [JM121]",
        "left: torch.Tensor.view: the receiver is unknown [JM201]",
        "and 8 more",
    ]
    assert len(reasons(many, most=10)) == 10
    assert len(reasons([RAND, VIEW, COMPILE], most=1)) == 3


def test_what_was_left_is_said_in_the_hunk() -> None:
    assert reasons([VIEW]) == ["left: torch.Tensor.view: the receiver is unknown [JM201]"]
    assert len(reasons([replace(VIEW, message="long " * 100)])[0]) < 120


def test_imports_need_no_finding() -> None:
    shown = diff_bytes(outcome("import torch\nx = 1\ny = 2\nz = 3\n", "import jax\nx = 1\ny = 2\nz = 4\n"))
    assert re.findall(rb"^@@.*", shown, re.MULTILINE) == [b"@@ -1,2 +1,2 @@ imports", b"@@ -3,2 +3,2 @@"]


def test_no_change_no_diff() -> None:
    assert diff_bytes(Outcome("a.py", "unchanged", "x\n", "x\n", (COMPILE,))) == b""


@pytest.mark.parametrize(
    ("before", "after", "more"),
    [
        ("".join(LINES), edited(LINES, 2, 15, 16, 30), {}),
        ("".join(LINES), edited(LINES, 1, 3, 6, 7, 10, 14, 18), {}),
        ("".join(LINES), "import jax\n" + "".join(LINES), {}),
        ("".join(LINES), "".join(LINES[:10] + LINES[12:]), {}),
        ("a\nb", "a\nc", {}),
        ("a\nb", "a\nb\n", {}),
        ("a\nb\n", "a\nb", {}),
        ("a\r\nb\r\nc\r\n", "a\r\nB\r\nc\r\n", {}),
        ("a\x0c\u2028b\nc\n", "a\x0c\u2028b\nd\n", {}),
        ("\té = 1\n", "\té = 2\n", {"encoding": "iso-8859-1"}),
        ("é = 1\n", "é = 2\n", {"bom": True}),
        ("", "x = 1\n", {}),
        ("x = 1\n", "", {}),
        ("one\n", "two\n", {"path": "with blank/ä.py"}),
    ],
    ids=[
        "several hunks", "hunks that touch", "insertion at the top", "deletion", "no newline at the end", "line added",
        "newline removed", "CRLF", "form feed and line separator", "latin-1", "BOM", "empty before", "empty after",
        "name with a blank",
    ],
)  # fmt: skip
def test_git_applies_the_diff(tmp_path: Path, before: str, after: str, more: dict[str, object]) -> None:
    result = replace(outcome(before, after, replace(CAT, message="Größe … — ×"), RAND), **more)  # type: ignore[arg-type]
    target = tmp_path / result.path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(replace(result, after=before).encoded())
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "apply", "--whitespace=nowarn", "-"], cwd=tmp_path, check=True, input=diff_bytes(result))
    assert target.read_bytes() == result.encoded()


@pytest.mark.parametrize("seed", range(5))
def test_the_diff_of_a_long_file_is_right_and_quick(seed: int) -> None:
    """Applied, the opcodes give the new text; unchanged lines are equal; it takes no square of the number of
    changes."""
    import random
    import time

    draw = random.Random(seed)
    before = [f"line {n}\n" if draw.random() < 0.7 else "same\n" for n in range(20_000)]
    after = []
    for line in before:
        kind = draw.random()
        after += (
            [f"{line.strip()} new\n"]
            if kind < 0.1
            else []
            if kind < 0.12
            else [line, "more\n"]
            if kind < 0.14
            else [line]
        )
    start = time.process_time()
    codes = opcodes(before, after)
    assert time.process_time() - start < 5
    built: list[str] = []
    for tag, a1, a2, b1, b2 in codes:
        assert tag != "equal" or before[a1:a2] == after[b1:b2]
        built += before[a1:a2] if tag == "equal" else after[b1:b2]
    assert built == after
    assert [c[1] for c in codes[1:]] == [c[2] for c in codes[:-1]]
    assert all(x[0] == "equal" or y[0] == "equal" for x, y in itertools.pairwise(codes))
