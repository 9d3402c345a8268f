"""The command `verify`: convert if need be, find what to run, run both programs, show the stages."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .config import ExitCode
from .files import InputError, decode, read_bytes
from .gate import LAYER_FILE
from .local_imports import with_local_imports
from .output import Write, write_all
from .report import text
from .report.style import style_for
from .verify import (
    Case,
    CaseError,
    VerifyOptions,
    VerifyReport,
    case_from_options,
    cases_from_toml,
    find_cases,
    parse_case,
    render_table,
    report_json,
    verify_pair,
    verify_script,
)
from .verify.loading import root as import_root
from .work import Options, convert_paths

NEEDED = ("torch", "jax", "flax", "optax", "numpy")


@dataclass(frozen=True)
class Outputs:
    """What to write beside the table: files, and JSON instead of the table on standard output."""

    html: Path | None = None
    junit: Path | None = None
    test: Path | None = None
    as_json: bool = False


@dataclass(frozen=True)
class What:
    """What to run, as the options say it; all empty means: as the file or its pyproject.toml says it."""

    build: str = ""
    inputs: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    cases: Path | None = None


def run_verify(
    original: Path,
    converted: Path | None,
    what: What,
    options: VerifyOptions,
    rules: Sequence[Path] = (),
    *,
    script: Sequence[str] | None = None,
    outputs: Outputs = Outputs(),
    dry_run: bool = False,
) -> int:
    """Compare `original` with `converted`, or with what the tool makes of it; returns the exit code.

    `script`: the arguments with which both run as training scripts; None for modules and functions.

    0: every stage that ran agrees; 1: some differ or fail; 3: the file cannot be converted. Raises InputError for a
    missing file or package, and when nothing says what to run.
    """
    if original.suffix == ".ipynb":
        raise InputError(f"{original}: a notebook; verify runs .py files")
    source = decode(str(original), read_bytes(original))
    if converted is not None:
        read_bytes(converted)
    cases = _cases(original, source.text, what) if script is None else []
    if dry_run:
        lines = [f"would verify {case.text}" for case in cases]
        print("\n".join(lines if script is None else [" ".join(["would run python", str(original), *script])]))
        return ExitCode.DONE
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise InputError(f"verify needs {', '.join(missing)}: pip install 'jaxmigrate[verify]'")

    def compare(made: Path) -> int:
        report = (
            verify_pair(original, made, cases, options)
            if script is None
            else verify_script(original, made, script, options)
        )
        _write(report, made, cases, options, outputs)
        return _show(report, outputs)

    if converted is not None:
        return compare(converted)
    with tempfile.TemporaryDirectory(prefix="jaxmigrate-") as folder:
        made = _convert(original, Path(folder), rules)
        return compare(made) if made else ExitCode.FAULT


def _cases(original: Path, source: str, what: What) -> list[Case]:
    try:
        if what.build:
            return [case_from_options(what.build, what.inputs)]
        if what.examples:
            return [parse_case(example) for example in what.examples]
        cases = cases_from_toml(what.cases, original) if what.cases else find_cases(original, source)
    except CaseError as error:
        raise InputError(str(error)) from error
    if not cases and not what.cases:
        from .verify.main_cases import cases_of_main

        cases = cases_of_main(source)
        for case in cases:
            print(f'found in `if __name__ == "__main__"`: {case.text}', file=sys.stderr)
    if not cases:
        name = original.stem if original.stem != "__init__" else original.resolve().parent.name
        raise InputError(
            f"{what.cases or original}: nothing says what to run; write `# jaxmigrate: example Net(8)(f32[4, 8])` "
            f"into {original}, give --build and --input, or let --propose {name}_cases.toml find out"
        )
    return cases


def run_propose(original: Path, target: Path, options: VerifyOptions) -> int:
    """Write the cases that can be found for `original` into the new file `target`; returns the exit code.

    0: at least one; 1: none. Raises InputError where `target` exists or nothing of the file is a module.
    """
    from .verify.propose import cases_file, propose

    if original.suffix == ".ipynb":
        raise InputError(f"{original}: a notebook; verify runs .py files")
    source = decode(str(original), read_bytes(original))
    if target.exists():
        raise InputError(f"{target}: it exists; what you have edited is not overwritten")
    if missing := [name for name in ("torch", "numpy") if find_spec(name) is None]:
        raise InputError(f"verify needs {', '.join(missing)}: pip install 'jaxmigrate[verify]'")
    try:
        proposed = propose(original, source.text, options)
    except CaseError as error:
        raise InputError(str(error)) from error
    write_all([Write(target, cases_file(original, target, proposed).encode("utf-8"))])
    for item in proposed:
        print(f"{item.build}({', '.join(item.inputs)})" if item.build else f"not proposed: {item.name}: {item.reason}")
    found = sum(bool(item.build) for item in proposed)
    print(
        f"{found} case{'s' * (found != 1)} in {target}: jaxmigrate verify {original} --case {target}", file=sys.stderr
    )
    return ExitCode.DONE if found else ExitCode.FINDINGS


def _convert(original: Path, folder: Path, rules: Sequence[Path]) -> Path | None:
    """Convert it with the project files that it imports into `folder`; the path of its conversion, None without one.

    What else lies beside it can be read there too.
    """
    root, files = with_local_imports(original)
    shown = {path: os.path.relpath(path) for path in files}
    work = convert_paths(list(shown.values()), Options(rules=tuple(rules)), below=root)
    style = style_for(sys.stderr)
    findings = text.at_or_above(work.run.findings, "error")
    print("\n".join([*text.finding_lines(findings, style), *text.summary_lines(work.run, style)]), file=sys.stderr)
    made = {Path(o.path).resolve(): o for o in work.run.outcomes}
    if made[files[0]].status == "failed":
        return None
    writes = [Write(folder / path.relative_to(root), made[path].encoded()) for path in files if path in made]
    write_all(writes)
    target = folder / files[0].relative_to(root)
    if work.run.layer_file:
        write_all([Write(import_root(target) / LAYER_FILE, work.run.layer_file.encode())])
    _link_the_rest(files[0].parent, target.parent)
    return target


def _link_the_rest(folder: Path, target: Path) -> None:
    """Let data files that lie beside a program lie beside its conversion."""
    for entry in folder.iterdir():
        if entry.suffix != ".py" and not (target / entry.name).exists():
            (target / entry.name).symlink_to(entry)


def _show(report: VerifyReport, outputs: Outputs) -> ExitCode:
    if outputs.as_json:
        print(json.dumps(report_json(report), indent=2, ensure_ascii=False))
    else:
        from rich.console import Console

        # rich takes a pipe to be 80 columns wide, which breaks the table.
        render_table(report, Console(width=None if sys.stdout.isatty() else 140))
    return ExitCode.DONE if report.ok else ExitCode.FINDINGS


def _write(
    report: VerifyReport, converted: Path, cases: Sequence[Case], options: VerifyOptions, outputs: Outputs
) -> None:
    from .verify.generate import test_file
    from .verify.junit import render_junit
    from .verify.page import render_page

    texts: list[tuple[Path | None, Callable[[], str]]] = [
        (outputs.html, lambda: render_page(report)),
        (outputs.junit, lambda: render_junit(report)),
        (outputs.test, lambda: test_file(report.original, converted, cases, options, outputs.test or Path())),
    ]
    write_all([Write(path, text().encode("utf-8")) for path, text in texts if path is not None])


def load_map(name: str) -> dict[str, Any] | None:
    """The name map that `--map` asks for as plain data; None without it. Raises InputError."""
    from .verify.mapping import read_map

    if not name:
        return None
    try:
        return {} if name == "auto" else read_map(Path(name)).plain()
    except CaseError as error:
        raise InputError(str(error)) from error
