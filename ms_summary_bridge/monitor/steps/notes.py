"""What a recorder notes beside the samples of steps: for people as a text, for programs as fields.

Imports no mindspore.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from ms_summary_bridge.errors import counted
from ms_summary_bridge.monitor.model.sample import Note, Sample, strict_numbers
from ms_summary_bridge.monitor.sinks.writer import Writer
from ms_summary_bridge.training.facts import TrainingFacts

__all__ = ["Notes"]


class Notes:
    """Notes of one training, put to its writer.

    `read_step` returns the last step that has ended, `wall_clock` seconds since epoch.
    """

    def __init__(
        self, training: TrainingFacts, writer: Writer, read_step: Callable[[], int], wall_clock: Callable[[], float]
    ) -> None:
        self._training = training
        self._writer = writer
        self._read_step = read_step
        self._wall_clock = wall_clock

    def note(self, kind: str, text: str, *, fields: dict[str, Any] | None = None, level: int | None = None) -> None:
        """Notes something; with a `level` the console says it too."""
        self._writer.put(self._make(kind, text, fields or {}, level))

    def milestone(self, text: str, **fields: Any) -> None:
        """Notes something that happened."""
        self.note("milestone", text, fields=fields)

    def tell_late(self, text: str) -> None:
        """Says something of the start that the writing thread alone knows."""
        self._writer.put(self._make("start", text, {}, logging.INFO), is_late=True)

    def evaluated(self, metrics: Mapping[str, float], epoch: int | None) -> None:
        """Notes the metrics of an evaluation inside the training: after which epoch, where that is known."""
        numbers, nonfinite = strict_numbers(metrics)
        total = f"/{self._training.epochs}" if self._training.epochs else ""
        place = f"epoch {epoch}{total}" if epoch else f"step {self._read_step()}"
        text = f"evaluation after {place}: " + ", ".join(f"{name}: {value:.5g}" for name, value in metrics.items())
        fields = {"epoch": epoch, "metrics": numbers, **({"nonfinite": nonfinite} if nonfinite else {})}
        self.note("evaluation", text, fields=fields, level=self._level())

    def end(self, text: str, fields: dict[str, Any]) -> None:
        """Notes how the training ended."""
        self.note("end", text, fields=fields, level=self._level())

    def take_all(self, step: int, steps: int, values: dict[str, float], text: str, monotonic: float) -> None:
        """Puts the values of a step over all ranks, by names below `all/`, and the same in words."""
        said = f"all {counted(self._training.ranks, 'rank')} at step {step}: {text}"
        sample = Sample(step=step, interval_steps=steps, values=values, of_all=said)
        sample.wall_time, sample.monotonic = self._wall_clock(), monotonic
        self._writer.put(sample)

    def _make(self, kind: str, text: str, fields: dict[str, Any], level: int | None) -> Note:
        moment = self._wall_clock()
        return Note(kind=kind, step=self._read_step(), wall_time=moment, text=text, fields=fields, level=level)

    def _level(self) -> int | None:
        return logging.INFO if self._training.rank == 0 else None
