"""MindSpore's lineage as sessions in TensorBoard's HParams table, and back: the messages and the converter."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.convert.task import ConvertOptions
from ms_summary_bridge.convert.verify import verify_logdirs
from ms_summary_bridge.events import Event, Summary
from ms_summary_bridge.files.event_file import EventFileReader
from ms_summary_bridge.files.file_names import LINEAGE, archive_name
from ms_summary_bridge.formats.protos import ms_pb, tb_pb
from ms_summary_bridge.formats.sessions.hparams import (
    END_TAG,
    START_TAG,
    encode_session_end,
    encode_session_start,
    is_lineage,
    read_session,
)
from ms_summary_bridge.formats.sessions.lineage import failed_training, read_lineage, write_lineage
from ms_summary_bridge.formats.sessions.session import SESSION_KINDS, shortest
from ms_summary_bridge.formats.tensorboard import TensorBoardDecoder
from ms_summary_bridge.formats.wire import length_delimited
from ms_summary_bridge.runs.archive import make_decoder
from ms_summary_bridge.runs.report import RunReport
from ms_summary_bridge.values import Scalar
from tests.convert.test_cases import summary_record, tag
from tests.convert.test_to_mindinsight import put_log
from tests.convert.test_to_mindinsight import scalars as board_scalars
from tests.mindspore_run import event as make_event
from tests.mindspore_run import histogram, scalar, scalars, tensor, write_summary
from tests.scripted import START, build_record, mindspore_name, put

TRAIN: dict[str, Any] = {
    "hyper_parameters": {
        "optimizer": "Adam", "learning_rate": 0.01, "loss_function": "MSELoss", "epoch": 3,
        "parallel_mode": "stand_alone", "device_num": 1, "batch_size": 32,
    },
    "train_dataset": {"train_dataset_path": "/data/train", "train_dataset_size": 640},
    "algorithm": {"network": "Net", "loss": 0.125},
    "model": {"path": '{"ckpt": "/out/net.ckpt"}', "size": 123456},
}  # fmt: skip
HPARAMS = {
    "optimizer": "Adam", "learning_rate": 0.01, "loss_function": "MSELoss", "epoch": 3.0,
    "parallel_mode": "stand_alone", "device_num": 1.0, "batch_size": 32.0, "network": "Net",
    "train_dataset_path": "/data/train", "train_dataset_size": 640.0,
    "model_path": "/out/net.ckpt", "model_size": 123456.0,
}  # fmt: skip


def train_event(wall_time: float = START + 9, **changes: Any) -> bytes:
    """Returns a training's record; `changes` are hyperparameters, the loss, or the network."""
    event = ms_pb.LineageEvent(wall_time=wall_time)
    for part, fields in TRAIN.items():
        for name, value in fields.items():
            setattr(getattr(event.train_lineage, part), name, changes.get(name, value))
    data: bytes = event.SerializeToString()
    return data


def eval_event(metric: str, wall_time: float = START + 12, **dataset: Any) -> bytes:
    event = ms_pb.LineageEvent(wall_time=wall_time)
    event.evaluation_lineage.metric = metric
    for name, value in dataset.items():
        setattr(event.evaluation_lineage.valid_dataset, name, value)
    data: bytes = event.SerializeToString()
    return data


def user_event(values: Mapping[str, str | int | float], wall_time: float = START + 1) -> bytes:
    """Returns the user's own values as MindSpore writes them: an item for each."""
    event = ms_pb.LineageEvent(wall_time=wall_time)
    event.user_defined_info.SetInParent()
    fields = {str: "map_str", int: "map_int32", float: "map_double"}
    for name, value in values.items():
        getattr(event.user_defined_info.user_info.add(), fields[type(value)])[name] = value
    data: bytes = event.SerializeToString()
    return data


def put_lineage(directory: Path, *payloads: bytes, seconds: int = START) -> Path:
    return put(directory / mindspore_name(seconds, suffix="_lineage"), b"".join(map(build_record, payloads)))


