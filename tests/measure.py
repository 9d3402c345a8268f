"""What the outside measurements share: our converter's command line, PyPI packages, and the verdict on a program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
import zipfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
JAXMIGRATE = Path(os.environ.get("JAXMIGRATE") or Path(sys.executable).parent / "jaxmigrate")
PUBLIC = ROOT / "corpus" / "public.toml"
DOWNLOADS = ROOT / ".cache" / "public"
VERDICTS = ("equal", "reported", "crash", "WRONG")
LEFT = ("JM2", "JM3")


@dataclass(frozen=True)
class Converted:
    """One run of the converter. `error` is "" when it ended as it should (findings are no error)."""

    output: Path
    findings: tuple[dict[str, Any], ...]
    error: str

    @property
    def left(self) -> tuple[str, ...]:
        """What was left or is unmapped: "JM301 torch.compile", in the order of the report."""
        return tuple(f"{f['code']} {f['name']}" for f in self.findings if f["code"].startswith(LEFT))


@dataclass(frozen=True)
class Measured:
    """The verdict on one program.

    equal: every number agrees. reported: some number does not, or nothing runs, and the report had said that something
    was left. crash: nothing reported, and no number. WRONG: nothing reported, and another number.
    """

    name: str
    verdict: str
    errors: str = ""
    left: tuple[str, ...] = ()
    detail: str = ""


def convert(source: Path, output: Path, report: Path, layers: str = "torch") -> Converted:
    """Convert a file or folder with our command line. `layers` is the dialect of the layers."""
    command = [str(JAXMIGRATE), "convert", str(source), "-o", str(output), "--report", str(report)]
    command += ["--layers", layers] if layers != "torch" else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    error = "" if done.returncode in (0, 1) else (done.stderr.strip().splitlines() or ["no message"])[-1][:200]
    findings = json.loads(report.read_text(encoding="utf-8"))["findings"] if report.exists() else ()
    return Converted(output, tuple(findings), error)


def judge(name: str, converted: Converted, ran: bool, agrees: bool, errors: str, detail: str) -> Measured:
    """The verdict from what the report says and what running gave."""
    if ran and agrees:
        return Measured(name, "equal", errors, converted.left)
    verdict = "reported" if converted.left else "WRONG" if ran else "crash"
    return Measured(name, verdict, errors, converted.left, converted.error or detail)


def totals(results: Sequence[Measured]) -> str:
    count = Counter(r.verdict for r in results)
    return ", ".join(f"{v} {count[v]}" for v in VERDICTS) + f" of {len(results)}"


def row(r: Measured) -> str:
    left = f"{len(r.left)} left: {', '.join(dict.fromkeys(r.left))}"[:60] if r.left else ""
    detail = r.detail.strip().splitlines()[-1][:100] if r.detail.strip() else ""
    return f"{r.verdict:9}{r.name:42}{r.errors:34} {left} {detail}".rstrip()


def public() -> dict[str, Any]:
    """corpus/public.toml."""
    return tomllib.loads(PUBLIC.read_text(encoding="utf-8"))


def package(name: str, version: str) -> Path:
    """A package's unpacked wheel, downloaded when the cache lacks it. Raises CalledProcessError without network."""
    folder = DOWNLOADS / f"{name}-{version}"
    if not folder.exists():
        wheels = DOWNLOADS / "wheels"
        wheels.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(wheels)]
        subprocess.run([*pip, f"{name}=={version}"], check=True)
        wheel = next(wheels.glob(f"{name.replace('-', '_')}-{version}-*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
    return folder
