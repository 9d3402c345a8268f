"""op_db (OpInfo) -> one source file per entry, with the answers torch gives.

python opcases.py --out data/ops [--only 'linalg.*'] [--cap 6] [--also-int 0]
"""

import argparse
import fnmatch
import itertools
import json
import re
import time
from collections import Counter
from pathlib import Path

import genlib
import numpy as np
import torch
from genlib import SCOPE, Names, Skip, Store, assemble, call_args, define, leaves, lit, to_numpy
from torch.utils._pytree import tree_leaves, tree_map_only

SYMBOL = {
    "add": "+",
    "mul": "*",
    "sub": "-",
    "lshift": "<<",
    "rshift": ">>",
    "eq": "==",
    "mod": "%",
    "ge": ">=",
    "gt": ">",
    "le": "<=",
    "lt": "<",
    "matmul": "@",
    "and_": "&",
    "or_": "|",
    "xor": "^",
    "ne": "!=",
    "pow": "**",
    "truediv": "/",
    "floordiv": "//",
}
REFLECTED = {
    "__radd__": "+",
    "__rdiv__": "/",
    "__rmul__": "*",
    "__rand__": "&",
    "__ror__": "|",
    "__rxor__": "^",
    "__rmatmul__": "@",
    "__rmod__": "%",
    "__rpow__": "**",
    "__rsub__": "-",
}
EXTRA_OPERATOR = {"div": "truediv", "true_divide": "truediv", "floor_divide": "floordiv"}
ATTRIBUTE = {"T", "H", "mT", "mH", "real", "imag"}
# OpInfo calls these through a lambda that moves arguments: index of each OpInfo argument in the torch call.
REORDER = {
    "polygamma": (1, 0),
    "special.polygamma": (1, 0),
    "where": (1, 0, 2),
    "einsum": (1, 0),
    "nn.functional.embedding": (1, 0),
    "nn.functional.embedding_bag": (1, 0),
}


def spelled(name):
    """Dotted OpInfo name -> (source text of the function, the object) or None."""
    obj = torch
    for part in name.split("."):
        obj = getattr(obj, part, None)
    if not callable(obj) or name.startswith("_"):
        return None
    return f"F.{name[14:]}" if name.startswith("nn.functional.") else f"torch.{name}"


def forms(op):
    """Yields (variant, function that gives the body lines for (first, args, kwargs, names))."""
    name = op.name

    def function(text):
        def body(first, args, kwargs, names):
            moved = [first, *args]
            if order := REORDER.get(name):
                moved = [moved[i] for i in order] + moved[len(order) :]
            return [f"return {text}({call_args(moved, kwargs, names)})"]

        return body

    def method(text, statement=False):
        def body(first, args, kwargs, names):
            call = f"{subject(first, names)}.{text}({call_args(args, kwargs, names)})"
            return [call, f"return {names.name(first)}"] if statement else [f"return {call}"]

        return body

    def operator(sym, statement=False, swap=False):
        def body(first, args, kwargs, names):
            if len(args) != 1 or kwargs:
                raise Skip("operator form needs exactly two operands")
            x = subject(first, names)
            y = lit(args[0], names)
            if statement:
                return [f"{x} {sym}= {y}", f"return {x}"]
            return [f"return {y} {sym} {x}" if swap else f"return {x} {sym} {y}"]

        return body

    def f_inplace(text):
        def body(first, args, kwargs, names):
            x = subject(first, names)
            return [f"{text}({call_args([first, *args], kwargs | {'inplace': True}, names)})", f"return {x}"]

        return body

    if name in REFLECTED:
        yield "operator", operator(REFLECTED[name], swap=True)
        return
    if name == "__getitem__":
        yield "operator", lambda first, args, kw, names: [f"return {subject(first, names)}[{index(args[0], names)}]"]
        return
    if name in ATTRIBUTE:
        yield "method", lambda first, args, kw, names: [f"return {subject(first, names)}.{name}"]
    if text := spelled(name):
        yield "function", function(text)
    if name.endswith("_") and hasattr(torch.Tensor, name):
        yield "inplace", method(name, statement=True)
        return
    if hasattr(torch.Tensor, name) and name not in ATTRIBUTE:
        yield "method", method(name)
    if op.inplace_variant is not None:
        if name.startswith("nn.functional.") and text:
            yield "inplace", f_inplace(text)
        elif hasattr(torch.Tensor, name + "_"):
            yield "inplace", method(name + "_", statement=True)
    sym = EXTRA_OPERATOR.get(name) or getattr(op.operator_variant, "__name__", None)
    if sym in SYMBOL:
        yield "operator", operator(SYMBOL[sym])
        if op.inplace_variant is not None and name not in ("matmul", "eq", "ne", "lt", "le", "gt", "ge"):
            yield "augmented", operator(SYMBOL[sym], statement=True)
    elif sym in ("neg", "invert", "abs"):
        template = {"neg": "-{}", "invert": "~{}", "abs": "abs({})"}[sym]
        yield "operator", lambda first, args, kw, names: ["return " + template.format(subject(first, names))]
    for alias in op.aliases:
        if text := spelled(alias.name):
            yield f"alias:{alias.name}", function(text)