def lineage_of(directory: Path) -> list[Any]:
    """Returns the messages of a run's lineage files, without our own head."""
    return [
        ms_pb.LineageEvent.FromString(record.content.payload)
        for path in sorted(directory.glob("*_lineage"))
        for record in EventFileReader(str(path), make_decoder(LINEAGE))
        if isinstance(record, Event) and record.content.kind in SESSION_KINDS
    ]


def boards(directory: Path) -> dict[str, Any]:
    """Returns plugin data of the session's start and end, and the derived scalars, from a run's TensorBoard files."""
    found: dict[str, Any] = {}
    for path in sorted(directory.glob("*tfevents*")):
        decoder = TensorBoardDecoder()
        for event in EventFileReader(str(path), decoder):
            assert isinstance(event, Event)
            if isinstance(event.content, Summary):
                for tagged in event.content.values:
                    if tagged.tag in (START_TAG, END_TAG):
                        assert tagged.derived
                        value = tb_pb.Summary.Value.FromString(tagged.value.payload)
                        assert tagged.tag not in found, "TensorBoard counts the first one"
                        found[tagged.tag] = tb_pb.hparams.HParamsPluginData.FromString(
                            value.metadata.plugin_data.content
                        )
                    elif tagged.derived and isinstance(tagged.value, Scalar):
                        found[tagged.tag] = tagged.value.value
    return found


def hparams_of(data: Any) -> dict[str, Any]:
    return {name: getattr(value, value.WhichOneof("kind")) for name, value in data.session_start_info.hparams.items()}


def hparams_value(name: str, content: bytes) -> bytes:
    plugin = length_delimited(b"\x0a", b"hparams") + length_delimited(b"\x12", content)
    return tag(name) + length_delimited(b"\x4a", length_delimited(b"\x0a", plugin))


def convert_one(source: Path, destination: Path, **options: Any) -> RunReport:
    (run,) = convert_logdir(str(source), str(destination), **options).runs
    assert run.failed == ""
    return run


# --- records to a session


def test_every_field_of_a_training_has_a_readable_name() -> None:
    session = read_lineage({"train_lineage": train_event()})
    assert session.hparams == HPARAMS
    assert session.metrics == {"train/loss": 0.125}
    assert (session.status, session.end_time, session.model_uri) == ("success", START + 9, "/out/net.ckpt")
    assert session.left_out == []


def test_a_training_without_a_checkpoint_has_no_size_of_one() -> None:
    event = ms_pb.LineageEvent(wall_time=1.0)
    event.train_lineage.model.path, event.train_lineage.model.size = '{"ckpt": null}', 0
    assert read_lineage({"train_lineage": event.SerializeToString()}).hparams == {}


@pytest.mark.parametrize(
    ("metric", "expected", "left_out"),
    [
        ('{"acc": 0.5, "loss": 1}', {"eval/acc": 0.5, "eval/loss": 1.0}, 0),
        ('{"acc": NaN, "top": Infinity}', {"eval/acc": math.nan, "eval/top": math.inf}, 0),
        ('{"f1": {"cat": 0.5, "dog": [1, true]}}', {"eval/f1/cat": 0.5, "eval/f1/dog/0": 1.0, "eval/f1/dog/1": 1.0}, 0),
        ('{"a": "0.5", "b": null, "c": 2}', {"eval/c": 2.0}, 2),
        ("0.25", {"eval/metric": 0.25}, 0),
        ("{acc: 0.5}", {}, 1),
        ("[" * 100_000, {}, 1),
        (f'{{"big": 1{"0" * 400}}}', {"eval/big": math.inf}, 0),
        ("", {}, 0),
    ],
)
def test_metrics_are_numbers_wherever_they_stand(metric: str, expected: dict[str, float], left_out: int) -> None:
    session = read_lineage({"evaluation_lineage": eval_event(metric, valid_dataset_size=64)})
    assert repr(session.metrics) == repr(expected)
    assert len(session.left_out) == left_out
    assert session.hparams == {"valid_dataset_size": 64.0}


