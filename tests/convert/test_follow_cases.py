"""Kinds of failure that people met in public, by their numbers, under a follower and in both directions."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.convert.task import ConvertOptions
from ms_summary_bridge.convert.verify import verify_logdirs
from ms_summary_bridge.events import Event, SessionLog, Summary
from ms_summary_bridge.files.event_file import EventFileReader
from ms_summary_bridge.runs.archive import make_decoder
from ms_summary_bridge.values import Scalar
from tests.conftest import TensorBoardServer
from tests.convert.test_cases import odd_tree
from tests.convert.test_convert import contents
from tests.convert.test_to_mindinsight import session_start
from tests.follow_script import FollowScript, nothing
from tests.mindspore_run import START, scalars, write_summary
from tests.scripted import (
    FORMATS,
    build_file,
    build_record,
    mindspore_name,
    put,
    scalar_payload,
    tensorboard_name,
    version_payload,
)

both_formats = pytest.mark.parametrize("source_format", FORMATS)


def source_name(source_format: str, seconds: int = START) -> str:
    return mindspore_name(seconds) if source_format == "mindspore" else tensorboard_name(seconds)


def points_of(directory: Path, source_format: str) -> list[tuple[int, float]]:
    """Returns the scalars in the output of a source of that format, in the order in which a viewer reads its files."""
    target, pattern = ("tensorboard", "*tfevents*") if source_format == "mindspore" else ("mindspore", "*_MS")
    return [
        (item.step, tagged.value.value)
        for path in sorted(directory.glob(pattern))
        for item in EventFileReader(path, make_decoder(target))
        if isinstance(item, Event) and isinstance(item.content, Summary)
        for tagged in item.content.values
        if isinstance(tagged.value, Scalar)
    ]


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


# --- B01: a tail that is cut, and a file that is replaced

LAST = {name: build_record(scalar_payload(name, 6)) for name in FORMATS}


@both_formats
@pytest.mark.parametrize("keep", [3, 8, 12, 12 + 9, -2], ids=["length", "8", "checksum", "body", "last checksum"])
def test_b01_a_cut_record_is_waited_for_and_comes_once(tmp_path: Path, source_format: str, keep: int) -> None:
    path = tmp_path / "in" / source_name(source_format)
    last = LAST[source_format]
    put(path, build_file(source_format, range(1, 6)) + last[:keep])
    size = path.stat().st_size
    script = FollowScript(nothing, nothing, lambda: append(path, last[keep:])).follow(tmp_path / "in", tmp_path / "out")
    first, second = (report.runs[0] for report in script.reports)
    assert [(tail.file, tail.offset) for tail in first.incomplete] == [(path.name, size - len(last[:keep]))]
    assert (first.damaged, second.damaged) == ([], [])
    assert (sum(first.values.values()), sum(second.values.values()), second.events_read) == (5, 1, 1)
    assert points_of(tmp_path / "out", source_format) == [(step, float(step)) for step in range(1, 7)]
    assert script.total is not None
    assert script.total.runs[0].incomplete == []


@both_formats
def test_b01_a_file_that_is_replaced_by_a_longer_copy_goes_on(tmp_path: Path, source_format: str) -> None:
    path = put(tmp_path / "in" / source_name(source_format), build_file(source_format, range(1, 5)))
    copy = put(tmp_path / "copy", build_file(source_format, range(1, 9)))
    FollowScript(nothing, lambda: os.replace(copy, path)).follow(tmp_path / "in", tmp_path / "out")
    assert points_of(tmp_path / "out", source_format) == [(step, float(step)) for step in range(1, 9)]


@both_formats
def test_b01_a_file_that_is_replaced_by_another_is_read_from_its_start(tmp_path: Path, source_format: str) -> None:
    path = put(tmp_path / "in" / source_name(source_format), build_file(source_format, range(1, 5)))
    head = build_record(version_payload(source_format))
    other = put(tmp_path / "other", head + build_record(scalar_payload(source_format, 1, 9.0)))
    put(tmp_path / "in" / "beside" / source_name(source_format), build_file(source_format, range(3)))
    script = FollowScript(nothing, lambda: os.replace(other, path), nothing, path.unlink)
    script.follow(tmp_path / "in", tmp_path / "out")
    assert any(
        f"{path.name}: was replaced or cut since the last conversion, read from its start" in problem
        for problem in script.problems
    )
    assert points_of(tmp_path / "out", source_format)[-1] == (1, 9.0)
    assert points_of(tmp_path / "out" / "beside", source_format) == [(step, float(step)) for step in range(3)]
    assert script.reports[-1].notes == [".: is gone from the source, or empty; what was converted of it stays"]


@both_formats
@pytest.mark.parametrize("steps", [range(1, 3), range(3, 12)], ids=["cut", "replaced"])
def test_b01_a_source_that_is_cut_or_replaced_starts_a_new_output_file(
    tmp_path: Path, source_format: str, steps: range
) -> None:
    path = put(tmp_path / "in" / source_name(source_format), build_file(source_format, range(1, 5)))
    before: dict[str, bytes] = {}
    script = FollowScript(
        nothing,
        lambda: before.update(contents(tmp_path / "out")),
        lambda: put(path, build_file(source_format, steps)),
    ).follow(tmp_path / "in", tmp_path / "out")
    assert any("was replaced or cut" in problem for problem in script.problems)
    after = contents(tmp_path / "out")
    (first,) = (name for name in before if "events" in name)
    (second,) = (name for name in after if "events" in name and name not in before)
    assert after[first] == before[first]
    assert first < second  # a viewer reads it later
    expected = [(step, float(step)) for step in (*range(1, 5), *steps)]
    assert points_of(tmp_path / "out", source_format) == expected


# --- B04: restarts from a checkpoint

SESSIONS = (range(0, 151, 10), range(100, 181, 10), range(160, 201, 10))
NEWEST = [
    *((step, 100.0 + step) for step in range(0, 100, 10)),
    *((step, 200.0 + step) for step in range(100, 160, 10)),
    *((step, 300.0 + step) for step in range(160, 201, 10)),
]


def session(source_format: str, number: int, *, is_marked: bool = False) -> tuple[str, bytes]:
    """Returns name and bytes of one session's file."""
    start = START + 1000 * number
    head = build_record(version_payload(source_format, wall_time=start))
    if is_marked:
        head += session_start(SESSIONS[number][0], start)
    records = [
        build_record(scalar_payload(source_format, step, 100.0 * (number + 1) + step, wall_time=start + step))
        for step in SESSIONS[number]
    ]
    return source_name(source_format, start), head + b"".join(records)


