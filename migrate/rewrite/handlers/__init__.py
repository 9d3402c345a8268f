"""Handlers: targets that a template cannot say.

Each takes the plan, the row, the call and its receiver, and gives a Whole or a Refusal.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping

from ...rulebook.rows import Row
from ..match import Refusal
from ..plan import Plan, Whole
from .to import to

Handler = Callable[[Plan, Row, ast.Call, ast.expr | None], Whole | Refusal]

HANDLERS: Mapping[str, Handler] = {"to": to}