def test_the_users_own_values_keep_their_names_where_these_are_free() -> None:
    given_ones = {"optimizer": "mine", "user/x": 1, "": 2, "seed": 0, "rate": 0.5, "on": "true", "nan": math.nan}
    session = read_lineage({"train_lineage": train_event(), "user_defined_info": user_event(given_ones)})
    own = {name: value for name, value in session.hparams.items() if name not in HPARAMS}
    assert own == {
        "user/optimizer": "mine", "user/user/x": 1.0, "user/": 2.0, "seed": 0.0, "rate": 0.5, "on": True, "nan": "nan"
    }  # fmt: skip
    assert session.hparams["optimizer"] == "Adam"


def test_user_defined_info_may_be_maps_and_trees() -> None:
    event = ms_pb.LineageEvent(wall_time=1.0)
    event.user_defined_info.map_int32["a"] = 1
    event.user_defined_info.map_dict["tree"].map_double["b"] = 0.5
    assert read_lineage({"user_defined_info": event.SerializeToString()}).hparams == {"a": 1.0, "tree/b": 0.5}
    assert read_lineage({"user_defined_info": user_event({})}).hparams == {}


def test_names_that_are_not_utf8_are_told(tmp_path: Path) -> None:
    trees = [length_delimited(b"\x0a", name) + length_delimited(b"\x12", b"") for name in (b"\xff\xfe", b"ok")]
    info = b"".join(length_delimited(b"\x12", tree) for tree in trees)  # bytes and text, which have no order
    payload = ms_pb.LineageEvent(wall_time=START).SerializeToString() + length_delimited(b"\x52", info)
    put_lineage(tmp_path / "ms", payload, train_event())
    report = convert_one(tmp_path / "ms", tmp_path / "tb")
    assert [loss.reason.split(":")[0] for loss in report.losses if loss.kind == "lineage"] == [
        "user_defined_info cannot be read"
    ]
    assert hparams_of(boards(tmp_path / "tb")[START_TAG]) == HPARAMS


def test_a_session_starts_with_the_last_file_before_its_end() -> None:
    records = {"train_lineage": train_event(50.0), "evaluation_lineage": eval_event("{}", 90.0)}
    session = read_lineage(records, [10.0, 40.0, 80.0])
    assert (session.start_time, session.end_time) == (40.0, 50.0)
    assert read_lineage(records).start_time == 50.0


def test_a_failed_training_says_so_and_has_no_loss() -> None:
    event = ms_pb.LineageEvent.FromString(train_event())
    data = failed_training(event.train_lineage.SerializeToString())
    session = read_lineage({"train_lineage": b"\x09" + bytes(8) + length_delimited(b"\x32", data)})
    assert (session.status, session.metrics, session.hparams) == ("failure", {}, HPARAMS)
    assert ms_pb.TrainLineage.FromString(data).hyper_parameters == event.train_lineage.hyper_parameters


def count_digits(number: float) -> int:
    return len(Decimal(repr(number)).normalize().as_tuple().digits)


@example(999999986991104.0)  # 1e15, which Python writes out
@given(st.floats(width=32, allow_nan=False))
def test_the_shortest_number_is_the_same_float32(value: float) -> None:
    number = shortest(Scalar.from_float32(value))
    assert Scalar.from_float32(number) == Scalar.from_float32(value)
    assert count_digits(number) <= min(count_digits(value), 9)  # nine tell any two float32 apart
    assert shortest(Scalar.from_float64(0.1)) == 0.1


# --- there and back without an archive

NAMES = st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(["optimizer", "user/a", "model_size"])
FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)


