"""Losses as functions."""

import math

import jax
import jax.numpy as jnp
import optax
from jax import lax

from .tensor import norm


def _reduce(loss, reduction):
    if reduction == "none":
        return loss
    if reduction == "sum":
        return loss.sum()
    if reduction == "mean":
        return loss.mean()
    raise ValueError(f"{reduction!r} is not a valid value for reduction")


def _distance(input, target):
    """|input - target|, with gradient 0 where they are equal."""
    difference = input - target
    return difference * lax.stop_gradient(jnp.sign(difference))


def _weighted(loss, weight, reduction):
    """Reduce weighted elements; their mean is divided by the sum of the weights."""
    if weight is None:
        return _reduce(loss, reduction)
    total = _reduce(loss * weight, "none" if reduction == "none" else "sum")
    return total / jnp.broadcast_to(weight, loss.shape).sum() if reduction == "mean" else total


def l1_loss(input, target, reduction="mean", weight=None):
    """|input - target|."""
    return _weighted(_distance(input, target), weight, reduction)


def mse_loss(input, target, reduction="mean", weight=None):
    """(input - target) ** 2."""
    return _weighted(jnp.square(input - target), weight, reduction)


def smooth_l1_loss(input, target, reduction="mean", beta=1.0):
    """Squared below beta (and divided by it), linear above."""
    if beta == 0:
        return l1_loss(input, target, reduction)
    d = _distance(input, target)
    return _reduce(jnp.where(d < beta, 0.5 * d**2 / beta, d - 0.5 * beta), reduction)


def huber_loss(input, target, reduction="mean", delta=1.0, weight=None):
    """Squared below delta, linear above; a weight multiplies the loss, and its mean is not divided by the weights."""
    d = _distance(input, target)
    loss = jnp.where(d <= delta, 0.5 * d**2, delta * (d - 0.5 * delta))
    return _reduce(loss if weight is None else loss * weight, reduction)


def _pick(scores, target, weight, ignore_index, axis):
    """The score of each target's class, and the weight of each target, which is 0 where it is ignore_index."""
    keep = target != ignore_index
    target = jnp.where(keep, target, 0)
    picked = jnp.take_along_axis(scores, jnp.expand_dims(target, axis), axis).squeeze(axis)
    weights = jnp.where(keep, 1 if weight is None else weight[target], 0).astype(scores.dtype)
    return jnp.where(keep, picked, 0), weights


def nll_loss(input, target, weight=None, ignore_index=-100, reduction="mean"):
    """Minus the log-probability of the target class: input (C,), (N, C) or (N, C, d1, ...), target class indices."""
    picked, weights = _pick(input, target, weight, ignore_index, min(input.ndim - 1, 1))
    loss = -picked * weights
    return loss.sum() / weights.sum() if reduction == "mean" else _reduce(loss, reduction)


def cross_entropy(input, target, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0):
    """Cross entropy of logits (C,), (N, C) or (N, C, d1, ...); target holds class indices or probabilities."""
    axis = min(input.ndim - 1, 1)
    log_probs = jax.nn.log_softmax(input, axis)
    classes = input.shape[axis]
    by_class = log_probs
    if weight is not None:
        by_class = log_probs * weight.reshape((-1,) + (1,) * (input.ndim - 1 - axis))
    if jnp.issubdtype(target.dtype, jnp.floating):
        target = target * (1 - label_smoothing) + label_smoothing / classes
        loss = -(target * by_class).sum(axis)
        return _reduce(loss, reduction)
    picked, weights = _pick(log_probs, target, weight, ignore_index, axis)
    loss = -picked * weights
    if label_smoothing:
        smooth = jnp.where(target == ignore_index, 0, -by_class.sum(axis))
        loss = (1 - label_smoothing) * loss + label_smoothing / classes * smooth
    return loss.sum() / weights.sum() if reduction == "mean" else _reduce(loss, reduction)


def binary_cross_entropy(input, target, weight=None, reduction="mean"):
    """Cross entropy of probabilities; logarithms are kept above -100."""
    log_p, log_q = (jnp.maximum(jnp.log(p), -100) for p in (input, 1 - input))
    loss = -(target * log_p + (1 - target) * log_q)
    return _reduce(loss if weight is None else loss * weight, reduction)


