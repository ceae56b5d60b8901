"""Graphs from TensorBoard: every node and edge of a GraphDef stands once in a graph that MindInsight draws."""

from __future__ import annotations

import contextlib
import time
import types
from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_summary_bridge.errors import InvalidValueError
from ms_summary_bridge.formats import wire
from ms_summary_bridge.formats.graphs.counts import GraphCounts
from ms_summary_bridge.formats.graphs.events import is_converted_graph
from ms_summary_bridge.formats.graphs.marks import LIBRARY, encode_mark, encode_member
from ms_summary_bridge.formats.graphs.ms_names import AnfNames, drawable_name
from ms_summary_bridge.formats.graphs.restoration import restore_graph_def
from ms_summary_bridge.formats.graphs.tb_to_ms import convert_graph_def
from ms_summary_bridge.formats.protos import ms_pb, tb_pb
from tests.graph_samples import (
    FLOAT,
    constant,
    damage,
    shape_of,
    structure_of_graph_def,
    tensorflow_graph,
    tf_node,
    torch_graph,
    types_of,
)


class Drawn:
    """A converted graph, checked against what holds for every one."""

    def __init__(self, source: Any) -> None:
        self.bytes, self.counts = convert_graph_def(source.SerializeToString())
        assert convert_graph_def(source.SerializeToString()) == (self.bytes, self.counts)
        assert is_converted_graph(self.bytes)
        self.graph = ms_pb.GraphProto.FromString(self.bytes)
        self.nodes = {node.full_name: node for node in self.graph.node}
        self.parameters = {parameter.name: parameter for parameter in self.graph.parameters}
        self.constants = {entry.key: entry.value for entry in self.graph.const_vals}
        self._check_names()
        self._check_counts(source)

    def _check_names(self) -> None:
        graph = self.graph
        assert [node.name for node in graph.node] == [str(number + 1) for number in range(len(graph.node))]
        assert len(self.nodes) == len(graph.node)
        scopes = {name.rsplit("/", depth)[0] for name in self.nodes for depth in range(1, name.count("/") + 1)}
        assert not scopes & self.nodes.keys()
        parts = {part for name in self.nodes for part in name.split("/")}
        ids = [*(parameter.name for parameter in graph.parameters), *(entry.key for entry in graph.const_vals)]
        assert len(ids) == len({*ids, *(node.name for node in graph.node)}) - len(graph.node)
        assert not parts & set(ids)
        for name in (*self.nodes, *ids):
            assert name
            assert not set(name) & set('<>"\\\n')
        assert not any("/" in name for name in ids)
        for node in graph.node:
            assert node.scope == node.full_name.rpartition("/")[0]
            assert node.op_type not in ("", "Const", "Parameter")
            assert all(attribute.value.ByteSize() <= 1024 for attribute in node.attribute)
            assert all(edge.name and "/" not in edge.name for edge in node.input)
        assert all(value.ByteSize() <= 1024 for value in self.constants.values())

    def _check_counts(self, source: Any) -> None:
        functions = source.library.function
        nodes = [*source.node, *(node for function in functions for node in function.node_def)]
        returns = [text for each in functions for text in each.ret.values()]
        returns += [f"^{text}" for each in functions for text in each.control_ret.values()]
        edges = [*(text for node in nodes for text in node.input), *returns]
        counts = self.counts
        assert (counts.nodes, counts.functions, counts.returns) == (len(nodes), len(functions), len(returns))
        assert counts.arguments == sum(len(each.signature.input_arg) for each in functions)
        assert counts.edges == len(edges) == sum(len(node.input) for node in self.graph.node)
        assert counts.control_edges == sum(text.startswith("^") for text in edges)
        assert counts.nodes + counts.arguments + counts.returns == (
            counts.operators + counts.parameters + counts.constants
        )
        drawn = (len(self.graph.node), len(self.graph.parameters), len(self.graph.const_vals))
        assert drawn == (counts.operators, counts.parameters, counts.constants)
        ids = {*self.parameters, *self.constants, *(node.name for node in self.graph.node)}
        inputs = [[edge.name for edge in node.input] for node in self.graph.node]
        assert counts.dangling_edges == sum(name not in ids for names in inputs for name in names)
        assert counts.merged_edges == sum(
            len(known) - len(set(known)) for names in inputs for known in [[name for name in names if name in ids]]
        )

    def inputs(self, full_name: str) -> list[str]:
        """Sources by their full names, parameters and constants by theirs; `^` before those of control edges."""
        names = {node.name: node.full_name for node in self.graph.node}
        return ["^" * edge.type + names.get(edge.name, edge.name) for edge in self.nodes[full_name].input]


