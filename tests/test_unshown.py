"""Programs whose parameters are no tensors, or not only: never silently wrong, with the values of the original run.

Each program's `main()` is run as it is; its conversion gives the same, or raises, or the report says that something of
it was left.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import converted
import numpy as np
import pytest

from jaxmigrate.project import convert_files
from jaxmigrate.read.source import Source
from jaxmigrate.rulebook import load_rules

# Reported: what is left is said (`run` hides from the converter what the functions are given). Equal: nothing is left
# and main() gives the same.
REPORTED = {
    "a decimal number": """
        from decimal import Decimal
        def root(x): return x.sqrt() + x.exp()
        def main(): return str(run(root, Decimal(2)))
    """,
    "a number that a tensor is added to": """
        def drop(x, p):
            keep = 1 - p
            noise = keep
            noise += torch.full((3,), 0.4)
            return x / keep * torch.floor(noise)
        def main(): return run(drop, torch.ones(3), 0.2).tolist()
    """,
    "a rate of a forward": """
        def drop(x, p):
            keep = 1 - p
            noise = keep
            noise += torch.full((3,), 0.4)
            return x / keep * torch.floor(noise)
        class Block(torch.nn.Module):
            def forward(self, x, rate=None):
                x = torch.relu(x)
                return drop(x, rate) if rate else x
        def main(): return run(Block(), torch.ones(3), 0.2).tolist()
    """,
    "a class of the file": """
        class Area:
            def sqrt(self): return 3
        def root(x): return x.sqrt()
        def main(): return run(root, Area())
    """,
    "a function kept in a class": """
        class Block:
            exp = lambda self: 7
        def f(x): return x.exp()
        def main(): return run(f, Block())
    """,
    "a function kept in an instance": """
        class Block:
            def __init__(self): self.norm = len
        def f(block, x): return block.norm(x)
        def main(): return run(f, Block(), [1, 2])
    """,
    "a function set by name": """
        class Block: pass
        def f(x): return x.floor()
        def main():
            b = Block()
            setattr(b, "floor", lambda: 2)
            return run(f, b)
    """,
    "a namespace": """
        from types import SimpleNamespace
        def f(x): return x.ceil()
        def main(): return run(f, SimpleNamespace(ceil=lambda: 5))
    """,
    "a named tuple": """
        from collections import namedtuple
        Ops = namedtuple("Ops", "sin cos")
        def f(x): return x.sin()
        def main(): return run(f, Ops(lambda: 1, lambda: 2))
    """,
    "a class that answers to all": """
        class Proxy:
            def __getattr__(self, name): return lambda *a: name
        def f(x): return x.tanh(), x.float()
        def main(): return run(f, Proxy())
    """,
    "a mock": """
        from unittest.mock import MagicMock
        def f(x): return x.scatter(0, 1, 2), x.half()
        def main(): return len(run(f, MagicMock()))
    """,
    "numbers by an exception": """
        def f(x):
            try:
                return x.exp()
            except AttributeError:
                return -1.0
        def main(): return run(f, 2.0)
    """,
    "numbers by an exception that only tensors avoid": """
        def f(x):
            try:
                return x.sigmoid().sum()
            except AttributeError:
                return -1.0
        def main(): return run(f, 2.0)
    """,
    "numbers by a suppressed exception": """
        from contextlib import suppress
        def f(x):
            y = -1.0
            with suppress(AttributeError):
                y = x.log()
            return y
        def main(): return run(f, 2.0)
    """,
    "numbers by an exception of torch's functions": """
        def f(x):
            try:
                return torch.sqrt(x)
            except TypeError:
                return -1.0
        def main(): return run(f, 2.0)
    """,
    "numbers by an exception that a caller catches": """
        def root(x): return x.sqrt()
        def f(x):
            try:
                return root(x)
            except AttributeError:
                return -1.0
        def main(): return run(f, 2.0)
    """,
    "numbers by an exception that a caller of an activation catches": """
        def gate(x): return x.sigmoid()
        def f(x):
            try:
                return gate(x=x)
            except (ValueError, AttributeError):
                return -1.0
        def main(): return run(f, 2.0)
    """,
    "tensors by hasattr": """
        def f(x: torch.Tensor):
            return x.sqrt() if hasattr(x, "sqrt") else -x
        def main(): return f(torch.tensor(4.0)).item()
    """,
    "anything by hasattr": """
        def f(x): return 1 if hasattr(x, "detach") else 2
        def main(): return f(torch.ones(2)), f(3)
    """,
    "a pattern": """
        import re
        def f(p, text): return p.sub("-", text)
        def main(): return run(f, re.compile("a"), "banana")
    """,
    "a match": """
        import re
        def f(found, form): return found.expand(form)
        def main(): return run(f, re.match("(a)", "a"), r"\\1!")
    """,
    "NumPy's maximum along an axis": """
        import numpy as np
        def f(x): return x.max(0)
        def main(): return run(f, np.array([[1.0, 5.0], [3.0, 2.0]])).tolist()
    """,
    "NumPy's spread": """
        import numpy as np
        def f(x): return float(x.std()), float(x.var())
        def main(): return run(f, np.array([1.0, 2.0, 4.0]))
    """,
    "NumPy's transpose and repeat": """
        import numpy as np
        def f(x): return x.transpose(0, 1).tolist(), x.repeat(2).tolist()
        def main(): return run(f, np.array([[1.0, 5.0], [3.0, 2.0]]))
    """,
    "a number that a caller keeps, or a tensor": """
        def bump(x, d):
            x += d
            return x
        def main():
            a = torch.zeros(2)
            return (bump(a, 1) + a).tolist()
    """,
    "an alias that is returned": """
        def bump(x, d):
            y = x
            x += d
            return y
        def main(): return run(bump, torch.zeros(2), 1).tolist()
    """,
    "perhaps a tensor in starred arguments": """
        def f(*inputs):
            x = inputs[0]
            x += 1
            return x
        def main(): return run(lambda a: f(a), torch.ones(2))
    """,
    "perhaps a tensor in named arguments": """
        def f(**given):
            x = given["x"]
            x *= 2
            return x
        def main(): return run(lambda a: f(x=a), torch.ones(2))
    """,
    "perhaps a tensor that is a parameter": """
        def f(x):
            x += 1
            return x * 2
        def main(): return run(f, torch.ones(2))
    """,
    "perhaps a tensor of the function around": """
        def f(x):
            def inner():
                y = x
                y -= 1
                return y
            return inner() + x
        def main(): return run(f, torch.ones(2))
    """,
    "perhaps a tensor that a call gives": """
        def main():
            x = torch.ones(2)
            y = run(lambda: x)
            y += 1
            return x
    """,
    "perhaps a tensor in an attribute": """
        class Box: pass
        def f(box):
            box.x += 1
            return box.x
        def main():
            box = Box()
            box.x = torch.ones(2)
            return run(f, box)
    """,
    "perhaps a tensor in a dict": """
        def f(state, key):
            state["n"] += 1
            state[key] *= 0.5
            return state
        def main(): return run(f, {"n": 0, "x": torch.ones(2)}, "x")["x"]
    """,
    "perhaps a tensor in a dict of the object": """
        class Shadow:
            def __init__(self): self.values = {}
            def put(self, key, value): self.values[key] = value
            def scale(self, key): self.values[key] *= 0.5
        def main():
            shadow, x = run(Shadow), torch.ones(2)
            shadow.put("x", x)
            shadow.scale("x")
            return x
    """,
    "perhaps a tensor in a global dict": """
        STATE = {}
        def step(): STATE["x"] += 1
        def main():
            STATE["x"] = x = torch.zeros(2)
            step()
            return x
    """,
    "a number of the object that may become a tensor": """
        class Total:
            def __init__(self): self.total = 0
            def add(self, x): self.total += x
        def main():
            total = run(Total)
            total.add(torch.ones(2))
            first = total.total
            total.add(torch.ones(2))
            return first
    """,
    "a number of the object that becomes a tensor": """
        class Total:
            def __init__(self): self.total, self.all = 0, []
            def add(self, x):
                self.total += torch.relu(x)
                self.all.append(self.total)
        def main():
            total = run(Total)
            for _ in range(2): total.add(torch.ones(2))
            return total.all
    """,
    "a number of the module that may become a tensor": """
        TOTAL = 0
        def add(x):
            global TOTAL
            TOTAL += x
            return TOTAL
        def main(): return run(add, torch.ones(2)), run(add, torch.ones(2))
    """,
    "a number in a list of the function around that may become a tensor": """
        def make():
            cell, every = [0], []
            def add(x):
                cell[0] += x
                every.append(cell[0])
                return every
            return add
        def main():
            add = make()
            run(add, torch.ones(2))
            return run(add, torch.ones(2))
    """,
    "a number in a default list that may become a tensor": """
        def add(x, sums=[0]):
            sums[0] += x
            return sums[0]
        def main(): return run(add, torch.ones(2)), run(add, torch.ones(2))
    """,
    "a tensor that a context manager gives": """
        import contextlib
        def main():
            x = torch.ones(2)
            with contextlib.nullcontext(x) as y:
                y += 1
            return x
    """,
    "a number in a dict that becomes a tensor": """
        def f(xs):
            sums, every = {"loss": 0.0}, []
            for x in xs:
                sums["loss"] += torch.relu(x)
                every.append(sums["loss"])
            return every
        def main(): return run(f, [torch.ones(2), torch.ones(2)])
    """,
}
EQUAL = {
    "arrays of NumPy in methods of the same meaning": """
        import numpy as np
        def f(x): return x.sum(), x.mean(0), x.reshape(2, 1), x.T, x.cumsum(0)
        def main(): return [np.asarray(v).tolist() for v in f(np.array([[1.0, 5.0]]))]
    """,
    "axes swapped as NumPy does where there are two": """
        import numpy as np
        def f(x): return x.transpose(1, 0).tolist(), x.transpose(-1, -2).tolist(), x.diagonal(offset=1).tolist()
        def main():
            grid = np.array([[1.0, 5.0], [3.0, 2.0]])
            return run(f, grid), run(f, torch.arange(6.0).reshape(2, 3)), run(f, torch.arange(8.0).reshape(2, 2, 2))
    """,
    "writes through a view of what was taken": """
        def f(x):
            x = x.clone()
            y = x.permute(1, 0)
            y[0] = 7.0
            return x, y
        def main(): return [v.tolist() for v in f(torch.arange(6.0).reshape(2, 3))]
    """,
    "a copy that is written": """
        def f(x):
            y = x.clone()
            y.add_(1.0)
            return x, y
        def main(): return [v.tolist() for v in f(torch.arange(3.0))]
    """,
    "names that change their type": """
        def f(x, texts):
            y = x.exp()
            for x in texts:
                y = y + len(x)
            return y, x + "!"
        def main():
            y, text = f(torch.zeros(2), ["ab", "cab"])
            return y.tolist(), text
    """,
    "a set, whose add gives nothing": """
        def f(seen, x):
            seen.add(x)
            return len(seen)
        def main(): return f({1}, 2)
    """,
    "tensors in a dict by pairs": """
        def f(table, i, j):
            first = torch.relu(table[i, j])
            return first, sorted(table.values(), key=lambda t: float(t))
        def main():
            a, b = f({(0, 1): torch.tensor(-1.0), (1, 1): torch.tensor(-3.0)}, 0, 1)
            return float(a), [float(t) for t in b]
    """,
    "a list of tensors": """
        def f(xs, t):
            y = torch.relu(xs[0])
            xs = xs + [t]
            return y, len(xs), xs.index(t)
        def main():
            a, n, i = f([torch.tensor(-1.0)], torch.tensor(2.0))
            return float(a), n, i
    """,
    "a list that grows where the caller sees it": """
        def f(xs, ys):
            xs += ys
            return xs
        def main():
            a = [1]
            b = f(a, [2])
            return a, b
    """,
    "a result that the text decides": """
        def f(a, b): return torch.max(a[:, 0], b[:2])
        def main(): return f(torch.ones(2, 3), torch.tensor([0.0, 4.0, 9.0])).tolist()
    """,
    "counters": """
        class Steps:
            def __init__(self, start):
                self.step, self.rate, self.counts, self.losses = 0, 1.0, {}, [0.0, 0.0]
            def go(self, x):
                self.step += 1
                self.rate *= 0.5
                total, seen = 0.0, [1]
                total += torch.relu(x).sum().item()
                self.losses[0] += total
                seen += [2]
                for word in "abba":
                    self.counts[word] = self.counts.get(word, 0) + 1
                    total += len(word)
                return [self.step, self.rate, total, self.counts["a"], self.losses[0], len(seen)]
        def main():
            steps = run(Steps, 0)
            return steps.go(torch.ones(3)) + steps.go(torch.ones(3))
    """,
    "a meter": """
        class Meter:
            def __init__(self): self.sum, self.count = 0, 0
            def add(self, value, n=1):
                self.sum += value * n
                self.count += n
                self.mean = self.sum / self.count
        def main():
            meter = run(Meter)
            for value in (torch.tensor(1.0), torch.tensor(4.0)): meter.add(torch.relu(value), 3)
            return float(meter.mean), meter.count
    """,
}


def _text(program: str) -> str:
    return "import torch\ndef run(f, *values): return f(*values)\n" + textwrap.dedent(program)


@pytest.mark.parametrize("name", REPORTED)
def test_what_may_be_something_else_is_reported(name: str) -> None:
    text = _text(REPORTED[name])
    converted.under_torch(text).main()
    assert converted.convert(text).left


@pytest.mark.parametrize("name", EQUAL)
def test_what_is_converted_gives_the_same(name: str, tmp_path: Path) -> None:
    text = _text(EQUAL[name])
    wanted = converted.under_torch(text).main()
    done = converted.convert(text)
    assert not done.left
    assert _close(wanted, converted.under_jax(done, tmp_path).main())


def _close(wanted: Any, got: Any) -> bool:
    if isinstance(wanted, (list, tuple)):
        return len(wanted) == len(got) and all(map(_close, wanted, got))
    return bool(np.isclose(wanted, got)) if isinstance(wanted, float) else wanted == got


def test_what_another_file_of_the_project_hands_on_counts() -> None:
    files = {
        "pack/__init__.py": "",
        "pack/ops.py": "import torch\ndef f(x): return x.sqrt()\n",
        "pack/use.py": "from decimal import Decimal\nfrom pack.ops import f\ny = list(run(f, Decimal(2)))\n",
        "pack/apart.py": "import torch\ndef g(x): return x.sqrt()\n",
    }
    run = convert_files([Source(p, t) for p, t in files.items()], load_rules())
    codes = {o.path: [f.code for f in o.findings if f.name == "torch.Tensor.sqrt"] for o in run.outcomes}
    assert codes["pack/ops.py"] == ["JM201"]
    assert codes["pack/apart.py"] == ["JM001"]


@pytest.mark.parametrize("use", ["t / s.median()", "s.median() * t"])
def test_what_a_library_with_arrays_may_give_as_a_number_shows_no_tensor(use: str) -> None:
    text = f"import torch\ndef f(t: torch.Tensor, s): return {use}\n"
    assert not converted.convert(text).left
    found = converted.convert(f"import pandas as pd\n{text}").findings
    assert [f.name for f in found if f.code == "JM201"] == ["torch.Tensor.median"]


def test_the_report_says_why() -> None:
    done = converted.convert("import torch\ndef f(x): return x.sqrt(), x.T\n")
    assert [f.evidence for f in done.findings if f.name == "torch.Tensor.sqrt"] == [
        "Tensor: taken as it comes: jnp.sqrt raises on anything but arrays"
    ]
