"""The registry of metrics: each is a small class, and users add their own.

The classes are loaded when they are asked for; those that read devices import mindspore when they are used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Final, TypeVar

from ms_summary_bridge.errors import UsageError
from ms_summary_bridge.monitor.model.metric_names import MetricName, Way, add_name, resolve
from ms_summary_bridge.training.facts import StepFacts, TrainingFacts, Window

__all__ = ["Metric", "MetricValue", "make_metric", "register_metric"]

MetricValue = float | Mapping[str, float] | None
"""One number under the metric's own name, several under names of their own (`lr/group_0`), or nothing this time."""


class Metric:
    """One thing that is measured.

    `observe` and `sample` may both stay as they are. A metric with `observe` alone shows its last number; with `sample`
    alone it shows what that returns; with both, `sample` gives the value and `observe` its least and greatest.

    Attributes:
        at_once: Whether `observe` must be called before the next step runs, because it looks at more than the facts.
            Otherwise several steps may be handed over together, somewhat later.
        off_thread: Whether `sample` is called by the thread that writes, where it may take some milliseconds. It must
            then not touch what the training thread changes.
        anywhere: Whether `sample` looks at nothing but the window, so that it does not matter which thread calls it.
    """

    at_once: bool = False
    off_thread: bool = False
    anywhere: bool = False

    def begin(self, training: TrainingFacts) -> None:
        """Is told of the training, before its first step counts."""

    def observe(self, facts: StepFacts) -> float | None:
        """Returns the number of one step. Called for every step, by either thread: it must be cheap."""
        return None

    def sample(self, window: Window) -> MetricValue:
        """Returns the number for the steps since the last sample. Called once for each interval."""
        return None

    def is_waiting(self) -> bool:
        """Whether the first number may still come: somebody was asked and has not answered yet."""
        return False

    def close(self) -> None:
        """Lets go of what it holds, at the end of the training."""


# Where the metrics of `metric_names.METRICS` are; a test proves that none is missing.
_HOMES: Final[dict[str, tuple[str, str]]] = {
    "loss": ("training", "Loss"),
    "lr": ("training", "LearningRate"),
    "epoch": ("training", "Epoch"),
    "step": ("training", "Step"),
    "grad_norm": ("training", "GradNorm"),
    "loss_scale": ("training", "LossScale"),
    "overflow": ("training", "Overflow"),
    "step_time": ("throughput", "StepTime"),
    "data_time": ("throughput", "DataTime"),
    "samples_per_second": ("throughput", "SamplesPerSecond"),
    "tokens_per_second": ("throughput", "TokensPerSecond"),
    "mfu": ("throughput", "ModelFlopsUtilization"),
    "host_memory": ("host", "HostMemory"),
    "global_rank": ("host", "GlobalRank"),
    "update_ratio": ("update_ratio", "UpdateRatio"),
    "memory_usage": ("device", "MemoryUsage"),
    "npu_utilization": ("device", "NpuUtilization"),
    "npu_memory": ("device", "NpuMemory"),
    "npu_power": ("device", "NpuPower"),
    "temperature": ("device", "Temperature"),
    "gpu_utilization": ("device", "GpuUtilization"),
    "gpu_memory": ("device", "GpuMemory"),
}

_REGISTERED: dict[str, type[Metric]] = {}

_MetricClass = TypeVar("_MetricClass", bound=type[Metric])


def register_metric(
    name: str, *, meaning: str = "", bad: Way | None = None, is_costly: bool = False
) -> Callable[[_MetricClass], _MetricClass]:
    """Makes a metric of the user's own known, so that a configuration can name it.

    Args:
        name: What `metrics:` lists, and the name of its value.
        meaning: What it is, with its unit.
        bad: The way in which it should not go; `warn_on_value` then takes a bare number.
        is_costly: Whether it takes noticeable time of a step.

    Raises:
        UsageError: The name is taken, or the class is not derived from Metric.

    Example:
        `@register_metric("queue_length", bad="above")` above a class derived from Metric.
    """

    def register(metric: _MetricClass) -> _MetricClass:
        given: object = metric
        if not (isinstance(given, type) and issubclass(given, Metric)):
            raise UsageError(f"{given!r} is not a class derived from Metric")
        add_name(name, MetricName(meaning or name, bad, is_costly))
        _REGISTERED[name] = metric
        return metric

    return register


def make_metric(name: str) -> Metric:
    """Returns a new metric.

    Raises:
        UsageError: No metric has that name.
    """
    known = resolve(name)
    if known is None:
        raise UsageError(f"no metric is called {name!r}")
    if known in _REGISTERED:
        return _REGISTERED[known]()
    module, class_name = _HOMES[known]
    made = getattr(import_module(f"{__package__}.{module}"), class_name)()
    assert isinstance(made, Metric)
    return made
