"""Following: what is added comes out as one conversion would give it, and a source at rest costs nothing but a look."""

from __future__ import annotations

import builtins
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_summary_bridge.batches.reader import BatchReader
from ms_summary_bridge.convert import follow
from ms_summary_bridge.convert.follow_scan import changed_paths, grown, take_scan
from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.convert.state import STATE_NAME
from ms_summary_bridge.convert.task import ConvertOptions
from ms_summary_bridge.convert.verify import verify_logdirs
from ms_summary_bridge.errors import LogdirError, UsageError
from ms_summary_bridge.files.event_file import EventFileReader
from ms_summary_bridge.runs import logdir
from ms_summary_bridge.runs.logdir import Logdir, discover
from tests.convert.test_convert import contents, outputs, scalar_rows, write_lineage
from tests.follow_script import FollowScript, nothing
from tests.mindspore_run import START, event, scalar, scalars, summary_bytes, summary_name, write_summary
from tests.scripted import FORMATS, build_file, put, tensorboard_name

LATER = START + 1000


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def assert_as_converted_once(tmp_path: Path, source: str = "ms", followed: str = "tb") -> None:
    convert_logdir(str(tmp_path / source), str(tmp_path / "once"))
    assert contents(tmp_path / followed) == contents(tmp_path / "once")


# --- rest


