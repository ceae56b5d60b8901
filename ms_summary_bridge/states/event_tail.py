"""The tail of one event file: its last records at the first look, and later what has been added.

Of a summary the numbers alone are taken out of the bytes: the histograms and images beside them would cost a hundred
times as much, and tell nothing of how a training is. What has lineage, milestones or a session in it is decoded.
"""

from __future__ import annotations

import os
import stat
from functools import lru_cache
from typing import ClassVar, Final

import msgspec

from ms_summary_bridge.errors import EventDecodeError
from ms_summary_bridge.events import SessionLog, Summary
from ms_summary_bridge.files.file_names import LINEAGE, MINDSPORE, TENSORBOARD
from ms_summary_bridge.files.record_decoder import RecordDecoder
from ms_summary_bridge.files.records import Damage, Piece, Record
from ms_summary_bridge.formats import wire
from ms_summary_bridge.formats.plugin_data import read_first_text
from ms_summary_bridge.formats.sessions.hparams import END_TAG, read_session_end
from ms_summary_bridge.formats.sessions.lineage import read_lineage
from ms_summary_bridge.runs.archive import make_decoder
from ms_summary_bridge.states.facts import RankFacts, role_of
from ms_summary_bridge.states.judgement import End
from ms_summary_bridge.states.reading import Reading, read_at
from ms_summary_bridge.values import Opaque, Scalar, Tensor

__all__ = ["EventTail"]

_TAIL_BYTES: Final = 8 << 10
_GROWTH: Final = 16
_ENOUGH_LOSSES: Final = 12
_MOST_BYTES: Final = 8 << 20  # of one file in one look; of more that is new the tail is read
_LINEAGE_BYTES: Final = 4 << 20
_MOST_SUMMARY: Final = 1 << 20  # a longer record is a graph or images
_SMALL_TENSOR: Final = 64
_FLOAT_KEY: Final = {MINDSPORE: 0x1D, TENSORBOARD: 0x15}
_MILESTONE: Final = b"milestones/"
_SESSION_END: Final = END_TAG.encode()
_CLOSED_MODE: Final = 0o400
_OPEN_MODE: Final = 0o600


