"""SummaryBridge in real trainings: what is collected, under which steps, in both files.

Most trainings are scenarios of tests/bridge_scripts/scenarios.py, all in one process, because importing mindspore
takes longer than any of them. Faults and ends of processes are in tests/callback/test_bridge_faults.py.
"""

from __future__ import annotations

import io
import json
import math
import re
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as PillowImage

from ms_summary_bridge.columns.inspect import inspect_logdir
from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.convert.verify import verify_logdirs
from ms_summary_bridge.events import Summary
from ms_summary_bridge.formats.protos import tb_pb
from ms_summary_bridge.formats.sessions.hparams import END_TAG, START_TAG
from ms_summary_bridge.formats.sessions.lineage import read_lineage
from ms_summary_bridge.runs.logdir import Run, discover
from ms_summary_bridge.runs.reading import read_points
from ms_summary_bridge.values import Image, Scalar
from tests.bridge_scripts.runs import (
    Scenarios,
    boards,
    events,
    milestones,
    output_of,
    run_scenarios,
    script,
    series,
    summaries,
)
from tests.conftest import MindInsightServer, TensorBoardServer
from tests.formats.test_lineage import boards as session_of
from tests.runs.test_graph_file import drawn

pytestmark = pytest.mark.mindspore

SCENARIOS = [
    *("stock", "same", "defaults", "switched_off", "switched_on", "signature", "landscape", "checkpoints", "fit"),
    *("by_hand", "published", "copies"),
    *("learning_rates", "changed_learning_rate", "no_optimizer", "outputs", "nan_first"),
    *("sink", "sink_freq", "pynative"),
    *("begins_and_ends", "twice", "twice_as_long", "resumed", "record_open", "two_models", "each_its_own", "beside"),
    *("exception", "interrupted", "several_metrics", "fallback_twice"),
    *(
        "data_workers",
        "forked_child",
        "user_values",
        "values_of_others",
        "summary_writer",
        "rotation",
        "fallback",
        "many_processes",
    ),
]


@pytest.fixture(scope="module")
def scenarios(tmp_path_factory: pytest.TempPathFactory) -> Scenarios:
    return run_scenarios(tmp_path_factory.mktemp("bridge"), SCENARIOS)


def assert_whole(directory: Path) -> None:
    """The directory is one run, and its two files say the same."""
    report = verify_logdirs(str(directory), str(directory))
    assert report.is_equal, report
    assert not report.damaged
    assert not report.incomplete
    assert report.runs[0].points
    inspected = inspect_logdir(str(directory))
    assert len(inspected.runs) == 1
    assert not inspected.is_partial


# ------------------------------------------------------------------ what is collected


def test_both_files_of_a_training_say_the_same(scenarios: Scenarios, tmp_path: Path) -> None:
    directory = scenarios.directory("same")
    assert_whole(directory)
    report = convert_logdir(str(directory), str(tmp_path / "out"))
    assert len(report.runs) == 1
    assert verify_logdirs(str(directory), str(tmp_path / "out")).is_equal


def points_of(run: Run) -> dict[tuple[str, str], list[tuple[int, bytes]]]:
    """Returns each series, without times and repeats."""
    table: dict[tuple[str, str], list[tuple[int, bytes]]] = defaultdict(list)
    for point in read_points(run):
        item = (point.step, point.fingerprint)
        if item not in table[point.kind, point.tag][-1:]:
            table[point.kind, point.tag].append(item)
    return table


def test_the_values_are_those_of_summary_collector(scenarios: Scenarios) -> None:
    (theirs,), (ours,) = (discover(scenarios.directory(name)).runs for name in ("stock", "same"))
    want, got = points_of(theirs), points_of(ours)
    whole = {(kind, "") for kind in ("graph", "dataset_graph", "train_lineage", "user_defined_info")}
    extra = {"train_info/epoch", "lr", "step_time", "samples_per_second"}
    assert want.keys() <= got.keys()
    assert {tag for kind, tag in got.keys() - want.keys()} == extra
    for key in want.keys() - whole:
        assert got[key] == want[key], key
    assert [step for step, _ in got["scalar", "loss/auto"]] == [1, 2, 4, 6, 8, 10]
    assert [step for step, _ in got["tensor", "logits"]] == [1, 3, 6, 9]
    for key in whole:
        assert len(got[key]) == len(want[key]) == 1
    exported = [
        sorted((path.name, path.read_bytes()) for path in scenarios.directory(name).glob("export_*/tensor/*.npy"))
        for name in ("stock", "same")
    ]
    assert len(exported[0]) == 4
    assert exported[0] == exported[1]


