"""What memory the result of a call may reach: the calls of the alias analysis."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from .facts import ClassFacts, FunctionFacts
from .kinds import CONTAINERS
from .repeats import repeats, repeats_of_call
from .unit import STANDARD_LIBRARY, Unit
from .views import is_view, may_be_inplace

if TYPE_CHECKING:
    from .alias import Aliases

Sites = frozenset[str]
Env = dict[str, Sites]
NONE: Sites = frozenset()
HEAP: Sites = frozenset({"heap"})
CALLER, KEPT = "<caller>", "<kept>"
FLAT = frozenset(
    {"int", "float", "bool", "str", "None", "shape", "dtype", "device", "Class", "torch", "Generator", "Function"}
)
HOLDERS = frozenset(
    {
        "zip",
        "enumerate",
        "reversed",
        "list",
        "tuple",
        "sorted",
        "iter",
        "next",
        "map",
        "filter",
        "dict",
        "set",
        "max",
        "min",
    }
)
STORING = frozenset(
    {"append", "extend", "insert", "add", "update", "setdefault", "appendleft", "put", "push", "register_buffer"}
)


class Calls:
    """The part of an evaluator that knows what calls return and keep. `Values` is the rest."""

    aliases: Aliases
    unit: Unit

    def sites(self, node: ast.expr, env: Env) -> Sites:
        raise NotImplementedError

    def views(self, sites: Sites) -> Sites:
        raise NotImplementedError

    def _fresh(self, node: ast.AST, env: Env) -> Sites:
        raise NotImplementedError

    def _keep(self, holder: ast.expr, sites: Sites, env: Env, to_self: bool = True) -> None:
        raise NotImplementedError

    stored: dict[str, Sites]

    def _Call(self, node: ast.Call, env: Env) -> Sites:
        func = node.func
        receiver = self.sites(func.value, env) if isinstance(func, ast.Attribute) else NONE
        values = [*node.args, *(k.value for k in node.keywords)]
        each = [self.sites(v, env) for v in values]
        given = frozenset().union(*each)
        dotted = self.unit.resolve(func)
        kind = self.unit.kind(func)
        if dotted and dotted.startswith("builtins."):
            return self._builtin(dotted[9:], node, given, env)
        if dotted and not isinstance(kind.facts, (FunctionFacts, ClassFacts)):
            return self._imported(dotted, node, given, env)
        if isinstance(kind.facts, FunctionFacts):
            return self._project(kind.facts, node, env)
        if chosen := self._chosen(func):
            return NONE.union(*(self._project(callee, node, env) for callee in chosen))
        if kind.tag == "Class" and isinstance(kind.facts, ClassFacts):
            self._refresh(env)
            init = kind.facts.method("__init__")
            return given if init is None else self._kept_by(init, node, env)
        if isinstance(func, ast.Attribute):
            found = self._method(node, func, receiver, given, env)
            if found is not None:
                return found
        if kind.tag == "Module":
            return self._module(node, given, env)
        if not isinstance(func, ast.Attribute):
            receiver |= self.sites(func, env)
        env[KEPT] |= given
        self._refresh(env)
        return given | receiver | HEAP

    def _chosen(self, func: ast.expr) -> list[FunctionFacts]:
        """The functions of the project of which a local name is one; none where it may be something else."""
        values = self.aliases.modules.constructions(func) if isinstance(func, ast.Name) else []
        found = [self.unit.kind(choice).facts for value in values for choice in _choices(value)]
        functions = [facts for facts in found if isinstance(facts, FunctionFacts)]
        return functions if len(functions) == len(found) else []

    def _builtin(self, name: str, node: ast.Call, given: Sites, env: Env) -> Sites:
        if name in HOLDERS or name == "dict.fromkeys":
            return given | repeats_of_call(f"builtins.{name}", node, given)
        if name in ("getattr", "vars", "eval", "globals", "locals"):
            return given | HEAP
        if name == "setattr":
            env[KEPT] |= given
            return NONE
        if name == "sum" and len([*node.args, *node.keywords]) > 1:  # of lists: sum(xs, [])
            return given | self._fresh(node, env)
        return self._fresh(node, env) if name in ("sum", "abs") else NONE

    def _imported(self, dotted: str, node: ast.Call, given: Sites, env: Env) -> Sites:
        short = dotted.rpartition(".")[2]
        top = dotted.partition(".")[0]
        if dotted in ("copy.deepcopy", "einops.pack"):
            return self._fresh(node, env)
        if top == "torch":
            return self._torch(dotted, short, node, given, env)
        if top == "math":
            return NONE
        if top in ("einops", "numpy") or top in STANDARD_LIBRARY:
            return self.views(given) | repeats_of_call(dotted, node, given)
        env[KEPT] |= given
        return given | HEAP

    def _torch(self, dotted: str, short: str, node: ast.Call, given: Sites, env: Env) -> Sites:
        out = next((k.value for k in node.keywords if k.arg == "out"), None)
        if out is not None:
            return self.sites(out, env)
        if self.unit.book.find(dotted) is None or dotted.startswith("torch.utils."):
            return self.views(given)
        if short == "einsum" and len(node.args) > 2 and not any(isinstance(a, ast.Starred) for a in node.args):
            return self._fresh(node, env)  # a product: only a single operand can come back as a view
        if is_view(short) or dotted.startswith("torch.nn.init.") or may_be_inplace(node):
            return self.views(given) | repeats_of_call(dotted, node, given)
        if self.unit.kind(node).tag not in ("Module", "Optimizer", "Scheduler", "Loader"):
            return self._fresh(node, env)
        if dotted.startswith("torch.nn.") and dotted not in CONTAINERS:  # sizes and flags, or a tensor to start from
            values = [*node.args, *(k.value for k in node.keywords)]
            return NONE.union(*(self.sites(v, env) for v in values if self.unit.kind(v).is_tensor))
        return given

    def _method(self, node: ast.Call, func: ast.Attribute, receiver: Sites, given: Sites, env: Env) -> Sites | None:
        """A method of a tensor, container or module; None when the value itself is called (`self.fc(x)`)."""
        base = self.unit.kind(func.value)
        if base.is_tensor:
            known = self.unit.book.find(f"torch.Tensor.{func.attr}") is not None
            if func.attr == "contiguous":
                return self.views(receiver - repeats(receiver))
            if is_view(func.attr):
                return self.views(receiver) | repeats_of_call(f"torch.Tensor.{func.attr}", node, receiver)
            return self._fresh(node, env) if known else self.views(receiver | given)
        if base.tag in ("list", "dict", "tuple", "Loader"):
            if func.attr in STORING:
                self._keep(func.value, given, env)
            return receiver | given if func.attr in ("get", "setdefault", "pop") else receiver
        if base.tag in ("str", "Optimizer", "Scheduler", "Generator", *FLAT):
            return NONE
        if base.tag == "Module" and self.unit.kind(func).tag != "Module":
            return self._module_method(node, func, given, env)
        return None

    def _module_method(self, node: ast.Call, func: ast.Attribute, given: Sites, env: Env) -> Sites | None:
        if func.attr in ("register_buffer", "register_parameter") and node.args:
            name = str(node.args[0].value) if isinstance(node.args[0], ast.Constant) else "?"
            key = f"{ast.unparse(func.value)}.{name}"
            self.stored[key] = self.stored.get(key, NONE) | given
            return NONE
        if func.attr in (
            "train",
            "eval",
            "to",
            "cuda",
            "cpu",
            "float",
            "half",
            "double",
            "requires_grad_",
            "apply",
            "zero_grad",
        ):
            return NONE
        if func.attr == "forward":
            return self._module(node, given, env)
        return None

    def _module(self, node: ast.Call, given: Sites, env: Env) -> Sites:
        func = node.func
        if isinstance(func, ast.Attribute) and func.attr == "forward":
            func = func.value
        facts = self.unit.kind(func).facts
        forward = (facts.method("forward") or facts.method("__call__")) if isinstance(facts, ClassFacts) else None
        if forward is not None:
            return self._project(forward, node, env)
        if self.aliases.modules.passes(func):
            return self.views(given) | self._fresh(node, env)
        return self._fresh(node, env)

    def _project(self, callee: FunctionFacts, node: ast.Call, env: Env) -> Sites:
        """A function of the project: what its own flow says it returns and keeps."""
        summary = self.aliases.summary(callee)
        found, kept = NONE, NONE
        names, pairs = _passed(callee, node)
        for name, value in pairs:
            sites = self.sites(value, env)
            if not name or name in summary.returned or name not in names:
                found |= sites
            if not name or name in summary.kept or name not in names:
                kept |= sites
        env[KEPT] |= kept
        self._refresh(env)
        return found | summary.repeated | self._fresh(node, env) | (HEAP if summary.heap else NONE)

    def _kept_by(self, init: FunctionFacts, node: ast.Call, env: Env) -> Sites:
        """What a new object holds of what its `__init__` was given."""
        kept = self.aliases.summary(init).kept
        names, pairs = _passed(init, node)
        return NONE.union(*(self.sites(v, env) for n, v in pairs if not n or n in kept or n not in names))

    def _refresh(self, env: Env) -> None:
        """Code that we did not follow ran: attributes may have been bound again."""
        for key in [k for k in env if "." in k]:
            env[key] = env[key] | {f"attr {key}"}


def _choices(node: ast.expr) -> list[ast.expr]:
    """What `a if test else b` and `{"a": a, "b": b}[key]` choose from."""
    if isinstance(node, ast.IfExp):
        return [*_choices(node.body), *_choices(node.orelse)]
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Dict):
        return [choice for value in node.value.values for choice in _choices(value)]
    return [node]


def _passed(callee: FunctionFacts, node: ast.Call) -> tuple[list[str], list[tuple[str, ast.expr]]]:
    """The names of the parameters, and the arguments of a call with theirs ("" when that is not known)."""
    spec = callee.node.args
    names = [a.arg for a in [*spec.posonlyargs, *spec.args]]
    if callee.owner is not None and names and not _is_static(callee.node):
        names = names[1:]
    named = [(k.arg or "", k.value) for k in node.keywords]
    if any(isinstance(a, ast.Starred) for a in node.args) or len(node.args) > len(names):
        return names, [*(("", a) for a in node.args), *named]
    return names, [*zip(names, node.args, strict=False), *named]


def _is_static(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in node.decorator_list)
