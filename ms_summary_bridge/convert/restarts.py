"""Restarts: finds the later files of a run that begin again, by reading it from its start.

What a restart is, is said in `series`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ms_summary_bridge.convert.series import SeriesTable
from ms_summary_bridge.events import Event, Summary
from ms_summary_bridge.files.event_file import EventFileReader
from ms_summary_bridge.runs.archive import make_decoder

__all__ = ["find_restarts"]


def find_restarts(files: Sequence[tuple[str, int]], source: str) -> list[tuple[int, int]]:
    """Returns index and first step of the files that are restarts.

    Args:
        files: Path of each file of a run, in their order, and up to which byte it is read.
        source: Their format.

    Raises:
        LogdirError: A file cannot be read.
    """
    series = SeriesTable()
    starts: list[tuple[int, int]] = []
    for index, (path, end) in enumerate(files):
        is_open = index > 0
        with EventFileReader(path, make_decoder(source)) as reader:
            for item in reader:
                if reader.offset > end:
                    break
                if isinstance(item, Event) and isinstance(item.content, Summary):
                    if is_open and (verdict := series.is_restart(item, item.content)) is not None:
                        is_open = False
                        if verdict:
                            starts.append((index, item.step))
                            series.forget()
                    series.observe(item, item.content)
    return starts
