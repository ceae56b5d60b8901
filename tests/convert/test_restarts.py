"""What a restart is, and that its mark hides nothing in TensorBoard but what is replaced.

TensorBoard's slow loader is asked in this process, for each generated run; its data server, the fast one, once for all.
"""

from __future__ import annotations

import itertools
import math
import os
import tempfile
from collections import defaultdict
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import event as note
from hypothesis import given, settings
from hypothesis import strategies as st

from ms_summary_bridge.batches.shapes import Shapes
from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.convert.restarts import FileWalk
from ms_summary_bridge.convert.series import Series, SeriesTable
from ms_summary_bridge.convert.task import ConvertOptions
from ms_summary_bridge.events import Event, SessionLog, Summary
from ms_summary_bridge.files.event_file import EventFileReader
from ms_summary_bridge.files.records import encode_record
from ms_summary_bridge.formats.mindspore import MindSporeDecoder
from ms_summary_bridge.formats.protos import ms_pb
from ms_summary_bridge.formats.wire import fixed64
from ms_summary_bridge.runs.archive import make_decoder
from ms_summary_bridge.runs.report import RunReport
from ms_summary_bridge.values import Opaque, Scalar
from tests.codec_contract import scalar_event
from tests.conftest import TensorBoardServer
from tests.follow_script import FollowScript, nothing
from tests.formats.test_lineage import train_event
from tests.mindspore_run import START, event, histogram, scalar, summary_bytes, summary_name, write_summary


def graph(wall_time: float) -> Event:
    """Returns a graph of one node."""
    message = ms_pb.Event(wall_time=wall_time)
    node = message.graph_def.node.add(name="1", op_type="Add", scope="Default", full_name="Default/Add-op1")
    node.output_type.data_type = 43
    return MindSporeDecoder().decode(message.SerializeToString())


NO_AHEAD: Any = None
"""A file that is decided is read without one."""

Key = tuple[str, str]
"""Plugin and tag, as TensorBoard names a series."""


def convert(source: Path, destination: Path, **options: Any) -> RunReport:
    (run,) = convert_logdir(str(source), str(destination), to="tensorboard", options=ConvertOptions(**options)).runs
    assert run.failed == ""
    return run


def marks(directory: Path) -> list[tuple[str, int]]:
    """Returns the files and steps of the marks in an output."""
    return [
        (path.name.rsplit(".", 1)[1], item.step)
        for path in sorted(directory.glob("*tfevents*"))
        for item in EventFileReader(path, make_decoder("tensorboard"))
        if isinstance(item, Event) and isinstance(item.content, SessionLog)
    ]


def slow_series(directory: Path) -> dict[str, list[int]]:
    """Returns the steps of every tag that TensorBoard's slow loader has, the empty ones too."""
    from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(directory), size_guidance={"tensors": 0}).Reload()
    found = {tag: [row.step for row in accumulator.Tensors(tag)] for tag in accumulator.Tags()["tensors"]}
    return {tag: found.get(tag, []) for tag in {*found, *accumulator.AllSummaryMetadata()}}


# --- generated runs


class SourceFile(msgspec.Struct):
    """One summary file: when it was begun, and its events."""

    begun: float
    events: list[Event]


@st.composite
def source_files(draw: st.DrawFn) -> list[SourceFile]:
    """Files of one run: trainings that go on, that begin again, and what others write beside them or after them."""
    files: list[SourceFile] = []
    now = float(START)
    tags = ["a", "b", "c"]
    for _ in range(draw(st.integers(1, 4))):
        overlaps = bool(files) and draw(st.integers(0, 4)) == 0
        begun = now - 17.5 if overlaps else now + 10
        chosen = draw(st.lists(st.sampled_from(tags), min_size=1, unique=True))
        at_once = draw(st.booleans())
        step, stride = draw(st.integers(-1, 12)), draw(st.integers(1, 3))
        found: list[Event] = []
        if draw(st.integers(0, 3)) == 0:
            found.append(graph(begun + 0.1))
        for number in range(draw(st.sampled_from([1, 1, 3, 6, 9]))):
            here = [tag for tag in chosen if draw(st.integers(0, 5))] or chosen[:1]
            rows = [(tag, scalar(len(files) * 1000 + number)) for tag in here]
            if draw(st.integers(0, 3)) == 0:
                rows.append(("h", histogram([1, 2], nan=draw(st.integers(0, 1)))))  # type: ignore[arg-type]
            time = begun + 1 + number
            at = step if draw(st.integers(0, 9)) else step - 2  # a tag that goes back
            if at_once:
                found.append(event(at, *rows, wall_time=time))
            else:
                found += [event(at, row, wall_time=time) for row in rows]
            step += stride
        files.append(SourceFile(begun, found))
        now = max(now, begun + 20)
    return files


