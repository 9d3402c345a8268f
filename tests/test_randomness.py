"""Random numbers: keys and rngs reach every draw, and no key is used twice."""

from __future__ import annotations

import ast
import textwrap
from collections import Counter
from typing import Any

import numpy as np
import pytest
from runner import convert, run_both

HEAD = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n\n"


def converted(source: str) -> str:
    outcome, _ = convert(HEAD + textwrap.dedent(source))
    assert outcome.status == "changed", [f.message for f in outcome.findings]
    return outcome.after


def test_each_draw_splits_the_key() -> None:
    text = converted(
        """\
        def main():
            torch.manual_seed(3)
            a = torch.randn(2)
            return a + torch.rand(2)
        """
    )
    split = "    key, subkey = jax.random.split(key)\n"
    assert f"    key = jax.random.key(3)\n{split}    a = jax.random.normal(subkey, (2,))\n" in text
    assert text.count("jax.random.split(key)") == 2


def test_a_function_that_draws_takes_a_key_and_so_do_its_callers() -> None:
    text = converted(
        """\
        def noise(x):
            return x + torch.randn_like(x)

        def twice(x):
            return noise(noise(x))

        def main():
            torch.manual_seed(0)
            return twice(torch.zeros(3))
        """
    )
    assert "def noise(x, *, key):" in text
    assert "def twice(x, *, key):" in text
    assert "noise(noise(x, key=subkey2), key=subkey)" in text or "noise(noise(x, key=subkey), key=subkey2)" in text


def test_attention_keeps_its_own_key() -> None:
    text = converted(
        """\
        def attend(query, key, value):
            return query @ key.transpose(0, 1) @ value + torch.rand(1)
        """
    )
    assert "def attend(query, key, value, *, rng_key):" in text
    assert "jax.random.split(rng_key)" in text


def test_a_seeding_function_returns_the_key() -> None:
    text = converted(
        """\
        def set_seed(seed):
            torch.manual_seed(seed)
            torch.cuda.manual_seed_all(seed)

        def main():
            set_seed(4)
            return torch.rand(2)
        """
    )
    assert "    key = jax.random.key(seed)\n    return key\n" in text
    assert "    key = set_seed(4)\n" in text


def test_a_generator_is_a_key_of_its_own() -> None:
    result = run_both(
        HEAD
        + textwrap.dedent(
            """\
            def main():
                g = torch.Generator().manual_seed(7)
                a = torch.rand(4, generator=g)
                b = torch.rand(4, generator=g)
                g.manual_seed(7)
                c = torch.rand(4, generator=g)
                return bool((a == c).all()), bool((a == b).all())
            """
        )
    )
    assert result.same and not result.left


def test_a_shared_generator_is_left() -> None:
    outcome, _ = convert(HEAD + "def draw(n, g):\n    return torch.rand(n, generator=g)\n")
    assert [f.code for f in outcome.findings if f.code[2] == "2"] == ["JM203"]


def test_a_module_that_draws_keeps_a_stream() -> None:
    result = run_both(
        HEAD
        + textwrap.dedent(
            """\
            class Noise(nn.Module):
                def forward(self, x):
                    if not self.training:
                        return x
                    return F.dropout(x, 0.5, self.training) + torch.randn_like(x)

            def main():
                m, x = Noise(), torch.ones(100)
                a, b = m(x), m(x)
                m.eval()
                return bool((a == b).all()), m(x)
            """
        )
    )
    assert result.same and not result.left, (result.error, result.outcome.after)


@pytest.mark.parametrize(
    "body",
    [
        "xs = [torch.rand(2) for _ in range(3)]\n    return bool((xs[0] == xs[1]).all()), len(xs)",
        "xs = [torch.rand(2) + i for i in range(3)]\n    return bool((xs[0] + 1 == xs[1]).all()), len(xs)",
        "n = 5\n    return len([torch.rand(2) for _ in range(n if n > 3 else 3)]), n",
        "x = torch.zeros(4, 3)\n    return len([torch.rand(2) for _ in range(x.size(0))])",
        "b = torch.randn(3) - torch.randn(3)\n    return bool((b == 0).all()), b.shape[0]",
        "y = torch.zeros(2)\n    if torch.rand(1).item() < 2:\n        y = torch.rand(2)\n    return y.shape[0]",
        "total = 0\n    for _ in range(4):\n        total = total + torch.rand(1)\n    return bool(total > 0)",
    ],
)
def test_draws_differ(body: str) -> None:
    result = run_both(f"{HEAD}def main():\n    torch.manual_seed(1)\n    {body}\n")
    assert result.same and not result.left, (result.error, result.outcome.after)


