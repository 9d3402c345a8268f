"""Results of torch calls whose kind depends on the arguments."""

from __future__ import annotations

import ast

from .kinds import INT, SHAPE, STR, TENSOR, UNKNOWN, Kind
from .unit import Unit

SCALAR = Kind("Tensor", "scalar")
_REDUCTIONS = (
    "sum",
    "mean",
    "prod",
    "std",
    "var",
    "norm",
    "max",
    "min",
    "amax",
    "amin",
    "logsumexp",
    "dot",
    "trace",
    "dist",
)
_TUPLES = frozenset(
    [
        "qr",
        "slogdet",
        "eigh",
        "eig",
        "svd",
        "lstsq",
        "var_mean",
        "std_mean",
        "aminmax",
        "cummax",
        "cummin",
        "topk",
        "sort",
        "kthvalue",
        "frexp",
    ]
)
_PAIRS = ("max", "min", "median", "mode", "nanmedian")


def refine(dotted: str, node: ast.Call, kind: Kind, unit: Unit) -> Kind:
    """`kind` is what the row says; the arguments may say more."""
    name = dotted.rpartition(".")[2]
    method = dotted.startswith("torch.Tensor.")
    args = node.args if method else node.args[1:]
    keywords = {k.arg for k in node.keywords}
    if name in _REDUCTIONS and kind.is_tensor and not args and not keywords & {"dim", "axis", "keepdim"}:
        return SCALAR
    if (
        dotted in ("torch.tensor", "torch.scalar_tensor", "torch.as_tensor")
        and node.args
        and unit.kind(node.args[0]).tag == "float"
    ):
        return SCALAR
    if dotted == "torch.Tensor.size":
        return INT if args or keywords else SHAPE
    if dotted == "torch.Tensor.stride":
        return INT if args or keywords else SHAPE
    if dotted == "torch.Tensor.type" and not args and not keywords:
        return STR
    if name in _PAIRS:
        by_dim = bool(keywords & {"dim", "axis", "keepdim"}) or (args and not unit.kind(args[0]).is_tensor)
        return Kind("tuple", "pair", (TENSOR, TENSOR)) if by_dim else TENSOR
    if name in ("unique", "unique_consecutive"):
        extra = keywords & {"return_inverse", "return_counts"}
        return Kind("tuple", "", (TENSOR,) * (1 + len(extra))) if extra else TENSOR
    if name == "where" and not method and len(node.args) == 1:
        return Kind("tuple", "*", (TENSOR,))
    if name == "nonzero" and any(k.arg == "as_tuple" for k in node.keywords):
        return Kind("tuple", "*", (TENSOR,))
    if name in _TUPLES:
        return kind if kind.tag in ("tuple", "list") else UNKNOWN
    if name.startswith(("max_pool", "adaptive_max_pool")) and "return_indices" in keywords:
        return Kind("tuple", "", (TENSOR, TENSOR))
    return kind
