"""What the training process tells the writer process about a run.

Layer: the lowest of `callback`. Apart from `callback.live_run`, so that a training does not load the formats.
"""

from __future__ import annotations

import msgspec

__all__ = ["LiveRunConfig"]


class LiveRunConfig(msgspec.Struct):
    """Where one run goes, and under which names."""

    summary_dir: str
    tensorboard_dir: str
    seconds: int
    """Unix time in the names of the files."""
    wall_time: float
    """When the run began, for the version records."""
    device: int
    """Device or rank in the names of the files."""
    host: str
    pid: int
    max_file_size: int | None = None
    flush_secs: float = 5.0
