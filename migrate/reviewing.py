"""The command `review`: in the terminal, as a page, or as patches."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from .commands import Conversion, say
from .config import ExitCode
from .files import InputError
from .output import OutputError, Write, check_target, write_all
from .report.style import style_for
from .report.text import counted
from .review.decisions import DEFAULT, load_decisions
from .work import Options, convert_paths, is_stdin

SplitBy = Literal["rule", "file"]


@dataclass(frozen=True)
class Review:
    """The command with its options."""

    options: Options = field(default_factory=Options)
    html: Path | None = None
    split_by: SplitBy | None = None
    output: str | None = None
    write: bool = False
    decisions: Path | None = None
    restart: bool = False
    force: bool = False

    def run(self, paths: Sequence[str]) -> int:
        """Returns the exit code. Raises InputError, OutputError, ConfigError, RuleError."""
        if is_stdin(paths):
            raise InputError("review needs files: standard input has the answers")
        if self.html and self.split_by:
            raise InputError("--html and --split-by exclude each other")
        if self.html:
            return self._page(paths, self.html)
        if self.split_by:
            return self._patches(paths, self.split_by)
        return self._terminal(paths)

    def _page(self, paths: Sequence[str], page: Path) -> int:
        from .review.page import render_page

        check_target(page)
        saved = load_decisions(self.decisions, must_exist=True) if self.decisions else None
        work = convert_paths(paths, self.options, decisions=saved)
        self._write([Write(page, render_page(work.shown).encode())])
        return _failed(work.run.findings)

    def _patches(self, paths: Sequence[str], split_by: SplitBy) -> int:
        from .review.patches import patches_by_file, patches_by_rule

        if self.output is None:
            raise InputError("--split-by writes patches into a folder: name it with --output")
        folder = Path(self.output)
        if folder.is_dir() and any(folder.iterdir()):
            raise OutputError(f"{folder}: not empty; the patches of an earlier run would mix with these")
        saved = load_decisions(self.decisions, must_exist=True) if self.decisions else None
        work = convert_paths(paths, self.options, folder, decisions=saved)
        writes = (patches_by_file if split_by == "file" else patches_by_rule)(work, folder)
        for write in writes:
            check_target(write.path)
        self._write(writes)
        return _failed(work.run.findings)

    def _terminal(self, paths: Sequence[str]) -> int:
        from .review.session import Session
        from .review.terminal import Terminal

        path = self.decisions or DEFAULT
        decisions = load_decisions(path)
        if self.restart:
            decisions = type(decisions)(path)
        session = Session(paths, self.options, decisions)

        def save() -> None:
            if not self.options.dry_run:
                decisions.save()

        terminal = Terminal(session, sys.stdin, sys.stdout, style_for(sys.stdout), save)
        done = terminal.run()
        counts = session.counts()
        say(
            [
                f"{counted(counts['accepted'], 'hunk')} accepted, {counts['edited']} edited, "
                f"{counted(counts['refused'], 'construct')} refused, {counts['open']} to decide; decisions in {path}"
            ]
        )
        save()
        if not done:
            say([f"`jaxmigrate review {' '.join(paths)}` goes on"])
            return ExitCode.DONE
        if self.output is None and not self.write:
            say([f"`jaxmigrate convert {' '.join(paths)} --decisions {path} -w` writes it"])
            return _failed(session.work.run.findings)
        conversion = Conversion(self.options, self.output, self.write, force=self.force, decisions=decisions)
        return conversion.run(paths)

    def _write(self, writes: Sequence[Write]) -> None:
        if not self.options.dry_run:
            write_all(writes)
        verb = "would write" if self.options.dry_run else "wrote"
        say([f"{verb} {w.shown}" for w in writes[:20]])
        if len(writes) > 20:
            say([f"... and {len(writes) - 20} more"])


def _failed(findings: Sequence[object]) -> ExitCode:
    """3 when a file does not parse or the tool failed: a review asks for nothing else."""
    failed = any(getattr(f, "code", "").startswith("JM9") for f in findings)
    return ExitCode.FAULT if failed else ExitCode.DONE
