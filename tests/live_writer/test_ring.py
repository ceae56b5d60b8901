"""The queue in shared memory: what is put in comes out, in order, whatever its size and whoever dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import struct
import termios
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_summary_bridge.live_writer import ring
from ms_summary_bridge.live_writer.ring import RingConsumer, RingProducer


@contextlib.contextmanager
def pair(size: int = 1 << 16) -> Iterator[tuple[RingProducer, RingConsumer]]:
    producer = RingProducer(size)
    try:
        yield producer, RingConsumer(producer.memory_fd, producer.doorbell_fd)
    finally:
        with contextlib.suppress(OSError):
            os.close(producer.doorbell_fd)
        producer.close()


def take(consumer: RingConsumer) -> Any:
    """Takes one message out, copied, and gives its room back."""
    message = consumer.take(0)
    copied = [np.array(item) if isinstance(item, np.ndarray) else item for item in message or ()]
    if message is not None:
        del message
        consumer.done()
    return copied or None


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.int16).reshape(2, 3),
        np.array(2.5),
        np.zeros((0, 3), np.float32),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(12)[::3],
        np.arange(4, dtype=">f4"),
        np.array([True, False]),
        np.full(3, np.nan, np.float16),
        np.array([1 + 2j], np.complex64),
    ],
    ids=["plain", "0-d", "empty", "fortran", "strided", "big-endian", "bool", "nan", "complex"],
)
def test_an_array_comes_out_as_it_went_in(array: np.ndarray) -> None:
    with pair() as (producer, consumer):
        assert producer.put(("values", 7, {"tag": array}))
        kind, step, items = consumer.take(0)
        assert (kind, step) == ("values", 7)
        assert items["tag"].dtype == array.dtype
        np.testing.assert_array_equal(items["tag"], array)
        del items
        consumer.done()


def test_an_array_taken_out_cannot_be_written_to() -> None:
    with pair() as (producer, consumer):
        producer.put((np.arange(4.0),))
        (array,) = consumer.take(0)
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
        del array


def test_a_message_keeps_its_values_when_the_source_changes() -> None:
    source = np.arange(4.0)
    with pair() as (producer, consumer):
        producer.put((source,))
        source[:] = 0
        (array,) = take(consumer)
        np.testing.assert_array_equal(array, [0, 1, 2, 3])


def test_no_room_puts_nothing_and_there_is_room_again_later() -> None:
    with pair(4096) as (producer, consumer):
        taken = 0
        while producer.put((taken, np.zeros(64))):
            taken += 1
        assert taken > 2
        assert producer.backlog == taken
        assert take(consumer)[0] == 0
        assert producer.put((taken, np.zeros(64)))
        assert [take(consumer)[0] for _ in range(taken)] == [*range(1, taken + 1)]
        assert take(consumer) is None
        assert producer.backlog == 0


def test_a_message_longer_than_the_ring_is_refused_and_the_next_is_not() -> None:
    with pair(4096) as (producer, consumer):
        assert not producer.put((np.zeros(4096),))
        assert producer.put(("small",))
        assert take(consumer) == ["small"]


def test_an_empty_ring_begins_again_at_its_start() -> None:
    with pair(1 << 30) as (producer, consumer):  # memory is only taken where something was written
        for number in range(50):
            assert producer.put((number, np.zeros(1 << 14)))
            assert take(consumer)[0] == number
        assert os.fstat(producer.memory_fd).st_blocks * 512 < 1 << 20


def test_it_wraps_around_without_overwriting_what_waits() -> None:
    with pair(4096) as (producer, consumer):
        waiting: deque[int] = deque()
        number = 0
        for _ in range(200):
            while producer.put((number, np.full(40, number))):
                waiting.append(number)
                number += 1
            expected = waiting.popleft()
            found, array = take(consumer)
            assert (found, set(array)) == (expected, {expected})
        assert number > 190


def test_the_end_is_seen_after_the_last_message() -> None:
    with pair() as (producer, consumer):
        producer.put(("last",))
        producer.close()
        assert take(consumer) == ["last"]
        assert not consumer.is_ended
        assert take(consumer) is None
        assert consumer.is_ended
        producer.close()  # again: nothing


def test_what_a_dead_consumer_had_not_finished_is_told_to_the_next() -> None:
    with pair() as (producer, first):
        for number in range(4):
            producer.put((number,))
        assert take(first) == [0]
        assert first.take(0) == (1,)  # and dies before done()
        producer.close_consumer_ends()
        with pytest.raises(BrokenPipeError):
            producer.put((4,))
        assert producer.reattach() == 4
        producer.wake_consumer()
        second = RingConsumer(producer.memory_fd, producer.doorbell_fd)
        assert [take(second) for _ in range(4)] == [[1], [2], [3], [4]]  # the last one too, and once
        assert take(second) is None
        assert producer.backlog == 0


def test_messages_wait_when_the_doorbell_has_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring, "_PIPE_BYTES", 4096)  # 256 messages
    with pair(1 << 20) as (producer, consumer):
        for number in range(300):
            assert producer.put((number,))
        seen = []
        while (message := take(consumer)) is not None:
            seen += message
        assert seen == [*range(256)]
        producer.wake_consumer()
        while (message := take(consumer)) is not None:
            seen += message
        assert seen == [*range(300)]


def test_a_new_doorbell_is_as_long_as_the_first() -> None:
    with pair(1 << 24) as (producer, _):
        producer.close_consumer_ends()
        producer.reattach()
        for number in range(10_000):  # a pipe has room for 4,096 if nobody asks for more
            producer.put((number,))
        (told,) = struct.unpack("i", fcntl.ioctl(producer.doorbell_fd, termios.FIONREAD, bytes(4)))
        assert told == 10_000 * 16, "each message has rung"


def test_a_descriptor_above_1023_is_waited_for() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 1100:
        pytest.skip("this system allows no 1100 descriptors")
    with pair() as (producer, _), contextlib.ExitStack() as stack:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1100), hard))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        high = os.dup2(producer.doorbell_fd, 1050)
        stack.callback(os.close, high)
        consumer = RingConsumer(producer.memory_fd, high)
        assert consumer.take(0) is None
        producer.put(("here",))
        assert consumer.take(1) == ("here",)


# Two waiting lists, one of them plain: the ring may refuse, but what it took comes out in order, however the two ends
# take turns.
_steps = st.lists(st.one_of(st.integers(0, 700), st.none(), st.just("die")), max_size=60)


@given(_steps)
def test_it_behaves_like_a_list(steps: list[int | str | None]) -> None:
    with pair(8192) as (producer, consumer):
        model: deque[tuple[int, int]] = deque()
        for number, step in enumerate(steps):
            if step == "die":
                producer.close_consumer_ends()
                producer.reattach()
                producer.wake_consumer()
                consumer = RingConsumer(producer.memory_fd, producer.doorbell_fd)
            elif step is None:
                message = take(consumer)
                assert (message is None) == (not model)
                if message is not None:
                    expected, size = model.popleft()
                    assert message[0] == expected
                    np.testing.assert_array_equal(message[1], np.full(size, expected))
            elif producer.put((number, np.full(step, number))):
                model.append((number, step))
            else:
                assert model, "an empty ring takes anything that is shorter than it"
            assert producer.backlog == len(model)
