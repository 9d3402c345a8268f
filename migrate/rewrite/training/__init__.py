"""The training step and what stands around it: optimizers, schedules, gradient modes, train and eval."""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence

from ..plan import Plan, Whole
from ..writer import Writer
from .attacks import mark_attacks
from .behind import find_threads, plan_threads
from .closures import LBFGS, find_closures, plan_closure
from .cutting import mark_cuts
from .derivatives import plan_grad_calls
from .functional_text import unmark
from .gradients import plan_gradient
from .handrates import HandRate, find_hand_rates, plan_hand_rates
from .helpers import plan_helpers
from .idle import is_idle, plan_idle
from .jitting import plan_jits
from .loops import fresh, parameters_text, plan_routine
from .methods import plan_freezing, plan_methods
from .modes import plan_modes
from .optimizers import OptimizerCall, Optimizers, find_optimizers
from .rates import injected, plan_schedule, plan_scheduler_methods, schedule_text, settings_text
from .reader import Reader
from .roles import NotPlain, function_of, is_optimizer
from .scaling import plan_scaling
from .schedules import Schedule, find_schedules, same_rate
from .states import plan_states, state_calls
from .steps import Routine, Update, backward_calls
from .sweeps import plan_sweeps
from .text import wrapped
from .transforms import optax_text

__all__ = ["plan_training"]


def plan_training(plan: Plan) -> None:
    """Training code, its optimizers and schedules, `no_grad`, and methods of modules."""
    mark_cuts(plan.unit)
    plan_grad_calls(plan)
    optimizers = find_optimizers(plan)
    mark_attacks(plan)
    threads = find_threads(plan, optimizers)
    closures, unread = find_closures(plan, optimizers)
    routines, alone, failed = _routines(plan, optimizers, {c.backward.value for c in closures} | set(unread))
    failed |= unread
    stepped = [Routine(c.update.function, (), (c.update,), dict.fromkeys(c.zeros, ()), ()) for c in closures]
    updates = [u for r in routines for u in r.updates]
    schedules = find_schedules(plan, optimizers, updates)
    rates = find_hand_rates(plan, optimizers)
    explicit: dict[int, tuple[str, str] | None] = {}
    for made in optimizers.calls:
        schedule = next((s for s in schedules if s.made is made and not s.part), None)
        explicit[id(made)] = _optimizer(plan, optimizers, made, [*routines, *stepped], schedule, schedules, rates)
    names = {u.stmt: explicit.get(id(u.made)) for u in updates if u.made is not None}
    jits = plan_jits(plan, routines, names)
    for closure in closures:
        plan_closure(plan, closure, {closure.update.stmt: explicit.get(id(closure.update.made))})
    for routine in routines:
        plan_routine(plan, routine, names, jits)
        unmark(plan, routine.function, [a for p in routine.passes for a in p.source.arrays])
    for schedule in schedules:
        plan_schedule(plan, schedule, explicit.get(id(schedule.made)), idle=is_idle(plan, schedule.made, schedule))
    if not failed:
        plan_helpers(plan, routines)
        plan_scaling(plan)
    plan_modes(plan, [*routines, *alone])
    plan_sweeps(plan)
    plan_methods(plan)
    plan_freezing(plan)
    plan_scheduler_methods(plan, schedules)
    plan_hand_rates(plan, rates, explicit, bool(failed))
    plan_states(plan, optimizers, explicit, bool(failed))
    plan_threads(plan, threads)
    _leave(plan, failed)
    _other_uses(plan, updates, failed)


def _routines(
    plan: Plan, optimizers: Optimizers, elsewhere: Collection[ast.AST]
) -> tuple[list[Routine], list[Routine], dict[ast.Call, str]]:
    """The training code of all functions, gradients that no optimizer uses, and the backward calls that are part of
    neither with the reason. Those that are read `elsewhere` are left out."""
    calls = [call for call in backward_calls(plan.unit) if call not in elsewhere]
    functions = dict.fromkeys(function_of(plan.unit, call) for call in calls)
    routines: list[Routine] = []
    single: list[Routine] = []
    failed: dict[ast.Call, str] = {}
    for function in functions:
        found, left = Reader(plan, function, optimizers).read()
        routines += found
        for call, reason in left.items():
            if call in elsewhere:
                continue
            try:
                single.append(plan_gradient(plan, call))
            except NotPlain as other:
                bare = "no optimizer.step()" in reason and "no optimizer.step()" not in str(other)
                failed[call] = str(other if bare else reason)
    kept = []
    for routine in routines:
        alone = all(
            u.made is not None and _explicit(plan, optimizers, u.made, routines, []) is not None
            for u in routine.updates
            if u.source.arrays
        )
        if alone:
            kept.append(routine)
            continue
        for one in routine.passes:
            for stmt in one.stmts:
                assert isinstance(stmt.value, ast.Call)
                failed[stmt.value] = "its tensors are used outside this scope"
    return kept, single, failed


