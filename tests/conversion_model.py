"""A conversion against a plain model of what must be visible: any order of what a training, a person and a crash do.

The source is a tree with two runs whose files grow, end inside a record, are cut, replaced, and begun again. The model
knows for each file the bytes that were converted, and of each series all points in the order in which they came. After
each conversion the output is read by TensorBoard's own loader, and must show these points and no others; and of those,
each of TensorBoard's two ways to serve a log must show the newest point of each step.

`tools/torture model` makes 100,000 steps of this machine, the tests 2,000.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from ms_summary_bridge.convert import conversion
from ms_summary_bridge.convert.destination import locked
from ms_summary_bridge.convert.follow import follow_logdir
from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.convert.state import STATE_NAME, load_state
from ms_summary_bridge.convert.verify import verify_logdirs
from ms_summary_bridge.errors import DestinationBusyError, NoEventsError
from ms_summary_bridge.files.record_decoder import RecordDecoder
from ms_summary_bridge.files.records import Record
from ms_summary_bridge.formats.protos import ms_pb, tb_pb
from ms_summary_bridge.formats.wire import FLOAT32, fixed64, length_delimited, varint
from ms_summary_bridge.runs.report import Report
from tests.scripted import START, build_record, mindspore_name, tensorboard_name, version_payload

Point = tuple[int, float]
"""Step and value."""
Series = dict[str, list[Point]]
"""Points by tag, in the order in which they came."""
TAGS = ("loss", "lr", "acc")
RUNS = ("one", "two/deep")
MOST_EVENTS = 24
"""Of a run: a step of the machine is to cost milliseconds."""


def count_steps(machine: ConversionMachine) -> None:
    """Is called for each step; tools/torture counts them."""


class Killed(BaseException):
    """The converter is killed here."""


class SourceFile:
    """A file of the source, as its writer has it; `whole` are its records, `torn` is what stands behind them."""

    def __init__(self, name: str, head: bytes) -> None:
        self.name = name
        self.records = [head]
        self.torn = b""
        self.rest = b""
        """What is missing of the record that the file ends in."""
        self.is_dead = False
        """Nobody writes to it any more."""

    @property
    def data(self) -> bytes:
        return b"".join(self.records) + self.torn


class RunModel:
    """What a run's source holds, and what must be visible of it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.files: list[SourceFile] = []
        self.step = 0
        self.seen: dict[str, bytes] = {}
        """The bytes that were converted of each file, by its name."""
        self.points: Series = {}
        self.begun_anew: set[str] = set()
        """Tags without a point since a file was replaced: one that is like the point before it is no repeat of it."""

    def forget(self) -> None:
        """The output is gone."""
        self.seen, self.points, self.begun_anew = {}, {}, set()

    def take(self) -> None:
        """A conversion takes what is new: of a file that is another one than before, everything."""
        for file in sorted(self.files, key=lambda file: file.name):
            whole = b"".join(file.records)
            before = self.seen.get(file.name, b"")
            start = len(before)
            if not whole.startswith(before):
                start, self.begun_anew = 0, {*self.points}
            for step, values in _points_in(whole[start:]):
                for tag, value in values:
                    found = self.points.setdefault(tag, [])
                    if tag in self.begun_anew or not found or found[-1] != (step, value):
                        found.append((step, value))
                    self.begun_anew.discard(tag)
            self.seen[file.name] = whole


def _points_in(data: bytes) -> Iterator[tuple[int, list[tuple[str, float]]]]:
    """Yields step and values of each event: both formats have them in the same places but for the key of the float."""
    for piece in RecordDecoder().feed(data):
        assert isinstance(piece, Record)
        message = (ms_pb if b"\x1d" in piece.payload[-5:-4] else tb_pb).Event.FromString(piece.payload)
        if message.WhichOneof("what") != "summary":
            continue
        field = "scalar_value" if isinstance(message, ms_pb.Event) else "simple_value"
        yield message.step, [(value.tag, getattr(value, field)) for value in message.summary.value]


def newest(points: list[Point]) -> list[Point]:
    """Returns what TensorBoard's data server keeps: a point takes the place of all before it at its step and above."""
    kept: list[Point] = []
    for step, value in points:
        while kept and kept[-1][0] >= step:
            kept.pop()
        kept.append((step, value))
    return kept


