"""Events: the envelope both formats put around their values, and how the parts of the pipe are joined.

::

    bytes -> RecordDecoder -> Record -> codec.decode -> Event -> codec.encode -> payload -> encode_record -> bytes

A source is an iterable of `Event`; a sink has `write`, `flush` and `close`. Nothing else joins the parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Protocol, TypeAlias

import msgspec

from ms_summary_bridge.values import Opaque, Value

__all__ = [
    "Content",
    "DataPoint",
    "Decoder",
    "Encoded",
    "Encoder",
    "Event",
    "FileVersion",
    "LostValue",
    "SessionLog",
    "Summary",
    "TaggedValue",
    "iter_points",
]


class TaggedValue(msgspec.Struct, frozen=True, gc=False):
    """One value of a summary under its tag."""

    tag: str
    """Name of the time series within its run. Bytes that are not UTF-8 are held as surrogate escapes."""
    value: Value
    derived: bool = False
    """Computed from another value by this package (statistics of a tensor, counts of NaN): not converted back."""
    original: bytes | None = None
    """The value's message as read, when encoding `value` in the same format would not give an equal message."""


class FileVersion(msgspec.Struct, frozen=True, gc=False):
    """The first event of a file: which format and version it has."""

    version: str
    """`brain.Event:2`, `MindSpore.Event:1`, ..."""
    writer: str = ""
    """Name of the program that wrote the file (TensorBoard's `source_metadata.writer`)."""

    kind: ClassVar[str] = "file_version"


class Summary(msgspec.Struct, frozen=True, gc=False):
    """The tagged values of one event, in their order."""

    values: tuple[TaggedValue, ...]

    kind: ClassVar[str] = "summary"


class SessionLog(msgspec.Struct, frozen=True, gc=False):
    """A mark in a TensorBoard file that a training session begins, ends, or saved a checkpoint."""

    START: ClassVar[int] = 1
    STOP: ClassVar[int] = 2
    CHECKPOINT: ClassVar[int] = 3

    status: int
    checkpoint_path: str = ""
    message: str = ""

    kind: ClassVar[str] = "session_log"


Content: TypeAlias = FileVersion | Summary | SessionLog | Opaque


class Event(msgspec.Struct, frozen=True, gc=False):
    """One record's meaning."""

    wall_time: float
    """Seconds since the Unix epoch, finite."""
    step: int
    """Training step, signed 64-bit; 0 where the writer gave none."""
    content: Content
    format: str = ""
    """Format of the bytes that `Opaque` values and `original` hold (`mindspore`, `tensorboard`); empty when made
    in memory."""
    original: bytes | None = None
    """The payload as read, when the envelope holds something that encoding would not give back: a field
    unknown to us, or a step where none is written. None otherwise."""
    derived: bool = False
    """Computed from another event by this package (the drawing of a graph): not converted back."""
    is_lineage: bool = False
    """It belongs into a lineage file of MindSpore's, whose events have other fields than those of a summary file."""
    by_user: bool = False
    """A user wrote it through a bridge's `SummaryWriter`, so only TensorBoard's file has it."""


class DataPoint(msgspec.Struct, frozen=True, gc=False):
    """The flat view of one value."""

    tag: str
    step: int
    wall_time: float
    value: Value


def iter_points(event: Event) -> Iterator[DataPoint]:
    """Yields one point for each value of the event that is not derived."""
    if isinstance(event.content, Summary):
        for tagged in event.content.values:
            if not tagged.derived:
                yield DataPoint(tagged.tag, event.step, event.wall_time, tagged.value)


class LostValue(msgspec.Struct, frozen=True, gc=False):
    """Something a target format cannot hold, or holds only approximately."""

    kind: str
    tag: str
    reason: str


class Encoded(msgspec.Struct, frozen=True, gc=False):
    """What an encoder made of one event."""

    payload: bytes | None
    """The event in the target format; None when it has no place for any part of it."""
    losses: tuple[LostValue, ...] = ()
    archive: Event | None = None
    """The whole event as it was, when the payload does not hold all of it exactly: it goes into the archive."""
    written: tuple[tuple[str, str], ...] = ()
    """Kind and name of each value that was fitted to MindSpore's format."""


class Decoder(Protocol):
    """Payload to event, for one run's files in their order. May remember what earlier events said of a tag."""

    def decode(self, payload: bytes) -> Event:
        """Raises `EventDecodeError` when the payload is not an event of this format."""
        ...


class Encoder(Protocol):
    """Event to payload, for one run. May remember the names it gave."""

    def encode(self, event: Event) -> Encoded:
        """Never raises for a value: what cannot be held is named in `Encoded.losses`."""
        ...