def write_files(directory: Path, files: Sequence[SourceFile]) -> None:
    directory.mkdir(parents=True)
    for number, file in enumerate(files):
        name = f"{number}.{summary_name(seconds=int(file.begun))}"
        (directory / name).write_bytes(summary_bytes(file.events, wall_time=file.begun))


def points_of(item: Event) -> list[Key]:
    """Returns the series of TensorBoard's that an event becomes points of."""
    if not isinstance(item.content, Summary):
        return [("graphs", "__run_graph__")]
    keys: list[Key] = []
    for tagged in item.content.values:
        if isinstance(tagged.value, Scalar):
            keys.append(("scalars", tagged.tag))
        else:
            keys.append(("histograms", tagged.tag))
            if tagged.value.nan_count:  # type: ignore[union-attr]
                keys.append(("scalars", f"{tagged.tag}/nan_count"))
    return keys


def current_steps(files: Sequence[SourceFile]) -> dict[Key, list[int]]:
    """Returns the steps of each series that no later-written point at the same or a lower step replaces."""
    written: dict[Key, list[int]] = defaultdict(list)
    for item in itertools.chain.from_iterable(file.events for file in files):
        for key in points_of(item):
            written[key] = [step for step in written[key] if step < item.step] + [item.step]
    return written


class Begun(NamedTuple):
    """A file that is a restart by the letter of the rule."""

    number: int
    step: int
    is_head: bool
    """What stands before it goes back are tags without a past, at the same step."""


def restarts_of(files: Sequence[SourceFile], marked: Collection[int]) -> list[Begun]:
    """Returns the files that are restarts by the letter of the rule, where files with these numbers are marked.

    One that is not marked, because something is written before it goes back, replaces nothing for those behind it.
    """
    found: list[Begun] = []
    past: dict[Key, list[int]] = {}
    latest = -math.inf
    for number, file in enumerate(files):
        own = [(key, item.step) for item in file.events for key in points_of(item)]
        tops = {key: max(steps) for key, steps in past.items() if key[0] != "graphs"}
        goes_back = [any(item.step <= tops.get(key, -math.inf) for key in points_of(item)) for item in file.events]
        if any(goes_back) and file.begun > latest:
            first = goes_back.index(True)
            step = file.events[first].step
            lows = {key: min(s for s in steps if s >= step) for key, steps in past.items() if max(steps) >= step}
            if all(any(one == key and at <= low for one, at in own) for key, low in lows.items()):
                before = [item for item in file.events[:first] if isinstance(item.content, Summary)]
                is_head = all(item.step == step and not {*points_of(item)} & tops.keys() for item in before)
                found.append(Begun(number, step, is_head))
                if number in marked:
                    past = {key: left for key, steps in past.items() if (left := [s for s in steps if s < step])}
        for key, at in own:
            past.setdefault(key, []).append(at)
        latest = max([latest, file.begun, *(item.wall_time for item in file.events)])
    return found


@pytest.mark.tensorboard
def test_no_mark_hides_what_nothing_newer_replaces(tmp_path: Path, tensorboard_server: TensorBoardServer) -> None:
    logdir = tmp_path / "logdir"
    expected: dict[str, dict[Key, list[int]]] = {}

    @settings(max_examples=300)
    @given(source_files())
    def in_the_slow_loader(files: list[SourceFile]) -> None:
        name = f"run_{len(expected)}"
        with tempfile.TemporaryDirectory() as scratch:
            write_files(Path(scratch) / "ms", files)
            report = convert(Path(scratch) / "ms", logdir / name)
        current = expected[name] = current_steps(files)
        shown = slow_series(logdir / name)
        assert all(shown.values()), f"a tag without a point breaks the page of every run: {shown}"
        for (_, tag), steps in current.items():
            assert set(steps) <= {*shown[tag]}, tag
        marked = {int(mark.file.split(".")[0]) for mark in report.restarts}
        by_rule = {begun.number for begun in restarts_of(files, marked)}
        assert marked <= by_rule, "marked, and no restart"
        note(f"{len(report.restarts)} of {len(by_rule)} restarts")

    in_the_slow_loader()
    client = tensorboard_server(logdir, True)
    client.wait_json("data/runs", lambda runs: len(runs) == len(expected), timeout_secs=120)
    for tag in ("a", "b", "c", "h/nan_count"):
        wanted = {name: steps for name, current in expected.items() if (steps := current.get(("scalars", tag)))}
        form = [("tag", tag), *(("runs", name) for name in wanted)]
        answer = client.wait(
            lambda form=form: client.post_json("data/plugin/scalars/scalars_multirun", form),  # type: ignore[misc]
            lambda answer, wanted=wanted: {run: [row[1] for row in rows] for run, rows in answer.items()} == wanted,  # type: ignore[misc]
            tag,
        )
        assert len(answer) == len(wanted) > 10


