"""Layers that are Flax's own (`--layers nnx`): constructions, and initialisers that write their weights."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..read.native import REORDERED, SHAPELESS, WEIGHT

if TYPE_CHECKING:
    from .plan import Plan
    from .writer import Writer

# Built directly; the others (channels first) are built through the layer file's class of torch's name.
FLAX = {"Linear": "Linear", "Embedding": "Embed", "LayerNorm": "LayerNorm", "RMSNorm": "RMSNorm"}
# Torch's parameters in order, by Flax's names; the first ones are positional there as well.
_PARAMETERS: Mapping[str, Sequence[tuple[str, str]]] = {
    "Linear": (("in_features", ""), ("out_features", ""), ("bias", "use_bias")),
    "Embedding": (("num_embeddings", ""), ("embedding_dim", "features")),
    "LayerNorm": (("normalized_shape", "num_features"), ("eps", "epsilon"), ("elementwise_affine", ""),
                  ("bias", "use_bias")),
    "RMSNorm": (("normalized_shape", "num_features"), ("eps", "epsilon"), ("elementwise_affine", "use_scale")),
}  # fmt: skip
_POSITIONAL = {"Linear": 2, "Embedding": 2, "LayerNorm": 1, "RMSNorm": 1}


def native_construction(plan: Plan, node: ast.Call, name: str) -> str:
    """Write `nn.Linear(a, b)` as `nnx.Linear(a, b, kernel_init=…)`: the text that takes the place of the class.

    Returns "" (and plans nothing) where the arguments are not plain enough to be written twice or renamed: the layer
    file's class takes them as they are.
    """
    if name not in FLAX or any(isinstance(a, ast.Starred) for a in node.args) or any(not k.arg for k in node.keywords):
        return ""
    parameters = _PARAMETERS[name]
    given = {p: a for (p, _), a in zip(parameters, node.args, strict=False)}
    given |= {k.arg: k.value for k in node.keywords if k.arg and k.value not in plan.taken}  # taken: a dropped device
    if given.keys() - {p for p, _ in parameters} or len(node.args) > len(parameters):
        return ""
    affine = given.get("elementwise_affine")
    if name == "LayerNorm" and affine is not None and not (isinstance(affine, ast.Constant) and affine.value is True):
        return ""
    fan_in = given.get("in_features")
    if name == "Linear" and (fan_in is None or not _plain(fan_in)):
        return ""
    _rename(plan, node, name)
    from .layercalls import add_argument

    if name == "Linear" and fan_in is not None:
        _add_initialisers(plan, node, fan_in, given.get("bias"))
    elif name == "Embedding":
        add_argument(plan, node, "embedding_init=nnx.initializers.normal(1.0)")
    elif name == "LayerNorm":
        add_argument(plan, node, ("" if "eps" in given else "epsilon=1e-5, ") + "use_fast_variance=False")
    return f"nnx.{FLAX[name]}"


def _plain(node: ast.expr) -> bool:
    """Whether an expression may be evaluated twice, and is short enough to be read twice."""
    allowed = (ast.Name, ast.Attribute, ast.Constant, ast.BinOp, ast.operator, ast.BoolOp, ast.boolop,
               ast.expr_context)  # fmt: skip
    return all(isinstance(n, allowed) for n in ast.walk(node)) and len(ast.unparse(node)) <= 30


def _add_initialisers(plan: Plan, node: ast.Call, fan_in: ast.expr, bias: ast.expr | None) -> None:
    """Append torch's initial distribution, which goes by the number of inputs."""
    from .layercalls import add_argument

    spelled = plan.layer("torch_uniform")
    without = isinstance(bias, ast.Constant) and not bias.value

    def text(writer: Writer) -> str:
        init = f"{spelled}({writer.text(fan_in)})"
        return f"kernel_init={init}" + ("" if without else f", bias_init={init}")

    add_argument(plan, node, text)


def _rename(plan: Plan, node: ast.Call, name: str) -> None:
    tree = plan.unit.tree
    names = dict(_PARAMETERS[name])
    for index, (value, (parameter, flax)) in enumerate(zip(node.args, _PARAMETERS[name], strict=False)):
        if name == "LayerNorm" and parameter == "elementwise_affine":
            _affine(plan, node, value)
        elif index >= _POSITIONAL[name]:
            plan.point(node, tree.start(value), tree.start(value), f"{flax or parameter}=")
    for keyword in node.keywords:
        if name == "LayerNorm" and keyword.arg == "elementwise_affine":
            _affine(plan, node, keyword.value)
        elif keyword.arg and (new := names.get(keyword.arg)):
            start = tree.start(keyword)
            plan.point(node, start, start + len(keyword.arg), new)


def _affine(plan: Plan, node: ast.Call, value: ast.expr) -> None:
    """elementwise_affine=True is Flax's default."""
    from .layercalls import remove_argument

    remove_argument(plan, node, value)


@dataclass(frozen=True)
class Written:
    """How an initialiser names a weight: `target` to write it, `read` to ask for its shape in torch's order of axes;
    `order` is what puts the value into Flax's order."""

    target: str
    read: str
    order: str = ""


def native_weight(plan: Plan, target: ast.expr, dotted: str) -> Written | None:
    """The weight of Flax's own layer in the initialiser `dotted`; None for any other target."""
    layer = plan.native.weights.get(target)
    if layer is None or not isinstance(target, ast.Attribute):
        return None
    name = f"{plan.unit.tree.segment(target.value)}.{WEIGHT[layer]}"
    if layer not in REORDERED or dotted.rpartition(".")[2] in SHAPELESS:
        return Written(name, name)
    if layer == "Linear":
        return Written(name, f"{name}.T", ".T")
    n = int(layer[-2])
    there = ", ".join(map(str, (n + 1, n, *range(n))))
    back = ", ".join(map(str, (*range(2, n + 2), 1, 0)))
    return Written(name, f"{name}.transpose({there})", f".transpose({back})")


def native_class(plan: Plan, node: ast.expr, name: str) -> str:
    """`nnx.Linear` for the class in a test or an annotation; "" where the layer file's class is wanted."""
    if name not in plan.native.layers or name not in FLAX:
        return ""
    tree, child = plan.unit.tree, node
    for up in tree.ancestors(node):
        tests = isinstance(up, ast.Call) and plan.unit.resolve(up.func) in (
            "builtins.isinstance",
            "builtins.issubclass",
        )
        annotates = isinstance(up, (ast.arg, ast.AnnAssign)) and up.annotation is child
        if tests or annotates or (isinstance(up, ast.FunctionDef) and up.returns is child):
            return f"nnx.{FLAX[name]}"
        if isinstance(up, ast.stmt):
            break
        child = up  # type: ignore[assignment]
    return ""
