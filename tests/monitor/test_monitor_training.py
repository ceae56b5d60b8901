"""The monitor in real MindSpore trainings: the callback, what it writes, and what both viewers show of it.

Most trainings are scenarios of tests/monitor_scripts/scenarios.py, all in one process, because importing mindspore
takes longer than any of them.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ms_summary_bridge.events import Summary
from tests.bridge_scripts.runs import Scenarios, boards, events, msrun, series, summaries
from tests.conftest import MindInsightServer, TensorBoardServer
from tests.monitor_run import run_script, strict_lines, values_of

pytestmark = pytest.mark.mindspore

PYTHON = [sys.executable]


@pytest.fixture(scope="module")
def scenarios(tmp_path_factory: pytest.TempPathFactory) -> Scenarios:
    base = tmp_path_factory.mktemp("monitor")
    run_script(base, PYTHON, "scenarios.py", str(base), str(base / "result.json"))
    return Scenarios(base, json.loads((base / "result.json").read_text()))


def samples(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in lines if line["kind"] == "sample"]


# ------------------------------------------------------------------ the section that people write

RUN = Path("bert-large-wwm-pretrain", "run")
NAMES = ["loss", "lr", "tokens_per_second", "memory_usage", "global_rank"]


def test_the_section_records_everything_it_names(scenarios: Scenarios) -> None:
    run = scenarios.directory("article") / RUN
    answer = scenarios.returned("article")
    assert answer["classes"] == ["SummaryBridge", "MindSporeTransformersMonitor"]
    lines = strict_lines(run / "rank_0")
    header = lines[0]
    assert (header["project"], header["tags"]) == ("bert-large-wwm-pretrain", {"dataset": "v3", "model": "340M"})
    assert header["versions"]["mindspore"]
    assert header["config"]["callback"]["params"]["warn_on_value"] == {"loss": 50.0, "tokens_per_second": 1000}
    assert "scenarios.py" in " ".join(header["command"])
    found = samples(lines)
    assert [line["step"] for line in found] == list(range(1, 17))
    for name in NAMES:
        first = 2 if name == "tokens_per_second" else 1  # the first step compiles
        assert list(values_of(found, name)) == list(range(first, 17)), name
    assert list(values_of(found, "loss").values()) == answer["losses"]
    assert list(values_of(found, "lr").values()) == pytest.approx([0.05] * 16)
    assert all(100 < (number or 0) < 100_000 for number in values_of(found, "memory_usage").values())
    assert {line["epoch"] for line in found} == {1, 2}
    whole = strict_lines(run)
    assert values_of(samples(whole), "loss") == values_of(found, "loss")
    assert samples(whole)[0]["ranks"] == [0]


def test_the_console_shows_it(scenarios: Scenarios) -> None:
    log = scenarios.log("article")
    assert re.fullmatch(r"global rank 0 of 1 \(from default: no launcher\), CPU 0 of \S+", log[0])
    number = r"[\d.e+-]+"
    line = (
        rf"epoch 2/2 step: 7/8, loss: {number}, lr: 0.05, tokens/s: {number}, rank: 0, memory: {number} MiB, "
        r"ETA: \d:\d\d:\d\d,( \d+ % waiting for data,)? interval_steps: 1"
    )
    assert sum(bool(re.fullmatch(line, said)) for said in log) == 1
    assert any(said.startswith("best loss: ") for said in log)
    assert any(re.match(r"time: \d+ % in the first step, which compiles, ", said) for said in log)
    assert any(said.startswith("TensorBoard: tensorboard --logdir ") for said in log)
    text = (scenarios.directory("article") / RUN / "rank_0" / "monitor.log").read_text()
    assert all(said in text for said in log)


def test_both_viewers_show_it(
    scenarios: Scenarios, tmp_path: Path, tensorboard_server: TensorBoardServer, mindinsight_server: MindInsightServer
) -> None:
    """Through the bridge that the section makes, and without one."""
    base = tmp_path / "runs"
    shutil.copytree(scenarios.directory("article") / RUN / "summary", base / "bridge")
    shutil.copytree(scenarios.directory("without_a_bridge") / "default" / "run" / "summary", base / "alone")
    right = dict(enumerate(np.float32(scenarios.returned("article")["losses"]).tolist(), start=1))
    board = tensorboard_server(base)
    tags = board.wait_json("data/plugin/scalars/tags", lambda answer: {"bridge", "alone"} <= answer.keys())
    assert {f"monitor/{name}" for name in NAMES} <= tags["bridge"].keys()
    assert {"monitor/loss", "monitor/lr", "monitor/memory_usage"} <= tags["alone"].keys()
    points = board.get_json("data/plugin/scalars/scalars", run="bridge", tag="monitor/loss")
    assert {step: value for _, step, value in points} == pytest.approx(right)
    for run, content in (("bridge", "340M"), ("alone", "24")):
        (text, *_) = board.get_json("data/plugin/text/text", run=run, tag="monitor/tags")
        assert content in text["text"]
    asked = {"colParams": [], "startIndex": 0, "sliceSize": 9, "allowedStatuses": ["STATUS_SUCCESS"]}
    groups = board.get_json("data/plugin/hparams/session_groups", request=json.dumps(asked))["sessionGroups"]
    table = {group["sessions"][0]["name"]: group["hparams"] for group in groups}
    assert (table["bridge"]["model"], table["bridge"]["dataset"]) == ("340M", "v3"), "tags are in the HParams table"
    assert (table["alone"]["layers"], table["alone"]["dropout"]) == (24.0, 0.1)
    texts = {"run": "bridge", "tag": "monitor/end"}
    assert "best loss" in board.get_json("data/plugin/text/text", **texts)[0]["text"]

    insight = mindinsight_server(base)
    for job, steps in (("./bridge", 16), ("./alone", 4)):
        insight.wait_job(job)
        assert len(insight.scalars(job, "monitor/loss")) == steps
    assert dict(insight.scalars("./bridge", "monitor/loss")) == pytest.approx(right)
    lineages = insight.wait_lineages("./bridge", "./alone")
    assert json.dumps(lineages["./bridge"]).count("340M") == 1
    assert "dropout" in json.dumps(lineages["./alone"])


def test_true_alone_switches_everything_on(scenarios: Scenarios) -> None:
    answer = scenarios.returned("all_defaults")
    assert {"SummaryBridge", "MindSporeTransformersMonitor"} <= set(answer["classes"])
    first, last = samples(answer["lines"])
    assert (first["step"], last["step"], last["interval_steps"]) == (1, 4, 3)
    assert last["values"].keys() == {"loss", "lr", "step_time", "samples_per_second", "memory_usage"}
    assert last["min"]["loss"] <= last["mean"]["loss"] <= last["max"]["loss"]


def test_a_dict_and_a_context_made_by_hand(scenarios: Scenarios) -> None:
    answer = scenarios.returned("by_hand")
    found = samples(answer["object"])
    assert [(line["step"], line["epoch"]) for line in found] == [(1, 1), (2, 1), (3, 1)]
    assert list(values_of(found, "loss").values()) == pytest.approx([1.0, 1 / 2, 1 / 3])
    assert values_of(samples(answer["dict"]), "loss") == {1: 0.5}
    assert [(line["step"], line["epoch"]) for line in samples(answer["numpy"])] == [(1, 1)]
    assert "$.interval: is not read beside config" in answer["refused"]
    assert "$.csv: is not read beside config" in answer["refused"]
    assert sum("no optimizer is found" in line for line in scenarios.log("by_hand")) == 2, "once for each monitor"


def test_a_class_of_the_users_own(scenarios: Scenarios) -> None:
    answer = scenarios.returned("own_class")
    assert answer["config"] == {"type": "TheirMonitor", "params": {"anything": 1}}
    assert answer["dotted"] == ["AtStep"]
    assert "registered: MindSporeTransformersMonitor, TheirMonitor" in answer["unknown"]
    assert answer["defines"] == [], "model.fit refuses callbacks that define these"


def test_enable_false_is_no_callback_and_one_line(scenarios: Scenarios) -> None:
    assert scenarios.returned("own_class")["off"] == []
    assert scenarios.log("own_class") == ["the monitor is switched off by `enable: false` in dict"]


# ------------------------------------------------------------------ what a step says


def test_every_form_of_the_outputs(scenarios: Scenarios) -> None:
    """B20."""
    for name, answer in scenarios.returned("losses").items():
        assert answer["found"].get("loss") == answer["right"], name
        assert ("loss" in answer["found"]) == (answer["right"] is not None), name
    found = scenarios.returned("losses")
    assert found["mindformers_7"]["found"] == {"loss": 0.5, "lr": 0.125, "grad_norm": 2.0}
    assert "lr" not in found["scaled"]["found"]
    hints = sum("no optimizer is found" in line for line in scenarios.log("losses"))
    assert hints == sum("lr" not in answer["found"] for answer in found.values()), "none where the outputs hold it"
    assert not any("no optimizer" in line for line in scenarios.log("sink")), "none where nobody asks for it"


def test_every_form_of_the_learning_rate(scenarios: Scenarios) -> None:
    """B20."""
    found = scenarios.returned("learning_rates")
    near = pytest.approx
    assert [line["lr"] for line in found["number"]] == near([0.1] * 3)
    assert [line["lr"] for line in found["list"]] == near([0.1, 0.2, 0.3])
    assert [line["lr"] for line in found["schedule"]] == near([0.1, 0.0775, 0.055])
    assert all(line == near({"lr/group_0": 0.1, "lr/group_1": 0.01}) for line in found["groups"])


def test_data_sink_mode(scenarios: Scenarios) -> None:
    """B23."""
    found = samples(scenarios.returned("sink"))
    assert [(line["step"], line["epoch"], line["interval_steps"]) for line in found] == [
        *((100, 1, 100), (200, 2, 100), (300, 3, 100)),
    ]
    assert list(values_of(found, "step_time")) == [200, 300]
    assert sum("data sink mode" in line for line in scenarios.log("sink")) == 1


def test_run_contexts_of_a_loop_of_ones_own(scenarios: Scenarios) -> None:
    found = scenarios.returned("other_contexts")
    counts = [(line["step"], line["interval_steps"]) for line in samples(found["lines"])]
    assert counts == [(1, 1), (15, 14), (1, 1), (15, 14)]
    assert found["timed"] == [True, True, False]


def test_data_sinks_that_a_cpu_does_without(scenarios: Scenarios) -> None:
    places = [line.split(",")[0] for line in scenarios.log("no_sink_on_a_cpu") if line.startswith("epoch")]
    assert places == [f"epoch {epoch}/2 step: {step}/6" for epoch in (1, 2) for step in range(1, 7)]


def test_a_pipeline_is_seen(scenarios: Scenarios) -> None:
    assert scenarios.returned("pipeline") == [2, 1]


def test_a_loss_that_is_no_number_is_said_at_its_step(scenarios: Scenarios) -> None:
    answer = scenarios.returned("nan_loss")
    assert answer["is_null"]
    (warning,) = [line for line in answer["lines"] if line["kind"] == "warning"]
    assert (warning["step"], warning["nonfinite"]) == (2, {"value": "inf"})
    last = samples(answer["lines"])[-1]
    assert (last["nonfinite"], last["nonfinite_steps"]) == ({"loss": "nan"}, {"loss": 5})
    assert not any("NaN" in line for line in scenarios.log("faults"))


def test_a_loop_in_pynative_mode(scenarios: Scenarios) -> None:
    answer = scenarios.returned("pynative")
    found = samples(answer["lines"])
    assert list(values_of(found, "loss").values()) == answer["losses"]
    assert list(values_of(found, "lr").values()) == pytest.approx([0.01] * 5)
    ratios = values_of(found, "update_ratio")
    assert list(ratios.values()) == pytest.approx([0.02] * 2, rel=1e-4)
    assert len(values_of(found, "tokens_per_second")) == 4


# ------------------------------------------------------------------ among other callbacks


def test_a_bridge_in_the_list_carries_the_values(scenarios: Scenarios) -> None:
    directory = scenarios.directory("beside_a_bridge")
    files = summaries(directory / "bridge")
    assert len(files) == 1
    assert series(files, "monitor/loss").steps == [1, 2, 3, 4]
    assert series(files, "monitor/loss").numbers == series(files, "loss/auto").numbers
    assert sorted(scenarios.returned("beside_a_bridge")) == ["metrics.jsonl", "rank_0"], "no files of its own"


def numbers(files: list[Path], tag: str) -> dict[int, float]:
    found = series(files, tag)
    return dict(zip(found.steps, found.numbers, strict=True))


@pytest.mark.parametrize("first", ["bridge", "monitor"])
@pytest.mark.parametrize("every", [1, 3])
def test_bridge_and_monitor_write_the_same_numbers(scenarios: Scenarios, first: str, every: int) -> None:
    """To the bit, for the same steps, whoever comes first and tells the times."""
    name = f"{first}_{every}"
    seen = scenarios.returned("same_numbers")[name]
    files = boards(scenarios.directory("same_numbers") / name / "bridge")
    steps = [step for step in range(1, 13) if step == 1 or step % every == 0]
    for tag in ("loss", "lr", "epoch", "step_time", "samples_per_second"):
        bridges = {"loss": "loss/auto", "epoch": "train_info/epoch"}.get(tag, tag)
        ours, theirs = numbers(files, f"monitor/{tag}"), numbers(files, bridges)
        assert ours == theirs, tag
        assert list(ours) == (steps if tag in ("loss", "lr", "epoch") else steps[1:]), "the first step compiles"
    times = numbers(files, "step_time")
    for step, rate in numbers(files, "samples_per_second").items():
        assert rate * times[step] == pytest.approx(4, rel=1e-5)
    assert seen["evaluation"] > 0
    assert seen["checkpoint"] > 0
    assert seen["left"] == []


def test_evaluation_and_checkpoints_are_seen_and_left_out(scenarios: Scenarios) -> None:
    answer = scenarios.returned("fit")
    found = samples(answer["lines"])
    assert [line["step"] for line in found] == list(range(1, 13)), "an evaluation is no end of the training"
    parts = answer["lines"][-1]["breakdown"]
    assert parts["evaluation"] > 0
    assert parts["checkpoint"] > 0
    assert parts["data"] > 0
    saved_and_evaluated = parts["evaluation"] + parts["checkpoint"]
    timed = sum(number or 0.0 for number in values_of(found, "step_time").values())
    assert timed <= sum(parts.values()) - saved_and_evaluated
    assert answer["left"] == [], "the timers are off again"
    assert not any(name == "grad_norm" for line in found for name in line["values"]), "nobody knows it"


def test_the_loss_monitor_is_hinted_at_or_silenced(scenarios: Scenarios) -> None:
    said = scenarios.returned("loss_monitors")
    assert said["False"].count("loss is") == 3
    assert "loss is" not in said["True"]
    assert all("epoch time" in text for text in said.values()), "TimeMonitor is left alone"
    assert sum("quiet_loss_monitor: true" in line for line in scenarios.log("loss_monitors")) == 1


def test_a_forked_child_does_nothing(scenarios: Scenarios) -> None:
    answer = scenarios.returned("forked")
    assert answer["codes"] == [10, 10, 10], "nothing was polled there, and once it was said that nothing is recorded"
    assert [line["step"] for line in samples(answer["lines"])] == [1, 2, 3]


@pytest.mark.parametrize("mode", ["forked", "daemon", "spawned"])
def test_a_training_in_another_process_than_the_monitor_was_made_in_is_recorded(tmp_path: Path, mode: str) -> None:
    run_script(tmp_path, PYTHON, "forks.py", mode, str(tmp_path))
    run = tmp_path / "default" / "run"
    lines = strict_lines(run / "rank_0")
    steps = [line["step"] for line in samples(lines)]
    assert (lines[0]["kind"], steps, lines[-1]["kind"], lines[-1]["reason"]) == ("header", [1, 2, 3], "end", "")
    assert series(boards(run / "summary"), "monitor/loss").steps == [1, 2, 3]
    assert series(summaries(run / "summary"), "monitor/loss").steps == [1, 2, 3]
    assert [path.name for path in (run / "checkpoints").glob("*.ckpt")] == ["checkpoint_step_3.ckpt"]
    assert [line["kind"] for line in lines if line["kind"] in ("alert", "warning")] == []


def test_a_fault_of_ours_is_one_warning_and_one_of_the_users_ends_the_training(scenarios: Scenarios) -> None:
    answer = scenarios.returned("faults")
    assert answer["steps"] == [1, 2, 3, 4]
    assert sum("broken on purpose" in line for line in scenarios.log("faults")) == 1
    assert answer["error"] == "the user's own"
    assert answer["lines"][-1]["reason"] == "ValueError"
    assert [line["step"] for line in samples(answer["lines"])] == [1, 2, 3]


def test_one_monitor_for_two_trainings(scenarios: Scenarios) -> None:
    lines = scenarios.returned("twice")
    assert [line["kind"] for line in lines] == ["header", "sample", "sample", "sample", "end"] * 2
    assert [line["step"] for line in samples(lines)] == [1, 2, 3] * 2
    assert [line["is_first"] for line in samples(lines)] == [True, False, False] * 2


def test_a_second_training_goes_on_behind_the_first_for_the_viewers(scenarios: Scenarios) -> None:
    """As the bridge's own steps do, and at the same ones where there is a bridge. The journal has them as they are."""
    directory = scenarios.directory("twice_for_viewers")
    own = directory / "own" / "default" / "run"
    for files in (boards(own / "summary"), summaries(own / "summary")):
        assert series(files, "monitor/loss").steps == [1, 2, 3, 4, 5]
    found = [event for path in boards(own / "summary") for event in events(path) if isinstance(event.content, Summary)]
    assert [event.step for event in found if event.content.values[0].tag == "monitor/end"] == [3, 5]
    assert [line["step"] for line in samples(strict_lines(own / "rank_0"))] == [1, 2, 3, 1, 2]
    bridge = directory / "bridge"
    assert series(boards(bridge), "loss/auto").steps == list(range(1, 10))
    assert numbers(boards(bridge), "monitor/loss") == {
        step: loss for step, loss in numbers(boards(bridge), "loss/auto").items() if step > 4
    }
    said = [line for line in scenarios.log("twice_for_viewers") if "counts its steps from 1 again" in line]
    assert ["monitor: " in line for line in said] == [True, False], "who has files of his own says so, and once"
    assert "behind step 3 of the one before" in said[0]