@given(source_files())
def test_a_restart_is_marked_where_the_first_event_goes_back(files: list[SourceFile]) -> None:
    """Where a tag goes on first, what it has shown is written before, and may keep a mark from being right."""
    with tempfile.TemporaryDirectory() as scratch:
        write_files(Path(scratch) / "ms", files)
        report = convert(Path(scratch) / "ms", Path(scratch) / "tb")
        marked = {int(mark.file.split(".")[0]): mark.step for mark in report.restarts}
        for number, step, is_head in restarts_of(files, marked):
            assert not is_head or marked.get(number) == step
        steps = [step for _, step in sorted(marked.items())]
        assert [step for _, step in marks(Path(scratch) / "tb")] == steps[:1] + steps


@given(source_files(), st.data())
def test_following_gives_the_marks_of_converting(files: list[SourceFile], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        top = Path(scratch)
        write_files(top / "ms", files)
        whole = {path: path.read_bytes() for path in sorted((top / "ms").iterdir())}
        actions = []
        for path, content in whole.items():
            path.unlink()
            cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=3)))
            for cut in (*cuts, len(content)):
                actions.append(lambda path=path, part=content[:cut]: path.write_bytes(part))
        FollowScript(*actions, rest=1).follow(top / "ms", top / "followed", to="tensorboard")
        convert(top / "ms", top / "once")
        followed, once = (
            {path.name: path.read_bytes() for path in (top / name).glob("*tfevents*")} for name in ("followed", "once")
        )
        assert followed == once


# --- single rules


def write_later(directory: Path, *files: list[Event]) -> None:
    """Writes files that follow each other by 1,000 seconds; their events are as far apart as the steps."""
    for number, events in enumerate(files):
        begun = START + 1000 * number
        moved = [Event(begun + 1.0 + n, item.step, item.content, item.format) for n, item in enumerate(events)]
        write_summary(directory, moved, seconds=begun)


def losses(steps: Sequence[int], *tags: str) -> list[Event]:
    return [event(step, *[(tag, scalar(step)) for tag in tags or ("loss",)]) for step in steps]


@pytest.mark.parametrize(("late_by", "is_restart"), [(-1.0, False), (0.0, False), (0.5, True)])
def test_a_file_begun_before_the_last_one_ended_is_no_restart(tmp_path: Path, late_by: float, is_restart: bool) -> None:
    write_summary(tmp_path / "ms", losses(range(10)))
    ended = START + 9.0
    path = tmp_path / "ms" / f"z.{summary_name(seconds=START + 1)}"
    path.write_bytes(summary_bytes(losses(range(5, 12)), wall_time=ended + late_by))
    report = convert(tmp_path / "ms", tmp_path / "tb")
    assert bool(report.restarts) == is_restart
    assert report.went_back == {}, "nothing went back inside a file"


@pytest.mark.tensorboard
def test_a_tag_that_goes_back_inside_a_later_file_is_no_restart(tmp_path: Path) -> None:
    write_later(tmp_path / "ms", losses(range(10)), losses([10, 11, 12, 3, 4]))
    report = convert(tmp_path / "ms", tmp_path / "tb")
    assert (report.restarts, report.went_back) == ([], {"loss": 1})
    assert slow_series(tmp_path / "tb")["loss"] == [*range(13), 3, 4]


@pytest.mark.parametrize(("between", "is_restart"), [(997, True), (998, False)])
@pytest.mark.tensorboard
def test_the_bound_counts_events(tmp_path: Path, between: int, is_restart: bool) -> None:
    """The version is the first; the last of the 1,000 is the one that proves it."""
    later = [*losses([5]), *losses(range(6, 6 + between)), *losses([5], "eval")]
    write_later(tmp_path / "ms", [*losses(range(10)), *losses([5], "eval")], later)
    report = convert(tmp_path / "ms", tmp_path / "tb")
    assert [mark.step for mark in report.restarts] == ([5] if is_restart else [])
    if not is_restart:
        (problem,) = report.problems
        assert "goes back to step 5" in problem
        assert "('eval')" in problem
    assert len(slow_series(tmp_path / "tb")["loss"]) == (5 if is_restart else 10) + 1 + between