@example({}, {}, False, 3.4028234663852886e38)  # the largest, which protobuf in Python takes for infinite
@given(
    st.dictionaries(NAMES, st.text(max_size=5) | st.integers(-(2**31), 2**31 - 1) | FINITE, max_size=5),
    st.dictionaries(st.text(st.characters(codec="utf-8"), min_size=1, max_size=5), FINITE, max_size=4),
    st.booleans(),
    FINITE,
)
def test_a_session_becomes_the_lineage_it_was_made_from(
    user: dict[str, Any], metrics: dict[str, float], has_failed: bool, rate: float
) -> None:
    user = {name: value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
            for name, value in user.items()}  # fmt: skip
    records = {
        "train_lineage": train_event(learning_rate=rate),
        "evaluation_lineage": eval_event(json.dumps(metrics), valid_dataset_size=7),
        "user_defined_info": user_event(user),
    }
    if has_failed:
        data = ms_pb.LineageEvent.FromString(records["train_lineage"]).train_lineage.SerializeToString()
        records["train_lineage"] = records["train_lineage"][:9] + length_delimited(b"\x32", failed_training(data))
    session = read_lineage(records)
    values, numbers = {}, {}
    for payload in (encode_session_start(session), encode_session_end(session, {})):
        assert payload is not None
        content = TensorBoardDecoder().decode(payload).content
        assert isinstance(content, Summary)
        for tagged in content.values:
            assert tagged.derived
            if isinstance(tagged.value, Scalar):
                numbers[tagged.tag] = shortest(tagged.value)
            else:
                assert tagged.value.kind == "hparams"
                values[tagged.tag] = tagged.value.payload
    assert is_lineage(values[START_TAG])
    back = read_session(values, {**numbers, "loss/auto": 1.0})
    assert back is not None
    again = {
        ms_pb.LineageEvent.FromString(payload).WhichOneof("what"): payload
        for payload in write_lineage(START + 9, back, is_lineage=True)
    }
    restored = read_lineage(again)
    assert (restored.hparams, restored.status) == (session.hparams, session.status)
    assert restored.metrics == {name: shortest(Scalar.from_float32(v)) for name, v in session.metrics.items()}


@given(st.sampled_from(SESSION_KINDS), st.binary(max_size=80), st.integers(0, 200), st.integers(0, 255))
def test_no_bytes_make_the_readers_raise(kind: str, noise: bytes, position: int, byte: int) -> None:
    keys = {"train_lineage": b"\x32", "evaluation_lineage": b"\x3a", "user_defined_info": b"\x52"}
    whole = {"train_lineage": train_event(), "evaluation_lineage": eval_event('{"a": 1}'),
             "user_defined_info": user_event({"a": 1, "b": "c"})}[kind]  # fmt: skip
    damaged = bytearray(whole)
    damaged[position % len(damaged)] = byte
    for payload in (noise, whole[:9] + length_delimited(keys[kind], noise), bytes(damaged)):
        session = read_lineage({kind: payload})
        start, end = encode_session_start(session), encode_session_end(session, {})
        for message in (start, end, payload, bytes(damaged)):
            if message is not None:
                read_session({START_TAG: message, END_TAG: message}, {"a": math.nan})
                is_lineage(message)
        for is_ours in (True, False):
            for written in write_lineage(1.0, session, is_lineage=is_ours):
                ms_pb.LineageEvent.FromString(written)


@given(st.binary(max_size=60))
def test_no_plugin_data_make_the_reader_raise(content: bytes) -> None:
    session = read_session({START_TAG: hparams_value(START_TAG, content)}, {"a": 1.0})
    if session is not None:
        write_lineage(1.0, session, is_lineage=False)


# --- the converter: MindSpore to TensorBoard


def write_run(directory: Path, number: int, *, with_eval: bool = True) -> None:
    """Writes a run with a loss, its lineage, the user's own values and an evaluation."""
    write_summary(directory, scalars("loss/auto", range(1, 4), offset=number))
    put_lineage(
        directory,
        user_event({"trial": number, "kind": "abc"[number], "deep": ("false", "true")[number % 2]}),
        train_event(learning_rate=0.1**number, optimizer=("SGD", "Adam", "Lamb")[number], loss=number + 0.5),
    )
    if with_eval:
        put_lineage(directory, eval_event(f'{{"acc": 0.{number + 5}}}', valid_dataset_size=64), seconds=START + 12)


