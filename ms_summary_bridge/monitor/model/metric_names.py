"""The names of all metrics, which way is bad for each, and which cost time.

A configuration is checked against these names without loading what measures them. `register_metric` adds a user's own
through `add_name`.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from ms_summary_bridge.errors import UsageError

__all__ = ["ALIASES", "METRICS", "MetricName", "Way", "add_name", "resolve"]

Way = Literal["above", "below"]


class MetricName(msgspec.Struct, frozen=True):
    """What a configuration has to know of a metric.

    Attributes:
        meaning: What it is, with its unit.
        bad: The way in which it should not go; None where only the user can know.
        is_costly: Whether it takes noticeable time of a step, so that `from_step` and `to_step` are worth while.
    """

    meaning: str
    bad: Way | None = None
    is_costly: bool = False


METRICS: Final[dict[str, MetricName]] = {
    "loss": MetricName("loss of the step", "above"),
    "lr": MetricName("learning rate"),
    "epoch": MetricName("epoch, from 1"),
    "step": MetricName("step over all epochs"),
    "step_time": MetricName("seconds of a step", "above"),
    "data_time": MetricName("seconds of a step that waited for data", "above"),
    "samples_per_second": MetricName("samples per second over all cards", "below"),
    "tokens_per_second": MetricName("tokens per second over all cards", "below"),
    "mfu": MetricName("part of the peak floating point operations that the model uses, 0 to 1", "below"),
    "grad_norm": MetricName("norm of all gradients", "above"),
    "loss_scale": MetricName("loss scale of mixed precision", "below"),
    "overflow": MetricName("steps that overflowed, since the last sample", "above"),
    "memory_usage": MetricName("device memory in use, MiB", "above"),
    "host_memory": MetricName("memory of the process on the host, MiB", "above"),
    "npu_utilization": MetricName("how busy the NPU is, per cent", "below"),
    "npu_memory": MetricName("NPU memory in use, MiB", "above"),
    "npu_power": MetricName("power of the NPU, watt", "above"),
    "temperature": MetricName("temperature of the device, degrees Celsius", "above"),
    "gpu_utilization": MetricName("how busy the GPU is, per cent", "below"),
    "gpu_memory": MetricName("GPU memory in use, MiB", "above"),
    "global_rank": MetricName("rank of this process among all"),
    "update_ratio": MetricName("norm of the update by norm of the weights", is_costly=True),
}

ALIASES: Final = {"learning_rate": "lr", "npu_temperature": "temperature"}


def resolve(name: str) -> str | None:
    """Returns the name in `METRICS` for a name or an alias; None if there is none."""
    name = ALIASES.get(name, name)
    return name if name in METRICS else None


def add_name(name: str, known: MetricName) -> None:
    """Makes a user's metric known to the check.

    Raises:
        UsageError: The name is taken.
    """
    if resolve(name) is not None:
        raise UsageError(f"a metric {name!r} exists already")
    METRICS[name] = known