class EventTail(msgspec.Struct):
    """One event file.

    Attributes:
        path: Where it is.
        format: `mindspore` or `tensorboard`.
        is_lineage: Whether it is a lineage file.
        is_twin: Whether it says what another file beside it says, but for milestones.
        is_live: Whether our callback writes it.
        created: Seconds since the epoch, of its name.
        host: Of its name.
        pid: Process that writes it, of its name; 0 where that does not say.
        inode: By which it is known.
        size: In bytes, when it was read; -1 before.
        offset: How far it was read.
        wanted: Bytes that it must have before there is another whole record.
        mode: What kind of file it is, and its permissions.
        modified: Seconds since the epoch.
        has_record: Whether a whole record was met.
        damaged: Ranges that hold no whole record, by where they begin.
        fault: Why it could not be read; empty where it could.
    """

    path: str
    format: str
    is_lineage: bool = False
    is_twin: bool = False
    is_live: bool = False
    created: int = 0
    host: str = ""
    pid: int = 0
    inode: int = 0
    size: int = -1
    offset: int = 0
    wanted: int = 0
    mode: int = 0
    modified: float = 0.0
    has_record: bool = False
    damaged: dict[int, str] = msgspec.field(default_factory=dict)
    fault: str = ""

    GIVEN: ClassVar[tuple[str, ...]] = ("path", "format", "is_lineage", "is_twin", "is_live", "created", "host", "pid")
    """What does not come from its content."""

    @property
    def is_closed(self) -> bool | None:
        """What its mode says: MindSpore's writer leaves 0600 while it writes and 0400 when it has closed a file."""
        if self.format != MINDSPORE:
            return None
        return {_CLOSED_MODE: True, _OPEN_MODE: False}.get(stat.S_IMODE(self.mode))

    def is_replaced(self, status: os.stat_result) -> bool:
        """Whether it is another file by now, or was cut."""
        return self.size >= 0 and (status.st_ino != self.inode or status.st_size < self.size)

    def read(self, status: os.stat_result, facts: RankFacts, reading: Reading) -> None:
        """Reads what is new; `status` is that of now."""
        self.mode, self.modified = status.st_mode, status.st_mtime
        if not stat.S_ISREG(status.st_mode):
            self.fault = "not a regular file"
            return
        if status.st_size == self.size:
            return
        is_first, self.size, self.inode = self.size < 0, status.st_size, status.st_ino
        if self.size < self.wanted:
            return
        try:
            self.fault = ""
            if is_first or self.size - self.offset > _MOST_BYTES:
                self._read_tail(facts, reading)
            else:
                self._take_all(*self._find_records(self.offset, reading), facts)
        except OSError as error:
            self.fault = f"cannot be read: {error.strerror or error}"

    def _read_tail(self, facts: RankFacts, reading: Reading) -> None:
        """Reads so much of the end as holds some losses, in few steps; all of a file that is short."""
        window = _LINEAGE_BYTES if self.is_lineage else _TAIL_BYTES
        while True:
            start = max(0, self.size - window)
            decoder, pieces = self._find_records(start, reading)
            losses = sum(isinstance(one, Record) and b"loss" in one.payload for one in pieces)
            is_enough = losses >= _ENOUGH_LOSSES or (losses and window > _TAIL_BYTES) or self.is_lineage or self.is_twin
            if start == 0 or is_enough or window * _GROWTH > _MOST_BYTES:
                break
            window *= _GROWTH
        if start and pieces and isinstance(pieces[0], Damage) and pieces[0].start == start:
            del pieces[0]  # the record that the window begins in
        self._take_all(decoder, pieces, facts)

    def _find_records(self, start: int, reading: Reading) -> tuple[RecordDecoder, list[Piece]]:
        data = read_at(self.path, start, self.size - start, reading)
        decoder = RecordDecoder(start)
        pieces: list[Piece] = [*decoder.feed(data)]
        if decoder.offset < start + len(data) < decoder.wanted - _MOST_BYTES:
            pieces += decoder.give_up()  # it lies about its length, as what stands in the middle of a record does
        return decoder, pieces

    def _take_all(self, decoder: RecordDecoder, pieces: list[Piece], facts: RankFacts) -> None:
        for piece in pieces:
            if isinstance(piece, Record):
                self.has_record = True
                self._take(piece, facts)
            elif isinstance(piece, Damage):
                self.damaged[piece.start] = f"bytes {piece.start} to {piece.end} hold no whole record: {piece.reason}"
        self.offset, self.wanted = decoder.offset, decoder.wanted
        for piece in decoder.finish():
            if isinstance(piece, Damage):
                self.wanted = 0
                self.damaged[piece.start] = f"bytes {piece.start} to {piece.end} hold no whole record: {piece.reason}"

    @property
    def is_damaged(self) -> bool:
        """Whether a part of it, or all, could not be read."""
        return bool(self.fault or self.damaged)

    @property
    def problem(self) -> str:
        """What is wrong with it; empty for nothing."""
        if self.fault:
            return self.fault
        if not self.has_record and self.size >= 0:
            if self.damaged:
                return "not an event file: it holds no whole record"
            return "no whole record yet" if self.size else "zero bytes"
        first = next(iter(self.damaged.values()), "")
        return first + (f" (and {len(self.damaged) - 1} more)" if len(self.damaged) > 1 else "")

    # ------------------------------------------------------------------ one event

    def _take(self, record: Record, facts: RankFacts) -> None:
        payload = record.payload
        try:
            if self.is_lineage:
                self._take_lineage(payload, facts)
            else:
                is_marked = self.format == TENSORBOARD and (_MILESTONE in payload or _SESSION_END in payload)
                if is_marked or not (self.is_twin or self._take_numbers(payload, facts)):
                    self._take_event(payload, facts)
        except EventDecodeError as error:
            self.damaged[record.offset] = f"the record at byte {record.offset} is not an event: {error.message}"

    def _take_numbers(self, payload: bytes, facts: RankFacts) -> bool:
        """Takes the numbers of a summary; returns whether that is all there is to it."""
        float_key = _FLOAT_KEY[self.format]
        wall_time, step = 0.0, 0
        has_number = False
        for key, a, b in wire.fields(payload, 0, len(payload)):
            if key == 0x2A and b - a <= _MOST_SUMMARY:
                for inner, c, d in wire.fields(payload, a, b):
                    if inner != 0x0A:
                        continue
                    tag, number = b"", -1
                    for part, e, f in wire.fields(payload, c, d):
                        if part == 0x0A:
                            tag = payload[e:f]
                        elif part == float_key:
                            number = e
                        elif part == 0x42 and f - e <= _SMALL_TENSOR and self.format == TENSORBOARD:
                            return False  # perhaps a number in a tensor
                    if number < 0:
                        continue
                    has_number = True
                    role = _role(tag)
                    if role:
                        value = wire.FLOAT32.unpack_from(payload, number)[0]
                        facts.take_number(role, tag.decode("utf-8", "replace"), step, wall_time, value)
            elif key == 0x09:
                wall_time = wire.FLOAT64.unpack_from(payload, a)[0]
                if not 0.0 <= wall_time < 1e18:  # not finite, or no time
                    wall_time = 0.0
            elif key == 0x10:
                step = wire.signed(a)
            elif key == 0x3A and self.format == TENSORBOARD:
                return False
        facts.live(wall_time)
        if has_number:
            facts.take_step(step, wall_time)
        return True

    def _take_event(self, payload: bytes, facts: RankFacts) -> None:
        event = make_decoder(self.format).decode(payload)
        content = event.content
        if isinstance(content, SessionLog) and content.status == SessionLog.STOP:
            facts.take_end(End(event.wall_time, False, "the writer has marked its end"))
        if not isinstance(content, Summary):
            return
        for tagged in content.values:
            value, tag = tagged.value, tagged.tag
            if isinstance(value, Tensor) and value.array.size == 1:
                value = Scalar.from_float64(float(value.array.reshape(-1)[0]))
            if isinstance(value, Scalar):
                if not self.is_twin:
                    facts.live(event.wall_time)
                    facts.take_step(event.step, event.wall_time)
                    if role := role_of(tag):
                        facts.take_number(role, tag, event.step, event.wall_time, value.value)
            elif isinstance(value, Opaque) and tag == END_TAG:
                self._take_session(value.payload, facts)
            elif isinstance(value, Opaque) and tag.startswith("milestones/"):
                self._take_milestone(tag, event.step, event.wall_time, value.payload, facts)

    def _take_session(self, message: bytes, facts: RankFacts) -> None:
        status, end_time = read_session_end(message)
        if status in ("success", "failure"):
            has_failed = status == "failure"
            facts.take_end(End(end_time, has_failed, "its session failed" if has_failed else "its session was ended"))

    def _take_milestone(self, tag: str, step: int, wall_time: float, message: bytes, facts: RankFacts) -> None:
        text = read_first_text(message)
        facts.live(wall_time)
        facts.milestones.append((step, wall_time, text))
        if tag == "milestones/error" and text.startswith("train "):
            facts.take_end(End(wall_time, True, text))
        elif tag == "milestones/training":
            if text.startswith("training ends"):
                facts.take_end(End(wall_time, False, text))
            else:
                facts.begin(wall_time)

    def _take_lineage(self, payload: bytes, facts: RankFacts) -> None:
        event = make_decoder(LINEAGE).decode(payload)
        content = event.content
        if content.kind == "dataset_graph":
            facts.awaits_lineage = True
            facts.session = max(facts.session, event.wall_time)  # written as a training begins
        elif content.kind == "evaluation_lineage":
            facts.evaluated = max(facts.evaluated, event.wall_time)
        elif content.kind == "train_lineage" and isinstance(content, Opaque):
            facts.has_lineage = True
            session = read_lineage({"train_lineage": content.payload})
            if session.status == "failure":
                facts.take_end(End(session.end_time, True, "its lineage says that the training failed"))
            elif session.status == "success":
                facts.take_end(End(session.end_time, False, "the lineage of the training was written"))


@lru_cache(maxsize=1 << 16)
def _role(tag: bytes) -> str:
    return role_of(tag.decode("utf-8", "replace"))
