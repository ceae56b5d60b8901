"""The files of checkpoints: which are kept, what a kill leaves, and how the next session goes on. Without MindSpore."""

from __future__ import annotations

import builtins
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ms_summary_bridge.errors import LogdirError, UsageError
from ms_summary_bridge.monitor.checkpoints.checkpoint_files import CheckpointFiles
from ms_summary_bridge.monitor.checkpoints.checkpoint_state import STATE_NAME, Mode, read_state
from ms_summary_bridge.monitor.checkpoints.checkpoint_value import LossWindow, mode_of
from tests.conftest import ROOT, TESTS
from tests.save_endlessly import LINES

KILLS = 50


def write(text: str) -> Callable[[str], None]:
    def write_it(path: str) -> None:
        Path(path).write_text(text)

    return write_it


class Killed(BaseException):
    """Stands for the end of the process at one place."""


def open_files(directory: Path, mode: Mode = "min", keep: int = 3, monitor: str = "loss") -> CheckpointFiles:
    def warn(message: str) -> None:
        raise AssertionError(message)

    return CheckpointFiles(str(directory), monitor=monitor, mode=mode, keep=keep, warn=warn)


def save(files: CheckpointFiles, step: int, value: float | None = None) -> None:
    files.save(step, write(f"step {step}"), value=value)


def names(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


def shown(directory: Path) -> tuple[int | None, list[int]]:
    """Returns the best step and the last ones, of files that hold what they should."""
    state = read_state(str(directory))
    assert state is not None
    for checkpoint in (state.best, *state.last):
        if checkpoint is not None:
            assert (directory / checkpoint.file).read_text() == f"step {checkpoint.step}"
    return None if state.best is None else state.best.step, [checkpoint.step for checkpoint in state.last]


# ------------------------------------------------------------------ which are kept


def test_the_best_and_the_last_are_kept(tmp_path: Path) -> None:
    files = open_files(tmp_path)
    for step, value in enumerate([3.0, 1.0, 2.0, 4.0, 1.5, 1.0], 1):
        save(files, step, value)
    assert shown(tmp_path) == (2, [4, 5, 6])  # an equal one is not better
    assert names(tmp_path) == [*(f"checkpoint_step_{step}.ckpt" for step in (2, 4, 5, 6)), STATE_NAME]


def test_more_can_be_better(tmp_path: Path) -> None:
    files = open_files(tmp_path, "max")
    for step, value in enumerate([0.3, 0.9, 0.5, 0.2, 0.1], 1):
        save(files, step, value)
    assert shown(tmp_path) == (2, [3, 4, 5])


@pytest.mark.parametrize("mode", ["min", "max"])
def test_what_is_not_finite_is_never_the_best(tmp_path: Path, mode: Mode) -> None:
    files = open_files(tmp_path, mode)
    for step, value in enumerate([math.nan, math.inf, -math.inf, None], 1):
        save(files, step, value)
    assert shown(tmp_path) == (None, [2, 3, 4])
    save(files, 5, 1.0)
    save(files, 6, math.nan)
    assert shown(tmp_path) == (5, [4, 5, 6])
    json.loads((tmp_path / STATE_NAME).read_text(), parse_constant=pytest.fail)


def test_without_best_there_are_only_the_last(tmp_path: Path) -> None:
    files = open_files(tmp_path, keep=1)
    for step in (1, 2):
        files.save(step, write(f"step {step}"), value=float(step), may_be_best=False)
    assert shown(tmp_path) == (None, [2])


def test_a_value_that_comes_after_the_save_is_only_noted(tmp_path: Path) -> None:
    files = open_files(tmp_path)
    save(files, 7)
    files.save(7, lambda path: pytest.fail("written again"), value=0.5)
    assert shown(tmp_path) == (7, [7])
    assert files.best is not None
    assert files.best.value == 0.5


# ------------------------------------------------------------------ the next session


def test_the_next_session_compares_with_the_best_before_it(tmp_path: Path) -> None:
    save(open_files(tmp_path), 10, 0.5)
    files = open_files(tmp_path)
    assert (files.best, files.last) == (files.last, files.best)
    assert not files.is_better(0.6)
    assert files.is_better(0.4)
    save(files, 20, 0.6)
    assert shown(tmp_path) == (10, [10, 20])


def test_a_session_that_begins_again_before_the_best_does_not_write_over_it(tmp_path: Path) -> None:
    save(open_files(tmp_path), 10, 0.5)
    files = open_files(tmp_path, keep=1)
    files.save(10, write("step 10"), value=0.9)
    assert files.last is not None
    assert (files.last.file, files.last.value) == ("checkpoint_step_10_2.ckpt", 0.9)
    assert files.best is not None
    assert (files.best.file, files.best.value) == ("checkpoint_step_10.ckpt", 0.5)
    assert shown(tmp_path) == (10, [10])


def test_another_monitor_is_not_compared_with(tmp_path: Path) -> None:
    save(open_files(tmp_path), 10, 0.5)
    said: list[str] = []
    files = CheckpointFiles(str(tmp_path), monitor="eval/accuracy", mode="max", keep=3, warn=said.append)
    assert said == ["the best checkpoint was chosen by loss (min): it is not compared with"]
    assert files.best is None
    save(files, 20, 0.1)
    assert shown(tmp_path) == (20, [10, 20])


def test_files_that_are_gone_or_cut_are_not_named(tmp_path: Path) -> None:
    files = open_files(tmp_path)
    for step, value in ((1, 1.0), (2, 2.0), (3, 3.0)):
        save(files, step, value)
    (tmp_path / "checkpoint_step_1.ckpt").unlink()
    (tmp_path / "checkpoint_step_3.ckpt").write_text("st")
    assert shown(tmp_path) == (None, [2])
    again = open_files(tmp_path)
    assert again.last is not None
    assert again.last.step == 2 or again.last.bytes == 2


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"monitor": "loss"}', b"\xff\xfe"])
def test_a_state_that_cannot_be_read_costs_only_what_was_the_best(tmp_path: Path, content: bytes) -> None:
    files = open_files(tmp_path)
    save(files, 1, 1.0)
    save(files, 2, 2.0)
    (tmp_path / STATE_NAME).write_bytes(content)
    with pytest.raises(LogdirError, match=r"checkpoints\.json cannot be read"):
        read_state(str(tmp_path))
    said: list[str] = []
    again = CheckpointFiles(str(tmp_path), monitor="loss", mode="min", keep=3, warn=said.append)
    (line,) = said
    assert "which one was the best is not known any more" in line
    assert again.last is not None
    assert (again.last.step, again.best) == (2, None)
    save(again, 3, 3.0)
    assert shown(tmp_path) == (3, [1, 2, 3])


