"""Data loading, random draws, optimizers and einops layers against torch."""

from __future__ import annotations

import inspect
from collections import namedtuple

import einops.layers.torch
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from flax import nnx
from torch.optim import lr_scheduler
from torch.utils import data as torch_data

from jaxmigrate.layers.library import data, einops_layers, optim, random

LOADER = inspect.signature(data.DataLoader).parameters
PAIR = namedtuple("PAIR", "x y")


class Squares(data.Dataset):
    def __len__(self):
        return 7

    def __getitem__(self, i):
        return {"x": np.full(3, i, np.float32), "pair": (i, float(i) ** 2), "named": PAIR(i, [i]), "name": str(i)}


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("count", [6, 7])
def test_samplers_without_chance_give_torchs_indices(count, drop_last):
    for module, batches in ((torch_data, []), (data, [])):
        order = module.SequentialSampler(range(count))
        sampler = module.BatchSampler(order, 3, drop_last)
        batches += [len(sampler), *sampler]
        assert batches == [
            len(torch_data.BatchSampler(range(count), 3, drop_last)),
            *torch_data.BatchSampler(range(count), 3, drop_last),
        ]
    for rank in range(4):
        options = {"num_replicas": 4, "rank": rank, "shuffle": False, "drop_last": drop_last}
        theirs = torch_data.distributed.DistributedSampler(range(count), **options)
        ours = data.DistributedSampler(range(count), **options)
        assert (len(ours), list(ours)) == (len(theirs), list(theirs))


def test_distributed_sampler_shares_a_shuffled_order():
    parts = [data.DistributedSampler(range(10), 2, rank) for rank in (0, 1)]
    assert sorted([*parts[0], *parts[1]]) == list(range(10)) and list(parts[0]) == list(parts[0])
    before = list(parts[0])
    parts[0].set_epoch(1)
    assert list(parts[0]) != before
    with pytest.raises(ValueError, match="rank 2"):
        data.DistributedSampler(range(10), 2, 2)


def test_random_samplers():
    sampler = data.RandomSampler(range(20))
    first, second = list(sampler), list(sampler)
    assert sorted(first) == sorted(second) == list(range(20)) and first != second
    assert len(list(data.RandomSampler(range(4), num_samples=10))) == 10
    drawn = list(data.RandomSampler(range(5), replacement=True, num_samples=1000))
    assert set(drawn) == set(range(5)) and min(np.bincount(drawn)) > 150
    assert sorted(data.SubsetRandomSampler([3, 1, 7])) == [1, 3, 7]
    weighted = np.bincount(list(data.WeightedRandomSampler([1.0, 3.0, 0.0], 4000)), minlength=3)
    assert weighted[2] == 0 and abs(weighted[1] / 4000 - 0.75) < 0.03
    assert sorted(data.WeightedRandomSampler([1.0, 3.0], 2, replacement=False)) == [0, 1]


@pytest.mark.parametrize("drop_last", [False, True])
def test_loader_with_samplers_and_iterables(drop_last):
    class Numbers:
        def __iter__(self):
            return iter([1.0, 2.0, 3.0, 4.0, 5.0])

    class Theirs(Numbers, torch_data.IterableDataset):
        pass

    class Ours(Numbers, data.IterableDataset):
        pass

    x = np.arange(7)
    options = {"batch_size": 2, "drop_last": drop_last, "num_workers": 0, "pin_memory": False}
    pairs = [
        (torch_data.DataLoader(Theirs(), **options), data.DataLoader(Ours(), **options)),
        (torch_data.DataLoader(x, sampler=[4, 0, 2], **options), data.DataLoader(x, sampler=[4, 0, 2], **options)),
        (torch_data.DataLoader(x, batch_sampler=[[4, 0], [2]]), data.DataLoader(x, batch_sampler=[[4, 0], [2]])),
    ]
    for number, (theirs, ours) in enumerate(pairs):
        assert number == 0 or len(ours) == len(theirs)
        for want, got in zip(theirs, ours, strict=True):
            np.testing.assert_array_equal(got, want.numpy())


def test_loader_has_torchs_parameters():
    """What `DataLoader(dataset, **options)` passes on."""
    theirs = [p for p in inspect.signature(torch_data.DataLoader).parameters if p in LOADER]
    assert list(inspect.signature(data.DataLoader).parameters)[:-1] == theirs


@pytest.mark.parametrize("options", [{}, {"batch_size": 3}, {"batch_size": 3, "drop_last": True}, {"batch_size": 9}])
def test_loader_gives_torchs_batches(options):
    x, y = np.arange(14.0, dtype=np.float32).reshape(7, 2), np.arange(7)
    theirs = torch_data.DataLoader(torch_data.TensorDataset(torch.tensor(x), torch.tensor(y)), **options)
    ours = data.DataLoader(data.TensorDataset(x, y), **options)
    assert len(theirs) == len(ours)
    for want, got in zip(theirs, ours, strict=True):
        assert type(want) is type(got)
        for w, g in zip(want, got, strict=True):
            assert isinstance(g, jax.Array)
            np.testing.assert_array_equal(w, g)


