"""TensorBoard's side: payload of an event record to and from `Event`.

Does not know MindSpore's side.

Source: `proto/tensorboard/event.proto`; its values are those of `formats._tensorboard_values`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import msgspec

from ms_summary_bridge.errors import InvalidValueError
from ms_summary_bridge.events import Content, Encoded, Event, FileVersion, LostValue, SessionLog, Summary, TaggedValue
from ms_summary_bridge.formats import wire
from ms_summary_bridge.formats._histogram import encode_histogram_extras, encode_tensorboard_histogram
from ms_summary_bridge.formats._session_log import decode_session_log, encode_session_log
from ms_summary_bridge.formats._tensorboard_values import (
    decode_kind,
    image_value,
    loss_of,
    rows_value,
    scalar_value,
    text_value,
)
from ms_summary_bridge.formats.graphs.events import draw_in_tensorboard, is_converted_graph
from ms_summary_bridge.formats.plugin_data import (
    DATA_CLASS_SCALAR,
    WRITER_USER,
    Origin,
    decode_metadata,
    decode_origin,
    decode_text,
    decode_writer,
    encode_metadata,
    encode_writer,
)
from ms_summary_bridge.formats.scalar_shapes import ScalarShapes
from ms_summary_bridge.formats.tag_names import TagNames, is_utf8
from ms_summary_bridge.formats.tensor import statistics_table, value_histogram
from ms_summary_bridge.formats.untimed import as_untimed
from ms_summary_bridge.values import Histogram, Image, Opaque, Scalar, Tensor, Value

__all__ = ["FILE_VERSION", "FORMAT", "TensorBoardDecoder", "TensorBoardEncoder"]

FORMAT: Final = "tensorboard"
FILE_VERSION: Final = "brain.Event:2"

_WHOLE: Final = {0x22: "graph", 0x32: "log_message", 0x42: "run_metadata", 0x4A: "meta_graph"}
_PACK_DOUBLE: Final = wire.FLOAT64.pack


class TensorBoardDecoder:
    """Decodes the records of one run, in their order.

    A writer may put a tag's metadata only on its first value, so what later tensors are is remembered.

    Args:
        plugins: Plugin of each tag that earlier values named; filled in, for a reader that goes on later.
    """

    def __init__(self, plugins: dict[str, str] | None = None) -> None:
        self._plugins = {} if plugins is None else plugins
        self._shapes = ScalarShapes(b"\x15", FORMAT)

    def decode(self, payload: bytes) -> Event:
        """Decodes one payload.

        Graphs, run metadata, log messages and values of plugins other than scalars, histograms and images are
        carried as `Opaque`. A graph that was drawn from another format's graph is marked as derived. A text that
        carries an event of MindSpore's is decoded as that event. Values of an event without a finite wall_time are
        carried, too (`untimed`).

        Raises:
            EventDecodeError: The payload is not such a message.
        """
        event = self._shapes.decode(payload)
        if event is None:
            event = self._decode(payload)
            self._shapes.learn(payload, event)
        return event

    def _decode(self, payload: bytes) -> Event:
        wall_time = 0.0
        step = 0
        content: Content | None = None
        writer: str | None = None
        is_exact = True
        is_derived = False
        unknown = 0
        values: list[TaggedValue] = []
        for key, a, b in wire.fields(payload, 0, len(payload)):
            if key == 0x09:
                wall_time = wire.FLOAT64.unpack_from(payload, a)[0]
            elif key == 0x10:
                step = wire.signed(a)
            elif key == 0x52:
                is_first = writer is None
                writer, is_plain = decode_writer(payload, a, b)
                is_exact = is_exact and is_first and is_plain
            else:
                is_exact = is_exact and content is None
                if key == 0x2A:
                    if not isinstance(content, Summary):
                        content, values = Summary(()), []
                    is_exact = self._decode_summary(payload, a, b, values) and is_exact
                elif key == 0x1A:
                    version, is_plain = decode_text(payload[a:b])
                    content = FileVersion(version)
                    is_exact = is_exact and is_plain
                elif key == 0x3A:
                    content, is_plain = decode_session_log(payload, a, b)
                    is_exact = is_exact and is_plain
                elif key in _WHOLE:
                    content = Opaque(_WHOLE[key], payload)
                    is_derived = key == 0x22 and is_converted_graph(payload[a:b])
                else:
                    unknown = key >> 3
        if isinstance(content, Summary):
            content = Summary(tuple(values))
        if content is None:
            content = Opaque(f"field {unknown}" if unknown else "empty event", payload)
        if writer is not None:
            if isinstance(content, FileVersion):
                content = FileVersion(content.version, writer)
            else:
                is_exact = False
        by_user = writer == WRITER_USER
        if not math.isfinite(wall_time):
            event = as_untimed(payload, wall_time, step, content, FORMAT)
            return msgspec.structs.replace(event, by_user=by_user)
        carried = _carried_event(content)
        if carried is not None:
            return Event(wall_time, step, carried, "mindspore", is_lineage=True)
        if isinstance(content, Opaque) or (is_exact and not unknown):
            return Event(wall_time, step, content, FORMAT, None, is_derived, by_user=by_user)
        return Event(wall_time, step, content, FORMAT, payload, by_user=by_user)

    def _decode_summary(self, payload: bytes, start: int, end: int, values: list[TaggedValue]) -> bool:
        """Puts the values of a summary behind those of an earlier one in its event, as protobuf merges them.

        Returns:
            Whether it encodes to an equal message.
        """
        is_exact = True
        for key, a, b in wire.fields(payload, start, end):
            if key == 0x0A:
                values.append(self._decode_value(payload, a, b))
            else:
                is_exact = False
        return is_exact

    def _decode_value(self, payload: bytes, start: int, end: int) -> TaggedValue:
        tag = ""
        what: tuple[int, int, int] | None = None
        metadata: tuple[int, int] | None = None
        is_plain = True
        for key, a, b in wire.fields(payload, start, end):
            if key == 0x0A:
                tag = payload[a:b].decode("utf-8", "surrogateescape")
            elif key == 0x4A:
                metadata = (a, b)
            elif key in (0x15, 0x1A, 0x22, 0x2A, 0x32, 0x42):
                is_plain = is_plain and what is None
                what = (key, a, b)
            else:
                is_plain = False
        if metadata is None:
            # A tag that is not UTF-8 cannot be encoded again, so such a value is kept as it was read.
            if is_plain and what is not None and what[0] == 0x15 and is_utf8(tag):
                return TaggedValue(tag, Scalar(payload[what[1] : what[2]]))
            plugin, origin = self._plugins.get(tag, ""), None
        else:
            plugin, content = decode_metadata(payload, *metadata)
            plugin = self._plugins.setdefault(tag, plugin)
            origin = decode_origin(content)
        message = payload[start:end]
        if origin is not None and origin.event is not None:
            return TaggedValue(tag, Opaque(origin.kind, origin.event), False, message)
        try:
            value = decode_kind(payload, what, plugin, origin) or Opaque(plugin or "empty value", message)
        except InvalidValueError as error:
            value = Opaque(plugin or "tensor", message, str(error))
        if isinstance(value, Opaque):
            value = Opaque(value.kind, message, value.reason)
        if origin is not None:
            return TaggedValue(tag if origin.tag is None else origin.tag, value, origin.derived, message)
        return TaggedValue(tag, value, False, None if isinstance(value, Opaque) else message)


def _carried_event(content: Content) -> Opaque | None:
    """Returns what a summary of ours shows and carries: an event of MindSpore's, which is none of TensorBoard's."""
    if not isinstance(content, Summary) or len(content.values) != 1:
        return None
    tagged = content.values[0]
    if isinstance(tagged.value, Opaque) and tagged.value.kind == "dataset_graph" and tagged.original is not None:
        return tagged.value
    return None


class TensorBoardEncoder:
    """Encodes the events of one run.

    Everything that came from a TensorBoard file is given back as an equal message, unknown fields included.

    Args:
        names: Names given to tags so far; a fresh table by default.
    """

    def __init__(self, names: TagNames | None = None) -> None:
        self.names = names or TagNames()
        self._scalars: dict[str, tuple[bytes, bytes]] = {}  # tag -> bytes before and after the float in a value
        self._single: dict[str, tuple[bytes, bytes]] = {}  # the same from the summary on, for events of one scalar

    def encode(self, event: Event) -> Encoded:
        """Encodes one event.

        Loss: a tensor becomes a table and a histogram of its elements, a MindSpore graph or loss landscape a drawing
        of it; kinds that TensorBoard has no place for are left out. All are named in the result, and handed back in
        `archive`.
        """
        is_own = event.format == FORMAT
        content = event.content
        if is_own and event.original is not None:
            return Encoded(event.original)
        if is_own and isinstance(content, Opaque):
            return Encoded(content.payload)
        step = event.step
        head = b"\x09" + _PACK_DOUBLE(event.wall_time)
        if step:
            head += b"\x10" + wire.varint(step)
        if isinstance(content, Summary):
            values = content.values
            if len(values) == 1 and event.original is None and values[0].original is None:
                around = self._single.get(values[0].tag) or self._around_single(values[0].tag)
                if around is not None and type(values[0].value) is Scalar and len(values[0].value.bits) == 4:
                    return Encoded(head + around[0] + values[0].value.bits + around[1])
            return self._encode_summary(event, content, head, is_own)
        if isinstance(content, FileVersion):
            version = content.version if is_own else FILE_VERSION
            return Encoded(head + wire.text(b"\x1a", version) + encode_writer(content.writer))
        if isinstance(content, SessionLog):
            return Encoded(head + wire.length_delimited(b"\x3a", encode_session_log(content)))
        if event.format == "mindspore" and not content.reason:
            if content.kind == "graph":
                return draw_in_tensorboard(event, content.payload, head)
            if content.kind == "dataset_graph":
                return self._encode_dataset_graph(event, content.payload, head)
        reason = content.reason or f"TensorBoard has no place for a MindSpore {content.kind}"
        return Encoded(None, (LostValue(content.kind, "", reason),), event)

    def _encode_dataset_graph(self, event: Event, payload: bytes, head: bytes) -> Encoded:
        """Describes a data set graph in a text, which carries the graph itself."""
        # Here: it needs protobuf, which takes time to load.
        from ms_summary_bridge.formats.dataset_graph import TAG, describe_dataset_graph

        try:
            text = describe_dataset_graph(payload)
        except InvalidValueError as error:
            return Encoded(None, (LostValue(event.content.kind, "", error.message),), event)
        value = text_value(self.names.name(TAG, "pipeline"), text, Origin(kind=event.content.kind, event=payload))
        return Encoded(head + wire.length_delimited(b"\x2a", wire.length_delimited(b"\x0a", value)))

    def _encode_summary(self, event: Event, summary: Summary, head: bytes, is_own: bool) -> Encoded:
        parts: list[bytes] = []
        losses: list[LostValue] = []
        scalars = self._scalars
        for tagged in summary.values:
            value = tagged.value
            if tagged.original is None and type(value) is Scalar and len(value.bits) == 4:
                around = scalars.get(tagged.tag)
                if around is not None:
                    parts.append(around[0] + value.bits + around[1])
                    continue
            if is_own and (tagged.original is not None or isinstance(value, Opaque)):
                parts.append(tagged.original if tagged.original is not None else value.payload)  # type: ignore[union-attr]
                continue
            loss = "holds fields that are not known to this version" if tagged.original is not None else ""
            try:
                tagged.tag.encode()
                parts.extend(self._encode_value(tagged.tag, value))
                loss = loss or loss_of(value)
            except UnicodeEncodeError:
                loss = "the tag is not UTF-8, which TensorBoard refuses"
            except InvalidValueError as error:
                loss = error.message
            if loss:
                losses.append(LostValue(value.kind, tagged.tag, loss))
        if summary.values and not parts:
            return Encoded(None, tuple(losses), event if losses else None)
        if event.original is not None:
            losses.append(LostValue("event", "", "holds fields that are not known to this version"))
        archive = event if losses else None
        return Encoded(wire.repeated(head, b"\x2a", parts), tuple(losses), archive)

    def _encode_value(self, tag: str, value: Value) -> Iterator[bytes]:
        """Yields the messages that show one value: none for a kind that is carried as it is."""
        if isinstance(value, Scalar):
            around = self._around_scalar(tag)
            yield around[0] + value.to_float32()[0] + around[1]
        elif isinstance(value, Histogram):
            name = self.names.name(tag, "histogram")
            origin = Origin(tag if name != tag else None, histogram=encode_histogram_extras(value))
            yield rows_value(name, encode_tensorboard_histogram(value), origin)
            for part in ("nan_count", "pos_inf_count", "neg_inf_count"):
                if count := getattr(value, part):
                    name, origin = self.names.name(tag, "scalar", part), Origin(tag, derived=True, kind="histogram")
                    yield scalar_value(name, wire.FLOAT32.pack(count), origin)
        elif isinstance(value, Image):
            name = self.names.name(tag, "image")
            for encoded in value.encoded:
                yield image_value(name, value, encoded, None if name == tag else Origin(tag))
        elif isinstance(value, Tensor):
            origin = Origin(tag, derived=True, kind="tensor")
            yield text_value(self.names.name(tag, "text"), statistics_table(value), origin)
            yield rows_value(self.names.name(tag, "histogram", "histogram"), value_histogram(value), origin)
        elif value.kind == "landscape" and not value.reason:
            # Here: few runs have one, and pillow takes time to load.
            from ms_summary_bridge.formats.landscapes.drawing import encode_landscape

            yield from encode_landscape(value, tag, self.names)

    def _around_scalar(self, tag: str) -> tuple[bytes, bytes]:
        around = self._scalars.get(tag)
        if around is None:
            name = self.names.name(tag, "scalar")
            metadata = b"" if name == tag else encode_metadata("scalars", DATA_CLASS_SCALAR, Origin(tag))
            around = self._scalars[tag] = (wire.length_delimited(b"\x0a", name.encode()) + b"\x15", metadata)
        return around

    def _around_single(self, tag: str) -> tuple[bytes, bytes] | None:
        """Keeps and returns what stands around the scalar of an event with no other value, once its tag has a name."""
        around = self._scalars.get(tag)
        if around is None:
            return None
        size = sum(map(len, around)) + 4
        value = b"\x0a" + wire.varint(size)
        single = self._single[tag] = (b"\x2a" + wire.varint(len(value) + size) + value + around[0], around[1])
        return single

    def encode_note(self, step: int, wall_time: float, tag: str, text: str) -> bytes:
        """Encodes an event with one markdown text of our own, which is not converted back."""
        value = text_value(self.names.name(tag, "note"), text, Origin(tag, derived=True, kind="note"))
        head = wire.fixed64(b"\x09", wall_time) + (b"\x10" + wire.varint(step) if step else b"")
        return head + wire.length_delimited(b"\x2a", wire.length_delimited(b"\x0a", value))
