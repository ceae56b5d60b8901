"""The command `watch`: exit codes, the table in every width, JSON, commands for alerts, and the page in a terminal."""

from __future__ import annotations

import fcntl
import json
import math
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from ms_summary_bridge.cli.app import main
from ms_summary_bridge.cli.cells import sparkline
from ms_summary_bridge.cli.keys import split_keys
from ms_summary_bridge.cli.watch_page import render_page, render_table
from ms_summary_bridge.cli.watch_view import SORTS, WatchView, make_rows
from ms_summary_bridge.states.run_state import RunState
from ms_summary_bridge.states.watcher import RunWatcher
from tests.formats.test_lineage import put_lineage, train_event
from tests.mindspore_run import START, event, scalar, summary_name, write_summary
from tests.scripted import put

PROGRAM = [sys.executable, "-m", "ms_summary_bridge", "watch"]
ALERT = {"kind": "alert", "rule": "loss_spike", "severity": "warning", "step": 3, "rank": 0, "message": "3 times"}


def write_run(directory: Path, values: dict[int, float], *, start: float = START, is_over: bool = False) -> None:
    events = [event(step, ("loss", scalar(value)), wall_time=start + step) for step, value in values.items()]
    write_summary(directory, events, seconds=int(start))
    if is_over:
        put_lineage(directory, train_event(start + len(values) + 1), seconds=int(start))


