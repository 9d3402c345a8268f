#!/usr/bin/env python
"""Write docs/img/*.png: the review of corpus/vit.py as a page and in the terminal, in a headless Chromium."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.text import Text

from jaxmigrate.cli import main as jaxmigrate

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "img"
PROGRAM = "corpus/vit.py"


def terminal(folder: Path) -> str:
    """What the review shows on a terminal: the second hunk, after the first was accepted."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "jaxmigrate.cli", "review", PROGRAM, "--decisions", str(folder / "d.json")]
    env = {**os.environ, "TERM": "xterm-256color"}
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=theirs, stderr=theirs, env=env) as process:
        os.close(theirs)
        process.stdin.write(b"y\n")  # type: ignore[union-attr]
        process.stdin.close()  # type: ignore[union-attr]
        shown = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:
                break
            if not part:
                break
            shown += part
    text = shown.decode().replace("\r\n", "\n")
    return text[text.index("\n\x1b", text.index("Convert this")) :].split("1 hunk accepted")[0]


def shoot(browser: Any, url: str, name: str, keys: str = "", **size: int) -> None:
    page = browser.new_page(viewport={"width": 1300, "height": 720, **size})
    page.goto(url)
    page.wait_for_timeout(400)
    for key in keys:
        page.keyboard.press(key)
    page.wait_for_timeout(300)
    page.screenshot(path=IMAGES / name)


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    os.chdir(ROOT)
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as driver:
        folder = Path(scratch)
        jaxmigrate(["review", PROGRAM, "--html", str(folder / "page.html")])
        console = Console(record=True, width=110, file=open(os.devnull, "w"))  # noqa: SIM115, PTH123
        console.print(Text.from_ansi(terminal(folder)))
        svg = console.export_svg(title=f"jaxmigrate review {PROGRAM}")
        (folder / "terminal.html").write_text(f"<body style='margin:0'>{svg}</body>", encoding="utf-8")
        path = next((p for n in ("chromium", "google-chrome") if (p := shutil.which(n))), None)
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        shoot(browser, (folder / "page.html").as_uri(), "review-page.png", "jjj")
        shoot(browser, (folder / "terminal.html").as_uri(), "review-terminal.png", width=1000, height=450)


if __name__ == "__main__":
    main()
