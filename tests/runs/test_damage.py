"""Damaged files on the command line: every other record comes out, and every lost byte is named."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from ms_summary_bridge.cli.app import main
from ms_summary_bridge.columns.inspect import inspect_logdir
from ms_summary_bridge.formats.wire import fixed64, length_delimited
from tests.mindspore_run import START, event, scalar, scalars, summary_bytes, summary_name, write_summary
from tests.scripted import build_record, flip_bit, put, scalar_payload, version_payload

RECORDS = [build_record(version_payload("mindspore"))]
RECORDS += [build_record(scalar_payload("mindspore", step)) for step in range(1, 6)]
THIRD = sum(map(len, RECORDS[:3]))  # where the record of step 3 begins


def convert(tmp_path: Path, data: bytes) -> tuple[int, dict[str, Any]]:
    """Converts one file; returns the exit code and the report of its run."""
    put(tmp_path / "ms" / summary_name(), data)
    report = tmp_path / "report.json"
    code = main(["convert", str(tmp_path / "ms"), str(tmp_path / "tb"), "--report", str(report), "--quiet"])
    (run,) = json.loads(report.read_bytes())["runs"]
    return code, run


def steps(tmp_path: Path) -> list[int]:
    """The steps that came out, read back one by one."""
    from ms_summary_bridge.runs.logdir import discover
    from ms_summary_bridge.runs.reading import read_points

    (run,) = discover(tmp_path / "tb").runs
    return [point.step for point in read_points(run)]


def ranges(run: dict[str, Any]) -> list[tuple[str, int, int]]:
    return [(item["file"], item["start"], item["end"]) for item in run["damaged"]]


def without_checksums(record: bytes) -> bytes:
    return record[:8] + bytes(4) + record[12:-4] + bytes(4)


def lying(length: int) -> bytes:
    """A header that claims `length` bytes, with the right checksum, and 40 bytes behind it."""
    return build_record(b"x" * 40, length=length)


MIDDLE = {
    "flipped bit of the value": flip_bit(RECORDS[3], -5, 6),
    "flipped bit of the data checksum": flip_bit(RECORDS[3], -1),
    "flipped bit of the length": flip_bit(RECORDS[3], 0),
    "wrong length checksum": flip_bit(RECORDS[3], 8, 7),
    "zero checksums": without_checksums(RECORDS[3]),
    "length of 2**60": lying(1 << 60),
    "length of 2**63": lying(1 << 63),
    "length beyond the end of the file": lying(100_000),
    "payload that is no event": build_record(b"\x09\x00"),
    "garbage": b"\xab\xcd" * 50,
    "torn": RECORDS[3][:-7],
}


@pytest.mark.parametrize("bad", MIDDLE.values(), ids=MIDDLE)
def test_b03_one_bad_record_in_the_middle(tmp_path: Path, bad: bytes) -> None:
    code, run = convert(tmp_path, b"".join([*RECORDS[:3], bad, *RECORDS[4:]]))
    assert code == 3
    assert steps(tmp_path) == [1, 2, 4, 5]
    assert ranges(run) == [(summary_name(), THIRD, THIRD + len(bad))]
    assert run["events_read"] == 5
    assert run["damaged"][0]["reason"]


@pytest.mark.parametrize("bad", MIDDLE.values(), ids=MIDDLE)
def test_b03_the_printed_report_names_the_bytes(tmp_path: Path, bad: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path / "ms" / summary_name(), b"".join([*RECORDS[:3], bad, *RECORDS[4:]]))
    assert main(["convert", str(tmp_path / "ms"), str(tmp_path / "tb")]) == 3
    assert f"{summary_name()}: bytes {THIRD:,} to {THIRD + len(bad):,}" in capsys.readouterr().out
    assert main(["convert", str(tmp_path / "ms"), str(tmp_path / "tb2"), "--quiet"]) == 3
    assert f"{summary_name()}: bytes {THIRD:,} to {THIRD + len(bad):,}" in capsys.readouterr().err
    assert main(["inspect", str(tmp_path / "ms")]) == 3
    assert f"bytes {THIRD:,} to {THIRD + len(bad):,}" in capsys.readouterr().out


def test_b03_all_checksums_zero_in_every_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path / "ms" / summary_name(), b"".join(map(without_checksums, RECORDS)))
    assert main(["convert", str(tmp_path / "ms"), str(tmp_path / "tb")]) == 1
    error = capsys.readouterr().err
    assert summary_name() in error
    assert "checksum" in error
    write_summary(tmp_path / "ms" / "good", scalars("loss", range(3)))
    assert main(["convert", str(tmp_path / "ms"), str(tmp_path / "tb")]) == 3
    printed = capsys.readouterr().out
    assert "checksum" in printed
    assert "3 values" in printed


def test_b03_bad_last_record_with_a_trusted_length(tmp_path: Path) -> None:
    code, run = convert(tmp_path, b"".join(RECORDS[:5]) + flip_bit(RECORDS[5], -5))
    size = sum(map(len, RECORDS))
    assert (code, ranges(run)) == (3, [(summary_name(), size - len(RECORDS[5]), size)])
    assert steps(tmp_path) == [1, 2, 3, 4]


def test_b03_length_checksum_of_the_first_record(tmp_path: Path) -> None:
    code, run = convert(tmp_path, flip_bit(RECORDS[0], 9) + b"".join(RECORDS[1:]))
    assert (code, ranges(run)) == (3, [(summary_name(), 0, len(RECORDS[0]))])
    assert steps(tmp_path) == [1, 2, 3, 4, 5]


def test_b03_damage_is_told_by_verify(tmp_path: Path) -> None:
    convert(tmp_path, b"".join([*RECORDS[:3], flip_bit(RECORDS[3], -5), *RECORDS[4:]]))
    assert main(["verify", str(tmp_path / "ms"), str(tmp_path / "tb")]) == 3


@pytest.mark.parametrize("keep", [3, 8, 12, 12 + (len(RECORDS[5]) - 16) // 2, len(RECORDS[5]) - 2])
def test_b01_cut_tail_is_incomplete_and_no_fault(tmp_path: Path, keep: int, capsys: pytest.CaptureFixture[str]) -> None:
    base = sum(map(len, RECORDS[:5]))
    code, run = convert(tmp_path, b"".join(RECORDS[:5]) + RECORDS[5][:keep])
    assert (code, run["damaged"]) == (0, [])
    assert run["incomplete"] == [{"file": summary_name(), "offset": base}]
    assert steps(tmp_path) == [1, 2, 3, 4]
    assert main(["convert", str(tmp_path / "ms"), str(tmp_path / "tb")]) == 0
    assert f"{summary_name()}: ends inside a record at byte {base:,}" in capsys.readouterr().out
    code, run = convert(tmp_path, b"".join(RECORDS))
    assert (code, run["events_read"], run["incomplete"]) == (0, 1, [])
    assert steps(tmp_path) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("zeros", [1, 11, 12, 4096, 3 << 20])
def test_zero_padding_is_no_damage(tmp_path: Path, zeros: int) -> None:
    code, run = convert(tmp_path, b"".join(RECORDS) + bytes(zeros))
    assert (code, run["damaged"]) == (0, [])
    assert run["padding_bytes"] == zeros or run["incomplete"]
    assert steps(tmp_path) == [1, 2, 3, 4, 5]
    code, run = convert(tmp_path, b"".join(RECORDS) + bytes(zeros))
    assert (code, run["events_read"]) == (0, 0)
    assert steps(tmp_path) == [1, 2, 3, 4, 5]


def test_zero_padding_that_is_written_over_later(tmp_path: Path) -> None:
    whole = b"".join(RECORDS)
    head = whole[:THIRD]
    convert(tmp_path, head + bytes(len(whole) - len(head)))
    code, run = convert(tmp_path, whole)
    assert (code, run["events_read"], run["damaged"]) == (0, 3, [])
    assert steps(tmp_path) == [1, 2, 3, 4, 5]


def test_torn_record_and_a_cut_one_behind_whole_ones(tmp_path: Path) -> None:
    torn = RECORDS[2][:-5]
    data = b"".join([*RECORDS[:2], torn, *RECORDS[3:5], RECORDS[5][:-3]])
    start = sum(map(len, RECORDS[:2]))
    code, run = convert(tmp_path, data)
    assert (code, ranges(run)) == (3, [(summary_name(), start, start + len(torn))])
    assert run["incomplete"] == [{"file": summary_name(), "offset": len(data) - len(RECORDS[5]) + 3}]
    assert steps(tmp_path) == [1, 3, 4]


def test_several_damaged_ranges_are_all_named(tmp_path: Path) -> None:
    pieces: list[bytes] = [RECORDS[0]]
    expected = []
    for step in range(1, 40):
        record = build_record(scalar_payload("mindspore", step))
        if step % 3 == 0:
            position = sum(map(len, pieces))
            record = flip_bit(record, -6)
            expected.append((summary_name(), position, position + len(record)))
        pieces.append(record)
    code, run = convert(tmp_path, b"".join(pieces))
    assert (code, ranges(run)) == (3, expected)
    assert steps(tmp_path) == [step for step in range(1, 40) if step % 3]


def test_damage_found_while_the_file_grows_is_told_once(tmp_path: Path) -> None:
    whole = b"".join([*RECORDS[:3], flip_bit(RECORDS[3], -5), *RECORDS[4:]])
    seen = []
    for size in range(THIRD - 2, len(whole) + 1, 7):
        _, run = convert(tmp_path, whole[:size])
        seen += ranges(run)
    convert(tmp_path, whole)
    assert steps(tmp_path) == [1, 2, 4, 5]
    assert {start for _, start, _ in seen} == {THIRD}
    assert seen[-1] == (summary_name(), THIRD, THIRD + len(RECORDS[3]))


def test_b07_thirty_thousand_points_without_sampling(tmp_path: Path) -> None:
    tag = "train/" + "x" * 40 + "/loss"
    data = summary_bytes(event(step, (tag, scalar(step % 97)), wall_time=START + step) for step in range(30_000))
    assert len(data) > 2 << 20
    code, run = convert(tmp_path, data)
    assert (code, run["values"]) == (0, {"scalar": 30_000})
    (inspected,) = inspect_logdir(str(tmp_path / "tb")).runs
    (series,) = inspected.tags
    assert (series.points, series.first_step, series.last_step) == (30_000, 0, 29_999)


def test_b07_record_of_seventy_mebibytes_and_what_follows_it(tmp_path: Path) -> None:
    graph = fixed64(b"\x09", START) + length_delimited(b"\x22", bytes(70 << 20))
    code, run = convert(tmp_path, b"".join([RECORDS[0], build_record(graph), RECORDS[2]]))
    assert (code, run["values"]) == (0, {"graph": 1, "scalar": 1})
    assert [loss["kind"] for loss in run["losses"]] in (["graph"], [])
    assert 2 in steps(tmp_path)
    assert main(["verify", str(tmp_path / "ms"), str(tmp_path / "tb")]) == 0


def test_huge_length_costs_no_memory(tmp_path: Path) -> None:
    import tracemalloc

    tail = struct.pack("<Q", 1 << 40)
    put(tmp_path / "ms" / summary_name(), b"".join(RECORDS[:3]) + build_record(b"x" * 40, length=len(tail) << 36))
    tracemalloc.start()
    try:
        code = main(["convert", str(tmp_path / "ms"), str(tmp_path / "tb"), "--quiet"])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert code == 3
    assert peak < 16 << 20
    assert steps(tmp_path) == [1, 2]
