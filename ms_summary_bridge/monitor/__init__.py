"""Records a whole training from one section of a file: values, console lines, a journal and warnings.

What is named here is loaded when it is asked for: `import ms_summary_bridge.monitor` loads no mindspore.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ms_summary_bridge.monitor.build import build_monitor_callbacks, register_callback
    from ms_summary_bridge.monitor.callback import MindSporeTransformersMonitor
    from ms_summary_bridge.monitor.config.file import load_config
    from ms_summary_bridge.monitor.loop import Monitor
    from ms_summary_bridge.monitor.metrics import Metric, register_metric
    from ms_summary_bridge.monitor.model.config import MonitorConfig

__all__ = [
    "Metric",
    "MindSporeTransformersMonitor",
    "Monitor",
    "MonitorConfig",
    "build_monitor_callbacks",
    "load_config",
    "register_callback",
    "register_metric",
]

_HOMES = {
    "Metric": "metrics",
    "MindSporeTransformersMonitor": "callback",
    "Monitor": "loop",
    "MonitorConfig": "model.config",
    "build_monitor_callbacks": "build",
    "load_config": "config.file",
    "register_callback": "build",
    "register_metric": "metrics",
}
"""Which module each name comes from."""


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