class OpenCounter:
    """Counts what is opened or listed while it is switched on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened: list[str] = []
        self.listed = 0
        self._is_on = False
        for module, name in ((builtins, "open"), (io, "open"), (os, "open")):
            monkeypatch.setattr(module, name, self._counted(getattr(module, name)))
        scandir = os.scandir

        def list_and_count(*arguments: Any) -> Any:
            self.listed += self._is_on
            return scandir(*arguments)

        monkeypatch.setattr(os, "scandir", list_and_count)

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            if self._is_on:
                self.opened.append(str(arguments[0]))
            return call(*arguments, **options)

        return counted

    def start(self) -> None:
        self._is_on = True

    def end(self) -> None:
        self._is_on = False


def test_a_round_of_rest_opens_nothing_and_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(100):
        write_summary(tmp_path / "ms" / f"run{number}", scalars("loss", range(3)))
    write_lineage(tmp_path / "ms" / "run0")
    (tmp_path / "ms" / "torn").mkdir()
    (tmp_path / "ms" / "torn" / summary_name()).write_bytes(summary_bytes(scalars("loss", range(3)))[:-3])
    counter = OpenCounter(monkeypatch)
    states: list[tuple[int, int]] = []

    def look_at_state() -> None:
        status = os.stat(tmp_path / "tb" / STATE_NAME)
        states.append((status.st_ino, status.st_mtime_ns))

    script = FollowScript(look_at_state, counter.start, *[nothing] * 10, counter.end, look_at_state, rest=0).follow(
        tmp_path / "ms", tmp_path / "tb"
    )
    assert counter.opened == []
    assert counter.listed == 102 * 11  # each directory once in a round
    assert states[0] == states[1]
    assert len(script.reports) == 1


def test_what_grows_costs_nothing_for_the_other_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        write_summary(tmp_path / "ms" / f"run{number}", scalars("loss", range(3)))
    path = tmp_path / "ms" / "run7" / summary_name()
    counter = OpenCounter(monkeypatch)

    def grow() -> None:
        append(path, summary_bytes(scalars("loss", range(5)))[path.stat().st_size :])
        counter.start()

    script = FollowScript(grow, counter.end).follow(tmp_path / "ms", tmp_path / "tb")
    assert {Path(opened).parent.name for opened in counter.opened if "run" in opened} == {"run7"}
    assert [run.run for run in script.reports[1].runs] == ["run7"]
    assert_as_converted_once(tmp_path)


def test_pauses_grow_while_nothing_comes_and_with_the_time_a_look_takes(tmp_path: Path) -> None:
    path = write_summary(tmp_path / "ms", scalars("loss", range(3)))
    script = FollowScript(nothing, nothing, nothing, lambda: write_summary(path.parent, scalars("loss", range(4))))
    script.follow(tmp_path / "ms", tmp_path / "tb")
    assert script.pauses[:7] == [0.5, 1.0, 2.0, 2.0, 0.5, 1.0, 2.0]


@pytest.mark.parametrize(("scan_secs", "longest"), [(0.1, 20.0), (7.0, 60.0)])
def test_a_source_that_takes_long_to_look_at_is_looked_at_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scan_secs: float, longest: float
) -> None:
    write_summary(tmp_path / "ms", scalars("loss", range(3)))
    script = FollowScript(rest=9)

    def take_slow_scan(source: str) -> Any:
        script.now += scan_secs
        return take_scan(source)

    monkeypatch.setattr(follow, "take_scan", take_slow_scan)
    script.follow(tmp_path / "ms", tmp_path / "tb")
    assert script.pauses[-1] == pytest.approx(longest)


# --- growth


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.data())
def test_known_growth_is_what_a_new_search_finds(
    tmp_path_factory: pytest.TempPathFactory, which: list[int], data: st.DataObject
) -> None:
    top = tmp_path_factory.mktemp("grown")
    files = [top / "a" / summary_name(), top / "a" / summary_name(rank=1), top / "b" / summary_name(seconds=LATER)]
    for path in files:
        put(path, summary_bytes(scalars("loss", range(3))))
    write_lineage(top / "a")
    put(top / "empty" / summary_name(), b"")
    before, found = take_scan(str(top)), discover(str(top))
    for number in which:
        if number < 3:
            append(files[number], data.draw(st.binary(max_size=40)))
        else:
            put(top / "empty" / summary_name(), data.draw(st.binary(max_size=3)))
    now = take_scan(str(top))
    quick = grown(found, before, now)
    if any(path.endswith(f"empty/{summary_name()}") for path in changed_paths(before, now)):
        assert quick is None
    else:
        assert quick == discover(str(top))


def test_later_sessions_appear_while_following(tmp_path: Path) -> None:
    ms = tmp_path / "ms"
    whole = summary_bytes(scalars("loss", range(5, 12), offset=0.5), wall_time=LATER)
    later = ms / summary_name(seconds=LATER)
    script = FollowScript(
        lambda: write_summary(ms, scalars("loss", range(10))),
        nothing,
        lambda: later.write_bytes(whole[:100]),
        lambda: append(later, whole[100:]),
        lambda: write_summary(ms, scalars("loss", range(3)), seconds=LATER + 9),
    ).follow(ms, tmp_path / "tb")
    assert script.total is not None
    assert [mark.step for mark in script.total.runs[0].restarts] == [5, 0]
    assert len(outputs(tmp_path / "tb")) == 3
    assert_as_converted_once(tmp_path)


@pytest.mark.parametrize("cut", [1, 2])
def test_first_events_wait_until_it_is_known_whether_they_are_a_restarts(tmp_path: Path, cut: int) -> None:
    """The mark of a restart must stand before them: TensorBoard's slow loader drops what stands before it."""
    ms = tmp_path / "ms"
    write_summary(ms, scalars("loss", range(10)))
    begun = [event(6, ("new", scalar(1))), event(6, ("loss", scalar(2)))]
    later = ms / summary_name(seconds=LATER)
    script = FollowScript(
        nothing,
        lambda: later.write_bytes(summary_bytes(begun[:1], wall_time=LATER)),
        *[nothing] * (cut - 1),
        lambda: later.write_bytes(summary_bytes(begun, wall_time=LATER)),
    ).follow(ms, tmp_path / "tb")
    assert script.total is not None
    assert script.total.runs[0].events_read == 11 + 3
    assert_as_converted_once(tmp_path)


def test_a_later_file_with_tags_of_its_own_is_shown_soon_and_is_no_restart(tmp_path: Path) -> None:
    ms = tmp_path / "ms"
    write_summary(ms, scalars("loss", range(0, 1000, 100)))
    script = FollowScript(
        nothing,
        lambda: write_summary(ms, scalars("accuracy", range(2), start=LATER), seconds=LATER),
        rest=4,  # through three of them the events wait
    ).follow(ms, tmp_path / "tb")
    assert scalar_rows(tmp_path / "tb", "accuracy") == [(0, 0.0), (1, 1.0)]
    assert script.total is not None
    assert script.total.runs[0].restarts == []
    assert len(outputs(tmp_path / "tb")) == 1


