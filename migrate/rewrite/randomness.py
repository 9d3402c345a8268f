"""Random numbers: PRNG keys and rngs reach every draw and every construction."""

from __future__ import annotations

import ast
from itertools import takewhile

from ..read.facts import ClassFacts, FunctionFacts
from ..read.needs import called_function, generator_argument, outer_functions
from ..read.scopes import COMPREHENSIONS
from ..rulebook.precedence import ARITH, level_of
from .generators import fresh_key, plan_generators
from .layercalls import add_argument
from .plan import Plan
from .signature_edit import add_keyword_parameter
from .streams import NEW, share_streams


def plan_keys(plan: Plan) -> None:
    """Give every call that waits for it its key or rngs; split keys where they are drawn from."""
    for facts in plan.needs.keys:
        if facts.unit is plan.unit:
            add_keyword_parameter(plan, facts.node, key_name(plan, facts.node))
            first = facts.node.args.args[0] if facts.node.args.args else facts.node.body[0]
            plan.found("JM002", first, facts.name, f"{facts.name} draws random numbers: it takes a key")
    _handed_on(plan)
    given = {node: rngs_expression(plan, node) for node in [*plan.rngs_calls, *plan.applied]}
    rootless = [node for node, text in given.items() if text == NEW]
    given |= share_streams(plan, rootless)
    _registered(plan, rootless)
    for node, text in given.items():
        if node in plan.applied:
            plan.applied[node] = text
        else:
            add_argument(plan, node, f"rngs={text}")
    for drawn in list(plan.keyed):
        plan.keyed[drawn] = key_expression(plan, drawn)
    for node, name in plan.key_calls.items():
        add_argument(plan, node, f"{name}={key_expression(plan, node)}")
    for call, site in plan.needs.sites.items():
        callee = called_function(site)
        if site.unit is plan.unit and callee is not None and callee in plan.needs.keys and call not in plan.whole:
            name = key_name(plan, callee.node)
            add_argument(plan, call, f"{name}={key_expression(plan, call)}")
            known = site.callee.name if site.callee is not None else callee.name
            plan.found("JM002", call, known, f"{known} is given a key")


def _handed_on(plan: Plan) -> None:
    """Functions that gained rngs or a key and are used as values: whoever calls them does not know it."""
    gained = plan.needs.rngs | plan.needs.keys
    for node in plan.unit.tree.both(ast.Name, ast.Attribute):
        facts = plan.unit.kind(node).facts
        if not isinstance(facts, FunctionFacts) or facts not in gained or not isinstance(node.ctx, ast.Load):
            continue
        parent = plan.unit.tree.parents.get(node)
        if isinstance(parent, ast.Attribute) or facts.name == "__init__" or node in plan.taken:
            continue
        if isinstance(parent, ast.Call) and (parent.func is node or _is_apply(parent)):
            continue
        if isinstance(node, ast.Name) and plan.unit.local(node) is not facts:
            continue
        if not any(f is facts.node for f, _ in plan.parameters) and facts.unit is plan.unit:
            continue
        what = "rngs" if facts in plan.needs.rngs else "a key"
        plan.found("JM203", node, facts.name, f"{facts.name} takes {what} now, and is handed on as a value here",
                   advice="Bind it where it is handed on: partial(f, rngs=rngs).")  # fmt: skip


def _registered(plan: Plan, calls: list[ast.Call]) -> None:
    """Functions that another package calls, without `rngs`: they make their own, the same each time."""
    homes = {node: _home(plan, node) for node in calls}
    for facts in dict.fromkeys(h for h in homes.values() if h in plan.needs.registered):
        assert facts is not None
        first = next(node for node, home in homes.items() if home is facts)
        message = f"{facts.name} is called by another package, which has no rngs for it: each call starts from seed 0"
        plan.found("JM121", first, facts.name, message)


