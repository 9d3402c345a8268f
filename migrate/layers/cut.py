"""Cuts the layer library down to the definitions that a converted program uses.

The library is read as text and with `ast` and `symtable`; it is never imported, so converting needs neither JAX nor
Flax. Its modules import nothing from each other under another name, and no two of them define the same name.
"""

from __future__ import annotations

import ast
import functools
import gc
import symtable
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

_FOLDER = Path(__file__).parent / "library"
# What a class statement needs while it runs (bases, values in its body) stands in an earlier module.
_ORDER = (
    "base",
    "hooks",
    "tensor",
    "scatter",
    "windows",
    "trees",
    "special",
    "linalg",
    "factors",
    "counting",
    "linear",
    "conv",
    "norm",
    "embedding",
    "dropout",
    "activation",
    "parametrize",
    "padding",
    "pooling",
    "fractional",
    "adaptive",
    "functional",
    "loss",
    "criterion",
    "init",
    "fill",
    "random",
    "distributions",
    "recurrent",
    "attention",
    "transformer",
    "einops_layers",
    "blocks",
    "data",
    "vision",
    "parallel",
    "checkpoint",
    "autograd",
    "optim",
    "lbfgs",
)
_NATIVE = "native"  # the second dialect's definitions, in place of those of the same name
_DOCSTRING = '''"""The parts of PyTorch that this program uses, in JAX and Flax NNX.

Same arguments, same names and layouts of weights (channels first), same numbers.
"""'''
_NATIVE_DOCSTRING = '''"""The parts of PyTorch that this program uses: Flax's own layers, or JAX and Flax NNX.

Same arguments, channels first, same numbers. The weights of Flax's layers have Flax's names and layouts; state_dict and
load_state_dict speak torch's.
"""'''


@dataclass(frozen=True)
class Layer:
    """One public name of the library.

    `params` are the parameter names in order, without `self` and `rngs`; a star-parameter keeps its star. `defaults`
    holds the source text of their defaults. `kind` is "variable" for a subclass of nnx.Variable. `needs_rngs`: a call
    must pass `rngs=`; `takes_rngs`: it may.
    """

    name: str
    kind: Literal["class", "function", "variable"]
    params: tuple[str, ...]
    defaults: Mapping[str, str]
    needs_rngs: bool
    takes_rngs: bool


@dataclass(frozen=True)
class _Definition:
    """A top-level statement of a library module: its place in the library, its node and its text."""

    name: str
    module: str
    place: tuple[int, int]
    node: ast.FunctionDef | ast.ClassDef | ast.Assign
    text: str


@dataclass(frozen=True)
class _Module:
    """A library module: its source, its definitions and, by local name, its import statements."""

    source: str
    definitions: tuple[_Definition, ...]
    imports: Mapping[str, tuple[str, str | None]]


def _imports(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, tuple[str, str | None]]]:
    """(local name, (text of the imported thing, module of a from-import)); nothing for the library's own modules."""
    if isinstance(node, ast.ImportFrom) and node.level:
        return
    for alias in node.names:
        text = f"{alias.name} as {alias.asname}" if alias.asname else alias.name
        local = alias.asname or alias.name.partition(".")[0]
        yield local, (text, node.module if isinstance(node, ast.ImportFrom) else None)


def _read(index: int, name: str) -> _Module:
    source = (_FOLDER / f"{name}.py").read_text(encoding="utf-8")
    lines = source.splitlines()
    definitions: list[_Definition] = []
    imports: dict[str, tuple[str, str | None]] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports.update(_imports(node))
        elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Assign):
            start = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))]) - 1
            while lines[start - 1].startswith("#"):
                start -= 1
            target = node.targets[0] if isinstance(node, ast.Assign) else None
            label = target.id if isinstance(target, ast.Name) else getattr(node, "name", "")
            text = "\n".join(lines[start : node.end_lineno])
            definitions.append(_Definition(label, name, (index, start), node, text))
    return _Module(source, tuple(definitions), imports)


