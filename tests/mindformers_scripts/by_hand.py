"""Drives the callbacks by hand, as MindFormers would in trainings that no CPU can do, and prints what they make of it.

Usage: python tests/mindformers_scripts/by_hand.py DIRECTORY

Prints one line of JSON at the end.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import mindspore
from mindformers.core.callback import MFLossMonitor, TrainingStateMonitor, build_callback
from mindformers.parallel_core.training_graph.loss_func import get_device_local_loss
from mindformers.parallel_core.transformer_config import TransformerConfig
from mindformers.utils.parameter_register import parameter_register
from mindspore import Tensor, nn, ops
from mindspore.train.callback import RunContext
from mindspore.train.callback._callback import InternalCallbackParam

from ms_summary_bridge.errors import UsageError
from ms_summary_bridge.mindformers import MindSporeTransformersMonitor, SummaryBridgeMonitor
from ms_summary_bridge.monitor.callback import MindSporeTransformersMonitor as Monitor

FLAG, SCALE, LR, NORM = Tensor(False), Tensor(1024.0), Tensor(0.125), Tensor([2.5])
OUTPUTS = {
    3: (Tensor([6.0]), FLAG, SCALE),
    4: (Tensor([6.0]), FLAG, SCALE, LR),
    5: (Tensor([6.0]), FLAG, SCALE, LR, NORM),
    7: (Tensor([6.0]), FLAG, SCALE, LR, NORM, Tensor([1.0, 2.0]), Tensor([2.0])),
}


def make_parameters(*callbacks: Any, model: Any = None, **more: Any) -> InternalCallbackParam:
    """Returns what MindSpore hands to callbacks, of a training of three steps."""
    parameters = InternalCallbackParam(
        list_callback=list(callbacks), train_network=model, optimizer=None, cur_step_num=0, cur_epoch_num=1,
        epoch_num=1, batch_num=3, dataset_sink_mode=False, train_dataset=None,
        train_dataset_element=[Tensor([[1] * 9] * 2)],
    )  # fmt: skip
    parameters.update(more)
    return parameters


def options(parameters: InternalCallbackParam) -> dict[str, Any]:
    return dict(MindSporeTransformersMonitor(enable=False).training_options(parameters))


def find_facts() -> dict[str, Any]:
    """What is found of several trainings."""
    told = {
        "global_batch_size": 64, "initial_step": 40, "micro_batch_num": 4, "micro_batch_interleave_num": 2,
        "gradient_accumulation_steps": 8,
    }  # fmt: skip
    older = SimpleNamespace(network=SimpleNamespace(config=SimpleNamespace(seq_length=32)))
    mcore = SimpleNamespace(
        network=SimpleNamespace(
            config=SimpleNamespace(seq_length=None), transformer_config=SimpleNamespace(seq_length=4096)
        )
    )
    facts = {
        "no sibling": options(make_parameters()),
        "defaults": options(make_parameters(MFLossMonitor())),
        "told": options(make_parameters(MFLossMonitor(**told), model=older)),
        "per token": options(make_parameters(MFLossMonitor(**told, calculate_per_token_loss=True), model=mcore)),
        "sink": options(make_parameters(MFLossMonitor(dataset_size=20, origin_epochs=3))),
        "resumed by mindspore": options(make_parameters(MFLossMonitor(**told), initial_step=7)),
    }
    mindspore.set_auto_parallel_context(pipeline_stages=2)
    facts["pipeline"] = options(make_parameters(MFLossMonitor(**told)))
    mindspore.reset_auto_parallel_context()
    return facts


def count_steps(directory: Path, *, sink_size: int) -> dict[str, Any]:
    """What the monitor is told beside a MFLossMonitor that goes on behind step 40, with epochs of 20 steps.

    What a bridge is told beside it, its files say: `DIRECTORY/bridge-<sink size>`.
    """
    told: dict[str, list[Any]] = {"begun": [], "ended": []}
    name = f"sink-{sink_size}"
    bridge = SummaryBridgeMonitor(
        str(directory / f"bridge-{sink_size}"), collect_graph=False, collect_freq=1, collect_trainable_params=False
    )
    monitor = MindSporeTransformersMonitor(
        interval=0, backend="local", save_dir=str(directory), project=name, run_id="run", metrics=["epoch"]
    )
    network = nn.Dense(1, 1)
    parameters = make_parameters(MFLossMonitor(initial_step=40, dataset_size=20, origin_epochs=4), bridge, monitor)
    parameters.update(dataset_sink_mode=sink_size > 0, sink_size=sink_size, net_outputs=Tensor(1.0), batch_num=20)
    parameters.update(train_network=network, network=network, mode="train", loss_fn=None)
    context = RunContext(parameters)
    callbacks = (bridge, monitor)
    with bridge, monitor, noted(told, parameters):
        for callback in callbacks:
            callback.on_train_begin(context)
        for step in range(max(1, sink_size), 26, max(1, sink_size)):
            if sink_size or step % 20 == 1:
                for callback in callbacks:
                    callback.on_train_epoch_begin(context)
            parameters.cur_epoch_num = step if sink_size else (40 + step - 1) // 20 + 1
            for callback in callbacks:
                callback.on_train_step_begin(context)
            parameters.cur_step_num = step
            for callback in callbacks:
                callback.on_train_step_end(context)
            assert parameters.cur_step_num == step
            if sink_size or (40 + step) % 20 == 0:
                for callback in callbacks:
                    callback.on_train_epoch_end(context)
        for callback in callbacks:
            callback.on_train_end(context)
    told["monitor"] = [[row["step"], row["epoch"]] for row in read_journal(directory / name)]
    return told


@contextlib.contextmanager
def noted(told: dict[str, list[Any]], parameters: InternalCallbackParam) -> Iterator[None]:
    """Notes at which steps the monitor that ours is derived from is told of an epoch's beginning and end."""
    with contextlib.ExitStack() as stack:
        for name, hook in (("begun", "on_train_epoch_begin"), ("ended", "on_train_epoch_end")):
            original = getattr(Monitor, hook)

            def call(self: Any, run_context: Any, name: str = name, original: Any = original) -> None:
                told[name].append(parameters.cur_step_num)
                original(self, run_context)

            stack.enter_context(mock.patch.object(Monitor, hook, call))
        yield


