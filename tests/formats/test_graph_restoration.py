"""Graphs of real networks, and the way back from a drawing where no archive holds the original."""

from __future__ import annotations

import contextlib
import gzip
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.convert.task import ConvertOptions
from ms_summary_bridge.convert.verify import verify_logdirs
from ms_summary_bridge.errors import InvalidValueError
from ms_summary_bridge.events import Event
from ms_summary_bridge.files.event_file import EventFileReader
from ms_summary_bridge.files.records import encode_record
from ms_summary_bridge.formats import wire
from ms_summary_bridge.formats.graphs.errors import read_safely
from ms_summary_bridge.formats.graphs.events import is_converted_graph
from ms_summary_bridge.formats.graphs.marks import SIGNATURE, Holder, encode_member
from ms_summary_bridge.formats.graphs.ms_to_tb import convert_graph
from ms_summary_bridge.formats.graphs.restoration import restore_graph, restore_graph_def
from ms_summary_bridge.formats.mindspore import MindSporeDecoder, MindSporeEncoder
from ms_summary_bridge.formats.protos import ms_pb, tb_pb
from ms_summary_bridge.formats.tensorboard import TensorBoardDecoder, TensorBoardEncoder
from ms_summary_bridge.values import Opaque
from tests.conftest import TensorBoardServer
from tests.formats.test_graph import GRAPHS, Drawn, graph, graph_event, node, number, tensor_type, tuple_type
from tests.graph_samples import (
    constant,
    structure_of_anf,
    structure_of_graph_def,
    tensorflow_graph,
    tf_node,
    torch_graph,
)
from tests.graph_samples import graphs_in as graphs_in_value
from tests.mindspore_run import scalars, write_summary

WITHOUT_ARCHIVE = ConvertOptions(keep_archive=False)
DATA = Path(__file__).resolve().parents[1] / "data"
NETWORKS = ("lenet", "resnet", "transformer", "llama")


def graphs_in(directory: Path) -> list[Any]:
    """The graphs in the event files of one run, in the message of their format."""
    found = []
    for path in sorted([*directory.glob("*_MS"), *directory.glob("*tfevents*")]):
        is_mindspore = path.name.endswith("_MS")
        for event in EventFileReader(path, MindSporeDecoder() if is_mindspore else TensorBoardDecoder()):
            if isinstance(event, Event) and isinstance(event.content, Opaque) and event.content.kind == "graph":
                payload = event.content.payload
                if is_mindspore:
                    found.append(ms_pb.Event.FromString(payload).graph_def)
                else:
                    found.append(tb_pb.GraphDef.FromString(tb_pb.Event.FromString(payload).graph_def))
    return found


def llama_graph() -> Any:
    """The graph that tests/data/README.md tells of."""
    return ms_pb.GraphProto.FromString(gzip.decompress((DATA / "mindformers-1.9.0-llama-graph.bin.gz").read_bytes()))


