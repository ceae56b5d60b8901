"""Every key of a `monitor_config` section: its kind and its meaning, the one source of check, schema and template."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from ms_summary_bridge.monitor.config.action_kinds import Actions
from ms_summary_bridge.monitor.config.alert_kinds import Alerts
from ms_summary_bridge.monitor.config.kinds import Choice, Flag, Name, Number, OneOrMore, Pattern, Text, Whole
from ms_summary_bridge.monitor.config.metric_kinds import Limits, MetricEntry
from ms_summary_bridge.monitor.config.problems import INVALID, Kind, Problems, check_mapping, nearest, show
from ms_summary_bridge.monitor.config.watchdog_keys import WatchdogKind
from ms_summary_bridge.monitor.config.yaml_text import join_path
from ms_summary_bridge.monitor.model.config import BACKENDS

__all__ = ["BRIDGE_ARGUMENTS", "CALLBACK_TYPE", "PARAMS", "SECTION", "WITHIN_BOTH", "Key"]

BRIDGE_ARGUMENTS: Final = (
    "summary_dir",
    "tensorboard_dir",
    "collect_freq",
    "num_process",
    "collect_specified_data",
    "keep_default_action",
    "custom_lineage_data",
    "collect_tensor_freq",
    "max_file_size",
    "export_options",
    "collect_graph",
    "collect_trainable_params",
    "collect_loss",
    "collect_lr",
    "collect_landmark",
    "flush_secs",
    "queue_bytes",
)
"""The arguments of SummaryBridge, written out because importing it takes MindSpore; a test compares them."""

_LOG_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_SHORTEST_JOURNAL: Final = 64 << 10  # bytes; in a shorter one there is no room for a header and some samples


class _Tags:
    """What a run is about: a text, a number or a boolean under each name."""

    def check(self, value: Any, path: str, problems: Problems) -> Any:
        """See `Kind`."""
        given = check_mapping(value, path, problems, "{dataset: v3}")
        if given is None:
            return INVALID
        is_valid = True
        for name, item in given.items():
            inner = join_path(path, name)
            if isinstance(item, list | dict):
                problems.add(inner, f"must be a text, a number or a boolean, got {show(item)}")
                is_valid = False
            elif isinstance(item, float) and Number(is_finite=True).check(item, inner, problems) is INVALID:
                is_valid = False
        return {name: item for name, item in given.items() if item is not None} if is_valid else INVALID

    def schema(self) -> dict[str, Any]:
        """See `Kind`."""
        return {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean", "null"]}}


class _Bridge:
    """Arguments of SummaryBridge, which checks the values itself."""

    def check(self, value: Any, path: str, problems: Problems) -> Any:
        """See `Kind`."""
        given = check_mapping(value, path, problems, "{collect_freq: 10}")
        unknown = [] if given is None else sorted(given.keys() - set(BRIDGE_ARGUMENTS))
        for key in unknown:
            hint = nearest(key, BRIDGE_ARGUMENTS)
            problems.add(join_path(path, key), f"SummaryBridge has no argument {key!r}{hint}")
        return INVALID if given is None or unknown else given

    def schema(self) -> dict[str, Any]:
        """See `Kind`."""
        return {"type": "object", "properties": {name: {} for name in BRIDGE_ARGUMENTS}, "additionalProperties": False}


class Key(NamedTuple):
    """One key.

    Attributes:
        kind: What values it takes.
        meaning: What it does, in one line.
    """

    kind: Kind
    meaning: str


_COUNT: Final = Whole(1)
_FLOPS: Final = Number(above=0)

CALLBACK_TYPE: Final = Key(
    Pattern(
        r"[A-Za-z_]\w*|[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*",
        "the name of a registered class, or package.module:Class",
    ),
    "MindSporeTransformersMonitor, or a class of your own: a registered name, or package.module:Class",
)

WITHIN_BOTH: Final[dict[str, Key]] = {
    "per_print_step": Key(_COUNT, "a console line also every so many steps"),
    "auto_print": Key(Flag(), "whether there are console lines at all"),
    "save_checkpoint_steps": Key(_COUNT, "a checkpoint every so many steps"),
    "keep_checkpoint_max": Key(_COUNT, "how many checkpoints are kept"),
    "save_best_ckpt": Key(Flag(), "whether the best checkpoint is kept beside them"),
}
"""Keys that may stand in the section and in `callback: params`, since people write them in either place."""

PARAMS: Final[dict[str, Key]] = {
    "log_level": Key(Choice(_LOG_LEVELS), "lowest level of the lines on the console"),
    "warn_on_value": Key(Limits(), "limits by metric; each warns in its own bad way, or as {above: x} or {below: x}"),
    "warn_after_steps": Key(Whole(0), "no warning before this many steps"),
    "cool_down": Key(Number(least=0), "seconds in which one metric does not warn again"),
}
"""Keys of `callback: params`; the section takes them too, for a MindFormers entry, which has no `callback`."""

SECTION: Final[dict[str, Key]] = {
    "enable": Key(Flag(), "false for no monitor at all"),
    "backend": Key(OneOrMore(Choice(BACKENDS)), "where values go: local, tensorboard, mindinsight, wandb, or a list"),
    "tensorboard": Key(Flag(), "true adds tensorboard to whatever backend names"),
    "project": Key(Name(), "directory below save_dir that keeps the runs of one model together"),
    "run_id": Key(Name(), "directory of this run below the project; made at the start if not given"),
    "interval": Key(
        Choice(("auto",), Number(least=0)),
        "seconds between two samples; 0 for every step; auto: 30 on one card, 60 on more, 120 from 64 on",
    ),
    "save_dir": Key(Text(), "directory of everything that is written"),
    "metrics": Key(
        OneOrMore(MetricEntry(), key=lambda metric: metric.name, takes_one=False),
        "what is measured; {name: grad_norm, from_step: 100, to_step: 200} for some steps only",
    ),
    "tags": Key(_Tags(), "what this run is about"),
    "csv": Key(Flag(), "whether metrics.csv is written beside the journal"),
    "max_journal_bytes": Key(Whole(_SHORTEST_JOURNAL), "size at which a journal goes on in a new file"),
    "quiet_loss_monitor": Key(Flag(), "whether MindSpore's LossMonitor beside the monitor is silenced"),
    "save_epochs": Key(_COUNT, "a checkpoint every so many epochs"),
    "bridge": Key(_Bridge(), "arguments of SummaryBridge"),
    "watchdog": Key(WatchdogKind(), "notices a training that hangs; false for none, {floor: 600} to be more patient"),
    "global_batch_size": Key(_COUNT, "samples of one step over all cards"),
    "seq_length": Key(_COUNT, "tokens of one sample"),
    "initial_step": Key(Whole(0), "step from which a resumed training counts"),
    "micro_batch_num": Key(_COUNT, "micro batches of pipeline parallelism, over which the loss is summed"),
    "micro_batch_interleave_num": Key(_COUNT, "interleaved micro batches, over which the loss is summed"),
    "gradient_accumulation_steps": Key(_COUNT, "accumulated batches, over which the loss is summed"),
    "calculate_per_token_loss": Key(Flag(), "whether the loss is one per token; only interleaving divides it then"),
    "flops_per_token": Key(_FLOPS, "floating point operations of a token, forward and backward, for mfu"),
    "model_flops": Key(_FLOPS, "floating point operations of a step over all cards, for mfu"),
    "peak_flops": Key(_FLOPS, "floating point operations per second of one card, for mfu"),
    "alerts": Key(Alerts(), "rules that raise alarms, added to those that are on by default; false for none"),
    "alert_actions": Key(Actions(), "what an alarm does whose rule has no actions of its own"),
    "exit_code": Key(Whole(0, most=255), "with which the process ends when an alarm has stopped the training"),
    "stop_patience": Key(Number(above=0), "seconds that a rank waits for the others to agree on a stop"),
    **WITHIN_BOTH,
}
"""Keys of the section, but `callback` and `extends`."""
