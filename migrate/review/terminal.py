"""The review in the terminal: one hunk at a time, an answer for each."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

from ..files import InputError
from ..report.findings import Finding, fate
from ..report.style import Colour, Style
from ..report.text import counted
from .hunks import Hunk
from .session import Session

HELP = """y  convert this
n  keep this as it was, and what cannot do without it
a  convert this and all that is left
r  convert this, and all hunks that only its rules change
R  keep as it was everything that its rules would change
e  edit what it becomes
q  stop; what was decided is kept
?  this help"""
_PROMPT = "Convert this [y,n,a,r,R,e,q,?]? "
_FIDELITY: dict[str, Colour] = {"exact": "green", "stated": "yellow", "left": "red", "unmapped": "red"}
_SIGNS: dict[str, Colour] = {"+": "green", "-": "red"}


class Terminal:
    """Asks on `out`, reads answers from `source`. `save` is called after each decision."""

    def __init__(self, session: Session, source: TextIO, out: TextIO, style: Style, save: Callable[[], object]) -> None:
        self.session, self.source, self.out, self.style, self.save = session, source, out, style, save

    def run(self) -> bool:
        """Ask until all is decided (True) or the user stops (False)."""
        while (hunk := self.session.pending()) is not None:
            self._show(hunk)
            if not self._ask(hunk):
                return False
        return True

    def _ask(self, hunk: Hunk) -> bool:
        session = self.session
        actions: dict[str, Callable[[], object]] = {
            "y": lambda: session.accept(hunk),
            "a": session.accept_all,
            "r": lambda: session.accept_rule(hunk),
            "n": lambda: self._tell_gone(session.refuse(hunk)),
            "R": lambda: self._tell_gone(session.refuse_rule(hunk)),
        }
        while True:
            self._say(self.style("bold", _PROMPT), end="")
            self.out.flush()
            line = self.source.readline()
            answer = line.strip() or "?"
            if not line or answer == "q":
                return False
            if answer in actions:
                actions[answer]()
                self.save()
                return True
            if answer == "e":
                if self._edit(hunk):
                    self.save()
                    return True
            else:
                self._say(HELP)

    def _show(self, hunk: Hunk) -> None:
        counts = self.session.counts()
        place, left = f"{hunk.path}:{hunk.start + 1}", f"{counts['open']} to decide"
        self._say(f"\n{self.style('bold', place)}  {self.style('dim', left)}")
        for finding in hunk.findings:
            for line in _finding_lines(finding, self.style):
                self._say(line)
        for sign, text in _diff(hunk):
            colour = _SIGNS.get(sign)
            shown = f"{sign}{text}".rstrip("\r\n")
            self._say(self.style(colour, shown) if colour else shown)

    def _edit(self, hunk: Hunk) -> bool:
        text = edited("".join(hunk.after), Path(hunk.path).suffix)
        if text == "".join(hunk.after):
            self._say("not changed")
            return False
        problem = self.session.edit(hunk, text)
        if problem:
            self._say(problem)
        return not problem

    def _tell_gone(self, gone: Sequence[Hunk]) -> None:
        if gone:
            places = ", ".join(f"{h.path}:{h.start + 1}" for h in gone[:4])
            more = f" and {len(gone) - 4} more" if len(gone) > 4 else ""
            self._say(self.style("dim", f"changed or gone with it: {counted(len(gone), 'hunk')} ({places}{more})"))

    def _say(self, text: str, end: str = "\n") -> None:
        self.out.write(text + end)


def edited(text: str, suffix: str) -> str:
    """The text after the user's editor. Raises InputError when there is none that runs."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ("notepad" if sys.platform == "win32" else "vi")
    with tempfile.TemporaryDirectory(prefix="jaxmigrate-") as folder:
        path = Path(folder, f"hunk{suffix or '.py'}")
        path.write_bytes(text.encode())
        try:
            done = subprocess.run([*shlex.split(editor), str(path)], check=False)
        except OSError as error:
            raise InputError(f"{editor}: {(error.strerror or str(error)).lower()}; set EDITOR") from error
        return path.read_bytes().decode() if done.returncode == 0 else text


def _finding_lines(finding: Finding, style: Style) -> Iterator[str]:
    what = fate(finding.code) or "note"
    head = style(_FIDELITY.get(what, "cyan"), f"{finding.code} {what}")
    message = finding.message if finding.message.startswith(finding.name) else f"{finding.name}: {finding.message}"
    yield f"  {head}  {message}"
    if finding.rule and finding.rule != finding.name:
        yield style("dim", f"      rule {finding.rule}")
    if finding.evidence:
        yield style("dim", f"      since {finding.evidence}")
    if finding.advice:
        yield style("dim", f"      {finding.advice}")


def _diff(hunk: Hunk) -> Iterator[tuple[str, str]]:
    for tag, a1, a2, b1, b2 in hunk.groups:
        old = hunk.before[a1 - hunk.start : a2 - hunk.start]
        if tag == "equal":
            yield from ((" ", line) for line in old)
            continue
        yield from (("-", line) for line in old)
        yield from (("+", line) for line in hunk.after[b1 - hunk.after_start : b2 - hunk.after_start])
