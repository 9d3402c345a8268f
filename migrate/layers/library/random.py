"""Random draws that take more than a line of jax.random."""

import jax
import jax.numpy as jnp
from jax import lax


def multinomial(key, input, num_samples, replacement=False):
    """Indices drawn with probabilities proportional to the rows of the input; without replacement by Gumbel top-k."""
    logits = jnp.log(input)
    if replacement:
        draws = jax.random.categorical(key, logits, shape=(num_samples, *input.shape[:-1]))
        return jnp.moveaxis(draws, 0, -1)
    return lax.top_k(logits + jax.random.gumbel(key, input.shape), num_samples)[1]


def normal(key, mean, std=1.0):
    """Normal numbers, one for each mean and standard deviation; both broadcast."""
    return mean + std * jax.random.normal(key, jnp.broadcast_shapes(jnp.shape(mean), jnp.shape(std)))


def gumbel_softmax(logits, key, tau=1.0, hard=False, dim=-1):
    """A sample of the Gumbel-softmax distribution; `hard` gives one-hot values with the gradient of the soft ones."""
    soft = jax.nn.softmax((logits + jax.random.gumbel(key, logits.shape, logits.dtype)) / tau, dim)
    if not hard:
        return soft
    one_hot = jax.nn.one_hot(jnp.argmax(soft, dim), logits.shape[dim], dtype=soft.dtype, axis=dim)
    return lax.stop_gradient(one_hot - soft) + soft