def graph_of(*nodes: Any) -> Any:
    return tb_pb.GraphDef(node=nodes)


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("name", "drawable"),
    [
        ("a/b", "a/b"),
        ('a<b>"c"\\ \n', "a_b__c____"),
        ("//a///b/", "a/b"),
        ("", "unnamed"),
        ("///", "unnamed"),
        ("loss[:Scalar]", "loss(:Scalar)"),
        ("a/loss[:image]", "a/loss(:image)"),
        ("Net/Linear[fc1]/12", "Net/Linear[fc1]/12"),
        ("网络/层", "网络/层"),
        ("x" * 5000, "x" * 1000),
        ("/".join("a" * 300), "/".join("a" * 100) + "/" + ".".join("a" * 200)),
    ],
)
def test_a_name_is_made_drawable(name: str, drawable: str) -> None:
    assert drawable_name(name) == drawable


@given(st.text())
def test_a_drawable_name_has_nothing_that_mindinsight_refuses(name: str) -> None:
    drawable = drawable_name(name)
    assert not set(drawable) & set('<>"\\\n ')
    assert all(drawable.split("/"))


def test_an_operator_whose_name_is_a_scope_is_put_into_it_in_parentheses() -> None:
    names = AnfNames(["a/b", "a", "a/b/c", "(a)", "a/b", "d", "d"])
    assert names.operators == ["a/(b)", "(a)", "a/b/c", "(a)_2", "a/(b)_2", "d", "d_2"]


def test_a_parameter_takes_the_name_of_nothing_that_stands_in_a_scope() -> None:
    names = AnfNames(["layer/w", "layer/b/Add"])
    assert [names.take_id(wish) for wish in ("w", "b", "layer/w", "layer/w", "7", "x<", "")] == [
        "(w)", "(b)", "layer.w", "layer.w_2", "(7)", "x_", "unnamed",
    ]  # fmt: skip


# ---------------------------------------------------------------- nodes and edges


def test_a_tensorflow_graph_with_everything_that_is_hard_to_draw() -> None:
    drawn = Drawn(tensorflow_graph())
    assert drawn.counts == GraphCounts(
        nodes=21, arguments=3, returns=2, functions=2, edges=28, control_edges=7, dangling_edges=3, merged_edges=2,
        operators=19, parameters=4, constants=3, renamed=5,
    )  # fmt: skip
    assert {name: node.op_type for name, node in drawn.nodes.items()} == {
        "layer1/kernel/Assign": "AssignVariableOp",
        "layer1/MatMul": "MatMul",
        "(layer1)": "Add",
        "split": "Split",
        "out/a_b_": "Relu",
        "out/_b_": "Relu",
        "out/double": "Mul",
        "init": "NoOp",
        "call": "PartitionedCall",
        "lonely": "ConstOp",
        "lost": "Identity",
        "metric(:Scalar)": "Identity",
        "body/inner/mul": "Mul",
        "body/return/r": "Return",
        "body/return/done": "Return",
        "cond.then/unused": "Argument",
        "cond.then/Argument": "Argument",
        "cond.then/a_b_": "Return",
        "cond.then/deeper/op": "NoOp",
    }
    assert drawn.inputs("layer1/MatMul") == ["x", "layer1.kernel"]
    assert drawn.inputs("(layer1)") == ["layer1/MatMul", "layer1.bias"]
    assert drawn.inputs("out/_b_") == ["^init", "split"]
    assert drawn.inputs("out/double") == ["split", "split"]
    assert drawn.inputs("lost") == ["^gone", "nowhere"]
    assert drawn.inputs("body/inner/mul") == ["^body.two", "body.v", "body.two"]  # of two, MindInsight draws the last
    assert drawn.inputs("body/return/r") == ["body/inner/mul"]
    assert drawn.inputs("body/return/done") == ["^body.two"]
    assert drawn.inputs("cond.then/a_b_") == ["cond.then/Argument", "cond.then.lost"]
    assert types_of(drawn.nodes["split"].output_type) == [("DT_FLOAT32", [-1, 2]), ("DT_FLOAT32", [-1, 1])]
    assert types_of(drawn.parameters["x"].type) == ("DT_FLOAT32", [-1, 4])
    assert list(drawn.constants["layer1.bias"].tensor_val.float_data) == [0.5] * 3
    attributes = {each.name: each.value for each in drawn.nodes["layer1/MatMul"].attribute}
    assert attributes.keys() == {"T", "transpose_a", "_class"}
    assert attributes["transpose_a"] == ms_pb.ValueProto(dtype=1, bool_val=False)


