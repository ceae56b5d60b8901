"""The watchdog beside real MindSpore trainings that hang: in a data worker, in a callback, in a C call with the GIL."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.bridge_scripts.runs import output_of, wait_until
from tests.conftest import ROOT, TESTS
from tests.monitor_run import strict_lines

pytestmark = pytest.mark.mindspore

SCRIPT = TESTS / "monitor_scripts" / "hanging_training.py"
HANGS = {"data_worker": "data", "callback": "callbacks", "c_call": "callbacks"}


class Hung(NamedTuple):
    """What one process did in which one training after the other hung, and was released once that was reported."""

    base: Path
    output: str

    def rank(self, kind: str) -> Path:
        return self.base / kind / "default" / "run" / "rank_0"

    def notes(self, kind: str) -> list[dict[str, Any]]:
        return notes(self.rank(kind))


def notes(rank: Path) -> list[dict[str, Any]]:
    path = rank / "hang.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture(scope="module")
def hung(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hung]:
    base = tmp_path_factory.mktemp("hung")
    for kind in HANGS:
        (base / kind).mkdir()
        os.mkfifo(base / kind / "release")
    with (base / "output.txt").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, str(SCRIPT), str(base)],
            cwd=base,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        for kind in HANGS:
            rank = base / kind / "default" / "run" / "rank_0"
            wait_until(lambda rank=rank: notes(rank) or process.poll() is not None, timeout_secs=150)
            assert process.poll() is None, output_of(base)
            with (base / kind / "release").open("wb") as pipe:
                pipe.write(b"x" * 8)
        assert process.wait(120) == 0, output_of(base)
        yield Hung(base, (base / "output.txt").read_text())
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize("kind", HANGS)
def test_a_hang_is_reported_once_with_stacks(hung: Hung, kind: str) -> None:
    found = hung.notes(kind)
    assert [line["kind"] for line in found] == ["hang", "recovered"]
    alert = found[0]
    assert (alert["fields"]["phase"], alert["epoch"]) == (HANGS[kind], 1)
    assert alert["value"] > alert["bound"] >= 4.0
    (report,) = hung.rank(kind).glob("hang-*.txt")
    text = report.read_text()
    assert "model.py" in text.partition("stacks of process")[0], "where in MindSpore the training is"
    assert text.splitlines()[0] in hung.output
    samples = [line for line in strict_lines(hung.rank(kind)) if line["kind"] == "sample"]
    assert samples[-1]["step"] == 6, "it went on to its end"


def test_the_data_worker_is_found(hung: Hung) -> None:
    alert = hung.notes("data_worker")[0]
    assert "look at the data workers" in alert["advice"]
    main = alert["fields"]["pid"]
    workers = [pid for pid, text in alert["found"]["stacks"].items() if "in wait_in_worker" in text]
    assert workers, alert["found"]["stacks"]
    assert str(main) not in workers
    assert set(map(int, workers)) <= {child["pid"] for child in alert["found"]["children"]}


def test_the_callback_is_found(hung: Hung) -> None:
    alert = hung.notes("callback")[0]
    assert alert["step"] == 3
    assert "in wait_in_callback" in alert["found"]["stacks"][str(alert["fields"]["pid"])]


def test_the_c_call_is_found(hung: Hung) -> None:
    alert = hung.notes("c_call")[0]
    assert alert["step"] == 3
    assert "in wait_in_c\n" in alert["found"]["stacks"][str(alert["fields"]["pid"])]


def test_every_phase_is_told(hung: Hung) -> None:
    seen = json.loads((hung.base / "phases.json").read_text())
    assert seen == {
        "begin": ["start"],
        "step": ["compile", "compute"],
        "callback": ["callbacks"],
        "loss monitor": ["compute"],
        "saver": ["checkpoint"],
        "evaluation": ["evaluation"],
        "end": ["nobody watches"],
        "afterwards": ["nobody watches"],
    }
    assert notes(hung.rank("phases")) == []
