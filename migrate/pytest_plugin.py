"""A pytest fixture that keeps a program and its conversion equal for as long as both live.

    def test_same(jaxmigrate_verify):
        jaxmigrate_verify("model.py", "model_jax.py")

pytest loads this file in every run, so it imports nothing else of the package until the fixture is called.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .verify import VerifyReport


@pytest.fixture
def jaxmigrate_verify(request: pytest.FixtureRequest) -> Callable[..., VerifyReport]:
    """A function (original, converted, *examples, cases=FILE, **options) that fails the test where the two differ.

    Paths are relative to the folder of the test file. Without examples (`"Net(8)(f32[4, 8])"`) and without `cases`, a
    TOML file, the original says itself what to run. Options are the fields of `VerifyOptions`.
    """

    def verify(
        original: str | Path, converted: str | Path, *examples: str, cases: str | Path | None = None, **options: Any
    ) -> VerifyReport:
        __tracebackhide__ = True
        from .verify import CaseError, VerifyOptions, cases_from_toml, find_cases, parse_case, verify_pair

        folder = request.path.parent
        left, right = folder / original, folder / converted
        try:
            wanted = [parse_case(text) for text in examples]
            if cases is not None:
                wanted += cases_from_toml(folder / cases, left)
            if not wanted:
                wanted = find_cases(left, left.read_text(encoding="utf-8"))
            report = verify_pair(left, right, wanted, VerifyOptions(**options))
        except (CaseError, OSError) as error:
            pytest.fail(str(error), pytrace=False)
        if not report.ok:
            pytest.fail(_said(report), pytrace=False)
        return report

    return verify


def _said(report: VerifyReport) -> str:
    from .verify.table import found

    lines = [f"{report.original} and {report.converted} are not equal"]
    for case in report.cases:
        if case.ok:
            continue
        lines.append(f"  {case.case}")
        wrong = [s for s in case.stages if s.verdict in ("different", "failed")]
        lines += [f"    {s.name} ({s.how}): {s.verdict}: {found(s)}" for s in wrong[:4]]
        lines += [f"    and {len(wrong) - 4} more stages"] * (len(wrong) > 4)
        lines += ["    nothing was compared"] * (not wrong)
        lines += [f"    first: {p.text}" for p in (case.statement, case.divergence) if p is not None]
    return "\n".join(lines)
