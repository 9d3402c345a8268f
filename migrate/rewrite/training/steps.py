"""Training code of one function: backward passes, the gradients they add to, and the updates that use those."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ...read.unit import Unit
from .callees import Function
from .clips import Clip
from .optimizers import OptimizerCall
from .roles import NotPlain
from .scaling import scaled
from .slices import Region
from .sources import Source
from .walks import GradUse


@dataclass(frozen=True)
class Pass:
    """One backward statement, or several that follow each other: `losses` has one item for each, `stmt` is the last.

    `source` is what it is differentiated for; `adds` says for each of its units whether the gradient is the first
    ("first"), added to one that is there ("more"), or either ("either"). `under` is the question that the backward
    statement stands under when the forward pass stands before it: `if phase == "train":`.
    """

    stmts: tuple[ast.Expr, ...]
    losses: tuple[ast.expr, ...]
    source: Source
    region: Region
    adds: Mapping[str, str]
    under: ast.If | None = None

    @property
    def stmt(self) -> ast.Expr:
        return self.stmts[-1]


@dataclass(frozen=True)
class Update:
    """One optimizer.step(). `guarded`: there may be no gradient, and then torch's step does nothing."""

    stmt: ast.Expr
    optimizer: ast.expr
    made: OptimizerCall | None
    source: Source
    guarded: bool
    function: ast.AST
    block: Sequence[ast.stmt]


@dataclass(frozen=True)
class Zeros:
    """A statement that sets gradients to zero: the texts of the owners where the statement stands, and the zero_grad
    calls, of which those of a helper stand elsewhere. `helpers` are the functions on the way."""

    owners: tuple[str, ...]
    calls: tuple[ast.Call, ...]
    helpers: tuple[Function, ...] = ()


@dataclass(frozen=True)
class Routine:
    """What belongs together in one function. `zeros` are the zero_grad statements with the units whose variable they
    must set, `cleared` says what each of them does, `fresh` are the units whose variable begins as None, `reads` are
    the places where parameters' gradients are read or changed by name."""

    function: ast.AST
    passes: tuple[Pass, ...]
    updates: tuple[Update, ...]
    zeros: Mapping[ast.stmt, tuple[str, ...]]
    clips: tuple[Clip, ...]
    fresh: tuple[str, ...] = ()
    cleared: Mapping[ast.stmt, Zeros] = field(default_factory=dict)
    reads: tuple[GradUse, ...] = ()

    @property
    def units(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(u for p in self.passes for u in p.source.units))


def backward_calls(unit: Unit) -> Iterator[ast.Call]:
    """Calls of a method `backward` that can be a tensor's, in source order."""
    for node in unit.tree.all(ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr == "backward":
            if scaled(unit, node.func.value) is not node.func.value:
                yield node
                continue
            kind = unit.kind(node.func.value)
            if (kind.is_tensor or not kind.known) and not (unit.resolve(node.func) or "").startswith("torch."):
                yield node


def method_owner(stmt: ast.stmt | None) -> ast.expr:
    """`x` of the statement `x.f()`."""
    assert isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Call)
    assert isinstance(stmt.value.func, ast.Attribute)
    return stmt.value.func.value


def backward_arguments(call: ast.Call, *, kept: bool = False) -> None:
    """Raise NotPlain when `backward` is given anything that matters; `kept`: that the graph is kept does not."""
    for keyword in call.keywords:
        constant = keyword.value.value if isinstance(keyword.value, ast.Constant) else ...
        if keyword.arg == "retain_graph" and kept:
            continue
        if keyword.arg not in ("retain_graph", "create_graph") or constant not in (False, None):
            raise NotPlain(f"backward() is given {keyword.arg or 'star-arguments'}")
    if call.args:
        raise NotPlain("backward() is given a gradient")
