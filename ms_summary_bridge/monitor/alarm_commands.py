"""What alarms ask of the training thread, between two steps: a checkpoint, and to stop.

Imports no mindspore.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterable
from typing import Any

from ms_summary_bridge.files.atomic import replacing
from ms_summary_bridge.monitor.alarms.alarm_sink import REPORT
from ms_summary_bridge.monitor.model.alert import Alert
from ms_summary_bridge.monitor.recorder import Recorder
from ms_summary_bridge.training.distributed import rank_directory

__all__ = ["AlarmCommands"]


class AlarmCommands:
    """Is asked after a step of a training that the recorder has begun.

    What `callbacks` save is known as a checkpoint; `save` saves one under a path, and is None where nobody can.
    """

    def __init__(self, recorder: Recorder, callbacks: Iterable[Any], save: Callable[[str], None] | None) -> None:
        self._recorder = recorder
        # MindSpore's ModelCheckpoint, MindFormers' CheckpointMonitor and our own say so under the same name.
        self._savers = [callback for callback in callbacks if hasattr(callback, "latest_ckpt_file_name")]
        self._seen = [str(saver.latest_ckpt_file_name) for saver in self._savers]
        self._save = save
        self._saved: list[str] = []  # for alarms, the oldest first
        if self._savers or recorder.training.ranks > 1:
            recorder.tap.is_asked = True  # after each step, and not only once an alarm has asked for something
        self._is_stopped = False
        self.is_alone = False
        """Whether this rank ends without the others, which do not answer."""
        self.exit_code: int | None = None
        """With which the process is to end after a stop; None to go on."""

    def poll(self) -> bool:
        """Does what is due after a step; returns whether the training stops here."""
        recorder = self._recorder
        for number, saver in enumerate(self._savers):
            if saver.latest_ckpt_file_name != self._seen[number]:
                self._note_checkpoint(number)
        alert = recorder.alarms.checkpoint_due
        if alert is not None:
            recorder.alarms.checkpoint_due = None
            self._save_checkpoint(alert)
        if self._is_stopped:
            return True
        verdict = recorder.stop.poll(recorder.step)
        if verdict == "go":
            return False
        self._is_stopped = True
        self.exit_code = recorder.config.exit_code
        text = f"the training is stopped after step {recorder.step}: {recorder.stop.reason}"
        if recorder.stop.proposer != recorder.training.rank:
            text += f" (on rank {recorder.stop.proposer})"
        if verdict == "leave":
            # Without an exit code the launcher would not know, and the others would wait for this rank.
            self.is_alone = True
            self.exit_code = self.exit_code or 1
            text += "; the other ranks do not answer: this one ends alone"
        if recorder.stop.proposer == recorder.training.rank and recorder.run_directory is not None:
            directory = rank_directory(recorder.run_directory, recorder.training.rank)
            text += f"; report: {os.path.join(directory, REPORT)}.txt"
        if self.exit_code is not None:
            text += f"; the process will end with exit code {self.exit_code}"
        recorder.notes.note("stop", text, level=logging.WARNING)
        return True

    def end(self) -> None:
        """The training has ended: what its very last step asked for decides about the exit code still, and is saved."""
        if not self._is_stopped and self._recorder.stop.is_asked:
            self._is_stopped = True
            self.exit_code = self._recorder.config.exit_code
        alert, self._recorder.alarms.checkpoint_due = self._recorder.alarms.checkpoint_due, None
        if alert is not None:
            self._save_checkpoint(alert)

    def _note_checkpoint(self, number: int) -> None:
        saver, recorder = self._savers[number], self._recorder
        self._seen[number] = path = str(saver.latest_ckpt_file_name)
        # Of a callback that comes after the monitor it is seen one step later.
        step = getattr(saver, "_last_triggered_step", None)
        step = recorder.step if not isinstance(step, int) else step + recorder.training.initial_step
        recorder.alarms.note_checkpoint(step, path)

    def _save_checkpoint(self, alert: Alert) -> None:
        recorder = self._recorder
        if self._save is None:
            recorder.faults.warn("save", "an alarm asks for a checkpoint: give Monitor a save_checkpoint")
            return
        if recorder.run_directory is None:
            recorder.alarms.checkpoint_due = alert  # the directory is known in a moment
            return
        directory = os.path.join(rank_directory(recorder.run_directory, recorder.training.rank), "checkpoints")
        path = os.path.join(directory, f"alarm-{alert.rule}-step_{recorder.step}.ckpt")
        try:
            os.makedirs(directory, exist_ok=True)
            with replacing(path, temporary="unfinished.ckpt") as unfinished, recorder.spending("checkpoint"):
                self._save(unfinished)
        except Exception as error:  # whatever a network, or a function of the user's, raises
            recorder.faults.warn("save", f"{path}: the checkpoint of an alarm cannot be saved: {error!r}")
            return
        # An alarm that lasts for days must not fill the disk.
        self._saved = [saved for saved in self._saved if saved != path] + [path]
        while len(self._saved) > recorder.config.keep_checkpoint_max:
            with contextlib.suppress(OSError):
                os.remove(self._saved.pop(0))
        if recorder.is_open:
            recorder.notes.note("milestone", f"checkpoint saved for the alarm {alert.rule}: {path}", level=logging.INFO)
