"""Builds MindSpore summary files from values, for tests that are about what becomes of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from ms_summary_bridge.events import Event, FileVersion, Summary, TaggedValue
from ms_summary_bridge.files.records import encode_record
from ms_summary_bridge.formats.mindspore import FILE_VERSION, FORMAT, MindSporeEncoder
from ms_summary_bridge.values import Histogram, Image, Scalar, Tensor, Value

START = 1_700_000_000


def event(step: int, *values: tuple[str, Value], wall_time: float | None = None) -> Event:
    """Returns a summary event; its time is a second for each step unless it is given."""
    time = float(START + step) if wall_time is None else wall_time
    return Event(time, step, Summary(tuple(TaggedValue(tag, value) for tag, value in values)), FORMAT)


def summary_bytes(events: Iterable[Event], *, wall_time: float = START) -> bytes:
    """Returns a file: a version record and a record for each event."""
    encoder = MindSporeEncoder()
    head = Event(wall_time, 0, FileVersion(FILE_VERSION), FORMAT)
    payloads = [encoder.encode(item).payload for item in (head, *events)]
    return b"".join(encode_record(payload) for payload in payloads if payload is not None)


def summary_name(*, seconds: int = START, rank: int = 0, host: str = "host") -> str:
    """Returns the name MindSpore gives to a summary file."""
    return f"events.out.events.summary.{seconds}.{rank}.{host}_MS"


def write_summary(
    directory: Path, events: Iterable[Event], *, seconds: int = START, rank: int = 0, host: str = "host"
) -> Path:
    """Writes a summary file under the name MindSpore gives it; returns its path."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / summary_name(seconds=seconds, rank=rank, host=host)
    path.write_bytes(summary_bytes(events, wall_time=float(seconds)))
    return path


def scalar(value: float) -> Scalar:
    """Returns a float32 scalar."""
    return Scalar.from_float32(value)


def scalars(tag: str, steps: Iterable[int], *, offset: float = 0.0, start: float = START) -> list[Event]:
    """Returns one event with one scalar for each step, with the value step + offset."""
    return [event(step, (tag, scalar(step + offset)), wall_time=start + step) for step in steps]


def histogram(counts: Sequence[int], *, left: float = 0.0, width: float = 0.5, nan: int = 0) -> Histogram:
    """Returns a histogram with even buckets."""
    edges = left + width * np.arange(len(counts) + 1)
    return Histogram(
        left=edges[:-1].copy(),
        right=edges[:-1] + width,
        width=np.full(len(counts), width),
        count=np.array(counts, np.int64),
        min=float(edges[0]),
        max=float(edges[-1]),
        sum=1.0,
        total=sum(counts) + nan,
        nan_count=nan,
    )


PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de"
    "0000000c49444154789c63f8cfc0000003010100c9fe92ef0000000049454e44ae426082"
)


def image() -> Image:
    """Returns a PNG of one red pixel."""
    return Image(1, 1, 3, (PNG,))


def tensor(elements: Sequence[float]) -> Tensor:
    """Returns a float32 vector."""
    return Tensor(np.array(elements, np.float32), "float32")