@pytest.fixture(scope="module")
def real_graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a run for each network that tests/real_graphs.py compiles, the stored one, and a nested one."""
    top = tmp_path_factory.mktemp("real_graphs")
    script = Path(__file__).resolve().parents[1] / "real_graphs.py"
    with (top / "output.txt").open("w+") as output:  # MindSpore leaves files where it stands
        done = subprocess.run(
            [sys.executable, str(script), str(top / "ms")], cwd=top, stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT, timeout=240, check=False,
        )  # fmt: skip
        output.seek(0)
        assert done.returncode == 0, output.read()[-4000:]
    write_summary(top / "ms" / "llama", [graph_event(llama_graph()), *scalars("loss", range(1, 3))])
    write_summary(top / "ms" / "nested", [graph_event(nested_graph()), *scalars("loss", range(1, 3))])
    return top / "ms"


@pytest.mark.mindspore
@pytest.mark.parametrize("network", NETWORKS)
def test_a_real_graph_is_drawn_whole_and_comes_back_without_an_archive(
    real_graphs: Path, tmp_path: Path, network: str
) -> None:
    check_there_and_back(real_graphs / network, tmp_path)


def check_there_and_back(source: Path, tmp_path: Path) -> None:
    """Converts a run with a graph to TensorBoard and back, and checks what is drawn, reported and restored."""
    (original,) = graphs_in(source)
    drawn = Drawn(original)
    counts = drawn.counts
    assert counts.operators == len(original.node)
    assert counts.edges == sum(len(each.input) for each in original.node) + len(original.outputs)
    assert (counts.unknown, counts.dangling_edges, counts.ambiguous, counts.renamed) == (0, 0, 0, 0)
    assert counts.drawn == counts.operators + counts.parameters + counts.outputs + counts.constant_copies

    (run,) = convert_logdir(str(source), str(tmp_path / "tb"), options=WITHOUT_ARCHIVE).runs
    (loss,) = [loss for loss in run.losses if loss.kind == "graph"]
    numbers = [int(text.replace(",", "")) for text in re.findall("[0-9][0-9,]*[0-9]|[0-9]", loss.reason)]
    assert numbers == [
        counts.operators, counts.edges, counts.parameters, counts.constants, counts.outputs, counts.drawn,
        counts.constant_copies,
    ]  # fmt: skip
    assert [each.SerializeToString() for each in graphs_in(tmp_path / "tb")] == [
        tb_pb.GraphDef.FromString(drawn.bytes).SerializeToString()
    ]

    (run,) = convert_logdir(str(tmp_path / "tb"), str(tmp_path / "back"), options=WITHOUT_ARCHIVE).runs
    assert run.values["graph"] == 1
    (restored,) = graphs_in(tmp_path / "back")
    assert structure_of_anf(restored) == structure_of_anf(named(original))
    convert_logdir(str(tmp_path / "back"), str(tmp_path / "again"), options=WITHOUT_ARCHIVE)
    (again,) = graphs_in(tmp_path / "again")
    assert structure_of_graph_def(again) == structure_of_graph_def(tb_pb.GraphDef.FromString(drawn.bytes))

    convert_logdir(str(source), str(tmp_path / "kept"))
    assert verify_logdirs(str(source), str(tmp_path / "kept")).is_equal
    convert_logdir(str(tmp_path / "kept"), str(tmp_path / "exact"))
    assert graphs_in(tmp_path / "exact") == [original]


def named(original: Any) -> Any:
    """A copy in which operators without a name have the one they are drawn under."""
    copy = ms_pb.GraphProto.FromString(original.SerializeToString())
    for index, each in enumerate(copy.node, 1):
        if not each.full_name:
            scope = f"{each.scope}/" if each.scope else ""
            each.full_name = f"{scope}{each.op_type or 'Call'}-op{each.name or index}"
    return copy


@pytest.mark.mindspore
def test_what_a_branch_of_the_network_calls_is_drawn(real_graphs: Path) -> None:
    """MindSpore writes the call of a graph that is chosen while the network runs without a name, and counts it."""
    (original,) = graphs_in(real_graphs / "resnet")
    (index,) = [index for index, each in enumerate(original.node, 1) if not each.name]
    drawn = Drawn(original)
    name = f"Call-op{index}"
    assert drawn[name].op == "Call"
    assert [each.name for each in drawn.nodes.values() if name in each.input]


@pytest.mark.mindspore
@pytest.mark.parametrize("load_fast", [True, False], ids=["fast", "slow"])
def test_tensorboard_shows_the_graphs_of_all_networks(
    real_graphs: Path, tmp_path: Path, tensorboard_server: TensorBoardServer, load_fast: bool
) -> None:
    convert_logdir(str(real_graphs), str(tmp_path / "tb"))
    client = tensorboard_server(tmp_path / "tb", load_fast)
    names = [run.name for run in real_graphs.iterdir()]
    client.wait_json("data/plugin/graphs/info", lambda runs: all(runs.get(name, {}).get("run_graph") for name in names))
    for name in names:
        (original,) = graphs_in(real_graphs / name)
        drawn = Drawn(original)
        text = client.get(
            f"data/plugin/graphs/graph?run={name}&limit_attr_size=1024&large_attrs_key=_too_large_attrs"
        ).decode()
        assert re.findall(r'^  name: "(.*)"$', text, re.MULTILINE) == list(drawn.nodes)
        assert re.findall(r'^  input: "(.*)"$', text, re.MULTILINE) == [
            edge for each in drawn.nodes.values() for edge in each.input
        ]
        assert text.count("_output_shapes") == sum("_output_shapes" in each.attr for each in drawn.nodes.values())


# ---------------------------------------------------------------- any graph


def restored(source: Any) -> Any:
    return ms_pb.GraphProto.FromString(restore_graph(Drawn(source).bytes)[0])


def test_types_of_tuples_and_numbers_come_back() -> None:
    int64 = ms_pb.TypeProto(data_type=ms_pb.DataType.DT_INT64)
    types = [
        tuple_type(tensor_type(2, -1), tensor_type(), int64, tuple_type(tensor_type(3), int64)),
        tuple_type(),
        tuple_type(tuple_type()),
        tensor_type(-2),
        tensor_type(4, elem_type=0),
        int64,
        ms_pb.TypeProto(data_type=ms_pb.DataType.DT_NONE),
        ms_pb.TypeProto(),
    ]
    source = graph(*(node(str(i), "A", full_name=f"a{i}", output_type=each) for i, each in enumerate(types, 1)))
    assert structure_of_anf(restored(source)) == structure_of_anf(source)


def test_what_has_a_name_that_cannot_be_drawn_comes_back_under_its_own() -> None:
    source = graph(
        node("1", "A", "w/x:0", "cst 1", full_name="net:0/a b"), node("2", "B", "1", "^gone", full_name="net:0/a b"),
        parameters=["w/x:0", "w_x_0"], constants={"cst 1": number(4)}, outputs=[ms_pb.OutputProto(name="2")],
    )  # fmt: skip
    for each in source.node:
        each.scope = "net:0"
    assert structure_of_anf(restored(source)) == structure_of_anf(source)


def test_an_operator_called_like_a_constant_or_an_output_stays_an_operator() -> None:
    ops = ["Const", "Parameter", "Output", "Unknown", "Unused"]
    source = graph(*(node(str(i), op, "1", full_name=f"a{i}") for i, op in enumerate(ops, 1)))
    assert structure_of_anf(restored(source)) == structure_of_anf(source)


def test_graphs_inside_a_graph_come_back_where_they_were(tmp_path: Path) -> None:
    source = nested_graph()
    write_summary(tmp_path / "ms", [graph_event(source), *scalars("loss", range(1, 3))])
    (run,) = convert_logdir(str(tmp_path / "ms"), str(tmp_path / "tb"), options=WITHOUT_ARCHIVE).runs
    assert "4 graphs inside it" in run.losses[0].reason
    (run,) = convert_logdir(str(tmp_path / "tb"), str(tmp_path / "back"), options=WITHOUT_ARCHIVE).runs
    (loss,) = run.losses
    assert loss.reason == (
        "turned back from its drawing; values that were drawn in words stay words; "
        "8 operators, 16 edges; 3 parameters, 5 constants, 3 outputs, 4 graphs inside it"
    )
    (found,) = graphs_in(tmp_path / "back")
    assert structure_of_anf(found) == structure_of_anf(source)
    convert_logdir(str(tmp_path / "back"), str(tmp_path / "again"), options=WITHOUT_ARCHIVE)
    assert structure_of_graph_def(graphs_in(tmp_path / "again")[0]) == structure_of_graph_def(
        graphs_in(tmp_path / "tb")[0]
    )


def nested_graph() -> Any:
    """A graph with graphs in a constant, in an attribute, side by side, and inside one another."""
    body = graph(
        node("1", "Mul", "x", "cst1", full_name="Default/Mul-op1", scope="Default", output_type=tensor_type(2, 3)),
        node("2", "Neg", "1", "^1", full_name="Default/Neg-op2", scope="Default"),
        parameters=["x"], constants={"cst1": number(2)}, outputs=[ms_pb.OutputProto(name="2")], name="body",
    )  # fmt: skip
    deep = graph(node("1", "Deep", full_name="Deep-op1"), name="deep/er")
    held = ms_pb.ValueProto(dtype=ms_pb.DataType.DT_GRAPH, graph=body)
    middle = graph(
        node("1", "Call", "cst1", full_name="Call-op1", attribute=[{"name": "branch", "value": held}]),
        constants={"cst1": number(1)}, name="body",
    )  # fmt: skip
    nested = ms_pb.ValueProto(dtype=31, values=[number(7), {"graphs": [deep, middle]}])
    return graph(
        node("1", "If", "cst1", "cst2", full_name="If-op1"),
        node("2", "Add", "1", "w", full_name="net/Add-op2", scope="net"),
        parameters=["w"], constants={"cst1": held, "cst2": nested}, outputs=[ms_pb.OutputProto(name="2")], name="top",
    )  # fmt: skip


@given(GRAPHS, st.data())
def test_a_drawing_with_damaged_marks_raises_one_error_only(source: Any, data: st.DataObject) -> None:
    """No graph gets into itself, or into two others; what is no graph's stays in the outermost."""
    source.const_vals.add(key="held", value=ms_pb.ValueProto(graph=nested_graph()))
    nodes = tb_pb.GraphDef.FromString(Drawn(source).bytes).node
    marks = [
        encode_member(data.draw(st.integers(0, 9)))
        + Holder("value", data.draw(st.integers(0, 9)), ms_pb.ValueProto(graph={}).SerializeToString()).encode()
        for _ in nodes
    ]
    damaged = b"".join(
        wire.length_delimited(b"\x0a", each.SerializeToString() + mark) for each, mark in zip(nodes, marks, strict=True)
    )
    with contextlib.suppress(InvalidValueError):
        restored, counts = restore_graph(damaged)
        assert counts.operators + counts.parameters + counts.outputs <= len(nodes)
        assert len(restored) < 10 * len(damaged) + 1000


