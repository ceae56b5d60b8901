"""Reading an event file from any place; writing one that always ends with a whole record."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
import tempfile
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from ms_summary_bridge.errors import ClosedError, LogdirError, MissingDependencyError, OutputChangedError, WriteError
from ms_summary_bridge.events import Decoder, Event, Summary
from ms_summary_bridge.files import event_file
from ms_summary_bridge.files.event_file import EventFileReader, open_source, read_pieces
from ms_summary_bridge.files.file_ends import Head, last_wall_time, peek
from ms_summary_bridge.files.record_writer import RecordWriter, create_unique
from ms_summary_bridge.files.records import LARGE_BYTES, Damage, Incomplete, Padding, Record
from ms_summary_bridge.formats.mindspore import MindSporeDecoder
from ms_summary_bridge.formats.tensorboard import TensorBoardDecoder
from scripted import FORMATS, START, build_file, build_record, flip_bit, put, scalar_payload, version_payload

HEADER = build_record(version_payload("tensorboard"))


def make_decoder(file_format: str = "tensorboard") -> Decoder:
    return MindSporeDecoder() if file_format == "mindspore" else TensorBoardDecoder()


def tb_record(step: int) -> bytes:
    return build_record(scalar_payload("tensorboard", step))


def steps_of(items: list[Event | Damage | Padding | Incomplete]) -> list[int]:
    return [item.step for item in items if isinstance(item, Event) and isinstance(item.content, Summary)]


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


@contextlib.contextmanager
def peak_memory() -> Iterator[Callable[[], int]]:
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# --- reading


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("cut", ["length", "length end", "header", "payload", "checksum"])
def test_cut_tail_is_incomplete_and_gives_one_more_event_when_the_rest_comes(
    tmp_path: Path, file_format: str, cut: str
) -> None:
    whole = build_file(file_format, range(1, 7))
    last = build_record(scalar_payload(file_format, 6))
    base = len(whole) - len(last)
    keep = {"length": 3, "length end": 8, "header": 12, "payload": 20, "checksum": len(last) - 2}[cut]
    path = put(tmp_path / "events", whole[: base + keep])
    reader = EventFileReader(path, make_decoder(file_format))
    items = list(reader)
    assert steps_of(items) == [1, 2, 3, 4, 5]
    assert items[-1] == Incomplete(base, keep)
    assert reader.offset == reader.record_offset == base
    assert reader.records_read == 6
    append(path, last[keep:])
    assert steps_of(list(EventFileReader(path, make_decoder(file_format), offset=reader.offset))) == [6]
    assert steps_of(list(reader)) == [6]
    assert list(reader) == []
    assert reader.offset == len(whole)


def test_every_offset_of_a_reader_resumes_there(tmp_path: Path) -> None:
    path = put(tmp_path / "events", build_file("tensorboard", range(5)))
    reader = EventFileReader(path, make_decoder())
    for seen, _ in enumerate(reader, 1):
        rest = list(EventFileReader(path, make_decoder(), offset=reader.offset))
        assert len(rest) == 6 - seen
        again = list(EventFileReader(path, make_decoder(), offset=reader.record_offset))
        assert len(again) == 7 - seen


@pytest.mark.parametrize("chunk_bytes", [1, 7, 64, 1 << 20])
def test_pieces_do_not_depend_on_the_chunks(tmp_path: Path, chunk_bytes: int) -> None:
    data = build_file("mindspore", range(20))
    path = put(tmp_path / "events", data + b"garbage" + build_record(b"x") + bytes(40) + build_record(b"y") + b"\x01")
    pieces = list(read_pieces(path, chunk_bytes=chunk_bytes))
    assert [type(piece) for piece in pieces[21:]] == [Damage, Record, Padding, Record, Incomplete]
    assert b"".join(build_record(p.payload) for p in pieces[:21] if isinstance(p, Record)) == data


def test_flipped_bit_costs_one_record(tmp_path: Path) -> None:
    records = [HEADER, *map(tb_record, range(1, 6))]
    bad = len(b"".join(records[:3]))
    records[3] = flip_bit(records[3], -5)
    items = list(EventFileReader(put(tmp_path / "events", b"".join(records)), make_decoder()))
    assert steps_of(items) == [1, 2, 4, 5]
    (damage,) = [item for item in items if isinstance(item, Damage)]
    assert (damage.start, damage.end) == (bad, bad + len(records[3]))
    assert "data checksum: want 0x" in damage.reason


def test_wrong_length_checksum_costs_one_record(tmp_path: Path) -> None:
    records = [HEADER, *map(tb_record, range(1, 6))]
    records[3] = flip_bit(records[3], 8)
    items = list(EventFileReader(put(tmp_path / "events", b"".join(records)), make_decoder()))
    assert steps_of(items) == [1, 2, 4, 5]
    assert [item.reason.partition(":")[0] for item in items if isinstance(item, Damage)] == ["length checksum"]


def test_impossible_length_is_damage(tmp_path: Path) -> None:
    data = HEADER + tb_record(1) + build_record(b"x" * 40, length=1 << 60)
    items = list(EventFileReader(put(tmp_path / "events", data), make_decoder()))
    assert steps_of(items) == [1]
    assert isinstance(items[-1], Damage)
    assert str(1 << 60) in items[-1].reason


@pytest.mark.parametrize("length", [1 << 30, 1 << 60])
def test_lying_length_is_not_buffered(tmp_path: Path, length: int) -> None:
    path = put(
        tmp_path / "events", HEADER + build_record(b"", length=length)[:12] + build_record(b"\x01" * 99_999) * 300
    )
    with peak_memory() as peak:
        pieces = read_pieces(path, chunk_bytes=1 << 16)
        kinds = [type(next(pieces)) for _ in range(3)]
        count = sum(1 for piece in pieces if isinstance(piece, Record))
        assert peak() < 3 << 20 < path.stat().st_size // 9
    assert kinds == [Record, Damage, Record]
    assert count == 300 - 1


def test_lying_length_with_nothing_behind_is_not_buffered(tmp_path: Path) -> None:
    with (path := tmp_path / "events").open("wb") as file:
        file.write(HEADER + build_record(b"", length=1 << 30)[:12] + b"\x01")
        file.truncate(64 << 20)
    with peak_memory() as peak:
        pieces = list(read_pieces(path, chunk_bytes=1 << 16))
        assert peak() < 3 << 20
    assert pieces[1:] == [Incomplete(len(HEADER), (64 << 20) - len(HEADER))]


def test_zero_checksums_are_refused(tmp_path: Path) -> None:
    record = build_record(scalar_payload("tensorboard", 1), length_crc=0)
    items = list(EventFileReader(put(tmp_path / "events", record * 5), make_decoder()))
    assert [type(item) for item in items] == [Damage]


def test_whole_record_that_is_no_event_is_damage(tmp_path: Path) -> None:
    data = HEADER + build_record(b"\xff\xff\xff") + tb_record(2)
    reader = EventFileReader(put(tmp_path / "events", data), make_decoder())
    items = list(reader)
    assert steps_of(items) == [2]
    damage = items[1]
    assert isinstance(damage, Damage)
    assert (damage.start, damage.end) == (len(HEADER), len(HEADER) + 19)
    assert damage.reason.startswith("not an event: the message is malformed")
    assert reader.records_read == 3
    assert reader.offset == len(data)


@pytest.mark.parametrize(("tail", "kind"), [(bytes(50), Padding), (b"no record, none at all", Damage)])
def test_padding_and_damage_at_the_end_are_read_again(
    tmp_path: Path, tail: bytes, kind: type[Padding] | type[Damage]
) -> None:
    path = put(tmp_path / "events", HEADER + tail)
    reader = EventFileReader(path, make_decoder())
    assert [type(item) for item in reader] == [Event, kind]
    assert reader.offset == reader.record_offset == len(HEADER)
    append(path, tb_record(1))
    items = list(reader)
    assert [type(item) for item in items] == [kind, Event]
    assert reader.offset == path.stat().st_size


def test_a_file_that_grows_while_it_is_read_gives_what_is_whole(tmp_path: Path) -> None:
    path = put(tmp_path / "events", HEADER + tb_record(1) + tb_record(2)[:10])
    items = []
    for item in EventFileReader(path, make_decoder(), chunk_bytes=len(HEADER)):
        if not items:
            append(path, tb_record(2)[10:] + tb_record(3)[:10])
        items.append(item)
    assert steps_of(items) == [1, 2]
    assert isinstance(items[-1], Incomplete)


def test_a_record_given_up_is_not_called_damaged_because_it_arrives_meanwhile(tmp_path: Path) -> None:
    long = build_record(scalar_payload("tensorboard", 1) + b"\x3a\x80\x04" + b"\x01" * 512)
    path = put(tmp_path / "events", HEADER + long[:400])
    reader = EventFileReader(path, make_decoder(), chunk_bytes=64)
    items = []
    for item in reader:
        if not items:
            append(path, long[400:] + tb_record(2))
        items.append(item)
    assert not [item for item in items if isinstance(item, Damage)]
    assert len(items + list(reader)) >= 3
    assert reader.offset == path.stat().st_size


def test_a_file_cut_while_it_is_read_ends_incomplete(tmp_path: Path) -> None:
    path = put(tmp_path / "events", build_file("tensorboard", range(50)))
    reader = EventFileReader(path, make_decoder(), chunk_bytes=100)
    items = []
    for item in reader:
        if not items:
            os.truncate(path, 230)
        items.append(item)
    assert isinstance(items[-1], Incomplete)
    with pytest.raises(LogdirError, match=r"has 3 bytes.*replaced or cut"):
        list(EventFileReader(put(tmp_path / "short", b"abc"), make_decoder(), offset=4))


def test_long_file_gives_all_points(tmp_path: Path) -> None:
    path = put(tmp_path / "events", build_file("mindspore", range(50_000)))
    assert path.stat().st_size > 2 << 20
    assert steps_of(list(EventFileReader(path, make_decoder("mindspore")))) == list(range(50_000))


def test_record_above_64_mib_is_read_and_so_is_what_follows(tmp_path: Path) -> None:
    graph = b"\x22" + b"\x80\x80\x80\x22" + bytes(71_303_168)  # graph_def, 68 MiB
    path = put(tmp_path / "events", HEADER + build_record(graph) + tb_record(7))
    items = list(EventFileReader(path, make_decoder()))
    assert [type(item) for item in items] == [Event, Event, Event]
    assert steps_of(items) == [7]
    with peak_memory() as peak:
        head = peek(path)
        assert peak() < 1 << 20
    assert head.first is not None
    assert head.has_more


def test_record_above_the_limit_is_named_with_its_size(tmp_path: Path) -> None:
    path = put(tmp_path / "events", HEADER + build_record(b"\x01" * 5000) + tb_record(7))
    items = list(EventFileReader(path, make_decoder(), max_record_bytes=1000))
    assert steps_of(items) == [7]
    assert isinstance(items[1], Damage)
    assert "5000 bytes" in items[1].reason


def test_missing_file_and_directory_are_named(tmp_path: Path) -> None:
    with pytest.raises(LogdirError, match=r"gone: cannot be opened: No such file"):
        list(read_pieces(tmp_path / "gone"))
    with pytest.raises(LogdirError, match=r"cannot be opened: Is a directory"):
        peek(tmp_path)


def test_failing_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path / "events", HEADER)

    class FailingSource:
        def seek(self, position: int, whence: int = 0) -> int:
            return 100

        def read(self, size: int) -> bytes:
            raise OSError(errno.EIO, "Input/output error")

        def __enter__(self) -> FailingSource:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(event_file, "open_source", lambda path: FailingSource())
    with pytest.raises(LogdirError, match=r"events: cannot be read: Input/output error"):
        list(EventFileReader(path, make_decoder()))


def test_closed_reader_cannot_be_used(tmp_path: Path) -> None:
    path = put(tmp_path / "events", build_file("tensorboard", range(3)))
    with EventFileReader(path, make_decoder()) as reader:
        running = iter(reader)
        next(running)
    assert next(running, None) is None
    reader.close()
    with pytest.raises(ClosedError):
        iter(reader)


def test_url_is_read_like_a_file() -> None:
    data = build_file("tensorboard", range(3))
    fsspec.filesystem("memory").pipe("/test_event_file/events", data + b"\x01")
    url = "memory://test_event_file/events"
    reader = EventFileReader(url, make_decoder())
    items = list(reader)
    assert steps_of(items) == [0, 1, 2]
    assert reader.offset == len(data)
    assert last_wall_time(url, make_decoder()) == START + 2
    assert peek(url).size == len(data) + 1
    with pytest.raises(LogdirError, match="cannot be opened"):
        open_source("memory://test_event_file/gone")


def test_url_of_an_unknown_protocol_and_of_a_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LogdirError, match="Protocol not known"):
        open_source("nonesuch://bucket/events")

    def url_to_fs(url: str) -> None:
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr("fsspec.core.url_to_fs", url_to_fs)
    with pytest.raises(MissingDependencyError, match="Install s3fs"):
        open_source("s3://bucket/events")


def test_peek_tells_what_a_file_begins_with(tmp_path: Path) -> None:
    assert peek(put(tmp_path / "zero", b"")) == Head(None, False, "", 0)
    only = peek(put(tmp_path / "only", HEADER))
    assert only.first is not None
    assert (only.first.payload, only.has_more) == (version_payload("tensorboard"), False)
    assert not peek(put(tmp_path / "padded", HEADER + bytes(200_000))).has_more
    assert peek(put(tmp_path / "torn", HEADER + b"\x09")).has_more
    text = peek(put(tmp_path / "text", b"this is not an event file\n"))
    assert text.first is None
    assert "length checksum" in text.damage
    late = peek(put(tmp_path / "late", b"garbage" * 3 + HEADER))
    assert late.first is not None
    assert late.damage
    assert peek(put(tmp_path / "cut", HEADER[:15])) == Head(None, False, "", 15)


def test_last_wall_time_reads_only_the_tail(tmp_path: Path) -> None:
    path = put(tmp_path / "events", build_file("tensorboard", range(60_000)))
    append(path, tb_record(60_000)[:-3])
    calls = 0

    class Counting(TensorBoardDecoder):
        def decode(self, payload: bytes) -> Event:
            nonlocal calls
            calls += 1
            return super().decode(payload)

    assert last_wall_time(path, Counting()) == START + 59_999
    assert calls == 1


def test_last_wall_time_looks_further_until_it_finds_an_event(tmp_path: Path) -> None:
    long = build_record(b"\x09" + bytes(6) + b"\xf0\x3f" + b"\x22\x80\x80\xc0\x01" + b"\x01" * (3 << 20))  # at 1.0
    assert last_wall_time(put(tmp_path / "long", HEADER + long), make_decoder()) == 1.0
    no_event = build_record(b"\xff\xff\xff")
    assert last_wall_time(put(tmp_path / "last", HEADER + no_event), make_decoder()) == START
    assert last_wall_time(put(tmp_path / "none", no_event), make_decoder()) is None
    assert last_wall_time(put(tmp_path / "zero", b""), make_decoder()) is None


# --- writing


@given(
    payloads=st.lists(st.binary(max_size=40), max_size=12),
    known=st.integers(0, 12),
    crash=st.integers(0, 1000),
    buffer_bytes=st.integers(1, 200),
)
def test_reopened_file_ends_up_as_if_nothing_had_happened(
    payloads: list[bytes], known: int, crash: int, buffer_bytes: int
) -> None:
    known = min(known, len(payloads))
    whole = b"".join(map(build_record, payloads))
    offset = len(b"".join(map(build_record, payloads[:known])))
    with tempfile.TemporaryDirectory() as directory:
        path = put(Path(directory) / "events", whole[: max(offset, min(crash, len(whole)))])
        with RecordWriter(path, offset=offset, buffer_bytes=buffer_bytes) as writer:
            for payload in payloads[known:]:
                writer.write(payload)
            assert writer.surplus == 0
            assert writer.offset == len(whole)
        assert path.read_bytes() == whole


@pytest.mark.parametrize("wrong", [0, 17, 18, 25])
def test_reopened_file_with_other_bytes_is_not_touched(tmp_path: Path, wrong: int) -> None:
    offset = len(HEADER)
    data = HEADER + flip_bit(build_record(b"one") + build_record(b"two")[:9], wrong)
    path = put(tmp_path / "events", data)
    writer = RecordWriter(path, offset=offset)
    writer.write(b"one")
    writer.write(b"two")
    with pytest.raises(LogdirError, match="something else than this conversion"):
        writer.flush()
    with pytest.raises(LogdirError, match="something else than this conversion"):
        writer.close()
    assert path.read_bytes() == data


def test_existing_file_is_adopted_from_its_beginning(tmp_path: Path) -> None:
    path = put(tmp_path / "events", HEADER + tb_record(1) + tb_record(2)[:7])
    with RecordWriter(path, offset=0) as writer:
        writer.write(version_payload("tensorboard"))
        writer.flush()
        assert writer.surplus == len(tb_record(1)) + 7
        writer.write(scalar_payload("tensorboard", 1))
        writer.write(scalar_payload("tensorboard", 2))
    assert path.read_bytes() == build_file("tensorboard", [1, 2])


def test_zeros_stand_for_what_the_disk_had_not_got(tmp_path: Path) -> None:
    data = build_file("tensorboard", [1, 2])
    payloads = [version_payload("tensorboard"), scalar_payload("tensorboard", 1), scalar_payload("tensorboard", 2)]
    lost = [range(len(data)), range(40), range(60, len(data)), range(30, 50)]
    for number, zeros in enumerate(lost):
        left = bytes(0 if place in zeros else byte for place, byte in enumerate(data)) + bytes(number * 9)
        path = put(tmp_path / str(number), left)
        with RecordWriter(path, offset=0) as writer:
            for payload in payloads:
                writer.write(payload)
        assert path.read_bytes() == data + bytes(number * 9), "zeros behind may be written over later"
    put(path, data[:40] + b"\1" + data[41:])
    with RecordWriter(path, offset=0) as writer:
        for payload in payloads:
            writer.write(payload)
        with pytest.raises(OutputChangedError, match="behind byte 0"):
            writer.flush()
        writer._pending.clear()


def test_a_file_that_cannot_be_read_back_is_said_and_not_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = build_file("tensorboard", [1])
    path = put(tmp_path / "events", data)

    def fail(descriptor: int, size: int, offset: int) -> bytes:
        raise OSError(5, "Input/output error")

    with RecordWriter(path, offset=0) as writer:
        monkeypatch.setattr("ms_summary_bridge.files.record_writer.read_at", fail)
        writer.write(version_payload("tensorboard"))
        with pytest.raises(WriteError, match="events: cannot be compared: Input/output error"):
            writer.flush()
        with pytest.raises(WriteError, match="events: cannot be read back: Input/output error"):
            writer.payloads_from(0)
        assert path.read_bytes() == data
        monkeypatch.undo()  # the disk is well again
        assert writer.payloads_from(0) == [version_payload("tensorboard")]
    assert path.read_bytes() == data
    with pytest.raises(WriteError, match="cannot be opened: Is a directory"):
        RecordWriter(tmp_path, offset=0)


def test_new_file_never_overwrites(tmp_path: Path) -> None:
    path = put(tmp_path / "events", b"precious")
    with pytest.raises(LogdirError, match="exists and would be overwritten"):
        RecordWriter(path)
    assert path.read_bytes() == b"precious"
    with pytest.raises(LogdirError, match=r"has 8 bytes, 9 were written"):
        RecordWriter(path, offset=9)
    with pytest.raises(LogdirError, match=r"is gone; writing was to go on at byte 0"):
        RecordWriter(tmp_path / "gone", offset=0)
    with pytest.raises(LogdirError, match="cannot be created: File exists"):
        RecordWriter(path / "below")


def test_new_file_has_its_directories_and_mode(tmp_path: Path) -> None:
    previous = os.umask(0o027)
    try:
        with RecordWriter(tmp_path / "a" / "b" / "events") as writer:
            writer.write(b"x")
    finally:
        os.umask(previous)
    assert stat.S_IMODE((tmp_path / "a" / "b" / "events").stat().st_mode) == 0o640


def test_flush_is_a_barrier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[bool] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.path.isdir(f"/dev/fd/{descriptor}")))
    path = tmp_path / "new" / "events"
    with RecordWriter(path) as writer:
        writer.write(b"one")
        assert (path.stat().st_size, writer.offset) == (0, 19)
        writer.flush()
        assert path.read_bytes() == build_record(b"one")
        assert synced == []
        writer.write(b"two")
        writer.flush(sync=True)
        assert path.read_bytes() == build_record(b"one") + build_record(b"two")
        assert synced == [False, True, True], "the file, its name, and the name of its directory"
        writer.flush(sync=True)
        writer.write(b"three")
        writer.flush(sync=True)
        assert synced[3:] == [False], "what changed alone"


def test_full_buffer_is_written(tmp_path: Path) -> None:
    with RecordWriter(tmp_path / "events", buffer_bytes=40) as writer:
        for expected in (0, 0, 57):
            writer.write(b"one")
            assert (tmp_path / "events").stat().st_size == expected


def test_closed_writer_cannot_be_used(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path / "events")
    writer.write(b"one")
    writer.close()
    writer.close()
    assert writer.offset == 19
    with pytest.raises(ClosedError):
        writer.write(b"two")
    with pytest.raises(ClosedError):
        writer.flush()


class Disk:
    """Stands in for os.write and os.writev: a disk with so much room, that takes so much at a time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int, at_once: int = 1 << 30) -> None:
        self.room = room
        self._at_once = at_once
        self._write = os.write
        monkeypatch.setattr(os, "write", self.write)
        monkeypatch.setattr(os, "writev", lambda fd, parts: self.write(fd, b"".join(parts)))

    def write(self, fd: int, data: bytes | memoryview) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        count = self._write(fd, data[: min(self.room, self._at_once)])
        self.room -= count
        return count


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Disk(monkeypatch, room=1000, at_once=3)
    with RecordWriter(tmp_path / "events") as writer:
        writer.write(b"one")
        writer.write(b"two")
    assert (tmp_path / "events").read_bytes() == build_record(b"one") + build_record(b"two")


