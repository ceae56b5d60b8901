"""tools/torture in small: some crash points and failures of each writer, and that what records them sees all."""

from __future__ import annotations

import errno
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TORTURE = ROOT / "tools" / "torture"

pytest.importorskip("tensorboard")
sys.path.append(str(ROOT / "tools"))

from torturing import crash, fail, fuzz, main  # noqa: E402
from torturing.disk import Image, Op, crashes  # noqa: E402
from torturing.sharing import Shares, run_shared  # noqa: E402
from torturing.soak import Watched  # noqa: E402

CRASHED = {  # of how many crash points one is tried
    "live files, as they are": 5,
    "live files with fsync": 4,
    "the journal": 2,
    "checkpoints": 2,
    "files replaced as a whole": 1,
    "convert to TensorBoard: every kind under one tag": 4,
    "convert to MindSpore, with an archive: every plugin": 4,
    "follow: a restart": 4,
    "the mirror for MindInsight": 12,
}


@pytest.mark.parametrize("name", CRASHED)
def test_nothing_is_lost_or_doubled_wherever_it_is_cut_off(name: str, tmp_path: Path) -> None:
    row = crash.try_crashes(name, crash.SCENARIOS[name], tmp_path, chosen=lambda n: n % CRASHED[name] == 0)
    assert row.details == []
    assert (row.faults, row.lost, row.left) == (0, 0, 0)
    assert row.tried >= 25


FAILED = {  # of how many failures, spread over all
    "convert to TensorBoard": 14,
    "convert to MindSpore, with an archive": 8,
    "follow": 10,
    "callback: the files": 16,
    "callback: the way to the writer process": 6,
    "callback: a writer process that is killed": 4,
    "monitor: the files": 3,
    "view: the mirror for TensorBoard": 6,
    "view: the mirror for MindInsight": 8,
}


@pytest.mark.parametrize("name", FAILED)
def test_a_call_that_fails_is_told_and_costs_no_more(name: str, tmp_path: Path) -> None:
    row = fail.try_failures(name, fail.TARGETS[name], tmp_path / "base", chosen=lambda number: number < FAILED[name])
    assert row.details == []
    assert (row.tried, row.faults, row.lost) == (FAILED[name], 0, 0)
    assert row.counted > 0


@pytest.mark.parametrize(
    ("name", "failure"),
    [
        ("convert to TensorBoard", ("write", 5, errno.ENOSPC, True)),  # an archive fails: its output is closed too
        ("follow", ("open", 1, errno.EIO, False)),  # the one file cannot be read, once
        ("callback: the way to the writer process", ("fork", 1, errno.EMFILE, True)),
        ("callback: the way to the writer process", ("mmap", 1, errno.EIO, True)),
        ("callback: a writer process that is killed", ("pipe", 3, errno.EMFILE, True)),
        ("view: the mirror for MindInsight", ("open", 14, errno.EIO, True)),
    ],
)
def test_what_has_failed_before(name: str, failure: tuple[str, int, int, bool], tmp_path: Path) -> None:
    assert fail.try_one(fail.TARGETS[name], tmp_path / "base", fail.Failure(*failure)) == []


# --- how the time is shared


def test_what_one_part_leaves_those_after_it_get() -> None:
    now = [100.0]
    shares = Shares(60.0, 2, {"long": 4.0, "a": 1.0, "b": 1.0, "c": 2.0}, lambda: now[0])
    assert shares.begin("long") == 60.0, "half of two workers' time, and no more than until the end"
    assert shares.begin("a") == pytest.approx(60.0 / 4)
    now[0] += 5.0
    shares.end("a")
    assert shares.begin("b") == pytest.approx(55.0 / 3)
    now[0] += 10.0
    shares.end("b")
    shares.end("long")
    assert shares.begin("c") == 45.0
    now[0] += 50.0  # it took longer than it was to
    shares.end("c")


