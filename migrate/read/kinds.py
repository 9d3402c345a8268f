"""Kinds of values: what an expression is, and the evidence for it. Unknown stays unknown."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .facts import ClassFacts, FunctionFacts


@dataclass(frozen=True)
class Kind:
    """What a value is.

    tag: "Tensor", "Variable" (a Parameter or buffer of a module), "Module", "Class" (a module class as a value),
    "Function" (a function of the project), "torch" (a torch function as a value), "Optimizer", "Scheduler",
    "Generator", "Loader", "dtype", "device", "shape", "int", "float", "bool", "str", "None", "tuple", "list", "dict",
    "numpy", "other" (something that is none of these, known for sure), "unknown".
    name: the torch name of a Module, Class, Optimizer …; "pair" for a (values, indices) result, "*" for a tuple of
    unknown length, "scalar" for a 0-dim float tensor.
    items: the members of a tuple; the one element kind of a list, dict or "*" tuple; the torch functions, or the
    classes, of which it may be any (then it has no name).
    keys: the names of the items of a ModuleDict whose keys are literals.
    facts: the class or function of the project behind a Module, Class or Function.
    why: the evidence, for people.
    """

    tag: str
    name: str = ""
    items: tuple[Kind, ...] = ()
    facts: ClassFacts | FunctionFacts | None = field(default=None, compare=True, repr=False)
    keys: tuple[str, ...] = ()
    optional: bool = field(default=False, compare=False)
    why: str = field(default="", compare=False)

    def because(self, why: str) -> Kind:
        return replace(self, why=why) if not self.why else self

    @property
    def is_tensor(self) -> bool:
        return self.tag in ("Tensor", "Variable")

    @property
    def known(self) -> bool:
        return self.tag != "unknown"

    def element(self) -> Kind:
        """What iterating over or indexing into it gives."""
        if self.is_tensor:
            return TENSOR
        if self.tag == "shape":
            return INT
        if self.tag == "Loader":
            return Kind("tuple", "batch", (TENSOR,), why="a batch of a DataLoader")
        if self.tag == "Module" and not self.name and self.items:  # a ParameterList
            return self.items[0]
        if self.tag == "Module" and self.name in CONTAINERS:
            return join_all(self.items) if self.items else MODULE
        if self.tag in ("list", "dict") or (self.tag == "tuple" and self.name in ("*", "batch")):
            return self.items[0] if self.items else UNKNOWN
        if self.tag == "tuple" and self.items:
            return join_all(self.items)
        if self.tag == "str":
            return STR
        return UNKNOWN


UNKNOWN = Kind("unknown")
TENSOR = Kind("Tensor")
VARIABLE = Kind("Variable")
MODULE = Kind("Module")
INT, FLOAT, BOOL, STR, NONE, OTHER = (Kind(t) for t in ("int", "float", "bool", "str", "None", "other"))
SHAPE, DTYPE, DEVICE, NUMPY = (Kind(t) for t in ("shape", "dtype", "device", "numpy"))
NUMBERS = ("int", "float", "bool")
IN_STATE = "an item of a state_dict"  # the evidence for a tensor that is an array of NumPy after the rewrite
WRAPPERS = ("torch.nn.DataParallel", "torch.nn.parallel.DistributedDataParallel")
CONTAINERS = ("torch.nn.Sequential", "torch.nn.ModuleList", "torch.nn.ModuleDict")


def join(a: Kind, b: Kind) -> Kind:
    """The kind of a value that is `a` on one path and `b` on another."""
    if a == b:
        either = a if a.why or not b.why else b
        return replace(either, optional=True) if (a.optional or b.optional) and not either.optional else either
    if a.tag == "None":
        return replace(b, optional=True)
    if b.tag == "None":
        return replace(a, optional=True)
    if a.is_tensor and b.is_tensor:
        if a.name == b.name == "scalar":
            return a
        return replace(TENSOR, why=a.why or b.why, optional=a.optional or b.optional)
    if a.is_tensor and b.tag in NUMBERS:
        return TENSOR.because(a.why)
    if b.is_tensor and a.tag in NUMBERS:
        return TENSOR.because(b.why)
    if a.tag in NUMBERS and b.tag in NUMBERS:
        return FLOAT
    if {a.tag, b.tag} == {"shape", "tuple"}:
        return SHAPE
    if a.tag == b.tag == "Module":
        for wrapper, plain in ((a, b), (b, a)):  # wrapped where there are several devices: a call gives the same
            if wrapper.name in WRAPPERS and wrapper.items and _same_class(wrapper.items[0], plain):
                return wrapper
        if a.name in CONTAINERS and b.name in CONTAINERS:
            return Kind("Module", a.name, (MODULE,))
        return Kind("Module", why=a.why)
    if a.tag == b.tag == "torch" and a.name.startswith("torch.nn.init.") and b.name.startswith("torch.nn.init."):
        return Kind("torch", "torch.nn.init.*", why=a.why or b.why)
    if a.tag == b.tag == "torch":
        held = _either(a, b)
        types = any(k.name.rpartition(".")[2][:1].isupper() for k in held)
        return UNKNOWN if types else Kind("torch", "", held, why=a.why or b.why)
    if a.tag == b.tag == "Class":
        return Kind("Class", "", _either(a, b), why=a.why) if _of_modules(a) and _of_modules(b) else UNKNOWN
    if (_of_modules(a) or _of_modules(b)) and not (a.known and b.known):
        return Kind("Class", why=a.why or b.why)
    if a.tag == b.tag and a.tag in ("list", "dict"):
        return Kind(a.tag, "", (join_all([*a.items, *b.items]),) if a.items or b.items else ())
    if a.tag == b.tag == "tuple" and a.name == b.name and len(a.items) == len(b.items):
        return Kind("tuple", a.name, tuple(map(join, a.items, b.items)))
    return UNKNOWN


def _either(a: Kind, b: Kind) -> tuple[Kind, ...]:
    """The functions or classes of which a value may be any."""
    return tuple(dict.fromkeys([*(a.items or (a,)), *(b.items or (b,))]))


def _same_class(a: Kind, b: Kind) -> bool:
    return a.tag == b.tag and a.name == b.name and a.facts is b.facts and (a.name != "" or a.facts is not None)


def _of_modules(kind: Kind) -> bool:
    """Whether a class as a value is one of modules: a plain class of the project takes no rngs."""
    return kind.tag == "Class" and bool(getattr(kind.facts, "is_module", True))


def join_all(kinds: list[Kind] | tuple[Kind, ...]) -> Kind:
    result = kinds[0] if kinds else UNKNOWN
    for kind in kinds[1:]:
        result = join(result, kind)
    return result


_GIVES = {
    "Tensor": TENSOR,
    "int": INT,
    "float": FLOAT,
    "bool": BOOL,
    "str": STR,
    "None": NONE,
    "shape": SHAPE,
    "dtype": DTYPE,
    "device": DEVICE,
    "numpy": NUMPY,
    "other": OTHER,
    "unknown": UNKNOWN,
    "list": Kind("list", "", (TENSOR,)),
    "tuple": Kind("tuple", "*", (TENSOR,)),
    "pair": Kind("tuple", "pair", (TENSOR, TENSOR)),
    "dict": Kind("dict"),
    "Module": MODULE,
    "Generator": Kind("Generator"),
    "Loader": Kind("Loader"),
    "number": FLOAT,
    "scalar": FLOAT,
    "rnn": Kind("tuple", "", (TENSOR, TENSOR)),
    "lstm": Kind("tuple", "", (TENSOR, Kind("tuple", "", (TENSOR, TENSOR)))),
}


def kind_of_result(gives: str, receiver: Kind = UNKNOWN) -> Kind:
    """The kind that a row's `gives` or `calls` text stands for. "same": the receiver's own."""
    if gives == "same":
        return receiver
    return _GIVES.get(
        gives, Kind(gives) if gives in ("Optimizer", "Scheduler", "Distribution", "function") else UNKNOWN
    )


_TYPING = {
    "int": INT,
    "float": FLOAT,
    "bool": BOOL,
    "str": STR,
    "None": NONE,
    "bytes": OTHER,
    "list": Kind("list"),
    "dict": Kind("dict"),
    "tuple": UNKNOWN,
    "object": UNKNOWN,
    "complex": OTHER,
}
TYPED_TENSORS = frozenset(
    f"torch.{device}{numbers}Tensor"
    for device in ("", "cuda.")
    for numbers in "Float Double Half BFloat16 Long Int Short Char Byte Bool".split()  # noqa: SIM905
)


def kind_of_annotation(node: ast.expr | None, resolve: Callable[[ast.expr], str | None]) -> Kind:
    """What an annotation says; UNKNOWN when it says nothing that matters here."""
    if node is None:
        return UNKNOWN
    if isinstance(node, ast.Constant):
        if node.value is None:
            return NONE
        if isinstance(node.value, str):
            try:
                return kind_of_annotation(ast.parse(node.value, mode="eval").body, resolve)
            except SyntaxError:
                return UNKNOWN
        return UNKNOWN
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return join(kind_of_annotation(node.left, resolve), kind_of_annotation(node.right, resolve))
    if isinstance(node, ast.Subscript):
        return _generic(node, resolve)
    name = resolve(node) or (node.id if isinstance(node, ast.Name) else "")
    if name in {"torch.Tensor", *TYPED_TENSORS} or (isinstance(node, ast.Name) and node.id == name == "Tensor"):
        return TENSOR.because("annotated")
    if name == "torch.nn.Parameter":
        return VARIABLE.because("annotated")
    if name in ("torch.nn.Module", "torch.nn.Sequential", "torch.nn.ModuleList"):
        return Kind("Module", "" if name.endswith("Module") else name, why="annotated")
    if name == "torch.device":
        return DEVICE
    if name == "torch.dtype":
        return DTYPE
    if name == "torch.Size":
        return SHAPE
    if name.startswith("torch.optim.lr_scheduler."):
        return Kind("Scheduler", name)
    if name.startswith("torch.optim."):
        return Kind("Optimizer", "" if name.endswith(".Optimizer") else name)
    if name == "torch.utils.data.DataLoader":
        return Kind("Loader")
    if name.startswith("torch.distributions."):
        return Kind("Distribution")
    if name == "torch.Generator":
        return Kind("Generator")
    if name in ("numpy.ndarray",):
        return NUMPY
    return _TYPING.get(name.removeprefix("builtins."), UNKNOWN)


def _generic(node: ast.Subscript, resolve: Callable[[ast.expr], str | None]) -> Kind:
    head = (resolve(node.value) or (node.value.id if isinstance(node.value, ast.Name) else "")).rpartition(".")[2]
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    kinds = [kind_of_annotation(p, resolve) for p in parts if not (isinstance(p, ast.Constant) and p.value is ...)]
    if head == "Optional":
        return replace(kinds[0], optional=True)
    if head == "Union":
        return join_all(kinds)
    if head in ("List", "Sequence", "Iterable", "list", "Iterator"):
        return Kind("list", "", (kinds[0],))
    if head in ("Dict", "Mapping", "dict"):
        return Kind("dict", "", (kinds[-1],))
    if head in ("Tuple", "tuple"):
        return Kind("tuple", "*" if len(parts) > len(kinds) else "", tuple(kinds))
    if head in ("Annotated", "Final"):
        return kinds[0]
    if head == "Type":
        return UNKNOWN
    # jaxtyping and torchtyping: Float[Tensor, "b n d"]
    if head in ("Float", "Int", "Bool", "Integer", "Num", "Shaped", "TensorType") and kinds and kinds[0].is_tensor:
        return TENSOR.because("annotated")
    return UNKNOWN
