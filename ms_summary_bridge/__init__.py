"""Converts between MindSpore summary files and TensorBoard event files, and records both while a model trains.

`import ms_summary_bridge` loads neither mindspore nor tensorboard; `SummaryBridge` is loaded when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ms_summary_bridge._version import __version__
from ms_summary_bridge.convert import convert_logdir
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
from ms_summary_bridge.event_file import EventFileReader
from ms_summary_bridge.events import DataPoint, Event, FileVersion, SessionLog, Summary, TaggedValue, iter_points
from ms_summary_bridge.inspect import inspect_logdir
from ms_summary_bridge.logdir import discover
from ms_summary_bridge.record_writer import RecordWriter
from ms_summary_bridge.report import Report
from ms_summary_bridge.run_conversion import ConvertOptions
from ms_summary_bridge.values import Histogram, Image, Opaque, Scalar, Tensor
from ms_summary_bridge.verify import verify_logdirs

if TYPE_CHECKING:
    from ms_summary_bridge.callback.bridge import SummaryBridge

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


def __getattr__(name: str) -> Any:
    if name == "SummaryBridge":
        from ms_summary_bridge.callback.bridge import SummaryBridge

        return SummaryBridge
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
