"""Random tensor programs for the fuzzer: views, in-place writes, loops, branches, functions, containers, a small class.

A program is drawn as a tree of statements with the shape of every name tracked, so that torch accepts most of them.
All sizes are 2, 3, 4 or 6, which keeps JAX from compiling anew. `hypothesis` shrinks a failing program by itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import holding
from hypothesis import strategies as st

Shape = tuple[int, ...]
# Their parameters have no annotation, and `run` hides what they are given.
HIDDEN = ("shift", "copied", "joined", "viewed", "shift", "copied", "joined", "viewed", "written")
SHAPES: tuple[Shape, ...] = ((2, 3), (3, 2), (6,), (3,), (2,), (2, 3, 2))
NAMES = ("a", "b", "c", "d", "e")

HELPERS = """
def same(t: torch.Tensor):
    return t


def fresh(t: torch.Tensor):
    r = t.clone()
    r[0] = 1
    return r


def bump(t: torch.Tensor, by: float = 1.0):
    t += by
    return t


def reset(t: torch.Tensor):
    t[0] = 7


def total(t: torch.Tensor):
    t.mul_(2)
    return t.sum()


def twice(t: torch.Tensor):
    bump(t)
    reset(t)


def view_of(t: torch.Tensor):
    return t[1:]


def mix(t: torch.Tensor, u: torch.Tensor):
    t[0] = u[0]
    u.add_(1)


def run(f, *ts):
    return f(*ts)


def shift(t):
    return t.neg().add(t.sign())


def copied(t):
    u = t.clone()
    u[0] = 3
    return u.mul(2) + t


def joined(t):
    u = t.detach()
    v = u.mul(2)
    v += u
    return v


def viewed(t):
    u = t.abs()
    v = u.unsqueeze(0)
    v[0] = 2
    return u.sub(t)


def written(t):
    u = t.detach()
    u += 1
    return t.square()


class Box:
    def __init__(self, start: torch.Tensor):
        self.held = start.clone()
        self.count = torch.zeros(3)

    def put(self, t: torch.Tensor):
        self.held = t

    def add(self, t: torch.Tensor):
        self.held = self.held + t.sum()
        self.count[1] += 1

    def scale(self):
        self.held.mul_(2)
        self.count += 1

    def touch(self, t: torch.Tensor):
        t[0] = self.count[0]
        return t

    def read(self):
        return self.held * 1
