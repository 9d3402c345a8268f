"""OneCycleLR and CyclicLR also move the momentum (beta1 of Adam) against the rate."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass

from ...read.unit import Unit
from ...rulebook.rows import Row, literal
from ...rulebook.signature import Arguments, Mismatch, bind
from ..match import Match, choose
from ..plan import Plan
from ..writer import Writer
from .optimizers import OptimizerCall
from .transforms import Transform

_HEAD = "torch.optim.lr_scheduler."


@dataclass(frozen=True)
class Cycled:
    """`setting` is what optax calls the momentum; `text` builds its schedule; `settings` take it by that name."""

    setting: str
    text: Callable[[Plan, Writer], str]
    settings: Transform


def find_cycled(call: ast.Call, row: Row, made: OptimizerCall, unit: Unit) -> Cycled | None:
    """What a scheduler cycles beside the rate; None when nothing. An optimizer without momentum makes torch raise."""
    if row.name.removeprefix(_HEAD) not in ("OneCycleLR", "CyclicLR") or row.signature is None or made.found is None:
        return None
    bound = bind(row.signature, call)
    if isinstance(bound, Mismatch):
        return None
    flag = bound.named.get("cycle_momentum")
    if flag is not None and literal(ast.unparse(flag)) is False:
        return None
    names = made.found.match.signature.by_name
    setting = "b1" if "betas" in names else "momentum"
    settings = _with(made.found, setting, unit)
    return Cycled(setting, lambda plan, writer: _text(plan, row, bound, writer), settings) if settings else None


def _with(found: Transform, setting: str, unit: Unit) -> Transform | None:
    """The settings with the momentum as a name."""
    match = found.match
    named = dict(match.arguments.named)
    if setting == "momentum":
        named["momentum"] = ast.Name("momentum", ast.Load())
    else:
        betas = named.get("betas")
        second = betas.elts[1] if isinstance(betas, ast.Tuple) else ast.Constant(0.999) if betas is None else None
        if second is None:
            return None
        named["betas"] = ast.Tuple([ast.Name("b1", ast.Load()), second], ast.Load())
    chosen = choose(match.row, match.signature, Arguments(named), unit)
    return Transform(chosen, found.lr, found.maximize, found.decay, found.decays) if isinstance(chosen, Match) else None


def _text(plan: Plan, row: Row, given: Arguments, writer: Writer) -> str:
    def argument(name: str) -> str:
        node = given.named.get(name)
        assert row.signature is not None
        return writer.at_level(node, 1) if node is not None else row.signature.by_name[name].default or ""

    low, high = argument("base_momentum"), argument("max_momentum")
    if row.name.endswith("CyclicLR"):
        names: list[str] = [n for n in ("step_size_up", "step_size_down", "mode", "gamma") if n in given.named]
        return f"{plan.layer('cyclic_schedule')}({', '.join([high, low, *(f'{n}={argument(n)}' for n in names)])})"
    names = [n for n in ("pct_start", "anneal_strategy") if n in given.named]
    total = (
        argument("total_steps")
        if "total_steps" in given.named
        else f"{argument('epochs')} * {argument('steps_per_epoch')}"
    )
    return f"{plan.layer('one_cycle')}({', '.join([high, low, high, total, *(f'{n}={argument(n)}' for n in names)])})"