@pytest.mark.parametrize("room", range(58))
@pytest.mark.parametrize("can_truncate", [True, False])
@pytest.mark.parametrize("is_block", [False, True])
def test_full_disk_leaves_whole_records_and_loses_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int, can_truncate: bool, is_block: bool
) -> None:
    whole = b"".join(map(build_record, (b"one", b"two", b"six")))
    if not can_truncate:

        def refuse(fd: int, size: int) -> None:
            raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr(os, "ftruncate", refuse)
    path = tmp_path / "events"
    disk = Disk(monkeypatch, room)
    writer = RecordWriter(path)
    if is_block:
        writer.write_records(whole)
    else:
        for payload in (b"one", b"two", b"six"):
            writer.write(payload)
    if room < len(whole):
        with pytest.raises(LogdirError, match=r"events: cannot be written: No space left .*; [\d,]+ bytes are in"):
            writer.flush()
        size = path.stat().st_size
        assert size == (room // 19 * 19 if can_truncate else room)
        disk.room = 0
        with pytest.raises(LogdirError, match="No space"):
            writer.flush()
    assert writer.offset == len(whole)
    disk.room = 1000
    writer.close()
    assert path.read_bytes() == whole


_LARGE = b"\x07" * LARGE_BYTES


@pytest.mark.parametrize("at_once", [1 << 30, 50_000, 7919])
@pytest.mark.parametrize("can_truncate", [True, False])
@pytest.mark.parametrize("room", [0, 5, 19, 30, 31, 32, 70_000, 65_571, 65_574, 65_575, 65_580, 150_000])
def test_large_records_survive_a_full_disk_and_short_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int, can_truncate: bool, at_once: int
) -> None:
    payloads = (b"one", _LARGE, b"two", _LARGE + b"x")
    ends = [0, *itertools.accumulate(len(build_record(payload)) for payload in payloads)]
    whole = b"".join(map(build_record, payloads))
    if not can_truncate:

        def refuse(fd: int, size: int) -> None:
            raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr(os, "ftruncate", refuse)
    path = tmp_path / "events"
    disk = Disk(monkeypatch, room, at_once)
    writer = RecordWriter(path)
    for payload in payloads:
        writer.write(payload, crc32c(payload))
    assert writer.offset == len(whole)
    assert writer.waiting_records == 4
    if room < len(whole):
        with pytest.raises(LogdirError, match=r"No space left on device; [\d,]+ bytes are in"):
            writer.flush()
        kept = max(end for end in ends if end <= room)
        assert path.stat().st_size == (kept if can_truncate else room)
        assert writer.waiting_records == len(ends) - 1 - ends.index(kept)
        assert writer.checksum == crc32c(whole[:kept])
        assert writer.payloads_from(0) == list(payloads)
    disk.room = 1 << 30
    writer.close()
    assert path.read_bytes() == whole
    assert writer.checksum == crc32c(whole)


