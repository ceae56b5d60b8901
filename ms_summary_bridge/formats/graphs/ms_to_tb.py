"""The compiled network: MindSpore's ANF graph to a TensorFlow graph that TensorBoard draws as a hierarchy.

Bytes in, bytes out; knows both formats' graphs and neither format's events.

Source: `proto/mindspore/graph.proto`, and what MindSpore writes into it:
https://github.com/mindspore-ai/mindspore/blob/02ea13be381445c24108c5c875de4f6225a9092e/mindspore/ccsrc/debug/dump_proto.cc
(ExportFuncGraph and the functions it calls). An input names an operator by its number, a parameter by its name, or a
constant by `cst<n>`; it does not say which of a producer's outputs is meant. An operator that is itself computed, or is
a graph, is written without a name; the count goes on. What TensorBoard makes of a graph stands in
`formats.graphs.tb_names` and `formats.graphs.tb_values`; beyond that:

* Nodes with the operator `Const` are drawn small and beside the node that takes them, so each scope has a copy of its
  own. Nodes with an operator that ends in `Summary` are drawn as marks on what they take (`graph.ts`, build).
* Fields it does not know are passed over, so that our marks (field 1000, as in plugin data: the graph is drawn by us,
  a node is not an operator, and what it was called; and those of `formats.graphs.marks`) do no harm. Measured on 2.21,
  both loaders.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final

from ms_summary_bridge.errors import InvalidValueError
from ms_summary_bridge.formats import wire
from ms_summary_bridge.formats.graphs.counts import GraphCounts
from ms_summary_bridge.formats.graphs.errors import read_safely
from ms_summary_bridge.formats.graphs.marks import Holder, encode_member
from ms_summary_bridge.formats.graphs.ms_graph import Graph, Operator, Output, Parameter, read_graph
from ms_summary_bridge.formats.graphs.placement import ParameterPlaces, find_crowds
from ms_summary_bridge.formats.graphs.tb_graph import encode_node
from ms_summary_bridge.formats.graphs.tb_names import common_scope, legal_name, scope_of
from ms_summary_bridge.formats.graphs.tb_values import ValueEncoder, to_bytes
from ms_summary_bridge.formats.plugin_data import Origin, encode_origin
from ms_summary_bridge.formats.protos import tb_pb
from ms_summary_bridge.formats.unique_names import UniqueNames

__all__ = ["convert_graph", "convert_graph_event"]

_GRAPH: Final = 0x22  # field 4: graph_def of an Event, graph of a ModelProto
_PRODUCER: Final = 22  # the version TensorFlow 1.x wrote; TensorBoard asks for none
_OUTPUT_SCOPE: Final = "output"
_UNUSED_SCOPE: Final = "unused"
_UNKNOWN: Final = "Unknown"
_CALL: Final = "Call"  # of a graph that is computed while the network runs: written without an operator
_GET_ITEM: Final = {"TupleGetItem", "RealTupleGetItem"}


def convert_graph_event(payload: bytes) -> tuple[bytes, GraphCounts]:
    """Converts the graph in the payload of a MindSpore event record; a `ModelProto` (.pb file) will do as well.

    Returns:
        As `convert_graph`.

    Raises:
        InvalidValueError: The payload has no graph, or a damaged one.
    """
    parts = read_safely(lambda: wire.all_fields(payload, _GRAPH))
    if not parts:
        raise InvalidValueError("the event holds no graph")
    return convert_graph(b"".join(parts))  # protobuf merges a message that is given in parts


def convert_graph(graph: bytes) -> tuple[bytes, GraphCounts]:
    """Converts a MindSpore `GraphProto`.

    Returns:
        The bytes of a TensorFlow `GraphDef`, the same for the same input, and what was drawn.

    Raises:
        InvalidValueError: The bytes are not a graph, a text in it is not UTF-8, it is nested too deep, or it is empty.

    Loss: which output of a tuple an edge takes, but for `TupleGetItem`; elements of long values; the order of control
    edges among data edges. The operators' attributes stay, in words where TensorFlow has no such value.
    """
    drawing = _Drawing()
    read_safely(lambda: drawing.draw(graph, "", 0))
    if not drawing.counts.drawn:
        raise InvalidValueError("the graph is empty")
    return drawing.finish(), drawing.counts


class _Drawing:
    """One `GraphDef` in the making."""

    def __init__(self) -> None:
        self.counts = GraphCounts()
        self.names = UniqueNames()
        self.values = ValueEncoder()
        self._parts: list[bytes] = []

    def finish(self) -> bytes:
        mark = encode_origin(Origin(derived=True, kind="graph"))
        versions = tb_pb.GraphDef(versions=tb_pb.VersionDef(producer=_PRODUCER)).SerializeToString()
        return b"".join([mark, *self._parts, versions])

    def draw(self, data: bytes, scope: str, number: int) -> None:
        """Draws a graph, all names behind `scope` and all nodes marked with `number`, and then the graphs inside it."""
        drawing = _GraphDrawing(self, read_graph(data), scope, number)
        drawing.draw()
        for inner_number, key, inner in drawing.inner:
            name = b"".join(wire.all_fields(inner, 0x12)).decode()
            wish = (name or key or "graph").replace("/", "_")
            self.draw(inner, self.names.take(legal_name(f"{scope}/{wish}" if scope else wish)), inner_number)

    def put(self, name: str, op: str, inputs: list[str], attrs: dict[str, bytes], marks: bytes) -> None:
        self.counts.drawn += 1
        self._parts.append(wire.length_delimited(b"\x0a", encode_node(name, op, inputs, attrs, marks)))


class _GraphDrawing:
    """One ANF graph: first every operator gets its name, then all that it takes, then they are written."""

    def __init__(self, whole: _Drawing, graph: Graph, scope: str, number: int) -> None:
        self._graph = graph
        self._member = encode_member(number)
        self._names, self._counts, self._values, self._put = whole.names, whole.counts, whole.values, whole.put
        self.inner: list[tuple[int, str, bytes]] = []
        """The graphs inside this one: number, name for one without, bytes."""
        # What the first graph in each constant, and in each attribute of each operator, is numbered if there is one.
        self._first_of_constant = [self._number_graphs(each.name, each.value) for each in graph.constants]
        self._first_of_attribute = [
            [self._number_graphs(*attribute) for attribute in operator.attributes] for operator in graph.operators
        ]
        self._prefix = f"{scope}/" if scope else ""
        self._first_parameter = len(graph.operators)
        self._first_constant = self._first_parameter + len(graph.parameters)
        # What an edge may come from: operators, parameters and constants, numbered in this order.
        self._source_of: dict[str, int] = {}  # by the name it has in the source
        self._drawn: list[str] = []  # by number: the names of operators and parameters
        self._plain: list[str] = []  # by number: the names of operators, but for a scope that they get in a crowd
        self._crowds: list[str] = []  # by number: those scopes, empty for most
        self._unknown: dict[str, str] = {}  # name that nothing has -> name drawn
        self._copies: dict[tuple[int, str], str] = {}  # constant and scope -> name drawn

    def _number_graphs(self, key: str, value: bytes) -> int:
        first = self._counts.subgraphs + 1
        for graph in self._values.value(value).graphs:
            self._counts.subgraphs += 1
            self.inner.append((self._counts.subgraphs, key, graph))
        return first

    def draw(self) -> None:
        self._name_operators()
        self._name_parameters()
        for name, parameter in zip(self._drawn[self._first_parameter :], self._graph.parameters, strict=True):
            self._put_parameter(parameter, name)
        for number, operator in enumerate(self._graph.operators):
            self._put_operator(operator, number)
        for output in self._graph.outputs:
            self._put_output(output)
        used = {number for number, _ in self._copies}
        for number in range(self._first_constant, self._first_constant + len(self._graph.constants)):
            if number not in used:
                self._copy_of(number, self._prefix + _UNUSED_SCOPE, "Unused")  # a Const beside nothing is not shown

    # ------------------------------------------------------------------------------------------------ names

    def _name_operators(self) -> None:
        graph, counts = self._graph, self._counts
        for number, operator in enumerate(graph.operators):
            wish = operator.full_name
            if not wish:
                wish = f"{operator.scope}/" if operator.scope else ""
                wish += f"{operator.op_type or _CALL}-op{operator.name or number + 1}"
            self._plain.append(self._prefix + wish)
        legal = list(map(legal_name, self._plain))
        kinds = [operator.op_type or _CALL for operator in graph.operators]
        self._crowds = find_crowds([*zip(legal, kinds, strict=True)])
        for plain, name, crowd in zip(self._plain, legal, self._crowds, strict=True):
            scope, slash, leaf = name.rpartition("/")
            wish = legal_name(f"{scope}{slash}{crowd.replace('/', '_')}/{leaf}") if crowd else name
            taken = self._names.take(wish)
            counts.renamed += taken != wish or name != plain
            self._drawn.append(taken)
        ids = chain(
            (operator.name for operator in graph.operators),
            (parameter.name for parameter in graph.parameters),
            (constant.name for constant in graph.constants),
        )
        for number, key in enumerate(ids):
            if key:
                counts.ambiguous += self._source_of.setdefault(key, number) != number
        for number, operator in enumerate(graph.operators):
            if not operator.name:  # the number it would have had stands in what takes it
                self._source_of.setdefault(str(number + 1), number)
        counts.operators += len(graph.operators)
        counts.parameters += len(graph.parameters)
        counts.constants += len(graph.constants)
        counts.outputs += len(graph.outputs)

    def _name_parameters(self) -> None:
        """Places parameters where `ParameterPlaces` says, and names that nothing has beside all that take them."""
        first, end = self._first_parameter, self._first_constant
        uses: list[list[str]] = [[] for _ in range(first, end)]
        outputs: set[int] = set()
        unknown: dict[str, str] = {}
        for scope, used in self._uses():
            source = self._source_of.get(used)
            if source is None:
                known = unknown.get(used)
                unknown[used] = scope if known is None else common_scope(known, scope)
            elif first <= source < end:
                if scope == self._prefix + _OUTPUT_SCOPE:
                    outputs.add(source - first)
                else:
                    uses[source - first].append(scope)
        names = [parameter.name or "parameter" for parameter in self._graph.parameters]
        places = ParameterPlaces(map(scope_of, self._drawn), names, uses, self._prefix).find()
        for number, (scope, name) in enumerate(places):
            if not uses[number]:
                scope = self._prefix + (_OUTPUT_SCOPE if number in outputs else _UNUSED_SCOPE)
            self._drawn.append(self._take(scope, name))
        for key, scope in unknown.items():  # no number: nothing has this name
            self._counts.unknown += 1
            name = self._unknown[key] = self._take(scope, key or "unnamed")
            self._put(name, _UNKNOWN, [], {}, self._marks(Origin(key, kind="unknown")))

    def _uses(self) -> Iterator[tuple[str, str]]:
        """Yields each edge as the scope of what takes it, and the name of what it comes from."""
        for drawn, operator in zip(self._drawn, self._graph.operators, strict=True):
            scope = scope_of(drawn)
            for name, _ in operator.inputs:
                yield scope, name
        for output in self._graph.outputs:
            yield self._prefix + _OUTPUT_SCOPE, output.name

    def _take(self, scope: str, name: str) -> str:
        name = name.replace("/", "_")
        return self._names.take(legal_name(f"{scope}/{name}" if scope else name))

    # ------------------------------------------------------------------------------------------------ nodes

    def _put_parameter(self, parameter: Parameter, name: str) -> None:
        attrs = self._values.type(parameter.type).attributes("dtype")
        if parameter.default is not None:
            attrs["value"] = self._values.value(parameter.default).value
        self._put(name, "Parameter", [], attrs, self._marks(Origin(parameter.name, kind="parameter")))

    def _put_operator(self, operator: Operator, number: int) -> None:
        name, first = self._drawn[number], self._first_of_attribute[number]
        scope = scope_of(name)
        data: list[str] = []
        control: list[str] = []
        for source, is_control in operator.inputs:
            if is_control:
                control.append(f"^{self._edge_from(source, scope)}")
            else:
                data.append(self._edge_from(source, scope))
        if operator.op_type in _GET_ITEM and len(data) == len(operator.inputs) == 2:
            data[0] += self._output_index(operator)
        self._counts.control_edges += len(control)

        attrs = self._values.type(operator.output_type).attributes("T")
        full_name = operator.full_name or self._plain[number].removeprefix(self._prefix)
        if full_name != name and (operator.full_name or self._crowds[number]):
            attrs["full_name"] = wire.length_delimited(b"\x12", to_bytes(full_name))
        if operator.instance_name:
            attrs["instance_name"] = wire.length_delimited(b"\x12", to_bytes(operator.instance_name))
        marks = self._member
        if self._prefix and not operator.full_name and not self._crowds[number]:
            marks += encode_origin(Origin(name.removeprefix(self._prefix)))
        keys = UniqueNames(attrs)
        for (key, value), first_graph in zip(operator.attributes, first, strict=True):
            key = keys.take(key or "attribute")
            encoded = self._values.value(value)
            attrs[key] = encoded.value
            if encoded.graphs:
                marks += Holder(key, first_graph, encoded.outline).encode()
        self._put(name, operator.op_type or _CALL, data + control, attrs, marks)  # TensorFlow's order of edges

    def _put_output(self, output: Output) -> None:
        scope = self._prefix + _OUTPUT_SCOPE
        source = self._edge_from(output.name, scope)
        attrs = self._values.type(output.type).attributes("T")
        name = self._take(scope, source.rpartition("/")[2])
        self._put(name, "Output", [source], attrs, self._marks(Origin(output.name, kind="output")))

    def _marks(self, origin: Origin) -> bytes:
        return encode_origin(origin) + self._member

    # ------------------------------------------------------------------------------------------------ edges

    def _edge_from(self, key: str, scope: str) -> str:
        """Counts an edge, and returns the drawn name of what it comes from."""
        self._counts.edges += 1
        number = self._source_of.get(key)
        if number is None:
            self._counts.dangling_edges += 1
            return self._unknown[key]
        return self._drawn[number] if number < self._first_constant else self._copy_of(number, scope)

    def _copy_of(self, number: int, scope: str, op: str = "Const") -> str:
        """Returns the copy of a constant in a scope, and draws it when it is asked for first."""
        name = self._copies.get((number, scope))
        if name is None:
            constant = self._graph.constants[number - self._first_constant]
            name = self._copies[number, scope] = self._take(scope, constant.name or "constant")
            encoded = self._values.value(constant.value)
            attrs = {"value": encoded.value}
            if encoded.type is not None and encoded.shapes is not None:
                attrs["dtype"] = encoded.type
                attrs["_output_shapes"] = encoded.shapes
            self._counts.constant_copies += 1
            marks = self._marks(Origin(constant.name, kind="constant"))
            if encoded.graphs:
                first = self._first_of_constant[number - self._first_constant]
                marks += Holder("value", first, encoded.outline).encode()
            self._put(name, op, [], attrs, marks)
        return name

    def _output_index(self, operator: Operator) -> str:
        """Returns `:i` for an operator that takes the i-th output of another one, where the index is a constant."""
        (taken, _), (index, _) = operator.inputs
        producer = self._source_of.get(taken, self._first_constant)
        constant = self._source_of.get(index, -1) - self._first_constant
        if constant >= 0 and producer < self._first_parameter:
            number = self._values.value(self._graph.constants[constant].value).index
            if 0 < number < self._values.type(self._graph.operators[producer].output_type).elements:
                return f":{number}"
        return ""
