"""The step of a loop as a function of its own under nnx.jit, where tracing it is proven to be safe."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...read.kinds import Kind
from ...read.liveness import Liveness
from ...read.scopes import Binding
from ...read.unit import Unit
from ..imports import KNOWN
from ..plan import Plan, Point
from ..writer import Writer
from .flow import block_of, certain, entry_reads, uses
from .loops import fresh, indent_unit
from .roles import function_of, has_parameters, is_model, is_optimizer
from .steps import Routine, Update
from .text import dedented, indented
from .tracing import Tracer

_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_NUMBERS = ("float",)
_HELD = ("int", "bool", "str", "None", "list", "dict", "device", "dtype", "shape", "other", "tuple", "Class")


class NotTraced(Exception):
    """A step stays eager: the text says why, with the line."""


class _Needs(NotTraced):
    """A Python value is read that is made before the step."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text)
        self.name = name


@dataclass(frozen=True)
class Segment:
    """The statements `block[first : last + 1]` that become a function. `late` are those of them that follow its call;
    `top` is the statement before which the function is written, `nested` says that it is one of the same function.
    `numbers` are the names of `x = ….item()`: the function gives the array, the number is read after its call."""

    function: ast.AST
    block: Sequence[ast.stmt]
    first: int
    last: int
    late: tuple[ast.stmt, ...]
    top: ast.stmt
    nested: bool
    numbers: tuple[str, ...] = ()

    @property
    def stmts(self) -> list[ast.stmt]:
        return [s for s in self.block[self.first : self.last + 1] if s not in self.late]


Names = Mapping[ast.Expr, "tuple[str, str] | None"]


def plan_jits(plan: Plan, routines: Sequence[Routine], explicit: Names) -> dict[ast.stmt, str]:
    """Extract the steps that can be traced. Returns for each update its function's name, or "" and why not behind a
    colon."""
    said: dict[ast.stmt, str] = {}
    used: set[str] = set()
    for function in dict.fromkeys(r.function for r in routines):
        mine = [r for r in routines if r.function is function]
        updates = [u for r in mine for u in r.updates]
        for block in {id(u.block): u.block for u in updates}.values():
            inside = [r for r in mine if any(u.block is block for u in r.updates)]
            stmts = [u.stmt for u in updates if u.block is block]
            try:
                segment = _segment(plan, inside, block, explicit)
                name = _name(plan, segment, used)
                _write(plan, segment, name, [u for u in updates if u.block is block], explicit)
                said |= dict.fromkeys(stmts, name)
            except NotTraced as problem:
                said |= dict.fromkeys(stmts, f":{problem}")
    return said


def _name(plan: Plan, segment: Segment, used: set[str]) -> str:
    taken = used | {f.name for f in plan.unit.functions.values()}
    found = next(n for n in ("train_step", "update_step", "jitted_step", *(f"train_step_{i}" for i in range(2, 99)))
                 if n not in taken and fresh(plan, segment.top, (n,)) == n)  # fmt: skip
    used.add(found)
    return found


def _segment(plan: Plan, routines: Sequence[Routine], block: Sequence[ast.stmt], explicit: Names) -> Segment:
    """The statements of a step. Raises NotTraced."""
    tree = plan.unit.tree
    function = routines[0].function
    kept: list[ast.stmt] = []
    for routine in routines:
        if routine.fresh or any(routine.zeros.values()) or any(u.guarded for u in routine.updates):
            raise NotTraced("gradients are carried from one turn of the loop to the next")
        if any(u.block is not block for u in routine.updates):
            raise NotTraced("the step is spread over several blocks")
        if routine.reads:
            raise NotTraced("parameters' gradients are read by name")
        if any(p.source.arrays for p in routine.passes):
            raise NotTraced("it trains single tensors")
        for one in routine.passes:
            if any(block_of(s, tree.parents) is not block for s in one.stmts):
                raise NotTraced("the step is spread over several blocks")
            kept += [*one.stmts, *one.region.stmts, *(s.stmt for s in one.region.splits)]
        kept += [*(u.stmt for u in routine.updates), *(c.stmt for c in routine.clips)]
    if any(s not in block for s in kept):
        raise NotTraced("the step is spread over several blocks")
    places = [block.index(s) for s in kept]
    first, last = min(places), max(places)
    loops = [u for u in tree.ancestors(block[first]) if isinstance(u, _LOOPS) and _inside(plan, u, function)]
    updates = [u for r in routines for u in r.updates]
    nested = isinstance(function, ast.Module) or all(
        u.made is not None and function_of(plan.unit, u.made.call) is function for u in updates
    )
    if nested and not loops:
        raise NotTraced("it is not in a loop")
    tops = [u for u in [block[first], *tree.ancestors(block[first])] if isinstance(u, ast.stmt)]
    top = loops[-1] if nested else tops[-1]
    gone = {z for r in routines for z in r.zeros}
    late = _late(plan, block[first : last + 1], {*kept, *gone})
    while True:
        segment = Segment(function, block, first, last, late, top, nested)
        segment = replace(segment, numbers=tuple(_numbers(plan, segment)))
        try:
            _check(plan, segment, {*gone, *(u.stmt for u in updates)}, routines)
            return segment
        except _Needs as needed:  # a size that is taken just before: `b = real.size(0)`
            made = [i for i in range(first) if needed.name in uses(block[i]).writes]
            if not made:
                raise
            first = made[-1]


