"""The kind of an expression, from the kinds of its parts."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..rulebook.rows import Row
from .evaluate_calls import Calls, Env
from .facts import ClassFacts, FunctionFacts
from .kinds import (
    BOOL,
    CONTAINERS,
    DTYPE,
    FLOAT,
    INT,
    NONE,
    NUMBERS,
    NUMPY,
    OTHER,
    SHAPE,
    STR,
    TENSOR,
    UNKNOWN,
    VARIABLE,
    WRAPPERS,
    Kind,
    join,
    join_all,
    kind_of_result,
)
from .shared_names import may_give_number
from .unit import STANDARD_LIBRARY

if TYPE_CHECKING:
    from .flow import Flow

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

_OF_DISTRIBUTIONS = frozenset(("mean", "variance", "stddev", "probs", "logits", "loc", "scale", "rate", "low", "high"))


_CONTEXT = {"saved_tensors": Kind("tuple", "*", (TENSOR,)), "needs_input_grad": Kind("tuple", "*", (BOOL,))}


class Evaluator(Calls):
    """Evaluates expressions of one function or module body against an environment, recording each kind."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.unit = flow.unit

    def __call__(self, node: ast.expr, env: Env) -> Kind:
        if self.unit.opaque and node in self.unit.opaque:
            return UNKNOWN
        method = _METHODS.get(node.__class__)
        kind: Kind = method(self, node, env) if method else self._children(node, env)
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
        dotted = self.unit.resolve(node)
        if node.id in env:
            kind = env[node.id]
            if kind.known or not (dotted or "").startswith("torch."):
                return kind if kind.known else self.flow.by_use(node.id, kind)
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
        row = self.unit.book.find(dotted)
        if not dotted.startswith("torch.") and (row is None or not row.get("layer")):
            return Kind("other", dotted) if dotted.partition(".")[0] in STANDARD_LIBRARY else UNKNOWN
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
        kind = self.attribute(base, node.attr)
        if not kind.known and node.attr in ("weight", "bias") and base.tag in ("Module", "unknown"):
            parent = self.unit.tree.parents.get(node)
            if isinstance(parent, ast.Attribute) and parent.attr == "data" and base.facts is None:
                return VARIABLE.because(f".data of a module's {node.attr}")
        return kind

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
        if base.tag == "Distribution":
            return TENSOR.because("of a distribution") if name in _OF_DISTRIBUTIONS else UNKNOWN
        if base.tag == "device":
            return {"type": STR, "index": INT}.get(name, UNKNOWN)
        if base.tag == "Context":
            return _CONTEXT.get(name, UNKNOWN)
        if base.tag == "Class" and isinstance(base.facts, ClassFacts):
            if name == "apply" and base.facts.is_function:
                return Kind("Autograd", facts=base.facts)
            found = base.facts.attribute(name)
            method = base.facts.method(name)
            if found is None and method is not None and method.of_class:
                return Kind("Function", facts=method)
            return found or UNKNOWN
        return UNKNOWN

    def _module_attribute(self, base: Kind, name: str) -> Kind:
        if name == "training":
            return BOOL
        if name == "module" and base.name in WRAPPERS and base.items:
            return base.items[0]
        if name in base.keys:
            return base.items[base.keys.index(name)]
        if isinstance(base.facts, ClassFacts):
            lineage = base.facts.lineage()[1:] if base.name == "super" else base.facts.lineage()
            found = base.facts.attribute(name)
            if found is not None:
                return found
            method = next((c.methods[name] for c in lineage if name in c.methods), None)
            if method is None and base.name != "super":
                method = base.facts.heirs_method(name)
            if method is not None:
                return Kind("Function", facts=method)
        row = self.unit.book.find(base.name or (base.facts.layer_base if isinstance(base.facts, ClassFacts) else ""))
        if row is not None:
            if name in (*row.get("params", ()), *row.get("buffers", ())):
                optional = name == "bias" or name in row.get("buffers", ()) or row.name.endswith("Norm")
                return replace(VARIABLE, why=f"{name} of {row.name}", optional=optional)
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

    def _prove_operand(self, node: ast.expr, env: Env) -> None:
        """What is combined with a tensor is the second evidence, where it can be no number."""
        method = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
        if not may_give_number(method, self.unit.around):
            self.prove(node, env, "its result is combined with a tensor")

    def _BinOp(self, node: ast.BinOp, env: Env) -> Kind:
        left, right = self(node.left, env), self(node.right, env)
        if left.is_tensor or right.is_tensor:
            self._prove_operand(node.right if left.is_tensor else node.left, env)
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


_METHODS: Mapping[type, Callable[[Evaluator, Any, Env], Kind]] = {
    kind: getattr(Evaluator, f"_{kind.__name__}")
    for kind in vars(ast).values()
    if isinstance(kind, type) and hasattr(Evaluator, f"_{kind.__name__}")
}

__all__ = ["Env", "Evaluator"]
