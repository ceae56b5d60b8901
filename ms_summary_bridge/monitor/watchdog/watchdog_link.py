"""The training's end of the watchdog: starts it, tells it what the training does, and ends it.

Imports no mindspore.

A watchdog that cannot be started costs one warning. Nothing here waits for it, but `end`, which has a time limit.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from ms_summary_bridge.monitor.alarms.actions import OUTSIDE, Origin
from ms_summary_bridge.monitor.model.alert_config import ActionConfig
from ms_summary_bridge.monitor.model.config import MonitorConfig
from ms_summary_bridge.monitor.watchdog.hang_report import is_regular
from ms_summary_bridge.monitor.watchdog.heartbeat import Heartbeat
from ms_summary_bridge.monitor.watchdog.process_state import read_state
from ms_summary_bridge.monitor.watchdog.stacks import offer_stacks
from ms_summary_bridge.monitor.watchdog.watchdog import Assignment
from ms_summary_bridge.training.distributed import Place
from ms_summary_bridge.training.faults import Faults
from ms_summary_bridge.training.phases import END, number_of

__all__ = ["WatchdogLink"]

_END_SECS: Final = 5.0


class WatchdogLink:
    """A watchdog for one training. Before `begin` and after `end` every call does nothing.

    Args:
        config: The configuration.
        faults: Is told if there can be none.
    """

    def __init__(self, config: MonitorConfig, faults: Faults) -> None:
        self._config = config
        self._faults = faults
        self._heartbeat = Heartbeat(is_shared=False)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process; None if there is none."""
        return None if self._process is None else self._process.pid

    def begin(self, place: Place, step: int) -> None:
        """Starts a watchdog, from the thread that trains; one of an earlier training ends.

        Args:
            place: Where this process stands.
            step: Step from which the training counts.
        """
        self.end()
        if not self._config.watchdog.enable:
            return
        try:
            self._heartbeat = Heartbeat(step)
            self._start(self._heartbeat, place)
        except (OSError, AttributeError, ValueError) as error:  # AttributeError: not Linux
            self._faults.warn("watchdog", f"the watchdog cannot be started, a hang will not be noticed: {error}")
            self.end()

    def _start(self, heartbeat: Heartbeat, place: Place) -> None:
        offer = offer_stacks()
        state = read_state(os.getpid())
        if state is None:
            raise OSError("/proc cannot be read")
        console = 2 if is_regular(2) else -1
        inherited = [heartbeat.descriptor, *([] if offer is None else [offer.descriptor])]
        if console >= 0:
            console = os.dup(2)  # its own 2 is closed
            inherited.append(console)
        assignment = Assignment(
            pid=os.getpid(),
            started=state.started,
            rank=place.rank,
            thread=threading.get_native_id(),
            thread_ident=threading.get_ident(),
            heartbeat=heartbeat.descriptor,
            offer=offer,
            console=console,
            config=self._config.watchdog,
            actions=_outside(self._config),
            origin=Origin(project=self._config.project, host=place.host, ranks=place.ranks),
        )
        # The environment stays as it is, for the commands of an alarm: the modules are found by an argument.
        code = "import sys; sys.path[:] = sys.argv[1:]; "
        code += "from ms_summary_bridge.monitor.watchdog.watchdog import main; sys.exit(main())"
        try:
            # A session of its own: a signal to the training's group, such as Ctrl-Z, is none to the watchdog.
            self._process = subprocess.Popen(
                [sys.executable, "-c", code, *(path or os.getcwd() for path in sys.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=inherited,
                bufsize=0,
                start_new_session=True,
            )
        finally:
            if console >= 0:
                os.close(console)
        self._tell(assignment)

    def _tell(self, message: Any) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):  # it is gone; said by `end`
                self._process.stdin.write(msgspec.json.encode(message) + b"\n")

    def tell_directory(self, directory: str) -> None:
        """Says where this rank's files are. May be called by another thread."""
        self._tell({"directory": directory})

    @property
    def heartbeat(self) -> Heartbeat:
        """Where the training says what it does; nobody reads it before `begin` and after `end`."""
        return self._heartbeat

    def beat(self, phase: str) -> None:
        """The training begins another phase, one of `phases.PHASES`."""
        self._heartbeat.beat(phase)

    @contextlib.contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """What runs inside is another phase; afterwards the one around it goes on."""
        heartbeat = self._heartbeat
        outer = heartbeat.turn(number_of(phase), time.monotonic())
        try:
            yield
        finally:
            heartbeat.turn(outer, time.monotonic())

    def end(self) -> None:
        """The training ends: so does the watchdog. It may be called again."""
        heartbeat, self._heartbeat = self._heartbeat, Heartbeat(is_shared=False)
        process, self._process = self._process, None
        heartbeat.beat(END)
        if process is not None:
            has_died = process.poll() is not None
            if has_died:
                self._faults.warn("watchdog died", f"the watchdog ended before the training, with {process.returncode}")
            assert process.stdin is not None
            with contextlib.suppress(OSError):
                process.stdin.write(msgspec.json.encode({"end": True}) + b"\n")
                process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):  # it says something yet, and then ends by itself
                process.wait(_END_SECS)
        heartbeat.close()


def _outside(config: MonitorConfig) -> tuple[ActionConfig, ...]:
    """Returns what can be done without the training."""
    actions = config.alert_actions if config.watchdog.actions is None else config.watchdog.actions
    return tuple(action for action in actions if action.kind in OUTSIDE)
