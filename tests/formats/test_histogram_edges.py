"""Histograms of both formats at their edges: fields that are missing or come twice, counts that are not whole."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from ms_summary_bridge.errors import BridgeError, InvalidValueError
from ms_summary_bridge.formats import _histogram, wire
from ms_summary_bridge.formats.protos import ms_pb
from ms_summary_bridge.values import Histogram

REST = struct.Struct("<BBBBBBBdBdBd")


def statistics(nan: int = 0, positive: int = 0, negative: int = 0, total: bytes = b"\x07") -> bytes:
    """Returns fields 2 to 8 as MindSpore lays them, each count in one byte."""
    return REST.pack(0x10, nan, 0x18, positive, 0x20, negative, 0x29, 3.0, 0x31, -1.0, 0x39, 5.0) + b"\x40" + total


def decode(data: bytes, before: bytes = b"") -> tuple[Histogram, bool]:
    return _histogram.decode_mindspore_histogram(before + data, len(before), len(before + data))


def said_of(data: bytes) -> str:
    """Returns what is decoded, or the error, as a text."""
    try:
        histogram, is_exact = decode(data)
    except BridgeError as error:
        return str(error)
    numbers = (histogram.nan_count, histogram.pos_inf_count, histogram.neg_inf_count, histogram.total)
    return repr((numbers, histogram.max, histogram.min, histogram.sum, is_exact))


def make(counts: list[float], **given: Any) -> Histogram:
    size = len(counts)
    return Histogram(left=np.arange(size) * 1.0, right=np.arange(size) + 1.0, count=np.array(counts), **given)


def encoded(histogram: Histogram) -> tuple[Any, str]:
    """Returns MindSpore's message of a histogram, and what is lost."""
    field, loss = _histogram.encode_mindspore_histogram(histogram)
    ((key, start, end),) = wire.fields(field, 0, len(field))
    assert key == 0x4A
    message = ms_pb.Summary.Histogram()
    message.ParseFromString(field[start:end])
    return message, loss


# ---------------------------------------------------------------- MindSpore's


