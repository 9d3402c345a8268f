"""Small pairs of programs: what each stage says about them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jaxmigrate.verify import CaseReport, Stage, VerifyOptions, parse_case
from jaxmigrate.verify.run import compare_case, run_converted, run_original

from .programs import PAIRS

Reports = dict[str, CaseReport]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("programs")
    for number, pair in enumerate(PAIRS.values()):
        (root / str(number)).mkdir()
        (root / str(number) / "before.py").write_text(pair.torch)
        (root / str(number) / "after.py").write_text(pair.jax)
    return root


@pytest.fixture(scope="module")
def reports(folder: Path) -> Reports:
    options = VerifyOptions(steps=2, precisions=())
    cases = [parse_case(p.example) for p in PAIRS.values()]
    before = [(folder / str(i) / "before.py", c) for i, c in enumerate(cases)]
    torch = run_original(before, options, folder / "torch")
    after = [(folder / str(i) / "after.py", c, folder / "torch" / str(i)) for i, c in enumerate(cases)]
    jax = run_converted(after, options, folder / "jax")
    return {n: compare_case(c, t, j, options) for n, c, t, j in zip(PAIRS, cases, torch, jax, strict=True)}


EQUAL = [
    "draws of NumPy and Python",
    "nested outputs",
    "nan and inf at one place",
    "writes to its input",
    "double",
    "half",
    "method",
]


@pytest.mark.parametrize("name", [*EQUAL, "tied, frozen, nested build"])
def test_equal(name: str, reports: Reports) -> None:
    assert reports[name].ok, reports[name].stages
    assert {s.verdict for s in reports[name].stages} <= {"equal", "holds", "not run"}


def test_what_needs_values_is_eager_only(reports: Reports) -> None:
    report = reports["value decides"]
    assert report.stage("forward eval", "eager").verdict == "equal"
    assert report.stage("forward eval", "jit").verdict == "eager only"
    assert "TracerBoolConversionError" in report.stage("forward eval", "jit").detail
    assert report.ok


@pytest.mark.parametrize(
    ("name", "how", "detail"),
    [
        ("imports torch", "import", "converted side failed: ModuleNotFoundError: No module named 'torch' (blocked"),
        ("imports jaxmigrate", "import", "converted side failed: ModuleNotFoundError: No module named 'jaxmigrate'"),
        ("exits", "import", "converted side failed: SystemExit: 4 (after.py:2)"),
        ("build fails", "build", "converted side failed: ValueError: no way (after.py:6)"),
        ("class for function", "build", "torch side failed: TypeError: Net is a class: write Net(...)(...)"),
    ],
)
def test_what_does_not_build_fails(name: str, how: str, detail: str, reports: Reports) -> None:
    first, *others = reports[name].stages
    assert (first.name, first.how, first.verdict) == ("interface", how, "failed")
    assert first.detail.startswith(detail)
    assert {(s.verdict, s.detail) for s in others} == {("not run", "not run: the interface stage failed")}
    assert not reports[name].ok


def test_a_failing_call_is_a_failed_stage(reports: Reports) -> None:
    torch = reports["original fails"].stage("forward eval", "eager")
    assert torch.verdict == "failed"
    assert torch.detail.startswith("torch side failed: RuntimeError: ") and torch.detail.endswith("(before.py:2)")
    jax = reports["conversion fails"].stage("forward eval", "jit")
    assert jax.verdict == "failed"
    assert jax.detail.startswith("converted side failed: AttributeError: ") and "(after.py:2)" in jax.detail


def test_random_outputs_are_compared_by_shape_only(reports: Reports) -> None:
    report = reports["noise"]
    forward = report.stage("forward eval", "eager")
    assert (forward.verdict, forward.compared) == ("equal", "1 output")
    assert "random: compared shapes only (1)" in forward.detail
    assert report.stage("gradient eval", "jit").verdict == "shapes only"
    assert report.stage("behaviour").verdict == "not run"
    assert report.stage("dropout").verdict == "equal"
    assert report.ok
    function = reports["key is supplied"]
    assert function.stage("forward eval", "eager").verdict == "shapes only"
    assert not function.ok  # nothing was compared by value


def test_dropped_noise_is_noticed(reports: Reports) -> None:
    report = reports["noise dropped"]
    assert "torch draws random numbers here" in report.stage("forward eval", "eager").detail
    assert report.stage("dropout").detail == "torch draws random numbers in train mode, JAX does not"
    assert not report.ok


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("another type", "type bool in torch, float32 in JAX"),
        ("another structure", "the result has the parts (0, 1) in torch, (output) in JAX"),
        ("another shape", "shape (3,) in torch, (1, 3) in JAX"),
        ("another number", "torch 3, JAX 4"),
        ("another integer", "torch 9000000"),
        ("nan elsewhere", "output[1] (torch nan, JAX 2)"),
        ("double lost", "type float64 in torch, float32 in JAX"),
    ],
)
def test_wrong_outputs(name: str, said: str, reports: Reports) -> None:
    stage = reports[name].stage("forward eval", "eager")
    assert stage.verdict == "different"
    assert said in f"{stage.worst} {stage.detail}"
    assert not reports[name].ok


def test_equal_forward_does_not_hide_a_wrong_gradient(reports: Reports) -> None:
    report = reports["gradient only"]
    assert report.stage("forward eval", "eager").verdict == "equal"
    gradient = report.stage("gradient eval", "eager")
    assert gradient.verdict == "different"
    assert gradient.worst.startswith("input 0[")
    assert gradient.max_rel is not None and gradient.tolerance == 2e-5 < gradient.max_rel
    assert not report.ok


def test_tolerance_goes_by_type(reports: Reports) -> None:
    assert reports["double"].stage("forward eval").tolerance == 1e-10
    assert reports["half"].stage("forward eval").tolerance == 4e-2


def test_notes(reports: Reports) -> None:
    assert any("in place (0)" in n for n in reports["writes to its input"].notes)
    assert any("jax_enable_x64" in n for n in reports["double"].notes)
    assert any(n.startswith("frozen in torch") and "scale" in n for n in reports["tied, frozen, nested build"].notes)


def test_names_must_match(reports: Reports) -> None:
    report = reports["another name"]
    assert report.stage("interface").verdict == "different"
    assert report.stage("interface").detail == "missing in JAX: scale; only in JAX: gain"
    assert {s.verdict for s in report.stages[1:]} == {"not run"}


@pytest.mark.parametrize(
    ("text", "seconds", "said"),
    [
        ("import time\ntime.sleep(600)\n", 4.0, "timed out after 4 s"),
        ("import os\nos._exit(3)\n", 100.0, "exit code 3"),
    ],
    ids=["hangs", "dies"],
)
def test_a_process_that_does_not_end_well(
    text: str, seconds: float, said: str, tmp_path: Path, folder: Path, reports: Reports
) -> None:
    (tmp_path / "after.py").write_text(text)
    options = replace(VerifyOptions(), timeout=seconds)
    case = parse_case(PAIRS["nested outputs"].example)
    weights = folder / "torch" / "0"
    [jax] = run_converted([(tmp_path / "after.py", case, weights)], options, tmp_path / "jax")
    [torch] = run_original([(folder / "0" / "before.py", case)], VerifyOptions(), tmp_path / "torch")
    interface: Stage = compare_case(case, torch, jax, options).stages[0]
    assert interface.verdict == "failed"
    assert interface.detail.startswith("converted side failed: ") and said in interface.detail


def test_a_missing_gpu_is_one_clear_line(tmp_path: Path, folder: Path, reports: Reports) -> None:
    case = parse_case(PAIRS["nested outputs"].example)
    program = (folder / "0" / "after.py", case, folder / "torch" / "0")
    [jax] = run_converted([program], VerifyOptions(device="gpu"), tmp_path / "jax")
    load = jax.get("load")
    if load.error:
        assert load.error.startswith("RuntimeError: no GPU here: JAX sees only ")
        assert "run without --device gpu" in load.error
    else:
        assert "cpu" not in load.facts["device"].lower()
