"""A deliberately naive converter, to prove the kit: renames torch to jnp by regular expression.

python fake_converter.py {src} {dst} {report}
"""

import json
import re
import sys
from pathlib import Path

RULES = [
    (r"^import torch$", "import jax, optax\nimport jax.numpy as jnp\nfrom flax import nnx"),
    (r"^import torch.nn as nn$", ""),
    (r"^import torch.nn.functional as F$", "import jax.nn as F"),
    (r"\btorch\.(linalg|fft)\b", r"jnp.\1"),
    (r"\btorch\.special\b", "jax.scipy.special"),
    (r"\btorch\.", "jnp."),
    (r"\bnn\.Module\b", "nnx.Module"),
    (r"\bnn\.", "nnx."),
    (r"super\(\).__init__\(\)", "pass"),
    (r"\bdim=", "axis="),
    (r"\bkeepdim=", "keepdims="),
    (r"def forward\(", "def __call__("),
]


def main():
    src, dst, report = map(Path, sys.argv[1:4])
    findings = []
    for path in sorted(src.glob("*.py")):
        text = path.read_text()
        for n, line in enumerate(text.split("\n"), 1):
            if "scatter" in line or "torch.optim" in line:  # pretend to know these as unsupported
                findings.append(
                    {
                        "code": "JM301",
                        "path": path.name,
                        "range": {"start": [n, 1], "end": [n, 1]},
                        "message": line.strip(),
                    }
                )
        for old, new in RULES:
            text = re.sub(old, new, text, flags=re.M)
        (dst / path.name).write_text(text)
    report.write_text(json.dumps({"schema": "jaxmigrate-report/1", "findings": findings}))


if __name__ == "__main__":
    main()
