"""The page of `watch` as lines for rich: the table of runs, and one run. Prints nothing."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Final

from rich.cells import cell_len
from rich.text import Text

from ms_summary_bridge.cli.cells import (
    fit,
    show_age,
    show_memory,
    show_moment,
    show_number,
    show_rate,
    sparkline,
    wrap,
)
from ms_summary_bridge.cli.output import printable
from ms_summary_bridge.cli.watch_view import HELP, Row, WatchView
from ms_summary_bridge.states.alerts import fold_alerts
from ms_summary_bridge.states.judgement import State
from ms_summary_bridge.states.run_state import RunState

__all__ = ["render_page", "render_table"]

_STYLES: Final[dict[State, str]] = {
    "non-finite": "bold white on red",
    "failed": "bold red",
    "stalled": "bold yellow",
    "running": "green",
    "ended": "cyan",
    "unknown": "dim",
}
_WIDE, _MIDDLE, _NARROW = 150, 110, 70
_MOST_LINES: Final = 12


class _Column:
    def __init__(self, title: str, width: int, is_right: bool = False) -> None:
        self.title, self.width, self.is_right = title, width, is_right


def _columns(width: int, rows: Sequence[Row]) -> list[_Column]:
    """Returns the columns that a width has room for; the name takes what the others leave, as far as it needs."""
    columns = [_Column("state", 10), _Column("step", 8, True)]
    if width >= _NARROW:
        spark = 24 if width >= _WIDE else 16 if width >= _MIDDLE else 10
        columns += [_Column("loss", 9, True), _Column("", spark)]
    if width >= _MIDDLE:
        columns += [_Column("lr", 9, True), _Column("rate", 15, True)]
    if width >= _WIDE:
        columns += [_Column("memory", 7, True), _Column("ranks", 5, True)]
    columns += [
        _Column("age", 4, True),
        _Column("alarms" if width >= _MIDDLE else "!", 6 if width >= _MIDDLE else 3, True),
    ]
    longest = max((cell_len(printable(row.name)) for row in rows), default=3)
    left = width - sum(column.width + 2 for column in columns)
    if width >= _WIDE:
        columns.append(_Column("evidence", 0))
        name = max(3, min(longest, max(60, width // 4), left - 30))
        columns[-1].width = left - name - 2
    else:
        name = max(3, min(max(longest, 3), left))
    return [_Column("run", name), *columns]


def _cells(row: Row, columns: Sequence[_Column], now: float, is_ascii: bool) -> list[tuple[str, str]]:
    rank = row.rank
    is_bad = rank.loss is not None and not math.isfinite(rank.loss)
    found = {
        "run": (printable(row.name), "bold" if row.is_trouble else ""),
        "state": (row.state, _STYLES[row.state]),
        "step": ("-" if row.step is None else str(row.step), ""),
        "loss": (show_number(rank.loss), "bold red" if is_bad else ""),
        "lr": (show_number(rank.lr, 3), ""),
        "rate": (show_rate(rank), ""),
        "memory": (show_memory(rank.memory), ""),
        "ranks": ("" if row.is_rank else str(len(row.run.ranks)), ""),
        "age": (show_age(now, row.last_time), ""),
        "evidence": (_evidence(row), "dim" if not row.is_trouble else ""),
    }
    alarms = str(row.alarms) if row.alarms else "-"
    found["alarms"] = found["!"] = (alarms, "bold red" if row.alarms else "dim")
    spark = next((column.width for column in columns if not column.title), 0)
    found[""] = (sparkline(rank.losses, spark, is_ascii=is_ascii), "red" if is_bad else "blue")
    return [found[column.title] for column in columns]


def _evidence(row: Row) -> str:
    words = printable("; ".join(row.evidence))
    problems = row.problems
    return f"{words}; {len(problems)} damaged or empty: {printable(problems[0])}" if problems else words


def render_table(
    rows: Sequence[Row],
    width: int,
    now: float,
    *,
    cursor: int | None = None,
    height: int | None = None,
    is_ascii: bool = False,
) -> list[Text]:
    """Returns the table's lines: a head, and for each row one line, or two where its evidence has no column.

    Args:
        rows: What to show.
        width: Cells of a line; none is longer.
        now: Seconds since the epoch.
        cursor: The chosen row, which is always among those shown.
        height: Most lines.
        is_ascii: Whether the terminal shows nothing else.
    """
    columns = _columns(width, rows)
    head = "  ".join(fit(column.title, column.width, is_right=column.is_right) for column in columns)
    lines = [Text(head[:width].rstrip(), "bold")]
    has_column = columns[-1].title == "evidence"
    sizes = [1 if has_column or not (row.is_trouble or row.problems) else 2 for row in rows]
    first, last = _window(sizes, cursor or 0, None if height is None else height - 1)
    for index in range(first, last):
        row, line = rows[index], Text()
        for number, (column, (text, style)) in enumerate(
            zip(columns, _cells(row, columns, now, is_ascii), strict=True)
        ):
            line.append("  " if number else "")
            keeps_end = column.title == "run"
            line.append(
                fit(text, column.width, keeps_end=keeps_end, is_right=column.is_right, is_ascii=is_ascii), style
            )
        if index == cursor:
            line.stylize("reverse")
        lines.append(line)
        if sizes[index] == 2:
            lines.append(Text(fit(f"  {_evidence(row)}", width, is_ascii=is_ascii).rstrip(), "dim"))
    return lines


def _window(sizes: Sequence[int], cursor: int, height: int | None) -> tuple[int, int]:
    """Returns which rows are shown: as many as fit, and the chosen one among them."""
    if height is None:
        return 0, len(sizes)
    first, used, last = 0, 0, 0
    for last, size in enumerate(sizes):
        used += size
        while used > height and first < last:
            if last > cursor:
                return first, last
            used -= sizes[first]
            first += 1
    return first, min(len(sizes), last + 1)


def render_page(
    runs: Sequence[RunState],
    view: WatchView,
    size: tuple[int, int],
    now: float,
    *,
    source: str,
    notes: Sequence[str] = (),
    is_ascii: bool = False,
) -> Text:
    """Returns the whole page.

    Args:
        runs: As the last look found them.
        view: What is shown.
        size: Cells of a line, and lines.
        now: Seconds since the epoch.
        source: The directory.
        notes: What else is to be said, the newest last.
        is_ascii: Whether the terminal shows nothing else.
    """
    width, height = size
    counts = {state: sum(run.state == state for run in runs) for state in _STYLES}
    title = Text(f"{time.strftime('%H:%M:%S', time.localtime(now))}  ")
    for state, count in counts.items():
        if count:
            title.append(f"{count} {state}", _STYLES[state])
            title.append("  ")
    room = max(width - title.cell_len - 2, width // 4)  # a long path is cut at its beginning, and hides no count
    place = fit(printable(source), room, is_ascii=is_ascii, keeps_end=True).rstrip()
    title = Text(f"{place}  ").append_text(title)
    title.truncate(width)
    said = [Text(fit(printable(note), width, is_ascii=is_ascii).rstrip(), "yellow") for note in notes[-2:]]
    room = max(1, height - 2 - len(said))
    opened = next((run for run in runs if run.name == view.opened), None) if view.opened is not None else None
    if opened is not None:
        body = _render_run(opened, width, room, now, is_ascii)
        foot = "esc back  q quit"
    else:
        rows = view.choose(runs)
        body = render_table(rows, width, now, cursor=view.cursor, height=room, is_ascii=is_ascii)
        if not rows:
            body.append(Text("nothing to show" if runs else "no run yet", "dim"))
        shown = [f"by {view.sort}" + (" reversed" if view.is_reversed else "")]
        shown += [f"only {view.only}"] if view.only else []
        shown += [f"filter {view.pattern}"] if view.pattern and view.typed is None else []
        foot = f"/{view.typed}_" if view.typed is not None else f"{', '.join(shown)}   {HELP}"
    body += [Text("")] * (room - len(body))
    lines = [title, *body[:room], *said, Text(fit(printable(foot), width, is_ascii=is_ascii).rstrip(), "dim")]
    return Text("\n", no_wrap=True, overflow="crop").join(lines)


def _render_run(run: RunState, width: int, height: int, now: float, is_ascii: bool) -> list[Text]:
    main = run.main
    lines = [Text(fit(printable(run.name), width, keeps_end=True).rstrip(), "bold")]

    def say(title: str, text: str, style: str = "") -> None:
        for number, part in enumerate(wrap(printable(text), width - 12)):
            line = Text(fit("" if number else title, 12), "dim")
            line.append(part, style)
            lines.append(line)

    say("state", run.state, _STYLES[run.state])
    for words in run.evidence:
        say("", words)
    say("directory", run.directory)
    say("step", "-" if run.step is None else str(run.step))
    if main.losses:
        of_rank = f" of rank {main.rank}" if len(run.ranks) > 1 else ""
        say("loss", f"{show_number(main.loss, 6)} at step {main.loss_step}  ({main.loss_tag}{of_rank})")
        say("", sparkline(main.losses, max(1, min(120, width - 12)), is_ascii=is_ascii), "blue")
    say("lr", show_number(main.lr, 6))
    say("rate", show_rate(main))
    say("memory", show_memory(main.memory))
    say("age", show_age(now, run.last_time))
    for wall_time, headline in fold_alerts(run.alarms)[-_MOST_LINES:]:
        say("alarm", f"{show_moment(wall_time)} {headline}", "red")
    for step, wall_time, text in run.milestones[-_MOST_LINES:]:
        say("milestone", f"{show_moment(wall_time)} step {step}: {text}")
    for problem in run.problems[:_MOST_LINES]:
        say("problem", problem, "yellow")
    if len(run.ranks) > 1:
        lines.append(Text(""))
        rows = [Row(f"rank {rank.rank}", run, rank, True) for rank in run.ranks]
        rows.sort(key=lambda row: not row.is_trouble)
        lines += render_table(rows, width, now, height=max(2, height - len(lines)), is_ascii=is_ascii)
    return lines
