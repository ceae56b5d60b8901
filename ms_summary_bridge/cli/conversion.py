"""What `convert` does, as a function that needs no command line."""

from __future__ import annotations

import os
import signal
import threading
from typing import Literal

from ms_summary_bridge.cli.output import ended_by, print_wide, say
from ms_summary_bridge.cli.progress import ProgressBar
from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.convert.task import ConvertOptions
from ms_summary_bridge.errors import LogdirError, UsageError, WriteError
from ms_summary_bridge.runs.report import Report, encode_json

__all__ = ["run_conversion"]


def run_conversion(
    src: str,
    dst: str,
    *,
    to: str | None = None,
    follow: bool = False,
    workers: int | None = None,
    dask: str | None = None,
    on_restart: Literal["mark", "latest"] = "mark",
    tags: str = "",
    no_archive: bool = False,
    strict: bool = False,
    dry_run: bool = False,
    force: bool = False,
    report: str = "",
    quiet: bool = False,
) -> int:
    """Converts, prints and writes the report; returns the exit code. The arguments are the command's.

    Raises:
        LogdirError: As `convert_logdir`.
        UsageError: So too, and where options exclude each other.
        MissingDependencyError: As `convert_logdir`.
        WriteError: The report cannot be written.
    """
    # Found out before the work, not after it.
    if report and (os.path.isdir(report) or not os.path.isdir(os.path.dirname(report) or ".")):
        raise UsageError(f"--report {report}: cannot be written: not a file in a directory that exists")
    if follow and (dry_run or dask is not None):
        raise UsageError("--follow goes with neither --dry-run nor --dask")
    options = ConvertOptions(on_restart, tags, not no_archive, dry_run)
    result = Report(src, dst, to or "")

    def show(round_report: Report) -> None:
        if quiet and not (round_report.failures or round_report.is_partial):
            return  # without loading what prints
        from ms_summary_bridge.cli.render import render_errors, render_report

        if quiet:
            print_wide(render_errors(round_report), is_error=True)
        else:
            print_wide(render_report(round_report, is_dry=dry_run, full=report))

    try:
        if follow:
            from ms_summary_bridge.convert.follow import follow_logdir

            stop = threading.Event()
            with ended_by((signal.SIGINT, signal.SIGTERM), stop.set):
                if not quiet:
                    say(f"following {src}; Ctrl-C ends")
                followed = follow_logdir(
                    src, dst, to=to, options=options, workers=workers, force=force, stop=stop, on_round=show
                )
            result = followed or result
        else:
            with ProgressBar(quiet) as progress:
                result = convert_logdir(
                    src, dst, to=to, options=options, workers=workers, dask=dask, force=force, progress=progress
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
    try:
        with open(path, "wb") as file:
            file.write(encode_json(result))
    except OSError as error:
        raise WriteError.of_system(f"--report {path}", "written", error) from error
