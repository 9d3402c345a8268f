"""Datasets and a loader: samples are handled with NumPy on the host, batches are JAX arrays."""

import bisect
import itertools
import math
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np


class Dataset:
    """Base class of datasets: a subclass has __getitem__ and mostly __len__."""

    def __getitem__(self, index):
        raise NotImplementedError

    def __add__(self, other):
        return ConcatDataset([self, other])


class IterableDataset:
    """Base class of datasets that are read in order: a subclass has __iter__."""


class TensorDataset(Dataset):
    """Arrays that are indexed together along their first dimension."""

    def __init__(self, *tensors):
        self.tensors = tuple(np.asarray(t) for t in tensors)
        if any(len(t) != len(self.tensors[0]) for t in self.tensors):
            raise ValueError(f"size mismatch between tensors: {[t.shape for t in self.tensors]}")

    def __len__(self):
        return len(self.tensors[0])

    def __getitem__(self, index):
        return tuple(t[index] for t in self.tensors)


class Subset(Dataset):
    """The samples of a dataset at the given indices."""

    def __init__(self, dataset, indices):
        self.dataset, self.indices = dataset, indices

    def __len__(self):
        return len(self.indices)

    def __getitem__(self, index):
        return self.dataset[self.indices[index]]


class ConcatDataset(Dataset):
    """Datasets one after the other."""

    def __init__(self, datasets):
        self.datasets = list(datasets)
        self.cumulative_sizes = list(itertools.accumulate(map(len, self.datasets)))

    def __len__(self):
        return self.cumulative_sizes[-1]

    def __getitem__(self, index):
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} is out of range for {len(self)} samples")
        index %= len(self)
        which = bisect.bisect_right(self.cumulative_sizes, index)
        return self.datasets[which][index - (self.cumulative_sizes[which - 1] if which else 0)]


def _host_generator(key):
    """NumPy's generator for draws on the host, seeded by a JAX key; without one it starts from 0."""
    return np.random.default_rng(0 if key is None else np.asarray(jax.random.key_data(key)).tolist())


def random_split(dataset, lengths, *, key=None):
    """Disjoint random subsets of the given lengths, or of the given fractions, which then add up to 1."""
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1 + 1e-9:
        lengths = [math.floor(len(dataset) * fraction) for fraction in lengths]
        for i in range(len(dataset) - sum(lengths)):
            lengths[i % len(lengths)] += 1
    if sum(lengths) != len(dataset):
        raise ValueError(f"the lengths add up to {sum(lengths)}, but the dataset has {len(dataset)} samples")
    order = _host_generator(key).permutation(len(dataset)).tolist()
    ends = itertools.accumulate(lengths)
    return [Subset(dataset, order[end - n : end]) for n, end in zip(lengths, ends, strict=True)]


def default_collate(batch):
    """One batch from a list of samples: arrays and numbers are stacked, in tuples, lists and dicts too."""
    first = batch[0]
    if isinstance(first, (np.ndarray, np.generic, jax.Array, int, float)):
        return jnp.asarray(np.stack([np.asarray(sample) for sample in batch]))
    if isinstance(first, dict):
        return {key: default_collate([sample[key] for sample in batch]) for key in first}
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*map(default_collate, zip(*batch, strict=True)))
    if isinstance(first, (tuple, list)):
        return [default_collate(list(samples)) for samples in zip(*batch, strict=True)]
    return list(batch)


class Sampler:
    """Base class of samplers: a subclass has __iter__, which gives indices of samples, and mostly __len__."""

    def __init__(self, data_source=None):
        pass


class SequentialSampler(Sampler):
    """0, 1, 2, ... as far as a dataset goes."""

    def __init__(self, data_source):
        self.data_source = data_source

    def __len__(self):
        return len(self.data_source)

    def __iter__(self):
        return iter(range(len(self)))


