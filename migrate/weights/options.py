"""The options of `jaxmigrate weights`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class WeightsFormat(StrEnum):
    torch = "torch"
    safetensors = "safetensors"
    npz = "npz"
    orbax = "orbax"


def weights(
    checkpoint: Annotated[
        Path,
        typer.Argument(metavar="CHECKPOINT", help=".pt .pth .bin .safetensors .npz, an index of shards, a folder."),
    ],
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="OUT", help="Write there.")] = None,
    form: Annotated[
        WeightsFormat | None, typer.Option("--format", help="What to write.", show_default="by the suffix of OUT")
    ] = None,
    key: Annotated[str, typer.Option(metavar="NAME", help="Where the state_dict lies in a larger .pt file.")] = "",
    strip: Annotated[
        list[str] | None, typer.Option(metavar="PREFIX", help="Take it off the names. Repeatable.")
    ] = None,
    prefix: Annotated[list[str] | None, typer.Option(metavar="OLD=NEW", help="Put one prefix for another.")] = None,
    model: Annotated[
        str, typer.Option(metavar="FILE.py:CALL", help='The converted model: "model_jax.py:Net(8)". Checks all names.')
    ] = "",
    map_file: Annotated[Path | None, typer.Option("--map", metavar="FILE", help="Apply a mapping file.")] = None,
    write_map: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the mapping: TOML or .json.")] = None,
    invert: Annotated[bool, typer.Option("--invert", help="From the model's names and layouts to torch's.")] = False,
    strict: Annotated[bool, typer.Option(help="Exit 1 on missing and unexpected names.")] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write nothing, whatever else is said.")] = False,
) -> int:
    """Convert a checkpoint for the converted model, or back; without -o list or check it.

    Exit code 1: names are missing or unexpected, or shapes differ (nothing is written then).
    """
    from .command import Request, run_weights

    request = Request(
        checkpoint, output, form.value if form else "", key, tuple(strip or ()), tuple(prefix or ()),
        model, map_file, write_map, invert, strict, dry_run,
    )  # fmt: skip
    return run_weights(request)
