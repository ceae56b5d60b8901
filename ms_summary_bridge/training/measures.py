"""What a training step says of itself: loss, learning rate, scale, norm, memory.

MindSpore's objects are only touched through their own methods.

Source: the forms of `net_outputs` and of an optimizer's `learning_rate` were measured on MindSpore 2.7 to 2.10 and
MindFormers 1.9; `tests/training/test_measures.py` has each of them.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import numpy as np

__all__ = [
    "StepOutputs",
    "batch_size",
    "device_memory",
    "find_optimizer",
    "learning_rates",
    "rate_reader",
    "read_outputs",
    "to_array",
    "to_number",
]

_MIB: Final = 1 << 20


class StepOutputs(msgspec.Struct, frozen=True):
    """What the network's outputs hold. None where they do not hold it."""

    loss: float | None = None
    overflow: bool | None = None
    loss_scale: float | None = None
    learning_rate: float | None = None
    grad_norm: float | None = None


def to_array(value: Any) -> np.ndarray[Any, Any] | None:
    """Returns a number, array or tensor as an array; None for anything else.

    numpy has no bfloat16, so such a tensor is cast first.
    """
    if isinstance(value, (bool, int, float, np.number, np.bool_)):
        return np.asarray(value)
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "asnumpy"):
        if "bfloat16" in str(getattr(value, "dtype", "")).lower() and hasattr(value, "float"):
            value = value.float()
        return np.asarray(value.asnumpy())
    return None


def _item(value: Any) -> Any:
    """Returns the number in a tensor of one element; None for anything else.

    `item` takes 1 us where `asnumpy` takes 10, and knows bfloat16 (measured on MindSpore 2.7 to 2.10).
    """
    if not hasattr(value, "asnumpy") or not hasattr(value, "item"):
        return None
    try:
        return value.item()
    except (ValueError, TypeError, RuntimeError):  # another number of elements
        return None


def to_number(value: Any) -> float | None:
    """Returns the mean of a number, array or tensor; None when it has no element or is something else."""
    number = value if isinstance(value, (bool, int, float)) else _item(value)
    if isinstance(number, (bool, int, float, np.number, np.bool_)) and not isinstance(number, np.complexfloating):
        return float(number)
    array = to_array(value)
    if array is None or not array.size or array.dtype.kind not in "biuf":
        return None
    if array.size == 1:
        return float(array.reshape(-1)[0])
    with np.errstate(all="ignore"):
        return float(np.mean(array))


def read_outputs(outputs: Any) -> StepOutputs:
    """Finds the loss, and what a one-step cell returns beside it.

    The loss is the only output, the first of a tuple or list (at any depth), or the entry `loss` of a dict; of several
    elements the mean counts, as in SummaryCollector. Training cells with loss scaling return (loss, overflow, scale);
    MindFormers' return (loss, overflow, scale, learning rate) and the global norm behind it.
    """
    if isinstance(outputs, Mapping):
        return StepOutputs(loss=to_number(outputs.get("loss")))
    if not isinstance(outputs, (tuple, list)):
        return StepOutputs(loss=to_number(outputs))
    first: Any = outputs
    while isinstance(first, (tuple, list)):
        first = first[0] if first else None
    loss = to_number(first)
    if len(outputs) < 3 or isinstance(outputs[0], (tuple, list)) or not _is_flag(outputs[1]):
        return StepOutputs(loss=loss)
    overflow = to_number(outputs[1])
    return StepOutputs(
        loss=loss,
        overflow=None if overflow is None else bool(overflow),
        loss_scale=to_number(outputs[2]),
        learning_rate=to_number(outputs[3]) if len(outputs) > 3 else None,
        grad_norm=to_number(outputs[4]) if len(outputs) > 4 else None,
    )


def _is_flag(value: Any) -> bool:
    """Whether an output can be an overflow flag: one boolean. A second loss is a float."""
    number = value if isinstance(value, (bool, np.bool_)) else _item(value)
    if number is not None:
        return isinstance(number, (bool, np.bool_))
    array = to_array(value)
    return array is not None and array.size == 1 and array.dtype.kind == "b"


def find_optimizer(parameters: Any) -> Any:
    """Returns the optimizer of a training: from the callback's parameters, or from its networks; None without one."""
    candidates = [parameters.get("optimizer")]
    for key in ("train_network", "network"):
        network = parameters.get(key)
        candidates.append(getattr(network, "optimizer", None))
    for candidate in candidates:
        if candidate is not None and hasattr(candidate, "learning_rate") and hasattr(candidate, "parameters"):
            return candidate
    network = parameters.get("train_network")
    for _, cell in network.cells_and_names() if hasattr(network, "cells_and_names") else ():
        if hasattr(cell, "learning_rate") and hasattr(cell, "global_step") and hasattr(cell, "parameters"):
            return cell
    return None


def learning_rates(optimizer: Any, make_step: Any) -> dict[str, float]:
    """Returns the learning rates that the last step used: `lr`, or `lr/group_<n>` where groups differ.

    An optimizer's own `get_lr` gives the rate of the step to come once the step has been counted, so the rule behind
    it is asked for the step before.

    Args:
        optimizer: Any of MindSpore's.
        make_step: Makes the tensor that a schedule is called with from an int.
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
        if not any(member is known for known in groups):
            groups.append(member)
    values = [_rate_at(group, last, make_step) for group in groups]
    return {f"lr/group_{index}": value for index, value in enumerate(values) if value is not None}


def rate_reader(optimizer: Any, make_step: Any) -> Callable[[], dict[str, float]]:
    """Returns what reads the learning rates again and again: `lr`, or `lr/group_<n>`, as `learning_rates` does.

    What an optimizer is made with never changes. So for one rate for all, the usual case, no more is read than that.
    A schedule is the user's own code, and raises what it likes.

    Args:
        optimizer: Any of MindSpore's.
        make_step: Makes the tensor that a schedule is called with from an int.
    """
    if getattr(optimizer, "dynamic_lr", False) or getattr(optimizer, "is_group_lr", False):
        return lambda: learning_rates(optimizer, make_step)

    def read() -> dict[str, float]:
        number = _item(optimizer.learning_rate)
        return {"lr": number} if type(number) is float else learning_rates(optimizer, make_step)

    return read


def _rate_at(rate: Any, step: int, make_step: Any) -> float | None:
    number = _item(rate)
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


def batch_size(parameters: Any) -> int | None:
    """Returns the samples of one step: from the data set, else from the first input's first axis."""
    dataset = parameters.get("train_dataset")
    with contextlib.suppress(Exception):  # a data set of the user's own may raise anything
        size = int(dataset.get_batch_size())
        if size > 0:
            return size
    element = parameters.get("train_dataset_element")
    first = element[0] if isinstance(element, (list, tuple)) and element else element
    shape = getattr(first, "shape", None)
    return int(shape[0]) if shape else None


def device_memory(mindspore: Any) -> dict[str, float]:
    """Returns device memory in MiB, `memory/allocated_mib` and `memory/reserved_mib`.

    Figures that the backend does not give are left out: a CPU says 0 to all of them.
    """
    source = getattr(mindspore, "runtime", None) or getattr(mindspore, "hal", None)
    figures = {}
    for name, call in (("allocated", "memory_allocated"), ("reserved", "memory_reserved")):
        function = getattr(source, call, None)
        try:
            number = float(function()) if function is not None else 0.0
        except (RuntimeError, ValueError, TypeError, NotImplementedError, AttributeError, OSError):
            number = 0.0
        if number > 0 and math.isfinite(number):
            figures[f"memory/{name}_mib"] = number / _MIB
    return figures
