"""For a MindSpore whose internals are not known: its own writer, and a follower of its file for TensorBoard."""

from __future__ import annotations

import logging
import threading
from typing import Any, Final

from ms_summary_bridge.convert.follow import follow_logdir
from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.errors import BridgeError

__all__ = ["Fallback"]

_LOG: Final = logging.getLogger("ms_summary_bridge")


class Fallback:
    """Runs a stock SummaryCollector, and converts what it writes.

    Args:
        collector: A `mindspore.train.SummaryCollector`.
        summary_dir: Where it writes.
        tensorboard_dir: Where the TensorBoard file goes.
        poll_secs: How often to look for new records.
    """

    def __init__(self, collector: Any, summary_dir: str, tensorboard_dir: str, poll_secs: float) -> None:
        self.collector = collector
        self._summary_dir = summary_dir
        self._tensorboard_dir = tensorboard_dir
        self._poll_secs = poll_secs
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, run_context: Any) -> None:
        """Begins a session."""
        self.collector.__enter__()
        self.collector.begin(run_context)
        self._thread = threading.Thread(target=self._follow, name="ms_summary_bridge follower", daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        try:
            follow_logdir(
                self._summary_dir,
                self._tensorboard_dir,
                to="tensorboard",
                stop=self._stop,
                on_round=lambda report: None,
                wait=lambda secs: self._stop.wait(self._poll_secs),
            )
        except BridgeError as error:
            _LOG.warning("SummaryBridge: TensorBoard's file is no longer brought up to date: %s", error)

    def close(self, *error: Any) -> None:
        """Ends the session; what MindSpore wrote last is converted before this returns."""
        self.collector.__exit__(*error)
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        try:
            convert_logdir(self._summary_dir, self._tensorboard_dir, to="tensorboard")
        except BridgeError as failure:
            _LOG.warning("SummaryBridge: the end of the run is not in TensorBoard's file: %s", failure)
