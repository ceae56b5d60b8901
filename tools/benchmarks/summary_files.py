"""Summary files as MindSpore writes them, of one kind of value each, of any length, made quickly.

The messages are built by the message classes and not by the codec that is measured.
"""

from __future__ import annotations

import io
import math
import struct
from itertools import cycle
from pathlib import Path

import numpy as np
from PIL import Image

from ms_summary_bridge.files.records import encode_record
from ms_summary_bridge.formats.protos import ms_pb, tb_pb
from ms_summary_bridge.formats.wire import length_delimited, varint

FILE_NAME = "bench.out.events.summary.1700000000.0.bench_MS"
LOG_NAME = "events.out.tfevents.1700000000.bench"

_START = 1_700_000_000.0
_SCALAR_TAGS = (
    "loss/auto",
    "learning_rate",
    "step_time",
    "samples_per_second",
    "grad_norm",
    "accuracy",
    "scale",
    "mean",
)
_BUFFER_BYTES = 1 << 22
_WALL_TIME = struct.Struct("<d")
_MAX_BUCKETS = 90  # as MindSpore's writer has them: one for ten values, and no more than these


def scalar_summaries(values_per_event: int, count: int = 997) -> list[bytes]:
    """Returns summaries with scalars under `_SCALAR_TAGS` in turn."""
    rng = np.random.default_rng(1)
    tags = cycle(_SCALAR_TAGS)
    summaries = []
    for _ in range(count):
        summary = ms_pb.Summary()
        for number in rng.normal(size=values_per_event):
            summary.value.add(tag=next(tags), scalar_value=number)
        summaries.append(summary.SerializeToString())
    return summaries


def histogram_summaries(count: int = 100) -> list[bytes]:
    """Returns summaries with the histogram of 1e3 to 1e6 normal values each, as of the weights of a layer."""
    rng = np.random.default_rng(2)
    summaries = []
    for index in range(count):
        size = int(10 ** rng.uniform(3, 6))
        values = rng.normal(0.0, 10 ** rng.uniform(-3, 0), size).astype(np.float32)
        summary = ms_pb.Summary()
        histogram = summary.value.add(tag=f"layer{index % 8}.weight/auto").histogram
        counts, edges = np.histogram(values, min(math.ceil(size / 10), _MAX_BUCKETS))
        for left, right, number in zip(edges[:-1], edges[1:], counts, strict=True):
            histogram.buckets.add(left=left, width=right - left, count=int(number))
        histogram.nan_count = histogram.pos_inf_count = histogram.neg_inf_count = 0
        histogram.max, histogram.min, histogram.sum = (float(x) for x in (values.max(), values.min(), values.sum()))
        histogram.count = size
        summaries.append(summary.SerializeToString())
    return summaries


def image_summaries(sides: tuple[int, ...] = (28, 64, 112, 224), count: int = 24) -> list[bytes]:
    """Returns summaries with RGB PNGs of these sides in turn: gradients under noise, which compress by about a half."""
    rng = np.random.default_rng(3)
    summaries = []
    for index in range(count):
        side = sides[index % len(sides)]
        slope = np.linspace(0, 200, side)[:, None, None] * rng.random((1, side, 3))
        pixels = (slope + rng.integers(0, 40, (side, side, 3))).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "PNG")
        summary = ms_pb.Summary()
        image = summary.value.add(tag=f"input{index % 4}/auto").image
        image.height = image.width = side
        image.colorspace = 3
        image.encoded_image = file.getvalue()
        summaries.append(summary.SerializeToString())
    return summaries


def tensor_summaries(count: int = 16) -> list[bytes]:
    """Returns summaries with float32 tensors of shape [128, 1024], half a MiB each."""
    rng = np.random.default_rng(5)
    summaries = []
    for index in range(count):
        summary = ms_pb.Summary()
        tensor = summary.value.add(tag=f"layer{index % 4}.weight/auto").tensor
        tensor.dims.extend((128, 1024))
        tensor.data_type = ms_pb.DataType.DT_FLOAT32
        tensor.float_data.extend(rng.normal(size=128 * 1024).astype(np.float32).tolist())
        summaries.append(summary.SerializeToString())
    return summaries


def mixed_summaries() -> list[bytes]:
    """Returns summaries of all these kinds, images of up to some 100 KiB among them."""
    scalars = scalar_summaries(1, 600) + scalar_summaries(8, 200)
    images = image_summaries((64, 224, 320, 448), 16)
    summaries = [*scalars, *histogram_summaries(80), *images]
    order = np.random.default_rng(4).permutation(len(summaries))
    return [summaries[index] for index in order]


def write_summary_file(directory: Path, summaries: list[bytes], *, events: int = 0, size: int = 0) -> int:
    """Writes a summary file with these summaries again and again, at increasing steps and times.

    Args:
        directory: Where to make it.
        summaries: Encoded `Summary` messages.
        events: How many to write.
        size: How many bytes to reach instead.

    Returns:
        The number of events with a summary.
    """
    bodies = cycle([b"\x2a" + varint(len(summary)) + summary for summary in summaries])
    directory.mkdir(parents=True, exist_ok=True)
    written = step = 0
    with (directory / FILE_NAME).open("wb", buffering=_BUFFER_BYTES) as file:
        written += file.write(
            encode_record(ms_pb.Event(wall_time=_START, version="MindSpore.Event:1").SerializeToString())
        )
        while step < events or written < size:
            step += 1
            head = b"\x09" + _WALL_TIME.pack(_START + step * 0.01) + b"\x10" + varint(step)
            written += file.write(encode_record(head + next(bodies)))
    return step


def write_scalar_log(directory: Path, *, events: int) -> None:
    """Writes a TensorBoard log with one scalar an event, at the steps and times of `write_summary_file`."""
    rng = np.random.default_rng(1)
    tags = cycle([length_delimited(b"\x0a", tag.encode()) for tag in _SCALAR_TAGS])
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / LOG_NAME).open("wb", buffering=_BUFFER_BYTES) as file:
        file.write(encode_record(tb_pb.Event(wall_time=_START, file_version="brain.Event:2").SerializeToString()))
        for step, number in enumerate(rng.normal(size=events).astype("<f4"), 1):
            value = length_delimited(b"\x0a", next(tags) + b"\x15" + number.tobytes())
            head = b"\x09" + _WALL_TIME.pack(_START + step * 0.01) + b"\x10" + varint(step)
            file.write(encode_record(head + length_delimited(b"\x2a", value)))
