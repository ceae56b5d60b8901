"""Which runs a log tree holds, and which files make each of them."""

from __future__ import annotations

import os
import re
import tempfile
import traceback
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest

from ms_summary_bridge.errors import LogdirError, MissingDependencyError
from ms_summary_bridge.files.file_names import is_archive
from ms_summary_bridge.runs.logdir import Logdir, Run, discover
from scripted import (
    FORMATS,
    START,
    build_file,
    build_record,
    flip_bit,
    mindspore_name,
    put,
    tensorboard_name,
    version_payload,
)

MS = build_file("mindspore", [1, 2, 3])
TB = build_file("tensorboard", [1, 2, 3])
LIVE = build_file("tensorboard", [1, 2, 3], writer="ms_summary_bridge/live")
CONVERT = build_file("tensorboard", [1, 2, 3], writer="ms_summary_bridge/convert")
VERSION = build_record(version_payload("tensorboard"))


def names(runs: tuple[Run, ...]) -> list[str]:
    return [run.name for run in runs]


def base_names(run: Run) -> list[str]:
    return [os.path.basename(file.path) for file in run.files]


def only_run(logdir: Logdir) -> Run:
    (run,) = logdir.runs
    return run


def in_unprivileged_child(check: Callable[[], None]) -> None:
    """Runs a check as a user whom permissions bind; root's are ignored by the kernel."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads: this child starts none
        pid = os.fork()
    if not pid:
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            check()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


# --- the tree


def make_odd_tree(root: Path) -> None:
    name = tensorboard_name()
    put(root / "good" / name, TB)
    put(root / "good" / tensorboard_name(START + 1, "host.profile-empty"), VERSION)
    put(root / "zero" / name, b"")
    put(root / "version_only" / name, VERSION)
    put(root / "padded" / name, VERSION + bytes(100_000))
    put(root / "text" / "events.out.tfevents.notes.txt", b"this is not an event file\n")
    (root / "dir_named_like_events" / tensorboard_name()).mkdir(parents=True)
    put(root / "ms" / mindspore_name(), MS)
    put(root / "ms" / mindspore_name(suffix="_MS_lineage"), build_record(version_payload("mindspore")))
    put(root / "ms" / mindspore_name(suffix="_lineage"), build_record(version_payload("mindspore")))
    put(root / "ms" / f".{mindspore_name()}", MS)
    put(root / "ms" / "notes.txt", b"")
    put(root / "closed_run" / mindspore_name(rank=1), MS).chmod(0o400)
    put(root / "noread" / name, TB)
    put(root / "no_file" / name, TB).chmod(0)
    (root / "noread").chmod(0)
    (root / "loop").symlink_to(root)
    (root / "ms" / "self").symlink_to("self")
    (root / "good" / "again").symlink_to(root / "good" / name)


@pytest.fixture
def odd_tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    make_odd_tree(root)
    return root


def test_odd_tree_gives_the_runs_with_data(odd_tree: Path) -> None:
    (odd_tree / "noread").chmod(0o700)
    logdir = discover(odd_tree)
    assert set(names(logdir.runs)) - {"no_file", "noread"} == {"good", "ms", "closed_run"}
    good = next(run for run in logdir.runs if run.name == "good")
    assert base_names(good) == [tensorboard_name()]
    assert (good.format, good.role, good.rank, good.host) == ("tensorboard", "source", None, "host")
    assert good.directory == str(odd_tree / "good")
    assert [os.path.relpath(item.path, odd_tree).split("/")[0] for item in logdir.empty] == [
        *("good", "ms", "ms", "padded", "version_only", "zero")
    ]
    assert [item.reason for item in logdir.empty if "zero" in item.path] == ["zero bytes"]
    (text,) = [problem for problem in logdir.problems if "/text/" in problem.path]
    assert text.reason.startswith("not an event file")
    assert discover(odd_tree) == logdir


def test_what_cannot_be_read_is_named_and_the_rest_goes_on() -> None:
    with tempfile.TemporaryDirectory() as directory:  # not tmp_path, which root's pytest closes to other users
        os.chmod(directory, 0o755)
        root = Path(directory)
        make_odd_tree(root)
        (root / "closed_run" / mindspore_name(rank=1)).chmod(0o444)

        def check() -> None:
            logdir = discover(root)
            assert names(logdir.runs) == ["closed_run", "good", "ms"]
            reasons = {os.path.relpath(problem.path, root): problem.reason for problem in logdir.problems}
            assert reasons.pop("text/events.out.tfevents.notes.txt").startswith("not an event file")
            assert reasons == {
                "noread": "cannot be listed: Permission denied",
                f"no_file/{tensorboard_name()}": "cannot be opened: Permission denied",
            }

        in_unprivileged_child(check)
        (root / "noread").chmod(0o700)


def test_a_source_may_be_a_run_or_one_file(tmp_path: Path) -> None:
    path = put(tmp_path / "run" / mindspore_name(), MS)
    put(tmp_path / "run" / mindspore_name(START + 9), MS)
    run = only_run(discover(tmp_path / "run"))
    assert (run.name, run.directory, len(run.files)) == (".", str(tmp_path / "run"), 2)
    run = only_run(discover(str(path)))
    assert (run.name, run.directory, base_names(run)) == (".", str(tmp_path / "run"), [path.name])
    assert only_run(discover(f"file://{path}")) == run


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_file_given_by_hand_may_have_any_name(tmp_path: Path, file_format: str) -> None:
    path = put(tmp_path / "backup.bin", build_file(file_format, [1], start=START + 5))
    run = only_run(discover(path))
    assert (run.format, run.files[0].created, run.files[0].wall_time) == (file_format, START + 5, START + 5)
    assert discover(tmp_path).runs == ()
    other = discover(put(tmp_path / "other.bin", build_record(b"\x10\x01")))
    assert other.runs == ()
    assert "neither its name nor a version" in other.problems[0].reason


def test_the_version_event_decides_where_a_name_fits_both(tmp_path: Path) -> None:
    name = "events.out.tfevents.1.summary.2"
    put(tmp_path / "a" / name, MS)
    put(tmp_path / "b" / name, TB)
    put(tmp_path / "c" / "my.tfevents.out.events.summary.3.0.host_MS", MS[len(build_file("mindspore", [])) :])
    assert [(run.name, run.format, run.files[0].created) for run in discover(tmp_path).runs] == [
        ("a", "mindspore", 2),
        ("b", "tensorboard", 1),
        ("c", "mindspore", 3),
    ]


def test_no_source_and_no_events(tmp_path: Path) -> None:
    with pytest.raises(LogdirError, match="No such file"):
        discover(tmp_path / "gone")
    assert discover(tmp_path) == Logdir(str(tmp_path), (), (), (), ())


def test_pipes_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / tensorboard_name())
    logdir = discover(tmp_path)
    assert [problem.reason for problem in logdir.problems] == ["not a regular file"]
    with pytest.raises(LogdirError, match="neither a directory nor a regular file"):
        discover(tmp_path / tensorboard_name())


def test_links_are_followed_and_nothing_is_read_twice(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    put(outside / "deep" / tensorboard_name(), TB)
    root = tmp_path / "root"
    put(root / "run_2" / tensorboard_name(), TB)
    (root / "a_link").symlink_to(root / "run_2")
    (root / "elsewhere").symlink_to(outside)
    (root / "elsewhere_too").symlink_to(outside)
    (outside / "back").symlink_to(root)
    os.link(root / "run_2" / tensorboard_name(), root / "run_2" / tensorboard_name(START + 1))
    put(outside / tensorboard_name(START + 2), TB)
    (root / "run_3").mkdir()
    (root / "run_3" / tensorboard_name()).symlink_to(outside / tensorboard_name(START + 2))
    (root / "run_3" / tensorboard_name(START + 1)).symlink_to("gone")
    (root / "run_3" / "notes").symlink_to("gone")
    logdir = discover(root)
    assert names(logdir.runs) == ["elsewhere", "elsewhere/deep", "run_2"]
    assert [len(run.files) for run in logdir.runs] == [1, 1, 1]
    assert [os.path.basename(problem.path) for problem in logdir.problems] == [tensorboard_name(START + 1)]


def test_runs_are_sorted_with_numbers_by_value(tmp_path: Path) -> None:
    for name in ("run_10", "run_9", "a/b", "run_2"):
        put(tmp_path / name / tensorboard_name(), TB)
    put(tmp_path / tensorboard_name(), TB)
    assert names(discover(tmp_path).runs) == [".", "a/b", "run_2", "run_9", "run_10"]


def test_url_gives_the_same_runs() -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe(f"/test_logdir/run/{mindspore_name()}", MS)
    memory.pipe(f"/test_logdir/run/{mindspore_name(rank=1)}", MS)
    memory.pipe(f"/test_logdir/other/{tensorboard_name()}", TB)
    memory.pipe("/test_logdir/other/events.out.tfevents.notes.txt", b"this is not an event file\n")
    memory.pipe("/test_logdir/other/notes.txt", b"")
    logdir = discover("memory://test_logdir")
    assert names(logdir.runs) == ["other", "run/rank_0", "run/rank_1"]
    assert logdir.runs[0].files[0].path == f"memory:///test_logdir/other/{tensorboard_name()}"
    assert logdir.runs[0].directory == "memory:///test_logdir/other"
    assert [problem.path for problem in logdir.problems] == [
        "memory:///test_logdir/other/events.out.tfevents.notes.txt"
    ]
    run = only_run(discover(logdir.runs[0].files[0].path))
    assert (run.name, run.directory) == (".", "memory:///test_logdir/other")
    with pytest.raises(LogdirError, match="cannot be found"):
        discover("memory://test_logdir/gone")


def test_directory_of_a_url_that_cannot_be_listed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe(f"/test_logdir_denied/a/{tensorboard_name()}", TB)
    memory.pipe(f"/test_logdir_denied/b/{tensorboard_name()}", TB)
    listing = type(memory).ls

    def ls(self: object, path: str, detail: bool = True) -> object:
        if path.endswith("/a"):
            raise PermissionError("Forbidden")
        return listing(self, path, detail=detail)

    monkeypatch.setattr(type(memory), "ls", ls)
    logdir = discover("memory://test_logdir_denied")
    assert names(logdir.runs) == ["b"]
    assert [(problem.path, problem.reason) for problem in logdir.problems] == [
        ("memory:///test_logdir_denied/a", "Forbidden")
    ]


def test_chained_url_is_read(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "logs.zip", "w") as archive:
        archive.writestr(f"logs/run/{tensorboard_name()}", TB)
    logdir = discover(f"zip://logs::file://{tmp_path}/logs.zip")
    assert names(logdir.runs) == ["run"]
    assert logdir.runs[0].files[0].path == f"zip://logs/run/{tensorboard_name()}::file://{tmp_path}/logs.zip"


def test_url_of_an_unknown_protocol_and_of_a_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LogdirError, match="Protocol not known"):
        discover("nonesuch://bucket")

    def url_to_fs(url: str) -> None:
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr("fsspec.core.url_to_fs", url_to_fs)
    with pytest.raises(MissingDependencyError, match="Install s3fs"):
        discover("s3://bucket")


# --- names


@pytest.mark.parametrize(
    ("name", "created", "rank", "host"),
    [
        ("events.out.events.summary.1700000000.3.host_MS", START, 3, "host"),
        ("events.out.events.summary.1700000000.3.node-1.cluster_MS", START, 3, "node-1.cluster"),
        ("events.out.events.summary.1700000000.host_MS", START, None, "host"),
        ("events.out.events.summary.1700000000.node-1.cluster_MS", START, None, "node-1.cluster"),
        ("events.out.events.summary.1700000000.42_MS", START, None, "42"),
        ("events.out.events.summary.1700000000.10.0.0.3_MS", START, None, "10.0.0.3"),
        ("events.out.events.summary.1700000000.7.10.0.0.3_MS", START, 7, "10.0.0.3"),
        ("events.out.events.summary.1700000000.10.0.0.3.cluster_MS", START, None, "10.0.0.3.cluster"),
        ("events.out.events.summary.1700000000.10.0.0_MS", START, 10, "0.0"),
        ("my.summary.7.out.events.summary.1700000000.0.host-mine", START, 0, "host-mine"),
        ("x.summary.1795953000.MS", 1795953000, None, "MS"),
        ("summary.1", 1, None, ""),
        ("events.out.events.summary.99999999999999.0.host_MS", 99999999999999, 0, "host"),
    ],
)
def test_mindspore_names(tmp_path: Path, name: str, created: int, rank: int | None, host: str) -> None:
    put(tmp_path / name, MS)
    run = only_run(discover(tmp_path))
    (file,) = run.files
    assert (run.format, run.name, run.rank, run.host) == ("mindspore", ".", rank, host)
    assert (file.created, file.rank, file.host, file.size) == (created, rank, host, len(MS))


@pytest.mark.parametrize(
    ("name", "created", "host", "sequence"),
    [
        ("events.out.tfevents.1700000000.host", START, "host", 0),
        ("events.out.tfevents.1700000000.host.4000.12", START, "host", 12),
        ("events.out.tfevents.1700000000.node-1.cluster.4000.2.v2", START, "node-1.cluster", 2),
        ("events.out.tfevents.1700000000.10.0.0.3", START, "10.0.0.3", 0),
        ("events.out.tfevents.1700000000.10.0.0.3.cluster.4000.1", START, "10.0.0.3.cluster", 1),
        ("mine.tfevents.1700000000.host.custom", START, "host.custom", 0),
        ("tfevents", START, "", 0),
    ],
)
def test_tensorboard_names(tmp_path: Path, name: str, created: int, host: str, sequence: int) -> None:
    put(tmp_path / name, TB)
    run = only_run(discover(tmp_path))
    (file,) = run.files
    assert (run.format, run.host, run.rank) == ("tensorboard", host, None)
    assert (file.created, file.host, file.sequence) == (created, host, sequence)


@pytest.mark.parametrize(
    "name", ["events.out.events.summary.abc_MS", "notes", ".events.out.tfevents.1.host", "x.summary"]
)
def test_other_names_are_not_looked_at(tmp_path: Path, name: str) -> None:
    put(tmp_path / name, TB)
    assert discover(tmp_path) == Logdir(str(tmp_path), (), (), (), ())


def test_files_are_in_the_order_of_name_time_then_first_event_then_number(tmp_path: Path) -> None:
    expected = [
        (tensorboard_name(999_999_999), 50),
        (tensorboard_name(START, "b.1.2"), 1),
        (tensorboard_name(START, "z.1.10"), 1),
        (tensorboard_name(START, "a.1.0"), 2),
        (tensorboard_name(START + 1, "a"), 0),
    ]
    for index, (name, start) in enumerate(reversed(expected)):
        path = put(tmp_path / name, build_file("tensorboard", [1], start=start))
        os.utime(path, (index, index))
    assert base_names(only_run(discover(tmp_path))) == [name for name, _ in expected]


def test_explain_files_are_named(tmp_path: Path) -> None:
    put(tmp_path / mindspore_name(), MS)
    put(tmp_path / mindspore_name(suffix="_explain"), MS)
    logdir = discover(tmp_path)
    assert [file.host for file in only_run(logdir).files] == ["host"]
    assert [problem.reason for problem in logdir.problems] == ["explain files are not read"]


def test_damaged_and_torn_beginnings(tmp_path: Path) -> None:
    put(tmp_path / "damaged" / tensorboard_name(), flip_bit(TB, 20))
    put(tmp_path / "torn" / tensorboard_name(), VERSION[:20])
    put(tmp_path / "growing" / tensorboard_name(), VERSION + b"\x20")
    put(tmp_path / "no_event" / tensorboard_name(), build_record(b"\xff\xff") + TB)
    put(tmp_path / "nan" / tensorboard_name(), build_file("tensorboard", [1], start=float("nan")))
    logdir = discover(tmp_path)
    assert names(logdir.runs) == ["damaged", "growing", "nan", "no_event"]
    assert [(file.created, file.wall_time) for run in logdir.runs[2:] for file in run.files] == [(START, START)] * 2
    assert [item.reason for item in logdir.empty] == ["no whole record yet"]


# --- ranks and hosts


def test_sixteen_ranks_of_two_hosts_are_sixteen_runs(tmp_path: Path) -> None:
    for host in ("node-0.cluster", "node-1.cluster"):
        for rank in range(8):
            put(tmp_path / "ms" / mindspore_name(rank=rank, host=host), MS)
    logdir = discover(tmp_path)
    assert names(logdir.runs) == [f"ms/node-{node}.cluster_rank_{rank}" for node in (0, 1) for rank in range(8)]
    assert {(len(run.files), run.host, run.rank) for run in logdir.runs} == {
        (1, f"node-{node}.cluster", rank) for node in (0, 1) for rank in range(8)
    }


def test_ranks_of_one_directory_are_runs_below_it(tmp_path: Path) -> None:
    for rank in (0, 1, 10):
        for second in (0, 100):
            put(tmp_path / mindspore_name(START + second, rank), MS)
    logdir = discover(tmp_path)
    assert names(logdir.runs) == ["rank_0", "rank_1", "rank_10"]
    assert [[file.created - START for file in run.files] for run in logdir.runs] == [[0, 100]] * 3


def test_names_of_ranks_avoid_real_directories(tmp_path: Path) -> None:
    for rank in (0, 1):
        put(tmp_path / mindspore_name(rank=rank), MS)
    put(tmp_path / "rank_0" / mindspore_name(), MS)
    (tmp_path / "rank_0_2").mkdir()
    logdir = discover(tmp_path)
    assert [(run.name, os.path.relpath(run.directory, tmp_path)) for run in logdir.runs] == [
        ("rank_0", "rank_0"),
        ("rank_0_3", "."),
        ("rank_1", "."),
    ]


def test_one_rank_on_another_host_later_is_the_same_run(tmp_path: Path) -> None:
    for second, host in ((0, "pod-a"), (100, "pod-b"), (200, "pod-a")):
        put(
            tmp_path / mindspore_name(START + second, host=host), build_file("mindspore", [1, 99], start=START + second)
        )
    run = only_run(discover(tmp_path))
    assert (run.name, run.host, [file.host for file in run.files]) == (".", "pod-a", ["pod-a", "pod-b", "pod-a"])


def test_one_rank_on_two_hosts_at_once_is_two_runs(tmp_path: Path) -> None:
    put(tmp_path / mindspore_name(host="a"), build_file("mindspore", [1, 99]))
    put(tmp_path / mindspore_name(START + 99, host="b"), MS)
    put(tmp_path / mindspore_name(rank=1, host="a"), MS)
    put(tmp_path / mindspore_name(START + 99, rank=1, host="b"), MS)  # not at once, but these hosts are two nodes
    put(tmp_path / mindspore_name(rank=2, host="a"), MS)
    assert names(discover(tmp_path).runs) == ["a_rank_0", "a_rank_1", "b_rank_0", "b_rank_1", "rank_2"]


def test_files_without_a_rank(tmp_path: Path) -> None:
    put(tmp_path / "alone" / mindspore_name(rank=None), MS)
    for host in ("a", "b"):
        put(tmp_path / "hosts" / mindspore_name(rank=None, host=host), MS)
    put(tmp_path / "mixed" / mindspore_name(rank=None), MS)
    put(tmp_path / "mixed" / mindspore_name(), MS)
    logdir = discover(tmp_path)
    assert [(run.name, run.rank) for run in logdir.runs] == [
        ("alone", None),
        ("hosts/a", None),
        ("hosts/b", None),
        ("mixed/no_rank", None),
        ("mixed/rank_0", 0),
    ]


def test_lineage_goes_with_its_rank_and_host(tmp_path: Path) -> None:
    lineage = build_record(b"\x09" + bytes(8) + b"\x52\x00") * 2
    for host in ("a", "b"):
        put(tmp_path / "two" / mindspore_name(host=host, suffix="-mine"), MS)
        put(tmp_path / "two" / mindspore_name(host=host, suffix="_lineage"), lineage)
    put(tmp_path / "old" / mindspore_name(), MS)
    put(tmp_path / "old" / mindspore_name(suffix="_MS_lineage"), lineage)
    put(tmp_path / "old" / mindspore_name(START + 50, suffix="_MS_lineage"), lineage)
    put(tmp_path / "alone" / mindspore_name(suffix="_lineage"), lineage)
    put(tmp_path / "moved" / mindspore_name(), MS)
    put(tmp_path / "moved" / mindspore_name(START + 50, host="other", suffix="_lineage"), lineage)
    found = {
        run.name: (len(run.files), [file.created - START for file in run.lineage_files], run.host)
        for run in discover(tmp_path).runs
    }
    assert found == {
        "alone": (0, [0], "host"),
        "moved": (1, [50], "host"),
        "old": (1, [0, 50], "host"),
        "two/a-mine_rank_0": (1, [0], "a-mine"),
        "two/b-mine_rank_0": (1, [0], "b-mine"),
    }


def test_each_graph_file_is_a_run_and_other_pb_files_are_left_alone(tmp_path: Path) -> None:
    for rank in (0, 1):
        put(tmp_path / mindspore_name(rank=rank), MS)
    put(tmp_path / tensorboard_name(), TB)
    graph = put(tmp_path / "ms_output.pb", bytes.fromhex("0801 2200"))
    put(tmp_path / "saved_model.pb", b"anything")
    found = discover(tmp_path)
    assert [(run.name, run.format, run.rank, [file.path for file in run.graph_files]) for run in found.runs] == [
        (".", "tensorboard", None, []),
        ("ms_output", "mindspore", None, [str(graph)]),
        ("rank_0", "mindspore", 0, []),
        ("rank_1", "mindspore", 1, []),
    ]
    assert found.problems == ()


# --- roles, twins, archives


def test_both_formats_in_one_directory_are_two_runs(tmp_path: Path) -> None:
    put(tmp_path / mindspore_name(), MS)
    put(tmp_path / tensorboard_name(), TB)
    logdir = discover(tmp_path)
    assert [(run.name, run.format, run.role) for run in logdir.runs] == [
        (".", "mindspore", "source"),
        (".", "tensorboard", "source"),
    ]
    assert logdir.twins == ()


def test_our_files_beside_mindspore_files_are_twins(tmp_path: Path) -> None:
    put(tmp_path / mindspore_name(), MS)
    put(tmp_path / mindspore_name(rank=1), MS)
    put(tmp_path / tensorboard_name(START, "a"), LIVE)
    put(tmp_path / tensorboard_name(START, "b"), CONVERT)
    put(tmp_path / tensorboard_name(START, "c"), CONVERT)
    logdir = discover(tmp_path)
    assert names(logdir.runs) == ["rank_0", "rank_1"]
    assert [(run.role, len(run.files)) for run in logdir.twins] == [("live", 1), ("convert", 2)]


def test_our_files_alone_are_runs_of_their_role(tmp_path: Path) -> None:
    put(tmp_path / "converted" / tensorboard_name(), CONVERT)
    put(tmp_path / "lived" / tensorboard_name(), LIVE)
    put(tmp_path / "lived" / mindspore_name(), build_record(version_payload("mindspore")))
    put(tmp_path / "all" / tensorboard_name(START, "a"), TB)
    put(tmp_path / "all" / tensorboard_name(START, "b"), LIVE)
    put(tmp_path / "all" / tensorboard_name(START, "c"), CONVERT)
    put(tmp_path / "all" / tensorboard_name(START, "d"), build_file("tensorboard", [1], writer="somebody/else"))
    logdir = discover(tmp_path)
    assert [(run.name, run.role, len(run.files)) for run in logdir.runs] == [
        ("all", "source", 2),
        ("all/convert", "convert", 1),
        ("all/live", "live", 1),
        ("converted", "convert", 1),
        ("lived", "live", 1),
    ]
    assert logdir.twins == ()


def test_archives_go_to_the_run_that_could_not_hold_them(tmp_path: Path) -> None:
    name = "ms_summary_bridge.{}.archive"
    put(tmp_path / "tb" / tensorboard_name(), CONVERT)
    for source in ("mindspore", "mindspore_lineage", "tensorboard"):
        put(tmp_path / "tb" / name.format(source), MS)
    put(tmp_path / "ms" / mindspore_name(), MS)
    put(tmp_path / "ms" / name.format("tensorboard"), TB)
    put(tmp_path / "nothing_else" / name.format("tensorboard"), TB)
    logdir = discover(tmp_path)
    assert [
        (run.name, run.format, run.role, len(run.files), [re.split(r"[./]", path)[-2] for path in run.archives])
        for run in logdir.runs
    ] == [
        ("ms", "mindspore", "source", 1, []),
        ("nothing_else", "mindspore", "convert", 0, ["tensorboard"]),
        ("tb", "tensorboard", "convert", 1, ["mindspore", "mindspore_lineage"]),
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ms_summary_bridge.mindspore.archive", True),
        ("ms_summary_bridge.tensorboard.archive", True),
        ("events.out.tfevents.1.host.archive", False),
        ("ms_summary_bridge.json", False),
    ],
)
def test_archive_names(name: str, expected: bool) -> None:
    assert is_archive(name) is expected
