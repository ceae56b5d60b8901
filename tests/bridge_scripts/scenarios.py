"""Real trainings with a SummaryBridge, one after the other in one process.

Usage: python tests/bridge_scripts/scenarios.py DIRECTORY RESULT.json [NAME ...]

Each scenario writes into DIRECTORY/<name>. RESULT.json has for each `returned`, `log` (what this package warned of),
`secs`, and `failed` with a traceback where one ended by an exception. A scenario is a function here; its docstring says
what it shows, tests/callback/test_bridge.py says what must be true of it.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import inspect
import os
import pickle
import resource
import shutil
import signal
import threading
import time
import traceback
import weakref
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import mindspore
import numpy as np
import psutil
from mindspore import Parameter, Tensor, nn
from mindspore.train import MAE, Callback, LossMonitor, Metric, ModelCheckpoint, SummaryCollector, SummaryRecord
from mindspore.train.callback import CheckpointConfig, RunContext, _InternalCallbackParam
from scenario_run import run_all
from small import (
    AtStep,
    fake_context,
    image_model,
    images,
    train,
    vector_model,
    vectors,
)

from ms_summary_bridge import SummaryBridge
from ms_summary_bridge.callback import bridge as bridge_module
from ms_summary_bridge.monitor.callback import MindSporeTransformersMonitor
from runs import series, summaries

Scenario = Callable[[Path], Any]
SCENARIOS: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function


def writers() -> list[psutil.Process]:
    """Returns this process's writer processes."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended, and may still wait to be reaped
            if "ms_summary_bridge" in " ".join(child.cmdline()):
                found.append(child)
    return found


# ------------------------------------------------------------------ what is collected

EVERYTHING: dict[str, Any] = {
    "collect_freq": 2,
    "collect_specified_data": {"histogram_regular": ".*", "collect_landscape": None},
    "custom_lineage_data": {"purpose": "test", "seed": 0, "rate": 0.5},
    "collect_tensor_freq": 3,
    "export_options": {"tensor_format": "npy"},
}


@scenario
def stock(directory: Path) -> None:
    """MindSpore's own collector, for comparison."""
    train(image_model(), 5, SummaryCollector(str(directory), **EVERYTHING), epochs=2, data=images(5))


@scenario
def same(directory: Path) -> None:
    """The same training with the bridge."""
    train(image_model(), 5, SummaryBridge(str(directory), **EVERYTHING), epochs=2, data=images(5))


@scenario
def defaults(directory: Path) -> None:
    train(image_model(), 11, SummaryBridge(str(directory)), data=images(11))


@scenario
def switched_off(directory: Path) -> None:
    bridge = SummaryBridge(
        str(directory),
        collect_freq=1,
        collect_graph=False,
        collect_trainable_params=False,
        collect_loss=False,
        collect_lr=False,
        collect_landmark=False,
    )
    train(vector_model(), 3, bridge)
    bridge.add_scalar("own", 1.0, 1)
    bridge.close()


@scenario
def switched_on(directory: Path) -> None:
    """Every switch on where the default collects nothing; no tensorboard file beside MindSpore's.

    What is in the TensorBoard file after a step is kept in `step_<n>`.
    """

    def keep(step: int) -> None:
        assert bridge.flush()
        (path,) = (directory / "tb").iterdir()
        (directory / f"step_{step}").mkdir()
        shutil.copy(path, directory / f"step_{step}")

    bridge = SummaryBridge(
        str(directory / "ms"),
        collect_freq=1,
        tensorboard_dir=str(directory / "tb"),
        keep_default_action=False,
        collect_graph=True,
        collect_trainable_params=True,
        collect_loss=True,
    )
    train(vector_model(), 3, bridge, AtStep(keep))


@scenario
def signature(directory: Path) -> Any:
    ours, theirs = (inspect.signature(kind).parameters for kind in (SummaryBridge, SummaryCollector))
    wrong = {}
    for name, bad in [
        ("collect_freq", 0),
        ("collect_freq", 1.5),
        ("collect_tensor_freq", -1),
        ("max_file_size", 0),
        ("keep_default_action", 1),
        ("collect_specified_data", []),
        ("collect_specified_data", {"collect_everything": True}),
        ("collect_specified_data", {"histogram_regular": "("}),
        ("collect_specified_data", {"collect_metric": 1}),
        ("custom_lineage_data", {"a": [1]}),
        ("export_options", {"tensor_format": "csv"}),
    ]:
        kinds = []
        for kind in (SummaryCollector, SummaryBridge):
            try:
                kind(str(directory / kind.__name__), **{name: bad})
                kinds.append("accepted")
            except Exception as error:
                kinds.append(type(error).__name__)
        wrong[f"{name}={bad!r}"] = kinds
    for name, bad in [("flush_secs", 0), ("flush_secs", float("nan")), ("queue_bytes", 0)]:
        try:
            SummaryBridge(str(directory / "own"), **{name: bad})
            wrong[f"{name}={bad!r}"] = ["ValueError", "accepted"]
        except ValueError:
            wrong[f"{name}={bad!r}"] = ["ValueError", "ValueError"]
    (directory / "file").touch()
    said = {}
    for arguments, name, bad in [
        ((), "flush_secs", "5"),
        ((), "flush_secs", float("inf")),
        ((), "queue_bytes", float("nan")),
        ((), "queue_bytes", 0),
        ((), "collect_lr", "False"),
        ((), "collect_landmark", 0),
        ((), "collect_loss", "False"),
        ((), "collect_graph", 1),
        ((), "collect_trainable_params", "none"),
        ((), "collect_freq", "10"),
        ((), "max_file_size", "5"),
        ((), "keep_default_action", "False"),
        ((), "tensorboard_dir", ""),
        ((), "tensorboard_dir", str(directory / "file")),
        (("",), "summary_dir", None),
        ((str(directory / "file"),), "summary_dir", None),
        ((str(directory / "own"), str(directory / "tb")), "tensorboard_dir=", None),
    ]:
        given = {} if bad is None else {name: bad}
        try:
            SummaryBridge(*(arguments or (str(directory / "own"),)), **given)
            said[f"{name} {bad!r} {len(said)}"] = [name, "", "accepted"]
        except (TypeError, ValueError) as error:
            said[f"{name} {bad!r} {len(said)}"] = [name, type(error).__name__, str(error)]
    return {
        "missing": [name for name in theirs if name not in ours],
        "defaults": {
            name: [repr(p.default), repr(ours[name].default)]
            for name, p in theirs.items()
            if name in ours and p.default != ours[name].default
        },
        "wrong": wrong,
        "said": said,
        "positional": [
            [name for name, p in parameters.items() if p.kind is not p.KEYWORD_ONLY] for parameters in (ours, theirs)
        ],
    }


