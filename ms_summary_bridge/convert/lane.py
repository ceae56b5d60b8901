"""The batch lane of a conversion: what of a file goes many at a time, and what it has learned from the rest."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from crc32c import crc32c

from ms_summary_bridge.batches.histograms import Drawn, Histograms
from ms_summary_bridge.batches.limits import LIMITS
from ms_summary_bridge.batches.reader import Batch
from ms_summary_bridge.batches.shapes import Shapes
from ms_summary_bridge.convert.batches import judge
from ms_summary_bridge.convert.restarts import FileWalk
from ms_summary_bridge.convert.series import SeriesKey, SeriesTable
from ms_summary_bridge.convert.sink import RunSink
from ms_summary_bridge.events import Decoder, Event, Summary
from ms_summary_bridge.formats import mindspore, tensorboard
from ms_summary_bridge.runs.report import RunReport
from ms_summary_bridge.values import Value

__all__ = ["BatchLane"]


class BatchLane:
    """Writes what comes in batches, with the result that the general way would have.

    Args:
        source: Format of the run.
        report: Where values are counted.
        series: The series of the run.
        sink: Where they go.
        make_decoder: Makes a decoder that knows what earlier events said.
        put: The general way.
    """

    def __init__(
        self,
        source: str,
        report: RunReport,
        series: SeriesTable,
        sink: RunSink,
        make_decoder: Callable[[], Decoder],
        put: Callable[[Event], bytes | None],
    ) -> None:
        self._shapes = Shapes(b"\x1d" if source == mindspore.FORMAT else b"\x15")
        self._histograms = Histograms() if sink.format == tensorboard.FORMAT else None
        self._report = report
        self._series = series
        self._sink = sink
        self._make_decoder = make_decoder
        self._put = put

    def open(self, walk: FileWalk) -> None:
        """Lets what a walk finds come in batches."""
        if LIMITS.is_used:
            walk.shapes, walk.histograms = self._shapes, self._histograms

    def learn(self, payload: bytes, event: Event, written: bytes | None) -> None:
        """Takes note of an event that went the general way, so that others like it may come in batches.

        Args:
            payload: Its bytes in the source; empty where they are not at hand.
            event: What they say.
            written: The payload that was written for it; None where that does not hold all of it.
        """
        if written is None or not payload:
            return
        if not self._shapes.learn(payload, event, written) and self._histograms is not None:
            self._histograms.learn(payload, event, written)

    def write(self, piece: Batch | Drawn, payload: bytes) -> None:
        """Writes events at once where nothing about them asks for a closer look, else one by one.

        Args:
            piece: The events.
            payload: Of the one event that was drawn.
        """
        if isinstance(piece, Batch):
            self._write_batch(piece)
        else:
            self._write_drawn(piece, payload)

    def _write_batch(self, batch: Batch) -> None:
        self._report.events_read += batch.events
        if not self._sink.takes_batches:
            first, batch = batch.split(1)
            self._write_each(first)
        judged = judge(batch, self._series) if self._sink.takes_batches and batch.events else None
        if judged is None:
            self._write_each(batch)
        elif judged.events:
            self._count("scalar", sum(judged.points.values()))
            self._sink.write_batch(judged)

    def _write_each(self, batch: Batch) -> None:
        for event in batch.decode(self._make_decoder()):
            self._put(event)

    def _write_drawn(self, drawn: Drawn, payload: bytes) -> None:
        self._report.events_read += 1
        if not self._sink.takes_batches or not self._series.observe_drawn(drawn, partial(self._take_out, payload)):
            self._put(self._make_decoder().decode(payload))
            return
        for kind, _, _ in drawn.values:
            self._count(kind, 1)
        self._sink.write_drawn(drawn.payload, crc32c(drawn.payload) if drawn.checksum is None else drawn.checksum)

    def _take_out(self, payload: bytes, key: SeriesKey) -> Value:
        """Returns a value of an event that was not taken apart when it was read."""
        content = self._make_decoder().decode(payload).content
        assert isinstance(content, Summary)
        return next(tagged.value for tagged in content.values if (tagged.value.kind, tagged.tag) == key)

    def _count(self, kind: str, values: int) -> None:
        self._report.values[kind] = self._report.values.get(kind, 0) + values
