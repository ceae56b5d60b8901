"""Histograms in both formats' messages.

MindSpore stores each bucket as (left, width, count) with integer counts, and beside them min, max, sum, the number of
values and how many were not finite. TensorBoard draws a `[k, 3]` float64 tensor of (left, right, count) and stores
nothing beside it, so the rest travels in the value's plugin data (`proto/tensorboard/origin.proto`), where
TensorBoard's readers pass over it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ms_summary_bridge.errors import InvalidValueError, counted
from ms_summary_bridge.formats import wire
from ms_summary_bridge.values import Histogram

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = [
    "decode_legacy_histogram",
    "decode_mindspore_histogram",
    "decode_tensorboard_histogram",
    "encode_histogram_extras",
    "encode_mindspore_histogram",
    "encode_tensorboard_histogram",
]

_LARGEST_COUNT: Final = float((1 << 63) - 1024)  # the largest float64 that is an int64
_BUCKET_KEYS: Final = (0x09, 0x11, 0x18)  # left: fixed64 1, width: fixed64 2, count: varint 3

# nan_count, pos_inf_count, neg_inf_count of one byte each, max, min, sum, each behind its key; then count.
_STATISTICS: Final = struct.Struct("<BBBBBBBdBdBd")
_STATISTICS_KEYS: Final = (0x10, 0x18, 0x20, 0x29, 0x31, 0x39)
_BUCKET: Final = struct.Struct("<BdBdB")  # left and width behind their keys, and the key of the count
_RANGE: Final = struct.Struct("<BdBdBd")  # min, max, sum of the extras


# ---------------------------------------------------------------- MindSpore: Summary.Histogram


def decode_mindspore_histogram(data: bytes, start: int, end: int) -> tuple[Histogram, bool]:
    """Decodes MindSpore's `Summary.Histogram`.

    Returns:
        The histogram, and whether `encode_mindspore_histogram` gives an equal message for it.

    Raises:
        EventDecodeError: The message is malformed.
    """
    from ms_summary_bridge.formats._bucket_table import read_buckets  # here: only reading needs it

    left, width, count, position = read_buckets(data, start, end)
    numbers: dict[int, Any] = {}  # by the number of the field
    is_exact = True
    statistics = _read_statistics(data, position, end)
    if statistics is None:
        buckets: list[tuple[float, float, int]] = []
        for key, a, b in wire.fields(data, position, end):
            if key == 0x0A:
                bucket, is_plain = _decode_bucket(data, a, b)
                is_exact = is_exact and is_plain
                buckets.append(bucket)
            elif key in (0x10, 0x18, 0x20, 0x40, 0x29, 0x31, 0x39):
                is_exact = is_exact and key >> 3 not in numbers
                numbers[key >> 3] = wire.signed(a) if key & 7 == wire.VARINT else wire.FLOAT64.unpack_from(data, a)[0]
            else:
                is_exact = False
        if buckets:
            lefts, widths, counts = zip(*buckets, strict=True)
            left = np.concatenate((left, np.array(lefts, np.float64)))
            width = np.concatenate((width, np.array(widths, np.float64)))
            count = np.concatenate((count, np.array(counts, np.int64)))
        # Without a finite element MindSpore leaves max, min and sum (5, 6, 7) out.
        is_exact = is_exact and {2, 3, 4, 8} <= numbers.keys() and (len(numbers) in ((7,) if left.size else (4, 7)))
        statistics = tuple(numbers.get(field) for field in range(2, 9))
    nan, positive, negative, high, low, sum_, total = statistics
    histogram = Histogram(
        left=left,
        right=_quietly(np.add, left, width),
        width=width,
        count=count,
        max=high,
        min=low,
        sum=sum_,
        total=total,
        nan_count=nan or 0,
        pos_inf_count=positive or 0,
        neg_inf_count=negative or 0,
    )
    return histogram, is_exact


def _read_statistics(data: bytes, start: int, end: int) -> tuple[Any, ...] | None:
    """Reads fields 2 to 8, which follow the buckets, at once; None where they do not lie as MindSpore lays them."""
    if end - start < _STATISTICS.size + 1 or data[start + 33] != 0x40:
        return None
    key_nan, nan, key_pos, positive, key_neg, negative, key_max, high, key_min, low, key_sum, sum_ = (
        _STATISTICS.unpack_from(data, start)
    )
    keys = (key_nan, key_pos, key_neg, key_max, key_min, key_sum)
    if keys != _STATISTICS_KEYS or nan | positive | negative > 127:
        return None
    total, after = wire.read_varint(data, start + _STATISTICS.size + 1, end)
    return (nan, positive, negative, high, low, sum_, wire.signed(total)) if after == end else None


def _quietly(
    operation: np.ufunc, first: npt.NDArray[np.float64], second: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Adds or subtracts without a warning where the result is beyond float64 or NaN.

    To switch the warnings off takes ten times as long as the operation on 90 buckets. Unless a number's last byte is
    7f or ff (sign and upper exponent bits), all are below 2**1009, and nothing is warned of.
    """
    tops = first.tobytes()[7::8] + second.tobytes()[7::8]
    if b"\x7f" in tops or b"\xff" in tops:
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(operation(first, second))
    return np.asarray(operation(first, second))


