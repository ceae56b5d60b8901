"""Reports as a person reads them: renderables for rich, and nothing printed here.

Layer: report, verify, inspect < **render**.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Final

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ms_summary_bridge.inspect import InspectReport, RunInspection
from ms_summary_bridge.report import DamagedRange, IncompleteTail, Report, RunReport
from ms_summary_bridge.verify import VerifyReport

__all__ = ["render_inspection", "render_report", "render_verification"]

_ROWS: Final = 20  # rows of a long list that are shown; --json and --report have all of them


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, justify="right" if column in _NUMBERS else "left", overflow="fold")
    return table


_NUMBERS: Final = frozenset({"points", "first step", "last step", "count", "events", "in A", "in B", "values"})


def _rest(total: int) -> Iterator[RenderableType]:
    if total > _ROWS:
        yield Text(f"  ... and {total - _ROWS:,} more", style="dim")


def _damage_lines(damaged: list[DamagedRange], incomplete: list[IncompleteTail]) -> Iterator[RenderableType]:
    for item in damaged[:_ROWS]:
        where = (
            f"{item.file}: bytes {item.start:,} to {item.end:,} ({item.end - item.start:,} bytes) hold no whole record"
        )
        yield Text(f"  damaged     {where}: {item.reason}", style="red")
    yield from _rest(len(damaged))
    for tail in incomplete[:_ROWS]:
        yield Text(f"  incomplete  {tail.file}: ends inside a record at byte {tail.offset:,}; going on there next time")
    yield from _rest(len(incomplete))


def render_report(report: Report, *, is_dry: bool = False) -> Iterator[RenderableType]:
    """Yields what a conversion has to say."""
    verb = "would be converted" if is_dry else "converted"
    table = _table("run", "events", "values", "what", "to")
    for run in report.runs[:_ROWS]:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(run.values.items()))
        table.add_row(
            escape(run.run),
            f"{run.events_read:,}",
            f"{sum(run.values.values()):,}",
            kinds or ("failed" if run.failed else "nothing new"),
            escape(run.destination),
        )
    if report.runs:
        yield table
    yield from _rest(len(report.runs))
    for run in report.runs[:_ROWS]:
        yield from _run_lines(run)
    for line in report.unreadable[:_ROWS]:
        yield Text(f"not read: {line}", style="red")
    yield from _rest(len(report.unreadable))
    if report.empty:
        yield Text(f"{_plural(len(report.empty), 'file')} without an event passed over")
    values = sum(sum(run.values.values()) for run in report.runs)
    yield Text(f"{_plural(len(report.runs), 'run')}, {_plural(values, 'value')} {verb} to {report.to}", style="bold")


def _run_lines(run: RunReport) -> Iterator[RenderableType]:
    lines: list[RenderableType] = []
    if run.failed:
        lines.append(Text(f"  failed      {run.failed}", style="red"))
    if run.repeated:
        lines.append(Text(f"  repeated    {_plural(run.repeated, 'value')} written once"))
    if run.filtered:
        lines.append(Text(f"  left out    {_plural(run.filtered, 'value')} by --tags"))
    if run.superseded:
        lines.append(Text(f"  superseded  {_plural(run.superseded, 'value')} left out by --on-restart latest"))
    for mark in run.restarts:
        lines.append(Text(f"  restart     {mark.file} begins again at step {mark.step}"))
    for renamed in run.renamed_tags[:_ROWS]:
        lines.append(
            Text(f"  renamed     {renamed.kind} {renamed.tag!r} is {renamed.name!r}: its tag is taken by another kind")
        )
    for tag, count in list(run.went_back.items())[:_ROWS]:
        lines.append(
            Text(f"  went back   {tag!r}: {_plural(count, 'time')} to a lower step inside a file; left as it is")
        )
    for loss in run.losses[:_ROWS]:
        name = f"{loss.kind} {loss.tag!r}" if loss.tag else loss.kind
        lines.append(Text(f"  not exact   {loss.count:,} x {name}: {loss.reason}", style="yellow"))
    lines.extend(_rest(len(run.losses)))
    if run.archived:
        lines.append(Text(f"  archived    the original of {_plural(run.archived, 'event')} is kept beside the output"))
    lines.extend(_damage_lines(run.damaged, run.incomplete))
    if run.padding_bytes:
        lines.append(Text(f"  padding     {run.padding_bytes:,} zero bytes passed over"))
    lines += [Text(f"  note        {problem}", style="yellow") for problem in run.problems[:_ROWS]]
    if lines:
        yield Text(run.run, style="bold")
        yield from lines


def render_inspection(report: InspectReport) -> Iterator[RenderableType]:
    """Yields what an inspection has to say."""
    for run in report.runs:
        yield from _inspected_run(run)
    for line in report.unreadable[:_ROWS]:
        yield Text(f"not read: {line}", style="red")
    yield from _rest(len(report.unreadable))
    if report.empty:
        yield Text(f"{_plural(len(report.empty), 'file')} without an event")
    yield Text(_plural(len(report.runs), "run"), style="bold")


def _inspected_run(run: RunInspection) -> Iterator[RenderableType]:
    rank = "" if run.rank is None else f", rank {run.rank}"
    role = {"source": "", "live": ", written by the callback", "convert": ", written by convert"}[run.role]
    yield Text.assemble(
        (run.run, "bold"),
        f"  {run.format}{role}{rank}, {_plural(len(run.files), 'file')}, "
        f"{run.bytes:,} bytes, {_plural(run.records, 'record')}, {', '.join(run.versions) or 'no version'}",
    )
    if run.tags:
        first = min(tag.first_wall_time for tag in run.tags)
        last = max(tag.last_wall_time for tag in run.tags)
        yield Text(f"  {_time(first)} to {_time(last)}")
    table = _table("kind", "tag", "points", "first step", "last step")
    for tag in run.tags[: 2 * _ROWS]:
        table.add_row(tag.kind, escape(tag.tag), f"{tag.points:,}", str(tag.first_step), str(tag.last_step))
    yield table
    if len(run.tags) > 2 * _ROWS:
        yield Text(f"  ... and {len(run.tags) - 2 * _ROWS:,} more tags (--json shows all)", style="dim")
    if run.derived:
        yield Text(f"  {_plural(run.derived, 'value')} beside them computed by the conversion")
    for twin in run.twins:
        yield Text(f"  beside it our own TensorBoard output ({twin}), the same data")
    yield from _damage_lines(run.damaged, run.incomplete)
    if run.padding_bytes:
        yield Text(f"  padding     {run.padding_bytes:,} zero bytes")
    yield Text("")


def _time(wall_time: float) -> str:
    try:
        return datetime.fromtimestamp(wall_time, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"{wall_time} s"


def render_verification(report: VerifyReport) -> Iterator[RenderableType]:
    """Yields what a comparison has to say."""
    for run in report.runs:
        if run.differences:
            name = run.run_a if run.run_a == run.run_b else f"{run.run_a} and {run.run_b}"
            yield Text(f"{name}: {len(run.differences)} of {run.series} series differ", style="bold red")
            table = _table("kind", "tag", "in A", "in B", "difference")
            for item in run.differences[:_ROWS]:
                table.add_row(
                    item.kind, escape(item.tag), f"{item.points_a:,}", f"{item.points_b:,}", escape(item.detail)
                )
            yield table
            yield from _rest(len(run.differences))
    for side, names in (("A", report.only_a), ("B", report.only_b)):
        for name in names[:_ROWS]:
            yield Text(f"run {name} is only in {side}", style="red")
        yield from _rest(len(names))
    yield from _damage_lines(report.damaged, report.incomplete)
    for line in report.unreadable[:_ROWS]:
        yield Text(f"not read: {line}", style="red")
    points = sum(run.points for run in report.runs)
    runs = _plural(len(report.runs), "run")
    if report.is_equal:
        yield Text(f"equal: {runs}, {_plural(points, 'point')}", style="bold green")
    else:
        yield Text(f"different: {runs} compared, {_plural(points, 'point')} equal", style="bold red")
