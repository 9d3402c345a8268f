"""Write the snapshot of torch's public names and signatures that converting reads instead of importing torch.

    python tools/snapshot_signatures.py            # needs the torch whose surface is wanted

Two files in migrate/rulebook, both the same bytes on every run with the same torch:

* `torch_names.json` (small and quick, for every conversion): `{"torch": version, "names": {module or class: {name: kind
  letter}}, "aliases": {other name: canonical name}, "exports": {module: [what a star import of it binds]}, "foreign":
  {module: {star-exported name: where it really comes from}}}`. Kind letters: f function, c class, m method, p property,
  k constant, M module.
* `torch_signatures.json.gz` (for the loader): `{"torch": version, "signatures": {name: {"kind": "function",
  "sig": [every overload, in torch's spelling, without types], "alias_of": canonical name}}}`; "sig" is absent where
  none is known, "alias_of" where the name is the canonical one.

Signatures come, in this order, from Python functions, from `typing.overload`, from the stubs that torch ships and from
the first lines of docstrings.
"""

from __future__ import annotations

import argparse
import ast
import gzip
import importlib
import inspect
import json
import pkgutil
import re
import textwrap
import types
import typing
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
NAMES = ROOT / "migrate" / "rulebook" / "torch_names.json"
SIGNATURES = ROOT / "migrate" / "rulebook" / "torch_signatures.json.gz"

