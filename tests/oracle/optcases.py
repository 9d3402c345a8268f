"""optim_db (OptimizerInfo) -> one source file per optimizer: a ten-step training function per option set.

python optcases.py --out data/optims [--only 'Adam*']
"""

import argparse
import fnmatch
import json
import time
from collections import Counter
from pathlib import Path

import genlib
import torch
from genlib import SCOPE, Store, assemble, define

PLAIN = """\
def train_{n}(w, b, x, y):
    model = nn.Linear(4, 3)
    with torch.no_grad():
        model.weight.copy_(w)
        model.bias.copy_(b)
    optimizer = torch.optim.{cls}(model.parameters(){options})
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model.weight.detach(), model.bias.detach()
"""
# Muon takes matrices only.
MATRIX = (
    PLAIN.replace("(w, b, x, y)", "(w, x, y)")
    .replace("(4, 3)", "(4, 3, bias=False)")
    .replace("        model.bias.copy_(b)\n", "")
    .replace(", model.bias.detach()", "")
)
CLOSURE = PLAIN.replace(
    """\
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
""",
    """\
        def closure():
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            return loss

        losses.append(optimizer.step(closure).item())
""",
)


def option_text(kwargs):
    def text(v):
        return f"torch.tensor({round(v.item(), 6)!r})" if isinstance(v, torch.Tensor) else repr(v)

    return "".join(f", {k}={text(v)}" for k, v in kwargs.items())


def cases_of(info, tally):
    cls = info.optim_cls.__name__
    template = MATRIX if cls == "Muon" else CLOSURE if cls == "LBFGS" else PLAIN
    gen = torch.Generator().manual_seed(0)
    w, b = torch.randn(3, 4, generator=gen), torch.randn(3, generator=gen)
    x, y = torch.randn(8, 4, generator=gen), torch.randn(8, 3, generator=gen)
    inputs = [w, x, y] if cls == "Muon" else [w, b, x, y]
    store, chunks = Store(), []
    for n, option in enumerate(info.optim_inputs_func("cpu")):
        fn_name = f"train_{n}"
        src = template.format(n=n, cls=cls, options=option_text(option.kwargs))
        case = {
            "suite": "optim",
            "op": cls,
            "entry": cls,
            "variant": option.desc or "default",
            "fn": fn_name,
            "id": f"{cls}/{fn_name}",
        }
        store.add(case, define(src, fn_name), inputs, fn_name, grad=False, calls=3)
        chunks.append(([case], src))
        tally["cases"] += 1
    return store, assemble(chunks)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--out", default="data/optims")
    p.add_argument("--only", default="*")
    opt = p.parse_args()
    genlib.fixed_hash_seed()
    from torch.testing._internal.common_optimizers import optim_db

    start, summary, total = time.time(), {}, Counter()
    for info in optim_db:
        cls = info.optim_cls.__name__
        if not fnmatch.fnmatch(cls, opt.only):
            continue
        if reason := SCOPE["out_of_scope_optims"].get(cls):
            summary[cls] = {"out_of_scope": reason}
            continue
        tally = Counter()
        store, source = cases_of(info, tally)
        store.save(opt.out, cls, source)
        total.update(tally | {"optimizers with cases": 1})
        summary[cls] = dict(tally)
    if opt.only == "*":
        (Path(opt.out) / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    print(dict(total), {k: s for k, s in summary.items() if "out_of_scope" in s}, f"{time.time() - start:.0f} s")


if __name__ == "__main__":
    main()