def _inside(plan: Plan, node: ast.AST, function: ast.AST) -> bool:
    return isinstance(function, ast.Module) or function in plan.unit.tree.ancestors(node)


def _late(plan: Plan, stmts: Sequence[ast.stmt], kept: set[ast.stmt]) -> tuple[ast.stmt, ...]:
    """Statements after the last forward pass that can follow the step: nothing later in it needs or changes what they
    read or write, as `total += loss.item()`."""
    late: list[ast.stmt] = []
    later_reads: set[str] = set()
    later_writes: set[str] = set()
    for stmt in reversed(stmts):
        found = uses(stmt)
        touched = {n.id for n in ast.walk(stmt) if isinstance(n, ast.Name)}
        models = any(is_model(plan.unit, n) for n in ast.walk(stmt) if isinstance(n, (ast.Name, ast.Attribute)))
        free = not ((found.writes | found.changes) & (later_reads | later_writes)) and not (touched & later_writes)
        if stmt not in kept and free and not models and _acts(plan, stmt):
            late.insert(0, stmt)
            continue
        later_reads |= found.reads
        later_writes |= found.writes | found.changes
    return tuple(late)


def _numbers(plan: Plan, segment: Segment) -> Iterator[str]:
    """Names that are assigned `….item()` once in the step, and not read in it."""
    assigned = [(s, _item(s)) for s in segment.stmts]
    for stmt, receiver in assigned:
        if receiver is None:
            continue
        assert isinstance(stmt, ast.Assign) and isinstance(stmt.targets[0], ast.Name)
        name = stmt.targets[0].id
        others = [s for s in segment.stmts if s is not stmt]
        if not any(name in uses(s).reads | uses(s).writes for s in others):
            yield name


def _item(stmt: ast.stmt) -> ast.expr | None:
    """`x.mean()` of the statement `name = x.mean().item()`."""
    if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1 or not isinstance(stmt.targets[0], ast.Name):
        return None
    call = stmt.value
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "item":
        return call.func.value if not call.args else None
    return None


_HARMLESS = frozenset(
    """
    append extend item detach cpu numpy tolist format join write info debug warning log add_scalar add_scalars print
    set_description set_postfix size dim numel mean sum max min argmax eq float int long view reshape get time
    """.split()  # noqa: SIM905
)
_LEAVING = (ast.Break, ast.Continue, ast.Return, ast.Raise, ast.Assert, ast.Try, ast.With, ast.Global, ast.Nonlocal)


def _acts(plan: Plan, stmt: ast.stmt) -> bool:
    """Whether a statement should stay outside and may follow the step: it cannot be traced, always ends, and calls
    nothing that could look at what is trained."""
    unit = plan.unit
    for node in ast.walk(stmt):
        if isinstance(node, _LEAVING):
            return False
        if isinstance(node, (ast.Name, ast.Attribute)):
            if is_optimizer(unit, node) or unit.kind(node).tag in ("Scheduler", "Function", "Class"):
                return False
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if not (unit.resolve(node.func) or "").startswith("builtins."):
                return False
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr not in _HARMLESS:
            return False
    return bool(Tracer(plan).statements([stmt], ())) or bool(uses(stmt).changes)


def _check(plan: Plan, segment: Segment, known: set[ast.stmt], routines: Sequence[Routine]) -> None:
    """Raise NotTraced with the line that prevents tracing."""
    tree = plan.unit.tree
    stmts = [s for s in segment.stmts if s not in known]
    passes = {s for r in routines for p in r.passes for s in p.stmts}
    clips = {c.stmt: c for r in routines for c in r.clips}
    for stmt in segment.stmts:
        if any(isinstance(n, (ast.Break, ast.Continue, ast.Return)) for n in ast.walk(stmt)):
            raise NotTraced(f"line {tree.position(tree.start(stmt))[0]}: the step may be left half way")
        if not plan.alone(stmt) or (not plan.alone_to_end(stmt) and not _comment(plan, stmt)):
            raise NotTraced("several statements on one line")
    code: list[ast.stmt] = []
    for stmt in stmts:
        if stmt in clips:
            code.append(ast.Expr(clips[stmt].limit))
        elif stmt in passes:
            code += [ast.Expr(x) for r in routines for p in r.passes if stmt in p.stmts for x in p.losses]
        elif (receiver := _item(stmt)) is not None and uses(stmt).writes <= set(segment.numbers):
            code.append(ast.Expr(receiver))
        else:
            code.append(stmt)
    arrays = {n for s in code for n in uses(s).reads if _class(plan, segment, n) == "array"}
    if problem := Tracer(plan).statements(code, arrays):
        raise NotTraced(problem)
    made: set[str] = set()
    for stmt in code:
        _names(plan, segment, stmt, made)
        made |= certain(stmt)
    written = {n for s in stmts for n in uses(s).writes}
    after = _live(plan, segment) & written
    for name in sorted(after):
        kinds = [plan.unit.kind(n) for s in stmts for n in ast.walk(s)
                 if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store)]  # fmt: skip
        if name not in segment.numbers and any(k.tag in _HELD and k.tag not in ("tuple", "list") for k in kinds):
            raise NotTraced(f"`{name}` is a Python value that is read after the step")


