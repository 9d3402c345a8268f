"""The language of examples, and where they are found."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from jaxmigrate.verify import ArraySpec, CaseError, case_from_options, cases_from_toml, find_cases, parse_case
from jaxmigrate.verify.leaves import draw, fill, flatten


def test_module_case() -> None:
    case = parse_case("GPT(GPTConfig(n_layer=2))(i64[2, 16] < 65, targets=i64[2, 16] < 65)")
    assert (case.build, case.target) == ("GPT(GPTConfig(n_layer=2))", "")
    assert case.args == (ArraySpec("i64", (2, 16), 0, 65),)
    assert case.kwargs == (("targets", ArraySpec("i64", (2, 16), 0, 65)),)


def test_method_and_function_cases() -> None:
    method = parse_case("Net(8).encode(f32[4, 8])")
    assert (method.build, method.target) == ("Net(8)", "encode")
    function = parse_case("ops.fn(f32[3], 2, 'in 1..2', None, (1, [f32[]]), x={'a': -1.5})")
    assert (function.build, function.target) == (None, "ops.fn")
    assert function.args == (ArraySpec("f32", (3,)), 2, "in 1..2", None, (1, [ArraySpec("f32", ())]))
    assert function.kwargs == (("x", {"a": -1.5}),)


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("f32[3]", ArraySpec("f32", (3,))),
        ("bool[2, 2]", ArraySpec("bool", (2, 2))),
        ("u8[0]", ArraySpec("u8", (0,))),
        ("i32[5] < 3", ArraySpec("i32", (5,), 0, 3)),
        ("-1 <= i64[5] < 3", ArraySpec("i64", (5,), -1, 3)),
        ("i64[5] in 1..65", ArraySpec("i64", (5,), 1, 65)),
        ("f32[5] in -0.5..1e-2", ArraySpec("f32", (5,), -0.5, 1e-2)),
        ("f64[]", ArraySpec("f64", ())),
    ],
)
def test_arrays(text: str, spec: ArraySpec) -> None:
    case = parse_case(f"fn({text})")
    assert case.args == (spec,)
    array = draw(case, 1)["0"]
    assert array.shape == spec.shape
    if spec.high is not None:
        assert spec.low is not None
        assert spec.low <= array.min() and array.max() < spec.high


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Net(8", "not an expression"),
        ("3", "expected a call"),
        ("(lambda: 1)(2)", "is not a name that can be called"),
        ("Net(8)(x)", "`x`: expected a literal or an array"),
        ("fn(**k)", "`**` is not possible"),
        ("fn(q8[3])", "expected one of the types f16, bf16, f32"),
        ("fn(f32[n])", "expected whole numbers for the shape"),
        ("fn(f32[2.5])", "expected whole numbers for the shape"),
        ("fn(f32[-1])", "expected whole numbers for the shape"),
        ("fn(bool[3] < 4)", "bool has no range"),
        ("fn(i64[3] < 0)", "empty range"),
        ("fn(i64[3] < 1.5)", "must be whole numbers"),
        ("fn(i64[3] < n)", "expected a number as the bound"),
        ("fn(i64[3] > 4)", "expected f32[4, 8], i64[4] < 65"),
    ],
)
def test_errors_say_what_was_expected(text: str, message: str) -> None:
    with pytest.raises(CaseError) as error:
        parse_case(text)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert text in str(error.value)


def test_comments(tmp_path: Path) -> None:
    text = (
        "import torch  # jaxmigrate: example Net(1)(f32[2])\n"
        "note = '# jaxmigrate: example Wrong(1)(f32[2])'\n"
        "# jaxmigrate: example Net(\n"
        "#     2)(f32[3])\n"
        "# jaxmigrate: keep[JM201] not an example\n"
    )
    assert [c.text for c in find_cases(tmp_path / "m.py", text)] == ["Net(1)(f32[2])", "Net( 2)(f32[3])"]
    with pytest.raises(CaseError, match=r"m\.py:2: example `Net\(1\)\(x\)`"):
        find_cases(tmp_path / "m.py", "\n# jaxmigrate: example Net(1)(x)\n")


def test_toml(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    source = tmp_path / "src" / "net.py"
    (tmp_path / "pyproject.toml").write_text(
        '[[tool.jaxmigrate.verify]]\nfile = "src/net.py"\nbuild = "Net(8)"\ninputs = ["f32[4, 8]", "y=i64[4] < 3"]\n'
        'steps = 5\noptimizer = "adam"\nlr = 0.1\nloss = "1"\n'
        '[[tool.jaxmigrate.verify]]\nfile = "src/other.py"\nexample = "Other()(f32[1])"\n'
    )
    extra = tmp_path / "cases.toml"
    extra.write_text('[[verify]]\nexample = "fn(f32[3])"\n')
    first, second, third = find_cases(source, "# jaxmigrate: example Net(1)(f32[2])", extra)
    assert first.text == "Net(1)(f32[2])"
    assert second.text == "Net(8)(f32[4, 8], y=i64[4] < 3)"
    assert second.overrides == {"steps": 5, "lr": 0.1, "optimizer": "adam", "loss": "1"}
    assert third.target == "fn"


def test_a_table_of_a_project_names_its_file(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[[tool.jaxmigrate.verify]]\nexample = "fn(f32[3])"\n')
    with pytest.raises(CaseError, match="verify table 1: expected file ="):
        find_cases(tmp_path / "net.py", "")


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ('[[verify]]\nexmple = "fn(f32[3])"', "unknown key 'exmple'"),
        ("[[verify]]\nsteps = 3", "expected either example"),
        ('[[verify]]\nbuild = "Net()"\ninputs = 3', "inputs must be a list"),
        ('[[verify]]\nexample = "fn(f32[3])"\nsteps = "x"', "steps = 'x' has the wrong type"),
        ('[[verify]]\nexample = "fn(f32[3])"\nsteps = -1', "must not be negative"),
        ('[[verify]]\nexample = "fn(f32[3])"\noptimizer = "lion"', "optimizer must be one of sgd, adam, adamw"),
        ("verify = 3", "must be an array of tables"),
        ("[[verify", "cases.toml: "),
    ],
)
def test_toml_errors(tmp_path: Path, toml: str, message: str) -> None:
    file = tmp_path / "cases.toml"
    file.write_text(toml)
    with pytest.raises(CaseError) as error:
        cases_from_toml(file)
    assert message in str(error.value)
    assert str(file) in str(error.value)
    assert "\n" not in str(error.value)


def test_options() -> None:
    case = case_from_options("Net(8)", ["f32[4, 8]", "targets=i64[4] < 3"])
    assert case.text == "Net(8)(f32[4, 8], targets=i64[4] < 3)"


def test_arguments_are_filled_by_name() -> None:
    case = parse_case("fn((f32[1], 3), y=[f32[2], {'z': f32[3]}])")
    args, kwargs = fill(case, lambda name, spec: (name, spec.shape))
    assert args == ((("0.0", (1,)), 3),)
    assert kwargs == {"y": [("y.0", (2,)), {"z": ("y.1.z", (3,))}]}


def test_results_are_flattened_in_order() -> None:
    a = np.zeros(2)
    result = {"b": (a, None), "a": [a, {"k": 3}]}
    assert [p for p, _ in flatten(result)] == ["b.0", "b.1", "a.0", "a.1.k"]
    assert [p for p, _ in flatten(a)] == [""]


def test_nothing_heavy_is_imported() -> None:
    code = (
        "import sys; from jaxmigrate.verify import *; parse_case('fn(f32[3])'); VerifyOptions();"
        "print([m for m in ('torch', 'jax', 'numpy', 'flax', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
