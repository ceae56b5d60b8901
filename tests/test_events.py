"""Events: the envelope around values, and its flat view."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

import strategies
from ms_summary_bridge.events import (
    DataPoint,
    Encoded,
    Event,
    FileVersion,
    LostValue,
    SessionLog,
    Summary,
    TaggedValue,
    iter_points,
)
from ms_summary_bridge.values import Opaque, Scalar

ONE = Scalar.from_float32(1.0)
EXAMPLES: list[Any] = [
    Event(1.5, 3, Summary((TaggedValue("loss", ONE),)), "mindspore"),
    TaggedValue("loss", ONE),
    FileVersion("brain.Event:2", "somebody"),
    Summary(()),
    SessionLog(SessionLog.START),
    DataPoint("loss", 3, 1.5, ONE),
    LostValue("text", "note", "no place"),
    Encoded(b"payload"),
]


@pytest.mark.parametrize("part", EXAMPLES, ids=lambda part: type(part).__name__)
def test_no_field_can_be_set(part: Any) -> None:
    for name in type(part).__struct_fields__:
        with pytest.raises(AttributeError):
            setattr(part, name, getattr(part, name))


@given(strategies.events())
@settings(max_examples=settings().max_examples // 5)  # to draw one takes long
def test_an_event_is_equal_to_one_of_the_same_parts(event: Event) -> None:
    again = Event(event.wall_time, event.step, event.content, event.format, event.original)
    assert again == event
    assert event != Event(event.wall_time, event.step ^ 1, event.content)
    assert event != Event(event.wall_time, event.step, event.content, "mindspore")
    assert event != Event(event.wall_time, event.step, event.content, "", b"")


def test_the_original_and_the_derived_mark_count_in_a_comparison() -> None:
    assert TaggedValue("a", ONE) != TaggedValue("a", ONE, True)
    assert TaggedValue("a", ONE) != TaggedValue("a", ONE, False, b"")


@given(strategies.events())
@settings(max_examples=settings().max_examples // 5)
def test_points_are_the_values_in_their_order(event: Event) -> None:
    points = list(iter_points(event))
    values = event.content.values if isinstance(event.content, Summary) else ()
    assert points == [DataPoint(tagged.tag, event.step, event.wall_time, tagged.value) for tagged in values]


def test_derived_values_are_no_points() -> None:
    values = (TaggedValue("a", ONE), TaggedValue("a/nan_count", ONE, True), TaggedValue("b", Opaque("text", b"")))
    points = list(iter_points(Event(1.0, 2, Summary(values))))
    assert [point.tag for point in points] == ["a", "b"]


@pytest.mark.parametrize("content", [FileVersion("x"), SessionLog(1), Opaque("graph", b"")])
def test_an_event_without_a_summary_has_no_points(content: Any) -> None:
    assert list(iter_points(Event(1.0, 2, content))) == []
