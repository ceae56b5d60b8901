"""Asks both viewers, TensorBoard and MindInsight, whether they show what is in the files of a training.

Part of `tools/quickstart --check`. Every series is asked for over HTTP and gets a line of its own.
"""

from __future__ import annotations

import contextlib
import math
import struct
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.mindinsight_api import MindInsightClient, MindInsightError, running_mindinsight
from tools.tensorboard_api import TensorBoardClient, TensorBoardError, running_tensorboard

if TYPE_CHECKING:
    from ms_summary_bridge.values import Value

READING_LIMIT_SECS = 60  # how long TensorBoard may take to read the files
# TensorBoard shows a sample of long series (10 images, for one). The check wants to see all there is.
ALL_SAMPLES = "scalars=100000,histograms=100000,images=100000,text=100000"
# What MindInsight shows of a long series cannot be changed.
MINDINSIGHT_SAMPLES = {"scalar": 1000, "histogram": 50, "image": 10, "tensor": 20}

Series = dict[tuple[str, str], dict[int, "Value"]]
"""Values by (kind, tag) and step."""

# Each check returns what a viewer shows and what it should show, both as (step, value) pairs.
Pairs = list[tuple[int, Any]]


class CheckError(Exception):
    """A viewer does not show what it should, or did not start."""


def read_series(directory: Path) -> Series:
    """Returns what the files of a run hold; of a value written twice for one step, one."""
    from ms_summary_bridge.events import Event, iter_points
    from ms_summary_bridge.files.event_file import EventFileReader
    from ms_summary_bridge.runs.archive import make_decoder
    from ms_summary_bridge.runs.logdir import discover

    series: Series = {}
    for run in discover(str(directory)).runs:
        for file in run.files:
            with EventFileReader(file.path, make_decoder(run.format)) as reader:
                for item in reader:
                    for point in iter_points(item) if isinstance(item, Event) else ():
                        if point.value.kind in MINDINSIGHT_SAMPLES:
                            series.setdefault((point.value.kind, point.tag), {})[point.step] = point.value
    return series


def line_of(where: str, kind: str, tag: str, what: str, found: Pairs, wanted: Pairs) -> tuple[bool, str]:
    """Returns whether a series is shown as it should be, and the line that says so."""
    head = f"{where:<21}  {kind:<9}  {tag:<22}"
    if found == wanted:
        return True, f"ok     {head}  {len(wanted):>4} x {what}"
    differing = [step for step, value in wanted if (step, value) not in found]
    how = f", other or no values at the steps {differing[:10]}" if differing else ", in another order"
    return False, f"WRONG  {head}  {len(found)} of {len(wanted)} are shown{how}"


# ---------------------------------------------------------------- TensorBoard


class Asker:
    """Waits for series of one run to be complete, but for all of them together no longer than a minute."""

    def __init__(self, client: TensorBoardClient, run: str) -> None:
        self._client = client
        self._run = run
        self._deadline = time.monotonic() + READING_LIMIT_SECS

    def rows(self, plugin: str, tag: str, count: int, **query: int) -> list[Any]:
        """Returns the points of a series as soon as there are `count`, or those that are there in the end."""

        def ask() -> Any:
            if plugin == "histograms":
                return self._client.get_histograms(self._run, tag)
            return self._client.get_json(f"data/plugin/{plugin}/{plugin}", run=self._run, tag=tag, **query)

        last: list[Any] = []

        def is_whole(rows: list[Any]) -> bool:
            last[:] = rows
            return len(rows) >= count

        with contextlib.suppress(TensorBoardError):
            self._client.wait(ask, is_whole, timeout_secs=max(0.0, self._deadline - time.monotonic()))
        return last

    def image(self, query: str) -> bytes:
        """Returns the file of one image."""
        return self._client.get(f"data/plugin/images/individualImage?{query}")

    def graph(self) -> str:
        """Returns the graph as text, empty if none is shown."""
        path = f"data/plugin/graphs/graph?run={self._run}&large_attrs_key=_&limit_attr_size=1024"
        with contextlib.suppress(TensorBoardError):
            remaining = max(0.0, self._deadline - time.monotonic())
            text: bytes = self._client.wait(lambda: self._client.get(path), timeout_secs=remaining)
            return text.decode()
        return ""


