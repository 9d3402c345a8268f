"""Losses against torch, in each reduction."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from jaxmigrate.layers.library import criterion, loss

REDUCTIONS = ["mean", "sum", "none"]
CLASSES = np.array([0, 4, 2, 2, 1, 3])
IGNORED = np.array([-100, -100, 2, 2, 1, 3])
SIGNS = np.array([1, -1, 1, -1, 1, -1])


@pytest.fixture
def probabilities(normal):
    p = np.exp(normal(6, 5))
    return p / p.sum(1, keepdims=True)


@pytest.fixture
def weight(normal):
    return np.abs(normal(5)) + 0.1


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_cross_entropy(same, normal, probabilities, weight, reduction):
    x = normal(6, 5)
    for options in ({}, {"weight": weight, "label_smoothing": 0.1}):
        for target in (CLASSES, IGNORED):
            same(F.cross_entropy, loss.cross_entropy, x, target, reduction=reduction, **options)
        same(F.cross_entropy, loss.cross_entropy, x, probabilities, reduction=reduction, **options)
    image, target = normal(2, 5, 3, 4), np.random.default_rng(0).integers(0, 5, (2, 3, 4))
    same(F.cross_entropy, loss.cross_entropy, image, target, ignore_index=2, reduction=reduction)
    same(F.cross_entropy, loss.cross_entropy, x[0], np.array(3), reduction=reduction)
    same(F.nll_loss, loss.nll_loss, x, IGNORED, weight=weight, reduction=reduction)
    same(F.nll_loss, loss.nll_loss, image, target, ignore_index=2, reduction=reduction)


def test_cross_entropy_of_nothing_is_nan(normal):
    target = np.full(6, -100)
    assert np.isnan(loss.cross_entropy(jnp.asarray(normal(6, 5)), jnp.asarray(target)))
    assert torch.isnan(F.cross_entropy(torch.tensor(normal(6, 5)), torch.tensor(target)))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_binary_cross_entropy(same, normal, probabilities, weight, reduction):
    y = (normal(6, 5) > 0).astype(np.float32)
    same(F.binary_cross_entropy, loss.binary_cross_entropy, probabilities, y, weight=weight, reduction=reduction)
    name = "binary_cross_entropy_with_logits"
    options = {"weight": weight, "pos_weight": weight, "reduction": reduction}
    same(getattr(F, name), getattr(loss, name), normal(6, 5) * 20, probabilities, **options)
    same(getattr(F, name), getattr(loss, name), normal(6, 5), probabilities, reduction=reduction)


def test_binary_cross_entropy_at_the_ends(same):
    p, y = np.array([0.0, 1.0, 0.0, 1.0], np.float32), np.array([0.0, 1.0, 1.0, 0.0], np.float32)
    with torch.no_grad():
        want = F.binary_cross_entropy(torch.tensor(p), torch.tensor(y), reduction="none")
    np.testing.assert_allclose(loss.binary_cross_entropy(jnp.asarray(p), jnp.asarray(y), reduction="none"), want)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("l1_loss", {}),
        ("mse_loss", {}),
        ("smooth_l1_loss", {"beta": 0.5}),
        ("smooth_l1_loss", {"beta": 0}),
        ("huber_loss", {"delta": 0.7}),
    ],
)
def test_regression(same, normal, name, options, reduction):
    x, y = normal(6, 5), normal(6, 5)
    x[0] = y[0]  # a kink
    same(getattr(F, name), getattr(loss, name), x, y, reduction=reduction, **options)


def test_regression_with_weights(same, normal, weight):
    for name in ("l1_loss", "mse_loss", "huber_loss"):
        for reduction in REDUCTIONS:
            full = np.broadcast_to(weight, (6, 5)).copy()
            options = {"weight": full, "reduction": reduction}
            same(getattr(F, name), getattr(loss, name), normal(6, 5), normal(6, 5), **options)


@pytest.mark.parametrize("reduction", [*REDUCTIONS, "batchmean"])
def test_kl_div(same, normal, probabilities, reduction):
    same(F.kl_div, loss.kl_div, normal(6, 5), probabilities, reduction=reduction)
    same(F.kl_div, loss.kl_div, normal(6, 5), np.log(probabilities), reduction=reduction, log_target=True)
    same(F.kl_div, loss.kl_div, normal(6, 2), target=np.eye(6, 2, dtype=np.float32), reduction=reduction)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_likelihoods(same, normal, reduction):
    counts = np.array([[0.0, 1, 2, 3, 8]] * 6, np.float32)
    for log_input in (True, False):
        options = {"log_input": log_input, "full": True, "target": counts, "reduction": reduction}
        same(F.poisson_nll_loss, loss.poisson_nll_loss, np.abs(normal(6, 5)) + 0.1, **options)
    variance = np.abs(normal(6, 5)) + 0.1
    variance[0] = 0
    for full in (True, False):
        args = (normal(6, 5), normal(6, 5), variance, full)
        same(F.gaussian_nll_loss, loss.gaussian_nll_loss, *args, reduction=reduction, eps=0.01)
    same(F.gaussian_nll_loss, loss.gaussian_nll_loss, normal(6, 5), normal(6, 5), np.abs(normal(6, 1)) + 0.1)
    same(F.gaussian_nll_loss, loss.gaussian_nll_loss, normal(6, 5), normal(6, 5), np.abs(normal(6)) + 0.1)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_margins(same, normal, weight, reduction):
    y = SIGNS.astype(np.float32)
    same(F.soft_margin_loss, loss.soft_margin_loss, normal(6), target=y, reduction=reduction)
    same(F.hinge_embedding_loss, loss.hinge_embedding_loss, normal(6), target=SIGNS, reduction=reduction)
    same(F.margin_ranking_loss, loss.margin_ranking_loss, normal(6), normal(6), SIGNS, margin=0.1, reduction=reduction)
    for p in (1, 2):
        options = {"p": p, "margin": 0.7, "weight": weight, "reduction": reduction}
        same(F.multi_margin_loss, loss.multi_margin_loss, normal(6, 5), CLASSES, **options)
    labels = np.array([[3, 0, -1, 1, 2], [1, 2, 3, 4, 0], [-1, 0, 0, 0, 0]])
    same(F.multilabel_margin_loss, loss.multilabel_margin_loss, normal(3, 5), labels, reduction=reduction)
    y = (normal(6, 5) > 0).astype(np.float32)
    options = {"weight": weight, "reduction": reduction}
    same(F.multilabel_soft_margin_loss, loss.multilabel_soft_margin_loss, normal(6, 5), target=y, **options)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_embeddings(same, normal, reduction):
    x = normal(6, 5)
    same(F.cosine_embedding_loss, loss.cosine_embedding_loss, x, normal(6, 5), SIGNS, margin=0.1, reduction=reduction)
    for options in ({"swap": True}, {"p": 1.0, "margin": 0.3}):
        same(
            F.triplet_margin_loss,
            loss.triplet_margin_loss,
            x,
            normal(6, 5),
            normal(6, 5),
            reduction=reduction,
            **options,
        )
    name = "triplet_margin_with_distance_loss"
    same(getattr(F, name), getattr(loss, name), x, normal(6, 5), normal(6, 5), swap=True, reduction=reduction)


def test_distances(same, normal):
    x, y = normal(6, 5, 3), normal(6, 5, 3)
    same(F.cosine_similarity, loss.cosine_similarity, x, y)
    same(F.cosine_similarity, loss.cosine_similarity, x, y[:1], dim=-1, eps=1e-6)
    same(F.pairwise_distance, loss.pairwise_distance, x, y)
    same(F.pairwise_distance, loss.pairwise_distance, x, y, p=1, keepdim=True)
    same(nn.PairwiseDistance(3), criterion.PairwiseDistance(3), x, y, modes=("train",))
    same(nn.CosineSimilarity(dim=-1), criterion.CosineSimilarity(dim=-1), x, y, modes=("train",))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_ctc(same, normal, reduction):
    log_probs = np.array(jax.nn.log_softmax(normal(10, 3, 6)))
    targets = np.array([[1, 2, 2, 5], [3, 1, 4, 4], [5, 5, 1, 2]])
    inputs, lengths = np.array([9, 10, 7]), np.array([3, 2, 4])
    same(F.ctc_loss, loss.ctc_loss, log_probs, targets, inputs, lengths, reduction=reduction)
    flat = np.concatenate([t[:n] for t, n in zip(targets, lengths, strict=True)])
    same(F.ctc_loss, loss.ctc_loss, log_probs, flat, inputs, lengths, reduction=reduction)
    same(F.ctc_loss, loss.ctc_loss, log_probs[:, 0], targets[0, :3], np.array(9), np.array(3), reduction=reduction)
    short = np.array([9, 1, 7])
    for zero in (True, False):
        options = {"reduction": reduction, "zero_infinity": zero}
        with torch.no_grad():
            args = [torch.tensor(a) for a in (log_probs, targets, short, lengths)]
            want = F.ctc_loss(*args, **options)
        got = loss.ctc_loss(*map(jnp.asarray, (log_probs, targets, short, lengths)), **options)
        np.testing.assert_allclose(got, want, rtol=2e-5)


MODULES = [
    ("L1Loss", {}), ("MSELoss", {"reduction": "sum"}), ("SmoothL1Loss", {"beta": 0.5}), ("HuberLoss", {"delta": 0.5}),
    ("KLDivLoss", {"reduction": "batchmean"}), ("BCEWithLogitsLoss", {}), ("PoissonNLLLoss", {}),
    ("MultiLabelSoftMarginLoss", {}), ("SoftMarginLoss", {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options"), MODULES, ids=str)
def test_modules(same, normal, probabilities, name, options):
    same(
        getattr(nn, name)(**options),
        getattr(criterion, name)(**options),
        normal(6, 5),
        target=probabilities,
        modes=("train",),
    )


def test_modules_with_classes_and_weights(same, normal, probabilities, weight):
    for name in ("CrossEntropyLoss", "NLLLoss", "MultiMarginLoss"):
        theirs = getattr(nn, name)(weight=torch.tensor(weight))
        same(theirs, getattr(criterion, name)(weight=weight), normal(6, 5), CLASSES, modes=("train",))
    same(nn.BCELoss(), criterion.BCELoss(), probabilities, probabilities[::-1].copy(), modes=("train",))
    x, y = normal(6, 5), normal(6, 5)
    same(nn.GaussianNLLLoss(), criterion.GaussianNLLLoss(), x, y, np.abs(y) + 0.1, modes=("train",))
    same(nn.CosineEmbeddingLoss(), criterion.CosineEmbeddingLoss(), x, y, SIGNS, modes=("train",))
    same(nn.MarginRankingLoss(), criterion.MarginRankingLoss(), x[:, 0], y[:, 0], SIGNS, modes=("train",))
    same(nn.HingeEmbeddingLoss(), criterion.HingeEmbeddingLoss(), x[:, 0], SIGNS, modes=("train",))
    same(nn.MultiLabelMarginLoss(), criterion.MultiLabelMarginLoss(), x, np.full((6, 5), -1), modes=("train",))
    same(nn.TripletMarginLoss(), criterion.TripletMarginLoss(), x, y, normal(6, 5), modes=("train",))
    same(
        nn.TripletMarginWithDistanceLoss(),
        criterion.TripletMarginWithDistanceLoss(),
        x,
        y,
        normal(6, 5),
        modes=("train",),
    )
    args = np.array(jax.nn.log_softmax(normal(10, 1, 6))), np.array([[1, 2]]), np.array([10]), np.array([2])
    same(nn.CTCLoss(), criterion.CTCLoss(), *args, modes=("train",))


def test_unknown_reduction_is_an_error():
    with pytest.raises(ValueError, match="reduction"):
        loss.mse_loss(jnp.ones(3), jnp.ones(3), reduction="avg")
