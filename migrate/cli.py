"""The command line. Everything heavy is imported inside the commands, so that `--help` answers at once."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer

from . import __version__
from .check_command import check
from .config import ConfigError, ExitCode
from .config_command import config
from .options import X64, Cache, ControlFlow, DryRun, ExitZero, FailOn, Jobs, Layers, Paths, Report, Rules, level_of
from .review_command import review
from .verify_command import verify
from .weights.options import weights

PROGRAM = "jaxmigrate"
INTERRUPTED = 130

app = typer.Typer(
    name=PROGRAM, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"{PROGRAM} {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """Rewrite PyTorch source into JAX + Flax NNX + Optax source.

    Exit codes: 0 done, 1 findings at or above --fail-on (or files that would change, under --check), 2 usage,
    settings or input, 3 the tool itself failed.
    """


@app.command()
def convert(
    paths: Paths,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="PATH", help="Write there: a file, or a folder for a folder."),
    ] = None,
    write: Annotated[bool, typer.Option("-w", "--write", help="Convert in place.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit 1 if a file would change.")] = False,
    diff: Annotated[
        bool | None, typer.Option("--diff/--no-diff", help="Show the diff.", show_default="when nothing is written")
    ] = None,
    todo: Annotated[
        bool | None,
        typer.Option("--todo/--no-todo", help="Put a TODO comment where something was left.", show_default="todo"),
    ] = None,
    control_flow: Annotated[
        ControlFlow | None,
        typer.Option(
            help="lax: rewrite branches and loops on tensor values for jit, where proved safe.", show_default="keep"
        ),
    ] = None,
    layers: Annotated[
        Layers | None,
        typer.Option(help="nnx: Flax's own layers where the numbers agree.", show_default="torch's names and layouts"),
    ] = None,
    x64: Annotated[
        X64 | None, typer.Option("--x64", help="Switch 64-bit types on in programs.", show_default="auto: if needed")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write over uncommitted changes and an edited nnx_layers.py.")
    ] = False,
    decisions: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep what a review refused, and take its edits.")
    ] = None,
    report: Report = None,
    rules: Rules = None,
    fail_on: FailOn = None,
    jobs: Jobs = None,
    cache: Cache = None,
    exit_zero: ExitZero = False,
    dry_run: DryRun = False,
) -> int:
    """Convert files. Shows the diff and writes nothing, unless told where to write."""
    from .commands import Conversion
    from .work import Options

    if write and output is not None:
        raise typer.BadParameter("--write and --output exclude each other")
    if check and (write or output is not None):
        raise typer.BadParameter("--check writes nothing: it excludes --write and --output")
    level = level_of(fail_on)
    options = Options(
        tuple(rules or ()), level, exit_zero, dry_run, report, todo,
        control_flow.value if control_flow else None, x64.value if x64 else None, jobs, cache,
        layers.value if layers else None,
    )  # fmt: skip
    return Conversion(options, output, write, check, diff, force, decisions).run(tuple(paths))


app.command()(check)


@app.command()
def explain(
    name: Annotated[
        str, typer.Argument(metavar="NAME|CODE", help="nn.Linear, F.softmax, x.view, torch.cat, JM206 ...")
    ],
    rules: Rules = None,
    dry_run: DryRun = False,
) -> int:
    """Explain a torch name (what it becomes, and how faithfully) or a finding code."""
    from .explain import run_explain

    return run_explain(name, tuple(rules or ()))


@app.command("rules")
def list_rules(
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable.")] = False,
    rules: Rules = None,
    dry_run: DryRun = False,
) -> int:
    """List what is mapped, to what, and how faithfully."""
    from .explain import run_rules

    return run_rules(as_json, tuple(rules or ()))


app.command()(review)


app.command()(config)


app.command()(verify)


app.command()(weights)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit code; every failure becomes one line on standard error."""
    try:
        code = typer.main.get_command(app).main(arguments, prog_name=PROGRAM, standalone_mode=False)
        sys.stdout.flush()
        if code == INTERRUPTED:  # typer has caught the interrupt
            _complain("interrupted")
        return code if isinstance(code, int) else ExitCode.DONE
    except (BrokenPipeError, SystemExit):
        # The reader went away (`| head`), which typer turns into SystemExit: nothing is left to say, also not when
        # Python flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.DONE
    except (KeyboardInterrupt, typer.Abort):
        _complain("interrupted")
        return INTERRUPTED
    except typer.Exit as leave:
        return leave.exit_code
    except Exception as error:
        return _failed(error)


def _failed(error: Exception) -> int:
    if hasattr(error, "format_message"):  # typer's usage errors; their base class has no public name
        _complain(
            " ".join(error.format_message().replace("Value error, ", "").split()) or "no command; see jaxmigrate --help"
        )
        return ExitCode.USAGE
    from .files import InputError
    from .output import OutputError
    from .report.baseline import BaselineError
    from .rulebook import RuleError
    from .weights.checkpoint import WeightsError

    if isinstance(error, (ConfigError, InputError, OutputError, RuleError, BaselineError, WeightsError)):
        _complain(str(error))
        return ExitCode.USAGE
    frame = traceback.extract_tb(error.__traceback__)[-1]
    _complain(
        f"internal fault, please report it: {type(error).__name__}: {error} "
        f"({Path(frame.filename).name}:{frame.lineno}; JAXMIGRATE_TRACEBACK=1 shows all of it)"
    )
    if os.environ.get("JAXMIGRATE_TRACEBACK"):
        traceback.print_exception(error)
    return ExitCode.FAULT


def _complain(message: str) -> None:
    print(f"{PROGRAM}: error: {message}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
