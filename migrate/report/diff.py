"""The diff, each hunk headed by the rules that made it and why: a patch that `git apply` takes."""

from __future__ import annotations

import bisect
import difflib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from .findings import Finding, Outcome, fate
from .style import PLAIN, Colour, Style

CONTEXT = 1  # lines around a change: few, so that a heading is about what one sees under it
MOST = 8  # phrases in a heading
LONG_SPAN = 6  # lines; a finding about more than these is about a whole class, function or loop
LONG_FILE = 2000  # lines
LONGEST = 100  # characters of one phrase in a hunk's heading
_COLOURS: dict[str, Colour] = {"+": "green", "-": "red", "@": "cyan"}
_PLAIN_NAME = re.compile(r"[\w./@+=,:~-]+")

Opcodes = Sequence[tuple[str, int, int, int, int]]


def diff_bytes(outcome: Outcome, style: Style = PLAIN) -> bytes:
    """The diff of one file in that file's own bytes (encoding, line ends, BOM); empty when nothing changed."""
    lines = diff_lines(outcome)
    if style.on:
        lines = [_painted(line, style) for line in lines]
    return b"".join(_encoded(line, outcome.encoding) for line in lines)


def diff_lines(outcome: Outcome) -> list[str]:
    """The unified diff of one file, lines with their ends. The text after a hunk's second `@@` says what was done."""
    if outcome.after == outcome.before:
        return []
    mark = "\ufeff" if outcome.bom else ""
    before, after = split_lines(mark + outcome.before), split_lines(mark + outcome.after)
    name = PurePath(outcome.path).as_posix().lstrip("/")
    # A tab ends a name with blanks in it; git and patch both read it so.
    end = "\n" if _PLAIN_NAME.fullmatch(name) else "\t\n"
    lines = [f"--- a/{name}{end}", f"+++ b/{name}{end}"]
    for group in group_changes(opcodes(before, after)):
        body = list(_hunk_body(group, before, after))
        lines.append(_hunk_head(group, outcome, body))
        lines.extend(body)
    return lines


def reasons(findings: Sequence[Finding], most: int = MOST) -> list[str]:
    """One phrase for each kind of change, in order of place, with how often it occurs.

    Of more than `most` the plain conversions go first, and the last phrase says how many are not shown.
    """
    counts: dict[str, int] = {}
    plain: dict[str, None] = {}
    for finding in findings:
        phrase = _reason(finding)
        counts[phrase] = counts.get(phrase, 0) + 1
        if finding.severity == "note":
            plain[phrase] = None
    dropped = set(list(plain)[max(0, len(plain) - max(0, len(counts) - most)) :])
    shown = [phrase if n == 1 else f"{phrase} (x{n})" for phrase, n in counts.items() if phrase not in dropped]
    return [*shown, f"and {len(dropped)} more"] if dropped else shown


def opcodes(before: Sequence[str], after: Sequence[str]) -> Opcodes:
    """How `before` becomes `after`, line by line."""
    if len(before) <= LONG_FILE:
        return difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    # difflib takes the square of the number of changes: cut at lines that stand once on either side.
    found: list[tuple[str, int, int, int, int]] = []
    a = b = 0
    for left, right in [*_anchors(before, after), (len(before), len(after))]:
        for tag, a1, a2, b1, b2 in difflib.SequenceMatcher(None, before[a:left], after[b:right]).get_opcodes():
            _extend(found, (tag, a + a1, a + a2, b + b1, b + b2))
        if left < len(before):
            _extend(found, ("equal", left, left + 1, right, right + 1))
        a, b = left + 1, right + 1
    return found


def _anchors(before: Sequence[str], after: Sequence[str]) -> list[tuple[int, int]]:
    """Lines that stand once in each text, as many as keep their order: the longest rising sequence."""
    once = [{line for line, count in Counter(text).items() if count == 1} for text in (before, after)]
    place = {line: at for at, line in enumerate(after) if line in once[1]}
    pairs = [(at, place[line]) for at, line in enumerate(before) if line in once[0] and line in place]
    ends: list[int] = []  # the least end of a rising sequence of each length
    last: list[int] = []
    back: list[int] = []
    for at, (_, right) in enumerate(pairs):
        length = bisect.bisect_left(ends, right)
        back.append(last[length - 1] if length else -1)
        ends[length : length + 1] = [right]
        last[length : length + 1] = [at]
    chain = []
    at = last[-1] if last else -1
    while at >= 0:
        chain.append(pairs[at])
        at = back[at]
    return chain[::-1]