# In order of preference: when one object has several public names of equal length, the earlier module names it.
MODULES = (
    "torch.nn.functional",
    "torch",
    "torch.nn",
    "torch.nn.init",
    "torch.nn.utils",
    "torch.nn.utils.rnn",
    "torch.nn.utils.parametrizations",
    "torch.nn.utils.parametrize",
    "torch.nn.utils.prune",
    "torch.nn.utils.stateless",
    "torch.nn.utils.fusion",
    "torch.nn.utils.clip_grad",
    "torch.nn.utils.convert_parameters",
    "torch.nn.parameter",
    "torch.nn.parallel",
    "torch.nn.attention",
    "torch.nn.attention.flex_attention",
    "torch.nn.attention.bias",
    "torch.nn.common_types",
    "torch.nn.grad",
    "torch.nn.modules",
    "torch.nn.modules.utils",
    "torch.nn.quantized",
    "torch.nn.qat",
    "torch.nn.intrinsic",
    "torch.optim",
    "torch.optim.lr_scheduler",
    "torch.optim.swa_utils",
    "torch.optim.optimizer",
    "torch.utils",
    "torch.utils.data",
    "torch.utils.data.dataset",
    "torch.utils.data.dataloader",
    "torch.utils.data.sampler",
    "torch.utils.data.distributed",
    "torch.utils.data._utils.collate",
    "torch.utils.checkpoint",
    "torch.utils.cpp_extension",
    "torch.utils.tensorboard",
    "torch.utils.dlpack",
    "torch.utils.hooks",
    "torch.utils.model_zoo",
    "torch.utils.benchmark",
    "torch.utils._pytree",
    "torch.linalg",
    "torch.fft",
    "torch.special",
    "torch.functional",
    "torch.random",
    "torch.sparse",
    "torch.signal",
    "torch.signal.windows",
    "torch.func",
    "torch.autograd",
    "torch.autograd.function",
    "torch.autograd.functional",
    "torch.autograd.forward_ad",
    "torch.autograd.graph",
    "torch.autograd.gradcheck",
    "torch.autograd.grad_mode",
    "torch.autograd.profiler",
    "torch.autograd.variable",
    "torch.cuda",
    "torch.cuda.amp",
    "torch.cuda.nvtx",
    "torch.cuda.random",
    "torch.cuda.memory",
    "torch.cuda.nccl",
    "torch.cuda.comm",
    "torch.amp",
    "torch.cpu",
    "torch.cpu.amp",
    "torch.mps",
    "torch.xpu",
    "torch.mtia",
    "torch.accelerator",
    "torch.backends",
    "torch.backends.cudnn",
    "torch.backends.cuda",
    "torch.backends.mps",
    "torch.backends.mkl",
    "torch.backends.mkldnn",
    "torch.backends.opt_einsum",
    "torch.backends.openmp",
    "torch.backends.cpu",
    "torch.backends.quantized",
    "torch.distributions",
    "torch.distributions.constraints",
    "torch.distributions.transforms",
    "torch.distributions.kl",
    "torch.distributions.utils",
    "torch.jit",
    "torch.compiler",
    "torch.export",
    "torch.onnx",
    "torch.fx",
    "torch.hub",
    "torch.library",
    "torch.overrides",
    "torch.package",
    "torch.profiler",
    "torch.multiprocessing",
    "torch.quantization",
    "torch.ao",
    "torch.ao.quantization",
    "torch.masked",
    "torch.nested",
    "torch.monitor",
    "torch.testing",
    "torch.types",
    "torch.return_types",
    "torch.serialization",
    "torch.storage",
    "torch.version",
    "torch.distributed",
    "torch.distributed.algorithms",
    "torch.distributed.optim",
    "torch.distributed.rpc",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    "torch.distributed.tensor.parallel",
    "torch.distributed.checkpoint",
    "torch.distributed.elastic",
    "torch.distributed.elastic.multiprocessing.errors",
    "torch.distributed.device_mesh",
    "torch.distributed.pipelining",
    "torch.distributed.nn",
    "torch.distributed.nn.functional",
    "torch.distributed.algorithms.join",
    "torch.distributed.algorithms._checkpoint.checkpoint_wrapper",
)
PACKAGES_WALKED = ("torch.nn.modules", "torch.distributions", "torch.optim")  # each of their files is a module of names
NAMES_ONLY = (
    "torch.distributed", "torch.fx", "torch.onnx", "torch.ao", "torch.quantization", "torch.testing", "torch.package",
    "torch.jit", "torch.export", "torch.mps", "torch.xpu", "torch.mtia", "torch.profiler", "torch.return_types",
    "torch.nn.quantized", "torch.nn.qat", "torch.nn.intrinsic", "torch.backends", "torch.multiprocessing",
)  # fmt: skip
CLASSES_WITH_MEMBERS = (
    "torch.Tensor", "torch.Generator", "torch.Size", "torch.dtype", "torch.device", "torch.finfo", "torch.iinfo",
    "torch.nn.Module", "torch.nn.Sequential", "torch.nn.ModuleList", "torch.nn.ModuleDict", "torch.nn.ParameterList",
    "torch.nn.ParameterDict", "torch.optim.Optimizer", "torch.optim.lr_scheduler.LRScheduler",
    "torch.optim.lr_scheduler.ReduceLROnPlateau", "torch.amp.GradScaler", "torch.nn.Transformer",
    "torch.nn.MultiheadAttention", "torch.nn.RNNBase", "torch.nn.Embedding", "torch.nn.EmbeddingBag",
    "torch.nn.utils.rnn.PackedSequence",
    "torch.utils.data.DataLoader", "torch.utils.data.Dataset", "torch.autograd.Function",
    "torch.cuda.Event", "torch.cuda.Stream", "torch.distributions.Distribution",
)  # fmt: skip
OPERATORS = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()  # noqa: SIM905
OTHER_DUNDERS = "eq ne lt le gt ge neg pos abs invert getitem setitem len iter contains bool int float array call"
DUNDERS = frozenset(
    f"__{name}__" for name in [*(p + o for o in OPERATORS for p in ("", "r", "i")), *OTHER_DUNDERS.split()]
)
PRIVATE = {  # names with an underscore that programs use all the same
    "torch.nn.init": ("_calculate_fan_in_and_fan_out", "_calculate_correct_fan", "_no_grad_trunc_normal_"),
    "torch.nn.modules.utils": ("_single", "_pair", "_triple", "_quadruple", "_ntuple", "_reverse_repeat_tuple"),
    "torch.nn.modules.batchnorm": ("_BatchNorm", "_NormBase"),
    "torch.nn.modules.instancenorm": ("_InstanceNorm",),
    "torch.nn.modules.conv": ("_ConvNd", "_ConvTransposeNd"),
    "torch.nn.modules.dropout": ("_DropoutNd",),
    "torch.nn.modules.loss": ("_Loss", "_WeightedLoss"),
    "torch.nn.modules.pooling": ("_MaxPoolNd", "_AvgPoolNd", "_AdaptiveAvgPoolNd", "_AdaptiveMaxPoolNd"),
    "torch.nn.functional": (
        "_Reduction",
        "_in_projection",
        "_in_projection_packed",
        "_canonical_mask",
        "_pad_circular",
    ),
    "torch.optim.lr_scheduler": ("_LRScheduler",),
}
KIND = typing.Literal["f", "c", "m", "p", "k", "M"]
KIND_WORDS = {"f": "function", "c": "class", "m": "method", "p": "property", "k": "constant", "M": "module"}