class _Warmup(nn.learning_rate_schedule.LearningRateSchedule):
    """0.1 divided by the number of the step."""

    def construct(self, global_step: Any) -> Any:
        return 0.1 / (global_step.astype(mindspore.float32) + 1)


def _grouped(net: nn.Cell, first: Any, second: Any) -> Any:
    groups = [
        {"params": list(net[0].trainable_params()), "lr": first},
        {"params": list(net[1].trainable_params()), "lr": second},
    ]
    return nn.Momentum(groups, 0.7, 0.9)


@scenario
def learning_rates(directory: Path) -> Any:
    """B20: the learning rate in all its forms, over five steps. Returns what each step used, computed by hand."""
    cosine = nn.CosineDecayLR(0.01, 0.1, 4)
    by_hand = [0.01 + 0.5 * (0.1 - 0.01) * (1 + np.cos(np.pi * min(step, 4) / 4)) for step in range(5)]
    warm = [0.1 / (step + 1) for step in range(5)]
    dynamic = [0.5, 0.4, 0.3, 0.2, 0.1]
    forms: dict[str, tuple[Any, dict[str, list[float]]]] = {
        "float": (lambda net: nn.Momentum(net.trainable_params(), 0.1, 0.9), {"lr": [0.1] * 5}),
        "tensor": (lambda net: nn.Momentum(net.trainable_params(), Tensor(0.25), 0.9), {"lr": [0.25] * 5}),
        "list": (lambda net: nn.SGD(net.trainable_params(), dynamic), {"lr": dynamic}),
        "schedule": (lambda net: nn.Adam(net.trainable_params(), cosine), {"lr": by_hand}),
        "own schedule": (lambda net: nn.Momentum(net.trainable_params(), _Warmup(), 0.9), {"lr": warm}),
        "groups": (lambda net: _grouped(net, 0.1, 0.01), {"lr/group_0": [0.1] * 5, "lr/group_1": [0.01] * 5}),
        "equal groups": (lambda net: _grouped(net, 0.1, 0.1), {"lr/group_0": [0.1] * 5, "lr/group_1": [0.1] * 5}),
        "group with schedule": (
            lambda net: _grouped(net, _Warmup(), 0.01),
            {"lr/group_0": warm, "lr/group_1": [0.01] * 5},
        ),
        "groups with lists": (
            lambda net: _grouped(net, dynamic, dynamic[::-1]),
            {"lr/group_0": dynamic, "lr/group_1": dynamic[::-1]},
        ),
    }
    expected = {}
    for name, (optimizer, rates) in forms.items():
        is_graph = name in ("list", "group with schedule")  # the others without a compiler, which takes its time
        mindspore.set_context(mode=mindspore.GRAPH_MODE if is_graph else mindspore.PYNATIVE_MODE)
        bridge = SummaryBridge(str(directory / name), collect_freq=1, collect_graph=False)
        train(vector_model(optimizer=optimizer), 5, bridge)
        expected[name] = rates
    unrecorded = SummaryBridge(str(directory / "unrecorded"), collect_graph=False, collect_lr=False)
    train(vector_model(optimizer=forms["schedule"][0]), 1, unrecorded)
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    return expected


@scenario
def changed_learning_rate(directory: Path) -> None:
    """A Parameter that the user sets anew during the training."""
    model = vector_model(0.1)
    rate = model._optimizer.learning_rate

    def change(step: int) -> None:
        rate.set_data(Tensor(0.1 / (step + 1), mindspore.float32))

    train(model, 4, SummaryBridge(str(directory), collect_freq=1), AtStep(change))


class _OwnStep(nn.Cell):
    """A training step of the user's own, without an optimizer that MindSpore knows of."""

    def __init__(self, net: nn.Cell) -> None:
        super().__init__()
        self.net = net

    def construct(self, x: Any, y: Any) -> Any:
        return ((self.net(x) - y) ** 2).mean()


@scenario
def no_optimizer(directory: Path) -> None:
    from mindspore.train import Model

    train(Model(_OwnStep(nn.Dense(3, 1))), 3, SummaryBridge(str(directory), collect_freq=1))


def _drive(bridge: SummaryBridge, calls: list[tuple[str, dict[str, Any]]]) -> None:
    """Drives a bridge as MindSpore does."""
    rest = {"loss_fn": None, "mode": "train", "list_callback": [bridge], "train_dataset_element": None}
    with bridge:
        for name, fields in calls:
            getattr(bridge, name)(fake_context(**{**rest, **fields}))


