"""Time per step: two processes that take turns, and the figures of both."""

from __future__ import annotations

import threading
from pathlib import Path

from jaxmigrate.verify import CaseReport, Stage, VerifyOptions, parse_case
from jaxmigrate.verify.bench import ENDED, ROUNDS, Turns, Way, measure
from jaxmigrate.verify.benching import bench_case

from .conftest import Golden
from .slips import MODULES

EQUAL = CaseReport("", (Stage("forward eval", "eager", "equal"),))


def folders(scratch: Path) -> tuple[Path, Path]:
    for name in ("one", "two"):
        (scratch / name).mkdir()
    return scratch / "one", scratch / "two"


def test_turns(tmp_path: Path) -> None:
    one, two = folders(tmp_path)
    order: list[str] = []

    def work(turns: Turns, name: str) -> None:
        for number in range(3):
            turns.take(number, lambda: order.append(name))

    threads = [
        threading.Thread(target=work, args=(Turns(two, one, "0", False), "two")),
        threading.Thread(target=work, args=(Turns(one, two, "0", True), "one")),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert order == ["one", "two"] * 3


def test_a_way_that_fails_is_said_and_the_others_are_measured(tmp_path: Path) -> None:
    one, two = folders(tmp_path)
    (two / ENDED).touch()

    def fails() -> None:
        raise ValueError("no compiler")

    ways = [Way("forward", "good", lambda: None), Way("forward", "bad", fails)]
    good, bad = measure(ways, Turns(one, two, "0", True), str)["rows"]
    assert len(good["times"]) >= 2 * ROUNDS and good["detail"] == "" and good["first"] >= 0
    assert (bad["times"], bad["detail"]) == ([], "no compiler")


def test_both_programs(golden: Golden, tmp_path: Path) -> None:
    """Also where the original's process cannot even import its file: the other one does not wait for it."""
    case, name = golden.cases["01_mlp"], "01_mlp"
    broken = tmp_path / "broken.py"
    broken.write_text("import nothing_of_this_name\n")
    files = (broken, MODULES / name / "jax_out.py")
    bench = bench_case(EQUAL, case, files, golden.folders[name], VerifyOptions(timeout=60), tmp_path / "b")
    failed, *rows = bench.rows
    assert (failed.way, failed.median) == ("torch", None) and "nothing_of_this_name" in failed.detail
    assert [(r.what, r.way) for r in rows] == [
        ("forward", "JAX eager"), ("training step", "JAX eager"), ("forward", "JAX jit"), ("training step", "JAX jit")
    ]  # fmt: skip
    for row in rows:
        assert row.median and row.low and row.high and row.first and row.steps >= 2 * ROUNDS, row
        assert row.low <= row.median <= row.high
    [used] = bench.memory
    assert used.side == "JAX" and 0 < used.before <= used.peak


def test_what_differs_is_not_measured(tmp_path: Path) -> None:
    wrong = CaseReport("", (Stage("forward eval", "eager", "different"),))
    bench = bench_case(wrong, parse_case("fn(f32[3])"), (tmp_path, tmp_path), tmp_path, VerifyOptions(), tmp_path / "b")
    assert not bench.rows and "not equal" in bench.note
