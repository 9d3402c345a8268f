"""Probability distributions with torch's names and formulas; a draw takes a PRNG key. Values are not checked."""

import math
import numbers

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import betaln, gammaln, xlog1py, xlogy

from .special import digamma


def _floats(*values):
    """Arrays of one shape; numbers become floats."""
    return jnp.broadcast_arrays(*(jnp.asarray(v, float) if isinstance(v, numbers.Number) else v for v in values))


def _inside(probs):
    """Probabilities kept away from 0 and 1 by the distance of two floats, so that their logarithms are finite."""
    eps = jnp.finfo(probs.dtype).eps
    return jnp.clip(probs, eps, 1 - eps)


class Distribution:
    """Base class: `sample(key)` draws, `rsample(key)` with a gradient; `log_prob(value)` is the log of the density."""

    batch_shape, event_shape = (), ()

    def rsample(self, key, sample_shape=()):
        raise NotImplementedError(f"{type(self).__name__} has no draw with a gradient")

    def sample(self, key, sample_shape=()):
        return lax.stop_gradient(self.rsample(key, sample_shape))

    def shape(self, sample_shape):
        return (*sample_shape, *self.batch_shape, *self.event_shape)

    @property
    def stddev(self):
        return jnp.sqrt(self.variance)

    def perplexity(self):
        return jnp.exp(self.entropy())


class Normal(Distribution):
    """The normal distribution with mean `loc` and standard deviation `scale`."""

    def __init__(self, loc, scale):
        self.loc, self.scale = _floats(loc, scale)
        self.batch_shape = self.loc.shape

    @property
    def mean(self):
        return self.loc

    @property
    def variance(self):
        return self.scale**2

    def rsample(self, key, sample_shape=()):
        return self.loc + self.scale * jax.random.normal(key, self.shape(sample_shape), self.loc.dtype)

    def log_prob(self, value):
        return -((value - self.loc) ** 2) / (2 * self.scale**2) - jnp.log(self.scale) - math.log(math.sqrt(2 * math.pi))

    def cdf(self, value):
        return 0.5 * (1 + lax.erf((value - self.loc) / (self.scale * math.sqrt(2))))

    def entropy(self):
        return 0.5 + 0.5 * math.log(2 * math.pi) + jnp.log(self.scale)


class Uniform(Distribution):
    """The uniform distribution over [low, high)."""

    def __init__(self, low, high):
        self.low, self.high = _floats(low, high)
        self.batch_shape = self.low.shape

    @property
    def mean(self):
        return (self.high + self.low) / 2

    @property
    def variance(self):
        return (self.high - self.low) ** 2 / 12

    def rsample(self, key, sample_shape=()):
        return self.low + jax.random.uniform(key, self.shape(sample_shape), self.low.dtype) * (self.high - self.low)

    def log_prob(self, value):
        inside = (self.low <= value) & (self.high > value)
        return jnp.log(inside.astype(self.low.dtype)) - jnp.log(self.high - self.low)

    def entropy(self):
        return jnp.log(self.high - self.low)


class Exponential(Distribution):
    """The exponential distribution with the given rate."""

    def __init__(self, rate):
        (self.rate,) = _floats(rate)
        self.batch_shape = self.rate.shape

    @property
    def mean(self):
        return 1 / self.rate

    @property
    def variance(self):
        return self.rate**-2

    def rsample(self, key, sample_shape=()):
        return jax.random.exponential(key, self.shape(sample_shape), self.rate.dtype) / self.rate

    def log_prob(self, value):
        return jnp.log(self.rate) - self.rate * value

    def entropy(self):
        return 1 - jnp.log(self.rate)


class Laplace(Distribution):
    """The Laplace distribution around `loc`."""

    def __init__(self, loc, scale):
        self.loc, self.scale = _floats(loc, scale)
        self.batch_shape = self.loc.shape

    @property
    def mean(self):
        return self.loc

    @property
    def variance(self):
        return 2 * self.scale**2

    def rsample(self, key, sample_shape=()):
        return self.loc + self.scale * jax.random.laplace(key, self.shape(sample_shape), self.loc.dtype)

    def log_prob(self, value):
        return -jnp.log(2 * self.scale) - jnp.abs(value - self.loc) / self.scale

    def entropy(self):
        return 1 + jnp.log(2 * self.scale)