def test_large_records_come_to_the_disk_without_being_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts: list[int] = []
    writev = os.writev

    def observed(fd: int, buffers: list[memoryview]) -> int:
        parts.extend(buffer.obj is _LARGE for buffer in buffers)
        return writev(fd, buffers)

    monkeypatch.setattr(os, "writev", observed)
    with RecordWriter(tmp_path / "events") as writer:
        for payload in (_LARGE, b"one", _LARGE):
            writer.write(payload)
    assert (tmp_path / "events").read_bytes() == b"".join(map(build_record, (_LARGE, b"one", _LARGE)))
    assert parts.count(True) == 2


def test_more_large_records_than_the_system_takes_at_once(tmp_path: Path) -> None:
    with RecordWriter(tmp_path / "events", buffer_bytes=1 << 30) as writer:
        for _ in range(600):
            writer.write(_LARGE)
    assert (tmp_path / "events").read_bytes() == 600 * build_record(_LARGE)


def test_full_disk_while_a_torn_record_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path / "events", HEADER + build_record(b"one") + build_record(b"two")[:5])
    disk = Disk(monkeypatch, room=2)
    writer = RecordWriter(path, offset=len(HEADER))
    for payload in (b"one", b"two"):
        writer.write(payload)
    with pytest.raises(LogdirError, match="No space"):
        writer.flush()
    assert path.read_bytes() == HEADER + build_record(b"one")
    disk.room = 1000
    writer.close()
    assert path.read_bytes() == HEADER + build_record(b"one") + build_record(b"two")


