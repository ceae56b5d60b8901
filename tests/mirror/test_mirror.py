"""The mirror of a logdir: what TensorBoard finds at its link, after each round."""

from __future__ import annotations

import argparse
import ast
import contextlib
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import psutil
import pytest

from ms_summary_bridge.convert.destination import locked
from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.errors import LogdirError
from ms_summary_bridge.events import Event, Summary
from ms_summary_bridge.files.event_file import EventFileReader
from ms_summary_bridge.files.file_names import TENSORBOARD
from ms_summary_bridge.mirror import home as home_module
from ms_summary_bridge.mirror.home import Home, clean, open_home, user_directory
from ms_summary_bridge.mirror.mirror import Mirror
from ms_summary_bridge.mirror.process import MirrorProcess
from ms_summary_bridge.runs.archive import make_decoder
from ms_summary_bridge.runs.report import Report
from ms_summary_bridge.tensorboard_plugin.logdir_spec import link_directories
from ms_summary_bridge.tensorboard_plugin.run_collector import RunCollector
from tests.conftest import TrainSmall
from tests.eventually import wait_for
from tests.runs.test_logdir import in_unprivileged_child, make_odd_tree
from tests.scripted import START, build_file, mindspore_name, put, tensorboard_name

PACKAGE = Path(home_module.__file__).parent.parent
LIMIT = 1 << 30
OLD = START + 100  # long ago, so that a file is not given time to settle


def write(path: Path, file_format: str, steps: range, *, writer: str = "", modified: float = OLD) -> Path:
    put(path, build_file(file_format, steps, writer=writer))
    os.utime(path, (modified, modified))
    return path


def mindspore(directory: Path, steps: range, *, seconds: int = START, rank: int = 0, modified: float = OLD) -> Path:
    return write(directory / mindspore_name(seconds, rank), "mindspore", steps, modified=modified)


def tensorboard(directory: Path, steps: range, *, seconds: int = START, writer: str = "") -> Path:
    return write(directory / tensorboard_name(seconds), "tensorboard", steps, writer=writer)


class Followed:
    """A mirror in this process, whose rounds are asked for."""

    def __init__(self, source: Path, cache: Path, limit: int = LIMIT) -> None:
        self.source = source
        self.cache = cache
        self.limit = limit
        self.home = open_home(str(source), str(cache))
        self.warnings: list[str] = []
        self.again()

    def again(self, **options: Any) -> None:
        """Starts over, as another process would."""
        self.mirror = Mirror(self.home, TENSORBOARD, self.limit, self.warnings.append, **options)

    def rounds(self) -> dict[str, list[int]]:
        """Goes on until nothing is new; returns the steps of each run as TensorBoard finds them at the link."""
        for _ in range(5):
            if not self.mirror.round():
                break
        return read_runs(Path(self.home.logdir))


def read_runs(logdir: Path) -> dict[str, list[int]]:
    """Returns the steps of each run below a logdir: a directory with files that TensorBoard reads, in their order."""
    runs: dict[str, list[int]] = {}
    for directory, _, names in os.walk(logdir, followlinks=True):
        for name in sorted(names):
            if "tfevents" in name:
                with EventFileReader(os.path.join(directory, name), make_decoder("tensorboard")) as reader:
                    steps = [e.step for e in reader if isinstance(e, Event) and isinstance(e.content, Summary)]
                runs.setdefault(os.path.relpath(directory, logdir), []).extend(steps)
    return runs


@pytest.fixture
def followed(tmp_path: Path) -> Followed:
    source = tmp_path / "logs"
    source.mkdir()
    return Followed(source, tmp_path / "cache")


# --- what is seen


def test_without_a_mindspore_file_the_link_is_the_logdir_itself(followed: Followed) -> None:
    tensorboard(followed.source / "tf", range(1, 3))
    assert followed.rounds() == {"tf": [1, 2]}
    assert os.readlink(followed.home.logdir) == str(followed.source)
    assert sorted(os.listdir(followed.home.path)) == ["logdir", "source", "used"]
    assert followed.warnings == []


