"""A data set graph becomes a pipeline that a person reads in TensorBoard, and comes back as it was."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import google.protobuf
import numpy as np
import pytest
from google.protobuf.internal import api_implementation
from hypothesis import given
from hypothesis import strategies as st

from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.convert.task import ConvertOptions
from ms_summary_bridge.convert.verify import verify_logdirs
from ms_summary_bridge.errors import EventDecodeError, InvalidValueError
from ms_summary_bridge.events import Event, Summary
from ms_summary_bridge.files.event_file import EventFileReader
from ms_summary_bridge.files.file_names import LINEAGE
from ms_summary_bridge.files.records import encode_record
from ms_summary_bridge.formats.dataset_graph import describe_dataset_graph
from ms_summary_bridge.formats.mindspore import MindSporeDecoder
from ms_summary_bridge.formats.protos import ms_pb, tb_pb
from ms_summary_bridge.formats.tensorboard import TensorBoardDecoder, TensorBoardEncoder
from ms_summary_bridge.formats.wire import length_delimited
from ms_summary_bridge.live_writer.live_run import LiveRun
from ms_summary_bridge.live_writer.run_config import LiveRunConfig
from ms_summary_bridge.runs.archive import make_decoder
from ms_summary_bridge.values import Opaque
from tests.conftest import MindInsightServer, TensorBoardServer
from tests.mindspore_run import START, scalars, summary_name, write_summary

DATA = Path(__file__).resolve().parents[1] / "data"

ZIP = """\
**Data pipeline**: 8 stages, from the source to what the network is fed with.

1. **Zip** joins 2 branches `connector_queue_size=16` `num_parallel_workers=2`
    1. branch into **Zip**
        1. **GeneratorDataset** `connector_queue_size=16` `num_parallel_workers=1`
        2. **Map** `input_columns=["image"]` `output_columns=["image"]` `connector_queue_size=16` \
`num_parallel_workers=2`
            1. **Resize** `device_target="CPU"` `interpolation=0` `size=[16, 16]`
            2. **RandomCrop** `fill_value=[0, 0, 0]` `pad_if_needed=false` `padding=[1, 2, 3, 4]` `padding_mode=0` \
`size=[12, 12]`
            3. **Rescale** `rescale=0.003921568859368563` `shift=0.0`
            4. **Normalize** `device_target="CPU"` `is_hwc=true` `mean=[0.10000000149011612, 0.20000000298023224, \
0.30000001192092896]` `std=[0.5, 0.5, 0.5]`
            5. **HwcToChw**
        3. **Map** `input_columns=["label"]` `output_columns=["label"]` `connector_queue_size=16` \
`num_parallel_workers=2`
            1. **TypeCast** `data_type="int32"`
    2. branch into **Zip**
        1. **GeneratorDataset** `connector_queue_size=16` `num_parallel_workers=1`
2. **Shuffle** `buffer_size=4` `reset_each_epoch=true`
3. **Repeat** `count=2`
4. **Batch** `batch_size=4` `drop_remainder=true` `connector_queue_size=16` `num_parallel_workers=2`
"""
CONCAT = """\
**Data pipeline**: 5 stages, from the source to what the network is fed with.

1. **Concat** joins 2 branches `children_flag_and_nums=[[0, 3], [0, 2]]` `children_sizes=[3, 2]` \
`children_start_end_index=[[-1, -1], [-1, -1]]`, sampled by **SequentialSampler** `num_samples=0` `start_index=0`
    1. branch into **Concat**
        1. **GeneratorDataset** `connector_queue_size=16` `num_parallel_workers=1`
    2. branch into **Concat**
        1. **GeneratorDataset** `connector_queue_size=16` `num_parallel_workers=1`
