"""`hasattr(x, "sqrt")` of a tensor: true in torch, and JAX's arrays have no such attribute."""

from __future__ import annotations

import ast

from ..read.tensor_only import TENSOR_ONLY
from ..rulebook.load import torch_names
from .plan import Plan
from .settle import why

# What an array of JAX has under a tensor's name.
SHARED = frozenset(
    """
    T all any argmax argmin argsort clip clone conj cumprod cumsum device diagonal dot dtype flatten imag item itemsize
    mT max mean min nbytes ndim nonzero prod ravel real repeat reshape round shape size sort squeeze std sum swapaxes
    take tolist trace transpose var view
    """.split()  # noqa: SIM905
)
# Attributes by which code tells a tensor from what is none.
_TELLING = frozenset({"grad", "grad_fn", "requires_grad", "is_cuda", "is_leaf", "cpu", "cuda"})
ADVICE = 'Ask isinstance(x, jax.Array), or for what an array of JAX has (hasattr(x, "shape")).'


def plan_asked(plan: Plan, node: ast.Call, dotted: str) -> None:
    """Report `hasattr` and `getattr` with a literal name that a tensor has and an array lacks."""
    if len(node.args) < 2 or not isinstance(node.args[1], ast.Constant) or not isinstance(node.args[1].value, str):
        return
    name, holder = node.args[1].value, plan.unit.kind(node.args[0])
    full = f"torch.Tensor.{name}"
    if name in SHARED or name.startswith("__") or not (name in TENSOR_ONLY | _TELLING or torch_names().known(full)):
        return
    telling = dotted == "builtins.hasattr" and name in TENSOR_ONLY | _TELLING
    if holder.is_tensor or (telling and not holder.known):
        text = f"`{ast.unparse(node)[:60]}`: tensors have `.{name}`, arrays of JAX have not"
        plan.found("JM304", node, full, text, advice=ADVICE, evidence=why(holder) if holder.known else "")
