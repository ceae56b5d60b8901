"""A run of a program that records experiments (SwanLab, MLflow, Trackio), by its own client in a process of its own.

A client may wait for a network, take seconds of processor time, keep one run for a whole process, patch what prints, or
ask for a login. None of that reaches the training: `tracker_process` runs it, and this end hands over lines. A run of
the user's own in the training's process is another process's, so it cannot be touched. One that is not done when the
training ends goes on by itself, within a limit.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar, Final

from ms_summary_bridge.errors import BridgeError
from ms_summary_bridge.live_writer.writer_process import environment, search_path
from ms_summary_bridge.monitor.model.config import MonitorConfig
from ms_summary_bridge.monitor.model.sample import Note, Sample
from ms_summary_bridge.monitor.sinks.writer import Sink
from ms_summary_bridge.training.distributed import rank_directory
from ms_summary_bridge.training.facts import TrainingFacts

__all__ = ["KEPT_HERE", "MlflowSink", "SwanlabSink", "TrackerSink", "TrackioSink"]

KEPT_HERE: Final = {"command", "directory", "tags"}
"""Of what is stored with a run: arguments may hold tokens, paths name people, and tags are recorded beside it."""
_TAKE_SECS: Final = 120.0  # a client's import, its store's tables, a server that answers
_END_SECS: Final = 8.0  # less than is waited for a detached sink
_ALONE_SECS: Final = 600.0
_PIPE_BYTES: Final = 1 << 20


class TrackerSink(Sink):
    """A run in the process of a client; `package` is what it comes in.

    Args:
        config: The configuration.
        training: The training.
        run_directory: Its base name is the run's. Without a place of the client's own in the environment the files are
            in `rank_<n>/<package>` in it; what the client says is in `rank_<n>/<package>.log`.
        record: What is stored with the run.
        warn: Called with (kind, message).
        limits: Seconds that are waited until it takes a value, and for its end; how long it may go on by itself then.
    """

    package: ClassVar[str] = ""

    def __init__(
        self,
        config: MonitorConfig,
        training: TrainingFacts,
        run_directory: str,
        record: dict[str, Any],
        warn: Callable[[str, str], None],
        *,
        limits: tuple[float, float, float] = (_TAKE_SECS, _END_SECS, _ALONE_SECS),
    ) -> None:
        self._warn = warn
        self._take_secs, self._end_secs, self._alone_secs = limits
        name = os.path.basename(run_directory)
        directory = rank_directory(run_directory, training.rank)
        self._log = os.path.join(directory, f"{self.package}.log")
        self._about = {
            "package": self.package,
            "alone_secs": self._alone_secs,
            "directory": os.path.join(directory, self.package),
            "project": config.project,
            "name": name if training.ranks == 1 else f"{name}-rank-{training.rank}",
            "group": name,
            "tags": dict(config.tags),
            "monitor": {key: value for key, value in record.items() if key not in KEPT_HERE},
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._heard = b""
        self._reason = ""
        self._ended: str | None = None

    def open(self) -> None:
        """Starts the process, which begins the run; whether it can is heard later.

        Raises:
            OSError: The process or its log cannot be made.
        """
        os.makedirs(os.path.dirname(self._log), exist_ok=True)
        code = "import sys; sys.path[:] = sys.argv[1:]; "
        code += "from ms_summary_bridge.monitor.sinks.tracker_process import main; main()"
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code, *search_path()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
                env=environment(),
                start_new_session=True,  # Ctrl-C is for the training, which then says that it ends
            )
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        with contextlib.suppress(OSError):  # an unprivileged user may have used up the allowance
            fcntl.fcntl(self._process.stdin.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._put({"begin": self._about})

    def write_sample(self, sample: Sample) -> None:
        """Takes a sample."""
        self._put({"values": sample.values, "step": sample.step, "wall_time": sample.wall_time})

    def write_note(self, note: Note) -> None:
        """Takes warnings and alarms, and how the training ended."""
        if note.kind in ("warning", "alert"):
            about = note.fields.get("rule") or note.fields.get("metric", "warning")
            self._put({"tell": note.text, "title": f"{about}", "step": note.step, "kind": note.kind})
        elif note.kind == "end":
            self._reason = str(note.fields.get("reason") or "")

    def flush(self) -> None:
        """Hears what went wrong there."""
        if self._process is not None:
            self._listen(0.0)

    def close(self) -> None:
        """Ends the run, and waits for it a little.

        Raises:
            BridgeError: It has not ended yet, or lacks something.
        """
        if self._process is None:
            return
        self._put({"end": self._reason})
        until = time.monotonic() + self._end_secs
        while self._ended is None and (left := until - time.monotonic()) > 0 and self._listen(left):
            pass
        process, self._process = self._process, None
        _let_go(process)
        if self._ended:
            raise BridgeError(f"{self.package} {self._ended}; what its client said is in {self._log}")
        if self._ended is None:
            raise BridgeError(
                f"{self.package} has not ended in {self._end_secs:g} s; it goes on by itself, for "
                f"{self._alone_secs:g} s at most, and what its client says is in {self._log}"
            )

    def _put(self, message: dict[str, Any]) -> None:
        """Hands a line over; a process that takes nothing is ended."""
        if self._process is None:
            raise BridgeError(f"its process has ended before; see {self._log}")
        assert self._process.stdin is not None
        data = memoryview(json.dumps(message).encode() + b"\n")
        descriptor = self._process.stdin.fileno()
        poll = select.poll()
        poll.register(descriptor, select.POLLOUT)
        until = time.monotonic() + self._take_secs
        while data:
            try:
                data = data[os.write(descriptor, data) :]
            except BlockingIOError:
                if not poll.poll(max(0.0, until - time.monotonic()) * 1000):
                    self._process.kill()
                    raise self._lose(f"has taken nothing for {self._take_secs:g} s, and was stopped") from None
            except BrokenPipeError:
                self._listen(0.0)
                raise self._lose("has ended by itself") from None

    def _listen(self, secs: float) -> bool:
        """Passes on faults that are said within that time; returns whether more may be said."""
        assert self._process is not None
        assert self._process.stdout is not None
        poll = select.poll()
        poll.register(self._process.stdout, select.POLLIN)
        while poll.poll(secs * 1000):
            data = os.read(self._process.stdout.fileno(), 1 << 16)
            if not data:
                return False
            *lines, self._heard = (self._heard + data).split(b"\n")
            for line in lines:
                word, text = json.loads(line)
                if word == "ended":
                    self._ended = text
                else:
                    self._warn(f"{self.package} {text}", f"{self.package} {text}")
            secs = 0.0
        return True

    def _lose(self, why: str) -> BridgeError:
        """Has nothing to do with the process any more."""
        process, self._process = self._process, None
        assert process is not None
        _let_go(process)
        return BridgeError(f"{self.package} {why}; what its client said is in {self._log}")


def _let_go(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(OSError):
        process.stdin.close()
    process.stdout.close()
    try:
        process.wait(0.5)  # one that has said its last word is gone at once
    except subprocess.TimeoutExpired:
        threading.Thread(target=process.wait, name="ms_summary_bridge reaper", daemon=True).start()


class SwanlabSink(TrackerSink):
    """SwanLab: `SWANLAB_MODE` decides, `offline` where it is not set; `swanlab sync` uploads then."""

    package = "swanlab"


class MlflowSink(TrackerSink):
    """MLflow: to `MLFLOW_TRACKING_URI`, or where it is not set to a database of SQLite."""

    package = "mlflow"


class TrackioSink(TrackerSink):
    """Trackio: in `TRACKIO_DIR`, or where it is not set in the run's directory; its other variables hold as well."""

    package = "trackio"
