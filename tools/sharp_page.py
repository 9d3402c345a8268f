"""docs/sharp-bits.md: JAX's sharp bits, each with a torch program, its conversion and what the report says."""

from __future__ import annotations

import tomllib
from pathlib import Path

from jaxmigrate.config import Settings
from jaxmigrate.project import convert_files
from jaxmigrate.read.source import Source
from jaxmigrate.report.findings import CODES, Finding
from jaxmigrate.rulebook import RuleBook

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "tests" / "sharp_bits.toml"
HEAD = """# The sharp bits

Written by `make docs` from [tests/sharp_bits.toml](../tests/sharp_bits.toml); do not edit. What JAX's guides warn of,
as a torch program meets it: the program, what it becomes, what the report says. tests/test_sharp_bits.py checks each,
and runs those that have a `main()` in both frameworks."""


def sharp_page(book: RuleBook) -> str:
    bits = tomllib.loads(DATA.read_text(encoding="utf-8"))
    contents = [f"* [{bit['title']}](#{_anchor(bit['title'])})" for bit in bits.values()]
    sections = [_section(bit, book) for bit in bits.values()]
    return "\n\n".join([HEAD, "\n".join(contents), *sections]) + "\n"


def _section(bit: dict[str, str], book: RuleBook) -> str:
    settings = Settings(control_flow="lax" if bit.get("control_flow") == "lax" else "keep")
    (outcome,) = convert_files([Source("program.py", bit["program"].lstrip())], book, settings).outcomes
    said = [_finding(f) for f in outcome.findings if f.severity != "note" or f.code > "JM1"]
    parts = [f"## {bit['title']}", bit["text"], _code(outcome.before), "becomes", _code(outcome.after)]
    return "\n\n".join([*parts, "\n".join(said) or "Nothing is left to report."])


def _finding(found: Finding) -> str:
    text = f"* line {found.start[0]}: **{found.code}** ({CODES[found.code].summary}) {found.message}"
    return f"{text}. {found.advice}" if found.advice else text


def _code(text: str) -> str:
    return f"```python\n{text.strip()}\n```"


def _anchor(title: str) -> str:
    kept = "".join(c for c in title.lower() if c.isalnum() or c in " -")
    return kept.replace(" ", "-")
