#!/usr/bin/env python
"""Write the pages of docs/ that are made from data: `python tools/write_docs.py`.

docs/rules/ comes from the rule book, docs/codes.md from the table of codes, docs/sharp-bits.md from the programs of
tests/sharp_bits.toml, docs/unmapped.md from the rules and from tests/oracle/scope.toml.
"""

from __future__ import annotations

import sys
from pathlib import Path

from jaxmigrate.report.findings import CODES
from jaxmigrate.rulebook import load_rules

sys.path.insert(0, str(Path(__file__).parent))
from rule_pages import FOLDER, MADE, ROOT, cell, rule_pages
from sharp_page import sharp_page
from unmapped_page import unmapped_page

GROUPS = {
    "JM0": ("Converted", "the same numbers"),
    "JM1": ("Converted, with a stated difference", "read the message"),
    "JM2": ("Left as it is", "a person must decide"),
    "JM3": ("Unmapped", "no rule, or a rule that says why there is none"),
    "JM4": ("Project", "files that belong together"),
    "JM9": ("Tool", "exit code 3"),
}


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
    book = load_rules()
    docs = ROOT / "docs"
    return {
        **rule_pages(book),
        docs / "codes.md": codes_page(),
        docs / "sharp-bits.md": sharp_page(book),
        docs / "unmapped.md": unmapped_page(book),
    }


def stale(made: dict[Path, str]) -> list[Path]:
    """Pages of rule files that are gone."""
    return sorted(path for path in FOLDER.rglob("*.md") if path not in made)


def main() -> None:
    made = pages()
    for path in stale(made):
        path.unlink()
        print(f"removed {path.relative_to(ROOT)}")
    for path, text in made.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
