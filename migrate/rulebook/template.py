"""Templates: the target side of a row.

`{dim}` inserts an argument's text, `[, axis={dim}]` vanishes when its arguments were not given (and loses its comma
where it comes first), `{size:tuple}` shapes the argument. A template is parsed once with LibCST, which tells where each
hole stands: how tightly its text must bind, and whether it is inside brackets (then the text may span lines).
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cached_property

import libcst as cst

from .precedence import NONE, cst_level, needs

_GROUP = re.compile(r"\[(, ?[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*)\]")
_HOLE = re.compile(r"\{(\*?\w+(?:\.\w+)?)(?::(\w+))?\}")


@dataclass(frozen=True)
class Hole:
    """A place for an argument.

    `filter` shapes it, `level` is how tightly it must bind, `enclosed` whether brackets surround it.
    """

    name: str
    filter: str = ""
    level: int = NONE
    enclosed: bool = True


@dataclass(frozen=True)
class Form:
    """A template with its groups decided: text pieces and holes in turn. `level` is how tightly the whole binds."""

    pieces: tuple[str | Hole, ...]
    level: int

    @property
    def holes(self) -> tuple[Hole, ...]:
        return tuple(p for p in self.pieces if isinstance(p, Hole))


class Template:
    """One `to` text. Raises ValueError when it is not an expression."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._forms: dict[frozenset[str], Form] = {}
        self.groups: tuple[frozenset[str], ...] = tuple(
            frozenset(h.group(1) for h in _HOLE.finditer(m.group(1))) for m in _GROUP.finditer(text)
        )
        outside = _GROUP.sub("", text)
        self.required: frozenset[str] = frozenset(m.group(1) for m in _HOLE.finditer(outside))

    @cached_property
    def names(self) -> frozenset[str]:
        """The holes, in groups or not."""
        return self.required.union(*self.groups) if self.groups else self.required

    @cached_property
    def free_names(self) -> frozenset[str]:
        """Names that the template itself reads: modules (`jnp`) and layer-library names."""
        full = _GROUP.sub(lambda m: m.group(1), self.text).replace("(, ", "(")
        tree = ast.parse(_HOLE.sub("__hole__", full).strip(), mode="eval")
        stored = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        stored |= {a.arg for n in ast.walk(tree) if isinstance(n, ast.Lambda) for a in n.args.args}
        loaded = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
        return frozenset(loaded - stored - {"__hole__"})

    def form(self, present: frozenset[str]) -> Form:
        """The template with exactly the groups whose holes are all in `present`."""
        chosen = frozenset(n for g in self.groups if g <= present for n in g)
        if chosen not in self._forms:
            text = _GROUP.sub(lambda m: m.group(1) if _holes(m.group(1)) <= chosen else "", self.text)
            self._forms[chosen] = _compile(text.replace("(, ", "("))
        return self._forms[chosen]


def _holes(text: str) -> frozenset[str]:
    return frozenset(m.group(1) for m in _HOLE.finditer(text))


def _compile(text: str) -> Form:
    marks: list[tuple[str, str]] = []

    def mark(m: re.Match[str]) -> str:
        marks.append((m.group(1), m.group(2) or ""))
        return f"{'*' if m.group(1).startswith('*') else ''}__hole{len(marks) - 1}__"

    code = _HOLE.sub(mark, text)
    try:
        tree = cst.parse_expression(code)
    except cst.ParserSyntaxError as error:
        raise ValueError(f"not an expression: {text}") from error
    finder = _Contexts()
    cst.Module([cst.SimpleStatementLine([cst.Expr(tree)])]).visit(finder)
    pieces: list[str | Hole] = []
    for part in re.split(r"(\*?__hole\d+__)", code):
        found = re.fullmatch(r"\*?__hole(\d+)__", part)
        if found:
            name, filter_ = marks[int(found.group(1))]
            level, enclosed = finder.contexts[f"__hole{found.group(1)}__"]
            pieces.append(Hole(name, filter_, level, enclosed))
        elif part:
            pieces.append(part)
    return Form(tuple(pieces), cst_level(tree))


class _Contexts(cst.CSTVisitor):
    """For each placeholder name: the level that its place asks for, and whether brackets surround it."""

    def __init__(self) -> None:
        self.contexts: dict[str, tuple[int, bool]] = {}
        self.stack: list[cst.CSTNode] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.Name) and node.value.startswith("__hole"):
            self.contexts[node.value] = self._context(node)
        self.stack.append(node)
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        self.stack.pop()

    def _context(self, node: cst.CSTNode) -> tuple[int, bool]:
        parent = self.stack[-1]
        child: cst.CSTNode = node
        level = needs(parent, child)
        enclosed, below = False, child
        for up in reversed(self.stack):
            name = type(up).__name__
            brackets = name in (
                "List",
                "Tuple",
                "Dict",
                "Set",
                "Subscript",
                "ListComp",
                "SetComp",
                "DictComp",
                "GeneratorExp",
            )
            if brackets and not (name == "Subscript" and below is up.value):  # type: ignore[attr-defined]
                enclosed = True
            if name == "Call" and below is not up.func:  # type: ignore[attr-defined]
                enclosed = True
            if getattr(up, "lpar", ()):
                enclosed = True
            below = up
        return level, enclosed
