"""What goes wrong with one run stays with it: the others are converted, in every way of converting."""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from ms_summary_bridge.cli.app import main
from ms_summary_bridge.convert import outputs as outputs_module
from ms_summary_bridge.convert import processes, state, unread
from ms_summary_bridge.convert import run as run_module
from ms_summary_bridge.convert.destination import locked
from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.convert.run import convert_run
from ms_summary_bridge.convert.state import RunState
from ms_summary_bridge.convert.task import ConvertOptions, RunTask
from ms_summary_bridge.convert.verify import verify_logdirs
from ms_summary_bridge.errors import (
    DamagedStateError,
    DestinationBusyError,
    FileTakenError,
    LogdirError,
    NoEventsError,
    OtherConversionError,
    OutputChangedError,
    ReadError,
    WriteError,
)
from ms_summary_bridge.files.record_writer import RecordWriter
from ms_summary_bridge.runs.report import Report, RunReport
from tests.conftest import ROOT
from tests.convert.test_convert import contents, outputs, scalar_rows
from tests.eventually import wait_for
from tests.follow_script import FollowScript
from tests.mindspore_run import scalars, write_summary
from tests.runs.test_logdir import in_unprivileged_child

RUNS = ("a", "b", "c")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for name in RUNS:
        write_summary(tmp_path / "ms" / name, scalars("loss", range(10)))
    return tmp_path / "ms"


def check_that_b_alone_failed(report: Report | None, destination: Path) -> RunReport:
    assert report is not None
    (failed,) = report.failures
    assert failed.run == "b"
    for name in ("a", "c"):
        assert scalar_rows(destination / name) == [(step, float(step)) for step in range(10)]
    return failed


def block(destination: Path) -> None:
    """Puts a file where the directory of run b would be: a real error, met in whatever process."""
    destination.mkdir()
    (destination / "b").write_text("in the way")


WAYS: dict[str, Callable[[Path, Path], Report | None]] = {
    "in one process": convert_logdir,
    "two workers": lambda source, destination: convert_logdir(source, destination, workers=2),
    "followed": lambda source, destination: FollowScript().follow(source, destination).total,
}


@pytest.mark.parametrize("way", WAYS)
def test_a_run_that_cannot_be_written_costs_no_other(source: Path, tmp_path: Path, way: str) -> None:
    destination = tmp_path / "tb"
    block(destination)
    failed = check_that_b_alone_failed(WAYS[way](source, destination), destination)
    assert str(destination / "b") in failed.failed
    assert failed.error == "WriteError"
    (destination / "b").unlink()
    assert not convert_logdir(source, destination).failures
    assert verify_logdirs(source, destination).is_equal


