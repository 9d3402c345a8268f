"""Whole training scripts: both run for some optimizer steps, and their losses compared.

Both start from the same weights, see the data in the same order and use the same noise: what torch drew is given to the
converted script (draws.py).
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .processes import Side, run_items
from .record import Step
from .results import CaseReport, Stage, VerifyOptions, VerifyReport
from .script_item import Mode, ScriptItem

TOLERANCE = 1e-4  # relative, at each step
OWN = 3.0  # times torch's own distance between float32 and float64 that is allowed instead


@dataclass(frozen=True)
class Runs:
    """One pair of scripts, and the folder in which their runs are recorded."""

    original: Path
    converted: Path
    arguments: tuple[str, ...]
    options: VerifyOptions
    scratch: Path

    def run(self, mode: Mode) -> Step:
        """Run one side in its own process."""
        side: Side = "torch_script" if mode in ("float", "double") else "jax_script"
        file = self.original if side == "torch_script" else self.converted
        draws = None if mode == "float" else self.scratch / "float" / "0"
        item = ScriptItem(file, self.scratch / mode / "0", mode, self.arguments, draws)
        [recording] = run_items(side, [item], self.options, self.scratch / mode)
        return recording.get("train")


def verify_script(
    original: Path, converted: Path, arguments: Sequence[str] = (), options: VerifyOptions | None = None
) -> VerifyReport:
    """Run `original` under torch and `converted` without it for `options.steps` optimizer steps each, and compare.

    Both run as `python SCRIPT ARGUMENTS` would in the current folder, of which they see a copy. Raises
    FileNotFoundError when a file is missing; what goes wrong in the scripts is a failed stage.
    """
    options = options or VerifyOptions(steps=50)
    for file in (original, converted):
        if not file.is_file():
            raise FileNotFoundError(f"{file}: no such file")
    with tempfile.TemporaryDirectory(prefix="jaxmigrate-verify-") as name:
        runs = Runs(original, converted, tuple(arguments), options, Path(name))
        torch = runs.run("float")
        jax = {} if torch.error else {mode: runs.run(mode) for mode in _modes(options)}
        case = _report(runs, torch, jax)
    versions = {"python": ".".join(map(str, sys.version_info[:3]))}
    for step in (torch, *jax.values()):
        versions.update(step.facts.get("versions", {}))
    device = next((step.facts["device"] for step in jax.values() if "device" in step.facts), options.device)
    return VerifyReport(original, converted, (case,), device, versions)


def _modes(options: VerifyOptions) -> tuple[Mode, ...]:
    return (*(("eager",) if options.eager else ()), *(("jit",) if options.jit else ()))


def _report(runs: Runs, torch: Step, jax: dict[Any, Step]) -> CaseReport:
    name = " ".join(["python", runs.original.name, *runs.arguments])
    if torch.error:
        return CaseReport(name, (Stage("losses", "", "failed", detail=f"torch side: {torch.error}"),))
    stages = [_draws(torch, jax["eager"])] if "eager" in jax else []
    stages += [_losses(torch, step, mode, runs.options) for mode, step in jax.items()]
    if any(s.verdict == "different" and s.max_rel is not None for s in stages):
        stages = _explained(runs, torch, stages)
    made = {f"JAX, {mode}": step.facts["losses"] for mode, step in jax.items() if not step.error}
    want = _comparable(torch.facts["losses"], torch.facts["sums"], next(iter(made.values()), []))
    curves = {"torch": want} | {name: values[: len(want)] for name, values in made.items()}
    shown = tuple((curve, tuple(values)) for curve, values in curves.items() if values)
    return CaseReport(name, tuple(stages), curves=shown)


def _draws(torch: Step, jax: Step) -> Stage:
    """Whether each random draw of the converted script had its counterpart."""
    if jax.error:
        return Stage("draws", "eager", "not run", detail="the converted script did not run")
    missing, taken = jax.facts["missing"], jax.facts["taken"]
    compared = f"{taken} of torch's {len(torch.arrays)} random draws given to the converted script"
    if missing:
        return Stage("draws", "eager", "not run", compared, detail=f"{len(missing)} without counterpart: {missing[0]}")
    return Stage("draws", "eager", "holds", compared)


def _losses(torch: Step, jax: Step, mode: str, options: VerifyOptions) -> Stage:
    """The losses of one way to run against torch's."""
    allowed = _tolerance(options)
    stage = Stage("losses", mode, "failed", tolerance=allowed)
    if "callback" in jax.error:  # JAX gives draws to a compiled step by a call back, which vmap cannot take
        return replace(stage, verdict="not run", detail=f"draws of this compiled step cannot be given: {jax.error}")
    if jax.error:
        return replace(stage, detail=f"converted side: {jax.error}")
    got = jax.facts["losses"]
    want = _comparable(torch.facts["losses"], torch.facts["sums"], got)
    stage = replace(stage, compared=f"{len(want)} losses of {torch.facts['steps']} optimizer steps")
    if not want:
        return replace(stage, verdict="not run", detail="the original calls no backward")
    if len(got) < len(want):
        return replace(stage, verdict="different", detail=f"the converted script differentiates {len(got)} losses")
    errors = distances(want, got[: len(want)])
    at = max(range(len(errors)), key=errors.__getitem__)
    if missing := jax.facts["missing"] if errors[at] > allowed else []:
        detail = f"they differ, and {len(missing)} random draws have no counterpart in torch ({missing[0]})"
        return replace(stage, verdict="not run", max_rel=errors[at], detail=detail)
    return replace(
        stage,
        verdict="equal" if errors[at] <= allowed else "different",
        max_abs=max(abs(a - b) for a, b in zip(want, got, strict=False)),
        max_rel=errors[at],
        worst=f"loss {at + 1}: {want[at]:.7g} in torch, {got[at]:.7g} in JAX",
    )