def subject(v, names):
    text = lit(v, names)
    if not text.startswith("x"):
        raise Skip("method form needs a tensor")
    return text


def index(v, names):
    """Subscript text as a person writes it: slices with colons, tuples without parentheses."""
    if isinstance(v, slice):
        a, b, c = ("" if p is None else lit(p, names) for p in (v.start, v.stop, v.step))
        return f"{a}:{b}" + (f":{c}" if c else "")
    if isinstance(v, tuple) and v:
        return ", ".join(index(a, names) for a in v) + ("," if len(v) == 1 else "")
    return lit(v, names)


def edge(sample):
    """ "empty": some tensor has no element; "extreme": some value is not finite or huge; else ""."""
    tensors = [v for v in tree_leaves((sample.input, sample.args, sample.kwargs)) if isinstance(v, torch.Tensor)]
    if any(t.numel() == 0 for t in tensors):
        return "empty"
    large = [t for t in tensors if t.is_floating_point() and not (t.detach().abs() < 1e3).all()]
    return "extreme" if large else ""


def signature(sample):
    """Samples with equal signature exercise the same call shape; used to pick diverse ones."""

    def sig(v):
        if isinstance(v, torch.Tensor):
            return f"{v.dtype}r{v.ndim}"
        if isinstance(v, (list, tuple)):
            return "(" + ",".join(sorted({sig(a) for a in v})) + ")"
        telling = isinstance(v, (bool, str, torch.dtype)) or (isinstance(v, float) and v in (0, 1))
        return str(v) if telling else type(v).__name__

    kwargs = tuple((k, sig(v)) for k, v in sample.kwargs.items())
    return edge(sample), sig(sample.input), tuple(map(sig, sample.args)), kwargs


def samples_of(op, dtype, cap):
    """OpInfo's sample inputs; where those are few (unary ops), its reference inputs too."""
    genlib.seed(0)
    samples = list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=False), 300))
    if len(samples) < cap:
        samples = list(itertools.islice(op.reference_inputs("cpu", dtype, requires_grad=False), 300))
    return diverse(samples, cap)


