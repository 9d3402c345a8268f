"""Rounding is told from error, and the stages about one program alone say what they saw."""

from __future__ import annotations

import pytest

from jaxmigrate.verify import CaseReport, VerifyOptions, parse_case
from jaxmigrate.verify.run import compare_case, run_converted, run_original

from .programs import PRECISE

Reports = dict[str, CaseReport]


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Reports:
    root = tmp_path_factory.mktemp("precise")
    options = VerifyOptions(precisions=("float64", "bfloat16"))
    cases = [parse_case(p.example) for p in PRECISE.values()]
    for number, pair in enumerate(PRECISE.values()):
        (root / str(number)).mkdir()
        (root / str(number) / "before.py").write_text(pair.torch)
        (root / str(number) / "after.py").write_text(pair.jax)
    files = [root / str(i) for i in range(len(cases))]
    torch = run_original([(f / "before.py", c) for f, c in zip(files, cases, strict=True)], options, root / "torch")
    after = [(f / "after.py", c, root / "torch" / f.name) for f, c in zip(files, cases, strict=True)]
    jax = run_converted(after, options, root / "jax")
    return {n: compare_case(c, t, j, options) for n, c, t, j in zip(PRECISE, cases, torch, jax, strict=True)}


def test_an_error_below_the_tolerance_of_float32_is_found(reports: Reports) -> None:
    report = reports["hidden error"]
    assert report.stage("forward eval", "eager").verdict == "equal"
    wide = report.stage("float64 eval")
    assert wide.verdict == "different" and not report.ok
    assert "an error, not rounding: it does not shrink with precision" in wide.detail


def test_an_ill_conditioned_output_is_judged_by_torchs_own_rounding(reports: Reports) -> None:
    report = reports["ill-conditioned"]
    stage = report.stage("forward eval", "eager")
    assert stage.max_rel is not None and stage.max_rel > 2e-5
    assert stage.verdict == "equal" and "ill-conditioned, rounding: " in stage.detail
    assert stage.tolerance is not None and stage.tolerance > 2e-5
    assert report.stage("float64 eval").verdict == "equal"


def test_an_error_does_not_hide_behind_bad_conditioning(reports: Reports) -> None:
    report = reports["wrong and ill-conditioned"]
    assert report.stage("float64 eval").verdict == "different"
    assert not report.ok


def test_rounding_worse_than_torch_is_a_difference_and_said_to_be_rounding(reports: Reports) -> None:
    report = reports["rounds worse"]
    stage = report.stage("forward eval", "eager")
    assert stage.verdict == "different" and "so the converted one rounds worse" in stage.detail
    assert report.stage("float64 eval").verdict == "equal"


def test_what_is_float32_in_any_case_is_judged_as_float32(reports: Reports) -> None:
    stage = reports["float32 inside"].stage("float64 eval")
    assert stage.verdict == "equal", stage
    if stage.max_rel is not None and stage.max_rel > 1e-10:
        assert "torch (float32), JAX (float32)" in stage.detail


def test_bfloat16_has_its_own_tolerance(reports: Reports) -> None:
    stage = reports["hidden error"].stage("bfloat16 eval")
    assert stage.verdict == "equal" and stage.tolerance is not None and stage.tolerance >= 4e-2


def test_a_seed_that_is_not_used(reports: Reports) -> None:
    assert reports["another seed"].stage("determinism").verdict == "different"
    assert reports["hidden error"].stage("determinism").verdict == "holds"


def test_recompilation_is_counted(reports: Reports) -> None:
    assert reports["compiles each time"].stage("recompilations").verdict == "recompiles"
    assert reports["hidden error"].stage("recompilations").verdict == "holds"
    assert "forward eval: 1 in 2 calls" in reports["hidden error"].stage("recompilations").compared


def test_jit_is_compared_with_eager(reports: Reports) -> None:
    assert reports["jit sees another world"].stage("eager against jit").verdict == "different"
    assert reports["jit sees another world"].stage("forward eval", "eager").verdict == "equal"


def test_rounding_under_jit_is_judged_like_any_other(reports: Reports) -> None:
    stage = reports["rounds otherwise under jit"].stage("eager against jit")
    assert stage.max_rel is not None and stage.max_rel > 2e-5
    assert stage.verdict == "equal" and "ill-conditioned, rounding: " in stage.detail