def _optimizer(
    plan: Plan,
    optimizers: Optimizers,
    made: OptimizerCall,
    routines: list[Routine],
    schedule: Schedule | None,
    schedules: Sequence[Schedule],
    rates: Sequence[HandRate],
) -> tuple[str, str] | None:
    """Write one construction. Returns the names of transformation and state where those replace the optimizer."""
    names = None
    problem, code = made.problem, made.code
    if not problem and schedule is not None and is_idle(plan, made, schedule):
        plan_idle(plan, made)
        return None
    if not problem:
        mine = [s for s in schedules if s.made is made and not s.shared]
        set_by_hand = [r for r in rates if r.made is made]
        names = _explicit(plan, optimizers, made, routines, mine, set_by_hand)
        if made.arrays and names is None:
            problem = "single tensors are only converted together with their training step"
        if made.name == LBFGS:
            names = None
            if not any(u.made is made for r in routines for u in r.updates):
                problem, code = "its closure is not converted", "JM208"
        foreign = names is None and any(r.made is None and r.stmt is not None for r in rates)
        injects = bool(set_by_hand) or foreign
        if schedule is not None and (foreign or any(r.stmt is not None for r in set_by_hand)):
            problem = "a scheduler and the program both set its rate"
        if injects and any(not same_rate(g.settings.lr, made.lr) for g in made.groups):
            problem = "the parameter groups have rates of their own, and the rate is set by hand"
        if made.groups and names is None and not isinstance(plan.unit.tree.parents[made.call], ast.Assign):
            problem = "parameter groups are only converted where the optimizer is assigned to a name"
    if problem:
        plan.found(code, made.call, made.name, f"{made.name}: {problem}", advice=made.advice)
        plan.taken |= set(ast.walk(made.call))
        return None
    _construct(plan, made, names, schedule, injects=injects)
    return names


def _explicit(
    plan: Plan,
    optimizers: Optimizers,
    made: OptimizerCall,
    routines: Sequence[Routine],
    schedules: Sequence[Schedule],
    rates: Sequence[HandRate] = (),
) -> tuple[str, str] | None:
    """Names for transformation and state of an optimizer over single tensors, when every use of it is known and in one
    scope. Else None: nnx.Optimizer, whose state is variables, which nnx.jit takes apart faster than an nnx.State."""
    unit = plan.unit
    stmt = unit.tree.parents[made.call]
    if not made.arrays or not isinstance(stmt, ast.Assign) or not plan.alone(stmt):
        return None
    if not isinstance(stmt.targets[0], ast.Name):
        return None
    scope = unit.scopes.of.get(made.key[0])
    if scope is None or len(scope.bindings.get(made.target, ())) != 1 or scope.kind == "class":
        return None
    mine = [(r, u) for r in routines for u in r.updates if u.made is made]
    known = {n for r, u in mine for part in (*r.zeros, u.stmt) for n in ast.walk(part)}
    known |= {n for r, _ in mine for z in r.cleared.values() for c in z.calls for n in ast.walk(c)}
    known |= {n for s in schedules if not s.shared for part in (s.call, *s.reads) for n in ast.walk(part)}
    known |= {func.value for _, func in state_calls(plan)} | {r.node.value for r in rates}
    for node in unit.tree.all(ast.Name):
        if node.id == made.target and node is not stmt.targets[0] and node not in known:
            if unit.scope(node).lookup(node.id) is scope and not _lone_zero(plan, node):
                return None
    if not mine or any(unit.scope(u.stmt) is not scope for _, u in mine):
        return None
    several = sum(1 for c in optimizers.calls if c.key[0] is made.key[0]) > 1
    if several:  # the optimizer's own name is free: all its uses are known
        return made.target, fresh(plan, stmt, (f"{made.target}_state", f"state_of_{made.target}"))
    return fresh(plan, stmt, ("tx", f"{made.target}_tx")), fresh(plan, stmt, ("opt_state", f"{made.target}_state"))


def _lone_zero(plan: Plan, node: ast.Name) -> bool:
    """Whether a name stands in a statement `x.zero_grad()`."""
    tree = plan.unit.tree
    up = tree.parents[node]
    return isinstance(up, ast.Attribute) and up.attr == "zero_grad" and isinstance(tree.statement(node), ast.Expr)


