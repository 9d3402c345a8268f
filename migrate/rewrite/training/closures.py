"""`optimizer.step(closure)`: the closure becomes a loss function of the model."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from ..plan import Plan, Whole
from .flow import block_of
from .loops import thread, update_lines
from .optimizers import OptimizerCall, Optimizers
from .roles import NotPlain, is_optimizer
from .slices import Place, depends, find_region
from .sources import Source
from .steps import Update, backward_arguments, backward_calls

LBFGS = "torch.optim.LBFGS"


@dataclass(frozen=True)
class Closure:
    """One closure and the statement that steps with it. `zeros` are its zero_grad statements, `bound` the name that the
    statement gives the loss ("" when it drops it)."""

    function: ast.FunctionDef
    backward: ast.Expr
    zeros: tuple[ast.Expr, ...]
    update: Update
    call: ast.Call

    @property
    def by_library(self) -> bool:
        return self.update.made is not None and self.update.made.name == LBFGS


def find_closures(plan: Plan, optimizers: Optimizers) -> tuple[list[Closure], dict[ast.Call, str]]:
    """All closures that are understood; for the backward calls of the others the reason why not."""
    found: list[Closure] = []
    failed: dict[ast.Call, str] = {}
    for call in plan.unit.tree.all(ast.Call):
        func = call.func
        if not isinstance(func, ast.Attribute) or func.attr != "step" or not is_optimizer(plan.unit, func.value):
            continue
        function = _defined(plan, call)
        if function is None:
            continue
        inside = [c for c in backward_calls(plan.unit) if c in set(ast.walk(function))]
        try:
            if len(inside) != 1:
                raise NotPlain("the closure has several backward passes, or none")
            found.append(_read(plan, optimizers, call, function, inside[0]))
        except NotPlain as problem:
            failed |= dict.fromkeys(inside, str(problem))
    return found, failed


def _defined(plan: Plan, call: ast.Call) -> ast.FunctionDef | None:
    """The function that is the step's argument, defined in the same scope and used for nothing else."""
    name = call.args[0] if len(call.args) == 1 and not call.keywords else None
    if not isinstance(name, ast.Name):
        return None
    facts = plan.unit.local(name)
    node = getattr(facts, "node", None)
    home = plan.unit.scope(name).lookup(name.id)
    uses = [
        n
        for n in plan.unit.tree.all(ast.Name)
        if n.id == name.id and isinstance(n.ctx, ast.Load) and plan.unit.scope(n).lookup(n.id) is home
    ]
    if not isinstance(node, ast.FunctionDef) or len(uses) != 1 or node.decorator_list:
        return None
    same = plan.unit.tree.function(node) is plan.unit.tree.function(call)
    arguments = node.args
    bare = not (arguments.args or arguments.posonlyargs or arguments.kwonlyargs or arguments.vararg or arguments.kwarg)
    return node if same and bare else None


def _read(plan: Plan, optimizers: Optimizers, call: ast.Call, function: ast.FunctionDef, backward: ast.Call) -> Closure:
    unit = plan.unit
    assert isinstance(call.func, ast.Attribute) and isinstance(backward.func, ast.Attribute)
    made: OptimizerCall | None = optimizers.of(call.func.value)
    if made is None or made.problem or len(made.source.models) != 1 or made.groups:
        raise NotPlain("step() is given a closure, and nothing shows what its optimizer trains")
    stmt, last = unit.tree.parents[backward], function.body[-1]
    loss = backward.func.value
    returned = last.value if isinstance(last, ast.Return) else None
    if (
        not isinstance(stmt, ast.Expr)
        or stmt not in function.body
        or returned is None
        or not isinstance(loss, ast.Name)
    ):
        raise NotPlain("the closure is not zero_grad, loss, backward, return")
    if ast.unparse(returned) != loss.id or function.body.index(stmt) != len(function.body) - 2:
        raise NotPlain("the closure returns something else than its loss")
    backward_arguments(backward)
    owners = (ast.unparse(call.func.value), *made.source.models)
    zeros = tuple(
        s
        for s in function.body
        if isinstance(s, ast.Expr)
        and isinstance(s.value, ast.Call)
        and isinstance(s.value.func, ast.Attribute)
        and s.value.func.attr == "zero_grad"
        and ast.unparse(s.value.func.value) in owners
    )
    if not zeros:
        raise NotPlain("the closure does not set the gradients to zero")
    if not depends(plan, function, loss, made.source):
        raise NotPlain(f"the loss does not depend on {made.source.named}")
    region = find_region(plan, Place(function, function.body, stmt, 0, zeros), [loss], made.source)
    if region.others:
        raise NotPlain(f"several modules take part: {region.others[0]}")
    statement = unit.tree.statement(call)
    parent = unit.tree.parents[call]
    plain = isinstance(parent, ast.Expr) or (isinstance(parent, ast.Assign) and len(parent.targets) == 1)
    if made.name != LBFGS and not (plain and plan.alone(statement)):
        raise NotPlain("the value of step(closure) is used in an expression")
    holder = unit.tree.function(call) or unit.tree.root
    block = block_of(statement, unit.tree.parents)
    update = Update(statement, call.func.value, made, made.source, False, holder, block)  # type: ignore[arg-type]
    return Closure(function, stmt, zeros, update, call)


def plan_closure(plan: Plan, closure: Closure, explicit: Mapping[ast.stmt, tuple[str, str] | None]) -> None:
    """Write the loss function in the closure's place and the update in that of the step."""
    tree = plan.unit.tree
    function, made = closure.function, closure.update.made
    assert made is not None
    model = made.source.models[0]
    short = model.rpartition(".")[2]
    for stmt in (*closure.zeros, closure.backward):
        assert isinstance(stmt.value, ast.Call)
        plan.lines[stmt] = lambda _: []
        plan.taken |= {stmt.value, stmt.value.func}
        name = "torch.Tensor.backward" if stmt is closure.backward else "torch.optim.Optimizer.zero_grad"
        plan.found("JM002", stmt, name, f"{function.name} is a loss function of {model}")
    if short != model:
        for node in [n for s in function.body for n in Source((model,)).places(s)]:
            plan.whole[node] = Whole(lambda _: short, 15)
            plan.taken |= set(ast.walk(node))
    thread(plan, function.body, {model: short})
    opened = tree.text.index("(", tree.text.index(function.name, tree.start(function))) + 1
    plan.point(function, opened, opened, short)
    plan.taken |= {closure.call, closure.call.func}
    if closure.by_library:
        plan.found(
            "JM002", closure.call, "torch.optim.Optimizer.step", "the layer library's LBFGS calls the loss function"
        )
        return
    stmt = closure.update.stmt
    parent = tree.parents[closure.call]
    target = ast.unparse(parent.targets[0]) if isinstance(parent, ast.Assign) else ""
    first = f"grads = nnx.grad({function.name})({model})"
    if target:
        first = f"{target}, grads = nnx.value_and_grad({function.name})({model})"
    lines = [first, *update_lines(closure.update, {model: "grads"}, explicit.get(stmt))]
    plan.lines[stmt] = lambda _: lines
    plan.found(
        "JM141", stmt, "torch.optim.Optimizer.step", "the step runs eagerly: it is given a closure",
        advice="Put the step into a function of its own and decorate it with @nnx.jit.",
    )  # fmt: skip
