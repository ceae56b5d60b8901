"""The batch lane changes no byte: generated logs of every kind of oddity, converted with it and without it."""

from __future__ import annotations

import os
import random
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ms_summary_bridge.batches.limits import LIMITS, Limits
from ms_summary_bridge.batches.reader import Batch
from ms_summary_bridge.convert.batches import JudgedBatch, judge
from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.convert.series import SeriesTable
from ms_summary_bridge.convert.sink import RunSink
from ms_summary_bridge.convert.task import ConvertOptions
from ms_summary_bridge.errors import NoEventsError
from ms_summary_bridge.files.records import LARGE_BYTES, encode_record
from ms_summary_bridge.formats.wire import length_delimited, varint

_FILES = int(os.environ.get("MSB_BATCH_FILES", "400"))
"""Logs made; 10,000 and more were gone through with a larger number."""
_PER_TEST = 50

_TAGS = (
    b"loss", b"loss/auto", b"lr", b"a/b/c", b"", b" ", b"x" * 300, "损失/训练".encode(), b"\xff\xfe", b"accuracy",
    b"train loss", b"tag:with#signs", b"\0\0\0\0\0\0\0\0", encode_record(b"inside")[:20], b"b", b"c", b"d", b"e",
)  # fmt: skip


class LogFormat:
    """How one of the two formats writes an event."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.is_mindspore = target == "tensorboard"
        self.float_key = b"\x1d" if self.is_mindspore else b"\x15"

    def name(self, number: int) -> str:
        seconds = 1_700_000_000 + number
        if self.is_mindspore:
            return f"r.out.events.summary.{seconds}.0.host_MS"
        return f"events.out.tfevents.{seconds}.host.1.{number}"

    def version(self) -> bytes:
        text = b"MindSpore.Event:1" if self.is_mindspore else b"brain.Event:2"
        return b"\x09" + struct.pack("<d", 1e9) + length_delimited(b"\x1a", text)

    def value(self, tag: bytes, bits: bytes) -> bytes:
        return length_delimited(b"\x0a", tag) + self.float_key + bits

    def histogram(self, rng: random.Random, tag: bytes) -> bytes:
        """Returns a histogram as MindSpore writes it, now and then with something that it does not write."""
        count = rng.choice((1, 2, 9, 90))
        edge, out = rng.uniform(-5, 5), []
        for _ in range(count):
            width = rng.choice((0.1, 0.1, 0.25, 0.0, float("nan")) if rng.random() < 0.05 else (0.1, 0.25))
            number = varint(rng.choice((0, 1, 127, 128, 99999, 1 << 40, 1 << 55) if rng.random() < 0.1 else (3, 200)))
            bucket = b"\x09" + struct.pack("<d", edge) + b"\x11" + struct.pack("<d", width) + b"\x18" + number
            out.append(length_delimited(b"\x0a", bucket))
            edge += width
        lost = bytes(rng.choice((0, 0, 1)) for _ in range(3)) if rng.random() < 0.1 else bytes(3)
        message = b"".join(out) + b"\x10" + lost[:1] + b"\x18" + lost[1:2] + b"\x20" + lost[2:]
        for key in (b"\x29", b"\x31", b"\x39"):
            message += key + struct.pack("<d", rng.choice((1.5, -2.0, 0.0)))
        message += b"\x40" + varint(rng.choice((0, 5, 300, 1 << 50)))
        if rng.random() < 0.03:
            message = rng.choice((message + b"\x40\x01", message[30:], b"", message + b"\x5a\x00"))
        return length_delimited(b"\x0a", tag) + length_delimited(b"\x4a", message)

    def image(self, rng: random.Random, tag: bytes) -> bytes:
        """Returns an image, now and then with something that no encoder of ours writes."""
        width, height = rng.choice(((1, 1), (300, 200), (0, 0), (-1, 5)))
        head = struct.pack(">II", width & 0xFFFFFFFF, height & 0xFFFFFFFF)
        size = rng.choice((0, 20, 3000, 3000, 66_000, 200_000))
        data = (b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR" + head + b"\x08\x02" + rng.randbytes(size))[:size]
        fields = [b"\x08" + varint(height), b"\x10" + varint(width), b"\x18\x03", length_delimited(b"\x22", data)]
        if rng.random() < 0.1:
            changes = (fields[:3], fields[1:], fields[::-1], [*fields, fields[3]], [*fields, b"\x28\x01"])
            fields = rng.choice((*changes, [b"\x08\x81\x00", *fields[1:]], [*fields[:3], b"\x22\xff\xff"]))
        message = length_delimited(b"\x22", b"".join(fields))
        if rng.random() < 0.05:
            message = rng.choice((message + message, message + b"\xa0\x06\x01", b"\x22\x80"))
        return length_delimited(b"\x0a", tag) + message

    def event(self, wall_time: float, step: bytes, values: list[bytes], tail: bytes = b"") -> bytes:
        summary = b"".join(length_delimited(b"\x0a", value) for value in values)
        return b"\x09" + struct.pack("<d", wall_time) + step + length_delimited(b"\x2a", summary) + tail


def _odd(rng: random.Random, form: LogFormat, wall_time: float, step: int) -> bytes:
    """Returns a payload that is no plain event of scalars."""
    value = form.value(rng.choice(_TAGS), rng.randbytes(4))
    key = b"\x10" + varint(step)
    made = [
        form.event(wall_time, b"\x10\x00", [value]),
        form.event(wall_time, b"", [value]),
        form.event(wall_time, b"\x10" + bytes([step & 0x7F | 0x80, 0x80, 0x00]), [value]),
        form.event(wall_time, b"\x10" + b"\xff" * 9 + b"\x01", [value]),
        form.event(rng.choice((float("nan"), float("inf"), -0.0, 1e300)), key, [value]),
        form.event(wall_time, key, [value, value]),
        form.event(wall_time, key, [value], b"\xa0\x06\x01"),
        form.event(wall_time, key, [value + b"\x0a\x01z"]),
        form.event(wall_time, key, []),
        form.event(wall_time, key, [length_delimited(b"\x0a", b"text") + length_delimited(b"\x42", b"\x08\x01")]),
        length_delimited(b"\x2a", length_delimited(b"\x0a", value)),
        b"\x09" + struct.pack("<d", wall_time) + key + length_delimited(b"\x22", b"\x0a\x00"),
        form.version(),
        b"",
        rng.randbytes(rng.randrange(60)),
    ]
    return rng.choice(made)


def _payloads(rng: random.Random, form: LogFormat, first_step: int, count: int) -> Iterator[bytes]:
    """Yields the payloads of one file: scalars of a few shapes in turn, with an oddity here and there."""
    kinds = [rng.sample(_TAGS, rng.choice((1, 1, 1, 2, 5, 18))) for _ in range(rng.randint(1, 4))]
    oddities = rng.choice((0.0, 0.0, 0.01, 0.1))
    repeats = rng.choice((0.0, 0.0, 0.02, 0.2))
    stride = rng.choice((1, 1, 10, 0))
    histograms = rng.choice(((), (), (b"w",), (b"w", b"layer/bias", b"loss")))
    images = rng.choice(((), (), (b"img",), (b"img", b"loss", b"\xff")))
    step, wall_time = first_step, 1.6e9 + first_step
    last = b""
    yield form.version()
    for number in range(count):
        wall_time += rng.choice((0.25, 0.0, -0.001))
        if number % len(kinds) == 0:
            step += stride or rng.choice((0, 1, 1, 1, 2, 127, -3))
            step = max(step, 0)
        if rng.random() < oddities:
            yield _odd(rng, form, wall_time, step)
        if last and rng.random() < repeats:
            yield last if rng.random() < 0.5 else last[:-4] + rng.randbytes(4)
            continue
        bits = [rng.choice((rng.randbytes(4), b"\0\0\x80\x3f", b"\1\0\xc0\x7f")) for _ in kinds[number % len(kinds)]]
        tags = kinds[number % len(kinds)]
        if form.is_mindspore and histograms and number % 3 == 0:
            values = [form.histogram(rng, tag) for tag in histograms] + [form.value(tags[0], bits[0])] * (number % 2)
            last = form.event(wall_time, b"\x10" + varint(step), values)
            yield last
            continue
        if images and number % 4 == 1:
            shown = images if rng.random() < 0.2 else images[:1]
            values = [form.image(rng, tag) for tag in shown] + [form.value(tags[0], bits[0])] * (rng.random() < 0.2)
            last = form.event(wall_time, b"\x10" + varint(step), values)
            yield last
            continue
        key = b"\x10" + varint(step) if step or form.is_mindspore else b""
        last = form.event(wall_time, key, [form.value(tag, one) for tag, one in zip(tags, bits, strict=True)])
        yield last


def _damaged(rng: random.Random, data: bytes) -> bytes:
    """Returns a file's bytes, in one of three cases with something wrong."""
    how = rng.randrange(9)
    place = rng.randrange(len(data))
    if how == 0:
        return data[:place]
    if how == 1:
        return data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1 :]
    if how == 2:
        return data[:place] + rng.choice((bytes(rng.randrange(40)), rng.randbytes(9), data[:50])) + data[place:]
    return data


