"""The first sub-module whose output differs although its inputs agree."""

from __future__ import annotations

from typing import Any

from .measure import Distance, distance, tolerance
from .record import Step
from .results import Divergence


def first_divergence(torch: Step, jax: Step, mode: str, override: float | None) -> Divergence | None:
    """Match the calls of both traces by path and number, in the order in which torch's calls end.

    Inner calls end before outer ones, so the first call with agreeing inputs and differing outputs is the innermost:
    a container is named only when each of its parts is right. None when there is no call that both sides made.
    """
    other = {(c["path"], c["call"]): c for c in jax.facts["calls"]}
    fallback: Divergence | None = None
    for call in torch.facts["calls"]:
        match = other.get((call["path"], call["call"]))
        if match is None:
            continue
        worst = _worst(torch, jax, call["outputs"], match["outputs"], override)
        if worst is None or worst.ok:
            continue
        given = _worst(torch, jax, call["inputs"], match["inputs"], override)
        if given is None or given.ok:
            return _told(call, mode, worst, "its inputs agree and its output differs")
        if fallback is None:
            fallback = _told(call, mode, worst, "the first whose output differs (its inputs could not be matched)")
    return fallback


def _worst(torch: Step, jax: Step, left: list[str], right: list[str], override: float | None) -> Distance | None:
    """The largest distance between arrays taken in order; None when there is none on either side."""
    if len(left) != len(right):
        return Distance("", 0.0, 0.0, 0.0, problem=f"{len(left)} arrays in torch, {len(right)} in JAX")
    found = []
    for number, (a, b) in enumerate(zip(left, right, strict=True)):
        t = torch.arrays[a]
        tol = tolerance(str(t.dtype), override)
        found.append(distance(f"output {number}" if len(left) > 1 else "output", t, jax.arrays[b], tol))
    return max(found, key=lambda d: (d.excess, d.absolute), default=None)


def _told(call: dict[str, Any], mode: str, worst: Distance, why: str) -> Divergence:
    path = call["path"] or "(the module itself)"
    again = f", call {call['call'] + 1}" if call["call"] else ""
    number = "" if worst.problem else f": largest error {worst.absolute:.3g} at"
    text = f"{path} ({call['kind']}{again}), {mode} mode: {why}{number} {worst}"
    return Divergence(call["path"], call["kind"], call["call"], mode, worst.absolute, str(worst), text)
