"""Embedding tables."""

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax


def embedding(input, weight, padding_idx=None, scale_grad_by_freq=False):
    """Rows of `weight`; no gradient for row padding_idx; if asked for, that of another is divided by its count."""
    rows = weight[input]
    if scale_grad_by_freq:
        count = jnp.zeros(weight.shape[0], rows.dtype).at[input].add(1)[input][..., None]
        rows = lax.stop_gradient(rows) + (rows - lax.stop_gradient(rows)) / count
    if padding_idx is None:
        return rows
    return jnp.where((input == padding_idx % weight.shape[0])[..., None], lax.stop_gradient(rows), rows)


def embedding_bags(
    input, weight, offsets=None, *, mode="mean", per_sample_weights=None, include_last_offset=False, padding_idx=None
):
    """Sum, mean or maximum of the rows of each bag: a row of a 2-D input, or a stretch that starts at an offset."""
    if input.ndim == 2:
        count = input.shape[0]
        bag = jnp.repeat(jnp.arange(count), input.shape[1])
    else:
        starts = offsets[:-1] if include_last_offset else offsets
        count = starts.shape[0]
        bag = jnp.searchsorted(starts, jnp.arange(input.shape[0]), side="right") - 1
    ids = input.reshape(-1)
    rows = weight[ids]
    keep = jnp.ones(ids.shape, bool) if padding_idx is None else ids != padding_idx % weight.shape[0]
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.reshape(-1, 1)
    if mode == "max":
        most = jax.ops.segment_max(jnp.where(keep[:, None], rows, -jnp.inf), bag, count)
        return jnp.where(jnp.isfinite(most), most, 0.0)  # an empty bag gives zeros
    total = jax.ops.segment_sum(jnp.where(keep[:, None], rows, 0.0), bag, count)
    if mode == "sum":
        return total
    return total / jnp.maximum(jax.ops.segment_sum(keep.astype(total.dtype), bag, count), 1)[:, None]


class _Table(nnx.Module):
    """The weight (num_embeddings, embedding_dim) of Embedding and EmbeddingBag."""

    def _build(self, num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, rngs):
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = None if padding_idx is None else padding_idx % num_embeddings
        self.max_norm, self.norm_type = max_norm, norm_type
        weight = jax.random.normal(rngs.params(), (num_embeddings, embedding_dim))
        self.weight = nnx.Param(weight if padding_idx is None else weight.at[self.padding_idx].set(0.0))

    def _renormalize(self, ids):
        """Scale the rows in use down to max_norm, in the weight itself and outside of the gradient, as torch does."""
        weight = lax.stop_gradient(self.weight[...])
        used = jnp.zeros(self.num_embeddings, bool).at[ids.reshape(-1)].set(True)[:, None]
        norm = jnp.linalg.norm(weight, self.norm_type, axis=1, keepdims=True)
        scaled = jnp.where(used & (norm > self.max_norm), weight * (self.max_norm / (norm + 1e-7)), weight)
        self.weight[...] = self.weight[...] + (scaled - weight)


class Embedding(_Table):
    """Rows of a table; the row padding_idx starts as zero and gets no gradient."""

    def __init__(
        self,
        num_embeddings,
        embedding_dim,
        padding_idx=None,
        max_norm=None,
        norm_type=2.0,
        scale_grad_by_freq=False,
        *,
        rngs: nnx.Rngs,
    ):
        self._build(num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, rngs)
        self.scale_grad_by_freq = scale_grad_by_freq

    def __call__(self, input):
        if self.max_norm is not None:
            self._renormalize(input)
        return embedding(input, self.weight[...], self.padding_idx, self.scale_grad_by_freq)


class EmbeddingBag(_Table):
    """Sum, mean or maximum of the rows of each bag.

    A bag is a row of a 2-D input, or a stretch of a 1-D input that starts at an element of `offsets`.
    """

    def __init__(
        self,
        num_embeddings,
        embedding_dim,
        max_norm=None,
        norm_type=2.0,
        mode="mean",
        include_last_offset=False,
        padding_idx=None,
        *,
        rngs: nnx.Rngs,
    ):
        self._build(num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, rngs)
        self.mode, self.include_last_offset = mode, include_last_offset

    def __call__(self, input, offsets=None, per_sample_weights=None):
        if self.max_norm is not None:
            self._renormalize(input)
        return embedding_bags(
            input,
            self.weight[...],
            offsets,
            mode=self.mode,
            per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset,
            padding_idx=self.padding_idx,
        )
