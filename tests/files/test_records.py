"""Framing: records out of bytes and back, and what is made of bytes that hold no whole record."""

from __future__ import annotations

import random
import struct
import tracemalloc
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_summary_bridge.errors import (
    DataChecksumError,
    LengthChecksumError,
    RecordError,
    RecordTooLargeError,
    TruncatedRecordError,
)
from ms_summary_bridge.files import records
from ms_summary_bridge.files.record_decoder import RecordDecoder
from ms_summary_bridge.files.records import (
    FOOTER_BYTES,
    HEADER_BYTES,
    MAX_RECORD_BYTES,
    Damage,
    Incomplete,
    Padding,
    Piece,
    Record,
    decode_record,
    encode_record,
    mask_crc,
    masked_crc,
)
from scripted import build_record, flip_bit, masked

FRAME = HEADER_BYTES + FOOTER_BYTES
PAYLOADS = [b"first", b"", b"\0" * 20, b"\xff" * 7, bytes(range(40)), b"last"]
FILE = b"".join(map(build_record, PAYLOADS))


def decode_all(data: bytes, chunk: int | None = None, *, offset: int = 0, limit: int = MAX_RECORD_BYTES) -> list[Piece]:
    """Returns every piece of a file that is read in chunks of one size, or whole."""
    decoder = RecordDecoder(offset, max_record_bytes=limit)
    pieces: list[Piece] = []
    for start in range(0, len(data), chunk or max(len(data), 1)):
        pieces += decoder.feed(data[start : start + (chunk or len(data))])
    return pieces + decoder.finish()


def payloads_of(pieces: list[Piece]) -> list[bytes]:
    return [piece.payload for piece in pieces if isinstance(piece, Record)]


def span(piece: Piece) -> tuple[int, int]:
    """The bytes a piece stands for."""
    if isinstance(piece, Record):
        return piece.offset, piece.end
    if isinstance(piece, Incomplete):
        return piece.offset, piece.offset + piece.available
    return piece.start, piece.end


def record_spans(data: bytes) -> list[tuple[int, int]]:
    return [span(piece) for piece in decode_all(data) if isinstance(piece, Record)]


# ---------------------------------------------------------------- checksums and whole records

# RFC 3720, appendix B.4 ("CRC Examples"), read as the numbers whose little-endian bytes stand there.
RFC_3720 = [
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(range(31, -1, -1)), 0x113FDB5C),
    (
        bytes.fromhex("01c00000000000000000000000000000140000000000040000000014000000182800000000000000")
        + bytes.fromhex("0200000000000000"),
        0xD9963A56,
    ),
]


def unmasked(crc: int) -> int:
    rotated = (crc - 0xA282EAD8) & 0xFFFFFFFF
    return ((rotated >> 17) | (rotated << 15)) & 0xFFFFFFFF


@pytest.mark.parametrize(("data", "crc"), RFC_3720)
def test_the_checksum_is_the_crc32c_of_rfc_3720_masked(data: bytes, crc: int) -> None:
    assert unmasked(masked_crc(data)) == crc


class Example(NamedTuple):
    payload: bytes
    record: bytes


