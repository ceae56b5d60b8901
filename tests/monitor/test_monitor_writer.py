"""The writing threads: what is said of sinks that fail or never end, and that one which waits holds up nobody."""

from __future__ import annotations

import threading

import pytest

from ms_summary_bridge.errors import UsageError
from ms_summary_bridge.monitor.model.sample import Note, Sample
from ms_summary_bridge.monitor.sinks.writer import DetachedSink, Writer
from ms_summary_bridge.training.faults import Faults


class First:
    """A sink that keeps which of its methods were called; those of `waits` wait for `gate`."""

    def __init__(self, calls: list[str], waits: str = "") -> None:
        self._calls = calls
        self._waits = waits
        self.entered = threading.Event()
        self.gate = threading.Event()

    def _call(self, method: str) -> None:
        self._calls.append(f"{type(self).__name__}.{method}")
        if method == self._waits:
            self.entered.set()
            self.gate.wait()

    def open(self) -> None:
        self._call("open")

    def write_sample(self, sample: Sample) -> None:
        self._call("write_sample")

    def write_note(self, note: Note) -> None:
        self._call("write_note")

    def flush(self) -> None:
        self._call("flush")

    def close(self) -> None:
        self._call("close")


class Second(First):
    """Another one."""


class Refusing(First):
    """Takes no note."""

    def write_note(self, note: Note) -> None:
        raise OSError("no")


class Unopened(First):
    """Cannot be opened."""

    def open(self) -> None:
        raise UsageError("what to do about it")


def note(step: int = 1) -> Note:
    return Note(kind="milestone", step=step, wall_time=0.0, text="")


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_the_last_sink_is_closed_first_and_one_that_never_ends_is_named(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[str] = []
    first, second = First(calls, "close"), Second(calls)
    writer = Writer(lambda: [first, second], Faults("test"))
    writer.put(note())
    closing = threading.Thread(target=writer.close, args=(60,))
    closing.start()
    assert first.entered.wait(60)
    assert not writer.close(0.1)
    first.gate.set()
    closing.join()
    assert calls[-2:] == ["Second.close", "First.close"]
    assert said(caplog) == ["test: what was recorded is written, but First has not ended"]


@pytest.mark.parametrize("method", ["open", "write_note", "flush"])
def test_what_holds_up_the_rest_is_named(method: str, caplog: pytest.LogCaptureFixture) -> None:
    calls: list[str] = []
    first = First(calls, method)
    writer = Writer(lambda: [first], Faults("test"))
    for step in (1, 2, 3):
        writer.put(note(step))
    assert first.entered.wait(60)
    assert not writer.close(0.1)
    first.gate.set()
    assert writer.close(60)
    assert calls.count("First.write_note") == 3
    (message,) = said(caplog)
    assert message.startswith("test: up to ")
    assert message.endswith(f"values or notes are not written and may be missing: First.{method} has not ended")


def test_how_much_a_sink_lacks_is_said_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[str] = []
    writer = Writer(lambda: [First(calls), Refusing(calls), Unopened(calls)], Faults("test"))
    for step in (1, 2, 3):
        writer.put(note(step))
    writer.put(Sample(step=4))
    assert writer.close(60)
    assert writer.close(60), "it may be called again"
    assert [call for call in calls if "write" in call] == ["First.write_note"] * 3 + [
        "First.write_sample",
        "Refusing.write_sample",
    ]
    assert said(caplog) == [
        "test: Unopened.open failed: what to do about it",
        "test: Refusing.write_note failed: OSError('no')",
        "test: Refusing lacks 3 values or notes",
        "test: Unopened lacks 4 values or notes",
    ]


def test_a_detached_sink_that_waits_holds_up_nobody(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[str] = []
    faults = Faults("test")
    first, second = First(calls, "open"), Second(calls)
    writer = Writer(lambda: [DetachedSink(first, "slow", faults, close_secs=0.1), second], faults)
    count = 20_100  # 100 more than may wait
    for begin in range(0, count, 10_000):  # not more at once than the writer itself takes
        for step in range(begin, min(begin + 10_000, count)):
            writer.put(note(step))
        assert writer.flush(60)
    assert first.entered.wait(60)
    assert calls.count("Second.write_note") == count
    assert writer.close(60)
    assert calls[-1] == "Second.close"
    assert said(caplog) == [
        "test: slow: values come faster than they can be written: some are left out",
        "test: slow: up to 20,000 values or notes are not written and may be missing: First.open has not ended",
        "test: slow lacks 100 values or notes that came faster than they were taken",
    ]
    first.gate.set()
