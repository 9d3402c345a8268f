"""The formats of `check`, by name. Each is drawn from the same list of findings."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from . import json
from .github import render_github
from .junit import render_junit
from .markdown import render_markdown
from .sarif import render_sarif
from .shown import Shown
from .style import PLAIN, Style
from .text import finding_line


def render_text(shown: Shown, style: Style = PLAIN) -> str:
    """A line for each finding."""
    return "".join(f"{finding_line(f, style)}\n" for f in shown.listed)


FORMATS: Mapping[str, Callable[[Shown], str]] = {
    "text": render_text,
    "json": lambda shown: json.render(shown.run, shown),
    "jsonl": json.render_lines,
    "sarif": render_sarif,
    "github": render_github,
    "markdown": render_markdown,
    "junit": render_junit,
}
