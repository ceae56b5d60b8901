"""Converts between MindSpore summary files and TensorBoard event files, and records both while a model trains.

What is named here is loaded when it is asked for: `import ms_summary_bridge` takes no time, and loads neither mindspore
nor tensorboard.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ms_summary_bridge._version import __version__

if TYPE_CHECKING:
    from ms_summary_bridge.callback.bridge import SummaryBridge
    from ms_summary_bridge.callback.gradient_summary import GradientSummary
    from ms_summary_bridge.convert.logdir import convert_logdir
    from ms_summary_bridge.convert.task import ConvertOptions
    from ms_summary_bridge.convert.verify import verify_logdirs
    from ms_summary_bridge.errors import (
        BridgeError,
        ClosedError,
        ConfigError,
        EventDecodeError,
        InvalidValueError,
        LogdirError,
        MissingDependencyError,
        NoEventsError,
        RecordError,
        UnsupportedValueError,
        UsageError,
        ValueConversionError,
    )
    from ms_summary_bridge.events import DataPoint, Event, FileVersion, SessionLog, Summary, TaggedValue, iter_points
    from ms_summary_bridge.files.event_file import EventFileReader
    from ms_summary_bridge.files.record_writer import RecordWriter
    from ms_summary_bridge.monitor.checkpoints.best_checkpoint import SaveBestCheckpoint
    from ms_summary_bridge.runs.inspect import inspect_logdir
    from ms_summary_bridge.runs.logdir import discover
    from ms_summary_bridge.runs.report import Report
    from ms_summary_bridge.values import Histogram, Image, Opaque, Scalar, Tensor

__all__ = [
    "BridgeError",
    "ClosedError",
    "ConfigError",
    "ConvertOptions",
    "DataPoint",
    "Event",
    "EventDecodeError",
    "EventFileReader",
    "FileVersion",
    "GradientSummary",
    "Histogram",
    "Image",
    "InvalidValueError",
    "LogdirError",
    "MissingDependencyError",
    "NoEventsError",
    "Opaque",
    "RecordError",
    "RecordWriter",
    "Report",
    "SaveBestCheckpoint",
    "Scalar",
    "SessionLog",
    "Summary",
    "SummaryBridge",
    "TaggedValue",
    "Tensor",
    "UnsupportedValueError",
    "UsageError",
    "ValueConversionError",
    "__version__",
    "convert_logdir",
    "discover",
    "inspect_logdir",
    "iter_points",
    "verify_logdirs",
]

_HOMES: dict[str, tuple[str, ...]] = {
    "callback.bridge": ("SummaryBridge",),
    "callback.gradient_summary": ("GradientSummary",),
    "convert.logdir": ("convert_logdir",),
    "errors": (
        "BridgeError",
        "ClosedError",
        "ConfigError",
        "EventDecodeError",
        "InvalidValueError",
        "LogdirError",
        "MissingDependencyError",
        "NoEventsError",
        "RecordError",
        "UnsupportedValueError",
        "UsageError",
        "ValueConversionError",
    ),
    "files.event_file": ("EventFileReader",),
    "events": (
        "DataPoint",
        "Event",
        "FileVersion",
        "SessionLog",
        "Summary",
        "TaggedValue",
        "iter_points",
    ),
    "runs.inspect": ("inspect_logdir",),
    "runs.logdir": ("discover",),
    "monitor.checkpoints.best_checkpoint": ("SaveBestCheckpoint",),
    "files.record_writer": ("RecordWriter",),
    "runs.report": ("Report",),
    "convert.task": ("ConvertOptions",),
    "values": (
        "Histogram",
        "Image",
        "Opaque",
        "Scalar",
        "Tensor",
    ),
    "convert.verify": ("verify_logdirs",),
}
"""Which module each name comes from."""

_MODULES = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