def test_runs_keep_their_names_and_tensorflows_files_are_the_files_themselves(followed: Followed) -> None:
    mindspore(followed.source / "a" / "ms", range(1, 4))
    beside = tensorboard(followed.source / "a" / "tf", range(1, 3))
    tensorboard(followed.source / "b" / "c" / "tf", range(1, 3))
    put(followed.source / "a" / "tf" / "plugins" / "profile" / "trace.pb", b"x")
    assert followed.rounds() == {"a/ms": [1, 2, 3], "a/tf": [1, 2], "b/c/tf": [1, 2]}
    logdir = Path(followed.home.logdir)
    assert (logdir / "a" / "tf" / beside.name).samefile(beside)
    assert (logdir / "a" / "tf").samefile(beside.parent), "one link: what comes in it is there at once"
    assert (logdir / "b").samefile(followed.source / "b")
    assert sorted(followed.source.rglob("*tfevents*")) == sorted([beside, *(followed.source / "b").rglob("*tfevents*")])


def test_what_is_added_and_removed_is_followed(followed: Followed) -> None:
    run = mindspore(followed.source / "ms", range(1, 3))
    assert followed.rounds() == {"ms": [1, 2]}
    first = os.readlink(Path(followed.home.logdir) / "ms")

    write(run, "mindspore", range(1, 5), modified=OLD + 1)
    mindspore(followed.source / "later", range(1, 2))
    tensorboard(followed.source / "tf", range(1, 2))
    mindspore(followed.source, range(1, 2))
    assert followed.rounds() == {"ms": [1, 2, 3, 4], "later": [1], "tf": [1], ".": [1]}
    assert os.readlink(Path(followed.home.logdir) / "ms") == first

    shutil.rmtree(followed.source / "ms")
    shutil.rmtree(followed.source / "tf")
    assert followed.rounds() == {"later": [1], ".": [1]}
    mindspore(followed.source / "ms", range(7, 9))
    assert followed.rounds() == {"ms": [7, 8], "later": [1], ".": [1]}, "nothing of the run that had the name"

    for path in (*followed.source.glob("*/*"), *followed.source.glob("*summary*")):
        path.unlink()
    assert followed.rounds() == {}
    assert os.readlink(followed.home.logdir) == str(followed.source)
    assert os.listdir(followed.home.nodes) == []
    assert followed.warnings == []


def test_a_file_that_is_gone_takes_its_points_with_it(followed: Followed) -> None:
    gone = mindspore(followed.source / "ms", range(1, 3))
    mindspore(followed.source / "ms", range(5, 7), seconds=START + 10)
    assert followed.rounds() == {"ms": [1, 2, 5, 6]}
    gone.unlink()
    assert followed.rounds() == {"ms": [5, 6]}


def test_a_logdir_that_is_missing_is_waited_for_and_one_that_vanishes_comes_back(followed: Followed) -> None:
    followed.source.rmdir()
    assert followed.rounds() == {}
    mindspore(followed.source / "ms", range(1, 3))
    assert followed.rounds() == {"ms": [1, 2]}
    followed.source.rename(followed.source.with_name("away"))
    assert followed.rounds() == {}
    followed.source.with_name("away").rename(followed.source)
    assert followed.rounds() == {"ms": [1, 2]}


def test_a_run_that_the_callback_wrote_is_one_run_and_read_from_its_own_file(followed: Followed) -> None:
    mindspore(followed.source / "run", range(1, 4))
    live = tensorboard(followed.source / "run", range(1, 4), writer="ms_summary_bridge/live")
    mindspore(followed.source / "run", range(4, 6), seconds=START + 1)  # its second file, of the same training
    assert followed.rounds() == {"run": [1, 2, 3]}
    assert os.readlink(followed.home.logdir) == str(followed.source)

    # The training goes on without the callback: from now on MindSpore's files know more.
    resumed = mindspore(followed.source / "run", range(6, 8), seconds=START + 900)
    assert followed.rounds() == {"run": [1, 2, 3, 4, 5, 6, 7]}
    assert not (Path(followed.home.logdir) / "run" / live.name).exists()
    resumed.unlink()
    assert followed.rounds() == {"run": [1, 2, 3]}


