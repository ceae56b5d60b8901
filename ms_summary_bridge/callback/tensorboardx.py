"""A tensorboardX `SummaryWriter` whose events go to the files of a live run.

Every `add_*` of it works as its documentation says. What differs is what lies below: nothing blocks when the disk is
full, `flush` is a barrier, and all events of a run land in its one event file. `add_scalars` and `add_hparams` make
child runs, because TensorBoard compares curves between runs only.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable
from typing import Any, Final

from tensorboardX.summary import hparams, scalar
from tensorboardX.writer import FileWriter, SummaryWriter

from ms_summary_bridge.live_writer.link import WriterLink

__all__ = ["BridgeSummaryWriter", "LinkOf"]

_LOG: Final = logging.getLogger("ms_summary_bridge")

LinkOf = Callable[[], WriterLink | None]


class _EventWriter:
    """What tensorboardX's `FileWriter` hands its events to."""

    def __init__(self, logdir: str, child: str, link_of: LinkOf, flush: Callable[[], bool]) -> None:
        self._logdir = logdir
        self._child = child
        self._link_of = link_of
        self._flush = flush

    def get_logdir(self) -> str:
        return self._logdir

    def add_event(self, event: Any) -> None:
        if not math.isfinite(event.wall_time):  # TensorBoard's fast loader reads no further than a NaN
            _LOG.warning("SummaryWriter: a walltime of %s cannot be shown; the present time is taken", event.wall_time)
            event.wall_time = time.time()
        link = self._link_of()
        if link is not None and not link.put("event", event.SerializeToString(), self._child):
            link.count_dropped("SummaryWriter", 1)

    def flush(self) -> None:
        self._flush()

    def close(self) -> None:
        self._flush()  # the file itself stays open for the run

    def reopen(self) -> None:
        pass


class _LinkFileWriter(FileWriter):
    """tensorboardX's `FileWriter` without its thread and its file."""

    def __init__(self, event_writer: _EventWriter) -> None:
        # The parent's constructor would make a file and a thread; these two are all that its methods use.
        self.event_writer = event_writer
        self._default_metadata: dict[str, Any] = {}


class BridgeSummaryWriter(SummaryWriter):
    """Writes into a run's TensorBoard file, in `logdir`, through the link that `link_of` gives while there is one."""

    def __init__(self, logdir: str, link_of: LinkOf, flush: Callable[[], bool]) -> None:
        self._link_of = link_of
        self._flush_run = flush
        self.file_writer: FileWriter | None = None
        self.all_writers: dict[str, FileWriter] | None = None
        super().__init__(logdir=logdir)

    def _get_file_writer(self) -> FileWriter:
        if self.all_writers is None or self.file_writer is None:  # none yet, or closed
            self.file_writer = self._make_file_writer("")
            self.all_writers = {str(self.logdir): self.file_writer}
        return self.file_writer

    def _make_file_writer(self, child: str) -> FileWriter:
        logdir = os.path.join(str(self.logdir), child) if child else str(self.logdir)
        return _LinkFileWriter(_EventWriter(logdir, child, self._link_of, self._flush_run))

    def _child(self, *parts: str) -> FileWriter:
        """Returns the writer of a child run; a tag never leads out of the run's directory."""
        names = [name for part in parts for name in part.replace("\0", "").split("/") if name not in ("", ".", "..")]
        child = "/".join(names) or "child"
        self._get_file_writer()
        assert self.all_writers is not None
        key = os.path.join(str(self.logdir), child)
        if key not in self.all_writers:
            self.all_writers[key] = self._make_file_writer(child)
        return self.all_writers[key]

    def add_scalars(
        self,
        main_tag: str,
        tag_scalar_dict: dict[str, float],
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """Adds several scalars as one chart: each is a child run `main_tag/<key>`."""
        walltime = time.time() if walltime is None else walltime
        for key, value in tag_scalar_dict.items():
            self._child(main_tag, key).add_summary(scalar(main_tag, value), global_step, walltime)

    def add_hparams(
        self,
        hparam_dict: dict[str, bool | str | float | int],
        metric_dict: dict[str, float],
        name: str | None = None,
        global_step: int | None = None,
    ) -> None:
        """Adds hyperparameters and metrics as a session of their own: the child run `name`, by default the time."""
        if type(hparam_dict) is not dict or type(metric_dict) is not dict:
            raise TypeError("hparam_dict and metric_dict are dictionaries")
        child = self._child(name or str(time.time()))
        for summary in hparams(hparam_dict, metric_dict):
            child.add_summary(summary)
        for tag, value in metric_dict.items():
            child.add_summary(scalar(tag, value), global_step)