def test_lineage_is_a_session_there_and_exact_back(tmp_path: Path) -> None:
    write_run(tmp_path / "ms", 1)
    report = convert_one(tmp_path / "ms", tmp_path / "tb")
    found = boards(tmp_path / "tb")
    hparams = hparams_of(found.pop(START_TAG))
    assert hparams == {
        **HPARAMS, "learning_rate": 0.1, "optimizer": "Adam", "valid_dataset_size": 64.0,
        "trial": 1.0, "kind": "b", "deep": True,
    }  # fmt: skip
    end = found.pop(END_TAG).session_end_info
    assert (end.status, end.end_time_secs) == (tb_pb.hparams.Status.Value("STATUS_SUCCESS"), START + 9)
    assert found == {"train/loss": 1.5, "eval/acc": pytest.approx(0.6)}
    assert {loss.kind: loss.reason for loss in report.losses} == dict.fromkeys(
        SESSION_KINDS, "shown in the HParams table"
    )
    convert_one(tmp_path / "tb", tmp_path / "back")
    assert [m.SerializeToString() for m in lineage_of(tmp_path / "back")] == [
        m.SerializeToString() for m in lineage_of(tmp_path / "ms")
    ]
    for one, other in (("ms", "tb"), ("tb", "back"), ("ms", "back")):
        assert verify_logdirs(str(tmp_path / one), str(tmp_path / other)).is_equal


def test_lineage_without_a_summary_file_is_exact_back(tmp_path: Path) -> None:
    (payload, *others) = [train_event(), eval_event('{"acc": 0.5}'), user_event({"a": 1})]
    source = put_lineage(tmp_path / "ms", payload, *others)
    convert_one(tmp_path / "ms", tmp_path / "tb")
    convert_one(tmp_path / "tb", tmp_path / "back")
    (back,) = (tmp_path / "back").glob("*_lineage")
    assert back.read_bytes() == source.read_bytes()
    for one, other in (("ms", "tb"), ("tb", "back"), ("ms", "back")):
        assert verify_logdirs(str(tmp_path / one), str(tmp_path / other)).is_equal


def test_without_an_archive_the_session_becomes_lineage_again(tmp_path: Path) -> None:
    write_run(tmp_path / "ms", 1)
    options = ConvertOptions(keep_archive=False)
    convert_one(tmp_path / "ms", tmp_path / "tb", options=options)
    assert not list((tmp_path / "tb").glob("*.archive"))
    report = convert_one(tmp_path / "tb", tmp_path / "back", options=options)
    assert not [problem for problem in report.problems if "computed from others" in problem]
    train, evaluation, user = lineage_of(tmp_path / "back")
    source = {m.WhichOneof("what"): m for m in lineage_of(tmp_path / "ms")}
    assert train.train_lineage == source["train_lineage"].train_lineage
    assert json.loads(evaluation.evaluation_lineage.metric) == {"acc": 0.6}
    assert evaluation.evaluation_lineage.valid_dataset.valid_dataset_size == 64
    assert sorted(map(str, user.user_defined_info.user_info)) == sorted(
        map(str, source["user_defined_info"].user_defined_info.user_info)
    )


def test_a_scalar_that_is_there_is_the_metric(tmp_path: Path) -> None:
    write_summary(tmp_path / "ms", [*scalars("eval/acc", [4, 8]), *scalars("train/loss", [9])])
    put_lineage(tmp_path / "ms", train_event(), eval_event('{"acc": 0.5, "f1": 0.25}'))
    convert_one(tmp_path / "ms", tmp_path / "tb")
    assert boards(tmp_path / "tb").keys() == {START_TAG, END_TAG, "eval/f1"}


