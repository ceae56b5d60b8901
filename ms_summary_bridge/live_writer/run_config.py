"""What the training process tells the writer process about a run.

Apart from `live_writer.live_run`, so that a training does not load the formats.
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
    """When the run began, in seconds since epoch, for the version records."""
    device: int
    """Device or rank in the names of the files."""
    host: str
    pid: int
    max_file_size: int | None = None
    """Bytes after which a new file is begun; None for no limit."""
    flush_secs: float = 5.0
    """Longest time in seconds until values are in the files."""
    fsync: bool = False
    """Each flush waits until the disk has them."""

    def to_arguments(self) -> list[str]:
        """Returns it as arguments of a command. Paths stand by themselves: they may hold bytes that are no text."""
        rest = msgspec.structs.replace(self, summary_dir="", tensorboard_dir="")
        return [msgspec.json.encode(rest).decode(), self.summary_dir, self.tensorboard_dir]

    @classmethod
    def of_arguments(cls, arguments: list[str]) -> LiveRunConfig:
        """Returns what `to_arguments` was called on; raises ValueError for other arguments."""
        rest, summary_dir, tensorboard_dir = arguments
        config = msgspec.json.decode(rest, type=cls)
        return msgspec.structs.replace(config, summary_dir=summary_dir, tensorboard_dir=tensorboard_dir)
