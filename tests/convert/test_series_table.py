"""The table of all series of a run: what is a repeat, what goes back, and which values it holds until then."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ms_summary_bridge.batches.histograms import Drawn
from ms_summary_bridge.convert import series as of_series
from ms_summary_bridge.convert.series import Series, SeriesKey, SeriesTable, keys_of
from ms_summary_bridge.events import Event, FileVersion, Summary, TaggedValue
from ms_summary_bridge.values import Histogram, Image, Opaque, Scalar, Tensor, Value


def histogram(count: int = 1, **given: Any) -> Histogram:
    return Histogram(left=np.zeros(1), right=np.ones(1), count=np.array([count]), **given)


def image(data: bytes) -> Image:
    return Image(1, 1, 3, (data,))


def tensor(*numbers: float) -> Tensor:
    return Tensor(np.array(numbers, np.float32), "float32")


ONE, TWO = Scalar.from_float32(1.0), Scalar.from_float32(2.0)
PAIRS: list[tuple[Value, Value]] = [
    (ONE, TWO),
    (histogram(1), histogram(2)),
    (image(b"one"), image(b"two")),
    (tensor(1, 2), tensor(1, 3)),
    (Opaque("text", b"one"), Opaque("text", b"two")),
]


def event(step: int, *values: tuple[str, Value], original: bytes | None = None) -> Event:
    tagged = tuple(TaggedValue(tag, value) for tag, value in values)
    return Event(7.5, step, Summary(tagged), "mindspore", original=original)


def observe(table: SeriesTable, step: int, *values: tuple[str, Value], original: bytes | None = None) -> Event | None:
    given = event(step, *values, original=original)
    assert isinstance(given.content, Summary)
    return table.observe(given, given.content)


def tags_of(left: Event | None) -> list[str]:
    assert left is None or isinstance(left.content, Summary)
    return [] if left is None else [tagged.tag for tagged in left.content.values]


@pytest.mark.parametrize(("value", "other"), PAIRS)
def test_the_same_value_at_the_same_step_is_a_repeat(value: Value, other: Value) -> None:
    table = SeriesTable()
    assert (table.file, table.repeated, table.went_back) == (0, 0, {})
    first = event(1, ("a", value))
    assert isinstance(first.content, Summary)
    assert table.observe(first, first.content) is first
    assert observe(table, 1, ("a", value)) is None
    assert observe(table, 1, ("a", other)) is not None
    assert observe(table, 1, ("a", value)) is not None, "only the last one can be repeated"
    assert observe(table, 2, ("a", value)) is not None
    assert observe(table, 2, ("a", value)) is None
    assert observe(table, 2, ("b", value)) is not None
    assert (table.repeated, table.went_back) == (2, {})


def test_what_does_not_repeat_in_an_event_is_left_in_its_order() -> None:
    table = SeriesTable()
    observe(table, 4, ("a", ONE), ("b", ONE), ("c", ONE), ("d", ONE))
    left = observe(table, 4, ("x", ONE), ("a", ONE), ("b", TWO), ("c", ONE), ("d", TWO))
    assert tags_of(left) == ["x", "b", "d"]
    assert left is not None
    assert (left.wall_time, left.step, left.format) == (7.5, 4, "mindspore")
    assert table.repeated == 2
    assert observe(table, 4, ("x", ONE), ("b", TWO), ("d", TWO)) is None
    assert table.repeated == 5


def test_nothing_is_taken_out_of_an_event_that_is_kept_whole() -> None:
    table = SeriesTable()
    observe(table, 1, ("a", ONE))
    left = observe(table, 1, ("a", ONE), original=b"as it was")
    assert (tags_of(left), table.repeated) == (["a"], 0)


def test_a_step_back_inside_a_file_is_counted() -> None:
    table = SeriesTable()
    for step in (5, 6, 6, 3, 4, 2):
        observe(table, step, ("a", Scalar.from_float32(float(step))), ("b", ONE))
    assert table.went_back == {"a": 2, "b": 2}
    table.begin_file(1)
    observe(table, 1, ("a", ONE))
    observe(table, 1, ("a", TWO))
    assert table.went_back == {"a": 2, "b": 2}, "another file may begin anew"
    observe(table, 0, ("a", ONE))
    assert table.went_back["a"] == 3
    assert (table.highest(("scalar", "a")), table.highest(("scalar", "c"))) == (6, None)


def test_counts_of_values_that_are_not_finite_are_series_of_their_own() -> None:
    table = SeriesTable()
    observe(table, 3, ("h", histogram(nan_count=1)), ("i", histogram(neg_inf_count=2)), ("j", histogram()))
    observe(table, 5, ("h", histogram(pos_inf_count=1)))
    observe(table, 7, ("h", histogram()))
    assert table.lowest_from(0) == {
        ("histogram", "h"): 3,
        ("histogram", "i"): 3,
        ("histogram", "j"): 3,
        ("nan_count", "h"): 3,
        ("pos_inf_count", "h"): 5,
        ("neg_inf_count", "i"): 3,
    }
    assert table.lowest_from(6) == {("histogram", "h"): 7}
    for step in (9, 11, 11, 13, 15):
        observe(table, step, ("h", histogram(nan_count=1)))
    assert table.lowest_from(4)["nan_count", "h"] == 9
    assert {(kind, tag): series for kind, tag, series in table.rows}["nan_count", "h"].closed == [(3, 9, 6)]


def test_whole_events_are_series_by_their_kind() -> None:
    table = SeriesTable()
    for step in (0, 4):
        table.observe_whole(Event(1.0, step, Opaque("graph", b"")))
    assert table.lowest_from(1) == {("graph", ""): 4}
    assert [*keys_of(Event(1.0, 0, FileVersion("x")))] == [(("file_version", ""), None)]
    both = event(1, ("a", ONE), ("h", histogram(nan_count=1, neg_inf_count=1)))
    assert [key for key, _ in keys_of(both)] == [
        ("scalar", "a"),
        ("histogram", "h"),
        ("nan_count", "h"),
        ("neg_inf_count", "h"),
    ]


def test_a_restart_forgets_points_and_repeats() -> None:
    table = SeriesTable()
    for step in (1, 2, 3):
        observe(table, step, ("a", ONE))
    observe(table, 3, ("h", histogram()), ("late", ONE))
    table.restart(3)
    assert table.lowest_from(0) == {("scalar", "a"): 1}
    assert table.highest(("scalar", "a")) == 2
    assert observe(table, 2, ("a", ONE)) is not None, "what replaces a point repeats none"
    assert observe(table, 3, ("h", histogram())) is not None
    table.forget_repeats()
    assert observe(table, 3, ("h", histogram())) is not None
    assert observe(table, 3, ("h", histogram())) is None


def test_a_table_goes_on_from_its_rows_and_a_copy_goes_its_own_way() -> None:
    table = SeriesTable()
    for step in (1, 2, 5, 6):
        observe(table, step, ("a", ONE), ("i", image(b"%d" % step)))
    for other in (SeriesTable(copy.deepcopy(table.rows)), table.copy()):
        assert observe(other, 6, ("a", ONE), ("i", image(b"6"))) is None
        assert observe(other, 90, ("a", ONE)) is not None
        assert observe(other, 70, ("a", ONE)) is not None
        assert other.highest(("scalar", "a")) == 90
    copied = table.copy()
    for step in (0, 50):
        observe(copied, step, ("a", ONE))
    assert (table.highest(("scalar", "a")), table.lowest_from(3)) == (6, {("scalar", "a"): 5, ("image", "i"): 5})


# ---------------------------------------------------------------- what is held until its fingerprint is needed


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The images whose fingerprint was made."""
    found: list[bytes] = []
    make = Image.fingerprint

    def noted(self: Image) -> bytes:
        found.append(self.encoded[0])
        return make(self)

    monkeypatch.setattr(Image, "fingerprint", noted)
    return found


