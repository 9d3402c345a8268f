"""The loop before which a jitted step can be bound to its modules: nnx.cached_partial takes them apart once, not in
every call.

The partial function works on copies of the modules that share their variables. Values are the same in both; what is no
variable (train and eval mode, which layers there are, other attributes) is as it was when the partial was made. So
nothing in the loop may change that, here or in what it calls.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence

from ...read.facts import ClassFacts, FunctionFacts
from ...read.kinds import Kind
from ...read.unit import Unit
from ..plan import Plan
from .flow import root_name
from .roles import is_model

_LOOPS = (ast.For, ast.While)
_CHANGES = frozenset(
    """
    train eval requires_grad_ add_module register_module register_buffer register_parameter apply half bfloat16 float
    double type to_empty compile share_memory fuse set_submodule __setattr__ add_param_group
    """.split()  # noqa: SIM905
)
_OF_MODULES = frozenset(
    """
    forward parameters named_parameters buffers named_buffers state_dict load_state_dict zero_grad to cuda cpu modules
    named_modules children named_children
    """.split()  # noqa: SIM905
)
_OF_UNKNOWN = frozenset(
    """
    append extend item detach cpu numpy tolist format join write info debug warning error log add_scalar add_scalars
    set_description set_postfix update size dim numel mean sum max min argmax eq long view reshape get time flush to
    step zero_grad get_last_lr cuda items keys values
    """.split()  # noqa: SIM905
)
_TORCHS = ("torch.nn.parallel.", "torch.utils.checkpoint.", "torch.nn.utils.clip_grad", "torch.nn.init.", "torch.save")
_BUILTINS = frozenset(("setattr", "delattr", "exec", "eval", "vars", "globals", "locals", "__import__"))
_HOLDERS = ("torch.nn.Sequential", "torch.nn.ModuleList", "torch.nn.ModuleDict")


def cached_loop(plan: Plan, loops: Sequence[ast.stmt], bound: Collection[str]) -> ast.stmt | None:
    """The outermost of `loops` (inner ones first) that leaves the modules and optimizers of the texts `bound` as they
    are but for their values, None when none does."""
    found = None
    for loop in loops:
        if not isinstance(loop, _LOOPS) or not plan.alone(loop) or _Look(plan.unit, bound).changes(plan.unit, loop):
            break
        found = loop
    return found


class _Look:
    """Looks for what may change a module's structure; functions are looked at once."""

    def __init__(self, unit: Unit, bound: Collection[str]) -> None:
        self.unit, self.bound = unit, bound
        self.seen: set[ast.AST] = set()

    def changes(self, unit: Unit, code: ast.AST) -> bool:
        return any(self._node(unit, node) for node in ast.walk(code))

    def _node(self, unit: Unit, node: ast.AST) -> bool:
        if isinstance(node, (ast.Yield, ast.YieldFrom, ast.Await, ast.Nonlocal)):
            return True
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            return unit is self.unit and any(node.id == b.partition(".")[0] for b in self.bound)
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            return self._stored(unit, node)
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            kind = unit.kind(node.value)
            return kind.tag == "Module" or (not kind.known and self._reaches(node.value))
        return isinstance(node, ast.Call) and self._call(unit, node)

    def _stored(self, unit: Unit, node: ast.Attribute) -> bool:
        """`x.a = …`: x must be something other than a module."""
        if ast.unparse(node) in self.bound or node.attr == "requires_grad":
            return True
        kind = unit.kind(node.value)
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            cls = unit.tree.class_of(node)
            return cls is None or cls not in unit.classes or unit.classes[cls].is_module
        return (kind.tag == "Module" and kind.name != "plain") or not kind.known

    def _reaches(self, node: ast.expr) -> bool:
        return any(root_name(node) == b.partition(".")[0] for b in self.bound)

    def _call(self, unit: Unit, node: ast.Call) -> bool:
        kind = unit.kind(node.func)
        facts = kind.facts or unit.local(node.func)
        given = [*node.args, *(k.value for k in node.keywords)]
        handed_on = [f for f in map(unit.local, given) if isinstance(f, FunctionFacts)]  # `map(freeze, [model])`
        if any(self._function(f) for f in handed_on):
            return True
        if isinstance(facts, FunctionFacts):
            return self._function(facts)
        if isinstance(facts, ClassFacts):
            return not facts.is_module or kind.tag != "Module" or self._forward(facts)
        if kind.tag == "Module" or is_model(unit, node.func):
            return self._module(unit, kind)
        dotted = unit.resolve(node.func)
        if dotted is not None:
            name = dotted.removeprefix("builtins.")
            handed = any(unit.kind(a).tag == "Module" for a in given) and not dotted.startswith(_TORCHS)
            return (dotted != name and name in _BUILTINS) or handed
        if any(unit.kind(a).tag == "Module" or is_model(unit, a) for a in given):
            return True
        return not isinstance(node.func, ast.Attribute) or self._method(unit, node.func)

    def _method(self, unit: Unit, func: ast.Attribute) -> bool:
        owner = unit.kind(func.value)
        method = owner.facts.method(func.attr) if isinstance(owner.facts, ClassFacts) else None
        if isinstance(func.value, ast.Name) and func.value.id == "self":
            cls = unit.tree.class_of(func)
            facts = unit.classes.get(cls) if cls is not None else None
            method = facts.method(func.attr) if facts is not None else None
        if method is not None:
            return self._function(method)
        if owner.tag == "Module" or is_model(unit, func.value):
            return func.attr not in _OF_MODULES
        if owner.known:
            return isinstance(owner.facts, ClassFacts) or func.attr == "add_param_group"
        return func.attr in _CHANGES or func.attr not in _OF_UNKNOWN

    def _module(self, unit: Unit, kind: Kind) -> bool:
        """A call of a module of unknown class: each module class of the file must do."""
        if kind.name.startswith("torch.nn.") and kind.name not in _HOLDERS:
            return False
        return any(self._forward(c) for c in unit.classes.values() if c.is_module)

    def _forward(self, facts: ClassFacts) -> bool:
        forward = facts.method("forward") or facts.method("__call__")
        return forward is not None and self._function(forward)

    def _function(self, facts: FunctionFacts) -> bool:
        if facts.node in self.seen:
            return False
        self.seen.add(facts.node)
        return any(self.changes(facts.unit, stmt) for stmt in facts.node.body)
