"""An image in both formats' messages, which have the same fields.

Source: `Summary.Image` in `proto/mindspore/summary.proto` and `proto/tensorboard/summary.proto`.
"""

from __future__ import annotations

from ms_summary_bridge.formats import wire
from ms_summary_bridge.values import Image

__all__ = ["decode_image", "encode_image"]


def decode_image(payload: bytes, start: int, end: int) -> tuple[Image, bool]:
    """Returns the image, and whether `encode_image` gives an equal message for it."""
    numbers: dict[int, int] = {}
    encoded: bytes | None = None
    is_exact = True
    for key, a, b in wire.fields(payload, start, end):
        if key in (0x08, 0x10, 0x18):
            is_exact = is_exact and key not in numbers
            numbers[key] = wire.signed(a)
        elif key == 0x22:
            is_exact = is_exact and encoded is None
            encoded = payload[a:b]
        else:
            is_exact = False
    image = Image(numbers.get(0x08, 0), numbers.get(0x10, 0), numbers.get(0x18, 0), (encoded or b"",))
    return image, is_exact and len(numbers) == 3 and encoded is not None


def encode_image(image: Image, encoded: bytes, before: bytes = b"") -> bytes:
    """Encodes one image of a batch, key of the value's field included; `before` are the fields before it."""
    out = b"\x08" + wire.varint(image.height) + b"\x10" + wire.varint(image.width)
    out += b"\x18" + wire.varint(image.colorspace) + b"\x22" + wire.varint(len(encoded))
    return b"".join((before, b"\x22", wire.varint(len(out) + len(encoded)), out, encoded))
