"""One program on many devices: variables have a copy on each of them, batches are split between them."""

import os

import jax
import numpy as np
from flax import nnx
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec


class DataParallel(nnx.Module):
    """A module whose inputs are split over all devices along `dim`; its variables have a copy on each device.

    Losses, gradients and statistics are those of the whole batch. With several processes each gives its own part of it.
    """

    def __init__(self, module, dim=0, *, rngs=None):
        self.module, self.dim = module, dim
        nnx.update(module, jax.device_put(nnx.state(module), NamedSharding(self.mesh, PartitionSpec())))

    @property
    def mesh(self):
        return Mesh(np.asarray(jax.devices()), ("batch",))

    def split(self, x):
        if not isinstance(x, (jax.Array, np.ndarray)) or x.ndim <= self.dim:
            return x
        over_devices = NamedSharding(self.mesh, PartitionSpec(*[None] * self.dim, "batch"))
        if isinstance(x, jax.core.Tracer):
            return jax.lax.with_sharding_constraint(x, over_devices)
        if jax.process_count() > 1:
            return jax.make_array_from_process_local_data(over_devices, np.asarray(x))
        even = x.shape[self.dim] % self.mesh.size == 0
        return jax.device_put(x, over_devices if even else NamedSharding(self.mesh, PartitionSpec()))

    def __call__(self, *args, **kwargs):
        args, kwargs = jax.tree.map(self.split, (args, kwargs))
        return self.module(*args, **kwargs)


class DistributedDataParallel(DataParallel):
    """A module that every process calls with its own part of the batch."""


def init_process_group(backend=None, init_method=None, world_size=-1, rank=-1):
    """Join the processes that a launcher's variables (WORLD_SIZE, RANK, MASTER_ADDR, ...) or the arguments name.

    A process that is alone needs nothing.
    """
    count = world_size if world_size > 0 else int(os.environ.get("WORLD_SIZE", 1))
    if count == 1:
        return
    if init_method and init_method.startswith("tcp://"):
        address = init_method.removeprefix("tcp://")
    else:
        address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    local = os.environ.get("LOCAL_RANK")
    jax.distributed.initialize(
        address,
        count,
        rank if rank >= 0 else int(os.environ["RANK"]),
        local_device_ids=None if local is None or jax.config.jax_platforms == "cpu" else [int(local)],
    )


def barrier():
    """Wait until all processes are here."""
    multihost_utils.sync_global_devices("barrier")
