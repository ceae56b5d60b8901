"""The writer process: takes what the training process collected, and writes it.

Never imports mindspore, so protobuf is fast here.

It outlives the training process by as long as it takes to write what was collected: a signal that kills the training
costs nothing that had been handed over. It sits in a session of its own, so that Ctrl-C in a terminal reaches the
training alone, and it never keeps the training's output open, which launchers wait for.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

import msgspec

from ms_summary_bridge.files.waiting import wait_for
from ms_summary_bridge.live_writer.live_run import LiveRun
from ms_summary_bridge.live_writer.ring import RingConsumer
from ms_summary_bridge.live_writer.run_config import LiveRunConfig
from ms_summary_bridge.training.faults import Once

__all__ = ["Worker", "main"]

_LOOK_SECS: Final = 0.5  # how often to see whether the training process is still there
_REST_SECS: Final = 0.05  # after values of a step: the next ones are taken several at a time, not woken up for each
_RETRY_SECS: Final = 5.0  # how long to try to write the rest after the training has ended and the disk is full


class _Reporter:
    """Tells the training process, through a pipe, what it should say in its log; never waits for it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        # A path in it may hold any byte.
        self.warn = Once(lambda text: self.send(warning=text.encode(errors="backslashreplace").decode()))
        os.set_blocking(descriptor, False)

    def send(self, **fields: Any) -> None:
        with contextlib.suppress(OSError):  # nobody reads any more, or the pipe is full
            os.write(self._descriptor, msgspec.json.encode(fields) + b"\n")


class Worker:
    """The loop over messages of the training whose process id is `parent`."""

    def __init__(
        self, consumer: RingConsumer, run: LiveRun, reporter: _Reporter, *, parent: int, flush_secs: float
    ) -> None:
        self._consumer = consumer
        self._run = run
        self._reporter = reporter
        self._parent = parent
        self._flush_secs = flush_secs
        self._unflushed_since: float | None = None
        self._writers: dict[str, Callable[..., None]] = {
            "values": run.write_values,
            "whole": run.write_whole,
            "note": run.write_note,
            "event": run.write_user_event,
        }
        self.is_closing = False
        """What is there is still written, then the loop ends."""

    def work(self) -> None:
        """Works until the training process says that it ends, or is gone."""
        while True:
            try:
                message = self._consumer.take(self._timeout())
            except Exception as error:  # a class of the user's own that only the training process knows
                self._reporter.warn("message", f"a collection cannot be read and is left out: {error!r}")
                self._run.unpackable["message"] += 1
                self._consumer.done()
                continue
            if message is not None:
                self._handle(message)
                rests = message[0] == "values" and self._consumer.is_light and not self.is_closing
                del message
                self._consumer.done()
                if rests:
                    time.sleep(_REST_SECS)
            elif self._consumer.is_ended or self.is_closing or os.getppid() != self._parent:
                break
            if self._unflushed_since is not None and time.monotonic() - self._unflushed_since >= self._flush_secs:
                self._flush()
        self._end()

    def _timeout(self) -> float:
        if self.is_closing or os.getppid() != self._parent:
            return 0.0
        if self._unflushed_since is None:
            return _LOOK_SECS
        return min(_LOOK_SECS, max(0.0, self._unflushed_since + self._flush_secs - time.monotonic()))

    def _handle(self, message: tuple[Any, ...]) -> None:
        kind, *rest = message
        try:
            if kind == "flush":
                self._flush()
                self._reporter.send(ack=rest[0])
                return
            if kind == "close":
                self.is_closing = True
            else:
                self._writers[kind](*rest)
        except Exception as error:  # one collection must not end the recording, whatever is wrong with it
            self._reporter.warn(f"message {type(error).__name__}", f"one collection could not be written: {error!r}")
            self._run.unpackable["message"] += 1
        if self._unflushed_since is None:
            self._unflushed_since = time.monotonic()

    def _flush(self) -> None:
        self._unflushed_since = None if self._run.flush() else time.monotonic()

    def _end(self) -> None:
        wait_for(lambda: self._run.flush() or None, 0.1, _RETRY_SECS)
        self._run.close()
        dropped = sum(file.dropped for file in self._run.files)
        self._reporter.send(end={"dropped": dropped, "unpackable": dict(self._run.unpackable)})


def main(arguments: list[str]) -> None:
    """Runs the writer process: `worker MEMORY_FD DOORBELL_FD REPORT_FD PARENT_PID CONFIG...`."""
    memory, doorbell, report, parent = map(int, arguments[:4])
    config = LiveRunConfig.of_arguments(arguments[4:])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    reporter = _Reporter(report)
    run = LiveRun(config, reporter.warn)
    worker = Worker(RingConsumer(memory, doorbell), run, reporter, parent=parent, flush_secs=config.flush_secs)

    def end(number: int, frame: FrameType | None) -> None:
        worker.is_closing = True

    signal.signal(signal.SIGTERM, end)
    worker.work()
