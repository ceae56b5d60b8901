"""The command line, `ms-summary-bridge` or `msb`: the only place that prints or exits.

Results go to stdout, talk and progress to stderr, `--json` is for programs. Exit codes are a contract: `EXIT_CODES`.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from types import FrameType
from typing import Annotated, Final

import typer
from rich.console import Console, RenderableType
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from ms_summary_bridge._version import __version__
from ms_summary_bridge.cli.config import make_config_app
from ms_summary_bridge.cli.render import (
    printable,
    render_errors,
    render_inspection,
    render_report,
    render_verification,
)
from ms_summary_bridge.cli.view import view
from ms_summary_bridge.convert.follow import follow_logdir
from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.convert.task import ConvertOptions
from ms_summary_bridge.convert.verify import verify_logdirs
from ms_summary_bridge.errors import BridgeError, LogdirError, UsageError, WriteError
from ms_summary_bridge.runs.inspect import inspect_logdir
from ms_summary_bridge.runs.report import Report, encode_json

__all__ = ["EXIT_CODES", "OnRestart", "Target", "app", "main"]

EXIT_CODES: Final = {
    0: "done; a file that ends inside a record is no fault, it is reported",
    1: "failed, or verify found a difference",
    2: "wrong usage or configuration",
    3: "done in part: damaged records or unreadable files, which are named",
    4: "with --strict only: something could not be represented",
    5: "watch raised an alert",
}
_INTERRUPTED: Final = 130  # what a shell gives for a program ended by Ctrl-C

_EXIT_TEXT: Final = "Exit codes: " + "; ".join(f"{code} {text}" for code, text in EXIT_CODES.items()) + "."
_PROGRESS_AFTER_SECS: Final = 2.0

app = typer.Typer(
    name="ms-summary-bridge",
    help="Reads, converts and checks the summaries of MindSpore trainings and TensorBoard logs.",
    epilog=_EXIT_TEXT,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(make_config_app(_EXIT_TEXT), name="config")


class Target(str, Enum):
    """What `convert --to` takes."""

    tensorboard = "tensorboard"
    mindinsight = "mindinsight"


class OnRestart(str, Enum):
    """What `convert --on-restart` takes."""

    mark = "mark"
    latest = "latest"


def _print(renderables: Iterable[RenderableType], console: Console) -> None:
    for renderable in renderables:
        console.print(renderable, highlight=False, soft_wrap=not console.is_terminal)


def _print_json(report: object) -> None:
    try:
        sys.stdout.buffer.write(encode_json(report))
        sys.stdout.flush()
    except BrokenPipeError:
        raise BrokenPipeError from None  # without its number, by which typer would know it and exit with 1


class _Console(Console):
    """Leaves a broken pipe to `main`: rich would exit with 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def _stdout() -> Console:
    # A pipe has no width: a program that reads the text must not find it cut at 80 columns.
    return _Console() if sys.stdout.isatty() else _Console(width=500)


def _show(result: Report, is_quiet: bool, is_dry: bool = False) -> None:
    if is_quiet:
        _print(render_errors(result), _Console(stderr=True, width=500))
    else:
        _print(render_report(result, is_dry=is_dry), _stdout())


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