def follow_sessions(tmp_path: Path, source_format: str, *, is_marked: bool = False, **options: object) -> FollowScript:
    """Follows a run in which one session after the other begins, the later ones in two pieces."""
    actions: list[Callable[[], object]] = []
    for number in range(3):
        name, data = session(source_format, number, is_marked=is_marked and number > 0)
        path = tmp_path / "in" / "run" / name
        cut = len(data) * 2 // 3
        actions += [lambda path=path, data=data[:cut]: put(path, data), nothing]  # type: ignore[misc]
        actions += [lambda path=path, data=data[cut:]: append(path, data)]  # type: ignore[misc]
    return FollowScript(*actions).follow(tmp_path / "in", tmp_path / "out", **options)


@pytest.mark.parametrize(
    ("source_format", "is_marked"), [("mindspore", False), ("tensorboard", False), ("tensorboard", True)]
)
def test_b04_every_session_begins_a_later_file(tmp_path: Path, source_format: str, is_marked: bool) -> None:
    script = follow_sessions(tmp_path, source_format, is_marked=is_marked)
    assert script.total is not None
    assert [mark.step for mark in script.total.runs[0].restarts] == [100, 160]
    expected = [(step, 100.0 * (n + 1) + step) for n, steps in enumerate(SESSIONS) for step in steps]
    assert points_of(tmp_path / "out" / "run", source_format) == expected
    convert_logdir(str(tmp_path / "in"), str(tmp_path / "once"))
    assert contents(tmp_path / "out") == contents(tmp_path / "once")
    if source_format == "mindspore":
        heads = []
        for path in sorted((tmp_path / "out" / "run").glob("*tfevents*")):
            items = list(EventFileReader(path, make_decoder("tensorboard")))
            marks = [item for item in items if isinstance(item, Event) and isinstance(item.content, SessionLog)]
            assert items[1 : len(marks) + 1] == marks
            heads.append([(mark.step, mark.content.status) for mark in marks])  # type: ignore[union-attr]
        start = SessionLog.START
        assert heads == [[], [(100, start), (100, start)], [(160, start)]]


@pytest.mark.tensorboard
@pytest.mark.parametrize("load_fast", [True, False], ids=["fast", "slow"])
def test_b04_tensorboard_shows_the_newest_of_what_was_followed(
    tmp_path: Path, tensorboard_server: TensorBoardServer, load_fast: bool
) -> None:
    follow_sessions(tmp_path, "mindspore")
    client = tensorboard_server(tmp_path / "out", load_fast)
    rows = client.wait_json("data/plugin/scalars/scalars", lambda rows: len(rows) >= len(NEWEST), run="run", tag="loss")
    assert [(row[1], row[2]) for row in rows] == NEWEST


