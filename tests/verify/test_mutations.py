"""Seeded faults are noticed and located; `make mutations` does it for all of them (docs/seeded-faults.md)."""

from __future__ import annotations

import pytest

from .faults import Outcome, outcomes
from .slips import SLIPS

SAMPLE = [s for s in SLIPS if s.module in ("01_mlp", "02_resnet")]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    return {o.slip.name: o for o in outcomes(SAMPLE, tmp_path_factory.mktemp("slips"))}


@pytest.mark.parametrize("name", [s.name for s in SAMPLE])
def test_slip_is_noticed(name: str, found: dict[str, Outcome]) -> None:
    outcome = found[name]
    wrong = [s.name for s in outcome.report.stages if s.verdict in ("different", "failed")]
    assert wrong[:1] == [outcome.slip.stage], outcome.report.stages
    assert not outcome.report.ok


def test_the_place_is_named(found: dict[str, Outcome]) -> None:
    wrong = [(o.slip.name, o.said) for o in found.values() if not o.located]
    assert len(wrong) <= 0.1 * len(found), wrong


def test_there_are_enough() -> None:
    assert len(SLIPS) >= 40 and len({s.name for s in SLIPS}) == len(SLIPS)
