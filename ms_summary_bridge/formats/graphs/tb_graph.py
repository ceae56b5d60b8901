"""TensorFlow's graph: taken apart as far as drawing it in MindInsight needs, and its nodes put together.

Read from the wire, with the values of attributes left as bytes, for the reasons in `formats.graphs.ms_graph`.

Source: `proto/tensorboard/graph.proto`, `node.proto`, `function.proto`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ms_summary_bridge.formats import wire
from ms_summary_bridge.formats.graphs.marks import HOLDER, MEMBER, Holder, read_holder
from ms_summary_bridge.formats.plugin_data import Origin, decode_origin

__all__ = ["Function", "GraphDef", "Node", "encode_node", "read_graph_def", "split_input"]


class Node(msgspec.Struct, gc=False):
    """A `NodeDef`."""

    name: str = ""
    op: str = ""
    inputs: Sequence[str] = ()
    """As written: `node`, `node:output`, in functions `node:name:index`, `^node` for an order of execution."""
    device: str = ""
    attributes: dict[str, bytes] = {}
    """Names and `AttrValue`s."""
    origin: Origin | None = None
    """What it was in a MindSpore graph, where it was drawn from one and is not an operator."""
    group: int = 0
    """Number of the inner graph it was of there; 0 for the outermost."""
    holders: Sequence[Holder] = ()
    """Its values that held graphs there."""


class Function(msgspec.Struct):
    """A `FunctionDef` of the library."""

    name: str
    arguments: list[tuple[str, int]]
    """Names and types; type 0 where it depends on the call."""
    nodes: list[Node]
    returns: list[tuple[str, str]]
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
        EventDecodeError: The bytes are not a message.
        UnicodeDecodeError: A name is not UTF-8.
    """
    graph = GraphDef()
    library = bytearray()
    for key, a, b in wire.fields(data, 0, len(data)):
        if key == 0x0A:
            graph.nodes.append(_read_node(data[a:b]))
        elif key == 0x12:
            part = bytearray()
            for inner, c, d in wire.fields(data, a, b):
                content = data[c:d]
                if inner == 0x0A:
                    graph.functions.append(_read_function(content))
                    content = _without_nodes(content)
                if inner & 7 == wire.LENGTH_DELIMITED:  # as all there are
                    part += wire.length_delimited(wire.varint(inner), content)
            library += wire.length_delimited(b"\x12", bytes(part))
        elif key == 0x22:
            library += wire.length_delimited(b"\x22", data[a:b])
    graph.library = bytes(library)
    return graph


def _without_nodes(function: bytes) -> bytes:
    """Returns a `FunctionDef`, which has no fields but messages, without its nodes."""
    return b"".join(
        wire.length_delimited(wire.varint(key), function[a:b])
        for key, a, b in wire.fields(function, 0, len(function))
        if key != 0x1A and key & 7 == wire.LENGTH_DELIMITED
    )


def _read_node(data: bytes) -> Node:
    node = Node(origin=decode_origin(data))
    inputs: list[str] = []
    holders: list[Holder] = []
    for key, a, b in wire.fields(data, 0, len(data)):
        if key == 0x0A:
            node.name = data[a:b].decode()
        elif key == 0x12:
            node.op = data[a:b].decode()
        elif key == 0x1A:
            inputs.append(data[a:b].decode())
        elif key == 0x22:
            node.device = data[a:b].decode()
        elif key == 0x2A:
            name, value = wire.read_entry(data[a:b])
            node.attributes[name] = value
        elif key == MEMBER:
            node.group = a
        elif key == HOLDER:
            holders.append(read_holder(data[a:b]))
    node.inputs, node.holders = inputs or (), holders or ()
    return node


def _read_function(data: bytes) -> Function:
    signature = b"".join(wire.all_fields(data, 0x0A))  # protobuf merges a message that is given in parts
    arguments = map(wire.last_fields, wire.all_fields(signature, 0x12))
    returns = [
        (name, prefix + source.decode())
        for key, prefix in ((0x22, ""), (0x32, "^"))
        for name, source in map(wire.read_entry, wire.all_fields(data, key))
    ]
    return Function(
        name=wire.last_fields(signature).get(0x0A, b"").decode(),
        arguments=[(argument.get(0x0A, b"").decode(), argument.get(0x18, 0)) for argument in arguments],
        nodes=list(map(_read_node, wire.all_fields(data, 0x1A))),
        returns=returns,
    )


def encode_node(
    name: str, op: str, inputs: Iterable[str], attributes: Mapping[str, bytes | None], marks: bytes = b""
) -> bytes:
    """Encodes a `NodeDef`; an attribute that is None is left out."""
    out = [wire.text(b"\x0a", name), wire.text(b"\x12", op)]
    out += [wire.text(b"\x1a", each) for each in inputs]
    for key, value in sorted(attributes.items()):  # a map has no order of its own
        if value is not None:
            out.append(wire.length_delimited(b"\x2a", wire.entry(key, value)))
    out.append(marks)
    return b"".join(out)
