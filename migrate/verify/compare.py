"""Two recordings of one case become its stages."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from . import contract
from .cases import Case
from .interface import first_of, interface_problems, listed
from .measure import NARROWED, Distance, Tally, distance, dtype_problem, tolerance
from .measure import judged as light_of_float64
from .record import Recording, Step
from .results import Stage, Verdict, VerifyOptions
from .worker import settings

# Errors of code whose control flow or shapes depend on values: right when run eagerly, impossible under jit.
_NEEDS_VALUES = (
    "ConcretizationTypeError",
    "TracerArrayConversionError",
    "TracerBoolConversionError",
    "TracerIntegerConversionError",
    "NonConcreteBooleanIndexError",
)


class Comparison:
    """The stages of one case, in order, and the notes that came up on the way."""

    def __init__(self, torch: Recording, jax: Recording, case: Case, options: VerifyOptions) -> None:
        self.torch, self.jax, self.case = torch, jax, case
        self.options = settings(case, options)
        self.notes: list[str] = []
        self.x64 = bool(jax.get("load").facts.get("x64"))
        self.ways = ["eager"] * options.eager + ["jit"] * options.jit

    def stages(self) -> list[Stage]:
        """Every stage, those that could not be run included."""
        first = self.interface()
        loaded = first.verdict != "failed" and "weights" not in self.jax.get("build").facts
        module = self.case.build is not None
        found = [first]
        for mode in ("eval", "train") if module else ("eval",):
            plan: list[tuple[str, Callable[[str, str], Stage]]] = [
                ("forward", self.forward),
                ("loss", partial(contract.loss, self)),
                ("gradient", self.gradient),
                *([("buffers", self.buffers)] * module),
            ]
            if mode == "train":
                found += [contract.dropout(self) if loaded else _not_run("dropout", "eager", first)]
            for kind, compare in plan:
                for way in self.ways:
                    name = f"{kind} {mode}"
                    found.append(compare(mode, way) if loaded else _not_run(name, way, first))
            for precision in self.options.precisions:
                name = f"{precision} {mode}"
                found.append(contract.precision(self, precision, mode) if loaded else _not_run(name, "eager", first))
        for way in self.ways if module else ():
            found.append(contract.behaviour(self, way) if loaded else _not_run("behaviour", way, first))
        for name, way, compare_more in contract.AFTERWARDS:
            if way == "eager" or self.options.jit:
                found.append(compare_more(self) if loaded else _not_run(name, way, first))
        if loaded:
            self._note()
        return found

    def curves(self) -> tuple[tuple[str, tuple[float, ...]], ...]:
        """The loss curves of the steps of an optimizer, by side."""
        sides = {"torch": self.torch.get("behaviour")}
        sides |= {f"JAX, {way}": self.jax.get(f"behaviour {way}") for way in self.ways}
        return tuple((n, tuple(map(float, s.arrays["losses"]))) for n, s in sides.items() if "losses" in s.arrays)

    def interface(self) -> Stage:
        """Both sides import and build; then names, shapes, types and trainability of the state."""
        for side, recording in (("torch", self.torch), ("converted", self.jax)):
            for step in ("load", "build"):
                taken = recording.get(step)
                if taken.error or "missing" in taken.facts:
                    doing = "import" if step == "load" else "build"
                    why = taken.error or taken.facts["missing"]
                    return Stage("interface", doing, "failed", detail=f"{side} side failed: {why}")
        if self.case.build is None:
            return Stage("interface", "import", "equal", f"imports without torch; {self.case.target} is there")
        t, j = self.torch.get("build"), self.jax.get("build").facts
        problems = list(interface_problems(t, j, self.x64))
        if "weights" in j and not problems:
            problems.append(f"the weights could not be loaded: {j['weights']}")
        count = len(t.facts["parameters"])
        what = (
            f"imports without torch, builds; names and shapes of {count} parameters, {len(t.facts['buffers'])} buffers"
        )
        return Stage("interface", "build", "different" if problems else "equal", what, detail=first_of(problems))

    def sides(self, name: str, step: str, way: str) -> Stage | tuple[Step, Step]:
        """The two steps to compare, or the stage that says why there is nothing to compare."""
        t, j = self.torch.get(step), self.jax.get(f"{step} {way}".strip())
        if t.error:
            return Stage(name, way, "failed", detail=f"torch side failed: {t.error}")
        for reason in ("missing", "nothing"):
            if reason in t.facts:
                return Stage(name, way, "not run", detail=f"not run: {t.facts[reason]}")
        if j.error:
            if way == "jit" and j.facts.get("kind") in _NEEDS_VALUES:
                return Stage(name, way, "eager only", detail=f"cannot be traced by jit: {j.error}")
            return Stage(name, way, "failed", detail=f"converted side failed: {j.error}")
        if "missing" in j.facts:
            return Stage(name, way, "not run", detail=f"not run: {j.facts['missing']}")
        return t, j

    def forward(self, mode: str, way: str) -> Stage:
        """Every output: its place in the result, type, shape and numbers."""
        name = f"forward {mode}"
        sides = self.sides(name, name, way)
        if isinstance(sides, Stage):
            return sides
        t, j = sides
        random = {n.removeprefix("out.") for n in t.facts["random"]}
        tally = Tally()
        problems: list[str] = []
        opaque: list[str] = []
        left, right = ({leaf[0]: leaf for leaf in s.facts["leaves"]} for s in (t, j))
        if list(left) != list(right):
            problems.append(f"the result has the parts {_parts(left)} in torch, {_parts(right)} in JAX")
        for path in (p for p in left if p in right):
            shown = path or "output"
            if left[path][1] == "object" or right[path][1] == "object":
                same = left[path][1:] == right[path][1:]
                (opaque if same else problems).append(f"{shown} is {left[path][2]} in torch, {right[path][2]} in JAX")
            elif path in random and left[path][1] == right[path][1] == "array":
                a, b = t.arrays[f"out.{path}"].shape, j.arrays[f"out.{path}"].shape
                if a != b:
                    problems.append(f"{shown}: shape {a} in torch, {b} in JAX")
                if way == "eager" and f"out.{path}" not in j.facts.get("random", []):
                    problems.append(f"{shown}: torch draws random numbers here, JAX gives the same each time")
            else:
                tally.add(self._leaf(shown, left[path], right[path], t, j, path, mode))
        details = [f"random: compared shapes only ({listed(p or 'output' for p in left if p in random)})"] * bool(
            random
        )
        details += [f"not compared: {o}" for o in opaque]
        what = f"{len(tally.found)} output{'s' * (len(tally.found) != 1)}"
        return self.stage(name, way, tally, what, problems, details, bool(random) or not left)

    def _leaf(self, shown: str, left: list[Any], right: list[Any], t: Step, j: Step, path: str, mode: str) -> Distance:
        """One part of the result; Python numbers and arrays without dimensions may stand for each other."""
        if "array" not in (left[1], right[1]):
            a, b = left[2], right[2]
            if type(a) in (int, float) and type(b) in (int, float):
                return distance(shown, a, b, tolerance("float32" if float in (type(a), type(b)) else "int32", None))
            problem = "" if a == b and type(a) is type(b) else f"{a!r} in torch, {b!r} in JAX"
            return Distance(shown, 0.0, 0.0, 0.0, problem=problem)
        a, b = (s.arrays[f"out.{path}"] if leaf[1] == "array" else leaf[2] for s, leaf in ((t, left), (j, right)))
        if any(isinstance(v, str) or v is None for v in (a, b)):
            kinds = ["an array" if leaf[1] == "array" else repr(leaf[2]) for leaf in (left, right)]
            return Distance(shown, 0.0, 0.0, 0.0, problem=f"{kinds[0]} in torch, {kinds[1]} in JAX")
        if left[1] == right[1]:
            if problem := dtype_problem(left[2], right[2], self.x64):
                return Distance(shown, 0.0, 0.0, 0.0, problem=problem)
        dtype = right[2] if right[1] == "array" else left[2]
        return self.judged(distance(shown, a, b, self.tolerance(dtype)), mode, f"out.{path}", a, b)

    def gradient(self, mode: str, way: str) -> Stage:
        """Gradients of the floating inputs and of every trainable parameter."""
        name = f"gradient {mode}"
        sides = self.sides(name, name, way)
        if isinstance(sides, Stage):
            return sides
        t, j = sides
        random = bool(self.torch.get(f"forward {mode}").facts.get("random"))
        tally = Tally()
        problems: list[str] = []
        for key, grad in t.arrays.items():
            if key == "loss":
                continue
            shown = key.removeprefix("grad.").replace("in.", "input ", 1) if key.startswith("in.") else key[5:]
            if key not in j.arrays:
                if key not in t.facts["unused"]:
                    problems.append(f"{shown}: no gradient in JAX")
            elif random:
                if grad.shape != j.arrays[key].shape:
                    problems.append(f"{shown}: shape {grad.shape} in torch, {j.arrays[key].shape} in JAX")
            else:
                dtype = t.facts["dtypes"][key]
                dtype = dtype if self.x64 else NARROWED.get(dtype, dtype)
                found = distance(shown, grad, j.arrays[key], self.tolerance(dtype))
                tally.add(self.judged(found, mode, key, grad, j.arrays[key]))
        inputs = sum(k.startswith("in.") for k in t.arrays)
        what = f"{inputs} inputs, {sum(k.startswith('grad.') for k in t.arrays)} parameters"
        details = ["random: compared shapes only"] * random
        wrong = [d.name for d in tally.bad if f"grad.{d.name}" in t.arrays]
        if 1 < len(wrong) < sum(k.startswith("grad.") for k in t.arrays):
            # Gradients flow backwards: what is wrong at one place is wrong at all that come before it.
            last = wrong[-1].rpartition(".")[0] or "the module itself"
            details.append(f"the last sub-module, in order of definition, with a gradient that differs: {last}")
        return self.stage(name, way, tally, what, problems, details, random)

    def buffers(self, mode: str, way: str) -> Stage:
        """Buffers after one forward call, and parameters that the call has changed."""
        name = f"buffers {mode}"
        sides = self.sides(name, f"forward {mode}", way)
        if isinstance(sides, Stage):
            return sides
        t, j = sides
        weights = self.torch.get("build").arrays
        random = bool(t.facts["random"])
        tally = Tally()
        names = [k for k in {**t.arrays, **j.arrays} if k.startswith("state.")]
        for key in names:
            shown = key.removeprefix("state.")
            if shown in self.temporary() and key not in j.arrays:
                continue  # JAX may keep it as a plain constant
            before = weights.get(f"sd.{shown}")
            a, b = t.arrays.get(key, before), j.arrays.get(key, before)
            if a is None or b is None:
                continue  # the interface stage has reported it
            if random and a.dtype.kind == "f":
                tally.add(distance(shown, a * 0, b * 0, 0.0))
            else:
                tally.add(self.judged(distance(shown, a, b, self.tolerance(self.dtype(a))), mode, key, a, b))
        if not tally.found:
            return Stage(name, way, "not run", detail="not run: there are no buffers")
        details = ["random: compared shapes only"] * random
        return self.stage(name, way, tally, f"{len(tally.found)} after one call", [], details, random)

    def temporary(self) -> dict[str, Any]:
        facts = self.torch.get("build").facts
        found: dict[str, Any] = dict(facts["temporary"])
        if "mapping" in self.jax.get("build").facts:
            found |= {n: [] for n in facts["buffers"] if n.endswith("num_batches_tracked")}
        return found

    def tolerance(self, dtype: str, factor: float = 1.0) -> float:
        return tolerance(dtype, self.options.tolerance, factor)

    def dtype(self, array: Any) -> str:
        """The type by whose tolerance an array of torch's is judged."""
        dtype = str(array.dtype)
        return dtype if self.x64 else NARROWED.get(dtype, dtype)

    def judged(self, found: Distance, mode: str, key: str, t: Any, j: Any) -> Distance:
        """A distance beyond its tolerance in the light of the float64 runs: whether it is rounding or an error."""
        if found.ok or found.problem or self.options.tolerance is not None:
            return found
        wide = [s.get(f"float64 {mode}").arrays.get(key) for s in (self.torch, self.jax)]
        return light_of_float64(found, t, *wide)

    def stage(
        self, name: str, way: str, tally: Tally, what: str, problems: list[str], details: list[str], random: bool
    ) -> Stage:
        worst = tally.worst
        numbers = [d for d in tally.found if not d.problem]
        bad = [str(d) for d in tally.bad if d.problem or d is not worst]
        verdict: Verdict = "equal"
        if problems or tally.bad:
            verdict = "different"
        elif random and all(d.tolerance == 0.0 for d in tally.found):
            verdict = "shapes only"
        details = [*details, *(f"{d.name}: {d.note}" for d in tally.found if d.note)][:4]
        more = [f"{len(tally.bad)} of {len(tally.found)} differ"] * (len(tally.bad) > 1)
        shown = [*problems, *more, *(bad[:3] if tally.bad else []), *details]
        return Stage(
            name,
            way,
            verdict,
            what,
            max((d.absolute for d in numbers), default=None),
            max((d.relative for d in numbers), default=None),
            None if worst is None else worst.tolerance,
            "" if worst is None else str(worst),
            "; ".join(shown),
        )

    def _note(self) -> None:
        facts = self.torch.get("build").facts
        if written := sorted(
            {n for m in ("eval", "train") for n in self.torch.get(f"forward {m}").facts.get("written", [])}
        ):
            self.notes.append(f"torch writes to its inputs in place ({listed(written)}); JAX arrays cannot change")
        mapping = self.jax.get("build").facts.get("mapping", {"names": {}, "guessed": []})
        if renamed := [f"{t} = {j}" for t, j in mapping["names"].items() if t != j]:
            self.notes.append(f"names of the state: {listed(renamed)}")
        self.notes += [f"the name map was not decided by names and shapes: {guess}" for guess in mapping["guessed"]]
        trainable = set(self.jax.get("build").facts.get("parameters", []))
        if frozen := sorted(set(facts.get("frozen", [])) & trainable):
            self.notes.append(f"frozen in torch, nnx.Param in JAX (the optimizer needs a filter): {listed(frozen)}")
        if self.x64:
            self.notes.append("64-bit types are switched on in JAX (jax_enable_x64)")


def _not_run(name: str, way: str, first: Stage) -> Stage:
    why = "the interface stage failed" if first.verdict == "failed" else "the weights could not be carried over"
    return Stage(name, way, "not run", detail=f"not run: {why}")


def _parts(leaves: dict[str, Any]) -> str:
    return f"({listed(p or 'output' for p in leaves)})"