def test_a_name_that_leads_elsewhere_is_none_of_ours(tmp_path: Path) -> None:
    directory = tmp_path / "inside"
    save(open_files(directory), 1, 1.0)
    outside = tmp_path / "checkpoint_step_1.ckpt"
    outside.write_text("step 1")
    state = directory / STATE_NAME
    state.write_text(state.read_text().replace('"checkpoint_step_1.ckpt"', '"../checkpoint_step_1.ckpt"'))
    assert shown(directory) == (None, [])


def test_what_others_keep_there_stays(tmp_path: Path) -> None:
    for name in ("notes.txt", "model.ckpt", "checkpoint_step_x.ckpt"):
        (tmp_path / name).write_text("mine")
    files = open_files(tmp_path, keep=1)
    for step in (1, 2, 3):
        save(files, step)
    assert {"notes.txt", "model.ckpt", "checkpoint_step_x.ckpt"} < set(names(tmp_path))


def test_there_is_nothing_where_nothing_was_saved(tmp_path: Path) -> None:
    assert read_state(str(tmp_path)) is None
    assert read_state(str(tmp_path / "none")) is None


# ------------------------------------------------------------------ a save that fails


def test_a_save_that_fails_leaves_everything_as_it_was(tmp_path: Path) -> None:
    files = open_files(tmp_path, keep=1)
    save(files, 1, 1.0)
    before = names(tmp_path)

    def fail(path: str) -> None:
        Path(path).write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        files.save(2, fail, value=0.5)
    assert names(tmp_path) == before
    assert shown(tmp_path) == (1, [1])
    save(files, 3, 0.4)
    assert shown(tmp_path) == (3, [3])


def test_a_directory_that_was_removed_is_made_again(tmp_path: Path) -> None:
    files = open_files(tmp_path / "checkpoints")
    save(files, 1, 1.0)
    shutil.rmtree(tmp_path / "checkpoints")
    save(files, 2, 5.0)
    assert shown(tmp_path / "checkpoints") == (2, [2])  # a best that is gone is compared with no more


def test_a_state_that_cannot_be_written_leaves_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = open_files(tmp_path, keep=1)
    save(files, 1, 1.0)
    replace = os.replace

    def full(source: str, target: str) -> None:
        if target.endswith(STATE_NAME):
            raise OSError(28, "No space left on device")
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(OSError, match="No space left"):
            save(files, 2, 0.5)
    assert shown(tmp_path) == (1, [1])
    save(files, 3, 0.7)
    assert shown(tmp_path) == (3, [3])
    assert names(tmp_path) == ["checkpoint_step_3.ckpt", STATE_NAME]


# ------------------------------------------------------------------ kills


OPERATIONS = ("open", "fsync", "replace", "stat", "lstat", "listdir", "remove")


