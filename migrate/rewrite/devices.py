"""Devices: `.to(device)`, `.cuda()`, `torch.device`, `x.device`."""

from __future__ import annotations

from .plan import Plan


def plan_devices(plan: Plan) -> None:
    """Devices: `.to(device)`, `.cuda()`, `torch.device`, `x.device`."""
