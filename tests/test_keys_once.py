"""No converted program consumes a PRNG key twice, on any path."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from converted import convert
from key_uses import keys_used_twice

HERE = Path(__file__).resolve().parent
DRAWS = re.compile(r"\b(rand\w*|normal\w*|multinomial|bernoulli|dropout\w*|shuffle|sample|random_split|\w*Sampler)\b")
PROGRAMS = sorted(
    p
    for p in (*HERE.parent.glob("corpus/*.py"), *HERE.glob("golden/*/*/torch_in.py"), *HERE.glob("cases/*.py"))
    if DRAWS.search(p.read_bytes().decode("utf-8", "replace"))
)
SPLIT = "key, subkey = jax.random.split(key)\n"


def program(body: str) -> str:
    return "import jax\n\n\ndef run(key, flag):\n" + "".join(f"    {line}\n" for line in body.splitlines())


@pytest.mark.parametrize(
    "body",
    [
        "x = jax.random.normal(key)\ny = jax.random.uniform(key)",
        SPLIT + "x = jax.random.normal(subkey) + jax.random.normal(subkey)",
        "key2, subkey = jax.random.split(key)\nx = f(subkey)\ny = f(key)",
        SPLIT + "for i in range(3):\n    x = jax.random.normal(subkey)",
        SPLIT + "while flag():\n    x = jax.random.normal(subkey)",
        SPLIT + "if flag:\n    x = jax.random.normal(subkey)\nelse:\n    pass\ny = f(key=subkey)",
        SPLIT + "x = [jax.random.normal(subkey) for i in range(3)]",
        SPLIT + "def loss_fn(model):\n    return model(jax.random.normal(subkey))\nx = f(subkey)",
        SPLIT + "f = lambda: jax.random.normal(subkey)\nx = f(subkey)",
        "for i in range(3):\n    " + SPLIT + "    x = f(subkey)\ny = f(subkey)",
    ],
)
def test_a_second_use_is_found(body: str) -> None:
    assert keys_used_twice(program(body)), body


@pytest.mark.parametrize(
    "body",
    [
        SPLIT + "x = f(subkey)\n" + SPLIT + "y = f(subkey)\nreturn f(key)",
        "for i in range(3):\n    " + SPLIT + "    x = f(subkey)",
        SPLIT + "if flag:\n    x = f(subkey)\nelse:\n    y = f(subkey)",
        SPLIT + "if flag:\n    return f(subkey)\ny = f(subkey)",
        "key, *subkeys = jax.random.split(key, 4)\nx = [f(subkey) for subkey in subkeys]",
        "for i in range(3):\n    x, key = step(x, key)",
        SPLIT + "def loss_fn(model):\n    return model(jax.random.normal(subkey))\nx = grad(loss_fn)()",
        SPLIT + "x = f(subkey) if flag else g(subkey)",
    ],
)
def test_single_uses_are_none(body: str) -> None:
    assert keys_used_twice(program(body)) == [], body


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: p.name if p.name != "torch_in.py" else p.parent.name)
def test_converted_programs_consume_each_key_once(path: Path) -> None:
    text = convert(path.read_bytes().decode("utf-8", "replace"), path.name).text
    assert keys_used_twice(text) == [], text


def test_the_programs_draw() -> None:
    texts = [convert(p.read_bytes().decode("utf-8", "replace"), p.name).text for p in PROGRAMS[:12]]
    assert sum("jax.random.split" in t for t in texts) >= 3