@given(GRAPHS)
def test_every_graph_of_sound_names_comes_back_with_all_inside_it(source: Any) -> None:
    make_sound(source)
    if not (source.node or source.parameters or source.const_vals or source.outputs):
        return
    drawn = Drawn(source)
    found, counts = restore_graph(drawn.bytes)
    parts = ("parameters", "constants", "outputs", "edges", "subgraphs")
    assert [getattr(counts, each) for each in parts] == [getattr(drawn.counts, each) for each in parts]
    assert counts.operators == drawn.counts.operators
    back = ms_pb.GraphProto.FromString(found)
    take_names_of_unnamed(source, back)
    assert structure_of_anf(back) == structure_of_anf(source)


def make_sound(source: Any) -> None:
    """Gives all parts of a graph, and of those inside it, names as MindSpore gives them."""
    for index, each in enumerate(source.node):
        each.name, each.scope = str(index + 1), each.full_name.rpartition("/")[0]
        for number_, attribute in enumerate(each.attribute):
            attribute.name = f"key{number_}"
    for index, each in enumerate(source.parameters):
        each.name = f"para{index}"
    for index, each in enumerate(source.const_vals):
        each.key = f"cst{index + 1}"
    names = [each.name for each in (*source.node, *source.parameters)] + [each.key for each in source.const_vals]
    for edge in (*(edge for each in source.node for edge in each.input), *source.outputs):
        edge.name = [*names, "gone"][len(edge.name) * 7 % (len(names) + 1)]
    for inner in graphs_inside(source):
        make_sound(inner)


