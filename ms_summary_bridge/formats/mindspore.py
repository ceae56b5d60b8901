"""MindSpore's side: payload of a summary or lineage record to and from `Event`.

Does not know the TensorBoard side.

Source: `proto/mindspore/`; that a graph record has no step, a version record neither, and that the lineage file uses
numbers of its own was measured on files of MindSpore 2.10.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any, Final

import msgspec

from ms_summary_bridge.errors import (
    EventDecodeError,
    InvalidValueError,
    UnsupportedValueError,
    ValueConversionError,
    counted,
)
from ms_summary_bridge.events import Content, Encoded, Event, FileVersion, LostValue, SessionLog, Summary, TaggedValue
from ms_summary_bridge.formats import wire
from ms_summary_bridge.formats._histogram import decode_mindspore_histogram, encode_mindspore_histogram
from ms_summary_bridge.formats._image import decode_image, encode_image
from ms_summary_bridge.formats.graphs.events import draw_in_mindinsight, is_converted_graph
from ms_summary_bridge.formats.mindinsight import fit_value
from ms_summary_bridge.formats.plugin_data import decode_writer, encode_writer
from ms_summary_bridge.formats.scalar_origin import ORIGIN_KEY, decode_scalar_origin, encode_scalar_origin
from ms_summary_bridge.formats.scalar_shapes import ScalarShapes
from ms_summary_bridge.formats.tag_names import TagNames, is_utf8
from ms_summary_bridge.formats.tensor import decode_mindspore_tensor, encode_mindspore_tensor
from ms_summary_bridge.formats.untimed import as_untimed
from ms_summary_bridge.values import Histogram, Image, Opaque, Scalar, Tensor

__all__ = ["FILE_VERSION", "FORMAT", "MindSporeDecoder", "MindSporeEncoder"]

FORMAT: Final = "mindspore"
FILE_VERSION: Final = "MindSpore.Event:1"

_WALL_TIME, _STEP, _VERSION, _SUMMARY, _WRITER = 0x09, 0x10, 0x1A, 0x2A, 0x52
_SUMMARY_FILE: Final = {0x22: "graph", 0x32: "explain"}
_LINEAGE_FILE: Final = {
    0x32: "train_lineage",
    0x3A: "evaluation_lineage",
    0x4A: "dataset_graph",
    0x52: "user_defined_info",
}
_UNPACK_DOUBLE: Final = struct.Struct("<d").unpack_from


class MindSporeDecoder:
    """Decodes the records of one run.

    Args:
        is_lineage: The records come from a lineage file, whose events have other fields than a summary file's.
    """

    def __init__(self, *, is_lineage: bool = False) -> None:
        self._whole = _LINEAGE_FILE if is_lineage else _SUMMARY_FILE
        self._is_lineage = is_lineage
        self._shapes = ScalarShapes(b"\x1d", FORMAT)

    def decode(self, payload: bytes) -> Event:
        """Decodes one payload.

        Graphs, lineage and explanations are carried as `Opaque`, whole. A graph that was drawn from another format's
        graph is marked as derived. Values of an event without a finite wall_time are carried, too (`untimed`).

        Raises:
            EventDecodeError: The payload is not such a message, or its wall_time is missing.
        """
        event = self._shapes.decode(payload)
        if event is None:
            event = self._decode(payload)
            self._shapes.learn(payload, event)
        return event

    def _decode(self, payload: bytes) -> Event:
        wall_time: float | None = None
        step: int | None = None
        content: Content | None = None
        writer = ""
        is_exact = True
        is_derived = is_of_tensorboard = False
        unknown = 0
        values: list[TaggedValue] = []
        for key, a, b in wire.fields(payload, 0, len(payload)):
            if key == _WALL_TIME:
                is_exact = is_exact and wall_time is None
                wall_time = _UNPACK_DOUBLE(payload, a)[0]
            elif key == _STEP:
                is_exact = is_exact and step is None
                step = wire.signed(a)
            elif key == _SUMMARY and not self._is_lineage:
                is_exact = is_exact and content is None
                if not isinstance(content, Summary):
                    content, values = Summary(()), []
                is_plain, is_marked = _decode_summary(payload, a, b, values)
                is_exact = is_exact and is_plain
                is_of_tensorboard = is_of_tensorboard or is_marked
            elif key == _VERSION:
                version = payload[a:b].decode("utf-8", "replace")
                is_exact = is_exact and content is None and version.encode() == payload[a:b]
                content = FileVersion(version)
            elif key == _WRITER and not self._is_lineage:
                writer, is_plain = decode_writer(payload, a, b)
                is_exact = is_exact and is_plain
            elif key in self._whole:
                content = Opaque(self._whole[key], payload)
                is_derived = key == 0x22 and not self._is_lineage and is_converted_graph(payload[a:b])
            else:
                unknown = key >> 3
        if wall_time is None:
            raise EventDecodeError("wall_time is missing")
        if isinstance(content, Summary):
            content = Summary(tuple(values))
        if content is None:
            content = Opaque(f"field {unknown}" if unknown else "empty event", payload)
        if writer:
            is_exact = is_exact and isinstance(content, FileVersion)
            content = FileVersion(content.version, writer) if isinstance(content, FileVersion) else content
        if not math.isfinite(wall_time):
            event = as_untimed(payload, wall_time, step or 0, content, FORMAT)
            return msgspec.structs.replace(event, is_lineage=self._is_lineage)
        if isinstance(content, Opaque) or (
            is_exact and not unknown and (step is None) == isinstance(content, FileVersion)
        ):
            source = "tensorboard" if is_of_tensorboard else FORMAT
            return Event(wall_time, step or 0, content, source, None, is_derived, self._is_lineage)
        return Event(wall_time, step or 0, content, FORMAT, payload, is_lineage=self._is_lineage)


def _decode_summary(payload: bytes, start: int, end: int, values: list[TaggedValue]) -> tuple[bool, bool]:
    """Puts the values of a summary behind those of an earlier one in the same event, as protobuf merges them.

    Returns:
        Whether it encodes to an equal message, and whether originals in it are of TensorBoard's format.
    """
    is_exact, is_of_tensorboard = True, False
    for key, a, b in wire.fields(payload, start, end):
        if key == 0x0A:
            value, is_marked = _decode_value(payload, a, b)
            values.append(value)
            is_of_tensorboard = is_of_tensorboard or is_marked
        else:
            is_exact = False
    return is_exact, is_of_tensorboard


def _decode_value(payload: bytes, start: int, end: int) -> tuple[TaggedValue, bool]:
    """Returns the value, and whether its original is of TensorBoard's format."""
    tag: bytes | None = None
    origin: bytes | None = None
    value: Scalar | Histogram | Image | Tensor | Opaque | None = None
    is_exact = True
    for key, a, b in wire.fields(payload, start, end):
        if key == 0x0A:
            is_exact = is_exact and tag is None
            tag = payload[a:b]
            continue
        if key == ORIGIN_KEY and origin is None and isinstance(value, Scalar):
            origin = payload[a:b]
            continue
        is_exact = is_exact and value is None
        if key == 0x1D:
            value = Scalar(payload[a:b])
        elif key in _DECODERS:
            try:
                value, is_plain = _DECODERS[key](payload, a, b)
                is_exact = is_exact and is_plain
            except InvalidValueError as error:
                value = Opaque(_KINDS[key], payload[start:end], str(error))
        elif key == 0x52:
            value = Opaque("landscape", payload[start:end])
        else:
            is_exact = False
            value = value or Opaque(f"value field {key >> 3}", payload[start:end])
    if value is None:
        value = Opaque("empty value", payload[start:end])
    try:
        text = (tag or b"").decode("utf-8")
    except UnicodeDecodeError:
        text, is_exact = (tag or b"").decode("utf-8", "surrogateescape"), False
    if origin is not None and isinstance(value, Scalar):
        original = decode_scalar_origin(origin, tag or b"", value.bits) if is_exact else None
        if original is not None:
            return TaggedValue(text, value, False, original), True
        value = Opaque(
            "scalar", payload[start:end], "its note on the source's encoding was not written for this number"
        )
    if is_exact or isinstance(value, Opaque):
        return TaggedValue(text, value), False
    return TaggedValue(text, value, False, payload[start:end]), False


