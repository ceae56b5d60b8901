"""One session of a bridge: from the first collected value to the end of a training or an evaluation."""

from __future__ import annotations

import os
import time
from typing import Any, Final

import numpy as np

from ms_summary_bridge.live_writer.link import WriterLink
from ms_summary_bridge.live_writer.run_config import LiveRunConfig
from ms_summary_bridge.training.distributed import find_process_rank, rank_directory

__all__ = ["Recording"]

_WHOLE: Final = (
    "graph",
    "dataset_graph",
    "custom_lineage_data",
    "hyperparameters",  # ours: of the user's too, so behind these
    "train_lineage",
    "eval_lineage",
)


class Recording:
    """Collects values into one event for each step, and hands it to the writer process.

    Args:
        summary_dir: Where MindSpore's files go.
        tensorboard_dir: Where TensorBoard's file goes.
        max_file_size: Bytes after which a new file is begun; None for one file.
        flush_secs: Longest time before a value can be read by others.
        queue_bytes: Most memory that waiting values may take.
    """

    def __init__(
        self,
        summary_dir: str,
        tensorboard_dir: str,
        *,
        max_file_size: int | None,
        flush_secs: float,
        queue_bytes: int,
    ) -> None:
        place = find_process_rank()
        now = time.time()
        config = LiveRunConfig(
            summary_dir=rank_directory(summary_dir, place.rank, place.ranks),
            tensorboard_dir=rank_directory(tensorboard_dir, place.rank, place.ranks),
            seconds=int(now),
            wall_time=now,
            device=place.rank,
            host=place.host.replace("/", "_") or "host",
            pid=os.getpid(),
            max_file_size=max_file_size,
            flush_secs=flush_secs,
        )
        self.config = config
        self.link = WriterLink(config, queue_bytes=queue_bytes)

    def put_collected(self, step: int, collected: dict[str, list[dict[str, Any]]]) -> None:
        """Hands over what one step collected; graph and lineage become records of their own, before the values."""
        wall_time = time.time()
        for plugin in _WHOLE:
            for item in collected.pop(plugin, ()):
                data = bytes(item["value"])
                if not self.link.put("whole", plugin, wall_time, data):
                    self.link.count_dropped(plugin, 1, f"the {plugin}", len(data))
        self.link.put_values(step, wall_time, collected)

    def put_failure(self) -> None:
        """Says that the training ends with an exception."""
        self.link.put("whole", "failure", time.time(), b"")

    def put_milestone(self, step: int, kind: str, text: str) -> None:
        """Hands over a milestone. Kinds have tags: TensorBoard's fast loader shows one text for each tag and step."""
        self.link.put("note", step, time.time(), f"milestones/{kind}", text)

    def put_value(self, plugin: str, tag: str, array: np.ndarray[Any, Any], step: int) -> None:
        """Hands over one value of the user's own."""
        self.link.put_values(step, time.time(), {plugin: [{"tag": tag, "value": array}]})