"""


@dataclass
class State:
    """What is known at one point of a program: the shapes of names, of the items of lists, how deep it is."""

    shapes: dict[str, Shape]
    lists: dict[str, Shape] = field(default_factory=dict)
    depth: int = 0
    counters: int = 0
    boxes: bool = True

    def inner(self) -> State:
        return State(dict(self.shapes), dict(self.lists), self.depth + 1, self.counters, self.boxes)


Draw = st.DrawFn


def _pick(draw: Draw, state: State, want: Shape | None = None) -> str | None:
    names = [n for n, s in state.shapes.items() if want is None or s == want]
    return draw(st.sampled_from(sorted(names))) if names else None


def _numel(shape: Shape) -> int:
    n = 1
    for s in shape:
        n *= s
    return n


def _views(name: str, shape: Shape) -> list[tuple[str, Shape]]:
    """Views of a tensor, as text with their shapes."""
    found: list[tuple[str, Shape]] = [(name, shape), (f"{name}[:]", shape), (f"{name}.detach()", shape)]
    if len(shape) >= 1 and shape[0] > 1:
        found += [(f"{name}[1:]", (shape[0] - 1, *shape[1:])), (f"{name}[:2]", (2, *shape[1:]))]
        found.append((f"{name}.narrow(0, 0, 2)", (2, *shape[1:])))
    if len(shape) >= 2:
        found += [(f"{name}[0]", shape[1:]), (f"{name}[-1]", shape[1:]), (f"{name}.select(0, 1)", shape[1:])]
        found += [(f"{name}[:, 1]", (shape[0], *shape[2:])), (f"{name}[..., 0]", shape[:-1])]
        found.append((f"{name}.transpose(0, 1)", (shape[1], shape[0], *shape[2:])))
        found.append((f"{name}.unbind(0)[1]", shape[1:]))
        found.append((f"{name}.view(-1)", (_numel(shape),)))
        found.append((f"{name}.reshape(-1)", (_numel(shape),)))
        found.append((f"{name}.flatten()", (_numel(shape),)))
    if len(shape) == 2:
        found += [(f"{name}.t()", shape[::-1]), (f"{name}.T", shape[::-1]), (f"{name}.permute(1, 0)", shape[::-1])]
    if shape == (6,):
        found += [(f"{name}.view(2, 3)", (2, 3)), (f"{name}[::2]", (3,)), (f"{name}.reshape(3, 2)", (3, 2))]
    if len(shape) == 1:
        found.append((f"{name}.unsqueeze(0)", (1, *shape)))
    return found


def _copies(draw: Draw, state: State, name: str, shape: Shape) -> tuple[str, Shape]:
    other = _pick(draw, state, shape) or name
    return draw(
        st.sampled_from(
            (
                (f"{name} + {other}", shape),
                (f"{name} * 2", shape),
                (f"{name}.clone()", shape),
                (f"torch.where({name} > 1, {name}, {other})", shape),
                (f"fresh({name})", shape),
                (f"torch.zeros({', '.join(map(str, shape))})", shape),
                (f"{name}[[1, 0]]", (2, *shape[1:])),
                (f"torch.stack([{name}, {other}])[1]", shape),
                (f"{name}.contiguous()", shape),
                (f"torch.relu({name} - 1)", shape),
                (f"{name}.add({other}, alpha=2)", shape),
                (f"{name}.sub({other}).abs()", shape),
            )
        )
    )


def _value(draw: Draw, state: State, shape: Shape) -> str:
    """Something that can be written to a place of this shape: a number or a tensor."""
    choices = [str(draw(st.integers(1, 5))), "0.5"]
    choices += [t for n, s in sorted(state.shapes.items()) for t, v in _views(n, s) if v == shape][:8]
    return draw(st.sampled_from(choices))


def _target(draw: Draw, state: State) -> tuple[str, Shape]:
    """A tensor that is written to, as text with its shape."""
    options = sorted(state.shapes.items())
    if state.boxes:
        options += [("box.count", (3,))]
    options += [(f"{n}[{i}]", s) for n, s in sorted(state.lists.items()) for i in (0, -1)]
    name, shape = draw(st.sampled_from(options))
    return draw(st.sampled_from(_views(name, shape))) if draw(st.booleans()) else (name, shape)


def _assign(draw: Draw, state: State) -> list[str]:
    name = _pick(draw, state)
    assert name is not None
    shape = state.shapes[name]
    kind = draw(st.integers(0, 9))
    target = draw(st.sampled_from(NAMES))
    if kind < 5:
        text, new = draw(st.sampled_from(_views(name, shape)))
    elif kind < 8:
        text, new = _copies(draw, state, name, shape)
    elif kind == 8:
        text, new = f"same({name})", shape
    else:
        if not state.boxes:
            return []
        text, new = "box.count", (3,)
    state.shapes[target] = new
    return [f"{target} = {text}"]


def _write(draw: Draw, state: State) -> list[str]:
    target, shape = _target(draw, state)
    value = _value(draw, state, shape)
    kind = draw(st.integers(0, 13))
    bare = target.isidentifier() or target == "box.count"
    if kind == 0:
        return [f"{target}[0] = {_value(draw, state, shape[1:])}"]
    if kind == 1:
        return [f"{target}[{'1:' if shape[0] > 1 else ':'}] += {draw(st.integers(1, 3))}"]
    if kind == 2 and (bare or target.endswith("]")):
        return [f"{target} {draw(st.sampled_from(('+=', '-=', '*=')))} {value}"]
    if kind == 3:
        return [f"{target}.add_({value})"]
    if kind == 4:
        return [f"{target}.mul_(2).sub_({draw(st.integers(1, 3))})"]
    if kind == 5:
        return [f"{target}.zero_()"]
    if kind == 6:
        return [f"{target}.copy_({value})"] if not value[0].isdigit() else [f"{target}.fill_({value})"]
    if kind == 7 and bare:
        return [f"{target}[{target} > 2] = 0"]
    if kind == 8:
        return [f"{target}[[0, 0]] += 1"]
    if kind == 9 and target.isidentifier():
        return [f"torch.add({target}, 1, out={target})"]
    if kind == 10 and bare:
        return [f"{target}.clamp_(max=4)"]
    if kind == 11:
        return [f"{target}.data.add_(1)"] if bare else [f"{target}.add_(1)"]
    if kind == 12 and target.isidentifier():
        name = draw(st.sampled_from(NAMES))
        state.shapes[name] = shape
        return [f"{name} = {target}.add_(1)"]
    if kind == 13 and target.isidentifier():
        other = _pick(draw, state, shape)
        return [f"{target}[0], {other}[-1] = {other}[-1], {target}[0]"]
    return [f"{target}.add_(1)"]


def _call(draw: Draw, state: State) -> list[str]:
    target, shape = _target(draw, state)
    name = draw(st.sampled_from(NAMES))
    kind = draw(st.integers(0, 9))
    if kind <= 1:
        return [f"{draw(st.sampled_from(('reset', 'bump', 'twice')))}({target})"]
    if kind == 2:
        state.shapes[name] = shape
        return [f"{name} = bump({target}, 2.0)"]
    if kind == 3:
        return [f"s = s + total({target})"]
    if kind == 4:
        other, second = _target(draw, state)
        return [f"mix({target}, {other})"] if shape[1:] == second[1:] else [f"reset({other})"]
    if kind == 5 and shape[0] > 1:
        state.shapes[name] = (shape[0] - 1, *shape[1:])
        return [f"{name} = view_of({target})"]
    if not state.boxes:
        return [f"s = s + bump({target}).sum()"]
    if kind == 6:
        return [draw(st.sampled_from((f"box.put({target}.clone())", f"box.add({target})", "box.scale()")))]
    if kind == 7:
        return [f"box.touch({target})"]
    if kind == 8:
        return [f"s = s + box.read().sum() + {target}.sum()"]
    return [f"s = s + bump({target}).sum()"]


def _container(draw: Draw, state: State) -> list[str]:
    kind = draw(st.integers(0, 5))
    name = draw(st.sampled_from(("xs", "ys")))
    source = _pick(draw, state)
    assert source is not None
    shape = state.shapes[source]
    if kind <= 1 or name not in state.lists:
        state.lists[name] = shape
        items = draw(
            st.sampled_from(
                (
                    f"[{source}.clone(), {source} * 2]",
                    f"[torch.zeros({', '.join(map(str, shape))}) for _ in range(2)]",
                    f"[{source}, {source} + 1]",
                )
            )
        )
        return [f"{name} = {items}"]
    held = state.lists[name]
    same = _pick(draw, state, held)
    if kind == 2 and same:
        return [f"{name}.append({same}{draw(st.sampled_from(('', '.clone()')))})"]
    if kind == 3:
        target = draw(st.sampled_from(NAMES))
        state.shapes[target] = held
        return [f"{target} = {name}[{draw(st.sampled_from((0, -1)))}]"]
    if kind == 4:
        return [
            f"for t in {name}:",
            f"    {draw(st.sampled_from(('t += 1', 't[0] = 2', 't.mul_(2)', 's = s + t.sum()')))}",
        ]
    return [f"s = s + torch.stack({name}).sum()"]


def _compound(draw: Draw, state: State) -> list[str]:
    kind = draw(st.integers(0, 4))
    name = _pick(draw, state)
    assert name is not None
    shape = state.shapes[name]
    inner = state.inner()
    if kind == 0:
        body = _block(draw, inner, 3)
        head = f"if {name}.sum() > {draw(st.integers(0, 9))}:"
        other = _block(draw, state.inner(), 2) if draw(st.booleans()) else []
        rest = ["else:", *("    " + line for line in other)] if other else []
        return [head, *("    " + line for line in body), *rest]
    inner.counters += 1
    counter = f"i{inner.counters}"
    if kind == 1 and len(shape) >= 2:
        inner.shapes["row"] = shape[1:]
        body = [f"row = {name}[{counter}]", *_block(draw, inner, 3)]
        return [f"for {counter} in range({shape[0]}):", *("    " + line for line in body)]
    if kind == 2 and len(shape) >= 2:
        inner.shapes["row"] = shape[1:]
        return [f"for row in {name}:", *("    " + line for line in _block(draw, inner, 3))]
    if kind == 3:
        body = [f"{name}[{counter}] {draw(st.sampled_from(('=', '+=')))} {counter} + 1", *_block(draw, inner, 2)]
        return [f"for {counter} in range({min(shape[0], 2)}):", *("    " + line for line in body)]
    return [f"for {counter} in range(2):", *("    " + line for line in _block(draw, inner, 3))]


def _odd(draw: Draw, state: State) -> list[str]:
    """Rarer forms: conditional aliases, closures, `zip` and `enumerate`, `while`, `try`, attributes, dicts, swaps."""
    name = _pick(draw, state)
    assert name is not None
    shape = state.shapes[name]
    other = _pick(draw, state, shape) or name
    target = draw(st.sampled_from(NAMES))
    number = draw(st.integers(1, 3))
    kind = draw(st.integers(0, 15))
    if kind >= 14:
        state.shapes[target] = shape
        return [f"{target} = run({draw(st.sampled_from(HIDDEN))}, {name})"]
    if kind == 0:
        state.shapes[target] = shape
        return [f"{target} = {name} if s > {number} else {other}"]
    if kind == 1:
        return ["def local():", f"    return {name}.sum() * {number}", f"{other} += 1", "s = s + local()"]
    if kind == 2 and state.depth == 0:
        return [f"for p, q in zip({name}, {other}):", f"    p += {number}", "    s = s + q.sum()"]
    if kind == 3:
        return [f"for n, p in enumerate({name}):", f"    {other}[0] = n", "    s = s + p.sum()"]
    if kind == 4:
        state.shapes["w"] = shape
        return [f"w = {name}", "n = 0", "while n < 2:", "    n += 1", f"    w += {number}", f"    w = {other}"]
    if kind == 5:
        body = [f"    {name}[0] = {number}", f"    s = s + {other}.sum()"]
        return ["try:", *body, "except ValueError:", f"    {name} += 1"]
    if kind == 6 and state.boxes:
        forms = ("box.count += 1", "box.count[1] = 3", "s = s + box.count.sum()", "box.held += 1")
        return [draw(st.sampled_from(forms))]
    if kind == 7:
        held = draw(st.sampled_from((name, f"{name}.clone()")))
        return [f"table = {{'k': {held}}}", f"table['k'] += {number}", "s = s + table['k'].sum()"]
    if kind == 8:
        state.shapes[name], state.shapes[other] = state.shapes[other], state.shapes[name]
        return [f"{name}, {other} = {other}, {name}"]
    if kind == 9 and shape[0] > 1 and len(shape) > 1:
        state.shapes[target] = shape[1:]
        return [f"{', '.join([target, 'u', '_', '_', '_', '_'][: shape[0]])} = {name}"]
    if kind == 10:
        return [f"{name}[torch.tensor([0, 0])] += {number}"]
    if kind == 11:
        return [f"{name}.index_put_((torch.tensor([0, 1, 0]),), torch.tensor({float(number)}), accumulate=True)"]
    if kind == 12:
        return [f"{name}.masked_fill_({other} > {number}, 2.0)"]
    state.shapes[target] = shape
    return [f"{target} = {name}", f"{target} {draw(st.sampled_from(('+=', '-=', '*=')))} {number}"]


def _held(draw: Draw, state: State) -> list[str]:
    name = _pick(draw, state)
    assert name is not None
    other = _pick(draw, state, state.shapes[name]) or name
    target = draw(st.sampled_from(NAMES))
    lines, bound = holding.held(draw, name, other, target, draw(st.integers(1, 3)))
    if bound:
        state.shapes[target] = state.shapes[name]
    return lines


def _block(draw: Draw, state: State, most: int) -> list[str]:
    lines: list[str] = []
    for _ in range(draw(st.integers(1, most))):
        kind = draw(st.integers(0, 23))
        if kind == 23:
            lines += _held(draw, state)
        elif kind >= 20:
            lines += _odd(draw, state)
        elif kind < 6:
            lines += _assign(draw, state)
        elif kind < 12:
            lines += _write(draw, state)
        elif kind < 15:
            lines += _call(draw, state)
        elif kind < 17 and state.depth < 2:
            lines += _compound(draw, state)
        elif kind < 18:
            lines += _container(draw, state)
        else:
            lines.append(f"s = s + {draw(st.sampled_from(sorted(state.shapes)))}.sum()")
    return lines or ["pass"]


@st.composite
def programs(draw: Draw) -> str:
    """The source of one program; `main()` returns its tensors."""
    first, second, third = (draw(st.sampled_from(SHAPES)) for _ in range(3))
    state = State({"a": first, "b": second, "c": third})
    lines = [
        f"a = torch.arange({float(_numel(first))}).reshape({', '.join(map(str, first))})",
        f"b = torch.ones({', '.join(map(str, second))})",
        f"c = torch.zeros({', '.join(map(str, third))}) + 3",
        "s = torch.zeros(())",
    ]
    state.boxes = draw(st.integers(0, 3)) == 0
    if state.boxes:
        lines.append("box = Box(a)")
    lines += _block(draw, state, 7)
    returned = draw(st.sets(st.sampled_from(sorted({"a", "b", "c"} & set(state.shapes))), min_size=1))
    known = [*sorted(returned), "s"]
    if state.boxes and draw(st.booleans()):
        known.append("box.read()")
    for name in ("xs", "ys"):
        if any(line.startswith(f"{name} = ") for line in lines) and draw(st.booleans()):
            known.append(name)
    lines.append(f"return {', '.join(known)}")
    body = "".join(f"    {line}\n" for line in lines)
    helpers = _helpers(body)
    if draw(st.integers(0, 2)) == 0:
        helpers = helpers.replace(": torch.Tensor", "")
    return f"import torch\n\n{helpers}\ndef main():\n{body}"


def _helpers(body: str) -> str:
    """The helpers that a program calls, with those that they call."""
    parts = [p.strip("\n") for p in (HELPERS + "\n\n" + holding.HELPERS).split("\n\n\n")]
    text = body
    used: list[str] = []
    for _ in range(3):
        for part in parts:
            name = part.split("(")[0].split(":")[0].split()[-1]
            if part not in used and re.search(rf"\b{name}\b[(,]", text):
                used.append(part)
                text += part
    return "".join(f"\n{_called(p, text)}\n\n" for p in parts if p in used)


def _called(part: str, text: str) -> str:
    """A class without the methods that nothing calls."""
    if not part.startswith("class "):
        return part
    head, *methods = part.split("\n\n")
    return "\n\n".join([head, *(m for m in methods if f".{m.split('def ')[1].split('(')[0]}(" in text)])
