"""Losses as modules."""

import jax.numpy as jnp
from flax import nnx

from .base import Buffer
from .linear import _array
from .loss import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cosine_embedding_loss,
    cosine_similarity,
    cross_entropy,
    ctc_loss,
    gaussian_nll_loss,
    hinge_embedding_loss,
    huber_loss,
    kl_div,
    l1_loss,
    margin_ranking_loss,
    mse_loss,
    multi_margin_loss,
    multilabel_margin_loss,
    multilabel_soft_margin_loss,
    nll_loss,
    pairwise_distance,
    poisson_nll_loss,
    smooth_l1_loss,
    soft_margin_loss,
    triplet_margin_loss,
    triplet_margin_with_distance_loss,
)


class L1Loss(nnx.Module):
    """|input - target|."""

    def __init__(self, reduction="mean", *, rngs: nnx.Rngs | None = None):
        self.reduction = reduction

    def __call__(self, input, target):
        return l1_loss(input, target, reduction=self.reduction)


class MSELoss(nnx.Module):
    """(input - target) ** 2."""

    def __init__(self, reduction="mean", *, rngs: nnx.Rngs | None = None):
        self.reduction = reduction

    def __call__(self, input, target):
        return mse_loss(input, target, reduction=self.reduction)


class SmoothL1Loss(nnx.Module):
    """Squared below beta (and divided by it), linear above."""

    def __init__(self, reduction="mean", beta=1.0, *, rngs: nnx.Rngs | None = None):
        self.reduction = reduction
        self.beta = beta

    def __call__(self, input, target):
        return smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class HuberLoss(nnx.Module):
    """Squared below delta, linear above."""

    def __init__(self, reduction="mean", delta=1.0, *, rngs: nnx.Rngs | None = None):
        self.reduction = reduction
        self.delta = delta

    def __call__(self, input, target):
        return huber_loss(input, target, reduction=self.reduction, delta=self.delta)


class NLLLoss(nnx.Module):
    """Minus the log-probability of the target class."""

    def __init__(self, weight=None, ignore_index=-100, reduction="mean", *, rngs: nnx.Rngs | None = None):
        self.weight = None if weight is None else Buffer(jnp.asarray(weight))
        self.ignore_index = ignore_index
        self.reduction = reduction

    def __call__(self, input, target):
        return nll_loss(
            input, target, weight=_array(self.weight), ignore_index=self.ignore_index, reduction=self.reduction
        )


