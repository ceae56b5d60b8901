"""The graph: every operator and every edge of a MindSpore graph is drawn once, under a name TensorBoard can draw."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_summary_bridge.columns.inspect import inspect_logdir
from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.convert.verify import verify_logdirs
from ms_summary_bridge.errors import InvalidValueError
from ms_summary_bridge.events import Event
from ms_summary_bridge.files.event_file import EventFileReader
from ms_summary_bridge.formats.graphs.counts import GraphCounts
from ms_summary_bridge.formats.graphs.events import is_converted_graph
from ms_summary_bridge.formats.graphs.ms_to_tb import convert_graph, convert_graph_event
from ms_summary_bridge.formats.graphs.tb_names import common_scope, legal_name
from ms_summary_bridge.formats.mindspore import MindSporeDecoder
from ms_summary_bridge.formats.protos import ms_pb, tb_pb
from ms_summary_bridge.formats.tensorboard import TensorBoardDecoder, TensorBoardEncoder
from ms_summary_bridge.formats.unique_names import UniqueNames
from ms_summary_bridge.values import Opaque
from tests.conftest import TensorBoardServer
from tests.graph_samples import damage, graphs_in
from tests.mindspore_run import scalars, write_summary

both_loaders = pytest.mark.parametrize("load_fast", [True, False], ids=["fast", "slow"])

FLOAT32, INT64 = ms_pb.DataType.DT_FLOAT32, ms_pb.DataType.DT_INT64


def node(name: str, op: str, *inputs: str, full_name: str = "", **fields: Any) -> Any:
    """An operator; an input that begins with `^` is a control edge."""
    edges = [{"name": each.lstrip("^"), "type": int(each.startswith("^"))} for each in inputs]
    return ms_pb.NodeProto(name=name, op_type=op, full_name=full_name, input=edges, **fields)


def graph(*nodes: Any, parameters: Iterable[str] = (), constants: dict[str, Any] | None = None, **fields: Any) -> Any:
    return ms_pb.GraphProto(
        node=nodes,
        parameters=[ms_pb.ParameterProto(name=name) for name in parameters],
        const_vals=[ms_pb.NamedValueProto(key=key, value=value) for key, value in (constants or {}).items()],
        **fields,
    )


def number(value: int) -> Any:
    return ms_pb.ValueProto(dtype=INT64, int_val=value)


def tensor_type(*sizes: int, elem_type: int = FLOAT32) -> Any:
    shape = ms_pb.TensorShapeProto(dim=[{"size": size} for size in sizes]) if sizes else None
    tensor = ms_pb.TypeProto.Tensor(elem_type=elem_type, shape=shape)
    return ms_pb.TypeProto(data_type=ms_pb.DataType.DT_TENSOR, tensor_type=tensor)


def tuple_type(*elements: Any) -> Any:
    sequence = ms_pb.TypeProto.Sequence(elem_types=elements)
    return ms_pb.TypeProto(data_type=ms_pb.DataType.DT_TUPLE, sequence_type=sequence)


class Drawn:
    """A converted graph, checked against what holds for every one."""

    def __init__(self, source: Any) -> None:
        self.bytes, self.counts = convert_graph(source.SerializeToString())
        assert convert_graph(source.SerializeToString()) == (self.bytes, self.counts)
        assert is_converted_graph(self.bytes)
        graph_def = tb_pb.GraphDef.FromString(self.bytes)
        assert graph_def.versions.producer == 22
        self.nodes = {each.name: each for each in graph_def.node}
        assert len(self.nodes) == len(graph_def.node) == self.counts.drawn
        for each in graph_def.node:
            assert legal_name(each.name) == each.name
            assert each.op
            sources = [source_of(edge) for edge in each.input]
            assert set(sources) <= self.nodes.keys()
            is_control = [edge.startswith("^") for edge in each.input]
            assert is_control == sorted(is_control)
            for attr in each.attr.values():
                assert attr.ByteSize() <= 1024  # what TensorBoard sends to the browser
        assert sum(len(each.input) for each in graph_def.node) == self.counts.edges == count_edges(source)

    def __getitem__(self, name: str) -> Any:
        return self.nodes[name]

    def inputs(self, name: str) -> list[str]:
        return list(self.nodes[name].input)

    def ops(self) -> dict[str, str]:
        return {name: each.op for name, each in self.nodes.items()}

    def attr(self, name: str, key: str) -> Any:
        """An attribute as Python has it."""
        value = self.nodes[name].attr[key]
        which = value.WhichOneof("value")
        content = getattr(value, which)
        if which == "list":
            return [list(content.i), list(content.b), list(content.f)]
        return content.decode() if which == "s" else content

    def shapes(self, name: str) -> list[list[int] | None]:
        """Shapes of the outputs; None for an unknown rank."""
        shapes = self.nodes[name].attr["_output_shapes"].list.shape
        return [None if shape.unknown_rank else [dim.size for dim in shape.dim] for shape in shapes]


def source_of(edge: str) -> str:
    return edge.removeprefix("^").partition(":")[0]


def count_edges(source: Any) -> int:
    """Every edge of a graph and of the graphs inside it, counted on the messages."""
    edges = sum(len(each.input) for each in source.node) + len(source.outputs)
    values = [entry.value for entry in source.const_vals]
    values += [attribute.value for each in source.node for attribute in each.attribute]
    return edges + sum(count_edges(inner) for value in values for inner in graphs_in(value))


# ---------------------------------------------------------------- names


def test_a_node_is_called_by_its_full_name_or_by_scope_operator_and_number() -> None:
    drawn = Drawn(graph(node("1", "Add", full_name="Default/net/Add-op7"), node("2", "Mul", "1", scope="Default/net")))
    assert drawn.ops() == {"Default/net/Add-op7": "Add", "Default/net/Mul-op2": "Mul"}
    assert drawn.inputs("Default/net/Mul-op2") == ["Default/net/Add-op7"]
    assert drawn.counts == GraphCounts(operators=2, edges=1, drawn=2)


def test_names_that_are_taken_get_a_number_and_edges_go_to_the_right_one() -> None:
    drawn = Drawn(
        graph(
            node("1", "A", full_name="x"),
            node("2", "B", full_name="x"),
            node("3", "C", full_name="x_2"),
            node("4", "D", "1", "2", "3", full_name="y"),
        )
    )
    assert drawn.ops() == {"x": "A", "x_2": "B", "x_2_2": "C", "y": "D"}
    assert drawn.inputs("y") == ["x", "x_2", "x_2_2"]
    assert drawn.counts.renamed == 2
    assert drawn.attr("x_2", "full_name") == "x"


@pytest.mark.parametrize(
    ("name", "legal"),
    [
        ("Default/net-Net/Add-op0", "Default/net-Net/Add-op0"),
        ("a b:0<c>\"'\\\n", "a_b_0_c_____"),
        ("//a///b/", "a/b"),
        ("^a", "a"),
        ("_a/_b", "a/_b"),
        ("网络/层", "网络/层"),
        ("✓construct", "construct"),
        ("constructor", "constructor_"),
        ("toString/a", "toString_/a"),
        ("a/toString", "a/toString"),
        ("__proto__", "proto__"),
        ("__root__", "root__"),
        ("", "unnamed"),
        ("///", "unnamed"),
        ("/_-/-", "unnamed"),
        ("x" * 5000, "x" * 1000),
    ],
)
def test_a_name_is_made_legal(name: str, legal: str) -> None:
    assert legal_name(name) == legal
    assert legal_name(legal) == legal


@given(st.text())
def test_a_legal_name_stays_as_it_is(name: str) -> None:
    legal = legal_name(name)
    assert legal_name(legal) == legal
    assert not set(legal) & set(':^"\\\n ')
    assert all(legal.split("/"))


@given(st.lists(st.text(alphabet="a_2/ ", max_size=5)))
def test_names_are_unique(wishes: list[str]) -> None:
    names = UniqueNames()
    assert len({names.take(legal_name(wish)) for wish in wishes}) == len(wishes)


def test_common_scope() -> None:
    assert common_scope("a/b/c", "a/b/d") == "a/b"
    assert common_scope("a/b", "a/bc") == "a"
    assert common_scope("a/b", "a/b/c") == "a/b"
    assert common_scope("a", "b") == common_scope("", "a") == ""


def test_a_node_whose_name_is_a_scope_keeps_it() -> None:
    drawn = Drawn(graph(node("1", "A", full_name="net"), node("2", "B", "1", full_name="net/B"), parameters=["p"]))
    assert drawn.inputs("net/B") == ["net"]


def test_nodes_without_any_name_are_drawn() -> None:
    drawn = Drawn(graph(node("", ""), node("", "", "1"), node("1", "Add")))
    assert drawn.ops() == {"Call-op1": "Call", "Call-op2": "Call", "Add-op1": "Add"}
    assert drawn.inputs("Call-op2") == ["Add-op1"]


# ---------------------------------------------------------------- edges


def test_control_edges_stand_behind_data_edges() -> None:
    drawn = Drawn(graph(node("1", "A"), node("2", "B"), node("3", "C", "^1", "2", "^2", "1")))
    assert drawn.inputs("C-op3") == ["B-op2", "A-op1", "^A-op1", "^B-op2"]
    assert (drawn.counts.edges, drawn.counts.control_edges) == (4, 2)


def test_an_edge_of_a_kind_unknown_here_is_a_data_edge() -> None:
    # An enum in a proto2 message takes no number it does not know, so the field is written by hand: name "1", type 7.
    edge = b"\x0a\x011" + b"\x10\x07"
    source = graph(node("1", "A")).SerializeToString()
    second = b"\x0a" + bytes([len(edge)]) + edge + node("2", "B").SerializeToString()
    graph_def, counts = convert_graph(source + b"\x0a" + bytes([len(second)]) + second)
    assert [list(each.input) for each in tb_pb.GraphDef.FromString(graph_def).node] == [[], ["A-op1"]]
    assert counts.edges == 1


def test_cycles_and_loops_are_drawn() -> None:
    drawn = Drawn(graph(node("1", "A", "2", "1"), node("2", "B", "1")))
    assert drawn.inputs("A-op1") == ["B-op2", "A-op1"]


def test_an_item_of_a_tuple_comes_from_that_output() -> None:
    constants = {f"cst{i}": number(i) for i in range(4)}
    items = [node(str(10 + i), "TupleGetItem", "1", f"cst{i}", full_name=f"get{i}") for i in range(4)]
    split = node("1", "Split", full_name="split", output_type=tuple_type(tensor_type(2), tensor_type(), number_type()))
    drawn = Drawn(graph(split, *items, node("20", "TupleGetItem", "1", "cst9"), constants=constants))
    assert [drawn.inputs(f"get{i}")[0] for i in range(4)] == ["split", "split:1", "split:2", "split"]
    assert drawn.shapes("split") == [[2], None, []]
    assert drawn.attr("split", "output_type") == "(float32[2], float32, int64)"


def number_type() -> Any:
    return ms_pb.TypeProto(data_type=INT64)


def test_an_input_that_nothing_has_is_an_unknown_node() -> None:
    a, b = node("1", "A", "77", full_name="net/a/A"), node("2", "B", "77", "^88", full_name="net/b/B")
    drawn = Drawn(graph(a, b, outputs=[ms_pb.OutputProto(name="99")]))
    unknown = {name for name, op in drawn.ops().items() if op == "Unknown"}
    assert unknown == {"net/77", "net/b/88", "output/99"}
    assert drawn.inputs("net/b/B") == ["net/77", "^net/b/88"]
    assert (drawn.counts.unknown, drawn.counts.dangling_edges) == (3, 4)


def test_of_two_with_one_name_edges_go_to_the_first_and_both_are_drawn() -> None:
    drawn = Drawn(graph(node("1", "A"), node("1", "B"), node("3", "C", "1"), parameters=["1", "p", "p"]))
    assert drawn.inputs("C-op3") == ["A-op1"]
    assert drawn.counts.ambiguous == 3
    assert sorted(drawn.ops().values()) == ["A", "B", "C", "Parameter", "Parameter", "Parameter"]


# ---------------------------------------------------------------- parameters, constants, outputs


def test_a_parameter_stands_in_the_scope_that_holds_all_that_take_it() -> None:
    nodes = [
        node("1", "A", "w", "x", full_name="net/a/A"),
        node("2", "B", "w", "b", full_name="net/b/B"),
        node("3", "C", "x", full_name="opt/C"),
    ]
    drawn = Drawn(graph(*nodes, parameters=["w", "x", "b", "none", "a/b"]))
    assert [name for name, op in drawn.ops().items() if op == "Parameter"] == [
        "net/w",
        "x",
        "net/b/b",
        "unused/none",
        "unused/a_b",
    ]
    assert drawn.inputs("net/a/A") == ["net/w", "x"]


@pytest.mark.parametrize(("count", "scope"), [(20, "net"), (21, "net/parameters")])
def test_many_parameters_in_one_scope_get_a_scope_of_their_own(count: int, scope: str) -> None:
    names = [f"w{i}" for i in range(count)]
    drawn = Drawn(graph(node("1", "A", *names, "x", full_name="net/A"), node("2", "B", "x"), parameters=[*names, "x"]))
    assert drawn.inputs("net/A") == [f"{scope}/{name}" for name in names] + ["x"]


def test_a_parameter_has_type_shape_and_default() -> None:
    parameter = ms_pb.ParameterProto(name="w", type=tensor_type(3, -1), default_val=number(5))
    drawn = Drawn(ms_pb.GraphProto(parameters=[parameter]))
    assert drawn.attr("unused/w", "dtype") == tb_pb.DataType.DT_FLOAT
    assert drawn.attr("unused/w", "value") == 5
    assert drawn.shapes("unused/w") == [[3, -1]]


def test_a_constant_has_a_copy_in_each_scope_that_takes_it() -> None:
    nodes = [
        node("1", "A", "cst1", "cst1", full_name="net/a/A"),
        node("2", "B", "cst1", full_name="net/a/B"),
        node("3", "C", "cst1", full_name="net/c/C"),
    ]
    outputs = [ms_pb.OutputProto(name="cst1")]
    drawn = Drawn(graph(*nodes, constants={"cst1": number(3), "cst2": number(4)}, outputs=outputs))
    copies = [name for name, op in drawn.ops().items() if op == "Const"]
    assert copies == ["net/a/cst1", "net/c/cst1", "output/cst1"]
    assert drawn["unused/cst2"].op == "Unused"  # TensorBoard shows a Const only beside what takes it
    assert drawn.inputs("net/a/A") == ["net/a/cst1", "net/a/cst1"]
    assert drawn.inputs("output/cst1_2") == ["output/cst1"]
    assert drawn.attr("net/c/cst1", "value") == 3
    assert drawn.attr("net/c/cst1", "dtype") == tb_pb.DataType.DT_INT64
    assert drawn.shapes("net/c/cst1") == [[]]
    assert (drawn.counts.constants, drawn.counts.constant_copies) == (2, 4)


def test_outputs_have_a_scope_of_their_own() -> None:
    output = ms_pb.OutputProto(name="1", type=tensor_type(8))
    drawn = Drawn(graph(node("1", "A", full_name="net/A-op0"), outputs=[output, output]))
    assert drawn.inputs("output/A-op0") == drawn.inputs("output/A-op0_2") == ["net/A-op0"]
    assert drawn["output/A-op0"].op == "Output"
    assert drawn.shapes("output/A-op0") == [[8]]


def test_graphs_inside_a_graph_are_drawn_in_a_scope_of_their_own() -> None:
    inner = graph(node("1", "Mul", "x", "cst1"), parameters=["x"], constants={"cst1": number(2)}, name="body")
    inner.outputs.add(name="1")
    deep = graph(node("1", "Deep"))
    held = ms_pb.ValueProto(dtype=ms_pb.DataType.DT_GRAPH, graph=inner)
    nested = ms_pb.ValueProto(values=[{"graphs": [deep]}, {"dict_val": [{"key": "k", "value": held}]}])
    attribute = ms_pb.AttributeProto(name="branch", value=held)
    drawn = Drawn(
        graph(node("1", "If", "cst1", attribute=[attribute]), constants={"cst1": held, "cst2": nested}, name="top")
    )
    assert drawn.counts.subgraphs == 4
    assert drawn.inputs("If-op1") == ["cst1"]
    assert drawn.attr("cst1", "value") == "graph body of 1 operators"
    assert drawn.inputs("body/Mul-op1") == ["body/x", "body/cst1"]
    assert drawn.inputs("body/output/Mul-op1") == ["body/Mul-op1"]
    assert {"body_2/Mul-op1", "body_3/Mul-op1", "cst2/Deep-op1"} <= drawn.nodes.keys()


# ---------------------------------------------------------------- types and values


@pytest.mark.parametrize(
    ("output_type", "shapes", "attribute"),
    [
        (tensor_type(8, 4, 16), [[8, 4, 16]], ("T", tb_pb.DataType.DT_FLOAT)),
        (tensor_type(), [[]], ("T", tb_pb.DataType.DT_FLOAT)),
        (tensor_type(-1, 3, elem_type=46), [[-1, 3]], ("T", tb_pb.DataType.DT_BFLOAT16)),
        (tensor_type(-2), [None], ("T", tb_pb.DataType.DT_FLOAT)),
        (tensor_type(-7), [[-1]], ("T", tb_pb.DataType.DT_FLOAT)),
        (number_type(), [[]], ("T", tb_pb.DataType.DT_INT64)),
        (tuple_type(), [], ("output_type", "()")),
        (tuple_type(tuple_type(number_type())), [None], ("output_type", "((int64))")),
        (ms_pb.TypeProto(data_type=ms_pb.DataType.DT_NONE), [], ("output_type", "none")),
    ],
)
def test_types(output_type: Any, shapes: list[Any], attribute: tuple[str, Any]) -> None:
    drawn = Drawn(graph(node("1", "A", output_type=output_type)))
    assert drawn.shapes("A-op1") == shapes
    assert drawn.attr("A-op1", attribute[0]) == attribute[1]


def test_no_type_gives_no_attribute() -> None:
    assert not Drawn(graph(node("1", "A")))["A-op1"].attr


def value(**fields: Any) -> Any:
    return ms_pb.ValueProto(**fields)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (value(bool_val=False), False),
        (value(int_val=-5), -5),
        (value(uint_val=(1 << 63) - 1), (1 << 63) - 1),
        (value(uint_val=1 << 63), "9223372036854775808"),
        (value(float_val=0.5), 0.5),
        (value(double_val=0.5), 0.5),
        (value(double_val=1e-300), "1e-300"),
        (value(double_val=1e300), "1e+300"),
        (value(str_val="NCHW"), "NCHW"),
        (value(str_val="U"), "U"),
        (value(type_val=tensor_type(elem_type=INT64)), tb_pb.DataType.DT_INT64),
        (value(type_val=ms_pb.TypeProto(data_type=ms_pb.DataType.DT_ANY)), "any"),
        (value(int_vals=[1, 2]), [[1, 2], [], []]),
        (value(bool_vals=[True]), [[], [True], []]),
        (value(float_vals=[0.5]), [[], [], [0.5]]),
        (value(str_vals=["a", "b"]), "[a, b]"),
        (value(uint_vals=[1]), "[1]"),
        (value(double_vals=[0.1]), "[0.1]"),
        (value(tensor_vals=[{"dims": [2], "data_type": FLOAT32}]), "[float32[2]]"),
        (value(graphs=[{"name": "g"}]), "[graph g of 0 operators]"),
        (value(dtype=31, values=[number(3), number(4)]), "(3, 4)"),
        (value(dtype=32, values=[value(str_val="x"), value(float_val=0.1)]), "[x, 0.1]"),
        (value(dtype=31, values=[value(dtype=31, values=[number(1)]), value(dtype=34)]), "((1), None)"),
        (value(dtype=33, dict_val=[{"key": "a", "value": number(1)}]), "{a: 1}"),
        (value(dtype=31), "()"),
        (value(dtype=32), "[]"),
        (value(dtype=33), "{}"),
        (value(dtype=34), "None"),
        (value(dtype=40), "(any)"),
        (value(), "(undefined)"),
        (value(int_val=1, str_val="both"), "1, both"),
        (value(tensor_val={"dims": [2, 3], "data_type": FLOAT32}), "float32[2, 3]"),
        (
            value(tensor_val={"dims": [9], "data_type": 5, "int64_data": range(9)}),
            "int64[9] = 0, 1, 2, 3, 4, 5, 6, 7, ...",
        ),
        (value(tensor_val={"dims": [1], "data_type": 11, "float_data": [0.1]}), "float32[1] = 0.1"),
    ],
)
def test_values(source: Any, expected: Any) -> None:
    attribute = ms_pb.AttributeProto(name="a", value=source)
    drawn = Drawn(graph(node("1", "A", "cst1", attribute=[attribute]), constants={"cst1": source}))
    assert drawn.attr("A-op1", "a") == expected
    assert drawn.attr("cst1", "value") == expected


def test_a_float_attribute_holds_what_is_not_finite() -> None:
    drawn = Drawn(graph(constants={"a": value(double_val=float("nan")), "b": value(float_val=float("-inf"))}))
    assert drawn.attr("unused/a", "value") != drawn.attr("unused/a", "value")
    assert drawn.attr("unused/b", "value") == float("-inf")


@pytest.mark.parametrize(
    "huge",
    [
        value(str_val="ä" * 100_000),
        value(dtype=31, values=[number(i) for i in range(100_000)]),
        value(dtype=31, values=[value(values=[value(str_val="x" * 5000)] * 100)] * 100),
        value(int_vals=range(100_000)),
        value(dict_val=[{"key": "k" * 1000, "value": number(i)} for i in range(1000)]),
        value(tensor_val={"dims": [1000] * 1000, "data_type": FLOAT32, "float_data": [1.0] * 100_000}),
    ],
)
def test_long_values_are_abbreviated(huge: Any) -> None:
    attribute = ms_pb.AttributeProto(name="a", value=huge)
    drawn = Drawn(graph(node("1", "A", "cst1", attribute=[attribute]), constants={"cst1": huge}))
    assert "..." in drawn.attr("A-op1", "a")


def test_long_tuples_of_outputs_are_abbreviated() -> None:
    drawn = Drawn(graph(node("1", "A", output_type=tuple_type(*[tensor_type(2)] * 10_000))))
    assert drawn.attr("A-op1", "output_type").endswith(", float32[2], ... 10000 in all)")
    assert drawn.shapes("A-op1") == [[2]] * 32
    drawn = Drawn(graph(node("1", "A", output_type=tuple_type(*[tensor_type(*[10**15] * 32)] * 100))))
    assert drawn.attr("A-op1", "output_type").endswith(" ...")
    assert drawn.shapes("A-op1") == [[10**15] * 32] * 2


def test_attributes_with_one_name_are_all_kept() -> None:
    names = ["T", "x", "x", "", "_output_shapes", "instance_name"]
    attributes = [ms_pb.AttributeProto(name=name, value=number(i)) for i, name in enumerate(names)]
    source = node("1", "A", attribute=attributes, output_type=tensor_type(2), instance_name="a")
    drawn = Drawn(graph(source))
    keys = {"T_2": 0, "x": 1, "x_2": 2, "attribute": 3, "_output_shapes_2": 4, "instance_name_2": 5}
    assert {key: drawn.attr("A-op1", key) for key in keys} == keys
    assert drawn.shapes("A-op1") == [[2]]
    assert drawn.attr("A-op1", "instance_name") == "a"


# ---------------------------------------------------------------- any graph

_NAMES = st.sampled_from(["", "1", "2", "3", "cst1", "w", "a/b", "a", "a/a", "x:0", "^1", "a b", "_", "output/1", "é"])
_VALUES = st.recursive(
    st.one_of(
        st.builds(lambda n: {"dtype": INT64, "int_val": n}, st.integers(0, 3)),
        st.builds(lambda text: {"str_val": text}, st.text(max_size=5)),
        st.builds(lambda number: {"double_val": number}, st.floats()),
        st.builds(lambda dtype: {"dtype": dtype}, st.sampled_from(sorted(ms_pb.DataType.values()))),
    ),
    lambda inner: st.one_of(
        st.builds(lambda each: {"dtype": 31, "values": each}, st.lists(inner, max_size=3)),
        st.builds(lambda each: {"dict_val": [{"key": "k", "value": v} for v in each]}, st.lists(inner, max_size=2)),
        st.builds(
            lambda v: {"graph": {"name": "a", "node": [{"name": "1", "input": [{"name": "cst1"}]}],
                                 "const_vals": [{"key": "cst1", "value": v}]}},
            inner,
        ),
    ),
    max_leaves=4,
)  # fmt: skip
_TYPES = st.sampled_from([None, tensor_type(2, 3), tuple_type(tensor_type(2), number_type()), number_type()])
_NODES = st.builds(
    lambda name, op, full, scope, inputs, attributes, output_type: ms_pb.NodeProto(
        name=name, op_type=op, full_name=full, scope=scope, output_type=output_type,
        input=[{"name": each, "type": kind} for each, kind in inputs],
        attribute=[{"name": key, "value": each} for key, each in attributes],
    ),
    _NAMES, st.sampled_from(["", "Add", "TupleGetItem", "Const"]), _NAMES, _NAMES,
    st.lists(st.tuples(_NAMES, st.sampled_from([0, 0, 0, 1])), max_size=4),
    st.lists(st.tuples(_NAMES, _VALUES), max_size=2), _TYPES,
)  # fmt: skip
GRAPHS = st.builds(
    lambda nodes, parameters, constants, outputs: ms_pb.GraphProto(
        node=nodes, parameters=[{"name": each} for each in parameters],
        const_vals=[{"key": key, "value": each} for key, each in constants],
        outputs=[{"name": each} for each in outputs],
    ),
    st.lists(_NODES, max_size=6), st.lists(_NAMES, max_size=3),
    st.lists(st.tuples(_NAMES, _VALUES), max_size=3), st.lists(_NAMES, max_size=2),
)  # fmt: skip


@given(GRAPHS)
def test_every_graph_is_drawn_whole(source: Any) -> None:
    if not (source.node or source.parameters or source.const_vals or source.outputs):
        with pytest.raises(InvalidValueError, match="empty"):
            convert_graph(source.SerializeToString())
        return
    drawn = Drawn(source)
    counts = drawn.counts
    if not counts.subgraphs:
        assert counts.operators == len(source.node)
        assert counts.parameters == len(source.parameters) == list(drawn.ops().values()).count("Parameter")
        assert counts.outputs == len(source.outputs) == list(drawn.ops().values()).count("Output")
        assert counts.constants == len(source.const_vals)
    assert counts.drawn == (
        counts.operators + counts.parameters + counts.outputs + counts.constant_copies + counts.unknown
    )


@given(GRAPHS, st.data())
def test_a_damaged_graph_raises_one_error_only(source: Any, data: st.DataObject) -> None:
    with contextlib.suppress(InvalidValueError):
        graph_def, counts = convert_graph(damage(source, data))
        nodes = tb_pb.GraphDef.FromString(graph_def).node
        names = {each.name for each in nodes}
        assert len(names) == len(nodes)
        assert {source_of(edge) for each in nodes for edge in each.input} <= names
        assert sum(len(each.input) for each in nodes) == counts.edges


@given(st.binary())
def test_any_bytes_raise_one_error_only(payload: bytes) -> None:
    for convert in (convert_graph, convert_graph_event):
        with contextlib.suppress(InvalidValueError):
            convert(payload)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "empty"),
        (b"\x0a\x05", "malformed"),
        (b"\x0a\x03\x12\x01\xff", "not UTF-8"),
        (b"\x0a\x05\x2a\x03\x12\x01\x0a", "cannot be read"),
        (b"\x2a\x05\x12\x03\x3a\x01\xff", "not UTF-8"),  # str_val
        (b"\x2a\x06\x12\x04\x7a\x02\xff\xff", "not UTF-8"),  # str_vals
        (b"\x2a\x08\x12\x06\x9a\x01\x03\x0a\x01\xff", "not UTF-8"),  # a key of dict_val
        (b"\x2a\x07\x12\x05\x4a\x03\x12\x01\xff", "not UTF-8"),  # the name of a graph
    ],
)
def test_what_is_wrong_is_said(payload: bytes, reason: str) -> None:
    with pytest.raises(InvalidValueError, match=reason):
        convert_graph(payload)


def test_a_graph_nested_without_end_is_refused() -> None:
    inner = b"\x0a\x00"
    for _ in range(2000):  # GraphProto.const_vals.value.graph
        inner = b"\x2a" + field(b"\x12" + field(b"\x4a" + field(inner)))
    with pytest.raises(InvalidValueError, match="cannot be read"):
        convert_graph(inner)


def field(data: bytes) -> bytes:
    """Length and content of a field."""
    length, out = len(data), bytearray()
    while length > 127:
        out.append(length & 127 | 128)
        length >>= 7
    return bytes([*out, length]) + data


def test_an_event_without_a_graph_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="no graph"):
        convert_graph_event(ms_pb.Event(wall_time=1.0).SerializeToString())


def test_a_graph_file_is_converted_like_an_event() -> None:
    source = graph(node("1", "A"))
    model = ms_pb.ModelProto(ir_version=1, graph=source).SerializeToString()
    assert convert_graph_event(model) == convert_graph(source.SerializeToString())


# ---------------------------------------------------------------- in the codec


def graph_event(source: Any, *, step: int = 0, wall_time: float = 1.7e9) -> Event:
    payload = ms_pb.Event(wall_time=wall_time, step=step, graph_def=source).SerializeToString()
    return MindSporeDecoder().decode(payload)


def test_an_event_keeps_its_step_and_time_and_comes_back_as_derived() -> None:
    event = graph_event(graph(node("1", "A", "9")), step=7)
    encoded = TensorBoardEncoder().encode(event)
    assert encoded.payload is not None
    written = tb_pb.Event.FromString(encoded.payload)
    assert (written.wall_time, written.step, written.WhichOneof("what")) == (1.7e9, 7, "graph_def")
    assert encoded.archive == event
    (loss,) = encoded.losses
    assert (loss.kind, loss.tag) == ("graph", "")
    assert loss.reason.startswith("drawn as a TensorFlow graph; 1 operator, 1 edge, 1 of them from names")

    decoded = TensorBoardDecoder().decode(encoded.payload)
    assert decoded.derived
    assert decoded.content == Opaque("graph", encoded.payload)
    assert TensorBoardEncoder().encode(decoded).payload == encoded.payload


def test_a_graph_that_cannot_be_read_goes_to_the_archive_alone() -> None:
    payload = b"\x09" + bytes(8) + b"\x22\x02\x0a\x05"
    event = MindSporeDecoder().decode(payload)
    encoded = TensorBoardEncoder().encode(event)
    assert encoded.payload is None
    assert encoded.archive == event
    assert "malformed" in encoded.losses[0].reason


@pytest.mark.parametrize("graph_def", [b"", b"\x0a\x05", tb_pb.GraphDef(node=[{"name": "\u03e8"}]).SerializeToString()])
def test_a_graph_of_somebody_else_is_not_taken_for_ours(graph_def: bytes) -> None:
    payload = tb_pb.Event(wall_time=1.0, graph_def=graph_def).SerializeToString()
    assert not TensorBoardDecoder().decode(payload).derived


def test_a_converted_graph_is_equal_to_its_source(tmp_path: Path) -> None:
    write_summary(tmp_path / "ms", [graph_event(graph(node("1", "A"))), *scalars("loss", range(1, 4))])
    report = convert_logdir(str(tmp_path / "ms"), str(tmp_path / "tb"))
    assert report.runs[0].values == {"graph": 1, "scalar": 3}
    assert verify_logdirs(str(tmp_path / "ms"), str(tmp_path / "tb")).is_equal
    run = inspect_logdir(str(tmp_path / "tb")).runs[0]
    assert run.derived == 1
    assert [(tag.kind, tag.points) for tag in run.tags] == [("graph", 1), ("scalar", 3)]


def test_a_changed_graph_is_a_difference(tmp_path: Path) -> None:
    write_summary(tmp_path / "ms", [graph_event(graph(node("1", "A")))])
    write_summary(tmp_path / "other", [graph_event(graph(node("1", "B")))])
    convert_logdir(str(tmp_path / "ms"), str(tmp_path / "tb"))
    assert not verify_logdirs(str(tmp_path / "other"), str(tmp_path / "tb")).is_equal


# ---------------------------------------------------------------- the real thing


def read_real_graph(directory: Path) -> bytes:
    (path,) = directory.glob("*_MS")
    events = [item for item in EventFileReader(path, MindSporeDecoder()) if isinstance(item, Event)]
    (payload,) = [
        event.content.payload for event in events if isinstance(event.content, Opaque) and event.content.kind == "graph"
    ]
    return ms_pb.Event.FromString(payload).graph_def.SerializeToString()


def test_a_real_graph(summary_dir: Path) -> None:
    source = ms_pb.GraphProto.FromString(read_real_graph(summary_dir))
    drawn = Drawn(source)
    counts = drawn.counts
    assert (counts.operators, counts.parameters) == (len(source.node), len(source.parameters))
    assert (counts.unknown, counts.ambiguous, counts.renamed) == (0, 0, 0)
    for each in source.node:
        assert drawn[each.full_name].op == each.op_type
        assert len(drawn[each.full_name].input) == len(each.input)
        if each.output_type.HasField("tensor_type"):
            assert drawn.shapes(each.full_name) == [[dim.size for dim in each.output_type.tensor_type.shape.dim]]


@pytest.mark.slow
def test_a_large_graph_is_converted_whole_in_little_memory(tmp_path: Path) -> None:
    attributes = [{"name": f"a{i}", "value": value(dtype=31, values=[number(i)] * 4)} for i in range(6)]
    source = ms_pb.GraphProto()
    for i in range(25_000):
        source.node.add(
            name=str(i), op_type="Add", full_name=f"Default/layer{i // 100}/cell{i // 10}/Add-op{i}",
            input=[{"name": str(i - 1)}, {"name": f"w{i}"}, {"name": f"cst{i % 50}"}], attribute=attributes,
            output_type=tensor_type(i, 4),
        )  # fmt: skip
        source.parameters.add(name=f"w{i}", type=tensor_type(i))
    for i in range(50):
        source.const_vals.add(key=f"cst{i}", value=number(i))
    path = tmp_path / "graph"
    path.write_bytes(source.SerializeToString())
    code = (
        "import json, re, sys; from ms_summary_bridge.formats.graphs.ms_to_tb import convert_graph;"
        "_, counts = convert_graph(open(sys.argv[1], 'rb').read());"
        "peak = re.search(r'VmHWM:\\s+(\\d+) kB', open('/proc/self/status').read());"  # ru_maxrss counts the parent too
        "print(json.dumps([int(peak[1]), counts.operators, counts.edges]))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    rss_kib, nodes, edges = json.loads(done.stdout)
    assert (nodes, edges) == (25_000, 75_000)
    assert rss_kib < 1 << 18


@both_loaders
def test_tensorboard_shows_the_graph(
    tmp_path: Path, summary_dir: Path, tensorboard_server: TensorBoardServer, load_fast: bool
) -> None:
    convert_logdir(str(summary_dir), str(tmp_path / "tb" / "run"))
    assert verify_logdirs(str(summary_dir), str(tmp_path / "tb" / "run")).is_equal
    client = tensorboard_server(tmp_path / "tb", load_fast)
    runs = client.wait_json("data/plugin/graphs/info", lambda runs: runs.get("run", {}).get("run_graph"))
    assert runs["run"]["run_graph"]
    query = "run=run&limit_attr_size=1024&large_attrs_key=_too_large_attrs"  # as the browser asks
    text = client.get(f"data/plugin/graphs/graph?{query}").decode()
    source = ms_pb.GraphProto.FromString(read_real_graph(summary_dir))
    for each in source.node:
        assert f'name: "{each.full_name}"' in text
    assert text.count("\nnode {") + text.startswith("node {") == Drawn(source).counts.drawn
    assert text.count("  input: ") == Drawn(source).counts.edges
    assert "_output_shapes" in text
    assert "_too_large_attrs" not in text


@both_loaders
def test_tensorboard_shows_names_of_every_script(
    tmp_path: Path, tensorboard_server: TensorBoardServer, load_fast: bool
) -> None:
    source = graph(node("1", "A", full_name="网络/A"), node("2", "B", "^1", full_name="网络/B"))
    write_summary(tmp_path / "ms", [graph_event(source), *scalars("loss", range(3))])
    convert_logdir(str(tmp_path / "ms"), str(tmp_path / "tb" / "run"))
    client = tensorboard_server(tmp_path / "tb", load_fast)
    client.wait_json("data/plugin/graphs/info", lambda runs: runs.get("run", {}).get("run_graph"))
    text = client.get("data/plugin/graphs/graph?run=run").decode()
    assert 'name: "网络/A"' in text
    assert 'input: "^网络/A"' in text
