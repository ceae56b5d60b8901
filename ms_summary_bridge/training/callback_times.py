"""How much time other callbacks take, by timing their hooks from outside.

MindSpore calls the hooks of all callbacks one after the other and tells nobody how long each took, so a timer is put
around them, on each object, and taken off at the end of the training.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from ms_summary_bridge.training.phases import PHASES, number_of
from ms_summary_bridge.training.step_clock import NOT_TRAINING, StepClock

__all__ = ["CallbackTimes", "Phases"]

_HOOKS: Final = ("on_train_epoch_begin", "on_train_step_begin", "on_train_step_end", "on_train_epoch_end")
_SAVERS: Final = ("ModelCheckpoint", "CheckpointMonitor", "SaveBestCheckpoint")


class Phases(Protocol):
    """Where it is said what a training is doing: a `Heartbeat`."""

    places: list[float] | memoryview[float]
    """At the number of each phase: when it last began."""
    phase: int
    """Number of the phase that runs."""


class _Nobody:
    """Is told in the place of a heartbeat."""

    places: list[float] | memoryview[float] = [0.0] * len(PHASES)
    phase = 0


class CallbackTimes:
    """Times the hooks of callbacks while a training runs, and tells the clock of their time.

    The heartbeat is told which kind of them runs. Without one only those are timed that belong to no step: who saves or
    evaluates.
    """

    def __init__(self, step_clock: StepClock, heartbeat: Phases | None) -> None:
        self._step_clock = step_clock
        self._is_for_all = heartbeat is not None
        self._heartbeat = heartbeat or _Nobody()
        self._timed: list[tuple[Any, str]] = []

    def begin(self, callbacks: Iterable[Any]) -> None:
        """Puts a timer around each hook; one that cannot be timed stays as it is."""
        for callback in callbacks:
            kind = _kind_of(callback)
            if not self._is_for_all and kind not in NOT_TRAINING:
                continue
            for name in _HOOKS:
                hook = getattr(callback, name, None)
                is_replaced = name in getattr(callback, "__dict__", {})  # timed already, or somebody's own
                if hook is None or is_replaced or _does_nothing(callback, name):
                    continue
                with contextlib.suppress(AttributeError, TypeError):
                    setattr(callback, name, self._timer(hook, kind, _reads_loss(callback)))
                    self._timed.append((callback, name))

    def _timer(self, hook: Callable[[Any], Any], kind: str, reads_loss: bool) -> Callable[[Any], Any]:
        # One that reads the loss waits for the device: it is the step that does not return.
        phase = number_of("compute" if reads_loss else kind)
        step_clock, heartbeat, places = self._step_clock, self._heartbeat, self._heartbeat.places
        clock, note = step_clock.clock, step_clock.note

        def timed(run_context: Any) -> Any:
            # What `Heartbeat.turn` and `StepClock.spending` do, without a call: this stands around each hook.
            began, spent, outer = clock(), step_clock.spent_ever, heartbeat.phase
            places[phase], heartbeat.phase = began, phase
            try:
                return hook(run_context)
            finally:
                now = clock()
                places[outer], heartbeat.phase = now, outer
                secs = now - began - (step_clock.spent_ever - spent)
                step_clock.spent_ever += secs
                note((kind, secs, None))

        return timed

    def end(self) -> None:
        """Takes all timers off."""
        for callback, name in self._timed:
            with contextlib.suppress(AttributeError, TypeError):
                delattr(callback, name)
        self._timed = []


def _does_nothing(callback: Any, name: str) -> bool:
    """Whether a hook is MindSpore's own, which calls one of an older name, and that one too: it only passes."""
    names = (name, name.removeprefix("on_train_"))
    return all(getattr(getattr(callback, each, None), "__qualname__", "") == f"Callback.{each}" for each in names)


def _reads_loss(callback: Any) -> bool:
    return any(kind.__name__.endswith("LossMonitor") for kind in type(callback).__mro__)


def _kind_of(callback: Any) -> str:
    names = [kind.__name__ for kind in type(callback).__mro__]
    if any(name in _SAVERS for name in names):
        return "checkpoint"
    return "evaluation" if "eval" in names[0].lower() else "callbacks"
