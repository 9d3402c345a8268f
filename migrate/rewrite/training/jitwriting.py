"""A jitted step, written: the function, what binds it to its modules, and its call."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from ..imports import KNOWN
from ..plan import Build, Plan, Point
from ..writer import Writer
from .callees import is_backward
from .flow import entry_reads, uses
from .jitnames import Segment, class_of, first_read, live_after
from .loops import indent_unit
from .roles import is_model, is_optimizer
from .steps import Update
from .text import dedented, indented

Names = Mapping[ast.Expr, "tuple[str, str] | None"]
_WIDTH = 120
_BUILT = frozenset(dir(__import__("builtins")))


@dataclass(frozen=True)
class Written:
    """The texts of the function, of the line that binds it, and of its call."""

    function: str
    binding: str
    call: str


@dataclass(frozen=True)
class Step:
    """A segment, the name of its function, and the updates in it."""

    segment: Segment
    name: str
    updates: tuple[Update, ...]


def write_steps(plan: Plan, steps: Sequence[Step], explicit: Names) -> None:
    """Put each function before its loop (or before the outermost definition), what binds it before the loop that leaves
    its modules alone, and its call in the place of the step."""
    tree = plan.unit.tree
    bindings: list[tuple[ast.stmt, Build]] = []
    tops: set[ast.stmt] = set()
    for step in steps:
        segment = step.segment
        first, last = segment.block[segment.first], segment.block[segment.last]
        goes = isinstance(last, ast.Expr) and is_backward(last.value)  # with the whole of its line
        stop = _lines_of(plan, last)[1] if goes else tree.end(last)
        written = _writing(plan, step, (_line_of(plan, first), stop), explicit, segment.top in tops)
        above = _line_of(plan, segment.top)
        plan.point(tree.parents[segment.top], above, above, lambda w, written=written: written(w).function)  # type: ignore[misc]
        tops.add(segment.top)
        if segment.cached is not None:
            bindings.append((segment.cached, lambda w, written=written: written(w).binding))  # type: ignore[misc]
    for stmt, text in bindings:  # behind all functions that stand at the same place
        plan.point(tree.parents[stmt], _line_of(plan, stmt), _line_of(plan, stmt), text)


def _writing(plan: Plan, step: Step, span: tuple[int, int], explicit: Names, more: bool) -> Callable[[Writer], Written]:
    """Put the call in the place of the step, and say how all its texts are made. `more`: another function stands above
    this one."""
    owner = plan.unit.tree.parents[step.segment.block[step.segment.first]]
    transforms = {names[0] for u in step.updates if (names := explicit.get(u.stmt)) is not None}

    def written(writer: Writer) -> Written:
        inside = [p for p in plan.points.get(owner, []) if span[0] <= p.start and p.end <= span[1]]
        points = [p for p in inside if p.text is not call]
        return _texts(plan, step.segment, step.name, writer, points, span, transforms, more)

    def call(writer: Writer) -> str:
        return written(writer).call

    plan.point(owner, span[0], span[1], call)
    return written


def _line_of(plan: Plan, stmt: ast.stmt) -> int:
    """The start of the line on which a statement, or its first decorator, begins."""
    tree = plan.unit.tree
    decorators = getattr(stmt, "decorator_list", [])
    at = tree.start(stmt) if not decorators else tree.text.rindex("@", 0, tree.start(decorators[0]))
    return tree.line_starts[tree.position(at)[0] - 1]


def _texts(
    plan: Plan,
    segment: Segment,
    name: str,
    writer: Writer,
    points: list[Point],
    span: tuple[int, int],
    transforms: set[str],
    more: bool,
) -> Written:
    tree = plan.unit.tree
    newline = tree.newline
    indent = tree.indent(segment.block[segment.first])
    removed = [Point(*_lines_of(plan, s), "") for s in segment.late]
    body = writer.splice_range(tree.parents[segment.block[segment.first]], *span, [*points, *removed])
    body = dedented(body, indent).strip("\r\n")
    for number in segment.numbers:
        body = re.sub(rf"^({number} = .*)\.item\(\)$", r"\1", body, flags=re.MULTILINE)
    parsed = ast.parse(body).body
    reads, writes = entry_reads(parsed), uses(parsed).writes
    inputs = [n for n in _in_order(parsed, reads) if n != "self" and not _is_free(plan, segment, n, transforms)]
    inputs.sort(key=lambda n: _rank(plan, segment, n))
    owners = {"self", *(n for n in inputs if _known(plan, segment, n) and class_of(plan, segment, n) == "parts")}
    inputs = [n for n in inputs if n not in owners]
    given = [*_held(parsed, owners), *inputs]
    given.sort(key=lambda text: segment.bound.index(text) if text in segment.bound else len(segment.bound))
    parameters = {text: _parameter(text, reads | writes) if "." in text else text for text in given}
    live = live_after(plan, segment)
    own = (reads | set(segment.carried)) - set(segment.dropped)
    outputs = [n for n in _in_order(parsed, writes) if n in live or (n in own and not _known(plan, segment, n))]
    outputs.sort(key=lambda n: _rank(plan, segment, n))
    for text, parameter in parameters.items():
        if text != parameter:
            body = re.sub(rf"(?<![\w.]){re.escape(text)}\b", parameter, body)
    unit = indent_unit(plan, segment.top) if tree.indent(segment.top) else "    "
    result = f"{newline}return {_tuple(outputs)}" if outputs else ""
    head = f"@nnx.jit{newline}def {name}({', '.join(parameters.values())}):{newline}"
    gap = newline * (2 if not tree.indent(segment.top) else 1)
    whole = indented(f"{head}{indented(body + result, unit)}{newline}", tree.indent(segment.top))
    above = newline if segment.nested and not more and _code_above(plan, segment.top) else ""
    binding = ""
    if segment.cached is not None and (bound := [text for text in given if text in segment.bound]):
        line = f"cached_{name} = nnx.cached_partial({', '.join([name, *bound])})"
        binding = tree.indent(segment.cached) + line + newline
        name, given = f"cached_{name}", given[len(bound) :]
    target = f"{_tuple(outputs)} = " if outputs else ""
    line = f"{indent}{target}{name}({', '.join(given)})"
    if len(line) > _WIDTH:
        step = indent_unit(plan, segment.block[segment.first])
        line = f"{indent}{target}{name}({newline}{indent}{step}{', '.join(given)}{newline}{indent})"
    line += "".join(f"{newline}{indent}{n} = {n}.item()" for n in segment.numbers if n in outputs)
    late = "".join(newline + indent + _statement(writer, s) for s in segment.late)
    if tree.text[span[1] - 1] == "\n":
        late += newline
    return Written(f"{above}{whole}{gap}", binding, f"{line}{late}")


def _statement(writer: Writer, stmt: ast.stmt) -> str:
    """A statement's text with what stands before and after it."""
    return "".join(text for _, _, text in writer._statement(stmt)) if stmt in writer.touched else writer.text(stmt)


