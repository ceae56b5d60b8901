"""Two data parallel trainings of two ranks each, at once in one working directory: gradients and checkpoints."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.bridge_scripts.runs import msrun, output_of, script, series, summaries
from tests.conftest import TESTS

pytestmark = pytest.mark.mindspore

JOBS = ("one", "two")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("two_ranks")
    with contextlib.ExitStack() as stack:
        processes = []
        for number, job in enumerate(JOBS):
            (base / job).mkdir()
            program = msrun(8151 + number, base / job / "logs")
            started = script(str(TESTS / "train_two_ranks.py"), str(base / job), cwd=base, program=program)
            processes.append(stack.enter_context(started))
        codes = [process.wait(280) for process in processes]
    assert codes == [0, 0], output_of(base)
    return base


def answers(base: Path, job: str) -> list[dict[str, Any]]:
    return [json.loads((base / job / f"rank_{rank}.json").read_text()) for rank in (0, 1)]


@pytest.mark.parametrize("job", JOBS)
def test_each_rank_records_the_gradients_of_its_own_batch(base: Path, job: str) -> None:
    ranks = answers(base, job)
    for rank, answer in enumerate(ranks):
        norms = series(summaries(base / job / "summary" / f"rank_{rank}"), "gradient/global_norm")
        assert norms.steps == [1, 2, 3]
        assert norms.numbers == pytest.approx([*answer["norms"].values()], rel=1e-6)
        assert answer["reduces"] == "DistributedGradReducer"
    assert ranks[0]["norms"] != ranks[1]["norms"]


def test_the_checkpoints_of_each_training_stay_together(base: Path) -> None:
    directories = set()
    for job in JOBS:
        ranks = answers(base, job)
        (directory,) = {answer["directory"] for answer in ranks}
        directories.add(directory)
        assert sorted(path.name for path in Path(directory).glob("rank_*")) == ["rank_0", "rank_1"]
        assert all(answer["loaded"] == answer["best"] for answer in ranks)
        in_use = [line for answer in ranks for line in answer["log"] if "is in use by another training" in line]
        assert len(in_use) == 2 * (directory != str(base / "checkpoints"))
    assert directories == {str(base / "checkpoints"), str(base / "checkpoints_2")}
