"""What a look finds of runs: their states, their numbers, and what is wrong with files."""

from __future__ import annotations

import json
import math
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tensorboardX import SummaryWriter

from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.errors import LogdirError
from ms_summary_bridge.formats.protos import ms_pb
from ms_summary_bridge.formats.sessions.lineage import failed_training
from ms_summary_bridge.formats.wire import fixed64, length_delimited
from ms_summary_bridge.live_writer.live_run import LiveRun
from ms_summary_bridge.states.alerts import find_alerts
from ms_summary_bridge.states.run_state import RunState
from ms_summary_bridge.states.watcher import RunWatcher
from ms_summary_bridge.values import Scalar
from tests.formats.test_dataset_graph import golden, payload
from tests.formats.test_lineage import eval_event, put_lineage, train_event
from tests.live_writer.test_bridge_link import config_of
from tests.mindspore_run import START, event, histogram, scalar, summary_name, write_summary
from tests.monitor_run import Engine
from tests.scripted import build_file, build_record, put, tensorboard_name, version_payload

TESTS = Path(__file__).resolve().parent.parent
LATER = START + 1e4
HEADER = {"kind": "header", "format": 1, "wall_time": START, "rank": 0, "ranks": 1, "host": "elsewhere", "pid": 7}


def wait_until(condition: Callable[[], bool], secs: float) -> None:
    """Polls until something holds, or so long."""
    deadline = time.monotonic() + secs
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.2)


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    """A process that lives and begins to beat once it gets a line; this one may have heartbeats of other tests."""
    code = """
from ms_summary_bridge.monitor.watchdog.heartbeat import Heartbeat
input()
heartbeat = Heartbeat()
heartbeat.beat("evaluation")
print("beats", flush=True)
input()
"""
    command, environment = [sys.executable, "-c", code], {**os.environ, "PYTHONPATH": str(TESTS.parent)}
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield process
        process.kill()


class Watched:
    """A watcher of a directory, and when it is."""

    def __init__(self, directory: Path, stall_after: float | None = None, host: str = "here") -> None:
        self.watcher = RunWatcher(str(directory), stall_after, host=host)

    def look(self, now: float = LATER) -> dict[str, RunState]:
        return {run.name: run for run in self.watcher.look(now)}


def look(directory: Path, now: float = LATER, **options: Any) -> dict[str, RunState]:
    return Watched(directory, **options).look(now)


def losses(values: dict[int, float], tag_name: str = "loss/auto") -> list[Any]:
    return [event(step, (tag_name, scalar(value))) for step, value in values.items()]


def write_lines(path: Path, *lines: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines))
    return path


def sample(step: int, wall_time: float | None = None, **values: Any) -> dict[str, Any]:
    time = START + step if wall_time is None else wall_time
    return {"kind": "sample", "step": step, "wall_time": time, "rank": 0, "values": values or {"loss": 0.5}}


def write_failed(run: Path, wall_time: float) -> None:
    data = ms_pb.LineageEvent.FromString(train_event()).train_lineage.SerializeToString()
    put_lineage(run, fixed64(b"\x09", wall_time) + length_delimited(b"\x32", failed_training(data)))


# ---------------------------------------------------------------- states


def test_a_training_is_over_when_its_lineage_is_written(tmp_path: Path) -> None:
    write_summary(tmp_path / "run", losses({step: 1 / step for step in range(1, 121)}))
    assert look(tmp_path)["run"].state == "stalled"
    put_lineage(tmp_path / "run", train_event(START + 121))
    run = look(tmp_path)["run"]
    assert (run.state, run.step) == ("ended", 120)
    assert run.evidence == ("the lineage of the training was written",)


def test_an_evaluation_after_a_training_leaves_it_ended_and_its_step(tmp_path: Path) -> None:
    write_summary(tmp_path, losses({step: 1 / step for step in range(1, 121)}))
    put_lineage(tmp_path, train_event(START + 121))
    tags = [(f"eval/{name}", scalar(0.9)) for name in ("accuracy", "loss")]
    write_summary(
        tmp_path, [event(step, *tags, wall_time=START + 125 + step) for step in range(20)], seconds=START + 124
    )
    put_lineage(tmp_path, eval_event('{"accuracy": 0.9}', START + 146), seconds=START + 124)
    for now in (START + 130, START + 150, LATER):
        (run,) = look(tmp_path, now).values()
        assert (run.state, run.step, run.main.loss_tag) == ("ended", 120, "loss/auto")
    assert run.main.loss == pytest.approx(1 / 120)


