"""The passes that plan a file's rewrite, in the order they run. Each adds to the plan; none undoes another's decision."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .plan import Plan


def passes() -> Sequence[Callable[[Plan], None]]:
    """Structure first (it takes nodes away from the rows), rows next, then what needs the rows' decisions."""
    from .calls import plan_calls

    return (plan_calls,)
