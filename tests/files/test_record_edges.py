"""Where the decoder of records stands: when it tells what, what it waits for, and what it makes of the last bytes."""

from __future__ import annotations

import pytest

from ms_summary_bridge.files.record_decoder import RecordDecoder
from ms_summary_bridge.files.records import (
    FOOTER_BYTES,
    HEADER_BYTES,
    Damage,
    Incomplete,
    Padding,
    Piece,
    Record,
)
from scripted import build_record, flip_bit

FRAME = HEADER_BYTES + FOOTER_BYTES
DAMAGED = flip_bit(build_record(b"damaged"), 15)
NEXT = build_record(b"next one")


def decode(data: bytes, *, offset: int = 0) -> list[Piece]:
    decoder = RecordDecoder(offset)
    return [*decoder.feed(data), *decoder.finish()]


def feed_bytes(decoder: RecordDecoder, data: bytes) -> list[Piece]:
    return [piece for number in range(len(data)) for piece in decoder.feed(data[number : number + 1])]


@pytest.mark.parametrize("size", range(1, len(NEXT)))
def test_a_cut_record_behind_one_with_a_damaged_payload_is_incomplete_and_no_damage(size: int) -> None:
    end = len(DAMAGED)
    damage, rest = decode(DAMAGED + NEXT[:size])
    assert isinstance(damage, Damage)
    assert (damage.start, damage.end) == (0, end)
    assert rest == Incomplete(end, size)


@pytest.mark.parametrize("size", [1, 3, 7, 10, 11, 12])
def test_zeros_behind_a_damaged_payload_are_padding(size: int) -> None:
    damage, rest = decode(DAMAGED + bytes(size))
    assert isinstance(damage, Damage)
    assert rest == Padding(len(DAMAGED), len(DAMAGED) + size)


def test_the_offset_is_behind_what_the_last_bytes_were_taken_for() -> None:
    decoder = RecordDecoder()
    decoder.feed(DAMAGED + NEXT[:5])
    decoder.finish()
    assert decoder.offset == len(DAMAGED)
    decoder = RecordDecoder()
    decoder.feed(b"\x11" * 30 + build_record(b"y" * 99)[:20])
    decoder.finish()
    assert decoder.offset == 30


def test_two_torn_records_with_whole_ones_behind_each() -> None:
    torn = build_record(b"t" * 900)[:40]
    pieces = decode(torn + NEXT + torn + NEXT)
    first, second = 40 + len(NEXT), 80 + len(NEXT)
    assert pieces == [
        Damage(0, 40, "the record is not whole, yet others follow it"),
        Record(40, b"next one"),
        Damage(first, second, "the record is not whole, yet others follow it"),
        Record(second, b"next one"),
    ]


def test_of_two_torn_records_behind_damage_the_first_may_still_be_completed() -> None:
    torn = build_record(b"t" * 900)[:40]
    damage, rest = decode(b"\x11" * 33 + torn + torn)
    assert (type(damage), rest) == (Damage, Incomplete(33, 80))


@pytest.mark.parametrize("offset", [0, 5, 1000, 1 << 40])
def test_what_stands_behind_a_damaged_payload_is_damage_of_its_own(offset: int) -> None:
    end = offset + len(DAMAGED)
    damage, rubbish, record = decode(DAMAGED + b"\x11" * 20 + NEXT, offset=offset)
    assert isinstance(damage, Damage)
    assert isinstance(rubbish, Damage)
    assert (damage.start, damage.end, rubbish.start, rubbish.end) == (offset, end, end, end + 20)
    assert damage.reason.startswith("data checksum")
    assert rubbish.reason.startswith("length checksum")
    assert record == Record(end + 20, b"next one")


def test_a_damaged_payload_is_told_when_too_little_follows_for_a_header() -> None:
    decoder = RecordDecoder()
    told = decoder.feed(DAMAGED + NEXT[: HEADER_BYTES - 1])
    assert [type(piece) for piece in told] == [Damage]
    assert decoder.offset == len(DAMAGED)


def test_a_header_says_at_once_how_much_is_wanted() -> None:
    decoder = RecordDecoder(100)
    assert feed_bytes(decoder, NEXT[:HEADER_BYTES]) == []
    assert decoder.wanted == 100 + len(NEXT)


@pytest.mark.parametrize("size", [40, 41])
def test_a_header_that_a_search_finds_says_at_once_how_much_is_wanted(size: int) -> None:
    rubbish = b"\x11" * size
    decoder = RecordDecoder(100)
    assert feed_bytes(decoder, rubbish + NEXT[:HEADER_BYTES]) == []
    assert (decoder.offset, decoder.wanted) == (100, 100 + len(rubbish) + len(NEXT))
    damage, record = feed_bytes(decoder, NEXT[HEADER_BYTES:])
    assert isinstance(damage, Damage)
    assert record == Record(100 + size, b"next one")
    assert decoder.wanted == 100 + size + len(NEXT) + HEADER_BYTES