class Gamma(Distribution):
    """The gamma distribution with shape `concentration` and the given rate."""

    def __init__(self, concentration, rate):
        self.concentration, self.rate = _floats(concentration, rate)
        self.batch_shape = self.rate.shape

    @property
    def mean(self):
        return self.concentration / self.rate

    @property
    def variance(self):
        return self.concentration / self.rate**2

    def rsample(self, key, sample_shape=()):
        return jax.random.gamma(key, self.concentration, self.shape(sample_shape)) / self.rate

    def log_prob(self, value):
        a, rate = self.concentration, self.rate
        return xlogy(a, rate) + xlogy(a - 1, value) - rate * value - gammaln(a)

    def entropy(self):
        a = self.concentration
        return a - jnp.log(self.rate) + gammaln(a) + (1 - a) * digamma(a)


class Beta(Distribution):
    """The beta distribution."""

    def __init__(self, concentration1, concentration0):
        self.concentration1, self.concentration0 = _floats(concentration1, concentration0)
        self.batch_shape = self.concentration1.shape

    @property
    def mean(self):
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def variance(self):
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total**2 * (total + 1))

    def rsample(self, key, sample_shape=()):
        return jax.random.beta(key, self.concentration1, self.concentration0, self.shape(sample_shape))

    def log_prob(self, value):
        a, b = self.concentration1, self.concentration0
        return xlogy(a - 1, value) + xlog1py(b - 1, -value) - betaln(a, b)

    def entropy(self):
        a, b = self.concentration1, self.concentration0
        return betaln(a, b) - (a - 1) * digamma(a) - (b - 1) * digamma(b) + (a + b - 2) * digamma(a + b)


class Dirichlet(Distribution):
    """The Dirichlet distribution; the last axis of `concentration` is its event."""

    def __init__(self, concentration):
        self.concentration = concentration
        self.batch_shape, self.event_shape = concentration.shape[:-1], concentration.shape[-1:]

    @property
    def mean(self):
        return self.concentration / jnp.sum(self.concentration, axis=-1, keepdims=True)

    def rsample(self, key, sample_shape=()):
        return jax.random.dirichlet(key, self.concentration, (*sample_shape, *self.batch_shape))

    def log_prob(self, value):
        a = self.concentration
        return jnp.sum(xlogy(a - 1, value), axis=-1) + gammaln(jnp.sum(a, axis=-1)) - jnp.sum(gammaln(a), axis=-1)


class Bernoulli(Distribution):
    """1 with a probability given by itself or by its logit, else 0."""

    def __init__(self, probs=None, logits=None):
        if (probs is None) == (logits is None):
            raise ValueError("either probs or logits is needed, not both")
        if logits is None:
            (self.probs,) = _floats(probs)
            inside = _inside(self.probs)
            self.logits = jnp.log(inside) - jnp.log1p(-inside)
        else:
            (self.logits,) = _floats(logits)
            self.probs = jax.nn.sigmoid(self.logits)
        self.batch_shape = self.logits.shape

    @property
    def mean(self):
        return self.probs

    @property
    def variance(self):
        return self.probs * (1 - self.probs)

    def sample(self, key, sample_shape=()):
        return jax.random.bernoulli(key, self.probs, self.shape(sample_shape)).astype(self.probs.dtype)

    def log_prob(self, value):
        return value * jax.nn.log_sigmoid(self.logits) + (1 - value) * jax.nn.log_sigmoid(-self.logits)

    def entropy(self):
        return -self.log_prob(self.probs)


class Categorical(Distribution):
    """An index along the last axis of `probs` or of `logits`, neither of which needs to be normalised."""

    def __init__(self, probs=None, logits=None):
        if (probs is None) == (logits is None):
            raise ValueError("either probs or logits is needed, not both")
        if logits is None:
            self.probs = probs / jnp.sum(probs, axis=-1, keepdims=True)
            self.logits = jnp.log(_inside(self.probs))
        else:
            self.logits = logits - jax.nn.logsumexp(logits, axis=-1, keepdims=True)
            self.probs = jax.nn.softmax(self.logits, axis=-1)
        self.batch_shape = self.logits.shape[:-1]

    def sample(self, key, sample_shape=()):
        return jax.random.categorical(key, self.logits, shape=self.shape(sample_shape))

    def log_prob(self, value):
        value, logits = jnp.broadcast_arrays(jnp.asarray(value)[..., None].astype(int), self.logits)
        return jnp.take_along_axis(logits, value[..., :1], axis=-1)[..., 0]

    def entropy(self):
        return -jnp.sum(jnp.maximum(self.logits, jnp.finfo(self.logits.dtype).min) * self.probs, axis=-1)


class OneHotCategorical(Categorical):
    """A categorical draw as a vector with a single 1."""

    def __init__(self, probs=None, logits=None):
        super().__init__(probs, logits)
        self.event_shape = self.logits.shape[-1:]

    @property
    def mean(self):
        return self.probs

    @property
    def variance(self):
        return self.probs * (1 - self.probs)

    def sample(self, key, sample_shape=()):
        index = jax.random.categorical(key, self.logits, shape=(*sample_shape, *self.batch_shape))
        return jax.nn.one_hot(index, self.event_shape[0], dtype=self.probs.dtype)

    def log_prob(self, value):
        return super().log_prob(jnp.argmax(value, axis=-1))