def write_odd_run(rng: random.Random, form: LogFormat, directory: Path) -> list[tuple[Path, bytes]]:
    """Writes a run but for the end of each file; returns these ends."""
    directory.mkdir(parents=True)
    rests = []
    step = 0
    for number in range(rng.choice((1, 1, 2, 3))):
        count = rng.choice((5, 60, 200))
        data = b"".join(map(encode_record, _payloads(rng, form, step, count)))
        data = _damaged(rng, data)
        middle = rng.choice((len(data), rng.randrange(len(data) + 1)))
        path = directory / form.name(number)
        path.write_bytes(data[:middle])
        rests.append((path, data[middle:]))
        step = rng.choice((0, step + count, count // 2))
    return rests


def _tree(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def _convert(source: Path, out: Path, form: LogFormat, options: ConvertOptions) -> tuple[object, dict[str, bytes]]:
    try:
        report = convert_logdir(source, out, to=form.target, options=options)
    except NoEventsError as error:  # all of it is damaged
        return str(error), _tree(out)
    return msgspec.to_builtins(report), _tree(out)


@pytest.fixture
def limits() -> Iterator[Limits]:
    before = msgspec.structs.asdict(LIMITS)
    yield LIMITS
    for name, value in before.items():
        setattr(LIMITS, name, value)


@pytest.mark.parametrize("first", range(0, _FILES, _PER_TEST))
def test_the_batch_lane_changes_no_byte(
    first: int, tmp_path: Path, limits: Limits, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[bool] = []

    def counted(batch: Batch, series: SeriesTable) -> JudgedBatch | None:
        result = judge(batch, series)
        judged.append(result is not None)
        return result

    monkeypatch.setattr("ms_summary_bridge.convert.lane.judge", counted)
    drawn: list[bool] = []
    observe = SeriesTable.observe_drawn

    def observed(*arguments: Any) -> bool:
        drawn.append(observe(*arguments))
        return drawn[-1]

    monkeypatch.setattr(SeriesTable, "observe_drawn", observed)
    copied: list[int] = []  # bytes of events that are the same in both forms
    write_drawn = RunSink.write_drawn

    def written(sink: RunSink, payload: bytes, checksum: int) -> None:
        if b"IHDR" in payload:
            copied.append(len(payload))
        write_drawn(sink, payload, checksum)

    monkeypatch.setattr(RunSink, "write_drawn", written)
    for seed in range(first, first + _PER_TEST):
        rng = random.Random(seed)
        form = LogFormat(rng.choice(("tensorboard", "mindinsight")))
        source, out = tmp_path / "run", tmp_path / "out"
        rests = write_odd_run(rng, form, source)
        options = ConvertOptions(
            on_restart=rng.choice(("mark", "mark", "latest")),
            tags=rng.choice(("", "", "", "a|loss")),
            keep_archive=rng.random() < 0.8,
            grows=rng.random() < 0.3,
        )
        limits.fewest, limits.patience = rng.choice(((1, 1), (4, 3), (32, 64)))
        limits.chunk_bytes = rng.choice((100, 3000, 1 << 20))
        found = []
        for is_used in (False, True):
            limits.is_used = is_used
            found.append([_convert(source, out, form, options)])
            for path, rest in rests:
                path.write_bytes(path.read_bytes() + rest)
            found[-1].append(_convert(source, out, form, options))
            for path, rest in rests:
                path.write_bytes(path.read_bytes()[: path.stat().st_size - len(rest)])
            shutil.rmtree(out, ignore_errors=True)
        assert found[0] == found[1], f"seed {seed}"
        shutil.rmtree(source)
    assert judged.count(True) > 20  # it was used
    assert drawn.count(True) > 5
    assert min(copied) < LARGE_BYTES < max(copied)