@pytest.mark.parametrize(
    ("source_format", "name"), [("mindspore", summary_name), ("tensorboard", tensorboard_name)], ids=FORMATS
)
def test_what_is_written_after_the_search_belongs_to_the_next_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source_format: str, name: Callable[..., str]
) -> None:
    """The writer ends its file and begins the next, just after the follower has looked for files."""
    source = tmp_path / "in"
    first, later = source / name(seconds=START), source / name(seconds=LATER)
    put(first, build_file(source_format, range(10)))

    def discover_and_grow(directory: str) -> Logdir:
        found = logdir.discover(directory)
        if not later.exists():
            put(first, build_file(source_format, range(20)))
            put(later, build_file(source_format, range(15, 25), start=LATER))
        return found

    monkeypatch.setattr(follow, "discover", discover_and_grow)
    script = FollowScript().follow(source, tmp_path / "out")
    assert [sum(run.values.values()) for report in script.reports for run in report.runs] == [10, 20]
    assert_as_converted_once(tmp_path, "in", "out")


def test_latest_leaves_out_what_a_later_file_supersedes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ms = tmp_path / "ms"
    path = write_summary(ms, scalars("loss", range(10)))
    write_summary(ms, scalars("loss", range(5, 8), start=LATER), seconds=LATER)
    read: list[str] = []
    begin = EventFileReader.__init__

    def note_and_begin(self: EventFileReader, name: str, *arguments: Any, **options: Any) -> None:
        read.append(Path(name).name)
        begin(self, name, *arguments, **options)

    begin_batches = BatchReader.__init__

    def note_and_begin_batches(self: BatchReader, name: str, *arguments: Any, **options: Any) -> None:
        read.append(Path(name).name)
        begin_batches(self, name, *arguments, **options)

    monkeypatch.setattr(EventFileReader, "__init__", note_and_begin)
    monkeypatch.setattr(BatchReader, "__init__", note_and_begin_batches)
    script = FollowScript(
        read.clear,
        lambda: write_summary(ms, scalars("loss", range(5, 12), start=LATER), seconds=LATER),
    ).follow(ms, tmp_path / "tb", options=ConvertOptions(on_restart="latest"))
    assert read == [summary_name(seconds=LATER)], "the restarts are known, so the run is not read again to find them"
    assert path.exists()
    assert [step for step, _ in scalar_rows(tmp_path / "tb")] == [*range(5), *range(5, 12)]
    assert script.total is not None
    assert script.total.runs[0].superseded == 5


def test_a_source_behind_a_url_is_followed(tmp_path: Path) -> None:
    memory = fsspec.filesystem("memory")
    top = f"/{tmp_path.name}"

    def pipe(count: int, name: str = "run") -> None:
        memory.pipe(f"{top}/{name}/{summary_name()}", summary_bytes(scalars("loss", range(count))))

    try:
        pipe(3)
        script = FollowScript(lambda: pipe(5), nothing, lambda: pipe(2, "other"))
        script.follow(f"memory:/{top}", tmp_path / "tb")
        assert [sum(sum(run.values.values()) for run in report.runs) for report in script.reports] == [3, 2, 2]
        assert verify_logdirs(f"memory:/{top}", str(tmp_path / "tb")).is_equal
    finally:
        memory.rm(top, recursive=True)


# --- sources that vanish, are replaced, are ours


@pytest.mark.parametrize("to", ["tensorboard", "mindinsight"])
def test_a_deleted_run_ends_only_itself(tmp_path: Path, to: str) -> None:
    def write(name: str, count: int) -> None:
        if to == "tensorboard":
            put(tmp_path / "in" / name / summary_name(), summary_bytes(scalars("loss", range(count))))
        else:
            put(tmp_path / "in" / name / tensorboard_name(), build_file("tensorboard", range(count)))

    for name in ("a", "b"):
        write(name, 3)
    kept: dict[str, bytes] = {}
    script = FollowScript(
        nothing,
        lambda: kept.update(contents(tmp_path / "out" / "a")),
        lambda: shutil.rmtree(tmp_path / "in" / "a"),
        lambda: write("b", 6),
    ).follow(tmp_path / "in", tmp_path / "out", to=to)
    notes = [note for report in script.reports for note in report.notes]
    assert notes == ["a: is gone from the source, or empty; what was converted of it stays"]
    assert not any(report.failures or report.is_partial for report in script.reports)
    assert contents(tmp_path / "out" / "a") == kept
    assert script.total is not None
    assert [(run.run, sum(run.values.values())) for run in script.total.runs] == [("a", 3), ("b", 6)]
    assert verify_logdirs(str(tmp_path / "in" / "b"), str(tmp_path / "out" / "b")).is_equal


