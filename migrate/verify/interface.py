"""Whether the states of the two modules have the same names, shapes, types and trainability."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .measure import dtype_problem
from .record import Step


def interface_problems(torch: Step, jax: dict[str, Any], x64: bool) -> Iterable[str]:
    """Differences between the states of the two modules, one text each."""
    facts = torch.facts
    shapes = {n.removeprefix("sd."): list(a.shape) for n, a in torch.arrays.items() if n.startswith("sd.")}
    state: dict[str, list[int]] = jax["state"]
    for title, names in (
        ("missing in JAX", shapes.keys() - state.keys()),
        ("only in JAX", state.keys() - shapes.keys()),
    ):
        if "mapping" in jax:
            names = {n for n in names if not n.endswith("num_batches_tracked")}
        if names:
            yield f"{title}: {listed(sorted(names))}"
    common = [n for n in shapes if n in state]
    for name in common:
        if shapes[name] != state[name]:
            yield f"{name}: shape {tuple(shapes[name])} in torch, {tuple(state[name])} in JAX"
        elif problem := dtype_problem(facts["dtypes"][name], jax["dtypes"][name], x64):
            yield f"{name}: {problem}"
    parameters = {*facts["parameters"], *facts["shared"]}
    trainable = set(jax["parameters"])
    if lost := sorted((parameters - set(facts["frozen"]) - trainable) & set(common)):
        yield f"trainable in torch, no nnx.Param in JAX: {listed(lost)}"
    if gained := sorted((trainable - parameters) & set(common)):
        yield f"buffers in torch, nnx.Param in JAX: {listed(gained)}"
    for name, shape in facts["temporary"].items():
        if name in jax["temporary"] and shape != jax["temporary"][name]:
            yield f"{name}: shape {tuple(shape)} in torch, {tuple(jax['temporary'][name])} in JAX"


def listed(names: Iterable[str]) -> str:
    """The first eight names in one line, and how many more there are."""
    every = list(names)
    return ", ".join(every[:8]) + (f" and {len(every) - 8} more" if len(every) > 8 else "")


def first_of(texts: list[str], limit: int = 6) -> str:
    """The first of some texts in one line, and how many more there are."""
    return "; ".join([*texts[:limit], *([f"and {len(texts) - limit} more"] if len(texts) > limit else [])])
