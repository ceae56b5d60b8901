"""Reports as a person reads them: renderables for rich, and nothing printed here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from ms_summary_bridge.cli.folding import fold
from ms_summary_bridge.cli.output import printable
from ms_summary_bridge.errors import counted

if TYPE_CHECKING:
    from ms_summary_bridge.columns.inspect import InspectReport, RunInspection
    from ms_summary_bridge.columns.profile import Profile
    from ms_summary_bridge.convert.verify import VerifyReport
    from ms_summary_bridge.runs.report import DamagedRange, IncompleteTail, LossCount, Report, RunReport

__all__ = ["render_errors", "render_inspection", "render_report", "render_verification"]

_ROWS: Final = 20  # rows of a long list that are shown; --json and --report have all of them
_NARROWEST: Final = 16  # cells of a column, where there is no place
_HANG: Final = 2  # cells before what follows in a column
_TAGS: Final = 3  # tags that are named in one line


def _line(text: str, style: str = "") -> Text:
    return Text(printable(text), style)


class _Cell:
    """A text in a table, which breaks where a line would."""

    def __init__(self, text: str) -> None:
        self._text = printable(text)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        parts = re.split(r"(?<=/)| ", self._text)
        width = min(options.max_width, cell_len(self._text))
        return Measurement(min(max(map(cell_len, parts)) + _HANG, _NARROWEST, width), width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text("\n".join(fold(self._text, options.max_width, _HANG)), overflow="fold")


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, justify="right" if column in _NUMBERS else "left", overflow="fold")
    return table


_NUMBERS: Final = frozenset(
    {"mean ms", "total ms", "share", "points", "first step", "last step", "count", "events", "in A", "in B", "values"}
)


def _rest(total: int) -> Iterator[RenderableType]:
    if total > _ROWS:
        yield _line(f"  ... and {total - _ROWS:,} more", style="dim")


def _listed(start: str, texts: list[str], style: str = "") -> Iterator[RenderableType]:
    yield from (_line(start + text, style) for text in texts[:_ROWS])
    yield from _rest(len(texts))


def _damage_lines(damaged: list[DamagedRange], incomplete: list[IncompleteTail]) -> Iterator[RenderableType]:
    places = [
        (each, f"bytes {each.start:,} to {each.end:,} ({counted(each.end - each.start, 'byte')})") for each in damaged
    ]
    texts = [f"{each.file}: {place} hold no whole record: {each.reason}" for each, place in places]
    yield from _listed("  damaged     ", texts, "red")
    texts = [f"{tail.file}: ends inside a record at byte {tail.offset:,}" for tail in incomplete]
    yield from _listed("  incomplete  ", [f"{text}; going on there next time" for text in texts])


def render_report(report: Report, *, is_dry: bool = False, full: str = "") -> Iterator[RenderableType]:
    """Yields what a conversion has to say; `full` is the file that has the whole report, empty for none."""
    rest = f"{full} has all of them" if full else "--report FILE.json writes all of them to a file"
    verb = "would be converted" if is_dry else "converted"
    table = _table("run", "events", "values", "what", "to")
    # Of many runs those come first that something is wrong with, then those with something new: none of the first may
    # be passed over in silence, and of what was converted before nobody needs to be told.
    ordered = sorted(report.runs, key=lambda run: (not run.failed, not run.damaged, not run.values))
    for run in ordered[:_ROWS]:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(run.values.items()))
        table.add_row(
            _Cell(run.run),
            f"{run.events_read:,}",
            f"{sum(run.values.values()):,}",
            _Cell(kinds or ("failed" if run.failed else "nothing new")),
            _Cell(run.destination),
        )
    if report.runs:
        yield table
    if len(ordered) > _ROWS:
        left = ordered[_ROWS:]
        new = sum(bool(run.values) for run in left)
        text = f"  ... and {counted(len(left), 'more run')}, {new:,} of them with something new; {rest}"
        yield _line(text, style="dim")
    for run in ordered[:_ROWS]:
        yield from _run_lines(run)
    troubled = sum(bool(run.failed or run.damaged) for run in report.runs)
    if troubled > _ROWS:
        more = counted(troubled - _ROWS, "more run that failed or is damaged", "more runs that failed or are damaged")
        yield _line(f"  ... and {more}; {rest}", "red")
    yield from _listed("not read: ", report.unreadable, "red")
    yield from _empty_lines(report.empty)
    for note in report.notes:
        yield _line(f"note: {note}")
    done = [run for run in report.runs if not run.failed]
    values = sum(sum(run.values.values()) for run in done)
    text = f"{counted(len(done), 'run')}, {counted(values, 'value')} {verb} to {report.to}"
    if report.failures:
        text += f"; {counted(len(report.failures), 'run')} failed"
    if report.failed:
        yield _line(f"failed: {report.failed}", style="red")
    yield _line(text, style="bold red" if report.failures or report.failed else "bold")


def _empty_lines(paths: list[str]) -> Iterator[RenderableType]:
    if paths:
        yield _line(f"{counted(len(paths), 'file')} without an event passed over:")
        yield from _listed("  ", paths)


def _run_lines(run: RunReport) -> Iterator[RenderableType]:
    lines: list[RenderableType] = []
    if run.failed:
        lines.append(_line(f"  failed      {run.failed}", style="red"))
    counts = {
        f"  shortened   {run.full_name!r} is too long for a directory; converting back gives it again": run.full_name,
        f"  repeated    {counted(run.repeated, 'value')} written once": run.repeated,
        f"  left out    {counted(run.filtered, 'value')} by --tags": run.filtered,
        f"  superseded  {counted(run.superseded, 'value')} left out by --on-restart latest": run.superseded,
    }
    lines += [_line(text) for text, count in counts.items() if count]
    lines += [_line(f"  restart     {mark.file} begins again at step {mark.step}") for mark in run.restarts]
    waits = "it grows, and may be a restart; what goes back is not written yet"
    lines += [_line(f"  waits       {path}: {waits}") for path in run.held]
    renamed = [
        f"{each.kind} {each.tag!r} is {each.name!r}: its tag is taken by another kind" for each in run.renamed_tags
    ]
    lines += _listed("  renamed     ", renamed)
    went_back = [
        f"{tag!r}: {counted(count, 'time')} to a lower step inside a file" for tag, count in run.went_back.items()
    ]
    lines += _listed("  went back   ", [f"{text}; left as it is" for text in went_back])
    lines += _loss_lines(run.losses)
    if run.archived:
        lines.append(_line(f"  archived    the original of {counted(run.archived, 'event')} is kept beside the output"))
    lines += _damage_lines(run.damaged, run.incomplete)
    if run.padding_bytes:
        lines.append(_line(f"  padding     {counted(run.padding_bytes, 'zero byte')} passed over"))
    lines += _listed("  note        ", run.problems, "yellow")
    if lines:
        yield _line(run.run, style="bold")
        yield from lines


def _loss_lines(losses: list[LossCount]) -> Iterator[RenderableType]:
    """Yields a line for each kind and reason, with some of the tags: a thousand tags must not hide another reason."""
    groups: dict[tuple[str, str], list[LossCount]] = {}
    for loss in losses:
        groups.setdefault((loss.kind, loss.reason), []).append(loss)
    for (kind, reason), rows in list(groups.items())[:_ROWS]:
        tags = [repr(row.tag) for row in rows if row.tag]
        names = " " + ", ".join(tags[:_TAGS]) if tags else ""
        if len(tags) > _TAGS:
            names += f" and {counted(len(tags) - _TAGS, 'more tag')}"
        yield _line(f"  not exact   {sum(row.count for row in rows):,} x {kind}{names}: {reason}", style="yellow")
    yield from _rest(len(groups))


def render_errors(report: Report) -> Iterator[RenderableType]:
    """Yields only what went wrong in a conversion."""
    for run in report.runs:
        if run.failed:
            yield _line(f"{run.run}: failed: {run.failed}")
        for item in run.damaged:
            yield _line(f"{item.file}: bytes {item.start:,} to {item.end:,} hold no whole record: {item.reason}")
    for line in report.unreadable:
        yield _line(f"not read: {line}")


def render_inspection(report: InspectReport) -> Iterator[RenderableType]:
    """Yields what an inspection has to say."""
    for run in report.runs:
        yield from _inspected_run(run)
    for profile in report.profiles:
        yield from _profile(profile)
    yield from _listed("not read: ", report.unreadable, "red")
    yield from _empty_lines(report.empty)
    yield _line(counted(len(report.runs), "run"), style="bold")


def _profile(profile: Profile) -> Iterator[RenderableType]:
    rank = "" if profile.rank is None else f", rank {profile.rank}"
    run = f", of run {profile.run}" if profile.run else ""
    steps = counted(profile.steps, "step") if profile.steps else "without times of steps"
    yield _line(f"profile {profile.directory}: {steps}{rank}{run}", style="bold")
    if profile.parts:
        table = _table("part of a step", "mean ms", "share")
        for part in profile.parts:
            share = "" if part.share is None else f"{part.share:.1%}".replace("%", " %")
            table.add_row(_line(part.name), f"{part.mean_us / 1000:,.3f}", share)
        yield table
    if profile.operators:
        table = _table("operator", "core", "count", "total ms", "share")
        for one in profile.operators[: _ROWS // 2]:
            share = f"{one.share:.1%}".replace("%", " %")
            row = _line(one.type), _line(one.core), f"{one.count:,}", f"{one.total_us / 1000:,.3f}", share
            table.add_row(*row)
        yield table
    if not profile.parts and not profile.operators:
        yield _line("  it has neither times of steps nor of operators")
    yield from _listed("not read: ", profile.problems, "red")


def _inspected_run(run: RunInspection) -> Iterator[RenderableType]:
    rank = "" if run.rank is None else f", rank {run.rank}"
    role = {"source": "", "live": ", written by the callback", "convert": ", written by convert"}[run.role]
    yield Text.assemble(
        (printable(run.run), "bold"),
        f"  {run.format}{role}{rank}, {counted(len(run.files), 'file')}, "
        f"{counted(run.bytes, 'byte')}, {counted(run.records, 'record')}, "
        f"{printable(', '.join(run.versions)) or 'no version'}",
    )
    if run.tags:
        first = min(tag.first_wall_time for tag in run.tags)
        last = max(tag.last_wall_time for tag in run.tags)
        yield _line(f"  {_time(first)} to {_time(last)}")
    table = _table("kind", "tag", "points", "first step", "last step")
    for tag in run.tags[: 2 * _ROWS]:
        table.add_row(_Cell(tag.kind), _Cell(tag.tag), f"{tag.points:,}", str(tag.first_step), str(tag.last_step))
    yield table
    if len(run.tags) > 2 * _ROWS:
        yield _line(f"  ... and {counted(len(run.tags) - 2 * _ROWS, 'more tag')} (--json shows all)", style="dim")
    if run.derived:
        yield _line(f"  {counted(run.derived, 'value')} beside them computed by the conversion")
    for twin in run.twins:
        yield _line(f"  beside it our own TensorBoard output ({twin}), the same data")
    yield from _damage_lines(run.damaged, run.incomplete)
    if run.padding_bytes:
        yield _line(f"  padding     {counted(run.padding_bytes, 'zero byte')}")
    yield from _listed("  ", run.problems, "yellow")
    yield _line("")


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
            yield _line(f"{name}: {len(run.differences)} of {run.series} series differ", style="bold red")
            table = _table("kind", "tag", "in A", "in B", "difference")
            for item in run.differences[:_ROWS]:
                table.add_row(
                    _Cell(item.kind), _Cell(item.tag), f"{item.points_a:,}", f"{item.points_b:,}", _Cell(item.detail)
                )
            yield table
            yield from _rest(len(run.differences))
    for side, names in (("A", report.only_a), ("B", report.only_b)):
        yield from _listed("", [f"run {name} is only in {side}" for name in names], "red")
    yield from _damage_lines(report.damaged, report.incomplete)
    for line in report.unreadable[:_ROWS]:
        yield _line(f"not read: {line}", style="red")
    skipped = sum(run.not_compared for run in report.runs)
    if skipped:
        yield Text(f"not compared: {counted(skipped, 'point')} that only one of the two formats can have")
    if report.left_out:
        yield _line(f"left out, as the conversion does: {', '.join(report.left_out[:_ROWS])}")
        yield from _rest(len(report.left_out))
    if report.options:
        yield _line(f"what was left out by {report.options} is not missed")
    older = sum(run.derived_by_older for run in report.runs)
    if older:
        yield _line(
            f"{counted(older, 'derived value was', 'derived values were')} made by an older version: "
            "their number was compared only"
        )
    points = sum(run.points for run in report.runs)
    runs = counted(len(report.runs), "run")
    if report.is_equal:
        derived = sum(run.derived + run.derived_by_older for run in report.runs)
        also = f", and {counted(derived, 'value')} made from them" if derived else ""
        yield _line(f"equal: {runs}, {counted(points, 'point')}{also}", style="bold green")
    else:
        yield _line(f"different: {runs} compared, {counted(points, 'point')} equal", style="bold red")
