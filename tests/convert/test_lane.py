"""The batch lane of a run: what goes at once, what goes one by one, and what is counted of each."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from crc32c import crc32c

from ms_summary_bridge.batches.histograms import Drawn, Histograms
from ms_summary_bridge.batches.limits import LIMITS
from ms_summary_bridge.batches.reader import Batch
from ms_summary_bridge.batches.scan import scan
from ms_summary_bridge.convert.batches import JudgedBatch
from ms_summary_bridge.convert.lane import BatchLane
from ms_summary_bridge.convert.series import SeriesTable
from ms_summary_bridge.events import Event, Summary, TaggedValue
from ms_summary_bridge.files.records import encode_record
from ms_summary_bridge.formats.mindspore import MindSporeDecoder, MindSporeEncoder
from ms_summary_bridge.formats.tensorboard import TensorBoardDecoder, TensorBoardEncoder
from ms_summary_bridge.runs.report import RunReport
from ms_summary_bridge.values import Image, Scalar, Value
from tests.mindspore_run import histogram, image

ONE, TWO = Scalar.from_float32(1.0), Scalar.from_float32(2.0)


def event(step: int, **values: Value) -> Event:
    return Event(7.5, step, Summary(tuple(TaggedValue(tag, value) for tag, value in values.items())), "mindspore")


def payload_of(item: Event, encoder: type[MindSporeEncoder | TensorBoardEncoder] = MindSporeEncoder) -> bytes:
    payload = encoder().encode(item).payload
    assert payload is not None
    return payload


class Run:
    """A lane whose sink remembers what it gets; the general way lets the table see it, and the sink's file is begun."""

    def __init__(self, source: str = "mindspore", target: str = "tensorboard") -> None:
        self.report = RunReport("run", "/logs/run", "/out/run")
        self.table = SeriesTable()
        self.batches: list[JudgedBatch] = []
        self.drawn: list[tuple[bytes, int]] = []
        self.put: list[int] = []
        self.decoders = 0
        self.encoder = TensorBoardEncoder if target == "tensorboard" else MindSporeEncoder
        self.decoder = MindSporeDecoder if source == "mindspore" else TensorBoardDecoder
        self.sink: Any = SimpleNamespace(
            format=target, takes_batches=True, write_batch=self.batches.append, write_drawn=self._write_drawn
        )
        self.lane = BatchLane(source, self.report, self.table, self.sink, self._make_decoder, self._put)
        self.walk: Any = SimpleNamespace(shapes=None, histograms=None)
        self.lane.open(self.walk)

    def _write_drawn(self, payload: bytes, checksum: int) -> None:
        self.drawn.append((payload, checksum))

    def _make_decoder(self) -> MindSporeDecoder | TensorBoardDecoder:
        self.decoders += 1
        return self.decoder()

    def _put(self, item: Event) -> bytes | None:
        self.put.append(item.step)
        assert isinstance(item.content, Summary)
        self.table.observe(item, item.content)
        self.sink.takes_batches = True
        return None

    def learn(self, *items: Event) -> None:
        """Lets events go the general way."""
        for item in items:
            self.table.observe(item, item.content)  # type: ignore[arg-type]
            self.lane.learn(payload_of(item), item, payload_of(item, self.encoder))

    def batch(self, *items: Event) -> Batch:
        found = scan(b"".join(encode_record(payload_of(item)) for item in items) + bytes(64), self.walk.shapes)
        assert (found.shapes >= 0).all()
        return Batch(found, 0, len(items))

    def draw(self, item: Event) -> Drawn:
        payload = payload_of(item)
        drawn = self.walk.histograms.draw(payload, 0, len(payload))
        assert drawn is not None
        return drawn

    @property
    def counted(self) -> tuple[int, dict[str, int]]:
        return self.report.events_read, self.report.values


def test_a_walk_gets_what_the_lane_knows_where_batches_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Run().walk.shapes is not None
    assert isinstance(Run().walk.histograms, Histograms)
    assert Run("tensorboard", "mindspore").walk.histograms is None, "they cannot be drawn in that direction"
    monkeypatch.setattr(LIMITS, "is_used", False)
    assert (Run().walk.shapes, Run().walk.histograms) == (None, None)


@pytest.mark.parametrize(("source", "encoder"), [("mindspore", MindSporeEncoder), ("tensorboard", TensorBoardEncoder)])
def test_scalars_are_learned_in_the_format_of_the_source(
    source: str, encoder: type[MindSporeEncoder | TensorBoardEncoder]
) -> None:
    run = Run(source, "tensorboard" if source == "mindspore" else "mindspore")
    item = event(3, a=ONE)
    payload = payload_of(item, encoder)
    decoded = run.decoder().decode(payload)
    run.lane.learn(payload, decoded, payload_of(item, run.encoder))
    assert len(run.walk.shapes.shapes) == 1


def test_an_event_of_which_not_all_was_written_is_not_learned() -> None:
    run = Run()
    for item in (event(3, a=ONE), event(3, h=histogram([1]))):
        run.lane.learn(payload_of(item), item, None)
        run.lane.learn(b"", item, payload_of(item, TensorBoardEncoder))
    assert run.walk.shapes.shapes == []
    assert not run.walk.histograms.is_used