def graphs_inside(source: Any) -> list[Any]:
    """In the order of constants, and of attributes."""
    values = [each.value for each in source.const_vals]
    values += [attribute.value for each in source.node for attribute in each.attribute]
    return [inner for value in values for inner in graphs_in_value(value)]


def take_names_of_unnamed(source: Any, back: Any) -> None:
    """Operators without a name come back under the one they are drawn with."""
    for each, other in zip(source.node, back.node, strict=True):
        if not each.full_name:
            assert other.full_name.endswith(f"-op{each.name}") or f"-op{each.name}_" in other.full_name
            each.full_name, each.scope = other.full_name, other.scope
    constants = {each.key: each for each in back.const_vals}
    for each in source.const_vals:
        for one, other in zip(graphs_in_value(each.value), graphs_in_value(constants[each.key].value), strict=True):
            take_names_of_unnamed(one, other)
    for each, other in zip(source.node, back.node, strict=True):
        for attribute, found in zip(each.attribute, other.attribute, strict=True):
            for one, inner in zip(graphs_in_value(attribute.value), graphs_in_value(found.value), strict=True):
                take_names_of_unnamed(one, inner)


@given(GRAPHS)
def test_operators_edges_and_types_of_every_graph_come_back(source: Any) -> None:
    if not (source.node or source.parameters or source.const_vals or source.outputs):
        return
    drawn = Drawn(source)
    graph_bytes, counts = restore_graph(drawn.bytes)
    assert not is_converted_graph(graph_bytes)
    assert counts.edges == drawn.counts.edges
    assert (counts.operators, counts.parameters) == (drawn.counts.operators, drawn.counts.parameters)
    assert counts.outputs == drawn.counts.outputs
    if not drawn.counts.subgraphs and not drawn.counts.ambiguous:
        again = Drawn(ms_pb.GraphProto.FromString(graph_bytes))
        assert sorted(each.op for each in again.nodes.values() if each.op != "Unused") == sorted(
            each.op for each in drawn.nodes.values() if each.op != "Unused"
        )
        assert again.counts.dangling_edges == drawn.counts.dangling_edges