def test_the_lineage_is_that_of_summary_collector(scenarios: Scenarios) -> None:
    found = []
    for name in ("stock", "same"):
        (path,) = scenarios.directory(name).glob("*_lineage")
        found.append({event.content.kind: event.content.payload[9:] for event in events(path)})  # without their times
    assert found[0].keys() == {"dataset_graph", "train_lineage", "user_defined_info"}
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("name", "status"), [("same", "SUCCESS"), ("fit", "SUCCESS"), ("exception", "FAILURE"), ("interrupted", "FAILURE")]
)
def test_the_session_is_what_convert_makes_of_the_lineage(
    scenarios: Scenarios, tmp_path: Path, name: str, status: str
) -> None:
    directory = scenarios.directory(name)
    shown = session_of(directory)
    convert_logdir(str(directory), str(tmp_path / "out"))
    assert session_of(tmp_path / "out") == shown
    assert shown[END_TAG].session_end_info.status == tb_pb.hparams.Status.Value(f"STATUS_{status}")
    hparams = shown[START_TAG].session_start_info.hparams
    assert hparams["optimizer"].string_value == "Momentum"
    assert hparams["learning_rate"].number_value == pytest.approx(0.05)
    assert ("train/loss" in shown) == (status == "SUCCESS")
    if name == "same":
        assert hparams["purpose"].string_value == "test"
        assert hparams["rate"].number_value == 0.5
    # The file alone, without MindSpore's beside it.
    for path in boards(directory):
        (tmp_path / "alone").mkdir(exist_ok=True)
        shutil.copy(path, tmp_path / "alone")
    convert_logdir(str(tmp_path / "alone"), str(tmp_path / "back"))
    records = {event.content.kind: event.content for p in directory.glob("*_lineage") for event in events(p)}
    again = {e.content.kind: e.content for p in (tmp_path / "back").glob("*_lineage") for e in events(p)}
    one, other = (read_lineage({"train_lineage": found["train_lineage"].payload}) for found in (records, again))
    assert (one.hparams, one.metrics, one.status) == (other.hparams, other.metrics, other.status)


def test_the_graph_is_in_both_files(scenarios: Scenarios) -> None:
    for name in ("same", "defaults"):
        directory = scenarios.directory(name)
        for path in (*summaries(directory), *boards(directory)):
            kinds = [getattr(event.content, "kind", "") for event in events(path)]
            assert kinds.count("graph") == 1, path


def test_the_graph_is_in_tensorboards_file_before_the_second_step(scenarios: Scenarios) -> None:
    directory = scenarios.directory("switched_on")
    for step in (1, 2, 3):
        path = directory / f"step_{step}"
        (graph,) = drawn(path)  # once, however many steps there are
        assert "Default/" in graph
        assert series(boards(path), "loss/auto").steps == [*range(1, step + 1)], "no step is waited for"


def test_the_defaults_are_those_of_summary_collector_but_for_the_landscape(scenarios: Scenarios) -> None:
    directory = scenarios.directory("defaults")
    assert series(summaries(directory), "loss/auto").steps == [1, 10]
    assert series(summaries(directory), "input_data/auto").steps == [1, 10]
    assert series(summaries(directory), "dense.weight/auto").steps == [1, 10]
    assert [path.name for path in directory.iterdir() if path.is_dir()] == [], "no checkpoints of a landscape"
    assert_whole(directory)


def test_the_landscape_is_collected_when_it_is_asked_for(scenarios: Scenarios) -> None:
    files = scenarios.returned("landscape")
    assert sum(name.endswith(".ckpt") for name in files) == 3
    assert "train_metadata.json" in files


def test_every_switch_off_leaves_the_users_own_values(scenarios: Scenarios) -> None:
    directory = scenarios.directory("switched_off")
    tags = {tagged.tag for path in summaries(directory) for tagged in values_of(path)}
    assert tags == {"own"}
    assert milestones(directory) == []
    kinds = {event.content.kind for path in directory.glob("*_lineage") for event in events(path)}
    assert kinds <= {"train_lineage"}


def values_of(path: Path) -> list[Any]:
    return [tagged for event in events(path) if isinstance(event.content, Summary) for tagged in event.content.values]


def test_every_switch_on_collects_where_the_default_would_not(scenarios: Scenarios) -> None:
    base = scenarios.directory("switched_on")
    assert boards(base / "ms") == []
    assert summaries(base / "tb") == []
    tags = {tagged.tag for tagged in values_of(summaries(base / "ms")[0])}
    assert {"loss/auto", "lr", "train_info/epoch", "0.weight/auto", "1.bias/auto"} <= tags
    assert verify_logdirs(str(base / "ms"), str(base / "tb")).is_equal


def test_every_argument_of_summary_collector_is_taken(scenarios: Scenarios) -> None:
    answer = scenarios.returned("signature")
    assert answer["missing"] == []
    assert answer["defaults"] == {}
    for call, (theirs, ours) in answer["wrong"].items():
        assert theirs == ours != "accepted", call
    ours, theirs = answer["positional"]
    assert ours == theirs, "and in the same order"