@pytest.mark.parametrize("before", [b"", b"\x40" * 70])
@pytest.mark.parametrize("counts", [(0, 0, 0), (1, 2, 3), (127, 127, 127)])
@pytest.mark.parametrize("total", [b"\x00", b"\x7f", b"\x80\x01"])
def test_usual_statistics_are_read_at_once(
    monkeypatch: pytest.MonkeyPatch, before: bytes, counts: tuple[int, int, int], total: bytes
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the fields were taken apart one by one")

    monkeypatch.setattr(wire, "fields", refuse)
    histogram, is_exact = decode(statistics(*counts, total), before)
    assert (histogram.nan_count, histogram.pos_inf_count, histogram.neg_inf_count) == counts
    assert (histogram.max, histogram.min, histogram.sum) == (3.0, -1.0, 5.0)
    assert histogram.total == {b"\x00": 0, b"\x7f": 127, b"\x80\x01": 128}[total]
    assert is_exact


def test_unusual_statistics_are_the_same_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = statistics()
    changed = [usual[:size] for size in range(len(usual))]
    for place in (1, 3, 5):
        changed += [usual[:place] + bytes([byte]) + usual[place + 1 :] for byte in (127, 128, 129, 144, 255)]
    changed += [usual + b"\x40\x05", usual + b"\x10\x05", usual + b"\x55", statistics(total=b"\x80" * 9 + b"\x01")]
    found = [said_of(data) for data in changed]
    monkeypatch.setattr(_histogram, "_read_statistics", lambda data, start, end: None)
    assert [said_of(data) for data in changed] == found


def test_a_field_that_comes_twice_would_not_be_encoded_again() -> None:
    assert decode(statistics())[1]
    for field in (b"\x10\x02", b"\x40\x02", wire.fixed64(b"\x31", 2.0)):
        assert not decode(statistics() + field)[1]
        assert not decode(field + statistics())[1]


def test_what_a_bucket_leaves_out_is_zero() -> None:
    bare, counted = wire.length_delimited(b"\x0a", b""), wire.length_delimited(b"\x0a", b"\x18\x05")
    histogram, is_exact = decode(bare + counted + statistics())
    assert (histogram.left.tolist(), histogram.widths.tolist(), histogram.count.tolist()) == ([0, 0], [0, 0], [0, 5])
    assert not is_exact


def test_counts_that_are_not_whole_are_rounded_and_nan_is_none() -> None:
    message, loss = encoded(make([1.5, np.nan, 3.0, np.inf, -np.inf], total=4, min=0.0, max=1.0, sum=2.0))
    assert [bucket.count for bucket in message.buckets] == [2, 0, 3, (1 << 63) - 1024, 1024 - (1 << 63)]
    assert loss == "counts that are not whole numbers were rounded"


def test_a_total_that_is_not_known_is_added_up() -> None:
    message, loss = encoded(make([1, 2], nan_count=10, pos_inf_count=200, neg_inf_count=3000))
    assert (message.count, loss) == (3213, "")


@pytest.mark.parametrize(
    ("total", "is_whole"),
    [
        (-(1 << 63), True),
        (-(1 << 63) - 1, False),
        (-float(1 << 63) - 2048, False),
        ((1 << 63) - 1, True),
        (1 << 63, False),
        (float(1 << 63), False),
        (5.0, True),
        (5.5, False),
        (np.nan, False),
        (np.inf, False),
        (0, True),
    ],
)
def test_a_total_is_whole_and_of_64_bits(total: float, is_whole: bool) -> None:
    message, loss = encoded(make([1, 2], total=total))
    assert message.count == (total if is_whole else 3)
    assert loss == ("" if is_whole else "the number of values is not whole: the counts are added up instead")
    extras = _histogram.encode_histogram_extras(make([1, 2], total=total))
    tensor = _histogram.encode_tensorboard_histogram(make([1, 2]))
    assert _histogram.decode_tensorboard_histogram(tensor, extras).total == (total if is_whole else None)


def test_a_range_that_is_not_known_is_that_of_the_buckets_with_values() -> None:
    for counts, expected in (([0, 1, 2, 0], (1.0, 3.0)), ([0, 0], (0.0, 0.0)), ([5], (0.0, 1.0))):
        for given in ({}, {"min": -7.0}, {"max": 9.0}):
            message, _ = encoded(make(counts, **given))
            assert (message.min, message.max) == expected
    message, _ = encoded(make([0, 1, 2, 0], min=-7.0, max=9.0))
    assert (message.min, message.max, message.sum) == (-7.0, 9.0, 1.5 + 2 * 2.5)


# ---------------------------------------------------------------- TensorBoard's


@pytest.mark.parametrize("low", [None, -1.0])
@pytest.mark.parametrize("high", [None, 2.0])
@pytest.mark.parametrize("sum_", [None, 3.0])
def test_each_statistic_is_kept_without_the_others(low: float | None, high: float | None, sum_: float | None) -> None:
    given = make([1, 2], min=low, max=high, sum=sum_, nan_count=1, neg_inf_count=300)
    extras = _histogram.encode_histogram_extras(given)
    assert extras[: 9 if low is not None else 0] == (b"\x09" + struct.pack("<d", low) if low is not None else b"")
    found = _histogram.decode_tensorboard_histogram(_histogram.encode_tensorboard_histogram(given), extras)
    assert (found.min, found.max, found.sum) == (low, high, sum_)
    assert (found.nan_count, found.pos_inf_count, found.neg_inf_count) == (1, 0, 300)


def test_widths_are_taken_from_their_own_field_and_of_their_own_size() -> None:
    tensor = _histogram.encode_tensorboard_histogram(make([1, 2]))
    widths = np.array([5.0, 6.0]).tobytes()
    for key, data, expected in ((b"\x42", widths, [5, 6]), (b"\x4a", widths, [1, 1]), (b"\x42", widths[:8], [1, 1])):
        found = _histogram.decode_tensorboard_histogram(tensor, wire.length_delimited(key, data))
        assert found.widths.tolist() == expected


@pytest.mark.parametrize(
    ("tensor", "said"),
    [
        ([b"a"], "strings"),
        (np.zeros((2, 2)), r"\(2, 2\) of float64"),
        (np.zeros(3, np.int8), r"\(3,\) of int8"),
        (np.zeros((1, 3), np.complex64), r"\(1, 3\) of complex64"),
    ],
)
def test_a_tensor_of_another_shape_is_refused(tensor: Any, said: str) -> None:
    with pytest.raises(InvalidValueError, match=rf"a histogram is a tensor of shape \[k, 3\], got {said}"):
        _histogram.decode_tensorboard_histogram(tensor, None)


def legacy(limits: list[float], counts: list[float], **doubles: float) -> Histogram:
    data = b"".join(wire.fixed64(bytes([8 * int(name[1]) + 1]), value) for name, value in doubles.items())
    data += wire.length_delimited(b"\x32", np.array(limits).tobytes())
    data += wire.length_delimited(b"\x3a", np.array(counts, np.float64).tobytes())
    return _histogram.decode_legacy_histogram(data, 0, len(data))


@pytest.mark.parametrize(
    ("low", "high", "counts", "left", "right"),
    [
        (0.5, 2.5, [1, 1, 1], [0.5, 1, 2], [1, 2, 2.5]),
        (-5.0, 9.0, [0, 1, 0], [-5, -5, 2], [1, 9, 9]),  # as TensorBoard has it: what is filled reaches to the range
        (1.5, 1.75, [0, 1, 0], [1, 1.5, 2], [1, 1.75, 3]),
        (1.0, 2.0, [0, 1, 0], [1, 1, 2], [1, 2, 2]),
        (0.0, 1.0, [1, 1, 0], [0, 1, 2], [1, 1, 3]),
        (7.0, -7.0, [1, 1, 1], [1, 1, 2], [1, 2, 3]),
        (2.0, 2.5, [0, 0, 1], [1, 1, 2], [1, 2, 2.5]),
        (0.25, 0.5, [1, 0, 0], [0.25, 1, 2], [0.5, 2, 3]),
    ],
)
def test_where_the_buckets_of_a_legacy_histogram_begin_and_end(
    low: float, high: float, counts: list[float], left: list[float], right: list[float]
) -> None:
    found = legacy([1.0, 2.0, 3.0], counts, _1=low, _2=high)
    assert (found.left.tolist(), found.right.tolist()) == (left, right)


def test_what_a_legacy_histogram_leaves_out_is_zero() -> None:
    found = legacy([1.0, 2.0], [1, 1], _1=-1.0)
    numbers = (found.min, found.max, found.total, found.sum, found.sum_squares)
    assert numbers == (-1.0, 0.0, 0.0, 0.0, 0.0)
    data = b"\x10\x07" + wire.fixed64(b"\x41", 5.0) + wire.fixed64(b"\x09", 3.0)  # a varint, a field that nobody knows
    found = _histogram.decode_legacy_histogram(data, 0, len(data))
    assert (found.min, found.max, len(found.left)) == (3.0, 0.0, 0)


LARGEST = np.finfo(np.float64).max


@pytest.mark.parametrize(
    ("operation", "first", "second"),
    [
        (np.add, LARGEST, 1e300),
        (np.add, 1e300, LARGEST),
        (np.subtract, -LARGEST, 1e300),
        (np.subtract, 1e300, -LARGEST),
    ],
)
@pytest.mark.parametrize("before", [0, 1, 2])
def test_a_result_beyond_float64_gives_no_warning_whichever_of_both_is_large(
    operation: np.ufunc, first: float, second: float, before: int
) -> None:
    arrays = [np.array([1.0] * before + [each]) for each in (first, second)]
    assert np.isinf(_histogram._quietly(operation, *arrays)[-1])
