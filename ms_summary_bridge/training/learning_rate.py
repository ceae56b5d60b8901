"""The learning rates of a training, by whatever rule its optimizer has.

MindSpore's objects are only touched through their own methods.

Source: the forms of an optimizer's `learning_rate` were measured on MindSpore 2.7 to 2.10;
`tests/training/test_measures.py` has each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ms_summary_bridge.training.measures import item_of, to_array, to_number

__all__ = ["LearningRates", "find_optimizer", "learning_rates", "rate_reader"]


def find_optimizer(parameters: Any) -> Any:
    """Returns the optimizer of a training: from the callback's parameters, or from its networks; None without one."""
    network = parameters.get("train_network")
    holders = (network, parameters.get("network"))
    for candidate in (parameters.get("optimizer"), *(getattr(holder, "optimizer", None) for holder in holders)):
        if hasattr(candidate, "learning_rate") and hasattr(candidate, "parameters"):
            return candidate
    for _, cell in network.cells_and_names() if hasattr(network, "cells_and_names") else ():
        if hasattr(cell, "learning_rate") and hasattr(cell, "global_step") and hasattr(cell, "parameters"):
            return cell
    return None


def learning_rates(optimizer: Any, make_step: Any) -> dict[str, float]:
    """Returns the learning rates that the last step used: `lr`, or `lr/group_<n>` where groups differ.

    An optimizer's own `get_lr` gives the rate of the step to come once the step has been counted, so the rule behind
    it is asked for the step before; `make_step` makes the tensor that a schedule is called with from an int.
    """
    rate = optimizer.learning_rate
    last = 0
    if getattr(optimizer, "dynamic_lr", False):
        last = max(0, int(to_number(optimizer.global_step) or 0) - 1)
    if not getattr(optimizer, "is_group_lr", False):
        value = _rate_at(rate, last, make_step)
        return {} if value is None else {"lr": value}
    groups: list[Any] = []
    for member in rate:  # one entry for each parameter; those of a group share theirs
        if not any(member is group for group in groups):
            groups.append(member)
    values = [_rate_at(group, last, make_step) for group in groups]
    return {f"lr/group_{index}": value for index, value in enumerate(values) if value is not None}


def _step_tensor(step: int) -> Any:
    import mindspore

    return mindspore.Tensor(step, mindspore.int32)


def rate_reader(optimizer: Any, make_step: Any = _step_tensor) -> Callable[[], dict[str, float]]:
    """Returns what reads the learning rates again and again, as `learning_rates` does, which has the same arguments.

    What an optimizer is made with never changes. So for one rate for all, the usual case, no more is read than that.
    A schedule is the user's own code, and raises what it likes.
    """
    if getattr(optimizer, "dynamic_lr", False) or getattr(optimizer, "is_group_lr", False):
        return lambda: learning_rates(optimizer, make_step)

    def read() -> dict[str, float]:
        number = item_of(optimizer.learning_rate)
        return {"lr": number} if type(number) is float else learning_rates(optimizer, make_step)

    return read


def _rate_at(rate: Any, step: int, make_step: Any) -> float | None:
    number = item_of(rate)
    if number is not None:
        return to_number(number)
    inner = getattr(rate, "learning_rate", None)
    array = to_array(inner) if inner is not None else None
    if array is not None and type(rate).__name__ in ("_IteratorLearningRate", "_ConvertToCell"):
        flat = array.reshape(-1)
        return float(flat[min(step, flat.size - 1)]) if flat.size else None
    array = to_array(rate)
    if array is not None:
        return to_number(array)
    return to_number(rate(make_step(step))) if callable(rate) else None


class LearningRates:
    """Reads the learning rates of a training; a schedule that cannot be read costs one warning, (kind, message)."""

    def __init__(self, warn: Callable[[str, str], None]) -> None:
        self._warn = warn
        self._read: Callable[[], Mapping[str, float]] | None = None
        self._step: int | None = None  # whose they are
        self._rates: Mapping[str, float] = {}

    def read_from(self, read: Callable[[], Mapping[str, float]]) -> None:
        """Says how they are read: `rate_reader` of an optimizer, or a function of the user's own."""
        self._read = read

    def at(self, step: int) -> Mapping[str, float]:
        """Returns the learning rates of a step, which must be the one that has ended last."""
        if step != self._step and self._read is not None:
            self._step, self._rates = step, {}
            try:
                self._rates = self._read()
            except Exception as error:  # a schedule is the user's own code
                self._warn("lr", f"the learning rate cannot be read and is left out: {error!r}")
                self._read = None
        return self._rates