class _ProgressBar:
    """Bytes read, on stderr, if it is a terminal and the work takes longer than two seconds."""

    def __init__(self, is_quiet: bool) -> None:
        self._is_wanted = not is_quiet and sys.stderr.isatty()
        self._begun = time.monotonic()
        self._bar: Progress | None = None

    def __call__(self, done: int, total: int) -> None:
        if not self._is_wanted or time.monotonic() - self._begun < _PROGRESS_AFTER_SECS:
            return
        if self._bar is None:
            columns = (TextColumn("converting"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.start()
            self._bar.add_task("convert", total=total)
        self._bar.update(self._bar.task_ids[0], completed=done, total=total)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()


@app.command(epilog=_EXIT_TEXT)
def convert(
    src: Annotated[str, typer.Argument(help="A file, a run, a directory with runs at any depth, or an fsspec URL.")],
    dst: Annotated[str, typer.Argument(help="Directory for the output; made if missing.")],
    to: Annotated[Target | None, typer.Option(help="Target format; found from the files of SRC if not given.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on as SRC grows, until Ctrl-C.")] = False,
    workers: Annotated[int, typer.Option(min=1, metavar="N", help="Convert N runs at a time.")] = 1,
    dask: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Convert the runs on a Dask cluster that sees the same paths.")
    ] = None,
    on_restart: Annotated[
        OnRestart,
        typer.Option(
            help="When a training begins again at a step already seen: mark keeps every point and marks the new "
            "session, so that TensorBoard shows the newest; latest leaves the superseded points out."
        ),
    ] = OnRestart.mark,
    tags: Annotated[str, typer.Option(metavar="REGEX", help="Only tags in which this expression is found.")] = "",
    no_archive: Annotated[
        bool, typer.Option("--no-archive", help="Do not keep beside the output what it cannot hold exactly.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="End with exit code 4 if anything could not be represented.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read and report everything, write nothing.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Start over: remove what earlier conversions wrote into DST, and only that.")
    ] = False,
    report: Annotated[str, typer.Option(metavar="FILE.json", help="Write the whole report to this file.")] = "",
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
) -> int:
    """Convert MindSpore summaries to TensorBoard, or TensorBoard logs for MindInsight.

    Converting again into the same DST adds only what is new. What the target cannot hold is named in the report and
    kept in an archive beside the output, so nothing is lost in silence.

    Example: ms-summary-bridge convert ./summary_dir ./tensorboard_dir
    """
    _check_report(report)
    options = ConvertOptions(on_restart.value, tags, not no_archive, dry_run)
    target = to.value if to is not None else None
    if follow:
        if dry_run or dask is not None:
            raise UsageError("--follow goes with neither --dry-run nor --dask")
        return _follow(src, dst, target, options, workers, force, strict, report, quiet)
    progress = _ProgressBar(quiet)
    try:
        with _reporting(src, dst, target, report):
            result = convert_logdir(
                src, dst, to=target, options=options, workers=workers, dask=dask, force=force, progress=progress
            )
    finally:
        progress.close()
    _write_report(result, report)
    _show(result, quiet, dry_run)
    return _exit_code(result, strict)


def _follow(
    src: str,
    dst: str,
    target: str | None,
    options: ConvertOptions,
    workers: int,
    force: bool,
    strict: bool,
    report: str,
    quiet: bool,
) -> int:
    stop = threading.Event()
    total = Report(src, dst, target or "")

    def end(number: int, frame: FrameType | None) -> None:
        stop.set()
        signal.signal(number, before[number])  # a second one ends it at once; nothing is lost by that either

    def show(result: Report) -> None:
        _show(result, quiet)

    before = {int(number): signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, end)
    try:
        if not quiet:
            print(f"following {src}; Ctrl-C ends", file=sys.stderr)
        with _reporting(src, dst, target, report):
            total = (
                follow_logdir(
                    src, dst, to=target, options=options, workers=workers, force=force, stop=stop, on_round=show
                )
                or total
            )
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    _write_report(total, report)
    if total.runs:
        _show(total, quiet)
    return _exit_code(total, strict)


def _check_report(path: str) -> None:
    """Finds out before the work that its report could not be written after it."""
    if path and (os.path.isdir(path) or not os.path.isdir(os.path.dirname(path) or ".")):
        raise UsageError(f"--report {path}: cannot be written: not a file in a directory that exists")


@contextlib.contextmanager
def _reporting(src: str, dst: str, target: str | None, path: str) -> Iterator[None]:
    """Writes a report also of a conversion that an error ends."""
    try:
        yield
    except LogdirError as error:
        _write_report(Report(src, dst, target or "", failed=str(error)), path)
        raise


def _write_report(result: Report, path: str) -> None:
    if not path:
        return
    try:
        with open(path, "wb") as file:
            file.write(encode_json(result))
    except OSError as error:
        raise WriteError.of_system(f"--report {path}", "written", error) from error


def _exit_code(result: Report, strict: bool) -> int:
    if result.failures or result.failed:
        return 1
    if result.is_partial:
        return 3
    return 4 if strict and result.has_losses else 0


@app.command(epilog=_EXIT_TEXT)
def inspect(
    src: Annotated[str, typer.Argument(help="A file, a run, a directory with runs at any depth, or an fsspec URL.")],
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> int:
    """Tell what is in a log: runs, tags, steps, and every byte that cannot be read."""
    result = inspect_logdir(src)
    if json:
        _print_json(result)
    else:
        _print(render_inspection(result), _stdout())
    return 3 if result.is_partial else 0


@app.command(epilog=_EXIT_TEXT)
def verify(
    a: Annotated[str, typer.Argument(help="A log of either format.")],
    b: Annotated[str, typer.Argument(help="Another one, of the same format or not.")],
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> int:
    """Compare two logs point by point, bit for bit, across formats.

    What a conversion renamed, derived or archived is undone before comparing, so a conversion is equal to its source
    exactly when nothing was lost.
    """
    result = verify_logdirs(a, b)
    if json:
        _print_json(result)
    else:
        _print(render_verification(result), _stdout())
    if not result.is_equal:
        return 1
    return 3 if result.damaged or result.unreadable else 0


app.command(epilog=_EXIT_TEXT)(view)


def _discard_output() -> None:
    """Lets what is still buffered go nowhere, so that the end of the process does not try it again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        argv: Arguments without the program's name; those of the process by default.

    Returns:
        The exit code, see `EXIT_CODES`.
    """
    command = typer.main.get_command(app)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller, who wants to hear nothing
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 (as long as the process)
    if isinstance(sys.stdout, io.TextIOWrapper):  # a name that is not UTF-8, or a terminal that is not, ends nothing
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        result = command.main(list(argv) if argv is not None else None, "ms-summary-bridge", standalone_mode=False)
        if result == _INTERRUPTED:
            raise KeyboardInterrupt
        return result if isinstance(result, int) else 0
    except BridgeError as error:
        print(f"error: {printable(str(error), keep=chr(10))}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted; converting again into the same destination goes on from here", file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has gone (`| head`): nothing is wrong, and nothing more can be said.
        _discard_output()
        return 0
    except OSError as error:
        if error.filename is not None:  # a file's error that nobody below has named: a bug, to be seen as one
            raise
        _discard_output()
        with contextlib.suppress(OSError):
            print(f"error: the output cannot be written: {error.strerror}", file=sys.stderr, flush=True)
        return 1
    except Exception as error:
        # typer keeps its exceptions for wrong usage in places that differ between its versions.
        if hasattr(error, "show") and hasattr(error, "exit_code"):
            error.show()
            return int(error.exit_code)
        raise


if __name__ == "__main__":
    sys.exit(main())
