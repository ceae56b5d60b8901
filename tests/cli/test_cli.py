"""The command line: exit codes, what goes to stdout and to stderr, and that no input gives a traceback."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ms_summary_bridge._version import __version__
from ms_summary_bridge.cli.app import EXIT_CODES, main
from ms_summary_bridge.cli.progress import ProgressBar
from ms_summary_bridge.convert.state import STATE_NAME
from ms_summary_bridge.formats import wire
from tests.convert.test_to_mindinsight import histogram_tensor, put_log, summary_record, tag
from tests.mindspore_run import (
    START,
    event,
    histogram,
    scalar,
    scalars,
    summary_bytes,
    summary_name,
    tensor,
    write_summary,
)
from tests.scripted import build_file, put, tensorboard_name

COMMANDS = ["convert", "inspect", "verify"]
PROGRAM = [sys.executable, "-m", "ms_summary_bridge"]


def run(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [*PROGRAM, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **options)


def wait_for(condition: Callable[[], object], process: subprocess.Popen[Any]) -> None:
    """Polls until something holds; fails when the process ends before or a minute has passed."""
    deadline = time.monotonic() + 60
    while not condition():
        assert process.poll() is None, "the process ended before"
        assert time.monotonic() < deadline, "waited for a minute"
        os.sched_yield()


def strict_json(text: str) -> Any:
    def fail(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=fail)


@pytest.fixture
def ms(tmp_path: Path) -> Path:
    write_summary(tmp_path / "ms", scalars("loss", range(5)))
    return tmp_path / "ms"


# --- exit codes


def test_0_done(ms: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", str(ms), str(tmp_path / "tb")]) == 0
    out, err = capsys.readouterr()
    assert "1 run, 5 values converted to tensorboard" in out
    assert err == ""
    assert main(["verify", str(ms), str(tmp_path / "tb")]) == 0
    assert main(["inspect", str(tmp_path / "tb")]) == 0


def test_1_verify_found_a_difference(ms: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_summary(tmp_path / "other", scalars("loss", range(6)))
    assert main(["verify", str(ms), str(tmp_path / "other")]) == 1
    assert "from step 5 on only in B" in capsys.readouterr().out


def test_1_failed_run_is_named(ms: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", str(ms), str(tmp_path / "first")]) == 0
    (output,) = (tmp_path / "first").glob("*tfevents*")
    put(tmp_path / "tb" / output.name, b"somebody else's")
    assert main(["convert", str(ms), str(tmp_path / "tb"), "--quiet"]) == 1
    assert output.name in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["convert"],
        ["convert", "{ms}"],
        ["convert", "{ms}", "{tb}", "--nonsense"],
        ["convert", "{ms}", "{tb}", "--to", "wandb"],
        ["convert", "{ms}", "{tb}", "--workers", "0"],
        ["convert", "{ms}", "{tb}", "--workers", "many"],
        ["convert", "{ms}", "{tb}", "--on-restart", "x"],
        ["convert", "{ms}", "{tb}", "--tags", "(["],
        ["convert", "{ms}", "{tb}", "--follow", "--dry-run"],
        ["convert", "{ms}", "{tb}", "--follow", "--dask", "tcp://127.0.0.1:1"],
        ["convert", "{ms}", "{tb}", "--to", "mindinsight"],
        ["convert", "{ms}", "{tb}", "--report", "{tmp}"],
        ["convert", "{ms}", "{tb}", "--report", "{tmp}/missing/report.json"],
        ["inspect"],
        ["inspect", "{ms}", "--nonsense"],
        ["verify", "{ms}"],
        ["nonsense"],
        ["--nonsense"],
    ],
    ids=" ".join,
)
def test_2_wrong_usage(ms: Path, tmp_path: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    filled = [a.format(ms=ms, tb=tmp_path / "tb", tmp=tmp_path) for a in arguments]
    assert main(filled) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err
    assert "Traceback" not in err
    assert not (tmp_path / "tb").exists()


def test_2_both_formats_without_to(ms: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(ms / "other" / tensorboard_name(), build_file("tensorboard", range(3)))
    assert main(["convert", str(ms), str(tmp_path / "tb")]) == 2
    assert "--to" in capsys.readouterr().err
    assert main(["convert", str(ms), str(tmp_path / "tb"), "--to", "tensorboard"]) == 0


def test_3_unreadable_part(ms: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (ms / "events.out.tfevents.notes.txt").write_bytes(b"this is not an event file\n" * 3)
    assert main(["convert", str(ms), str(tmp_path / "tb")]) == 3
    assert "notes.txt" in capsys.readouterr().out
    assert main(["inspect", str(ms)]) == 3


def test_4_strict(ms: Path, tmp_path: Path) -> None:
    assert main(["convert", str(ms), str(tmp_path / "tb"), "--strict"]) == 0
    write_summary(tmp_path / "lossy", [event(1, ("t", tensor([1, 2])))])
    assert main(["convert", str(tmp_path / "lossy"), str(tmp_path / "a"), "--strict"]) == 4
    assert main(["convert", str(tmp_path / "lossy"), str(tmp_path / "b")]) == 0


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], *([command] for command in COMMANDS)):
        assert main([*arguments, "--help"]) == 0
        lines = capsys.readouterr().out.splitlines()
        told = [f"    {code}  {meaning}" in lines for code, meaning in EXIT_CODES.items()]
        assert set(told) == {not arguments}, "once, and not for each command"
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"{__version__}\n"


def test_the_program_is_the_same(ms: Path, tmp_path: Path) -> None:
    result = run("convert", ms, tmp_path / "tb")
    assert (result.returncode, result.stderr) == (0, "")
    assert "5 values converted" in result.stdout
    assert run("verify", ms, tmp_path / "nowhere").returncode == 1


# --- bad input


def bad_inputs(tmp_path: Path) -> dict[str, tuple[Path, Path]]:
    good = tmp_path / "ms"
    (tmp_path / "empty").mkdir()
    text = put(tmp_path / "text", b"just text, and more of it than a header has bytes\n")
    zero = put(tmp_path / "zero" / summary_name(), b"")
    damaged = put(tmp_path / "damaged" / "tb" / STATE_NAME, b"{]")
    return {
        "missing source": (tmp_path / "missing", tmp_path / "tb"),
        "empty directory": (tmp_path / "empty", tmp_path / "tb"),
        "text file": (text, tmp_path / "tb"),
        "directory of text": (text.parent / "text", tmp_path / "tb"),
        "no file yet": (zero.parent / "x", tmp_path / "tb"),
        "destination is a file": (good, text),
        "destination below a file": (good, text / "tb"),
        "damaged state": (good, damaged.parent),
        "unknown protocol": (Path("nonsense:"), tmp_path / "tb"),
        "device": (Path("/dev/null"), tmp_path / "tb"),
        "name too long": (tmp_path / ("x" * 300), tmp_path / "tb"),
        "destination name too long": (good, tmp_path / ("x" * 300)),
    }


BAD = [
    *("missing source", "empty directory", "text file", "directory of text", "no file yet", "destination is a file"),
    *("destination below a file", "damaged state", "unknown protocol", "device", "name too long"),
    "destination name too long",
]


FINE_ALL_THE_SAME = [("damaged state", ["--force"])]


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("extra", [[], ["--dry-run"], ["--force"]], ids=str)
def test_bad_input_is_one_line_and_exit_code_1(
    ms: Path, tmp_path: Path, name: str, extra: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    source, destination = bad_inputs(tmp_path)[name]
    code = main(["convert", str(source), str(destination), *extra])
    out, err = capsys.readouterr()
    if (name, extra) in FINE_ALL_THE_SAME:
        assert code == 0
        return
    assert code == 1
    assert out == ""
    assert err.startswith("error: ")
    assert "Traceback" not in err


@pytest.mark.parametrize("url", ["nonsense://x/y", "memory://nothing-there", "file:///nothing/there", "://", "s3://"])
def test_bad_urls(tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["convert", url, str(tmp_path / "tb")], ["inspect", url], ["verify", url, url]):
        assert main(arguments) == 1
        assert capsys.readouterr().err.startswith("error: ")


def test_files_that_hold_nothing_are_no_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path / "ms" / summary_name(), b"")
    assert main(["convert", str(tmp_path / "ms"), str(tmp_path / "tb")]) == 0
    out = capsys.readouterr().out
    assert f"1 file without an event passed over:\n  {tmp_path / 'ms' / summary_name()}\n" in out
    assert main(["inspect", str(tmp_path / "ms")]) == 0
    assert str(tmp_path / "ms" / summary_name()) in capsys.readouterr().out


def test_many_tags_of_one_reason_hide_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line for each kind and reason, though each histogram has another number of buckets."""
    values = [histogram_tensor(f"h{n}", [[edge, edge + 1, 1] for edge in range(n)]) for n in range(100, 300)]
    audio = wire.length_delimited(b"\x32", wire.length_delimited(b"\x22", b"sound"))  # Value.audio
    put_log(tmp_path / "tb", [summary_record(1, *values, tag("z") + audio)])
    assert main(["convert", str(tmp_path / "tb"), str(tmp_path / "ms")]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "not exact" in line]
    assert len(lines) == 2
    assert "1 x audio 'z': " in lines[0]
    assert "200 x histogram 'h100', 'h101', 'h102' and 197 more tags: buckets merged to 90 or less" in lines[1]


