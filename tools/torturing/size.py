"""Sizes that hardly anybody has: records, files, runs, tags, steps and names at their limits, and beyond.

Each case runs in a process of its own, whose memory and processor time have a bound.
"""

from __future__ import annotations

import json
import os
import resource
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from crc32c import crc32c

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parents[1])]

from ms_summary_bridge import convert_logdir, verify_logdirs
from ms_summary_bridge.files.event_file import EventFileReader
from ms_summary_bridge.files.file_ends import last_wall_time
from ms_summary_bridge.files.records import Damage, encode_record
from ms_summary_bridge.formats.mindspore import MindSporeDecoder
from ms_summary_bridge.formats.wire import FLOAT32, fixed64, length_delimited, varint
from ms_summary_bridge.runs.logdir import discover
from ms_summary_bridge.states.reading import Reading
from ms_summary_bridge.states.tree import Tree
from torturing.report import Row

NAME = "size"

_GIB = 1 << 30
_START = 1_700_000_000
_MS_NAME = f"events.out.events.summary.{_START}.0.host_MS"
_TB_NAME = f"events.out.tfevents.{_START}.host.1.0"


def _scalar(step: int, tag: str = "loss", *, is_mindspore: bool = True) -> bytes:
    key = b"\x1d" if is_mindspore else b"\x15"
    value = length_delimited(b"\x0a", tag.encode()) + key + FLOAT32.pack(step % 1000)
    head = fixed64(b"\x09", _START + step / 1000) + b"\x10" + varint(step)
    return encode_record(head + length_delimited(b"\x2a", length_delimited(b"\x0a", value)))


def _version(*, is_mindspore: bool = True) -> bytes:
    text = b"MindSpore.Event:1" if is_mindspore else b"brain.Event:2"
    return encode_record(fixed64(b"\x09", _START) + length_delimited(b"\x1a", text))


