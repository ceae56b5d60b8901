"""inspect: counts, steps and times of what is there, of either format."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest

from ms_summary_bridge.batches.limits import LIMITS
from ms_summary_bridge.batches.reader import Batch
from ms_summary_bridge.columns import inspect
from ms_summary_bridge.columns.inspect import TagInspection, inspect_logdir
from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.convert.task import ConvertOptions
from ms_summary_bridge.errors import LogdirError, NoEventsError, UsageError
from ms_summary_bridge.runs.report import encode_json
from tests.batches.test_batch_lane import LogFormat, write_odd_run
from tests.mindspore_run import START, event, histogram, scalar, scalars, summary_name, tensor, write_summary
from tests.scripted import build_file, put, tensorboard_name


def test_counts_steps_and_times(tmp_path: Path) -> None:
    source = [*scalars("loss", [-5, 3, 6_002_049_024]), event(7, ("w", histogram([1])), ("loss", scalar(1)))]
    path = write_summary(tmp_path / "run", source, rank=3, host="node-1")
    (run,) = inspect_logdir(str(tmp_path)).runs
    assert (run.run, run.format, run.role, run.host, run.rank) == ("run", "mindspore", "source", "node-1", 3)
    assert (run.files, run.bytes, run.records) == ([str(path)], path.stat().st_size, 5)
    assert run.versions == ["MindSpore.Event:1"]
    assert [(t.kind, t.tag, t.points, t.first_step, t.last_step) for t in run.tags] == [
        ("histogram", "w", 1, 7, 7),
        ("scalar", "loss", 4, -5, 7),
    ]
    assert (run.tags[1].first_wall_time, run.tags[1].last_wall_time) == (START - 5, START + 7)


def test_a_conversion_shows_the_same_tags_as_its_source(tmp_path: Path) -> None:
    kinds = [("w", scalar(1)), ("w", histogram([1], nan=2)), ("w", tensor([1, 2]))]
    write_summary(tmp_path / "ms", [event(step, *kinds) for step in range(4)])
    convert_logdir(str(tmp_path / "ms"), str(tmp_path / "tb"))
    (source,) = inspect_logdir(str(tmp_path / "ms")).runs
    (converted,) = inspect_logdir(str(tmp_path / "tb")).runs
    assert converted.tags == source.tags
    assert (converted.role, converted.versions) == ("convert", ["brain.Event:2"])
    assert converted.derived == 4 * 3  # a count of NaN, a table and a histogram of the tensor's elements


def test_tensorboard_log(tmp_path: Path) -> None:
    put(tmp_path / "train" / tensorboard_name(), build_file("tensorboard", range(10)))
    put(tmp_path / "train" / tensorboard_name(START + 1), build_file("tensorboard", range(10, 12)))
    (run,) = inspect_logdir(str(tmp_path)).runs
    assert (run.format, len(run.files), run.tags[0].points, run.tags[0].last_step) == ("tensorboard", 2, 12, 11)


def test_both_formats_in_one_tree(tmp_path: Path) -> None:
    put(tmp_path / "a" / tensorboard_name(), build_file("tensorboard", range(3)))
    write_summary(tmp_path / "b", scalars("loss", range(3)))
    assert [(run.run, run.format) for run in inspect_logdir(str(tmp_path)).runs] == [
        ("a", "tensorboard"),
        ("b", "mindspore"),
    ]


def test_empty_files_are_named_and_no_runs(tmp_path: Path) -> None:
    write_summary(tmp_path, [])
    report = inspect_logdir(str(tmp_path))
    assert (report.runs, report.empty, report.is_partial) == ([], [str(tmp_path / summary_name())], False)


def test_nothing_and_nowhere_are_errors(tmp_path: Path) -> None:
    with pytest.raises(NoEventsError):
        inspect_logdir(str(tmp_path))
    with pytest.raises(LogdirError):
        inspect_logdir(str(tmp_path / "missing"))


@pytest.mark.parametrize("seed", range(60))
def test_the_batch_lane_tells_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Generated logs of every oddity, and what a conversion makes of them."""
    rng = random.Random(seed)
    form = LogFormat(rng.choice(("tensorboard", "mindinsight")))
    for name in ("a", "b")[: rng.randint(1, 2)]:
        write_odd_run(rng, form, tmp_path / "source" / name)
    options = ConvertOptions(keep_archive=rng.random() < 0.5, tags=rng.choice(("", "a|loss")))
    with suppress(NoEventsError, UsageError):
        convert_logdir(tmp_path / "source", tmp_path / "converted", to=form.target, options=options)
    fewest, patience = rng.choice(((1, 1), (4, 3), (32, 64)))
    for name, value in (("fewest", fewest), ("patience", patience), ("chunk_bytes", rng.choice((100, 3000, 1 << 20)))):
        monkeypatch.setattr(LIMITS, name, value)
    with_lane = [_inspected(tmp_path / name) for name in ("source", "converted")]
    monkeypatch.setattr("ms_summary_bridge.columns.read.has_originals", lambda run: True)  # the general way
    assert with_lane == [_inspected(tmp_path / name) for name in ("source", "converted")]


def _inspected(path: Path) -> bytes:
    try:
        return encode_json(inspect_logdir(path))
    except LogdirError as error:
        return str(error).encode()


def test_batches_are_counted_in_the_order_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[int] = []
    add_batch = inspect._add_batch

    def counted(tags: dict[tuple[str, str], TagInspection], batch: Batch) -> None:
        events.append(batch.events)
        add_batch(tags, batch)

    monkeypatch.setattr(inspect, "_add_batch", counted)
    write_summary(tmp_path, [event(step, ("loss", scalar(1)), ("lr", scalar(2))) for step in (9, *range(100, 400), 3)])
    (run,) = inspect_logdir(tmp_path).runs
    assert [(tag.tag, tag.points, tag.first_step, tag.last_step) for tag in run.tags] == [
        ("loss", 302, 9, 3),
        ("lr", 302, 9, 3),
    ]
    assert sum(events) > 200  # the first few are learned from
    assert run.records == 303
