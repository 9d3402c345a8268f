"""Find what a function does to train.

Everything that is not proven raises NotPlain with the reason, which becomes the finding's message.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from ..plan import Plan
from .attacks import attack_calls
from .between import Between
from .clips import Clip, clip_call, read_clip
from .events import CLEAN, FULL, Events, Node
from .events import Unit as Gradient
from .flow import block_of
from .given import trained_by_calls
from .held import check_held
from .helpers import handed_on, read_zeros, stranger_in, strangers
from .marking import keeps_tensors
from .optimizers import Optimizers
from .questions import check_question, forward_block, question
from .roles import NotPlain, function_of, is_optimizer, method_call, modules_called
from .scaling import scaled, stepped
from .separate import separate
from .slices import Place, depends, find_region
from .sources import Source
from .steps import Pass, Routine, Update, Zeros, backward_arguments, backward_calls, method_owner
from .stored import check_stored
from .walks import GradUse, changing, check_uses, grad_uses, place_of

_COMPOUND = (
    ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match,
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Return, ast.Raise,
)  # fmt: skip
States = Mapping[str, Mapping[Node, frozenset[str]]]


class Reader:
    """Reads the training code of one function."""

    def __init__(self, plan: Plan, function: ast.AST, optimizers: Optimizers) -> None:
        self.plan, self.unit, self.function, self.optimizers = plan, plan.unit, function, optimizers
        body = function.body if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)) else []
        self.backwards = set(backward_calls(self.unit))
        self.cleared: dict[ast.stmt, Zeros] = {}
        self.events = Events(body, self._event)
        self.steps: dict[str, list[Node]] = {}
        for node in self.events.of("step"):
            self.steps.setdefault(node.owners[0], []).append(node)
        self.losses = {n: scaled(self.unit, n.on) for n in self.events.of("backward")}
        self.made = {text: self.optimizers.of(self._driven(nodes[0].stmt)) for text, nodes in self.steps.items()}
        self.source: dict[str, Source] = {}
        self.gradients: dict[str, Gradient] = {}

    def _event(self, stmt: ast.stmt) -> tuple[str, tuple[str, ...]] | None:
        zeros = read_zeros(self.unit, stmt)
        if zeros is not None:
            self.cleared[stmt] = zeros
            return "zero", zeros.owners
        call = stmt.value if isinstance(stmt, ast.Expr) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            name, owner = call.func.attr, call.func.value
            if name == "backward" and call in self.backwards:
                return "backward", (ast.unparse(owner),)
            if name == "step" and (driven := stepped(self.unit, call)) is not None:
                return "step", (ast.unparse(driven),)
            if name == "step" and is_optimizer(self.unit, owner):
                return "step", (ast.unparse(owner),)
        if not isinstance(stmt, _COMPOUND) and any(strangers(self.unit, self.function, stmt)):
            return "other", ()
        return None

    def _driven(self, stmt: ast.stmt | None) -> ast.expr:
        """The optimizer of a step statement."""
        assert isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Call)
        return stepped(self.unit, stmt.value) or method_owner(stmt)

    def read(self) -> tuple[list[Routine], dict[ast.Call, str]]:
        """The routines of the function, and the backward calls that are part of none, with the reason."""
        failed: dict[ast.Call, str] = {}
        broken: dict[str, str] = {}
        for text in self.steps:
            try:
                self._understand(text)
            except NotPlain as problem:
                broken[text] = str(problem)
        live = {b: self._live(b) for b in self.losses}
        routines = []
        for texts in self._groups(live):
            mine = [b for b in self.losses if set(live[b]) & texts]
            try:
                for text in texts & set(broken):
                    raise NotPlain(broken[text])
                if mine:
                    routines.append(self._routine(texts, mine, live))
            except NotPlain as problem:
                failed |= {b.call: str(problem) for b in mine}
        failed |= {node.call: self._loose(node) for node, users in live.items() if not users}
        return routines, failed

    def _loose(self, node: Node) -> str:
        """Why no optimizer uses the gradients of a backward call."""
        if not self.steps:
            inner = any(
                self.unit.tree.function(n) is not self.function
                for n in ast.walk(self.function)
                if isinstance(n, ast.Expr) and method_call(n, "step")
            )
            return "step() is called in another function" if inner else "no optimizer.step() follows in this function"
        if self.gradients and not any(node in g.adds for g in self.gradients.values()):
            return f"the loss does not depend on {', '.join(s.named for s in self.source.values())}"
        return "no optimizer.step() uses its gradients before they are set to zero"

    def _understand(self, text: str) -> None:
        """Find the source of an optimizer and its gradient's life. Raises NotPlain."""
        made = self.made[text]
        if made is not None and made.problem:
            self.source[text] = made.source
            self._gradient(text)
            raise NotPlain(f"its optimizer is not converted: {made.problem}")
        for node in self.steps[text]:
            if (node.call.args or node.call.keywords) and stepped(self.unit, node.call) is None:
                raise NotPlain("step() is given a closure")
        self.source[text] = made.source if made is not None else self._by_use(text)
        self._gradient(text)
        if made is not None and made.name == "torch.optim.LBFGS":
            raise NotPlain("LBFGS takes no step without a closure")

    def _by_use(self, text: str) -> Source:
        """The module of an optimizer that comes from elsewhere: what the calls of this function show, else the one that
        the losses before its step call."""
        if known := trained_by_calls(self.unit, self.optimizers, self.function, text):
            return known
        zeros = frozenset(n for n in self.events.of("zero") if text in n.owners)
        probe = Gradient(zeros, frozenset(), frozenset(self.steps[text]))
        parts = [self.losses[b] for b in self.losses if probe.live(b)]
        found = modules_called(self.plan, self.function, parts)
        if not found:
            check_stored(self.plan, self.function, parts)
            raise NotPlain("nothing shows which model the loss depends on: annotate it (model: nn.Module)")
        if len(found) > 1:
            zeroed = {o for n in self.events.of("zero") for o in n.owners}
            found = [m for m in found if m in zeroed] if len(self.steps) == 1 else []
        if len(found) != 1:
            raise NotPlain("several modules take part, and nothing shows which of them the optimizer trains")
        return Source((found[0],))

    def _gradient(self, text: str) -> None:
        source = self.source[text]
        zeros = frozenset(n for n in self.events.of("zero") if self._clears(n, text, source))
        adds = frozenset(b for b, loss in self.losses.items() if depends(self.plan, self.function, loss, source))
        self.gradients[text] = Gradient(zeros, adds, frozenset(self.steps[text]))

    def _clears(self, node: Node, text: str, source: Source) -> bool:
        """Whether a zero_grad, together with those that stand right before and after it, is of the optimizer or of all
        its modules."""
        if text in node.owners:
            return True
        owners = {m for o in node.owners for m in self._modules_of(node, o)}
        together = owners | {m for n in self.events.run(node, "zero") for o in n.owners for m in self._modules_of(n, o)}
        mine = [m for m in source.models if m in owners or any(m.startswith(f"{o}.") for o in owners)]
        covered = all(m in together or any(m.startswith(f"{o}.") for o in together) for m in source.models)
        return bool(mine) and covered

    def _modules_of(self, node: Node, owner: str) -> tuple[str, ...]:
        """The modules whose gradients a zero_grad of `owner` sets to zero: itself, or those of an optimizer."""
        assert node.stmt is not None
        calls = [n.func.value for n in self.cleared[node.stmt].calls if isinstance(n.func, ast.Attribute)]
        found = next((n for n in calls if ast.unparse(n) == owner), None)
        made = self.optimizers.of(found) if found is not None and is_optimizer(self.unit, found) else None
        return (owner, *made.source.models) if made is not None and not made.problem else (owner,)

    def _live(self, node: Node) -> list[str]:
        """The optimizers that use what a backward call adds."""
        found = []
        for text in self.steps:
            gradient = self.gradients.get(text)
            if gradient is None:
                zeros = frozenset(n for n in self.events.of("zero") if text in n.owners)
                gradient = Gradient(zeros, frozenset([node]), frozenset(self.steps[text]))
            if node in gradient.adds and gradient.live(node):
                found.append(text)
        return found

    def _groups(self, live: Mapping[Node, list[str]]) -> list[set[str]]:
        """Optimizers that share a backward call, or calls that follow each other directly, belong together."""
        groups: list[set[str]] = [{t} for t in self.steps]
        runs = self._runs([b for b, texts in live.items() if texts])
        for texts in [{t for b in run for t in live[b]} for run in runs]:
            touched = [g for g in groups if g & texts]
            if len(touched) > 1:
                groups = [g for g in groups if g not in touched] + [set().union(*touched)]
        return groups

    def _routine(self, texts: set[str], mine: list[Node], live: Mapping[Node, list[str]]) -> Routine:
        order = [t for t in self.steps if t in texts]
        _no_shared(order, self.source)
        self._no_others(order)
        states = self._states(order)
        gone = tuple(n.stmt for n in self.events.of("zero") if n.stmt is not None)
        passes = [
            self._pass(nodes, [t for t in order if any(t in live[n] for n in nodes)], states, gone)
            for nodes in self._runs(mine)
        ]
        updates = [self._update(t, n, states[t][n]) for t in order for n in self.steps[t]]
        reads = self._reads(order, mine)
        clips = self._clips(order, mine, reads)
        zeros: dict[ast.stmt, tuple[str, ...]] = {}
        for node in {n: None for t in order for n in self.gradients[t].zeros}:
            assert node.stmt is not None
            zeros[node.stmt] = self._sets(node, order, passes, updates)
            if zeros[node.stmt] and any(node.stmt in ast.walk(r) for p in passes for r in p.region.stmts):
                raise NotPlain("zero_grad() stands between forward and backward")
        fresh = tuple(
            u for t in order for u in self.source[t].units if self._asked(self.events.entry, t, u, passes, updates)
        )
        cleared = {stmt: self.cleared[stmt] for stmt in zeros}
        return Routine(self.function, tuple(passes), tuple(updates), zeros, tuple(clips), fresh, cleared, tuple(reads))

    def _states(self, order: Sequence[str]) -> States:
        """What each gradient may be before each node. Raises NotPlain when gradients may be left from before
        the function was called."""
        states = {}
        for text in order:
            gradient = self.gradients[text]
            clean = gradient.states(self.events, CLEAN)
            mixed = gradient.states(self.events, FULL)
            uses = [*gradient.steps, *(n for n in gradient.adds if gradient.live(n))]
            matters = [n for n in uses if clean[n] != mixed[n]]
            left = any(self.events.exit in gradient.reached(n, gradient.zeros) for n in self.events.of("other"))
            ends_clean = clean[self.events.exit] <= {CLEAN} and bool(gradient.zeros) and not left
            if matters and not ends_clean and not self._new(text):
                raise NotPlain("no zero_grad() in this function: the gradients accumulate")
            states[text] = clean
        return states

    def _no_others(self, order: Sequence[str]) -> None:
        """Raise NotPlain when anything else in the function may touch these gradients."""
        known = [n.stmt for n in self.events.of("other") if n.stmt is not None and self._harmless(n, order)]
        if stranger := stranger_in(self.unit, self.function, [*self.cleared, *known]):
            raise NotPlain(f"`{stranger}` acts on gradients, and that is not followed")
        trained = [m for s in self.source.values() for m in s.models]
        units = [u for t in order for u in self.source[t].models]
        for node in self.events.of("zero"):
            if any(node in self.gradients[t].zeros for t in order):
                continue
            if not any(self.gradients[t].live(node) for t in order):
                continue  # all of these gradients are set to zero before they are used
            for owner in node.owners:
                if not self._apart(node, owner, units, trained):
                    raise NotPlain(f"`{owner}.zero_grad()` may be of these gradients or of a part of them")

    def _harmless(self, node: Node, order: Sequence[str]) -> bool:
        """Whether a statement that runs other code which acts on gradients finds none of these, and what it leaves is
        set to zero before these are used."""
        for text in order:
            gradient = self.gradients[text]
            if gradient.reached(node, gradient.zeros) & (gradient.adds | gradient.steps):
                return False
            if not self._adds_only(node) and gradient.states(self.events, CLEAN)[node] - {CLEAN}:
                return False
        return True

    def _adds_only(self, node: Node) -> bool:
        """Whether the other code takes gradients of its own, and steps nothing."""
        attacks = set(attack_calls(self.plan, self.function))
        return all(c in attacks for c in strangers(self.unit, self.function, node.stmt or self.function))

    def _apart(self, node: Node, owner: str, units: Sequence[str], trained: Sequence[str]) -> bool:
        """Whether a zero_grad of `owner` leaves the gradients of the modules `units` alone."""
        assert node.stmt is not None
        source = self.source.get(owner)
        if source is None:
            found = next((n.func.value for n in self.cleared[node.stmt].calls if isinstance(n.func, ast.Attribute)
                          and ast.unparse(n.func.value) == owner), None)  # fmt: skip
            made = self.optimizers.of(found) if found is not None else None
            source = made.source if made is not None and not made.problem else None
        models = source.models if source is not None else (owner,)
        if source is not None and source.arrays:
            return True
        return all(m != u and separate(self.unit, node.stmt, u, m, trained) for m in models for u in units)

    def _new(self, text: str) -> bool:
        """Whether the optimizer and what it trains are made in this function, and nothing else gets hold of them to set
        its gradients to zero: no earlier gradient can be left."""
        made = self.made[text]
        if made is None or function_of(self.unit, made.call) is not self.function:
            return False
        if not self.gradients[text].zeros and handed_on(self.unit, self.function, {text, *made.source.models}):
            return False
        if made.arrays:
            return True
        scope = self.unit.scopes.of.get(self.function)
        for model in made.source.models:
            bindings = scope.bindings.get(model, []) if scope is not None else []
            if not bindings or any(b.kind != "assign" for b in bindings):
                return False
        return True

    def _runs(self, mine: Sequence[Node]) -> list[list[Node]]:
        """The backward nodes, those together that follow each other directly: their losses are summed. What one of them
        does not depend on gets the same gradient from the sum."""
        runs: list[list[Node]] = []
        for node in sorted(mine, key=lambda n: self.unit.tree.start(n.call)):
            last = runs[-1][-1] if runs else None
            if last is not None and last.stmt is not None and node.stmt is not None:
                block = block_of(last.stmt, self.unit.tree.parents)
                follows = node.stmt in block and block.index(node.stmt) == block.index(last.stmt) + 1
                named = isinstance(self.losses[node], ast.Name) and isinstance(self.losses[last], ast.Name)
                if follows and named:
                    runs[-1].append(node)
                    continue
            runs.append([node])
        return runs

    def _pass(self, nodes: Sequence[Node], texts: Sequence[str], states: States, gone: tuple[ast.stmt, ...]) -> Pass:
        stmts = tuple(n.stmt for n in nodes if isinstance(n.stmt, ast.Expr))
        stmt, losses = stmts[0], tuple(self.losses[n] for n in nodes)
        source = Source()
        for text in texts:
            source += self.source[text]
        if source.arrays and source.models:
            raise NotPlain("modules and single tensors are trained together")
        under = question(self.unit, stmt, losses, gone)
        last = under or stmt
        block = block_of(last, self.unit.tree.parents)
        if under is not None and isinstance(losses[0], ast.Name):
            block = forward_block(self.unit, under, losses[0].id)
        acts = {n.stmt for n in self.events.nodes if n.kind in ("backward", "step")}
        acts |= {n.stmt for n in self.events.of("other") if not self._adds_only(n)}
        end = block.index(last) if last in block else len(block)
        start = max((i + 1 for i in range(end) if any(s in acts for s in ast.walk(block[i]))), default=0)
        region = find_region(self.plan, Place(self.function, block, last, start, gone), losses, source)
        if under is not None:
            check_question(under, block, region, self.unit.tree.parents)
        for node in nodes:
            backward_arguments(node.call, kept=not region.carried)
        trained = [m for t in self.steps for m in self.source.get(t, Source()).models]
        for other in region.others:
            for model in source.models:
                if not separate(self.unit, stmt, model, other, trained):
                    raise NotPlain(f"several modules take part: {other} may be a part of {model}")
        adds: dict[str, str] = {}
        for text in texts:
            found = states[text][nodes[0]]
            word = "first" if found == {CLEAN} else "more" if found == {FULL} else "either"
            adds |= dict.fromkeys(self.source[text].units, word)
        if source.arrays and set(adds.values()) != {"first"}:
            raise NotPlain("gradients of single tensors accumulate")
        return Pass(stmts, losses, source, region, adds, under)

    def _update(self, text: str, node: Node, states: frozenset[str]) -> Update:
        stmt = node.stmt
        assert isinstance(stmt, ast.Expr)
        if FULL not in states:
            raise NotPlain("step() is called where no gradient was computed")
        block = block_of(stmt, self.unit.tree.parents)
        return Update(
            stmt, self._driven(stmt), self.made[text], self.source[text], CLEAN in states, self.function, block
        )

    def _reads(self, order: Sequence[str], mine: Sequence[Node]) -> list[GradUse]:
        """Where gradients of these modules' parameters are read or changed by name. Each must follow a backward pass in
        its block, and stand before they are set to zero again. Raises NotPlain."""
        trained = [m for s in self.source.values() for m in s.models]
        models = {m for t in order for m in self.source[t].models}
        stmts = {n.stmt for n in mine}
        found = [
            u
            for u in grad_uses(self.unit, self.function, trained, stmts)
            if u.model in models or u.model not in trained
        ]
        for use in found:
            if not any(self._follows(use, node, order) for node in mine):
                raise NotPlain(f"`{ast.unparse(use.node)}` is read or written where its gradient has no name")
        check_uses(self.plan, found)
        changes: list[ast.AST] = [*changing(found), *(s for s in self.cleared if keeps_tensors(s))]
        changes += [c for n in ast.walk(self.function) if isinstance(n, ast.stmt) and (c := clip_call(self.unit, n))]
        accumulate = [
            b.call for b in mine for t in order if b in self.gradients[t].adds and self._adds(b, t) != {CLEAN}
        ]
        check_held(self.unit, [u.node for u in found], [*changes, *accumulate])
        return found

    def _adds(self, node: Node, text: str) -> frozenset[str]:
        """What the gradient of an optimizer may be before a backward pass."""
        return self.gradients[text].states(self.events, CLEAN)[node]

    def _follows(self, use: GradUse, node: Node, order: Sequence[str]) -> bool:
        """Whether the gradient that a backward pass adds has a name where `use` stands."""
        assert node.stmt is not None
        block = block_of(node.stmt, self.unit.tree.parents)
        first, last = block.index(node.stmt), place_of(self.unit, use.node, block)
        mine = [t for t in order if use.model in self.source[t].models]
        zeros = {n.stmt for t in mine for n in self.gradients[t].zeros}
        changing = zeros | {n.stmt for n in self.events.of("other")}
        between = [s for part in block[first + 1 : last] for s in ast.walk(part)]
        return bool(mine) and last > first and not any(s in changing for s in between)

    def _clips(self, order: Sequence[str], mine: Sequence[Node], reads: Sequence[GradUse]) -> list[Clip]:
        """The clipping statements of these gradients. Anything else between backward and step must leave them alone."""
        whole = Source()
        for source in self.source.values():
            whole += source
        units = {u for t in order for u in self.source[t].units}
        clips = []
        for stmt in ast.walk(self.function):
            if isinstance(stmt, ast.stmt) and (clip := read_clip(self.unit, stmt, whole)) is not None:
                if set(clip.units) <= units:
                    clips.append(clip)
                elif set(clip.units) & units:
                    raise NotPlain("a clipping takes several optimizers' gradients together")
        acts: set[ast.stmt] = {n.stmt for n in self.events.nodes if n.stmt is not None and n.kind != "other"}
        models = {m for t in order for m in self.source[t].models}
        known = acts | {c.stmt for c in clips} | {self.unit.tree.statement(u.node) for u in reads}
        known |= {s for u in reads for s in self.unit.tree.ancestors(u.node) if isinstance(s, (ast.For, ast.If))}
        between = Between(self.unit, set(order), models, known)
        steps = {n.stmt for t in order for n in self.steps[t] if n.stmt is not None}
        for node in mine:
            assert node.stmt is not None
            between.check(node.stmt, steps)
        return clips

    def _sets(
        self, node: Node, order: Sequence[str], passes: Sequence[Pass], updates: Sequence[Update]
    ) -> tuple[str, ...]:
        """The units whose variable a zero_grad statement must set to None: somebody asks before it is assigned."""
        mine = [t for t in order if node in self.gradients[t].zeros]
        return tuple(u for t in mine for u in self.source[t].units if self._asked(node, t, u, passes, updates))

    def _asked(self, node: Node, text: str, unit: str, passes: Sequence[Pass], updates: Sequence[Update]) -> bool:
        first = {s for p in passes for s in p.stmts if p.adds.get(unit) == "first"}
        asking = {s for p in passes for s in p.stmts if p.adds.get(unit) == "either"}
        asking |= {u.stmt for u in updates if u.guarded and unit in u.source.units}
        gradient = self.gradients[text]
        stops = {*gradient.zeros, *(n for n in self.events.nodes if n.stmt in first)}
        return any(n.stmt in asking for n in gradient.reached(node, stops) if n.stmt is not None)


def _no_shared(order: Sequence[str], sources: Mapping[str, Source]) -> None:
    units = [u for t in order for u in sources[t].units]
    if len(set(units)) != len(units):
        raise NotPlain("two optimizers train the same module")