@pytest.mark.tensorboard
@pytest.mark.parametrize("load_fast", [True, False], ids=["fast", "slow"])
def test_b04_a_running_tensorboard_shows_a_restart_as_it_is_followed(
    tmp_path: Path, tensorboard_server: TensorBoardServer, load_fast: bool
) -> None:
    """And tags on another scale, which are no restart, hide nothing."""
    run = tmp_path / "in" / "run"
    asked: list[list[tuple[int, float]]] = []

    def ask(tag: str, expected: list[tuple[int, float]]) -> None:
        rows = client.wait_json(
            "data/plugin/scalars/scalars",
            lambda rows: [(row[1], row[2]) for row in rows] == expected,
            run="run",
            tag=tag,
        )
        asked.append([(row[1], row[2]) for row in rows])

    (tmp_path / "out").mkdir()
    client = tensorboard_server(tmp_path / "out", load_fast)
    train = [(step, float(step)) for step in range(100)]
    again = [*train[:50], *((step, step + 0.5) for step in range(50, 60))]
    FollowScript(
        lambda: write_summary(run, scalars("loss", range(100))),
        lambda: write_summary(run, scalars("accuracy", range(3), start=START + 500), seconds=START + 500),
        *[nothing] * 4,
        lambda: ask("accuracy", [(0, 0.0), (1, 1.0), (2, 2.0)]),
        lambda: ask("loss", train),
        lambda: write_summary(run, scalars("loss", range(50, 60), offset=0.5), seconds=START + 1000),
        nothing,
        lambda: ask("loss", again),
        lambda: ask("accuracy", [(0, 0.0), (1, 1.0), (2, 2.0)]),
        rest=0,
    ).follow(tmp_path / "in", tmp_path / "out")
    assert len(asked) == 4


@both_formats
def test_b04_latest_leaves_out_what_was_superseded_before_it_was_met(tmp_path: Path, source_format: str) -> None:
    for number in range(3):
        name, data = session(source_format, number)
        put(tmp_path / "in" / "run" / name, data)
    script = FollowScript().follow(tmp_path / "in", tmp_path / "out", options=ConvertOptions(on_restart="latest"))
    assert points_of(tmp_path / "out" / "run", source_format) == NEWEST
    assert script.total is not None
    assert script.total.runs[0].superseded == 30 - len(NEWEST)


@both_formats
def test_b04_latest_keeps_what_it_cannot_take_back_and_says_so(tmp_path: Path, source_format: str) -> None:
    script = follow_sessions(tmp_path, source_format, options=ConvertOptions(on_restart="latest"))
    assert len(points_of(tmp_path / "out" / "run", source_format)) == 30
    assert sum("--force leaves them out" in problem for problem in script.problems) == 2


# --- B06: odd files in the tree


@both_formats
def test_b06_odd_files_make_no_runs_and_end_nothing(tmp_path: Path, source_format: str) -> None:
    tree = tmp_path / "tree"
    name = source_name(source_format)
    if source_format == "mindspore":
        odd_tree(tree)
        good = {"ms": 1, "closed": 1}
    else:
        put(tree / "good" / name, build_file(source_format, [1, 2, 3]))
        put(
            tree / "good" / f"{tensorboard_name(START + 1, 'host')}.profile-empty",
            build_record(version_payload(source_format)),
        )
        put(tree / "closed" / name, build_file(source_format, [1])).chmod(0o400)
        put(tree / "zero" / name, b"")
        put(tree / "version_only" / name, build_record(version_payload(source_format)))
        put(tree / "text" / "events.out.tfevents.notes.txt", b"this is not an event file\n")
        (tree / "named_like_events" / name).mkdir(parents=True)
        (tree / "loop").symlink_to(tree)
        good = {"good": 3, "closed": 1}

    def grow_and_close_outputs() -> None:
        put(tree / "zero" / name, build_file(source_format, [4, 5]))
        for path in (tmp_path / "out").rglob("events*"):
            path.chmod(0o400)

    script = FollowScript(nothing, grow_and_close_outputs).follow(tree, tmp_path / "out")
    assert script.total is not None
    assert {run.run: sum(run.values.values()) for run in script.total.runs} == {**good, "zero": 2}
    assert script.total.is_partial
    assert [line.rpartition("/")[2].split(":")[0] for line in script.total.unreadable if "notes" in line] == [
        "events.out.tfevents.notes.txt"
    ]
    assert len(script.reports) == 2, "what is odd is told once"
    for run in script.total.runs:
        assert verify_logdirs(str(tree / run.run), run.destination).is_equal
