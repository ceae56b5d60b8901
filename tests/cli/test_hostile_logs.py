"""Logs from somebody who means harm: names, links, pipes and bombs in a directory, and every command on it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import struct
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from ms_summary_bridge.cli.app import main
from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.convert.names import NAME_FILE
from ms_summary_bridge.convert.state import STATE_NAME, load_state
from ms_summary_bridge.errors import DamagedStateError
from ms_summary_bridge.files.file_names import HANG_LOG, JOURNAL, archive_name, is_archive
from ms_summary_bridge.formats import wire
from ms_summary_bridge.formats.plugin_data import WRITER_CONVERT
from ms_summary_bridge.runs.logdir import Run, discover
from tests.scripted import FORMATS, START, build_file, build_record, mindspore_name, put, tensorboard_name

NAMES = [
    tensorboard_name(),
    mindspore_name(),
    mindspore_name() + "_lineage",
    archive_name("mindspore"),
    archive_name("tensorboard"),
    archive_name("mindspore_lineage"),
    STATE_NAME,
    NAME_FILE,
    JOURNAL,
    "metrics.1.jsonl",
    HANG_LOG,
    "checkpoints.json",
    "runs.csv",
    "graph.pb",
    "plog-1234_20260101.log",
    "x_ascend_ms/ASCEND_PROFILER_OUTPUT/trace_view.json",
    "x_ascend_ms/ASCEND_PROFILER_OUTPUT/step_trace_time.csv",
    "x_ascend_ms/ASCEND_PROFILER_OUTPUT/op_statistic.csv",
    "x_ascend_ms/profiler_info_0.json",
    "rank_0/" + JOURNAL,
    "rank_0/" + HANG_LOG,
    "step0/rank0/statistic.csv",
]
WHOLE = {tensorboard_name(), mindspore_name(), mindspore_name() + "_lineage", STATE_NAME}
HOLE_BYTES = 64 << 20
COMMANDS = {
    "inspect": ["inspect", "{logs}"],
    "convert": ["convert", "{logs}", "{out}/tb", "--to", "tensorboard"],
    "to mindinsight": ["convert", "{logs}", "{out}/ms", "--to", "mindinsight"],
    "verify": ["verify", "{logs}", "{logs}"],
    "export": ["export", "{logs}", "{out}/csv", "--format", "jsonl"],
    "export runs": ["export", "{logs}", "{out}/runs", "--format", "runs"],
    "diff": ["diff", "{logs}", "{logs}"],
    "diagnose": ["diagnose", "{logs}", "--cann-log", "{logs}"],
    "doctor": ["doctor", "{logs}"],
    "watch": ["watch", "{logs}", "--once"],
    "aggregate": ["aggregate", "{logs}", "{out}/aggregate"],
}


def plant(directory: Path, make: Callable[[str], object], names: Sequence[str] = ()) -> None:
    """Makes something in the place of each file that any command reads, beside two good runs."""
    for file_format, name in zip(FORMATS, (mindspore_name(), tensorboard_name()), strict=True):
        put(directory / f"good-{file_format}" / name, build_file(file_format, range(3)))
    for name in names or NAMES:
        for parent in ("bad", *((f"alone/{name.replace('/', '_')}",) if not names else ())):
            path = directory / parent / name
            path.parent.mkdir(parents=True, exist_ok=True)
            make(str(path))


def make_socket(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as end:
        here = os.getcwd()
        os.chdir(os.path.dirname(path))  # its name may be 107 bytes long
        try:
            end.bind(os.path.basename(path))
        finally:
            os.chdir(here)


def make_hole(path: str) -> None:
    with open(path, "wb") as file:
        file.truncate(HOLE_BYTES)


PLANTED: dict[str, Callable[[str], object]] = {
    "pipe": os.mkfifo,
    "device": lambda path: os.symlink("/dev/zero", path),
    "socket": make_socket,
    "directory": os.makedirs,
    "loop": lambda path: os.symlink(os.path.basename(path), path),
}


def call(words: list[str], logs: Path, out: Path) -> int:
    return main([word.format(logs=logs, out=out) for word in words])


@pytest.mark.parametrize("kind", PLANTED)
def test_what_is_no_file_is_neither_waited_for_nor_read(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(tmp_path / "logs", PLANTED[kind])
    for name, words in COMMANDS.items():
        code = call(words, tmp_path / "logs", tmp_path / "out")
        said = "".join(capsys.readouterr())
        assert "Traceback" not in said, name
        assert code in (0, 1, 3, 5) or (name, code) == ("diff", 2), (name, said)  # several runs
    assert list((tmp_path / "out" / "tb" / "good-mindspore").glob("*tfevents*"))
    assert list((tmp_path / "out" / "ms" / "good-tensorboard").glob("*summary*"))


def test_much_of_nothing_takes_no_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each file a hole, without the end of a line; of those of records test_event_file speaks."""
    plant(tmp_path / "logs", make_hole, [name for name in NAMES if name not in WHOLE and not is_archive(name)])
    with peak_memory() as peak:
        for name, words in COMMANDS.items():
            code = call(words, tmp_path / "logs" / "bad", tmp_path / "out" / name)
            assert code in (0, 1, 2, 3, 5), (name, capsys.readouterr())
            assert peak() < 46 << 20, name


