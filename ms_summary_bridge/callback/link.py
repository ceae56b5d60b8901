"""The training process's end of the writer process.

Layer: callback.ring, callback.live_run < **callback.link**. Imports neither mindspore nor tensorboardX.

Nothing here waits for the writer process, but `flush` and `close`, which have a time limit. A writer process that dies
is replaced; what it had not finished is still in the shared memory. When nothing helps, values are dropped and counted.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import subprocess
import sys
import threading
import time
from typing import Any, Final

import msgspec

from ms_summary_bridge.callback.live_run import LiveRunConfig
from ms_summary_bridge.callback.ring import RingProducer

__all__ = ["WriterLink"]

_LOG: Final = logging.getLogger("ms_summary_bridge")
_MAX_STARTS: Final = 3
_HEAVY: Final = ("histogram", "image", "tensor", "landscape")


class WriterLink:
    """Hands what was collected to a writer process.

    The process is started by the first message. In a forked child of the training process every call does nothing.

    Args:
        config: The run.
        queue_bytes: Most memory that collected values may take while they wait to be written.
    """

    def __init__(self, config: LiveRunConfig, *, queue_bytes: int) -> None:
        self._config = config
        self._queue_bytes = queue_bytes
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._ring: RingProducer | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._reports = -1
        self._heard = b""
        self._starts = 0
        self._flushes = 0
        self._acknowledged = 0
        self._warned: set[str] = set()
        self._is_closed = False
        self.dropped: dict[str, int] = {}
        """Values that were not handed over, by kind."""
        self.result: dict[str, Any] | None = None
        """What the writer process said at its end: files, and counts of what could not be written."""

    def put(self, *message: Any) -> bool:
        """Hands over one message; returns whether it was taken."""
        if os.getpid() != self._pid or self._is_closed:
            return False
        with self._lock:
            return self._put(message)

    def put_values(self, step: int, wall_time: float, collected: dict[str, list[dict[str, Any]]]) -> None:
        """Hands over one collection. Without room, its arrays are dropped and counted and its scalars are kept."""
        if not any(collected.values()) or self.put("values", step, wall_time, collected):
            return
        if os.getpid() != self._pid or self._is_closed:
            return
        light = {plugin: items for plugin, items in collected.items() if plugin not in _HEAVY}
        is_taken = any(light.values()) and self.put("values", step, wall_time, light)
        for plugin, items in collected.items():
            if items and not (is_taken and plugin in light):
                self.count_dropped(plugin, len(items))

    def count_dropped(self, kind: str, count: int) -> None:
        """Counts values that were not handed over, and says so once."""
        self.dropped[kind] = self.dropped.get(kind, 0) + count
        self.warn(
            "dropped",
            f"values come faster than they can be written: from now on some are left out ({kind} first); "
            "collect less often, or raise queue_bytes",
        )

    def _put(self, message: tuple[Any, ...]) -> bool:
        try:
            if self._process is None and not self._start():
                return False
            assert self._ring is not None
            is_taken = self._ring.put(message)
        except BrokenPipeError:
            return self._replace() and self._put(message)
        except (OSError, ValueError, TypeError, AttributeError, MemoryError) as error:
            self.warn(f"put {type(error).__name__}", f"a collection could not be handed to the writer: {error!r}")
            return False
        self._listen(0.0)
        return is_taken

    def _start(self) -> bool:
        """Starts the writer process, at most three times."""
        if self._starts >= _MAX_STARTS:
            return False
        self._starts += 1
        try:
            if self._ring is None:
                self._ring = RingProducer(self._queue_bytes)
            reports, theirs = os.pipe()
            memory, doorbell = self._ring.memory_fd, self._ring.doorbell_fd
            code = "import sys; from ms_summary_bridge.callback.worker import main; sys.exit(main(sys.argv[1:]))"
            arguments = [str(memory), str(doorbell), str(theirs), str(self._pid)]
            arguments.append(msgspec.json.encode(self._config).decode())
            # Not a fork: a copy of a training process holds its memory, its threads' locks and its protobuf settings.
            self._process = subprocess.Popen(
                [sys.executable, "-c", code, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(memory, doorbell, theirs),
                env=_environment(),
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            self.warn("start", f"the writer process cannot be started, nothing is recorded: {error}")
            self._starts = _MAX_STARTS
            return False
        os.close(theirs)
        self._ring.close_consumer_ends()
        os.set_blocking(reports, False)
        self._reports = reports
        return True

    def _replace(self) -> bool:
        """Starts another writer process in place of one that is gone."""
        assert self._ring is not None
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.1)
        self._process = None
        os.close(self._reports)
        self._reports = -1
        self.warn("died", "the writer process has died; another one goes on in new files")
        self._ring.reattach()
        if not self._start():
            self.warn("given up", "the writer process keeps dying: recording ends, training goes on")
            return False
        self._ring.ring_again()
        return True

    def _has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def _listen(self, timeout: float) -> None:
        """Reads what the writer process reports: warnings, acknowledged flushes, the result."""
        if self._reports < 0:
            return
        if timeout:
            select.select([self._reports], [], [], timeout)
        with contextlib.suppress(BlockingIOError):
            self._heard += os.read(self._reports, 1 << 16)
        *lines, self._heard = self._heard.split(b"\n")
        for line in lines:
            report = json.loads(line)
            if "warning" in report:
                self.warn(report["warning"], report["warning"])
            elif "ack" in report:
                self._acknowledged = max(self._acknowledged, report["ack"])
            elif "end" in report:
                self.result = report["end"]

    def warn(self, kind: str, message: str) -> None:
        """Says something once for each kind."""
        if kind not in self._warned:
            self._warned.add(kind)
            _LOG.warning("SummaryBridge: %s", message)

    def flush(self, timeout: float) -> bool:
        """Waits until everything handed over so far is in the files.

        Returns:
            False when that took longer than `timeout` seconds, or cannot be.
        """
        if os.getpid() != self._pid or self._is_closed or self._process is None:
            return self._process is None
        deadline = time.monotonic() + timeout
        with self._lock:
            self._flushes += 1
            number = self._flushes
            if not self._put(("flush", number)):
                return False
            while self._acknowledged < number:
                left = deadline - time.monotonic()
                if left <= 0 or self._has_ended():
                    return False
                self._listen(min(left, 0.1))
        return True

    def close(self, timeout: float) -> bool:
        """Waits until everything is written and the writer process has ended; may be called again.

        Returns:
            False when that took longer than `timeout` seconds. The process then goes on by itself until it is done.
        """
        if os.getpid() != self._pid or self._is_closed:
            return True
        self._is_closed = True
        if self._process is None:
            return True
        deadline = time.monotonic() + timeout
        with self._lock:
            assert self._ring is not None
            if self._has_ended() and self._ring.backlog:
                self._replace()
            with contextlib.suppress(OSError):
                self._ring.put(("close",))
            self._ring.close()
            while not self._has_ended() and time.monotonic() < deadline:
                self._listen(0.05)
            self._listen(0.0)
            is_done = self._has_ended()
            with contextlib.suppress(OSError):
                os.close(self._reports)
            self._reports = -1
        if not is_done:
            self.warn("close", f"the writer needs more than {timeout:g} s; it goes on by itself until all is written")
        elif self.result is None:
            self.warn("lost", "the writer process died at the end; the last values may be missing")
        elif self.result["dropped"]:
            self.warn("disk", f"{self.result['dropped']} records could not be written to disk")
        return is_done


def _environment() -> dict[str, str]:
    """The training's environment, without what it set for its own needs: threads for numpy, slow protobuf."""
    environment = dict(os.environ)
    environment.pop("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", None)
    environment.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    return environment
