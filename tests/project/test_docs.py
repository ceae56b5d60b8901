"""The manual is true: its commands run, its tables are the program's own, and both languages say the same."""

from __future__ import annotations

import ast
import json
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
from ms_summary_bridge.doctor.packages import CLASHES
from ms_summary_bridge.monitor.alarms.rules.rule import rule_names
from ms_summary_bridge.monitor.config.fields import PARAMS, SHARED
from ms_summary_bridge.monitor.model.alert_config import ACTIONS, Dialect
from ms_summary_bridge.monitor.model.metric_names import METRICS
from ms_summary_bridge.values import Value
from tests.mindspore_run import event, histogram, image, scalar, tensor, write_summary
from tests.project.test_claims import Claim, blocks, split_claims
from tests.project.test_public_names import run_python
from tools.quickstart_check import read_series
from tools.tensorboard_api import stop_process

ROOT = Path(__file__).resolve().parents[2]
READMES = ("README.md", "README.zh-CN.md")
MOST_LINES = 200
FIRST_SCREEN = 30  # lines
PROGRAM = "ms-summary-bridge"
FOR_DEVELOPERS = ("architecture.md", "formats.md")  # in English alone, with tests of their own


def twin(name: str) -> str:
    """Returns the Chinese page of an English one."""
    return READMES[1] if name == READMES[0] else name.removesuffix(".md") + ".zh.md"


PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "docs").rglob("*.md")
    if not path.name.endswith(".zh.md") and path.name not in FOR_DEVELOPERS
)
LANGUAGES = ([READMES[0], *PAGES], [READMES[1], *map(twin, PAGES)])
# Whose commands run in `workplace`, and whose numbers test_claimed_numbers.py looks up.
TYPED = [
    f"docs/{name}.md"
    for name in (
        *(
            "alarms",
            "articles",
            "callback",
            "checkpoints",
            "clouds",
            "commands",
            "compatibility",
            "config",
            "conversion",
        ),
        *("first-run", "hang", "index", "many-ranks", "mindformers", "monitor", "notebooks", "numbers", "old-runs"),
        *("own-loop", "recipes", "to-mindinsight", "troubleshooting", "watch"),
    )
]


def read(*names: str) -> str:
    """Returns the text of these pages, or that of all in English."""
    return "\n".join((ROOT / name).read_text(encoding="utf-8") for name in names or LANGUAGES[0])


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


def commands(*names: str) -> list[list[str]]:
    """Returns the words of every command that these pages, or all, tell to run."""
    lines = [line for block in code_blocks(read(*names), "bash", "console") for line in block.splitlines()]
    return [program(words) for line in lines if (words := shlex.split(line, comments=True))]


def is_synopsis(words: list[str]) -> bool:
    return not {"SRC", "A", "DIR", "[PATH|CONFIG]"}.isdisjoint(words) or any("://" in word for word in words)


def is_endless(words: list[str]) -> bool:
    return "--follow" in words or words[1] == "view" or (words[1] == "watch" and "--once" not in words)


# Of each page that is typed; those of the README are run by test_readme.py.
RUNNABLE = {
    page: [words for words in commands(page) if words[0] == PROGRAM and not is_synopsis(words)] for page in TYPED
}
ENDLESS = sorted({tuple(words) for page in RUNNABLE.values() for words in page if is_endless(words)})


def group() -> Any:
    return typer.main.get_command(app)  # a click.Group, of the click that this typer brings or asks for