def test_a_fingerprint_is_made_only_where_a_step_comes_twice(asked: list[bytes]) -> None:
    table = SeriesTable()
    for step in range(5):
        observe(table, step, ("a", image(b"%d" % step)))
    assert asked == []
    assert observe(table, 4, ("a", image(b"4"))) is None
    assert asked == [b"4", b"4"]
    assert len(table.rows) == 1
    assert asked == [b"4", b"4"]


@pytest.mark.parametrize(
    ("value", "size"),
    [(Image(1, 1, 3, (b"x" * 60, b"y" * 40)), 100), (tensor(*range(25)), 100), (Opaque("text", b"x" * 100), 100)],
)
def test_values_are_held_while_there_is_room(monkeypatch: pytest.MonkeyPatch, value: Value, size: int) -> None:
    for room, is_held in ((size, True), (size - 1, False)):
        monkeypatch.setattr(of_series, "_ROOM", room)
        table = SeriesTable()
        observe(table, 1, ("a", value))
        assert ((value.kind, "a") in table._unmarked) == is_held
        assert observe(table, 1, ("a", value)) is None, "held or not"


def test_the_room_of_what_is_no_longer_held_is_free_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_series, "_ROOM", 100)
    table = SeriesTable()
    for step in range(9):  # each in the place of the last one
        observe(table, step, ("a", image(b"x" * 60)))
        assert [*table._unmarked] == [("image", "a")]
    observe(table, 9, ("b", image(b"x" * 41)))
    assert [*table._unmarked] == [("image", "a")]
    observe(table, 8, ("a", image(b"y" * 60)))  # the same step: its fingerprint is made, and nothing held
    assert [*table._unmarked] == []
    observe(table, 10, ("b", image(b"x" * 100)))
    assert [*table._unmarked] == [("image", "b")]
    table.restart(99)
    observe(table, 11, ("a", image(b"x" * 100)))
    assert [*table._unmarked] == [("image", "a")]
    table.forget_repeats()
    observe(table, 12, ("b", image(b"x" * 100)))
    assert [*table._unmarked] == [("image", "b")]


