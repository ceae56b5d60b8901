"""Files and links that change in one step, and locks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ms_summary_bridge.errors import FileTakenError, WriteError
from ms_summary_bridge.files.atomic import (
    check_place,
    create_file,
    replace_file,
    replacing,
    take_lock,
)
from ms_summary_bridge.files.file_names import is_wanted
from ms_summary_bridge.files.links import replace_link
from ms_summary_bridge.files.system import try_lock
from tests.runs.test_logdir import in_unprivileged_child


def names(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


@pytest.mark.parametrize("is_lasting", [False, True])
def test_a_file_is_replaced_as_a_whole_and_keeps_its_permissions(tmp_path: Path, is_lasting: bool) -> None:
    path = tmp_path / "file"
    replace_file(str(path), b"one", is_lasting=is_lasting)
    assert path.read_bytes() == b"one"
    path.chmod(0o640)
    with path.open("rb") as reader:
        replace_file(str(path), b"another", is_lasting=is_lasting)
        assert reader.read() == b"one"
    assert path.read_bytes() == b"another"
    assert path.stat().st_mode & 0o777 == 0o640
    assert names(tmp_path) == ["file"]


def test_a_name_without_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    replace_file("file", b"one")
    create_file("other", b"two")
    assert names(tmp_path) == ["file", "other"]


def test_what_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    for error, expected in ((OSError(28, "No space left on device"), WriteError), (KeyError("x"), KeyError)):
        with pytest.raises(expected):
            fail_half_way(path, error)
        assert path.read_bytes() == b"old"
        assert names(tmp_path) == ["file"]
    with pytest.raises(WriteError, match="missing/file: cannot be written: No such file or directory"):
        replace_file(str(tmp_path / "missing" / "file"), b"")
    (tmp_path / "directory").mkdir()
    with pytest.raises(WriteError, match="directory: cannot be written: Is a directory"):
        replace_file(str(tmp_path / "directory"), b"")
    assert names(tmp_path) == ["directory", "file"]


def test_a_new_file_that_cannot_get_its_name_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the file system knows no second name of a file."""

    def refuse(source: str, target: str) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(WriteError, match="file: cannot be written: Operation not permitted"):
        create_file(str(tmp_path / "file"), b"data")
    assert names(tmp_path) == []


def fail_half_way(path: Path, error: Exception) -> None:
    with replacing(str(path)) as temporary:
        Path(temporary).write_bytes(b"half")
        raise error


KILLED = """
import os, signal, sys
from ms_summary_bridge.files.atomic import replacing
with replacing(sys.argv[1]) as temporary:
    open(temporary, "wb").write(b"half of it, and longer than the whole")
    os.chmod(temporary, 0o400)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_leaves_is_hidden_and_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1700000000.host"
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    (left,) = names(tmp_path)
    assert left.startswith(".")
    assert "tfevents" not in left, "TensorBoard reads hidden files too"
    assert "summary." not in left.replace("ms_summary_bridge.", ""), "what MindInsight searches for"
    assert not is_wanted(left)

    def check() -> None:  # as a user who may not write to a file that is read-only
        replace_file(str(path), b"whole")

    if os.geteuid() == 0:
        os.chown(tmp_path, 65534, 65534)
        os.chown(tmp_path / left, 65534, 65534)
        for parent in (tmp_path, *tmp_path.parents):
            if str(parent).startswith("/tmp/"):
                parent.chmod(0o755)
    in_unprivileged_child(check)
    assert path.read_bytes() == b"whole"
    assert names(tmp_path) == [path.name]


@pytest.mark.parametrize("has_locks", [True, False])
def test_two_who_write_one_file_at_once_do_not_mix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_locks: bool
) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(38, "Function not implemented")

    if not has_locks:
        monkeypatch.setattr("fcntl.flock", refuse)
    path = tmp_path / "file"
    with replacing(str(path)) as one, replacing(str(path)) as other:
        assert one != other
        Path(one).write_bytes(b"one")
        Path(other).write_bytes(b"other")
    assert path.read_bytes() == b"one"
    if has_locks:
        assert names(tmp_path) == ["file"]
    failures: list[BaseException] = []

    def write(text: bytes) -> None:
        try:
            for _ in range(200):
                replace_file(str(path), text * 1000)
                assert {*path.read_bytes()} in ({*b"a"}, {*b"b"})
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(text,)) for text in (b"a", b"b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_new_file_is_one_process_s_and_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    create_file(str(path), b"first")
    with pytest.raises(FileTakenError, match="exists and would be overwritten"):
        create_file(str(path), b"second")
    assert path.read_bytes() == b"first"
    assert names(tmp_path) == ["file"]
    with pytest.raises(WriteError):
        create_file(str(tmp_path / "missing" / "file"), b"")


def test_links(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    link = tmp_path / "link"
    for target in ("here", "there", "there"):
        replace_link(str(link), target, str(scratch))
        assert os.readlink(link) == target
    assert names(scratch) == []
    (tmp_path / "directory").mkdir()
    with pytest.raises(WriteError, match="directory: cannot be written"):
        replace_link(str(tmp_path / "directory"), "here", str(scratch))
    replace_link(str(link), "again", str(scratch))


def test_locks(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    handle = take_lock(path)
    assert handle is not None
    assert take_lock(path) is None
    os.close(handle)
    one, two = os.open(path, os.O_RDWR), os.open(path, os.O_RDWR)
    assert try_lock(one, is_shared=True)
    assert try_lock(two, is_shared=True)
    assert take_lock(path) is None
    os.close(one)
    os.close(two)
    again = take_lock(path)
    assert again is not None
    os.close(again)
    with pytest.raises(WriteError, match="cannot be locked"):
        take_lock(str(tmp_path / "missing" / "lock"))
    count = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(WriteError):
            take_lock(str(tmp_path))
    assert len(os.listdir("/proc/self/fd")) == count


def test_a_place_is_checked_without_writing(tmp_path: Path) -> None:
    check_place(str(tmp_path / "a" / "b" / "file"))
    (tmp_path / "file").write_text("x")
    check_place(str(tmp_path / "file"))
    os.symlink("nowhere", tmp_path / "broken")
    for path, reason in {
        tmp_path / "file" / "below": "Not a directory",
        tmp_path / "broken" / "below": "Not a directory",
        tmp_path / ("x" * 256): "File name too long",
        tmp_path / "a" / os.fsdecode("文".encode() * 86) / "file": "File name too long",
        tmp_path.joinpath(*["x" * 250] * 17): "File name too long",
    }.items():
        with pytest.raises(WriteError, match=f"cannot be written: {reason}"):
            check_place(str(path))
        with pytest.raises(OSError, match=f"{reason}|File exists"):  # and so it is
            write_with_parents(path)


def write_with_parents(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
