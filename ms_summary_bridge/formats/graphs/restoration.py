"""Drawings of graphs, turned back: what `ms_to_tb` and `tb_to_ms` draw, without the original beside it.

What comes back has the nodes, edges, scopes, types and shapes of the original, and its functions or sub-graphs. A node
of a drawing says what it was where its kind or its name does not (field 1000, see the two modules), and which inner
graph it is of (`formats.graphs.marks`). Values that were drawn in words stay words.
"""

from __future__ import annotations

from ms_summary_bridge.errors import InvalidValueError
from ms_summary_bridge.formats import wire
from ms_summary_bridge.formats.graphs.counts import GraphCounts
from ms_summary_bridge.formats.graphs.errors import read_safely
from ms_summary_bridge.formats.graphs.marks import Holder
from ms_summary_bridge.formats.graphs.ms_graph import (
    Operator,
    Part,
    encode_graph,
    encode_input,
    encode_operator,
    read_graph,
    read_operators,
)
from ms_summary_bridge.formats.graphs.ms_values import AnfValueEncoder
from ms_summary_bridge.formats.graphs.tb_graph import Node, encode_node, read_graph_def, split_input
from ms_summary_bridge.formats.graphs.tb_values import ValueEncoder, graphs_in
from ms_summary_bridge.formats.plugin_data import Origin
from ms_summary_bridge.formats.protos import ms_pb, tb_pb
from ms_summary_bridge.formats.unique_names import UniqueNames

__all__ = ["restore_graph", "restore_graph_def"]

_TYPE_ATTRIBUTES = frozenset({"T", "_output_shapes", "output_type", "full_name"})


def restore_graph(graph_def: bytes) -> tuple[bytes, GraphCounts]:
    """Makes a MindSpore `GraphProto` from the `GraphDef` that `convert_graph` drew.

    Raises:
        InvalidValueError: The bytes are not a graph, or it is empty.

    Loss: values that were drawn in words, and what was cut; the order of control edges among data edges.
    """
    return read_safely(lambda: _restore_graph(graph_def))


def _restore_graph(graph_def: bytes) -> tuple[bytes, GraphCounts]:
    nodes = read_graph_def(graph_def).nodes
    if not nodes:
        raise InvalidValueError("the graph is empty")
    counts = GraphCounts()
    inner = _InnerGraphs(nodes)
    counts.subgraphs = len(inner.numbers)
    groups: dict[int, list[Node]] = {number: [] for number in (0, *inner.numbers)}
    for node in nodes:
        groups[node.group if node.group in groups else 0].append(node)
    for number in sorted(inner.numbers, reverse=True):  # what is inside a graph has a higher number
        inner.graphs[number] = _restore_group(groups[number], inner, counts)
    return _restore_group(groups[0], inner, counts), counts


class _InnerGraphs:
    """The graphs inside a graph: those that a value holds, and those that are restored and not yet put into one."""

    def __init__(self, nodes: list[Node]) -> None:
        self.numbers: set[int] = set()
        self.graphs: dict[int, bytes] = {}
        for node in nodes:
            for holder in node.holders:
                count = sum(1 for _ in graphs_in(ms_pb.ValueProto.FromString(holder.value)))
                if holder.first > node.group:  # else it would hold itself
                    self.numbers.update(range(holder.first, holder.first + count))

    def fill(self, holder: Holder) -> bytes:
        """Returns a value with its graphs. None is put into two, so that a damaged drawing does not multiply them."""
        value = ms_pb.ValueProto.FromString(holder.value)
        for number, graph in enumerate(graphs_in(value), holder.first):
            graph.MergeFromString(self.graphs.pop(number, b""))
        filled: bytes = value.SerializeToString()
        return filled


def _restore_group(nodes: list[Node], inner: _InnerGraphs, counts: GraphCounts) -> bytes:
    """Makes one graph of its nodes; those inside it are there already."""
    values = AnfValueEncoder()
    drawn = [node for node in nodes if not _kind_of(node)]
    ids = {node.name: str(number) for number, node in enumerate(drawn, 1)}  # by drawn name
    names = UniqueNames(ids.values())
    plain: dict[tuple[str, bytes, int], str] = {}  # constants: name, value and first graph in it to the name given
    parameters: list[bytes] = []
    constants: list[bytes] = []

    for node in nodes:
        name = (node.origin.tag or "") if node.origin is not None else ""
        if _kind_of(node) == "parameter":
            ids[node.name] = names.take(name)
            message = wire.entry(ids[node.name], _type_of(node, "dtype", values))
            if "value" in node.attributes:
                message += wire.length_delimited(b"\x1a", values.value(node.attributes["value"]))
            parameters.append(message)
        elif _kind_of(node) == "constant":  # there is a copy in each scope
            value = values.constant(node.attributes)
            holder = next(iter(node.holders), None)
            key = (name, value, holder.first if holder is not None else 0)
            if key not in plain:
                plain[key] = names.take(name)
                constants.append(wire.entry(plain[key], value if holder is None else inner.fill(holder)))
            ids[node.name] = plain[key]
    for node in nodes:
        if _kind_of(node) == "unknown" and node.origin is not None:
            ids[node.name] = names.take(node.origin.tag or "")
    operators: list[bytes] = []
    outputs: list[bytes] = []
    for node in nodes:
        if not _kind_of(node):
            operators.append(_operator(node, ids, values, inner))
            counts.edges += len(node.inputs)
        elif _kind_of(node) == "output":
            source = ids.get(split_input(node.inputs[0])[0], "") if node.inputs else ""
            outputs.append(wire.entry(source, _type_of(node, "T", values)))
            counts.edges += 1
    counts.operators += len(operators)
    counts.parameters += len(parameters)
    counts.constants += len(constants)
    counts.outputs += len(outputs)
    return encode_graph(operators, parameters, outputs, constants)


