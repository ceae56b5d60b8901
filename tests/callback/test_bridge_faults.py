"""SummaryBridge when things go wrong: the training goes on and ends by itself, and what was collected is on disk."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from ms_summary_bridge.columns.inspect import inspect_logdir
from ms_summary_bridge.convert.verify import verify_logdirs
from tests.bridge_scripts.runs import (
    Scenarios,
    boards,
    milestones,
    msrun,
    output_of,
    run_scenarios,
    script,
    series,
    summaries,
    wait_until,
)
from tests.conftest import TensorBoardServer

pytestmark = pytest.mark.mindspore

SCENARIOS = [
    *("writer_killed", "writer_killed_always", "writer_stopped", "queue_full", "removed", "full_disk", "file_limit"),
    *("broken_parts", "odd_values"),
]


@pytest.fixture(scope="module")
def scenarios(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scenarios]:
    """Runs all in one process, which ends by itself with 0: no fault stopped a training."""
    base = tmp_path_factory.mktemp("faults")
    disk = base / "full_disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)]
    is_mounted = os.geteuid() == 0 and not subprocess.call(mount, stderr=subprocess.DEVNULL)
    try:
        yield run_scenarios(base, SCENARIOS)
    finally:
        if is_mounted:
            subprocess.check_call(["umount", "-l", str(disk)])


def assert_equal(directory: Path) -> None:
    report = verify_logdirs(str(directory), str(directory))
    assert report.is_equal, report
    assert not report.damaged


def test_a_killed_writer_is_replaced(scenarios: Scenarios) -> None:
    answer = scenarios.returned("writer_killed")
    assert answer["steps"] == 8
    assert answer["slowest"] < 1.5
    directory = scenarios.directory("writer_killed")
    for part in (summaries(directory), boards(directory)):
        assert len(part) == 2
        assert series(part, "loss/auto").steps == [1, 2, 3, 4, 5, 6, 7, 8]
    assert_equal(directory)
    (said,) = scenarios.log("writer_killed")
    assert "has died" in said


def test_a_writer_that_keeps_dying_ends_the_recording_and_not_the_training(scenarios: Scenarios) -> None:
    answer = scenarios.returned("writer_killed_always")
    assert answer["steps"] == 8
    assert answer["slowest"] < 1.5
    assert answer["end"] < 5
    said = scenarios.log("writer_killed_always")
    assert [sum(word in line for line in said) for word in ("has died", "keeps dying", "missing")] == [1, 1, 1]


def test_a_writer_that_hangs_blocks_nothing(scenarios: Scenarios) -> None:
    answer = scenarios.returned("writer_stopped")
    assert answer["steps"] == 40
    assert answer["slowest"] < 1.5
    assert answer["end"] < 6
    said = scenarios.log("writer_stopped")
    assert sum("faster than" in line for line in said) == 1
    assert sum("missing in the files" in line for line in said) == 1


def test_a_full_queue_keeps_the_scalars_and_counts_the_rest(scenarios: Scenarios) -> None:
    directory = scenarios.directory("queue_full")
    assert series(summaries(directory), "loss/auto").steps == [1, 2, 3, 4, 5, 6]
    assert series(summaries(directory), "0.weight/auto").steps == []
    assert_equal(directory)
    said = scenarios.log("queue_full")
    assert sum("faster than" in line for line in said) == 0, "none of them can ever fit"
    told = [line for line in said if "is always left out: queue_bytes is 5120" in line]
    assert [line.split("'")[1] for line in told] == ["0.weight/auto", "0.bias/auto", "1.weight/auto"]
    assert sum("18 histogram values not handed over" in line for line in said) == 1
    assert series(summaries(directory), "1.bias/auto").steps == [1, 2, 3, 4, 5, 6], "this one is small"


def test_a_removed_directory_is_made_again(scenarios: Scenarios) -> None:
    assert scenarios.returned("removed")["steps"] == 8
    directory = scenarios.directory("removed") / "run"
    for part in (summaries(directory), boards(directory)):
        assert series(part, "loss/auto").steps == [4, 5, 6, 7, 8], "all since the last flush that was good"
    assert_equal(directory)
    told = [line for line in scenarios.log("removed") if "was removed" in line]
    assert told
    for line in told:
        path = line.rsplit(" ", 1)[1]
        assert not path.startswith("/") or Path(path).exists(), "the log names no file that is not there"


def test_a_limit_on_the_size_of_files_stops_neither_recording_nor_training(scenarios: Scenarios) -> None:
    answer = scenarios.returned("file_limit")
    assert answer["steps"] == 120
    directory = scenarios.directory("file_limit")
    for part in (summaries(directory), boards(directory)):
        assert len(part) > 1
        assert all(path.stat().st_size <= 20_000 for path in part)
        assert series(part, "loss/auto").steps == [*range(1, 121)]
    assert_equal(directory)


def test_a_full_disk_stops_no_training(scenarios: Scenarios) -> None:
    answer = scenarios.returned("full_disk")
    if answer is None:
        pytest.skip("mounting a file system needs root")
    assert answer["steps"] == 8
    assert answer["slowest"] < 1.5
    assert answer["end"] < 20
    said = scenarios.log("full_disk")
    assert any("No space left" in line for line in said)
    assert sum("not written to disk" in line for line in said) == 1
    assert len(said) < 8, "once for each trouble of each file"


def test_a_part_that_raises_is_left_out_with_one_warning(scenarios: Scenarios) -> None:
    directory = scenarios.directory("broken_parts")
    assert series(summaries(directory), "loss/auto").steps == [1, 2, 3, 4]
    assert_equal(directory)
    said = scenarios.log("broken_parts")
    assert sum("dataset_graph cannot be collected" in line for line in said) == 1
    hooks = [line.split()[1] for line in said if "a fault of ours" in line]
    assert hooks == ["on_train_step_begin", "on_train_epoch_end", "on_train_end"], (
        "once for each hook that looks for them"
    )


def test_a_value_that_cannot_be_packed_is_counted(scenarios: Scenarios) -> None:
    directory = scenarios.directory("odd_values")
    assert series(summaries(directory), "loss/auto").steps == [1, 2, 3, 4]
    assert_equal(directory)
    assert sum("4 histogram values unfit, 4 image values unfit" in line for line in scenarios.log("odd_values")) == 1


# ------------------------------------------------------------------ the process ends


def lines(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().splitlines()] if path.exists() else []


def writer_processes(directory: Path) -> list[psutil.Process]:
    """Returns the writer processes of a run, also those whose training is gone."""
    found = []
    for process in psutil.process_iter(["cmdline"]):  # asked once: none of a process that ends meanwhile
        words = process.info["cmdline"] or []
        is_writer = any("ms_summary_bridge.live_writer.worker" in word for word in words)
        if is_writer and any(str(directory) in word for word in words):
            found.append(process)
    return found


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_kills_the_training_and_none_of_what_was_collected(tmp_path: Path, number: signal.Signals) -> None:
    # As a launcher does: the training's output is a pipe, read to its end before the process is reaped.
    with script("ends.py", "endless", str(tmp_path), cwd=tmp_path, stdout=subprocess.PIPE) as process:
        wait_until(lambda: len(lines(tmp_path / "steps")) > random.randrange(20, 200), timeout_secs=120)
        process.send_signal(number)
        begun = time.monotonic()
        assert process.stdout is not None
        process.stdout.read()
        code = process.wait(60)
        assert time.monotonic() - begun < 15, "the writer holds the pipe open"
    # MindSpore turns SIGINT into SIGTERM once a training runs.
    assert -code in (number, signal.SIGTERM) if number == signal.SIGINT else -code == number
    wait_until(lambda: not writer_processes(tmp_path))
    run = tmp_path / "run"
    done = lines(tmp_path / "steps")
    for part in (summaries(run), boards(run)):
        assert series(part, "loss/auto").steps[: len(done)] == done
    assert_equal(run)
    assert len(inspect_logdir(str(run)).runs) == 1


def test_a_place_that_may_not_be_written_to_stops_no_training(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    is_mounted = os.geteuid() == 0 and not subprocess.call(mount, stderr=subprocess.DEVNULL)
    try:
        (place / "there").mkdir()
        if is_mounted:
            subprocess.check_call(["mount", "-o", "remount,ro", str(place)])
        elif os.geteuid() == 0:
            pytest.skip("root may write everywhere, and cannot mount here")
        else:
            (place / "there").chmod(0o555)
            place.chmod(0o555)
        with script("ends.py", "readonly", str(place), cwd=tmp_path) as process:
            assert process.wait(120) == 0, output_of(tmp_path)
        assert [*place.iterdir()] == [place / "there"]
        assert [*(place / "there").iterdir()] == []
    finally:
        if is_mounted:
            subprocess.check_call(["umount", "-l", str(place)])
    said = output_of(tmp_path)
    assert said.endswith("done\n")
    assert said.count("nothing is recorded") == 2, "for the two directories that cannot be made"
    assert said.count("it is tried again with the next value") == 2, "once for the training, once for what came after"
    assert said.count("records not written to disk") == 2


def test_a_script_without_a_main_guard_trains_as_any_other(tmp_path: Path) -> None:
    with script("no_guard.py", str(tmp_path / "run"), cwd=tmp_path) as process:
        assert process.wait(120) == 0, output_of(tmp_path)
    assert series(summaries(tmp_path / "run"), "loss/auto").steps == [1, 2, 3]
    assert series(boards(tmp_path / "run"), "after the training").numbers == [1.5]
    assert_equal(tmp_path / "run")


# ------------------------------------------------------------------ live


def readable(directory: Path) -> tuple[int, int]:
    """Returns the last step of the loss in each of the two files."""
    part = [summaries(directory), boards(directory)]
    steps = [series(paths, "loss/auto").steps for paths in part]
    return (steps[0] or [0])[-1], (steps[1] or [0])[-1]


@pytest.mark.tensorboard
def test_a_value_is_shown_while_the_training_runs(tmp_path: Path, tensorboard_server: TensorBoardServer) -> None:
    run = tmp_path / "run"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with script("ends.py", "paced", str(tmp_path), cwd=tmp_path, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def to_step(step: int) -> float:
            assert process.stdin is not None
            assert process.stdout is not None
            if step > 1:
                process.stdin.write(b"\n")
                process.stdin.flush()
            assert int(process.stdout.readline()) == step
            return time.monotonic()

        to_step(1)
        wait_until(lambda: readable(run) == (1, 1))  # the writer process has begun
        for step in (2, 3):
            done_at = to_step(step)
            wait_until(lambda step=step: readable(run) == (step, step))
            assert time.monotonic() - done_at < 0.5 + 1, "flush_secs and a second"
        clients = [tensorboard_server(run, load_fast) for load_fast in (True, False)]
        query = {"run": ".", "tag": "loss/auto"}
        for step in (3, 4):
            if step > 3:
                to_step(step)
            for client in clients:
                rows = client.wait_json("data/plugin/scalars/scalars", lambda rows, n=step: len(rows) == n, **query)
                assert [row[1] for row in rows] == [*range(1, step + 1)]
        to_step(5)
        to_step(6)
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert process.wait(60) == 0
        for client in clients:
            client.wait_json("data/plugin/scalars/scalars", lambda rows: len(rows) == 6, **query)
            tags = client.wait_json("data/plugin/text/tags", lambda runs: len(runs.get(".", [])) == 2)
            assert sorted(tags["."]) == ["milestones/epoch", "milestones/training"]
            texts = client.wait_json("data/plugin/text/text", run=".", tag="milestones/training")
            assert "training ends at step 6" in texts[-1]["text"]
    assert [step for step, tag, _ in milestones(run) if tag == "milestones/training"] == [0, 6]
    assert_equal(run)


@pytest.mark.slow
def test_two_ranks_share_a_directory(tmp_path: Path) -> None:
    port = str(random.randrange(20_000, 30_000))
    with script("ends.py", "ranks", str(tmp_path), cwd=tmp_path, program=msrun(port, tmp_path / "log")) as process:
        assert process.wait(200) == 0, output_of(tmp_path)
    run = tmp_path / "run"
    assert sorted(path.name for path in run.iterdir()) == ["rank_0", "rank_1"]
    for rank in (0, 1):
        for part in (summaries(run / f"rank_{rank}"), boards(run / f"rank_{rank}")):
            assert len(part) == 1
            assert series(part, "loss/auto").steps == [1, 2, 3]
            assert series(part, "rank").numbers == [rank] * 3
    assert_equal(run)
    assert len(inspect_logdir(str(run)).runs) == 2