2. **Project** `columns=["v"]`
3. **Take** `count=3`
"""


def golden(name: str) -> Any:
    return ms_pb.DatasetGraph.FromString((DATA / f"mindspore-2.10-dataset-{name}.bin").read_bytes())


def payload(graph: Any, **fields: Any) -> bytes:
    return ms_pb.LineageEvent(wall_time=START + 5.25, dataset_graph=graph, **fields).SerializeToString()


def stage(name: str, *children: Any, **texts: str) -> Any:
    graph = ms_pb.DatasetGraph(children=children)
    graph.parameter.mapStr.update(op_type=name, **texts)
    return graph


def write_run(directory: Path, *graphs: bytes) -> None:
    """Writes a run whose lineage file holds these events."""
    write_summary(directory, scalars("loss", range(3)))
    lineage = directory / summary_name().replace("_MS", "_lineage")
    lineage.write_bytes(b"".join(map(encode_record, graphs)))


def lineage_payloads(directory: Path) -> list[bytes]:
    found: list[bytes] = []
    for path in sorted(directory.rglob("*_lineage")):
        for item in EventFileReader(path, make_decoder(LINEAGE)):
            assert isinstance(item, Event)
            if isinstance(item.content, Opaque) and item.content.kind == "dataset_graph":
                found.append(item.content.payload)
    return found


def encoded(event_payload: bytes) -> bytes:
    """Returns TensorBoard's event for one of a lineage file."""
    result = TensorBoardEncoder().encode(MindSporeDecoder(is_lineage=True).decode(event_payload))
    assert not result.losses
    assert result.archive is None, "the text carries everything"
    assert result.payload is not None
    return result.payload


@pytest.mark.parametrize(("name", "text"), [("zip", ZIP), ("concat", CONCAT)])
def test_a_pipeline_is_read_from_the_source_on(name: str, text: str) -> None:
    assert describe_dataset_graph(payload(golden(name))) == text


@pytest.mark.tensorboard
@pytest.mark.parametrize("load_fast", [True, False], ids=["fast", "slow"])
def test_tensorboard_shows_the_pipeline(tmp_path: Path, tensorboard_server: TensorBoardServer, load_fast: bool) -> None:
    odd = stage("<b>a*b*_c_`d`\n# e</b>", golden("zip"), odd="`x` ``y`` <i>\n* z", **{"a|b": "**"})
    write_run(tmp_path / "ms" / "zip", payload(golden("zip")))
    write_run(tmp_path / "ms" / "odd", payload(odd))
    convert_logdir(str(tmp_path / "ms"), str(tmp_path / "tb"))
    client = tensorboard_server(tmp_path / "tb", load_fast)
    tags = client.wait_json("data/plugin/text/tags", lambda runs: {"zip", "odd"} <= runs.keys())
    assert tags == {"zip": ["dataset_graph"], "odd": ["dataset_graph"]}
    (shown,) = client.wait_json("data/plugin/text/text", run="zip", tag="dataset_graph")
    assert (shown["step"], shown["wall_time"]) == (0, START + 5.25)
    text = shown["text"]
    # A list for each of: the whole, the branches, what is in each branch, the operations of both maps.
    assert (text.count("<ol>"), text.count("<li>")) == (6, 16)
    names = re.findall("<li>(?:branch into )?<strong>(.*?)</strong>", text)
    assert names == re.findall(r"(?m)^ *\d+\. (?:branch into )?\*\*(.*?)\*\*", ZIP)
    assert "<code>padding=[1, 2, 3, 4]</code>" in text
    assert text.index("Resize") < text.index("HwcToChw") < text.index("Shuffle") < text.index("Batch")

    (shown,) = client.wait_json("data/plugin/text/text", run="odd", tag="dataset_graph")
    assert "<strong>&lt;b&gt;a*b*_c_`d` # e&lt;/b&gt;</strong>" in shown["text"], "a name is no markup"
    assert "<code>odd=`x` ``y`` &lt;i&gt; * z</code>" in shown["text"]
    assert "<code>a|b=**</code>" in shown["text"]