@pytest.mark.tensorboard
def test_a_file_that_may_grow_waits_until_it_is_proved(tmp_path: Path) -> None:
    ms, later = tmp_path / "ms", [*losses([5, 6, 7]), *losses([5], "eval"), *losses([8])]
    seen: list[int] = []
    first = [*losses(range(10)), *losses([5], "eval")]

    def look() -> None:
        seen.append(sum(len(steps) for steps in slow_series(tmp_path / "tb").values()))

    script = FollowScript(
        lambda: write_later(ms, first, later[:3]), nothing, look, lambda: write_later(ms, first, later), nothing, look
    ).follow(tmp_path / "ms", tmp_path / "tb")
    assert seen == [11, 10], "what goes back waits, and then takes the place of what it replaces"
    assert script.total is not None
    assert [mark.step for mark in script.total.runs[0].restarts] == [5]
    assert script.reports[-1].runs[0].held == []


@pytest.mark.parametrize("ends_by", ["the follower", "its writer", "a later file", "rest"])
@pytest.mark.tensorboard
def test_a_file_that_has_ended_waits_no_longer(tmp_path: Path, ends_by: str) -> None:
    ms = tmp_path / "ms"
    write_later(ms, losses(range(10), "loss", "eval"), [event(9, ("eval", scalar(0.5)))])
    path = ms / summary_name(seconds=START + 1000)
    shown: list[bool] = []

    def look() -> None:
        shown.append(slow_series(tmp_path / "tb")["eval"] == [*range(10), 9])

    def end() -> None:
        if ends_by == "its writer":
            path.chmod(0o400)
        elif ends_by == "a later file":
            write_summary(ms, losses([10]), seconds=START + 2000)
        elif ends_by == "rest":
            os.utime(path, (START, START))

    actions = [nothing, look, end, nothing, nothing, look] if ends_by != "the follower" else [nothing, look]
    script = FollowScript(*actions, rest=1).follow(ms, tmp_path / "tb")
    look()
    assert shown == [False] + [True] * (len(shown) - 1)
    assert script.total is not None
    assert script.total.runs[0].held == []
    assert any("no restart is marked" in problem for problem in script.problems)


@pytest.mark.parametrize("step", [0, 1])
def test_lineage_that_is_shown_at_step_0_is_never_hidden(tmp_path: Path, step: int) -> None:
    write_later(tmp_path / "ms", losses(range(5)), losses(range(step, 9)))
    (tmp_path / "ms" / summary_name().replace("_MS", "_lineage")).write_bytes(encode_record(train_event()))
    report = convert(tmp_path / "ms", tmp_path / "tb")
    assert [mark.step for mark in report.restarts] == ([step] if step else [])


@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.tensorboard
def test_a_graph_that_cannot_be_drawn_replaces_none(tmp_path: Path, is_whole: bool) -> None:
    again = (
        graph(START)
        if is_whole
        else Event(START, 0, Opaque("graph", fixed64(b"\x09", START) + b"\x22\x02\xff\xff"), "mindspore")
    )
    write_later(tmp_path / "ms", [graph(START), *losses(range(5))], [again, *losses(range(9))])
    assert [mark.step for mark in convert(tmp_path / "ms", tmp_path / "tb").restarts] == ([0] if is_whole else [])
    assert all(slow_series(tmp_path / "tb").values())


@pytest.mark.tensorboard
def test_latest_leaves_out_for_each_tag_what_a_restart_replaces_and_nothing_else(tmp_path: Path) -> None:
    first = [*losses(range(10), "loss", "lr"), *losses([1, 2, 3], "epoch")]
    write_later(tmp_path / "ms", first, [*losses(range(6, 9)), *losses(range(5, 8), "lr"), *losses([1], "epoch")])
    report = convert(tmp_path / "ms", tmp_path / "tb", on_restart="latest")
    assert [mark.step for mark in report.restarts] == [6]
    assert report.superseded == 4 + 5 + 3
    assert slow_series(tmp_path / "tb") == {"loss": [*range(9)], "lr": [*range(8)], "epoch": [1]}
    assert marks(tmp_path / "tb") == [], "what is left has nothing to hide"


