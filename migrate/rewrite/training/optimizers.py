"""Optimizers: where they are made, of which parameters, and their optax form."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace

from ...read.unit import Unit
from ...rulebook.rows import Row
from ...rulebook.signature import Arguments, Mismatch, bind
from ..match import Refusal
from ..plan import Plan
from .flow import GROWING
from .held import ADDING, shared
from .roles import NotPlain, is_model
from .sources import Source
from .transforms import Transform, read_transform

Key = tuple[ast.AST, str]
NOTHING = Source()


@dataclass(frozen=True)
class Group:
    """One parameter group: its name in the converted program, the expression of its parameters, its settings."""

    name: str
    params: ast.expr
    settings: Transform


@dataclass(frozen=True)
class OptimizerCall:
    """One construction of a torch optimizer.

    `target` is the text that it is assigned to ("" when it stands elsewhere), `source` the modules or leaf tensors
    whose parameters it gets, `groups` the parameter groups where it does not treat all of them alike. `problem` says
    why it is not converted ("" when it is), `code` is the code to report it under.
    """

    call: ast.Call
    name: str
    target: str
    key: Key
    found: Transform | None
    lr: ast.expr | str
    source: Source = NOTHING
    groups: tuple[Group, ...] = ()
    problem: str = ""
    code: str = "JM208"
    advice: str = ""

    @property
    def arrays(self) -> tuple[str, ...]:
        return self.source.arrays


@dataclass
class Optimizers:
    """All optimizer constructions of a file, by the variable they are assigned to."""

    unit: Unit
    calls: list[OptimizerCall] = field(default_factory=list)

    def key(self, node: ast.expr) -> Key | None:
        """The variable that `node` reads or writes: its scope (or class, for `self.x`) and text."""
        if isinstance(node, ast.Name):
            scope = self.unit.scope(node).lookup(node.id)
            return (scope.node, node.id) if scope is not None else None
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            cls = self.unit.tree.class_of(node)
            return (cls, ast.unparse(node)) if cls is not None else None
        return None

    def of(self, node: ast.expr) -> OptimizerCall | None:
        """The construction behind a variable; of several the first that has a problem, or one for all."""
        key = self.key(node)
        found = [c for c in self.calls if c.key == key] if key is not None else []
        if not found:
            return None
        if len({c.source for c in found}) > 1:
            return replace(found[0], problem="it is made of different parameters in several places")
        return next((c for c in found if c.problem), found[0])


def find_optimizers(plan: Plan) -> Optimizers:
    """Read every `torch.optim.X(…)` of the file."""
    unit = plan.unit
    optimizers = Optimizers(unit)
    for node in unit.tree.all(ast.Call):
        dotted = unit.resolve(node.func) or ""
        row = unit.book.find(dotted) if dotted.startswith("torch.optim.") else None
        if row is not None and row.get("kind") == "Optimizer" and not row.get("unmapped"):
            optimizers.calls.append(_read(plan, optimizers, node, dotted))
    return optimizers


def _read(plan: Plan, optimizers: Optimizers, call: ast.Call, dotted: str) -> OptimizerCall:
    unit = plan.unit
    row = unit.book.find(dotted)
    assert row is not None and row.signature is not None
    parent = unit.tree.parents[call]
    target = parent.targets[0] if isinstance(parent, ast.Assign) and len(parent.targets) == 1 else None
    key = optimizers.key(target) if target is not None else None
    made = OptimizerCall(call, dotted, ast.unparse(target) if key and target else "", key or (call, ""), None, "")
    arguments = bind(row.signature, call)
    if isinstance(arguments, Mismatch):
        code = {"star": "JM207", "missing": "JM203"}.get(arguments.reason, "JM202")
        return replace(made, problem=f"{arguments.detail or 'starred'} is not understood", code=code)
    params = arguments.named.pop("params")
    found = read_transform(row, arguments, unit)
    if isinstance(found, Refusal):
        return replace(made, problem=found.message, code=found.code, advice=found.advice)
    made = replace(made, found=found, lr=found.lr)
    try:
        source, groups = read_parameters(unit, params, row, arguments)
    except NotPlain as problem:
        return replace(made, problem=str(problem))
    return replace(made, source=_of_self(unit, made, source), groups=groups)


def _of_self(unit: Unit, made: OptimizerCall, source: Source) -> Source:
    """`self.model` for a local `model` that was put there before the optimizer was made as another attribute."""
    function = unit.tree.function(made.call)
    if not made.target.startswith("self.") or function is None:
        return source
    attributes = {}
    for stmt in ast.walk(function):
        if isinstance(stmt, ast.Assign) and unit.tree.start(stmt) < unit.tree.start(made.call):
            if isinstance(stmt.value, ast.Name) and len(stmt.targets) == 1:
                target = ast.unparse(stmt.targets[0])
                if target.startswith("self.") and target.count(".") == 1:
                    attributes[stmt.value.id] = target
    return Source(tuple(attributes.get(m, m) for m in source.models), source.arrays)


def read_parameters(unit: Unit, node: ast.expr, row: Row, arguments: Arguments) -> tuple[Source, tuple[Group, ...]]:
    """The sources and groups that the first argument of an optimizer names. Raises NotPlain."""
    listed = bound(unit, node)
    if isinstance(listed, (ast.List, ast.Tuple)) and any(isinstance(e, ast.Dict) for e in listed.elts):
        groups = [_group(unit, e, n, row, arguments) for n, e in enumerate(listed.elts)]
        names = [g.name for g in groups]
        groups = [replace(g, name=f"{g.name}_{n}") if names.count(g.name) > 1 else g for n, g in enumerate(groups)]
        models = dict.fromkeys(m for g in groups for m in holders(unit, g.params))
        if len(models) != 1:
            raise NotPlain("nothing shows that the parameter groups are of one module")
        return Source(tuple(models)), tuple(groups)
    if isinstance(listed, (ast.List, ast.Tuple)) and listed.elts and all(isinstance(e, ast.Name) for e in listed.elts):
        names = [e.id for e in listed.elts if isinstance(e, ast.Name)]
        for element, name in zip(listed.elts, names, strict=True):
            if problem := leaf_problem(unit, element, name, changes=True):
                raise NotPlain(problem)
        return Source((), tuple(names)), ()
    whole = whole_modules(unit, node)
    if whole is not None:
        return Source(whole), ()
    models = dict.fromkeys(holders(unit, node))
    settings = read_transform(row, arguments, unit)
    if len(models) != 1 or isinstance(settings, Refusal):
        raise NotPlain(f"`{ast.unparse(node)[:60]}`: nothing shows whose parameters these are")
    return Source(tuple(models)), (Group("trained", node, settings),)


def bound(unit: Unit, node: ast.expr) -> ast.expr:
    """The expression that a name was assigned, when that happened once and in the same scope; else the node."""
    if isinstance(node, ast.Name):
        scope = unit.scope(node).lookup(node.id)
        bindings = scope.bindings.get(node.id, []) if scope is unit.scope(node) and scope is not None else []
        stmt = unit.tree.parents.get(bindings[0].node) if len(bindings) == 1 else None
        if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 and not _grows(unit, node.id, scope):
            return stmt.value
    return node


def _grows(unit: Unit, name: str, scope: object) -> bool:
    """Whether a list gets more members after it was made."""
    return any(
        isinstance(n.value, ast.Name) and n.value.id == name and n.attr in GROWING for n in unit.tree.all(ast.Attribute)
    ) or any(ast.unparse(n.target) == name for n in unit.tree.all(ast.AugAssign))


def whole_modules(unit: Unit, node: ast.expr) -> tuple[str, ...] | None:
    """The modules of `m.parameters()`, `list(…)`, `itertools.chain(…)` or `a + b` of those; None for anything else."""
    node = bound(unit, node)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = [whole_modules(unit, node.left), whole_modules(unit, node.right)]
        return _together(parts)
    if isinstance(node, (ast.List, ast.Tuple)) and node.elts and all(isinstance(e, ast.Starred) for e in node.elts):
        return _together([whole_modules(unit, e.value) for e in node.elts if isinstance(e, ast.Starred)])
    if not isinstance(node, ast.Call) or node.keywords:
        return None
    if unit.resolve(node.func) in ("builtins.list", "builtins.iter", "builtins.tuple") and len(node.args) == 1:
        return whole_modules(unit, node.args[0])
    if unit.resolve(node.func) == "itertools.chain" and node.args:
        return _together([whole_modules(unit, a) for a in node.args])
    if isinstance(node.func, ast.Attribute) and node.func.attr == "parameters" and not node.args:
        owner = node.func.value
        if isinstance(owner, (ast.Name, ast.Attribute)) and _is_root(unit, owner):
            return (ast.unparse(owner),)
    return None


def _together(parts: list[tuple[str, ...] | None]) -> tuple[str, ...] | None:
    names = [n for part in parts if part is not None for n in part]
    return tuple(names) if None not in parts and len(set(names)) == len(names) else None


def _is_root(unit: Unit, owner: ast.expr) -> bool:
    """A name, an attribute of `self` or of something that is no module: not a part of a module."""
    if isinstance(owner, ast.Name):
        return True
    if not isinstance(owner, ast.Attribute):
        return False
    return ast.unparse(owner.value) == "self" or not is_model(unit, owner.value)


def holders(unit: Unit, node: ast.expr, depth: int = 0) -> list[str]:
    """The modules that the parameters of an expression belong to: roots of `x.parameters()`, `x.fc.weight`."""
    found: dict[str, None] = {}
    for sub in ast.walk(bound(unit, node)):
        if isinstance(sub, ast.Name) and isinstance(sub.ctx, ast.Load):
            if is_model(unit, sub):
                found[sub.id] = None
            elif depth < 3 and bound(unit, sub) is not sub:
                found |= dict.fromkeys(holders(unit, sub, depth + 1))
        elif isinstance(sub, ast.Attribute) and ast.unparse(sub.value) == "self" and is_model(unit, sub):
            found[ast.unparse(sub)] = None
    return [m for m in found if m != "self"]


def _group(unit: Unit, node: ast.expr, number: int, row: Row, arguments: Arguments) -> Group:
    """One group of a list of dictionaries. Raises NotPlain."""
    keys = node.keys if isinstance(node, ast.Dict) else []
    names = [k.value for k in keys if isinstance(k, ast.Constant) and isinstance(k.value, str)]
    if not isinstance(node, ast.Dict) or len(names) != len(node.keys) or "params" not in names:
        raise NotPlain("a parameter group is not a dictionary with literal keys")
    options = dict(zip(names, node.values, strict=True))
    params = options.pop("params")
    label = options.pop("name", None)
    settings = read_transform(row, replace(arguments, named={**arguments.named, **options}), unit)
    if isinstance(settings, Refusal) or (set(options) - set(row.signature.by_name if row.signature else ())):
        raise NotPlain("a parameter group's options are not understood")
    name = label.value if isinstance(label, ast.Constant) and isinstance(label.value, str) else _named(params)
    return Group(name if name.isidentifier() else f"group_{number}", params, settings)


def _named(params: ast.expr) -> str:
    """What to call a group: the last name in the expression of its parameters."""
    if isinstance(params, ast.Call) and isinstance(params.func, ast.Attribute) and params.func.attr == "parameters":
        params = params.func.value
    return ast.unparse(params).rpartition(".")[2]


def leaf_problem(unit: Unit, node: ast.expr, name: str, *, changes: bool) -> str:
    """Why a name is no leaf tensor of this scope; "" when it is: made once, with gradients.

    If an optimizer `changes` it in place, nothing else may hold it: the conversion binds the name anew.
    """
    scope = unit.scope(node).lookup(name)
    made = _made(unit, node, name)
    if scope is None or scope is not unit.scope(node) or made is None:
        return f"`{name}` is not made once, in the same place"
    flag = [k.value for k in made.keywords if k.arg == "requires_grad"]
    marked = any(isinstance(v, ast.Constant) and v.value is True for v in flag) or _marks(made)
    if not marked and (unit.resolve(made.func) != "torch.nn.Parameter" or flag):
        return f"`{name}` is not made as a leaf with requires_grad=True"
    if changes and known_elsewhere(unit, node, name):
        return f"`{name}` is known by another name too"
    return ""


def known_elsewhere(unit: Unit, node: ast.expr, name: str) -> bool:
    """Whether another name or container may hold the tensor of a name, or another function reads it."""
    scope = unit.scope(node).lookup(name)
    for use in unit.tree.all(ast.Name):
        if use.id == name and isinstance(use.ctx, ast.Load):
            elsewhere = unit.scope(use) is not scope and unit.scope(use).lookup(name) is scope
            if elsewhere or (_kept(unit, use) and unit.tree.parents[use] is not unit.tree.parents[node]):
                return True
    return False


def _made(unit: Unit, node: ast.expr, name: str) -> ast.Call | None:
    scope = unit.scope(node).lookup(name)
    bindings = scope.bindings[name] if scope is not None else []
    stmt = unit.tree.parents.get(bindings[0].node) if len(bindings) == 1 else None
    return stmt.value if isinstance(stmt, ast.Assign) and isinstance(stmt.value, ast.Call) else None


def _marks(made: ast.Call) -> bool:
    """`x.requires_grad_()`."""
    return (
        isinstance(made.func, ast.Attribute)
        and made.func.attr == "requires_grad_"
        and all(
            isinstance(v, ast.Constant) and v.value is True for v in (*made.args, *(k.value for k in made.keywords))
        )
    )


def _kept(unit: Unit, use: ast.expr) -> bool:
    """Whether a use hands the tensor, or a view of it, to another name or container."""
    _, up = shared(unit, use)
    if isinstance(up, ast.Call):
        return isinstance(up.func, ast.Attribute) and up.func.attr in ADDING
    return isinstance(
        up, (ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.List, ast.Tuple, ast.Dict, ast.Yield)
    ) and not isinstance(unit.tree.parents.get(up), ast.Return)