def test_an_end_between_any_two_operations_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends before the n-th operation on the disk, for every n that a save has."""
    outcomes: list[int | None] = []
    for place in range(100):
        directory = tmp_path / str(place)
        files = open_files(directory, keep=2)
        for step, value in ((1, 0.1), (2, 0.3), (3, 0.2), (4, 0.4)):
            save(files, step, value)
        assert shown(directory) == (1, [3, 4])
        with monkeypatch.context() as patch:
            end_at(patch, place)
            try:
                files.save(5, write("step 5"), value=0.05)
                is_done = True
            except Killed:
                is_done = False
        best, last = shown(directory)
        assert (best, last) in ((1, [3, 4]), (5, [4, 5]))
        assert best == 5 or not is_done
        again = open_files(directory, keep=2)
        assert again.best is not None
        assert (again.best.step, again.best.value) == ((5, 0.05) if best == 5 else (1, 0.1))
        save(again, 6, 0.5)
        assert (shown(directory)[0], shown(directory)[1][-1]) == (best, 6)
        kept = {f"checkpoint_step_{step}.ckpt" for step in (best, *shown(directory)[1])}
        assert set(names(directory)) == {*kept, STATE_NAME}
        outcomes.append(best)
        if is_done:
            break
    assert is_done
    assert len(outcomes) > 10
    saved_from = outcomes.index(5)
    assert set(outcomes[:saved_from]) == {1}
    assert set(outcomes[saved_from:]) == {5}  # from one moment on, and for ever
    assert outcomes.count(1) > 3
    assert outcomes.count(5) > 3


def end_at(patch: pytest.MonkeyPatch, place: int) -> None:
    """Has the process end at one operation: that one and all behind it, such as those of a `finally`, do not happen."""
    left = [place]

    def ending(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if left[0] == 0:
                raise Killed
            left[0] -= 1
            return real(*arguments, **options)

        return call

    for name in OPERATIONS:
        patch.setattr(os, name, ending(getattr(os, name)))
    patch.setattr(builtins, "open", ending(open))


def test_killed_at_random_moments_there_is_always_a_best_and_a_last(tmp_path: Path) -> None:
    """A process that saves without pause is killed, again and again, and the next one goes on in its directory."""
    rng = random.Random(0)
    best: list[Any] | None = None  # as the sessions said it
    torn = 0
    for kill in range(KILLS):
        said = run_and_kill(tmp_path, str(kill), saves=rng.randint(0, 3), delay_secs=rng.random() * 0.01)
        assert said[0][0] == "start", said
        if best is not None:
            assert said[0][2] == best  # the restart knows the right best value
        for words in said:
            if words[0] == "done":
                best = [words[3], words[4]]
        state = read_state(str(tmp_path))
        last_said = said[-1]
        if state is None:
            assert best is None
            continue
        # A save that had begun may be done or not; one that was done is there.
        began = last_said[1:3] if last_said[0] == "begin" else None
        torn += began is not None
        found = [state.best.step, state.best.value] if state.best is not None else None
        possible = [best]
        if began is not None and (best is None or began[1] < best[1]):
            possible.append(began)
        assert found in possible
        best = found
        assert state.last
        for checkpoint in (state.best, *state.last):
            assert checkpoint is not None
            assert_whole(tmp_path / checkpoint.file, checkpoint.step)
    assert torn > KILLS // 4  # most kills fell into a save


@pytest.mark.mindspore
def test_checkpoints_that_mindspore_wrote_can_be_loaded_after_kills(tmp_path: Path) -> None:
    expected: list[int] = []
    for kill in range(4):
        said = run_and_kill(tmp_path, str(kill), "--mindspore", saves=kill + 1, delay_secs=0.002 * kill)
        assert said[0] == ["loaded", expected]
        state = read_state(str(tmp_path))
        assert state is not None
        assert state.best is not None
        expected = [state.best.step, *(checkpoint.step for checkpoint in state.last)]


def run_and_kill(directory: Path, *arguments: str, saves: int, delay_secs: float) -> list[list[Any]]:
    """Lets a process save until it has said some saves, and kills it a moment later; returns what it said."""
    process = subprocess.Popen(
        [sys.executable, str(TESTS / "save_endlessly.py"), str(directory), *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    said: list[list[Any]] = []
    with process.stdout as lines:
        for line in lines:
            said.append(json.loads(line))
            if said[-1][0] == "begin" and sum(words[0] == "done" for words in said) >= saves:
                break
        try:
            process.wait(delay_secs)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        said += [json.loads(line) for line in lines if line.endswith(b"\n")]
    assert process.wait(30) == -signal.SIGKILL
    return said


def assert_whole(path: Path, step: int) -> None:
    lines = path.read_text().splitlines()
    assert len(lines) == LINES
    assert len(set(lines)) == 1
    assert lines[0].startswith(f"{step} ")


def test_a_rerun_that_ends_between_any_two_operations_loses_no_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an earlier training has is set aside; the process ends before the n-th operation of that, for every n."""
    ends = 0
    for place in range(200):
        directory = tmp_path / str(place)
        files = open_files(directory, keep=3)
        for step, value in ((1, 0.1), (2, 0.3), (3, 0.2)):
            save(files, step, value)
        with monkeypatch.context() as patch:
            end_at(patch, place)
            try:
                begin_anew(directory)
                is_done = True
            except Killed:
                is_done = False
                ends += 1
        again = begin_anew(directory) if read_state(str(directory)) is not None else open_files(directory)
        assert (again.best, again.last) == (None, None)
        for step in (1, 2, 3, 4):
            save(again, step, step / 10 + 1)
        assert shown(directory) == (1, [2, 3, 4])
        earlier = read_state(str(directory), "checkpoints.earlier-1.json")
        assert earlier is not None
        assert earlier.best is not None
        assert (earlier.best.step, [checkpoint.step for checkpoint in earlier.last]) == (1, [3])
        for checkpoint in (earlier.best, *earlier.last):
            assert (directory / checkpoint.file).read_text() == f"step {checkpoint.step}"
        assert "checkpoints.earlier-2.json" not in names(directory)
        if is_done:
            break
    assert is_done
    assert ends > 10


