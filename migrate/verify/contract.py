"""The stages of the contract beyond one call in float32: precision, determinism, jit and recompilation."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .interface import first_of, listed
from .measure import NARROWED, ROUNDING_FACTOR, Distance, Tally, distance, dtype_problem
from .record import Step
from .results import BEHAVIOUR_FACTOR, TOLERANCES, Stage, Verdict

if TYPE_CHECKING:
    from .compare import Comparison

_PREFIXES = {"out.": "", "state.": "", "grad.": "gradient of ", "in.": "gradient of input "}


def precision(c: Comparison, name: str, mode: str) -> Stage:
    """Outputs, loss, gradients and buffers with all numbers in another precision.

    In float64 a formula that is the same agrees to 1e-10, so that an error shows which float32 hides. Where a program
    computes parts in float32 whatever it is given, the tolerance is that of float32, and the stage says so.
    """
    stage = f"{name} {mode}"
    t, j = c.torch.get(stage), c.jax.get(stage)
    if why := _no_sides(t, j):
        return Stage(stage, "eager", *why)
    base = c.tolerance(name)
    tally = Tally()
    for key in t.arrays:
        left, right = t.arrays[key], j.arrays.get(key)
        if right is None:
            if key.startswith("out."):
                tally.add(Distance(_shown(key), 0.0, 0.0, 0.0, problem="missing in JAX"))
            continue  # other stages report a parameter without gradient and a buffer that is missing
        whole = left.dtype.kind in "iub"
        tolerance = 0.0 if whole else max(base, _own(c, name, mode, key, left))
        tally.add(distance(_shown(key), left, right, tolerance))
    details: list[str] = []
    if name == "float64" and tally.bad:
        tally, details = _in_the_light_of_types(t, j, tally)
    problems = _types(t, j) if name == "bfloat16" else []
    what = f"outputs, loss, gradients, buffers: {len(tally.found)} arrays"
    if name == "float64" and tally.bad:
        problems.append("an error, not rounding: it does not shrink with precision")
    return c.stage(stage, "eager", tally, what, problems, details, False)


def _no_sides(t: Step, j: Step) -> tuple[Verdict, str, None, None, None, str, str] | None:
    def told(verdict: Verdict, text: str) -> tuple[Verdict, str, None, None, None, str, str]:
        return verdict, "", None, None, None, "", text

    if "missing" in t.facts and "missing" in j.facts:
        return told("not run", "not run: the case fixes the types of its inputs")
    for reason in ("missing", "nothing"):
        for step in (t, j):
            if reason in step.facts:
                return told("not run", f"not run: {step.facts[reason]}")
    if t.error:  # many a program is written for float32: that says nothing about the converted one
        return told("not run", f"not run: the original fails in it: {t.error}")
    if j.error:
        return told("failed", f"converted side failed: {j.error}")
    return None


def _in_the_light_of_types(t: Step, j: Step, tally: Tally) -> tuple[Tally, list[str]]:
    """Judge at float32 what one of the programs computes in float32 although it was given float64."""
    sides = [(side, s.facts["narrow"]) for side, s in (("torch", t), ("JAX", j)) if s.facts["narrow"]]
    if not sides:
        return tally, []
    known = [f"{side} ({listed(types)})" for side, types in sides if types != ["unknown"]]
    where = "parts are computed in float32 in " + ", ".join(known) if known else "types inside could not be seen"
    again = Tally()
    for d in tally.found:
        again.add(
            d if d.ok or d.problem else Distance(d.name, d.absolute, d.relative, TOLERANCES["float32"], d.at, d.values)
        )
    return again, [f"judged by float32's tolerance: {where}"]


def _own(c: Comparison, name: str, mode: str, key: str, left: Any) -> float:
    """For bfloat16: as far as torch's own bfloat16 is from its float64, with some room."""
    exact = c.torch.get(f"float64 {mode}").arrays.get(key)
    if name == "float64" or exact is None or exact.shape != left.shape:
        return 0.0
    return ROUNDING_FACTOR / 2 * distance(key, left, exact, 0.0).relative


