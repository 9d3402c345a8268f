"""Where values go: names, attributes of self, members that calls register."""

from __future__ import annotations

import ast
from dataclasses import replace

from .evaluate import Env
from .facts import ClassFacts
from .frame import Frame
from .kinds import (
    MODULE,
    NONE,
    TENSOR,
    VARIABLE,
    Kind,
    join,
    join_all,
)


class Assignments(Frame):
    """Keeps the environment and the attributes of classes in step with what is assigned."""

    def _registrations(self, stmt: ast.stmt, env: Env) -> None:
        """`self.register_buffer("x", t)`, `self.add_module("x", m)`, `xs.append(m)`: calls that store a value."""
        call = stmt.value if isinstance(stmt, ast.Expr) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
            self._registered_by(call)
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            return
        name, args = call.func.attr, call.args
        if name in ("append", "insert") and args and isinstance(call.func.value, (ast.Name, ast.Attribute)):
            self._append(call.func.value, self.unit.kind(args[-1]), env)
        if name == "extend" and args and isinstance(call.func.value, (ast.Name, ast.Attribute)):
            self._append(call.func.value, self.unit.kind(args[-1]).element(), env)
        cls = self._self_class(call.func.value)
        if cls is None or not args or not isinstance(args[0], ast.Constant) or not isinstance(args[0].value, str):
            return
        if name == "register_buffer":
            tensor = args[1] if len(args) > 1 else next((k.value for k in call.keywords if k.arg == "tensor"), None)
            none = isinstance(tensor, ast.Constant) and tensor.value is None
            self._store(cls, args[0].value, NONE if none else VARIABLE.because("register_buffer"))
        elif name == "register_parameter":
            none = len(args) > 1 and isinstance(args[1], ast.Constant) and args[1].value is None
            self._store(cls, args[0].value, NONE if none else VARIABLE.because("register_parameter"))
        elif name in ("add_module", "register_module") and len(args) > 1:
            self._store(cls, args[0].value, self.unit.kind(args[1]))

    def _registered_by(self, call: ast.Call) -> None:
        """`put("x", t)` where `put = lambda name, value: self.register_buffer(name, value.float())`."""
        assert isinstance(call.func, ast.Name)
        scope = self.unit.scope(call.func).lookup(call.func.id)
        bindings = scope.bindings[call.func.id] if scope is not None else []
        made = _made(self.unit.tree.parents.get(bindings[0].node), bindings[0].node) if len(bindings) == 1 else None
        if made is None or not made[0].args or not call.args:
            return
        spec, body = made
        if not isinstance(body, ast.Call) or not isinstance(body.func, ast.Attribute) or not body.args:
            return
        first, name = body.args[0], call.args[0]
        cls = self._self_class(body.func.value)
        passes = isinstance(first, ast.Name) and first.id == spec.args[0].arg
        if cls is None or not passes or not isinstance(name, ast.Constant) or not isinstance(name.value, str):
            return
        if body.func.attr in ("register_buffer", "register_parameter"):
            self._store(cls, name.value, VARIABLE.because(body.func.attr))

    def _append(self, target: ast.expr, item: Kind, env: Env) -> None:
        kind = self.unit.kind(target)
        if kind.tag == "list":
            grown = Kind("list", "", (join(kind.items[0], item) if kind.items else item,))
        elif kind.tag == "Module" and kind.name == "torch.nn.ModuleList":
            grown = replace(
                kind, items=(join(kind.items[0], item) if kind.items and kind.items[0] != MODULE else item,)
            )
        else:
            return
        self.assign(target, grown, env)

    def assign(self, target: ast.expr, kind: Kind, env: Env, value: ast.expr | None = None) -> None:
        if kind.tag == "Variable" and isinstance(target, ast.Name) and isinstance(value, ast.Attribute):
            if target.id not in self.unit.usage(self.owner).written:
                kind = replace(TENSOR, why=kind.why, optional=kind.optional)
        self.unit.kinds[target] = kind
        if isinstance(target, ast.Name):
            env[target.id] = kind
            self.seen[target.id] = join(self.seen[target.id], kind) if target.id in self.seen else kind
            for key in [k for k in env if k.startswith(f"{target.id}.")]:
                del env[key]
        elif isinstance(target, (ast.Tuple, ast.List)):
            self._unpack(target, kind, env, value)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, Kind("list", "", (kind,)), env)
        elif isinstance(target, ast.Attribute):
            self.evaluate(target.value, env)
            cls = self._self_class(target.value)
            if cls is not None:
                if kind.tag == "Module" and kind.name == "super":
                    return
                self._store(cls, target.attr, kind)
                held = cls.attribute(target.attr)
                if held is not None and held.tag == "Variable" and kind.is_tensor:
                    kind = held  # the Variable stays, its array is new
                    self.unit.kinds[target] = kind
            if kind.known:
                env[ast.unparse(target)] = kind
        elif isinstance(target, ast.Subscript):
            self.evaluate(target.value, env)
            self.evaluate(target.slice, env)

    def _unpack(self, target: ast.Tuple | ast.List, kind: Kind, env: Env, value: ast.expr | None) -> None:
        count = len(target.elts)
        starred = next((i for i, e in enumerate(target.elts) if isinstance(e, ast.Starred)), None)
        fixed = kind.tag == "tuple" and kind.name not in ("*", "batch")
        if fixed and starred is not None and len(kind.items) >= count - 1:
            tail = count - starred - 1
            middle = kind.items[starred : len(kind.items) - tail]
            kinds = [*kind.items[:starred], join_all(middle), *kind.items[len(kind.items) - tail :]]
        elif fixed and len(kind.items) == count:
            kinds = list(kind.items)
        else:
            kinds = self._around_star(target, value) or [kind.element()] * count
        values: list[ast.expr | None] = [None] * count
        if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == count and starred is None:
            values = list(value.elts)
        for sub, sub_kind, sub_value in zip(target.elts, kinds, values, strict=False):
            self.assign(sub, sub_kind, env, sub_value)

    def _around_star(self, target: ast.Tuple | ast.List, value: ast.expr | None) -> list[Kind]:
        """The kinds of `b, n, device, dtype = *x.shape, x.device, x.dtype`, also with `*_` among the targets; none when
        the value has another form."""
        stars = [i for i, e in enumerate(getattr(value, "elts", ())) if isinstance(e, ast.Starred)]
        if not isinstance(value, (ast.Tuple, ast.List)) or len(stars) != 1:
            return []
        (at,) = stars
        kinds, count = [self.unit.kind(e) for e in value.elts], len(target.elts)
        after = len(kinds) - at - 1
        any_of = join_all([kinds[at].element(), *kinds[:at], *kinds[at + 1 :]])
        taken = next((i for i, e in enumerate(target.elts) if isinstance(e, ast.Starred)), None)
        if taken is None:
            spread = count - at - after
            return [*kinds[:at], *[kinds[at].element()] * spread, *kinds[at + 1 :]] if spread >= 0 else []
        before, rest = min(at, taken), min(after, count - taken - 1)
        middle = [any_of] * (count - before - rest)
        return [*kinds[:before], *middle, *kinds[len(kinds) - rest :]]

    def _self_class(self, node: ast.expr) -> ClassFacts | None:
        """The class whose instance `node` is, when `node` is the first parameter of the method we are in."""
        if not isinstance(node, ast.Name):
            return None
        flow: Frame | None = self
        while flow is not None:
            facts = self.unit.functions.get(flow.owner)
            if facts is not None and facts.owner is not None:
                args = [*facts.node.args.posonlyargs, *facts.node.args.args]
                return facts.owner if args and args[0].arg == node.id else None
            flow = flow.outer
        return None

    def _store(self, cls: ClassFacts, name: str, kind: Kind) -> None:
        old = cls.attributes.get(name)
        if old is not None and old.tag == "Variable" and kind.is_tensor:
            return
        cls.attributes[name] = join(old, kind) if old is not None else kind


def _made(up: ast.AST | None, node: ast.AST) -> tuple[ast.arguments, ast.AST] | None:
    """The parameters and the one expression of a function that is bound to a name."""
    if isinstance(up, ast.Assign) and isinstance(up.value, ast.Lambda):
        return up.value.args, up.value.body
    if isinstance(node, ast.FunctionDef) and len(node.body) == 1 and isinstance(node.body[0], (ast.Expr, ast.Return)):
        return (node.args, node.body[0].value) if node.body[0].value is not None else None
    return None