@pytest.mark.parametrize("extra", [[], ["--workers", "2"], ["--dry-run"]], ids=str)
def test_the_command_line_says_it_and_writes_the_report(
    source: Path, tmp_path: Path, extra: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    block(tmp_path / "tb")
    assert main(["convert", str(source), str(tmp_path / "tb"), "--report", str(tmp_path / "r.json"), *extra]) == 1
    out = capsys.readouterr().out
    verb = "would be converted" if "--dry-run" in extra else "converted"
    assert out.splitlines()[-1] == f"2 runs, 20 values {verb} to tensorboard; 1 run failed"
    assert f"{tmp_path}/tb/b" in out
    runs = {run["run"]: run for run in json.loads((tmp_path / "r.json").read_text())["runs"]}
    assert [bool(runs[name]["failed"]) for name in RUNS] == [False, True, False]
    assert (tmp_path / "tb" / "a").exists() == ("--dry-run" not in extra)


def test_a_path_that_is_too_long_as_a_whole(source: Path, tmp_path: Path) -> None:
    (source / "b").rename(source / ("b" * 250))
    deep = tmp_path / "tb"
    while len(str(deep)) < 3850:
        deep = deep / ("d" * min(200, 3850 - len(str(deep))))
    for dry_run in (True, False):
        report = convert_logdir(source, deep, options=ConvertOptions(dry_run=dry_run))
        (failed,) = report.failures
        assert "File name too long" in failed.failed
        assert f"{deep}/{'b' * 250}" in failed.failed
        assert deep.exists() != dry_run
    assert scalar_rows(deep / "c") == [(step, float(step)) for step in range(10)]


def test_a_destination_that_may_not_be_written() -> None:
    def check() -> None:
        base = Path(tempfile.mkdtemp())
        for name in RUNS:
            write_summary(base / "ms" / name, scalars("loss", range(3)))
        (base / "tb" / "b").mkdir(parents=True)
        (base / "tb" / "b").chmod(0o500)
        for dry_run in (True, False):
            (failed,) = convert_logdir(base / "ms", base / "tb", options=ConvertOptions(dry_run=dry_run)).failures
            assert "Permission denied" in failed.failed, failed.failed
            assert f"{base}/tb/b" in failed.failed
        (base / "closed").mkdir(mode=0o500)
        for dry_run in (True, False):
            with pytest.raises(WriteError, match="Permission denied"):
                convert_logdir(base / "ms", base / "closed", options=ConvertOptions(dry_run=dry_run))
        (base / "tb" / "b").chmod(0o700)
        shutil.rmtree(base)

    in_unprivileged_child(check)


ERRORS = [
    *(OSError(number, os.strerror(number)) for number in (errno.EIO, errno.ENOSPC, errno.EMFILE, errno.EACCES)),
    OSError(errno.ENAMETOOLONG, "File name too long", "/some/where"),
    OSError("no number at all"),
    RuntimeError("a bug"),
    MemoryError(),
    RecursionError("too deep"),
    UnicodeEncodeError("utf-8", "x", 0, 1, "a bug"),
    KeyError("missing"),
]


@pytest.mark.parametrize("error", ERRORS, ids=repr)
@pytest.mark.parametrize("place", ["writing", "reading", "beginning"])
def test_whatever_is_raised_in_a_run(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, place: str
) -> None:
    def fail(path: str, *arguments: Any, **options: Any) -> RecordWriter:
        if "/tb/b/" in path:
            raise error
        return RecordWriter(path, *arguments, **options)

    def fail_to_identify(path: str, *arguments: Any) -> state.FileState:
        if "/ms/b/" in path:
            raise error
        return unread.identify(path, *arguments)

    def fail_to_begin(*arguments: Any) -> None:
        raise error

    with monkeypatch.context() as patch:
        if place == "writing":
            patch.setattr(outputs_module, "RecordWriter", fail)
        elif place == "reading":
            patch.setattr(run_module, "identify", fail_to_identify)
        else:
            patch.setattr(run_module, "make_decoder", fail_to_begin)
        report = convert_logdir(source, tmp_path / "tb")
    if place == "beginning":  # of every run
        assert [run.run for run in report.failures] == [*RUNS]
        failed = report.failures[1]
    else:
        failed = check_that_b_alone_failed(report, tmp_path / "tb")
    assert failed.error == type(error).__name__
    if isinstance(error, OSError):
        assert failed.failed == f"{error.filename or tmp_path / 'tb' / 'b'}: {error.strerror or error}"
    elif isinstance(error, MemoryError):
        assert failed.failed == "there is not enough memory"
    else:
        assert failed.failed.startswith(f"{type(error).__name__}: ")
        assert "please report it" in failed.failed
        assert "Traceback" in failed.traceback
    assert (failed.events_read, failed.values) == (0, {})
    assert not convert_logdir(source, tmp_path / "tb").failures
    assert verify_logdirs(source, tmp_path / "tb").is_equal


def kill_at_b(task: RunTask, advance: Any = None) -> tuple[RunReport, RunState]:
    if task.destination.endswith("/b"):
        os.kill(os.getpid(), signal.SIGKILL)
    return convert_run(task, advance)


def raise_at_b(task: RunTask, advance: Any = None) -> tuple[RunReport, RunState]:
    if task.destination.endswith("/b"):
        raise RuntimeError("a bug in handing over")
    return convert_run(task, advance)


def test_a_worker_that_is_killed_costs_its_run_alone(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(processes, "convert_run", kill_at_b)
        report = convert_logdir(source, tmp_path / "tb", workers=2)
    failed = check_that_b_alone_failed(report, tmp_path / "tb")
    assert failed.failed == f"{source}/b: the process that converted it was killed"
    assert not convert_logdir(source, tmp_path / "tb").failures
    assert verify_logdirs(source, tmp_path / "tb").is_equal


@pytest.mark.parametrize("name", ["__init__", "submit"])
def test_where_no_worker_can_be_started_this_process_converts(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def refuse(*arguments: Any, **options: Any) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(processes.ProcessPoolExecutor, name, refuse)
    assert not convert_logdir(source, tmp_path / "tb", workers=2).failures
    assert verify_logdirs(source, tmp_path / "tb").is_equal


def stay_at_work(task: RunTask, advance: Any = None) -> tuple[RunReport, RunState]:
    (Path(task.source) / "pids" / str(os.getpid())).touch()
    threading.Event().wait(600)
    return convert_run(task, advance)


def test_workers_end_with_the_process_that_started_them(source: Path, tmp_path: Path) -> None:
    """Its lock goes with it, and the next conversion may write where they would write still."""
    pids = source / "pids"
    pids.mkdir()
    code = (
        "import sys; from ms_summary_bridge.convert import logdir, processes; from tests.convert import test_failures;"
        "processes.convert_run = test_failures.stay_at_work; logdir.convert_logdir(*sys.argv[1:], workers=2)"
    )
    words = [sys.executable, "-c", code, source, tmp_path / "tb"]
    program = subprocess.Popen(words, cwd=ROOT, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    try:
        wait_for(lambda: program.poll() is not None or len(list(pids.iterdir())) == 2)
        first, second = (psutil.Process(int(path.name)) for path in pids.iterdir())
    finally:
        program.kill()
        program.wait()
    assert psutil.wait_procs([first, second], timeout=60)[1] == []
    shutil.rmtree(pids)
    assert not convert_logdir(source, tmp_path / "tb").failures
    assert verify_logdirs(source, tmp_path / "tb").is_equal


def kill_once_at_b(task: RunTask, advance: Any = None) -> tuple[RunReport, RunState]:
    """Ends the worker in the middle of run b, when part of its output is written; not the second time."""
    killed = Path(task.source) / "killed"

    def kill(count: int) -> None:
        if list(Path(task.destination).glob("*tfevents*")) and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    return convert_run(task, kill if task.destination.endswith("/b") else advance)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("distributed") is None, reason="distributed is not installed")
@pytest.mark.filterwarnings("ignore")  # the cluster's, not ours
def test_a_run_is_done_again_whose_worker_on_a_cluster_was_killed(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from distributed import LocalCluster

    write_summary(source / "b", [*scalars("loss", range(100_000)), *scalars("accuracy", range(5))])
    reports = [convert_logdir(source, tmp_path / "out")]
    alone = contents(tmp_path / "out")
    shutil.rmtree(tmp_path / "out")
    monkeypatch.setattr(processes, "convert_run", kill_once_at_b)
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        reports.append(convert_logdir(source, tmp_path / "out", dask=cluster.scheduler_address))
    assert (source / "killed").exists()
    assert msgspec.to_builtins(reports[0]) == msgspec.to_builtins(reports[1])
    assert contents(tmp_path / "out") == alone


@pytest.mark.skipif(importlib.util.find_spec("distributed") is None, reason="distributed is not installed")
def test_a_run_that_fails_on_a_cluster_costs_no_other(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from distributed import LocalCluster

    monkeypatch.setattr(processes, "convert_run", raise_at_b)
    with LocalCluster(n_workers=1, processes=False, dashboard_address=None) as cluster:
        report = convert_logdir(source, tmp_path / "tb", dask=cluster.scheduler_address)
    assert check_that_b_alone_failed(report, tmp_path / "tb").failed.startswith("RuntimeError: a bug in handing over")


def test_what_force_cannot_remove_costs_its_run_alone(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    convert_logdir(source, tmp_path / "tb")
    real = os.unlink

    def unlink(path: str, **options: Any) -> None:
        if "/tb/b/" in path:
            raise PermissionError(errno.EPERM, "Operation not permitted", path)
        real(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", unlink)
        report = convert_logdir(source, tmp_path / "tb", force=True)
    failed = check_that_b_alone_failed(report, tmp_path / "tb")
    assert "cannot be removed: Operation not permitted" in failed.failed
    convert_logdir(source, tmp_path / "tb")
    assert verify_logdirs(source, tmp_path / "tb").is_equal


def test_a_state_that_cannot_be_saved_in_the_end_is_told_and_made_good(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = state.replace_file

    def fail_in_the_end(path: str, data: bytes) -> None:
        if os.path.exists(path):  # the plan is there
            raise WriteError(f"{path}: cannot be written: No space left on device")
        real(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(state, "replace_file", fail_in_the_end)
        assert main(["convert", str(source), str(tmp_path / "tb"), "--report", str(tmp_path / "r.json")]) == 1
    assert "No space left" in capsys.readouterr().out
    report = json.loads((tmp_path / "r.json").read_text())
    assert "No space left" in report["failed"]
    assert [run["values"] for run in report["runs"]] == [{"scalar": 10}] * 3
    before = {path: path.read_bytes() for path in outputs(tmp_path / "tb" / "a")}
    assert not convert_logdir(source, tmp_path / "tb").failed
    assert {path: path.read_bytes() for path in outputs(tmp_path / "tb" / "a")} == before


def test_a_report_is_written_of_a_conversion_that_ends_at_once(source: Path, tmp_path: Path) -> None:
    (tmp_path / "tb").write_text("a file")
    assert main(["convert", str(source), str(tmp_path / "tb"), "--report", str(tmp_path / "r.json")]) == 1
    assert str(tmp_path / "tb") in json.loads((tmp_path / "r.json").read_text())["failed"]
    assert main(["convert", str(source), str(tmp_path / "tb"), "--dry-run"]) == 1


# --- classes


def test_each_kind_of_error_has_its_class(source: Path, tmp_path: Path) -> None:
    with pytest.raises(NoEventsError):
        convert_logdir(tmp_path / "missing", tmp_path / "tb")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ReadError):
        convert_logdir(tmp_path / "pipe", tmp_path / "tb")
    convert_logdir(source, tmp_path / "tb")
    with locked(str(tmp_path / "tb")), pytest.raises(DestinationBusyError):
        convert_logdir(source, tmp_path / "tb")
    with pytest.raises(OtherConversionError):
        convert_logdir(source, tmp_path / "tb", options=ConvertOptions(tags="x"))
    write_summary(tmp_path / "ms2", scalars("other", range(3)))
    with pytest.raises(OtherConversionError):
        convert_logdir(tmp_path / "ms2", tmp_path / "tb")
    (file,) = outputs(tmp_path / "tb" / "b")
    os.truncate(file, 30)
    write_summary(source / "b", scalars("loss", range(20)))
    (failed,) = convert_logdir(source, tmp_path / "tb").failures
    assert failed.error == OutputChangedError.__name__
    file.unlink()
    (failed,) = convert_logdir(source, tmp_path / "tb").failures
    assert failed.error == OutputChangedError.__name__
    (tmp_path / "tb" / state.STATE_NAME).write_text("{")
    with pytest.raises(DamagedStateError):
        convert_logdir(source, tmp_path / "tb")
    with pytest.raises(FileTakenError):
        RecordWriter(tmp_path / "tb" / state.STATE_NAME)
    with pytest.raises(WriteError):
        RecordWriter(tmp_path / "tb" / state.STATE_NAME / "below")
    for kind, code in ((WriteError, 1), (OtherConversionError, 2), (LogdirError, 1), (FileTakenError, 1)):
        assert kind.exit_code == code
