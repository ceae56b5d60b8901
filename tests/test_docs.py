"""The READMEs are true: their commands run, their tables are the program's own, and both say the same."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import typer

from ms_summary_bridge.cli import EXIT_CODES, app, main
from ms_summary_bridge.values import Value
from tests.mindspore_run import event, histogram, image, scalar, tensor, write_summary
from tools.tensorboard_api import stop_process

ROOT = Path(__file__).resolve().parent.parent
READMES = ("README.md", "README.zh-CN.md")
FIRST_SCREEN = 20  # lines
PROGRAM = "ms-summary-bridge"


def read(name: str = "README.md") -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def code_blocks(text: str, *languages: str) -> list[str]:
    """Returns the fenced blocks in these languages, or all of them."""
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [block for language, block in blocks if not languages or language in languages]


def tables(text: str) -> list[list[list[str]]]:
    """Returns the cells of each table, its heading first."""
    found = re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE)
    return [
        [
            [cell.strip() for cell in line.strip("|").split("|")]
            for line in table.splitlines()
            if set(line) - set("|-: ")
        ]
        for table in found
    ]


def commands() -> list[list[str]]:
    """Returns the words of every command that README.md tells to run."""
    lines = [line for block in code_blocks(read(), "bash", "console") for line in block.splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def is_synopsis(words: list[str]) -> bool:
    return "SRC" in words or "A" in words


RUNNABLE = [words for words in commands() if words[0] == PROGRAM and not is_synopsis(words)]


def group() -> Any:
    return typer.main.get_command(app)  # a click.Group, of the click that this typer brings or asks for


# ---------------------------------------------------------------- the commands


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the ./summary_dir that the READMEs speak of, to stand in."""
    kinds: list[tuple[str, Value]] = [
        ("loss", scalar(0.5)),
        ("weight", histogram([1, 2])),
        ("input", image()),
        ("logits", tensor([1, 2])),
    ]
    write_summary(tmp_path / "summary_dir", [event(step, *kinds) for step in range(3)])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_commands_run_in_their_order(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran = [words for words in RUNNABLE if "--follow" not in words]
    for words in ran:
        assert main(words[1:]) == 0, (words, capsys.readouterr())
    assert {words[1] for words in ran} == set(group().commands), "a command is never shown at work"
    assert "equal: 1 run, 12 points" in capsys.readouterr().out


def test_follow_runs_until_it_is_ended(workplace: Path) -> None:
    (words,) = (words for words in RUNNABLE if "--follow" in words)
    with (workplace / "said.txt").open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "ms_summary_bridge", *words[1:]],
            env={"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            deadline = time.monotonic() + 60
            while b"converted to" not in (workplace / "said.txt").read_bytes() and time.monotonic() < deadline:
                assert process.poll() is None, (workplace / "said.txt").read_text()
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 0, (workplace / "said.txt").read_text()
        finally:
            stop_process(process)
    assert list((workplace / "tensorboard_dir").glob("*tfevents*"))


def test_every_other_command_is_known() -> None:
    # tests/test_quickstart.py runs the quickstart, and tools/test is what runs this.
    assert {words[0] for words in commands()} == {PROGRAM, "./tools/quickstart", "./tools/test", "tensorboard", "pip"}
    for words in commands():
        if words[0].startswith("./"):
            assert (ROOT / words[0]).stat().st_mode & 0o111, words
            assert all(option == "--check" for option in words[1:]), words
        elif words[0] == "pip":
            assert re.fullmatch(r"\.(\[\w+\])?", words[2]), words
        elif words[0] == "tensorboard":
            assert words[1] == "--logdir", words


@pytest.mark.parametrize("snippet", code_blocks(read(), "python"))
def test_python_runs(workplace: Path, snippet: str) -> None:
    exec(compile(snippet, "README.md", "exec"), {"__name__": "__main__"})
    assert list((workplace / "tensorboard_dir").glob("*tfevents*"))


# ---------------------------------------------------------------- what they document


@pytest.mark.parametrize("name", READMES)
def test_every_command_and_option_is_documented(name: str) -> None:
    text = read(name)
    wanted = set()
    for command_name, command in group().commands.items():
        wanted.add(f"{PROGRAM} {command_name} ")
        for parameter in command.params:
            if parameter.param_type_name == "option":
                wanted |= {option for option in parameter.opts if option != "--help"}
    assert sorted(item for item in wanted | {"--help", "--version"} if item not in text) == []


def test_options_of_convert_are_all_in_its_table() -> None:
    (table,) = (table for table in tables(read()) if "option of `convert`" in table[0])
    told = {row[0].strip("`").split()[0] for row in table[1:]}
    options = {
        parameter.opts[0] for parameter in group().commands["convert"].params if parameter.param_type_name == "option"
    }
    assert told == options - {"--help"}


def test_exit_codes_are_those_of_the_program() -> None:
    (table,) = (table for table in tables(read()) if table[0] == ["exit code", "meaning"])
    assert {int(code): text for code, text in table[1:]} == EXIT_CODES


def test_lines_of_the_report_are_all_explained() -> None:
    source = (ROOT / "ms_summary_bridge" / "render.py").read_text(encoding="utf-8")
    # A label stands in a column of twelve, behind two blanks.
    labels = {
        label.strip() for label in re.findall(r'"  (?=.{12})([a-z]+(?: [a-z]+)? +)(?=[^ ])', source) if len(label) == 12
    }
    (table,) = (table for table in tables(read()) if table[0] == ["line", "meaning"])
    assert labels == {row[0].strip("`") for row in table[1:]}


def test_extras_are_those_of_setup() -> None:
    source = (ROOT / "setup.py").read_text(encoding="utf-8")
    extras = re.findall(r'^    "(\w+)": ', source[source.index("EXTRAS = {") :], re.MULTILINE)
    (table,) = (table for table in tables(read()) if table[0] == ["extra", "brings"])
    assert sorted(row[0].strip("`") for row in table[1:]) == sorted(extras)
    for words in commands():
        if words[0] == "pip":
            assert set(re.findall(r"\[(\w+)\]", words[2])) <= set(extras)


# ---------------------------------------------------------------- both READMEs


def test_both_have_the_same_code() -> None:
    one, other = (re.findall(r"^```.*?^```$", read(name), re.MULTILINE | re.DOTALL) for name in READMES)
    assert one == other


def test_both_have_the_same_tables() -> None:
    one, other = (
        [
            # What is code or a number is the same in both; a first column of code is compared whole.
            [
                (len(row), row[0] if row[0].startswith("`") or row[0].isdigit() else "", code_in(row))
                for row in table[1:]
            ]
            for table in tables(read(name))
        ]
        for name in READMES
    )
    assert one == other


def code_in(row: list[str]) -> list[str]:
    return sorted(set(re.findall(r"`[^`]+`", " ".join(row))))


def test_both_have_the_same_headings_and_links() -> None:
    for pattern in (r"^(#+) ", r"\]\(([^)]+)\)"):
        one, other = (re.findall(pattern, read(name).replace("README.zh-CN.md", "README.md"), re.M) for name in READMES)
        assert one == other


@pytest.mark.parametrize("name", READMES)
def test_first_screen_says_all_a_newcomer_needs(name: str) -> None:
    screen = read(name).partition("![")[0]
    assert len(screen.splitlines()) < FIRST_SCREEN
    assert "./tools/quickstart" in screen
    assert "./tools/test" in screen


@pytest.mark.parametrize("name", READMES)
def test_what_they_point_to_exists(name: str) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", read(name))
    assert [link for link in links if not (ROOT / link).exists()] == []
    images = [ROOT / link for link in links if link.endswith(".png")]
    assert images
    assert sum(path.stat().st_size for path in images) < 300_000
