"""The formats of `check`: a golden of each, and that each says what the one list of findings says."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as xml

import jsonschema
import pytest

from jaxmigrate.engine import Source
from jaxmigrate.project import convert_files
from jaxmigrate.report.findings import CODES, Finding, Outcome, Run
from jaxmigrate.report.formats import FORMATS
from jaxmigrate.report.readiness import assess
from jaxmigrate.report.readiness_text import READINESS_FORMATS
from jaxmigrate.report.shown import Shown
from jaxmigrate.rulebook import load_rules

DATA = Path(__file__).parent / "data"
SARIF = json.loads((DATA / "sarif-2.1.0.json").read_bytes())
SUFFIX = {"text": "txt", "json": "json", "jsonl": "jsonl", "sarif": "sarif", "github": "github.txt"} | {
    "markdown": "md",
    "junit": "xml",
}


def finding(code: str, name: str, line: int, path: str = "src/a model.py", **more: object) -> Finding:
    values: dict[str, object] = {"rule": name, "message": CODES[code].summary, "before": name, **more}
    return Finding(path, (line, 5), (line, 9), code, name, **values)  # type: ignore[arg-type]


def sample() -> Shown:
    """A run with every severity, a known and an accepted finding, a notebook, and characters that formats must
    escape."""
    random = finding("JM121", "torch.rand", 3)
    known = finding("JM201", "torch.Tensor.view", 4, advice="Annotate `x`.", evidence="it is a parameter")
    loop = replace(finding("JM208", "torch.optim", 11, message="50 % of | it,\n<left>: é"), end=(14, 3))
    own = [
        finding("JM001", "torch.cat", 2),
        random,
        known,
        finding("JM301", "torch.compile", 9, advice="use nnx.jit"),
        loop,
    ]
    magic = finding("JM222", "torch", 2, "n.ipynb", cell=3)
    broken = finding("JM901", "", 1, "bad.py", message="invalid syntax", rule="", before="")
    outcomes = (
        Outcome("bad.py", "failed", "", "", (broken,)),
        Outcome("n.ipynb", "changed", "1\n", "2\n", (magic,), torch_free=False),
        Outcome("plain.py", "skipped", "", ""),
        Outcome("src/a model.py", "changed", "1\n", "2\n", tuple(own), torch_free=False),
    )
    return Shown(Run(outcomes, rules="sha256:0123"), known=frozenset({known}), accepted=frozenset({random}))


@pytest.mark.parametrize("form", FORMATS)
def test_golden(form: str) -> None:
    path = DATA / "check" / f"report.{SUFFIX[form]}"
    text = FORMATS[form](sample())
    if os.environ.get("UPDATE_GOLDENS"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), (
        "if this is meant: UPDATE_GOLDENS=1 pytest tests/test_check_formats.py"
    )


@pytest.mark.parametrize("form", READINESS_FORMATS)
def test_readiness_golden(form: str) -> None:
    path = DATA / "check" / f"readiness.{ {'text': 'txt', 'markdown': 'md', 'json': 'json'}[form] }"
    text = READINESS_FORMATS[form](assess(sample().run, ["csrc/kernel.cu"]))
    if os.environ.get("UPDATE_GOLDENS"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


# Each format read back: what it says is the list of findings, (path, cell, line, code) of each.

Key = tuple[str, int, int, str]


def key(f: Finding) -> Key:
    return f.path, f.cell, f.start[0], f.code


def from_text(text: str) -> list[Key]:
    found = [re.match(r"(.+?):(?:cell (\d+):)?(\d+):\d+: (JM\d+)", line) for line in text.splitlines()]
    return [(m[1], int(m[2] or 0), int(m[3]), m[4]) for m in found if m]


def from_json(entries: list[dict[str, object]]) -> list[Key]:
    new = [e for e in entries if "state" not in e and e["severity"] != "note"]
    return [(e["path"], e.get("cell", 0), e["range"]["start"][0], e["code"]) for e in new]  # type: ignore[index, misc]


def from_sarif(text: str) -> list[Key]:
    found = []
    for r in json.loads(text)["runs"][0]["results"]:
        if "suppressions" in r or r.get("baselineState") == "unchanged":
            continue
        place = r["locations"][0]["physicalLocation"]
        cell = re.match(r"cell (\d+), line (\d+)", r["message"]["text"])
        line = int(cell[2]) if cell else place["region"]["startLine"]
        path = place["artifactLocation"]["uri"].replace("%20", " ")
        found.append((path, int(cell[1]) if cell else 0, line, r["ruleId"]))
    return found


def from_github(text: str) -> list[Key]:
    found = []
    for line in text.splitlines():
        head, message = re.match(r"::\w+ (.*?)::(.*)", line).groups()  # type: ignore[union-attr]
        values = dict(p.split("=", 1) for p in head.split(","))
        cell = re.match(r"cell (\d+), line (\d+)", message)
        at = (int(cell[1]), int(cell[2])) if cell else (0, int(values["line"]))
        found.append((values["file"], *at, values["title"].split()[0]))
    return found


def from_markdown(text: str) -> list[Key]:
    rows = re.findall(r"^\| `(.+?):(?:cell (\d+):)?(\d+):\d+` \| (JM\d+) \|", text, re.MULTILINE)
    return [(path, int(cell or 0), int(line), code) for path, cell, line, code in rows]


def from_junit(text: str) -> list[Key]:
    found = []
    for case in xml.fromstring(text).iter("testcase"):
        match = re.match(r"(?:cell (\d+):)?(\d+):\d+ (JM\d+)", case.get("name") or "")
        if match:
            found.append((case.get("classname") or "", int(match[1] or 0), int(match[2]), match[3]))
    return found


READERS: dict[str, Callable[[str], list[Key]]] = {
    "text": from_text,
    "json": lambda text: from_json(json.loads(text)["findings"]),
    "jsonl": lambda text: from_json([d for d in map(json.loads, text.splitlines()) if d["type"] == "finding"]),
    "sarif": from_sarif,
    "github": from_github,
    "markdown": from_markdown,
    "junit": from_junit,
}

PROGRAM = """import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: torch.Tensor, y):
        x = torch.cat([self.fc(x), self.drop(x)], dim=1)
        return torch.no_such(x, y)