def test_a_value_of_another_kind_does_not_take_the_place_of_a_metric(tmp_path: Path) -> None:
    values = (("eval/acc", histogram([1, 2])), ("eval/f1", scalar(1.0)), ("train/loss", histogram([3])))
    write_summary(tmp_path / "ms", [make_event(1, *values)])
    put_lineage(tmp_path / "ms", train_event(), eval_event('{"acc": 0.5, "f1": 0.25}'))
    options = ConvertOptions(keep_archive=False)
    convert_one(tmp_path / "ms", tmp_path / "tb")
    found = boards(tmp_path / "tb")
    assert found.keys() == {START_TAG, END_TAG, "eval/acc", "train/loss"}, "f1 is there as a series"
    names = b"".join(path.read_bytes() for path in (tmp_path / "tb").glob("*lineage"))
    assert names.count(b"eval/acc/metric") == names.count(b"train/loss/metric") == 1
    convert_one(tmp_path / "tb", tmp_path / "back")
    assert verify_logdirs(str(tmp_path / "ms"), str(tmp_path / "back")).is_equal
    convert_one(tmp_path / "ms", tmp_path / "bare", options=options)
    convert_one(tmp_path / "bare", tmp_path / "again", options=options)
    train, evaluation = lineage_of(tmp_path / "again")
    assert train.train_lineage.algorithm.loss == 0.125
    assert json.loads(evaluation.evaluation_lineage.metric) == {"acc": 0.5, "f1": 1.0}


def test_no_tag_takes_the_place_of_the_session(tmp_path: Path) -> None:
    write_summary(tmp_path / "ms", [make_event(1, (START_TAG, scalar(1.0)), (END_TAG, tensor([1.0, 2.0])))])
    put_lineage(tmp_path / "ms", train_event())
    report = convert_one(tmp_path / "ms", tmp_path / "tb")
    assert [(row.tag, row.kind, row.name) for row in report.renamed_tags] == [
        (START_TAG, "scalar", f"{START_TAG}/scalar"), (END_TAG, "text", f"{END_TAG}/text")
    ]  # fmt: skip
    convert_one(tmp_path / "tb", tmp_path / "back")
    for one, other in (("ms", "tb"), ("ms", "back")):
        assert verify_logdirs(str(tmp_path / one), str(tmp_path / other)).is_equal


def test_of_several_records_the_last_of_each_kind_is_shown_and_all_are_kept(tmp_path: Path) -> None:
    write_summary(tmp_path / "ms", scalars("loss", range(3)))
    first = [train_event(epoch=1), eval_event('{"acc": 0.25}'), user_event({"a": 1})]
    second = [train_event(START + 50, epoch=2), eval_event('{"f1": 0.5}', START + 60)]
    put_lineage(tmp_path / "ms", *first)
    convert_one(tmp_path / "ms", tmp_path / "tb")
    put_lineage(tmp_path / "ms", *second, seconds=START + 50)
    convert_one(tmp_path / "ms", tmp_path / "tb")
    found = boards(tmp_path / "tb")
    assert hparams_of(found[START_TAG])["epoch"] == 2.0
    assert hparams_of(found[START_TAG])["a"] == 1.0
    assert found.keys() == {START_TAG, END_TAG, "train/loss", "eval/f1"}
    convert_one(tmp_path / "ms", tmp_path / "once")
    assert boards(tmp_path / "once") == found
    assert (tmp_path / "once" / archive_name(LINEAGE)).read_bytes() == (
        tmp_path / "tb" / archive_name(LINEAGE)
    ).read_bytes()
    convert_one(tmp_path / "tb", tmp_path / "back")
    assert [m.SerializeToString() for m in lineage_of(tmp_path / "back")] == [*first, *second]


@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "one after the other"])
def test_an_earlier_record_of_a_kind_is_a_counted_loss(tmp_path: Path, at_once: bool) -> None:
    earlier, last = "an earlier one of its run: TensorBoard shows the last", "shown in the HParams table"
    first, second = eval_event('{"acc": 0.25}'), eval_event('{"acc": 0.5}', START + 60)
    put_lineage(tmp_path / "ms", first)
    if not at_once:
        report = convert_one(tmp_path / "ms", tmp_path / "tb")
        assert [(loss.count, loss.reason) for loss in report.losses] == [(1, last)]
    put_lineage(tmp_path / "ms", second, second, seconds=START + 50)
    report = convert_one(tmp_path / "ms", tmp_path / "tb")
    assert [(loss.count, loss.reason) for loss in report.losses] == [(1, earlier), (1, last)]
    assert convert_one(tmp_path / "ms", tmp_path / "tb").losses == []


