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
    "encode_mark",
    "encode_member",
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

    def encode(self) -> bytes:
        """Encodes the mark, key included."""
        out = wire.text(b"\x0a", self.key) + b"\x10" + wire.varint(self.first)
        return encode_mark(HOLDER, out + wire.length_delimited(b"\x1a", self.value))


def encode_member(number: int, *, is_signature: bool = False) -> bytes:
    """Encodes the mark of a part of an inner graph, key included; nothing for the outermost."""
    return wire.varint(SIGNATURE if is_signature else MEMBER) + wire.varint(number) if number else b""


def encode_mark(key: int, content: bytes) -> bytes:
    """Encodes a mark that holds a message, key included."""
    return wire.length_delimited(wire.varint(key), content)


def read_holder(data: bytes) -> Holder:
    """Reads a `Holder`; raises EventDecodeError or UnicodeDecodeError for bytes that are not one."""
    found = wire.last_fields(data)
    return Holder(found.get(0x0A, b"").decode(), found.get(0x10, 0), found.get(0x1A, b""))
