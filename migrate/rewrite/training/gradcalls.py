"""Calls of `torch.autograd.grad` with respect to tensors: what is differentiated, by what, and what of it is used."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from ...read.unit import Unit
from .callees import called
from .roles import NotPlain

GRAD = "torch.autograd.grad"
_ORDER = (
    "outputs", "inputs", "grad_outputs", "retain_graph", "create_graph", "only_inputs", "allow_unused",
    "is_grads_batched", "materialize_grads",
)  # fmt: skip
_ONES = ("torch.ones", "torch.ones_like", "numpy.ones", "numpy.ones_like")
_WRAPPING = ("torch.autograd.Variable", "torch.from_numpy", "torch.as_tensor", "torch.tensor")
_PLACED = frozenset(("to", "cuda", "cpu", "float", "double", "type_as", "type", "requires_grad_", "detach", "view"))
_LOSSES = frozenset(
    """
    cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy kl_div
    binary_cross_entropy_with_logits poisson_nll_loss gaussian_nll_loss soft_margin_loss
    """.split()  # noqa: SIM905
)
_NO_ARGUMENTS = ("torch.sum", "torch.mean", "torch.Tensor.sum", "torch.Tensor.mean")


@dataclass(frozen=True)
class GradCall:
    """One call. `node` is the expression that is replaced: the call, or `…[0]` of the gradient of one tensor.

    `weights` is grad_outputs, None where it is all ones or not given; `ones` says that it is given as ones. `single`
    is True where `node` is one gradient and not a tuple; `cut` where the gradient is a constant for later derivatives.
    `unused` says that an input may be without influence. `helper` is the project's function that holds the call.
    """

    call: ast.Call
    node: ast.expr
    stmt: ast.stmt
    output: ast.expr
    inputs: tuple[ast.Name, ...]
    weights: ast.expr | None
    ones: bool
    single: bool
    cut: bool
    unused: bool
    helper: ast.FunctionDef | None = None


def grad_calls(unit: Unit) -> Iterator[ast.Call]:
    """The calls of torch.autograd.grad in source order."""
    return (c for c in unit.tree.all(ast.Call) if unit.resolve(c.func) == GRAD)


def read_call(unit: Unit, call: ast.Call) -> GradCall:
    """What a call is given. Raises NotPlain."""
    given = _given(call)
    output, inputs = _only(given["outputs"]), _inputs(given["inputs"])
    weights = given.get("grad_outputs")
    if weights is not None:
        weights = _only(weights)
    missing = isinstance(weights, ast.Constant) and weights.value is None
    ones = weights is not None and not missing and is_ones(unit, bound_once(unit, weights))
    for name in ("only_inputs", "retain_graph", "create_graph", "allow_unused", "is_grads_batched"):
        value = given.get(name)
        if value is not None and not (isinstance(value, ast.Constant) and value.value in (True, False, None)):
            if name != "retain_graph":
                raise NotPlain(f"`{name}={ast.unparse(value)[:40]}` is no literal")
    if _true(given.get("is_grads_batched")):
        raise NotPlain("is_grads_batched: take jax.vmap of the pulled back function")
    node, single = _used(unit, call, given["inputs"])
    return GradCall(
        call, node, unit.tree.statement(call), output, inputs, None if ones or missing else weights, ones, single,
        not _true(given.get("create_graph")), _true(given.get("allow_unused")),
    )  # fmt: skip


def _given(call: ast.Call) -> dict[str, ast.expr]:
    if len(call.args) > 3 or any(isinstance(a, ast.Starred) for a in call.args):
        raise NotPlain("its arguments are not in their usual form")
    given = dict(zip(_ORDER, call.args, strict=False))
    for keyword in call.keywords:
        if keyword.arg not in _ORDER or keyword.arg in given:
            raise NotPlain("its arguments are not in their usual form")
        given[keyword.arg] = keyword.value
    if "outputs" not in given or "inputs" not in given:
        raise NotPlain("outputs or inputs are not given")
    return given


def _true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _only(node: ast.expr) -> ast.expr:
    """`y` of `[y]` and `(y,)`."""
    if isinstance(node, (ast.List, ast.Tuple)):
        if len(node.elts) != 1:
            raise NotPlain("several outputs are differentiated together")
        return node.elts[0]
    return node


def _inputs(node: ast.expr) -> tuple[ast.Name, ...]:
    listed = node.elts if isinstance(node, (ast.List, ast.Tuple)) else [node]
    names = tuple(n for n in listed if isinstance(n, ast.Name))
    if len(names) != len(listed) or len({n.id for n in names}) != len(names) or not names:
        raise NotPlain(f"it is differentiated by `{ast.unparse(node)[:50]}`, which is no name of a tensor")
    return names


def _used(unit: Unit, call: ast.Call, inputs: ast.expr) -> tuple[ast.expr, bool]:
    """The expression that is replaced, and whether it is the gradient itself in place of a tuple."""
    up = unit.tree.parents[call]
    if (
        isinstance(up, ast.Subscript)
        and up.value is call
        and isinstance(up.slice, ast.Constant)
        and up.slice.value == 0
    ):
        if not isinstance(inputs, (ast.List, ast.Tuple)) or len(inputs.elts) == 1:
            return up, True
    return call, False


def is_ones(unit: Unit, node: ast.expr) -> bool:
    """`torch.ones_like(y)`, `torch.ones(…).to(device)`: of whatever size, as it must be that of the output."""
    while isinstance(node, ast.Call):
        dotted = unit.resolve(node.func)
        if dotted in _ONES or _filled(node):
            return True
        if isinstance(node.func, ast.Attribute) and node.func.attr in _PLACED and dotted is None:
            node = node.func.value
        elif node.args and (dotted in _WRAPPING or (len(node.args) == 1 and _is_type(dotted))):
            node = node.args[0]  # Variable(x), Tensor(x)
        else:
            return False
    return False


def _is_type(dotted: str | None) -> bool:
    """`torch.FloatTensor`, which names for it stand for, too."""
    return dotted is not None and dotted.startswith("torch.") and dotted.endswith("Tensor")


def _filled(node: ast.Call) -> bool:
    """`x.fill_(1.0)`."""
    value = node.args[0] if len(node.args) == 1 and not node.keywords else None
    named = isinstance(node.func, ast.Attribute) and node.func.attr == "fill_"
    return named and isinstance(value, ast.Constant) and value.value == 1


def bound_once(unit: Unit, node: ast.expr) -> ast.expr:
    """What a name of a function stands for when it is assigned once, and not changed; else the expression itself."""
    if not isinstance(node, ast.Name):
        return node
    scope = unit.scope(node).lookup(node.id)
    bindings = scope.bindings.get(node.id, []) if scope is not None else []
    stmt = unit.tree.parents.get(bindings[0].node) if len(bindings) == 1 else None
    if not isinstance(stmt, ast.Assign) or stmt.targets != [bindings[0].node] or scope is not unit.scope(node):
        return node
    changed = any(
        isinstance(n, (ast.Attribute, ast.Subscript))
        and isinstance(n.value, ast.Name)
        and n.value.id == node.id
        and unit.scope(n.value).lookup(node.id) is scope
        for n in unit.tree.parents
    )
    return node if changed else stmt.value


def is_scalar(unit: Unit, node: ast.expr) -> bool:
    """Whether an expression is the sum or mean over all of something, or a loss of torch in its usual form."""
    if not isinstance(node, ast.Call):
        return False
    dotted = unit.resolve(node.func) or ""
    if dotted.removeprefix("torch.nn.functional.") in _LOSSES:
        return not any(k.arg in (None, "reduction", "reduce", "size_average") for k in node.keywords)
    if node.keywords:
        return False
    if isinstance(node.func, ast.Attribute) and node.func.attr in ("sum", "mean") and not node.args:
        return unit.resolve(node.func) is None
    return dotted in _NO_ARGUMENTS and len(node.args) == 1


def find_helpers(unit: Unit) -> dict[ast.FunctionDef, ast.Call]:
    """Functions that do nothing but return the gradient of one parameter with respect to others, as physics-informed
    networks have them: `def gradient(y, x): return autograd.grad(y, x, torch.ones_like(y), create_graph=True)[0]`."""
    found: dict[ast.FunctionDef, ast.Call] = {}
    for call in grad_calls(unit):
        function = unit.tree.function(call)
        if not isinstance(function, ast.FunctionDef) or function.decorator_list:
            continue
        body = [s for s in function.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
        names = [a.arg for a in function.args.args]
        spec = function.args
        plain = not (spec.posonlyargs or spec.kwonlyargs or spec.vararg or spec.kwarg or spec.defaults)
        if len(body) == 1 and isinstance(body[0], ast.Return) and plain and len(names) == 2:
            try:
                read = read_call(unit, call)
            except NotPlain:
                continue
            own = isinstance(read.output, ast.Name) and [read.output.id] == [n for n in names if n != read.inputs[0].id]
            if own and len(read.inputs) == 1 and read.node is body[0].value and read.weights is None and read.single:
                found[function] = call
    return found


def helper_calls(unit: Unit, function: ast.FunctionDef, inner: ast.Call) -> list[GradCall]:
    """The calls of such a function, as if torch.autograd.grad were called there. Raises NotPlain when it is used in
    another way."""
    read = read_call(unit, inner)
    names = [a.arg for a in function.args.args]
    calls = []
    for call in unit.tree.all(ast.Call):
        found = called(unit, call)
        if found is None or found[0] is not function:
            continue
        if len(call.args) != 2 or call.keywords or any(isinstance(a, ast.Starred) for a in call.args):
            raise NotPlain(f"`{ast.unparse(call)[:60]}` does not give both arguments by place")
        pairs = dict(zip(names, call.args, strict=True))
        assert isinstance(read.output, ast.Name)
        inputs, stmt = _inputs(pairs[read.inputs[0].id]), unit.tree.statement(call)
        output = pairs[read.output.id]
        calls.append(GradCall(call, call, stmt, output, inputs, None, read.ones, True, read.cut, read.unused, function))
    uses = [n for n in unit.tree.all(ast.Name) if n.id == function.name and isinstance(n.ctx, ast.Load)]
    uses = [n for n in uses if unit.local(n) is unit.functions.get(function)]
    if len(uses) != len(calls) or unit.tree.class_of(function) is not None:
        raise NotPlain(f"`{function.name}` is used for more than to be called")
    return calls
