"""What git ignores: the .gitignore files of a folder, of those below it, and of those above it in the same
repository."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec


class Ignored:
    """Answers for paths below `root`. Whatever the user named himself is not ignored, so a root that git ignores as a
    whole counts as if its repository began there."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._specs: dict[Path, GitIgnoreSpec | None] = {}

    def covers(self, path: Path, *, folder: bool) -> bool:
        """Whether git ignores a file or folder: the deepest .gitignore that speaks of it decides."""
        path = path.parent.resolve() / path.name
        return self._ignores(path, folder, self._top)

    @cached_property
    def _top(self) -> Path:
        """The repository's folder, or the root itself."""
        top = next((f for f in (self.root, *self.root.parents) if (f / ".git").exists()), self.root)
        for inner in (self.root, *self.root.parents):
            if inner == top:
                return top
            if self._ignores(inner, True, top):
                return self.root
        return top

    def _ignores(self, path: Path, folder: bool, top: Path) -> bool:
        for home in path.parents:
            if (spec := self._spec(home)) is not None:
                name = path.relative_to(home).as_posix() + ("/" if folder else "")
                verdict = spec.check_file(name).include
                if verdict is not None:
                    return verdict
            if home == top:
                break
        return False

    def _spec(self, home: Path) -> GitIgnoreSpec | None:
        if home not in self._specs:
            self._specs[home] = _read(home / ".gitignore")
        return self._specs[home]


def _read(path: Path) -> GitIgnoreSpec | None:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    from pathspec import GitIgnoreSpec

    return GitIgnoreSpec.from_lines(lines)