def binary_cross_entropy_with_logits(input, target, weight=None, reduction="mean", pos_weight=None):
    """Cross entropy of the sigmoid of the input; pos_weight multiplies the positive part."""
    positive = target if pos_weight is None else pos_weight * target
    loss = -(positive * jax.nn.log_sigmoid(input) + (1 - target) * jax.nn.log_sigmoid(-input))
    return _reduce(loss if weight is None else loss * weight, reduction)


def kl_div(input, target, reduction="mean", log_target=False):
    """Kullback-Leibler divergence of target from input; input, and target if log_target, are log-probabilities."""
    if log_target:
        loss = jnp.exp(target) * (target - input)
    else:
        loss = jax.scipy.special.xlogy(target, target) - target * input
    if reduction == "batchmean":
        return loss.sum() / (input.shape[0] if input.ndim else 1)
    return _reduce(loss, reduction)


def poisson_nll_loss(input, target, log_input=True, full=False, eps=1e-8, reduction="mean"):
    """Negative log-likelihood of a Poisson distribution; `full` adds Stirling's approximation of log(target!)."""
    loss = jnp.exp(input) - target * input if log_input else input - target * jnp.log(input + eps)
    if full:
        stirling = target * jnp.log(target) - target + 0.5 * jnp.log(2 * math.pi * target)
        loss = loss + jnp.where(target > 1, stirling, 0)
    return _reduce(loss, reduction)


def gaussian_nll_loss(input, target, var, full=False, eps=1e-6, reduction="mean"):
    """Negative log-likelihood of a Gaussian; var is kept above eps outside of the gradient."""
    var = (
        jnp.broadcast_to(jnp.asarray(var, input.dtype), jnp.shape(var)) if jnp.ndim(var) else jnp.full_like(input, var)
    )
    if var.ndim == input.ndim - 1:
        var = var[..., None]
    var = var + lax.stop_gradient(jnp.maximum(var, eps) - var)
    loss = 0.5 * (jnp.log(var) + jnp.square(input - target) / var)
    return _reduce(loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)


def soft_margin_loss(input, target, reduction="mean"):
    """log(1 + exp(-target * input)), with targets 1 and -1."""
    return _reduce(jnp.log1p(jnp.exp(-target * input)), reduction)


def hinge_embedding_loss(input, target, margin=1.0, reduction="mean"):
    """The input where the target is 1, max(0, margin - input) where it is -1."""
    loss = jnp.where(target == 1, input, 0) + jnp.where(target == -1, jax.nn.relu(margin - input), 0)
    return _reduce(loss, reduction)


def margin_ranking_loss(input1, input2, target, margin=0.0, reduction="mean"):
    """max(0, -target * (input1 - input2) + margin), with targets 1 and -1."""
    return _reduce(jnp.maximum(-target * (input1 - input2) + margin, 0), reduction)


def multi_margin_loss(input, target, p=1, margin=1.0, weight=None, reduction="mean"):
    """Mean over the other classes of max(0, margin - input[target] + input[other]) ** p."""
    input, index = jnp.atleast_1d(input), target[..., None]
    slack = jax.nn.relu(margin - jnp.take_along_axis(input, index, -1) + input) ** p
    if weight is not None:
        slack = slack * weight[index]
    slack = jnp.where(jnp.arange(input.shape[-1]) == index, 0, slack)
    return _reduce(slack.sum(-1) / input.shape[-1], reduction)


def multilabel_margin_loss(input, target, reduction="mean"):
    """Hinge between each target class and each other class; the targets of a row end at the first -1."""
    input, target = jnp.atleast_1d(input, target)
    valid = jnp.cumsum(target < 0, -1) == 0
    index = jnp.where(valid, target, 0)
    classes = jnp.arange(input.shape[-1])
    is_target = ((index[..., None] == classes) & valid[..., None]).any(-2)
    scores = jnp.take_along_axis(input, index, -1)
    slack = jax.nn.relu(1 - scores[..., :, None] + input[..., None, :])
    slack = jnp.where(valid[..., :, None] & ~is_target[..., None, :], slack, 0)
    return _reduce(slack.sum((-1, -2)) / input.shape[-1], reduction)


