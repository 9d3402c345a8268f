"""The options of `jaxmigrate verify`; what they do is in verifying.py, imported late."""

from __future__ import annotations

import shlex
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Device(StrEnum):
    cpu = "cpu"
    gpu = "gpu"


class Precision(StrEnum):
    float64 = "float64"
    bfloat16 = "bfloat16"
    none = "none"


def verify(
    original: Annotated[Path, typer.Argument(metavar="FILE", help="The PyTorch program.")],
    converted: Annotated[
        Path | None, typer.Argument(metavar="CONVERTED", help="The converted one; converts FILE if not given.")
    ] = None,
    build: Annotated[str, typer.Option(metavar="CALL", help='How to build the module: "Net(8)".')] = "",
    inputs: Annotated[
        list[str] | None, typer.Option("--input", metavar="SPEC", help='An input: "f32[4, 8]". Repeatable, in order.')
    ] = None,
    example: Annotated[
        list[str] | None, typer.Option(metavar="CALL", help='Both in one: "Net(8)(f32[4, 8])". Repeatable.')
    ] = None,
    case: Annotated[Path | None, typer.Option(metavar="TOML", help="A file of cases.")] = None,
    propose: Annotated[
        Path | None,
        typer.Option(metavar="TOML", help="Find out what to run, write it into a new file of cases, and stop."),
    ] = None,
    name_map: Annotated[
        str,
        typer.Option("--map", metavar="auto|FILE", help="CONVERTED is hand-written: find its names, or read a map."),
    ] = "",
    script: Annotated[
        bool, typer.Option("--script", help="Run both as training scripts, and compare their losses.")
    ] = False,
    arguments: Annotated[
        str, typer.Option("--args", metavar="TEXT", help='What the script is called with: "--epochs 1".')
    ] = "",
    device: Annotated[Device, typer.Option(help="Where the converted program runs.")] = Device.cpu,
    steps: Annotated[
        int | None, typer.Option(min=0, help="Optimizer steps to compare.", show_default="3; with --script 50")
    ] = None,
    tolerance: Annotated[
        float | None, typer.Option(min=0, help="Largest relative error.", show_default="by dtype")
    ] = None,
    precision: Annotated[
        list[Precision] | None,
        typer.Option(help="Run in this type too. Repeatable.", show_default="float64"),
    ] = None,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds for each program and case.")] = 300,
    memory: Annotated[float, typer.Option(min=0, metavar="GB", help="Memory for each program; 0: no limit.")] = 16,
    bench: Annotated[bool, typer.Option("--bench", help="Measure time per step and memory of both.")] = False,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page with curves and the tree.")] = None,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the stages as JUnit XML.")] = None,
    write_test: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a pytest file that verifies both; needs CONVERTED.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable.")] = False,
    rules: Annotated[
        list[Path] | None, typer.Option("--rules", metavar="FILE", help="A rule file of your own. Repeatable.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be run.")] = False,
) -> int:
    """Run the original under torch and the converted program without it, and compare them stage by stage.

    What to run is said by a comment in FILE (# jaxmigrate: example Net(8)(f32[4, 8])), by
    [[tool.jaxmigrate.verify]] in pyproject.toml, or by the options; --propose finds it out. With --script both run
    as they are, with the same weights, data order and noise.
    """
    from .verify import VerifyOptions
    from .verifying import Outputs, What, load_map, run_propose, run_verify

    if (inputs and not build) or sum(map(bool, (build, example, case))) > 1:
        raise typer.BadParameter("say what to run in one way: --build with --input, --example, or --case")
    what = What(build, tuple(inputs or ()), tuple(example or ()), case)
    if arguments and not script:
        raise typer.BadParameter("--args is for --script")
    if script and (
        other := [
            name
            for name, value in {
                "--build": build,
                "--example": example,
                "--case": case,
                "--propose": propose,
                "--map": name_map,
                "--bench": bench,
                "--write-test": write_test,
                "--precision": precision,
            }.items()
            if value
        ]
    ):
        raise typer.BadParameter(f"--script runs the whole file: {other[0]} says nothing to it")
    if write_test is not None and converted is None:
        raise typer.BadParameter("--write-test needs CONVERTED: the test runs both files")
    precisions = tuple(dict.fromkeys(p.value for p in precision or [Precision.float64] if p is not Precision.none))
    options = VerifyOptions(
        device.value,
        tolerance=tolerance,
        steps=(50 if script else 3) if steps is None else steps,
        timeout=timeout,
        memory=memory,
        precisions=precisions,
        map=load_map(name_map),
        bench=bench,
    )
    if propose is not None:
        return run_propose(original, propose, options)
    outputs = Outputs(html, junit, write_test, as_json)
    words = tuple(shlex.split(arguments)) if script else None
    return run_verify(
        original, converted, what, options, tuple(rules or ()), script=words, outputs=outputs, dry_run=dry_run
    )
