"""How every test process runs: on the CPU, on one thread, with cheap compilation whose results are kept.

Nearly all the time of the tests that run JAX goes to compiling some thousand tiny programs that run once. The settings
are environment variables, so that the processes that tests start have them too; they are set before jax is imported.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

CACHE = Path(__file__).resolve().parents[1] / ".cache" / "jax"
QUICK = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"  # the same arithmetic

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
if "JAXMIGRATE_CACHE_DIR" not in os.environ:  # no result of one session is read in the next
    os.environ["JAXMIGRATE_CACHE_DIR"] = tempfile.mkdtemp(prefix="jaxmigrate-cache-")
    atexit.register(shutil.rmtree, os.environ["JAXMIGRATE_CACHE_DIR"], ignore_errors=True)
if QUICK not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {QUICK}".strip()


@pytest.fixture(autouse=True)
def process_wide_settings() -> Iterator[None]:
    """Every test starts with torch's own settings, whatever a program of an earlier test switched on."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_anomaly_enabled(False)
        torch.set_default_dtype(torch.float32)
        torch.set_grad_enabled(True)
    yield
