"""How every test process runs: with torch's own settings, cheap compilation, and no results of earlier sessions."""

from __future__ import annotations

import atexit
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator

import numpy as np
import pytest
from quick import compile_cheaply

compile_cheaply()
if "JAXMIGRATE_CACHE_DIR" not in os.environ:  # no result of one session is read in the next
    os.environ["JAXMIGRATE_CACHE_DIR"] = tempfile.mkdtemp(prefix="jaxmigrate-cache-")
    atexit.register(shutil.rmtree, os.environ["JAXMIGRATE_CACHE_DIR"], ignore_errors=True)


@pytest.fixture(autouse=True)
def process_wide_settings() -> Iterator[None]:
    """Every test starts with torch's own settings and the same draws, whatever an earlier test switched on or drew."""
    random.seed(0)
    np.random.seed(0)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(0)
        torch.set_anomaly_enabled(False)
        torch.set_default_dtype(torch.float32)
        torch.set_grad_enabled(True)
    yield
