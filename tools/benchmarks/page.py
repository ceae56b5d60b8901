"""When the page of the TensorBoard plugin shows its first row, with many runs, in Chromium.

A second is the target, from when the page's document is asked for to the frame in which the first rows are drawn: the
very first time, when nothing was read, and when all is known. The page is opened without TensorBoard's own around it,
which takes its time before. Wall time is judged, which is what somebody waits; where it is less, as on a busy machine,
the processor time of server and browser together, which one free core needs at most. An answer when nothing has changed
is to be below 50 KB.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock
from urllib.parse import quote

import msgspec
import numpy as np
import psutil

from benchmarks.summary_files import histogram_summaries, scalar_summaries, write_summary_file

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["Paint", "Paints", "can_be_measured", "measure_paints", "write_runs"]

TARGET_SECS = 1.0
TARGET_IDLE_BYTES = 50_000
_RUN_BYTES = 100_000
_TOLD = """(() => {
    const look = () => {
        if (!document.querySelector('table.runs tbody tr[data-key]')) return requestAnimationFrame(look);
        requestAnimationFrame(() => setTimeout(() => { window.painted = performance.now(); }));
    };
    requestAnimationFrame(look);
})();"""


class Paint(msgspec.Struct):
    """Until the first row; seconds."""

    wall: float
    server: float
    """Processor time of TensorBoard's process."""
    browser: float
    """Processor time of all processes of Chromium."""

    @property
    def cpu(self) -> float:
        """Processor time of both."""
        return self.server + self.browser

    @property
    def judged(self) -> float:
        """What a free machine takes at most."""
        return min(self.wall, self.cpu)


class Paints(msgspec.Struct):
    """What was measured."""

    runs: int
    first: Paint
    """The first time that anybody asks."""
    known: list[Paint]
    """When all is known."""
    answer_bytes: int
    """Of all rows, before compression."""
    idle_bytes: int

    @property
    def is_met(self) -> bool:
        """Whether the targets are reached; of what was measured again and again, the median counts."""
        secs = max(self.first.judged, statistics.median(one.judged for one in self.known))
        return secs <= TARGET_SECS and self.idle_bytes <= TARGET_IDLE_BYTES


def can_be_measured() -> str:
    """Returns why it cannot be measured here; empty if it can."""
    import importlib.util
    import shutil

    if not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))):
        return "Chromium is not installed"
    missing = [name for name in ("playwright", "tensorboard") if importlib.util.find_spec(name) is None]
    return f"{' and '.join(missing)}: not installed" if missing else ""


def write_runs(logdir: Path, runs: int) -> None:
    """Writes runs of 100 KB, of scalars with some histograms, in ten folders."""
    summaries = scalar_summaries(4, 400) + histogram_summaries(20)
    order = np.random.default_rng(4).permutation(len(summaries))
    summaries = [summaries[index] for index in order]
    for number in range(runs):
        first = number % 50
        place = logdir / f"sweep{number % 10}" / f"run-{number:04d}"
        write_summary_file(place, summaries[first:] + summaries[:first], size=_RUN_BYTES)


def measure_paints(runs: int, times: int) -> Paints:
    """Measures one server with so many runs: the first time, then so many times when all is known."""
    from tests.pages import open_page
    from tools.tensorboard_api import running_tensorboard

    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        logdir = Path(scratch) / "logs"
        write_runs(logdir, runs)
        own = {"XDG_CACHE_HOME": str(Path(scratch) / "cache"), "TMPDIR": scratch}
        with (
            open_page() as page,  # before: Chromium's own temporary paths must not be long
            mock.patch.dict(os.environ, own),
            running_tensorboard(logdir, Path(scratch) / "log") as client,
        ):
            page.add_init_script(_TOLD)
            first = _paint(page, client.url)
            client.wait_json(
                "data/plugin/mindspore/runs", lambda found: found["is_known"] and not found["unread"], timeout_secs=600
            )
            known = [_paint(page, client.url) for _ in range(times)]
            answer = client.get("data/plugin/mindspore/runs")
            cursor = msgspec.json.decode(answer)["cursor"]
            idle = client.get(f"data/plugin/mindspore/runs?cursor={quote(cursor)}")
    return Paints(runs, first, known, len(answer), len(idle))


def _paint(page: Page, url: str) -> Paint:
    """Opens the page and waits for its first row."""
    page.goto("about:blank")
    children = psutil.Process().children(recursive=True)
    server = [one for one in children if "--logdir" in one.cmdline()]
    browser = [one for one in children if "chrom" in one.name()]
    before = _cpu(server), _cpu(browser)
    page.goto(f"{url}/data/plugin_entry.html?name=mindspore", wait_until="commit")
    page.wait_for_function("window.painted")
    after = _cpu(server), _cpu(browser)
    return Paint(page.evaluate("window.painted") / 1000, after[0] - before[0], after[1] - before[1])


def _cpu(processes: list[Any]) -> float:
    found = 0.0
    for process in processes:
        with contextlib.suppress(psutil.Error):  # a helper of Chromium's may be gone
            found += sum(process.cpu_times()[:2])
    return found
