"""Small pairs of programs, and the example that runs both."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pair:
    example: str
    torch: str
    jax: str


TORCH = "import torch\nfrom torch import nn\n"
JAX = "import jax\nimport jax.numpy as jnp\nfrom flax import nnx\n"

LINEAR = """
class Linear(nnx.Module):
    def __init__(self, i, o, *, rngs):
        self.weight = nnx.Param(jax.random.normal(rngs.params(), (o, i)))
        self.bias = nnx.Param(jnp.zeros(o))
    def __call__(self, x):
        return x @ self.weight[...].T + self.bias[...]
"""

NESTED_OUTPUTS = """
from dataclasses import dataclass
from typing import Any, NamedTuple
@dataclass
class Out:
    logits: Any
    extra: Any = None
class Pair(NamedTuple):
    a: Any
    b: Any
def fn(x, n, mode="a", *, y=None):
    return {"z": [x * n, (x.shape[0], mode)], "b": Out(Pair(x + 1, y)), "n": 2.5}
"""

NOISE_TORCH = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)
    def forward(self, x):
        mu = self.fc(x)
        return mu, mu + torch.randn_like(mu)
"""
NOISE_JAX = (
    LINEAR
    + """
class Net(nnx.Module):
    def __init__(self, *, rngs):
        self.fc = Linear(3, 2, rngs=rngs)
        self.noise = rngs.noise.fork()
    def __call__(self, x):
        mu = self.fc(x)
        return mu, mu + jax.random.normal(self.noise(), mu.shape)
"""
)

TIED_TORCH = """
class Net(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner
        self.head = nn.Linear(3, 3)
        self.head.weight = self.inner.weight
        self.scale = nn.Parameter(torch.ones(3), requires_grad=False)
    def forward(self, x):
        return self.head(torch.tanh(self.inner(x))) * self.scale
def make(n):
    return nn.Linear(n, n)
"""
TIED_JAX = (
    LINEAR
    + """
class Net(nnx.Module):
    def __init__(self, inner, *, rngs):
        self.inner = inner
        self.head = Linear(3, 3, rngs=rngs)
        self.head.weight = self.inner.weight
        self.scale = nnx.Param(jnp.ones(3))
    def __call__(self, x):
        return self.head(jnp.tanh(self.inner(x))) * self.scale[...]
def make(n, *, rngs):
    return Linear(n, n, rngs=rngs)
"""
)

HOST_DRAWS = """
import random
import numpy as np
def fn(x):
    return x[np.random.permutation(5)] * float(np.random.rand()) + random.random()
"""

PAIRS = {
    "draws of NumPy and Python": Pair("fn(f32[5])", HOST_DRAWS, HOST_DRAWS),
    "nested outputs": Pair("fn(f32[2, 3], 3, 'q', y=i64[2] < 9)", NESTED_OUTPUTS, NESTED_OUTPUTS),
    "value decides": Pair(
        "fn(f32[3])",
        "def fn(x):\n    return x * 2 if x.sum() > 0 else x * 3\n",
        "def fn(x):\n    return x * 2 if x.sum() > 0 else x * 3\n",
    ),
    "key is supplied": Pair(
        "fn(f32[3])",
        TORCH + "def fn(x):\n    return x + torch.rand(3)\n",
        JAX + "def fn(x, *, key):\n    return x + jax.random.uniform(key, (3,))\n",
    ),
    "imports torch": Pair("fn(f32[3])", "def fn(x):\n    return x\n", "import torch\ndef fn(x):\n    return x\n"),
    "imports jaxmigrate": Pair(
        "fn(f32[3])", "def fn(x):\n    return x\n", "import jaxmigrate\ndef fn(x):\n    return x\n"
    ),
    "exits": Pair("fn(f32[3])", "def fn(x):\n    return x\n", "import sys\nsys.exit(4)\n"),
    "build fails": Pair(
        "Net()(f32[3])",
        TORCH + "class Net(nn.Linear):\n    def __init__(self):\n        super().__init__(3, 3)\n",
        JAX + "class Net(nnx.Module):\n    def __init__(self):\n        raise ValueError('no\\nway')\n",
    ),
    "original fails": Pair("fn(f32[3])", "def fn(x):\n    return x.bmm(x)\n", "def fn(x):\n    return x\n"),
    "conversion fails": Pair("fn(f32[3])", "def fn(x):\n    return x.t()\n", "def fn(x):\n    return x.t()\n"),
    "class for function": Pair("Net(f32[3])", TORCH + "class Net(nn.Module):\n    pass\n", "Net = 1\n"),
    "noise": Pair("Net()(f32[4, 3])", TORCH + NOISE_TORCH, JAX + NOISE_JAX),
    "noise dropped": Pair(
        "Net()(f32[4, 3])",
        TORCH + NOISE_TORCH,
        JAX + NOISE_JAX.replace("jax.random.normal(self.noise(), mu.shape)", "0"),
    ),
    "another type": Pair("fn(f32[3])", "def fn(x):\n    return x > 0\n", "def fn(x):\n    return 1.0 * (x > 0)\n"),
    "another structure": Pair("fn(f32[3])", "def fn(x):\n    return x, x\n", "def fn(x):\n    return x\n"),
    "another shape": Pair("fn(f32[3])", "def fn(x):\n    return x\n", "def fn(x):\n    return x[None]\n"),
    "another number": Pair("fn(f32[3])", "def fn(x):\n    return 3\n", "def fn(x):\n    return 4\n"),
    "another integer": Pair(
        "fn(i64[3] in 90000000..90000009)", "def fn(x):\n    return x\n", "def fn(x):\n    return x + 1\n"
    ),
    "nan elsewhere": Pair(
        "fn(f32[3])",
        TORCH + "def fn(x):\n    return torch.tensor([1.0, float('nan'), 3.0]) + 0 * x\n",
        JAX + "def fn(x):\n    return jnp.array([1.0, 2.0, 3.0]) + 0 * x\n",
    ),
    "nan and inf at one place": Pair(
        "fn(f32[3])",
        TORCH + "def fn(x):\n    return torch.tensor([1.0, float('nan'), -float('inf')]) + 0 * x.detach()\n",
        JAX + "def fn(x):\n    return jnp.array([1.0, jnp.nan, -jnp.inf]) + 0 * jax.lax.stop_gradient(x)\n",
    ),
    "gradient only": Pair(
        "fn(f32[3])",
        "def fn(x):\n    return x.detach() * x\n",
        "def fn(x):\n    return x * x\n",
    ),
    "writes to its input": Pair("fn(f32[3])", "def fn(x):\n    return x.mul_(2)\n", "def fn(x):\n    return x * 2\n"),
    "double": Pair(
        "fn(f64[3])", TORCH + "def fn(x):\n    return torch.sin(x)\n", JAX + "def fn(x):\n    return jnp.sin(x)\n"
    ),
    "double lost": Pair(
        "fn(f64[3])",
        TORCH + "def fn(x):\n    return torch.sin(x)\n",
        JAX + "def fn(x):\n    return jnp.sin(x.astype('float32'))\n",
    ),
    "half": Pair("fn(bf16[64])", "def fn(x):\n    return x * x\n", "def fn(x):\n    return x * x\n"),
    "tied, frozen, nested build": Pair("Net(make(3))(f32[4, 3])", TORCH + TIED_TORCH, JAX + TIED_JAX),
    "another name": Pair(
        "Net(make(3))(f32[4, 3])", TORCH + TIED_TORCH, JAX + TIED_JAX.replace("self.scale", "self.gain")
    ),
    "method": Pair(
        "Net(make(3)).twice(f32[4, 3])",
        TORCH + TIED_TORCH.replace("def forward", "def twice"),
        JAX
        + TIED_JAX.replace(
            "def __call__(self, x):\n        return self.head", "def twice(self, x):\n        return self.head"
        ),
    ),
}

