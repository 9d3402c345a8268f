"""Calls of the project's own functions: what they pass, what they give back, what parameters are."""

from __future__ import annotations

import ast

from .evaluate import Env
from .facts import ClassFacts, FunctionFacts
from .frame import Frame, FunctionDef
from .kinds import (
    TENSOR,
    UNKNOWN,
    Kind,
    join,
    join_all,
    kind_of_annotation,
)

CONTEXT = Kind("Context", why="first parameter of an autograd.Function")


class Parameters(Frame):
    """Kinds of parameters and of results of project functions."""

    def call(self, callee: FunctionFacts, node: ast.Call, args: list[Kind], keywords: dict[str, Kind]) -> Kind:
        self.record_arguments(callee, node, args, keywords)
        if callee.returns.known and callee.returns.tag != "None":
            return callee.returns
        return _through(callee, node, args, keywords) or callee.returns

    def apply(self, cls: ClassFacts, node: ast.Call, args: list[Kind]) -> Kind:
        """`F.apply(x)` of an autograd.Function: its `forward` takes a context before the arguments."""
        forward = cls.method("forward")
        if forward is None:
            return UNKNOWN
        names = [a.arg for a in forward.node.args.args]
        names = names if cls.method("setup_context") is not None else names[1:]
        for name, kind in zip(names, args, strict=False):
            forward.saw(name, kind, self.unit)
        return forward.returns if forward.returns.known else TENSOR.because("result of an autograd.Function")

    def record_arguments(
        self, callee: FunctionFacts, node: ast.Call, args: list[Kind], keywords: dict[str, Kind]
    ) -> None:
        spec = callee.node.args
        positional = [a.arg for a in [*spec.posonlyargs, *spec.args]]
        if callee.owner is not None and positional and not _is_static(callee.node):
            positional = positional[1:]
        for name, arg, kind in zip(positional, node.args, args, strict=False):
            if isinstance(arg, ast.Starred):
                break
            self._saw(callee, name, arg, kind)
        for keyword in node.keywords:
            if keyword.arg:
                self._saw(callee, keyword.arg, keyword.value, keywords[keyword.arg])

    def _saw(self, callee: FunctionFacts, name: str, arg: ast.expr, kind: Kind) -> None:
        """Note what a call passes; not what a function passes to itself and is a tensor as soon as the parameter is,
        which is bound by nothing but the calls."""
        bound = callee.unit.scopes.of[callee.node].bindings.get(name, [])
        if kind.known or callee.node is not self.owner or len(bound) != 1 or not _keeps_kind(arg, name):
            callee.saw(name, kind, self.unit)

    def _parameters(self, facts: FunctionFacts) -> Env:
        node, env = facts.node, {}
        args = [*node.args.posonlyargs, *node.args.args]
        defaults = dict(zip([a.arg for a in args][::-1], node.args.defaults[::-1], strict=False))
        defaults |= {
            a.arg: d for a, d in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if d is not None
        }
        is_method = facts.owner is not None and not _is_static(node)
        function = facts.owner is not None and facts.owner.is_function
        for index, arg in enumerate([*args, *node.args.kwonlyargs]):
            if function and (arg.arg == "ctx" or facts.name == "backward"):
                env[arg.arg] = CONTEXT if index == 0 else TENSOR.because("gradient of an output")
                continue
            if index == 0 and is_method and facts.owner is not None:
                env[arg.arg] = self._self_kind(facts.owner, node)
                continue
            env[arg.arg] = self._parameter(facts, arg, defaults.get(arg.arg))
        if node.args.vararg:
            env[node.args.vararg.arg] = Kind("list")
        if node.args.kwarg:
            env[node.args.kwarg.arg] = Kind("dict")
        return env

    def _self_kind(self, owner: ClassFacts, node: FunctionDef) -> Kind:
        if any(isinstance(d, ast.Name) and d.id == "classmethod" for d in node.decorator_list):
            return Kind("Class", facts=owner)
        return Kind("Module", owner.layer_base if owner.is_module else "plain", facts=owner)

    def _annotated_module(self, node: ast.expr | None) -> Kind | None:
        """`model: Net`, for a module class of the project."""
        if not isinstance(node, (ast.Name, ast.Attribute)):
            return None
        found = self.unit.local(node) or self.project.find(self.unit.resolve(node))
        if isinstance(found, ClassFacts) and found.is_module:
            return Kind("Module", found.layer_base, facts=found, why="annotated")
        return None

    def _parameter(self, facts: FunctionFacts, arg: ast.arg, default: ast.expr | None) -> Kind:
        annotated = kind_of_annotation(arg.annotation, self.unit.resolve)
        if annotated.known and annotated.tag != "None":
            return annotated
        if (own := self._annotated_module(arg.annotation)) is not None:
            return own
        usual = self.outer.evaluate(default, dict(self.outer.env)) if default is not None and self.outer else UNKNOWN
        called = facts.params.get(arg.arg, UNKNOWN)
        if called.known and called.tag != "None":
            return (
                join(called, usual).because(called.why or "call sites") if usual.known else called.because("call sites")
            )
        if usual.known and usual.tag != "None":
            return usual.because("its default")
        usage = self.unit.usage(facts.node)
        if _is_forward(facts) and arg.arg not in usage.unlike_tensor | usage.asked:
            return TENSOR.because("parameter of forward")
        return UNKNOWN


def _keeps_kind(node: ast.expr, name: str) -> bool:
    """Whether an expression is a tensor if `name` is: the name itself, a slice of it, the result of an operator."""
    if isinstance(node, ast.BinOp):
        return _keeps_kind(node.left, name) or _keeps_kind(node.right, name)
    if isinstance(node, ast.UnaryOp):
        return not isinstance(node.op, ast.Not) and _keeps_kind(node.operand, name)
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, ast.Slice) and _keeps_kind(node.value, name)
    return isinstance(node, ast.Name) and node.id == name


def _is_forward(facts: FunctionFacts) -> bool:
    return (
        facts.owner is not None
        and (facts.owner.is_module or facts.owner.is_function)
        and (
            facts.name in ("forward", "__call__")
            or facts.name.startswith("forward_")
            or facts.name.endswith("_forward")
        )
    )


def _through(callee: FunctionFacts, node: ast.Call, args: list[Kind], keywords: dict[str, Kind]) -> Kind | None:
    """The result of a function that only hands its arguments on (`default(x, d)`): the join of those it returns."""
    spec = callee.node.args
    names = [a.arg for a in [*spec.posonlyargs, *spec.args]]
    if callee.owner is not None and not _is_static(callee.node):
        names = names[1:]
    given = dict(zip(names, args, strict=False)) | keywords
    kinds: list[Kind] = []
    for value in callee.unit.usage(callee.node).returned:
        if isinstance(value, ast.Name) and value.id in given:
            kinds.append(given[value.id])
        elif isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in given:
            continue
        else:
            return None
    result = join_all(kinds) if kinds else UNKNOWN
    return result if result.known else None


def _is_static(node: FunctionDef) -> bool:
    return any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in node.decorator_list)