def _tolerance(options: VerifyOptions) -> float:
    return TOLERANCE if options.tolerance is None else options.tolerance


def _comparable(losses: list[float], sums: list[float], got: list[float]) -> list[float]:
    """What to compare: losses whose backward passes follow each other may be differentiated as one sum."""
    nearer = bool(got) and len(sums) < len(losses) and abs(got[0] - sums[0]) < abs(got[0] - losses[0])
    return sums if nearer or len(got) < len(losses) else losses


def _explained(runs: Runs, torch: Step, stages: list[Stage]) -> list[Stage]:
    """The stages with differences held against what float32 alone takes torch from its own float64 run."""
    double = runs.run("double")
    if double.error:  # a script may not run in float64
        return [*stages, Stage("float64", "torch", "not run", detail=double.error)]
    want = torch.facts["losses"]
    if len(double.facts["losses"]) < len(want):
        return [*stages, Stage("float64", "torch", "not run", detail="it ran another way: no draws to compare")]
    own = max(distances(want, double.facts["losses"][: len(want)]))
    detail = f"torch's own float32 is {own:.1e} from its float64, of which {OWN:g} times are allowed"
    judged = [
        replace(s, verdict="equal", tolerance=OWN * own, detail=detail)
        if s.verdict == "different" and s.max_rel is not None and s.max_rel <= OWN * own
        else s
        for s in stages
    ]
    judged.append(Stage("float64", "torch", "holds", "torch against itself", max_rel=own, detail="rounding alone"))
    if any(s.verdict == "different" for s in judged):
        judged += _without_bias(runs, torch, max(OWN * own, _tolerance(runs.options)))
    return judged


def _without_bias(runs: Runs, torch: Step, tolerance: float) -> list[Stage]:
    """The losses once more with Adam's bias corrected in full precision: optax computes 1 - decay**count in float32."""
    stage = _losses(torch, runs.run("precise"), "exact bias", runs.options)
    if stage.max_rel is None or stage.max_rel > tolerance:
        return []
    return [replace(stage, verdict="equal", tolerance=tolerance, detail="with Adam's bias corrected in full precision")]


def distances(want: Sequence[float], got: Sequence[float]) -> list[float]:
    """The relative difference at each step, against the size of the loss or a thousandth of the first one."""
    floor = max(1e-3 * abs(want[0]), 1e-12)
    return [_distance(a, b, max(abs(a), floor)) for a, b in zip(want, got, strict=True)]


def _distance(a: float, b: float, scale: float) -> float:
    if a == b or (a != a and b != b):  # both infinite, both NaN
        return 0.0
    error = abs(a - b) / scale
    return error if error == error else float("inf")