def scalars(asker: Asker, tag: str, values: dict[int, Any]) -> tuple[Pairs, Pairs]:
    """The float32 bits at each step."""
    rows = asker.rows("scalars", tag, len(values))
    return [(step, struct.pack("<f", float(value))) for _, step, value in rows], [
        (step, value.bits) for step, value in values.items()
    ]


def histograms(asker: Asker, tag: str, values: dict[int, Any]) -> tuple[Pairs, Pairs]:
    """The edges and counts at each step."""
    rows = asker.rows("histograms", tag, len(values))
    return [(step, buckets) for _, step, buckets in rows], [
        (step, [list(bucket) for bucket in zip(v.left.tolist(), v.right.tolist(), v.count.tolist(), strict=True)])
        for step, v in values.items()
    ]


def images(asker: Asker, tag: str, values: dict[int, Any]) -> tuple[Pairs, Pairs]:
    """The bytes of each PNG file."""
    rows = asker.rows("images", tag, len(values), sample=0)
    return [(row["step"], asker.image(row["query"])) for row in rows], [
        (step, value.encoded[0]) for step, value in values.items()
    ]


def tables(asker: Asker, tag: str, values: dict[int, Any]) -> tuple[Pairs, Pairs]:
    """The shape, smallest and largest element that the table of each tensor tells."""
    told = {
        step: [" x ".join(map(str, v.array.shape)), f"{float(v.array.min()):.6g}", f"{float(v.array.max()):.6g}"]
        for step, v in values.items()
    }
    rows = asker.rows("text", tag, len(values))
    found = [
        (row["step"], [cell for cell in told.get(row["step"], ()) if f"<td>{cell}</td>" in row["text"]]) for row in rows
    ]
    return found, list(told.items())


CHECKS: dict[str, tuple[str, Callable[[Asker, str, dict[int, Any]], tuple[Pairs, Pairs]]]] = {
    "scalar": ("same float32 bits", scalars),
    "histogram": ("same edges and counts", histograms),
    "image": ("same PNG bytes", images),
    "tensor": ("table tells its shape and range", tables),
}


def milestones(asker: Asker) -> tuple[Pairs, Pairs]:
    """What the callback said of the beginning and the end of the training."""
    said = ("training begins", "training ends")
    rows = asker.rows("text", "milestones/training", len(said))
    text = " ".join(str(row["text"]) for row in rows)
    return [(0, [words for words in said if words in text])], [(0, list(said))]


def check_tensorboard(logdir: Path, runs: dict[str, str], series: Series, log_path: Path, *, load_fast: bool) -> int:
    """Asks one of TensorBoard's loaders for every series of each run.

    Args:
        logdir: What TensorBoard is started on.
        runs: Names of the runs, `live` and `converted`, which both are to show `series`.
        series: What MindSpore's files hold.
        log_path: Where TensorBoard's own output goes.
        load_fast: Chooses the loader.

    Returns:
        How many series are not shown as they should be.

    Raises:
        CheckError: TensorBoard does not start.
    """
    loader = "fast" if load_fast else "slow"
    options = ("--samples_per_plugin", ALL_SAMPLES)
    is_right: list[bool] = []

    def say(result: tuple[bool, str]) -> None:
        is_right.append(result[0])
        print(f"   {result[1]}", flush=True)

    try:
        with running_tensorboard(logdir, log_path, load_fast=load_fast, options=options) as client:
            for name, run in runs.items():
                where = f"{loader}/{name}"
                asker = Asker(client, run)
                for (kind, tag), values in sorted(series.items()):
                    what, check = CHECKS[kind]
                    say(line_of(where, kind, tag, what, *check(asker, tag, values)))
                nodes = asker.graph().count("node {")
                say(line_of(where, "graph", "", f"drawn, of {nodes} nodes", [(0, nodes > 0)], [(0, True)]))
                if name == "live":
                    say(line_of(where, "text", "milestones", "beginning and end", *milestones(asker)))
    except (TensorBoardError, OSError) as error:
        raise CheckError(str(error)) from error
    return is_right.count(False)


# ---------------------------------------------------------------- MindInsight


def _sample(kind: str, shown: Collection[int], values: dict[int, Any]) -> dict[int, Any]:
    """Returns the values to compare: of a long series those that MindInsight has chosen, if it shows enough of them."""
    if len(shown) == min(len(values), MINDINSIGHT_SAMPLES[kind]):
        return {step: value for step, value in values.items() if step in shown}
    return values