def test_a_state_or_a_graph_above_the_limit_is_not_read(tmp_path: Path) -> None:
    put(tmp_path / "out" / STATE_NAME, b"{}")
    put(tmp_path / "logs" / "graph.pb", b"\x08\x01\x12\x01a\x22" + wire.varint(1 << 31))
    for path in (tmp_path / "out" / STATE_NAME, tmp_path / "logs" / "graph.pb"):
        os.truncate(path, (1 << 31) + 10)
    with peak_memory() as peak:
        with pytest.raises(DamagedStateError, match="more than 1073741824 bytes"):
            load_state(str(tmp_path / "out"))
        assert "a record of 2147483658 bytes is above" in str(discover(tmp_path / "logs").problems)
        assert peak() < 1 << 20


# --- names that lead out


@contextlib.contextmanager
def peak_memory() -> Iterator[Callable[[], int]]:
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def chunk(name: bytes, content: bytes) -> bytes:
    """Builds a part of a PNG."""
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


PIXEL = (
    b"\x89PNG\r\n\x1a\n"
    + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    + chunk(b"IDAT", zlib.compress(bytes(4)))
    + chunk(b"IEND", b"")
)


def outside(directory: Path, inside: Path) -> list[str]:
    """Returns all below a directory but what is below another one."""
    return sorted(str(path) for path in directory.rglob("*") if inside not in (path, *path.parents))


def converted_run(directory: Path) -> bytes:
    """Returns a summary file that a conversion has made."""
    for name in ("a", "b"):
        put(directory / "first" / name / tensorboard_name(), build_file("tensorboard", range(3)))
    convert_logdir(directory / "first", directory / "converted")
    (made,) = (directory / "converted" / "a").glob("*out.events.summary*")
    return made.read_bytes()


LEADING_OUT = ["..+..+evil", "a+..+..+..+..+evil", "+tmp+msb_evil", "a++b", ".+q", "..+", "+", "+..", ".", "..", ""]


def with_note(whole: str) -> str:
    """Returns a directory's name that ends as a shortened one does, whose file tells that it was `whole`."""
    return f"x~h{hashlib.blake2b(whole.encode(), digest_size=8).hexdigest()}"


@pytest.mark.parametrize("is_forced", [False, True])
def test_names_of_converted_runs_lead_nowhere_else(tmp_path: Path, is_forced: bool) -> None:
    """What a conversion flattened and shortened is a path again on the way back; anybody can make such names."""
    logs, out = tmp_path / "logs", tmp_path / "deep" / "er" / "out"
    made = converted_run(tmp_path)
    for name in LEADING_OUT:
        if name not in ("", ".", ".."):
            put(logs / name / mindspore_name(), made)
        put(logs / with_note(name) / mindspore_name(), made)
        put(logs / with_note(name) / NAME_FILE, name.encode())
    out.mkdir(parents=True)
    victim = put(out.parent / tensorboard_name(tail="host.0000"), build_file("tensorboard", [9], writer=WRITER_CONVERT))
    before = outside(tmp_path, out)
    for _ in range(2):
        report = convert_logdir(logs, out, force=is_forced)
        assert not report.failures
        assert len(report.runs) == len(list(logs.iterdir()))
    assert outside(tmp_path, out) == before
    assert victim.read_bytes() == build_file("tensorboard", [9], writer=WRITER_CONVERT)
    assert not Path("/tmp/msb_evil").exists()


@pytest.mark.parametrize("file_format", FORMATS)
def test_names_in_a_zip_lead_nowhere_else(tmp_path: Path, file_format: str) -> None:
    name = tensorboard_name() if file_format == "tensorboard" else mindspore_name()
    places = ["../../evil/", f"{tmp_path}/evil/", "a/../../../evil/", "../", "./q/", "//r/", "..\\..\\w/", "ok/"]
    with zipfile.ZipFile(tmp_path / "logs.zip", "w") as archive:
        for place in places:
            archive.writestr(place + name, build_file(file_format, range(3)))
    out = tmp_path / "deep" / "er" / "out"
    out.mkdir(parents=True)
    before = outside(tmp_path, out)
    report = convert_logdir(f"zip://::file://{tmp_path}/logs.zip", out)
    assert not report.failures
    assert outside(tmp_path, out) == before
    assert "ok" in [run.run for run in report.runs]
    assert any("leads out of its directory" in text for text in report.unreadable)
    assert not any({"", "..", "."} & {*run.name.split("/")} for run in discover_names(tmp_path / "logs.zip"))


def discover_names(archive: Path) -> list[Run]:
    return [run for run in discover(f"zip://::file://{archive}").runs if run.name != "."]


TAGS = [
    "../../evil",
    "/etc/evil",
    "a/../../../evil",
    "nul\0in/it",
    "CON",
    "aux.png",
    "..",
    ".",
    "",
    "a\\..\\b",
    "x" * 400,
]