@pytest.mark.parametrize("keep_archive", [True, False], ids=["archive", "no archive"])
def test_it_comes_back_as_it_was(tmp_path: Path, keep_archive: bool) -> None:
    graphs = [payload(golden("zip")), payload(golden("concat"), step=7) + b"\xf8\x07\x01"]  # and a field nobody knows
    write_run(tmp_path / "ms", *graphs)
    there, back = tmp_path / "tb", tmp_path / "back"
    report = convert_logdir(str(tmp_path / "ms"), str(there), options=ConvertOptions(keep_archive=keep_archive))
    assert [(loss.kind, loss.count, loss.reason) for loss in report.runs[0].losses] == [
        ("dataset_graph", 1, "an earlier one of its run: TensorBoard shows the last")
    ]
    assert report.runs[0].values == {"scalar": 3, "dataset_graph": 2}
    convert_logdir(str(there), str(back))
    if not keep_archive:  # the last one counts, in MindInsight too
        graphs = graphs[-1:]
    assert lineage_payloads(back) == graphs
    for other in (there, back) if keep_archive else ():
        compared = verify_logdirs(str(tmp_path / "ms"), str(other))
        assert compared.is_equal, compared
        assert compared.runs[0].points == 5
    assert verify_logdirs(str(there), str(back)).is_equal
    again = tmp_path / "again"
    convert_logdir(str(back), str(again))
    assert verify_logdirs(str(there), str(again)).is_equal


def test_what_a_run_goes_on_with_stands_behind_the_pipeline(tmp_path: Path) -> None:
    write_run(tmp_path / "ms", payload(golden("zip")))
    there, back = tmp_path / "tb", tmp_path / "back"
    convert_logdir(str(tmp_path / "ms"), str(there))
    tensors = {"tensor": [{"tag": "t", "value": np.arange(2.0)}]}  # an original in the archive, by its place
    live = LiveRun(live_config(tmp_path / "ms", START + 100), lambda kind, message: None)
    live.write_values(5, START + 105.0, tensors)
    live.close()
    for path in (tmp_path / "ms").glob("*tfevents*"):
        path.unlink()
    convert_logdir(str(tmp_path / "ms"), str(there))
    convert_logdir(str(there), str(back))
    assert verify_logdirs(str(tmp_path / "ms"), str(back)).is_equal
    assert lineage_payloads(back) == [payload(golden("zip"))]


def test_a_text_of_the_users_own_is_none_of_ours(tmp_path: Path) -> None:
    event = tb_pb.Event(wall_time=START, step=1)
    value = event.summary.value.add(tag="dataset_graph")
    value.metadata.plugin_data.plugin_name = "text"
    value.tensor.dtype = tb_pb.DataType.DT_STRING
    value.tensor.string_val.append(ZIP.encode())
    decoded = TensorBoardDecoder().decode(event.SerializeToString())
    assert isinstance(decoded.content, Summary)
    assert decoded.content.values[0].value.kind == "text"

    (tmp_path / "tb").mkdir()
    head = tb_pb.Event(wall_time=START, file_version="brain.Event:2")
    log = b"".join(encode_record(item.SerializeToString()) for item in (head, event))
    (tmp_path / "tb" / f"events.out.tfevents.{START}.host").write_bytes(log)
    report = convert_logdir(str(tmp_path / "tb"), str(tmp_path / "ms"))
    assert [loss.kind for loss in report.runs[0].losses] == ["text"]
    assert report.runs[0].archived == 1
    assert lineage_payloads(tmp_path / "ms") == []
    convert_logdir(str(tmp_path / "ms"), str(tmp_path / "back"))
    assert verify_logdirs(str(tmp_path / "tb"), str(tmp_path / "back")).is_equal


