"""The plugin in real TensorBoards: MindSpore's runs beside TensorFlow's, live, in both loaders, never in the way."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from ms_summary_bridge.mirror.home import Home, open_home
from ms_summary_bridge.training.distributed import rank_directory
from tests.eventually import wait_for
from tests.scripted import build_file, build_record, mindspore_name, put, scalar_payload, tensorboard_name
from tools.tensorboard_api import TensorBoardClient, running_tensorboard, stop_process

ROOT = Path(__file__).resolve().parents[2]
both_loaders = pytest.mark.parametrize("load_fast", [True, False], ids=["fast", "slow"])
pytestmark = pytest.mark.tensorboard


class Board:
    """TensorBoards on one logdir, with a cache of their own."""

    def __init__(self, directory: Path) -> None:
        self.logdir = directory / "logs"
        self.logdir.mkdir()
        self.cache = directory / "cache"
        self._directory = directory
        self._count = 0
        self._stack = contextlib.ExitStack()

    def start(self, load_fast: bool, *options: str) -> TensorBoardClient:
        self._count += 1
        logdir = None if "--logdir_spec" in options else self.logdir
        context = running_tensorboard(logdir, self.log(self._count), load_fast=load_fast, options=options)
        return self._stack.enter_context(context)

    def log(self, number: int) -> Path:
        return self._directory / f"tensorboard-{number}.log"

    def home(self) -> Home:
        return open_home(str(self.logdir))

    def children(self) -> list[psutil.Process]:
        """Returns the processes that keep the mirror up to date."""
        found = []
        for process in psutil.process_iter(["cmdline"]):
            line = process.info["cmdline"] or []
            if "ms_summary_bridge.mirror" in line and str(self.logdir) in line:
                found.append(process)
        return found

    def close(self) -> None:
        self._stack.close()
        wait_for(lambda: not self.children(), "a child outlives its TensorBoard")


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Board]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    board = Board(tmp_path)
    try:
        yield board
    finally:
        board.close()


def write(directory: Path, file_format: str, steps: range) -> Path:
    name = tensorboard_name() if file_format == "tensorboard" else mindspore_name()
    return put(directory / name, build_file(file_format, steps))


def append(path: Path, file_format: str, steps: range) -> None:
    with path.open("ab") as file:
        for step in steps:
            file.write(build_record(scalar_payload(file_format, step)))


def wait_runs(client: TensorBoardClient, *names: str) -> None:
    client.wait_json("data/runs", lambda runs: sorted(runs) == sorted(names))


def wait_steps(client: TensorBoardClient, run: str, steps: range, tag: str = "loss", secs: float = 60.0) -> None:
    client.wait_json(
        "data/plugin/scalars/scalars",
        lambda rows: [row[1] for row in rows] == list(steps),
        run=run,
        tag=tag,
        timeout_secs=secs,
    )


def wait_links(client: TensorBoardClient, *names: str) -> dict[str, list[str]]:
    """Returns how TensorBoard calls the ranks of each of the page's runs, once those that it calls so are all read."""
    answer = client.wait_json(
        "data/plugin/mindspore/runs",
        lambda answer: (
            answer["is_known"]
            and not answer["unread"]
            and {name for row in answer["rows"] for name in row["links"]["runs"]} >= {*names}
        ),
    )
    return {row["name"]: row["links"]["runs"] for row in answer["rows"]}


# --- a real training