def test_a_wrong_argument_is_named(scenarios: Scenarios) -> None:
    said = scenarios.returned("signature")["said"]
    assert len(said) == 17, "each call once"
    for call, (name, kind, message) in said.items():
        assert name in message, call
        assert kind in ("TypeError", "ValueError", "UsageError"), call
        assert message != "accepted", call
    assert said["flush_secs '5' 0"][1] == said["collect_lr 'False' 4"][1] == "TypeError"


# ------------------------------------------------------------------ driven by hand, and inherited from


def test_a_loop_that_calls_the_hooks_by_their_old_names_is_recorded(scenarios: Scenarios) -> None:
    base = scenarios.directory("by_hand")
    for name in scenarios.returned("by_hand"):
        for part in (summaries(base / name), boards(base / name)):
            assert series(part, "loss/auto").steps == [1, 2, 3, 4, 5, 6], name
        assert_whole(base / name)
        (journal,) = (base / f"monitor {name}").rglob("rank_0/metrics.jsonl")
        lines = [json.loads(line) for line in journal.read_text().splitlines()]
        assert [line["step"] for line in lines if "loss" in line.get("values", ())] == [1, 2, 3, 4, 5, 6], name
    assert not [line for line in scenarios.log("by_hand") if "failed" in line]
    told = [text for _, tag, text in milestones(base / "old") if tag == "milestones/training"]
    assert told == ["training begins: 2 epochs of 3 steps", "training ends at step 6"]


def test_a_step_end_alone_is_no_waiting_for_data(scenarios: Scenarios) -> None:
    base = scenarios.directory("by_hand")
    for name in ("steps", "old steps", "no beginnings"):
        text = "".join(path.read_text() for path in (base / f"monitor {name}").rglob("*.jsonl"))
        assert "waiting for data" not in text, name


def test_a_subclass_with_old_names_and_a_record_is_called(scenarios: Scenarios) -> None:
    answer = scenarios.returned("published")
    assert answer["model"] == ["begin train", *["step train"] * 6, "begin eval", "step eval", "step eval"]
    assert answer["by hand"] == ["begin train", *["step train"] * 6]
    base = scenarios.directory("published")
    for name in ("model", "by hand"):
        for part in (summaries(base / name), boards(base / name)):
            assert series(part, "loss/auto").steps == [1, 2, 3, 4, 5, 6], "once each"
            assert series(part, "doubled") == ([1, 2, 3, 4, 5, 6], [2.0, 4.0, 6.0, 8.0, 10.0, 12.0])
            assert series(part, "by epoch").numbers[:2] == [0.5, 1.0]
    assert series(summaries(base / "apart"), "loss/auto").steps == [], "it does not call super()"
    assert all(word in answer["refused"] for word in ("Refused", "_collect_metric", "add_scalar"))
    assert sum("'no number'" in line for line in scenarios.log("published")) == 3, "once for each bridge"


def test_a_copy_records_like_the_one_it_was_made_of(scenarios: Scenarios) -> None:
    assert scenarios.returned("copies") == {"steps": [2, 2, 2, 2], "writers": 0, "count": 0}
    assert all("counts its steps from 1 again" in line for line in scenarios.log("copies"))


@pytest.mark.parametrize("mode", ["forked", "daemon", "spawned"])
def test_a_training_in_another_process_than_the_bridge_was_made_in_is_recorded(tmp_path: Path, mode: str) -> None:
    with script("ends.py", mode, str(tmp_path), cwd=tmp_path) as process:
        assert process.wait(120) == 0, output_of(tmp_path)
    for part in (summaries(tmp_path / "run"), boards(tmp_path / "run")):
        assert series(part, "loss/auto").steps == [1, 2, 3], output_of(tmp_path)
    assert_whole(tmp_path / "run")


# ------------------------------------------------------------------ B20: learning rate and loss


def test_the_learning_rate_is_the_one_that_the_step_used(scenarios: Scenarios) -> None:
    for form, rates in scenarios.returned("learning_rates").items():
        directory = scenarios.directory("learning_rates") / form
        found = {
            tag: series(summaries(directory), tag)
            for tag in ("lr", "lr/group_0", "lr/group_1", "lr/group_2")
            if series(summaries(directory), tag).steps
        }
        assert found.keys() == rates.keys(), form
        for tag, expected in rates.items():
            assert found[tag].steps == [1, 2, 3, 4, 5], form
            assert found[tag].numbers == pytest.approx(expected, rel=1e-5), form