@dataclass
class Snapshot:
    """What was collected: kinds by canonical name, other names, star exports, signatures."""

    kinds: dict[str, KIND] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    exports: dict[str, list[str]] = field(default_factory=dict)
    foreign: dict[str, dict[str, str]] = field(default_factory=dict)
    signatures: dict[str, list[str]] = field(default_factory=dict)


# --- signatures ---------------------------------------------------------------------------------------------------


def literal(value: object) -> str:
    """`value` as Python source: a literal where there is one, else the dotted name that a reader would write."""
    if value is None or isinstance(
        value, bool | int | float | str | bytes | complex | torch.dtype | torch.layout | torch.memory_format
    ):
        return repr(value)
    if isinstance(value, tuple):
        return f"({', '.join(map(literal, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, dict) and not value:
        return "{}"
    if isinstance(value, types.ModuleType):
        return value.__name__
    if isinstance(value, torch.device):
        return f"torch.device({str(value)!r})"
    name = getattr(value, "__qualname__", None)
    return f"{value.__module__}.{name}" if name and "<" not in name else "..."


def from_parameters(parameters: Iterable[inspect.Parameter]) -> str:
    """The text between the parentheses of a `def`, without annotations."""
    parts: list[str] = []
    star = False
    previous: inspect.Parameter | None = None
    for p in parameters:
        if previous and previous.kind is p.POSITIONAL_ONLY and p.kind is not p.POSITIONAL_ONLY:
            parts.append("/")
        if p.kind is p.KEYWORD_ONLY and not star:
            parts.append("*")
            star = True
        if p.kind is p.VAR_POSITIONAL:
            star = True
        prefix = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        parts.append(prefix + p.name + ("" if p.default is p.empty else f"={literal(p.default)}"))
        previous = p
    return ", ".join(parts)


def from_ast(function: ast.FunctionDef) -> str:
    """The same for a `def` that was parsed."""
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    for argument in filter(None, every):
        argument.annotation = None
        if argument.arg.startswith("__"):  # the stubs' old spelling of "positional only"
            argument.arg = argument.arg.strip("_")
    return ast.unparse(arguments)


def stubs(path: str, within: str | None = None) -> dict[str, list[str]]:
    """Every `def` of a stub file (of the class `within`) by name, with all its overloads; properties have none."""
    tree: ast.Module | ast.ClassDef = ast.parse((Path(torch.__file__).parent / path).read_text(encoding="utf-8"))
    if within is not None:
        tree = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == within)
    found: dict[str, list[str]] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            if any(isinstance(d, ast.Name) and d.id == "property" for d in node.decorator_list):
                continue
            text = from_ast(node)
            if text not in found.setdefault(node.name, []):
                found[node.name].append(text)
    return found


