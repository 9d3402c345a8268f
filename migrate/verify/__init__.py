"""Run the original under torch and the converted program without it, and show where they part.

Nothing heavy is imported until a name is used. The folder is also loaded, under another name, inside the two worker
processes (see `launch.py`), so its modules import only each other.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .cases import ArraySpec, Case, CaseError, case_from_options, cases_from_toml, find_cases, parse_case
    from .results import CaseReport, Divergence, Stage, VerifyOptions, VerifyReport, report_json
    from .run import verify_pair
    from .scripts import verify_script
    from .table import render_table

_HOME = {
    "ArraySpec": "cases",
    "Case": "cases",
    "CaseError": "cases",
    "case_from_options": "cases",
    "cases_from_toml": "cases",
    "find_cases": "cases",
    "parse_case": "cases",
    "CaseReport": "results",
    "Divergence": "results",
    "Stage": "results",
    "VerifyOptions": "results",
    "VerifyReport": "results",
    "report_json": "results",
    "render_table": "table",
    "verify_pair": "run",
    "verify_script": "scripts",
}

__all__ = [
    "ArraySpec",
    "Case",
    "CaseError",
    "CaseReport",
    "Divergence",
    "Stage",
    "VerifyOptions",
    "VerifyReport",
    "case_from_options",
    "cases_from_toml",
    "find_cases",
    "parse_case",
    "render_table",
    "report_json",
    "verify_pair",
    "verify_script",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOME[name]}", __name__), name)