def multilabel_soft_margin_loss(input, target, weight=None, reduction="mean"):
    """Mean over the classes of the binary cross entropy of the sigmoid of the input."""
    loss = -(target * jax.nn.log_sigmoid(input) + (1 - target) * jax.nn.log_sigmoid(-input))
    return _reduce((loss if weight is None else loss * weight).mean(-1), reduction)


def pairwise_distance(x1, x2, p=2.0, eps=1e-6, keepdim=False):
    """p-norm of x1 - x2 + eps over the last dimension."""
    return norm(x1 - x2 + eps, p, -1, keepdim)


def cosine_similarity(x1, x2, dim=1, eps=1e-8):
    """x1 · x2 / (|x1| |x2|) over a dimension, with norms of at least eps."""
    x1, x2 = jnp.broadcast_arrays(x1, x2)
    norm1, norm2 = (jnp.maximum(norm(x, 2, dim, True), eps) for x in (x1, x2))
    return ((x1 / norm1) * (x2 / norm2)).sum(dim if x1.ndim else None)


def cosine_embedding_loss(input1, input2, target, margin=0.0, reduction="mean"):
    """1 - cosine where the target is 1, max(0, cosine - margin) where it is -1."""
    dot, square1, square2 = ((a * b).sum(-1) for a, b in ((input1, input2), (input1, input1), (input2, input2)))
    cosine = dot / jnp.sqrt((square1 + 1e-12) * (square2 + 1e-12))
    loss = jnp.where(target == 1, 1 - cosine, 0) + jnp.where(target == -1, jnp.maximum(cosine - margin, 0), 0)
    return _reduce(loss, reduction)


def triplet_margin_loss(anchor, positive, negative, margin=1.0, p=2.0, eps=1e-6, swap=False, reduction="mean"):
    """max(0, d(anchor, positive) - d(anchor, negative) + margin), where d is pairwise_distance."""
    near, far = pairwise_distance(anchor, positive, p, eps), pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = jnp.minimum(far, pairwise_distance(positive, negative, p, eps))
    return _reduce(jnp.maximum(near - far + margin, 0), reduction)


def triplet_margin_with_distance_loss(
    anchor, positive, negative, *, distance_function=None, margin=1.0, swap=False, reduction="mean"
):
    """triplet_margin_loss with a distance of one's own."""
    distance = pairwise_distance if distance_function is None else distance_function
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = jnp.minimum(far, distance(positive, negative))
    return _reduce(jnp.maximum(near - far + margin, 0), reduction)


def ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction="mean", zero_infinity=False):
    """Connectionist temporal classification: log_probs (T, N, C) or (T, C), targets (N, S), (S,) or concatenated."""
    input_lengths, target_lengths = (
        jnp.atleast_1d(jnp.asarray(input_lengths)),
        jnp.atleast_1d(jnp.asarray(target_lengths)),
    )
    batched = log_probs.ndim == 3
    log_probs = log_probs.swapaxes(0, 1) if batched else log_probs[None]
    if targets.ndim == 1:  # one sequence, or all of them one after the other
        starts = jnp.cumsum(target_lengths) - target_lengths
        positions = starts[:, None] + jnp.arange(targets.shape[0])
        targets = targets[jnp.minimum(positions, targets.shape[0] - 1)]
    late = jnp.arange(log_probs.shape[1]) >= input_lengths[:, None]
    surplus = jnp.arange(targets.shape[1]) >= target_lengths[:, None]
    targets = jnp.where(surplus, (blank + 1) % log_probs.shape[-1], targets)
    loss = optax.ctc_loss(
        log_probs, late.astype(log_probs.dtype), targets, surplus.astype(log_probs.dtype), blank_id=blank
    )
    repeats = ((targets[:, 1:] == targets[:, :-1]) & ~surplus[:, 1:]).sum(1)
    impossible = target_lengths + repeats > input_lengths
    loss = jnp.where(impossible, 0.0 if zero_infinity else jnp.inf, loss)
    if reduction == "mean":
        return (loss / jnp.maximum(target_lengths, 1)).mean()
    return loss[0] if reduction == "none" and not batched else _reduce(loss, reduction)
