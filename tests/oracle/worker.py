"""Runs converted cases in a process that cannot import torch. Spoken to by pool.py:
one JSON job per line on stdin, JSON lines back on the original stdout."""

import importlib.abc
import importlib.util
import json
import os
import sys
import warnings
from pathlib import Path

import compare
import numpy as np
import plugins

RANDOM_CALLS = 32


class Forbid(importlib.abc.MetaPathFinder):
    def __init__(self, names):
        self.names = names

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.names:
            raise ImportError(f"converted code still needs {name}")
        return None


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Lets `import torch` stand in a file of whose functions the converter left one, and says so: any use of what was
    imported fails. So a case is judged by its own function, and not by the import that its neighbour keeps."""

    def __init__(self, names):
        self.names = names

    def find_spec(self, name, path=None, target=None):
        return (
            importlib.util.spec_from_loader(name, self, is_package=True) if name.split(".")[0] in self.names else None
        )

    def exec_module(self, module):
        def missing(attribute):
            if attribute.startswith("__"):
                raise AttributeError(attribute)
            raise AttributeError(f"converted code still needs {module.__name__}.{attribute}")

        module.__getattr__ = missing


class Jax:
    """Arrays, gradients and model handling on the JAX side."""

    def __init__(self, plugins):
        import jax
        import jax.numpy as jnp

        self.jax, self.jnp, self.plugins = jax, jnp, plugins

    def put(self, a):
        return self.jnp.asarray(a)

    def call(self, fn, args, n=0):
        return compare.leaves(fn(*args, **self.plugins.random_arguments(fn, len(args), n)))

    def grad(self, fn, args, case, z):
        jnp, which = self.jnp, case["grad"]

        def loss(diff):
            full = list(args)
            for i, d in zip(which, diff, strict=True):
                full[i] = d
            outs, total = self.call(fn, full), 0.0
            for k in case["loss"]:
                o = outs[k].get_value() if hasattr(outs[k], "get_value") else jnp.asarray(outs[k])
                ct = z[f"{case['key']}.c{k}"]
                total = total + (jnp.real(o * ct.conj()) if ct.dtype.kind == "c" else o * ct).sum()
            return total

        return self.jax.grad(loss)([args[i] for i in which])

    def model(self, cls, ctor, weights, module):
        model = cls(*ctor, **self.plugins.random_arguments(cls, len(ctor), 0))
        if weights:
            self.plugins.load_weights(model, weights, module)
        return model

    def mode(self, model, train):
        getattr(model, "train" if train else "eval", lambda: None)()


class Torch(Jax):
    """The same for unconverted source, only to prove the kit: everything must pass."""

    def __init__(self, plugins, shift=0.0):
        import torch

        self.torch, self.shift = torch, shift
        torch.set_num_threads(1)

    def put(self, a):
        return self.torch.from_numpy(np.array(a))

    def out(self, v):
        if not isinstance(v, self.torch.Tensor):
            return v
        v = v.detach().resolve_conj().resolve_neg()
        if self.shift and v.dtype.is_floating_point:
            v = v * (1 + self.shift) + self.shift
        if v.dtype == self.torch.bfloat16:
            import ml_dtypes

            return v.float().numpy().astype(ml_dtypes.bfloat16)
        return v.numpy()

    def call(self, fn, args, n=0):
        self.torch.manual_seed(n)
        return [self.out(v) for v in compare.leaves(fn(*[a.clone() for a in args]))]

    def grad(self, fn, args, case, z):
        args = [a.clone().requires_grad_() if i in case["grad"] else a for i, a in enumerate(args)]
        outs = compare.leaves(fn(*[a.clone() for a in args]))
        total = 0
        for k in case["loss"]:
            prod = outs[k] * self.put(z[f"{case['key']}.c{k}"]).conj()
            total = total + (prod.real if prod.is_complex() else prod).sum()
        grads = self.torch.autograd.grad(total, [args[i] for i in case["grad"]], allow_unused=True)
        return [
            np.zeros(args[i].shape, "f4") if g is None else self.out(g)
            for i, g in zip(case["grad"], grads, strict=False)
        ]

    def model(self, cls, ctor, weights, module):
        model = cls(*ctor)
        model.load_state_dict({k: self.put(v) for k, v in weights.items()})
        return model


def function_of(side, case, module, z):
    """The callable that a case runs: a function, or a freshly built model in the right mode."""
    target = getattr(module, case["fn"])
    if case["suite"] != "module":
        return target
    ctor = [side.put(z[f"{case['fn']}.a{i}"]) for i in range(case["n_ctor"])]
    model = side.model(target, ctor, {k: z[f"{case['fn']}.w.{k}"] for k in case["weights"]}, module)

    side.mode(model, case["variant"] == "train")
    if case["variant"] == "eval":  # modes are not switched here: this function is differentiated
        return lambda *xs: model(*xs)

    def forward(*xs):
        side.mode(model, True)
        out = model(*xs)
        side.mode(model, False)
        return [out, model(*xs)]

    return forward


def run_case(side, case, module, z):
    """(outcome, stage, detail)"""
    stage = "call"
    try:
        fn = function_of(side, case, module, z)
        args = [side.put(z[f"{case['key']}.i{i}"]) for i in range(case["n_in"])]
        if case["kind"] == "random":
            compare.distribution([side.call(fn, args, n) for n in range(RANDOM_CALLS)], case, z)
            return "pass", "", ""
        compare.values(side.call(fn, args), case, z)
        if case["grad"]:
            stage = "grad"
            compare.gradients(side.grad(fn, args, case, z), case, z)
        return "pass", "", ""
    except compare.Wrong as e:
        return "WRONG", stage, str(e)[:200]
    except Exception as e:
        return "crash", stage, f"{type(e).__name__}: {e}".split("\n")[0][:200]


def load(path):
    """The converted file as a module. It may import what was emitted beside it, and each suite has files of its own."""
    folder = str(Path(path).parent)
    if folder != load.folder:
        if load.folder:
            sys.path.remove(load.folder)
        for name, module in list(sys.modules.items()):
            if load.folder and str(Path(getattr(module, "__file__", None) or "").parent) == load.folder:
                del sys.modules[name]
        sys.path.insert(0, folder)
        load.folder = folder
    spec = importlib.util.spec_from_file_location("converted", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["converted"] = module
    spec.loader.exec_module(module)
    return module


load.folder = ""


def main():
    config = json.loads(sys.argv[1])
    speak = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what converted code prints must not mix in
    warnings.simplefilter("ignore")
    if config["backend"] == "torch":
        side = Torch(plugins, config["shift"])
    else:
        forbid, absent = Forbid(config["forbid"]), Absent(config["forbid"])
        sys.meta_path.insert(0, forbid)
        side = Jax(plugins)
    say = lambda **kw: speak.write(json.dumps(kw) + "\n")  # noqa: E731
    say(ready=True)
    for line in sys.stdin:
        job = json.loads(line)
        say(begin="import")
        try:
            if config["backend"] == "jax":
                for name in [n for n in sys.modules if n.split(".")[0] in config["forbid"]]:
                    del sys.modules[name]
                sys.meta_path[0] = absent if job["left"] else forbid
            module = load(job["py"])
            problem = None
        except BaseException as e:
            problem = f"{type(e).__name__}: {e}".split("\n")[0][:200]
        with np.load(job["npz"]) as z:
            for case in job["cases"]:
                say(begin=case["id"])
                out = ("crash", "import", problem) if problem else run_case(side, case, module, z)
                say(id=case["id"], outcome=out[0], stage=out[1], detail=out[2])
        say(done=job["py"])


if __name__ == "__main__":
    main()
