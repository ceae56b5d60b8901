"""Histograms in both formats, field by field: what is read of each, at the edges of each, and what is said of it."""

from __future__ import annotations

import itertools
import math
import struct
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_summary_bridge.errors import InvalidValueError
from ms_summary_bridge.formats import _histogram, wire
from ms_summary_bridge.formats.protos import ms_pb, tb_pb
from ms_summary_bridge.values import Histogram

NAMES = ("nan_count", "pos_inf_count", "neg_inf_count", "max", "min", "sum", "count")
LARGEST = (1 << 63) - 1
small = st.integers(0, 127)
any_count = st.one_of(small, st.integers(0, LARGEST), st.integers(-(1 << 63), -1))
doubles = st.floats(allow_nan=False)


def facts(histogram: Histogram) -> dict[str, Any]:
    """Returns what is known of a histogram, with its arrays as lists."""
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name in histogram.__struct_fields__
        if (value := getattr(histogram, name)) is not None
    }


def mindspore(*rows: tuple[float, float, int], **numbers: float) -> Any:
    message = ms_pb.Summary.Histogram(**numbers)
    for left, width, count in rows:
        message.buckets.add(left=left, width=width, count=count)
    return message


def decode(data: bytes) -> tuple[Histogram, bool]:
    """Decodes a message that stands between others."""
    return _histogram.decode_mindspore_histogram(b"\x80" * 3 + data + b"\x80" * 3, 3, 3 + len(data))


def agree(data: bytes, histogram: Histogram) -> None:
    """What was read is what protobuf reads."""
    message = ms_pb.Summary.Histogram.FromString(data)
    got = [getattr(histogram, name) for name in (*NAMES[:-1], "total")]
    assert [each or 0 for each in got] == [getattr(message, name) for name in NAMES]
    assert histogram.left.tolist() == [bucket.left for bucket in message.buckets]
    assert histogram.widths.tolist() == [bucket.width for bucket in message.buckets]
    assert histogram.count.tolist() == [bucket.count for bucket in message.buckets]


