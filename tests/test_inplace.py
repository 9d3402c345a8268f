"""In-place writes: every program runs under torch as it was and under JAX as converted, and both must return the same."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import runner

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n"


def both(body: str) -> runner.Both:
    """A program from the body of `main()`, or a whole one when it defines main itself."""
    lines = textwrap.dedent(body).strip("\n")
    if "def main" not in lines:
        lines = "def main():\n" + textwrap.indent(lines, "    ")
    return runner.run_both(HEAD + lines + "\n")


# Bodies that must be converted and equal; the second item must be in the output.
EQUAL = {
    "set an int": ("x = torch.zeros(3)\nx[1] = 5\nreturn x", "x = x.at[1].set(5)"),
    "set a slice": ("x = torch.zeros(4)\nx[1:3] = torch.ones(2)\nreturn x", "x = x.at[1:3].set(jnp.ones((2,)))"),
    "set a column": ("x = torch.zeros(2, 3)\nx[:, 1] = torch.arange(2.0)\nreturn x", "x = x.at[:, 1].set("),
    "set with ellipsis": ("x = torch.zeros(2, 3)\nx[..., -1] = 2\nreturn x", "x = x.at[..., -1].set(2)"),
    "set by list": ("x = torch.zeros(4)\nx[[0, 2]] = 1.0\nreturn x", "x = x.at[jnp.array([0, 2])].set(1.0)"),
    "set by index": ("x = torch.zeros(4)\ni = torch.tensor([3, 0])\nx[i] = torch.tensor([1.0, 2.0])\nreturn x", "x.at[i].set("),
    "set all": ("x = torch.zeros(4)\nx[:] = 3\nreturn x", "x = x.at[:].set(3)"),
    "set casts": ("x = torch.zeros(3, dtype=torch.long)\nx[0] = 2.7\nreturn x", "x = x.at[0].set(2.7)"),
    "value in parentheses": ("x = torch.zeros(3)\nx[0] = (1 +\n    2)\nreturn x", "x = x.at[0].set((1 +"),
    "add a slice": ("x = torch.ones(4)\nx[1:] += 2\nreturn x", "x = x.at[1:].add(2)"),
    "subtract, multiply, divide": ("x = torch.ones(3)\nx[0] -= 2\nx[1] *= 3\nx[2] /= 4\nreturn x", "x = x.at[2].divide(4)"),
    "power": ("x = torch.ones(3) * 2\nx[0] **= 3\nreturn x", "x = x.at[0].set(x[0] ** 3)"),
    "floor division": ("x = torch.arange(6)\nx[2:] //= 2\nreturn x", "x = x.at[2:].set(x[2:] // 2)"),
    "precedence": ("x = torch.ones(3)\ny = torch.ones(3)\nx[0] **= y[0] + 1\nx[1:] //= y[1:] - 3\nreturn x", "x[0] ** (y[0] + 1)"),
    "repeated index": ("x = torch.zeros(3)\ni = torch.tensor([1, 1, 0])\nx[i] += 1\nreturn x", "x = x.at[i].set(x[i] + 1)"),
    "repeated list": ("x = torch.zeros(3)\nx[[1, 1, 0]] += 1\nreturn x", "x = x.at[jnp.array([1, 1, 0])].set("),
    "index from outside": ("def bump(i):\n    x = torch.zeros(3)\n    x[i] += 1\n    return x\n\ndef main():\n    return bump(1)", "x.at[i]"),
    "mask and number": ("x = torch.randn(0) if False else torch.arange(4.0)\nx[x > 1] = 0\nreturn x", "jnp.where(x > 1, 0, x).astype(x.dtype)"),
    "mask and infinity": ("x = torch.arange(4.0)\nx[x < 2] = float('-inf')\nreturn x", "x = jnp.where(x < 2, float('-inf'), x)\n"),
    "mask keeps int": ("x = torch.arange(4)\nx[x > 1] = 0.5\nreturn x", ".astype(x.dtype)"),
    "mask keeps bool": ("x = torch.arange(4) > 1\nx[x == False] = 1\nreturn x", ".astype(x.dtype)"),
    "mask by name": ("x = torch.arange(4.0)\nm = x > 1\nx[m] = 9\nreturn x", "jnp.where(m, 9, x)"),
    "mask of rows": ("x = torch.arange(6.0).reshape(3, 2)\nm = torch.tensor([True, False, True])\nx[m] = 0\nreturn x", "x.at[m].set(0)"),
    "mask of square rows": ("x = torch.ones(3, 3)\nm = torch.arange(3) > 0\nx[m] = 0\nreturn x", "x.at[m].set(0)"),
    "mask and vector": ("x = torch.arange(4.0)\nx[x > 1] = torch.tensor([7.0, 8.0])\nreturn x", "x.at[x > 1].set("),
    "mask add": ("x = torch.arange(4.0)\nx[x > 1] += 10\nreturn x", "x.at[x > 1].add(10)"),
    "mask by inversion": ("x = torch.arange(4.0)\nx[~(x > 1)] *= 10\nreturn x", "x.at[~(x > 1)].multiply(10)"),
    "chained ints": ("x = torch.zeros(2, 3)\nx[1][2] = 4\nreturn x", "x = x.at[1, 2].set(4)"),
    "chained slice": ("x = torch.zeros(4, 3)\nx[1:3][0] = 4\nreturn x", "x = x.at[1:3].set(x[1:3].at[0].set(4))"),
    "through view": ("x = torch.zeros(2, 3)\nx.view(-1)[3] = -5\nreturn x", "x.reshape(-1).at[3].set(-5).reshape(x.shape)"),
    "through t": ("x = torch.zeros(2, 3)\nx.t()[2] = 1\nreturn x", "x = x.T.at[2].set(1).T"),
    "through transpose": ("x = torch.zeros(2, 3, 4)\nx.transpose(1, 2)[0, 1] = 1\nreturn x", "x.swapaxes(1, 2)"),
    "through unsqueeze": ("x = torch.zeros(3)\nx.unsqueeze(0)[0, 1] = 1\nreturn x", "jnp.squeeze("),
    "through T, added": ("x = torch.ones(2, 3)\nx.T[2] += 5\nreturn x", "x = x.T.at[2].add(5).T"),
    "int, slice, index": ("x = torch.zeros(2, 3, 4)\ni = torch.tensor([0, 2])\nx[0, :, i] = torch.arange(6.0).reshape(3, 2)\nreturn x", "x[0].at[:, i].set("),
    "methods": ("x = torch.ones(3)\nx.add_(1)\nx.mul_(2)\nx.sub_(0.5)\nx.div_(4)\nreturn x", "x = x + 1"),
    "method with alpha": ("x = torch.ones(3)\nx.add_(torch.ones(3), alpha=2)\nreturn x", "x = x + 2 * jnp.ones((3,))"),
    "a chain": ("x = torch.ones(3)\nx.mul_(3).add_(2).div_(5)\nreturn x", "x = (x * 3 + 2) / 5"),
    "zero, fill, copy": ("x = torch.ones(3)\ny = torch.ones(2, 3)\ny.zero_()\nx.fill_(2)\ny.copy_(x)\nreturn x, y", "y = jnp.zeros_like(y)"),
    "method on an item": ("x = torch.ones(3)\nx[0].zero_()\nx[1].mul_(3)\nx[2].fill_(7)\nreturn x", "x = x.at[1].multiply(3)"),
    "other method on a slice": ("x = -torch.ones(3)\nx[1:].abs_()\nreturn x", "x = x.at[1:].set(jnp.abs(x[1:]))"),
    "method through a view": ("x = torch.ones(2, 3)\nx.t()[2].sub_(0.5)\nreturn x", "x = x.T.at[2].subtract(0.5).T"),
    "clamp": ("x = torch.arange(5.0)\nx.clamp_(1, 3)\nreturn x", "x = jnp.clip(x, 1, 3)"),
    "masked_fill_": ("x = torch.arange(4.0)\nx.masked_fill_(x > 2, 0.0)\nreturn x", "x = jnp.where(x > 2, 0.0, x)"),
    "index_add_ adds up": ("x = torch.zeros(3)\nx.index_add_(0, torch.tensor([1, 1]), torch.ones(2))\nreturn x", ".add("),
    "scatter_ of a new tensor": ("return torch.zeros(2, 3).scatter_(1, torch.tensor([[0], [2]]), 1.0)", "scatter(jnp.zeros((2, 3))"),
    "value bound to itself": ("x = torch.ones(3)\nx = x.add_(1)\nreturn x", "x = x + 1"),
    "value returned": ("x = torch.ones(3)\nreturn x.add_(1)", "return x + 1"),
    "value in an expression": ("x = torch.ones(3)\ny = x.mul_(2).sum() + 1\nreturn y", "x * 2"),
    "value bound to another": ("x = torch.ones(3)\ny = x.add_(1)\nreturn x, y", "x = x + 1\n    y = x"),
    "out=": ("x = torch.ones(2, 3)\nc = torch.empty(2)\ntorch.sum(x, dim=1, out=c)\nreturn c", "c = jnp.sum(x, axis=1)"),
    "inplace=True as a statement": ("x = torch.arange(4.0) - 2\nF.relu(x, inplace=True)\nreturn x", "x = jax.nn.relu(x)"),
    "inplace=True bound again": ("x = torch.arange(4.0) - 2\nx = F.relu(x, inplace=True)\nreturn x", "x = jax.nn.relu(x)"),
    "torch.relu_": ("x = torch.arange(4.0) - 2\ntorch.relu_(x)\nreturn x", "x = jax.nn.relu(x)"),
    "augmented name": ("x = torch.ones(3)\nx += 2\nx *= torch.arange(3.0)\nreturn x", "x += 2"),
    "swap by items": ("x = torch.arange(4.0)\nx[0], x[3] = x[3].item(), x[0].item()\nreturn x", "first, second = "),
    "swap of views": ("x = torch.arange(6.0).reshape(3, 2)\nx[0], x[1] = x[1], x[0]\nreturn x", "x = x.at[1].set(x[0])"),
    "swap of clones": ("x = torch.arange(6.0).reshape(3, 2)\nx[0], x[1] = x[1].clone(), x[0].clone()\nreturn x", "first, second = "),
    "one value, two tensors": ("x, y = torch.zeros(2), torch.zeros(2)\nx[0] = y[1] = 3\nreturn x, y", "value = 3"),
    "unpacked into": ("x = torch.zeros(2)\na, x[1] = 4, 5.0\nreturn a, x", "a, value = 4, 5.0"),
    "in a loop": ("x = torch.zeros(4)\nfor i in range(1, 4):\n    x[i] = x[i - 1] + i\nreturn x", "x = x.at[i].set(x[i - 1] + i)"),
    "rows made in a loop": ("rows = []\nfor i in range(3):\n    row = torch.zeros(2)\n    row[0] = i\n    rows.append(row)\nreturn torch.stack(rows)", "row.at[0]"),
    "clone first": ("def f(x):\n    x = x.clone()\n    x[0] = 1\n    return x\n\ndef main():\n    a = torch.zeros(2)\n    return f(a), a", "x.at[0].set(1)"),
    "dead alias": ("x = torch.zeros(2, 2)\ny = x.view(-1)\ny[1] = 3\nreturn y", "y = y.at[1].set(3)"),
    "alias bound again": ("x = torch.zeros(3)\ny = x\ny = y + 1\ny[0] = 3\nreturn x, y", "y = y.at[0].set(3)"),
    "copy by index": ("x = torch.zeros(3)\ny = x[[0, 1]]\ny += 1\nreturn x, y", "y += 1"),
    "residual sum": ("a = torch.ones(2)\nh = a * 2\nh += a\nreturn a, h", "h += a"),
    "a branch": ("x = torch.zeros(3)\nif x.sum() < 1:\n    x[0] = 1\nelse:\n    x[1] = 1\nreturn x", "x = x.at[0].set(1)"),
    "same line": ("x = torch.zeros(3)\ny = 1; x[0] = 2; x[1] = y\nreturn x", "y = 1; x = x.at[0].set(2); x = x.at[1].set(y)"),
    "nested value": ("x = torch.zeros(3)\nx[0] = torch.exp(torch.ones(2)).sum()\nreturn x", "jnp.exp(jnp.ones((2,)))"),
    "comment kept": ("x = torch.zeros(3)\nx[0] = 2  # two\nreturn x", "x = x.at[0].set(2)  # two"),
    "a plain attribute": (
        """
        class Counter:
            def __init__(self):
                self.seen = torch.zeros(3)

            def add(self, i):
                self.seen[i] += 1
                self.seen *= 2
                return self.seen.sum()

        def main():
            c = Counter()
            return c.add(0), c.add(2)
        """,
        "self.seen = self.seen.at[i]",
    ),
}  # fmt: skip

# Whole programs with modules: Variables are written in place.
MODULES = {
    "buffers in forward": (
        """
        class Meter(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("seen", torch.zeros(3))
                self.register_buffer("count", torch.zeros(()))

            def forward(self, x):
                self.seen[0] = x[0]
                self.seen[1:] += x[1:]
                self.seen[[0, 1]] += 1
                self.seen += x
                self.seen.mul_(0.5).add_(x, alpha=2)
                self.seen[x > 1] = 9
                self.count += 1
                self.count.add_(1)
                return x * self.count + self.seen

        def main():
            m = Meter()
            return m(torch.arange(3.0)), m(torch.ones(3)), m.count + 0, m.seen + 0
        """,
        "self.seen[1:] += x[1:]",
    ),
    "parameters by data and no_grad": (
        """
        class Scale(nn.Module):
            def __init__(self):
                super().__init__()
                self.w = nn.Parameter(torch.ones(2, 2))
                with torch.no_grad():
                    self.w.copy_(torch.tensor([1.0, 2.0]))
                    self.w.mul_(2).add_(1)
                self.w.data[1] = 3
                self.w.data *= 2
                self.w.data = self.w.data + 1
                self.w.data.clamp_(0, 6)
                self.w.data[0, 0].fill_(0.5)
                self.w[0].data.mul_(2)

            def forward(self, x):
                return x @ self.w

        def main():
            return Scale()(torch.ones(2, 2))
        """,
        "self.w[...] = self.w[...] * 2 + 1",
    ),
    "parameters in a loop": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(2, 2)
                for name, p in self.fc.named_parameters():
                    p.data.fill_(0.5)
                    p.data[0] = 2

            def forward(self, x):
                return self.fc(x)

        def main():
            return Net()(torch.ones(1, 2))
        """,
        "p[...] = 0.5",
    ),
    "a residual block": (
        """
        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.relu = nn.ReLU(inplace=True)
                self.norm = nn.LayerNorm(4)
                self.net = nn.Sequential(nn.LayerNorm(4), nn.ReLU(True))

            def forward(self, x):
                identity = x
                out = self.norm(x)
                out = self.relu(out)
                out = self.net(out)
                out += identity
                out = self.relu(out)
                return out

        def main():
            x = torch.arange(8.0).reshape(2, 4) - 3
            return Block()(x), x
        """,
        "out += identity",
    ),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules_write_their_variables(name: str) -> None:
    program, text = MODULES[name]
    run = both(program)
    assert not run.left, [(f.code, f.message) for f in run.left]
    assert text in run.outcome.after
    assert run.same, (run.outcome.after, run.expected, run.got, run.error)


