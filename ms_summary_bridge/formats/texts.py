"""The texts of TensorBoard's text page, which this package carries as they are."""

from __future__ import annotations

from typing import Final

from ms_summary_bridge.errors import BridgeError
from ms_summary_bridge.formats import wire
from ms_summary_bridge.formats.tensor import decode_tensorboard_tensor
from ms_summary_bridge.values import Opaque

__all__ = ["TEXT", "text_of"]

TEXT: Final = "text"
"""The kind of an `Opaque` that is a text: the name of TensorBoard's plugin."""


def text_of(value: Opaque) -> str | None:
    """Returns a text of TensorBoard's text plugin, several joined by empty lines; None where it is something else."""
    if value.kind != TEXT:
        return None
    try:
        for key, a, b in wire.fields(value.payload, 0, len(value.payload)):
            if key == 0x42:
                strings = decode_tensorboard_tensor(value.payload, a, b)
                if isinstance(strings, list):
                    return "\n\n".join(part.decode("utf-8", "replace") for part in strings)
    except BridgeError:
        return None
    return None