def test_a_graph_of_torch() -> None:
    drawn = Drawn(torch_graph())
    assert list(drawn.nodes) == [
        "Net/Linear[fc1]/weight/12",
        "Net/Linear[fc1]/input/15",
        "Net/ReLU[act]/16",
        "output/output.1",
    ]
    assert drawn.inputs("Net/Linear[fc1]/input/15") == [
        "input.input.1",
        "Net/Linear[fc1]/weight/12",
        "Net.Linear[fc1].bias.13",
        "Net.Linear[fc1].alpha.14",
    ]
    assert types_of(drawn.nodes["Net/ReLU[act]/16"].output_type)[1] == [8, 3]
    assert drawn.constants["Net.Linear[fc1].alpha.14"].str_val == "{ value : 1}"


def test_a_graph_of_onnx_as_tensorboardx_makes_it() -> None:
    onnx_graph = pytest.importorskip("tensorboardX.onnx_graph")

    def value(name: str, *sizes: int) -> Any:
        dims = [types.SimpleNamespace(dim_value=size) for size in sizes]
        tensor = types.SimpleNamespace(shape=types.SimpleNamespace(dim=dims), elem_type=1)
        return types.SimpleNamespace(name=name, type=types.SimpleNamespace(tensor_type=tensor))

    relu = types.SimpleNamespace(attribute=[], output=["y"], op_type="Relu", input=["h"])
    gemm = types.SimpleNamespace(attribute=[], output=["h"], op_type="Gemm", input=["x", "w"])
    model = types.SimpleNamespace(input=[value("x", 8, 4), value("w", 4, 3)], output=[value("y", 8, 3)])
    model.node = [gemm, relu]
    drawn = Drawn(tb_pb.GraphDef.FromString(onnx_graph.parse(model).SerializeToString()))
    assert {name: node.op_type for name, node in drawn.nodes.items()} == {"y": "Variable", "h": "Gemm", "y_2": "Relu"}
    assert drawn.inputs("h") == ["x", "w"]
    assert types_of(drawn.parameters["w"].type) == ("DT_FLOAT32", [4, 3])
    assert drawn.counts.ambiguous == 1  # an output is a variable, and the node that makes it has its name


@pytest.mark.parametrize("op", ["Const", "Placeholder", "VarHandleOp", "Parameter", "IO Node"])
def test_a_constant_or_parameter_that_nothing_takes_is_drawn_as_an_operator(op: str) -> None:
    drawn = Drawn(graph_of(tf_node("a", op), tf_node("b", op, "^c"), tf_node("c", "NoOp"), tf_node("d", "E", "b")))
    assert drawn.counts.operators == 4
    assert restore_graph_def(drawn.bytes)[1].operators == 4


def test_of_two_with_one_name_edges_go_to_the_first_and_both_are_drawn() -> None:
    drawn = Drawn(graph_of(tf_node("a", "A"), tf_node("a", "B"), tf_node("c", "C", "a")))
    assert drawn.inputs("c") == ["a"]
    assert list(drawn.nodes) == ["a", "a_2", "c"]
    assert (drawn.counts.ambiguous, drawn.counts.renamed) == (1, 1)


def test_cycles_and_a_thousand_scopes_are_drawn() -> None:
    deep = "/".join(f"s{number}" for number in range(1000))
    drawn = Drawn(graph_of(tf_node("a", "A", "b", "a"), tf_node("b", "B", "a"), tf_node(deep, "C", "a")))
    assert drawn.inputs("a") == ["b", "a"]
    assert max(name.count("/") for name in drawn.nodes) == 100


