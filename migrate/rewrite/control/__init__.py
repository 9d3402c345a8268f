"""Control flow on tensor values: what is reported, and what `--control-flow lax` rewrites."""

from .hazards import plan_hazards
from .purity import plan_purity

__all__ = ["plan_hazards", "plan_purity"]