def test_mindspore_does_not_say_that_a_recorded_learning_rate_is_none(scenarios: Scenarios) -> None:
    """Of a list or a schedule, which the lineage has no room for; where the bridge does not record it, that is said."""
    scenarios.directory("learning_rates")
    said = (scenarios.base / "output.txt").read_text(errors="replace")
    assert said.count("The learning rate detected in the optimizer is not a Parameter type") == 2, "first step, and end"


def test_a_learning_rate_that_is_set_anew_is_followed(scenarios: Scenarios) -> None:
    rates = series(summaries(scenarios.directory("changed_learning_rate")), "lr").numbers
    assert rates == pytest.approx([0.1, 0.1 / 2, 0.1 / 3, 0.1 / 4])


def test_without_an_optimizer_there_is_no_rate_and_one_warning(scenarios: Scenarios) -> None:
    directory = scenarios.directory("no_optimizer")
    assert series(summaries(directory), "loss/auto").steps == [1, 2, 3]
    assert series(summaries(directory), "lr").steps == []
    assert sum("no optimizer" in line for line in scenarios.log("no_optimizer")) == 1


def test_the_loss_is_found_in_every_form_of_output(scenarios: Scenarios) -> None:
    directory = scenarios.directory("outputs")
    expected = scenarios.returned("outputs")
    assert len(expected) == 20
    for part in (summaries(directory), boards(directory)):
        loss = series(part, "loss/auto")
        found = dict(zip(loss.steps, loss.numbers, strict=True))
        for step, (form, value) in enumerate(expected, 1):
            number = found.get(step)
            if value is None:
                assert number is None, form
            elif value == "nan":
                assert number is not None, form
                assert math.isnan(number), form
            else:
                assert number == float(value), form
    assert sum("can be the loss" in line for line in scenarios.log("outputs")) == 1


def test_loss_scale_norm_and_rate_are_taken_from_the_outputs(scenarios: Scenarios) -> None:
    paths = summaries(scenarios.directory("outputs"))
    scale = series(paths, "loss_scale")
    assert (scale.steps, scale.numbers) == ([9, 10, 11, 19, 20], [1024, 512, 1024, 2, 2])
    norm = series(paths, "train_info/grad_norm")
    assert (norm.steps, norm.numbers) == ([19], [3.5])
    assert series(paths, "lr").numbers[-2:] == [0.125, 0.125]


def test_times_and_rates_are_there_and_memory_is_not_on_a_cpu(scenarios: Scenarios) -> None:
    paths = summaries(scenarios.directory("same"))
    assert series(paths, "train_info/epoch").numbers == [1, 1, 1, 2, 2, 2]
    times, rates = series(paths, "step_time"), series(paths, "samples_per_second")
    assert times.steps == rates.steps == [2, 4, 6, 8, 10], "the first step compiles"
    for secs, rate in zip(times.numbers, rates.numbers, strict=True):
        assert secs * rate == pytest.approx(4, rel=1e-4), "the samples of a step"
    assert not [tagged for path in paths for tagged in values_of(path) if tagged.tag.startswith("memory")]


@pytest.mark.parametrize("name", ["defaults", "outputs", "learning_rates/groups"])
def test_the_loss_is_the_first_scalar_of_the_alphabet(scenarios: Scenarios, name: str) -> None:
    scenarios.directory(name.partition("/")[0])
    tags = {
        tagged.tag for path in summaries(scenarios.base / name) for tagged in values_of(path)
        if isinstance(tagged.value, Scalar) and tagged.tag != "mean"  # the network's own
    }  # fmt: skip
    assert len(tags) > 3
    assert min(tags) == "loss/auto", "MindInsight's dashboard draws the first two"


# ------------------------------------------------------------------ B23: sink mode, PyNative


def test_in_sink_mode_steps_are_global_and_once_each(scenarios: Scenarios) -> None:
    directory = scenarios.directory("sink")
    for part in (summaries(directory), boards(directory)):
        loss = series(part, "loss/auto")
        assert (loss.steps, loss.numbers) == ([100, 200, 300], pytest.approx([1, 1 / 2, 1 / 3]))
        # From the beginning of an epoch to the end of its only call.
        assert series(part, "step_time").numbers == pytest.approx([0.1, 0.1])
        assert series(part, "samples_per_second").numbers == pytest.approx([4 / 0.1] * 2)
    assert sum("sink" in line for line in scenarios.log("sink")) == 1


def test_in_sink_mode_the_frequency_counts_steps(scenarios: Scenarios) -> None:
    # Calls come at 5, 10, 15, ...: those at or behind 12, 24, 36, 48, and the first.
    assert series(summaries(scenarios.directory("sink_freq")), "loss/auto").steps == [5, 15, 25, 40, 50]


