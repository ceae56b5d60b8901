"""The files of a live run: the same values in both, nothing lost to rotation, nothing stopped by the disk."""

from __future__ import annotations

import os
import resource
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ms_summary_bridge.columns.inspect import inspect_logdir
from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.convert.verify import verify_logdirs
from ms_summary_bridge.events import Event, SessionLog, Summary
from ms_summary_bridge.files.event_file import EventFileReader
from ms_summary_bridge.files.file_names import LINEAGE
from ms_summary_bridge.formats.protos import tb_pb
from ms_summary_bridge.live_writer.live_run import LiveRun
from ms_summary_bridge.live_writer.run_config import LiveRunConfig
from ms_summary_bridge.runs.archive import make_decoder

START = 1_700_000_000


class Run:
    """A LiveRun with what it warned of."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self.directory = directory
        self.warnings: dict[str, str] = {}
        config = LiveRunConfig(
            **{
                "summary_dir": str(directory),
                "tensorboard_dir": str(directory),
                "seconds": START,
                "wall_time": float(START),
                "device": 0,
                "host": "node-1.cluster",
                "pid": 42,
                **options,
            }
        )
        self.live = LiveRun(config, self.warnings.setdefault)

    def scalar(self, step: int, **values: float) -> None:
        items = [{"tag": tag, "value": np.asarray(value)} for tag, value in values.items()]
        self.live.write_values(step, START + step, {"scalar": items})


def read(path: Path) -> list[Event]:
    source = "tensorboard" if "tfevents" in path.name else LINEAGE if "lineage" in path.name else "mindspore"
    with EventFileReader(path, make_decoder(source)) as reader:
        events = list(reader)
    assert all(isinstance(event, Event) for event in events), "whole records only"
    return events  # type: ignore[return-value]


def files(directory: Path, part: str) -> list[Path]:
    return sorted(path for path in directory.iterdir() if part in path.name)


def steps(paths: list[Path]) -> list[int]:
    """Returns the steps of all summary values, over a chain of files."""
    return [event.step for path in paths for event in read(path) if isinstance(event.content, Summary)]


def assert_equal(directory: Path) -> None:
    report = verify_logdirs(str(directory), str(directory))
    assert report.is_equal, report
    assert report.runs[0].points
    assert len(inspect_logdir(str(directory)).runs) == 1


def test_every_kind_is_in_both_files(tmp_path: Path) -> None:
    run = Run(tmp_path)
    rng = np.random.default_rng(0)
    for step in (1, 2, 2):  # SummaryCollector writes the last step of an epoch twice
        array = np.full((2, 3), step, np.float32)
        image = np.full((1, 3, 4, 4), step / 4, np.float32)
        run.live.write_values(
            step,
            START + step,
            {
                "scalar": [{"tag": "loss", "value": np.float32(step)}, {"tag": "nan", "value": np.float32("nan")}],
                "histogram": [{"tag": "w", "value": array}, {"tag": "odd", "value": np.array([np.nan, np.inf, 1.0])}],
                "image": [{"tag": "i", "value": image}],
                "tensor": [{"tag": "t", "value": rng.random((2, 2)) if step == 1 else array}],
            },
        )
    run.live.close()
    assert_equal(tmp_path)
    (summary,), (board,) = files(tmp_path, "_MS"), files(tmp_path, "tfevents")
    assert steps([summary]) == [1, 2, 2]
    assert steps([board]) == [1, 2], "the repeat is written once"
    assert files(tmp_path, "lineage") == [], "no empty file"
    assert run.warnings == {}


def test_the_file_of_a_live_run_is_0600_and_0400_once_closed(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.scalar(1, loss=1.0)
    run.live.write_whole("custom_lineage_data", START, b"")
    for expected in (0o600, 0o400):
        for path in (*files(tmp_path, "_MS"), *files(tmp_path, "_lineage")):
            assert stat.S_IMODE(path.stat().st_mode) == expected
        run.live.close()
    run.live.close()  # again: nothing


def test_rotation_loses_nothing_in_either_file(tmp_path: Path) -> None:
    run = Run(tmp_path, max_file_size=600)
    for step in range(1, 41):
        run.scalar(step, loss=step, other=-step)
    for number in range(40):
        run.live.write_whole("custom_lineage_data", START + number, b"x" * 30)
    run.live.close()
    for part in ("_MS", "tfevents", "_lineage"):
        chain = files(tmp_path, part)
        assert len(chain) > 3, part
        assert all(path.stat().st_size <= 600 for path in chain), part
    assert steps(files(tmp_path, "_MS")) == steps(files(tmp_path, "tfevents")) == [*range(1, 41)]
    assert sum(len(read(path)) for path in files(tmp_path, "_lineage")) == 40
    events = [event for path in files(tmp_path, "tfevents") for event in read(path)]
    assert not any(isinstance(event.content, SessionLog) for event in events), "a rotation is no restart"
    assert_equal(tmp_path)


def test_a_record_longer_than_a_file_may_be_gets_one_of_its_own(tmp_path: Path) -> None:
    run = Run(tmp_path, max_file_size=200)
    run.scalar(1, loss=1.0)
    run.live.write_values(2, START + 2, {"tensor": [{"tag": "t", "value": np.arange(500.0)}]})
    run.scalar(3, loss=3.0)
    run.live.close()
    assert steps(files(tmp_path, "_MS")) == [1, 2, 3]
    assert len(files(tmp_path, "_MS")) == 3
    assert_equal(tmp_path)


def test_names_never_collide(tmp_path: Path) -> None:
    runs = [Run(tmp_path, max_file_size=150) for _ in range(3)]  # three trainings in one second, one process
    for step in range(1, 6):
        for number, run in enumerate(runs):
            run.scalar(step, loss=step + 100 * number)
            run.live.write_whole("custom_lineage_data", START, b"")
    for run in runs:
        run.live.close()
    assert len(steps(files(tmp_path, "_MS"))) == len(steps(files(tmp_path, "tfevents"))) == 15
    assert sum(len(read(path)) for path in files(tmp_path, "_lineage")) == 15


def test_two_hosts_with_the_same_device_share_a_directory(tmp_path: Path) -> None:
    for host in ("node-1.cluster", "node-2.cluster"):
        run = Run(tmp_path, host=host)
        run.scalar(1, loss=1.0)
        run.live.close()
    assert len(files(tmp_path, "_MS")) == len(files(tmp_path, "tfevents")) == 2


def test_what_cannot_be_packed_is_dropped_and_counted_and_the_rest_is_there(tmp_path: Path) -> None:
    run = Run(tmp_path)
    bad = {"tag": "bad", "value": np.ones((2, 5), np.float32)}
    for step in (1, 2):
        run.live.write_values(
            step,
            START + step,
            {
                "image": [bad],
                "histogram": [{"tag": "text", "value": np.array(["a"])}],
                "tensor": [{"tag": "complex", "value": np.ones(2, np.complex128)}],
                "scalar": [{"tag": "empty", "value": np.zeros(0)}, {"tag": "loss", "value": np.float32(step)}],
                "unheard of": [{"tag": "u", "value": b""}],
            },
        )
    run.live.close()
    assert run.live.unpackable == {"image": 2, "histogram": 2, "tensor": 2, "scalar": 2, "unheard of": 2}
    assert len(run.warnings) == 5, "once for each tag"
    assert steps(files(tmp_path, "_MS")) == [1, 2]
    assert_equal(tmp_path)


def test_a_graph_that_cannot_be_drawn_is_named(tmp_path: Path) -> None:
    run = Run(tmp_path)
    broken = b"\x12\x05\x0a"  # ends inside a field
    for _ in range(2):
        run.live.write_whole("graph", START + 1.0, b"\x22\x03" + broken)
        run.live.write_whole("dataset_graph", START + 1.0, broken)
    run.scalar(1, loss=1.0)
    run.live.close()
    assert run.warnings.keys() == {"tensorboard graph ", "tensorboard dataset_graph "}
    for kind, line in run.warnings.items():
        assert line.startswith(f"{kind.split()[1]} is not in TensorBoard's file: "), line
        assert "cannot be read" in line
    assert steps(files(tmp_path, "tfevents")) == [1], "the rest is there"


def test_a_removed_directory_is_made_again(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    run = Run(directory)
    run.scalar(1, loss=1.0)
    run.live.flush()
    shutil.rmtree(directory)
    run.scalar(2, loss=2.0)
    assert run.live.flush()  # finds out
    assert steps(files(directory, "_MS")) == steps(files(directory, "tfevents")) == [2]
    run.scalar(3, loss=3.0)
    assert run.live.flush()
    run.live.close()
    assert steps(files(directory, "_MS")) == steps(files(directory, "tfevents")) == [2, 3]
    assert "what was written there last (1 record) is in" in run.warnings["gone"]
    assert run.warnings["gone"].rsplit(" ", 1)[1] in map(str, directory.iterdir()), "the log names a file that is there"


@pytest.mark.parametrize("max_file_size", [None, 200])
def test_a_directory_that_is_removed_before_the_end_loses_nothing_new(
    tmp_path: Path, max_file_size: int | None
) -> None:
    directory = tmp_path / "run"
    run = Run(directory, max_file_size=max_file_size)
    run.scalar(1, loss=1.0)
    run.live.flush()
    run.scalar(2, loss=2.0)
    shutil.rmtree(directory)
    for step in (3, 4, 5, 6, 7):
        run.scalar(step, loss=float(step))
    run.live.close()
    assert steps(files(directory, "_MS")) == steps(files(directory, "tfevents")) == [2, 3, 4, 5, 6, 7]


def test_what_cannot_be_moved_waits_and_is_counted_at_the_end(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    run = Run(directory)
    run.scalar(1, loss=1.0)
    run.live.flush()
    shutil.rmtree(directory)
    directory.write_bytes(b"")
    run.scalar(2, loss=2.0)
    assert not run.live.flush()
    directory.unlink()
    run.scalar(3, loss=3.0)
    assert run.live.flush()
    assert steps(files(directory, "_MS")) == steps(files(directory, "tfevents")) == [2, 3]
    shutil.rmtree(directory)
    directory.write_bytes(b"")
    run.scalar(4, loss=4.0)
    run.live.close()
    assert run.live.summary.dropped == run.live.event_file.dropped == 1
    assert "1 record is lost" in run.warnings["close"]


def test_where_files_may_not_grow_the_next_one_is_begun(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
    try:
        run = Run(tmp_path)
        for step in range(200):
            run.scalar(step, loss=float(step))
        run.live.write_values(200, START + 200.0, {"tensor": [{"tag": "big", "value": np.zeros(1000)}]})
        run.scalar(201, loss=1.0)
        assert run.live.flush()
        run.live.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert steps(files(tmp_path, "_MS")) == [*range(200), 201]
    assert steps(files(tmp_path, "tfevents")) == [*range(202)], "a table and a histogram are short"
    assert run.live.summary.dropped == 1
    assert "ulimit -f" in run.warnings["limit"]


def test_a_file_that_was_replaced_is_not_touched(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.scalar(1, loss=1.0)
    run.live.flush()
    (path,) = files(tmp_path, "_MS")
    path.unlink()
    path.write_bytes(b"somebody else's")
    run.scalar(2, loss=2.0)
    run.live.flush()
    run.scalar(3, loss=3.0)
    run.live.close()
    assert path.read_bytes() == b"somebody else's"
    assert stat.S_IMODE(path.stat().st_mode) != 0o400
    assert steps([other for other in files(tmp_path, "_MS") if other != path]) == [2, 3]


def test_a_place_where_nothing_can_be_written_is_counted(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    run = Run(tmp_path / "file" / "below")
    run.scalar(1, loss=1.0)
    run.scalar(2, loss=2.0)
    run.live.flush()
    run.live.close()
    assert run.live.summary.dropped == run.live.event_file.dropped == 2
    assert set(run.warnings) == {"open"}


Mount = Callable[[int], Path]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    directory = tmp_path / "disk"
    directory.mkdir()
    mounted = os.geteuid() == 0 and not subprocess.call(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(directory)], stderr=subprocess.DEVNULL
    )
    if not mounted:
        pytest.skip("mounting a file system needs root")
    yield directory
    subprocess.check_call(["umount", "-l", str(directory)])


def test_a_full_disk_is_waited_for_and_every_record_is_whole(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    with pytest.raises(OSError, match="No space"):
        ballast.write_bytes(b"x" * (2 << 20))
    os.truncate(ballast, ballast.stat().st_size - (128 << 10))
    run = Run(small_disk)
    for step in range(1, 101):
        run.live.write_values(step, START + step, {"tensor": [{"tag": "t", "value": np.arange(1024.0) + step}]})
        run.scalar(step, loss=step)
    assert not run.live.flush()
    shown = steps(files(small_disk, "_MS"))
    assert 0 < len(shown) < 200
    assert set(run.warnings) == {"write"}
    ballast.unlink()
    assert run.live.flush()
    run.live.close()
    assert len(steps(files(small_disk, "_MS"))) == 200
    assert run.live.summary.dropped == run.live.event_file.dropped == 0
    assert_equal(small_disk)


def test_beyond_what_may_wait_records_are_dropped_and_counted(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ms_summary_bridge.live_writer.live_file._MAX_WAITING_BYTES", 1 << 20)
    run = Run(small_disk)
    for step in range(1, 401):
        run.live.write_values(step, START + step, {"tensor": [{"tag": "t", "value": np.arange(2048.0) + step}]})
    run.live.close()
    written = len(steps(files(small_disk, "_MS")))
    assert 0 < written < 400
    assert written + run.live.summary.dropped == 400, "each is in the file or counted"


def test_the_values_of_a_child_run_lie_below_the_run(tmp_path: Path) -> None:
    from tensorboardX.proto.event_pb2 import Event as EventPb
    from tensorboardX.summary import scalar

    run = Run(tmp_path)
    event = EventPb(wall_time=START, step=3)
    event.summary.CopyFrom(scalar("x", 1.0))
    run.live.write_user_event(event.SerializeToString(), "a/b")
    run.live.write_user_event(event.SerializeToString(), "")
    run.live.close()
    assert steps(files(tmp_path / "a" / "b", "tfevents")) == steps(files(tmp_path, "tfevents")) == [3]


def test_tensors_are_exported_for_numpy(tmp_path: Path) -> None:
    run = Run(tmp_path)
    item = {"tag": "a/b", "value": np.arange(3.0), "export_option": "npy"}
    run.live.write_values(5, START, {"tensor": [item]})
    run.live.close()
    (path,) = tmp_path.glob("export_*/tensor/*.npy")
    assert path.name == "a%2Fb_5.npy"
    np.testing.assert_array_equal(np.load(path), [0, 1, 2])


def test_what_a_user_wrote_for_tensorboard_alone_is_no_difference_and_is_carried_over(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.live.write_values(1, 1.0, {"scalar": [{"tag": "loss", "value": np.float32(0.5)}]})
    own = tb_pb.Event(wall_time=2.0, step=3)
    own.summary.value.add(tag="mine", simple_value=4.0)
    run.live.write_user_event(own.SerializeToString(), "")
    run.live.write_user_event(own.SerializeToString(), "child")
    run.live.close()
    here, there, back = (str(tmp_path / name) for name in ("run", "tensorboard", "back"))

    beside = verify_logdirs(here, here)
    assert beside.is_equal
    assert [(comparison.points, comparison.not_compared) for comparison in beside.runs] == [(1, 1)]
    report = convert_logdir(here, there, to="tensorboard")
    assert report.runs[0].values == {"scalar": 2}
    assert report.notes == ["already in the target's format, and left where they are: child"]
    assert [tag.tag for tag in inspect_logdir(there).runs[0].tags] == ["loss", "mine"]
    assert verify_logdirs(here, there).is_equal
    assert not convert_logdir(here, there, to="tensorboard").runs[0].events_read
    (restored,) = convert_logdir(there, back, to="mindinsight").runs
    assert restored.problems == ["1 value was written for TensorBoard alone (bridge.summary_writer), and left out"]
    assert verify_logdirs(here, back).is_equal


def test_damage_in_what_a_user_wrote_is_told(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.live.write_values(1, 1.0, {"scalar": [{"tag": "loss", "value": np.float32(0.5)}]})
    for step in (3, 4):
        own = tb_pb.Event(wall_time=2.0, step=step)
        own.summary.value.add(tag="mine", simple_value=4.0)
        run.live.write_user_event(own.SerializeToString(), "")
    run.live.close()
    (path,) = (tmp_path / "run").glob("*tfevents*")
    content = bytearray(path.read_bytes())
    content[content.index(b"mine")] ^= 1
    path.write_bytes(content + content[:5])
    (report,) = convert_logdir(str(tmp_path / "run"), str(tmp_path / "tensorboard"), to="tensorboard").runs
    assert report.values == {"scalar": 2}
    assert [damaged.file for damaged in report.damaged] == [path.name]
    assert [tail.file for tail in report.incomplete] == [path.name]


def test_a_live_file_marks_no_session_since_it_cannot_know_what_a_mark_would_hide(tmp_path: Path) -> None:
    for steps in ((100, 110), (100, 105)):
        run = Run(tmp_path)
        run.live.write_note(0, 1.0, "milestones/training", "training begins")
        for step in steps:
            run.scalar(step, loss=1.0)
        run.live.close()
    events = [event for path in files(tmp_path, "tfevents") for event in read(path)]
    assert len(events) == 8
    assert not any(isinstance(event.content, SessionLog) for event in events)
    assert_equal(tmp_path)


@pytest.mark.parametrize("fsync", [False, True])
def test_a_flush_waits_for_the_disk_only_if_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsync: bool
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.readlink(f"/dev/fd/{descriptor}")))
    run = Run(tmp_path / "run", fsync=fsync)
    for step in range(3):
        run.scalar(step, loss=step)
        assert run.live.flush()
        assert run.live.flush()
    paths = [str(path) for path in files(tmp_path / "run", "events")]
    assert len(paths) == 2
    assert [path for path in synced if path in paths] == sorted(paths, reverse=False) * 3 * fsync
    assert {path for path in synced if path not in paths} == (
        {str(tmp_path / "run"), str(tmp_path)} if fsync else set()
    )
    run.scalar(3, loss=3)
    synced.clear()
    run.live.close()
    assert sorted(synced) == (sorted(paths) if fsync else [])
