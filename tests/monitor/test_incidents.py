"""One incident is one message: of 64 ranks and their watchdogs, without a shared disk, where a rank dies."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ms_summary_bridge.monitor.alarms.actions.message import AlertSource
from ms_summary_bridge.monitor.alarms.incidents.board import Board
from ms_summary_bridge.monitor.alarms.incidents.desk import IncidentDesk, Patience
from ms_summary_bridge.monitor.alarms.incidents.report import Report, incident_key, make_report, merge_reports
from ms_summary_bridge.monitor.model.alert import Alert
from ms_summary_bridge.monitor.model.alert_config import ActionConfig, CommandConfig, WebhookConfig
from ms_summary_bridge.monitor.model.config import WatchdogConfig
from ms_summary_bridge.monitor.watchdog.assignment import Assignment, Begun
from ms_summary_bridge.monitor.watchdog.hang_limits import Hang, Recovery
from ms_summary_bridge.monitor.watchdog.hang_report import Findings, describe_hang, describe_recovery, hang_line
from ms_summary_bridge.monitor.watchdog.heartbeat import Beat
from ms_summary_bridge.monitor.watchdog.telling import Telling
from ms_summary_bridge.training.distributed import ProcessRank
from tests.bridge_scripts.runs import wait_until
from tests.conftest import ROOT, TESTS
from tests.diagnose.cann_logs import CannLog
from tests.monitor_run import Engine, strict_lines

RANKS = 64
THREAD = 0x7F00


class Webhook(ThreadingHTTPServer):
    """Takes messages, on the loopback interface."""

    daemon_threads = True
    request_queue_size = 2 * RANKS

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.taken: list[dict[str, Any]] = []
        self.is_broken = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/alarm"


class _Handler(BaseHTTPRequestHandler):
    server: Webhook

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.server.is_broken:
            self.send_error(404)
            return
        self.server.taken.append(body)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@pytest.fixture
def webhook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Webhook]:
    monkeypatch.setenv("no_proxy", "*")
    with Webhook() as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield server
        server.shutdown()


def place_of(rank: int) -> ProcessRank:
    return ProcessRank(rank=rank, ranks=RANKS, host=f"node-{rank // 8}")


# ------------------------------------------------------------------ 64 ranks


def test_64_ranks_with_a_nan_send_one_message(tmp_path: Path, webhook: Webhook) -> None:
    """Rank 37 is bad a step before the others; another alarm, of another rule, is another message."""
    rules = [
        {"rule": "nonfinite"},
        {"rule": "threshold", "metric": "grad_norm", "above": 5},
    ]
    engines = [
        Engine(tmp_path, place_of(rank), interval=1000, alerts=rules, alert_actions=["log", {"webhook": webhook.url}])
        for rank in range(RANKS)
    ]
    for engine in engines:
        engine.begin()
        engine.recorder.flush()
        engine.recorder.alarms.note_checkpoint(8, __file__)  # which is there
    for step in range(9, 14):
        for engine in engines:
            rank = engine.place.rank
            loss = math.nan if step >= (11 if rank == 37 else 12) else 1.0
            engine.step(step, outputs=(loss, False, 1.0, 0.1, 1.0))
    wait_until(lambda: len(webhook.taken) == 1)
    for step in (14, 15):  # the first is read when the second begins
        for engine in engines:
            engine.step(step, outputs=(math.nan, False, 1.0, 0.1, 9.0))
    wait_until(lambda: len(webhook.taken) == 2)
    for engine in engines:
        engine.recorder.end("")
    assert [body["alert"]["rule"] for body in webhook.taken] == ["nonfinite", "threshold"]
    alert = webhook.taken[0]["alert"]
    incident = alert["fields"]["incident"]
    assert incident["ranks"] == list(range(RANKS))
    assert incident["hosts"] == {f"node-{host}": list(range(8 * host, 8 * host + 8)) for host in range(8)}
    assert (alert["rank"], alert["since_step"], alert["value"]) == (37, 11, "nan")
    assert (incident["first_rank"], incident["first_host"], incident["phase"]) == (37, "node-4", "compute")
    assert incident["checkpoint"] == {"step": 8, "path": __file__}
    assert incident["stack_rank"] == 37
    assert any("test_64_ranks_with_a_nan" in line for line in incident["stack"]), incident["stack"]
    assert not any("/ms_summary_bridge/monitor/" in line for line in incident["stack"])
    text = webhook.taken[0]["text"]
    assert text.startswith("[CRITICAL] nonfinite: loss is NaN")
    for words in (
        "rank 37 of 64, host node-4",
        "told by ranks 0-63 on 8 hosts (node-0, node-1, node-2, node-3, ...); first bad: rank 37 on node-4",
        "phase: computing",
        "stack of rank 37, most recent call first:",
        f"last good checkpoint: step 8, {__file__}",
    ):
        assert words in text
    outcomes = [line for engine in engines for line in engine.lines("action") if line["rule"] == "nonfinite"]
    assert len(outcomes) == RANKS, "each journal says who told"
    (teller,) = [line["rank"] for line in outcomes if "told_by" not in line]
    assert {line["told_by"] for line in outcomes if "told_by" in line} == {teller}


def stack_text(*frames: str) -> str:
    return "\n".join([f"Thread 0x{THREAD:016x} (most recent call first):", *(f"  File {frame}" for frame in frames)])


class Dog:
    """What a watchdog tells with, of one rank."""

    def __init__(self, run: Path, rank: int, action: ActionConfig) -> None:
        place = place_of(rank)
        begun = Begun(rank=rank, ranks=RANKS, host=place.host, thread_ident=THREAD, thread=0)
        assignment = Assignment(
            pid=1 << 22 | rank,
            heartbeat=-1,
            offer=None,
            console=-1,
            config=WatchdogConfig(),
            actions=(action,),
            project="default",
            project_directory=str(run.parent),
            has_viewer=False,
            place=begun,
        )
        self.rank = rank
        self.telling = Telling(assignment, os.open(os.devnull, os.O_WRONLY))
        self.telling.set_run(str(run))

    def hang(self, phase: str, step: int, *frames: str) -> None:
        alert = describe_hang(Hang(Beat(step, step, 1, phase, 0.0), 600.0, 600.0), self.rank, 1)
        findings = Findings(process=None, thread=None, children=[], stacks={1: stack_text(*frames)}, cpu_share=0.0)
        self.telling.files.write(hang_line("hang", alert, findings, THREAD))
        stack = "\n".join(stack_text(*frames).splitlines()[1:])
        self.telling.record_and_act(alert, stack=stack, checkpoint=(40 + self.rank % 2, f"/ckpt/rank_{self.rank}"))

    def recover(self, step: int) -> None:
        beat = Beat(step, step, 1, "compute", 0.0)
        self.telling.record_and_act(describe_recovery(Recovery(beat, 700.0), self.rank, 1))


def test_64_watchdogs_of_a_hang_send_one_message(tmp_path: Path, webhook: Webhook) -> None:
    """Rank 5 waits for its data, the others for rank 5. Once that is over, another hang is another message."""
    run = tmp_path / "default" / "run"
    action = ActionConfig(kind="webhook", webhook=WebhookConfig(url=webhook.url))
    dogs = [Dog(run, rank, action) for rank in range(RANKS)]
    step = '"/env/mindspore/common/api.py", line 9 in _exec_pip'

    def hang_all(number: int) -> None:
        for dog in dogs:
            if dog.rank == 5:
                dog.hang("data", number, '"/job/rows.py", line 20 in __getitem__', '"/job/train.py", line 7 in main')
            else:
                dog.hang("compute", number, step)

    hang_all(50)
    wait_until(lambda: len(webhook.taken) == 1)
    for dog in dogs:
        dog.recover(51)
    wait_until(lambda: len(webhook.taken) == 2)
    hang_all(60)
    wait_until(lambda: len(webhook.taken) == 3)
    for dog in dogs:
        dog.telling.close()
    assert [(body["alert"]["step"], body["alert"]["severity"]) for body in webhook.taken] == [
        (50, "critical"),
        (51, "info"),
        (60, "critical"),
    ]
    incident = webhook.taken[0]["alert"]["fields"]["incident"]
    assert incident["ranks"] == list(range(RANKS))
    assert (incident["first_rank"], incident["phase"], incident["stack_rank"]) == (5, "data", 5)
    assert incident["stack"] == [
        'File "/job/rows.py", line 20 in __getitem__',
        'File "/job/train.py", line 7 in main',
    ]
    assert incident["checkpoint"] == {"step": 40, "path": "/ckpt/rank_0"}, "all ranks have that of step 40"
    assert len(incident["doing"]) == 2
    assert incident["doing"][0].startswith("ranks 0-4, 6-63: hang in the step")
    assert incident["doing"][1].startswith("rank 5: hangs waiting for data: File")
    text = webhook.taken[0]["text"]
    assert "first bad: rank 5 on node-0" in text
    assert len(text.encode()) < 1900, "no service cuts it"


@pytest.mark.slow
def test_real_processes_that_hang_and_are_killed_are_one_incident(tmp_path: Path, webhook: Webhook) -> None:
    """Each has its own watchdog process; what the launcher would do then, ending them, follows from the hang.

    All stand still at one place, and CANN's log of rank 1 says why.
    """
    section = {"run_id": "run", "watchdog": {"floor": 1}, "alert_actions": [{"webhook": webhook.url}]}
    command = [sys.executable, str(TESTS / "monitor_scripts" / "dying_loop.py"), str(tmp_path), "hang for long"]
    processes = []
    try:
        for rank in range(4):
            environment = {**os.environ, "PYTHONPATH": str(ROOT), "RANK_ID": str(rank), "RANK_SIZE": "4"}
            environment["ASCEND_PROCESS_LOG_PATH"] = str(tmp_path / "logs")
            processes.append(
                subprocess.Popen(
                    [*command, json.dumps(section)],
                    env=environment,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            )
        CannLog(tmp_path / "logs", processes[1].pid).error(time.time(), "EL0004", "Failed to allocate memory.")
        wait_until(lambda: bool(webhook.taken), timeout_secs=120)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    run = tmp_path / "default" / "run"

    def is_told(rank: int) -> bool:
        lines = strict_lines(run / f"rank_{rank}")
        found = [(line["kind"], line.get("rule")) for line in lines]
        return ("alert", "death") in found and ("action", "death") in found  # who tells of it, or not

    wait_until(lambda: all(is_told(rank) for rank in range(4)), timeout_secs=120)
    assert [body["alert"]["rule"] for body in webhook.taken] == ["hang"]
    incident = webhook.taken[0]["alert"]["fields"]["incident"]
    assert incident["ranks"] == [0, 1, 2, 3]
    assert incident["first_rank"] == 1
    assert "rank 1 has CANN's error EL0004: memory cannot be allocated" in webhook.taken[0]["text"]
    assert any("dying_loop.py" in line for line in incident["stack"])
    (report,) = (run / "rank_1").glob("hang-*.txt")
    assert "CANN's log: EL0004 (memory cannot be allocated): " in report.read_text()
    (death,) = [
        line for line in strict_lines(run / "rank_1") if line.get("rule") == "death" and line["kind"] == "alert"
    ]
    assert len(death["fields"]["cann_log"]) == 1


# ------------------------------------------------------------------ desks


class Ranks:
    """Desks of several ranks."""

    def __init__(self, ranks: int, action: ActionConfig, **patience: float) -> None:
        self.ranks = ranks
        self.action = action
        self.patience = Patience(**{"gather_secs": 0.5, "end_secs": 0.2, "takeover_secs": 30.0, **patience})
        self.outcomes: list[tuple[int, str]] = []
        self.left: list[tuple[int, int]] = []
        self.desks: list[IncidentDesk] = []

    def make(self, run: Path, rank: int, *, pid: int = 1, began: float = 0.0) -> IncidentDesk:
        place = ProcessRank(rank=rank, ranks=self.ranks, host=f"node-{rank}")
        board = Board(str(run), rank=rank, host=place.host, pid=pid, window_secs=60.0, began=began)
        desk = IncidentDesk(
            AlertSource(run="run", run_directory=str(run), host=place.host, ranks=self.ranks),
            board,
            rank=rank,
            role="training",
            outcome=lambda action, alert, problem: self.outcomes.append((rank, problem)),
            left=lambda action, alert, teller: self.left.append((rank, teller)),
            patience=self.patience,
        )
        self.desks.append(desk)
        return desk

    def tell(self, desk: IncidentDesk, alert: Alert, **more: Any) -> None:
        desk.tell([self.action], alert, make_report(alert, f"node-{alert.rank}", **more))

    def close(self) -> None:
        for desk in self.desks:
            assert desk.close(30.0)


def alert_at(rank: int, rule: str = "nonfinite", step: int = 5, **more: Any) -> Alert:
    given = {"metric": "loss", "severity": "critical", "message": "loss is NaN", **more}
    return Alert(rule=rule, rank=rank, step=step, wall_time=time.time(), **given)


def hook(webhook: Webhook, **more: Any) -> ActionConfig:
    return ActionConfig(kind="webhook", webhook=WebhookConfig(url=webhook.url, attempts=1, **more))


def test_without_a_shared_directory_rank_0_tells_what_it_knows(tmp_path: Path, webhook: Webhook) -> None:
    """What reaches all ranks is left to rank 0; what is of one host alone is told once for its disk."""
    ranks = Ranks(4, hook(webhook), gather_secs=3.0)
    for rank in range(4):
        (tmp_path / f"disk-{rank // 2}" / f"rank_{rank}").mkdir(parents=True)
    desks = [ranks.make(tmp_path / f"disk-{rank // 2}", rank) for rank in range(4)]
    for rank, desk in enumerate(desks):
        ranks.tell(desk, alert_at(rank))
    wait_until(lambda: len(webhook.taken) == 1 and len(ranks.left) == 3)
    for rank in (2, 3):
        ranks.tell(desks[rank], alert_at(rank, "overload", metric="npu_temperature"))
    wait_until(lambda: len(webhook.taken) == 2)
    ranks.close()
    assert len(webhook.taken) == 2
    assert webhook.taken[0]["alert"]["fields"]["incident"]["ranks"] == [0, 1]
    assert webhook.taken[1]["alert"]["fields"]["incident"]["ranks"] == [2, 3]
    first = ranks.left[:3]
    assert sorted(rank for rank, _ in first if rank > 1) == [2, 3]
    assert {to for rank, to in first if rank > 1} == {0}
    assert [left for left in first if left[0] < 2] in ([(1, 0)], [(0, 1)])  # whichever came to their disk first


def test_a_directory_that_cannot_be_used_leaves_rank_0(tmp_path: Path, webhook: Webhook) -> None:
    (tmp_path / "run").write_text("in the way")
    ranks = Ranks(3, hook(webhook))
    for rank in range(3):
        ranks.tell(ranks.make(tmp_path / "run", rank), alert_at(rank))
    ranks.close()
    (body,) = webhook.taken
    assert body["alert"]["rank"] == 0
    assert sorted(ranks.left) == [(1, 0), (2, 0)]


def test_a_rank_that_tells_nothing_is_replaced(tmp_path: Path, webhook: Webhook) -> None:
    """Rank 0 took the incident and fell silent: of the others one tells, with all reports."""
    ranks = Ranks(3, hook(webhook), takeover_secs=0.5)
    (tmp_path / "rank_0").mkdir()
    board = Board(str(tmp_path), rank=0, host="node-0", pid=7, window_secs=60.0, began=0.0)
    claim, is_own = board.join("nonfinite")
    assert is_own
    board.report(claim, make_report(alert_at(0), "node-0"), "training")
    for rank in (1, 2):
        ranks.tell(ranks.make(tmp_path, rank), alert_at(rank))
    wait_until(lambda: bool(webhook.taken))
    time.sleep(1.5)  # by which the third rank would have told, too
    ranks.close()
    (body,) = webhook.taken
    assert body["alert"]["fields"]["incident"]["ranks"] == [0, 1, 2]


def test_the_watchdog_of_a_training_that_died_tells_in_its_place(tmp_path: Path, webhook: Webhook) -> None:
    ranks = Ranks(2, hook(webhook))
    board = Board(str(tmp_path), rank=1, host="node-1", pid=7, window_secs=60.0, began=0.0)
    claim, _ = board.join("nonfinite")
    board.report(claim, make_report(alert_at(1), "node-1", checkpoint=(3, "/c")), "training")
    (tmp_path / "rank_0").mkdir()
    others = ranks.make(tmp_path, 0, pid=8)
    others.adopt([ranks.action])  # not its own training
    assert others.close(10.0)
    assert not webhook.taken
    dog = ranks.make(tmp_path, 1, pid=7)
    dog.adopt([ranks.action])
    ranks.close()
    (body,) = webhook.taken
    assert body["alert"]["rank"] == 1
    again = ranks.make(tmp_path, 1, pid=7)
    again.adopt([ranks.action])
    assert again.close(10.0)
    assert len(webhook.taken) == 1, "told once"


def test_a_message_that_cannot_be_sent_is_sent_by_another_rank(tmp_path: Path, webhook: Webhook) -> None:
    """As where one host alone has no way to the outside."""
    ranks = Ranks(2, hook(webhook), takeover_secs=1.0)
    (tmp_path / "rank_0").mkdir()
    webhook.is_broken = True
    first = ranks.make(tmp_path, 0)
    ranks.tell(first, alert_at(0))
    wait_until(lambda: any(problem for _, problem in ranks.outcomes))
    webhook.is_broken = False
    ranks.tell(ranks.make(tmp_path, 1), alert_at(1))
    wait_until(lambda: bool(webhook.taken))
    ranks.close()
    assert ranks.outcomes == [(0, "HTTP status 404"), (1, "")]


def test_ranks_that_a_stop_ends_are_no_incident_of_their_own(tmp_path: Path, webhook: Webhook) -> None:
    ranks = Ranks(2, hook(webhook))
    (tmp_path / "rank_0").mkdir()
    desks = [ranks.make(tmp_path, rank) for rank in range(2)]
    for rank, desk in enumerate(desks):
        ranks.tell(desk, alert_at(rank), stops=True)
    wait_until(lambda: bool(webhook.taken))
    for rank, desk in enumerate(desks):
        ranks.tell(desk, alert_at(rank, "death", metric=""))
    ranks.close()
    assert [body["alert"]["rule"] for body in webhook.taken] == ["nonfinite"]


@pytest.mark.parametrize("rule", ["nonfinite", "hang"])
def test_a_new_session_has_incidents_of_its_own(tmp_path: Path, webhook: Webhook, rule: str) -> None:
    """Nothing that was said of the last one, such as that it is over, is of the next one."""
    (tmp_path / "rank_0").mkdir()
    ranks = Ranks(2, hook(webhook))
    for session in (1, 2):
        board = Board(str(tmp_path), rank=0, host="node-0", pid=2, window_secs=60.0, began=time.time())
        board.clear()
        for rank in range(2):
            ranks.tell(ranks.make(tmp_path, rank), alert_at(rank, rule))
        wait_until(lambda session=session: len(webhook.taken) == session)
        board.end("lost")
    ranks.close()
    assert len(webhook.taken) == 2


@pytest.mark.parametrize("is_usable", [True, False])
def test_a_webhook_gets_no_more_than_its_limit(tmp_path: Path, webhook: Webhook, is_usable: bool) -> None:
    run = tmp_path / "run"
    if not is_usable:
        run.write_text("in the way")
    ranks = Ranks(1, hook(webhook, limit=3))
    desk = ranks.make(run, 0)
    for step in range(8):
        ranks.tell(desk, alert_at(0, step=step))
    wait_until(lambda: len(ranks.outcomes) == 8)
    assert len(webhook.taken) == 3
    assert sum(problem == "left out: 3 messages were sent within an hour" for _, problem in ranks.outcomes) == 5
    if is_usable:  # an hour later
        for path in (run / ".incidents").glob("limit-*/*"):
            os.utime(path, (time.time() - 3601,) * 2)
        ranks.tell(desk, alert_at(0, step=9))
        wait_until(lambda: len(webhook.taken) == 4)
        assert "5 messages before this one were left out by the limit" in webhook.taken[-1]["text"]
    ranks.close()


def test_an_action_per_rank_is_done_by_each(tmp_path: Path) -> None:
    """A command is, unless it says otherwise: it may look at its own host."""
    told = tmp_path / "told"
    told.mkdir()
    for per, count in (("rank", 3), ("incident", 1)):
        argv = ("sh", "-c", f'touch "{told}/{per}-$ALERT_RANK"')
        ranks = Ranks(3, ActionConfig(kind="command", command=CommandConfig(argv=argv, per=per)))
        run = tmp_path / per
        (run / "rank_0").mkdir(parents=True)
        for rank in range(3):
            ranks.tell(ranks.make(run, rank), alert_at(rank))
        ranks.close()
        assert len(list(told.glob(f"{per}-*"))) == count


@pytest.mark.parametrize("has_links", [True, False])
def test_a_claim_has_its_rank_as_soon_as_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    """Else one that comes at that moment takes rank 0 for who tells."""
    link, seen = os.link, []

    def watched(source: Path, target: Path) -> None:
        if not has_links:
            raise PermissionError(1, "no links here")
        seen.append((target.exists(), json.loads(source.read_bytes())["rank"]))
        link(source, target)

    monkeypatch.setattr(os, "link", watched)
    first, second = (
        Board(str(tmp_path), rank=rank, host="node-0", pid=7, window_secs=60.0, began=0.0) for rank in (46, 3)
    )
    assert first.join("nonfinite")[1]
    claim, is_own = second.join("nonfinite")
    assert (claim.rank, is_own) == (46, False)
    assert seen == ([(False, 46)] if has_links else [])
    assert [path.name for path in (tmp_path / ".incidents").iterdir()] == ["nonfinite.1.json"]


def test_a_torn_claim_and_a_torn_report_cost_nothing(tmp_path: Path) -> None:
    board = Board(str(tmp_path), rank=0, host="node-0", pid=1, window_secs=60.0, began=0.0)
    claim, _ = board.join("nonfinite")
    path = tmp_path / ".incidents" / f"{claim.name}.json"
    path.write_bytes(path.read_bytes()[:20])
    assert board.join("nonfinite") == (
        msgspec.structs.replace(claim, rank=0, host="", pid=0, wall_time=path.stat().st_mtime),
        False,
    )
    os.utime(path, (time.time() - 61,) * 2)
    assert board.join("nonfinite")[1], "it is too old to be open"
    board.report(claim, make_report(alert_at(0), "node-0"), "training")
    (tmp_path / ".incidents" / f"{claim.name}.reports" / "rank_1-training.json").write_bytes(b'{"rank"')
    assert [report.rank for report in board.reports(claim)] == [0]


def report(rank: int, **more: Any) -> Report:
    return make_report(alert_at(rank, **more), f"node-{rank}")


@pytest.mark.parametrize(
    ("reports", "first"),
    [
        ([report(0, step=5), report(1, step=4)], 1),
        ([report(0), report(1, metric="local_loss")], 1),
        ([report(0, rule="hang", value=600.0), report(1, rule="hang", value=900.0)], 1),
        ([report(0, rule="hang", value=900.0), report(1, rule="death")], 1),
        ([report(0, rule="death", fields={"lost_ranks": [2]}), report(1, rule="hang", value=1.0)], 2),
    ],
)
def test_who_was_bad_first(reports: list[Report], first: int) -> None:
    incident = merge_reports(reports).fields["incident"]
    assert incident["first_rank"] == first
    assert merge_reports(reports, blamed=[0]).fields["incident"]["first_rank"] == 0


def test_what_is_one_incident() -> None:
    def key(rule: str, severity: Any = "critical", metric: str = "") -> str:
        return incident_key(alert_at(0, rule, severity=severity, metric=metric))

    assert key("hang") == key("death")
    assert len({key("hang"), key("hang", "warning"), key("hang", "info")}) == 3
    assert key("nonfinite", metric="loss") == key("nonfinite", metric="grad_norm")
    assert key("threshold", metric="a/b") != key("threshold", metric="c")
    assert "/" not in key("threshold", metric="a/b")


def test_one_rank_is_told_at_once_with_its_stack_and_checkpoint(tmp_path: Path, webhook: Webhook) -> None:
    engine = Engine(tmp_path, interval=1000, alert_actions=[{"webhook": webhook.url}]).begin()
    engine.recorder.alarms.note_checkpoint(0, __file__)
    engine.step(1, outputs=math.nan)
    engine.end()
    (body,) = webhook.taken
    text = body["text"]
    assert "phase: computing" in text
    assert "most recent call first:" in text
    assert f"last good checkpoint: step 0, {__file__}" in text
    assert "told by" not in text
