"""Columns: the scalars of real logs, as their own readers give them."""

from __future__ import annotations

import random
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from tensorboardX import SummaryWriter

from ms_summary_bridge.columns.read import Read, read_histograms, read_images, read_scalars, read_texts
from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.errors import LogdirError, MissingDependencyError, NoEventsError, UsageError
from ms_summary_bridge.values import Histogram, Image
from tests.batches.test_batch_lane import LogFormat, write_odd_run


def _write_log(directory: Path, *, steps: int = 300) -> None:
    with SummaryWriter(str(directory)) as writer:
        for step in range(steps):
            writer.add_scalar("loss", 1 / (step + 1), step, walltime=1e9 + step)
            writer.add_scalar("lr", 0.1, step, walltime=1e9 + step)
        writer.add_histogram("weights", np.arange(10.0), 3)
        writer.add_image("picture", np.zeros((3, 4, 5), np.float32), 3)
        writer.add_text("note", "a | b\nc", 7)


@pytest.mark.tensorboard
def test_values_are_those_of_tensorboards_reader(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    _write_log(tmp_path / "run")
    table = read_scalars(tmp_path / "run")
    reader = EventAccumulator(str(tmp_path / "run"), size_guidance={"scalars": 0})
    reader.Reload()
    for tag in ("loss", "lr"):
        expected = reader.Scalars(tag)
        steps, values = table.series(tag)
        assert steps.tolist() == [event.step for event in expected]
        assert values.tolist() == [event.value for event in expected]
        assert table.wall_time[table.tag == tag].tolist() == [event.wall_time for event in expected]
    assert table.problems == []


def test_both_formats_give_the_same_table(tmp_path: Path) -> None:
    _write_log(tmp_path / "run")
    convert_logdir(tmp_path / "run", tmp_path / "converted")
    before, after = read_scalars(tmp_path / "run"), read_scalars(tmp_path / "converted")
    for name in ("step", "wall_time", "value", "tag_codes"):
        assert np.array_equal(getattr(before, name), getattr(after, name)), name
    assert before.tags == after.tags


@pytest.mark.tensorboard
def test_float64_values_come_back_from_the_archive(tmp_path: Path) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import SummaryMetadata
    from tensorboard.util.tensor_util import make_tensor_proto

    from ms_summary_bridge.files.record_writer import RecordWriter

    directory = tmp_path / "run"
    with RecordWriter(directory / "events.out.tfevents.1700000000.host") as writer:
        writer.write(Event(wall_time=1.0, file_version="brain.Event:2").SerializeToString())
        event = Event(wall_time=2.0, step=1)
        metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="scalars"))
        event.summary.value.add(tag="exact", tensor=make_tensor_proto(0.1, "float64"), metadata=metadata)
        writer.write(event.SerializeToString())
    convert_logdir(directory, tmp_path / "converted")
    assert read_scalars(tmp_path / "converted").value.tolist() == [0.1]


@pytest.mark.parametrize("seed", range(40))
def test_the_batches_of_a_table_are_its_events(tmp_path: Path, seed: int) -> None:
    """Generated logs of every oddity: each scalar is there, in the order of the file."""
    from ms_summary_bridge.runs.logdir import discover
    from ms_summary_bridge.runs.reading import RunReading, read_restored
    from ms_summary_bridge.values import Scalar

    rng = random.Random(seed)
    write_odd_run(rng, LogFormat(rng.choice(("tensorboard", "mindinsight"))), tmp_path / "run")
    runs = discover(tmp_path / "run").runs
    if not runs:
        with pytest.raises(NoEventsError):
            read_scalars(tmp_path / "run")
        return
    expected = [
        (run.name, tagged.tag, event.step, event.wall_time, struct.pack("<d", tagged.value.value))
        for run in runs
        for event in read_restored(run, RunReading())
        if hasattr(event.content, "values")
        for tagged in event.content.values
        if isinstance(tagged.value, Scalar) and not tagged.derived
    ]
    table = read_scalars(tmp_path / "run")
    columns = (table.run, table.tag, table.step.tolist(), table.wall_time.tolist(), table.value.tolist())
    found = [(*row, struct.pack("<d", value)) for *row, value in zip(*columns, strict=True)]
    assert found == expected


def test_runs_and_tags_are_chosen(tmp_path: Path) -> None:
    for name in ("first", "second"):
        _write_log(tmp_path / name)
    table = read_scalars(tmp_path, runs="^sec", tags="^l")
    assert (table.runs, sorted(table.tags)) == (["second"], ["loss", "lr"])
    assert len(table) == 600
    with pytest.raises(KeyError, match="there are 'loss', 'lr'"):
        table.series("accuracy")
    with pytest.raises(KeyError, match="holds 2 runs: name one of 'first', 'second'"):
        read_scalars(tmp_path, tags="loss").series("loss")


def test_damage_is_said(tmp_path: Path) -> None:
    _write_log(tmp_path)
    (path,) = tmp_path.glob("events*")
    data = bytearray(path.read_bytes())
    data[5000] ^= 1
    path.write_bytes(data[:-3])
    table = read_scalars(tmp_path)
    assert any("are damaged" in line for line in table.problems)
    assert any("ends inside the record" in line for line in table.problems)
    assert len(table) == 599  # of 600: the text was cut


