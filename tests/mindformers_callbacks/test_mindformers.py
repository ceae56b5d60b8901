"""A tiny Llama, trained by MindFormers' Trainer with callbacks that its YAML file names."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from ms_summary_bridge.events import Event, iter_points
from ms_summary_bridge.files.event_file import EventFileReader
from ms_summary_bridge.formats.tensorboard import TensorBoardDecoder
from ms_summary_bridge.values import Scalar
from tests.bridge_scripts.runs import milestones, series, summaries
from tests.conftest import ROOT, TESTS, MindInsightServer, TensorBoardServer
from tools.tensorboard_api import stop_process

STEPS = 6
BATCH_SIZE = 2
SEQ_LENGTH = 32  # of tests/mindformers_scripts/train_llama.py
GRAPH, PYNATIVE = 0, 1


def llama_config(directory: Path, mode: int, *callbacks: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Returns MindFormers' configuration of a training on a CPU, which needs a few choices that a NPU does not."""
    on_cpu = {"use_flash_attention": False, "fused_rms_norm": False, "use_rope_slice": True}
    in_float32 = ("compute_dtype", "layernorm_compute_type", "softmax_compute_type", "rotary_dtype", "param_init_type")
    return {
        "seed": 0,
        "output_dir": str(directory / "output"),
        "run_mode": "train",
        "use_parallel": False,
        "trainer": {"type": "CausalLanguageModelingTrainer", "model_name": "llama2_tiny"},
        "runner_config": {"epochs": 1, "batch_size": BATCH_SIZE, "sink_mode": False, "sink_size": 1},
        "context": {"mode": mode, "device_target": "CPU", "device_id": 0},
        "optimizer": {"type": "AdamW", "betas": [0.9, 0.95], "eps": 1e-8},
        "lr_schedule": {
            "type": "CosineWithWarmUpLR",
            "learning_rate": 1e-3,
            "lr_end": 1e-5,
            "warmup_steps": 2,
            "total_steps": STEPS,
        },
        "runner_wrapper": {
            "type": "CpuTrainOneStepCell",
            "scale_sense": 1.0,
            "use_clip_grad": True,
            "local_norm": True,
        },
        "model": {
            "arch": {"type": "LlamaForCausalLM"},
            "model_config": {
                "type": "LlamaConfig",
                "batch_size": BATCH_SIZE,
                "seq_length": SEQ_LENGTH,
                "hidden_size": 64,
                "num_layers": 2,
                "num_heads": 4,
                "vocab_size": 128,
                "multiple_of": 16,
                "use_past": False,
                **on_cpu,
                **dict.fromkeys(in_float32, "float32"),
            },
        },
        "callbacks": [{"type": "MFLossMonitor"}, *callbacks],
        "tensorboard": {
            "tensorboard_dir": str(directory / "mindformers"),
            "log_loss_scale_to_tensorboard": True,
            "log_timers_to_tensorboard": True,
        },
        "parallel_config": {"data_parallel": 1, "model_parallel": 1, "pipeline_stage": 1},
        **more,
    }


def train(
    python: Path, directory: Path, config: dict[str, Any], *modules: str, port: int = 0, **environment: str
) -> str:
    """Trains in `directory`, on two ranks that meet at `port` if it is given, and returns what the console showed."""
    directory.mkdir(parents=True, exist_ok=True)
    config_path = directory / "llama.yaml"
    config_path.write_text(yaml.safe_dump(config))
    script = TESTS / "mindformers_scripts" / "train_llama.py"
    log_path = directory / "console.txt"
    program = [str(python)]
    if port:
        ranks = ("--worker_num=2", "--local_worker_num=2", "--join=True")
        program = [str(python.parent / "msrun"), *ranks, f"--master_port={port}", f"--log_dir={directory / 'logs'}"]
    with log_path.open("wb") as log:  # no pipe: a writer process would hold it open
        process = subprocess.Popen(
            [*program, str(script), str(config_path), str(STEPS), *modules],
            cwd=directory,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "OM_MODULES_CACHE": str(directory / "modules"),
                "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",  # msrun starts the python it finds there
                **environment,
            },
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code: int | None = process.wait(timeout=240)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            stop_process(process)
    logs = [log_path, *sorted((directory / "logs").glob("worker_*.log"))]
    said = "\n".join(path.read_text(errors="replace") for path in logs)
    if code != 0:
        pytest.fail(f"train_llama.py ended with {code}:\n{said[-6000:]}", pytrace=False)
    return said