def test_a_copy_records_like_the_one_it_was_made_of(scenarios: Scenarios) -> None:
    lines = scenarios.returned("copies")
    assert [line["step"] for line in samples(lines["callback"])] == [1, *3 * [1, 2]]
    assert [line["kind"] for line in lines["loop"]] == ["header", "sample", "end"]


def test_what_gets_no_number_is_named_once_with_what_it_takes(scenarios: Scenarios) -> None:
    assert [set(line["values"]) for line in samples(scenarios.returned("unfed"))] == [{"loss"}] * 4
    said = [line for line in scenarios.log("unfed") if "no number comes for" in line]
    told = "; ".join(said)
    starts = [line.partition("no number comes for ")[2] for line in said]
    for start in (
        "grad_norm (for gradient_explosion, gradient_vanishing): the training cell must return",
        "mfu: give peak_flops, and model_flops",
        "loss_scale, overflow (for overflow_streak): the training cell must return (loss, overflow, ",
    ):
        assert sum(text.startswith(start) for text in starts) == 1
    assert told.count("npu_power: npu-smi must be on PATH") <= 1, "which may not have failed yet at the second sample"
    assert len(said) <= 5
    (default,) = (line for line in scenarios.log("article") if "no number comes for" in line)
    assert "overflow, grad_norm" in default
    assert default.endswith(", which rules look at by default: config check says what it takes")
    assert "temperature" not in default, "a CPU has none"
    assert len(default) < 160