def test_what_the_callback_wrote_in_a_training_needs_no_conversion(followed: Followed, train_small: TrainSmall) -> None:
    train_small(followed.source / "job", "--callback", "bridge", "--epochs", "1")
    seen = followed.rounds()
    assert seen.keys() == {"job"}
    assert {*range(1, 9)} <= set(seen["job"])
    assert os.readlink(followed.home.logdir) == str(followed.source)
    assert not list(Path(followed.home.path).glob("outputs/*"))


def test_the_callback_is_given_time_to_make_both_files(followed: Followed) -> None:
    mindspore(followed.source / "run", range(1, 3), modified=time.time())
    followed.mirror.round()
    assert read_runs(Path(followed.home.logdir)) == {}
    tensorboard(followed.source / "run", range(1, 3), writer="ms_summary_bridge/live")
    assert followed.rounds() == {"run": [1, 2]}
    assert not os.path.lexists(followed.home.nodes), "nothing was converted"


def test_somebody_elses_file_beside_keeps_the_run_for_itself(followed: Followed) -> None:
    # TensorBoard's slow loader follows the last file of a run alone, so one run cannot hold two files that grow.
    mindspore(followed.source / "run", range(1, 4))
    tensorboard(followed.source / "run", range(1, 3))
    assert followed.rounds() == {"run": [1, 2], "run/mindspore": [1, 2, 3]}


def test_ranks_are_runs_below_their_directory(followed: Followed) -> None:
    mindspore(followed.source / "job", range(1, 4), rank=0)
    mindspore(followed.source / "job", range(1, 3), rank=1)
    tensorboard(followed.source / "job" / "rank_1", range(8, 9))
    assert followed.rounds() == {"job/rank_0": [1, 2, 3], "job/rank_1": [8], "job/rank_1_2": [1, 2]}


def test_an_odd_tree_is_shown_as_far_as_it_can_be(tmp_path: Path) -> None:
    make_odd_tree(tmp_path / "odd")
    followed = Followed(tmp_path / "odd", tmp_path / "cache")
    loop = tmp_path / "odd" / "loop"
    if loop.is_symlink():
        loop.unlink()  # os.walk of this test goes round and round in it, as TensorBoard's slow loader does
    seen = followed.rounds()
    assert {name: steps for name, steps in seen.items() if steps} == {
        name: steps for name, steps in converted(tmp_path / "odd", tmp_path / "direct").items() if steps
    }


def converted(source: Path, destination: Path) -> dict[str, list[int]]:
    """Returns what a conversion in one go, and TensorBoard's own files, show."""
    convert_logdir(str(source), str(destination), to="tensorboard")
    return {**read_runs(source), **read_runs(destination)}


# --- nothing of it can fail


def test_damage_is_said_once_and_the_rest_is_shown(followed: Followed) -> None:
    path = mindspore(followed.source / "bad", range(1, 6))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    put(path, bytes(data))
    os.utime(path, (OLD, OLD))
    put(followed.source / "garbage" / mindspore_name(), b"nothing of the kind" * 10)
    mindspore(followed.source / "good", range(1, 3))
    seen = followed.rounds()
    assert seen.keys() == {"bad", "good"}
    assert 0 < len(seen["bad"]) < 5
    followed.again()
    followed.rounds()
    assert any("bad" in line and "damaged" in line for line in followed.warnings)
    assert any("garbage" in line for line in followed.warnings)
    assert not any("views" in line for line in followed.warnings), "files are named as the user knows them"


def test_a_file_that_stayed_empty_is_named_once_and_one_that_was_just_begun_is_not(followed: Followed) -> None:
    stayed = put(followed.source / "killed" / mindspore_name(), b"")
    os.utime(stayed, (OLD, OLD))
    put(followed.source / "begun" / mindspore_name(), b"")
    mindspore(followed.source / "good", range(1, 3))
    assert followed.rounds() == {"good": [1, 2]}
    followed.rounds()
    assert followed.warnings == [f"{stayed}: zero bytes"]