def test_while_it_grows_a_run_waits_for_its_training_to_end(tmp_path: Path) -> None:
    write_summary(tmp_path / "ms", scalars("loss", range(3)))
    put_lineage(tmp_path / "ms", user_event({"a": 1}))
    convert_one(tmp_path / "ms", tmp_path / "tb", options=ConvertOptions(grows=True))
    assert boards(tmp_path / "tb") == {}
    put_lineage(tmp_path / "ms", user_event({"a": 1}), train_event())
    convert_one(tmp_path / "ms", tmp_path / "tb", options=ConvertOptions(grows=True))
    assert hparams_of(boards(tmp_path / "tb")[START_TAG]) == {**HPARAMS, "a": 1.0}


def test_a_loss_of_the_session_is_said_once_and_not_before_its_end(tmp_path: Path) -> None:
    def reasons() -> list[str]:
        run = convert_one(tmp_path / "ms", tmp_path / "tb", options=ConvertOptions(grows=True))
        return [loss.reason.partition(":")[0] for loss in run.losses if loss.kind == "lineage"]

    broken = b"\x09" + bytes(8) + b"\x52\x02\x0a\x7f"
    write_summary(tmp_path / "ms", scalars("loss", range(3)))
    put_lineage(tmp_path / "ms", broken)
    assert reasons() == []
    put_lineage(tmp_path / "ms", broken, train_event())
    assert reasons() == ["user_defined_info cannot be read"]
    assert reasons() == []
    write_summary(tmp_path / "ms", scalars("loss", range(3, 6)), seconds=START + 20)
    assert reasons() == [], "what is new is of no session"
    put_lineage(tmp_path / "ms", broken, seconds=START + 30)
    assert reasons() == ["user_defined_info cannot be read"]


def test_the_users_own_values_alone_are_a_session_without_an_end(tmp_path: Path) -> None:
    put_lineage(tmp_path / "ms", user_event({"a": 1}))
    convert_one(tmp_path / "ms", tmp_path / "tb")
    found = boards(tmp_path / "tb")
    assert found.keys() == {START_TAG}
    assert hparams_of(found[START_TAG]) == {"a": 1.0}
    convert_one(tmp_path / "ms", tmp_path / "tb")  # nothing new
    assert boards(tmp_path / "tb") == found


def test_lineage_that_cannot_be_read_is_counted_and_kept(tmp_path: Path) -> None:
    write_summary(tmp_path / "ms", scalars("loss", range(3)))
    payloads = [b"\x09" + bytes(8) + b"\x32\x02\x0a\x7f", eval_event('{"acc": "high"}')]
    put_lineage(tmp_path / "ms", *payloads)
    report = convert_one(tmp_path / "ms", tmp_path / "tb")
    reasons = {loss.reason.split(":")[0] for loss in report.losses if loss.kind == "lineage"}
    assert reasons == {"train_lineage cannot be read", "the metric 'acc' is not a number"}
    assert verify_logdirs(str(tmp_path / "ms"), str(tmp_path / "tb")).is_equal


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_comes_back_and_other_metrics_are_counted(tmp_path: Path, loss: float) -> None:
    options = ConvertOptions(keep_archive=False)
    put_lineage(tmp_path / "ms", train_event(loss=loss), eval_event('{"acc": 0.5, "top": NaN}'))
    convert_one(tmp_path / "ms", tmp_path / "tb", options=options)
    report = convert_one(tmp_path / "tb", tmp_path / "back", options=options)
    train, evaluation = lineage_of(tmp_path / "back")
    assert repr(train.train_lineage.algorithm.loss) == repr(loss)
    assert json.loads(evaluation.evaluation_lineage.metric) == {"acc": 0.5}
    assert [(row.count, row.reason) for row in report.losses if row.kind == "lineage"] == [
        (1, "the metric 'top' is nan, which JSON does not hold")
    ]


# --- the converter: TensorBoard to MindSpore


def hparams_record(name: str, fill: Callable[[Any], object]) -> bytes:
    data = tb_pb.hparams.HParamsPluginData()
    fill(data)
    return summary_record(0, hparams_value(name, data.SerializeToString()))


