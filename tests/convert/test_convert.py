"""Conversion from MindSpore to TensorBoard: nothing lost, nothing doubled, and the same bytes however it was cut up."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_summary_bridge.cli import main
from ms_summary_bridge.columns.inspect import inspect_logdir
from ms_summary_bridge.convert.destination import locked
from ms_summary_bridge.convert.follow import follow_logdir
from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.convert.state import STATE_NAME, load_state
from ms_summary_bridge.convert.task import ConvertOptions
from ms_summary_bridge.convert.unread import identify, is_same_file
from ms_summary_bridge.convert.verify import verify_logdirs
from ms_summary_bridge.convert.workers import count_cores
from ms_summary_bridge.errors import LogdirError, NoEventsError, UsageError
from ms_summary_bridge.events import Event, FileVersion, SessionLog, Summary
from ms_summary_bridge.files.event_file import EventFileReader
from ms_summary_bridge.files.file_names import LINEAGE, archive_name
from ms_summary_bridge.files.records import encode_record
from ms_summary_bridge.formats.mindspore import MindSporeEncoder
from ms_summary_bridge.formats.tag_names import TagNames
from ms_summary_bridge.formats.wire import fixed64, length_delimited
from ms_summary_bridge.runs.archive import make_decoder, read_archive
from ms_summary_bridge.runs.logdir import discover
from ms_summary_bridge.runs.report import Report, RunReport, encode_json
from ms_summary_bridge.values import Image, Opaque, Scalar, Value
from tests.mindspore_run import (
    PNG,
    START,
    event,
    histogram,
    image,
    scalar,
    scalars,
    summary_bytes,
    summary_name,
    tensor,
    write_summary,
)
from tests.scripted import build_record, mindspore_name, put, version_payload

LATEST = ConvertOptions(on_restart="latest")


def convert(source: Path | str, destination: Path | str, **options: Any) -> Report:
    return convert_logdir(str(source), str(destination), **options)


def convert_run(source: Path | str, destination: Path | str, **options: Any) -> RunReport:
    """Converts a source of one run; returns its report."""
    (run,) = convert(source, destination, **options).runs
    assert run.failed == ""
    return run


def read(path: Path, source: str = "tensorboard") -> list[Event]:
    """Decodes a whole file, in which nothing may be wrong."""
    items = list(EventFileReader(path, make_decoder(source)))
    assert all(isinstance(item, Event) for item in items)
    return items  # type: ignore[return-value]


def outputs(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*tfevents*"))


def read_outputs(directory: Path) -> list[Event]:
    return [item for path in outputs(directory) for item in read(path)]


Row = tuple[str, str, int, float, bytes]


def rows(events: Iterable[Event], *, derived: bool = False) -> list[Row]:
    """Flattens events to (kind, tag, step, wall_time, fingerprint)."""
    return [
        (tagged.value.kind, tagged.tag, item.step, item.wall_time, tagged.value.fingerprint())
        for item in events
        if isinstance(item.content, Summary)
        for tagged in item.content.values
        if tagged.derived == derived
    ]


def scalar_rows(directory: Path, tag: str = "loss") -> list[tuple[int, float]]:
    return [
        (item.step, tagged.value.value)
        for item in read_outputs(directory)
        if isinstance(item.content, Summary)
        for tagged in item.content.values
        if tagged.tag == tag and isinstance(tagged.value, Scalar)
    ]


def contents(directory: Path, *, ours: bool = False) -> dict[str, bytes]:
    """Every file below a directory by its path; without our own hidden files unless they are asked for."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and (ours or not path.name.startswith(STATE_NAME))
    }


def graph_event(body: bytes = b"\x0a\x03abc", *, wall_time: float = START) -> Event:
    payload = fixed64(b"\x09", wall_time) + length_delimited(b"\x22", body)
    return Event(wall_time, 0, Opaque("graph", payload), "mindspore")


def write_lineage(directory: Path, bodies: Sequence[bytes] = (b"\x0a\x03net",), *, seconds: int = START) -> Path:
    """Writes a lineage file with one train lineage for each body."""
    directory.mkdir(parents=True, exist_ok=True)
    payloads = [version_payload("mindspore")]
    payloads += [fixed64(b"\x09", START + i) + length_delimited(b"\x32", body) for i, body in enumerate(bodies)]
    path = directory / mindspore_name(seconds, suffix="_lineage")
    path.write_bytes(b"".join(map(build_record, payloads)))
    return path


# --- everything comes out

bits = st.one_of(
    st.binary(min_size=4, max_size=4),
    st.sampled_from([b"\x01\x00\xa0\x7f", b"\xef\xbe\xed\xff", b"\x00\x00\x00\x80", b"\x00\x00\x80\x7f"]),
)
counts = st.lists(st.integers(0, 1 << 40), min_size=1, max_size=5)
values = st.one_of(
    bits.map(Scalar),
    st.builds(histogram, counts, left=st.floats(-1e30, 1e30), nan=st.integers(0, 3)),
    st.builds(Image, st.integers(0, 9), st.integers(0, 9), st.integers(0, 4), st.tuples(st.binary(max_size=9))),
    st.builds(tensor, st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=4)),
)
tags = st.sampled_from(["loss", "a/b", "a", "损失", "loss/histogram", "x y\n[bold]"])
wall_times = st.floats(0, 2e9)
steps = st.one_of(st.integers(-3, 9), st.sampled_from([2**31, 6_002_049_024, 2**63 - 1, -(2**63)]))
summaries = st.builds(
    lambda step, tagged, wall_time: event(step, *tagged, wall_time=wall_time),
    steps,
    st.lists(st.tuples(tags, values), min_size=1, max_size=3),
    wall_times,
)
events = st.lists(st.one_of(summaries, st.builds(graph_event, wall_time=wall_times)), min_size=1, max_size=8)


def without_repeats(source: list[Event]) -> list[Row]:
    """Rows of the source, but for those that repeat the step and bits of their series' previous one."""
    last: dict[tuple[str, str], tuple[int, bytes]] = {}
    kept = []
    for row in rows(source):
        kind, tag, step, _, fingerprint = row
        if last.get((kind, tag)) != (step, fingerprint):
            kept.append(row)
        last[kind, tag] = (step, fingerprint)
    return kept


@given(events)
def test_every_value_of_a_generated_run_comes_out(source: list[Event]) -> None:
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        write_summary(top / "ms", source)
        run = convert_run(top / "ms", top / "tb")

        expected = without_repeats(source)
        graphs = sum(isinstance(item.content, Opaque) for item in source)
        read_in = Counter(kind for kind, *_ in rows(source))
        assert run.events_read == len(source) + 1
        assert run.repeated == sum(read_in.values()) - len(expected)
        assert Counter(run.values) == Counter(row[0] for row in expected) + Counter(graph=graphs)

        written = rows(read_outputs(top / "tb"))
        archive = top / "tb" / archive_name("mindspore")
        archived = read(archive, "mindspore") if archive.exists() else []
        exact = [row for row in expected if row[0] != "tensor"]
        assert written == exact
        assert [row for row in rows(archived) if row[0] == "tensor"] == [row for row in expected if row[0] == "tensor"]
        lost = sum(loss.count for loss in run.losses if loss.kind in ("tensor", "graph"))
        assert lost == len(expected) - len(exact) + graphs
        assert sum(isinstance(item.content, Opaque) for item in archived) == graphs
        assert verify_logdirs(str(top / "ms"), str(top / "tb")).is_equal


