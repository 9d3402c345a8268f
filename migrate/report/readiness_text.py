"""The readiness view as text, Markdown and JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

from .markdown import cell
from .readiness import AGAIN, MINUTES, REVIEW, TIES, FileReadiness, Readiness, effort
from .text import counted, percent

SCHEMA = "jaxmigrate-readiness/1"
_HEAD = ("file", "advice", "constructs", "converted", "by hand", "effort", "tied by")
_ORDER = {"now": 0, "in part": 1, "not yet": 2, "nothing to do": 3}


def how_estimated() -> str:
    """How the effort is computed, in one sentence."""
    return (
        f"Effort: {MINUTES['1']} min for a stated difference, {MINUTES['2']} for something left "
        f"({MINUTES['JM206']} under an alias or a tensor's value, {MINUTES['JM208']} for a training loop), "
        f"{MINUTES['3']} to {MINUTES['JM303']} for something unmapped, a {_fraction(AGAIN)} of that when the same "
        "occurs again in the file; "
        f"{REVIEW} min a file to review and verify; for a tie "
        + ", ".join(f"{t.name} {effort(t.minutes)}" for t in TIES)
        + ". An estimate to compare files by, not a promise."
    )


def _fraction(part: float) -> str:
    return "quarter" if part == 0.25 else f"{part:.0%}"


def render_readiness_text(found: Readiness) -> str:
    """A table with a row for each file that uses torch, and the advice for all of them."""
    rows = [_HEAD, *(_row(f) for f in _ranked(found))]
    widths = [max(len(row[at]) for row in rows) for at in range(len(_HEAD))]
    lines = ["  ".join(_cell(text, widths[at], at) for at, text in enumerate(row)).rstrip() for row in rows]
    return "\n".join([*lines, "", *_verdict(found, "{}"), "", how_estimated(), ""])


def render_readiness_markdown(found: Readiness) -> str:
    """The same as a Markdown page."""
    lines = ["## Readiness for JAX", "", *_verdict(found, "**{}**")]
    lines += ["", "| " + " | ".join(_HEAD) + " |", "|---|---|--:|--:|--:|--:|---|"]
    lines += ["| " + " | ".join(map(cell, _row(f))) + " |" for f in _ranked(found)]
    return "\n".join([*lines, "", how_estimated(), ""])


def render_readiness_json(found: Readiness) -> str:
    """The same as data, `jaxmigrate-readiness/1`: every file, also those without torch."""
    data = {
        "schema": SCHEMA,
        "advice": found.advice,
        "reason": found.reason,
        "minutes": found.minutes,
        "constructs": _constructs(found),
        "ties": [{"name": name, "files": number} for name, number in found.ties],
        "extensions": list(found.extensions),
        "estimate": how_estimated(),
        "files": [_file(f) for f in found.files],
    }
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


READINESS_FORMATS: Mapping[str, Callable[[Readiness], str]] = {
    "text": render_readiness_text,
    "markdown": render_readiness_markdown,
    "json": render_readiness_json,
}


def _ranked(found: Readiness) -> list[FileReadiness]:
    return sorted(found.with_torch, key=lambda f: (_ORDER[f.advice], f.minutes, f.path))


def _row(file: FileReadiness) -> tuple[str, ...]:
    seen = file.constructs
    rate = percent(seen).strip(" ()") or "-"
    path = PurePath(file.path).as_posix()
    return path, file.advice, str(seen.seen), rate, str(file.hands), effort(file.minutes), ", ".join(file.ties)


def _cell(text: str, width: int, column: int) -> str:
    return text.rjust(width) if 2 <= column <= 5 else text.ljust(width)


def _verdict(found: Readiness, strong: str) -> Iterator[str]:
    said = {"now": "migrate now", "in part": "migrate in part", "not yet": "do not migrate yet"}
    advice, reason = strong.format(said.get(found.advice, found.advice)), found.reason
    yield f"Advice: {advice}. {reason[:1].upper()}{reason[1:]}."
    if not found.with_torch:
        return
    counts = {a: sum(f.advice == a for f in found.with_torch) for a in ("now", "in part", "not yet")}
    without = len(found.files) - len(found.with_torch)
    yield (
        f"Files: {counts['now']} now, {counts['in part']} in part, {counts['not yet']} not yet, "
        f"{without} without torch. "
        f"Effort: {effort(found.minutes)}."
    )
    instead = {t.name: t.instead for t in TIES}
    for name, number in found.ties:
        hint = f": {instead[name]}" if name in instead else ": built on torch (JM303)"
        yield f"Tied by {name} in {counted(number, 'file')}{hint}."
    if found.extensions:
        shown = ", ".join(found.extensions[:5])
        more = f" and {len(found.extensions) - 5} more" if len(found.extensions) > 5 else ""
        yield f"CUDA or C++ sources built against torch: {shown}{more}."


def _constructs(found: Readiness) -> dict[str, int]:
    c = found.constructs
    return {"exact": c.exact, "stated": c.stated, "left": c.left, "unmapped": c.unmapped}


def _file(file: FileReadiness) -> dict[str, Any]:
    c = file.constructs
    return {
        "path": PurePath(file.path).as_posix(),
        "status": file.status,
        "advice": file.advice,
        "constructs": {"exact": c.exact, "stated": c.stated, "left": c.left, "unmapped": c.unmapped},
        "by_hand": file.hands,
        "ties": list(file.ties),
        "minutes": file.minutes,
    }
