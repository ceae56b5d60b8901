"""How TensorBoard's log encoded a scalar that a MindSpore value stands for, so that it comes back the same.

TensorBoard takes a scalar as a tensor of any dtype and layout, with metadata or without; MindSpore has one float. What
the source says beside the tag goes into the field 1000 of MindSpore's `Summary.Value`, which its readers pass over
(seen with MindInsight 2.3.1)::

    uint32 crc32c of the float's four bytes and of what follows, little-endian | the source's value without its tag

Where the source's value does not begin with the tag, all of it is there. This costs less than an original in the
archive: about 40 bytes an event, and no record of its own. Plain values (`simple_value`, no metadata) need nothing.
"""

from __future__ import annotations

from typing import Final

from crc32c import crc32c

from ms_summary_bridge.formats import wire

__all__ = ["ORIGIN_KEY", "decode_scalar_origin", "encode_scalar_origin"]

ORIGIN_KEY: Final = 1000 << 3 | wire.LENGTH_DELIMITED
_KEY: Final = wire.varint(ORIGIN_KEY)
_TAG: Final = b"\x0a"


def encode_scalar_origin(original: bytes, message: bytes) -> bytes:
    """Encodes the field, key included, from TensorBoard's message of a value and MindSpore's: tag and float."""
    rest = original.removeprefix(message[:-5])  # both begin with the tag in one field
    content = crc32c(message[-4:] + rest).to_bytes(4, "little") + rest
    return _KEY + wire.varint(len(content)) + content


def decode_scalar_origin(content: bytes, tag: bytes, bits: bytes) -> bytes | None:
    """Returns the value's message in TensorBoard's log; None where the field was not written for this float."""
    rest = content[4:]
    if crc32c(bits + rest).to_bytes(4, "little") != content[:4]:
        return None
    return rest if rest.startswith(_TAG) else wire.length_delimited(_TAG, tag) + rest
