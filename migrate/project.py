"""Many files as one project: read them all, understand them together, convert each."""

from __future__ import annotations

import ast
import gc
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from .config import Settings
from .engine import convert_unit
from .gate import is_layer_file, skipped, wants_conversion
from .keep import Kept, find_kept
from .layers import emit
from .notebooks import finish
from .parallel import convert_each
from .progress import Step, no_step
from .read.infer import infer
from .read.native import TORCH_LAYERS, find_native
from .read.needs import find_needs, is_converted
from .read.project import imported, open_project
from .read.source import Source
from .read.unit import Unit
from .report.findings import Finding, Outcome, Run
from .rewrite.imports import leads_to_torch
from .rewrite.kept import Stay, Stays, hide
from .rulebook import RuleBook
from .suppress import Suppression, suppressions, unused


def convert_files(
    sources: Sequence[Source],
    book: RuleBook,
    settings: Settings | None = None,
    *,
    refused: Mapping[str, frozenset[str]] | None = None,
    step: Step = no_step,
) -> Run:
    """Convert `sources` together: one Outcome a source, in the order given, and the layer file's text.

    `refused` are the keys (`keys_of`) of findings by path that a review refused: their constructs are kept as they are.
    `step` is told how far it is.
    """
    with _uncollected(), _deep():
        return _convert(sources, book, settings or Settings(), refused or {}, step)


# A file of these without torch is the same model for another framework: its tensors are not torch's.
OTHER_FRAMEWORKS = frozenset({"tensorflow", "keras", "paddle", "mxnet", "mindspore", "chainer"})

DEPTH = 10_000  # frames: sums of a thousand terms are nested a thousand deep


@contextmanager
def _deep() -> Iterator[None]:
    """With room for deeply nested expressions."""
    was = sys.getrecursionlimit()
    sys.setrecursionlimit(max(was, DEPTH))
    try:
        yield
    finally:
        sys.setrecursionlimit(was)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without the cyclic garbage collector: it would walk all trees again and again, and they live until the end."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _convert(
    sources: Sequence[Source], book: RuleBook, settings: Settings, refused: Mapping[str, frozenset[str]], step: Step
) -> Run:
    run = _Pass(sources, book, settings, step)
    outcomes = run.outcomes({})
    comments = {u.source.path: suppressions(u.tree) for u in run.units.values()}
    found = {o.path: o.findings for o in outcomes}
    if refused or any(c.verb == "keep" for cs in comments.values() for c in cs):
        kept = find_kept(run.project, found, comments, refused)
        stays = {unit.source.path: _stays(unit, k) for unit, k in kept.items()}
        if stays:
            run = _Pass(sources, book, settings, step, stays)
            outcomes = run.outcomes(stays)
    outcomes = [_judged(o, comments.get(o.path, ()), found[o.path]) for o in outcomes]
    outcomes = [finish(o, s, settings.outputs) for o, s in zip(outcomes, sources, strict=True)]
    native = run.needs.native.layers
    layers = frozenset(name for o in outcomes for name in o.layers)
    if any(c.is_module for u in run.units.values() for c in u.classes.values()):
        layers |= {"load_state_dict", *(("named_variables", "torch_axes") if native else ())}
    return Run(tuple(outcomes), emit(layers, native) if layers else "", book.digest)


class _Pass:
    """The project, read and understood; statements in `stays` are not looked into."""

    def __init__(
        self,
        sources: Sequence[Source],
        book: RuleBook,
        settings: Settings,
        step: Step,
        stays: Mapping[str, Stays] | None = None,
    ) -> None:
        self.sources, self.settings, self.step = sources, settings, step
        relevant = any(wants_conversion(s) for s in sources)
        everything = [s for s in sources if not is_layer_file(s)] if relevant else []
        step("reading", 0, len(everything))
        self.project, self.errors = open_project(everything, book)
        self.units = {u.source.path: u for u in self.project.units}
        for path, stay in (stays or {}).items():
            hide(self.units[path], stay)
        step("understanding", 0, len(everything))
        infer(self.project)
        native = find_native(self.project, book) if settings.layers == "nnx" else TORCH_LAYERS
        self.needs = find_needs(self.project, book, native)

    def outcomes(self, stays: Mapping[str, Stays]) -> list[Outcome]:
        """One for each source, in the order given."""
        found: dict[str, Outcome] = {}
        todo: list[Unit] = []
        for source in self.sources:
            path = source.path
            if path in self.errors and wants_conversion(source):
                found[path] = _unparsed(source, self.errors[path])
            elif path not in self.units or not _concerned(self.units[path]):
                found[path] = skipped(source)
            else:
                todo.append(self.units[path])
        made = convert_each(todo, lambda u: self._one(u, stays), self.settings.jobs, self.step)
        found.update((u.source.path, o) for u, o in zip(todo, made, strict=True))
        return [found[s.path] for s in self.sources]

    def _one(self, unit: Unit, stays: Mapping[str, Stays]) -> Outcome:
        return convert_unit(unit, self.project, self.needs, self.settings, stays.get(unit.source.path))


def _stays(unit: Unit, kept: Kept) -> Stays:
    tree = unit.tree
    regions = [
        Stay(tree.start(stmt), tree.end(stmt), why, stmt in kept.asked, tuple(kept.findings[stmt]))
        for stmt, why in kept.reasons.items()
    ]
    return Stays(tuple(sorted(regions, key=lambda s: s.start)), kept.excused)


def _judged(outcome: Outcome, comments: Sequence[Suppression], found: Sequence[Finding]) -> Outcome:
    """The outcome with what comments accept marked, and comments that do nothing reported. `found` is what there was
    before anything was kept."""
    if not comments or outcome.status in ("skipped", "failed"):
        return outcome
    used = {c for c in comments if any(c.covers(f) for f in found)}
    accepts = [c for c in comments if c.verb == "accept"]
    findings = [replace(f, accepted=True) if any(c.covers(f) for c in accepts) else f for f in outcome.findings]
    findings += unused(outcome.path, comments, used)
    return replace(outcome, findings=tuple(sorted(findings)))


def _concerned(unit: Unit) -> bool:
    """Whether there is anything to convert in a file: torch's name, also by way of another file, a module of another
    file, or tensors that a file with torch hands to it."""
    if _is_jax(unit) or is_layer_file(unit.source):
        return False
    if unit.reexports and any(
        b.target.startswith("torch") for s in unit.scopes.of.values() for bs in s.bindings.values() for b in bs
    ):
        return True
    modules = {kind.name for kind in unit.kinds.values() if kind.tag == "Module"}
    if wants_conversion(unit.source) or modules - {"plain"}:
        return True
    if modules and not imported(unit) & OTHER_FRAMEWORKS:
        return True  # attributes of a plain object may be tensors
    return any(
        kind.is_tensor
        for function in unit.functions.values()
        for where, seen in function.seen.items()
        if where is not unit and wants_conversion(where.source)
        for kind in seen.values()
    )


def _is_jax(unit: Unit) -> bool:
    """Whether a file imports JAX and not torch: an earlier run has converted it, or nobody needs to."""
    return is_converted(unit) and not any(
        leads_to_torch(stmt, alias) for stmt in unit.tree.both(ast.Import, ast.ImportFrom) for alias in stmt.names
    )


def _unparsed(source: Source, error: SyntaxError) -> Outcome:
    line, column = error.lineno or 1, error.offset or 1
    finding = Finding(source.path, (line, column), (line, column), "JM901", "", "", error.msg or "invalid syntax")
    return Outcome(
        source.path, "failed", source.text, source.text, (finding,), encoding=source.encoding, bom=source.bom
    )
