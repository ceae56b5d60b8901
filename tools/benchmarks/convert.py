"""Speed of `convert` against the loop that people write by hand.

Ours is the library's `convert_logdir` on one MindSpore summary file, in this process alone, into a fresh directory:
both checksums of every record verified, repeats and restarts watched, an archive for what cannot be held, state saved.

The loop by hand reads the records without looking at a checksum, parses them with protobuf's message classes under
upb, and gives each value to a tensorboardX SummaryWriter: add_scalar, add_histogram_raw, and add_image with the
pixels that pillow decodes from the PNG.
"""

from __future__ import annotations

import argparse
import io
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
from google.protobuf.internal import api_implementation
from PIL import Image
from rich.console import Console
from rich.table import Table
from tensorboardX import SummaryWriter

from benchmarks.measure import Spread, measure, measure_pairs, spread
from benchmarks.summary_files import (
    FILE_NAME,
    histogram_summaries,
    image_summaries,
    read_payloads,
    scalar_summaries,
    write_summary_file,
)
from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.files.event_file import EventFileReader
from ms_summary_bridge.formats.mindspore import MindSporeDecoder
from ms_summary_bridge.formats.protos import ms_pb
from ms_summary_bridge.formats.tensorboard import TensorBoardDecoder

NAME = "convert"


class Case(msgspec.Struct, frozen=True):
    """One kind of file."""

    name: str
    kind: str
    make: Callable[[], list[bytes]]
    events: int
    """How many to write; chosen so that a leg takes one to some seconds."""
    target: float
    """How many times faster than the loop by hand ours has to be; 0 for a case that is information only."""
    values_per_event: int = 1


CASES = (
    Case("scalars, 1 an event", "scalar", partial(scalar_summaries, 1), 40_000, 8.0),
    Case("scalars, 8 an event", "scalar", partial(scalar_summaries, 8), 5_000, 0.0, 8),
    Case("histograms, 90 buckets", "histogram", histogram_summaries, 5_000, 1.5),
    Case("images, 28 to 224 pixels", "image", image_summaries, 500, 2.0),
)


class Result(msgspec.Struct):
    """What was measured of one case."""

    case: str
    values: int
    target: float
    ratio: Spread
    cpu_ratio: Spread
    """The same of processor time, which a busy machine disturbs less."""
    ours_secs: Spread
    theirs_secs: Spread
    values_per_sec: float
    is_met: bool


