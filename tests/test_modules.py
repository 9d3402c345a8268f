"""Modules: structure as text, numbers against torch from the same weights."""

from __future__ import annotations

import textwrap

import pytest
from runner import convert, rules, run_both

from jaxmigrate.project import convert_files
from jaxmigrate.read.source import Source

HEAD = """
import torch
from functools import partial
from torch import nn
import torch.nn.functional as F

def ramp(*shape):
    n = 1
    for s in shape:
        n *= s
    return torch.sin(torch.arange(n, dtype=torch.float32) * 0.7).reshape(shape)
"""
FILL = """
def fill(model):
    with torch.no_grad():
        for k, p in enumerate(model.parameters()):
            p.copy_((torch.arange(p.numel()).reshape(p.shape) % 7 - 3) * 0.1 + 0.01 * k)
    return model
"""

PROGRAMS = {
    "buffers registered by a function": """
def extract(a, t):
    return a.gather(-1, t).reshape(-1, 1)

class M(nn.Module):
    def __init__(self, steps):
        super().__init__()
        betas = torch.linspace(0.1, 0.2, steps)
        register_buffer = lambda name, val: self.register_buffer(name, val.to(torch.float32))
        register_buffer("betas", betas)
        register_buffer("kept", torch.cumprod(1.0 - betas, dim=0))
        def put(name, value):
            self.register_buffer(name, value)
        put("plain", betas.clone())

    def forward(self, x):
        t = torch.tensor([1, 3])
        alpha = self.kept[2]
        return extract(self.kept, t).sqrt() * x + extract(1 - self.kept, t).sqrt() + alpha.sqrt() * self.plain.mean()

def main():
    m = M(4)
    return m(torch.arange(6.0).reshape(2, 3)), sorted(m.state_dict())
""",
    "layer class as a default and as an argument": """
        class Block(nn.Module):
            def __init__(self, dim, act=nn.GELU, norm=nn.LayerNorm):
                super().__init__()
                self.norm, self.act, self.fc = norm(dim), act(), nn.Linear(dim, dim)
            def forward(self, x):
                return self.act(self.fc(self.norm(x)))

        def main():
            return fill(Block(4, act=nn.SiLU, norm=partial(nn.LayerNorm, eps=1e-3)))(ramp(2, 4))
    """,
    "own class handed on as a value": """
        class Swish(nn.Module):
            def forward(self, x):
                return x * torch.sigmoid(x)

        class Net(nn.Module):
            def __init__(self, act):
                super().__init__()
                self.fc, self.act = nn.Linear(3, 3), act()
            def forward(self, x):
                return self.act(self.fc(x))

        def main():
            return fill(Net(Swish))(ramp(2, 3))
    """,
    "helper functions that build": """
        def block(i, o, norm=True):
            layers = [nn.Linear(i, o)]
            if norm:
                layers.append(nn.LayerNorm(o))
            return nn.Sequential(*layers, nn.ReLU())

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.blocks = nn.ModuleList([block(4, 4, norm=i > 0) for i in range(3)])
                self.heads = nn.ModuleDict({"b": nn.Linear(4, 2), "a": nn.Linear(4, 3)})
            def forward(self, x):
                for b in self.blocks:
                    x = b(x)
                return torch.cat([head(x) for head in self.heads.values()], dim=1)

        def main():
            return fill(Net())(ramp(2, 4))
    """,
    "subclass with super().forward": """
        class Base(nn.Module):
            def __init__(self, d):
                super().__init__()
                self.a = nn.Linear(d, d)
            def forward(self, x):
                return self.a(x)

        class Derived(Base):
            def __init__(self, d):
                super(Derived, self).__init__(d)
                self.b = nn.Linear(d, d)
            def forward(self, x):
                return self.b(super().forward(x)) + self.a.forward(x)

        def main():
            return fill(Derived(3))(ramp(2, 3))
    """,
    "subclass of a layer": """
        class Scaled(nn.Linear):
            def forward(self, x):
                return 2 * super().forward(x)

        class Named(nn.Sequential):
            def __init__(self, d):
                super().__init__(nn.Linear(d, d), nn.Tanh(), Scaled(d, 2))

        def main():
            return fill(Named(3))(ramp(2, 3))
    """,
    "parameters, buffers and what is read of them": """
        class Norm(nn.Module):
            def __init__(self, d):
                super().__init__()
                self.gain = nn.Parameter(torch.ones(d))
                self.register_parameter("shift", None)
                self.register_buffer("mean", torch.zeros(d))
                self.register_buffer("table", torch.arange(d, dtype=torch.float32), persistent=False)
            def forward(self, x):
                if self.training:
                    self.mean = 0.5 * self.mean + 0.5 * x.mean(0)
                y = (x - self.mean) * self.gain.exp() + self.table[1:].sum()
                return y if self.shift is None else y + self.shift

        def main():
            m = fill(Norm(3))
            a = m(ramp(4, 3))
            m.eval()
            return a, m(ramp(2, 3)), m.mean, m.gain.shape[0]
    """,
    "parameters unpacked into local names": """
        class Gate(nn.Module):
            def __init__(self, d):
                super().__init__()
                self.weight, self.bias = nn.Parameter(torch.ones(d, d)), nn.Parameter(torch.ones(d))
                self.causal = True
            def forward(self, x):
                weight, bias = self.weight, self.bias
                if self.causal:
                    weight = weight.triu(1)
                return torch.einsum("bi,ij->bj", x, weight) + torch.rsqrt(bias + 3) + F.linear(x, weight, bias)

        def main():
            return fill(Gate(3))(ramp(2, 3))
    """,
    "tied weights": """
        class LM(nn.Module):
            def __init__(self):
                super().__init__()
                self.emb = nn.Embedding(7, 4)
                self.head = nn.Linear(4, 7, bias=False)
                self.head.weight = self.emb.weight
            def forward(self, i):
                return self.head(self.emb(i))

        def main():
            m = fill(LM())
            return m(torch.tensor([[1, 2], [3, 0]])), sum(p.numel() for p in m.parameters())
    """,
    "attribute that is None first": """
        class Net(nn.Module):
            def __init__(self, deep):
                super().__init__()
                self.extra = None
                self.last = None
                if deep:
                    self.extra = nn.Linear(3, 3)
            def forward(self, x):
                if self.extra is not None:
                    x = self.extra(x)
                self.last = x
                return x

        def main():
            return fill(Net(True))(ramp(2, 3)), Net(False)(ramp(2, 3))
    """,
    "init loop and apply": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 2)
                for m in self.modules():
                    if isinstance(m, nn.Linear):
                        nn.init.constant_(m.weight, 0.25)
                        nn.init.zeros_(m.bias)
                self.apply(self._shift)
            def _shift(self, m):
                if isinstance(m, nn.Linear) and m.out_features == 2:
                    nn.init.ones_(m.bias)
            def forward(self, x):
                return self.b(torch.relu(self.a(x)))

        def main():
            return Net()(ramp(2, 3))
    """,
    "recurrent layer and its states": """
        class Reader(nn.Module):
            def __init__(self):
                super().__init__()
                self.rnn = nn.LSTM(3, 4, num_layers=2, batch_first=True, bidirectional=True)
                self.fc = nn.Linear(8, 2)
            def forward(self, x):
                self.rnn.flatten_parameters()
                y, (h, c) = self.rnn(x)
                return self.fc(torch.cat([h[-2], h[-1]], dim=1)), y

        def main():
            return fill(Reader())(ramp(2, 5, 3))
    """,
    "Sequential: slices, index, append, OrderedDict": """
        from collections import OrderedDict

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = nn.Sequential(OrderedDict(a=nn.Linear(3, 4), act=nn.ReLU(), b=nn.Linear(4, 4)))
                self.tail = nn.Sequential(nn.Linear(4, 2))
                self.tail.append(nn.Tanh())
            def forward(self, x):
                x = self.body[:2](x)
                return self.tail(self.body.b(x)), self.tail[0].weight.sum(), len(self.body)

        def main():
            return fill(Net())(ramp(2, 3))
    """,
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_gives_the_same_numbers(name: str) -> None:
    program = textwrap.dedent(PROGRAMS[name])
    result = run_both(HEAD + (FILL if "fill(" in program else "") + program)
    assert not result.left, [f.message for f in result.left]
    assert result.same, (result.error, result.expected, result.got, result.outcome.after)


def converted(source: str) -> str:
    outcome, _ = convert(textwrap.dedent(source))
    assert outcome.status == "changed", [f.message for f in outcome.findings]
    return outcome.after


def test_rngs_stand_where_the_signature_has_its_lines() -> None:
    text = converted(
        """\
        from torch import nn

        class Net(nn.Module):
            def __init__(
                self,
                dim,
                *,
                deep=False,  # more layers
            ):
                super().__init__()  # the base
                self.fc = nn.Linear(
                    dim,
                    dim,  # square
                )
        """
    )
    header = "        *,\n        deep=False,  # more layers\n        rngs: nnx.Rngs,\n    ):\n"
    assert f"{header}        super().__init__()  # the base\n" in text
    assert "            dim,\n            dim,  # square\n            rngs=rngs,\n        )\n" in text


def test_a_class_without_layers_asks_for_no_rngs() -> None:
    text = converted(
        """\
        from torch import nn

        class Twice(nn.Module):
            def __init__(self, by):
                super().__init__()
                self.by = by

            def forward(self, x):
                return self.by * x
        """
    )
    assert "rngs" not in text
    assert "def __init__(self, by):\n        self.by = by\n" in text


@pytest.mark.parametrize(
    ("member", "code", "name"),
    [
        ("self.act = getattr(nn, act)()", "JM304", "torch.nn"),
        ("self.l.register_forward_hook(self.forward)", "JM301", "torch.nn.Module.register_forward_hook"),
        ("self.w = nn.Parameter(w, requires_grad=w.requires_grad)", "JM202", "torch.nn.Parameter"),
        ("self.l2 = nn.Linear(2, 2, dtype=dt)", "JM202", "torch.nn.Linear"),
        ("self.pads = self.l.no_such_attribute", "JM302", "torch.nn.Linear.no_such_attribute"),
    ],
)
def test_what_cannot_be_converted_is_reported(member: str, code: str, name: str) -> None:
    outcome, _ = convert(
        f"""\
        from torch import nn

        class Net(nn.Module):
            def __init__(self, act, flag, w, dt):
                super().__init__()
                self.l = nn.Linear(2, 2)
                {member}
        """
    )
    assert (code, name) in {(f.code, f.name) for f in outcome.findings}
    assert not outcome.torch_free


def test_overridden_train_is_reported() -> None:
    outcome, _ = convert(
        """\
        from torch import nn

        class Frozen(nn.Module):
            def train(self, mode=True):
                return super().train(False)
        """
    )
    assert "JM203" in {f.code for f in outcome.findings}


PACKAGE = {
    "__init__": "",
    "block": """
from torch import nn

class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.l = nn.Linear(d, d)
""",
    "net": """
from torch import nn
from .block import Block
from .missing import Other

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.b = Block(3)
        self.o = Other(3)
""",
}


def test_files_of_a_package_share_what_they_know() -> None:

    sources = [Source(f"pkg/{name}.py", text) for name, text in PACKAGE.items()]
    run = convert_files(sources, rules())
    after = {o.path: o.after for o in run.outcomes}
    assert "self.b = Block(3, rngs=rngs)" in after["pkg/net.py"]
    assert "self.o = Other(3)" in after["pkg/net.py"]
    assert [f.code for f in run.findings if f.code.startswith("JM4")] == ["JM401"]