def test_in_pynative_mode_all_but_the_graph_is_there(scenarios: Scenarios) -> None:
    directory = scenarios.directory("pynative")
    assert_whole(directory)
    for tag in ("loss/auto", "lr", "dense.weight/auto", "mean", "input_data/auto"):
        assert series(summaries(directory), tag).steps == [1, 2, 3], tag
    kinds = {getattr(event.content, "kind", "") for path in boards(directory) for event in events(path)}
    assert "graph" not in kinds
    assert [path.name for path in directory.glob("*_lineage")] != []


# ------------------------------------------------------------------ evaluation, milestones


def test_fit_records_its_evaluations(scenarios: Scenarios) -> None:
    directory = scenarios.directory("fit")
    answer = scenarios.returned("fit")
    assert_whole(directory)
    for part in (summaries(directory), boards(directory)):
        mae = series(part, "eval/mae")
        assert mae.steps == [3, 6]
        assert mae.numbers == pytest.approx([metrics["mae"] for metrics in answer["metrics"]])
        assert series(part, "loss/auto").steps == [1, 2, 3, 4, 5, 6]
    assert len(summaries(directory)) == 1, "one session"
    assert answer["count"] == 0


def test_the_loss_is_before_two_metrics_under_a_second_tag(scenarios: Scenarios) -> None:
    base = scenarios.directory("several_metrics")
    steps = {"fit": [1, 2, 3, 4, 5, 6], "behind": [1, 2, 4, 5 + 1, 5 + 2]}
    for name, expected in steps.items():
        for part in (summaries(base / name), boards(base / name)):
            loss = series(part, "loss/auto")
            assert loss.steps == expected
            assert series(part, "dashboard/loss") == loss, "each point once, also those before the evaluation"
            for metric in ("mae", "accuracy"):
                assert series(part, f"eval/{metric}").steps == ([3, 6] if name == "fit" else [5])
        assert_whole(base / name)
    assert series(summaries(scenarios.directory("twice_as_long")), "dashboard/loss").steps == [], "one metric"


@pytest.mark.mindinsight
def test_mindinsight_names_the_loss_among_the_first_two(
    scenarios: Scenarios, mindinsight_server: MindInsightServer
) -> None:
    """Its dashboard draws the first two of the tags in the order of this answer."""
    client = mindinsight_server(scenarios.directory("several_metrics"))
    for job, steps in (("./fit", [1, 2, 3, 4, 5, 6]), ("./behind", [1, 2, 4, 6, 7])):
        assert client.wait_job(job)["plugins"]["scalar"][:2] == ["dashboard/loss/scalar", "eval/accuracy/scalar"]
        assert [step for step, _ in client.scalars(job, "dashboard/loss")] == steps


def test_an_evaluation_has_its_metrics_and_its_lineage(scenarios: Scenarios) -> None:
    directory = scenarios.directory("each_its_own")
    assert series(boards(directory), "eval/mae").numbers == pytest.approx([scenarios.returned("each_its_own")["mae"]])
    kinds = [event.content.kind for path in sorted(directory.glob("*_lineage")) for event in events(path)]
    assert sorted(kinds) == ["dataset_graph", "evaluation_lineage", "train_lineage"]
    assert_whole(directory)


def test_milestones_are_texts_in_tensorboard(scenarios: Scenarios) -> None:
    told = milestones(scenarios.directory("checkpoints") / "run")
    text = "\n".join(f"{step} {tag} {text}" for step, tag, text in told)
    assert "0 milestones/training training begins: 2 epochs of 4 steps" in text
    assert re.search(r"4 milestones/epoch epoch 1 ends, best loss so far 0\.0", text)
    assert "8 milestones/training training ends at step 8" in text
    saved = [(step, text.rsplit("/", 1)[-1]) for step, tag, text in told if tag == "milestones/checkpoint"]
    assert saved == [(2, "small-1_2.ckpt"), (4, "small-1_4.ckpt"), (6, "small-2_2.ckpt"), (8, "small-2_4.ckpt")]
    places = [(step, tag) for step, tag, _ in told]
    assert len(set(places)) == len(places), "TensorBoard's fast loader shows one text for each tag and step"
    assert any(
        "RuntimeError: this training is over" in text for _, _, text in milestones(scenarios.directory("exception"))
    )


def test_a_nan_is_never_the_best_loss(scenarios: Scenarios) -> None:
    (told,) = [text for _, tag, text in milestones(scenarios.directory("nan_first")) if tag == "milestones/epoch"]
    assert told == "epoch 1 ends, best loss so far 1"


def test_one_epoch_is_one(scenarios: Scenarios) -> None:
    (told,) = [text for _, tag, text in milestones(scenarios.directory("nan_first")) if tag == "milestones/training"]
    assert told == "training begins: 1 epoch of 4 steps"


# ------------------------------------------------------------------ the user's own values


