"""MindSpore's ANF graph: taken apart as far as drawing it needs, and put together of encoded parts.

Read from the wire, with values and types left as bytes: a network has few distinct ones among its many operators, so
each is looked at once. Inside a MindSpore process, where protobuf is pure Python, that is 12 times as fast as message
objects.

A graph that was made from a TensorFlow graph says in each part what that was there (`Origin`, field 1000, as in plugin
data: its name, and its operator for a kind; on an input, what stood behind the name). MindInsight's reader passes over
fields it does not know; measured on 2.3.1.

Source: `proto/mindspore/graph.proto`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from ms_summary_bridge.formats import wire
from ms_summary_bridge.formats.graphs.marks import LIBRARY, MEMBER, SHAPES, SIGNATURE
from ms_summary_bridge.formats.plugin_data import ORIGIN_KEY, Origin, decode_origin, encode_origin

__all__ = [
    "FUNCTION",
    "Constant",
    "Graph",
    "Operator",
    "Output",
    "Parameter",
    "Part",
    "encode_graph",
    "encode_input",
    "encode_operator",
    "read_graph",
]

FUNCTION: Final = "function"
"""Kind of the origin of an attribute that named a function."""


class Part(msgspec.Struct):
    """What an operator, a parameter and a constant say of the TensorFlow graph they were drawn from, if they were."""

    name: str = ""
    origin: Origin | None = None
    group: int = 0
    """Number of the function it was of; 0 for none."""
    is_signature: bool = False
    """Whether it was an argument or an output of that function, and no node."""

    def set_part(self, data: bytes, found: Mapping[int, Any], name_key: int) -> None:
        """Sets these fields from a message and its fields by their keys."""
        self.name = found.get(name_key, b"").decode()
        self.origin = decode_origin(data)
        if SIGNATURE in found or MEMBER in found:
            self.group = found.get(SIGNATURE) or found.get(MEMBER, 0)
            self.is_signature = SIGNATURE in found


class Operator(Part):
    """A `NodeProto`."""

    op_type: str = ""
    scope: str = ""
    full_name: str = ""
    instance_name: str = ""
    inputs: list[tuple[str, bool]] = []
    """Names of what it takes, and whether the edge is an order of execution only."""
    attributes: list[tuple[str, bytes]] = []
    """Names and `ValueProto`s."""
    output_type: bytes = b""
    """A `TypeProto`."""
    input_origins: list[str] = []
    """For each input what stood behind the name, or all of a name that nothing has."""
    called: set[str] = set()
    """Attributes that named a function in TensorFlow."""


class Parameter(Part):
    """A `ParameterProto`."""

    type: bytes = b""
    default: bytes | None = None


class Output(msgspec.Struct):
    """An `OutputProto`."""

    name: str = ""
    type: bytes = b""


class Constant(Part):
    """A `NamedValueProto`."""

    value: bytes = b""
    shapes: bytes | None = None
    """Those its node gave, as an `AttrValue`; empty: it gave none; None: it is not known."""


class Graph(msgspec.Struct):
    """A `GraphProto`."""

    name: str = ""
    operators: list[Operator] = []
    parameters: list[Parameter] = []
    outputs: list[Output] = []
    constants: list[Constant] = []
    library: bytes = b""
    """All of the TensorFlow graph it was drawn from but nodes; a `GraphDef`."""


# ------------------------------------------------------------------------------------------------------- reading


def read_graph(data: bytes) -> Graph:
    """Reads a `GraphProto`.

    Raises:
        EventDecodeError: The bytes are not a message.
        UnicodeDecodeError: A name is not UTF-8.
    """
    graph = Graph()
    for key, a, b in wire.fields(data, 0, len(data)):
        if key == 0x0A:
            graph.operators.append(_read_operator(data[a:b]))
        elif key == 0x12:
            graph.name = data[a:b].decode()
        elif key == 0x1A:
            graph.parameters.append(_read_parameter(data[a:b]))
        elif key == 0x22:
            graph.outputs.append(Output(*wire.read_entry(data[a:b])))
        elif key == 0x2A:
            graph.constants.append(_read_constant(data[a:b]))
        elif key == LIBRARY:
            graph.library = data[a:b]
    return graph


def _read_operator(data: bytes) -> Operator:
    operator = Operator()
    found: dict[int, Any] = {}
    for key, a, b in wire.fields(data, 0, len(data)):
        if key == 0x0A:
            _read_input(operator, data, a, b)
        elif key == 0x1A:
            operator.op_type = data[a:b].decode()
        elif key == 0x22:
            operator.scope = data[a:b].decode()
        elif key == 0x2A:
            name, value = wire.read_entry(data[a:b])
            operator.attributes.append((name, value))
            origin = decode_origin(data[a:b])
            if origin is not None and origin.kind == FUNCTION:
                operator.called.add(name)
        elif key == 0x32:
            operator.output_type = data[a:b]
        elif key == 0x42:
            operator.full_name = data[a:b].decode()
        elif key == 0x52:
            operator.instance_name = data[a:b].decode()
        else:
            found[key] = a if key & 7 == wire.VARINT else data[a:b]
    operator.set_part(data, found, 0x12)
    return operator


def _read_input(operator: Operator, data: bytes, start: int, end: int) -> None:
    name, is_control, origin = "", False, None
    for key, a, b in wire.fields(data, start, end):
        if key == 0x0A:
            name = data[a:b].decode()
        elif key == 0x10:
            is_control = a == 1  # CONTROL_EDGE; a number protobuf does not know it reads as the first, DATA_EDGE
        elif key == ORIGIN_KEY:
            origin = decode_origin(data[start:end])
    operator.inputs.append((name, is_control))
    operator.input_origins.append((origin and origin.tag) or "")


def _read_parameter(data: bytes) -> Parameter:
    found = wire.last_fields(data)
    parameter = Parameter(type=found.get(0x12, b""), default=found.get(0x1A))
    parameter.set_part(data, found, 0x0A)
    return parameter


def _read_constant(data: bytes) -> Constant:
    found = wire.last_fields(data)
    constant = Constant(value=found.get(0x12, b""), shapes=found.get(SHAPES))
    constant.set_part(data, found, 0x0A)
    return constant


# ------------------------------------------------------------------------------------------------------- writing


def encode_input(name: str, is_control: bool, origin: str = "") -> bytes:
    """Encodes an `InputProto`; `origin` is what stood behind the name, or all of a name that nothing has."""
    out = wire.text(b"\x0a", name) + (b"\x10\x01" if is_control else b"\x10\x00")
    return out + encode_origin(Origin(origin)) if origin else out


def encode_operator(
    name: str, op_type: str, full_name: str, inputs: list[bytes], attributes: list[bytes], type_: bytes
) -> bytes:
    """Encodes a `NodeProto`; its scope is that of its full name, as MindInsight needs it."""
    out = [wire.length_delimited(b"\x0a", each) for each in inputs]
    out += [wire.text(b"\x12", name), wire.text(b"\x1a", op_type), wire.text(b"\x22", full_name.rpartition("/")[0])]
    out += [wire.length_delimited(b"\x2a", each) for each in attributes]
    if type_:
        out.append(wire.length_delimited(b"\x32", type_))
    out.append(wire.text(b"\x42", full_name))
    return b"".join(out)


def encode_graph(
    operators: Iterable[bytes], parameters: Iterable[bytes], outputs: Iterable[bytes], constants: Iterable[bytes]
) -> bytes:
    """Encodes a `GraphProto` of encoded parts."""
    groups = ((b"\x0a", operators), (b"\x1a", parameters), (b"\x22", outputs), (b"\x2a", constants))
    return b"".join(wire.length_delimited(key, part) for key, parts in groups for part in parts)
