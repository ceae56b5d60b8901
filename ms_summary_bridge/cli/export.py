"""The command `export`."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from ms_summary_bridge.cli.output import print_json, print_wide
from ms_summary_bridge.cli.progress import ProgressBar

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


def export(
    src: Annotated[str, typer.Argument(help="A file, a run, a directory with runs at any depth, or an fsspec URL.")],
    dst: Annotated[str, typer.Argument(help="Directory for the files; made if missing.")],
    format: Annotated[FileFormat, typer.Option(help="What to write.")],
    runs: Annotated[str, typer.Option(metavar="REGEX", help="Only runs in whose name this is found.")] = "",
    tags: Annotated[str, typer.Option(metavar="REGEX", help="Only tags in which this is found.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Replace files of the same names.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> int:
    """Write the values of all runs as CSV, JSON lines, Parquet or image files.

    csv: scalars.csv, histograms.csv (a line for each bucket), texts.csv, tensors.csv. jsonl: values.jsonl, an object a
    line. parquet: the files of csv as columns (needs pyarrow). images: RUN/TAG/STEP.png, the bytes untouched. Values
    that a format has no place for are counted.

    Example: ms-summary-bridge export ./summary_dir ./numbers --format csv
    """
    from ms_summary_bridge.export.logdir import export_logdir

    with ProgressBar(json, "exporting", is_bytes=False) as progress:
        report = export_logdir(src, dst, format=format.value, runs=runs, tags=tags, force=force, progress=progress)
    if json:
        print_json(report)
    else:
        print_wide(_render(report))
    return 3 if report.problems else 0


def _render(report: ExportReport) -> Iterator[str]:
    if not report.files:
        yield f"nothing to write as {report.format}: {report.runs} run(s) of {report.source} hold no such value"
    for name, values in sorted(report.files.items()):
        yield f"{values:>12,} values  {report.destination}/{name}"
    for kind, values in sorted(report.left_out.items()):
        yield f"{values:>12,} values  left out: {report.format} has no place for a {kind}"
    for problem in report.problems:
        yield f"not read: {problem}"
