"""TensorFlow's graph, taken apart as far as drawing it in MindInsight needs.

Read from the wire, with the values of attributes left as bytes, for the reasons in `formats.graphs.ms_source`.

Source: `proto/tensorboard/graph.proto`, `node.proto`, `function.proto`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ms_summary_bridge.formats import wire
from ms_summary_bridge.formats.graphs.marks import HOLDER, MEMBER, Holder, read_holder
from ms_summary_bridge.formats.plugin_data import Origin, decode_origin

__all__ = ["Function", "GraphDef", "Node", "read_graph_def", "split_input"]

_ORIGIN: Final = 1000 << 3 | wire.LENGTH_DELIMITED


class Node(msgspec.Struct):
    """A `NodeDef`."""

    name: str = ""
    op: str = ""
    inputs: list[str] = []
    """As written: `node`, `node:output`, in functions `node:name:index`, `^node` for an order of execution."""
    device: str = ""
    attributes: dict[str, bytes] = {}
    """Names and `AttrValue`s."""
    origin: Origin | None = None
    """What it was in a MindSpore graph, where it was drawn from one and is no operator."""
    group: int = 0
    """Number of the inner graph it was of there; 0 for the outermost."""
    holders: list[Holder] = []
    """Its values that held graphs there."""


class Function(msgspec.Struct):
    """A `FunctionDef` of the library."""

    name: str = ""
    arguments: list[tuple[str, int]] = []
    """Names and types; type 0 where it depends on the call."""
    nodes: list[Node] = []
    returns: list[tuple[str, str]] = []
    """Outputs, and which output of which node each is; a control output has `^` before the node."""


class GraphDef(msgspec.Struct):
    """A `GraphDef`."""

    nodes: list[Node] = []
    functions: list[Function] = []
    library: bytes = b""
    """A `GraphDef` with the versions, and with the functions without their nodes."""


def split_input(text: str) -> tuple[str, bool, str]:
    """Returns the node an input names, whether it is an order of execution only, and what stands behind the name."""
    is_control = text.startswith("^")
    name, colon, output = text[is_control:].partition(":")
    return name, is_control, colon + output


def read_graph_def(data: bytes) -> GraphDef:
    """Reads a `GraphDef`.

    Raises:
        EventDecodeError: The bytes are no message.
        UnicodeDecodeError: A name is not UTF-8.
    """
    graph = GraphDef()
    for key, a, b in wire.fields(data, 0, len(data)):
        if key == 0x0A:
            graph.nodes.append(_read_node(data, a, b))
        elif key == 0x12:
            library = b""
            for inner, c, d in wire.fields(data, a, b):
                content = data[c:d]
                if inner == 0x0A:
                    graph.functions.append(_read_function(data, c, d))
                    content = _without_nodes(data, c, d)
                if inner & 7 == wire.LENGTH_DELIMITED:  # as all there are
                    library += wire.length_delimited(wire.varint(inner), content)
            graph.library += wire.length_delimited(b"\x12", library)
        elif key == 0x22:
            graph.library += wire.length_delimited(b"\x22", data[a:b])
    return graph


def _without_nodes(data: bytes, start: int, end: int) -> bytes:
    """Returns a `FunctionDef`, which has no fields but messages, without its nodes."""
    return b"".join(
        wire.length_delimited(wire.varint(key), data[a:b])
        for key, a, b in wire.fields(data, start, end)
        if key != 0x1A and key & 7 == wire.LENGTH_DELIMITED
    )


def _read_node(data: bytes, start: int, end: int) -> Node:
    node = Node()
    for key, a, b in wire.fields(data, start, end):
        if key == 0x0A:
            node.name = data[a:b].decode()
        elif key == 0x12:
            node.op = data[a:b].decode()
        elif key == 0x1A:
            node.inputs.append(data[a:b].decode())
        elif key == 0x22:
            node.device = data[a:b].decode()
        elif key == 0x2A:
            name, value = wire.read_entry(data, a, b)
            node.attributes[name] = value
        elif key == _ORIGIN:
            node.origin = decode_origin(data[start:end])
        elif key == MEMBER:
            node.group = a
        elif key == HOLDER:
            node.holders.append(read_holder(data, a, b))
    return node


def _read_function(data: bytes, start: int, end: int) -> Function:
    function = Function()
    for key, a, b in wire.fields(data, start, end):
        if key == 0x0A:
            for inner, c, d in wire.fields(data, a, b):
                if inner == 0x0A:
                    function.name = data[c:d].decode()
                elif inner == 0x12:
                    function.arguments.append(_read_argument(data, c, d))
        elif key == 0x1A:
            function.nodes.append(_read_node(data, a, b))
        elif key in (0x22, 0x32):
            name, source = wire.read_entry(data, a, b)
            function.returns.append((name, ("^" if key == 0x32 else "") + source.decode()))
    return function


def _read_argument(data: bytes, start: int, end: int) -> tuple[str, int]:
    name, number = "", 0
    for key, a, b in wire.fields(data, start, end):
        if key == 0x0A:
            name = data[a:b].decode()
        elif key == 0x18:
            number = a
    return name, number
