"""Which torch operations may hand out memory that they were given. Measured for torch 2.13: see tests/test_alias.py.

Everything that torch documents as a view is here, and everything that returns its own input when there is nothing to do
(`contiguous`, `to`, `reshape`, `Dropout` in eval mode). What is not here and has a rule makes new memory.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from .facts import ClassFacts, FunctionFacts
from .kinds import CONTAINERS
from .unit import Unit

VIEWS = frozenset(
    """view view_as reshape reshape_as flatten unflatten ravel t T mT H mH permute transpose swapaxes swapdims
    movedim moveaxis unsqueeze squeeze expand expand_as broadcast_to broadcast_tensors detach data contiguous to
    float double half bfloat16 int long bool byte short char cpu cuda type type_as as_tensor asarray from_numpy
    numpy split split_with_sizes tensor_split hsplit vsplit dsplit chunk unbind narrow select diagonal unfold
    atleast_1d atleast_2d atleast_3d real imag view_as_real view_as_complex positive conj adjoint resolve_conj
    resolve_neg as_strided meshgrid pin_memory dropout dropout1d dropout2d dropout3d alpha_dropout
    feature_alpha_dropout feature_dropout einsum pixel_shuffle pixel_unshuffle channel_shuffle
    native_channel_shuffle Parameter Buffer Variable rearrange repeat reduce unpack checkpoint
    checkpoint_sequential coalesce block_diag sum_to_size to_dense from_dlpack frombuffer cartesian_prod
    chain_matmul multi_dot Tensor FloatTensor DoubleTensor HalfTensor BFloat16Tensor LongTensor IntTensor ShortTensor
    CharTensor ByteTensor BoolTensor""".split()  # noqa: SIM905
)
VIEW_ATTRIBUTES = frozenset(["T", "mT", "H", "mH", "data", "real", "imag"])
PASSING_LAYERS = frozenset(
    f"torch.nn.{n}"
    for n in """Identity Dropout Dropout1d Dropout2d Dropout3d AlphaDropout FeatureAlphaDropout Flatten Unflatten
    PixelShuffle PixelUnshuffle ChannelShuffle Module ModuleList ModuleDict Sequential""".split()  # noqa: SIM905
)
# At which place layers and functions take `inplace`.
INPLACE_AT = {
    name: place
    for place, names in enumerate(
        (
            "ReLU ReLU6 SELU SiLU Mish Hardswish Hardsigmoid",
            "LeakyReLU ELU CELU Dropout Dropout1d Dropout2d Dropout3d AlphaDropout FeatureAlphaDropout "
            "relu relu6 selu silu mish hardswish hardsigmoid",
            "Hardtanh RReLU Threshold leaky_relu elu celu",
            "hardtanh threshold dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout",
            "rrelu",
        )
    )
    for name in names.split()
}


def is_view(name: str) -> bool:
    """Whether the torch function or method of this short name may return memory of its (first) argument."""
    return name in VIEWS or (name.endswith("_") and not name.endswith("__"))


class Modules:
    """What calling a sub-module does with its argument, as far as constructors in the source show."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self._inside: set[ast.AST] = set()  # functions whose results are being looked at

    def passes(self, func: ast.expr) -> bool:
        """Whether calling the module `func` may return (a view of) its argument."""
        built = self.constructions(func)
        return not built or any(self._may_pass(b) for b in built)

    def overwrites(self, func: ast.expr) -> str:
        """The layer inside `func` built with `inplace=True` that meets the argument itself; "" when none does."""
        for built in self.constructions(func):
            name = self._overwriting(built)
            if name:
                return name
        return ""

    def constructions(self, func: ast.expr) -> list[ast.expr]:
        """The expressions that are assigned to `self.<attr>` or to the name, over the class hierarchy."""
        unit = self.unit
        if isinstance(func, ast.Call):
            return [func]
        if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name):
            facts = unit.kind(func.value).facts
            return self._attributes(facts, func.attr) if isinstance(facts, ClassFacts) else []
        if isinstance(func, ast.Name):
            scope = unit.scope(func).lookup(func.id)
            bindings = scope.bindings[func.id] if scope else []
            ups = [unit.tree.parents.get(b.node) for b in bindings]
            if all(isinstance(u, ast.Assign) for u in ups):
                return [u.value for u in ups if isinstance(u, ast.Assign)]
        return []

    def _attributes(self, facts: ClassFacts, name: str) -> list[ast.expr]:
        found: list[ast.expr] = []
        for cls in facts.family:
            found += cls.assigned.get(name, [])
        return found

    def is_variable(self, node: ast.expr) -> bool:
        """Whether the value is a Parameter or buffer itself, which is an object that can be written to in NNX."""
        if self.unit.kind(node).tag == "Variable":
            return True
        if not isinstance(node, ast.Name):
            return False
        scope = self.unit.scope(node).lookup(node.id)
        bindings = scope.bindings[node.id] if scope is not None else []
        return bool(bindings) and all(self._walks_variables(b.node) for b in bindings)

    def _walks_variables(self, target: ast.AST) -> bool:
        """Whether a loop target takes each of `module.parameters()` or the second of `module.named_parameters()`."""
        up = self.unit.tree.parents.get(target)
        second = isinstance(up, ast.Tuple) and len(up.elts) == 2 and up.elts[1] is target
        loop = self.unit.tree.parents.get(up) if second and up is not None else up
        if not isinstance(loop, (ast.For, ast.comprehension)) or not isinstance(loop.iter, ast.Call):
            return False
        func = loop.iter.func
        names = ("named_parameters", "named_buffers") if second else ("parameters", "buffers")
        return isinstance(func, ast.Attribute) and func.attr in names and self.unit.kind(func.value).tag == "Module"

    def _may_pass(self, node: ast.expr) -> bool:
        if isinstance(node, ast.IfExp):
            return self._may_pass(node.body) or self._may_pass(node.orelse)
        if not isinstance(node, ast.Call):
            return True
        dotted = self.unit.resolve(node.func) or self._base(node)
        made = self.unit.kind(node).name  # what a function of the project builds and returns
        if not dotted.startswith("torch.nn.") and made.startswith("torch.nn."):
            return made in PASSING_LAYERS or made.rpartition(".")[2] in INPLACE_AT
        if dotted == "torch.nn.Sequential":
            return all(isinstance(a, ast.Starred) or self._may_pass(a) for a in node.args)
        if not dotted.startswith("torch.nn."):
            return True
        return dotted in PASSING_LAYERS or dotted in CONTAINERS or may_be_inplace(node)

    def _base(self, node: ast.Call) -> str:
        """The torch layer that a project class is when it leaves `forward` alone; "" otherwise."""
        facts = self.unit.kind(node).facts
        if isinstance(facts, ClassFacts) and facts.method("forward") is None and facts.method("__call__") is None:
            return facts.layer_base
        return ""

    def _overwriting(self, node: ast.expr) -> str:
        if isinstance(node, ast.IfExp):
            return self._overwriting(node.body) or self._overwriting(node.orelse)
        if not isinstance(node, ast.Call):
            return ""
        dotted = self.unit.resolve(node.func) or ""
        if dotted == "torch.nn.Sequential":
            for arg in self._parts(node.args):
                name = "" if isinstance(arg, ast.Starred) else self._overwriting(arg)
                if name or isinstance(arg, ast.Starred) or not self._may_pass(arg):
                    return name
            return ""
        if dotted.startswith("torch.nn."):
            return dotted if may_be_inplace(node) else ""
        facts = self.unit.kind(node.func).facts
        if isinstance(facts, FunctionFacts) and facts.unit is self.unit and facts.node not in self._inside:
            self._inside.add(facts.node)
            given = [r.value for r in self.unit.tree.own(facts.node) if isinstance(r, ast.Return) and r.value]
            made = [b for v in given for b in (self.constructions(v) if isinstance(v, ast.Name) else [v])]
            found = next((name for value in made if (name := self._overwriting(value))), "")
            self._inside.discard(facts.node)
            return found
        return self._held_inplace(node)

    def _parts(self, args: list[ast.expr]) -> Iterator[ast.expr]:
        """The arguments in order, those in a list or tuple that is unpacked one by one; what follows them in a list
        that has a name is not known: it comes as it stands."""
        for arg in args:
            value = arg.value if isinstance(arg, ast.Starred) else arg
            built = self.constructions(value) if isinstance(value, ast.Name) else [value]
            shown = built[0] if len(built) == 1 else value
            if not isinstance(arg, ast.Starred):
                yield arg
                continue
            if isinstance(shown, (ast.List, ast.Tuple)):
                yield from shown.elts
            if not isinstance(value, (ast.List, ast.Tuple)):
                yield arg

    def _held_inplace(self, node: ast.Call) -> str:
        """The layer that the call of a class builds which a variable holds, where it may be given a true `inplace` by
        its name; "" otherwise. By its place it is not converted."""
        kind = self.unit.kind(node.func)
        if kind.tag != "Class" or isinstance(kind.facts, ClassFacts):
            return ""
        given = next((k.value for k in node.keywords if k.arg == "inplace"), None)
        spread = any(k.arg is None for k in node.keywords)
        true = spread if given is None else not _is_false(given)
        return (kind.name or "a layer") if true else ""


def may_be_inplace(call: ast.Call) -> bool:
    """Whether the call may be given a true `inplace`: by keyword, in its place, in `*values` or `**options`."""
    for keyword in call.keywords:
        if keyword.arg == "inplace":
            return not _is_false(keyword.value)
    at = INPLACE_AT.get(ast.unparse(call.func).rpartition(".")[2])
    if at is None:
        return False
    if any(k.arg is None for k in call.keywords) or any(isinstance(a, ast.Starred) for a in call.args[: at + 1]):
        return True
    return len(call.args) > at and not _is_false(call.args[at])


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not node.value