def read_journal(project: Path) -> list[dict[str, Any]]:
    """Returns the samples of a project's run."""
    lines = (project / "run" / "rank_0" / "metrics.jsonl").read_text().splitlines()
    return [row for row in map(json.loads, lines) if row["kind"] == "sample"]


def read_outputs(directory: Path) -> dict[int, Any]:
    """What is in the journal for each form of the outputs."""
    journals = {}
    for size, outputs in OUTPUTS.items():
        monitor = MindSporeTransformersMonitor(
            interval=0, backend="local", save_dir=str(directory), project=f"outputs-{size}", run_id="run",
            metrics=["loss", "lr", "grad_norm", "loss_scale", "overflow"],
        )  # fmt: skip
        model = SimpleNamespace(optimizer=None)
        parameters = make_parameters(MFLossMonitor(micro_batch_interleave_num=2), monitor, model=model)
        context = RunContext(parameters)
        with contextlib.ExitStack() as stack:
            stack.enter_context(monitor)
            monitor.on_train_begin(context)
            for step in (1, 2, 3):
                parameters.cur_step_num = step
                monitor.on_train_step_begin(context)
                parameters.net_outputs = outputs
                monitor.on_train_step_end(context)
            monitor.on_train_epoch_end(context)
            monitor.on_train_end(context)
        journals[size] = [row["values"] for row in read_journal(directory / f"outputs-{size}")]
    return journals


def hear_others(directory: Path) -> dict[str, Any]:
    """What is in the journal of what MindFormers' own callbacks tell, which come before ours, and what is left on them.

    In data sinks of several steps it adds up what it tells.
    """
    names = ("lm_loss", "aux_loss", "mtp_loss", "indexer_loss")
    for name in names:
        parameter_register.register(name, Tensor([0.0], mindspore.float32))
    heard = {}
    for kind, more in (("steps", {}), ("sinks", {"dataset_sink_mode": True, "sink_size": 4})):
        losses = MFLossMonitor(
            micro_batch_interleave_num=2, dataset_size=3, is_moe_model=True, is_mtp_model=True, origin_epochs=1,
            global_batch_size=2,
        )  # fmt: skip
        losses.print_separate_loss = True  # which it switches off for an older model
        state = TrainingStateMonitor(origin_epochs=1, dataset_size=3, config={"device_local_loss_format": "log"})
        monitor = MindSporeTransformersMonitor(
            interval=0, backend="local", save_dir=str(directory), project=f"others-{kind}", run_id="run",
            metrics=["loss", "local_loss", "local_grad_norm", "local_grad_norms", "sub_losses"],
        )  # fmt: skip
        optimizer = SimpleNamespace(learning_rate=Tensor(0.5), parameters=[Tensor([1.0]), Tensor([1.0])])
        for number, parameter in enumerate(optimizer.parameters):
            parameter.name = f"layer_{number}"
        parameters = make_parameters(
            losses, state, monitor, model=SimpleNamespace(optimizer=optimizer), parallel_mode="semi_auto_parallel",
            mode="train", **more,
        )  # fmt: skip
        context = RunContext(parameters)
        before = [dict(vars(callback)) for callback in (losses, state)]
        with monitor:
            monitor.on_train_begin(context)
            for step in (1, 2, 3):
                parameters.cur_step_num = step
                for callback in (losses, state, monitor):
                    callback.on_train_step_begin(context)
                for number, name in enumerate(names):
                    ops.assign(parameter_register.get(name), Tensor([2.0 * step + number], mindspore.float32))
                ops.assign(get_device_local_loss(), Tensor([4.0 * step], mindspore.float32))
                parameters.net_outputs = OUTPUTS[7]
                for callback in (losses, state, monitor):
                    callback.on_train_step_end(context)
            monitor.on_train_epoch_end(context)
            monitor.on_train_end(context)
        after = [dict(vars(callback)) for callback in (losses, state)]
        heard[kind] = [row["values"] for row in read_journal(directory / f"others-{kind}")]
        heard[f"{kind} left"] = [sorted(new.keys() - old.keys()) for new, old in zip(after, before, strict=True)]
    return heard