def test_what_lies_in_the_cache_may_be_damaged(followed: Followed) -> None:
    run = mindspore(followed.source / "ms", range(1, 4))
    followed.rounds()
    for last, damage in enumerate((break_state, cut_outputs, fill_outputs), start=5):
        damage(followed)
        write(run, "mindspore", range(1, last), modified=time.time() - 5000)
        followed.again()
        assert followed.rounds() == {"ms": list(range(1, last))}
    assert followed.warnings == []


def test_what_another_conversion_is_writing_is_left_alone(followed: Followed) -> None:
    """Its lock is no reason to throw away what is there: it is shown, and gone on with once the lock is free."""
    run = mindspore(followed.source / "ms", range(1, 4))
    mindspore(followed.source / "other", range(1, 3))
    followed.rounds()
    (view,) = {path.parent for path in Path(followed.home.path).glob("views/*/*") if os.readlink(path) == str(run)}
    output = view.parents[1] / "outputs" / view.name
    with locked(str(output)):
        before = {path: path.read_bytes() for path in output.iterdir()}
        write(run, "mindspore", range(1, 6), modified=time.time() - 5000)
        mindspore(followed.source / "other", range(1, 7))
        followed.again()
        assert followed.rounds() == {"ms": [1, 2, 3], "other": [1, 2, 3, 4, 5, 6]}
        assert {path: path.read_bytes() for path in output.iterdir()} == before
    assert len(followed.warnings) == 1
    assert "another conversion is writing there" in followed.warnings[0]
    followed.again()
    assert followed.rounds()["ms"] == [1, 2, 3, 4, 5]


def test_a_conversion_with_other_options_or_of_another_version_is_made_anew(followed: Followed) -> None:
    run = mindspore(followed.source / "ms", range(1, 4))
    followed.rounds()
    for last, (old, new) in enumerate(((b'"version": 2', b'"version": 99'), (b'"mark"', b'"latest"')), start=5):
        for path in Path(followed.home.path).glob("outputs/*/.ms_summary_bridge.json"):
            assert old in path.read_bytes()
            path.write_bytes(path.read_bytes().replace(old, new))
        write(run, "mindspore", range(1, last), modified=time.time() - 5000)
        followed.again()
        assert followed.rounds() == {"ms": list(range(1, last))}
    assert followed.warnings == []


def test_a_run_whose_output_cannot_be_named_costs_no_other(followed: Followed) -> None:
    """Directories of 255 bytes, and one whose name is taken by a file of TensorBoard's beside it."""
    long = "x" * 255
    mindspore(followed.source / long, range(1, 4))
    tensorboard(followed.source / long, range(7, 9))
    for rank in (0, 1):
        mindspore(followed.source / "ranks" / ("文" * 85), range(1, 3), rank=rank)
    mindspore(followed.source / "good", range(1, 3))
    seen = followed.rounds()
    assert seen[long] == [7, 8]
    assert seen[f"{long}/mindspore"] == [1, 2, 3]
    assert seen["good"] == [1, 2]
    assert sum(name.startswith("ranks/") for name in seen) == 2
    assert followed.warnings == []


def break_state(followed: Followed) -> None:
    for path in Path(followed.home.path).glob("outputs/*/.ms_summary_bridge.json"):
        path.write_bytes(b"{")


def cut_outputs(followed: Followed) -> None:
    for path in Path(followed.home.path).glob("outputs/*/*tfevents*"):
        path.write_bytes(path.read_bytes()[:40])


def fill_outputs(followed: Followed) -> None:
    for path in Path(followed.home.path).glob("outputs/*/*tfevents*"):
        path.write_bytes(b"something else" * 100)


