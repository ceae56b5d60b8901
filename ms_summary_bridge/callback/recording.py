"""The files of a bridge: begun by the first value, ended by `close`, and new ones begun by the next value."""

from __future__ import annotations

import os
import threading
import time
from typing import Any, Final

import numpy as np

from ms_summary_bridge.live_writer.link import WriterLink
from ms_summary_bridge.live_writer.run_config import LiveRunConfig
from ms_summary_bridge.training.distributed import find_process_rank, rank_directory

__all__ = ["Recording"]

_CLOSE_SECS: Final = 600.0  # as long as a slow disk may need for what waits at the end of a training
_WHOLE: Final = (
    "graph",
    "dataset_graph",
    "custom_lineage_data",
    "hyperparameters",  # ours: of the user's too, so behind these
    "train_lineage",
    "eval_lineage",
)


class Recording:
    """Makes one event of what a step has, and hands it to the writer process. The arguments are the bridge's."""

    def __init__(
        self,
        summary_dir: str,
        tensorboard_dir: str,
        *,
        max_file_size: int | None,
        flush_secs: float,
        fsync: bool,
        queue_bytes: int,
    ) -> None:
        self.summary_dir = summary_dir
        self.tensorboard_dir = tensorboard_dir
        self.flush_secs = flush_secs
        self._fsync = fsync
        self._max_file_size = max_file_size
        self._queue_bytes = queue_bytes
        self._lock = threading.RLock()
        self._link: WriterLink | None = None

    def open(self) -> WriterLink:
        """Returns the link to the writer process of this session, which its first value starts."""
        with self._lock:
            if self._link is None:
                self._link = WriterLink(self._configure(), queue_bytes=self._queue_bytes)
            return self._link

    def _configure(self) -> LiveRunConfig:
        place = find_process_rank()
        now = time.time()
        return LiveRunConfig(
            summary_dir=rank_directory(self.summary_dir, place.rank, place.ranks),
            tensorboard_dir=rank_directory(self.tensorboard_dir, place.rank, place.ranks),
            seconds=int(now),
            wall_time=now,
            device=place.rank,
            host=place.host.replace("/", "_") or "host",
            pid=os.getpid(),
            max_file_size=self._max_file_size,
            flush_secs=self.flush_secs,
            fsync=self._fsync,
        )

    def flush(self, timeout: float) -> bool:
        """Waits until all is in the files; False if that takes over `timeout` seconds."""
        link = self._link
        return link is None or link.flush(timeout)

    def close(self) -> None:
        """Ends the session: all is in the files when this returns."""
        with self._lock:
            link, self._link = self._link, None
            if link is not None:
                link.close(_CLOSE_SECS)

    def put_collected(self, step: int, collected: dict[str, list[dict[str, Any]]]) -> None:
        """Hands over what one step collected; graph and lineage become records of their own, before the values."""
        link = self.open()
        wall_time = time.time()
        for plugin in _WHOLE:
            for item in collected.pop(plugin, ()):
                data = bytes(item["value"])
                if not link.put("whole", plugin, wall_time, data):
                    link.count_dropped(plugin, 1, f"the {plugin}", len(data))
        link.put_values(step, wall_time, collected)

    def put_failure(self) -> None:
        """Says that the training ends with an exception; nothing if it has recorded nothing."""
        if self._link is not None:
            self._link.put("whole", "failure", time.time(), b"")

    def put_milestone(self, step: int, kind: str, text: str) -> None:
        """Hands over a milestone. Kinds have tags: TensorBoard's fast loader shows one text for each tag and step."""
        self.open().put("note", step, time.time(), f"milestones/{kind}", text)

    def put_value(self, plugin: str, tag: str, value: Any, step: int, wall_time: float | None = None) -> None:
        """Hands over one value: an array, or for a scalar a number; its time is now when None."""
        items = [{"tag": tag, "value": np.asarray(value)}]
        self.open().put_values(step, time.time() if wall_time is None else wall_time, {plugin: items})
