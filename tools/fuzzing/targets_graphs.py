"""Targets: graphs both ways, lineage, hyperparameters, data set graphs."""

from __future__ import annotations

import contextlib
import gzip
from collections.abc import Iterable

from ms_summary_bridge.errors import InvalidValueError
from ms_summary_bridge.formats import wire
from ms_summary_bridge.formats.graphs.ms_to_tb import convert_graph_event
from ms_summary_bridge.formats.graphs.restoration import restore_graph, restore_graph_def
from ms_summary_bridge.formats.graphs.tb_to_ms import convert_graph_def
from ms_summary_bridge.formats.mindspore import MindSporeDecoder
from ms_summary_bridge.formats.protos import ms_pb, tb_pb
from ms_summary_bridge.formats.sessions.hparams import (
    END_TAG,
    START_TAG,
    encode_session_end,
    encode_session_start,
    read_session,
)
from ms_summary_bridge.formats.sessions.lineage import read_lineage, write_lineage
from ms_summary_bridge.formats.sessions.session import SESSION_KINDS, Session
from ms_summary_bridge.formats.tensorboard import TensorBoardDecoder, TensorBoardEncoder
from tests.graph_samples import tensorflow_graph
from tools.fuzzing import agreement
from tools.fuzzing.measure import proof
from tools.fuzzing.target import Target
from tools.fuzzing.targets_codecs import DATA, payloads


def take_ms_graph(payload: bytes) -> None:
    """An event with a MindSpore graph, drawn for TensorBoard and turned back."""
    graph, counts = convert_graph_event(payload)
    counts.describe()
    with proof(len(graph)):
        agreement.check_graph_def(graph)
    again, _ = restore_graph(graph)
    with proof(len(again)):
        ms_pb.GraphProto.FromString(again)


def take_tb_graph(graph: bytes) -> None:
    """A TensorFlow graph, drawn for MindInsight and turned back."""
    drawn, counts = convert_graph_def(graph)
    counts.describe_anf()
    with proof(len(drawn)):
        ms_pb.GraphProto.FromString(drawn)
        agreement.check_mindspore(b"\x09" + bytes(8) + wire.length_delimited(b"\x22", drawn))
    restore_graph_def(drawn)


def take_drawing(data: bytes) -> None:
    """What looks like a drawing of ours, turned back."""
    for turn in (restore_graph, restore_graph_def):
        with contextlib.suppress(InvalidValueError):
            turn(data)


def _small_ms_graph() -> bytes:
    graph = ms_pb.GraphProto(name="g")
    parameter = graph.parameters.add(name="x")
    parameter.type.data_type = 11
    inner = ms_pb.GraphProto(name="inner")
    inner.node.add(name="1", op_type="Mul", full_name="Default/Mul-op1").input.add(name="v")
    constant = graph.const_vals.add(key="c")
    constant.value.dtype = 3
    constant.value.int_val = 4
    held = graph.const_vals.add(key="f")
    held.value.graph.MergeFrom(inner)
    node = graph.node.add(name="2", op_type="Conv2D", full_name="Default/network/Conv2D-op2", scope="Default/network")
    node.input.add(name="x")
    node.input.add(name="c")
    node.input.add(name="f", type=ms_pb.InputProto.EdgeType.CONTROL_EDGE)
    node.attribute.add(name="pad").value.strVal = "same" if hasattr(ms_pb.ValueProto, "strVal") else ""
    graph.outputs.add(name="2").type.data_type = 11
    return graph.SerializeToString()


def _ms_graphs() -> list[bytes]:
    """Graphs of MindSpore: small ones, since each change is looked at again and again."""
    found = [_safely(_small_ms_graph)]
    real = ms_pb.GraphProto.FromString(gzip.decompress((DATA / "mindformers-1.9.0-llama-graph.bin.gz").read_bytes()))
    for first in (0, 40):
        part = ms_pb.GraphProto(name=real.name)
        part.node.extend(real.node[first : first + 12])
        part.parameters.extend(real.parameters[:3])
        part.const_vals.extend(real.const_vals[:6])
        part.outputs.extend(real.outputs[:1])
        found.append(part.SerializeToString())
    return [graph for graph in found if graph]


