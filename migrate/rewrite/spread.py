"""`nn.Linear(a, b, **factory_kwargs)`: what the stars hold, where the dict is written out."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from .plan import Plan

FLOAT32 = "dtype is not passed on: the layer's parameters are float32, which its default None stands for"


@dataclass(frozen=True)
class Spread:
    """The `**name` of a call and what it stands for."""

    keyword: ast.keyword
    values: Mapping[str, ast.expr]

    def spelled_out(self, call: ast.Call) -> ast.Call:
        """The call with these arguments in place of the stars."""
        rest = [k for k in call.keywords if k is not self.keyword]
        given = [ast.keyword(arg=name, value=value) for name, value in self.values.items()]
        return ast.copy_location(ast.Call(call.func, call.args, [*rest, *given]), call)


def spread(plan: Plan, call: ast.Call) -> Spread | None:
    """What a call's only `**name` holds, where the dict is written out and its values are the same at the call."""
    stars = [k for k in call.keywords if k.arg is None]
    if len(stars) != 1 or any(isinstance(a, ast.Starred) for a in call.args):
        return None
    values = _entries(plan, stars[0].value)
    if values is None or set(values) & {k.arg for k in call.keywords}:
        return None
    return Spread(stars[0], values)


def _entries(plan: Plan, node: ast.expr) -> dict[str, ast.expr] | None:
    if isinstance(node, ast.Name):
        scope = plan.unit.scope(node).lookup(node.id)
        bindings = scope.bindings[node.id] if scope is not None else []
        up = plan.unit.tree.parents.get(bindings[0].node) if len(bindings) == 1 else None
        if not isinstance(up, ast.Assign) or len(up.targets) != 1 or not _only_spread(plan, node):
            return None
        found = _entries(plan, up.value) if not isinstance(up.value, ast.Name) else None
        return found if found is not None and all(_is_steady(plan, v) for v in found.values()) else None
    if isinstance(node, ast.Dict):
        keys = [k.value for k in node.keys if isinstance(k, ast.Constant) and isinstance(k.value, str)]
        return dict(zip(keys, node.values, strict=True)) if len(keys) == len(node.keys) else None
    if isinstance(node, ast.Call) and plan.unit.resolve(node.func) == "builtins.dict" and not node.args:
        return {k.arg: k.value for k in node.keywords if k.arg} if all(k.arg for k in node.keywords) else None
    return None


def _only_spread(plan: Plan, name: ast.Name) -> bool:
    """Whether every reading of the name is a `**name`: nothing changes the dict."""
    owner = plan.unit.tree.function(name) or plan.unit.tree.root
    for node in ast.walk(owner):
        if isinstance(node, ast.Name) and node.id == name.id and isinstance(node.ctx, ast.Load):
            up = plan.unit.tree.parents.get(node)
            if not (isinstance(up, ast.keyword) and up.arg is None):
                return False
    return True


def _is_steady(plan: Plan, node: ast.expr) -> bool:
    """Whether an expression gives the same in the whole function: a literal, or a parameter that is not bound again."""
    if isinstance(node, ast.Constant):
        return True
    scope = plan.unit.scope(node).lookup(node.id) if isinstance(node, ast.Name) else None
    return scope is not None and all(b.kind == "param" for b in scope.bindings[node.id])  # type: ignore[attr-defined]


def is_unset(plan: Plan, node: ast.expr) -> bool:
    """Whether a parameter has the default None, and no call of the project gives it anything else."""
    if isinstance(node, ast.Constant):
        return node.value is None
    function = plan.unit.tree.function(node)
    facts = plan.unit.functions.get(function) if function is not None else None
    if facts is None or not isinstance(node, ast.Name):
        return False
    given = facts.params.get(node.id)
    if given is not None and given.tag != "None":
        return False
    spec = facts.node.args
    names = [a.arg for a in [*spec.posonlyargs, *spec.args]]
    defaults = dict(zip(names[::-1], spec.defaults[::-1], strict=False))
    defaults |= {a.arg: d for a, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if d is not None}
    default = defaults.get(node.id)
    return isinstance(default, ast.Constant) and default.value is None
