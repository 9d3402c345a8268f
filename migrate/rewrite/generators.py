"""`torch.Generator` objects: a key variable each, advanced by split.

Good: `g = torch.Generator().manual_seed(7)` -> `g = jax.random.key(7)`, and `torch.randn(3, generator=g)` draws from a
subkey of `g`. A generator that crosses functions is state that its callers share: it is left (JM203).
"""

from __future__ import annotations

import ast

from ..read.needs import draws, generator_argument
from .plan import Plan

DEFAULT_SEED = 0


def plan_generators(plan: Plan) -> None:
    """Decide every Generator that a function makes, seeds and draws from itself; refuse draws from others."""
    tree = plan.unit.tree
    made = {n.targets[0].id: n for n in tree.all(ast.Assign) if _plain(plan, n)}  # type: ignore[attr-defined]
    shared = {name for name, stmt in made.items() if _escapes(plan, name, stmt)}
    for name, stmt in made.items():
        if name not in shared:
            _make(plan, stmt)
    for node in tree.all(ast.Call):
        if node in plan.taken:
            continue
        used = generator_argument(node)
        if used is not None and _draws(plan, node) and fresh_key(plan, used):
            plan.taken.update(ast.walk(used))
            plan.found("JM121", used, "torch.Generator", "a Generator becomes a key: another stream")
        elif used is not None and _draws(plan, node):
            local = isinstance(used, ast.Name) and used.id in made and used.id not in shared
            if not local or tree.function(made[used.id]) is not tree.function(node):  # type: ignore[attr-defined]
                plan.taken.update((node, node.func))
                plan.found("JM203", node, "torch.Generator", "the generator comes from elsewhere: its state is shared",
                           advice="Pass a key and split it here.")  # fmt: skip
        _reseed(plan, node, made, shared)


def _draws(plan: Plan, call: ast.Call) -> bool:
    """Whether a call draws with its generator: a loader that does not shuffle only hands it to workers."""
    dotted = plan.unit.resolve(call.func) or ""
    row = plan.unit.book.find(dotted)
    return dotted.startswith("torch.") and (row is None or not row.get("draw_arg") or bool(draws(row, {}, call)))


def _plain(plan: Plan, stmt: ast.Assign) -> bool:
    return (
        len(stmt.targets) == 1
        and isinstance(stmt.targets[0], ast.Name)
        and _generator_call(plan, stmt.value) is not None
    )


def _generator_call(plan: Plan, node: ast.expr) -> tuple[ast.Call, ast.expr | None] | None:
    """`torch.Generator(...)` and its seed, when the expression is that or `….manual_seed(seed)` of it."""
    if not isinstance(node, ast.Call):
        return None
    if plan.unit.resolve(node.func) == "torch.Generator":
        return node, None
    if isinstance(node.func, ast.Attribute) and node.func.attr == "manual_seed" and len(node.args) == 1:
        inner = _generator_call(plan, node.func.value)
        return (inner[0], node.args[0]) if inner is not None else None
    return None


def fresh_key(plan: Plan, node: ast.expr) -> str:
    """The key for a generator that is made where it is used, `torch.Generator().manual_seed(7)`; "" for any other."""
    found = _generator_call(plan, node)
    seed = found[1] if found is not None else None
    if found is None or not (seed is None or isinstance(seed, (ast.Constant, ast.Name))):
        return ""
    return f"jax.random.key({DEFAULT_SEED if seed is None else ast.unparse(seed)})"


def _escapes(plan: Plan, name: str, stmt: ast.Assign) -> bool:
    """Whether the generator is used other than by `generator=name` and `name.manual_seed(…)` in its own function."""
    tree = plan.unit.tree
    for node in tree.all(ast.Name):
        if node.id != name or not isinstance(node.ctx, ast.Load):
            continue
        parent = tree.parents[node]
        draws = isinstance(parent, ast.keyword) and parent.arg == "generator"
        seeds = isinstance(parent, ast.Attribute) and parent.attr == "manual_seed"
        if not (draws or seeds) or tree.function(node) is not tree.function(stmt):
            return True
    return False


def _make(plan: Plan, stmt: ast.Assign) -> None:
    found = _generator_call(plan, stmt.value)
    assert found is not None
    call, seed = found
    plan.taken.update(n for n in ast.walk(stmt.value) if n is not seed)
    name = stmt.targets[0].id  # type: ignore[attr-defined]
    plan.lines[stmt] = lambda w: [
        f"{name} = jax.random.key({w.at_level(seed, 1) if seed is not None else DEFAULT_SEED})"
    ]
    plan.found("JM121", call, "torch.Generator", "a Generator becomes a key: another stream")


def _reseed(plan: Plan, node: ast.Call, made: dict[str, ast.Assign], shared: set[str]) -> None:
    """`g.manual_seed(s)` as a statement."""
    func, stmt = node.func, plan.unit.tree.parents.get(node)
    if not (isinstance(func, ast.Attribute) and func.attr == "manual_seed" and isinstance(func.value, ast.Name)):
        return
    if func.value.id not in made or func.value.id in shared or not isinstance(stmt, ast.Expr) or len(node.args) != 1:
        return
    name = func.value.id
    plan.taken.update((node, func))
    plan.lines[stmt] = lambda w: [f"{name} = jax.random.key({w.at_level(node.args[0], 1)})"]
    plan.found("JM121", node, "torch.Generator.manual_seed", "the key starts again from the seed")
