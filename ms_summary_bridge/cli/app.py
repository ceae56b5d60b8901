"""The command line, `ms-summary-bridge` or `msb`: the only place that prints or exits.

Results go to stdout, talk and progress to stderr, `--json` is for programs. Exit codes are a contract: `EXIT_CODES`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Final

import typer

from ms_summary_bridge._version import __version__
from ms_summary_bridge.cli.aggregate import aggregate
from ms_summary_bridge.cli.config import make_config_app
from ms_summary_bridge.cli.convert import convert
from ms_summary_bridge.cli.diagnose import diagnose
from ms_summary_bridge.cli.diff import diff
from ms_summary_bridge.cli.doctor import doctor
from ms_summary_bridge.cli.ending import INTERRUPTED, exit_code_of
from ms_summary_bridge.cli.export import export
from ms_summary_bridge.cli.output import print_json, print_wide
from ms_summary_bridge.cli.view import view
from ms_summary_bridge.cli.watch import watch

__all__ = ["EXIT_CODES", "app", "main"]

EXIT_CODES: Final = {
    0: "done; a file that ends inside a record is no fault, it is reported",
    1: "failed, verify or diff found a difference, or doctor something wrong",
    2: "wrong usage or configuration",
    3: "done in part: damaged records or unreadable files, which are named",
    4: "with --strict only: something could not be represented",
    5: "watch raised an alert, or diagnose blames a rank",
}

_EXIT_TEXT: Final = "\b\nExit codes:\n" + "\n".join(f"  {code}  {text}" for code, text in EXIT_CODES.items())

app = typer.Typer(
    name="ms-summary-bridge",
    help="Reads, converts and checks the summaries of MindSpore trainings and TensorBoard logs.\n\n"
    "Example: ms-summary-bridge view ./summary_dir",
    epilog=_EXIT_TEXT,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(make_config_app(), name="config")


def _show_version(value: bool) -> None:
    if value:
        print(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


app.command()(convert)


@app.command()
def inspect(
    src: Annotated[str, typer.Argument(help="A file, a run, a directory with runs at any depth, or an fsspec URL.")],
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> int:
    """Tell what is in a log: runs, tags, steps, and every byte that cannot be read.

    Example: ms-summary-bridge inspect ./summary_dir
    """
    from ms_summary_bridge.cli.render import render_inspection
    from ms_summary_bridge.columns.inspect import inspect_logdir

    result = inspect_logdir(src)
    if json:
        print_json(result)
    else:
        print_wide(render_inspection(result))
    return 3 if result.is_partial else 0


@app.command()
def verify(
    a: Annotated[str, typer.Argument(help="A log of either format.")],
    b: Annotated[str, typer.Argument(help="Another one, of the same format or not.")],
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> int:
    """Compare two logs point by point, bit for bit, across formats.

    What a conversion renamed, derived or archived is undone before comparing, so a conversion is equal to its source
    exactly when nothing was lost.

    Example: ms-summary-bridge verify ./summary_dir ./tensorboard_dir
    """
    from ms_summary_bridge.cli.render import render_verification
    from ms_summary_bridge.convert.verify import verify_logdirs

    result = verify_logdirs(a, b)
    if json:
        print_json(result)
    else:
        print_wide(render_verification(result))
    if not result.is_equal:
        return 1
    return 3 if result.damaged or result.unreadable else 0


app.command()(export)
app.command()(aggregate)
app.command()(diff)
app.command()(diagnose)
app.command()(view)
app.command()(doctor)
app.command()(watch)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        argv: Arguments without the program's name; those of the process by default.

    Returns:
        The exit code, see `EXIT_CODES`.
    """
    # Completion is installed for the name that was called.
    is_short = argv is None and os.path.splitext(os.path.basename(sys.argv[0]))[0] == "msb"

    def run() -> int:
        words = list(argv) if argv is not None else None
        name = "msb" if is_short else "ms-summary-bridge"
        result = typer.main.get_command(app).main(words, name, standalone_mode=False)
        if result == INTERRUPTED:
            raise KeyboardInterrupt
        return result if isinstance(result, int) else 0

    return exit_code_of(run)


if __name__ == "__main__":
    sys.exit(main())
