"""Comments that speak to this tool: `# jaxmigrate: keep[JM121] why` and `# jaxmigrate: accept[JM121] why`.

`keep` leaves the constructs of its statement as they are, `accept` takes a finding for granted. Behind code a comment
is about the statement that it stands on, on a line of its own about the next statement. Without codes it is about all.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from .read.source import Tree
from .report.findings import CODES, Finding

WORD = "jaxmigrate:"
_COMMENT = re.compile(r"#\s*jaxmigrate:\s*(keep|accept)\b\s*(?:\[([^\]\n]*)\])?(.*)")


@dataclass(frozen=True)
class Suppression:
    """One comment: where it stands, what it asks for, and the lines that it is about."""

    start: tuple[int, int]
    end: tuple[int, int]
    text: str
    verb: Literal["keep", "accept"]
    codes: tuple[str, ...]
    why: str
    first: int
    last: int

    def covers(self, finding: Finding) -> bool:
        """Whether a finding (with the lines of the module) is one that it speaks of."""
        if not self.first <= finding.start[0] <= self.last or finding.code.startswith(("JM4", "JM9")):
            return False
        return not self.codes or finding.code in self.codes


def suppressions(tree: Tree) -> list[Suppression]:
    """The comments of a file, in order."""
    if WORD not in tree.text:
        return []
    found = []
    for start, end in tree.comments:
        match = _COMMENT.match(tree.text[start:end])
        if match is None:
            continue
        verb, codes, why = match.groups()
        names = tuple(c.strip() for c in codes.split(",") if c.strip()) if codes is not None else ()
        first, last = _lines(tree, start)
        place = tree.position(start), tree.position(end)
        found.append(Suppression(*place, match.group(), verb, names, why.strip(" :-"), first, last))  # type: ignore[arg-type]
    return found


def unused(path: str, comments: Iterable[Suppression], used: set[Suppression]) -> list[Finding]:
    """A finding for each comment that did nothing, and for each code that is none."""
    found = []
    for comment in comments:
        wrong = [c for c in comment.codes if c not in CODES]
        if wrong:
            close = difflib.get_close_matches(wrong[0], CODES, n=1)
            hint = f"did you mean {close[0]}?" if close else ""
            found.append(_finding(path, comment, f"{wrong[0]} is no code", hint))
        elif comment not in used:
            what = f" of {', '.join(comment.codes)}" if comment.codes else ""
            found.append(_finding(path, comment, f"there is no finding{what} here to {comment.verb}"))
    return found


def _finding(path: str, comment: Suppression, message: str, advice: str = "") -> Finding:
    return Finding(
        path, comment.start, comment.end, "JM411", "", "suppression", message, advice or "Remove the comment.",
        before=comment.text,
    )  # fmt: skip


def _lines(tree: Tree, at: int) -> tuple[int, int]:
    """The lines of the statement that a comment at offset `at` is about: a compound statement's are those of its
    head."""
    line = tree.position(at)[0]
    alone = not tree.text[tree.line_starts[line - 1] : at].strip()
    spans = sorted(_span(tree, n) for n in tree.nodes if isinstance(n, ast.stmt))
    if alone:
        return next(((first, last) for first, last in spans if first > line), (line, line))
    held = [(first, last) for first, last in spans if first <= line <= last]
    return max(held, default=(line, line))


def _span(tree: Tree, stmt: ast.stmt) -> tuple[int, int]:
    first = tree.position(tree.start(stmt))[0]
    decorators = getattr(stmt, "decorator_list", None)
    if decorators:
        first = min(first, tree.position(tree.start(decorators[0]))[0])
    body = getattr(stmt, "body", None)
    if isinstance(body, list) and body:
        before = tree.position(tree.start(body[0]))[0]
        return first, max(first, before - 1)
    return first, tree.position(tree.end(stmt))[0]
