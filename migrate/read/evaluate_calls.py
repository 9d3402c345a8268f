"""The kind of a call's result: builtins, torch, the project's own classes and functions, methods."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from .chosen import ANY_FUNCTION, looked_up
from .facts import ClassFacts, FunctionFacts
from .kinds import (
    BOOL,
    CONTAINERS,
    FLOAT,
    IN_STATE,
    INT,
    MODULE,
    NONE,
    NUMPY,
    OTHER,
    STR,
    TENSOR,
    UNKNOWN,
    VARIABLE,
    WRAPPERS,
    Kind,
    join_all,
    kind_of_result,
)
from .taken import taken
from .tensor_only import may_show_tensor, shows_tensor
from .unit import STANDARD_LIBRARY, Unit

if TYPE_CHECKING:
    from .flow import Flow

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


class Calls:
    """The part of the evaluator that knows calls. `flow` is the walk that asks."""

    flow: Flow
    unit: Unit

    def __call__(self, node: ast.expr, env: Env) -> Kind:
        raise NotImplementedError

    def _dotted(self, dotted: str) -> Kind:
        raise NotImplementedError

    def _Call(self, node: ast.Call, env: Env) -> Kind:
        func = self(node.func, env)
        self._prepare_lambda(node, env)
        args = [self(a, env) for a in node.args]
        keywords = {k.arg or "**": self(k.value, env) for k in node.keywords}
        dotted = self.unit.resolve(node.func)
        self._prove_arguments(node, func, dotted or "", env)
        if dotted and dotted.startswith("builtins."):
            return self._builtin(dotted[9:], node, args, env)
        if isinstance(func.facts, FunctionFacts):
            return self.flow.call(func.facts, node, args, keywords)
        if func.tag == "Autograd" and isinstance(func.facts, ClassFacts):
            return self.flow.apply(func.facts, node, args)
        if func.tag == "Class":
            return self._construct(func, node, args, keywords)
        if dotted:
            return self._imported(dotted, node, args)
        if isinstance(node.func, ast.Attribute):
            return self._method(self.unit.kind(node.func.value), node.func.attr, node, args, keywords, env)
        if func.tag == "Module":
            return self._call_module(func, node, args, keywords)
        if func.tag == "torch":
            row = self.unit.book.find(func.name)
            if func.name == ANY_FUNCTION:
                return TENSOR.because("result of a function of torch.nn.functional")
            return kind_of_result(row.gives) if row is not None else UNKNOWN
        return UNKNOWN

    def _prove_arguments(self, node: ast.Call, func: Kind, dotted: str, env: Env) -> None:
        """What goes into a module, or into a torch function where it takes a tensor, is the second evidence."""
        if dotted in ("torch.max", "torch.min") and len(node.args) == 2:
            self._not_an_axis(node.args[1], dotted, env)
        for arg in node.args:
            if isinstance(arg, ast.Call) and not self.unit.kind(arg).known:
                if func.tag == "Module" and func.name != "plain":
                    self.prove(arg, env, "its result goes into a module")
                elif dotted.startswith("torch.") and self.unit.usage(self.flow.owner).takes_tensor(node, arg):
                    self.prove(arg, env, f"its result goes into {dotted}")

    def _not_an_axis(self, arg: ast.expr, dotted: str, env: Env) -> None:
        """`torch.max(a, b[:2])`: a slice is no axis, and of a list it would be none of what torch.max takes."""
        parts = arg.slice.elts if isinstance(arg, ast.Subscript) and isinstance(arg.slice, ast.Tuple) else []
        parts = parts or ([arg.slice] if isinstance(arg, ast.Subscript) else [])
        if not any(isinstance(p, ast.Slice) for p in parts) or self.unit.kind(arg).known:
            return
        assert isinstance(arg, ast.Subscript)
        tensor = Kind("Tensor", why=f"a slice of it goes into {dotted}")
        self.unit.kinds[arg] = tensor
        if not self.unit.kind(arg.value).known:
            self.unit.kinds[arg.value] = tensor
            if isinstance(arg.value, ast.Name) and arg.value.id in env:
                env[arg.value.id] = tensor

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
        elif len(node.args) >= 2 and (self.unit.resolve(node.func) or "").startswith("torch.autograd.functional."):
            self._prepare_function(node.args[0], self(node.args[1], env), env)

    def _prepare_function(self, function: ast.expr, inputs: Kind, env: Env) -> None:
        """`jacobian(f, x)`: the parameter of `f` is a tensor; `jacobian(f, (x, y))`: its parameters are."""
        kinds = inputs.items if inputs.tag == "tuple" else (inputs,)
        if isinstance(function, ast.Lambda):
            names = [a.arg for a in function.args.args]
            self.flow.lambda_kinds[function] = dict(zip(names, kinds, strict=False))
        elif isinstance(facts := self(function, env).facts, FunctionFacts):
            for arg, kind in zip(facts.node.args.args, kinds, strict=False):
                facts.saw(arg.arg, kind, self.unit)

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
        if name == "getattr" and (module := looked_up(self.unit, node)):
            return self._looked_up(module, node.args[1])
        if name == "map" and len(node.args) >= 2:
            return Kind("list", "", (self._mapped(node),))
        if name in ("zip", "enumerate", "filter"):
            return UNKNOWN
        return UNKNOWN

    def _looked_up(self, module: str, name: ast.expr) -> Kind:
        """What `getattr(nn, name)` gives."""
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            return self._dotted(f"{module}.{name.value}")
        if module == "torch.nn":
            return Kind("Class", why="looked up in torch.nn")
        return Kind("torch", f"{module}.*") if module in ("torch.nn.init", "torch.nn.functional") else UNKNOWN

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
        if dotted.startswith("einx.") and any(a.is_tensor for a in args):
            return TENSOR.because("einx result")
        if dotted in ("copy.copy", "copy.deepcopy") and args:
            return args[0]
        if dotted == "functools.partial" and args and args[0].tag in ("Class", "torch", "Function"):
            return replace(args[0], why="partial")
        if not dotted.startswith("torch."):
            return OTHER if dotted.partition(".")[0] in STANDARD_LIBRARY else UNKNOWN
        row = self.unit.book.find_called(dotted)
        if dotted.startswith("torch.optim.lr_scheduler."):
            return Kind("Scheduler", dotted)
        if dotted.startswith("torch.optim."):
            return Kind("Optimizer", dotted)
        if dotted in ("torch.nn.Parameter", "torch.nn.Buffer"):
            return VARIABLE.because("a parameter" if dotted.endswith("Parameter") else "register_buffer")
        if row is None:
            return UNKNOWN
        if dotted == "torch.nn.ParameterList":
            return Kind("Module", "", (VARIABLE,), why="constructed")
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
            return (
                Kind("Module", "plain", facts=cls.facts)
                if any(c.attributes or c.methods for c in cls.facts.lineage())
                else OTHER
            )
        if cls.name in CONTAINERS:
            keys, members = self._keyed_members(node) if cls.name == "torch.nn.ModuleDict" else ((), ())
            return Kind(
                "Module", cls.name, members or self._members(cls.name, node, args), keys=keys, why="constructed"
            )
        if cls.name in WRAPPERS and args:
            return Kind("Module", cls.name, (args[0],), why="constructed")
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
        if module.name in WRAPPERS and module.items:
            return self._call_module(module.items[0], node, args, keywords)
        row = self.unit.book.find(module.name)
        if row is not None and row.get("calls"):
            return kind_of_result(str(row.get("calls")), args[0] if args else UNKNOWN)
        if module.name == "torch.nn.Sequential":
            return TENSOR.because("result of a Sequential")
        return UNKNOWN

    def _method(
        self, base: Kind, name: str, node: ast.Call, args: list[Kind], keywords: dict[str, Kind], env: Env
    ) -> Kind:
        self.unit.taken.discard(node)
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
        if base.tag == "Distribution":
            row = self.unit.book.find(f"torch.distributions.Distribution.{name}")
            return kind_of_result(row.gives) if row is not None else UNKNOWN
        if base.tag == "Generator":
            return base if name == "manual_seed" else UNKNOWN
        if base.tag == "unknown":
            if any(a.is_tensor for a in args):
                self.prove(node, env, "a tensor is given to it")
            elif may_show_tensor(node, self.unit):
                usage = self.unit.usage(self.flow.owner)
                self.prove(node, env, usage.of_result(node, name, usage.tensors))
            self._excluded(node, env)
            receiver = node.func.value if isinstance(node.func, ast.Attribute) else node.func
            row = self.unit.book.find(f"torch.Tensor.{name}")
            if self.unit.kind(receiver).is_tensor and row is not None:
                return self.flow.refine(f"torch.Tensor.{name}", node, kind_of_result(row.gives, TENSOR))
        return UNKNOWN

    def _excluded(self, node: ast.Call, env: Env) -> None:
        """Let an unknown receiver be a tensor where its method or what becomes of the call excludes all else."""
        assert isinstance(node.func, ast.Attribute)
        value = node.func.value
        if self.unit.kind(value).is_tensor:
            return
        if why := shows_tensor(node, self.unit):
            self.unit.kinds[value] = Kind("Tensor", why=why)
        elif why := taken(node, self.unit):
            self.unit.kinds[value] = Kind("Tensor", why=why)
            self.unit.taken.add(node)
            if isinstance(value, ast.Name) and value.id in env:
                env[value.id] = Kind("Tensor", why=f"line {node.lineno} raises on anything but arrays")

    def prove(self, node: ast.expr, env: Env, why: str) -> None:
        """Let the receiver of a call that fits tensors and other types be a tensor: `why` is the second evidence."""
        if not why or not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            return
        value, name = node.func.value, node.func.attr
        if self.unit.kind(value).known or name in ("transpose", "squeeze") or not may_show_tensor(node, self.unit):
            return  # NumPy's arrays have these two, and go with tensors into calls and operators
        row = self.unit.book.find(f"torch.Tensor.{name}")
        tensor = Kind("Tensor", why=f"`.{name}()` is called on it, and {why}")
        self.unit.kinds[value] = tensor
        if not self.unit.kind(node).known and row is not None:
            self.unit.kinds[node] = kind_of_result(row.gives, TENSOR)
        if isinstance(value, ast.Name) and value.id in env:
            env[value.id] = tensor
        self.prove(value, env, "so is its result")

    def _hooked(self, module: Kind, hook: Kind, after: bool) -> None:
        """What a forward hook is called with: the module, its arguments, its result."""
        if not isinstance(hook.facts, FunctionFacts):
            return
        row = self.unit.book.find(module.name) if module.facts is None else None
        result = kind_of_result(str(row.get("calls"))) if row is not None and row.get("calls") else UNKNOWN
        if isinstance(module.facts, ClassFacts) and (forward := module.facts.method("forward")) is not None:
            result = forward.returns
        if module.name == "torch.nn.Sequential":
            result = TENSOR.because("result of a Sequential")
        names = [a.arg for a in hook.facts.node.args.args][hook.facts.owner is not None :]
        for name, kind in zip(names, (module, UNKNOWN, result if after else UNKNOWN), strict=False):
            hook.facts.saw(name, kind, self.unit)

    def _module_method(
        self, base: Kind, name: str, node: ast.Call, args: list[Kind], keywords: dict[str, Kind]
    ) -> Kind:
        if name in ("register_forward_hook", "register_forward_pre_hook") and args:
            self._hooked(base, args[0], name == "register_forward_hook")
            return OTHER
        if base.name == "super" and isinstance(base.facts, ClassFacts):
            lineage = base.facts.lineage()
            inherited = next((c.methods[name] for c in lineage[1:] if name in c.methods), None)
            if inherited is not None:
                return self.flow.call(inherited, node, args, keywords)
            layer = next((c.layer_base for c in lineage if c.layer_base), "")
            if name == "forward" and layer:
                return self._call_module(Kind("Module", layer), node, args, keywords)
        elif isinstance(base.facts, ClassFacts):
            own = base.facts.method(name) or base.facts.heirs_method(name)
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
        if name == "state_dict":
            return Kind("dict", "", (TENSOR.because(IN_STATE),))
        if name == "forward":
            return self._call_module(base, node, args, keywords)
        if base.name == "torch.nn.ModuleDict":
            if name == "values":
                return Kind("list", "", base.items or (MODULE,))
            if name == "items":
                return Kind("list", "", (Kind("tuple", "", (STR, base.element())),))
            if name == "keys":
                return Kind("list", "", (STR,))
        return UNKNOWN
