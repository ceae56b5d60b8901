"""The mirror of a logdir for MindInsight: what is in its base, after each round."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from ms_summary_bridge.convert.state import STATE_NAME
from ms_summary_bridge.events import Event, Summary
from ms_summary_bridge.files.event_file import EventFileReader
from ms_summary_bridge.files.file_names import MINDSPORE
from ms_summary_bridge.mirror.home import open_home
from ms_summary_bridge.mirror.mirror import Mirror
from ms_summary_bridge.runs.archive import make_decoder
from ms_summary_bridge.runs.logdir import Run, discover
from tests.scripted import START, build_file, mindspore_name, put, tensorboard_name


class Mirrored:
    """A mirror for MindInsight in this process, whose rounds are asked for."""

    def __init__(self, tmp_path: Path) -> None:
        self.logs = tmp_path / "logs"
        self.home = open_home(str(self.logs), str(tmp_path / "cache"), viewer="mindinsight")
        self.said: list[str] = []
        self.mirror = Mirror(self.home, MINDSPORE, 1 << 30, self.said.append, retry_secs=0.0)

    def rounds(self) -> dict[str, list[int]]:
        """Goes on until nothing is new; returns the steps of each run in MindInsight's base."""
        for path in self.logs.rglob("*"):
            os.utime(path, (START, START))  # long ago, so that a file is not given time to settle
        for _ in range(5):
            if not self.mirror.round():
                break
        runs: dict[str, list[int]] = {}
        for run in discover(self.home.base).runs:
            with contextlib.ExitStack() as stack:
                readers = [EventFileReader(file.path, make_decoder(run.format)) for file in run.files]
                events = [event for each in readers for event in stack.enter_context(each)]
            runs[run.name] = [e.step for e in events if isinstance(e, Event) and isinstance(e.content, Summary)]
        return runs


def test_a_cache_that_is_damaged_is_made_anew(tmp_path: Path) -> None:
    mirrored = Mirrored(tmp_path)
    ours = put(mirrored.logs / "ms" / mindspore_name(), build_file("mindspore", range(1, 3)))
    grows = put(mirrored.logs / "a" / "tf" / tensorboard_name(), build_file("tensorboard", range(1, 3)))
    assert mirrored.rounds() == {"ms": [1, 2], "a+tf": [1, 2]}
    (state,) = Path(mirrored.home.path).glob(f"outputs/*/{STATE_NAME}")
    state.write_bytes(b"no state")
    grows.write_bytes(build_file("tensorboard", range(1, 4)))
    assert mirrored.rounds() == {"ms": [1, 2], "a+tf": [1, 2, 3]}
    assert mirrored.said == []
    assert ours.read_bytes() == build_file("mindspore", range(1, 3))


def test_a_fault_of_ours_is_said_once_and_the_work_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mirrored = Mirrored(tmp_path)
    put(mirrored.logs / "ms" / mindspore_name(), build_file("mindspore", range(1, 3)))
    path = put(mirrored.logs / "tf" / tensorboard_name(), build_file("tensorboard", range(1, 3)))

    def fail(*arguments: Any, **options: Any) -> Any:
        raise ZeroDivisionError("a fault")

    with monkeypatch.context() as patch:
        patch.setattr("ms_summary_bridge.mirror.directory.convert_logdir", fail)
        assert mirrored.rounds() == {"ms": [1, 2]}
    assert mirrored.said == [f"{path.parent}: cannot be followed: ZeroDivisionError: a fault"]
    assert mirrored.rounds() == {"ms": [1, 2], "tf": [1, 2]}, "it is tried again"

    def cannot_link(run: Run, *arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patch:
        patch.setattr("ms_summary_bridge.mirror.base.link_run", cannot_link)
        put(mirrored.logs / "late" / mindspore_name(), build_file("mindspore", range(1, 3)))
        assert mirrored.rounds() == {"ms": [1, 2], "tf": [1, 2]}
    assert sum("late: cannot be shown" in line for line in mirrored.said) == 1
    assert mirrored.rounds() == {"late": [1, 2], "ms": [1, 2], "tf": [1, 2]}


def test_mindinsight_is_shown_what_comes_grows_and_goes(tmp_path: Path) -> None:
    mirrored = Mirrored(tmp_path)
    assert mirrored.rounds() == {}, "the logdir is not there yet"
    for rank in (0, 1):
        put(mirrored.logs / "job" / mindspore_name(rank=rank), build_file("mindspore", range(1, 3 + rank)))
    put(mirrored.logs / "job" / tensorboard_name(), build_file("tensorboard", range(1, 6)))
    put(mirrored.logs / tensorboard_name(), build_file("tensorboard", range(1, 3)))
    assert mirrored.rounds() == {"job": [1, 2, 3, 4, 5], ".": [1, 2], "job+rank_0": [1, 2], "job+rank_1": [1, 2, 3]}
    links = set(os.listdir(Path(mirrored.home.base) / "job+rank_0"))
    shutil.rmtree(mirrored.logs / "job")
    assert mirrored.rounds() == {".": [1, 2]}
    put(mirrored.logs / "job" / "rank_0" / mindspore_name(), build_file("mindspore", range(1, 8)))
    assert mirrored.rounds()["job+rank_0"] == list(range(1, 8))
    again = set(os.listdir(Path(mirrored.home.base) / "job+rank_0"))
    assert not {name for name in links & again if name.endswith("_MS")}, "MindInsight would take it for the same file"
    shutil.rmtree(mirrored.logs / "job")
    assert mirrored.rounds() == {".": [1, 2]}
    assert os.listdir(Path(mirrored.home.path) / "outputs") == os.listdir(Path(mirrored.home.path) / "views")
    base = os.stat(mirrored.home.base).st_ino
    put(mirrored.logs / "mirror.x" / mindspore_name(), build_file("mindspore", range(1, 3)))
    (mirrored.logs / tensorboard_name()).unlink()
    assert mirrored.rounds() == {"mirror.x": [1, 2]}, "a name as our links have it"
    shutil.rmtree(mirrored.logs)
    assert mirrored.rounds() == {}
    assert os.stat(mirrored.home.base).st_ino == base, "MindInsight goes on to look there"
