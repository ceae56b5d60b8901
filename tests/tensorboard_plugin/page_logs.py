"""A logdir that has all that the page shows, and one TensorBoard with one browser that looks at it."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest

from ms_summary_bridge.aggregate.aggregate import aggregate_ranks
from ms_summary_bridge.aggregate.outputs import AGGREGATE_FILE
from ms_summary_bridge.formats.protos import ms_pb
from tests.columns.test_profile import OPERATORS, STEPS
from tests.conftest import TESTS
from tests.formats.test_dataset_graph import payload
from tests.formats.test_lineage import put_lineage, train_event, user_event
from tests.mindspore_run import write_summary
from tests.pages import open_page
from tests.runs.test_graph_file import model
from tests.scripted import START, put
from tests.tensorboard_plugin.test_dashboard import EVIL, activations, losses, wide_graph, write_showcase
from tools.tensorboard_api import TensorBoardClient, running_tensorboard

if TYPE_CHECKING:
    from playwright.sync_api import Frame, Page, Route

__all__ = ["Dashboard", "running_dashboard", "write_logs"]

RUNS = 7
CPU_OPERATORS = TESTS / "data" / "mindspore-2.10-cpu-op-types.csv"
COUNT_ERRORS = """window.faults = [];
window.addEventListener('error', event => window.top.faults.push(String(event.message)));
window.addEventListener('unhandledrejection', event => window.top.faults.push(String(event.reason)));
window.addEventListener('securitypolicyviolation', event => window.top.faults.push(event.violatedDirective));
console.error = (...parts) => window.top.faults.push(parts.join(' '));"""  # in each frame
# What a person can press or fill in has a name that does not depend on runs: what is said of it, or where it stands.
TELL_CONTROLS = """(() => {
    if (window === window.top) return;
    const places = Object.entries({
        heading: 'th button', run: '.runs button.name', metric: '.metrics button.name', filter: '.chip', group: '.fold',
        column: '.picker-items input', link: 'nav.links a', folded: '.folded summary', profile: '.profiles summary',
        trace: '.profiles a', chart: '.plot', table: '.scroll.table', 'heat map': 'canvas.heat',
    });
    const nameOf = (one) => {
        const place = places.find(([, selector]) => one.matches(selector));
        if (place) return place[0];
        const said = (one.getAttribute('aria-label') || (one.labels?.[0] ?? one).textContent).trim();
        return said.replace(/^(Compare the runs of|Compare|Theme).*/, '$1').replace(/ \\d+$/, '');
    };
    const wanted = 'button, input, select, summary, a, canvas, .plot, .scroll.table';
    const seen = new Set(), used = new Set();
    const tell = (kind, known, name) => {
        if (known.has(name)) return;
        known.add(name);
        window.tellControl(kind, name);
    };
    const look = () => document.querySelectorAll(wanted).forEach((one) => {
        if (one.checkVisibility()) tell('seen', seen, nameOf(one));
    });
    for (const kind of ['click', 'input', 'change', 'keydown', 'pointermove']) {
        document.addEventListener(kind, (event) => {
            const one = event.target instanceof Element ? event.target.closest(wanted) : null;
            if (one) tell('used', used, nameOf(one));
            if (kind !== 'pointermove') setTimeout(look);
        }, true);
    }
    setInterval(look, 300);
})();"""


def write_logs(logdir: Path) -> None:
    """Writes the runs of `write_showcase`, one of four ranks with a profile, and one whose every name is markup."""
    write_showcase(logdir)
    put_lineage(logdir / "lenet" / "seeded", payload(wide_graph()), seconds=START + 30)
    put(logdir / "lenet" / "fast" / "net.pb", model("Conv2D", "ReLU"))
    profile = logdir / "lenet" / "seeded" / "profiler" / "host_1_ascend_ms"
    put(profile / "ASCEND_PROFILER_OUTPUT" / "trace_view.json", b"[]")
    put(profile / "FRAMEWORK" / "cpu_op_type_info_0.csv", CPU_OPERATORS.read_bytes())
    write_ranks(logdir / "gpt" / "four_ranks")
    write_evil(logdir / EVIL)


def write_ranks(job: Path) -> None:
    for rank in range(4):
        head = {"kind": "header", "ranks": 4, "rank": rank, "format": 1}
        lines: list[dict[str, Any]] = [head]
        for step in range(1, 61):
            loss = 3.0 / step + 0.05 * rank + (2.0 if rank == 2 and step > 40 else 0.0)
            values = {"loss": loss, "grad_norm": 1.0 + rank}
            lines.append({"kind": "sample", "step": step, "wall_time": START + step, "rank": rank, "values": values})
        if rank == 0:
            notes = {12: "the learning rate falls", 20: "checkpoint saved: net-20.ckpt"}
            lines += [
                {"kind": "milestone", "step": step, "wall_time": START + step, "text": text}
                for step, text in notes.items()
            ]
            lines.append(
                {
                    "kind": "evaluation",
                    "step": 30,
                    "wall_time": START + 30,
                    "text": "accuracy 0.5",
                    "metrics": {"accuracy": 0.5},
                }
            )
            lines.append({**head, "pid": 2, "step": 35, "wall_time": START + 35})
        alert = {"rule": "spike", "severity": "critical", "rank": 2, "message": "The loss is 2.2 after 0.2."}
        lines.append({"kind": "alert", "step": 41, "wall_time": START + 41, **alert})
        lines.append({"kind": "end", "step": 60, "wall_time": START + 61, "rank": rank})
        put(job / f"rank_{rank}" / "metrics.jsonl", "".join(json.dumps(line) + "\n" for line in lines).encode())
    output = job / "node1_ascend_ms" / "ASCEND_PROFILER_OUTPUT"
    put(output / "trace_view.json", b'[{"name": "MatMul"}]')
    put(output / "step_trace_time.csv", STEPS.encode())
    put(output / "op_statistic.csv", OPERATORS.encode())
    put(job / "node1_ascend_ms" / "profiler_info_3.json", b"{}")
    aggregate_ranks(job, job.parent / ".made")
    put(job / "over_ranks" / AGGREGATE_FILE, (job.parent / ".made" / AGGREGATE_FILE).read_bytes())
    shutil.rmtree(job.parent / ".made")  # the five statistics as runs are tested elsewhere


def write_evil(run: Path) -> None:
    write_summary(run, [*losses({1: 1.0, 2: 0.5}, f"loss/{EVIL}"), *activations({2: 1}, range(1, 4), EVIL)])
    stage = ms_pb.DatasetGraph()
    stage.parameter.mapStr.update(op_type=EVIL, a=EVIL)
    put_lineage(run, payload(stage), train_event(START + 4, optimizer=EVIL), user_event({EVIL: EVIL}))
    put(run / "events.out.events.summary.1.0.host_MS", b"no record at all, and longer than a head of one")
    header = {"kind": "header", "ranks": 1, "tags": {EVIL: EVIL}}
    alert = {"kind": "alert", "rule": EVIL, "severity": EVIL, "step": EVIL, "message": EVIL, "advice": EVIL}
    lines = [header, alert, {"kind": "milestone", "step": 1, "text": EVIL}, {"kind": "warning", "metric": EVIL}]
    put(run / "metrics.jsonl", "".join(json.dumps(line) + "\n" for line in lines).encode())


class Dashboard:
    """A browser's page at the dashboard."""

    def __init__(self, page: Page, client: TensorBoardClient, logdir: Path) -> None:
        self.page = page
        self.client = client
        self.logdir = logdir
        self.errors: list[str] = []
        self.controls: dict[str, set[str]] = {"seen": set(), "used": set()}
        page.expose_function("tellControl", lambda kind, name: self.controls[kind].add(name))
        page.add_init_script(TELL_CONTROLS)
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        page.add_init_script(COUNT_ERRORS)

    def open(self, state: str = "", *, dark: bool = False, width: int = 1400, height: int = 1000) -> Frame:
        """Opens it as if for the first time, and returns the frame that it is in, once it shows something.

        Args:
            state: What stands behind `#mindspore` in the address.
            dark: TensorBoard's theme.
            width: Of the page.
            height: Of the page.
        """
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.goto("about:blank")
        self.page.goto(f"{self.client.url}/?darkMode={str(dark).lower()}#mindspore{state}")
        frame = self.page.locator('iframe[src*="name=mindspore"]').element_handle().content_frame()
        assert frame is not None
        frame.locator("table.runs tbody tr[data-key]:visible, .run h2:visible").first.wait_for()
        return frame

    def assert_faultless(self) -> None:
        """Nothing went wrong in any script since the page was opened, and no text became markup."""
        assert self.page.evaluate("window.faults") == []
        assert self.page.evaluate("window.hacked") is None
        assert self.errors == []

    @contextlib.contextmanager
    def of_many_runs(self, count: int) -> Iterator[list[str]]:
        """Lets the server tell of so many runs; yields the addresses that were asked for."""
        asked: list[str] = []

        def tell_runs(route: Route) -> None:
            asked.append(route.request.url)
            answer = self.client.get_json(route.request.url.removeprefix(f"{self.client.url}/"))
            route.fulfill(json=many_rows(answer, count) if answer["is_full"] else answer)

        def tell_series(route: Route) -> None:
            asked.append(route.request.url)
            keys = parse_qs(urlsplit(route.request.url).query)["key"]
            steps = [*range(1, 101)]
            values = [[2 / step + int(key[-4:]) / 1000 for step in steps] for key in keys]
            series = [
                {"key": key, "steps": steps, "times": steps, "values": one}
                for key, one in zip(keys, values, strict=True)
            ]
            route.fulfill(json={"tag": "loss", "series": series})

        routes = {"**/data/plugin/mindspore/runs*": tell_runs, "**/data/plugin/mindspore/series*": tell_series}
        for pattern, tell in routes.items():
            self.page.route(pattern, tell)
        try:
            yield asked
        finally:
            for pattern in routes:
                self.page.unroute(pattern)


