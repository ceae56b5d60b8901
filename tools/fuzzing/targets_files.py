"""Targets: files of records, and all that a conversion makes of them."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
from collections.abc import Iterable
from typing import Any, Literal

from ms_summary_bridge.batches.reader import Batch, BatchReader
from ms_summary_bridge.batches.shapes import Shapes
from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.convert.names import flatten, shorten
from ms_summary_bridge.convert.state import STATE_NAME, load_state
from ms_summary_bridge.convert.task import ConvertOptions
from ms_summary_bridge.convert.verify import verify_logdirs
from ms_summary_bridge.errors import BridgeError
from ms_summary_bridge.events import Event
from ms_summary_bridge.files.event_file import EventFileReader, read_pieces
from ms_summary_bridge.files.file_names import (
    MINDSPORE,
    TENSORBOARD,
    archive_source,
    format_of_name,
    is_wanted,
    order_of_path,
    parse_name,
)
from ms_summary_bridge.files.record_decoder import RecordDecoder
from ms_summary_bridge.files.records import Incomplete, Piece, Record, encode_record
from ms_summary_bridge.formats.mindspore import MindSporeDecoder
from ms_summary_bridge.formats.protos import ms_pb, tb_pb
from ms_summary_bridge.formats.tensorboard import TensorBoardDecoder
from ms_summary_bridge.runs.archive import read_archive, restore
from ms_summary_bridge.runs.logdir import discover
from ms_summary_bridge.states.event_tail import EventTail
from ms_summary_bridge.states.facts import RankFacts
from ms_summary_bridge.states.reading import Reading
from tests.scripted import build_file, mindspore_name, tensorboard_name
from tools.fuzzing import agreement, data_server
from tools.fuzzing.target import Target, empty, put, scratch
from tools.fuzzing.targets_codecs import DATA, payloads

_START = 1_700_000_000
_SOURCE = b"@source@"
"""Stands in an input for where the source is, which differs."""
_MOST_PATH = 4095
"""Bytes that a path has at most."""


# ---------------------------------------------------------------- records


def take_records(data: bytes) -> None:
    """Any bytes as a file of records: pieces tile it, however it comes in, and both readers find the same."""
    size, data = (data[0] if data else 0) + 1, data[1:]
    whole = _pieces(data, len(data) or 1)
    _check_tiles(whole, len(data))
    assert _merged(_pieces(data, size)) == _merged(whole), "other pieces when the bytes come one after the other"
    path = put("records", data)
    assert _merged(read_pieces(path, chunk_bytes=size + 32)) == _merged(whole), "other pieces from a file"
    general = [item if isinstance(item, Event) else None for item in EventFileReader(path, MindSporeDecoder())]
    batched: list[Event | None] = []
    decoder, shapes = MindSporeDecoder(), Shapes(b"\x1d")
    reader = BatchReader(path, decoder, shapes)
    for item in reader:
        if isinstance(item, Batch):
            batched += item.decode(decoder)
            continue
        batched.append(item if isinstance(item, Event) else None)
        if isinstance(item, Event):
            shapes.learn(reader.payload, item, reader.payload)
    assert [item for item in batched if item] == [item for item in general if item], "other events in batches"


def _pieces(data: bytes, size: int) -> list[Piece]:
    decoder = RecordDecoder()
    found: list[Piece] = []
    for at in range(0, len(data), size):
        found += decoder.feed(data[at : at + size])
    return found + decoder.finish()


def _span(piece: Piece) -> tuple[int, int]:
    if isinstance(piece, Record):
        return piece.offset, piece.end
    if isinstance(piece, Incomplete):
        return piece.offset, piece.offset + piece.available
    return piece.start, piece.end


def _check_tiles(pieces: list[Piece], size: int) -> None:
    at = 0
    for piece in pieces:
        start, end = _span(piece)
        assert start == at, f"a gap before byte {start}"
        assert end > start, "an empty piece"
        at = end
    assert at == size, "bytes that no piece covers"


def _merged(pieces: Iterable[Piece]) -> list[object]:
    """Returns records, and where anything else lies, without the words."""
    found: list[object] = []
    for piece in pieces:
        kind = type(piece).__name__
        found.append(piece if isinstance(piece, Record) else (kind, *_span(piece)))
    return found


def _record_seeds() -> Iterable[bytes]:
    scalars = build_file("mindspore", range(12))
    yield b"\x3f" + scalars
    yield b"\x07" + scalars[:-5]
    yield b"\x3f" + scalars[:100] + bytes(64) + scalars[100:]
    yield b"\x3f" + scalars + bytes(40)
    yield b"\xff" + scalars[40:]


# ---------------------------------------------------------------- whole conversions


def take_conversion(data: bytes) -> None:
    """A file of events, converted: verify finds all of it, and every loader reads the output."""
    to, name = ("mindinsight", tensorboard_name()) if data[:1] >= b"\x80" else ("tensorboard", mindspore_name())
    source, output = empty("source"), empty("output")
    put(f"source/{name}", data[1:])
    report = convert_logdir(source, output, to=to)
    assert not report.failures, f"a run failed: {report.failures}"
    if not report.runs:
        return
    result = verify_logdirs(source, output)
    assert result.is_equal, f"verify: {result}"
    for directory, _, names in os.walk(output):
        for found in names:
            if found.startswith("events.out.tfevents."):
                agreement.check_file(os.path.join(directory, found))
            elif found.startswith("events.out.events.") and not found.endswith("_lineage"):
                for piece in read_pieces(os.path.join(directory, found)):
                    assert isinstance(piece, Record), "an output that is not whole"
                    agreement.check_mindspore(piece.payload)
    before = _snapshot(output)
    convert_logdir(source, output, to=to)
    assert _snapshot(output) == before, "converted again, the output is another one"


def ask_data_server() -> None:
    """Asks TensorBoard's data server for what the last input became."""
    output = os.path.join(scratch(), "output")
    if data_server.is_installed() and os.path.isdir(output):
        _data_server().check(output)


