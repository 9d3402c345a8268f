"""Arrays that may be the arguments of a module, the likeliest first: by its layers, and by names and annotations."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from torch import nn

from .cases import ArraySpec

_SIDES = (16, 32, 28, 64, 96, 128, 224)
_BATCH, _TIME = 2, 6
_INTEGERS = re.compile(
    r"ids?$|^idx|tokens?$|^t$|^ts$|timestep|labels?$|^targets?$|index|indices|words|caption|input_seq"
)
_MASK = re.compile(r"mask$")
_CONVS: tuple[tuple[type[nn.Module], int], ...] = (
    (nn.Conv1d, 1), (nn.Conv2d, 2), (nn.Conv3d, 3),
    (nn.ConvTranspose1d, 1), (nn.ConvTranspose2d, 2), (nn.ConvTranspose3d, 3),
    (nn.BatchNorm1d, 1), (nn.BatchNorm2d, 2), (nn.BatchNorm3d, 3),
)  # fmt: skip


@dataclass(frozen=True)
class Trial:
    """A value for one argument: an array, or the text of a literal; and why it may fit."""

    spec: ArraySpec | None
    how: str
    literal: str = ""

    @property
    def text(self) -> str:
        return self.literal or written(self.spec)


def written(spec: ArraySpec | None) -> str:
    """An array in the language of cases."""
    assert spec is not None
    text = f"{spec.dtype}[{', '.join(map(str, spec.shape))}]"
    if spec.high is None:
        return text
    return f"{text} < {spec.high}" if not spec.low else f"{spec.low} <= {text} < {spec.high}"


def trials(parameter: inspect.Parameter, module: nn.Module, sizes: Sequence[int]) -> list[Trial]:
    """What an argument may be. `sizes`: whole numbers that the module was built with, for the sides of images."""
    if parameter.annotation in (int, "int"):
        return [Trial(None, "a whole number", v) for v in ("2", "1")]
    if parameter.annotation in (float, "float"):
        return [Trial(None, "a number", "0.5")]
    if parameter.annotation in (bool, "bool"):
        return [Trial(None, "a truth value", "False")]
    found = [*_by_layers(module, sizes), *_general(sizes)]
    if _INTEGERS.search(parameter.name.lower()):
        whole = [t for t in found if t.spec is not None and t.spec.dtype == "i64"]
        whole = whole or [Trial(_ints(_BATCH), "whole numbers, by its name")]
        found = [*whole, *(t for t in found if t not in whole)]
    if _MASK.search(parameter.name.lower()):
        shape = (_BATCH, _TIME)
        found = [Trial(ArraySpec("bool", shape), "a mask, by its name"), *found]
    unique: dict[str, Trial] = {}
    for trial in found:
        unique.setdefault(trial.text, trial)
    return list(unique.values())


def _ints(*shape: int) -> ArraySpec:
    """Zeros and ones fit any table of two rows; the range is widened once the shape is known."""
    return ArraySpec("i64", shape, 0, 2)


def _by_layers(module: nn.Module, sizes: Sequence[int]) -> Iterator[Trial]:
    """By the first layers of a module, in order of definition."""
    seen: set[tuple[str, object]] = set()
    sequence = any(isinstance(m, (nn.LayerNorm, nn.MultiheadAttention)) for m in module.modules())
    for path, layer in module.named_modules():
        for key, shapes, said in _shapes(layer, sizes, sequence):
            if key in seen:
                continue
            seen.add(key)
            how = f"{path or 'the module'} is {type(layer).__name__} with {said}"
            yield from (Trial(spec, how) for spec in shapes)
        if len(seen) >= 5:
            return


def _shapes(
    layer: nn.Module, sizes: Sequence[int], sequence: bool
) -> Iterator[tuple[tuple[str, object], list[ArraySpec], str]]:
    if isinstance(layer, nn.Embedding):
        key, said = ("table", None), f"num_embeddings={layer.num_embeddings}"
        fixed = [_ints(_BATCH, s) for s in sizes if s <= 128]
        yield key, [_ints(_BATCH, 8), _ints(_BATCH), _ints(_BATCH, 3, 4), *fixed], said
    elif isinstance(layer, nn.Linear):
        flat, rows = _floats(4, layer.in_features), _floats(_BATCH, _TIME, layer.in_features)
        shapes = [rows, flat] if sequence else [flat, rows]
        shapes += [_floats(_BATCH, s, layer.in_features) for s in sizes if s <= 128]  # a fixed number of rows
        yield ("linear", layer.in_features), shapes, f"in_features={layer.in_features}"
    elif isinstance(layer, nn.RNNBase):
        yield ("rnn", layer.input_size), [_floats(_BATCH, _TIME, layer.input_size)], f"input_size={layer.input_size}"
    elif isinstance(layer, nn.LayerNorm):
        shape = layer.normalized_shape
        yield ("norm", shape), [_floats(_BATCH, _TIME, *shape), _floats(_BATCH, *shape)], f"normalized_shape={shape}"
    elif isinstance(layer, nn.MultiheadAttention):
        size = layer.embed_dim
        yield ("attention", size), [_floats(_BATCH, _TIME, size)], f"embed_dim={size}"
    for kind, dims in _CONVS:
        if isinstance(layer, kind):
            norm = "num_features" if hasattr(layer, "num_features") else "in_channels"
            channels = int(getattr(layer, norm))
            sides = [*(s for s in sizes if 16 <= s <= 256), *(_SIDES if dims < 3 else (8, 16, 32))]
            if "Transpose" in kind.__name__:
                sides = [4, *sides]
            shapes = [_floats(_BATCH, channels, *[s] * dims) for s in dict.fromkeys(sides)]
            if norm == "num_features" and dims == 1:
                shapes = [_floats(4, channels), *shapes]
            yield (f"channels{dims}", channels), shapes, f"{norm}={channels}"


def _floats(*shape: int) -> ArraySpec:
    return ArraySpec("f32", shape)


def _general(sizes: Sequence[int]) -> Iterator[Trial]:
    """Shapes for modules whose layers do not say: patches of images, vectors of the sizes that it was built with."""
    how = "found by trying"
    for size in [s for s in dict.fromkeys(sizes) if s <= 512]:
        yield Trial(_floats(_BATCH, _TIME, size), f"{how}: built with {size}")
        yield Trial(_floats(4, size), f"{how}: built with {size}")
        if size >= 8:
            yield from (Trial(_floats(_BATCH, c, size, size), f"{how}: built with {size}") for c in (3, 1))
            yield Trial(_floats(_BATCH, size, 8, 8), f"{how}: built with {size}")
    for shape in ((4, 8), (_BATCH, _TIME, 16), (_BATCH, 3, 32, 32), (_BATCH, 1, 28, 28), (_BATCH, 3, 8, 16, 16), (4,)):
        yield Trial(_floats(*shape), how)
    yield Trial(_ints(_BATCH, 8), how)


def uneven(trial: Trial) -> Trial | None:
    """The same image with two different sides, so that rows and columns cannot be mistaken for each other."""
    if trial.spec is None or trial.spec.dtype != "f32" or len(trial.spec.shape) != 4:
        return None
    *front, height, width = trial.spec.shape
    if height != width or height < 16:
        return None
    return replace(trial, spec=replace(trial.spec, shape=(*front, height, height * 3 // 4)))


def resized(trial: Trial, factor: float) -> Trial | None:
    """An image or a series of another size, for `factor` times as many numbers at the layer that did not fit."""
    if trial.spec is None or trial.spec.dtype != "f32" or len(trial.spec.shape) not in (3, 4):
        return None
    batch, channels, *sides = trial.spec.shape
    scale = factor ** (1 / len(sides))
    made = [round(s * scale) for s in sides]
    if not all(1 <= s <= 512 for s in made) or made == sides:
        return None
    how = f"{trial.how}; sides that make a later layer fit"
    return Trial(replace(trial.spec, shape=(batch, channels, *made)), how)