def test_functions_of_one_name_and_a_node_of_that_name() -> None:
    source = graph_of(tf_node("f", "A"))
    for _ in range(2):
        function = source.library.function.add(signature={"name": "f"})
        function.node_def.extend([tf_node("x", "B")])
        function.control_ret["done"] = "x"
    drawn = Drawn(source)
    assert list(drawn.nodes) == ["f", "f_2/x", "f_2/return/done", "f_3/x", "f_3/return/done"]
    assert drawn.inputs("f_3/return/done") == ["^f_3/x"]


# ---------------------------------------------------------------- types and values


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"T": FLOAT, "shapes": [(2, 3)]}, ("DT_FLOAT32", [2, 3])),
        ({"dtype": FLOAT + 100, "shapes": [()]}, ("DT_FLOAT32", [])),  # a reference
        ({"shapes": [(2,)]}, ("DT_UNDEFINED", [2])),
        ({"T": FLOAT}, "DT_UNDEFINED"),
        ({"T": FLOAT, "shapes": []}, "DT_UNDEFINED"),
        ({"dtype": 7, "shape": {"shape": {"unknown_rank": True}}}, ("DT_STRING", [-2])),
        ({"T": FLOAT, "shapes": [(-5,), (1,)]}, [("DT_FLOAT32", [-1]), ("DT_FLOAT32", [1])]),
    ],
)
def test_types(attributes: dict[str, Any], expected: Any) -> None:
    (node,) = Drawn(graph_of(tf_node("a", "A", **attributes))).graph.node
    assert types_of(node.output_type) == expected


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ({"i": -3}, {"dtype": 5, "int_val": -3}),
        ({"f": 0.5}, {"dtype": 11, "float_val": 0.5}),
        ({"b": True}, {"dtype": 1, "bool_val": True}),
        ({"s": b"NHWC"}, {"dtype": 13, "str_val": "NHWC"}),
        ({"s": b"\xff"}, {"dtype": 13, "str_val": "\ufffd"}),
        ({"func": {"name": "f"}}, {"dtype": 13, "str_val": "function f"}),
        ({"placeholder": "T"}, {"dtype": 13, "str_val": "T"}),
        ({"type": 9}, {"dtype": 39, "type_val": {"data_type": 5}}),
        ({"list": {"i": [1, 2]}}, {"dtype": 32, "values": [{"dtype": 5, "int_val": 1}, {"dtype": 5, "int_val": 2}]}),
        ({}, {"dtype": 34}),
    ],
)
def test_values(source: dict[str, Any], value: dict[str, Any]) -> None:
    drawn = Drawn(graph_of(tf_node("a", "A", x=source)))
    assert drawn.graph.node[0].attribute[0].value == ms_pb.ValueProto(**value)


@pytest.mark.parametrize(
    "source",
    [
        {"list": {"i": [1] * 10_000}},
        {"list": {"s": [b"x" * 500] * 100}},
        {"s": "ä".encode() * 5000},
        {"func": {"name": "f" * 5000}},
        {"shape": {"dim": [{"size": 10**15}] * 500}},
        {"tensor": {"dtype": 1, "tensor_shape": {"dim": [{"size": 10**9}] * 4}, "float_val": [1.0]}},
        {"tensor": {"dtype": 7, "string_val": [b"x" * 5000]}},
        {"list": {"tensor": [{"dtype": 1, "float_val": [1.0] * 9}] * 100}},
    ],
)
def test_long_values_are_abbreviated(source: dict[str, Any]) -> None:
    Drawn(graph_of(tf_node("a", "A", x=source), tf_node("c", "Const", value=source), tf_node("d", "D", "c")))


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        ({"dtype": 1, "tensor_content": b"\x00\x00\x80\x3f", "tensor_shape": shape_of(1)}, [1.0]),
        ({"dtype": 2, "double_val": [0.1]}, [0.1]),
        ({"dtype": 3, "int_val": [7], "tensor_shape": shape_of(2)}, [7, 7]),
        ({"dtype": 10, "bool_val": [True]}, [1]),
        ({"dtype": 1, "float_val": [1.0], "tensor_shape": shape_of(100)}, []),
        ({"dtype": 20, "tensor_shape": shape_of(1)}, []),
        ({"dtype": 1, "tensor_content": b"12345", "tensor_shape": shape_of(1)}, []),
    ],
)
def test_a_constant_shows_its_elements_if_they_are_few(tensor: dict[str, Any], expected: list[Any]) -> None:
    drawn = Drawn(graph_of(tf_node("c", "Const", value={"tensor": tensor}), tf_node("a", "A", "c")))
    value = drawn.constants["c"].tensor_val
    found = [item for field, items in value.ListFields() if field.name.endswith("_data") for item in items]
    assert found == pytest.approx(expected)
    assert list(value.dims) == [dim.size for dim in tb_pb.TensorProto(**tensor).tensor_shape.dim]


