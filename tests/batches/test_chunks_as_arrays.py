"""The records of a chunk found at once, their checksums by columns, and what they say, against one after the other."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

import numpy as np
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from ms_summary_bridge.batches import chain, checksums
from ms_summary_bridge.batches.chain import find_chain, unaligned
from ms_summary_bridge.batches.checksums import add_columns, header_checksums, mask, unmask
from ms_summary_bridge.batches.scan import Scan, scan
from ms_summary_bridge.batches.shapes import Shapes
from ms_summary_bridge.files.records import encode_record, mask_crc
from ms_summary_bridge.formats.mindspore import MindSporeDecoder
from ms_summary_bridge.formats.wire import length_delimited, varint

# ---------------------------------------------------------------- checksums


@given(st.integers(1, 40), st.integers(1, 9), st.randoms(use_true_random=False))
def test_checksums_by_columns_are_those_of_the_rows(width: int, count: int, random: object) -> None:
    rng = np.random.default_rng(random.getrandbits(32))  # type: ignore[attr-defined]
    columns = tuple(sorted(rng.choice(width, rng.integers(0, width + 1), replace=False).tolist()))
    shared = rng.integers(0, 256, width, np.uint8)
    rows = np.tile(shared, (count, 1))
    for number, column in enumerate(columns):  # some columns are the same in all rows
        rows[:, column] = rng.integers(0, 256, count if number % 2 else 1, np.uint8)
    rest = shared.copy()
    rest[list(columns)] = 0
    padded = np.concatenate([rows, rng.integers(0, 256, (count, 3), np.uint8)], axis=1)
    found = add_columns(crc32c(rest.tobytes()), padded, columns, width)
    assert found.tolist() == [crc32c(row.tobytes()) for row in rows]
    assert len(add_columns(1, padded[:0], columns, width)) == 0


def test_checksums_of_headers_and_how_they_are_stored() -> None:
    lengths = np.array([0, 1, 255, 256, 257, 4660, 65535], np.uint16)
    found = header_checksums((lengths & 0xFF).astype(np.uint8), (lengths >> 8).astype(np.uint8))
    assert found.tolist() == [crc32c(struct.pack("<Q", length)) for length in lengths.tolist()]
    stored = mask(found)
    assert stored.tolist() == [mask_crc(checksum) for checksum in found.tolist()]
    assert unmask(stored).tolist() == found.tolist()


def test_what_a_byte_adds_is_computed_from_the_polynomial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksums, "_tables", [checksums._first_table()])
    zeros = crc32c(bytes(12))
    for following in (11, 0, 5, 7, 6):  # those in between are made on the way
        found = checksums._table(following)
        row = bytearray(12)
        for value in range(256):
            row[11 - following] = value
            assert found[value] == crc32c(bytes(row)) ^ zeros
    assert len(checksums._tables) == 12


# ---------------------------------------------------------------- the chain of records


def chain_of(data: bytes) -> list[tuple[int, int]]:
    """Returns start and length of each whole record from the beginning on, up to one that is not plain."""
    found = []
    at = 0
    while at + 16 <= len(data):
        length, checksum = struct.unpack_from("<QI", data, at)
        if checksum != mask_crc(crc32c(data[at : at + 8])) or length >= 1 << 16 or at + 16 + length > len(data):
            break
        found.append((at, length))
        at += 16 + length
    return found


def found_in(data: bytes) -> list[tuple[int, int]]:
    starts, lengths = find_chain(data)
    assert starts.dtype == lengths.dtype == np.int64
    return list(zip(starts.tolist(), lengths.tolist(), strict=True))


_PAYLOADS = st.lists(
    st.one_of(
        st.binary(max_size=40),
        st.sampled_from([b"", bytes(30), b"\1" * 255, b"\2" * 256, b"\3" * 700, b"\4" * 65535, b"\5" * 65536]),
        st.lists(st.sampled_from([b"", b"inside", bytes(9)]), max_size=3).map(
            lambda inner: b"".join(map(encode_record, inner))
        ),
    ),
    max_size=9,
)


@given(_PAYLOADS, st.integers(0, 60), st.binary(max_size=3), st.integers(-1, 200))
def test_the_records_of_a_chunk_are_found(payloads: list[bytes], cut: int, behind: bytes, changed: int) -> None:
    data = bytearray(b"".join(map(encode_record, payloads)) + behind)
    if 0 <= changed < len(data):
        data[changed] ^= 1
    whole = bytes(data[: len(data) - cut] if cut < len(data) else data)
    assert found_in(whole) == chain_of(whole)


def test_the_last_record_of_a_chunk_is_found_to_its_last_byte() -> None:
    records = encode_record(b"one") + encode_record(b"") + encode_record(b"three")
    for size in range(len(records) + 1):
        assert found_in(records[:size]) == chain_of(records[:size])
    assert len(found_in(records)) == 3


def test_records_inside_of_records_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode_record(encode_record(b"in") * 2 + b"rest") * 9
    assert found_in(data) == chain_of(data)
    assert len(found_in(data)) == 9
    for jumps in (1, 4, 8, 9):
        monkeypatch.setattr(chain, "_MAX_JUMPS", jumps)
        assert found_in(data) == chain_of(data)[:jumps], "the rest is read by another way"


def test_records_of_nothing_are_found() -> None:
    assert found_in(encode_record(b"")) == [(0, 0)]
    assert found_in(encode_record(b"") * 3) == [(0, 0), (16, 0), (32, 0)]


def test_a_chain_is_as_long_as_it_may_be_while_nothing_is_passed_over() -> None:
    data = encode_record(b"one") * 2500
    assert found_in(data) == chain_of(data)
    assert len(found_in(data)) == 2500


def test_views_of_numbers_at_every_byte() -> None:
    data = bytes(range(1, 8))
    for dtype, size in (("<u2", 2), ("<u4", 4), ("V7", 7), ("<u8", 8)):
        view = unaligned(data, dtype)
        assert view.tobytes() == b"".join(data[at : at + size] for at in range(max(len(data) - size + 1, 0)))


# ---------------------------------------------------------------- what they say


def payload_of(
    step: bytes, values: Sequence[tuple[bytes, float]], wall_time: float = 1.5, behind: bytes = b""
) -> bytes:
    body = b"".join(
        length_delimited(b"\x0a", length_delimited(b"\x0a", tag) + b"\x1d" + struct.pack("<f", value))
        for tag, value in values
    )
    return b"\x09" + struct.pack("<d", wall_time) + b"\x10" + step + length_delimited(b"\x2a", body) + behind


ONE, TWO, LONG = (b"a",), (b"b", b"c"), (b"long tag",)


def known_shapes(*tags: tuple[bytes, ...]) -> Shapes:
    shapes = Shapes(b"\x1d")
    for each in tags:
        payload = payload_of(b"\x01", [(tag, 0.5) for tag in each])
        assert shapes.learn(payload, MindSporeDecoder().decode(payload), None)
    return shapes


def said(found: Scan) -> dict[int, tuple[int, int, float, list[float]]]:
    """Returns shape, step, wall time and values of each record in a group, by its number; all verified."""
    rows: dict[int, tuple[int, int, float, list[float]]] = {}
    for group in found.groups:
        assert group.rows.tolist() == sorted(group.rows.tolist())
        floats = group.floats.view(np.float32).tolist()
        for row, values, checksum in zip(group.rows.tolist(), floats, group.checksums.tolist(), strict=True):
            assert row not in rows
            assert checksum == crc32c(found.payload(row))
            assert found.shapes[row] == group.form.shape.number
            rows[row] = (int(found.shapes[row]), int(found.steps[row]), float(found.wall_times[row]), values)
    assert [row for row, shape in enumerate(found.shapes.tolist()) if shape >= 0] == sorted(rows)
    return rows


@pytest.mark.parametrize("behind", [bytes(8), bytes(64)])
def test_what_scalars_say_is_read_from_arrays(behind: bytes) -> None:
    shapes = known_shapes(ONE, TWO)
    steps = [1, 127, 128, 300, 16_383, 16_384, 1 << 21, 1 << 35, (1 << 62) + 5]
    records, expected = [], {}
    for number, step in enumerate(steps):
        for shape, tags in enumerate((ONE, TWO)):
            values = [number + 0.25 * place for place in range(len(tags))]
            expected[len(records)] = (shape, step, float(number), values)
            data = payload_of(varint(step), list(zip(tags, values, strict=True)), float(number))
            records.append(encode_record(data))
    found = scan(b"".join(records) + behind, shapes)
    assert said(found) == expected
    ends = np.cumsum([len(record) for record in records]).tolist()
    assert [found.end(row) for row in range(len(records))] == ends
    assert [encode_record(found.payload(row)) for row in range(len(records))] == records


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize(
    "odd",
    [
        encode_record(payload_of(b"\x02", [(b"z", 1.0)])),  # of an unknown shape, in the same bytes
        encode_record(payload_of(b"\x02", [(b"a", 1.0)], math.nan)),
        encode_record(payload_of(b"\x02", [(b"a", 1.0)], math.inf)),
        encode_record(payload_of(b"\x00", [(b"a", 1.0)])),
        encode_record(payload_of(b"\x82\x00", [(b"a", 1.0)])),  # a step in more bytes than it needs
        encode_record(payload_of(b"\x02", [(b"a", 1.0)]), 7),  # another checksum
        encode_record(payload_of(b"\x02", [(b"a", 1.0)], behind=b"\x30\x01")),
        encode_record(payload_of(b"\x02", [(b"a", 1.0)]).replace(b"\x1d", b"\x15")),
        encode_record(b"\x0a" + payload_of(b"\x02", [(b"a", 1.0)])[1:]),
        encode_record(b""),
        encode_record(b"q"),
    ],
)
def test_what_is_not_plain_is_left_to_the_general_way(odd: bytes, place: int) -> None:
    usual = [encode_record(payload_of(varint(number), [(b"a", float(number))])) for number in (5, 6)]
    usual.insert(place, odd)
    rows = said(scan(b"".join(usual), known_shapes(ONE)))
    assert sorted(rows) == [number for number in range(3) if number != place]
    assert [row[1] for _, row in sorted(rows.items())] == [5, 6]


def test_shapes_of_one_length_are_told_apart() -> None:
    shapes = known_shapes((b"aa",), (b"ab",), (b"bb",))
    tags = [b"ab", b"aa", b"bb", b"ab", b"cc", b"aa"]
    records = [encode_record(payload_of(varint(9), [(tag, 1.0)])) for tag in tags]
    rows = said(scan(b"".join(records), shapes))
    assert {row: shape for row, (shape, *_) in rows.items()} == {0: 1, 1: 0, 2: 2, 3: 1, 5: 0}


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_last_words_of_a_chunk_are_not_read_behind_its_end(count: int) -> None:
    """A payload is read in words of 8 bytes, which may reach behind the chunk; its record then waits."""
    shapes = known_shapes(ONE, LONG)
    for tag in (b"a", b"long tag"):
        record = encode_record(payload_of(b"\x05", [(tag, 1.0)]))
        width = -(-(len(record) - 16) // 8) * 8
        reaches = 12 + width > len(record)
        assert len(said(scan(record * count, shapes))) == count - reaches
        assert len(said(scan(record * count + bytes(4), shapes))) == count


def test_without_shapes_or_records_there_are_no_groups() -> None:
    record = encode_record(payload_of(b"\x05", [(b"a", 1.0)]))
    assert scan(record, Shapes(b"\x1d")).groups == []
    assert scan(b"", known_shapes(ONE)).groups == []
    found = scan(record[:-1], known_shapes(ONE))
    assert (found.groups, len(found.starts)) == ([], 0)
    assert scan(record, Shapes(b"\x1d")).shapes.tolist() == [-1]