def _is_apply(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "apply"


def key_name(plan: Plan, scope: ast.AST) -> str:
    """`key`, unless the function uses that name for something else (attention code does)."""
    for node in ast.walk(scope):
        if (isinstance(node, ast.Name) and node.id in ("key", "subkey")) or (
            isinstance(node, ast.arg) and node.arg == "key"
        ):
            return "rng_key"
    return "key"


def rngs_expression(plan: Plan, node: ast.AST) -> str:
    """What to pass as rngs from where `node` stands."""
    home = _home(plan, node)
    if home is not None:
        for facts in outer_functions(home):
            if facts in plan.needs.rngs:
                return "rngs"
        owner = _owner(home)
        if owner is not None and owner in plan.needs.streams:
            return "nnx.Rngs(self.rngs())"
    if _has_key(plan, node):
        return f"nnx.Rngs({_split(plan, node)})"
    return NEW


def key_expression(plan: Plan, node: ast.AST) -> str:
    """The text of a fresh key for a draw at `node`; lines that split it are put before the statement."""
    home = _home(plan, node)
    own = generator_argument(node)
    if own is not None:
        return fresh_key(plan, own) or _split(plan, node)
    if home is not None:
        for facts in outer_functions(home):
            if facts in plan.needs.rngs:
                return "rngs.params()"
        owner = _owner(home)
        if owner is not None and owner.is_module and owner in _with_bases(plan, owner):
            return f"{_self_name(home)}.rngs()"
    return _split(plan, node)


def _with_bases(plan: Plan, owner: ClassFacts) -> list[ClassFacts]:
    return [owner] if any(c in plan.needs.streams for c in owner.lineage()) else []


def _self_name(home: FunctionFacts) -> str:
    for facts in outer_functions(home):
        if facts.owner is not None and facts.node.args.args:
            return facts.node.args.args[0].arg
    return "self"


def _home(plan: Plan, node: ast.AST) -> FunctionFacts | None:
    function = plan.unit.tree.function(node)
    return plan.unit.functions.get(function) if function is not None else None


def _owner(home: FunctionFacts) -> ClassFacts | None:
    return next((f.owner for f in outer_functions(home) if f.owner is not None), None)


def _holder(plan: Plan, node: ast.AST) -> ast.AST:
    """The function (or the module) whose local `key` a draw at `node` splits."""
    return plan.unit.tree.function(node) or plan.unit.tree.root


def _has_key(plan: Plan, node: ast.AST) -> bool:
    home = _home(plan, node)
    if home is not None:
        return home in plan.needs.keys or home in plan.needs.seeded
    return plan.unit in plan.needs.seeded or plan.unit in plan.rooted


def _split(plan: Plan, node: ast.AST) -> str:
    """Split the local key before the statement around `node`; the subkey's name. A root makes its key first.

    A call with `generator=g` splits `g`, which holds a key now.
    """
    tree = plan.unit.tree
    holder = _holder(plan, node)
    own = generator_argument(node)
    if isinstance(own, ast.Name):
        name, sub = own.id, "subkey"
    else:
        name = key_name(plan, holder) if not isinstance(holder, ast.Module) else "key"
        sub = "subkey" if name == "key" else "rng_subkey"
        _root(plan, node, holder, name)
    stmt = _anchor(plan, node)
    inside = next((up for up in tree.ancestors(node) if isinstance(up, (*COMPREHENSIONS, ast.Lambda))), None)
    if inside is not None and tree.statement(inside) is tree.statement(node):
        within = takewhile(lambda up: not isinstance(up, ast.stmt), tree.ancestors(node))
        if not any(isinstance(up, ast.Lambda) for up in within):
            return _many(plan, inside, stmt, name, sub) or _stream(plan, stmt, name, sub)
        plan.found(
            "JM203",
            node,
            "torch.random",
            "a draw inside a lambda cannot split a key: every call of it draws the same numbers",
            advice="Write a function that takes a key.",
        )
    return _subkey(plan, stmt, name, sub)


def _subkey(plan: Plan, stmt: ast.stmt, name: str, sub: str) -> str:
    """A new key for the statement, split from `name` before it."""
    used = plan.splits.setdefault(stmt, 0)
    plan.splits[stmt] = used + 1
    names = sub if not used else f"{sub}{used + 1}"
    plan.before.setdefault(stmt, []).append(f"{name}, {names} = jax.random.split({name})")
    return names


def _many(plan: Plan, inside: ast.AST, stmt: ast.stmt, name: str, sub: str) -> str:
    """A comprehension over `range(n)` draws from n keys split before it."""
    if isinstance(inside, (ast.Lambda, ast.DictComp, ast.SetComp)) or len(inside.generators) != 1:  # type: ignore[attr-defined]
        return ""
    generator: ast.comprehension = inside.generators[0]  # type: ignore[attr-defined]
    call = generator.iter
    if generator.ifs or not (
        isinstance(call, ast.Call) and plan.unit.resolve(call.func) == "builtins.range" and len(call.args) == 1
    ):
        return ""
    rewritten = any(n in plan.whole or n in plan.points for n in ast.walk(call.args[0]))
    if inside in plan.spread or rewritten or level_of(call.args[0]) < ARITH:
        return ""
    plan.spread.add(inside)
    tree = plan.unit.tree
    count = tree.segment(call.args[0])
    before = plan.before.setdefault(stmt, [])
    others = sum(1 for line in before if f", *{sub}s" in line)
    keys = f"{sub}s{others + 1}" if others else f"{sub}s"
    before.append(f"{name}, *{keys} = jax.random.split({name}, {count} + 1)")
    target = generator.target
    unused = isinstance(target, ast.Name) and target.id == "_"
    if unused:
        plan.replace(target, sub)
        plan.replace(call, keys)
    else:
        plan.replace(target, f"{tree.segment(target)}, {sub}", 15)
        plan.replace(call, f"zip({tree.segment(call)}, {keys})")
    return sub


def _stream(plan: Plan, stmt: ast.stmt, name: str, sub: str) -> str:
    """Any other comprehension draws from a stream of keys made before it."""
    draws = "draws" if name == "key" and "draws" not in plan.own_names else "rng_draws"
    if not any(line.startswith(f"{draws} = ") for line in plan.before.get(stmt, ())):
        own = _subkey(plan, stmt, name, sub)
        plan.before[stmt].append(f"{draws} = nnx.Rngs({own})")
    return f"{draws}()"


def _anchor(plan: Plan, node: ast.AST) -> ast.stmt:
    """The statement before which a key can be split: for a loop's or branch's header, the compound statement itself."""
    stmt = plan.unit.tree.statement(node)
    stmt = plan.hoisted.get(stmt, stmt)
    return stmt


def _root(plan: Plan, node: ast.AST, holder: ast.AST, name: str) -> None:
    """A script or a root function without a seed makes its own key, once."""
    home = _home(plan, node)
    owner = home if home is not None else plan.unit
    if owner in plan.needs.seeded or owner in plan.rooted or (home is not None and home in plan.needs.keys):
        return
    plan.rooted.add(owner)
    body = holder.body  # type: ignore[attr-defined]
    anchor = plan.unit.tree.statement(node)
    while anchor not in body:
        up = plan.unit.tree.parents[anchor]
        anchor = up if isinstance(up, ast.stmt) else plan.unit.tree.statement(up)
    plan.before.setdefault(anchor, [])[:0] = [f"{name} = jax.random.key(0)"]
    message = "nothing seeds torch here: the key starts from 0"
    if home in plan.needs.registered:
        message = f"another package calls {home.name} and has no key for it: each call draws the same numbers"
    plan.found("JM121", node, "torch.manual_seed", message)


def plan_seeds(plan: Plan) -> None:
    """`torch.manual_seed(s)` becomes `key = jax.random.key(s)`; a local Generator becomes a key of its own."""
    tree = plan.unit.tree
    plan_generators(plan)
    plan_seeded_calls(plan)
    _device_seeds(plan)
    for node in tree.all(ast.Call):
        if plan.unit.resolve(node.func) not in (
            "torch.manual_seed",
            "torch.random.manual_seed",
        ):
            continue
        stmt = tree.parents.get(node)
        holder = _holder(plan, node)
        name = key_name(plan, holder) if not isinstance(holder, ast.Module) else "key"
        plan.taken.update((node, node.func))
        home = _home(plan, node)
        if not isinstance(stmt, ast.Expr) or len(node.args) != 1:
            plan.found("JM205", node, "torch.manual_seed", "the generator that manual_seed returns is used")
            continue
        if home in plan.needs.seeders:
            _returned_key(plan, home, name)
        elif home is not None and not _draws_here(plan, home):
            if any(s.unit is plan.unit and s.callee is home for s in plan.needs.sites.values()):
                plan.found("JM203", node, "torch.manual_seed", f"{home.name} seeds a generator that its callers use",
                           advice="Return jax.random.key(seed), and let the caller keep it.")  # fmt: skip
                continue
        plan.lines[stmt] = lambda w, n=node, k=name: [f"{k} = jax.random.key({w.at_level(n.args[0], 1)})"]  # type: ignore[misc]
        plan.found("JM121", node, "torch.manual_seed", "torch.manual_seed -> jax.random.key: another stream")


DEVICE_SEEDS = frozenset(
    f"torch.{device}.{name}"
    for device in ("cuda", "mps", "xpu")
    for name in ("manual_seed", "manual_seed_all", "seed", "seed_all")
)


def _device_seeds(plan: Plan) -> None:
    """`torch.cuda.manual_seed_all(s)` goes: a key is the same on every device."""
    for node in plan.unit.tree.all(ast.Call):
        stmt = plan.unit.tree.parents.get(node)
        if isinstance(stmt, ast.Expr):
            dotted = plan.unit.resolve(node.func)
            if dotted in DEVICE_SEEDS:
                plan.taken.update((node, node.func))
                plan.lines[stmt] = lambda _: []
                plan.found("JM121", node, dotted, "gone: a key is the same on every device")


def _returned_key(plan: Plan, home: FunctionFacts | None, name: str) -> None:
    """A function that only seeds returns the key; `set_seed(42)` becomes `key = set_seed(42)`."""
    if home is None or home in plan.rooted:
        return
    plan.rooted.add(home)
    plan.after.setdefault(home.node.body[-1], []).append(f"return {name}")


def plan_seeded_calls(plan: Plan) -> None:
    """Keep the key that a seeding function returns."""
    for call, site in plan.needs.sites.items():
        if site.unit is plan.unit and site.callee in plan.needs.seeders and call not in plan.taken:
            stmt = plan.unit.tree.parents[call]
            holder = _holder(plan, call)
            name = key_name(plan, holder) if not isinstance(holder, ast.Module) else "key"
            plan.point(stmt, plan.unit.tree.start(stmt), plan.unit.tree.start(stmt), f"{name} = ")
            plan.found("JM002", call, site.callee.name, f"{site.callee.name} returns a key")


def _draws_here(plan: Plan, home: FunctionFacts) -> bool:
    return any(s.home is home and (s.what or s.callee) for s in plan.needs.sites.values())


__all__ = ["key_expression", "plan_keys", "plan_seeds", "rngs_expression"]
