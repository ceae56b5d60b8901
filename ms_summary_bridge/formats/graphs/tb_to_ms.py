"""A TensorFlow graph to MindSpore's ANF graph, which MindInsight draws as a hierarchy.

Bytes in, bytes out; knows both formats' graphs and neither format's events.

Source: `proto/tensorboard/graph.proto` and `proto/mindspore/graph.proto`; what MindInsight makes of names stands in
`ms_names`, of types and values in `ms_values`. Beyond that, measured on MindInsight 2.3.1:

* An input names an operator by its number, a parameter or a constant by its name; which output is meant cannot be said.
* Parameters and constants take no inputs, are drawn beside what takes them, and not at all where nothing does. So a
  node becomes one of these only if it takes nothing and something takes it; else it is drawn as an operator.
* Several edges from one node to another are drawn as one. An edge from a name that nothing has is passed over.
* Graphs inside a graph are not drawn, so the functions of the library are put beside it, each in a scope of its own
  (see `formats.graphs.marks`).
* Fields it does not know are passed over, so that each part says what it was (see `formats.graphs.ms_graph`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from ms_summary_bridge.errors import InvalidValueError
from ms_summary_bridge.formats import wire
from ms_summary_bridge.formats.graphs.counts import GraphCounts
from ms_summary_bridge.formats.graphs.errors import read_safely
from ms_summary_bridge.formats.graphs.marks import LIBRARY, SHAPES, encode_mark, encode_member
from ms_summary_bridge.formats.graphs.ms_graph import FUNCTION, encode_graph, encode_input, encode_operator
from ms_summary_bridge.formats.graphs.ms_names import AnfNames, drawable_name
from ms_summary_bridge.formats.graphs.ms_values import AnfValueEncoder
from ms_summary_bridge.formats.graphs.tb_graph import Function, GraphDef, Node, read_graph_def, split_input
from ms_summary_bridge.formats.plugin_data import Origin, encode_origin
from ms_summary_bridge.formats.unique_names import UniqueNames

__all__ = ["convert_graph_def"]

_CONSTANTS: Final = {"Const", "prim::Constant", "Constant"}
_PARAMETERS: Final = {
    *("Placeholder", "PlaceholderV2", "Variable", "VariableV2", "VarHandleOp", "Parameter", "_Arg"),
    "IO Node",  # as tensorboardX calls the inputs of a network
}
_ARGUMENT: Final = "Argument"
_RETURN: Final = "Return"
_FUNCTION_NAME: Final = b"\x52"  # field `func` of an AttrValue, which has one field
_RESERVED: Final = {"Const", "Parameter"}  # operators that MindInsight would take for these
_TYPE_ATTRIBUTES: Final = ("dtype", "DstT", "output_type", "out_type", "Tout", "T")  # the first that there is


def convert_graph_def(graph_def: bytes) -> tuple[bytes, GraphCounts]:
    """Converts a TensorFlow `GraphDef`.

    Returns:
        The bytes of a MindSpore `GraphProto`, the same for the same input, and what was drawn.

    Raises:
        InvalidValueError: The bytes are not a graph, a text in it is not UTF-8, or it is empty.

    Loss: elements of long values; which output an edge takes is kept, but MindInsight does not show it.
    """
    return read_safely(lambda: _Drawing(read_graph_def(graph_def)).draw())


class _Drawn(msgspec.Struct, gc=False):
    """One node of the source, and what becomes of it."""

    node: Node
    group: int
    """0 for the graph, else the number of the function: names are looked up there."""
    scope: str
    """Of the function, with a slash; empty for the graph."""
    is_signature: bool = False
    """An argument or an output of the function."""
    is_used: bool = False
    id: str = ""
    """What an input calls it; empty where none does."""
    full_name: str = ""

    @property
    def name(self) -> str:
        """The node's name, with the scope of the function before it."""
        return self.scope + self.node.name


