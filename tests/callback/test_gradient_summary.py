"""GradientSummary in real trainings: what is recorded against what `value_and_grad` says, and both viewers.

All trainings are in one process, tests/train_gradients.py, because importing mindspore takes longer than any of them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ms_summary_bridge.events import Summary
from ms_summary_bridge.values import Histogram
from tests.bridge_scripts.runs import boards, events, output_of, script, series, summaries
from tests.conftest import TESTS, MindInsightServer, TensorBoardServer
from tests.monitor_run import strict_lines

pytestmark = pytest.mark.mindspore

NORM = "gradient/global_norm"
PARAMETERS = ["hidden.weight", "hidden.bias", "out.weight", "out.bias"]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("gradients")
    with script(str(TESTS / "train_gradients.py"), str(base), cwd=base) as process:
        code = process.wait(280)
    assert code == 0, output_of(base)
    return base


@pytest.fixture(scope="module")
def result(base: Path) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads((base / "result.json").read_text())
    return answer


def gradients(base: Path, name: str, step: int) -> dict[str, np.ndarray[Any, Any]]:
    with np.load(base / f"{name}.npz") as arrays:
        return {parameter: arrays[f"{step}/{parameter}"] for parameter in PARAMETERS}


def histograms(paths: list[Path]) -> dict[str, dict[int, Histogram]]:
    """Returns the histograms of gradients, by tag and step; of a step that comes twice, the last."""
    found: dict[str, dict[int, Histogram]] = {}
    for path in paths:
        for event in events(path):
            for tagged in event.content.values if isinstance(event.content, Summary) else ():
                if tagged.tag.startswith("gradient/") and isinstance(tagged.value, Histogram):
                    found.setdefault(tagged.tag, {})[event.step] = tagged.value
    return found


def assert_recorded(base: Path, name: str, steps: list[int], chosen: list[str], *, before: int = 0) -> None:
    """In both files there are exactly these steps, and their values are those of the gradients.

    A training of `before` steps with the same bridge may have been before it.
    """
    directory = base / name
    recorded = [*(steps if before else []), *(step + before for step in steps)]
    for paths in (summaries(directory), boards(directory)):
        norms = series(paths, NORM)
        assert norms.steps == recorded
        found = histograms(paths)
        assert sorted(found) == sorted(f"gradient/{parameter}" for parameter in chosen)
        for step, norm in zip(steps, norms.numbers[-len(steps) :], strict=True):
            expected = gradients(base, name, step)
            squares = sum(float((array.astype(np.float64) ** 2).sum()) for array in expected.values())
            assert norm == pytest.approx(squares**0.5, rel=1e-4)
            for parameter in chosen:
                histogram, array = found[f"gradient/{parameter}"][step + before], expected[parameter]
                assert histogram.total == array.size
                assert (histogram.min, histogram.max) == pytest.approx((array.min(), array.max()), rel=1e-4, abs=1e-7)
                assert histogram.sum == pytest.approx(float(array.sum()), rel=1e-3, abs=1e-5)
        for tag in found:
            assert sorted(found[tag]) == recorded


# ------------------------------------------------------------------ what is recorded


def test_in_graph_mode_the_steps_that_the_bridge_collects_are_recorded(base: Path) -> None:
    # In the second training with the same cell, MindSpore counts steps from 1 again, and the bridge goes on.
    assert_recorded(base, "graph", [1, 4, 8], ["hidden.weight", "out.weight"], before=10)


def test_in_pynative_mode_it_is_the_same(base: Path) -> None:
    assert_recorded(base, "pynative", [1, 4, 8], ["hidden.weight", "out.weight"])


def test_gradients_are_without_the_loss_scale(base: Path) -> None:
    assert_recorded(base, "scaled", [1, 2, 4], PARAMETERS)  # by the cell, and every=2
    assert_recorded(base, "fixed", [1, 2], [])  # by the optimizer, and no pattern


def test_a_cell_of_somebodys_own_without_a_reducer(base: Path) -> None:
    assert_recorded(base, "own", [1, 2], ["hidden.weight", "hidden.bias"])


def test_mindspores_own_collector_gets_the_steps_of_every(base: Path) -> None:
    assert series(summaries(base / "collector"), NORM).steps == [1, 3, 6]


@pytest.mark.parametrize("name", ["monitored", "monitored_pynative"])
def test_the_monitor_reads_the_norms_of_the_steps_that_are_recorded(base: Path, name: str) -> None:
    lines = strict_lines(base / name / "default" / "run" / "rank_0")
    samples = {line["step"]: line["values"] for line in lines if line["kind"] == "sample"}
    assert sorted(samples) == [1, 2, 3, 4, 5]
    for step, values in samples.items():
        values.pop("loss")
        each = {
            parameter: float(np.sqrt((array.astype(np.float64) ** 2).sum()))
            for parameter, array in gradients(base, name, step).items()
        }
        right = {"local_grad_norm": sum(norm**2 for norm in each.values()) ** 0.5}
        right.update({f"local_grad_norms/{parameter}": norm for parameter, norm in each.items()})
        assert values == (pytest.approx(right, rel=1e-4) if step in (1, 2, 4) else {})


def test_many_parameters_are_not_too_many(base: Path) -> None:
    assert len(histograms(boards(base / "deep"))) == 62
    assert series(boards(base / "deep"), NORM).steps == [1]


def test_the_training_is_the_same_as_without(result: dict[str, Any]) -> None:
    plain = result["plain"]
    for name in ("graph", "scaled", "fixed", "own", "collector", "pynative"):
        count = min(len(plain), len(result[name]))
        assert count >= 3
        assert result[name][:count] == pytest.approx(plain[:count], rel=1e-5)


def test_a_checkpoint_fits_with_and_without(result: dict[str, Any]) -> None:
    plain, recorded = result["names"]
    assert recorded == plain


def test_there_is_a_graph_beside_the_gradients(base: Path) -> None:
    for paths in (summaries(base / "graph"), boards(base / "graph")):
        kinds = [getattr(event.content, "kind", "") for path in paths for event in events(path)]
        assert kinds.count("graph") == 1


def test_what_cannot_be_recorded_is_said_once_and_the_training_goes_on(result: dict[str, Any]) -> None:
    losses = result["sparse"]["losses"]
    assert losses == sorted(losses, reverse=True)
    assert len(set(losses)) == 3
    (line,) = result["sparse"]["log"]
    assert line == (
        "GradientSummary: TrainOneStepCell.grad_no_sens: gradients cannot be recorded, training goes on without: "
        "a gradient is sparse, such as that of an embedding with sparse=True"
    )


def test_what_is_refused_is_said_with_what_to_do(result: dict[str, Any]) -> None:
    assert result["refused"] == {
        "no optimizer": "GradientSummary: Network is not a one-step training cell, it has no optimizer: "
        "give one as the second argument",
        "pattern": "GradientSummary: pattern '(' is not a regular expression: "
        "missing ), unterminated subpattern at position 0",
        "no parameter": "GradientSummary: pattern 'conv' matches none of the parameters " + ", ".join(PARAMETERS),
        "every": "GradientSummary: every is a positive number of steps, got 0",
    }


# ------------------------------------------------------------------ the viewers

MODES = {"graph": 10, "pynative": 0}
"""With the steps of an earlier training in the same run."""


def norms_of(base: Path, name: str) -> dict[int, float]:
    """Returns the norm of all gradients at the last three steps that the bridge has collected."""
    squares = {
        step: sum(float((array.astype(np.float64) ** 2).sum()) for array in gradients(base, name, step).values())
        for step in (1, 4, 8)
    }
    return {step + MODES[name]: square**0.5 for step, square in squares.items()}


@pytest.mark.parametrize("load_fast", [True, False])
def test_tensorboard_shows_them(base: Path, tensorboard_server: TensorBoardServer, load_fast: bool) -> None:
    board = tensorboard_server(base, load_fast=load_fast)
    for run in MODES:
        expected = norms_of(base, run)
        steps = [*((1, 4, 8) if MODES[run] else ()), *expected]
        points = board.wait_json("data/plugin/scalars/scalars", lambda rows: len(rows) >= 3, run=run, tag=NORM)
        assert [point[1] for point in points] == steps
        assert [point[2] for point in points[-3:]] == pytest.approx([*expected.values()], rel=1e-4)
        shown = board.get_histograms(run, "gradient/hidden.weight")
        assert [point[1] for point in shown] == steps
        assert [sum(bucket[2] for bucket in point[2]) for point in shown] == pytest.approx([64] * len(steps))


def test_mindinsight_shows_them(base: Path, mindinsight_server: MindInsightServer) -> None:
    insight = mindinsight_server(base)
    jobs = [f"./{run}" for run in MODES]
    insight.open_jobs(*jobs)
    for run, job in zip(MODES, jobs, strict=True):
        insight.wait_job(job)
        expected = norms_of(base, run)
        steps = [*((1, 4, 8) if MODES[run] else ()), *expected]
        points = insight.scalars(job, NORM)
        assert [step for step, _ in points] == steps
        assert [norm for _, norm in points[-3:]] == pytest.approx([*expected.values()], rel=1e-4)
        assert [row["step"] for row in insight.histograms(job, "gradient/hidden.weight")] == steps
