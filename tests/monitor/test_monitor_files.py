"""The monitor's files: the journal through crashes, full disks and vanished directories; the run of several ranks."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ms_summary_bridge.errors import LogdirError
from ms_summary_bridge.monitor.model.sample import Note, Sample
from ms_summary_bridge.monitor.sinks.journal import read_journal
from ms_summary_bridge.monitor.sinks.line_file import LineFile
from ms_summary_bridge.monitor.sinks.run_record import find_commit
from ms_summary_bridge.monitor.sinks.writer import Writer
from ms_summary_bridge.training.distributed import ProcessRank
from ms_summary_bridge.training.faults import Faults
from tests.bridge_scripts.runs import wait_until
from tests.conftest import ROOT, TESTS
from tests.monitor_run import Engine, FakeClock, strict_lines, values_of

ENDLESS = TESTS / "monitor_scripts" / "endless.py"


# ------------------------------------------------------------------ the journal


def test_what_is_stored_with_a_run(tmp_path: Path) -> None:
    section = {"metrics": ["loss"], "tags": {"dataset": "v3", "model": "340M"}, "project": "a b"}
    engine = Engine(tmp_path, **section).begin()
    engine.step(1)
    engine.recorder.end()
    (journal,) = tmp_path.glob("*/run/rank_0/metrics.jsonl")
    header = strict_lines(journal)[0]
    assert (header["kind"], header["format"], header["project"], header["run"]) == ("header", 1, "a b", "run")
    assert header["tags"] == section["tags"]
    assert header["config"]["metrics"] == ["loss"]
    assert header["versions"]["ms_summary_bridge"]
    assert header["commit"] == find_commit(str(ROOT))
    assert header["command"] == sys.orig_argv, "under xdist too, whose workers do not name pytest"


def test_the_same_run_id_goes_on_in_the_same_journal(tmp_path: Path) -> None:
    for first in (1, 4):
        engine = Engine(tmp_path, interval=0, metrics=["loss"]).begin(initial_step=first - 1)
        for step in range(first, first + 3):
            engine.step(step)
        engine.end()
    assert [line["kind"] for line in engine.lines()].count("header") == 2
    assert list(values_of(engine.samples(), "loss")) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("tail", "is_cut"),
    [(b'{"kind":"sample","st', True), (b'{"kind":"milestone","step":1}', False), (b"\0" * 5000, True), (b"", False)],
)
def test_a_torn_last_line_is_healed_and_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, tail: bytes, is_cut: bool
) -> None:
    engine = Engine(tmp_path, interval=0, metrics=["loss"]).begin()
    engine.step(1)
    before = engine.end()
    journal = engine.directory / "rank_0" / "metrics.jsonl"
    with journal.open("ab") as file:
        file.write(tail)
    again = Engine(tmp_path, interval=0, metrics=["loss"]).begin(initial_step=1)
    again.step(2)
    lines = again.end()
    assert lines[: len(before)] == before
    assert [line["bytes"] for line in again.lines("healed")] == ([len(tail)] if is_cut else [])
    assert any("torn" in record.getMessage() for record in caplog.records) == is_cut
    assert list(values_of(again.samples(), "loss")) == [1, 2]


def test_a_journal_goes_on_in_a_new_file_when_it_is_long(tmp_path: Path) -> None:
    size = 1 << 20
    for session in range(2):
        engine = Engine(tmp_path, interval=0, metrics=["loss"], max_journal_bytes=size).begin()
        for step in range(1, 6001):
            engine.step(step + 6000 * session)
        engine.end()
    files = sorted((engine.directory / "rank_0").glob("metrics*.jsonl"))
    assert [path.name for path in files] == ["metrics.1.jsonl", "metrics.2.jsonl", "metrics.jsonl"]
    assert all(path.stat().st_size < 1.1 * size for path in files)
    assert all(json.loads(path.read_text().splitlines()[0])["kind"] == "header" for path in files)
    assert list(values_of(engine.samples(), "loss")) == list(range(1, 12001))
    assert [line for line in read_journal(engine.directory / "rank_0") if line["kind"] == "sample"] == engine.samples()


def test_a_journal_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(LogdirError, match="holds no journal"):
        list(read_journal(tmp_path))
    with pytest.raises(LogdirError, match="cannot be read"):
        list(read_journal(tmp_path / "nowhere" / "metrics.jsonl"))


def test_two_processes_do_not_write_one_journal(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = Engine(tmp_path, interval=0, metrics=["loss"]).begin()
    first.step(1)
    first.recorder.flush()
    second = Engine(tmp_path, interval=0, metrics=["loss"]).begin()
    second.step(1)
    second.recorder.end()
    first.step(2)
    assert values_of([line for line in first.end() if line["kind"] == "sample"], "loss") == {1: 0.5, 2: 0.5}
    other = first.directory / "rank_0" / f"metrics-{os.getpid()}.jsonl"
    assert values_of([line for line in strict_lines(other) if line["kind"] == "sample"], "loss") == {1: 0.5}
    assert any("another process writes" in record.getMessage() for record in caplog.records)


def test_after_a_kill_what_is_older_than_five_seconds_is_there_and_the_next_start_heals(tmp_path: Path) -> None:
    with (tmp_path / "output").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, str(ENDLESS), str(tmp_path)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=output,
            stderr=output,
        )
    try:
        steps = tmp_path / "steps"
        journal = tmp_path / "default" / "run" / "rank_0" / "metrics.jsonl"
        wait_until(lambda: steps.exists() and journal.exists() and journal.stat().st_size > 100_000)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    done = [line.split() for line in steps.read_text().splitlines()]
    killed_at = float(done[-1][1])
    with journal.open("ab") as file:
        file.write(b'{"kind":"sam')
    engine = Engine(tmp_path, interval=0, metrics=["loss"]).begin()
    engine.end()
    written = values_of(engine.samples(), "loss")
    assert {int(step) for step, time in done if float(time) < killed_at - 5.0} <= written.keys()
    assert len(written) > 100
    assert len(engine.lines("healed")) == 1


def test_a_directory_that_vanishes_is_made_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    engine = Engine(tmp_path, interval=0, metrics=["loss"]).begin()
    engine.step(1)
    engine.step(2)
    assert engine.recorder.flush()
    for path in sorted(engine.directory.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    engine.directory.rmdir()
    for step in (3, 4):
        engine.step(step)
    lines = engine.end()
    assert lines[0]["kind"] == "header"
    assert {3, 4} <= values_of(engine.samples(), "loss").keys()
    assert any("was removed while it was written" in record.getMessage() for record in caplog.records)


def test_a_full_disk_costs_one_warning_of_each_kind(tmp_path: Path) -> None:
    said: list[str] = []
    file = LineFile("/dev/full", lambda kind, message: said.append(f"{kind}: {message}"))
    for number in range(200_000):
        file.append(b"%0100d" % number)
        if number % 50_000 == 0:
            assert not file.flush()
    file.close()
    assert file.dropped == 200_000, "what did not fit into memory, and what waited at the end"
    full = "/dev/full: more waits to be written than can be kept (No space left on device)"
    assert set(said) == {
        "write /dev/full: /dev/full cannot be written: No space left on device; it is tried again",
        f"full /dev/full: {full}: lines are left out",
        "missing /dev/full: /dev/full lacks 200,000 lines that could not be written: No space left on device",
    }


def test_what_a_full_disk_kept_waiting_is_written_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "metrics.jsonl"
    file = LineFile(str(path), lambda kind, message: None)
    real, room = os.write, 7

    def write(descriptor: int, data: bytes) -> int:
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = real(descriptor, data[:room])
        room -= written
        return written

    monkeypatch.setattr(os, "write", write)
    for number in range(10):
        file.append(b"%d" % number)
    assert not file.flush()
    assert path.read_bytes() == b"0\n1\n2\n3"
    room = 1000
    file.close()
    assert path.read_bytes() == b"0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n"
    assert file.dropped == 0


def test_values_that_come_as_fast_as_they_are_written_are_flushed_all_the_same() -> None:
    """They waited for a pause that never came, up to the bound of what may wait, and then were left out."""
    clock = FakeClock()
    seen: list[str] = []

    class Slow:
        """Takes half a second for each item, in which the next one comes."""

        def open(self) -> None:
            pass

        def write_sample(self, sample: Sample) -> None:
            pass

        def write_note(self, note: Note) -> None:
            seen.append(f"{note.step}")
            clock.now += 0.5
            if note.step < 7:
                writer.put(Note(kind="milestone", step=note.step + 1, wall_time=0.0, text=""))

        def flush(self) -> None:
            seen.append("flush")

        def close(self) -> None:
            pass

    writer = Writer(lambda: [Slow()], Faults("test"), clock=clock)
    writer.put(Note(kind="milestone", step=1, wall_time=0.0, text=""))
    assert writer.flush(60)
    writer.close(60)
    assert " ".join(seen).removeprefix("flush ").startswith("1 2 flush 3 4 flush 5 6 flush 7 flush")


def test_lines_that_find_no_room_are_left_out_with_a_word() -> None:
    said: list[str] = []
    file = LineFile("/dev/full", lambda kind, message: said.append(message))
    for _ in range(8):
        file.append(b"0" * (1 << 20))
    assert (file.dropped, said) == (0, [])
    file.append(b"1")
    assert file.dropped == 1
    assert said == ["/dev/full: more waits to be written than can be kept: lines are left out"]


def test_lines_that_a_full_disk_has_cost_are_named_in_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real, is_full = os.write, False

    def write(descriptor: int, data: bytes) -> int:
        if is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data)

    monkeypatch.setattr(os, "write", write)
    monkeypatch.setattr("ms_summary_bridge.monitor.sinks.line_file._MAX_WAITING_BYTES", 20_000)
    engine = Engine(tmp_path, interval=0, metrics=["loss"]).begin()
    for step in range(1, 301):
        is_full = 100 <= step < 290
        engine.step(step)
        if step % 10 == 0:
            engine.recorder.flush()
    engine.end()
    for directory in (engine.directory / "rank_0", engine.directory):  # each file for itself
        lines = strict_lines(directory)
        (lost,) = [line for line in lines if line["kind"] == "lost"]
        assert lost["reason"] == "No space left on device"
        samples = [line["step"] for line in lines if line["kind"] == "sample"]
        assert lost["lines"] == 300 - len(samples)
        assert lines[-1]["kind"] == "end"
        text = (
            f"{directory}/metrics.jsonl lacks {lost['lines']} lines that could not be written: No space left on device"
        )
        assert text in caplog.text


def test_a_disk_that_does_not_answer_never_stops_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    entered, gate, real = threading.Event(), threading.Event(), os.write

    def write(descriptor: int, data: bytes) -> int:
        entered.set()
        gate.wait()
        return real(descriptor, data)

    monkeypatch.setattr(os, "write", write)
    engine = Engine(tmp_path, interval=0, metrics=["loss"]).begin()
    engine.step(1)
    assert entered.wait(60)
    for step in range(2, 30_001):  # more than may wait
        engine.step(step)
    gate.set()
    lines = engine.end()
    assert lines[-1]["dropped"] > 0
    assert len(engine.samples()) == 30_000 - lines[-1]["dropped"]
    assert sum("left out" in record.getMessage() for record in caplog.records) == 1


def test_a_directory_that_cannot_be_made(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    engine = Engine(tmp_path / "file", metrics=["loss"]).begin()
    for step in (1, 2, 3):
        engine.step(step)
    engine.recorder.end()
    said = [record.getMessage() for record in caplog.records]
    assert any("cannot be opened" in message for message in said)
    assert len(said) == len(set(said))


def test_a_forked_child_writes_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = f"""
import os
from ms_summary_bridge.monitor import Monitor
section = {{"interval": 0, "backend": ["local"], "save_dir": {str(tmp_path)!r}, "run_id": "run", "metrics": ["loss"]}}
with Monitor(section) as monitor:
    monitor.step(loss=1.0)
    child = os.fork()
    monitor.step(loss=2.0)
    monitor.step(loss=3.0)
