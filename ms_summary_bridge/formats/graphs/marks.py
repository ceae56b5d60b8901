"""Marks on the parts of a drawn graph that say which inner graph they are of, so that it can be put together again.

Neither viewer draws a graph inside a graph, so a function of TensorFlow's library and a sub-graph of MindSpore's are
drawn as nodes in a scope. Each such node carries the number of its inner graph, from 1 on, and what has no place on a
node stands once: the library without its nodes on the whole graph, and a value without its graphs on the node that
holds it. Fields 1001 to 1004, behind our field 1000 (`formats.plugin_data`); both viewers pass over them as over
that one.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ms_summary_bridge.formats import wire

__all__ = [
    "HOLDER",
    "LIBRARY",
    "MEMBER",
    "SHAPES",
    "SIGNATURE",
    "Holder",
    "encode_holder",
    "encode_library",
    "encode_member",
    "encode_shapes",
    "read_holder",
]

MEMBER: Final = 1001 << 3 | wire.VARINT
"""On a node: the number of the inner graph it is of."""
SIGNATURE: Final = 1002 << 3 | wire.VARINT
"""On what is drawn for an argument or an output of a function: the number of the function."""
HOLDER: Final = 1003 << 3 | wire.LENGTH_DELIMITED
"""On a node, once for each value of it that holds graphs: a `Holder`."""
LIBRARY: Final = 1001 << 3 | wire.LENGTH_DELIMITED
"""On a MindSpore graph: all of the `GraphDef` but its nodes and those of its functions."""


SHAPES: Final = 1004 << 3 | wire.LENGTH_DELIMITED
"""On a constant: the shapes its node gave, which may be none; an `AttrValue`."""


class Holder(msgspec.Struct, frozen=True):
    """A value that holds graphs."""

    key: str
    """Attribute it is drawn as."""
    first: int
    """Number of the first of its graphs; the others follow."""
    value: bytes
    """The `ValueProto`, of whose graphs there is but the name."""


def encode_member(number: int, *, is_signature: bool = False) -> bytes:
    """Encodes the mark of a part of an inner graph, key included; nothing for the outermost."""
    return wire.varint(SIGNATURE if is_signature else MEMBER) + wire.varint(number) if number else b""


def encode_library(graph_def: bytes) -> bytes:
    """Encodes the mark of a whole graph, key included; nothing where there is nothing to say."""
    return wire.length_delimited(wire.varint(LIBRARY), graph_def) if graph_def else b""


def encode_shapes(shapes: bytes) -> bytes:
    """Encodes the mark of a constant, key included."""
    return wire.length_delimited(wire.varint(SHAPES), shapes)


def encode_holder(holder: Holder) -> bytes:
    """Encodes the mark of a node with a value that holds graphs, key included."""
    out = wire.length_delimited(b"\x0a", holder.key.encode()) + b"\x10" + wire.varint(holder.first)
    return wire.length_delimited(wire.varint(HOLDER), out + wire.length_delimited(b"\x1a", holder.value))


def read_holder(data: bytes, start: int, end: int) -> Holder:
    """Reads a `Holder`.

    Raises:
        EventDecodeError: The bytes are no message.
        UnicodeDecodeError: The key is not UTF-8.
    """
    name, first, value = "", 0, b""
    for key, a, b in wire.fields(data, start, end):
        if key == 0x0A:
            name = data[a:b].decode()
        elif key == 0x10:
            first = a
        elif key == 0x1A:
            value = data[a:b]
    return Holder(name, first, value)