@scenario
def outputs(directory: Path) -> Any:
    """B20: what net_outputs can be, one form at each step. Returns the loss expected of each."""
    cases = _b20_cases()
    net = vector_model().train_network
    base = {"train_network": net, "network": net, "optimizer": None, "batch_num": len(cases), "epoch_num": 1}
    base |= {"cur_epoch_num": 1, "train_dataset": None, "dataset_sink_mode": False}
    bridge = SummaryBridge(str(directory), collect_freq=1, collect_graph=False)
    calls: list[tuple[str, dict[str, Any]]] = [("on_train_begin", base)]
    calls += [
        ("on_train_step_end", {**base, "cur_step_num": number, "net_outputs": value})
        for number, (_, value, _) in enumerate(cases, 1)
    ]
    _drive(bridge, [*calls, ("on_train_epoch_end", base), ("on_train_end", base)])
    return [[name, None if loss is None else str(loss)] for name, _, loss in cases]


def _b20_cases() -> list[tuple[str, Any, float | None]]:
    """The forms of case B20, and what MindFormers' cells return."""
    nan = float("nan")
    make = Tensor
    f32 = mindspore.float32
    return [
        ("float", 0.5, 0.5),
        ("int", 2, 2.0),
        ("np_float32", np.float32(0.5), 0.5),
        ("tensor_0d", make(0.5, f32), 0.5),
        ("tensor_1", make([0.5], f32), 0.5),
        ("tensor_1x1_fp16", make([[0.5]], mindspore.float16), 0.5),
        ("tensor_bf16", make(0.5, mindspore.bfloat16), 0.5),
        ("tensor_mean", make([1.0, 3.0], f32), 2.0),
        ("loss_scale_tuple", (make(0.5), make(False), make(1024.0)), 0.5),
        ("loss_scale_overflow", (make(nan), make(True), make(512.0)), nan),
        ("nan_in_tuple", (make(nan), make(False), make(1024.0)), nan),
        ("list", [make(0.25), make(9.0)], 0.25),
        ("nested", ((make(0.25), make(1.0)), make(2.0)), 0.25),
        ("dict", {"loss": make(0.25), "acc": make(0.9)}, 0.25),
        ("none", None, None),
        ("empty_tuple", (), None),
        ("empty_tensor", make(np.zeros((0,), np.float32)), None),
        ("string", "0.5", None),
        ("mindformers", (make([0.75]), make(False), make(2.0), make(0.125), make([3.5])), 0.75),
        ("mindformers_no_norm", (make([0.75]), make(False), make(2.0), make(0.125), None), 0.75),
    ]


def _loop(callback: Any, hooks: tuple[str, ...], epochs: int = 2, steps: int = 3) -> None:
    """A training without `Model.train`, as articles show it: it calls those of a callback's hooks that are named."""
    model = vector_model()
    network = model.train_network
    parameters = _InternalCallbackParam()
    parameters.update(
        train_network=network, epoch_num=epochs, batch_num=steps, mode="train", cur_step_num=0, optimizer=None,
        list_callback=[callback], network=network, parallel_mode="stand_alone", device_number=1, train_dataset=None,
        loss_fn=None, dataset_sink_mode=False,
    )  # fmt: skip
    context = RunContext(parameters)

    def call(*names: str) -> None:
        for name in names:
            if name in hooks:
                getattr(callback, name)(context)

    call("begin")
    for epoch in range(1, epochs + 1):
        parameters.cur_epoch_num = epoch
        call("epoch_begin")
        for x, y in vectors(steps).create_tuple_iterator():
            parameters.cur_step_num += 1
            call("step_begin")
            parameters.net_outputs = network(x, y)
            time.sleep(0.02)
            call("step_end", "on_train_step_end")
        call("epoch_end")
    call("end")


OLD_HOOKS = ("begin", "epoch_begin", "step_begin", "step_end", "epoch_end", "end")


@scenario
def by_hand(directory: Path) -> Any:
    """Loops that drive callbacks by hand: with the old names of the hooks, or the end of steps alone."""
    loops = {
        "old": OLD_HOOKS,
        "no beginnings": ("begin", "step_end", "epoch_end", "end"),
        "steps": ("on_train_step_end",),
        "old steps": ("step_end",),
    }
    for name, hooks in loops.items():
        bridge = SummaryBridge(str(directory / name), collect_freq=1)
        _loop(bridge, hooks)
        bridge.close()
        monitor = MindSporeTransformersMonitor(
            metrics=["loss"], interval=0, save_dir=str(directory / f"monitor {name}"), run_id="run"
        )
        _loop(monitor, hooks)
        monitor.close()
    return list(loops)


class _Published(SummaryBridge):
    """As published sub-classes of SummaryCollector are: old names, and values through the record."""

    def __init__(self, directory: str, *, takes_steps: bool = True) -> None:
        super().__init__(directory, 1)
        self.seen: list[str] = []
        self.takes_steps = takes_steps

    def begin(self, run_context: Any) -> None:
        self.seen.append(f"begin {run_context.original_args().mode}")
        super().begin(run_context)

    def step_end(self, run_context: Any) -> None:
        parameters = run_context.original_args()
        self.seen.append(f"step {parameters.mode}")
        if parameters.mode == "train":
            self._record.add_value("scalar", "doubled", Tensor(2.0 * parameters.cur_step_num))
        if self.takes_steps:
            super().step_end(run_context)

    def epoch_end(self, run_context: Any) -> None:
        super().epoch_end(run_context)
        if run_context.original_args().mode == "eval":
            return
        epoch = run_context.original_args().cur_epoch_num
        self._record.add_value("scalar", "by epoch", Tensor(epoch / 2))
        self._record.add_value("scalar", "no number", "five")
        self._record.add_value("graph", "graph", None)
        self._record.record(epoch)
        self._record.flush()


