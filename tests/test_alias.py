"""The alias analysis: its table of views against torch's memory, and random programs against torch's results."""

from __future__ import annotations

import ast
import copy
import inspect
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
import rule_env
import runner

from jaxmigrate.read.views import INPLACE_AT, is_view


def tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors(item)


@pytest.mark.filterwarnings("ignore")
def test_every_rule_whose_result_shares_memory_is_in_the_table_of_views(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs the torch side of every rule's cases and compares the memory of results and variables."""
    monkeypatch.chdir(tmp_path)  # the case of torch.save writes a file
    missing, measured = set(), 0
    for name, row in runner.rules().rows.items():
        usable = (
            name == row.name and name.startswith("torch.") and not name.startswith(("torch.nn.init.", "torch.set_"))
        )
        for case in row.get("cases", []) if usable else []:
            try:
                tree = ast.parse(case[0], mode="eval")
            except SyntaxError:
                continue
            names = rule_env.torch_names(rule_env.variables())
            given = {t.untyped_storage().data_ptr() for v in names.values() for t in tensors(v)}
            try:
                torch.manual_seed(0)
                results = list(tensors(eval(compile(tree, "case", "eval"), names)))
                shares = any(r.untyped_storage().data_ptr() in given for r in results if r.numel())
            except Exception:
                continue
            measured += 1
            bare = isinstance(tree.body, ast.Call) and row.short in ast.unparse(tree.body.func)
            if shares and bare and not is_view(row.short) and row.get("effect") != "inplace":
                missing.add((name, case[0]))
    assert measured > 400
    assert not missing


def test_the_places_at_which_torch_takes_inplace() -> None:
    found = {}
    for name in (n for n in {*dir(torch.nn), *dir(torch.nn.functional)} if not n.startswith("_")):
        made = getattr(torch.nn, name, None) or getattr(torch.nn.functional, name)
        if inspect.isfunction(made) or (inspect.isclass(made) and issubclass(made, torch.nn.Module)):
            names = list(inspect.signature(made).parameters)
            found |= {name: names.index("inplace")} if "inplace" in names else {}
    assert found == INPLACE_AT


SHARING = """
x[0]; x[1:]; x.view(-1); x.reshape(-1); x.flatten(); x.t(); x.T; x.permute(1, 0); x.unsqueeze(0); x.squeeze()
x.expand(3, 4); x.detach(); x.data; x.contiguous(); x.to(torch.float32); x.float(); x.cpu(); x.type_as(y)
torch.as_tensor(x); x.split(2)[0]; x.chunk(2)[0]; x.unbind()[0]; x.narrow(0, 0, 1); x.diagonal(); x.unfold(1, 2, 1)
x.view_as(y); torch.nn.Identity()(x); torch.nn.Dropout().eval()(x); torch.nn.Flatten()(x); x.movedim(0, 1)
torch.nn.ReLU(inplace=True)(x); torch.einsum("ij->ji", x); x.swapaxes(0, 1); x.select(0, 1); x.real; x.add_(1)
torch.meshgrid(v, w)[0]; torch.atleast_3d(x); torch.FloatTensor(x); torch.Tensor(x); copy.copy(x).t()
"""


@pytest.mark.parametrize("text", [t.strip() for t in SHARING.replace("\n", ";").split(";") if t.strip()])
@pytest.mark.filterwarnings("ignore:torch.meshgrid")
def test_a_write_under_an_alias_is_carried_to_it_or_left(text: str) -> None:
    names = rule_env.torch_names(rule_env.variables()) | {"copy": copy}
    assert eval(text, names).untyped_storage().data_ptr() in {
        t.untyped_storage().data_ptr() for t in tensors(list(names.values()))
    }
    setup = "x = torch.ones(3, 4)\n    y = torch.ones(3, 4)\n    v = torch.ones(4)\n    w = torch.ones(4)"
    program = (
        f"import copy\nimport torch\n\ndef main():\n    {setup}\n    z = {text}\n    z += 1\n    return x, y, v, w\n"
    )
    outcome, _ = runner.convert(program)
    if not any(f.code in ("JM206", "JM205") for f in outcome.findings):
        assert runner.run_both(program).same, outcome.after


class Programs:
    """Random programs of views, writes, branches and loops on a few 2 by 2 tensors."""

    views = """{a}.t(); {a}.view(2, 2); {a}; {a}.transpose(0, 1); {a}.detach(); {a}.reshape(2, 2); {a}.contiguous()
        {a}.unsqueeze(0)[0]; same({a}); {a}[:]; {a}.clone().t()"""
    copies = """{a} + {b}; {a}.clone(); torch.zeros(2, 2); {a} * 2; torch.stack([{a}[0], {b}[1]]); fresh({a})
        {a}[[1, 0]]"""
    writes = """{a}[0] = {b}[1]; {a}[0, 1] = 5; {a} += {b}; {a} *= 2; {a}.add_(1); {a}[:, 0] -= 1; {a}.mul_(2).sub_({b})
        {a}[{a} > 2] = 0; {a}[0][1] = 3; {a}.t()[1] = 4; {a}[0].zero_(); {a}[[0, 0]] += 1; {c} = {a}.add_({b})
        {a}.copy_({b}); kept.append({a}); {a}.view(-1)[2] = 9; {c} = torch.relu_({a}); write({a}); box.put({a})
        box.kept[0] = 2; {c} = box.kept; {c} = kept[-1]; {a}, {c} = {c}, {a}; {a}[0], {a}[1] = {a}[1], {b}[0]
        {c}, {a}[0] = {b}.t(), {b}[1].clone(); {a}[1], {b}[0] = 3, {a}[0]; {a}[0], {c} = {b}[1] * 2, {a}"""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def line(self) -> str:
        group = self.random.choice((self.views, self.copies, self.writes, self.writes))
        forms = [f.strip() for f in group.replace("\n", ";").split(";")]
        text = self.random.choice(forms).format(**{k: self.random.choice("pqrs") for k in "abc"})
        return text if group == self.writes else f"{self.random.choice('pqrs')} = {text}"

    def block(self, depth: int) -> list[str]:
        lines: list[str] = []
        for _ in range(self.random.randint(1, 4)):
            choice = self.random.random()
            if depth and choice < 0.15:
                lines += ["for _ in range(2):", *("    " + line for line in self.block(depth - 1))]
            elif depth and choice < 0.25:
                lines += [
                    f"if {self.random.choice('pqrs')}.sum() > 3:",
                    *("    " + line for line in self.block(depth - 1)),
                ]
            else:
                lines.append(self.line())
        return lines

    def text(self) -> str:
        body = [*self.block(2), *self.block(2)]
        returned = self.random.choice(("p, q, r, s, kept", "p, s", "q", "r, kept", "p, box.kept"))
        return PRELUDE + "".join(f"    {line}\n" for line in [*body, f"return {returned}"])


PRELUDE = """import torch


def same(a: torch.Tensor):
    return a


def fresh(a: torch.Tensor):
    b = a.clone()
    b[0] = 1
    return b


def write(a: torch.Tensor):
    a = a * 2
    a[1] = 0
    return a


class Box:
    def __init__(self):
        self.kept = torch.zeros(2, 2)

    def put(self, a: torch.Tensor):
        self.kept = a


def main():
    p = torch.ones(2, 2)
    q = torch.arange(4.0).reshape(2, 2)
    r = p * 3
    s = torch.zeros(2, 2)
    kept = [q + 1]
    box = Box()
"""


@pytest.mark.parametrize("start", range(0, 200, 50))
def test_no_random_program_is_silently_wrong(start: int) -> None:
    """Either something is reported as left, or both programs return the same."""
    converted = 0
    for seed in range(start, start + 50):
        text = Programs(seed).text()
        try:
            run = runner.run_both(text)
        except (RuntimeError, IndexError):  # torch itself refuses the program
            continue
        if not run.left:
            converted += 1
            assert run.same, (seed, text, run.outcome.after, run.expected, run.got, run.error)
    assert converted


MODULE_LINES = """
self.a[0] = x[1]; r = self.a[0]; r += 1; self.a += x; r = self.a; r.add_(x); r = self.a.t(); self.b.copy_(self.a)
s = self.a * 2; s += x; self.a.data.mul_(2); r = self.a.clone(); s[0] = r[1]; s = r; r = x.clone(); self.b[[0, 1]] += 1
self.w.data.add_(x); self.w.data[0] = 3; r = self.w.data; s = self.w[1:]; self.b.zero_(); s = s + r; self.plain[0] += 1
r = self.plain; self.plain = x * 2; s = self.plain + 1; self.b[self.b > 2] = 0; r, s = s, r; self.b.mul_(2).add_(s)
s = F.relu(r, inplace=True); s = self.act(r); s = self.seq(r); r = self.lin(x); self.a.data = s.clone()
self.b.t()[1] = r[0]; s.copy_(self.a); self.a.data = r; r = self.helper(s); s = r.view(2, 2)
"""
MODULE = """import torch
import torch.nn as nn
import torch.nn.functional as F


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("a", torch.ones(2, 2))
        self.register_buffer("b", torch.arange(4.0).reshape(2, 2))
        self.w = nn.Parameter(torch.ones(2, 2))
        self.plain = torch.zeros(2, 2)
        self.act = nn.ReLU(inplace=True)
        self.seq = nn.Sequential(nn.Identity(), nn.ReLU(True))
        self.lin = nn.LayerNorm(2)

    def helper(self, t: torch.Tensor):
        return t

    @torch.no_grad()
    def forward(self, x):
        r = x + 1
        s = x * 2
BODY

def main():
    m = M()
    x = torch.arange(4.0).reshape(2, 2) - 1
    with torch.no_grad():
        one = m(x)
        two = m(x * 2)
    return one, two, x, m.a + 0, m.b + 0, m.w + 0
"""


def module_program(seed: int) -> str:
    """A module whose `forward` writes to its buffers, parameters and plain tensors, called twice."""
    chance = random.Random(seed)
    forms = [f.strip() for f in MODULE_LINES.replace("\n", ";").split(";") if f.strip()]
    lines = [chance.choice(forms) for _ in range(chance.randint(2, 7))]
    if chance.random() < 0.4:
        lines += ["for _ in range(2):", *(f"    {chance.choice(forms)}" for _ in range(2))]
    lines.append(f"return {chance.choice(('r + 0, s + 0', 'self.a * 1', 's, self.b + 0', 'r', 'self.w + 0, r'))}")
    return MODULE.replace("BODY", "".join(f"        {line}\n" for line in lines))


@pytest.mark.parametrize("start", range(0, 120, 40))
def test_no_random_module_is_silently_wrong(start: int) -> None:
    """As for functions; the caller keeps what the first call returned."""
    converted = 0
    for seed in range(start, start + 40):
        text = module_program(seed)
        try:
            run = runner.run_both(text)
        except (RuntimeError, IndexError):  # torch itself refuses the program
            continue
        if not run.left:
            converted += 1
            assert run.same, (seed, text, run.outcome.after, run.expected, run.got, run.error)
    assert converted
