"""A short run of the fuzzer with a fixed seed: `make fuzz` runs thousands."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import run


def test_no_random_program_is_silently_wrong() -> None:
    """Equal results or a report, and most programs convert."""
    totals = run.fuzz(seed=1, programs=90, seconds=600)
    assert not totals.failures, "\n\n".join(totals.failures)
    assert totals.run > 60
    assert totals.share >= 0.7, totals.table()


def test_a_wrong_conversion_is_found_and_minimised(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """The judge calls other numbers WRONG, and the failing program loses the lines that do not matter."""
    import judge
    import runner

    def falsified(text: str, entry: str, args: list[object], layers: str = "") -> object:
        return real(text.replace(".set(5)", ".set(6)"), entry, args, layers)

    real = runner._call
    monkeypatch.setattr(runner, "_call", falsified)
    program = "import torch\n\ndef main():\n    a = torch.zeros(2)\n    b = a * 2\n    a[0] = 5\n    return a\n"
    assert judge.judge(program).outcome == "WRONG"
    assert "b = a * 2" not in run.shrink(program, "WRONG")
