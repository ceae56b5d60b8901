"""Numbers of a step that others in the training have, and the network's outputs have not: MindFormers, our own cell.

Imports no mindspore.

Source: MindFormers 1.9.0, `core/callback/callback.py`: MFLossMonitor reads the parts of the loss and sets them to zero
before any callback behind it runs, and TrainingStateMonitor does so with the loss of the device. So the parts are read
before that hook of MFLossMonitor, as copies: its own arrays share memory with what it sets to zero, on a CPU. The loss
of the device is taken as TrainingStateMonitor hands it to its own output, already read.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final

from ms_summary_bridge.training.faults import Faults
from ms_summary_bridge.training.measures import StepOutputs, to_number
from ms_summary_bridge.training.parameters import TrainingParameters

__all__ = ["Beside"]

_REGISTER: Final = "mindformers.utils.parameter_register"
# Parameters that hold the parts, the names by which MFLossMonitor prints them, and what says whether the model has it.
_PARTS: Final = {
    "lm_loss": ("lm_loss", ""),
    "aux_loss": ("load_balancing_loss", "is_moe_model"),
    "mtp_loss": ("mtp_loss", "is_mtp_model"),
    "indexer_loss": ("indexer_loss", ""),
}
_DEVICE_LOSS: Final = "device_accum_local_lm_loss"
_SUMMED: Final = ("micro_batch_interleave_num", "gradient_accumulation_steps")


class Beside:
    """What stands beside the monitor in one training, and was told since the last step.

    The parts of the loss are read where it `wants_parts`. `take_squares` of a GradientSummary in the network gives the
    squares of the gradients recorded last, once; it is None without one. A pipeline sums the loss of the device over
    its micro batches too.
    """

    def __init__(
        self,
        callbacks: Iterable[Any],
        parameters: TrainingParameters,
        faults: Faults,
        *,
        wants_parts: bool,
        take_squares: Callable[[], Any] | None,
        pipeline_stages: int,
    ) -> None:
        self._parameters = parameters
        self._faults = faults
        self._take_squares = take_squares
        self._told: dict[str, float] = {}
        self._local_loss: float | None = None
        self._tapped: list[tuple[Any, str]] = []
        self._divisor = 1
        callbacks = list(callbacks)
        for callback in callbacks:
            names = {kind.__name__ for kind in type(callback).__mro__}
            if "MFLossMonitor" in names:
                summed = (*_SUMMED, "mirco_size") if pipeline_stages > 1 else _SUMMED  # its own spelling
                self._divisor = math.prod(max(1, int(getattr(callback, name, None) or 1)) for name in summed)
                if wants_parts and getattr(callback, "print_separate_loss", False):
                    self._tap(callback, "on_train_step_end", self._read_parts)
            elif "TrainingStateMonitor" in names and getattr(callback, "device_local_loss_format", None):
                self._tap(callback, "_output", self._hear_output)

    def fill(self, reading: StepOutputs, *, is_due: bool) -> None:
        """Adds what was told of a step to what was read of it; the gradients only where a sample `is_due`."""
        if self._told:
            reading.sub_losses, self._told = self._told, {}
        if self._local_loss is not None:
            reading.local_loss, self._local_loss = self._local_loss, None
        if is_due and self._take_squares is not None and reading.local_squares is None:
            squares = self._take_squares()
            reading.local_squares = None if reading.overflow else squares  # which then say nothing

    def end(self) -> None:
        """Takes off what was put around the methods of others."""
        for callback, name in self._tapped:
            with contextlib.suppress(AttributeError):
                delattr(callback, name)
        self._tapped = []

    # ------------------------------------------------------------------

    def _tap(self, callback: Any, name: str, hear: Callable[[Any, dict[str, Any]], None]) -> None:
        original = getattr(callback, name, None)
        try:
            signature = inspect.signature(original)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            self._faults.warn(f"tap {name}", f"{type(callback).__name__} has no {name}: what it tells is not recorded")
            return

        def tapped(*arguments: Any, **named: Any) -> Any:
            try:
                if self._calls_are_steps():
                    hear(callback, signature.bind(*arguments, **named).arguments)
            except Exception as error:
                self._faults.warn(f"tap {name}", f"what {type(callback).__name__} tells cannot be read: {error!r}")
            return original(*arguments, **named)  # type: ignore[misc]

        setattr(callback, name, tapped)
        self._tapped.append((callback, name))

    def _calls_are_steps(self) -> bool:
        """Whether a call is one step: over the steps of a sink MindFormers adds these numbers up."""
        if not self._parameters.get("dataset_sink_mode") or self._parameters.number("sink_size", -1) == 1:
            return True
        self._faults.warn("sink sums", "over the steps of a data sink parts of the loss are sums: they are left out")
        return False

    def _read_parts(self, callback: Any, given: dict[str, Any]) -> None:
        register = sys.modules[_REGISTER].parameter_register
        known = set(register.keys())
        for parameter, (name, owner) in _PARTS.items():
            if parameter not in known or (owner and not getattr(callback, owner, False)):
                continue
            number = to_number(register.get(parameter))
            if number is not None:
                self._told[name] = float(callback._fix_loss_for_parallel(number, print_warning=False))

    def _hear_output(self, callback: Any, given: dict[str, Any]) -> None:
        if given.get("tag") == _DEVICE_LOSS and (number := to_number(given.get("data"))) is not None:
            self._local_loss = number / self._divisor
