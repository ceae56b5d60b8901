"""Pack: arrays as SummaryRecord hands them over become the values that MindSpore's own writer would have made.

Needs numpy and pillow, not mindspore.

The aim is that the summary file is, byte for byte, the one that MindSpore writes, so the rules here are MindSpore's:
every number ends up as a float32, a batch of images is tiled eight to a row and its brightness stretched, a
histogram has up to 90 buckets between the smallest and the largest finite element. Source: measured on MindSpore
2.7 to 2.10 by comparing records (`tests/live_writer/test_pack.py`).

Where MindSpore's function raises (a dtype it has no name for), so does this: `InvalidValueError`, for one value.
"""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ms_summary_bridge.errors import InvalidValueError
from ms_summary_bridge.values import Histogram, Image, Scalar, Tensor

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["bucket_counts", "pack_histogram", "pack_image", "pack_scalar", "pack_tensor"]

_QUIET: Final = 0x00400000  # on its way through a Python float a signalling NaN becomes a quiet one
_DTYPES: Final = frozenset(
    ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64")
)
_HISTOGRAM_DTYPES: Final = (_DTYPES | {"complex64", "complex128"}) - {"bool"}
_IMAGES_IN_ROW: Final = 8
_MAX_BUCKETS: Final = 90
_BLOCK: Final = 1 << 16  # elements binned at a time: their indices stay in the processor's cache
_SMALL: Final = 2048  # below this many elements sorting is faster


def pack_scalar(array: npt.NDArray[Any]) -> Scalar:
    """Packs the first element as float32.

    Raises:
        InvalidValueError: There is no element, or it is no real number.
    """
    if not array.size:
        raise InvalidValueError("a scalar is one number, and this array is empty")
    if array.dtype.kind not in "biuf":
        raise InvalidValueError(f"a scalar is a real number, and this is of the dtype {array.dtype}")
    return Scalar.from_float32(float(next(array.flat)))


def pack_tensor(array: npt.NDArray[Any]) -> Tensor:
    """Packs all elements as float32, under the name of the dtype they had.

    Raises:
        InvalidValueError: MindSpore has no name for the dtype.
    """
    name = array.dtype.name
    if name not in _DTYPES:
        raise InvalidValueError(f"MindSpore's summaries have no tensors of {name}")
    with np.errstate(over="ignore"):
        numbers = array.astype("<f4").reshape(-1)
    is_nan = np.isnan(numbers)
    if is_nan.any():
        numbers.view(np.uint32)[is_nan] |= np.uint32(_QUIET)
    return Tensor(numbers.reshape(array.shape), name)


def pack_image(array: npt.NDArray[Any], *, keeps_bytes: bool = False) -> Image:
    """Tiles a batch of images into one PNG.

    Elements between 0 and 1 are scaled to 0..255; others are stretched from their own range to it, so the absolute
    brightness is lost.

    Args:
        array: `[n, c, h, w]` with c = 1 or 3.
        keeps_bytes: Take unsigned bytes as they are.

    Raises:
        InvalidValueError: Another shape.
    """
    if array.ndim != 4 or array.shape[1] not in (1, 3) or 0 in array.shape:
        raise InvalidValueError(f"an image has the shape [n, 1 or 3, height, width], got {list(array.shape)}")
    if array.dtype.kind not in "biufc":
        raise InvalidValueError(f"the brightness of an image is a number, and this is of the dtype {array.dtype}")
    array = array.real
    count, _, height, width = array.shape
    columns = min(count, _IMAGES_IN_ROW)
    rows = math.ceil(count / columns)
    canvas = np.zeros((height * rows, width * columns, 3))
    for index in range(count):
        top, left = index // columns * height, index % columns * width
        canvas[top : top + height, left : left + width] = array[index].transpose(1, 2, 0)
    low, high = canvas.min(), canvas.max()
    scale, shift = 1.0, low
    with np.errstate(all="ignore"):
        if high <= 1 and low >= 0:
            scale, shift = 255, 0
        elif high != low:
            scale = 255 / (high - low + 1)
        pixels = ((canvas.astype(np.float32) - shift) * scale).astype(np.uint8)
    if keeps_bytes and array.dtype == np.uint8:
        pixels = canvas.astype(np.uint8)
    from PIL import Image as PillowImage  # here: most runs have no images, and the writer process starts the sooner

    output = io.BytesIO()
    PillowImage.fromarray(pixels).save(output, format="PNG")
    return Image(pixels.shape[0], pixels.shape[1], pixels.shape[2], (output.getvalue(),))