class CrossEntropyLoss(nnx.Module):
    """Cross entropy of logits; the target holds class indices or probabilities."""

    def __init__(
        self, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0, *, rngs: nnx.Rngs | None = None
    ):
        self.weight = None if weight is None else Buffer(jnp.asarray(weight))
        self.ignore_index = ignore_index
        self.reduction = reduction
        self.label_smoothing = label_smoothing

    def __call__(self, input, target):
        return cross_entropy(
            input,
            target,
            weight=_array(self.weight),
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


class BCELoss(nnx.Module):
    """Cross entropy of probabilities."""

    def __init__(self, weight=None, reduction="mean", *, rngs: nnx.Rngs | None = None):
        self.weight = None if weight is None else Buffer(jnp.asarray(weight))
        self.reduction = reduction

    def __call__(self, input, target):
        return binary_cross_entropy(input, target, weight=_array(self.weight), reduction=self.reduction)


class BCEWithLogitsLoss(nnx.Module):
    """Cross entropy of the sigmoid of the input."""

    def __init__(self, weight=None, reduction="mean", pos_weight=None, *, rngs: nnx.Rngs | None = None):
        self.weight = None if weight is None else Buffer(jnp.asarray(weight))
        self.reduction = reduction
        self.pos_weight = None if pos_weight is None else Buffer(jnp.asarray(pos_weight))

    def __call__(self, input, target):
        return binary_cross_entropy_with_logits(
            input, target, weight=_array(self.weight), reduction=self.reduction, pos_weight=_array(self.pos_weight)
        )


class KLDivLoss(nnx.Module):
    """Kullback-Leibler divergence of the target from the input, which holds log-probabilities."""

    def __init__(self, reduction="mean", log_target=False, *, rngs: nnx.Rngs | None = None):
        self.reduction = reduction
        self.log_target = log_target

    def __call__(self, input, target):
        return kl_div(input, target, reduction=self.reduction, log_target=self.log_target)


class PoissonNLLLoss(nnx.Module):
    """Negative log-likelihood of a Poisson distribution."""

    def __init__(self, log_input=True, full=False, eps=1e-8, reduction="mean", *, rngs: nnx.Rngs | None = None):
        self.log_input = log_input
        self.full = full
        self.eps = eps
        self.reduction = reduction

    def __call__(self, input, target):
        return poisson_nll_loss(
            input, target, log_input=self.log_input, full=self.full, eps=self.eps, reduction=self.reduction
        )


class GaussianNLLLoss(nnx.Module):
    """Negative log-likelihood of a Gaussian."""

    def __init__(self, *, full=False, eps=1e-6, reduction="mean", rngs: nnx.Rngs | None = None):
        self.full = full
        self.eps = eps
        self.reduction = reduction

    def __call__(self, input, target, var):
        return gaussian_nll_loss(input, target, var, full=self.full, eps=self.eps, reduction=self.reduction)


class SoftMarginLoss(nnx.Module):
    """log(1 + exp(-target * input)), with targets 1 and -1."""

    def __init__(self, reduction="mean", *, rngs: nnx.Rngs | None = None):
        self.reduction = reduction

    def __call__(self, input, target):
        return soft_margin_loss(input, target, reduction=self.reduction)


class HingeEmbeddingLoss(nnx.Module):
    """The input where the target is 1, max(0, margin - input) where it is -1."""

    def __init__(self, margin=1.0, reduction="mean", *, rngs: nnx.Rngs | None = None):
        self.margin = margin
        self.reduction = reduction

    def __call__(self, input, target):
        return hinge_embedding_loss(input, target, margin=self.margin, reduction=self.reduction)


class MarginRankingLoss(nnx.Module):
    """max(0, -target * (input1 - input2) + margin)."""

    def __init__(self, margin=0.0, reduction="mean", *, rngs: nnx.Rngs | None = None):
        self.margin = margin
        self.reduction = reduction

    def __call__(self, input1, input2, target):
        return margin_ranking_loss(input1, input2, target, margin=self.margin, reduction=self.reduction)


class MultiMarginLoss(nnx.Module):
    """Hinge between the target class and each other class."""

    def __init__(self, p=1, margin=1.0, weight=None, reduction="mean", *, rngs: nnx.Rngs | None = None):
        self.p = p
        self.margin = margin
        self.weight = None if weight is None else Buffer(jnp.asarray(weight))
        self.reduction = reduction

    def __call__(self, input, target):
        return multi_margin_loss(
            input, target, p=self.p, margin=self.margin, weight=_array(self.weight), reduction=self.reduction
        )


class MultiLabelMarginLoss(nnx.Module):
    """Hinge between each target class and each other class."""

    def __init__(self, reduction="mean", *, rngs: nnx.Rngs | None = None):
        self.reduction = reduction

    def __call__(self, input, target):
        return multilabel_margin_loss(input, target, reduction=self.reduction)


class MultiLabelSoftMarginLoss(nnx.Module):
    """Mean binary cross entropy of the sigmoid of the input."""

    def __init__(self, weight=None, reduction="mean", *, rngs: nnx.Rngs | None = None):
        self.weight = None if weight is None else Buffer(jnp.asarray(weight))
        self.reduction = reduction

    def __call__(self, input, target):
        return multilabel_soft_margin_loss(input, target, weight=_array(self.weight), reduction=self.reduction)


class CosineEmbeddingLoss(nnx.Module):
    """1 - cosine where the target is 1, max(0, cosine - margin) where it is -1."""

    def __init__(self, margin=0.0, reduction="mean", *, rngs: nnx.Rngs | None = None):
        self.margin = margin
        self.reduction = reduction

    def __call__(self, input1, input2, target):
        return cosine_embedding_loss(input1, input2, target, margin=self.margin, reduction=self.reduction)


class TripletMarginLoss(nnx.Module):
    """max(0, d(anchor, positive) - d(anchor, negative) + margin)."""

    def __init__(self, margin=1.0, p=2.0, eps=1e-6, swap=False, reduction="mean", *, rngs: nnx.Rngs | None = None):
        self.margin = margin
        self.p = p
        self.eps = eps
        self.swap = swap
        self.reduction = reduction

    def __call__(self, anchor, positive, negative):
        return triplet_margin_loss(
            anchor,
            positive,
            negative,
            margin=self.margin,
            p=self.p,
            eps=self.eps,
            swap=self.swap,
            reduction=self.reduction,
        )


class TripletMarginWithDistanceLoss(nnx.Module):
    """TripletMarginLoss with a distance of one's own."""

    def __init__(
        self, *, distance_function=None, margin=1.0, swap=False, reduction="mean", rngs: nnx.Rngs | None = None
    ):
        self.distance_function = distance_function
        self.margin = margin
        self.swap = swap
        self.reduction = reduction

    def __call__(self, anchor, positive, negative):
        return triplet_margin_with_distance_loss(
            anchor,
            positive,
            negative,
            distance_function=self.distance_function,
            margin=self.margin,
            swap=self.swap,
            reduction=self.reduction,
        )


class CTCLoss(nnx.Module):
    """Connectionist temporal classification."""

    def __init__(self, blank=0, reduction="mean", zero_infinity=False, *, rngs: nnx.Rngs | None = None):
        self.blank = blank
        self.reduction = reduction
        self.zero_infinity = zero_infinity

    def __call__(self, log_probs, targets, input_lengths, target_lengths):
        return ctc_loss(
            log_probs,
            targets,
            input_lengths,
            target_lengths,
            blank=self.blank,
            reduction=self.reduction,
            zero_infinity=self.zero_infinity,
        )


class CosineSimilarity(nnx.Module):
    """x1 · x2 / (|x1| |x2|) over a dimension."""

    def __init__(self, dim=1, eps=1e-8, *, rngs: nnx.Rngs | None = None):
        self.dim = dim
        self.eps = eps

    def __call__(self, x1, x2):
        return cosine_similarity(x1, x2, dim=self.dim, eps=self.eps)


class PairwiseDistance(nnx.Module):
    """p-norm of x1 - x2 + eps over the last dimension."""

    def __init__(self, p=2.0, eps=1e-6, keepdim=False, *, rngs: nnx.Rngs | None = None):
        self.p = p
        self.eps = eps
        self.keepdim = keepdim

    def __call__(self, x1, x2):
        return pairwise_distance(x1, x2, p=self.p, eps=self.eps, keepdim=self.keepdim)