def test_a_read_only_logdir_and_directories_that_may_not_be_read() -> None:
    def check() -> None:
        with tempfile.TemporaryDirectory() as directory:
            source = Path(directory) / "logs"
            mindspore(source / "ms", range(1, 3))
            mindspore(source / "closed", range(1, 3))
            secret = mindspore(source / "secret", range(1, 3))
            secret.chmod(0)
            (source / "closed").chmod(0)
            (source / "ms").chmod(0o500)
            source.chmod(0o500)
            try:
                followed = Followed(source, Path(directory) / "cache")
                assert followed.rounds() == {"ms": [1, 2]}
                closed = f"{source / 'closed'}: cannot be listed: Permission denied"
                unreadable = f"{secret}: cannot be opened: Permission denied"
                assert sorted(followed.warnings) == [closed, unreadable]
                assert followed.rounds() == {"ms": [1, 2]}
                assert sorted(followed.warnings) == [closed, unreadable], "once"
                collector = RunCollector(str(source), followed.warnings.append)
                collector.look()
                assert collector.wait(60)
                told = collector.describe_all()
                assert told["problems"] == [closed]
                health = {row["name"]: row["health"]["problems"] for row in map(msgspec.json.decode, told["rows"])}
                said = f"{secret}: cannot be read: Permission denied"
                assert health == {"ms": [], "secret": [said]}, "what is wrong with a run stands in its row"
            finally:
                for path in (source, source / "ms", source / "closed"):
                    path.chmod(0o700)

    in_unprivileged_child(check)


def test_a_cache_that_cannot_be_written_any_more_is_said_once() -> None:
    def check() -> None:
        with tempfile.TemporaryDirectory() as directory:
            source = Path(directory) / "logs"
            mindspore(source / "ms", range(1, 3))
            followed = Followed(source, Path(directory) / "cache")
            assert followed.rounds() == {"ms": [1, 2]}
            homes = [followed.home.path, followed.home.nodes, *Path(followed.home.nodes).iterdir()]
            for path in homes:
                os.chmod(path, 0o500)
            try:
                tensorboard(source / "tf", range(1, 2))
                followed.mirror.round()
                assert read_runs(Path(followed.home.logdir)) == {"ms": [1, 2]}
                followed.mirror.round()
                assert len(followed.warnings) == 1, followed.warnings
                assert "cannot be written" in followed.warnings[0]
            finally:
                for path in homes:
                    os.chmod(path, 0o700)
            assert followed.rounds() == {"ms": [1, 2], "tf": [1]}

    in_unprivileged_child(check)


def test_a_fault_of_ours_in_one_run_is_said_once_and_stays_there(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def convert(source: str, destination: str, **options: Any) -> Report:
        if os.path.realpath(os.path.join(source, os.listdir(source)[0])).startswith(str(followed.source / "bad")):
            raise ZeroDivisionError("a fault")
        return convert_logdir(source, destination, **options)

    monkeypatch.setattr("ms_summary_bridge.mirror.directory.convert_logdir", convert)
    followed.again(retry_secs=0.0)
    mindspore(followed.source / "bad", range(1, 3))
    mindspore(followed.source / "good", range(1, 3))
    assert followed.rounds() == {"good": [1, 2]}
    assert followed.warnings == [f"{followed.source / 'bad'}: cannot be followed: ZeroDivisionError: a fault"]
    monkeypatch.undo()
    assert followed.rounds() == {"bad": [1, 2], "good": [1, 2]}, "it is tried again"


def test_a_full_disk_leaves_what_is_there_and_goes_on_when_there_is_space() -> None:
    def check() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        with tempfile.TemporaryDirectory() as directory:
            source = Path(directory) / "logs"
            large = mindspore(source / "large", range(1, 10))
            followed = Followed(source, Path(directory) / "cache")
            assert followed.rounds() == {"large": list(range(1, 10))}
            write(large, "mindspore", range(1, 5000), modified=OLD + 1)
            mindspore(source / "small", range(1, 3))
            none = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, none[1]))  # a file has no space beyond that
            seen = followed.rounds()
            assert seen["small"] == [1, 2]
            assert seen["large"][:9] == list(range(1, 10))
            assert len(seen["large"]) < 4999
            (line,) = followed.warnings
            assert "cannot be written: File too large" in line

            resource.setrlimit(resource.RLIMIT_FSIZE, none)
            os.utime(large, (OLD + 2, OLD + 2))
            assert followed.rounds()["large"] == list(range(1, 5000))
            assert len(followed.warnings) == 1

    in_unprivileged_child(check)