def other(z):
    return z.view(3)


torch.onnx.export(Net(), (torch.zeros(2, 3), torch.zeros(3)), "net.onnx")
"""
# What a conversion of it says, without notes: a rule or a warning that goes missing is missed here.
EXPECTED = Counter({"JM302": 1, "JM301": 1, "JM121": 1, "JM201": 1})


def real_run() -> Run:
    sources = [Source("net.py", PROGRAM), Source("broken.py", "import torch\nx = (\n"), Source("plain.py", "x = 1\n")]
    return convert_files(sources, load_rules())


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("run", ["by hand", "real"])
def test_each_format_says_what_the_list_of_findings_says(form: str, run: str) -> None:
    shown = sample() if run == "by hand" else Shown(real_run())
    assert Counter(READERS[form](FORMATS[form](shown))) == Counter(map(key, shown.listed))
    assert len(shown.listed) >= 4


def test_the_findings_of_a_real_program() -> None:
    run = real_run()
    assert Counter(f.code for f in run.findings if f.path == "net.py" and f.severity != "note") == EXPECTED
    assert [f.code for f in run.findings if f.path == "broken.py"] == ["JM901"]
    named = {f.name for f in run.findings if f.code in ("JM001", "JM002", "JM121")}
    assert named >= {"torch.cat", "torch.nn.Linear", "torch.nn.Dropout", "torch.nn.Module"}


def test_a_removed_rule_is_a_finding_in_every_format() -> None:
    book = load_rules()
    poorer = replace(book, rows={name: row for name, row in book.rows.items() if name != "torch.cat"})
    shown = Shown(convert_files([Source("net.py", PROGRAM)], poorer))
    for form, read in READERS.items():
        assert ("net.py", 0, 12, "JM302") in read(FORMATS[form](shown)), form


def test_sarif_follows_the_schema_of_oasis() -> None:
    validator = jsonschema.Draft7Validator(SARIF)
    for shown in (sample(), Shown(real_run()), Shown(Run(()))):
        validator.validate(json.loads(FORMATS["sarif"](shown)))
    log = json.loads(FORMATS["sarif"](sample()))
    log["runs"][0]["results"][0]["level"] = "fatal"
    assert not validator.is_valid(log)


def test_a_findings_severity_and_the_limit_decide_what_fails() -> None:
    shown = sample()
    root = xml.fromstring(FORMATS["junit"](shown))
    assert {k: root.get(k) for k in ("tests", "failures", "errors", "skipped")} == {
        "tests": "5", "failures": "1", "errors": "1", "skipped": "2",
    }  # fmt: skip
    strict = xml.fromstring(FORMATS["junit"](replace(shown, fails="warning")))
    assert strict.get("failures") == "3"
    assert [f.code for f in shown.failing] == ["JM901", "JM301"]


def test_advice() -> None:
    """Whole files now, files with something left in part, tied or broken ones not yet."""
    tied = finding("JM301", "torch.onnx.export", 1, "tied.py")
    done = finding("JM001", "torch.cat", 1, "whole.py")
    left = finding("JM206", "torch.Tensor.add_", 1, "part.py")
    many = [replace(done, path="tied.py", start=(n, 1)) for n in range(9)]
    outcomes = (
        Outcome("part.py", "changed", "1", "2", (replace(done, path="part.py"), left), torch_free=False),
        Outcome("tied.py", "changed", "1", "2", (*many, tied)),
        Outcome("whole.py", "changed", "1", "2", (done,)),
        Outcome("plain.py", "skipped", "", ""),
    )
    found = assess(Run(outcomes))
    assert {f.path: f.advice for f in found.files} == {
        "part.py": "in part", "tied.py": "not yet", "whole.py": "now", "plain.py": "nothing to do",
    }  # fmt: skip
    assert {f.path: f.minutes for f in found.files} == {"part.py": 30, "tied.py": 270, "whole.py": 10, "plain.py": 0}
    assert found.ties == [("ONNX export", 1)]
    assert found.advice == "in part"
    assert assess(Run(outcomes[2:])).advice == "now"
    assert assess(Run(outcomes[3:])).advice == "nothing to do"
    assert assess(Run((Outcome("bad.py", "failed", "", "", (finding("JM901", "", 1, "bad.py"),)),))).advice == "not yet"