def test_too_much_for_a_person_is_cut_and_still_comes_back() -> None:
    graph = stage("Map", **{f"p{n:03}": "x" * 999 for n in range(300)})
    for number in range(500):
        graph.operations.add().operationParam.mapStr["tensor_op_name"] = f"op{number}"
    operation = graph.operations[0]
    operation.size.extend([3, 4])
    operation.weights.extend([0.25, float("nan")])
    text = describe_dataset_graph(payload(graph))
    assert "and 300 more" in text
    assert "and 100 more" in text
    assert "**op199**" in text
    assert "op200" not in text
    assert "x" * 200 in text
    assert "x" * 201 not in text
    assert "`size=[3, 4]` `weights=[0.25, nan]`" in text
    event = payload(graph)
    back = TensorBoardDecoder().decode(encoded(event))
    assert back.content == Opaque("dataset_graph", event)
    branches = describe_dataset_graph(payload(stage("Zip", *(stage(f"s{number}") for number in range(300)))))
    assert "200. branch into **Zip**" in branches
    assert "**s200**" not in branches
    assert branches.endswith("    201. and 100 more\n")


@pytest.mark.parametrize(
    ("graph", "text"),
    [
        (ms_pb.DatasetGraph(), "**Data pipeline**: no stage is recorded.\n"),
        (ms_pb.DatasetGraph(children=[{}]), "**Data pipeline**: 2 stages, from the source to what the network is"),
        (stage("Only"), "**Data pipeline**: 1 stage.\n\n1. **Only**\n"),
    ],
)
def test_little_is_shown_too(graph: Any, text: str) -> None:
    event = ms_pb.LineageEvent(wall_time=1.0)
    event.dataset_graph.SetInParent()
    event.dataset_graph.CopyFrom(graph)
    assert describe_dataset_graph(event.SerializeToString()).startswith(text)


def test_a_graph_that_cannot_be_read_is_a_counted_loss(tmp_path: Path) -> None:
    broken = ms_pb.LineageEvent(wall_time=START).SerializeToString() + b"\x4a\x03\x12\x05\x0a"
    deep = b""
    for _ in range(2000):  # nested deeper than protobuf reads
        deep = ms_pb.DatasetGraph().SerializeToString() + b"\x0a" + _varint(len(deep)) + deep
    deep = ms_pb.LineageEvent(wall_time=START).SerializeToString() + b"\x4a" + _varint(len(deep)) + deep
    for number, event in enumerate((broken, deep)):
        with pytest.raises(InvalidValueError, match="the data set graph cannot be read"):
            describe_dataset_graph(event)
        source, there, back = (tmp_path / f"{name}{number}" for name in ("ms", "tb", "back"))
        write_run(source, event)
        (run,) = convert_logdir(str(source), str(there)).runs
        assert [(loss.kind, loss.count) for loss in run.losses] == [("dataset_graph", 1)]
        assert "cannot be read" in run.losses[0].reason
        convert_logdir(str(there), str(back))
        assert lineage_payloads(back) == [event], "the archive has it"


def test_a_text_that_is_not_utf8_is_shown_as_far_as_it_goes(tmp_path: Path) -> None:
    path, name = b"/\xca\xfd\xbe\xdd", b"\xca\xfd"  # GBK, as a path may be
    values = length_delimited(b"\x0a", b"dir") + length_delimited(b"\x12", path)
    files = length_delimited(b"\x0a", b"files") + length_delimited(b"\x12", length_delimited(b"\x0a", path))
    keys = length_delimited(b"\x0a", name) + length_delimited(b"\x12", b"x")
    shown = length_delimited(b"\x0a", values) + length_delimited(b"\x12", files)
    head = ms_pb.LineageEvent(wall_time=START).SerializeToString()
    # The one in Python of 3.20 refuses such a message as a whole.
    is_read = not google.protobuf.__version__.startswith("3.") or api_implementation.Type() != "python"
    for number, (parameters, has_text) in enumerate(
        [(shown, is_read), (shown + length_delimited(b"\x0a", keys), False)]
    ):
        event = head + length_delimited(b"\x4a", length_delimited(b"\x12", parameters))
        source, there, back = (tmp_path / f"{name}{number}" for name in ("ms", "tb", "back"))
        write_run(source, event)
        (run,) = convert_logdir(str(source), str(there)).runs
        assert [loss.reason[:33] for loss in run.losses] == ([] if has_text else ["the data set graph cannot be read"])
        convert_logdir(str(there), str(back))
        assert lineage_payloads(back) == [event]
        if has_text:
            assert "`dir=/\ufffd\ufffd\ufffd\ufffd` `files=[/\ufffd" in describe_dataset_graph(event)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
