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

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
    "read_operators",
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
    inputs: Sequence[tuple[str, bool]] = ()
    """Names of what it takes, and whether the edge is an order of execution only."""
    attributes: Sequence[tuple[str, bytes]] = ()
    """Names and `ValueProto`s."""
    output_type: bytes = b""
    """A `TypeProto`."""
    input_origins: Sequence[str] = ()
    """For each input what stood behind the name, or all of a name that nothing has."""
    called: Collection[str] = ()
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


def read_graph(data: bytes, *, with_operators: bool = True) -> Graph:
    """Reads a `GraphProto`; its operators, too, unless they are to be walked by `read_operators`.

    Raises:
        EventDecodeError: The bytes are not a message.
        UnicodeDecodeError: A name is not UTF-8.
    """
    graph = Graph()
    for key, a, b in wire.fields(data, 0, len(data)):
        if key == 0x0A:
            if with_operators:
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


def read_operators(data: bytes) -> Iterator[Operator]:
    """Yields the operators of a `GraphProto`, without holding them all; raises as `read_graph`."""
    for key, a, b in wire.fields(data, 0, len(data)):
        if key == 0x0A:
            yield _read_operator(data[a:b])


def _read_operator(data: bytes) -> Operator:
    operator = Operator()
    inputs: list[tuple[str, bool]] = []
    origins: list[str] = []
    attributes: list[tuple[str, bytes]] = []
    called: set[str] = set()
    found: dict[int, Any] = {}
    for key, a, b in wire.fields(data, 0, len(data)):
        if key == 0x0A:
            name, is_control, behind = _read_input(data, a, b)
            inputs.append((name, is_control))
            origins.append(behind)
        elif key == 0x1A:
            operator.op_type = sys.intern(data[a:b].decode())  # few are distinct
        elif key == 0x22:
            operator.scope = data[a:b].decode()
        elif key == 0x2A:
            name, value = wire.read_entry(data[a:b])
            attributes.append((name, value))
            origin = decode_origin(data[a:b])
            if origin is not None and origin.kind == FUNCTION:
                called.add(name)
        elif key == 0x32:
            operator.output_type = data[a:b]
        elif key == 0x42:
            operator.full_name = data[a:b].decode()
        elif key == 0x52:
            operator.instance_name = data[a:b].decode()
        else:
            found[key] = a if key & 7 == wire.VARINT else data[a:b]
    operator.set_part(data, found, 0x12)
    # Of a million operators that have none of these, none has an empty list.
    operator.inputs, operator.input_origins = inputs or (), origins or ()
    operator.attributes, operator.called = attributes or (), called or ()
    return operator


def _read_input(data: bytes, start: int, end: int) -> tuple[str, bool, str]:
    """Returns the name, whether the edge is an order of execution only, and what stood behind the name."""
    name, is_control, origin = "", False, None
    for key, a, b in wire.fields(data, start, end):
        if key == 0x0A:
            name = data[a:b].decode()
        elif key == 0x10:
            is_control = a == 1  # CONTROL_EDGE; a number protobuf does not know it reads as the first, DATA_EDGE
        elif key == ORIGIN_KEY:
            origin = decode_origin(data[start:end])
    return name, is_control, (origin and origin.tag) or ""


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
    operators: Iterable[bytes],
    parameters: Iterable[bytes],
    outputs: Iterable[bytes],
    constants: Iterable[bytes],
    *marks: bytes,
) -> bytes:
    """Encodes a `GraphProto` of encoded parts, with fields of ours behind them."""
    out = bytearray()  # and no list of all parts beside it
    for key, parts in ((b"\x0a", operators), (b"\x1a", parameters), (b"\x22", outputs), (b"\x2a", constants)):
        for part in parts:
            out += wire.length_delimited(key, part)
    for mark in marks:
        out += mark
    return bytes(out)
