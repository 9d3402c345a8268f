"""The commands `explain` and `rules`: what the rule book and the table of codes say."""

from __future__ import annotations

import difflib
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from .config import ExitCode, load_settings
from .report.findings import CODES, Code
from .report.style import Style, style_for
from .rulebook import Row, RuleBook, load_rules
from .rulebook.load import packages

# How people write the modules of torch; a name that starts with a lower-case letter and one dot is a method (`x.view`).
_SHORT = {"nn": "torch.nn", "F": "torch.nn.functional", "optim": "torch.optim", "init": "torch.nn.init"}


def run_explain(name: str, rules: Sequence[Path]) -> int:
    """Print what is known about a torch name or a code; an unknown one gets suggestions and exit code 2."""
    style = style_for(sys.stdout)
    if re.fullmatch(r"(?i)JM\d+", name):
        code = CODES.get(name.upper())
        if code is None:
            return _unknown(f"no code {name.upper()}", difflib.get_close_matches(name.upper(), CODES, n=4, cutoff=0.5))
        print("\n".join(code_lines(code, style)))
        return ExitCode.DONE
    book = load_rules((*load_settings(Path.cwd()).rules, *rules))
    found = find_rows(name, book)
    if not found and name in packages():
        print(f"{style('bold', name)}  package built on torch (JM303)\n  advice     {packages()[name]}")
        return ExitCode.DONE
    if not found:
        return _unknown(f"no rule for {name or repr(name)}", suggestions(name, book))
    print("\n\n".join("\n".join(row_lines(row, style)) for row in found))
    return ExitCode.DONE


def run_rules(as_json: bool, rules: Sequence[Path]) -> int:
    """Print every row: as a table, or as JSON."""
    book = load_rules((*load_settings(Path.cwd()).rules, *rules))
    rows = list(book)
    if as_json:
        counts = Counter(fidelity(row) for row in rows)
        data = {"rules": book.digest, "counts": dict(sorted(counts.items())), "rows": [row_data(row) for row in rows]}
        print(json.dumps(data, indent=2, ensure_ascii=False))
    else:
        print("\n".join(table_lines(rows, style_for(sys.stdout))))
    return ExitCode.DONE


def find_rows(name: str, book: RuleBook) -> list[Row]:
    """The rows that a name in any usual spelling may mean: `torch.nn.Linear`, `nn.Linear`, `F.softmax`, `x.view`,
    `softmax`; each row once."""
    name = name.strip().removesuffix("()").removesuffix("(")
    exact = [row for n in _spellings(name) if (row := book.find(n))]
    if not exact:
        bare = name.rpartition(".")[2] if _is_method(name) else name
        tail = f".{bare}"
        exact = [row for n, row in sorted(book.rows.items()) if n.endswith(tail)]
    return list({id(row): row for row in exact}.values())


def suggestions(name: str, book: RuleBook) -> list[str]:
    """Up to five names of the rule book that look like `name`."""
    last = name.rpartition(".")[2].lower()
    tails: dict[str, list[str]] = {}
    for known in sorted(book.rows):
        tails.setdefault(known.rpartition(".")[2].lower(), []).append(known)
    whole = difflib.get_close_matches(_spellings(name)[0], book.rows, n=3, cutoff=0.8)
    close = difflib.get_close_matches(last, tails, n=3, cutoff=0.6)
    return list(dict.fromkeys([*whole, *(n for tail in close for n in tails[tail])]))[:5]


def fidelity(row: Row) -> str:
    """How well a row maps its name: exact, stated, partial (some arguments are refused), unmapped."""
    if row.get("unmapped"):
        return "unmapped"
    if row.refuse:
        return "partial"
    return "stated" if row.notes else "exact"


def target(row: Row) -> str:
    """The first form that a row gives, for a table."""
    if row.get("unmapped"):
        return "-"
    if row.get("layer"):
        return f"nnx_layers.{row.get('layer')}"
    options = row.get("to")
    if options:
        first = options[0] if isinstance(options, list) else options
        return str(first["is"] if isinstance(first, dict) else first)
    for key in ("handler", "structural", "property", "const"):
        if value := row.get(key):
            return f"{key}: {value}" if value is not True else key
    return "-"


