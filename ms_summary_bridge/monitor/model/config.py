"""What a `monitor_config` section says, checked and with every default in place.

`config_file.load_config` makes these from a YAML file or a dict; nothing below it meets an unchecked value.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from ms_summary_bridge.monitor.model.alert_config import ActionConfig, AlertConfig

__all__ = [
    "BACKENDS",
    "DEFAULT_ALERTS",
    "DEFAULT_METRICS",
    "Bounds",
    "CallbackConfig",
    "MetricConfig",
    "MonitorConfig",
    "WatchdogConfig",
]

BACKENDS: Final = ("local", "tensorboard", "mindinsight", "wandb")
"""Where values can go, in the order of the documentation."""

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


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """The values of one metric that nobody should have to look for.

    Attributes:
        above: Warn when the value is above this; None for no such limit.
        below: Warn when the value is below this; None for no such limit.
    """

    above: float | None = None
    below: float | None = None


class MetricConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One metric and the steps in which it is measured.

    Attributes:
        name: A name of `metric_names.METRICS`, never an alias.
        from_step: First step.
        to_step: Last step, itself included; None for no end.
    """

    name: str
    from_step: int = 0
    to_step: int | None = None


class CallbackConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The callback that carries the monitor, and when it warns.

    Attributes:
        type: `MindSporeTransformersMonitor`, the name of a registered class, or `package.module:Class`. Only its form
            is checked here.
        params: What was given as `params`, as it was given: the arguments of a class of the user's.
        log_level: Lowest level of the monitor's lines on the console.
        warn_on_value: Limits by the name of the metric; each of these metrics is in `MonitorConfig.metrics` too.
        warn_after_steps: No warning before this many steps of the session.
        cool_down: Seconds in which one metric does not warn again.
    """

    type: str = "MindSporeTransformersMonitor"
    params: dict[str, Any] = {}
    log_level: str = "INFO"
    warn_on_value: dict[str, Bounds] = {}
    warn_after_steps: int = 0
    cool_down: float = 300.0


class WatchdogConfig(msgspec.Struct, frozen=True, kw_only=True):
    """When a training that shows no sign of life is said to hang, and what is done then. All limits are in seconds.

    Attributes:
        enable: False for no watchdog.
        floor: No step is waited for less than this.
        factor: A step may take this many times the median of those before it.
        compile_limit: For all that comes before the end of the first step: data workers, loading, compiling.
        evaluation_limit: For one evaluation.
        checkpoint_limit: For saving one checkpoint.
        callback_limit: For what other callbacks do, and for what lies between two epochs.
        action: `report` alone, or `kill` as well, so that a launcher can begin again.
        grace: Time between SIGTERM and SIGKILL.
        actions: Commands and webhooks that are told; None for those of `alert_actions`. The console always is.
    """

    enable: bool = True
    floor: float = 300.0
    factor: float = 10.0
    compile_limit: float = 3600.0
    evaluation_limit: float = 3600.0
    checkpoint_limit: float = 1800.0
    callback_limit: float = 1800.0
    action: Literal["report", "kill"] = "report"
    grace: float = 30.0
    actions: tuple[ActionConfig, ...] | None = None


class MonitorConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One `monitor_config` section.

    Attributes:
        enable: False for no monitor at all.
        backends: Names of `BACKENDS`, each once, in the order given; `tensorboard: true` has appended `tensorboard`.
        project: Directory below `save_dir`; keeps the runs of one model together.
        run_id: Directory below the project; None for one that is made at the start.
        interval: Seconds between two samples; 0 for every step; `auto` for 30 on one card, 60 on more, 120 from 64 on.
        save_dir: Directory of everything that is written.
        metrics: What is measured, each name once.
        tags: What this run is about.
        callback: The callback and its warnings.
        per_print_step: A console line also every so many steps; None for the interval alone.
        auto_print: Whether there are console lines at all.
        csv: Whether metrics.csv is written beside the journal.
        max_journal_bytes: Size at which a journal goes on in a new file.
        quiet_loss_monitor: Whether MindSpore's own LossMonitor beside the monitor is silenced.
        save_checkpoint_steps: A checkpoint every so many steps; None for none.
        save_epochs: A checkpoint every so many epochs; None for none.
        keep_checkpoint_max: How many checkpoints are kept.
        save_best_ckpt: Whether the best checkpoint is kept beside them.
        bridge: Arguments of SummaryBridge, by name.
        watchdog: The process beside the training that notices when it hangs.
        global_batch_size: Samples of one step over all cards; None to read it from the training.
        seq_length: Tokens of one sample; None to read it from the model or the batch.
        initial_step: Step from which a resumed training counts.
        micro_batch_num: Micro batches of pipeline parallelism, over which the loss is summed.
        micro_batch_interleave_num: Interleaved micro batches, over which the loss is summed.
        gradient_accumulation_steps: Accumulated batches, over which the loss is summed.
        calculate_per_token_loss: Whether the loss is one per token; interleaved micro batches alone divide it then.
        flops_per_token: Floating point operations of a token, forward and backward, for mfu.
        model_flops: Floating point operations of a step over all cards, for mfu; goes before `flops_per_token`.
        peak_flops: Floating point operations per second that one card can do, for mfu.
        alerts: The rules that raise alarms.
        alert_actions: What is done for an alarm whose rule has no actions of its own.
        exit_code: With which the process ends after an alarm has stopped the training; None to go on as after any
            training.
        stop_patience: Seconds that a rank waits for the others to agree on a stop.
        source: File the section came from, or `dict`.
        raw: The section as given, after `extends` and overrides; stored with the run.
    """

    enable: bool = True
    backends: tuple[str, ...] = ("local", "tensorboard", "mindinsight")
    project: str = "default"
    run_id: str | None = None
    interval: float | Literal["auto"] = "auto"
    save_dir: str = "./monitor_output"
    metrics: tuple[MetricConfig, ...] = tuple(MetricConfig(name=name) for name in DEFAULT_METRICS)
    tags: dict[str, str | int | float | bool] = {}
    callback: CallbackConfig = CallbackConfig()
    per_print_step: int | None = None
    auto_print: bool = True
    csv: bool = False
    max_journal_bytes: int = 256 << 20
    quiet_loss_monitor: bool = False
    save_checkpoint_steps: int | None = None
    save_epochs: int | None = None
    keep_checkpoint_max: int = 5
    save_best_ckpt: bool = False
    bridge: dict[str, Any] = {}
    watchdog: WatchdogConfig = WatchdogConfig()
    global_batch_size: int | None = None
    seq_length: int | None = None
    initial_step: int = 0
    micro_batch_num: int = 1
    micro_batch_interleave_num: int = 1
    gradient_accumulation_steps: int = 1
    calculate_per_token_loss: bool = False
    flops_per_token: float | None = None
    model_flops: float | None = None
    peak_flops: float | None = None
    alerts: tuple[AlertConfig, ...] = tuple(AlertConfig(rule=rule) for rule in DEFAULT_ALERTS)
    alert_actions: tuple[ActionConfig, ...] = (ActionConfig(kind="log"),)
    exit_code: int | None = None
    stop_patience: float = 60.0
    source: str = "dict"
    raw: dict[str, Any] = {}
