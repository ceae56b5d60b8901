"""TensorFlow graphs for tests, as their writers make them, and what of a graph has to survive a conversion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hypothesis import strategies as st

from ms_summary_bridge.formats.protos import ms_pb, tb_pb

FLOAT = tb_pb.DataType.DT_FLOAT


def shape_of(*sizes: int) -> Any:
    return tb_pb.TensorShapeProto(dim=[{"size": size} for size in sizes])


def damage(source: Any, data: st.DataObject) -> bytes:
    """Returns a message's bytes, up to three of them changed."""
    damaged = bytearray(source.SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        if damaged:
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    return bytes(damaged)


def tf_node(name: str, op: str, *inputs: str, shapes: list[tuple[int, ...]] | None = None, **attributes: Any) -> Any:
    """A node; attributes are given as the fields of an `AttrValue`, a type as `T=FLOAT`."""
    node = tb_pb.NodeDef(name=name, op=op, input=inputs)
    for key, value in attributes.items():
        node.attr[key].CopyFrom(
            value if not isinstance(value, (int, Mapping)) else tb_pb.AttrValue(**value)
            if isinstance(value, Mapping) else tb_pb.AttrValue(type=value)
        )  # fmt: skip
    if shapes is not None:
        node.attr["_output_shapes"].list.shape.extend([shape_of(*shape) for shape in shapes])
    return node


def constant(name: str, *sizes: int, value: float = 0.5) -> Any:
    tensor = tb_pb.TensorProto(dtype=FLOAT, tensor_shape=shape_of(*sizes), float_val=[value])
    node = tf_node(name, "Const", dtype=FLOAT, shapes=[sizes])
    node.attr["value"].tensor.CopyFrom(tensor)
    return node


def tensorflow_graph() -> Any:
    """A graph as TensorFlow writes it, with everything that is hard to draw."""
    graph = tb_pb.GraphDef(versions={"producer": 1087})
    graph.node.extend([
        tf_node("x", "Placeholder", dtype=FLOAT, shape={"shape": shape_of(-1, 4)}, shapes=[(-1, 4)]),
        tf_node("layer1/kernel", "VarHandleOp", dtype=FLOAT, shape={"shape": shape_of(4, 3)}, shapes=[()]),
        constant("layer1/kernel/zeros", 4, 3),
        tf_node("layer1/kernel/Assign", "AssignVariableOp", "layer1/kernel", "layer1/kernel/zeros", dtype=FLOAT),
        tf_node("layer1/MatMul", "MatMul", "x", "layer1/kernel", T=FLOAT, shapes=[(-1, 3)],
                transpose_a={"b": False}, _class={"list": {"s": [b"loc:@layer1"]}}),
        constant("layer1/bias", 3),
        tf_node("layer1", "Add", "layer1/MatMul", "layer1/bias", T=FLOAT, shapes=[(-1, 3)]),
        tf_node("split", "Split", "layer1", "layer1/bias", T=FLOAT, num_split={"i": 2}, shapes=[(-1, 2), (-1, 1)]),
        tf_node("out/a<b>", "Relu", "split:0", T=FLOAT, shapes=[(-1, 2)]),
        tf_node('out/"b"', "Relu", "split:1", "^init", T=FLOAT, shapes=[(-1, 1)]),
        tf_node("out/double", "Mul", "split:1", "split:1", T=FLOAT, shapes=[(-1, 1)]),
        tf_node("init", "NoOp", "^layer1/kernel/Assign"),
        tf_node("call", "PartitionedCall", "out/double", f={"func": {"name": "body"}}, shapes=[(-1, 1)]),
        tf_node("lonely", "Const"),
        tf_node("lost", "Identity", "nowhere:3", "^gone", T=FLOAT),
        tf_node("metric[:Scalar]", "Identity", "call", T=FLOAT, shapes=[(-1, 1)]),
    ])  # fmt: skip
    function = graph.library.function.add(
        signature={"name": "body", "input_arg": [{"name": "v", "type": FLOAT}], "output_arg": [{"name": "r"}]}
    )
    function.node_def.extend([constant("two"), tf_node("inner/mul", "Mul", "v", "two:output:0", "^two", T=FLOAT)])
    function.ret["r"] = "inner/mul:z:0"
    function.control_ret["done"] = "two"
    function.signature.control_output.append("done")
    function.attr["_noinline"].b = True
    cond = graph.library.function.add(signature={"name": "cond/then", "is_stateful": True, "input_arg": [
        {"name": "x", "type": FLOAT}, {"name": "unused", "type_attr": "T"}]})  # fmt: skip
    cond.node_def.extend([
        tf_node("Argument", "Argument", "x", shapes=[(2,)]),  # an operator that is called so
        tf_node("a<b>", "Return", "Argument:o:0", "lost:0", f={"func": {"name": "body"}}),
        tf_node("deeper/op", "NoOp", "^x", "^a<b>"),
    ])  # fmt: skip
    graph.library.gradient.add(function_name="body", gradient_func="cond/then")
    return graph


def torch_graph() -> Any:
    """A graph as tensorboardX's add_graph writes it: one text holds the attributes, and inputs are called IO Node."""

    def node(name: str, op: str, *inputs: str, attributes: str = "", shape: tuple[int, ...] = ()) -> Any:
        return tf_node(name, op, *inputs, shapes=[shape], attr={"s": attributes.encode()})

    return tb_pb.GraphDef(
        node=[
            node("input/input.1", "IO Node", attributes="{}", shape=(8, 4)),
            node("Net/Linear[fc1]/weight/12", "prim::GetAttr", attributes="{ name : weight}", shape=(3, 4)),
            node("Net/Linear[fc1]/bias/13", "Parameter", shape=(3,)),
            node("Net/Linear[fc1]/alpha/14", "prim::Constant", attributes="{ value : 1}"),
            node(
                "Net/Linear[fc1]/input/15", "aten::linear", "input/input.1", "Net/Linear[fc1]/weight/12",
                "Net/Linear[fc1]/bias/13", "Net/Linear[fc1]/alpha/14", shape=(8, 3),
            ),
            node("Net/ReLU[act]/16", "aten::relu", "Net/Linear[fc1]/input/15", shape=(8, 3)),
            node("output/output.1", "IO Node", "Net/ReLU[act]/16", shape=(8, 3)),
        ],
        versions={"producer": 22},
    )  # fmt: skip


# ---------------------------------------------------------------- what has to survive


def structure_of_graph_def(graph: Any) -> dict[str, Any]:
    """Operator, inputs, shapes and called functions of each node, by its name, and each function's by its place."""
    structure = _structure_of_nodes(graph.node)
    for number, function in enumerate(graph.library.function):
        rest = type(function)()
        rest.CopyFrom(function)
        del rest.node_def[:]
        structure[f"function {number}"] = (
            _structure_of_nodes(function.node_def),
            rest.SerializeToString(deterministic=True),
        )
    structure["gradients"] = [each.SerializeToString() for each in graph.library.gradient]
    structure["producer"] = graph.versions.producer
    return structure


def _structure_of_nodes(nodes: Iterable[Any]) -> dict[str, Any]:
    structure: dict[str, Any] = {}
    for node in nodes:
        shapes = [
            None if shape.unknown_rank else [dim.size for dim in shape.dim]
            for shape in node.attr["_output_shapes"].list.shape
        ]
        called = {key: value.func.name for key, value in node.attr.items() if value.HasField("func")}
        structure[node.name] = (node.op, list(node.input), shapes, called)
    return structure


def structure_of_anf(graph: Any) -> dict[str, Any]:
    """Operators, parameters, constants and outputs of a graph and of those in it, without the numbers they have."""
    sources: dict[str, tuple[str, object]] = {}
    for index, node in enumerate(graph.node):
        sources.setdefault(node.name or str(index + 1), ("operator", index))
    for parameter in graph.parameters:
        sources.setdefault(parameter.name, ("parameter", parameter.name))
    for entry in graph.const_vals:
        sources.setdefault(entry.key, ("constant", entry.key))

    def sources_of(node: Any, kind: int) -> list[Any]:
        return [sources.get(each.name, ("nothing", each.name)) for each in node.input if each.type == kind]

    def inner_of(value: Any) -> list[Any]:
        return [(inner.name, structure_of_anf(inner)) for inner in graphs_in(value)]

    return {
        "operators": [
            (node.op_type or "Call", node.full_name, node.scope, types_of(node.output_type), sources_of(node, 0),
             sources_of(node, 1), node.instance_name, {each.name: inner_of(each.value) for each in node.attribute})
            for node in graph.node
        ],
        "parameters": {parameter.name: types_of(parameter.type) for parameter in graph.parameters},
        "constants": {
            entry.key: (list(entry.value.tensor_val.dims), inner_of(entry.value)) for entry in graph.const_vals
        },
        "outputs": [(sources.get(each.name), types_of(each.type)) for each in graph.outputs],
    }  # fmt: skip


def graphs_in(value: Any) -> list[Any]:
    """Graphs that a value of MindSpore holds."""
    found = [value.graph] if value.HasField("graph") else []
    found += value.graphs
    for inner in [*value.values, *(entry.value for entry in value.dict_val)]:
        found += graphs_in(inner)
    return found


def types_of(output_type: Any) -> Any:
    """Type and shape, of each element for a tuple."""
    if output_type.HasField("sequence_type"):
        return [types_of(element) for element in output_type.sequence_type.elem_types]
    if output_type.HasField("tensor_type"):
        tensor = output_type.tensor_type
        return ms_pb.DataType.Name(tensor.elem_type), [dim.size for dim in tensor.shape.dim]
    return ms_pb.DataType.Name(output_type.data_type)