_DECODERS: Final[dict[int, Callable[[bytes, int, int], tuple[Any, bool]]]] = {
    0x22: decode_image,
    0x42: decode_mindspore_tensor,
    0x4A: decode_mindspore_histogram,
}
_KINDS: Final = {0x22: "image", 0x42: "tensor", 0x4A: "histogram"}


class MindSporeEncoder:
    """Encodes events for one summary file.

    Everything that came from a MindSpore file is given back as an equal message, unknown fields included. What came
    from a TensorBoard file is fitted to what MindInsight draws.

    Args:
        names: Names given to images so far; a fresh table by default. Other kinds keep their tags: MindInsight holds
            several kinds under one.
        fits: Whether values of TensorBoard's format are fitted; not for those that came from MindSpore before.
    """

    def __init__(self, names: TagNames | None = None, *, fits: bool = True) -> None:
        self.names = names or TagNames()
        self._fits = fits
        self._has_graph = False

    def encode(self, event: Event) -> Encoded:
        """Encodes one event.

        Loss: a float64 scalar or tensor is rounded to float32; kinds without a field in MindSpore's `Summary`
        are left out. Both are named in the result, and handed back in `archive`.
        """
        if event.format == FORMAT:
            if event.original is not None:
                return Encoded(event.original)
            if isinstance(event.content, Opaque):
                return Encoded(event.content.payload)
        head = wire.fixed64(b"\x09", event.wall_time)
        content = event.content
        if isinstance(content, FileVersion):
            version = content.version if event.format == FORMAT else FILE_VERSION
            return Encoded(head + wire.text(b"\x1a", version) + encode_writer(content.writer))
        if isinstance(content, SessionLog):  # restarts are told by the order of files here
            return Encoded(None, (), event)
        if not isinstance(content, Summary):
            if content.kind in ("graph", "meta_graph") and event.format == "tensorboard" and not content.reason:
                return self._encode_graph(event, content, head)
            reason = content.reason or f"MindSpore summaries have no {content.kind}"
            return Encoded(None, (LostValue(content.kind, "", reason),), event)
        parts: list[bytes] = []
        losses: list[LostValue] = []
        written: list[tuple[str, str]] = []
        has_original = False
        for tagged in content.values:
            if tagged.derived:
                continue
            has_original = has_original or tagged.original is not None
            messages, loss = self._encode_value(tagged, event.format, written)
            if loss:
                losses.append(LostValue(tagged.value.kind, tagged.tag, loss))
            parts += messages
        if event.original is not None and (parts or not content.values):
            losses.append(LostValue("event", "", "holds fields that are not known to this version"))
        # A tensor is not shown as one by TensorBoard, so the one it came from is kept, too.
        is_kept = losses or (event.format != FORMAT and any(isinstance(t.value, Tensor) for t in content.values))
        archive = event if is_kept else None
        if archive is None and has_original and self._fits and event.format not in (FORMAT, ""):
            parts, archive = _with_origins(event, content, parts)
        if content.values and not parts:
            return Encoded(None, tuple(losses), archive, tuple(written))
        payload = wire.repeated(head + b"\x10" + wire.varint(event.step), b"\x2a", parts)
        return Encoded(payload, tuple(losses), archive, tuple(written))

    def _encode_graph(self, event: Event, content: Opaque, head: bytes) -> Encoded:
        if content.kind == "meta_graph" and self._has_graph:  # TensorFlow writes the graph a second time in it
            reason = "MindInsight shows the graph the run has already"
            return Encoded(None, (LostValue(content.kind, "", reason),), event)
        encoded = draw_in_mindinsight(event, content, head + b"\x10" + wire.varint(event.step))
        self._has_graph = self._has_graph or encoded.payload is not None
        return encoded

    def _encode_value(
        self, tagged: TaggedValue, source: str, written: list[tuple[str, str]]
    ) -> tuple[list[bytes], str]:
        """Returns the messages for one value (several for a batch of images), and what they do not hold."""
        value = tagged.value
        if source == FORMAT:
            if tagged.original is not None:
                return [tagged.original], ""
            if isinstance(value, Opaque):
                return [value.payload], ""
        if source != FORMAT and not is_utf8(tagged.tag):  # MindInsight would show nothing of its run
            return [], "the tag is not UTF-8, which MindInsight refuses"
        try:
            fitted, loss = fit_value(tagged) if self._fits and source not in (FORMAT, "") else ([tagged], "")
            messages = []
            for part in fitted:
                message, part_loss = self._encode_fitted(part, tagged.tag, written)
                messages.append(message)
                loss = "; ".join(dict.fromkeys(text for text in (loss, part_loss) if text))
        except ValueConversionError as error:
            return [], error.message
        return messages, loss

    def _encode_fitted(self, tagged: TaggedValue, source_tag: str, written: list[tuple[str, str]]) -> tuple[bytes, str]:
        value = tagged.value
        if isinstance(value, Opaque):
            raise UnsupportedValueError(value.reason or f"MindSpore summaries have no {value.kind}")
        name = tagged.tag
        if isinstance(value, Image):  # an image of a batch must not take the name of another series
            name = self.names.name(source_tag, "image", name.removeprefix(source_tag).lstrip("/"))
        field, loss = _ENCODERS[type(value)](value)
        written.append((value.kind, name))
        if name != tagged.tag:
            loss = "written under another name, since its own is taken"
        try:
            return wire.length_delimited(b"\x0a", name.encode("utf-8", "surrogateescape")) + field, loss
        except UnicodeEncodeError:
            raise UnsupportedValueError("the tag holds half of a surrogate pair, which cannot be encoded") from None


