"""Multi-head attention."""

import math

import jax
import jax.numpy as jnp
from flax import nnx

from .dropout import dropout
from .linear import Linear, _array, _uniform


def _additive(mask, dtype):
    """A mask to add to the scores; a boolean one is True where a position is blocked."""
    return jnp.where(mask, -jnp.inf, 0).astype(dtype) if mask.dtype == bool else mask


def _with_rows(rows, bias, add_zero):
    """Keys or values (N, S, E) with the learnt row and the row of zeros that were asked for."""
    shape = rows.shape[0], 1, rows.shape[-1]
    if bias is not None:
        rows = jnp.concatenate([rows, jnp.broadcast_to(bias, shape)], 1)
    return jnp.concatenate([rows, jnp.zeros(shape, rows.dtype)], 1) if add_zero else rows


def _joined(heads, shape):
    """(N * heads, S, E / heads) as (N, S, E), for queries of the shape (N, L, E)."""
    return heads.reshape(shape[0], -1, *heads.shape[1:]).swapaxes(1, 2).reshape(shape[0], -1, shape[-1])


def _weights(q, k, v, num_heads, key_padding_mask, attn_mask, need_weights):
    """The weights (N, heads, L, S) of the values, and these by head. No mask blocks what _with_rows added."""
    q, k, v = (x.reshape(*x.shape[:2], num_heads, -1).swapaxes(1, 2) for x in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    if attn_mask is not None:
        mask = _additive(attn_mask, q.dtype)
        if mask.ndim == 3:
            mask = mask.reshape(-1, num_heads, *mask.shape[1:])
        scores = scores + jnp.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, k.shape[-2] - mask.shape[-1])])
    if key_padding_mask is not None:
        mask = _additive(key_padding_mask, q.dtype)
        scores = scores + jnp.pad(mask, [(0, 0), (0, k.shape[-2] - mask.shape[-1])])[:, None, None]
    if need_weights or (attn_mask is None and key_padding_mask is None):
        return jax.nn.softmax(scores, -1), v
    blocked = jnp.isneginf(scores).all(-1, keepdims=True)
    return jnp.where(blocked, 0, jax.nn.softmax(jnp.where(blocked, 0, scores), -1)), v


def multi_head_attention_forward(
    query,
    key,
    value,
    embed_dim_to_check,
    num_heads,
    in_proj_weight,
    in_proj_bias,
    bias_k,
    bias_v,
    add_zero_attn,
    dropout_p,
    out_proj_weight,
    out_proj_bias,
    training=True,
    key_padding_mask=None,
    need_weights=True,
    attn_mask=None,
    use_separate_proj_weight=False,
    q_proj_weight=None,
    k_proj_weight=None,
    v_proj_weight=None,
    static_k=None,
    static_v=None,
    average_attn_weights=True,
    is_causal=False,
    *,
    dropout_key=None,
):
    """Attention over (L, N, E) or (L, E) with the given weights. A boolean mask is True where a position is blocked.

    `static_k` and `static_v` (N * heads, S, E / heads) stand for the projections. `dropout_key` is needed in training
    where dropout_p is above 0.
    """
    if is_causal and attn_mask is None:
        raise ValueError("is_causal is only a hint: attn_mask has to be given too")
    batched = query.ndim == 3
    query, key, value = (x.swapaxes(0, 1) if batched else x[None] for x in (query, key, value))
    if key_padding_mask is not None and not batched:
        key_padding_mask = key_padding_mask[None]
    projections = (q_proj_weight, k_proj_weight, v_proj_weight)
    projections = projections if use_separate_proj_weight else jnp.split(in_proj_weight, 3)
    biases = (0, 0, 0) if in_proj_bias is None else jnp.split(in_proj_bias, 3)
    q, k, v = (x @ w.T + b for x, w, b in zip((query, key, value), projections, biases, strict=True))
    k, v = (_joined(static, q.shape) if static is not None else x for static, x in ((static_k, k), (static_v, v)))
    k, v = _with_rows(k, bias_k, add_zero_attn), _with_rows(v, bias_v, add_zero_attn)
    weights, v = _weights(q, k, v, num_heads, key_padding_mask, attn_mask, need_weights)
    if training and dropout_p:
        weights = dropout(weights, dropout_key, dropout_p)
    out = (weights @ v).swapaxes(1, 2).reshape(q.shape) @ out_proj_weight.T
    out = out if out_proj_bias is None else out + out_proj_bias
    weights = weights.mean(1) if average_attn_weights else weights
    out, weights = (out.swapaxes(0, 1), weights) if batched else (out[0], weights[0])
    return out, weights if need_weights else None