@functools.cache
def _modules() -> Mapping[str, _Module]:
    collecting = gc.isenabled()
    gc.disable()  # all that is made here stays: looking for garbage would double the time
    try:
        return {name: _read(i, name) for i, name in enumerate(_ORDER)}
    finally:
        if collecting:
            gc.enable()


@functools.cache
def _native_module() -> _Module:
    return _read(len(_ORDER), _NATIVE)


@functools.cache
def native_layers() -> frozenset[str]:
    """The layers that the second dialect has in a version of its own."""
    return frozenset(d.name for d in _native_module().definitions if d.name[0].isupper())


def _module(name: str) -> _Module:
    return _native_module() if name == _NATIVE else _modules()[name]


@functools.cache
def _definitions(native: frozenset[str] = frozenset()) -> Mapping[str, _Definition]:
    """All definitions by name, those of the layers `native` and of what goes with them in the second dialect."""
    found = {d.name: d for module in _modules().values() for d in module.definitions}
    if native:
        others = native_layers() - native
        found |= {d.name: d for d in _native_module().definitions if d.name not in others}
    return found


def _globals_of(table: symtable.SymbolTable) -> set[str]:
    names = {s.get_name() for s in table.get_symbols() if s.is_global() and s.is_referenced()}
    return names.union(*map(_globals_of, table.get_children()))


@functools.cache
def _tables(module: str) -> Mapping[str, symtable.SymbolTable]:
    table = symtable.symtable(_module(module).source, f"{module}.py", "exec")
    return {child.get_name(): child for child in table.get_children()}


@functools.cache
def _uses(definition: _Definition) -> frozenset[str]:
    """The global names that a definition mentions; parameters and local variables of the same name do not count."""
    node = definition.node
    outside: list[ast.AST]  # what Python evaluates in the module's own scope
    if isinstance(node, ast.Assign):
        outside = [node.value]
    elif isinstance(node, ast.ClassDef):
        outside = [*node.bases, *node.keywords, *node.decorator_list]
    else:
        outside = [node.args, *node.decorator_list, *([node.returns] if node.returns else [])]
    names = {n.id for root in outside for n in ast.walk(root) if isinstance(n, ast.Name)}
    if not isinstance(node, ast.Assign):
        names |= _globals_of(_tables(definition.module)[definition.name])
    return frozenset(names - {definition.name})


def _closure(names: Iterable[str], native: frozenset[str] = frozenset()) -> list[_Definition]:
    known, found, todo = _definitions(native), dict[str, _Definition](), sorted(names)
    while todo:
        name = todo.pop()
        if name not in found:
            found[name] = known[name]
            todo.extend(used for used in _uses(known[name]) if used in known)
    return sorted(found.values(), key=lambda d: d.place)


def _import_lines(definitions: Iterable[_Definition]) -> str:
    plain: set[str] = set()
    members: dict[str, set[str]] = {}
    for definition in definitions:
        imports = _module(definition.module).imports
        for text, module in (imports[name] for name in _uses(definition) if name in imports):
            if module is None:
                plain.add(text)
            else:
                members.setdefault(module, set()).add(text)
    groups: tuple[list[str], list[str]] = ([], [])
    for text in sorted(plain):
        groups[text.split()[0].partition(".")[0] not in sys.stdlib_module_names].append(f"import {text}")
    for module in sorted(members, key=str.lower):
        line = f"from {module} import {', '.join(sorted(members[module]))}"
        groups[module.partition(".")[0] not in sys.stdlib_module_names].append(line)
    return "\n\n".join("\n".join(group) for group in groups if group)


def needed(name: str) -> frozenset[str]:
    """The names that a definition of the library needs, itself included. Raises KeyError for an unknown name."""
    return frozenset(d.name for d in _closure([name]))