class Llama:
    """One training that has ended.

    Attributes:
        directory: Where it ran.
        said: What it said on the console.
    """

    def __init__(self, directory: Path, said: str) -> None:
        self.directory = directory
        self.said = said

    def journal(self, rank: int = 0) -> list[dict[str, Any]]:
        """Returns the lines of the monitor's journal."""
        path = self.directory / "monitor" / "llama" / "tiny" / f"rank_{rank}" / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]

    def journal_series(self, name: str, rank: int = 0, kind: str = "sample") -> dict[int, float]:
        rows = [row for row in self.journal(rank) if row["kind"] == kind]
        return {row["step"]: row["values"][name] for row in rows if name in row["values"]}


def board_series(directory: Path, tag: str) -> dict[int, float]:
    """Returns one scalar of the only TensorBoard file in a directory, by step."""
    (path,) = directory.glob("events.out.tfevents.*")
    series = {}
    for event in EventFileReader(path, TensorBoardDecoder()):
        if isinstance(event, Event):
            for point in iter_points(event):
                if point.tag == tag and isinstance(point.value, Scalar):
                    series[point.step] = float(point.value.value)
    return series


def console_series(said: str, name: str) -> dict[int, float]:
    """Returns one figure of the lines of MFLossMonitor, by step."""
    line = re.compile(r"step:\[ *(\d+)/ *\d+\].*?" + re.escape(name) + r": ?\[?([-+.e\d]+)")
    return {int(step): float(value) for step, value in line.findall(said)}


MONITOR = {
    "type": "MindSporeTransformersMonitor",
    "interval": 0,
    "backend": ["local", "tensorboard", "mindinsight"],
    "project": "llama",
    "run_id": "tiny",
    "metrics": [
        "loss", "lr", "grad_norm", "loss_scale", "step_time", "samples_per_second", "tokens_per_second", "memory_usage",
        "local_loss", "local_grad_norm", "local_grad_norms", "sub_losses", "mfu",
    ],
    "peak_flops": 1e12,
    "tags": {"dataset": "random", "layers": 2},
    "warn_on_value": {"loss": 1.0},
}  # fmt: skip
BRIDGE = {"type": "SummaryBridgeMonitor", "collect_freq": 1}


# Of a token, in each of two layers of width 64: the projections of queries, keys, values and the output, the scores and
# their sums over the values of half of 32 tokens, and three matrices of 176; then the logits of 128 words. A
# multiplication and an addition each, and twice as many on the way back.
OPERATIONS = 3 * (2 * (4 * 2 * 64 * 64 + 2 * 2 * 64 * 16 + 3 * 2 * 64 * 176) + 2 * 64 * 128)


def assert_joined(llama: Llama, norms: dict[int, float], rank: int) -> None:
    """The norm over all parameters is made of those of each."""
    rows = [row for row in llama.journal(rank) if row["kind"] == "sample"]
    assert len(norms) == STEPS
    for row in rows:
        each = {name: value for name, value in row["values"].items() if name.startswith("local_grad_norms/")}
        assert len(each) == 21
        assert "local_grad_norms/model.layers.0.attention.wq.weight" in each
        assert norms[row["step"]] == pytest.approx(sum(value**2 for value in each.values()) ** 0.5)