@pytest.mark.skipif(os.geteuid() != 0 or not sys.platform.startswith("linux"), reason="mounts a small file system")
def test_full_disk_is_an_error_and_going_on_completes(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no right to mount")
    try:
        write_summary(tmp_path / "ms", scalars("loss", range(5000)))
        result = run("convert", tmp_path / "ms", disk / "tb")
        assert result.returncode == 1
        assert "No space left" in result.stdout + result.stderr
        assert "Traceback" not in result.stderr
        subprocess.run(["mount", "-o", "remount,size=4m", str(disk)], check=True)
        assert run("convert", tmp_path / "ms", disk / "tb").returncode == 0
        assert run("convert", tmp_path / "ms", tmp_path / "once").returncode == 0
        (grown,) = (disk / "tb").glob("*tfevents*")
        assert grown.read_bytes() == (tmp_path / "once" / grown.name).read_bytes()
        assert [p.name for p in (disk / "tb").iterdir() if p.name.startswith(f"{STATE_NAME}.")] == [
            f"{STATE_NAME}.lock"
        ]
    finally:
        subprocess.run(["umount", str(disk)], check=False)


# --- what is printed


ODD = "[bold]x[/bold]\n\x1b[31mred\u202e\u2028 [link=file:///]"


@pytest.mark.skipif(sys.getfilesystemencoding() == "ascii", reason="no file has such a name here")
def test_markup_and_control_characters_are_shown_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bytes_tag = b"no\xfftext".decode("utf-8", "surrogateescape")
    both = [(ODD, scalar(1)), (ODD, histogram([1])), (bytes_tag, scalar(1))]
    write_summary(tmp_path / "ms" / "run [red] \u202e\n", [event(s, *both) for s in (2, 1)])
    write_summary(tmp_path / "b", [event(1, (ODD, scalar(2)))])
    assert main(["convert", str(tmp_path / "ms"), str(tmp_path / "tb")]) == 0
    assert main(["inspect", str(tmp_path / "tb")]) == 0
    assert main(["verify", str(tmp_path / "ms"), str(tmp_path / "b")]) == 1
    assert main(["inspect", str(tmp_path / "nothing\x1b[31m")]) == 1
    out, err = capsys.readouterr()
    for character in "\x1b\u202e\u2028\udcff":
        assert character not in out + err
    assert r"[bold]x[/bold]\n\x1b[31mred\u202e\u2028 [link=file:///]" in out
    assert r"run [red] \u202e\n" in out


def test_json_is_strict_and_keeps_int64(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    tag = b"no\xfftext".decode("utf-8", "surrogateescape")
    steps = [-(2**63), 6_002_049_024, 2**63 - 1]
    write_summary(tmp_path / "ms", [event(s, (tag, scalar(float("nan"))), (ODD, scalar(1))) for s in steps])
    report = tmp_path / "report.json"
    assert main(["convert", str(tmp_path / "ms"), str(tmp_path / "tb"), "--report", str(report), "--quiet"]) == 0
    assert strict_json(report.read_text("utf-8"))["runs"][0]["losses"][0]["tag"] == r"no\xfftext"
    capsysbinary.readouterr()
    assert main(["inspect", str(tmp_path / "ms"), "--json"]) == 0
    text = capsysbinary.readouterr().out.decode("utf-8")
    tags = {item["tag"]: item for item in strict_json(text)["runs"][0]["tags"]}
    assert (tags[ODD]["first_step"], tags[ODD]["last_step"]) == (steps[0], steps[-1])
    assert str(2**63 - 1) in text
    assert main(["verify", str(tmp_path / "ms"), str(tmp_path / "tb"), "--json"]) == 0
    assert strict_json(capsysbinary.readouterr().out.decode("utf-8"))["runs"][0]["differences"] == []


def test_names_that_no_terminal_can_show_end_nothing(tmp_path: Path) -> None:
    directory = tmp_path / os.fsdecode(b"ms\xff") / os.fsdecode("损失".encode())  # in every locale
    write_summary(directory, [event(1, ("损失", scalar(1)))])
    for environment in ({"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}):
        for arguments in (["inspect", directory.parent], ["convert", directory.parent, tmp_path / "tb"]):
            result = run(*arguments, env={**os.environ, **environment})
            assert (result.returncode, result.stderr) == (0, "")


def test_failing_run_among_many_is_never_silent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for n in range(30):
        write_summary(tmp_path / "ms" / f"run{n:02}", scalars("loss", range(2)))
    put(tmp_path / "tb" / "run27", b"in the way")
    assert main(["convert", str(tmp_path / "ms"), str(tmp_path / "tb")]) == 1
    out = capsys.readouterr().out
    assert "run27" in out
    assert "failed" in out


def test_a_hundred_thousand_tags(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tags = [(f"t{n}", scalar(1)) for n in range(100_000)]
    write_summary(tmp_path / "ms", [event(1, *tags)])
    assert main(["convert", str(tmp_path / "ms"), str(tmp_path / "tb")]) == 0
    assert main(["inspect", str(tmp_path / "tb")]) == 0
    out = capsys.readouterr().out
    assert "100,000 values converted" in out
    assert "more tags" in out


def test_tag_of_a_mebibyte(tmp_path: Path) -> None:
    write_summary(tmp_path / "ms", [event(1, ("x" * (1 << 20), scalar(1)), ("x" * (1 << 20), histogram([1])))])
    assert main(["convert", str(tmp_path / "ms"), str(tmp_path / "tb")]) == 0
    assert main(["verify", str(tmp_path / "ms"), str(tmp_path / "tb")]) == 0


def test_quiet_prints_nothing(ms: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", str(ms), str(tmp_path / "tb"), "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("arguments", [["inspect", "{ms}"], ["inspect", "{ms}", "--json"], ["convert", "{ms}", "{tb}"]])
def test_reader_of_the_output_has_gone(tmp_path: Path, arguments: list[str]) -> None:
    for n in range(40):
        write_summary(tmp_path / "ms" / f"run{n}", [event(1, *[(f"tag{t}", scalar(1)) for t in range(40)])])
    filled = [a.format(ms=tmp_path / "ms", tb=tmp_path / "tb") for a in arguments]
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.Popen([*PROGRAM, *filled], stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("redirection", [">/dev/full", ">&-", ">/dev/full 2>&1", ">&- 2>&-"])
@pytest.mark.parametrize("option", ["", "--json"])
def test_output_that_cannot_be_written(ms: Path, redirection: str, option: str) -> None:
    command = f"'{sys.executable}' -m ms_summary_bridge inspect '{ms}' {option} {redirection}"
    result = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == (1 if "full" in redirection else 0)
    assert result.stderr in ("", "error: the output cannot be written: No space left on device\n")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_report_that_cannot_be_written_is_no_wrong_usage(ms: Path, tmp_path: Path) -> None:
    assert main(["convert", str(ms), str(tmp_path / "tb"), "--report", "/dev/full"]) == 1


class Terminal:
    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        pass


@pytest.mark.parametrize(
    ("is_quiet", "is_terminal", "shows"), [(False, True, True), (True, True, False), (False, False, False)]
)
def test_progress_only_on_a_terminal_and_after_a_while(
    monkeypatch: pytest.MonkeyPatch, is_quiet: bool, is_terminal: bool, shows: bool
) -> None:
    now = 100.0
    if is_terminal:
        monkeypatch.setattr(sys, "stderr", Terminal())
    with ProgressBar(is_quiet, clock=lambda: now) as bar:
        bar(1, 10)
        assert not bar.is_shown
        now += 5
        bar(2, 10)
        assert bar.is_shown == shows


def test_terminal_gets_a_table_that_fits(ms: Path) -> None:
    controller, terminal = pty.openpty()
    process = subprocess.Popen([*PROGRAM, "inspect", str(ms)], stdout=terminal, stderr=terminal)
    os.close(terminal)
    shown = b""
    while True:
        try:
            part = os.read(controller, 4096)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        shown += part
    os.close(controller)
    assert process.wait(60) == 0
    assert b"loss" in shown
    assert max(map(len, re.sub(rb"\x1b\[[0-9;]*m", b"", shown).split(b"\r\n"))) <= Console().width + 1


# --- signals


def events_of(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*tfevents*") if path.stat().st_size] if directory.exists() else []


@pytest.mark.parametrize("workers", ["1", "2"])
def test_interrupted_conversion_is_completed_by_the_next(tmp_path: Path, workers: str) -> None:
    data = summary_bytes(scalars("loss", range(30_000)))
    for name in "abc":
        put(tmp_path / "ms" / name / summary_name(), data)
    arguments = [*PROGRAM, "convert", str(tmp_path / "ms"), str(tmp_path / "tb"), "--workers", workers]
    process = subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    wait_for(lambda: events_of(tmp_path / "tb"), process)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to every process of the group
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "converting again into the same destination goes on from here" in err
    assert "Traceback" not in err
    assert main(["convert", str(tmp_path / "ms"), str(tmp_path / "tb"), "--quiet"]) == 0
    assert main(["convert", str(tmp_path / "ms"), str(tmp_path / "once"), "--quiet"]) == 0
    for path in events_of(tmp_path / "once"):
        assert (tmp_path / "tb" / path.relative_to(tmp_path / "once")).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_follow_converts_what_is_appended_and_ends_by_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    path = tmp_path / "ms" / summary_name()
    process = subprocess.Popen(
        [*PROGRAM, "convert", str(tmp_path / "ms"), str(tmp_path / "tb"), "--follow"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert "following" in process.stderr.readline()
    put(path, summary_bytes(scalars("loss", range(3))))
    wait_for(lambda: events_of(tmp_path / "tb"), process)
    (output,) = events_of(tmp_path / "tb")
    before = output.stat().st_size
    with path.open("ab") as file:
        file.write(summary_bytes(scalars("loss", range(6)))[path.stat().st_size :])
    wait_for(lambda: output.stat().st_size > before, process)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert out.count("3 values converted") == 2
    assert main(["verify", str(tmp_path / "ms"), str(tmp_path / "tb")]) == 0


def test_start_seconds_are_those_of_the_source(tmp_path: Path) -> None:
    write_summary(tmp_path / "ms", scalars("loss", range(3)))
    assert main(["convert", str(tmp_path / "ms"), str(tmp_path / "tb"), "--quiet"]) == 0
    assert [path.name for path in events_of(tmp_path / "tb")] == [f"events.out.tfevents.{START}.host.0000"]
