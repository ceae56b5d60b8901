"""The writer process and the training's end of it: it dies, hangs, is killed; the training never waits."""

from __future__ import annotations

import logging
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psutil
import pytest

from ms_summary_bridge.convert.verify import verify_logdirs
from ms_summary_bridge.live_writer import writer_process
from ms_summary_bridge.live_writer.link import WriterLink
from ms_summary_bridge.live_writer.run_config import LiveRunConfig
from ms_summary_bridge.live_writer.writer_process import environment, search_path
from tests.conftest import ROOT
from tests.live_writer.test_live_run import START, assert_equal, files, read, steps

MakeLink = Callable[..., WriterLink]


def config_of(directory: Path, **options: Any) -> LiveRunConfig:
    given = {"summary_dir": str(directory), "tensorboard_dir": str(directory), "seconds": START, "wall_time": START}
    return LiveRunConfig(**{**given, "device": 0, "host": "host", "pid": os.getpid(), "flush_secs": 0.2, **options})


@pytest.fixture
def make_link(tmp_path: Path) -> Iterator[MakeLink]:
    links: list[WriterLink] = []

    def make(queue_bytes: int = 1 << 24, stall_secs: float = 30.0, **options: Any) -> WriterLink:
        config = config_of(tmp_path / "run", **options)
        links.append(WriterLink(config, queue_bytes=queue_bytes, stall_secs=stall_secs))
        return links[-1]

    yield make
    for link in links:
        if link.writer is not None:
            link.writer.process.kill()
        link.close(5)


def put_scalar(link: WriterLink, step: int) -> None:
    link.put_values(step, START + step, {"scalar": [{"tag": "loss", "value": np.asarray(float(step))}]})


def put_array(link: WriterLink, step: int, size: int = 1000) -> None:
    link.put_values(step, START + step, {"histogram": [{"tag": "w", "value": np.full(size, float(step))}]})