def user_of(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for event in lineage_of(directory):
        for item in event.user_defined_info.user_info:
            ((_, values),) = item.ListFields()
            found.update(values)
    return found


def test_types_and_the_end_of_a_session_are_told(tmp_path: Path) -> None:
    def start(data: Any) -> None:
        hparams = data.session_start_info.hparams
        hparams["layers"].list_value.extend([8, "wide", True])
        hparams["nested"].struct_value["a"] = 1
        hparams["none"].null_value = 0
        hparams["on"].bool_value = True
        hparams["rate"].number_value = 0.5
        hparams["size"].number_value = 8

    def end(data: Any) -> None:
        data.session_end_info.status = tb_pb.hparams.Status.Value("STATUS_FAILURE")

    path = put_log(tmp_path / "tb", [hparams_record(START_TAG, start), *board_scalars("acc", [1])])
    convert_one(tmp_path / "tb", tmp_path / "ms")
    expected = {
        "layers": '[8.0, "wide", true]',
        "nested": '{"a": 1.0}',
        "none": "",
        "on": "true",
        "rate": 0.5,
        "size": 8,
    }
    assert user_of(tmp_path / "ms") == expected
    with path.open("ab") as file:
        file.write(hparams_record(END_TAG, end))
    convert_one(tmp_path / "tb", tmp_path / "ms")
    assert user_of(tmp_path / "ms") == {**expected, "status": "failure"}
    convert_one(tmp_path / "tb", tmp_path / "once")
    assert user_of(tmp_path / "once") == user_of(tmp_path / "ms")
    assert verify_logdirs(str(tmp_path / "tb"), str(tmp_path / "ms")).is_equal


def test_a_session_that_cannot_be_read_is_told_and_kept(tmp_path: Path) -> None:
    put_log(tmp_path / "tb", [*board_scalars("a", [1]), summary_record(0, hparams_value(START_TAG, b"\xff\xff"))])
    report = convert_one(tmp_path / "tb", tmp_path / "ms")
    assert "cannot be read, so the run gets no lineage" in {loss.reason for loss in report.losses}
    assert lineage_of(tmp_path / "ms") == []
    convert_one(tmp_path / "ms", tmp_path / "back")
    assert verify_logdirs(str(tmp_path / "tb"), str(tmp_path / "back")).is_equal


def test_a_loss_of_a_session_made_from_a_log_is_said_once(tmp_path: Path) -> None:
    def start(data: Any) -> None:
        data.session_start_info.hparams["size"].number_value = 8

    def reasons() -> list[str]:
        run = convert_one(tmp_path / "tb", tmp_path / "ms")
        return [loss.reason for loss in run.losses if loss.kind in ("lineage", "hparams")]

    path = put_log(tmp_path / "tb", [hparams_record(START_TAG, start), *board_scalars("acc", [1])])
    with path.open("ab") as file:
        file.write(summary_record(2, tag("gone") + b"\x15" + Scalar.from_float32(math.nan).bits))
    told = "the metric 'gone' is nan, which JSON does not hold"
    assert told in reasons()
    with path.open("ab") as file:
        file.write(b"".join(board_scalars("acc", [3])))
    assert told not in reasons()
    with path.open("ab") as file:
        file.write(summary_record(4, hparams_value(START_TAG, b"\xff\xff")))
    told = "cannot be read, so the run gets no lineage"
    assert told in reasons()
    with path.open("ab") as file:
        file.write(b"".join(board_scalars("acc", [5])))
    assert told not in reasons()


def test_a_hyperparameter_that_is_no_number_does_not_stop_the_next_conversion(tmp_path: Path) -> None:
    def start(data: Any) -> None:
        data.session_start_info.hparams["rate"].number_value = math.nan

    path = put_log(tmp_path / "tb", [hparams_record(START_TAG, start), *board_scalars("acc", [1])])
    convert_one(tmp_path / "tb", tmp_path / "ms")
    with path.open("ab") as file:
        file.write(b"".join(board_scalars("acc", [2])))
    convert_one(tmp_path / "tb", tmp_path / "ms")
    assert math.isnan(user_of(tmp_path / "ms")["rate"])
