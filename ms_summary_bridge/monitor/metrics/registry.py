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

    def say_needs(self) -> str:
        """Returns what it lacks in this training to give a number; empty where nothing more can be said than always."""
        return ""

    def close(self) -> None:
        """Lets go of what it holds, at the end of the training."""


# Which module and class makes each metric of `metric_names.METRICS`, and of what; a test proves that none is missing.
_MADE_BY: Final[dict[str, tuple[str, ...]]] = {
    "loss": ("training", "StepNumber", "loss"),
    "lr": ("training", "LearningRate"),
    "epoch": ("training", "IntervalNumber", "last.epoch"),
    "step": ("training", "IntervalNumber", "last.step"),
    "grad_norm": ("training", "StepNumber", "grad_norm"),
    "local_loss": ("local", "LocalLoss"),
    "local_grad_norm": ("local", "LocalGradientNorm"),
    "local_grad_norms": ("local", "LocalGradientNorms"),
    "sub_losses": ("local", "SubLosses"),
    "loss_scale": ("training", "StepNumber", "loss_scale"),
    "overflow": ("training", "IntervalNumber", "overflows"),
    "step_time": ("training", "Rate", "step_time"),
    "data_time": ("training", "Rate", "data_time"),
    "samples_per_second": ("training", "Rate", "samples_per_second"),
    "tokens_per_second": ("training", "Rate", "tokens_per_second"),
    "mfu": ("training", "ModelFlopsUtilization"),
    "host_memory": ("host", "HostMemory"),
    "global_rank": ("training", "GlobalRank"),
    "update_ratio": ("update_ratio", "UpdateRatio"),
    "memory_usage": ("device", "MemoryUsage"),
    "npu_utilization": ("device", "DeviceFigure", "utilization", "npu-smi"),
    "npu_memory": ("device", "DeviceFigure", "memory_used", "npu-smi"),
    "npu_power": ("device", "DeviceFigure", "power", "npu-smi"),
    "temperature": ("device", "DeviceFigure", "temperature"),
    "gpu_utilization": ("device", "DeviceFigure", "utilization", "nvml"),
    "gpu_memory": ("device", "DeviceFigure", "memory_used", "nvml"),
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
    found = resolve(name)
    if found is None:
        raise UsageError(f"no metric is called {name!r}")
    if found in _REGISTERED:
        return _REGISTERED[found]()
    module, class_name, *arguments = _MADE_BY[found]
    made = getattr(import_module(f"{__package__}.{module}"), class_name)(*arguments)
    assert isinstance(made, Metric)
    return made