# ---------------------------------------------------------------- from TensorBoard, and back


def write_log(directory: Path, *graph_defs: Any, meta_graph: Any = None) -> Path:
    """Writes a TensorBoard log with graphs and a scalar."""
    directory.mkdir(parents=True)
    events = [tb_pb.Event(wall_time=1.7e9, file_version="brain.Event:2")]
    events += [tb_pb.Event(wall_time=1.7e9, step=2, graph_def=each.SerializeToString()) for each in graph_defs]
    if meta_graph is not None:
        graph_field = tb_pb.GraphDef(node=meta_graph.node).SerializeToString()
        length = bytes([len(graph_field) & 127 | 128, len(graph_field) >> 7])
        events.append(tb_pb.Event(wall_time=1.7e9, meta_graph_def=b"\x12" + length + graph_field))
    events.append(tb_pb.Event(wall_time=1.7e9, step=3, summary={"value": [{"tag": "loss", "simple_value": 1.0}]}))
    path = directory / "events.out.tfevents.1700000000.host"
    path.write_bytes(b"".join(encode_record(each.SerializeToString()) for each in events))
    return directory


@pytest.mark.parametrize("make", [tensorflow_graph, torch_graph])
def test_a_graph_of_tensorboard_is_restored_from_the_archive_and_drawn_once(tmp_path: Path, make: Any) -> None:
    source = write_log(tmp_path / "tb", make())
    (run,) = convert_logdir(str(source), str(tmp_path / "ms")).runs
    assert run.values == {"graph": 1, "scalar": 1}
    assert run.archived == 1
    assert verify_logdirs(str(source), str(tmp_path / "ms")).is_equal
    (drawn,) = graphs_in(tmp_path / "ms")
    assert is_converted_graph(drawn.SerializeToString())
    (run,) = convert_logdir(str(tmp_path / "ms"), str(tmp_path / "back")).runs
    assert run.values == {"graph": 1, "scalar": 1}
    assert graphs_in(tmp_path / "back") == [make()]


def test_a_graph_of_tensorboard_comes_back_without_an_archive(tmp_path: Path) -> None:
    source = tensorflow_graph()
    write_log(tmp_path / "tb", source)
    convert_logdir(str(tmp_path / "tb"), str(tmp_path / "ms"), options=WITHOUT_ARCHIVE)
    (run,) = convert_logdir(str(tmp_path / "ms"), str(tmp_path / "back"), options=WITHOUT_ARCHIVE).runs
    (loss,) = run.losses
    assert loss.reason == (
        "turned back from its drawing; values that were drawn in words stay words; "
        "16 operators, 28 edges; 2 parameters, 3 constants, 0 outputs; 2 functions with 3 arguments and 2 outputs"
    )
    (found,) = graphs_in(tmp_path / "back")
    assert structure_of_graph_def(found) == structure_of_graph_def(source)
    convert_logdir(str(tmp_path / "back"), str(tmp_path / "again"), options=WITHOUT_ARCHIVE)
    assert structure_of_anf(graphs_in(tmp_path / "again")[0]) == structure_of_anf(graphs_in(tmp_path / "ms")[0])


def test_a_graph_that_was_turned_back_is_drawn_again(tmp_path: Path) -> None:
    """Without the first archive and with all later ones: nothing is lost on any way."""
    write_summary(tmp_path / "ms", [graph_event(graph(node("1", "A", full_name="A"))), *scalars("loss", range(3))])
    convert_logdir(str(tmp_path / "ms"), str(tmp_path / "tb"), options=WITHOUT_ARCHIVE)
    for here, there in (("tb", "ms2"), ("ms2", "tb2"), ("tb2", "ms3")):
        (run,) = convert_logdir(str(tmp_path / here), str(tmp_path / there)).runs
        assert run.values == {"graph": 1, "scalar": 3}
        assert len(graphs_in(tmp_path / there)) == 1
    assert structure_of_anf(graphs_in(tmp_path / "ms3")[0]) == structure_of_anf(graphs_in(tmp_path / "ms")[0])


