"""Places that a write goes to: a base that can be bound again, and the views between it and the write."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...read.unit import Unit
from ...read.views import Modules, is_view
from ..indexing import adds_axis_order, index_parts
from ..writer import Writer
from .contiguous import is_contiguous
from .elements import ELEMENT
from .parts import along, as_int, axes_order, literal, pieces

if TYPE_CHECKING:
    from .chains import Chain

NAMELESS = "what is written to has no name"
BEHIND = "`.data` is written to, which autograd does not see"
COPIES = "the write goes through a view that may be a copy: nothing shows that the tensor is contiguous"
AUTOGRAD = re.compile(r"backward|autograd|requires_grad|\.grad\b|Parameter|\bnn\.[A-Z]|optim")
TRANSPOSED = frozenset({"t", "T", "mT"})
SWAPS = frozenset({"transpose", "swapaxes", "swapdims"})


@dataclass(frozen=True)
class Step:
    """One view on the way: an index, or a method that has an inverse."""

    name: str  # "index", "T", "mT", "swapaxes", "transpose", "reshape", "expand"
    parts: tuple[ast.expr, ...] = ()

    def view(self, text: str, writer: Writer) -> str:
        """The view of the array `text`."""
        if self.name == "index":
            return f"{text}[{self.inside(writer)}]"
        if self.name in TRANSPOSED:
            return f"{text}.{'T' if self.name == 't' else self.name}"
        if self.name == "expand":
            return f"jnp.expand_dims({text}, {self.inside(writer)})"
        return f"{text}.{self.name}({self.inside(writer)})"

    def back(self, new: str, text: str, writer: Writer) -> str:
        """`text` with its view replaced by the array `new`."""
        if self.name == "index":
            return f"{text}.at[{self.inside(writer)}].set({new})"
        if self.name == "transpose":
            order = [ast.literal_eval(p) for p in self.parts]
            return f"{new}.transpose({', '.join(str(order.index(i)) for i in range(len(order)))})"
        if self.name == "reshape":
            return f"{new}.reshape({text}.shape)"
        if self.name == "expand":
            return f"jnp.squeeze({new}, axis={self.inside(writer)})"
        return self.view(new, writer)

    def inside(self, writer: Writer) -> str:
        texts = [_part(p, writer) for p in self.parts]
        return ", ".join(texts) if texts or self.name != "index" else "()"


@dataclass(frozen=True)
class Place:
    """`base` is a name or attribute, `steps` lead from it to what is written, `nodes` are the expressions between.

    `renewed` are other names for (views of) the base, with their places: they are bound again after a write. `moved`
    says that the write was written as one to another name, and `through` what that name is a view of. `loops` are loops
    over the base that must count instead. `within` is the container that the base is an item of.
    """

    base: ast.expr
    steps: tuple[Step, ...] = ()
    nodes: tuple[ast.AST, ...] = ()
    problem: str = ""
    renewed: tuple[tuple[str, Place], ...] = ()
    moved: bool = False
    loops: tuple[ast.For, ...] = ()
    through: tuple[Chain, ...] = ()
    within: str = ""

    def view(self, text: str, writer: Writer, count: int | None = None) -> str:
        for step in self.steps[:count]:
            text = step.view(text, writer)
        return text

    def written(self, text: str, last: str, writer: Writer) -> str:
        """The new value of the base when `last` is the new value of what the steps lead to."""
        for index in reversed(range(len(self.steps))):
            last = self.steps[index].back(last, self.view(text, writer, index), writer)
        return last


def find_place(node: ast.expr, unit: Unit) -> Place:
    """The place that writing to the tensor `node` changes. `problem` says why it cannot be bound again, if so."""
    steps: list[Step] = []
    nodes: list[ast.AST] = []
    problem = ""
    while True:
        inner, step, trouble = _peel(node, unit)
        if inner is None or not unit.kind(inner).is_tensor:
            break
        if trouble == COPIES and is_contiguous(inner, unit):
            trouble = ""
        problem = trouble or problem
        nodes.append(node)
        if isinstance(node, ast.Call):
            nodes.append(node.func)
        if step is not None:
            steps.insert(0, step)
        node = inner
    if problem == BEHIND and (Modules(unit).is_variable(node) or not AUTOGRAD.search(unit.source.text)):
        problem = ""
    if not _is_path(node):
        problem = problem or (ELEMENT if isinstance(node, ast.Subscript) else NAMELESS)
    return Place(node, merged(steps, unit), tuple(nodes), problem)


def _part(part: ast.expr, writer: Writer) -> str:
    if not hasattr(part, "lineno"):  # not from the source
        return ast.unparse(part)
    return writer.text(part) if isinstance(part, ast.Slice) else writer.at_level(part, 1)


def _peel(node: ast.expr, unit: Unit) -> tuple[ast.expr | None, Step | None, str]:
    """One view taken off: what it is a view of, the step, and why the write cannot be carried through it."""
    if isinstance(node, ast.Subscript):
        if not unit.kind(node.value).is_tensor:
            return _piece(node, unit)
        parts = index_parts(node.slice)
        return node.value, Step("index", tuple(parts)), ""
    if isinstance(node, ast.Attribute):
        if node.attr in ("T", "mT"):
            return node.value, Step(node.attr), ""
        if node.attr == "data":
            return node.value, None, BEHIND
        return (
            (node.value, None, f"`.{node.attr}` is written to") if unit.kind(node.value).is_tensor else (None, None, "")
        )
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and is_view(node.func.attr):
        return (node.func.value, *_method(node, node.func.attr, unit))
    return None, None, ""


def _piece(node: ast.Subscript, unit: Unit) -> tuple[ast.expr | None, Step | None, str]:
    """`x.unbind(0)[1]` is `x[1]`."""
    number = as_int(node.slice)
    source, found = pieces(node.value, (number if number is not None and number >= 0 else -1) + 1, unit)
    return (source, Step("index", found[-1]), "") if found else (None, None, "")


def _method(node: ast.Call, name: str, unit: Unit) -> tuple[Step | None, str]:
    plain = not node.keywords and not any(isinstance(a, ast.Starred) for a in node.args)
    args = tuple(node.args) if plain else ()
    if name == "t" and not node.args:
        return Step("t"), ""
    if name in SWAPS and len(args) == 2:
        return Step("swapaxes", args), ""
    if name in ("view", "reshape") and args and all(unit.kind(a).tag in ("int", "shape", "tuple") for a in args):
        return Step("reshape", args), "" if name == "view" else COPIES
    if name in ("flatten", "ravel") and not node.args and not node.keywords:
        return Step("reshape", (literal(-1, unit),)), COPIES
    if name == "contiguous" and not node.args and not node.keywords:
        return None, COPIES
    if name == "detach":
        return None, BEHIND
    if name == "unsqueeze" and len(args) == 1:
        return Step("expand", args), ""
    if name == "permute" and (order := axes_order(args)):
        return Step("transpose", tuple(literal(i, unit) for i in order)), ""
    if name in ("select", "narrow") and (parts := along(name, args, unit)):
        return Step("index", parts), ""
    return None, f"the write goes through `.{name}()`, which is not carried back to the tensor"


def merged(steps: Sequence[Step], unit: Unit) -> tuple[Step, ...]:
    """`x[i][j]` is `x[i, j]` when i is nothing but integers."""
    out: list[Step] = []
    for step in steps:
        if out and out[-1].name == step.name == "index" and all(unit.kind(p).tag == "int" for p in out[-1].parts):
            out[-1] = Step("index", (*out[-1].parts, *step.parts))
        else:
            out.append(step)
    return tuple(s for step in out for s in _split(step, unit))


def _split(step: Step, unit: Unit) -> list[Step]:
    """Integers in front of separated tensor indices come first in torch: `x[0, :, i]` is `x[0][:, i]`."""
    if step.name != "index" or adds_axis_order(step.parts, unit) != "integers first":
        return [step]
    count = next(i for i, p in enumerate(step.parts) if unit.kind(p).tag != "int")
    return [Step("index", step.parts[:count]), Step("index", step.parts[count:])]


def _is_path(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)