def test_steps_are_whole_numbers_of_64_bits(scenarios: Scenarios) -> None:
    directory = scenarios.directory("user_values")
    for part in (summaries(directory), boards(directory)):
        assert series(part, "steps").steps == [4096, 7, 8, 9, -5, 0, 2**31, 6_002_049_024]
        assert series(part, "at the training's step").steps == [1, 2, 3]
        assert series(part, "tensor").numbers == [2.5]
        assert series(part, "parameter").numbers == [3.5]
    assert len(scenarios.returned("user_values")["refused"]) == 8


def test_a_users_image_keeps_its_bytes(scenarios: Scenarios) -> None:
    directory = scenarios.directory("user_values")
    pixels = np.load(directory / "pixels.npy")
    for part in (summaries(directory), boards(directory)):
        (image,) = [tagged.value for path in part for tagged in values_of(path) if tagged.tag == "pixels"]
        assert isinstance(image, Image)
        np.testing.assert_array_equal(np.asarray(PillowImage.open(io.BytesIO(image.encoded[0]))), pixels)


def test_no_histogram_of_the_users_is_refused_for_what_is_in_it(scenarios: Scenarios) -> None:
    directory = scenarios.directory("user_values")
    for index in range(7):
        assert series(summaries(directory), f"h{index}").steps == [1], index
        assert series(boards(directory), f"h{index}").steps == [1], index
    assert_whole(directory)
    (nan,) = series(boards(directory), "nan").numbers
    assert math.isnan(nan)
    assert series(summaries(directory), "bfloat16").numbers == [0.5]


def test_numbers_for_each_class_are_named_and_never_averaged(scenarios: Scenarios) -> None:
    directory = scenarios.directory("values_of_others")
    for part in (summaries(directory), boards(directory)):
        assert [series(part, f"eval/recall/{index}").numbers for index in range(3)] == [[0.0], [0.125], [0.25]]
        assert series(part, "eval/recall").steps == []
        assert series(part, "eval/many").steps == [2], "a histogram"
    assert sum("'many' has the shape [1000]" in line for line in scenarios.log("values_of_others")) == 1
    refused = scenarios.returned("values_of_others")["refused"]
    assert len(refused) == 2
    assert all(word in refused[1] for word in ("'of each class'", "[3]", "step 2", "add_histogram"))


def test_tensors_of_other_frameworks_are_numbers(scenarios: Scenarios) -> None:
    directory = scenarios.directory("values_of_others")
    for part in (summaries(directory), boards(directory)):
        assert series(part, "foreign") == ([1, 2], [0.5, 1.0])


def test_every_call_of_tensorboardx_lands_in_the_one_file(scenarios: Scenarios) -> None:
    base = scenarios.directory("summary_writer")
    assert scenarios.returned("summary_writer") == {}
    run = base / "inner" / "run"
    (board,) = boards(run)
    tags = {tagged.tag for tagged in values_of(board)}
    expected = {f"tx/{name}" for name in ("scalar", "histogram", "raw", "image", "images", "boxes", "pr", "pr_raw")}
    assert expected <= tags
    assert "tx/text/text_summary" in tags
    assert any(tag.startswith("tx/mesh") for tag in tags)
    assert all(event.step in (0, 1, 2, 3) for event in events(board))
    assert series([board], "tx/scalar").steps == [2]
    assert series([board], "tx/when").steps == [2], "its time is not finite, which would end TensorBoard's reading"
    assert min(event.wall_time for event in events(board)) > 1e9
    assert sum("a walltime of nan cannot be shown" in line for line in scenarios.log("summary_writer")) == 1


def test_child_runs_never_leave_the_directory(scenarios: Scenarios) -> None:
    base = scenarios.directory("summary_writer")
    run = base / "inner" / "run"
    children = {str(path.parent.relative_to(base)) for path in base.rglob("*tfevents*")}
    assert children == {"inner/run", *(f"inner/run/{name}" for name in ("tx/many/a", "tx/many/b", "x/etc/y", "z"))}
    assert series(boards(run / "tx/many/a"), "tx/many").numbers == [1.0]
    assert [path for path in base.parent.iterdir() if path.name == "x"] == []


# ------------------------------------------------------------------ life cycle


def test_nothing_is_there_before_the_training_and_nothing_after_it(scenarios: Scenarios) -> None:
    answer = scenarios.returned("begins_and_ends")
    assert answer["before"] == [0, 0, []], "processes, threads, files"
    assert answer["during"] == [1, 1, 1]
    assert answer["after"] == [0, 0]
    assert answer["count"] == 0
    assert answer["holds"] == [], "no network is kept in memory"
    assert answer["bridge is gone"]


