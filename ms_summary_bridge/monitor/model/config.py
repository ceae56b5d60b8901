"""What a `monitor_config` section says, checked and with every default in place.

The fields are the one description of the keys: see `keys.key`. `config.file.load_config` makes these structs from a
YAML file or a dict; nothing below it meets an unchecked value.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from ms_summary_bridge.monitor.model.alert_config import ActionConfig, AlertConfig
from ms_summary_bridge.monitor.model.keys import (
    AboveZero,
    BridgeArgument,
    CallbackType,
    Count,
    DirectoryName,
    MetricKey,
    NotNegative,
    ZeroOrMore,
    key,
)

__all__ = [
    "DEFAULT_ALERTS",
    "DEFAULT_METRICS",
    "Backend",
    "Bounds",
    "CallbackConfig",
    "HangAction",
    "LogLevel",
    "MetricConfig",
    "MonitorConfig",
    "Tracker",
    "WatchdogConfig",
    "WrittenKeys",
]

Tracker = Literal["wandb", "swanlab", "mlflow", "trackio"]
"""Programs that record experiments, by the package that each one's client comes in."""
Backend = Literal["local", "tensorboard", "mindinsight", "prometheus", Tracker]
"""Where values can go, in the order of the documentation."""
LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]
HangAction = Literal["report", "kill"]

DEFAULT_METRICS: Final = ("loss", "lr", "step_time", "samples_per_second", "memory_usage")

DEFAULT_ALERTS: Final = (
    "nonfinite",
    "overflow_streak",
    "spike",
    "gradient_explosion",
    "gradient_vanishing",
    "divergence",
    "throughput_drop",
    "memory_trend",
    "overload",
)
"""The rules that are on where nobody says otherwise: each is silent in a training that is well. `threshold` has no
bound of its own, and how long a loss may stand still (`not_improving`) is known only to who trains."""

_Limit = Annotated[float, Meta(extra={"infinite": True})]  # .inf is a limit that is never passed


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """The values of one metric that nobody should have to look for. None for no such limit.

    Raises:
        ValueError: No value is between the two.
    """

    above: Annotated[_Limit | None, key("warn when the value is above this")] = None
    below: Annotated[_Limit | None, key("warn when the value is below this")] = None

    def __post_init__(self) -> None:
        if self.above is not None and self.below is not None and self.above < self.below:
            raise ValueError(
                f"every value is above {self.above:g} or below {self.below:g}: the two are the wrong way round"
            )


class MetricConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One metric and the steps in which it is measured; the name is one of `metric_names.METRICS`, never an alias.

    Raises:
        ValueError: It would never be measured.
    """

    name: Annotated[MetricKey, key("the metric")]
    from_step: Annotated[ZeroOrMore, key("first step")] = 0
    to_step: Annotated[ZeroOrMore | None, key("last step, itself included; no end if not given")] = None

    def __post_init__(self) -> None:
        if self.to_step is not None and self.to_step < self.from_step:
            raise ValueError(f"to_step {self.to_step} is before from_step {self.from_step}: it would never be measured")


class CallbackConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The callback that carries the monitor, and when it warns. Each metric with a limit is in `MonitorConfig.metrics`.

    `params` is what was given under that key: the arguments of a class of the user's.
    """

    type: Annotated[
        CallbackType,
        key("MindSporeTransformersMonitor, or a class of your own: a registered name, or package.module:Class"),
    ] = "MindSporeTransformersMonitor"
    params: dict[str, Any] = {}
    log_level: Annotated[LogLevel, key("lowest level of the lines on the console")] = "INFO"
    warn_on_value: Annotated[
        dict[MetricKey, Bounds],
        key(
            "limits by metric; a number warns in the metric's bad way, {above: x} or {below: x} as it says",
            {"loss": 50.0},
            form="limits",
        ),
    ] = {}
    warn_after_steps: Annotated[ZeroOrMore, key("steps of the session in which nothing warns", 100)] = 0
    cool_down: Annotated[NotNegative, key("seconds in which one metric does not warn again")] = 300.0


