"""What CANN's logs say becomes evidence: lost and stuck ranks, error codes, waits in a group that is not the world."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from ms_summary_bridge.cli.app import main
from ms_summary_bridge.diagnose import cann_log
from ms_summary_bridge.diagnose.cann_log import find_log_files, log_places, read_logs, read_process
from ms_summary_bridge.diagnose.diagnosis import Diagnosis, diagnose_ranks
from ms_summary_bridge.monitor.watchdog.hang_limits import Hang
from ms_summary_bridge.monitor.watchdog.hang_report import Findings, describe_hang, hang_line, report_text
from ms_summary_bridge.monitor.watchdog.heartbeat import Beat
from tests.diagnose.cann_logs import WORLD, CannLog, write_ranks
from tests.monitor_run import Engine

BEGAN = time.time() - 7200.0


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASCEND_PROCESS_LOG_PATH", raising=False)
    monkeypatch.delenv("ASCEND_WORK_PATH", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def hang_all(run: Path, ranks: int) -> None:
    """All hang in the step, at the same place: nobody sticks out."""
    for rank in range(ranks):
        alert = describe_hang(Hang(Beat(5, 5, 1, "compute", 0.0), 600.0, 600.0), rank, 1)
        findings = Findings(process=None, thread=None, children=[], stacks={}, cpu_share=0.0)
        line = {**hang_line("hang", alert, findings, 1), "wall_time": BEGAN + 700}
        with (run / f"rank_{rank}" / "hang.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")


def diagnose(run: Path, logs: Path | None = None) -> Diagnosis:
    return diagnose_ranks(run, cann_logs=None if logs is None else [str(logs)])


def check_evidence(diagnosis: Diagnosis, logs: Path) -> None:
    """Each line that is named is there, and says what is quoted."""
    files = {"/".join(path.parts[-3:]): path for path in logs.rglob("*.log")}
    lines = [each for finding in diagnosis.findings for each in finding.evidence if ".log:" in each.where]
    assert lines
    for each in lines:
        name, _, number = each.where.rpartition(":")
        text = files[name].read_text().splitlines()[int(number) - 1]
        assert " ".join(each.text.split())[-20:] in " ".join(text.split())


@pytest.mark.parametrize(
    ("kind", "address", "device", "rank"),
    [("Heartbeat Lost Occurred", "10.0.0.2", 3, 11), ("Stuck Occurred", "10.0.0.1", 3, 3)],
)
def test_a_rank_that_hccl_lost_or_found_stuck_is_named(
    tmp_path: Path, kind: str, address: str, device: int, rank: int
) -> None:
    """Device 3 of either host: address and device make the global rank. What came later follows from it."""
    run, logs = tmp_path / "run", tmp_path / "logs"
    pids = write_ranks(run, BEGAN, 16)
    hang_all(run, 16)
    for number in (0, 5):
        CannLog(logs, pids[number]).exception(BEGAN + 300 + number, kind, address, device)
        CannLog(logs, pids[number]).exception(BEGAN + 400, "Heartbeat Lost Occurred", "10.0.0.1", 7)
    diagnosis = diagnose(run, logs)
    first = diagnosis.findings[0]
    assert (first.rule, first.ranks) == ("cann", [rank])
    assert first.text == f"HCCL says of rank {rank} (device {device} of {address}): {kind}; told by ranks 0, 5"
    assert first.since == pytest.approx(BEGAN + 300, abs=1)
    assert not any(finding.rule == "together" for finding in diagnosis.findings)
    check_evidence(diagnosis, logs)


def test_an_address_that_is_unknown_is_no_rank(tmp_path: Path) -> None:
    run, logs = tmp_path / "run", tmp_path / "logs"
    pids = write_ranks(run, BEGAN, 16)
    CannLog(logs, pids[0]).exception(BEGAN + 300, "Stuck Occurred", "192.168.7.7", 3)
    (finding,) = diagnose(run, logs).findings
    assert finding.ranks == []
    assert "device 3 of 192.168.7.7 (its rank is not known)" in finding.text


def test_of_one_host_the_address_says_nothing_more(tmp_path: Path) -> None:
    run, logs = tmp_path / "run", tmp_path / "logs"
    pids = write_ranks(run, BEGAN, 8, addresses=[])
    CannLog(logs, pids[0]).exception(BEGAN + 300, "Stuck Occurred", "127.10.0.1", 3)
    assert diagnose(run, logs).findings[0].ranks == [3]


def test_a_sub_groups_rank_is_looked_up(tmp_path: Path) -> None:
    """Rank 1 of the group of ranks 9 and 13 is rank 13, and not rank 1, which is well."""
    run, logs = tmp_path / "run", tmp_path / "logs"
    pids = write_ranks(run, BEGAN, 16)
    for place, rank in enumerate((9, 13)):
        CannLog(logs, pids[rank]).join(BEGAN, "tp-9-13", 2, place)
    CannLog(logs, pids[1]).join(BEGAN, "tp-0-1", 2, 1)
    CannLog(logs, pids[9]).notify_timeout(BEGAN + 1900, "tp-9-13", 2, 0, 1)
    diagnosis = diagnose(run, logs)
    assert diagnosis.findings[0].ranks == [13]
    assert diagnosis.findings[0].text == "rank 9 waited in a collective for rank 13"
    check_evidence(diagnosis, logs)


@pytest.mark.parametrize("is_doubled", [False, True])
def test_a_sub_groups_rank_is_never_taken_for_a_global_one(tmp_path: Path, is_doubled: bool) -> None:
    """Nobody says who rank 1 of the group is; or two processes say it, of groups with one name."""
    run, logs = tmp_path / "run", tmp_path / "logs"
    pids = write_ranks(run, BEGAN, 16)
    if is_doubled:
        for rank in (1, 13):
            CannLog(logs, pids[rank]).join(BEGAN, "tp", 2, 1)
    CannLog(logs, pids[9]).notify_timeout(BEGAN + 1900, "tp", 2, 0, 1)
    (finding,) = diagnose(run, logs).findings
    assert finding.ranks == [9], "who says it, and nobody else"
    assert "rank 1 of the group tp of 2, whose global rank is not known" in finding.text


def test_in_the_group_of_all_ranks_it_is_the_global_one(tmp_path: Path) -> None:
    run, logs = tmp_path / "run", tmp_path / "logs"
    pids = write_ranks(run, BEGAN, 4)
    hang_all(run, 4)
    for rank, remote in ((0, 2), (1, 2), (3, 0)):
        CannLog(logs, pids[rank]).notify_timeout(BEGAN + 1900, WORLD, 4, rank, remote)
    finding = diagnose(run, logs).findings[0]
    assert (finding.rule, finding.ranks) == ("cann", [2]), "rank 0 waits itself"
    assert "ranks 0-1 waited in a collective for rank 2" in finding.text


def test_an_error_that_follows_from_nothing_goes_before_waits(tmp_path: Path) -> None:
    run, logs = tmp_path / "run", tmp_path / "logs"
    pids = write_ranks(run, BEGAN, 4)
    hang_all(run, 4)
    CannLog(logs, pids[0]).notify_timeout(BEGAN + 100, WORLD, 4, 0, 1)
    CannLog(logs, pids[3]).error(BEGAN + 200, "EL0004", "Failed to allocate memory requested by GE module.")
    finding = diagnose(run, logs).findings[0]
    assert (finding.rule, finding.ranks) == ("cann", [3])
    assert finding.text == "rank 3 has CANN's error EL0004: memory cannot be allocated"
    check_evidence(diagnose(run, logs), logs)


def test_codes_that_name_nobody_are_told(tmp_path: Path) -> None:
    run, logs = tmp_path / "run", tmp_path / "logs"
    pids = write_ranks(run, BEGAN, 2)
    for pid in pids:
        CannLog(logs, pid).error(BEGAN + 200, "EI0006", "Getting socket times out. Reason: dstRank does not answer.")
    (finding,) = diagnose(run, logs).findings
    assert finding.ranks == [0, 1]
    assert finding.text == "ranks 0-1: CANN's error EI0006: no connection to another rank in time"


def test_what_is_known_already_gets_the_evidence(tmp_path: Path) -> None:
    run, logs = tmp_path / "run", tmp_path / "logs"
    pids = write_ranks(run, BEGAN, 4)
    told = [{"kind": "gone", "rank": 2, "wall_time": BEGAN + 90, "ending": "SIGKILL"}]
    (run / "rank_2" / "hang.jsonl").write_text("".join(json.dumps(line) + "\n" for line in told))
    CannLog(logs, pids[0]).exception(BEGAN + 95, "Heartbeat Lost Occurred", "10.0.0.1", 2)
    (finding,) = diagnose(run, logs).findings
    assert (finding.rule, finding.ranks) == ("killed", [2])
    assert [each.rank for each in finding.evidence] == [2, 0]


def test_the_tail_of_a_long_journal_is_enough(tmp_path: Path) -> None:
    """A watchdog reads no more of each: the process is that of its own file, the device that of the journal's head."""
    run, logs = tmp_path / "run", tmp_path / "logs"
    pids = write_ranks(run, BEGAN, 4)
    hang_all(run, 4)
    for rank, pid in enumerate(pids):
        path = run / f"rank_{rank}" / "metrics.jsonl"
        path.write_text(path.read_text() + path.read_text().splitlines()[1].join(["\n"] * 300))
        told = run / f"rank_{rank}" / "hang.jsonl"
        told.write_text(told.read_text().replace('"pid": 1', f'"pid": {pid}'))
    CannLog(logs, pids[0]).exception(BEGAN + 300, "Stuck Occurred", "10.0.0.1", 2)
    diagnosis = diagnose_ranks(run, since=BEGAN, tail_bytes=1 << 12, cann_logs=[str(logs)])
    assert diagnosis.findings[0].ranks == [2]


