"""The kind of an expression, from the kinds of its parts."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ..rulebook.rows import Row
from .facts import ClassFacts, FunctionFacts
from .kinds import (
    BOOL,
    CONTAINERS,
    DEVICE,
    DTYPE,
    FLOAT,
    INT,
    MODULE,
    NONE,
    NUMBERS,
    NUMPY,
    OTHER,
    SHAPE,
    STR,
    TENSOR,
    UNKNOWN,
    VARIABLE,
    Kind,
    join,
    join_all,
    kind_of_result,
)
from .scopes import COMPREHENSIONS
from .tensor_only import shows_tensor
from .unit import STANDARD_LIBRARY

if TYPE_CHECKING:
    from .infer import Flow

Env = dict[str, Kind]

_BUILTIN_CALLS: Mapping[str, Kind] = {
    "int": INT,
    "len": INT,
    "float": FLOAT,
    "bool": BOOL,
    "str": STR,
    "repr": STR,
    "isinstance": BOOL,
    "callable": BOOL,
    "hasattr": BOOL,
    "round": FLOAT,
    "print": NONE,
    "range": Kind("list", "", (INT,)),
    "id": INT,
    "open": OTHER,
    "dict": Kind("dict"),
    "set": OTHER,
    "input": STR,
    "format": STR,
    "type": OTHER,
    "issubclass": BOOL,
    "any": BOOL,
    "all": BOOL,
    "ord": INT,
    "chr": STR,
    "hash": INT,
    "vars": Kind("dict"),
    "slice": OTHER,
    "object": OTHER,
    "bytes": OTHER,
}
_TENSOR_ATTRIBUTES: Mapping[str, Kind] = {
    "shape": SHAPE,
    "dtype": DTYPE,
    "device": Kind("device", "tensor"),
    "ndim": INT,
    "is_cuda": BOOL,
    "requires_grad": BOOL,
    "itemsize": INT,
    "nbytes": INT,
    "layout": OTHER,
    "is_leaf": BOOL,
    "grad_fn": OTHER,
    "names": UNKNOWN,
}
_STR_METHODS = {
    "split": Kind("list", "", (STR,)),
    "encode": OTHER,
    "index": INT,
    "find": INT,
    "startswith": BOOL,
    "endswith": BOOL,
    "count": INT,
    "splitlines": Kind("list", "", (STR,)),
    "isdigit": BOOL,
}


class Evaluator:
    """Evaluates expressions of one function or module body against an environment, recording each kind."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.unit = flow.unit

    def __call__(self, node: ast.expr, env: Env) -> Kind:
        method = getattr(self, f"_{type(node).__name__}", None)
        kind: Kind = method(node, env) if method else self._children(node, env)
        self.unit.kinds[node] = kind
        return kind

    def _children(self, node: ast.expr, env: Env) -> Kind:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self(child, env)
        return UNKNOWN

    def _Constant(self, node: ast.Constant, env: Env) -> Kind:
        value = node.value
        if value is None:
            return NONE
        if isinstance(value, bool):
            return BOOL
        return {int: INT, float: FLOAT, str: STR}.get(type(value), OTHER)

    def _JoinedStr(self, node: ast.JoinedStr, env: Env) -> Kind:
        for value in node.values:
            if isinstance(value, ast.FormattedValue):
                self(value.value, env)
                if value.format_spec is not None:
                    self(value.format_spec, env)
        return STR

    def _Name(self, node: ast.Name, env: Env) -> Kind:
        if node.id in env:
            kind = env[node.id]
            return kind if kind.known else self.flow.by_use(node.id, kind)
        dotted = self.unit.resolve(node)
        if dotted:
            return self._dotted(dotted)
        own = self.unit.local(node)
        if isinstance(own, ClassFacts):
            return Kind("Class", facts=own)
        if isinstance(own, FunctionFacts):
            return Kind("Function", facts=own)
        kind = self.flow.captured(node)
        return kind if kind.known else self.flow.by_use(node.id, kind)

    def _dotted(self, dotted: str) -> Kind:
        found = self.flow.project.find(dotted)
        if isinstance(found, ClassFacts):
            return Kind("Class", facts=found)
        if isinstance(found, FunctionFacts):
            return Kind("Function", facts=found)
        if not dotted.startswith("torch."):
            return Kind("other", dotted) if dotted.partition(".")[0] in STANDARD_LIBRARY else UNKNOWN
        row = self.unit.book.find(dotted)
        if row is None:
            return UNKNOWN
        if (row.get("layer") and row.short[0].isupper()) or dotted in (*CONTAINERS, "torch.nn.Module"):
            return Kind("Class", dotted)
        if row.get("const") or row.get("property"):
            return kind_of_result(str(row.get("gives", "dtype" if self._is_dtype(row) else "other")))
        return Kind("torch", dotted)

    def _is_dtype(self, row: Row) -> bool:
        return bool(row.options) and row.options[0].template.text.startswith("jnp.")

    def _Attribute(self, node: ast.Attribute, env: Env) -> Kind:
        dotted = self.unit.resolve(node)
        if dotted and not dotted.startswith("builtins."):
            return self._dotted(dotted)
        base = self(node.value, env)
        narrowed = env.get(ast.unparse(node)) if base.tag in ("Module", "unknown") else None
        if narrowed is not None:
            return narrowed
        return self.attribute(base, node.attr)

    def attribute(self, base: Kind, name: str) -> Kind:
        """The kind of `base.name` (not called)."""
        if base.is_tensor:
            if name in _TENSOR_ATTRIBUTES:
                return _TENSOR_ATTRIBUTES[name]
            return TENSOR if name in ("T", "mT", "H", "mH", "data", "grad", "real", "imag") else UNKNOWN
        if base.tag == "tuple" and base.name == "pair" and name in ("values", "indices"):
            return TENSOR
        if base.tag == "Module":
            return self._module_attribute(base, name)
        if base.tag == "numpy":
            return {"shape": Kind("tuple", "*", (INT,)), "ndim": INT, "size": INT, "T": NUMPY}.get(name, UNKNOWN)
        if base.tag == "unknown" and name in ("shape", "ndim"):
            return SHAPE if name == "shape" else INT
        if base.tag == "device":
            return {"type": STR, "index": INT}.get(name, UNKNOWN)
        if base.tag == "Class" and isinstance(base.facts, ClassFacts):
            found = base.facts.attribute(name)
            return found or UNKNOWN
        return UNKNOWN

    def _module_attribute(self, base: Kind, name: str) -> Kind:
        if name == "training":
            return BOOL
        if name in base.keys:
            return base.items[base.keys.index(name)]
        if isinstance(base.facts, ClassFacts):
            lineage = base.facts.lineage()[1:] if base.name == "super" else base.facts.lineage()
            found = base.facts.attribute(name)
            if found is not None:
                return found
            method = next((c.methods[name] for c in lineage if name in c.methods), None)
            if method is not None:
                return Kind("Function", facts=method)
        row = self.unit.book.find(base.name or (base.facts.layer_base if isinstance(base.facts, ClassFacts) else ""))
        if row is not None:
            if name in (*row.get("params", ()), *row.get("buffers", ())):
                return VARIABLE.because(f"{name} of {row.name}")
            if name in (
                "in_features",
                "out_features",
                "in_channels",
                "out_channels",
                "num_features",
                "embed_dim",
                "num_heads",
                "hidden_size",
                "input_size",
                "num_embeddings",
                "embedding_dim",
                "groups",
                "num_layers",
            ):
                return INT
        return UNKNOWN

    def _Subscript(self, node: ast.Subscript, env: Env) -> Kind:
        base = self(node.value, env)
        self(node.slice, env)
        whole = isinstance(node.slice, ast.Slice)
        if base.tag == "shape":
            return SHAPE if whole else INT
        if base.is_tensor:
            return TENSOR.because(base.why)
        if base.tag == "tuple" and base.items and base.name not in ("*", "batch"):
            return self._tuple_item(base, node.slice)
        if whole and base.tag in ("list", "tuple", "str", "numpy"):
            return base
        if base.tag == "Module" and base.name in CONTAINERS:
            return replace(base, items=(base.element(),)) if whole else self._tuple_item(base, node.slice)
        if base.tag == "numpy":
            return NUMPY
        return base.element()

    def _tuple_item(self, base: Kind, index: ast.expr) -> Kind:
        if base.keys:
            key = index.value if isinstance(index, ast.Constant) else None
            return base.items[base.keys.index(key)] if isinstance(key, str) and key in base.keys else base.element()
        if isinstance(index, ast.Slice):
            low, high = (
                b.value if isinstance(b, ast.Constant) and isinstance(b.value, int) else None
                for b in (index.lower, index.upper)
            )
            return replace(base, items=base.items[low:high], name="")
        if isinstance(index, ast.UnaryOp) and isinstance(index.operand, ast.Constant):
            value = -index.operand.value if isinstance(index.operand.value, int) else None
        else:
            value = index.value if isinstance(index, ast.Constant) and isinstance(index.value, int) else None
        if value is not None and -len(base.items) <= value < len(base.items):
            return base.items[value]
        return join_all(base.items)

    def _Slice(self, node: ast.Slice, env: Env) -> Kind:
        self._children(node, env)
        return OTHER

    def _Starred(self, node: ast.Starred, env: Env) -> Kind:
        return self(node.value, env)

    def _Tuple(self, node: ast.Tuple, env: Env) -> Kind:
        items: list[Kind] = []
        for elt in node.elts:
            kind = self(elt, env)
            if isinstance(elt, ast.Starred):
                if kind.tag == "tuple" and kind.items and kind.name not in ("*", "batch"):
                    items += kind.items
                    continue
                rest = [self(e, env) for e in node.elts if e is not elt]
                return Kind("tuple", "*", (join_all([kind.element(), *rest]),))
            items.append(kind)
        return Kind("tuple", "", tuple(items))

    def _List(self, node: ast.List, env: Env) -> Kind:
        kinds = [self(e, env).element() if isinstance(e, ast.Starred) else self(e, env) for e in node.elts]
        return Kind("list", "", (join_all(kinds),)) if kinds else Kind("list")

    def _Set(self, node: ast.Set, env: Env) -> Kind:
        self._children(node, env)
        return OTHER

    def _Dict(self, node: ast.Dict, env: Env) -> Kind:
        for key in node.keys:
            if key is not None:
                self(key, env)
        kinds = [self(v, env) for v in node.values]
        return Kind("dict", "", (join_all(kinds),)) if kinds else Kind("dict")

    def _comprehension(self, node: ast.expr, env: Env) -> Env:
        inner = dict(env)
        for generator in node.generators:  # type: ignore[attr-defined]
            self.flow.assign(generator.target, self.flow.iterate(generator.iter, inner), inner)
            for test in generator.ifs:
                self(test, inner)
        return inner

    def _ListComp(self, node: ast.ListComp, env: Env) -> Kind:
        return Kind("list", "", (self(node.elt, self._comprehension(node, env)),))

    def _GeneratorExp(self, node: ast.GeneratorExp, env: Env) -> Kind:
        return Kind("list", "", (self(node.elt, self._comprehension(node, env)),))

    def _SetComp(self, node: ast.SetComp, env: Env) -> Kind:
        self(node.elt, self._comprehension(node, env))
        return OTHER

    def _DictComp(self, node: ast.DictComp, env: Env) -> Kind:
        inner = self._comprehension(node, env)
        self(node.key, inner)
        return Kind("dict", "", (self(node.value, inner),))

    def _BinOp(self, node: ast.BinOp, env: Env) -> Kind:
        left, right = self(node.left, env), self(node.right, env)
        if left.is_tensor or right.is_tensor:
            if all(k.name == "scalar" or k.tag in NUMBERS for k in (left, right)):
                return left if left.is_tensor else right
            return TENSOR.because(left.why or right.why)
        if isinstance(node.op, ast.Add) and left.tag == right.tag == "tuple" and "*" not in (left.name, right.name):
            return Kind("tuple", "", (*left.items, *right.items))
        if left.tag in NUMBERS and right.tag in NUMBERS:
            if isinstance(node.op, ast.Div) or FLOAT in (left, right):
                return FLOAT
            return INT
        if left.tag == "str" or (right.tag == "str" and isinstance(node.op, ast.Add)):
            return STR
        if isinstance(node.op, (ast.Add, ast.Mult)) and (left.tag in ("list", "shape") or right.tag in ("list",)):
            return join(left, right) if left.tag == right.tag else left if left.tag in ("list", "shape") else right
        if left.tag == "numpy" or right.tag == "numpy":
            return NUMPY
        return UNKNOWN

    def _UnaryOp(self, node: ast.UnaryOp, env: Env) -> Kind:
        kind = self(node.operand, env)
        if isinstance(node.op, ast.Not):
            return BOOL
        return TENSOR.because(kind.why) if kind.is_tensor else kind

    def _Compare(self, node: ast.Compare, env: Env) -> Kind:
        kinds = [self(node.left, env), *(self(c, env) for c in node.comparators)]
        if any(isinstance(op, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for op in node.ops):
            return BOOL
        if any(k.is_tensor for k in kinds):
            return TENSOR.because("comparison with a tensor")
        return NUMPY if any(k.tag == "numpy" for k in kinds) else UNKNOWN if any(not k.known for k in kinds) else BOOL

    def _BoolOp(self, node: ast.BoolOp, env: Env) -> Kind:
        inner, kinds = dict(env), []
        for value in node.values:
            kinds.append(self(value, inner))
            if isinstance(node.op, ast.And):
                self.flow.narrow(value, inner, True)
            else:
                self.flow.narrow(value, inner, False)
        return join_all(kinds)

    def _IfExp(self, node: ast.IfExp, env: Env) -> Kind:
        self(node.test, env)
        yes, no = dict(env), dict(env)
        self.flow.narrow(node.test, yes, True)
        self.flow.narrow(node.test, no, False)
        return join(self(node.body, yes), self(node.orelse, no))

    def _NamedExpr(self, node: ast.NamedExpr, env: Env) -> Kind:
        kind = self(node.value, env)
        env[node.target.id] = kind
        self.unit.kinds[node.target] = kind
        return kind

    def _Lambda(self, node: ast.Lambda, env: Env) -> Kind:
        inner = dict(env)
        for arg in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]:
            inner[arg.arg] = self.flow.lambda_param(node, arg.arg)
        self(node.body, inner)
        for default in [*node.args.defaults, *node.args.kw_defaults]:
            if default is not None:
                self(default, env)
        return Kind("Function")

    def _Await(self, node: ast.Await, env: Env) -> Kind:
        return self(node.value, env)

    def _Call(self, node: ast.Call, env: Env) -> Kind:
        func = self(node.func, env)
        self._prepare_lambda(node, env)
        args = [self(a, env) for a in node.args]
        keywords = {k.arg or "**": self(k.value, env) for k in node.keywords}
        dotted = self.unit.resolve(node.func)
        if dotted and dotted.startswith("builtins."):
            return self._builtin(dotted[9:], node, args, env)
        if isinstance(func.facts, FunctionFacts):
            return self.flow.call(func.facts, node, args, keywords)
        if func.tag == "Class":
            return self._construct(func, node, args, keywords)
        if dotted:
            return self._imported(dotted, node, args)
        if isinstance(node.func, ast.Attribute):
            return self._method(self.unit.kind(node.func.value), node.func.attr, node, args, keywords)
        if func.tag == "Module":
            return self._call_module(func, node, args, keywords)
        if func.tag == "torch":
            row = self.unit.book.find(func.name)
            return kind_of_result(row.gives) if row is not None else UNKNOWN
        return UNKNOWN

    def _prepare_lambda(self, node: ast.Call, env: Env) -> None:
        """`map(lambda t: …, xs)`: the lambda's parameter is an element of `xs`."""
        if (
            len(node.args) >= 2
            and isinstance(node.args[0], ast.Lambda)
            and isinstance(node.func, ast.Name)
            and node.func.id == "map"
        ):
            kinds = [self(a, env).element() for a in node.args[1:]]
            names = [a.arg for a in node.args[0].args.args]
            self.flow.lambda_kinds[node.args[0]] = dict(zip(names, kinds, strict=False))

    def _builtin(self, name: str, node: ast.Call, args: list[Kind], env: Env) -> Kind:
        if name in _BUILTIN_CALLS:
            return _BUILTIN_CALLS[name]
        if name in ("list", "tuple", "sorted", "reversed", "iter", "set") and args:
            return Kind("list", "", (args[0].element(),)) if args[0].element().known else Kind("list")
        if name in ("list", "tuple"):
            return Kind("list")
        if name in ("sum", "max", "min", "abs", "next", "pow", "divmod"):
            if args and args[0].is_tensor:
                return TENSOR
            kinds = [args[0].element()] if len(args) == 1 and name != "abs" else args
            return join_all(kinds) if kinds else UNKNOWN
        if name == "super":
            cls = self.unit.tree.class_of(node)
            facts = self.unit.classes.get(cls) if cls else None
            return Kind("Module", "super", facts=facts) if facts and facts.is_module else UNKNOWN
        if name == "map" and len(node.args) >= 2:
            return Kind("list", "", (self._mapped(node),))
        if name in ("zip", "enumerate", "filter"):
            return UNKNOWN
        return UNKNOWN

    def _mapped(self, node: ast.Call) -> Kind:
        """What `map(f, …)` yields."""
        fn = node.args[0]
        if isinstance(fn, ast.Lambda):
            return self.unit.kind(fn.body)
        kind = self.unit.kind(fn)
        if isinstance(kind.facts, FunctionFacts):
            for arg, name in zip(node.args[1:], kind.facts.node.args.args, strict=False):
                kind.facts.saw(name.arg, self.unit.kind(arg).element(), self.unit)
            return kind.facts.returns
        if kind.tag == "Module":
            return self._call_module(kind, node, [], {})
        return _BUILTIN_CALLS.get(fn.id, UNKNOWN) if isinstance(fn, ast.Name) else UNKNOWN

    def _imported(self, dotted: str, node: ast.Call, args: list[Kind]) -> Kind:
        if dotted.startswith(("numpy.", "jax.")):  # an array, and no tensor of torch
            return NUMPY
        if dotted in ("einops.rearrange", "einops.repeat", "einops.reduce", "einops.einsum"):
            return args[0] if args and args[0].tag == "numpy" else TENSOR.because("einops result")
        if dotted in ("einops.pack",):
            return Kind("tuple", "", (TENSOR, Kind("list")))
        if dotted == "einops.unpack":
            return Kind("list", "", (TENSOR,))
        if dotted == "copy.deepcopy" and args:
            return args[0]
        if dotted == "functools.partial" and args and args[0].tag in ("Class", "torch", "Function"):
            return replace(args[0], why="partial")
        if not dotted.startswith("torch."):
            return OTHER if dotted.partition(".")[0] in STANDARD_LIBRARY else UNKNOWN
        row = self.unit.book.find(dotted)
        if dotted.startswith("torch.optim.lr_scheduler."):
            return Kind("Scheduler", dotted)
        if dotted.startswith("torch.optim."):
            return Kind("Optimizer", dotted)
        if dotted in ("torch.nn.Parameter", "torch.nn.Buffer"):
            return VARIABLE.because("a parameter" if dotted.endswith("Parameter") else "register_buffer")
        if row is None:
            return UNKNOWN
        if row.get("gives") in ("same", "input") and args:
            return args[0]
        if dotted in ("torch.utils.data.DataLoader",):
            return Kind("Loader")
        return self.flow.refine(dotted, node, kind_of_result(row.gives))

    def _construct(self, cls: Kind, node: ast.Call, args: list[Kind], keywords: dict[str, Kind]) -> Kind:
        if isinstance(cls.facts, ClassFacts):
            init = cls.facts.method("__init__")
            if init is not None:
                self.flow.record_arguments(init, node, args, keywords)
            if cls.facts.is_module:
                return Kind("Module", cls.facts.layer_base, facts=cls.facts, why="constructed")
            return Kind("Module", "plain", facts=cls.facts) if cls.facts.attributes or cls.facts.methods else OTHER
        if cls.name in CONTAINERS:
            keys, members = self._keyed_members(node) if cls.name == "torch.nn.ModuleDict" else ((), ())
            return Kind(
                "Module", cls.name, members or self._members(cls.name, node, args), keys=keys, why="constructed"
            )
        return Kind("Module", cls.name, why="constructed")

    def _keyed_members(self, node: ast.Call) -> tuple[tuple[str, ...], tuple[Kind, ...]]:
        """Names and kinds of `ModuleDict({"a": …})` and `ModuleDict(dict(a=…))`; nothing when a key is no literal."""
        given = node.args[0] if len(node.args) == 1 else None
        pairs: list[tuple[str, ast.expr]] = []
        if isinstance(given, ast.Dict):
            pairs = [
                (k.value, v)
                for k, v in zip(given.keys, given.values, strict=True)
                if isinstance(k, ast.Constant) and isinstance(k.value, str)
            ]
            complete = len(pairs) == len(given.keys)
        elif isinstance(given, ast.Call) and self.unit.resolve(given.func) == "builtins.dict" and not given.args:
            pairs = [(k.arg, k.value) for k in given.keywords if k.arg]
            complete = len(pairs) == len(given.keywords)
        else:
            return (), ()
        if not complete or not pairs:
            return (), ()
        return tuple(k for k, _ in pairs), tuple(self.unit.kind(v) for _, v in pairs)

    def _members(self, container: str, node: ast.Call, args: list[Kind]) -> tuple[Kind, ...]:
        if not args:
            return (MODULE,)
        if (
            container == "torch.nn.ModuleList"
            or isinstance(node.args[0], ast.Starred)
            or args[0].tag in ("dict", "list")
        ):
            kind = args[0].element()
            return (kind if kind.tag in ("Module", "list") else MODULE,)
        if any(isinstance(a, ast.Starred) for a in node.args):
            return (MODULE,)
        return tuple(a if a.known else MODULE for a in args)

    def _call_module(self, module: Kind, node: ast.Call, args: list[Kind], keywords: dict[str, Kind]) -> Kind:
        if isinstance(module.facts, ClassFacts):
            forward = module.facts.method("forward") or module.facts.method("__call__")
            if forward is not None:
                return self.flow.call(forward, node, args, keywords)
        row = self.unit.book.find(module.name)
        if row is not None and row.get("calls"):
            return kind_of_result(str(row.get("calls")), args[0] if args else UNKNOWN)
        if module.name == "torch.nn.Sequential":
            return TENSOR.because("result of a Sequential")
        return UNKNOWN

    def _method(self, base: Kind, name: str, node: ast.Call, args: list[Kind], keywords: dict[str, Kind]) -> Kind:
        if base.is_tensor:
            row = self.unit.book.find(f"torch.Tensor.{name}")
            if row is None:
                return UNKNOWN
            return self.flow.refine(f"torch.Tensor.{name}", node, kind_of_result(row.gives, TENSOR))
        if base.tag == "Module":
            return self._module_method(base, name, node, args, keywords)
        if base.tag == "str":
            return _STR_METHODS.get(name, STR)
        if base.tag == "dict" and base.items and name in ("get", "pop", "setdefault"):
            return base.items[0]
        if base.tag == "dict" and base.items and name == "values":
            return Kind("list", "", base.items)
        if base.tag == "list" and name == "pop":
            return base.element()
        if base.tag == "numpy":
            return NUMPY
        if base.tag == "Generator":
            return base if name == "manual_seed" else UNKNOWN
        if base.tag == "unknown" and shows_tensor(node, self.unit.book):
            row = self.unit.book.find(f"torch.Tensor.{name}")
            return kind_of_result(row.gives, TENSOR) if row is not None else UNKNOWN
        return UNKNOWN

    def _module_method(
        self, base: Kind, name: str, node: ast.Call, args: list[Kind], keywords: dict[str, Kind]
    ) -> Kind:
        if isinstance(base.facts, ClassFacts):
            own = base.facts.method(name)
            if own is not None:
                return self.flow.call(own, node, args, keywords)
            held = base.facts.attribute(name)
            if held is not None:
                return self._call_module(held, node, args, keywords) if held.tag == "Module" else UNKNOWN
        if name in (
            "train",
            "eval",
            "to",
            "cuda",
            "cpu",
            "half",
            "float",
            "double",
            "apply",
            "requires_grad_",
            "bfloat16",
        ):
            return base
        if name in ("parameters", "buffers"):
            return Kind("list", "", (VARIABLE,))
        if name in ("named_parameters", "named_buffers"):
            return Kind("list", "", (Kind("tuple", "", (STR, VARIABLE)),))
        if name in ("modules", "children"):
            return Kind("list", "", (MODULE,))
        if name in ("named_modules", "named_children"):
            return Kind("list", "", (Kind("tuple", "", (STR, MODULE)),))
        if name in ("state_dict",):
            return Kind("dict", "", (TENSOR,))
        if name == "forward":
            return self._call_module(base, node, args, keywords)
        if base.name == "torch.nn.ModuleDict":
            if name == "values":
                return Kind("list", "", base.items or (MODULE,))
            if name == "items":
                return Kind("list", "", (Kind("tuple", "", (STR, base.element())),))
            if name == "keys":
                return Kind("list", "", (STR,))
        if base.name == "super" and isinstance(base.facts, ClassFacts):
            for parent in base.facts.lineage()[1:]:
                if name in parent.methods:
                    return self.flow.call(parent.methods[name], node, args, keywords)
        return UNKNOWN


__all__ = ["COMPREHENSIONS", "DEVICE", "Env", "Evaluator"]