def _decode_bucket(data: bytes, start: int, end: int) -> tuple[tuple[float, float, int], bool]:
    left = width = 0.0
    count = 0
    seen: list[int] = []
    for key, a, _ in wire.fields(data, start, end):
        seen.append(key)
        if key == 0x09:
            left = wire.FLOAT64.unpack_from(data, a)[0]
        elif key == 0x11:
            width = wire.FLOAT64.unpack_from(data, a)[0]
        elif key == 0x18:
            count = wire.signed(a)
    return (left, width, count), sorted(seen) == list(_BUCKET_KEYS)


def encode_mindspore_histogram(histogram: Histogram) -> tuple[bytes, str]:
    """Encodes MindSpore's `Summary.Histogram`, every field set, behind the key of the value's field.

    Returns:
        The field, and what it does not hold (fractional counts are rounded); empty when nothing is lost.
    """
    counts = histogram.count
    loss = ""
    if counts.dtype.kind != "i":
        with np.errstate(invalid="ignore"):  # a signalling NaN
            rounded = np.rint(np.nan_to_num(counts, nan=0.0)).clip(-_LARGEST_COUNT, _LARGEST_COUNT)
        if not np.array_equal(rounded, counts):
            loss = "counts that are not whole numbers were rounded"
        counts = rounded.astype(np.int64)
    out = bytearray()
    pack, varint = _BUCKET.pack, wire.varint
    for left, width, count in zip(histogram.left.tolist(), histogram.widths.tolist(), counts.tolist(), strict=True):
        number = varint(count)
        out += b"\x0a" + varint(19 + len(number)) + pack(0x09, left, 0x11, width, 0x18) + number
    out += b"\x10" + wire.varint(histogram.nan_count) + b"\x18" + wire.varint(histogram.pos_inf_count)
    out += b"\x20" + wire.varint(histogram.neg_inf_count)
    total = _whole(histogram.total)
    if total is None:
        loss = loss or (
            "" if histogram.total is None else "the number of values is not whole: the counts are added up instead"
        )
        total = sum(counts.tolist()) + histogram.nan_count + histogram.pos_inf_count + histogram.neg_inf_count
    # Without a finite element MindSpore leaves the range and the sum out.
    if counts.size or (histogram.min, histogram.max, histogram.sum) != (None, None, None):
        low, high = _range(histogram)
        out += wire.fixed64(b"\x29", high) + wire.fixed64(b"\x31", low) + wire.fixed64(b"\x39", _sum(histogram))
    out += b"\x40" + wire.varint(total)
    return wire.length_delimited(b"\x4a", bytes(out)), loss


def _whole(number: int | float | None) -> int | None:
    """Returns a number as an int64; None where it does not fit one."""
    if number is None or number != number or not -(1 << 63) <= number < 1 << 63 or number != int(number):
        return None
    return int(number)


def _range(histogram: Histogram) -> tuple[float, float]:
    if histogram.min is not None and histogram.max is not None:
        return histogram.min, histogram.max
    filled = np.flatnonzero(histogram.count)
    if not filled.size:
        return 0.0, 0.0
    return float(histogram.left[filled[0]]), float(histogram.right[filled[-1]])


def _sum(histogram: Histogram) -> float:
    if histogram.sum is not None:
        return histogram.sum
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.sum((histogram.left + histogram.right) / 2 * histogram.count))


# ---------------------------------------------------------------- TensorBoard: [k, 3] tensor, and HistogramProto


def encode_tensorboard_histogram(histogram: Histogram) -> npt.NDArray[np.float64]:
    """Returns the `[k, 3]` float64 tensor (left, right, count) that TensorBoard draws."""
    rows = np.empty((len(histogram.left), 3))
    rows[:, 0] = histogram.left
    rows[:, 1] = histogram.right
    rows[:, 2] = histogram.count
    return rows


