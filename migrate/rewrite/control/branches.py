"""`if` and conditional expressions on tensor values as `jnp.where` and `jax.lax.cond`, where that is proved to be the
same: both branches give the same names values of the same shapes and types, and do nothing else.

`jnp.where` computes both sides and differentiates both: it is used only where no gradient can be infinite.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ...rulebook.precedence import ATOM
from ..plan import Plan, Whole
from ..training.loops import fresh, indent_unit
from ..writer import Writer
from .region import (
    follow,
    free_to_rewrite,
    function,
    joined,
    known_before,
    read_after,
    space_above,
    stored_names,
    text_of,
    value_of,
)
from .terms import SCALAR, Prover, Term, float_names
from .truth import is_surely_tensor

COND = "jax.lax.cond"


def plan_branches(plan: Plan) -> None:
    """Rewrite what is proved; it goes into `plan.settled`, so that nobody reports it."""
    for choice in plan.unit.tree.all(ast.IfExp):
        _expression(plan, choice)
    for stmt in plan.unit.tree.all(ast.If):
        test, yes, no = _sides(stmt)
        prover = _prover(plan, test)
        if prover is None or any(isinstance(s, ast.If) and s in plan.settled for s in stmt.body):
            continue
        if not _returns(plan, prover, stmt, test, (yes, no)):
            _assigns(plan, prover, stmt, test, (yes, no))


def _sides(stmt: ast.If) -> tuple[ast.expr, list[ast.stmt], list[ast.stmt]]:
    """The condition and its branches; `not` changes them over."""
    if isinstance(stmt.test, ast.UnaryOp) and isinstance(stmt.test.op, ast.Not):
        return stmt.test.operand, stmt.orelse, stmt.body
    return stmt.test, stmt.body, stmt.orelse


def _prover(plan: Plan, test: ast.expr) -> Prover | None:
    """What proves expressions after a condition, if the condition is a tensor with one element and no dimensions."""
    if not is_surely_tensor(plan.unit, test):
        return None
    prover = Prover(plan.unit, float_names(plan.unit, test))
    term = prover.term(test, {})
    return prover if term is not None and term.shape == SCALAR and not term.number else None


def _expression(plan: Plan, node: ast.IfExp) -> None:
    test, yes, no = node.test, node.body, node.orelse
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, yes, no = test.operand, no, yes
    prover = _prover(plan, test)
    if prover is None or plan.unit.tree.comments_in(plan.unit.tree.start(node), plan.unit.tree.end(node)):
        return
    terms = prover.term(yes, {}), prover.term(no, {})
    if not _agree(*terms):
        return
    form = _form(terms)
    plan.whole[node] = Whole(
        lambda w: _call(form, w.at_level(test, 1), w.at_level(yes, 1), w.at_level(no, 1)), ATOM, (test, yes, no)
    )
    _settle(plan, node, node, form)


def _agree(yes: Term | None, no: Term | None) -> bool:
    return yes is not None and no is not None and not yes.number and yes.same(no)


def _form(terms: Sequence[Term | None]) -> str:
    """`jnp.where` promotes its operands without a word: it is for types that are certainly equal."""
    alike = len({t.dtype for t in terms if t is not None}) == 1
    return "jnp.where" if alike and all(t is not None and t.safe for t in terms) else COND


def _call(form: str, test: str, yes: str, no: str) -> str:
    if form == COND:
        yes, no = f"lambda: {yes}", f"lambda: {no}"
    return f"{form}({test}, {yes}, {no})"


def _settle(plan: Plan, node: ast.If | ast.IfExp, place: ast.AST, form: str) -> None:
    plan.settled.update({node, *plan.unit.tree.walk(node.test)})
    plan.found("JM002", place, "torch.Tensor.__bool__", f"a branch on the value of a tensor -> {form}",
               rule="control flow: lax")  # fmt: skip


def _returns(
    plan: Plan, prover: Prover, stmt: ast.If, test: ast.expr, sides: tuple[list[ast.stmt], list[ast.stmt]]
) -> bool:
    """`if test: return a` with `else: return b`, or with `return b` right after it."""
    rest = None
    if not stmt.orelse:
        block = _block(plan, stmt)
        at = block.index(stmt) + 1
        rest = block[at] if at < len(block) else None
        sides = tuple(side or ([rest] if rest is not None else []) for side in sides)  # type: ignore[assignment]
    values = [s[0].value if len(s) == 1 and isinstance(s[0], ast.Return) else None for s in sides]
    yes, no = values
    if yes is None or no is None or not free_to_rewrite(plan, stmt, rest):
        return False
    if rest is not None and rest in plan.before:
        return False
    terms = prover.term(yes, {}), prover.term(no, {})
    if not _agree(*terms):
        return False
    form = _form(terms)
    plan.lines[stmt] = lambda w: [f"return {_call(form, w.at_level(test, 1), w.at_level(yes, 1), w.at_level(no, 1))}"]
    if rest is not None:
        plan.lines[rest] = lambda _: []
    _settle(plan, stmt, stmt.test, form)
    return True


def _block(plan: Plan, stmt: ast.stmt) -> list[ast.stmt]:
    owner = plan.unit.tree.parents[stmt]
    blocks = [getattr(owner, name, None) or [] for name in ("body", "orelse", "finalbody")]
    return next((b for b in blocks if stmt in b), [stmt])


def _assigns(
    plan: Plan, prover: Prover, stmt: ast.If, test: ast.expr, sides: tuple[list[ast.stmt], list[ast.stmt]]
) -> None:
    names = stored_names([*sides[0], *sides[1]])
    env = {name: term for name in sorted(names) if (term := known_before(plan, prover, stmt, name)) is not None}
    bodies = [follow(prover, side, env) for side in sides]
    yes, no = bodies
    if yes is None or no is None or not free_to_rewrite(plan, stmt) or _is_elif(plan, stmt):
        return
    if any(isinstance(s, ast.AugAssign) and _is_parameter(plan, s) for side in sides for s in side):
        return  # torch changes the caller's tensor
    order = list(dict.fromkeys([*yes.assigned, *no.assigned]))
    results = [n for n in order if n in read_after(plan, stmt, names)]
    terms = [(yes.assigned.get(n, env.get(n)), no.assigned.get(n, env.get(n))) for n in results]
    if not results or not all(_agree(*pair) for pair in terms):
        return
    if any(body.reads & names - env.keys() for body in (yes, no)):
        return
    if len(results) == 1 and len(names) == 1 and all(len(side) <= 1 for side in sides):
        form = _form(terms[0])
        plan.lines[stmt] = lambda w: [f"{results[0]} = {_one_line(w, form, test, sides, results[0])}"]
        _settle(plan, stmt, stmt.test, form)
        return
    given = [
        n for n in order if any(n in body.reads or (n in results and n not in body.assigned) for body in (yes, no))
    ]
    _functions(plan, stmt, test, sides, results, given)


def _is_elif(plan: Plan, stmt: ast.If) -> bool:
    up = plan.unit.tree.parents[stmt]
    return isinstance(up, ast.If) and up.orelse == [stmt]


def _is_parameter(plan: Plan, stmt: ast.AugAssign) -> bool:
    scope = plan.unit.scopes.of.get(plan.unit.tree.function(stmt))  # type: ignore[arg-type]
    name = stmt.target.id if isinstance(stmt.target, ast.Name) else ""
    return scope is None or any(b.kind == "param" for b in scope.bindings.get(name, []))


def _one_line(writer: Writer, form: str, test: ast.expr, sides: Sequence[Sequence[ast.stmt]], name: str) -> str:
    yes, no = (value_of(writer, side[0]) if side else name for side in sides)
    return _call(form, writer.at_level(test, 1), yes, no)


def _functions(
    plan: Plan,
    stmt: ast.If,
    test: ast.expr,
    sides: Sequence[Sequence[ast.stmt]],
    results: Sequence[str],
    given: Sequence[str],
) -> None:
    """Both branches as local functions, of the names that they change."""
    heads = fresh(plan, stmt, ("if_true", "when_true")), fresh(plan, stmt, ("if_false", "when_false"))
    unit, newline = indent_unit(plan, stmt), plan.unit.tree.newline
    space_above(plan, stmt)

    def build(writer: Writer) -> list[str]:
        lines: list[str] = []
        for head, side in zip(heads, sides, strict=True):
            body = [text_of(writer, s) for s in side]
            lines += function(head, given, body, joined(results), unit)
            lines[-1] += newline  # a blank line, without the indent of others
        arguments = ", ".join([writer.at_level(test, 1), *heads, *given])
        return [*lines, f"{joined(results)} = {COND}({arguments})"]

    plan.lines[stmt] = build
    _settle(plan, stmt, stmt.test, COND)
