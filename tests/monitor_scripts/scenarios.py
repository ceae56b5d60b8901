"""Real trainings with the monitor, one after the other in one process.

Usage: python tests/monitor_scripts/scenarios.py DIRECTORY RESULT.json [NAME ...]

Each scenario has DIRECTORY/<name> for its files. RESULT.json has for each what it `returned`, its `log` (what this
package logged, console lines among it), and `failed` with a traceback where one ended by an exception. A scenario is a
function here; tests/monitor/test_monitor_training.py says what must be true of it.
"""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.train import MAE, Callback, LossMonitor, ModelCheckpoint, TimeMonitor
from mindspore.train.callback import CheckpointConfig, RunContext

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "bridge_scripts"))
from scenario_run import run_all
from small import AtStep, fake_context, train, vector_model, vectors

from ms_summary_bridge import SummaryBridge
from ms_summary_bridge.errors import ConfigError
from ms_summary_bridge.monitor import (
    MindSporeTransformersMonitor,
    Monitor,
    build_monitor_callbacks,
    register_callback,
)
from ms_summary_bridge.monitor.sinks.journal import read_journal

Scenario = Callable[[Path], Any]
SCENARIOS: dict[str, Scenario] = {}

LOSSES = {
    "float": (lambda: 0.5, 0.5),
    "int": (lambda: 2, 2.0),
    "numpy": (lambda: np.float32(0.5), 0.5),
    "tensor_0d": (lambda: Tensor(0.5, mindspore.float32), 0.5),
    "tensor_1": (lambda: Tensor([0.5], mindspore.float32), 0.5),
    "tensor_1x1_fp16": (lambda: Tensor([[0.5]], mindspore.float16), 0.5),
    "tensor_bf16": (lambda: Tensor(0.5, mindspore.bfloat16), 0.5),
    "mean": (lambda: Tensor([1.0, 3.0], mindspore.float32), 2.0),
    "scaled": (lambda: (Tensor(0.5), Tensor(False), Tensor(1024.0)), 0.5),
    "mindformers_4": (lambda: (Tensor([0.5]), Tensor(False), Tensor(1.0), Tensor(0.125)), 0.5),
    "mindformers_5": (lambda: (Tensor([0.5]), Tensor(False), Tensor(1.0), Tensor(0.125), Tensor([2.0])), 0.5),
    "mindformers_7": (lambda: (Tensor([0.5]), Tensor(False), Tensor(1.0), Tensor(0.125), Tensor([2.0]), (), ()), 0.5),
    "list": (lambda: [Tensor(0.25), Tensor(9.0)], 0.25),
    "nested": (lambda: ((Tensor(0.25), Tensor(1.0)), Tensor(2.0)), 0.25),
    "dict": (lambda: {"loss": Tensor(0.25), "acc": Tensor(0.9)}, 0.25),
    "none": (lambda: None, None),
    "empty_tuple": (lambda: (), None),
    "empty_tensor": (lambda: Tensor(np.zeros((0,), np.float32)), None),
    "text": (lambda: "0.5", None),
}
"""What a network can return (B20), and the loss in it."""


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function


def section(directory: Path, **keys: Any) -> dict[str, Any]:
    return {"interval": 0, "backend": ["local"], "save_dir": str(directory), "run_id": "run", **keys}


def lines(directory: Path) -> list[dict[str, Any]]:
    return list(read_journal(directory / "default" / "run" / "rank_0"))


class Losses(Callback):
    """Notes the loss of each step as MindSpore has it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[float] = []

    def on_train_step_end(self, run_context: Any) -> None:
        self.seen.append(float(run_context.original_args().net_outputs.asnumpy()))


@scenario
def article(directory: Path) -> Any:
    """The section that people write, from a file, through `build_monitor_callbacks`."""
    (directory / "train.yaml").write_text(
        f"""
monitor_config:
  enable: true
  backend: local
  project: bert-large-wwm-pretrain
  interval: 30
  save_dir: {directory}
  tensorboard: true
  metrics: [loss, lr, tokens_per_second, memory_usage, global_rank]
  tags: {{dataset: v3, model: 340M}}
  callback:
    type: MindSporeTransformersMonitor
    params: {{log_level: INFO, warn_on_value: {{loss: 50.0, tokens_per_second: 1000}}}}
