"""Loops as `jax.lax.while_loop`, `jax.lax.fori_loop` and `jax.lax.scan`, where each turn provably gives its names
values of the shapes and types that they had, and does nothing else."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..plan import Plan, Whole
from ..training.loops import fresh, indent_unit
from ..writer import Writer
from .region import (
    follow,
    free_to_rewrite,
    function,
    joined,
    known_before,
    packed,
    read_after,
    space_above,
    stored_names,
    text_of,
    value_of,
)
from .terms import SCALAR, Prover, Term, float_names
from .truth import is_surely_tensor


@dataclass(frozen=True)
class Carry:
    """The names that go from turn to turn, with their terms."""

    terms: Mapping[str, Term]

    @property
    def names(self) -> list[str]:
        return list(self.terms)

    @property
    def numbers(self) -> list[str]:
        return [name for name, term in self.terms.items() if term.number]


def plan_loops(plan: Plan) -> None:
    """Rewrite what is proved; it goes into `plan.settled`."""
    for loop in plan.unit.tree.all(ast.While):
        if not loop.orelse and free_to_rewrite(plan, loop):
            _while(plan, loop)
    for counted in plan.unit.tree.all(ast.For):
        if not counted.orelse and isinstance(counted.target, ast.Name) and free_to_rewrite(plan, counted):
            _for(plan, counted, counted.target)


def _carry(
    plan: Plan, prover: Prover, loop: ast.While | ast.For, body: Sequence[ast.stmt], env: Mapping[str, Term]
) -> Carry | None:
    """What a loop carries; None unless all of it is known before, and keeps its shape and type."""
    names = stored_names(body)
    start = {n: t for n in sorted(names) if (t := known_before(plan, prover, loop, n)) is not None}
    done = follow(prover, body, {**env, **start})
    if done is None:
        return None
    tested = {n.id for n in ast.walk(loop.test) if isinstance(n, ast.Name)} if isinstance(loop, ast.While) else set()
    wanted = (done.reads | tested | read_after(plan, loop, names)) & names
    carried = [n for n in done.assigned if n in wanted]
    if not carried or not all(n in start and done.assigned[n].same(start[n]) for n in carried):
        return None
    if any(isinstance(s, ast.AugAssign) and _is_parameter(plan, loop, s) for s in body):
        return None  # torch changes the caller's tensor
    return Carry({n: start[n] for n in carried})


def _is_parameter(plan: Plan, loop: ast.stmt, stmt: ast.AugAssign) -> bool:
    home = plan.unit.tree.function(loop)
    scope = plan.unit.scopes.of.get(home) if home is not None else None
    name = stmt.target.id if isinstance(stmt.target, ast.Name) else ""
    return scope is None or any(b.kind == "param" for b in scope.bindings.get(name, []))


def _while(plan: Plan, loop: ast.While) -> None:
    prover = Prover(plan.unit, float_names(plan.unit, loop.test))
    if not is_surely_tensor(plan.unit, loop.test) or _differentiated(plan, loop):
        return
    carry = _carry(plan, prover, loop, loop.body, {})
    if carry is None or not _plain_numbers(plan, loop, carry):
        return
    test = prover.term(loop.test, carry.terms)
    if test is None or test.shape != SCALAR or test.number:
        return
    unit, names = indent_unit(plan, loop), carry.names
    result = f"{joined(names)} = jax.lax.while_loop"
    if len(names) == 1 and len(loop.body) == 1:
        head = f"lambda {names[0]}: "
        plan.lines[loop] = lambda w: [
            f"{result}({head}{w.at_level(loop.test, 1)}, {head}{value_of(w, loop.body[0])}, {names[0]})"
        ]
    else:
        test_name = fresh(plan, loop, ("keep_going", "unfinished"))
        body_name = fresh(plan, loop, ("body", "turn"))
        space_above(plan, loop)

        def build(writer: Writer) -> list[str]:
            test_lines = _function(plan, test_name, names, [], writer.text(loop.test), unit)
            body = [text_of(writer, s) for s in loop.body]
            body_lines = _function(plan, body_name, names, body, joined(names), unit)
            return [*test_lines, *body_lines, f"{result}({test_name}, {body_name}, {packed(names)})"]

        plan.lines[loop] = build
    _settle(plan, loop, loop.test, "jax.lax.while_loop", carry)


def _function(plan: Plan, name: str, names: Sequence[str], body: list[str], result: str, unit: str) -> list[str]:
    """A function of the state of a loop; several names are unpacked from it."""
    state = names[0] if len(names) == 1 else "state"
    unpacked = [] if len(names) == 1 else [f"{joined(names)} = state"]
    lines = function(name, [state], [*unpacked, *body], result, unit)
    lines[-1] += plan.unit.tree.newline
    return lines


def _differentiated(plan: Plan, loop: ast.While) -> bool:
    """Whether gradients may go through a loop: while_loop has none in reverse mode."""
    home = plan.unit.tree.function(loop)
    if home is None:
        return True
    if any("no_grad" in ast.dump(d) or "inference_mode" in ast.dump(d) for d in home.decorator_list):
        return False
    facts = plan.unit.functions.get(home)
    if facts is not None and facts.owner is not None and facts.owner.is_module:
        return True
    return any("backward(" in u.source.text or "autograd" in u.source.text for u in plan.project.units)


def _plain_numbers(plan: Plan, loop: ast.stmt, carry: Carry) -> bool:
    """Whether nothing uses the Python numbers of the state afterwards: they would be arrays."""
    return not read_after(plan, loop, set(carry.numbers))


def _for(plan: Plan, loop: ast.For, target: ast.Name) -> None:
    bounds = _bounds(plan, loop)
    if bounds is None or read_after(plan, loop, {target.id}):
        return
    prover = Prover(plan.unit)
    env = {target.id: Term(SCALAR, "int", counter=True)}
    if target.id in stored_names(loop.body):
        return
    appended = _appended(plan, loop)
    if appended is not None:
        _scan(plan, prover, loop, target, appended, env)
        return
    carry = _carry(plan, prover, loop, loop.body, env)
    if carry is None or carry.numbers:
        return
    names, unit = carry.names, indent_unit(plan, loop)
    result = f"{joined(names)} = jax.lax.fori_loop"
    if len(names) == 1 and len(loop.body) == 1:
        head = f"lambda {target.id}, {names[0]}: "
        plan.lines[loop] = lambda w: [f"{result}({_range(w, bounds)}, {head}{value_of(w, loop.body[0])}, {names[0]})"]
    else:
        body_name = fresh(plan, loop, ("body", "turn"))
        space_above(plan, loop)
        state = names[0] if len(names) == 1 else "state"
        unpacked = [] if len(names) == 1 else [f"{joined(names)} = state"]

        def build(writer: Writer) -> list[str]:
            lines = [*unpacked, *(text_of(writer, s) for s in loop.body)]
            done = function(body_name, [target.id, state], lines, joined(names), unit)
            done[-1] += plan.unit.tree.newline
            return [*done, f"{result}({_range(writer, bounds)}, {body_name}, {packed(names)})"]

        plan.lines[loop] = build
    _settle(plan, loop, loop.iter, "jax.lax.fori_loop", carry)


def _bounds(plan: Plan, loop: ast.For) -> list[ast.expr] | None:
    """The bounds of `range(n)` or `range(a, b)`, when they are plain integers."""
    call = loop.iter
    if not isinstance(call, ast.Call) or plan.unit.resolve(call.func) != "builtins.range" or call.keywords:
        return None
    whole = all(plan.unit.kind(a).tag == "int" or isinstance(a, ast.Constant) for a in call.args)
    return list(call.args) if whole and len(call.args) in (1, 2) else None


def _range(writer: Writer, bounds: Sequence[ast.expr]) -> str:
    low = writer.at_level(bounds[0], 1) if len(bounds) == 2 else "0"
    return f"{low}, {writer.at_level(bounds[-1], 1)}"


@dataclass(frozen=True)
class Appended:
    """A list that is empty before a loop, gets one value in each turn, and is stacked once after it."""

    name: str
    made: ast.Assign
    stmt: ast.Expr
    value: ast.expr
    stack: ast.Call
    dim: int


def _appended(plan: Plan, loop: ast.For) -> Appended | None:
    unit, tree = plan.unit, plan.unit.tree
    home, last = tree.function(loop), loop.body[-1]
    call = last.value if isinstance(last, ast.Expr) else None
    if home is None or not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return None
    held = call.func.value
    if call.func.attr != "append" or not isinstance(held, ast.Name) or len(call.args) != 1:
        return None
    uses = [n for n in tree.walk(home) if isinstance(n, ast.Name) and n.id == held.id]
    owner = tree.parents[loop]
    block = getattr(owner, "body", [])
    if len(uses) != 3 or loop not in block:
        return None
    made, stack = tree.parents[uses[0]], tree.parents[uses[2]]
    if not isinstance(made, ast.Assign) or not isinstance(made.value, ast.List) or made.value.elts:
        return None
    if made not in block or len(made.targets) != 1 or not plan.alone_to_end(made):
        return None
    if not isinstance(stack, ast.Call) or unit.resolve(stack.func) != "torch.stack" or uses[2] is not stack.args[0]:
        return None
    given = [*stack.args[1:], *(k.value for k in stack.keywords if k.arg == "dim")]
    dims = [g.value for g in given if isinstance(g, ast.Constant) and type(g.value) is int]
    if len(given) != len(stack.args) - 1 + len(stack.keywords) or len(dims) != len(given):
        return None
    assert isinstance(last, ast.Expr)
    return Appended(held.id, made, last, call.args[0], stack, dims[0] if dims else 0)


def _scan(
    plan: Plan, prover: Prover, loop: ast.For, target: ast.Name, list_: Appended, env: Mapping[str, Term]
) -> None:
    body = loop.body[:-1]
    if not body or list_.made in plan.before or list_.dim < 0:
        return
    carry = _carry(plan, prover, loop, body, env)
    if carry is None or carry.numbers:
        return
    done = follow(prover, body, {**env, **carry.terms})
    value = prover.term(list_.value, {**env, **carry.terms, **(done.assigned if done is not None else {})})
    if done is None or value is None or value.number:
        return
    names, unit = carry.names, indent_unit(plan, loop)
    body_name = fresh(plan, loop, ("body", "turn"))
    state = names[0] if len(names) == 1 else "state"
    unpacked = [] if len(names) == 1 else [f"{joined(names)} = state"]
    space_above(plan, loop, list_.made)

    def build(writer: Writer) -> list[str]:
        lines = [*unpacked, *(text_of(writer, s) for s in body)]
        result = f"{packed(names)}, {writer.at_level(list_.value, 1)}"
        made = function(body_name, [state, target.id], lines, result, unit)
        made[-1] += plan.unit.tree.newline
        bounds = _range(writer, loop.iter.args).removeprefix("0, ")  # type: ignore[attr-defined]
        return [
            *made,
            f"{packed(names)}, {list_.name} = jax.lax.scan({body_name}, {packed(names)}, jnp.arange({bounds}))",
        ]

    plan.lines[loop] = build
    plan.lines[list_.made] = lambda _: []
    moved = f"jnp.moveaxis({list_.name}, 0, {list_.dim})" if list_.dim else list_.name
    plan.whole[list_.stack] = Whole(lambda _: moved, 15)
    _settle(plan, loop, loop.iter, "jax.lax.scan", carry)


def _settle(plan: Plan, loop: ast.stmt, place: ast.AST, form: str, carry: Carry) -> None:
    plan.settled.update({loop, *plan.unit.tree.walk(loop)})
    plan.found("JM002", place, "torch.Tensor.__bool__", f"a loop -> {form}, which carries {joined(carry.names)}",
               rule="control flow: lax")  # fmt: skip