def _header(length: int) -> bytes:
    head = struct.pack("<Q", length)
    crc = crc32c(head)
    return head + struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def _put(path: Path, parts: Iterable[bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for part in parts:
            file.write(part)
    return path


def _expect_equal(row: Row, what: str, found: object, wanted: object) -> None:
    if found != wanted:
        row.fault(f"{what}: {str(found)[:300]}, and not {str(wanted)[:300]}")


def _convert(row: Row, source: Path, destination: Path, wanted: int, target: str = "tensorboard") -> None:
    report = convert_logdir(source, destination, to=target)
    values = sum(sum(run.values.values()) for run in report.runs)
    _expect_equal(row, f"values of {source.name} to {target}", values, wanted)
    _expect_equal(row, f"runs of {source.name} that failed", [run.failed for run in report.failures], [])


def try_record(row: Row, out: Path, scale: float) -> None:
    """A record above 1 GiB, of a sparse file: it is damage with its size, and what stands around it is read."""
    path = _put(out / "logs" / _MS_NAME, [_version(), _scalar(1), _header(_GIB + 1)])
    end = path.stat().st_size + _GIB + 1 + 4
    with path.open("r+b") as file:
        file.seek(end)
        file.write(_scalar(2))
    pieces = list(EventFileReader(path, MindSporeDecoder()))
    damage = [piece for piece in pieces if isinstance(piece, Damage)]
    row.tried, row.counted = 1, len(damage)
    _expect_equal(row, "events", len(pieces) - len(damage), 3)
    text = f"a record of {_GIB + 1} bytes is above the limit of {_GIB} bytes"
    _expect_equal(row, "damage", [(piece.reason, piece.end) for piece in damage], [(text, end)])
    _convert(row, out / "logs", out / "tb", 2)


def try_file(row: Row, out: Path, scale: float) -> None:
    """Records across bytes 2**31 and 2**32 of a sparse file, each read from a place before it, and at its end."""
    path = _put(out / "logs" / _MS_NAME, [_version(), _scalar(1)])
    places = [place - 20 for place in (1 << 31, 1 << 32, (1 << 32) + (1 << 29))]
    with path.open("r+b") as file:
        for number, place in enumerate(places, 2):
            file.seek(place)
            file.write(_scalar(number))
        size = file.tell()
    for number, place in enumerate(places, 2):
        row.tried += 1
        reader = EventFileReader(path, MindSporeDecoder(), offset=place - 100)
        for piece in reader:
            if step := getattr(piece, "step", None):
                _expect_equal(row, "step and offset", (step, reader.record_offset), (number, place))
                break
    last = last_wall_time(path, MindSporeDecoder())
    _expect_equal(row, "last time", last, _START + (len(places) + 1) / 1000)
    if scale < 1:
        return  # the rest reads all of it, some times
    _convert(row, out / "logs", out / "tb", len(places) + 1)
    _convert(row, out / "logs", out / "tb", 0)
    with path.open("ab") as file:
        file.write(_scalar(9))
    _expect_equal(row, "size", path.stat().st_size, size + len(_scalar(9)))
    _convert(row, out / "logs", out / "tb", 1)
    if not verify_logdirs(out / "logs", out / "tb").is_equal:
        row.fault("verify finds a difference")


def try_runs(row: Row, out: Path, scale: float) -> None:
    """100,000 runs: found by `inspect` and `convert`, and listed by `watch` and the page."""
    row.tried = max(100, int(100_000 * scale))
    content = _version() + _scalar(1)
    for number in range(row.tried):
        path = out / "logs" / f"group_{number // 1000}" / f"run_{number}"
        path.mkdir(parents=True)
        (path / _MS_NAME).write_bytes(content)
    _expect_equal(row, "runs", len(discover(out / "logs").runs), row.tried)
    tree = Tree(str(out / "logs"))
    _expect_equal(row, "runs of the tree", len(tree.find(time.time(), Reading())), row.tried)


def try_tags(row: Row, out: Path, scale: float) -> None:
    """100,000 tags in a run, to the other format and back."""
    row.tried = max(100, int(100_000 * scale))
    tags = [f"layer_{number // 10}/weight_{number}" for number in range(row.tried)]
    _put(out / "logs" / _MS_NAME, [_version(), *(_scalar(1, tag) for tag in tags)])
    _convert(row, out / "logs", out / "tb", row.tried)
    _convert(row, out / "tb", out / "back", row.tried, "mindinsight")
    if not verify_logdirs(out / "logs", out / "back").is_equal:
        row.fault("verify finds a difference")


def try_files(row: Row, out: Path, scale: float) -> None:
    """10,000 files in a run."""
    row.tried = max(20, int(10_000 * scale))
    for number in range(row.tried):
        name = f"events.out.tfevents.{_START + number}.host.1.{number}"
        _put(out / "logs" / name, [_version(is_mindspore=False), _scalar(number, is_mindspore=False)])
    _convert(row, out / "logs", out / "ms", row.tried, "mindinsight")
    _convert(row, out / "logs", out / "ms", 0, "mindinsight")
    if not verify_logdirs(out / "logs", out / "ms").is_equal:
        row.fault("verify finds a difference")


def try_steps(row: Row, out: Path, scale: float) -> None:
    """10 million steps of a scalar."""
    row.tried = max(10_000, int(10_000_000 * scale))
    _put(out / "logs" / _MS_NAME, [_version()])
    with (out / "logs" / _MS_NAME).open("ab") as file:
        for step in range(1, row.tried + 1):
            file.write(_scalar(step))
    _convert(row, out / "logs", out / "tb", row.tried)
    if not verify_logdirs(out / "logs", out / "tb").is_equal:
        row.fault("verify finds a difference")


def try_names(row: Row, out: Path, scale: float) -> None:
    """Names at each limit: 255 bytes, a path of nearly 4,096, tags of a megabyte, every script, and bytes of none."""
    parts = [
        "n" * 255,
        "名" * 85,
        "\U0001f600" * 63,
        "e\u0301\u202e\u200f",
        "a b\tc\nd",
        "\\x",
        "~h0",
        "+",
        "%s{0}",
        b"\xff\xfe",
    ]
    runs = [os.fsencode(part) for part in parts]
    room = 4095 - len(os.fsencode(out / "logs")) - len(_TB_NAME) - 2
    deep = b"/".join([b"d" * 200] * (room // 201))
    runs += [deep, os.fsencode("x" * 250) + b"/" + os.fsencode("y" * 250)]
    tags = [
        "t" * (1 << 20),
        "标签" * 500,
        "\U0001f600",
        "a\0b",
        "",
        "/",
        "../x",
        "e\u0301",
        "tab\tnew\nline",
        "%s{0}$HOME",
    ]
    for run in runs:
        path = os.path.join(os.fsencode(out / "logs"), run)
        os.makedirs(path)
        with open(os.path.join(path, os.fsencode(_TB_NAME)), "wb") as file:
            file.write(_version(is_mindspore=False))
            for step in (1, 2):
                for tag in tags:
                    file.write(_scalar(step, tag, is_mindspore=False))
    row.tried = len(runs) * len(tags)
    _convert(row, out / "logs", out / "ms", 2 * row.tried, "mindinsight")
    if not verify_logdirs(out / "logs", out / "ms").is_equal:
        row.fault("verify finds a difference")
    report = convert_logdir(out / "ms", out / "b", to="tensorboard")
    _expect_equal(row, "runs that failed on the way back", [run.failed for run in report.failures], [])
    back, first = ({run.name for run in discover(out / name).runs} for name in ("b", "logs"))
    _expect_equal(row, "names that came back", back, first)


CASES: dict[str, tuple[Callable[[Row, Path, float], None], int, float]] = {
    "a record above 1 GiB": (try_record, 200, 30),
    "files above 4 GiB": (try_file, 200, 120),
    "100,000 runs": (try_runs, 600, 120),
    "100,000 tags": (try_tags, 600, 60),
    "10,000 files in a run": (try_files, 200, 120),
    "10 million steps": (try_steps, 200, 150),
    "names at every limit": (try_names, 400, 30),
}
"""What is tried, the MiB that it may take, and the seconds of processor time at full size."""


def run(budget_seconds: float, out: Path, scale: float = 1.0) -> list[Row]:
    """Tries all cases, those that are left out for want of time are told."""
    end = time.monotonic() + budget_seconds
    return [_try(name, out / str(number), scale, end - time.monotonic()) for number, name in enumerate(CASES)]


def _try(name: str, out: Path, scale: float, seconds: float) -> Row:
    row = Row(name if scale == 1 else f"{name}, times {scale:g}")
    _, mib, cpu = CASES[name]
    out.mkdir()
    words = [sys.executable, str(Path(__file__).resolve()), name, str(scale), str(out)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=max(10.0, seconds), check=False)
    except subprocess.TimeoutExpired:
        row.fault(f"{name}: not done in {seconds:.0f} s")
        return row
    if done.returncode:
        row.fault(f"{name}: {done.stderr[-600:]}")
        return row
    found = json.loads(done.stdout)
    row.tried, row.counted = found["tried"], found["counted"]
    for text in found["details"]:
        row.fault(f"{name}: {text}")
    print(f"{row.what}: {found['mib']:.0f} MiB, {found['cpu']:.1f} s of processor time", file=sys.stderr)
    if found["mib"] > mib:
        row.fault(f"{name}: took {found['mib']:.0f} MiB, more than {mib}")
    if found["cpu"] > cpu:
        row.fault(f"{name}: took {found['cpu']:.0f} s of processor time, more than {cpu:g}")
    return row


def _peak_kib() -> int:
    """Returns the most memory that this process has had; `ru_maxrss` begins with that of whoever started it."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))


def _main(name: str, scale: float, out: Path) -> None:
    row = Row(name)
    CASES[name][0](row, out, scale)
    used, below = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    mib = max(_peak_kib(), below.ru_maxrss) / 1024
    cpu = used.ru_utime + used.ru_stime + below.ru_utime + below.ru_stime
    print(json.dumps({"tried": row.tried, "counted": row.counted, "details": row.details, "mib": mib, "cpu": cpu}))


if __name__ == "__main__":
    _main(sys.argv[1], float(sys.argv[2]), Path(sys.argv[3]))
