"""docs/unmapped.md: what of torch's tensor operations is left, and why."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

from rule_pages import cell, code

from jaxmigrate.rulebook import RuleBook

ROOT = Path(__file__).resolve().parents[1]
HEAD = """# Tensor operations that are left

Written by `make docs` from the rules and from [tests/oracle/scope.toml](../tests/oracle/scope.toml); do not edit.
"""
FOLDERS = ("rules/tensor/", "rules/nn/functional_")


def unmapped_page(book: RuleBook) -> str:
    """Names without a counterpart (JM301), arguments without one (JM202), entries of op_db that are out of scope."""
    parts = [HEAD, "## Without a counterpart (JM301)", _table("operation", "what to do", _unmapped(book))]
    parts += ["## Arguments without a counterpart (JM202)", _table("argument", "what to do", _refused(book))]
    parts += [
        "## Entries of PyTorch's operator database that are not measured",
        _table("entry", "why", _out_of_scope()),
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _rows(book: RuleBook) -> list:  # type: ignore[type-arg]
    return sorted((r for r in book if r.path.startswith(FOLDERS)), key=lambda r: r.name)


def _unmapped(book: RuleBook) -> Iterator[tuple[str, str]]:
    for row in _rows(book):
        if row.get("unmapped"):
            yield ", ".join(map(code, row.names)), row.advice


def _refused(book: RuleBook) -> Iterator[tuple[str, str]]:
    for row in _rows(book):
        for name, why in row.refuse.items():
            yield code(f"{row.name}({name}=)"), why


def _out_of_scope() -> Iterator[tuple[str, str]]:
    scope = tomllib.loads((ROOT / "tests" / "oracle" / "scope.toml").read_text(encoding="utf-8"))
    yield from ((code(name), why) for name, why in scope["out_of_scope"].items())


def _table(left: str, right: str, lines: Iterator[tuple[str, str]]) -> str:
    return "\n".join([f"| {left} | {right} |", "|---|---|", *(f"| {cell(a)} | {cell(b)} |" for a, b in lines)])
