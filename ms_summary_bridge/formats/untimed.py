"""Events whose wall_time is NaN or infinite: carried whole, and shown in no viewer.

Source: measured. At a NaN, TensorBoard's fast loader (data-server 0.7.2) stops reading the file, so that every later
point is missing; an infinite time it drops with a warning. MindInsight 2.3.1 answers with a bare `NaN` or `Infinity`,
which is not JSON, so that a browser draws nothing of the tag. So no such time may get into an output.
"""

from __future__ import annotations

from typing import Final

from ms_summary_bridge.events import Content, Event, Summary, TaggedValue
from ms_summary_bridge.formats import wire
from ms_summary_bridge.values import Opaque

__all__ = ["as_untimed"]

_SUMMARY: Final = 0x2A  # in both formats
_VALUE: Final = 0x0A


def as_untimed(payload: bytes, wall_time: float, step: int, content: Content, source_format: str) -> Event:
    """Returns an event of `payload` with wall_time 0.0, as where a writer gives none, and its values not interpreted.

    A version and a session mark stay what they are: they are not shown. Encoding the event in its own format gives
    `payload` back, NaN bits included. `wall_time` is what it says, `content` what it decodes to otherwise.
    """
    reason = f"its wall_time is {wall_time}, for which a viewer would leave out other points"
    if isinstance(content, Opaque) or (isinstance(content, Summary) and not content.values):
        kind = content.kind if isinstance(content, Opaque) else "event"
        return Event(0.0, step, Opaque(f"untimed {kind}", payload, reason), source_format)
    if isinstance(content, Summary):
        summaries = wire.all_fields(payload, _SUMMARY)
        messages = [message for summary in summaries for message in wire.all_fields(summary, _VALUE)]
        content = Summary(
            tuple(
                TaggedValue(tagged.tag, Opaque(f"untimed {tagged.value.kind}", message, reason))
                # The last ones: an event that is malformed may have a summary which another content replaced.
                for tagged, message in zip(content.values, messages[-len(content.values) :], strict=True)
            )
        )
    return Event(0.0, step, content, source_format, payload)