def encode_histogram_extras(histogram: Histogram) -> bytes:
    """Encodes `HistogramExtras`: what the `[k, 3]` tensor does not say."""
    out = bytearray()
    low, high, sum_ = histogram.min, histogram.max, histogram.sum
    if low is not None and high is not None and sum_ is not None:
        out += _RANGE.pack(0x09, low, 0x11, high, 0x19, sum_)
    else:
        for key, double in ((b"\x09", low), (b"\x11", high), (b"\x19", sum_)):
            if double is not None:
                out += wire.fixed64(key, double)
    total = _whole(histogram.total)
    if total is not None:
        out += b"\x20" + wire.varint(total)
    nan, positive, negative = histogram.nan_count, histogram.pos_inf_count, histogram.neg_inf_count
    for key, number in ((b"\x28", nan), (b"\x30", positive), (b"\x38", negative)):
        if number:
            out += key + wire.varint(number)
    if histogram.width is not None:
        computed = _quietly(np.subtract, histogram.right, histogram.left)
        if computed.tobytes() != histogram.width.tobytes():
            out += wire.length_delimited(b"\x42", histogram.width.tobytes())
    return bytes(out)


def decode_tensorboard_histogram(tensor: npt.NDArray[Any] | list[bytes], extras: bytes | None) -> Histogram:
    """Builds a histogram from a `[k, 3]` tensor and our extras, where the value carries them.

    Raises:
        InvalidValueError: The tensor has another shape.
        EventDecodeError: The extras are malformed.
    """
    if isinstance(tensor, list) or tensor.ndim != 2 or tensor.shape[1] != 3 or tensor.dtype.kind == "c":
        shape = "strings" if isinstance(tensor, list) else f"{tensor.shape} of {tensor.dtype}"
        raise InvalidValueError(f"a histogram is a tensor of shape [k, 3], got {shape}")
    with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
        rows = tensor.astype(np.float64)
    numbers: dict[int, Any] = {}  # by the number of the field
    width: npt.NDArray[np.float64] | None = None
    count: npt.NDArray[Any] = rows[:, 2].copy()
    if extras is not None:
        for key, a, b in wire.fields(extras, 0, len(extras)):
            if key in (0x09, 0x11, 0x19):
                numbers[key >> 3] = wire.FLOAT64.unpack_from(extras, a)[0]
            elif key in (0x20, 0x28, 0x30, 0x38):
                numbers[key >> 3] = wire.signed(a)
            elif key == 0x42 and (b - a) == 8 * len(rows):
                width = np.frombuffer(extras, "<f8", len(rows), a).copy()
        with np.errstate(invalid="ignore"):
            if np.array_equal(np.rint(count).clip(-_LARGEST_COUNT, _LARGEST_COUNT), count):
                count = count.astype(np.int64)
    return Histogram(
        left=rows[:, 0].copy(),
        right=rows[:, 1].copy(),
        count=count,
        width=width,
        min=numbers.get(1),
        max=numbers.get(2),
        sum=numbers.get(3),
        total=numbers.get(4),
        nan_count=numbers.get(5, 0),
        pos_inf_count=numbers.get(6, 0),
        neg_inf_count=numbers.get(7, 0),
    )


def decode_legacy_histogram(data: bytes, start: int, end: int) -> Histogram:
    """Decodes TensorBoard's older `HistogramProto`, which stores upper edges and the range.

    The lowest bucket that is not empty begins at `min` and the highest ends at `max`, as TensorBoard itself reads
    it, unless that would turn a bucket around. Empty buckets outside the range, which TensorBoard drops, are kept.

    Raises:
        InvalidValueError: There are not as many edges as counts.
        EventDecodeError: The message is malformed.
    """
    doubles: dict[int, float] = {}
    lists: dict[int, list[npt.NDArray[np.float64]]] = {6: [], 7: []}
    for key, a, b in wire.fields(data, start, end):
        number = key >> 3
        if number in lists and key & 7 in (wire.LENGTH_DELIMITED, wire.FIXED64) and (b - a) % 8 == 0:
            lists[number].append(np.frombuffer(data, "<f8", (b - a) // 8, a))
        elif key & 7 == wire.FIXED64 and number <= 5:
            doubles[number] = wire.FLOAT64.unpack_from(data, a)[0]
    limits, counts = (np.concatenate(part) if part else np.empty(0) for part in (lists[6], lists[7]))
    if limits.shape != counts.shape:
        raise InvalidValueError(f"a histogram has {counted(len(limits), 'edge')} and {counted(len(counts), 'count')}")
    low, high = doubles.get(1, 0.0), doubles.get(2, 0.0)
    left, right = limits.copy(), limits.copy()
    if len(limits):
        left[1:] = limits[:-1]
        left[0] = low if low <= limits[0] else limits[0]
        if left[-1] <= high:
            right[-1] = high
        filled = np.flatnonzero(counts)
        if filled.size:
            first, last = filled[0], filled[-1]
            left[first] = low if low <= right[first] else left[first]
            right[last] = high if left[last] <= high else right[last]
    return Histogram(
        left=left,
        right=right,
        count=counts,
        min=low,
        max=high,
        total=doubles.get(3, 0.0),
        sum=doubles.get(4, 0.0),
        sum_squares=doubles.get(5, 0.0),
    )