def drawn(step: int, *values: tuple[str, str, bytes]) -> Drawn:
    return Drawn(b"p" * 50, 1.0, step, [*values])


def of_image(data: bytes) -> Callable[[SeriesKey], Value]:
    return lambda key: image(data)


def test_an_event_that_was_not_taken_apart_is_noted_as_one_that_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_series, "_ROOM", 50)
    table = SeriesTable()
    a, h, i = ("scalar", "a", ONE.bits), ("histogram", "h", b""), ("image", "i", b"")
    assert not table.observe_drawn(drawn(1, a), of_image(b"x")), "the first point of a series is taken apart"
    observe(table, 1, ("a", ONE), ("h", histogram()), ("i", image(b"x")))
    assert not table.observe_drawn(drawn(1, a), of_image(b"x")), "the same step again"
    assert not table.observe_drawn(drawn(2, a, a), of_image(b"x")), "a tag that comes twice"
    assert table.lowest_from(2) == {}
    table.begin_file(1)
    assert table.observe_drawn(drawn(3, a, h, i), of_image(b"x"))
    assert table.lowest_from(2) == {("scalar", "a"): 3, ("histogram", "h"): 3, ("image", "i"): 3}
    assert table.find_scalar("a") == Series(3, ONE.bits, 1, 1, 2)
    assert observe(table, 3, ("a", ONE)) is None
    assert observe(table, 3, ("i", image(b"x"))) is None
    assert observe(table, 3, ("i", image(b"y"))) is not None
    assert table.observe_drawn(drawn(2, a), of_image(b"x"))
    assert table.observe_drawn(drawn(1, a), of_image(b"x"))
    assert table.went_back == {"a": 2}
    table.begin_file(2)
    assert table.observe_drawn(drawn(0, a), of_image(b"x"))
    assert table.went_back == {"a": 2}
    assert table.find_scalar("h") is None


def test_what_there_is_no_room_for_gets_its_fingerprint_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_series, "_ROOM", 49)
    table = SeriesTable()
    observe(table, 1, ("i", image(b"x")), ("h", histogram()))
    assert table.observe_drawn(drawn(2, ("image", "i", b"")), of_image(b"new"))
    assert [*table._unmarked] == [("histogram", "h")]
    assert {tag: series.fingerprint for _, tag, series in table.rows}["i"] == image(b"new").fingerprint()
    assert table.observe_drawn(drawn(2, ("histogram", "h", b"")), of_image(b"what it is made of"))
    assert [*table._unmarked] == [("histogram", "h")], "histograms are small"
    monkeypatch.setattr(of_series, "_ROOM", 0)
    table = SeriesTable()
    observe(table, 1, ("h", histogram()))
    assert [*table._unmarked] == [("histogram", "h")]
    assert table.observe_drawn(drawn(2, ("histogram", "h", b"")), of_image(b"never asked"))
    assert [*table._unmarked] == [("histogram", "h")]
