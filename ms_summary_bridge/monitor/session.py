"""What the callback and `Monitor` share: one process's recorder and watchdog, and how a training ends.

Imports no mindspore.
"""

from __future__ import annotations

import atexit
import copy
import os
import time
import weakref
from collections.abc import Mapping
from typing import Any, Final

from ms_summary_bridge.monitor.alarm_commands import AlarmCommands
from ms_summary_bridge.monitor.config.file import load_config
from ms_summary_bridge.monitor.model.config import MonitorConfig
from ms_summary_bridge.monitor.ranks.gathering import Gathering
from ms_summary_bridge.monitor.recorder import Recorder
from ms_summary_bridge.monitor.watchdog.watchdog_link import WatchdogLink
from ms_summary_bridge.training.faults import Faults, guarded
from ms_summary_bridge.training.phases import number_of

__all__ = ["MonitorSession"]

_COMPUTE: Final = number_of("compute")


class MonitorSession:
    """Records the trainings of one process: of the one that made it, or of a forked child in which a training begins.

    A copy, in this process or another one, begins with what was asked for, and nothing open.
    """

    _commands: AlarmCommands | None = None
    _gathering: Gathering | None = None
    _of_training: tuple[str, ...] = ("_commands", "_gathering")
    """Attributes that no copy has: their values are those of the class until a training begins."""

    def __init__(self, config: Mapping[str, Any] | str | os.PathLike[str] | MonitorConfig | bool) -> None:
        super().__init__()
        self._config = config if isinstance(config, MonitorConfig) else load_config(config)
        self.faults = Faults("monitor")
        self._recorder = Recorder(self._config, self.faults)
        self._watchdog = WatchdogLink(self._config, self.faults)
        if self._config.enable:
            self._watchdog.watch()  # what comes before a training's beginning may hang as well
        self._join_process()

    def _join_process(self) -> None:
        _ALL.add(self)
        atexit.register(_end_at_exit, weakref.ref(self))  # weakly: it would keep the model in memory

    def _let_go(self) -> None:
        """Forgets the training of the process of which this is a forked child, a data worker perhaps."""
        for name in self._of_training:
            vars(self).pop(name, None)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in self._of_training}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._join_process()

    def _move_here(self) -> None:
        """Takes up work in a forked child of the process that made the monitor, where a training begins."""
        if self.faults.is_forked:
            self._watchdog.leave()
            self._recorder, self._watchdog = copy.copy(self._recorder), copy.copy(self._watchdog)
            self.faults.is_forked = False
            self._join_process()

    def _is_of_parent(self) -> bool:
        """Whether this is a forked child of the process whose training is recorded; says so where steps end in it."""
        if self.faults.is_forked and self._recorder.is_open:
            self.faults.warn(
                "forked",
                f"process {os.getpid()} was forked within a training that process {os.getppid()} records: its own "
                "steps are not recorded. Begin the monitor after the fork",
            )
        return self.faults.is_forked

    @property
    def run_directory(self) -> str | None:
        """Where this run's files are; None before the training has begun."""
        return self._recorder.run_directory

    @run_directory.setter
    def run_directory(self, directory: str) -> None:
        self._recorder.run_directory = directory
        self._watchdog.tell_run(directory)

    def flush(self, timeout_secs: float = 30.0) -> bool:
        """Waits until all that was recorded is written; returns False if that takes too long."""
        return self._recorder.flush(timeout_secs)

    def _gather(self, number: int | None) -> None:
        """Tells the other ranks of this one after a step, where the configuration says so; see `Gathering`.

        Whatever this rank has seen or could not do, it comes: the others would wait for it. Only one that an alarm has
        end alone, because the others do not answer, does not.
        """
        try:
            if self.faults.is_forked or not self._config.enable or getattr(self._commands, "is_alone", False):
                return
            if self._gathering is None:
                self._gathering = Gathering(
                    self._config.aggregate,
                    self._config.aggregate_steps,
                    self.faults,
                    lambda step, values, text: self._recorder.take_all(step, values, text),
                )
            if self._gathering.passes(number):
                return
            began, before = time.monotonic(), self._watchdog.heartbeat.phase
            self._watchdog.heartbeat.turn(_COMPUTE, began)
            self._gathering.end_step(number, self._read_own)
            self._watchdog.heartbeat.turn(before, time.monotonic())
            self._recorder.measuring.step_clock.spend("callbacks", time.monotonic() - began)
        except Exception as error:
            self.faults.fail("aggregate", error)

    def _read_own(self) -> tuple[int, dict[str, float]]:
        return self._recorder.read_own()

    def close(self) -> None:
        """Ends the recording of a training that did not end by itself."""
        self._end("")

    @guarded
    def _end(self, reason: str) -> None:
        if self._gathering is not None:
            self._gathering.end()
            self._gathering = None
        self._recorder.measuring.leave()  # nothing of ours stays around other callbacks
        self._watchdog.beat("other")
        try:
            self._recorder.end(reason)  # which reads the last step, and its learning rate
        finally:
            self._watchdog.end()
            if self._commands is not None:
                self._commands.end()

    def _exit(self, error: tuple[Any, ...]) -> None:
        """Ends the training, and the process where an alarm that stopped it wants an exit code; see `__exit__`."""
        has_failed = bool(error) and error[0] is not None
        self._end(error[0].__name__ if has_failed else "")
        commands, self._commands = self._commands, None
        if commands is not None and commands.exit_code is not None and not has_failed:
            raise SystemExit(commands.exit_code)


_ALL: Final[weakref.WeakSet[MonitorSession]] = weakref.WeakSet()


def _let_all_go() -> None:
    for session in _ALL:
        session._let_go()


os.register_at_fork(after_in_child=_let_all_go)


def _end_at_exit(reference: weakref.ref[MonitorSession]) -> None:
    session = reference()
    if session is not None:
        session._end("the end of the process")