def test_all_are_done_and_told_in_their_order() -> None:
    begun: list[str] = []

    def do(name: str, share: float) -> float:
        begun.append(name)
        return share

    given = run_shared(["a", "b", "c"], do, seconds=60.0, jobs=1, weights={"c": 2.0})
    assert begun == ["c", "a", "b"]
    assert [*given] == ["a", "b", "c"]
    assert all(0 < share <= 60.0 for share in given.values())
    with pytest.raises(ZeroDivisionError):
        run_shared(["a"], lambda name, share: 1 / 0, seconds=1.0, jobs=1, weights={})


def test_what_needs_more_time_is_called_as_it_is() -> None:
    assert {*fail._WEIGHTS} <= {*fail.TARGETS, fail._PROCESS, fail._TRAINING}
    assert {*main._WEIGHTS} <= {*main.part_names()}


def test_a_hunt_that_gets_no_time_is_left_out_and_no_fault(tmp_path: Path) -> None:
    row = fuzz._hunt("wire", -4.99, tmp_path / "wire")  # it is ended after a hundredth of a second
    assert (row.tried, row.left, row.faults, row.details) == (0, 1, 0, [])


# --- the model


def states(ops: list[Op]) -> list[tuple[str, dict[str, bytes | None]]]:
    return [(each.how, contents(each.image)) for each in crashes(ops, "/r")]


def contents(image: Image) -> dict[str, bytes | None]:
    return {
        path.removeprefix("/r/"): image.data.get(entry[1], b"") if entry[0] == "file" else None
        for path, entry in image.names.items()
        if path != "/r"
    }


CREATED = [Op("create", "/r/a", 1), Op("write", "/r/a", 1, 0, b"one")]
RENAMED = Op("rename", "/r/b", other="/r/a")


def test_a_rename_before_the_data_leaves_an_empty_file_and_one_behind_them_does_not() -> None:
    assert {"b": b""} in [image for _, image in states([*CREATED, RENAMED])]
    synced = [*CREATED, Op("sync", "/r/a", 1), RENAMED]
    left = [image for _, image in states(synced)]
    assert {"b": b""} not in left
    assert all(image in left for image in ({}, {"a": b"one"}, {"b": b"one"}))
    safe = [each for each in crashes([*synced, Op("sync_names", "/r"), Op("mark", token=1)], "/r") if each.promised]
    assert [contents(each.image) for each in safe] == [{"b": b"one"}] * 2
    assert [each.is_power for each in safe] == [False, True]


def test_a_write_is_torn_and_what_is_not_synced_is_gone_or_zeros() -> None:
    kinds = dict(states([*CREATED, Op("sync", "/r/a", 1), Op("write", "/r/a", 1, 3, b"two!")]))
    assert kinds["killed, the next write torn behind 1 bytes"] == {"a": b"onet"}
    assert kinds["power lost, no data since its fsync"] == {"a": b"one"}
    assert kinds["power lost, zeros since the fsync"] == {"a": b"one\0\0\0\0"}
    assert kinds["power lost, half of the data since the fsync"] == {"a": b"onetw"}


def test_what_is_in_a_directory_that_the_disk_does_not_know_is_gone() -> None:
    ops = [Op("mkdir", "/r/d"), Op("create", "/r/d/f", 1), Op("sync", "/r/d/f", 1), Op("sync_names", "/r/d")]
    promised = Op("mark", token=1)
    assert {} in [contents(each.image) for each in crashes([*ops, promised], "/r") if each.promised]
    ops += [Op("sync_names", "/r"), promised]
    assert [contents(each.image) for each in crashes(ops, "/r") if each.promised] == [{"d": None, "d/f": b""}] * 2


def test_a_writer_that_syncs_too_late_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ms_summary_bridge.files import atomic

    monkeypatch.setattr(atomic, "sync", lambda path: None)
    name = "files replaced as a whole"
    row = crash.try_crashes(name, crash.SCENARIOS[name], tmp_path)
    assert row.faults > 0
    assert "not whole" in row.details[0]