def write_journal(directory: Path, *lines: dict[str, Any], start: float = START, rank: int = 0) -> None:
    header = {"kind": "header", "wall_time": start, "rank": rank, "ranks": 1, "host": "elsewhere", "pid": 7}
    data = b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in (header, *lines))
    put(directory / f"rank_{rank}" / "metrics.jsonl", data)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A run of each kind."""
    now = time.time()
    falling = {step: 4 / step for step in range(1, 40)}
    write_run(tmp_path / "tree" / "vision" / "ended", falling, is_over=True)
    write_run(tmp_path / "tree" / "vision" / "running", falling, start=now - 41)
    write_run(tmp_path / "tree" / "vision" / "stalled", falling, start=now - 9000)
    write_run(tmp_path / "tree" / "llm" / "lost", {**falling, 40: math.nan}, start=now - 42)
    write_journal(tmp_path / "tree" / "llm" / "alarmed", {**ALERT, "wall_time": now - 20}, start=now - 50)
    put(tmp_path / "tree" / "broken" / summary_name(), b"just text, and more of it than a header has bytes\n")
    return tmp_path / "tree"


def look(tree: Path) -> list[RunState]:
    return RunWatcher(str(tree)).look(time.time())


# ---------------------------------------------------------------- scripts


def test_one_alarm_of_many_ranks_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hang = {**ALERT, "kind": "hang", "rule": "hang", "severity": "critical"}
    for rank, message in enumerate(["15 s in code", "16 s in code", "15 s in a collective", "15 s in code"]):
        lines = [{**hang, "rank": rank, "message": message, "wall_time": START + 50 + rank}]
        if rank == 3:  # again
            lines.append({**lines[0], "wall_time": START + 90})
        write_journal(tmp_path / "llm", *lines, rank=rank)
    main(["watch", str(tmp_path), "--once"])
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("alarm")]
    assert said == [
        "alarm in llm: CRITICAL hang: step 3, ranks 0-1, 3: 15 s in code",
        "alarm in llm: CRITICAL hang: step 3, rank 2: 15 s in a collective",
        "alarm in llm: CRITICAL hang: step 3, rank 3: 15 s in code",
    ]
    (run,) = look(tmp_path)
    page = render_page([run], WatchView(opened="llm"), (120, 30), START + 99, source="logs").plain
    assert [line.partition("CRITICAL ")[2].strip() for line in page.splitlines() if "CRITICAL" in line] == [
        line.partition("CRITICAL ")[2] for line in said
    ]
    assert len(once(capsys, tmp_path)[1]["runs"][0]["alarms"]) == 5  # programs get each


def once(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, dict[str, Any], str]:
    code = main(["watch", *map(str, arguments), "--once", "--json"])
    out, err = capsys.readouterr()

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return code, json.loads(out, parse_constant=refuse), err


def test_once_as_json(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, report, err = once(capsys, tree)
    assert (code, err) == (5, "")
    runs = {run["name"]: run for run in report["runs"]}
    assert {name: run["state"] for name, run in runs.items()} == {
        "broken": "unknown",
        "llm/alarmed": "running",
        "llm/lost": "non-finite",
        "vision/ended": "ended",
        "vision/running": "running",
        "vision/stalled": "stalled",
    }
    assert (runs["llm/lost"]["loss"], runs["llm/lost"]["life"], runs["llm/lost"]["step"]) == ("nan", "running", 40)
    assert runs["vision/running"]["losses"][-1] == pytest.approx(4 / 39)
    assert runs["vision/running"]["ranks"][0]["evidence"] == runs["vision/running"]["evidence"]
    assert "not an event file" in runs["broken"]["problems"][0]
    alerts = {(one["run"], one["rule"]) for one in report["alerts"]}
    assert alerts == {("llm/alarmed", "loss_spike"), ("llm/lost", "non-finite"), ("vision/stalled", "stalled")}


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("vision/ended", 0),
        ("vision/running", 0),
        ("vision/stalled", 5),
        ("llm/lost", 5),
        ("llm/alarmed", 5),
        ("broken", 3),
    ],
)
def test_exit_codes(tree: Path, name: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert once(capsys, tree / name)[0] == code
    assert main(["watch", str(tree / name), "--once"]) == code


def test_a_limit_and_a_time_that_are_given(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert once(capsys, tree / "vision" / "running", "--stall-after", "0.5")[0] == 5
    assert once(capsys, tree / "vision" / "stalled", "--stall-after", "99999")[0] == 0
    code, report, _ = once(capsys, tree / "vision", "--since", "1h")
    assert (code, [run["name"] for run in report["runs"]]) == (0, ["running"])
    assert once(capsys, tree / "llm" / "alarmed", "--since", "10s")[0] == 0
    assert len(once(capsys, tree / "vision", "--since", "2001-01-01")[1]["runs"]) == 3


@pytest.mark.parametrize(
    "arguments", [["--since", "yesterday"], ["--since", "-1h"], ["--stall-after", "0"], ["--stall-after", "x"]], ids=str
)
def test_wrong_usage(tree: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", str(tree), "--once", *arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, "Traceback" in err) == ("", False)
    assert err


def test_a_directory_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", str(tmp_path / "missing"), "--once"]) == 1
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"error: {tmp_path / 'missing'}: No such file or directory\n")


def test_an_empty_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", str(tmp_path), "--once"]) == 0
    assert "no run" in capsys.readouterr().out


def test_the_table_in_a_pipe_is_plain_and_whole(tree: Path) -> None:
    name = "a/" * 30 + "end"
    write_run(tree / name, {1: 0.5}, is_over=True)
    environment = {**os.environ, "FORCE_COLOR": "", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [*PROGRAM, str(tree), "--once"], capture_output=True, encoding="utf-8", env=environment, timeout=60, check=False
    )
    assert done.returncode == 5, done.stderr
    assert "\x1b" not in done.stdout
    lines = done.stdout.splitlines()
    assert lines[0].split() == [
        "run",
        "state",
        "step",
        "loss",
        "lr",
        "rate",
        "memory",
        "ranks",
        "age",
        "alarms",
        "evidence",
    ]
    (long,) = [line for line in lines if name in line]
    assert "the lineage of the training was written" in long
    (lost,) = [line for line in lines if line.startswith("llm/lost ")]
    assert re.search(r"non-finite +40 +nan ", lost)
    assert "the loss is nan since step 40; running: " in lost
    assert any(line.startswith("alarm in llm/alarmed: WARNING loss_spike: step 3, rank 0: 3 times") for line in lines)
    assert any(line.startswith("problem: ") and "broken" in line for line in lines)


def test_hostile_names_stay_on_their_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "a\x1b[31m\nb [red]", {1: 0.5}, is_over=True)
    assert main(["watch", str(tmp_path), "--once"]) == 0
    out = capsys.readouterr().out
    assert "a\\x1b[31m\\nb [red]" in out
    assert "\x1b" not in out


# ---------------------------------------------------------------- commands


def test_a_command_runs_once_for_each_alert(tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "alerts.txt"
    command = f'echo "$ALERT_RULE|$ALERT_RUN|$ALERT_RANK|$ALERT_STEP|$ALERT_SEVERITY|$ALERT_MESSAGE" >> {log}'
    assert once(capsys, tree, "--on-alert", command)[0] == 5
    said = sorted(log.read_text().splitlines())
    assert [line.rpartition("|")[0] for line in said] == [
        "loss_spike|llm/alarmed|0|3|warning",
        "non-finite|llm/lost|0|40|critical",
        "stalled|vision/stalled|0|39|critical",
    ]


def test_a_command_that_fails_is_told(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = once(capsys, tree / "llm" / "lost", "--on-alert", "echo no such phone >&2; exit 3")
    assert code == 5
    assert err == "--on-alert for ., non-finite: ended with 3: no such phone\n"


def test_an_alert_is_new_once_and_again_after_it_has_passed(tmp_path: Path) -> None:
    log = tmp_path / "alerts.txt"
    path = tmp_path / "run" / summary_name()
    write_run(tmp_path / "run", {1: math.nan}, start=time.time())
    process = subprocess.Popen(
        [sys.executable, "-c", FAST, str(tmp_path), "--on-alert", f"echo $ALERT_RULE >> {log}"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        looks = [json.loads(process.stdout.readline()) for _ in range(3)]
        assert [run["state"] for look in looks for run in look["runs"]] == ["non-finite"] * 3
        for step, value, state in ((2, 0.5, "running"), (3, math.inf, "non-finite")):
            path = next((tmp_path / "run").glob("*_MS"))
            whole = summary_of({1: math.nan, 2: 0.5, 3: math.inf}, step)
            path.write_bytes(whole)
            assert value is not None
            while json.loads(process.stdout.readline())["runs"][0]["state"] != state:
                pass
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 5
    finally:
        process.kill()
        process.stdout.close()
    assert log.read_text().split() == ["non-finite", "non-finite"]


FAST = """
import sys
from ms_summary_bridge.cli import app, watch_session
watch_session._PLAIN_SECS = 0.05
sys.exit(app.main(["watch", *sys.argv[1:], "--json"]))
"""


def summary_of(values: dict[int, float], last: int) -> bytes:
    from tests.mindspore_run import summary_bytes

    now = time.time()
    return summary_bytes(
        (event(step, ("loss", scalar(value)), wall_time=now + step) for step, value in values.items() if step <= last),
        wall_time=now,
    )


# ---------------------------------------------------------------- the page


@pytest.mark.parametrize("width", [40, 80, 110, 200])
@pytest.mark.parametrize("name", ["short", "a/very/long/path/of/directories/" * 4 + "run", "宽" * 40])
def test_no_line_is_wider_than_the_terminal(tree: Path, width: int, name: str) -> None:
    name = os.fsdecode(name.encode())  # the same file in every locale
    write_run(tree / name, {1: 0.5})
    runs = look(tree)
    assert len(runs) == 7
    for view in (WatchView(), WatchView(opened=name), WatchView(opened="broken"), WatchView(by_rank=True)):
        page = render_page(runs, view, (width, 24), time.time(), source=str(tree), notes=["x" * 300])
        lines = page.plain.split("\n")
        assert len(lines) == 24
        assert max(map(cell_len, lines)) <= width


def test_what_has_a_column_by_width(tree: Path) -> None:
    rows = make_rows(look(tree))
    heads = {width: render_table(rows, width, time.time())[0].plain.split() for width in (80, 120, 200)}
    assert heads[80] == ["run", "state", "step", "loss", "age", "!"]
    assert heads[120] == ["run", "state", "step", "loss", "lr", "rate", "age", "alarms"]
    assert heads[200][-1] == "evidence"
    narrow = [line.plain for line in render_table(rows, 80, time.time())]
    stalled = next(index for index, line in enumerate(narrow) if line.startswith("vision/stalled"))
    assert narrow[stalled + 1].startswith("  nothing was written for 2 hours"), (
        "the evidence of what is wrong has a line"
    )


def test_the_chosen_row_is_always_shown(tmp_path: Path) -> None:
    for number in range(50):
        write_run(tmp_path / f"run_{number}", {1: math.nan if number % 3 == 0 else 0.5})
    runs, now = look(tmp_path), time.time()
    view = WatchView(sort="name")
    for cursor in range(50):
        view.cursor = cursor
        rows = view.choose(runs)
        lines = [line.plain for line in render_table(rows, 80, now, cursor=cursor, height=12)]
        assert len(lines) <= 12
        assert any(line.startswith(f"run_{cursor} ") for line in lines), cursor


def test_sparklines() -> None:
    assert sparkline([1, 2, 3, 4, 5, 6, 7, 8], 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([8, 1], 8, is_ascii=True) == "#_"
    assert sparkline([1.0, math.nan, 2.0], 8) == "▁x█"
    assert sparkline([1.0, 1.0], 8) == "▁▁"
    assert sparkline([], 8) == ""
    assert sparkline([math.inf, -math.inf], 1) == "x"
    assert sparkline([-1.7e308, 1.7e308], 8) == "▁█"
    assert sparkline([1.7e308, 1.7e308, 0.0, 0.0], 2) == "█▁"
    assert sparkline(list(map(float, range(100))), 10) == "▁▂▃▃▄▅▆▆▇█"


def test_keys_of_the_table(tree: Path) -> None:
    runs, view = look(tree), WatchView()
    names = lambda: [row.name for row in view.choose(runs)]  # noqa: E731
    assert names()[:2] == ["llm/lost", "vision/stalled"], "what is wrong comes first"
    for sort in [*list(SORTS)[1:], "state"]:
        view.press("s", runs)
        assert view.sort == sort
    view.press("r", runs)
    assert names()[-1] == "llm/lost"
    view.press("r", runs)
    for key in ["/", *"vis(", "backspace", *"ion/R", "enter"]:
        view.press(key, runs)
    assert (view.pattern, names()) == ("vision/R", ["vision/running"])
    view.press("escape", runs)
    assert len(names()) == 6
    for only, count in (("trouble", 2), ("running", 2), ("ended", 1), ("", 6)):
        view.press("f", runs)
        assert (view.only, len(names())) == (only, count)
    for key, cursor in (("down", 1), ("j", 2), ("up", 1), ("page down", 5), ("home", 0), ("end", 5), ("k", 4)):
        view.press(key, runs)
        assert view.cursor == cursor, key
    view.press("home", runs)
    view.press("enter", runs)
    assert view.opened == "llm/lost"
    view.press("s", runs)
    assert view.opened == "llm/lost"
    view.press("escape", runs)
    assert view.opened is None
    view.press("t", runs)
    assert view.by_rank
    view.press("q", runs)
    assert view.is_over


def test_a_q_that_is_typed_quits_nothing(tree: Path) -> None:
    view = WatchView()
    for key in ["/", "q", "escape"]:
        view.press(key, look(tree))
    assert (view.is_over, view.pattern) == (False, "")


def test_keys_of_a_terminal() -> None:
    assert split_keys("q\r\x7f") == ["q", "enter", "backspace"]
    assert split_keys("\x1b[A\x1bOB\x1b[5~\x1b[6~x") == ["up", "down", "page up", "page down", "x"]
    assert split_keys("\x1b") == ["escape"]
    assert split_keys("\x1b[1;5C\x1b[200~é") == ["é"], "what is not known is passed over"


class Terminal:
    """A program in a terminal of its own."""

    def __init__(self, arguments: list[str], width: int = 100, height: int = 30, **environment: str) -> None:
        self._controller, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        self.before = termios.tcgetattr(terminal)
        self._terminal = terminal
        self.process = subprocess.Popen(
            [*PROGRAM, *arguments],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env={
                **{name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")},
                "TERM": "xterm-256color",
                "PYTHONIOENCODING": "utf-8",
                **environment,
            },
            start_new_session=True,
        )
        self.shown = ""

    def press(self, keys: str) -> None:
        self.shown = ""
        os.write(self._controller, keys.encode())

    def wait_for(self, text: str) -> None:
        """Waits until a text is shown; colours are left out."""
        deadline = time.monotonic() + 60
        while text not in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.shown):
            assert time.monotonic() < deadline, f"{text!r} is not in {self.shown[-3000:]!r}"
            if select.select([self._controller], [], [], 0.2)[0]:
                self.shown += os.read(self._controller, 65536).decode(errors="replace")

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> int:
        """Returns the exit code, once the program has ended."""
        deadline = time.monotonic() + 60
        while self.process.poll() is None and time.monotonic() < deadline:
            if select.select([self._controller], [], [], 0.2)[0]:
                self.shown += os.read(self._controller, 65536).decode(errors="replace")
        assert termios.tcgetattr(self._terminal) == self.before, "the terminal is left as it was"
        os.close(self._terminal)
        os.close(self._controller)
        return self.process.wait()


def test_the_page_in_a_terminal(tree: Path) -> None:
    with Terminal([str(tree)]) as terminal:
        terminal.wait_for("1 non-finite")
        terminal.wait_for("q quit")
        assert "\x1b[1;37;41m" in terminal.shown, "what is wrong has a colour"
        terminal.press("/ended\r")
        terminal.wait_for("filter ended")
        terminal.press("\x1b[B\r")
        terminal.wait_for("the lineage of the training was written")
        terminal.wait_for("esc back")
        terminal.press("\x1b")
        terminal.wait_for("filter ended")
        terminal.press("s")
        terminal.wait_for("by name")
        write_run(tree / "vision" / "ended_too", {1: 0.5, 77: 0.5}, is_over=True)
        terminal.wait_for("vision/ended_too")
        terminal.press("q")
        assert terminal.end() == 5


def test_the_page_without_colours_and_alerts(tree: Path) -> None:
    with Terminal([str(tree / "vision" / "ended")], NO_COLOR="1", LC_ALL="C.UTF-8") as terminal:
        terminal.wait_for("1 ended")
        assert not re.search(r"\x1b\[(?:[0-9;]*;)?(?:3|4|9|10)[0-7]", terminal.shown)
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.end() == 0