# Reads that mean something else in JAX.
INDEXED = {
    "a list": ("x = torch.arange(6.0).reshape(3, 2)\nreturn x[[0, 2]], x[:, [1]]", "x[jnp.array([0, 2])]"),
    "a list by name": ("x = torch.arange(3.0)\nkeep = [2, 0]\nreturn x[keep]", "x[jnp.array(keep)]"),
    "a list of flags": ("x = torch.arange(2.0)\nreturn x[[True, False]]", "x[jnp.array([True, False])]"),
    "int, slice, tensor": (
        "x = torch.arange(24.0).reshape(2, 3, 4)\ni = torch.tensor([0, 2])\nreturn x[0, :, i], x[:, 0, i], x[i[:1], :, 0]",
        "x[0][:, i]",
    ),
    "int, slice, list": ("x = torch.arange(24.0).reshape(2, 3, 4)\nreturn x[1, ..., [0, 2]]", "x[1][..., jnp.array([0, 2])]"),
    "a byte mask": ("x = torch.arange(3.0)\nm = torch.tensor([0, 1, 1])\nreturn x[m.byte()]", ".astype(bool)]"),
    "a byte mask by name": ("x = torch.arange(3.0)\nm = torch.tensor([0, 1, 1], dtype=torch.uint8)\nreturn x[m]", "x[m.astype(bool)]"),
    "tensors with a slice between": (
        "x = torch.arange(24.0).reshape(2, 3, 4)\ni = torch.tensor([0, 1])\nreturn x[i, :, i]", "x[i, :, i]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", INDEXED)
@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
def test_reads_index_as_torch_does(name: str) -> None:
    body, text = INDEXED[name]
    run = both(body)
    assert not run.left, [(f.code, f.message) for f in run.left]
    assert text in run.outcome.after
    assert run.same, (run.outcome.after, run.expected, run.got, run.error)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("x = torch.zeros(2, 3)\nreturn x[[[0, 1], [1, 2]]]", "JM203"),
        ("x = torch.arange(120.0).reshape(2, 3, 4, 5)\ni = torch.tensor([0])\nreturn x[:, i, :, 0]", "JM203"),
        ("def f(i, j):\n    x = torch.zeros(2, 3, 4)\n    return x[i, :, j]\n\ndef main():\n    return 0", "JM201"),
        ("x = torch.arange(3.0)\ntry:\n    return x[7]\nexcept IndexError:\n    return -1", "JM209"),
        ("def f(x):\n    x[0, 1:] = 3\n\ndef main():\n    return 0", "JM201"),
        ("x = torch.zeros(2)\nif x.add_(1).sum() > 0 and x[0] > 0:\n    return x\nreturn x", "JM205"),
        ("x = torch.zeros(2)\nx[0] = y = 3; z = 1\nreturn x, y, z", "JM205"),
        ("x = torch.zeros(3)\nx[  # first\n    0\n] = 2\nreturn x", "JM204"),
        ("x = torch.zeros(3).half()\ny = torch.ones(3)\nx += y\nreturn x", "JM111"),
    ],
)  # fmt: skip
def test_what_is_not_certain_is_reported(body: str, code: str) -> None:
    assert code in both(body).codes


