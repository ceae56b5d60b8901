"""The command `convert`."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from ms_summary_bridge.cli.view import Viewer

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
    from ms_summary_bridge.cli.conversion import run_conversion  # here, so that `--help` need not wait for it

    return run_conversion(
        src,
        dst,
        to=to.value if to is not None else None,
        follow=follow,
        workers=workers,
        dask=dask,
        on_restart=on_restart.value,
        tags=tags,
        no_archive=no_archive,
        strict=strict,
        dry_run=dry_run,
        force=force,
        report=report,
        quiet=quiet,
    )
