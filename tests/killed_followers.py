"""Follows a growing source with one process after the other, each killed (SIGKILL) at a random moment.

Usage: python tests/killed_followers.py mindspore|tensorboard TOP KILLS SEED

TOP/source grows by pieces that end anywhere, inside records too; the followers write TOP/followed. They are forked, so
200 of them take seconds. Three of four kill themselves at a random one of their calls that change a file, a write after
a random part of its bytes; the others are killed by their parent while it appends. The last one is let go on until
nothing is left to do. Prints how many were killed.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ms_summary_bridge.convert.follow import follow_logdir
from ms_summary_bridge.formats.plugin_data import WRITER_USER, encode_writer
from ms_summary_bridge.formats.wire import FLOAT32, fixed64, length_delimited, varint
from ms_summary_bridge.runs.report import Report
from tests.mindspore_run import START, event, histogram, image, scalar, summary_bytes, summary_name, tensor
from tests.scripted import build_record, mindspore_name, tensorboard_name, version_payload

Growth = list[tuple[str, bytes]]
"""Files below the source and what is appended to them, in the order in which it happens."""


def mindspore_file(path: str, steps: Iterable[int], *, start: float = START, tags: Iterable[str] = ("loss",)) -> Growth:
    """A file with every kind, one record after the other."""
    grown = [(path, summary_bytes([], wall_time=start))]
    head = len(grown[0][1])
    for step in steps:
        values = [(tag, scalar(step + start)) for tag in tags]
        values += [("h", histogram([step, 1])), ("t", tensor([step])), ("loss", histogram([2, step])), ("i", image())]
        item = event(step, *values, wall_time=start + step)
        grown.append((path, summary_bytes([item], wall_time=start)[head:]))
    return grown


def lineage_file(path: str, bodies: Iterable[bytes]) -> Growth:
    records = [(path, build_record(version_payload("mindspore")))]
    return records + [
        (path, build_record(fixed64(b"\x09", START + n) + length_delimited(b"\x32", body)))
        for n, body in enumerate(bodies)
    ]


def tensorboard_file(
    path: str,
    steps: Iterable[int],
    *,
    start: float = START,
    tag: str = "loss",
    session: int | None = None,
    writer: str = "",
) -> Growth:
    """A file with one scalar for each step, and one text; `writer` makes it a live file of values that a user wrote."""
    live = "ms_summary_bridge/live" if writer else ""
    grown = [(path, build_record(version_payload("tensorboard", writer=live, wall_time=start)))]
    if session is not None:
        grown.append((path, build_record(fixed64(b"\x09", start) + b"\x10" + varint(session) + b"\x3a\x02\x08\x01")))
    for step in steps:
        plugin = length_delimited(b"\x4a", length_delimited(b"\x0a", length_delimited(b"\x0a", b"text")))
        text = (
            length_delimited(b"\x0a", f"{tag}/note".encode()) + plugin + length_delimited(b"\x42", b"\x08\x07\x42\x01x")
        )
        value = length_delimited(b"\x0a", tag.encode()) + b"\x15" + FLOAT32.pack(step + start)
        body = length_delimited(b"\x0a", value) + (b"" if writer else length_delimited(b"\x0a", text))
        payload = fixed64(b"\x09", start + step) + b"\x10" + varint(step) + length_delimited(b"\x2a", body)
        grown.append((path, build_record(payload + encode_writer(writer))))
    return grown


def sources_of_mindspore() -> list[Growth]:
    """Files that grow beside each other; what is in one list comes one after the other."""
    later = START + 1000
    return [
        mindspore_file(f"alone/{summary_name()}", range(60)),
        lineage_file(f"alone/{mindspore_name(suffix='_lineage')}", [b"\x0a\x03net", b"\x0a\x04net2", b"\x0a\x03end"]),
        [
            *mindspore_file(f"again/{summary_name()}", range(30)),
            *mindspore_file(f"again/{summary_name(seconds=later)}", range(20, 45), start=later),
            *mindspore_file(f"again/{summary_name(seconds=later + 9)}", range(5), start=later + 9, tags=["other"]),
            *mindspore_file(f"again/{summary_name(seconds=later + 99)}", range(40, 60), start=later + 99),
        ],
        mindspore_file(f"ranks/{summary_name(rank=0)}", range(30)),
        mindspore_file(f"ranks/{summary_name(rank=1)}", range(30)),
        mindspore_file(f"bridged/{summary_name()}", range(30)),
        tensorboard_file(f"bridged/{tensorboard_name()}", range(90), tag="mine", writer=WRITER_USER),
    ]


def sources_of_tensorboard() -> list[Growth]:
    """As `sources_of_mindspore`; the run `beside` has two writers at once, on different scales."""
    later = START + 1000
    return [
        tensorboard_file(f"alone/{tensorboard_name()}", range(90)),
        tensorboard_file(f"beside/{tensorboard_name()}", range(0, 900, 10), tag="train/loss"),
        tensorboard_file(f"beside/{tensorboard_name(START + 1)}", range(60), tag="eval/acc", start=START + 1),
        [
            *tensorboard_file(f"again/{tensorboard_name()}", range(30)),
            *tensorboard_file(f"again/{tensorboard_name(later)}", range(20, 45), start=later, session=20),
            *tensorboard_file(f"again/{tensorboard_name(later + 99)}", range(40, 60), start=later + 99),
        ],
    ]


class Source:
    """Grows by pieces of random sizes, each file in its order."""

    def __init__(self, top: Path, files: list[Growth], rng: random.Random, pieces: int) -> None:
        self._top = top
        self._rng = rng
        self._files = files
        total = sum(len(data) for growth in files for _, data in growth)
        self._mean = total // pieces + 1

    @property
    def is_whole(self) -> bool:
        return not any(self._files)

    def grow(self) -> None:
        """Appends one piece to one of the files that are not whole yet."""
        if self.is_whole:
            return
        growth = self._rng.choice([growth for growth in self._files if growth])
        wanted = self._rng.randint(1, 2 * self._mean)
        while growth and wanted > 0:
            path, data = growth.pop(0)
            taken, rest = data[:wanted], data[wanted:]
            wanted -= len(taken)
            if rest:
                growth.insert(0, (path, rest))
            (self._top / path).parent.mkdir(parents=True, exist_ok=True)
            with (self._top / path).open("ab") as file:
                file.write(taken)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_at_call(number: int, part: float) -> None:
    """Lets the process die at one of its next calls that change a file; a write is done in part before."""
    left = number

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                if call is write:
                    write(arguments[0], bytes(arguments[1])[: int(part * len(arguments[1]))])
                die()
            return call(*arguments, **options)

        return wrapper

    write = os.write
    for name in ("write", "replace", "unlink", "fsync", "makedirs"):
        setattr(os, name, counted(getattr(os, name)))


def follow(top: Path, tell: int | None = None) -> None:
    """Follows until nothing has come for some rounds; without a pause, since the clock is not what is tested.

    After each round it writes a byte to the pipe `tell`.
    """
    stop = threading.Event()
    idle = 0
    failed: list[str] = []

    def note(report: Report) -> None:
        nonlocal idle
        idle = -1
        failed.extend(run.failed for run in report.failures)

    def wait(seconds: float) -> None:
        nonlocal idle
        if tell is not None:
            os.write(tell, b".")
        idle += 1
        if idle > 6:
            stop.set()

    follow_logdir(str(top / "source"), str(top / "followed"), stop=stop, on_round=note, wait=wait)
    if failed:
        print("\n".join(failed), file=sys.stderr)
    os._exit(3 if failed else 0)


def main() -> int:
    source_format, top, kills, seed = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    rng = random.Random(seed)
    files = sources_of_mindspore() if source_format == "mindspore" else sources_of_tensorboard()
    source = Source(top / "source", files, rng, pieces=6 * kills)
    killed = 0
    while killed < kills:
        for _ in range(rng.randint(0, 3)):
            source.grow()
        kills_itself = rng.random() < 0.75
        number, part = rng.randint(1, 12), rng.random()
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            if kills_itself:
                die_at_call(number, part)
            follow(top, None if kills_itself else writer)
        os.close(writer)
        if not kills_itself:
            os.read(reader, 1)  # it has done its first round
            for _ in range(rng.randint(0, 4)):
                source.grow()
            for _ in range(rng.randint(0, 200_000)):  # it goes on meanwhile
                pass
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        os.close(reader)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status):
            return os.WEXITSTATUS(status)
        killed += os.WIFSIGNALED(status)
        if source.is_whole:  # too few pieces: the test fails by the number of kills
            break
    while not source.is_whole:
        source.grow()
    child = os.fork()
    if child == 0:
        follow(top)
    _, status = os.waitpid(child, 0)
    print(killed)
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main())
