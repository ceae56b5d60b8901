"""What the writer of records asks of the system, and what it says of itself, at its edges."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from ms_summary_bridge.errors import ClosedError, OutputChangedError, UsageError, WriteError
from ms_summary_bridge.files import record_writer
from ms_summary_bridge.files.record_writer import RecordWriter, create_unique
from scripted import build_record

ONE, TWO = build_record(b"one"), build_record(b"two two")


def test_a_new_writer_has_written_nothing_and_nothing_is_left_over(tmp_path: Path) -> None:
    with RecordWriter(tmp_path / "events") as writer:
        assert (writer.offset, writer.waiting_bytes, writer.waiting_records, writer.surplus) == (0, 0, 0, 0)
        writer.write(b"one")
        writer.write_records(TWO + ONE)
        writer.write_records(TWO)
        waiting = len(ONE + TWO + ONE + TWO)
        assert (writer.offset, writer.waiting_bytes, writer.waiting_records, writer.surplus) == (waiting, waiting, 4, 0)
        writer.flush()
        assert (writer.offset, writer.waiting_bytes, writer.waiting_records, writer.surplus) == (waiting, 0, 0, 0)
    assert (tmp_path / "events").read_bytes() == ONE + TWO + ONE + TWO


def test_everybody_may_read_what_the_umask_allows(tmp_path: Path) -> None:
    previous = os.umask(0)
    try:
        RecordWriter(tmp_path / "events").close()
    finally:
        os.umask(previous)
    assert stat.S_IMODE((tmp_path / "events").stat().st_mode) == 0o644


@pytest.mark.parametrize("name", ["s3://bucket/events", "file:/tmp/events"])
def test_a_url_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"path: .* is a URL; name a local directory"):
        RecordWriter(name)


def test_a_buffer_of_nothing_and_an_offset_below_zero_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="buffer_bytes: must be a whole number from 1 on, not 0"):
        RecordWriter(tmp_path / "events", buffer_bytes=0)
    with pytest.raises(UsageError, match="offset: must be a whole number from 0 on, not -1"):
        RecordWriter(tmp_path / "events", offset=-1)
    assert not (tmp_path / "events").exists()


@pytest.mark.parametrize("by_block", [False, True])
def test_a_full_buffer_is_handed_on_and_one_byte_less_waits(tmp_path: Path, by_block: bool) -> None:
    for number, buffer_bytes in enumerate((2 * len(ONE), 2 * len(ONE) + 1)):
        with RecordWriter(tmp_path / str(number), buffer_bytes=buffer_bytes) as writer:
            for _ in range(2):
                if by_block:
                    writer.write_records(ONE)
                else:
                    writer.write(b"one")
            assert writer.waiting_bytes == (0, 2 * len(ONE))[number]
            assert (tmp_path / str(number)).read_bytes() == (ONE + ONE, b"")[number]


def test_the_disk_is_asked_only_for_what_it_may_not_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: asked.append("data"))
    monkeypatch.setattr(record_writer, "sync_names", lambda *names: asked.append(" ".join(names)))
    path = tmp_path / "events"
    path.write_bytes(ONE)
    with RecordWriter(path, offset=len(ONE)) as writer:
        writer.flush(sync=True)
        assert asked == []
        writer.write(b"two two")
        writer.flush(sync=True)
        assert asked == ["data"]
    asked.clear()
    with RecordWriter(path, offset=0) as writer:
        writer.flush(sync=True)
    assert asked == [str(tmp_path)], "whoever made it may have been killed before the disk had its name"
    asked.clear()
    writer = RecordWriter(tmp_path / "new")
    writer.write(b"one")
    writer.close()
    assert asked == []


def test_what_is_read_back_ends_where_was_written(tmp_path: Path) -> None:
    path = tmp_path / "events"
    path.write_bytes(ONE + TWO + ONE)
    with RecordWriter(path, offset=len(ONE)) as writer:
        assert writer.surplus == len(TWO + ONE)
        assert writer.payloads_from(0) == [b"one"]
        writer.write(b"two two")
        assert writer.surplus == len(ONE)
        assert writer.payloads_from(0) == [b"one", b"two two"]
        assert writer.payloads_from(len(ONE)) == [b"two two"]
        writer.flush()
        assert writer.payloads_from(len(ONE)) == [b"two two"]


@pytest.mark.parametrize("zeros", [False, True])
def test_what_is_there_already_is_compared_piece_by_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zeros: bool
) -> None:
    monkeypatch.setattr(record_writer, "CHUNK_BYTES", 16)
    path = tmp_path / "events"
    behind = bytes(len(TWO)) + ONE if zeros else TWO + ONE
    path.write_bytes(ONE + behind + ONE[:5])
    with RecordWriter(path, offset=len(ONE)) as writer:
        for payload in (b"two two", b"one", b"one"):
            writer.write(payload)
    assert path.read_bytes() == ONE + TWO + ONE + ONE
    path.write_bytes(ONE + TWO + ONE + TWO)
    with RecordWriter(path, offset=len(ONE)) as writer:
        writer.write(b"two two")
        writer.write(b"one")
        writer.flush()
        assert writer.surplus == len(TWO)
    path.write_bytes(ONE + TWO + ONE)
    writer = RecordWriter(path, offset=len(ONE))
    writer.write(b"two two")
    writer.write(b"two")
    with pytest.raises(OutputChangedError, match=f"behind byte {len(ONE) + 32} it holds something else"):
        writer.flush()
    os.close(writer._fd)
    writer._fd = -1
    assert path.read_bytes() == ONE + TWO + ONE


def test_after_a_failed_write_nothing_is_left_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = RecordWriter(tmp_path / "events")
    writer.write(b"one")

    def fail(*arguments: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fail)
        with pytest.raises(WriteError, match=f"No space left on device; 0 bytes are in the file, {len(ONE)} wait"):
            writer.flush()
    assert (writer.surplus, writer.offset, writer.waiting_records) == (0, len(ONE), 1)
    writer.close()
    assert (tmp_path / "events").read_bytes() == ONE


def test_a_process_without_standard_input_writes_as_any_other(tmp_path: Path) -> None:
    """Its first file has the descriptor 0."""
    kept = os.dup(0)
    os.close(0)
    try:
        writer = RecordWriter(tmp_path / "events")
        descriptor = writer._fd
        writer.write(b"one")
        writer.write_records(TWO)
        writer.flush()
        writer.close()
        is_free = not os.path.exists("/dev/fd/0") if os.path.exists("/dev/fd") else True
    finally:
        os.dup2(kept, 0)
        os.close(kept)
    assert descriptor == 0
    assert is_free
    assert (tmp_path / "events").read_bytes() == ONE + TWO
    for call in (lambda: writer.write(b"one"), lambda: writer.write_records(ONE), writer.flush):
        with pytest.raises(ClosedError, match="events: the writer is closed"):
            call()


def test_the_first_free_name_is_taken(tmp_path: Path) -> None:
    for number in (0, 1):
        (tmp_path / f"events.{number}").touch()
    with create_unique(tmp_path, "events.{}".format) as writer:
        assert Path(writer.path).name == "events.2"
