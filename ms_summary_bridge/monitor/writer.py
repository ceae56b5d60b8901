"""The thread that writes: takes samples and notes from the training thread, which never waits for it.

Layer: monitor.sample, monitor.faults < **monitor.writer**.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from ms_summary_bridge.monitor.faults import Faults
from ms_summary_bridge.monitor.sample import Note, Sample

__all__ = ["Sink", "Writer"]

_LIMIT: Final = 20_000
_WAKE_SECS: Final = 0.25
_IDLE_SECS: Final = 1.0  # longest time until what was taken is with the operating system


class Sink(Protocol):
    """Where samples and notes go. Its methods are called by the writing thread alone."""

    def open(self) -> None:
        """Is called once, before anything else."""

    def write_sample(self, sample: Sample) -> None:
        """Takes a sample."""

    def write_note(self, note: Note) -> None:
        """Takes a note."""

    def flush(self) -> None:
        """Hands all that was taken to the operating system."""

    def close(self) -> None:
        """Is called once, after everything else."""


class Writer:
    """Hands each item to each sink, on a thread of its own that starts with the first item.

    A sink that fails costs one warning and the item; the others get it all the same.

    Args:
        make_sinks: Makes the sinks, on that thread: it may wait for a disk.
        faults: Is told what fails.
        limit: Most items that may wait; beyond it they are dropped and counted.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        make_sinks: Callable[[], list[Sink]],
        faults: Faults,
        *,
        limit: int = _LIMIT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make_sinks = make_sinks
        self._faults = faults
        self._limit = limit
        self._clock = clock
        self._items: deque[Sample | Note] = deque()
        self._wake = threading.Event()
        self._woken = float("-inf")
        self._is_closing = False
        self._thread: threading.Thread | None = None
        self._progress = threading.Condition()
        self._taken = 0
        self._written = 0
        self.dropped = 0
        """Items that found no room."""

    def put(self, item: Sample | Note) -> None:
        """Takes one item, at once."""
        if len(self._items) >= self._limit or self._is_closing:
            self.dropped += 1
            self._faults.warn("dropped", "values come faster than they can be written: some are left out")
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="ms_summary_bridge monitor", daemon=True)
            self._thread.start()
        self._items.append(item)
        self._taken += 1
        # To wake a thread costs more than all the rest here, so not at every step.
        now = self._clock()
        if now - self._woken > _WAKE_SECS:
            self._woken = now
            self._wake.set()

    def flush(self, timeout_secs: float) -> bool:
        """Waits until all that was taken is written; returns False if that takes too long."""
        if self._thread is None:
            return True
        goal = self._taken
        self._wake.set()
        with self._progress:
            return self._progress.wait_for(lambda: self._written >= goal or not self._is_alive(), timeout_secs)

    def close(self, timeout_secs: float) -> bool:
        """Writes the rest and ends the thread; returns False if that takes too long. May be called again."""
        self._is_closing = True
        if self._thread is None or self._faults.pid != os.getpid():
            return True
        self._wake.set()
        self._thread.join(timeout_secs)
        if self._thread.is_alive():
            self._faults.warn("close", f"{len(self._items)} values are not written yet; the rest may be missing")
            return False
        return True

    def _is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    # ------------------------------------------------------------------ on the thread

    def _run(self) -> None:
        sinks: list[Sink] = []
        try:
            sinks = self._make_sinks()
        except Exception as error:  # a thread of ours never ends with a traceback
            self._faults.warn("sinks", f"nothing is recorded: {error!r}")
        sinks = [sink for sink in sinks if self._call(sink, "open")]
        while True:
            is_closing = self._is_closing  # read before the queue: what is put before the end is written
            self._write_all(sinks)
            if is_closing:
                break
            self._wake.wait(_IDLE_SECS)
            self._wake.clear()
        for sink in sinks:
            self._call(sink, "close")

    def _write_all(self, sinks: list[Sink]) -> None:
        # Where items come as fast as they are written, the queue is never empty: a flush must not wait for that.
        while self._write_some(sinks):
            pass

    def _write_some(self, sinks: list[Sink]) -> bool:
        """Writes what is there, for no longer than until a flush is due; returns whether there is more."""
        count = 0
        due_at = self._clock() + _IDLE_SECS
        while self._items and self._clock() < due_at:
            item = self._items.popleft()
            count += 1
            if isinstance(item, Sample):
                self._complete(item)
                method = "write_sample"
            else:
                method = "write_note"
            for sink in sinks:
                self._call(sink, method, item)
        for sink in sinks:
            self._call(sink, "flush")
        with self._progress:
            self._written += count
            self._progress.notify_all()
        return bool(self._items)

    def _complete(self, sample: Sample) -> None:
        """Adds the values that this thread samples."""
        for name, measure in sample.pending:
            try:
                value = measure()
            except Exception as error:
                self._faults.warn(f"metric {name}", f"{name} cannot be measured: {error!r}")
                continue
            if value is not None:
                sample.values.update({name: value} if isinstance(value, (int, float)) else value)
        sample.pending = []

    def _call(self, sink: Sink, method: str, *arguments: Any) -> bool:
        try:
            getattr(sink, method)(*arguments)
        except Exception as error:
            name = type(sink).__name__
            self._faults.warn(f"{name} {method} {type(error).__name__}", f"{name}.{method} failed: {error!r}")
            return False
        return True