# ------------------------------------------------------------------ ranks


@pytest.mark.slow
def test_two_ranks_share_one_run(tmp_path: Path) -> None:
    run_script(tmp_path, msrun(8137, tmp_path / "logs"), "ranks.py", str(tmp_path / "out"))
    (run,) = (path for path in (tmp_path / "out" / "default").iterdir() if path.is_dir())
    ranks = [strict_lines(run / f"rank_{rank}") for rank in (0, 1)]
    for rank, lines in enumerate(ranks):
        assert (lines[0]["rank"], lines[0]["ranks"]) == (rank, 2)
        assert lines[0]["rank_source"] == "mindspore.communication"
        assert set(values_of(samples(lines), "global_rank").values()) == {rank}
        assert [line["step"] for line in samples(lines)] == [1, 2, 3]
        files = boards(run / "summary" / f"rank_{rank}")
        for tag in ("step_time", "samples_per_second"):
            assert numbers(files, tag) == numbers(files, f"monitor/{tag}"), tag
        times, rates = numbers(files, "step_time"), numbers(files, "samples_per_second")
        assert [rates[step] * times[step] for step in (2, 3)] == pytest.approx([4 * 2] * 2, rel=1e-5), "of both cards"
    whole = samples(strict_lines(run))
    assert whole[-1]["ranks"] == [0, 1]
    assert whole[-1]["max"]["global_rank"] == 1
    own = [values_of(samples(lines), "loss")[3] or math.nan for lines in ranks]
    assert whole[-1]["values"]["loss"] == pytest.approx(sum(own) / 2)
    logs = [(tmp_path / "logs" / f"worker_{rank}.log").read_text() for rank in (0, 1)]
    assert [f"global rank {rank} of 2" in log for rank, log in enumerate(logs)] == [True, True]
    assert ["step: 3/3" in log for log in logs] == [True, False], "lines of samples are on rank 0 alone"