def _types(t: Step, j: Step) -> list[str]:
    left, right = ({leaf[0]: leaf for leaf in s.facts["leaves"]} for s in (t, j))
    pairs = [(p, left[p], right[p]) for p in left if p in right and left[p][1] == right[p][1] == "array"]
    found = [(p, dtype_problem(a[2], b[2], False)) for p, a, b in pairs]
    return [f"{p or 'output'}: {problem}" for p, problem in found if problem]


def _shown(key: str) -> str:
    for prefix, words in _PREFIXES.items():
        if key.startswith(prefix):
            return words + (key.removeprefix(prefix) or "output")
    return key


def loss(c: Comparison, mode: str, way: str) -> Stage:
    """The scalar that is trained on: the output that the case names, or the mean of w * output over all."""
    name = f"loss {mode}"
    sides = c.sides(name, f"gradient {mode}", way)
    if isinstance(sides, Stage):
        return sides
    if c.torch.get(f"forward {mode}").facts.get("random"):
        return Stage(name, way, "not run", detail=f"not run: the program draws random numbers in {mode} mode")
    t, j = (s.arrays["loss"] for s in sides)
    tally = Tally()
    tally.add(c.judged(distance("loss", t, j, c.tolerance(c.dtype(t))), mode, "loss", t, j))
    what = f"output {c.case.loss}" if c.case.loss is not None else "mean of w * output, w = cos(0), cos(1), ..."
    return c.stage(name, way, tally, what, [], [], False)


def dropout(c: Comparison) -> Stage:
    """Whether both draw random numbers in train mode as they stand, and with which drop rates."""
    sides = c.sides("dropout", "dropout", "")
    if isinstance(sides, Stage):
        return sides
    t, j = (s.facts for s in sides)
    seen = f"drop rates seen: torch {t['rates']}, JAX {j['rates']}"
    problems = []
    if t["random"] != j["random"]:
        draws, not_draws = ("torch", "JAX") if t["random"] else ("JAX", "torch")
        problems.append(f"{draws} draws random numbers in train mode, {not_draws} does not")
    if wrong := [r for r in j["rates"] if not any(abs(r - s) < 1e-6 for s in t["rates"])]:
        problems.append(f"JAX drops with {wrong}, torch never does")
    if problems:
        pairs = [(p, t["places"].get(p, []), j["places"].get(p, [])) for p in {**t["places"], **j["places"]}]
        problems += [f"{p}: {a or 'no rate'} in torch, {b or 'no rate'} in JAX" for p, a, b in pairs if a != b]
    if t["random"]:
        c.notes.append("drop rates are set to zero in both programs where train mode is compared")
    what = "both draw random numbers in train mode" if t["random"] else "neither draws random numbers in train mode"
    details = [seen] if t["rates"] or j["rates"] else []
    verdict: Verdict = "different" if problems else "equal"
    return Stage("dropout", "eager", verdict, "" if problems else what, detail=first_of([*problems, *details]))


def behaviour(c: Comparison, way: str) -> Stage:
    """The loss curve, and parameters and buffers after the optimizer's steps."""
    if c.torch.get("forward train").facts.get("random"):
        return Stage("behaviour", way, "not run", detail="not run: the program draws random numbers in train mode")
    if not c.options.steps:
        return Stage("behaviour", way, "not run", detail="not run: no steps were asked for")
    sides = c.sides("behaviour", "behaviour", way)
    if isinstance(sides, Stage):
        return sides
    t, j = sides
    tally = Tally()
    zero = t.facts["zero"] if c.options.optimizer != "sgd" else []
    left_out = {f"param.{n}" for n in zero}
    for key, value in t.arrays.items():
        if key in left_out or (key not in j.arrays and key.removeprefix("buffer.") in c.temporary()):
            continue
        dtype = "float32" if key in ("losses", "rates") and not c.x64 else str(value.dtype)
        tol = c.tolerance(dtype if c.x64 else NARROWED.get(dtype, dtype), BEHAVIOUR_FACTOR)
        shown = {"losses": "loss at step", "rates": "learning rate at step"}.get(key) or key.partition(".")[2]
        if key in j.arrays:
            tally.add(distance(shown, value, j.arrays[key], tol))
        else:
            tally.add(Distance(shown, 0.0, 0.0, tol, problem="missing in JAX"))
    count = sum(k.startswith("param.") for k in t.arrays) - len(left_out)
    steps = f"{c.options.steps} steps of {c.options.optimizer}"
    what = f"{steps}: losses, learning rates, {count} parameters, buffers"
    details = [f"without a gradient, not compared: {listed(zero)}"] * bool(zero)
    return c.stage("behaviour", way, tally, what, [], details, False)


