"""MindSpore's ANF graph, taken apart as far as drawing it needs.

Read from the wire, with values and types left as bytes: a network has few distinct ones among its many operators, so
each is looked at once. Inside a MindSpore process, where protobuf is pure Python, that is 12 times as fast as message
objects.

A graph that was made from a TensorFlow graph says in each part what that was there (`Origin`, field 1000, as in plugin
data: its name, and its operator for a kind; on an input, what stood behind the name). MindInsight's reader passes over
fields it does not know; measured on 2.3.1.

Source: `proto/mindspore/graph.proto`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ms_summary_bridge.formats import wire
from ms_summary_bridge.formats.graphs.marks import LIBRARY, MEMBER, SHAPES, SIGNATURE
from ms_summary_bridge.formats.plugin_data import Origin, decode_origin

__all__ = ["FUNCTION", "Constant", "Graph", "Operator", "Output", "Parameter", "Part", "read_graph"]

FUNCTION: Final = "function"
"""Kind of the origin of an attribute that named a function."""
_ORIGIN: Final = 1000 << 3 | wire.LENGTH_DELIMITED


class Part(msgspec.Struct):
    """What an operator, a parameter and a constant say of the TensorFlow graph they were drawn from, if they were."""

    origin: Origin | None = None
    group: int = 0
    """Number of the function it was of; 0 for none."""
    is_signature: bool = False
    """Whether it was an argument or an output of that function, and no node."""

    def read(self, key: int, value: int, data: bytes, start: int, end: int) -> None:
        """Reads the field `key`, if it is one of ours, of the message in `data[start:end]`."""
        if key == _ORIGIN:
            self.origin = decode_origin(data[start:end])
        elif key in (MEMBER, SIGNATURE):
            self.group, self.is_signature = value, key == SIGNATURE


class Operator(Part):
    """A `NodeProto`."""

    name: str = ""
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
    input_origins: dict[int, str] = {}
    """By the number of an input."""
    called: set[str] = set()
    """Attributes that named a function in TensorFlow."""


class Parameter(Part):
    """A `ParameterProto`."""

    name: str = ""
    type: bytes = b""
    default: bytes | None = None


class Output(msgspec.Struct):
    """An `OutputProto`."""

    name: str = ""
    type: bytes = b""


class Constant(Part):
    """A `NamedValueProto`."""

    name: str = ""
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


def read_graph(data: bytes) -> Graph:
    """Reads a `GraphProto`.

    Raises:
        EventDecodeError: The bytes are no message.
        UnicodeDecodeError: A name is not UTF-8.
    """
    graph = Graph()
    for key, a, b in wire.fields(data, 0, len(data)):
        if key == 0x0A:
            graph.operators.append(_read_operator(data, a, b))
        elif key == 0x12:
            graph.name = data[a:b].decode()
        elif key == 0x1A:
            graph.parameters.append(_read_parameter(data, a, b))
        elif key == 0x22:
            graph.outputs.append(Output(*wire.read_entry(data, a, b)))
        elif key == 0x2A:
            graph.constants.append(_read_constant(data, a, b))
        elif key == LIBRARY:
            graph.library = data[a:b]
    return graph


def _read_operator(data: bytes, start: int, end: int) -> Operator:
    operator = Operator()
    for key, a, b in wire.fields(data, start, end):
        if key == 0x0A:
            name, is_control, origin = _read_input(data, a, b)
            if origin:
                operator.input_origins[len(operator.inputs)] = origin
            operator.inputs.append((name, is_control))
        elif key == 0x12:
            operator.name = data[a:b].decode()
        elif key == 0x1A:
            operator.op_type = data[a:b].decode()
        elif key == 0x22:
            operator.scope = data[a:b].decode()
        elif key == 0x2A:
            name, value = wire.read_entry(data, a, b)
            operator.attributes.append((name, value))
            found = decode_origin(data[a:b])
            if found is not None and found.kind == FUNCTION:
                operator.called.add(name)
        elif key == 0x32:
            operator.output_type = data[a:b]
        elif key == 0x42:
            operator.full_name = data[a:b].decode()
        elif key == 0x52:
            operator.instance_name = data[a:b].decode()
        else:
            operator.read(key, a, data, start, end)
    return operator


def _read_input(data: bytes, start: int, end: int) -> tuple[str, bool, str]:
    name = origin = ""
    is_control = False
    for key, a, b in wire.fields(data, start, end):
        if key == 0x0A:
            name = data[a:b].decode()
        elif key == 0x10:
            is_control = a == 1  # CONTROL_EDGE; a number protobuf does not know it reads as the first, DATA_EDGE
        elif key == _ORIGIN:
            found = decode_origin(data[start:end])
            origin = (found and found.tag) or ""
    return name, is_control, origin


def _read_parameter(data: bytes, start: int, end: int) -> Parameter:
    parameter = Parameter()
    for key, a, b in wire.fields(data, start, end):
        if key == 0x0A:
            parameter.name = data[a:b].decode()
        elif key == 0x12:
            parameter.type = data[a:b]
        elif key == 0x1A:
            parameter.default = data[a:b]
        else:
            parameter.read(key, a, data, start, end)
    return parameter


def _read_constant(data: bytes, start: int, end: int) -> Constant:
    constant = Constant()
    constant.name, constant.value = wire.read_entry(data, start, end)
    for key, a, b in wire.fields(data, start, end):
        if key == SHAPES:
            constant.shapes = data[a:b]
        else:
            constant.read(key, a, data, start, end)
    return constant