def _construct(
    plan: Plan,
    made: OptimizerCall,
    names: tuple[str, str] | None,
    schedule: Schedule | None,
    *,
    injects: bool,
) -> None:
    """`tx = …` and its state, or `nnx.Optimizer(model, …, wrt=nnx.Param)`; a schedule per step is the learning rate."""
    assert made.found is not None
    stmt = plan.unit.tree.parents[made.call]
    plan.taken |= {made.call, made.call.func} | _parameter_nodes(plan, made)
    if made.name == LBFGS:
        _library(plan, made)
        return
    if schedule is None:
        text = injected(plan, made) if injects else settings_text(plan, made)
    elif schedule.per_step and made.found.takes_schedule:
        text = settings_text(plan, made, schedule.name)
    else:
        text = injected(plan, made, schedule.name if schedule.per_step else "", schedule.cycled)
    params = parameters_text(made.source)
    models = _tuple(made.source.models) if made.source.models else ""

    indent = len(plan.unit.tree.indent(stmt)) if isinstance(stmt, ast.stmt) else 0

    def statement(writer: Writer) -> list[str]:
        if names is None:
            return wrapped(f"{made.target} = nnx.Optimizer({models}, {text(writer)}, wrt=nnx.Param)", indent)
        return [*wrapped(f"{names[0]} = {text(writer)}", indent), f"{names[1]} = {names[0]}.init({params})"]

    if schedule is not None and schedule.per_step:
        rate = schedule_text(plan, schedule)
        assert isinstance(stmt, ast.stmt)
        plan.lines[stmt] = lambda _: []
        plan.lines[schedule.stmt] = lambda writer: [f"{schedule.name} = {rate(writer)}", *statement(writer)]
    elif isinstance(stmt, ast.Assign) and (names is not None or len(stmt.targets) == 1) and plan.alone(stmt):
        plan.lines[stmt] = statement
    else:
        plan.whole[made.call] = Whole(
            lambda writer: f"nnx.Optimizer({models}, {text(writer)}, wrt=nnx.Param)", 15, (made.call,)
        )
    _report(plan, made, names)


def _library(plan: Plan, made: OptimizerCall) -> None:
    """`LBFGS(model, …)` of the layer library, which holds its model."""
    assert made.found is not None
    text = optax_text(plan, made.found)
    plan.whole[made.call] = Whole(lambda w: text(w).replace("MODEL", made.source.models[0], 1), 15, (made.call,))
    note = made.found.match.notes[0] if made.found.match.notes else None
    more = f": {note.text}" if note else ""
    plan.found(note.code if note else "JM001", made.call, made.name, f"{made.name} -> the layer library's LBFGS{more}")


def _report(plan: Plan, made: OptimizerCall, names: tuple[str, str] | None) -> None:
    assert made.found is not None
    target = "optax" if names else "nnx.Optimizer around optax"
    note = next(iter(made.found.match.notes), None)
    code, texts = (note.code, [note.text]) if note else ("JM001", [])
    if made.found.decays:
        code = "JM101" if code == "JM001" else code
        texts.insert(0, "a parameter that the loss does not use is decayed too; torch leaves it alone")
    plan.found(
        code, made.call, made.name, ": ".join([f"{made.name} -> {target}", *(["; ".join(texts)] if texts else [])])
    )


def _tuple(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"({', '.join(names)})"


def _parameter_nodes(plan: Plan, made: OptimizerCall) -> set[ast.AST]:
    """What stands for the parameters in the source and is not written."""
    params = made.call.args[0] if made.call.args else next(k.value for k in made.call.keywords if k.arg == "params")
    if not made.groups:
        return set(ast.walk(params))
    kept = {n for g in made.groups for n in ast.walk(g.params)}
    return {n for n in ast.walk(params) if n not in kept}


def _leave(plan: Plan, failed: dict[ast.Call, str]) -> None:
    for call, reason in failed.items():
        plan.taken |= {call, call.func}
        plan.found(
            "JM208", call, "torch.Tensor.backward", f"training step left: {reason}",
            advice="Put the forward pass into a loss function, take nnx.value_and_grad of it, then update.",
        )  # fmt: skip


_OF_OPTIMIZERS = frozenset(("param_groups", "state", "defaults", "zero_grad", "step"))


def _other_uses(plan: Plan, updates: list[Update], failed: dict[ast.Call, str]) -> None:
    """What else is done with an optimizer: a zero_grad goes with its optimizer's steps, the rest is left."""
    unit = plan.unit
    for node in unit.tree.all(ast.Attribute):
        if node in plan.taken or node.attr not in _OF_OPTIMIZERS:
            continue
        if not is_optimizer(unit, node.value):
            continue
        call = unit.tree.parents[node]
        if node.attr in ("param_groups", "state", "defaults"):
            plan.taken.add(node)
            plan.found(
                "JM208", node, f"torch.optim.Optimizer.{node.attr}", f"the optimizer's {node.attr} has no counterpart",
                advice="Set rates with optax.inject_hyperparams; optax keeps its state in a pytree.",
            )  # fmt: skip
        elif node.attr in ("zero_grad", "step") and isinstance(call, ast.Call) and call not in plan.taken:
            _other_call(plan, call, node, updates, failed)


def _other_call(
    plan: Plan, node: ast.Call, func: ast.Attribute, updates: list[Update], failed: dict[ast.Call, str]
) -> None:
    plan.taken |= {node, func}
    stmt = plan.unit.tree.parents[node]
    same = [u for u in updates if ast.unparse(u.optimizer) == ast.unparse(func.value)]
    name = f"torch.optim.Optimizer.{func.attr}"
    if func.attr == "zero_grad" and isinstance(stmt, ast.Expr) and same and not failed:
        plan.lines[stmt] = lambda _: []
        plan.found("JM002", node, name, "gradients are values: nothing to set to zero")
    else:
        plan.found("JM208", node, name, "not part of a training step that is converted")