@given(events, st.data())
def test_a_file_that_grows_gives_the_bytes_of_one_conversion(source: list[Event], data: st.DataObject) -> None:
    whole = summary_bytes(source)
    cut = data.draw(st.integers(1, len(whole)))
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        (top / "ms").mkdir()
        path = top / "ms" / summary_name()
        path.write_bytes(whole[:cut])
        with contextlib.suppress(NoEventsError):
            convert(top / "ms", top / "tb")
        path.write_bytes(whole)
        convert(top / "ms", top / "tb")
        convert(top / "ms", top / "once")
        assert contents(top / "tb") == contents(top / "once")


def test_tensorboards_own_protos_agree(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.compat.proto.event_pb2 import Event as TensorBoardEvent
    from tensorboard.util.tensor_util import make_ndarray

    kinds: list[tuple[str, Value]] = [("s", scalar(0.1)), ("h", histogram([1, 0, 7], left=-2.5)), ("i", image())]
    big = [-5, 0, 2**31, 6_002_049_024, 2**63 - 1, -(2**63)]
    times = [START + 0.1 * n + 1e-6 for n in range(len(big))]
    source = [event(step, *kinds, wall_time=time) for step, time in zip(big, times, strict=True)]
    # the same bits at every step are no repeats, as the steps differ
    write_summary(tmp_path / "ms", source)
    convert(tmp_path / "ms", tmp_path / "tb")
    (path,) = outputs(tmp_path / "tb")
    parsed = [TensorBoardEvent.FromString(raw) for raw in RawEventFileLoader(str(path)).Load()]

    assert parsed[0].file_version == "brain.Event:2"
    assert [(item.step, item.wall_time) for item in parsed[1:]] == list(zip(big, times, strict=True))
    for item in parsed[1:]:
        by_tag = {value.tag: value for value in item.summary.value}
        assert struct.pack("<f", by_tag["s"].simple_value) == scalar(0.1).bits
        assert make_ndarray(by_tag["h"].tensor).tolist() == [[-2.5, -2.0, 1.0], [-2.0, -1.5, 0.0], [-1.5, -1.0, 7.0]]
        assert by_tag["i"].image.encoded_image_string == PNG


def test_event_accumulator_reads_what_was_written(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    write_summary(tmp_path / "ms", scalars("loss", range(300), offset=0.25))
    convert(tmp_path / "ms", tmp_path / "tb")
    accumulator = EventAccumulator(str(tmp_path / "tb"), {"scalars": 0, "tensors": 0})
    accumulator.Reload()
    points = accumulator.Scalars("loss")
    assert [(p.step, p.value, p.wall_time) for p in points] == [(s, s + 0.25, START + s) for s in range(300)]


def test_tensorboardx_protos_parse_the_output(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    from tensorboardX.proto.event_pb2 import Event as XEvent

    write_summary(tmp_path / "ms", [event(6_002_049_024, ("loss", scalar(1.5)), ("w", histogram([2, 3])))])
    convert(tmp_path / "ms", tmp_path / "tb")
    (path,) = outputs(tmp_path / "tb")
    data = path.read_bytes()
    payloads = []
    position = 0
    while position < len(data):
        (length,) = struct.unpack_from("<Q", data, position)
        payloads.append(data[position + 12 : position + 12 + length])
        position += length + 16
    last = XEvent.FromString(payloads[-1])
    assert last.step == 6_002_049_024
    assert [value.tag for value in last.summary.value] == ["loss", "w"]


@pytest.mark.parametrize("pattern", ["0100a07f", "0100807f", "ffffffff", "0000c07f"])
def test_nan_payload_survives(tmp_path: Path, pattern: str) -> None:
    bits_of = bytes.fromhex(pattern)
    write_summary(tmp_path / "ms", [event(1, ("loss", Scalar(bits_of)))])
    convert(tmp_path / "ms", tmp_path / "tb")
    assert bits_of in outputs(tmp_path / "tb")[0].read_bytes()
    assert [row[-1] for row in rows(read_outputs(tmp_path / "tb"))] == [bits_of]


# --- repeats, tags, filters


def test_repeats_are_written_once_and_counted(tmp_path: Path) -> None:
    twice = [item for step in range(4) for item in scalars("loss", [step, step])]
    write_summary(tmp_path / "ms", twice)
    run = convert_run(tmp_path / "ms", tmp_path / "tb")
    assert (run.repeated, run.values) == (4, {"scalar": 4})
    assert scalar_rows(tmp_path / "tb") == [(s, float(s)) for s in range(4)]


def test_another_value_at_the_same_step_is_no_repeat(tmp_path: Path) -> None:
    write_summary(tmp_path / "ms", scalars("loss", [5]) + scalars("loss", [5], offset=1) + scalars("loss", [5]))
    run = convert_run(tmp_path / "ms", tmp_path / "tb")
    assert (run.repeated, run.values) == (0, {"scalar": 3})


def test_a_repeat_across_two_conversions_is_found(tmp_path: Path) -> None:
    source = scalars("loss", [1, 2])
    path = write_summary(tmp_path / "ms", source)
    convert(tmp_path / "ms", tmp_path / "tb")
    path.write_bytes(summary_bytes([*source, *scalars("loss", [2, 3])]))
    run = convert_run(tmp_path / "ms", tmp_path / "tb")
    assert (run.repeated, run.values) == (1, {"scalar": 1})


def test_a_series_of_our_own_is_no_renamed_tag() -> None:
    names = TagNames()
    assert names.name("w", "histogram") == "w"
    assert names.name("w", "scalar", "nan_count") == "w/nan_count"
    assert names.name("w/nan_count", "scalar") == "w/nan_count/scalar"
    assert names.renamed == [("w/nan_count", "scalar", "w/nan_count/scalar")]
    assert TagNames(names.given).renamed == names.renamed


def test_colliding_tags_get_stable_names_that_are_reported(tmp_path: Path) -> None:
    kinds: list[tuple[str, Value]] = [
        ("w", scalar(1)),
        ("w/histogram", scalar(2)),
        ("w", histogram([1])),
        ("w", image()),
    ]
    path = write_summary(tmp_path / "ms", [event(1, *kinds)])
    first = convert_run(tmp_path / "ms", tmp_path / "tb")
    path.write_bytes(summary_bytes([event(1, *kinds), event(2, *reversed(kinds))]))
    second = convert_run(tmp_path / "ms", tmp_path / "tb")

    renamed = [("w", "histogram", "w/histogram_2"), ("w", "image", "w/image")]
    assert [(r.tag, r.kind, r.name) for r in first.renamed_tags] == renamed
    assert [(r.tag, r.kind, r.name) for r in second.renamed_tags] == renamed
    assert verify_logdirs(str(tmp_path / "ms"), str(tmp_path / "tb")).is_equal
    assert contents(tmp_path / "tb") == contents_of_one_shot(tmp_path)


def contents_of_one_shot(tmp_path: Path, **options: Any) -> dict[str, bytes]:
    """Converts tmp_path/ms once into a new directory and returns its files."""
    once = Path(tempfile.mkdtemp(dir=tmp_path)) / "once"
    convert(tmp_path / "ms", once, **options)
    return contents(once)


def test_tags_option_filters_and_counts(tmp_path: Path) -> None:
    source = [event(step, ("loss", scalar(step)), ("lr", scalar(0)), ("acc", scalar(1))) for step in range(3)]
    write_summary(tmp_path / "ms", source)
    run = convert_run(tmp_path / "ms", tmp_path / "tb", options=ConvertOptions(tags="^l"))
    assert (run.filtered, run.values, run.repeated) == (3, {"scalar": 6}, 0)
    assert {row[1] for row in rows(read_outputs(tmp_path / "tb"))} == {"loss", "lr"}


def test_tags_that_match_nothing_leave_no_event_file(tmp_path: Path) -> None:
    write_summary(tmp_path / "ms", scalars("loss", range(3)))
    run = convert_run(tmp_path / "ms", tmp_path / "tb", options=ConvertOptions(tags="nothing"))
    assert run.filtered == 3
    assert outputs(tmp_path / "tb") == []


def test_tag_going_back_in_one_file_is_reported_and_left(tmp_path: Path) -> None:
    write_summary(tmp_path / "ms", scalars("loss", [0, 1, 2, 1, 2, 3, 0]))
    run = convert_run(tmp_path / "ms", tmp_path / "tb")
    assert run.went_back == {"loss": 2}
    assert run.restarts == []
    assert [step for step, _ in scalar_rows(tmp_path / "tb")] == [0, 1, 2, 1, 2, 3, 0]
    assert len(outputs(tmp_path / "tb")) == 1


# --- B04: restarts


def starts(directory: Path) -> list[int]:
    return [e.step for e in read_outputs(directory) if isinstance(e.content, SessionLog) and e.content.status == 1]


@pytest.mark.parametrize("second", [5, 9], ids=["below", "at"])
def test_b04_restart_at_or_below_a_step_seen(tmp_path: Path, second: int) -> None:
    write_summary(tmp_path / "ms", scalars("loss", range(10)))
    write_summary(tmp_path / "ms", scalars("loss", range(second, 12), offset=100), seconds=START + 1000)
    run = convert_run(tmp_path / "ms", tmp_path / "tb")
    assert [(mark.file, mark.step) for mark in run.restarts] == [(summary_name(seconds=START + 1000), second)]
    assert run.values == {"scalar": 10 + 12 - second}
    assert starts(tmp_path / "tb") == [second, second]  # the slow loader takes the first of all for no restart
    assert len(outputs(tmp_path / "tb")) == 2


def test_b04_several_restarts_in_the_order_of_their_names(tmp_path: Path) -> None:
    for seconds, first in ((START + 2000, 160), (START, 0), (START + 1000, 100)):  # written in a mixed order
        steps_of = range(first, first + 80 if first else 151, 10)
        write_summary(tmp_path / "ms", scalars("loss", steps_of, offset=seconds - START), seconds=seconds)
    run = convert_run(tmp_path / "ms", tmp_path / "tb")
    assert [mark.step for mark in run.restarts] == [100, 160]
    assert starts(tmp_path / "tb") == [100, 100, 160]
    assert run.values == {"scalar": 16 + 8 + 8}


def test_b04_two_sessions_in_one_second(tmp_path: Path) -> None:
    directory = tmp_path / "ms"
    write_summary(directory, scalars("loss", range(5)))
    second = directory / f"restarted.{summary_name()}"
    start = START + 4.5  # after the first one's last
    second.write_bytes(summary_bytes(scalars("loss", range(3, 6), offset=50, start=start), wall_time=start))
    run = convert_run(directory, tmp_path / "tb")
    assert [mark.step for mark in run.restarts] == [3]
    assert len({path.name for path in outputs(tmp_path / "tb")}) == 2


def test_b04_other_tags_on_another_scale_are_no_restart(tmp_path: Path) -> None:
    write_summary(tmp_path / "ms", scalars("loss", range(100, 200)))
    write_summary(tmp_path / "ms", scalars("accuracy", range(3)), seconds=START + 1000)
    run = convert_run(tmp_path / "ms", tmp_path / "tb")
    assert run.restarts == []
    assert len(outputs(tmp_path / "tb")) == 1


def test_b04_later_file_that_goes_on_is_no_restart(tmp_path: Path) -> None:
    write_summary(tmp_path / "ms", [graph_event(), *scalars("loss", range(5))])
    write_summary(tmp_path / "ms", [graph_event(), *scalars("loss", range(5, 9))], seconds=START + 1000)
    run = convert_run(tmp_path / "ms", tmp_path / "tb")
    assert run.restarts == []
    assert [step for step, _ in scalar_rows(tmp_path / "tb")] == list(range(9))


def test_b04_latest_drops_exactly_the_superseded(tmp_path: Path) -> None:
    ms = tmp_path / "ms"
    write_summary(ms, scalars("loss", range(0, 151, 10), offset=100))
    write_summary(ms, scalars("loss", range(100, 181, 10), offset=200), seconds=START + 1000)
    write_summary(ms, scalars("loss", range(160, 201, 10), offset=300), seconds=START + 2000)
    run = convert_run(ms, tmp_path / "tb", options=LATEST)
    expected = [(s, s + 100.0) for s in range(0, 100, 10)]
    expected += [(s, s + 200.0) for s in range(100, 160, 10)] + [(s, s + 300.0) for s in range(160, 201, 10)]
    assert scalar_rows(tmp_path / "tb") == expected
    assert run.superseded == 6 + 3
    assert run.values["scalar"] + run.superseded == 16 + 9 + 5
    assert [mark.step for mark in run.restarts] == [100, 160]


def test_b04_latest_says_what_it_cannot_take_back(tmp_path: Path) -> None:
    write_summary(tmp_path / "ms", scalars("loss", range(10)))
    convert(tmp_path / "ms", tmp_path / "tb", options=LATEST)
    write_summary(tmp_path / "ms", scalars("loss", range(5, 12), offset=9), seconds=START + 1000)
    run = convert_run(tmp_path / "ms", tmp_path / "tb", options=LATEST)
    assert [mark.step for mark in run.restarts] == [5]
    assert any("superseded" in problem and "--force" in problem for problem in run.problems)
    again = convert_run(tmp_path / "ms", tmp_path / "tb", options=LATEST)
    assert (again.problems, again.restarts) == ([], [])


@pytest.mark.parametrize("seen", ["graph only", "graph and a torn record", "new tags only"])
def test_b04_restart_is_found_though_the_file_was_met_before_its_values(tmp_path: Path, seen: str) -> None:
    write_summary(tmp_path / "ms", scalars("loss", range(10)))
    early = [graph_event()] if seen.startswith("graph") else scalars("fresh", [1, 2])
    later = scalars("loss", range(5, 12), offset=100)
    path = write_summary(tmp_path / "ms", early, seconds=START + 1000)
    if seen.endswith("torn record"):
        path.write_bytes(path.read_bytes() + b"\x20\x00\x00")
    convert(tmp_path / "ms", tmp_path / "tb")
    convert(tmp_path / "ms", tmp_path / "tb")
    write_summary(tmp_path / "ms", [*early, *later], seconds=START + 1000)
    run = convert_run(tmp_path / "ms", tmp_path / "tb")
    assert [mark.step for mark in run.restarts] == [5]
    assert starts(tmp_path / "tb") == [5, 5]


# --- converting again


def test_nothing_new_changes_no_byte(tmp_path: Path) -> None:
    kinds: list[tuple[str, Value]] = [("s", scalar(1)), ("h", histogram([1, 2], nan=1)), ("t", tensor([1, 2]))]
    write_summary(tmp_path / "ms", [graph_event(), event(1, *kinds)])
    write_lineage(tmp_path / "ms")
    convert(tmp_path / "ms", tmp_path / "tb")
    before = contents(tmp_path / "tb", ours=True)
    run = convert_run(tmp_path / "ms", tmp_path / "tb")
    assert (run.events_read, run.values) == (0, {})
    assert contents(tmp_path / "tb", ours=True) == before


def test_lineage_alone_is_one_run_also_the_second_time(tmp_path: Path) -> None:
    write_lineage(tmp_path / "ms")
    first = convert_run(tmp_path / "ms", tmp_path / "tb")
    before = contents(tmp_path / "tb", ours=True)
    second = convert_run(tmp_path / "ms", tmp_path / "tb")
    assert first.run == second.run
    assert second.events_read == 0
    assert contents(tmp_path / "tb", ours=True) == before


def test_lineage_beside_a_later_session_is_no_problem(tmp_path: Path) -> None:
    write_summary(tmp_path / "ms", scalars("loss", range(3)))
    write_lineage(tmp_path / "ms")
    write_summary(tmp_path / "ms", scalars("loss", range(3, 6)), seconds=START + 1000)
    assert convert_run(tmp_path / "ms", tmp_path / "tb").problems == []


def test_source_cut_at_every_byte_of_the_last_record_then_completed(tmp_path: Path) -> None:
    source = [event(step, ("loss", scalar(step)), ("t", tensor([step]))) for step in range(3)]
    whole = summary_bytes(source)
    base = len(summary_bytes(source[:-1]))
    (tmp_path / "ms").mkdir()
    path = tmp_path / "ms" / summary_name()
    path.write_bytes(whole)
    once = contents_of_one_shot(tmp_path)
    for cut in range(base, len(whole)):
        path.write_bytes(whole[:cut])
        first = convert_run(tmp_path / "ms", tmp_path / f"tb{cut}")
        assert [(tail.file, tail.offset) for tail in first.incomplete] == ([(path.name, base)] if cut > base else [])
        path.write_bytes(whole)
        second = convert_run(tmp_path / "ms", tmp_path / f"tb{cut}")
        assert (second.events_read, second.incomplete) == (1, [])
        assert contents(tmp_path / f"tb{cut}") == once


def test_new_file_is_added(tmp_path: Path) -> None:
    write_summary(tmp_path / "ms", scalars("loss", range(5)))
    convert(tmp_path / "ms", tmp_path / "tb")
    write_summary(tmp_path / "ms", scalars("loss", range(5, 9)), seconds=START + 1000)
    write_summary(tmp_path / "ms", scalars("loss", range(2, 9)), seconds=START + 2000)
    run = convert_run(tmp_path / "ms", tmp_path / "tb")
    assert run.files == [summary_name(seconds=START + 1000), summary_name(seconds=START + 2000)]
    assert contents(tmp_path / "tb") == contents_of_one_shot(tmp_path)


def test_file_that_was_overlooked_is_named(tmp_path: Path) -> None:
    write_summary(tmp_path / "ms", scalars("loss", range(5, 9)), seconds=START + 1000)
    convert(tmp_path / "ms", tmp_path / "tb")
    write_summary(tmp_path / "ms", scalars("loss", range(5)))
    run = convert_run(tmp_path / "ms", tmp_path / "tb")
    assert len(run.problems) == 1
    assert summary_name() in run.problems[0]
    assert "--force" in run.problems[0]


def test_second_rank_keeps_the_first_runs_name(tmp_path: Path) -> None:
    write_summary(tmp_path / "ms" / "job", scalars("loss", range(3)))
    assert convert_run(tmp_path / "ms", tmp_path / "tb").run == "job"
    write_summary(tmp_path / "ms" / "job", scalars("loss", range(5)))
    write_summary(tmp_path / "ms" / "job", scalars("loss", range(3), offset=7), rank=1)
    report = convert(tmp_path / "ms", tmp_path / "tb")
    assert [(run.run, sum(run.values.values())) for run in report.runs] == [("job", 2), ("job/rank_1", 3)]
    assert verify_logdirs(str(tmp_path / "ms"), str(tmp_path / "tb")).is_equal


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_that_splits_later_stays_one_output(tmp_path: Path, workers: int) -> None:
    write_summary(tmp_path / "ms", scalars("loss", range(3)), host="alpha")
    write_summary(tmp_path / "ms", scalars("loss", range(3, 6), start=START + 1000), host="beta", seconds=START + 1000)
    assert len(convert(tmp_path / "ms", tmp_path / "tb").runs) == 1
    # alpha goes on after beta began: now they are two nodes that ran at the same time
    write_summary(tmp_path / "ms", scalars("loss", [*range(3), 5000]), host="alpha")
    report = convert(tmp_path / "ms", tmp_path / "tb", workers=workers)
    assert [run.run for run in report.runs] == ["."]
    assert sorted(s for s, _ in scalar_rows(tmp_path / "tb")) == [*range(6), 5000]


@pytest.mark.parametrize("changed", [0, 4095, -1, -2, -64])
def test_a_file_is_known_again_by_its_first_4096_bytes_and_its_last_64(tmp_path: Path, changed: int) -> None:
    path = put(tmp_path / "file", bytes(10_000))
    known = identify(str(path), 10_000, 0)
    assert is_same_file(str(path), 10_000, known)
    content = bytearray(10_000 + 500)  # it may have grown meanwhile
    assert is_same_file(str(put(path, content)), 10_500, known)
    content[changed if changed >= 0 else 10_000 + changed] ^= 1
    assert is_same_file(str(put(path, content)), 10_500, known) is False


@pytest.mark.parametrize(
    "replacement",
    [scalars("loss", range(100, 120)), scalars("loss", [7]), scalars("loss", range(5), offset=0.5)],
    ids=["longer", "shorter", "same size"],
)
def test_replaced_source_starts_a_new_output(tmp_path: Path, replacement: list[Event]) -> None:
    path = write_summary(tmp_path / "ms", scalars("loss", range(5)))
    convert(tmp_path / "ms", tmp_path / "tb")
    (first,) = outputs(tmp_path / "tb")
    before = first.read_bytes()
    path.write_bytes(summary_bytes(replacement))
    run = convert_run(tmp_path / "ms", tmp_path / "tb")
    assert any("replaced or cut" in problem for problem in run.problems)
    assert first.read_bytes() == before
    (_, second) = outputs(tmp_path / "tb")
    assert rows(read(second)) == rows(replacement)


@pytest.mark.parametrize("events", [None, []], ids=["no byte left", "no event left"])
def test_a_file_cut_until_it_has_no_event_leaves_its_run_the_name(tmp_path: Path, events: list[Event] | None) -> None:
    path = write_summary(tmp_path / "ms" / "one", scalars("loss", range(5)))
    write_summary(tmp_path / "ms" / "two", scalars("loss", range(5)))
    convert(tmp_path / "ms", tmp_path / "tb")
    path.write_bytes(b"" if events is None else summary_bytes(events))
    write_summary(tmp_path / "ms" / "one", scalars("loss", range(5, 8)), seconds=START + 5)
    assert {run.run for run in convert(tmp_path / "ms", tmp_path / "tb").runs} == {"one", "two"}
    path.write_bytes(summary_bytes(scalars("loss", range(5))))  # a copy of it that had not come to its end
    report = convert(tmp_path / "ms", tmp_path / "tb")
    assert {run.run for run in report.runs} == {"one", "two"}
    assert sorted(name.name for name in (tmp_path / "tb").iterdir() if name.is_dir()) == ["one", "two"]
    steps = {row[2] for file in outputs(tmp_path / "tb" / "one") for row in rows(read(file))}
    assert steps == {*range(8)}


# --- crashes


def crash_cases() -> list[tuple[str, Callable[[Path, Path, random.Random], None]]]:
    def lose_state(tb: Path, old: Path, generator: random.Random) -> None:
        (tb / STATE_NAME).unlink()

    def old_state(tb: Path, old: Path, generator: random.Random) -> None:
        shutil.copy(old / STATE_NAME, tb / STATE_NAME)

    def old_state_and_torn_outputs(tb: Path, old: Path, generator: random.Random) -> None:
        old_state(tb, old, generator)
        for path in tb.rglob("*"):
            if path.is_file() and not path.name.startswith("."):
                kept = old / path.relative_to(tb)
                least = kept.stat().st_size if kept.exists() else 0
                os.truncate(path, generator.randint(least, path.stat().st_size))

    def torn_outputs_without_state(tb: Path, old: Path, generator: random.Random) -> None:
        lose_state(tb, old, generator)
        for path in tb.rglob("*"):
            if path.is_file() and not path.name.startswith("."):
                os.truncate(path, generator.randint(0, path.stat().st_size))

    cases = [lose_state, old_state, old_state_and_torn_outputs, torn_outputs_without_state]
    return [(case.__name__, case) for case in cases]


@pytest.mark.parametrize("crash", [case for _, case in crash_cases()], ids=[name for name, _ in crash_cases()])
def test_after_a_crash_the_bytes_are_those_of_an_uninterrupted_conversion(
    tmp_path: Path, crash: Callable[[Path, Path, random.Random], None]
) -> None:
    kinds = [
        [graph_event()],
        [event(s, ("loss", scalar(s)), ("w", histogram([s, 1], nan=1)), ("t", tensor([s]))) for s in range(6)],
    ]
    path = write_summary(tmp_path / "ms", kinds[0] + kinds[1][:3])
    write_lineage(tmp_path / "ms")
    convert(tmp_path / "ms", tmp_path / "old")
    path.write_bytes(summary_bytes(kinds[0] + kinds[1]))
    write_summary(tmp_path / "ms", kinds[1][2:], seconds=START + 1000)
    shutil.copytree(tmp_path / "old", tmp_path / "all")
    convert(tmp_path / "ms", tmp_path / "all")
    expected = contents(tmp_path / "all")
    for seed in range(8):
        tb = tmp_path / f"tb{seed}"
        shutil.copytree(tmp_path / "all", tb)
        crash(tb, tmp_path / "old", random.Random(seed))
        convert_run(tmp_path / "ms", tb)
        assert contents(tb) == expected, seed


def test_interrupt_right_after_a_write_doubles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_summary(tmp_path / "ms", scalars("loss", range(40_000)))
    write = os.write

    def write_and_interrupt(fd: int, data: bytes) -> int:
        write(fd, data)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("ms_summary_bridge.files.record_writer.os.write", write_and_interrupt)
        with pytest.raises(KeyboardInterrupt):
            convert(tmp_path / "ms", tmp_path / "tb")
    convert_run(tmp_path / "ms", tmp_path / "tb")
    assert contents(tmp_path / "tb") == contents_of_one_shot(tmp_path)


# --- what does not fit together


def test_other_options_are_refused(tmp_path: Path) -> None:
    write_summary(tmp_path / "ms", scalars("loss", range(3)))
    convert(tmp_path / "ms", tmp_path / "tb")
    before = contents(tmp_path / "tb", ours=True)
    for options in (ConvertOptions(tags="x"), LATEST, ConvertOptions(keep_archive=False)):
        with pytest.raises(UsageError, match="other options"):
            convert(tmp_path / "ms", tmp_path / "tb", options=options)
    assert contents(tmp_path / "tb", ours=True) == before


def test_another_source_is_refused(tmp_path: Path) -> None:
    write_summary(tmp_path / "ms", scalars("loss", range(3)))
    write_summary(tmp_path / "other", scalars("acc", range(3)))
    convert(tmp_path / "ms", tmp_path / "tb")
    with pytest.raises(UsageError, match="another destination"):
        convert(tmp_path / "other", tmp_path / "tb")


def test_moved_source_and_destination_go_on(tmp_path: Path) -> None:
    path = write_summary(tmp_path / "ms" / "run", scalars("loss", range(3)))
    convert(tmp_path / "ms", tmp_path / "tb")
    (tmp_path / "ms").rename(tmp_path / "moved")
    (tmp_path / "tb").rename(tmp_path / "elsewhere")
    path = tmp_path / "moved" / "run" / path.name
    path.write_bytes(summary_bytes(scalars("loss", range(5))))
    assert convert_run(tmp_path / "moved", tmp_path / "elsewhere").values == {"scalar": 2}
    (tmp_path / "moved").rename(tmp_path / "ms")
    assert contents(tmp_path / "elsewhere") == contents_of_one_shot(tmp_path)


def test_force_removes_our_files_and_no_other(tmp_path: Path) -> None:
    write_summary(tmp_path / "ms" / "run", [graph_event(), *scalars("loss", range(3))])
    convert(tmp_path / "ms", tmp_path / "tb")
    foreign = [
        tmp_path / "tb" / "notes.txt",
        tmp_path / "tb" / "run" / "events.out.tfevents.1700000009.host.1.0",
        tmp_path / "tb" / "run" / "ms_summary_bridge.tensorboard.archive",
    ]
    for path in foreign:
        path.write_bytes(b"mine")
    convert(tmp_path / "ms", tmp_path / "tb", options=ConvertOptions(tags="loss"), force=True)
    assert [path.read_bytes() for path in foreign] == [b"mine"] * 3
    for path in foreign:
        path.unlink()
    assert contents(tmp_path / "tb") == contents_of_one_shot(tmp_path, options=ConvertOptions(tags="loss"))


@pytest.mark.parametrize("state", [None, b"", b"{", b"[]", b'{"version": 99}', b"\xff\xfe"])
def test_force_starts_over_whatever_became_of_the_state(tmp_path: Path, state: bytes | None) -> None:
    write_summary(tmp_path / "ms" / "run", [graph_event(), *scalars("loss", range(3))])
    convert(tmp_path / "ms", tmp_path / "tb")
    (tmp_path / "tb" / STATE_NAME).unlink()
    if state is not None:
        (tmp_path / "tb" / STATE_NAME).write_bytes(state)
        with pytest.raises((LogdirError, UsageError), match="--force"):
            convert(tmp_path / "ms", tmp_path / "tb")
    run = convert_run(tmp_path / "ms", tmp_path / "tb", options=ConvertOptions(tags="none"), force=True)
    assert run.filtered == 3
    assert outputs(tmp_path / "tb") == []


def test_force_follows_no_name_out_of_the_destination(tmp_path: Path) -> None:
    write_summary(tmp_path / "ms", scalars("loss", range(3)))
    convert(tmp_path / "ms", tmp_path / "tb")
    precious = tmp_path / "precious"
    precious.write_bytes(b"mine")
    state = tmp_path / "tb" / STATE_NAME
    (name,) = [path.name for path in outputs(tmp_path / "tb")]
    state.write_text(state.read_text().replace(name, "../precious"))
    with pytest.raises(LogdirError):
        convert(tmp_path / "ms", tmp_path / "tb")
    convert(tmp_path / "ms", tmp_path / "tb", force=True)
    assert precious.read_bytes() == b"mine"


@pytest.mark.parametrize("name", ["half a pair \\ud800", "zero \\u0000"])
def test_a_state_with_a_name_that_no_file_can_have_is_refused(tmp_path: Path, name: str) -> None:
    write_summary(tmp_path / "ms", scalars("loss", range(3)))
    convert(tmp_path / "ms", tmp_path / "tb")
    state = tmp_path / "tb" / STATE_NAME
    (output,) = [path.name for path in outputs(tmp_path / "tb")]
    whole = state.read_text()
    (run,) = json.loads(whole)["runs"].values()
    for found in (output, *run["files"]):
        state.write_text(whole.replace(found, name))
        with pytest.raises(LogdirError, match="a name that no file can have"):
            convert(tmp_path / "ms", tmp_path / "tb")
        assert verify_logdirs(tmp_path / "ms", tmp_path / "tb").is_equal, "what is there is compared without the state"


@pytest.mark.parametrize("field", ["offset", "head_bytes"])
@pytest.mark.parametrize("number", [-1, (1 << 63) - 1, 1 << 63, 1 << 40])
def test_a_state_with_a_number_that_no_file_has_is_refused_or_the_file_is_another(
    tmp_path: Path, field: str, number: int
) -> None:
    write_summary(tmp_path / "ms", scalars("loss", range(3)))
    convert(tmp_path / "ms", tmp_path / "tb")
    path = tmp_path / "tb" / STATE_NAME
    state = json.loads(path.read_text())
    (run,) = state["runs"].values()
    (file,) = run["files"].values()
    file[field] = number
    path.write_text(json.dumps(state))
    if field == "offset" and 0 <= number < 1 << 63:
        (report,) = convert(tmp_path / "ms", tmp_path / "tb").runs
        assert any("read from its start" in text for text in report.problems)
    else:
        with pytest.raises(LogdirError, match="damaged"):
            convert(tmp_path / "ms", tmp_path / "tb")


@pytest.mark.parametrize("field", ["outputs", "archives", "lineage"])
def test_a_state_whose_name_leads_out_of_the_destination_is_refused(tmp_path: Path, field: str) -> None:
    write_summary(tmp_path / "ms", scalars("loss", range(3)))
    write_lineage(tmp_path / "ms", [b"\x0a\x03one"])
    convert(tmp_path / "ms", tmp_path / "tb")
    precious = tmp_path / "precious"
    precious.write_bytes(b"mine")
    state = tmp_path / "tb" / STATE_NAME
    damaged = json.loads(state.read_text())
    (run,) = damaged["runs"].values()
    changes = {"outputs": [{"name": "../precious", "offset": 0}], "archives": {"../precious": 0}}
    run[field] = changes.get(field, "../precious")
    state.write_text(json.dumps(damaged))
    write_lineage(tmp_path / "ms", [b"\x0a\x03two"], seconds=START + 9)  # so that the lineage file is written anew
    with pytest.raises(LogdirError, match="a name leads out of it"):
        convert(tmp_path / "ms", tmp_path / "tb")
    assert precious.read_bytes() == b"mine"


def test_foreign_file_with_the_name_of_our_output_is_not_touched(tmp_path: Path) -> None:
    write_summary(tmp_path / "ms", scalars("loss", range(3)))
    name = convert_run(tmp_path / "ms", tmp_path / "first").outputs[0]
    (tmp_path / "tb").mkdir()
    (tmp_path / "tb" / name).write_bytes(b"something else entirely")
    for force in (False, True):
        (run,) = convert(tmp_path / "ms", tmp_path / "tb", force=force).runs
        assert name in run.failed
        assert (tmp_path / "tb" / name).read_bytes() == b"something else entirely"


def test_two_conversions_at_once_give_one_clear_error(tmp_path: Path) -> None:
    write_summary(tmp_path / "ms", scalars("loss", range(3)))
    with locked(str(tmp_path / "tb")), pytest.raises(LogdirError, match="another conversion is writing there"):
        convert(tmp_path / "ms", tmp_path / "tb")
    assert convert_run(tmp_path / "ms", tmp_path / "tb").values == {"scalar": 3}


def test_no_event_file_is_an_error_that_a_follower_waits_for(tmp_path: Path) -> None:
    (tmp_path / "ms").mkdir()
    with pytest.raises(NoEventsError):
        convert(tmp_path / "ms", tmp_path / "tb")
    with pytest.raises(NoEventsError):
        convert(tmp_path / "missing", tmp_path / "tb")
    assert not (tmp_path / "tb").exists()


# --- dry run, archives


def test_dry_run_writes_nothing_and_reports_the_same(tmp_path: Path) -> None:
    write_summary(tmp_path / "ms", [graph_event(), *scalars("loss", [0, 1, 1, 2]), event(3, ("loss", histogram([1])))])
    write_summary(tmp_path / "ms", [*scalars("loss", [1, 2])], seconds=START + 1000)
    write_lineage(tmp_path / "ms")
    dry = convert(tmp_path / "ms", tmp_path / "tb", options=ConvertOptions(dry_run=True))
    assert not (tmp_path / "tb").exists()
    wet = convert(tmp_path / "ms", tmp_path / "tb")
    assert dry == wet
    before = contents(tmp_path / "tb", ours=True)
    write_summary(tmp_path / "ms", scalars("loss", range(1, 9)), seconds=START + 1000)
    dry = convert(tmp_path / "ms", tmp_path / "tb", options=ConvertOptions(dry_run=True))
    assert contents(tmp_path / "tb", ours=True) == before
    convert(tmp_path / "ms", tmp_path / "tb", options=ConvertOptions(dry_run=True), force=True)
    assert contents(tmp_path / "tb", ours=True) == before
    assert convert(tmp_path / "ms", tmp_path / "tb") == dry


def originals(path: Path, source: str) -> list[Event]:
    """Returns the events an archive holds, without what says where they belong."""
    return [item[1] for item in read_archive(str(path), source) if isinstance(item, tuple)]


def test_archive_holds_every_record_that_is_not_exact(tmp_path: Path) -> None:
    kinds = [graph_event(b"\x0a\x01a"), event(1, ("t", tensor([1, 2])), ("s", scalar(1))), graph_event(b"\x0a\x01b")]
    write_summary(tmp_path / "ms", kinds)
    lineage = write_lineage(tmp_path / "ms", [b"\x0a\x03one", b"\x0a\x03two"])
    run = convert_run(tmp_path / "ms", tmp_path / "tb")
    kept = originals(tmp_path / "tb" / archive_name("mindspore"), "mindspore")
    assert isinstance(kept[0].content, FileVersion)
    assert kept[1:] == kinds
    kept_lineage = originals(tmp_path / "tb" / archive_name(LINEAGE), LINEAGE)
    assert kept_lineage == read(lineage, LINEAGE)
    assert run.archived == 3 + 2
    assert run.values == {"graph": 2, "tensor": 1, "scalar": 1, "train_lineage": 2}


def test_no_archive_keeps_none_and_still_counts(tmp_path: Path) -> None:
    write_summary(tmp_path / "ms", [graph_event(), event(1, ("t", tensor([1, 2])))])
    run = convert_run(tmp_path / "ms", tmp_path / "tb", options=ConvertOptions(keep_archive=False))
    assert {loss.kind: loss.count for loss in run.losses} == {"graph": 1, "tensor": 1}
    assert run.archived == 0
    assert [path for path in contents(tmp_path / "tb") if "archive" in path] == []
    report = verify_logdirs(str(tmp_path / "ms"), str(tmp_path / "tb"))
    assert (report.is_equal, report.options, report.runs[0].points) == (True, "--no-archive", 0)


# --- where sources and destinations lie


def test_b19_sixteen_ranks_are_sixteen_runs(tmp_path: Path) -> None:
    for node in range(2):
        for device in range(8):
            offset = 100.0 * (8 * node + device)
            source = scalars("loss/auto", range(1, 4), offset=offset)
            write_summary(tmp_path / "ms", source, rank=device, host=f"node-{node}.cluster")
    report = convert(tmp_path / "ms", tmp_path / "tb", workers=1)
    assert len(report.runs) == len({run.run for run in report.runs}) == 16
    assert [run.restarts for run in report.runs] == [[]] * 16
    firsts = {scalar_rows(Path(run.destination), "loss/auto")[0] for run in report.runs}
    assert firsts == {(1, 1 + 100.0 * n) for n in range(16)}
    assert verify_logdirs(str(tmp_path / "ms"), str(tmp_path / "tb")).is_equal


def test_destination_inside_the_source(tmp_path: Path) -> None:
    path = write_summary(tmp_path / "ms" / "run", scalars("loss", range(3)))
    tb = tmp_path / "ms" / "tb"
    convert(tmp_path / "ms", tb)
    path.write_bytes(summary_bytes(scalars("loss", range(5))))
    assert convert_run(tmp_path / "ms", tb).values == {"scalar": 2}
    assert [str(path.relative_to(tb)) for path in outputs(tb)] == [f"run/{outputs(tb)[0].name}"]


def test_in_place_is_one_run(tmp_path: Path) -> None:
    directory = tmp_path / "ms"
    path = write_summary(directory, [graph_event(), *scalars("loss", range(3))])
    convert(directory, directory)
    path.write_bytes(summary_bytes([graph_event(), *scalars("loss", range(5))]))
    assert convert_run(directory, directory).values == {"scalar": 2}
    (run,) = inspect_logdir(str(directory)).runs
    assert (run.format, run.twins) == ("mindspore", ["convert: 1 file"])
    assert verify_logdirs(str(directory), str(directory)).is_equal


def test_source_from_an_fsspec_url(tmp_path: Path) -> None:
    memory = fsspec.filesystem("memory")
    url = f"memory://{tmp_path.name}"
    memory.pipe(f"/{tmp_path.name}/run/{summary_name()}", summary_bytes([graph_event(), *scalars("loss", range(3))]))
    try:
        assert convert_run(url, tmp_path / "tb").values == {"graph": 1, "scalar": 3}
        memory.pipe(
            f"/{tmp_path.name}/run/{summary_name()}", summary_bytes([graph_event(), *scalars("loss", range(5))])
        )
        assert convert_run(url, tmp_path / "tb").values == {"scalar": 2}
        assert verify_logdirs(url, str(tmp_path / "tb")).is_equal
        memory.put(str(tmp_path / "tb" / "run"), f"/{tmp_path.name}-tb/run", recursive=True)
        assert verify_logdirs(url, f"{url}-tb").is_equal
    finally:
        memory.rm(f"/{tmp_path.name}", recursive=True)


def test_one_file_as_source(tmp_path: Path) -> None:
    path = write_summary(tmp_path / "ms", scalars("loss", range(3)))
    assert convert_run(path, tmp_path / "tb").values == {"scalar": 3}
    path.write_bytes(summary_bytes(scalars("loss", range(4))))
    assert convert_run(path, tmp_path / "tb").values == {"scalar": 1}


# --- workers


def make_tree(top: Path) -> None:
    for name in ("a", "b/c", "b/d"):
        values_of = [event(s, ("loss", scalar(s)), ("w", histogram([s, 1])), ("t", tensor([s]))) for s in range(20)]
        write_summary(top / name, [graph_event(), *values_of])
    write_lineage(top / "a")


@pytest.mark.parametrize("implementation", ["", "python"])  # the second as `import mindspore` leaves it
@pytest.mark.parametrize("workers", [2, 5, None])
def test_workers_give_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int | None, implementation: str
) -> None:
    monkeypatch.delenv("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", raising=False)
    if implementation:
        monkeypatch.setenv("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", implementation)
    pools: list[int] = []

    class Pool(ProcessPoolExecutor):
        def __init__(self, processes: int, *options: Any) -> None:
            pools.append(processes)
            super().__init__(processes, *options)

    monkeypatch.setattr("ms_summary_bridge.convert.processes.ProcessPoolExecutor", Pool)
    monkeypatch.setattr("ms_summary_bridge.convert.workers._WORTH_PROCESSES", 0)
    monkeypatch.setattr("ms_summary_bridge.convert.workers.count_cores", lambda: 2)
    make_tree(tmp_path / "ms")
    one = convert(tmp_path / "ms", tmp_path / "one")
    assert pools == []
    two = convert(tmp_path / "ms", tmp_path / "two", workers=workers)
    assert pools == [min(workers or 2, 3)]
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    two.destination = one.destination
    for run, other in zip(two.runs, one.runs, strict=True):
        run.destination = other.destination
    assert encode_json(one) == encode_json(two)
    again = convert(tmp_path / "ms", tmp_path / "two", workers=workers)
    assert [run.events_read for run in again.runs] == [0, 0, 0]


@pytest.mark.parametrize("names", [("a",), ("a", "b")], ids=["one run", "little to read"])
def test_one_process_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]) -> None:
    if len(names) == 1:
        monkeypatch.setattr("ms_summary_bridge.convert.workers._WORTH_PROCESSES", 0)
    monkeypatch.setattr("ms_summary_bridge.convert.processes.ProcessPoolExecutor", None)  # to start one would fail
    for name in names:
        write_summary(tmp_path / "ms" / name, scalars("loss", range(3)))
    assert main(["convert", str(tmp_path / "ms"), str(tmp_path / "tb"), "--quiet"]) == 0
    assert len([*(tmp_path / "tb").rglob("*tfevents*")]) == len(names)