def test_an_evaluation_under_the_trainings_tag_is_no_training(tmp_path: Path) -> None:
    write_summary(tmp_path, losses({step: 1 / step for step in range(1, 121)}))
    put_lineage(tmp_path, train_event(START + 121))
    again = [event(step, ("loss/auto", scalar(0.5)), wall_time=START + 125 + step) for step in range(20)]
    write_summary(tmp_path, again, seconds=START + 124)
    put_lineage(tmp_path, eval_event('{"accuracy": 0.9}', START + 146), seconds=START + 124)
    (run,) = look(tmp_path).values()
    assert (run.state, run.step) == ("ended", 120)


def test_an_evaluation_alone_is_over(tmp_path: Path) -> None:
    put_lineage(tmp_path, eval_event('{"accuracy": 0.9}', START + 146))
    (run,) = look(tmp_path).values()
    assert (run.state, run.evidence) == ("ended", ("the lineage of an evaluation was written",))


def test_a_closed_file_without_the_lineage_of_the_end_is_a_failure(tmp_path: Path) -> None:
    path = write_summary(tmp_path, losses({1: 0.5, 2: 0.4}))
    path.chmod(0o400)
    put_lineage(tmp_path, payload(golden("zip")))
    (run,) = look(tmp_path).values()
    assert (run.state, run.step) == ("failed", 2)
    put_lineage(tmp_path, payload(golden("zip")), train_event(START + 3))
    (run,) = look(tmp_path).values()
    assert run.state == "ended"


def test_a_landscape_after_a_training_leaves_its_step(tmp_path: Path) -> None:
    write_summary(tmp_path, losses(dict.fromkeys(range(1, 150), 0.5)))
    put_lineage(tmp_path, train_event(START + 150))
    write_summary(tmp_path, [event(0, ("accuracy", scalar(1)), wall_time=START + 500.0)], seconds=START + 500)
    (run,) = look(tmp_path, START + 501).values()
    assert (run.state, run.step) == ("ended", 149)


def test_losses_that_are_not_finite_are_told_first(tmp_path: Path) -> None:
    write_summary(tmp_path, losses({step: 1.4 if step == 1 else math.nan for step in range(1, 21)}))
    put_lineage(tmp_path, train_event(START + 21))
    (run,) = look(tmp_path).values()
    assert (run.state, run.life) == ("non-finite", "ended")
    assert run.evidence[0] == "the loss is nan since step 2 (19 of the last 20 are not finite)"
    assert run.main.loss is not None
    assert math.isnan(run.main.loss)


def test_a_loss_that_was_infinite_once_is_not_lost(tmp_path: Path) -> None:
    write_summary(tmp_path, losses({1: 1.0, 2: math.inf, 3: 0.5}))
    (run,) = look(tmp_path, START + 4).values()
    assert run.state == "running"


def test_a_rerun_after_nan_counts_alone(tmp_path: Path) -> None:
    write_summary(tmp_path, losses({1: 1.0, 2: math.nan}))
    again = [event(step, ("loss/auto", scalar(0.5)), wall_time=START + 100.0 + step) for step in (1, 2, 3)]
    write_summary(tmp_path, again, seconds=START + 100)
    (run,) = look(tmp_path, START + 105).values()
    assert run.state == "running"


def test_a_failed_training_and_one_that_went_on(tmp_path: Path) -> None:
    write_summary(tmp_path, losses(dict.fromkeys(range(1, 10), 0.5)))
    write_failed(tmp_path, START + 10)
    (run,) = look(tmp_path).values()
    assert (run.state, run.evidence) == ("failed", ("its lineage says that the training failed",))
    again = [event(step, ("loss/auto", scalar(0.5)), wall_time=START + 100.0 + step) for step in (1, 2)]
    write_summary(tmp_path, again, seconds=START + 100)
    (run,) = look(tmp_path, START + 105).values()
    assert (run.state, run.step) == ("running", 9)


def test_the_mode_says_that_a_file_was_closed(tmp_path: Path) -> None:
    path = write_summary(tmp_path, losses({1: 0.5, 2: 0.4}))
    for mode, state in ((0o600, "stalled"), (0o400, "ended")):
        path.chmod(mode)
        (run,) = look(tmp_path).values()
        assert run.state == state


def test_a_conversion_is_judged_by_its_source(tmp_path: Path) -> None:
    """A copy that was made a moment ago tells of a training that was over long before."""
    write_summary(tmp_path / "ms" / "over", losses({1: 0.5}))
    put_lineage(tmp_path / "ms" / "over", train_event(START + 2))
    write_summary(tmp_path / "ms" / "silent", losses({1: 0.5}))
    convert_logdir(str(tmp_path / "ms"), str(tmp_path / "tb"))
    states = {name: run.state for name, run in look(tmp_path / "tb", START + 3600).items()}
    assert states == {"over": "ended", "silent": "stalled"}
    assert look(tmp_path / "tb", START + 1e6)["silent"].state == "unknown"