@pytest.mark.parametrize("file_format", FORMATS)
def test_tags_lead_nowhere_else(tmp_path: Path, file_format: str, capsys: pytest.CaptureFixture[str]) -> None:
    logs, out = tmp_path / "logs", tmp_path / "deep" / "er" / "out"
    events = [picture_event(tag, step, PIXEL) for step in range(2) for tag in TAGS]
    name = tensorboard_name() if file_format == "tensorboard" else mindspore_name()
    put(logs / "run" / name, build_file(file_format, []) + b"".join(map(build_record, events)))
    out.mkdir(parents=True)
    before = outside(tmp_path, out)
    target = "mindinsight" if file_format == "tensorboard" else "tensorboard"
    commands = [["convert", str(logs), str(out / "other"), "--to", target]]
    commands += [["export", str(logs), str(out / kind), "--format", kind] for kind in ("csv", "jsonl", "images")]
    for words in commands:
        assert main(words) == 0, capsys.readouterr()
    assert outside(tmp_path, out) == before
    assert len([path for path in (out / "images").rglob("*.png") if path.is_file()]) == 2 * len(TAGS)


def picture_event(tag: str, step: int, picture: bytes) -> bytes:
    """Builds an event with an image under a tag, the same in both formats."""
    image = b"\x08\x01\x10\x01\x18\x03" + wire.length_delimited(b"\x22", picture)
    value = wire.length_delimited(b"\x0a", tag.encode()) + wire.length_delimited(b"\x22", image)
    head = wire.fixed64(b"\x09", START + step) + b"\x10" + wire.varint(step)
    return head + wire.length_delimited(b"\x2a", wire.length_delimited(b"\x0a", value))


# --- bombs


SIDE = 50_000
BOMBS = {
    "png": b"\x89PNG\r\n\x1a\n"
    + chunk(b"IHDR", struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)) + chunk(b"IEND", b""),
    "gif": b"GIF89a" + struct.pack("<HHBBB", SIDE, SIDE, 0x80, 0, 0) + bytes(6)
    + b"," + struct.pack("<HHHHB", 0, 0, SIDE, SIDE, 0) + b"\x02\x02\x4c\x01\x00;",
    "bmp": b"BM" + struct.pack("<IIIIiiHHIIiiII", 54, 0, 54, 40, SIDE, SIDE, 1, 24, 0, 0, 0, 0, 0, 0),
    "ppm": b"P6 50000 50000 255\n" + bytes(300),
    "large gif": b"GIF89a" + struct.pack("<HHBBB", 13_000, 13_000, 0x80, 0, 0) + bytes(6)
    + b"," + struct.pack("<HHHHB", 0, 0, 13_000, 13_000, 0) + b"\x02\x02\x4c\x01\x00;",
}  # fmt: skip


def test_pictures_of_many_pixels_are_not_drawn(tmp_path: Path) -> None:
    """A PNG goes on as it is, and nothing else of such a size: it is a loss."""
    events = [picture_event(name, 1, picture) for name, picture in BOMBS.items()]
    put(tmp_path / "logs" / tensorboard_name(), build_file("tensorboard", []) + b"".join(map(build_record, events)))
    with peak_memory() as peak:
        report = convert_logdir(tmp_path / "logs", tmp_path / "out")
        assert peak() < 8 << 20
    (run,) = report.runs
    assert {loss.tag for loss in run.losses if "pixels" in loss.reason} == {*BOMBS} - {"png"}
    (output,) = (tmp_path / "out").glob("*out.events.summary*")
    assert BOMBS["png"] in output.read_bytes()


def test_a_zip_that_unpacks_to_a_thousand_times_its_size(tmp_path: Path) -> None:
    """It is read in pieces, as often as the same file outside of one would be."""
    with (
        zipfile.ZipFile(tmp_path / "logs.zip", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open(f"run/{tensorboard_name()}", "w") as file,
    ):
        file.write(build_file("tensorboard", range(3)))
        for _ in range(64):
            file.write(bytes(1 << 20))
    assert (tmp_path / "logs.zip").stat().st_size < 128 << 10
    with peak_memory() as peak:
        report = convert_logdir(f"zip://::file://{tmp_path}/logs.zip", tmp_path / "out")
        assert peak() < 48 << 20
    assert [(run.run, run.values, run.failed) for run in report.runs] == [("run", {"scalar": 3}, "")]


NESTED = b"[" * 200_000
DEEP: dict[str, bytes] = {
    "lists": NESTED,
    "in a line": b'{"kind": "sample", "values": ' + NESTED,
    "object": b'{"a":' * 200_000,
}


@pytest.mark.parametrize("content", DEEP.values(), ids=DEEP)
def test_json_of_a_depth_that_nobody_writes(tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    head = b'{"kind": "header", "ranks": 1, "wall_time": 1.0}\n'
    plant(tmp_path / "logs", lambda path: Path(path).write_bytes(head + content + b"\n"))
    for name, words in COMMANDS.items():
        code = call(words, tmp_path / "logs", tmp_path / "out")
        said = "".join(capsys.readouterr())
        assert "Traceback" not in said, name
        assert "Recursion" not in said, name
        assert code in (0, 1, 3, 5) or (name, code) == ("diff", 2), (name, said)