def test_close_on_a_full_disk_closes_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Disk(monkeypatch, room=0)
    writer = RecordWriter(tmp_path / "events")
    writer.write(b"one")
    with pytest.raises(LogdirError, match="No space"):
        writer.close()
    writer.close()
    with pytest.raises(ClosedError):
        writer.write(b"two")
    with pytest.raises(LogdirError, match="No space"), RecordWriter(tmp_path / "other") as other:
        other.write(b"one")


def write_and_fail(writer: RecordWriter) -> None:
    writer.write(b"one")
    raise KeyError


def test_full_disk_on_the_way_out_does_not_hide_the_first_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Disk(monkeypatch, room=0)
    with pytest.raises(KeyError), RecordWriter(tmp_path / "events") as writer:
        write_and_fail(writer)


def test_names_never_collide(tmp_path: Path) -> None:
    barrier = threading.Barrier(16)
    writers: list[RecordWriter] = []

    def create() -> None:
        barrier.wait()
        writers.append(create_unique(tmp_path / "run", "events.{}".format))

    threads = [threading.Thread(target=create) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(os.path.basename(writer.path) for writer in writers) == sorted(f"events.{n}" for n in range(16))
    for writer in writers:
        writer.close()
    put(tmp_path / "file", b"")
    with pytest.raises(LogdirError, match="file: cannot be created: File exists"):
        create_unique(tmp_path / "file", str)


@pytest.mark.parametrize("chunk_bytes", [7, 100, 1000, 1 << 20])
def test_what_is_cut_behind_damage_does_not_depend_on_the_chunks(tmp_path: Path, chunk_bytes: int) -> None:
    whole = build_record(b"one")
    path = put(tmp_path / "events", whole + b"\x01\x02" * 3 + build_record(bytes(range(256)) * 40)[:-50])
    _, damage, cut = read_pieces(path, chunk_bytes=chunk_bytes)
    assert (damage.start, damage.end) == (len(whole), len(whole) + 6)  # type: ignore[union-attr]
    assert cut == Incomplete(len(whole) + 6, 12 + 256 * 40 + 4 - 50)