def pack_histogram(array: npt.NDArray[Any]) -> Histogram:
    """Counts the finite elements into even buckets.

    Raises:
        InvalidValueError: The elements are no real numbers.
    """
    flat = array.reshape(-1)
    nan = positive = negative = missing = 0
    finite = flat
    if flat.dtype.kind in "fc":
        is_finite = np.isfinite(flat)
        missing = flat.size - int(np.count_nonzero(is_finite))
        if missing:
            nan = int(np.count_nonzero(np.isnan(flat)))
            if nan < missing and flat.dtype.kind == "c":
                raise InvalidValueError("a complex infinity has no sign")
            positive = int(np.count_nonzero(np.isposinf(flat))) if nan < missing else 0
            negative = missing - nan - positive
            finite = flat[is_finite]
            array = np.where(np.isfinite(array), array, array.dtype.type(0))
    stored: dict[str, Any] = {
        "total": flat.size,
        "nan_count": nan,
        "pos_inf_count": positive,
        "neg_inf_count": negative,
    }
    if not finite.size:
        empty = np.empty(0)
        return Histogram(left=empty, right=empty, width=empty, count=np.empty(0, np.int64), **stored)
    if finite.dtype.name not in _HISTOGRAM_DTYPES:
        raise InvalidValueError(f"{finite.dtype} elements have no histogram")
    low, high = float(finite.min().real), float(finite.max().real)
    if missing and 0 in (low, high) and flat.dtype.kind == "f":  # which zero, +0 or -0, depends on the positions
        low = float(np.where(is_finite, flat, np.inf).min())
        high = float(np.where(is_finite, flat, -np.inf).max())
    first, last = (low, high) if low < high else (low - 0.5, high + 0.5)
    with np.errstate(over="ignore", invalid="ignore"):
        edges = np.linspace(first, last, _bucket_count(finite.size) + 1, dtype=array.dtype)
        counts = bucket_counts(finite, edges)
        widths = (edges[1:] - edges[:-1]).real.astype(np.float64)
        left = edges[:-1].real.astype(np.float64)
        right = left + widths
        # Over the whole array, zeros in place of what is not finite: the order of additions decides the last bits.
        total = float(array.real.sum(dtype=np.float64))
    return Histogram(left=left, right=right, width=widths, count=counts, min=low, max=high, sum=total, **stored)


def _bucket_count(size: int) -> int:
    if size <= 5:
        return 2
    if size <= 10:
        return 3
    return min(size // 10 + 1, _MAX_BUCKETS) if size <= 880 else _MAX_BUCKETS


def bucket_counts(values: npt.NDArray[Any], edges: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Counts as `np.histogram(values, edges)` does, in about a third of its time for many floats.

    The bucket of a value is computed from the width and then put right by comparing with the edges themselves, which
    rounding has moved. Edges of integers are not even (they are rounded down), so those are searched for.

    Args:
        values: `[n]` finite numbers.
        edges: `[k + 1]` ascending, in the dtype of the values, evenly spaced but for rounding.

    Returns:
        `[k]` int64.
    """
    buckets = len(edges) - 1
    span = float(edges[-1]) - float(edges[0])
    if values.dtype.kind != "f" or values.dtype.itemsize < 4 or values.size < _SMALL or not 0 < span < math.inf:
        return _search_counts(values, edges)
    counts = np.zeros(buckets, np.int64)
    scale = values.dtype.type(buckets / span)
    if not 0 < scale < math.inf:
        return _search_counts(values, edges)
    first = edges[0]
    upper = edges[1:].copy()
    upper[-1] = np.inf  # the last bucket is closed
    for start in range(0, values.size, _BLOCK):
        block = values[start : start + _BLOCK]
        index = ((block - first) * scale).astype(np.int32)
        np.clip(index, 0, buckets - 1, out=index)
        index -= block < edges[index]
        index += block >= upper[index]
        if (block < edges[index]).any() or (block >= upper[index]).any():  # edges closer than rounding
            return _search_counts(values, edges)
        counts += np.bincount(index, minlength=buckets)
    return counts


def _search_counts(values: npt.NDArray[Any], edges: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    try:
        return np.histogram(values, bins=edges)[0].astype(np.int64)
    except ValueError as error:  # the range overflows the dtype, so the edges do not ascend
        raise InvalidValueError(f"no buckets between {edges[0]} and {edges[-1]} in {edges.dtype}: {error}") from error
