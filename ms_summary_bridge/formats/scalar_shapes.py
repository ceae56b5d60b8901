"""A memory of what events with one scalar look like, so that the next one need not be taken apart again.

Nearly all records of a long run are `wall_time, step, summary{value{tag, float}}`, and between two of them only
the wall time, the step and the last four bytes differ. Once such an event has been decoded in the general way, the
bytes from the summary's key up to the float are remembered with their tag. Those bytes hold every key and every
length, so a later payload with the same bytes in that place has the same structure: a hit is not a guess. Without this
module every result is the same, only later (a property test says so).
"""

from __future__ import annotations

from typing import Final

from ms_summary_bridge.events import Event, Summary, TaggedValue
from ms_summary_bridge.formats import wire
from ms_summary_bridge.values import Scalar

__all__ = ["ScalarShapes"]

_SIZE: Final = 4096
_MAX_BYTES: Final = 1024  # a longer event is hardly one scalar, and to look up its bytes would cost their length
_WALL_TIME: Final = wire.FLOAT64.unpack_from
_MAX_WALL_TIME: Final = 1.7976931348623157e308


class ScalarShapes:
    """The shapes seen in one run.

    Args:
        float_key: Key of the float field in this format's `Value`.
        source_format: Name of the format, for the events made.
    """

    def __init__(self, float_key: bytes, source_format: str) -> None:
        self._float_key = float_key
        self._format = source_format
        self._tags: dict[bytes, str] = {}

    def decode(self, payload: bytes) -> Event | None:
        """Returns the event if its shape is known, else None."""
        if not 24 <= len(payload) <= _MAX_BYTES or payload[0] != 0x09 or payload[9] != 0x10:
            return None
        step = payload[10]
        position = 11
        if step > 127:
            high = payload[11]
            if high < 128:
                step = step & 127 | high << 7
                position = 12
            else:
                top = payload[12]
                if top < 128:
                    step = step & 127 | (high & 127) << 7 | top << 14
                    position = 13
                else:
                    step, position = wire.read_varint(payload, 10, len(payload))
                    step = wire.signed(step)
        tag = self._tags.get(payload[position:-4])
        if tag is None:
            return None
        wall_time = _WALL_TIME(payload, 1)[0]
        if not -_MAX_WALL_TIME <= wall_time <= _MAX_WALL_TIME:
            return None
        return Event(wall_time, step, Summary((TaggedValue(tag, Scalar(payload[-4:])),)), self._format)

    def learn(self, payload: bytes, event: Event) -> None:
        """Remembers the shape of an event that was decoded in the general way, if it has one scalar and no more."""
        content = event.content
        if len(payload) > _MAX_BYTES or event.original is not None:
            return
        if not isinstance(content, Summary) or len(content.values) != 1:
            return
        tagged = content.values[0]
        if tagged.original is not None or not isinstance(tagged.value, Scalar) or len(self._tags) >= _SIZE:
            return
        tag = wire.length_delimited(b"\x0a", tagged.tag.encode("utf-8", "surrogateescape"))
        value = wire.length_delimited(b"\x0a", tag + self._float_key + tagged.value.bits)
        summary = wire.length_delimited(b"\x2a", value)
        # Only this order of the fields: then what follows the step is the summary, and it ends with the float.
        head = b"\x09" + wire.FLOAT64.pack(event.wall_time) + b"\x10" + wire.varint(event.step)
        if payload == head + summary:
            self._tags[summary[:-4]] = tagged.tag
