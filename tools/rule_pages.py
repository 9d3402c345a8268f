"""docs/rules/: a page for each file of rules, and an index with the counts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from jaxmigrate.explain import fidelity, target
from jaxmigrate.report.findings import CODES
from jaxmigrate.rulebook import Row, RuleBook
from jaxmigrate.rulebook.load import packages

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "rules"
MADE = "Written by `make docs`; do not edit."
FOLDERS = {"tensor": "Tensors", "nn": "Layers and functions", "optim": "Optimizers", "misc": "Everything else"}
KINDS = {
    "exact": "same numbers",
    "stated": "a difference is stated",
    "partial": "some arguments are refused: such a call is left and reported",
    "unmapped": "known, no counterpart: left and reported, with advice",
}
SHOWN = 4  # examples a rule


def cell(text: str) -> str:
    """Text that stays in one cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|")


def code(text: str) -> str:
    return f"`{cell(text)}`" if text else ""


def rule_pages(book: RuleBook) -> dict[Path, str]:
    """The text of each page by its path."""
    by_file: dict[str, list[Row]] = {}
    for row in book:
        by_file.setdefault(row.path, []).append(row)
    pages = {page_of(path): _page(path, rows) for path, rows in sorted(by_file.items())}
    return {FOLDER / "README.md": _index(by_file), **pages}


def page_of(path: str) -> Path:
    """The page of a rule file: docs/rules/tensor/reduce.md for rules/tensor/reduce.toml."""
    return (ROOT / "docs" / path).with_suffix(".md")


def topic(path: str) -> str:
    """The first sentence of a rule file's heading comment."""
    text = (ROOT / path).read_text(encoding="utf-8")
    comment = " ".join(line.lstrip("# ") for line in text.split("\n\n")[0].splitlines() if line.startswith("#"))
    return re.split(r"\.(?: |$)", comment)[0] or Path(path).stem


def _index(by_file: dict[str, list[Row]]) -> str:
    rows = [row for found in by_file.values() for row in found]
    counts = Counter(map(fidelity, rows))
    lines = ["# Rules", "", MADE, ""]
    lines += [f"{len(rows)} rules for {sum(len(r.names) for r in rows)} names of torch:", ""]
    lines += [f"* **{kind}** ({counts[kind]}): {meaning}" for kind, meaning in KINDS.items()]
    lines += ["", "`jaxmigrate explain NAME` shows all of a rule, with its cases.", ""]
    for folder, title in FOLDERS.items():
        lines += [f"## {title}", "", "| page | rules | names | exact | stated | partial | unmapped |"]
        lines += ["|---|---|---|---|---|---|---|"]
        for path in sorted(p for p in by_file if p.startswith(f"rules/{folder}/")):
            found, kinds = by_file[path], Counter(map(fidelity, by_file[path]))
            link = f"[{topic(path)}]({page_of(path).relative_to(FOLDER).as_posix()})"
            figures = [len(found), sum(len(r.names) for r in found), *(kinds[kind] for kind in KINDS)]
            lines.append(f"| {link} | {' | '.join(map(str, figures))} |")
        lines.append("")
    lines += ["## Packages built on torch", "", "A use of one of these is JM303.", "", "| package | advice |"]
    lines += ["|---|---|", *(f"| `{name}` | {cell(advice)} |" for name, advice in sorted(packages().items()))]
    return "\n".join([*lines, ""])


def _page(path: str, rows: Sequence[Row]) -> str:
    kinds = Counter(map(fidelity, rows))
    counted = ", ".join(f"{kinds[kind]} {kind}" for kind in KINDS if kinds[kind])
    up = "../" * path.count("/")
    lines = [f"# {topic(path)}", "", f"{MADE} Source: [{path}](../{up}{path}); [all pages](../README.md).", ""]
    lines += [f"{len(rows)} rules: {counted}.", "", "| rule | torch | JAX | |", "|---|---|---|---|"]
    for row in rows:
        before, after = _examples(row)
        lines.append(f"| {_names(row)} | {before} | {after} | {'<br>'.join(_remarks(row))} |")
    return "\n".join([*lines, ""])


def _names(row: Row) -> str:
    also = f"<br>also {', '.join(map(code, row.names[1:]))}" if row.names[1:] else ""
    return f"**{code(row.name)}**{also}"


def _examples(row: Row) -> tuple[str, str]:
    """What goes in and what comes out, as the rule's own cases have it; without cases the signature and the target."""
    cases: list[list[str]] = [c for c in row.get("cases", []) if not row.get("unmapped")][:SHOWN]
    if not cases:
        to = target(row)
        sig = row.get("sig")
        return code(f"{row.short}({sig})") if sig else "", "" if row.get("unmapped") or to == "-" else code(to)
    return "<br>".join(code(_one_line(before)) for before, _ in cases), "<br>".join(_result(*case) for case in cases)


def _result(before: str, after: str) -> str:
    if after == "=":
        return "unchanged"
    if after in CODES:
        return f"left: {after}"
    return code(_one_line(after))


def _one_line(text: str) -> str:
    return "; ".join(line.strip() for line in text.strip().splitlines())


def _remarks(row: Row) -> Iterator[str]:
    """How faithful a rule is, and its traps: stated differences, refused and dropped arguments, advice."""
    yield f"*{KINDS[fidelity(row)] if fidelity(row) in ('exact', 'stated') else fidelity(row)}*"
    for note in row.notes:
        yield cell(f"{note.code}: {note.text}" + (f" (when `{note.when}`)" if note.when else ""))
    for name, why in row.refuse.items():
        yield cell(f"refuses `{name}`: {why}")
    for name, why in row.drop.items():
        yield cell(f"ignores `{name}`: {why}")
    if row.advice:
        yield cell(row.advice)