class ConversionMachine(RuleBasedStateMachine):
    """The rules; `target` is what is converted to."""

    target = "tensorboard"

    def __init__(self) -> None:
        super().__init__()
        shared = "/dev/shm" if os.path.isdir("/dev/shm") else None
        self.top = Path(tempfile.mkdtemp(prefix="model.", dir=shared))
        self.source, self.output = self.top / "source", self.top / "output"
        self.source.mkdir()
        self.form = "mindspore" if self.target == "tensorboard" else "tensorboard"
        self.runs = {name: RunModel(name) for name in RUNS}
        self.clock = float(START)
        self.value = 0.0
        self.is_killed = False
        """A converter was killed, and none has come to its end since."""

    def teardown(self) -> None:
        shutil.rmtree(self.top, ignore_errors=True)

    # ------------------------------------------------------------ the training

    @initialize(run=st.sampled_from(RUNS))
    def begin(self, run: str) -> None:
        self._begin_file(self.runs[run], 0)

    @rule(run=st.sampled_from(RUNS), tags=st.integers(1, 7), count=st.integers(1, 4), stride=st.integers(0, 3))
    def append(self, run: str, tags: int, count: int, stride: int) -> None:
        """The training goes on; with the stride 0 it writes a step again, as SummaryCollector does."""
        count_steps(self)
        model = self.runs[run]
        self._grow(model, tags, count, stride)
        self._write(model)

    @rule(run=st.sampled_from(RUNS), back=st.integers(0, 6))
    def restart(self, run: str, back: int) -> None:
        """The training begins again in a new file, some steps back."""
        count_steps(self)
        model = self.runs[run]
        if sum(len(file.records) for file in model.files) < MOST_EVENTS:
            self._begin_file(model, max(0, model.step - back))

    @rule(run=st.sampled_from(RUNS), cut=st.floats(0.01, 0.99))
    def kill(self, run: str, cut: float) -> None:
        """The training is killed inside a record."""
        count_steps(self)
        model = self.runs[run]
        file = model.files[-1] if model.files else None
        if file is None or file.is_dead or file.torn:
            return
        record = self._event(model, ("loss",))
        place = max(1, int(len(record) * cut))
        file.torn, file.rest = record[:place], record[place:]
        self._write(model)

    @rule(run=st.sampled_from(RUNS))
    def complete(self, run: str) -> None:
        """What was torn was only being written."""
        count_steps(self)
        model = self.runs[run]
        for file in model.files:
            if file.torn:
                file.records.append(file.torn + file.rest)
                file.torn = file.rest = b""
        self._write(model)

    @rule(secs=st.sampled_from([-7200.0, -3.0, 60.0, 86400.0]))
    def jump_clock(self, secs: float) -> None:
        count_steps(self)
        self.clock += secs

    @precondition(lambda self: not self.is_killed)
    @rule(run=st.sampled_from(RUNS), number=st.integers(0, 3), keep=st.integers(2, 6))
    def truncate(self, run: str, number: int, keep: int) -> None:
        """Somebody cuts a file; one without any event is none of its run, and what comes later would be another run."""
        count_steps(self)
        model = self.runs[run]
        if number < len(model.files):
            file = model.files[number]
            file.records, file.torn, file.rest = file.records[:keep], b"", b""
            self._write(model)

    @precondition(lambda self: not self.is_killed)
    @rule(run=st.sampled_from(RUNS), number=st.integers(0, 3), count=st.integers(1, 3))
    def replace(self, run: str, number: int, count: int) -> None:
        """Somebody puts another file into the place of one."""
        count_steps(self)
        model = self.runs[run]
        if number < len(model.files):
            file = model.files[number]
            self.clock += 1.0
            file.records, file.torn, file.rest = [self._head()], b"", b""
            file.records += [self._event(model, ("loss",), step) for step in range(count)]
            self._write(model)

    # ------------------------------------------------------------ the converters

    @rule()
    def convert(self) -> None:
        count_steps(self)
        self._convert()
        self.check()

    @rule()
    def convert_again(self) -> None:
        """A second conversion finds nothing to do."""
        count_steps(self)
        self._convert()
        before = _contents(self.output)
        self._convert()
        assert _contents(self.output) == before
        self.check()

    @rule(grown=st.lists(st.tuples(st.sampled_from(RUNS), st.integers(1, 7), st.integers(0, 2)), max_size=3))
    def follow(self, grown: list[tuple[str, int, int]]) -> None:
        """A follower sees the source grow, and is told to stop."""
        count_steps(self)
        stop = threading.Event()

        def wait(_: float) -> None:
            for model in self.runs.values():
                model.take()
            if not grown:
                stop.set()
                return
            run, tags, stride = grown.pop()
            self._grow(self.runs[run], tags, 1, stride)
            self._write(self.runs[run])

        total = follow_logdir(
            str(self.source), str(self.output), to=self.target, stop=stop, wait=wait, clock=lambda: 0.0
        )
        self._check_report(total)
        for model in self.runs.values():
            model.take()
        self.is_killed = False
        self.check()

    @rule(cut=st.floats(0.0, 1.0), has_plan=st.booleans())
    def kill_converter(self, cut: float, has_plan: bool) -> None:
        """A converter is killed: its state lags, and what it wrote last ends anywhere."""
        count_steps(self)
        before = _sizes(self.output)
        plans = self._plans()
        saves: list[None] = []

        def save(*arguments: Any, **options: Any) -> None:
            saves.append(None)
            if len(saves) > has_plan:
                raise Killed
            save_state(*arguments, **options)
            before.update(_sizes(self.output))  # what the state speaks of is on the disk

        save_state = conversion.save_state
        with mock.patch.object(conversion, "save_state", save), contextlib.suppress(Killed):
            self._convert()  # which comes to its end where it had a plan from before, and nothing else to do
            return
        for path, size in _sizes(self.output).items():
            if path.name.startswith("."):
                continue
            with path.open("r+b") as file:  # what was there before the last state is safe
                file.truncate(before.get(path, 0) + int((size - before.get(path, 0)) * cut))
        self.is_killed = True
        for name, plan in self._plans().items():
            if plan != plans.get(name):  # carried out first, whatever an earlier file gets by then
                self.runs[name].take()

    def _plans(self) -> dict[str, bytes]:
        """Returns the plans that a killed converter has left, by run."""
        runs = load_state(str(self.output)).runs
        return {
            name.replace("+", "/"): msgspec.json.encode(run.plan) for name, run in runs.items() if run.plan is not None
        }

    @rule()
    def meet_another_converter(self) -> None:
        """Of two converters one is refused, and changes nothing."""
        count_steps(self)
        with locked(str(self.output)):
            before = _contents(self.output)
            with contextlib.suppress(DestinationBusyError, NoEventsError):
                self._convert()
                raise AssertionError("two converters write at once")
            assert _contents(self.output) == before

    @rule()
    def evict(self) -> None:
        """The cache is emptied."""
        count_steps(self)
        shutil.rmtree(self.output, ignore_errors=True)
        for model in self.runs.values():
            model.forget()
        self.is_killed = False

    @precondition(lambda self: not self.is_killed)
    @rule()
    def verify(self) -> None:
        """What is there is found right by `verify`, once all is converted and nothing was replaced."""
        count_steps(self)
        shutil.rmtree(self.output, ignore_errors=True)
        for model in self.runs.values():
            model.forget()
        self._convert()
        if any(model.points for model in self.runs.values()):
            assert verify_logdirs(str(self.source), str(self.output)).is_equal
        self.check()

    # ------------------------------------------------------------ what must hold

    def check(self) -> None:
        """The output shows what the model says, in each way of reading it."""
        state = load_state(str(self.output))
        assert all(run.plan is None for run in state.runs.values()), "a plan is left"
        for model in self.runs.values():
            shown, served_slowly = _read_output(self._directory(model), self.target)
            expected = {tag: points for tag, points in model.points.items() if points}
            names = [file.name for file in model.files]
            if names != sorted(names):  # the clock jumped back: viewers read files by name, not as points came
                assert {tag: {*points} for tag, points in shown.items()} == {
                    tag: {*points} for tag, points in expected.items()
                }, f"{model.name}: {_difference(shown, expected)}"
                continue
            if len(names) > 1:  # what a mark hides is written again behind it, be it the same
                found = {tag: _without_repeats(points) for tag, points in shown.items()}
                expected = {tag: _without_repeats(points) for tag, points in expected.items()}
            else:
                found = shown
            assert found == expected, f"{model.name}: {_difference(found, expected)}"
            for tag, points in expected.items():
                missing = set(newest(points)) - set(served_slowly.get(tag, []))
                assert not missing, f"{model.name}: the slow loader does not show {sorted(missing)} of {tag}"
                if self.target == "tensorboard":
                    assert newest(shown[tag]) == newest(points)

    def _check_report(self, report: Report | None) -> None:
        if report is not None:
            assert not report.failures, report.failures
            assert not report.failed, report.failed
            for run in report.runs:
                assert not run.damaged, run.damaged

    # ------------------------------------------------------------ means

    def _convert(self) -> None:
        try:
            report = convert_logdir(str(self.source), str(self.output), to=self.target)
        except NoEventsError:
            assert not any(model.files for model in self.runs.values())
            return
        self._check_report(report)
        for model in self.runs.values():
            model.take()
        self.is_killed = False

    def _directory(self, model: RunModel) -> Path:
        return self.output / (model.name if self.target == "tensorboard" else model.name.replace("/", "+"))

    def _begin_file(self, model: RunModel, step: int) -> None:
        self.clock += 10.0
        if model.files:
            model.files[-1].is_dead = True
        seconds = int(self.clock)
        make = mindspore_name if self.form == "mindspore" else tensorboard_name
        while any(file.name == make(seconds) for file in model.files):
            seconds += 1
        model.files.append(SourceFile(make(seconds), self._head()))
        model.step = step
        self._write(model)

    def _grow(self, model: RunModel, tags: int, count: int, stride: int) -> None:
        if not model.files:
            self._begin_file(model, 0)
        file = model.files[-1]
        if file.is_dead or file.torn or sum(len(each.records) for each in model.files) > MOST_EVENTS:
            return
        for _ in range(count):
            model.step += stride
            names = tuple(tag for number, tag in enumerate(TAGS) if tags >> number & 1)
            file.records.append(self._event(model, names, repeats=stride == 0 and len(file.records) > 1))

    def _head(self) -> bytes:
        return build_record(version_payload(self.form, wall_time=self.clock))

    def _event(
        self, model: RunModel, tags: tuple[str, ...], step: int | None = None, *, repeats: bool = False
    ) -> bytes:
        """Returns a record; its values are new ones, unless it repeats those before it."""
        self.clock += 1.0
        if not repeats:
            self.value += 1.0
        step = model.step if step is None else step
        key = b"\x1d" if self.form == "mindspore" else b"\x15"
        values = [length_delimited(b"\x0a", tag.encode()) + key + FLOAT32.pack(self.value) for tag in tags]
        body = b"".join(length_delimited(b"\x0a", value) for value in values)
        return build_record(fixed64(b"\x09", self.clock) + b"\x10" + varint(step) + length_delimited(b"\x2a", body))

    def _write(self, model: RunModel) -> None:
        """Brings the disk to what the writers have: bytes are appended where that is all there is to do."""
        directory = self.source / model.name
        directory.mkdir(parents=True, exist_ok=True)
        for file in model.files:
            path = directory / file.name
            present = path.read_bytes() if path.exists() else b""
            if file.data != present:
                if present and file.data.startswith(present):
                    with path.open("ab") as grown:
                        grown.write(file.data[len(present) :])
                else:
                    path.write_bytes(file.data)


