"""One rank for everybody, whatever variables a launcher or an earlier job has left (C19)."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ms_summary_bridge.monitor.sinks.journal import read_journal
from ms_summary_bridge.runs.logdir import discover
from ms_summary_bridge.training.distributed import find_process_rank, rank_directory
from tests.bridge_scripts.runs import output_of
from tests.conftest import ROOT, TESTS

ONE = "\N{FULLWIDTH DIGIT ONE}"
ENVIRONMENTS: list[tuple[dict[str, str], int, int, str]] = [
    ({}, 0, 1, ""),
    ({"RANK_ID": ""}, 0, 1, ""),
    ({"RANK_ID": "abc"}, 0, 1, "RANK_ID='abc' with no RANK_SIZE"),
    ({"RANK_ID": "-1"}, 0, 1, "RANK_ID='-1' with no RANK_SIZE"),
    ({"RANK_ID": "3"}, 0, 1, "RANK_ID='3' with no RANK_SIZE"),
    ({"RANK_ID": "0"}, 0, 1, ""),
    ({"RANK_ID": "3", "RANK_SIZE": "1"}, 0, 1, "RANK_ID='3' with RANK_SIZE='1'"),
    ({"RANK_ID": "3", "RANK_SIZE": "8"}, 3, 8, ""),
    ({"RANK_SIZE": "8"}, 0, 1, ""),
    ({"RANK_ID": "9", "RANK_SIZE": "8"}, 0, 1, "RANK_ID='9' with RANK_SIZE='8'"),
    ({"RANK": "2", "WORLD_SIZE": "4", "LOCAL_RANK": "2"}, 2, 4, ""),
    ({"RANK": "", "WORLD_SIZE": ""}, 0, 1, ""),
    ({"RANK_ID": "0", "RANK_SIZE": "0"}, 0, 1, "RANK_ID='0' with RANK_SIZE='0'"),
    ({"DEVICE_ID": "5"}, 0, 1, ""),
    ({"DEVICE_ID": "npu:0"}, 0, 1, ""),
    ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, 1, 2, ""),
    ({"RANK_ID": " 1 ", "RANK_SIZE": "2"}, 1, 2, ""),
    ({"RANK_ID": ONE, "RANK_SIZE": "2"}, 0, 1, f"RANK_ID='{ONE}' with RANK_SIZE='2'"),
    ({"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, 0, 1, ""),
    ({"SLURM_PROCID": "3", "SLURM_NTASKS": "8"}, 0, 1, ""),
    ({"MS_WORKER_NUM": "8", "MS_NODE_ID": "x"}, 0, 1, ""),
    ({"RANK_ID": "1", "MS_WORKER_NUM": "2"}, 1, 2, ""),
    ({"RANK_ID": "7", "RANK_SIZE": "4", "RANK": "1", "WORLD_SIZE": "2"}, 1, 2, "RANK_ID='7' with RANK_SIZE='4'"),
]  # fmt: skip
"""Variables, the rank and size that are meant, and which pair is named in the log."""


@pytest.mark.parametrize(("environment", "rank", "ranks", "named"), ENVIRONMENTS)
def test_a_rank_counts_with_a_size_that_it_is_below(
    environment: dict[str, str], rank: int, ranks: int, named: str, caplog: pytest.LogCaptureFixture
) -> None:
    places = [find_process_rank(environment) for _ in range(2)]
    assert [(place.rank, place.ranks) for place in places] == [(rank, ranks)] * 2
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert said == ([f"{named} is not the rank of a distributed training and is not used"] if named else [])


@pytest.mark.parametrize(
    ("directory", "rank", "ranks", "own"),
    [
        ("out", 0, 1, "out"),
        ("out", 3, 8, "out/rank_3"),
        ("out/rank_3", 3, 8, "out/rank_3"),
        ("out/rank_3/", 3, 8, "out/rank_3/"),
        ("out/3", 3, 8, "out/3"),
        ("summary_dir3", 3, 8, "summary_dir3"),
        ("summary_dir0", 0, 8, "summary_dir0"),
        ("summary_dir03", 3, 8, "summary_dir03"),
        ("summary_dir13", 3, 16, "summary_dir13/rank_3"),
        ("summary_dir13", 13, 16, "summary_dir13"),
        ("run_2024", 4, 8, "run_2024/rank_4"),
        ("3d", 3, 8, "3d/rank_3"),
        ("out/rank_3", 0, 1, "out/rank_3"),
    ],
)
def test_a_directory_that_ends_in_the_rank_is_its_own(directory: str, rank: int, ranks: int, own: str) -> None:
    assert rank_directory(directory, rank, ranks) == own


def test_below_a_run_each_rank_has_a_directory() -> None:
    assert rank_directory("run", 0) == "run/rank_0"
    assert rank_directory("run3", 3) == "run3/rank_3"


@pytest.mark.mindspore
def test_bridge_monitor_checkpoints_watchdog_and_viewers_agree(tmp_path: Path) -> None:
    """A real training in each environment."""
    (tmp_path / "environments.json").write_text(json.dumps([environment for environment, *_ in ENVIRONMENTS]))
    with (tmp_path / "output.txt").open("wb") as output:
        done = subprocess.run(
            [
                *(sys.executable, str(TESTS / "monitor_scripts" / "rank_environments.py"), str(tmp_path)),
                *(str(tmp_path / "result.json"), str(tmp_path / "environments.json")),
            ],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            timeout=400,
        )
    assert done.returncode == 0, output_of(tmp_path)
    answers: list[dict[str, Any]] = json.loads((tmp_path / "result.json").read_text())
    found, right = [], []
    named_before: set[str] = set()
    for number, ((environment, rank, ranks, named), answer) in enumerate(zip(ENVIRONMENTS, answers, strict=True)):
        place = tmp_path / str(number)
        run = place / "default" / "run"
        below = "." if ranks == 1 else f"rank_{rank}"
        (journal,) = run.glob("rank_*/metrics.jsonl")
        header = next(iter(read_journal(journal)))
        summaries = list(run.glob("summary/**/*.summary.*_MS"))
        states = list(run.glob("checkpoints/**/checkpoints.json"))
        text = environment.get("RANK_ID", "")
        named_twice = text and text == str(rank) and ranks > 1
        own = list(place.glob(f"summary_dir{text}/**/*_MS"))
        found.append(
            {
                "journal": (journal.parent.name, header["rank"], header["ranks"]),
                "journal of all": (run / "metrics.jsonl").exists(),
                "bridge": [os.path.relpath(path.parent, run / "summary") for path in summaries],
                "file names": [int(path.name.split(".")[5]) for path in summaries],
                "checkpoints": [os.path.relpath(path.parent, run / "checkpoints") for path in states],
                "watchdog": answer["watchdog"][:2],
                "viewers": [run_found.name for run_found in discover(str(run / "summary")).runs],
                "named": [line for line in answer["said"] if "is not the rank" in line],
                "by hand": [os.path.relpath(path.parent, place / f"summary_dir{text}") for path in own],
            }
        )
        is_new = named and named not in named_before
        named_before.add(named)
        right.append(
            {
                "journal": (f"rank_{rank}", rank, ranks),
                "journal of all": rank == 0,
                "bridge": [below],
                "file names": [rank],
                "checkpoints": [below],
                "watchdog": [rank, str(run / f"rank_{rank}")],
                "viewers": [below],
                "named": [f"{named} is not the rank of a distributed training and is not used"] if is_new else [],
                "by hand": ["." if named_twice else below],
            }
        )
    assert found == right
