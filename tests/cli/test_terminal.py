"""What the commands print on a terminal of 80 columns, in a pipe, and where no colour is wanted."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import struct
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import typer.main
from rich.cells import cell_len

from ms_summary_bridge.cli import progress
from ms_summary_bridge.cli.app import app, main
from ms_summary_bridge.cli.folding import fold, hanging_indent
from tests.mindspore_run import event, scalars, tensor, write_summary
from tests.monitor_run import Engine
from tests.scripted import build_file, put, tensorboard_name

fcntl, termios = (pytest.importorskip(name, reason="there are no such terminals here") for name in ("fcntl", "termios"))

WIDTH = 80
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
LONG = "experiments/2026-11-30_language_model/ablation_of_the_learning_rate/seed_0000000001"


def on_terminal(arguments: list[str], monkeypatch: pytest.MonkeyPatch, *, no_color: bool = False) -> str:
    """Runs a command whose output and talk go to a terminal, and returns what is then on it."""
    here, there = os.openpty()
    fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", 24, WIDTH, 0, 0))
    shown: list[bytes] = []

    def read() -> None:
        with contextlib.suppress(OSError):  # Linux says so when the other end is closed
            while chunk := os.read(here, 1 << 16):
                shown.append(chunk)

    reader = threading.Thread(target=read)
    reader.start()
    with monkeypatch.context() as patch, os.fdopen(there, "w", encoding="utf-8") as terminal:
        patch.setenv("COLUMNS", str(WIDTH))
        patch.setenv("TERM", "xterm-256color")
        patch.setattr(progress, "_PROGRESS_AFTER_SECS", float("inf"))  # a busy machine is not what is looked at
        patch.delenv("NO_COLOR", raising=False)
        if no_color:
            patch.setenv("NO_COLOR", "1")
        patch.setattr(sys, "stdout", terminal)
        patch.setattr(sys, "stderr", terminal)
        main(arguments)
        terminal.flush()
    reader.join(60)
    os.close(here)
    return b"".join(shown).decode().replace("\r\n", "\n")


def plant(tmp_path: Path) -> Path:
    """Writes logs with long paths and all that there is to say about them, and returns where."""
    logs = tmp_path / "logs"
    run = logs / LONG
    path = write_summary(run, [*scalars("loss", range(1, 30)), event(1, ("weights/of/a/layer", tensor([1, 2])))])
    data = bytearray(path.read_bytes())
    data[300] ^= 0xFF
    path.write_bytes(data + b"\x10\0\0")
    put(logs / LONG / "notes" / "events.out.tfevents.notes.txt", b"this is not an event file\n" * 3)
    for rank in range(2):
        write_summary(tmp_path / "ranks" / LONG / f"rank_{rank}", scalars("loss", range(1, 30 - 5 * rank)), rank=rank)
    engine = Engine(tmp_path / "monitor", project="a_project_with_a_long_name", alerts=["nonfinite"]).begin()
    for step in range(1, 9):
        engine.step(step, 0.5, outputs=float("nan") if step > 5 else 4.0 - step / 2)
    engine.end()
    put(tmp_path / "other" / LONG / tensorboard_name(), build_file("tensorboard", range(1, 5)))
    put(
        tmp_path / "monitor.yaml",
        b"monitor_config: {enable: true, interval: 5, save_dir: /a/directory/" + b"x" * 60 + b"}\n",
    )
    put(tmp_path / "wrong.yaml", b"monitor_config: {enabel: true, metric: [loss], callback: {type: Monitro}}\n")
    return tmp_path


COMMANDS: dict[str, Callable[[Path], list[str]]] = {
    "convert": lambda at: ["convert", f"{at}/logs", f"{at}/tb"],
    "convert dry": lambda at: ["convert", f"{at}/logs", f"{at}/never/{LONG}", "--dry-run"],
    "convert nothing": lambda at: ["convert", f"{at}/{LONG}/{LONG}", f"{at}/tb2"],
    "convert wrongly": lambda at: ["convert", f"{at}/logs", f"{at}/tb", "--report", f"{at}/{LONG}/none/report.json"],
    "usage": lambda at: ["convert", f"{at}/logs", f"{at}/tb", "--workers", "no number", "--to", f"{at}/{LONG}"],
    "inspect": lambda at: ["inspect", f"{at}/logs"],
    "verify": lambda at: ["verify", f"{at}/logs", f"{at}/other"],
    "export": lambda at: ["export", f"{at}/logs", f"{at}/{LONG}/numbers", "--format", "csv", "--force"],
    "aggregate": lambda at: ["aggregate", f"{at}/ranks/{LONG}", f"{at}/{LONG}/over", "--force"],
    "diagnose": lambda at: ["diagnose", f"{at}/monitor/a_project_with_a_long_name/run"],
    "doctor": lambda at: ["doctor", f"{at}/logs"],
    "watch": lambda at: ["watch", f"{at}", "--once"],
    "config check": lambda at: ["config", "check", f"{at}/monitor.yaml"],
    "config wrong": lambda at: ["config", "check", f"{at}/wrong.yaml"],
    "config init": lambda at: ["config", "init", f"{at}/{LONG}.yaml", "--force"],
    "config suggest": lambda at: ["config", "suggest", f"{at}/monitor"],
    "view": lambda at: ["view", f"{at}/logs/{LONG}/notes/events.out.tfevents.notes.txt"],
}


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plant(tmp_path_factory.mktemp("planted"))


@pytest.mark.parametrize("name", COMMANDS)
def test_no_line_falls_to_the_left_edge_in_mid_sentence(
    name: str, planted: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = COMMANDS[name](planted)
    coloured = on_terminal(arguments, monkeypatch)
    plain = on_terminal(arguments, monkeypatch, no_color=True)
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    main(arguments)
    piped = capfd.readouterr()
    assert "\x1b" not in plain + piped.out + piped.err
    whole = [line for line in (piped.out + piped.err).splitlines() if line.strip()]
    beginnings = {line.split()[0] for line in whole}
    for shown in (plain, ESCAPE.sub("", coloured)):
        lines = shown.splitlines()
        assert [line for line in lines if cell_len(line) > WIDTH] == []
        lost = [line for line in lines if line[:1].strip() and line.split()[0] not in beginnings]
        if name != "watch":  # whose table is another one for each width
            assert [line for line in lost if not any(word.startswith(line.split()[0]) for word in beginnings)] == []
        assert len(lines) >= len(whole) or name == "watch"
    squeezed = re.sub(r"\s", "", plain)
    paths = [word for line in whole for word in re.findall(r"/[\w./-]{60,}", line)]
    if name not in ("watch", "verify", "convert", "convert dry", "inspect"):  # there they may stand in columns
        for path in paths:
            assert path in squeezed


def test_paths_break_behind_a_slash(planted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = COMMANDS["convert nothing"](planted)
    lines = on_terminal(arguments, monkeypatch).splitlines()
    assert len(lines) > 2
    assert all(line.endswith("/") for line in lines[:2])
    assert all(line.startswith("       ") for line in lines[1:])


def helps() -> list[list[str]]:
    command = typer.main.get_command(app)
    found = [[]]
    for name, inner in command.commands.items():  # type: ignore[attr-defined]
        found.append([name])
        found += [[name, each] for each in getattr(inner, "commands", ())]
    return found


@pytest.mark.parametrize("arguments", helps(), ids=" ".join)
def test_each_help_has_an_example_that_can_be_copied(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    assert main([*arguments, "--help"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= WIDTH
    examples = [line.strip() for line in text.splitlines() if line.strip().startswith("Example: ")]
    wanted = " ".join(["Example: ms-summary-bridge", *arguments])
    assert len(examples) == 1, text
    assert examples[0].startswith(wanted)
    following = text.splitlines()[[line.strip() for line in text.splitlines()].index(examples[0]) + 1]
    assert following.strip() == "", "an example is one line"
    if not arguments:
        codes = [line for line in text.splitlines() if re.match(r"    \d  ", line)]
        assert len(codes) == 6
    assert "\x1b" not in text


# ---------------------------------------------------------------- folding


@pytest.mark.parametrize(
    ("line", "indent", "lines"),
    [
        ("short", 2, ["short"]),
        ("a line of words that go on", 2, ["a line of words that", "  go on"]),
        ("  damaged  the bytes of it are", 11, ["  damaged  the bytes", "           of it are"]),
        ("see /a/long/path/that/has/no/place", 2, ["see /a/long/path/", "  that/has/no/place"]),
        ("see a/path that fits", 2, ["see a/path that fits"]),
        ("see it in a/path/that/fits", 2, ["see it in", "  a/path/that/fits"]),
        ("x" * 25, 2, ["x" * 20, "  " + "x" * 5]),
        ("   indented words that go on", 5, ["   indented words", "     that go on"]),
        ("盘" * 12, 2, ["盘" * 10, "  盘盘"]),
    ],
)
def test_folding(line: str, indent: int, lines: list[str]) -> None:
    assert fold(line, 20, indent) == lines


def test_the_indent_that_a_line_asks_for() -> None:
    assert hanging_indent("  damaged     /a/b: bytes", 80) == 14
    assert hanging_indent("error: what is wrong", 80) == 7
    assert hanging_indent("not read: what is wrong", 80) == 10
    assert hanging_indent("1. hang: rank 3 waits", 80) == 3
    assert hanging_indent("3 runs, 5 values converted", 80) == 2
    assert hanging_indent("  damaged     /a/b: bytes", 24) == 4
    for width, text in itertools.product((1, 2, 5, 30), ("", " ", "word " * 20, "/" * 50, "\t")):
        assert "".join("".join(fold(text, width)).split()) == "".join(text.split())