def from_docstring(name: str, doc: str | None) -> list[str]:
    """The signatures that a docstring opens its lines with: `softmax(input, dim, *, dtype=None) -> Tensor`."""
    found: list[str] = []
    for match in re.finditer(rf"^[ ]*(?:[\w.]+\.)?{re.escape(name)}\(", doc or "", re.MULTILINE):
        depth, start = 1, match.end()
        end = start
        assert doc is not None
        while depth and end < len(doc):
            depth += {"(": 1, ")": -1}.get(doc[end], 0)
            end += 1
        if not doc[match.start() :].lstrip().startswith(name) and found:
            continue
        try:
            parsed = ast.parse(f"def f({' '.join(doc[start : end - 1].split())}): ...").body[0]
        except SyntaxError:
            continue
        if isinstance(parsed, ast.FunctionDef):
            text = from_ast(parsed)
            if text not in found and not re.match(r"\s*(#|>>>)", doc[match.start() :]):
                found.append(text)
    return found[:4]


OPEN = re.compile(r"\*args(, \*\*kwargs)?$")


@dataclass(frozen=True)
class Stubs:
    """The shipped stubs that speak of objects without a Python signature."""

    functions: dict[str, list[str]]
    functional: dict[str, list[str]]
    methods: dict[str, list[str]]

    @classmethod
    def read(cls) -> Stubs:
        native = stubs("_C/_nn.pyi")
        functional = native | stubs("nn/functional.pyi")
        methods = stubs("_C/__init__.pyi", "TensorBase")
        functions = stubs("_C/_VariableFunctions.pyi")
        module = stubs("_C/__init__.pyi")
        return cls({k: v for k, v in module.items() if not k.startswith("_")} | functions, functional, methods)

    def of_function(self, name: str) -> list[str]:
        holder, _, last = name.rpartition(".")
        if holder == "torch.nn.functional":
            return self.functional.get(last) or self.functions.get(last, [])
        return self.functions.get(last, []) if holder == "torch" else []


def python_signature(function: object) -> list[str]:
    """The signature of a function written in Python, all of them when it has overloads; [] for builtins."""
    inner = inspect.unwrap(function) if callable(function) else function
    if not isinstance(inner, types.FunctionType | types.MethodType):
        return []
    overloads = [] if isinstance(inner, types.MethodType) else typing.get_overloads(inner)
    texts = []
    for one in overloads or [inner]:
        try:
            texts.append(from_parameters(inspect.signature(one).parameters.values()))
        except (ValueError, TypeError):
            continue
    return list(dict.fromkeys(texts))


def function_signatures(name: str, value: object, known: Stubs) -> list[str]:
    """All forms of the function `name`, the best source first that knows more than `*args, **kwargs`."""
    documented = from_docstring(name.rpartition(".")[2], inspect.getdoc(value))
    return best_of(python_signature(value), known.of_function(name), documented)


def best_of(python: list[str], stub: list[str], documented: list[str]) -> list[str]:
    """Python's own word where it says something; else the stub's overloads, and the documented form beside them.

    The stubs leave some defaults out (`approximate=...`) and some names differ (`*size`, documented as `*shape`).
    """
    if python and not all(OPEN.search(s) for s in python):
        return python
    both = list(dict.fromkeys([*stub, *documented]))
    whole = [s for s in both if "=..." not in s]
    return whole or both or python


def method_signatures(owner: str, name: str, value: object, known: Stubs) -> list[str]:
    """All forms of a method, each with `self`."""
    stub = known.methods.get(name, []) if owner == "torch.Tensor" else []
    doc = ["self" + (", " + s if s else "") for s in from_docstring(name, inspect.getdoc(value))]
    return best_of(python_signature(value), stub, doc)


def class_signatures(cls: type) -> list[str]:
    """What a class is called with, without `self`."""
    if cls.__init__ is torch.nn.Module.__init__:
        return [""]
    found = python_signature(cls.__init__)
    if not found or all(OPEN.search(s) for s in found):
        found = python_signature(cls.__new__) or from_docstring(cls.__name__, inspect.getdoc(cls)) or found
    return [re.sub(r"^(self|cls)(, |$)", "", s) for s in found]


# --- names --------------------------------------------------------------------------------------------------------