class ReaderResult(msgspec.Struct):
    """How fast one reader takes a file apart; information only."""

    reader: str
    file: str
    records_per_sec: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this benchmark."""
    parser.add_argument("--pairs", type=int, default=5, help="how often each leg runs (default 5)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only the cases whose name holds TEXT")
    parser.add_argument("--quick", action="store_true", help="tiny files, 2 pairs, no verdict: does it run at all?")


def run(arguments: argparse.Namespace) -> int:
    """Measures and prints; returns 1 when a target is missed."""
    if api_implementation.Type() != "upb":
        print(
            f"bench: protobuf runs as {api_implementation.Type()!r}; the loop by hand is to run under upb",
            file=sys.stderr,
        )
        return 2
    console = Console(stderr=True)
    pairs = 2 if arguments.quick else max(arguments.pairs, 1)
    results: list[Result] = []
    readers: list[ReaderResult] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        for case in CASES:
            if arguments.only not in case.name:
                continue
            events = max(case.events // 100, 20) if arguments.quick else case.events
            result, source, output = _measure_case(case, events, pairs, Path(scratch) / case.name, console)
            results.append(result)
            if case.kind == "scalar" and case.values_per_event == 1:
                readers = _measure_readers(source, output, events)
            shutil.rmtree(Path(scratch) / case.name)
    if arguments.json:
        print(msgspec.json.encode({"convert": results, "readers": readers, "protobuf": "upb"}).decode())
    else:
        _print_results(results, readers, is_judged=not arguments.quick)
    return 0 if arguments.quick or all(result.is_met for result in results) else 1


def _measure_case(case: Case, events: int, pairs: int, room: Path, console: Console) -> tuple[Result, Path, Path]:
    """Returns the result, the file that was converted and a directory it was converted into."""
    write_summary_file(room / "source", case.make(), events=events)
    values = events * case.values_per_event
    console.print(f"{case.name}: {values} values")
    numbers = iter(range(1 << 30))

    def ours() -> None:
        report = convert_logdir(str(room / "source"), str(room / f"ours{next(numbers)}"), to="tensorboard", workers=1)
        (converted,) = report.runs
        if converted.failed or converted.values.get(case.kind) != values:
            raise AssertionError(f"{case.name}: converted {converted.values} {converted.failed}")

    def theirs() -> None:
        written = convert_by_hand(room / "source" / FILE_NAME, str(room / f"theirs{next(numbers)}"))
        if written != values:
            raise AssertionError(f"{case.name}: the loop by hand wrote {written} of {values}")

    measured = measure_pairs(ours, theirs, pairs, lambda text: console.print(f"  {text}"))
    ratio = spread(measured.ratios)
    ours_secs = spread([seconds.wall for seconds in measured.ours])
    result = Result(
        case=case.name,
        values=values,
        target=case.target,
        ratio=ratio,
        cpu_ratio=spread(measured.cpu_ratios),
        ours_secs=ours_secs,
        theirs_secs=spread([seconds.wall for seconds in measured.theirs]),
        values_per_sec=values / ours_secs.median,
        is_met=ratio.median >= case.target,
    )
    return result, room / "source" / FILE_NAME, room / "ours0"


def convert_by_hand(path: Path, destination: str) -> int:
    """Converts a summary file as people do today; returns the number of values."""
    count = 0
    event = ms_pb.Event()
    writer = SummaryWriter(destination)
    for payload in read_payloads(path):
        event.ParseFromString(payload)
        step, wall_time = event.step, event.wall_time
        for value in event.summary.value:
            kind = value.WhichOneof("value")
            count += 1
            if kind == "scalar_value":
                writer.add_scalar(value.tag, value.scalar_value, step, wall_time)
            elif kind == "histogram":
                histogram = value.histogram
                writer.add_histogram_raw(
                    value.tag,
                    min=histogram.min,
                    max=histogram.max,
                    num=histogram.count,
                    sum=histogram.sum,
                    sum_squares=0.0,
                    bucket_limits=[bucket.left + bucket.width for bucket in histogram.buckets],
                    bucket_counts=[bucket.count for bucket in histogram.buckets],
                    global_step=step,
                    walltime=wall_time,
                )
            elif kind == "image":
                pixels = np.asarray(Image.open(io.BytesIO(value.image.encoded_image)))
                writer.add_image(value.tag, pixels, step, wall_time, dataformats="HWC")
    writer.close()
    return count


def _measure_readers(source: Path, output: Path, events: int) -> list[ReaderResult]:
    """Measures how fast our readers and others take apart the same scalars."""
    (converted,) = output.glob("*tfevents*")

    def parse() -> None:
        for payload in read_payloads(source):
            ms_pb.Event.FromString(payload)

    legs: list[tuple[str, str, Callable[[], object]]] = [
        ("ours, both checksums", "MindSpore", lambda: sum(1 for _ in EventFileReader(source, MindSporeDecoder()))),
        ("records and upb, no checksum", "MindSpore", parse),
        (
            "ours, both checksums",
            "TensorBoard",
            lambda: sum(1 for _ in EventFileReader(converted, TensorBoardDecoder())),
        ),
    ]
    try:
        from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    except ImportError:
        pass
    else:
        loader = EventFileLoader(str(converted))
        legs.append(("TensorBoard's EventFileLoader", "TensorBoard", lambda: sum(1 for _ in loader.Load())))
    return [ReaderResult(reader, file, events / measure(leg).wall) for reader, file, leg in legs]


def _print_results(results: list[Result], readers: list[ReaderResult], *, is_judged: bool) -> None:
    console = Console()
    table = Table(title="convert: how many times faster than the loop by hand (protobuf under upb)")
    for heading in (
        "case",
        "ratio min / median / max",
        "of CPU time",
        "target",
        "ours s",
        "by hand s",
        "ours values/s",
        "",
    ):
        table.add_column(heading, justify="left" if heading in ("case", "") else "right")
    for result in results:
        verdict = "" if not result.target or not is_judged else "met" if result.is_met else "MISSED"
        target = f"{result.target:g}" if result.target else "-"
        seconds = (f"{result.ours_secs.median:.2f}", f"{result.theirs_secs.median:.2f}")
        table.add_row(
            result.case,
            str(result.ratio),
            str(result.cpu_ratio),
            target,
            *seconds,
            f"{result.values_per_sec:,.0f}",
            verdict,
        )
    console.print(table)
    if not readers:
        return
    table = Table(title="readers, 1 scalar an event (information)")
    for heading in ("reader", "file", "records/s"):
        table.add_column(heading, justify="right" if heading == "records/s" else "left")
    for reader in readers:
        table.add_row(reader.reader, reader.file, f"{reader.records_per_sec:,.0f}")
    console.print(table)