@pytest.mark.parametrize(
    ("text", "cores"),
    [("max 100000", 3), ("200000 100000", 2), ("150000 100000", 2), ("1000 100000", 1), ("900000 100000", 3), ("", 3)],
)
def test_cores_are_those_the_process_may_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, cores: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 2, 5}, raising=False)
    monkeypatch.setattr("ms_summary_bridge.convert.workers._CPU_MAX", str(tmp_path / "cpu.max"))
    if text:
        (tmp_path / "cpu.max").write_text(text + "\n")
    assert count_cores() == cores


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("distributed") is None, reason="distributed is not installed")
@pytest.mark.filterwarnings("ignore")  # the cluster's, not ours
def test_dask_gives_the_same_bytes(tmp_path: Path) -> None:
    from distributed import LocalCluster

    make_tree(tmp_path / "ms")
    convert(tmp_path / "ms", tmp_path / "one")
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None, processes=False) as cluster:
        convert(tmp_path / "ms", tmp_path / "dask", dask=cluster.scheduler_address)
    assert contents(tmp_path / "one") == contents(tmp_path / "dask")


def test_two_destinations_get_the_same_bytes(tmp_path: Path) -> None:
    make_tree(tmp_path / "ms")
    convert(tmp_path / "ms", tmp_path / "one")
    assert contents(tmp_path / "one") == contents_of_one_shot(tmp_path)


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="asks Linux for the peak")
def test_memory_stays_bounded(tmp_path: Path) -> None:
    code = """if True:
        import sys
        from ms_summary_bridge.convert.logdir import convert_logdir
        convert_logdir(*sys.argv[1:])
        with open("/proc/self/status") as status:
            print(next(line.split()[1] for line in status if line.startswith("VmHWM:")))
    """

    def peak(count: int) -> int:
        top = tmp_path / str(count)
        write_summary(top / "ms", scalars("loss", range(count)))
        command = [sys.executable, "-c", code, str(top / "ms"), str(top / "tb")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        return int(done.stdout) << 10

    # The file has more than 2 MiB; one chunk of it is in memory at a time.
    assert peak(60_000) - peak(100) < 24 << 20


# --- what cannot be read


def test_what_is_no_regular_file_is_named_and_the_rest_converted(tmp_path: Path) -> None:
    write_summary(tmp_path / "ms" / "good", scalars("loss", range(3)))
    (tmp_path / "ms" / "pipe").mkdir()
    os.mkfifo(tmp_path / "ms" / "pipe" / summary_name())
    report = convert(tmp_path / "ms", tmp_path / "tb")
    assert report.is_partial
    assert any(summary_name() in line for line in report.unreadable)
    assert [run.values for run in report.runs] == [{"scalar": 3}]


@pytest.mark.skipif(os.geteuid() != 0, reason="changes the user of a child process")
def test_unreadable_file_and_directory_are_named_and_the_rest_converted() -> None:
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        write_summary(top / "ms" / "good", scalars("loss", range(3)))
        write_summary(top / "ms" / "file", scalars("loss", range(3))).chmod(0)
        write_summary(top / "ms" / "directory", scalars("loss", range(3)))
        (top / "ms" / "directory").chmod(0)
        top.chmod(0o777)
        result = subprocess.run(
            [sys.executable, "-c", _AS_NOBODY, str(top)], capture_output=True, text=True, timeout=60, check=False
        )
        (top / "ms" / "directory").chmod(0o700)
    assert (result.returncode, result.stderr) == (3, "")
    assert "ms/file/" in result.stdout
    assert "ms/directory: cannot be listed: Permission denied" in result.stdout
    assert "1 run, 3 values converted" in result.stdout


# The user is changed after the imports: the interpreter may lie where nobody else may look.
_AS_NOBODY = """
import os, sys
from ms_summary_bridge.cli.app import main
import rich.table, rich.markup, rich.text
main(["inspect", sys.argv[1] + "/ms/good", "--json"])
main(["convert", sys.argv[1] + "/ms/good", sys.argv[1] + "/before"])
os.setgid(65534); os.setuid(65534)
sys.exit(main(["convert", sys.argv[1] + "/ms", sys.argv[1] + "/tb"]))
"""


def test_broken_run_does_not_end_the_others(tmp_path: Path) -> None:
    write_summary(tmp_path / "ms" / "a", scalars("loss", range(3)))
    write_summary(tmp_path / "ms" / "b", scalars("loss", range(3)))
    (tmp_path / "tb").mkdir()
    (tmp_path / "tb" / "a").write_bytes(b"a file where a directory is needed")
    report = convert(tmp_path / "ms", tmp_path / "tb")
    assert [bool(run.failed) for run in report.runs] == [True, False]
    assert load_state(str(tmp_path / "tb")).runs["b"].files


def test_tags_that_are_not_utf8_are_archived_counted_and_remembered(tmp_path: Path) -> None:
    odd = b"lo\xffss".decode("utf-8", "surrogateescape")
    source = [event(step, (odd, scalar(step)), ("ok", scalar(step))) for step in range(3)]
    path = write_summary(tmp_path / "ms", source[:2])
    run = convert_run(tmp_path / "ms", tmp_path / "tb")
    assert [(loss.tag, loss.count) for loss in run.losses] == [(odd, 2)]
    path.write_bytes(summary_bytes(source))
    assert convert_run(tmp_path / "ms", tmp_path / "tb").values == {"scalar": 2}
    assert contents(tmp_path / "tb") == contents_of_one_shot(tmp_path)
    assert verify_logdirs(str(tmp_path / "ms"), str(tmp_path / "tb")).is_equal


def test_file_names_that_are_not_utf8(tmp_path: Path) -> None:
    directory = tmp_path / os.fsdecode(b"ms\xfe") / os.fsdecode(b"run \xff")
    write_summary(directory, scalars("loss", range(3)), host=os.fsdecode(b"h\xfd"))
    assert convert_run(directory.parent, tmp_path / "tb").values == {"scalar": 3}
    assert convert_run(directory.parent, tmp_path / "tb").values == {}


# --- follow


class Script:
    """Plays the part of the clock: each wait runs the next action, after the last one following ends."""

    def __init__(self, *actions: Callable[[], object]) -> None:
        import threading

        self.stop = threading.Event()
        self.actions = list(actions)
        self.pauses: list[float] = []
        self.reports: list[Report] = []

    def wait(self, seconds: float) -> None:
        self.pauses.append(seconds)
        if self.actions:
            self.actions.pop(0)()
        else:
            self.stop.set()

    def follow(self, source: Path, destination: Path) -> None:
        follow_logdir(str(source), str(destination), stop=self.stop, on_round=self.reports.append, wait=self.wait)


def test_follow_waits_for_the_source_and_converts_what_is_added(tmp_path: Path) -> None:
    ms = tmp_path / "ms"
    script = Script(
        ms.mkdir,
        lambda: write_summary(ms, scalars("loss", range(3))),
        lambda: None,
        lambda: write_summary(ms, scalars("loss", range(6))),
        lambda: write_summary(ms, scalars("loss", range(4, 9)), seconds=START + 1000),
    )
    script.follow(ms, tmp_path / "tb")
    assert [sum(run.values.values()) for report in script.reports for run in report.runs] == [3, 3, 5]
    assert contents(tmp_path / "tb") == contents_of_one_shot(tmp_path)
    assert script.pauses[:3] == [0.5, 1.0, 0.5]


def test_follow_tells_of_damage_once(tmp_path: Path) -> None:
    path = write_summary(tmp_path / "ms", scalars("loss", range(3)))
    script = Script(lambda: path.write_bytes(path.read_bytes() + b"\xab" * 40), *[lambda: None] * 5)
    script.follow(tmp_path / "ms", tmp_path / "tb")
    assert [bool(report.runs[0].damaged) for report in script.reports] == [False, True]


def test_follow_goes_on_when_the_source_vanishes(tmp_path: Path) -> None:
    path = write_summary(tmp_path / "ms", scalars("loss", range(3)))
    script = Script(
        lambda: shutil.rmtree(tmp_path / "ms"),
        lambda: write_summary(tmp_path / "ms", scalars("loss", range(5))),
    )
    script.follow(tmp_path / "ms", tmp_path / "tb")
    assert scalar_rows(tmp_path / "tb") == [(s, float(s)) for s in range(5)]
    assert path.exists()
    assert isinstance(read_outputs(tmp_path / "tb")[0].content, FileVersion)


def test_discovery_of_the_output_says_who_wrote_it(tmp_path: Path) -> None:
    write_summary(tmp_path / "ms", [event(1, ("h", histogram([0])), ("s", scalar(1)))])
    convert(tmp_path / "ms", tmp_path / "tb")
    (run,) = discover(tmp_path / "tb").runs
    assert run.role == "convert"


def test_unknown_fields_of_an_event_that_tags_takes_apart_are_a_loss(tmp_path: Path) -> None:
    payload = MindSporeEncoder().encode(event(1, ("loss", scalar(1)), ("lr", scalar(2)))).payload
    assert payload is not None
    unknown = b"\xf8\x07\x01"  # field 127
    path = write_summary(tmp_path / "ms", [])
    path.write_bytes(path.read_bytes() + encode_record(payload + unknown))
    run = convert_run(tmp_path / "ms", tmp_path / "tb", options=ConvertOptions(tags="loss"))
    assert (run.filtered, run.values) == (1, {"scalar": 1})
    assert [(loss.kind, loss.count) for loss in run.losses] == [("event", 1)]
