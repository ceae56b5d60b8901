"""A file whose records are damaged again and again: each chunk is decoded a few times, not once for each of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ms_summary_bridge.batches import reader as batch_reader
from ms_summary_bridge.batches.reader import BatchReader
from ms_summary_bridge.batches.shapes import Shapes
from ms_summary_bridge.events import Event
from ms_summary_bridge.files.event_file import EventFileReader
from ms_summary_bridge.files.records import Damage, encode_record
from ms_summary_bridge.formats.mindspore import MindSporeDecoder
from tests.codec_contract import scalar_event


def test_the_general_reader_is_asked_seldom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = [encode_record(scalar_event(0x1D, b"loss", bytes(4), float(number))) for number in range(2999)]
    records = [record[:-1] + bytes([record[-1] ^ 1]) if number % 2 else record for number, record in enumerate(good)]
    path = tmp_path / "r.out.events.summary.1.0.host_MS"
    path.write_bytes(b"".join(records))
    asked: list[int] = []

    class Counted(EventFileReader):
        def __init__(self, *arguments: object, **named: object) -> None:
            asked.append(1)
            super().__init__(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(batch_reader, "EventFileReader", Counted)
    found = list(BatchReader(str(path), MindSporeDecoder(), Shapes(b"\x1d")))
    with EventFileReader(path, MindSporeDecoder()) as reader:
        assert found == list(reader)
    assert sum(isinstance(item, Damage) for item in found) == 1499
    assert sum(isinstance(item, Event) for item in found) == 1500
    assert 1 <= len(asked) <= 16  # by a doubling; it were 1,499