@pytest.mark.parametrize("total", [0, 1, 127, 128, LARGEST, -1])
@pytest.mark.parametrize("others", [(0, 0, 0), (127, 0, 0), (0, 127, 0), (0, 0, 127), (127, 127, 127)])
def test_statistics_as_mindspore_lays_them_are_read_at_once(
    total: int, others: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    nan, positive, negative = others
    message = mindspore(
        *[(0.0, 1.0, 5), (1.0, 2.0, 300)],
        nan_count=nan,
        pos_inf_count=positive,
        neg_inf_count=negative,
        max=2.5,
        min=-1.5,
        sum=7.25,
        count=total,
    )
    data = message.SerializeToString()
    monkeypatch.setattr(wire, "fields", lambda *_: pytest.fail("taken apart field by field"))
    histogram, is_exact = decode(data)
    assert is_exact
    agree(data, histogram)


@given(st.tuples(any_count, any_count, any_count, doubles, doubles, doubles, any_count), st.booleans())
def test_statistics_are_what_protobuf_reads(numbers: tuple[float, ...], has_buckets: bool) -> None:
    rows = [(0.5, 0.25, 3)] if has_buckets else []
    data = mindspore(*rows, **dict(zip(NAMES, numbers, strict=True))).SerializeToString()
    histogram, is_exact = decode(data)
    assert is_exact
    agree(data, histogram)


_REST = b"\x31" + struct.pack("<d", -1.5) + b"\x39" + struct.pack("<d", 7.25)
_UNKNOWN = b"\x78\x00" * 4  # as long as a double


@pytest.mark.parametrize("high", [0x80, 0xFF])
@pytest.mark.parametrize(
    "head", [b"\x10%c\x18\x20\x20\x18\x29", b"\x10\x00\x18%c\x20\x20\x29", b"\x10\x00\x18\x00\x20%c\x29"]
)
@pytest.mark.parametrize("total", [b"\x05", b"\xff\x7f"])
def test_a_count_of_two_bytes_whose_second_looks_like_a_key(head: bytes, high: int, total: bytes) -> None:
    data = head % high + _UNKNOWN + _REST + b"\x40" + total
    histogram, is_exact = decode(data)
    assert not is_exact, "there is a field that nobody knows"
    agree(data, histogram)


@pytest.mark.parametrize("cut", [2, 4, 6, 15, 24, 33])
@pytest.mark.parametrize("has_buckets", [True, False])
def test_each_field_may_be_missing(cut: int, has_buckets: bool) -> None:
    """Without buckets MindSpore leaves the range and the sum out."""
    fields = [*b"\x10\x18\x20"]
    whole = [bytes([key, number]) for key, number in zip(fields, (1, 2, 3), strict=True)]
    whole += [bytes([key]) + struct.pack("<d", key) for key in b"\x29\x31\x39"] + [b"\x40\x05"]
    rows = [(0.5, 0.25, 3)] if has_buckets else []
    head = mindspore(*rows).SerializeToString()
    for left_out in itertools.chain.from_iterable(itertools.combinations(range(7), size) for size in range(8)):
        data = head + b"".join(part for number, part in enumerate(whole) if number not in left_out)
        histogram, is_exact = decode(data)
        agree(data, histogram)
        assert is_exact is (left_out == () or (left_out == (3, 4, 5) and not has_buckets))
    data = head + b"".join(whole)
    data = data[: len(head) + cut] + b"\x78\x01" + data[len(head) + cut :]
    agree(data, decode(data)[0])


@pytest.mark.parametrize("number", range(7))
def test_a_field_that_comes_twice_is_not_encoded_to_an_equal_message(number: int) -> None:
    parts = [b"\x10\x01", b"\x18\x02", b"\x20\x03"]
    parts += [bytes([key]) + struct.pack("<d", key) for key in b"\x29\x31\x39"] + [b"\x40\x05"]
    data = mindspore((0.5, 0.25, 3)).SerializeToString() + b"".join([*parts, parts[number]])
    histogram, is_exact = decode(data)
    assert not is_exact
    agree(data, histogram)


@pytest.mark.parametrize("kept", [kept for size in range(4) for kept in itertools.combinations(range(3), size)])
def test_fields_that_a_bucket_leaves_out_are_0(kept: tuple[int, ...]) -> None:
    fields = [b"\x09" + struct.pack("<d", 1.5), b"\x11" + struct.pack("<d", 2.5), b"\x18\x07"]
    bucket = b"".join(fields[number] for number in kept)
    statistics = mindspore(**dict.fromkeys(NAMES, 1)).SerializeToString()
    data = wire.length_delimited(b"\x0a", bucket) + statistics
    histogram, is_exact = decode(data)
    agree(data, histogram)
    assert is_exact is (len(kept) == 3)


# --- sums without a warning

_MOST = float(np.finfo(np.float64).max)


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("is_swapped", [True, False])
def test_a_sum_beyond_float64_gives_no_warning_wherever_it_stands(place: int, sign: float, is_swapped: bool) -> None:
    """Of the two numbers only the largest has the bits that are looked for."""
    first, second = np.ones(4), np.ones(4)
    first[place], second[place] = sign * _MOST, sign * 5e303
    if is_swapped:
        first, second = second, first
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = _histogram._quietly(np.add, first, second)
    assert got[place] == sign * math.inf
    assert got.tolist().count(2.0) == 3


# --- what MindSpore's message holds


def encoded(**given: Any) -> tuple[Any, str]:
    given = {"left": np.array([0.0, 1.0]), "right": np.array([1.0, 3.0]), "count": np.array([2, 5]), **given}
    data, loss = _histogram.encode_mindspore_histogram(Histogram(**given))
    return ms_pb.Summary.Value.FromString(data).histogram, loss


def test_counts_that_are_no_number_are_0() -> None:
    message, loss = encoded(count=np.array([math.nan, 2.0]))
    assert [bucket.count for bucket in message.buckets] == [0, 2]
    assert loss == "counts that are not whole numbers were rounded"


@pytest.mark.parametrize(
    ("total", "expected", "loss"),
    [
        (None, 7 + 10 + 200 + 3000, ""),
        (4.0, 4, ""),
        (LARGEST, LARGEST, ""),
        (-(1 << 63), -(1 << 63), ""),
        (float(-(1 << 63)), -(1 << 63), ""),
        *((number, 3217, "the number of values is not whole: the counts are added up instead") for number in (
            1 << 63, float(1 << 63), -(1 << 63) - 1, -(1 << 63) * 1.5, 1 << 64, 2.5, math.nan, math.inf, -math.inf,
        )),
    ],
)  # fmt: skip
def test_the_number_of_values_is_an_int64_or_added_up(total: float | None, expected: int, loss: str) -> None:
    message, told = encoded(total=total, nan_count=10, pos_inf_count=200, neg_inf_count=3000)
    assert (message.count, told) == (expected, loss)


@pytest.mark.parametrize(
    ("count", "expected"), [([0, 0], (0.0, 0.0)), ([2, 0], (0.0, 1.0)), ([0, 5], (1.0, 3.0)), ([2, 5], (0.0, 3.0))]
)
@pytest.mark.parametrize("given", [{}, {"min": -9.0}, {"max": 9.0}])
def test_a_range_that_is_not_known_is_that_of_the_buckets_with_values(
    count: list[int], expected: tuple[float, float], given: dict[str, float]
) -> None:
    message, _ = encoded(count=np.array(count), **given)
    assert (message.min, message.max) == expected
    message, _ = encoded(count=np.array(count), min=-9.0, max=9.0)
    assert (message.min, message.max) == (-9.0, 9.0)


# --- what TensorBoard's tensor and the data beside it hold


@pytest.mark.parametrize(
    "known", [known for size in range(5) for known in itertools.combinations(("min", "max", "sum", "total"), size)]
)
@pytest.mark.parametrize("counts", [(0, 0, 0), (1, 0, 0), (0, 300, 0), (0, 0, 2), (1, 300, 2)])
def test_extras_hold_what_is_known_and_no_more(known: tuple[str, ...], counts: tuple[int, int, int]) -> None:
    numbers = {"min": -1.5, "max": 2.5, "sum": 7.25, "total": 12}
    given = {name: numbers[name] for name in known}
    given |= dict(zip(("nan_count", "pos_inf_count", "neg_inf_count"), counts, strict=True))
    histogram = Histogram(left=np.array([0.0]), right=np.array([1.0]), count=np.array([5]), **given)  # type: ignore[arg-type]
    extras = _histogram.encode_histogram_extras(histogram)
    message = tb_pb.HistogramExtras.FromString(extras)
    assert {field.name: value for field, value in message.ListFields()} == {
        "count" if name == "total" else name: value for name, value in given.items() if value
    }
    found = _histogram.decode_tensorboard_histogram(_histogram.encode_tensorboard_histogram(histogram), extras)
    assert facts(found) == facts(histogram)


def test_widths_are_those_of_the_extras_if_there_are_as_many_as_buckets() -> None:
    rows = np.array([[0.0, 1.0, 5.0], [1.0, 3.0, 7.0]])
    widths = np.array([0.5, 0.25, 0.125])
    for number in range(4):
        extras = wire.length_delimited(b"\x42", widths[:number].tobytes())
        found = _histogram.decode_tensorboard_histogram(rows, extras)
        assert (found.width is None) is (number != 2)
        assert number != 2 or found.widths.tolist() == [0.5, 0.25]
    found = _histogram.decode_tensorboard_histogram(rows, wire.length_delimited(b"\x4a", widths[:2].tobytes()))
    assert found.width is None, "another field of that length"


@pytest.mark.parametrize(
    ("tensor", "told"),
    [
        ([b"x"], "strings"),
        (np.zeros(3), "(3,) of float64"),
        (np.zeros((2, 2), np.int8), "(2, 2) of int8"),
        (np.zeros((2, 3, 1)), "(2, 3, 1) of float64"),
        (np.zeros((2, 3), np.complex64), "(2, 3) of complex64"),
    ],
)
def test_a_tensor_of_another_shape_is_told(tensor: Any, told: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        _histogram.decode_tensorboard_histogram(tensor, None)
    assert str(caught.value) == f"a histogram is a tensor of shape [k, 3], got {told}"


# --- TensorBoard's older message


def legacy(limits: list[float], counts: list[float], **numbers: float) -> dict[str, Any]:
    data = tb_pb.HistogramProto(bucket_limit=limits, bucket=counts, **numbers).SerializeToString()
    return facts(_histogram.decode_legacy_histogram(b"\x80" + data + b"\x80", 1, 1 + len(data)))


@pytest.mark.parametrize(
    ("low", "high", "counts", "left", "right"),
    [
        # limits 1, 2, 4
        (0.5, 3.0, [5, 1, 2], [0.5, 1.0, 2.0], [1.0, 2.0, 3.0]),
        (0.5, 3.0, [0, 1, 0], [0.5, 0.5, 2.0], [1.0, 3.0, 3.0]),
        (0.5, 1.75, [5, 1, 0], [0.5, 1.0, 2.0], [1.0, 1.75, 4.0]),
        (1.5, 1.75, [0, 1, 0], [1.0, 1.5, 2.0], [1.0, 1.75, 4.0]),
        (1.5, 2.0, [0, 1, 0], [1.0, 1.5, 2.0], [1.0, 2.0, 2.0]),
        (1.0, 2.0, [1, 0, 0], [1.0, 1.0, 2.0], [2.0, 2.0, 2.0]),
        (1.5, 3.0, [0, 0, 0], [1.0, 1.0, 2.0], [1.0, 2.0, 3.0]),
        (9.0, 0.5, [5, 0, 2], [1.0, 1.0, 2.0], [1.0, 2.0, 4.0]),
        (9.0, 1.0, [0, 5, 0], [1.0, 1.0, 2.0], [1.0, 1.0, 4.0]),
        (2.0, 9.0, [0, 5, 0], [1.0, 2.0, 2.0], [1.0, 9.0, 9.0]),
    ],
)
def test_the_lowest_and_the_highest_bucket_with_values_end_at_the_range(
    low: float, high: float, counts: list[float], left: list[float], right: list[float]
) -> None:
    """Unless that would turn a bucket around; the outermost of all do as well."""
    found = legacy([1.0, 2.0, 4.0], counts, min=low, max=high)
    assert (found["left"], found["right"], found["count"]) == (left, right, counts)
    assert (found["min"], found["max"]) == (low, high)


@pytest.mark.parametrize(
    ("count", "low", "high", "left", "right"),
    [(0.0, 2.0, 3.0, 1.0, 3.0), (5.0, 2.0, 3.0, 2.0, 3.0)]
    + [(count, *row) for count in (0.0, 5.0) for row in [(0.5, 0.75, 0.5, 0.75), (0.5, 0.25, 0.5, 1.0)]],
)
def test_a_single_bucket(count: float, low: float, high: float, left: float, right: float) -> None:
    found = legacy([1.0], [count], min=low, max=high)
    assert (found["left"], found["right"]) == ([left], [right])


def test_the_sign_of_an_edge_at_0_is_that_of_the_range() -> None:
    rest = tb_pb.HistogramProto(bucket_limit=[0.0, 1.0], bucket=[0.0, 3.0], max=1.0).SerializeToString()
    for low in (0.0, -0.0):
        data = b"\x09" + struct.pack("<d", low) + rest  # older protobuf leaves -0.0 out
        found = facts(_histogram.decode_legacy_histogram(data, 0, len(data)))
        assert np.signbit(found["left"]).tolist() == [math.copysign(1.0, low) < 0] * 2


def test_numbers_that_are_left_out_are_0_and_an_empty_histogram_is_one() -> None:
    nothing = {"min": 0.0, "max": 0.0, "total": 0.0, "sum": 0.0, "sum_squares": 0.0}
    nothing |= dict.fromkeys(("nan_count", "pos_inf_count", "neg_inf_count"), 0)
    assert legacy([], []) == {"left": [], "right": [], "count": [], **nothing}
    assert legacy([], [], min=1, max=2, num=3, sum=4, sum_squares=5) == {
        "left": [],
        "right": [],
        "count": [],
        **nothing,
        "min": 1.0,
        "max": 2.0,
        "total": 3.0,
        "sum": 4.0,
        "sum_squares": 5.0,
    }


def test_fields_of_another_wire_type_are_passed_over() -> None:
    good = tb_pb.HistogramProto(bucket_limit=[1.0], bucket=[2.0], min=0.5, max=0.75).SerializeToString()
    odd = b"".join(bytes([number << 3 | wire.VARINT, 1]) for number in range(1, 8))
    odd += wire.length_delimited(b"\x0a", bytes(8)) + b"\x41" + bytes(8)
    data = good + odd
    found = _histogram.decode_legacy_histogram(data, 0, len(data))
    assert facts(found) == facts(_histogram.decode_legacy_histogram(good, 0, len(good)))


@pytest.mark.parametrize(
    ("limits", "counts", "told"), [([1.0], [], "1 edge and 0 counts"), ([1.0, 2.0], [3.0], "2 edges and 1 count")]
)
def test_edges_and_counts_of_another_number_are_told(limits: list[float], counts: list[float], told: str) -> None:
    with pytest.raises(InvalidValueError, match=f"a histogram has {told}"):
        legacy(limits, counts)