def _extend(found: list[tuple[str, int, int, int, int]], code: tuple[str, int, int, int, int]) -> None:
    """Add an opcode, to the last one when it goes on with it."""
    tag, _, a2, _, b2 = code
    if found and (found[-1][0] == tag or "equal" not in (tag, found[-1][0])):
        _, a1, _, b1, _ = found.pop()
        name = tag if tag == "equal" else "replace" if a2 > a1 and b2 > b1 else "delete" if a2 > a1 else "insert"
        code = (name, a1, a2, b1, b2)
    found.append(code)


def group_changes(opcodes: Opcodes) -> Iterator[Opcodes]:
    """The opcodes in groups, cut wherever two changes have lines enough between them for the context of both.

    (difflib joins hunks that touch. git takes touching ones, but none without a line of context.)
    """
    group: list[tuple[str, int, int, int, int]] = []
    for tag, a1, a2, b1, b2 in opcodes:
        if tag != "equal":
            group.append((tag, a1, a2, b1, b2))
            continue
        last = a2 == opcodes[-1][2] and b2 == opcodes[-1][4]
        if group and (last or a2 - a1 >= 2 * CONTEXT):
            end = min(a2, a1 + CONTEXT)
            yield [*group, ("equal", a1, end, b1, b1 + end - a1)]
            group = []
        start = a1 if group else max(a1, a2 - CONTEXT)
        group.append(("equal", start, a2, b2 - (a2 - start), b2))
    if any(tag != "equal" for tag, *_ in group):
        yield group


def _reason(finding: Finding) -> str:
    message = " ".join(finding.message.split()).rstrip(".")
    what = message if message.startswith(finding.name) else f"{finding.name}: {message}"
    what = what if len(what) <= LONGEST else what[: LONGEST - 1] + "…"
    left = "left: " if fate(finding.code) in ("left", "unmapped") else ""
    return f"{left}{what} [{finding.code}]"


@dataclass(frozen=True)
class _Span:
    """Lines from 1, both ends in."""

    first: int
    last: int

    def meets(self, span: tuple[int, int]) -> bool:
        return span[0] <= self.last and span[1] >= self.first


def _hunk_head(group: Opcodes, outcome: Outcome, body: Sequence[str]) -> str:
    (_, a1, _, b1, _), (_, _, a2, _, b2) = group[0], group[-1]
    changed = [_Span(i + 1, max(j, i + 1)) for tag, i, j, _, _ in group if tag != "equal"]
    lowest, highest = changed[0].first, changed[-1].last
    near = [f for f in outcome.findings if f.cell or (f.start[0] <= highest and f.end[0] >= lowest)]
    hit = sorted(f for f in near if any(span.meets(outcome.span(f)) for span in changed))
    text = "; ".join(reasons(innermost(hit))) or ("imports" if _only_imports(body) else "")
    return f"@@ -{_range(a1, a2)} +{_range(b1, b2)} @@{' ' if text else ''}{text}\n"


def _only_imports(body: Sequence[str]) -> bool:
    changed = [line[1:].split() for line in body if line[0] in "+-"]
    return all(words[0] in ("import", "from") for words in changed if words)


def innermost(findings: Sequence[Finding]) -> list[Finding]:
    """Without those findings about a whole class or function whose lines merely reach over the hunk."""
    short = [f for f in findings if f.end[0] - f.start[0] < LONG_SPAN]
    return short or list(findings)


def _hunk_body(group: Opcodes, before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    for tag, a1, a2, b1, b2 in group:
        if tag == "equal":
            yield from _marked(" ", before[a1:a2])
        else:
            yield from _marked("-", before[a1:a2])
            yield from _marked("+", after[b1:b2])


def _marked(sign: str, lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        yield sign + line
        if not line.endswith("\n"):
            yield "\n\\ No newline at end of file\n"


def _range(start: int, stop: int) -> str:
    length = stop - start
    if length == 1:
        return f"{start + 1}"
    return f"{start + 1 if length else start},{length}"


def split_lines(text: str) -> list[str]:
    """Lines as git sees them: only a line feed ends one (`splitlines` also cuts at form feeds and lone returns)."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _encoded(line: str, encoding: str) -> bytes:
    try:
        return line.encode(encoding)
    except UnicodeEncodeError:  # a hunk's heading; the file's own lines always fit
        return line.encode()


def _painted(line: str, style: Style) -> str:
    if line.startswith(("---", "+++")):
        return style("bold", line.rstrip("\n")) + "\n"
    colour = _COLOURS.get(line[:1])
    return style(colour, line.rstrip("\n")) + "\n" if colour else line