def _safely(make: object) -> bytes:
    try:
        return make()  # type: ignore[operator,no-any-return]
    except (AttributeError, ValueError, TypeError):
        return b""


def _ms_graph_seeds() -> Iterable[bytes]:
    for graph in _ms_graphs():
        yield b"\x09" + bytes(8) + wire.length_delimited(b"\x22", graph)


def _tb_graph_seeds() -> Iterable[bytes]:
    yield tensorflow_graph().SerializeToString(deterministic=True)


def _drawing_seeds() -> Iterable[bytes]:
    for seed in _ms_graph_seeds():
        yield convert_graph_event(seed)[0]
    for seed in _tb_graph_seeds():
        yield convert_graph_def(seed)[0]


# ---------------------------------------------------------------- lineage


def take_lineage(data: bytes) -> None:
    """Records of lineage as a session of TensorBoard, and what comes of it on the way back."""
    event = MindSporeDecoder(is_lineage=True).decode(data)
    kind = event.content.kind
    session = read_lineage(dict.fromkeys(SESSION_KINDS, data) if kind not in SESSION_KINDS else {kind: data}, (0.0,))
    _write(session)
    made = TensorBoardEncoder().encode(event)
    if made.payload is not None:
        agreement.check_tensorboard(made.payload)
        back = TensorBoardDecoder().decode(made.payload)
        assert kind != "dataset_graph" or back.content == event.content, "another data set graph comes back"


def _write(session: Session) -> None:
    encode_session_start(session)
    encode_session_end(session, {})
    for is_lineage in (False, True):
        for payload in write_lineage(1.0, session, is_lineage=is_lineage):
            ms_pb.LineageEvent.FromString(payload)


def take_hparams(data: bytes) -> None:
    """Values of the hparams plugin as a session, and as MindSpore's lineage."""
    session = read_session({START_TAG: data, END_TAG: data}, {"loss": 0.5, "acc/x": float("nan")})
    if session is not None:
        _write(session)


def _lineage_seeds() -> Iterable[bytes]:
    yield from payloads("mindspore-2.10-lineage")
    for case in ("mindspore-2.10-dataset-zip", "mindspore-2.10-dataset-concat"):
        graph = (DATA / f"{case}.bin").read_bytes()
        yield b"\x09" + bytes(8) + wire.length_delimited(b"\x42", graph)
    event = ms_pb.LineageEvent(wall_time=3.0)
    event.evaluation_lineage.metric = '{"acc": 0.5, "list": [1, {"x": null}]}'
    event.evaluation_lineage.valid_dataset.valid_dataset_path = "/data"
    yield event.SerializeToString()
    event = ms_pb.LineageEvent(wall_time=3.0)
    event.user_defined_info.user_info.add().map_str["name"] = "value"
    event.user_defined_info.user_info.add().map_double["number"] = 0.5
    yield event.SerializeToString()


def _hparams_seeds() -> Iterable[bytes]:
    session = Session({"lr": 0.01, "name": "x", "flag": True}, {"loss": 0.5}, "success", 1.0, 2.0, "/m")
    for payload in (encode_session_start(session), encode_session_end(session, {})):
        assert payload is not None
        yield from wire.all_fields(wire.all_fields(payload, 0x2A)[0], 0x0A)


TARGETS = [
    Target("graph_ms", "MindSpore graphs, to TensorBoard and back", take_ms_graph, _ms_graph_seeds, "wire", 0,
           lambda _: ms_pb.Event),
    Target("graph_tb", "TensorFlow graphs, to MindInsight and back", take_tb_graph, _tb_graph_seeds, "wire", 0,
           lambda _: tb_pb.GraphDef),
    Target("drawing", "drawn graphs, turned back", take_drawing, _drawing_seeds, "wire"),
    Target("lineage", "lineage and data set graphs", take_lineage, _lineage_seeds, "wire", 0,
           lambda _: ms_pb.LineageEvent),
    Target("hparams", "hyperparameters", take_hparams, _hparams_seeds, "wire", 0, lambda _: tb_pb.Summary.Value),
]  # fmt: skip