def _kind_of(node: Node) -> str:
    """Returns what a node was if it was no operator."""
    return node.origin.kind if node.origin is not None else ""


def _type_of(node: Node, key: str, values: AnfValueEncoder) -> bytes:
    attributes = node.attributes
    return values.type(
        attributes.get(key, b""), attributes.get("_output_shapes", b""), attributes.get("output_type", b"")
    )


def _operator(node: Node, ids: dict[str, str], values: AnfValueEncoder, inner: _InnerGraphs) -> bytes:
    full_name = node.name
    if node.origin is not None and node.origin.tag is not None:  # without the scope of the inner graph it is of
        full_name = node.origin.tag
    if "full_name" in node.attributes:
        full_name = _text_of(node.attributes["full_name"])
    inputs = []
    for text in node.inputs:
        name, is_control, _ = split_input(text)
        inputs.append(encode_input(ids.get(name, name), is_control))
    held = {holder.key: holder for holder in node.holders}
    attributes = [
        wire.entry(key, inner.fill(held[key]) if key in held else values.value(value))
        for key, value in node.attributes.items()
        if key not in _TYPE_ATTRIBUTES and key != "instance_name"
    ]
    type_ = _type_of(node, "T", values)
    out = encode_operator(ids[node.name], node.op, full_name, inputs, attributes, type_)
    if "instance_name" in node.attributes:
        out += wire.text(b"\x52", _text_of(node.attributes["instance_name"]))
    return out


def _text_of(attribute: bytes) -> str:
    return b"".join(wire.all_fields(attribute, 0x12)).decode(errors="replace")


def restore_graph_def(graph: bytes) -> tuple[bytes, GraphCounts]:
    """Makes a TensorFlow `GraphDef` from the `GraphProto` that `convert_graph_def` made.

    Raises:
        InvalidValueError: The bytes are not a graph, or it is empty.

    Loss: values that were drawn in words, and what was cut; the order of nodes.
    """
    return read_safely(lambda: _restore_graph_def(graph))


def _restore_graph_def(graph: bytes) -> tuple[bytes, GraphCounts]:
    source = read_graph(graph, with_operators=False)
    values = ValueEncoder()
    rest = tb_pb.GraphDef.FromString(source.library)
    functions = rest.library.function
    counts = GraphCounts(functions=len(functions))
    counts.arguments = sum(len(each.signature.input_arg) for each in functions)
    counts.returns = sum(len(each.ret) + len(each.control_ret) for each in functions)
    names: dict[str, str] = {}  # by id
    groups: list[list[bytes]] = [[] for _ in range(len(functions) + 1)]  # nodes: the graph's, then each function's

    def put(part: Part, node: bytes) -> bool:
        is_known = part.group < len(groups)
        if is_known and part.is_signature:  # stands in the library
            return False
        groups[part.group if is_known else 0].append(node)
        return True

    for parameter in source.parameters:
        name, op = _origin_of(parameter.origin, parameter.name, "Placeholder")
        names[parameter.name] = name
        encoded = values.type(parameter.type)
        node = encode_node(name, op, [], {"dtype": encoded.type, "_output_shapes": encoded.shapes})
        counts.parameters += put(parameter, node)
    for constant in source.constants:
        name, op = _origin_of(constant.origin, constant.name, "Const")
        names[constant.name] = name
        value = values.value(constant.value)
        shapes = value.shapes if constant.shapes is None else constant.shapes or None
        attributes = {"value": value.value, "dtype": value.type, "_output_shapes": shapes}
        counts.constants += put(constant, encode_node(name, op, [], attributes))
    for operator in read_operators(graph):
        names[operator.name] = _origin_of(operator.origin, operator.full_name, "")[0]
    for operator in read_operators(graph):
        counts.operators += put(operator, _graph_def_node(operator, names, values))
        counts.edges += len(operator.inputs)
    if not any(groups) and not functions:
        raise InvalidValueError("the graph is empty")
    for function, nodes in zip(functions, groups[1:], strict=True):
        function.MergeFromString(b"".join(wire.length_delimited(b"\x1a", node) for node in nodes))
    graph = b"".join(wire.length_delimited(b"\x0a", node) for node in groups[0])
    return graph + rest.SerializeToString(deterministic=True), counts


def _origin_of(origin: Origin | None, name: str, op: str) -> tuple[str, str]:
    """Returns the name and the operator that a part had before it was drawn."""
    if origin is None:
        return name, op
    return name if origin.tag is None else origin.tag, origin.kind or op


def _graph_def_node(operator: Operator, names: dict[str, str], values: ValueEncoder) -> bytes:
    inputs = []
    for (key, is_control), origin in zip(operator.inputs, operator.input_origins, strict=True):
        inputs.append(("^" if is_control else "") + names.get(key, "") + origin)  # which is all of a name nothing has
    inputs.sort(key=lambda text: text.startswith("^"))  # TensorFlow's order
    attributes: dict[str, bytes | None] = {key: values.value(value).value for key, value in operator.attributes}
    for key in operator.called:
        attributes[key] = _function_name(attributes[key] or b"")
    attributes["_output_shapes"] = values.type(operator.output_type).shapes
    return encode_node(names[operator.name], _origin_of(operator.origin, "", operator.op_type)[1], inputs, attributes)


def _function_name(words: bytes) -> bytes:
    """Returns the name of a function as an `AttrValue`, from the words it is drawn in, where they were not cut."""
    before, mark, name = _text_of(words).partition("function ")
    if before or not mark or name.endswith(" ..."):
        return words
    return wire.length_delimited(b"\x52", wire.text(b"\x0a", name))