def mindinsight_scalars(client: MindInsightClient, job: str, tag: str, values: dict[int, Any]) -> tuple[Pairs, Pairs]:
    """The number at each step. MindInsight has no number for NaN and infinities."""
    found = client.scalars(job, tag)
    wanted = _sample("scalar", [step for step, _ in found], values)
    return list(found), [(step, v.value if math.isfinite(v.value) else None) for step, v in wanted.items()]


def mindinsight_histograms(
    client: MindInsightClient, job: str, tag: str, values: dict[int, Any]
) -> tuple[Pairs, Pairs]:
    """How many elements there are at each step: it redraws them in bins of its own, and rounds what is in each."""
    rows = client.histograms(job, tag)
    wanted = _sample("histogram", [row["step"] for row in rows], values)
    totals = {step: float(v.count.sum()) for step, v in wanted.items()}
    found: Pairs = []
    for row in rows:
        shown, total = sum(bucket[2] for bucket in row["buckets"]), totals.get(row["step"], math.nan)
        found.append((row["step"], total if abs(shown - total) <= len(row["buckets"]) else shown))
    return found, list(totals.items())


def mindinsight_images(client: MindInsightClient, job: str, tag: str, values: dict[int, Any]) -> tuple[Pairs, Pairs]:
    """The bytes of each PNG file."""
    found = client.images(job, tag)
    wanted = _sample("image", [step for step, _ in found], values)
    return list(found), [(step, value.encoded[0]) for step, value in wanted.items()]


def mindinsight_tensors(client: MindInsightClient, job: str, tag: str, values: dict[int, Any]) -> tuple[Pairs, Pairs]:
    """The elements of each tensor, which has two axes in this training."""
    wanted = dict(list(values.items())[-MINDINSIGHT_SAMPLES["tensor"] :])
    return [(step, client.tensor(job, tag, step, "[:, :]")) for step in wanted], [
        (step, value.array.tolist()) for step, value in wanted.items()
    ]


MINDINSIGHT_CHECKS: dict[
    str, tuple[str, Callable[[MindInsightClient, str, str, dict[int, Any]], tuple[Pairs, Pairs]]]
] = {
    "scalar": ("same float32 value", mindinsight_scalars),
    "histogram": ("same number of elements", mindinsight_histograms),
    "image": ("same PNG bytes", mindinsight_images),
    "tensor": ("same elements", mindinsight_tensors),
}


def check_mindinsight(base_dir: Path, job: str, series: Series, workspace: Path, where: str) -> int:
    """Asks MindInsight for every series of a training.

    Args:
        base_dir: What MindInsight is started on.
        job: Its name of the training, `./run_1`.
        series: What the training's files hold.
        workspace: For MindInsight's own files.
        where: Begins each line.

    Returns:
        How many series are not shown as they should be.

    Raises:
        CheckError: MindInsight does not start, or does not list the training.
    """
    wrong = 0
    names = {kind: {f"{tag}/{kind}" for of, tag in series if of == kind} for kind in MINDINSIGHT_CHECKS}
    try:
        with running_mindinsight(base_dir, workspace) as client:
            client.wait_job(job, lambda found: all(names[kind] <= set(found["plugins"][kind]) for kind in names))
            for (kind, tag), values in sorted(series.items()):
                what, check = MINDINSIGHT_CHECKS[kind]
                is_right, line = line_of(where, kind, tag, what, *check(client, job, tag, values))
                wrong += not is_right
                print(f"   {line}", flush=True)
    except (MindInsightError, OSError) as error:
        raise CheckError(str(error)) from error
    return wrong


def write_tensorboardx(directory: Path) -> None:
    """Writes a small run as other frameworks' users have it, with tensorboardX."""
    import numpy as np
    from tensorboardX import SummaryWriter

    rng = np.random.default_rng(1)
    with SummaryWriter(str(directory)) as writer:
        for step in range(1, 41):
            writer.add_scalar("loss", math.exp(-step / 10), step)
            writer.add_histogram("weights", rng.normal(0, 1 + step / 20, 1000), step, bins="auto")
        for step in (10, 20, 30, 40):
            writer.add_image("noise", rng.integers(0, 256, (3, 16, 16), np.uint8), step)
        writer.add_text("notes", "MindInsight has no place for a text: it goes into the archive", 40)