"""
    )
    overrides = ["interval=0", "seq_length=1000", "run_id=run"]
    callbacks = build_monitor_callbacks(str(directory / "train.yaml"), overrides=overrides)
    losses = Losses()
    train(vector_model(), 8, *callbacks, losses, TimeMonitor(), epochs=2)
    return {"classes": [type(callback).__name__ for callback in callbacks], "losses": losses.seen}


@scenario
def all_defaults(directory: Path) -> Any:
    """`monitor_config: true` alone."""
    os.chdir(directory)
    callbacks = build_monitor_callbacks({"monitor_config": True})
    train(vector_model(), 4, *callbacks)
    (journal,) = directory.glob("monitor_output/default/*/rank_0/metrics.jsonl")
    return {"classes": [type(callback).__name__ for callback in callbacks], "lines": list(read_journal(journal))}


@scenario
def unfed(directory: Path) -> Any:
    """Metrics that a plain Model does not give."""
    keys = section(directory, metrics=["loss", "grad_norm", "loss_scale", "overflow", "mfu", "npu_power"])
    train(vector_model(), 4, *build_monitor_callbacks(keys))
    return lines(directory)


@scenario
def by_hand(directory: Path) -> Any:
    """A dict given to the class, and a run context made by hand for three steps."""
    monitor = MindSporeTransformersMonitor(section(directory, metrics=["loss", "lr"]))
    for step in (1, 2, 3):
        parameters = SimpleNamespace(cur_epoch_num=1, cur_step_num=step, batch_num=3, net_outputs=Tensor(1.0 / step))
        monitor.on_train_step_end(SimpleNamespace(original_args=lambda parameters=parameters: parameters))
    monitor.close()
    try:
        MindSporeTransformersMonitor(section(directory), interval=3, csv=True)
        refused = ""
    except ConfigError as error:
        refused = str(error)
    other = MindSporeTransformersMonitor(section(directory / "dict"))
    context = SimpleNamespace(original_args=lambda: {"cur_step_num": 1, "net_outputs": 0.5})
    other.on_train_begin(context)
    other.on_train_step_begin(context)
    other.on_train_step_end(context)
    other.on_train_end(context)
    counts = {"cur_step_num": np.int64(1), "cur_epoch_num": np.int64(1), "net_outputs": np.float32(0.5)}
    third = MindSporeTransformersMonitor(section(directory / "numpy", metrics=["loss"]))
    third.on_train_step_end(SimpleNamespace(original_args=lambda: counts))
    third.close()
    found = {name: lines(directory / name) for name in ("dict", "numpy")}
    return {"object": lines(directory), **found, "refused": refused}


@scenario
def losses(directory: Path) -> Any:
    """B20: every form of the outputs."""
    found = {}
    for name, (make, right) in LOSSES.items():
        monitor = MindSporeTransformersMonitor(section(directory / name, metrics=["loss", "lr", "grad_norm"]))
        monitor.on_train_begin(fake_context(batch_num=1, epoch_num=1))
        monitor.on_train_step_end(fake_context(cur_step_num=1, cur_epoch_num=1, net_outputs=make()))
        monitor.close()
        (sample,) = [line["values"] for line in lines(directory / name) if line["kind"] == "sample"]
        found[name] = {"right": right, "found": sample}
    return found


@scenario
def learning_rates(directory: Path) -> Any:
    """B20: every form of an optimizer's learning rate."""
    net = nn.SequentialCell(nn.Dense(3, 2), nn.Dense(2, 1))
    halves = [list(net[0].trainable_params()), list(net[1].trainable_params())]
    rates: dict[str, Any] = {
        "number": lambda: nn.Momentum(net.trainable_params(), 0.1, 0.9),
        "list": lambda: nn.Momentum(net.trainable_params(), [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], 0.9),
        "schedule": lambda: nn.Momentum(net.trainable_params(), nn.PolynomialDecayLR(0.1, 0.01, 4, 1.0), 0.9),
        "groups": lambda: nn.Momentum([{"params": halves[0], "lr": 0.1}, {"params": halves[1], "lr": 0.01}], 0.1, 0.9),
    }
    found = {}
    for name, make in rates.items():
        monitor = MindSporeTransformersMonitor(section(directory / name, metrics=["lr"]))
        model = mindspore.train.Model(net, nn.MSELoss(), make())
        train(model, 3, monitor)
        found[name] = [line["values"] for line in lines(directory / name) if line["kind"] == "sample"]
    return found


