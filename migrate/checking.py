"""The command `check`: the findings in a format, against a baseline, or the readiness view; an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from .commands import print_bytes, report_writes, say
from .files import InputError
from .output import Write, check_target, write_all
from .report import text
from .report.baseline import gone, known_findings, read_baseline, render_baseline
from .report.formats import FORMATS, render_text
from .report.shown import Shown
from .report.style import style_for
from .work import Options, Work, convert_paths, exit_code, is_stdin


@dataclass(frozen=True)
class Check:
    """The command with its options; None for `baseline` and `fail_under` means: as the settings say."""

    options: Options = field(default_factory=Options)
    form: str = "text"
    readiness: bool = False
    baseline: Path | None = None
    write_baseline: Path | None = None
    fail_under: float | None = None

    def run(self, paths: Sequence[str]) -> int:
        """The report to standard output, the summary to standard error; returns the exit code. Raises InputError,
        OutputError, ConfigError, RuleError, BaselineError."""
        if self.readiness and (self.baseline or self.write_baseline):
            raise InputError("--readiness looks at all findings: it excludes --baseline and --write-baseline")
        work = convert_paths(paths, self.options)
        if self.readiness:
            return self._show_readiness(paths, work)
        shown = self._judged(work)
        render = FORMATS[self.form]
        report = render_text(shown, style_for(sys.stdout)) if self.form == "text" else render(shown)
        writes = report_writes(work.run, self.options) + self._baseline_writes(work)
        print_bytes(report.encode("utf-8", "backslashreplace"))
        style = style_for(sys.stderr)
        lines = text.judged_lines(shown, style)
        too_low = self._too_low(work)
        lines += [too_low] if too_low else []
        lines += self._baseline_lines(work, shown)
        if not self.options.dry_run:
            write_all(writes)
        say(lines)
        return exit_code(shown, self.options, failed=bool(too_low))

    def _judged(self, work: Work) -> Shown:
        path = self._baseline_path(work)
        if path is None or (self.write_baseline is not None and self.baseline is None):
            return work.shown
        known = known_findings(work.run, read_baseline(path), path.parent)
        return replace(work.shown, known=known)

    def _baseline_path(self, work: Work) -> Path | None:
        return self.baseline or work.settings.baseline

    def _baseline_writes(self, work: Work) -> list[Write]:
        if self.write_baseline is None:
            return []
        check_target(self.write_baseline)
        return [Write(self.write_baseline, render_baseline(work.run, self.write_baseline.parent).encode())]

    def _baseline_lines(self, work: Work, shown: Shown) -> Iterator[str]:
        path = self._baseline_path(work)
        if shown.known is not None and path is not None:
            old = gone(work.run, read_baseline(path), path.parent)
            if old:
                number = text.counted(old, "finding")
                yield f"{path}: {number} of it no longer occur; --write-baseline {path} drops them"
        if self.write_baseline is not None:
            yield f"{'would write' if self.options.dry_run else 'wrote'} {self.write_baseline}"

    def _too_low(self, work: Work) -> str:
        least = work.settings.fail_under if self.fail_under is None else self.fail_under
        seen = work.run.constructs
        if least is None or not seen.seen or seen.converted * 100 >= least * seen.seen:
            return ""
        return f"converted{text.percent(seen)} is less than --fail-under {least:g} %"

    def _show_readiness(self, paths: Sequence[str], work: Work) -> int:
        from .report.readiness import assess
        from .report.readiness_text import READINESS_FORMATS

        if self.form not in READINESS_FORMATS:
            raise InputError(f"--readiness has the formats {', '.join(READINESS_FORMATS)}, not {self.form}")
        found = assess(work.run, () if is_stdin(paths) else extensions([Path(p) for p in paths]))
        writes = report_writes(work.run, self.options)
        print_bytes(READINESS_FORMATS[self.form](found).encode("utf-8", "backslashreplace"))
        if not self.options.dry_run:
            write_all(writes)
        too_low = self._too_low(work)
        say([too_low] if too_low else [])
        return exit_code(replace(work.shown, fails=None), self.options, failed=bool(too_low))


_NATIVE = (".cu", ".cuh", ".cpp", ".cc", ".cxx")
_BUILT_AGAINST = (b"torch/", b"ATen/", b"c10/")


def extensions(paths: Sequence[Path]) -> list[str]:
    """The CUDA and C++ sources below folders that include torch's headers (all CUDA sources), in order."""
    found = []
    for root in (p for p in paths if p.is_dir()):
        for here, folders, files in os.walk(root):
            folders[:] = sorted(f for f in folders if not f.startswith("."))
            for name in sorted(files):
                path = Path(here, name)
                if path.suffix in _NATIVE and (path.suffix in (".cu", ".cuh") or _includes_torch(path)):
                    found.append(path.as_posix())
    return found


def _includes_torch(path: Path) -> bool:
    try:
        data = path.read_bytes()
    except OSError:
        return False
    return any(b"#include <" + name in data or b'#include "' + name in data for name in _BUILT_AGAINST)
