"""Expressions that may build a class: from its defaults, annotations, the names of its parameters, and configs.

What an expression names is a literal or a name of the file, so that the converted file can evaluate it too.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import re
import typing
from collections.abc import Iterator, Mapping
from typing import Any

_TRIES = 24  # combinations of constructor arguments
_DEPTH = 2  # configs in configs

# By the name of a parameter: what it may be, the first that fits is looked up.
_NAMES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"vocab|num_?tokens|n_?tokens?$|num_embeddings", ("50",)),
    (r"class|labels|out_features|n_out|num_out|output_(dim|size)|out_dim|n_actions|action_dim", ("5",)),
    (r"in_?ch|^channels$|input_channels|n_channels|num_channels|c_in", ("3", "4", "16")),
    (r"head_dim|dim_head", ("8",)),
    (r"head", ("2", "4")),
    (r"depth|layers?$|blocks?$|stages", ("2",)),
    (r"kernel", ("3",)),
    (r"stride|dilation|groups", ("1",)),
    (r"pad", ("1",)),
    (r"patch", ("4",)),
    (r"image|img|resolution", ("16", "32")),
    (r"seq|block_size|max_len|context|length|window|frames|horizon", ("16",)),
    (r"drop|rate|prob|^p$|momentum|decay|alpha|beta|gamma|temp", ("0.1",)),
    (r"eps", ("1e-5",)),
    (r"expan|mult|ratio|scale|factor", ("2",)),
    (r"bias|^use_|^is_|^with_|bidirectional|causal", ("False", "True")),
)
_BY_TYPE: dict[Any, tuple[str, ...]] = {
    int: ("16", "2"),
    float: ("0.1",),
    bool: ("False", "True"),
    list: ("[8, 8]", "[8, 8, 8, 8]"),
    tuple: ("(8, 8)", "(8, 8, 8, 8)"),
}
_COUNTS = re.compile(r"blocks$|layers$|depths?$|repeats$")  # how many of something, in each stage
_PER_STAGE = ("[1, 1]", "[1, 1, 1]", "[1, 1, 1, 1]")
_NOT_NUMBERS = re.compile(r"act|norm_layer|func|^fn$|layer$|module|backbone|encoder|decoder|net$|model$|criterion")
_BLOCK = re.compile(r"^block$|block_?(type|class|cls|fn)$|^cell$")
_CONFIG = re.compile(r"config|cfg|args|hparams|^hps?$|^opts?$|options|params$|settings")

# Sizes of a model that is too large to be run often, by the name of the parameter.
_SMALLER = (
    (re.compile(r"depth|n_layers?$|num_layers$|num_hidden_layers|num_blocks"), 2),
    (re.compile(r"n_embd|embed_dim|d_model|hidden_(size|dim)|^dim$|^width$|mlp_dim|intermediate_size|d_ff"), 64),
    (re.compile(r"n_heads?$|num_heads|num_attention_heads|^heads$"), 4),
    (re.compile(r"vocab_size|num_tokens"), 100),
)


@dataclasses.dataclass(frozen=True)
class Guess:
    """An expression and how it came about."""

    text: str
    how: str


class Impossible(Exception):
    """No value can be proposed for a parameter; the text says for which and why."""


def guesses(cls: type, names: Mapping[str, Any], depth: int = 0) -> Iterator[Guess]:
    """Calls of a class of the file, the likeliest first. Raises Impossible."""
    needed = _needed(cls)
    options = [_options(p, _annotation(cls, p), names, depth) for p in needed]
    what = "defaults of its own" if needed else "its defaults" if _parameters(cls) else "it takes no arguments"
    for values in itertools.islice(itertools.product(*options), _TRIES):
        given = (f"{p.name}={v.text}" for p, v in zip(needed, values, strict=True))
        said = "; ".join([*(f"{p.name}: {v.how}" for p, v in zip(needed, values, strict=True))]) or what
        yield Guess(f"{cls.__name__}({', '.join(given)})", said)


def smaller(text: str, cls: type, names: Mapping[str, Any]) -> Iterator[Guess]:
    """The same call with smaller sizes; of the class itself, or of a config that is built in it."""
    for name in dict.fromkeys([*re.findall(r"\b([A-Za-z_]\w*)\(", text)]):
        owner = names.get(name)
        if not isinstance(owner, type) or (owner is not cls and not dataclasses.is_dataclass(owner)):
            continue
        changes = {}
        for p in _parameters(owner):
            size = next((s for pattern, s in _SMALLER if pattern.search(p.name)), None)
            if size is not None and type(p.default) is int and p.default > size and f"{p.name}=" not in text:
                changes[p.name] = (p.default, size)
        if changes:
            added = ", ".join(f"{k}={new}" for k, (_, new) in changes.items())
            end = _end(text, text.index(f"{name}(") + len(name))
            comma = "" if text[end - 1] == "(" else ", "
            said = ", ".join(f"{k} {old} to {new}" for k, (old, new) in changes.items())
            yield Guess(f"{text[:end]}{comma}{added}{text[end:]}", f"made smaller, to be quick: {said}")


def _end(text: str, start: int) -> int:
    depth = 0
    for i in range(start, len(text)):
        depth += (text[i] in "([{") - (text[i] in ")]}")
        if depth == 0:
            return i
    return len(text) - 1


def _parameters(cls: type) -> list[inspect.Parameter]:
    try:
        found = list(inspect.signature(cls).parameters.values())
    except (TypeError, ValueError):
        return []
    return [p for p in found if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def _needed(cls: type) -> list[inspect.Parameter]:
    needed = [p for p in _parameters(cls) if p.default is p.empty]
    if any(p.kind is p.POSITIONAL_ONLY for p in needed):
        raise Impossible("its constructor takes arguments by position only")
    return needed


def _annotation(cls: type, parameter: inspect.Parameter) -> Any:
    if not isinstance(parameter.annotation, str):
        return parameter.annotation
    try:
        owner: Any = cls if dataclasses.is_dataclass(cls) else vars(cls).get("__init__", cls)
        return typing.get_type_hints(owner).get(parameter.name, parameter.empty)
    except Exception:  # names that only a type checker knows
        return parameter.empty


def _options(parameter: inspect.Parameter, annotation: Any, names: Mapping[str, Any], depth: int) -> list[Guess]:
    name = parameter.name.lower()
    origin, inside = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return [Guess(repr(v), "one of its literals") for v in inside]
    if inside and type(None) in inside:
        kept = [a for a in inside if a is not type(None)]
        annotation = kept[0] if len(kept) == 1 else annotation
        origin = typing.get_origin(annotation)
    if found := _of_class(name, annotation, names, depth):
        return found
    kind = origin or annotation
    if kind in _BY_TYPE:
        named = next((v for pattern, v in _NAMES if re.search(pattern, name)), ())
        fits = [v for v in named if kind in (int, float, bool) and _is(v, kind)]
        if kind in (list, tuple) and _COUNTS.search(name):
            return [Guess(v if kind is list else f"({v[1:-1]})", "by its name") for v in _PER_STAGE]
        return [Guess(v, "by its name") for v in fits] or [
            Guess(v, f"{parameter.name} is a {kind.__name__}") for v in _BY_TYPE[kind]
        ]
    if annotation is not parameter.empty and annotation is not Any:
        shown = getattr(annotation, "__name__", str(annotation))
        raise Impossible(f"its constructor needs `{parameter.name}`, a {shown}, which cannot be guessed")
    if _NOT_NUMBERS.search(name) or _CONFIG.search(name):
        raise Impossible(f"its constructor needs `{parameter.name}`, which cannot be guessed")
    named = next((v for pattern, v in _NAMES if re.search(pattern, name)), _BY_TYPE[int])
    if _COUNTS.search(name):
        named = (*named, *_PER_STAGE)
    return [Guess(v, "by its name") for v in named]


def _is(text: str, kind: type) -> bool:
    value = {"True": True, "False": False}.get(text)
    if kind is bool or value is not None:
        return kind is bool and value is not None
    return ("." in text or "e" in text) == (kind is float)


def _of_class(name: str, annotation: Any, names: Mapping[str, Any], depth: int) -> list[Guess]:
    """Instances of a class of the file: the annotation's, or a config that has a fitting name; or a class itself."""
    classes = [v for k, v in names.items() if isinstance(v, type) and v.__name__ == k]
    own = [c for c in classes if c.__module__ == _home(names)]
    if isinstance(annotation, type) and annotation in classes and annotation.__module__ != "builtins":
        wanted = [annotation]
    elif _CONFIG.search(name) and not isinstance(annotation, type):
        wanted = [c for c in classes if dataclasses.is_dataclass(c)]
        wanted += [c for c in own if c not in wanted and _CONFIG.search(c.__name__.lower())]
    elif _BLOCK.search(name) and (annotation is inspect.Parameter.empty or typing.get_origin(annotation) is type):
        wanted = [c for c in own if re.search(r"block|cell|bottleneck", c.__name__.lower())]
        return [Guess(c.__name__, "a class of the file") for c in wanted]
    else:
        return []
    if depth >= _DEPTH:
        return []
    found: list[Guess] = []
    for cls in wanted:
        try:
            for guess in itertools.islice(guesses(cls, names, depth + 1), 4):
                found.append(Guess(guess.text, f"{cls.__name__}, {guess.how}"))
        except Impossible:
            continue
    return found


def _home(names: Mapping[str, Any]) -> str:
    return str(names.get("__name__", ""))
