"""What rules look at beside the steps themselves: which figures of device and host, and how much memory there is."""

from __future__ import annotations

import contextlib
from typing import Final

import psutil

from ms_summary_bridge.monitor.alarms.rules.rule import make_rule
from ms_summary_bridge.monitor.model.config import MetricConfig, MonitorConfig
from ms_summary_bridge.training.facts import TrainingFacts

__all__ = ["find_twin", "is_of_device", "memory_limits", "metrics_of_rules"]

_CGROUP_LIMITS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def metrics_of_rules(config: MonitorConfig, training: TrainingFacts) -> tuple[MetricConfig, ...]:
    """Returns what rules look at on the training's device, and is not among the metrics: memory, heat, use.

    On a CPU there is only what rules with parameters of the user's name.
    """
    kind = training.device.upper()
    other = "npu_" if kind.startswith("GPU") else "gpu_"
    names = {metric.name for metric in config.metrics}
    wanted: dict[str, None] = {}
    for alert in config.alerts:
        with contextlib.suppress(Exception):  # said by `Alarms`
            rule = make_rule(alert.rule, alert.params)
            if not kind.startswith("CPU"):
                looks = [name for name in rule.metrics if is_of_device(name) or name == "host_memory"]
            else:
                looks = list(rule.watched) if alert.params else []
            wanted.update(dict.fromkeys(looks))
    return tuple(MetricConfig(name=name) for name in wanted if name not in names and not name.startswith(other))


def find_twin(name: str) -> str | None:
    """Returns what a figure of an NPU is called on a GPU; None for others."""
    return name.replace("npu_", "gpu_") if name.startswith("npu_") else None


def is_of_device(name: str) -> bool:
    """Whether a metric is a figure of the device."""
    return name.startswith(("npu_", "gpu_")) or name in ("temperature", "memory_usage")


def memory_limits(training: TrainingFacts) -> dict[str, float]:
    """Returns how much memory the host lets this process have, MiB by metric."""
    limit = float(psutil.virtual_memory().total)
    for path in _CGROUP_LIMITS:
        with contextlib.suppress(OSError, ValueError), open(path, encoding="ascii") as file:
            limit = min(limit, float(file.read()))
            break
    mib = limit / (1 << 20)
    return {"host_memory": mib, **({"memory_usage": mib} if training.device.startswith("CPU") else {})}
