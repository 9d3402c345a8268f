"""Control flow on tensor values: what is reported, and what `--control-flow lax` rewrites."""

from .debugging import plan_nan_checks
from .errors import plan_errors
from .hazards import plan_hazards
from .lax import plan_lax
from .purity import plan_purity
from .ranges import plan_ranges

__all__ = ["plan_errors", "plan_hazards", "plan_lax", "plan_nan_checks", "plan_purity", "plan_ranges"]
