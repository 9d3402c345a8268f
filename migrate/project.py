"""Many files as one project: read them all, understand them together, convert each."""

from __future__ import annotations

import ast
import gc
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from .config import Settings
from .engine import convert_unit
from .gate import is_layer_file, skipped, wants_conversion
from .layers import catalogue, emit
from .notebooks import finish
from .progress import Step, no_step
from .read.infer import infer
from .read.needs import find_needs, is_converted
from .read.project import open_project
from .read.source import Source
from .read.unit import Unit
from .report.findings import Finding, Outcome, Run
from .rewrite.imports import leads_to_torch
from .rulebook import RuleBook


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
        return _convert(sources, book, settings or Settings(), step)


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


def _convert(sources: Sequence[Source], book: RuleBook, settings: Settings, step: Step) -> Run:
    relevant = [s for s in sources if wants_conversion(s)]
    everything = [s for s in sources if not is_layer_file(s)] if relevant else []
    project, errors = open_project(everything, book)
    infer(project)
    needs = find_needs(project, book, catalogue())
    units = {u.source.path: u for u in project.units}
    outcomes: list[Outcome] = []
    for source in sources:
        if source.path in errors and wants_conversion(source):
            outcomes.append(_unparsed(source, errors[source.path]))
        elif source.path not in units or not _concerned(units[source.path]):
            outcomes.append(skipped(source))
        else:
            outcomes.append(convert_unit(units[source.path], project, needs, settings, source.layers))
        step("converting", len(outcomes), len(sources))
    outcomes = [finish(o, s, settings.outputs) for o, s in zip(outcomes, sources, strict=True)]
    layers = frozenset(name for o in outcomes for name in o.layers)
    if any(c.is_module for u in units.values() for c in u.classes.values()):
        layers |= {"load_state_dict"}
    return Run(tuple(outcomes), emit(layers) if layers else "", book.digest)


def _concerned(unit: Unit) -> bool:
    """Whether there is anything to convert in a file: torch's name, or tensors that a file with torch hands to it."""
    if _is_jax(unit) or is_layer_file(unit.source):
        return False
    return wants_conversion(unit.source) or any(
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