@scenario
def published(directory: Path) -> Any:
    model = vector_model(metrics={"mae": MAE()})
    bridge = _Published(str(directory / "model"))
    train(model, 3, bridge, epochs=2)  # `Model.fit` refuses old names itself
    model.eval(vectors(2), callbacks=[bridge], dataset_sink_mode=False)
    by_hand = _Published(str(directory / "by hand"))
    _loop(by_hand, OLD_HOOKS)
    by_hand.close()
    apart = _Published(str(directory / "apart"), takes_steps=False)
    train(vector_model(), 2, apart)

    class Refused(SummaryBridge):
        def _collect_metric(self, parameters: Any) -> None:
            pass

    try:
        Refused(str(directory / "refused"))
        refused = "accepted"
    except ValueError as error:
        refused = str(error)
    return {"model": bridge.seen, "by hand": by_hand.seen, "refused": refused}


@scenario
def copies(directory: Path) -> Any:
    """Copies of a bridge, before and after it has seen a training."""
    bridge = SummaryBridge(str(directory), 1)
    steps = []
    for made in ("deepcopy", "pickle", "deepcopy", "pickle"):
        other = copy.deepcopy(bridge) if made == "deepcopy" else pickle.loads(pickle.dumps(bridge))
        before = len(series(summaries(directory), "loss/auto").steps)
        train(vector_model(), 2, other)
        steps.append(len(series(summaries(directory), "loss/auto").steps) - before)
        if len(steps) == 2:
            train(vector_model(), 2, bridge)
    return {"steps": steps, "writers": len(writers()), "count": SummaryRecord.count}


@scenario
def nan_first(directory: Path) -> None:
    """A loss that is NaN at first."""
    net = vector_model().train_network
    base = {"train_network": net, "network": net, "optimizer": None, "batch_num": 4, "epoch_num": 1}
    base |= {"train_dataset": None, "dataset_sink_mode": False, "cur_epoch_num": 1}
    calls: list[tuple[str, dict[str, Any]]] = [("on_train_begin", base)]
    for step, loss in enumerate([float("nan"), 2.0, 1.0, float("nan")], 1):
        calls.append(("on_train_step_end", {**base, "cur_step_num": step, "net_outputs": loss}))
    _drive(SummaryBridge(str(directory), collect_freq=1), [*calls, ("on_train_epoch_end", base)])


@scenario
def sink(directory: Path) -> None:
    """B23: the calls of data sink mode, with 100 steps in each; 10 seconds lie between them on the bridge's clock."""
    net = vector_model().train_network
    base = {"train_network": net, "network": net, "optimizer": None, "batch_num": 100, "epoch_num": 3}
    base |= {"train_dataset": vectors(1), "dataset_sink_mode": True}
    calls: list[tuple[str, dict[str, Any]]] = [("on_train_begin", base)]
    for epoch in (1, 2, 3):
        fields = {**base, "cur_epoch_num": epoch, "cur_step_num": 100 * epoch, "net_outputs": Tensor(1.0 / epoch)}
        calls += [("on_train_epoch_begin", fields), ("on_train_step_begin", fields)]
        calls += [("on_train_step_end", fields), ("on_train_epoch_end", fields)]
    now = [0.0]

    def monotonic() -> float:
        now[0] += 5.0
        return now[0]

    real = bridge_module.time.monotonic
    bridge_module.time = type("Clock", (), {"monotonic": staticmethod(monotonic)})
    try:
        _drive(SummaryBridge(str(directory)), [*calls, ("on_train_end", fields)])
    finally:
        bridge_module.time = time
    assert time.monotonic is real


@scenario
def sink_freq(directory: Path) -> None:
    """Five steps a call, one point for every twelve steps."""
    net = vector_model().train_network
    base = {"train_network": net, "network": net, "optimizer": None, "batch_num": 5, "epoch_num": 10}
    base |= {"train_dataset": None, "dataset_sink_mode": True}
    calls: list[tuple[str, dict[str, Any]]] = [("on_train_begin", base)]
    for epoch in range(1, 11):
        fields = {**base, "cur_epoch_num": epoch, "cur_step_num": 5 * epoch, "net_outputs": Tensor(1.0)}
        calls += [("on_train_step_end", fields), ("on_train_epoch_end", fields)]
    _drive(SummaryBridge(str(directory), collect_freq=12), calls)


# ------------------------------------------------------------------ life cycle


def reaches(start: object, target: object) -> bool:
    """Whether an object holds another one, through however many others."""
    seen: dict[int, object] = {}
    waiting = [start]
    while waiting:
        each = waiting.pop()
        if each is target:
            return True
        if id(each) not in seen and not isinstance(each, (type, ModuleType, FunctionType)):
            seen[id(each)] = each  # alive, so that no other one gets its number
            waiting.extend(gc.get_referents(each))
    return False


