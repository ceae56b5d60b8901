"""The training process's end of the writer process.

Imports no mindspore and no tensorboardX.

Nothing here waits for the writer process, but `flush` and `close`, which have a time limit. A writer process that dies
is replaced; what it had not finished is still in the shared memory. When nothing helps, values are dropped and counted.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any, Final

import numpy as np

from ms_summary_bridge.errors import InvalidValueError
from ms_summary_bridge.live_writer.pack import pack_scalar
from ms_summary_bridge.live_writer.ring import RingProducer
from ms_summary_bridge.live_writer.run_config import LiveRunConfig
from ms_summary_bridge.live_writer.writer_process import WriterProcess
from ms_summary_bridge.training.faults import Faults

__all__ = ["WriterLink"]

_MAX_STARTS: Final = 3
_MESSAGE_BYTES: Final = 256  # what a value of a message has around it
_HEAVY: Final = ("histogram", "image", "pixels", "tensor", "landscape")


class WriterLink:
    """Hands what was collected to a writer process.

    The process is started by the first message. In a forked child of the training process every call does nothing.

    Args:
        config: The run.
        queue_bytes: Most memory that collected values may take while they wait to be written.
        stall_secs: A writer process that takes nothing for so long is not waited for.
    """

    def __init__(self, config: LiveRunConfig, *, queue_bytes: int, stall_secs: float = 30.0) -> None:
        self.config = config
        self._queue_bytes = queue_bytes
        self.stall_secs = stall_secs
        self._lock = threading.Lock()
        self._ring: RingProducer | None = None
        self.writer: WriterProcess | None = None
        """The process that runs; None before the first message, and when it was given up."""
        self.starts = 0
        """How often a writer process was started."""
        self.flushes = 0
        """How many flushes were asked for."""
        self._acknowledged = 0
        self._faults = Faults("SummaryBridge")
        self.warn = self._faults.warn
        self._is_closed = False
        self.dropped: dict[str, int] = {}
        """Values that were not handed over, by kind."""
        self.result: dict[str, Any] | None = None
        """What the writer process said at its end: counts of what could not be written."""

    def put(self, *message: Any) -> bool:
        """Hands over one message; returns whether it was taken."""
        if self._faults.is_forked or self._is_closed:
            return False
        with self._lock:
            return self._put(message)

    def put_values(self, step: int, wall_time: float, collected: dict[str, list[dict[str, Any]]]) -> None:
        """Hands over one collection.

        Where there is no room for all of it, its scalars go first and then each array by itself; those that still find
        none are dropped and counted.
        """
        if collected.get("scalar"):
            collected = {**collected, "scalar": [_packed(item) for item in collected["scalar"]]}
        if not any(collected.values()) or self.put("values", step, wall_time, collected):
            return
        if self._faults.is_forked or self._is_closed:
            return
        light = {plugin: items for plugin, items in collected.items() if plugin not in _HEAVY}
        is_taken = any(light.values()) and self.put("values", step, wall_time, light)
        for plugin, items in collected.items():
            if plugin in light:
                if items and not is_taken:
                    self.count_dropped(plugin, len(items))
                continue
            for item in items:
                if not self.put("values", step, wall_time, {plugin: [item]}):
                    value = item["value"]
                    what = f"{plugin} {item['tag']!r}, first at step {step},"
                    self.count_dropped(plugin, 1, what, getattr(value, "nbytes", 0))

    def count_dropped(self, kind: str, count: int, what: str = "", size: int = 0) -> None:
        """Counts values that were not handed over, and says so once; at once of one that there can never be room for.

        Where it is one value, `what` names it and `size` is its bytes.
        """
        self.dropped[kind] = self.dropped.get(kind, 0) + count
        if self._ring is not None and size + _MESSAGE_BYTES > self._ring.size:
            room = f"queue_bytes is {self._queue_bytes}"
            if self._ring.size < self._queue_bytes:
                room = f"ulimit -f leaves room for {self._ring.size}"
            self.warn(f"size {what.partition(',')[0]}", f"{what} has {size} bytes and is always left out: {room}")
            return
        if self.starts >= _MAX_STARTS and self.writer is None:
            return  # said already: there is no writer process
        self.warn(
            "dropped",
            f"values come faster than they can be written: from now on some are left out ({kind} first); "
            "collect less often, or raise queue_bytes",
        )

    def _put(self, message: tuple[Any, ...]) -> bool:
        writer = self.writer or self._start()
        if writer is None:
            return False
        assert self._ring is not None
        try:
            is_taken = self._ring.put(message)
        except BrokenPipeError:
            return self._replace(writer)  # which hands on what was put
        except (OSError, ValueError, TypeError, AttributeError, MemoryError) as error:
            self.warn(f"put {type(error).__name__}", f"a collection could not be handed to the writer: {error!r}")
            return False
        self._listen(writer)
        return is_taken

    def _start(self) -> WriterProcess | None:
        """Starts the writer process, at most three times."""
        if self.starts >= _MAX_STARTS:
            return None
        self.starts += 1
        try:
            if self._ring is None:
                self._ring = RingProducer(self._queue_bytes)
            self.writer = WriterProcess(self._ring, self.config)
        except (OSError, ValueError) as error:
            self.warn("start", f"the writer process cannot be started, nothing is recorded: {error}")
            self.starts = _MAX_STARTS
        return self.writer

    def _replace(self, writer: WriterProcess) -> bool:
        """Starts another writer process in place of one that is gone, and hands it what waits."""
        assert self._ring is not None
        while True:
            self.writer = self.result = None
            writer.forget()
            self.warn("died", "the writer process has died; another one goes on in new files")
            try:
                self._ring.reattach()
            except OSError as error:
                self.warn("start", f"no other writer process can be started: {error}")
                self.starts = _MAX_STARTS
            started = self._start()
            if started is None:
                self.warn("given up", "the writer process keeps dying: recording ends, training goes on")
                self.count_dropped("collection", self._ring.backlog)
                self._ring.close_consumer_ends()
                self._ring.close()
                return False
            writer = started
            with contextlib.suppress(BrokenPipeError):  # died as well
                self._ring.wake_consumer()
                return True

    def _listen(self, writer: WriterProcess) -> None:
        """Takes what the writer process reports: warnings, acknowledged flushes, the result."""
        for report in writer.read_reports():
            if "warning" in report:
                self.warn(report["warning"], report["warning"])
            elif "ack" in report:
                self._acknowledged = max(self._acknowledged, report["ack"])
            elif "end" in report:
                self.result = report["end"]

    def flush(self, timeout: float) -> bool:
        """Waits until all that was handed over is in the files; False where that takes over `timeout` seconds."""
        if self._faults.is_forked or self._is_closed or self.writer is None:
            return self.starts == 0
        deadline = time.monotonic() + timeout
        number = 0
        while True:
            with self._lock:  # not held while waiting: the training thread must be able to put
                if not number and self._put(("flush", self.flushes + 1)):
                    self.flushes += 1
                    number = self.flushes
                writer = self._attend()
                if writer is None:
                    return False
                if number and self._acknowledged >= number:
                    return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            writer.wait_for_report(min(left, 0.1))

    def _attend(self) -> WriterProcess | None:
        """Listens to the writer process, tells it what it could not be told before, and replaces it if it is gone."""
        writer = self.writer
        if writer is None or self._ring is None:
            return None
        has_ended = writer.has_ended
        self._listen(writer)  # after that, so as not to miss its last words
        if has_ended and self.result is None and self._ring.backlog:
            self._replace(writer)
            return self.writer
        with contextlib.suppress(BrokenPipeError):
            self._ring.wake_consumer()
        return writer

    def close(self, timeout: float) -> bool:
        """Waits until everything is written and the writer process has ended; may be called again.

        Returns:
            False when that takes longer than `timeout` seconds, or the writer process does nothing any more. What it
            was given is then written as soon as it goes on.
        """
        if self._faults.is_forked or self._is_closed:
            return True
        self._is_closed = True
        if self.writer is None:
            if self._ring is not None:  # no process could be started
                self._ring.close_consumer_ends()
                self._ring.close()
            self._say_dropped()
            return True
        with self._lock:
            assert self._ring is not None
            is_done = self._finish(self._ring, time.monotonic() + timeout)
            self._ring.close()
            if self.writer is not None:
                self.writer.forget()
        if not is_done:
            self.warn("close", "the writer process is not done yet; it goes on by itself until all is written")
        elif self.result is None:
            self.warn("lost", "the writer process died at the end; the last values may be missing")
        self._say_dropped()
        return is_done

    def _finish(self, ring: RingProducer, deadline: float) -> bool:
        """Waits for the end of the writer process; returns whether it came."""
        is_told = False
        backlog = -1
        while True:
            now = time.monotonic()
            if not is_told:
                with contextlib.suppress(BrokenPipeError):
                    is_told = ring.put(("close",))
            writer = self.writer
            has_ended = writer is not None and writer.has_ended
            if (attended := self._attend()) is None or (has_ended and attended is writer):
                return True
            if ring.backlog != backlog:
                backlog = ring.backlog
                deadline_of_stall = now + self.stall_secs
            if now >= min(deadline, deadline_of_stall):
                return False
            attended.wait_for_report(0.05)

    def _say_dropped(self) -> None:
        """Says at the end what is missing, and how much."""
        counts = {f"{kind} values not handed over": count for kind, count in self.dropped.items()}
        if self.result is not None:
            counts.update({f"{kind} values unfit": count for kind, count in self.result["unpackable"].items()})
            counts["records not written to disk"] = self.result["dropped"]
        missing = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        if missing:
            self.warn("missing", f"missing in the files: {missing}")


def _packed(item: dict[str, Any]) -> dict[str, Any]:
    """Returns a scalar as the four bytes it is written as: the writer process then needs no numpy for it."""
    try:
        return {**item, "value": pack_scalar(np.asarray(item["value"]))}
    except (InvalidValueError, TypeError, ValueError, ArithmeticError):
        return item  # the writer process says what is wrong with it, and counts it
