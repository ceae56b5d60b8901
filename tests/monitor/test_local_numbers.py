"""A rank's own numbers before the reduction, in the monitor's engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ms_summary_bridge.monitor import Monitor
from ms_summary_bridge.training.distributed import ProcessRank
from tests.monitor_run import Engine, strict_lines, values_of

METRICS = ["loss", "local_loss", "local_grad_norm", "local_grad_norms"]
SQUARES = np.asarray([9.0, 16.0], np.float32)


def outputs(loss: float, squares: Any = SQUARES, *, overflow: bool = False) -> tuple[Any, ...]:
    """Returns what MindFormers' training cell returns with `local_norm: True`."""
    return (np.float32(loss), np.bool_(overflow), np.float32(1024), np.float32(0.5), np.float32(5), squares, None)


def run(directory: Path, place: ProcessRank, returned: list[Any], *, interval: int = 0, **facts: Any) -> Engine:
    engine = Engine(directory, place, metrics=METRICS, interval=interval)
    engine.begin(gradient_names=lambda: ["weight", "bias"], **facts)
    for step, each in enumerate(returned, 1):
        engine.step(step, outputs=each)
    engine.end()
    return engine


def test_in_data_parallel_mode_loss_and_gradients_are_the_ranks_own(tmp_path: Path) -> None:
    engine = run(tmp_path, ProcessRank(rank=1, ranks=4), [outputs(8.0), outputs(6.0)], is_local=True, loss_divisor=2)
    for line in engine.samples():
        norms = {"local_grad_norm": 5.0, "local_grad_norms/weight": 3.0, "local_grad_norms/bias": 4.0}
        assert line["values"] == {"loss": line["values"]["loss"], "local_loss": line["values"]["loss"], **norms}
    assert values_of(engine.samples(), "local_loss") == {1: 4.0, 2: 3.0}


def test_where_the_network_reduces_nothing_is_taken_for_it(tmp_path: Path) -> None:
    """In (semi-)automatic parallel mode; and it is said."""
    engine = run(tmp_path, ProcessRank(rank=0, ranks=4), [outputs(8.0)] * 3, is_local=False)
    assert [line["values"] for line in engine.samples()] == [{"loss": 8.0}] * 3
    # One process has nobody to reduce with.
    engine = run(tmp_path / "one", ProcessRank(), [outputs(8.0)], is_local=False)
    assert engine.samples()[0]["values"]["local_loss"] == 8.0


def test_what_is_missing_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run(tmp_path, ProcessRank(rank=0, ranks=4), [outputs(8.0)] * 3, is_local=False)
    said = [record.getMessage() for record in caplog.records if "no number comes for" in record.getMessage()]
    assert len(said) == 2
    assert "local_loss: in (semi-)automatic parallel mode the loss is reduced in the network" in said[0]
    assert "local_grad_norm, local_grad_norms: the training cell must keep it" in said[1]


def test_a_stage_without_the_loss_has_none_of_its_own(tmp_path: Path) -> None:
    facts = {"is_local": True, "pipeline_stages": 2}
    first = run(tmp_path / "0", ProcessRank(rank=0, ranks=2), [outputs(8.0)], **facts)
    last = run(tmp_path / "1", ProcessRank(rank=1, ranks=2), [outputs(8.0)], **facts)
    assert "local_loss" not in first.samples()[0]["values"]
    assert last.samples()[0]["values"]["local_loss"] == 8.0


def test_a_step_that_overflowed_has_no_norm(tmp_path: Path) -> None:
    engine = run(tmp_path, ProcessRank(), [outputs(1.0, overflow=True), outputs(1.0)])
    assert sorted(values_of(engine.samples(), "local_grad_norm")) == [2]


def test_a_tensor_is_read_at_samples_alone_and_off_the_training_thread(tmp_path: Path) -> None:
    """The last one of an interval counts."""
    read = []

    class Tensor:
        def __init__(self, number: float) -> None:
            self.number = number

        def asnumpy(self) -> Any:
            read.append(self.number)
            return np.asarray([self.number**2, 0.0])

    engine = run(tmp_path, ProcessRank(), [outputs(1.0, Tensor(step)) for step in range(1, 7)], interval=1000)
    assert values_of(engine.samples(), "local_grad_norm") == {1: 1.0, 6: 6.0}
    assert sorted(read) == [1, 1, 6, 6], "by each of the two metrics"


def test_names_that_do_not_fit_cost_the_norms_by_name_alone(tmp_path: Path) -> None:
    squares = np.asarray([9.0, 16.0, 0.0], np.float32)
    (line,) = run(tmp_path, ProcessRank(), [outputs(1.0, squares)]).samples()
    assert {name for name in line["values"] if name.startswith("local_grad")} == {"local_grad_norm"}


@pytest.mark.parametrize(("given", "right"), [({}, 1.0), ({"local_loss": 2.5}, 2.5)])
def test_a_loop_says_it(tmp_path: Path, given: dict[str, float], right: float) -> None:
    section = {"interval": 0, "backend": "local", "save_dir": str(tmp_path), "run_id": "run", "metrics": ["local_loss"]}
    with Monitor(section) as monitor:
        monitor.step(loss=1.0, **given)
    (line,) = [line for line in strict_lines(tmp_path / "default" / "run" / "rank_0") if line["kind"] == "sample"]
    assert line["values"] == {"local_loss": right}, json.dumps(line)