def _sizes(directory: Path) -> dict[Path, int]:
    return {path: path.stat().st_size for path in directory.rglob("*") if path.is_file()}


def _contents(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file() and STATE_NAME not in path.name}


def _difference(shown: Series, expected: Series) -> str:
    tags = [tag for tag in {*shown, *expected} if shown.get(tag) != expected.get(tag)]
    return "; ".join(f"{tag}: shown {shown.get(tag)}, expected {expected.get(tag)}" for tag in sorted(tags))


def _without_repeats(points: list[Point]) -> list[Point]:
    return [point for number, point in enumerate(points) if not number or points[number - 1] != point]


def _read_output(directory: Path, target: str) -> tuple[Series, Series]:
    """Returns all points of a run as the loader gives them, and those that are left after the marks of sessions."""
    shown: Series = {}
    left: Series = {}
    if not directory.is_dir():
        return shown, left
    load = _load_tensorboard if target == "tensorboard" else _load_mindspore
    for path in sorted(directory.iterdir()):
        if "tfevents" not in path.name and "summary" not in path.name.removeprefix(".ms_summary_bridge"):
            continue
        if path.name.startswith(("ms_summary_bridge", ".")):
            continue
        for step, values in load(path):
            if values is None:  # a session begins here: all that stands at this step or above is gone
                for points in left.values():
                    points[:] = [point for point in points if point[0] < step]
            for tag, value in values or ():
                shown.setdefault(tag, []).append((step, value))
                left.setdefault(tag, []).append((step, value))
    return shown, left


def _load_tensorboard(path: Path) -> Iterator[tuple[int, list[tuple[str, float]] | None]]:
    for event in _tensorboard_loader()(str(path)).Load():
        if event.WhichOneof("what") == "session_log" and event.session_log.status == 1:
            yield event.step, None
        elif event.WhichOneof("what") == "summary":
            yield event.step, [(value.tag, value.tensor.float_val[0]) for value in event.summary.value]


def _load_mindspore(path: Path) -> Iterator[tuple[int, list[tuple[str, float]] | None]]:
    for piece in RecordDecoder().feed(path.read_bytes()):
        assert isinstance(piece, Record)
        message = ms_pb.Event.FromString(piece.payload)
        if message.WhichOneof("what") == "summary":
            yield message.step, [(value.tag, value.scalar_value) for value in message.summary.value]


def _tensorboard_loader() -> Callable[[str], Any]:
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    return EventFileLoader


class BackMachine(ConversionMachine):
    """The same with TensorBoard's files, converted for MindInsight."""

    target = "mindinsight"