PARAMETERS = st.builds(
    lambda texts, lists, flags, numbers, reals: ms_pb.OperationParameter(
        mapStr=texts,
        mapStrList={key: ms_pb.StrList(strValue=value) for key, value in lists.items()},
        mapBool=flags,
        mapInt=numbers,
        mapDouble=reals,
    ),
    st.dictionaries(st.sampled_from(["op_type", "tensor_op_params", "tensor_op_name", "x"]) | TEXTS, TEXTS, max_size=3),
    st.dictionaries(TEXTS, st.lists(TEXTS, max_size=3), max_size=2),
    st.dictionaries(TEXTS, st.booleans(), max_size=2),
    st.dictionaries(TEXTS, st.integers(-(1 << 31), (1 << 31) - 1), max_size=2),
    st.dictionaries(TEXTS, st.floats(), max_size=2),
)
OPERATIONS = st.builds(
    lambda parameter, size, weights: ms_pb.Operation(operationParam=parameter, size=size, weights=weights),
    PARAMETERS,
    st.lists(st.integers(-5, 5), max_size=2),
    st.lists(st.floats(width=32), max_size=2),
)
GRAPHS = st.recursive(
    st.builds(lambda parameter: ms_pb.DatasetGraph(parameter=parameter), PARAMETERS),
    lambda inner: st.builds(
        lambda children, parameter, operations, sampler: ms_pb.DatasetGraph(
            children=children, parameter=parameter, operations=operations, sampler=sampler
        ),
        st.lists(inner, max_size=3),
        PARAMETERS,
        st.lists(OPERATIONS, max_size=2),
        st.none() | OPERATIONS,
    ),
    max_leaves=5,
)


@given(GRAPHS, st.integers(-(1 << 63), (1 << 63) - 1))
def test_any_graph_is_carried_exactly_and_each_stage_is_a_line(graph: Any, step: int) -> None:
    event = payload(graph, step=step)
    decoded = TensorBoardDecoder().decode(encoded(event))
    assert decoded == MindSporeDecoder(is_lineage=True).decode(event)

    def count(one: Any) -> int:  # branches have a line of their own
        branches = len(one.children) if len(one.children) > 1 else 0
        return 1 + len(one.operations) + branches + sum(map(count, one.children))

    lines = describe_dataset_graph(event).splitlines()
    if graph.ByteSize():
        assert len(lines) == 2 + count(graph)
        assert all(re.match(r" *\d+\. ", line) for line in lines[2:]), "nothing breaks out of its line"


@given(st.binary(max_size=60))
def test_damaged_bytes_are_a_counted_loss_or_a_text(damage: bytes) -> None:
    event = ms_pb.LineageEvent(wall_time=START).SerializeToString() + b"\x4a" + _varint(len(damage)) + damage
    result = TensorBoardEncoder().encode(MindSporeDecoder(is_lineage=True).decode(event))
    assert (result.payload is None) == bool(result.losses) == (result.archive is not None)
    if result.payload is not None:
        assert TensorBoardDecoder().decode(result.payload).content == Opaque("dataset_graph", event)


@given(st.data())
def test_a_damaged_record_of_tensorboard_never_becomes_another_pipeline(data: st.DataObject) -> None:
    whole = bytearray(encoded(payload(golden("concat"))))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= 1 << data.draw(st.integers(0, 7))
    try:
        event = TensorBoardDecoder().decode(bytes(whole))
    except EventDecodeError:
        return
    TensorBoardEncoder().encode(event)  # whatever it is now, it is written without an error