def test_a_conversion_beside_its_source_is_the_same_run(tmp_path: Path) -> None:
    write_summary(tmp_path / "run", losses({1: 0.5, 2: 0.25}))
    convert_logdir(str(tmp_path / "run"), str(tmp_path / "run"))
    (run,) = look(tmp_path).values()
    assert (len(run.ranks), run.step, run.main.losses, run.problems) == (1, 2, (0.5, 0.25), ())


def test_tensorboards_of_others(tmp_path: Path) -> None:
    writer = SummaryWriter(str(tmp_path / "x"))
    for step in range(1, 31):
        writer.add_scalar("Loss/train", 3.0 / step, step, walltime=START + step)
        writer.add_scalar("lr", 1e-3, step, walltime=START + step)
        writer.add_histogram("w", [1.0, 2.0], step, walltime=START + step)
        writer.add_text("note", "words", step, walltime=START + step)
    writer.close()
    double = length_delimited(b"\x42", b"\x08\x02\x12\x00" + fixed64(b"\x31", 0.125))
    value = length_delimited(b"\x2a", length_delimited(b"\x0a", length_delimited(b"\x0a", b"loss") + double))
    as_tensor = build_record(fixed64(b"\x09", START + 3.0) + b"\x10\x03" + value)
    put(tmp_path / "tf2" / tensorboard_name(), build_record(version_payload("tensorboard")) + as_tensor)
    runs = look(tmp_path, START + 32)
    assert {name: run.state for name, run in runs.items()} == {"x": "running", "tf2": "running"}
    main = runs["x"].main
    assert (main.step, main.loss_tag, main.loss) == (30, "Loss/train", pytest.approx(0.1))
    assert (main.lr, main.rate, main.rate_unit) == (pytest.approx(1e-3), 1.0, "steps/s")
    assert (runs["tf2"].main.loss, runs["tf2"].step) == (0.125, 3)


def test_the_process_in_a_name_says_whether_it_lives(tmp_path: Path, other: subprocess.Popen[bytes]) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    host = socket.gethostname()
    start = int(time.time())
    for name, pid in (("alive", other.pid), ("gone", child.pid)):
        put(
            tmp_path / name / f"events.out.tfevents.{start}.{host}.{pid}.0", build_file("tensorboard", [1], start=start)
        )
    runs = look(tmp_path, start + 1e5, host=host)
    assert {name: run.state for name, run in runs.items()} == {"alive": "stalled", "gone": "ended"}
    assert "is alive" in runs["alive"].evidence[0]
    assert f"process {child.pid} is gone" in runs["gone"].evidence[0]


# ---------------------------------------------------------------- the monitor's files


def test_a_journal_tells_how_it_goes_and_ends(tmp_path: Path) -> None:
    engine = Engine(tmp_path, metrics=["loss", "lr", "step_time", "samples_per_second"], interval=0)
    engine.begin(samples_per_step=32)
    for step in range(1, 9):
        engine.step(step, 0.5, outputs=4.0 - step / 2)
    engine.recorder.notes.milestone("warm-up is over")
    lines = engine.end()
    (run,) = look(tmp_path, lines[-1]["wall_time"] + 1e5).values()
    assert (run.name, run.state, run.step) == ("default/run", "ended", 8)
    assert run.evidence == ("the journal has its end",)
    assert (run.main.rate, run.main.rate_unit) == (64.0, "samples/s")
    assert [text for _, _, text in run.milestones] == ["warm-up is over"]
    assert run.main.losses[-3:] == (1.0, 0.5, 0.0)


def test_the_newest_of_the_losses_that_are_the_same_is_shown(tmp_path: Path) -> None:
    write_summary(tmp_path / "run", losses({1: 4.0, 11: 3.0, 21: 2.0}))
    path = write_lines(tmp_path / "run" / "metrics.jsonl", HEADER, *(sample(step, loss=0.5) for step in range(1, 22)))
    write_summary(tmp_path / "run", losses({99: 9.0}, "aux/loss"), seconds=START + 1)
    watched = Watched(tmp_path)
    main = watched.look()["run"].main
    assert (main.loss_step, main.loss, main.loss_tag) == (21, 0.5, "loss")  # and not another one at each tenth step
    write_lines(path, sample(22), sample(23, loss=0.25))
    main = watched.look()["run"].main
    assert (main.loss_step, main.loss, main.loss_tag) == (23, 0.25, "loss")
    write_summary(tmp_path / "run", losses({31: 1.0}), seconds=START + 2)
    main = watched.look()["run"].main
    assert (main.loss_step, main.loss, main.loss_tag) == (31, 1.0, "loss/auto")


