"""Histograms read all at once are what they are field by field, and fingerprints made late find the same repeats."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_summary_bridge.convert.series import SeriesTable
from ms_summary_bridge.errors import EventDecodeError
from ms_summary_bridge.events import Event, Summary, TaggedValue
from ms_summary_bridge.formats import _bucket_table, _histogram, wire
from ms_summary_bridge.formats.protos import ms_pb
from ms_summary_bridge.values import Histogram

Decoded = tuple[tuple[bytes, ...], bool] | str

doubles = st.integers(0, (1 << 64) - 1).map(lambda bits: struct.unpack("<d", struct.pack("<Q", bits))[0])
counts = st.one_of(st.integers(0, 300), st.integers(-(1 << 63), (1 << 63) - 1), st.sampled_from([127, 128, 1 << 56]))
buckets = st.lists(st.tuples(st.one_of(doubles, st.floats()), doubles, counts), max_size=90)


def decode(data: bytes, start: int = 0) -> Decoded:
    """Decodes a message; an error is its text."""
    try:
        histogram, is_exact = _histogram.decode_mindspore_histogram(data, start, len(data))
    except EventDecodeError as error:
        return str(error)
    assert histogram.width is not None
    arrays = (histogram.left, histogram.right, histogram.width, histogram.count)
    assert [array.dtype for array in arrays] == [np.float64] * 3 + [np.int64]
    return (*(array.tobytes() for array in arrays), repr(histogram.total).encode()), is_exact


def decode_field_by_field(data: bytes, start: int = 0) -> Decoded:
    """The same without reading buckets at once."""
    nothing = np.empty(0), np.empty(0), np.empty(0, np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_bucket_table, "read_buckets", lambda data, start, end: (*nothing, start))
        return decode(data, start)


def encode(rows: list[tuple[float, float, int]], *, has_rest: bool = True) -> bytes:
    message = ms_pb.Summary.Histogram()
    for left, width, count in rows:
        message.buckets.add(left=left, width=width, count=count)
    if has_rest:
        message.nan_count = message.pos_inf_count = message.neg_inf_count = 0
        message.max, message.min, message.sum, message.count = 1.0, -1.0, 0.5, 300
    return bytes(message.SerializeToString())


@given(buckets, st.booleans(), st.binary(max_size=40))
def test_buckets_at_once_equal_field_by_field(
    rows: list[tuple[float, float, int]], has_rest: bool, before: bytes
) -> None:
    data = before + encode(rows, has_rest=has_rest)
    assert decode(data, len(before)) == decode_field_by_field(data, len(before))


@given(st.lists(st.tuples(st.floats(), st.floats(), st.integers(0, 1 << 20)), min_size=1, max_size=5), st.data())
def test_changed_bytes_give_the_same_either_way(rows: list[tuple[float, float, int]], data: st.DataObject) -> None:
    message = bytearray(encode(rows))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(message) - 1))
        message[place] = data.draw(st.sampled_from([0x0A, 0x09, 0x11, 0x18, 0x00, 0x14, 0x80, 0xFF]))
    cut = data.draw(st.integers(0, len(message)))
    for part in (bytes(message), bytes(message[:cut])):
        assert decode(part) == decode_field_by_field(part)


def test_keys_inside_a_number_are_no_bucket() -> None:
    inside = struct.unpack("<d", bytes([0, 0x0A, 0x16, 0x09, 0, 0, 0, 0]))[0]
    data = encode([(inside, 1.0, 5), (2.0, inside, 200), (inside, inside, 70_000)])
    assert decode(data) == decode_field_by_field(data)


def test_a_usual_histogram_is_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode([(float(n), 1.0, 10**n) for n in range(9)])
    expected = decode_field_by_field(data)
    monkeypatch.setattr(_histogram, "_decode_bucket", _refuse)
    assert decode(data) == expected


@pytest.mark.parametrize("rest", [0, 1, 30])
def test_a_bucket_may_be_all_that_there_is_if_it_is_as_long_as_any(rest: int) -> None:
    data = encode([(0.5, 0.25, (1 << 56) - 1)], has_rest=False)
    left, width, count, position = _bucket_table.read_buckets(data + bytes(rest), 0, len(data) + rest)
    assert (left.tolist(), width.tolist(), count.tolist(), position) == ([0.5], [0.25], [(1 << 56) - 1], 29)


def _refuse(*_: object) -> None:
    raise AssertionError("a bucket was taken apart by itself")


@pytest.mark.parametrize(
    ("first", "second"),
    [(1e308, 1e308), (-1e308, -1e308), (np.inf, -np.inf), (np.nan, 1.0), (1.0, 2.0), (5e-324, -5e-324)],
)
@pytest.mark.parametrize("operation", [np.add, np.subtract])
def test_quiet_operations_give_no_warning(operation: np.ufunc, first: float, second: float) -> None:
    got = _histogram._quietly(operation, np.array([0.0, first]), np.array([0.0, second]))
    with np.errstate(all="ignore"):
        assert got.tobytes() == operation(np.array([0.0, first]), np.array([0.0, second])).tobytes()


def make_histogram(count: int) -> Histogram:
    return Histogram(left=np.array([0.0]), right=np.array([1.0]), count=np.array([count]), min=0.0, max=1.0)


def observe_all(table: SeriesTable, points: list[tuple[int, int]], renew: Callable[[SeriesTable], SeriesTable]) -> int:
    """Gives the table a histogram of `count` at `step` for each point; returns how many were passed over as repeats."""
    repeated = 0
    for step, count in points:
        summary = Summary((TaggedValue("h", make_histogram(count)),))
        repeated += table.observe(Event(1.0, step, summary), summary) is None
        table = renew(table)
    return repeated


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), max_size=12))
def test_fingerprints_made_late_find_the_same_repeats(points: list[tuple[int, int]]) -> None:
    expected = sum(now == before for before, now in zip([(-1, -1), *points], points, strict=False))
    assert observe_all(SeriesTable(), points, lambda table: table) == expected
    # `rows` makes up for all fingerprints, as at the end of a conversion that a later one goes on from.
    assert observe_all(SeriesTable(), points, lambda table: SeriesTable(table.rows)) == expected


def parse(message: bytes) -> object:
    parsed = ms_pb.Summary.Histogram()
    parsed.MergeFromString(message)
    return parsed


PARTS = [  # of a message of MindSpore's, in the order in which it writes them
    wire.length_delimited(b"\x0a", wire.fixed64(b"\x09", 0.5) + wire.fixed64(b"\x11", 0.25) + b"\x18\x03"),
    b"\x10\x04",
    b"\x18\x05",
    b"\x20\x06",
    wire.fixed64(b"\x29", 7.5),
    wire.fixed64(b"\x31", -8.5),
    wire.fixed64(b"\x39", 9.5),
    b"\x40\x12",
]
ODD = [
    wire.length_delimited(b"\x0a", wire.fixed64(b"\x09", 0.5) + b"\x18\x03"),
    wire.length_delimited(b"\x0a", b"\x18\x03" + wire.fixed64(b"\x09", 1.5) + wire.fixed64(b"\x11", 0.25)),
    b"\x10\x07",
    b"\x48\x01",
]


@pytest.mark.parametrize("has_buckets", [True, False])
def test_exact_is_what_is_encoded_to_an_equal_message(has_buckets: bool) -> None:
    """Each message of some of the parts, with none, one or two of them changed in its place, doubled or added."""
    plain = PARTS if has_buckets else PARTS[1:]
    exact = 0
    for kept in itertools.product((True, False), repeat=len(plain)):
        chosen = [part for part, is_kept in zip(plain, kept, strict=True) if is_kept]
        for extra in ([], *([part] for part in (*ODD, *chosen[:1], *chosen[-1:]))):
            for parts in (chosen + extra, extra + chosen, chosen[::-1] + extra):
                message = b"".join(parts)
                histogram, is_exact = _histogram.decode_mindspore_histogram(message, 0, len(message))
                encoded, loss = _histogram.encode_mindspore_histogram(histogram)
                _, size = wire.read_varint(encoded, 1, len(encoded))
                if is_exact:
                    assert (parse(encoded[size:]), loss) == (parse(message), "")
                    exact += 1
                wanted: Any = parse(message)
                numbers = histogram.nan_count, histogram.pos_inf_count, histogram.neg_inf_count
                assert numbers == (wanted.nan_count, wanted.pos_inf_count, wanted.neg_inf_count)
                given = [wanted.HasField(name) for name in ("max", "min", "sum", "count")]
                found = [histogram.max, histogram.min, histogram.sum, histogram.total]
                assert [value is not None for value in found] == given
                assert [value or 0 for value in found] == [wanted.max, wanted.min, wanted.sum, wanted.count]
                assert histogram.left.tolist() == [bucket.left for bucket in wanted.buckets]
    for parts in (plain, [*plain[1:], plain[0]], plain[::-1]):  # a plain one is exact, in whatever order
        assert _histogram.decode_mindspore_histogram(b"".join(parts), 0, sum(map(len, parts)))[1]
    assert exact >= 6
    without = [part for part in PARTS[1:] if part[:1] not in b"\x29\x31\x39"]
    assert _histogram.decode_mindspore_histogram(b"".join(without), 0, sum(map(len, without)))[1]
    odd = b"".join([PARTS[0], *without])
    assert not _histogram.decode_mindspore_histogram(odd, 0, len(odd))[1]