@scenario
def begins_and_ends(directory: Path) -> Any:
    """No process, thread or file before the training; none left behind."""
    threads = threading.active_count()
    bridge = SummaryBridge(str(directory), collect_freq=1)
    before = [len(writers()), threading.active_count() - threads, sorted(os.listdir(directory))]
    model = vector_model()
    during: list[int] = []
    train(model, 3, bridge, AtStep(lambda step: during.append(len(writers()))))
    network, reference = weakref.ref(model._network), weakref.ref(bridge)
    holds = [name for name, value in vars(bridge).items() if reaches(value, model._optimizer)]
    del bridge, model
    gc.collect()
    return {
        "before": before,
        "during": during,
        "after": [len(writers()), threading.active_count() - threads],
        "count": SummaryRecord.count,
        "holds": holds,
        "bridge is gone": reference() is None,
        "network is there": network() is not None,
    }


@scenario
def twice(directory: Path) -> Any:
    """One bridge: trains, trains, evaluates, within a second or two."""
    bridge = SummaryBridge(str(directory), collect_freq=1, custom_lineage_data={"purpose": "twice"})
    model = vector_model(metrics={"mae": MAE()})
    begun = int(time.time())
    for _ in range(2):
        train(model, 2, bridge)
    model.eval(vectors(2), callbacks=[bridge], dataset_sink_mode=False)
    return {"secs": int(time.time()) - begun, "count": SummaryRecord.count}


@scenario
def twice_as_long(directory: Path) -> None:
    """One bridge: a training, an evaluation, and a shorter training that counts from 1 again, with pauses between."""
    bridge = SummaryBridge(str(directory), collect_freq=2)
    model = vector_model(metrics={"mae": MAE()})
    for steps in (5, 3):
        train(model, steps, bridge)
        bridge.add_scalar("mine", steps)
        model.eval(vectors(2), callbacks=[bridge], dataset_sink_mode=False)


@scenario
def resumed(directory: Path) -> None:
    """One bridge: a training, and one whose steps go on behind it by themselves, driven as MindFormers does."""
    bridge = SummaryBridge(str(directory), collect_freq=1, collect_graph=False)
    net = vector_model().train_network
    base = {"train_network": net, "network": net, "optimizer": None, "batch_num": 4, "epoch_num": 1}
    base |= {"cur_epoch_num": 1, "train_dataset": None, "dataset_sink_mode": False}
    for first in (0, 4):
        steps = range(first + 1, first + 5)
        calls = [("on_train_step_end", {**base, "cur_step_num": n, "net_outputs": Tensor(float(n))}) for n in steps]
        _drive(bridge, [("on_train_begin", {**base, "cur_step_num": first}), *calls, ("on_train_end", base)])


@scenario
def two_models(directory: Path) -> None:
    """One bridge, first with one model and then with another."""
    bridge = SummaryBridge(str(directory), collect_freq=1)
    train(vector_model(), 2, bridge)
    train(vector_model(optimizer=lambda net: nn.Adam(net.trainable_params())), 2, bridge)


@scenario
def each_its_own(directory: Path) -> Any:
    """A bridge for the training and another one for the evaluation."""
    model = vector_model(metrics={"mae": MAE()})
    train(model, 2, SummaryBridge(str(directory), collect_freq=1))
    result = model.eval(vectors(2), callbacks=[SummaryBridge(str(directory))], dataset_sink_mode=False)
    return {"mae": float(result["mae"])}


@scenario
def fit(directory: Path) -> Any:
    """Trains with an evaluation after each epoch."""
    seen: list[dict[str, float]] = []

    class Look(Callback):
        def on_eval_end(self, run_context: Any) -> None:
            seen.append({k: float(v) for k, v in run_context.original_args().metrics.items()})

    model = vector_model(metrics={"mae": MAE()})
    bridge = SummaryBridge(str(directory), collect_freq=1)
    model.fit(
        2, vectors(3), vectors(2), callbacks=[bridge, Look()], dataset_sink_mode=False, valid_dataset_sink_mode=False
    )
    return {"metrics": seen, "count": SummaryRecord.count}


@scenario
def several_metrics(directory: Path) -> None:
    """Evaluations with two metrics before the loss in the alphabet: after each epoch, and behind a training."""
    metrics = {"mae": MAE(), "accuracy": MAE()}
    bridge = SummaryBridge(str(directory / "fit"), collect_freq=1)
    options = {"dataset_sink_mode": False, "valid_dataset_sink_mode": False}
    vector_model(metrics=metrics).fit(2, vectors(3), vectors(2), callbacks=[bridge], **options)
    bridge = SummaryBridge(str(directory / "behind"), collect_freq=2)
    model = vector_model(metrics=metrics)
    train(model, 5, bridge)
    model.eval(vectors(2), callbacks=[bridge], dataset_sink_mode=False)
    train(model, 3, bridge)


@scenario
def beside(directory: Path) -> Any:
    """Together with a SummaryCollector, in both orders, and with a second bridge; then alone."""
    answers = []
    steps: list[int] = []
    for order in ("collector first", "bridge first", "two bridges"):
        where = directory / order
        pair: list[Callback] = [SummaryBridge(str(where / "a"), collect_freq=1)]
        if order == "two bridges":
            pair.append(SummaryBridge(str(where / "b"), collect_freq=1))
        else:
            pair.insert(
                0 if order == "collector first" else 1,
                SummaryCollector(str(where / "b"), collect_specified_data={"collect_landscape": None}),
            )
        try:
            train(vector_model(), 2, *pair, AtStep(steps.append))
            answers.append([order, "nothing was raised"])
        except ValueError as error:
            answers.append([order, f"{type(error).__name__}: {error}"])
        answers[-1] += [SummaryRecord.count, len(writers())]
    train(vector_model(), 2, SummaryBridge(str(directory / "alone"), collect_freq=1))
    return {"answers": answers, "steps": steps, "count": SummaryRecord.count}