def test_a_meta_graph_is_drawn_where_there_is_no_other(tmp_path: Path) -> None:
    source = tb_pb.GraphDef(node=[constant("c", 2), tf_node("a", "A", "c")])
    write_log(tmp_path / "one" / "tb", meta_graph=source)
    (run,) = convert_logdir(str(tmp_path / "one" / "tb"), str(tmp_path / "one" / "ms")).runs
    assert [node.full_name for node in graphs_in(tmp_path / "one" / "ms")[0].node] == ["a"]
    assert run.losses[0].reason.startswith("drawn as a MindSpore graph; 2 nodes, 1 edge; 1 operator")
    write_log(tmp_path / "two" / "tb", tb_pb.GraphDef(node=[tf_node("b", "B")]), meta_graph=source)
    (run,) = convert_logdir(str(tmp_path / "two" / "tb"), str(tmp_path / "two" / "ms")).runs
    assert [node.full_name for node in graphs_in(tmp_path / "two" / "ms")[0].node] == ["b"]
    assert {loss.kind: loss.reason for loss in run.losses}["meta_graph"] == (
        "MindInsight shows the graph the run has already"
    )
    assert verify_logdirs(str(tmp_path / "two" / "tb"), str(tmp_path / "two" / "ms")).is_equal


def test_a_graph_that_cannot_be_read_goes_to_the_archive_alone(tmp_path: Path) -> None:
    payload = tb_pb.Event(wall_time=1.7e9, graph_def=b"\x0a\x05").SerializeToString()
    event = TensorBoardDecoder().decode(payload)
    encoded = MindSporeEncoder().encode(event)
    assert encoded.payload is None
    assert encoded.archive == event
    assert "malformed" in encoded.losses[0].reason


@pytest.mark.parametrize("key", [b"\x22", b"\x4a"])
def test_a_drawing_that_is_damaged_is_a_loss(key: bytes) -> None:
    drawing = convert_graph(graph(node("1", "A")).SerializeToString())[0] + b"\x0a\x05"
    payload = b"\x09" + bytes(8) + key + bytes([len(drawing)]) + drawing
    for decoder, encoder in ((TensorBoardDecoder(), MindSporeEncoder()), (MindSporeDecoder(), TensorBoardEncoder())):
        event = decoder.decode(payload)
        encoded = encoder.encode(event)
        assert encoded.payload is None
        assert encoded.losses


def test_sizes_that_no_field_holds_are_damage_and_end_no_conversion(tmp_path: Path) -> None:
    drawing = tb_pb.GraphDef.FromString(Drawn(graph(node("1", "A", full_name="a"))).bytes)
    drawing.node[0].attr["output_type"].s = b"float32[" + b"9" * 20 + b"]"
    source = write_log(tmp_path / "tb", drawing)
    (run,) = convert_logdir(str(source), str(tmp_path / "ms"), options=WITHOUT_ARCHIVE).runs
    assert run.values == {"graph": 1, "scalar": 1}
    (found,) = graphs_in(tmp_path / "ms")
    assert [(one.full_name, one.output_type.ByteSize()) for one in found.node] == [("a", 0)]


def test_a_number_that_its_field_does_not_hold_makes_a_graph_unreadable() -> None:
    def fill() -> None:
        ms_pb.TypeProto().tensor_type.shape.dim.add(size=1 << 64)

    with pytest.raises(InvalidValueError, match="the graph cannot be read: "):
        read_safely(fill)


def test_a_part_of_no_function_is_read_as_one_of_the_graph() -> None:
    """A mark of a signature alone, whose number is 0."""
    part = ms_pb.NodeProto(name="1", op_type="Add").SerializeToString() + wire.varint(SIGNATURE) + b"\0"
    key = wire.varint(ms_pb.GraphProto.DESCRIPTOR.fields_by_name["node"].number << 3 | wire.LENGTH_DELIMITED)
    restored, counts = restore_graph_def(
        wire.length_delimited(key, part) + ms_pb.GraphProto(node=[{}]).SerializeToString()
    )
    assert counts.operators == 1
    tb_pb.GraphDef.FromString(restored)
