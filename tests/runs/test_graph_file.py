"""MindSpore's graph files (`*.pb`): each is a run with one graph, whatever else lies beside it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ms_summary_bridge.columns.inspect import inspect_logdir
from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.convert.verify import verify_logdirs
from ms_summary_bridge.errors import LogdirError, NoEventsError
from ms_summary_bridge.events import Event
from ms_summary_bridge.files.event_file import EventFileReader
from ms_summary_bridge.formats.mindspore import MindSporeDecoder
from ms_summary_bridge.formats.protos import ms_pb, tb_pb
from ms_summary_bridge.formats.tensorboard import TensorBoardDecoder
from ms_summary_bridge.runs.graph_file import find_fault, read_graph_file
from ms_summary_bridge.runs.logdir import discover
from ms_summary_bridge.values import Opaque
from tests.graph_samples import tensorflow_graph
from tests.mindspore_run import scalars, write_summary


def model(*operators: str) -> bytes:
    """A graph file as MindSpore writes it: a chain of operators."""
    nodes = [
        ms_pb.NodeProto(name=str(index), op_type=op, full_name=f"Default/{op}", input=[{"name": str(index - 1)}])
        for index, op in enumerate(operators, 1)
    ]
    graph = ms_pb.GraphProto(name="g", node=nodes, parameters=[{"name": "0"}])
    message = ms_pb.ModelProto(ir_version=1, domain="MindSpore", model_version=2, graph=graph)
    encoded: bytes = message.SerializeToString()
    return encoded


def put(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def drawn(directory: Path) -> list[str]:
    """Names of the nodes of each graph of a converted run."""
    names = []
    for path in sorted(directory.glob("*tfevents*")):
        for event in EventFileReader(path, TensorBoardDecoder()):
            if isinstance(event, Event) and isinstance(event.content, Opaque) and event.content.kind == "graph":
                graph = tb_pb.GraphDef.FromString(tb_pb.Event.FromString(event.content.payload).graph_def)
                names.append(" ".join(node.name for node in graph.node))
    return names


def test_a_directory_with_one_graph_file_is_a_run(tmp_path: Path) -> None:
    put(tmp_path / "ms" / "net" / "ms_output.pb", model("Conv2D", "ReLU"))
    report = convert_logdir(str(tmp_path / "ms"), str(tmp_path / "tb"))
    (run,) = report.runs
    assert (run.run, run.files, run.events_read, run.values) == ("net", ["net/ms_output.pb"], 1, {"graph": 1})
    assert run.losses[0].reason.startswith("drawn as a TensorFlow graph; 2 operators, 2 edges; 1 parameter")
    assert drawn(tmp_path / "tb" / "net") == ["Default/0 Default/Conv2D Default/ReLU"]
    assert verify_logdirs(str(tmp_path / "ms"), str(tmp_path / "tb")).is_equal
    (found,) = inspect_logdir(str(tmp_path / "ms")).runs
    assert found.files == [str(tmp_path / "ms" / "net" / "ms_output.pb")]
    assert [(tag.kind, tag.points) for tag in found.tags] == [("graph", 1)]


def test_each_graph_file_beside_others_is_a_run_of_its_own(tmp_path: Path) -> None:
    write_summary(tmp_path / "ms" / "net", scalars("loss", range(3)))
    put(tmp_path / "ms" / "net" / "before.pb", model("A"))
    put(tmp_path / "ms" / "net" / "after.pb", model("B"))
    report = convert_logdir(str(tmp_path / "ms"), str(tmp_path / "tb"))
    assert {run.run: run.values for run in report.runs} == {
        "net": {"scalar": 3},
        "net/after": {"graph": 1},
        "net/before": {"graph": 1},
    }
    assert drawn(tmp_path / "tb" / "net" / "after") == ["Default/0 Default/B"]
    assert verify_logdirs(str(tmp_path / "ms"), str(tmp_path / "tb")).is_equal


def test_a_single_graph_file_is_a_source(tmp_path: Path) -> None:
    path = put(tmp_path / "graph.pb", model("A"))
    report = convert_logdir(str(path), str(tmp_path / "tb"))
    assert [run.values for run in report.runs] == [{"graph": 1}]
    assert verify_logdirs(str(path), str(tmp_path / "tb")).is_equal


def test_a_graph_file_is_converted_once_and_again_when_it_is_replaced(tmp_path: Path) -> None:
    path = put(tmp_path / "ms" / "graph.pb", model("A"))
    convert_logdir(str(tmp_path / "ms"), str(tmp_path / "tb"))
    before = {file.name: file.read_bytes() for file in (tmp_path / "tb").glob("*tfevents*")}
    report = convert_logdir(str(tmp_path / "ms"), str(tmp_path / "tb"))
    assert [(run.values, run.files) for run in report.runs] == [({}, [])]
    assert {file.name: file.read_bytes() for file in (tmp_path / "tb").glob("*tfevents*")} == before
    path.write_bytes(model("A", "B"))
    report = convert_logdir(str(tmp_path / "ms"), str(tmp_path / "tb"))
    assert report.runs[0].problems == ["graph.pb: was replaced since the last conversion, and is drawn again"]
    assert drawn(tmp_path / "tb") == ["Default/0 Default/A", "Default/0 Default/A Default/B"]


def test_the_graph_comes_back_into_a_summary_file(tmp_path: Path) -> None:
    path = put(tmp_path / "ms" / "graph.pb", model("A", "B"))
    convert_logdir(str(tmp_path / "ms"), str(tmp_path / "tb"))
    convert_logdir(str(tmp_path / "tb"), str(tmp_path / "back"))
    (file,) = (tmp_path / "back").glob("*_MS")
    (graph,) = [
        ms_pb.Event.FromString(event.content.payload).graph_def
        for event in EventFileReader(file, MindSporeDecoder())
        if isinstance(event, Event) and isinstance(event.content, Opaque)
    ]
    assert graph == ms_pb.ModelProto.FromString(path.read_bytes()).graph


def test_a_graph_file_without_a_node_is_a_loss(tmp_path: Path) -> None:
    put(tmp_path / "ms" / "graph.pb", ms_pb.ModelProto(ir_version=1, graph={}).SerializeToString())
    (run,) = convert_logdir(str(tmp_path / "ms"), str(tmp_path / "tb")).runs
    assert [loss.reason for loss in run.losses] == ["the graph is empty"]
    assert not run.failed


SAVED_MODEL = b"\x08\x01\x12\xff\x7f" + bytes(5000)


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"", "zero bytes"),
        (b"anything", "not a graph file of MindSpore"),
        (SAVED_MODEL, "not a graph file of MindSpore"),
        (tensorflow_graph().SerializeToString(deterministic=True), "not a graph file of MindSpore"),
        (model("A")[:-7], "a MindSpore graph file that ends 7 bytes too early"),
        (b"\x08\x01\x22\xff", "not a graph file of MindSpore"),
    ],
)
def test_a_damaged_file_is_a_problem_and_the_rest_is_converted(tmp_path: Path, data: bytes, fault: str) -> None:
    put(tmp_path / "ms" / "graph.pb", data)
    with pytest.raises(NoEventsError, match=fault):
        convert_logdir(str(tmp_path / "ms"), str(tmp_path / "none"))
    write_summary(tmp_path / "ms", scalars("loss", range(3)))
    report = convert_logdir(str(tmp_path / "ms"), str(tmp_path / "tb"))
    assert [run.values for run in report.runs] == [{"scalar": 3}]
    assert report.unreadable == [f"{tmp_path / 'ms' / 'graph.pb'}: {fault}"]


def test_a_file_that_is_damaged_inside_ends_its_run_with_what_is_wrong(tmp_path: Path) -> None:
    put(tmp_path / "ms" / "a.pb", model("A") + b"\x3c")
    put(tmp_path / "ms" / "b.pb", model("B"))
    report = convert_logdir(str(tmp_path / "ms"), str(tmp_path / "tb"))
    assert [(run.run, bool(run.failed), run.values) for run in report.runs] == [
        ("a", True, {}),
        ("b", False, {"graph": 1}),
    ]
    assert "a damaged graph file" in report.runs[0].failed
    with pytest.raises(LogdirError, match="damaged"):
        read_graph_file(str(tmp_path / "ms" / "a.pb"))


def test_files_of_that_name_among_tensorboard_logs_are_left_alone(tmp_path: Path) -> None:
    record = tmp_path / "tb" / "run" / "events.out.tfevents.1700000000.host"
    write_summary(tmp_path / "ms", scalars("loss", range(3)))
    convert_logdir(str(tmp_path / "ms"), str(tmp_path / "made"))
    put(record, next((tmp_path / "made").glob("*tfevents*")).read_bytes())
    put(tmp_path / "tb" / "export" / "saved_model.pb", SAVED_MODEL)
    found = discover(tmp_path / "tb")
    assert [run.name for run in found.runs] == ["run"]
    assert found.problems == ()


def test_a_file_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    path = put(tmp_path / "ms" / "graph.pb", model("A"))
    size = os.path.getsize(path)
    assert find_fault(str(path)) == (size, "")
    with pytest.raises(LogdirError, match="No such file"):
        find_fault(str(tmp_path / "none.pb"))
