"""The READMEs are true: their commands run, their tables are the program's own, and both say the same."""

from __future__ import annotations

import ast
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, get_args

import pytest
import typer
from tensorboardX import SummaryWriter

from ms_summary_bridge.cli.app import EXIT_CODES, app, main
from ms_summary_bridge.monitor.alarms.rules.rule import rule_names
from ms_summary_bridge.monitor.config.fields import PARAMS, SHARED
from ms_summary_bridge.monitor.model.alert_config import ACTIONS, Dialect
from ms_summary_bridge.monitor.model.metric_names import METRICS
from ms_summary_bridge.values import Value
from tests.mindspore_run import event, histogram, image, scalar, tensor, write_summary
from tests.project.test_public_names import run_python
from tools.quickstart_check import read_series
from tools.tensorboard_api import stop_process

ROOT = Path(__file__).resolve().parents[2]
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


def program(words: list[str]) -> list[str]:
    """Returns a command without what is set before it (`PATH=... mindinsight start`)."""
    return words[1:] if re.match(r"[A-Z]+=", words[0]) else words


def commands() -> list[list[str]]:
    """Returns the words of every command that README.md tells to run."""
    lines = [line for block in code_blocks(read(), "bash", "console") for line in block.splitlines()]
    return [program(words) for line in lines if (words := shlex.split(line, comments=True))]


def is_synopsis(words: list[str]) -> bool:
    return not {"SRC", "A", "DIR", "[PATH|CONFIG]"}.isdisjoint(words)


RUNNABLE = [words for words in commands() if words[0] == PROGRAM and not is_synopsis(words)]
ENDLESS = [
    words
    for words in RUNNABLE
    if "--follow" in words or words[1] == "view" or (words[1] == "watch" and "--once" not in words)
]


def group() -> Any:
    return typer.main.get_command(app)  # a click.Group, of the click that this typer brings or asks for


# ---------------------------------------------------------------- the commands


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the ./summary_dir and the ./runs that the READMEs speak of, to stand in."""
    kinds: list[tuple[str, Value]] = [
        ("loss", scalar(0.5)),
        ("weight", histogram([1, 2])),
        ("input", image()),
        ("logits", tensor([1, 2])),
    ]
    write_summary(tmp_path / "summary_dir", [event(step, *kinds) for step in range(3)])
    with SummaryWriter(str(tmp_path / "runs" / "team" / "first")) as writer:
        writer.add_scalar("loss", 0.5, 1)
    journal = tmp_path / "monitor_output" / "default" / "run" / "rank_0" / "metrics.jsonl"
    journal.parent.mkdir(parents=True)
    journal.write_text('{"kind":"header","ranks":1,"wall_time":1e9}\n{"kind":"end","step":5,"wall_time":1.1e9}\n')
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_commands_run_in_their_order(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran = [words for words in RUNNABLE if words not in ENDLESS]
    for words in ran:
        assert main(words[1:]) == 0, (words, capsys.readouterr())
    assert {words[1] for words in RUNNABLE} == set(group().commands), "a command is never shown at work"
    said = capsys.readouterr().out
    assert "equal: 1 run, 12 points" in said
    assert "equal: 1 run, 1 point" in said
    assert list((workplace / "mindinsight_dir" / "team+first").glob("*_MS"))


@pytest.mark.parametrize("words", ENDLESS, ids=["watch", "follow", "view"])
def test_what_goes_on_runs_until_it_is_ended(workplace: Path, words: list[str]) -> None:
    sign = {"view": "http://127.0.0.1:", "watch": "evidence"}.get(words[1], "converted to")
    if words[1] == "view":
        pytest.importorskip("tensorboard")
    with (workplace / "said.txt").open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "ms_summary_bridge", *words[1:]],
            env={"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "XDG_CACHE_HOME": str(workplace / "cache")},
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            deadline = time.monotonic() + 60
            while sign not in (workplace / "said.txt").read_text() and time.monotonic() < deadline:
                assert process.poll() is None, (workplace / "said.txt").read_text()
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 0, (workplace / "said.txt").read_text()
        finally:
            stop_process(process)
    assert words[1] != "convert" or list((workplace / "tensorboard_dir").glob("*tfevents*"))


# tests/project/test_quickstart.py runs the quickstart and MindInsight, and tools/test is what runs this.
OTHER_COMMANDS = {
    ("./tools/quickstart",),
    ("./tools/quickstart", "--check"),
    ("./tools/test",),
    ("./tools/environment", "mindinsight"),
    ("./tools/bench", "callback"),
    ("./tools/matrix",),
    ("tensorboard", "--logdir"),
    ("mindinsight", "start", "--summary-base-dir"),
}


def test_every_other_command_is_known() -> None:
    for words in commands():
        if words[0] == "export":
            continue
        if words[0] == "pip":
            assert re.fullmatch(r"\.(\[\w+\])?", words[2]), words
        elif words[0] != PROGRAM:
            assert tuple(word for word in words if not re.match(r"\./\w+_dir", word)) in OTHER_COMMANDS, words
            assert not words[0].startswith("./") or (ROOT / words[0]).stat().st_mode & 0o111, words
    assert (ROOT / "tools" / "environments" / "mindinsight.txt").exists()
    assert (ROOT / "tools" / "benchmarks" / "callback.py").exists()


SNIPPETS = code_blocks(read(), "python")


@pytest.mark.parametrize("snippet", [snippet for snippet in SNIPPETS if "convert_logdir" in snippet])
def test_python_runs(workplace: Path, snippet: str) -> None:
    exec(compile(snippet, "README.md", "exec"), {"__name__": "__main__"})
    assert list((workplace / "tensorboard_dir").glob("*tfevents*"))


# What the snippets take for granted.
MODEL = """
import mindspore
import numpy
from mindspore import nn
from mindspore.dataset import NumpySlicesDataset
from mindspore.train import Model

