"""verify calls every right conversion equal, however it came about, and every gutted output different."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ms_summary_bridge.cli.app import main
from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.convert.state import STATE_NAME, load_state
from ms_summary_bridge.convert.task import ConvertOptions
from ms_summary_bridge.convert.verify import Difference, VerifyReport, verify_logdirs
from ms_summary_bridge.errors import NoEventsError
from ms_summary_bridge.events import Event
from ms_summary_bridge.files.event_file import read_pieces
from ms_summary_bridge.files.file_names import archive_name
from ms_summary_bridge.files.records import Record, encode_record
from ms_summary_bridge.formats import plugin_data
from ms_summary_bridge.formats.wire import FLOAT32, fixed64, length_delimited
from ms_summary_bridge.runs.archive import make_decoder
from tests.follow_script import FollowScript
from tests.log_samples import MINDSPORE_LOGS, TENSORBOARD_LOGS, LogMaker, copy_golden
from tests.mindspore_run import START, event, histogram, scalar, tensor, write_summary
from tests.scripted import build_file, build_record, put, scalar_payload, tensorboard_name, version_payload

LOGS = [("tensorboard", name, make) for name, make in MINDSPORE_LOGS.items()]
LOGS += [("mindinsight", name, make) for name, make in TENSORBOARD_LOGS.items()]
every_log = pytest.mark.parametrize(("to", "make"), [(to, make) for to, _, make in LOGS], ids=[row[1] for row in LOGS])


def differences(report: VerifyReport) -> list[Difference | str]:
    rows: list[Difference | str] = [item for run in report.runs for item in run.differences]
    return rows + [f"only in A: {name}" for name in report.only_a] + [f"only in B: {name}" for name in report.only_b]


def assert_equal(a: Path, b: Path) -> None:
    for one, other in ((a, b), (b, a)):
        report = verify_logdirs(str(one), str(other))
        assert differences(report) == []
        assert report.runs


def event_files(top: Path) -> dict[Path, bytes]:
    return {path.relative_to(top): path.read_bytes() for path in sorted(top.rglob("*")) if path.is_file()}


def grow(files: dict[Path, bytes], top: Path, part: int, parts: int) -> None:
    """Lets all files grow at once, each cut anywhere."""
    for path, data in files.items():
        whole = path.suffix == ".pb"
        put(top / path, data if whole else data[: len(data) * part // parts])


# --- right conversions


@every_log
@pytest.mark.parametrize("options", [ConvertOptions(), ConvertOptions(keep_archive=False)], ids=["archive", "none"])
def test_there_and_back(tmp_path: Path, to: str, make: LogMaker, options: ConvertOptions) -> None:
    make(tmp_path / "source")
    convert_logdir(str(tmp_path / "source"), str(tmp_path / "there"), to=to, options=options)
    assert_equal(tmp_path / "source", tmp_path / "there")
    back = "mindinsight" if to == "tensorboard" else "tensorboard"
    convert_logdir(str(tmp_path / "there"), str(tmp_path / "back"), to=back)
    if any((tmp_path / "back").rglob("events.out.*")):
        assert_equal(tmp_path / "there", tmp_path / "back")
    if options.keep_archive:
        assert_equal(tmp_path / "source", tmp_path / "back")


@every_log
@pytest.mark.parametrize("on_restart", ["mark", "latest"])
def test_appends(tmp_path: Path, to: str, make: LogMaker, on_restart: str) -> None:
    make(tmp_path / "whole")
    files = event_files(tmp_path / "whole")
    options = ConvertOptions(on_restart=on_restart)  # type: ignore[arg-type]
    for part in range(3, 8):
        grow(files, tmp_path / "source", part, 7)
        convert_logdir(str(tmp_path / "source"), str(tmp_path / "output"), to=to, options=options)
        assert_equal(tmp_path / "source", tmp_path / "output")


@every_log
def test_following_files_that_grow_at_once(tmp_path: Path, to: str, make: LogMaker) -> None:
    make(tmp_path / "whole")
    files = event_files(tmp_path / "whole")
    (tmp_path / "source").mkdir()
    rounds = [lambda part=part: grow(files, tmp_path / "source", part, 8) for part in range(1, 9)]  # type: ignore[misc]
    script = FollowScript(*rounds).follow(tmp_path / "source", tmp_path / "output", to=to)
    assert script.total is not None
    assert_equal(tmp_path / "source", tmp_path / "output")


@every_log
def test_a_destination_inside_the_source(tmp_path: Path, to: str, make: LogMaker) -> None:
    make(tmp_path / "source")
    for _ in range(2):
        convert_logdir(str(tmp_path / "source"), str(tmp_path / "source" / "output"), to=to)
        assert_equal(tmp_path / "source", tmp_path / "source" / "output")


@every_log
def test_a_destination_that_is_the_source(tmp_path: Path, to: str, make: LogMaker) -> None:
    make(tmp_path / "source")
    convert_logdir(str(tmp_path / "source"), str(tmp_path / "source"), to=to)
    assert_equal(tmp_path / "source", tmp_path / "source")


@every_log
def test_workers_and_a_lost_state(tmp_path: Path, to: str, make: LogMaker) -> None:
    make(tmp_path / "source" / "one")
    make(tmp_path / "source" / "two")
    convert_logdir(str(tmp_path / "source"), str(tmp_path / "output"), to=to, workers=2)
    assert_equal(tmp_path / "source", tmp_path / "output")
    (tmp_path / "output" / STATE_NAME).unlink()
    assert_equal(tmp_path / "source", tmp_path / "output")


@pytest.mark.parametrize("to", ["tensorboard", "mindinsight"])
def test_a_mixed_tree(tmp_path: Path, to: str) -> None:
    MINDSPORE_LOGS["ranks and other files"](tmp_path / "source" / "ms")
    TENSORBOARD_LOGS["a tree with other files"](tmp_path / "source" / "tb")
    convert_logdir(str(tmp_path / "source"), str(tmp_path / "source" / "output"), to=to)
    assert_equal(tmp_path / "source", tmp_path / "source" / "output")
    report = verify_logdirs(str(tmp_path / "source"), str(tmp_path / "source" / "output"))
    assert any(name.startswith("tb" if to == "tensorboard" else "ms") for name in report.left_out)


def test_a_run_below_both_sides(tmp_path: Path) -> None:
    for name in ("a/one", "a/two", "b"):
        MINDSPORE_LOGS["every kind under one tag"](tmp_path / "source" / name)
    options = ConvertOptions(keep_archive=False)
    convert_logdir(str(tmp_path / "source"), str(tmp_path / "output"), options=options)
    for part in ("a", "a/two", "b"):
        assert_equal(tmp_path / "source" / part, tmp_path / "output" / part)


def test_turns_beyond_what_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ms_summary_bridge.convert.state._MOST_TURNS", 20)
    MINDSPORE_LOGS["two writers at once"](tmp_path / "whole")
    files = event_files(tmp_path / "whole")
    for part in range(1, 9):
        grow(files, tmp_path / "source", part, 8)
        convert_logdir(str(tmp_path / "source"), str(tmp_path / "output"))
    assert load_state(str(tmp_path / "output")).runs["."].list_turns() is None
    assert_equal(tmp_path / "source", tmp_path / "output")
    later = write_summary(tmp_path / "other", [event(9, ("val/loss", scalar(9)))], seconds=START + 1)
    shutil.copy(later, tmp_path / "source" / later.name)
    assert differences(verify_logdirs(str(tmp_path / "source"), str(tmp_path / "output"))) != []


def test_a_state_from_before_the_turns(tmp_path: Path) -> None:
    MINDSPORE_LOGS["every kind under one tag"](tmp_path / "source")
    convert_logdir(str(tmp_path / "source"), str(tmp_path / "output"))
    state = tmp_path / "output" / STATE_NAME
    lines = [line for line in state.read_text().splitlines() if "checksum" not in line and '"turns"' not in line]
    state.write_text("\n".join(lines))
    assert_equal(tmp_path / "source", tmp_path / "output")


def test_values_made_by_older_rules_are_counted_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    MINDSPORE_LOGS["every kind under one tag"](tmp_path / "source")
    convert_logdir(str(tmp_path / "source"), str(tmp_path / "output"))
    made = verify_logdirs(str(tmp_path / "source"), str(tmp_path / "output")).runs[0].derived
    for module in ("formats.plugin_data", "convert.verify.made"):
        monkeypatch.setattr(f"ms_summary_bridge.{module}.DERIVATION", plugin_data.DERIVATION + 1)
    (run,) = verify_logdirs(str(tmp_path / "source"), str(tmp_path / "output")).runs
    assert (run.differences, run.derived, run.derived_by_older) == ([], 0, made)
    assert main(["verify", str(tmp_path / "source"), str(tmp_path / "output")]) == 0
    assert f"{made} derived values were made by an older version" in capsys.readouterr().out
    keep_events(tmp_path / "output", lambda event: event.step != 1)
    assert differences(verify_logdirs(str(tmp_path / "source"), str(tmp_path / "output"))) != []


# --- gutted outputs


def keep_events(output: Path, is_kept: Callable[[Event], bool], times: int = 0) -> None:
    """Writes the event files of an output anew; records that are not kept stand there so many times."""
    for path in sorted(output.rglob("events.out.*")):
        source = "tensorboard" if "tfevents" in path.name else "mindspore"
        if path.name.endswith("_lineage"):
            source = "mindspore_lineage"
        decoder = make_decoder(source)
        payloads = [piece.payload for piece in read_pieces(path) if isinstance(piece, Record)]
        records = [encode_record(p) * (1 if is_kept(decoder.decode(p)) else times) for p in payloads]
        path.write_bytes(b"".join(records))


def kinds_of(event: Event) -> set[str]:
    values = getattr(event.content, "values", ())
    return {tagged.value.kind for tagged in values} | {event.content.kind}


GUTTED = [
    *[("tensorboard", kind) for kind in ("graph", "text", "hparams", "histogram", "image", "scalar")],
    *[("mindinsight", kind) for kind in ("graph", "tensor", "histogram", "scalar")],
]


def full_log(top: Path, to: str) -> Path:
    if to == "tensorboard":
        MINDSPORE_LOGS["a real training"](top)
    else:
        TENSORBOARD_LOGS["every plugin"](top)
        copy_golden(top, "tensorboardx-2.6.5", tensorboard_name(START + 1))
    return top


@pytest.mark.parametrize("has_state", [True, False], ids=["state", "no state"])
@pytest.mark.parametrize("times", [0, 2], ids=["removed", "doubled"])
@pytest.mark.parametrize(("to", "kind"), GUTTED)
def test_a_kind_that_is_removed_or_doubled(tmp_path: Path, to: str, kind: str, times: int, has_state: bool) -> None:
    source = full_log(tmp_path / "source", to)
    convert_logdir(str(source), str(tmp_path / "output"), to=to)
    if not has_state:
        (tmp_path / "output" / STATE_NAME).unlink()
    before = event_files(tmp_path / "output")
    keep_events(tmp_path / "output", lambda event: kind not in kinds_of(event), times)
    assert event_files(tmp_path / "output") != before
    found = differences(verify_logdirs(str(source), str(tmp_path / "output")))
    assert found
    assert all(isinstance(row, Difference) and row.detail for row in found)


@pytest.mark.parametrize("has_state", [True, False], ids=["state", "no state"])
@pytest.mark.parametrize("to", ["tensorboard", "mindinsight"])
@pytest.mark.parametrize("size", [None, 0, 40])
def test_an_archive_alone_is_no_output(tmp_path: Path, to: str, size: int | None, has_state: bool) -> None:
    source = full_log(tmp_path / "source", to)
    convert_logdir(str(source), str(tmp_path / "output"), to=to)
    if not has_state:
        (tmp_path / "output" / STATE_NAME).unlink()
    for path in (tmp_path / "output").rglob("events.out.*"):
        if size is None:
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[:size])
    try:
        found = differences(verify_logdirs(str(source), str(tmp_path / "output")))
    except NoEventsError:
        return
    assert found


def test_a_difference_names_run_tag_kind_and_step(tmp_path: Path) -> None:
    rows = [event(s, ("h", histogram([1, s], nan=1)), ("t", tensor([s]))) for s in range(4)]
    write_summary(tmp_path / "source" / "a", rows)
    write_summary(tmp_path / "source" / "b", [event(s, ("loss", scalar(s))) for s in range(4)])
    convert_logdir(str(tmp_path / "source"), str(tmp_path / "output"))
    keep_events(tmp_path / "output" / "a", lambda event: event.step != 2)
    report = verify_logdirs(str(tmp_path / "source"), str(tmp_path / "output"))
    assert [(run.run_a, len(run.differences)) for run in report.runs] == [("a", 2), ("b", 0)]
    rows_found = {(row.kind, row.tag): row.detail for row in report.runs[0].differences}
    assert rows_found == {
        ("histogram", "h"): "point 2: step 2 in A, 3 in B; at step 2 its original is in the archive, but what stands "
        "for it is not in B",
        ("tensor", "t"): "point 2: step 2 in A, 3 in B; at step 2 its original is in the archive, but what stands for "
        "it is not in B",
    }


def test_a_changed_drawing_is_named(tmp_path: Path) -> None:
    write_summary(tmp_path / "source", [event(s, ("h", histogram([1, s], nan=s))) for s in range(1, 4)])
    convert_logdir(str(tmp_path / "source"), str(tmp_path / "output"))
    (path,) = (tmp_path / "output").glob("*tfevents*")
    payloads = [piece.payload for piece in read_pieces(path) if isinstance(piece, Record)]
    name = length_delimited(b"\x0a", b"h/nan_count")
    changed = [p.replace(name + b"\x15" + b"\x00\x00\x00\x40", name + b"\x15" + b"\x00\x00\x40\x40") for p in payloads]
    assert changed != payloads
    path.write_bytes(b"".join(map(encode_record, changed)))
    (row,) = differences(verify_logdirs(str(tmp_path / "source"), str(tmp_path / "output")))
    assert isinstance(row, Difference)
    assert (row.kind, row.tag) == ("scalar", "h")
    assert row.detail == "'as h/nan_count', which is made from others: point 1: step 2: the values differ"


def test_bytes_that_nothing_else_tells_of_are_named_by_their_file(tmp_path: Path) -> None:
    put(tmp_path / "source" / tensorboard_name(), build_file("tensorboard", range(3)))
    convert_logdir(str(tmp_path / "source"), str(tmp_path / "output"), to="mindinsight")
    path = tmp_path / "output" / archive_name("tensorboard")
    payloads = [piece.payload for piece in read_pieces(path) if isinstance(piece, Record)]
    payloads[0] = payloads[0][:8] + bytes([payloads[0][8] ^ 1]) + payloads[0][9:]  # when the archive was begun
    path.write_bytes(b"".join(map(encode_record, payloads)))
    (row,) = differences(verify_logdirs(str(tmp_path / "source"), str(tmp_path / "output")))
    assert row == Difference("file", path.name, 0, 0, "its bytes are not those that were written")


ROUNDED = FLOAT32.pack(0.1)
SCALARS = length_delimited(b"\x4a", length_delimited(b"\x0a", length_delimited(b"\x0a", b"scalars")))
TWINS = {
    "f": b"\x15" + ROUNDED,
    "d": SCALARS + length_delimited(b"\x42", b"\x08\x02\x12\x00" + fixed64(b"\x31", 0.1)),
}


def twins_log(top: Path, order: str) -> Path:
    """Floats of 32 bits and of 64 that round to them, at one step and time: alike in a summary file."""
    payloads = [version_payload("tensorboard"), *(scalar_payload("tensorboard", step) for step in (1, 2))]
    for letter in order:
        message = length_delimited(b"\x0a", b"twin") + TWINS[letter]
        head = fixed64(b"\x09", START + 3.0) + b"\x10\x03"
        payloads.append(head + length_delimited(b"\x2a", length_delimited(b"\x0a", message)))
    payloads.append(scalar_payload("tensorboard", 4))
    put(top / tensorboard_name(), b"".join(map(build_record, payloads)))
    return top


@pytest.mark.parametrize("has_state", [True, False], ids=["state", "no state"])
@pytest.mark.parametrize("order", ["fd", "df", "fdf", "dfd", "fdfd"])
def test_of_two_events_alike_the_original_of_each_is_its_own(tmp_path: Path, order: str, has_state: bool) -> None:
    source = twins_log(tmp_path / "source", order)
    (run,) = convert_logdir(str(source), str(tmp_path / "output")).runs
    assert run.archived == order.count("d")
    if not has_state:
        (tmp_path / "output" / STATE_NAME).unlink()
    assert_equal(source, tmp_path / "output")


def test_a_missing_event_costs_two_alike_nothing(tmp_path: Path) -> None:
    source = twins_log(tmp_path / "source", "fd")
    convert_logdir(str(source), str(tmp_path / "output"))
    keep_events(tmp_path / "output", lambda event: event.step != 1)
    (row,) = differences(verify_logdirs(str(source), str(tmp_path / "output")))
    assert isinstance(row, Difference)
    assert row.tag == "loss"
