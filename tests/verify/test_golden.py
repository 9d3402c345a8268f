"""The golden conversions are equal to their originals in every stage, eagerly and under jit."""

from __future__ import annotations

import pytest

from jaxmigrate.verify import CaseReport
from jaxmigrate.verify.run import compare_case, run_converted

from .conftest import Golden
from .slips import EXAMPLES, MODULES

NO_BUFFERS = {"04_lstm", "05_unet", "06_vit"}


@pytest.fixture(scope="module")
def reports(golden: Golden, tmp_path_factory: pytest.TempPathFactory) -> dict[str, CaseReport]:
    programs = [(MODULES / n / "jax_out.py", golden.cases[n], golden.folders[n]) for n in EXAMPLES]
    recordings = run_converted(programs, golden.options, tmp_path_factory.mktemp("converted"))
    return {
        name: compare_case(golden.cases[name], golden.recordings[name], recording, golden.options)
        for name, recording in zip(EXAMPLES, recordings, strict=True)
    }


@pytest.mark.parametrize("name", EXAMPLES)
def test_golden_is_equal(name: str, reports: dict[str, CaseReport]) -> None:
    report = reports[name]
    assert report.ok
    assert len(report.stages) == 23
    for stage in report.stages:
        if stage.name.startswith("buffers") and name in NO_BUFFERS:
            assert (stage.verdict, stage.detail) == ("not run", "not run: there are no buffers")
            continue
        if stage.name in ("determinism", "recompilations"):
            assert stage.verdict == "holds", stage
            continue
        assert stage.verdict == "equal", stage
        if stage.name not in ("interface", "dropout"):
            assert stage.max_rel is not None and stage.tolerance is not None
            assert stage.max_rel <= stage.tolerance == (1e-4 if stage.name == "behaviour" else 2e-5)
