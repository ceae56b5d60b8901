"""Made: what a conversion makes from the events of a run, beside what it only carries over.

The sinks of the conversion itself are asked, and write nothing. So drawings, tables, statistics, approximations and
sessions are compared with what would be written now.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from ms_summary_bridge.convert.mindspore_sink import MindSporeSink
from ms_summary_bridge.convert.outputs import DryOutputs, DryWriter
from ms_summary_bridge.convert.sink import RunSink
from ms_summary_bridge.convert.state import RunState
from ms_summary_bridge.convert.tensorboard_sink import TensorBoardSink
from ms_summary_bridge.convert.verify.series import Key
from ms_summary_bridge.events import Event, FileVersion, Summary, TaggedValue
from ms_summary_bridge.files.file_names import LINEAGE, MINDSPORE, TENSORBOARD
from ms_summary_bridge.formats import wire
from ms_summary_bridge.formats.plugin_data import DERIVATION, decode_metadata, decode_origin
from ms_summary_bridge.formats.sessions.session import SESSION_KINDS
from ms_summary_bridge.runs.archive import make_decoder
from ms_summary_bridge.runs.report import LossCounter
from ms_summary_bridge.values import Scalar

__all__ = ["Making", "lineage_items", "made_items"]

_Item: TypeAlias = tuple[Key, int, float, bytes | None]
"""As `series.Take` takes it."""

_SUMMARY: Final = 0x2A
_VALUE: Final = 0x0A
_METADATA: Final = 0x4A


# ------------------------------------------------------------------ what an output shows


def made_items(
    event: Event, payload: bytes, output: str, original: Event | None = None, derivation: int = 0
) -> Iterator[_Item]:
    """Yields what an event of an output shows that was made from something else.

    `original` is what all of it stands for, by the rules of version `derivation`; without one each value says itself
    whether it was made.
    """
    content = event.content
    if isinstance(content, Summary):
        exact = _values_of(original)
        for tagged, message in zip(content.values, _messages(payload), strict=True):
            if tagged.derived or (original is not None and _value_of(tagged) not in exact):
                version = _derivation_of(message) if original is None else derivation
                key = (tagged.value.kind, tagged.tag, _name_of(message))
                yield key, event.step, event.wall_time, _fingerprint(message, version)
    elif event.format != output:  # a text that carries an event of the source
        for message in _messages(payload):
            key = (content.kind, "", _name_of(message))
            yield key, event.step, event.wall_time, _fingerprint(message, _derivation_of(message))
    elif original is not None or event.derived:
        if event.derived:
            derivation = _derivation_of_graph(payload)
        yield (content.kind, "", "drawn"), event.step, event.wall_time, _fingerprint(payload, derivation)


def lineage_items(payloads: list[bytes], output: str) -> Iterator[_Item]:
    """Yields what a lineage file of ours shows that was made from the other format's session."""
    decoder = make_decoder(LINEAGE if output == MINDSPORE else output)
    derivation = 0
    for payload in payloads:
        event = decoder.decode(payload)
        if isinstance(event.content, FileVersion):
            origin = decode_origin(payload)
            derivation = origin.derivation if origin is not None else 0
            yield (event.content.kind, "", "lineage"), event.step, event.wall_time, _digest(payload)
        elif output == TENSORBOARD:
            yield from made_items(event, payload, output)
        elif event.content.kind in SESSION_KINDS:
            key = (event.content.kind, "", "lineage")
            yield key, event.step, event.wall_time, _fingerprint(payload, derivation)


def _values_of(event: Event | None) -> set[tuple[str, str, bytes]]:
    if event is None or not isinstance(event.content, Summary):
        return set()
    return {_value_of(tagged) for tagged in event.content.values}


def _value_of(tagged: TaggedValue) -> tuple[str, str, bytes]:
    return tagged.value.kind, tagged.tag, tagged.value.fingerprint()


def _messages(payload: bytes) -> list[bytes]:
    return [
        payload[c:d]
        for key, a, b in wire.fields(payload, 0, len(payload))
        if key == _SUMMARY
        for inner, c, d in wire.fields(payload, a, b)
        if inner == _VALUE
    ]


def _name_of(message: bytes) -> str:
    """Returns the tag of a value's message, which both formats have in field 1."""
    names = [message[a:b] for key, a, b in wire.fields(message, 0, len(message)) if key == 0x0A]
    return f"as {names[0].decode(errors='surrogateescape') if names else ''}"