@functools.cache
def _data_server() -> data_server.DataServer:
    return data_server.DataServer(scratch())


def _snapshot(directory: str) -> dict[str, bytes]:
    found = {}
    for place, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(place, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, directory)] = file.read()
    return found


def _conversion_seeds() -> Iterable[bytes]:
    yield b"\0" + build_file("mindspore", [0, 1, 2, 2, 3])
    yield b"\xff" + build_file("tensorboard", [0, 1, 2, 2, 3])
    yield b"\xff" + (DATA / "tensorboardx-2.6.5.bin").read_bytes()
    small = [payload for payload in payloads("mindspore-2.10-summary") if len(payload) < 3000]
    yield b"\0" + b"".join(map(encode_record, small))


# ---------------------------------------------------------------- state and archive


def take_state(data: bytes) -> None:
    """Any bytes as the state of a destination: refused, or gone on with, and then nothing of the source is missing."""
    is_back = b'"to": "mindinsight"' in data
    output = empty("stated")
    shutil.copytree(_made(TENSORBOARD if is_back else MINDSPORE), output, dirs_exist_ok=True)
    with open(os.path.join(output, STATE_NAME), "wb") as file:
        file.write(data.replace(_SOURCE, scratch().encode()))
    with_state = load_state(output)
    for run in with_state.runs.values():
        run.list_turns()
    to = with_state.to if with_state.to in ("tensorboard", "mindinsight") else "tensorboard"
    source = _tiny_source("mindspore" if to == "tensorboard" else "tensorboard")
    with contextlib.suppress(BridgeError):
        verify_logdirs(source, output)
    latest = with_state.options.get("on_restart") == "latest"
    convert_logdir(source, output, to=to, options=ConvertOptions(on_restart="latest" if latest else "mark"))
    verify_logdirs(source, output)


def _tiny_source(form: str) -> str:
    """Returns a source with a run that began anew once; made when it is first asked for."""
    directory = os.path.join(scratch(), f"tiny_{form}")
    if not os.path.isdir(directory):
        name = mindspore_name() if form == MINDSPORE else tensorboard_name()
        put(f"tiny_{form}/run/{name}", build_file(form, [0, 1, 2, 1, 2, 3]))
        put(
            f"tiny_{form}/run/{name.replace(str(_START), str(_START + 900))}",
            build_file(form, range(2), start=_START + 900),
        )
    return directory


def _made(form: str, on_restart: Literal["mark", "latest"] = "mark") -> str:
    """Returns the conversion of that source; made when it is first asked for."""
    output = os.path.join(scratch(), f"made_{form}_{on_restart}")
    if not os.path.isdir(output):
        to = "tensorboard" if form == MINDSPORE else "mindinsight"
        convert_logdir(_tiny_source(form), output, to=to, options=ConvertOptions(on_restart=on_restart))
    return output


def _state_seeds() -> Iterable[bytes]:
    for form in (MINDSPORE, TENSORBOARD):
        for on_restart in ("mark", "latest"):
            with open(os.path.join(_made(form, on_restart), STATE_NAME), "rb") as file:
                yield file.read().replace(scratch().encode(), _SOURCE)


def take_archive(data: bytes) -> None:
    """Any bytes as an archive beside an output, read in its place; nothing of the output's own is gone."""
    source = "tensorboard" if data[:1] >= b"\x80" else "mindspore"
    path = put(f"ms_summary_bridge.{source}.archive", data[1:])
    items = list(read_archive(path, source))
    decoder = TensorBoardDecoder() if source == "mindspore" else MindSporeDecoder()
    shown = []
    for item in EventFileReader(put("shown", _shown(source)), decoder):
        assert isinstance(item, Event)
        shown.append(item)
    marks = _marks(source)
    found = list(restore(zip(shown, marks, strict=True), iter(items)))
    originals = sum(isinstance(item, tuple) for item in items)
    events = [item for item in found if isinstance(item, Event)]
    assert len(events) >= max(originals, len(shown) - originals), "an event is gone"
    assert len(events) <= len(shown) + originals, "an event is there twice"


