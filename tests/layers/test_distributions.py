"""Distributions against torch's: formulas and gradients exactly, draws by their moments."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.distributions as theirs

from jaxmigrate.layers.library import distributions as ours

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(2, 4)).astype(np.float32)
WEIGHTS = np.array([[1.0, 0.0, 2.0, 5.0], [3.0, 1.0, 1.0, 1.0]], np.float32)
LOC = RNG.normal(size=(2, 3)).astype(np.float32)
SCALE = RNG.uniform(0.5, 2, size=(2, 3)).astype(np.float32)
P = np.array([[0.0, 0.3, 1.0], [0.5, 0.9, 0.1]], np.float32)
FACTOR = np.tril(RNG.normal(size=(3, 3))).astype(np.float32) + 2 * np.eye(3, dtype=np.float32)

CASES: list[tuple[str, tuple[Any, ...], dict[str, Any], np.ndarray]] = [
    ("Normal", (LOC, SCALE), {}, LOC + 0.7),
    ("Normal", (0, 1), {}, LOC),
    ("Uniform", (LOC, LOC + SCALE), {}, LOC + 0.25 * SCALE),
    ("Uniform", (0.0, 1.0), {}, np.array([-0.5, 0.5, 1.0], np.float32)),
    ("Exponential", (SCALE,), {}, SCALE + 1),
    ("Laplace", (LOC, SCALE), {}, LOC - 0.3),
    ("Gamma", (SCALE, SCALE + 1), {}, SCALE + 0.5),
    ("Beta", (SCALE, SCALE + 1), {}, np.full((2, 3), 0.4, np.float32)),
    ("Dirichlet", (SCALE,), {}, np.array([[0.2, 0.3, 0.5], [0.1, 0.1, 0.8]], np.float32)),
    ("Bernoulli", (P,), {}, np.round(P)),
    ("Bernoulli", (), {"logits": LOGITS}, (LOGITS > 0).astype(np.float32)),
    ("Categorical", (WEIGHTS,), {}, np.array([2, 0])),
    ("Categorical", (), {"logits": LOGITS}, np.array([[1, 3], [0, 2], [3, 3]])),
    ("OneHotCategorical", (), {"logits": LOGITS}, np.eye(4, dtype=np.float32)[[1, 2]]),
    ("MultivariateNormal", (LOC,), {"scale_tril": FACTOR}, LOC + 0.5),
    ("MultivariateNormal", (LOC[0], FACTOR @ FACTOR.T), {}, LOC),
]
IDS = [f"{name}-{i}" for i, (name, *_) in enumerate(CASES)]


def made(module: Any, name: str, args: tuple[Any, ...], options: dict[str, Any], convert: Any) -> Any:
    def value(v: Any) -> Any:
        return convert(v) if isinstance(v, np.ndarray) else v

    extra = {"validate_args": False} if module is theirs else {}
    return getattr(module, name)(*map(value, args), **{k: value(v) for k, v in options.items()}, **extra)


def close(got: Any, want: torch.Tensor, tolerance: float = 2e-6) -> None:
    np.testing.assert_allclose(np.asarray(got), want.detach().numpy(), rtol=1e-5, atol=tolerance)
    assert np.shape(got) == tuple(want.shape)


@pytest.mark.parametrize(("name", "args", "options", "value"), CASES, ids=IDS)
def test_formulas(name: str, args: Any, options: Any, value: np.ndarray) -> None:
    want, got = made(theirs, name, args, options, torch.from_numpy), made(ours, name, args, options, jnp.asarray)
    close(got.log_prob(jnp.asarray(value)), want.log_prob(torch.from_numpy(value)), 1e-5)
    for attribute in ("mean", "variance", "stddev", "probs", "logits", "loc", "scale"):
        if hasattr(got, attribute):
            close(getattr(got, attribute), getattr(want, attribute))
    for method in ("entropy", "perplexity"):
        if hasattr(got, "entropy"):
            close(getattr(got, method)(), getattr(want, method)(), 1e-5)
    assert (got.batch_shape, got.event_shape) == (tuple(want.batch_shape), tuple(want.event_shape))


@pytest.mark.parametrize(
    ("name", "args", "options", "value"),
    [c for c in CASES if any(isinstance(v, np.ndarray) for v in (*c[1], *c[2].values()))],
)
def test_gradient_of_log_prob(name: str, args: Any, options: Any, value: np.ndarray) -> None:
    first = args[0] if args else next(iter(options.values()))

    def place(convert: Any, leaf: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        rest = tuple(convert(a) if isinstance(a, np.ndarray) else a for a in args[1:])
        if args:
            return (leaf, *rest), {k: convert(v) for k, v in options.items()}
        return (), {next(iter(options)): leaf}

    leaf = torch.from_numpy(first.copy()).requires_grad_()
    positional, named = place(torch.from_numpy, leaf)
    getattr(theirs, name)(*positional, **named, validate_args=False).log_prob(torch.from_numpy(value)).sum().backward()

    def total(leaf: jax.Array) -> jax.Array:
        positional, named = place(jnp.asarray, leaf)
        return jnp.sum(getattr(ours, name)(*positional, **named).log_prob(jnp.asarray(value)))

    close(jax.grad(total)(jnp.asarray(first)), leaf.grad, 1e-5)


@pytest.mark.parametrize(("name", "args", "options", "value"), CASES, ids=IDS)
def test_draws(name: str, args: Any, options: Any, value: np.ndarray) -> None:
    want, got = made(theirs, name, args, options, torch.from_numpy), made(ours, name, args, options, jnp.asarray)
    one = got.sample(jax.random.key(0))
    assert one.shape == tuple(want.sample().shape)
    assert jnp.issubdtype(one.dtype, jnp.integer) == (not want.sample().is_floating_point())
    draws = np.asarray(got.sample(jax.random.key(1), (20_000,)))
    torch.manual_seed(0)
    other = want.sample((20_000,)).double().numpy()
    spread = other.std(axis=0)
    assert np.all(np.abs(draws.mean(axis=0) - other.mean(axis=0)) <= 0.05 * spread + 1e-6)
    np.testing.assert_allclose(draws.std(axis=0), spread, rtol=0.06, atol=0.01)


def test_rsample_has_a_gradient_and_sample_has_none() -> None:
    def total(draw: str, loc: jax.Array) -> jax.Array:
        return jnp.sum(getattr(ours.Normal(loc, 2.0), draw)(jax.random.key(0), (5,)))

    assert jax.grad(lambda loc: total("rsample", loc))(jnp.float32(1)) == 5
    assert jax.grad(lambda loc: total("sample", loc))(jnp.float32(1)) == 0


PAIRS = [
    ("Normal", {"loc": LOC, "scale": SCALE}, {"loc": LOC + 1, "scale": SCALE * 2}),
    ("Categorical", {"logits": LOGITS}, {"probs": WEIGHTS}),
    ("Categorical", {"probs": WEIGHTS}, {"logits": LOGITS}),
    ("Bernoulli", {"probs": P}, {"probs": np.full((2, 3), 0.4, np.float32)}),
    ("Bernoulli", {"probs": np.full((2, 3), 0.4, np.float32)}, {"probs": P}),
]


@pytest.mark.parametrize(("name", "first", "second"), PAIRS, ids=[f"{p[0]}-{i}" for i, p in enumerate(PAIRS)])
def test_divergence(name: str, first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> None:
    def pair(module: Any, convert: Any) -> list[Any]:
        return [made(module, name, (), options, convert) for options in (first, second)]

    close(ours.kl_divergence(*pair(ours, jnp.asarray)), theirs.kl_divergence(*pair(theirs, torch.from_numpy)), 1e-5)


def test_independent() -> None:
    want = theirs.Independent(theirs.Normal(torch.from_numpy(LOC), torch.from_numpy(SCALE)), 1)
    got = ours.Independent(ours.Normal(LOC, SCALE), 1)
    close(got.log_prob(LOC + 1), want.log_prob(torch.from_numpy(LOC) + 1), 1e-5)
    close(got.entropy(), want.entropy(), 1e-5)
    assert got.event_shape == (3,) and got.rsample(jax.random.key(0), (5,)).shape == (5, 2, 3)
    other = ours.Independent(ours.Normal(LOC + 1, SCALE), 1)
    theirs_other = theirs.Independent(theirs.Normal(torch.from_numpy(LOC) + 1, torch.from_numpy(SCALE)), 1)
    close(ours.kl_divergence(got, other), theirs.kl_divergence(want, theirs_other), 1e-5)
    with pytest.raises(NotImplementedError):
        ours.kl_divergence(got, ours.Normal(LOC, SCALE))