def wait_until(is_so: Callable[[], object], *, timeout_secs: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_secs
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def writer_of(link: WriterLink) -> subprocess.Popen[bytes]:
    assert link.writer is not None
    return link.writer.process


def kill_writer(link: WriterLink) -> None:
    writer = writer_of(link)
    writer.kill()
    writer.wait()


def messages(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(record.getMessage() for record in caplog.records)


def test_nothing_is_started_before_the_first_message(make_link: MakeLink, tmp_path: Path) -> None:
    link = make_link()
    assert link.flush(1)
    assert link.close(1)
    assert link.writer is None
    assert not (tmp_path / "run").exists()


def test_all_is_in_both_files_and_the_process_is_gone_after_close(make_link: MakeLink, tmp_path: Path) -> None:
    link = make_link()
    for step in range(1, 51):
        put_scalar(link, step)
        put_array(link, step)
    writer = writer_of(link)
    assert link.close(30)
    assert writer.poll() == 0
    assert link.close(30), "again: nothing"
    assert not link.put("note", 0, 0.0, "t", "after the end")
    for part in ("_MS", "tfevents"):
        assert sorted(steps(files(tmp_path / "run", part))) == sorted([*range(1, 51)] * 2)
    assert verify_logdirs(str(tmp_path / "run"), str(tmp_path / "run")).is_equal
    assert link.dropped == {}


def test_flush_is_a_barrier(make_link: MakeLink, tmp_path: Path) -> None:
    link = make_link(flush_secs=1000.0)
    for step in range(1, 11):
        put_scalar(link, step)
        assert link.flush(30)
        for part in ("_MS", "tfevents"):
            assert steps(files(tmp_path / "run", part)) == [*range(1, step + 1)]


def test_a_value_is_readable_after_flush_secs(make_link: MakeLink, tmp_path: Path) -> None:
    link = make_link(flush_secs=0.3)
    put_scalar(link, 0)
    assert link.flush(30)  # the process runs
    put_scalar(link, 1)
    put_at = time.monotonic()
    wait_until(lambda: all(steps(files(tmp_path / "run", part)) == [0, 1] for part in ("_MS", "tfevents")))
    assert time.monotonic() - put_at < 0.3 + 1


def test_a_killed_writer_is_replaced_and_nothing_that_waits_is_lost_or_doubled(
    make_link: MakeLink, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    link = make_link()
    put_scalar(link, 1)
    assert link.flush(30)
    os.kill(writer_of(link).pid, signal.SIGSTOP)
    for step in (2, 3):
        put_scalar(link, step)
    kill_writer(link)
    put_scalar(link, 4)
    assert link.close(30)
    for part in ("_MS", "tfevents"):
        assert steps(files(tmp_path / "run", part)) == [1, 2, 3, 4]
    assert messages(caplog).count("has died") == 1
    assert link.dropped == {}


def test_a_writer_killed_before_the_end_is_replaced_for_what_waits(make_link: MakeLink, tmp_path: Path) -> None:
    link = make_link()
    put_scalar(link, 1)
    assert link.flush(30)
    os.kill(writer_of(link).pid, signal.SIGSTOP)
    put_scalar(link, 2)
    kill_writer(link)
    assert link.flush(30), "flush finds out, too"
    os.kill(writer_of(link).pid, signal.SIGSTOP)
    put_scalar(link, 3)
    kill_writer(link)
    assert link.close(30)
    assert steps(files(tmp_path / "run", "_MS")) == [1, 2, 3]


def test_a_writer_that_keeps_dying_is_given_up(make_link: MakeLink, caplog: pytest.LogCaptureFixture) -> None:
    link = make_link()
    for step in range(6):
        put_scalar(link, step)
        if link.writer is not None:
            kill_writer(link)
    assert link.writer is None
    put_scalar(link, 7)
    assert not link.flush(1)
    assert link.close(1)
    said = messages(caplog)
    assert said.count("keeps dying") == 1
    assert "faster than" not in said, "that is not why"
    assert "missing in the files" in said


def test_a_stopped_writer_stops_nothing(make_link: MakeLink, caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    link = make_link(queue_bytes=1 << 16, stall_secs=0.5)
    put_scalar(link, 0)
    assert link.flush(30)
    writer = writer_of(link)
    os.kill(writer.pid, signal.SIGSTOP)
    begun = time.monotonic()
    for step in range(1, 101):
        put_array(link, step)
    assert time.monotonic() - begun < 2
    assert link.dropped["histogram"] > 80
    begun = time.monotonic()
    assert not link.flush(0.3)
    assert not link.close(30)
    assert time.monotonic() - begun < 5, "neither flush nor close waits for what does not move"
    assert messages(caplog).count("faster than") == 1
    assert f"{link.dropped['histogram']} histogram values" in messages(caplog)
    os.kill(writer.pid, signal.SIGCONT)
    assert writer.wait(30) == 0
    kept = steps(files(tmp_path / "run", "_MS"))
    assert len(kept) == 101 - link.dropped["histogram"], "what was taken is written as soon as it goes on"


def test_scalars_and_small_arrays_are_kept_where_large_ones_find_no_room(
    make_link: MakeLink, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    link = make_link(queue_bytes=1 << 16)
    both = {
        "scalar": [{"tag": "loss", "value": np.asarray(1.0)}],
        "histogram": [{"tag": "w", "value": np.zeros(1 << 16)}, {"tag": "b", "value": np.zeros(4)}],
    }
    link.put_values(1, START, both)
    assert link.dropped == {"histogram": 1}
    assert "histogram 'w', first at step 1, has 524,288 bytes and is always left out: queue_bytes is 65536" in messages(
        caplog
    )
    assert "faster than" not in messages(caplog), "that is not why"
    assert link.close(30)
    (summary,) = files(tmp_path / "run", "_MS")
    assert [tagged.tag for event in read(summary)[1:] for tagged in event.content.values] == ["loss", "b"]


def test_a_flush_in_another_thread_does_not_hold_up_the_training(make_link: MakeLink) -> None:
    link = make_link()
    put_scalar(link, 0)
    assert link.flush(30)
    os.kill(writer_of(link).pid, signal.SIGSTOP)
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(link.flush(2.0)))
    thread.start()
    wait_until(lambda: link.flushes == 2)
    begun = time.monotonic()
    for step in range(1, 21):
        put_scalar(link, step)
    assert time.monotonic() - begun < 1
    thread.join()
    assert answers == [False]


def test_the_last_messages_outlive_a_full_doorbell(
    make_link: MakeLink, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("ms_summary_bridge.live_writer.ring._PIPE_BYTES", 4096)  # 256 messages
    link = make_link()
    put_scalar(link, 0)
    assert link.flush(30)
    os.kill(writer_of(link).pid, signal.SIGSTOP)
    for step in range(1, 1001):
        put_scalar(link, step)
    threading.Timer(0.3, os.kill, (writer_of(link).pid, signal.SIGCONT)).start()
    assert link.close(30)
    assert steps(files(tmp_path / "run", "_MS")) == [*range(1001)]
    assert link.dropped == {}


def test_descriptors_above_1023_are_no_trouble(make_link: MakeLink) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 1200:
        pytest.skip("this system allows no 1200 descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1200), hard))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1050)]
    try:
        link = make_link()
        put_scalar(link, 1)
        assert link.writer is not None
        assert link.writer.reports > 1023
        assert link.flush(30)
        assert link.close(30)
    finally:
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class OnlyHere(np.ndarray):
    """A class that a process without the tests cannot import."""


def test_a_message_that_cannot_be_read_or_written_ends_nothing(
    make_link: MakeLink, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OnlyHere, "__module__", "__main__")  # where a training script's own classes are
    monkeypatch.setattr(sys.modules["__main__"], "OnlyHere", OnlyHere, raising=False)
    link = make_link()
    put_scalar(link, 1)
    assert link.put("values", 2, START, {"scalar": [{"tag": "x", "value": np.zeros(3).view(OnlyHere)}]})
    assert link.put("values", 2, START, {"scalar": [{"tag": 5, "value": np.asarray(1.0)}]})
    assert link.put("values", "two", START, {"scalar": [{"tag": "x", "value": np.asarray(1.0)}]})
    assert link.put("values", 2, START, {"scalar": [{"tag": "\ud800", "value": np.asarray(1.0)}]})
    assert link.put("event", b"no event", "")
    put_scalar(link, 3)
    assert link.close(30)
    assert "died" not in messages(caplog)
    assert steps(files(tmp_path / "run", "_MS")) == [1, 3]
    assert link.result is not None
    assert link.result["unpackable"] == {"message": 4, "scalar": 1}


def test_a_forked_child_neither_writes_nor_waits(make_link: MakeLink, tmp_path: Path) -> None:
    link = make_link()
    put_scalar(link, 1)
    child = os.fork()
    if not child:
        put_scalar(link, 2)
        link.flush(60)
        link.close(60)
        os._exit(0)
    begun = time.monotonic()
    assert os.waitpid(child, 0)[1] == 0
    assert time.monotonic() - begun < 10
    assert link.close(30)
    assert steps(files(tmp_path / "run", "_MS")) == [1]


def test_a_child_that_lives_on_does_not_keep_the_writer_alive(make_link: MakeLink) -> None:
    link = make_link()
    put_scalar(link, 1)
    child = os.fork()  # holds the doorbell's other end, as a data worker does
    if not child:
        signal.pause()
        os._exit(0)
    try:
        assert link.close(30)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


_TRAINER = f"""
import os, signal, sys, time
import numpy as np
sys.path.insert(0, {str(ROOT)!r})
from tests.live_writer.test_bridge_link import config_of, put_array, put_scalar
from ms_summary_bridge.live_writer.link import WriterLink
from pathlib import Path
link = WriterLink(config_of(Path(sys.argv[1]), flush_secs=1000.0), queue_bytes=1 << 28)
for step in range(1, int(sys.argv[2]) + 1):
    put_scalar(link, step)
    put_array(link, step, 100_000)
print(link.writer.process.pid, flush=True)
os.kill(os.getpid(), int(sys.argv[3]))
signal.pause()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_what_was_handed_over_outlives_the_training(tmp_path: Path, number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _TRAINER, str(tmp_path / "run"), "100", str(int(number))],
        stdout=subprocess.PIPE,
    )
    begun = time.monotonic()
    assert process.stdout is not None
    with process.stdout:
        writer = int(process.stdout.read())  # up to the end of the file: the writer does not hold the pipe
    # The zombie is not reaped yet, as under a launcher that reads to the end first.
    wait_until(lambda: not psutil.pid_exists(writer) or psutil.Process(writer).status() == psutil.STATUS_ZOMBIE)
    assert process.wait(30) == -number
    assert time.monotonic() - begun < 60
    for part in ("_MS", "tfevents"):
        assert sorted(steps(files(tmp_path / "run", part))) == sorted([*range(1, 101)] * 2)


def test_the_working_directory_hides_no_module_of_the_writer(
    make_link: MakeLink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "signal", "numpy", "msgspec"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(1)")
    monkeypatch.chdir(tmp_path)
    link = make_link()
    put_scalar(link, 1)
    assert link.flush(30)
    assert link.starts == 1


def test_a_module_that_is_found_late_hides_none_of_the_writer(
    make_link: MakeLink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script puts the directory of its models first, long after it has imported what they have the names of."""
    for name in ("encodings", "random", "signal", "types"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(1)")
    monkeypatch.syspath_prepend(tmp_path)
    link = make_link()
    put_array(link, 1)
    assert link.close(60)
    assert link.result == {"dropped": 0, "unpackable": {}}
    assert link.starts == 1


@pytest.mark.parametrize("entry", [Path("models"), b"models", None, "", "a:b\nc ü"], ids=repr)
def test_whatever_is_in_the_search_path_does_not_keep_the_writer_from_its_start(
    make_link: MakeLink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: Any
) -> None:
    """Imports pass over what is no text, so a training goes on with it; the working directory may be gone."""
    monkeypatch.setattr(sys, "path", [entry, *sys.path])
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    link = make_link()
    put_scalar(link, 1)
    assert link.close(60)
    assert link.result == {"dropped": 0, "unpackable": {}}
    assert link.starts == 1


@pytest.mark.parametrize(
    ("flags", "environment", "name"),
    [
        (["-E"], {"PYTHONHOME": "/no/such/place"}, b"run"),
        ([], {"LC_ALL": "C.UTF-8"}, b"run-\xff\xfe"),
        (["-Xutf8"], {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, "rün".encode()),
    ],
    ids=["environment ignored", "name that is no text", "other encoding"],
)
def test_the_writer_reads_names_and_finds_packages_as_the_training_does(
    tmp_path: Path, flags: list[str], environment: dict[str, str], name: bytes
) -> None:
    """Also in a directory that PYTHONPATH cannot hold, where a script may well lie."""
    source = tmp_path / "12:00" / "source"
    source.mkdir(parents=True)
    (source / "ms_summary_bridge").symlink_to(ROOT / "ms_summary_bridge")
    (source / "train.py").write_text(_LONE_TRAINER)
    run = os.fsencode(tmp_path) + b"/" + name
    ran = subprocess.run(
        [sys.executable, *flags, source / "train.py", run],
        env={**os.environ, **environment},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (ran.stdout, ran.stderr) == ("{'dropped': 0, 'unpackable': {}} 1\n", "")
    assert len(os.listdir(run)) == 2


@pytest.mark.parametrize("closed", [(0,), (0, 2), (0, 1, 2)])
def test_a_training_without_standard_streams_is_recorded(tmp_path: Path, closed: tuple[int, ...]) -> None:
    """Some launchers close them; what a library prints to them must not go into what we have opened since."""
    noise = "import os\nfor number in (1, 2):\n    try: os.write(number, b'x' * 50)\n    except OSError: pass\n"
    trainer = _LONE_TRAINER.replace("link.close(60)", f"{noise}link.close(60)").replace(
        "print(link.result, link.starts)", ""
    )
    code = f"import os\nfor number in {closed}: os.close(number)\n{trainer}"
    run = tmp_path / "run"
    ran = subprocess.run([sys.executable, "-c", code, run], cwd=ROOT, capture_output=True, timeout=120)
    assert ran.returncode == 0
    assert steps(files(run, "_MS")) == [1]


_LONE_TRAINER = """
import sys
import numpy as np
from ms_summary_bridge.live_writer.link import WriterLink
from ms_summary_bridge.live_writer.run_config import LiveRunConfig
config = LiveRunConfig(sys.argv[1], sys.argv[1], 1_700_000_000, 1.7e9, 0, "host", 1)
link = WriterLink(config, queue_bytes=1 << 20)
link.put_values(1, 1.7e9, {"scalar": [{"tag": "loss", "value": np.asarray(1.0)}]})
link.close(60)
print(link.result, link.starts)
"""


def test_a_writer_that_cannot_be_started_is_said_once(
    make_link: MakeLink, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    link = make_link()
    for step in range(3):
        put_scalar(link, step)
    assert link.close(1)
    assert messages(caplog).count("cannot be started") == 1
    assert link.dropped == {"scalar": 3}
    assert all(record.levelno == logging.WARNING for record in caplog.records)


def test_a_run_of_scalars_loads_neither_numpy_nor_protobuf_to_be_written(tmp_path: Path) -> None:
    """What the writer process costs is its start, and most of that would be these and what crc32c and msgspec load."""
    code = """
import sys
from ms_summary_bridge.live_writer.worker_start import load
worker = load()
config = worker.msgspec.json.decode(sys.argv[1], type=worker.LiveRunConfig)
run = worker.LiveRun(config, lambda *warning: print(*warning))
from ms_summary_bridge.values import Opaque, Scalar
run.write_values(1, 5.0, {"scalar": [{"tag": "loss", "value": Scalar.from_float32(0.5)}]})
run.write_note(1, 5.0, "milestones/epoch", "epoch 1 ends")
run.flush()
dear = "numpy", "google.protobuf", "PIL", "argparse", "email", "hashlib", "importlib.metadata", "platform", "site"
print([name for name in (*dear, "typing_extensions", "urllib.parse") if name in sys.modules])
import numpy
run.write_values(1, 5.0, {"histogram": [{"tag": "w", "value": numpy.arange(9.0)}]})
run.close()
assert not run.unpackable
import crc32c, hashlib, platform
assert crc32c.crc32c(b'x') and platform.machine()  # the whole modules
assert Opaque("text", b"x").fingerprint() == hashlib.blake2b(b"x", digest_size=16).digest()
"""
    config = msgspec.json.encode(config_of(tmp_path / "run")).decode()
    ran = subprocess.run(
        [sys.executable, "-S", "-c", code, config],
        cwd=ROOT,
        env={**environment(), "PYTHONPATH": os.pathsep.join(search_path())},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (ran.stdout, ran.stderr) == ("[]\n", "")
    assert_equal(tmp_path / "run")


def test_the_training_process_does_not_load_what_only_the_writer_needs() -> None:
    code = """
import sys
import ms_summary_bridge.callback.recording
from ms_summary_bridge.live_writer.link import WriterLink
names = "crc32c", "google.protobuf", "PIL", "ms_summary_bridge.formats", "ms_summary_bridge.files.event_file"
print([name for name in names if name in sys.modules])
"""
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (ran.stdout, ran.stderr) == ("[]\n", "")


def test_the_writer_finds_a_package_that_an_import_hook_gave_the_training(
    make_link: MakeLink, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Installed as a link to its source, the package is on no module search path."""
    monkeypatch.setattr(sys, "path", [path for path in sys.path if Path(path or ".").resolve() != ROOT])
    link = make_link()
    put_scalar(link, 1)
    assert link.close(60)
    assert link.result is not None
    assert_equal(tmp_path / "run")


def test_the_writer_asks_site_for_what_the_search_path_lacks(
    make_link: MakeLink, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It starts without it; here nothing but this package is handed over, so all others are found by `site`."""
    monkeypatch.setattr(writer_process, "search_path", lambda: [str(ROOT)])
    link = make_link()
    put_scalar(link, 1)
    put_array(link, 2)
    assert link.close(60)
    assert link.result == {"dropped": 0, "unpackable": {}}
    assert link.starts == 1
    assert_equal(tmp_path / "run")