def test_one_bridge_trains_twice_and_evaluates_within_seconds(scenarios: Scenarios) -> None:
    directory = scenarios.directory("twice")
    assert_whole(directory)
    assert len(summaries(directory)) == len(boards(directory)) == 3
    assert series(summaries(directory), "loss/auto").steps == [1, 2, 3, 4], "no viewer hides the first training"
    kinds = [event.content.kind for path in directory.glob("*_lineage") for event in events(path)]
    assert sorted(kinds) == [
        *("dataset_graph", "evaluation_lineage", "train_lineage", "train_lineage", "user_defined_info")
    ]
    assert scenarios.returned("twice")["count"] == 0


def test_a_training_that_counts_from_1_again_goes_on_behind_the_first(scenarios: Scenarios) -> None:
    directory = scenarios.directory("twice_as_long")
    for part in (summaries(directory), boards(directory)):
        assert series(part, "loss/auto").steps == [1, 2, 4, 5 + 1, 5 + 2], "the second one collects at its own steps"
        assert series(part, "eval/mae").steps == [5, 8]
        assert series(part, "mine").steps == [5, 8]
    told = [(step, text) for step, tag, text in milestones(directory) if tag == "milestones/training"]
    assert [step for step, _ in told] == [0, 5, 5, 8]
    assert told[-1][1] == "training ends at step 8"
    (line,) = [line for line in scenarios.log("twice_as_long") if "counts its steps" in line]
    assert "behind step 5" in line
    assert "a new SummaryBridge with another directory" in line
    assert_whole(directory)


def test_a_training_that_goes_on_by_itself_is_left_as_it_is(scenarios: Scenarios) -> None:
    directory = scenarios.directory("resumed")
    assert series(summaries(directory), "loss/auto").steps == [*range(1, 9)]
    assert not [line for line in scenarios.log("resumed") if "counts its steps" in line]
    assert_whole(directory)


@pytest.mark.tensorboard
@pytest.mark.parametrize("load_fast", [True, False], ids=["fast", "slow"])
def test_both_loaders_serve_every_point_of_two_trainings(
    scenarios: Scenarios, tensorboard_server: TensorBoardServer, tmp_path: Path, load_fast: bool
) -> None:
    (tmp_path / "logs").mkdir()
    shutil.copytree(scenarios.directory("twice_as_long"), tmp_path / "logs" / "live")
    convert_logdir(str(tmp_path / "logs" / "live"), str(tmp_path / "logs" / "converted"), to="tensorboard")
    client = tensorboard_server(tmp_path / "logs", load_fast)
    for run in ("live", "converted"):
        rows = client.wait_json("data/plugin/scalars/scalars", lambda rows: len(rows) == 5, run=run, tag="loss/auto")
        assert [row[1] for row in rows] == [1, 2, 4, 6, 7]


def test_another_model_has_its_own_graph_and_lineage(scenarios: Scenarios) -> None:
    directory = scenarios.directory("two_models")
    for part in (summaries(directory), boards(directory)):
        assert [getattr(e.content, "kind", "") for path in part for e in events(path)].count("graph") == 2
    told = [event.content for path in sorted(directory.glob("*_lineage")) for event in events(path)]
    optimizers = [content.payload for content in told if content.kind == "train_lineage"]
    assert [(b"Momentum" in text, b"Adam" in text) for text in optimizers] == [(True, False), (False, True)]
    assert_whole(directory)


def test_a_collector_beside_it_is_refused_before_the_first_step(scenarios: Scenarios) -> None:
    answer = scenarios.returned("beside")
    for order, message, count, writers in answer["answers"]:
        assert message.startswith("UsageError"), order
        assert "remove one" in message
        assert ("build_monitor_callbacks" in message) == (order == "two bridges"), "which brings one of its own"
        assert (count, writers) == (0, 0), order
    assert answer["steps"] == []
    assert answer["count"] == 0
    alone = scenarios.directory("beside") / "alone"
    assert series(summaries(alone), "loss/auto").steps == [1, 2]
    assert_whole(alone)


def test_a_record_of_the_users_own_goes_on_beside_it(scenarios: Scenarios) -> None:
    assert scenarios.returned("record_open") == [1, 0], "the count of open records is the user's"
    directory = scenarios.directory("record_open")
    assert series(summaries(directory / "own"), "x").numbers == [0.5]
    assert series(summaries(directory / "run"), "loss/auto").steps == [1, 2, 3]
    assert_whole(directory / "run")
    (said,) = scenarios.log("record_open")
    assert "are left out" in said


@pytest.mark.parametrize("name", ["exception", "interrupted"])
def test_all_is_there_when_the_training_raises(scenarios: Scenarios, name: str) -> None:
    answer = scenarios.returned(name)
    assert answer["raised"] == ("this training is over" if name == "exception" else "KeyboardInterrupt")
    assert (answer["count"], answer["writers"]) == (0, 0)
    directory = scenarios.directory(name)
    assert series(summaries(directory), "loss/auto").steps == [1, 2, 3, 4, 5]
    assert_whole(directory)


