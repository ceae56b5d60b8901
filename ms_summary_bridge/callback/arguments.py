"""What users hand to `bridge.add_*`, brought into one form or refused with a reason."""

from __future__ import annotations

import operator
from typing import Any

import numpy.typing as npt

from ms_summary_bridge.errors import InvalidValueError
from ms_summary_bridge.training.measures import to_array

__all__ = ["as_batch", "as_step"]


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
