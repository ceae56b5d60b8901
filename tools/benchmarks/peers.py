"""What is measured beside us, each as a program of its own: `peers.py NAME SOURCE [DESTINATION]`.

Each prints how many values it met, and imports what it needs alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any


def read_payloads(path: Path) -> Iterator[bytes]:
    """Yields the payloads of a summary file as scripts read them: the checksums are passed over."""
    with path.open("rb") as file:
        while header := file.read(12):
            yield file.read(int.from_bytes(header[:8], "little"))
            file.read(4)


def naive_loop(source: str, destination: str) -> int:
    """Converts a run of MindSpore as people do by hand: message classes, and tensorboardX's SummaryWriter."""
    from google.protobuf.internal import api_implementation
    from tensorboardX import SummaryWriter

    from ms_summary_bridge.formats.protos import ms_pb

    if api_implementation.Type() != "upb":
        raise SystemExit(f"protobuf runs as {api_implementation.Type()!r}; the loop by hand is to run under upb")
    (path,) = Path(source).iterdir()
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
    writer.close()
    return count


def event_file_loader(source: str) -> int:
    """Reads a log with TensorBoard's EventFileLoader, and does nothing with what comes."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    (path,) = Path(source).iterdir()
    return sum(len(event.summary.value) for event in EventFileLoader(str(path)).Load())


def event_accumulator(source: str) -> int:
    """Reads all scalars of a log with TensorBoard's EventAccumulator, into arrays."""
    import numpy as np
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(source, size_guidance={"scalars": 0})
    accumulator.Reload()
    tables = [np.array(accumulator.Scalars(tag)) for tag in accumulator.Tags()["scalars"]]
    return sum(len(table) for table in tables)


def tbparse(source: str) -> int:
    """Reads all scalars of a log with tbparse, into a pandas frame."""
    from tbparse import SummaryReader

    return len(SummaryReader(source, extra_columns={"wall_time"}).scalars)


def ours_read(source: str) -> int:
    """Reads all scalars of a log into arrays, with `read_scalars`."""
    from ms_summary_bridge import read_scalars

    return len(read_scalars(source))


PEERS: dict[str, Callable[..., Any]] = {
    leg.__name__: leg for leg in (naive_loop, event_file_loader, event_accumulator, tbparse, ours_read)
}

if __name__ == "__main__":
    print(PEERS[sys.argv[1]](*sys.argv[2:]))
