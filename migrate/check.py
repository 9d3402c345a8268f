"""Check a written file before anyone sees it."""

from __future__ import annotations

import builtins

from .read.unit import Unit
from .rewrite.imports import Written

_IMPLICIT = frozenset(dir(builtins)) | {
    "__file__", "__name__", "__doc__", "__class__", "__path__", "__spec__", "__package__", "__loader__", "__builtins__",
}  # fmt: skip


def check_output(unit: Unit, written: Written) -> str:
    """What is wrong with the output, "" when nothing: it does not compile, or uses names that nothing defines."""
    problem = _compiles(written.text)
    if problem and not _compiles(unit.source.text):
        return f"the output does not parse: {problem}"
    unbound = {n: line for n, line in written.unbound.items() if n not in _IMPLICIT}
    if unbound:
        before = {n.id for n in unit.scopes.free()}
        for name, line in sorted(unbound.items()):
            if name not in before:
                return f"the output uses {name!r}, which nothing defines (line {line})"
    return ""


def _compiles(text: str) -> str:
    """Why the text does not compile, "" when it does: more than the grammar, for instance repeated arguments."""
    try:
        compile(text, "<converted>", "exec", dont_inherit=True)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    except (ValueError, RecursionError) as error:
        return str(error)
    return ""
