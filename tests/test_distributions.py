"""torch.distributions through the converter: policies, reparametrised draws, divergences."""

from __future__ import annotations

import sys
from pathlib import Path

import jax
import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))
from converted import convert, under_jax, under_torch

PROGRAM = """\
import torch
from torch.distributions import Categorical, Normal
from torch.distributions.kl import kl_divergence


def choose(logits: torch.Tensor):
    policy = Categorical(logits=logits)
    action = policy.sample()
    return action, policy.log_prob(action), policy.entropy(), policy.probs


def latent(mu: torch.Tensor, logvar: torch.Tensor):
    posterior = Normal(mu, torch.exp(0.5 * logvar))
    z = posterior.rsample()
    kl = kl_divergence(posterior, Normal(torch.zeros_like(mu), 1.0)).sum(dim=-1)
    return z, kl, posterior.log_prob(mu + 1), posterior.mean.unsqueeze(0)
"""


def test_policies_and_latents(tmp_path: Path) -> None:
    converted = convert(PROGRAM)
    assert not converted.left, converted.left
    assert converted.codes("warning") == ["JM121", "JM121"]
    theirs, ours = under_torch(PROGRAM), under_jax(converted, tmp_path)
    logits, mu = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    action, log_prob, entropy, probs = ours.choose(logits, key=jax.random.key(0))
    policy = torch.distributions.Categorical(logits=torch.from_numpy(logits))
    np.testing.assert_allclose(log_prob, policy.log_prob(torch.from_numpy(np.array(action))).numpy(), rtol=1e-5)
    np.testing.assert_allclose(entropy, policy.entropy().numpy(), rtol=1e-5)
    np.testing.assert_allclose(probs, policy.probs.numpy(), rtol=1e-5)
    want = theirs.latent(torch.from_numpy(mu), torch.from_numpy(logits))
    got = ours.latent(mu, logits, key=jax.random.key(1))
    assert got[0].shape == want[0].shape
    for a, b in zip(got[1:], want[1:], strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


def test_what_the_library_lacks_is_left() -> None:
    converted = convert(
        "import torch\n\n\ndef f(d: torch.distributions.Distribution):\n    return d.cdf(torch.ones(2))\n"
    )
    assert converted.left