def test_no_key_is_used_twice() -> None:
    """Between two places where a key's name is bound again, it is handed to at most one draw."""
    text = converted(
        """\
        def sample(n):
            a = torch.rand(n) * torch.randn(n)
            b = torch.randint(0, 5, (n,))
            return a, b, torch.randperm(n)

        def main():
            torch.manual_seed(2)
            for _ in range(2):
                sample(3)
            return sample(2)
        """
    )
    for function in ast.parse(text).body:
        if isinstance(function, ast.FunctionDef):
            names = [n.id for n in ast.walk(function) if isinstance(n, ast.Name)]
            uses = Counter(n for n in names if n.startswith("subkey"))
            bound = Counter(
                n.id
                for n in ast.walk(function)
                if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and n.id.startswith("subkey")
            )
            assert all(uses[n] == 2 * bound[n] for n in bound), text


def test_modules_of_a_script_share_one_stream() -> None:
    source = textwrap.dedent(
        """\
        import torch.nn as nn

        if __name__ == "__main__":
            first = nn.Linear(4, 4)
            second = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
            more = []
            for _ in range(2):
                more.append(nn.Linear(4, 4))
        """
    )
    outcome, layers = convert(source)
    assert "    rngs = nnx.Rngs(0)\n    first = Linear(4, 4, rngs=rngs)\n" in outcome.after
    assert outcome.after.count("nnx.Rngs(0)") == 1
    names: dict[str, Any] = {}
    exec(compile(layers, "nnx_layers.py", "exec"), names)
    names["__name__"] = "__main__"
    program = outcome.after.replace("from nnx_layers import", "# ")
    exec(compile(program, "program.py", "exec"), names)
    weights = [np.asarray(m.weight[...]) for m in (names["first"], *names["second"], *names["more"])]
    assert len({w.tobytes() for w in weights}) == 5


def test_one_module_makes_its_own_stream() -> None:
    outcome, _ = convert("import torch.nn as nn\n\nmodel = nn.Linear(4, 4)\n")
    assert outcome.after.endswith("model = Linear(4, 4, rngs=nnx.Rngs(0))\n")
    outcome, _ = convert("import torch.nn as nn\n\nmodels = [nn.Linear(4, 4) for _ in range(3)]\n")
    assert outcome.after.endswith("rngs = nnx.Rngs(0)\nmodels = [Linear(4, 4, rngs=rngs) for _ in range(3)]\n")


def test_a_plain_class_as_a_value_takes_no_rngs() -> None:
    """Only classes of modules do: another one would fail with an argument that it does not know."""
    text = converted(
        """\
        class Plain:
            pass

        class Other:
            pass

        class Net(nn.Module):
            kind = Plain

            def __init__(self, kind=None, norm=nn.LayerNorm):
                super().__init__()
                if kind is not None:
                    self.kind = kind
                self.norm = norm(3)
                self.made = self.kind(1)

        def pick(deep):
            cls = Plain if deep else Other
            return cls(deep)
        """
    )
    assert "self.made = self.kind(1)\n" in text
    assert "def pick(deep):" in text
    assert "return cls(deep)" in text
    assert "self.norm = norm(3, rngs=rngs)" in text


def test_comprehensions_over_anything_draw_from_a_stream() -> None:
    """Each element draws its own numbers, and all that is used is defined."""
    source = f"""{HEAD}
def pick(x, n):
    return x[torch.randint(0, len(x), (n,))]

def batched(samples):
    return torch.stack([pick(s, 8) for s in samples.unbind(0)])

def main():
    out = batched(torch.arange(200.0).repeat(2, 1))
    return bool((out[0] == out[1]).all()), out.shape[1]
"""
    result = run_both(source)
    assert result.same and not result.left, (result.error, result.outcome.after)
    assert "pick(s, 8, key=draws())" in result.outcome.after


def test_a_stream_starts_from_a_key_of_its_own() -> None:
    text = converted(
        "def f(flags):\n    return torch.rand(2) + sum(torch.rand(2) for f in flags if f) + torch.rand(2)\n"
    )
    assert "draws = nnx.Rngs(subkey2)" in text
    assert text.count("jax.random.uniform(subkey, ") == text.count("jax.random.uniform(subkey3, ") == 1


def test_apply_draws_from_one_stream() -> None:
    """Two layers of one shape do not start from the same numbers."""
    source = f"""{HEAD}
def weights_init(m):
    if isinstance(m, nn.Linear):
        nn.init.normal_(m.weight, 0.0, 0.02)

def main():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    net.apply(weights_init)
    return bool((net[0].weight == net[1].weight).all())
"""
    result = run_both(source)
    assert result.same and not result.left, (result.error, result.outcome.after)
