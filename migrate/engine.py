"""One file through all stages: gate, read, understand, decide, write, check, report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .check import check_output
from .config import Settings
from .layers import Layer, catalogue
from .read.needs import Needs
from .read.project import Project
from .read.source import Source
from .read.unit import Unit
from .report.findings import Finding, Outcome, fate
from .rewrite import passes
from .rewrite.imports import Written, fix_imports
from .rewrite.kept import Stays, keep_statements
from .rewrite.narrow import narrow_imports
from .rewrite.plan import Plan
from .rewrite.rest import report_rest
from .rewrite.todo import mark_left
from .rewrite.writer import Writer


def convert_unit(unit: Unit, project: Project, needs: Needs, settings: Settings, stays: Stays | None = None) -> Outcome:
    """Convert one understood file, but for the statements that stay. Never raises for what it holds: a failing rule is
    JM903, a bad output JM902."""
    source, layer_module = unit.source, unit.source.layers
    names: Mapping[str, Layer] = catalogue(needs.native.layers)
    if unit.fault:
        return _failed(source, "JM903", unit.fault)
    plan = Plan(unit, project, names, needs, settings=settings)
    try:
        for run in passes():
            run(plan)
        if stays is not None:
            keep_statements(plan, stays)
        written = _write(plan, settings, layer_module)
        if stays is None:
            written = replace(written, text=narrow_imports(plan, written))
    except RecursionError:
        return _failed(source, "JM903", "the file is nested too deeply for this tool")
    except SyntaxError as error:
        return _failed(source, "JM902", f"the output does not parse: line {error.lineno}: {error.msg}")
    except Exception as error:
        return _failed(source, "JM903", f"{type(error).__name__}: {error}")
    problem = check_output(unit, written)
    if problem:
        return _failed(source, "JM902", problem)
    changed = written.text != source.text
    torch_free = not written.left and not any(fate(f.code) in ("left", "unmapped") for f in plan.findings)
    return Outcome(
        source.path, "changed" if changed else "unchanged", source.text, written.text, tuple(sorted(plan.findings)),
        frozenset(plan.layers), torch_free, source.encoding, source.bom,
    )  # fmt: skip


def _write(plan: Plan, settings: Settings, layer_module: str) -> Written:
    """The written text. What is still torch in it and unreported is reported, and marked in the text."""
    todo = settings.todo_for(plan.unit.source.path)
    if todo:
        mark_left(plan, plan.nodes)
    written = fix_imports(Writer(plan).module(), plan.layers, plan.unit, layer_module, plan.reexports)
    missing = [n for n in plan.removed if n in written.unbound]
    if missing:
        for restore in [r for n in missing for r in plan.removed[n]]:
            restore()
        written = fix_imports(Writer(plan).module(), plan.layers, plan.unit, layer_module, plan.reexports)
    rest = report_rest(plan, written)
    if not rest or not todo:
        return written
    mark_left(plan, rest)
    return fix_imports(Writer(plan).module(), plan.layers, plan.unit, layer_module, plan.reexports)


def _failed(source: Source, code: str, message: str) -> Outcome:
    finding = Finding(source.path, (1, 1), (1, 1), code, "", "", message)
    return Outcome(
        source.path, "failed", source.text, source.text, (finding,), encoding=source.encoding, bom=source.bom
    )