def test_two_hosts_with_one_pid_say_nothing_of_a_rank(tmp_path: Path) -> None:
    run, logs = tmp_path / "run", tmp_path / "logs"
    write_ranks(run, BEGAN, 2, per_host=1, pid=77)
    CannLog(logs, 77).error(BEGAN + 200, "EL0004", "Failed to allocate memory.")
    assert diagnose(run, logs).findings == []


def test_logs_are_found_where_cann_writes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Below the run's own directory, where somebody copied them; else by the variables, of this host's ranks alone."""
    home = str(tmp_path / "home")
    assert log_places({"ASCEND_PROCESS_LOG_PATH": "~/a", "ASCEND_WORK_PATH": "/b"}) == [f"{home}/a"]
    assert log_places({"ASCEND_WORK_PATH": "/b"}) == ["/b/log"]
    assert log_places({}) == [f"{home}/ascend/log"]
    run = tmp_path / "run"
    (pid,) = write_ranks(run, BEGAN, 1, host="elsewhere")
    CannLog(tmp_path / "home" / "ascend" / "log", pid).error(BEGAN + 5, "EL0004", "Failed to allocate memory.")
    assert diagnose(run).findings == [], "of another host"
    CannLog(run / "copied", pid).error(BEGAN + 5, "EL0004", "Failed to allocate memory.")
    assert len(diagnose(run).findings) == 1
    assert main(["diagnose", str(run), "--cann-log", str(tmp_path / "home")]) == 5
    assert "1. cann: rank 0 has CANN's error EL0004" in capsys.readouterr().out
    assert main(["diagnose", str(run), "--cann-log", str(tmp_path / "missing")]) == 3
    assert f"{tmp_path / 'missing'}: not a directory that can be read" in capsys.readouterr().out


def test_damaged_text_costs_its_line(tmp_path: Path) -> None:
    log = CannLog(tmp_path, 5)
    log.error(BEGAN, "EL0004", "Failed to allocate memory.")
    whole = log.debug.read_bytes()
    log.debug.write_bytes(b"\xff\0\xfe" * 50 + b"\n[ERROR] HCCL(x,y):2026 [torn\n" + b"x" * 3_000_000 + b"\n" + whole)
    problems: list[str] = []
    (fact,) = read_logs([(5, str(log.debug))], problems).facts
    assert (fact.code, fact.where, problems) == ("EL0004", f"debug/plog/{log.debug.name}:4", [])


def test_of_a_big_log_the_ends_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cann_log, "_HEAD_BYTES", 2000)
    monkeypatch.setattr(cann_log, "_TAIL_BYTES", 3000)
    log = CannLog(tmp_path, 5)
    log.join(BEGAN, "g", 2, 1)
    log.chatter(BEGAN, 5000)
    log.run.write_bytes(log.run.read_bytes() + b"[ERROR] HCCL(5,p):2026-11-30-10:00:00.000.000 [a.cc:1]EI0012 sdma\n")
    size = log.run.stat().st_size
    problems: list[str] = []
    logs = read_logs([(5, str(log.run))], problems)
    assert [member.group for member in logs.members[5]] == ["g"]
    (fact,) = logs.facts
    offset = int(fact.where.rpartition(" ")[2])
    assert size - 100 < offset < size
    assert log.run.read_bytes()[offset:].startswith(b"[ERROR]")


def test_what_may_not_be_read_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = CannLog(tmp_path, 5)
    log.error(BEGAN, "EL0004", "Failed to allocate memory.")

    def refuse(path: str) -> Any:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(cann_log, "_lines", refuse)  # root may read everything
    problems: list[str] = []
    assert read_logs(find_log_files([str(tmp_path)], problems), problems).facts == []
    assert problems == [f"{log.debug}: cannot be read: Permission denied"]


def test_older_logs_and_those_of_others_are_left_alone(tmp_path: Path) -> None:
    old, other = CannLog(tmp_path, 5), CannLog(tmp_path, 6)
    for log in (old, other):
        log.error(BEGAN, "EL0004", "Failed to allocate memory.")
    assert len(find_log_files([str(tmp_path)], [], pids=frozenset([5]))) == 1
    os.utime(old.debug, (BEGAN - 9000,) * 2)
    assert find_log_files([str(tmp_path)], [], pids=frozenset([5]), since=BEGAN - 600) == []


def test_reports_of_a_hang_and_of_a_stop_have_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASCEND_PROCESS_LOG_PATH", str(tmp_path / "logs"))
    log = CannLog(tmp_path / "logs", os.getpid())
    log.error(time.time() + 1, "EL0004", "Failed to allocate memory.")
    (fact,) = read_process(os.getpid(), BEGAN, os.environ)
    words = f"EL0004 (memory cannot be allocated): [npu_driver.cc:780][{os.getpid()}]EL0004: Failed to allocate memory."
    words += f" (debug/plog/{log.debug.name}:1)"
    findings = Findings(process=None, thread=None, children=[], stacks={}, cpu_share=0.0, cann_log=[words])
    alert = describe_hang(Hang(Beat(5, 5, 1, "compute", 0.0), 600.0, 600.0), 0, 1)
    assert f"  CANN's log: {words}\n" in report_text(alert, findings, 1, is_whole=False)
    assert hang_line("hang", alert, findings, 1)["found"]["cann_log"] == [words]
    engine = Engine(tmp_path, alerts=[{"rule": "nonfinite", "actions": ["stop"]}]).begin()
    engine.step(1, outputs=float("nan"))
    engine.end()
    report = json.loads((engine.directory / "rank_0" / "stop_report.json").read_text())
    assert report["cann_log"] == [words]
    assert f"CANN's log: {words}\n" in (engine.directory / "rank_0" / "stop_report.txt").read_text()
    assert fact.code == "EL0004"