def emit(names: Iterable[str], native: frozenset[str] = frozenset()) -> str:
    """The text of a module that defines the named layers and functions and what they need, and nothing else.

    `native` are the layers that are Flax's own. Raises KeyError for a name that the library does not have. No names
    give the empty text.
    """
    definitions = _closure(names, native)
    if not definitions:
        return ""
    docstring = _NATIVE_DOCSTRING if native else _DOCSTRING
    head = "\n\n".join(part for part in (docstring, _import_lines(definitions)) if part)
    gap = "\n\n" if isinstance(definitions[0].node, ast.Assign) else "\n\n\n"  # as ruff format has it behind imports
    return head + gap + "\n\n\n".join(d.text for d in definitions) + "\n"


def native_in(text: str) -> frozenset[str]:
    """The layers that a layer file has in Flax's version. Raises SyntaxError when it does not parse."""
    classes = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
    return frozenset(c.name for c in classes if c.name in native_layers() and _is_native(c))


def _is_native(node: ast.ClassDef) -> bool:
    base = ast.unparse(node.bases[0]) if node.bases else ""
    return base.startswith("_ChannelsFirst") or (base.startswith("nnx.") and base != "nnx.Module")


Known = Mapping[str, _Definition]


def _bases(node: ast.ClassDef, library: Known) -> Iterator[str]:
    """The dotted names of all base classes, followed through the library, nearest first."""
    for base in node.bases:
        yield ast.unparse(base)
        known = library.get(ast.unparse(base))
        if known is not None and isinstance(known.node, ast.ClassDef):
            yield from _bases(known.node, library)


def _constructor(node: ast.ClassDef, library: Known) -> ast.FunctionDef | None:
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            return item
    for base in _bases(node, library):
        known = library.get(base)
        if known is not None and isinstance(known.node, ast.ClassDef) and (found := _constructor(known.node, library)):
            return found
    return None


def _signature(function: ast.FunctionDef) -> tuple[list[str], dict[str, str]]:
    """Parameter names in order, star-parameters with their stars, and the source text of the defaults."""
    args = function.args
    positional = [a.arg for a in (*args.posonlyargs, *args.args)]
    defaults = dict(zip(reversed(positional), map(ast.unparse, reversed(args.defaults)), strict=False))
    keyword = [a.arg for a in args.kwonlyargs]
    defaults |= {k: ast.unparse(d) for k, d in zip(keyword, args.kw_defaults, strict=True) if d is not None}
    star = [f"*{args.vararg.arg}"] if args.vararg else []
    stars = [f"**{args.kwarg.arg}"] if args.kwarg else []
    return [*positional, *star, *keyword, *stars], {
        name: defaults[name] for name in positional + keyword if name in defaults
    }


def _layer(definition: _Definition, library: Known) -> Layer:
    node = definition.node
    kind: Literal["class", "function", "variable"] = "function"
    function: ast.FunctionDef | None = None
    if isinstance(node, ast.FunctionDef):
        function = node
    elif isinstance(node, ast.ClassDef):
        kind = "variable" if "nnx.Variable" in _bases(node, library) else "class"
        function = _constructor(node, library)
    params, defaults = _signature(function) if function else ([], {})
    return Layer(
        definition.name,
        kind,
        tuple(p for p in params if p not in ("self", "rngs")),
        MappingProxyType({k: v for k, v in defaults.items() if k != "rngs"}),
        needs_rngs="rngs" in params and "rngs" not in defaults,
        takes_rngs="rngs" in params,
    )


@functools.cache
def catalogue(native: frozenset[str] = frozenset()) -> Mapping[str, Layer]:
    """Every public class and function of the library by name; `native` are the layers that are Flax's own."""
    library = _definitions(native)
    public = (d for d in library.values() if not d.name.startswith("_") and not isinstance(d.node, ast.Assign))
    return MappingProxyType({d.name: _layer(d, library) for d in public})
