"""Converts between MindSpore summary files and TensorBoard event files, and records both while a model trains.

What is named here is loaded when it is asked for: `import ms_summary_bridge` takes no time, and loads neither mindspore
nor tensorboard.

Where MindSpore is not installed, `__all__` and `dir()` leave out the callbacks that are built on its classes:
SummaryBridge, GradientSummary and SaveBestCheckpoint. Asking for one of them there raises MissingDependencyError. So it
is outside Linux with all that records a training: these, Monitor and build_monitor_callbacks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_summary_bridge._version import __version__
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
from ms_summary_bridge.errors import lazy_names as _lazy_names

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
    "viewers.view": "view=view_logdir",
}
_NEED_MINDSPORE = ("GradientSummary", "SaveBestCheckpoint", "SummaryBridge")
_RECORDING = (*_NEED_MINDSPORE, "Monitor", "build_monitor_callbacks")

if not TYPE_CHECKING:
    __getattr__, __dir__ = _lazy_names(__name__, __all__, _HOMES, needs_mindspore=_NEED_MINDSPORE, records=_RECORDING)
    del __all__  # made by __getattr__, since to look for MindSpore at every import would take time
