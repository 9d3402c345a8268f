"""Rows: one rule each, as read from TOML and checked."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from .signature import Param, Signature
from .template import Template

KEYS = frozenset(
    [
        "sig",
        "to",
        "strict",
        "value",
        "also",
        "gives",
        "drop",
        "refuse",
        "note",
        "unmapped",
        "advice",
        "handler",
        "layer",
        "effect",
        "effect_arg",
        "draw_arg",
        "property",
        "const",
        "called",
        "structural",
        "pass",
        "params",
        "buffers",
        "calls",
        "kind",
        "cases",
        "numeric",
        "stars",
        "why",
    ]
)


class RuleError(Exception):
    """A rule file that cannot be used. The text names the file, the row and what is wrong."""

    def __init__(self, path: str, row: str, message: str) -> None:
        super().__init__(f"{path}: [{row}]: {message}" if row else f"{path}: {message}")


@dataclass(frozen=True)
class Option:
    """One target form of a row: it is used when `when` holds (always, when empty)."""

    template: Template
    when: str = ""


@dataclass(frozen=True)
class Note:
    """A stated difference of a row: the finding's code and text, only reported when `when` holds."""

    code: str
    text: str
    when: str = ""


@dataclass(frozen=True)
class Row:
    """One rule. The fields are the keys of docs/architecture.md."""

    name: str
    path: str
    data: Mapping[str, Any] = field(repr=False)

    def get(self, key: str, default: Any = None) -> Any:
        return self.data.get(key, default)

    @cached_property
    def signature(self) -> Signature | None:
        return Signature.parse(self.data["sig"]) if "sig" in self.data else None

    @cached_property
    def options(self) -> tuple[Option, ...]:
        to = self.data.get("to", [])
        return tuple(
            Option(Template(t["is"]), t.get("when", "")) if isinstance(t, dict) else Option(Template(t))
            for t in (to if isinstance(to, list) else [to])
            if t
        )

    @cached_property
    def strict(self) -> Row | None:
        """The row with the targets that raise on all but arrays in place of its own, where it has such."""
        return replace(self, data={**self.data, "to": self.data["strict"]}) if "strict" in self.data else None

    @cached_property
    def notes(self) -> tuple[Note, ...]:
        note = self.data.get("note", [])
        return tuple(
            Note(n["code"], n["text"], n.get("when", "")) for n in (note if isinstance(note, list) else [note])
        )

    @property
    def gives(self) -> str:
        return str(self.data.get("gives", "Tensor"))

    @property
    def drop(self) -> Mapping[str, str]:
        return self.data.get("drop", {})  # type: ignore[no-any-return]

    @property
    def refuse(self) -> Mapping[str, str]:
        return self.data.get("refuse", {})  # type: ignore[no-any-return]

    @property
    def advice(self) -> str:
        return str(self.data.get("advice", ""))

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.data.get("also", ()))

    @property
    def short(self) -> str:
        return self.name.rpartition(".")[2]


def check(row: Row, snapshot: Mapping[str, Any] | None = None) -> None:
    """Refuse a row that cannot be right. Raises RuleError.

    `snapshot` maps torch names to their real signatures; without it, that part is not checked.
    """

    def fail(message: str) -> None:
        raise RuleError(row.path, row.name, message)

    if unknown := sorted(set(row.data) - KEYS):
        fail(f"unknown key {unknown[0]!r}; known: {', '.join(sorted(KEYS))}")
    if not row.data.get("cases") and not any(
        k in row.data for k in ("unmapped", "structural", "const", "property", "layer")
    ):
        fail("no cases: a row needs at least one [before, after]")
    targets = [k for k in ("to", "handler", "unmapped", "structural", "layer") if k in row.data]
    if not targets:
        fail("says nothing: give one of to, layer, handler, unmapped, structural")
    if row.data.get("unmapped") and not row.advice:
        fail("unmapped needs advice")
    for case in row.data.get("cases", []):
        if not (isinstance(case, list) and len(case) == 2 and all(isinstance(c, str) for c in case)):
            fail(f"a case is [before, after], not {case!r}")
    if row.data.get("numeric") is False and not row.data.get("why"):
        fail("numeric = false needs why")
    try:
        signature, options = row.signature, (*row.options, *(row.strict.options if row.strict is not None else ()))
    except (ValueError, KeyError, TypeError) as error:
        fail(str(error))
        return
    if signature is not None and options:
        _consumed(row, signature, fail)
    if snapshot is not None and signature is not None:
        _agrees(row, signature, snapshot, fail)


def _consumed(row: Row, signature: Signature, fail: Any) -> None:
    """Each parameter is in some template, dropped or refused; each hole is a parameter."""
    names = {p.name for p in signature.params}
    holes = {h.lstrip("*").split(".")[0] for o in row.options for h in o.template.names}
    for hole in sorted(holes - names - {"key", "rngs", "lr"}):
        fail(f"template uses {{{hole}}}, which sig does not have")
    handled = holes | set(row.drop) | set(row.refuse) | {row.data.get("effect_arg", "")}
    if row.data.get("handler"):
        return
    always = {"self", "out", "generator", "input"}
    for name in sorted(names - handled - always):
        conditions = " ".join(o.when for o in row.options)
        if not re.search(rf"\b{re.escape(name)}\b", conditions):
            fail(f"nothing consumes the argument {name!r}: use it in `to`, or list it in drop or refuse")
    for name in sorted((set(row.drop) | set(row.refuse)) & holes - {"self"}):
        fail(f"{name!r} is used in `to`: what is listed in drop or refuse never gets there")
    for name in sorted((set(row.drop) | set(row.refuse)) - names):
        fail(f"drop/refuse names {name!r}, which sig does not have")


_EXTRAS = ("torch.utils.tensorboard.",)  # can be imported only where another package is installed


def _agrees(row: Row, signature: Signature, snapshot: Mapping[str, Any], fail: Any) -> None:
    entry = snapshot.get(row.name)
    if entry is None:
        if row.name.startswith("torch.") and not row.name.startswith(_EXTRAS):
            fail("torch has no such name")
        return
    forms = [f for f in map(_try_parse, entry.get("sig", [])) if f is not None]
    if forms and not _fits(signature.params, forms):
        fail(f"sig disagrees with torch: {signature} is not one of {' | '.join(map(str, forms))}")


def _try_parse(text: str) -> Signature | None:
    try:
        return Signature.parse(text)
    except ValueError:
        return None


def _fits(ours: tuple[Param, ...], forms: Sequence[Signature]) -> bool:
    """Whether a row's signature may stand for one of torch's forms, or for several merged into one: each of its names
    occurs in some form, and the names that it shares with a form stand in that form's order."""
    if any(p.kind in ("varargs", "varkw") for form in forms for p in form.params):
        return True
    mine = [p.name for p in ours if p.name not in ("self", "input")]
    known = {p.name for form in forms for p in form.params}
    return known.issuperset(mine) and all(_in_order(ours, form.params) for form in forms)


def _in_order(ours: tuple[Param, ...], theirs: tuple[Param, ...]) -> bool:
    mine = {p.name for p in ours if p.kind == "normal" and p.name not in ("self", "input")}
    order = [p.name for p in theirs if p.kind == "normal" and p.name in mine]
    return [p.name for p in ours if p.kind == "normal" and p.name in order] == order


def literal(text: str) -> Any:
    """The value of a literal's source text; Ellipsis when it is not a literal."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return ...
