"""Which Python could read a source that this one cannot, where that can be told."""

from __future__ import annotations

import re
import sys

_PYTHON_2 = (
    re.compile(r"^\s*print\s+[^\s(=.,:\[]"),
    re.compile(r"^\s*print\s*>>"),
    re.compile(r"^\s*exec\s+['\"\w]"),
    re.compile(r"^\s*raise\s+[\w.]+\s*,"),
    re.compile(r"<>"),
    re.compile(r"`"),
    re.compile(r"(?<![\w.])(0\d+|\d+[lL])\b(?!\.)"),
    re.compile(r"\bur['\"]"),
)
_EXCEPT_COMMA = re.compile(r"^\s*except\s+[\w.]+\s*,\s*[\w.]+\s*:")
_PYTHON_312 = (
    re.compile(r"^\s*type\s+\w+(\[.*\])?\s*="),
    re.compile(r"^\s*(async\s+def|def|class)\s+\w+\s*\["),
)
_PYTHON_314 = (re.compile(r"(?<![\w'\"])[tT][rR]?['\"]"),)


def version_hint(line: str, message: str, running: tuple[int, int] = sys.version_info[:2]) -> str:
    """Advice for a syntax error with `message` in `line`; "" when nothing tells which Python wrote it.

    `running` is the version of the Python that refused it.
    """
    if _EXCEPT_COMMA.search(line):
        return "This is Python 2 (or 3.14): write `except (A, B):` or `except A as error:`"
    if "inconsistent use of tabs" in message or any(p.search(line) for p in _PYTHON_2):
        return "This is Python 2: convert it to Python 3 first"
    for version, newer in (((3, 12), _PYTHON_312), ((3, 14), _PYTHON_314)):
        if running < version and any(p.search(line) for p in newer):
            return _newer(version, running)
    if running < (3, 12) and message.startswith("f-string"):
        return _newer((3, 12), running)
    return ""


def _newer(version: tuple[int, int], running: tuple[int, int]) -> str:
    return "This needs Python {}.{} or newer; jaxmigrate runs on {}.{}".format(*version, *running)
