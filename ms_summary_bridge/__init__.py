"""Converts between MindSpore summary files and TensorBoard event files, and records both while a model trains.

What is named here is loaded when it is asked for: `import ms_summary_bridge` takes no time, and loads neither mindspore
nor tensorboard.

Where MindSpore is not installed, `__all__` and `dir()` leave out the callbacks that are built on its classes:
SummaryBridge, GradientSummary and SaveBestCheckpoint. Asking for one of them there raises MissingDependencyError. So it
is outside Linux with all that records a training: these, Monitor and build_monitor_callbacks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ms_summary_bridge._version import __version__

if TYPE_CHECKING:
    from ms_summary_bridge.aggregate.aggregate import aggregate_ranks
    from ms_summary_bridge.callback.bridge import SummaryBridge
    from ms_summary_bridge.callback.gradient_summary import GradientSummary
    from ms_summary_bridge.columns.inspect import inspect_logdir
    from ms_summary_bridge.columns.read import read_histograms, read_images, read_scalars, read_texts
    from ms_summary_bridge.convert.follow import follow_logdir
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
    from ms_summary_bridge.export.logdir import export_logdir
    from ms_summary_bridge.files.event_file import EventFileReader
    from ms_summary_bridge.files.record_writer import RecordWriter
    from ms_summary_bridge.monitor.build import build_monitor_callbacks
    from ms_summary_bridge.monitor.checkpoints.best_checkpoint import SaveBestCheckpoint
    from ms_summary_bridge.monitor.loop import Monitor
    from ms_summary_bridge.runs.logdir import discover
    from ms_summary_bridge.runs.report import Report
    from ms_summary_bridge.values import Histogram, Image, Opaque, Scalar, Tensor
    from ms_summary_bridge.viewers.view import view_logdir as view

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
    "Monitor",
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
    "aggregate_ranks",
    "build_monitor_callbacks",
    "convert_logdir",
    "discover",
    "export_logdir",
    "follow_logdir",
    "inspect_logdir",
    "iter_points",
    "read_histograms",
    "read_images",
    "read_scalars",
    "read_texts",
    "verify_logdirs",
    "view",
]

_HOMES = {
    "callback.bridge": "SummaryBridge",
    "callback.gradient_summary": "GradientSummary",
    "aggregate.aggregate": "aggregate_ranks",
    "columns.inspect": "inspect_logdir",
    "columns.read": "read_histograms read_images read_scalars read_texts",
    "convert.follow": "follow_logdir",
    "convert.logdir": "convert_logdir",
    "convert.task": "ConvertOptions",
    "convert.verify": "verify_logdirs",
    "events": "DataPoint Event FileVersion SessionLog Summary TaggedValue iter_points",
    "export.logdir": "export_logdir",
    "files.event_file": "EventFileReader",
    "files.record_writer": "RecordWriter",
    "monitor.build": "build_monitor_callbacks",
    "monitor.checkpoints.best_checkpoint": "SaveBestCheckpoint",
    "monitor.loop": "Monitor",
    "runs.logdir": "discover",
    "runs.report": "Report",
    "values": "Histogram Image Opaque Scalar Tensor",
    "viewers.view": "view_logdir",
}
"""The names of each module; those that are not here are errors."""

_MODULES = {name: module for module, names in _HOMES.items() for name in names.split()}
_NEED_MINDSPORE = frozenset(("GradientSummary", "SaveBestCheckpoint", "SummaryBridge"))
_RECORDING = _NEED_MINDSPORE | {"Monitor", "build_monitor_callbacks"}


def _names() -> list[str]:
    from ms_summary_bridge.errors import can_record, has_mindspore

    missing = _RECORDING if not can_record() else frozenset() if has_mindspore() else _NEED_MINDSPORE
    return [name for name in _ALL if name not in missing]


_ALL = __all__
if not TYPE_CHECKING:
    del __all__  # made by __getattr__, since to look for MindSpore at every import would take time


def __getattr__(name: str) -> Any:
    """Loads what a name stands for; `__all__` is the list of those that can be had here.

    Raises:
        MissingDependencyError: MindSpore is not installed, and the name needs it, or it needs Linux. This is an
            ImportError and no AttributeError, so that `from ms_summary_bridge import SummaryBridge` shows it, and
            `hasattr` and a default of `getattr` do not hide it; `"SummaryBridge" in dir(ms_summary_bridge)` asks
            without raising.
        AttributeError: There is no such name.
    """
    if name == "__all__":
        return _names()
    if name not in _ALL:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ms_summary_bridge.errors import load_name

    name_there = "view_logdir" if name == "view" else name
    module = f"{__name__}.{_MODULES.get(name_there, 'errors')}"
    return load_name(module, name_there, needs_mindspore=name in _NEED_MINDSPORE, records=name in _RECORDING)


def __dir__() -> list[str]:
    return _names()
