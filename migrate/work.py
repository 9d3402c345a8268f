"""From paths to a finished conversion, nothing written yet: settings, inputs, cache, the engine."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from .config import X64, ControlFlow, ExitCode, FailOn, LayerStyle, Settings, load_settings
from .files import STDIN, Input, InputError, Reading, check_paths, decode_outcome, find_inputs, read_all
from .gate import skipped, wants_conversion
from .read.source import Source
from .report.findings import Outcome, Run
from .report.shown import Shown
from .syntax import version_hint

if TYPE_CHECKING:
    from .review.decisions import Decisions

Refused = Mapping[str, frozenset[str]]  # by path: the keys of findings that a review refused


@dataclass(frozen=True)
class Options:
    """What the commands share; None means: as the settings say."""

    rules: tuple[Path, ...] = ()
    fail_on: FailOn | None = None
    exit_zero: bool = False
    dry_run: bool = False
    report: Path | None = None
    todo: bool | None = None
    control_flow: ControlFlow | None = None
    x64: X64 | None = None
    jobs: int | None = None
    cache: bool | None = None
    layers: LayerStyle | None = None


@dataclass(frozen=True)
class Work:
    """A finished conversion, nothing written yet. `inputs` is empty for standard input."""

    run: Run
    inputs: tuple[Input, ...]
    settings: Settings

    @property
    def changed(self) -> list[Outcome]:
        return [o for o in self.run.outcomes if o.status == "changed"]

    @property
    def layer_names(self) -> list[str]:
        return sorted({name for o in self.changed for name in o.layers})

    @property
    def shown(self) -> Shown:
        """The run with what settings and comments accept."""
        settings = self.settings
        by_path = {o.path: settings.accepts(o.path) for o in self.run.outcomes if o.findings}
        accepted = frozenset(f for f in self.run.findings if f.accepted or f.code in by_path.get(f.path, ()))
        fails = None if settings.fail_on == "never" else settings.fail_on
        return Shown(self.run, "note" if fails == "note" else "warning", fails, accepted=accepted)


def convert_paths(
    paths: Sequence[str],
    options: Options,
    without: Path | None = None,
    *,
    in_place: bool = True,
    decisions: Decisions | None = None,
    below: Path | None = None,
) -> Work:
    """Read what `paths` name and convert it. `without` is a folder of earlier output that is no input; what a review
    refused in `decisions` is kept as it is; files that are named keep their place below the folder `below`. Raises
    InputError, ConfigError, RuleError."""
    stdin = is_stdin(paths)
    if not stdin:
        check_paths(map(Path, paths))
    settings = settings_for(Path.cwd() if stdin else Path(paths[0]), options)
    inputs: tuple[Input, ...] = ()
    if not stdin:
        found = [Path(p) for p in paths]
        inputs = tuple(find_inputs(found, settings.exclude, without, gitignore=settings.gitignore))
    if below is not None:
        inputs = tuple(replace(i, relative=i.path.resolve().relative_to(below)) for i in inputs)
    reading = decode_outcome(STDIN, sys.stdin.buffer.read()) if stdin else read_all(inputs, in_place=in_place)
    refused = decisions.refused_in(inputs) if decisions else {}
    return Work(_convert(reading, settings, refused), inputs, settings)


def settings_for(start: Path, options: Options) -> Settings:
    """The settings of a place under those of the command line. Raises ConfigError."""
    settings = load_settings(start)
    return replace(
        settings,
        todo=settings.todo if options.todo is None else options.todo,
        fail_on=options.fail_on or settings.fail_on,
        control_flow=options.control_flow or settings.control_flow,
        x64=options.x64 or settings.x64,
        layers=options.layers or settings.layers,
        rules=(*settings.rules, *options.rules),
        jobs=settings.jobs if options.jobs is None else options.jobs,
        cache=settings.cache if options.cache is None else options.cache,
    )


def is_stdin(paths: Sequence[str]) -> bool:
    """Whether standard input is meant. Raises InputError for `-` beside other paths."""
    if "-" in paths and len(paths) > 1:
        raise InputError("- reads standard input and stands alone")
    return "-" in paths


def exit_code(shown: Shown, options: Options, *, failed: bool = False) -> ExitCode:
    """3 when the tool or a source failed, 1 for findings that count or when something else `failed`, else 0."""
    if any(f.code.startswith("JM9") for f in shown.run.findings):
        return ExitCode.FAULT
    return ExitCode.FINDINGS if (shown.failing or failed) and not options.exit_zero else ExitCode.DONE


def _convert(reading: Reading, settings: Settings, refused: Refused) -> Run:
    run = _converted(reading.sources, settings, refused)
    outcomes = sorted((*map(_with_hint, run.outcomes), *reading.failed), key=lambda o: o.path)
    return replace(run, outcomes=tuple(outcomes))


def _converted(sources: Sequence[Source], settings: Settings, refused: Refused) -> Run:
    if not settings.rules and not any(map(wants_conversion, sources)):
        return Run(tuple(map(skipped, sources)))  # without loading the engine or a rule
    from .cache import Cache
    from .progress import progress

    kept = Cache.for_run(sources, settings, refused)
    run = kept.load() if kept else None
    if run is None:
        from .parallel import useful_jobs
        from .project import convert_files
        from .rulebook import load_rules

        book = load_rules(settings.rules)
        settings = replace(settings, jobs=settings.jobs or useful_jobs(sum(len(s.text) for s in sources)))
        with progress(len(sources)) as step:
            run = convert_files(sources, book, settings, refused=refused, step=step)
        if kept:
            kept.store(run)
    return run


def _with_hint(outcome: Outcome) -> Outcome:
    """A source that does not parse, with the Python version that could read it as advice."""
    if outcome.status != "failed" or not any(f.code == "JM901" for f in outcome.findings):
        return outcome
    lines = outcome.before.split("\n")
    at = [outcome.span(f)[0] for f in outcome.findings]
    hints = (version_hint("".join(lines[n - 1 : n]), f.message) for f, n in zip(outcome.findings, at, strict=True))
    findings = (replace(f, advice=hint) if hint else f for f, hint in zip(outcome.findings, hints, strict=True))
    return replace(outcome, findings=tuple(findings))
