"""What users hand to `bridge.add_*`, brought into one form or refused with a reason."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import numpy.typing as npt

from ms_summary_bridge.errors import InvalidValueError

__all__ = ["as_batch", "as_step"]


def as_step(step: Any, tag: str) -> int:
    """Returns a step as an int: ints, whole floats, numpy and MindSpore numbers.

    Raises:
        InvalidValueError: It is not a whole number, or outside 64 bits.
    """
    value = step.asnumpy() if hasattr(step, "asnumpy") else step
    try:
        if isinstance(value, np.ndarray):
            value = value.item()
        number = (
            int(value) if isinstance(value, (float, np.floating)) and value == int(value) else operator.index(value)
        )
    except (TypeError, ValueError, OverflowError):
        raise InvalidValueError(f"a step is a whole number, got {step!r}", tag=tag) from None
    if not -(1 << 63) <= number < 1 << 63:
        raise InvalidValueError(f"a step has 64 bits, got {number}", tag=tag)
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