def live_config(directory: Path, seconds: int = START) -> LiveRunConfig:
    return LiveRunConfig(
        summary_dir=str(directory),
        tensorboard_dir=str(directory),
        seconds=seconds,
        wall_time=float(seconds),
        device=0,
        host="host",
        pid=1,
    )


def test_the_callback_writes_what_convert_writes(tmp_path: Path) -> None:
    run = LiveRun(live_config(tmp_path / "run"), lambda kind, message: pytest.fail(message))
    run.write_values(1, START + 1.0, {"scalar": [{"tag": "loss", "value": np.float32(1)}]})
    run.write_whole("dataset_graph", START + 2.5, golden("zip").SerializeToString())
    run.close()
    here = str(tmp_path / "run")
    report = verify_logdirs(here, here)
    assert report.is_equal
    assert [(pair.points, pair.not_compared) for pair in report.runs] == [(2, 0)]
    convert_logdir(here, str(tmp_path / "tb"), to="tensorboard")
    assert texts(tmp_path / "run") == texts(tmp_path / "tb") != []
    assert verify_logdirs(here, str(tmp_path / "tb")).is_equal


def texts(directory: Path) -> list[bytes]:
    """Returns every text of a TensorBoard log, as it was written."""
    found = []
    for path in sorted(directory.glob("*tfevents*")):
        for item in EventFileReader(path, TensorBoardDecoder()):
            assert isinstance(item, Event)
            if isinstance(item.content, Opaque) and item.content.kind == "dataset_graph":
                found.append(encoded(item.content.payload))
    return found


def test_a_pipeline_in_a_live_log_alone_becomes_lineage(tmp_path: Path) -> None:
    run = LiveRun(live_config(tmp_path / "run"), lambda kind, message: pytest.fail(message))
    run.write_values(1, START + 1.0, {"scalar": [{"tag": "loss", "value": np.float32(1)}]})
    run.write_whole("dataset_graph", START + 2.5, golden("zip").SerializeToString())
    run.close()
    for path in (tmp_path / "run").glob("*summary*"):
        path.unlink()
    there, back = tmp_path / "ms", tmp_path / "back"
    convert_logdir(str(tmp_path / "run"), str(there))
    (event,) = lineage_payloads(there)
    assert ms_pb.LineageEvent.FromString(event).dataset_graph == golden("zip")
    convert_logdir(str(there), str(back))
    assert texts(back) == texts(tmp_path / "run")


def test_mindinsight_shows_it_after_a_round_trip(tmp_path: Path, mindinsight_server: MindInsightServer) -> None:
    for name in ("zip", "concat"):
        write_run(tmp_path / "ms" / name, payload(golden(name)))
    convert_logdir(str(tmp_path / "ms"), str(tmp_path / "tb"), options=ConvertOptions(keep_archive=False))
    convert_logdir(str(tmp_path / "tb"), str(tmp_path / "back"))
    client = mindinsight_server(tmp_path / "back")
    client.wait_lineages("./zip", "./concat")
    shown = client.get_json("datasets/dataset_graph", train_id="./zip")["dataset_graph"]
    chain = [shown]
    while len(chain[-1]["children"]) == 1:
        chain += chain[-1]["children"]
    assert [found["op_type"] for found in chain] == ["Batch", "Repeat", "Shuffle", "Zip"]
    assert [len(found["children"]) for found in chain] == [1, 1, 1, 2]
    assert shown["batch_size"] == 4
    labels = chain[-1]["children"][0]
    images = labels["children"][0]
    assert [operation["tensor_op_name"] for operation in images["operations"]] == [
        "Resize",
        "RandomCrop",
        "Rescale",
        "Normalize",
        "HwcToChw",
    ]
    assert html.unescape(images["operations"][0]["tensor_op_params"]).endswith('"size": [16, 16]}')
    shown = client.get_json("datasets/dataset_graph", train_id="./concat")["dataset_graph"]
    assert (shown["op_type"], shown["count"]) == ("Take", 3)
    assert shown["children"][0]["children"][0]["sampler"]["sampler_name"] == "SequentialSampler"