@pytest.mark.mindspore
@pytest.mark.slow
def test_a_training_is_shown_step_by_step_by_two_tensorboards_started_before_it(board: Board) -> None:
    # At TensorBoard's own pace, which is to look every five seconds.
    clients = [board.start(load_fast, "--reload_interval", "5") for load_fast in (True, False)]
    output = board.logdir.parent / "training.txt"
    with output.open("w+b") as log:
        training = subprocess.Popen(
            [sys.executable, str(ROOT / "tests" / "train_by_hand.py"), str(board.logdir / "job"), "4"],
            cwd=board.logdir.parent,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            assert training.stdin is not None
            for step in (1, 2, 3):
                for client in clients:  # no other step is taken before both show this one
                    secs = 120.0 if step == 1 else 10.0  # MindSpore must start, and compute the first
                    wait_steps(client, "job", range(1, step + 1), "loss/auto", secs)
                training.stdin.write(b"\n")
                training.stdin.flush()
            training.stdin.close()
            assert training.wait(60) == 0, output.read_text()
        finally:
            stop_process(training)
    for client in clients:
        wait_steps(client, "job", range(1, 5), "loss/auto")
    assert len(list(board.cache.glob("*/*/*/outputs/*/*tfevents*"))) >= 1
    assert len(list(board.cache.glob("*/*/*"))) == 1, "one mirror for both"


@both_loaders
def test_all_that_a_training_wrote_is_shown(board: Board, summary_dir: Path, load_fast: bool) -> None:
    shutil.copytree(summary_dir, board.logdir / "job")
    client = board.start(load_fast)
    wait_steps(client, "job", range(1, 17), "loss/auto")
    for plugin, tag in {"histograms": "activation", "images": "input", "text": "logits"}.items():
        client.wait_json(f"data/plugin/{plugin}/tags", lambda runs, tag=tag: tag in runs.get("job", ()))
    client.wait_json("data/plugin/graphs/info", lambda runs: "job" in runs)
    client.wait_json("data/plugin/scalars/tags", lambda runs: "eval/accuracy" in runs.get("job", ()))
    assert {path.name for path in board.logdir.joinpath("job").iterdir()} == {p.name for p in summary_dir.iterdir()}


# --- both kinds below one logdir


@both_loaders
def test_runs_of_both_kinds_come_grow_and_go(board: Board, load_fast: bool) -> None:
    first = write(board.logdir / "tf", "tensorboard", range(1, 3))
    client = board.start(load_fast)
    wait_runs(client, "tf")
    assert client.get_json("data/environment")["data_location"] == str(board.logdir)

    run = write(board.logdir / "a" / "ms", "mindspore", range(1, 3))
    wait_runs(client, "tf", "a/ms")
    wait_steps(client, "a/ms", range(1, 3))
    append(run, "mindspore", range(3, 6))
    append(first, "tensorboard", range(3, 6))
    write(board.logdir / "b" / "c", "tensorboard", range(1, 3))
    write(board.logdir / "a" / "tf", "tensorboard", range(1, 3))
    write(board.logdir / "tf", "mindspore", range(1, 4))
    for name, steps in {"a/ms": 6, "tf": 6, "b/c": 3, "a/tf": 3, "tf/mindspore": 4}.items():
        wait_steps(client, name, range(1, steps))
    append(first, "tensorboard", range(6, 8))
    wait_steps(client, "tf", range(1, 8))

    shutil.rmtree(board.logdir / "a" / "ms")
    shutil.rmtree(board.logdir / "b")
    wait_runs(client, "tf", "a/tf", "tf/mindspore")
    assert "ms_summary_bridge" not in board.log(1).read_text()


@both_loaders
def test_it_serves_before_anything_is_converted(board: Board, load_fast: bool) -> None:
    for number in range(40):
        kind = "mindspore" if number % 2 else "tensorboard"
        write(board.logdir / f"group{number % 5}" / f"run{number}", kind, range(1, 20))
    handle = board.home().lock()  # so that nothing is
    assert handle is not None
    client = board.start(load_fast)
    of_tensorflow = [f"group{number % 5}/run{number}" for number in range(0, 40, 2)]
    wait_runs(client, *of_tensorflow)
    os.close(handle)
    wait_runs(client, *of_tensorflow, *(f"group{number % 5}/run{number}" for number in range(1, 40, 2)))


def test_without_mindspore_files_all_is_as_without_the_plugin(board: Board) -> None:
    write(board.logdir / "tf", "tensorboard", range(1, 3))
    write(board.logdir.parent / "elsewhere", "tensorboard", range(1, 3))
    (board.logdir / "link").symlink_to(board.logdir.parent / "elsewhere")
    plain, client = board.start(False, "--mindspore", "off"), board.start(False)
    for one in (plain, client):
        wait_runs(one, "tf", "link")
    environments = [one.get_json("data/environment") for one in (plain, client)]
    assert [one.pop("debug")["flags"]["mindspore"] for one in environments] == ["off", "auto"]
    assert environments[0] == environments[1]
    listings = [one.get_json("data/plugins_listing") for one in (plain, client)]
    assert listings[1].pop("mindspore")["enabled"] is False  # TensorBoard lists our page among the inactive ones
    assert listings[0] == listings[1]
    assert [line[:40] for line in lines(board.log(1))] == [line[:40] for line in lines(board.log(2))]
    assert os.readlink(board.home().logdir) == str(board.logdir)


def lines(log: Path) -> list[str]:
    return [line for line in log.read_text().splitlines() if "http://" not in line]


def test_off_does_nothing(board: Board) -> None:
    write(board.logdir / "tf", "tensorboard", range(1, 3))
    write(board.logdir / "ms", "mindspore", range(1, 3))
    client = board.start(True, "--mindspore", "off")
    wait_runs(client, "tf")
    assert board.children() == []
    assert not board.cache.exists()


def test_it_is_the_entry_point_that_brings_it() -> None:
    code = (
        "from importlib import metadata\n"
        "found = metadata.entry_points(group='tensorboard_plugins')\n"
        "print([point.value for point in found if point.name == 'mindspore'])\n"
        "from tensorboard import default\n"
        "print([loader.__name__ for loader in default.get_dynamic_plugins()])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert "ms_summary_bridge.tensorboard_plugin.loader:MindSporeLoader" in done.stdout
    assert "'MindSporeLoader'" in done.stdout


# --- its process


def test_a_killed_tensorboard_leaves_no_child_and_another_one_takes_over(board: Board) -> None:
    run = write(board.logdir / "ms", "mindspore", range(1, 3))
    wait_steps(board.start(False), "ms", range(1, 3))
    (worker,) = board.children()
    killed = worker.parent()
    assert killed is not None
    client = board.start(True)
    wait_for(lambda: len(board.children()) == 2, "each TensorBoard has a child")
    wait_steps(client, "ms", range(1, 3))

    killed.send_signal(signal.SIGKILL)
    wait_for(lambda: worker not in board.children(), "the child ends with its TensorBoard")
    append(run, "mindspore", range(3, 6))
    wait_steps(client, "ms", range(1, 6))


def test_a_program_may_start_tensorboard_itself(board: Board) -> None:
    write(board.logdir / "ms", "mindspore", range(1, 3))
    code = (
        "import os, sys\n"
        "from tensorboard import program\n"
        "board = program.TensorBoard()\n"
        "os.chdir(os.path.dirname(sys.argv[1]))\n"
        "board.configure(logdir=os.path.basename(sys.argv[1]), port=0, reload_interval=1, load_fast='false')\n"
        "print(board.launch(), flush=True)\n"
        "print(board.flags.logdir, flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(board.logdir)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            client = TensorBoardClient(process.stdout.readline().strip().rstrip("/"))
            assert process.stdout.readline() == "logs\n"
            wait_steps(client, "ms", range(1, 3))
        finally:
            process.kill()


# --- what it cannot do


def test_without_a_place_to_write_there_is_one_warning(board: Board) -> None:
    put(board.logdir.parent / "file", b"")
    write(board.logdir / "tf", "tensorboard", range(1, 3))
    write(board.logdir / "ms", "mindspore", range(1, 3))
    client = board.start(True, "--mindspore_cache_dir", str(board.logdir.parent / "file" / "cache"))
    wait_runs(client, "tf")
    told = [line for line in lines(board.log(1)) if "ms_summary_bridge" in line]
    assert len(told) == 1
    assert "no place for converted files" in told[0]


def test_damaged_files_are_named_on_the_terminal(board: Board) -> None:
    write(board.logdir / "tf", "tensorboard", range(1, 3))
    path = write(board.logdir / "bad", "mindspore", range(1, 6))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    client = board.start(False)
    wait_runs(client, "tf", "bad")
    wait_for(lambda: f"{path}: damaged" in board.log(1).read_text(), "the file is not named")


def make_flags(*arguments: str) -> tuple[Any, Any]:
    from ms_summary_bridge.tensorboard_plugin.loader import MindSporeLoader

    parser = argparse.ArgumentParser()
    for name in ("logdir", "logdir_spec", "db", "grpc_data_provider"):
        parser.add_argument(f"--{name}", default="")
    for name in ("inspect", "version_tb"):
        parser.add_argument(f"--{name}", action="store_true")
    loader = MindSporeLoader()
    loader.define_flags(parser)
    flags = parser.parse_args(arguments)
    before = dict(vars(flags))
    loader.fix_flags(flags)
    return before, vars(flags)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--logdir_spec", "a:/logs,b:/other", "--inspect"],
        ["--logdir_spec", "a:/logs,b:/other", "--mindspore", "off"],
        ["--logdir_spec", "/logs"],
        ["--logdir_spec", "a:/logs,a:/other"],
        ["--logdir_spec", "a:/logs,a/b:/other"],
        ["--logdir_spec", "a:/logs,../b:/other"],
        ["--logdir_spec", "a:s3://bucket/logs"],
        ["--logdir_spec", "a:/"],
        [],
        ["--logdir", "s3://bucket/logs"],
        ["--logdir", "gs://bucket/logs"],
        ["--logdir", __file__],
        ["--logdir", "/logs", "--inspect"],
        ["--logdir", "/logs", "--version_tb"],
        ["--logdir", "/logs", "--mindspore", "off"],
        ["--grpc_data_provider", "localhost:1", "--logdir", "/logs"],
    ],
)
def test_other_ways_to_start_tensorboard_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before, after = make_flags(*arguments)
    assert after == before
    assert list(tmp_path.iterdir()) == []


@both_loaders
def test_c17_runs_of_a_logdir_spec_have_the_names_it_gives(board: Board, load_fast: bool) -> None:
    write(board.logdir / "ms" / "r1", "mindspore", range(3))
    grows = write(board.logdir / "ms" / "r2" / "deep", "mindspore", range(5))
    write(board.logdir / "tf", "tensorboard", range(4))
    spec = f"one:{board.logdir}/ms/r1,team/two:{board.logdir}/ms/r2,tf:{board.logdir}/tf,later:{board.logdir}/later"
    client = board.start(load_fast, "--logdir_spec", spec)
    wait_runs(client, "one", "team/two/deep", "tf")
    wait_steps(client, "one", range(3))
    append(grows, "mindspore", range(5, 9))
    wait_steps(client, "team/two/deep", range(9))
    write(board.logdir / "later", "mindspore", range(2))
    wait_steps(client, "later", range(2))
    links = wait_links(client, "later", "one", "team/two/deep", "tf")
    assert links == {name: [name] for name in links}
    assert client.get_json("data/environment")["data_location"] == spec


def test_c17_a_logdir_spec_that_cannot_be_shown_says_what_to_do(board: Board) -> None:
    write(board.logdir / "ms", "mindspore", range(3))
    write(board.logdir / "tf", "tensorboard", range(4))
    client = board.start(False, "--logdir_spec", f"{board.logdir}/ms,tf:{board.logdir}/tf")
    wait_runs(client, "tf/.")  # as TensorBoard itself names it
    said = [line for line in board.log(1).read_text().splitlines() if "ms_summary_bridge" in line]
    (line,) = said
    assert f"'{board.logdir}/ms' has no name: write NAME:{board.logdir}/ms" in line
    assert "--logdir" in line


def test_c17_behind_a_prefix_runs_and_page_are_below_it(board: Board) -> None:
    write(board.logdir / "ms", "mindspore", range(3))
    client = board.start(True, "--path_prefix", "/team/tb")
    assert client.url.endswith("/team/tb")
    wait_steps(client, "ms", range(3))
    client.wait_json("data/plugin/mindspore/runs", lambda answer: [row["name"] for row in answer["rows"]] == ["ms"])
    page = client.get_json("data/plugins_listing")["mindspore"]["loading_mechanism"]["module_path"]
    assert b"export" in client.get(page.removeprefix("/team/tb"))


@pytest.mark.parametrize("spelled", ["logs", "./logs/", "link", "not/yet/there"])
def test_a_directory_is_found_however_it_is_spelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelled: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs").mkdir()
    (tmp_path / "link").symlink_to("logs")
    _, flags = make_flags("--logdir", spelled)
    assert Path(flags["logdir"]).parents[2] == tmp_path / "cache" / "ms_summary_bridge"
    assert os.readlink(flags["logdir"]) == os.path.normpath(tmp_path / spelled)


@both_loaders
def test_a_run_has_the_name_of_its_directory_whatever_number_that_ends_in(board: Board, load_fast: bool) -> None:
    expected: dict[str, int] = {}  # how many steps by name; no two ranks have as many

    def train(given: str, rank: int, ranks: int, name: str) -> None:
        directory = Path(rank_directory(str(board.logdir / given), rank, ranks))
        put(directory / mindspore_name(rank=rank), build_file("mindspore", range(1, 3 + rank)))
        expected[name] = 2 + rank

    train("one/exp0", 0, 1, "one/exp0")
    train("one/exp1", 0, 1, "one/exp1")
    for rank in range(3):  # each rank is given a directory of its own
        train(f"own/exp{rank}", rank, 3, f"own/exp{rank}")
    for rank in range(3):  # all are given the same one, which one of them takes for its own
        train("same/exp1", rank, 3, "same/exp1" if rank == 1 else f"same/exp1/rank_{rank}")
    for rank in range(3):
        train("same/exp", rank, 3, f"same/exp/rank_{rank}")
    client = board.start(load_fast)
    wait_runs(client, *expected)
    for name, steps in expected.items():
        wait_steps(client, name, range(1, steps + 1))
    links = wait_links(client, *expected)
    assert sorted(name for of_run in links.values() for name in of_run) == sorted(expected), "each rank has its name"
    assert links.keys() == {"one/exp0", "one/exp1", "own/exp0", "own/exp1", "own/exp2", "same/exp", "same/exp1"}
    assert links["same/exp1"] == ["same/exp1/rank_0", "same/exp1", "same/exp1/rank_2"], "by rank"
