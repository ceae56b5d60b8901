"""A value as plain Python, for files of text and of columns."""

from __future__ import annotations

import math
from typing import Any

from ms_summary_bridge.values import Histogram, Tensor

__all__ = ["json_number", "plain_histogram", "plain_tensor"]


def json_number(number: float | int | None) -> float | int | str | None:
    """Returns a number as strict JSON can hold it: what is not finite becomes `NaN`, `Infinity` or `-Infinity`."""
    if number is None or isinstance(number, int) or math.isfinite(number):
        return number
    return "NaN" if number != number else "Infinity" if number > 0 else "-Infinity"


def plain_histogram(histogram: Histogram) -> dict[str, Any]:
    """Returns a histogram's buckets as lists, and its statistics."""
    return {
        "left": histogram.left.tolist(),
        "right": histogram.right.tolist(),
        "count": histogram.count.tolist(),
        "min": histogram.min,
        "max": histogram.max,
        "sum": histogram.sum,
        "total": histogram.total,
        "nan_count": histogram.nan_count,
        "pos_inf_count": histogram.pos_inf_count,
        "neg_inf_count": histogram.neg_inf_count,
    }


def plain_tensor(tensor: Tensor) -> dict[str, Any]:
    """Returns a tensor's declared dtype, its shape, and its elements in the order of rows."""
    return {"dtype": tensor.dtype, "shape": list(tensor.array.shape), "values": tensor.array.ravel().tolist()}