def test_forked_data_workers_change_nothing(scenarios: Scenarios) -> None:
    directory = scenarios.directory("data_workers")
    assert scenarios.returned("data_workers")["writers"] == 0
    assert series(summaries(directory), "loss/auto").steps == [*range(1, 13)]
    assert_whole(directory)


def test_a_forked_child_writes_nothing_and_waits_for_nobody(scenarios: Scenarios) -> None:
    assert scenarios.returned("forked_child")["codes"] == [0]
    directory = scenarios.directory("forked_child")
    for part in (summaries(directory), boards(directory)):
        assert series(part, "child").steps == []
        assert series(part, "loss/auto").steps == [1, 2, 3]
    assert scenarios.log("forked_child") == []


def test_both_files_are_continued_in_new_ones(scenarios: Scenarios) -> None:
    directory = scenarios.directory("rotation")
    for part in (summaries(directory), boards(directory)):
        assert len(part) > 5
        assert all(path.stat().st_size <= 3000 for path in part)
        assert series(part, "loss/auto").steps == [*range(1, 61)]
    assert_whole(directory)


def test_an_unknown_mindspore_is_written_by_its_own_writer_and_followed(scenarios: Scenarios) -> None:
    directory = scenarios.directory("fallback")
    assert all("is not known" in line for line in scenarios.log("fallback"))
    assert len(scenarios.log("fallback")) == 2, "once for each bridge"
    assert scenarios.returned("fallback")["count"] == 0
    assert series(summaries(directory), "loss/auto").steps == [1, 2, 3, 3, 4, 5, 6, 6] * 2, "SummaryCollector's own"
    assert series(boards(directory), "loss/auto").steps == [1, 2, 3, 4, 5, 6] * 2
    report = verify_logdirs(str(directory), str(directory))
    assert report.is_equal, report


def test_a_second_training_of_an_unknown_mindspore_says_that_it_hides_the_first(scenarios: Scenarios) -> None:
    directory = scenarios.directory("fallback_twice")
    assert sorted(series(summaries(directory), "loss/auto").steps) == [1, 1, 2, 2, 2, 3, 3], "as MindSpore counts"
    (line,) = [line for line in scenarios.log("fallback_twice") if "counts its steps from 1 again" in line]
    assert all(words in line for words in ("MindSpore's own writer", "up to step 3", "a new SummaryBridge"))


def test_sixteen_ranks_begin_at_once(scenarios: Scenarios) -> None:
    assert scenarios.returned("many_processes") == [0] * 16
    directory = scenarios.directory("many_processes")
    assert sorted(path.name for path in directory.iterdir()) == sorted(f"rank_{rank}" for rank in range(16))
    for rank in range(16):
        for part in (summaries(directory / f"rank_{rank}"), boards(directory / f"rank_{rank}")):
            assert len(part) == 1
            loss = series(part, "loss")
            assert (loss.steps, loss.numbers) == ([1, 2, 3], [rank + 1 / 8, rank + 2 / 8, rank + 3 / 8])
    assert len(inspect_logdir(str(directory)).runs) == 16
    assert scenarios.log("many_processes") == []


# ------------------------------------------------------------------ the usual script


@pytest.fixture(scope="module")
def article(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The summary directory of examples/train_with_bridge.py."""
    cwd = tmp_path_factory.mktemp("article")
    with script("../../examples/train_with_bridge.py", str(cwd / "summary_dir"), cwd=cwd) as process:
        assert process.wait(120) == 0, output_of(cwd)
    assert "SummaryBridge:" not in output_of(cwd), "no warning of ours"
    return cwd / "summary_dir"


def test_the_usual_script_runs_with_one_word_changed(article: Path) -> None:
    assert_whole(article)
    for part in (summaries(article), boards(article)):
        assert series(part, "loss/auto").steps == [1, 10, 20, 30, 40, 50, 60]
        rates = series(part, "lr").numbers
        assert rates[0] == pytest.approx(0.1)
        assert rates[-1] == pytest.approx(0.055), "half way from 0.1 to 0.01"
        assert rates == sorted(rates, reverse=True)
    assert [tag for _, tag, _ in milestones(article)].count("milestones/checkpoint") == 2


@pytest.mark.mindinsight
def test_mindinsight_lists_that_very_directory(article: Path, mindinsight_server: MindInsightServer) -> None:
    client = mindinsight_server(article)
    job = client.wait_job("./")
    assert job["lineage_files"] >= 1
    assert job["plugins"]["graph"]
    assert [step for step, _ in client.scalars("./", "loss/auto")] == [1, 10, 20, 30, 40, 50, 60]
    assert [step for step, _ in client.scalars("./", "lr")] == [1, 10, 20, 30, 40, 50, 60]
