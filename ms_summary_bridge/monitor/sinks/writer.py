"""The thread that writes: takes samples and notes from any thread, and none ever waits for it."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Final

from ms_summary_bridge.errors import BridgeError, counted
from ms_summary_bridge.monitor.model.sample import Note, Sample
from ms_summary_bridge.training.faults import Faults

__all__ = ["DetachedSink", "Sink", "Writer"]

_LIMIT: Final = 20_000
_WAKE_SECS: Final = 0.25
_GATHER_SECS: Final = 0.5
_CLOSE_SECS: Final = 10.0  # that are waited for a detached sink
_IDLE_SECS: Final = 1.0  # longest time until what was taken is with the operating system


class Sink:
    """Where samples and notes go. Its methods are called by the writing thread alone; what one lacks does nothing."""

    def open(self) -> None:
        """Is called once, before anything else."""

    def write_sample(self, sample: Sample) -> None:
        """Takes a sample."""

    def write_note(self, note: Note) -> None:
        """Takes a note."""

    def flush(self) -> object:
        """Hands all that was taken to the operating system."""

    def close(self) -> None:
        """Is called once, after everything else."""


class _Sinks:
    """The sinks of one writer, on its thread.

    One that fails costs one warning and the item; the others get it all the same. They are closed in reversed order:
    what stands last does not wait for what may hang before it.
    """

    def __init__(self, warn: Callable[[str, str], None]) -> None:
        self._warn = warn
        self._open: list[Sink] = []
        self._unopened: list[str] = []
        self.lacks: Counter[str] = Counter()
        """How many items each one did not get."""
        self.busy = "the files are not open yet"
        """What the thread is doing, for when it never ends."""

    def open(self, make_sinks: Callable[[], list[Sink]]) -> None:
        sinks: list[Sink] = []
        try:
            sinks = make_sinks()
        except Exception as error:  # a thread of ours never ends with a traceback
            self._warn("sinks", f"nothing is recorded: {error!r}")
        for sink in sinks:
            if self._call(sink, "open"):
                self._open.append(sink)
            else:
                self._unopened.append(_name(sink))

    def gather(self, gather: Callable[[], object]) -> None:
        self.busy = "a metric or a rule has not returned"
        try:
            gather()
        except Exception as error:
            self._warn("gather", f"some steps are left out: {error!r}")

    def write(self, item: Sample | Note) -> None:
        method = "write_note"
        if isinstance(item, Sample):
            self._complete(item)
            method = "write_sample"
        self.lacks.update(_name(sink) for sink in self._open if not self._call(sink, method, item))
        self.lacks.update(self._unopened)

    def flush(self) -> None:
        for sink in self._open:
            self._call(sink, "flush")

    def close(self, write_rest: Callable[[], object]) -> None:
        while self._open:
            self._call(self._open.pop(), "close")
            write_rest()  # what became of the last actions

    def _complete(self, sample: Sample) -> None:
        """Adds the values that this thread samples."""
        for name, measure in sample.pending:
            self.busy = f"the metric {name} has not returned"
            try:
                value = measure()
            except Exception as error:
                self._warn(f"metric {name}", f"{name} cannot be measured: {error!r}")
                continue
            if value is not None:
                sample.values.update({name: value} if isinstance(value, (int, float)) else value)
        sample.pending = []

    def _call(self, sink: Sink, method: str, *arguments: Any) -> bool:
        name = _name(sink)
        self.busy = f"{name} has not ended" if method == "close" else f"{name}.{method} has not ended"
        try:
            getattr(sink, method)(*arguments)
        except Exception as error:
            why = str(error) if isinstance(error, BridgeError) else repr(error)
            self._warn(f"{name} {method} {type(error).__name__}", f"{name}.{method} failed: {why}")
            return False
        return True


def _name(sink: Sink) -> str:
    return type(sink).__name__


class Writer:
    """Hands each item to each sink, on a thread of its own that starts with the first item.

    `make_sinks` is called on that thread: it may wait for a disk. `name` stands before what is said, where a process
    has several writers. `gather` puts what is ready to be written, whenever the thread looks for something. Beyond
    20,000 waiting items the rest are dropped and counted.
    """

    def __init__(
        self,
        make_sinks: Callable[[], list[Sink]],
        faults: Faults,
        *,
        name: str = "",
        gather: Callable[[], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make_sinks = make_sinks
        self._faults = faults
        self._prefix = f"{name}: " if name else ""
        self._gather = gather
        self._clock = clock
        self._items: deque[Sample | Note] = deque()
        self._wake = threading.Event()
        self._woken = float("-inf")
        self._is_closing = self._is_written = False
        self._thread: threading.Thread | None = None
        self._progress = threading.Condition()
        self._taken = self._written = 0
        self._sinks = _Sinks(self._warn)
        self.dropped = 0
        """Items that found no room."""

    def put(self, item: Sample | Note, *, is_late: bool = False) -> None:
        """Takes one item, at once.

        One that `is_late` may come of a sink's own end: it is for those that are closed after that one.
        """
        if len(self._items) >= _LIMIT or (self._is_closing and not is_late):
            self.dropped += 1
            self._warn("dropped", "values come faster than they can be written: some are left out")
            return
        if self._thread is None:
            name = f"ms_summary_bridge {self._prefix.removesuffix(': ') or 'monitor'}"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()
        self._items.append(item)
        self._taken += 1
        # To wake a thread costs more than all the rest here, so not at every step.
        now = self._clock()
        if now - self._woken > _WAKE_SECS and threading.current_thread() is not self._thread:
            self._woken = now
            self._wake.set()

    def flush(self, timeout_secs: float) -> bool:
        """Waits until all that was taken is written; returns False if that takes too long."""
        if self._thread is None:
            return True
        goal = self._taken
        self._wake.set()
        with self._progress:
            return self._progress.wait_for(lambda: self._written >= goal or not self._is_running, timeout_secs)

    def close(self, timeout_secs: float) -> bool:
        """Writes the rest and ends the thread; returns False if that takes too long. May be called again."""
        self._is_closing = True
        if self._thread is None or self._faults.is_forked:
            return True
        self._wake.set()
        self._thread.join(timeout_secs)
        is_done = not self._thread.is_alive()
        if not is_done and self._is_written:
            self._warn("close", f"what was recorded is written, but {self._sinks.busy}")
        elif not is_done:
            count = self._taken - self._written
            self._warn(
                "close",
                f"up to {counted(count, 'value or note is', 'values or notes are')} not written and may be missing: "
                f"{self._sinks.busy}",
            )
        for name, count in self._sinks.lacks.copy().items():
            self._warn(f"{name} lacks {count}", f"{name} lacks {counted(count, 'value or note', 'values or notes')}")
        return is_done

    def _warn(self, kind: str, message: str) -> None:
        self._faults.warn(self._prefix + kind, self._prefix + message)

    @property
    def _is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    # ------------------------------------------------------------------ on the thread

    def _run(self) -> None:
        self._sinks.open(self._make_sinks)
        while True:
            is_closing = self._is_closing  # read before the queue: what is put before the end is written
            if self._gather is not None and not is_closing:
                self._sinks.gather(self._gather)
            self._write_all()
            if is_closing:
                break
            self._wake.wait(_IDLE_SECS if self._gather is None else _GATHER_SECS)
            self._wake.clear()
        self._is_written = True
        self._sinks.close(self._write_all)

    def _write_all(self) -> None:
        is_more = not self._is_written or bool(self._items)
        while is_more:
            count = 0
            # Where items come as fast as they are written, the queue is never empty: a flush must not wait for that.
            due_at = self._clock() + _IDLE_SECS
            while self._items and self._clock() < due_at:
                count += 1
                self._sinks.write(self._items.popleft())
            self._sinks.flush()
            with self._progress:
                self._written += count
                self._progress.notify_all()
            is_more = bool(self._items)


class DetachedSink(Sink):
    """A sink on a thread of its own, for what may wait for a network without limit: files and alarms go on meanwhile.

    Its writer drops and counts what finds no room. It is opened on its own thread when the first item comes; `name`
    stands before what is said of it.
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
            lost = counted(dropped, "value or note", "values or notes")
            message = f"{self._name} lacks {lost} that came faster than they were taken"
            self._faults.warn(message, message)  # of each training
