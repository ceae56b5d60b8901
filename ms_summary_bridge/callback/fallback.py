"""For a MindSpore whose internals are not known: its own writer, and a follower of its file for TensorBoard."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Final

from ms_summary_bridge.convert.follow import follow_logdir
from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.errors import BridgeError

__all__ = ["Fallback"]

_LOG: Final = logging.getLogger("ms_summary_bridge")


class Fallback:
    """Runs a stock SummaryCollector, and converts what it writes; in the place of a `LiveCollection`.

    MindSpore's own writer counts its steps and knows no milestones. The user's own values have files of ours.
    """

    def __init__(
        self, collector: Any, summary_dir: str, tensorboard_dir: str, poll_secs: float, put_added: Callable[[], None]
    ) -> None:
        self._collector = collector
        self._summary_dir = summary_dir
        self._tensorboard_dir = tensorboard_dir
        self._poll_secs = poll_secs
        self._put_added = put_added
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, mode: str, run_context: Any) -> None:
        """A training or an evaluation begins."""
        self._collector.__enter__()
        self._collector.begin(run_context)
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

    def end_step(self, run_context: Any, *_: Any) -> None:
        """A step has ended."""
        self._collector.step_end(run_context)
        self._put_added()

    def end_epoch(self, run_context: Any) -> None:
        """An epoch has ended."""
        self._collector.epoch_end(run_context)

    def end_training(self, run_context: Any) -> None:
        """A training has ended."""
        self._collector.end(run_context)

    def end_evaluation(self, run_context: Any, *, is_alone: bool) -> None:
        """An evaluation has ended; of one inside a training SummaryCollector records nothing."""
        if is_alone:
            self._collector.end(run_context)

    def put_milestone(self, kind: str, text: str) -> None:
        """Does nothing: texts have no place in MindSpore's file."""

    def put_failure(self) -> None:
        """Does nothing: SummaryCollector is told by `close`."""

    def close(self, *error: Any) -> None:
        """Ends the session; what MindSpore wrote last is converted before this returns. May be called again."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._collector.__exit__(*(error or (None, None, None)))
        self._stop.set()
        thread.join()
        try:
            convert_logdir(self._summary_dir, self._tensorboard_dir, to="tensorboard")
        except BridgeError as failure:
            _LOG.warning("SummaryBridge: the end of the run is not in TensorBoard's file: %s", failure)
