#!/usr/bin/env python
"""Convert each golden program's `torch_in.py` and compare numbers: `python tests/golden/run.py [--only gpt]`.

Modules: `jaxmigrate.verify` on outputs and gradients in train and eval mode. Training programs: loss curves, returned
values and weights after training, from the same weights and with the same random draws (training/check.py). No number
may be wrong: exit status 1 when any is.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE / "training")]

import check  # noqa: E402
import measure  # noqa: E402
from judged import verified  # noqa: E402
from programs import PROGRAMS, Program  # noqa: E402

EXAMPLES = {
    "01_mlp": "MLP(12, 16, 5)(f32[8, 3, 4])",
    "02_resnet": "resnet18()(f32[4, 3, 64, 64])",
    "03_gpt": "GPT(GPTConfig())(i64[3, 12] < 65, i64[3, 12] < 65)",
    "04_lstm": "LSTMClassifier(20, 8, 6, 4)(1 <= i64[4, 9] < 20)",
    "05_unet": "UNet()(f32[2, 3, 36, 29])",
    "06_vit": "VisionTransformer()(f32[3, 3, 32, 32])",
}


def module(name: str, example: str, work: Path, layers: str = "torch") -> measure.Measured:
    source = HERE / "modules" / name / "torch_in.py"
    converted = measure.convert(source, work / "torch_in.py", work / "report.json", layers)
    return verified(f"modules/{name}", source, converted, [example])


def training(program: Program, work: Path) -> measure.Measured:
    original, output = work / "original", work / "converted"
    original.mkdir(parents=True)
    (original / "prog.py").write_text(program.source, encoding="utf-8")
    converted = measure.convert(original / "prog.py", output / "prog.py", work / "report.json")
    name = f"training/{program.name}"
    if not converted.output.exists():
        return measure.judge(name, converted, False, False, "", "no output")
    found = check.compare(program, original, output, work / "runs")
    errors = f"values {found.history:.1e}, weights {found.weights:.1e}" if found.ran else ""
    return measure.judge(name, converted, found.ran, not found.error, errors, found.error)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="substring of modules/01_mlp … training/06_reinforce")
    parser.add_argument("--keep", type=Path, help="leave converted files and reports in this folder")
    parser.add_argument("--layers", choices=("torch", "nnx"), default="torch", help="the dialect of the modules' layers")
    args = parser.parse_args()
    start = time.monotonic()
    results = []
    jobs = [(f"modules/{n}", lambda work, n=n: module(n, EXAMPLES[n], work, args.layers)) for n in EXAMPLES]
    jobs += [(f"training/{p.name}", lambda work, p=p: training(p, work)) for p in PROGRAMS if args.layers == "torch"]
    for name, job in jobs:
        if args.only in name:
            with tempfile.TemporaryDirectory() as scratch:
                work = (args.keep / name) if args.keep else Path(scratch)
                work.mkdir(parents=True, exist_ok=True)
                results.append(job(work.resolve()))
            print(measure.row(results[-1]), flush=True)
    print(f"{measure.totals(results)}; {time.monotonic() - start:.0f} s")
    return int(any(r.verdict == "WRONG" for r in results))


if __name__ == "__main__":
    sys.exit(main())