def test_the_loss_that_is_not_finite_is_the_one_that_is_shown(tmp_path: Path) -> None:
    write_summary(tmp_path / "run", losses({1: 4.0}))
    bad = {**sample(8), "values": {"loss": None}, "nonfinite": {"loss": "nan"}}
    path = write_lines(tmp_path / "run" / "metrics.jsonl", HEADER, sample(7), bad)
    watched = Watched(tmp_path)
    write_lines(path, {"kind": "alert", "rule": "nonfinite", "value": None, "nonfinite": {"value": "nan"}})
    alert, told = find_alerts(list(watched.look().values()))
    assert (str(told.alert.value), told.alert.rule) == ("nan", "nonfinite")
    assert alert.alert.message.startswith("the loss is nan since step 8")
    assert (str(alert.alert.value), alert.alert.metric) == ("nan", "loss")
    write_summary(tmp_path / "run", losses({9: math.nan}), seconds=START + 1)
    write_lines(path, sample(10))
    run = watched.look()["run"]
    assert (run.state, run.main.loss) == ("running", 0.5)  # it has passed by the newest
    write_summary(tmp_path / "run", losses({10: math.inf}, "aux/loss"), seconds=START + 2)
    run = watched.look()["run"]
    assert (run.state, run.main.loss, run.main.loss_tag) == ("non-finite", math.inf, "aux/loss")


def test_an_alarm_and_a_nan_in_a_journal(tmp_path: Path) -> None:
    engine = Engine(tmp_path, alerts=["nonfinite"], metrics=["loss"], interval=0).begin()
    for step in range(1, 9):
        engine.step(step, 0.5, outputs=math.nan if step > 5 else 1.0)
    engine.end()
    (run,) = look(tmp_path).values()
    assert run.state == "non-finite"
    assert run.evidence[0].startswith("the loss is nan since step 6")
    assert [(alarm.rule, alarm.rank) for alarm in run.alarms] == [("nonfinite", 0)]
    assert run.plain()["loss"] == "nan"


def test_a_journal_without_an_end_is_stalled_or_failed_by_its_process(tmp_path: Path) -> None:
    write_lines(tmp_path / "run" / "rank_0" / "metrics.jsonl", HEADER, sample(1), sample(2))
    assert look(tmp_path, START + 60)["run"].state == "running"
    assert look(tmp_path)["run"].state == "stalled"
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    write_lines(tmp_path / "dead" / "rank_0" / "metrics.jsonl", {**HEADER, "host": "here", "pid": child.pid}, sample(1))
    dead = look(tmp_path)["dead"]
    assert (dead.state, dead.evidence) == ("failed", (f"process {child.pid} is gone, and no end was recorded",))


