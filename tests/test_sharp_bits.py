"""Each pitfall that JAX's own guides warn of: what the converter says and writes, and what that returns."""

from __future__ import annotations

import sys
import textwrap
import tomllib
from pathlib import Path

import jax
import pytest

from jaxmigrate.config import Settings
from jaxmigrate.project import convert_files
from jaxmigrate.read.source import Source

sys.path.insert(0, str(Path(__file__).parent))
import runner
import torch

BITS = tomllib.loads(Path(__file__).with_name("sharp_bits.toml").read_text(encoding="utf-8"))
RUN = [name for name, bit in BITS.items() if "def main" in bit["program"]]


@pytest.mark.parametrize("name", BITS)
def test_what_is_said_and_written(name: str) -> None:
    bit = BITS[name]
    settings = Settings(control_flow=bit.get("control_flow", "keep"))
    (outcome,) = convert_files([Source("program.py", bit["program"])], runner.rules(), settings).outcomes
    watched = {code for code, _ in bit["findings"]} | {"JM141", "JM142", "JM143", "JM151", "JM206", "JM209", "JM111"}
    found = [f for f in outcome.findings if f.code in watched]
    assert [f.code for f in found] == [code for code, _ in bit["findings"]], found
    for finding, (_, says) in zip(found, bit["findings"], strict=True):
        assert says in finding.message
    assert bit["holds"] in outcome.after


@pytest.mark.parametrize("name", RUN)
def test_both_programs_return_the_same(name: str) -> None:
    settings = {key: jax.config.values[key] for key in ("jax_debug_nans", "jax_enable_x64")}
    dtype, anomaly = torch.get_default_dtype(), torch.is_anomaly_enabled()
    try:
        run = runner.run_both(textwrap.dedent(BITS[name]["program"]))
    finally:
        torch.set_default_dtype(dtype)
        torch.autograd.set_detect_anomaly(anomaly)
        for key, value in settings.items():
            jax.config.update(key, value)
    assert run.same, (run.outcome.after, run.expected, run.got, run.error)