RECORD = """
import json, sys
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/tools"]
from collections import Counter
from pathlib import Path
from torturing import crash
from torturing.calls import Interposed
from torturing.disk import Recorder
base = Path(sys.argv[2])
(base / "root").mkdir(parents=True)
scenario, recorder = crash.SCENARIOS[sys.argv[3]](base), Recorder()
with Interposed(str(base / "root"), recorder):
    scenario.write(recorder.mark)
print(json.dumps(Counter(op.kind.removesuffix("_names") for op in recorder.ops)))
"""
SYSTEM_CALLS = {
    "write": r"(?:p?write(?:64|v)?)\(\d+<ROOT[^>]*>",
    "sync": r"f(?:data)?sync\(\d+<ROOT",
    "rename": r"rename(?:at2?)?\(.*\"ROOT",
    "unlink": r"unlink(?:at)?\(.*(?:\"|<)ROOT(?!.*AT_REMOVEDIR)",
    "mkdir": r"mkdir(?:at)?\(.*\"ROOT/",
}


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
@pytest.mark.parametrize("name", ["the journal", "convert to MindSpore, with an archive: every plugin"])
def test_what_is_recorded_is_what_the_system_was_asked_for(name: str, tmp_path: Path) -> None:
    calls = "trace=write,pwrite64,writev,fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat"
    log = tmp_path / "strace.txt"
    done = subprocess.run(
        ["strace", "-f", "-y", "-e", calls, "-o", log, sys.executable, "-c", RECORD, ROOT, tmp_path / "base", name],
        capture_output=True,
        text=True,
        timeout=120,
    )
    if "ptrace" in done.stderr:
        pytest.skip("strace may not trace here")
    assert done.returncode == 0, done.stderr
    recorded = json.loads(done.stdout)
    lines = [line for line in log.read_text().splitlines() if " = -1 " not in line]
    root = re.escape(str(tmp_path / "base" / "root"))
    for kind, pattern in SYSTEM_CALLS.items():
        seen = [line for line in lines if re.search(rf"^\d+ +{pattern.replace('ROOT', root)}", line)]
        assert len(seen) == recorded.get(kind, 0), kind
    assert recorded["write"] > 5


# --- the command


@pytest.mark.parametrize("page", ["docs/reliability.md", "docs/reliability.zh.md"])
def test_the_pages_have_the_table_of_what_was_tried(page: str) -> None:
    kept = ROOT / "docs" / "images" / "reliability.json"
    words = [sys.executable, str(TORTURE), "--from", str(kept), "--markdown"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    rule, drawn = done.stdout.split("\n", 2)[1:]
    assert f"\n{rule}\n{drawn}\n" in (ROOT / page).read_text(encoding="utf-8"), "the whole table"
    assert len(drawn.splitlines()) > 20


def test_the_results_of_parts_are_kept_side_by_side_and_drawn(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    row = {"what": "w", "tried": 1200, "lost": 0, "counted": 7, "faults": 0, "left": 0, "details": []}
    kept.write_text(json.dumps({"parts": {"other": {"seconds": 1, "rows": [row]}}}))
    words = [sys.executable, str(TORTURE), "--from", str(kept), "--markdown"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[2] == "| other | w | 1,200 | 0 | 7 | 0 | 0 |"
    kept.write_text(json.dumps({"parts": {"other": {"seconds": 1, "rows": [{**row, "faults": 1}]}}}))
    assert subprocess.run(words, capture_output=True, text=True, timeout=60).returncode == 1


def test_what_grows_in_a_long_training_is_a_fault() -> None:
    """The judgement of `soak`, whose trainings are too long for this suite."""

    def count_faults(memory: list[float], descriptors: list[int]) -> int:
        others = [2] * len(memory)
        counts = {"descriptors": descriptors, "threads": others, "processes": others}
        return Watched("training", 1, memory, counts).row().faults

    flat = [500.0] * 9
    assert count_faults([300.0] * 3 + [500.0] * 6, [40] * 9) == 0  # what comes at the start does not grow later
    assert count_faults(flat[:6] + [560.0] * 3, [40] * 9) == 1
    assert count_faults(flat, [40] * 6 + [44] * 3) == 1
    assert count_faults(flat[:6], [40] * 6) == 1, "too short to say"