class RandomSampler(Sampler):
    """The indices of a dataset in random order, or `num_samples` of them drawn with replacement."""

    def __init__(self, data_source, replacement=False, num_samples=None, *, key=None):
        self.data_source, self.replacement = data_source, replacement
        self.num_samples, self.rng = num_samples, _host_generator(key)

    def __len__(self):
        return len(self.data_source) if self.num_samples is None else self.num_samples

    def __iter__(self):
        count = len(self.data_source)
        if self.replacement:
            return iter(self.rng.integers(count, size=len(self)).tolist())
        passes = -(-len(self) // count)
        return iter([i for _ in range(passes) for i in self.rng.permutation(count).tolist()][: len(self)])


class SubsetRandomSampler(Sampler):
    """Given indices in random order."""

    def __init__(self, indices, *, key=None):
        self.indices, self.rng = indices, _host_generator(key)

    def __len__(self):
        return len(self.indices)

    def __iter__(self):
        return (self.indices[i] for i in self.rng.permutation(len(self)).tolist())


class WeightedRandomSampler(Sampler):
    """`num_samples` indices, each drawn in proportion to its weight."""

    def __init__(self, weights, num_samples, replacement=True, *, key=None):
        self.weights, self.num_samples, self.replacement = np.asarray(weights, np.float64), num_samples, replacement
        self.rng = _host_generator(key)

    def __len__(self):
        return self.num_samples

    def __iter__(self):
        shares = self.weights / self.weights.sum()
        return iter(self.rng.choice(len(shares), self.num_samples, self.replacement, shares).tolist())


class BatchSampler(Sampler):
    """Lists of `batch_size` indices from another sampler."""

    def __init__(self, sampler, batch_size, drop_last):
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __len__(self):
        return len(self.sampler) // self.batch_size if self.drop_last else -(-len(self.sampler) // self.batch_size)

    def __iter__(self):
        indices = iter(self.sampler)
        while batch := list(itertools.islice(indices, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch


class DistributedSampler(Sampler):
    """Every process's own share of the indices, shuffled alike in all of them; set_epoch changes the order."""

    def __init__(self, dataset, num_replicas=None, rank=None, shuffle=True, seed=0, drop_last=False):
        self.num_replicas = jax.process_count() if num_replicas is None else num_replicas
        self.rank = jax.process_index() if rank is None else rank
        if not 0 <= self.rank < self.num_replicas:
            raise ValueError(f"rank {self.rank} is not one of {self.num_replicas} processes")
        self.dataset, self.shuffle, self.seed, self.drop_last, self.epoch = dataset, shuffle, seed, drop_last, 0
        whole, rest = divmod(len(dataset), self.num_replicas)
        self.num_samples = whole if drop_last or not rest else whole + 1

    def __len__(self):
        return self.num_samples

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        count = len(self.dataset)
        order = np.random.default_rng(self.seed + self.epoch).permutation(count) if self.shuffle else np.arange(count)
        order = np.resize(order, self.num_samples * self.num_replicas)  # starts again where the dataset ends
        return iter(order[self.rank :: self.num_replicas].tolist())


class DataLoader:
    """Batches of a dataset. Each pass over it shuffles anew; batch_size=None gives the samples one by one.

    `sampler` gives the indices in place of `shuffle`, `batch_sampler` whole lists of them. Batches are made in this
    process: what torch is told about workers and pinned memory is taken and changes nothing.
    """

    def __init__(
        self,
        dataset,
        batch_size=1,
        shuffle=False,
        sampler=None,
        batch_sampler=None,
        num_workers=0,
        collate_fn=None,
        pin_memory=False,
        drop_last=False,
        timeout=0,
        *,
        prefetch_factor=None,
        persistent_workers=False,
        key=None,
    ):
        self.dataset, self.batch_size, self.shuffle, self.drop_last = dataset, batch_size, shuffle, drop_last
        self.sampler, self.batch_sampler, self.rng = sampler, batch_sampler, _host_generator(key)
        self.collate_fn = default_collate if collate_fn is None else collate_fn

    def __len__(self):
        if self.batch_sampler is not None:
            return len(self.batch_sampler)
        count = len(self.dataset if self.sampler is None else self.sampler)
        if self.batch_size is None:
            return count
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)

    def samples(self):
        if self.sampler is not None:
            return (self.dataset[i] for i in self.sampler)
        if not hasattr(self.dataset, "__getitem__"):
            return iter(self.dataset)
        count = len(self.dataset)
        return (self.dataset[i] for i in (self.rng.permutation(count) if self.shuffle else np.arange(count)).tolist())

    def __iter__(self):
        if self.batch_sampler is not None:
            yield from (self.collate_fn([self.dataset[i] for i in indices]) for indices in self.batch_sampler)
            return
        samples = self.samples()
        if self.batch_size is None:
            yield from samples
            return
        while batch := list(itertools.islice(samples, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield self.collate_fn(batch)


def torch_home(*parts):
    """The folder where torch keeps what it downloads: TORCH_HOME, or `torch` in XDG_CACHE_HOME or ~/.cache."""
    cache = Path(os.getenv("XDG_CACHE_HOME", "~/.cache"), "torch")
    return str(Path(os.getenv("TORCH_HOME", cache), *parts).expanduser())
