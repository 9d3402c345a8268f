"""Indexing that torch and JAX read differently: lists, integers beside tensor indices, byte masks, index errors."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ..read.source import hidden
from ..read.unit import Unit
from ..rulebook.precedence import ATOM
from .plan import Plan, Whole
from .writer import Writer

NAME = "torch.Tensor.__getitem__"


def plan_indexing(plan: Plan) -> None:
    """Rewrite the subscripts of tensors whose meaning differs; those that read the same are no constructs."""
    for node in plan.unit.tree.all(ast.Subscript):
        if not hidden(node):
            if plan.unit.kind(node.value).is_tensor:
                _subscript(plan, node)
            elif not plan.unit.kind(node.value).known:
                _unknown(plan, node)


def index_parts(index: ast.expr) -> list[ast.expr]:
    """The comma-separated parts of an index."""
    return list(index.elts) if isinstance(index, ast.Tuple) else [index]


def adds_axis_order(parts: Sequence[ast.expr], unit: Unit) -> str:
    """Whether the axes of the result come in another order in JAX than in torch.

    torch applies integers first and then looks whether the tensor indices are neighbours; NumPy and JAX count integers
    as tensor indices. Returns "" when both agree, "integers first" when `x[ints][rest]` is what torch means, "unknown"
    when a part might be an integer or a tensor, "other" when neither form says it.
    """
    if any(_is_scalar(p, unit) for p in parts):
        zero_dim = [_Integer() if _is_scalar(p, unit) else p for p in parts]
        return "other" if adds_axis_order(zero_dim, unit) else ""
    roles = [_role(p, unit) for p in parts]
    tensors = [i for i, r in enumerate(roles) if r == "tensor"]
    advanced = [i for i, r in enumerate(roles) if r in ("tensor", "int", "unknown")]
    if not advanced or advanced == list(range(advanced[0], advanced[-1] + 1)):
        return ""
    if "unknown" in roles:
        return "unknown" if roles.count("unknown") > 1 or tensors or "int" in roles else ""
    if not tensors:
        return ""
    without = [r for r in roles if r != "int"]
    first = without.index("tensor")
    apart = without[first : len(without) - without[::-1].index("tensor")].count("tensor") != len(tensors) or any(
        r != "tensor" for r in without[first : len(without) - without[::-1].index("tensor")]
    )
    if apart or first == 0:
        return ""
    leading = next(i for i, r in enumerate(roles) if r != "int")
    return "integers first" if leading and "int" not in roles[leading:] else "other"


class _Integer(ast.Constant):
    """Stands for a 0-dim tensor, which torch takes for an integer."""

    def __init__(self) -> None:
        super().__init__(value=0)


def _is_scalar(part: ast.expr, unit: Unit) -> bool:
    """Whether a tensor index certainly has no dimension: torch takes it for an integer."""
    if not isinstance(part, ast.Call):
        return False
    if isinstance(part.func, ast.Attribute) and part.func.attr in ("argmax", "argmin"):
        return unit.kind(part.func.value).is_tensor and not part.args and not part.keywords
    made = unit.resolve(part.func) in ("torch.tensor", "torch.as_tensor", "torch.scalar_tensor")
    return made and bool(part.args) and unit.kind(part.args[0]).tag in ("int", "bool")


def _may_be_scalar(part: ast.expr, unit: Unit) -> bool:
    return unit.kind(part).is_tensor and isinstance(part, (ast.Name, ast.Attribute, ast.Subscript))


def _role(part: ast.expr, unit: Unit) -> str:
    if isinstance(part, _Integer):
        return "int"
    if isinstance(part, ast.Slice) or (isinstance(part, ast.Constant) and (part.value is None or part.value is ...)):
        return "slice"
    if isinstance(part, (ast.List, ast.ListComp)):
        return "tensor"
    tag = unit.kind(part).tag
    if tag == "int":
        return "int"
    return "tensor" if tag in ("Tensor", "Variable", "list", "numpy") else "unknown"


def _subscript(plan: Plan, node: ast.Subscript) -> None:
    unit = plan.unit
    done = node in plan.taken or not isinstance(node.ctx, ast.Load)
    if isinstance(node.slice, ast.List) and (means := _meaning(node.slice, unit)) != "tensor":
        plan.found(
            "JM201" if means == "unknown" else "JM203", node, NAME,
            "a list as index: whether torch takes it for one tensor or for one index an axis depends on what is in it "
            "and on the release", advice="Index with a tensor or a tuple.",
        )  # fmt: skip
        return
    parts = index_parts(node.slice)
    order = adds_axis_order(parts, unit)
    lists = [p for p in parts if isinstance(p, (ast.List, ast.ListComp)) or unit.kind(p).tag == "list"]
    unclear = next((p for p in lists if not _is_array(p, unit)), None)
    if unclear is not None:
        plan.found(
            "JM201", node, NAME,
            f"nothing shows what `{ast.unparse(unclear)[:40]}` holds: a list of numbers is one index, "
            "a list of tensors or lists is one index an axis", advice="Index with a tensor or a tuple.",
        )  # fmt: skip
        return
    if order in ("unknown", "other") and not done:
        message = (
            "torch applies integer indices before tensor indices, JAX together with them: the axes may change places"
        )
        plan.found(
            "JM201" if order == "unknown" else "JM203", node, NAME, message, advice="Index in two steps: x[i][:, j]."
        )
        return
    masks = [p for p in parts if _is_bytes(p, unit)]
    for part in lists:
        _wrap(
            plan, part, "jnp.array({}, dtype=int)" if isinstance(part, ast.List) and not part.elts else "jnp.array({})"
        )
    for part in masks:
        _wrap(plan, part, "{}.astype(bool)", ATOM)
    if order and not done:
        _two_steps(plan, node, parts)
    if done:
        return
    if _apart(parts, unit) and any(_may_be_scalar(p, unit) for p in parts):
        plan.found(
            "JM101", node, NAME, "if one of these indices has no dimension, torch takes it for an integer and the axes "
            "of the result come in another order", advice="Index in two steps: x[i][:, j].", rule="indexing",
        )  # fmt: skip
    elif lists or masks or order:
        plan.found("JM001", node, NAME, "indexed as torch does", rule="indexing")


def _apart(parts: Sequence[ast.expr], unit: Unit) -> bool:
    """Whether tensor indices stand apart, with slices between them."""
    places = [i for i, p in enumerate(parts) if _role(p, unit) in ("tensor", "int")]
    tensors = sum(_role(p, unit) == "tensor" for p in parts)
    return tensors > 1 and places != list(range(places[0], places[-1] + 1))


def _meaning(index: ast.List, unit: Unit) -> str:
    """What torch takes a list for that is the whole index: "tensor" (of numbers), "tuple" (one index an axis: some
    element is a sequence, a tensor, a slice, None or `...`), or "unknown"."""
    tags = [unit.kind(e).tag for e in index.elts]
    sequence = (ast.List, ast.Tuple, ast.ListComp, ast.Slice)
    if any(
        isinstance(e, sequence)
        or (isinstance(e, ast.Constant) and e.value in (None, ...))
        or (isinstance(e, ast.Call) and unit.resolve(e.func) == "builtins.slice")
        or tag in ("Tensor", "Variable", "list", "tuple", "numpy")
        for e, tag in zip(index.elts, tags, strict=True)
    ):
        return "tuple"
    return "tensor" if all(tag in ("int", "bool") for tag in tags) else "unknown"


def _is_array(part: ast.expr, unit: Unit) -> bool:
    """Whether a list is numbers, or lists of them, all the way down: one tensor index."""
    if isinstance(part, (ast.List, ast.Tuple)):
        return all(_is_array(e, unit) for e in part.elts)
    kind = unit.kind(part)
    while kind.tag in ("list", "tuple") and kind.element().known:
        kind = kind.element()
    return kind.tag in ("int", "bool", "float")


def _unknown(plan: Plan, node: ast.Subscript) -> None:
    """`x[[0, 2]]` of something unknown: JAX refuses a list as the whole index. A list of numbers indexes an array of
    whatever library, where no other type is in sight."""
    index = node.slice
    numbers = isinstance(index, ast.List) and index.elts and all(plan.unit.kind(e).tag == "int" for e in index.elts)
    if numbers and plan.unit.around.closed and isinstance(node.ctx, ast.Load):
        _wrap(plan, index, "jnp.array({})")
        plan.found("JM001", node, NAME, "indexed as torch does", rule="indexing",
                   evidence="only arrays take a list of numbers")  # fmt: skip
        return
    if isinstance(index, ast.List) and any(plan.unit.kind(e).tag in ("int", "bool", "Tensor") for e in index.elts):
        text = ast.unparse(node.value)[:60]
        plan.found(
            "JM201", node, NAME, f"nothing shows what `{text}` is: JAX arrays take no list as index",
            advice="Annotate the value (x: torch.Tensor), or index with jnp.array([...]).",
        )  # fmt: skip


def _wrap(plan: Plan, part: ast.expr, form: str, level: int = 0) -> None:
    before = plan.whole.get(part)

    def build(writer: Writer) -> str:
        if before is not None:
            inner = before.build(writer)
            text = inner if before.level >= level else f"({inner})"
        else:
            text = writer.splice_range(
                part, writer.tree.start(part), writer.tree.end(part), list(plan.points.get(part, ()))
            )
            text = (
                text
                if isinstance(part, (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.List, ast.ListComp))
                or not level
                else f"({text})"
            )
        return form.format(text)

    plan.whole[part] = Whole(build, ATOM, (part,))


def _is_bytes(part: ast.expr, unit: Unit) -> bool:
    """Whether a tensor index is certainly uint8, which torch takes for a mask."""
    if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute):
        if part.func.attr == "byte":
            return True
        arguments = [*part.args, *(k.value for k in part.keywords)]
        return any(unit.resolve(a) == "torch.uint8" for a in arguments)
    if isinstance(part, ast.Name):
        scope = unit.scope(part).lookup(part.id)
        bindings = scope.bindings[part.id] if scope else []
        ups = [unit.tree.parents.get(b.node) for b in bindings]
        return (
            len(ups) == 1
            and isinstance(ups[0], ast.Assign)
            and isinstance(ups[0].value, ast.Call)
            and _is_bytes(ups[0].value, unit)
        )
    return False


def _two_steps(plan: Plan, node: ast.Subscript, parts: list[ast.expr]) -> None:
    count = next(i for i, p in enumerate(parts) if plan.unit.kind(p).tag != "int")

    def build(writer: Writer) -> str:
        texts = [writer.text(p) for p in parts]
        return f"{writer.at_level(node.value, ATOM)}[{', '.join(texts[:count])}][{', '.join(texts[count:])}]"

    plan.whole[node] = Whole(build, ATOM, (node.value, *parts))