def _shown(source: str) -> bytes:
    return build_file("tensorboard" if source == "mindspore" else "mindspore", range(4))


def _marks(source: str) -> list[int]:
    from crc32c import crc32c

    pieces = RecordDecoder().feed(_shown(source))
    return [crc32c(piece.payload) for piece in pieces if isinstance(piece, Record)]


def _archive_seeds() -> Iterable[bytes]:
    for source in (MINDSPORE, TENSORBOARD):
        head = b"\0" if source == MINDSPORE else b"\xff"
        records = RecordDecoder().feed(build_file(source, range(3)))
        parts = [piece.payload for piece in records if isinstance(piece, Record)]
        marks = _marks(source)
        file = [parts[0]]
        for number, payload in enumerate(parts[1:], 1):
            text = f"ms_summary_bridge.archive {'replaces' if number % 2 else 'follows'} {number} {marks[number]:08x} 2"
            file += [b"\x09" + bytes(8) + b"\x1a" + bytes([len(text)]) + text.encode(), payload]
        yield head + b"".join(map(encode_record, file))


# ---------------------------------------------------------------- names


def take_names(data: bytes) -> None:
    """Any bytes as the name of a file, and of a run."""
    name = data[:_MOST_PATH].decode("utf-8", "surrogateescape")
    for form in (MINDSPORE, TENSORBOARD):
        created, rank, host, number = parse_name(name, form)
        assert created is None or created >= 0
        assert rank is None or rank >= 0
        assert number >= 0
        assert host in name or host == ""
    assert not (is_wanted(name) and name.startswith("."))
    format_of_name(name)
    archive_source(name)
    order_of_path(name)
    flat = flatten(name)
    assert "/" not in flat
    assert flat.replace("+", "/").replace("~1", "+").replace("~0", "~") == name, "flattened and not undone"
    short = shorten(name)
    assert all(len(os.fsencode(part)) <= 255 for part in short.split("/")), "a part that no file system holds"
    assert shorten(short) == short, "a short name that is shortened again"
    part = name.replace("/", "").replace("\0", "")
    if part not in ("", ".", "..") and len(os.fsencode(part)) < 250:
        directory = empty("named")
        with open(os.path.join(directory, part), "wb") as file:
            file.write(build_file("mindspore", [1]))
        discover(directory)


def _name_seeds() -> Iterable[bytes]:
    for name in (
        mindspore_name(), mindspore_name(rank=None), mindspore_name(suffix="_lineage"), tensorboard_name(),
        "p.out.events.summary.1700000000.10.0.0.3_MS", "events.out.tfevents.1700000000.host.4000.0.v2",
        "ms_summary_bridge.mindspore.archive", "a/b+c~d/run_10", "x" * 300, "损失/训练", "model.pb",
    ):  # fmt: skip
        yield name.encode()


# ---------------------------------------------------------------- the tail of an event file


def take_event_tail(data: bytes) -> None:
    """Any bytes as an event file that a look takes the newest from."""
    form = "tensorboard" if data[:1] >= b"\x80" else "mindspore"
    path = put("tail", data[1:])
    tail = EventTail(path, form, is_lineage=data[:1] == b"\x01")
    facts, reading = RankFacts(), Reading()
    tail.read(os.stat(path), facts, reading)
    with open(path, "ab") as file:
        file.write(build_file(form, [5])[40:])
    tail.read(os.stat(path), facts, reading)
    assert isinstance(tail.problem, str)


def _tail_seeds() -> Iterable[bytes]:
    yield from _conversion_seeds()
    yield b"\x01" + (DATA / "mindspore-2.10-lineage.bin").read_bytes()


def _event_message(head: bytes) -> Any:
    """Files of TensorBoard's events begin with 0x80 and above."""
    return tb_pb.Event if head >= b"\x80" else ms_pb.LineageEvent if head == b"\x01" else ms_pb.Event


TARGETS = [
    Target("records", "files of records, by all readers", take_records, _record_seeds, "records", 1,
           lambda _: ms_pb.Event),
    Target("conversion", "event files converted, verified, and loaded", take_conversion, _conversion_seeds, "records",
           1, _event_message, None, ask_data_server),
    Target("state", "state files", take_state, _state_seeds, "json"),
    Target("archive", "archives beside an output", take_archive, _archive_seeds, "records", 1, _event_message),
    Target("names", "names of files and runs", take_names, _name_seeds, "lines"),
    Target("event_tail", "tails of event files", take_event_tail, _tail_seeds, "records", 1, _event_message),
]  # fmt: skip
