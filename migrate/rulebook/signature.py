"""torch signatures as text, and binding a call's arguments to them."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Param:
    """One parameter. `default` is its source text, None when the parameter is required."""

    name: str
    default: str | None = None
    kind: str = "normal"  # "normal", "keyword" (only by name), "varargs", "varkw"


@dataclass(frozen=True)
class Signature:
    """The parameters of a torch callable, in order. For methods the first is `self`."""

    params: tuple[Param, ...]

    @classmethod
    def parse(cls, text: str) -> Signature:
        """Read `"self, dim=None, *, keepdim=False"`. Raises ValueError on anything else."""
        try:
            node = ast.parse(f"lambda {text}: 0", mode="eval").body
        except SyntaxError as error:
            raise ValueError(f"not a signature: {text}") from error
        assert isinstance(node, ast.Lambda)
        args = node.args
        positional = [*args.posonlyargs, *args.args]
        missing = len(positional) - len(args.defaults)
        params = [
            Param(a.arg, None if i < missing else ast.unparse(args.defaults[i - missing]))
            for i, a in enumerate(positional)
        ]
        if args.vararg:
            params.append(Param(args.vararg.arg, None, "varargs"))
        for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
            params.append(Param(arg.arg, None if default is None else ast.unparse(default), "keyword"))
        if args.kwarg:
            params.append(Param(args.kwarg.arg, None, "varkw"))
        return cls(tuple(params))

    @cached_property
    def by_name(self) -> dict[str, Param]:
        return {p.name: p for p in self.params}

    def __str__(self) -> str:
        parts, starred = [], False
        for p in self.params:
            if p.kind == "varargs":
                starred = True
            if p.kind == "keyword" and not starred:
                parts.append("*")
                starred = True
            prefix = {"varargs": "*", "varkw": "**"}.get(p.kind, "")
            parts.append(prefix + p.name + (f"={p.default}" if p.default is not None else ""))
        return ", ".join(parts)


@dataclass(frozen=True)
class Arguments:
    """A call's arguments by parameter name. `rest` holds those of a `*varargs` parameter."""

    named: dict[str, ast.expr]
    rest: tuple[ast.expr, ...] = ()
    rest_name: str = ""

    @property
    def given(self) -> frozenset[str]:
        names = frozenset(self.named)
        return names | {self.rest_name} if self.rest else names


@dataclass(frozen=True)
class Mismatch:
    """Why a call does not fit a signature: "star", "extra" (too many, an unknown keyword), "missing"."""

    reason: str
    detail: str = ""


# torch accepts NumPy's spelling of some keywords everywhere.
_SPELLINGS = {"axis": "dim", "keepdims": "keepdim", "x": "input", "x2": "other"}


def bind(signature: Signature, call: ast.Call, receiver: ast.expr | None = None) -> Arguments | Mismatch:
    """Give each argument of `call` its parameter. `receiver` is a method's object, bound to the first parameter."""
    params = [p for p in signature.params if p.kind == "normal"]
    varargs = next((p for p in signature.params if p.kind == "varargs"), None)
    open_ended = any(p.kind == "varkw" for p in signature.params)
    positional: Sequence[ast.expr] = [*([receiver] if receiver is not None else []), *call.args]
    named: dict[str, ast.expr] = {}
    rest: list[ast.expr] = []
    before = next((i for i, p in enumerate(signature.params) if p.kind == "varargs"), len(params))
    for index, arg in enumerate(positional):
        if varargs and index >= before:
            rest.append(arg)
        elif isinstance(arg, ast.Starred):
            return Mismatch("star")
        elif index < len(params):
            named[params[index].name] = arg
        else:
            return Mismatch("extra", f"argument {index + 1}")
    for keyword in call.keywords:
        if keyword.arg is None:
            return Mismatch("star")
        name = _keyword(signature, keyword.arg)
        if varargs and name == varargs.name and not rest:
            rest.append(keyword.value)
        elif open_ended and name not in signature.by_name:
            named[keyword.arg] = keyword.value
        elif name not in signature.by_name or name in named:
            return Mismatch("extra", f"keyword {keyword.arg}")
        else:
            named[name] = keyword.value
    for p in signature.params:
        if p.kind in ("normal", "keyword") and p.default is None and p.name not in named:
            return Mismatch("missing", p.name)
    return Arguments(named, tuple(rest), varargs.name if varargs else "")


def _keyword(signature: Signature, name: str) -> str:
    if name in signature.by_name:
        return name
    other = _SPELLINGS.get(name, name)
    if other in signature.by_name:
        return other
    if name == "input" and signature.params and signature.params[0].name == "self":
        return "self"
    return name
