"""A sink on a thread of its own, for what may wait for a network without limit: files and alarms go on meanwhile."""

from __future__ import annotations

from typing import Final

from ms_summary_bridge.monitor.model.sample import Note, Sample
from ms_summary_bridge.monitor.sinks.writer import Sink, Writer
from ms_summary_bridge.training.faults import Faults

__all__ = ["DetachedSink"]

_CLOSE_SECS: Final = 10.0


class DetachedSink(Sink):
    """Hands everything to a sink through a writer of its own, which drops and counts what finds no room.

    It is opened on its own thread when the first item comes; `name` stands before what is said of it.
    """

    def __init__(self, sink: Sink, name: str, faults: Faults, *, close_secs: float = _CLOSE_SECS) -> None:
        self._close_secs = close_secs
        self._name = name
        self._faults = faults
        self._writer = Writer(lambda: [sink], faults, name=name)

    def write_sample(self, sample: Sample) -> None:
        """Takes a sample."""
        self._writer.put(sample)

    def write_note(self, note: Note) -> None:
        """Takes a note."""
        self._writer.put(note)

    def close(self) -> None:
        """Waits for the sink, but not for long; says how many items found no room."""
        self._writer.close(self._close_secs)
        if dropped := self._writer.dropped:
            message = f"{self._name} lacks {dropped} values or notes that came faster than they were taken"
            self._faults.warn(message, message)  # of each training