def test_histograms_are_learned_only_where_they_can_be_drawn() -> None:
    run = Run()
    run.learn(event(3, h=histogram([1])))
    assert run.walk.shapes.shapes == []
    assert run.walk.histograms.is_used
    other = Run("tensorboard", "mindspore")
    item = event(3, i=image())
    other.lane.learn(payload_of(item, TensorBoardEncoder), item, payload_of(item))
    assert other.walk.shapes.shapes == []
    run = Run()
    run.learn(event(3, a=ONE))
    assert len(run.walk.shapes.shapes) == 1
    assert not run.walk.histograms.is_used, "scalars alone come in batches"


def test_a_batch_is_written_and_counted_as_a_whole() -> None:
    run = Run()
    run.learn(event(1, a=ONE, b=ONE), event(1, c=ONE))
    run.lane.write(run.batch(event(2, a=ONE, b=TWO), event(2, c=TWO), event(3, a=ONE, b=ONE)), b"")
    (judged,) = run.batches
    assert judged.events == 3
    assert (run.put, run.decoders) == ([], 0)
    assert run.counted == (3, {"scalar": 5})
    run.lane.write(run.batch(event(3, a=ONE, b=ONE), event(3, c=ONE)), b"")
    assert run.batches[1].events == 1
    assert run.counted == (5, {"scalar": 6}), "what is written is counted, and what is read"


def test_nothing_is_written_of_a_batch_of_repeats() -> None:
    run = Run()
    run.learn(event(1, a=ONE))
    run.lane.write(run.batch(event(1, a=ONE), event(1, a=ONE)), b"")
    assert (run.batches, run.put, run.counted) == ([], [], (2, {}))
    assert run.table.repeated == 2


def test_a_batch_that_repeats_in_part_goes_one_by_one() -> None:
    run = Run()
    run.learn(event(1, a=ONE, b=ONE))
    run.lane.write(run.batch(event(1, a=ONE, b=TWO), event(2, a=ONE, b=TWO)), b"")
    assert (run.batches, run.put, run.decoders) == ([], [1, 2], 1)
    assert run.counted == (2, {}), "the general way counts by itself"


@pytest.mark.parametrize("count", [1, 2, 4])
def test_the_first_event_of_a_file_goes_the_general_way(count: int) -> None:
    run = Run()
    run.learn(event(1, a=ONE))
    run.sink.takes_batches = False
    run.lane.write(run.batch(*(event(step, a=TWO) for step in range(2, 2 + count))), b"")
    assert run.put == [2]
    assert [judged.events for judged in run.batches] == [count - 1] * (count > 1)
    assert run.counted == (count, {"scalar": count - 1} if count > 1 else {})


def test_a_sink_that_takes_no_batches_gets_all_one_by_one() -> None:
    run = Run()
    run.learn(event(1, a=ONE))
    run.lane._put = lambda item: run.put.append(item.step)  # type: ignore[assignment,func-returns-value]
    run.sink.takes_batches = False
    run.lane.write(run.batch(*(event(step, a=TWO) for step in (2, 3, 4))), b"")
    assert (run.put, run.batches) == ([2, 3, 4], [])


def test_an_event_that_was_drawn_is_written_and_counted_by_kind() -> None:
    run = Run()
    run.learn(event(1, h=histogram([1]), a=ONE, i=image()))
    item = event(2, h=histogram([2]), a=TWO, i=image())
    run.lane.write(run.draw(item), payload_of(item))
    written = payload_of(item, TensorBoardEncoder)
    assert run.drawn == [(written, crc32c(written))]
    assert run.counted == (1, {"histogram": 1, "scalar": 1, "image": 1})
    assert (run.put, run.decoders) == ([], 0)
    item = event(3, h=histogram([2]), a=TWO, i=image())
    drawn = run.draw(item)
    drawn.checksum = 7
    run.lane.write(drawn, payload_of(item))
    assert run.drawn[1][1] == 7, "what is known is not computed again"
    assert run.counted == (2, {"histogram": 2, "scalar": 2, "image": 2})


@pytest.mark.parametrize("step", [1, 2])
def test_an_event_that_was_drawn_and_needs_a_closer_look_goes_the_general_way(step: int) -> None:
    run = Run()
    run.learn(event(1, h=histogram([1])))
    item = event(step, h=histogram([2]))
    run.sink.takes_batches = step == 1  # the same step again, or the first event of a file
    run.lane.write(run.draw(item), payload_of(item))
    assert (run.drawn, run.put, run.decoders) == ([], [step], 1)
    assert run.counted == (1, {})


def test_what_was_drawn_is_taken_apart_when_its_step_comes_again() -> None:
    """The values are held as bytes; the one of a series, by kind and tag, is compared with what comes at that step."""
    run = Run()
    pictures = [image(), Image(image().height, image().width, 3, (image().encoded[0] + b"\0",))]
    run.learn(event(1, h=histogram([1]), i=pictures[0], x=ONE), event(1, i=histogram([5])))
    item = event(2, h=histogram([2, 7]), i=pictures[0], x=TWO)
    run.lane.write(run.draw(item), payload_of(item))
    assert run.decoders == 0
    again = event(2, h=histogram([2, 7]), i=pictures[1], x=TWO)
    left = run.table.observe(again, again.content)  # type: ignore[arg-type]
    assert left is not None
    assert [(tagged.value.kind, tagged.tag) for tagged in left.content.values] == [("image", "i")]  # type: ignore[union-attr]
    assert run.table.repeated == 2
    assert run.decoders == 2, "the scalar's bits are known"
