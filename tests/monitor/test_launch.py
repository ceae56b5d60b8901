"""The directory that all ranks of a launch have in common, with real processes; none of them waits for another."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from ms_summary_bridge.monitor.config.file import load_config
from ms_summary_bridge.monitor.sinks import launch
from ms_summary_bridge.monitor.sinks.run_record import choose_run_directory
from ms_summary_bridge.training.distributed import ProcessRank
from tests.conftest import ROOT, TESTS
from tests.monitor_run import Engine, strict_lines

CHOOSE = """
import sys
from ms_summary_bridge.monitor import load_config
from ms_summary_bridge.training.distributed import ProcessRank
from ms_summary_bridge.monitor.sinks.run_record import choose_run_directory
for _ in range(2):
    print(choose_run_directory(load_config({"save_dir": sys.argv[1]}), ProcessRank(rank=int(sys.argv[2]), ranks=3)))
"""


def clean_environment(**more: str) -> dict[str, str]:
    """Returns this environment without a job's own variables."""
    own = {name: value for name, value in os.environ.items() if name not in (*launch.JOBS, *launch.ADDRESSES)}
    return {**own, "PYTHONPATH": str(ROOT), **more}


def launch_ranks(directory: Path, **more: str) -> list[list[str]]:
    """Returns the two directories that each rank of a launch chose."""
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", CHOOSE, str(directory), str(rank)],
            env=clean_environment(**more),
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in (2, 1, 0)
    ]
    return [process.communicate(timeout=60)[0].split() for process in ranks]


def test_all_ranks_of_a_launch_find_one_run_and_its_second_training_another(tmp_path: Path) -> None:
    said = launch_ranks(tmp_path)
    assert said[0] == said[1] == said[2]
    assert len(set(said[0])) == 2
    again = launch_ranks(tmp_path)
    assert again[0] == again[1] == again[2]
    assert not set(again[0]) & set(said[0]), "the notes of the launch before are not taken for this one's"
    assert len(list((tmp_path / "default").glob(".launch-*"))) == 2, "nor do they pile up"


def test_disks_that_are_not_shared_have_one_name_by_the_job(tmp_path: Path) -> None:
    for number, name in enumerate(("job-4711", "job-4711-3")):
        for disk in ("a", "b"):
            said = launch_ranks(tmp_path / disk, SLURM_JOB_ID="4711")
            assert said[0] == said[1] == said[2]
            assert Path(said[0][0]) == tmp_path / disk / "default" / name, number


@pytest.mark.parametrize(("early_secs", "is_taken"), [(-5.0, True), (100.0, True), (140.0, False)])
def test_hosts_of_one_launch_may_start_apart_but_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, early_secs: float, is_taken: bool
) -> None:
    """Rank 0 on another host has left its note so long before this process began: two minutes are one launch."""
    config = load_config({"save_dir": str(tmp_path)})
    began = psutil.Process().create_time()

    def choose(host: str, rank: int) -> str:
        monkeypatch.setattr(launch, "_calls", itertools.count(1))
        monkeypatch.setattr(launch.platform, "node", lambda: host)
        return choose_run_directory(config, ProcessRank(rank=rank, ranks=2))

    with monkeypatch.context() as patch:
        patch.setattr(launch.time, "time", lambda: began - early_secs)
        first = choose("host-a", 0)
    assert (choose("host-b", 1) == first) == is_taken


def test_a_note_that_was_never_finished_is_nobodys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_calls", itertools.count(1))
    for name in launch.ADDRESSES:
        monkeypatch.delenv(name, raising=False)
    (tmp_path / ".launch-local-1.1.json").write_bytes(b"")
    run = launch.join_run(str(tmp_path), ProcessRank(rank=1, ranks=2))
    assert Path(run, "rank_1").is_dir()
    assert [path.name for path in tmp_path.glob(".launch-*")] == [".launch-local-1.2.json"]


def test_a_run_that_was_made_already_is_the_one_of_all_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "made").mkdir()
    for rank in (0, 1):
        monkeypatch.setattr(launch, "_calls", itertools.count(1))
        made = str(tmp_path / "made") if rank == 0 else None
        assert launch.join_run(str(tmp_path), ProcessRank(rank=rank, ranks=2), made) == str(tmp_path / "made")


def test_a_rank_says_after_a_while_that_rank_0_is_elsewhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    engine = Engine(tmp_path, place=ProcessRank(rank=1, ranks=2, host="host"), run_id=None, interval=0).begin()
    engine.step(1)
    engine.recorder.flush()
    assert "has no files of rank 0" not in caplog.text
    engine.clock.now += 31
    engine.step(2)
    engine.recorder.flush()
    assert caplog.text.count("has no files of rank 0: save_dir is another disk there") == 1
    assert "give all ranks one `run_id`, or a save_dir that they share" in caplog.text
    engine.recorder.end()
    assert caplog.text.count("has no files of rank 0") == 1


@pytest.mark.mindspore
def test_a_rank_without_a_shared_disk_trains_at_once_and_loses_nothing(tmp_path: Path) -> None:
    ranks = [
        subprocess.Popen(
            [
                *(sys.executable, str(TESTS / "monitor_scripts" / "unshared_rank.py")),
                *(str(tmp_path / f"disk{rank}"), str(tmp_path / f"{rank}.json")),
            ],
            env=clean_environment(RANK_ID=str(rank), RANK_SIZE="2"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in (1, 0)
    ]
    logs = [process.communicate(timeout=300)[0] for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0], logs
    for name in ("alone", "job"):
        said = logs[0].split("=== job\n")[name == "job"]
        runs = {}
        for rank in (0, 1):
            told = json.loads((tmp_path / f"{rank}.json").read_text())
            assert told[name] < 5, told
            base = tmp_path / f"disk{rank}" / name / "default"
            (runs[rank],) = (path for path in base.iterdir() if path.is_dir())
            lines = strict_lines(runs[rank] / f"rank_{rank}")
            assert [line["step"] for line in lines if line["kind"] == "sample"] == [1, 2, 3]
            assert list((runs[rank] / "checkpoints").rglob("*.ckpt"))
            assert list((runs[rank] / "summary" / f"rank_{rank}").glob("events.*"))
        assert f"{runs[1]} has no files of rank 0" in said
        if name == "job":
            assert runs[0].name == runs[1].name == "job-4711"
            assert "made of SLURM_JOB_ID, so it is the same on every disk" in said
        else:
            assert "give all ranks one `run_id`, or a save_dir that they share" in said