def diverse(samples, cap):
    """One sample per signature first, then second ones, ...; at most one with an empty tensor."""
    groups, hollow = {}, []
    for s in samples:
        tensors = [v for v in tree_leaves((s.input, s.args, s.kwargs)) if isinstance(v, torch.Tensor)]
        if edge(s) == "empty":
            hollow.append(s)
        elif sum(t.numel() for t in tensors) < genlib.MAX_ELEMENTS:
            groups.setdefault(signature(s), []).append(s)
    rounds = itertools.chain.from_iterable(itertools.zip_longest(*groups.values()))
    order = [s for s in rounds if s is not None]
    room = cap - bool(hollow)
    if len(groups) > room:  # more call shapes than places: take them evenly spread
        order = [order[i * len(groups) // room] for i in range(room)]
    return order[:room] + hollow[:1]


def dtype_for(op):
    return next((d for d in (torch.float32, torch.int64, torch.bool) if d in op.dtypes), None)


def check(outs, kind, call, sample):
    """The snippet must do what OpInfo itself does: same structure, and same values unless random."""
    clone = lambda v: tree_map_only(torch.Tensor, torch.clone, v)  # noqa: E731
    genlib.seed(0)
    want = [to_numpy(v) for v in leaves(call(clone(sample.input), *clone(sample.args), **clone(sample.kwargs)))]
    if len(want) != len(outs):
        raise Skip("snippet and OpInfo call differ in structure")
    for (a, _), (b, _) in zip(outs, want, strict=True):
        close = a.shape == b.shape and a.dtype == b.dtype
        if close and kind == "value":
            close = np.allclose(a, b, 1e-5, 1e-6, equal_nan=True)
        if not close:
            raise Skip("snippet and OpInfo call differ in value")


def cases_of(op, opt, tally):
    """Generates the Store and source chunks of one op_db entry."""
    entry = op.name + (f"|{op.variant_test_name}" if op.variant_test_name else "")
    store, chunks, drawn = Store(), [], []
    dtypes = [(dtype_for(op), opt.cap)]
    if opt.also_int and torch.float32 in op.dtypes:
        dtypes += [(d, opt.also_int) for d in (torch.int64, torch.bool) if d in op.dtypes]
    for dtype, cap in dtypes:
        if dtype is None:
            tally["no float32/int64/bool support"] += 1
            continue
        drawn += samples_of(op, dtype, cap)
    for variant, body in forms(op):
        for number, s in enumerate(drawn[:2] if variant.startswith("alias") else drawn):
            names, fn_name = Names(), f"case_{len(store.cases)}"
            case = {
                "suite": "op",
                "op": op.name,
                "entry": entry,
                "variant": variant,
                "fn": fn_name,
                "id": f"{entry}/{variant}/{number}",
                "edge": edge(s),
            }
            if mode := SCOPE["compare"].get(op.name):
                case["compare"] = mode
            try:
                lines = body(s.input, s.args, s.kwargs, names)
                src = f"def {fn_name}({names.params()}):\n" + "".join(f"    {x}\n" for x in lines)
                fn = define(src, fn_name)
                inputs = [genlib.from_numpy(t.detach().resolve_conj().resolve_neg().numpy()) for t in names.tensors]
                grad = op.supports_autograd and op.name not in SCOPE["no_grad"]
                call = op.inplace_variant if variant in ("inplace", "augmented") and op.inplace_variant else op.op
                store.add(
                    case,
                    fn,
                    inputs,
                    fn_name,
                    grad=grad,
                    uninitialised=op.name in SCOPE["uninitialised"],
                    verify=lambda outs, kind, s=s, call=call: check(outs, kind, call, s),
                )
            except Skip as e:
                tally[str(e)] += 1
                continue
            except Exception as e:
                tally[f"{variant.split(':')[0]} form raises {type(e).__name__} in torch"] += 1
                continue
            tally["cases"] += 1
            chunks.append(([case], src))
    return store, assemble(chunks)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--out", default="data/ops")
    p.add_argument("--only", default="*")
    p.add_argument("--cap", type=int, default=6, help="samples per op_db entry")
    p.add_argument("--also-int", type=int, default=0, help="extra int64 and bool samples (each) for float ops")
    opt = p.parse_args()
    genlib.fixed_hash_seed()
    from torch.testing._internal.common_methods_invocations import op_db

    start, summary, total = time.time(), {}, Counter()
    for op in op_db:
        entry = op.name + (f"|{op.variant_test_name}" if op.variant_test_name else "")
        if not fnmatch.fnmatch(op.name, opt.only):
            continue
        if reason := SCOPE["out_of_scope"].get(entry) or SCOPE["out_of_scope"].get(op.name):
            summary[entry] = {"out_of_scope": reason}
            continue
        tally = Counter()
        try:
            store, source = cases_of(op, opt, tally)
        except Exception as e:
            summary[entry] = {"failed": f"{type(e).__name__}: {e}"[:200]}
            continue
        if store.cases:
            store.save(opt.out, re.sub(r"\W+", "_", entry), source)
        summary[entry] = dict(tally)
        total.update(tally)
        total["entries with cases"] += bool(store.cases)
    Path(opt.out).mkdir(parents=True, exist_ok=True)
    if opt.only == "*":
        (Path(opt.out) / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    for k, n in total.most_common():
        print(f"{n:6d}  {k}")
    print(
        f"{sum('out_of_scope' in s for s in summary.values()):6d}  entries out of scope;",
        [e for e, s in summary.items() if not s.get("cases") and "out_of_scope" not in s],
        "gave no case",
    )
    print(f"{time.time() - start:.0f} s")


if __name__ == "__main__":
    main()