@pytest.mark.parametrize("to", ["tensorboard", "mindinsight"])
@pytest.mark.parametrize("held", [".{}.Xa91Qz", ".~tmp~/{}", ".rsync-partial/{}"])
def test_what_rsync_is_still_copying_is_no_run(tmp_path: Path, to: str, held: str) -> None:
    """It is converted once, under the name that it gets."""
    name = summary_name() if to == "tensorboard" else tensorboard_name()
    data = summary_bytes(scalars("loss", range(5))) if to == "tensorboard" else build_file("tensorboard", range(5))
    run = tmp_path / "in" / "run"
    put(tmp_path / "in" / "other" / name, data)
    copying = run / held.format(name)
    script = FollowScript(
        lambda: put(copying, data[:-20]),
        lambda: put(copying, data),
        lambda: copying.rename(run / name),
    ).follow(tmp_path / "in", tmp_path / "out", to=to)
    assert script.total is not None
    assert [(run.run, sum(run.values.values())) for run in script.total.runs] == [("other", 5), ("run", 5)]
    assert script.total.notes == []


def test_a_source_that_vanishes_is_waited_for_and_that_is_said_once(tmp_path: Path) -> None:
    write_summary(tmp_path / "ms", scalars("loss", range(3)))
    script = FollowScript(
        lambda: shutil.rmtree(tmp_path / "ms"),
        *[nothing] * 3,
        lambda: write_summary(tmp_path / "ms", scalars("loss", range(5))),
    ).follow(tmp_path / "ms", tmp_path / "tb")
    assert [len(report.notes) for report in script.reports] == [0, 1, 0]
    assert_as_converted_once(tmp_path)


@pytest.mark.parametrize("steps", [range(2), range(9)], ids=["cut", "longer"])
def test_a_source_that_is_written_anew_starts_a_new_output_file(tmp_path: Path, steps: range) -> None:
    write_summary(tmp_path / "ms", scalars("loss", range(5)))
    script = FollowScript(nothing, lambda: write_summary(tmp_path / "ms", scalars("loss", steps, offset=0.5))).follow(
        tmp_path / "ms", tmp_path / "tb"
    )
    assert any("was replaced or cut" in problem for problem in script.problems)
    first, second = outputs(tmp_path / "tb")
    assert [*map(float, range(5))] == [value for _, value in scalar_rows(tmp_path / "tb")][:5]
    assert [value for _, value in scalar_rows(tmp_path / "tb")][5:] == [step + 0.5 for step in steps]
    assert first != second


def test_what_we_wrote_ourselves_is_no_source(tmp_path: Path) -> None:
    """The live file of a bridge stands beside the summary file, and the output goes into the same tree."""
    ms = tmp_path / "ms"
    path = write_summary(ms, scalars("loss", range(5)))
    put(ms / tensorboard_name(), build_file("tensorboard", range(5), writer="ms_summary_bridge/live"))
    script = FollowScript(
        nothing,
        lambda: append(ms / tensorboard_name(), build_file("tensorboard", range(9))[-50:]),
        lambda: path.write_bytes(summary_bytes(scalars("loss", range(9)))),
    ).follow(ms, ms / "out")
    assert script.total is not None
    assert script.total.to == "tensorboard"
    assert [(run.run, sum(run.values.values())) for run in script.total.runs] == [(".", 9)]
    assert [step for step, _ in scalar_rows(ms / "out")] == list(range(9))


