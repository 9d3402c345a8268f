"""The passes that plan a file's rewrite, in the order they run. Each adds to the plan; none undoes another."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .plan import Plan


def passes() -> Sequence[Callable[[Plan], None]]:
    """Structure first (it takes nodes away from the rows), rows next, then what needs the rows' decisions."""
    from .borders import plan_borders
    from .buffers import plan_buffers
    from .calls import plan_calls
    from .control import plan_errors, plan_hazards, plan_lax, plan_nan_checks, plan_purity, plan_ranges
    from .devices import plan_devices
    from .dtypes import plan_dtypes
    from .expected import plan_expected
    from .fstrings import plan_fstrings
    from .identity import plan_identity
    from .indexing import plan_indexing
    from .inplace import plan_inplace
    from .integers import plan_integers
    from .marks import plan_marks
    from .modules import plan_modules
    from .partials import plan_partials
    from .quoted import plan_quoted
    from .randomness import plan_keys, plan_seeds
    from .reexports import plan_reexports
    from .selfassign import plan_self_assignments
    from .tensortypes import plan_tensor_types
    from .training import plan_training
    from .x64 import plan_wide_results, plan_x64

    return (
        plan_x64,
        plan_marks,
        plan_nan_checks,
        plan_modules,
        plan_seeds,
        plan_training,
        plan_devices,
        plan_tensor_types,
        plan_quoted,
        plan_inplace,
        plan_identity,
        plan_buffers,
        plan_partials,
        plan_calls,
        plan_indexing,
        plan_errors,
        plan_expected,
        plan_dtypes,
        plan_wide_results,
        plan_integers,
        plan_lax,
        plan_hazards,
        plan_purity,
        plan_ranges,
        plan_keys,
        plan_borders,
        plan_reexports,
        plan_fstrings,
        plan_self_assignments,
    )