mindspore.set_device("CPU")
columns = {"data": numpy.ones((8, 3), "float32"), "label": numpy.zeros((8, 1), "float32")}
dataset = NumpySlicesDataset(columns, shuffle=False).batch(4)
network = nn.Dense(3, 1)
model = Model(network, nn.MSELoss(), nn.SGD(network.trainable_params()))
"""


@pytest.mark.mindspore
def test_python_of_the_callback_runs(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "\n".join(MODEL + snippet for snippet in SNIPPETS if re.search(r"SummaryBridge|\bbridge\.", snippet))
    )
    # To a file and not to a pipe: processes that MindSpore starts would hold it open.
    with (tmp_path / "said.txt").open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, str(script)], cwd=tmp_path, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            code = process.wait(timeout=240)
        finally:
            stop_process(process)
    assert code == 0, (tmp_path / "said.txt").read_text(errors="replace")
    series = read_series(tmp_path / "summary_dir")
    assert series.keys() >= {("scalar", "loss/auto"), ("scalar", "lr"), ("scalar", "perplexity"), ("tensor", "scores")}
    assert list((tmp_path / "summary_dir").glob("*tfevents*"))


def test_python_of_a_loop_of_ones_own_runs(tmp_path: Path) -> None:
    (snippet,) = (snippet for snippet in SNIPPETS if "import Monitor\n" in snippet)
    run_python(f"import os; os.chdir({str(tmp_path)!r})\n{snippet}", hide=True)  # no MindSpore is needed
    (journal,) = (tmp_path / "loop_dir").glob("*/*/rank_0/metrics.jsonl")
    assert '"tokens_per_second"' in journal.read_text()


@pytest.mark.mindspore
def test_section_of_the_monitor_trains(tmp_path: Path) -> None:
    section = next(block for block in code_blocks(read(), "yaml") if block.startswith("monitor_config:"))
    (tmp_path / "monitor.yaml").write_text(section)
    (snippet,) = (snippet for snippet in SNIPPETS if "build_monitor_callbacks" in snippet)
    (tmp_path / "script.py").write_text(MODEL + snippet)
    with (tmp_path / "said.txt").open("wb") as said:
        command = [sys.executable, "script.py"]
        process = subprocess.Popen(command, cwd=tmp_path, stdout=said, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            code = process.wait(timeout=240)
        finally:
            stop_process(process)
    text = (tmp_path / "said.txt").read_text(errors="replace")
    assert code == 0, text
    assert re.search(r"epoch 3/3 step: 2/2, loss: [-0-9.e]+, lr: 0\.1, .*interval_steps: \d+", text), text
    (run,) = (tmp_path / "monitor_output" / "bert-large-wwm-pretrain").iterdir()
    (table,) = (table for table in tables(read()) if table[0] == ["file", "holds"])
    for row in table[1:]:
        name = row[0].strip("`/").replace("<n>", "0")
        assert (run / name).exists() == ("csv" not in name), name


def test_section_of_alarms_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALARM_URL", "https://example.com/hook")
    (section,) = (block for block in code_blocks(read(), "yaml") if "alerts:" in block)
    (tmp_path / "alarms.yaml").write_text(section)
    assert main(["config", "check", str(tmp_path / "alarms.yaml")]) == 0
    (table,) = (table for table in tables(read()) if table[0][0] == "rule")
    assert sorted(re.findall(r"`(\w+)`", " ".join(row[0] for row in table[1:]))) == sorted(rule_names())


@pytest.mark.parametrize("section", [block for block in code_blocks(read(), "yaml") if "callbacks:" in block])
def test_sections_for_mindformers_are_right(tmp_path: Path, section: str) -> None:
    (tmp_path / "train.yaml").write_text(
        "trainer: {type: CausalLanguageModelingTrainer}\nrunner_config: {epochs: 1}\n" + section
    )
    assert main(["config", "check", str(tmp_path / "train.yaml")]) == 0


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


def test_arguments_of_the_callback_are_all_in_their_table() -> None:
    # Read from the source, since importing it takes a MindSpore.
    tree = ast.parse((ROOT / "ms_summary_bridge" / "callback" / "bridge.py").read_text(encoding="utf-8"))
    constants = {
        node.target.id: node.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    (bridge,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "SummaryBridge")
    (init,) = (node for node in bridge.body if isinstance(node, ast.FunctionDef) and node.name == "__init__")
    given = init.args
    places = given.args[1:]
    defaults = [None] * (len(places) - len(given.defaults)) + list(given.defaults) + list(given.kw_defaults)
    wanted = []
    for argument, default in zip([*places, *given.kwonlyargs], defaults, strict=True):
        value = constants.get(default.id) if isinstance(default, ast.Name) else default
        wanted.append([f"`{argument.arg}`", "" if value is None else f"`{ast.unparse(value)}`"])
    (table,) = (table for table in tables(read()) if table[0] == ["argument", "default", "meaning"])
    assert [row[:2] for row in table[1:]] == wanted


def test_tags_of_the_callback_are_those_it_writes() -> None:
    (table,) = (table for table in tables(read()) if "`SummaryBridge`" in table[0])
    tags = {
        tag.partition("<")[0]
        for name, _, row in table[1:]
        if name in ("learning rate", "speed", "mixed precision", "device memory")
        for tag in re.findall(r"`([^`]+)`", row)
    }
    assert len(tags) == 9
    source = "".join(
        (ROOT / "ms_summary_bridge" / name).read_text(encoding="utf-8")
        for name in ("callback/step_values.py", "training/measures.py", "training/learning_rate.py")
    )
    source = source.replace("memory/{name}_mib", "memory/allocated_mib memory/reserved_mib")
    assert sorted(tag for tag in tags if tag not in source) == []


def test_exit_codes_are_those_of_the_program() -> None:
    (table,) = (table for table in tables(read()) if table[0] == ["exit code", "meaning"])
    assert {int(code): text for code, text in table[1:]} == EXIT_CODES


def test_lines_of_the_report_are_all_explained() -> None:
    source = (ROOT / "ms_summary_bridge" / "cli" / "render.py").read_text(encoding="utf-8")
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


def code_of(start: str) -> list[str]:
    """Returns what stands in backticks in the one paragraph of README.md that begins so."""
    (paragraph,) = re.findall(rf"^{start}(?:.+\n)+", read(), re.MULTILINE)
    return re.findall(r"`([^`]+)`", paragraph)


def test_names_of_metrics_rules_and_actions_are_those_there_are() -> None:
    assert code_of("Metrics: ")[: len(METRICS)] == list(METRICS)
    actions = code_of("Actions are ")[: len(ACTIONS)]
    assert sorted(actions) == sorted(ACTIONS)
    services = re.search(r"`webhook` \(([^)]+)\)", read())
    assert services is not None
    assert services[1].lower().split(", ") == list(get_args(Dialect))


def test_keys_of_params_are_told() -> None:
    (table,) = (table for table in tables(read()) if table[0] == ["key", "default", "meaning"])
    assert {row[0].strip("`") for row in table[-4:]} == PARAMS.keys()
    (sentence,) = re.findall(r"The last four(.*?)may\s+also stand in `callback\.params`", read(), re.DOTALL)
    assert set(re.findall(r"`([^`]+)`", sentence)) == SHARED.keys()


def test_both_names_are_one_command() -> None:
    programs = dict(re.findall(r'"([\w-]+) = (ms_summary_bridge\.cli:\w+)"', read("setup.py")))
    assert programs.keys() == {PROGRAM, "msb"}
    assert len(set(programs.values())) == 1


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
    assert sum(path.stat().st_size for path in images) < 400_000
