"""Cheap compilation whose results are kept, for processes that run many small programs once.

Nearly all the time of the tests that run JAX goes to compiling some thousand tiny programs that run once. The settings
are environment variables, so that the processes that tests start have them too; they are set before jax is imported.
"""

from __future__ import annotations

import os
from pathlib import Path

CACHE = Path(__file__).resolve().parents[1] / ".cache" / "jax"
QUICK = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"  # the same arithmetic


def compile_cheaply() -> None:
    """Let this process and those that it starts run JAX on the CPU, on one thread, and keep what they compile."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
    if QUICK not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {QUICK}".strip()
