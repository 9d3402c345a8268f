"""Find training steps of the plain form: zero_grad, forward, backward, step in one block.

Everything that is not proven to be of that form raises NotPlain with the reason, which becomes the finding's message.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...read.unit import Unit
from ..plan import Plan
from .flow import block_of
from .optimizers import OptimizerCall, Optimizers
from .roles import NotPlain, function_of, is_optimizer, method_call, the_model
from .slices import Region, find_region

CLIPS = {"torch.nn.utils.clip_grad_norm_": "norm", "torch.nn.utils.clip_grad_value_": "value"}


@dataclass(frozen=True)
class Step:
    """One training step. `model` is the source text of the model; `arrays` are the leaf tensors where there is none.

    `zero` are the zero_grad statements, `clips` those that clip between backward and step.
    """

    function: ast.AST
    block: Sequence[ast.stmt]
    backward: ast.Expr
    loss: ast.expr
    model: str
    arrays: tuple[str, ...]
    optimizer: ast.expr
    made: OptimizerCall | None
    zero: tuple[ast.Expr, ...]
    clips: tuple[ast.stmt, ...]
    step: ast.Expr
    region: Region


def backward_calls(unit: Unit) -> Iterator[ast.Call]:
    """Calls of a method `backward` that can be a tensor's, in source order."""
    for node in unit.tree.all(ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr == "backward":
            kind = unit.kind(node.func.value)
            if (kind.is_tensor or not kind.known) and not (unit.resolve(node.func) or "").startswith("torch."):
                yield node


def read_step(plan: Plan, call: ast.Call, optimizers: Optimizers) -> Step:
    """The training step around one backward call. Raises NotPlain."""
    unit = plan.unit
    assert isinstance(call.func, ast.Attribute)
    stmt = unit.tree.parents[call]
    if not isinstance(stmt, ast.Expr):
        raise NotPlain("the value of backward() is used")
    backward_arguments(call)
    loss = call.func.value
    _no_scaler(loss)
    function = function_of(unit, stmt)
    block = block_of(stmt, unit.tree.parents)
    place = block.index(stmt)
    if any(other is not call and is_backward(other) for s in block for other in ast.walk(s)):
        raise NotPlain("several backward passes before one step")
    _no_grad_reads(unit, function)
    index = _optimizer_step(unit, block, place)
    step = block[index]
    step_call = method_call(step, "step")
    assert isinstance(step, ast.Expr) and step_call is not None and isinstance(step_call.func, ast.Attribute)
    if step_call.args or step_call.keywords:
        raise NotPlain("step() is given a closure")
    optimizer = step_call.func.value
    made = optimizers.of(optimizer)
    if made is not None and made.problem:
        raise NotPlain(f"its optimizer is not converted: {made.problem}")
    model, arrays = (made.model, made.arrays) if made is not None else (the_model(unit, [*block[:place], loss]), ())
    zero = _zero_grads(unit, block, place, index, optimizer, model)
    if not zero and not _first_gradient(unit, call, made, function):
        raise NotPlain("no zero_grad() in the same block: the gradients accumulate")
    clips = _between(unit, block[place + 1 : index], optimizer, model, arrays, zero)
    region = find_region(plan, block, stmt, loss, function, model, arrays, zero)
    return Step(function, block, stmt, loss, model, arrays, optimizer, made, zero, clips, step, region)


def is_backward(node: ast.AST) -> bool:
    """A call of a method named `backward`."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "backward"


def backward_arguments(call: ast.Call) -> None:
    """Raise NotPlain when `backward` is given anything that matters."""
    for keyword in call.keywords:
        constant = keyword.value.value if isinstance(keyword.value, ast.Constant) else ...
        if keyword.arg not in ("retain_graph", "create_graph") or constant not in (False, None):
            raise NotPlain(f"backward() is given {keyword.arg or 'star-arguments'}")
    if call.args:
        raise NotPlain("backward() is given a gradient")


def _no_scaler(loss: ast.expr) -> None:
    for node in ast.walk(loss):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "scale":
            raise NotPlain("the loss is scaled by a GradScaler, which float32 and bfloat16 training does not need")


def _no_grad_reads(unit: Unit, function: ast.AST) -> None:
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and node.attr == "grad" and unit.resolve(node) is None:
            raise NotPlain(f"`{ast.unparse(node)}` is read or written: in JAX gradients are values")


def _optimizer_step(unit: Unit, block: Sequence[ast.stmt], place: int) -> int:
    for index in range(place + 1, len(block)):
        call = method_call(block[index], "step")
        if call is not None and isinstance(call.func, ast.Attribute) and is_optimizer(unit, call.func.value):
            return index
    inner = any(
        method_call(s, "step") for stmt in block[place + 1 :] for s in ast.walk(stmt) if isinstance(s, ast.stmt)
    )
    raise NotPlain(
        "step() is conditional: the gradients accumulate" if inner else "no optimizer.step() follows in the same block"
    )


def _zero_grads(
    unit: Unit, block: Sequence[ast.stmt], place: int, index: int, optimizer: ast.expr, model: str
) -> tuple[ast.Expr, ...]:
    owners = {ast.unparse(optimizer)} | ({model} if model else set())
    found = []
    for at, stmt in enumerate(block):
        call = method_call(stmt, "zero_grad")
        if call is None or not isinstance(call.func, ast.Attribute) or ast.unparse(call.func.value) not in owners:
            continue
        if place < at < index:
            raise NotPlain("zero_grad() stands between backward() and step()")
        assert isinstance(stmt, ast.Expr)
        found.append(stmt)
    if found and all(block.index(s) > index for s in found):
        leaves = (ast.Continue, ast.Break, ast.Return)
        if any(isinstance(n, leaves) for s in block[place:index] for n in ast.walk(s)):
            raise NotPlain("the step may be skipped without zero_grad(): the gradients accumulate")
    return tuple(found)


def _first_gradient(unit: Unit, call: ast.Call, made: OptimizerCall | None, function: ast.AST) -> bool:
    """Whether this is the one backward pass of a new model, not in a loop: there is nothing to set to zero."""
    if made is None or function_of(unit, made.call) is not function or not _built_here(unit, made, function):
        return False
    if any(isinstance(u, (ast.For, ast.While, ast.AsyncFor)) for u in unit.tree.ancestors(call)):
        return False
    return sum(1 for n in ast.walk(function) if is_backward(n)) == 1


def _built_here(unit: Unit, made: OptimizerCall, function: ast.AST) -> bool:
    """Whether the model (or the leaf tensors) are made in the function: no earlier gradient can be left in them."""
    if made.arrays:
        return True
    scope = unit.scopes.of.get(function)
    bindings = scope.bindings.get(made.model, []) if scope is not None else []
    return bool(bindings) and all(b.kind == "assign" for b in bindings)


def _between(
    unit: Unit,
    stmts: Sequence[ast.stmt],
    optimizer: ast.expr,
    model: str,
    arrays: tuple[str, ...],
    zero: Sequence[ast.stmt],
) -> tuple[ast.stmt, ...]:
    """The clipping statements between backward and step. Anything else there must leave the gradients alone."""
    clips = []
    for stmt in stmts:
        if (clip := clip_call(unit, stmt)) is not None:
            check_clip(clip, model, arrays)
            clips.append(stmt)
            continue
        for node in ast.walk(stmt):
            if isinstance(node, (ast.Name, ast.Attribute)) and ast.unparse(node) in (model, ast.unparse(optimizer)):
                raise NotPlain(f"`{ast.unparse(stmt)[:60]}` between backward() and step() may touch the gradients")
            if isinstance(node, ast.Attribute) and node.attr == "step" and stmt not in zero:
                raise NotPlain("another step() is called before the optimizer's")
    return tuple(clips)


def check_clip(call: ast.Call, model: str, arrays: tuple[str, ...]) -> None:
    """Raise NotPlain unless a clip_grad_ call clips all the gradients of the step, by their 2-norm or value."""
    given = dict(zip(("parameters", "limit", "norm_type"), call.args, strict=False))
    for keyword in call.keywords:
        name = "limit" if keyword.arg in ("max_norm", "clip_value") else keyword.arg or "**"
        given[name] = keyword.value
    extra = set(given) - {"parameters", "limit", "norm_type", "foreach", "error_if_nonfinite"}
    norm = given.get("norm_type")
    finite = given.get("error_if_nonfinite")
    if extra or "limit" not in given or "parameters" not in given or len(call.args) > 3:
        raise NotPlain("the arguments of the clipping are not understood")
    if norm is not None and not (isinstance(norm, ast.Constant) and norm.value == 2):
        raise NotPlain("the gradients are clipped by another norm than the 2-norm")
    if finite is not None and not (isinstance(finite, ast.Constant) and finite.value is False):
        raise NotPlain("the clipping raises on gradients that are not finite")
    params = given["parameters"]
    if isinstance(params, ast.Call) and isinstance(params.func, ast.Name) and params.func.id == "list" and params.args:
        params = params.args[0]
    if arrays:
        whole = isinstance(params, (ast.List, ast.Tuple)) and [ast.unparse(e) for e in params.elts] == list(arrays)
    else:
        whole = ast.unparse(params) == f"{model}.parameters()"
    if not whole:
        raise NotPlain(f"`{ast.unparse(call)[:60]}` clips other gradients than those of the step")


def clip_limit(call: ast.Call) -> ast.expr:
    """The bound of a clip_grad_ call that `check_clip` accepts."""
    by_name = [k.value for k in call.keywords if k.arg in ("max_norm", "clip_value")]
    return by_name[0] if by_name else call.args[1]


def clip_call(unit: Unit, stmt: ast.stmt) -> ast.Call | None:
    """The clip_grad_ call of a statement of its own or of an assignment to one name."""
    value = stmt.value if isinstance(stmt, (ast.Expr, ast.Assign)) else None
    if isinstance(value, ast.Call) and unit.resolve(value.func) in CLIPS:
        return value
    return None