if child:
    assert os.waitpid(child, 0)[1] == 0
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True, timeout=60, stdout=subprocess.DEVNULL)
    lines = strict_lines(tmp_path / "default" / "run" / "rank_0")
    assert [line["kind"] for line in lines] == ["header", "sample", "sample", "sample", "end"]
    assert capfd.readouterr().err.count("was forked within a training") == 1, "in the child, which would lose them"


def test_a_monitor_made_before_a_fork_records_in_the_child_that_trains(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = f"""
import os, time
from ms_summary_bridge.monitor import Monitor
section = {{"interval": 0, "backend": ["local"], "save_dir": {str(tmp_path)!r}, "run_id": "run", "metrics": ["loss"]}}
monitor = Monitor({{**section, "watchdog": {{"compile_limit": 2, "floor": 2}}}})
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
else:
    with monitor:
        for _ in range(8):
            monitor.step(loss=1.0)
            time.sleep(0.5)
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True, timeout=60)
    directory = tmp_path / "default" / "run" / "rank_0"
    lines = strict_lines(directory)
    assert [line["kind"] for line in lines] == ["header", *8 * ["sample"], "end"]
    assert not list(directory.glob("hang*")), "the parent waits, and does not hang"
    assert "WARNING" not in capfd.readouterr().err


# ------------------------------------------------------------------ several ranks


def test_rank_0_keeps_a_journal_of_all_ranks(tmp_path: Path) -> None:
    engines = [
        Engine(tmp_path, ProcessRank(rank=rank, ranks=3, host="host"), interval=0, metrics=["loss"])
        for rank in range(3)
    ]
    for engine in engines:
        engine.begin()
    for step in (1, 2):
        for engine in reversed(engines):  # rank 0 is the last
            engine.step(step, outputs=float(step + engine.place.rank))
            engine.recorder.finish_step()
            engine.recorder.flush()
    for engine in reversed(engines):
        engine.end()
    lines = strict_lines(engines[0].directory)
    samples = [line for line in lines if line["kind"] == "sample"]
    assert [(line["step"], line["ranks"], line["steps"]) for line in samples] == [
        (step, [0, 1, 2], {"0": step, "1": step, "2": step}) for step in (1, 2)
    ]
    last = samples[-1]
    assert (last["min"]["loss"], last["values"]["loss"], last["max"]["loss"]) == (2.0, 3.0, 4.0)
    assert sorted(line["rank"] for line in lines if line["kind"] == "end") == [0, 1, 2]


def test_in_a_pipeline_the_loss_is_that_of_the_last_stage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    engines = [
        Engine(
            tmp_path,
            ProcessRank(rank=rank, ranks=4, host="host"),
            interval=0,
            metrics=["loss", "step"],
            auto_print=True,
        )
        for rank in range(4)
    ]
    for engine in engines:
        engine.begin(pipeline_stages=2)
    for engine in reversed(engines):
        engine.step(1, outputs=1000.0 if engine.place.rank < 2 else float(engine.place.rank))
        engine.recorder.finish_step()
        engine.recorder.flush()
    for engine in reversed(engines):
        engine.end()
    (sample,) = [line for line in strict_lines(engines[0].directory) if line["kind"] == "sample"]
    assert (sample["min"]["loss"], sample["values"]["loss"], sample["max"]["loss"]) == (2.0, 2.5, 3.0)
    assert (sample["ranks"], sample["values"]["step"]) == ([0, 1, 2, 3], 1)
    said = [record.getMessage() for record in caplog.records]
    assert [line for line in said if line.startswith("in this pipeline")] == [
        "in this pipeline only ranks 2 to 3, its last stage, have the training's loss; that of rank 0 is another number"
    ]


def test_a_table_names_each_column_once(tmp_path: Path) -> None:
    engine = Engine(tmp_path, interval=0, csv=True, metrics=["step", "loss", "epoch"]).begin()
    for step in (1, 2, 3):
        engine.step(step, epoch=1, given={"wall_time": 0.5})
    engine.end()
    path = engine.directory / "rank_0" / "metrics.csv"
    head, *rows = [line.split(",") for line in path.read_text().splitlines()]
    assert head == ["step", "epoch", "wall_time", "interval_steps", "loss", "value/wall_time"]
    assert [(row[0], row[1], row[4], row[5]) for row in rows] == [(str(step), "1", "0.5", "0.5") for step in (1, 2, 3)]
