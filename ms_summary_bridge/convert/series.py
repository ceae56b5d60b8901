"""Series: what the tags of one run have shown so far, to tell repeats and restarts.

No I/O.

* A **repeat** is a value with the tag, kind, step and bits of its tag's previous one: SummaryCollector writes the last
  step of an epoch twice.
* A **restart** is a later file of the run that begins at or below a step that the same tag has reached. Tags of the
  new file that the run has not seen yet say nothing (an evaluation may count epochs where training counts steps), so
  the answer waits for the first tag with a past. Graphs, lineage and other step-less events never count.
* A tag that goes **back** inside one file is no restart; it is counted.
"""

from __future__ import annotations

from collections.abc import Container

import msgspec

from ms_summary_bridge.events import Event, Summary, TaggedValue
from ms_summary_bridge.values import Histogram, Scalar

__all__ = ["Series", "SeriesTable"]


class Series(msgspec.Struct, array_like=True):
    """The last point of one series, and the highest step it reached."""

    step: int
    max_step: int
    fingerprint: bytes


class SeriesTable:
    """All series of a run.

    Args:
        rows: `(kind, tag, series)` of an earlier session, as `rows` returned them.
    """

    def __init__(self, rows: list[tuple[str, str, Series]] | None = None) -> None:
        self._series: dict[tuple[str, str], Series] = {(kind, tag): series for kind, tag, series in rows or ()}
        # Last values whose fingerprint is not made yet: it is needed only where a step comes twice, and takes long for
        # a histogram. Larger values are not held here.
        self._unmarked: dict[str, Histogram] = {}
        self.repeated = 0
        """Values passed over because they repeat their tag's previous one."""
        self.went_back: dict[str, int] = {}
        """How often each tag went back to a lower step inside a file."""

    @property
    def rows(self) -> list[tuple[str, str, Series]]:
        """Everything known, for `SeriesTable(rows)`."""
        for tag in tuple(self._unmarked):
            self._mark(tag)
        return [(kind, tag, series) for (kind, tag), series in self._series.items()]

    def observe(self, event: Event, summary: Summary) -> Event | None:
        """Takes note of a summary's values.

        Returns:
            The event without its repeats: the same object when it has none, None when nothing else is left.
        """
        step = event.step
        table = self._series
        fresh: list[TaggedValue] | None = None  # only made when something repeats
        for index, tagged in enumerate(summary.values):
            value = tagged.value
            series = table.get((value.kind, tagged.tag))
            if type(value) is Scalar:
                fingerprint = value.bits
            elif type(value) is not Histogram:
                fingerprint = value.fingerprint()
            elif series is None or step != series.step:
                fingerprint = b""
                self._unmarked[tagged.tag] = value
            else:
                self._mark(tagged.tag)
                fingerprint = value.fingerprint()
            if series is None:
                table[value.kind, tagged.tag] = Series(step, step, fingerprint)
            else:
                if step == series.step:
                    # An envelope with unknown fields is only kept whole, so nothing is taken out of it.
                    if fingerprint == series.fingerprint and event.original is None:
                        self.repeated += 1
                        if fresh is None:
                            fresh = list(summary.values[:index])
                        continue
                elif step > series.max_step:
                    series.max_step = step
                elif step < series.step:
                    self.went_back[tagged.tag] = self.went_back.get(tagged.tag, 0) + 1
                series.step = step
                series.fingerprint = fingerprint
            if fresh is not None:
                fresh.append(tagged)
        if fresh is None:
            return event
        return Event(event.wall_time, step, Summary(tuple(fresh)), event.format) if fresh else None

    def is_restart(self, event: Event, summary: Summary, own: Container[tuple[str, str]] = ()) -> bool | None:
        """Says whether a later file that goes on with `event` is a restart; None while its tags have no past.

        Args:
            event: The event.
            summary: Its content.
            own: `(kind, tag)` of series that the file itself began.
        """
        known = [
            series.max_step
            for tagged in summary.values
            if (series := self._series.get((tagged.value.kind, tagged.tag))) is not None
            and (tagged.value.kind, tagged.tag) not in own
        ]
        return event.step <= max(known) if known else None

    def _mark(self, tag: str) -> None:
        """Makes the fingerprint of a last histogram that has none yet."""
        value = self._unmarked.pop(tag, None)
        if value is not None:
            self._series[Histogram.kind, tag].fingerprint = value.fingerprint()

    def forget(self) -> None:
        """Begins anew after a restart: no value of the new session repeats one of the old."""
        self._series.clear()
        self._unmarked.clear()
