"""A working folder for a script: what lies around the one it is started in, without letting it write there."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

_SMALL = 1 << 20  # bytes up to which a file is copied, so that a script may write over it
_ENTRIES = 2000
_ABOVE = 2  # folders above the working folder whose entries are visible as `../data` and `../../data`


def mirror(folder: Path, scratch: Path) -> Path:
    """Rebuild `folder` and the two folders above it inside `scratch`; returns the counterpart of `folder`.

    Folders are real and writable, small files are copies, large files links. Of the folders above, the other entries
    are links. After two thousand entries folders are links too.
    """
    folder = folder.resolve()
    chain = [folder, *folder.parents[:_ABOVE]]
    target = scratch / "around"
    target.mkdir(parents=True)
    for above, below in zip(reversed(chain[1:]), reversed(chain[:-1]), strict=True):
        for entry in _entries(above):
            if entry != below:
                (target / entry.name).symlink_to(entry)
        target = target / below.name
        target.mkdir()
    _copy(folder, target, [_ENTRIES])
    return target


def _copy(folder: Path, target: Path, left: list[int]) -> None:
    for entry in _entries(folder):
        left[0] -= 1
        if entry.is_dir() and not entry.name.startswith(".") and left[0] > 0:
            (target / entry.name).mkdir()
            _copy(entry, target / entry.name, left)
        elif entry.is_file() and entry.stat().st_size <= _SMALL and os.access(entry, os.R_OK):
            shutil.copy(entry, target / entry.name)
        else:
            (target / entry.name).symlink_to(entry.resolve())


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())[:_ENTRIES]
    except OSError:
        return []