@scenario
def record_open(directory: Path) -> Any:
    """A SummaryRecord of the user's own is open."""
    with SummaryRecord(str(directory / "own")) as record:
        train(vector_model(), 3, SummaryBridge(str(directory / "run"), collect_freq=1))
        record.add_value("scalar", "x", Tensor(0.5))
        record.record(1)
        count = SummaryRecord.count
    return [count, SummaryRecord.count]


@scenario
def pynative(directory: Path) -> None:
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    try:
        train(image_model(), 3, SummaryBridge(str(directory), collect_freq=1), data=images(3))
    finally:
        mindspore.set_context(mode=mindspore.GRAPH_MODE)


@scenario
def exception(directory: Path) -> Any:
    def fail(step: int) -> None:
        if step == 5:
            raise RuntimeError("this training is over")

    try:
        train(vector_model(), 9, SummaryBridge(str(directory), collect_freq=1), AtStep(fail))
    except RuntimeError as error:
        return {"raised": str(error), "count": SummaryRecord.count, "writers": len(writers())}
    return {}


@scenario
def interrupted(directory: Path) -> Any:
    def fail(step: int) -> None:
        if step == 5:
            raise KeyboardInterrupt

    try:
        train(vector_model(), 9, SummaryBridge(str(directory), collect_freq=1), AtStep(fail))
    except KeyboardInterrupt:
        return {"raised": "KeyboardInterrupt", "count": SummaryRecord.count, "writers": len(writers())}
    return {}


@scenario
def data_workers(directory: Path) -> Any:
    """Processes that MindSpore forks while the bridge is at work: to feed the data."""
    model = image_model()
    bridge = SummaryBridge(str(directory), collect_freq=1)
    data = images(6, num_parallel_workers=2, python_multiprocessing=True)
    train(model, 6, bridge, epochs=2, data=data)
    return {"writers": len(writers())}


@scenario
def forked_child(directory: Path) -> Any:
    """A forked child uses its parent's bridge: nothing is written, nobody waits."""
    bridge = SummaryBridge(str(directory), collect_freq=1)
    codes = []

    def fork(step: int) -> None:
        if step != 2:
            return
        child = os.fork()
        if not child:
            signal.alarm(20)
            bridge.add_scalar("child", 1.0)
            bridge.summary_writer.add_scalar("child", 1.0, 1)
            bridge.flush()
            bridge.close()
            os._exit(0 if not writers() else 3)
        codes.append(os.waitpid(child, 0)[1])

    train(vector_model(), 3, bridge, AtStep(fork))
    return {"codes": codes}


@scenario
def checkpoints(directory: Path) -> None:
    """Milestones."""
    config = CheckpointConfig(save_checkpoint_steps=2, keep_checkpoint_max=2)
    saver = ModelCheckpoint("small", str(directory / "saved"), config)
    train(vector_model(), 4, SummaryBridge(str(directory / "run"), collect_freq=1), LossMonitor(), saver, epochs=2)


@scenario
def landscape(directory: Path) -> Any:
    data = {"collect_landscape": {"unit": "step", "intervals": [[1, 2, 3]], "landscape_size": 4}}
    train(vector_model(), 4, SummaryBridge(str(directory), collect_specified_data=data))
    return sorted(os.listdir(directory / "ckpt_dir"))


# ------------------------------------------------------------------ the user's own values


@scenario
def user_values(directory: Path) -> Any:
    """B12, B16: what users hand to `bridge.add_*`, and what is refused."""
    bridge = SummaryBridge(str(directory), collect_freq=100)
    pixels = np.random.default_rng(0).integers(0, 250, (4, 5, 3), np.uint8)
    np.save(directory / "pixels.npy", pixels)
    refused: list[str] = []

    def add(step: int) -> None:
        bridge.add_scalar("at the training's step", step)
        if step != 2:
            return
        for number in (4096.0, np.int64(7), Tensor(8, mindspore.int32), np.array(9), -5, 0, 2**31, 6_002_049_024):
            bridge.add_scalar("steps", 1.5, number)
        bridge.add_scalar("tensor", Tensor(2.5), 1)
        bridge.add_scalar("parameter", Parameter(Tensor(3.5)), 1)
        bridge.add_scalar("bfloat16", Tensor(0.5, mindspore.bfloat16), 1)
        bridge.add_scalar("nan", float("nan"), 1)
        bridge.add_image("pixels", pixels, 1)
        bridge.add_image("grey", np.linspace(0, 1, 12).reshape(3, 4), 1)
        bridge.add_tensor("a tensor", np.arange(6).reshape(2, 3), 1)
        arrays = [np.full(4, np.nan), np.zeros(0), np.ones(7), np.array([-2.88e28, 9.9e27]), np.array([np.nan, np.inf])]
        for index, array in enumerate([*arrays, np.array([65504], np.float16), Tensor([1.0, 2.0])]):
            bridge.add_histogram(f"h{index}", array, 1)
        for call in (
            lambda: bridge.add_scalar("x", 1.0, 4096.5),
            lambda: bridge.add_scalar("x", 1.0, "7"),
            lambda: bridge.add_scalar("x", 1.0, 2**63),
            lambda: bridge.add_scalar("x", "1.0", 1),
            lambda: bridge.add_scalar(5, 1.0, 1),
            lambda: bridge.add_image("x", np.zeros((2, 5, 4)), 1),
            lambda: bridge.add_histogram("x", np.array(["a"]), 1),
            lambda: bridge.add_tensor("x", np.array([object()]), 1),
        ):
            try:
                call()
            except ValueError as error:
                refused.append(str(error))

    train(vector_model(), 3, bridge, AtStep(add))
    return {"refused": refused}