# ---------------------------------------------------------------- the commands


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the ./summary_dir and the ./runs that the pages speak of, to stand in."""
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


@pytest.mark.parametrize("page", [page for page in TYPED if RUNNABLE[page]])
def test_commands_run_in_their_order(workplace: Path, capsys: pytest.CaptureFixture[str], page: str) -> None:
    for words in RUNNABLE[page]:
        assert is_endless(words) or main(words[1:]) == 0, (words, capsys.readouterr())
    said = capsys.readouterr().out
    for a, b in (words[2:4] for words in RUNNABLE[page] if words[1] == "verify"):
        assert ("equal: 1 run, 1 point" if a == "./runs" else "equal: 1 run, 12 points") in said, (a, b)
    assert "./mindinsight_dir" not in {word for words in RUNNABLE[page] for word in words} or list(
        (workplace / "mindinsight_dir" / "team+first").glob("*_MS")
    )


def test_every_command_is_shown_at_work() -> None:
    shown = {words[1] for words in commands(*PAGES) if words[0] == PROGRAM and not is_synopsis(words)}
    assert shown == set(group().commands)


@pytest.mark.parametrize("words", ENDLESS, ids=[words[1] for words in ENDLESS])
def test_what_goes_on_runs_until_it_is_ended(workplace: Path, words: tuple[str, ...]) -> None:
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
            while sign not in (workplace / "said.txt").read_text("utf-8") and time.monotonic() < deadline:
                assert process.poll() is None, (workplace / "said.txt").read_text("utf-8")
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 0, (workplace / "said.txt").read_text("utf-8")
        finally:
            stop_process(process)
    assert words[1] != "convert" or list((workplace / "tensorboard_dir").glob("*tfevents*"))


# test_quickstart.py runs the quickstart and MindInsight, test_site.py builds the site, tools/test is what runs this.
BENCHES = (
    "callback",
    "convert --json > measured.json",
    "convert --from measured.json --markdown",
    "convert --from measured.json --chart speed.svg",
    "memory",
    "scale",
    "plugin",
)
OTHER_COMMANDS = {
    ("./tools/quickstart",),
    ("./tools/quickstart", "--check"),
    ("./tools/test",),
    ("./tools/environment", "mindinsight"),
    ("mkdocs", "build", "--strict", "--quiet", "--site-dir"),
    *(("./tools/bench", *words.split()) for words in BENCHES),
    ("./tools/matrix",),
    ("./tools/torture",),
    ("./tools/torture", "crash", "fail", "--minutes", "20"),
    ("./tools/torture", "--json", "measured.json"),
    ("./tools/torture", "--from", "measured.json", "--markdown"),
    ("./tools/test", "--coverage", "files", "tests/files"),
    ("./tools/test", "--odd"),
    ("./tools/mutate",),
    ("./tools/mutate", "rules", "--survivors"),
    ("./tools/mutate", "--from", "measured.json", "--markdown"),
    ("./tools/ascend_check", "--seconds", "600", "--npus", "8"),
    ("python", "-m", "ipykernel", "install", "--user", "--name", "mindspore"),
    ("tensorboard", "--logdir"),
    ("mindinsight", "start", "--summary-base-dir"),
}


def test_every_other_command_is_known() -> None:
    for words in commands():
        if words[0] not in ("docker", "export", "pip", PROGRAM):  # test_packaging.py reads the Dockerfile
            assert tuple(word for word in words if not re.match(r"\./\w+_dir", word)) in OTHER_COMMANDS, words
            assert not words[0].startswith("./") or (ROOT / words[0]).stat().st_mode & 0o111, words
    assert (ROOT / "tools" / "environments" / "mindinsight.txt").exists()
    assert (ROOT / "tools" / "benchmarks" / "callback.py").exists()


SNIPPETS = {page: code_blocks(read(page), "python") for page in PAGES}
READS = [(page, text) for page in ("docs/old-runs.md", "docs/numbers.md") for text in SNIPPETS[page]]


@pytest.mark.parametrize(("page", "snippet"), READS)
def test_python_runs(workplace: Path, page: str, snippet: str) -> None:
    exec(compile(snippet, page, "exec"), {"__name__": "__main__"})
    assert "convert_logdir(" not in snippet or list((workplace / "tensorboard_dir").glob("*tfevents*"))


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
    pages = ["docs/first-run.md", "docs/callback.md", "docs/checkpoints.md"]
    script.write_text("\n".join(MODEL + snippet for page in pages for snippet in SNIPPETS[page]))
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
    (snippet,) = SNIPPETS["docs/own-loop.md"]
    run_python(f"import os; os.chdir({str(tmp_path)!r})\n{snippet}", hide=True)  # no MindSpore is needed
    (journal,) = (tmp_path / "loop_dir").glob("*/*/rank_0/metrics.jsonl")
    assert '"tokens_per_second"' in journal.read_text()


@pytest.mark.mindspore
def test_section_of_the_monitor_trains(tmp_path: Path) -> None:
    section = next(block for block in code_blocks(read("docs/monitor.md"), "yaml"))
    (tmp_path / "monitor.yaml").write_text(section)
    (snippet,) = SNIPPETS["docs/monitor.md"]
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
    (table,) = (table for table in tables(read("docs/monitor.md")) if table[0] == ["file", "holds"])
    for row in table[1:]:
        name = row[0].strip("`/").replace("<n>", "0")
        assert (run / name).exists() == ("csv" not in name), name


SECTIONS = [
    (page, block)
    for page in ("docs/alarms.md", "docs/clouds.md")
    for block in code_blocks(read(page), "yaml")
    if block.startswith("monitor_config:")
]


@pytest.mark.parametrize(("page", "section"), SECTIONS, ids=[page for page, _ in SECTIONS])
def test_sections_of_alarms_are_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], page: str, section: str
) -> None:
    for name in re.findall(r"\$\{(\w+)\}", section):
        monkeypatch.setenv(name, str(tmp_path) if name.endswith("DIR") else "https://example.com/hook")
    (tmp_path / "alarms.yaml").write_text(section)
    assert main(["config", "check", str(tmp_path / "alarms.yaml")]) == 0
    assert "no effect" not in capsys.readouterr().out


def test_every_rule_and_service_is_in_its_table() -> None:
    (table,) = (table for table in tables(read("docs/alarms.md")) if table[0][0] == "rule")
    assert sorted(re.findall(r"`(\w+)`", " ".join(row[0] for row in table[1:]))) == sorted(rule_names())
    (table,) = (table for table in tables(read("docs/alarms.md")) if table[0][0] == "service")
    assert sorted(row[1].strip("`") for row in table[1:]) == sorted(get_args(Dialect))


MINDFORMERS = [READMES[0], "docs/mindformers.md"]


@pytest.mark.parametrize(
    "section", [block for block in code_blocks(read(*MINDFORMERS), "yaml") if "callbacks:" in block]
)
def test_sections_for_mindformers_are_right(tmp_path: Path, capsys: pytest.CaptureFixture[str], section: str) -> None:
    (tmp_path / "train.yaml").write_text(
        "trainer: {type: CausalLanguageModelingTrainer}\nrunner_config: {epochs: 1}\n" + section
    )
    assert main(["config", "check", str(tmp_path / "train.yaml")]) == 0
    assert "list it in metrics" not in capsys.readouterr().out


def test_a_monitor_beside_a_bridge_is_a_run_of_its_own(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", ".", "--once", "--json"]) == 0
    names = {run["name"] for run in json.loads(capsys.readouterr().out)["runs"]}
    assert names >= {"monitor_output/default/run", "summary_dir"}


# ---------------------------------------------------------------- what they document


@pytest.mark.parametrize("pages", LANGUAGES, ids=["en", "zh"])
def test_every_command_and_option_is_documented(pages: list[str]) -> None:
    text = read(*pages)
    wanted = set()
    for command_name, command in group().commands.items():
        wanted.add(f"{PROGRAM} {command_name} ")
        for parameter in command.params:
            if parameter.param_type_name == "option":
                wanted |= {option for option in parameter.opts if option != "--help"}
    assert sorted(item for item in wanted | {"--help", "--version"} if item not in text) == []


def test_options_of_convert_are_all_in_its_table() -> None:
    (table,) = (table for table in tables(read("docs/commands.md")) if "option of `convert`" in table[0])
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
    (table,) = (table for table in tables(read("docs/callback.md")) if table[0] == ["argument", "default", "meaning"])
    assert [row[:2] for row in table[1:]] == wanted


def test_tags_of_the_callback_are_those_it_writes() -> None:
    (table,) = (table for table in tables(read("docs/callback.md")) if "`SummaryBridge`" in table[0])
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
    (table,) = (table for table in tables(read("docs/commands.md")) if table[0] == ["exit code", "meaning"])
    assert {int(code): text for code, text in table[1:]} == EXIT_CODES


def test_lines_of_the_report_are_all_explained() -> None:
    source = (ROOT / "ms_summary_bridge" / "cli" / "render.py").read_text(encoding="utf-8")
    # A label stands in a column of twelve, behind two blanks.
    labels = {
        label.strip() for label in re.findall(r'"  (?=.{12})([a-z]+(?: [a-z]+)? +)(?=[^ ])', source) if len(label) == 12
    }
    (table,) = (table for table in tables(read("docs/conversion.md")) if table[0] == ["line", "meaning"])
    assert labels == {row[0].strip("`") for row in table[1:]}


def test_extras_are_those_of_setup() -> None:
    source = (ROOT / "setup.py").read_text(encoding="utf-8")
    extras = re.findall(r'^    "(\w+)": ', source[source.index("EXTRAS = {") :], re.MULTILINE)
    (table,) = (table for table in tables(read("docs/first-run.md")) if table[0] == ["extra", "brings"])
    assert sorted(row[0].strip("`") for row in table[1:]) == sorted(extras)
    for words in commands():
        if words[0] == "pip":
            (asked,) = re.findall(r"^(?:\.(?:\[([\w,]+)\])?|ipykernel)$", words[2])
            assert set(filter(None, asked.split(","))) <= set(extras)


def code_of(page: str, start: str) -> list[str]:
    """Returns what stands in backticks in the one paragraph that begins so."""
    (paragraph,) = re.findall(rf"^{start}(?:.+\n)+", read(page), re.MULTILINE)
    return re.findall(r"`([^`]+)`", paragraph)


def test_names_of_metrics_rules_and_actions_are_those_there_are() -> None:
    assert code_of("docs/monitor.md", "Metrics: ")[: len(METRICS)] == list(METRICS)
    actions = code_of("docs/alarms.md", "Actions are ")[: len(ACTIONS)]
    assert sorted(actions) == sorted(ACTIONS)
    services = re.search(r"`webhook` \(([^)]+)\)", read("docs/alarms.md"))
    assert services is not None
    assert services[1].lower().split(", ") == list(get_args(Dialect))


def test_doctor_names_what_it_can_of_the_error_texts() -> None:
    (table,) = (table for table in tables(read("docs/troubleshooting.md")) if table[0][0] == "text")
    texts = [re.findall(r"`([^`]+)`", row[0])[0] for row in table[1:]]
    source = "".join(clash.text + clash.mend for clash in CLASHES)
    source += "".join(path.read_text(encoding="utf-8") for path in (ROOT / "ms_summary_bridge/doctor").glob("*.py"))
    told = [text for text in texts if text in source]
    assert len(told) > len(texts) / 2
    for clash in CLASHES:  # and what mends it is the same
        rows = [row for row, text in zip(table[1:], texts, strict=True) if text in clash.text]
        for row in rows:
            (mend,) = re.findall(r"pip install '[^']+'|view DIR --with mindinsight", clash.mend)[:1]
            assert mend in row[-1], clash.id


def test_keys_of_params_are_told() -> None:
    (table,) = (table for table in tables(read("docs/config.md")) if table[0] == ["key", "default", "meaning"])
    assert {row[0].strip("`") for row in table[-4:]} == PARAMS.keys()
    (sentence,) = re.findall(
        r"The last four(.*?)may\s+also stand in `callback\.params`", read("docs/config.md"), re.DOTALL
    )
    assert set(re.findall(r"`([^`]+)`", sentence)) == SHARED.keys()


def test_both_names_are_one_command() -> None:
    programs = dict(re.findall(r'"([\w-]+) = (ms_summary_bridge\.cli:\w+)"', read("setup.py")))
    assert programs.keys() == {PROGRAM, "msb"}
    assert len(set(programs.values())) == 1


# ---------------------------------------------------------------- both languages

PAIRS = [(name, twin(name)) for name in LANGUAGES[0]]


@pytest.mark.parametrize("names", PAIRS, ids=LANGUAGES[0][: len(PAIRS)])
def test_both_have_the_same_code(names: tuple[str, str]) -> None:
    one, other = (re.findall(r"^```.*?^```$", read(name), re.MULTILINE | re.DOTALL) for name in names)
    assert one == other


@pytest.mark.parametrize("names", PAIRS, ids=LANGUAGES[0][: len(PAIRS)])
def test_both_have_the_same_tables(names: tuple[str, str]) -> None:
    one, other = (
        [
            # What is code or a number is the same in both; a first column of code is compared whole.
            [
                (len(row), row[0] if re.fullmatch(r"(`[^`]+`(, )?)+|\d+", row[0]) else "", code_in(row))
                for row in table[1:]
            ]
            for table in tables(read(name))
        ]
        for name in names
    )
    assert one == other


def code_in(row: list[str]) -> list[str]:
    return sorted(set(re.findall(r"`[^`]+`", " ".join(row))))


@pytest.mark.parametrize("names", PAIRS, ids=LANGUAGES[0][: len(PAIRS)])
def test_both_have_the_same_headings_and_links(names: tuple[str, str]) -> None:
    headings = [re.findall(r"^(#+) ", read(name), re.MULTILINE) for name in names]
    assert headings[0] == headings[1]
    # Each names the pages of its own language.
    found = [re.findall(r"\]\(([^)#]+)", re.sub(r"\.zh(-CN)?\.md", ".md", read(name))) for name in names]
    assert sorted(found[0]) == sorted(found[1])


@pytest.mark.parametrize("name", READMES)
def test_first_screen_says_all_a_newcomer_needs(name: str) -> None:
    assert len(read(name).splitlines()) <= MOST_LINES
    screen = "\n".join(read(name).splitlines()[:FIRST_SCREEN])
    for text in ("pip install", "collect_graph=True, collect_", "![", "./tools/quickstart", "./tools/test"):
        assert text in screen


ASCEND = re.compile(r"\b(?:Ascend|NPUs?|HCCL|CANN|npu-smi)\b|昇腾")
KNOWN_BY = re.compile(r"from documentation|verified on|run on Ascend|来自文档|已验证|在昇腾\S*运行过")


@pytest.mark.parametrize("name", [name for pages in LANGUAGES for name in pages])
def test_what_is_said_of_ascend_says_how_that_is_known(name: str) -> None:
    split = split_claims if not name.endswith((".zh.md", "zh-CN.md")) else lambda text: map(Claim, blocks(text))
    claims = [claim.text for claim in split(read(name)) if ASCEND.search(claim.text)]
    assert [text for text in claims if not KNOWN_BY.search(text)] == [], 'it lacks "from documentation"'


@pytest.mark.parametrize("name", LANGUAGES[1])
def test_a_divisor_of_the_loss_is_no_loss_scale(name: str) -> None:
    assert "损失缩放" not in read(name)


@pytest.mark.parametrize("name", [name for pages in LANGUAGES for name in pages])
def test_what_they_point_to_exists(name: str) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", read(name))
    local = [link for link in links if not re.match(r"https?://", link)]
    directory = (ROOT / name).parent
    assert [link for link in local if not (directory / link).exists()] == []
    # Which part of the address is wrong, nobody asks: the other side may be away.
    assert [link for link in set(links) - set(local) if not re.fullmatch(r"https?://[\w.-]+(/[^\s)]*)?", link)] == []


@pytest.mark.parametrize("name", LANGUAGES[1])
def test_a_chinese_page_leads_to_chinese_pages(name: str) -> None:
    links = re.findall(r"\]\(([^)#:]+)\.md", read(name))
    directory = (ROOT / name).parent
    others = [link for link in links if not link.endswith((".zh", ".zh-CN"))]
    assert [link for link in others if (directory / f"{link}.zh.md").exists()] == []


def test_pictures_are_small() -> None:
    assert sum(path.stat().st_size for path in (ROOT / "docs" / "images").glob("*.png")) < 400_000
