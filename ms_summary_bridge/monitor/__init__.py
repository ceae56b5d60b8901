"""Records a whole training from one section of a file: values, console lines, a journal and warnings.

What is named here is loaded when it is asked for: `import ms_summary_bridge.monitor` loads no mindspore. Where that is
not installed, `__all__` and `dir()` leave out the callback; asking for it raises MissingDependencyError. So it is
outside Linux with all that records a training.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ms_summary_bridge.errors import can_record as _can_record
from ms_summary_bridge.errors import has_mindspore as _has_mindspore
from ms_summary_bridge.errors import load_name as _load_name

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


_NEEDS_MINDSPORE = "MindSporeTransformersMonitor"
_RECORDING = frozenset(_HOMES) - {"MonitorConfig", "load_config"}

_ALL = __all__
if not TYPE_CHECKING:
    del __all__  # made by __getattr__, since to look for MindSpore at every import would take time


def __getattr__(name: str) -> Any:
    """Loads what a name stands for; `__all__` is the list of those that can be had here.

    Raises:
        MissingDependencyError: MindSpore is not installed, and the name needs it; or it needs Linux.
        AttributeError: There is no such name.
    """
    if name == "__all__":
        return __dir__()
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    needs_mindspore = name == _NEEDS_MINDSPORE
    return _load_name(f"{__name__}.{_HOMES[name]}", name, needs_mindspore=needs_mindspore, records=name in _RECORDING)


def __dir__() -> list[str]:
    missing = _RECORDING if not _can_record() else () if _has_mindspore() else (_NEEDS_MINDSPORE,)
    return [name for name in _ALL if name not in missing]
