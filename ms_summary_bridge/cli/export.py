"""The command `export`."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from ms_summary_bridge.cli.output import print_json, print_wide
from ms_summary_bridge.cli.progress import ProgressBar
from ms_summary_bridge.errors import UsageError, counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_summary_bridge.export.logdir import ExportReport

__all__ = ["FileFormat", "export"]


class FileFormat(str, Enum):
    """What `export --format` takes."""

    csv = "csv"
    jsonl = "jsonl"
    parquet = "parquet"
    images = "images"
    runs = "runs"


def export(
    src: Annotated[str, typer.Argument(help="A file, a run, a directory with runs at any depth, or an fsspec URL.")],
    dst: Annotated[str, typer.Argument(help="Directory for the files; made if missing.")],
    format: Annotated[FileFormat, typer.Option(help="What to write.")],
    runs: Annotated[str, typer.Option(metavar="REGEX", help="Only runs in whose name this is found.")] = "",
    tags: Annotated[str, typer.Option(metavar="REGEX", help="Only tags in which this is found.")] = "",
    sort: Annotated[
        str,
        typer.Option(
            metavar="COLUMN",
            help="With --format runs: the column that orders the rows; with - before it the highest goes first.",
        ),
    ] = "",
    force: Annotated[bool, typer.Option("--force", help="Replace files of the same names.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> int:
    """Write the values of all runs as CSV, JSON lines, Parquet or image files, or a table with a row for each run.

    csv: scalars.csv, histograms.csv (a line for each bucket), texts.csv, tensors.csv. jsonl: values.jsonl, an object a
    line. parquet: the files of csv as columns (needs pyarrow). images: RUN/TAG/STEP.png, the bytes untouched. Values
    that a format has no place for are counted. runs: runs.csv, a row for each training: state, best and last loss with
    steps, metrics of evaluations, settings.

    Example: ms-summary-bridge export ./summary_dir ./numbers --format csv
    """
    if format is FileFormat.runs:
        return _export_rows(src, dst, sort or "run", runs, force=force, json=json, tags=tags)
    if sort:
        raise UsageError("--sort goes with --format runs alone: the values of a run stand in the order of its files")
    from ms_summary_bridge.export.logdir import export_logdir

    with ProgressBar(json, "exporting", is_bytes=False) as progress:
        report = export_logdir(src, dst, format=format.value, runs=runs, tags=tags, force=force, progress=progress)
    if json:
        print_json(report)
    else:
        print_wide(_render(report))
    return 3 if report.problems else 0


def _render(report: ExportReport) -> Iterator[str]:
    from ms_summary_bridge.formats.kind_names import with_article

    if not report.files:
        runs = f"{counted(report.runs, 'run')} of {report.source}"
        yield f"nothing to write as {report.format}: no such value in {runs}"
    for name, values in sorted(report.files.items()):
        yield f"{_column(values, 'value')}  {report.destination}/{name}"
    for kind, values in sorted(report.left_out.items()):
        yield f"{_column(values, 'value')}  left out: {report.format} has no place for {with_article(kind)}"
    for problem in report.problems:
        yield f"not read: {problem}"


def _column(count: int, noun: str) -> str:
    """Returns a number with its noun, as wide for one as for many."""
    return f"{count:>12,} {noun}{' ' if count == 1 else 's'}"


def _export_rows(src: str, dst: str, sort: str, runs: str, *, force: bool, json: bool, tags: str) -> int:
    from ms_summary_bridge.columns.read import matcher
    from ms_summary_bridge.states.compare.rows import list_run_rows, write_run_rows

    if tags:
        raise UsageError("--tags does not go with --format runs: a row has the loss and the metrics of evaluations")
    with ProgressBar(json, "reading", is_bytes=False) as progress:
        found = list_run_rows(src, sort=sort, runs=matcher("--runs", runs), progress=progress)
    path = write_run_rows(found, dst, force=force)
    if json:
        print_json({"file": path, "columns": found.columns, "rows": found.rows, "problems": found.problems})
    else:
        print_wide(
            [f"{_column(len(found.rows), 'row')}  {path}", *(f"not read: {problem}" for problem in found.problems)]
        )
    return 3 if found.problems else 0
