"""Shared by the generators (needs torch): render call arguments as source text,
run a snippet in torch, and save what it gave as the expected answer."""

import json
import os
import random
import sys
import tomllib
import warnings
from pathlib import Path

import numpy as np
import torch

HERE = Path(__file__).parent
SCOPE = tomllib.loads((HERE / "scope.toml").read_text())
MAX_ELEMENTS = 20_000  # per case, inputs and outputs each
POOL_CALLS = 200  # torch calls pooled for the distribution of a random case


RENDER = []  # further (value, names) -> source text or None, tried when no rule of lit() fits


class Skip(Exception):
    """This sample cannot become a case; the message is the reason that is counted."""


def fixed_hash_seed():
    """Some sample generators iterate over sets of str: pin the hash seed, then start over."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "PYTHONHASHSEED": "0"})
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)


SEED = int(os.environ.get("ORACLE_SEED", "0"))  # another number draws other inputs


def seed(n=0):
    n += SEED
    torch.manual_seed(n)
    random.seed(n)
    np.random.seed(n)


# ---------------------------------------------------------------- source text


class Names:
    """Collects tensors met while rendering, and names them x0, x1, ... (same tensor, same name)."""

    def __init__(self, prefix="x"):
        self.prefix, self.tensors = prefix, []

    def name(self, t):
        for i, seen in enumerate(self.tensors):
            if seen is t:
                return f"{self.prefix}{i}"
        self.tensors.append(t)
        return f"{self.prefix}{len(self.tensors) - 1}"

    def params(self):
        return ", ".join(f"{self.prefix}{i}" for i in range(len(self.tensors)))


def lit(v, names):
    """Source text of one argument; a tensor becomes a parameter of the function."""
    if isinstance(v, torch.Tensor):
        if v.layout != torch.strided or v.is_nested or v.is_quantized:
            raise Skip("sparse/nested/quantised input")
        return names.name(v)
    if isinstance(v, np.generic):
        v = v.item()
    if v is None or v is Ellipsis or isinstance(v, (bool, int, str)):
        return "..." if v is Ellipsis else repr(v)
    if isinstance(v, float):
        return repr(v) if np.isfinite(v) else f'float("{v}")'
    if isinstance(v, complex):
        return repr(v)
    if isinstance(v, (torch.dtype, torch.memory_format, torch.layout)):
        return str(v)
    if isinstance(v, torch.device):
        return repr(str(v))
    if isinstance(v, slice):
        return f"slice({lit(v.start, names)}, {lit(v.stop, names)}, {lit(v.step, names)})"
    if isinstance(v, list):
        return "[" + ", ".join(lit(a, names) for a in v) + "]"
    if isinstance(v, tuple):
        return "(" + ", ".join(lit(a, names) for a in v) + ("," if len(v) == 1 else "") + ")"
    for module, short in ((torch.nn.functional, "F"), (torch, "torch")):
        if callable(v) and getattr(module, getattr(v, "__name__", ""), None) is v:
            return f"{short}.{v.__name__}"
    for render in RENDER:
        if text := render(v, names):
            return text
    raise Skip(f"argument of type {type(v).__name__} has no literal form")


def call_args(args, kwargs, names):
    return ", ".join([lit(a, names) for a in args] + [f"{k}={lit(v, names)}" for k, v in kwargs.items()])


# ------------------------------------------------------------ expected values


def leaves(v):
    """Nested result -> flat list. None stays a leaf; dict values in insertion order."""
    if isinstance(v, (tuple, list)):
        return [x for a in v for x in leaves(a)]
    if isinstance(v, dict):
        return [x for a in v.values() for x in leaves(a)]
    return [v]


def to_numpy(v):
    """(array, dtype name) of one leaf."""
    if v is None:
        return np.zeros(0, np.float32), "None"
    if isinstance(v, (bool, int, float, complex)):
        return np.asarray(v), type(v).__name__
    if not isinstance(v, torch.Tensor):
        raise Skip(f"output of type {type(v).__name__}")
    if v.layout != torch.strided or v.is_nested or v.is_quantized:
        raise Skip("sparse/nested/quantised output")
    if v.numel() > MAX_ELEMENTS:
        raise Skip("output too big")
    name = str(v.dtype).removeprefix("torch.")
    v = v.detach().resolve_conj().resolve_neg()
    if name == "complex32":
        raise Skip("complex32 output")
    return (v.float() if name in ("bfloat16", "float16") else v).contiguous().numpy().copy(), name


def from_numpy(a):
    return torch.from_numpy(np.array(a))


def same(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")


def run(fn, inputs, n=0):
    seed(n)
    return [to_numpy(v) for v in leaves(fn(*[t.clone() for t in inputs]))]


def slack(single, double):
    """How far torch's own float32 answer lies from its float64 answer (the case's conditioning)."""
    if single.shape != double.shape or single.dtype.kind not in "fc":
        return None
    with np.errstate(all="ignore"):
        d = np.abs(single.astype(np.complex128) - double.astype(np.complex128))
    d = np.where(np.isfinite(d), d, 0)
    return d.astype(np.float32) if d.any() else None


def cotangent(a, k):
    ct = np.random.default_rng(k).uniform(0.5, 1.5, a.shape)
    return np.asarray(ct + 0.5j * ct[::-1] if a.dtype.kind == "c" and a.ndim else ct, a.dtype)


def gradients(fn, inputs, outs, dtype=None):
    """Gradients of sum(real(out * conj(ct))) wrt the float inputs, or None where torch has none."""
    cast = lambda t: t.to(dtype) if dtype and t.is_floating_point() else t  # noqa: E731
    xs = [cast(t.clone()) for t in inputs]
    diff = [i for i, t in enumerate(xs) if t.is_floating_point()]
    if not diff:
        return None
    for i in diff:
        xs[i].requires_grad_()
    seed(0)
    got = leaves(fn(*[t.clone() if t.requires_grad else t for t in xs]))
    loss, used = 0, []
    for k, (o, (a, _)) in enumerate(zip(got, outs, strict=True)):
        if isinstance(o, torch.Tensor) and o.requires_grad and a.size:
            ct = from_numpy(cotangent(a, k)).to(o.dtype)
            prod = o * ct.conj()
            loss, used = loss + (prod.real if prod.is_complex() else prod).sum(), [*used, k]
    if not used:
        return None
    grads = torch.autograd.grad(loss, [xs[i] for i in diff], allow_unused=True)
    zero = [torch.zeros_like(xs[i]) if g is None else g for i, g in zip(diff, grads, strict=True)]
    return used, diff, [to_numpy(g)[0] for g in zero]


class Store:
    """Arrays and case records of one source file."""

    def __init__(self):
        self.arrays, self.cases = {}, []

    def add(
        self,
        case,
        fn,
        inputs,
        key,
        *,
        grad=True,
        uninitialised=False,
        reset=lambda: None,
        verify=None,
        calls=POOL_CALLS,
    ):
        """Runs fn in torch and records the case. reset() is called before each run of fn;
        verify(outs, kind) may raise Skip before anything is recorded. A case that draws random numbers
        is called `calls` times to see whether they show in its answer."""
        if sum(t.numel() for t in inputs) > MAX_ELEMENTS:
            raise Skip("input too big")
        reset()
        outs = run(fn, inputs)
        runs = [outs]
        drew = not torch.equal(torch.get_rng_state(), torch.Generator().manual_seed(SEED).get_state())
        for n in range(1, calls if drew and not uninitialised else 2):
            reset()
            runs.append(run(fn, inputs, n))
        differs = sum(not all(same(a, b) for (a, _), (b, _) in zip(outs, c, strict=True)) for c in runs)
        kind = "shape" if uninitialised else "random" if differs else "value"
        if verify:
            verify(outs, kind)
        new = {f"{key}.i{k}": t.numpy() for k, t in enumerate(inputs)}
        new |= {f"{key}.o{k}": np.zeros_like(a) if uninitialised else a for k, (a, _) in enumerate(outs)}
        if kind == "value" and not any((np.isfinite(a) if a.dtype.kind in "fc" else a == a).any() for a, _ in outs):
            case["edge"] = "vacuous"  # no output has a finite value to compare
        if kind == "random":
            case["varies"] = differs / len(runs)
            pools = [np.concatenate([c[k][0].ravel() for c in runs]) for k in range(len(outs))]
            pools = [p[:: 1 + len(p) // 20_000] for p in pools]
            new |= {f"{key}.p{k}": p for k, p in enumerate(pools)}
        if kind == "value":
            double = lambda t: t.double() if t.dtype == torch.float32 else t  # noqa: E731
            try:
                reset()
                for k, ((a, _), (b, _)) in enumerate(zip(outs, run(fn, [double(t) for t in inputs]), strict=True)):
                    if (s := slack(a, b)) is not None:
                        new[f"{key}.s{k}"] = s
            except Exception:
                pass
        case |= {"key": key, "kind": kind, "n_in": len(inputs), "out": [n for _, n in outs], "loss": [], "grad": []}
        if kind == "value" and grad:
            new |= self.add_grad(case, fn, inputs, outs, key, reset)
        self.arrays |= new
        self.cases.append(case)

    def add_grad(self, case, fn, inputs, outs, key, reset):
        try:
            reset()
            found = gradients(fn, inputs, outs)
        except Exception as e:
            case["no_grad"] = f"{type(e).__name__}: {e}"[:80]
            return {}
        if found is None:
            return {}
        case["loss"], case["grad"], grads = found
        new = {f"{key}.c{k}": cotangent(outs[k][0], k) for k in case["loss"]}
        new |= {f"{key}.g{i}": g for i, g in zip(case["grad"], grads, strict=True)}
        try:
            reset()
            used, _, fine = gradients(fn, inputs, outs, torch.float64)
            for i, g, d in zip(case["grad"], grads, fine, strict=True):
                if used == case["loss"] and (s := slack(g, d)) is not None:
                    new[f"{key}.h{i}"] = s
        except Exception:
            pass
        return new

    def save(self, out, name, source):
        out = Path(out)
        (out / "src").mkdir(parents=True, exist_ok=True)
        (out / "expected").mkdir(exist_ok=True)
        (out / "src" / f"{name}.py").write_text(source)
        np.savez_compressed(out / "expected" / f"{name}.npz", **self.arrays)
        (out / "expected" / f"{name}.json").write_text(json.dumps(self.cases, indent=0) + "\n")


def define(source, name):
    """Executes the source text of one snippet (with the usual imports) and returns the object."""
    space = {"__name__": "snippet"}
    exec(compile(PREAMBLE + source, "snippet", "exec"), space)
    return space[name]


PREAMBLE = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\n"


def assemble(chunks):
    """[(case dicts, source of one def/class)] -> file text; sets every case's line range."""
    body, line = "", 0
    uses = "".join(src for _, src in chunks)
    head = "import torch\n" if "torch." in uses else ""
    head += "import torch.nn as nn\n" if "nn." in uses.replace("torch.nn.", "") else ""
    head += "import torch.nn.functional as F\n" if "F." in uses else ""
    head = head or "import torch\n"
    line = head.count("\n") + 1
    for cases, src in chunks:
        body += "\n\n" + src
        first = line + 2
        line += 2 + src.count("\n")
        for c in cases:
            c["lines"] = [first, line - 1]
    return head + body
