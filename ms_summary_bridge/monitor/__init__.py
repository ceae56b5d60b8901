"""Records a whole training from one section of a file: values, console lines, a journal and warnings.

What is named here is loaded when it is asked for: `import ms_summary_bridge.monitor` loads no mindspore. Where that is
not installed, `__all__` and `dir()` leave out the callback; asking for it raises MissingDependencyError. So it is
outside Linux with all that records a training.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_summary_bridge.errors import lazy_names as _lazy_names

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
    "build": "build_monitor_callbacks register_callback",
    "callback": "MindSporeTransformersMonitor",
    "config.file": "load_config",
    "loop": "Monitor",
    "metrics": "Metric register_metric",
    "model.config": "MonitorConfig",
}
_RECORDING = [name for name in __all__ if name not in ("MonitorConfig", "load_config")]

if not TYPE_CHECKING:
    __getattr__, __dir__ = _lazy_names(
        __name__, __all__, _HOMES, needs_mindspore=("MindSporeTransformersMonitor",), records=_RECORDING
    )
    del __all__  # made by __getattr__, since to look for MindSpore at every import would take time