CANCEL_TORCH = TORCH + "def fn(x):\n    y = 1e4 + x\n    return ((y * y).mean() - y.mean() ** 2).reshape(1)\n"
CANCEL_JAX = JAX + "def fn(x):\n    y = 1e4 + x\n    return (jnp.mean(y * y) - jnp.mean(y) ** 2).reshape(1)\n"
PRECISE = {
    "hidden error": Pair(
        "fn(f32[64])",
        TORCH + "def fn(x):\n    return (x - x.mean()) / (x.var(correction=0) + 1e-5) ** 0.5\n",
        JAX + "def fn(x):\n    return (x - x.mean()) / (x.var() + 1e-6) ** 0.5\n",
    ),
    "ill-conditioned": Pair("fn(f32[4096])", CANCEL_TORCH, CANCEL_JAX),
    "wrong and ill-conditioned": Pair("fn(f32[4096])", CANCEL_TORCH, CANCEL_JAX.replace("1e4 + x", "1e4 + 1.001 * x")),
    "rounds otherwise under jit": Pair(
        "fn(f32[64])",
        TORCH + "def fn(x):\n    y = 100.1 * x\n    return y * y - y * (y + 0.01)\n",
        JAX
        + "def fn(x):\n    y = 100.1 * x\n    traced = isinstance(x, jax.core.Tracer)\n"
        + "    return y * (y - (y + 0.01)) if traced else y * y - y * (y + 0.01)\n",
    ),
    "rounds worse": Pair(
        "fn(f32[4096])",
        TORCH + "def fn(x):\n    y = 1e3 + x\n    return ((y - y.mean()) ** 2).mean().reshape(1)\n",
        JAX + "def fn(x):\n    y = 1e3 + x\n    return (jnp.mean(y * y) - jnp.mean(y) ** 2).reshape(1)\n",
    ),
    "float32 inside": Pair(
        "fn(f32[64])",
        TORCH + "def fn(x):\n    return torch.exp(x.float() / 3).mean()\n",
        JAX + "def fn(x):\n    return jnp.mean(jnp.exp(x.astype(jnp.float32) / 3))\n",
    ),
    "another seed": Pair(
        "fn(f32[8])",
        TORCH + "def fn(x):\n    return torch.rand(8) * x\n",
        JAX
        + "import os\ndef fn(x):\n    seed = int.from_bytes(os.urandom(3))\n"
        + "    return jax.random.uniform(jax.random.key(seed), (8,)) * x\n",
    ),
    "compiles each time": Pair(
        "fn(f32[8])",
        TORCH + "def fn(x):\n    return torch.sin(x)\n",
        JAX + "def fn(x):\n    jax.clear_caches()\n    return jnp.sin(x)\n",
    ),
    "jit sees another world": Pair(
        "fn(f32[8])",
        TORCH + "def fn(x):\n    return torch.sin(x)\n",
        JAX + "def fn(x):\n    return jnp.sin(x) if not isinstance(x, jax.core.Tracer) else jnp.sin(x) + 1\n",
    ),
}