def _comment(plan: Plan, stmt: ast.stmt) -> bool:
    tree = plan.unit.tree
    return tree.text[tree.end(stmt) :].partition("\n")[0].strip().startswith("#")


def _names(plan: Plan, segment: Segment, stmt: ast.stmt, made: set[str]) -> None:
    """Refuse names that a function of its own cannot have: Python values that change, what `self` holds. `made` are
    those that the function assigns itself."""
    unit = plan.unit
    line = unit.tree.position(unit.tree.start(stmt))[0] if hasattr(stmt, "lineno") else 0
    for node in ast.walk(stmt):
        if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load) or node.id in made:
            continue
        where = f"line {line or unit.tree.position(unit.tree.start(node))[0]}: "
        if node.id == "self":
            up = unit.tree.parents[node]
            if not isinstance(up, ast.Attribute) or not _held_array(plan, up):
                what = ast.unparse(up) if isinstance(up, ast.Attribute) else "self"
                raise NotTraced(f"{where}`{what}` is no array or module")
        elif _class(plan, segment, node.id, node) == "host":
            raise _Needs(node.id, f"{where}`{node.id}` is a Python value that may change")


def _held_array(plan: Plan, node: ast.Attribute) -> bool:
    kind = plan.unit.kind(node)
    return kind.is_tensor or kind.tag == "Module" or is_model(plan.unit, node) or is_optimizer(plan.unit, node)


def _class(plan: Plan, segment: Segment, name: str, node: ast.Name | None = None) -> str:
    """What a name is to the function: "free" (it may simply be read), "array" (an argument), "host" (neither)."""
    unit = plan.unit
    scope = unit.scope(segment.block[segment.first]).lookup(name)
    if scope is None:
        return "free"
    node = node or _first_read(segment, name)
    kind = unit.kind(node) if node is not None else Kind("unknown")
    bindings = scope.bindings.get(name, [])
    if all(b.kind in ("def", "class", "import", "from") for b in bindings):
        return "free"
    if node is not None and is_optimizer(unit, node):
        return "array"
    varies = _varies(unit, segment, bindings)
    if kind.tag == "Module" and segment.nested and not varies and node is not None and not has_parameters(unit, node):
        return "free"
    if kind.tag == "Module" or (node is not None and is_model(unit, node)) or kind.is_tensor:
        return "array"
    called = node is not None and _is_called(unit.tree.parents, node)
    if segment.nested or scope.kind == "module":
        if not varies:
            return "free"
        return "host" if kind.tag in _HELD or called else "array"
    if kind.tag in _HELD or kind.tag in ("Function", "torch") or called:
        return "host"
    looped = any(isinstance(unit.tree.parents.get(b.node), (*_LOOPS, ast.Tuple, ast.Assign)) for b in bindings)
    given = all(b.kind == "param" for b in bindings) and _fed(unit, segment, name)
    return "array" if kind.tag in _NUMBERS or looped or given else "host"


def _fed(unit: Unit, segment: Segment, name: str) -> bool:
    """Whether a parameter of unknown kind only goes into modules and torch's functions, or is asked for its shape."""
    for stmt in segment.stmts:
        for node in ast.walk(stmt):
            if not isinstance(node, ast.Name) or node.id != name or not isinstance(node.ctx, ast.Load):
                continue
            up = unit.tree.parents[node]
            if not isinstance(up, ast.Call) or up.func is node:
                return False
            torchs = (unit.resolve(up.func) or "").startswith("torch.nn.functional.")
            if not torchs and unit.kind(up.func).tag != "Module" and not is_model(unit, up.func):
                return False
    return True


def _varies(unit: Unit, segment: Segment, bindings: Sequence[Binding]) -> bool:
    """Whether a name may hold another value in another turn of the loop."""
    loop = segment.top if isinstance(segment.top, _LOOPS) else None
    return len(bindings) != 1 or (loop is not None and any(loop in unit.tree.ancestors(b.node) for b in bindings))


