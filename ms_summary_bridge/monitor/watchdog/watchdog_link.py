"""The training's end of the watchdog: starts it, tells it what the training does, and ends it.

Imports no mindspore.

A watchdog that cannot be started costs one warning. Nothing here waits for it, but `end`, which has a time limit.
"""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from ms_summary_bridge.monitor.alarms.actions.message import OUTSIDE
from ms_summary_bridge.monitor.model.alert import Alert
from ms_summary_bridge.monitor.model.alert_config import ActionConfig
from ms_summary_bridge.monitor.model.config import MonitorConfig
from ms_summary_bridge.monitor.model.sample import Note
from ms_summary_bridge.monitor.sinks.run_record import choose_run_directory, project_directory
from ms_summary_bridge.monitor.watchdog.assignment import Assignment, Begun
from ms_summary_bridge.monitor.watchdog.collective_limits import exec_timeout
from ms_summary_bridge.monitor.watchdog.hang_report import is_regular
from ms_summary_bridge.monitor.watchdog.heartbeat import STEP, Heartbeat
from ms_summary_bridge.monitor.watchdog.stacks import offer_stacks
from ms_summary_bridge.training.distributed import ProcessRank, find_process_rank
from ms_summary_bridge.training.faults import Faults
from ms_summary_bridge.training.phases import END, START, number_of

__all__ = ["WatchdogLink"]

_END_SECS: Final = 5.0