# The first records of the files in tests/data, which tensorboardX 2.6.5 and MindSpore 2.10 wrote, and the empty record.
TENSORBOARDX = bytes.fromhex("1800000000000000a37f4b2209397b3eba0cc3da411a0d627261696e2e4576656e743a32c1df1c3c")
MINDSPORE = bytes.fromhex("1c00000000000000c8c1951d0953c563cd0ac3da411a114d696e6453706f72652e4576656e743a31ea3f5b4f")
EXAMPLES = [
    Example(TENSORBOARDX[12:-4], TENSORBOARDX),
    Example(MINDSPORE[12:-4], MINDSPORE),
    Example(b"", bytes.fromhex("000000000000000029039807d8ea82a2")),
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_payload_and_its_record_are_made_of_each_other(example: Example) -> None:
    record = example.record
    assert encode_record(example.payload) == record
    for trailing in (b"", b"\0", b"anything behind it", record):
        assert decode_record(record + trailing, offset=7) == Record(7, example.payload)
    for chunk in (None, 1, 2, 13):
        assert decode_all(record, chunk) == [Record(0, example.payload)]


@pytest.mark.parametrize("payload", PAYLOADS)
def test_encoding_is_what_the_builder_of_the_tests_frames(payload: bytes) -> None:
    assert encode_record(payload) == build_record(payload)


@given(st.binary(max_size=300))
def test_encoding_then_decoding_gives_the_payload(payload: bytes) -> None:
    record = encode_record(payload)
    assert len(record) == len(payload) + FRAME
    assert decode_record(record) == Record(0, payload)
    assert Record(5, payload).end == 5 + len(record)


@pytest.mark.parametrize("chunk", [None, 1, 2, 3, 11, 12, 13, 50])
def test_chunks_of_any_size_give_the_same_records(chunk: int | None) -> None:
    pieces = decode_all(FILE, chunk, offset=1000)
    assert payloads_of(pieces) == PAYLOADS
    assert len(pieces) == len(PAYLOADS)
    assert [span(piece)[0] for piece in pieces] == [1000 + start for start, _ in record_spans(FILE)]


def test_a_record_comes_out_as_soon_as_its_last_byte_is_there() -> None:
    decoder = RecordDecoder()
    assert decoder.wanted == HEADER_BYTES
    for byte in FILE[: FRAME + 4]:
        assert decoder.feed(bytes([byte])) == []
    assert decoder.wanted == FRAME + 5
    assert decoder.feed(FILE[FRAME + 4 : FRAME + 5]) == [Record(0, b"first")]
    assert decoder.offset == FRAME + 5
    assert decoder.feed(b"") == []


def test_an_empty_file_has_no_pieces() -> None:
    assert decode_all(b"") == []
    assert RecordDecoder(12).offset == 12


# ---------------------------------------------------------------- what an error says


def test_bytes_that_end_inside_a_record_are_truncated() -> None:
    record = build_record(b"payload")
    for size in range(len(record)):
        with pytest.raises(TruncatedRecordError, match=rf"f\.x at byte 9: {size} of"):
            decode_record(record[:size], path="f.x", offset=9)


def test_a_changed_length_is_a_length_error_with_both_checksums() -> None:
    record = build_record(b"payload")
    for position in range(HEADER_BYTES):
        with pytest.raises(LengthChecksumError, match=r"want 0x[0-9a-f]{8}, got 0x[0-9a-f]{8}") as caught:
            decode_record(flip_bit(record, position), path="file", offset=40)
        assert (caught.value.path, caught.value.offset, caught.value.exit_code) == ("file", 40, 3)


def test_a_changed_payload_is_a_data_error_with_both_checksums() -> None:
    record = build_record(b"payload")
    for position in range(HEADER_BYTES, len(record)):
        with pytest.raises(DataChecksumError, match=r"want 0x[0-9a-f]{8}, got 0x[0-9a-f]{8}"):
            decode_record(flip_bit(record, position))


@pytest.mark.parametrize("length", [MAX_RECORD_BYTES + 1, 1 << 60, (1 << 64) - 1])
def test_a_length_above_the_limit_is_refused_before_its_bytes_are_looked_for(length: int) -> None:
    with pytest.raises(RecordTooLargeError, match=str(length)) as caught:
        decode_record(build_record(b"", length=length))
    assert isinstance(caught.value, RecordError)


def test_a_payload_above_the_limit_is_not_framed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MAX_RECORD_BYTES", 9001)
    assert len(encode_record(bytes(9001))) == 9001 + FRAME
    with pytest.raises(RecordTooLargeError, match="9002 bytes is above the limit of 9001"):
        encode_record(bytes(9002))


def test_a_checksum_that_is_given_is_taken() -> None:
    made = encode_record(b"payload", 7)
    assert made[:-4] == encode_record(b"payload")[:-4]
    assert int.from_bytes(made[-4:], "little") == mask_crc(7)


def test_an_error_says_where_it_is_and_how_much_is_there() -> None:
    record = build_record(b"payload")
    too_long = build_record(b"", length=MAX_RECORD_BYTES + 1)
    cases = [
        (record[:11], "11 of 12 header bytes"),
        (record[:12], f"12 of {len(record)} bytes"),
        (record[:-1], f"{len(record) - 1} of {len(record)} bytes"),
        (build_record(b"", length=MAX_RECORD_BYTES), f"16 of {MAX_RECORD_BYTES + FRAME} bytes"),
        (too_long, f"a record of {MAX_RECORD_BYTES + 1} bytes is above the limit of {MAX_RECORD_BYTES} bytes"),
        (flip_bit(record, 13), "data checksum"),
        (flip_bit(record, 9), "length checksum"),
    ]
    for data, words in cases:
        with pytest.raises(RecordError, match=words) as caught:
            decode_record(data, path="a.file", offset=5)
        assert (caught.value.path, caught.value.offset) == ("a.file", 5), words
        with pytest.raises(RecordError) as caught:
            decode_record(data)
        assert (caught.value.path, caught.value.offset) == ("", 0), words


def test_the_limit() -> None:
    assert MAX_RECORD_BYTES == 2**30


# ---------------------------------------------------------------- cut files


@pytest.mark.parametrize("chunk", [None, 1, 7])
def test_every_truncation_gives_the_whole_records_and_says_where_the_rest_begins(chunk: int | None) -> None:
    spans = record_spans(FILE)
    for size in range(len(FILE)):
        pieces = decode_all(FILE[:size], chunk)
        whole = [end for _, end in spans if end <= size]
        start = whole[-1] if whole else 0
        assert payloads_of(pieces) == PAYLOADS[: len(whole)]
        rest = pieces[len(whole) :]
        if start == size:
            assert rest == []
        elif not any(FILE[start:size]):
            assert rest == [Padding(start, size)]
        else:
            assert rest == [Incomplete(start, size - start)]


def test_a_cut_record_goes_on_when_the_rest_arrives() -> None:
    for size in range(len(FILE)):
        decoder = RecordDecoder()
        pieces = decoder.feed(FILE[:size])
        pieces += decoder.feed(FILE[size:])
        assert payloads_of(pieces) == PAYLOADS
        assert decoder.finish() == []


def test_a_decoder_begun_at_the_offset_gives_the_records_that_are_left() -> None:
    for data in (FILE, flip_bit(FILE, 3), flip_bit(FILE, 25), FILE[:50] + FILE[55:], bytes(30) + FILE):
        expected = decode_all(data)
        for size in range(len(data) + 1):
            first = RecordDecoder()
            pieces: list[Piece] = list(first.feed(data[:size]))
            second = RecordDecoder(first.offset)
            pieces += second.feed(data[first.offset :])
            assert pieces + second.finish() == expected


# ---------------------------------------------------------------- damage


@pytest.mark.parametrize("chunk", [None, 1, 9])
def test_every_single_flipped_bit_costs_its_own_record_and_no_other(chunk: int | None) -> None:
    spans = record_spans(FILE)
    for position in range(len(FILE)):
        index = next(i for i, (_, end) in enumerate(spans) if position < end)
        for bit in range(8):
            pieces = decode_all(flip_bit(FILE, position, bit), chunk)
            assert payloads_of(pieces) == PAYLOADS[:index] + PAYLOADS[index + 1 :]
            (damage,) = (piece for piece in pieces if not isinstance(piece, Record))
            assert isinstance(damage, Damage)
            assert span(damage) == spans[index]
            kind = "length" if position - spans[index][0] < HEADER_BYTES else "data"
            assert damage.reason.startswith(f"{kind} checksum: want 0x")


def test_whole_records_behind_a_torn_one_come_out() -> None:
    for size in range(1, FRAME + 5):
        torn = build_record(b"first")[:size]
        behind = build_record(b"second") + build_record(b"third")
        for chunk in (None, 1):
            pieces = decode_all(torn + behind, chunk)
            assert payloads_of(pieces) == [b"second", b"third"]
            assert span(pieces[0]) == (0, size)
            assert isinstance(pieces[0], Padding if not any(torn) else Damage)


def test_a_torn_record_whose_length_reaches_far_behind_the_end_does_not_hide_whole_ones() -> None:
    torn = build_record(b"x" * 5000)[:30]
    behind = build_record(b"second") + build_record(b"third")
    for chunk in (None, 1):
        pieces = decode_all(torn + behind, chunk)
        assert payloads_of(pieces) == [b"second", b"third"]
        assert pieces[0] == Damage(0, 30, "the record is not whole, yet others follow it")


def test_a_torn_record_behind_damage_is_only_incomplete() -> None:
    garbage = b"\x11" * 33
    for size in range(HEADER_BYTES, FRAME + 4):
        pieces = decode_all(garbage + build_record(b"tail")[:size])
        assert [type(piece) for piece in pieces] == [Damage, Incomplete]
        assert span(pieces[0]) == (0, 33)
        assert span(pieces[1]) == (33, 33 + size)


def test_giving_up_on_a_cut_record_finds_those_behind_it_and_the_end_as_before() -> None:
    decoder = RecordDecoder()
    decoder.feed(build_record(b"y" * 900)[:40] + build_record(b"found"))
    assert decoder.offset == 0
    assert decoder.wanted == 900 + FRAME
    assert payloads_of(decoder.give_up()) == [b"found"]
    assert decoder.finish() == []
    alone = RecordDecoder()
    alone.feed(build_record(b"y" * 900)[:40])
    assert alone.give_up() == []
    assert alone.finish() == [Incomplete(0, 40)]


def test_giving_up_with_nothing_held_changes_nothing() -> None:
    decoder = RecordDecoder()
    assert decoder.give_up() == []
    assert payloads_of(list(decoder.feed(FILE))) == PAYLOADS
    assert decoder.finish() == []


@pytest.mark.parametrize("chunk", [None, 1, 5])
@pytest.mark.parametrize("zeros", [1, 4, 7, 8, 12, 15, 16, 17, 4096])
def test_zeros_are_padding_between_records_and_behind_them(zeros: int, chunk: int | None) -> None:
    pad = bytes(zeros)
    one, two = build_record(b"one"), build_record(b"two")
    for data, index in ((pad + one, 0), (one + pad + two, 1), (one + two + pad, 2)):
        pieces = decode_all(data, chunk)
        assert payloads_of(pieces) == [b"one", b"two"][: len(pieces) - 1]
        piece = pieces[index]
        assert span(piece)[1] - span(piece)[0] == zeros
        assert isinstance(piece, Padding)


def test_zeros_in_front_of_an_empty_record_end_where_its_length_begins() -> None:
    pieces = decode_all(bytes(21) + build_record(b"") + build_record(b"x"))
    assert pieces == [Padding(0, 21), Record(21, b""), Record(37, b"x")]


@pytest.mark.parametrize("length", [1 << 29, MAX_RECORD_BYTES, MAX_RECORD_BYTES + 1, 1 << 60, (1 << 64) - 1])
def test_a_lying_length_with_a_right_checksum_allocates_nothing(length: int) -> None:
    data = build_record(b"x" * 40, length=length) + build_record(b"behind it")
    tracemalloc.start()
    try:
        pieces = decode_all(data, 16)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert payloads_of(pieces) == [b"behind it"]
    assert span(pieces[0]) == (0, len(data) - FRAME - 9)
    assert peak < 100_000


def test_a_length_above_the_limit_of_the_decoder_is_damage() -> None:
    data = build_record(b"a" * 10) + build_record(b"b" * 11) + build_record(b"c" * 10)
    for chunk in (None, 1):
        for _ in range(2):  # the second time the header is known
            pieces = decode_all(data, chunk, limit=10)
            assert payloads_of(pieces) == [b"a" * 10, b"c" * 10]
            assert pieces[1] == Damage(26, 53, "a record of 11 bytes is above the limit of 10 bytes")


def test_the_limit_of_a_decoder_cannot_be_raised_above_what_a_record_may_have() -> None:
    (piece,) = decode_all(build_record(b"", length=1 << 31), limit=1 << 62)
    assert isinstance(piece, Damage)
    assert "above the limit of 1073741824" in piece.reason


def test_records_of_another_program_without_checksums_are_damage_and_not_shown() -> None:
    data = b"".join(struct.pack("<QI", 4, 0) + b"data" + bytes(4) for _ in range(3))
    (piece,) = decode_all(data)
    assert isinstance(piece, Damage)
    assert span(piece) == (0, len(data))


# ---------------------------------------------------------------- any bytes whatever


@st.composite
def odd_files(draw: st.DrawFn) -> bytes:
    """Whole, torn, flipped and lying records with zeros and rubbish between them."""
    parts = []
    for _ in range(draw(st.integers(0, 6))):
        payload = draw(st.binary(max_size=24) | st.sampled_from([bytes(16), build_record(b"inner")]))
        way = draw(st.sampled_from(["whole", "whole", "whole", "flip", "cut", "lie", "zeros", "rubbish"]))
        record = build_record(payload)
        if way == "flip":
            record = flip_bit(record, draw(st.integers(0, len(record) - 1)), draw(st.integers(0, 7)))
        elif way == "cut":
            record = record[: draw(st.integers(0, len(record)))]
        elif way == "lie":
            record = build_record(payload, length=draw(st.integers(0, 60) | st.just(1 << 33)))
        elif way == "zeros":
            record = bytes(draw(st.integers(0, 30)))
        elif way == "rubbish":
            record = draw(st.binary(max_size=30))
        parts.append(record)
    return b"".join(parts)


def is_whole(data: bytes, start: int) -> int:
    """Returns where the record at `start` ends; 0 if there is no whole one."""
    if len(data) < start + HEADER_BYTES:
        return 0
    length, crc = struct.unpack_from("<QI", data, start)
    body = start + HEADER_BYTES
    if crc != masked(data[start : start + 8]) or body + length + FOOTER_BYTES > len(data):
        return 0
    (crc,) = struct.unpack_from("<I", data, body + length)
    return body + length + FOOTER_BYTES if crc == masked(data[body : body + length]) else 0


def whole_records(data: bytes) -> list[tuple[int, int]]:
    """Every record that a reader can find who tries each position after the one that failed."""
    found = []
    position = 0
    while position < len(data):
        end = is_whole(data, position)
        if end:
            found.append((position, end))
        position = end or position + 1
    return found


@given(st.one_of(odd_files(), st.binary(max_size=200)), st.integers(1, 40), st.data())
def test_any_bytes_are_covered_by_pieces_without_gap_or_overlap(
    data: bytes, chunk: int, random_cuts: st.DataObject
) -> None:
    pieces = decode_all(data)
    spans = [span(piece) for piece in pieces]
    assert [start for start, _ in spans] == [0, *(end for _, end in spans[:-1])][: len(spans)]
    assert (spans[-1][1] if spans else 0) == len(data)
    assert all(start < end for start, end in spans)
    assert [span(piece) for piece in pieces if isinstance(piece, Record)] == whole_records(data)
    for piece in pieces:
        start, end = span(piece)
        if isinstance(piece, Record):
            assert piece.payload == data[start + HEADER_BYTES : end - FOOTER_BYTES]
        assert not isinstance(piece, Padding) or not any(data[start:end])
    assert all(not isinstance(piece, Incomplete) for piece in pieces[:-1])

    assert decode_all(data, chunk) == pieces
    assert decode_all(data, 1) == pieces
    cuts = sorted(random_cuts.draw(st.lists(st.integers(0, len(data)), max_size=4)))
    decoder = RecordDecoder()
    chunked: list[Piece] = []
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        chunked += decoder.feed(data[start:end])
    assert chunked + decoder.finish() == pieces


@given(odd_files(), st.data())
def test_a_decoder_begun_at_the_offset_goes_on_as_the_first_would_have(data: bytes, cut: st.DataObject) -> None:
    size = cut.draw(st.integers(0, len(data)))
    first = RecordDecoder()
    pieces: list[Piece] = list(first.feed(data[:size]))
    second = RecordDecoder(first.offset)
    pieces += second.feed(data[first.offset :])
    assert pieces + second.finish() == decode_all(data)


def test_more_lengths_than_are_remembered_make_no_difference() -> None:
    lengths = list(range(5000))
    random.Random(0).shuffle(lengths)
    decoder = RecordDecoder()
    for length in lengths:
        payload = bytes(length % 97) + b"z" * (length - length % 97)
        record = encode_record(payload)
        assert record[:HEADER_BYTES] == build_record(b"", length=length)[:HEADER_BYTES]
        assert payloads_of(list(decoder.feed(record))) == [payload]
