"""False conversions: code that looks like torch and is not. Nothing of it may change."""

# ruff: noqa: E501 (one program a line)
from __future__ import annotations

import pytest

from jaxmigrate.config import Settings
from jaxmigrate.project import convert_files
from jaxmigrate.read.source import Source
from jaxmigrate.rulebook import load_rules

TRAPS = {
    "string methods": "s = 'a b'\nprint(s.split(' '), s.expandtabs(), 'x'.index('x'), 'a'.repeat if 0 else 1)\n",
    "string join": "print(', '.join(['a']).upper().strip().format(1))\n",
    "dict methods": "d = {'a': 1}\nd.update(b=2)\nd.pop('a')\nprint(d.get('x'), d.copy(), d.items(), d.values())\n",
    "list methods": "xs = [3, 1]\nxs.sort()\nxs.reverse()\nxs.append(2)\nprint(xs.count(1), xs.index(1), xs.copy())\n",
    "set methods": "s = set()\ns.add(1)\ns.update([2])\nprint(s.union([3]), s.difference([1]))\n",
    "numpy": "import numpy as np\nx = np.ones((3, 4))\nprint(x.view(), x.size, x.sum(axis=1), x.reshape(4, 3), x.repeat(2), x.flatten())\n",
    "numpy functions": "import numpy as np\nprint(np.cat if 0 else np.stack([np.zeros(3)]), np.random.rand(3))\n",
    "file": "with open('f') as f:\n    f.read()\n    f.flush()\n    f.close()\n",
    "path": "from pathlib import Path\nprint(Path('a').expanduser().exists())\n",
    "regex": "import re\nm = re.match('a', 'b')\nprint(m.group(0) if m else re.compile('x').split('y'))\n",
    "own class": "class Box:\n    def view(self, n): return n\n    def sum(self): return 3\n\n\nprint(Box().view(3), Box().sum())\n",
    "own forward": "class Net:\n    def forward(self, x):\n        return x\n\n\nprint(Net().forward(3))\n",
    "own functions": "def relu(x): return max(x, 0)\ndef cat(a, b): return a + b\n\n\nprint(relu(3), cat([1], [2]))\n",
    "lambda named torch": "f = lambda torch: torch.cat([torch.x, torch.y], dim=1)\n",
    "loop named torch": "for torch in [1, 2]:\n    print(torch.real)\n",
    "class named nn": "class nn:\n    Linear = dict\n\n\nprint(nn.Linear(a=3))\n",
    "attribute named torch": "class A:\n    torch = 3\n    def f(self):\n        return self.torch.relu(3)\n",
    "keyword named torch": "def f(**k): return k\n\n\nprint(f(torch=3, dim=1))\n",
    "strings": 'x = \'import torch; torch.relu(x)\'\ny = """\nimport torch\ntorch.cat([a, b], dim=1)\n"""\n',
    "docstring": "def f():\n    '''>>> torch.relu(torch.ones(3))'''\n",
    "comment": "# import torch\n# x = torch.relu(x)\nx = 3  # torch.ones(3).cuda()\n",
    "f-string text": "w = 3\nprint(f'torch.relu({w})')\n",
    "standard library": "import random, math, time\nprint(random.random(), math.exp(1), time.time(), random.seed(3), math.log(2))\n",
    "numbers": "x = 3.5\nprint(x.real, (3).bit_length(), x.is_integer(), round(x), abs(x), max(x, 2))\n",
    "datetime": "from datetime import datetime\nprint(datetime.now().replace(hour=1))\n",
    "array module": "import array\na = array.array('d', [1])\nprint(a.tolist())\n",
    "getattr of a dict": "d = {}\nprint(getattr(d, 'get')('torch'))\n",
    "decimal": "from decimal import Decimal\nprint(Decimal(1).sqrt(), Decimal(2).exp())\n",
    "collections": "from collections import Counter, deque\nc = Counter()\nc.update('a')\nprint(c.total(), deque().rotate(1))\n",
    "threads": "import threading\nt = threading.Thread()\nt.start()\nt.join()\n",
    "keyword arguments": "def f(dim, keepdim): return dim\n\n\nprint(f(dim=3, keepdim=True))\n",
}
UNKNOWN = {
    "parameter named torch": "def f(torch):\n    return torch.relu(torch.ones(3))\n",
    "own package": "from . import torch\nprint(torch.relu(3))\n",
    "match": "def f(m): return m.expand('a'), m.group(0).split('a')\n",
    "pandas": "def f(df): return df.mean(axis=0).round(2).sort_values().head()\n",
    "pandas import": "import pandas as pd\nprint(pd.concat([pd.DataFrame()]).sum())\n",
    "image": "def f(img): return img.convert('RGB').resize((3, 3)).rotate(90)\n",
    "tree": "def f(node): return node.expand().split('a')\n",
    "tensor-like": "def f(q): return q.view(3).sum()\n",
    "sympy": "import sympy\nprint(sympy.Symbol('x').expand())\n",
}


def convert(text: str):  # type: ignore[no-untyped-def]
    return convert_files([Source("trap/m.py", text)], load_rules(), Settings(todo=False)).outcomes[0]


@pytest.mark.parametrize("name", TRAPS)
def test_look_alikes_are_neither_changed_nor_reported(name: str) -> None:
    text = TRAPS[name] + "# torch\n"
    outcome = convert(text)
    assert outcome.after == text
    assert outcome.findings == ()


@pytest.mark.parametrize("name", TRAPS)
def test_look_alikes_beside_torch_are_not_touched(name: str) -> None:
    """The same code in a file that uses torch: only the torch line changes."""
    text = f"import torch as T\n\nT_ones = T.ones(3)\n{TRAPS[name]}"
    outcome = convert(text)
    assert outcome.after == f"import jax.numpy as jnp\n\nT_ones = jnp.ones((3,))\n{TRAPS[name]}"
    assert [f.code for f in outcome.findings] == ["JM001"]


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_receivers_are_left(name: str) -> None:
    text = f"import torch as T\n\nT_ones = T.ones(3)\n{UNKNOWN[name]}"
    assert convert(text).after == f"import jax.numpy as jnp\n\nT_ones = jnp.ones((3,))\n{UNKNOWN[name]}"
