"""What is recorded of one training step beside what SummaryCollector finds: loss, rates, times, parameters.

Imports mindspore.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Final

import mindspore
import numpy as np

from ms_summary_bridge.callback.clock import StepClock
from ms_summary_bridge.training.measures import (
    batch_size,
    device_memory,
    find_optimizer,
    learning_rates,
    read_outputs,
    to_array,
)

__all__ = ["StepValues", "scalar_item"]

_FIRST_PARAMETERS: Final = 5  # histograms without histogram_regular, as SummaryCollector


class StepValues:
    """Reads values from a callback's parameters, over one training.

    Args:
        specified: SummaryCollector's `collect_specified_data`, with its defaults.
        collects_histograms: Whether parameters are recorded at all.
        collects_lr: Whether what SummaryCollector does not collect is recorded.
        warn: Is told once of each thing that cannot be recorded.
    """

    def __init__(
        self,
        specified: dict[str, Any],
        *,
        collects_histograms: bool,
        collects_lr: bool,
        warn: Callable[[str, str], None],
    ) -> None:
        self.clock = StepClock()
        self._specified = specified
        self._collects_histograms = collects_histograms
        self._collects_lr = collects_lr
        self._warn = warn
        self._optimizer: Any = None
        self._parameters: list[Any] = []
        self._best: float | None = None
        self._best_is_new = False

    def begin(self, parameters: Any) -> None:
        """Looks for the optimizer, at the first step."""
        self._optimizer = find_optimizer(parameters)
        if self._optimizer is None:
            self._warn("optimizer", "no optimizer is found: learning rate and parameters are not recorded")
        else:
            self._parameters = self._choose_parameters()

    def _choose_parameters(self) -> list[Any]:
        if not self._collects_histograms or "histogram_regular" not in self._specified:
            return []
        regular = self._specified["histogram_regular"]
        if regular is None:
            return list(self._optimizer.parameters[:_FIRST_PARAMETERS])
        return [parameter for parameter in self._optimizer.parameters if re.match(regular, parameter.name)]

    def scalars(self, parameters: Any) -> list[dict[str, Any]]:
        """Returns the scalars of the step that has just ended."""
        outputs = read_outputs(parameters.get("net_outputs"))
        items = []
        if self._specified.get("collect_metric"):
            if outputs.loss is None:
                self._warn("loss", "the network's output holds no number that can be the loss")
            else:
                items.append(scalar_item("loss/auto", outputs.loss))
                if outputs.loss < (math.inf if self._best is None else self._best):  # a NaN is never the best
                    self._best, self._best_is_new = outputs.loss, True
        if not self._collects_lr:
            return items
        extras: dict[str, float] = {"epoch": float(parameters.get("cur_epoch_num") or 0)}
        if outputs.learning_rate is not None:
            extras["lr"] = outputs.learning_rate
        elif self._optimizer is not None:
            try:
                extras.update(learning_rates(self._optimizer, _step_tensor))
            except Exception as error:  # a schedule is the user's own code
                self._warn("lr", f"the learning rate cannot be read and is left out: {error!r}")
        if outputs.loss_scale is not None:
            extras["loss_scale"] = outputs.loss_scale
        if outputs.grad_norm is not None:
            extras["grad_norm"] = outputs.grad_norm
        extras.update(self.clock.take(batch_size(parameters)))
        extras.update(device_memory(mindspore))
        return items + [scalar_item(tag, number) for tag, number in extras.items()]

    def histograms(self) -> list[dict[str, Any]]:
        """Returns the parameters' arrays, not copied: they are copied into the shared memory before the next step."""
        items = []
        for parameter in self._parameters:
            array = to_array(parameter.data)
            if array is not None and array.ndim:
                items.append({"tag": f"{parameter.name}/auto", "value": array})
        return items

    def take_best_loss(self) -> float | None:
        """Returns the lowest recorded loss if it is new since the last call, else None."""
        is_new, self._best_is_new = self._best_is_new, False
        return self._best if is_new else None


def scalar_item(tag: str, number: float) -> dict[str, Any]:
    """Returns a scalar in the form in which SummaryRecord hands values over."""
    return {"tag": tag, "value": np.asarray(number)}


def _step_tensor(step: int) -> Any:
    return mindspore.Tensor(step, mindspore.int32)
