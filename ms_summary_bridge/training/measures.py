"""What a training step says of itself: loss, overflow, loss scale, learning rate, norm; and the device's memory.

MindSpore's objects are only touched through their own methods.

Source: the forms of `net_outputs` were measured on MindSpore 2.7 to 2.10 and MindFormers 1.9;
`tests/training/test_measures.py` has each of them.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from typing import Any, Final, TypeVar, overload

import msgspec
import numpy as np

__all__ = ["StepOutputs", "device_memory", "item_of", "read_outputs", "to_array", "to_number"]

_MIB: Final = 1 << 20
_REFUSALS: Final = (ValueError, TypeError, RuntimeError, AttributeError, OverflowError)


class StepOutputs(msgspec.Struct):
    """What the network's outputs hold. None where they do not hold it.

    Attributes:
        loss: As the network returned it.
        overflow: Whether the step was skipped, because its gradients overflowed.
        loss_scale: Of mixed precision, as the step used it.
        learning_rate: Of this step.
        grad_norm: Norm of all gradients; None for a step that overflowed, whose norm says nothing.
        local_loss: This rank's own loss, before any reduction, where somebody says it beside `loss`.
        local_squares: Sums of the squares of this rank's own gradients, of each parameter, before they are reduced: one
            tensor or array that nobody has read yet.
        sub_losses: What the loss is a sum of, by name.
    """

    loss: float | None = None
    overflow: bool | None = None
    loss_scale: float | None = None
    learning_rate: float | None = None
    grad_norm: float | None = None
    local_loss: float | None = None
    local_squares: Any = None
    sub_losses: Mapping[str, float] = {}


_Outputs = TypeVar("_Outputs", bound=StepOutputs)


def to_array(value: Any) -> np.ndarray[Any, Any] | None:
    """Returns a number, array or tensor as an array; None for anything else.

    Tensors of MindSpore, PyTorch (on a device, with a gradient), JAX and TensorFlow are taken, and all else that has
    `__array__`, `item()` or `__float__`. numpy has no bfloat16, so such a tensor is cast first.
    """
    if isinstance(value, (bool, int, float, np.number, np.bool_)):
        return np.asarray(value)
    if isinstance(value, np.ndarray):
        return _in_known_type(value)
    if hasattr(value, "asnumpy"):
        return np.asarray(_without_bfloat16(value).asnumpy())
    if isinstance(value, (str, bytes, type)):  # numpy's texts, and its types, have `__array__` too
        return None
    return _foreign_array(value)


def _without_bfloat16(value: Any) -> Any:
    is_bfloat16 = "bfloat16" in str(getattr(value, "dtype", "")).lower()
    return value.float() if is_bfloat16 and hasattr(value, "float") else value


def _in_known_type(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns an array of JAX's bfloat16 and the like, which numpy takes for raw bytes with a name, as float32."""
    is_named = array.dtype.kind == "V" and "float" in array.dtype.name
    return array.astype(np.float32) if is_named else array


def _foreign_array(value: Any) -> np.ndarray[Any, Any] | None:
    """Returns what another framework's tensor, or another number, holds; None where it will not say."""
    with contextlib.suppress(*_REFUSALS):
        if hasattr(value, "__array__"):
            local = value.detach().cpu() if hasattr(value, "detach") and hasattr(value, "cpu") else value
            array = _in_known_type(np.asarray(_without_bfloat16(local)))
            if array.dtype.kind != "O":
                return array
    with contextlib.suppress(*_REFUSALS):
        if hasattr(value, "item") and isinstance(number := value.item(), (bool, int, float, np.number)):
            return np.asarray(number)
    with contextlib.suppress(*_REFUSALS):
        if hasattr(value, "__float__"):
            return np.asarray(float(value))
    return None


def item_of(value: Any) -> Any:
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
    number = value if isinstance(value, (bool, int, float)) else item_of(value)
    if isinstance(number, (bool, int, float, np.number, np.bool_)) and not isinstance(number, np.complexfloating):
        return float(number)
    array = to_array(value)
    if array is None or not array.size or array.dtype.kind not in "biuf":
        return None
    if array.size == 1:
        return float(array.reshape(-1)[0])
    with np.errstate(all="ignore"):
        return float(np.mean(array))


@overload
def read_outputs(outputs: Any) -> StepOutputs: ...


@overload
def read_outputs(outputs: Any, into: type[_Outputs]) -> _Outputs: ...


def read_outputs(outputs: Any, into: type[StepOutputs] = StepOutputs) -> StepOutputs:
    """Finds the loss, and what a one-step cell returns beside it.

    The loss is the only output, the first of a tuple or list (at any depth), or the entry `loss` of a dict; of several
    elements the mean counts, as in SummaryCollector. Training cells with loss scaling return (loss, overflow, scale);
    MindFormers' return (loss, overflow, scale, learning rate) and the global norm behind it; with `local_norm: True`
    the squares of each parameter's own gradients too, and their sizes (1.9.0, `wrapper.LocalNorm`). `outputs` are the
    `net_outputs` of MindSpore's callback parameters.
    """
    if isinstance(outputs, Mapping):
        return into(loss=to_number(outputs.get("loss")))
    if not isinstance(outputs, (tuple, list)):
        return into(loss=to_number(outputs))
    first: Any = outputs
    while isinstance(first, (tuple, list)):
        first = first[0] if first else None
    found = into(loss=to_number(first))
    if len(outputs) < 3 or isinstance(outputs[0], (tuple, list)) or not _is_flag(outputs[1]):
        return found
    overflow = to_number(outputs[1])
    found.overflow = None if overflow is None else bool(overflow)
    found.loss_scale = to_number(outputs[2])
    if len(outputs) > 3:
        found.learning_rate = to_number(outputs[3])
    if len(outputs) > 4 and not found.overflow:
        found.grad_norm = to_number(outputs[4])
    if len(outputs) == 7 and not found.overflow:  # the last one is how many elements each parameter has
        found.local_squares = outputs[5]
    return found


def _is_flag(value: Any) -> bool:
    """Whether an output can be an overflow flag: one boolean. A second loss is a float."""
    number = value if isinstance(value, (bool, np.bool_)) else item_of(value)
    if number is not None:
        return isinstance(number, (bool, np.bool_))
    array = to_array(value)
    return array is not None and array.size == 1 and array.dtype.kind == "b"


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