class _OfEachClass(Metric):
    """A metric that gives one number for each class, as `Recall` does."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def clear(self) -> None:
        pass

    def update(self, *inputs: Any) -> None:
        pass

    def eval(self) -> np.ndarray:
        return np.arange(self.count) / 8


class _ForeignTensor:
    """C11: what a CPU tensor of PyTorch offers."""

    def __init__(self, value: float) -> None:
        self._value = value

    def item(self) -> float:
        return self._value

    def __float__(self) -> float:
        return self._value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self._value, dtype or np.float32)


@scenario
def values_of_others(directory: Path) -> Any:
    """Metrics of one number for each class, and values that another framework made."""
    bridge = SummaryBridge(str(directory), collect_freq=1)
    metrics = {"recall": _OfEachClass(3), "many": _OfEachClass(1000)}
    refused = []

    def add(step: int) -> None:
        bridge.add_scalar("foreign", _ForeignTensor(step / 2), _ForeignTensor(step))
        try:
            bridge.add_scalar("of each class", np.ones(3), step)
        except ValueError as error:
            refused.append(str(error))

    model = vector_model(metrics=metrics)
    model.fit(
        1, vectors(2), vectors(2), callbacks=[bridge, AtStep(add)],
        dataset_sink_mode=False, valid_dataset_sink_mode=False,
    )  # fmt: skip
    return {"refused": refused}


@scenario
def summary_writer(directory: Path) -> Any:
    """Every `add_*` of tensorboardX that works without torch."""
    directory = directory / "inner" / "run"
    bridge = SummaryBridge(str(directory), collect_freq=1)
    failed = {}

    def add(step: int) -> None:
        if step != 2:
            return
        writer = bridge.summary_writer
        rng = np.random.default_rng(0)
        calls: dict[str, Callable[[], Any]] = {
            "scalar": lambda: writer.add_scalar("tx/scalar", 0.5, step),
            "scalar at no time": lambda: writer.add_scalar("tx/when", 0.5, step, walltime=float("nan")),
            "histogram": lambda: writer.add_histogram("tx/histogram", rng.random(50), step),
            "histogram_raw": lambda: writer.add_histogram_raw("tx/raw", 0, 2, 3, 3.0, 5.0, [1, 2], [1, 2], step),
            "image": lambda: writer.add_image("tx/image", rng.random((3, 4, 4)), step),
            "images": lambda: writer.add_images("tx/images", rng.random((2, 3, 4, 4)), step),
            "image_with_boxes": lambda: writer.add_image_with_boxes(
                "tx/boxes", rng.random((3, 8, 8)), np.array([[1, 1, 4, 4]]), step
            ),
            "text": lambda: writer.add_text("tx/text", "words", step),
            "pr_curve": lambda: writer.add_pr_curve("tx/pr", rng.integers(0, 2, 20), rng.random(20), step),
            "pr_curve_raw": lambda: writer.add_pr_curve_raw("tx/pr_raw", *([[1, 2]] * 6), step, 2),
            "mesh": lambda: writer.add_mesh("tx/mesh", rng.random((1, 3, 3)), global_step=step),
            "chart": lambda: writer.add_custom_scalars_multilinechart(["tx/scalar"]),
            "margin chart": lambda: writer.add_custom_scalars_marginchart(["tx/scalar"] * 3),
            "embedding": lambda: writer.add_embedding(rng.random((4, 3)), list("abcd"), global_step=step),
            "custom_scalars": lambda: writer.add_custom_scalars({"a": {"b": ["Multiline", ["tx/scalar"]]}}),
            "scalars": lambda: writer.add_scalars("tx/many", {"a": 1.0, "../../../../b": 2.0}, step),
            "scalars outside": lambda: writer.add_scalars("../../../x", {"/etc/y": 1.0}, step),
            "hparams": lambda: writer.add_hparams({"rate": 0.1}, {"best": 0.9}, name="../../z", global_step=step),
            "flush": writer.flush,
        }
        for name, call in calls.items():
            try:
                call()
            except Exception:
                failed[name] = traceback.format_exc()

    train(vector_model(), 3, bridge, AtStep(add))
    bridge.summary_writer.close()
    return failed


# ------------------------------------------------------------------ faults


def _timed(bridge: SummaryBridge, at: Callable[[int], object], steps: int = 8) -> dict[str, Any]:
    """Trains; returns the steps done, the slowest of them, and how long the end took."""
    seen: list[int] = []
    marks = [time.monotonic()]

    def look(step: int) -> None:
        at(step)
        seen.append(step)
        marks.append(time.monotonic())

    train(vector_model(), steps, bridge, AtStep(look))
    return {"steps": len(seen), "slowest": max(np.diff(marks)[1:]), "end": time.monotonic() - marks[-1]}


@scenario
def writer_killed(directory: Path) -> Any:
    bridge = SummaryBridge(str(directory), collect_freq=1)

    def kill(step: int) -> None:
        if step == 3:
            assert bridge.flush()
            for process in writers():
                process.kill()
                process.wait()

    return _timed(bridge, kill)


@scenario
def writer_killed_always(directory: Path) -> Any:
    def kill(step: int) -> None:
        for process in writers():
            process.kill()
            process.wait()

    return _timed(SummaryBridge(str(directory), collect_freq=1), kill)


@scenario
def writer_stopped(directory: Path) -> Any:
    stopped: list[psutil.Process] = []

    def stop(step: int) -> None:
        if step == 3:
            bridge.link.stall_secs = 1.0
            stopped.extend(writers())
            for process in stopped:
                process.suspend()

    bridge = SummaryBridge(str(directory), collect_freq=1, queue_bytes=8192)
    try:
        return _timed(bridge, stop, 40)
    finally:
        for process in stopped:
            process.resume()
            process.wait(30)


@scenario
def queue_full(directory: Path) -> Any:
    """Room for the scalars of a step, and never for its histograms."""
    bridge = SummaryBridge(str(directory), collect_freq=1, collect_graph=False, queue_bytes=5120)
    net = nn.SequentialCell(nn.Dense(3, 2000), nn.Dense(2000, 1))
    from mindspore.train import Model

    train(Model(net, nn.MSELoss(), nn.Momentum(net.trainable_params(), 0.05, 0.9)), 6, bridge)


@scenario
def removed(directory: Path) -> Any:
    bridge = SummaryBridge(str(directory / "run"), collect_freq=1)

    def remove(step: int) -> None:
        if step == 3:
            assert bridge.flush()
            shutil.rmtree(directory / "run")
        if step == 5:
            bridge.flush()

    return _timed(bridge, remove)


@scenario
def full_disk(directory: Path) -> Any:
    """`DIRECTORY/full_disk` is a small file system, made by the test where it may."""
    if not os.path.ismount(directory):
        return None
    with (directory / "ballast").open("wb", buffering=0) as ballast:
        try:
            while True:
                ballast.write(b"x" * 4096)
        except OSError:
            pass
    return _timed(SummaryBridge(str(directory / "run"), collect_freq=1, flush_secs=0.1), lambda step: None)


@scenario
def file_limit(directory: Path) -> Any:
    """As behind `ulimit -f`: no process may make a file of more than 20 kB."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        bridge = SummaryBridge(str(directory), collect_freq=1)
        return _timed(bridge, lambda step: bridge.flush(), steps=120)  # its queue is a file, too, and so as short
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@scenario
def broken_parts(directory: Path) -> Any:
    """Parts of MindSpore that raise, as the data set's graph does on 2.9 with a newer protobuf."""
    from mindspore.train.callback import _summary_collector

    real = _summary_collector.DatasetGraph.package_dataset_graph

    def fail(*_: Any) -> None:
        raise TypeError("'RepeatedCompositeFieldContainer' object does not support item assignment")

    class Saver(Callback):
        """One that cannot say what it has saved, once the training has begun."""

        has_begun = False

        def on_train_begin(self, run_context: Any) -> None:
            self.has_begun = True

        @property
        def latest_ckpt_file_name(self) -> str:
            if self.has_begun:
                raise ZeroDivisionError("a fault of ours")
            return ""

    _summary_collector.DatasetGraph.package_dataset_graph = fail
    bridge = SummaryBridge(str(directory), collect_freq=1)
    try:
        train(vector_model(), 4, bridge, Saver())
    finally:
        _summary_collector.DatasetGraph.package_dataset_graph = real


