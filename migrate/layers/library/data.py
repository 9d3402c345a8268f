"""Datasets and a loader: samples are handled with NumPy on the host, batches are JAX arrays."""

import bisect
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np


class Dataset:
    """Base class of datasets: a subclass has __getitem__ and mostly __len__."""

    def __getitem__(self, index):
        raise NotImplementedError

    def __add__(self, other):
        return ConcatDataset([self, other])


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


def random_split(dataset, lengths, *, seed=0):
    """Disjoint random subsets of the given lengths, or of the given fractions, which then add up to 1."""
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1 + 1e-9:
        lengths = [math.floor(len(dataset) * fraction) for fraction in lengths]
        for i in range(len(dataset) - sum(lengths)):
            lengths[i % len(lengths)] += 1
    if sum(lengths) != len(dataset):
        raise ValueError(f"the lengths add up to {sum(lengths)}, but the dataset has {len(dataset)} samples")
    order = np.random.default_rng(seed).permutation(len(dataset)).tolist()
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


class DataLoader:
    """Batches of a dataset. Each pass over it shuffles anew; batch_size=None gives the samples one by one."""

    def __init__(self, dataset, batch_size=1, shuffle=False, collate_fn=None, drop_last=False, *, seed=0):
        self.dataset, self.batch_size, self.shuffle, self.drop_last = dataset, batch_size, shuffle, drop_last
        self.collate_fn = default_collate if collate_fn is None else collate_fn
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        if self.batch_size is None:
            return len(self.dataset)
        return len(self.dataset) // self.batch_size if self.drop_last else -(-len(self.dataset) // self.batch_size)

    def __iter__(self):
        count = len(self.dataset)
        order = (self.rng.permutation(count) if self.shuffle else np.arange(count)).tolist()
        if self.batch_size is None:
            yield from (self.dataset[i] for i in order)
            return
        for start in range(0, len(self) * self.batch_size, self.batch_size):
            yield self.collate_fn([self.dataset[i] for i in order[start : start + self.batch_size]])