@contextlib.contextmanager
def running_dashboard(directory: Path) -> Iterator[Dashboard]:
    """Runs one TensorBoard and one browser on the logs of `write_logs`."""
    logdir = directory / "logs"
    write_logs(logdir)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(directory / "cache"))
        with running_tensorboard(logdir, directory / "tensorboard.log") as client, open_page() as page:
            client.wait_json(
                "data/plugin/mindspore/runs", lambda found: len(found["rows"]) == RUNS and not found["unread"]
            )
            yield Dashboard(page, client, logdir)


def many_rows(answer: dict[str, Any], count: int) -> dict[str, Any]:
    """Makes of an answer to `runs` one with so many runs, like the first that has a loss."""
    model = next(row for row in answer["rows"] if row["name"] == "lenet/slow")
    rows = []
    for number in range(count):
        name = f"sweep/run-{number:04d}"
        settings = {**model["settings"], "learning_rate": 1e-4 * (number % 50 + 1), "seed": number % 5}
        loss = {**model["loss"], "last": 0.1 + number / 1000}
        started = time.time() - 60 * number
        rows.append(
            {**model, "key": name, "name": name, "group": "sweep", "settings": settings, "loss": loss}
            | {"first_time": started, "last_write": started + 50}
        )
    return {**answer, "rows": rows, "is_full": True, "unread": 0}