def test_frames(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    _write_log(tmp_path)
    table = read_scalars(tmp_path)
    frame = table.to_pandas()
    assert list(frame.columns) == ["run", "tag", "step", "wall_time", "value"]
    loss = frame[frame.tag == "loss"]
    assert loss.value.tolist() == table.series("loss")[1].tolist()
    assert isinstance(frame.run.dtype, pandas.CategoricalDtype)
    arrow = table.to_arrow()
    assert arrow.column("tag").to_pylist() == table.tag.tolist()
    assert arrow.column("value").to_pylist() == table.value.tolist()


def test_a_frame_of_polars(tmp_path: Path) -> None:
    pytest.importorskip("polars")
    _write_log(tmp_path)
    table = read_scalars(tmp_path)
    frame = table.to_polars()
    assert frame.columns == ["run", "tag", "step", "wall_time", "value"]
    for name in frame.columns:
        assert frame[name].to_list() == getattr(table, name).tolist()
    assert read_scalars(tmp_path, tags="none").to_polars().shape == (0, 5)


@pytest.mark.parametrize(("package", "method"), [("pandas", "pandas"), ("pyarrow", "arrow"), ("polars", "polars")])
def test_a_frame_without_its_package_names_it(
    package: str, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write_log(tmp_path, steps=1)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingDependencyError, match=f"pip install {package}"):
        getattr(read_scalars(tmp_path), f"to_{method}")()


def test_histograms_images_and_texts_come_one_by_one(tmp_path: Path) -> None:
    _write_log(tmp_path)
    (histogram,) = read_histograms(tmp_path)
    assert isinstance(histogram.value, Histogram)
    assert (histogram.run, histogram.tag, histogram.step) == (".", "weights", 3)
    (image,) = read_images(tmp_path, tags="pict")
    assert isinstance(image.value, Image)
    assert image.value.encoded[0].startswith(b"\x89PNG")
    (text,) = read_texts(tmp_path)
    assert (text.tag, text.step, text.value) == ("note/text_summary", 7, "a | b\nc")


Reader = Callable[..., Iterator[Read[Any]]]
READERS: list[Reader] = [read_histograms, read_images, read_texts]


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
def test_iterators_read_both_formats_from_urls_and_choose_runs_and_tags(read: Reader, tmp_path: Path) -> None:
    for name in ("first", "second"):
        _write_log(tmp_path / "log" / name, steps=3)
    convert_logdir(tmp_path / "log", tmp_path / "ms")
    memory = fsspec.filesystem("memory")
    memory.put(str(tmp_path), f"/{tmp_path.name}", recursive=True)
    try:
        expected = list(read(tmp_path / "log"))
        assert [one.run for one in expected] == ["first", "second"]
        for name in ("log", "ms"):
            for place in (str(tmp_path / name), f"memory://{tmp_path.name}/{name}"):
                found = list(read(place))
                assert [(one.run, one.tag, one.step) for one in found] == [
                    (one.run, one.tag, one.step) for one in expected
                ]
                assert [comparable(one.value) for one in found] == [comparable(one.value) for one in expected]
                assert [one.run for one in read(place, runs="^sec")] == ["second"]
                assert len(list(read(place, tags="^(weights|picture|note)"))) == 2
                assert list(read(place, tags="^(loss|other)")) == []
        assert read_scalars(f"memory://{tmp_path.name}/ms", runs="first", tags="lr").series("lr")[0].tolist() == [
            0,
            1,
            2,
        ]
    finally:
        memory.rm(f"/{tmp_path.name}", recursive=True)


def comparable(value: Any) -> Any:
    return value if isinstance(value, str) else value.fingerprint()


def test_what_an_iterator_cannot_read_is_told(tmp_path: Path) -> None:
    _write_log(tmp_path, steps=20)
    (path,) = tmp_path.glob("events*")
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data[:-3])
    problems: list[str] = []
    assert list(read_texts(tmp_path, problems=problems)) == []
    assert any("are damaged" in line for line in problems)
    assert any("ends inside the record" in line for line in problems)


def test_a_text_that_cannot_be_decoded_is_told(tmp_path: Path) -> None:
    proto = pytest.importorskip("tensorboardX.proto.event_pb2")
    with SummaryWriter(str(tmp_path)) as writer:
        event = proto.Event(step=4)
        value = event.summary.value.add(tag="bad")
        value.metadata.plugin_data.plugin_name = "text"
        value.tensor.dtype = 1  # a float, which is no text
        value.tensor.float_val.append(1.0)
        writer.file_writer.event_writer.add_event(event)
    problems: list[str] = []
    assert list(read_texts(tmp_path, problems=problems)) == []
    (line,) = problems
    assert "text 'bad' of step 4" in line


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(NoEventsError):
        read_scalars(tmp_path)
    with pytest.raises(LogdirError):
        read_scalars(tmp_path / "missing")
    _write_log(tmp_path, steps=1)
    with pytest.raises(UsageError, match="tags"):
        read_scalars(tmp_path, tags="(")
