"""Devices as JAX has them: what a torch device expression becomes, and which device arguments go."""

from __future__ import annotations

import ast
from collections.abc import Callable

from ..read.kinds import Kind
from ..read.unit import Unit
from .plan import Plan
from .writer import Writer

DROPPED = Kind("device", "tensor", why="the device of an array")  # placing there changes nothing: the argument goes
DEFAULT = "jax.devices()[0]"


def is_dropped(unit: Unit, node: ast.expr | None) -> bool:
    """Whether a device argument goes: the device of another array, or a literal name of a device."""
    if node is None:
        return False
    kind = unit.kind(node)
    if kind.tag == "device" and kind.name == "tensor":
        return True
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and _platform(node.value) is not None


def _platform(text: str) -> tuple[str, str] | None:
    """("gpu", "1") of "cuda:1"; None for what is no device name."""
    name, _, index = text.partition(":")
    platform = {"cuda": "gpu", "cpu": "cpu", "xpu": "gpu", "hip": "gpu"}.get(name)
    if platform is None or (index and not index.isdigit()):
        return None
    return platform, index or "0"


def asks_for_gpu(unit: Unit, test: ast.expr) -> bool:
    """`torch.cuda.is_available()`."""
    return isinstance(test, ast.Call) and unit.resolve(test.func) in (
        "torch.cuda.is_available",
        "torch.accelerator.is_available",
    )


def is_default_choice(unit: Unit, node: ast.expr) -> bool:
    """`"cuda" if torch.cuda.is_available() else "cpu"`, also with further platforms: the default device of JAX."""
    if (
        not isinstance(node, ast.IfExp)
        or not isinstance(node.body, ast.Constant)
        or not isinstance(node.body.value, str)
    ):
        return False
    test = unit.resolve(node.test.func) or "" if isinstance(node.test, ast.Call) else ""
    if not (asks_for_gpu(unit, node.test) or test.startswith(("torch.backends.mps.", "torch.xpu.is_available"))):
        return False
    if not node.body.value.startswith(("cuda", "mps", "xpu")):
        return False
    if isinstance(node.orelse, ast.Constant):
        return node.orelse.value == "cpu"
    return is_default_choice(unit, node.orelse)


def device_of(plan: Plan, node: ast.expr, index: ast.expr | None = None) -> tuple[Callable[[Writer], str], str] | None:
    """How to write the JAX device for torch's name of it, and what to say about it ("" when nothing).

    None when the name is not understood.
    """
    unit = plan.unit
    if is_default_choice(unit, node):
        return (lambda _: DEFAULT), ""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        found = _platform(node.value)
        if found is None:
            return None
        platform, number = found
        if index is not None:
            return (lambda w: f'jax.devices("{platform}")[{w.at_level(index, 1)}]'), ""
        return (lambda _: f'jax.devices("{platform}")[{number}]'), ""
    if isinstance(node, ast.IfExp):
        return _choice(plan, node)
    if isinstance(node, ast.JoinedStr):
        return _numbered(node)
    kind = unit.kind(node)
    if kind.tag == "device":
        return (lambda w: w.at_level(node, 1)), ""
    if kind.tag == "int":
        return (lambda w: f'jax.devices("gpu")[{w.at_level(node, 1)}]'), ""
    if kind.tag in ("str", "unknown") and isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
        return named_device(plan, node), ""
    return None


def named_device(plan: Plan, node: ast.expr) -> Callable[[Writer], str]:
    """The device that a value names, which is known only when the program runs (`args.device`)."""
    name = plan.layer("device_of")
    return lambda w: f"{name}({w.at_level(node, 1)})"


def may_be_name(unit: Unit, node: ast.expr) -> bool:
    """Whether a value that stands for a device may be its name: a text, or an attribute of unknown kind."""
    kind = unit.kind(node)
    return kind.tag in ("str", "int") or (kind.tag == "unknown" and isinstance(node, (ast.Attribute, ast.Subscript)))


def _choice(plan: Plan, node: ast.IfExp) -> tuple[Callable[[Writer], str], str] | None:
    """`"cuda" if flag else "cpu"`."""
    names = [n.value for n in (node.body, node.orelse) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    found = [p for n in names if (p := _platform(n)) is not None]
    if len(found) != 2:
        return None
    (yes, first), (no, second) = found
    if first != second:
        return None

    def build(writer: Writer) -> str:
        return f'jax.devices("{yes}" if {writer.at_level(node.test, 2)} else "{no}")[{first}]'

    return build, ""


def _numbered(node: ast.JoinedStr) -> tuple[Callable[[Writer], str], str] | None:
    """`f"cuda:{rank}"`."""
    parts = node.values
    if len(parts) != 2 or not isinstance(parts[0], ast.Constant) or not isinstance(parts[1], ast.FormattedValue):
        return None
    number = parts[1].value
    if parts[0].value != "cuda:" or parts[1].format_spec is not None:
        return None
    return (lambda w: f'jax.devices("gpu")[{w.at_level(number, 1)}]'), ""


def is_device_position(unit: Unit, node: ast.expr) -> bool:
    """Whether `node` stands where torch wants a device: `device=…` of a torch call, `.to(…)`, `torch.device(…)`."""
    parent = unit.tree.parents.get(node)
    if isinstance(parent, ast.keyword):
        return parent.arg == "device" and _is_torch_call(unit, unit.tree.parents.get(parent))
    if not isinstance(parent, ast.Call) or node not in parent.args:
        return False
    if unit.resolve(parent.func) in ("torch.device", "torch.set_default_device"):
        return True
    func = parent.func
    if not isinstance(func, ast.Attribute) or func.attr not in ("to", "cuda"):
        return False
    return unit.kind(func.value).tag in ("Tensor", "Variable", "Module", "unknown")


def _is_torch_call(unit: Unit, call: ast.AST | None) -> bool:
    if not isinstance(call, ast.Call):
        return False
    dotted = unit.resolve(call.func) or ""
    if dotted.startswith("torch."):
        return True
    if not isinstance(call.func, ast.Attribute):
        return False
    receiver = unit.kind(call.func.value)
    if receiver.tag == "Module" and receiver.facts is not None:
        return call.func.attr in ("to", "to_empty")  # its other methods are the project's own
    return receiver.tag in ("Tensor", "Variable", "Module")