# ---------------------------------------------------------------- any graph

_NAMES = st.sampled_from(["", "a", "b", "a/b", "a/b/c", "1", "2", "a<b>", '"', "a b", "(a)", "/a/", "x[:scalar]", "é"])
_INPUTS = st.builds(lambda mark, name, output: mark + name + output, st.sampled_from(["", "^"]), _NAMES,
                    st.sampled_from(["", ":0", ":1", ":out:0"]))  # fmt: skip
_NODES = st.builds(
    lambda name, op, inputs, shapes: tf_node(name, op, *inputs, shapes=shapes),
    _NAMES, st.sampled_from(["", "Add", "Const", "Placeholder", "name_scope"]), st.lists(_INPUTS, max_size=4),
    st.sampled_from([None, [], [(2, -1)], [(), (3,)]]),
)  # fmt: skip
GRAPH_DEFS = st.builds(
    lambda nodes, functions: tb_pb.GraphDef(
        node=nodes,
        library={"function": [
            {"signature": {"name": name, "input_arg": [{"name": each} for each in arguments]},
             "node_def": inner, "ret": returns, "control_ret": orders}
            for name, arguments, inner, returns, orders in functions
        ]},
    ),
    st.lists(_NODES, max_size=8),
    st.lists(st.tuples(_NAMES, st.lists(_NAMES, max_size=2), st.lists(_NODES, max_size=3),
                       st.dictionaries(_NAMES, _INPUTS, max_size=2), st.dictionaries(_NAMES, _NAMES, max_size=1)),
             max_size=2),
)  # fmt: skip


def is_drawn(source: Any) -> bool:
    """Whether there is anything in a graph."""
    return bool(source.node) or any(
        each.node_def or each.signature.input_arg or each.ret or each.control_ret for each in source.library.function
    )


@given(GRAPH_DEFS)
def test_every_graph_is_drawn_whole(source: Any) -> None:
    if not is_drawn(source):
        with pytest.raises(InvalidValueError, match="empty"):
            convert_graph_def(source.SerializeToString())
        return
    Drawn(source)


@given(GRAPH_DEFS, st.data())
def test_a_damaged_graph_raises_one_error_only(source: Any, data: st.DataObject) -> None:
    with contextlib.suppress(InvalidValueError):
        graph, counts = convert_graph_def(damage(source, data))
        assert sum(len(node.input) for node in ms_pb.GraphProto.FromString(graph).node) == counts.edges


@given(st.binary())
def test_any_bytes_raise_one_error_only(graph_def: bytes) -> None:
    for convert in (convert_graph_def, restore_graph_def):
        with contextlib.suppress(InvalidValueError):
            convert(graph_def)


@pytest.mark.parametrize(
    ("graph_def", "reason"),
    [
        (b"", "empty"),
        (b"\x0a\x05", "malformed"),
        (b"\x0a\x03\x0a\x01\xff", "not UTF-8"),
        (b"\x0a\x0a\x0a\x01a\x2a\x05\x0a\x01x\x12\x01\x0a"[:-1] + b"", "malformed"),
    ],
)
def test_what_is_wrong_is_said(graph_def: bytes, reason: str) -> None:
    with pytest.raises(InvalidValueError, match=reason):
        convert_graph_def(graph_def)


# ---------------------------------------------------------------- and back