def test_a_tree_without_the_kind_that_is_asked_for_is_waited_in(tmp_path: Path) -> None:
    put(tmp_path / "in" / "tf" / tensorboard_name(), build_file("tensorboard", range(3)))
    script = FollowScript(nothing, lambda: write_summary(tmp_path / "in" / "ms", scalars("loss", range(4)))).follow(
        tmp_path / "in", tmp_path / "tb", to="tensorboard"
    )
    assert [(run.run, run.values) for report in script.reports for run in report.runs] == [("ms", {"scalar": 4})]


def test_both_kinds_need_a_direction(tmp_path: Path) -> None:
    put(tmp_path / "in" / "tf" / tensorboard_name(), build_file("tensorboard", range(3)))
    write_summary(tmp_path / "in" / "ms", scalars("loss", range(4)))
    with pytest.raises(UsageError, match="--to"):
        FollowScript().follow(tmp_path / "in", tmp_path / "out")


# --- trouble, and the end


def test_a_run_that_failed_is_tried_again_though_nothing_changed(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_summary(tmp_path / "ms" / name, scalars("loss", range(3)))
    (tmp_path / "tb").mkdir()
    (tmp_path / "tb" / "a").write_bytes(b"a file where a directory is needed")
    script = FollowScript(rest=0)

    def forty_seconds_later() -> None:
        script.now += 40

    script = FollowScript(
        nothing, nothing, forty_seconds_later, nothing, (tmp_path / "tb" / "a").unlink, forty_seconds_later
    )
    script.follow(tmp_path / "ms", tmp_path / "tb")
    assert [[bool(run.failed) for run in report.runs] for report in script.reports] == [[True, False], [False]]
    assert script.total is not None
    assert not script.total.failures
    assert_as_converted_once(tmp_path)


def test_a_disk_that_is_full_for_a_while_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ms = tmp_path / "ms"
    path = write_summary(ms, scalars("loss", range(3)))
    write = os.write
    script = FollowScript(rest=0)

    def refuse(fd: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    def free() -> None:
        monkeypatch.setattr("ms_summary_bridge.files.record_writer.os.write", write)
        script.now += 40

    script = FollowScript(
        lambda: monkeypatch.setattr("ms_summary_bridge.files.record_writer.os.write", refuse),
        lambda: path.write_bytes(summary_bytes(scalars("loss", range(6)))),
        lambda: path.write_bytes(summary_bytes(scalars("loss", range(9)))),
        free,
    )
    script.follow(ms, tmp_path / "tb")
    assert [bool(report.failures) for report in script.reports] == [False, True, False]
    assert_as_converted_once(tmp_path)


def test_the_destination_is_held(tmp_path: Path) -> None:
    write_summary(tmp_path / "ms", scalars("loss", range(3)))
    errors: list[str] = []

    def convert_too() -> None:
        with pytest.raises(LogdirError) as caught:
            convert_logdir(str(tmp_path / "ms"), str(tmp_path / "tb"))
        errors.append(str(caught.value))

    FollowScript(convert_too).follow(tmp_path / "ms", tmp_path / "tb")
    assert "another conversion is writing there" in errors[0]
    convert_logdir(str(tmp_path / "ms"), str(tmp_path / "tb"))


def test_a_destination_that_is_removed_is_made_again(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_summary(tmp_path / "ms" / name, scalars("loss", range(3)))
    script = FollowScript(
        nothing,
        lambda: shutil.rmtree(tmp_path / "tb"),
        nothing,
        lambda: write_summary(tmp_path / "ms" / "a", scalars("loss", range(5))),
    ).follow(tmp_path / "ms", tmp_path / "tb")
    assert [len(report.runs) for report in script.reports] == [2, 2, 1]
    assert any("was removed" in note for note in script.reports[1].notes)
    assert_as_converted_once(tmp_path)


def test_ended_between_two_runs_it_goes_on_from_there(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        write_summary(tmp_path / "ms" / name, scalars("loss", range(3)))
    script = FollowScript()
    script.stop.set()  # before the first round: nothing is done
    assert script.follow(tmp_path / "ms", tmp_path / "tb").total is None
    assert not (tmp_path / "tb").exists()

    script = FollowScript()
    asked = 0

    class Stop:
        """Set while the first run is being converted."""

        def is_set(self) -> bool:
            nonlocal asked
            asked += 1
            return asked > 2

    script.stop = Stop()  # type: ignore[assignment]
    script.follow(tmp_path / "ms", tmp_path / "tb")
    assert script.total is not None
    assert [run.run for run in script.total.runs] == ["a"]
    FollowScript().follow(tmp_path / "ms", tmp_path / "tb")
    assert_as_converted_once(tmp_path)


def test_the_total_speaks_of_all_rounds(tmp_path: Path) -> None:
    path = tmp_path / "ms" / summary_name()
    odd = "lo\udcffss"
    whole = summary_bytes([event(step, ("loss", scalar(step)), (odd, scalar(step))) for step in range(6)])
    damaged = whole + b"\xab" * 40
    put(path, whole[:300])
    script = FollowScript(lambda: path.write_bytes(whole), nothing, lambda: path.write_bytes(damaged), nothing).follow(
        tmp_path / "ms", tmp_path / "tb"
    )
    once = convert_logdir(str(tmp_path / "ms"), str(tmp_path / "once"))
    assert script.total is not None
    (total,), (run,) = script.total.runs, once.runs
    assert (total.events_read, total.values, total.losses) == (run.events_read, run.values, run.losses)
    assert (total.damaged, total.incomplete) == (run.damaged, run.incomplete)


def test_workers_start_only_for_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        write_summary(tmp_path / "ms" / name, scalars("loss", range(3)))
    monkeypatch.setattr("ms_summary_bridge.convert.processes.ProcessPoolExecutor", None)  # to start one would fail
    FollowScript().follow(tmp_path / "ms", tmp_path / "tb", workers=2)
    assert_as_converted_once(tmp_path)


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    write_summary(tmp_path / "ms", scalars("loss", range(3)))
    result = subprocess.run(
        [sys.executable, "-c", _TWICE, str(tmp_path / "ms"), str(tmp_path / "tb")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 130
    assert result.stderr.splitlines()[-1].startswith("interrupted; converting again")
    assert "Traceback" not in result.stderr
    convert_logdir(str(tmp_path / "ms"), str(tmp_path / "tb"))
    assert_as_converted_once(tmp_path)


_TWICE = """
import os, signal, sys
from ms_summary_bridge.cli import main
from ms_summary_bridge.convert import workers
real = workers.convert_run
def convert_run(*arguments):
    os.kill(os.getpid(), signal.SIGINT)
    result = real(*arguments)
    os.kill(os.getpid(), signal.SIGINT)
    return result
workers.convert_run = convert_run
sys.exit(main(["convert", sys.argv[1], sys.argv[2], "--follow"]))
"""


def test_a_follower_needs_no_package_of_a_viewer_or_a_framework(tmp_path: Path) -> None:
    """B30: it must run where MindSpore, MindInsight, TensorBoard and TensorFlow are missing or broken."""
    write_summary(tmp_path / "ms", scalars("loss", range(3)))
    put(tmp_path / "tb" / tensorboard_name(), build_file("tensorboard", range(3)))
    for source, to in (("ms", "tensorboard"), ("tb", "mindinsight")):
        result = subprocess.run(
            [sys.executable, "-c", _BARE, str(tmp_path / source), str(tmp_path / f"{source}-out"), to],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (result.returncode, result.stderr) == (0, "")
        assert "3 values converted" in result.stdout
        assert "np." not in result.stdout  # as numpy 2 prints its numbers
        assert verify_logdirs(str(tmp_path / source), str(tmp_path / f"{source}-out")).is_equal


_BARE = """
import os, signal, sys
for name in ("mindspore", "mindinsight", "tensorboard", "tensorboardX", "tensorflow", "torch"):
    sys.modules[name] = None
from ms_summary_bridge.cli import main
from ms_summary_bridge.convert import follow
real = follow.follow_logdir
def follow_two_rounds(*arguments, stop, **options):
    rounds = iter([lambda: None, stop.set])
    return real(*arguments, stop=stop, wait=lambda seconds: next(rounds)(), **options)
follow.follow_logdir = follow_two_rounds
sys.exit(main(["convert", sys.argv[1], sys.argv[2], "--to", sys.argv[3], "--follow", "--quiet"]) or
         main(["convert", sys.argv[1], sys.argv[2] + "-2", "--to", sys.argv[3]]))
"""