def _with_origins(event: Event, content: Summary, parts: list[bytes]) -> tuple[list[bytes], Event | None]:
    """Adds what it takes to encode each value again as TensorBoard's log did, where that is in another way than ours.

    Returns:
        The values' messages, and the event if only an archive can do that.
    """
    values = [tagged for tagged in content.values if not tagged.derived]
    out = []
    for tagged, part in zip(values, parts, strict=True):  # nothing is lost, so each value has its message
        if tagged.original is None or tagged.original == part:  # images are encoded alike
            out.append(part)
        elif isinstance(tagged.value, Scalar):
            out.append(part + encode_scalar_origin(tagged.original, part))
        else:
            return parts, event
    return out, None


def _encode_scalar(value: Scalar) -> tuple[bytes, str]:
    bits, is_exact = value.to_float32()
    return b"\x1d" + bits, "" if is_exact else "float64 rounded to float32"


def _encode_image(value: Image) -> tuple[bytes, str]:
    if len(value.encoded) != 1:
        raise UnsupportedValueError(f"{counted(len(value.encoded), 'image')} under one tag, where MindSpore holds one")
    return encode_image(value, value.encoded[0]), ""


_ENCODERS: Final[dict[type, Callable[[Any], tuple[bytes, str]]]] = {
    Scalar: _encode_scalar,
    Histogram: encode_mindspore_histogram,
    Image: _encode_image,
    Tensor: encode_mindspore_tensor,
}
