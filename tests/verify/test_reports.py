"""The forms of the report: JSON by its schema, the HTML page, JUnit, and the test file."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest

from jaxmigrate.verify import CaseReport, Divergence, Stage, VerifyOptions, VerifyReport, parse_case, report_json
from jaxmigrate.verify.generate import test_file as text_of_test
from jaxmigrate.verify.junit import render_junit
from jaxmigrate.verify.page import render_page
from jaxmigrate.verify.results import Bench, Heat, Memory, Statement, Timing

RIGHT = Stage("forward eval", "eager", "equal", "1 output", 1e-7, 1e-7, 2e-5)
WRONG = Stage(
    "forward train", "eager", "different", "1 output", float("inf"), float("inf"), 2e-5, "output[0]", "why <b>"
)
CASES = (
    CaseReport("Net(4)(f32[3, 4])", (RIGHT, Stage("buffers eval", "eager", "not run", detail="not run: none"))),
    CaseReport(
        "Net(5)(f32[3, 4])",
        (RIGHT, WRONG, Stage("behaviour", "jit", "failed", detail="converted side failed: ValueError")),
        Divergence("body.1", "Act", 0, "train", float("inf"), "output[0]", "body.1 (Act): differs"),
        ("a note",),
        Statement("Act.__call__", "y", "net.py:4", "net_jax.py:5", 0.5, "y[0]", "Act.__call__: y of net.py:4"),
        (
            Heat("", "Net", 0.0, float("inf"), 2e-5),
            Heat("body.1", "Act", 0.0, 0.5, 2e-5),
            Heat("x", "A", None, None, 0.0),
        ),
        (("torch", (1.0, 0.5)), ("JAX, jit", (1.0, float("nan")))),
        Bench(
            (
                Timing("forward", "JAX jit", 2e-5, 1e-5, 0.5, 3.0, 20),
                Timing("forward", "torch.compile", detail="no <compiler>"),
            ),
            (Memory("JAX", "cpu:0", 10, 200_000_000),),
        ),
    ),
)
REPORT = VerifyReport(Path("net.py"), Path("net_jax.py"), CASES, "cpu:0", {"torch": "2"})


def test_json_follows_its_schema() -> None:
    schema = json.loads((resources.files("jaxmigrate.verify") / "verify.schema.json").read_bytes())
    jsonschema.Draft202012Validator.check_schema(schema)
    data = json.loads(json.dumps(report_json(REPORT), allow_nan=False))
    jsonschema.validate(data, schema)
    assert data["cases"][1]["stages"][1]["max_rel"] == "inf"
    data["cases"][0]["stages"][0]["verdict"] = "good"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, schema)


def test_page() -> None:
    page = render_page(REPORT)
    assert "not equal" in page and "body.1 (Act): differs" in page and "net.py:4" in page
    assert "why &lt;b&gt;" in page and "<b>" not in page.replace("<b>First", "")
    assert page.count("<polyline") == 2 and page.count("<circle") == 3
    assert "<td>JAX jit</td>" in page and "10 us - 500.00 ms" in page and "no &lt;compiler&gt;" in page
    assert "peak memory, JAX on cpu:0: 200 MB" in page
    assert "not matched" in page and "5.0e-01, inputs agree" in page
    assert "http" not in page.replace("http-equiv", "")


def test_junit() -> None:
    root = ElementTree.fromstring(render_junit(REPORT).partition("\n")[2])
    first, second = root.findall("testsuite")
    assert (first.get("tests"), first.get("failures"), first.get("skipped")) == ("2", "0", "1")
    assert (second.get("failures"), second.get("errors")) == ("1", "1")
    failure = second.find("testcase/failure")
    assert failure is not None and "why <b>" in str(failure.get("message"))
    assert "net.py:4" in str(second.findtext("system-out"))


def test_test_file(tmp_path: Path) -> None:
    cases = [parse_case("Net('a')(f32[3, 4])", {"steps": 2}), parse_case('fn(f32[3], "b")')]
    options = VerifyOptions(steps=1, memory=4.0, bench=True)
    text = text_of_test(
        tmp_path / "net.py", tmp_path / "out" / "net.py", cases, options, tmp_path / "tests" / "test_n.py"
    )
    compile(text, "test_n.py", "exec")
    assert "OPTIONS = VerifyOptions(steps=1, memory=4.0)" in text
    assert "'../out/net.py'" in text and """("Net('a')(f32[3, 4])", {'steps': 2}),""" in text