class _Drawing:
    """One ANF graph in the making: first all nodes get their names, then they are written."""

    def __init__(self, source: GraphDef) -> None:
        self.counts = GraphCounts(functions=len(source.functions))
        self._values = AnfValueEncoder()
        self._attributes: dict[tuple[str, bytes], bytes] = {}  # few are distinct
        self._nodes: list[_Drawn] = []
        self._found: list[dict[str, _Drawn]] = []  # by group: node by its name
        self._scopes: list[str] = []  # by group
        self._dangling: dict[str, str] = {}  # name that nothing has -> name written
        self._names = AnfNames(())
        self._library = source.library
        self._add_group(((node, False) for node in source.nodes), "")
        self.counts.nodes = len(source.nodes)
        scopes = UniqueNames(node.name.partition("/")[0] for node in source.nodes)
        for function in source.functions:
            self.counts.nodes += len(function.nodes)
            scope = scopes.take(drawable_name(function.name or "function").replace("/", "."))
            self._add_group(self._nodes_of(function), scope)

    def _nodes_of(self, function: Function) -> Iterator[tuple[Node, bool]]:
        """Yields the nodes of a function, and before and behind them (True) its arguments and its outputs."""
        self.counts.arguments += len(function.arguments)
        self.counts.returns += len(function.returns)
        for name, number in function.arguments:
            yield Node(name, _ARGUMENT, attributes=_type_attribute(number)), True
        for node in function.nodes:
            yield node, False
        for name, source in function.returns:
            yield Node(f"return/{name}", _RETURN, [source]), True

    def _add_group(self, nodes: Iterable[tuple[Node, bool]], scope: str) -> None:
        found: dict[str, _Drawn] = {}
        group = len(self._found)
        self._found.append(found)
        prefix = f"{scope}/" if scope else ""
        self._scopes.append(prefix)
        for node, is_signature in nodes:
            drawn = _Drawn(node, group, prefix, is_signature)
            self._nodes.append(drawn)
            self.counts.ambiguous += found.setdefault(node.name, drawn) is not drawn

    def draw(self) -> tuple[bytes, GraphCounts]:
        if not self._nodes:
            raise InvalidValueError("the graph is empty")
        for drawn in self._nodes:
            for text in drawn.node.inputs:
                source = self._found[drawn.group].get(split_input(text)[0])
                if source is not None:
                    source.is_used = True
        plain: list[_Drawn] = []
        operators: list[_Drawn] = []
        for drawn in self._nodes:
            (plain if self._is_plain(drawn) else operators).append(drawn)
        # From here on only what an edge comes from is looked up, and what is written is forgotten.
        self._nodes.clear()
        self._found = [{name: drawn for name, drawn in group.items() if drawn.is_used} for group in self._found]
        self._names = AnfNames(drawn.name for drawn in operators)
        for number, (drawn, name) in enumerate(zip(operators, self._names.operators, strict=True), 1):
            drawn.full_name = name
            if drawn.is_used:
                drawn.id = str(number)
            self.counts.renamed += name != drawn.name
        for drawn in plain:
            drawn.id = self._names.take_id(drawn.name)
        parameters = [self._parameter(drawn) for drawn in plain if drawn.node.op not in _CONSTANTS]
        constants = [self._constant(drawn) for drawn in plain if drawn.node.op in _CONSTANTS]
        counts = self.counts
        counts.operators, counts.parameters, counts.constants = len(operators), len(parameters), len(constants)
        mark = encode_origin(Origin(derived=True, kind="graph"))
        library = encode_mark(LIBRARY, self._library) if self._library else b""
        return encode_graph(self._encode(operators), parameters, [], constants, mark, library), counts

    def _encode(self, operators: list[_Drawn]) -> Iterator[bytes]:
        operators.reverse()
        for number in range(1, len(operators) + 1):
            yield self._operator(operators.pop(), str(number))

    def _is_plain(self, drawn: _Drawn) -> bool:
        """Whether a node becomes a parameter or a constant."""
        node = drawn.node
        return drawn.is_used and not node.inputs and (node.op in _CONSTANTS or node.op in _PARAMETERS | {_ARGUMENT})

    # ------------------------------------------------------------------------------------------------ nodes

    def _parameter(self, drawn: _Drawn) -> bytes:
        out = wire.entry(drawn.id, self._type(drawn.node.attributes))
        return out + _marks(drawn, Origin(drawn.node.name, kind=drawn.node.op))

    def _constant(self, drawn: _Drawn) -> bytes:
        out = wire.entry(drawn.id, self._values.constant(drawn.node.attributes))
        out += encode_mark(SHAPES, drawn.node.attributes.get("_output_shapes", b""))
        return out + _marks(drawn, Origin(drawn.node.name, kind=drawn.node.op))

    def _operator(self, drawn: _Drawn, number: str) -> bytes:
        node = drawn.node
        attributes = {key: value for key, value in node.attributes.items() if key != "_output_shapes"}
        op = node.op or "Unknown"
        if op in _RESERVED or op.endswith("_scope"):
            op = f"{op}Op"
        is_renamed, is_other = drawn.full_name != node.name, op != node.op
        origin = Origin(node.name if is_renamed else None, kind=node.op if is_other else "")
        fields = [self._attribute(entry) for entry in sorted(attributes.items())]
        if node.device:
            fields.append(self._attribute(("device", wire.text(b"\x12", node.device))))
        return encode_operator(
            number, op, drawn.full_name, self._inputs(drawn), fields, self._type(node.attributes)
        ) + _marks(drawn, origin)

    def _attribute(self, entry: tuple[str, bytes]) -> bytes:
        encoded = self._attributes.get(entry)
        if encoded is None:
            encoded = wire.entry(entry[0], self._values.value(entry[1]))
            if entry[1].startswith(_FUNCTION_NAME):  # drawn in words
                encoded += encode_origin(Origin(kind=FUNCTION))
            self._attributes[entry] = encoded
        return encoded

    def _type(self, attributes: dict[str, bytes]) -> bytes:
        dtype = next((attributes[key] for key in _TYPE_ATTRIBUTES if key in attributes), b"")
        return self._values.type(dtype, attributes.get("_output_shapes", attributes.get("shape", b"")))

    # ------------------------------------------------------------------------------------------------ edges

    def _inputs(self, drawn: _Drawn) -> list[bytes]:
        counts = self.counts
        inputs: list[bytes] = []
        seen: set[str] = set()
        for text in sorted(drawn.node.inputs, key=_is_data):
            name, is_control, output = split_input(text)
            counts.edges += 1
            counts.control_edges += is_control
            source = self._found[drawn.group].get(name)
            if source is None:
                counts.dangling_edges += 1
                wish = self._scopes[drawn.group] + name
                known = self._dangling.get(wish)
                if known is None:
                    known = self._dangling[wish] = self._names.take_id(wish)
                inputs.append(encode_input(known, is_control, name + output))
                continue
            counts.merged_edges += source.id in seen
            seen.add(source.id)
            inputs.append(encode_input(source.id, is_control, output))
        return inputs


def _marks(drawn: _Drawn, origin: Origin) -> bytes:
    return encode_origin(origin) + encode_member(drawn.group, is_signature=drawn.is_signature)


def _is_data(text: str) -> bool:
    """Puts control edges first: of two edges from one node MindInsight draws the last, and data say more."""
    return not text.startswith("^")


@functools.lru_cache(64)  # one for many thousands of arguments
def _type_attribute(number: int) -> dict[str, bytes]:
    return {"dtype": b"\x30" + wire.varint(number)} if number else {}
