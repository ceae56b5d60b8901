"""Monitor: the monitor for training loops of one's own, with or without MindSpore.

Imports no mindspore.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from ms_summary_bridge.errors import UsageError
from ms_summary_bridge.monitor.alarm_commands import AlarmCommands
from ms_summary_bridge.monitor.model.config import MonitorConfig
from ms_summary_bridge.monitor.session import MonitorSession
from ms_summary_bridge.training.distributed import find_process_rank
from ms_summary_bridge.training.facts import TrainingFacts
from ms_summary_bridge.training.faults import guarded
from ms_summary_bridge.training.measures import to_number

__all__ = ["Monitor"]

_LOG: Final = logging.getLogger("ms_summary_bridge")
_TIMED: Final = ("evaluation", "checkpoint", "data")
_MAX_COUNT: Final = 1 << 62


class Monitor(MonitorSession):
    """Records a training loop: `with Monitor(config) as m`, and `m.step(loss=loss)` after each step.

    Args:
        config: A `monitor_config` section as a dict, the path of a file that holds one, a checked configuration, or
            True for all defaults.
        epochs: How many epochs are meant, for the time that is left.
        steps_per_epoch: Steps of one epoch.
        parameters: The trainable parameters, for the metric `update_ratio`.
        initial_step: Step from which a resumed training counts; None to take the configuration's.
        save_checkpoint: Saves a checkpoint under a path, for alarms with the action `save_checkpoint`.

    Raises:
        ConfigError: The configuration has problems; it names all of them.
        MissingDependencyError: A backend needs a package that is not installed.

    Example:
        `with Monitor({"interval": 0}) as m: m.step(loss=0.5, lr=1e-3, tokens=4096)`
    """

    def __init__(
        self,
        config: Mapping[str, Any] | str | os.PathLike[str] | MonitorConfig | bool = True,
        *,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        parameters: Iterable[Any] | None = None,
        initial_step: int | None = None,
        save_checkpoint: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(config)
        self.config = config = self._config
        self._facts = TrainingFacts(
            epochs=epochs,
            steps_per_epoch=steps_per_epoch,
            samples_per_step=config.global_batch_size,
            seq_length=config.seq_length,
            initial_step=config.initial_step if initial_step is None else initial_step,
            flops_per_token=config.flops_per_token,
            model_flops=config.model_flops,
            peak_flops=config.peak_flops,
            parameters=None if parameters is None else partial(list, list(parameters)),  # which can be pickled
        )
        self._step = self._facts.initial_step
        # A first step that is told and not the one behind it may be that of any loop: it counts as one.
        self._is_told = initial_step is not None or config.initial_step > 0
        self._save_checkpoint = save_checkpoint
        self.should_stop = False
        """Whether an alarm with the action `stop` was raised: the loop then ends itself."""

    def __enter__(self) -> Monitor:
        self._move_here()
        self._begin()
        return self

    def __exit__(self, *error: Any) -> None:
        self._exit(error)

    @guarded
    def _begin(self) -> None:
        if not self.config.enable:
            _LOG.warning("the monitor is switched off by `enable: false` in %s", self.config.source)
            return
        self._watchdog.begin(find_process_rank(), self._facts.initial_step)
        self._recorder.begin(
            self._facts,
            tells_beginnings=False,
            watchdog=self._watchdog,
        )
        self._recorder.resume()
        self._commands = AlarmCommands(self._recorder, [], self._save_checkpoint)
        self.should_stop = False
        self._watchdog.beat("compile")

    def step(
        self,
        *,
        loss: Any = None,
        lr: Any = None,
        tokens: int | None = None,
        samples: int | None = None,
        step: int | None = None,
        epoch: int | None = None,
        **values: Any,
    ) -> None:
        """Takes one step that has ended. Tensors are read when the next step ends. To be called by one thread only.

        Args:
            loss: A number, array or tensor.
            lr: Learning rate of the step.
            tokens: Its tokens, over all cards.
            samples: Its samples, over all cards.
            step: Its number; None for one more than the last. Numbers that are left out count as steps too, but
                before the first one only where `initial_step` is given.
            epoch: From 1; None to count it where `steps_per_epoch` is known.
            values: Other numbers, by name: `grad_norm`, `loss_scale`, or any of your own.
        """
        if not self._is_of_parent():
            self._take(step, epoch, samples, tokens, {"loss": loss, "lr": lr, **values})
            if self.config.aggregate:
                self._gather(None)

    @guarded
    def _take(
        self, step: int | None, epoch: int | None, samples: int | None, tokens: int | None, values: dict[str, Any]
    ) -> None:
        if not self._recorder.is_open:
            return
        step, epoch = self._whole("step", step), self._whole("epoch", epoch)
        samples, tokens = self._whole("samples", samples), self._whole("tokens", tokens)
        self._step = self._step + 1 if step is None else step
        if epoch is None and self._facts.steps_per_epoch:
            epoch = max(0, self._step - self._facts.initial_step - 1) // self._facts.steps_per_epoch + 1
        given = {name: value for name, value in values.items() if value is not None}
        now = time.monotonic()
        steps, self._is_told = 0 if self._is_told else 1, True
        self._recorder.tap.end_step(
            self._step, now, None, epoch, steps=steps, given=given, samples=samples, tokens=tokens
        )
        if self._commands is not None and self._commands.poll():
            self.should_stop = True

    def _whole(self, name: str, value: Any) -> int | None:
        """Returns a count as a plain int: numpy's and MindSpore's are of types that no journal can hold."""
        if value is None:
            return None
        if type(value) is int and abs(value) <= _MAX_COUNT:
            return value
        number = to_number(value)
        if number is None or not number.is_integer() or abs(number) > _MAX_COUNT:
            self.faults.warn(
                f"given {name}", f"{name} is left out: {str(value)[:40]!r} is not a whole number of 64 bits"
            )
            return None
        return int(number)

    @contextmanager
    def timing(self, kind: str) -> Iterator[None]:
        """Counts what runs inside as `evaluation`, `checkpoint` or `data`; the first two are left out of all rates.

        Raises:
            UsageError: Another kind.
        """
        if kind not in _TIMED:
            raise UsageError(f"Monitor.timing: {kind!r} is not a kind of time; give one of {', '.join(_TIMED)}")
        if not self._recorder.is_open:
            yield
            return
        with self._watchdog.during(kind), self._recorder.spending(kind):
            yield
