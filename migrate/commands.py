"""The commands `convert` and `check`: from paths to an exit code."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from .config import X64, ControlFlow, ExitCode, FailOn, Settings, load_settings
from .files import STDIN, Input, InputError, Reading, decode_outcome, find_inputs, read_all
from .gate import LAYER_FILE, skipped, wants_conversion
from .output import (
    OutputError,
    Place,
    Write,
    check_target,
    merged_layers,
    place,
    plan,
    uncommitted,
    write_all,
)
from .read.source import Source
from .report import diff, json, text
from .report.findings import Outcome, Run, Severity
from .report.style import style_for
from .syntax import version_hint

SHOWN = 40  # findings that `convert` shows; `check` shows them all
MANY = 20  # files that take long enough to say so


@dataclass(frozen=True)
class Options:
    """What `convert` and `check` share; None means: as the settings say."""

    rules: tuple[Path, ...] = ()
    fail_on: FailOn | None = None
    exit_zero: bool = False
    dry_run: bool = False
    report: Path | None = None
    todo: bool | None = None
    control_flow: ControlFlow | None = None
    x64: X64 | None = None


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


def run_check(paths: Sequence[str], options: Options, *, as_json: bool) -> int:
    """Findings to standard output, the summary to standard error; returns the exit code."""
    work = convert_paths(paths, options)
    fail_on = work.settings.fail_on
    if as_json:
        _print(json.render(work.run).encode())
    else:
        least: Severity = "note" if fail_on == "note" else "warning"
        lines = text.finding_lines(text.at_or_above(work.run.findings, least), style_for(sys.stdout))
        _print("".join(f"{line}\n" for line in lines).encode())
    _say(text.summary_lines(work.run, style_for(sys.stderr)))
    reports = _report_writes(work.run, options)
    if not options.dry_run:
        write_all(reports)
    return exit_code(work.run, options, fail_on)


@dataclass(frozen=True)
class Conversion:
    """The command `convert` with its options."""

    options: Options = field(default_factory=Options)
    output: str | None = None
    write: bool = False
    check: bool = False
    diff: bool | None = None
    force: bool = False

    def run(self, paths: Sequence[str]) -> int:
        """Convert, then write or show; returns the exit code. Everything that could forbid a write is asked before the
        first one. Raises InputError, OutputError, ConfigError, RuleError."""
        stdin = is_stdin(paths)
        if stdin and self.write:
            raise InputError("standard input cannot be converted in place; leave --write out")
        where = place(self.output, [] if stdin else [Path(p) for p in paths])
        without = where.output if where.folder else None
        work = convert_paths(paths, self.options, without, in_place=where.output is None)
        writes = self._writes(work, where) + _report_writes(work.run, self.options)
        if self._shows_diff(stdin):
            style = style_for(sys.stdout)
            _print(b"".join(diff.diff_bytes(o, style) for o in work.run.outcomes))
        elif stdin and self.output is None and not self.check:
            _print(b"".join(o.encoded() for o in work.run.outcomes if o.status != "failed"))
        if not self.options.dry_run:
            write_all(writes)
        self._tell(work, writes)
        would_change = self.check and bool(work.changed)
        return exit_code(work.run, self.options, work.settings.fail_on, would_change=would_change)

    def _shows_diff(self, stdin: bool) -> bool:
        if self.diff is not None:
            return self.diff
        writes = (self.write or self.output is not None) and not self.options.dry_run
        return not (writes or self.check or stdin)

    def _writes(self, work: Work, where: Place) -> list[Write]:
        if not (self.write or self.output is not None):
            return []
        if work.inputs:
            writes = plan(work.run, work.inputs, where)
        else:
            writes = [
                Write(where.target(_stdin_input()), o.encoded()) for o in work.run.outcomes if o.status != "failed"
            ]
        for write in writes:
            check_target(write.path)
        if self.write and not self.force:
            lost = uncommitted([w.path for w in writes])
            if lost:
                more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
                raise OutputError(f"{lost[0]}{more}: not committed in git; commit first, or use --force")
        return writes + self._layer_writes(work, where)

    def _layer_writes(self, work: Work, where: Place) -> list[Write]:
        if not work.run.layer_file:
            return []
        writes = []
        users = [i for i in work.inputs if str(i.path) in {o.path for o in work.changed if o.layers}]
        for path in where.layer_targets(users):
            check_target(path)
            layers = work.run.layer_file
            data = layers.encode() if self.force else merged_layers(path, layers, work.layer_names)
            if data is not None:
                writes.append(Write(path, data))
        return writes

    def _tell(self, work: Work, writes: Sequence[Write]) -> None:
        style = style_for(sys.stderr)
        findings = text.at_or_above(work.run.findings, "warning")
        lines = text.finding_lines(findings, style, limit=SHOWN)
        verb = "would write" if self.options.dry_run else "wrote"
        lines += [f"{verb} {w.path}" for w in writes]
        if self.check:
            lines += [f"would change {o.path}" for o in work.changed]
        lines += text.summary_lines(work.run, style)
        if work.layer_names and not (self.write or self.output is not None):
            names = ", ".join(work.layer_names)
            lines.append(f"{LAYER_FILE} holds the layers in use: {names}; -o or -w writes it")
        _say(lines)


def convert_paths(
    paths: Sequence[str], options: Options, without: Path | None = None, *, in_place: bool = True
) -> Work:
    """Read what `paths` name and convert it. `without` is a folder of earlier output that is no input."""
    stdin = is_stdin(paths)
    settings = load_settings(Path.cwd() if stdin else Path(paths[0]))
    settings = replace(
        settings,
        todo=settings.todo if options.todo is None else options.todo,
        fail_on=options.fail_on or settings.fail_on,
        control_flow=options.control_flow or settings.control_flow,
        x64=options.x64 or settings.x64,
        rules=(*settings.rules, *options.rules),
    )
    inputs = () if stdin else tuple(find_inputs([Path(p) for p in paths], settings.exclude, without))
    reading = _read_stdin() if stdin else read_all(inputs, in_place=in_place)
    return Work(_convert(reading, settings), inputs, settings)


def is_stdin(paths: Sequence[str]) -> bool:
    if "-" in paths and len(paths) > 1:
        raise InputError("- reads standard input and stands alone")
    return "-" in paths


def exit_code(run: Run, options: Options, fail_on: FailOn, *, would_change: bool = False) -> ExitCode:
    """3 when the tool or the source failed, 1 for findings at or above `fail_on` or files that would change, else 0."""
    if any(f.code.startswith("JM9") for f in run.findings):
        return ExitCode.FAULT
    found = fail_on != "never" and bool(text.at_or_above(run.findings, fail_on))
    return ExitCode.FINDINGS if (found or would_change) and not options.exit_zero else ExitCode.DONE


def _convert(reading: Reading, settings: Settings) -> Run:
    run = _converted(reading.sources, settings)
    outcomes = sorted((*map(_with_hint, run.outcomes), *reading.failed), key=lambda o: o.path)
    return replace(run, outcomes=tuple(outcomes))


def _converted(sources: Sequence[Source], settings: Settings) -> Run:
    if not settings.rules and not any(map(wants_conversion, sources)):
        return Run(tuple(map(skipped, sources)))  # without loading the engine or a rule
    from .project import convert_files
    from .rulebook import load_rules

    book = load_rules(settings.rules)
    with _progress(len(sources)):
        return convert_files(sources, book, settings)


def _with_hint(outcome: Outcome) -> Outcome:
    """A source that does not parse, with the Python version that could read it as advice."""
    if outcome.status != "failed" or not any(f.code == "JM901" for f in outcome.findings):
        return outcome
    lines = outcome.before.split("\n")
    hints = (version_hint("".join(lines[f.start[0] - 1 : f.start[0]]), f.message) for f in outcome.findings)
    findings = (replace(f, advice=hint) if hint else f for f, hint in zip(outcome.findings, hints, strict=True))
    return replace(outcome, findings=tuple(findings))


@contextmanager
def _progress(files: int) -> Iterator[None]:
    shown = files >= MANY and sys.stderr.isatty()
    if shown:
        print(f"converting {files} files ...", end="", file=sys.stderr, flush=True)
    yield
    if shown:
        print("\r\x1b[K", end="", file=sys.stderr)


def _read_stdin() -> Reading:
    return decode_outcome(STDIN, sys.stdin.buffer.read())


def _stdin_input() -> Input:
    return Input(Path("stdin.py"), Path("stdin.py"), named=True)


def _report_writes(run: Run, options: Options) -> list[Write]:
    if options.report is None:
        return []
    check_target(options.report)
    return [Write(options.report, json.render(run).encode())]


def _print(data: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _say(lines: Iterable[str]) -> None:
    for line in lines:
        print(line, file=sys.stderr)