@pytest.mark.parametrize("source", [tensorflow_graph(), torch_graph()], ids=["tensorflow", "torch"])
def test_a_graph_comes_back_from_its_drawing(source: Any) -> None:
    drawn = Drawn(source)
    restored, counts = restore_graph_def(drawn.bytes)
    assert structure_of_graph_def(tb_pb.GraphDef.FromString(restored)) == structure_of_graph_def(source)
    parts = ("functions", "arguments", "returns", "edges")
    assert [getattr(counts, each) for each in parts] == [getattr(drawn.counts, each) for each in parts]
    assert counts.operators + counts.parameters + counts.constants == drawn.counts.nodes
    assert counts.edges == drawn.counts.edges
    assert not is_converted_graph(restored)


@given(GRAPH_DEFS)
def test_names_operators_edges_and_shapes_of_every_graph_come_back(source: Any) -> None:
    groups = [source.node, *(each.node_def for each in source.library.function)]
    names = [[node.name for node in nodes] for nodes in groups]
    if not is_drawn(source) or any(len(each) != len(set(each)) for each in names):
        return
    for node in chain(*groups):
        node.op = node.op or "Unknown"
        node.input[:] = sorted(node.input, key=lambda text: text.startswith("^"))  # TensorFlow's order
    drawn = Drawn(source)
    found, counts = restore_graph_def(drawn.bytes)
    restored = tb_pb.GraphDef.FromString(found)
    assert counts.operators + counts.parameters + counts.constants == drawn.counts.nodes
    assert counts.edges == drawn.counts.edges
    again = Drawn(restored).counts
    parts = ("nodes", "edges", "control_edges", "dangling_edges", "functions", "arguments", "returns")
    assert [getattr(again, each) for each in parts] == [getattr(drawn.counts, each) for each in parts]
    assert structure_of_graph_def(restored) == structure_of_graph_def(source)


def test_a_constant_keeps_its_shape() -> None:
    drawn = Drawn(graph_of(constant("c", 2, 3), tf_node("a", "A", "c")))
    (first, _) = tb_pb.GraphDef.FromString(restore_graph_def(drawn.bytes)[0]).node
    assert [dim.size for dim in first.attr["_output_shapes"].list.shape[0].dim] == [2, 3]
    assert first.attr["dtype"].type == FLOAT


def test_a_list_of_functions_comes_back_in_words() -> None:
    """Of an attribute that is one function the name comes back; several are a list of words, as the report says."""
    branches = tb_pb.AttrValue(list={"func": [{"name": "one"}, {"name": "two"}]})
    drawn = Drawn(graph_of(tf_node("a", "Case", branches=branches, f={"func": {"name": "one"}})))
    (node,) = tb_pb.GraphDef.FromString(restore_graph_def(drawn.bytes)[0]).node
    assert node.attr["f"].func.name == "one"
    assert node.attr["branches"].s == b"[function one, function two]"


@given(st.lists(st.integers(0, 4), min_size=1, max_size=6), st.booleans(), st.binary(max_size=3))
def test_a_drawing_with_damaged_functions_keeps_its_nodes_or_raises_one_error(
    groups: list[int], is_signature: bool, damage: bytes
) -> None:
    """What is of a function that the library does not have stands in the graph."""
    library = tb_pb.GraphDef(library={"function": [{"signature": {"name": "f"}}, {"signature": {"name": "g"}}]})
    nodes = [
        ms_pb.NodeProto(name=str(number), op_type="A", full_name=f"a{number}").SerializeToString()
        + encode_member(group, is_signature=is_signature)
        for number, group in enumerate(groups, 1)
    ]
    drawing = b"".join(wire.length_delimited(b"\x0a", node) for node in nodes)
    drawing += encode_mark(LIBRARY, library.SerializeToString() + damage)
    with contextlib.suppress(InvalidValueError):
        found, counts = restore_graph_def(drawing)
        graph = tb_pb.GraphDef.FromString(found)
        kept = len(graph.node) + sum(len(each.node_def) for each in graph.library.function)
        assert kept == counts.operators
        if not damage:
            assert kept == len([group for group in groups if not is_signature or group not in (1, 2)])


def test_a_library_of_many_parts_costs_in_proportion_to_them() -> None:
    node = tb_pb.GraphDef()
    node.node.add(name="x", op="NoOp")
    for part in (b"\x12\x00", b"\x22\x00"):
        began = time.process_time()
        convert_graph_def(node.SerializeToString() + part * 150_000)
        assert time.process_time() - began < 10, "a part is copied for each one behind it"