def row_data(row: Row) -> dict[str, Any]:
    """A row as plain data, for `rules --json`."""
    return {
        "name": row.name,
        "also": list(row.names[1:]),
        "signature": row.get("sig"),
        "target": target(row),
        "fidelity": fidelity(row),
        "drop": dict(row.drop),
        "refuse": dict(row.refuse),
        "notes": [{"code": n.code, "text": n.text, "when": n.when} for n in row.notes],
        "advice": row.advice,
        "file": row.path,
    }


def row_lines(row: Row, style: Style) -> Iterator[str]:
    """What `explain` shows of one row."""
    yield f"{style('bold', row.name)}  {_painted(fidelity(row), style)}  {style('dim', row.path)}"
    if row.names[1:]:
        yield "  also       " + ", ".join(row.names[1:])
    if row.get("sig") is not None:
        yield f"  signature  ({row.get('sig')})"
    yield from _target_lines(row)
    for note in row.notes:
        yield f"  note       {note.code} {note.text}" + (f"  (when {note.when})" if note.when else "")
    for argument, why in row.drop.items():
        yield f"  drops      {argument}: {why}"
    for argument, why in row.refuse.items():
        yield f"  refuses    {argument}: {why}"
    if row.advice:
        yield f"  advice     {row.advice}"
    for before, after in row.get("cases", ()):
        yield f"  case       {before}  ->  {_outcome(after)}"


def _target_lines(row: Row) -> Iterator[str]:
    options = row.get("to")
    if not options:
        yield f"  becomes    {target(row) if target(row) != '-' else 'nothing: it is left and reported'}"
        return
    for option in options if isinstance(options, list) else [options]:
        if isinstance(option, dict):
            when = f"  (when {option['when']})" if option.get("when") else ""
            yield f"  becomes    {option['is']}{when}"
        else:
            yield f"  becomes    {option}"


def _outcome(after: str) -> str:
    if after == "=":
        return "unchanged"
    return f"left, {after}: {CODES[after].summary}" if after in CODES else after


def code_lines(code: Code, style: Style) -> Iterator[str]:
    """What `explain` shows of a finding code."""
    yield f"{style('bold', code.code)}  {code.severity}  {code.summary}"
    yield f"  {code.help}"


def table_lines(rows: Sequence[Row], style: Style) -> Iterator[str]:
    """Name, target, fidelity of every row, then how many there are of each."""
    width = max((len(row.name) for row in rows), default=0)
    targets = [" ".join(target(row).split()) for row in rows]
    wide = min(70, max(map(len, targets), default=0))
    for row, to in zip(rows, targets, strict=True):
        to = to if len(to) <= wide else to[: wide - 1] + "…"
        yield f"{row.name:<{width}}  {to:<{wide}}  {_painted(fidelity(row), style)}"
    yield ""
    counts = Counter(fidelity(row) for row in rows)
    names = sum(len(row.names) for row in rows)
    kinds = ", ".join(f"{counts[k]} {k}" for k in ("exact", "stated", "partial", "unmapped") if counts[k])
    yield f"{len(rows)} rules for {names} names: {kinds}"


def _painted(kind: str, style: Style) -> str:
    return style({"exact": "green", "stated": "yellow", "partial": "yellow"}.get(kind, "red"), kind)  # type: ignore[arg-type]


def _spellings(name: str) -> list[str]:
    """The canonical names that a spelling may stand for, the likeliest first."""
    head, _, rest = name.partition(".")
    if head == "torch":
        return [name]
    if head in _SHORT and rest:
        return [f"{_SHORT[head]}.{rest}"]
    if _is_method(name):
        return [f"torch.Tensor.{rest}", f"torch.nn.Module.{rest}", f"torch.optim.Optimizer.{rest}"]
    return [f"torch.{name}"]


def _is_method(name: str) -> bool:
    head, _, rest = name.partition(".")
    return bool(rest) and "." not in rest and head not in {"torch", *_SHORT} and head.isidentifier()


def _unknown(message: str, close: Iterable[str]) -> int:
    hint = ", ".join(close)
    print(f"jaxmigrate: error: {message}" + (f"; did you mean {hint}?" if hint else ""), file=sys.stderr)
    return ExitCode.USAGE
