"""Which layers can be Flax's own in a project (`--layers nnx`), and why the others cannot.

A layer's class is Flax's own everywhere in a project or nowhere: then `isinstance` and the names and layouts of weights
mean one thing. What keeps it torch's is a use of what Flax's version has not, or has in another layout.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ..layers import catalogue, native_layers, needed
from ..rulebook.load import RuleBook
from .kinds import Kind
from .project import Project
from .source import hidden
from .unit import Unit

CONVS = frozenset({"Conv1d", "Conv2d", "Conv3d"})
TRANSPOSED_CONVS = frozenset({"ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"})
# Stored in another order of axes than torch's.
REORDERED = CONVS | TRANSPOSED_CONVS | {"Linear"}
# Flax's name of torch's `weight`.
WEIGHT = dict.fromkeys(REORDERED, "kernel") | dict.fromkeys(("LayerNorm", "RMSNorm", "GroupNorm"), "scale")
WEIGHT["Embedding"] = "embedding"
# Torch's other attributes that Flax's version lacks, or keeps in another form.
ATTRIBUTES: Mapping[str, frozenset[str]] = {
    "in_channels": REORDERED, "out_channels": REORDERED, "stride": REORDERED, "padding": REORDERED,
    "dilation": REORDERED, "groups": REORDERED, "output_padding": TRANSPOSED_CONVS,
    "padding_mode": TRANSPOSED_CONVS | CONVS, "transposed": TRANSPOSED_CONVS | CONVS,
    "embedding_dim": frozenset({"Embedding"}), "padding_idx": frozenset({"Embedding"}),
    "max_norm": frozenset({"Embedding"}), "normalized_shape": frozenset({"LayerNorm", "RMSNorm"}),
    "elementwise_affine": frozenset({"LayerNorm", "RMSNorm"}), "num_channels": frozenset({"GroupNorm"}),
    "eps": frozenset({"LayerNorm", "RMSNorm", "GroupNorm"}), "affine": frozenset({"GroupNorm"}),
    "reset_parameters": frozenset(WEIGHT), "weight": frozenset(WEIGHT),
}  # fmt: skip
# Layers of torch that have a namesake in Flax and stay as they are.
OTHERS = {
    **dict.fromkeys(("BatchNorm1d", "BatchNorm2d", "BatchNorm3d"), "Flax's running variance is the biased one"),
    **dict.fromkeys(("InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"), "Flax's is for channels last, untracked"),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), "Flax has cells only, with other gates' layouts and one bias"),
    **dict.fromkeys(("LSTMCell", "GRUCell", "RNNCell"), "Flax's cell has one bias and another layout"),
    "MultiheadAttention": "Flax's has other layouts, and its masks mean the opposite",
    "PReLU": "Flax's has one slope, and starts at 0.01",
    "Sequential": "Flax's cannot be indexed or iterated",
}
_FIXED_NAMES = ("getattr", "setattr", "hasattr", "delattr")
_FREE_UTILS = ("torch.nn.utils.clip_grad", "torch.nn.utils.rnn")
# Initialisers that fill a shape with independent draws or one value: the order of axes does not matter.
SHAPELESS = frozenset(
    {"zeros_", "ones_", "constant_", "uniform_", "normal_", "trunc_normal_", "_no_grad_trunc_normal_"}
)
_BY_SHAPE = ("torch.optim.Adafactor", "torch.optim.Muon")


@dataclass(frozen=True)
class Native:
    """`layers` are the library names of the layers that are Flax's own; `reasons` say why others are not, by name.

    `weights` are reads of such a layer's `.weight` that are written otherwise: the layer's name by node.
    """

    on: bool = False
    layers: frozenset[str] = frozenset()
    reasons: Mapping[str, str] = field(default_factory=dict)
    weights: Mapping[ast.AST, str] = field(default_factory=dict)


TORCH_LAYERS = Native()


def find_native(project: Project, book: RuleBook) -> Native:
    """Look at every use of a layer in the project. Needs `infer` to have run."""
    reasons: dict[str, str] = {}
    weights: dict[ast.AST, str] = {}
    for unit in project.units:
        for names, why, node in _obstacles(unit, book, weights):
            place = f"{why} ({unit.source.path}:{getattr(node, 'lineno', 1)})"
            for name in names:
                reasons.setdefault(name, place)
    layers = frozenset(native_layers() - reasons.keys())
    return Native(True, layers, OTHERS | reasons, {n: layer for n, layer in weights.items() if layer in layers})


Obstacle = tuple[Iterable[str], str, ast.AST]


def _obstacles(unit: Unit, book: RuleBook, weights: dict[ast.AST, str]) -> Iterator[Obstacle]:
    for cls in unit.classes.values():
        if name := _layer(cls.layer_base):
            yield (name,), f"{cls.name} extends it", cls.node
    for node in unit.tree.both(ast.Name, ast.Attribute):
        if hidden(node):
            continue
        dotted = unit.resolve(node)
        if dotted and dotted.startswith("torch."):
            yield from _of_name(unit, book, node, dotted)
        elif isinstance(node, ast.Attribute) and not dotted and node.attr in ATTRIBUTES:
            yield from _of_attribute(unit, node, weights)
    for call in unit.tree.all(ast.Call):
        if not hidden(call):
            yield from _of_call(unit, call)


def _layer(dotted: str) -> str:
    """The library name of a torch layer that Flax has too."""
    head, _, name = dotted.rpartition(".")
    return name if head == "torch.nn" and name in WEIGHT else ""


def _of_name(unit: Unit, book: RuleBook, node: ast.expr, dotted: str) -> Iterator[Obstacle]:
    parent = unit.tree.parents.get(node)
    if dotted.startswith("torch.nn.utils.") and not dotted.startswith(_FREE_UTILS):
        yield WEIGHT, f"{dotted} changes parameters by name or order", node
    if dotted in _BY_SHAPE:
        yield REORDERED, f"{dotted} goes by the order of axes", node
    if isinstance(parent, ast.Compare) and _layer(dotted):
        yield (_layer(dotted),), "its type is compared", node
    if isinstance(parent, ast.Attribute) and _layer(dotted):
        yield (_layer(dotted),), f"{dotted}.{parent.attr} is used", node
    row = book.find(dotted)
    layer = str(row.get("layer")) if row is not None and row.get("layer") else ""
    if layer in catalogue() and layer not in WEIGHT and (inside := needed(layer) & WEIGHT.keys()):
        yield inside, f"{dotted} is built of it", node


def _of_attribute(unit: Unit, node: ast.Attribute, weights: dict[ast.AST, str]) -> Iterator[Obstacle]:
    possible = _holders(unit, node) & ATTRIBUTES[node.attr]
    if not possible:
        return
    if node.attr == "weight" and len(possible) == 1 and _initialised(unit, node):
        weights[node] = next(iter(possible))
        return
    yield possible, f"`{ast.unparse(node)}` is used", node


def _holders(unit: Unit, node: ast.Attribute) -> frozenset[str]:
    """The layers that the owner of an attribute can be."""
    kind = unit.kind(node.value)
    if kind.tag == "unknown":
        return frozenset(WEIGHT)
    if kind.tag != "Module":
        return frozenset()
    if kind.facts is not None:
        return frozenset()  # a class of the project; one that extends a layer keeps that layer torch's anyway
    if not kind.name or kind.name == "torch.nn.Module":
        return frozenset(WEIGHT)
    return frozenset({_layer(kind.name)} - {""})


def _initialised(unit: Unit, node: ast.Attribute) -> bool:
    """`nn.init.xavier_uniform_(layer.weight)` on a line of its own."""
    call = unit.tree.parents.get(node)
    if not isinstance(call, ast.Call) or not call.args or call.args[0] is not node:
        return False
    dotted = unit.resolve(call.func) or ""
    return dotted.startswith("torch.nn.init.") and isinstance(unit.tree.parents.get(call), ast.Expr)


def _of_call(unit: Unit, call: ast.Call) -> Iterator[Obstacle]:
    dotted = unit.resolve(call.func) or ""
    name = _layer(dotted)
    if name:
        if why := _arguments(unit, name, call):
            yield (name,), why, call
    elif dotted.startswith("torch.nn.init.") and dotted.endswith("_"):
        if dotted.rpartition(".")[2] not in SHAPELESS and call.args and not isinstance(call.args[0], ast.Attribute):
            yield REORDERED, f"`{ast.unparse(call)[:60]}` goes by the order of axes", call
    elif dotted.removeprefix("builtins.") in _FIXED_NAMES and len(call.args) > 1:
        attribute = call.args[1]
        if isinstance(attribute, ast.Constant) and str(attribute.value) in ATTRIBUTES:
            yield ATTRIBUTES[str(attribute.value)], f"`{ast.unparse(call)[:60]}` is used", call
    if any(k.arg == "output_size" for k in call.keywords):
        yield TRANSPOSED_CONVS, "output_size is given", call


def _arguments(unit: Unit, name: str, call: ast.Call) -> str:
    """What a construction asks for that Flax's layer has not."""
    given = {k.arg: k.value for k in call.keywords if k.arg}
    if name in TRANSPOSED_CONVS and (len(call.args) > 6 or not _is(given.get("groups"), None, 1)):
        return "it has groups"
    if name == "Embedding":
        extra = sorted(given.keys() - {"num_embeddings", "embedding_dim", "device"})
        if any(not _is(given[k], None) for k in extra) or len(call.args) > 2:
            return f"{extra[0] if extra else 'padding_idx'} is given"
    if name == "RMSNorm" and len(call.args) < 2 and _is(given.get("eps"), None):
        return "its eps depends on the input's type"
    if name in ("LayerNorm", "RMSNorm"):
        shape = call.args[0] if call.args else given.get("normalized_shape")
        if shape is not None and _is_shape(unit.kind(shape), shape):
            return "it normalises over several dimensions"
    return ""


def _is(node: ast.expr | None, *values: object) -> bool:
    return node is None or (isinstance(node, ast.Constant) and node.value in values)


def _is_shape(kind: Kind, node: ast.expr) -> bool:
    if isinstance(node, (ast.Tuple, ast.List)):
        return len(node.elts) != 1
    return kind.tag in ("tuple", "list", "shape") or (kind.tag == "unknown" and "shape" in ast.unparse(node))