# --- the cache


def test_each_logdir_has_one_place_and_a_link_is_another_logdir(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "link").symlink_to("logs")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    one, same, other = open_home("logs"), open_home(str(tmp_path / "logs")), open_home("link")
    assert one.path == same.path != other.path
    assert Path(one.path).parent == tmp_path / "cache" / "ms_summary_bridge" / "tensorboard"
    assert os.stat(one.path).st_mode & 0o777 == 0o700
    assert other.source == str(tmp_path / "link"), "it may lead elsewhere tomorrow"


@pytest.mark.parametrize("value", ["", "relative", None])
def test_a_base_directory_of_the_user_that_is_not_absolute_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    own = tmp_path / "home" / ".cache" / "ms_summary_bridge"
    assert Path(open_home(str(tmp_path / "logs")).path).parent == own / "tensorboard"
    assert Path(open_home(str(tmp_path / "logs"), viewer="mindinsight").path).parent == own / "mindinsight"
    assert user_directory("XDG_DATA_HOME", "~/.local/share") == str(tmp_path / "home" / ".local" / "share")


def test_one_place_decides_on_the_base_directories_of_the_user() -> None:
    asked: list[tuple[str, str]] = []
    named: list[str] = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "user_directory":
                asked.append((path.name, ast.literal_eval(node.args[0])))
            elif isinstance(node, ast.Constant) and re.fullmatch(r"XDG_\w+", str(node.value)):
                named.append(str(node.value))
    assert sorted(asked) == [("environment.py", "XDG_DATA_HOME"), ("home.py", "XDG_CACHE_HOME")]
    assert sorted(named) == sorted(name for _, name in asked), "and nowhere else is such a variable read"


def test_a_place_below_the_logdir_is_never_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "logs" / "cache"))
    monkeypatch.setattr(home_module.tempfile, "gettempdir", lambda: str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    assert open_home(str(tmp_path / "logs")).path.startswith(str(tmp_path / "tmp"))
    with pytest.raises(LogdirError, match=r"no place .*is below the logdir.*is below the logdir"):
        open_home(str(tmp_path))
    with pytest.raises(LogdirError, match="is below the logdir"):
        open_home("/", str(tmp_path / "cache"))


def test_the_temporary_directory_of_somebody_else_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "file", b"")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(home_module.tempfile, "gettempdir", lambda: str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    shared = tmp_path / "tmp" / f"ms_summary_bridge-{os.getuid()}"
    (tmp_path / "elsewhere").mkdir()
    shared.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LogdirError, match="belongs to somebody else"):
        open_home(str(tmp_path / "logs"))
    shared.unlink()
    assert open_home(str(tmp_path / "logs")).path.startswith(str(shared))