class WatchdogConfig(msgspec.Struct, frozen=True, kw_only=True):
    """When a training that shows no sign of life is said to hang, and what is done then. All limits are in seconds."""

    enable: Annotated[bool, key("false for no watchdog")] = True
    floor: Annotated[AboveZero, key("seconds that any step may take")] = 300.0
    factor: Annotated[
        Annotated[float, Meta(ge=1)], key("a step may take this many times the median of those before it")
    ] = 10.0
    compile_limit: Annotated[
        AboveZero, key("seconds until the end of the first step: data workers, loading, compiling")
    ] = 3600.0
    evaluation_limit: Annotated[AboveZero, key("seconds of one evaluation")] = 3600.0
    checkpoint_limit: Annotated[AboveZero, key("seconds for saving one checkpoint")] = 1800.0
    callback_limit: Annotated[AboveZero, key("seconds in other callbacks, and between two epochs")] = 1800.0
    action: Annotated[HangAction, key("report alone, or kill as well, so that a launcher can begin again")] = "report"
    grace: Annotated[NotNegative, key("seconds between SIGTERM and SIGKILL")] = 30.0
    actions: Annotated[
        tuple[ActionConfig, ...] | None,
        key("commands and webhooks that are told; those of alert_actions if not given", one=True),
    ] = None


class WrittenKeys(msgspec.Struct, frozen=True, kw_only=True):
    """Keys that a section may hold and that `load_config` works into the fields of `MonitorConfig`."""

    tensorboard: Annotated[bool | None, key("true adds tensorboard to backend, false takes it out", True)] = None
    extends: Annotated[str | None, key("a file whose section this one changes")] = None


class MonitorConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One `monitor_config` section.

    `source` is the file it came from, or `dict`; `raw` is the section as given, after `extends` and overrides, and is
    stored with the run.
    """

    enable: Annotated[bool, key("false for no monitor at all")] = True
    backends: Annotated[
        tuple[Backend, ...],
        key(
            "where values go: local, tensorboard, mindinsight, prometheus, wandb, swanlab, mlflow, trackio, or a list "
            "of these",
            one=True,
        ),
    ] = msgspec.field(name="backend", default=("local", "tensorboard", "mindinsight"))
    project: Annotated[
        DirectoryName, key("directory below save_dir that keeps the runs of one model together", "my-model")
    ] = "default"
    run_id: Annotated[
        DirectoryName | None, key("directory of this run below the project; the time of the start if not given", "one")
    ] = None
    interval: Annotated[
        Annotated[float, Meta(ge=0)] | Literal["auto"],
        key("seconds between two samples; 0 for every step; auto: 30 on one card, 60 on more, 120 from 64 on"),
    ] = "auto"
    save_dir: Annotated[str, key("directory of everything that is written")] = "./monitor_output"
    metrics: Annotated[
        tuple[MetricConfig, ...],
        key("what is measured; {name: grad_norm, from_step: 100, to_step: 200} for some steps only"),
    ] = tuple(MetricConfig(name=name) for name in DEFAULT_METRICS)
    aggregate: Annotated[
        tuple[MetricKey, ...],
        key(
            "mean, least, greatest and slowest rank over all ranks, by a collective beside those of the training: "
            "true for loss, step_time, samples_per_second and memory_usage, or a list",
            True,
            form="aggregate",
        ),
    ] = ()
    aggregate_steps: Annotated[Count, key("steps between two of these collectives, the same on all ranks")] = 100
    tags: Annotated[
        dict[str, Annotated[str | int | float | bool, Meta(extra={"form": "tag"})]],
        key("what this run is about", {"dataset": "v3"}),
    ] = {}
    callback: Annotated[
        CallbackConfig, key("the callback that carries the monitor, and when it warns", {"params": {"cool_down": 60}})
    ] = CallbackConfig()
    per_print_step: Annotated[Count | None, key("a console line also every so many steps", 100, in_params=True)] = None
    auto_print: Annotated[bool, key("false for no console lines", in_params=True)] = True
    csv: Annotated[bool, key("true writes metrics.csv beside the journal", True)] = False
    prometheus_dir: Annotated[
        str | None,
        key(
            "directory of node_exporter's textfile collector, for the backend prometheus; prometheus below save_dir if "
            "not given",
            "/var/lib/node_exporter",
        ),
    ] = None
    max_journal_bytes: Annotated[
        # In a shorter one there is no room for a header and some samples.
        Annotated[int, Meta(ge=64 << 10)], key("size at which a journal goes on in a new file")
    ] = 256 << 20
    quiet_loss_monitor: Annotated[bool, key("true silences MindSpore's LossMonitor beside the monitor", True)] = False
    save_checkpoint_steps: Annotated[Count | None, key("a checkpoint every so many steps", 1000, in_params=True)] = None
    save_epochs: Annotated[Count | None, key("a checkpoint every so many epochs", 1)] = None
    keep_checkpoint_max: Annotated[Count, key("how many checkpoints are kept", in_params=True)] = 5
    save_best_ckpt: Annotated[bool, key("true keeps the best checkpoint beside them", True, in_params=True)] = False
    bridge: Annotated[dict[BridgeArgument, Any], key("arguments of SummaryBridge", {"collect_freq": 10})] = {}
    watchdog: Annotated[
        WatchdogConfig,
        key("notices a training that hangs; false for none, {floor: 600} to be more patient", {"floor": 600}),
    ] = WatchdogConfig()
    global_batch_size: Annotated[
        Count | None, key("samples of one step over all cards; read from the training if not given", 64)
    ] = None
    seq_length: Annotated[
        Count | None, key("tokens of one sample; read from the model or the batch if not given", 4096)
    ] = None
    initial_step: Annotated[ZeroOrMore, key("step from which a resumed training counts")] = 0
    micro_batch_num: Annotated[Count, key("micro batches of pipeline parallelism, over which the loss is summed")] = 1
    micro_batch_interleave_num: Annotated[Count, key("interleaved micro batches, over which the loss is summed")] = 1
    gradient_accumulation_steps: Annotated[Count, key("accumulated batches, over which the loss is summed")] = 1
    calculate_per_token_loss: Annotated[
        bool, key("true for a loss per token, which only interleaved micro batches divide")
    ] = False
    flops_per_token: Annotated[
        AboveZero | None, key("floating point operations of a token, forward and backward, for mfu", 6e9)
    ] = None
    model_flops: Annotated[
        AboveZero | None,
        key("floating point operations of a step over all cards, for mfu; goes before flops_per_token", 1e15),
    ] = None
    peak_flops: Annotated[AboveZero | None, key("floating point operations per second of one card, for mfu", 3e14)] = (
        None
    )
    alerts: Annotated[
        tuple[AlertConfig, ...],
        key(
            "rules that raise alarms, added to those that are on by default; false for none",
            [{"rule": "nonfinite", "patience": 3, "actions": ["log", "stop"]}],
            form="alerts",
        ),
    ] = tuple(AlertConfig(rule=rule, is_default=True) for rule in DEFAULT_ALERTS)
    alert_actions: Annotated[
        tuple[ActionConfig, ...],
        key("what an alarm does whose rule has no actions of its own", ["log", {"webhook": "${ALARM_URL}"}], one=True),
    ] = (ActionConfig(kind="log"),)
    exit_code: Annotated[
        Annotated[int, Meta(ge=0, le=255)] | None,
        key("with which the process ends when an alarm has stopped the training; that of any end if not given", 3),
    ] = None
    stop_patience: Annotated[AboveZero, key("seconds that a rank waits for the others to agree on a stop")] = 60.0
    source: str = "dict"
    raw: dict[str, Any] = {}
