"""The command `convert`: from paths to written files or a diff, and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from .files import Input, InputError
from .gate import LAYER_FILE
from .output import OutputError, Place, Write, check_target, merged_layers, place, plan, uncommitted, write_all
from .report import diff, json, text
from .report.findings import Run
from .report.style import style_for
from .work import Options, Work, convert_paths, exit_code, is_stdin

if TYPE_CHECKING:
    from .review.decisions import Decisions

SHOWN = 40  # findings that `convert` shows; `check` shows them all


@dataclass(frozen=True)
class Conversion:
    """The command `convert` with its options."""

    options: Options = field(default_factory=Options)
    output: str | None = None
    write: bool = False
    check: bool = False
    diff: bool | None = None
    force: bool = False
    decisions: Path | Decisions | None = None

    def run(self, paths: Sequence[str]) -> int:
        """Convert, then write or show; returns the exit code. Everything that could forbid a write is asked before the
        first one. Raises InputError, OutputError, ConfigError, RuleError."""
        stdin = is_stdin(paths)
        if stdin and self.write:
            raise InputError("standard input cannot be converted in place; leave --write out")
        where = place(self.output, [] if stdin else [Path(p) for p in paths])
        without = where.output if where.folder else None
        work = self._convert(paths, without, in_place=where.output is None)
        writes = self.writes(work, where) + report_writes(work.run, self.options)
        if self._shows_diff(stdin):
            style = style_for(sys.stdout)
            print_bytes(b"".join(diff.diff_bytes(o, style) for o in work.run.outcomes))
        elif stdin and self.output is None and not self.check:
            print_bytes(b"".join(o.encoded() for o in work.run.outcomes if o.status != "failed"))
        if not self.options.dry_run:
            write_all(writes)
        self._tell(work, writes)
        return exit_code(work.shown, self.options, failed=self.check and bool(work.changed))

    def _convert(self, paths: Sequence[str], without: Path | None, *, in_place: bool) -> Work:
        if self.decisions is None:
            return convert_paths(paths, self.options, without, in_place=in_place)
        from .review.decisions import load_decisions
        from .review.session import apply_edits

        given = self.decisions
        decisions = load_decisions(given, must_exist=True) if isinstance(given, Path) else given
        work = convert_paths(paths, self.options, without, in_place=in_place, decisions=decisions)
        work, lost = apply_edits(work, decisions)
        say(f"{path}: an edited hunk is no longer there; review it again" for path in lost)
        return work

    def _shows_diff(self, stdin: bool) -> bool:
        if self.diff is not None:
            return self.diff
        writes = (self.write or self.output is not None) and not self.options.dry_run
        return not (writes or self.check or stdin)

    def writes(self, work: Work, where: Place) -> list[Write]:
        """The files to write. Raises OutputError when one must not be written."""
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
        findings = text.at_or_above(work.shown.listed, "warning")
        lines = text.finding_lines(findings, style, limit=SHOWN)
        verb = "would write" if self.options.dry_run else "wrote"
        lines += [f"{verb} {w.shown}" for w in writes]
        if self.check:
            lines += [f"would change {o.path}" for o in work.changed]
        lines += text.summary_lines(work.run, style)
        if work.layer_names and not (self.write or self.output is not None):
            names = ", ".join(work.layer_names)
            lines.append(f"{LAYER_FILE} holds the layers in use: {names}; -o or -w writes it")
        say(lines)


def _stdin_input() -> Input:
    return Input(Path("stdin.py"), Path("stdin.py"), named=True)


def report_writes(run: Run, options: Options) -> list[Write]:
    """The report that `--report` asks for."""
    if options.report is None:
        return []
    check_target(options.report)
    return [Write(options.report, json.render(run).encode())]


def print_bytes(data: bytes) -> None:
    """To standard output, as they are."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def say(lines: Iterable[str]) -> None:
    """To standard error."""
    for line in lines:
        print(line, file=sys.stderr)
