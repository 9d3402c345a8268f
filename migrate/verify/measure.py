"""Distances between two sets of arrays, and the tolerances they are held against."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from .results import TOLERANCES

# What JAX makes of torch's wide types unless x64 is switched on.
NARROWED = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}
_REAL = {"complex64": "float32", "complex128": "float64"}


def tolerance(dtype: str, override: float | None, factor: float = 1.0) -> float:
    """The tolerance for numbers of a type: 0 for whole numbers and truth values, which must be equal."""
    dtype = _REAL.get(dtype, dtype)
    if dtype not in TOLERANCES:
        return 0.0
    return (TOLERANCES[dtype] if override is None else override) * factor


def dtype_problem(torch: str, jax: str, x64: bool) -> str:
    """ "" when the types agree, or JAX has narrowed a wide type because x64 is off."""
    if torch == jax or (not x64 and NARROWED.get(torch) == jax):
        return ""
    return f"type {torch} in torch, {jax} in JAX"


@dataclass(frozen=True)
class Distance:
    """The largest error between two arrays; `at` is its position, `problem` says why they cannot be compared."""

    name: str
    absolute: float
    relative: float
    tolerance: float
    at: tuple[int, ...] = ()
    values: str = ""
    problem: str = ""
    note: str = ""

    @property
    def ok(self) -> bool:
        return not self.problem and self.relative <= self.tolerance

    @property
    def excess(self) -> float:
        """How bad it is, for picking the worst: the error in units of the tolerance."""
        if self.problem:
            return float("inf")
        return self.relative / self.tolerance if self.tolerance else (float("inf") if self.relative else 0.0)

    def __str__(self) -> str:
        place = f"{self.name}[{', '.join(map(str, self.at))}]" if self.at else self.name
        return f"{self.name}: {self.problem}" if self.problem else f"{place} ({self.values})"


def distance(name: str, t: Any, j: Any, tol: float) -> Distance:
    """max|t - j| and max|t - j| / max(1, max|t|). NaN and infinities must stand at the same places."""
    import numpy as np

    t, j = np.asarray(t), np.asarray(j)
    if t.shape != j.shape:
        return Distance(name, 0.0, 0.0, tol, problem=f"shape {t.shape} in torch, {j.shape} in JAX")
    if t.size == 0:
        return Distance(name, 0.0, 0.0, tol)
    wide = np.complex128 if np.iscomplexobj(t) or np.iscomplexobj(j) else np.float64
    exact = t.dtype.kind in "iub" and j.dtype.kind in "iub"  # int64 has no exact float64
    same = (t == j) | ((t != t) & (j != j))
    with np.errstate(all="ignore"):
        gap = np.abs(t.astype(wide) - j.astype(wide))
        gap = np.where(same, 0.0, np.maximum(gap, 1.0) if exact else np.where(np.isnan(gap), np.inf, gap))
        size = np.abs(t.astype(wide))
    size = size[np.isfinite(size)]
    worst = np.unravel_index(int(gap.argmax()), gap.shape)
    absolute = float(gap[worst])
    relative = absolute / max(1.0, float(size.max()) if size.size else 0.0)
    left, right = (str(a[worst]) if a.dtype.kind in "iub" else f"{a[worst]:.7g}" for a in (t, j))
    return Distance(name, absolute, relative, tol, tuple(int(i) for i in worst), f"torch {left}, JAX {right}")


# How much further from float64 than torch's float32 the converted float32 may be where both agree in float64.
ROUNDING_FACTOR = 8.0


def judged(found: Distance, torch32: Any, torch64: Any, jax64: Any) -> Distance:
    """A float32 distance beyond its tolerance, told apart by the float64 runs of both sides (None: there are none).

    Where they agree, the difference is rounding, and is held against torch's own: its float32-float64 distance.
    """
    import numpy as np

    if torch64 is None or jax64 is None or np.shape(torch64) != np.shape(torch32):
        return found
    wide = distance(found.name, torch64, jax64, TOLERANCES["float64"])
    if not wide.ok:
        shrunk = f"relative error {found.relative:.1e} in float32, {wide.relative:.1e} in float64"
        return replace(found, note=f"an error, not rounding: {shrunk}")
    own = distance(found.name, torch32, torch64, 0.0).relative
    said = f"rounding: {wide.relative:.1e} in float64; torch's own float32 is {own:.1e} from its float64"
    if found.relative <= ROUNDING_FACTOR * own:
        return replace(found, tolerance=ROUNDING_FACTOR * own, note=f"ill-conditioned, {said}")
    return replace(found, note=f"{said}, so the converted one rounds worse")


@dataclass
class Tally:
    """Distances of one stage, gathered."""

    found: list[Distance] = field(default_factory=list)

    def add(self, item: Distance) -> None:
        self.found.append(item)

    @property
    def bad(self) -> list[Distance]:
        return [d for d in self.found if not d.ok]

    @property
    def worst(self) -> Distance | None:
        """The distance that is nearest to its tolerance, or furthest beyond it."""
        return max(self.found, key=lambda d: (d.excess, d.absolute), default=None)