def test_loader_collates_nested_samples():
    want = next(iter(torch_data.DataLoader(Squares(), batch_size=4)))
    got = next(iter(data.DataLoader(Squares(), batch_size=4)))
    np.testing.assert_array_equal(got["x"], want["x"])
    np.testing.assert_array_equal(got["pair"][1], want["pair"][1])
    np.testing.assert_array_equal(got["named"].y[0], want["named"].y[0])
    assert got["name"] == want["name"] and type(got["pair"]) is type(want["pair"])


def test_loader_shuffles_anew_and_by_seed():
    def read(loader):
        return np.concatenate([b for (b,) in loader]).tolist()

    def loader():
        return data.DataLoader(data.TensorDataset(np.arange(50)), 8, True, key=jax.random.key(3))

    one = loader()
    passes, again = [read(one), read(one)], read(loader())
    assert passes[0] == again != passes[1] and sorted(passes[1]) == list(range(50))


def test_loader_without_batches_and_with_its_own_collate():
    assert [s["name"] for s in data.DataLoader(Squares(), batch_size=None)] == list("0123456")
    loader = data.DataLoader(Squares(), 3, collate_fn=lambda batch: [s["name"] for s in batch])
    assert list(loader) == [["0", "1", "2"], ["3", "4", "5"], ["6"]]


def test_dataset_combinations():
    first, second = data.TensorDataset(np.arange(3)), data.TensorDataset(np.arange(10, 15))
    both = first + second
    assert len(both) == 8 and [int(both[i][0]) for i in (0, 2, 3, 7, -1)] == [0, 2, 10, 14, 14]
    with pytest.raises(IndexError):
        both[8]
    assert int(data.Subset(both, [5, 1])[0][0]) == 12
    for lengths in ([3, 5], [0.5, 0.5], [0.3, 0.7]):
        theirs = torch_data.random_split(range(8), lengths)
        parts = data.random_split(range(8), lengths)
        assert [len(p) for p in parts] == [len(p) for p in theirs]
        assert sorted(i for p in parts for i in p.indices) == list(range(8))
    with pytest.raises(ValueError, match="add up to 6"):
        data.random_split(range(8), [3, 3])
    with pytest.raises(ValueError, match="mismatch"):
        data.TensorDataset(np.ones(3), np.ones(4))


def test_multinomial_has_torchs_distribution():
    p = jnp.array([[1.0, 2.0, 0.0, 5.0]])
    rows = jnp.broadcast_to(p, (4000, 4))
    for replacement in (True, False):
        torch.manual_seed(0)
        want = torch.multinomial(torch.tensor(np.array(rows)), 2, replacement).numpy()
        got = np.asarray(random.multinomial(jax.random.key(0), rows, 2, replacement))
        assert got.shape == want.shape
        counts = [np.bincount(a[:, 0] * 4 + a[:, 1], minlength=16) / 4000 for a in (want, got)]
        np.testing.assert_allclose(*counts, atol=0.03)
    assert random.multinomial(jax.random.key(0), p[0], 3, True).shape == (3,)


def test_gumbel_softmax():
    logits = jnp.log(jnp.array([0.2, 0.5, 0.3]))
    rows = jnp.broadcast_to(logits, (4000, 3))
    hard = random.gumbel_softmax(rows, jax.random.key(0), hard=True)
    np.testing.assert_allclose(hard.mean(0), [0.2, 0.5, 0.3], atol=0.03)

    def total(x, hard):
        return (random.gumbel_softmax(x, jax.random.key(1), 0.7, hard) * jnp.arange(3)).sum()

    gradients = [jax.grad(total)(logits, hard) for hard in (True, False)]
    np.testing.assert_allclose(*gradients, rtol=1e-5)


def scaled(transformation, rate):
    return optax.chain(transformation, optax.scale(-rate))


ADAGRAD = {"lr": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.2}
OPTIMIZERS = [
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.5}, scaled(optim.trace_with_dampening(0.9, 0.5), 0.1)),
    ("Adam", {"lr": 0.05, "amsgrad": True}, scaled(optim.scale_by_amsgrad(), 0.05)),
    ("Adagrad", ADAGRAD, scaled(optim.scale_by_adagrad(0.1, 0.2), 0.1)),
    ("NAdam", {"lr": 0.01}, scaled(optim.scale_by_nadam(), 0.01)),
    ("RAdam", {"lr": 0.01, "eps": 1e-3}, scaled(optim.scale_by_radam(eps=1e-3), 0.01)),
    ("Rprop", {"lr": 0.01}, optim.rprop(0.01)),
    ("ASGD", {"lr": 0.1, "lambd": 0.01}, optim.asgd(0.1, 0.01)),
    ("Adafactor", {"lr": 0.05, "weight_decay": 0.1}, optim.adafactor(0.05, weight_decay=0.1)),
]


