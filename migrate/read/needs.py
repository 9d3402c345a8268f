"""Who needs randomness: which classes and functions take `rngs`, which take a `key`, which keep a stream.

Everything that builds modules takes `rngs`; a function that only draws takes `key`; a module that draws when it is
called keeps a stream of its `rngs`. Need travels from callee to caller until it meets a function that has its own seed,
or the script.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ..layers import Layer
from ..layers import catalogue as known_layers
from ..rulebook.load import RuleBook
from ..rulebook.rows import Row
from .chosen import is_initialiser
from .facts import ClassFacts, FunctionFacts
from .kinds import Kind
from .native import TORCH_LAYERS, Native
from .project import Project
from .registered import find_registered
from .source import hidden
from .unit import Unit

Draw = Literal["", "build", "draw"]
COPY = "copy.deepcopy"


@dataclass(eq=False)
class Site:
    """A call that needs randomness, itself or through what it calls."""

    unit: Unit
    call: ast.Call
    home: FunctionFacts | None
    callee: FunctionFacts | ClassFacts | None = None
    what: Draw = ""


@dataclass(eq=False)
class Needs:
    """The answer. `initial` are the functions that run while a module is built, `registered` those that only another
    package calls."""

    rngs: set[FunctionFacts] = field(default_factory=set)
    keys: set[FunctionFacts] = field(default_factory=set)
    streams: set[ClassFacts] = field(default_factory=set)
    classes: set[ClassFacts] = field(default_factory=set)
    initial: set[FunctionFacts] = field(default_factory=set)
    builders: set[FunctionFacts] = field(default_factory=set)
    values: set[ClassFacts] = field(default_factory=set)
    seeded: set[FunctionFacts | Unit] = field(default_factory=set)
    seeders: set[FunctionFacts] = field(default_factory=set)
    roots: set[FunctionFacts] = field(default_factory=set)
    registered: set[FunctionFacts] = field(default_factory=set)
    sites: dict[ast.Call, Site] = field(default_factory=dict)
    copies: set[ast.Call] = field(default_factory=set)
    native: Native = TORCH_LAYERS

    def takes_rngs(self, facts: ClassFacts) -> bool:
        """Whether the converted class can be built with `rngs=`."""
        return any(c in self.classes for c in facts.lineage())


GIVEN = ("rngs", "key", "rng_key")  # arguments and parameters that an earlier run added


def is_converted(unit: Unit) -> bool:
    """Whether the file is already one of JAX, in part at least: it imports it."""
    return any(b.target.partition(".")[0] in ("jax", "flax") for bs in unit.scopes.module.bindings.values() for b in bs)


def own_key(facts: FunctionFacts) -> str:
    """The keyword-only parameter through which a converted function is given a key already, "" when it has none."""
    if not is_converted(facts.unit):
        return ""
    return next((a.arg for a in facts.node.args.kwonlyargs if a.arg in GIVEN), "")


def find_needs(project: Project, book: RuleBook, native: Native = TORCH_LAYERS) -> Needs:
    """Look at every call of the project. Needs `infer` to have run."""
    needs, catalogue = Needs(native=native), known_layers(native.layers)
    called_from: dict[FunctionFacts, set[FunctionFacts | None]] = {}
    for unit in project.units:
        _scan(unit, needs, book, catalogue, called_from)
    needs.registered = find_registered(project, called_from)
    _seeders(needs)
    _initial(project, needs)
    _copies(needs)
    _layer_subclasses(project, needs, book, catalogue)
    _propagate(project, needs, called_from)
    needs.rngs -= {f for f in needs.rngs if _is_served(f, needs)}
    return needs


def _is_served(facts: FunctionFacts, needs: Needs) -> bool:
    """Whether a nested function, which is no method, sees the `rngs` of a function around it and needs none itself."""
    return facts.owner is None and any(outer in needs.rngs for outer in outer_functions(facts)[1:])


def draws(row: Row | None, catalogue: Mapping[str, Layer], node: ast.Call | None = None) -> Draw:
    """Whether a call of this row needs randomness: "build" for layers, "draw" for random ops.

    A library function with an optional key (`scaled_dot_product_attention`) draws only when the call asks for dropout.
    """
    if row is None:
        return ""
    name = row.get("layer")
    if name:
        entry = catalogue.get(str(name))
        if entry is None:
            return ""
        if entry.kind == "class" or entry.needs_rngs:
            return "build" if entry.needs_rngs else ""
        parameter = key_parameter(row, entry)
        if not parameter:
            return ""
        return "draw" if parameter not in entry.defaults or _asks_dropout(row, node) else ""
    if not any("key" in o.template.required for o in row.options):
        return ""
    return "draw" if node is None or _draws_by(row, node) else ""


def generator_argument(node: ast.AST) -> ast.expr | None:
    """The generator that a call draws from, None when it names none."""
    if not isinstance(node, ast.Call):
        return None
    value = next((k.value for k in node.keywords if k.arg == "generator"), None)
    return None if isinstance(value, ast.Constant) and value.value is None else value


def _draws_by(row: Row, node: ast.Call) -> bool:
    """Whether a call gives the argument that makes it draw (`draw_arg`), as far as its text shows."""
    argument = row.get("draw_arg")
    if not argument or row.signature is None:
        return True
    place = [p.name for p in row.signature.params].index(str(argument))
    given = [k.value for k in node.keywords if k.arg == argument] or node.args[place : place + 1]
    if given and not isinstance(given[0], ast.Starred):
        return not (isinstance(given[0], ast.Constant) and not given[0].value)
    return any(k.arg is None for k in node.keywords) or any(isinstance(a, ast.Starred) for a in node.args)


def key_parameter(row: Row, entry: Layer) -> str:
    """The parameter of a library function that takes its PRNG key, "" when it has none (attention's `key` is none)."""
    if "dropout_key" in entry.params:
        return "dropout_key"
    own = row.signature is not None and "key" in row.signature.by_name
    return "key" if "key" in entry.params and not own else ""


def _asks_dropout(row: Row, node: ast.Call | None) -> bool:
    """Whether a call gives a dropout rate that is not the literal 0, and does not say that it does not train."""
    if node is None or row.signature is None:
        return False
    given = dict(zip(row.signature.by_name, node.args, strict=False)) | {k.arg or "": k.value for k in node.keywords}
    rate, training = given.get("dropout_p"), given.get("training")
    off = any(isinstance(v, ast.Constant) and not v.value for v in (rate, training))
    return rate is not None and not off


def _copies(needs: Needs) -> None:
    """Deep copies of modules: those made while a model is built need random streams of their own."""
    for call, site in list(needs.sites.items()):
        if site.unit.resolve(call.func) != COPY:
            continue
        home = site.home
        if home is not None and (home in needs.initial or returns_module(home)):
            needs.copies.add(call)
        else:
            del needs.sites[call]


def _layer_subclasses(project: Project, needs: Needs, book: RuleBook, catalogue: Mapping[str, Layer]) -> None:
    """Classes that extend a layer which draws its parameters: what builds them builds the layer."""
    for cls in (c for u in project.units for c in u.classes.values()):
        if cls.is_module and cls.layer_base and draws(book.find(cls.layer_base), catalogue) == "build":
            needs.classes.add(cls)
            if "__init__" in cls.methods:
                needs.rngs.add(cls.methods["__init__"])


def _seeders(needs: Needs) -> None:
    """Functions that only seed (`set_seed(42)`): they return the key, and the code that calls them keeps it."""
    drawing = {s.home for s in needs.sites.values() if s.what or isinstance(s.callee, ClassFacts)}
    for facts in [f for f in needs.seeded if isinstance(f, FunctionFacts) and f not in drawing and _only_seeds(f)]:
        calls = [s for s in needs.sites.values() if s.callee is facts]
        if calls and all(isinstance(s.unit.tree.parents.get(s.call), ast.Expr) for s in calls):
            needs.seeders.add(facts)
            needs.seeded.update(s.home or s.unit for s in calls)


def _only_seeds(facts: FunctionFacts) -> bool:
    """Whether the function seeds torch on its outer level and returns nothing."""
    unit = facts.unit
    seeds = [
        s
        for s in facts.node.body
        if isinstance(s, ast.Expr)
        and isinstance(s.value, ast.Call)
        and unit.resolve(s.value.func) == "torch.manual_seed"
    ]
    returns = any(isinstance(n, (ast.Return, ast.Yield, ast.YieldFrom)) for n in ast.walk(facts.node))
    return bool(seeds) and not returns and facts.owner is None


def _scan(
    unit: Unit,
    needs: Needs,
    book: RuleBook,
    catalogue: Mapping[str, Layer],
    called_from: dict[FunctionFacts, set[FunctionFacts | None]],
) -> None:
    for named in unit.tree.both(ast.Name, ast.Attribute):
        if isinstance(named.ctx, ast.Load):
            _note_value(unit, named, needs)
    for node in unit.tree.all(ast.Call):
        if hidden(node):
            continue
        home = home_of(unit, node)
        dotted = unit.resolve(node.func)
        if dotted in ("torch.manual_seed", "torch.random.manual_seed"):
            needs.seeded.add(home or unit)
            continue
        site = _site(unit, node, home, dotted, book, catalogue)
        if site is None or (any(k.arg in GIVEN for k in node.keywords) and is_converted(unit)):
            continue
        needs.sites[node] = site
        callee = site.callee
        if isinstance(callee, ClassFacts):
            callee = callee.method("__init__")
        if callee is not None:
            called_from.setdefault(callee, set()).add(home)


def _site(
    unit: Unit,
    node: ast.Call,
    home: FunctionFacts | None,
    dotted: str | None,
    book: RuleBook,
    catalogue: Mapping[str, Layer],
) -> Site | None:
    func = unit.kind(node.func)
    if dotted == COPY:
        copied = unit.kind(node.args[0]) if node.args else None
        plain = copied is not None and copied.tag == "Module" and copied.name != "plain"
        return Site(unit, node, home, None, "build") if plain else None
    if func.tag == "Class":
        if isinstance(func.facts, ClassFacts):
            return Site(unit, node, home, func.facts)
        if dotted:
            return _torch(unit, node, home, func.name, book, catalogue)
        return Site(unit, node, home, None, "build")
    if isinstance(func.facts, FunctionFacts):
        return Site(unit, node, home, func.facts)
    if dotted and (dotted.startswith("torch.") or book.find(dotted) is not None):
        return _torch(unit, node, home, dotted, book, catalogue)
    if func.tag == "torch" and is_initialiser(func.name):
        return Site(unit, node, home, None, "build")
    if is_reset(unit, node):
        return Site(unit, node, home, None, "build")
    if isinstance(node.func, ast.Attribute) and unit.kind(node.func.value).is_tensor:
        return _torch(unit, node, home, f"torch.Tensor.{node.func.attr}", book, catalogue)
    if isinstance(node.func, ast.Attribute) and unit.kind(node.func.value).tag == "Distribution":
        return _torch(unit, node, home, f"torch.distributions.Distribution.{node.func.attr}", book, catalogue)
    return None


def is_reset(unit: Unit, node: ast.Call) -> bool:
    """`layer.reset_parameters()` on a layer of torch's own that draws its parameters or holds none."""
    func = node.func
    if not isinstance(func, ast.Attribute) or func.attr != "reset_parameters" or node.args or node.keywords:
        return False
    kind = unit.kind(func.value)
    return kind.tag == "Module" and kind.facts is None and kind.name.startswith("torch.nn.") and kind.name in _RESET


_RESET = frozenset(
    f"torch.nn.{name}"
    for name in (
        *("Linear", "Bilinear", "Embedding", "EmbeddingBag", "LayerNorm", "GroupNorm", "RMSNorm"),
        *("RNN", "LSTM", "GRU", "RNNCell", "LSTMCell", "GRUCell"),
        *(f"{kind}{n}d" for kind in ("Conv", "ConvTranspose", "BatchNorm", "InstanceNorm") for n in (1, 2, 3)),
    )
)


def _torch(
    unit: Unit, node: ast.Call, home: FunctionFacts | None, dotted: str, book: RuleBook, catalogue: Mapping[str, Layer]
) -> Site | None:
    what = draws(book.find(dotted), catalogue, node) if generator_argument(node) is None else ""
    return Site(unit, node, home, None, what) if what else None


def _note_value(unit: Unit, node: ast.Name | ast.Attribute, needs: Needs) -> None:
    """A module class of the project that is handed on as a value will be built by code that passes `rngs=`."""
    kind = unit.kind(node)
    if kind.tag != "Class" or not isinstance(kind.facts, ClassFacts) or not kind.facts.is_module:
        return
    if unit.local(node) is None and not isinstance(node, ast.Attribute) and unit.resolve(node) is None:
        return
    parent = unit.tree.parents.get(node)
    if isinstance(parent, ast.Call) and parent.func is node:
        return
    if isinstance(parent, (ast.ClassDef, ast.Attribute, ast.arg, ast.AnnAssign, ast.Subscript)):
        return
    for up in unit.tree.ancestors(node):
        if (
            isinstance(up, ast.Call)
            and isinstance(up.func, ast.Name)
            and up.func.id in ("isinstance", "issubclass", "super")
        ):
            return
        if isinstance(up, ast.stmt):
            break
    needs.values.add(kind.facts)


def home_of(unit: Unit, node: ast.AST) -> FunctionFacts | None:
    """The function whose parameters can serve `node`: the innermost `def` around it."""
    function = unit.tree.function(node)
    return unit.functions.get(function) if function is not None else None


def outer_functions(facts: FunctionFacts) -> list[FunctionFacts]:
    """The function and those around it, innermost first."""
    found, node = [facts], facts.unit.tree.function(facts.node)
    while node is not None:
        found.append(facts.unit.functions[node])
        node = facts.unit.tree.function(node)
    return found


def _initial(project: Project, needs: Needs) -> None:
    """Methods that run while a module is built: `__init__`, and what it calls on self, apply()ed functions included."""
    todo = [
        c.methods["__init__"]
        for u in project.units
        for c in u.classes.values()
        if c.is_module and "__init__" in c.methods
    ]
    todo += [c.methods["__new__"] for u in project.units for c in u.classes.values() if "__new__" in c.methods]
    for unit in project.units:
        todo += [f for c in unit.classes.values() if c.is_module for n, f in c.methods.items() if n in INIT_METHODS]
        todo += _applied(unit)
    by_home: dict[FunctionFacts, list[Site]] = {}
    for site in needs.sites.values():
        if site.home is not None:
            by_home.setdefault(site.home, []).append(site)
    while todo:
        facts = todo.pop()
        if facts in needs.initial:
            continue
        needs.initial.add(facts)
        todo += [
            s.callee
            for s in by_home.get(facts, ())
            if isinstance(s.callee, FunctionFacts) and s.callee.name != "forward"
        ]


INIT_METHODS = (
    "reset_parameters",
    "_init_weights",
    "init_weights",
    "_reset_parameters",
    "initialize_weights",
    "_initialize_weights",
)


def _applied(unit: Unit) -> list[FunctionFacts]:
    found = []
    for node in unit.tree.all(ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr == "apply" and node.args:
            kind = unit.kind(node.args[0])
            if isinstance(kind.facts, FunctionFacts):
                found.append(kind.facts)
    return found


def _propagate(project: Project, needs: Needs, called_from: Mapping[FunctionFacts, set[FunctionFacts | None]]) -> None:
    for facts in needs.values:
        needs.classes.add(facts)
    changed = True
    while changed:
        before = _size(needs)
        for site in needs.sites.values():
            what = _what(site, needs)
            if what:
                _charge(site.home, what, needs, called_from)
        for unit in project.units:
            for cls in unit.classes.values():
                if cls.is_module and (cls in needs.streams or _init_needs(cls, needs)):
                    needs.classes.add(cls)
                constructors = {cls.methods[n] for n in ("__new__", "__init__") if n in cls.methods}
                if constructors & needs.rngs:  # both are given the same arguments
                    needs.rngs |= constructors
        changed = _size(needs) != before


def _size(needs: Needs) -> int:
    functions = len(needs.rngs) + len(needs.keys) + len(needs.builders) + len(needs.roots)
    return functions + len(needs.streams) + len(needs.classes)


def _init_needs(cls: ClassFacts, needs: Needs) -> bool:
    init = cls.methods.get("__init__")
    if init is not None:
        return init in needs.rngs
    return any(c in needs.classes for c in cls.lineage()[1:])


def called_function(site: Site) -> FunctionFacts | None:
    """The project's function that a call runs: of a class that is no module, its constructor."""
    if isinstance(site.callee, ClassFacts):
        return None if site.callee.is_module else site.callee.method("__init__")
    return site.callee


def _what(site: Site, needs: Needs) -> Draw:
    if isinstance(site.callee, ClassFacts):
        if needs.takes_rngs(site.callee):
            return "build"
        return "draw" if called_function(site) in needs.keys else ""
    if isinstance(site.callee, FunctionFacts):
        if site.callee in needs.rngs:
            return "build"
        return "draw" if site.callee in needs.keys else ""
    return site.what


def _charge(
    home: FunctionFacts | None, what: Draw, needs: Needs, called_from: Mapping[FunctionFacts, set[FunctionFacts | None]]
) -> None:
    """Let the function around a needing call take what the call needs."""
    if home is None:
        return
    if any(own_key(f) for f in outer_functions(home)) or _is_nnx(home):
        return
    for facts in outer_functions(home):
        if facts in needs.initial or facts in needs.rngs:
            needs.rngs.add(facts)
            return
    owner = home.owner or next((f.owner for f in outer_functions(home) if f.owner), None)
    if owner is not None and owner.is_module:
        if what == "build" and returns_module(home):
            needs.rngs.add(home)
            needs.builders.add(home)
        else:
            needs.streams.add(owner)
        return
    if home in needs.seeded:
        return
    if home in needs.registered:
        needs.roots.add(home)
        return
    if what == "build" and returns_module(home):
        needs.rngs.add(home)
        needs.builders.add(home)
        return
    if what == "build":
        if home not in needs.keys:
            needs.roots.add(home)
        return
    if _is_root(home, called_from):
        needs.roots.add(home)
    else:
        needs.roots.discard(home)
        needs.keys.add(home)


def _is_nnx(home: FunctionFacts) -> bool:
    """A method of a class that an earlier run has converted."""
    owner = next((f.owner for f in outer_functions(home) if f.owner), None)
    return owner is not None and any(
        b.startswith("flax.nnx.") for c in owner.lineage() for b in c.bases if isinstance(b, str)
    )


def _is_root(home: FunctionFacts, called_from: Mapping[FunctionFacts, set[FunctionFacts | None]]) -> bool:
    """A function without parameters that only the script calls makes its own key."""
    args = home.node.args
    bare = not (args.args or args.posonlyargs or args.kwonlyargs)
    return bare and home.owner is None and not any(c is not None for c in called_from.get(home, ()))


def returns_module(facts: FunctionFacts) -> bool:
    return _modular(facts.returns)


def _modular(kind: Kind) -> bool:
    if kind.tag == "Module":
        return kind.name != "plain"
    return kind.tag in ("list", "tuple", "dict") and any(_modular(k) for k in kind.items)
