"""Data parallelism on eight devices, in processes of their own: the numbers of one device."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

from jaxmigrate.layers import emit

HEAD = """\
import jax, jax.numpy as jnp, numpy as np, optax
from flax import nnx
from nnx_layers import BatchNorm1d, DataParallel, DistributedDataParallel, Linear, barrier, init_process_group

init_process_group("gloo")

class Net(nnx.Module):
    def __init__(self, *, rngs):
        self.fc, self.norm, self.out = Linear(4, 8, rngs=rngs), BatchNorm1d(8), Linear(8, 2, rngs=rngs)

    def __call__(self, x):
        return self.out(jax.nn.relu(self.norm(self.fc(x))))


def train(model, x, y):
    tx = optax.sgd(0.1, momentum=0.9)
    opt_state, losses = tx.init(nnx.state(model, nnx.Param)), []

    @nnx.jit
    def step(model, opt_state, x, y):
        loss, grads = nnx.value_and_grad(lambda model: jnp.mean((model(x) - y) ** 2))(model)
        updates, opt_state = tx.update(grads, opt_state, nnx.state(model, nnx.Param))
        nnx.update(model, optax.apply_updates(nnx.state(model, nnx.Param), updates))
        return loss, opt_state

    for _ in range(5):
        loss, opt_state = step(model, opt_state, x, y)
        losses.append(float(loss))
    return losses, [np.asarray(v) for v in jax.tree.leaves(nnx.state(model))]


rng = np.random.default_rng(0)
x, y = rng.normal(size=(16, 4)).astype(np.float32), rng.normal(size=(16, 2)).astype(np.float32)
want = train(Net(rngs=nnx.Rngs(0)), x, y)
"""


def run(folder: Path, body: str, **variables: str) -> subprocess.Popen[str]:
    names = ["BatchNorm1d", "DataParallel", "DistributedDataParallel", "Linear", "barrier", "init_process_group"]
    (folder / "nnx_layers.py").write_text(emit(names), encoding="utf-8")
    program = folder / f"program_{variables.get('RANK', '')}.py"
    program.write_text(HEAD + textwrap.dedent(body), encoding="utf-8")
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", **variables}
    return subprocess.Popen(
        [sys.executable, str(program)], env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def finished(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 0, output
    return output


def test_eight_devices_give_the_numbers_of_one(tmp_path: Path) -> None:
    body = """
    for wrapper in (DataParallel, DistributedDataParallel):
        model = wrapper(Net(rngs=nnx.Rngs(0)))
        model.eval()
        for out in (nnx.jit(lambda model, x: model(x))(model, x), model(x)):
            assert len(out.sharding.device_set) == 8 and not out.sharding.is_fully_replicated
        assert model(x[:3]).shape == (3, 2)
        model.train()
        losses, state = train(model, x, y)
        np.testing.assert_allclose(losses, want[0], rtol=1e-5)
        for a, b in zip(state, want[1], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    """
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    finished(run(tmp_path, body, XLA_FLAGS=flags))


def test_two_processes_give_the_numbers_of_one(tmp_path: Path) -> None:
    """Each process has half of the batch, as a launcher of PyTorch's starts them."""
    body = """
    assert (jax.process_count(), jax.process_index()) == (2, int(__import__("os").environ["RANK"]))
    model = DistributedDataParallel(Net(rngs=nnx.Rngs(0)))
    mine = slice(8 * jax.process_index(), 8 * jax.process_index() + 8)
    y = model.split(y[mine])
    losses, state = train(model, model.split(x[mine]), y)
    np.testing.assert_allclose(losses, want[0], rtol=1e-5)
    barrier()
    jax.distributed.shutdown()
    """
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    both = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": port}
    processes = [run(tmp_path, body, RANK=str(rank), LOCAL_RANK=str(rank), **both) for rank in (0, 1)]
    for process in processes:
        finished(process)