@pytest.mark.parametrize("name", EQUAL)
def test_converted_programs_return_what_torch_returns(name: str) -> None:
    body, text = EQUAL[name]
    run = both(body)
    assert not run.left, [(f.code, f.message) for f in run.left]
    assert text in run.outcome.after
    assert run.same, (run.outcome.after, run.expected, run.got, run.error)


# Bodies that must be refused: some alias would see the write. The second item must be in a JM206 message.
REFUSED = {
    "row of a canvas": ("x = torch.zeros(2, 2)\nrow = x[1]\nrow += 5\nreturn x", "`x` (line"),
    "view": ("x = torch.zeros(2, 2)\nflat = x.view(-1)\nflat[0] = 7\nreturn x", "shares memory with `flat`"),
    "second name": ("x = torch.zeros(2)\ny = x\ny += 1\nreturn x", "shares memory"),
    "read in the next turn": ("x = torch.zeros(3)\ny = x\nz = 0\nfor i in range(2):\n    z = z + x[0]\n    y += 1\nreturn z", "shares memory"),
    "a parameter": ("def f(x):\n    x[0] = 1\n    return x.sum()\n\ndef main():\n    a = torch.zeros(2)\n    f(a)\n    return a", "the caller sees"),
    "a view of a parameter": ("def f(x):\n    y = x.t()\n    y.mul_(2)\n    return y\n\ndef main():\n    a = torch.ones(2, 2)\n    f(a)\n    return a", "the caller sees"),
    "perhaps a view of a parameter": ("def f(x):\n    y = x.float()\n    y += 2\n    return y\n\ndef main():\n    a = torch.ones(2)\n    f(a)\n    return a", "the caller sees"),
    "in a list": ("x = torch.zeros(2)\nkept = [x]\nx += 1\nreturn kept", "`kept`"),
    "appended in a loop": ("x = torch.zeros(2)\nkept = []\nfor i in range(3):\n    x[0] += 1\n    kept.append(x)\nreturn kept", "`kept`"),
    "in a dict": ("x = torch.zeros(2)\nd = {'x': x}\nx.add_(1)\nreturn d['x']", "`d`"),
    "from a list": ("xs = [torch.zeros(2), torch.zeros(2)]\nfor x in xs:\n    x += 1\nreturn xs", "`xs`"),
    "an element of a list": ("xs = [torch.zeros(2), torch.zeros(2)]\nxs[0][1] = 1\nreturn xs", "no name"),
    "rows of a tensor": ("x = torch.zeros(2, 2)\nfor row in x:\n    row += 1\nreturn x", "`x`"),
    "chunks": ("x = torch.zeros(4)\na, b = x.chunk(2)\na.add_(1)\nreturn x", "`x`"),
    "captured": ("x = torch.zeros(2)\ny = x\ndef show():\n    return y\nx += 1\nreturn show()", "`y`"),
    "outer name": ("x = torch.zeros(2)\ndef f():\n    x[0] = 1\nf()\nreturn x", "belongs to the code around"),
    "copy by index is written": ("x = torch.zeros(3)\ni = torch.tensor([0, 1])\nx[i].add_(1)\nreturn x", "writes to a copy"),
    "reshape may copy": ("x = torch.zeros(2, 3)\nx.t().reshape(-1)[1] = 1\nreturn x", "not carried back"),
    "inplace=True with an alias": ("x = torch.arange(4.0) - 2\ny = F.relu(x, inplace=True)\nreturn x, y", "`x`"),
    "out= with an alias": ("x = torch.ones(2, 3)\nc = torch.zeros(2)\nd = c\ntorch.sum(x, dim=1, out=c)\nreturn d", "`d`"),
    "value with an alias": ("x = torch.ones(2)\nz = x\ny = x.add_(1)\nreturn y, z", "`z`"),
    "a chain that reads itself": ("x = torch.ones(2)\nx.mul_(2).add_(x)\nreturn x", "reads what the chain writes"),
    "one value is a view": ("x = torch.arange(3.0)\nx[0], x[1] = x[1], 7.0\nreturn x", "shares memory"),
    "an attribute that was given": (
        """
        class Table:
            def __init__(self, rows: torch.Tensor):
                self.rows = rows

            def put(self, i):
                self.rows[i] = 1

        def main():
            a = torch.zeros(3)
            Table(a).put(1)
            return a
        """,
        "others may hold",
    ),
    "an attribute that is handed out": (
        """
        class Count:
            def __init__(self):
                self.n = torch.zeros(1)

            def step(self):
                self.n += 1
                return self.n

        def main():
            c = Count()
            return [c.step(), c.step()]
        """,
        "hands out",
    ),
    "a function that returns its argument": (
        "def same(a):\n    return a\n\ndef main():\n    x = torch.zeros(2)\n    y = same(x)\n    y += 1\n    return x", "`x`",
    ),
    "a function that keeps its argument": (
        "KEPT = []\n\ndef keep(a):\n    KEPT.append(a)\n\ndef main():\n    x = torch.zeros(2)\n    keep(x)\n    x += 1\n    return KEPT.pop()", "kept elsewhere",
    ),
    "identity layer": ("x = torch.zeros(2)\nlayer = nn.Identity()\ny = layer(x)\ny += 1\nreturn x", "`x`"),
    "relu(inplace) keeps identity": ("x = torch.arange(4.0) - 2\nrelu = nn.ReLU(inplace=True)\ny = relu(x)\nreturn x, y", "writes over its input"),
    "relu(inplace) inside Sequential": ("x = torch.arange(4.0) - 2\nnet = nn.Sequential(nn.ReLU(True), nn.Identity())\ny = net(x)\nreturn x, y", "writes over its input"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_writes_that_an_alias_would_see_are_refused(name: str) -> None:
    body, text = REFUSED[name]
    run = both(body)
    messages = [f.message for f in run.outcome.findings if f.code == "JM206"]
    assert any(text in m for m in messages), [(f.code, f.message) for f in run.outcome.findings]
