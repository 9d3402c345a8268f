"""`x.to(...)`: a dtype, a device, both, or another tensor's, in any of torch's spellings.

Good: `x.to(torch.float16)` -> `x.astype(jnp.float16)`; `x.to(y)` -> `x.astype(y.dtype)`; `x.to(y.device)` -> `x`;
`x.to(device)` -> `jax.device_put(x, device)`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from ...rulebook.precedence import ATOM
from ...rulebook.rows import Row
from ..match import Refusal
from ..placement import is_dropped, may_be_name, named_device
from ..plan import Plan, Whole
from ..writer import Writer

WRAPPING = ("jnp.uint8", "jnp.int8", "jnp.int16")
IGNORED = ("non_blocking", "copy", "memory_format")


def to(plan: Plan, row: Row, call: ast.Call, receiver: ast.expr | None) -> Whole | Refusal:
    """The replacement for one `.to(...)` call."""
    if (
        receiver is None
        or any(isinstance(a, ast.Starred) for a in call.args)
        or any(k.arg is None for k in call.keywords)
    ):
        return Refusal("JM207", "torch.Tensor.to: the arguments are starred")
    dtype: ast.expr | None = None
    device: ast.expr | None = None
    other: ast.expr | None = None
    for arg in call.args:
        tag = plan.unit.kind(arg).tag
        if isinstance(arg, ast.Constant) and isinstance(arg.value, bool):
            continue
        if tag == "dtype":
            dtype = arg
        elif tag in ("Tensor", "Variable") and not _names_device(arg):
            other = arg
        elif tag in ("device", "str", "int") or _names_device(arg):
            device = arg
        else:
            return Refusal("JM203", f"torch.Tensor.to: is `{ast.unparse(arg)}` a dtype or a device? Nothing shows it",
                           "Write dtype= or device=.")  # fmt: skip
    for keyword in call.keywords:
        if keyword.arg == "dtype":
            dtype = keyword.value
        elif keyword.arg == "device":
            device = keyword.value
        elif keyword.arg == "other":
            other = keyword.value
        elif keyword.arg not in IGNORED:
            return Refusal("JM202", f"torch.Tensor.to: {keyword.arg} has no counterpart")
    if device is not None and (
        is_dropped(plan.unit, device) or (isinstance(device, ast.Constant) and device.value is None)
    ):
        plan.taken.update(ast.walk(device))
        device = None
    if isinstance(device, ast.Constant):
        return Refusal(
            "JM203", f"torch.Tensor.to: the device {device.value!r} is a string", 'Use torch.device("…") or drop it.'
        )
    named = named_device(plan, device) if device is not None and may_be_name(plan.unit, device) else None
    return _whole(receiver, dtype, device, other, named)


def _names_device(node: ast.expr) -> bool:
    """A name or attribute that says it is a device (`self.device`, `args.device`, `cfg.DEVICE`)."""
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name.lower() in ("device", "dev", "_device")


def _whole(
    receiver: ast.expr,
    dtype: ast.expr | None,
    device: ast.expr | None,
    other: ast.expr | None,
    named: Callable[[Writer], str] | None,
) -> Whole:
    """`named` writes a device that is given by its name."""
    kept = tuple(n for n in (receiver, dtype, device, other) if n is not None)

    def build(writer: Writer) -> str:
        if device is None and dtype is None and other is None:
            return writer.text(receiver)
        text = writer.at_level(receiver, ATOM, enclosed=False)
        if dtype is not None:
            target = writer.at_level(dtype, 1)
            if target in WRAPPING:  # torch wraps a float around, JAX saturates
                text = f"{text}.astype(jnp.int32)"
            text = f"{text}.astype({target})"
        elif other is not None:
            text = f"{text}.astype({writer.at_level(other, ATOM)}.dtype)"
        if device is not None:
            place = named(writer) if named is not None else writer.at_level(device, 1)
            text = f"jax.device_put({text}, {place})"
        return text

    return Whole(build, ATOM, kept)
