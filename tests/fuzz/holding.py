"""Rarer forms of the fuzzer's programs: who else may hold a tensor, and the less usual ways to write to one."""

from __future__ import annotations

from hypothesis import strategies as st

HELPERS = """
def plus(t):
    t += 1
    return t * 2


def scaled(t, by=0.5):
    u = t[0]
    u *= by
    return t


def counted(t):
    n, u = 0, t.clone()
    for _ in range(2):
        n += 1
        u += n
    return u


class Shift(torch.nn.Module):
    def forward(self, x):
        x += 1
        return x * 2


class Keep:
    def __init__(self):
        self.n = 0
        self.total = 0
        self.t = torch.zeros(2)

    def add(self, t: torch.Tensor):
        self.n += 1
        self.total += t.sum()
"""
# x and y are names of tensors with one shape, n is a number, t a name that is bound (to something of that shape).
WRITES = """
{x}.data[0] = {n}
{x}.data.copy_({y})
{x}.data = {y}.clone()
torch.mul({x}, {n}, out={y})
torch.add({x}[0], {n}, out={y}[0])
{x}.index_add_(0, torch.tensor([0, 0]), {y}[:2])
{x}.index_copy_(0, torch.tensor([1]), {y}[:1])
{x}.index_fill_(0, torch.tensor([0]), {n}.0)
{x}[{y} > {n}] += 1
{x}[{y} > {n}] = {y}[{y} > {n}]
{x}.masked_scatter_({y} > {n}, {y} * 2)
{x}[torch.tensor([0, 1, 0])] = {n}.5
{x}[torch.tensor([1, 1])] -= {n}
{x}[[1, 0]] = {y}[[0, 1]]
{x}.index_put_((torch.tensor([0, 0]),), torch.tensor(2.0))
{x}.lerp_({y}, 0.5)
{x}.addcmul_({y}, {y}, value={n})
"""
BLOCKS = """
change = lambda t: t.add_(1)
change({x})

def change():
    {x}.add_({n})
change()
change()

def change(t={x}):
    t[0] = {n}
    return t.sum()
s = s + change() + {y}.sum()

def change():
    nonlocal {x}
    {x} = {x} + {n}
    return {x}
s = s + change().sum()

hs = [t.add_(1) for t in [{x}, {y}]]
s = s + torch.stack(hs).sum()

table = {{'k': {x}, 'l': {y}}}
for key, t in table.items():
    t += {n}
s = s + table['k'].sum()

table = {{'k': {x}.clone(), 'l': {y}.clone()}}
for key in table:
    table[key] *= {n}
s = s + table['l'].sum()

pair = ({x}, {y}.clone())
pair[0].add_({n})
s = s + pair[1].sum()

rows = [[{x}], [{y} * 2]]
rows[0][0] += {n}
s = s + rows[0][0].sum() + rows[1][0].sum()

same_twice = [{x}] * 2
for t in same_twice:
    t += {n}

wide = {x}.expand(2, *{x}.shape)
wide[0] += {n}
s = s + wide.sum()

wide = {x}.clone().expand(2, *{x}.shape).contiguous()
wide[0] += {n}
s = s + wide.sum()

{t} = run(plus, {x})

{t} = run(scaled, {x})

{t} = run(counted, {x})

shifted = Shift()
{t} = shifted({x})

shifted = Shift()
s = s + shifted({x} * 1).sum() + shifted({y}.clone()).sum()

shifted = Shift()
hs = [shifted(t) for t in ({x}, {y})]
s = s + torch.stack(hs).sum()

shifted = Shift()
hs = [shifted(t * {n}) for t in ({x}, {y})]
s = s + torch.stack(hs).sum()

s = s + torch.nn.Sequential(torch.nn.Identity(), Shift())({x}).sum()

keep = Keep()
keep.t = {x}
keep.t += {n}
s = s + keep.t.sum()

keep = Keep()
for t in ({x}, {y}):
    keep.add(t)
s = s + keep.total + keep.n

keep = Keep()
keep.add({x})
first = keep.total
keep.add({y})
s = s + first

whole, every = 0, []
for t in ({x}, {y}):
    whole += t
    every.append(whole)
s = s + torch.stack(every).sum()

whole = 0
for t in ({x}, {y}):
    whole += t
s = s + whole.sum()

p, q = {x}[:2]
p += {n}
q[...] = p
"""
FORMS = [*WRITES.strip().split("\n"), *BLOCKS.strip().split("\n\n")]


def held(draw: st.DrawFn, x: str, y: str, target: str, number: int) -> tuple[list[str], bool]:
    """The lines of one form, and whether they bind `target` to something of the shape of x."""
    form = draw(st.sampled_from(FORMS))
    return form.format(x=x, y=y, t=target, n=number).split("\n"), "{t} = " in form
