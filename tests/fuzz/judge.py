"""One fuzz program: converted, run in both frameworks, judged."""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
import runner


@dataclass(frozen=True)
class Verdict:
    """`outcome`: "equal", "reported", "WRONG", "crash", or "refused" when torch itself raises.

    `codes` are those of what was left or stated, `after` the converted text, `detail` what went wrong.
    """

    outcome: str
    codes: tuple[str, ...] = ()
    after: str = ""
    detail: str = ""


def judge(program: str) -> Verdict:
    """Convert and run a program; its `main` is called twice in neither framework."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            run = runner.run_both(program)
        except AssertionError as error:
            return Verdict("crash", (), "", f"the conversion failed: {error}")
        except (RuntimeError, IndexError, ValueError, TypeError, NameError, AttributeError) as error:
            return Verdict("refused", (), "", f"{type(error).__name__}: {error}")
    codes = tuple(sorted({f.code for f in run.left}))
    if run.left:
        return Verdict("reported", codes, run.outcome.after, "; ".join(f.message for f in run.left))
    if run.error:
        return Verdict("crash", codes, run.outcome.after, run.error)
    if not run.same:
        return Verdict("WRONG", codes, run.outcome.after, f"torch {run.expected}\njax {run.got}")
    return Verdict("equal", codes, run.outcome.after)