def begin_anew(directory: Path) -> CheckpointFiles:
    return CheckpointFiles(
        str(directory), monitor="loss", mode="min", keep=3, warn=pytest.fail, goes_on=lambda state: False
    )


def test_earlier_trainings_that_cannot_be_read_lose_nothing(tmp_path: Path) -> None:
    save(open_files(tmp_path), 1, 1.0)
    begin_anew(tmp_path)
    (tmp_path / "checkpoints.earlier-1.json").write_text("{")
    files = open_files(tmp_path, keep=1)
    for step in (2, 3, 4):
        save(files, step, 4.0 - step)
    assert {"checkpoint_step_1.ckpt", "checkpoint_step_4.ckpt", STATE_NAME} < set(names(tmp_path))
    assert "checkpoint_step_2.ckpt" not in names(tmp_path)


def test_a_rerun_with_another_monitor_keeps_the_best_of_the_one_before(tmp_path: Path) -> None:
    files = open_files(tmp_path)
    for step, value in ((1, 0.1), (2, 0.3)):
        save(files, step, value)
    again = CheckpointFiles(
        str(tmp_path), monitor="eval/accuracy", mode="max", keep=3, warn=pytest.fail, goes_on=lambda state: False
    )
    save(again, 3, 0.5)
    earlier = read_state(str(tmp_path), "checkpoints.earlier-1.json")
    assert earlier is not None
    assert earlier.best is not None
    assert (earlier.monitor, earlier.best.step) == ("loss", 1)


# ------------------------------------------------------------------ the monitored value


@pytest.mark.parametrize(
    ("monitor", "mode"),
    [
        ("loss", "min"),
        ("eval/loss", "min"),
        ("eval/eval_loss", "min"),
        ("eval/accuracy", "max"),
        ("eval/top_5_accuracy", "max"),
        ("eval/Top1-Acc", "max"),
        ("eval/F1", "max"),
        ("eval/perplexity", "min"),
    ],
)
def test_which_is_better_is_known_by_the_name(monitor: str, mode: Mode) -> None:
    assert mode_of(monitor, "auto") == mode
    assert mode_of(monitor, "min") == "min"


@pytest.mark.parametrize(
    ("monitor", "mode", "words"),
    [
        ("eval/score", "auto", "nothing says whether more or less of 'eval/score' is better: give mode"),
        ("accuracy", "max", "monitor is `loss` or `eval/<metric>`, got 'accuracy'"),
        ("eval/", "max", "monitor is `loss` or `eval/<metric>`, got 'eval/'"),
        ("loss", "least", "mode is `min`, `max` or `auto`, got 'least'"),
    ],
)
def test_what_cannot_be_monitored_is_said(monitor: str, mode: Any, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        mode_of(monitor, mode)
    assert words in str(caught.value)


def test_the_mean_loss_since_the_last_checkpoint() -> None:
    window = LossWindow()
    assert window.take() is None
    assert window.is_finite
    for loss in (1.0, 3.0):
        window.add(loss)
    assert (window.take(), window.take(), window.last) == (2.0, None, 3.0)
    window.add(math.nan)
    assert not window.is_finite
    window.add(1.0)
    assert window.is_finite
    mean = window.take()
    assert mean is not None
    assert math.isnan(mean)