@scenario
def sink(directory: Path) -> Any:
    """B23: one call for 100 steps, as the data sink of a device gives it."""
    monitor = MindSporeTransformersMonitor(section(directory, metrics=["loss", "step_time"]))
    common = {"dataset_sink_mode": True, "batch_num": 100, "epoch_num": 3, "sink_size": -1}
    monitor.on_train_begin(fake_context(**common))
    for epoch in (1, 2, 3):
        context = fake_context(**common, cur_epoch_num=epoch, cur_step_num=100 * epoch, net_outputs=Tensor(1.0 / epoch))
        monitor.on_train_epoch_begin(context)
        monitor.on_train_step_begin(context)
        monitor.on_train_step_end(context)
        monitor.on_train_epoch_end(context)
    monitor.on_train_end(context)
    return lines(directory)


@scenario
def other_contexts(directory: Path) -> Any:
    """A loop of one's own that makes a run context for each epoch, and begins again without an end."""
    monitor = MindSporeTransformersMonitor(section(directory, metrics=["loss"], interval=3600))
    other = AtStep(lambda step: None)
    found = []
    for _ in range(2):
        monitor.on_train_begin(fake_context(batch_num=5, epoch_num=3, list_callback=[monitor, other]))
        found.append("on_train_step_end" in vars(other))
        for step in range(1, 16):
            if step % 5 == 1:
                context = fake_context(batch_num=5, epoch_num=3)
            parameters = context.original_args()
            parameters.update(cur_epoch_num=(step + 4) // 5, cur_step_num=step, net_outputs=Tensor(1.0 / step))
            monitor.on_train_step_begin(context)
            monitor.on_train_step_end(context)
    monitor.close()
    found.append("on_train_step_end" in vars(other))
    return {"lines": lines(directory), "timed": found}


@scenario
def no_sink_on_a_cpu(directory: Path) -> Any:
    """Data sinks of three steps are asked for, and MindSpore does without on a CPU."""
    monitor = MindSporeTransformersMonitor(section(directory, metrics=["loss"]))
    model = vector_model()
    model.train(2, vectors(6), callbacks=[monitor], dataset_sink_mode=True, sink_size=3)


@scenario
def pipeline(directory: Path) -> Any:
    """A network that is cut into two stages, as far as a callback sees that."""
    monitor = MindSporeTransformersMonitor(section(directory))
    found = []
    for stages in (2, 1):
        mindspore.set_auto_parallel_context(pipeline_stages=stages)
        try:
            monitor.on_train_begin(fake_context(batch_num=1, epoch_num=1))
        finally:
            mindspore.reset_auto_parallel_context()
        found.append(monitor._recorder.training.pipeline_stages)
        monitor.close()
    return found


@scenario
def beside_a_bridge(directory: Path) -> Any:
    """A SummaryBridge of the user's own is in the list, behind the monitor."""
    monitor = MindSporeTransformersMonitor(section(directory, backend=["tensorboard"], tags={"dataset": "v3"}))
    train(vector_model(), 4, monitor, SummaryBridge(str(directory / "bridge"), collect_freq=1))
    return [path.name for path in (directory / "default" / "run").iterdir()]


@scenario
def same_numbers(directory: Path) -> Any:
    """A bridge and the monitor in one training, in both orders, with evaluations and checkpoints between steps."""
    seen = {}
    for first in ("bridge", "monitor"):
        for every in (1, 3):
            place = directory / f"{first}_{every}"
            metrics = ["loss", "lr", "epoch", "step_time", "samples_per_second", "data_time"]
            times = {"interval": 0} if every == 1 else {"interval": 3600, "per_print_step": every}
            given = section(place, backend=["local", "tensorboard"], metrics=metrics, **times)
            monitor = MindSporeTransformersMonitor(given)
            bridge = SummaryBridge(str(place / "bridge"), collect_freq=every)
            config = CheckpointConfig(save_checkpoint_steps=2, keep_checkpoint_max=2)
            saver = ModelCheckpoint(prefix="net", directory=str(place / "checkpoints"), config=config)
            ours = [bridge, saver, monitor] if first == "bridge" else [monitor, saver, bridge]
            rate = nn.PolynomialDecayLR(0.1, 0.01, 8, 1.0)
            model = vector_model(optimizer=lambda net, rate=rate: nn.Momentum(net.trainable_params(), rate, 0.9))
            model = mindspore.train.Model(model._network, nn.MSELoss(), model._optimizer, metrics={"mae": MAE()})
            model.fit(3, vectors(4), vectors(2), callbacks=ours, dataset_sink_mode=False)
            parts = lines(place)[-1]["breakdown"]
            left = [name for callback in ours for name in vars(callback) if name.startswith("on_")]
            seen[place.name] = {"evaluation": parts["evaluation"], "checkpoint": parts["checkpoint"], "left": left}
    return seen


@scenario
def without_a_bridge(directory: Path) -> Any:
    """The class alone writes both viewers' files itself."""
    keys = {"backend": ["tensorboard", "mindinsight"], "tags": {"dataset": "v3", "layers": 24, "dropout": 0.1}}
    train(vector_model(), 4, MindSporeTransformersMonitor(section(directory, **keys)))


@scenario
def fit(directory: Path) -> Any:
    """An evaluation after each epoch, which enters and leaves every callback again, and checkpoints."""
    metrics = ["loss", "samples_per_second", "step_time", "update_ratio", "grad_norm"]
    monitor = MindSporeTransformersMonitor(section(directory, metrics=metrics))
    config = CheckpointConfig(save_checkpoint_steps=2, keep_checkpoint_max=2)
    saver = ModelCheckpoint(prefix="net", directory=str(directory / "checkpoints"), config=config)
    model = vector_model(metrics={"mae": MAE()})
    model.fit(3, vectors(4), vectors(2), callbacks=[monitor, saver], dataset_sink_mode=False)
    return {"lines": lines(directory), "left": [name for name in vars(saver) if name.startswith("on_")]}


def printed(call: Callable[[], object]) -> str:
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        call()
    return output.getvalue()


@scenario
def loss_monitors(directory: Path) -> Any:
    """MindSpore's LossMonitor beside the monitor: a hint, or silence."""
    said = {}
    for quiet in (False, True):
        monitor = MindSporeTransformersMonitor(section(directory / str(quiet), quiet_loss_monitor=quiet))
        callbacks = [monitor, LossMonitor(), TimeMonitor()]
        said[str(quiet)] = printed(lambda callbacks=callbacks: train(vector_model(), 3, *callbacks))
    return said


@scenario
def forked(directory: Path) -> Any:
    """A copy of the training process, such as a data worker, in which the hooks are called all the same."""
    monitor = MindSporeTransformersMonitor(section(directory))
    polled: list[int] = []
    codes: list[int] = []

    def fork(step: int) -> None:
        assert monitor._commands is not None
        monitor._commands.poll = lambda: bool(polled.append(step))  # type: ignore[method-assign]
        child = os.fork()
        if not child:
            polled.clear()
            said: list[Any] = []
            logging.getLogger("ms_summary_bridge").addFilter(lambda record: bool(said.append(record.getMessage())))
            context = RunContext({"cur_step_num": step, "cur_epoch_num": 1, "net_outputs": 0.5})
            for _ in range(2):
                monitor.on_train_step_begin(context)
                monitor.on_train_step_end(context)
            os._exit(10 * sum("was forked within a training" in line for line in said) + len(polled))
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    train(vector_model(), 3, AtStep(fork), monitor)
    return {"codes": codes, "lines": lines(directory)}


@scenario
def faults(directory: Path) -> Any:
    """Whatever breaks inside the monitor, the training goes on; what breaks outside reaches the user."""
    monitor = MindSporeTransformersMonitor(section(directory))

    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("broken on purpose")

    monitor._first_call = broken  # type: ignore[method-assign]
    steps: list[int] = []
    train(vector_model(), 4, monitor, AtStep(steps.append))

    def stop(step: int) -> None:
        if step == 3:
            raise ValueError("the user's own")

    other = MindSporeTransformersMonitor(section(directory / "other"))
    error = ""
    try:
        train(vector_model(), 5, other, AtStep(stop))
    except ValueError as raised:
        error = str(raised)
    return {"steps": steps, "error": error, "lines": lines(directory / "other")}


@scenario
def twice(directory: Path) -> Any:
    """One monitor for two trainings."""
    monitor = MindSporeTransformersMonitor(section(directory, metrics=["loss"]))
    for _ in range(2):
        train(vector_model(), 3, monitor)
    return lines(directory)


@scenario
def twice_for_viewers(directory: Path) -> None:
    """One monitor for two trainings with files of its own, and beside a bridge that has seen one before."""
    viewers = {"backend": ["tensorboard", "mindinsight"], "tags": {"dataset": "v3"}, "metrics": ["loss"]}
    monitor = MindSporeTransformersMonitor(section(directory / "own", **viewers))
    for steps in (3, 2):
        train(vector_model(), steps, monitor)
    bridge = SummaryBridge(str(directory / "bridge"), collect_freq=1)
    monitor = MindSporeTransformersMonitor(section(directory / "beside", **viewers))
    train(vector_model(), 4, bridge)
    train(vector_model(), 3, bridge, monitor)
    train(vector_model(), 2, monitor, bridge)


@scenario
def copies(directory: Path) -> Any:
    """Copies of a monitor that has trained, and of one for a loop of one's own."""
    monitor = MindSporeTransformersMonitor(section(directory / "callback", metrics=["loss"]))
    train(vector_model(), 1, monitor)
    for copied in (copy.copy(monitor), copy.deepcopy(monitor), pickle.loads(pickle.dumps(monitor))):
        train(vector_model(), 2, copied)
    with pickle.loads(pickle.dumps(Monitor(section(directory / "loop"), parameters=[1.0]))) as loop:
        loop.step(loss=1.0)
    return {name: lines(directory / name) for name in ("callback", "loop")}


@scenario
def pynative(directory: Path) -> Any:
    """A training loop without Model, in PYNATIVE mode."""
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    try:
        weight = Parameter(Tensor([1.0, 2.0], mindspore.float32), name="weight")
        gradient = mindspore.value_and_grad(lambda x: ops.square(weight * x).sum(), None, [weight])
        optimizer = nn.SGD([weight], 0.01)
        metrics = ["loss", "lr", "update_ratio", "tokens_per_second"]
        right = []
        with Monitor(section(directory, metrics=metrics), parameters=[weight]) as monitor:
            for _ in range(5):
                loss, gradients = gradient(Tensor([1.0, 1.0], mindspore.float32))
                optimizer(gradients)
                right.append(float(loss.asnumpy()))
                monitor.step(loss=loss, lr=optimizer.learning_rate, tokens=2)
        return {"lines": lines(directory), "losses": right}
    finally:
        mindspore.set_context(mode=mindspore.GRAPH_MODE)


@scenario
def own_class(directory: Path) -> Any:
    """`callback.type` names a class of the user's."""

    @register_callback("TheirMonitor")
    class TheirMonitor(Callback):
        def __init__(self, config: dict[str, Any]) -> None:
            super().__init__()
            self.config = config

    keys = section(directory, callback={"type": "TheirMonitor", "params": {"anything": 1}})
    (registered,) = build_monitor_callbacks(keys)
    dotted = build_monitor_callbacks(section(directory, callback={"type": "small:AtStep", "params": {}}))
    unknown = ""
    try:
        build_monitor_callbacks(section(directory, callback={"type": "NoSuchMonitor"}))
    except ValueError as error:
        unknown = str(error)
    return {
        "config": registered.config["callback"],
        "dotted": [type(callback).__name__ for callback in dotted],
        "unknown": unknown,
        "off": build_monitor_callbacks({"monitor_config": {"enable": False}}),
        "defines": [name for name in ("begin", "step_end", "end") if name in vars(MindSporeTransformersMonitor)],
    }


@scenario
def nan_loss(directory: Path) -> Any:
    """A real training that diverges: LossMonitor's check stops nothing here, ours says it at the step."""
    monitor = MindSporeTransformersMonitor(section(directory, interval=1000, metrics=["loss"]))
    train(vector_model(learning_rate=1e20), 6, monitor)
    found = lines(directory)
    return {
        "lines": found,
        "is_null": [line for line in found if line["kind"] == "sample"][-1]["values"]["loss"] is None,
    }


if __name__ == "__main__":
    run_all(SCENARIOS)
