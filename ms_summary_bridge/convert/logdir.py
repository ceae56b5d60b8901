"""Convert: every run below a source becomes a run of the other format below a destination.

What is needed to go on later is in `state`; what was met is in the `report`.
"""

from __future__ import annotations

from collections.abc import Callable

from ms_summary_bridge.convert.conversion import TARGETS, direction_of, open_conversion, runs_for
from ms_summary_bridge.convert.task import ConvertOptions, Request
from ms_summary_bridge.errors import UsageError
from ms_summary_bridge.files.arguments import check_choice, check_number, check_path
from ms_summary_bridge.files.event_file import Path
from ms_summary_bridge.runs.logdir import Logdir, discover
from ms_summary_bridge.runs.report import Report

__all__ = ["convert_logdir", "make_request"]


def convert_logdir(
    source: Path,
    destination: Path,
    *,
    to: str | None = None,
    options: ConvertOptions | None = None,
    workers: int | None = 1,
    dask: str | None = None,
    force: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Converts every run below `source` into `destination`; again into the same destination adds what is new.

    Args:
        source: A file, a run, a tree of runs, or an fsspec URL.
        destination: A local directory, not a URL; made if missing.
        to: `tensorboard` or `mindinsight`; found from the files when None.
        options: What decides the output.
        workers: Processes; 1 converts in this one, and so does one run. None for one on each core where there is enough
            to read. A program that asks for more than one has its code below `if __name__ == "__main__":`.
        dask: Address of a Dask scheduler whose workers see the same paths; used in place of processes.
        force: Start over: removes what earlier conversions wrote here, and nothing else.
        progress: Called with (source bytes read so far, source bytes in all).

    Returns:
        What was read, written, lost and damaged. Errors of single runs are in their reports; so is the error that
        kept what was done from being remembered, in `Report.failed`.

    Raises:
        LogdirError: The source has no event files, or the destination cannot be used.
        UsageError: An argument cannot be so, or contradicts the files or the destination.
        MissingDependencyError: `dask` is asked for and not installed.
    """
    request = make_request(source, destination, to, options, workers, dask, force)
    found = discover(request.source)
    target = to or direction_of(found)
    if not runs_for(found, target):
        _refuse_empty(found, target)
    with open_conversion(request, found, target) as conversion:
        return conversion.convert(found, progress=progress)


def make_request(
    source: Path,
    destination: Path,
    to: str | None,
    options: ConvertOptions | None,
    workers: int | None,
    dask: str | None = None,
    force: bool = False,
) -> Request:
    """Checks what `convert_logdir` is asked for.

    Raises:
        UsageError: An argument cannot be so.
    """
    check_choice("to", to, (None, *TARGETS))
    if workers is not None:
        check_number("workers", workers, 1)
    if dask is not None and (type(dask) is not str or not dask):
        raise UsageError(f"dask: must be the address of a scheduler, not {dask!r}")
    if options is not None and not isinstance(options, ConvertOptions):
        raise UsageError(f"options: must be a ConvertOptions, not {options!r}")
    source, destination = check_path("source", source), check_path("destination", destination, is_local=True)
    return Request(source, destination, to, options or ConvertOptions(), workers, dask, force)


def _refuse_empty(found: Logdir, target: str) -> None:
    """Ends a conversion that has no run: harmless when files are there that hold nothing yet."""
    if found.runs:
        kinds = ", ".join(sorted({run.format for run in found.runs}))
        raise UsageError(f"{found.source}: only {kinds} files are there, nothing to convert to {target}")
    if not found.empty:
        raise found.no_events()