def test_latest_leaves_all_of_a_training_that_a_small_file_follows(tmp_path: Path) -> None:
    write_later(tmp_path / "ms", losses(range(10), "loss", "accuracy"), losses([0], "accuracy"))
    report = convert(tmp_path / "ms", tmp_path / "tb", on_restart="latest")
    assert (report.restarts, report.superseded) == ([], 0)


def test_behind_lineage_that_was_shown_a_new_file_grows(tmp_path: Path) -> None:
    """The slow loader never goes back to a file before the one that it reads, nor does a following converter."""
    ms = tmp_path / "ms"

    def train() -> None:
        write_later(ms, losses(range(5)))
        (ms / summary_name().replace("_MS", "_lineage")).write_bytes(encode_record(train_event()))

    FollowScript(train, nothing, lambda: write_later(ms, losses(range(5)), losses(range(5, 9)))).follow(
        ms, tmp_path / "tb"
    )
    names = sorted(path.name for path in (tmp_path / "tb").glob("*tfevents*"))
    assert [name.rsplit(".", 1)[1] for name in names] == ["0000", "lineage", "0001"]
    convert(ms, tmp_path / "once")
    assert sorted(path.name for path in (tmp_path / "once").glob("*tfevents*")) == names
    assert marks(tmp_path / "tb") == []


# --- the steps of a series


@given(st.lists(st.integers(-5, 60), min_size=1, max_size=60), st.integers(-8, 65), st.integers(1, 3))
def test_the_steps_of_a_series_are_known(steps: list[int], asked: int, renewals: int) -> None:
    table = SeriesTable()
    for number, step in enumerate(steps):
        item = event(step, ("a", scalar(number)))
        table.observe(item, item.content)  # type: ignore[arg-type]
        if number % renewals == 0:
            rows = msgspec.json.decode(msgspec.json.encode(table.rows), type=list[tuple[str, str, Series]])
            table = SeriesTable(rows)
    assert table.highest(("scalar", "a")) == max(steps)
    above = [step for step in steps if step >= asked]
    low = table.lowest_from(asked).get(("scalar", "a"))
    if above and len(table.rows[0][2].closed) >= 32:  # the older ones are a range
        assert low is not None
        assert asked <= low <= min(above)
    else:
        assert low == min(above, default=None)
    table.restart(asked)
    left = [step for step in steps if step < asked]
    assert table.lowest_from(asked) == {}
    if left:
        assert table.highest(("scalar", "a")) in range(max(left), asked)
    else:
        assert table.rows == []


def test_even_steps_take_no_place_however_many() -> None:
    table = SeriesTable()
    for step in [*range(0, 5000, 10), *range(2000, 9000, 7)]:
        item = event(step, ("a", scalar(0)))
        table.observe(item, item.content)  # type: ignore[arg-type]
    ((_, _, series),) = table.rows
    assert len(series.closed) == 1
    assert table.lowest_from(1991) == {("scalar", "a"): 2000}
    assert table.lowest_from(4991) == {("scalar", "a"): 4996}


@pytest.mark.parametrize("in_batches", [False, True])
def test_a_walk_knows_the_latest_wall_time_of_all_that_it_gave_out(tmp_path: Path, in_batches: bool) -> None:
    """What is no event has none; what was given out before counts."""
    good = [encode_record(scalar_event(0x1D, b"loss", bytes(4), wall_time)) for wall_time in (5.0, 7.0, 6.0)]
    damaged = good[0][:-1] + bytes([good[0][-1] ^ 1])
    for number, (data, before, expected) in enumerate(
        [
            (b"".join([*good, damaged]), None, 7.0),
            (b"".join([*good, damaged]), 6.5, 7.0),
            (b"".join([damaged, *good]), 9.0, 9.0),
            (damaged, None, None),
            (damaged, 3.0, 3.0),
        ]
    ):
        path = tmp_path / f"r.out.events.summary.{number}.0.host_MS"
        path.write_bytes(data)
        walk = FileWalk(str(path), 0, len(data), MindSporeDecoder(), last_time=before)
        walk.shapes = Shapes(b"\x1d") if in_batches else None
        found = [*walk.pieces(NO_AHEAD)]
        assert sum(isinstance(piece, Event) for piece in found) == data.count(b"loss") - data.count(damaged)
        assert walk.last_time == expected
        assert data.endswith(damaged) or [*walk.pieces(NO_AHEAD)] == []
