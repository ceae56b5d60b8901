"""Events of histograms, images and scalars drawn at once: what the general way makes of them, or left to it."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_summary_bridge.batches import histograms
from ms_summary_bridge.batches.histograms import Drawn, Histograms
from ms_summary_bridge.errors import EventDecodeError
from ms_summary_bridge.events import Event, FileVersion, SessionLog, Summary, TaggedValue
from ms_summary_bridge.formats import wire
from ms_summary_bridge.formats.mindspore import MindSporeDecoder, MindSporeEncoder
from ms_summary_bridge.formats.tensorboard import TensorBoardEncoder
from ms_summary_bridge.values import Histogram, Image, Scalar, Value
from tests.mindspore_run import START, event, histogram, image, scalar
from tests.mindspore_run import image as picture

LARGEST = (1 << 53) - 1  # that a count can be


def payload_of(item: Event) -> bytes:
    payload = MindSporeEncoder().encode(item).payload
    assert payload is not None
    return payload


def general(payload: bytes) -> Drawn | None:
    """Returns what the general way makes of an event; None where that is another than all of it."""
    try:
        item = MindSporeDecoder().decode(payload)
    except EventDecodeError:
        return None
    if item.original is not None or not isinstance(item.content, Summary):
        return None
    encoded = TensorBoardEncoder().encode(item)
    if encoded.payload is None or encoded.losses or encoded.archive is not None:
        return None
    bits = [value.bits if isinstance(value := tagged.value, Scalar) else b"" for tagged in item.content.values]
    values = [(tagged.value.kind, tagged.tag, each) for tagged, each in zip(item.content.values, bits, strict=True)]
    return Drawn(encoded.payload, item.wall_time, item.step, values)


def learned(*items: Event) -> Histograms:
    """Returns what knows the values of some events."""
    found = Histograms()
    for item in items:
        payload = payload_of(item)
        written = general(payload)
        assert written is not None
        found.learn(payload, MindSporeDecoder().decode(payload), written.payload)
    return found


def wide(counts: list[int], *, seed: int = 0) -> Histogram:
    """Returns a histogram whose widths are not what right - left gives."""
    rng = np.random.default_rng(seed)
    width = rng.random(len(counts)) + 0.1
    left = rng.normal(size=len(counts)) * 100
    numbers = {"min": float(left[0]), "max": float(left[-1]), "sum": float(rng.normal()), "total": sum(counts)}
    return Histogram(left=left, right=left + width, width=width, count=np.array(counts), **numbers)  # type: ignore[arg-type]


_SIZES = [0, 1, 127, 128, 16383, 16384, (1 << 21) - 1, 1 << 21, 1 << 28, 1 << 35, 1 << 42, 1 << 49, LARGEST]
_EVENTS: dict[str, list[tuple[str, Value]]] = {
    "one bucket": [("h", histogram([1]))],
    "every size of a count": [("h", wide(_SIZES))],
    "ninety buckets": [("h", wide([*range(90)]))],
    "even widths": [("h", histogram([3, 200, 70_000]))],
    "three histograms": [("a", wide([1, 2])), ("b", histogram([300])), ("c", wide([5] * 20, seed=2))],
    "scalars around": [("lr", scalar(0.1)), ("h", wide([7, 8])), ("loss", scalar(2.5))],
    "an image": [("picture", image())],
    "two images": [("picture", image()), ("other", image())],
    "all of them": [("h", wide([1])), ("picture", image()), ("loss", scalar(0.5)), ("i", histogram([9]))],
    "a long tag": [("x" * 127, wide([1])), ("y" * 128, histogram([2])), ("z" * 20_000, wide([3]))],
    "odd tags": [("\u00e9 \U0001f600", wide([1])), ("a/b\nc", image())],
}


@pytest.mark.parametrize("name", _EVENTS)
@pytest.mark.parametrize("step", [1, 127, 128, 16384, 1 << 21, 1 << 35, (1 << 56) - 1, 1 << 56, (1 << 63) - 1])
def test_an_event_is_drawn_as_the_general_way_writes_it(name: str, step: int) -> None:
    """In the middle of a chunk; what is drawn is another event than that which was learned."""
    known = learned(event(7, *_EVENTS[name]))
    assert known.is_used
    payload = payload_of(event(step, *_EVENTS[name], wall_time=START + 0.25))
    expected = general(payload)
    assert expected is not None
    for before, behind in [(b"", b""), (b"\x0a" * 9, b"\x0a" * 9), (payload, payload)]:
        data = before + payload + behind
        drawn = known.draw(data, len(before), len(before) + len(payload))
        assert drawn is not None
        assert drawn == expected
        assert drawn.wall_time == START + 0.25
        assert drawn.step == step
        assert [(kind, tag) for kind, tag, _ in drawn.values] == [(value.kind, tag) for tag, value in _EVENTS[name]]


def test_all_events_of_a_chunk_are_drawn() -> None:
    known = learned(*(event(1, *values) for values in _EVENTS.values() if len(values) == 1))
    one_by_one = [[(tag, value)] for values in _EVENTS.values() if len(values) == 1 for tag, value in values]
    payloads = [payload_of(event(3 + number, *one)) for number, one in enumerate(one_by_one * 3)]
    data = b"".join(payloads)
    at = 0
    for payload in payloads:
        assert known.draw(data, at, at + len(payload)) == general(payload)
        at += len(payload)


def changed(payload: bytes) -> Iterator[bytes]:
    """Yields a payload with every byte changed, left out and doubled, and cut everywhere."""
    for at, byte in enumerate(payload):
        for other in {byte ^ 1, byte ^ 0x80, (byte + 1) & 255, (byte - 1) & 255, 0, 0x7F, 0x80, 0xFF} - {byte}:
            yield payload[:at] + bytes([other]) + payload[at + 1 :]
        yield payload[:at] + payload[at + 1 :]
        yield payload[:at] + payload[at : at + 1] + payload[at:]
        yield payload[:at] + b"\x80" + payload[at:]
        yield payload[:at]


_SHORT: dict[str, list[tuple[str, Value]]] = {
    "histogram": [("h", wide([3, 200]))],
    "even": [("h", histogram([3]))],
    "scalar": [("l", scalar(0.5)), ("h", histogram([3]))],
    "image": [("p", picture())],
    "image and scalar": [("p", picture()), ("l", scalar(0.5))],
}


@pytest.mark.parametrize("step", [1, 300])
@pytest.mark.parametrize("name", _SHORT)
def test_a_changed_byte_is_drawn_rightly_or_left_to_the_general_way(name: str, step: int) -> None:
    known = learned(event(7, *_SHORT[name]))
    payload = payload_of(event(step, *_SHORT[name]))
    drawn = 0
    for other in changed(payload):
        for behind in (b"", b"\x01" * 60):  # behind the end the chunk goes on
            found = known.draw(b"\x01" + other + behind, 1, 1 + len(other))
            assert found is None or found == general(other), other.hex(" ")
            drawn += found is not None
    assert drawn > 100


def longer(number: int) -> bytes:
    """Returns a varint that is a byte longer than it need be."""
    return bytes([*(byte | 0x80 for byte in wire.varint(number)), 0])


def test_a_number_that_is_longer_than_it_need_be_is_left_to_the_general_way() -> None:
    for name, values in _SHORT.items():
        known = learned(event(7, *values))
        for step in (5, 300):
            payload = payload_of(event(step, *values))
            head, body = payload[:9], payload[10 + len(wire.varint(step)) :]
            for each in (longer(step), longer(step)[:-1] + b"\x80\x00"):
                assert (
                    known.draw(head + b"\x10" + each + body, 0, len(payload) + len(each) - len(wire.varint(step)))
                    is None
                )
            content = body[1 + len(wire.varint(len(body) - 2)) :]
            odd = head + b"\x10" + wire.varint(step) + b"\x2a" + longer(len(content)) + content
            found = known.draw(odd, 0, len(odd))
            assert found is not None, name
            assert found.payload == general(payload).payload, "a length says no more than where its field ends"  # type: ignore[union-attr]


@pytest.mark.parametrize("step", [-1, 0, -(1 << 63)])
def test_steps_that_are_not_above_0_are_left_to_the_general_way(step: int) -> None:
    known = learned(event(7, *_EVENTS["scalars around"]))
    payload = payload_of(event(step, *_EVENTS["scalars around"]))
    assert known.draw(payload, 0, len(payload)) is None
    unknown = Histograms()
    unknown.learn(payload, MindSporeDecoder().decode(payload), b"")
    assert not unknown.is_used


@pytest.mark.parametrize(
    "wall_time",
    [float("nan"), float("inf"), float("-inf"), 1.7976931348623157e308, -1.7976931348623157e308, -0.0, 5e-324],
)
def test_wall_times(wall_time: float) -> None:
    known = learned(event(7, *_EVENTS["one bucket"]))
    plain = payload_of(event(7, *_EVENTS["one bucket"]))
    payload = b"\x09" + struct.pack("<d", wall_time) + plain[9:]
    drawn = known.draw(payload, 0, len(payload))
    if abs(wall_time) <= 1.7976931348623157e308:
        assert drawn is not None
        assert drawn == general(payload)
        assert struct.pack("<d", drawn.wall_time) == payload[1:9]
    else:
        assert drawn is None


@pytest.mark.parametrize(
    "odd",
    [
        histogram([1, 2], nan=1),
        msgspec.structs.replace(histogram([1]), pos_inf_count=1, total=2),
        msgspec.structs.replace(histogram([1]), neg_inf_count=1, total=2),
        histogram([(1 << 53) + 1]),
        histogram([5, (1 << 55) + 1, 5]),
        histogram([]),
    ],
)
def test_histograms_that_need_a_closer_look_are_left_to_the_general_way(odd: Histogram) -> None:
    known = learned(event(7, ("h", histogram([1]))))
    payload = payload_of(event(8, ("h", odd)))
    assert known.draw(payload, 0, len(payload)) is None


def test_a_count_of_2_to_53_is_exact() -> None:
    known = learned(event(7, ("h", histogram([1]))))
    payload = payload_of(event(8, ("h", histogram([1 << 53]))))
    drawn = known.draw(payload, 0, len(payload))
    assert drawn is not None
    assert drawn == general(payload)


def test_a_tag_that_is_not_known_yet_is_left_to_the_general_way() -> None:
    known = learned(event(7, ("h", histogram([1])), ("loss", scalar(1))))
    for values in ([("i", histogram([1]))], [("h", histogram([1])), ("lr", scalar(1))], [("h", scalar(1))]):
        payload = payload_of(event(8, *values))
        assert known.draw(payload, 0, len(payload)) is None


@pytest.mark.parametrize("name", _EVENTS)
def test_a_value_that_reaches_beyond_its_event_is_left_to_the_general_way(name: str) -> None:
    """Also where the bytes behind the event would complete it."""
    known = learned(event(7, *_EVENTS[name]))
    payload = payload_of(event(7, *_EVENTS[name]))
    size, at = histograms._read_length(payload, 12)
    for less in (1, 2, 5, 6):
        shorter = payload[:12] + wire.varint(size - less) + payload[at:]
        assert known.draw(shorter, 0, len(shorter) - less) is None
    assert known.draw(payload, 0, len(payload)) is not None


def test_an_event_without_changes_is_the_same_bytes_and_no_copy() -> None:
    payload = payload_of(event(7, *_EVENTS["two images"]))
    drawn = learned(event(7, *_EVENTS["two images"])).draw(payload, 0, len(payload))
    assert drawn is not None
    assert drawn.payload is payload


def test_a_histogram_that_is_as_long_in_both_forms_is_changed() -> None:
    found = 0
    for buckets in range(1, 60):
        for large in range(buckets + 1):
            item = event(7, ("h", histogram([LARGEST >> 9] * large + [1] * (buckets - large))))
            payload, expected = payload_of(item), general(payload_of(item))
            if expected is not None and len(expected.payload) == len(payload):
                assert learned(item).draw(payload, 0, len(payload)) == expected
                assert expected.payload != payload
                found += 1
    assert found > 0


def test_an_image_with_a_number_that_is_longer_than_it_need_be_is_left_to_the_general_way() -> None:
    item = event(7, ("p", picture()))
    known = learned(item)
    payload = payload_of(item)
    fields = payload[payload.index(b"\x22") :]
    size, at = histograms._read_length(fields, 1)
    assert at + size == len(fields)
    where = at
    for key in (0x08, 0x10, 0x18, 0x22):
        assert fields[where] == key
        number, behind = histograms._read_length(fields, where + 1)
        for more in (longer(number), longer(number)[:-1] + b"\x80\x00"):
            image_bytes = fields[at : where + 1] + more + fields[behind:]
            value = wire.length_delimited(b"\x0a", b"p") + wire.length_delimited(b"\x22", image_bytes)
            odd = payload[:11] + wire.length_delimited(b"\x2a", wire.length_delimited(b"\x0a", value))
            assert known.draw(odd, 0, len(odd)) is None
        where = behind
    plain = wire.length_delimited(b"\x0a", b"p") + wire.length_delimited(b"\x22", fields[at:])
    assert payload[:11] + wire.length_delimited(b"\x2a", wire.length_delimited(b"\x0a", plain)) == payload


@pytest.mark.parametrize("height", [0, 1, 127, 128, 256, 16384])
@pytest.mark.parametrize("colorspace", [0, 3])
def test_numbers_of_an_image(height: int, colorspace: int) -> None:
    """A 0 takes one byte, and that is as short as can be; no other number ends in one."""
    item = event(7, ("p", Image(height=height, width=height, colorspace=colorspace, encoded=(b"",))))
    payload = payload_of(item)
    drawn = learned(item).draw(payload, 0, len(payload))
    assert drawn == general(payload)


# --- what is learned


def test_only_what_comes_out_the_same_is_learned() -> None:
    item = event(7, *_EVENTS["all of them"])
    payload = payload_of(item)
    written = general(payload)
    assert written is not None
    read = MindSporeDecoder().decode(payload)
    for content in (b"", written.payload + b"\x00", written.payload[:-1]):
        known = Histograms()
        known.learn(payload, read, content)
        assert not known.is_used
    known = learned(event(7, ("h", histogram([1]))))
    known.learn(payload, read, b"")
    for tag, value in _EVENTS["all of them"]:
        one = payload_of(event(8, (tag, value)))
        assert (known.draw(one, 0, len(one)) is not None) is (tag == "h"), "what was known stays, and no more"


@pytest.mark.parametrize(
    "values",
    [
        [("loss", scalar(1.0))],
        [],
        [("h", histogram([1])), ("h", histogram([1]))],
        [("h", histogram([1])), ("t", image()), ("h", histogram([2]))],
    ],
)
def test_events_without_histograms_and_images_or_with_a_tag_twice_are_not_learned(
    values: list[tuple[str, Value]],
) -> None:
    item = event(7, *values)
    payload = MindSporeEncoder().encode(item).payload or b""
    known = Histograms()
    known.learn(payload, item, (TensorBoardEncoder().encode(item).payload) or b"")
    assert not known.is_used


@pytest.mark.parametrize("given", [{"original": b"x"}, {"derived": True}])
def test_values_with_something_beside_them_are_not_learned(given: dict[str, object]) -> None:
    payload = payload_of(event(7, ("h", histogram([1]))))
    written = general(payload)
    assert written is not None
    values = (TaggedValue("h", histogram([1]), **given),)  # type: ignore[arg-type]
    known = Histograms()
    known.learn(payload, Event(float(START + 7), 7, Summary(values), "mindspore"), written.payload)
    assert not known.is_used
    read = MindSporeDecoder().decode(payload)
    known.learn(payload, msgspec.structs.replace(read, original=payload), written.payload)
    assert not known.is_used
    known.learn(payload, read, written.payload)
    assert known.is_used


@pytest.mark.parametrize("content", [FileVersion("MindSpore.Event:1"), SessionLog(1)])
def test_events_other_than_summaries_are_not_learned(content: FileVersion | SessionLog) -> None:
    known = Histograms()
    known.learn(b"", Event(1.0, 7, content, "mindspore"), b"")
    assert not known.is_used


@pytest.mark.parametrize("step", [0, -1])
def test_events_at_steps_not_above_0_are_not_learned(step: int) -> None:
    item = event(step, ("h", histogram([1])))
    known = Histograms()
    known.learn(payload_of(item), item, TensorBoardEncoder().encode(item).payload or b"")
    assert not known.is_used


def test_no_more_tags_are_known_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histograms, "_MOST_KNOWN", 3)
    two: list[tuple[str, Value]] = [("a", histogram([1])), ("b", image())]
    known = learned(event(7, *two), event(7, ("c", histogram([1])), ("d", histogram([1]))), event(7, ("e", image())))
    for tag in "abcde":
        payload = payload_of(event(8, (tag, image() if tag in "be" else histogram([1]))))
        assert (known.draw(payload, 0, len(payload)) is not None) is (tag in "abe")


# --- numbers


@given(st.integers(0, (1 << 28) - 1), st.integers(0, 3))
def test_lengths(number: int, before: int) -> None:
    data = b"\xff" * before + wire.varint(number) + b"\xff"
    assert histograms._read_length(data, before) == (number, len(data) - 1)


@pytest.mark.parametrize("number", [0, 127, 128, 16383, 16384, (1 << 21) - 1, 1 << 21, (1 << 28) - 1])
def test_lengths_at_their_bounds(number: int) -> None:
    test_lengths.hypothesis.inner_test(number, 1)  # type: ignore[attr-defined]


@pytest.mark.parametrize("number", [1 << 28, 1 << 35, (1 << 64) - 1])
def test_a_length_that_no_message_has_ends_nowhere(number: int) -> None:
    length, at = histograms._read_length(b"\x01" + wire.varint(number), 1)
    assert length + at > 1 << 60


@given(st.lists(st.integers(0, 9).flatmap(lambda size: st.integers(0, (1 << 7 * size) - 1)), min_size=1, max_size=9))
def test_numbers_of_up_to_eight_bytes_are_read_at_once(numbers: list[int]) -> None:
    parts = [wire.varint(number) for number in numbers]
    ends = np.cumsum([len(part) for part in parts])
    raw = np.frombuffer(b"".join(parts) + bytes(9), np.uint8)
    total, behind, is_short = histograms._read_varints(raw, ends - [len(part) for part in parts])
    for place, number in enumerate(numbers):
        assert is_short[place] == (number < 1 << 56)
        if is_short[place]:
            assert (total[place], behind[place]) == (number, ends[place])


def test_images_of_every_length_are_plain() -> None:
    for size in (1, 40, 127, 128, 20_000):
        item = event(7, ("p", Image(height=300, width=5, colorspace=3, encoded=(bytes(size),))))
        known = learned(item)
        payload = payload_of(item)
        drawn = known.draw(b"\x01" + payload, 1, 1 + len(payload))
        assert drawn is not None
        assert drawn.payload == payload, "the same in both forms"