class MultiheadAttention(nnx.Module):
    """Attention with projections of queries, keys and values. A boolean mask is True where a position is blocked.

    A row with every position blocked gives 0 if need_weights is False and NaN if it is True, as in torch.
    """

    def __init__(
        self,
        embed_dim,
        num_heads,
        dropout=0.0,
        bias=True,
        add_bias_kv=False,
        add_zero_attn=False,
        kdim=None,
        vdim=None,
        batch_first=False,
        *,
        rngs: nnx.Rngs,
    ):
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.kdim, self.vdim = (embed_dim if d is None else d for d in (kdim, vdim))
        self.dropout, self.batch_first, self.add_zero_attn = dropout, batch_first, add_zero_attn
        self.deterministic, self.rngs = False, rngs.dropout.fork() if dropout else None

        def xavier(rows, columns):
            return nnx.Param(_uniform(rngs, (rows, columns), math.sqrt(6 / (rows + columns))))

        if self.kdim == self.vdim == embed_dim:
            self.in_proj_weight = xavier(3 * embed_dim, embed_dim)
        else:
            self.in_proj_weight = None
            self.q_proj_weight = xavier(embed_dim, embed_dim)
            self.k_proj_weight = xavier(embed_dim, self.kdim)
            self.v_proj_weight = xavier(embed_dim, self.vdim)
        self.in_proj_bias = nnx.Param(jnp.zeros(3 * embed_dim)) if bias else None
        self.bias_k = self._normal_row(rngs) if add_bias_kv else None
        self.bias_v = self._normal_row(rngs) if add_bias_kv else None
        self.out_proj = Linear(embed_dim, embed_dim, bias, rngs=rngs)
        if bias:
            self.out_proj.bias[...] = jnp.zeros(embed_dim)

    def _normal_row(self, rngs):
        row = jax.random.normal(rngs.params(), (1, 1, self.embed_dim))
        return nnx.Param(row / math.sqrt(self.embed_dim))

    def _project(self, query, key, value):
        if self.in_proj_weight is not None:
            weights = jnp.split(self.in_proj_weight[...], 3)
        else:
            weights = self.q_proj_weight[...], self.k_proj_weight[...], self.v_proj_weight[...]
        biases = (0, 0, 0) if self.in_proj_bias is None else jnp.split(self.in_proj_bias[...], 3)
        return [x @ w.T + b for x, w, b in zip((query, key, value), weights, biases, strict=True)]

    def __call__(
        self,
        query,
        key,
        value,
        key_padding_mask=None,
        need_weights=True,
        attn_mask=None,
        average_attn_weights=True,
        is_causal=False,
    ):
        if is_causal and attn_mask is None:
            raise ValueError("is_causal is only a hint: attn_mask has to be given too")
        batched = query.ndim == 3
        if not batched:
            query, key, value = query[None], key[None], value[None]
            key_padding_mask = None if key_padding_mask is None else key_padding_mask[None]
        elif not self.batch_first:
            query, key, value = (x.swapaxes(0, 1) for x in (query, key, value))
        q, k, v = self._project(query, key, value)
        k = _with_rows(k, _array(self.bias_k), self.add_zero_attn)
        v = _with_rows(v, _array(self.bias_v), self.add_zero_attn)
        weights, v = _weights(q, k, v, self.num_heads, key_padding_mask, attn_mask, need_weights)
        if self.dropout and not self.deterministic:
            weights = dropout(weights, self.rngs(), self.dropout)
        out = self.out_proj((weights @ v).swapaxes(1, 2).reshape(q.shape))
        if average_attn_weights:
            weights = weights.mean(1)
        if not batched:
            out, weights = out[0], weights[0]
        elif not self.batch_first:
            out = out.swapaxes(0, 1)
        return out, weights if need_weights else None