def public_modules() -> Iterator[tuple[str, types.ModuleType]]:
    """The modules whose names count, those of MODULES first."""
    walked = [
        f"{package}.{info.name}"
        for package in PACKAGES_WALKED
        for info in sorted(pkgutil.iter_modules(importlib.import_module(package).__path__), key=lambda i: i.name)
        if not info.name.startswith("_")
    ]
    for name in dict.fromkeys([*MODULES, *walked]):
        try:
            module = importlib.import_module(name)
        except Exception as error:  # an optional dependency is missing: the names stay unknown, and we say so
            print(f"skipped {name}: {type(error).__name__}: {error}")
            continue
        yield name, module


def is_own(value: object) -> bool:
    """Whether a module's attribute is torch's and not `math`, `Optional` or another thing that it imported."""
    if isinstance(value, types.ModuleType):
        return value.__name__.split(".")[0] == "torch"
    home = getattr(value, "__module__", None)
    if isinstance(value, type) or callable(value):
        return not isinstance(home, str) or home.split(".")[0] in ("torch", "builtins", "functools")
    return True


def kind_of(value: object) -> KIND:
    if isinstance(value, types.ModuleType):
        return "M"
    if isinstance(value, type):
        return "c"
    return "f" if callable(value) else "k"


def has_identity(value: object) -> bool:
    """Whether two names of this object are names of one thing (True, 1 and "" are not)."""
    return isinstance(value, types.ModuleType | type | torch.dtype) or callable(value)


def identity(value: object) -> int:
    """`id` of the object itself: importing some modules makes dynamo wrap a few functions in one of their places."""
    return id(inspect.unwrap(value)) if isinstance(value, types.FunctionType) else id(value)


def star_names(module: types.ModuleType) -> list[str]:
    listed = getattr(module, "__all__", None)
    names = listed if listed is not None else [n for n in vars(module) if not n.startswith("_")]
    return sorted({n for n in names if hasattr(module, n)})


def public_names(module: types.ModuleType) -> list[str]:
    """What a reader may write after `module.`: its star exports and every other name without an underscore."""
    private = (n for n in PRIVATE.get(module.__name__, ()) if hasattr(module, n))
    return sorted({*star_names(module), *(n for n in vars(module) if not n.startswith("_")), *private})


def canonical_name(candidates: list[str], order: dict[str, int], value: object) -> str:
    """The name that people write: fewest dots, then its home, then the module that comes first; a dtype's own name.

    `torch.nn.functional` comes before `torch` for the builtins that both have (`conv2d`): torch documents them there.
    """
    if isinstance(value, torch.dtype):
        return str(value)

    def rank(name: str) -> tuple[int, bool, bool, int, str]:
        holder = name.rpartition(".")[0]
        away = getattr(value, "__module__", None) != holder
        renamed = getattr(value, "__name__", None) != name.rpartition(".")[2]
        builtin = isinstance(value, types.BuiltinFunctionType)
        functional = holder == "torch.nn.functional" and builtin and not name.endswith("_")
        return (0 if functional else name.count("."), renamed, away, order.get(holder, 999), name)

    return min(candidates, key=rank)


def collect() -> Snapshot:
    """Every public name of the installed torch."""
    shot = Snapshot()
    known = Stubs.read()
    modules = dict(public_modules())
    order = {name: n for n, name in enumerate(modules)}
    places: dict[int, list[str]] = {}
    objects: dict[str, object] = {}
    for name, module in modules.items():
        objects[name] = module
        places.setdefault(identity(module), []).append(name)
        shot.exports[name] = star_names(module)
        for attribute in public_names(module):
            value = getattr(module, attribute)
            if isinstance(value, types.ModuleType) and value.__name__ not in modules and is_own(value):
                continue
            if not is_own(value):
                if attribute in shot.exports[name]:
                    origin = (
                        getattr(value, "__name__", attribute)
                        if isinstance(value, types.ModuleType)
                        else f"{value.__module__}.{attribute}"
                    )
                    shot.foreign.setdefault(name, {})[attribute] = origin
                continue
            objects[f"{name}.{attribute}"] = value
            if has_identity(value):
                places.setdefault(identity(value), []).append(f"{name}.{attribute}")
    for name, value in objects.items():
        best = canonical_name(places[identity(value)], order, value) if has_identity(value) else name
        if isinstance(value, types.ModuleType):
            best = value.__name__ if value.__name__ in modules else best
        if best != name:
            shot.aliases[name] = best
        shot.kinds.setdefault(best, kind_of(value))
    for name in [n for n, k in shot.kinds.items() if k in "fc"]:
        value = objects[name]
        if not name.startswith(NAMES_ONLY):
            shot.signatures[name] = (
                class_signatures(value) if isinstance(value, type) else function_signatures(name, value, known)
            )
    members(shot, known)
    overlay(shot)
    return shot