def _lines_of(plan: Plan, stmt: ast.stmt) -> tuple[int, int]:
    """The span of a statement's lines, with the line end."""
    tree = plan.unit.tree
    start = tree.line_starts[tree.position(tree.start(stmt))[0] - 1]
    line = tree.position(tree.end(stmt))[0]
    return start, tree.line_starts[line] if line < len(tree.line_starts) else len(tree.text)


def _code_above(plan: Plan, stmt: ast.stmt) -> bool:
    tree = plan.unit.tree
    line = tree.position(tree.start(stmt))[0] - 1
    text = tree.text[tree.line_starts[line - 1] : tree.line_starts[line]].strip() if line > 0 else ""
    return bool(text) and not text.endswith(":") and not text.startswith("#")


def _held(parsed: list[ast.stmt], owners: Collection[str]) -> list[str]:
    """The attributes of self, and of the other `owners`, that are read, in order."""
    found: dict[str, None] = {}
    for stmt in parsed:
        for node in ast.walk(stmt):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in owners:
                found[ast.unparse(node)] = None
    return list(found)


def _parameter(text: str, taken: set[str]) -> str:
    short = text.rpartition(".")[2]
    return short if short not in taken else text.replace(".", "_")


def _in_order(parsed: list[ast.stmt], names: set[str]) -> list[str]:
    seen: dict[str, None] = {}
    nodes = [n for s in parsed for n in ast.walk(s) if isinstance(n, ast.Name) and n.id in names]
    for node in sorted(nodes, key=lambda n: (n.lineno, n.col_offset)):
        seen[node.id] = None
    return list(seen)


def _rank(plan: Plan, segment: Segment, name: str) -> int:
    """Modules first, then optimizers and their states, then the batch, keys last."""
    node = first_read(segment, name)
    if name in segment.models or (node is not None and is_model(plan.unit, node)):
        return 0
    if (node is not None and is_optimizer(plan.unit, node)) or name.endswith("_state"):
        return 1
    return 3 if name == "key" else 2


def _known(plan: Plan, segment: Segment, name: str) -> bool:
    """Whether the name is the user's."""
    return plan.unit.scope(segment.block[segment.first]).lookup(name) is not None


def _is_free(plan: Plan, segment: Segment, name: str, transforms: set[str]) -> bool:
    if name in transforms:
        return True
    if _known(plan, segment, name):
        return class_of(plan, segment, name) == "free"
    return name in KNOWN or name in plan.catalogue or name in _BUILT


def _tuple(names: Sequence[str]) -> str:
    return ", ".join(names)
