"""How much time other callbacks take, by timing their hooks from outside.

MindSpore calls the hooks of all callbacks one after the other and tells nobody how long each took, so the monitor puts
a timer around them, on each object, and takes it off at the end of the training.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any, Final

from ms_summary_bridge.monitor.steps.breakdown import Breakdown
from ms_summary_bridge.monitor.watchdog.heartbeat import Heartbeat, number_of

__all__ = ["CallbackTimes"]

_HOOKS: Final = ("on_train_epoch_begin", "on_train_step_begin", "on_train_step_end", "on_train_epoch_end")
_SAVERS: Final = ("ModelCheckpoint", "CheckpointMonitor", "SaveBestCheckpoint")


class CallbackTimes:
    """Times the hooks of callbacks while a training runs.

    Args:
        breakdown: Is told of their time.
        heartbeat: Is told which kind of them runs.
    """

    def __init__(self, breakdown: Breakdown, heartbeat: Heartbeat) -> None:
        self._breakdown = breakdown
        self._heartbeat = heartbeat
        self._timed: list[tuple[Any, str]] = []

    def begin(self, callbacks: Iterable[Any]) -> None:
        """Puts a timer around each hook; one that cannot be timed stays as it is."""
        for callback in callbacks:
            kind = _kind_of(callback)
            for name in _HOOKS:
                hook = getattr(callback, name, None)
                if hook is None or name in getattr(callback, "__dict__", {}):  # timed or replaced by somebody already
                    continue
                if _does_nothing(callback, name):
                    continue
                with contextlib.suppress(AttributeError, TypeError):
                    setattr(callback, name, self._timer(hook, kind, _reads_loss(callback)))
                    self._timed.append((callback, name))

    def _timer(self, hook: Callable[[Any], Any], kind: str, reads_loss: bool) -> Callable[[Any], Any]:
        # One that reads the loss waits for the device: it is the step that does not return.
        phase = number_of("compute" if reads_loss else kind)
        breakdown, heartbeat, places = self._breakdown, self._heartbeat, self._heartbeat.places
        clock, note = breakdown.clock, breakdown.note

        def timed(run_context: Any) -> Any:
            # What `Heartbeat.turn` and `Breakdown.spending` do, without a call: this stands around each hook.
            began, spent, outer = clock(), breakdown.spent_ever, heartbeat.phase
            places[phase], heartbeat.phase = began, phase
            try:
                return hook(run_context)
            finally:
                now = clock()
                places[outer], heartbeat.phase = now, outer
                secs = now - began - (breakdown.spent_ever - spent)
                breakdown.spent_ever += secs
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
