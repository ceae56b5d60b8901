"""Lines for people: on the console, and in the local text log."""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Callable
from typing import Final

from ms_summary_bridge.errors import counted
from ms_summary_bridge.monitor.model.sample import Note, Sample
from ms_summary_bridge.monitor.sinks.line_file import FileSink, LineFile
from ms_summary_bridge.monitor.sinks.writer import Sink
from ms_summary_bridge.training.facts import TrainingFacts

__all__ = ["ConsoleSink", "TextLogSink", "describe_sample", "duration"]

_LOG: Final = logging.getLogger("ms_summary_bridge.monitor")
_WAITING_SHARE: Final = 0.3  # of the time: more of it waiting for data is worth a word in each line

# How a value is called in a line, and its unit, where the name of the metric does not say it.
_LABELS: Final = {
    "tokens_per_second": ("tokens/s", ""),
    "samples_per_second": ("samples/s", ""),
    "step_time": ("step time", " s"),
    "data_time": ("data time", " s"),
    "memory_usage": ("memory", " MiB"),
    "host_memory": ("host memory", " MiB"),
    "npu_memory": ("NPU memory", " MiB"),
    "gpu_memory": ("GPU memory", " MiB"),
    "npu_utilization": ("NPU", " %"),
    "gpu_utilization": ("GPU", " %"),
    "npu_power": ("power", " W"),
    "temperature": ("temperature", " C"),
    "grad_norm": ("grad norm", ""),
    "loss_scale": ("loss scale", ""),
    "global_rank": ("rank", ""),
}
_SAID_ANYWAY: Final = ("epoch", "step")


def describe_sample(sample: Sample, training: TrainingFacts) -> str:
    """Returns a sample as one line: `epoch 1/3 step: 15/100, loss: 5.4321, lr: 0.0001, ...`."""
    if sample.of_all:
        return sample.of_all
    place = ""
    if sample.epoch is not None:
        place = f"epoch {sample.epoch}{_of(training.epochs)} "
    if sample.step_in_epoch is not None and training.steps_per_epoch:
        place += f"step: {sample.step_in_epoch}{_of(training.steps_per_epoch)}"
    else:
        place += f"step: {sample.step}"
    parts = [place]
    for name, value in sample.values.items():
        if name not in _SAID_ANYWAY:
            label, unit = _LABELS.get(name, (name, ""))
            parts.append(f"{label}: {_number(value)}{unit}")
    for name, count in sample.nonfinite_steps.items():
        if math.isfinite(sample.values.get(name, math.nan)):
            parts.append(f"{name} not finite in {counted(count, 'step')}")
    if sample.secs_left is not None:
        parts.append(f"ETA: {duration(sample.secs_left)}")
    if sample.data_share is not None and sample.data_share >= _WAITING_SHARE:
        parts.append(f"{100 * sample.data_share:.0f} % waiting for data")
    parts.append("first step: compiled" if sample.is_first else f"interval_steps: {sample.interval_steps}")
    return ", ".join(parts)


def _of(total: int | None) -> str:
    return f"/{total}" if total else ""


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{value}"
    if abs(value) >= 10_000:
        return f"{value:.0f}"
    return f"{value:.5g}"


def duration(secs: float) -> str:
    """Returns seconds as `1 d 02:03:04` or `0:12:34`."""
    days, rest = divmod(round(max(0.0, secs)), 86_400)
    hours, rest = divmod(rest, 3600)
    minutes, seconds = divmod(rest, 60)
    return f"{days} d {hours:02}:{minutes:02}:{seconds:02}" if days else f"{hours}:{minutes:02}:{seconds:02}"


class _PlainHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to whatever standard output is now; a line that cannot be written is left out."""

    def __init__(self) -> None:
        super().__init__(sys.stdout)

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stdout
        if self.stream is not None:
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Does nothing: logging's own would print a traceback for each line on a full disk."""


class ConsoleSink(Sink):
    """Logs lines under `ms_summary_bridge.monitor`; where nobody handles logs, they go to standard output.

    `level` is the lowest that is shown, and `prints_samples` whether there is a line for each sample, as on rank 0.
    """

    def __init__(self, training: TrainingFacts, level: str, *, prints_samples: bool) -> None:
        self._training = training
        self._level = level
        self._prints_samples = prints_samples

    def open(self) -> None:
        """Sets the level."""
        _LOG.setLevel(self._level)
        if not _LOG.hasHandlers():
            _LOG.addHandler(_PlainHandler())

    def write_sample(self, sample: Sample) -> None:
        """Logs a sample."""
        if self._prints_samples:
            _LOG.info("%s", describe_sample(sample, self._training))

    def write_note(self, note: Note) -> None:
        """Logs a note, line by line."""
        if note.level is not None:
            for line in note.text.splitlines():
                _LOG.log(note.level, "%s", line)


class TextLogSink(FileSink):
    """The same lines with their times in a file, on every rank: the backend `local`."""

    def __init__(self, path: str, training: TrainingFacts, warn: Callable[[str, str], None]) -> None:
        super().__init__(LineFile(path, warn))
        self._training = training

    def write_sample(self, sample: Sample) -> None:
        """Takes a sample."""
        self._write(sample.wall_time, "INFO", describe_sample(sample, self._training))

    def write_note(self, note: Note) -> None:
        """Takes a note."""
        for line in note.text.splitlines():
            self._write(note.wall_time, logging.getLevelName(note.level or logging.INFO), line)

    def _write(self, wall_time: float, level: str, line: str) -> None:
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(wall_time))
        self.file.append(f"{moment} {level} {line}".encode())