def members(shot: Snapshot, known: Stubs) -> None:
    """Methods and properties of the classes whose members people call."""
    distributions = sorted(
        n for n, k in shot.kinds.items() if k == "c" and n.startswith("torch.distributions.") and n.count(".") == 2
    )
    for owner in dict.fromkeys([*CLASSES_WITH_MEMBERS, *distributions]):
        holder, _, last = owner.rpartition(".")
        cls = getattr(importlib.import_module(holder), last)
        for name in dir(cls):
            if name.startswith("_") and name not in DUNDERS:
                continue
            value = inspect.getattr_static(cls, name)
            if getattr(value, "__objclass__", None) is object or value is inspect.getattr_static(object, name, None):
                continue
            plain = value.__func__ if isinstance(value, staticmethod | classmethod) else value
            shot.kinds[f"{owner}.{name}"] = "m" if callable(plain) else "p"
            if callable(plain) and not name.startswith("__"):
                if found := method_signatures(owner, name, plain, known):
                    shot.signatures[f"{owner}.{name}"] = found


def overlay(shot: Snapshot) -> None:
    """Signatures of C classes, from the stub's `__new__` or `__init__`; torch documents no other."""
    for name in ("device", "Size", "Generator", "finfo", "iinfo"):
        found = stubs("_C/__init__.pyi", name)
        forms = found.get("__init__") or found.get("__new__") or []
        if forms:
            shot.signatures[f"torch.{name}"] = [re.sub(r"^(self|cls)(, /)?(, |$)", "", s) for s in forms]


# --- writing ------------------------------------------------------------------------------------------------------


def nested(kinds: dict[str, KIND]) -> dict[str, dict[str, KIND]]:
    """`{"torch.nn": {"Linear": "c"}}`: a third of the size of full names."""
    grouped: dict[str, dict[str, KIND]] = {}
    for name in sorted(kinds):
        holder, _, last = name.rpartition(".")
        grouped.setdefault(holder, {})[last] = kinds[name]
    return grouped


def entries(shot: Snapshot) -> dict[str, dict[str, object]]:
    """Each name, aliases too, with its kind and signatures."""
    found: dict[str, dict[str, object]] = {}
    for name in sorted({*shot.kinds, *shot.aliases}):
        canonical = shot.aliases.get(name, name)
        entry: dict[str, object] = {"kind": KIND_WORDS[shot.kinds[canonical]]}
        if forms := shot.signatures.get(canonical):
            entry["sig"] = forms
        found[name] = entry | ({"alias_of": canonical} if canonical != name else {})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=textwrap.dedent(__doc__ or "").split("\n")[0])
    parser.parse_args()
    warnings.simplefilter("ignore")
    shot = collect()
    version = torch.__version__.partition("+")[0]
    names = {
        "torch": version,
        "names": nested(shot.kinds),
        "aliases": dict(sorted(shot.aliases.items())),
        "exports": dict(sorted(shot.exports.items())),
        "foreign": dict(sorted((k, dict(sorted(v.items()))) for k, v in shot.foreign.items())),
    }
    compact = (",", ":")
    NAMES.write_text(json.dumps(names, separators=compact) + "\n", encoding="utf-8")
    signatures = {"torch": version, "signatures": entries(shot)}
    SIGNATURES.write_bytes(gzip.compress(json.dumps(signatures, separators=compact).encode(), 9, mtime=0))
    print(f"{len(shot.kinds)} names, {len(shot.aliases)} aliases, {len(shot.signatures)} with signatures")


if __name__ == "__main__":
    main()
