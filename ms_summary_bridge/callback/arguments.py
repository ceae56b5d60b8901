"""What users hand to a bridge and to `bridge.add_*`, brought into one form or refused with a reason."""

from __future__ import annotations

import operator
import os
from typing import Any

import numpy.typing as npt

from ms_summary_bridge.errors import InvalidValueError, UsageError
from ms_summary_bridge.files.arguments import check_path
from ms_summary_bridge.training.measures import to_array

__all__ = ["as_batch", "as_step", "check_bytes", "check_directory", "check_seconds", "check_switch"]


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
    """Returns an image as `[n, c, h, w]` with c = 1 or 3.

    Args:
        image: `[h, w]`, `[h, w, c]`, `[c, h, w]` or `[n, c, h, w]`; where both the first and the last axis can be the
            channels, the last one is taken for them.

    Raises:
        InvalidValueError: Another shape.
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
# Of a wrong type is a TypeError and of a wrong value a ValueError, as from SummaryCollector.


def check_directory(name: str, value: Any) -> str:
    """Returns the absolute path of a directory, which need not be there yet.

    Raises:
        UsageError: It is no path, or a file.
    """
    path = os.path.abspath(os.path.expanduser(check_path(name, value)))
    if os.path.exists(path) and not os.path.isdir(path):
        raise UsageError(f"{name}: {path} is a file; name a directory")
    return path


def check_switch(name: str, value: Any, *, or_none: bool = False) -> None:
    """Refuses what is neither True nor False: the text "False" is true.

    Raises:
        TypeError: It is something else.
    """
    if not isinstance(value, bool) and not (or_none and value is None):
        raise TypeError(f"{name}: must be True or False{' or None' if or_none else ''}, not {value!r}")


def check_seconds(name: str, value: Any) -> None:
    """Refuses what is no positive time.

    Raises:
        TypeError: It is no number.
        UsageError: It is not positive, or not finite.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name}: must be a number of seconds, not {value!r}")
    if not 0 < value < float("inf"):
        raise UsageError(f"{name}: must be a positive number of seconds, not {value!r}")


def check_bytes(name: str, value: Any) -> None:
    """Refuses what is no positive number of bytes.

    Raises:
        TypeError: It is no int.
        UsageError: It is not positive.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}: must be an int, a number of bytes, not {value!r}")
    if value < 1:
        raise UsageError(f"{name}: must be a positive number of bytes, not {value!r}")
