"""Several trainings, one directory of checkpoints: none harms another, and the ranks of one stay together."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from ms_summary_bridge.monitor.checkpoints.checkpoint_place import LOCK_NAME, CheckpointPlace
from ms_summary_bridge.monitor.checkpoints.checkpoint_state import read_state
from ms_summary_bridge.training.distributed import ProcessRank
from tests.conftest import ROOT, TESTS
from tests.monitor.test_checkpoint_files import assert_whole

ALONE = ProcessRank(rank=0, ranks=1)


class Saver:
    """A process that saves checkpoints without pause."""

    def __init__(self, directory: Path, *arguments: str, environment: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(TESTS / "save_endlessly.py"), str(directory), *arguments, "--place"],
            env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        self.lines: IO[bytes] = self.process.stdout
        word, directory_name, self.user = self.read()
        assert word == "place"
        self.directory = Path(directory_name)

    def read(self) -> Any:
        """Returns what the process says next."""
        return json.loads(self.lines.readline())

    def read_until_saved(self, count: int) -> None:
        """Waits for some saves."""
        while count:
            count -= self.read()[0] == "done"

    def kill(self) -> None:
        """Ends it at once."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(30)
        self.lines.close()


@contextlib.contextmanager
def savers() -> Iterator[list[Saver]]:
    """Kills them all in the end."""
    running: list[Saver] = []
    try:
        yield running
    finally:
        for saver in running:
            saver.kill()


def assert_all_whole(directory: Path) -> None:
    """All that the state of a killed process names is there and whole."""
    state = read_state(str(directory))
    assert state is not None
    assert state.best is not None
    assert state.last
    for checkpoint in state.all:
        assert_whole(directory / checkpoint.file, checkpoint.step)


def test_trainings_at_the_same_time_do_not_harm_each_other_whenever_they_are_killed(tmp_path: Path) -> None:
    rng = random.Random(1)
    asked = tmp_path / "checkpoints"
    for round_number in range(6):
        with savers() as running:
            for number in range(3):
                running.append(Saver(asked, str(10 * round_number + number)))
            places = [asked, tmp_path / "checkpoints_2", tmp_path / "checkpoints_3"]
            assert [saver.directory for saver in running] == places
            assert running[0].user == ""
            assert running[2].user == f"process {running[0].process.pid} on {os.uname().nodename}"
            for saver in running:
                saver.read_until_saved(2)
            time.sleep(rng.random() * 0.02)
            victim = running.pop(rng.randrange(3))
            victim.kill()
            assert_all_whole(victim.directory)
            for saver in running:
                saver.read_until_saved(3)  # those that go on lose nothing by it: save() checks what it has
        for place in places:
            assert_all_whole(place)


def test_a_killed_training_leaves_its_directory_to_the_next_one(tmp_path: Path) -> None:
    with savers() as running:
        for seed in range(3):
            running.append(Saver(tmp_path, str(seed)))
            assert running[-1].directory == tmp_path
            running.pop().kill()


def test_ranks_of_two_trainings_stay_together_in_whatever_order_they_come(tmp_path: Path) -> None:
    def rank(job: int, number: int) -> Saver:
        launcher = {
            "RANK_ID": str(number),
            "RANK_SIZE": "2",
            "MS_SCHED_HOST": "127.0.0.1",
            "MS_SCHED_PORT": f"811{job}",
        }
        return Saver(tmp_path / "c", str(job), environment=launcher)

    with savers() as running:
        for job, number in ((0, 0), (1, 1), (0, 1), (1, 0)):
            running.append(rank(job, number))
        assert [saver.directory.name for saver in running] == ["c", "c_2", "c", "c_2"]
        for saver in running:
            saver.read_until_saved(2)
    for name in ("c", "c_2"):
        for number in (0, 1):
            assert_all_whole(tmp_path / name / f"rank_{number}")


def test_a_rank_that_comes_when_the_first_directory_has_become_free_joins_the_others(tmp_path: Path) -> None:
    with savers() as running:
        running.append(Saver(tmp_path / "c", "0"))
        for number in (0, 1):
            launcher = {"RANK_ID": str(number), "RANK_SIZE": "2", "MS_SCHED_HOST": "127.0.0.1", "MS_SCHED_PORT": "8110"}
            running.append(Saver(tmp_path / "c", "1", environment=launcher))
            if number == 0:
                running.pop(0).kill()
        assert [saver.directory.name for saver in running] == ["c_2", "c_2"]


def test_ranks_without_a_launcher_are_those_of_one_script(tmp_path: Path) -> None:
    with savers() as running:
        for number in (0, 1):
            environment = {"RANK_ID": str(number), "RANK_SIZE": "2", "MS_SCHED_HOST": "", "MASTER_ADDR": ""}
            running.append(Saver(tmp_path, "0", environment=environment))
        assert [saver.directory for saver in running] == [tmp_path, tmp_path]


def test_a_forked_child_does_not_hold_the_directory(tmp_path: Path) -> None:
    place = CheckpointPlace(str(tmp_path / "c"), ALONE)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # a data worker that outlives the training
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    os.close(reading)
    try:
        place.release()
        assert CheckpointPlace(str(tmp_path / "c"), ALONE).directory == str(tmp_path / "c")
    finally:
        os.close(writing)
        os.waitpid(child, 0)


def test_in_one_process_a_later_training_has_the_directory_of_one_that_ended(tmp_path: Path) -> None:
    directory = str(tmp_path / "c")
    first = CheckpointPlace(directory, ALONE)
    first.is_training = False
    second = CheckpointPlace(directory, ALONE)
    assert (first.is_ours, second.is_ours, second.directory) == (False, True, directory)
    third = CheckpointPlace(directory, ALONE, may_follow=False)
    assert (second.is_ours, third.directory) == (True, f"{directory}_2")


def test_what_stands_in_the_lock_from_a_training_that_is_over_means_nothing(tmp_path: Path) -> None:
    for content in (b"", b"{", b"\xff", b'{"training": "x", "process": 1, "host": "h"}' * 200):
        (tmp_path / LOCK_NAME).write_bytes(content)
        place = CheckpointPlace(str(tmp_path), ALONE)
        assert (place.directory, place.user) == (str(tmp_path), "")
        place.release()


def test_a_file_system_without_locks_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", refuse)
    assert CheckpointPlace(str(tmp_path / "c"), ALONE).directory == str(tmp_path / "c")


@pytest.mark.mindspore
def test_two_real_trainings_started_from_one_directory_both_have_their_best(tmp_path: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, str(TESTS / "train_checkpoints.py"), "--sweep", str(seed)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in (1, 2)
    ]
    answers: list[Any] = []
    for process in processes:  # each waits in its first step, until both are there
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
    for process in processes:
        out, _ = process.communicate("go\n", timeout=120)
        assert process.returncode == 0
        answers.append(json.loads(out))
    here = {str(tmp_path / "checkpoints"), str(tmp_path / "checkpoints_2")}
    assert {answer["directory"] for answer in answers} == here
    for answer in answers:
        assert answer["loaded"] == [answer["best"][2], answer["last"][0]]
        assert answer["last"][0] == 16
        assert len(answer["log"]) == (answer["directory"] == str(tmp_path / "checkpoints_2"))
        for line in answer["log"]:
            assert line.startswith(f"SaveBestCheckpoint: {tmp_path / 'checkpoints'} is in use by another training (")
            assert line.endswith(f"checkpoints of this one go to {tmp_path / 'checkpoints_2'}")
