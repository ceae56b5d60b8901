"""Names of runs in a destination: what is too long is shortened, told, and undone on the way back."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.convert.names import NAME_FILE, flatten, shorten
from ms_summary_bridge.convert.verify import verify_logdirs
from ms_summary_bridge.runs.logdir import discover
from tests.convert.test_convert import scalar_rows
from tests.follow_script import FollowScript
from tests.scripted import build_file, put, tensorboard_name

TRIAL = (
    "trial_0000{}_batch_size=128,dropout=0.1,hidden=512,lr=0.001,weight_decay=0.0001,optimizer=momentum,warmup=1000,"
    "seed={}_2026-01-02_03-04-05"
)
# C01: each part of a name fits, all of it in one name does not; one of 255 bytes; several bytes for a character.
RUNS = [
    *("/".join(["sweep_2026-01-02_" + "x" * 80, TRIAL.format(n, n), "lightning_logs", "version_0"]) for n in (1, 2)),
    "y" * 255,
    "文" * 80 + "/" + "字" * 80,
    "a/b",
    "a+b",
]
LONG = [name for name in RUNS if len(flatten(name).encode()) > 255]


def make_source(directory: Path, runs: list[str] = RUNS) -> Path:
    for number, name in enumerate(runs):
        put(directory / name / tensorboard_name(), build_file("tensorboard", range(number, number + 3)))
    return directory


def names(directory: Path) -> list[str]:
    return sorted(run.name for run in discover(directory).runs)


def test_the_case_is_one() -> None:
    assert len(LONG) == 3


@pytest.mark.parametrize("workers", [1, 2])
def test_there_and_back_gives_every_run_its_name(tmp_path: Path, workers: int) -> None:
    source, there, back = make_source(tmp_path / "tb"), tmp_path / "ms", tmp_path / "back"
    report = convert_logdir(source, there, workers=workers)
    assert not report.failures
    assert sorted(run.full_name for run in report.runs if run.full_name) == sorted(map(flatten, LONG))
    assert max(len(os.fsencode(run.run)) for run in report.runs) <= 255
    assert verify_logdirs(source, there).is_equal
    convert_logdir(there, back, workers=workers)
    assert names(back) == sorted(RUNS)
    for number, name in enumerate(RUNS):
        assert scalar_rows(back / name) == [(step, float(step)) for step in range(number, number + 3)]
    assert verify_logdirs(there, back).is_equal
    assert verify_logdirs(source, back).is_equal
    # Again, in both directions: nothing is new, and the names stay.
    assert not any(run.events_read for run in convert_logdir(source, there).runs)
    assert not any(run.values for run in convert_logdir(there, back).runs)
    assert names(back) == sorted(RUNS)


def test_a_name_comes_back_from_a_moved_tree_and_from_a_run_taken_out_of_it(tmp_path: Path) -> None:
    convert_logdir(make_source(tmp_path / "tb"), tmp_path / "ms")
    shutil.move(tmp_path / "ms", tmp_path / "elsewhere" / "below")
    convert_logdir(tmp_path / "elsewhere", tmp_path / "back")
    assert names(tmp_path / "back") == sorted(f"below/{name}" for name in RUNS)
    for name in LONG:
        shutil.copytree(
            tmp_path / "elsewhere" / "below" / shorten(flatten(name)), tmp_path / "some" / shorten(flatten(name))
        )
    convert_logdir(tmp_path / "some", tmp_path / "back-2")
    assert names(tmp_path / "back-2") == sorted(LONG)
    shutil.move(tmp_path / "some" / shorten(flatten(LONG[0])), tmp_path / "one")
    convert_logdir(tmp_path / "one", tmp_path / "back-3")
    assert names(tmp_path / "back-3") == ["."]


def test_a_name_depends_on_no_other_run(tmp_path: Path) -> None:
    convert_logdir(make_source(tmp_path / "all"), tmp_path / "ms")
    for number, name in enumerate(LONG):
        convert_logdir(make_source(tmp_path / f"tb-{number}", [name, "z"]), tmp_path / f"ms-{number}")
        assert shorten(flatten(name)) in {*os.listdir(tmp_path / f"ms-{number}")} & {*os.listdir(tmp_path / "ms")}


@pytest.mark.parametrize("content", [b"", b"../../etc", b"another run", b"\xff\0"])
def test_a_name_file_that_is_not_of_the_directory_is_not_believed(tmp_path: Path, content: bytes) -> None:
    (name,) = LONG[:1]
    convert_logdir(make_source(tmp_path / "tb", [name, "other"]), tmp_path / "ms")
    shortened = shorten(flatten(name))
    (tmp_path / "ms" / shortened / NAME_FILE).write_bytes(content)
    convert_logdir(tmp_path / "ms", tmp_path / "back")
    assert "other" in names(tmp_path / "back")
    assert sorted(os.listdir(tmp_path)) == ["back", "ms", "tb"]
    assert verify_logdirs(tmp_path / "ms", tmp_path / "back").is_equal


def test_a_follower_shortens_too_and_force_removes_what_it_wrote(tmp_path: Path) -> None:
    source = make_source(tmp_path / "tb")
    script = FollowScript().follow(source, tmp_path / "ms")
    assert script.total is not None
    assert not script.total.failures
    assert sorted(run.full_name for run in script.total.runs if run.full_name) == sorted(map(flatten, LONG))
    assert verify_logdirs(source, tmp_path / "ms").is_equal
    shutil.rmtree(source)
    make_source(source, ["a"])
    convert_logdir(source, tmp_path / "ms", force=True)
    assert names(tmp_path / "ms") == ["a"]
    assert not list((tmp_path / "ms").rglob(NAME_FILE))


@given(st.lists(st.text(st.characters(exclude_characters="/\0", codec="utf-8"), min_size=1), min_size=1, unique=True))
def test_flattening_and_shortening_keep_names_apart(parts: list[str]) -> None:
    paths = ["/".join(parts[:end]) for end in range(1, len(parts) + 1)] + parts
    flat = {path: shorten(flatten(path)) for path in paths}
    assert len({*flat.values()}) == len(flat)
    assert all(len(os.fsencode(name)) <= 255 and "/" not in name for name in flat.values())
    assert all(flat[path] == flatten(path) for path in paths if len(os.fsencode(flatten(path))) <= 255)


def test_a_name_that_is_not_utf8_is_shortened_too() -> None:
    name = os.fsdecode(b"\xff" * 300)
    assert len(os.fsencode(shorten(name))) == 255
    assert shorten(name) != shorten(os.fsdecode(b"\xff" * 301))
