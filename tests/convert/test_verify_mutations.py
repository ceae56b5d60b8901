"""verify notices every record of an output that is dropped, doubled, or has one flipped bit, its checksum made good.

Every record of every kind of output in both directions, archives and lineage included. With the state of the conversion
beside the output nothing is left out. Without it (lost) only what the output itself cannot prove: that its files are
ours and when they were begun, its own session marks, and the times and the version of the rules in an archive's places.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.convert.state import STATE_NAME
from ms_summary_bridge.convert.task import ConvertOptions
from ms_summary_bridge.convert.verify import verify_logdirs
from ms_summary_bridge.errors import NoEventsError
from ms_summary_bridge.events import FileVersion, SessionLog
from ms_summary_bridge.files.event_file import read_pieces
from ms_summary_bridge.files.file_names import LINEAGE
from ms_summary_bridge.files.records import Record, encode_record
from ms_summary_bridge.formats.landscapes import drawing
from ms_summary_bridge.runs.archive import make_decoder
from tests.log_samples import MINDSPORE_LOGS, TENSORBOARD_LOGS

TARGETS = {"mindspore": "tensorboard", "tensorboard": "mindinsight"}
SOURCES = {f"{name}, MindSpore": ("mindspore", make) for name, make in MINDSPORE_LOGS.items()}
SOURCES |= {f"{name}, TensorBoard": ("tensorboard", make) for name, make in TENSORBOARD_LOGS.items()}

Mutant = tuple[str, int, bytes, bytes]
"""What was done, to which record, its payload, and the file."""


def outputs(top: Path) -> list[Path]:
    return [path for path in sorted(top.rglob("*")) if path.is_file() and not path.name.startswith(".")]


def payloads_of(path: Path) -> list[bytes]:
    return [piece.payload for piece in read_pieces(path) if isinstance(piece, Record)]


def mutants_of(payloads: list[bytes], seed: str) -> Iterator[Mutant]:
    generator = random.Random(seed)
    records = [encode_record(payload) for payload in payloads]
    for n, payload in enumerate(payloads):
        bit = generator.randrange(8 * len(payload))
        flipped = bytearray(payload)
        flipped[bit // 8] ^= 1 << bit % 8
        for what, put in (
            ("dropped", []),
            ("doubled", [records[n], records[n]]),
            (f"bit {bit} flipped", [encode_record(bytes(flipped))]),
        ):
            yield what, n, payload, b"".join([*records[:n], *put, *records[n + 1 :]])


@pytest.fixture(autouse=True)
def drawings_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A landscape takes half a second to draw, and is always the same."""
    monkeypatch.setattr(drawing, "draw_landscape", functools.cache(drawing.draw_landscape))


def is_equal(source: Path, output: Path) -> bool:
    try:
        return verify_logdirs(str(source), str(output)).is_equal
    except NoEventsError:
        return False


def missed(source: Path, output: Path) -> list[tuple[str, str, int, bytes]]:
    """Returns the mutants that verify calls equal."""
    assert is_equal(source, output)
    found = []
    for path in outputs(output):
        whole = path.read_bytes()
        for what, number, payload, data in mutants_of(payloads_of(path), path.name):
            path.write_bytes(data)
            if is_equal(source, output):
                found.append((path.name, what, number, payload))
        path.write_bytes(whole)
    assert is_equal(source, output)
    return found


def convert(source: Path, output: Path, to: str, *, keep_archive: bool = True) -> None:
    report = convert_logdir(str(source), str(output), to=to, options=ConvertOptions(keep_archive=keep_archive))
    assert [run.failed for run in report.runs] == [""] * len(report.runs)


@pytest.mark.parametrize("keep_archive", [True, False], ids=["archive", "no archive"])
@pytest.mark.parametrize("name", SOURCES)
def test_every_mutant_is_noticed(tmp_path: Path, name: str, keep_archive: bool) -> None:
    source_format, make = SOURCES[name]
    make(tmp_path / "source")
    convert(tmp_path / "source", tmp_path / "output", TARGETS[source_format], keep_archive=keep_archive)
    assert missed(tmp_path / "source", tmp_path / "output") == []


@pytest.mark.parametrize("keep_archive", [True, False], ids=["archive", "no archive"])
@pytest.mark.parametrize("name", SOURCES)
def test_every_mutant_of_what_is_restored_is_noticed(tmp_path: Path, name: str, keep_archive: bool) -> None:
    source_format, make = SOURCES[name]
    other = "mindspore" if source_format == "tensorboard" else "tensorboard"
    make(tmp_path / "source")
    convert(tmp_path / "source", tmp_path / "there", TARGETS[source_format], keep_archive=keep_archive)
    convert(tmp_path / "there", tmp_path / "back", TARGETS[other])
    if not outputs(tmp_path / "back"):
        assert (name, keep_archive) == ("a real landscape, MindSpore", False)  # there is nothing but drawings of it
        return
    assert missed(tmp_path / "there", tmp_path / "back") == []


def may_be_missed(mutant: tuple[str, str, int, bytes]) -> bool:
    """Whether only the state tells: see the beginning of this file."""
    name, what, _, payload = mutant
    is_tensorboard = "tensorboard" in name or "tfevents" in name
    source = LINEAGE if LINEAGE in name else "tensorboard" if is_tensorboard else "mindspore"
    content = make_decoder(source).decode(payload).content
    is_archive = name.endswith(".archive")
    if isinstance(content, SessionLog):
        return not is_archive
    return isinstance(content, FileVersion) and ("flipped" in what or (what == "dropped" and not is_archive))


@pytest.mark.parametrize("name", SOURCES)
def test_without_a_state_only_times_and_marks_go_unnoticed(tmp_path: Path, name: str) -> None:
    source_format, make = SOURCES[name]
    make(tmp_path / "source")
    convert(tmp_path / "source", tmp_path / "output", TARGETS[source_format])
    (tmp_path / "output" / STATE_NAME).unlink()
    assert [mutant for mutant in missed(tmp_path / "source", tmp_path / "output") if not may_be_missed(mutant)] == []
