"""Under which step a bridge records each step of one training after another, and which steps it collects."""

from __future__ import annotations

__all__ = ["StepCount"]


class StepCount:
    """Counts over the trainings of one bridge.

    Both viewers drop the points of a tag that a lower step overtakes. So a training that counts from the beginning
    again goes on behind the one before; one that goes on by itself, from a checkpoint, is left as it is.

    Args:
        collect_freq: The first step is collected, and each that reaches a multiple of this.
    """

    def __init__(self, collect_freq: int) -> None:
        self._collect_freq = collect_freq
        self.reached = 0
        """The highest step of all trainings, as it was recorded."""
        self.can_move = True
        """Whether the steps of a training can be recorded behind those of the one before."""
        self.reset()

    def reset(self) -> None:
        """Belongs to no training, but remembers how far the ones before came."""
        self.step = 0
        """The last one that ended, as it is recorded."""
        self.last: int | None = None
        """The last one that ended, as MindSpore counts; None before the first of a training."""
        self.overlapped: int | None = None
        """The step that the trainings before had reached, if this one counts some of theirs again."""
        self.behind = 0
        """The step of the trainings before behind which this one is recorded."""

    def begin_training(self, first: int) -> None:
        """A training begins, of which `first` steps are done."""
        self.last = None
        self.behind = max(0, self.reached - first)
        self.step = first + (self.behind if self.can_move else 0)

    def end_step(self, number: int) -> int | None:
        """Takes the step that MindSpore counts as `number`; returns the one before, None for the first."""
        last, self.last = self.last, number
        if last is None:
            self.overlapped = self.reached if self.behind and number <= self.reached else None
            if self.overlapped is None or not self.can_move:
                self.behind = 0
        self.step = step = number + self.behind
        if step > self.reached:
            self.reached = step
        return last

    def is_due(self, last: int | None, number: int) -> bool:
        """Whether a step is collected that comes behind `last`, both as MindSpore counts."""
        return last is None or number // self._collect_freq > last // self._collect_freq
