"""Exports the values of all runs below a path."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ms_summary_bridge.batches.reader import Batch
from ms_summary_bridge.columns.growing import GrowingColumns
from ms_summary_bridge.columns.read import choose_runs, iter_items, matcher, problems_of
from ms_summary_bridge.errors import BridgeError, ReadError, WriteError
from ms_summary_bridge.events import Summary
from ms_summary_bridge.export.writer import ExportWriter, Names, Place
from ms_summary_bridge.export.writers import FORMATS, make_writer
from ms_summary_bridge.files.arguments import check_choice, check_path
from ms_summary_bridge.files.event_file import Path
from ms_summary_bridge.runs.logdir import Run
from ms_summary_bridge.runs.reading import RunReading
from ms_summary_bridge.values import Scalar

__all__ = ["ExportReport", "export_logdir"]

_ROWS = 100_000  # scalars that are held before they are written


class ExportReport(msgspec.Struct):
    """One call of `export`."""

    source: str
    destination: str
    format: str
    runs: int = 0
    files: dict[str, int] = msgspec.field(default_factory=dict)
    """Values in each file; `images` counts image files."""
    left_out: dict[str, int] = msgspec.field(default_factory=dict)
    """Values that this format has no place for, by kind."""
    problems: list[str] = msgspec.field(default_factory=list)
    """What could not be read."""


def export_logdir(
    source: Path,
    destination: Path,
    *,
    format: str,
    runs: str = "",
    tags: str = "",
    force: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> ExportReport:
    """Writes the values of all runs below a path into files.

    Args:
        source: A file, a run, a tree of runs, or an fsspec URL of such; MindSpore's or TensorBoard's.
        destination: A local directory; made if missing.
        format: `csv`, `jsonl`, `parquet` or `images`.
        runs: Regular expression; runs whose name it is not found in are left out.
        tags: The same for tags.
        force: Replace files of the same names.
        progress: Called with (runs done, runs in all).

    Returns:
        How many values each file has, what the format has no place for, and what could not be read. A file gets its
        name when it is whole.

    Raises:
        LogdirError: The source cannot be read at all, or the destination cannot be written.
        FileTakenError: A file is there already, and `force` is not set.
        MissingDependencyError: `parquet` without pyarrow.
        UsageError: An argument cannot be so.
    """
    source, destination = check_path("source", source), check_path("destination", destination, is_local=True)
    check_choice("format", format, FORMATS)
    found, chosen = choose_runs(source, runs)
    report = ExportReport(source, destination, format)
    report.problems += [f"{problem.path}: {problem.reason}" for problem in found.problems]
    writer = make_writer(format, destination, is_forced=force)
    columns = GrowingColumns(matcher("tags", tags))
    names = Names([run.name for run in chosen], columns.tags)
    try:
        for number, run in enumerate(chosen):
            columns.begin_run(number)
            _export_run(run, _Export(writer, columns, names, report, matcher("tags", tags)))
            report.runs += 1
            if progress is not None:
                progress(number + 1, len(chosen))
        writer.close()
    except BridgeError as error:
        writer.abandon(error)
        raise
    except OSError as error:
        writer.abandon(error)
        raise WriteError.of_system(destination, "written", error) from error
    except BaseException as error:
        writer.abandon(error)
        raise
    report.files = writer.rows
    return report


class _Export(msgspec.Struct):
    writer: ExportWriter
    columns: GrowingColumns
    names: Names
    report: ExportReport
    is_wanted: Callable[[str], bool]


def _export_run(run: Run, export: _Export) -> None:
    """Exports one run; what of it cannot be read is named in the report."""
    reading = RunReading()
    columns = export.columns
    before = columns.rows
    try:
        for item in iter_items(run, reading):
            if isinstance(item, Batch):
                columns.add_batch(item)
            else:
                columns.add_event(item)
                if isinstance(item.content, Summary):
                    for tagged in item.content.values:
                        if isinstance(tagged.value, Scalar) or tagged.derived or not export.is_wanted(tagged.tag):
                            continue
                        place = Place(run.name, tagged.tag, item.step, item.wall_time)
                        if not export.writer.write(place, tagged.value):
                            _count(export.report, tagged.value.kind)
                elif not item.derived and item.content.kind not in _MARKS:
                    _count(export.report, item.content.kind)
            if columns.rows - before >= _ROWS:
                before = columns.rows
                _write_scalars(export)
    except ReadError as error:
        export.report.problems.append(f"run {run.name}: {error}")
    _write_scalars(export)
    export.report.problems += problems_of(reading)


_MARKS = ("file_version", "session_log")


def _count(report: ExportReport, kind: str, values: int = 1) -> None:
    report.left_out[kind] = report.left_out.get(kind, 0) + values


def _write_scalars(export: _Export) -> None:
    columns = export.columns.take()
    if len(columns[0]) and not export.writer.write_scalars(columns, export.names):
        _count(export.report, Scalar.kind, len(columns[0]))
