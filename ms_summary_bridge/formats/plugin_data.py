"""Plugin data: how TensorBoard knows what a value is, and how we know where a value of ours came from.

A value we write carries, inside the content that its plugin defines, one field of ours (`Origin`, field 1000 of
`proto/tensorboard/origin.proto`). TensorBoard's readers pass over unknown fields, so a tag that had to be renamed, a
derived value, and what a `[k, 3]` tensor does not say about a histogram are all found again on the way back.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ms_summary_bridge.errors import EventDecodeError
from ms_summary_bridge.formats import wire

__all__ = [
    "DATA_CLASS_SCALAR",
    "DATA_CLASS_TENSOR",
    "DERIVATION",
    "ORIGIN_KEY",
    "WRITER_CONVERT",
    "WRITER_LIVE",
    "WRITER_USER",
    "Origin",
    "decode_metadata",
    "decode_origin",
    "decode_text",
    "decode_writer",
    "encode_derivation",
    "encode_metadata",
    "encode_origin",
    "encode_writer",
    "read_first_text",
]

DATA_CLASS_SCALAR: Final = 1
DATA_CLASS_TENSOR: Final = 2

DERIVATION: Final = 2
"""Version of the rules by which this package computes values from others and fits what a format cannot hold: to be
raised with every change of what they give, so that `verify` can tell an older output from a damaged one."""

ORIGIN_KEY: Final = 1000 << 3 | wire.LENGTH_DELIMITED
"""Key of our field, wherever it is."""
_ORIGIN_FIELD: Final = wire.varint(ORIGIN_KEY)


class Origin(msgspec.Struct, frozen=True, gc=False):
    """Where a value in a TensorBoard file came from."""

    tag: str | None = None
    """Tag in the source; None when the value has the same."""
    derived: bool = False
    """Computed from a value of the source, not converted back."""
    kind: str = ""
    """Kind of the value it was computed from."""
    histogram: bytes | None = None
    """Encoded `HistogramExtras`."""
    event: bytes | None = None
    """The whole event of the source that the value shows; `kind` names it."""
    derivation: int = 0
    """Version of the rules by which it was made, as read; 0 where none is given. What is encoded has today's."""


def encode_metadata(plugin_name: str, data_class: int, origin: Origin, content: bytes = b"") -> bytes:
    """Encodes a value's `SummaryMetadata` field, key included.

    Args:
        plugin_name: Which plugin shows the value.
        data_class: TensorBoard's number for how it is read.
        origin: Where it came from.
        content: What the plugin itself keeps with the value.
    """
    plugin_data = wire.length_delimited(b"\x0a", plugin_name.encode())
    content += encode_origin(origin)
    if content:
        plugin_data += wire.length_delimited(b"\x12", content)
    metadata = wire.length_delimited(b"\x0a", plugin_data) + b"\x20" + wire.varint(data_class)
    return wire.length_delimited(b"\x4a", metadata)


def encode_origin(origin: Origin) -> bytes:
    """Encodes our field, key included; nothing where there is nothing to say."""
    out = b""
    if origin.tag is not None:
        out += wire.length_delimited(b"\x0a", origin.tag.encode())
    if origin.derived:
        out += b"\x10\x01"
    if origin.kind:
        out += wire.length_delimited(b"\x1a", origin.kind.encode())
    if origin.histogram is not None:
        out += wire.length_delimited(b"\x22", origin.histogram)
    if origin.event is not None:
        out += wire.length_delimited(b"\x2a", origin.event)
    if origin.derived or origin.event is not None:
        out += b"\x30" + wire.varint(DERIVATION)
    return wire.length_delimited(_ORIGIN_FIELD, out) if out else b""


def encode_derivation() -> bytes:
    """Encodes our field, key included, of a file whose values were all made by today's rules."""
    return wire.length_delimited(_ORIGIN_FIELD, b"\x30" + wire.varint(DERIVATION))


def decode_metadata(data: bytes, start: int, end: int) -> tuple[str, bytes]:
    """Returns a `SummaryMetadata`'s plugin name and plugin content; empty where there are none.

    Raises:
        EventDecodeError: The message is malformed.
    """
    plugin = wire.last_fields(b"".join(wire.all_fields(data[start:end], 0x0A)))
    return plugin.get(0x0A, b"").decode("utf-8", "replace"), plugin.get(0x12, b"")


def decode_origin(content: bytes) -> Origin | None:
    """Finds our field in a plugin's content; None where there is none or the content is not a message."""
    if _ORIGIN_FIELD not in content:
        return None
    try:
        parts = wire.all_fields(content, ORIGIN_KEY)
        if not parts:
            return None
        found = wire.last_fields(b"".join(parts))
        return Origin(
            tag=found[0x0A].decode() if 0x0A in found else None,
            derived=bool(found.get(0x10)),
            kind=found.get(0x1A, b"").decode(),
            histogram=found.get(0x22),
            event=found.get(0x2A),
            derivation=found.get(0x30, 0),
        )
    except (EventDecodeError, UnicodeDecodeError):  # a plugin's content may be anything
        return None


def decode_text(data: bytes) -> tuple[str, bool]:
    """Returns the text, and whether encoding it gives the same bytes."""
    text = data.decode("utf-8", "replace")
    return text, text.encode() == data


def read_first_text(message: bytes) -> str:
    """Returns the text in a TensorBoard value: the first string of its tensor (field 8 of both); empty for none.

    Raises:
        EventDecodeError: The message is malformed.
    """
    for key, start, end in wire.fields(message, 0, len(message)):
        if key == 0x42:
            for inner, first, last in wire.fields(message, start, end):
                if inner == 0x42:
                    return message[first:last].decode("utf-8", "replace")
    return ""


def decode_writer(payload: bytes, start: int, end: int) -> tuple[str, bool]:
    """Reads the `source_metadata` of a file's first event: who wrote the file.

    TensorBoard defines it as field 10 of its event. In MindSpore's event that number is free, so ours carry it too.

    Returns:
        The writer's name, and whether `encode_writer` gives the same bytes.
    """
    writer = ""
    is_exact = True
    for number, (key, a, b) in enumerate(wire.fields(payload, start, end)):
        is_exact = is_exact and number == 0 and key == 0x0A
        if key == 0x0A:
            writer, is_plain = decode_text(payload[a:b])
            is_exact = is_exact and is_plain
    return writer, is_exact and bool(writer)


WRITER_LIVE: Final = "ms_summary_bridge/live"
"""Who wrote a file, as its first event says: the callback. Reading tells our files from others' by it."""
WRITER_CONVERT: Final = "ms_summary_bridge/convert"
"""The same of a conversion."""
WRITER_USER: Final = "ms_summary_bridge/summary_writer"
"""Marks an event that a user wrote through the bridge's `SummaryWriter`: only TensorBoard's file has it."""


def encode_writer(writer: str) -> bytes:
    """Encodes an event's `source_metadata` field, key included; nothing for an empty name."""
    return wire.length_delimited(b"\x52", wire.length_delimited(b"\x0a", writer.encode())) if writer else b""
