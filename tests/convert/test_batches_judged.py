"""Batches judged as a whole: what `SeriesTable.observe` says of their events one by one, and the bytes of each."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest
from crc32c import crc32c

from ms_summary_bridge.batches.reader import Batch
from ms_summary_bridge.batches.scan import scan
from ms_summary_bridge.batches.shapes import Shapes
from ms_summary_bridge.convert.batches import JudgedBatch, judge, points_of, repeats_in
from ms_summary_bridge.convert.series import SeriesTable
from ms_summary_bridge.events import Event, Summary, TaggedValue
from ms_summary_bridge.files.records import encode_record
from ms_summary_bridge.formats.mindspore import MindSporeDecoder, MindSporeEncoder
from ms_summary_bridge.formats.tensorboard import TensorBoardEncoder
from ms_summary_bridge.values import Scalar

Values = dict[str, float]


class Said(NamedTuple):
    """An event, but for what all share."""

    step: int
    values: Values
    wall_time: float = 1.0


def event_of(said: Said) -> Event:
    tagged = tuple(TaggedValue(tag, Scalar.from_float32(number)) for tag, number in said.values.items())
    return Event(said.wall_time, said.step, Summary(tagged), "mindspore")


def source_of(said: Said) -> bytes:
    payload = MindSporeEncoder().encode(event_of(said)).payload
    assert payload is not None
    return payload


def target_of(said: Said) -> bytes:
    """Returns what the general way writes of an event."""
    encoded = TensorBoardEncoder().encode(MindSporeDecoder().decode(source_of(said)))
    assert encoded.payload is not None
    return encoded.payload


def batch_of(events: Sequence[Said], *, behind: int = 0, before: int = 0) -> Batch:
    """Returns a batch of all events but some at both ends of its chunk."""
    shapes = Shapes(b"\x1d")
    for said in events:
        payload = source_of(said)
        shapes.learn(payload, MindSporeDecoder().decode(payload), target_of(said))
    found = scan(b"".join(encode_record(source_of(said)) for said in events) + bytes(64), shapes)
    assert (found.shapes >= 0).all()
    assert len(found.starts) == len(events)
    return Batch(found, before, len(events) - behind)


def observe(table: SeriesTable, said: Said) -> list[str] | None:
    """Lets a table see one event; returns the tags that are no repeats."""
    event = MindSporeDecoder().decode(source_of(said))
    assert isinstance(event.content, Summary)
    left = table.observe(event, event.content)
    if left is None:
        return []
    assert isinstance(left.content, Summary)
    return [tagged.tag for tagged in left.content.values]


def all_of(table: SeriesTable) -> tuple[object, ...]:
    rows = [
        (kind, tag, series.step, series.fingerprint, series.file, series.first, series.stride, series.closed)
        for kind, tag, series in table.copy().rows
    ]
    return sorted(rows), table.repeated, table.went_back, table.file


def expected_of(table: SeriesTable, events: Sequence[Said]) -> JudgedBatch | None:
    """Returns what a batch comes to, one event after the other; None where an event repeats in part."""
    kept: list[Said] = []
    for said in events:
        left = observe(table, said)
        assert left is not None
        if left == [*said.values]:
            kept.append(said)
        elif left:
            return None
    points: dict[str, int] = {}
    last: dict[str, bytes] = {}
    for said in kept:
        for tag, number in said.values.items():
            points[tag] = points.get(tag, 0) + 1
            last[tag] = Scalar.from_float32(number).bits
    return JudgedBatch(
        b"".join(encode_record(target_of(said)) for said in kept),
        len(kept),
        crc32c(target_of(kept[-1])) if kept else 0,
        max((said.wall_time for said in kept), default=float("-inf")),
        points,
        last,
    )


def fields_of(judged: JudgedBatch | None) -> tuple[object, ...] | None:
    if judged is None:
        return None
    return judged.block, judged.events, judged.checksum, judged.wall_time, judged.points, judged.last


def table_after(past: Sequence[tuple[int, Said]]) -> SeriesTable:
    """Returns a table that has seen events, each in the file with that number."""
    table = SeriesTable()
    for file, said in past:
        table.begin_file(file)
        observe(table, said)
    return table


def check(
    past: Sequence[tuple[int, Said]], file: int, events: Sequence[Said], *, before: int = 0, behind: int = 0
) -> bool:
    """Compares both ways; returns whether the batch went as a whole."""
    table, other = table_after(past), table_after(past)
    table.begin_file(file)
    other.begin_file(file)
    untouched = all_of(table)
    wanted = expected_of(other, events[before : len(events) - behind])
    judged = judge(batch_of(events, before=before, behind=behind), table)
    assert fields_of(judged) == fields_of(wanted)
    assert all_of(table) == (untouched if wanted is None else all_of(other))
    return judged is not None


A, B, C = "a", "b/c", "longer tag"
PAST = [(0, Said(1, {A: 1.0, B: 2.0, C: 3.0}))]


@pytest.mark.parametrize("place", range(4))
def test_an_event_that_repeats_the_one_before_is_left_out(place: int) -> None:
    events = [Said(step, {A: float(step), B: 0.5}, 10.0 - step) for step in (2, 3, 4, 5)]
    events.insert(place + 1, events[place]._replace(wall_time=99.0))
    assert check(PAST, 0, events)
    table = table_after(PAST)
    judged = judge(batch_of(events), table)
    assert judged is not None
    assert (judged.events, judged.points, table.repeated) == (4, {A: 4, B: 4}, 2)
    assert judged.wall_time == 8.0


@pytest.mark.parametrize("count", [1, 2, 3])
def test_nothing_is_left_of_a_batch_of_repeats(count: int) -> None:
    events = [Said(1, {A: 1.0, B: 2.0})] * count
    assert check(PAST, 0, events)
    judged = judge(batch_of(events), table_after(PAST))
    assert fields_of(judged) == (b"", 0, 0, float("-inf"), {}, {})


@pytest.mark.parametrize("events", [
    [Said(1, {A: 1.0, B: 9.0}), Said(2, {A: 1.0, B: 2.0})],
    [Said(2, {A: 1.0, B: 2.0}), Said(2, {A: 1.0, B: 3.0})],
    [Said(1, {A: 1.0}), Said(1, {A: 1.0, B: 3.0, C: 3.0})],
    [Said(2, {A: 1.0, B: 2.0, C: 3.0}), Said(2, {A: 1.0, C: 3.0, B: 2.5})],
])  # fmt: skip
def test_an_event_that_repeats_in_part_goes_the_general_way(events: list[Said]) -> None:
    assert not check(PAST, 0, events)


@pytest.mark.parametrize("events", [
    [Said(2, {A: 1.0, "new": 1.0})],
    [Said(1, {A: 1.0}), Said(3, {"new": 1.0})],
])  # fmt: skip
def test_a_series_without_a_past_goes_the_general_way(events: list[Said]) -> None:
    table = table_after(PAST)
    before = all_of(table)
    assert judge(batch_of(events), table) is None
    assert all_of(table) == before


@pytest.mark.parametrize(("events", "repeats"), [
    ([Said(1, {A: 1.0})], 1),
    ([Said(1, {A: 1.5})], 0),
    ([Said(2, {A: 1.0})], 0),
    ([Said(2, {A: 1.0}), Said(2, {A: 1.0})], 1),
    ([Said(2, {A: 1.0}), Said(2, {A: 1.5})], 0),
    ([Said(2, {A: 1.0}), Said(3, {A: 1.0})], 0),
    ([Said(2, {A: 1.0}), Said(2, {A: 1.5}), Said(2, {A: 1.0})], 0),
    ([Said(2, {A: 1.0}), Said(2, {A: 1.0}), Said(2, {A: 1.0})], 2),
    ([Said(2, {A: 1.0}), Said(2, {A: 1.0}), Said(3, {A: 1.0}), Said(3, {A: 1.0})], 2),
    ([Said(2, {A: 1.0}), Said(2, {B: 1.0}), Said(2, {A: 1.0})], 1),
    ([Said(2, {A: 0.0}), Said(2, {A: -0.0})], 0),
    ([Said(2, {A: float("nan")}), Said(2, {A: float("nan")})], 1),
])  # fmt: skip
def test_what_is_a_repeat(events: list[Said], repeats: int) -> None:
    assert check(PAST, 0, events)
    table = table_after(PAST)
    judged = judge(batch_of(events), table)
    assert judged is not None
    assert (table.repeated, judged.events) == (repeats, len(events) - repeats)


@pytest.mark.parametrize(("file", "steps", "back"), [
    (0, [4, 3], 2),
    (0, [4, 3, 2, 9, 8], 4),
    (1, [4, 3], 1),  # the first goes back behind another file: that is no more than a restart
    (1, [4, 5], 0),
    (1, [4], 0),
    (0, [4], 1),
    (0, [5, 5, 6], 0),
    (0, [6, 6, 5, 5], 1),
    (1, [6, 6, 5, 5], 1),
])  # fmt: skip
def test_steps_that_go_back_inside_a_file_are_counted(file: int, steps: list[int], back: int) -> None:
    past = [(0, Said(5, {A: 1.0}))]
    events = [Said(step, {A: number + 2.0}) for number, step in enumerate(steps)]
    assert check(past, file, events)
    table = table_after(past)
    table.begin_file(file)
    assert judge(batch_of(events), table) is not None
    assert table.went_back == ({A: back} if back else {})


def test_repeats_are_counted_on_from_batch_to_batch() -> None:
    table = table_after([*PAST, PAST[0]])
    assert table.repeated == 3
    for count in (1, 2):
        assert judge(batch_of([Said(1, {A: 1.0, B: 2.0})]), table) is not None
        assert table.repeated == 3 + 2 * count


def test_steps_that_went_back_before_are_counted_on() -> None:
    past = [(0, Said(step, {A: 1.0, B: 2.0})) for step in (5, 3, 2)]
    assert check(past, 0, [Said(1, {A: 1.0, B: 2.0}), Said(7, {A: 1.0}), Said(6, {A: 1.0})])


@pytest.mark.parametrize("past", [[1], [1, 2], [1, 2, 3], [4, 2]])
@pytest.mark.parametrize("steps", [[3], [3, 4], [3, 5], [3, 4, 5, 6], [3, 5, 7, 8], [3, 3, 4, 4], [9, 9, 9], [4, 4, 6]])
def test_the_steps_of_a_series_are_held_as_one_by_one(past: list[int], steps: list[int]) -> None:
    events = [Said(step, {A: 0.25 * number}) for number, step in enumerate(steps)]
    assert check([(0, Said(step, {A: 1.0})) for step in past], 0, events)
    repeated = [said for said in events for _ in (0, 1)]
    assert check([(0, Said(step, {A: 1.0})) for step in past], 0, repeated)


@pytest.mark.parametrize(("before", "behind"), [(0, 0), (1, 0), (0, 1), (2, 3), (3, 2), (6, 0), (0, 6)])
def test_a_part_of_a_chunk(before: int, behind: int) -> None:
    events = [
        Said(2, {A: 1.0, B: 2.0}, 1.0), Said(2, {C: 1.0}, 2.0), Said(2, {A: 1.0, B: 2.0}, 7.0),
        Said(300, {C: 4.0}, 4.0), Said(300, {C: 4.0}, 6.0), Said(70_000, {B: 5.0, A: 1.0}, 5.0),
        Said(70_001, {A: 8.0}, 3.0),
    ]  # fmt: skip
    assert check(PAST, 0, events, before=before, behind=behind)


def test_the_values_of_a_tag_come_in_the_order_of_the_file() -> None:
    events = [Said(2, {A: 1.0, B: 2.0}), Said(300, {B: 3.0}), Said(4, {B: 4.0, A: 5.0}), Said(5, {A: 6.0, B: 7.0})]
    found = points_of(batch_of(events))
    said = {
        tag: (points.rows.tolist(), points.steps.tolist(), points.bits.view(np.float32).tolist())
        for tag, points in found.items()
    }
    assert said == {A: ([0, 2, 3], [2, 4, 5], [1, 5, 6]), B: ([0, 1, 2, 3], [2, 300, 4, 5], [2, 3, 4, 7])}
    later = points_of(batch_of(events, before=1, behind=1))
    assert {tag: points.rows.tolist() for tag, points in later.items()} == {A: [1], B: [0, 1]}
    assert later[A].steps.tolist() == [4]


def test_the_first_value_of_a_batch_is_compared_with_what_is_known() -> None:
    steps, bits = np.array([3, 3, 4]), np.array([7, 7, 7], np.uint32)
    same, other = b"\7\0\0\0", b"\6\0\0\0"
    for last, first in ((None, False), ((3, same), True), ((2, same), False), ((3, other), False), ((3, b""), False)):
        assert repeats_in(steps, bits, last).tolist() == [first, True, False]


def odd_events(rng: random.Random) -> list[Said]:
    shapes = [{A: 0.0}, {A: 0.0, B: 0.0}, {C: 0.0}, {B: 0.0, C: 0.0, A: 0.0}][: rng.randint(1, 4)]
    events: list[Said] = []
    step = rng.choice((1, 120))
    for number in range(rng.choice((1, 3, 12, 60))):
        if events and rng.random() < 0.2:
            events.append(events[-1]._replace(wall_time=rng.uniform(0, 9)))
            continue
        step = max(1, step + rng.choice((0, 1, 1, 1, 2, 130, -2)))
        values = {tag: float(rng.randint(0, 1)) for tag in shapes[number % len(shapes)]}
        events.append(Said(step, values, rng.uniform(0, 9)))
    return events


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_batches_of_every_kind(first: int) -> None:
    went: list[bool] = []
    for seed in range(first, first + 20):
        rng = random.Random(seed)
        events = odd_events(rng)
        past = [*PAST, (0, Said(rng.choice((2, 120)), {A: 0.0, B: 0.0, C: 0.0}))]
        before = rng.randrange(len(events))
        went.append(check(past, rng.randint(0, 1), events, before=before, behind=rng.randrange(len(events) - before)))
    assert 10 < sum(went) < 20