def count_operations() -> dict[str, float | None]:
    """The operations of a step of a newer model, by its configuration; nothing for a network without one."""
    config = TransformerConfig(
        num_layers=3, hidden_size=8, num_attention_heads=2, num_query_groups=1, ffn_hidden_size=20, vocab_size=50,
        seq_length=16, hidden_act="silu", gated_linear_unit=True, kv_channels=4,
    )  # fmt: skip
    model = SimpleNamespace(network=SimpleNamespace(get_gpt_transformer_config=lambda: config))
    counted = options(make_parameters(MFLossMonitor(global_batch_size=5), model=model))
    return {"newer": counted["model_flops"], "none": options(make_parameters())["model_flops"]}


def find_fault() -> str:
    """How MindFormers tells of a configuration with two problems."""
    try:
        build_callback({"type": "MindSporeTransformersMonitor", "intervall": 3, "metrics": ["losss"]})
    except ValueError as error:
        return str(error)
    return ""


def find_refusals(directory: Path) -> dict[str, str]:
    """How a bridge refuses MindFormers' own collector beside it, and the PyNative trainer."""
    theirs = build_callback({"type": "SummaryMonitor", "summary_dir": str(directory / "theirs")})
    ours = SummaryBridgeMonitor(str(directory / "ours"))
    told = {}
    try:
        ours.on_train_begin(RunContext(make_parameters(theirs, ours)))
    except UsageError as error:
        told["beside"] = str(error)
    state = SimpleNamespace(global_step=0, max_steps=3, epoch_step=3)
    try:
        ours.on_train_begin(SimpleNamespace(), state, model=[], optimizer=None, lr_scheduler=None)
    except UsageError as error:
        told["pynative"] = str(error)
    return told


def call_as_pynative(directory: Path) -> list[Any]:
    """The steps and losses of a training of the PyNative trainer, which MindFormers 2.1 has."""
    monitor = MindSporeTransformersMonitor(
        interval=0, backend="local", save_dir=str(directory), project="pynative", run_id="run", metrics=["loss"]
    )
    state = SimpleNamespace(global_step=10, max_steps=13, epoch_step=4, global_batch_size=8, loss_scale=1.0)
    given = {"model": [], "optimizer": None, "lr_scheduler": None, "train_dataset": None, "eval_dataset": None}
    monitor.on_train_begin(SimpleNamespace(), state, **given)
    for step in (11, 12, 13):
        monitor.on_step_begin(SimpleNamespace(), state, **given)
        state.global_step = step
        monitor.on_step_end(SimpleNamespace(), state, loss=Tensor(float(step)), grad_norm=None, has_last=True, **given)
    monitor.on_train_end(SimpleNamespace(), state, **given)
    return [[row["step"], row["values"]["loss"]] for row in read_journal(directory / "pynative")]


def main(directory: Path) -> None:
    results = {
        "facts": find_facts(),
        "steps": {size: count_steps(directory, sink_size=size) for size in (0, 5)},
        "fault": find_fault(),
        "outputs": read_outputs(directory),
        "refusals": find_refusals(directory),
        "pynative": call_as_pynative(directory),
        "others": hear_others(directory),
        "operations": count_operations(),
    }
    print(json.dumps(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