def determinism(c: Comparison) -> Stage:
    """Whether the converted program gives the same again when it is run again with the same seed."""
    t, j = c.torch.get("determinism"), c.jax.get("determinism")
    if why := _no_sides(t, j):
        return Stage("determinism", "eager", *why)
    seen = {side: s.facts["changed"] for side, s in (("torch", t), ("JAX", j))}
    exact = "bit by bit" if j.facts["same bits"] else "but for rounding"
    if not seen["JAX"]:
        also = "" if not seen["torch"] else "; torch itself does not"
        return Stage("determinism", "eager", "holds", f"the same seed gives the same numbers, {exact}{also}")
    names = listed(n.removeprefix("out.") or "output" for n in seen["JAX"])
    verdict: Verdict = "different" if not seen["torch"] else "not run"
    said = "JAX gives other numbers with the same seed" if verdict == "different" else "neither repeats itself"
    return Stage("determinism", "eager", verdict, detail=f"{said}: {names}")


def eager_against_jit(c: Comparison) -> Stage:
    """Whether the converted program gives under jit what it gives when run eagerly: outputs, state, gradients."""
    name, tally, left_out = "eager against jit", Tally(), []
    if not c.options.eager:
        return Stage(name, "both", "not run", detail="not run: eager runs were not asked for")
    for mode in ("eval", "train"):
        for kind in ("forward", "gradient"):
            eager, jit = (c.jax.get(f"{kind} {mode} {way}") for way in ("eager", "jit"))
            if not eager.arrays or not jit.arrays:
                continue
            if c.torch.get(f"forward {mode}").facts.get("random"):
                left_out.append(f"{kind} {mode}")
                continue
            for key, value in eager.arrays.items():
                shown = f"{mode}: {_shown(key)}"
                if key in jit.arrays:
                    gap = distance(shown, value, jit.arrays[key], c.tolerance(str(value.dtype)))
                    own = c.torch.get(f"{kind} {mode}").arrays.get(key)
                    tally.add(gap if own is None else c.judged(gap, mode, key, own, jit.arrays[key]))
                else:
                    tally.add(Distance(shown, 0.0, 0.0, 0.0, problem="missing under jit"))
    if not tally.found:
        why = "the program draws random numbers" if left_out else "there are no two runs to compare"
        return Stage(name, "both", "not run", detail=f"not run: {why}")
    details = [f"not compared, random: {listed(left_out)}"] * bool(left_out)
    found = c.stage(name, "both", tally, f"{len(tally.found)} arrays of outputs, state, gradients", [], details, False)
    return found


def recompilations(c: Comparison) -> Stage:
    """How often the jitted program was traced, for calls with arrays of the same shapes and types."""
    name, counted, again = "recompilations", [], False
    for step in ("forward eval", "forward train", "behaviour"):
        facts = c.jax.get(f"{step} jit").facts
        if "traces" in facts:
            counted.append(f"{step}: {facts['traces']} in {facts['calls']} calls")
            again |= facts["traces"] > 1
    if not counted:
        return Stage(name, "jit", "not run", detail="not run: nothing was run under jit")
    return Stage(name, "jit", "recompiles" if again else "holds", f"traced {'; '.join(counted)}")


AFTERWARDS: tuple[tuple[str, str, Callable[[Comparison], Stage]], ...] = (
    ("determinism", "eager", determinism),
    ("eager against jit", "both", eager_against_jit),
    ("recompilations", "jit", recompilations),
)