@pytest.fixture(scope="class")
def llama(request: pytest.FixtureRequest, mindformers_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Llama:
    """The training that all tests of a class look at."""
    assert issubclass(request.cls, Contract)
    directory = tmp_path_factory.mktemp("llama")
    callbacks = [BRIDGE, {**MONITOR, "save_dir": str(directory / "monitor")}]
    if request.cls.mode == GRAPH:
        config = llama_config(directory, GRAPH, *callbacks)
        return Llama(directory, train(mindformers_python, directory, config, "ms_summary_bridge.mindformers"))
    named = [{**callback, "auto_register": f"mindformers.{callback['type']}"} for callback in callbacks]
    config = llama_config(directory, PYNATIVE, *named)
    package = str(ROOT / "ms_summary_bridge")
    return Llama(directory, train(mindformers_python, directory, config, REGISTER_PATH=package))


class Contract:
    """What holds in both modes."""

    mode: int

    @pytest.mark.parametrize(
        ("ours", "theirs"),
        [("loss", "loss"), ("lr", "learning-rate"), ("grad_norm", "grad-norm"), ("loss_scale", "loss-scale")],
    )
    def test_every_value_is_that_of_mflossmonitor(self, llama: Llama, ours: str, theirs: str) -> None:
        expected = board_series(llama.directory / "mindformers" / "rank_0", theirs)
        assert sorted(expected) == list(range(1, STEPS + 1))
        bridges = {"loss": "loss/auto", "grad_norm": "train_info/grad_norm"}.get(ours, ours)
        assert board_series(llama.directory / "output" / "summary", bridges) == expected
        journal = llama.journal_series(ours)
        assert {step: float(np.float32(value)) for step, value in journal.items()} == expected

    @pytest.mark.parametrize(
        ("ours", "theirs"), [("loss", "loss"), ("lr", "lr"), ("grad_norm", "global_norm"), ("loss_scale", "loss_scale")]
    )
    def test_every_value_is_that_of_the_console(self, llama: Llama, ours: str, theirs: str) -> None:
        expected = console_series(llama.said, theirs)
        assert sorted(expected) == list(range(1, STEPS + 1))
        assert llama.journal_series(ours) == pytest.approx(expected, rel=1e-6, abs=6e-7)

    def test_tokens_are_those_of_the_models_configuration(self, llama: Llama) -> None:
        # A row of the batch holds one token more than a sequence.
        tokens, samples = (llama.journal_series(f"{name}_per_second") for name in ("tokens", "samples"))
        assert sorted(samples) == list(range(2, STEPS + 1)), "the first step compiles, and has no rate"
        assert tokens == pytest.approx({step: rate * SEQ_LENGTH for step, rate in samples.items()})

    def test_operations_are_counted_by_the_models_configuration(self, llama: Llama) -> None:
        rates = llama.journal_series("tokens_per_second")
        expected = {step: OPERATIONS * rate / 1e12 for step, rate in rates.items()}
        assert llama.journal_series("mfu") == pytest.approx(expected)

    def test_numbers_before_the_reduction_are_all_there_is_on_one_rank(self, llama: Llama) -> None:
        assert llama.journal_series("local_loss") == llama.journal_series("loss")
        norms = llama.journal_series("local_grad_norm")
        assert norms == pytest.approx(llama.journal_series("grad_norm"), rel=1e-5)
        assert_joined(llama, norms, 0)

    def test_what_gets_no_number_is_named(self, llama: Llama) -> None:
        assert "no number comes for sub_losses: MindFormers must say them: print_separate_loss: True" in llama.said

    def test_the_monitor_warns_and_says_where_things_are(self, llama: Llama) -> None:
        (warning,) = [row for row in llama.journal() if row["kind"] == "warning"]
        assert "loss" in json.dumps(warning)
        assert str(llama.directory / "monitor" / "llama" / "tiny") in llama.said
        assert "Traceback" not in llama.said

    def test_tensorboard_shows_it_beside_mindformers_own(
        self, llama: Llama, tensorboard_server: TensorBoardServer
    ) -> None:
        client = tensorboard_server(llama.directory)
        runs = {"mindformers/rank_0": "loss", "output/summary": "loss/auto"}
        shown = {}
        for run, tag in runs.items():
            rows = client.wait_json("data/plugin/scalars/scalars", lambda rows: len(rows) == STEPS, run=run, tag=tag)
            shown[run] = [row[1:] for row in rows]
        assert shown["mindformers/rank_0"] == shown["output/summary"]
        tags = client.get_json("data/plugin/scalars/tags")["output/summary"]
        assert {"loss/auto", "lr", "train_info/grad_norm", "monitor/tokens_per_second", "monitor/memory_usage"} <= set(
            tags
        )

    def test_mindinsight_shows_it(self, llama: Llama, mindinsight_server: MindInsightServer) -> None:
        client = mindinsight_server(llama.directory / "output")
        client.wait_job("./summary")
        expected = board_series(llama.directory / "mindformers" / "rank_0", "loss")
        shown = client.scalars("./summary", "loss/auto")
        assert {step: np.float32(value) for step, value in shown} == expected
        assert len(client.scalars("./summary", "monitor/tokens_per_second")) == STEPS - 1


@pytest.mark.mindformers
class TestGraph(Contract):
    """GRAPH mode, registered by an import."""

    mode = GRAPH

    def test_mindinsight_draws_the_models_graph(self, llama: Llama, mindinsight_server: MindInsightServer) -> None:
        client = mindinsight_server(llama.directory / "output")
        job = client.wait_job("./summary")
        assert job["plugins"]["graph"]
        nodes = client.wait_json("datavisual/graphs/nodes", lambda answer: answer["nodes"], train_id="./summary")
        assert "Default" in {node["name"] for node in nodes["nodes"]}


@pytest.mark.mindformers
class TestPynative(Contract):
    """PYNATIVE mode, registered by `auto_register` with no import in the program."""

    mode = PYNATIVE


@pytest.fixture(scope="class")
def ranks(request: pytest.FixtureRequest, mindformers_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Llama:
    """The training of two ranks that all tests of a class look at."""
    assert issubclass(request.cls, RanksContract)
    directory = tmp_path_factory.mktemp("llama_ranks")
    monitor = {**MONITOR, "save_dir": str(directory / "monitor"), "aggregate": True, "aggregate_steps": 2}
    monitor |= {"backend": ["local"], "warn_on_value": {}}
    parallel = {"parallel_mode": 0, "gradients_mean": True, "full_batch": False}
    config = llama_config(directory, request.cls.mode, monitor, use_parallel=True, parallel=parallel)
    config["parallel_config"]["data_parallel"] = 2
    said = train(mindformers_python, directory, config, "ms_summary_bridge.mindformers", port=8161 + request.cls.mode)
    return Llama(directory, said)


class RanksContract:
    """What holds in both modes on two ranks, each with data of its own."""

    mode: int

    def test_each_rank_records_what_mflossmonitor_says_there(self, ranks: Llama) -> None:
        for rank in (0, 1):
            for ours, theirs in (("loss", "loss"), ("grad_norm", "grad-norm"), ("lr", "learning-rate")):
                expected = board_series(ranks.directory / "mindformers" / f"rank_{rank}", theirs)
                assert sorted(expected) == list(range(1, STEPS + 1))
                journal = ranks.journal_series(ours, rank)
                assert {step: float(np.float32(value)) for step, value in journal.items()} == expected

    def test_a_ranks_own_numbers_are_those_before_the_reduction(self, ranks: Llama) -> None:
        losses, norms = (
            [ranks.journal_series(name, rank) for rank in (0, 1)] for name in ("local_loss", "local_grad_norm")
        )
        assert losses == [ranks.journal_series("loss", rank) for rank in (0, 1)]
        reduced = [ranks.journal_series("grad_norm", rank) for rank in (0, 1)]
        assert reduced[0] == reduced[1]
        for step in range(1, STEPS + 1):
            assert losses[0][step] != losses[1][step]
            assert norms[0][step] != norms[1][step]
            assert reduced[0][step] < (norms[0][step] + norms[1][step]) / 2, "the mean of two vectors is shorter"
        for rank in (0, 1):
            assert_joined(ranks, norms[rank], rank)

    def test_rank_0_has_the_values_of_all(self, ranks: Llama) -> None:
        losses = [ranks.journal_series("loss", rank) for rank in (0, 1)]
        means = ranks.journal_series("all/loss/mean", 0, "all")
        assert means == pytest.approx({step: (losses[0][step] + losses[1][step]) / 2 for step in (2, 4, 6)})
        assert sorted(ranks.journal_series("all/step_time/slowest_rank", 0, "all")) == [2, 4, 6]
        assert not ranks.journal_series("all/loss/mean", 1, "all")
        assert "Traceback" not in ranks.said

    def test_operations_are_those_of_both_cards(self, ranks: Llama) -> None:
        rates = ranks.journal_series("tokens_per_second")
        expected = {step: OPERATIONS * rate / (2 * 1e12) for step, rate in rates.items()}
        assert ranks.journal_series("mfu") == pytest.approx(expected)


@pytest.mark.mindformers
class TestGraphRanks(RanksContract):
    """GRAPH mode on two ranks, by msrun."""

    mode = GRAPH


@pytest.mark.mindformers
class TestPynativeRanks(RanksContract):
    """PYNATIVE mode on two ranks, by msrun."""

    mode = PYNATIVE


@pytest.fixture(scope="module")
def by_hand(mindformers_python: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What tests/mindformers_scripts/by_hand.py found."""
    directory = tmp_path_factory.mktemp("by_hand")
    done = subprocess.run(
        [str(mindformers_python), str(TESTS / "mindformers_scripts" / "by_hand.py"), "results"],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    if done.returncode:
        pytest.fail(f"by_hand.py ended with {done.returncode}:\n{done.stderr[-3000:]}", pytrace=False)
    results: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {**results, "directory": directory / "results"}


def bridged(by_hand: dict[str, Any], sink_size: int) -> list[list[int]]:
    """Returns step and epoch of each loss in the files of the bridge, which says the end of the third epoch once."""
    directory = by_hand["directory"] / f"bridge-{sink_size}"
    ends = [(step, text) for step, tag, text in milestones(directory) if tag == "milestones/epoch"]
    assert ends == [(60, "epoch 3 ends, best loss so far 1")]
    epochs = board_series(directory, "train_info/epoch")
    losses = board_series(directory, "loss/auto")
    assert epochs.keys() == losses.keys()
    assert series(summaries(directory), "loss/auto").steps == list(losses)
    return [[step, int(epoch)] for step, epoch in epochs.items()]


@pytest.mark.mindformers
class TestByHand:
    """Trainings that no CPU can do."""

    def test_facts_come_from_the_loss_monitor_and_the_model(self, by_hand: dict[str, Any]) -> None:
        defaults = {"micro_batch_num": 1, "micro_batch_interleave_num": 1, "gradient_accumulation_steps": 1}
        told = {
            "global_batch_size": 64, "initial_step": 40, "micro_batch_num": 1, "micro_batch_interleave_num": 2,
            "gradient_accumulation_steps": 8,
        }  # fmt: skip
        per_token = {"calculate_per_token_loss": True, "seq_length": 4096}
        got = {
            name: {key: value for key, value in facts.items() if value is not None}
            for name, facts in by_hand["facts"].items()
        }
        assert got == {
            "no sibling": {},
            "defaults": defaults,
            "told": {**told, "seq_length": 32},
            "per token": {**told, **per_token},
            "sink": {**defaults, "epochs": 3, "steps_per_epoch": 20},
            "resumed by mindspore": {**told, "initial_step": 7},
            "pipeline": {**told, "micro_batch_num": 4},
        }

    def test_a_resumed_training_counts_on(self, by_hand: dict[str, Any]) -> None:
        told = by_hand["steps"]["0"]
        expected = [[step, 3 if step <= 60 else 4] for step in range(41, 66)]
        assert bridged(by_hand, 0) == told["monitor"] == expected
        assert (told["begun"], told["ended"]) == ([0, 20], [20])

    def test_in_sink_mode_an_epoch_is_not_a_sink(self, by_hand: dict[str, Any]) -> None:
        told = by_hand["steps"]["5"]
        assert bridged(by_hand, 5) == told["monitor"] == [[45, 3], [50, 3], [55, 3], [60, 3], [65, 4]]
        assert (told["begun"], told["ended"]) == ([0, 20], [20])

    def test_what_mindformers_tells_of_a_step_is_taken_before_it_is_gone(self, by_hand: dict[str, Any]) -> None:
        """As it is told: parts and device loss are of two interleaved micro batches."""
        heard = by_hand["others"]
        norms = {"local_grad_norm": 3**0.5, "local_grad_norms/layer_0": 1.0, "local_grad_norms/layer_1": 2**0.5}
        assert heard["steps"] == [
            {
                "loss": 3.0,
                "local_loss": 2.0 * step,
                "sub_losses/lm_loss": step,
                "sub_losses/load_balancing_loss": step + 0.5,
                "sub_losses/mtp_loss": step + 1,
                "sub_losses/indexer_loss": step + 1.5,
                **{name: pytest.approx(value) for name, value in norms.items()},
            }
            for step in (1, 2, 3)
        ]
        assert all("sub_losses/lm_loss" not in row for row in heard["sinks"]), (
            "MindFormers adds up over the steps of a sink"
        )
        assert all(row["local_loss"] == 3.0 for row in heard["sinks"])
        assert heard["steps left"] == heard["sinks left"] == [["is_zbv"], []], "MindFormers' own, nothing of ours"

    def test_operations_of_newer_models_are_counted_by_mindformers(self, by_hand: dict[str, Any]) -> None:
        """Of 5 sequences of 16 tokens: three layers with a group of keys and values for two heads, and the logits."""
        layer = 2 * 2 * 8 * 8 + 2 * 2 * 8 * 4 + 2 * 2 * 8 * 8 + 3 * 2 * 8 * 20
        assert by_hand["operations"] == {"newer": 5 * 16 * 3 * (3 * layer + 2 * 8 * 50), "none": None}

    def test_mindformers_tells_every_problem_of_a_configuration(self, by_hand: dict[str, Any]) -> None:
        fault = by_hand["fault"]
        assert fault.startswith("MindSporeTransformersMonitor: ")
        assert len(fault.splitlines()) == 2
        assert "intervall" in fault
        assert "losss" in fault

    def test_two_collectors_are_one_clear_error(self, by_hand: dict[str, Any]) -> None:
        beside = by_hand["refusals"]["beside"]
        assert beside.startswith("SummaryCollector (SummaryMonitor in a MindFormers YAML file) is in the list of")
        assert "beside SummaryBridge, which replaces it: remove one" in beside
        assert "MindSporeTransformersMonitor with backend" in by_hand["refusals"]["pynative"]

    def test_the_pynative_trainer_calls_the_same_class(self, by_hand: dict[str, Any]) -> None:
        assert by_hand["pynative"] == [[11, 11.0], [12, 12.0], [13, 13.0]]

    @pytest.mark.parametrize("size", [3, 4, 5, 7])
    def test_outputs_of_each_form(self, by_hand: dict[str, Any], size: int) -> None:
        rows = by_hand["outputs"][str(size)]
        assert len(rows) == 3
        for row in rows:
            assert row["loss"] == 3.0, "interleaved micro batches add up"
            assert row["loss_scale"] == 1024.0
            assert row["overflow"] == 0
            assert row.get("lr") == (0.125 if size > 3 else None)
            assert row.get("grad_norm") == (2.5 if size > 4 else None)