class WatchdogLink:
    """A watchdog for one training. Before `watch` or `begin`, and after `end`, every call does nothing."""

    def __init__(self, config: MonitorConfig, faults: Faults) -> None:
        self._config = config
        self._faults = faults
        self.heartbeat = Heartbeat(is_shared=False)
        """Where the training says what it does; nobody reads it before `begin` and after `end`."""
        self._process: subprocess.Popen[bytes] | None = None
        self._has_begun = False
        self._dropped: weakref.finalize[..., WatchdogLink] | None = None
        self._hearing = threading.Lock()
        self._heard = b""
        self.run_directory: str | None = None
        """Of a run that the watchdog had to make, for what happened before the training began; None for none."""

    def __reduce__(self) -> tuple[type[WatchdogLink], tuple[MonitorConfig, Faults]]:
        """A copy watches nothing before its training begins."""
        return WatchdogLink, (self._config, self._faults)

    @property
    def pid(self) -> int | None:
        """Of the watchdog's process; None where nobody watches."""
        return None if self._process is None else self._process.pid

    def watch(self) -> None:
        """Starts a watchdog from now on, though no training has begun: loading data may hang, and may be killed.

        Somebody who types at a prompt takes his time: there, it begins with the training.
        """
        if not hasattr(sys, "ps1"):
            self._try_to_start(0)

    def begin(self, place: ProcessRank, step: int) -> None:
        """A training begins, in the thread that trains; the watchdog of an earlier training ends.

        `step` is the one from which it counts.
        """
        is_watching = self._process is not None and self._process.poll() is None
        if self._has_begun or not is_watching:
            self.end()
        self._has_begun = True
        if self._process is None:
            self._try_to_start(step, place)
            return
        self._tell({"place": _begun(place)})
        self.heartbeat.places[STEP] = step
        self.heartbeat.beat(START)
        self.hear()  # which run it may have made

    def _try_to_start(self, step: int, place: ProcessRank | None = None) -> None:
        if not self._config.watchdog.enable:
            return
        try:
            self.heartbeat = Heartbeat(step)
            self._start(self.heartbeat, find_process_rank() if place is None else place)
        except Exception as error:  # OSError, and AttributeError where it is not Linux
            self._faults.warn("watchdog", f"the watchdog cannot be started, a hang will not be noticed: {error}")
            self.end()

    def _start(self, heartbeat: Heartbeat, place: ProcessRank) -> None:
        offer = offer_stacks()
        console = os.dup(2) if is_regular(2) else -1  # its own 2 is closed
        inherited = [heartbeat.descriptor, *([] if offer is None else [offer.descriptor])]
        inherited += [console] if console >= 0 else []
        config = self._config
        assignment = Assignment(
            pid=os.getpid(),
            heartbeat=heartbeat.descriptor,
            offer=offer,
            console=console,
            config=config.watchdog,
            actions=_outside(config),
            project=config.project,
            project_directory=project_directory(config),
            has_viewer=bool({"tensorboard", "mindinsight"} & set(config.backends)),
            place=_begun(place),
            window_secs=config.callback.cool_down,
        )
        # The environment stays as it is, for the commands of an alarm: the modules are found by an argument.
        code = "import sys; sys.path[:] = sys.argv[1:]; "
        code += "from ms_summary_bridge.monitor.watchdog.watchdog import main; sys.exit(main())"
        try:
            # A session of its own: a signal to the training's group, such as Ctrl-Z, does not reach the watchdog.
            self._process = subprocess.Popen(
                [sys.executable, "-c", code, *(path or os.getcwd() for path in sys.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                pass_fds=inherited,
                bufsize=0,
                start_new_session=True,
            )
        finally:
            if console >= 0:
                os.close(console)
        # A monitor that nobody keeps ends no training: what made it may have failed.
        self._dropped = weakref.finalize(self, _end_unused, self._process, heartbeat, os.getpid())
        self._dropped.atexit = False
        self._tell(assignment)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdin.fileno(), False)  # one that does not read any more stops nobody
        os.set_blocking(self._process.stdout.fileno(), False)
        if config.run_id is not None:
            self.tell_run(choose_run_directory(config, place))

    def hear(self) -> list[tuple[Alert, list[str]] | Note]:
        """Returns what the watchdog has to be recorded: alarms with the titles of what was done, and notes."""
        found: list[tuple[Alert, list[str]] | Note] = []
        process = self._process
        if process is None or process.stdout is None:
            return found
        with self._hearing:
            with contextlib.suppress(OSError, ValueError):
                while data := process.stdout.read(1 << 16):
                    self._heard += data
            *lines, self._heard = self._heard.split(b"\n")
        for line in lines:
            message = msgspec.json.decode(line)
            if "run" in message:
                self.run_directory = message["run"]
            elif "note" in message:
                found.append(msgspec.convert(message["note"], Note))
            else:
                found.append((msgspec.convert(message["alert"], Alert), message["titles"]))
        return found

    def _tell(self, message: Any) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):  # it is gone; said by `end`
                self._process.stdin.write(msgspec.json.encode(message) + b"\n")

    def tell_run(self, run_directory: str) -> None:
        """Says where the run's files will be."""
        self._tell({"run": run_directory})

    def tell_directory(self, directory: str, summary: str) -> None:
        """Says where this rank's files are, and those for the viewers. May be called by another thread."""
        self._tell({"directory": directory, "summary": summary})

    def tell_checkpoint(self, step: int, path: str) -> None:
        """Says that there is a checkpoint."""
        self._tell({"checkpoint": [step, path]})

    def beat(self, phase: str) -> None:
        """The training begins another phase, one of `phases.PHASES`."""
        self.heartbeat.beat(phase)

    @contextlib.contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """What runs inside is another phase; afterwards the one around it goes on."""
        heartbeat = self.heartbeat
        outer = heartbeat.turn(number_of(phase), time.monotonic())
        try:
            yield
        finally:
            heartbeat.turn(outer, time.monotonic())

    def leave(self) -> None:
        """A training begins in this forked child: of the process that only waits for it no life is awaited."""
        if not self._has_begun:
            self.heartbeat.beat(END)

    def end(self) -> None:
        """The training ends: so does the watchdog. It may be called again."""
        heartbeat, self.heartbeat = self.heartbeat, Heartbeat(is_shared=False)
        process, self._process = self._process, None
        if self._dropped is not None:
            self._dropped.detach()
        self._has_begun, self._heard = False, b""
        if process is not None:
            if process.poll() is not None:
                self._faults.warn("watchdog died", f"the watchdog ended before the training, with {process.returncode}")
            _say_end(process, heartbeat)
            with contextlib.suppress(subprocess.TimeoutExpired):  # it says something yet, and then ends by itself
                process.wait(_END_SECS)
            assert process.stdout is not None
            process.stdout.close()
        heartbeat.close()


def _end_unused(process: subprocess.Popen[bytes], heartbeat: Heartbeat, pid: int) -> None:
    """Ends the watchdog of a monitor that is gone before it has ended; not that of the process which was forked."""
    if os.getpid() == pid:
        _say_end(process, heartbeat)


def _say_end(process: subprocess.Popen[bytes], heartbeat: Heartbeat) -> None:
    heartbeat.beat(END)
    assert process.stdin is not None
    with contextlib.suppress(OSError):
        process.stdin.write(msgspec.json.encode({"end": True}) + b"\n")
        process.stdin.close()


def _begun(place: ProcessRank) -> Begun:
    secs = exec_timeout(os.environ)
    return Begun(
        rank=place.rank,
        ranks=place.ranks,
        host=place.host,
        thread_ident=threading.get_ident(),
        thread=threading.get_native_id(),
        collective_secs=secs if place.ranks > 1 and place.device == "Ascend" and secs < math.inf else None,
    )


def _outside(config: MonitorConfig) -> tuple[ActionConfig, ...]:
    """Returns what can be done without the training."""
    actions = config.alert_actions if config.watchdog.actions is None else config.watchdog.actions
    return tuple(action for action in actions if action.kind in OUTSIDE)
