"""When events go in batches."""

from __future__ import annotations

from typing import Final

import msgspec

from ms_summary_bridge.files.event_file import CHUNK_BYTES

__all__ = ["LIMITS", "Limits"]


class Limits(msgspec.Struct):
    """Bounds of the batch lane. They change how long a conversion takes, and never what comes of it.

    Attributes:
        is_used: Whether there are batches at all.
        fewest: Records that make a batch; fewer are done sooner one by one.
        patience: Records that go the general way before the lane is tried again where it failed.
        most_patience: The same where it has failed again and again.
        chunk_bytes: Bytes looked at together.
    """

    is_used: bool = True
    fewest: int = 32
    patience: int = 64
    most_patience: int = 4096
    chunk_bytes: int = CHUNK_BYTES


LIMITS: Final = Limits()
"""Those in force."""
