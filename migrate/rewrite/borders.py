"""Where the converted files end: imports of project files that this run does not convert."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from .plan import Plan


def plan_borders(plan: Plan) -> None:
    """Report imports of files of the same package that are not part of the run: they may be torch, and what they need
    is unknown."""
    known = plan.project.by_module
    for node in plan.unit.tree.all(ast.ImportFrom):
        if not (node.level or _own(plan, node)):
            continue
        base = plan.unit.scopes.absolute(node)
        missing = [a.name for a in node.names if not _converted(base, a.name, known)]
        if missing:
            where = "." * node.level + (node.module or "")
            plan.found(
                "JM401",
                node,
                f"{where}.{missing[0]}" if node.module else f"{where}{missing[0]}",
                f"`{where}` is not converted in this run: {', '.join(missing)} may want rngs or a key",
                advice="Convert the folder that holds both files.",
            )


def _own(plan: Plan, node: ast.ImportFrom) -> bool:
    """Whether an absolute import names the package that the file is in."""
    package = plan.unit.source.package
    return bool(package) and (node.module or "").partition(".")[0] == package


def _converted(base: str, name: str, known: Mapping[str, object]) -> bool:
    """Whether the imported module, or the submodule of that name, is in the run."""
    return not base.startswith(".") and (base in known or f"{base}.{name}" in known)
