"""The optax form of a torch optimizer's settings: its row's form, behind what torch does to the gradient first."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...read.unit import Unit
from ...rulebook.rows import Row, literal
from ...rulebook.signature import Arguments
from ...rulebook.template import Hole
from ..match import Match, Refusal, choose
from ..plan import Plan
from ..writer import Writer

_APART = ("torch.optim.AdamW", "torch.optim.Muon", "torch.optim.Adafactor")  # decay apart from the gradient
_CHAIN = "optax.chain("
_CALLED = re.compile(r"(?<![\w.])([A-Za-z_]\w*)(?=\()")
FIXED_RATE = frozenset(("asgd", "rprop", "adafactor", "muon"))  # library functions that take a number for the rate


@dataclass(frozen=True)
class Transform:
    """One optimizer's settings: the form of its row and, in front of it, ascent and L2 weight decay.

    `decay` is the argument of L2 weight decay, None when there is none; `decays` says that parameters decay at all.
    """

    match: Match
    lr: ast.expr | str
    maximize: bool = False
    decay: ast.expr | None = None
    decays: bool = False

    @property
    def takes_schedule(self) -> bool:
        """Whether the form takes a function of the count as its learning rate."""
        return not any(isinstance(p, str) and p.startswith(tuple(FIXED_RATE)) for p in self.match.form.pieces[:1])


def read_transform(row: Row, arguments: Arguments, unit: Unit) -> Transform | Refusal:
    """The settings that bound arguments (without `params`) stand for."""
    assert row.signature is not None
    named = dict(arguments.named)
    maximize = named.pop("maximize", None)
    if maximize is not None and literal(ast.unparse(maximize)) not in (True, False):
        return Refusal("JM202", f"{row.name}: maximize is not a literal", "Negate the loss instead.")
    apart = row.name in _APART or _flag(named.get("decoupled_weight_decay"))
    decay = named.get("weight_decay")
    default = row.signature.by_name["weight_decay"].default if "weight_decay" in row.signature.by_name else "0"
    zero = literal(default or "0") == 0 if decay is None else literal(ast.unparse(decay)) == 0
    if not apart:
        named.pop("weight_decay", None)
    rest = Arguments(named, arguments.rest, arguments.rest_name)
    found = choose(row, row.signature, rest, unit)
    if isinstance(found, Refusal):
        return found
    lr = named.get("lr", row.signature.by_name["lr"].default or "")
    ascends = maximize is not None and literal(ast.unparse(maximize)) is True
    return Transform(found, lr, ascends, None if apart or zero else decay, not zero)


def _flag(node: ast.expr | None) -> bool:
    return node is not None and literal(ast.unparse(node)) is not False


def optax_text(plan: Plan, found: Transform, lr: str = "", cycled: str = "") -> Callable[[Writer], str]:
    """Builds the optax expression, with `lr` in the place of the learning rate ("": the argument's own text), and the
    name `cycled` in the place of the momentum."""
    given = ({"lr": lr} if lr else {}) | ({"betas:0" if cycled == "b1" else cycled: cycled} if cycled else {})

    def build(writer: Writer) -> str:
        core = form_text(plan, found.match, given, writer)
        first = ["optax.scale(-1.0)"] if found.maximize else []
        if found.decay is not None:
            first.append(f"optax.add_decayed_weights({writer.at_level(found.decay, 1)})")
        if not first:
            return core
        rest = core.removeprefix(_CHAIN).removesuffix(")") if core.startswith(_CHAIN) else core
        return f"{_CHAIN}{', '.join([*first, rest])})"

    return build


def form_text(plan: Plan, found: Match, given: Mapping[str, str], writer: Writer) -> str:
    """The text of a matched form; `given` names holes that are filled with other texts than their arguments."""
    pieces = [
        _CALLED.sub(lambda m: _spelled(plan, m.group(1)), p) if isinstance(p, str) else _hole(p, found, given, writer)
        for p in found.form.pieces
    ]
    return "".join(pieces)


def _spelled(plan: Plan, name: str) -> str:
    return plan.layer(name) if name in plan.catalogue else name


def _hole(hole: Hole, found: Match, given: Mapping[str, str], writer: Writer) -> str:
    if hole.name in given:
        return given[hole.name]
    if f"{hole.name}:{hole.filter}" in given:
        return given[f"{hole.name}:{hole.filter}"]
    node = found.arguments.named.get(hole.name)
    if node is None:
        return found.signature.by_name[hole.name].default or ""
    if hole.filter.isdigit():
        index = int(hole.filter)
        if isinstance(node, (ast.Tuple, ast.List)):
            return writer.at_level(node.elts[index], hole.level, hole.enclosed)
        return f"{writer.at_level(node, 15)}[{index}]"
    return writer.at_level(node, hole.level, hole.enclosed)
