"""The command `convert`."""

from __future__ import annotations

import os
import signal
import threading
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from ms_summary_bridge.cli.output import ended_by, print_wide, say
from ms_summary_bridge.cli.progress import ProgressBar
from ms_summary_bridge.cli.view import Viewer
from ms_summary_bridge.errors import LogdirError, UsageError, WriteError

if TYPE_CHECKING:
    from ms_summary_bridge.runs.report import Report

__all__ = ["OnRestart", "convert"]


class OnRestart(str, Enum):
    """What `convert --on-restart` takes."""

    mark = "mark"
    latest = "latest"


def convert(
    src: Annotated[str, typer.Argument(help="A file, a run, a directory with runs at any depth, or an fsspec URL.")],
    dst: Annotated[str, typer.Argument(help="Directory for the output; made if missing.")],
    to: Annotated[Viewer | None, typer.Option(help="Target format; found from the files of SRC if not given.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on as SRC grows, until Ctrl-C.")] = False,
    workers: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Convert N runs at a time; if not given, as many as there are cores."),
    ] = None,
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
    # Here, and not above, so that `--help` need not wait for them.
    from ms_summary_bridge.convert.logdir import convert_logdir
    from ms_summary_bridge.convert.task import ConvertOptions
    from ms_summary_bridge.runs.report import Report

    # Found out before the work, not after it.
    if report and (os.path.isdir(report) or not os.path.isdir(os.path.dirname(report) or ".")):
        raise UsageError(f"--report {report}: cannot be written: not a file in a directory that exists")
    if follow and (dry_run or dask is not None):
        raise UsageError("--follow goes with neither --dry-run nor --dask")
    options = ConvertOptions(on_restart.value, tags, not no_archive, dry_run)
    target = to.value if to is not None else None
    result = Report(src, dst, target or "")

    def show(round_report: Report) -> None:
        from ms_summary_bridge.cli.render import render_errors, render_report

        if quiet:
            print_wide(render_errors(round_report), is_error=True)
        else:
            print_wide(render_report(round_report, is_dry=dry_run))

    try:
        if follow:
            from ms_summary_bridge.convert.follow import follow_logdir

            stop = threading.Event()
            with ended_by((signal.SIGINT, signal.SIGTERM), stop.set):
                if not quiet:
                    say(f"following {src}; Ctrl-C ends")
                followed = follow_logdir(
                    src, dst, to=target, options=options, workers=workers, force=force, stop=stop, on_round=show
                )
            result = followed or result
        else:
            with ProgressBar(quiet) as progress:
                result = convert_logdir(
                    src, dst, to=target, options=options, workers=workers, dask=dask, force=force, progress=progress
                )
    except LogdirError as error:  # a report also of what an error ends
        result.failed = str(error)
        _write_report(result, report)
        raise
    _write_report(result, report)
    if result.runs or not follow:
        show(result)
    if result.failures or result.failed:
        return 1
    if result.is_partial:
        return 3
    return 4 if strict and result.has_losses else 0


def _write_report(result: Report, path: str) -> None:
    if not path:
        return
    from ms_summary_bridge.runs.report import encode_json

    try:
        with open(path, "wb") as file:
            file.write(encode_json(result))
    except OSError as error:
        raise WriteError.of_system(f"--report {path}", "written", error) from error
