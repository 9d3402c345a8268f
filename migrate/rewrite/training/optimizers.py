"""Optimizers: where they are made, of which parameters, and their optax form."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace

from ...read.unit import Unit
from ...rulebook.signature import Mismatch, bind
from ..match import Refusal
from ..plan import Plan, Whole
from .transforms import Transform, read_transform

Key = tuple[ast.AST, str]
_SHARING = frozenset(
    [
        "detach",
        "data",
        "view",
        "reshape",
        "T",
        "numpy",
        "squeeze",
        "unsqueeze",
        "transpose",
        "permute",
        "flatten",
        "expand",
    ]
)


@dataclass(frozen=True)
class OptimizerCall:
    """One construction of a torch optimizer.

    `target` is the text that it is assigned to ("" when it stands elsewhere), `model` the module whose parameters it
    gets, `arrays` the leaf tensors when it gets those. `problem` says why it is not converted ("" when it is),
    `code` is the code to report it under.
    """

    call: ast.Call
    name: str
    target: str
    key: Key
    found: Transform | None
    lr: ast.expr | str
    model: str = ""
    arrays: tuple[str, ...] = ()
    problem: str = ""
    code: str = "JM208"
    advice: str = ""


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
        if len({(c.model, c.arrays) for c in found}) > 1:
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
    model, arrays, problem = _parameters(unit, params)
    return replace(made, model=model, arrays=arrays, problem=problem)


def _parameters(unit: Unit, node: ast.expr) -> tuple[str, tuple[str, ...], str]:
    """(model, leaf tensors, problem) of the first argument."""
    if (
        isinstance(node, ast.Call)
        and unit.resolve(node.func) in ("builtins.list", "builtins.iter")
        and len(node.args) == 1
    ):
        return _parameters(unit, node.args[0])
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "parameters":
        owner = node.func.value
        if isinstance(owner, (ast.Name, ast.Attribute)) and not node.args and not node.keywords:
            return ast.unparse(owner), (), ""
    if isinstance(node, (ast.List, ast.Tuple)) and node.elts and all(isinstance(e, ast.Name) for e in node.elts):
        names = tuple(e.id for e in node.elts if isinstance(e, ast.Name))
        for element, name in zip(node.elts, names, strict=True):
            if problem := leaf_problem(unit, element, name, changes=True):
                return "", (), problem
        return "", names, ""
    if any(isinstance(n, ast.Dict) for n in ast.walk(node)):
        return (
            "",
            (),
            "parameter groups are not converted yet: use optax.multi_transform with a label for each parameter",
        )
    return "", (), f"`{ast.unparse(node)[:60]}`: nothing shows whose parameters these are"


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
    if not changes:
        return ""
    for use in unit.tree.all(ast.Name):
        if use.id == name and isinstance(use.ctx, ast.Load):
            elsewhere = unit.scope(use) is not scope and unit.scope(use).lookup(name) is scope
            if elsewhere or (_kept(unit, use) and unit.tree.parents[use] is not unit.tree.parents[node]):
                return f"`{name}` is known by another name too"
    return ""


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
        and not made.args
        and not made.keywords
    )


def _kept(unit: Unit, use: ast.expr) -> bool:
    """Whether a use hands the tensor, or a view of it, to another name or container."""
    node: ast.AST = use
    up = unit.tree.parents[node]
    while isinstance(up, (ast.Attribute, ast.Subscript)) or (isinstance(up, ast.Call) and up.func is node):
        if isinstance(up, ast.Attribute) and up.attr not in _SHARING:
            return False
        node, up = up, unit.tree.parents[up]
    if isinstance(up, ast.Call):
        return isinstance(up.func, ast.Attribute) and up.func.attr in (
            "append",
            "extend",
            "insert",
            "add",
            "setdefault",
        )
    return isinstance(up, (ast.Assign, ast.NamedExpr, ast.List, ast.Tuple, ast.Dict, ast.Yield)) and not isinstance(
        unit.tree.parents.get(up), ast.Return
    )


def unmark_leaf(plan: Plan, near: ast.stmt, name: str) -> None:
    """`x.requires_grad_()` where the leaf is made: the value itself."""
    unit = plan.unit
    use = next(n for n in unit.tree.all(ast.Name) if n.id == name and unit.scope(n) is unit.scope(near))
    made = _made(unit, use, name)
    if made is not None and _marks(made):
        value = made.func.value  # type: ignore[attr-defined]
        plan.whole[made] = Whole(lambda w: w.text(value), 15, (value,))
        plan.taken |= {made, made.func}
        plan.found("JM002", made, "torch.Tensor.requires_grad_", "the gradient function says what is differentiated")
