"""Compares what converted code returned with what torch returned (numpy only, no torch)."""

import numpy as np

TOLERANCE = {
    "float32": (1e-4, 1e-5),
    "float64": (1e-4, 1e-5),
    "float": (1e-4, 1e-5),
    "complex64": (1e-4, 1e-5),
    "complex128": (1e-4, 1e-5),
    "complex": (1e-4, 1e-5),
    "bfloat16": (2e-2, 1e-2),
    "float16": (2e-3, 1e-3),
}
GRAD_TOLERANCE = (1e-3, 1e-4)
SLACK = 10  # times |float32 - float64| in torch itself, but at most SLACK_CAP of the largest value
SLACK_CAP = 1e-2


class Wrong(Exception):
    """The converted code ran and gave something else than torch."""


def leaves(v):
    """Same flattening as on the torch side: None stays a leaf."""
    if isinstance(v, (tuple, list)):
        return [x for a in v for x in leaves(a)]
    if isinstance(v, dict):
        return [x for a in v.values() for x in leaves(a)]
    return [v]


def array(v):
    """numpy array of one leaf; bfloat16 and float16 widened, None empty."""
    if v is None:
        return np.zeros(0, np.float32), "None"
    if hasattr(v, "get_value"):  # an nnx.Variable returned as it is
        v = v.get_value()
    name = str(getattr(v, "dtype", type(v).__name__))
    a = np.asarray(v)
    if a.dtype == object:
        raise Wrong(f"returned {type(v).__name__}, not an array")
    return (a.astype(np.float32) if name in ("bfloat16", "float16") else a), name


def kind(name):
    """int64 and int32 are one kind, float64 and float32 too; reduced floats stay distinct."""
    for k, starts in {"int": ("int", "uint"), "bool": ("bool",), "complex": ("complex",)}.items():
        if name.startswith(starts):
            return k
    return name if name in ("bfloat16", "float16", "None") else "float"


def same_type(name, want, what):
    if kind(name) != kind(want):
        raise Wrong(f"{what}: dtype {name}, torch has {want}")


def same_shape(got, want, what):
    if got.shape != want.shape:
        raise Wrong(f"{what}: shape {got.shape}, torch has {want.shape}")


def close(got, want, tol, slack, what):
    if want.size == 0:
        return
    if want.dtype.kind not in "fc":
        if not np.array_equal(got, want):
            n = int(np.sum(got != want))
            raise Wrong(f"{what}: {n} of {want.size} values differ, e.g. {first(got, want, got != want)}")
        return
    rtol, atol = tol
    with np.errstate(all="ignore"):
        limit = atol + rtol * np.abs(want)
        if slack is not None:
            finite = np.abs(want[np.isfinite(want)])
            limit = limit + np.minimum(SLACK * slack, SLACK_CAP * (finite.max() if finite.size else 0))
        bad = ~((np.abs(got - want) <= limit) | (got == want) | (np.isnan(got) & np.isnan(want)))
    if bad.any():
        raise Wrong(f"{what}: {int(bad.sum())} of {want.size} values differ, e.g. {first(got, want, bad)}")


def first(got, want, bad):
    return f"{got[bad].flat[0]!s} for {want[bad].flat[0]!s}"


def values(outs, case, z):
    """Raises Wrong unless the flat list outs is torch's answer."""
    if len(outs) != len(case["out"]):
        raise Wrong(f"{len(outs)} outputs, torch has {len(case['out'])}")
    mode = case.get("compare", "")
    for k, (v, want_name) in enumerate(zip(outs, case["out"], strict=True)):
        (got, name), want = array(v), z[f"{case['key']}.o{k}"]
        same_type(name, want_name, f"output {k}")
        if case["suite"] == "optim" and got.ndim == 2 and got.shape == want.shape[::-1]:
            got = got.T  # a kernel kept in flax layout is the same weight
        same_shape(got, want, f"output {k}")
        if case["kind"] == "shape" or (mode.startswith("only:") and mode != f"only:{k}"):
            continue
        if mode == "abs":
            got, want = np.abs(got), np.abs(want)
        close(got, want, TOLERANCE.get(want_name, (0, 0)), get(z, f"{case['key']}.s{k}"), f"output {k}")


def gradients(grads, case, z):
    for i, g in zip(case["grad"], grads, strict=True):
        got, want = np.asarray(g), z[f"{case['key']}.g{i}"]
        same_shape(got, want, f"gradient of input {i}")
        close(got, want, GRAD_TOLERANCE, get(z, f"{case['key']}.h{i}"), f"gradient of input {i}")


def distribution(calls, case, z):
    """calls: flat output lists of repeated calls. Shape and dtype must match, the answers must vary
    between calls, and the pooled values must look drawn from torch's distribution."""
    for outs in calls[:1]:
        values(outs, case | {"kind": "shape"}, z)
    for k in range(len(case["out"])):
        got = [array(outs[k])[0] for outs in calls]
        want = z[f"{case['key']}.p{k}"]
        if want.size == 0 or np.ptp(want) == 0:
            continue
        if case["varies"] > 0.3 and all(np.array_equal(got[0], g) for g in got[1:]):
            raise Wrong(f"output {k}: the same {len(got)} times, torch draws anew")
        pooled = np.concatenate([g.ravel() for g in got])
        grouped = any(s in case["op"] for s in ("dropout2d", "dropout3d", "feature", "fractional", "rrelu"))
        n, m = (len(got), len(got)) if grouped else (pooled.size, want.size)
        limit = 3 * np.sqrt((n + m) / (n * m))
        if (d := distance(pooled, want)) > limit:
            raise Wrong(
                f"output {k}: distribution differs (KS {d:.2f} > {limit:.2f}); "
                f"mean {pooled.mean():.3g} for {want.mean():.3g}"
            )


def distance(a, b):
    """Kolmogorov-Smirnov distance that ignores shifts of a few ulps (values may sit on atoms)."""
    a, b = np.sort(a.astype(np.float64)), np.sort(b.astype(np.float64))
    t = np.concatenate([a, b])
    e = 1e-4 * (1 + np.abs(t))
    t = t + 2 * e  # just past each atom
    cdf = lambda s, x: np.searchsorted(s, x, side="right") / len(s)  # noqa: E731
    return max((cdf(a, t - e) - cdf(b, t + e)).max(), (cdf(b, t - e) - cdf(a, t + e)).max())


def get(z, key):
    return z[key] if key in z.files else None