def _derivation_of(message: bytes) -> int:
    for key, a, b in wire.fields(message, 0, len(message)):
        if key == _METADATA:
            origin = decode_origin(decode_metadata(message, a, b)[1])
            return origin.derivation if origin is not None else 0
    return 0


def _derivation_of_graph(payload: bytes) -> int:
    for key, a, b in wire.fields(payload, 0, len(payload)):
        origin = decode_origin(payload[a:b]) if key == 0x22 else None
        if origin is not None:
            return origin.derivation
    return 0


def _fingerprint(data: bytes, derivation: int) -> bytes | None:
    return _digest(data) if derivation >= DERIVATION else None


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


# ------------------------------------------------------------------ what would be made now


class _NoOutputs(DryOutputs):
    """Keeps what the lineage file would hold, and looks at no file."""

    def __init__(self) -> None:
        super().__init__("")
        self.lineage: list[bytes] = []

    def open(self, name: str, offset: int = 0, checksum: int | None = 0) -> DryWriter:
        return DryWriter(offset, checksum)

    def replace(self, name: str, payloads: Sequence[bytes], former: str) -> None:
        self.lineage = [*payloads]


class Making:
    """What a conversion to a format would make of one run; names stay that the output's state has."""

    def __init__(
        self, output: str, known: RunState | None, *, keep_archive: bool, is_own: bool, is_restored: bool
    ) -> None:
        self.output = output
        self._keep_archive = keep_archive
        self._is_restored = is_restored
        self._grows = known is not None and not known.lineage
        state = RunState(names=[] if known is None else known.names)
        self._outputs = _NoOutputs()
        self._sink: RunSink = (TensorBoardSink if output == TENSORBOARD else MindSporeSink)(
            self._outputs,
            host="",
            state=state,
            losses=LossCounter(),
            keep_archive=keep_archive,
            is_own=is_own,
            is_restored=is_restored,
        )
        self.has_archived = False
        """The last event that was asked for is in the archive."""
        self._sink.begin_source(0)
        self._decoder = make_decoder(output)
        self.note_version = self._sink.write_version

    def note_scalar(self, event: Event, tag: str) -> None:
        """Takes note of a scalar that is carried over as it is: its tag takes a name, or it is a session's metric."""
        if isinstance(self._sink, MindSporeSink):
            if event.format == TENSORBOARD:
                self._sink.note_session(event)
        else:
            self._sink.names.name(tag, Scalar.kind)

    def carries(self, event: Event) -> tuple[bool, list[Event], list[_Item]]:
        """Asks for one event.

        Returns:
            Whether the event itself can be had from the output or its archive; events that the output has in its place
            if not; what is shown of it that was made from it.
        """
        encoded = self._sink.write(event)
        self.has_archived = False
        if encoded is None:  # it goes into the lineage file
            return True, [], []
        is_archived = self.has_archived = encoded.archive is not None
        is_carried = not event.derived and (self._keep_archive or not is_archived)
        payload = encoded.payload
        if payload is None:
            return is_carried, [], []
        if is_carried and not is_archived and not _may_make(event):
            return True, [], []
        shown = self._decoder.decode(payload)
        if is_carried:
            return True, [], [*made_items(shown, payload, self.output, event if is_archived else None, DERIVATION)]
        return False, [shown], [*made_items(shown, payload, self.output)]

    def end(self) -> tuple[list[Event], list[_Item]]:
        """Says that the whole source has been read; returns what the lineage file has, and what of it was made."""
        self._sink.end_sources(grows=self._grows)
        self._sink.close()
        lineage = self._outputs.lineage
        if self.output == MINDSPORE:
            return [], [] if self._is_restored else [*lineage_items(lineage, self.output)]
        # The first one is the version event of the file.
        events = [] if self._keep_archive else [self._decoder.decode(payload) for payload in lineage[1:]]
        return events, [*lineage_items(lineage, self.output)]


def _may_make(event: Event) -> bool:
    """Whether an output may show more of an event than the event."""
    if not isinstance(event.content, Summary):
        return True
    for tagged in event.content.values:
        value = tagged.value
        if value.kind == "histogram":
            if value.nan_count or value.pos_inf_count or value.neg_inf_count:  # type: ignore[union-attr]
                return True
        elif value.kind not in ("scalar", "image"):
            return True
    return False