def test_a_process_that_was_seen_alive_is_missed_at_once(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert child.stdin is not None
    now = time.time()
    header = {**HEADER, "host": "here", "pid": child.pid, "wall_time": now}
    path = write_lines(tmp_path / "run" / "rank_0" / "metrics.jsonl", header, sample(1, now + 1))
    watched = Watched(tmp_path)
    assert watched.look(now + 20)["run"].state == "running"
    child.communicate(b"\n")
    run = watched.look(now + 20)["run"]
    assert (run.state, run.evidence) == ("failed", (f"process {child.pid} is gone, and no end was recorded",))
    write_lines(path, {"kind": "end", "step": 1, "wall_time": now + 21, "reason": ""})
    assert watched.look(now + 22)["run"].state == "ended"


def test_the_first_step_may_take_its_time(tmp_path: Path) -> None:
    write_lines(tmp_path / "run" / "rank_0" / "metrics.jsonl", HEADER)
    assert look(tmp_path, START + 1000)["run"].state == "running"
    assert look(tmp_path, START + 2000)["run"].state == "stalled"


def test_the_newest_header_is_found_before_the_tail(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    first = {**HEADER, "host": "here", "pid": os.getpid()}
    second = {**HEADER, "host": "here", "pid": child.pid, "wall_time": START + 50.0}
    padding = {"note": "x" * 400}
    path = tmp_path / "run" / "rank_0" / "metrics.jsonl"
    write_lines(path, first, *({**sample(step), **padding} for step in range(50)), second)
    write_lines(path, *({**sample(step), **padding} for step in range(50, 150)))
    (run,) = look(tmp_path, START + 150 + 600).values()
    assert (run.state, run.evidence) == ("failed", (f"process {child.pid} is gone, and no end was recorded",))


def test_a_training_that_an_alarm_has_stopped_says_so(tmp_path: Path) -> None:
    stop = {"kind": "stop", "step": 2, "wall_time": START + 3.0, "text": "stopped for nonfinite"}
    end = {"kind": "end", "step": 2, "wall_time": START + 4.0, "text": "training ended", "reason": ""}
    write_lines(tmp_path / "run" / "rank_0" / "metrics.jsonl", HEADER, sample(1), stop, end)
    run = look(tmp_path)["run"]
    assert (run.state, run.evidence) == ("ended", ("stopped for nonfinite",))


def test_a_journal_that_is_full_is_read_to_its_end(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "run" / "rank_0" / "metrics.jsonl", HEADER, sample(1))
    watched = Watched(tmp_path)
    watched.look(START + 2)
    alert = {
        "kind": "alert",
        "rule": "loss_spike",
        "severity": "warning",
        "step": 2,
        "rank": 0,
        "wall_time": START + 2.0,
    }
    write_lines(path, sample(2), alert)
    path.rename(path.with_name("metrics.1.jsonl"))
    write_lines(path, {**HEADER, "wall_time": START + 3.0}, sample(3))
    run = watched.look(START + 4)["run"]
    assert (run.step, run.main.losses, [alarm.rule for alarm in run.alarms]) == (3, (0.5, 0.5, 0.5), ["loss_spike"])


def test_a_hang_a_recovery_and_a_death(tmp_path: Path) -> None:
    rank = tmp_path / "run" / "rank_0"
    write_lines(rank / "metrics.jsonl", HEADER, sample(1), sample(2))
    watched = Watched(tmp_path)
    assert watched.look(START + 20)["run"].state == "running"
    told = {"rule": "hang", "step": 2, "rank": 0, "severity": "critical", "message": "no sign of life for 15 s"}
    write_lines(rank / "hang.jsonl", {"kind": "hang", "wall_time": START + 20.0, **told})
    run = watched.look(START + 25)["run"]
    assert (run.state, run.evidence) == ("stalled", ("the watchdog: no sign of life for 15 s",))
    assert [alarm.rule for alarm in run.alarms] == ["hang"]
    write_lines(
        rank / "hang.jsonl", {"kind": "recovered", "wall_time": START + 30.0, "severity": "info", "rule": "hang"}
    )
    write_lines(rank / "metrics.jsonl", sample(3, START + 31.0))
    assert watched.look(START + 35)["run"].state == "running"
    death = {"rule": "death", "severity": "critical", "step": 3, "rank": 0, "message": "was ended by SIGKILL"}
    write_lines(rank / "hang.jsonl", {"kind": "death", "wall_time": START + 40.0, **death})
    run = watched.look(START + 41)["run"]
    assert (run.state, run.evidence) == ("failed", ("was ended by SIGKILL",))
    write_lines(rank / "metrics.jsonl", {**HEADER, "wall_time": START + 90.0}, sample(4, START + 92.0))
    assert watched.look(START + 93)["run"].state == "running"


def test_a_hang_that_was_told_of_stays_one(tmp_path: Path) -> None:
    rank = tmp_path / "run" / "rank_0"
    write_lines(rank / "metrics.jsonl", HEADER, sample(1), sample(2))
    watched = Watched(tmp_path, stall_after=3600.0)
    assert watched.look(START + 19)["run"].state == "running"
    hang = {"rule": "hang", "step": 2, "rank": 0, "severity": "critical", "wall_time": START + 20.0, "message": "stuck"}
    action = {"kind": "action", "action": "webhook", "rule": "hang", "wall_time": START + 31.0}
    blame = {"kind": "blame", "rank": 0, "wall_time": START + 31.0, "text": "rank 0 hangs"}
    write_lines(rank / "hang.jsonl", {"kind": "hang", **hang}, blame, action)
    write_lines(rank / "metrics.jsonl", {"kind": "alert", **hang}, action)
    for run in (watched.look(START + 32)["run"], look(tmp_path, START + 32, stall_after=3600.0)["run"]):
        assert (run.state, run.evidence, run.last_time) == ("stalled", ("the watchdog: stuck",), START + 2)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_hang_of_an_earlier_session_is_over(tmp_path: Path, is_first: bool) -> None:
    rank, hang = tmp_path / "run" / "rank_0", {"kind": "hang", "rule": "hang", "rank": 0, "wall_time": START + 20.0}
    paths = {"hang.jsonl": [hang], "metrics.jsonl": [HEADER, sample(2), {**HEADER, "wall_time": START + 24.0}]}
    watched = Watched(tmp_path)
    for name in sorted(paths, reverse=not is_first):
        write_lines(rank / name, *paths[name])
        watched.look(START + 25)
    assert watched.look(START + 25)["run"].state == "running"


def test_a_rank_of_many_is_named(tmp_path: Path) -> None:
    for rank in range(4):
        write_summary(tmp_path / "job", losses(dict.fromkeys(range(1, 5), 0.5 + rank)), rank=rank)
        lines = [{**HEADER, "rank": rank, "ranks": 4}, *map(sample, range(1, 3 if rank == 2 else 300))]
        write_lines(tmp_path / "llm" / f"rank_{rank}" / "metrics.jsonl", *lines)
        write_summary(tmp_path / "llm" / "summary" / f"rank_{rank}", losses({1: 0.5}))
    write_lines(tmp_path / "llm" / "metrics.jsonl", HEADER, sample(299))
    runs = look(tmp_path, START + 300)
    assert sorted(runs) == ["job", "llm"]
    assert [rank.loss for rank in runs["job"].ranks] == [0.5, 1.5, 2.5, 3.5]
    assert runs["job"].evidence[0].startswith("all 4 ranks: ")
    assert [rank.rank for rank in runs["llm"].ranks] == [0, 1, 2, 3]
    assert (runs["llm"].state, runs["llm"].step) == ("stalled", 299)
    assert runs["llm"].evidence[0].startswith("rank 2 of 4: nothing was written for 5 minutes")


def test_files_belong_to_the_training_that_recorded_them(tmp_path: Path) -> None:
    write_summary(tmp_path / "p" / "healthy" / "summary", losses({1: 0.5}))
    write_lines(tmp_path / "p" / "healthy" / "metrics.jsonl", HEADER, sample(7))
    write_summary(tmp_path / "alone" / "summary", losses({1: 0.5}))
    write_summary(tmp_path / "above", losses({1: 0.5}))
    write_lines(tmp_path / "above" / "monitor" / "run" / "rank_0" / "metrics.jsonl", HEADER, sample(9))
    assert {name: run.step for name, run in look(tmp_path).items()} == {"above": 9, "alone": 1, "p/healthy": 7}


# ---------------------------------------------------------------- what is wrong with files


def test_runs_stand_in_the_order_of_their_directories(tmp_path: Path) -> None:
    names = ["output", "output/monitor/run-2", "output/monitor/run-10", "output2", "output2/monitor/run-1"]
    for name in reversed(names):
        write_summary(tmp_path / name, losses({1: 0.5}))
    assert list(look(tmp_path)) == names


def test_damage_costs_a_run_its_row_alone_and_is_named(tmp_path: Path) -> None:
    good = write_summary(tmp_path / "good", losses({1: 0.5}))
    data = bytearray(write_summary(tmp_path / "damaged", losses(dict.fromkeys(range(1, 9), 0.5))).read_bytes())
    data[len(data) // 2] ^= 0xFF
    put(tmp_path / "damaged" / good.name, bytes(data))
    put(tmp_path / "empty" / good.name, b"")
    put(tmp_path / "text" / good.name, b"just text, and more of it than a header has bytes\n" * 9)
    put(tmp_path / "cut" / good.name, good.read_bytes()[:-3])
    put(tmp_path / "lines" / "rank_0" / "metrics.jsonl", b'{"kind":"header"}\n\xff\xfe not JSON\n[1]\n{"kind":"sa')
    write_lines(
        tmp_path / "odd" / "rank_0" / "metrics.jsonl", {"kind": "sample", "step": "x", "values": [1]}, {"kind": 3}
    )
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / good.name)
    (tmp_path / "directory" / good.name).mkdir(parents=True)
    runs = look(tmp_path, START + 9)
    said = {name: [line.partition(": ")[2] for line in run.problems] for name, run in runs.items()}
    assert said["damaged"][0].startswith("bytes ")
    assert "hold no whole record" in said["damaged"][0]
    assert said["empty"] == ["zero bytes"]
    assert said["text"] == ["not an event file: it holds no whole record"]
    assert said["lines"] == ["2 lines cannot be read"]
    assert said["pipe"] == ["not a regular file"]
    assert (said["good"], said["cut"], said["odd"]) == ([], [], [])
    assert {name for name, run in runs.items() if run.is_partial} == {"damaged", "text", "lines", "pipe"}
    assert {name: runs[name].state for name in ("good", "damaged", "empty", "text")} == {
        "good": "running",
        "damaged": "running",
        "empty": "unknown",
        "text": "unknown",
    }
    assert runs["damaged"].step == 8


def test_a_source_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(LogdirError, match="No such file"):
        look(tmp_path / "missing")
    with pytest.raises(LogdirError, match="Not a directory"):
        look(put(tmp_path / "file", b""))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may list everything")
def test_a_directory_that_cannot_be_listed_is_named(tmp_path: Path) -> None:
    write_summary(tmp_path / "good", losses({1: 0.5}))
    (tmp_path / "closed").mkdir(mode=0)
    watched = Watched(tmp_path)
    assert list(watched.look()) == ["good"]
    assert watched.watcher.problems == [f"{tmp_path / 'closed'}: cannot be listed: Permission denied"]


def test_a_link_that_leads_back_ends(tmp_path: Path) -> None:
    write_summary(tmp_path / "run", losses({1: 0.5}))
    (tmp_path / "run" / "round").symlink_to(tmp_path)
    assert list(look(tmp_path)) == ["run"]


# ---------------------------------------------------------------- again and again


def test_a_file_is_read_on_where_it_ended(tmp_path: Path) -> None:
    events = losses({step: 1 / step for step in range(1, 2001)})
    whole = write_summary(tmp_path / "whole", events).read_bytes()
    path = put(tmp_path / "tree" / "run" / summary_name(), whole[:-7])
    watched = Watched(tmp_path / "tree")
    assert watched.look(START + 2000)["run"].step == 1999
    assert watched.watcher.reading.bytes < 20_000 < len(whole)
    assert watched.look(START + 2001)["run"].step == 1999
    assert (watched.watcher.reading.files, watched.watcher.reading.bytes) == (0, 0)
    path.write_bytes(whole)
    run = watched.look(START + 2002)["run"]
    assert (run.step, run.main.loss, run.problems) == (2000, pytest.approx(1 / 2000), ())
    assert watched.watcher.reading.bytes < 100


def test_a_loss_is_found_behind_large_records(tmp_path: Path) -> None:
    wide = histogram(range(1000))
    large = [event(step, ("w", wide), ("v", wide)) for step in range(3, 12)]
    write_summary(tmp_path, [*losses({1: 0.5, 2: 0.25}), *large])
    (run,) = look(tmp_path).values()
    assert (run.main.loss, run.step, run.problems) == (0.25, 2, ())


def test_a_file_that_is_replaced_is_read_anew(tmp_path: Path) -> None:
    path = write_summary(tmp_path / "run", losses(dict.fromkeys(range(1, 9), math.nan)))
    watched = Watched(tmp_path)
    assert watched.look(START + 9)["run"].state == "non-finite"
    path.unlink()
    write_summary(tmp_path / "run", losses({1: 0.5}))
    run = watched.look(START + 10)["run"]
    assert (run.state, run.step) == ("running", 1)


def test_runs_come_and_go(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    assert watched.look() == {}
    path = write_summary(tmp_path / "run_10", losses({1: 0.5}))
    write_summary(tmp_path / "run_9", losses({1: 0.5}))
    assert list(watched.look()) == ["run_9", "run_10"]
    write_summary(tmp_path / "run_9", losses({5: 0.5}), rank=1)
    assert len(watched.look()["run_9"].ranks) == 2
    path.unlink()
    (tmp_path / "run_9" / summary_name(rank=1)).unlink()
    (run,) = watched.look().values()
    assert (run.name, len(run.ranks), run.step) == ("run_9", 1, 1)


def test_growth_is_a_sign_of_life_whatever_the_clock_of_the_writer(tmp_path: Path) -> None:
    path = put(tmp_path / "run" / summary_name(), build_file("mindspore", range(1, 5)))
    watched = Watched(tmp_path)
    assert watched.look(LATER)["run"].state == "stalled"
    path.write_bytes(build_file("mindspore", range(1, 6)))
    assert watched.look(LATER + 1)["run"].state == "running"
    assert watched.look(LATER + 1000)["run"].state == "stalled"


def test_a_budget_leaves_the_rest_for_the_next_look(tmp_path: Path) -> None:
    for number in range(3):
        write_summary(tmp_path / f"run_{number}", losses({1: 0.5}))
    watcher = RunWatcher(str(tmp_path))
    assert len(watcher.look(LATER, budget_secs=0.0)) < 3
    assert watcher.unread > 0
    assert len(watcher.look(LATER)) == 3
    assert watcher.unread == 0


# ---------------------------------------------------------------- real trainings


def test_mindspores_own_collector(summary_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "job").symlink_to(summary_dir)
    run = look(tmp_path)["job"]
    assert (run.state, run.step, run.problems) == ("ended", 16, ())
    assert run.evidence == ("the lineage of the training was written",)
    assert run.main.loss_tag == "loss/auto"
    assert len(run.main.losses) >= 8, "pictures and histograms are between them"


@pytest.mark.mindspore
def test_mindspores_own_collector_in_a_training_that_is_killed(tmp_path: Path) -> None:
    run = tmp_path / "job"
    with (tmp_path / "output.txt").open("w+b") as output:
        process = subprocess.Popen(
            [sys.executable, str(TESTS / "train_by_hand.py"), str(run), "40"],
            cwd=tmp_path,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    assert process.stdin is not None
    try:
        process.stdin.write(b"\n" * 12)
        process.stdin.flush()
        watched = Watched(tmp_path)

        def state() -> tuple[str, int | None]:
            found = watched.look(time.time() + 20).get("job")
            return ("", None) if found is None else (found.state, found.step)

        wait_until(lambda: (state()[1] or 0) >= 12, secs=120)
        assert state()[0] == "running", (tmp_path / "output.txt").read_text(errors="replace")[-3000:]
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
    wait_until(lambda: state()[0] == "failed", secs=30)
    assert state()[0] == "failed"


SCRIPT = TESTS / "bridge_scripts" / "watched.py"
KINDS = {"well": ("ended", 12), "error": ("failed", 8), "kill": ("failed", 8), "nan": ("non-finite", 12)}


@pytest.mark.mindspore
@pytest.mark.parametrize("kind", KINDS)
def test_a_real_training_with_bridge_and_monitor(tmp_path: Path, kind: str) -> None:
    directory = tmp_path / "job"
    with (tmp_path / "output.txt").open("w+b") as output:  # a pipe would be held open by the writer's processes
        done = subprocess.run(
            [sys.executable, str(SCRIPT), str(directory), kind],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=240,
            check=False,
        )
    said = (tmp_path / "output.txt").read_text(errors="replace")[-3000:]
    assert (done.returncode == 0) == (kind in ("well", "nan")), said
    state, step = KINDS[kind]
    watched = Watched(tmp_path, host=socket.gethostname())

    def found() -> tuple[object, ...]:
        runs = watched.look(time.time() + 60)
        if "job" not in runs:  # its writer process has not come to its first file
            return (sorted(runs),)
        run = runs["job"]
        return sorted(runs), run.state, run.step, len(run.ranks), run.problems, [alarm.rule for alarm in run.alarms]

    rules = {"nan": ["nonfinite"], "kill": ["death"]}.get(kind, [])
    wait_until(lambda: found() == (["job"], state, step, 1, (), rules), secs=60)  # the processes beside it end later
    assert found() == (["job"], state, step, 1, (), rules), said
    run = watched.look(time.time() + 60)["job"]
    assert run.life == ("ended" if kind == "nan" else state)
    assert 8 <= len(run.main.losses) <= step, "the window of the tail may leave out the first ones"


def test_a_file_that_is_seen_before_its_twin_counts_once(tmp_path: Path) -> None:
    run = LiveRun(config_of(tmp_path / "run"), lambda *warning: None)
    for step in range(1, 9):
        run.write_values(step, 5.0 + step, {"scalar": [{"tag": "loss", "value": Scalar.from_float32(1 / step)}]})
    run.close()
    (summary,) = (tmp_path / "run").glob("*_MS")
    summary.rename(tmp_path / summary.name)
    watcher = RunWatcher(str(tmp_path / "run"))
    (before,) = watcher.look(1e9)
    (tmp_path / summary.name).rename(summary)
    (after,) = watcher.look(1e9 + 100)
    assert [len(state.main.losses) for state in (before, after)] == [8, 8]


def test_a_file_that_does_not_say_yet_who_writes_it_counts_once(tmp_path: Path) -> None:
    run = LiveRun(config_of(tmp_path), lambda *warning: None)
    for step in range(1, 9):
        run.write_values(step, 5.0 + step, {"scalar": [{"tag": "loss", "value": Scalar.from_float32(1 / step)}]})
    run.close()
    (live,) = tmp_path.glob("*tfevents*")
    live.chmod(0o600)
    whole = live.read_bytes()
    for size in (0, 5, 20):
        live.write_bytes(whole[:size])
        watcher = RunWatcher(str(tmp_path))
        (before,) = watcher.look(1e9)
        live.write_bytes(whole)
        (after,) = watcher.look(1e9 + 100)
        assert [len(state.main.losses) for state in (before, after)] == [8, 8]


def test_a_heartbeat_is_a_sign_of_life(tmp_path: Path, other: subprocess.Popen[bytes]) -> None:
    now = time.time()
    header = {**HEADER, "host": "here", "pid": other.pid, "wall_time": now + 60}  # after that process began
    write_lines(tmp_path / "run" / "metrics.jsonl", header, {**sample(1), "wall_time": now + 61})
    watcher = RunWatcher(str(tmp_path), host="here")
    (run,) = watcher.look(now + 3 * 3600)
    assert (run.state, "is alive" in run.evidence[0]) == ("stalled", True)
    assert other.stdin is not None
    assert other.stdout is not None
    other.stdin.write(b"\n")
    other.stdin.flush()
    assert other.stdout.readline() == b"beats\n"
    (run,) = watcher.look(now + 3 * 3600)
    assert run.state == "running"
    assert "heartbeat" in run.evidence[0]
    assert "in evaluation for" in run.evidence[0]
