"""module_db (ModuleInfo) -> one source file per torch.nn class: Net0, Net1, ... with torch's answers.

    python modcases.py --out data/modules [--only 'nn.BatchNorm*'] [--cap 6]

Each class gives two cases: eval (forward in eval mode) and train (forward in train mode, then in
eval mode, so that running statistics that were updated show in the second answer).
"""

import argparse
import fnmatch
import json
import time
from collections import Counter
from pathlib import Path

import genlib
import torch
from genlib import SCOPE, Names, Skip, Store, assemble, call_args, define
from torch import nn


def remember_constructor_arguments(cls):
    """module_db passes built layers to containers: keep how they were built, to write that down."""
    build = cls.__init__

    def init(self, *args, **kwargs):
        build(self, *args, **kwargs)
        self.built_with = (args, kwargs)

    cls.__init__ = init


def render_module(v, names):
    if hasattr(v, "built_with"):
        return f"nn.{type(v).__name__}({call_args(*v.built_with, names)})"
    return None


def trained(module, n):
    """Moves weights and statistics off their initial values, as if the module had been trained."""
    gen = torch.Generator().manual_seed(n)
    state = module.state_dict()
    for k, t in state.items():
        if k.endswith("running_var"):
            state[k] = torch.rand(t.shape, generator=gen) + 0.5
        elif t.is_floating_point():
            state[k] = t + 0.1 * torch.randn(t.shape, generator=gen)
    return {k: t.clone() for k, t in state.items()}


def runner(module, mode):
    def fn(*xs):
        wide = any(x.dtype == torch.float64 for x in xs)
        module.to(torch.float64 if wide else torch.float32)
        module.train(mode == "train")
        out = module(*xs)
        if mode == "train":
            out = [out, module.eval()(*xs)]
        return out

    return fn


def write_class(cls_name, torch_name, sample):
    """Source of one class that builds and calls the module as the sample says."""
    ctor, fwd = Names("c"), Names("x")
    build = f"{torch_name}({call_args(sample.constructor_input.args, sample.constructor_input.kwargs, ctor)})"
    call = call_args(sample.forward_input.args, sample.forward_input.kwargs, fwd)
    params = f"self, {ctor.params()}" if ctor.tensors else "self"
    src = (
        f"class {cls_name}(nn.Module):\n    def __init__({params}):\n        super().__init__()\n"
        f"        self.m = {build}\n\n    def forward(self, {fwd.params()}):\n        return self.m({call})\n"
    )
    return src, ctor.tensors, fwd.tensors


def diverse(samples, cap):
    from types import SimpleNamespace

    from opcases import diverse as pick

    flat = [
        SimpleNamespace(
            input=0,
            s=s,
            args=(*s.constructor_input.args, *s.forward_input.args),
            kwargs={**s.constructor_input.kwargs, **s.forward_input.kwargs},
        )
        for s in samples
        if s.forward_input is not None
    ]
    return [f.s for f in pick(flat, cap)]


def cases_of(info, opt, tally):
    store, chunks = Store(), []
    genlib.seed(0)
    samples = info.module_inputs_func(info, "cpu", torch.float32, False, training=True)
    for number, s in enumerate(diverse(samples, opt.cap)):
        cls_name = f"Net{number}"
        try:
            src, ctor, fwd = write_class(cls_name, info.name, s)
            genlib.seed(0)
            module = define(src, cls_name)(*ctor)
            if hasattr(module.m, "initialize_parameters"):
                module(*fwd)
            state = trained(module, number)
        except Skip as e:
            tally[str(e)] += 1
            continue
        made = []
        for mode in ("eval", "train"):
            case = {
                "suite": "module",
                "op": info.name,
                "entry": info.name,
                "variant": mode,
                "fn": cls_name,
                "id": f"{info.name}/{mode}/{number}",
                "n_ctor": len(ctor),
                "weights": sorted(state),
            }
            key = f"{cls_name}_{mode}"
            try:
                store.add(
                    case,
                    runner(module, mode),
                    [t.detach().clone() for t in fwd],
                    key,
                    grad=mode == "eval",
                    reset=lambda module=module, state=state: module.load_state_dict(state),
                )
            except Skip as e:
                tally[str(e)] += 1
                continue
            except Exception as e:
                tally[f"{mode} raises {type(e).__name__} in torch"] += 1
                continue
            made.append(case)
            tally[f"cases {mode}"] += 1
        if made:
            store.arrays |= {
                f"{cls_name}.w.{k}": t.float().numpy() if t.is_floating_point() else t.numpy() for k, t in state.items()
            }
            store.arrays |= {f"{cls_name}.a{i}": t.detach().numpy() for i, t in enumerate(ctor)}
            chunks.append((made, src))
    return store, assemble(chunks)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--out", default="data/modules")
    p.add_argument("--only", default="*")
    p.add_argument("--cap", type=int, default=6, help="constructor/input samples per class")
    opt = p.parse_args()
    genlib.fixed_hash_seed()
    remember_constructor_arguments(nn.TransformerEncoderLayer)
    genlib.RENDER.append(render_module)
    from torch.testing._internal.common_modules import module_db

    start, summary, total = time.time(), {}, Counter()
    for info in module_db:
        if not fnmatch.fnmatch(info.name, opt.only):
            continue
        if reason := SCOPE["out_of_scope_modules"].get(info.name):
            summary[info.name] = {"out_of_scope": reason}
            continue
        tally = Counter()
        store, source = cases_of(info, opt, tally)
        if store.cases:
            store.save(opt.out, info.name.replace(".", "_"), source)
        total["classes with cases"] += bool(store.cases)
        total["classes with weights"] += any(c["weights"] for c in store.cases)
        total.update(tally)
        summary[info.name] = dict(tally)
    if opt.only == "*":
        (Path(opt.out) / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    for k, n in total.most_common():
        print(f"{n:6d}  {k}")
    print(
        f"{sum('out_of_scope' in s for s in summary.values()):6d}  classes out of scope;",
        [e for e, s in summary.items() if not s.get("cases eval") and "out_of_scope" not in s],
        "gave no case",
    )
    print(f"{time.time() - start:.0f} s")


if __name__ == "__main__":
    main()