class MultivariateNormal(Distribution):
    """The normal distribution over the last axis of `loc`, with a covariance or its lower Cholesky factor."""

    def __init__(self, loc, covariance_matrix=None, *, scale_tril=None):
        self.scale_tril = jnp.linalg.cholesky(covariance_matrix) if scale_tril is None else scale_tril
        self.event_shape = loc.shape[-1:]
        self.batch_shape = jnp.broadcast_shapes(loc.shape[:-1], self.scale_tril.shape[:-2])
        self.loc = jnp.broadcast_to(loc, self.shape(()))

    @property
    def mean(self):
        return self.loc

    @property
    def covariance_matrix(self):
        return self.scale_tril @ jnp.swapaxes(self.scale_tril, -1, -2)

    @property
    def variance(self):
        return jnp.broadcast_to(jnp.sum(self.scale_tril**2, axis=-1), self.shape(()))

    def rsample(self, key, sample_shape=()):
        noise = jax.random.normal(key, self.shape(sample_shape), self.loc.dtype)
        return self.loc + jnp.squeeze(self.scale_tril @ noise[..., None], -1)

    def half_log_det(self):
        return jnp.sum(jnp.log(jnp.diagonal(self.scale_tril, axis1=-2, axis2=-1)), axis=-1)

    def log_prob(self, value):
        gap = value - self.loc
        factor = jnp.broadcast_to(self.scale_tril, (*gap.shape, gap.shape[-1]))
        white = jax.scipy.linalg.solve_triangular(factor, gap[..., None], lower=True)[..., 0]
        constant = gap.shape[-1] * math.log(2 * math.pi)
        return -0.5 * (constant + jnp.sum(white**2, axis=-1)) - self.half_log_det()

    def entropy(self):
        entropy = 0.5 * self.event_shape[0] * (1 + math.log(2 * math.pi)) + self.half_log_det()
        return jnp.broadcast_to(entropy, self.batch_shape)


class Independent(Distribution):
    """A distribution whose last `reinterpreted_batch_ndims` batch axes are one event."""

    def __init__(self, base_distribution, reinterpreted_batch_ndims):
        self.base_dist, self.count = base_distribution, reinterpreted_batch_ndims
        batch = base_distribution.batch_shape
        self.batch_shape = batch[: len(batch) - self.count]
        self.event_shape = (*batch[len(batch) - self.count :], *base_distribution.event_shape)

    @property
    def mean(self):
        return self.base_dist.mean

    @property
    def variance(self):
        return self.base_dist.variance

    def rsample(self, key, sample_shape=()):
        return self.base_dist.rsample(key, sample_shape)

    def sample(self, key, sample_shape=()):
        return self.base_dist.sample(key, sample_shape)

    def log_prob(self, value):
        return jnp.sum(self.base_dist.log_prob(value), axis=tuple(range(-self.count, 0)))

    def entropy(self):
        return jnp.sum(self.base_dist.entropy(), axis=tuple(range(-self.count, 0)))


def kl_divergence(p, q):
    """The divergence of q from p, for two distributions of one class."""
    if isinstance(p, Normal) and isinstance(q, Normal):
        ratio = (p.scale / q.scale) ** 2
        return 0.5 * (ratio + ((p.loc - q.loc) / q.scale) ** 2 - 1 - jnp.log(ratio))
    if isinstance(p, Categorical) and isinstance(q, Categorical):
        terms = jnp.where(q.probs == 0, jnp.inf, p.probs * (p.logits - q.logits))
        return jnp.sum(jnp.where(p.probs == 0, 0, terms), axis=-1)
    if isinstance(p, Bernoulli) and isinstance(q, Bernoulli):
        ones = p.probs * (jax.nn.softplus(-q.logits) - jax.nn.softplus(-p.logits))
        zeros = (1 - p.probs) * (jax.nn.softplus(q.logits) - jax.nn.softplus(p.logits))
        ones = jnp.where(p.probs == 0, 0, jnp.where(q.probs == 0, jnp.inf, ones))
        return ones + jnp.where(p.probs == 1, 0, jnp.where(q.probs == 1, jnp.inf, zeros))
    if isinstance(p, Independent) and isinstance(q, Independent) and p.count == q.count:
        return jnp.sum(kl_divergence(p.base_dist, q.base_dist), axis=tuple(range(-p.count, 0)))
    raise NotImplementedError(f"no formula for {type(p).__name__} and {type(q).__name__}")
