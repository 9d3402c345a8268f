#!/usr/bin/env python
"""Write docs/rules.md and docs/codes.md from the rule book and the table of codes: `python tools/write_docs.py`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from jaxmigrate.explain import fidelity, target
from jaxmigrate.report.findings import CODES
from jaxmigrate.rulebook import Row, RuleBook, load_rules
from jaxmigrate.rulebook.load import packages

ROOT = Path(__file__).resolve().parents[1]
MADE = "Written by `make docs`; do not edit."
FOLDERS = {"tensor": "Tensors", "nn": "Layers and functions", "optim": "Optimizers", "misc": "Everything else"}
GROUPS = {
    "JM0": ("Converted", "the same numbers"),
    "JM1": ("Converted, with a stated difference", "read the message"),
    "JM2": ("Left as it is", "a person must decide"),
    "JM3": ("Unmapped", "no rule, or a rule that says why there is none"),
    "JM4": ("Project", "files that belong together"),
    "JM9": ("Tool", "exit code 3"),
}
KINDS = {
    "exact": "same numbers",
    "stated": "a difference is stated",
    "partial": "some arguments are refused: such a call is left and reported",
    "unmapped": "known, no counterpart: left and reported, with advice",
}


def cell(text: str) -> str:
    """Text that stays in one cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|")


def code(text: str) -> str:
    return f"`{cell(text)}`" if text else ""


def remarks(row: Row) -> str:
    """What there is to know about a row: stated differences, refused and dropped arguments, advice."""
    notes = [f"{n.code}: {n.text}" + (f" (when `{n.when}`)" if n.when else "") for n in row.notes]
    notes += [f"refuses `{name}`: {why}" for name, why in row.refuse.items()]
    notes += [f"ignores `{name}`: {why}" for name, why in row.drop.items()]
    return cell("; ".join([*notes, *([row.advice] if row.advice else [])]))


def becomes(row: Row) -> str:
    to = target(row)
    return "" if to == "-" else code(to) + (" …" if len(row.options) > 1 else "")


def topic(path: str) -> str:
    """The first sentence of a rule file's heading comment."""
    text = (ROOT / path).read_text(encoding="utf-8")
    comment = " ".join(line.lstrip("# ") for line in text.split("\n\n")[0].splitlines() if line.startswith("#"))
    return re.split(r"\.(?: |$)", comment)[0] or Path(path).stem


def rules_page(book: RuleBook) -> str:
    """docs/rules.md: every row, by topic."""
    rows = list(book)
    counts = Counter(map(fidelity, rows))
    lines = ["# Rules", "", MADE, ""]
    lines += [f"{len(rows)} rules for {sum(len(r.names) for r in rows)} names of torch:", ""]
    lines += [f"* **{kind}** ({counts[kind]}): {meaning}" for kind, meaning in KINDS.items()]
    lines += [
        "",
        "`{name}` is the text of the argument; `[, …]` is only written when its argument was given; `…` after a",
        "target: other forms exist. `jaxmigrate explain NAME` shows all of a row, with its cases.",
    ]
    for folder, title in FOLDERS.items():
        lines += ["", f"## {title}"]
        for path in sorted({r.path for r in rows if r.path.startswith(f"rules/{folder}/")}):
            lines += ["", f"### {topic(path)}", "", f"[{path}](../{path})", ""]
            lines += table([r for r in rows if r.path == path])
    lines += [
        "",
        "## Packages built on torch",
        "",
        "A use of one of these is JM303.",
        "",
        "| package | advice |",
        "|---|---|",
    ]
    lines += [f"| `{name}` | {cell(advice)} |" for name, advice in sorted(packages().items())]
    return "\n".join([*lines, ""])


def table(rows: list[Row]) -> Iterator[str]:
    yield "| torch | becomes | | to know |"
    yield "|---|---|---|---|"
    for row in rows:
        also = f" (also {', '.join(map(code, row.names[1:]))})" if row.names[1:] else ""
        yield f"| {code(row.name)}{also} | {becomes(row)} | {fidelity(row)} | {remarks(row)} |"


def codes_page() -> str:
    """docs/codes.md: every finding code."""
    lines = ["# Findings", "", MADE, ""]
    lines += [
        "A code names a kind of finding, the torch name is its parameter: `JM202 torch.topk`. Each construct that",
        "touches torch ends in exactly one. `--fail-on` sets the severity that makes the exit code 1 (default: error).",
    ]
    for head, (title, meaning) in GROUPS.items():
        lines += ["", f"## {head}xx: {title}", "", f"{meaning[0].upper()}{meaning[1:]}.", ""]
        lines += ["| code | severity | meaning | what to do |", "|---|---|---|---|"]
        lines += [
            f"| {c.code} | {c.severity} | {cell(c.summary)} | {cell(c.help)} |"
            for c in CODES.values()
            if c.code.startswith(head)
        ]
    return "\n".join([*lines, ""])


def pages() -> dict[Path, str]:
    """The text of each page by its path."""
    return {ROOT / "docs" / "rules.md": rules_page(load_rules()), ROOT / "docs" / "codes.md": codes_page()}


def main() -> None:
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