def _is_called(parents: Mapping[ast.AST, ast.AST], node: ast.Name) -> bool:
    up = parents.get(node)
    return (isinstance(up, ast.Call) and up.func is node) or isinstance(up, ast.Attribute)


def _first_read(segment: Segment, name: str) -> ast.Name | None:
    return next((n for s in segment.stmts for n in ast.walk(s) if isinstance(n, ast.Name) and n.id == name), None)


def _live(plan: Plan, segment: Segment) -> set[str]:
    """Names that are read after the step, also by what follows it at once."""
    function = segment.function
    body = function.body if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)) else []
    live = set(Liveness(body).after.get(segment.block[segment.last], frozenset()))
    return live | {n for s in segment.late for n in uses(s).reads}


def _write(plan: Plan, segment: Segment, name: str, updates: Sequence[Update], explicit: Names) -> None:
    """Put the function before its loop (or before the outermost definition), and its call in the place of the step."""
    tree = plan.unit.tree
    first, last = segment.block[segment.first], segment.block[segment.last]
    owner = tree.parents[first]
    start = tree.line_starts[tree.position(tree.start(first))[0] - 1]
    stop = tree.end(last)
    transforms = {names[0] for u in updates if (names := explicit.get(u.stmt)) is not None}

    def call(writer: Writer) -> str:
        inside = [p for p in plan.points.get(owner, []) if start <= p.start and p.end <= stop and p.text is not call]
        return _texts(plan, segment, name, writer, inside, (start, stop), transforms)[1]

    def definition(writer: Writer) -> str:
        inside = [p for p in plan.points.get(owner, []) if start <= p.start and p.end <= stop and p.text is not call]
        return _texts(plan, segment, name, writer, inside, (start, stop), transforms)[0]

    plan.point(owner, start, stop, call)
    top = segment.top
    decorators = getattr(top, "decorator_list", [])
    at = tree.start(top) if not decorators else tree.text.rindex("@", 0, tree.start(decorators[0]))
    line = tree.line_starts[tree.position(at)[0] - 1]
    plan.point(tree.parents[top], line, line, definition)


def _texts(
    plan: Plan,
    segment: Segment,
    name: str,
    writer: Writer,
    points: list[Point],
    span: tuple[int, int],
    transforms: set[str],
) -> tuple[str, str]:
    """The text of the function and of its call."""
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
    held = _held(parsed)
    short = {text: _parameter(text, reads | writes) for text in held}
    inputs = [n for n in _in_order(parsed, reads) if n != "self" and not _is_free(plan, segment, n, transforms)]
    inputs.sort(key=lambda n: _rank(plan, segment, n))
    given = [*held, *inputs]
    live = _live(plan, segment)
    outputs = [n for n in _in_order(parsed, writes) if n in live or (n in reads and not _known(plan, segment, n))]
    outputs.sort(key=lambda n: _rank(plan, segment, n))
    for text, parameter in short.items():
        body = re.sub(rf"(?<![\w.]){re.escape(text)}\b", parameter, body)
    unit = indent_unit(plan, segment.top) if tree.indent(segment.top) else "    "
    result = f"{newline}return {_tuple(outputs)}" if outputs else ""
    head = f"@nnx.jit{newline}def {name}({', '.join([*short.values(), *inputs])}):{newline}"
    gap = newline * (2 if not tree.indent(segment.top) else 1)
    whole = indented(f"{head}{indented(body + result, unit)}{newline}", tree.indent(segment.top))
    above = newline if segment.nested and _code_above(plan, segment.top) else ""
    target = f"{_tuple(outputs)} = " if outputs else ""
    line = f"{indent}{target}{name}({', '.join(given)})"
    if len(line) > 120:
        step = indent_unit(plan, segment.block[segment.first])
        line = f"{indent}{target}{name}({newline}{indent}{step}{', '.join(given)}{newline}{indent})"
    line += "".join(f"{newline}{indent}{n} = {n}.item()" for n in segment.numbers if n in outputs)
    late = "".join(newline + indent + _statement(writer, s) for s in segment.late)
    return f"{above}{whole}{gap}", f"{line}{late}"


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


def _held(parsed: list[ast.stmt]) -> list[str]:
    """The attributes of self that are read, in order."""
    found: dict[str, None] = {}
    for stmt in parsed:
        for node in ast.walk(stmt):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
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
    node = _first_read(segment, name)
    if node is not None and is_model(plan.unit, node):
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
        return _class(plan, segment, name) == "free"
    return name in KNOWN or name in plan.catalogue or name in _BUILT


_BUILT = frozenset(dir(__import__("builtins")))


def _tuple(names: Sequence[str]) -> str:
    return ", ".join(names)