@pytest.mark.parametrize(("name", "options", "tx"), OPTIMIZERS, ids=[o[0] for o in OPTIMIZERS])
def test_optimizers_follow_torch(normal, name, options, tx):
    start, x, y = {"w": normal(4, 3), "b": normal(3)}, normal(16, 4), normal(16, 3)
    weights = {k: torch.nn.Parameter(torch.tensor(v)) for k, v in start.items()}
    optimizer = getattr(torch.optim, name)(weights.values(), **options)
    params = jax.tree.map(jnp.asarray, start)
    state = tx.init(params)

    @jax.jit
    def step(params, state):
        grads = jax.grad(lambda p: jnp.square(jnp.tanh(x @ p["w"] + p["b"]) - y).mean())(params)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    for _ in range(20):
        optimizer.zero_grad()
        (torch.tanh(torch.tensor(x) @ weights["w"] + weights["b"]) - torch.tensor(y)).square().mean().backward()
        optimizer.step()
        params, state = step(params, state)
    for key, want in weights.items():
        assert np.abs(want.detach().numpy() - start[key]).max() > 1e-3
        np.testing.assert_allclose(params[key], want.detach(), atol=5e-5)


def test_clip_grad_norm(normal):
    for max_norm in (0.1, 100.0):
        gradients = [normal(3, 4), normal(5)]
        parameters = [torch.nn.Parameter(torch.zeros(g.shape)) for g in gradients]
        for p, g in zip(parameters, gradients, strict=True):
            p.grad = torch.tensor(g)
        want = torch.nn.utils.clip_grad_norm_(parameters, max_norm)
        got, total = optim.clip_grad_norm(gradients, max_norm)
        np.testing.assert_allclose(total, want, rtol=1e-6)
        for p, g in zip(parameters, got, strict=True):
            np.testing.assert_allclose(g, p.grad, rtol=1e-6)


SCHEDULES = [
    (lambda o: lr_scheduler.CosineAnnealingLR(o, 10, 0.01), optim.cosine_annealing_schedule(0.1, 10, 0.01)),
    (lambda o: lr_scheduler.OneCycleLR(o, 1.0, 40), optim.one_cycle_schedule(1.0, 40)),
    (
        lambda o: lr_scheduler.OneCycleLR(o, 0.5, 40, pct_start=0.25, anneal_strategy="linear"),
        optim.one_cycle_schedule(0.5, 40, 0.25, "linear"),
    ),
    (lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, 5), optim.cyclic_schedule(0.01, 0.1, 5)),
    (lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, 3, 7), optim.cyclic_schedule(0.01, 0.1, 3, 7)),
]


@pytest.mark.parametrize(("theirs", "ours"), SCHEDULES)
def test_schedules(theirs, ours):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1, momentum=0.9)
    scheduler = theirs(optimizer)
    for step in range(40):
        assert float(ours(step)) == pytest.approx(optimizer.param_groups[0]["lr"], abs=1e-6)
        optimizer.step()
        if step < 39:
            scheduler.step()


@pytest.mark.parametrize(
    "options",
    [
        {"patience": 2},
        {"mode": "max", "patience": 1, "cooldown": 2},
        {"patience": 0, "threshold": 0.05, "threshold_mode": "abs", "min_lr": 0.02},
    ],
)
def test_reduce_on_plateau(options):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    theirs = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, **options)
    ours = optim.ReduceLROnPlateau(0.1, factor=0.5, **options)
    for metric in [1.0, 0.9, 0.95, 0.9, 0.92, 0.5, 0.49, 0.48, 0.6, 0.6, 0.6, 0.7, 0.6, 0.6, 0.3] * 2:
        theirs.step(metric)
        assert ours.step(metric) == pytest.approx(optimizer.param_groups[0]["lr"])


def test_einops_layers(same, normal):
    x = normal(2, 3, 4, 6)
    theirs = einops.layers.torch.Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=2, q=3)
    ours = einops_layers.Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=2, q=3)
    same(theirs, ours, x, modes=("train",))
    same(
        einops.layers.torch.Reduce("b c h w -> b c", "mean"),
        einops_layers.Reduce("b c h w -> b c", "mean"),
        x,
        modes=("train",),
    )
    np.testing.assert_array_equal(nnx.jit(lambda m, x: m(x))(ours, x), ours(jnp.asarray(x)))
