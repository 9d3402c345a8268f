"""Handlers of errors that torch raises over values, where JAX returns something and goes on."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from ...read.source import hidden
from ...read.unit import Unit
from ..plan import Plan

_GENERAL = frozenset({"builtins.Exception", "builtins.BaseException"})
_CATCHING = {
    "IndexError": frozenset({"builtins.IndexError", "builtins.LookupError"}),
    "RuntimeError": frozenset({"builtins.RuntimeError"}),
}
# What torch 2.13 raises on the CPU for the values in question, and what JAX does.
_INDICES = frozenset(
    """embedding embedding_bag index_select take cross_entropy nll_loss Embedding EmbeddingBag CrossEntropyLoss
    NLLLoss""".split()  # noqa: SIM905
)
_MATRICES = frozenset(
    """cholesky inv inverse solve tensorinv tensorsolve lu_factor cholesky_inverse matrix_power pinv pinverse svd
    svdvals eig eigvals matrix_rank""".split()  # noqa: SIM905
)
_CHECKED = frozenset(
    """gather scatter scatter_ scatter_add scatter_add_ take_along_dim one_hot multinomial bernoulli
    binary_cross_entropy BCELoss bincount normal view""".split()  # noqa: SIM905
)


def plan_errors(plan: Plan) -> None:
    """Report each handler that torch may reach by an error that JAX does not raise."""
    for node in plan.unit.tree.all(ast.Try):
        if hidden(node):
            continue
        for handler in node.handlers:
            types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
            _report(plan, handler, node.body, {plan.unit.resolve(t) or "" if t is not None else "" for t in types})
    for block in plan.unit.tree.all(ast.With):
        for item in block.items:
            call = item.context_expr
            if isinstance(call, ast.Call) and plan.unit.resolve(call.func) == "contextlib.suppress":
                _report(plan, call, block.body, {plan.unit.resolve(a) or "" for a in call.args})


@dataclass(frozen=True)
class _Check:
    """An operation whose values torch checks: what it raises, and what JAX does in place of that."""

    node: ast.AST
    name: str
    error: str
    instead: str


def _report(plan: Plan, handler: ast.ExceptHandler | ast.expr, body: list[ast.stmt], caught: set[str]) -> None:
    general = bool(caught & _GENERAL) or (isinstance(handler, ast.ExceptHandler) and handler.type is None)
    for check in _checks(plan.unit, body):
        # Handlers of everything mostly stand there for other reasons; a matrix that may be singular is a usual one.
        if caught & _CATCHING[check.error] or (general and check.instead == _NAN):
            line = plan.unit.tree.position(plan.unit.tree.start(check.node))[0]
            where = handler.type if isinstance(handler, ast.ExceptHandler) and handler.type is not None else handler
            message = f"torch raises {check.error} at line {line}, {check.instead}"
            plan.found("JM209", where, check.name, message, advice=_ADVICE[check.instead])
            return


_CLAMP, _NAN, _GO_ON = "JAX clamps the index", "JAX gives inf or NaN", "JAX does not"
_ADVICE = {
    _CLAMP: "Compare the index with the shape before using it.",
    _NAN: "Test the result with jnp.isfinite(…).all().",
    _GO_ON: "Test the values before the call.",
}


def _checks(unit: Unit, body: list[ast.stmt]) -> Iterator[_Check]:
    for node in (n for stmt in body for n in ast.walk(stmt)):
        if isinstance(node, ast.Subscript):
            if unit.kind(node.value).is_tensor and not isinstance(node.slice, ast.Slice):
                yield _Check(node, "torch.Tensor.__getitem__", "IndexError", _CLAMP)
        elif isinstance(node, ast.Call):
            name = _operation(unit, node)
            short = name.rpartition(".")[2]
            if short in _INDICES:
                yield _Check(node, name, "IndexError", _CLAMP)
            elif short in _MATRICES:
                yield _Check(node, name, "RuntimeError", _NAN)
            elif short in _CHECKED:
                yield _Check(node, name, "RuntimeError", _GO_ON)


def _operation(unit: Unit, call: ast.Call) -> str:
    """The torch name of what is called: a function, a tensor's method, a layer; "" for everything else."""
    kind, dotted = unit.kind(call.func), unit.resolve(call.func) or ""
    if dotted.startswith("torch."):
        return dotted
    if kind.tag == "Module":
        return kind.name
    if isinstance(call.func, ast.Attribute) and unit.kind(call.func.value).is_tensor:
        return f"torch.Tensor.{call.func.attr}"
    return ""