def test_cleaning_spares_what_is_in_use_and_what_is_not_ours(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    used = open_home(str(tmp_path / "used"), str(cache))
    put(cache / "notes" / "used", b"somebody else's")
    put(cache / "0123456789abcdef" / "used", b"somebody else's")
    for name in ("large", "small"):
        (tmp_path / name).mkdir()
    for name in ("old", "gone", "large", "small"):  # as processes that have ended leave them
        code = "import sys; from ms_summary_bridge.mirror.home import open_home; print(open_home(*sys.argv[1:]).path)"
        command = [sys.executable, "-c", code, str(tmp_path / name), str(cache)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        path = Path(done.stdout.strip())
        put(path / "outputs" / "run" / "events", b"x" * {"old": 10, "gone": 10, "large": 5000, "small": 100}[name])
        now = time.time() - {"old": 40 * 24 * 3600, "gone": 2 * 24 * 3600, "large": 2000, "small": 1000}[name]
        os.utime(path / "used", (now, now))
    mine = open_home(str(tmp_path / "mine"), str(cache))
    before = set(os.listdir(cache))
    assert clean(mine, 10_000) == 5100, "those are gone that nobody has used for long"
    assert clean(mine, 1000) == 100, "and the oldest, to keep the limit"
    assert len(before - set(os.listdir(cache))) == 3
    assert {"notes", "0123456789abcdef", Path(used.path).name, Path(mine.path).name} <= set(os.listdir(cache))


def test_a_full_cache_holds_the_newest_runs(tmp_path: Path) -> None:
    source = tmp_path / "logs"
    for number in range(4):
        mindspore(source / f"run{number}", range(1, 1000), modified=OLD + number)
    size = (source / "run0" / mindspore_name()).stat().st_size
    followed = Followed(source, tmp_path / "cache", limit=int(size * 3.2))
    assert followed.rounds().keys() == {"run1", "run2", "run3"}
    (line,) = followed.warnings
    assert line.startswith("run0: is not followed")
    assert "--mindspore_cache_gb" in line
    mindspore(source / "run4", range(1, 1000), modified=OLD + 4)
    assert followed.rounds().keys() == {"run2", "run3", "run4"}
    assert sum(f.stat().st_size for f in Path(followed.home.path).glob("outputs/*/*tfevents*")) <= size * 3.2


def test_what_was_removed_for_a_newer_run_comes_back(tmp_path: Path) -> None:
    old = mindspore(tmp_path / "logs" / "old", range(1, 1000))
    followed = Followed(tmp_path / "logs", tmp_path / "cache", limit=int(old.stat().st_size * 1.5))
    followed.again(space_secs=0.0)  # it looks for space again at once
    assert followed.rounds().keys() == {"old"}
    new = mindspore(tmp_path / "logs" / "new", range(1, 1000), modified=OLD + 1)
    assert followed.rounds().keys() == {"new"}
    new.unlink()
    assert followed.rounds() == {"old": list(range(1, 1000))}, "space came, though no file of it has changed"

    mindspore(tmp_path / "logs" / "new", range(1, 1000), modified=OLD + 1)
    mindspore(tmp_path / "logs" / "old", range(1, 3))
    followed.again(space_secs=0.0)
    assert followed.mirror.round()
    seen = read_runs(Path(followed.home.logdir))
    assert seen["old"] == [1, 2], "removed and converted in the same round, since it is smaller now"
    assert seen.keys() == {"old", "new"}


def test_a_disk_that_is_almost_full_is_left_alone(followed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    mindspore(followed.source / "ms", range(1, 3))
    followed.again(space_secs=0.0)  # it looks for space again at once
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: argparse.Namespace(free=1 << 20))
        assert followed.rounds() == {}
    assert "full" in followed.warnings[0]
    assert followed.rounds() == {"ms": [1, 2]}, "space came, though no file has changed"


def test_what_an_earlier_process_left_is_shown_at_once_and_tidied(followed: Followed) -> None:
    mindspore(followed.source / "stays", range(1, 3))
    mindspore(followed.source / "goes", range(1, 3))
    followed.rounds()
    shutil.rmtree(followed.source / "goes")
    followed.again()
    assert read_runs(Path(followed.home.logdir)).keys() == {"stays", "goes"}, "nobody has looked yet"
    assert followed.rounds() == {"stays": [1, 2]}
    assert len(followed.home.kept()) == 2


# --- the process


def test_a_child_that_cannot_work_gives_the_logdir_back(tmp_path: Path) -> None:
    source = tmp_path / "logs"
    mindspore(source / "ms", range(1, 3))
    followed = Followed(source, tmp_path / "cache")
    followed.rounds()
    assert os.readlink(followed.home.logdir) != str(source)
    warnings: list[str] = []
    no_number: Any = "none"

    def sleep(secs: float) -> None:
        pass

    thread = MirrorProcess(followed.home, TENSORBOARD, no_number, warnings.append, sleep=sleep).thread
    thread.join(60)
    assert not thread.is_alive()
    (line,) = warnings
    assert "not followed any more" in line
    assert "ValueError" in line
    assert os.readlink(followed.home.logdir) == str(source)


def test_a_child_that_cannot_be_made_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the system's own module raises: a thread that ended of it would leave a viewer empty, without a word."""

    def refuse(*command: Any, **options: Any) -> NoReturn:
        raise ValueError("no such flag here")

    source = tmp_path / "logs"
    mindspore(source / "ms", range(1, 3))
    followed = Followed(source, tmp_path / "cache")
    monkeypatch.setattr(subprocess, "Popen", refuse)
    warnings: list[str] = []
    thread = MirrorProcess(followed.home, TENSORBOARD, LIMIT, warnings.append, sleep=lambda secs: None).thread
    thread.join(60)
    assert not thread.is_alive()
    assert warnings == [f"runs below {source} are not followed any more: ValueError('no such flag here')"]


def test_a_child_that_is_killed_is_started_again(tmp_path: Path) -> None:
    source = tmp_path / "logs"
    mindspore(source / "ms", range(1, 3))
    code = (
        "import sys, time\n"
        "from ms_summary_bridge.mirror.home import open_home\n"
        "from ms_summary_bridge.mirror.process import MirrorProcess\n"
        "home = open_home(sys.argv[1], sys.argv[2])\n"
        "MirrorProcess(home, 'tensorboard', 1 << 30, lambda line: print(line, flush=True))\n"
        "print(home.path, flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(source), str(tmp_path / "cache")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            home = Path(process.stdout.readline().strip())
            logdir = home / "logdir"
            wait_for(lambda: read_runs(logdir) == {"ms": [1, 2]})
            (child,) = psutil.Process(process.pid).children()
            child.kill()
            wait_for(lambda: not child.is_running() and psutil.Process(process.pid).children())
            mindspore(source / "later", range(1, 3))
            wait_for(lambda: read_runs(logdir) == {"ms": [1, 2], "later": [1, 2]})

            shutil.rmtree(home)  # somebody clears the cache
            wait_for(lambda: read_runs(logdir) == {"ms": [1, 2], "later": [1, 2]})
            (second,) = psutil.Process(process.pid).children()
        finally:
            process.kill()
        wait_for(lambda: not second.is_running())


def children_of(home: Home) -> list[psutil.Process]:
    """Returns the processes that this one has started for a mirror."""
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):  # one that another test started, and that ends now
            if home.path in child.cmdline():
                found.append(child)
    return found


def test_a_child_that_is_stopped_is_gone_and_says_nothing(followed: Followed) -> None:
    mindspore(followed.source / "ms", range(1, 3))
    process = MirrorProcess(followed.home, TENSORBOARD, LIMIT, followed.warnings.append)
    wait_for(lambda: read_runs(Path(followed.home.logdir)) == {"ms": [1, 2]})
    (child,) = children_of(followed.home)
    process.stop()
    assert not process.thread.is_alive()
    assert not child.is_running()
    assert followed.warnings == []
    MirrorProcess(followed.home, TENSORBOARD, LIMIT, followed.warnings.append).stop()  # at once, before it has begun
    assert not children_of(followed.home)


def test_a_cache_is_for_its_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home" / "cache"))
    (tmp_path / "home").mkdir(mode=0o755)
    before = os.umask(0)
    try:
        home = open_home(str(tmp_path / "logs"))
        os.chmod(home.path, 0o777)  # as an older version or a copy may have left it
        assert open_home(str(tmp_path / "logs")).path == home.path
        (tmp_path / "one").mkdir()
        spec = link_directories(f"a/b:{tmp_path}/one", "")
    finally:
        os.umask(before)
    places = [Path(home.path), Path(spec)]
    places += [*Path(home.path).parents][:3]  # tensorboard, ms_summary_bridge, and the cache that was missing
    assert [oct(place.stat().st_mode & 0o777) for place in places] == ["0o700"] * 5, places
    assert (tmp_path / "home").stat().st_mode & 0o777 == 0o755
