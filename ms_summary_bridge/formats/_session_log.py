"""TensorBoard's `SessionLog`: a mark that a training session begins, ends, or saved a checkpoint.

Source: `proto/tensorboard/event.proto`.
"""

from __future__ import annotations

from ms_summary_bridge.events import SessionLog
from ms_summary_bridge.formats import wire
from ms_summary_bridge.formats.plugin_data import decode_text

__all__ = ["decode_session_log", "encode_session_log"]


def decode_session_log(payload: bytes, start: int, end: int) -> tuple[SessionLog, bool]:
    """Returns the mark, and whether `encode_session_log` gives an equal message for it."""
    status = 0
    texts = {0x12: "", 0x1A: ""}
    is_exact = True
    for key, a, b in wire.fields(payload, start, end):
        if key == 0x08:
            status = a
        elif key in texts:
            texts[key], is_plain = decode_text(payload[a:b])
            is_exact = is_exact and is_plain
        else:
            is_exact = False
    return SessionLog(status, texts[0x12], texts[0x1A]), is_exact


def encode_session_log(log: SessionLog) -> bytes:
    """Encodes the message, without its key."""
    out = b"\x08" + wire.varint(log.status) if log.status else b""
    if log.checkpoint_path:
        out += wire.text(b"\x12", log.checkpoint_path)
    return out + wire.text(b"\x1a", log.message) if log.message else out