@scenario
def odd_values(directory: Path) -> None:
    """Summary operators and parameters that MindSpore's format cannot hold."""
    bridge = SummaryBridge(str(directory), collect_freq=1, collect_graph=False)

    def put(step: int) -> None:
        values = {"histogram": ("texts", np.array(["a", "b"])), "image": ("no image", np.zeros((2, 7)))}
        for plugin, (tag, array) in values.items():
            bridge.link.put_values(step, time.time(), {plugin: [{"tag": tag, "value": array}]})

    train(vector_model(), 4, bridge, AtStep(put))


@scenario
def rotation(directory: Path) -> None:
    bridge = SummaryBridge(str(directory), collect_freq=1, max_file_size=3000, collect_graph=False)
    train(vector_model(), 30, bridge, epochs=2)


@scenario
def fallback(directory: Path) -> Any:
    """A MindSpore whose internals are not known."""
    real = bridge_module.has_seam
    bridge_module.has_seam = lambda: False
    try:
        begun = 0
        for _ in range(2):
            while int(time.time()) == begun:
                time.sleep(0.05)  # MindSpore's own writer takes the same name within a second
            begun = int(time.time())
            train(vector_model(), 3, SummaryBridge(str(directory), collect_freq=1, flush_secs=0.3), epochs=2)
    finally:
        bridge_module.has_seam = real
    return {"count": SummaryRecord.count}


@scenario
def fallback_twice(directory: Path) -> None:
    """One bridge trains twice on a MindSpore whose internals are not known."""
    real = bridge_module.has_seam
    bridge_module.has_seam = lambda: False
    try:
        bridge = SummaryBridge(str(directory), collect_freq=1, flush_secs=0.3)
        for steps in (3, 2):
            train(vector_model(), steps, bridge)
            time.sleep(1)  # MindSpore's own writer takes the same name within a second
    finally:
        bridge_module.has_seam = real


@scenario
def many_processes(directory: Path) -> Any:
    """B19: 16 ranks begin at once on a fresh directory."""
    shutil.rmtree(directory)
    reading, writing = os.pipe()
    children = []
    for rank in range(16):
        child = os.fork()
        if child:
            children.append(child)
            continue
        code = 1
        try:
            os.close(writing)
            os.read(reading, 1)  # until the parent closes it: all at once
            os.environ.update(RANK_ID=str(rank), RANK_SIZE="16")
            bridge = SummaryBridge(str(directory))
            for step in (1, 2, 3):
                bridge.add_scalar("loss", rank + step / 8, step)
            bridge.close()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writing)
    return [os.waitpid(child, 0)[1] for child in children]


if __name__ == "__main__":
    run_all(SCENARIOS)
