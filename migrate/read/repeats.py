"""Values of which several parts are the same memory (`x.expand(3, 4)`, `[x] * 3`): torch writes to all of them at once.

Such a value reaches one site more, "repeat …", next to the memory itself. New memory made of it does not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

Sites = frozenset[str]
NONE: Sites = frozenset()
# Views whose elements may lie on top of each other, and what gives the items of its arguments more than once.
TORCH = frozenset(["expand", "expand_as", "broadcast_to", "broadcast_tensors", "meshgrid", "unfold", "as_strided"])
OTHERS = frozenset(
    """einops.repeat itertools.repeat itertools.cycle itertools.product itertools.permutations itertools.combinations
    itertools.combinations_with_replacement itertools.pairwise itertools.tee itertools.accumulate
    random.choices builtins.dict.fromkeys""".split()  # noqa: SIM905
)


def repeated(what: str, node: ast.expr) -> Sites:
    return frozenset({f"repeat {what} in line {node.lineno}"})


def repeats(sites: Sites) -> Sites:
    return frozenset(s for s in sites if s.startswith("repeat "))


def repeats_of_call(dotted: str, node: ast.Call, given: Sites) -> Sites:
    """What is added to the result of a call of something imported, or of a tensor's method, that may repeat `given`."""
    short = dotted.rpartition(".")[2]
    torch = short in TORCH and dotted.startswith("torch.") and not dotted.startswith("torch.nn.")
    return repeated(f"{short}()", node) if given and (torch or dotted in OTHERS) else NONE


def repeats_of_items(items: Sequence[Sites], node: ast.expr) -> Sites:
    """What is added to a container with these items when two of them may be the same memory."""
    seen: set[str] = set()
    for sites in items:
        if not seen.isdisjoint(sites):
            return repeated("a tensor held twice", node)
        seen |= sites
    return NONE


def told(sites: Iterable[str]) -> str:
    """For people: by which expression memory is repeated; "" when it is not."""
    return next((s.removeprefix("repeat ") for s in sorted(sites) if s.startswith("repeat ")), "")
