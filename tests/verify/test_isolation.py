"""Whatever a program does to its process is a verdict, takes no other case along, and stays in the scratch folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from jaxmigrate.verify import VerifyOptions, parse_case
from jaxmigrate.verify.record import Recorder, Recording, read
from jaxmigrate.verify.run import run_original

START = "import os, sys, signal, torch\ndef fn(x):\n"
PROGRAMS = {
    "first": START + "    return x + 1\n",
    "crashes": START + "    os.kill(os.getpid(), signal.SIGSEGV)\n",
    "loops": START + "    while True:\n        pass\n",
    "fills the memory": START + "    kept = []\n    while True:\n        kept.append(torch.ones(1 << 22))\n",
    "prints without end": START + "    while True:\n        print('x' * 100000)\n",
    "writes outside": START + "    open('@/new.txt', 'w')\n",
    "saves outside": START + "    torch.save(x, '@/saved.pt')\n",
    "removes": START + "    os.remove('@/kept.txt')\n",
    "writes beside": START + "    open('first.py', 'w')\n",
    "reads and writes": START
    + "    open('own.txt', 'w').write('2')\n"
    + "    return x * float(open('own.txt').read()) + float(open('given.txt').read())\n",
    "exits in the call": START + "    sys.exit(3)\n",
    "last": START + "    return x + 1\n",
}


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("outside")
    (folder / "kept.txt").write_text("kept")
    return folder


@pytest.fixture(scope="module")
def recordings(outside: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Recording]:
    root = tmp_path_factory.mktemp("programs")
    (root / "given.txt").write_text("5")
    names = {n: "first.py" if n == "first" else f"{n.replace(' ', '_')}.py" for n in PROGRAMS}
    for name, text in PROGRAMS.items():
        (root / names[name]).write_text(text.replace("@", str(outside)))
    options = replace(VerifyOptions(), timeout=8.0, memory=1.5, precisions=())
    case = parse_case("fn(f32[3])")
    found = run_original([(root / f, case) for f in names.values()], options, tmp_path_factory.mktemp("scratch"))
    assert (root / "first.py").read_text() == PROGRAMS["first"]
    assert not (root / "own.txt").exists()
    return dict(zip(PROGRAMS, found, strict=True))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("crashes", "died of SIGSEGV"),
        ("loops", "timed out after 8 s"),
        ("fills the memory", "of memory, more than the limit of 1.5 GB"),
        ("prints without end", "printed more than 64 MB and was ended"),
        ("writes outside", "can write in its scratch folder only"),
        ("saves outside", "new"),
        ("removes", "can write in its scratch folder only"),
        ("writes beside", "can write in its scratch folder only"),
        ("exits in the call", "SystemExit: 3"),
    ],
)
def test_it_is_a_verdict(name: str, said: str, recordings: dict[str, Recording], outside: Path) -> None:
    error = recordings[name].get("forward eval").error
    assert error, recordings[name]
    assert said in error or name == "saves outside"  # torch's own words for a file that cannot be opened
    assert [p.name for p in outside.iterdir()] == ["kept.txt"]


@pytest.mark.parametrize("name", ["first", "last", "reads and writes"])
def test_the_other_cases_are_run(name: str, recordings: dict[str, Recording]) -> None:
    assert recordings[name].get("forward eval").error == ""
    assert recordings[name].get("gradient eval").arrays["in.0"].tolist() == pytest.approx(
        [2.0, 2.0 * 0.5403023, -0.8322937] if "reads" in name else [1.0, 0.5403023, -0.4161468], abs=1e-6
    )


def test_what_is_too_large_is_not_written(tmp_path: Path) -> None:
    Recorder(tmp_path).done("forward eval", {"out.": np.broadcast_to(np.float32(1), (1 << 30,))})
    assert read(tmp_path).get("forward eval").error == "its results are 4.0 GB of numbers, too large to compare"
    assert [p.name for p in tmp_path.iterdir()] == ["steps.jsonl"]
