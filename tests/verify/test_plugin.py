"""The pytest fixture, in a test run of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAMS = {
    "net.py": "import torch\n# jaxmigrate: example fn(f32[3])\ndef fn(x):\n    return torch.exp(x)\n",
    "same.py": "import jax.numpy as jnp\ndef fn(x):\n    return jnp.exp(x)\n",
    "other.py": "import jax.numpy as jnp\ndef fn(x):\n    return jnp.exp(x) * (x > 0)\n",
    "test_pair.py": """
def test_same(jaxmigrate_verify):
    report = jaxmigrate_verify("net.py", "same.py", precisions=())
    assert [c.case for c in report.cases] == ["fn(f32[3])"]

def test_other(jaxmigrate_verify):
    jaxmigrate_verify("net.py", "other.py", "fn(f32[4])", precisions=(), divergence=False)

def test_missing(jaxmigrate_verify):
    jaxmigrate_verify("net.py", "gone.py")

def test_example(jaxmigrate_verify):
    jaxmigrate_verify("net.py", "same.py", "fn(")
""",
}


def test_fixture(tmp_path: Path) -> None:
    for name, text in PROGRAMS.items():
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "jaxmigrate.pytest_plugin", "-p", "no:cacheprovider", "-v"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "3 failed, 1 passed" in done.stdout, done.stdout
    assert "test_pair.py::test_same PASSED" in done.stdout
    assert "fn(f32[4])\n    forward eval (eager): different: 1 output; largest at output[" in done.stdout
    assert "gone.py: no such file" in done.stdout
    assert "example `fn(`: not an expression" in done.stdout
    assert "Traceback" not in done.stdout


def test_the_plugin_is_light() -> None:
    script = (
        "import sys, jaxmigrate.pytest_plugin\n"
        "heavy = {'torch', 'jax', 'flax', 'numpy', 'libcst', 'jaxmigrate.verify'} & sys.modules.keys()\n"
        "sys.exit(', '.join(sorted(heavy)) or 0)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
