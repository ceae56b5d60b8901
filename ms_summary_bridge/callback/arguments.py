"""What users hand to a bridge and to `bridge.add_*`, brought into one form or refused with a reason."""

from __future__ import annotations

import operator
import os
from typing import Any

import numpy.typing as npt

from ms_summary_bridge.errors import InvalidValueError, UsageError
from ms_summary_bridge.files.arguments import check_path
from ms_summary_bridge.training.measures import to_array

__all__ = [
    "as_batch",
    "as_step",
    "check_bytes",
    "check_directory",
    "check_seconds",
    "check_switch",
    "refuse_overrides",
    "specified_data",
]


def as_step(step: Any, tag: str) -> int:
    """Returns a step as an int: ints, whole floats, and tensors of one number, whoever made them.

    Raises:
        InvalidValueError: It is not a whole number, or outside 64 bits.
    """
    try:
        array = None if isinstance(step, int) else to_array(step)
        value = step if array is None else array.item()
        number = int(value) if isinstance(value, float) and value == int(value) else operator.index(value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidValueError(f"tag {tag!r}: a step is a whole number, got {step!r}") from None
    if not -(1 << 63) <= number < 1 << 63:
        raise InvalidValueError(f"tag {tag!r}: a step has 64 bits, got {number}")
    return number


def as_batch(image: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Returns an image as `[n, c, h, w]` with c = 1 or 3; raises InvalidValueError for another shape.

    It may be `[h, w]`, `[h, w, c]`, `[c, h, w]` or `[n, c, h, w]`; where both the first and the last axis can be the
    channels, the last one is taken for them.
    """
    shape = image.shape
    if image.ndim == 2:
        return image[None, None]
    if image.ndim == 3 and shape[2] in (1, 3):
        return image.transpose(2, 0, 1)[None]
    if image.ndim == 3 and shape[0] in (1, 3):
        return image[None]
    if image.ndim == 4 and shape[1] in (1, 3):
        return image
    raise InvalidValueError(
        f"an image is [h, w], [h, w, c], [c, h, w] or [n, c, h, w] with 1 or 3 channels; its shape is {list(shape)}"
    )


# ------------------------------------------------------------------ a bridge's own arguments
#
# A wrong type is a TypeError and a wrong value a ValueError, as from SummaryCollector.


def check_directory(name: str, value: Any) -> str:
    """Returns the absolute path of a directory, which need not be there yet; raises UsageError for another thing."""
    path = os.path.abspath(os.path.expanduser(check_path(name, value)))
    if os.path.exists(path) and not os.path.isdir(path):
        raise UsageError(f"{name}: {path} is a file; name a directory")
    return path


def check_switch(name: str, value: Any, *, or_none: bool = False) -> None:
    """Raises TypeError for what is neither True nor False: the text "False" is true."""
    if not isinstance(value, bool) and not (or_none and value is None):
        raise TypeError(f"{name}: must be True or False{' or None' if or_none else ''}, not {value!r}")


def check_seconds(name: str, value: Any) -> None:
    """Raises TypeError for what is not a number, UsageError for one that is not positive or not finite."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name}: must be a number of seconds, not {value!r}")
    if not 0 < value < float("inf"):
        raise UsageError(f"{name}: must be a positive number of seconds, not {value!r}")


def check_bytes(name: str, value: Any) -> None:
    """Raises TypeError for what is not an int, UsageError for one that is not positive."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}: must be an int, a number of bytes, not {value!r}")
    if value < 1:
        raise UsageError(f"{name}: must be a positive number of bytes, not {value!r}")


def refuse_overrides(kind: type, base: type) -> None:
    """Raises UsageError for a subclass that overrides what SummaryCollector calls inside, and `base` never does."""
    from mindspore.train.callback import SummaryCollector

    for derived in kind.__mro__[: kind.__mro__.index(base)]:
        for name in vars(derived):
            if name in vars(SummaryCollector) and not hasattr(base, name):
                raise UsageError(
                    f"{derived.__name__} overrides {name} of SummaryCollector, which SummaryBridge does not call: "
                    "write on_train_step_end, or another hook, and self.add_scalar(tag, value) in its place"
                )


def specified_data(
    given: Any,
    keeps_default: bool,
    collect_graph: bool | None,
    collect_trainable_params: bool | None,
    collect_loss: bool | None,
) -> Any:
    """Returns `collect_specified_data` with the switches put in, and the landscape off unless it was asked for."""
    if given is not None and not isinstance(given, dict):
        return given  # SummaryCollector says what is wrong with it
    data = dict(given or {})
    if keeps_default:
        data.setdefault("collect_landscape", None)
    if collect_graph is not None:
        data.setdefault("collect_graph", collect_graph)
        data.setdefault("collect_dataset_graph", collect_graph)
    if collect_trainable_params:
        data.setdefault("histogram_regular", ".*")
    if collect_loss is not None:
        data.setdefault("collect_metric", collect_loss)
    return data or given
